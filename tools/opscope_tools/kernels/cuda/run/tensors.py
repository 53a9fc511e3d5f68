"""CuTe in the abstract run of a CUDA kernel: tensors and their parts, and what copying and multiplying them costs.

What an expression comes to is read in cuda/cute; accesses and products are put down here, each as often as a thread has elements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from typing import Any

from opscope_tools.kernels.cuda.cute.expressions import Cute
from opscope_tools.kernels.cuda.cute.values import (
    Atom,
    Free,
    OperandCopy,
    Slice,
    Tensor,
    TiledCopy,
    TiledMma,
    Tma,
    along,
)
from opscope_tools.kernels.cuda.names.element_types import element_bits
from opscope_tools.kernels.cuda.names.values import (
    BOOL,
    INT,
    UNKNOWN,
    UNTOLD,
    VOID,
    Type,
    Value,
    arithmetic,
    lane_step,
    thread_index,
    told,
    whole,
)  # fmt: skip
from opscope_tools.kernels.cuda.run.accesses import access
from opscope_tools.kernels.cuda.run.state import State, Values
from opscope_tools.kernels.cuda.syntax.nodes import Braced, Call, Member, Name, Node, TypeName
from opscope_tools.kernels.run.log import EVERY, MEMORY
from opscope_tools.kernels.values.expressions import Expression, render, settled
from opscope_tools.kernels.values.layouts import product
from opscope_tools.kernels.values.notation import read_size

_DATA = frozenset({"data"})
_INDICES = re.compile(r"canonical_(?:warp_idx|warp_group_idx|lane_idx)(?:_sync)?|elect_one_sync")
#: what acts on tensors, by the name of the function
_ACTIONS = frozenset(
    "copy copy_if copy_aligned gemm axpby clear fill warpgroup_fence_operand cooperative_copy cooperative_gemm".split()
)
#: which stage of a pipeline a thread is at
_STATE = "PipelineState"
#: waiting and signalling, which move and compute nothing
_SILENT = re.compile(
    r"cluster_(?:sync|arrive\w*|wait)|tma_store_(?:arrive|wait|fence)|prefetch_tma_descriptor|fence_\w+|warpgroup_reg_(?:alloc|dealloc)|"
    r"warpgroup_(?:arrive|wait|commit_batch)"
)
#: bytes of the widest load that `copy` makes of neighbouring values by itself
_WIDEST = 16


class _Around:
    """The function of a kernel around an expression."""

    def __init__(self, state: State, values: Values) -> None:
        self.state, self.values = state, values

    def named(self, name: str) -> Any:
        found = self.state.scope.find(name)
        return found.cute if found is not None else self.state.scope.cute.get(name)

    def declared(self, name: str) -> bool:
        return self.state.scope.find(name) is not None

    def scalar(self, node: Node) -> Any:
        found = self.values.value(self.state, node)
        if found.cute is not None:
            return found.cute
        if found.type.kind not in {"int", "unknown"} or found.where:
            return None
        return found.number if found.number is not None and not found.varies else found

    def constant(self, text: str) -> Any:
        known = self.state.scope.cute.get(text.strip())
        if isinstance(known, int | Expression):
            return known
        return self.state.scope.number_of(text) if re.fullmatch(r"[\w:\s+*/%()-]+", text) else None

    def pointer(self, node: Node, space: str) -> Value:
        found = self.values.value(self.state, node)
        if found.type.kind in {"pointer", "array"}:
            return replace(found, space=space or found.space)
        return Value(Type("pointer", "", "8", UNKNOWN), space=space, origin=found.origin, varies=found.varies)

    def type(self, text: str) -> str:
        return text

    def bits(self, text: str) -> int | None:
        kind = self.state.scope.read_type(text)
        if kind is not None and kind.size.isdigit():
            return int(kind.size) * 8
        return element_bits(text)


class Tensors:
    """CuTe's values and what is done with them."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def cute(self, state: State) -> Cute:
        """The reader of CuTe's expressions here."""
        return Cute(_Around(state, self.values))

    def alias(self, state: State, name: str, kind: TypeName | None) -> None:
        """`using Layout = decltype(...)`: what the type stands for."""
        if kind is None or not _of_cute(state):
            return
        arguments = f"<{', '.join(kind.arguments)}>" if kind.arguments else ""
        if (found := self.cute(state).written(f"{kind.name}{arguments}")) is not None:
            state.scope.cute[name] = found

    def unpack(self, state: State, names: Sequence[str], found: Value) -> None:
        """`auto [a, b] = value;`"""
        parts = found.cute if isinstance(found.cute, tuple) else ()
        for name, part in zip(names, parts, strict=False):
            state.scope.change(name, as_value(part) or Value(UNKNOWN))

    def read(self, state: State, node: Name | Braced) -> Value | None:
        """`Layout<...>{}`, `cosize_v<L>`, `decltype(...)::value`; None where it is none of CuTe's."""
        if not _of_cute(state) or (
            isinstance(node, Name) and node.arguments is None and not node.text.endswith("::value")
        ):
            return None
        if isinstance(node, Braced) and node.type is None:
            return None
        return self._once(state, self.cute(state), node)

    def call(self, state: State, node: Call) -> Value | None:
        """A call of one of CuTe's functions; None where it is none."""
        if not _of_cute(state):
            return None
        function = node.function
        cute = self.cute(state)
        if isinstance(function, Name):
            space, _, plain = function.text.rpartition("::")
            known = state.scope.find(function.text)
            if known is None and (index := _index(state, plain)) is not None:
                return index
            if plain == _STATE:
                return Value(Type("object", _STATE))
            kind = state.scope.types.get(space)
            if _SILENT.fullmatch(plain) or "Barrier" in space or (kind is not None and "Barrier" in kind.name):
                return Value(VOID)
            if known is None and plain in _ACTIONS:
                with state.log.apart() as apart:
                    given = [cute.given(a) for a in node.arguments]
                if any(isinstance(g, Tensor) for g in given):
                    state.log.add(apart)
                    self._act(state, node, plain, given)
                    return Value(VOID)
                return None
            if known is not None and isinstance(known.cute, Tensor):
                at = [cute.given(a) for a in node.arguments]
                found = cute.at(known.cute, at)
                if isinstance(found, Tensor) and not _keeps(at):
                    return self._element(found)
                return as_value(found) or Value(UNKNOWN, varies=_DATA)
        elif not isinstance(function, Member):
            return None
        elif isinstance(function.base, Name) and function.name in {"index", "phase", "count"}:
            base = state.scope.find(function.base.text)
            if base is not None and base.type.name == _STATE:
                return Value(INT, varies=frozenset({"loop", "data"}))
        return self._once(state, cute, node)

    @staticmethod
    def _once(state: State, cute: Cute, node: Node) -> Value | None:
        """What an expression comes to, its costs put down where it is one of CuTe's: else others read it, and put them down."""
        with state.log.apart() as apart:
            made = as_value(cute.value(node))
        if made is not None:
            state.log.add(apart)
        return made

    @staticmethod
    def _element(tensor: Tensor) -> Value:
        """One element, as a place."""
        base, kind = tensor.base, tensor.kind or UNKNOWN
        if base is None or base.space == "local":
            return Value(kind, varies=_DATA)
        return _place(tensor, kind)

    # actions ---------------------------------------------------------------------------------------------------------

    def _act(self, state: State, node: Call, name: str, given: Sequence[Any]) -> None:
        tensors = [g for g in given if isinstance(g, Tensor)]
        if name in {"copy", "copy_if", "copy_aligned"} and len(tensors) >= 2:
            how = next((g for g in given if isinstance(g, Atom | TiledCopy | OperandCopy | Tma)), None)
            if name == "copy_if":
                state.condition("every predicate of copy_if holds", node)
            self._copied(state, node, how, tensors[-2], tensors[-1])
        elif name == "gemm" and len(tensors) in (3, 4):
            mma = next((g for g in given if isinstance(g, TiledMma | Atom)), None)
            self._multiplied(state, node, mma, tensors)
            if any(t.base is not None and t.base.space == "global" for t in tensors):
                state.missing("operands of `gemm` in global memory", node, MEMORY, "gemm(...)")
        elif name == "axpby" and len(tensors) == 2:
            summand, result = tensors
            with _each(state, result.plain.size):
                state.put(node, "arithmetic", 3)
            state.condition("the last factor of axpby is not 0", node)
            self._moved(state, node, summand, "load", "axpby", None)
            self._moved(state, node, result, "load", "axpby", None)
            self._moved(state, node, result, "store", "axpby", None)
        elif name in {"clear", "fill"} and tensors:
            self._moved(state, node, tensors[0], "store", name, None)
        elif name != "warpgroup_fence_operand":
            state.missing(f"`{name}(...)` of tensors", node, EVERY, f"{name}(...)")

    def _copied(
        self, state: State, node: Call, how: Atom | TiledCopy | OperandCopy | Tma | None, source: Tensor, target: Tensor
    ) -> None:
        atom = how.atom if isinstance(how, TiledCopy | OperandCopy | Tma) else how
        name = f"copy({atom.name})" if atom is not None else "copy"
        if isinstance(how, Tma):
            self._bulk(state, node, how, source, target)
            return
        if atom is not None and re.search(r"TMA|BULK", atom.name):
            state.missing(f"`{name}`, which one thread makes for all", node, MEMORY, name)
            return
        asynchronous = atom is not None and "CP_ASYNC" in atom.name
        self._moved(state, node, source, "copy" if asynchronous else "load", name, how)
        self._moved(state, node, target, "store", name, how)

    @staticmethod
    def _bulk(state: State, node: Call, how: Tma, source: Tensor, target: Tensor) -> None:
        """A tile that one thread asks for: all of it in one instruction."""
        stores = target.base is not None and target.base.space == "global"
        tensor, name = (target if stores else source), f"copy({how.atom.name})"
        element = tensor.kind
        if element is None or not element.size or "REDUCE" in how.atom.name:
            state.missing(f"`{name}`", node, MEMORY, name)
            return
        total = render(settled("*", tensor.plain.size, read_size(element.size)))
        place = replace(_place(tensor, element), type=Type("object", "a tile", total), step=UNTOLD)
        access(state, node, place, "store" if stores else "copy", name, written=node)

    def _moved(
        self, state: State, node: Call, tensor: Tensor, what: Any, name: str, how: Atom | TiledCopy | OperandCopy | None
    ) -> None:
        base = tensor.base
        if base is None or base.space in {"shared", "local"}:
            return
        element = tensor.kind or UNKNOWN
        if base.space != "global" or not element.size:
            state.missing(f"`{name}` of elements that are not told", node, MEMORY, name)
            return
        each, place = self._width(tensor, element, how), _place(tensor, element)
        count = tensor.plain.size
        if each > 1 and isinstance(count, int) and count % each == 0:
            size = str(each * int(element.size)) if element.size.isdigit() else f"{each} * {element.size}"
            place = replace(place, type=Type("object", f"{each} of {element.name}", size))
            count //= each
        atom = how.atom if isinstance(how, TiledCopy | OperandCopy) else how
        if atom is not None and not atom.told:
            place = replace(place, step=UNTOLD)
        with _each(state, count):
            access(state, node, place, what, name, written=node)

    @staticmethod
    def _width(tensor: Tensor, element: Type, how: Atom | TiledCopy | OperandCopy | None) -> int:
        """Elements of one instruction: as its type says, else neighbours as `copy` takes them together."""
        atom = how.atom if isinstance(how, TiledCopy | OperandCopy) else how
        flat = [m for m in tensor.plain.flat if m[0] != 1]
        run = flat[0][0] if flat and flat[0][1] == 1 and isinstance(flat[0][0], int) else 1
        if not element.size.isdigit():  # of a type that launches settle: what one instruction of the tiled copy takes
            values = how.values.size if isinstance(how, TiledCopy) else 1
            return values if atom is not None and atom.width and isinstance(values, int) and run % values == 0 else 1
        size = int(element.size)
        if atom is not None and atom.width:
            return max(atom.width // size, 1)
        static = all(isinstance(one, int) for mode in flat for one in mode)  # `copy` takes no other for aligned
        together = _WIDEST if static or atom is not None else size
        return max(n for n in (1, 2, 4, 8, 16) if run % n == 0 and n * size <= max(together, size))

    @staticmethod
    def _multiplied(state: State, node: Call, mma: TiledMma | Atom | None, tensors: Sequence[Tensor]) -> None:
        """C += A B, or D = A B + C: each result of a thread adds up along K."""
        result, a = (t.plain for t in (tensors[:2] if len(tensors) == 4 else (tensors[2], tensors[0])))
        depth: Any = 1
        if mma is not None:
            depth = settled(
                "*",
                (mma.atom if isinstance(mma, TiledMma) else mma).shape[2],
                a.modes[2].size if len(a.modes) > 2 else 1,
            )
        elif len(a.modes) > 1:
            depth = a.modes[-1].size
        with _each(state, product((result.size, depth))):
            state.put(node, "cute::gemm", product=Fraction(2))


def _index(state: State, name: str) -> Value | None:
    """The numbers of a thread's warp and lane, and whether it is the one that a warp elects."""
    if not _INDICES.fullmatch(name) or any(state.block[axis] != 1 for axis in "yz"):
        return None
    thread = thread_index("x", state.block["x"])
    if name.startswith("canonical_warp"):
        return arithmetic("/", thread, whole(128 if "group" in name else 32), INT)
    lane = arithmetic("%", thread, whole(32), INT)
    if name == "elect_one_sync":
        return Value(BOOL, varies=lane.varies, test=("==", lane, whole(0)))
    return lane


def _of_cute(state: State) -> bool:
    """Whether the file of a function speaks of CuTe."""
    return state.scope.function.code.source.of_cute


def _keeps(at: Sequence[Any]) -> bool:
    return any(isinstance(a, Free) or (isinstance(a, tuple) and _keeps(a)) for a in at)


def as_value(found: Any) -> Value | None:
    """One of CuTe's values as a value of the run."""
    if found is None or isinstance(found, Free):
        return None
    if isinstance(found, Value):
        return found
    if isinstance(found, int | Expression):
        return Value(INT, found)
    kind = {Tensor: "Tensor", TiledCopy: "TiledCopy", TiledMma: "TiledMMA", Slice: "a slice"}.get(
        type(found), "a layout"
    )
    varies = found.offset.varies if isinstance(found, Tensor) else frozenset[str]()
    base = found.base if isinstance(found, Tensor) else None
    return Value(
        Type("object", kind), varies=varies, cute=found, space=base.space if base is not None else "local",
        origin=base.origin if base is not None else (),
    )  # fmt: skip


def _place(tensor: Tensor, element: Type) -> Value:
    """The first element of a thread's part, with how far the next lane's lies from it."""
    base = tensor.base
    assert base is not None
    at = along(tensor.offset, read_size(element.size)) if element.size else tensor.offset
    return Value(
        element, varies=base.varies | tensor.offset.varies | _DATA, where=base.space or "unknown", origin=base.origin, step=told(lane_step(at)),
        definition=base.definition,
    )  # fmt: skip


@contextmanager
def _each(state: State, count: Any) -> Iterator[None]:
    """What is met meanwhile is met once for each element."""
    kept = state.times
    try:
        state.times = kept * state.log.counts.read(render(count))
        yield
    finally:
        state.times = kept


__all__ = ["Tensors", "as_value"]
