"""The tool: what a target can be, paging, shorter forms, caching, refusals."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import CancelledError, InputError, SourceError, UnknownNameError
from opscope_schemas.tiling import TilingResult
from opscope_tools import kernels
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING, TilingArguments
from opscope_tools.running.runner import shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace, folder_repository
from pydantic import ValidationError

CORPUS = Path(__file__).parents[1] / "corpus" / "kernels"
KERNEL = """
import triton
import triton.language as tl

@triton.jit
def {name}(x, B: tl.constexpr):
    tl.store(x + tl.program_id(0), 1)

def run(x, n):
    {name}[({grid},)](x, 4)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace({"shop": folder_repository("shop", CORPUS)}, tmp_path, MemoryStore())


def ask(workspace: Workspace, target: str, **arguments: object) -> TilingResult:
    return CUDA_KERNEL_TILING.run(
        TilingArguments.model_validate({"target": target, **arguments}), ToolContext(workspace)
    )


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("matmul_kernel", ["matmul_kernel"]),
        ("shop/ops/rows.py::same_name", ["same_name"]),
        ("rows.py::same_name", ["same_name"]),
        ("shop/ops/rows.py:13", ["_row_kernel"]),
        ("shop/csrc/sgemm.cu", ["sgemm_kernel"]),
        ("shop/csrc", ["attend_kernel", "fill_kernel", "sgemm_kernel", "compute"]),
        ("same_name", ["same_name", "same_name"]),
    ],
)
def test_a_target_is_a_name_a_path_with_name_or_line_a_file_or_a_folder(
    workspace: Workspace, target: str, names: list[str]
) -> None:
    assert [k.name for k in ask(workspace, target).kernels] == names


def test_kernels_that_share_a_name_are_listed_by_path(workspace: Workspace) -> None:
    result = ask(workspace, "same_name")
    assert result.notes[0] == (
        "2 kernels are called same_name: shop/ops/other.py::same_name, shop/ops/rows.py::same_name."
    )


def test_pages_together_are_the_whole_repository(workspace: Workspace) -> None:
    seen, offset = [], 0
    while True:
        page = ask(workspace, "shop", limit=3, offset=offset)
        seen += [k.id for k in page.kernels]
        if page.next_offset is None:
            break
        offset = page.next_offset
    assert len(seen) == len(set(seen)) == page.total
    assert page.not_analysed_counts == {"Numba CUDA": 1, "Triton source in a string": 1}


def test_each_shorter_form_is_smaller_and_says_how_to_get_the_rest(workspace: Workspace) -> None:
    whole = ask(workspace, "shop", limit=50)
    sizes = [len(whole.model_dump_json())]
    for shorten in CUDA_KERNEL_TILING.shorter:
        shorter = shorten(whole)
        assert "Ask for one kernel by path::name" in shorter.shortened
        assert [k.id for k in shorter.kernels] == [k.id for k in whole.kernels]
        sizes.append(len(shorter.model_dump_json()))
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == len(sizes)


def test_an_answer_too_long_for_lists_still_says_what_matters_of_each_kernel(workspace: Workspace) -> None:
    whole = ask(workspace, "shop", limit=50)
    *_, screens, _ = CUDA_KERNEL_TILING.shorter
    short = shorten_to(CUDA_KERNEL_TILING, whole, len(to_json(screens(whole))))
    assert all(k.screen for k in short.kernels)
    assert len(to_json(short)) < len(to_json(whole)) / 2


def test_a_summary_keeps_the_count_of_autotune_configs(workspace: Workspace) -> None:
    (kernel,) = ask(workspace, "matmul_kernel", detail="summary").kernels
    assert kernel.autotune is not None
    assert (kernel.autotune.count, kernel.autotune.configs) == (5, ())


