"""A table's rows are what the single tools say at each of its points."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from opscope_schemas.errors import ConfigError, UnknownNameError, ValuesError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline, timing_of
from opscope_tools.running.runner import shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.sweep import SWEEP, SweepArguments, sizes_of, sweep

SMALL = {
    "num_hidden_layers": 3,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


def table(context: ToolContext, **given: Any) -> list[dict[str, Any]]:
    found = sweep(SweepArguments.model_validate(given), context)
    assert len(found.rows) == found.count
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def test_every_row_is_what_the_single_tools_say(context: ToolContext) -> None:
    """Points on either side of the conditions of a trace: one sequence and several, within a window and beyond it."""
    rows = table(
        context, targets=["mistral"], phase="decode", values={"batch_size": [1, 2, 5], "cache_len": [3, 63, 64, 200]},
        config={**SMALL, "sliding_window": 64}, hardware=["h100_sxm", "a100_sxm"],
        columns=["flops", "bytes", "bytes_read", "bytes_written", "bound_seconds", "calibrated_seconds", "weights_bytes", "fits"],
    )  # fmt: skip
    assert len(rows) == 3 * 4 * 2
    for row in rows:
        at = {"batch_size": row["batch_size"], "cache_len": row["cache_len"]}
        asked = {"target": "mistral", "phase": "decode", "values": at, "config": {**SMALL, "sliding_window": 64}}
        single = count_flops(CostArguments.model_validate({**asked, "logits": "last"}), context).evaluated
        assert single is not None
        assert (row["bytes_read"], row["bytes_written"], row["weights_bytes"]) == (
            single.memory_read,
            single.memory_write,
            single.weights,
        )
        timed = estimate_roofline(RooflineArguments.model_validate({**asked, "hardware": row["hardware"]}), context)
        assert (row["flops"], row["bytes"]) == (timed.totals.flops, timed.totals.bytes)
        assert row["bound_seconds"] == pytest.approx(timed.totals.bound_seconds, rel=1e-9)
        expected = timed.totals.calibrated_seconds
        assert expected is not None
        assert row["calibrated_seconds"] == pytest.approx(expected, rel=1e-9)
        assert row["fits"] == timed.memory.fits


def test_counts_without_a_device_are_those_of_the_eager_pass(context: ToolContext) -> None:
    for row in table(context, targets=["mistral"], values={"batch_size": [1, 3], "cache_len": [9, 70]}, config=SMALL):
        at = {"batch_size": row["batch_size"], "cache_len": row["cache_len"]}
        asked = {"target": "mistral", "phase": "decode", "values": at, "config": SMALL, "logits": "last"}
        single = count_flops(CostArguments.model_validate(asked), context).evaluated
        assert single is not None
        assert (row["flops"], row["bytes_read"]) == (single.flops, single.memory_read)


def test_on_several_devices_everything_of_a_default_row_is_of_one(context: ToolContext) -> None:
    """Of four ranks each computes, reads and keeps less than the whole, so no column beside the times is of all."""
    asked = {"targets": ["mistral"], "values": {"batch_size": 8, "cache_len": 64}, "config": SMALL}
    (one,), (four,) = (table(context, **asked, hardware=[device]) for device in ("h100_sxm", "h100_sxm:4"))
    for name in ("flops", "bytes", "weights_bytes", "cache_bytes"):
        assert 0.2 * one[name] < four[name] < 0.7 * one[name], name


def test_fields_of_a_configuration_are_varied_either_way(context: ToolContext) -> None:
    sizes = {"batch_size": 2, "seq_len": 8}
    small = {n: x for n, x in SMALL.items() if n != "num_hidden_layers"}
    by_config = table(
        context, targets=["llama"], phase="prefill", values=sizes, config={**small, "num_hidden_layers": [1, 4]}
    )
    by_value = table(
        context, targets=["llama"], phase="prefill", values={**sizes, "num_hidden_layers": [1, 4]}, config=small
    )
    assert [row["flops"] for row in by_config] == [row["flops"] for row in by_value]
    assert by_config[0]["flops"] < by_config[1]["flops"]


def test_a_trace_of_numbers_is_asked_at_no_other_size(context: ToolContext) -> None:
    """What is traced for one sequence has no variable for it, and so no condition that would break."""
    asked = RooflineArguments.model_validate({"target": "llama", "hardware": "h100_sxm", "config": SMALL})
    one = timing_of(asked, {"batch_size": 1, "cache_len": 64}, context)
    assert one.holds(batch_size=1, cache_len=65)
    assert not one.holds(batch_size=2, cache_len=64)


def test_a_published_configuration_is_taken_whole_from_its_file(context: ToolContext) -> None:
    """As every tool reads one; its lists are its own and are not varied."""
    published = {**SMALL, "model_type": "llama", "architectures": ["LlamaForCausalLM", "Other"]}
    file = context.workspace.output / "config.json"
    file.write_text(json.dumps(published), encoding="utf-8")
    asked = {"targets": ["llama"], "values": {"batch_size": 2, "cache_len": 64}}
    (row,) = table(context, **asked, config=SMALL)
    fields = dict.fromkeys(SMALL)
    for given in (str(file), published):
        (same,) = table(context, **asked, config=given)
        assert same == {name: value for name, value in row.items() if name not in fields}


def test_what_fails_at_a_point_is_said_and_the_others_stand(context: ToolContext) -> None:
    asked = {
        "targets": ["llama"],
        "phase": "prefill",
        "values": {"batch_size": 1, "seq_len": 4, "hidden_size": [256, 7]},
    }
    found = sweep(
        SweepArguments.model_validate({**asked, "config": {n: x for n, x in SMALL.items() if n != "hidden_size"}}),
        context,
    )
    first = found.columns.index("flops")
    good, bad = found.rows
    assert isinstance(good[first], int)
    assert bad[first:] == (None,) * (len(found.columns) - first)
    assert any(note.startswith("1 of 2 points: ") for note in found.notes)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("1..8*2", [1, 2, 4, 8]), ("3..9+3", [3, 6, 9]), ("5", [5]), (7, [7]), ([2, 1], [2, 1]), ("2,9", [2, 9])],
)
def test_sizes_are_read_as_they_are_written(given: Any, meant: list[int]) -> None:
    assert sizes_of("batch_size", given) == meant


@pytest.mark.parametrize("given", ["", "a", "1..", "5..1", "1..4*1", "0..4", "1;2", [], "1..4+0"])
def test_sizes_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(ValuesError, match="batch_size cannot be"):
        sizes_of("batch_size", given)


def test_too_many_points_and_times_of_no_device_are_refused(context: ToolContext) -> None:
    with pytest.raises(ValuesError, match="more than"):
        table(context, targets=["llama"], values={"batch_size": "1..1000", "cache_len": "1..1000"})
    with pytest.raises(UnknownNameError, match="flop"):
        table(context, targets=["llama"], values={"batch_size": 1}, columns=["flop"])
    with pytest.raises(ValuesError, match="is of a device"):
        table(context, targets=["llama"], values={"batch_size": 1}, columns=["fits"])


def test_an_agent_is_given_rows_evenly_apart_and_the_csv_all(context: ToolContext) -> None:
    asked = SweepArguments.model_validate(
        {"targets": ["llama"], "values": {"batch_size": "2..256", "cache_len": 64}, "config": SMALL}
    )
    whole = sweep(asked, context)
    told = shorten_to(SWEEP, whole)
    assert len(to_json(told)) < 6000
    assert told.shortened
    assert (told.rows[0], told.rows[-1]) == (whole.rows[0], whole.rows[-1])
    read = list(csv.reader(io.StringIO(whole.to_csv())))
    assert len(read) == 1 + 255
    assert read[1] == [str(cell) for cell in whole.rows[0]]
    assert whole._repr_html_().count("<tr>") == 201


def test_what_a_table_says_beside_its_rows(context: ToolContext) -> None:
    """More tokens than positions, a size that is missing, with what to do; a device that is none ends it before the first row."""
    asked = {
        "targets": ["llama"],
        "values": {"batch_size": 2, "cache_len": [8, 300]},
        "config": {**SMALL, "max_position_embeddings": 256},
    }
    found = sweep(SweepArguments.model_validate(asked), context)
    assert any(note.startswith("1 of 2 points: llama: more tokens than the 256 positions") for note in found.notes)
    small = {
        "num_layers": 2,
        "num_decoder_layers": 2,
        "d_model": 64,
        "d_ff": 96,
        "num_heads": 4,
        "d_kv": 16,
        "vocab_size": 99,
    }
    missing = sweep(
        SweepArguments.model_validate(
            {"targets": ["t5"], "values": {"batch_size": 2, "cache_len": 4}, "config": small}
        ),
        context,
    )
    assert any('for example {"encoder_seq_len": 128}' in note for note in missing.notes)
    with pytest.raises(ConfigError, match="names no number of devices"):
        sweep(SweepArguments.model_validate({**asked, "hardware": ["h100_sxm:x"]}), context)
