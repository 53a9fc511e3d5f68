import triton
import triton.language as tl
from elsewhere import blocks

from shop.lang import extension as tle


@triton.jit
def wrapped_kernel(x, y, n, BLOCK: tl.constexpr):
    pid = tle.program_id(0)  # expect: mapping program_id(0) -> pid
    count = tle.num_programs(0)  # expect: mapping num_programs(0) -> count
    column = blocks.program_id(axis=1)  # expect: mapping program_id(1) -> column
    at = pid * BLOCK + tl.arange(0, BLOCK)  # expect: mapping  -> at
    tl.store(y + at + column + count, tl.load(x + at, mask=at < n), mask=at < n)


def copy(x, y, n):
    wrapped_kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)  # expect: tiles cdiv({n}, 128)
