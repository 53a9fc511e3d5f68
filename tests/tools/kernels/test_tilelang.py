"""TileLang kernels: found, and their costs those of the source run turn by turn by another program."""

from __future__ import annotations

import random
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from kernel_sources import kernel_sources
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.kernels.tilelang.description import describe_tilelang
from opscope_tools.kernels.triton.definitions import find_in_python
from opscope_tools.kernels.values.notation import evaluate
from tilelang_counted import counted

OWN = Path(__file__).parents[2] / "corpus/kernels_own"
_FIELDS = {"flops": "flops", "matmul_flops": "matmul", "read_bytes": "read", "write_bytes": "write"}
_SEQUENCES: Mapping[str, Callable[..., int]] = {
    "cu_seqlens": lambda i: 64 * int(i),
    "chunk_indices": lambda *_: 0,
    "chunk_offsets": lambda *_: 0,
}
_LONG = {"n_tokens": 512, "n_seq_plus_one": 3, "n_chunks": 4, "T": 256, "NT": 4, "Ncu": 3, "total_h": 32, "N_seqs": 2}


class Case(NamedTuple):
    """One block of a kernel at one point; `sizes`: what the formulas name beside the parameters."""

    file: str
    factory: str
    parameters: Mapping[str, Any]
    ids: tuple[int, ...]
    dynamic: Mapping[str, int] = {}
    sizes: Mapping[str, int] = {}
    constants: Mapping[str, Any] = {}


HALF = {"dtype_str": "bfloat16"}
OWN_CASES = [
    Case("tiles.py", "matmul", {"M": 256, "N": 96, "K": 80, "block_M": 32, "block_N": 48, "block_K": 16}, (1, 2)),
    Case("tiles.py", "softmax", {"M": 64, "N": 24, "block_M": 8}, (3,), {"rows": 40}),
    Case("tiles.py", "softmax", {"M": 64, "N": 24, "block_M": 8, "causal": True}, (3,), {"rows": 40}),
    Case("tiles.py", "steps", {"N": 64, "block": 16, "turns": 7}, (2,)),
]
ATTENTION = {"B": 2, "HQ": 4, "H": 2, "K": 24, "V": 16, "BT": 16, "BS": 8, "sm_scale": 0.2, "log2e_scale": 0.3, **HALF}
FLA_CASES = [
    Case("fla/ops/attn/backends/tilelang/parallel.py", "_build_parallel_attn_fwd_kernel", ATTENTION, (1, 2, 1), {**_LONG, "T": 64}, {"i_t": 2}),
    Case("fla/ops/attn/backends/tilelang/parallel.py", "_build_parallel_attn_fwd_kernel", {**ATTENTION, "USE_G": True, "USE_SINK": True},
         (1, 2, 1), {**_LONG, "T": 64}, {"i_t": 2}),
    Case("fla/ops/rwkv6/backends/tilelang/chunk_fwd_intra.py", "_build_rwkv6_fwd_intra_kernel",
         {"B": 2, "H": 2, "K": 32, "BT": 32, "BC": 16, "BK": 16, **HALF}, (1, 3, 1), {"T": 64}),
    Case("fla/ops/generalized_delta_rule/dplr/backends/tilelang/wy_fast_fwd.py", "_wu_fwd_kernel",
         {"H": 2, "K": 24, "V": 16, "BT": 16, "in_dtype": "bfloat16", "bulk_copy": True}, (1, 1), _LONG),
    Case("fla/ops/generalized_delta_rule/dplr/backends/tilelang/wy_fast_fwd.py", "_wu_fwd_kernel",
         {"H": 2, "K": 24, "V": 16, "BT": 16, "in_dtype": "bfloat16"}, (1, 1), _LONG),
    Case("fla/ops/generalized_delta_rule/dplr/backends/tilelang/cumsum.py", "_chunk_local_cumsum_kernel_tl",
         {"H": 2, "K": 24, "BT": 16, "BS": 8, "in_dtype": "bfloat16", "scale_value": 1.5, "OUTPUT_GE": True}, (1, 1, 1), _LONG),
    Case("fla/ops/common/backends/tilelang/chunk_bwd.py", "_build_chunk_bwd_dqkwg_kernel",
         {"B": 2, "H": 2, "HV": 2, "K": 32, "V": 32, "BT": 16, "BK": 16, "BV": 16, "NK": 2, "hD1": 32, "hD2": 32, **HALF, "USE_G": False,
          "USE_DW": True, "STATE_V_FIRST": False}, (1, 2, 1), {**_LONG, "T": 64}),
    Case("fla/ops/kda/backends/tilelang/chunk_bwd_dqkg.py", "_build_kda_bwd_kernel",
         {"B": 2, "H": 2, "K": 32, "V": 32, "BT": 16, "BK": 16, "BV": 16, "hD1": 32, "hD2": 32, **HALF, "STATE_V_FIRST": True},
         (1, 1), {**_LONG, "T": 64}),
    Case("fla/ops/utils/sinkhorn/tilelang.py", "sinkhorn_fwd_kernel",
         {"NT": 64, "scale": 0.5, "N": 8, "BN": 8, "BT": 4, "NUM_ITERS": 5, "dtype": "float32"}, (3,)),
]  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> Path:
    return kernel_sources()["fla-core"]


