"""What CuTe's expressions come to: tensors, atoms, and how threads share a tile.

Tuples of sizes and layouts are those of values/layouts.py. A tensor's `base` is the pointer it starts from; `offset` counts
elements from there, as far as coordinates tell it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opscope_tools.kernels.cuda.names.values import UNTOLD, Type, Value, arithmetic, whole
from opscope_tools.kernels.values import layouts
from opscope_tools.kernels.values.expressions import Expression, Quantity, leaf
from opscope_tools.kernels.values.layouts import Layout, LayoutError, Nested, Swizzle, product, times

#: strides that are not told
_UNTOLD = leaf("a stride")


@dataclass(frozen=True)
class Free:
    """`_` and `X`: a mode that is kept whole."""


FREE = Free()


@dataclass(frozen=True)
class Major:
    """`LayoutLeft`, `LayoutRight`: which mode runs fastest."""

    right: bool


@dataclass(frozen=True)
class Swizzled:
    """A layout whose places are swizzled."""

    swizzle: Swizzle
    layout: Layout

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.layout}"


def unswizzled(layout: Any) -> Any:
    """The layout under a swizzle; whatever else it is, as it is."""
    return layout.layout if isinstance(layout, Swizzled) else layout


@dataclass(frozen=True)
class Atom:
    """One instruction: of a copy, or of a product of `shape` (m, n, k) by so many threads."""

    name: str
    shape: tuple[int, int, int] = (1, 1, 1)
    threads: int = 1
    #: bytes that one instruction of a copy moves; 0: as its type says
    width: int = 0
    #: whether it is told how many elements one instruction moves
    told: bool = True


@dataclass(frozen=True)
class Tensor:
    """Elements of a memory in a layout; `base`: the pointer, None: registers."""

    layout: Layout | Swizzled
    base: Value | None = None
    offset: Value = field(default_factory=lambda: whole(0))
    #: of an element in registers, where it is told
    element: Type | None = None

    @property
    def plain(self) -> Layout:
        """Its layout, unswizzled."""
        found: Layout = unswizzled(self.layout)
        return found

    @property
    def kind(self) -> Type | None:
        """Of an element."""
        return self.base.type.of if self.base is not None else self.element


@dataclass(frozen=True)
class TiledCopy:
    """Threads that copy a tile together: how they lie in it, and the values that each takes at once."""

    atom: Atom
    threads: Layout
    values: Layout

    @property
    def size(self) -> Any:
        """Threads."""
        return self.threads.size


@dataclass(frozen=True)
class TiledMma:
    """Atoms that multiply a tile together."""

    atom: Atom
    layout: Layout
    #: whether its tile is put in another order: where in it a thread is, is then not told
    permuted: bool = False

    @property
    def size(self) -> Any:
        """Threads."""
        return times(self.layout.size, self.atom.threads)

    def span(self, axis: int) -> Any:
        """Elements of M, N or K that one step of all atoms covers."""
        modes = self.layout.modes
        return times(self.atom.shape[axis], modes[axis].size if axis < len(modes) else 1)


@dataclass(frozen=True)
class Tma:
    """A copy of a tile that one thread asks the tensor memory accelerator for."""

    atom: Atom
    tensor: Tensor
    tile: Nested


@dataclass(frozen=True)
class OperandCopy:
    """A copy of an operand of a product, as its threads hold it (`make_tiled_copy_A`)."""

    atom: Atom
    mma: TiledMma
    operand: str

    @property
    def size(self) -> Any:
        """Threads."""
        return self.mma.size


@dataclass(frozen=True)
class Compact:
    """A block without gaps whose shape is not told: it hangs on the bits of an element."""


@dataclass(frozen=True)
class Slice:
    """One thread's part of a tiled copy or product."""

    of: TiledCopy | TiledMma | OperandCopy
    thread: Value


_THREADS = (
    (re.compile(r"SM70_8x8x4_"), 8),
    (re.compile(r"SM(?:90_64x|90::GMMA)"), 128),
    (re.compile(r"SM1[0-2]\d_MMA|SM100_"), 1),
)
_SHAPE = re.compile(r"SM\d+_(\d+)x(\d+)x(\d+)_")


