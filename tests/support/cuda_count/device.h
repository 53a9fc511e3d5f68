// CUDA's language on the host, counting: every arithmetic operator of float, half and their vectors adds to `flops`, and
// the compiler's own instrumentation of loads and stores (runtime.cpp) counts the bytes that touch `buffer`s. Nothing of
// opscope is used. Threads of a block are fibres that stop at barriers and shuffles.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <type_traits>

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
constexpr int warpSize = 32;
extern long long flops;
void* arena(size_t bytes);
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);
void wait_block();
void wait_warp();
char* slot(int lane);
unsigned thread_number();

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __restrict__
#define __shared__ static
#define __constant__ const
#define __launch_bounds__(...)
#define __syncthreads() wait_block()
#define __syncwarp(...) wait_warp()

template <class S, int Tag>
struct Number {
  S raw;
  Number() = default;
  constexpr Number(const Number& other) : raw(other.raw) {}  // not trivial: the compiler tells of plain loads and stores
  constexpr Number& operator=(const Number& other) { raw = other.raw; return *this; }
  template <class A, class = std::enable_if_t<std::is_arithmetic_v<A>>>
  constexpr Number(A value) : raw(S(value)) {}
  template <class T, int U>
  constexpr Number(Number<T, U> other) : raw(S(float(other.raw))) {}
  template <class A, class = std::enable_if_t<std::is_arithmetic_v<A>>>
  constexpr explicit operator A() const { return A(raw); }
};
using Half = Number<_Float16, 1>;
using Float = Number<float, 2>;
using Double = Number<double, 3>;

template <class T> struct is_number : std::false_type {};
template <class S, int U> struct is_number<Number<S, U>> : std::true_type {};
template <class A, class B>
using if_number = std::enable_if_t<is_number<A>::value || is_number<B>::value>;
template <class A> constexpr auto raw(A a) {
  if constexpr (std::is_same_v<A, Half>) return float(a.raw);
  else if constexpr (is_number<A>::value) return a.raw;
  else return a;
}
template <class A, class B> struct wider { using type = std::conditional_t<is_number<A>::value, A, B>; };
template <class S, int U, class T, int V>
struct wider<Number<S, U>, Number<T, V>> { using type = std::conditional_t<(U > V), Number<S, U>, Number<T, V>>; };

#define COUNTED(op)                                                                      \
  template <class A, class B, class = if_number<A, B>>                                   \
  typename wider<A, B>::type operator op(A a, B b) {                                     \
    flops += 1;                                                                          \
    return typename wider<A, B>::type(raw(a) op raw(b));                                 \
  }                                                                                      \
  template <class S, int U, class B>                                                     \
  Number<S, U>& operator op##=(Number<S, U>& a, B b) {                                   \
    flops += 1;                                                                          \
    a.raw = S(a.raw op raw(b));                                                          \
    return a;                                                                            \
  }
COUNTED(+) COUNTED(-) COUNTED(*) COUNTED(/)
#define FREE(op) \
  template <class A, class B, class = if_number<A, B>> bool operator op(A a, B b) { return raw(a) op raw(b); }
FREE(<) FREE(<=) FREE(>) FREE(>=) FREE(==) FREE(!=)
template <class S, int U> Number<S, U> operator-(Number<S, U> a) { flops += 1; return Number<S, U>(-raw(a)); }

#define ONE(name, how) \
  template <class S, int U> Number<S, U> name(Number<S, U> a) { flops += 1; double x = double(a.raw); return Number<S, U>(how); }
ONE(expf, std::exp(x)) ONE(__expf, std::exp(x)) ONE(exp, std::exp(x)) ONE(exp2f, std::exp2(x)) ONE(logf, std::log(x))
ONE(__logf, std::log(x)) ONE(log1pf, std::log1p(x)) ONE(sqrtf, std::sqrt(x)) ONE(rsqrtf, 1 / std::sqrt(x))
ONE(sinf, std::sin(x)) ONE(cosf, std::cos(x)) ONE(tanhf, std::tanh(x)) ONE(erff, std::erf(x)) ONE(__frcp_rn, 1 / x)
ONE(hexp, std::exp(x)) ONE(hrsqrt, 1 / std::sqrt(x)) ONE(hrcp, 1 / x) ONE(sqrt, std::sqrt(x)) ONE(rsqrt, 1 / std::sqrt(x))
#define NONE(name, how) \
  template <class S, int U> Number<S, U> name(Number<S, U> a) { double x = double(a.raw); return Number<S, U>(how); }
NONE(fabsf, std::fabs(x)) NONE(floorf, std::floor(x)) NONE(rintf, std::rint(x)) NONE(__habs, std::fabs(x)) NONE(roundf, std::round(x))
#define TWO_FREE(name, op)                                                                           \
  template <class A, class B, class = if_number<A, B>> typename wider<A, B>::type name(A a, B b) {   \
    return typename wider<A, B>::type(raw(a) op raw(b) ? raw(a) : raw(b));                           \
  }
