#include "defines.h"

template <int kBlockM_, int kBlockN_, int kNWarps_ = 4>
struct ShopTraits {
    static constexpr int kBlockM = kBlockM_;
    static constexpr int kBlockN = kBlockN_;
    static constexpr int kNThreads = kNWarps_ * 32;
    static constexpr int kSmemSize = kBlockM * kBlockN * 2;
};

template <typename Traits>
__device__ void compute(const Params& params) {
    const int m_block = blockIdx.x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(0), "l"(params.ptr));
}

SHOP_KERNEL(attend_kernel, bool Causal) {
    compute<Traits>(params);
}

SHOP_GLOBAL void fill_kernel(float* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // expect: mapping blockIdx.x, blockDim.x, threadIdx.x -> i
    if (i < n) x[i] = 1.f;  // expect: store x
}

template <typename Traits, bool Causal>
void run(Params& params, cudaStream_t stream) {
    const int blocks = (params.seq + Traits::kBlockM - 1) / Traits::kBlockM;
    auto kernel = &attend_kernel<Traits, Causal && Traits::kBlockM <= 128>;
    kernel<<<dim3(blocks, params.heads), Traits::kNThreads, Traits::kSmemSize, stream>>>(params);  // expect: tiles cdiv({params.seq}, Traits::kBlockM) * {params.heads}
}

void pick(Params& params, cudaStream_t stream) {
    constexpr int Rows = 128;
    run<ShopTraits<Rows, 64>, true>(params, stream);
    run<ShopTraits<64, 32, 8>, false>(params, stream);
}

void fill(float* x, int n, cudaStream_t stream) {
    cudaLaunchConfig_t config;
    config.gridDim = dim3(ceil_div(n, 256));
    config.blockDim = 256;
    config.dynamicSmemBytes = 0;
    cudaLaunchKernelEx(&config, fill_kernel, x, n);  // expect: tiles cdiv({n}, 256)
}
