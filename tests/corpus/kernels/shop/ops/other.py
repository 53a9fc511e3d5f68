"""The same kernel name again, and languages that are recognised but not read."""

import cutlass.cute as cute
import triton as tr
import triton.language as tl
from numba import cuda

SOURCE = """
@triton.jit
def generated(X):
    pass
"""


@tr.jit
def same_name(X, BLOCK: tl.constexpr):
    tl.store(X + tl.program_id(0) * BLOCK, 2)


def go(x):
    same_name[(3, 5)](x, 16)  # expect: tiles 3 * 5


@cute.kernel
def cute_kernel(x):
    pass


@cuda.jit
def numba_kernel(x):
    x[cuda.grid(1)] = 0
