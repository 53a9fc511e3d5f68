#include "kernels/registers.cuh"

struct Wide {
  double a, b;
  __device__ Wide operator+(Wide o) const { return {a + o.a, b / o.b}; }
  __device__ Wide operator*(Wide o) const { return {a * o.a, b}; }
};

template __global__ void acc<4>(float*);
template __global__ void acc<16>(float*);
template __global__ void acc<40>(float*);
template __global__ void acc<96>(float*);
template __global__ void crowded<32>(float*);
template __global__ void crowded<100>(float*);
template __global__ void shop::folded<float, 4>(float*, shop::Pair<float>, const shop::Pair<float>*, int);
template __global__ void shop::folded<float, 8, shop::Mode::Product>(float*, shop::Pair<float>,
                                                                    const shop::Pair<float>*, int);
template __global__ void shop::folded<__half, 16>(__half*, shop::Pair<__half>, const shop::Pair<__half>*, int);
template __global__ void shop::folded<Wide, 2>(Wide*, shop::Pair<Wide>, const shop::Pair<Wide>*, int);

void launches(float* x, shop::Pair<float>* p, int* n) {
  acc<64><<<1, 32>>>(x);
  shop::shift<<<1, 256>>>(x, 2.f);
  shop::shift<<<1, 256>>>(reinterpret_cast<double*>(x), 2.0);
  shop::hidden<<<1, 128>>>(p, p);
  plain<<<1, 64>>>(n, 3);
  local_to_file<<<1, 32>>>(x, x);
}
