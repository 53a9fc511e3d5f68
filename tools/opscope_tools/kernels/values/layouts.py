"""The algebra of CuTe's layouts: nested shapes with strides, as functions from coordinates to places.

A size is a whole number or an `Expression`. A result is the one that CuTe gives, as a function of all coordinates, or there
is none: `UndividedError` where sizes do not divide, `UntoldError` where a size that only a run tells would have to decide.
Order: tuples of sizes, layouts, composition and its inverses, products and quotients, swizzles.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import Any, TypeAlias

from opscope_tools.kernels.values.expressions import Expression, ceil_div, settled

#: a size, or tuples of them however deep
Nested: TypeAlias = "int | Expression | tuple[Nested, ...]"


class LayoutError(Exception):
    """A layout that there is not, or that is not told."""


class UndividedError(LayoutError):
    """Sizes that do not divide each other as the operation needs."""


class UntoldError(LayoutError):
    """A size that would have to be known here."""


# ---- tuples of sizes ------------------------------------------------------------------------------------------------


def flatten(nested: Nested) -> tuple[Any, ...]:
    """The sizes of a tuple, however deep they stand."""
    if isinstance(nested, tuple):
        return tuple(chain.from_iterable(flatten(one) for one in nested))
    return (nested,)


def times(a: Any, b: Any) -> Any:
    """The product of two sizes."""
    return 0 if a == 0 or b == 0 else settled("*", a, b)


def product(nested: Nested) -> Any:
    """The product of all sizes: how many coordinates a shape has."""
    return reduce(times, flatten(nested), 1)


def rank(nested: Nested) -> int:
    """The number of modes; 1 of a size."""
    return len(nested) if isinstance(nested, tuple) else 1


def depth(nested: Nested) -> int:
    """How deep tuples are nested; 0 of a size."""
    return 1 + max(map(depth, nested), default=0) if isinstance(nested, tuple) else 0


def mode(nested: Nested, *path: int) -> Nested:
    """A mode of a tuple, or of a mode of it."""
    for index in path:
        if not isinstance(nested, tuple):
            if index:
                raise UndividedError("no such mode")
            continue
        if not 0 <= index < len(nested):
            raise UndividedError("no such mode")
        nested = nested[index]
    return nested


def mapped(function: Callable[..., Any], *nested: Nested) -> Any:
    """A function of the sizes that stand at the same place of several tuples."""
    if not any(isinstance(one, tuple) for one in nested):
        return function(*nested)
    if not all(isinstance(one, tuple) for one in nested) or len({rank(one) for one in nested}) > 1:
        raise UndividedError("tuples of different shapes")
    return tuple(mapped(function, *parts) for parts in zip(*nested, strict=True))


def compact(shape: Nested, start: Any = 1, *, right: bool = False) -> Nested:
    """The strides of a shape without gaps: its first mode runs fastest, or its last; 0 where a mode has one place."""
    strides, current = [], start
    sizes = flatten(shape)
    for size in reversed(sizes) if right else sizes:
        strides.append(0 if size == 1 else current)
        current = times(current, size)
    return _as(shape, iter(reversed(strides) if right else strides))


def ordered(shape: Nested, order: Nested) -> Nested:
    """Strides without gaps, modes running the faster the smaller their `order`."""
    sizes, places = flatten(shape), flatten(order)
    if len(places) != len(sizes) or any(isinstance(p, Expression) for p in places):
        raise UndividedError("an order of another shape")
    strides, current = [0] * len(sizes), 1
    for index in sorted(range(len(sizes)), key=lambda i: (places[i], i)):
        strides[index] = 0 if sizes[index] == 1 else current
        current = times(current, sizes[index])
    return _as(shape, iter(strides))


def _as(shape: Nested, values: Iterator[Any]) -> Nested:
    return tuple(_as(one, values) for one in shape) if isinstance(shape, tuple) else next(values)


def rounded_up(a: Nested, b: Nested) -> Any:
    """`a / b` rounded up, mode by mode; one divisor of several modes is used up from the first of them on."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        if len(b) > len(a):
            raise UndividedError("more divisors than modes")
        return (*(rounded_up(x, y) for x, y in zip(a, b, strict=False)), *a[len(b) :])
    if isinstance(a, tuple):
        left, parts = b, []
        for one in a:
            whole = product(one)
            parts.append(rounded_up(one, left))
            left = ceil_div(left, whole)
        return tuple(parts)
    return ceil_div(a, product(b))


