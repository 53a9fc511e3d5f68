"""A tiled matrix product: autotuned, with its program ids mapped by a device function of its own."""

import itertools

import torch
import triton
import triton.language as tl

from .settings import matmul_configs


@triton.jit
def swizzle(pid, num_m, num_n, GROUP: tl.constexpr):
    width = GROUP * num_n
    first = (pid // width) * GROUP
    size = tl.minimum(num_m - first, GROUP)
    return first + pid % size, (pid % width) // size


@triton.autotune(configs=matmul_configs(), key=["M", "N", "K"])
@triton.heuristics({"EVEN_K": lambda args: args["K"] % args["BLOCK_K"] == 0})
@triton.jit
def matmul_kernel(  # expect: role kernel
    A, B, C,
    M, N, K,
    stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,  # expect: constexpr BLOCK_K = 32
    GROUP: tl.constexpr,  # expect: constexpr GROUP = 8
    EVEN_K: tl.constexpr,  # expect: constexpr EVEN_K = args['K'] % args['BLOCK_K'] == 0
):
    tl.static_assert(BLOCK_K % 16 == 0, "the tensor cores take 16 at a time")  # expect: constraint BLOCK_K % 16 == 0
    pid = tl.program_id(axis=0)  # expect: mapping program_id(0) -> pid
    pid_m, pid_n = swizzle(pid, tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP)  # expect: mapping  -> pid_m
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)  # expect: mapping  -> rows
    cols = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    a_ptrs = A + rows[:, None] * stride_am + steps[None, :]
    b_ptrs = B + steps[:, None] * stride_bk + cols[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):  # expect: loop cdiv({K}, BLOCK_K)
        a = tl.load(a_ptrs, mask=steps[None, :] < K - k, other=0.0)  # expect: load A
        b = tl.load(b_ptrs, mask=steps[:, None] < K - k, other=0.0)  # expect: load B
        acc += tl.dot(a, b)  # expect: instruction tl.dot
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * stride_bk
    out = C + rows[:, None] * stride_cm + cols[None, :]
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(out, acc.to(tl.float16), mask=inside)  # expect: store C


def matmul(a, b):
    assert a.shape[1] == b.shape[0], "the inner sizes differ"  # expect: constraint a.shape[1] == b.shape[0]
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    matmul_kernel[grid](  # expect: tiles cdiv({M}, BLOCK_M) * cdiv({N}, BLOCK_N)
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), BLOCK_K=32, GROUP=8
    )
    return c


SPLIT = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in itertools.product([128, 256], [2, 4])]


@triton.autotune(SPLIT + [triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])
@triton.jit
def scale_kernel(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # expect: mapping program_id(0) -> at
    tl.store(x + at, tl.load(x + at, at < n) * 2, at < n)  # expect: store x


def scale(x):
    kernel = scale_kernel
    n = x.numel()
    kernel[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, n)  # expect: tiles cdiv({n}, BLOCK)
