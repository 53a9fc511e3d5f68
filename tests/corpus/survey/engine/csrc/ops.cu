#include <torch/library.h>
// __global__ void not_a_kernel(int *x) {}
__global__ void __launch_bounds__(256) store_kv_cache_kernel(const float *k, float *cache) {}
template <typename T>
__global__ void persistent_decode_kernel(T *x) {}
static int level() { return std::getenv("POCKET_CUDA_LEVEL") != nullptr; }
TORCH_LIBRARY(pocket, m) { m.def("store(Tensor k) -> ()"); }
