"""TileLang kernels of our own, as people write them; never run."""

import tilelang
import tilelang.language as T


@tilelang.jit
def matmul(M, N, K, block_M, block_N, block_K, dtype=T.float16, accum_dtype=T.float32, num_stages=3):
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[ko * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            for i, j in T.Parallel(block_M, block_N):
                C_local[i, j] = T.max(C_local[i, j], 0)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilelang.jit
def softmax(M, N, block_M, causal=False, dtype=T.bfloat16):
    rows = T.dynamic("rows")

    @T.macro
    def scaled(x, factor):
        for i, j in T.Parallel(block_M, N):
            x[i, j] = x[i, j] * factor

    @T.prim_func
    def main(X: T.Tensor((rows, N), dtype), Y: T.Tensor((rows, N), dtype), bias: T.Tensor((N,), T.float32)):
        with T.Kernel(T.ceildiv(rows, block_M), threads=256) as row:
            x = T.alloc_fragment((block_M, N), T.float32)
            most = T.alloc_fragment((block_M,), T.float32)
            total = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[row * block_M : (row + 1) * block_M, :], x)
            scaled(x, 0.5)
            for i, j in T.Parallel(block_M, N):
                if causal:
                    x[i, j] = T.if_then_else(j <= row * block_M + i, x[i, j], -T.infinity(T.float32))
                else:
                    x[i, j] = x[i, j] + bias[j]
            T.reduce_max(x, most, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp2(x[i, j] - most[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                if row * block_M + i < rows:
                    Y[row * block_M + i, j] = x[i, j] / total[i]

    return main


@tilelang.jit
def steps(N, block, turns):
    @T.prim_func
    def main(X: T.Tensor((N,), "float32"), W: T.Tensor((4, N), "float32"), Y: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as b:
            acc = T.alloc_fragment((block,), "float32")
            T.clear(acc)
            for k in T.serial(4):
                if k == 0:
                    for i in T.Parallel(block):
                        acc[i] += X[b * block + i]
                else:
                    for i in T.Parallel(block):
                        acc[i] += W[k, b * block + i] * X[b * block + i]
            for _ in T.serial(1, turns):
                for i in T.Parallel(block):
                    acc[i] *= 1.5
            for i in T.Parallel(block):
                Y[b * block + i] = acc[i]

    return main


@tilelang.jit
def two_grids(N, parts, block):
    @T.prim_func
    def main(X: T.Tensor((N,), "float16"), P: T.Tensor((parts, N), "float16"), Y: T.Tensor((N,), "float16")):
        with T.Kernel(N // block, parts, threads=64) as (b, p):
            x = T.alloc_shared((block,), "float16")
            T.copy(X[b * block], x)
            T.copy(x, P[p, b * block])
        with T.Kernel(N // block, threads=64) as b:
            y = T.alloc_fragment((block,), "float32")
            T.clear(y)
            for p in T.serial(parts):
                for i in T.Parallel(block):
                    y[i] += P[p, b * block + i]
            T.copy(y, Y[b * block])

    return main


@tilelang.jit
def warps(N):
    @T.prim_func
    def main(X: T.Tensor((N, 64), "float16"), Y: T.Tensor((N, 64), "float16")):
        with T.Kernel(N, threads=192) as b:
            tx = T.get_thread_binding()
            x = T.alloc_local((1,), "float32")
            if tx < 64:
                x[0] = X[b, tx]
                Y[b, tx] = x[0] + x[0]
            elif tx < 128:
                x[0] = X[b, tx - 64]
            else:
                T.sync_threads()

    return main