def mma_atom(name: str) -> Atom | None:
    """The product that a name of CuTe's says; None for other names."""
    plain = name.partition("<")[0].rpartition("::")[2].strip()
    if plain == "UniversalFMA":
        return Atom(plain)
    shape = _SHAPE.match(plain)
    if shape is None:
        return None
    threads = next((n for pattern, n in _THREADS if pattern.match(plain)), 32)
    return Atom(plain, (int(shape[1]), int(shape[2]), int(shape[3])), threads)


# ---- coordinates ----------------------------------------------------------------------------------------------------


def along(index: Value, stride: Any) -> Value:
    """A coordinate times a stride; not told where the stride is not."""
    if stride is _UNTOLD:
        return replace(whole(None, varies=index.varies), step=UNTOLD)
    return arithmetic("*", index, whole(stride), index.type)


def plus(a: Value, b: Value) -> Value:
    """The sum of two offsets."""
    return arithmetic("+", a, b, a.type)


def reached(index: Value, layout: Layout) -> Value:
    """Where a number leads to that counts the coordinates of a layout, its first mode fastest."""
    flat = [m for m in layout.flat if m[0] != 1]
    if not flat:
        return whole(0)
    total = whole(0)
    for place, (size, stride) in enumerate(flat):
        last = place == len(flat) - 1
        total = plus(total, along(index if last else arithmetic("%", index, whole(size), index.type), stride))
        index = index if last else arithmetic("/", index, whole(size), index.type)
    return total


def shared_out(index: Value, layout: Layout) -> list[Value]:
    """The coordinate along each mode of a layout of threads that one of them has."""
    found = []
    for one in layout.modes:
        total, current = whole(0), 1
        for size, stride in one.flat:
            if size == 1:
                continue
            digit = arithmetic("/", index, whole(stride), index.type) if stride != 1 else index
            digit = arithmetic("%", digit, whole(size), index.type)
            total, current = plus(total, along(digit, current)), times(current, size)
        found.append(total)
    return found


# ---- parts of tensors -----------------------------------------------------------------------------------------------


def sliced(tensor: Tensor, coordinate: Sequence[Any]) -> Tensor:
    """The modes that a coordinate leaves whole, from where its numbers lead to."""
    if len(coordinate) == 1 and len(tensor.plain.modes) > 1 and not isinstance(coordinate[0], tuple | Free):
        return _with(tensor, [], reached(_index(coordinate[0]), tensor.plain))
    return _with(tensor, *_kept(tensor.plain.modes, coordinate))


def _kept(modes: Sequence[Layout], coordinate: Sequence[Any]) -> tuple[list[Layout], Value]:
    """The modes that a coordinate leaves whole, and where its numbers lead to."""
    if len(coordinate) > len(modes):
        raise LayoutError("a coordinate of more modes than the tensor")
    kept, offset = [], whole(0)
    for one, mode in zip(coordinate, modes, strict=False):
        if isinstance(one, Free):
            kept.append(mode)
        elif isinstance(one, tuple):
            inner, more = _kept(mode.modes, one)
            kept += inner
            offset = plus(offset, more)
        else:
            offset = plus(offset, reached(_index(one), mode))
    return [*kept, *modes[len(coordinate) :]], offset


def _index(one: Any) -> Value:
    return one if isinstance(one, Value) else whole(one)


def _with(tensor: Tensor, modes: Sequence[Layout], offset: Value) -> Tensor:
    layout = Layout.joined(modes) if modes else Layout(1, 0)
    made = Swizzled(tensor.layout.swizzle, layout) if isinstance(tensor.layout, Swizzled) else layout
    return Tensor(made, tensor.base, plus(tensor.offset, offset), tensor.element)


def diced(projection: Any, of: Any) -> Any:
    """The modes that a projection (`Step<_1, X, _1>`) does not leave out."""
    parts: Any = Layout.joined if isinstance(of, Layout) else tuple
    modes = of.modes if isinstance(of, Layout) else of
    return parts([m for m, p in zip(modes, projection, strict=False) if not isinstance(p, Free)])


