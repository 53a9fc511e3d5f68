"""The operations of Triton's language as an abstract run sees them: shape, steps, FLOPs and what is moved.

`Operations.operate` answers a call by its name: a method `op_NAME` where shape or cost need one, else the tables. The
statements and expressions around the calls are those of run.py, which implements `value` and `quiet`.
"""

from __future__ import annotations

import ast
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from opscope_schemas.formula import Formula

from opscope_tools.kernels.run.events import (
    Access,
    Allocation,
    Arithmetic,
    Check,
    Event,
    Instruction,
    Mapping,
    Part,
    Product,
    Unknown,
)  # fmt: skip
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import Path, counted
from opscope_tools.kernels.triton.tiles import (
    Shape,
    Steps,
    Value,
    broadcast,
    called,
    computed,
    padded,
    permuted,
    sources_of,
    texts,
)  # fmt: skip
from opscope_tools.kernels.values.expressions import SYMBOLS, Size, leaf
from opscope_tools.kernels.values.notation import of_run
from opscope_tools.kernels.values.quotients import cut, may_be_negative
from opscope_tools.kernels.values.trips import PER_ELEMENT

#: what these are given is data, whatever it was made from
_OF_FLOATS = set("exp exp2 log log2 sin cos sqrt rsqrt tanh sigmoid erf fast_cosf fast_sinf".split())
#: the result has the shape of the arguments together and costs nothing
_FREE = {
    "maximum", "minimum", "abs", "clamp", "floor", "ceil", "round", "isnan", "rint", "optimization_barrier", "assume", "umulhi",
    "trunc",
}  # fmt: skip
#: what formulas call them
_SPELLED = {"maximum": "max", "minimum": "min"}
What = Literal["load", "store", "atomic"]
_REDUCE = {"sum": 1, "max": 0, "min": 0, "argmax": 0, "argmin": 0, "xor_sum": 0, "reduce_or": 0}


#: what these take or give is data, whatever addresses they are handed
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "cumsum", "reduce", "associative_scan", "sort", "debug_barrier"}
_DOT = {"dot", "dot_scaled", "mma", "matmul"}


@dataclass(frozen=True)
class Operation:
    """A call of Triton's language: `tl.sum(x, axis=0)` and `x.sum(axis=0)` alike."""

    name: str
    node: ast.Call
    arguments: list[ast.expr]
    given: dict[str, ast.expr]
    #: it is called on what comes first among the arguments
    method: bool = False

    def argument(self, place: int, name: str) -> ast.expr | None:
        """An argument by its place or name."""
        return self.given.get(name) or (self.arguments[place] if len(self.arguments) > place else None)


@dataclass
class Asked:
    """What an expression asked for while it was computed."""

    #: the whole of it
    expression: ast.expr | None = None
    #: the id of the program, itself or through a name; and something loaded or computed from tiles
    ids: bool = False
    data: bool = False
    #: the ids that it asks for itself, and compile-time names that one is multiplied by
    axes: list[str] = field(default_factory=list)
    scaled: list[tuple[str, str]] = field(default_factory=list)


