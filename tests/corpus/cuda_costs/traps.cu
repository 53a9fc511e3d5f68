// Small kernels whose cost is easily got wrong; tests/tools/kernels/test_cuda_cost.py runs them and counts.
#define WARP 32
#define SQUARE(a) ((a) * (a))

__device__ __forceinline__ float warp_sum(float v) {
  for (int offset = WARP / 2; offset > 0; offset >>= 1) v += __shfl_xor_sync(0xffffffff, v, offset);
  return v;
}

template <typename T>
__device__ T clamped(T v, T low, T high) {
  return min(max(v, low), high);
}

__device__ void split(int index, int width, int& row, int& column) {
  row = index / width;
  column = index % width;
}

// a loop that the threads share, in which integers are computed beside floats
__global__ void strided(const float* x, float* y, const int n, const float scale) {
  int touched = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const int j = (i * 3 + 1) % n;
    touched += j * 2;
    y[i] = x[i] * scale + x[j];
  }
  if (threadIdx.x == 0) y[0] += touched;
}

// the whole grid shares the loop
__global__ void grid_strided(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) y[i] = -x[i];
}

// four at a time, through a cast
__global__ void vectors(const float* __restrict__ x, float* __restrict__ y, int n) {
  const float4* x4 = reinterpret_cast<const float4*>(x);
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i * 4 >= n) return;
  float4 v = x4[i];
  v.x *= 2.0f;
  v.y = fmaf(v.y, v.y, 1.0f);
  v.z = fmaxf(v.z, 0.0f);
  v.w = v.w / 3.0f;
  *(float4*)&y[i * 4] = v;
  y[i * 4] = x4[i].w;
}

// the sum of a block: shared memory, a barrier, guards for one thread and for one warp
__global__ void block_sum(const float* x, float* out, int n) {
  __shared__ float partial[32];
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += SQUARE(x[blockIdx.x * n + i]);
  sum = warp_sum(sum);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = lane < blockDim.x / WARP ? partial[lane] : 0.0f;
    sum = warp_sum(sum);
    if (lane == 0) out[blockIdx.x] = rsqrtf(sum / n + 1e-6f);
  }
}

// halving what is left of the threads, each time another guard
__global__ void tree(const float* x, float* out) {
  __shared__ float s[64];
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  for (int left = 32; left > 0; left >>= 1) {
    if (threadIdx.x < left) s[threadIdx.x] += s[threadIdx.x + left];
    __syncthreads();
  }
  if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}

// tiles of a product in shared memory
template <int TILE>
__global__ void matmul(const float* a, const float* b, float* c, int k, int n) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < k; t += TILE) {
    as[threadIdx.y][threadIdx.x] = a[row * k + t + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < TILE; ++i) sum += as[threadIdx.y][i] * bs[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}

// branches of the compiler in branches of the compiler, and a value of the block in a formula
template <typename T, int MODE, bool BIAS>
__global__ void nested(const T* x, const T* bias, T* y, const int* lengths, int width) {
  const int length = lengths[blockIdx.x];
  const T* row = x + blockIdx.x * width;
  for (int i = 0; i < length; i++) {
    T v = row[i * blockDim.x + threadIdx.x];
    if constexpr (MODE == 0) {
      v = v * v;
    } else if constexpr (MODE == 1) {
      if constexpr (BIAS)
        v = clamped<T>(v + bias[threadIdx.x], T(0), T(6));
      else
        v = T(1) / (T(1) + exp(-v));
    } else {
      v = v - v * v * v;
    }
    y[blockIdx.x * width + i * blockDim.x + threadIdx.x] = v;
  }
}

// a test behind the body, a counter that goes down, compound assignment to memory, a conditional of the same cost
__global__ void behind(float* x, int n, bool twice) {
  int i = 0;
  do {
    x[blockIdx.x * 64 + threadIdx.x] *= 0.5f;
    i += 2;
  } while (i < n);
  for (int j = n; j > 0; j -= 3) {
    float v = x[threadIdx.x];
    v = v > 0 ? v + 1.0f : v - 1.0f;
    x[threadIdx.x] = v;
  }
  if (twice) x[threadIdx.x] += 1;
}

// pairs of halves, and what their functions cost
__global__ void halves(const half* x, const half2* w, half2* y, int n) {
  const half2* x2 = (const half2*)x;
  for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
    half2 v = x2[i];
    v = __hfma2(v, w[i], __hadd2(v, v));
    half low = __hmul(__low2half(v), __high2half(v));
    float wide = __half2float(low) * 2.0f;
    y[i] = __halves2half2(__float2half(wide), low);
  }
}

