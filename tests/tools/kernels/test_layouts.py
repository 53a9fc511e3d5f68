"""The algebra of layouts: held against pycute, CuTe's own Python package, and against what each operation means, place by place."""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kernel_sources import kernel_sources
from opscope_tools.kernels.values import layouts
from opscope_tools.kernels.values.expressions import leaf
from opscope_tools.kernels.values.layouts import Layout, LayoutError, Swizzle, UndividedError, UntoldError
from opscope_tools.kernels.values.notation import evaluate

DRAWN = 4_000
#: places up to which a layout is gone through one by one
FEW = 4096


@pytest.fixture(scope="module")
def pycute() -> Iterator[Any]:
    root = str(kernel_sources()["nvidia-cutlass"])
    sys.path.insert(0, root)
    try:
        yield importlib.import_module("pycute")
    finally:
        sys.path.remove(root)


def theirs(pycute: Any, layout: Any) -> Any:
    """The same layout as pycute's."""
    if isinstance(layout, tuple):
        return tuple(theirs(pycute, one) for one in layout)
    return pycute.Layout(layout.shape, layout.stride) if isinstance(layout, Layout) else layout


def shaped(draw: random.Random, modes: int, deep: int = 2) -> Any:
    if deep and modes > 1 and draw.random() < 0.3:
        cut = draw.randrange(1, modes)
        return shaped(draw, cut, deep - 1), *_listed(shaped(draw, modes - cut, deep - 1))
    sizes = tuple(draw.choice((1, 2, 2, 3, 4, 4, 5, 6, 8, 16)) for _ in range(modes))
    return sizes if modes > 1 or draw.random() < 0.3 else sizes[0]


def _listed(nested: Any) -> tuple[Any, ...]:
    return nested if isinstance(nested, tuple) else (nested,)


def layout(draw: random.Random, modes: int = 4) -> Layout:
    """Without gaps in any order, with gaps, with modes that stand still, or with any strides at all."""
    shape = shaped(draw, draw.randint(1, modes))
    flat = layouts.flatten(shape)
    order = draw.sample(range(len(flat)), len(flat))
    kind = draw.random()
    strides, current = [0] * len(flat), draw.choice((1, 1, 1, 2))
    for index in order if kind < 0.5 else range(len(flat)):
        strides[index] = current
        current *= flat[index] * (draw.choice((1, 1, 2, 3)) if kind > 0.3 else 1)
    if kind > 0.8:
        strides = [draw.choice((d, 0, 1, draw.randrange(1, 20))) for d in strides]
    return Layout(shape, _like(shape, iter(strides)))


def _like(shape: Any, values: Iterator[int]) -> Any:
    return tuple(_like(one, values) for one in shape) if isinstance(shape, tuple) else next(values)


def told(made: Callable[..., Any], *given: Any) -> Any:
    try:
        return made(*given)
    except (LayoutError, AssertionError, ZeroDivisionError, IndexError):
        return None


def same(ours: Layout, other: Any) -> bool:
    """Letter for letter, or as the same function of as many coordinates."""
    if (ours.shape, ours.stride) == (other.shape, other.stride):
        return True
    size = ours.size
    return size == other.size() and size <= FEW and all(ours(i) == other(i) for i in range(size))


def layouts_of(found: Any) -> list[Layout]:
    return [Layout(s, d) for s, d in zip(found.shape, found.stride, strict=True)]


def is_composed(outer: Layout, inner: Layout, found: Any) -> bool:
    """Mode by mode, place by place, of those that the outer one has."""
    if isinstance(inner.shape, tuple):
        return all(is_composed(outer, *both) for both in zip(inner.modes, layouts_of(found), strict=True))
    return all(found(i) == outer(at) for i in range(inner.size) if (at := inner(i)) < outer.size)


def test_layouts_mean_what_cutes_own_package_says_they_mean(pycute: Any) -> None:
    draw = random.Random(1)
    asked = {"letter": 0, "refused": 0, "theirs wrong": 0}
    for _ in range(DRAWN):
        a, b = layout(draw), layout(draw, 3)
        size = draw.choice((1, 6, 24, 64, 96))
        for name, ours, given in (
            ("coalesce", layouts.coalesced, (a,)), ("filter", layouts.filtered, (a,)), ("complement", layouts.complement, (a, size)),
            ("right_inverse", layouts.right_inverse, (a,)), ("left_inverse", layouts.left_inverse, (a,)),
            ("composition", layouts.composition, (a, b)), ("logical_divide", layouts.logical_divide, (a, b)),
            ("logical_product", layouts.logical_product, (b, a)), ("zipped_divide", layouts.zipped_divide, (a, b)),
        ):  # fmt: skip
            found, other = told(ours, *given), told(getattr(pycute, name), *theirs(pycute, given))
            if found is None:
                asked["refused"] += 1
                if other is not None and name == "composition" and b.size <= FEW:
                    assert other.size() != b.size or not is_composed(a, b, other), (a, b)  # there is no composition
                    asked["theirs wrong"] += 1
                continue
            if other is None or not same(found, other):
                right = _holds(name, given, found)
                assert right, (name, *map(str, given), str(found), str(other))
                continue
            asked["letter"] += (found.shape, found.stride) == (other.shape, other.stride)
    assert asked["letter"] > 6 * DRAWN
    assert asked["refused"] < DRAWN * 9 / 3, asked
    assert asked["theirs wrong"]