def described(
    root: Path, file: str, start: str, given: Mapping[str, Any], sizes: Mapping[str, int], place: int = 0
) -> KernelTiling:
    repository = Repository(name="own", root=root, packages=())
    found = [k for k in find_in_python(file, (root / file).read_text()).kernels if k.name.split(".")[0] == start]
    return describe_tilelang(found[place], Modules(repository), given, sizes, lambda: None)


def check(case: Case, root: Path) -> None:
    text = (root / case.file).read_text()
    truth = counted(
        text,
        case.factory,
        case.parameters,
        ids=case.ids,
        dynamic=case.dynamic,
        data=_SEQUENCES,
        constants=case.constants,
    )
    numbers = {n: v for n, v in case.parameters.items() if isinstance(v, int) and not isinstance(v, bool)}
    flags = {n: v for n, v in case.parameters.items() if n not in numbers}
    sizes = {**case.dynamic, **case.sizes, **numbers}
    place = -1 if "IS_VARLEN" in text else 0
    for given in (flags, case.parameters):  # formulas at a point, and the kernel made for that point
        cost = described(root, case.file, case.factory, given, sizes, place).cost
        assert cost is not None
        assert cost.not_counted == ()
        told = {ours: cost.evaluated.get(name) for name, ours in _FIELDS.items()}
        assert told == {name: truth[name] for name in told}, (given is flags, cost.unbound, cost.conditions)


@pytest.mark.parametrize("case", OWN_CASES, ids=lambda c: f"{c.factory}-{len(c.parameters)}")
def test_costs_are_those_of_the_source_run_turn_by_turn(case: Case) -> None:
    check(case, OWN)


@pytest.mark.parametrize("case", FLA_CASES, ids=lambda c: c.factory)
def test_costs_of_real_kernels_are_those_of_the_source_run_turn_by_turn(case: Case, sources: Path) -> None:
    check(case, sources)


@pytest.mark.parametrize("seed", range(6))
def test_formulas_hold_at_any_point(seed: int) -> None:
    """Of full tiles, as the formulas say of themselves."""
    draw = random.Random(seed)
    m, n, k = (draw.choice([8, 16, 24]) for _ in range(3))
    grid = [draw.randint(1, 5) for _ in range(3)]
    sizes = {"M": m * grid[0], "N": n * grid[1], "K": k * grid[2], "block_M": m, "block_N": n, "block_K": k}
    check(Case("tiles.py", "matmul", sizes, (draw.randrange(grid[1]), draw.randrange(grid[0]))), OWN)
    rows = draw.randint(2, 6)
    given = {"M": 1, "N": n, "block_M": m, "causal": draw.random() < 0.5}
    check(Case("tiles.py", "softmax", given, (draw.randrange(rows),), {"rows": rows * m}), OWN)
    check(Case("tiles.py", "steps", {"N": 4 * k, "block": k, "turns": draw.randint(1, 20)}, (draw.randrange(4),)), OWN)


