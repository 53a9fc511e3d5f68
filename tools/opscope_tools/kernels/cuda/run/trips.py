"""How often the loops of a CUDA kernel run, in every thread or, where the threads share one, in all of them together.

`for (i = threadIdx.x; i < n; i += blockDim.x)` makes n iterations in the block, exactly; other counted loops make
cdiv(stop - start, step) in each thread; what is neither gets a name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import reduce
from itertools import zip_longest
from math import prod
from typing import Any

from opscope_tools.kernels.cuda.names.values import Value, computed
from opscope_tools.kernels.cuda.syntax.nodes import (
    Assign,
    Binary,
    Block,
    Declare,
    Evaluate,
    For,
    Name,
    Node,
    Number,
    Sequence,
    Unary,
    While,
)
from opscope_tools.kernels.values.expressions import (
    TURNED,
    ceil_div,
    negative,
    render,
)
from opscope_tools.kernels.values.notation import Counts, names_of
from opscope_tools.kernels.values.quotients import may_be_negative, rounded_down
from opscope_tools.kernels.values.threads import Threads
from opscope_tools.kernels.values.trips import at_least_none
from opscope_tools.kernels.values.turns import MOST_TURNS, Counter

#: iterations of a loop that are looked at one by one
MOST_UNROLLED = 32
_SIMULATED = 4096
_BUILT_IN = re.compile(r"\{((?:threadIdx|blockIdx|blockDim|gridDim)\.[xyz])\}")
_ZERO = Number(0, "0")


@dataclass(frozen=True)
class Step:
    """`i += 4`, `i >>= 1`: how a counter changes from one iteration to the next."""

    name: str
    operator: str
    amount: Node | None


def step_of(node: Node | None, name: str) -> Step | None:
    """How an expression changes a counter; None where it does not, or in another way."""
    if isinstance(node, Sequence):
        found = [s for p in node.parts if (s := step_of(p, name)) is not None]
        return found[0] if len(found) == 1 else None
    if isinstance(node, Unary) and node.operator in {"++", "--"} and _is(node.operand, name):
        return Step(name, node.operator[0], None)
    if isinstance(node, Assign) and _is(node.target, name):
        if len(node.operator) > 1:
            return Step(name, node.operator[:-1], node.value)
        if isinstance(node.value, Binary) and _is(node.value.left, name):
            return Step(name, node.value.operator, node.value.right)
        if isinstance(node.value, Binary) and node.value.operator == "+" and _is(node.value.right, name):
            return Step(name, "+", node.value.left)
    return None


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Name) and node.text == name


def counter(test: Node | None) -> list[tuple[str, str, Node]]:
    """(name, operator, bound) of the comparisons of a loop's test that may bound a counter; those joined by `&&` too."""
    if isinstance(test, Binary) and test.operator == "&&":
        return [*counter(test.left), *counter(test.right)]
    if isinstance(test, Name):
        return [(test.text, "!=", _ZERO)]
    if not isinstance(test, Binary) or test.operator not in {"<", "<=", ">", ">=", "!="}:
        return []
    found = []
    if isinstance(test.left, Name):
        found.append((test.left.text, test.operator, test.right))
    if isinstance(test.right, Name):
        found.append((test.right.text, TURNED[test.operator], test.left))
    return found


def own_step(body: Node, name: str, writes: Callable[[Node], frozenset[str]]) -> Step | None:
    """The one statement of a loop's body that changes its counter."""
    statements = body.statements if isinstance(body, Block) else [body]
    changing = [s for s in statements if name in writes(s)]
    if len(changing) == 1 and isinstance(changing[0], Evaluate):
        return step_of(changing[0].expression, name)
    return None


def simulated(start: int, operator: str, bound: int, step: str, amount: int) -> list[int] | None:
    """The values that a counter of constants takes; None where they are too many, or end never."""
    values, at = list[int](), start
    while len(values) <= _SIMULATED:
        if not computed(operator, at, bound):
            return values
        values.append(at)
        following = computed(step, at, amount)
        if following is None or following == at:
            return None
        at = following
    return None


def meets(start: Any, bound: Any, amount: Any) -> bool:
    """Whether a counter that goes up surely comes to its bound, which it does not where it starts beyond it or steps over it."""
    if all(isinstance(number, int) for number in (start, bound, amount)):
        return simulated(start, "!=", bound, "+", amount) is not None
    span = computed("-", bound, start)
    return amount == 1 and span is not None and not may_be_negative(span)


@dataclass(frozen=True)
class Trip:
    """How often a body runs: in all turns of a loop in every thread of `threads`, which may be fewer than around it."""

    loop: Counter
    threads: Threads
    conditions: tuple[str, ...] = ()


def in_one_thread(start: Value, operator: str, bound: Value, step: str, amount: Value) -> str:
    """How often a counted loop runs in a thread, as a formula; '' where that is not told."""
    numbers = start.number, bound.number, amount.number
    if any(n is None for n in numbers):
        return ""
    if all(isinstance(n, int) for n in numbers):
        values = simulated(start.number, operator, bound.number, step, amount.number)
        return "" if values is None else str(len(values))
    if step == "+" and operator in {"<", "<=", "!="}:
        stop = rounded_down(bound.number) if start.number == 0 and operator != "<=" else bound.number
        span = computed("-", computed("+", stop, 1) if operator == "<=" else stop, start.number)
    elif step == "-" and operator in {">", ">="}:
        span = computed("-", start.number, bound.number if operator == ">" else computed("-", bound.number, 1))
    else:
        return ""
    return "" if span is None else _BUILT_IN.sub(r"\1", render(ceil_div(span, amount.number)))