class Language(Protocol):
    """What a language of tiles calls or means otherwise than Triton; None of an answer: as Triton does."""

    prefix: str
    #: whether what is handed to a function that is not followed counts as lost, whatever it is
    strict: bool

    def operation(self, walk: Any, node: ast.Call) -> tuple[str, list[ast.expr]]:
        """An operation by its name, and what it is a method of; '' of calls of other functions."""

    def operate(self, walk: Any, op: Operation) -> Value | None:
        """The result of an operation."""

    def binary(self, walk: Any, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value | None:
        """`a op b`."""

    def attribute(self, walk: Any, base: ast.expr, name: str) -> Value | None:
        """`base.name`."""


class Operations(ABC):
    """What one function's walk does with calls of the language."""

    #: what another language of tiles calls or means otherwise; None: the language is Triton's
    language: Language | None = None

    @property
    def prefix(self) -> str:
        """How sources spell the language."""
        return "tl" if self.language is None else self.language.prefix

    @property
    def cuts(self) -> bool:
        """Whether whole quotients are cut towards none, as in Triton and Gluon; cuTile rounds them down."""
        return self.prefix != "ct"

    def __init__(self, log: Log, file: str, via: str, path: Path, times: Formula, line: int) -> None:
        self.log, self.file, self.via, self.path = log, file, via, path
        #: how often what is met runs in one program, and the line of the innermost loop around it
        self.times, self.line = times, line
        #: what the statement gives its value to, and what its expression has asked for so far
        self.into, self.asked = "", Asked()
        #: how names were defined last: `source (file:line)`
        self.definitions: dict[str, str] = {}

    @abstractmethod
    def value(self, node: ast.expr) -> Value:
        """What an expression comes to; what computing it costs is put down."""

    @abstractmethod
    def quiet(self, node: ast.expr) -> Value:
        """A value without what computing it costs: constants only."""

    def made(self, op: ast.operator, a: Size | None, b: Size | None) -> Size | None:
        """What an operator makes of two scalars of the kernel: the compiler rounds quotients down, as Python does."""
        cuts = self.cuts and isinstance(op, ast.FloorDiv | ast.Mod) and (of_run(a) or of_run(b))
        quotient = cut(SYMBOLS[type(op)], a, b) if cuts and a is not None and b is not None else None
        return computed(op, a, b) if quotient is None else quotient

    def ceiling(self, a: Value, b: Value) -> Size | None:
        """`cdiv` of two scalars: the quotient that it is written with, cut as others are."""
        if not self.cuts or not of_run(a.number) or not may_be_negative(a.number or 0):
            return called("cdiv", a, b)
        more = computed(ast.Sub(), b.number, 1)
        return self.made(ast.FloorDiv(), computed(ast.Add(), a.number, more), b.number)

    def operate(self, op: Operation) -> Value:
        """The result of an operation of the language; one whose arguments are not those that it has is in no figure."""
        try:
            return self.operated(op)
        except (IndexError, KeyError, StopIteration, ValueError):  # of an argument that is not there
            self.lost(f"{clipped(op.node)}, as it is called", op.node, "flops", "matmul", "read", "write")
            return Value(None, data=True)

    def operated(self, op: Operation) -> Value:
        """As `operate`; one that is not known and takes data is not counted."""
        if op.name in _REDUCTIONS | _DOT and ast.unparse(op.node.func) not in {"min", "max"}:
            self.asked.data = True
            self.put(Instruction, op.node, operation=f"{self.prefix}.{op.name}", text=clipped(op.node))
        if self.language is not None and (made := self.language.operate(self, op)) is not None:
            return made
        handler: Callable[[Operation], Value] | None = getattr(self, f"op_{op.name}", None)
        if handler is not None:
            return handler(op)
        values = [self.value(v) for v in (*op.arguments, *op.given.values())]
        if op.name in _REDUCE:
            return self.reduced(op, values, _REDUCE[op.name])
        shape = broadcast([v for v in values if v.items is None])
        if op.name in _OF_FLOATS:
            self.of_floats(*values)
        data = any(v.data for v in values) or op.name in _OF_FLOATS
        if op.name in PER_ELEMENT:
            if data:
                self.compute(op.node, shape, sources_of(values), PER_ELEMENT[op.name])
            return Value(shape, data=data, sources=sources_of(values))
        if op.name in _FREE:
            number = called(_SPELLED.get(op.name, op.name), *values) if shape == () else None
            roots = values[0].roots if values and len(values) == 1 else ()
            return Value(shape, number, data, sources_of(values), roots)
        if data:
            self.lost(f"{self.prefix}.{op.name}", op.node, "flops", sources=sources_of(values))
        return Value(None, data=data, sources=sources_of(values))

    def compute(self, node: ast.AST, shape: Shape | None, sources: frozenset[int], per_element: int) -> None:
        """Put down arithmetic on a tile: `per_element` FLOPs for each element of a shape."""
        if shape is None:
            self.lost("arithmetic on a tile of unknown shape", node, "flops", sources=sources)
            return
        flops = per_element * self.log.counts.size(shape)
        self.put(Arithmetic, node, operation="arithmetic", flops=flops, sources=sources)

    def lost(self, what: str, node: ast.AST, *parts: Part, **rests_on: Any) -> None:
        """What the cost lacks."""
        self.put(Unknown, node, what=what, loses=frozenset(parts), **rests_on)

    def put(self, event: type[Event], node: ast.AST, /, **fields: Any) -> int:
        """Put an event down, and say where in the log it stands."""
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return self.log.put(event(
            file=self.file, line=line, node=column, via=self.via, path=self.path, times=self.times, loop=self.line, **fields,
        ))  # fmt: skip

    def access(self, what: What, op: Operation, address: Value, mask: ast.expr | None) -> int:
        """Put an access down: its address as written, what it is masked by and where both come from."""
        written = op.arguments[0] if op.arguments else op.given.get("pointer") or next(iter(op.given.values()), op.node)
        base, shown = written, ast.unparse(written)
        while isinstance(base, ast.BinOp):
            base = base.left
        if op.method and len(op.arguments) > 1:
            shown += f"[{ast.unparse(op.arguments[1])}]"
        masked = ast.unparse(mask) if mask is not None else ""
        if "boundary_check" in op.given:
            masked = f"boundary_check={ast.unparse(op.given['boundary_check'])}"
        self.asked.data = self.asked.data or what != "store"
        return self.put(
            Access, op.node, what=what, operation=f"{'descriptor' if op.method else self.prefix}.{op.name}", space="global",
            roots=address.roots, text=clip(shown), shape=None if address.shape is None else texts(address.shape), steps=texts(address.strides), element_bytes=address.element,
            mask=masked, into=self.into if what != "store" else "", gathered=bool(address.sources),
            definition=self.definitions.get(base.id, "") if isinstance(base, ast.Name) else "",
            mask_definition=self.definitions.get(masked, ""),
        )  # fmt: skip

    def indices_of(self, *nodes: ast.expr | None) -> None:
        """What masks, offsets and bounds are computed from is no data."""
        for node in nodes:
            if node is not None:
                self.index(self.value(node))

    def index(self, value: Value) -> None:
        """Note that a value is used as an index or mask, so what it was loaded from counts as indices."""
        if counted(self.path):
            self.log.indices |= value.sources | sources_of(value.items or ())

    def of_floats(self, *values: Value) -> None:
        """What floating-point operations compute with is data, whatever else it decides."""
        if counted(self.path):
            self.log.floats |= sources_of(values)

    # operations, by triton's names -------------------------------------------------------------------------------

    def _id(self, op: Operation) -> Value:
        axis = op.argument(0, "axis")
        asked = f"{op.name}({ast.unparse(axis) if axis is not None else '?'})"
        self.asked.ids = True
        self.asked.axes.append(asked)
        if op.name == "program_id" and not self.into and self.asked.expression is not None:
            self.put(Mapping, op.node, axis=asked, variable="", text=ast.unparse(self.asked.expression))
        return Value(number=leaf(asked), ids=True)

    op_program_id = op_num_programs = _id

    def op_cdiv(self, op: Operation) -> Value:
        """`tl.cdiv`: of scalars, with its text, which sizes are told by."""
        a, b = (self.value(x) for x in op.arguments[:2])
        shape = broadcast([a, b])
        number = self.ceiling(a, b) if shape == () else None
        return Value(shape, number, sources=a.sources | b.sources, strides=(None,) * len(shape or ()))

    def op_arange(self, op: Operation) -> Value:
        """A tile of one axis and step 1, as long as its bounds are apart."""
        bounds = [self.value(a) for a in [*op.arguments, *op.given.values()]]
        length = computed(ast.Sub(), bounds[1].number, bounds[0].number) if len(bounds) == 2 else None
        if length is None:
            return Value(None)
        self.tile(op, (length,))
        return Value((length,), strides=(1,))

    def tile(self, op: Operation, shape: Shape | None) -> None:
        """Put down that the kernel makes a tile."""
        if shape is not None:
            text = clip(f"{self.prefix}.{op.name}({', '.join(ast.unparse(a) for a in op.node.args)})", 120)
            self.put(Allocation, op.node, name="", space="register", dimensions=texts(shape), text=text)

    def _filled(self, op: Operation) -> Value:
        shape = self.shape(op.given.get("shape") or (op.arguments[0] if op.arguments else None))
        kind = op.given.get("dtype") or (op.arguments[-1] if len(op.arguments) > 1 else None)
        if op.name == "full" and (value := op.argument(1, "value") or op.given.get("fill_value")) is not None:
            self.value(value)  # what is computed in it counts
        integer = kind is not None and (".int" in ast.unparse(kind) or ".uint" in ast.unparse(kind))
        if op.name in {"zeros", "full"}:
            self.tile(op, shape)
        return Value(shape, data=not integer, accumulator=True)

    op_zeros = op_full = op_zeros_like = op_full_like = _filled

    def shape(self, node: ast.expr | None) -> Shape | None:
        """The sizes that a list of them names."""
        if node is None:
            return None
        found = self.value(node)
        if found.items is None:
            return (found.number,) if found.number is not None else found.shape
        sizes = tuple(item.number for item in found.items if item.number is not None)
        return sizes if len(sizes) == len(found.items) else None

    def op_load(self, op: Operation) -> Value:
        """What stands at a pointer, a block or a descriptor; the access is put down."""
        address = self.value(op.arguments[0] if op.arguments else next(iter(op.given.values())))
        mask = op.given.get("mask") if op.method else op.argument(1, "mask")
        self.indices_of(mask, *(op.arguments[1:2] if op.method else []))
        return self.loaded(op, self.addressed(op, address), mask)

    def loaded(self, op: Operation, address: Value, mask: ast.expr | None = None) -> Value:
        """A load put down, and what it gives."""
        self.index(address)
        place = self.access("load", op, address, mask)
        steps = (None,) * len(address.shape or ())
        return Value(address.shape, data=True, sources=frozenset({place}), strides=steps, loaded=place)

    def addressed(self, op: Operation, address: Value) -> Value:
        """The block that an access moves: a descriptor from elsewhere does not say which."""
        return replace(address, shape=None) if op.method and not address.block else address

    def op_store(self, op: Operation) -> Value:
        """Put down a store through a pointer, a block or a descriptor."""
        address = self.value(op.arguments[0] if op.arguments else op.given["pointer"])
        what = op.argument(2 if op.method else 1, "value")
        stored = self.value(what) if what is not None else Value()
        mask = op.given.get("mask") if op.method else op.argument(2, "mask")
        self.indices_of(mask, *(op.arguments[1:2] if op.method else []))
        return self.stored(op, self.addressed(op, address), stored, mask)

    def stored(self, op: Operation, address: Value, value: Value, mask: ast.expr | None = None) -> Value:
        """A store put down: of the block that the address names, or of the tile that is stored."""
        self.index(address)
        if not address.block and (address.shape is None or (address.shape == () and value.shape)):
            axes = len(value.shape or ())
            along: Steps = (0,) * axes if address.shape == () else (None,) * axes
            if address.shape is None and axes and (op.method or "descriptor" in op.name):
                along = (*along[:-1], 1)  # no descriptor is of a tensor whose last axis has another step
            address = replace(address, shape=value.shape, strides=along)
        self.access("store", op, address, mask)
        return Value()

    def _descriptor_load(self, op: Operation) -> Value:
        """`(descriptor, offsets)`, in its first form with the shape of the block behind them."""
        address = self.value(op.arguments[0])
        self.indices_of(*op.arguments[1:2])
        shape = self.shape(op.arguments[2]) if len(op.arguments) > 2 else address.shape if address.block else None
        return self.loaded(op, replace(address, shape=shape, strides=address.strides if address.block else ()))

    op__experimental_descriptor_load = op_load_tensor_descriptor = _descriptor_load

    def _descriptor_store(self, op: Operation) -> Value:
        """`tl.store_tensor_descriptor(descriptor, offsets, value)`; its first form has the value before the offsets."""
        address = self.value(op.arguments[0])
        second, third = (
            (op.arguments[2:3], op.arguments[1:2])
            if "experimental" in op.name
            else (op.arguments[1:2], op.arguments[2:3])
        )
        self.indices_of(*second)
        return self.stored(
            op, self.addressed(replace(op, method=True), address), self.value(third[0]) if third else Value(None)
        )

    op__experimental_descriptor_store = op_store_tensor_descriptor = _descriptor_store

    def op_gather(self, op: Operation) -> Value:
        """A load by a descriptor's rows; of a tile that is here, a choice that costs nothing."""
        address, *rest = [self.value(a) for a in (*op.arguments, *op.given.values())]
        if not op.method or not (address.block or address.name):  # of a tile that is here
            return Value(rest[0].shape if rest else None, data=address.data, sources=address.sources)
        return self.loaded(op, replace(address, shape=None))

    def op_scatter(self, op: Operation) -> Value:
        """Put down a store to a descriptor's rows."""
        address, *rest = [self.value(a) for a in (*op.arguments, *op.given.values())]
        return self.stored(op, replace(address, shape=None, block=False), rest[0] if rest else Value(None))

    def _atomic(self, op: Operation) -> Value:
        address = self.value(op.arguments[0])
        stored = [self.value(a) for a in (op.arguments[2:3] if op.method and address.block else op.arguments[1:2])]
        mask = op.argument(3 if op.name == "atomic_cas" else 2, "mask") if not address.block else None
        self.indices_of(mask)
        self.index(address)
        shape = address.shape if address.shape != () or not stored else stored[0].shape
        if any(v.data for v in stored) and op.name == "atomic_add":
            self.compute(op.node, shape, sources_of(stored), 1)
        self.access("atomic", op, replace(address, shape=shape), mask)
        return Value(shape, sources=frozenset(), data=bool(stored and stored[0].data))

    op_atomic_add = op_atomic_max = op_atomic_min = op_atomic_xchg = op_atomic_cas = op_atomic_and = op_atomic_or = (
        _atomic
    )
    op_atomic_xor = _atomic

    def op_dot(self, op: Operation) -> Value:
        """A product of matrices, [M, K] by [K, N], batched where there are more axes: 2 * M * N * K FLOPs."""
        a, b = self.value(op.arguments[0]), self.value(op.arguments[1])
        for other in [*op.arguments[2:], *op.given.values()]:
            self.value(other)
        onto = op.argument(2, "acc")
        alone = onto is None or (isinstance(onto, ast.Constant) and onto.value is None)
        return self.product(op.node, f"{self.prefix}.{op.name}", a, b, alone=alone)

    def product(self, node: ast.AST, name: str, a: Value, b: Value, *, alone: bool) -> Value:
        """A product of matrices put down, and its result; `alone`: it is handed no accumulator."""
        if not a.shape or not b.shape or len(a.shape) < 2 or len(a.shape) != len(b.shape):
            self.lost(f"{name} of tiles of unknown shape", node, "flops", "matmul")
            return Value(None, data=True)
        self.of_floats(a, b)
        shape = (*a.shape[:-1], b.shape[-1])
        self.put(
            Product, node, operation=name, flops=2 * self.log.counts.size((*shape, a.shape[-1])),
            operands=(a.loaded, b.loaded),
        )  # fmt: skip
        return Value(shape, data=True, sources=a.sources | b.sources, product=alone, accumulator=True)

    def op_dot_scaled(self, op: Operation) -> Value:
        """A product of packed operands: its FLOPs are not told."""
        values = [self.value(a) for a in (*op.arguments, *op.given.values())]
        self.lost("tl.dot_scaled, whose operands are packed", op.node, "flops", "matmul")
        a, b = values[0], values[3]
        return Value((a.shape[0], b.shape[-1]) if a.shape and b.shape else None, data=True)

    def reduced(self, op: Operation, values: list[Value], flops: int) -> Value:
        """A tile without its reduced axis; `flops` for each element. Of two scalars, one of them."""
        found = values[0] if values else Value(None)
        if found.items is not None or (len(op.arguments) > 1 and found.shape == () and "axis" not in op.given):
            # of two scalars, as Python's own max(a, b)
            return Value(broadcast(values), called(op.name, *values), any(v.data for v in values), sources_of(values))
        if flops and found.data:
            self.compute(op.node, found.shape, found.sources, flops)
        where = op.given.get("axis") or (op.arguments[1] if len(op.arguments) > 1 else None)
        axis = self.quiet(where).constant if where is not None else None
        kept = op.given.get("keep_dims") or op.given.get("keepdims")
        keeps = kept is not None and self.quiet(kept).constant is True
        if found.shape is None or (where is not None and not isinstance(axis, int)):
            return Value(None, data=found.data, sources=found.sources)
        if axis is None:
            shape: Shape = (1,) * len(found.shape) if keeps else ()
        else:
            sizes = list(found.shape)
            if not -len(sizes) <= axis < len(sizes):
                return Value(None, data=found.data, sources=found.sources)
            sizes[axis] = 1
            if not keeps:
                del sizes[axis]
            shape = tuple(sizes)
        made = Value(shape, data=found.data, sources=found.sources, strides=(None,) * len(shape))
        both = "return_indices" in op.given and self.quiet(op.given["return_indices"]).constant is True
        return Value(items=(made, replace(made, data=False))) if both else made

    def op_reduce(self, op: Operation) -> Value:
        """A reduction by a function of the kernel, whose FLOPs are not told."""
        self.lost(f"what {op.name} combines", op.node, "flops")
        found = self.value(op.arguments[0])
        return self.reduced(op, [found if found.items is None else found.items[0]], 0)

    def op_associative_scan(self, op: Operation) -> Value:
        """A scan by a function of the kernel: the same shape, FLOPs not told."""
        self.lost("what associative_scan combines", op.node, "flops")
        return self.value(op.arguments[0])

    def _same(self, op: Operation) -> Value:
        return self.value(op.arguments[0]) if op.arguments else Value(None)

    def op_to(self, op: Operation) -> Value:
        """A conversion, which costs nothing; of a pointer, to another size of elements."""
        found = self._same(op)
        kinds = [ast.unparse(a) for a in (*op.arguments[1:], *op.given.values())]
        if any("pointer_type" in kind for kind in kinds):
            pointed = next((m for kind in kinds if (m := re.search(r"(?<!\d)(\d++)\s*+\)", kind))), None)
            size = (
                str(max(int(pointed[1]) // 8, 1))
                if pointed
                else "{element.element_size()}"
                if found.loaded >= 0
                else ""
            )
            return replace(found, element=size or found.element, roots=found.roots or self.table(found))
        if any(re.search(r"\bu?int\d+$", kind) for kind in kinds):
            return replace(found, data=False, loaded=-1, product=False, accumulator=False)  # whole numbers from here on
        floats = any("float" in kind for kind in kinds)
        return replace(found, data=True, number=None, loaded=-1) if floats else found

    def table(self, found: Value) -> tuple[str, ...]:
        """What holds an address that was loaded."""
        load = self.log.events[found.loaded] if found.loaded >= 0 else None
        return load.roots if isinstance(load, Access) else ()

    op_to_tensor = op_logical_not = op_advance = _same
    op_cast = op_to

    op_max_contiguous = op_multiple_of = op_max_constancy = op_constexpr = _same

    def op_flip(self, op: Operation) -> Value:
        """The same tile backwards; steps between elements are no longer told."""
        return replace(self._same(op), strides=())

    op_sort = op_flip

    def op_where(self, op: Operation) -> Value:
        """A choice between two tiles, broadcast, which costs nothing."""
        test, first, second = (self.value(a) for a in op.arguments[:3])
        shape = broadcast([test, first, second])
        same = second.shape == () or first.strides == second.strides  # a scalar: where the mask leaves out
        steps = first.strides if first.shape == shape and same else ()
        return Value(
            shape,
            None,
            any(v.data or isinstance(v.constant, float) for v in (first, second)),
            first.sources | second.sources,
            first.roots + second.roots,
            steps,
        )

    def op_trans(self, op: Operation) -> Value:
        """The axes in another order, reversed where none is given."""
        order = [self.quiet(a).constant for a in op.arguments[1:]]
        return permuted(self.value(op.arguments[0]), order or None)

    def op_permute(self, op: Operation) -> Value:
        """The axes in another order, given one by one or as a tuple."""
        found = self.value(op.arguments[0])
        order = self.value(op.given["dims"] if "dims" in op.given else op.arguments[1])
        items = order.items or tuple(self.value(a) for a in op.arguments[1:])
        return permuted(found, [i.constant for i in items])

    def op_reshape(self, op: Operation) -> Value:
        """Another shape; steps between elements are no longer told."""
        shape = self.wanted(op)
        return replace(self.value(op.arguments[0]), shape=shape, strides=(None,) * len(shape or ()), number=None)

    op_view = op_reshape

    def wanted(self, op: Operation) -> Shape | None:
        """The shape that is asked for: one list of sizes, or the sizes one by one."""
        rest = op.arguments[1:]
        if len(rest) > 1:
            return self.shape(ast.Tuple(elts=list(rest), ctx=ast.Load()))
        return self.shape(rest[0] if rest else op.given.get("shape"))

    def op_broadcast_to(self, op: Operation) -> Value:
        """Another shape, its steps kept where the number of axes is."""
        found, shape = self.value(op.arguments[0]), self.wanted(op)
        if shape is None or found.shape is None or len(shape) != len(found.shape):
            return replace(found, shape=shape, strides=(), number=None)
        return replace(found, shape=shape, strides=padded(found), number=None)

    def op_broadcast(self, op: Operation) -> Value:
        """Both tiles at their common shape."""
        values = [self.value(a) for a in op.arguments]
        shape = broadcast(values)
        return Value(items=tuple(replace(v, shape=shape) for v in values))

    def op_expand_dims(self, op: Operation) -> Value:
        """An axis of size 1 added; unknown where its place is not a number."""
        found = self.value(op.arguments[0])
        where = op.given.get("axis") or (op.arguments[1] if len(op.arguments) > 1 else None)
        axis = self.quiet(where).constant if where is not None else None
        if found.shape is None or not isinstance(axis, int):
            return Value(None, data=found.data, sources=found.sources)
        sizes, steps = list(found.shape), list(padded(found))
        place = axis if axis >= 0 else len(sizes) + 1 + axis
        sizes.insert(place, 1)
        steps.insert(place, 0)
        return replace(found, shape=tuple(sizes), strides=tuple(steps), number=None)

    def op_join(self, op: Operation) -> Value:
        """Two tiles side by side, on a new last axis of size 2."""
        a, b = (self.value(x) for x in op.arguments[:2])
        shape = broadcast([a, b])
        return Value(None if shape is None else (*shape, 2), data=a.data or b.data, sources=a.sources | b.sources)

    def op_cat(self, op: Operation) -> Value:
        """Two tiles of one axis, one behind the other."""
        a, b = (self.value(x) for x in op.arguments[:2])
        known = a.shape is not None and b.shape is not None and len(a.shape) == len(b.shape) == 1
        length = computed(ast.Add(), a.shape[0], b.shape[0]) if known and a.shape and b.shape else None
        return Value(None if length is None else (length,), data=a.data or b.data, sources=a.sources | b.sources)

    def op_split(self, op: Operation) -> Value:
        """The two halves along the last axis, which goes."""
        found = self.value(op.arguments[0])
        half = replace(found, shape=found.shape[:-1] if found.shape else None, strides=())
        return Value(items=(half, half))

    def op_make_block_ptr(self, op: Operation) -> Value:
        """A block of a tensor; its shape is what a load of it gives."""
        names = ("base", "shape", "strides", "offsets", "block_shape", "order")
        parts = {**dict(zip(names, op.arguments, strict=False)), **op.given}
        return self.blocked(op, parts)

    def op_make_tensor_descriptor(self, op: Operation) -> Value:
        """A tensor that is loaded and stored by blocks at given offsets."""
        names = ("base", "shape", "strides", "block_shape")
        return self.blocked(op, {**dict(zip(names, op.arguments, strict=False)), **op.given})

    op__experimental_make_tensor_descriptor = op_make_tensor_descriptor

    def blocked(self, op: Operation, parts: dict[str, ast.expr]) -> Value:
        """A block pointer or descriptor: loads through it have its block's shape and steps."""
        found = self.value(parts["base"]) if "base" in parts else Value(None)
        shape = self.shape(parts.get("block_shape"))
        strides = self.value(parts["strides"]) if "strides" in parts else Value(None)
        for name in ("offsets", "shape"):
            if name in parts:
                self.index(self.value(parts[name]))
        self.index(found)
        steps = tuple(i.number for i in strides.items) if strides.items is not None else ()
        self.tile(op, shape)
        return Value(shape, roots=found.roots, strides=steps, block=True)

    def _nothing(self, op: Operation) -> Value:
        del op
        return Value()

    def op_swizzle2d(self, op: Operation) -> Value:
        """Two new indices, of which nothing is told."""
        del op
        return Value(items=(Value(), Value()))

    def _number(self, op: Operation) -> Value:
        del op
        return Value(data=True)

    op_float32 = op_float16 = op_bfloat16 = op_float64 = _number

    op_device_print = op_static_print = op_debug_barrier = _nothing

    def _assert(self, op: Operation) -> Value:
        condition = op.argument(0, "cond")
        if condition is not None:
            self.check(f"{self.prefix}.{op.name}", op.node, condition, op.argument(1, "msg"))
        return Value()

    op_static_assert = op_device_assert = _assert

    def check(self, kind: str, node: ast.AST, condition: ast.expr, message: ast.expr | None) -> None:
        """Put down what must hold."""
        plain = message.value if isinstance(message, ast.Constant) and isinstance(message.value, str) else None
        said = plain if plain is not None else "" if message is None else ast.unparse(message)
        self.put(Check, node, kind=kind, condition=ast.unparse(condition), message=said)


def understood(name: str) -> bool:
    """Whether an operation without a method of its own is one whose result and cost are known."""
    return name in _REDUCE or name in PER_ELEMENT or name in _FREE or name in _OF_FLOATS


def clipped(node: ast.expr) -> str:
    """An expression as it is written, cut where it is long."""
    return clip(ast.unparse(node))


def clip(text: str, limit: int = 240) -> str:
    """A text as long as a fact quotes one."""
    return text if len(text) <= limit else text[: limit - 3] + "..."
