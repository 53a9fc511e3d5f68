"""Of several definitions of a name, and of several launches of a template, each is told by its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opscope_schemas.tiling import Cost, KernelTiling

Described = Callable[..., tuple[KernelTiling, Cost]]
READS = "x[threadIdx.x] *= 2; for (int i = 0; i < B; ++i) x[threadIdx.x] *= 2;"


@pytest.mark.parametrize(
    ("launches", "read"),
    [
        (["k<><<<4, 64>>>(x);"], 64 * 16 * 65), (["k<32, double><<<4, 64>>>(x);"], 64 * 8 * 33),
        (["k<><<<4, 64>>>(x);", "k<32, double><<<4, 64>>>(x);"], None), (["k<<<4, 64>>>(x);", "k<64><<<4, 64>>>(x);"], 64 * 16 * 65),
        (["k<32, float><<<4, 64>>>(x);", "k<32, float><<<8, 64>>>(x);"], 64 * 4 * 33),
        (["k<32, float><<<4, 64>>>(x);", "k<32><<<8, 64>>>(x);"], 64 * 16 * 33),
    ],
)  # fmt: skip
def test_a_template_argument_that_a_launch_does_not_give_is_not_taken_from_another(
    described: Described, launches: list[str], read: int | None
) -> None:
    hosts = "\n".join(f"template <typename S> void go{i}(S* x) {{ {launch} }}" for i, launch in enumerate(launches))
    source = f"template <int B = 64, typename T = float> __global__ void k(T* x) {{ {READS} }}\n{hosts}"
    assert described(source, sizes={"sizeof(T)": 16})[1].evaluated.get("read_bytes") == read
    if read is None:  # launches differ in both
        assert described(source, sizes={"sizeof(T)": 16, "B": 7})[1].evaluated["read_bytes"] == 64 * 16 * 8


KERNELS = """template <typename T> __global__ void k(T* x) { x[threadIdx.x] *= 2; }
template <> __global__ void k<double>(double* x) { x[threadIdx.x] = 1; }
__global__ void k(float* x, float* y) { x[threadIdx.x] = y[threadIdx.x] + y[threadIdx.x + 1]; }
__global__ void k(float* x, float* y, int n) { for (int i = 0; i < n; ++i) x[i] = y[i]; }
void a(float* x, double* d, int n) { k<float><<<2, 32>>>(x); k<double><<<3, 64>>>(d); }
void b(float* x, int n) { k<<<4, 96>>>(x, x); k<<<5, 128>>>(x, x, n); }
"""


@pytest.mark.parametrize(
    ("line", "grid", "block", "written"), [(1, "2", "32", 2 * 32 * 4), (2, "3", "64", 3 * 64 * 8), (3, "4", "96", 4 * 96 * 4),
                                           (4, "5", "128", 5 * 128 * 4 * 9)],
)  # fmt: skip
def test_a_launch_belongs_to_the_definition_that_it_means(
    described: Described, line: int, grid: str, block: str, written: int
) -> None:
    kernel, cost = described(KERNELS, line=line, sizes={"n": 9})
    assert [(launch.dimensions, launch.block) for launch in kernel.grid] == [((grid,), (block,))]
    assert cost.evaluated["launch_write_bytes"] == written


ACTS = """
__device__ float act(float x, float beta = 1.0f, int times = 3) { float s = x; for (int i = 0; i < times; ++i) s = s * beta; return s; }
__device__ half act(half x) { return __hmul(x, x); }
template <typename V> __device__ V act(const V* x) { return x[0] + x[1]; }
template <typename T> __global__ void k(const T* x, T* y) { y[threadIdx.x] = act(ARGUMENTS); }
"""


@pytest.mark.parametrize(
    ("arguments", "kind", "flops"),
    [("x[threadIdx.x]", "float", 3), ("x[threadIdx.x]", "half", 1), ("x[threadIdx.x], 2.f, 5", "float", 5), ("x", "float", 1),
     ("x", "half", 1), ("x[threadIdx.x], 2.f", "float", 3)],
)  # fmt: skip
def test_of_overloads_the_one_for_the_types_at_hand_is_followed(
    described: Described, arguments: str, kind: str, flops: int
) -> None:
    source = ACTS.replace("ARGUMENTS", arguments) + f"void go({kind}* x) {{ k<{kind}><<<1, 32>>>(x, x); }}"
    assert described(source)[1].flops == str(32 * flops)


def test_where_the_type_is_not_told_no_overload_is_taken(described: Described) -> None:
    source = (
        ACTS.replace("ARGUMENTS", "x[threadIdx.x]")
        + "void go(float* x, half* h) { k<<<1, 32>>>(x, x); k<half><<<1, 32>>>(h, h); }"
    )
    _, cost = described(source)
    assert (cost.flops, [text for text in cost.not_counted if "`act`" in text]) == ("", list(cost.not_counted))


SPECIALISED = """
template <int N> __device__ float sum(const float* p) { return p[N] + sum<N - 1>(p); }
template <> __device__ float sum<0>(const float* p) { return p[0]; }
template <typename T> __device__ T one(const T* p) { return p[0] + p[1]; }
template <> __device__ float one<float>(const float* p) { return p[0]; }
template <> __device__ half one(const half* p) { return p[0] * p[1] * p[2]; }
template <typename T, bool TWICE> __device__ T both(const T* p) { return p[0] + p[1]; }
template <> __device__ double both<double, true>(const double* p) { return p[0]; }
template <typename T, int M> __global__ void k(const T* x, T* y) { y[threadIdx.x] = CALL; }
"""


@pytest.mark.parametrize(
    ("call", "kind", "read", "flops"),
    [("sum<0>(x)", "float", 1, 0), ("sum<3>(x)", "float", 4, 3), ("sum<M>(x)", "float", 3, 2), ("sum<M - 2>(x)", "float", 1, 0),
     ("one(x)", "double", 2, 1), ("one<T>(x)", "double", 2, 1), ("one(x)", "float", 1, 0), ("one<T>(x)", "float", 1, 0),
     ("one(x)", "half", 3, 2), ("one<half>(x)", "half", 3, 2), ("both<T, true>(x)", "double", 1, 0),
     ("one(x)", "__half", 3, 2), ("one(x)", "__nv_bfloat16", 2, 1), ("both<T, M == 2>(x)", "double", 1, 0), ("both<T, false>(x)", "double", 2, 1), ("both<T, true>(x)", "float", 2, 1)],
)  # fmt: skip
def test_a_specialisation_is_followed_for_its_own_arguments_alone(
    described: Described, call: str, kind: str, read: int, flops: int
) -> None:
    launch = f"void go({kind}* x) {{ k<{kind}, 2><<<1, 32>>>(x, x); }}"
    _, cost = described(SPECIALISED.replace("CALL", call) + launch)
    size = {"float": 4, "double": 8}.get(kind, 2)
    assert (cost.read_bytes, cost.flops or "0") == (str(32 * size * read), str(32 * flops))
    assert not cost.not_counted


@pytest.mark.parametrize("call", ["one(x)", "sum<M>(x)"])
def test_where_the_arguments_are_not_told_neither_template_nor_specialisation_is_taken(
    described: Described, call: str
) -> None:
    _, cost = described(SPECIALISED.replace("CALL", call))
    assert cost.flops == ""
    assert any(f"`{call[:3]}`" in text for text in cost.not_counted)


DEDUCED = """template <typename T, int M = 2> __global__ void k(const T* __restrict__ x, T* y, T by) {
  for (int i = 0; i < M; i++) y[threadIdx.x] = x[threadIdx.x] * by; }
