"""Formulas come back from their values at a few points, wrong ones do not, and what a sample leaves open is said.

The sizes are computed here by plain Python functions of the variables; a fit is held against them at hundreds of points
that it never saw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from opscope_schemas.formula import Formula, holds
from opscope_tools.trace.fitting import Fit, Fitter, spread
from opscope_tools.trace.worker.fitted import _Fit

Point = dict[str, int]
Size = Callable[[SimpleNamespace], int]

BASE = {
    "batch_size": 3, "seq_len": 11, "cache_len": 17, "num_heads": 8, "num_kv_heads": 4, "head_dim": 16, "hidden_size": 160,
    "intermediate_size": 210, "image_height": 96, "image_width": 128, "patch_size": 8, "num_frames": 1500,
}  # fmt: skip
FREE = dict.fromkeys(BASE, 1)
FRESH = [point for seed in range(100, 120) for point in spread(BASE, steps=FREE, count=10, seed=seed)]


def up(a: int, b: int) -> int:
    return -(-a // b)


#: found from fourteen points that vary everything at once
FOUND_AT_ONCE: dict[str, Size] = {
    "7": lambda _: 7,
    "s": lambda v: v.seq_len,
    "p": lambda v: v.patch_size,
    "3h": lambda v: 3 * v.hidden_size,
    "bs": lambda v: v.batch_size * v.seq_len,
    "s^2": lambda v: v.seq_len**2,
    "2bs(nd)": lambda v: 2 * v.batch_size * v.seq_len * v.num_heads * v.head_dim,
    "bns(s)": lambda v: v.batch_size * v.num_heads * v.seq_len**2,
    "nd": lambda v: v.num_heads * v.head_dim,
    "i//n": lambda v: v.intermediate_size // v.num_heads,
    "b(i//n)": lambda v: v.batch_size * (v.intermediate_size // v.num_heads),
    "i*d//n": lambda v: (v.intermediate_size // v.num_heads) * v.head_dim * 2,
    "H//P": lambda v: v.image_height // v.patch_size,
    "(H//P)(W//P)": lambda v: (v.image_height // v.patch_size) * (v.image_width // v.patch_size),
    "(H//P)^2": lambda v: (v.image_height // v.patch_size) ** 2,
    "patches and a class token": lambda v: (v.image_height // v.patch_size) * (v.image_width // v.patch_size) + 1,
    "patches of a batch": lambda v: (
        v.batch_size * ((v.image_height // v.patch_size) * (v.image_width // v.patch_size) + 1)
    ),
    "2(H//P)-1": lambda v: 2 * (v.image_height // v.patch_size) - 1,
    "text and patches": lambda v: v.seq_len + (v.image_height // v.patch_size) * (v.image_width // v.patch_size),
    "H%P": lambda v: v.image_height % v.patch_size,
    "s+c": lambda v: v.seq_len + v.cache_len,
    "s-1": lambda v: v.seq_len - 1,
    "s-600": lambda v: v.seq_len - 600,
    "2h+5": lambda v: 2 * v.hidden_size + 5,
    "3c-1": lambda v: 3 * v.cache_len - 1,
    "bs+1": lambda v: v.batch_size * v.seq_len + 1,
    "b(s+c)": lambda v: v.batch_size * (v.seq_len + v.cache_len),
    "b(s-1)": lambda v: v.batch_size * (v.seq_len - 1),
    "h-d": lambda v: v.hidden_size - v.head_dim,
    "qkv": lambda v: 2 * v.num_kv_heads * v.head_dim + v.num_heads * v.head_dim,
    "bns(s+c)": lambda v: v.batch_size * v.num_heads * v.seq_len * (v.seq_len + v.cache_len),
    "n+k+d": lambda v: v.num_heads + v.num_kv_heads + v.head_dim,
    "2nd+i+4s": lambda v: 2 * v.num_heads * v.head_dim + v.intermediate_size + 4 * v.seq_len,
    "bn+2sc+3d": lambda v: v.batch_size * v.num_heads + 2 * v.seq_len * v.cache_len + 3 * v.head_dim,
    "b(2s+c+1)": lambda v: v.batch_size * (2 * v.seq_len + v.cache_len + 1),
    "(f+1)//2": lambda v: (v.num_frames + 1) // 2,
    "(f-1)//2": lambda v: (v.num_frames - 1) // 2,
    "two strided convolutions": lambda v: ((v.num_frames + 1) // 2 + 1) // 2,
    "three strided convolutions": lambda v: (((v.num_frames - 3) // 2 + 1 - 3) // 2 + 1 - 3) // 2 + 1,
    "f//160+1": lambda v: v.num_frames // 160 + 1,
    "f//5-1": lambda v: (v.num_frames - 10) // 5 + 1,
    "spectrogram": lambda v: (v.num_frames - 400) // 160 + 1,
    "b((f+1)//2)": lambda v: v.batch_size * ((v.num_frames + 1) // 2),
    "h((f-1)//2+1)": lambda v: v.hidden_size * ((v.num_frames - 1) // 2 + 1),
    "(s+c)//2": lambda v: (v.seq_len + v.cache_len) // 2,
    "(H-P)//10+1": lambda v: (v.image_height - v.patch_size) // 10 + 1,
    "h//4": lambda v: v.hidden_size // 4,
    "3h//2": lambda v: 3 * v.hidden_size // 2,
    "ceil(s/4)*4": lambda v: up(v.seq_len, 4) * 4,
    "ceil(s/P)": lambda v: up(v.seq_len, v.patch_size),
    "ceil(H/P)*P": lambda v: up(v.image_height, v.patch_size) * v.patch_size,
    "b*ceil(H/P)*P": lambda v: v.batch_size * up(v.image_height, v.patch_size) * v.patch_size,
    "padding": lambda v: up(v.image_height, v.patch_size) * v.patch_size - v.image_height,
    "min(s,c)": lambda v: min(v.seq_len, v.cache_len),
    "max(s,c)": lambda v: max(v.seq_len, v.cache_len),
    "b*min(s,c)": lambda v: v.batch_size * min(v.seq_len, v.cache_len),
    "min(s,12)": lambda v: min(v.seq_len, 12),
    "max(d,14)": lambda v: max(v.head_dim, 14),
    "min(sk,bc)": lambda v: min(v.seq_len * v.num_kv_heads, v.batch_size * v.cache_len),
    "max(s+c,n+d)": lambda v: max(v.seq_len + v.cache_len, v.num_heads + v.head_dim),
}

#: found where pairs of points tell which few variables count
FOUND_BY_PAIRS: dict[str, Size] = {
    "merged patches": lambda v: v.image_height // (2 * v.patch_size),
    "both sides halved": lambda v: ((v.image_height + 1) // 2) * ((v.image_width + 1) // 2),
    "both sides halved, of a batch": lambda v: v.batch_size * ((v.image_height + 1) // 2) * ((v.image_width + 1) // 2),
    "i//(nk)": lambda v: v.intermediate_size // (v.num_heads * v.batch_size),
    "windows of a variable stride": lambda v: (v.image_height - v.head_dim) // v.patch_size + 1,
    "b(s+patches)": lambda v: (
        v.batch_size * (v.seq_len + (v.image_height // v.patch_size) * (v.image_width // v.patch_size))
    ),
}

#: outside the family
FOREIGN: dict[str, Size] = {
    "isqrt": lambda v: math.isqrt(v.num_frames * v.hidden_size),
    "gcd": lambda v: math.gcd(v.num_frames, v.hidden_size),
    "xor": lambda v: v.seq_len ^ v.cache_len,
    "2**s": lambda v: 2 ** (v.seq_len % 7),
    "a rounded cube": lambda v: v.hidden_size**3 // v.num_frames + v.seq_len,
    "five terms": lambda v: (
        v.seq_len * v.cache_len
        + 2 * v.num_heads * v.head_dim
        + 3 * v.hidden_size
        + 5 * v.num_frames
        + 7 * v.batch_size**2
    ),
    "median": lambda v: sorted((v.seq_len, v.cache_len, v.head_dim))[1],
}


def measured(size: Size, points: list[Point]) -> list[int]:
    return [size(SimpleNamespace(**p)) for p in points]


def fitter(seed: int, *, with_pairs: bool) -> tuple[list[Point], Fitter]:
    points = spread(BASE, steps=FREE, count=14, seed=seed)
    if not with_pairs:
        return points, Fitter(points)
    doubled = [points[0] | {name: 2 * value + 1} for name, value in points[0].items()]
    points = [points[0], *doubled, *points[1:]]
    return points, Fitter(points, pairs={name: (0, i) for i, name in enumerate(BASE, 1)})


def assert_is(fit: Fit | None, size: Size, points: list[Point]) -> None:
    """The formula has the size at every point that meets its conditions, and most points meet them."""
    assert fit is not None
    met = [p for p in points if all(holds(c, p) for c in fit.conditions)]
    assert len(met) > 0.6 * len(points), fit
    assert [fit.formula.evaluate(p) for p in met] == measured(size, met), fit


# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize("with_pairs", [False, True], ids=["at once", "pairs"])
@pytest.mark.parametrize("name", FOUND_AT_ONCE)
def test_formula_of_the_family_comes_back_from_its_values(name: str, with_pairs: bool) -> None:
    points, found = fitter(1, with_pairs=with_pairs)
    size = FOUND_AT_ONCE[name]
    assert_is(found.fit(measured(size, points)), size, FRESH)


@pytest.mark.parametrize("name", FOUND_BY_PAIRS)
def test_more_comes_back_where_pairs_exclude_variables(name: str) -> None:
    points, found = fitter(1, with_pairs=True)
    size = FOUND_BY_PAIRS[name]
    assert_is(found.fit(measured(size, points)), size, FRESH)


@pytest.mark.parametrize("with_pairs", [False, True], ids=["at once", "pairs"])
def test_hardly_a_sample_misses_a_formula_and_none_invents_one(with_pairs: bool) -> None:
    missed, tried = [], 0
    for seed in range(2, 6):
        points, found = fitter(seed, with_pairs=with_pairs)
        for name, size in (FOUND_AT_ONCE | (FOUND_BY_PAIRS if with_pairs else {})).items():
            tried += 1
            fit = found.fit(measured(size, points))
            if fit is None:
                missed.append((seed, name))
            else:
                assert_is(fit, size, FRESH[::2])
    assert len(missed) < 0.03 * tried, missed


def random_size(source: random.Random) -> Size:
    """A sum of one to three products of one or two variables, perhaps times another, with small coefficients."""
    terms = [(source.choice((1, 1, 2, 3, 4)), source.choices(list(BASE), k=source.choice((1, 2)))) for _ in range(source.choice((1, 2, 2, 3)))]  # fmt: skip
    factor = source.choice([None, None, *BASE])

    def size(v: SimpleNamespace) -> int:
        total = sum(c * math.prod(int(getattr(v, n)) for n in names) for c, names in terms)
        return total * int(getattr(v, factor) if factor else 1)

    return size


def test_random_sums_of_products_come_back() -> None:
    points, found = fitter(11, with_pairs=True)
    source = random.Random(5)
    for _ in range(150):
        size = random_size(source)
        assert_is(found.fit(measured(size, points)), size, FRESH)


# ---------------------------------------------------------------- how it is written


def written(size: Size, *, steps: Point | None = None, with_pairs: bool = False) -> tuple[str, tuple[str, ...]]:
    points = spread(BASE, steps=FREE | (steps or {}), count=14, seed=1)
    if with_pairs:
        points, found = fitter(1, with_pairs=True)
    else:
        found = Fitter(points)
    fit = found.fit(measured(size, points))
    assert fit is not None
    return str(fit.formula), fit.conditions


def test_exact_quotient_carries_its_condition_and_another_does_not() -> None:
    even = {"hidden_size": 8, "patch_size": 0, "image_height": 8, "image_width": 8}
    assert written(lambda v: v.hidden_size // 4, steps=even) == ("({hidden_size} // 4)", ("{hidden_size} % 4 == 0",))
    assert written(lambda v: v.hidden_size // 4) == ("({hidden_size} // 4)", ())
    grid = written(lambda v: (v.image_height // v.patch_size) * (v.image_width // v.patch_size))
    assert grid == ("({image_height} // {patch_size}) * ({image_width} // {patch_size})", ())


def test_grid_of_exact_patches_keeps_a_division_a_side() -> None:
    points = spread(BASE, steps=FREE, count=14, seed=3)
    sides = [(p["image_height"], p["image_width"]) for p in points]
    for point, (rows, columns) in zip(points, sides, strict=True):
        point.update(image_height=rows * point["patch_size"], image_width=columns * point["patch_size"])
    fit = Fitter(points).fit([rows * columns for rows, columns in sides])
    assert fit is not None
    assert str(fit.formula) == "({image_height} // {patch_size}) * ({image_width} // {patch_size})"
    assert fit.conditions == ("{image_height} % {patch_size} == 0", "{image_width} % {patch_size} == 0")


def test_condition_that_only_the_choosing_points_meet_is_dropped() -> None:
    points = [{"seq_len": s} for s in (8, 20, 12, 40, 36, 28, 64, 52, 10, 23)]
    fit = Fitter(points, held_out=2).fit([p["seq_len"] // 4 for p in points])
    assert fit is not None
    assert fit.conditions == ()


def test_simple_forms_read_simply() -> None:
    assert written(lambda v: v.seq_len + v.cache_len)[0] == "{seq_len} + {cache_len}"
    assert written(lambda v: (v.num_frames + 1) // 2)[0] == "ceil({num_frames} / 2)"
    assert written(lambda v: ((v.num_frames + 1) // 2 + 1) // 2)[0] == "ceil({num_frames} / 4)"
    assert written(lambda v: (v.num_frames - 5) // 10)[0] == "(({num_frames} - 5) // 10)"
    assert written(lambda v: 2 * v.batch_size * v.hidden_size)[0] == "2 * {batch_size} * {hidden_size}"


def test_standard_variable_is_preferred_to_its_equal() -> None:
    points = [{"zeta": s, "alpha": s, "hidden_size": s, "batch_size": b} for s, b in zip(range(20, 34), range(3, 17), strict=True)]  # fmt: skip
    fit = Fitter(points).fit([2 * p["zeta"] for p in points])
    assert fit is not None
    assert str(fit.formula) == "2 * {hidden_size}"


def test_open_offset_is_limited_to_sizes_where_it_does_not_matter() -> None:
    text, conditions = written(lambda v: (v.num_frames - 400) // 160 + 1, with_pairs=True)
    assert text == "(({num_frames} - 240) // 160)"
    assert len(conditions) == 1
    fails = [f for f in range(400, 4000) if not holds(conditions[0], {"num_frames": f})]
    assert fails, "the sample cannot have seen every remainder of 160"


def test_sample_of_odd_sizes_says_nothing_about_even_ones() -> None:
    odd = [{"seq_len": 2 * i + 1} for i in range(3, 17)]
    fit = Fitter(odd).fit([(p["seq_len"] + 1) // 2 for p in odd])
    assert fit is not None
    assert fit.conditions == ("({seq_len} + 1) % 2 == 0",)


def test_rounding_without_a_multiple_in_the_sample_leaves_multiples_out() -> None:
    points = [{"seq_len": 100 + 7 * i, "patch_size": 8 + i % 3} for i in range(30)]
    points = [p for p in points if p["seq_len"] % p["patch_size"]]
    fit = Fitter(points).fit([up(p["seq_len"], p["patch_size"]) for p in points])
    assert fit is not None
    assert (str(fit.formula), fit.conditions) == ("ceil({seq_len} / {patch_size})", ("{seq_len} % {patch_size} != 0",))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("with_pairs", [False, True], ids=["at once", "pairs"])
@pytest.mark.parametrize("name", FOREIGN)
def test_size_outside_the_family_is_none(name: str, with_pairs: bool) -> None:
    points, found = fitter(4, with_pairs=with_pairs)
    assert found.fit(measured(FOREIGN[name], points)) is None


@pytest.mark.parametrize("largest", [3, 40, 3000, 10**9])
def test_noise_is_none(largest: int) -> None:
    points, found = fitter(5, with_pairs=False)
    source = random.Random(largest)
    for _ in range(40):
        assert found.fit([source.randint(1, largest) for _ in points]) is None


def test_one_wrong_value_anywhere_is_none() -> None:
    points, found = fitter(6, with_pairs=False)
    values = measured(FOUND_AT_ONCE["b(s+c)"], points)
    for i in range(len(points)):
        assert found.fit([*values[:i], values[i] + 1, *values[i + 1 :]]) is None


def test_points_held_out_reject_what_the_others_chose() -> None:
    """A sliding window that only a point held out reaches: the choosing points say {seq_len}, and none is returned."""
    points = [{"seq_len": s, "batch_size": b} for b, s in enumerate((4, 9, 11, 7, 5, 12, 8, 6, 10, 40), 2)]
    values = [min(p["seq_len"], 32) for p in points]
    assert Fitter(points, held_out=1).fit(values) is None
    chosen = Fitter(points[:-1], held_out=1).fit(values[:-1])
    assert chosen is not None
    assert str(chosen.formula) == "{seq_len}"


@pytest.mark.parametrize(("count", "accepted"), [(4, False), (5, False), (6, True), (9, True)])
def test_formula_with_too_many_numbers_for_its_points_is_none(count: int, accepted: bool) -> None:
    """2s + 3c + 7 has three numbers, so it takes two more points than that, and one that checks."""
    points = [{"seq_len": 5 + 3 * i + i * i, "cache_len": 40 - 4 * i} for i in range(count)]
    fit = Fitter(points, held_out=1).fit([2 * p["seq_len"] + 3 * p["cache_len"] + 7 for p in points])
    assert (fit is not None) is accepted


def test_points_that_a_formula_cannot_tell_apart_are_one_point_to_it() -> None:
    """Ten points, but three lengths: any three numbers over the length would have a line and a bend through them."""
    points = [{"seq_len": 5 + i % 3, "batch_size": 2 + i} for i in range(12)]
    assert Fitter(points).fit([2 * p["seq_len"] + 9 for p in points]) is None
    varied = [{"seq_len": 5 + i, "batch_size": 2 + i * i} for i in range(12)]
    assert Fitter(varied).fit([2 * p["seq_len"] + 9 for p in varied]) is not None


def test_malformed_samples_raise() -> None:
    points = spread(BASE, steps=FREE, count=6, seed=1)
    with pytest.raises(ValueError, match="5 values for 6 points"):
        Fitter(points).fit([1] * 5)
    with pytest.raises(ValueError, match="same variables"):
        Fitter([*points, {"seq_len": 3}])
    with pytest.raises(ValueError, match="held out"):
        Fitter(points, held_out=6)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_next_to_no_points_settle_next_to_nothing(count: int) -> None:
    points = spread(BASE, steps=FREE, count=count, seed=2)
    found = Fitter(points, held_out=1)
    assert found.fit([p["seq_len"] * 2 + p["hidden_size"] * 3 + 1 for p in points]) is None
    assert (found.fit([7] * count) is not None) is (count > 3)


def test_division_by_zero_at_a_point_held_out_is_none() -> None:
    points = [{"hidden_size": 60 + 7 * i, "num_heads": 3 + i % 5} for i in range(12)] + [
        {"hidden_size": 64, "num_heads": 0}
    ]
    values = [p["hidden_size"] // p["num_heads"] if p["num_heads"] else 0 for p in points]
    assert Fitter(points, held_out=1).fit(values) is None
    assert Fitter(points[:-1], held_out=1).fit(values[:-1]) is not None


# ---------------------------------------------------------------- points


def test_points_keep_remainders_vary_everything_and_hardly_coincide() -> None:
    steps = {"image_height": 8, "image_width": 16, "hidden_size": 32, "num_heads": 0}
    points = spread(BASE, steps=steps, count=14, seed=3)
    assert len({tuple(p.items()) for p in points}) == 14
    for name, base in BASE.items():
        step = steps.get(name, 1)
        values = [p[name] for p in points]
        assert all(v >= 1 and ((v - base) % step == 0 if step else v == base) for v in values)
        assert len(set(values)) == (14 if step else 1)
    for p in spread(BASE, steps=FREE, count=14, seed=3):
        assert len(set(p.values())) == len(p)
    assert points == spread(BASE, steps=steps, count=14, seed=3) != spread(BASE, steps=steps, count=14, seed=4)


def test_what_operators_read_is_fitted_where_they_read_the_same_at_every_point() -> None:
    """Else nothing is said of it for the whole trace: fusing rests on all of its reads."""
    points = [{"seq_len": n, "cache_len": 3 * n + n % 2} for n in range(2, 10)]
    fit = _Fit([], Fitter(points, held_out=2))
    rows = [((4, 1, Formula.const(6 * p["cache_len"])), (7, 2, Formula.const(2 * p["seq_len"]))) for p in points]
    assert [(t, v, str(size)) for t, v, size in fit._views(rows)] == [
        (4, 1, "6 * {cache_len}"),
        (7, 2, "2 * {seq_len}"),
    ]
    assert fit.read_alike
    assert fit._views([*rows[:-1], rows[-1][:1]]) == ()
    assert not fit.read_alike
    assert fit._views(rows) == ()
