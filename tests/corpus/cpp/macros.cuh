#define EXPORT_API __attribute__((visibility("default"))) //= macro EXPORT_API
#define LIB_NAMESPACE_BEGIN(name) namespace name { /* = macro LIB_NAMESPACE_BEGIN */
#define MAKE_STRUCT(name) /* = macro MAKE_STRUCT */ \
  struct name { /* = not here */ \
    int x; \
  };

DISABLE_WARNING(4127)

LIB_NAMESPACE_BEGIN(LIB_NAMESPACE)
LIB_NAMESPACE_BEGIN(detail)
class EXPORT_API Exported final : public Other { //= class LIB_NAMESPACE::detail::Exported
 public:
  LIB_DISABLE_COPY(Exported);
  DEVICE_INLINE Exported(int a) {} //= function LIB_NAMESPACE::detail::Exported::Exported
  LIB_ARG(int, size) = 3;
  EXPORT_API void call() const noexcept override; //- function LIB_NAMESPACE::detail::Exported::call
};
struct EXPORT_API(1) alignas(16) __attribute__((packed)) Packed { int a; }; //= struct LIB_NAMESPACE::detail::Packed
LIB_NAMESPACE_END(detail)
class __declspec(dllexport) Outside LIB_FINAL { }; //= class LIB_NAMESPACE::Outside
LIB_NAMESPACE_END(LIB_NAMESPACE)

MAKE_STRUCT(Made)
TORCH_LIBRARY(mine, m) { m.def("f(Tensor a) -> Tensor"); }
TEST(Group, Name) { struct InTest { int x; }; }
NOINLINE(std::pair<int, int>) wrapped(int a) { return {a, a}; } //= function wrapped

const char* text = R"x( struct InString { void f() { )x";
const char* brace = "{ struct InString {"; char c = '{', d = '\''; int big = 1'000'000;

template <typename scalar_t, int BLOCK>
__global__ void __launch_bounds__(BLOCK, 2) kernel(const scalar_t* __restrict__ x, int n) { //= function kernel
  __shared__ float tile[BLOCK];
}
static __device__ __forceinline__ float4 load(const float* p) { return *p; } //= function load
KERNEL void BOUNDS(128) other_kernel(int n) { } //= function other_kernel
__constant__ float table[3] = {1, 2, 3};
__global__ void declared(float*); //- function declared

void launch(cudaStream_t stream, int n) { //= function launch
  kernel<float, 128><<<dim3((n + 127) / 128), 128, 0, stream>>>(nullptr, n);
  auto f = [&](int i) { return i < n; };
  struct Local { int a; void method() {} }; //= struct launch::Local //= function launch::Local::method
}
static Holder holder(1, 2), other{3};
static Thing thing("name", make());
