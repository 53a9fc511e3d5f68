"""Fourier transforms: 5 * n * log2(n) per transform of n complex numbers, half of that where one side is real.

That is the count by which FFTs are compared (https://www.fftw.org/speed/method.html), not what one algorithm does. Formulas have
no logarithm, so log2 is rounded up to a whole number, exact at powers of two: the count is an upper bound elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ONE, ZERO, Call, Cost, cost, operator, times, total

#: lengths that are no number are taken to be at most 2**24
_BITS = 24


def ceil_log2(n: Formula) -> Formula:
    """ceil(log2 n): as many powers of two as are at most n - 1, each found by `min(1, (n - 1) // 2**k)`."""
    number = n.constant()
    if number is not None:
        return Formula.const((int(number) - 1).bit_length())
    return total(Formula.minimum(ONE, (n - 1) // 2**k) for k in range(_BITS))


def _transforms(call: Call, shape: Sequence[Formula], *, real: bool) -> Cost:
    """Over the dimensions `dim` of `shape`, the real or complex side: 5 * elements * sum of log2(length).

    A normalisation (not 0) scales the output: a multiply per real number of it.
    """
    lengths = [shape[dim] for dim in call.arguments.get("dim", (-1,))]
    flops = 5 * times(shape) * total(ceil_log2(n) for n in lengths)
    flops = flops.ceildiv(2) if real else flops
    parts = 2 if call.outputs[0].is_complex else 1
    scale = parts * call.out if call.arguments.get("normalization", 0) else ZERO
    half = "5 / 2" if real else "5"
    return cost(call, flops + scale, f"{half} * n * ceil(log2 n) per transform; a normalisation 1 per real number")


@operator("aten._fft_c2c", complex_too=True)
def fft_c2c(call: Call) -> Cost:
    """Complex to complex."""
    return _transforms(call, call.inputs[0].shape, real=False)


@operator("aten._fft_r2c", complex_too=True)
def fft_r2c(call: Call) -> Cost:
    """Real to complex: n is the real input's length."""
    return _transforms(call, call.inputs[0].shape, real=True)


@operator("aten._fft_c2r", complex_too=True)
def fft_c2r(call: Call) -> Cost:
    """Complex to real: n is the real output's length."""
    return _transforms(call, call.outputs[0].shape, real=True)
