"""Pools, interpolation and sampling: so many taps per output element, each a multiply and an add or only an add.

Order: average pools, interpolation, sampling at given places, `col2im`. Largest-of-window pools and nearest neighbours
compare and copy: they stand in moves.py. Windows and taps that reach into padding are counted whole, as in convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, cost, operator, size_of, times

# ---------------------------------------------------------------- average pools


@operator("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(call: Call) -> Cost | None:
    """The mean of a window of k: k - 1 adds and a division per output element."""
    dims = int(call.name[-2])
    kernel = [size_of(size) for size in call.arguments.get("kernel_size", ())]
    sizes = [size for size in kernel if size is not None]
    if not kernel or len(sizes) != len(kernel):
        return None
    window = times(sizes if len(sizes) == dims else sizes * dims)
    return cost(call, call.out * window, "mean of a window of k: k per output element")


@operator("aten.adaptive_avg_pool1d", "aten._adaptive_avg_pool2d", "aten._adaptive_avg_pool3d",
          "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d", "aten.mkldnn_adaptive_avg_pool2d")  # fmt: skip
def adaptive_avg_pool(call: Call) -> Cost | None:
    """The mean of each window, 1 per element in it. Of n in and m out, window i is floor(i*n/m) to ceil((i+1)*n/m).

    Together the windows hold n + m - gcd(n, m) elements: n, and one twice at each inner border that divides no element.
    """
    dims = int(call.name[-2])
    x, out = call.inputs[0], call.outputs[0]
    flops = times(out.shape[:-dims])
    for size, windows in zip(x.shape[-dims:], out.shape[-dims:], strict=True):
        shared = _gcd(size, windows)
        if shared is None:
            return None
        flops = flops * (size + windows - shared)
    return cost(call, flops, "mean of each window: 1 per element in it; windows that overlap share elements")


def _gcd(a: Formula, b: Formula) -> Formula | None:
    """The greatest common divisor, where one divides the other or one is a number.

    gcd(a, m) is the sum of phi(d) over the divisors d of m that divide a; `1 - min(a % d, 1)` says whether d does.
    """
    if not (a % b).terms or not (b % a).terms:
        return b if not (a % b).terms else a
    for number, other in ((a.constant(), b), (b.constant(), a)):
        if number is not None:
            divisors = [d for d in range(1, int(number) + 1) if int(number) % d == 0]
            return sum((_phi(d) * (ONE - Formula.minimum(other % d, ONE)) for d in divisors), ZERO)
    return None


def _phi(n: int) -> int:
    return sum(math.gcd(n, k) == 1 for k in range(1, n + 1))


# ---------------------------------------------------------------- interpolation

#: per output element: each weighted mean of t taps is t multiplies and t - 1 adds
_INTERPOLATIONS: Mapping[str, tuple[int, str]] = {
    "upsample_linear1d": (3, "one mean of 2 taps"),
    "upsample_bilinear2d": (9, "two means of 2 taps along a row, one across"),
    "upsample_trilinear3d": (21, "four means of 2 taps, then two, then one"),
    "upsample_bicubic2d": (35, "four means of 4 taps along a row, one across"),
}


@operator(*(f"aten.{name}" for name in _INTERPOLATIONS))
def interpolate(call: Call) -> Cost:
    """Weighted means of neighbours, dimension by dimension; the weights are one per row and column and left out."""
    count, words = _INTERPOLATIONS[call.name.removeprefix("aten.")]
    return cost(call, count * call.out, f"{words}: {count} per output element; weights per row and column left out")


@operator("aten._upsample_bilinear2d_aa", "aten._upsample_bicubic2d_aa", "aten._upsample_lanczos2d_aa")
def interpolate_antialiased(call: Call) -> Cost:
    """Along rows, then along columns: means of t = s * max(1, in / out) taps, s being 2 linear, 4 cubic, 6 Lanczos.

    The rows' result is (in height, out width); a mean of t taps is t multiplies and t - 1 adds; t is rounded up.
    """
    support = 2 if "bilinear" in call.name else 4 if "bicubic" in call.name else 6
    x, out = call.inputs[0].shape, call.outputs[0].shape

    def mean(size: Formula, wanted: Formula) -> Formula:
        return 2 * Formula.maximum(Formula.const(support), (support * size).ceildiv(wanted)) - 1

    rows = times(x[:-2]) * x[-2] * out[-1] * mean(x[-1], out[-1])
    return cost(call, rows + call.out * mean(x[-2], out[-2]), "means of taps along rows, then along columns")


# ---------------------------------------------------------------- sampling at given places

#: interpolation mode -> name, per place and dimension beside the coordinate; the linear one's weights are beside it
_MODES = {0: ("linear", 3), 1: ("nearest", 0), 2: ("cubic", 26)}


@operator("aten.grid_sampler_2d", "aten.grid_sampler_3d", "aten.cudnn_grid_sampler", "aten.grid_sampler",
          "aten._grid_sampler_2d_cpu_fallback")  # fmt: skip
def grid_sample(call: Call) -> Cost:
    """x at the places of a grid (..., d): coordinates and weights per place, taps per output element.

    A coordinate: ((g + 1) * size - 1) / 2 is 4, with corners aligned (g + 1) / 2 * (size - 1) is 3; mirrored at the
    border 6 more. Linear: the far corner's coordinate and the two distances are 3 per dimension, each of the 2**d
    weights d - 1 multiplies, the taps 2**d multiplies and 2**d - 1 adds per output element. Cubic (d = 2): the distance
    1, three more 3, weights of 4 taps 2 * 5 + 2 * 6 per dimension; five means of 4 taps are 35 per output element.
    Nearest: rounding, a copy.
    """
    grid = call.inputs[1]
    dims = int(grid.shape[-1].constant() or 2)
    places = times(grid.shape[:-1])
    mode, corners = call.arguments.get("interpolation_mode", 0), 2**dims
    name, weights = _MODES[mode]
    coordinate = 3 if call.arguments.get("align_corners") else 4
    mirrored = 6 if call.arguments.get("padding_mode") == 2 else 0
    per_place = dims * (coordinate + mirrored + weights) + (corners * (dims - 1) if mode == 0 else 0)
    per_output = {0: 2 * corners - 1, 1: 0, 2: 35}[mode]
    return cost(
        call, per_place * places + per_output * call.out, f"{name}: {per_place} per place, {per_output} per output"
    )


@operator("torchvision.roi_align")
def roi_align(call: Call) -> Cost | None:
    """The mean of r * r bilinear samples per output element: 7 each (4 multiplies, 3 adds), and r * r for the mean.

    Where the samples per bin are left to the data (a ratio of 0) nothing is known.
    """
    ratio = size_of(call.arguments.get("sampling_ratio"))
    if ratio is None or (ratio.constant() or 0) <= 0:
        return None
    return cost(call, 8 * ratio * ratio * call.out, "r * r bilinear samples of 7 and their mean, per output element")


@operator("aten.col2im")
def col2im(call: Call) -> Cost:
    """Columns added into the image that they came from: 1 per input element."""
    return cost(call, call.inputs[0].numel, "1 add per input element")
