"""The opposite of a test, and the form in which one is kept, hold where they should at every value of its names."""

from __future__ import annotations

import random

from opscope_tools.kernels.values.conditions import canonical, negated


def _test(draw: random.Random, depth: int = 0) -> str:
    name = draw.choice
    kind = draw.randrange(8 if depth < 2 else 4)
    if kind < 2:
        return f"{name('abc')} {name(('<', '<=', '>', '>=', '==', '!='))} {name('abc')}"
    if kind == 2:
        return f"{name('abc')} {name(('<', '<='))} {name('abc')} {name(('<', '<='))} {draw.randrange(3)}"
    if kind == 3:
        return f"max({name('abc')}, ({name('abc')} < {name('abc')}) + {name('abc')}) {name(('<', '!=', '>='))} {name('abc')}"
    if kind == 4:
        return f"not ({_test(draw, depth + 1)})"
    if kind == 5:
        return f"not {_test(draw, depth + 1)}"
    inner = [_test(draw, depth + 1) for _ in range(2)]
    return f" {name(('and', 'or'))} ".join(inner)


def test_opposites_are_opposites_and_kept_forms_say_which_they_are() -> None:
    draw = random.Random(4)
    for _ in range(3000):
        text = _test(draw)
        plain, positive = canonical(text)
        for _ in range(4):
            point = {name: draw.randrange(3) for name in "abc"}
            truth = bool(eval(text, {"max": max}, point))  # a test's own words
            assert bool(eval(negated(text), {"max": max}, point)) is not truth, text
            assert (bool(eval(plain, {"max": max}, point)) == positive) is truth, (text, plain)
