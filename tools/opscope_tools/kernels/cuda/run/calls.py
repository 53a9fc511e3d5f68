"""Calls in the abstract run of a CUDA kernel: the language's functions, accesses by function, device functions, lambdas.

A device function is run with what it is handed: types of arguments settle its template parameters. A callee that is
not found and takes floating-point values, pointers or data is put among what is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from opscope_tools.kernels.cuda.launch.host_expressions import CEIL_DIV
from opscope_tools.kernels.cuda.names.functions import Function, fitting
from opscope_tools.kernels.cuda.names.values import (
    DOUBLE,
    FLOAT,
    HALF,
    INT,
    UNKNOWN,
    UNTOLD,
    VOID,
    Type,
    Value,
    converted,
    lane_step,
    named_type,
    usual,
    whole,
    wrapped,
)
from opscope_tools.kernels.cuda.run.accesses import access, pointed, read, shown
from opscope_tools.kernels.cuda.run.expressions import index_of
from opscope_tools.kernels.cuda.run.functions import DEPTH, Functions, by_types
from opscope_tools.kernels.cuda.run.groups import made_group, of_group
from opscope_tools.kernels.cuda.run.instructions import instructions
from opscope_tools.kernels.cuda.run.language import LOADS, STORES, Effect, assembled, effect
from opscope_tools.kernels.cuda.run.state import State, Values
from opscope_tools.kernels.cuda.run.tensors import Tensors
from opscope_tools.kernels.cuda.run.variables import bind, forget
from opscope_tools.kernels.cuda.syntax.nodes import Assembly, Call, Member, Name, Node, TypeName, Unary, spelled
from opscope_tools.kernels.run.events import Call as FunctionCall
from opscope_tools.kernels.run.events import Part
from opscope_tools.kernels.run.log import EVERY, FLOPS, MEMORY
from opscope_tools.kernels.values.expressions import call, ceil_div, render

_ATOMIC = re.compile(
    r"(?:__)?atomic(Add|Sub|Max|Min|Exch|CAS|And|Or|Xor|Inc|Dec)(?:_block|_system)?(?:Noret)?|(?:gpu|fast)AtomicAdd(?:NoReturn)?"
)
#: functions that have these names in `std` alone, so that without it they are a repository's own
_OF_STD = frozenset({"bit_cast", "clamp", "forward", "launder", "move"})
_COPIES = frozenset({"__pipeline_memcpy_async", "memcpy_async"})
_TWO_LANES = re.compile(r"__h\w+2(?:_\w+)?|h2\w+|__h2\w+")
#: methods that give a size or an address, not an element
_ADDRESSES = re.compile(
    r"(?i)sizes?|strides?|dim|ndim|rank|numel|shape|layout|length|\w*offset|(?:get_?)?(?:\w*_)?(?:ptr|pointer)|data|get|begin|end|"
    r"is_\w+|has_\w+|extent"
)
_FRAGMENT = re.compile(r"(?:nvcuda::)?wmma::fragment<(.*)>")
#: what hands on the address that it is given
SAME_POINTER = frozenset(
    "__builtin_assume_aligned __cvta_generic_to_global __nv_cvta_generic_to_global_impl forward move launder".split()
)
MATMUL: frozenset[Part] = frozenset({"matmul", "flops"})
Parameters: TypeAlias = Iterable[tuple[TypeName, str]]


class Calls:
    """What calls come to."""

    def __init__(self, values: Values, functions: Functions) -> None:
        self.value, self.place, self.functions = values.value, values.place, functions
        self.tensors = Tensors(values)
        #: functions that were entered where no cost counts them, each with the way to it
        self._listed: set[tuple[int, str]] = set()

    def call(self, state: State, node: Call) -> Value:
        """What a call gives back; what it does is put down on the way, a function of the repository followed."""
        instructions(state, node, f"{spelled(node.function)}(")
        if (made := self.tensors.call(state, node)) is not None:
            return made
        if isinstance(node.function, Member):
            return self.method(state, node, node.function)
        if not isinstance(node.function, Name):
            return self.of_value(state, node, self.place(state, node.function))
        name = node.function.text
        plain = name.rpartition("::")[2]
        variable = state.scope.find(name)
        if variable is not None and isinstance(variable.function, str):
            return self.by_name(state, node, variable.function, ())
        if variable is not None:
            return self.of_value(state, node, self.place(state, node.function))
        if plain in LOADS and node.arguments:
            return read(state, self._target(state, node), node, plain, node.arguments[0])
        if plain in STORES and len(node.arguments) == 2:
            self.value(state, node.arguments[1])
            self.stored(state, node, self._target(state, node), plain)
            return Value(VOID)
        if _ATOMIC.fullmatch(plain) and node.arguments and not self._own_atomic(state, plain):
            return self.atomic(state, node, plain)
        if plain in _COPIES and len(node.arguments) >= 3:
            return self.copied(state, node)
        return self.by_name(state, node, name, node.function.arguments or ())

    def of_value(self, state: State, node: Call, found: Value) -> Value:
        """A call of what an expression comes to: a lambda, or an object whose structure says what that does."""
        places = [self.place(state, a) for a in node.arguments]
        if found.function is None:
            return self.of_object(state, node, found, "operator()", node.arguments, places)
        values = self.given(state, found.function[0].parameters, node.arguments, places)
        made = self.functions.closure(state, found, values)
        _written_through(state, found.function[0].parameters, node.arguments, places)
        return made

    def of_object(
        self, state: State, node: Node, base: Value, name: str, arguments: Sequence[Node], places: list[Value]
    ) -> Value:  # fmt: skip
        """A method of an object; where its structure does not tell it, what it does is not counted."""
        method = self.functions.method_of(state, base, name, len(places))
        if method is None:
            values = [_taken(state, p, a) for p, a in zip(places, arguments, strict=True)]
            return self.unknown(state, node, [base, *values], of_object=base.type.kind not in {"int", "float"})
        made = self.functions.method(state, base, method, self.given(state, method.parameters, arguments, places))
        _written_through(state, method.parameters, arguments, places)
        return made

    def given(
        self, state: State, parameters: Parameters, arguments: Sequence[Node], places: Sequence[Value]
    ) -> list[Value]:  # fmt: skip
        """What parameters are given: places where they are references, else what is read there."""
        given = zip(parameters, arguments, places, strict=False)
        return [place if kind.reference else read(state, place, node) for (kind, _), node, place in given]

    def _own_atomic(self, state: State, name: str) -> bool:
        """Whether an atomic operation that is none of the language is a function of the repository."""
        return "atomic" not in name and bool(state.scope.called(name))

    def _target(self, state: State, node: Call) -> Value:
        """What the first argument points to."""
        found = self.value(state, node.arguments[0])
        return pointed(state, found, found.varies, lane_step(found))

    def by_name(self, state: State, node: Call, name: str, arguments: tuple[str, ...]) -> Value:
        """A function that is not a variable: of the language, a type's constructor, or of the repository."""
        space, _, plain = name.rpartition("::")
        named_std = space.removeprefix("::").partition("::")[0] in {"std", "cuda", "thrust"}
        own = plain in _OF_STD and not named_std and bool(space or state.scope.called(name))
        known = None if own else effect(name)
        kind = None if known is not None else state.scope.types.get(name) or named_type(name)
        if kind is None and known is None and (found := state.scope.called(name)):
            return self.followed(state, node, found, arguments)
        values = [self.handed(state, a) for a in node.arguments]
        if plain in SAME_POINTER and values and not own:
            return values[0]
        if name.endswith(
            ("wmma::mma_sync", "wmma::load_matrix_sync", "wmma::store_matrix_sync", "wmma::fill_fragment")
        ):
            return self.fragments(state, node, plain, values)
        if known is not None:
            return self.of_language(state, node, plain, known, values)
        if (group := made_group(name)) is not None:
            return group
        if kind is not None:
            return converted(values[0], kind) if len(values) == 1 else Value(kind)
        if state.this is not None and (method := self.functions.method_of(state, state.this, plain, len(values))):
            return self.functions.method(state, state.this, method, values)
        if CEIL_DIV.match(plain) and len(values) == 2 and None not in (values[0].number, values[1].number):
            number = ceil_div(values[0].number, values[1].number)
            return whole(number, INT, values[0].varies | values[1].varies)
        return self.unknown(state, node, values)

    def of_language(self, state: State, node: Call, name: str, known: Effect, values: list[Value]) -> Value:
        """A function of CUDA's language, by what the table says that it costs and gives."""
        varies = frozenset[str]().union(*(v.varies for v in values))
        if name.startswith("__shfl"):
            values, varies = values[1:] if name.endswith("_sync") else values, varies | {"data"}
        lanes = 2 if known.flops and _TWO_LANES.fullmatch(name) else 1
        literal = bool(values) and all(v.literal for v in values)
        if known.flops and not literal:
            state.put(node, "arithmetic", known.flops * lanes)
        if known.type is not None:
            return Value(known.type, varies=varies)
        if name in {"min", "max", "umin", "umax"} and len(values) == 2 and all(v.type.kind == "int" for v in values):
            a, b = (wrapped(converted(v, usual(values[0].type, values[1].type))).number for v in values)
            made: Any = None
            if isinstance(a, int) and isinstance(b, int):
                made = min(a, b) if "min" in name else max(a, b)
            elif a is not None and b is not None:
                made = call(name[-3:], a, b)
            return Value(values[0].type, made, varies=varies)
        first = values[0].type if values else UNKNOWN
        arithmetic = [v.type for v in values if v.type.arithmetic]
        if known.flops and first.kind in {"int", "unknown", "object"}:
            first = (
                FLOAT
                if name.endswith("f") or name.startswith("__f")
                else HALF
                if name.startswith(("h", "__h"))
                else DOUBLE
            )
            first = named_type("half2") or first if lanes == 2 else first
        elif not known.flops and arithmetic:
            first = arithmetic[0]
        elif not known.flops and name.startswith(("f", "__f")) and first.kind == "unknown":
            first = FLOAT
        return Value(first, varies=varies, literal=literal)

    def fragments(self, state: State, node: Call, name: str, values: list[Value]) -> Value:
        """wmma: a product of a warp, or a tile that a warp loads or stores together."""
        kinds = [f for v in values if (f := _FRAGMENT.fullmatch(v.type.name)) is not None]
        parts = kinds[0][1].split(", ") if kinds else []
        sizes = [state.scope.number_of(p) for p in parts[1:4]]
        m, n, k = sizes if len(sizes) == 3 and all(isinstance(s, int) for s in sizes) else (0, 0, 0)
        if name == "fill_fragment":
            return Value(VOID)
        if not m:
            lost = MATMUL if name == "mma_sync" else MEMORY
            state.missing(
                f"`{name}` of a shape that is not told", node, lost, "" if name == "mma_sync" else f"{name}(...)"
            )
        elif name == "mma_sync":
            state.put(node, f"wmma m{m}n{n}k{k}", product=Fraction(2 * m * n * k, 32))
        else:
            memory = next((v for v in values if v.type.kind in {"pointer", "array"}), None)
            element = memory.type.of.size if memory is not None and memory.type.of is not None else ""
            rows, columns = {"wmma::matrix_a": (m, k), "wmma::matrix_b": (k, n)}.get(
                parts[0].removeprefix("nvcuda::"), (m, n)
            )
            if (
                memory is None
                or memory.space not in {"global", "shared", "local"}
                or (rows * columns) % 32
                or not element
            ):
                state.missing(f"`{name}`", node, MEMORY, f"{name}(...)")
            elif memory.type.of is not None and memory.space != "local":
                amount = f"{rows * columns // 32} * {element}"
                loads = name.startswith("load")
                place = Value(memory.type.of, where=memory.space, step=UNTOLD, origin=memory.origin)
                access(state,
                    node, place, "load" if loads else "store", f"wmma::{name}", (amount, "") if loads else ("", amount),
                    node.arguments[next(i for i, v in enumerate(values) if v is memory)],
                )  # fmt: skip
        return Value(VOID)

    def stored(self, state: State, node: Call, place: Value, name: str) -> None:
        """Put down a store that a function makes through one of its arguments."""
        if place.where == "unknown":
            text = shown(node.arguments[0])
            state.missing(f"the store through `{text}`", node, MEMORY, text)
        elif place.where:
            access(state, node, place, "store", name, written=node.arguments[0])

    def atomic(self, state: State, node: Call, name: str) -> Value:
        """Put down an atomic access, and the additions of those that add; gives data that differs from lane to lane."""
        target, values = self.value(state, node.arguments[0]), [self.value(state, a) for a in node.arguments[1:]]
        place = pointed(state, target, target.varies, lane_step(target))
        if place.where == "unknown":
            text = shown(node.arguments[0])
            state.missing(f"the {name} through `{text}`", node, through=text)
        elif place.where:
            access(state, node, place, "atomic", name, written=node.arguments[0])
        kind = place.type if place.type.kind != "unknown" or not values else values[0].type
        if name.lower().find("add") >= 0 or name.endswith("Sub"):
            if kind.arithmetic:
                state.put(node, "atomic", kind.lanes)
            elif kind.kind not in {"int"}:
                state.missing(f"the addition of {name}, on a type that is not told", node, FLOPS)
        return Value(kind, varies=target.varies | {"data"}, step=UNTOLD)

    def copied(self, state: State, node: Call) -> Value:
        """An asynchronous copy whose third argument is its bytes."""
        values = [self.value(state, a) for a in node.arguments[:3]]
        if values[1].space == "global" and values[2].number is not None:
            source, copied = values[1], Type("object", "copied", render(values[2].number))
            place = Value(copied, where="global", step=source.step, varies=source.varies, origin=source.origin)
            access(state, node, place, "copy", shown(node.function), written=node.arguments[1])
        elif values[1].space not in {"shared", "local"} or values[0].space == "global":
            state.missing(f"the copy `{shown(node)}`", node, MEMORY, shown(node))
        return Value(VOID)

    def method(self, state: State, node: Call, function: Member) -> Value:
        """A call of a member: of a cooperative group, of a structure of the repository, or unknown."""
        base = self.place(state, function.base)
        places = [self.place(state, a) for a in node.arguments]
        told = of_group(base.type.name, function.name, lambda name, axis: index_of(state, node, name, axis))
        if told is not None:
            if "blockIdx" in str(told.number):
                state.log.assumptions.setdefault(f"The grid has one axis (line {state.line(node)}, `{shown(node)}`).")
            return told
        if function.name in {"thread_rank", "num_threads", "sync", "meta_group_rank"} and not places:
            return Value(VOID if function.name == "sync" else UNKNOWN, varies=frozenset({"thread", "data"}))
        if function.arrow and base.type.kind == "pointer" and base.type.of is not None:
            base = read(state, base, function.base)
            base = pointed(state, base, base.varies, lane_step(base))
        followed = self.functions.method_of(state, base, function.name, len(places)) is not None
        if followed or function.name in state.scope.library.devices:
            state.log.met(FunctionCall(**state.at(node), name=function.name, followed=followed))
        if not followed and _ADDRESSES.fullmatch(function.name):
            return _address_of(
                base, function, [_taken(state, p, a) for p, a in zip(places, node.arguments, strict=True)]
            )
        return self.of_object(state, node, base, function.name, node.arguments, places)

    def handed(self, state: State, node: Node) -> Value:
        """What a function that is not followed is handed."""
        return _taken(state, self.place(state, node), node)

    def unknown(self, state: State, node: Node, values: list[Value], of_object: bool = False) -> Value:
        """A call that is not followed."""
        name = shown(node.function) if isinstance(node, Call) else shown(node)
        varies = frozenset[str]().union(frozenset(), *(v.varies for v in values))
        for value in values:  # whoever takes a lambda calls it, who knows how often
            if value.function is not None and not isinstance(value.function, str) and state.counted:
                with state.log.apart(), state.on(node, f"{name} calls it", True, "open"):
                    self.functions.closure(state, value, [])
        if of_object or any(v.type.kind != "int" or v.varies & {"data"} for v in values):
            memory = any(_leads_to_memory(v) for v in values)
            spelled_ = shown(node) if memory else ""
            state.missing(f"`{name}`", node, EVERY if memory else EVERY - MEMORY, spelled_)
            varies |= {"data"}
        return Value(UNKNOWN, varies=varies)

    def followed(self, state: State, node: Call, functions: list[Function], arguments: tuple[str, ...]) -> Value:
        """A device function of the repository."""
        of_all = [f for f in functions if f.special is None and (f.template or not arguments)]
        chosen = fitting(of_all or functions, len(node.arguments))
        name = functions[0].name
        places = [self.place(state, a) for a in node.arguments]
        if len(chosen) > 1:
            chosen = by_types(chosen, places) or chosen
        function = chosen[0] if len(chosen) == 1 else None
        if function is not None and function.template:
            special = [f for f in functions if f.special is not None and len(f.parameters) == len(function.parameters)]
            function = self.functions.specialisation(state, function, special, arguments, places)
        followed = function is not None and not function.unread and state.depth < DEPTH
        state.log.met(FunctionCall(**state.at(node), name=name, followed=followed))
        if function is None or not followed:
            return self.unknown(state, node, [_taken(state, p, a) for p, a in zip(places, node.arguments, strict=True)])
        if not state.counted:  # to list what it does, once is enough
            if (key := (id(function), state.via)) in self._listed:
                return Value(UNKNOWN, varies=frozenset({"data"}))
            self._listed.add(key)
        values = self.given(state, function.parameters, node.arguments, places)
        made = self.functions.function(state, function, arguments, values)
        _written_through(state, function.parameters, node.arguments, places)
        return made

    def assembly(self, state: State, node: Assembly) -> None:
        """Put down what inline assembly does, told by its instructions."""
        values = [self.place(state, argument) for argument in node.arguments]
        source = state.scope.function.code.source
        written = source.original[node.position : max(node.end, node.position)]
        if not re.match(r"\s*+(?:asm|__asm)", written):  # a macro writes it: its strings are blanked
            state.missing("inline assembly that a macro writes", node, through="inline assembly that a macro writes")
            return
        text = " ; ".join(re.findall(r"\"((?:\\.|[^\"\\])*)\"", re.split(r"\"\s*+:", written)[0] + '"'))
        instructions(state, node, text)
        made = assembled(text.replace("\\n", " ; ").replace("\\t", " "), [v.number for v in values])
        state.put(node, "asm", made.flops, product=Fraction(made.product, made.threads))
        for one in made.moved:
            known = one.operand < len(values) and values[one.operand].origin
            source_ = values[one.operand] if known else Value(UNKNOWN, step=UNTOLD)
            place = Value(
                Type("object", "asm", str(one.size)), where="global", step=source_.step, varies=source_.varies,
                origin=source_.origin,
            )  # fmt: skip
            access(state, node, place, one.what, one.operation, written=node.arguments[one.operand] if known else None)
        for name in made.unknown:
            memory = re.match(r"(?:ld|st|red|atom|cp)\b", name) is not None
            lost = MEMORY if memory else frozenset[Part]({"matmul", "flops"}) if "mma" in name else FLOPS
            state.missing(f"`{name}`", node, lost, f'asm("{name} ...")' if memory else "")