def test_an_unknown_name_in_a_file_is_answered_with_the_files_own(workspace: Workspace) -> None:
    with pytest.raises(UnknownNameError) as error:
        ask(workspace, "shop/ops/other.py::same_nam")
    assert error.value.nearest == ["same_name"]
    assert "kernel of shop/ops/other.py" in str(error.value)


def test_an_unknown_name_is_answered_with_the_nearest(workspace: Workspace) -> None:
    with pytest.raises(UnknownNameError) as error:
        ask(workspace, "matmull_kernel")
    assert error.value.nearest[0] == "matmul_kernel"


def test_a_kernel_in_an_unread_language_is_named_as_such(workspace: Workspace) -> None:
    result = ask(workspace, "numba_kernel")
    assert result.kernels == ()
    assert [(u.form, u.name) for u in result.not_analysed] == [("Numba CUDA", "numba_kernel")]


def test_bad_arguments_are_refused_before_any_reading(workspace: Workspace) -> None:
    with pytest.raises(ValidationError):
        TilingArguments.model_validate({"target": "x", "limit": 0})
    with pytest.raises(ValidationError, match="extra"):
        TilingArguments.model_validate({"target": "x", "size": 3})
    with pytest.raises(InputError, match="not a GPU architecture"):
        ask(workspace, "matmul_kernel", arch="fermi")
    with pytest.raises(UnknownNameError, match=r"--repo|Nearest"):
        ask(workspace, "matmul_kernel", repo="nowhere")


def test_a_cancelled_call_stops(workspace: Workspace) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(CancelledError):
        CUDA_KERNEL_TILING.run(TilingArguments(target="matmul_kernel"), ToolContext(workspace, cancelled=cancelled))


def stored(workspace: Workspace) -> dict[str, dict[str, object]]:
    (key,) = tuple(workspace.store.keys())
    value: dict[str, dict[str, object]] = json.loads(workspace.store.get(key) or "{}")
    return value


def test_an_edit_is_seen_and_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(KERNEL.format(name="first", grid="n"))
    (tmp_path / "b.py").write_text(KERNEL.format(name="second", grid="n"))
    workspace = Workspace({"r": folder_repository("r", tmp_path)}, tmp_path, MemoryStore())
    assert ask(workspace, "first").kernels[0].num_tiles == "{n}"
    stored_before = stored(workspace)
    (tmp_path / "a.py").write_text(KERNEL.format(name="first", grid="n * 2"))
    assert ask(workspace, "first").kernels[0].num_tiles == "{n} * 2"
    stored_after = stored(workspace)
    assert stored_before["files"]["b.py"] == stored_after["files"]["b.py"]
    assert stored_before["files"]["a.py"] != stored_after["files"]["a.py"]


def test_a_damaged_cache_entry_is_rebuilt(workspace: Workspace) -> None:
    ask(workspace, "matmul_kernel")
    for key in tuple(workspace.store.keys()):
        workspace.store.put(key, '{"tree": "broken"')
    assert ask(workspace, "matmul_kernel").total == 1


def test_files_outside_the_repository_are_not_read_through_links(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "secret.py").write_text(KERNEL.format(name="secret", grid="1"))
    (inside / "own.py").write_text(KERNEL.format(name="own", grid="1"))
    (inside / "link.py").symlink_to(outside / "secret.py")
    (inside / "folder").symlink_to(outside)
    workspace = Workspace({"r": folder_repository("r", inside)}, tmp_path, MemoryStore())
    result = ask(workspace, "r")
    assert [k.name for k in result.kernels] == ["own"]


def test_a_repository_without_kernels_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("x = 1\n")
    workspace = Workspace({"r": folder_repository("r", tmp_path)}, tmp_path, MemoryStore())
    with pytest.raises(UnknownNameError, match="--repo NAME=PATH"):
        ask(workspace, "r")


