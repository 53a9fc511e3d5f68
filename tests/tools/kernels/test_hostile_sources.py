"""Sources made to hang, crash or fool a reader: each is answered, with a note where it was not read."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import UnknownNameError
from opscope_schemas.tiling import TilingResult
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING, TilingArguments
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository

MANY = 1_000_000
PYTHON = "import triton\nimport triton.language as tl\n"
CUDA = "__global__ void k(float* x) { x[threadIdx.x] = 1; }\nvoid launch(float* x) { k<<<2, 64>>>(x); }\n"


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A reader that hangs fails its test after two minutes; those that do not need seconds."""

    def stop(*_: object) -> None:
        raise AssertionError("still reading after two minutes")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, old)


def asked(folder: Path, name: str, text: str) -> TilingResult:
    (folder / name).write_text(text)
    workspace = Workspace({"h": folder_repository("h", folder)}, folder / "out", MemoryStore())
    return CUDA_KERNEL_TILING.run(TilingArguments(target="h"), ToolContext(workspace))


@pytest.mark.parametrize(
    "body",
    [
        f"x[0] = {'(' * MANY}1{')' * MANY};",
        "{" * MANY + "x[0] = 1;" + "}" * MANY,
        "x[" * MANY + "0" + "]" * MANY + " = 1;",
    ],
    ids=["parentheses", "braces", "brackets"],
)
def test_brackets_in_brackets_are_not_read_and_said_so(tmp_path: Path, body: str) -> None:
    result = asked(tmp_path, "k.cu", "__global__ void deep(float* x) {" + body + "}\n" + CUDA)
    names = {k.name: k for k in result.kernels}
    assert {"deep", "k"} <= set(names)
    assert any("nested more than 256 brackets deep" in note for note in names["deep"].notes)
    assert names["k"].num_tiles == "2"


@pytest.mark.parametrize(
    "text",
    [
        CUDA + "__global__ void open(float* x) { x[0] = " + "(" * MANY + "1; }\n",
        CUDA + 'const char* s = "unterminated\n' + 'a "b \n' * 100_000,
        CUDA + 'const char* s = R"x(unterminated\n' + "abc\n" * MANY,
        CUDA + "/* never closed " + "abc\n" * MANY,
        CUDA + "template<" * 100_000 + "\n" + "__global__ void angles(float* x) { x[0] = a" + "<b" * 100_000 + "; }\n",
        CUDA + "#if A\n" * 50_000 + "__global__ void n(float* x) {}\n" + "#endif\n" * 50_000,
        CUDA + "void many(float* x) {" + "k<<<1, 1>>>(x);" * 5_000 + "}\n",
        "#define M0(x) x\n" + "".join(f"#define M{i}(x) M{i - 1}(M{i - 1}(x))\n" for i in range(1, 60))
        + CUDA + "void deep(float* x) { k<<<M59(3), 1>>>(x); }\n",
        CUDA + "void doubled(float* x, int b0) {" + "".join(f"int b{i} = b{i - 1} * b{i - 1} + b0;" for i in range(1, 500))
        + "k<<<b499, 1>>>(x); }\n",
    ],
    ids=["parenthesis left open", "string", "raw string", "comment", "angles", "ifs", "launches", "macros", "values"],
)  # fmt: skip
def test_what_never_ends_or_grows_without_bound_leaves_the_rest_readable(tmp_path: Path, text: str) -> None:
    result = asked(tmp_path, "k.cu", text)
    kernel = next(k for k in result.kernels if k.name == "k")
    assert [s.coalesced for s in kernel.stores] == ["yes"]
    assert (("2",), 64) in [(g.dimensions, g.threads) for g in kernel.grid]


def test_headers_and_macros_that_name_each_other_end(tmp_path: Path) -> None:
    (tmp_path / "a.cuh").write_text('#include "b.cuh"\n#define A(x) B(x)\n' + CUDA.replace("2, 64", "A(2), 64"))
    result = asked(tmp_path, "b.cuh", '#include "a.cuh"\n#define B(x) A(x)\n')
    assert [k.name for k in result.kernels] == ["k"]
    assert result.kernels[0].grid[0].threads == 64


def test_a_file_over_the_limit_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"k\.cu is larger than 8 MiB; it was left out"):
        asked(tmp_path, "k.cu", CUDA + "// " + "x" * (9 << 20))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("@triton.jit\ndef p(x):\n    tl.store(x, " + "(" * 100_000 + "1" + ")" * 100_000 + ")\n", "too many nested"),
        ("@triton.jit\ndef p(x):\n    tl.store(x, " + "+".join(["1"] * 100_000) + ")\n", "nested too deeply"),
        ("@triton.jit\ndef p(x:\n", "does not parse"),
    ],
)
def test_python_that_does_not_parse_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said):
        asked(tmp_path, "p.py", PYTHON + text)


def test_device_functions_that_call_each_other_and_loops_in_loops_have_an_end(tmp_path: Path) -> None:
    result = asked(
        tmp_path,
        "p.py",
        PYTHON
        + """
@triton.jit
def a(x):
    return b(x) + b(x)
@triton.jit
def b(x):
    return a(x) + a(x)
@triton.jit
def circle(x):
    tl.store(x + tl.program_id(0), a(tl.load(x)))
@triton.jit
def nested(x, n):
    v = tl.load(x + tl.program_id(0))
"""
        + "".join("    " * (i + 1) + f"for i{i} in range(n + {i}):\n" for i in range(90))
        + "    " * 91
        + "tl.store(x, v * v)\n",
    )
    kernels = {k.name: k for k in result.kernels}
    assert kernels["circle"].cost is not None
    assert any("line" in missing for missing in kernels["circle"].cost.not_counted)
    assert kernels["nested"].cost is not None
    assert kernels["nested"].cost.flops.count("({n} + ") == 89
    assert kernels["nested"].cost.evaluated == {}