def test_what_a_product_of_tiles_is_made_of_is_told() -> None:
    kernel = described(OWN, "tiles.py", "matmul", {}, {})
    (grid,) = kernel.grid
    assert (grid.dimensions, grid.threads) == (("cdiv(N, block_N)", "cdiv(M, block_M)"), 128)
    assert {a.name: (a.dimensions, a.formula) for a in kernel.shared_memory} == {
        "A_shared": (("block_M", "block_K"), "2 * block_M * block_K"), "B_shared": (("block_K", "block_N"), "2 * block_K * block_N"),
    }  # fmt: skip
    assert [(m.parameter, m.variable, m.shape, m.strides, m.coalesced) for m in kernel.loads] == [
        ("A", "A_shared", ("block_M", "block_K"), ("K", "1"), "yes"), ("B", "B_shared", ("block_K", "block_N"), ("N", "1"), "yes"),
    ]  # fmt: skip
    assert [(m.parameter, m.shape) for m in kernel.stores] == [("C", ("block_M", "block_N"))]
    assert [(loop.kind, loop.trip_count) for loop in kernel.loops] == [("T.Pipelined", "cdiv(K, block_K)")]
    assert [s.value for s in kernel.num_stages] == ["num_stages"]
    assert kernel.cost is not None
    assert kernel.cost.stage_bytes == "2 * block_K * (block_M + block_N)"
    assert kernel.cost.launch_write_bytes == "2 * block_M * block_N * cdiv(N, block_N) * cdiv(M, block_M)"
    assert {t.name for t in kernel.tile} == {"block_M", "block_N", "block_K"}


def test_each_grid_of_a_function_is_a_kernel_of_its_own() -> None:
    found = [k.name for k in find_in_python("tiles.py", (OWN / "tiles.py").read_text()).kernels]
    assert found == ["matmul.main", "softmax.main", "steps.main", "two_grids.main", "two_grids.main.2", "warps.main"]
    second = described(OWN, "tiles.py", "two_grids", {}, {"N": 512, "parts": 3, "block": 64}, 1)
    assert second.num_tiles == "N // block"
    assert second.cost is not None
    assert second.cost.evaluated["read_bytes"] == 3 * 64 * 2
    assert second.cost.evaluated["launch_flops"] == 8 * 3 * 64


def test_threads_that_a_test_leaves_out_do_nothing() -> None:
    cost = described(OWN, "tiles.py", "warps", {}, {"N": 10}).cost
    assert cost is not None
    assert (cost.evaluated["read_bytes"], cost.evaluated["write_bytes"], cost.evaluated["flops"]) == (
        2 * 64 * 2,
        64 * 2,
        64,
    )


def test_a_side_that_is_not_taken_is_listed_and_costs_nothing() -> None:
    kernel = described(OWN, "tiles.py", "softmax", {"causal": True}, {})
    assert "bias" not in {m.parameter for m in kernel.loads}
    kernel = described(OWN, "tiles.py", "softmax", {}, {})
    assert kernel.cost is not None
    assert "causal is False: its default" in kernel.cost.conditions
    assert [m.parameter for m in kernel.loads if m.parameter == "bias"] == ["bias"]


SOURCE = """
import tilelang
import tilelang.language as T

@tilelang.jit
def build(N, flag):
    @T.prim_func
    def main(X: T.Tensor((N,), "float16"), L: T.Tensor((N,), "int32"), Y: T.Tensor((N,), "float16"),
             Z: T.Tensor((N, N), "float16")):
        with T.Kernel(N // 32, threads=32) as b:
            x = T.alloc_shared((32,), "float16")
            {body}
    return main
"""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("T.call_extern('handle', 'secret', x)", "T.call_extern"),
        ("x[0] = T.dp4a(x, x)", "T.dp4a"),
        (
            "n = L[b]\n            for i in T.serial(n):\n                T.copy(X[i * 32], x)",
            "blocks do not all do the same",
        ),
        ("if b == 0:\n                T.copy(X[0], x)", "blocks do not all do the same"),
    ],
)
def test_what_is_not_known_is_said(body: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body))
    cost = described(tmp_path, "k.py", "build", {}, {"N": 64}).cost
    assert cost is not None
    assert said in " ".join((*cost.not_counted, *cost.assumptions))
    assert cost.launch_flops == ""


def test_a_stage_is_what_one_turn_brings_of_the_operands(tmp_path: Path) -> None:
    body = """z = T.alloc_shared((32, 16), "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.copy(Z[0, 0], z)
            for k in T.Pipelined(0, N, 2):
                T.copy(X[k * 32], x)
                T.copy(Z[b * 32, k * 16], z)
                T.gemm(z, z, c, transpose_B=True)"""
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body))
    kernel = described(tmp_path, "k.py", "build", {}, {})
    assert kernel.cost is not None
    assert (kernel.cost.stage_bytes, kernel.cost.read_bytes) == ("1024", "64 * (17 * N + 16)")
    assert [s.value for s in kernel.num_stages] == ["2"]
    assert any("keeps up to 2 of x, z" in note for note in kernel.notes)


