"""Whether a size may be below none, and whole quotients of what may be: C++ and Triton cut them towards none, Python rounds them down.

Formulas round down: `cut` tells such a quotient by one that does, `rounded_down` takes that back where a loop from none ends at it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import floor

from opscope_schemas.formula import Formula

from opscope_tools.kernels.values.expressions import (
    COMPARISONS,
    Call,
    Choice,
    Operation,
    Prefix,
    Quantity,
    Size,
    call,
    combine,
    negative,
    settled,
)
from opscope_tools.kernels.values.notation import Counts, read_size

#: quantities of a run that are one or more
_ONE_AT_LEAST = re.compile(r"(?:grid|block)Dim\.[xyz]|num_programs\(\d\)")


@lru_cache(maxsize=8192)
def least(size: Size) -> int | None:
    """A number that a size is no less than: quantities of a run are none or more, those of the compiler one or more. None: not told."""
    match size:
        case int() | float():
            return floor(size)
        case Quantity(name=name, run_time=run_time):
            return int(not run_time or _ONE_AT_LEAST.fullmatch(name) is not None)
        case Operation(operator="+" | "-" | "*") | Prefix(operator="-"):
            return _of_sum(Counts().read(size))
        case Operation(operator=symbol) if symbol in COMPARISONS or symbol in {"and", "or"}:
            return 0
        case Prefix(operator=symbol):
            return 0 if symbol == "not" else None
        case Call(function="max", arguments=arguments):
            return max((low for one in arguments if (low := least(one)) is not None), default=None)
        case Call(function="min", arguments=arguments):
            return _lowest(*arguments)
        case Choice(first=first, second=second):
            return _lowest(first, second)
        case Operation(operator="%", right=divisor):
            return None if may_be_negative(divisor) else 0
        case Operation(left=left, right=right):
            return None if may_be_negative(left) or may_be_negative(right) else 0
        case Call(arguments=arguments):
            return None if any(map(may_be_negative, arguments)) else 0
    return 0


def _lowest(*sizes: Size) -> int | None:
    lows = [least(size) for size in sizes]
    return None if None in lows else min(low for low in lows if low is not None)


def _of_sum(made: Formula) -> int | None:
    """As `least`: each factor is what it is at least and more, of which nothing may be taken."""
    above = dict[str, Formula]()
    for place, name in enumerate(made.variables()):
        low = least(read_size(name))
        if low is None:
            return None
        above[name] = Formula.opaque(name, place) + low
    made = made.substitute(above)
    falls = any(factor < 0 for factors, factor in made.terms.items() if factors)
    return None if falls else int(made.terms.get((), 0))


def may_be_negative(size: Size) -> bool:
    """Whether a number made of sizes, which are not, may be less than none."""
    low = least(size)
    return low is None or low < 0


def cut(symbol: str, a: Size, b: Size) -> Size | None:
    """A whole quotient that is cut towards none, or the rest it leaves, whose sign is the dividend's. None: the divisor may be none."""
    if isinstance(b, int) and b < 0:
        made = cut(symbol, a, -b)
        return made if symbol == "%" or made is None else negative(made)
    if b == 0 or may_be_negative(b):
        return None
    if not may_be_negative(a):
        return combine(symbol, a, b)
    above, low = combine(symbol, call("max", a, 0), b), least(a)
    if symbol == "//" and low is not None and low > -(least(b) or 1):  # it is below none by less than the divisor
        return above
    below: Size = settled("-", above, combine(symbol, call("max", negative(a), 0), b))
    return below


def rounded_down(size: Size) -> Size:
    """A quotient that `cut` told as one that is rounded down: both are none or less alike, where a loop from none makes no turn."""
    match size:
        case Operation(
            operator="-",
            left=Operation(operator="//", left=Call(function="max", arguments=(above, 0))) as whole,
            right=Operation(operator="//", left=Call(function="max", arguments=(below, 0))),
        ) if below == negative(above):
            return rounded_down(whole)
        case Operation(operator="//", left=Call(function="max", arguments=(a, 0)), right=b):
            return rounded_down(combine("//", a, b))
        case Operation(operator="//", left=a, right=b) if not may_be_negative(b):
            return combine("//", rounded_down(a), b)
        case Call(function="cdiv", arguments=(a, b)) if not may_be_negative(b):
            return call("cdiv", rounded_down(a), b)
    return size


__all__ = ["cut", "least", "may_be_negative", "rounded_down"]