def trip(
    name: str, start: Value, operator: str, bound: Value, step: str, amount: Value, threads: Threads, counts: Counts
) -> Trip | None:
    """The turns of a loop whose counter goes up or down by even steps; None where that is not told."""
    if bound.number is None or amount.number is None or start.number is None:
        return None
    if (bound.varies | amount.varies) & {"thread"} or step not in {"+", "-"}:
        return None
    if operator not in ({">", ">="} if step == "-" else {"<", "<=", "!="}):
        return None
    stop = computed(step, bound.number, 1) if "=" in operator and operator != "!=" else bound.number
    if start.digits:
        return _shared(name, start, stop, amount.number, threads, counts) if step == "+" else None
    if "thread" in start.varies:
        return None
    low, high = (start.number, stop) if step == "+" else (stop, start.number)
    trips = trips_of(low, high, amount.number)
    if trips is None:
        return None
    by = amount.number if step == "+" else negative(amount.number)
    return Trip(Counter(name, start.number, by, trips), threads)


def trips_of(low: Any, high: Any, by: Any) -> Any:
    """How many turns it takes from one end to the other, which are none where they lie the wrong way round; None where that is not told."""
    span = rounded_down(high) if low == 0 else computed("-", high, low)
    return None if span is None else at_least_none(ceil_div(span, by))


def _shared(name: str, start: Value, stop: Any, amount: Any, threads: Threads, counts: Counts) -> Trip | None:
    """A loop that threads share: their first values fill one step, so that together they make every iteration once."""
    made: Threads | None = threads
    for _ in range(2):  # splitting by one key may split what another covers
        for key, _factor in start.digits:
            split = made.split(key) if made is not None else None
            if split is None:
                return None
            made = split[0]
    assert made is not None
    covered = []
    for key, factor in start.digits:
        split = made.split(key)
        if split is None:
            return None
        unit = factor
        for digit in split[1]:
            if digit.left != "first":
                return None
            covered.append((unit, digit))
            unit = computed("*", unit, digit.count)

    def same(a: Any, b: Any) -> bool:
        return counts.read(a) == counts.read(b)

    ordered, left = [], covered
    if all(isinstance(f, int) for f, _ in left):
        ordered = sorted(left, key=lambda part: part[0])
    else:
        units = [f for f, _ in left if isinstance(f, int)]
        wanted: Any = min(units) if units else left[0][0]
        while left:
            following = next((p for p in left if same(p[0], wanted)), None)
            if following is None:
                return None
            ordered.append(following)
            left = [p for p in left if p is not following]
            wanted = computed("*", wanted, following[1].count)
    least, expected = ordered[0][0], ordered[0][0]
    conditions: list[str] = []
    for factor, digit in ordered:
        if not same(factor, expected):
            return None
        expected = computed("*", expected, digit.count)
    if expected is None:
        return None
    digits = [d for _, d in ordered]
    if not same(expected, amount):
        if isinstance(expected, int) and isinstance(amount, int):
            return _uneven(name, digits, least, start.offset, stop, amount, made)
        if "gridDim" in render(amount):
            return None
        conditions.append(f"{render(expected)} == {render(amount)}")
    trips = trips_of(start.offset, stop, least)
    if trips is None:
        return None
    at_once: Any = reduce(lambda total, digit: computed("*", total, digit.count), digits, 1)
    loop = Counter(name, start.offset, least, trips, at_once=at_once)
    return Trip(loop, made.taken(digits, 1), tuple(conditions))


def _uneven(
    name: str, digits: list[Any], least: Any, offset: Any, stop: Any, amount: int, threads: Threads
) -> Trip | None:
    """Threads whose first values do not fill a step, where all is constant."""
    count = prod(digit.count for digit in digits)
    if not all(isinstance(v, int) for v in (least, offset, stop, count)) or count > _SIMULATED:
        return None
    each = [range(offset + least * t, stop, amount) for t in range(count)]
    total, told = sum(map(len, each)), None
    if total <= MOST_TURNS:
        told = tuple(value for turn in zip_longest(*each) for value in turn if value is not None)
    loop = Counter(name if told is not None else "", offset, 1, total, listed=told, at_once=sum(map(bool, each)))
    return Trip(loop, threads.taken(digits, 1))


def loop_parts(node: For | While, writes: Callable[[Node], frozenset[str]]) -> tuple[str, str, Node, Step] | None:
    """(counter, operator, bound, step) of a loop that counts; None for others."""
    step = node.step if isinstance(node, For) else None
    changed = writes(node.body)
    every = changed | (writes(step) if step is not None else frozenset())
    for name, operator, bound in counter(node.test):
        found = step_of(step, name) if step is not None else own_step(node.body, name, writes)
        if found is None or (step is not None and name in changed):
            continue
        held = _names(bound) | (_names(found.amount) if found.amount is not None else set())
        if any(other.partition(".")[0] in held for other in every - {name}) or name in held:
            continue  # what the loop itself changes says nothing of how often it runs
        return name, operator, bound, found
    return None


def _names(node: Node) -> set[str]:
    """The names in an expression; of members and elements the object's."""
    if isinstance(node, Name):
        return {node.text.partition(".")[0]}
    found: set[str] = set()
    for part in fields(node):
        value = getattr(node, part.name)
        for item in value if isinstance(value, tuple | list) else (value,):
            if isinstance(item, Node):
                found |= _names(item)
    return found


def depends(trip_: Any, names: set[str]) -> bool:
    """Whether a number of iterations has one of the names in it."""
    return not isinstance(trip_, int) and bool(names & set(names_of(trip_)))


__all__ = [
    "MOST_UNROLLED",
    "Declare",
    "Trip",
    "depends",
    "in_one_thread",
    "loop_parts",
    "meets",
    "simulated",
    "trip",
    "trips_of",
]
