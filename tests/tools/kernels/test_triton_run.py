"""What the one run over a Triton kernel tells: each fact once, every branch with its condition, lists and cost of one mind."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from access_lines import unlike
from kernel_sources import inventory_of, kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost, KernelTiling
from opscope_tools.kernels import describe, scan, select
from opscope_tools.kernels.run.paths import Answers, Step, counted, when
from opscope_tools.kernels.values.conditions import when_text

OWN = Path(__file__).parents[2] / "corpus/kernels_own"
QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}


@cache
def described(name: str, **given: Any) -> KernelTiling:
    own = Repository(name="own", root=OWN, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (kernel,) = describe(own, inventory, select(inventory, f"runs.py::{name}"), given=given, **QUIET)
    return kernel


def cost(kernel: KernelTiling) -> Cost:
    assert kernel.cost is not None
    return kernel.cost


def test_an_axis_by_name_is_the_axis_that_is_shown() -> None:
    kernel = described("second_axis")
    assert [(m.axis, m.variable) for m in kernel.mapping] == [("program_id(1)", "row"), ("", "at")]


def test_an_address_belongs_to_what_its_name_was_bound_to_last() -> None:
    assert [m.parameter for m in described("rebound").loads] == ["X", "Y"]


def test_of_what_is_added_in_an_address_the_pointer_is_what_is_one_elsewhere() -> None:
    kernel = described("offset_first")
    assert {m.parameter for m in kernel.loads} == {"X"}
    assert [p.name for p in kernel.parameters if p.pointer] == ["X", "Y"]


@pytest.mark.parametrize(("given", "taken"), [({}, True), ({"TRANSPOSED": True}, True), ({"TRANSPOSED": False}, False)])
def test_the_side_that_is_not_taken_is_listed_with_its_condition(given: dict[str, bool], taken: bool) -> None:
    kernel = described("sided", **given)
    told = {m.line: (m.counted, m.when) for m in (*kernel.loads, *kernel.stores)}
    start = next(m.line for m in kernel.loads if m.expression == "p")
    early = next(m.line for m in kernel.stores if m.expression == "q")
    late = next(m.line for m in kernel.stores if m.expression == "Y + at")
    assert told[start][0] is told[late][0] is taken
    assert told[early][0] is not taken
    assert "TRANSPOSED" in told[start if not taken else early][1]
    assert next(m for m in kernel.loads if m.expression == "p").strides == ("2",)
    assert unlike(kernel) == set()


def test_what_follows_a_branch_that_leaves_is_on_the_path_of_the_other() -> None:
    kernel = described("sided", TRANSPOSED=False)
    late = next(m for m in kernel.stores if m.expression == "Y + at")
    assert (late.counted, late.when) == (False, "TRANSPOSED")


def test_no_two_conditions_of_an_answer_say_the_opposite() -> None:
    sided = described("sided")
    # not both of two flags, of which the first is set: the second is not, though nothing has asked for it alone
    assert [c.partition(" (line")[0] for c in cost(sided).conditions] == ["TRANSPOSED", "not (HAS_BIAS and TRANSPOSED)"]
    assert [(m.counted, m.when) for m in sided.loads if m.parameter == "Bias"] == [(False, "HAS_BIAS")]
    kernel = described("contrary")
    assert [c.partition(" (line")[0] for c in cost(kernel).conditions] == ["ON"]
    assert [(m.counted, m.when) for m in kernel.stores] == [(False, "not FLAG"), (True, "FLAG")]


def test_a_flag_is_not_assumed_against_the_one_value_that_the_answer_lists() -> None:
    kernel = described("by_default")
    assert [v.value for c in kernel.constexpr if c.name == "FLAG" for v in c.values] == ["False"]
    assert [c.partition(":")[0] for c in cost(kernel).conditions] == ["FLAG is False"]
    assert (cost(kernel).flops, cost(described("by_default", FLAG=True)).flops) == ("0", "B")


def test_stores_of_blocks_are_stores_with_the_shape_of_the_block() -> None:
    kernel = described("blocks")
    assert [(m.operation, m.parameter, m.shape) for m in kernel.stores] == [
        ("descriptor.store", "Y", ("B", "B")), ("tl.store", "X", ("B", "B")),
    ]  # fmt: skip
    assert [(m.operation, m.parameter, m.shape) for m in kernel.loads] == [
        ("tl.load", "X", ("B", "B")), ("descriptor.load", "Y", ("B", "B")),
    ]  # fmt: skip


def test_what_is_not_counted_leaves_no_zero() -> None:
    handed = cost(described("handed_descriptor"))
    assert (handed.read_bytes, handed.flops) == ("", "")  # of a block whose size the host gives
    assert handed.write_bytes == "{Y.element_size()} * B"
    assert any("of unknown shape" in text for text in handed.not_counted)
    unread = cost(described("unread"))
    assert (unread.flops, unread.matmul_flops, unread.read_bytes) == ("", "", "")
    assert any(text.startswith("elsewhere") for text in unread.not_counted)


def test_a_loop_on_a_sum_runs_as_often_as_the_sum_fits() -> None:
    (loop,) = described("stepped").loops
    assert loop.trip_count == "cdiv(BM + 1 - S, S)"
    for size, step in ((64, 16), (65, 16), (63, 16), (16, 16), (5, 1)):
        turns = sum(1 for off in range(0, size, step) if off + step <= size)
        assert max(-(-(size + 1 - step) // step), 0) == turns


def test_a_call_of_autotune_tunes_the_kernel_that_it_is_handed() -> None:
    kernel = described("wrapped")
    assert kernel.autotune is not None
    assert (kernel.role, kernel.autotune.count) == ("kernel", 2)
    assert [g.function for g in kernel.grid] == ["run_tuned"]


def test_configurations_that_are_not_read_are_not_none() -> None:
    tuned = described("untold").autotune
    assert tuned is not None
    assert (tuned.count, tuned.unresolved) == (None, "somewhere.configs()")


def test_a_name_of_one_function_launches_nothing_in_another() -> None:
    assert [(g.function, g.num_tiles) for g in described("second_axis").grid] == [("run_second", "8")]
    assert [(g.function, g.num_tiles) for g in described("rebound").grid] == [("run_rebound", "3")]
    assert [(g.function, g.num_tiles) for g in described("offset_first").grid] == [("run_rebound", "5")]
    assert [(g.function, g.num_tiles) for g in described("stepped").grid] == [("run_rebound", "5")]


def test_answers_leave_what_they_leave() -> None:
    answers = Answers()
    answers.put(("and", "A", ("not", "B")), False)
    assert answers.implied("A") is None
    answers.put("A", True)
    assert answers.implied("B") is True
    assert answers.implied(("or", "C", "B")) is True
    assert answers.supposing("A", False).known("A") is False
    assert answers.known("not A") is False


def test_a_path_is_counted_unless_a_step_is_the_other_side() -> None:
    taken, other = Step("A", True, "assumed"), Step("A", False, "other")
    assert (counted((taken,)), counted((taken, other))) == (True, False)
    assert (when([(taken,)]), when([(other,)]), when([(taken,), (other,)])) == ("A", "not A", "")
    assert when([(Step("n < 4", False, "other"), taken)]) == "n >= 4 and A"


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    return kernel_sources()


@pytest.mark.parametrize("package", ["liger-kernel", "fla-core"])
def test_the_lists_and_the_cost_of_a_real_kernel_name_the_same_lines(package: str, sources: dict[str, Path]) -> None:
    repository = Repository(name=package, root=sources[package], packages=())
    inventory = inventory_of(repository)
    kernels = [k for k in inventory.kernels if k.role == "kernel"]
    chosen = random.Random(20).sample(kernels, 20)
    for kernel in describe(repository, inventory, chosen, **QUIET):
        assert unlike(kernel) == set(), kernel.id


def test_what_floats_are_computed_with_is_data_even_where_a_mask_is_made_of_it() -> None:
    found = cost(described("decides_and_is_stored"))
    assert (found.flops, found.not_counted) == ("2 * N", ())
    assert cost(described("only_an_index")).flops == "0"


def test_a_choice_between_numbers_with_a_point_is_data() -> None:
    assert cost(described("counts_what_is_met")).flops == cost(described("sums_what_is_loaded")).flops


@pytest.mark.parametrize(
    ("trails", "shown"),
    [
        ([[("A or B", True), ("C", True)]], "(A or B) and C"),
        ([[("A", True)], [("A", True)]], "A"),
        ([[("a < 8", False), ("a < 8", False)]], "a >= 8"),
        ([[("A or B", True)]], "A or B"),
        ([[("A", True), ("B", True)], [("C", True)]], "(A and B) or C"),
    ],
)
def test_a_condition_of_several_tests_reads_as_it_is_meant(trails: list[list[tuple[str, bool]]], shown: str) -> None:
    assert when_text(trails) == shown


STORES = """
import triton
import triton.language as tl

