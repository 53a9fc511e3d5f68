// Checks of every kind; TORCH_CHECK(in, a, comment) counts for nothing.
#include <torch/extension.h>

#define TILE 32
#define MASK 0xff
#define CHECK_SHAPE(x, n) TORCH_CHECK(x.dim() == n, #x " has the wrong shape")  // expect: 6 TORCH_CHECK
#define MULTI(x)                 \
  do {                           \
    AT_ASSERT(x.is_cuda());      \
  } while (0)  // expect: 9 AT_ASSERT

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * TILE;
const char* text = "static_assert(false)";

template <int N, typename T>
__global__ void __launch_bounds__(kThreads, 2) scale(T* x, int n) {  // expect: 17 launch_bounds
  static_assert(N % 4 == 0, "four at a time");  // expect: 18 static_assert
#if __CUDA_ARCH__ >= 800  // expect: 19 capability
  x[threadIdx.x] *= N;
#endif
}

void run(torch::Tensor x, int n) {
  TORCH_CHECK(x.is_contiguous(),  // expect: 25 TORCH_CHECK
              "contiguous ", "please");
  TORCH_CHECK((Check<2, 3>::ok), "both, of them");  // expect: 27 TORCH_CHECK
  CHECK_SHAPE(x, 2);  // expect: 28 CHECK_SHAPE
  auto* props = at::cuda::getCurrentDeviceProperties();
  if (props->major < 8) {  // expect: 30 capability
    throw std::runtime_error("old");
  }
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale", [&] {  // expect: 33 dtype
    scale<4><<<1, kThreads>>>(x.data_ptr<scalar_t>(), n);
  });
}
