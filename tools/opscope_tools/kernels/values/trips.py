"""How often a loop runs whose bounds are sizes, and what one element of arithmetic on data costs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from opscope_tools.kernels.values.expressions import Call, Choice, Operation, Prefix, Size, call, negative, settled

#: FLOPs per element of the result, by the arithmetic of the definition
PER_ELEMENT: Mapping[str, int] = {
    **dict.fromkeys(
        "exp exp2 log log2 sqrt sqrt_rn rsqrt sin cos tan tanh erf pow div_rn fdiv expm1 log1p sinh cosh asin acos atan atan2 "
        "fast_expf fast_logf fast_dividef fast_cosf fast_sinf fast_powf fast_exp10f log10 exp10 ex2".split(), 1,
    ),
    "fma": 2, "sigmoid": 4, "softmax": 4, "silu": 5, "gelu": 8, "cumsum": 1, "cumprod": 1,
}  # fmt: skip


def downwards(step: Size) -> bool:
    """Whether a counter goes down by a step."""
    return step < 0 if isinstance(step, int | float) else isinstance(step, Prefix) and step.operator == "-"


def trip_count(bounds: Sequence[Size]) -> Size:
    """How often a loop over `range(*bounds)` runs, its bounds being formulas that do not lie the wrong way round."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if downwards(step):  # as many as upwards the other way
        start, stop, step = stop, start, negative(step)
    span = settled("-", stop, start)
    return span if step == 1 else call("cdiv", span, step)


def turns(first: Size, operator: ast.cmpop, bound: Size, step: Size) -> Size | None:
    """How often a loop runs while something that starts at `first` and grows by `step` compares so to a bound; None: untold."""
    if isinstance(operator, ast.Gt | ast.GtE) and downwards(step):
        first, bound, step = bound, first, negative(step)
    elif not isinstance(operator, ast.Lt | ast.LtE) or downwards(step) or step == 0:
        return None
    if isinstance(operator, ast.LtE | ast.GtE):  # as often as below one more
        bound = settled("+", bound, 1)
    return trip_count((first, bound, step))


def at_least_none(trips: Size, bounds: Sequence[Size]) -> Size:
    """A count of turns where the bounds may lie the wrong way round: such a loop runs no times."""
    if isinstance(trips, int):
        return max(trips, 0)
    start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
    upwards = start == 0 and not may_be_negative(stop) and not any(map(downwards, bounds[2:]))
    return trips if upwards else call("max", trips, 0)


def may_be_negative(size: Size) -> bool:
    """Whether a number made of sizes, which are not, may be less than none."""
    match size:
        case int() | float():
            return size < 0
        case Operation(operator=symbol, left=left, right=right):
            return symbol == "-" or may_be_negative(left) or may_be_negative(right)
        case Prefix(operator=symbol):
            return symbol != "not"
        case Call(function="max", arguments=arguments):
            return all(map(may_be_negative, arguments))
        case Call(arguments=arguments):
            return any(map(may_be_negative, arguments))
        case Choice(first=one, second=other):
            return may_be_negative(one) or may_be_negative(other)
    return False
