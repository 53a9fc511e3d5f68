"""Small kernels whose cost is easily got wrong."""

import triton
import triton.language as tl

MODE = tl.constexpr(2)


@triton.jit
def backwards(X, Y, N, BLOCK: tl.constexpr):
    acc = 0.0
    for i in range(N - 1, -1, -1):
        acc += tl.sum(tl.load(X + i * BLOCK + tl.arange(0, BLOCK)))
    tl.store(Y, acc)


@triton.jit
def empty(X, Y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(4, N):
        acc += tl.load(X + i * BLOCK + at)
    tl.store(Y + at, acc)


@triton.jit
def packed(W, S, Y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    word = tl.load(W + at // 8)
    nibble = (word >> ((at % 8) * 4)) & 0xF
    value = (nibble - 8).to(tl.float32) * tl.load(S)
    tl.store(Y + at, value + at.to(tl.float32) * 0.5)


@triton.jit
def halves(X, Y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(X.to(tl.pointer_type(tl.float16)) + tl.cdiv(at, 2)).to(tl.float32)
    tl.store(Y + at, x * 2.0)


@triton.jit
def accumulated(A, B, C, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        part = tl.dot(tl.load(A + m[:, None] * K + start + k[None, :]), tl.load(B + (start + k)[:, None] * BN + n[None, :]))
        acc += part
    tl.store(C + m[:, None] * BN + n[None, :], acc)


@triton.jit
def skipped(X, Ids, Y, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    row = tl.load(Ids + pid)
    if row == -1:
        tl.store(Y + pid * BLOCK + at, 0.0)
        return
    x = tl.load(X + row * BLOCK + at)
    if MODE == 1:
        x = x * x
    elif MODE == 2:
        x = tl.exp(x) * x
    tl.store(Y + pid * BLOCK + at, x)


@triton.jit
def carried(X, Y, N, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    scale = 1
    for _ in range(N):
        scale *= 2
        tl.store(Y + at, tl.load(X + at * scale) + 1.0)


def launch(x, ids, y, n):
    for kernel in (backwards, empty, packed, halves, accumulated, skipped, carried):
        kernel[(n,)](x, ids, y)
    backwards[(1,)](x, y, n, 64)
    empty[(1,)](x, y, n, 64)
    packed[(1,)](x, x, y, 64)
    halves[(1,)](x, y, 64)
    scalars[(1,)](x, y, 0.5, n, 64)
    accumulated[(1,)](x, x, y, n, 16, 16, 16)
    carried[(1,)](x, y, n, 32)


@triton.heuristics({"HAS_BIAS": lambda args: args["Bias"] is not None})
@triton.jit
def optional(X, Bias, Y, BLOCK: tl.constexpr, HAS_BIAS: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + at)
    if HAS_BIAS:
        x += tl.load(Bias + at)
    tl.store(Y + at, x * 2.0)


def launch_optional(x, y, n):
    optional[(n,)](x, None, y, BLOCK=64)


@triton.jit
def scalars(X, Y, scale, N, BLOCK: tl.constexpr):
    """Arithmetic of single floats, by the compiler (which costs nothing) and in a run."""
    at = tl.arange(0, BLOCK)
    factor = scale * 1.44269504
    inverse = 1.0 / N
    half = BLOCK * 0.5
    total = tl.load(X + at) * (factor + inverse)
    for i in range(N):
        total = total * (scale * 2.0) + half
    tl.store(Y + at, total - (N - 1) / N)
