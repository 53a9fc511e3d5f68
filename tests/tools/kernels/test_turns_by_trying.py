"""Turns of a loop by formula against the same turns gone through: random bounds, steps and tests, at random sizes, upwards and downwards."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import pytest
from opscope_tools.kernels.values.expressions import Size, call, render
from opscope_tools.kernels.values.notation import evaluate, read_size
from opscope_tools.kernels.values.trips import at_least_none, trip_count
from opscope_tools.kernels.values.turns import Counter, Turns

STARTS = "0 0 2 {n} {n}-1 {m} -3 {n}+5".split()
STEPS = "1 1 3 B -1 -2 -B {s}".split()
BOUNDS = "{n} {n} 7 {n}-4 {n}*2 {m}+3 0 -1 {n}-{m} 2*B".split()
SIDES = (
    "{k}", "{k}", "{k} + 1", "2 * {k}", "{k} + B", "{k} * B", "-{k}", "{n} - {k}", "5 - {k}", "{k} - {m}", "{k} * {n}",
    "{k} % 2", "({k} + 1) % 3", "(40 - {k}) % 4", "{k} // 2", "3", "1", "0", "-2", "{n}", "{n} - 1", "{m}", "{n} * B", "{n} // 2",
)  # fmt: skip
COMPARED = "< <= > >= == !=".split()
POINTS = 300


def drawn(dice: random.Random, deep: int = 2) -> str:
    kind = dice.random() if deep else 0
    if kind < 0.5:
        return f"({dice.choice(SIDES)} {dice.choice(COMPARED)} {dice.choice(SIDES)})"
    if kind < 0.6:
        return f"(not {drawn(dice, deep - 1)})"
    return f"({drawn(dice, deep - 1)} {dice.choice(['and', 'or'])} {drawn(dice, deep - 1)})"


def counter(dice: random.Random) -> tuple[Counter, list[Size]]:
    bounds = [read_size(dice.choice(of)) for of in (STARTS, BOUNDS, STEPS)]
    trips = at_least_none(trip_count(bounds))
    if dice.random() < 0.2:  # a second bound
        trips = call("min", trips, read_size("{s} + 3"))
    at_once: Size = dice.choice([1, 1, 2, read_size("{s}")])
    return Counter("k", bounds[0], bounds[2], trips, at_once=at_once), bounds


def numbers(size: Size, values: Mapping[str, int]) -> object:
    return evaluate(render(size), values)


def held(test: Size, counters: Sequence[int], sizes: Mapping[str, int]) -> list[bool]:
    text = render(test).replace("{", "").replace("}", "")
    return [bool(eval(text, {**sizes, "k": k})) for k in counters]


@pytest.mark.parametrize("seed", range(10))
def test_a_formula_of_turns_is_what_trying_each_gives(seed: int) -> None:
    dice, told, ends = random.Random(seed), 0, 0
    for _ in range(POINTS):
        (loop, bounds), test, inner = counter(dice), read_size(drawn(dice)), read_size(drawn(dice, 0))
        found = Turns(loop).split(test)
        if found is None:
            continue
        told += 1
        within = [side.split(inner) for side in found]
        ended = Turns(loop).up_to(found[0])
        ends += ended is not None
        for _ in range(4):
            sizes = {
                "n": dice.randint(0, 14),
                "m": dice.randint(0, 9),
                "B": dice.randint(1, 5),
                "s": dice.randint(1, 4),
            }
            values = list(range(*(int(evaluate(render(bound), sizes) or 0) for bound in bounds)))
            values = values[: sizes["s"] + 3] if "{s} + 3" in render(loop.trips) else values
            met = held(test, values, sizes)
            where = (render(loop.trips), [render(b) for b in bounds], render(test), render(inner), sizes)
            assert numbers(loop.trips, sizes) == len(values), where
            assert [numbers(side.count, sizes) for side in found] == [sum(met), len(met) - sum(met)], where
            for holds, parts in zip((True, False), within, strict=True):
                both = [one for one, side in zip(held(inner, values, sizes), met, strict=True) if side is holds]
                if parts is not None:
                    assert [numbers(p.count, sizes) for p in parts] == [sum(both), len(both) - sum(both)], where
            if ended is not None:
                together = int(str(numbers(loop.at_once, sizes)))
                left = [next((t for t in range(one, len(met), together) if met[t]), None) for one in range(together)]
                every = sum(len(range(one, len(met), together)) if t is None else (t - one) // together + 1
                            for one, t in enumerate(left))  # fmt: skip
                leaving = sum(t is not None for t in left)
                assert [numbers(part.count, sizes) for part in ended] == [every, leaving, every - leaving], where
    assert told > POINTS / 4
    assert ends > POINTS / 12


@pytest.mark.parametrize(
    ("bounds", "test", "count"),
    [
        (["{n}"], "{k} < {m} and {k} < 10", "min({n}, {m}, 10)"), (["{n}"], "{k} + {m} < {n}", "max({n} - {m}, 0)"), (["{n}"], "{k} + {m} >= {n}", "min({n}, {m})"), (["{n}"], "{k} + 1 < {n}", "max({n} - 1, 0)"), (["{n}"], "{k} == {n} - 1", "min({n}, 1)"),
        (["0", "{n}", "B"], "{k} + B < {n}", "max(cdiv({n}, B) - 1, 0)"), (["{n}"], "{k} * B < {m}", "min({n}, cdiv({m}, B))"),
        (["{n} - 1", "-1", "-1"], "{k} % 2 == 1", None), (["{n}"], "{k} % 2 == 1", "{n} // 2"), (["{n}"], "{k} % 2 == 1 and {k} >= 4", "max({n}, 4) // 2 - 2"),
        (["{n}"], "{k} * {m} < 9", None), (["{n}"], "{k} < {m} / 2", None), (["{n}"], "{k} // 2 == 1", None), (["{n}"], "({k} // 2) % 2 == 0", None),
        (["{n}"], "(9 - {k}) % 4 == 1", None), (["9"], "(9 - {k}) % 4 == 1", "3"), (["0", "{m}", "4"], "{k} + 4 < {n}", "max(min(cdiv({m}, 4), cdiv({n}, 4) - 1), 0)"),
        (["{n}"], "{k} % 32 != 1 and {k} + 2 < {n}", "max({n} - 2, 0) - (max({n} - 2, 0) + 30) // 32"),
    ],
)  # fmt: skip
def test_turns_are_told_in_short_and_what_is_not_certain_is_not_told(
    bounds: list[str], test: str, count: str | None
) -> None:
    sizes = [read_size(bound) for bound in bounds]
    start, step = (0, 1) if len(sizes) < 2 else (sizes[0], (*sizes, 1)[2])
    loop = Counter("k", start, step, at_least_none(trip_count(sizes)))
    found = Turns(loop).split(read_size(test))
    assert (None if found is None else render(found[0].count)) == count


def test_a_range_that_goes_down_to_a_size_from_none_runs_never() -> None:
    sizes = [read_size(text) for text in ("0", "{n}", "-1")]
    assert evaluate(render(at_least_none(trip_count(sizes))), {"n": 4}) == 0