// warps that take rows, lanes that take columns; the last warp idles
__global__ void rows(const float* x, float* y, int columns) {
  const int warp_id = threadIdx.x >> 5, lane = threadIdx.x & 31;
  if (warp_id >= 3) return;
  int row, part;
  split(warp_id * 7, 7, row, part);
  float best = -INFINITY;
  for (int c = lane; c < columns; c += 32) best = fmaxf(best, x[row * columns + c] * 0.125f);
  for (int offset = 16; offset > 0; offset /= 2) best = fmaxf(best, __shfl_xor_sync(~0u, best, offset));
  if (lane == 0) atomicAdd(&y[row], best);
}

// a while loop that threads share, a lambda, a switch, pointers that move
__global__ void moving(const float* x, const int* kinds, float* y, int n, int kind) {
  const float* p = x + threadIdx.x;
  auto scaled = [&](float v, float by) { return v * by; };
  int i = threadIdx.x;
  while (i < n) {
    float v = *p;
    p += blockDim.x;
    switch (2) {
      case 1:
        v = v / v;
        break;
      case 2:
        v = scaled(v, 3.0f) + v;
        break;
      default:
        v = expf(v);
    }
    y[i] = v + kinds[i];
    i += blockDim.x;
  }
}

// two counters in one loop of constants, of which a later loop takes the second; a counter that the test changes
__global__ void counters(const float* x, float* y, int n) {
  float v = 0.0f;
  for (int i = 0, j = 0; i < 4; i++, j += 2) {
    if (i == 2) {
      for (int k = 0; k < j; k++) v += x[k * 64 + threadIdx.x];
    }
  }
  int left = 6;
  auto more = [&]() { left++; };
  more();
  for (int i = n - 1; i >= 0; i--) v *= 0.5f;
  for (int i = 0; i < n && n > 0; ++i) v = fmaf(v, 2.0f, 1.0f);
  y[threadIdx.x] = v - -v;
}

// what data decides is not counted
__global__ void by_data(const float* x, float* y) {
  float v = x[threadIdx.x];
  if (v > 0.5f) {
    v = expf(v) * v;
  }
  y[threadIdx.x] = v;
}

// the next turn's part is fetched in all turns but the last; before the loop the first is
__global__ void ahead(const float* x, float* y, int n) {
  float next = x[threadIdx.x];
  for (int k = 0; k < n; ++k) {
    float now = next;
    if (k + 1 < n) {
      next = x[(k + 1) * 64 + threadIdx.x];
    }
    y[k * 64 + threadIdx.x] = now * 2.0f;
  }
}

// two ways through the turns, by loops in one another; what the inner one counts is no test of the outer one
__global__ void last_turns(const float* x, float* y, int n, int m) {
  float v = 0;
  for (int k = 0; k < n; ++k) {
    for (int j = 0; j < m; ++j) {
      if (m > j + 3) {
        v += x[threadIdx.x];
      } else {
        v = v * x[threadIdx.x] + x[64 + threadIdx.x];
      }
    }
    if (k < n) v = v - 1.0f;
    if (k + 2 < n) y[threadIdx.x] = v;
  }
}

template <typename F>
__device__ void often(F f, int m) {
  for (int j = 0; j < m; ++j) f();
}

// turns within turns are counted; those of a loop elsewhere are not told, which is said
__global__ void within_turns(const float* x, float* y, int n, int m) {
  for (int k = 0; k < n; ++k) {
    if (k + 2 < n) {
      if (k + 1 < n) y[threadIdx.x] = x[threadIdx.x];
    }
    often([&] { if (k + 3 < n) y[threadIdx.x] = 1.0f; }, m);
  }
}
