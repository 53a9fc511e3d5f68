"""What readers make of outputs that other settings give: threads that wait, caches that nothing misses."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
from opscope_schemas.evidence import Machine, Workload
from opscope_tools.collect_evidence.table import collector_named
from opscope_tools.evidence.bench import Bench
from opscope_tools.evidence.collectors import code

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