#: of SOURCE with its body: FLOPs, bytes read and written of one block
BODIES = {
    "an index that each thread reads": (
        "t = T.get_thread_binding()\n            j = L[b * 32 + t]\n            Y[j] = X[j] + 1.0", (32, 32 * 4 + 32 * 2, 32 * 2)),
    "a number cast to whole ones and back": (
        "for i in T.Parallel(32):\n                x[i] = T.cast(L[i], 'float16') * 2.0 + L[i].astype('float16')\n"
        "                x[i] = T.cast(x[i], 'int32') + 1", (64, 32 * 8, 0)),
    "whole numbers times a float": ("for i in T.Parallel(32):\n                x[i] = L[i] * 0.25", (32, 32 * 4, 0)),
    "the names of arguments": ("T.copy(dst=x, src=X[b * 32])\n            T.copy(src=x, dst=Y[b * 32])", (0, 64, 64)),
    "what is added for its effect": ("t = T.get_thread_binding()\n            T.atomic_add(dst=Y[b], value=X[t])", (32, 32 * 2 + 32 * 2, 32 * 2)),
    "a size that is rounded up": ("y = T.alloc_shared((T.next_power_of_2(33),), 'float16')\n            T.copy(X[0], y)", (0, 128, 0)),
    "a tensor that is filled": ("T.fill(buffer=Y[b * 32 : b * 32 + 32], value=0)", (0, 0, 64)),
    "a sum over a warp": ("t = T.get_thread_binding()\n            Y[b * 32 + t] = T.warp_reduce_sum(X[t])", (5 * 32, 64, 64)),
    "what a test of one element leaves": ("T.evaluate(T.exp(X[0]))", (1, 2, 0)),
}  # fmt: skip


@pytest.mark.parametrize("said", BODIES)
def test_costs_of(said: str, tmp_path: Path) -> None:
    body, (flops, read, written) = BODIES[said]
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body))
    kernel = described(tmp_path, "k.py", "build", {}, {"N": 64})
    assert kernel.cost is not None
    assert kernel.cost.not_counted == ()
    assert tuple(kernel.cost.evaluated[n] for n in ("flops", "read_bytes", "write_bytes")) == (flops, read, written)
    for one in (*kernel.loads, *kernel.stores):
        assert one.expression.startswith(one.parameter)


#: tests of elements `i` of 32 and `j` of 4, and of the size N
MASKS = (
    "i < N", "i < N - 40", "i >= 9", "i + 5 <= N - 48", "i % 4 == 1", "i == N - 50", "i < 20 and i != 3", "j < 2", "j * 2 + 1 < N - 57",
    "i >= j", "i * i < N", "i // 2 < 5",
)  # fmt: skip


@pytest.mark.parametrize("outer", [*MASKS, "True"])
def test_elements_that_a_test_leaves_are_counted_and_no_others(outer: str, tmp_path: Path) -> None:
    for inner in MASKS:
        lines = ("for i, j in T.Parallel(32, 4):", f"    if {outer}:", "        Y[i] = X[i]", f"        if {inner}:", "            x[i] = x[i] * X[j]",
                 "    else:", "        Z[i, j] = 0.0")  # fmt: skip
        (tmp_path / "k.py").write_text(SOURCE.replace("{body}", "\n            ".join(lines)))
        cost = described(tmp_path, "k.py", "build", {}, {}).cost
        assert cost is not None
        for size in (33, 45, 58, 60, 90):
            every = [{"i": i, "j": j, "N": size} for i in range(32) for j in range(4)]
            met = [eval(outer, one) for one in every]
            both = [holds and eval(inner, one) for holds, one in zip(met, every, strict=True)]
            expected = {"flops": sum(both), "read_bytes": 2 * (sum(met) + sum(both)), "write_bytes": 2 * len(met)}
            for name, number in expected.items():
                found = evaluate(getattr(cost, name), {"N": size})
                lacks = cost.not_counted and (found is None or (name in cost.at_least and found < number))
                assert found == number or lacks, (inner, size, name)
        plain = {"i >= j", "i * i < N", "i // 2 < 5"}.isdisjoint({outer, inner})
        assert not (plain and cost.not_counted), (inner, cost.not_counted)


