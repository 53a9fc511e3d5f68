"""Small kernels whose facts are easily mixed up: ids, roots, branches, blocks and loops; each launched below."""

import triton
import triton.language as tl


@triton.jit
def second_axis(X, Y, B: tl.constexpr):
    row = tl.program_id(axis=1)
    at = row * B + tl.arange(0, B)
    tl.store(Y + at, tl.load(X + at))


@triton.jit
def rebound(X, Y, Z, B: tl.constexpr):
    at = tl.arange(0, B)
    p = X + at
    a = tl.load(p)
    p = Y + at
    b = tl.load(p)
    tl.store(Z + at, a + b)


@triton.jit
def offset_first(n, X, Y, B: tl.constexpr):
    at = n + tl.arange(0, B)
    tl.store(Y + at, tl.load(at + X))
    tl.store(Y, tl.load(X))


@triton.jit
def sided(X, Bias, Y, B: tl.constexpr, HAS_BIAS: tl.constexpr, TRANSPOSED: tl.constexpr):
    at = tl.arange(0, B)
    if TRANSPOSED:
        p = X + at * 2
    else:
        q = Y + at
    v = tl.load(X + at)
    if not (HAS_BIAS and TRANSPOSED):
        v = v + 1.0
    if HAS_BIAS:
        v = v + tl.load(Bias + at)
    if TRANSPOSED:
        v = v + tl.load(p)
    else:
        tl.store(q, v)
        return
    tl.store(Y + at, v)


@triton.jit
def contrary(X, Y, B: tl.constexpr, ON: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(X + at)
    if ON:
        v = v * 2.0
    inner(Y, at, v, ON)


@triton.jit
def inner(Y, at, v, FLAG: tl.constexpr):
    if not FLAG:
        tl.store(Y + at, v)
    else:
        tl.store(Y + at, v + 1.0)


@triton.jit
def blocks(X, Y, N, B: tl.constexpr):
    p = tl.make_block_ptr(X, (N, N), (N, 1), (0, 0), (B, B), (1, 0))
    d = tl.make_tensor_descriptor(Y, [N, N], [N, 1], [B, B])
    v = tl.load(p, boundary_check=(0, 1))
    d.store([0, 0], v)
    tl.store(p, d.load([0, B]), boundary_check=(0,))


@triton.jit
def handed_descriptor(desc, Y, K, B: tl.constexpr):
    acc = tl.zeros((B,), dtype=tl.float32)
    for k in range(0, K, B):
        acc += tl.sum(desc.load([0, k]), axis=1)
    tl.store(Y + tl.arange(0, B), acc)


@triton.jit
def stepped(X, Y, BM: tl.constexpr, S: tl.constexpr):
    off = 0
    acc = 0.0
    while off + S <= BM:
        acc += tl.sum(tl.load(X + off + tl.arange(0, S)))
        off += S
    tl.store(Y, acc)


@triton.jit
def unread(X, Y, N, B: tl.constexpr):
    at = tl.arange(0, B)
    acc = tl.zeros((B,), dtype=tl.float32)
    for i in range(N):
        acc = elsewhere(acc, X + i)
    tl.store(Y + at, acc)


@triton.jit
def wrapped(X, Y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + at, tl.load(X + at))


@triton.jit
def by_default(X, Y, B: tl.constexpr, FLAG: tl.constexpr = False):
    at = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(X + at)
    if FLAG:
        v = v * 2.0
    tl.store(Y + at, v)


tuned = triton.autotune(configs=[triton.Config({"B": 64}), triton.Config({"B": 128})], key=["B"])(wrapped)


@triton.autotune(configs=somewhere.configs(), key=["B"])
@triton.jit
def untold(X, Y, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(Y + at, tl.load(X + at))


def run_tuned(x, y, n):
    tuned[(n,)](x, y)


def run_second(x, y):
    kernel = second_axis
    kernel[(1, 8)](x, y, 64)


def run_rebound(x, y, z, fast):
    kernel = rebound
    kernel[(3,)](x, y, z, 64)
    if fast:
        kernel = offset_first
    else:
        kernel = stepped
    kernel[(5,)](1, x, y, 64)


def run_by_default(*arguments):
    by_default[(8,)](*arguments)


def run_others(x, y, n, desc):
    sided[(1,)](x, x, y, 64, n > 4, n > 5)
    contrary[(1,)](x, y, 64, n > 4)
    blocks[(1,)](x, y, n, 64)
    handed_descriptor[(1,)](desc, y, n, 64)
    unread[(1,)](x, y, n, 64)


@triton.jit
def decides_and_is_stored(X, Y, M, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(X + at)
    t = tl.exp2(x) * 2.0
    tl.store(Y + at, t)
    tl.store(M + at, 1, mask=t > 0)


@triton.jit
def counts_what_is_met(X, Y, N: tl.constexpr):
    at = tl.arange(0, N)
    u = tl.where(tl.load(X + at) > 0.0, 1.0, 0.0)
    tl.store(Y, tl.sum(u))


@triton.jit
def only_an_index(I, X, Y, N: tl.constexpr):
    at = tl.arange(0, N)
    i = tl.load(I + at)
    tl.store(Y + at, tl.load(X + i * 4 + 1, mask=i * 2 < 64))


@triton.jit
def sums_what_is_loaded(X, Y, N: tl.constexpr):
    tl.store(Y, tl.sum(tl.load(X + tl.arange(0, N))))


def launch_sums(X, Y, M):
    decides_and_is_stored[(1,)](X, Y, M, N=64)
    counts_what_is_met[(1,)](X, Y, N=64)
    only_an_index[(1,)](M, X, Y, N=64)
    sums_what_is_loaded[(1,)](X, Y, N=64)
