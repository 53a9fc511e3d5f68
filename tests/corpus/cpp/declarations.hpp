// What a line defines stands behind `//=` on it, what it only declares behind `//-`: kind and qualified name.
#pragma once //
#include <vector>

namespace outer { //= namespace outer
class Forward; //- class outer::Forward
enum class Later : int; //- enum outer::Later
namespace inner::deep { //= namespace outer::inner::deep
struct Base { //= struct outer::inner::deep::Base
  Base() = default; //= function outer::inner::deep::Base::Base
  virtual ~Base(); //- function outer::inner::deep::Base::~Base
  virtual int area(int width, int height = 2) const = 0; //- function outer::inner::deep::Base::area
  struct Nested { int x; union { int a; float b; }; }; //= struct outer::inner::deep::Base::Nested
  enum { kFirst, kSecond };
  enum Colour : unsigned char { Red, Green }; //= enum outer::inner::deep::Base::Colour
 private:
  int field_{3};
  int bits : 4;
};
} // namespace inner::deep

template <typename T, int N = (3 > 2), template <class> class C = std::vector>
class Holder final : public inner::deep::Base, //= class outer::Holder
                     private virtual std::vector<std::pair<int, T>> {
 public:
  explicit Holder(T value) noexcept(sizeof(T) > 4) : value_{value}, list_({1, 2}), pair_{1, {2}} { run(); } //= function outer::Holder::Holder
  template <class U>
  auto convert(U u) -> decltype(u + 1) { return u + 1; } //= function outer::Holder::convert
  operator bool() const { return true; } //= function outer::Holder::operator bool
  explicit operator std::pair<int, T>*() const; //- function outer::Holder::operator std::pair<int, T>*
  T& operator[](int i); //- function outer::Holder::operator[]
  bool operator()(int a) const { return a < 3; } //= function outer::Holder::operator()
  Holder& operator=(const Holder&) = delete; //= function outer::Holder::operator=
  friend bool operator==(const Holder& a, const Holder& b) { return true; } //= function outer::operator==
  friend class Forward;
  using value_type = T; //= alias outer::Holder::value_type
  typedef void (*callback)(int, T); //= alias outer::Holder::callback
  static constexpr bool small = N < 5, large = N > 5;
  std::function<void(int)> handler_ = [](int) { struct Hidden { int x; }; };
  void (*pointer_)(int) = nullptr;
};

template <>
struct Holder<int, 4> { }; //= struct outer::Holder
template <typename T>
struct Holder<T*, (1 << 3)>::Part : Base { }; //= struct outer::Holder::Part
extern template class Holder<float>;
template class Holder<double>;

template <typename T, std::enable_if_t<(sizeof(T) >= 4), int> = 0>
inline std::enable_if_t<std::is_same<T, int>{}, std::vector<int>> make(T (&array)[3]); //- function outer::make
template <class T> concept Small = sizeof(T) <= 4; //= concept outer::Small
template <class T> requires Small<T>
void constrained(T t) requires requires(T x) { x.go(); } { t.go(); } //= function outer::constrained
union Either { int a; float b; }; //= union outer::Either
typedef struct { int x; } Plain, *PlainPointer; //= struct outer::Plain //= alias outer::PlainPointer
typedef struct tagged { int x; } Tagged; //= struct outer::tagged //= alias outer::Tagged
typedef unsigned long long word, words[4]; //= alias outer::words
namespace shorter = outer::inner::deep; //= alias outer::shorter
namespace { void hidden() {} } //= function outer::(anonymous)::hidden
inline namespace v1 { constexpr int answer() { return 42; } } //= namespace outer::v1 //= function outer::v1::answer
} // namespace outer

extern "C" {
int plain_c(int, char**); //- function plain_c
}
extern "C" int one_c(void); //- function one_c

int outer::inner::deep::Base::area(int width, int height) const { //= function outer::inner::deep::Base::area
  return width * height;
}
template <typename T, int N>
T& outer::Holder<T, N>::operator[](int i) { return list_[i]; } //= function outer::Holder::operator[]
outer::inner::deep::Base::~Base() {} //= function outer::inner::deep::Base::~Base
