"""The nearest measured row: of tables that this file writes, in a package that nobody may import."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opscope_schemas.errors import ConfigError
from opscope_tools.estimate_roofline.tool import RooflineArguments, with_nearest
from opscope_tools.hardware import measured, nearest
from opscope_tools.running.tool import ToolContext

SIZES = [2**power for power in range(7, 13)]
ROWS = list(itertools.product([1, 4, 16, 64, 256, 1024, 4096, 16384, 30000], SIZES, SIZES))
SMALL = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 1024, "vocab_size": 1000,
         "num_hidden_layers": 3}  # fmt: skip


def seconds(m: float, n: float, k: float) -> float:
    """What the made-up kernel takes: every row another time."""
    return 1e-6 + m * n * k * 1e-15


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package that fails when it is imported, with products of one backend in bf16."""
    pyarrow = pytest.importorskip("pyarrow", reason="the extra silicon brings it")
    from pyarrow import parquet

    package = tmp_path / "aiconfigurator_core"
    folder = package / "systems" / "data" / "h100_sxm" / "gemm" / "vllm" / "1.2.0"
    folder.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    columns = dict(zip("mnk", map(list, zip(*ROWS, strict=True)), strict=True))
    times = {"gemm_dtype": ["bfloat16"] * len(ROWS), "kernel_source": ["a_kernel"] * len(ROWS)}
    latency = [seconds(*row) * 1e3 for row in ROWS]
    parquet.write_table(pyarrow.table({**columns, **times, "latency": latency}), folder / "gemm_perf.parquet")
    monkeypatch.syspath_prepend(tmp_path)
    nearest._rows.cache_clear()
    yield tmp_path
    nearest._rows.cache_clear()


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("asked", [(1, 128, 128), (64, 3000, 1000), (29_000, 5000, 100), (7, 256, 2048)])
def test_the_row_is_the_one_of_the_least_mean_factor_between_sizes(asked: tuple[int, int, int]) -> None:
    found = nearest.nearest_row("h100_sxm", "product", "bf16", dict(zip("mnk", asked, strict=True)), "vllm")
    assert found is not None

    def factor(row: tuple[int, ...]) -> float:
        return math.exp(sum(abs(math.log(a / b)) for a, b in zip(row, asked, strict=True)) / 3)

    best = min(ROWS, key=factor)
    assert tuple(int(found.sizes[name]) for name in "mnk") == best
    assert found.factor == pytest.approx(factor(best))
    assert found.seconds == pytest.approx(seconds(*best))
    assert (found.kernels, found.table) == (("a_kernel",), "h100_sxm/gemm/vllm/1.2.0/gemm_perf.parquet")
    assert measured.PACKAGE not in sys.modules
    assert nearest.nearest_row("h100_sxm", "product", "fp8", {"m": 1.0}) is None
    assert nearest.nearest_row("h100_sxm", "experts", "bf16", {"tokens": 1.0}) is None


@pytest.mark.usefixtures("tables")
def test_an_estimate_has_a_row_beside_each_kernel_of_a_class_with_tables(context: ToolContext) -> None:
    asked = {"target": "llama", "hardware": "h100_sxm", "config": SMALL, "values": {"batch_size": 16, "cache_len": 64}}
    found = with_nearest(RooflineArguments.model_validate(asked), context)
    rows = {one.module.rpartition(".")[2]: one.nearest for one in found.operators}
    assert rows["down_proj"] is not None
    assert {n: rows["down_proj"].sizes[n] for n in "mnk"} == {"m": 16, "n": 512, "k": 1024}
    assert rows["down_proj"].factor == pytest.approx(1)
    assert all(one.nearest is None for one in found.operators if not one.measured_as.startswith("product,"))


def test_without_tables_a_sentence_says_how_to_have_them(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"pip install 'opscope\[silicon\]'"):
        with_nearest(RooflineArguments(target="llama", hardware="h100_sxm"), context)