def local_tile(tensor: Tensor, tiler: Any, coordinate: Any) -> Tensor:
    """The tile of a tensor at a coordinate: its own modes, then those of the rest that are kept whole."""
    tiler = tiler if isinstance(tiler, tuple) else (tiler,)
    tile, rest = layouts.zipped_divide(tensor.plain, tiler).modes
    if not isinstance(coordinate, tuple | Free):
        return _with(tensor, tile.modes, reached(_index(coordinate), rest))
    kept, offset = _kept(rest.modes, coordinate if isinstance(coordinate, tuple) else (coordinate,))
    return _with(tensor, [*tile.modes, *kept], offset)


def local_partition(tensor: Tensor, threads: Layout, index: Value) -> Tensor:
    """What one thread takes of a tensor over which threads are laid out again and again."""
    tiler = tuple(m.size for m in threads.modes)
    tile, rest = layouts.zipped_divide(tensor.plain, tiler).modes
    offset = whole(0)
    for coordinate, mode in zip(shared_out(index, threads), tile.modes, strict=True):
        offset = plus(offset, reached(coordinate, mode))
    return _with(tensor, rest.modes, offset)


def copied_part(part: Slice, tensor: Tensor) -> Tensor:
    """What one thread copies: (the values of an instruction, repeats along each mode of the tile, what is beside the tile)."""
    copy = part.of
    if not isinstance(copy, TiledCopy):
        raise LayoutError("a part of what is no copy")
    each, spread = copy.values.modes, copy.threads.modes
    modes = tensor.plain.modes
    values, rests, offset = [], [], whole(0)
    coordinates = shared_out(part.thread, copy.threads)
    for axis, mode in enumerate(modes):
        if axis >= len(spread):
            rests.append(mode)
            continue
        own = each[axis].size if axis < len(each) else 1
        whole_tile = times(own, spread[axis].size)
        try:
            values.append(layouts.composition(mode, Layout.of(own)))
            rests.append(layouts.logical_divide(mode, whole_tile).modes[1])
            step = layouts.composition(mode, Layout(spread[axis].size, own))
            offset = plus(offset, reached(coordinates[axis], step))
        except LayoutError:
            values.append(Layout(own, _UNTOLD))
            rests.append(Layout(layouts.rounded_up(mode.size, whole_tile), _UNTOLD))
            offset = replace(whole(None, varies=frozenset({"thread"})), step=UNTOLD)
    return _with(tensor, [Layout.joined(values), *rests], offset)


#: which of M, N and K the operands of a product have
OPERANDS = {"A": (0, 2), "B": (1, 2), "C": (0, 1)}


def multiplied_part(part: Slice | TiledMma, tensor: Tensor, operand: str) -> Tensor:
    """What one thread takes of an operand: (its values of an atom, repeats along each mode, what is beside the tile)."""
    mma = part.of if isinstance(part, Slice) else part
    if not isinstance(mma, TiledMma):
        raise LayoutError("a part of what is no product")
    axes = OPERANDS[operand]
    modes = tensor.plain.modes
    own = product(tuple(mma.atom.shape[axis] for axis in axes)) // mma.atom.threads
    repeats: list[Layout] = []
    offset = replace(whole(None, varies=frozenset({"thread"})), step=UNTOLD)
    for axis, mode in zip(axes, modes, strict=False):
        repeats.append(Layout(layouts.rounded_up(mode.size, mma.span(axis)), _UNTOLD))
    if isinstance(part, Slice) and mma.atom.threads == 1 and mma.atom.shape == (1, 1, 1) and not mma.permuted:
        spread = [m.size for m in mma.layout.modes]
        at, offset = shared_out(part.thread, mma.layout), whole(0)
        try:
            for place, (axis, mode) in enumerate(zip(axes, modes, strict=False)):
                wide = spread[axis] if axis < len(spread) else 1
                repeats[place] = layouts.logical_divide(mode, wide).modes[1] if wide != 1 else mode
                if axis < len(at):
                    offset = plus(offset, reached(at[axis], mode))
        except LayoutError:
            offset = replace(whole(None, varies=frozenset({"thread"})), step=UNTOLD)
    return _with(tensor, [Layout(max(own, 1), _UNTOLD if own > 1 else 0), *repeats, *modes[2:]], offset)