template <> __global__ void k<double, 2>(const double* __restrict__ x, double* y, double by) { y[threadIdx.x] = by; }
"""


@pytest.mark.parametrize(
    ("launch", "line", "written"),
    [("void go(float* a) { k<<<1, 32>>>(a, a, 2.f); }", 1, 32 * 4 * 2), ("void go(double* a) { k<<<1, 32>>>(a, a, 2.); }", 3, 32 * 8),
     ("void go(void* a) { k<<<1, 32>>>((const half*)a, static_cast<half*>(a), half(2)); }", 1, 32 * 2 * 2),
     ("void go(const double* a) { double* b; cudaMalloc(&b, 9); k<<<1, 32>>>(a, b, 1.); }", 3, 32 * 8),
     ("void go() { float a[9]; k<<<1, 32>>>(a, a, 2.f); }", 1, 32 * 4 * 2),
     ("void go(float* a) { k<float, 3><<<1, 32>>>(a, a, 2.f); }", 1, 32 * 4 * 3)],
)  # fmt: skip
def test_template_arguments_that_a_launch_leaves_to_its_arguments_are_theirs(
    described: Described, launch: str, line: int, written: int
) -> None:
    kernel, cost = described(DEDUCED + launch, line=line)
    assert (len(kernel.grid), cost.launch_write_bytes) == (1, str(written))
    other, cost = described(DEDUCED + launch, line=4 - line)
    assert (len(other.grid), cost.launch_write_bytes) == (0, "")