TWO_FREE(fmaxf, >) TWO_FREE(fminf, <) TWO_FREE(__hmax, >) TWO_FREE(__hmin, <)
using std::exp, std::sqrt;
inline int max(int a, int b) { return a > b ? a : b; }
inline int min(int a, int b) { return a < b ? a : b; }
template <class A, class B, class = if_number<A, B>> auto max(A a, B b) { return fmaxf(a, b); }
template <class A, class B, class = if_number<A, B>> auto min(A a, B b) { return fminf(a, b); }
template <class A, class B> auto powf(A a, B b) { flops += 1; return Float(std::pow(double(raw(a)), double(raw(b)))); }
template <class A, class B> auto __fdividef(A a, B b) { flops += 1; return Float(raw(a) / raw(b)); }
template <class A, class B, class C> auto fmaf(A a, B b, C c) { flops += 2; return Float(raw(a) * raw(b) + raw(c)); }
template <class A, class B, class C> auto fma(A a, B b, C c) { return fmaf(a, b, c); }
template <class A> bool isnan(A a) { return raw(a) != raw(a); }

struct Half2 { Half x, y; };
inline Half2 operator+(Half2 a, Half2 b) { return {a.x + b.x, a.y + b.y}; }
inline Half2 operator*(Half2 a, Half2 b) { return {a.x * b.x, a.y * b.y}; }
inline Half __float2half(Float a) { return Half(a); }
inline Half __float2half_rn(Float a) { return Half(a); }
inline Float __half2float(Half a) { return Float(a); }
inline Half __low2half(Half2 a) { return a.x; }
inline Half __high2half(Half2 a) { return a.y; }
inline Float __low2float(Half2 a) { return a.x; }
inline Float __high2float(Half2 a) { return a.y; }
inline Half2 __halves2half2(Half a, Half b) { return {a, b}; }
inline Half2 __floats2half2_rn(Float a, Float b) { return {Half(a), Half(b)}; }
inline Half2 __half2half2(Half a) { return {a, a}; }
inline Half __hadd(Half a, Half b) { return a + b; }
inline Half __hsub(Half a, Half b) { return a - b; }
inline Half __hmul(Half a, Half b) { return a * b; }
inline Half __hfma(Half a, Half b, Half c) { return a * b + c; }
inline Half2 __hadd2(Half2 a, Half2 b) { return a + b; }
inline Half2 __hmul2(Half2 a, Half2 b) { return a * b; }
inline Half2 __hfma2(Half2 a, Half2 b, Half2 c) { return a * b + c; }
inline Half2 __hmax2(Half2 a, Half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline Half2 __hmin2(Half2 a, Half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
inline Half __hneg(Half a) { return -a; }
inline Half2 __hneg2(Half2 a) { return {-a.x, -a.y}; }
inline Half2 h2exp(Half2 a) { return {hexp(a.x), hexp(a.y)}; }
inline Half2 h2rcp(Half2 a) { return {hrcp(a.x), hrcp(a.y)}; }
inline Half2 __float2half2_rn(Float a) { return {Half(a), Half(a)}; }
inline bool __hlt(Half a, Half b) { return a < b; }

#define VECTOR(name, T)                              \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; }; \
  struct alignas(4 * sizeof(T)) name##4 { T x, y, z, w; };
VECTOR(float, Float) VECTOR(int, int) VECTOR(uint, unsigned)
inline float4 make_float4(Float a, Float b, Float c, Float d) { return {a, b, c, d}; }
inline float2 make_float2(Float a, Float b) { return {a, b}; }
inline float2 __half22float2(Half2 a) { return {a.x, a.y}; }
inline Half2 __float22half2_rn(float2 a) { return {Half(a.x), Half(a.y)}; }

template <class T> T exchanged(T value, int from) {
  std::memcpy(slot(thread_number() % 32), &value, sizeof(T));
  wait_warp();
  T other = value;
  if (from >= 0 && from < 32) std::memcpy(&other, slot(from), sizeof(T));
  wait_warp();
  return other;
}
template <class T> T __shfl_xor_sync(unsigned, T v, int mask, int = 32) { return exchanged(v, int(thread_number() % 32) ^ mask); }
template <class T> T __shfl_down_sync(unsigned, T v, int by, int = 32) { return exchanged(v, int(thread_number() % 32) + by); }
template <class T> T __shfl_sync(unsigned, T v, int lane, int = 32) { return exchanged(v, lane); }
template <class T> T __ldg(const T* p) { return *p; }
template <class T, class V> T atomicAdd(T* p, V v) { T old = *p; *p = old + v; return old; }

// what a case hands to its kernel
template <class T> T* buffer(size_t count) {
  T* made = static_cast<T*>(arena(count * sizeof(T)));
  for (size_t i = 0; i < count; ++i) std::memset(static_cast<void*>(made + i), 0, sizeof(T));
  return made;
}
template <class T> T* rising(size_t count, int below) {
  T* made = buffer<T>(count);
  for (size_t i = 0; i < count; ++i) made[i] = T(int(i) % below);
  return made;
}
void begin();
void report(const char* name);

#define float Float
#define double Double
#define half Half
#define half2 Half2
#define __half Half
#define __half2 Half2
