// Kernels whose instances differ in registers, shared memory and spills; compiled through the files that include it.
#pragma once
#include <cuda_fp16.h>

#include "shop/pair.h"

template <int N>
__global__ void acc(float* x) {
  float r[N];
  for (int i = 0; i < N; ++i) r[i] = x[i * 32 + threadIdx.x];
  for (int j = 0; j < 9; ++j)
    for (int i = 0; i < N; ++i) r[i] = r[i] * r[(i + j) % N];
  for (int i = 0; i < N; ++i) x[i * 32 + threadIdx.x] = r[i];
}

// 64 registers a thread at most: what does not fit is spilled
template <int N>
__global__ void __launch_bounds__(1024) crowded(float* x) {
  float r[N];
  for (int i = 0; i < N; ++i) r[i] = x[i * 1024 + threadIdx.x];
  for (int j = 0; j < 5; ++j)
    for (int i = 0; i < N; ++i) r[i] = r[i] * r[(i + j) % N] + r[(i + 3 * j) % N];
  for (int i = 0; i < N; ++i) x[i * 1024 + threadIdx.x] = r[i];
}

namespace shop {

template <typename T, int ROWS, Mode M = Mode::Sum>
__global__ void folded(T* out, Pair<T> in, const Pair<T>* others, int n) {
  __shared__ T part[ROWS][32];
  T s = in.first[threadIdx.x];
  for (int i = 0; i < n; ++i) {
    if constexpr (M == Mode::Sum)
      s = s + in.second[i * blockDim.x + threadIdx.x];
    else
      s = s * others[i].first[threadIdx.x];
  }
  part[threadIdx.x / 32][threadIdx.x % 32] = s;
  __syncthreads();
  out[threadIdx.x] = part[threadIdx.x % ROWS][threadIdx.x / ROWS % 32];
}

namespace {

__global__ void hidden(Pair<float>* p, Pair<float>* q) { p->first[threadIdx.x] = q->second[threadIdx.x]; }

}  // namespace

__global__ void shift(float* x, float by) { x[threadIdx.x] += by; }
__global__ void shift(double* x, double by) { x[threadIdx.x] = x[threadIdx.x] / by; }

}  // namespace shop

extern "C" __global__ void plain(int* x, int n) {
  __shared__ int tile[77];
  tile[threadIdx.x % 77] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = tile[n % 77];
}

static __global__ void local_to_file(float* x, float* y) { x[threadIdx.x] = y[threadIdx.x] * 3.f; }
