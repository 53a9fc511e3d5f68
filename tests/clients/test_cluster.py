"""A sweep on a cluster is the sweep of one machine, and one that was broken off goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_runs import cluster
from opscope_clients.cluster import swept
from opscope_clients.session_options import SessionOptions
from opscope_schemas.errors import InputError
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext

TARGETS = ["LlamaMLP", "Qwen3MLP", "NoSuchModel"]
ASKED: dict[str, Any] = {"targets": TARGETS, "phase": "prefill", "values": {"batch_size": [1, 2], "seq_len": 8}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cluster("", 1, tmp_path_factory.mktemp("dask")) as client:
        yield client.scheduler.address


@pytest.fixture
def session(tmp_path: Path) -> SessionOptions:
    return SessionOptions(cache_dir=str(tmp_path / "cache"))


def test_it_is_the_table_of_one_machine_and_what_is_kept_is_not_asked_again(
    address: str, session: SessionOptions, tmp_path: Path
) -> None:
    there = swept(address, ASKED, session)
    elsewhere = SessionOptions(cache_dir=str(tmp_path / "other")).workspace()
    try:
        here = run_tool(tool_named("sweep"), ASKED, ToolContext(elsewhere))
    finally:
        close_engines(elsewhere)
        elsewhere.store.close()
    assert (there.columns, there.rows, there.count) == (here.columns, here.rows, here.count)
    assert [row[0] for row in there.rows] == [
        "LlamaMLP",
        "LlamaMLP",
        "Qwen3MLP",
        "Qwen3MLP",
        "NoSuchModel",
        "NoSuchModel",
    ]
    assert any("NoSuchModel" in note for note in there.notes)
    again = swept("tcp://127.0.0.1:1", {**ASKED, "targets": TARGETS[:2]}, session)  # where nobody listens
    assert again.rows == there.rows[:4]


def test_where_no_scheduler_answers_it_says_so(session: SessionOptions) -> None:
    with pytest.raises(InputError, match="No Dask scheduler answers"):
        swept("tcp://127.0.0.1:1", ASKED, session)