CALLS = "__device__ float b(float x);\n__device__ float a(float x) { return b(x) + b(x); }\n__device__ float b(float x) { return a(x) + a(x); }\n"
NEST = "".join(f"for (int i{i} = 0; i{i} < 60; i{i}++) if (i{i} != 7) " for i in range(30))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (CALLS + "__global__ void h(float* x) { x[threadIdx.x] = a(x[threadIdx.x]); }", "`a`"),
        (f"__global__ void h(float* x) {{ {NEST} x[0] += 1; }}", ""),
        ("__global__ void h(float* x) { x[0] = " + "1 + " * 60_000 + "1; }", "too long"),
        ("__global__ void h(float* x) { x[0] = " + "x[1] + " * 1_000 + "1; }", "nested too deeply"),
        ("#define D0(x) x + x\n" + "".join(f"#define D{i}(x) D{i - 1}(D{i - 1}(x))\n" for i in range(1, 40))
         + "__global__ void h(float* x) { x[0] = D39(x[1]); }", ""),
        ("struct S { S* s; S t; float v; };\n__global__ void h(S* x) { x->s->s->t.v = x->v; }", "not told"),
        ("__global__ void h(float* x, int n) { for (int i = n; i < i; i += i) { while (i) x[i] = *x * 2.0f; } for (;;) ; }", ""),
        ("__global__ void h(float* x) { x[0] = (((((; }", "not read"),
    ],
    ids=["calls", "loops", "long", "chain", "macros", "structures", "no end", "broken"],
)  # fmt: skip
def test_what_a_cost_cannot_hold_is_missing_from_it_by_name(tmp_path: Path, text: str, missing: str) -> None:
    result = asked(tmp_path, "k.cu", text + "\nvoid go(float* x) { h<<<1, 32>>>(x); }\n")
    (kernel,) = [k for k in result.kernels if k.name == "h"]
    assert kernel.cost is not None
    assert any(missing in text for text in kernel.cost.not_counted) or not missing
    assert len(kernel.cost.flops) < 20_000


def test_a_kernel_of_thousands_of_statements_is_read_in_time(tmp_path: Path) -> None:
    body = "".join(f"x[{i}] = x[{i + 1}] * 2.f;\n" for i in range(6_000))
    (kernel,) = asked(tmp_path, "k.cu", "__global__ void long_one(float* x) {\n" + body + "}\n").kernels
    assert len(kernel.stores) == 6_000
    assert kernel.cost is not None
    assert kernel.cost.not_counted == ()
    assert (kernel.cost.flops, kernel.cost.write_bytes) == ("6000 * {blockDim.x}", "24000 * {blockDim.x}")


@pytest.mark.parametrize(
    "body",
    [
        "auto l = make_layout(make_shape(Int<0>{}, Int<8>{}), make_stride(Int<0>{}, Int<3>{})); x[size(composition(l, Int<4>{}))] = 1;",
        f"auto l = make_layout(_{'9' * 6000}{{}}); x[size(l)] = 1;",
        f"auto l = {'make_shape(' * 3000}1{')' * 3000}; x[size(l)] = 1;",
        "using L = Layout<Shape<_8, _8>>; auto l = tile_to_shape(L{}, make_shape(_0{}, 8)); x[cosize(l)] = 1;",
        "auto l = complement(Layout<_4, _0>{}, Int<0>{}); auto m = zipped_divide(l, Int<0>{}); x[rank(m)] = 1;",
        "auto t = make_tensor(make_gmem_ptr(x), make_shape(_8{}), make_stride(_1{}, _2{})); t(1, 2, 3) = 1; copy(t, t); gemm(t, t, t);",
        "auto c = make_tiled_copy(Copy_Atom<UniversalCopy<float>, float>{}, _4{}, 7); auto s = c.get_slice(threadIdx.x); auto p = s.partition_S(x);",
        "using A = A; using B = decltype(B{}); auto l = Layout<A, B>{}; x[size(l)] = 1;",
        "x[size<size<size<0>(1)>(2)>(make_shape(1, 2))] = 1; auto y = get<-1>(make_shape(1)); auto z = select<7>(make_shape(1));",
    ],
    ids=["nothing", "digits", "nested", "zero tile", "zero divisor", "ranks", "kinds", "themselves", "indices"],
)
def test_what_cute_does_not_allow_is_not_told_and_ends_nothing(tmp_path: Path, body: str) -> None:
    heading = "#include <cute/tensor.hpp>\nusing namespace cute;\n"
    launch = f"void odd_launch(float* x) {{ {body} odd<<<dim3(size(l)), 32>>>(x); }}\n"
    result = asked(tmp_path, "k.cu", f"{heading}__global__ void odd(float* x) {{ {body} }}\n{launch}{CUDA}")
    names = {k.name: k for k in result.kernels}
    assert {"odd", "k"} <= set(names)
    assert names["k"].num_tiles == "2"


def test_a_constant_that_joins_tests_ends_no_description(tmp_path: Path) -> None:
    traits = "template <int kN_> struct Traits { static constexpr bool kWide = kN_ > 64 || (kN_ == 32 && kN_ > 1); };\n"
    kernel = "template <typename T> __global__ void fill(float* x) { if (T::kWide) x[threadIdx.x] = 1.f; }\n"
    launch = "void go(float* x) { fill<Traits<32>><<<4, 64>>>(x); }\n"
    (found,) = asked(tmp_path, "k.cu", traits + kernel + launch).kernels
    assert found.num_tiles == "4"