def test_the_description_fits_an_agents_budget() -> None:
    assert len(CUDA_KERNEL_TILING.description) < 900


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"kind": "cuda", "op": "atomic"}, ["gemv_kernel"]),
        ({"kind": "triton", "op": "dot"}, ["matmul_kernel"]),
        ({"tile": "BLOCK_M=128", "kind": "cuda"}, ["sgemm_kernel"]),
        ({"tile": "BLOCK_N", "file": "*/ops/*.py", "kind": "kernel"}, ["matmul_kernel"]),
    ],
)
def test_filters_keep_the_kernels_that_have_what_they_name(
    workspace: Workspace, filters: dict[str, Any], names: list[str]
) -> None:
    result = ask(workspace, "shop", limit=50, **filters)
    assert [k.name for k in result.kernels] == names
    assert result.total == len(names)


def test_filters_that_nothing_passes_say_so(workspace: Workspace) -> None:
    result = ask(workspace, "shop", op="wgmma")
    assert result.kernels == ()
    assert "none passes kind, op, tile and file" in result.notes[0]


def test_sizes_evaluate_the_cost(workspace: Workspace) -> None:
    sizes = {"M": 256, "N": 512, "K": 64, "BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 32}
    sizes |= {f"{name}.element_size()": 2 for name in "ABC"}
    (kernel,) = ask(workspace, "matmul_kernel", sizes=sizes).kernels
    assert kernel.cost is not None
    assert kernel.cost.evaluated == {
        "flops": 2 * 64 * 32 * 64, "matmul_flops": 2 * 64 * 32 * 64, "read_bytes": 2 * (64 + 32) * 64, "write_bytes": 2 * 64 * 32,
        "launch_flops": 2 * 256 * 512 * 64, "launch_matmul_flops": 2 * 256 * 512 * 64,
        "launch_read_bytes": 4 * 16 * 2 * (64 + 32) * 64, "launch_write_bytes": 2 * 256 * 512,
        "intensity": round(2 * 64 * 32 * 64 / (2 * (64 + 32) * 64 + 2 * 64 * 32), 3),
    }  # fmt: skip


def test_sizes_that_are_missing_are_named_and_one_word_stands_for_all_tensors(workspace: Workspace) -> None:
    (kernel,) = ask(workspace, "matmul_kernel", sizes={"element_size()": 2, "BLOCK_M": 64, "BLOCK_N": 32}).kernels
    assert kernel.cost is not None
    assert kernel.cost.evaluated["write_bytes"] == 64 * 32 * 2
    assert set(kernel.cost.unbound) == {"K", "M", "N", "BLOCK_K"}


def test_a_value_for_a_name_that_no_kernel_has_is_said_with_the_nearest(workspace: Workspace) -> None:
    said = ask(workspace, "matmul_kernel", values={"BLOCKM": 64, "zzz": "fp16", "BLOCK_N": 32, "num_warps": 8}).notes
    near = next(note for note in said if note.startswith("`values`"))
    assert near.startswith("`values`: no parameter of these kernels is called BLOCKM (nearest: BLOCK_M")
    assert near.endswith(", zzz.")
    for kernel in ask(workspace, "shop", limit=200).kernels:
        for name in [*(p.name for p in kernel.parameters), *(c.name for c in kernel.constexpr)]:
            notes = ask(workspace, kernel.id, values={name: "*fp16"}).notes
            assert not any(note.startswith("`values`") for note in notes), (kernel.id, name)


def test_a_constexpr_that_is_a_word_is_no_type(tmp_path: Path) -> None:
    (tmp_path / "k.py").write_text("""
import triton
import triton.language as tl

@triton.jit
def k(X, MODE: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    x = tl.load(X + at)
    if MODE == "input":
        x = x * 2.0
    else:
        x = x * x * x
    tl.store(X + at, x)
""")
    own = Workspace({"own": folder_repository("own", tmp_path)}, tmp_path, MemoryStore())
    flops = {}
    for mode in ("input", "other"):
        (kernel,) = ask(own, "k", values={"MODE": mode, "X": "*fp16"}).kernels
        assert kernel.cost is not None
        assert kernel.cost.conditions == ()
        flops[mode] = kernel.cost.flops
    assert flops == {"input": "B", "other": "2 * B"}


def test_a_second_filter_describes_nothing_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ask(workspace, "shop", op="dot")
    monkeypatch.setattr(kernels, "describe", lambda *_, **__: [])
    assert ask(workspace, "shop", op="wgmma").total == 0
    assert first.total == 1


def test_a_screen_is_text_and_a_drawing_comes_when_asked_for(workspace: Workspace) -> None:
    (kernel,) = ask(workspace, "matmul_kernel", detail="screen", diagram="svg").kernels
    assert kernel.screen.startswith("matmul_kernel (triton)")
    assert kernel.diagram.startswith("<svg ")
    assert kernel.loads == ()


def test_what_matters_of_a_kernel_stands_before_its_lists(workspace: Workspace) -> None:
    result = ask(workspace, "matmul_kernel")
    written = json.loads(to_json(result))["kernels"][0]
    assert next(iter(written)) == "screen"
    assert written["screen"].startswith("matmul_kernel (triton)")
    assert written["loads"]


def test_an_answer_that_is_too_long_by_its_configurations_keeps_every_line(tmp_path: Path) -> None:
    many = ", ".join(f'triton.Config({{"BLOCK": {n}}}, num_warps={w})' for n in range(1, 200) for w in (2, 4))
    source = f"""import triton
import triton.language as tl

@triton.autotune(configs=[{many}], key=["n"])
@triton.jit
def scale(X, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(X + at, tl.load(X + at, mask=at < n) * 2.0, mask=at < n)

def run(x):
    scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x.numel())
"""
    (tmp_path / "scale.py").write_text(source)
    whole = ask(Workspace({"tuned": folder_repository("tuned", tmp_path)}, tmp_path, MemoryStore()), "scale")
    (kernel,) = whole.kernels
    assert kernel.autotune is not None
    assert (kernel.autotune.count, len(kernel.autotune.configs)) == (398, 398)
    short = shorten_to(CUDA_KERNEL_TILING, whole, len(to_json(whole)) - 1)
    (folded,) = short.kernels
    assert folded.autotune is not None
    assert (folded.autotune.count, folded.autotune.configs) == (398, ())
    assert (folded.loads, folded.stores, folded.cost) == (kernel.loads, kernel.stores, kernel.cost)
    assert folded.screen
    assert len(to_json(short)) < len(to_json(whole)) / 2


def test_a_file_without_kernels_and_one_that_does_not_parse_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "none.py").write_text("x = 1\n")
    (tmp_path / "ken.py").write_text("x = 1\n")  # ends as the name of the broken one does
    (tmp_path / "broken.py").write_text(KERNEL.format(name="k", grid="n").replace("def run(x, n)", "def run(x"))
    workspace = Workspace({"own": folder_repository("own", tmp_path)}, tmp_path, MemoryStore())
    with pytest.raises(SourceError, match=r"^none\.py defines no kernel\."):
        ask(workspace, "none.py")
    with pytest.raises(SourceError, match=r"^ken\.py defines no kernel\."):
        ask(workspace, "ken.py")
    with pytest.raises(SourceError, match=r"^broken\.py:9 does not parse as Python"):
        ask(workspace, "broken.py")


def test_a_size_that_no_formula_names_is_said_to_change_nothing(workspace: Workspace) -> None:
    target = "shop/ops/rows.py"
    named = {n for k in ask(workspace, target, sizes={"none": 1}).kernels if k.cost for n in k.cost.unbound}
    assert named
    given = dict.fromkeys((*named, "element_size()"), 2)
    assert not [n for n in ask(workspace, target, sizes=given).notes if "do not depend" in n]
    said = [n for n in ask(workspace, target, sizes={**given, "BLOCK_SIZ": 4}).notes if "do not depend" in n]
    assert said
    assert "BLOCK_SIZ:" in said[0]
    assert all(name in said[0] for name in named)
