"""Kernels whose launches work their settings out of one size, each setting with the others."""

import torch
import triton
import triton.language as tl


def is_other():
    return torch.version.hip is not None


def calculate_settings(n):
    block = triton.next_power_of_2(n)
    if block > 65536:
        raise RuntimeError("too wide")
    if block >= 32768:
        return block, 32 if not is_other() else 16
    return block, 16 if block >= 8192 else 8 if block >= 2048 else 4


@triton.jit
def scaled_rows(y, x, stride_y, stride_x, n, scale, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * stride_x + at, mask=at < n).to(tl.float32)
    tl.store(y + tl.program_id(0) * stride_y + at, row * scale / tl.sqrt(tl.sum(row * row) / n), mask=at < n)


def scale_rows(x, scale=2.0):
    *batch, n = x.shape
    x = x.contiguous().view(-1, n)
    y = torch.empty_like(x)
    BLOCK, num_warps = calculate_settings(n)
    scaled_rows[(x.shape[0],)](y, x, y.stride(0), x.stride(0), n, scale, BLOCK=BLOCK, num_warps=num_warps)
    return y


@triton.jit
def product(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for at in range(0, tl.cdiv(K, BK)):
        left = tl.load(a + m[:, None] * sam + (at * BK + k)[None, :] * sak, mask=m[:, None] < M)
        right = tl.load(b + (at * BK + k)[:, None] * sbk + n[None, :] * sbn, mask=n[None, :] < N)
        acc = tl.dot(left, right, acc)
    tl.store(c + m[:, None] * scm + n[None, :] * scn, acc.to(c.dtype.element_ty), mask=m[:, None] < M)


def multiply_small(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    product[(M // 32, N // 32)](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BM=32, BN=32, BK=32, num_warps=2, num_stages=2,
    )
    return c


def multiply(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=torch.float32)
    product[(M // 128, N // 128)](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BM=128, BN=128, BK=64, num_warps=8, num_stages=4,
    )
    return c


@triton.jit
def wide_rows(y, x, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.cumsum(tl.load(x + tl.program_id(0) * stride + at).to(tl.float32), 0))


def sum_rows(logits):
    tokens, vocab_size = logits.shape
    y = torch.empty(65536, device=logits.device, dtype=torch.float32)
    block = min(triton.next_power_of_2(vocab_size), 16384)
    wide_rows[(tokens,)](y, logits, logits.stride(0), BLOCK=block, num_warps=16 if block > 8192 else 8)
    return y


@triton.jit
def heads(o, q, sh, D: tl.constexpr, BLOCK_T: tl.constexpr):
    t, d = tl.arange(0, BLOCK_T), tl.arange(0, D)
    at = tl.program_id(0) * sh + t[:, None] * D + d[None, :]
    tl.store(o + at, tl.dot(tl.load(q + at), tl.trans(tl.load(q + at))).to(tl.bfloat16).to(tl.float32).sum(1)[:, None] + at)


def mix_heads(q):
    B, H, T, D = q.shape
    o = torch.empty_like(q)
    heads[(B * H,)](o, q, q.stride(1), D=D, BLOCK_T=64 if D > 64 else 128, num_warps=4 if D > 64 else 2)
    return o