def _written_through(
    state: State, parameters: Parameters, arguments: Sequence[Node], places: Sequence[Value]
) -> None:  # fmt: skip
    """Behind a call: variables that it was handed by reference, or whose address it was, may have been changed."""
    for (kind, _), place, argument in zip(parameters, places, arguments, strict=False):
        if "const" in kind.words:
            continue
        if kind.reference and place.root and not place.where and place.type.kind == "int":
            bind(state, place.root, Value(place.type, varies=place.varies | {"data"}))
        handed = argument.operand if isinstance(argument, Unary) and argument.operator == "&" else None
        if isinstance(handed, Name):
            forget(state, [handed.text], "data")


def _address_of(base: Value, function: Member, values: list[Value]) -> Value:
    """A size or an address that an object gives: in memory that the object was made with."""
    varies = base.varies.union(*(v.varies for v in values)) | {"data"}
    named, made_of = shown(function.base), " or ".join(base.origin)
    assumed = f"an address that {named} gives lies in {made_of}" if base.origin and named != made_of else ""
    step = 0 if all(lane_step(v) == 0 for v in values) else UNTOLD
    space = "global" if base.origin and base.space not in {"shared", "local"} else ""
    return Value(UNKNOWN, varies=varies, space=space, step=step, origin=base.origin, assumed=assumed)


def _taken(state: State, found: Value, node: Node) -> Value:
    """A place as an argument: an object by its name is handed by reference, which reads nothing of it."""
    by_reference = isinstance(node, Name) and found.type.kind in {"object", "unknown"}
    return found if by_reference else read(state, found, node)


def _leads_to_memory(value: Value) -> bool:
    """Whether a function that is handed the value may read or write global memory through it."""
    if value.type.kind == "pointer":
        return value.space not in {"shared", "local"} and value.number != 0
    return bool(value.origin) or (value.type.kind == "object" and value.type.struct is None and value.type.of is None)


__all__ = ["Calls"]
