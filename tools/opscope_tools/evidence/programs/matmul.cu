// The product of two square matrices, three times: as the definition says, through shared memory, and on tensor cores.
// nvcc -O3 -arch=native -o matmul matmul.cu && ./matmul SIZE REPETITIONS
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

// each thread reads a whole row and a whole column: 2 loads for 2 operations
extern "C" __global__ void matmul_naive(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int size) {
    int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= size || column >= size) return;
    float sum = 0;
    for (int k = 0; k < size; k++) sum += a[row * size + k] * b[k * size + column];
    c[row * size + column] = sum;
}

// a block of 32 x 32 threads brings tiles of 32 x 32 into shared memory: each element is read size / 32 times instead of size times
extern "C" __global__ void matmul_tiled(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int size) {
    __shared__ float rows[32][32], columns[32][32];
    int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    for (int start = 0; start < size; start += 32) {
        rows[threadIdx.y][threadIdx.x] = a[row * size + start + threadIdx.x];
        columns[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * size + column];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < 32; k++) sum += rows[threadIdx.y][k] * columns[k][threadIdx.x];
        __syncthreads();
    }
    c[row * size + column] = sum;
}

// a warp multiplies tiles of 16 x 16 x 16 halves on the tensor cores
extern "C" __global__ void matmul_tensor(const half *__restrict__ a, const half *__restrict__ b, float *__restrict__ c, int size) {
    using namespace nvcuda;
    int row = (blockIdx.y * blockDim.y + threadIdx.y) * 16, column = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 16;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < size; k += 16) {
        wmma::load_matrix_sync(left, a + row * size + k, size);
        wmma::load_matrix_sync(right, b + k * size + column, size);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + row * size + column, sum, size, wmma::mem_row_major);
}

int main(int argc, char **argv) {
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) return fprintf(stderr, "matmul: %s\n", error == cudaSuccess ? "no CUDA-capable device" : cudaGetErrorString(error)), 3;
    int size = (argc > 1 ? atoi(argv[1]) : 2048) / 128 * 128, repetitions = argc > 2 ? atoi(argv[2]) : 10;
    size_t count = (size_t)size * size;
    float *a, *b, *c;
    half *ha, *hb;
    cudaMallocManaged(&a, count * 4), cudaMallocManaged(&b, count * 4), cudaMallocManaged(&c, count * 4);
    cudaMallocManaged(&ha, count * 2), cudaMallocManaged(&hb, count * 2);
    for (size_t at = 0; at < count; at++) {
        a[at] = (float)(at * 7 % 13) / 13 - 0.5f, b[at] = (float)(at * 5 % 11) / 11 - 0.5f;
        ha[at] = __float2half(a[at]), hb[at] = __float2half(b[at]);
    }
    double want = 0;
    for (int k = 0; k < size; k++) want += (double)a[(size_t)(size - 1) * size + k] * b[(size_t)k * size + 3];
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    printf("kernel size best_GFLOP/s median_GFLOP/s error\n");
    for (int kind = 0; kind < 3; kind++) {
        float times[100];
        if (repetitions > 100) repetitions = 100;
        for (int turn = -1; turn < repetitions; turn++) {
            cudaEventRecord(begin);
            if (kind == 0) matmul_naive<<<dim3(size / 32, size / 32), dim3(32, 32)>>>(a, b, c, size);
            if (kind == 1) matmul_tiled<<<dim3(size / 32, size / 32), dim3(32, 32)>>>(a, b, c, size);
            if (kind == 2) matmul_tensor<<<dim3(size / 64, size / 64), dim3(128, 4)>>>(ha, hb, c, size);
            cudaEventRecord(end), cudaEventSynchronize(end);
            float ms = 0;
            cudaEventElapsedTime(&ms, begin, end);
            if (turn >= 0) times[turn] = ms;
        }
        for (int one = 1; one < repetitions; one++)
            for (int at = one; at > 0 && times[at] < times[at - 1]; at--) { float held = times[at]; times[at] = times[at - 1], times[at - 1] = held; }
        const char *names[] = {"matmul_naive", "matmul_tiled", "matmul_tensor"};
        double flops = 2.0 * size * size * size;
        printf("%s %d %.1f %.1f %.4f\n", names[kind], size, flops / times[0] / 1e6, flops / times[repetitions / 2] / 1e6, fabs(c[(size_t)(size - 1) * size + 3] - want));
    }
    return cudaGetLastError() == cudaSuccess ? 0 : 5;
}
