"""The sweep over model types: what a dying worker, a second start and a limit of time leave, and the page of its records."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_runs import KilledWorker, TimeUpError, cluster, limited, run
from cost_records import ABSENT, DIED, EXACT, INCOMPLETE, REFUSED, Record, Records
from costs import lost
from coverage_page import page, reason
from distributed import Client

PHASES = ("prefill", "decode")


def _toy(name: str, deadly: str, tried: str) -> list[Record]:
    """Two records; the worker that does `deadly` ends."""
    with Path(tried).open("a") as file:
        file.write(f"{name}\n")
    if name == deadly:
        os._exit(7)
    return [Record(name, phase, "d", EXACT, seconds=1.0) for phase in PHASES]


def _never_ends() -> None:
    while True:
        time.monotonic()


def _turned_down(name: str) -> list[Record]:
    raise ValueError(name)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with cluster("", 1, tmp_path_factory.mktemp("scratch")) as found:
        yield found


def _sweep(client: Client, records: Records, deadly: str, tried: Path) -> None:
    missing = records.missing(["alpha", "beta", "gamma"], PHASES, "d")
    for name, result in run(client, _toy, {n: (n, deadly, str(tried)) for n in missing}):
        records.add(lost(name, missing[name], "d", result) if isinstance(result, Exception) else result)


def test_a_worker_that_dies_loses_its_own_type_and_a_second_start_does_only_that(
    client: Client, tmp_path: Path
) -> None:
    records, tried = Records(tmp_path / "records"), tmp_path / "tried"
    _sweep(client, records, "beta", tried)
    outcomes = {(r.model_type, r.phase): r.outcome for r in records.every("d")}
    assert outcomes == {(n, p): DIED if n == "beta" else EXACT for n in ("alpha", "beta", "gamma") for p in PHASES}
    assert sorted(tried.read_text().split()) == ["alpha", "beta", "beta", "gamma"]  # once more, on a new worker
    tried.unlink()
    _sweep(client, records, "", tried)
    assert tried.read_text().split() == ["beta"]
    assert {r.outcome for r in records.every("d")} == {EXACT}


def test_what_a_task_raises_is_its_own_result(client: Client) -> None:
    found = dict(run(client, _turned_down, {"alpha": ("alpha",), "beta": ("beta",)}))
    assert {n: repr(e) for n, e in found.items()} == {n: f"ValueError({n!r})" for n in ("alpha", "beta")}


def test_a_limit_ends_what_runs_in_this_thread_and_nothing_after_it() -> None:
    with pytest.raises(TimeUpError), limited(0.05):
        _never_ends()
    with limited(60):
        pass


def test_a_limit_counts_what_is_spent_not_the_time_that_others_take() -> None:
    with limited(0.3, lambda: 0.0):
        time.sleep(0.5)
    with pytest.raises(TimeUpError), limited(0.05, lambda: 0.0):
        _never_ends()


def test_records_of_other_code_and_lines_cut_short_are_none(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.add([Record("bert", "prefill", "old", EXACT), Record("gpt2", "prefill", "new", EXACT)])
    with (tmp_path / "gpt2.jsonl").open("a") as file:
        file.write('{"model_type": "gpt2", "phase": "dec')
    assert [r.model_type for r in records.every("new")] == ["gpt2"]
    assert records.missing(["bert", "gpt2"], PHASES, "new") == {"bert": PHASES, "gpt2": ("decode",)}


def test_a_record_is_the_same_when_read_again(tmp_path: Path) -> None:
    made = Record(
        "bert", "prefill", "d", EXACT, "why", 1.5, 1.2, 2, 3, ("products 3 for 4 at {}",), ("ValueError: no",)
    )
    Records(tmp_path).add([made])
    assert Records(tmp_path).every() == [made]


def test_two_workers_that_died_are_told_from_a_task_that_failed() -> None:
    died, failed = (lost("bert", ("prefill",), "d", e)[0] for e in (KilledWorker("k", None, 1), ValueError("x")))
    assert (died.outcome, failed.outcome, failed.reason) == (DIED, "failed", "ValueError: x")


def test_the_page_counts_outcomes_reasons_and_points_and_has_a_line_for_each_type() -> None:
    blank = Record(
        "bert", "prefill", "d", EXACT, seconds=2.0, processor=1.0, equal=2, unbuilt=("ValueError: odd at {}",)
    )
    words = "{} takes a decision that depends on data: {} at 7."
    found = page(
        [
            blank, replace(blank, phase="decode", outcome=ABSENT, seconds=0.0, equal=0, unbuilt=()),
            replace(blank, model_type="gpt2", processor=61.0, equal=1, wrong=("products 3 for 4 at {}", "read 1 for 2 at {}"), unbuilt=()),
            replace(blank, model_type="one", outcome=REFUSED, reason=words.format("OneModel", "'a.b'"), equal=0, unbuilt=()),
            replace(blank, model_type="two", outcome=REFUSED, reason=words.format("TwoForTexts", "'c'"), equal=0, unbuilt=()),
            replace(blank, model_type="three", outcome=INCOMPLETE, reason="aten.odd at x.py:3", wrong=("read 2 for 3 at {}",), unbuilt=()),
        ],
        9, "transformers 5", "d",
    )  # fmt: skip
    assert "5 of the 9 model types" in found
    assert "| exact | 2 | 0 | 0 |" in found
    assert "| 2 | refused | … takes a decision that depends on data: … at … | 2 | one, two |" in found.replace(
        "….", "…"
    )
    assert (
        "Tried 6: 3 equal, 2 wrong, 1 of models that cannot be built or run there; 83 % could be built. At 1 more"
        in found
    )
    assert "- gpt2 prefill: products 3 for 4 at {}" in found
    assert "| bert | exact, 1.0 s, 2 of 3 | – | not yet |" in found
    assert "Over 60 s: gpt2 prefill (61 s)." in found


def test_the_page_says_how_many_records_are_of_older_code() -> None:
    records = [Record("bert", "prefill", digest, EXACT) for digest in ("old", "new")]
    assert "1 of the 2 records were made before the code that traces changed last." in page(records, 9, "", "new")
    assert "made before" not in page(records[1:], 9, "", "new")


def test_refusals_for_one_reason_have_the_same_words() -> None:
    first = reason(
        "AlphaForVision could not be run on symbolic sizes: TypeError: 'x' is 12 long (models/alpha/modeling_alpha.py:12)."
    )
    second = reason(
        "BetaModel could not be run on symbolic sizes: TypeError: 'yy' is 9 long (models/beta/modeling_beta.py:980)."
    )
    assert first == second
    assert "TypeError" in first
