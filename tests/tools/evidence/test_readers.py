"""What readers make of outputs that other settings give: threads that wait, caches that nothing misses."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from opscope_schemas.evidence import Machine, Workload
from opscope_tools.collect_evidence.table import collector_named
from opscope_tools.evidence.bench import Bench, RefusedError
from opscope_tools.evidence.collectors import code, memory

_ROWS = (
    ("6,176,361 (23.85%)", "882,598 ( 7.81%)", "280 ( 0.06%)", "3 ( 0.00%)", "???:0x000000000001df20 [lib/libgomp.so.1]"),
    ("2,078,536 ( 8.03%)", "5,891,736 (52.13%)", "352,797 (76.84%)", "235,284 (91.56%)", "???:mkl_blas_avx2_xsgemv_t [lib/libtorch_cpu.so]"),
    ("1,075,515 ( 4.15%)", "336,020 ( 2.97%)", "9,164 ( 2.00%)", "1,692 ( 0.66%)", "Python/ceval.c:_PyEval_EvalFrame"),
)  # fmt: skip


def annotated(total: str, rows: tuple[tuple[str, ...], ...] = _ROWS) -> dict[str, str]:
    lines = [f"{total}  PROGRAM TOTALS", *("  ".join(row) for row in rows)]
    return {"annotate": "\n".join(lines), "sizes": json.dumps({"tokens": 4})}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_function_that_is_named_misses_most_however_the_rows_are_sorted(order: tuple[int, ...]) -> None:
    total = "25,897,886 (100.0%)  11,302,647 (100.0%)  459,110 (100.0%)  256,975 (100.0%)"
    reading = collector_named("decode-caches", "cache-hierarchy").read(
        annotated(total, tuple(_ROWS[at] for at in order))
    )
    assert reading.values["symbol"] == "mkl_blas_avx2_xsgemv_t"
    assert reading.values["symbol_l2_percent"] == pytest.approx(100 * 235284 / 256975, abs=0.05)
    assert reading.values["l1_read_misses"] == 459110


def test_a_cache_that_nothing_misses_is_read_too() -> None:
    reading = collector_named("decode-caches", "cache-hierarchy").read(
        annotated("25 (100.0%)  11 (100.0%)  7 (100.0%)  0", (("25 (100.0%)", "11 (100.0%)", "7 (100.0%)", ".", "a.c:f [x]"),))
    )  # fmt: skip
    assert (reading.values["instructions"], reading.values["l2_read_misses"]) == (25, 0)
    assert reading.values["symbol_l2_percent"] == 0.0


def test_a_loop_of_waiting_that_has_no_name_is_not_taken_for_the_hot_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """perf annotates nothing by an address; the first function with a name and instructions is shown."""
    report = (
        "    52.10%  python3  libgomp.so.1  [.] 0x000000000001de62\n"
        "    30.20%  python3  libtorch_cpu.so  [.] gemv_kernel\n"
    )
    asked = []

    class Ran:
        def __init__(self, out: str) -> None:
            self.out = out

    def run(command: tuple[str, ...], **_: object) -> Ran:
        if command[1] == "report":
            return Ran(report)
        asked.append(command[4])
        return Ran("  90.00 :   1a0: movups (%rdi),%xmm1\n   1.00 :   1a4: addps %xmm1,%xmm0\n")

    bench = Bench(Workload(), Machine(name="here"), tmp_path, "python", lambda: None)
    monkeypatch.setattr(bench, "run", run)
    monkeypatch.setattr(bench, "good", lambda ran: ran)
    monkeypatch.setattr(code, "_sampled", lambda _: None)
    hot = collector_named("hot-loop", "cache-hierarchy")
    reading = hot.read(hot.collect(bench))
    assert asked == ["gemv_kernel"]
    assert (reading.values["symbol"], reading.values["symbol_percent"]) == ("gemv_kernel", 30.2)


def test_counters_of_ones_own_programs_are_read_and_a_table_without_any_is_none() -> None:
    table = "        1,234.56 msec task-clock:u    #  0.9 CPUs utilized\n             7      context-switches:u\n"
    assert collector_named("counters-software", "cache-hierarchy").read({"table": table}).values == {
        "task_clock_seconds": 1.23456,
        "context_switches": 7,
    }
    hardware = collector_named("counters-hardware", "cache-hierarchy")
    for text in ("", "prose", table, "   <not supported>      cycles\n"):
        with pytest.raises(RefusedError):
            hardware.read({"table": text})
    assert hardware.read({"table": "     5,123,456,789      cycles:u\n"}).values == {"cycles": 5123456789}


def test_a_file_of_a_model_that_is_called_like_a_product_is_none() -> None:
    stacks = (
        "forward (models/gemma2/modeling_gemma2.py:120);eager_attention_forward (models/gemma2/modeling_gemma2.py:9) 30\n"
        "forward (models/gemma2/modeling_gemma2.py:120);mkl_blas_def_xsgemv (libtorch_cpu.so) 50\n"
        "forward (models/gemma2/modeling_gemma2.py:120);cat_serial_kernel (libtorch_cpu.so) 20\n"
    )
    values = collector_named("stacks", "cache-hierarchy").read({"folded": stacks}).values
    assert (values["products_percent"], values["attention_percent"], values["cache_percent"]) == (50.0, 30.0, 20.0)


@pytest.mark.parametrize("ways", [code._WAYS, memory._POINTS])
def test_a_point_runs_what_it_is_named_after_whatever_the_workload_is(
    ways: tuple[tuple[str, dict[str, object]], ...], tmp_path: Path
) -> None:
    bench = Bench(
        Workload(batch_size=4, threads=2, dtype="bfloat16"), Machine(name="here"), tmp_path, "python", lambda: None
    )
    for name, changes in ways:
        line = " ".join(bench.program(**{**code.PLAIN, **changes}))
        dtype, _, rest = name.partition("_")
        assert ("bfloat16" in line) == (dtype == "bfloat16")
        number = int(rest[-1])
        assert f"--batch {number if rest.startswith('batch') else 1} " in line
        assert line.endswith(f"--threads {number if rest.startswith('threads') else 1}")
