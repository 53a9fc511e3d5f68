// A tiled matrix product over shared memory.
#include <cuda_runtime.h>
#define DIVIDE(x, size) (((x) + (size) - 1) / (size))
constexpr int kTile = 32;

/* __global__ void commented_out(float* x) {} */
__global__ void declared_elsewhere(float* x);

template <typename T, int BLOCK_M, int BLOCK_N = 64>
__global__ void __launch_bounds__(256) sgemm_kernel(  // expect: role kernel
    const T* __restrict__ a,
    const T* __restrict__ b, T* c, int m, int n, int k)
{
    __shared__ float a_tile[BLOCK_M][kTile];  // expect: shared BLOCK_M * 32 * 4
    __shared__ float b_tile[kTile][kTile + 1];  // expect: shared 4224
    extern __shared__ char scratch[];  // expect: shared given at the launch
    static_assert(BLOCK_M % 16 == 0, "whole fragments");  // expect: constraint BLOCK_M % 16 == 0
    const int row = blockIdx.y * BLOCK_M + threadIdx.y;  // expect: mapping blockIdx.y, threadIdx.y -> row
    int col = blockIdx.x * BLOCK_N + threadIdx.x;  // expect: mapping blockIdx.x, threadIdx.x -> col
    float sum = 0;
    for (int at = 0; at < k; at += kTile) {  // expect: loop cdiv({k}, 32)
        a_tile[threadIdx.y][threadIdx.x] = a[row * k + at + threadIdx.x];  // expect: load a
        b_tile[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * n + col];  // expect: load b
        __syncthreads();  // expect: instruction barrier
#if __CUDA_ARCH__ >= 800
        if (row < m) {
#else
        if (row <= m) {
#endif
            for (int i = 0; i < kTile; ++i) sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];  // expect: loop 32
        }
        __syncthreads();
    }
    c[row * n + col] = sum;  // expect: store c
}

void sgemm(const float* a, const float* b, float* c, int m, int n, int k, cudaStream_t stream) {
    TORCH_CHECK(k % 32 == 0, "k must be a multiple of 32");  // expect: constraint k % 32 == 0
    dim3 grid(DIVIDE(n, 64), (m + 127) / 128);
    const int threads = 16;
    dim3 block;
    block.x = threads;
    block.y = threads;
    size_t smem = 2 * kTile * sizeof(float);
    sgemm_kernel<float, 128><<<grid, block, smem, stream>>>(a, b, c, m, n, k);  // expect: tiles cdiv({n}, 64) * cdiv({m}, 128)
}