# ---- layouts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """A shape, and how far each step along its modes goes."""

    shape: Nested
    stride: Nested
    #: its cosize, where that is told and the strides are not
    span: Any = field(default=None, compare=False)

    @classmethod
    def of(cls, shape: Nested, *, right: bool = False) -> Layout:
        """A shape without gaps."""
        return cls(shape, compact(shape, right=right))

    @classmethod
    def joined(cls, parts: Iterable[Layout]) -> Layout:
        """A mode of each part."""
        modes = [*parts]
        return cls(tuple(m.shape for m in modes), tuple(m.stride for m in modes))

    @property
    def modes(self) -> tuple[Layout, ...]:
        """Each mode as a layout."""
        if not isinstance(self.shape, tuple) or not isinstance(self.stride, tuple):
            return (self,)
        return tuple(Layout(s, d) for s, d in zip(self.shape, self.stride, strict=True))

    @property
    def flat(self) -> list[tuple[Any, Any]]:
        """(size, stride) of every innermost mode."""
        return [*zip(flatten(self.shape), flatten(self.stride), strict=True)]

    @property
    def size(self) -> Any:
        """How many coordinates it has."""
        return product(self.shape)

    @property
    def cosize(self) -> Any:
        """One more than the farthest place; strides are taken to be positive."""
        if self.span is not None:
            return self.span
        spans = [times(settled("-", s, 1), d) for s, d in self.flat if s != 1]
        return reduce(lambda a, b: settled("+", a, b), spans, 1)

    def __call__(self, coordinate: Nested) -> Any:
        """The place of a coordinate."""
        return place(coordinate, self.shape, self.stride)

    def __str__(self) -> str:
        return f"{_written(self.shape)}:{_written(self.stride)}"


def _written(nested: Nested) -> str:
    if isinstance(nested, tuple):
        return f"({','.join(map(_written, nested))})"
    return nested.text if isinstance(nested, Expression) else str(nested)


def place(coordinate: Any, shape: Any, stride: Any) -> Any:
    """Where a coordinate of whole numbers leads to: a tuple of a shape's own form, or one that counts its first mode fastest."""
    if not isinstance(shape, tuple):
        return coordinate * stride
    if isinstance(coordinate, tuple):
        if len(shape) != len(coordinate):
            raise UndividedError("a coordinate of another shape")
        return sum(place(c, s, d) for c, s, d in zip(coordinate, shape, stride, strict=True))
    total = 0
    for one, step in zip(shape[:-1], stride[:-1], strict=True):
        coordinate, inner = divmod(coordinate, product(one))
        total += place(inner, one, step)
    return total + place(coordinate, shape[-1], stride[-1])


def coalesced(layout: Layout) -> Layout:
    """The same function of a number with as few modes as can be."""
    modes: list[tuple[Any, Any]] = []
    for size, stride in layout.flat:
        if size == 1:
            continue
        if modes and times(*modes[-1]) == stride:
            modes[-1] = times(modes[-1][0], size), modes[-1][1]
        else:
            modes.append((size, stride))
    return _plain(modes)


def filtered(layout: Layout) -> Layout:
    """The layout without modes that lead nowhere."""
    return coalesced(_plain([(s, d) for s, d in layout.flat if s != 1 and d != 0]))


def _plain(modes: Sequence[tuple[Any, Any]]) -> Layout:
    if len(modes) > 1:
        return Layout(tuple(s for s, _ in modes), tuple(d for _, d in modes))
    return Layout(*modes[0]) if modes else Layout(1, 0)


# ---- composition ----------------------------------------------------------------------------------------------------


