#ifndef CONDITIONALS_H
#define CONDITIONALS_H //= macro CONDITIONALS_H

#ifdef __cplusplus
extern "C" {
#endif
void linked(int a); //- function linked
#ifdef __cplusplus
}
#endif

#if 0
struct Dead { int x; };
#elif defined(WIDE)
struct Wide { //= struct Wide
#else
struct Narrow { //= struct Narrow
#endif
  int member(); //- function Wide::member
};

#if defined(A)
class Twice : public One { //= class Twice
#else
class Twice : public Two { //= class Twice
#endif
 public:
  void inside() {} //= function Twice::inside
};

void unbalanced(int n) { //= function unbalanced
#if __CUDA_ARCH__ < 800
  if (n) {
#else
  if (n > 1) {
#endif
    n++;
  } else {
#ifdef DEBUG
    print(n); }
#else
  }
#endif
}

#ifdef A
int either(int a) { //= function either
  int b = a;
#else
int either(long a) { //= function either
  long b = a;
#endif
  return b;
}

long pick( //= function pick
#if A
    int a)
#else
    long a)
#endif
{ return a; }

void behind() {} //= function behind
#define MULTI(a) /* = macro MULTI */ /* a comment \
  over lines */ struct Not##a { \
    void m() {} } //
#define WITH_COMMENT(x) x /* = macro WITH_COMMENT */ /* ends
  here */ + 1
struct Last { }; //= struct Last
#endif // CONDITIONALS_H
