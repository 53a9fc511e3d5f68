"""y = x @ dequantised(w): weights of 4 bits, eight in a word along k, with a scale and a zero point for each group of rows."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=4),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32}, num_warps=8, num_stages=3),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def int4_matmul_kernel(
    x_ptr,
    qweight_ptr,
    scales_ptr,
    zeros_ptr,
    y_ptr,
    M,
    N,
    K,
    stride_xm,
    stride_wk,
    stride_sg,
    stride_ym,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    pid = tl.program_id(0)
    tiles_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // tiles_n
    pid_n = pid % tiles_n
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    shift = (offs_k % 8) * 4
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        rows = k * BLOCK_K + offs_k
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + rows[None, :], mask=offs_m[:, None] < M, other=0.0)
        packed = tl.load(qweight_ptr + (rows[:, None] // 8) * stride_wk + offs_n[None, :])
        scale = tl.load(scales_ptr + (rows[:, None] // GROUP) * stride_sg + offs_n[None, :])
        zero = tl.load(zeros_ptr + (rows[:, None] // GROUP) * stride_sg + offs_n[None, :])
        w = (((packed >> shift[:, None]) & 0xF) - zero) * scale
        acc += tl.dot(x, w.to(x.dtype))
    y_ptrs = y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :]
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def int4_matmul(x: torch.Tensor, qweight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor, group: int = 128):
    M, K = x.shape
    N = qweight.shape[1]
    assert qweight.shape[0] * 8 == K, "eight weights in a word"
    assert x.is_contiguous()
    y = torch.empty((M, N), device=x.device, dtype=x.dtype)

    def grid(meta):
        return (triton.cdiv(M, meta["BLOCK_M"]) * triton.cdiv(N, meta["BLOCK_N"]),)

    int4_matmul_kernel[grid](
        x, qweight, scales, zeros, y, M, N, K, x.stride(0), qweight.stride(0), scales.stride(0), y.stride(0), GROUP=group
    )
    return y
