"""A report with a kernel of real sources: its settings, tiles and checks are those that the source file holds."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import report_toy as toy
from kernel_sources import kernel_sources
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.extract_config.tool import EXTRACT_CONFIG
from opscope_tools.report.markdown import Page
from opscope_tools.report.outline import TABLES
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import folder_repository
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

TRITON = "sageattention/attn_qk_int8_per_block_causal.py"
CUDA = "exllamav2/exllamav2_ext/cuda/rms_norm.cu"


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    return kernel_sources()


def written(context: ToolContext, package: Path, kernel: str) -> str:
    """The saved report of the toy with the kernel; it passes its own check."""
    context.workspace.repositories["kernels"] = folder_repository("kernels", package)
    result = WRITE_REPORT.run(WriteReportArguments(name="toy", kernel=kernel), context)
    assert result.problems == ()
    checked = CHECK_REPORT.run(CheckReportArguments(path=result.path), context)
    assert checked.problems == ()
    return (context.workspace.output / result.path).read_text()


def cells(text: str, section: str, head: tuple[str, ...]) -> list[tuple[str, ...]]:
    page = Page(text)
    start = next(line for line, heading in page.headings if heading.startswith(section))
    table = next(t for t in page.tables if t.line > start and t.head == head)
    return [row for _, row in table.rows]


def component(text: str, name: str) -> str:
    return text.partition(f": {name}\n")[2].partition("\n---\n")[0]


def test_a_triton_kernel_gives_section_32_the_catalogue_and_its_pseudocode(
    context: ToolContext, sources: dict[str, Path]
) -> None:
    text = written(context, sources["sageattention"], f"{TRITON}::_attn_fwd")
    source = (sources["sageattention"] / TRITON).read_text()
    constants = dict(re.findall(r"^    (BLOCK_[MN]) = (\d+)$", source, re.MULTILINE))
    stages = re.findall(r"num_stages=(\d+)", source)
    rows = {row[0]: row for row in cells(text, "### 3.2", TABLES["3.2"])}
    assert list(rows)[:5] == ["`BLOCK_M`", "`BLOCK_N`", "`BLOCK_K`", "`NUM_STAGES`", "`NUM_WARPS`"]
    assert constants == {"BLOCK_M": "128", "BLOCK_N": "64"}  # what the reference search found
    for name, value in constants.items():
        assert rows[f"`{name}`"][1] == f"`{value}`"
        pointed = re.search(rf"{re.escape(TRITON)}:(\d+)", rows[f"`{name}`"][2])
        assert pointed is not None
        assert name in source.split("\n")[int(pointed[1]) - 1]
    assert rows["`BLOCK_K`"][1] == "n/a"
    assert rows["`NUM_STAGES`"][1] == " ".join(f"`{stage}`" for stage in stages)
    warps = re.search(r"num_warps=(\d+) if head_dim == 64 else (\d+)", source)
    assert warps is not None
    assert re.findall(r"`(\d+) if", rows["`NUM_WARPS`"][1]) == list(warps.groups())
    catalogue = cells(text, "## 5.", TABLES["5"])
    assert catalogue[-1][1] == "_attn_fwd"
    assert catalogue[-1][3].startswith("BLOCK_M=128, BLOCK_N=64")
    assert int(catalogue[-1][0]) == int(catalogue[-2][0].rpartition("-")[2]) + 1  # behind the last task of the model
    (listing,) = [f for f in Page(text).fences if f.language == "python" and f.lines[0].startswith("def _attn_fwd(")]
    (function,) = ast.parse("\n".join(listing.lines)).body
    assert isinstance(function, ast.FunctionDef)
    assert "Tiling: BLOCK_M=128, BLOCK_N=64" in (ast.get_docstring(function) or "")
    assert any("tl.load(Q_ptrs" in line for line in listing.lines)
    asserted = next(n for n, line in enumerate(source.split("\n"), 1) if "assert qo_len == kv_len" in line)
    assert f"- Kernel: `forward` (`{TRITON}:{asserted}`): `asserts qo_len == kv_len" in text


def test_a_cuda_kernel_gives_its_warps_as_nvcc_compiles_them_and_its_accesses_by_line(
    context: ToolContext, sources: dict[str, Path]
) -> None:
    text = written(context, sources["exllamav2"], f"{CUDA}::rms_norm_kernel")
    source = (sources["exllamav2"] / CUDA).read_text().split("\n")
    defined = [line.split("NUM_WARPS", 1)[1].strip() for line in source if line.startswith("#define NUM_WARPS")]
    assert len(defined) == 2  # the first where USE_ROCM is defined
    rows = cells(text, "### 3.2", TABLES["3.2"])
    assert [row[0] for row in rows[:5]] == ["`BLOCK_M`", "`BLOCK_N`", "`BLOCK_K`", "`NUM_STAGES`", "`NUM_WARPS`"]
    (tile,) = [row for row in rows if row[0] == "`NUM_WARPS`" and row[2].startswith("tile size")]
    assert tile[1] == f"`{defined[1]}`"
    said = component(text, "rms_norm_kernel")
    (listing,) = re.findall(r"```python\n(.*?)```", said, re.DOTALL)
    ast.parse(listing)
    lines = re.findall(r"# (?:load|store) (\w) \(global\).*:(\d+)", listing)
    indexed = [
        (match[1], number)
        for number, line in enumerate(source, 1)
        for match in re.finditer(r"\b([xyw])(?:_row|2)\[column\]", line)
    ]
    assert sorted((name, int(line)) for name, line in lines) == sorted(indexed)
    assert len(indexed) > 8
    assert cells(text, "## 5.", TABLES["5"])[-1][1] == "rms_norm_kernel"


def test_a_kernel_that_nobody_knows_is_refused_and_nothing_is_written(context: ToolContext) -> None:
    with pytest.raises(Exception, match="no_such_kernel"):
        WRITE_REPORT.run(WriteReportArguments(name="toy", kernel="no_such_kernel"), context)
    assert not list(context.workspace.output.rglob("*.md"))


def test_the_report_and_extract_config_say_the_same_of_a_kernel(context: ToolContext, sources: dict[str, Path]) -> None:
    text = written(context, sources["sageattention"], f"{TRITON}::_attn_fwd")
    said = toy.answer(EXTRACT_CONFIG, {"target": f"{TRITON}::_attn_fwd", "detail": "full"}, context)
    (kernel,) = said.model_dump()["kernels"]
    shown = [re.sub(r"[`{}]", "", row[1]) for row in cells(text, "### 3.2", TABLES["3.2"])]
    for setting in kernel["settings"]:
        assert ", ".join(re.sub(r"[{}]", "", value) for value in setting["values"]) in shown, setting["name"]


def test_a_tile_that_a_launch_works_out_is_said_in_the_kernels_own_names(
    context: ToolContext, sources: dict[str, Path]
) -> None:
    text = written(context, sources["liger-kernel"], "liger_kernel/ops/rms_norm.py::_rms_norm_forward_kernel")
    assert "_rms_norm_forward_kernel: BLOCK_SIZE=next_power_of_2(n_cols)" in text
