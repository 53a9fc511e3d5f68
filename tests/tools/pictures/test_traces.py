"""The trace for Perfetto: its form as the Trace Event Format says, and its numbers against the estimate."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import jsonschema
import made_up
import pytest
from opscope_tools.pictures.timeline import perfetto_trace

#: of the Trace Event Format (JSON object form) what a reader needs: complete events and metadata
NUMBER = {"type": "number", "minimum": 0}
EVENT = {
    "type": "object",
    "required": ["name", "ph", "pid", "tid", "args"],
    "properties": {"name": {"type": "string", "minLength": 1}, "pid": {"type": "integer"}, "tid": {"type": "integer"}},
    "oneOf": [
        {"properties": {"ph": {"const": "M"}, "name": {"enum": ["process_name", "thread_name"]}, "args": {"required": ["name"]}}},
        {
            "properties": {"ph": {"const": "X"}, "ts": NUMBER, "dur": NUMBER, "cat": {"type": "string"}},
            "required": ["ts", "dur", "cat"],
        },
    ],
}  # fmt: skip
TRACE = {
    "type": "object",
    "required": ["traceEvents"],
    "properties": {"traceEvents": {"type": "array", "items": EVENT}, "displayTimeUnit": {"enum": ["ms", "ns"]}},
}
ARGUMENTS = {"flops", "bytes", "bound", "file"}


def events(seed: int, **given: Any) -> tuple[Any, list[dict[str, Any]]]:
    result = made_up.decoder(seed, **given)
    trace = json.loads(perfetto_trace(result))
    jsonschema.validate(trace, TRACE)
    return result, trace["traceEvents"]


@pytest.mark.parametrize("calibrated", [True, False])
def test_every_kernel_is_an_event_in_each_process_with_what_it_costs_and_where_it_stands(calibrated: bool) -> None:
    result, found = events(1, calibrated=calibrated)
    processes = {e["pid"]: e["args"]["name"].partition(":")[0] for e in found if e["name"] == "process_name"}
    assert list(processes.values()) == (["bound", "calibrated"] if calibrated else ["bound"])
    for process, kind in processes.items():
        kernels = [e for e in found if e["ph"] == "X" and e["pid"] == process and e["cat"] != "layer"]
        assert len(kernels) == len(result.operators)
        for event, row in zip(kernels, result.operators, strict=True):
            told = event["args"]
            assert set(told) >= ARGUMENTS
            assert told["file"] == f"{row.file}:{row.line}"
            assert told["bound"] == row.limited_by
            layers = row.count / told["runs"]
            assert (told["flops"] * layers, told["bytes"] * layers) == pytest.approx((row.flops, row.bytes))
            seconds = row.bound_seconds if kind == "bound" else row.calibrated_seconds
            assert event["dur"] * layers / 1e6 == pytest.approx(seconds, rel=1e-9, abs=1.1e-12 * layers)  # picoseconds


@pytest.mark.parametrize("seed", range(6))
def test_slices_nest_and_never_overlap(seed: int) -> None:
    """What Perfetto asks of one thread: two slices are apart, or one holds the other."""
    _, found = events(seed)
    for process in (1, 2):
        slices = [
            (e["ts"], round(e["ts"] + e["dur"], 6), e["cat"]) for e in found if e["ph"] == "X" and e["pid"] == process
        ]
        layers = [s for s in slices if s[2] == "layer"]
        kernels = [s for s in slices if s[2] != "layer"]
        for before, after in pairwise(kernels):
            assert before[1] == after[0]
        for start, end, _ in kernels:
            assert all(end <= low or start >= high or (low <= start and end <= high) for low, high, _ in layers)
