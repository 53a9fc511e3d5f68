"""cuTile kernels of our own, as people write them; never run."""

import cuda.tile as ct

ConstInt = ct.Constant[int]


def swizzled(M, N, TM: ConstInt, TN: ConstInt, GROUP):
    bid = ct.bid(0)
    rows = ct.cdiv(M, TM)
    columns = ct.cdiv(N, TN)
    group = GROUP * columns
    first = bid // group * GROUP
    size = min(rows - first, GROUP)
    return first + bid % size, bid % group // size


@ct.kernel(occupancy=2)
def matmul(A, B, C, TM: ConstInt, TN: ConstInt, TK: ConstInt):
    m, n = swizzled(A.shape[0], B.shape[1], TM, TN, 8)
    acc = ct.full((TM, TN), 0, dtype=ct.float32)
    for k in range(ct.num_tiles(A, axis=1, shape=(TM, TK))):
        a = ct.load(A, index=(m, k), shape=(TM, TK))
        b = ct.load(B, index=(k, n), shape=(TK, TN))
        acc = ct.mma(a, b, acc)
    ct.store(C, index=(m, n), tile=ct.astype(acc, C.dtype))


@ct.kernel
def softmax(X, Y, N: ConstInt, TILE: ConstInt, SCALED: ct.Constant[bool], scale: float):
    row = ct.bid(0)
    columns = ct.arange(TILE, dtype=ct.int32)
    x = ct.gather(X, (row, columns), padding_value=0)
    x = ct.astype(x, ct.float32)
    if SCALED:
        x = x * scale
    x = ct.where(columns < N, x, -1e30)
    x = ct.exp(x - ct.max(x, axis=0, keepdims=True))
    y = ct.truediv(x, ct.sum(x, axis=0, keepdims=True))
    ct.scatter(Y, (row, columns), ct.astype(y, Y.dtype))


@ct.kernel
def transposed(X, Y, TM: ConstInt, TN: ConstInt):
    i, j = ct.bid(0), ct.bid(1)
    x = ct.load(X, index=(i, j), shape=(TM, TN))
    ct.store(Y, index=(j, i), tile=ct.transpose(x))


@ct.kernel
def filled(Y, COUNT, TILE: ConstInt):
    places = ct.bid(0) * TILE + ct.arange(TILE, dtype=ct.int32)
    ct.scatter(Y, places, 1.0)
    ct.atomic_add(COUNT, ct.bid(0), 1.0)


@ct.kernel
def folded(A, B, C, T: ConstInt, TWICE: ct.Constant[bool] = False):
    a = ct.load(A, index=(ct.bid(0), 0), shape=(T, 16))
    c = a @ ct.load(B, index=(0, 0), shape=(16, 32), order="F")
    if TWICE:
        c = c + c
    most = ct.full((1,), ct.sum(c) + 1.0, dtype=ct.float32)
    ct.store(C, index=(ct.bid(0), 0), tile=c * most)


def next_power_of_2(n):
    n -= 1
    n |= n >> 1
    n |= n >> 2
    n |= n >> 4
    n |= n >> 8
    n |= n >> 16
    return n + 1


def run(stream, a, b, c, x, y):
    m, n = c.shape
    grid = (ct.cdiv(m, 128) * ct.cdiv(n, 64), 1, 1)
    ct.launch(stream, grid, matmul, (a, b, c, 128, 64, 32))
    ct.launch(stream, (x.shape[0],), softmax, (x, y, x.shape[1], next_power_of_2(x.shape[1]), True, 0.5))
