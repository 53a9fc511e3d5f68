"""A store through what gives or takes a reference costs what the plain store does; where reading does not tell the place, that is said."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opscope_schemas.tiling import Cost, KernelTiling

Described = Callable[..., tuple[KernelTiling, Cost]]

BEFORE = """
__device__ float& pick(float* p, int i) { return p[i]; }
__device__ float& either(float* p, float* q, bool first, int i) { if (first) return p[i]; return q[i]; }
__device__ void put(float& to, float from) { to = from; }
__device__ void add(float& to, const float& from) { to += from; }
struct View {
  float* p; int n;
  __device__ float& at(int i) { return p[i]; }
  __device__ float& operator()(int i) { return p[i]; }
  __device__ const float& operator()(int i) const { return p[i]; }
  __device__ float& operator[](int i) const { return p[i]; }
  __device__ void set(int i, const float& v) { p[i] = v; }
  __device__ void give(int i, float& v) { v = p[i]; }
  __device__ void grow(float& v) { v += 1.f; }
};
struct Two { float* p; __device__ float& at(int i) { return p[i]; } __device__ float& at(long i) { return p[i + 1]; } };
"""
PLAIN = {"=": "x[i] = y[i];", "+=": "x[i] += y[i];", "+= 1": "x[i] += 1.f;"}
FORMS = [
    ("=", "pick(x, i) = pick(y, i);"), ("+=", "pick(x, i) += pick(y, i);"), ("=", "put(x[i], y[i]);"),
    ("+=", "add(x[i], y[i]);"), ("+=", "add(pick(x, i), pick(y, i));"),
    ("=", "a.at(i) = b.at(i);"), ("+=", "a.at(i) += y[i];"), ("=", "a(i) = b(i);"), ("+=", "a(i) += b(i);"),
    ("=", "a[i] = b[i];"), ("+=", "a[i] += b(i);"), ("=", "a.set(i, b(i));"), ("=", "b.give(i, x[i]);"), ("+= 1", "a.grow(x[i]);"),
    ("=", "auto f = [&](float& to) { to = y[i]; }; f(x[i]);"),
    ("+=", "auto f = [=] __device__ (float& to, int j) mutable { to += y[j]; }; f(a(i), i);"),
    ("=", "auto f = [&](int j) -> float& { return x[j]; }; f(i) = y[i];"),
    ("+=", "auto f = [&](View& v) -> float& { return v(i); }; f(a) += b[i];"),
    ("=", "float& r = pick(x, i); r = y[i];"), ("=", "auto& r = a(i); r = b.at(i);"),
]  # fmt: skip


@pytest.mark.parametrize(("plain", "form"), FORMS)
def test_a_store_through_a_reference_costs_what_the_plain_store_does(
    described: Described, plain: str, form: str
) -> None:
    def made(text: str) -> tuple[object, ...]:
        source = f"{BEFORE}__global__ void k(float* x, float* y, View a, View b) {{ int i = threadIdx.x; {text} }}\n"
        kernel, cost = described(source + "void go(float* x, float* y, View a) { k<<<1, 32>>>(x, y, a, a); }\n")
        steps = sorted((m.operation, m.coalesced) for m in (*kernel.loads, *kernel.stores))
        return cost.flops, cost.read_bytes, cost.write_bytes, cost.not_counted, steps

    expected, found = made(PLAIN[plain]), made(form)
    assert found[:4] == expected[:4] == (expected[0], expected[1], "128", ())
    assert found[4] == expected[4]


@pytest.mark.parametrize(
    "form",
    ["elsewhere(i) = 1.f;", "c.at(i) = 1.f;", "u(i) = 1.f;", "(i > 3 ? x[i] : y[i]) = 1.f;"],
)  # fmt: skip
def test_a_store_whose_place_is_not_told_is_not_counted_and_said(described: Described, form: str) -> None:
    source = f"{BEFORE}__global__ void k(float* x, float* y, Two c, Untold u) {{ int i = threadIdx.x; {form} }}\n"
    _, cost = described(source + "void go() { k<<<1, 32>>>(); }\n")
    assert (cost.write_bytes, bool(cost.not_counted)) == ("", True)


def test_what_a_lambda_changes_by_reference_is_not_taken_to_be_what_it_was(described: Described) -> None:
    text = "int m = 4; auto f = [](int& v) { v += n; }; f(m); for (int j = 0; j < m; ++j) x[j] = 1.f;"
    source = f"__global__ void k(float* x, int n) {{ {text} }}\nvoid go() {{ k<<<1, 32>>>(); }}\n"
    assert described(source)[1].write_bytes != "512"


@pytest.mark.parametrize(
    ("place", "width"), [("s[1].c", 4), ("s[i].b", 8), ("v[0][i].y", 4), ("one.c", 4), ("p->b", 8), ("f[i].x", 4)]
)
def test_a_field_in_shared_memory_is_listed_as_shared(described: Described, place: str, width: int) -> None:
    text = f"""struct S {{ char a; double b; float c; }};
__global__ void k(float* x) {{ __shared__ S s[4]; __shared__ float4 v[2][32]; __shared__ S one; __shared__ float2 f[64]; S* p = s; int i = threadIdx.x;
  {place} = x[i]; x[i] = {place}; }}
void go(float* x) {{ k<<<1, 32>>>(x); }}
"""
    kernel, cost = described(text)
    found = [(m.level, m.expression, m.width) for m in (*kernel.loads, *kernel.stores) if m.level == "shared"]
    assert found == [("shared", place, width)] * 2
    assert (cost.read_bytes, cost.write_bytes, cost.not_counted) == ("128", "128", ())