@triton.jit
def k(d, M: tl.constexpr, N: tl.constexpr):
    at = tl.program_id(0)
    tile = tl.zeros([M, N], tl.float32)
    half, _ = tl.split(tl.reshape(tile, (M, N // 2, 2)))
    STORE
"""


@pytest.mark.parametrize(
    ("store", "shape", "along"),
    [
        ("d.store([at, 0], tile)", ("M", "N"), "yes"),
        ("d.store([at, 0], half)", ("M", "N // 2"), "yes"),
        ("d.store([at, 0], tile.to(tl.float16))", ("M", "N"), "yes"),
        ("tl.store_tensor_descriptor(d, [at, 0], tile)", ("M", "N"), "yes"),
        ("tl.store(d + at, 1.0)", (), "one element"),
        ("tl.store(tl.flip(d + tl.arange(0, N)), 1.0)", ("N",), ""),
        ("tl.store(d + at + tl.arange(0, N) * 2, tile)", ("N",), "no: 2 elements apart"),
    ],
)
def test_a_descriptor_stores_the_tile_that_it_is_handed_row_by_row(
    tmp_path: Path, store: str, shape: tuple[str, ...], along: str
) -> None:
    (tmp_path / "k.py").write_text(STORES.replace("STORE", store))
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (kernel,) = describe(own, inventory, select(inventory, "k"), **QUIET)
    assert [(m.shape, m.coalesced) for m in kernel.stores] == [(shape, along)]


SCALARS = """
import triton
import triton.language as tl

@triton.jit
def k(X, s, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    for i in range(3):
        made = SCALAR
    tl.store(X + at, made)
"""


@pytest.mark.parametrize(
    ("scalar", "flops"),
    [
        ("s * 1.5", 1), ("1.0 / n", 1), ("n / 2", 1), ("(n + 1) * 2.0", 1), ("i * 2.0", 1), ("s * 1.5 + 1.0 / n", 3), ("2.0 * s - s", 2),
        ("tl.load(X) * 0.5", 1), ("B * 0.5", 0), ("B / 2", 0), ("0.5 * 3.0", 0), ("n * 2", 0), ("n // 2", 0), ("n % 2 + 1", 0), ("i + n", 0),
    ],
)  # fmt: skip
def test_arithmetic_of_single_floats_counts_where_a_run_does_it(tmp_path: Path, scalar: str, flops: int) -> None:
    (tmp_path / "k.py").write_text(SCALARS.replace("SCALAR", scalar))
    own = Repository(name="own", root=tmp_path, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (kernel,) = describe(own, inventory, select(inventory, "k"), **QUIET)
    assert cost(kernel).flops == str(3 * flops)