def composition(outer: Layout, inner: Layout | Nested | None) -> Layout:
    """`outer` of what each mode of `inner` gives: i -> outer(inner(i)); a tuple of layouts or sizes: one for each mode of `outer`.

    As in CuTe the modes of `inner` are taken one by one, as if none carried into another within `outer`.
    """
    if inner is None:
        return outer
    if isinstance(inner, tuple):
        return _by_mode(composition, outer, inner)
    if not isinstance(inner, Layout):
        inner = Layout.of(inner)
    if isinstance(inner.shape, tuple):
        return Layout.joined(composition(outer, m) for m in inner.modes)
    flat = coalesced(outer).flat
    shape, stride = inner.shape, inner.stride
    if stride == 0:
        return Layout(shape, 0)
    if len(flat) == 1:
        return Layout(shape, times(stride, flat[0][1]))
    if any(isinstance(x, Expression) for x in (shape, stride)):
        raise UntoldError(f"{inner} of {outer}")
    made: list[tuple[Any, Any]] = []
    for size, step in flat[:-1]:
        if shape == 1:
            break
        if isinstance(size, Expression):
            raise UntoldError(f"{inner} of {outer}")
        if stride % size == 0:
            stride //= size
            continue
        taken = min(ceil_div(size, stride), shape)
        if shape % taken or (shape > taken and size % stride):
            raise UndividedError(f"{inner} does not go evenly through {outer}")
        if taken != 1:
            made.append((taken, times(stride, step)))
        shape //= taken
        stride = 1
    if shape != 1 or not made:
        made.append((shape, times(stride, flat[-1][1])))
    return _plain(made)


def _by_mode(operation: Callable[[Layout, Any], Layout], layout: Layout, by: tuple[Any, ...]) -> Layout:
    own = layout.modes
    if len(by) > len(own):
        raise UndividedError("more modes asked for than there are")
    done = (operation(m, b) for m, b in zip(own, by, strict=False))
    return Layout.joined([*done, *own[len(by) :]])


def complement(layout: Layout, within: Nested = 1) -> Layout:
    """The places up to `within` that a layout leaves out: its own and these together reach each place once."""
    strides = filtered(layout).flat
    strides = [] if strides == [(1, 0)] else strides
    if len(strides) > 1 and any(isinstance(d, Expression) for _, d in strides):
        raise UntoldError(f"what {layout} leaves out")
    modes: list[tuple[Any, Any]] = []
    current: Any = 1
    for size, stride in sorted(strides, key=lambda m: m[1]) if len(strides) > 1 else strides:
        gap = 1 if stride == current else _exactly(stride, current)
        modes.append((gap, current))
        current = times(size, stride)
    rest = rounded_up(within, current)
    return coalesced(Layout.joined([_plain(modes), Layout(rest, compact(rest, current))]))


