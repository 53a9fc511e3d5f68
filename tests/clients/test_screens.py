"""Every tool's answer on real inputs: no line wider than the terminal, a screenful, nothing left out unsaid, no number of its own."""

from __future__ import annotations

import importlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed
import pytest
from opscope_clients import screens
from opscope_schemas.common import Frozen, ToolResult
from opscope_tools.catalog import all_tools, tool_named
from opscope_tools.estimate_roofline.sweeping import SWEEP as POINTS
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import compact, run_tool
from opscope_tools.running.session import open_workspace
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from rich.cells import cell_len
from rich.console import Console

SMALL = {
    "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000, "num_hidden_layers": 3,
}  # fmt: skip
AT = {"batch_size": 2, "seq_len": 64}
KERNELS = """
__global__ void scale(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2.0f; }
__global__ void shift(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1.0f; }
void run(float* x, int n) { scale<<<(n + 255) / 256, 256>>>(x, n); shift<<<(n + 127) / 128, 128>>>(x, n); }
"""
READ: list[tuple[str, dict[str, Any]]] = [
    ("resolve_class", {"name": "LlamaAttention"}), ("resolve_class", {"name": "Attention"}), ("resolve_class", {"name": "at::Tensor"}),
    ("find_forward", {"target": "llama"}), ("find_forward", {"target": "mixtral"}),
    ("find_references", {"target": "LlamaConfig.rope_parameters"}), ("find_references", {"target": "PreTrainedConfig"}),
    ("search_source", {"query": "where is the key value cache updated"}), ("search_source", {"query": "calls:grouped_mm"}),
    ("extract_config", {"target": "gemma3"}), ("extract_config", {"target": "llama", "section": "constraints", "detail": "full"}),
    ("map_repo", {"repo": "distributed"}), ("map_repo", {"repo": "distributed", "section": "loop"}),
    ("map_repo", {"repo": "own"}), ("cuda_kernel_tiling", {"target": "two.cu", "repo": "own", "detail": "screen"}),
    ("cuda_kernel_tiling", {"target": "scale", "repo": "own", "detail": "full"}),
    ("check_report", {"path": "reports/repos/own.md"}),
]  # fmt: skip
TRACED: list[tuple[str, dict[str, Any]]] = [
    ("inspect_model", {"model": "llama", "config": SMALL}),
    *((tool, {"target": "llama", "config": SMALL, "values": AT, "detail": detail})
      for tool in ("count_flops", "expand_refs", "trace_dataflow") for detail in ("numbers", "formulas")),
    ("count_flops", {"target": "llama", "config": SMALL, "values": AT, "phase": "train", "view": "eager"}),
    ("estimate_roofline", {"target": "llama", "config": SMALL, "hardware": "h100_sxm", "values": {"batch_size": 4, "cache_len": 64}}),
    ("compare", {"targets": ["llama", "qwen3"], "config": SMALL, "values": AT}),
    ("plan", {"target": "llama", "config": SMALL, "hardware": "h100_sxm:2"}),
    ("sweep", {"targets": ["llama"], "config": SMALL, "values": {"batch_size": "1..64"}, "hardware": ["h100_sxm"]}),
]  # fmt: skip
_SENTENCES = re.compile(r"… and .* more .*|.*cut at ….*|--.*|, [\d,]+ of [\d,]+(?=\t|  |$)")
_NUMBER = re.compile(
    r"(?<![\w.,{])(\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?(%|[kMGTP]?(?:FLOP|B)|[KMBT]|ms|us|s)(?![\w/]))?(?![\w{])"
)
_UNITS = {
    "": 1.0,
    "%": 1e-2,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "K": 1e3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "B": 1e9,
    "T": 1e12,
    "P": 1e15,
}


@pytest.fixture(scope="module")
def workspace(index_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    own = tmp_path_factory.mktemp("own")
    (own / "two.cu").write_text(KERNELS)
    large = Path(distributed.__file__).parent
    repositories = (f"own={own}", f"distributed={large}")
    found = open_workspace(repositories=repositories, cache_folder=str(index_folder), output=str(own / "written"))
    written = run_tool(tool_named("write_report"), {"kind": "repo", "name": "own"}, ToolContext(found))
    assert (own / "written" / written.path).is_file(), (written.notes, getattr(written, "problems", ""))
    yield found
    close_engines(found)
    found.store.close()


def printed(result: ToolResult, width: int, *, terminal: bool = True, whole: bool = False) -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=terminal, color_system=None, highlight=False)
    screens.show(console, result, whole=whole)
    return text.getvalue().splitlines()


