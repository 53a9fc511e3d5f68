"""cuTile kernels: found, and their costs those of the source run turn by turn by another program."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cutile_counted import Array, counted
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import Inventory, describe, scan, select

OWN = Path(__file__).parents[2] / "corpus/kernels_own"
QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
_FIELDS = {"flops": "flops", "matmul_flops": "matmul", "read_bytes": "read", "write_bytes": "write"}


class Case(NamedTuple):
    """One block of a kernel at one point; `sizes`: what the formulas name beside what it is handed."""

    file: str
    kernel: str
    given: Mapping[str, Any]
    ids: tuple[int, ...] = (1, 1, 0)
    blocks: tuple[int, ...] = (64, 1, 1)
    sizes: Mapping[str, int] = {}


def half(*shape: int) -> Array:
    return Array(shape)


def full(*shape: int) -> Array:
    return Array(shape, "float32")


OWN_CASES = [
    Case(
        "indexed_tiles.py",
        "matmul",
        {"A": half(96, 80), "B": half(80, 64), "C": full(96, 64), "TM": 32, "TN": 16, "TK": 16},
        (3,),
    ),
    Case(
        "indexed_tiles.py",
        "softmax",
        {"X": half(8, 60), "Y": half(8, 60), "N": 60, "TILE": 64, "SCALED": True, "scale": 0.5},
        (3,),
    ),
    Case(
        "indexed_tiles.py",
        "softmax",
        {"X": half(8, 60), "Y": full(8, 60), "N": 60, "TILE": 64, "SCALED": False, "scale": 0.5},
        (3,),
    ),
    Case("indexed_tiles.py", "transposed", {"X": half(64, 64), "Y": full(64, 64), "TM": 16, "TN": 8}),
]
GYM = "tilegym/ops/cutile"
REAL_CASES = [
    Case(f"{GYM}/matmul.py", "_matmul_kernel",
         {"A": half(96, 80), "B": half(80, 64), "C": half(96, 64), "TILE_SIZE_M": 32, "TILE_SIZE_N": 16, "TILE_SIZE_K": 16}, (3,)),
    Case(f"{GYM}/bmm.py", "_bmm_kernel", {"A": half(4, 96, 80), "B": half(4, 80, 64), "C": half(4, 96, 64), "TM": 32, "TN": 16, "TK": 16}, (1, 2, 3)),
    Case(f"{GYM}/rms_norm.py", "_rms_norm_kernel_multi_wave_cached",
         {"x": half(9, 60), "w": half(60), "out": half(9, 60), "Rstd": full(9), "N": 60, "eps": 1e-6, "offset": 0.0, "TILE_SIZE": 64}, (2,)),
    Case(f"{GYM}/rms_norm.py", "_rms_norm_kernel_gather",
         {"x": half(9, 60), "w": half(60), "out": half(9, 60), "Rstd": full(9), "N": 60, "EPS": 1e-6, "OFFSET": 0.0, "TILE_SIZE": 16}, (2,)),
    Case(f"{GYM}/transpose.py", "_transpose_kernel", {"input": half(64, 48), "output": half(48, 64), "M": 64, "N": 48, "BLOCK_M": 16, "BLOCK_N": 8}, (1, 2)),
    Case(f"{GYM}/swiglu.py", "_swiglu_forward_kernel",
         {"a": half(9, 64), "b": half(9, 64), "c": half(9, 64), "TILE_SIZE": 32, "check_bounds": True}, (2, 1)),
    Case(f"{GYM}/swiglu.py", "_swiglu_backward_kernel",
         {"dc": half(9, 64), "a": half(9, 64), "b": half(9, 64), "da": half(9, 64), "db": half(9, 64), "TILE_SIZE": 32}, (2, 1)),
    Case(f"{GYM}/attention.py", "_fmha_kernel",
         {"Q": half(2, 4, 64, 32), "K": half(2, 2, 64, 32), "V": half(2, 2, 64, 32), "Out": half(2, 4, 64, 32), "qk_scale": 0.2, "input_pos": 0,
          "TILE_D": 32, "H": 4, "TILE_M": 16, "TILE_N": 8, "QUERY_GROUP_SIZE": 2, "CAUSAL": False, "EVEN_K": True}, (1, 2)),
    Case(f"{GYM}/attention.py", "_fmha_bwd_preprocess_kernel",
         {"O": half(2, 4, 64, 32), "dO": half(2, 4, 64, 32), "Delta": full(2, 4, 64), "SEQ_LEN": 64, "H": 4, "TILE_M": 16, "TILE_D": 32}, (1, 2)),
]  # fmt: skip


@cache
def inventory(root: Path) -> tuple[Repository, Inventory]:
    repository = Repository(name="own", root=root, packages=())
    return repository, scan(repository, MemoryStore(), **QUIET)


def described(root: Path, target: str, given: Mapping[str, Any], sizes: Mapping[str, int]) -> KernelTiling:
    repository, known = inventory(root)
    (kernel,) = describe(repository, known, select(known, target), given=given, sizes=sizes, **QUIET)
    return kernel


@pytest.fixture(scope="module")
def sources() -> Path:
    return kernel_sources()["tilegym"]


def check(case: Case, root: Path) -> None:
    truth = counted((root / case.file).read_text(), case.kernel, case.given, ids=case.ids, blocks=case.blocks)
    flags = {n: v for n, v in case.given.items() if isinstance(v, bool)}
    sizes = {n: v for n, v in case.given.items() if isinstance(v, int) and not isinstance(v, bool)}
    arrays = {n: v for n, v in case.given.items() if isinstance(v, Array)}
    sizes |= {f"{n}.shape[{axis}]": size for n, a in arrays.items() for axis, size in enumerate(a.shape)}
    sizes |= {f"{n}.element_size()": a.bytes for n, a in arrays.items()}
    sizes |= {f"program_id({axis})": number for axis, number in enumerate(case.ids)}
    sizes |= {f"num_programs({axis})": number for axis, number in enumerate(case.blocks)} | dict(case.sizes)
    cost = described(root, f"{case.file}::{case.kernel}", flags, sizes).cost
    assert cost is not None
    assert cost.not_counted == ()
    assert {ours: cost.evaluated.get(name) for name, ours in _FIELDS.items()} == {
        n: truth[n] for n in _FIELDS.values()
    }, cost.unbound


@pytest.mark.parametrize("case", OWN_CASES, ids=lambda c: c.kernel)
def test_costs_are_those_of_the_source_run_turn_by_turn(case: Case) -> None:
    check(case, OWN)


@pytest.mark.parametrize("case", REAL_CASES, ids=lambda c: c.kernel)
def test_costs_of_real_kernels_are_those_of_the_source_run_turn_by_turn(case: Case, sources: Path) -> None:
    check(case, sources)


@pytest.mark.parametrize("seed", range(6))
def test_formulas_hold_at_any_point(seed: int) -> None:
    draw = random.Random(seed)
    m, n, k = (draw.choice([8, 16, 24]) for _ in range(3))
    rows, columns, depth = (draw.randint(1, 5) for _ in range(3))
    arrays = {"A": half(m * rows, k * depth), "B": full(k * depth, n * columns), "C": half(m * rows, n * columns)}
    check(
        Case("indexed_tiles.py", "matmul", {**arrays, "TM": m, "TN": n, "TK": k}, (draw.randrange(rows * columns),)),
        OWN,
    )
    tile = draw.choice([16, 64])
    given = {
        "X": half(9, tile),
        "Y": full(9, tile),
        "N": tile,
        "TILE": tile,
        "SCALED": draw.random() < 0.5,
        "scale": 2.0,
    }
    check(Case("indexed_tiles.py", "softmax", given, (draw.randrange(9),)), OWN)


def test_what_a_product_of_tiles_is_made_of_is_told() -> None:
    kernel = described(OWN, "indexed_tiles.py::matmul", {}, {})
    assert [(m.parameter, m.shape, m.strides) for m in kernel.loads] == [
        ("A", ("TM", "TK"), ("{A.strides[0]}", "{A.strides[1]}")), ("B", ("TK", "TN"), ("{B.strides[0]}", "{B.strides[1]}")),
    ]  # fmt: skip
    assert [(m.parameter, m.shape) for m in kernel.stores] == [("C", ("TM", "TN"))]
    (grid,) = kernel.grid
    assert (grid.function, grid.dimensions) == ("run", ("cdiv({m}, 128) * cdiv({n}, 64)", "1", "1"))
    assert {t.name: t.values for t in kernel.tile} == {"TM": ("128",), "TN": ("64",), "TK": ("32",)}
    assert kernel.cost is not None
    assert kernel.cost.stage_bytes == "TK * (TM * {A.element_size()} + TN * {B.element_size()})"


def test_an_operator_between_matrices_is_a_product() -> None:
    kernel = described(
        OWN,
        "indexed_tiles.py::folded",
        {},
        {"T": 8, "A.element_size()": 2, "B.element_size()": 2, "C.element_size()": 4},
    )
    assert kernel.cost is not None
    assert kernel.cost.evaluated["matmul_flops"] == 2 * 8 * 16 * 32
    assert kernel.cost.evaluated["flops"] == 2 * 8 * 16 * 32 + 8 * 32 + 1 + 8 * 32
    assert kernel.cost.evaluated["write_bytes"] == 8 * 32 * 4
    assert kernel.loads[1].strides == ("{B.strides[1]}", "{B.strides[0]}")
    assert "TWICE is False: its default, and no launch was found" in kernel.cost.conditions


def test_a_launch_of_another_language_is_none_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        "import cuda.tile as ct\n\n@ct.kernel\ndef scale(X, N: ct.Constant[int]):\n    ct.store(X, index=(ct.bid(0),), tile=ct.zeros((N,), ct.float32))\n"
    )
    (tmp_path / "b.py").write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef scale(X, N: tl.constexpr):\n"
        "    tl.store(X + tl.program_id(0), 0.0)\n\ndef run(x):\n    scale[(7,)](x, 32)\n"
    )
    tiles, pointers = (described(tmp_path, f"{file}::scale", {}, {}) for file in ("a.py", "b.py"))
    assert (tiles.language, tiles.num_tiles, pointers.num_tiles) == ("cutile", "", "7")


def test_a_number_is_written_at_every_place() -> None:
    kernel = described(
        OWN, "indexed_tiles.py::filled", {}, {"TILE": 32, "Y.element_size()": 4, "COUNT.element_size()": 4}
    )
    assert [(m.parameter, m.shape) for m in kernel.stores] == [("Y", ("TILE",)), ("COUNT", ())]
    assert kernel.cost is not None
    assert (kernel.cost.evaluated["write_bytes"], kernel.cost.evaluated["read_bytes"]) == (32 * 4 + 4, 4)


def test_a_switch_that_every_launch_sets_is_said() -> None:
    kernel = described(OWN, "indexed_tiles.py::softmax", {}, {})
    values = {c.name: [(v.value, v.origin) for v in c.values] for c in kernel.constexpr}
    assert values == {
        "N": [("{x.shape[1]}", "launch")],
        "TILE": [("next_power_of_2({x.shape[1]})", "launch")],
        "SCALED": [("True", "launch")],
    }
    assert kernel.cost is not None
    assert kernel.cost.flops == "5 * TILE"


def test_every_kernel_of_the_wheel_is_found(sources: Path) -> None:
    texts = {str(p.relative_to(sources)): p.read_text() for p in sources.rglob("*.py")}
    written = {path for path, text in texts.items() if "\n@ct.kernel" in text}
    found = {k.file for k in inventory(sources)[1].kernels if k.language == "cutile"}
    assert written <= found
    assert len(found) > 50


CHAINS = """import cuda.tile as ct

