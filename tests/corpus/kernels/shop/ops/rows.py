"""A row-wise kernel whose launch settings come from a helper of another file."""

import triton
import triton.language as tl

from shop.ops.settings import row_settings


@triton.jit
def _row_kernel(X, Y, stride, n_cols, BLOCK: tl.constexpr, num_warps: tl.constexpr = 4):
    row = tl.program_id(0)  # expect: mapping program_id(0) -> row
    at = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + at, mask=at < n_cols)  # expect: load X
    tl.store(Y + row * stride + at, x, mask=at < n_cols)  # expect: store Y


def run(x, y, columns=False):
    n_rows, n_cols = x.shape
    BLOCK, warps = row_settings(n_cols)
    if columns:
        grid = (n_cols, n_rows)
    else:
        grid = (n_rows,)
    _row_kernel[grid](x, y, x.stride(0), n_cols, BLOCK=BLOCK, num_warps=warps)


@triton.jit
def same_name(X, BLOCK: tl.constexpr):
    tl.store(X + tl.program_id(0), 1)


def launch_same_name(x):
    B, *rest = x.shape
    same_name[(B, (x.numel() + 127) // 128)](x, BLOCK=4 if x.is_cuda else 8)  # expect: tiles {B} * cdiv({x.numel()}, 128)
