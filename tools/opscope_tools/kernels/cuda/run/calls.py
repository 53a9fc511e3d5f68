"""Calls in the abstract run of a CUDA kernel: the language's functions, accesses by function, device functions, lambdas.

A device function is run with what it is handed: types of arguments settle its template parameters. A callee that is
not found and takes floating-point values, pointers or data is put among what is not counted.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from opscope_tools.kernels.cuda.launch.host_expressions import CEIL_DIV
from opscope_tools.kernels.cuda.names.functions import Function, Library, fitting
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
    lane_step,
    named_type,
    pointer,
    whole,
)
from opscope_tools.kernels.cuda.run.accesses import EVERY, FLOPS, MEMORY
from opscope_tools.kernels.cuda.run.expressions import Expressions
from opscope_tools.kernels.cuda.run.groups import made_group, of_group
from opscope_tools.kernels.cuda.run.language import LOADS, STORES, Effect, assembled, effect
from opscope_tools.kernels.cuda.syntax.expressions import UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Assembly, Call, Lambda, Member, Name, Node, TypeName, Unary, spelled
from opscope_tools.kernels.cuda.syntax.statements import Reader
from opscope_tools.kernels.cuda.syntax.tokens import Token, words
from opscope_tools.kernels.host.worlds import Sym, render
from opscope_tools.kernels.run.events import Call as FunctionCall
from opscope_tools.kernels.run.events import Part
from opscope_tools.kernels.run.paths import counted

_ATOMIC = re.compile(
    r"(?:__)?atomic(Add|Sub|Max|Min|Exch|CAS|And|Or|Xor|Inc|Dec)(?:_block|_system)?(?:Noret)?|(?:gpu|fast)AtomicAdd(?:NoReturn)?"
)
#: names of functions of the language that repositories give functions of their own
_COMMON = frozenset({"clamp"})
_COPIES = frozenset({"__pipeline_memcpy_async", "memcpy_async"})
_TWO_LANES = re.compile(r"__h\w+2(?:_\w+)?|h2\w+|__h2\w+")
#: methods that give a size or an address, not an element
_ADDRESSES = re.compile(
    r"(?i)sizes?|strides?|dim|ndim|rank|numel|shape|layout|length|\w*offset|(?:get_?)?(?:\w*_)?(?:ptr|pointer)|data|get|begin|end|"
    r"is_\w+|has_\w+|extent"
)
_FRAGMENT = re.compile(r"(?:nvcuda::)?wmma::fragment<(.*)>")
_DEPTH = 8
#: what hands on the address that it is given
SAME_POINTER = frozenset(
    "__builtin_assume_aligned __cvta_generic_to_global __nv_cvta_generic_to_global_impl forward move launder".split()
)
MATMUL: frozenset[Part] = frozenset({"matmul", "flops"})


class Calls(Expressions):
    """The calls of one function."""

    library: Library
    depth = 0
    #: the object whose method this is
    this: Value | None = None

    def call(self, node: Call) -> Value:
        self.instructions(node, f"{spelled(node.function)}(")
        if isinstance(node.function, Member):
            return self.method(node, node.function)
        if not isinstance(node.function, Name):
            found = self.value(node.function)
            values = [self.value(a) for a in node.arguments]
            return self.closure(found, values) if found.function else self.unknown(node, values)
        name = node.function.text
        plain = name.rpartition("::")[2]
        variable = self.scope.find(name)
        if variable is not None and variable.function is not None:
            if isinstance(variable.function, str):
                return self.by_name(node, variable.function, ())
            return self.closure(variable, [self.value(a) for a in node.arguments])
        if variable is not None:
            return self.unknown(node, [self.value(a) for a in node.arguments])
        if plain in LOADS and node.arguments:
            return self.read(self._target(node), node, plain, node.arguments[0])
        if plain in STORES and len(node.arguments) == 2:
            self.value(node.arguments[1])
            self.stored(node, self._target(node), plain)
            return Value(VOID)
        if _ATOMIC.fullmatch(plain) and node.arguments and not self._own_atomic(plain):
            return self.atomic(node, plain)
        if plain in _COPIES and len(node.arguments) >= 3:
            return self.copied(node)
        return self.by_name(node, name, node.function.arguments or ())

    def _own_atomic(self, name: str) -> bool:
        """Whether an atomic operation that is none of the language is a function of the repository."""
        return "atomic" not in name and bool(self.library.called(name, self.scope.function.code.source))

    def _target(self, node: Call) -> Value:
        """What the first argument points to."""
        found = self.value(node.arguments[0])
        return self.pointed(found, found.varies, lane_step(found))

    def by_name(self, node: Call, name: str, arguments: tuple[str, ...]) -> Value:
        """A function that is not a variable: of the language, a type's constructor, or of the repository."""
        own = name in _COMMON and self.library.called(name, self.scope.function.code.source)
        known = None if own else effect(name)
        kind = None if known is not None else self.scope.types.get(name) or named_type(name)
        if (
            kind is None
            and known is None
            and (found := self.library.called(name.rpartition("::")[2], self.scope.function.code.source))
        ):
            return self.followed(node, found, arguments)
        values = [self.value(a) for a in node.arguments]
        if name.rpartition("::")[2] in SAME_POINTER and values:
            return values[0]
        if name.endswith(
            ("wmma::mma_sync", "wmma::load_matrix_sync", "wmma::store_matrix_sync", "wmma::fill_fragment")
        ):
            return self.fragments(node, name.rpartition("::")[2], values)
        if known is not None:
            return self.of_language(node, name.rpartition("::")[2], known, values)
        if (group := made_group(name)) is not None:
            return group
        if kind is not None:
            return self.converted(values[0], kind) if len(values) == 1 else Value(kind)
        plain = name.rpartition("::")[2]
        if self.this is not None and (made := self.run_method(self.this, plain, values)) is not None:
            return made
        if CEIL_DIV.match(plain) and len(values) == 2 and None not in (values[0].number, values[1].number):
            a, b = values[0].number, values[1].number
            whole_ = (
                -(-a // b)
                if isinstance(a, int) and isinstance(b, int) and b
                else Sym(f"cdiv({render(a)}, {render(b)})")
            )
            return whole(whole_, INT, values[0].varies | values[1].varies)
        return self.unknown(node, values)

    def of_language(self, node: Call, name: str, known: Effect, values: list[Value]) -> Value:
        varies = frozenset[str]().union(*(v.varies for v in values))
        if name.startswith("__shfl"):
            values, varies = values[1:] if name.endswith("_sync") else values, varies | {"data"}
        lanes = 2 if known.flops and _TWO_LANES.fullmatch(name) else 1
        literal = bool(values) and all(v.literal for v in values)
        if known.flops and not literal:
            self.put(node, "arithmetic", known.flops * lanes)
        if known.type is not None:
            return Value(known.type, varies=varies)
        if name in {"min", "max", "umin", "umax"} and len(values) == 2 and all(v.type.kind == "int" for v in values):
            a, b = (v.number for v in values)
            made: Any = None
            if isinstance(a, int) and isinstance(b, int):
                made = min(a, b) if "min" in name else max(a, b)
            elif a is not None and b is not None:
                made = Sym(f"{name[-3:]}({render(a)}, {render(b)})")
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

    def fragments(self, node: Call, name: str, values: list[Value]) -> Value:
        """wmma: a product of a warp, or a tile that a warp loads or stores together."""
        kinds = [f for v in values if (f := _FRAGMENT.fullmatch(v.type.name)) is not None]
        parts = kinds[0][1].split(", ") if kinds else []
        sizes = [self.scope.number_of(p) for p in parts[1:4]]
        m, n, k = sizes if len(sizes) == 3 and all(isinstance(s, int) for s in sizes) else (0, 0, 0)
        if name == "fill_fragment":
            return Value(VOID)
        if not m:
            lost = MATMUL if name == "mma_sync" else MEMORY
            self.missing(
                f"`{name}` of a shape that is not told", node, lost, "" if name == "mma_sync" else f"{name}(...)"
            )
        elif name == "mma_sync":
            self.put(node, f"wmma m{m}n{n}k{k}", product=Fraction(2 * m * n * k, 32))
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
                self.missing(f"`{name}`", node, MEMORY, f"{name}(...)")
            elif memory.type.of is not None and memory.space != "local":
                amount = f"{rows * columns // 32} * {element}"
                loads = name.startswith("load")
                place = Value(memory.type.of, where=memory.space, step=UNTOLD, origin=memory.origin)
                self.access(
                    node, place, "load" if loads else "store", f"wmma::{name}", (amount, "") if loads else ("", amount),
                    node.arguments[next(i for i, v in enumerate(values) if v is memory)],
                )  # fmt: skip
        return Value(VOID)

    def stored(self, node: Call, place: Value, name: str) -> None:
        if place.where == "unknown":
            shown = self.shown(node.arguments[0])
            self.missing(f"the store through `{shown}`", node, MEMORY, shown)
        elif place.where:
            self.access(node, place, "store", name, written=node.arguments[0])

    def atomic(self, node: Call, name: str) -> Value:
        target, values = self.value(node.arguments[0]), [self.value(a) for a in node.arguments[1:]]
        place = self.pointed(target, target.varies, lane_step(target))
        if place.where == "unknown":
            shown = self.shown(node.arguments[0])
            self.missing(f"the {name} through `{shown}`", node, through=shown)
        elif place.where:
            self.access(node, place, "atomic", name, written=node.arguments[0])
        kind = place.type if place.type.kind != "unknown" or not values else values[0].type
        if name.lower().find("add") >= 0 or name.endswith("Sub"):
            if kind.arithmetic:
                self.put(node, "atomic", kind.lanes)
            elif kind.kind not in {"int"}:
                self.missing(f"the addition of {name}, on a type that is not told", node, FLOPS)
        return Value(kind, varies=target.varies | {"data"}, step=UNTOLD)

    def copied(self, node: Call) -> Value:
        """An asynchronous copy whose third argument is its bytes."""
        values = [self.value(a) for a in node.arguments[:3]]
        if values[1].space == "global" and values[2].number is not None:
            self.copies(node, values[1], render(values[2].number), self.shown(node.function), node.arguments[1])
        elif values[1].space not in {"shared", "local"} or values[0].space == "global":
            self.missing(f"the copy `{self.shown(node)}`", node, MEMORY, self.shown(node))
        return Value(VOID)

    def copies(self, node: Node, source: Value, size: str, operation: str, written: Node) -> None:
        """A copy of some bytes from global memory by each thread."""
        place = Value(
            Type("object", "copied", size), where="global", step=source.step, varies=source.varies, origin=source.origin
        )
        self.access(node, place, "copy", operation, written=written)

    def method(self, node: Call, function: Member) -> Value:
        base = self.place(function.base)
        values = [self.value(a) for a in node.arguments]
        told = of_group(base.type.name, function.name, lambda name, axis: self.index_of(node, name, axis))
        if told is not None:
            if "blockIdx" in str(told.number):
                self.record.assumptions.setdefault(
                    f"The grid has one axis (line {self.line(node)}, `{self.shown(node)}`)."
                )
            return told
        if function.name in {"thread_rank", "num_threads", "sync", "meta_group_rank"} and not values:
            return Value(VOID if function.name == "sync" else UNKNOWN, varies=frozenset({"thread", "data"}))
        if function.arrow and base.type.kind == "pointer" and base.type.of is not None:
            base = self.read(base, function.base)
            base = self.pointed(base, base.varies, lane_step(base))
        made = self.run_method(base, function.name, values)
        if made is not None or function.name in self.library.devices:
            self.record.met(FunctionCall(**self.at(node), name=function.name, followed=made is not None))
        if made is not None:
            return made
        if _ADDRESSES.fullmatch(function.name):
            return self._address_of(base, function, values)
        return self.unknown(node, [base, *values], of_object=base.type.kind not in {"int", "float"})

    def _address_of(self, base: Value, function: Member, values: list[Value]) -> Value:
        """A size or an address that an object gives: in memory that the object was made with."""
        varies = base.varies.union(*(v.varies for v in values)) | {"data"}
        named, made_of = self.shown(function.base), " or ".join(base.origin)
        assumed = f"an address that {named} gives lies in {made_of}" if base.origin and named != made_of else ""
        step = 0 if all(lane_step(v) == 0 for v in values) else UNTOLD
        space = "global" if base.origin and base.space not in {"shared", "local"} else ""
        return Value(UNKNOWN, varies=varies, space=space, step=step, origin=base.origin, assumed=assumed)

    @abstractmethod
    def run_method(self, base: Value, name: str, values: list[Value]) -> Value | None:
        """Run a method of a structure; None where it is not known."""

    @abstractmethod
    def built(self, kind: Type, values: list[Value]) -> Value:
        """An object of a structure."""

    def unknown(self, node: Call, values: list[Value], of_object: bool = False) -> Value:
        """A call that is not followed."""
        varies = frozenset[str]().union(frozenset(), *(v.varies for v in values))
        for value in values:  # whoever takes a lambda calls it, who knows how often
            if value.function is not None and not isinstance(value.function, str) and counted(self.record.path):
                kept = self.record.aside()
                with self.on(node, f"{self.shown(node.function)} calls it", True, "open"):
                    self.closure(value, [])
                self.record.back(kept)
        if of_object or any(v.type.kind != "int" or v.varies & {"data"} for v in values):
            memory = any(_leads_to_memory(v) for v in values)
            spelled_ = self.shown(node) if memory else ""
            self.missing(f"`{self.shown(node.function)}`", node, EVERY if memory else EVERY - MEMORY, spelled_)
            varies |= {"data"}
        return Value(UNKNOWN, varies=varies)

    def known(self, node: Call) -> list[Function] | bool:
        """The functions of the repository that a call means; True for those of the language, False for others."""
        if not isinstance(node.function, Name):
            return False
        plain = node.function.text.rpartition("::")[2]
        if self.scope.find(node.function.text) is not None:
            return False
        if (
            plain in LOADS | STORES
            or effect(plain) is not None
            or CEIL_DIV.match(plain)
            or self.scope.types.get(plain)
            or named_type(plain)
        ):
            return True
        return self.library.called(plain, self.scope.function.code.source) or False

    def changed_by(self, node: Call) -> list[Node]:
        """The arguments that a call may change: all, where its function is not known."""
        known = self.known(node)
        if isinstance(known, bool):
            first = [node.function.base] if isinstance(node.function, Member) else []
            return [] if known else [*node.arguments, *first]
        return [
            argument
            for function in fitting(known, len(node.arguments))
            for (kind, _), argument in zip(function.parameters, node.arguments, strict=False)
            if (kind.reference and "const" not in kind.words) or function.unread
        ]

    # functions that are followed ---------------------------------------------------------------------------------

    def closure(self, found: Value, values: list[Value]) -> Value:
        """A lambda, run among the variables of where it was written."""
        node, owner = found.function
        if not isinstance(node, Lambda) or self.depth >= _DEPTH:
            return Value(UNKNOWN, varies=frozenset({"data"}))
        given = {
            name: self._handed(kind, value, owner.scope.type_of(kind))
            for (kind, name), value in zip(node.parameters, values, strict=False)
        }
        return self.run_closure(owner, node, given)

    def _handed(self, kind: TypeName, value: Value, of: Type) -> Value:
        if kind.reference and value.type.kind != "unknown":
            return value
        return self.converted(value, of)

    @abstractmethod
    def run_closure(self, owner: Any, node: Lambda, given: dict[str, Value]) -> Value:
        """Run the body of a lambda."""

    def followed(self, node: Call, functions: list[Function], arguments: tuple[str, ...]) -> Value:
        """A device function of the repository."""
        chosen = fitting(functions, len(node.arguments))
        name = functions[0].name
        places = [self.place(a) for a in node.arguments]
        if len(chosen) > 1:
            chosen = self._by_types(chosen, places) or chosen
        function = chosen[0] if len(chosen) == 1 else None
        followed = function is not None and not function.unread and self.depth < _DEPTH
        self.record.met(FunctionCall(**self.at(node), name=name, followed=followed))
        if function is None or not followed:
            return self.unknown(node, [self.read(p, a) for p, a in zip(places, node.arguments, strict=True)])
        if not counted(self.record.path):  # to list what it does, once is enough
            if (key := (id(function), self.via)) in self.record.entered:
                return Value(UNKNOWN, varies=frozenset({"data"}))
            self.record.entered.add(key)
        values = [
            place if kind.reference else self.read(place, argument)
            for (kind, _), place, argument in zip(function.parameters, places, node.arguments, strict=False)
        ]  # fmt: skip
        made = self.run_function(function, values, self.settled(function, arguments, values))
        for (kind, _), place in zip(function.parameters, places, strict=False):
            if (
                kind.reference
                and "const" not in kind.words
                and place.root
                and not place.where
                and place.type.kind == "int"
            ):
                self.bind(place.root, Value(place.type, varies=place.varies | {"data"}))  # it may have been changed
        for argument, (kind, _) in zip(node.arguments, function.parameters, strict=False):
            pointed = argument.operand if isinstance(argument, Unary) and argument.operator == "&" else None
            if isinstance(pointed, Name) and "const" not in kind.words:
                self.forget([pointed.text], "data")
        return made

    @abstractmethod
    def forget(self, names: Iterable[str], why: str, even: Mapping[str, Any] | None = None) -> None:
        """What is changed somewhere has no one value."""

    @abstractmethod
    def instructions(self, node: Node, text: str) -> None:
        """Put down the instructions that a call, a type or assembly stands for."""

    def _by_types(self, functions: list[Function], values: list[Value]) -> list[Function]:
        """Of several functions of one name those whose parameters are of the types that are given."""
        found = []
        for function in functions:
            own = {p.name for p in function.template}
            fits = True
            for (kind, _), value in zip(function.parameters, values, strict=False):
                if kind.name in own:
                    fits = fits and (kind.pointers == 0 or value.type.kind in {"pointer", "array"})
                    continue
                wanted = named_type(kind.name)
                given = value.type
                for _ in range(kind.pointers):
                    given = given.of if given.kind in {"pointer", "array"} and given.of is not None else VOID
                fits = (
                    fits
                    and wanted is not None
                    and (wanted.kind, wanted.size, wanted.lanes) == (given.kind, given.size, given.lanes)
                )
            if fits:
                found.append(function)
        return found

    def settled(self, function: Function, arguments: tuple[str, ...], values: list[Value]) -> dict[str, Any]:
        """What the template parameters of a callee stand for: a type, a value or a function."""
        made: dict[str, Any] = {}
        for parameter, text in zip(function.template, arguments, strict=False):
            found = self.scope.read_type(text) if parameter.type else self.template_value(text)
            if found is not None:
                made[parameter.name] = found
        for parameter in function.template:
            if parameter.type and parameter.name not in made:
                deduced = self._deduced(parameter.name, function, values)
                if deduced is not None:
                    made[parameter.name] = deduced
            if parameter.name not in made and parameter.default and not parameter.type:
                default = self.template_value(parameter.default, made)
                if default is not None:
                    made[parameter.name] = default
            elif parameter.name not in made and parameter.default:
                kind = made.get(parameter.default) or named_type(parameter.default)
                if kind is not None:
                    made[parameter.name] = kind
        return made

    def _deduced(self, name: str, function: Function, values: list[Value]) -> Type | None:
        for (kind, _), value in zip(function.parameters, values, strict=False):
            if kind.name != name or kind.arguments:
                continue
            of: Type | None = value.type
            for _ in range(kind.pointers):
                of = of.of if of is not None and of.kind in {"pointer", "array"} else None
            if of is not None and of.kind == "array" and of.of is not None:
                of = pointer(of.of)
            if of is not None and of.kind != "unknown":
                return of
        return None

    def template_value(self, text: str, made: dict[str, Any] | None = None) -> Value | None:
        """A template argument that is no type: a number, or the function that it names."""
        if made and text in made:
            found = made[text]
            return found if isinstance(found, Value) else None
        try:
            reader = Reader([Token(w, self.scope.function.start) for w in words(text)], lambda _: False)
            node = reader.expression()
        except (UnreadError, RecursionError):
            return None
        if isinstance(node, Name):
            variable = self.scope.find(node.text)
            if variable is None and self.library.called(node.text.rpartition("::")[2], self.scope.function.code.source):
                return Value(UNKNOWN, function=node.text)
        kept = self.record.aside()
        found = self.value(node)
        self.record.back(kept)
        return replace(found, root="", varies=frozenset())

    @abstractmethod
    def run_function(self, function: Function, values: list[Value], settled: dict[str, Any]) -> Value:
        """Run the body of a device function."""

    # inline assembly ---------------------------------------------------------------------------------------------

    def assembly(self, node: Assembly) -> None:
        values = [self.place(argument) for argument in node.arguments]
        source = self.scope.function.code.source
        written = source.original[node.position : max(node.end, node.position)]
        if not re.match(r"\s*+(?:asm|__asm)", written):  # a macro writes it: its strings are blanked
            self.missing("inline assembly that a macro writes", node, through="inline assembly that a macro writes")
            return
        text = " ; ".join(re.findall(r"\"((?:\\.|[^\"\\])*)\"", re.split(r"\"\s*+:", written)[0] + '"'))
        self.instructions(node, text)
        made = assembled(text.replace("\\n", " ; ").replace("\\t", " "), [v.number for v in values])
        self.put(node, "asm", made.flops, product=Fraction(made.product, made.threads))
        for one in made.moved:
            known = one.operand < len(values) and values[one.operand].origin
            source_ = values[one.operand] if known else Value(UNKNOWN, step=UNTOLD)
            place = Value(
                Type("object", "asm", str(one.size)), where="global", step=source_.step, varies=source_.varies,
                origin=source_.origin,
            )  # fmt: skip
            self.access(node, place, one.what, one.operation, written=node.arguments[one.operand] if known else None)
        for name in made.unknown:
            memory = re.match(r"(?:ld|st|red|atom|cp)\b", name) is not None
            lost = MEMORY if memory else frozenset[Part]({"matmul", "flops"}) if "mma" in name else FLOPS
            self.missing(f"`{name}`", node, lost, f'asm("{name} ...")' if memory else "")


def _leads_to_memory(value: Value) -> bool:
    """Whether a function that is handed the value may read or write global memory through it."""
    if value.type.kind == "pointer":
        return value.space not in {"shared", "local"} and value.number != 0
    return bool(value.origin) or (value.type.kind == "object" and value.type.struct is None and value.type.of is None)


__all__ = ["Calls"]