def test_threads_of_two_axes_are_told_apart(tmp_path: Path) -> None:
    body = (
        "tx = T.get_thread_binding(0)\n            ty = T.thread_binding(0, 8, thread='threadIdx.y')\n"
        "            if tx == 0:\n                Y[b * 8 + ty] = X[ty]"
    )
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body).replace("threads=32", "threads=(32, 8)"))
    cost = described(tmp_path, "k.py", "build", {}, {"N": 64}).cost
    assert cost is not None
    assert (cost.evaluated["read_bytes"], cost.evaluated["write_bytes"]) == (8 * 2, 8 * 2)


def test_what_is_not_given_stays_a_size_and_a_type_is_the_compilers(tmp_path: Path) -> None:
    text = SOURCE.replace("def build(N, flag)", "def build(N, threads=None, dtype: T.dtype = T.float16)")
    text = text.replace("threads=32", "threads=threads").replace("{body}", "T.copy(X[b * (256 // dtype.bits)], x)")
    (tmp_path / "k.py").write_text(text)
    kernel = described(tmp_path, "k.py", "build", {}, {})
    assert kernel.grid[0].block == ("threads",)
    assert [c.name for c in kernel.constexpr] == ["N", "threads", "dtype"]
    assert kernel.cost is not None
    assert kernel.cost.conditions == ("dtype is T.float16: its default",)


def test_stages_are_told_of_a_loop_that_is_run_turn_by_turn(tmp_path: Path) -> None:
    body = (
        "for k in T.Pipelined(3, num_stages=2):\n                if k == 0:\n                    T.copy(X[k * 32], x)"
    )
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body))
    kernel = described(tmp_path, "k.py", "build", {}, {})
    assert kernel.cost is not None
    assert ([s.value for s in kernel.num_stages], kernel.cost.read_bytes) == (["2"], "64")


def test_a_group_of_warps_is_four(tmp_path: Path) -> None:
    body = "if T.get_warp_group_idx() == 0:\n                Y[T.get_thread_binding()] = X[0]"
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body).replace("threads=32", "threads=384"))
    cost = described(tmp_path, "k.py", "build", {}, {}).cost
    assert cost is not None
    assert cost.write_bytes == "256"


def test_a_flag_without_default_is_a_condition_and_can_be_given(tmp_path: Path) -> None:
    body = "if flag:\n                T.copy(X[b * 32], x)\n            else:\n                T.copy(Y[b * 32], x)"
    (tmp_path / "k.py").write_text(SOURCE.replace("{body}", body))
    free = described(tmp_path, "k.py", "build", {}, {})
    assert free.cost is not None
    assert any(c.startswith("flag ") for c in free.cost.conditions)
    assert {(m.parameter, m.counted, m.when) for m in free.loads} == {("X", True, "flag"), ("Y", False, "not flag")}
    given = described(tmp_path, "k.py", "build", {"flag": False}, {})
    assert [m.parameter for m in given.loads] == ["Y"]


def test_configurations_are_counted(tmp_path: Path) -> None:
    text = textwrap.dedent(
        """
        import itertools
        import tilelang
        import tilelang.language as T

        def configs():
            keys = dict(block=[32, 64], threads=[128])
            return [dict(zip(keys, values)) for values in itertools.product(*keys.values())]

        @tilelang.autotune(configs=configs(), warmup=3)
        @tilelang.jit(out_idx=[-1])
        def copy(N, block=32, threads=128):
            @T.prim_func
            def main(X: T.Tensor((N,), "float16"), Y: T.Tensor((N,), "float16")):
                with T.Kernel(N // block, threads=threads) as b:
                    T.copy(X[b * block : (b + 1) * block], Y[b * block])
            return main

        copy(4096, block=64)
        """
    )
    (tmp_path / "k.py").write_text(text)
    kernel = described(tmp_path, "k.py", "copy", {}, {"N": 4096, "block": 64})
    assert kernel.autotune is not None
    assert (kernel.autotune.count, [c.values for c in kernel.autotune.configs]) == (
        2,
        [{"block": 32, "threads": 128}, {"block": 64, "threads": 128}],
    )
    block = next(c for c in kernel.constexpr if c.name == "block")
    assert {(v.value, v.origin) for v in block.values} == {
        ("32", "autotune"),
        ("64", "autotune"),
        ("64", "launch"),
        ("32", "default"),
    }
    assert kernel.cost is not None
    assert (kernel.cost.evaluated["launch_read_bytes"], kernel.cost.evaluated["launch_write_bytes"]) == (8192, 8192)