@ct.kernel
def chain(X, Y, Z, W, O, MODE: ct.Constant[int], T: ct.Constant[int]):
    i = ct.bid(0)
    if MODE == 3:
        a = ct.load(X, index=(i,), shape=(T,))
    elif MODE == 4:
        a = ct.load(Y, index=(i,), shape=(T,))
    elif MODE == 5:
        a = ct.load(Z, index=(i,), shape=(T,))
    else:
        a = ct.load(W, index=(i,), shape=(T,))
    kept = ct.where(i * T + ct.arange(T, dtype=ct.int32) < 9, a, 0)
    ct.store(O, index=(i,), tile=kept)

@ct.kernel
def clamped(X, O, S: int, LEN: ct.Constant[int], T: ct.Constant[int]):
    i = ct.bid(0)
    start = i * LEN
    end = start + LEN
    if end > S:
        end = S
    acc = ct.zeros((T,), dtype=ct.float32)
    for n in range(start, end, T):
        acc = acc + ct.load(X, index=(n // T,), shape=(T,))
    ct.store(O, index=(i,), tile=acc)

def run(x, y, z, w, o, mode, dtype):
    codes = {"float32": 0, "float16": 1}
    ct.launch(stream, (x.shape[0], 1, 1), chain, (x, y, z, w, o, codes.get(dtype, 0), 128))
    ct.launch(stream, (x.shape[0], 1, 1), clamped, (x, o, x.shape[0], 256, 64))
"""


def test_each_side_of_a_chain_stands_under_all_that_was_not_so_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(CHAINS)
    kernel = described(tmp_path, "a.py::chain", {}, {})
    sides = {load.parameter: load.when for load in kernel.loads}
    holds = {
        name: {mode for mode in range(9) if eval(text, {"MODE": mode})} for name, text in sides.items()
    }  # of our own making
    assert holds == {"X": {3}, "Y": {4}, "Z": {5}, "W": {0, 1, 2, 6, 7, 8}}
    assert "kept" not in {one.variable for one in kernel.mapping}  # it is data, whatever hides part of it
    values = {c.name: [v.value for v in c.values] for c in kernel.constexpr}
    assert values["MODE"] != ["0"]  # what is looked up is not known, and so is what is found


@pytest.mark.parametrize(("index", "turns"), [(0, 4), (1, 2), (2, 0)])
def test_a_bound_that_is_cut_off_is_the_smaller_of_both(tmp_path: Path, index: int, turns: int) -> None:
    (tmp_path / "a.py").write_text(CHAINS)
    point = {"T": 64, "LEN": 256, "S": 370, "program_id(0)": index, "X.element_size()": 2, "O.element_size()": 4}
    kernel = described(tmp_path, "a.py::clamped", {}, point)
    assert kernel.cost is not None
    assert kernel.cost.evaluated["read_bytes"] == turns * 64 * 2
    assert not kernel.cost.conditions


SEARCHED = """import cuda.tile as ct
from types import SimpleNamespace
from cuda.tile.tune import exhaustive_search

def configurations():
    if torch.cuda.get_device_capability()[0] < 9:
        yield SimpleNamespace(TILE=64, occupancy=2)
    else:
        for tile in (128, 256):
            yield SimpleNamespace(TILE=tile, occupancy=1)
    yield from [SimpleNamespace(TILE=32, occupancy=4)]

@ct.kernel
def scale(X, Y, T: ct.Constant[int], PROGRAMS: ct.Constant[int], FLAG: ct.Constant[bool]):
    i = ct.bid(0)
    ct.store(Y, index=(i,), tile=ct.load(X, index=(i,), shape=(T,)))

def run(x, y, flag):
    SEARCH
    best, tuned = cache[key]
    ct.launch(stream, (ct.cdiv(x.shape[0], best.TILE), 1, 1), tuned, (x, y, best.TILE, 4, flag))
"""
BY_LAMBDAS = """result = exhaustive_search(
        list(configurations()), stream, lambda cfg: (ct.cdiv(x.shape[0], cfg.TILE), cfg.occupancy, 1), scale,
        lambda cfg: (x, y, cfg.TILE, 4 * cfg.occupancy, flag), lambda cfg: {"occupancy": cfg.occupancy})"""
BY_FUNCTIONS = """def grid(cfg):
        return (ct.cdiv(x.shape[0], cfg.TILE), cfg.occupancy, 1)
    def arguments(cfg):
        return (x, y, cfg.TILE, 4 * cfg.occupancy, flag)
    tried = list(configurations())
    exhaustive_search(tried, stream, grid, scale, arguments)"""


@pytest.mark.parametrize("search", [BY_LAMBDAS, BY_FUNCTIONS])
def test_a_search_launches_with_each_of_its_configurations(tmp_path: Path, search: str) -> None:
    (tmp_path / "a.py").write_text(SEARCHED.replace("SEARCH", search))
    kernel = described(tmp_path, "a.py::scale", {}, {})
    (grid,) = kernel.grid
    assert grid.dimensions == ("cdiv({x.shape[0]}, T)", "{cfg.occupancy}", "1")
    assert kernel.autotune is not None
    configs = kernel.autotune.configs
    assert [(c.values, c.options) for c in configs] == [
        ({"T": 64}, {"occupancy": 2}), ({"T": 32}, {"occupancy": 4}), ({"T": 128}, {"occupancy": 1}), ({"T": 256}, {"occupancy": 1}),
    ]  # fmt: skip
    assert [c.when for c in configs] == [
        "torch.cuda.get_device_capability()[0] < 9", "", *2 * ["torch.cuda.get_device_capability()[0] >= 9"],
    ]  # fmt: skip
    values = {c.name: [v.value for v in c.values] for c in kernel.constexpr}
    assert values["T"] == ["64", "32", "128", "256"]
    assert values["PROGRAMS"] == ["4 * {cfg.occupancy}"]


LISTED = """import cuda.tile as ct

@ct.kernel
def groups(As, Os, T: ct.Constant[int]):
    for g in range(len(As)):
        a = As[g]
        for k in range(ct.num_tiles(a, 0, (T,))):
            ct.store(Os[g], index=(k,), tile=ct.load(a, index=(k,), shape=(T,)))
"""


def test_arrays_of_a_list_are_said_to_be_taken_as_alike(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(LISTED)
    cost = described(tmp_path, "a.py::groups", {}, {}).cost
    assert cost is not None
    assert "As.shape[0]" in cost.read_bytes
    assert [a for a in cost.assumptions if a.startswith("The arrays of As are taken to be alike")]


@pytest.mark.parametrize("asked", ["A.shape[0]", "A.strides[1]", "A.shape[0] * A.strides[0]"])
def test_one_array_is_not_said_to_be_several(tmp_path: Path, asked: str) -> None:
    body = f"for k in range({asked}):\n        ct.store(A, index=(k,), tile=ct.load(A, index=(k,), shape=(T,)))"
    source = f"import cuda.tile as ct\n\n@ct.kernel\ndef one(A, T: ct.Constant[int]):\n    {body}\n"
    (tmp_path / "a.py").write_text(source)
    cost = described(tmp_path, "a.py::one", {}, {}).cost
    assert cost is not None
    assert "A.s" in cost.read_bytes
    assert [a for a in cost.assumptions if "alike" in a] == []


@pytest.mark.parametrize(
    ("made", "tiles"),
    [
        ("def inner():\n        yield SimpleNamespace(TILE=8, occupancy=1)\n    return list(inner())", ["8"]),
        ("got = yield SimpleNamespace(TILE=8, occupancy=1)", None),
        ("first = SimpleNamespace(TILE=8, num_stages=7, occupancy=1)\n    yield SimpleNamespace(TILE=first.num_stages, occupancy=1)", ["7"]),
    ],
)  # fmt: skip
def test_configurations_are_what_their_function_gives_or_said_not_to_be_read(
    tmp_path: Path, made: str, tiles: list[str] | None
) -> None:
    begin, end = SEARCHED.index("    if torch.cuda"), SEARCHED.index("@ct.kernel")
    source = f"{SEARCHED[:begin]}    {made}\n\n{SEARCHED[end:]}".replace("SEARCH", BY_LAMBDAS)
    (tmp_path / "a.py").write_text(source)
    tuned = described(tmp_path, "a.py::scale", {}, {}).autotune
    assert tuned is not None
    assert ([str(c.values["T"]) for c in tuned.configs] or None) == tiles
    assert bool(tuned.unresolved) == (tiles is None)
