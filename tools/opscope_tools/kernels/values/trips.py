"""How often a loop runs whose bounds are sizes, and what one element of arithmetic on data costs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from opscope_tools.kernels.values.expressions import Prefix, Size, call, negative, settled
from opscope_tools.kernels.values.quotients import may_be_negative, rounded_down

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
    """How often a loop over `range(*bounds)` runs, its bounds being formulas; less than none is none."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if downwards(step):  # as many as upwards the other way
        start, stop, step = stop, start, negative(step)
    span = rounded_down(stop) if start == 0 else settled("-", stop, start)
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


def at_least_none(trips: Size) -> Size:
    """A count of turns whose bounds may lie the wrong way round: such a loop runs no times."""
    if isinstance(trips, int):
        return max(trips, 0)
    return call("max", trips, 0) if may_be_negative(trips) else trips
