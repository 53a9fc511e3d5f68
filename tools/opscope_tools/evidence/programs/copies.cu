// Four ways to move the same bytes through a GPU, for their machine code and, where there is a GPU, their time.
// nvcc -O3 -arch=native -o copies copies.cu && ./copies MEGABYTES REPETITIONS
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

// one float a thread, one load in flight
extern "C" __global__ void copy_scalar(const float *__restrict__ from, float *__restrict__ to, size_t count) {
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (at < count) to[at] = from[at];
}

// four floats a thread in one instruction
extern "C" __global__ void copy_vector(const float4 *__restrict__ from, float4 *__restrict__ to, size_t count) {
    size_t at = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (at < count) to[at] = from[at];
}

// four such loads in flight before the first store
extern "C" __global__ void copy_unrolled(const float4 *__restrict__ from, float4 *__restrict__ to, size_t count) {
    size_t step = (size_t)blockDim.x, at = blockIdx.x * step * 4 + threadIdx.x;
    if (at + 3 * step < count) {
        float4 one = from[at], two = from[at + step], three = from[at + 2 * step], four = from[at + 3 * step];
        to[at] = one, to[at + step] = two, to[at + 2 * step] = three, to[at + 3 * step] = four;
    }
}

// neighbours of a warp 32 floats apart: every lane touches a line of its own
extern "C" __global__ void copy_strided(const float *__restrict__ from, float *__restrict__ to, size_t count) {
    size_t rows = count / 32, thread = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    size_t at = thread % rows * 32 + thread / rows;
    if (thread < count) to[at] = from[at];
}

static void told(const char *name, size_t bytes, float best, float median) {
    printf("%s %zu %.1f %.1f\n", name, bytes, 2.0 * bytes / best / 1e6, 2.0 * bytes / median / 1e6);
}

int main(int argc, char **argv) {
    int devices = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) return fprintf(stderr, "copies: %s\n", error == cudaSuccess ? "no CUDA-capable device" : cudaGetErrorString(error)), 3;
    size_t bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 256) << 20, count = bytes / sizeof(float);
    int repetitions = argc > 2 ? atoi(argv[2]) : 10;
    if (repetitions > 100) repetitions = 100;
    float *from, *to;
    if (cudaMalloc(&from, bytes) != cudaSuccess || cudaMalloc(&to, bytes) != cudaSuccess) return fprintf(stderr, "copies: out of memory\n"), 4;
    cudaMemset(from, 1, bytes);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin), cudaEventCreate(&end);
    printf("kernel bytes best_MB/s median_MB/s (read and written)\n");
    for (int kind = 0; kind < 4; kind++) {
        float times[100];
        for (int turn = -2; turn < repetitions; turn++) {
            cudaEventRecord(begin);
            if (kind == 0) copy_scalar<<<(unsigned)((count + 255) / 256), 256>>>(from, to, count);
            if (kind == 1) copy_vector<<<(unsigned)((count / 4 + 255) / 256), 256>>>((float4 *)from, (float4 *)to, count / 4);
            if (kind == 2) copy_unrolled<<<(unsigned)((count / 16 + 255) / 256), 256>>>((float4 *)from, (float4 *)to, count / 4);
            if (kind == 3) copy_strided<<<(unsigned)((count + 255) / 256), 256>>>(from, to, count);
            cudaEventRecord(end), cudaEventSynchronize(end);
            float ms = 0;
            cudaEventElapsedTime(&ms, begin, end);
            if (turn >= 0) times[turn] = ms;
        }
        for (int one = 1; one < repetitions; one++)  // sorted by insertion
            for (int at = one; at > 0 && times[at] < times[at - 1]; at--) { float held = times[at]; times[at] = times[at - 1], times[at - 1] = held; }
        const char *names[] = {"copy_scalar", "copy_vector", "copy_unrolled", "copy_strided"};
        told(names[kind], bytes, times[0], times[repetitions / 2]);
    }
    return cudaGetLastError() == cudaSuccess ? 0 : 5;
}