def numbers(value: object) -> Iterator[float]:
    """Every number of a JSON answer, those in its texts and the lengths of its lists too."""
    if isinstance(value, dict):
        for key, held in value.items():
            yield from numbers(key)
            yield from numbers(held)
    elif isinstance(value, list):
        yield float(len(value))
        for held in value:
            yield from numbers(held)
    elif isinstance(value, str):
        yield from (float(found.replace(",", "")) for found in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", value))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)


def unknown(said: str, held: set[float]) -> list[str]:
    """The numbers of a screen that no number of the answer rounds to."""
    found = []
    for match in _NUMBER.finditer(said):
        plain, unit = match[1].replace(",", ""), (match[2] or "").replace("FLOP", "")
        scale = _UNITS.get(unit, _UNITS.get(unit[0] if unit else "", 1.0)) if unit != "B" else 1.0
        digits = len(plain.partition("e")[0].partition(".")[2])
        value = float(plain)
        near = max(0.5 * 10.0**-digits, 0.006 * value if match[2] or "e" in plain else 0.0) * 1.000001
        if not any(abs(h / s - value) <= near for h in held for s in (scale, 1.0, 1e9 if unit == "B" else scale)):
            found.append(match[0])
    return found


def held_to_the_property(tool: str, arguments: dict[str, Any], workspace: Workspace) -> None:
    result = run_tool(tool_named(tool), arguments, ToolContext(workspace))
    for width in (80, 120, 200):
        lines = printed(result, width)
        assert max(map(cell_len, lines)) <= width
        assert len(lines) <= 62
        everything = printed(result, width, whole=True)
        assert max(map(cell_len, everything)) <= width
        assert not any(line.endswith("more") or "cut at …" in line for line in everything)
        cut = len(everything) > len(lines) or any("…" in line for line in lines)
        assert not cut or any(line.startswith("--all shows everything") or "name one" in line for line in lines)
    piped = printed(result, 80, terminal=False)
    assert piped == printed(result, 200, terminal=False)
    told = "\n".join(_SENTENCES.sub("", line) for line in piped)
    assert unknown(told, set(numbers(json.loads(json.dumps(compact(result)))))) == []


@pytest.mark.parametrize(("tool", "arguments"), READ, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_read_fits_the_screen_and_says_no_number_of_its_own(
    tool: str, arguments: dict[str, Any], workspace: Workspace
) -> None:
    held_to_the_property(tool, arguments, workspace)


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "arguments"), TRACED, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_traced_fits_the_screen_and_says_no_number_of_its_own(
    tool: str, arguments: dict[str, Any], workspace: Workspace
) -> None:
    held_to_the_property(tool, arguments, workspace)


def test_every_screen_is_one_and_is_of_a_result_that_there_is() -> None:
    results = {tool.result.__name__ for tool in (*all_tools(), POINTS)}
    assert set(screens.SCREENS) <= results
    for place in screens.SCREENS.values():
        module, function = place.split(".")
        assert callable(getattr(importlib.import_module(f"opscope_clients.screens.{module}"), function))


def test_a_number_that_the_answer_does_not_hold_is_noticed() -> None:
    held = {6_738_415_616.0, 0.0042, 31.0}
    assert unknown("6.74B parameters, 4.2 ms, 6,738,415,616, line 31, 0.4 %", held) == []
    assert unknown("6.5B, 5 ms, 32", held) == ["6.5B", "5 ms", "32"]


class Part(Frozen):
    name: str
    sizes: tuple[int, ...]


class Whole(ToolResult):
    title: str
    parts: tuple[Part, ...]


def test_a_result_without_a_screen_of_its_own_is_a_table_and_counts_what_it_leaves_out() -> None:
    result = Whole(title="All", parts=tuple(Part(name=f"part {n}", sizes=(n, 2 * n)) for n in range(1, 301)))
    lines = printed(result, 80)
    assert lines[0] == "title: All"
    assert re.fullmatch(r"name, \d+ of 300 +sizes", lines[2])
    assert len(lines) <= 60
    assert [line.split()[1] for line in printed(result, 80, whole=True)[3:]] == [str(n) for n in range(1, 301)]
    piped = printed(result, 80, terminal=False)
    assert piped[3] == "part 1\t1, 2"
    assert re.fullmatch(r"… and \d+ more parts", piped[-2])