def covered(shape: Nested) -> Layout:
    """A layout of a shape without gaps whose strides are not told."""
    return Layout(shape, layouts.mapped(lambda _: _UNTOLD, shape), product(shape))


def in_registers(shape: Nested, element: Type | None = None) -> Tensor:
    """A tensor of a thread's own."""
    return Tensor(Layout.of(shape), element=element)


# ---- what several launches give -------------------------------------------------------------------------------------


def common(name: str, given: Sequence[Any]) -> Any:
    """What holds of all that launches hand a parameter: sizes that differ are called by their place in it; None: nothing."""
    first, *others = given
    for other in others:
        first = _both(name, first, other)
    return first


def _both(name: str, a: Any, b: Any) -> Any:
    if a == b:
        return a
    if isinstance(a, Layout) and isinstance(b, Layout):
        shape, stride = _both(f"{name}_shape", a.shape, b.shape), _both(f"{name}_stride", a.stride, b.stride)
        span = a.cosize if a.cosize == b.cosize else None
        return None if shape is None or stride is None else Layout(shape, stride, span)
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        made = tuple(_both(f"{name}_{place}", x, y) for place, (x, y) in enumerate(zip(a, b, strict=True)))
        return None if any(one is None for one in made) else made
    if (isinstance(a, int) or a == Quantity(name)) and isinstance(b, int):
        return Quantity(name)
    return leaf(name) if all(isinstance(one, int | Expression) for one in (a, b)) else None


def is_cute(value: Any) -> bool:
    """Whether it is more than a number."""
    return isinstance(
        value,
        tuple | Free | Major | Layout | Swizzled | Swizzle | Atom | Tensor | TiledCopy | TiledMma | OperandCopy | Tma,
    )


def shown(value: Any) -> str:
    """A value as CuTe prints it."""
    if isinstance(value, tuple):
        return f"({','.join(map(shown, value))})"
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, TiledCopy):
        return f"{value.atom.name}, threads {value.threads}, values {value.values}"
    if isinstance(value, TiledMma):
        return f"{value.atom.name}, atoms {value.layout}"
    if isinstance(value, Tma):
        return f"{value.atom.name} of {shown(value.tile)}"
    if isinstance(value, Atom):
        return value.name
    return "_" if value is FREE else str(value)


def told_whole(value: Any) -> bool:
    """Whether the compiler knows all of it."""
    if isinstance(value, tuple):
        return bool(value) and all(map(told_whole, value))
    if isinstance(value, Layout):
        return told_whole(value.shape) and told_whole(value.stride)
    if isinstance(value, Swizzled):
        return told_whole(value.layout)
    if isinstance(value, Tma):
        return told_whole(value.tile)
    if isinstance(value, TiledCopy):
        return told_whole(value.threads) and told_whole(value.values)
    if isinstance(value, TiledMma):
        return told_whole(value.layout)
    return isinstance(value, int | Atom)


#: what each kind of value is, for a reader
KINDS: dict[type, str] = {
    tuple: "sizes", Layout: "layout", Swizzled: "swizzled layout", TiledCopy: "copy", TiledMma: "matrix product", Atom: "instruction", Tma: "copy",
}  # fmt: skip


__all__ = [
    "FREE", "KINDS", "OPERANDS", "Atom", "Compact", "Free", "Major", "OperandCopy", "Slice", "Swizzled", "Tensor", "TiledCopy", "TiledMma", "Tma", "common", "copied_part", "covered", "diced", "in_registers", "is_cute", "local_partition", "local_tile", "mma_atom", "multiplied_part", "shown", "sliced", "told_whole", "unswizzled",
]  # fmt: skip