def _exactly(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        if a < b or a % b:
            raise UndividedError(f"steps of {a} and {b} overlap")
        return a // b
    if b == 1:
        return a
    raise UntoldError(f"how {_written(a)} and {_written(b)} divide each other")


def right_inverse(layout: Layout) -> Layout:
    """What leads back: layout(result(i)) == i, as far as places follow each other without a gap."""
    modes: list[tuple[Any, Any]] = []
    flat = coalesced(layout).flat
    steps = flatten(compact(tuple(s for s, _ in flat)))
    current: Any = 1
    known = [(s, d, b) for (s, d), b in zip(flat, steps, strict=True) if not isinstance(d, Expression)]
    for size, stride, step in sorted(known, key=lambda m: m[1]):
        if size == 1 or stride == 0:
            continue
        if stride != current:
            break
        modes.append((size, step))
        current = times(size, stride)
    return coalesced(_plain(modes))


def left_inverse(layout: Layout) -> Layout:
    """What leads back: result(layout(i)) == i for each coordinate of a layout that reaches no place twice."""
    return right_inverse(Layout.joined([layout, complement(layout)]))


# ---- products and quotients -----------------------------------------------------------------------------------------


def logical_divide(layout: Layout, tiler: Any) -> Layout:
    """A layout as (tile, rest): a tiler's places first, and how the tiles follow each other."""
    if tiler is None:
        return layout
    if isinstance(tiler, tuple):
        return _by_mode(logical_divide, layout, tiler)
    tile = tiler if isinstance(tiler, Layout) else Layout.of(tiler)
    return composition(layout, Layout.joined([tile, complement(tile, coalesced(layout).shape)]))


def logical_product(block: Layout, tiler: Any) -> Layout:
    """A layout repeated: (block, how the blocks lie)."""
    if tiler is None:
        return block
    if isinstance(tiler, tuple):
        return _by_mode(logical_product, block, tiler)
    tile = tiler if isinstance(tiler, Layout) else Layout.of(tiler)
    return Layout.joined([block, composition(complement(block, times(block.size, tile.cosize)), tile)])


def _unzipped(operation: Callable[[Layout, Any], Layout], layout: Layout, by: Any) -> Layout:
    if by is None:
        return Layout.joined([Layout(1, 0), layout])
    if not isinstance(by, tuple):
        return operation(layout, by)
    own = layout.modes
    if len(by) > len(own):
        raise UndividedError("more modes asked for than there are")
    split = [_unzipped(operation, m, b).modes for m, b in zip(own, by, strict=False)]
    return Layout.joined([Layout.joined(s[0] for s in split), Layout.joined([*(s[1] for s in split), *own[len(by) :]])])


def zipped_divide(layout: Layout, tiler: Any) -> Layout:
    """((tile, tile, ...), (rest, rest, ...))."""
    return _unzipped(logical_divide, layout, tiler)


def tiled_divide(layout: Layout, tiler: Any) -> Layout:
    """((tile, tile, ...), rest, rest, ...)."""
    tile, rest = zipped_divide(layout, tiler).modes
    return Layout.joined([tile, *rest.modes])


def flat_divide(layout: Layout, tiler: Any) -> Layout:
    """(tile, tile, ..., rest, rest, ...)."""
    tile, rest = zipped_divide(layout, tiler).modes
    return Layout.joined([*tile.modes, *rest.modes])


def zipped_product(block: Layout, tiler: Any) -> Layout:
    """((block, block, ...), (tile, tile, ...))."""
    return _unzipped(logical_product, block, tiler)


def tiled_product(block: Layout, tiler: Any) -> Layout:
    """((block, block, ...), tile, tile, ...)."""
    first, rest = zipped_product(block, tiler).modes
    return Layout.joined([first, *rest.modes])


def _padded(layout: Layout, modes: int) -> Layout:
    return Layout.joined([*layout.modes, *[Layout(1, 0)] * (modes - len(layout.modes))])


def blocked_product(block: Layout, tiler: Layout, *, raked: bool = False) -> Layout:
    """A block repeated over a tiler, mode by mode; `raked`: the blocks interleaved."""
    modes = max(len(block.modes), len(tiler.modes))
    own, tiles = logical_product(_padded(block, modes), _padded(tiler, modes)).modes
    first, second = (tiles, own) if raked else (own, tiles)
    return Layout.joined(Layout.joined(both) for both in zip(first.modes, second.modes, strict=True))


def tile_to_shape(block: Layout, shape: Nested, order: Nested | None = None) -> Layout:
    """A block repeated up to a shape; `order`: along which mode first."""
    whole = tuple(product(one) for one in (shape if isinstance(shape, tuple) else (shape,)))
    padded = _padded(block, len(whole))
    if len(padded.modes) > len(whole):
        raise UndividedError("a block of more modes than the shape")
    own = tuple(m.size for m in padded.modes)
    if any(isinstance(a, int) and isinstance(b, int) and a % b for a, b in zip(whole, own, strict=True)):
        raise UndividedError(f"{_written(own)} does not divide {_written(whole)}")
    times_ = tuple(ceil_div(a, b) for a, b in zip(whole, own, strict=True))
    strides = compact(times_) if order is None else ordered(times_, order)
    return blocked_product(padded, Layout(times_, strides))


# ---- swizzles -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Swizzle:
    """`bits` bits that lie `shift` above those from bit `base` on are added to these without carrying."""

    bits: int
    base: int
    shift: int

    def __call__(self, index: int) -> int:
        mask = ((1 << self.bits) - 1) << (self.base + max(self.shift, 0))
        moved = (index & mask) >> self.shift if self.shift >= 0 else (index & mask) << -self.shift
        return index ^ moved

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


__all__ = [
    "Layout", "LayoutError", "Nested", "Swizzle", "UndividedError", "UntoldError", "blocked_product", "coalesced", "compact",
    "complement", "composition", "depth", "filtered", "flat_divide", "flatten", "left_inverse", "logical_divide",
    "logical_product", "mapped", "mode", "ordered", "place", "product", "rank", "right_inverse", "rounded_up", "tile_to_shape",
    "tiled_divide", "tiled_product", "times", "zipped_divide", "zipped_product",
]  # fmt: skip