def _holds(name: str, given: tuple[Any, ...], found: Layout) -> bool:
    """Whether a result is what the operation means; of those alone in which pycute is silent or says otherwise."""
    if name == "composition":
        return is_composed(given[0], given[1], found)
    if name in {
        "right_inverse",
        "left_inverse",
    }:  # of places that are reached twice CuTe's two packages say different things
        (a,) = given
        twice = len({a(i) for i in range(min(a.size, FEW))}) < min(a.size, FEW)
        return twice and (name == "left_inverse" or all(a(found(i)) == i for i in range(found.size)))
    if name in {"logical_divide", "zipped_divide"}:
        outer, tile = given
        return bool(found.modes[0].size == tile.size) and is_composed(outer, tile, found.modes[0])
    if name == "logical_product":
        block, tile = given
        places = layouts.complement(block, block.size * tile.cosize)
        return is_composed(places, tile, found.modes[1])
    return False


def test_a_composition_is_one_function_after_the_other() -> None:
    draw, told_ = random.Random(2), 0
    for _ in range(DRAWN // 4):
        a, b = layout(draw), layout(draw, 3)
        found = told(layouts.composition, a, b)
        if found is not None and b.size <= FEW:
            assert is_composed(a, b, found), (str(a), str(b), str(found))
            assert layouts.rank(found.shape) == layouts.rank(b.shape) or not isinstance(b.shape, tuple)
            told_ += 1
    assert told_ > DRAWN / 12


def test_a_complement_reaches_what_is_left_out_once_each_and_in_order() -> None:
    draw, told_ = random.Random(3), 0
    for _ in range(DRAWN // 4):
        a, within = layout(draw, 3), draw.choice((1, 12, 64, 100))
        rest = told(layouts.complement, a, within)
        if rest is None or a.size > 256 or rest.size > FEW // 16:
            continue
        own = {a(i) for i in range(a.size)}
        others = [rest(i) for i in range(rest.size)]
        assert others == sorted(set(others)), (str(a), str(rest))
        assert not own & set(others) - {0}
        assert rest.size * layouts.filtered(a).size >= within
        told_ += 1
    assert told_ > DRAWN / 10


def test_inverses_lead_back() -> None:
    draw = random.Random(4)
    for _ in range(DRAWN // 4):
        a = layout(draw)
        back = layouts.right_inverse(a)
        assert all(a(back(i)) == i for i in range(min(back.size, FEW)))
        reached = [a(i) for i in range(min(a.size, FEW))]
        left = told(layouts.left_inverse, a)
        if left is not None and a.size <= FEW and len(set(reached)) == len(reached):
            assert all(left(place) == i for i, place in enumerate(reached)), (str(a), str(left))


def test_tiles_of_a_shape_cover_it_once() -> None:
    draw = random.Random(5)
    for _ in range(2_000):
        block = Layout(
            shape := (draw.choice((1, 2, 4, 8)), draw.choice((1, 2, 8))),
            layouts.compact(shape, right=draw.random() < 0.5),
        )
        times = draw.choice((1, 2, 3)), draw.choice((1, 4))
        order = draw.choice((None, (2, 1), (1, 2)))
        whole = layouts.tile_to_shape(block, tuple(s * t for s, t in zip(shape, times, strict=True)), order)
        assert sorted(whole(i) for i in range(whole.size)) == list(range(whole.size))
        assert all(
            whole((i, j)) == block((i, j)) for i in range(shape[0]) for j in range(shape[1])
        )  # the first one stands first
        assert tuple(m.size for m in whole.modes) == tuple(s * t for s, t in zip(shape, times, strict=True))
        for raked in (False, True):
            made = layouts.blocked_product(block, Layout.of(times), raked=raked)
            assert sorted(made(i) for i in range(made.size)) == list(range(made.size))
    with pytest.raises(UndividedError):
        layouts.tile_to_shape(Layout.of((8, 8)), (12, 8))


def test_swizzles_are_cutes(pycute: Any) -> None:
    for bits, base, shift in ((1, 4, 3), (2, 4, 3), (3, 4, 3), (3, 3, 3), (2, 3, 3), (0, 4, 3), (2, 0, -2), (3, 2, -3)):
        ours, other = Swizzle(bits, base, shift), pycute.Swizzle(bits, base, shift)
        assert [ours(i) for i in range(4096)] == [other(i) for i in range(4096)]


def test_sizes_that_a_run_tells_stay_in_the_formula_and_hold_at_every_point() -> None:
    m, k, ld = leaf("m"), leaf("k"), leaf("ld")
    tiles = layouts.zipped_divide(Layout((m, k), (1, ld)), (128, 8))
    assert str(tiles) == "((128,8),(cdiv({m}, 128),cdiv({k}, 8))):((1,{ld}),(128,8 * {ld}))"
    draw = random.Random(6)
    for _ in range(200):
        point = {"m": draw.randrange(1, 2000), "k": draw.randrange(1, 200), "ld": draw.randrange(2000, 4000)}
        exact = layouts.zipped_divide(Layout((point["m"], point["k"]), (1, point["ld"])), (128, 8))
        at = layouts.mapped(
            lambda size, point=point: evaluate(size.text, point) if not isinstance(size, int) else size, tiles.shape
        )
        assert at == exact.shape
    with pytest.raises(UntoldError):
        layouts.composition(Layout((m, 4), (1, ld)), Layout(8, 2))
