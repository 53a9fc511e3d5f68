"""A report describes the pass by its own inputs, and finds positions that a nested configuration declares."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.analysis import Kernel, ModelInput, TensorInfo, Variable
from opscope_schemas.common import Repository, Source
from opscope_schemas.estimates import Alternative, RooflineResult, Spread
from opscope_tools.report import configuration, scan
from opscope_tools.report.configuration import configuration_rows
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.point import point_said
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.story import story

IMAGE = ModelInput(name="pixel_values", shape=("{batch_size}", "3", "{height}", "{height}"), dtype="bfloat16")
HEARD = ModelInput(name="input_features", shape=("{batch_size}", "80", "3000"), dtype="bfloat16")
IDS = ModelInput(name="input_ids", shape=("{batch_size}", "{seq_len}"), dtype="int64")


def test_a_model_of_images_is_described_by_its_image_and_not_by_tokens(facts: ImplementationFacts) -> None:
    seen = facts.main.model_copy(update={"phase": "forward", "model_inputs": (IMAGE,), "variables": ()})
    values = {"batch_size": 1, "height": 224, "seq_len": 1024, "cache_len": 0}
    assert point_said(seen, values) == "1 image of 224 x 224"
    assert point_said(seen, {**values, "batch_size": 3}) == "3 images of 224 x 224"


def test_a_model_of_images_and_text_is_described_by_both_and_without_a_cache(facts: ImplementationFacts) -> None:
    both = facts.main.model_copy(update={"phase": "forward", "model_inputs": (IDS, IMAGE)})
    values = {"batch_size": 1, "height": 224, "seq_len": 64, "cache_len": 0}
    assert point_said(both, values) == "batch 1, 64 tokens, 1 image of 224 x 224"


@pytest.mark.parametrize(("given", "what"), [((IMAGE,), "images"), ((IDS, IMAGE), "sequences"), ((IDS,), "sequences")])
def test_what_fits_is_counted_as_what_the_pass_is_given(
    facts: ImplementationFacts, given: tuple[ModelInput, ...], what: str
) -> None:
    alone = {"variables": ()} if given == (IMAGE,) else {}
    seen = facts.main.model_copy(update={"phase": "forward", "model_inputs": given, **alone})
    found = {"forward": facts.estimates["prefill"].model_copy(update={"phase": "forward"})}
    values = {**facts.point(facts.main), "height": 224}
    told = replace(facts, documents=(seen,), estimates=found, points={"forward": values})
    assert f"| Room for at most | 7 {what} like these" in toy.first_screen(told)


def test_features_are_described_by_their_sizes(facts: ImplementationFacts) -> None:
    document = facts.main.model_copy(update={"model_inputs": (HEARD,), "variables": ()})
    assert point_said(document, {"batch_size": 2}) == "batch 2, input_features of 2 x 80 x 3000"


@pytest.mark.parametrize("given", [(IMAGE,), (IDS, IMAGE), (IDS,), (HEARD, IDS)])
def test_every_number_that_a_point_marks_stands_in_what_it_says(
    facts: ImplementationFacts, given: tuple[ModelInput, ...]
) -> None:
    """A report keeps the numbers that are marked, and its check misses those without a place in the text."""
    marked: list[str] = []

    def quote(name: str, value: object) -> str:
        marked.append(f"[{name}={value}]")
        return marked[-1]

    document = facts.main.model_copy(update={"phase": "forward", "model_inputs": given})
    values = {"batch_size": 2, "height": 224, "seq_len": 64, "cache_len": 0}
    said = point_said(document, values, quote)
    assert marked
    assert [mark for mark in marked if mark not in said] == []


@pytest.mark.parametrize(
    "operator", ["aten.embedding", "aten.embedding.default", "aten.index"]
)  # a layer's, or `weight[positions]`
def test_positions_are_a_tables_only_where_one_is_looked_up(facts: ImplementationFacts, operator: str) -> None:
    """A number of the configuration bounds nothing by itself; a table does, by the rows that the conditions leave."""
    computed = toy.unmarked(toy.rendered_with(facts, {}).text)
    assert "takes any seq_len;" in computed
    assert "`ToyConfig` states 128 positions, and no table holds them." in computed
    (gather,) = facts.main.kernels[0].kernels or ()
    table = TensorInfo(name="", shape=("{max_position_embeddings}", "{hidden_size}"), dtype="bfloat16")
    looked = facts.main.kernels[0].model_copy(
        update={"kernels": (gather.model_copy(update={"inputs": (table,), "operator": operator}),)}
    )
    size = Variable(name="max_position_embeddings", meaning="", config_key="max_position_embeddings", default=128)
    main = facts.main.model_copy(
        update={
            "kernels": (looked, *facts.main.kernels[1:]),
            "variables": (*facts.main.variables, size),
            "conditions": (*facts.main.conditions, "{seq_len} + 2 <= {max_position_embeddings}"),
        }
    )
    said = toy.unmarked(toy.rendered_with(replace(facts, documents=(main, *facts.documents[1:])), {}).text)
    assert "takes a seq_len of up to 126;" in said
    assert "a table has those of a sequence of 126 tokens." in said


def test_a_weight_for_each_position_bounds_what_has_no_sequence(facts: ImplementationFacts) -> None:
    held = {"position_embeddings": (1, 197, 8)}
    root = facts.tree.tree.model_copy(update={"weights": held})
    config = {name: value for name, value in facts.tree.config.items() if name != "max_position_embeddings"}
    tree = facts.tree.model_copy(update={"tree": root, "config": config})
    text = toy.unmarked(toy.rendered_with(replace(facts, tree=tree), {}).text)
    assert "A: The weight `position_embeddings` holds 197 positions" in text


def test_positions_of_a_nested_configuration_are_said_in_the_table_and_in_the_answer(
    facts: ImplementationFacts,
) -> None:
    flat = {name: value for name, value in facts.tree.config.items() if name != "max_position_embeddings"}
    nested = facts.tree.model_copy(update={"config": {**flat, "text_config": {"max_position_embeddings": 64}}})
    text = toy.unmarked(toy.rendered_with(replace(facts, tree=nested, settings=None), {}).text)
    (row,) = [line for line in text.splitlines() if line.startswith("| `max_seq_len`")]
    assert row.startswith("| `max_seq_len` | 64 | ")
    assert "`text_config.max_position_embeddings`" in row
    assert "A: `text_config.max_position_embeddings` = 64" in text


def test_what_is_of_one_side_of_an_encoder_decoder_is_said_to_be(facts: ImplementationFacts) -> None:
    encoder = Variable(name="encoder_seq_len", kind="symbol", default=64, meaning="encoder tokens")
    fed = facts.main.model_copy(
        update={
            "phase": "decode",
            "model_inputs": (ModelInput(name="decoder_input_ids", shape=("{batch_size}", "1"), dtype="int64"),),
            "variables": (*facts.main.variables, encoder),
        }
    )
    values = {**facts.point(facts.main), "seq_len": 1, "cache_len": 9, "encoder_seq_len": 64}
    assert point_said(fed, values).endswith("1 new and 9 cached tokens, 64 encoder tokens")

    told = replace(facts, documents=(fed,), estimates={"decode": facts.estimates["decode"]}, points={"decode": values})
    assert " tokens/s of the decoder" in toy.first_screen(told)
    assert " of the decoder" not in toy.first_screen(facts)

    config = {
        **facts.tree.config,
        "is_encoder_decoder": True,
        "num_hidden_decoder_layers": 3,
        "decoder_layers": 3,
        "num_decoder_hidden_layers": 2,
    }
    both = replace(facts, tree=facts.tree.model_copy(update={"config": config}))
    of_encoder = {row[0] for row in configuration_rows(both, Quotes()) if " of the encoder" in row[2]}
    assert of_encoder == {"`num_layers`"}


def test_what_was_measured_to_take_longer_is_never_said_to_save_or_to_take_as_long(facts: ImplementationFacts) -> None:
    """The sign of what a change saves, as measured, decides its words at every share."""
    for share in (-2.0, -0.5, -0.006, -0.004, 0.0, 0.004, 0.006, 0.5):
        seconds = 2e-3 * (1 - share)
        one = Alternative(
            name="weights fp8", seconds=seconds, saved_seconds=2e-3 - seconds, share=share, basis="calibrated", bound_share=0.4
        )  # fmt: skip
        for off in (0.0, 0.1):
            changed = {"alternatives": (one.model_copy(update={"error_share": off}),)}
            found = {phase: each.model_copy(update=changed) for phase, each in facts.estimates.items()}
            text = toy.first_screen(replace(facts, estimates=found, batched=(found["decode"],)))
            (row,) = [line for line in text.split("\n") if line.startswith("| weights fp8 |")]
            cells = row.strip("| ").split(" | ")
            assert len(cells) == 4  # a decode step, one of more sequences, a prefill
            least = max(0.005, off)
            for cell in cells[1:]:
                assert cell.startswith(f"{abs(100 * share):.0f} %")
                assert (" longer" in cell) == (share <= -0.005)
                assert ("less than fits are off by" in cell) == (abs(share) < least)
            assert ("What is measured to take longer" in text) == (share < 0)


def test_times_are_those_of_the_devices_that_hold_the_passes(facts: ImplementationFacts) -> None:
    def found(one: RooflineResult, seconds: float, *, fits: bool, spread: Spread | None = None) -> RooflineResult:
        totals = one.totals.model_copy(
            update={"calibrated_seconds": seconds, "tokens_per_second": 1 / seconds if fits else None}
        )
        memory = one.memory.model_copy(update={"fits": fits, "largest_batch": 7 if fits else 0})
        return one.model_copy(update={"totals": totals, "memory": memory, "parallel": spread})

    sixteen = Spread(tp=8, pp=2, ep=1, dp=1, sp=False, devices=16)
    alone = {phase: found(one, 9e-3, fits=False) for phase, one in facts.estimates.items()}
    held = {phase: found(one, 4e-3, fits=True, spread=sixteen) for phase, one in facts.estimates.items()}
    took = toy.first_screen(replace(facts, estimates=alone, held=held))
    assert "As engines run it, on 16 Device: times" in took
    assert "| Time, modelled as engines run it | 4 ms (" in took
    assert "9 ms" not in took
    assert "One Device does not hold them: these are the fewest" in took
    assert (
        "2 stages of layers (a pipeline, whose stages have a part of the sequences each in work), each of 8 that share every layer"
        in took
    )
    assert took.count("does not fit in ") == 2
    (each,) = [line for line in took.split("\n") if line.startswith("| Memory of each of 16 |")]
    assert each.count("weights 96 B") == 2
    whole = toy.unmarked(toy.rendered_with(replace(facts, estimates=alone, held=held), {}).text)
    assert "Limited on the fewest of these devices that hold the passes, 16: prefill" in whole
    assert whole.count("on 16 Device, the share of each, calibrated:") == 2  # 8.2 draws one of them
    assert "had one the memory" not in toy.unmarked(toy.rendered_with(facts, {}).text)
    before = toy.first_screen(replace(facts, estimates=alone))
    assert "| Time, modelled as engines run it | had it the memory, 9 ms" in before
    assert "fewest" not in before


@pytest.mark.parametrize(("weights", "per_token", "kept"), [(960, 8, 0), (955, 7, 0), (960, 8, 400), (950, 3, 77)])
def test_the_cache_outweighs_the_weights_of_the_devices_that_hold_both(
    weights: int, per_token: int, kept: int, facts: ImplementationFacts
) -> None:
    """Ranks share weights and cache otherwise (each keeps one head of keys at least); `kept`: states, which do not grow."""
    at = facts.point(facts.documents[1])
    tokens = int((at["cache_len"] + 1) * at["batch_size"])
    part = {"weights_bytes": weights, "cache_bytes_per_token": per_token, "cache_bytes": per_token * tokens + kept}
    spread = Spread(tp=4, pp=1, ep=1, dp=1, sp=False, devices=4)
    held = {
        phase: one.model_copy(update={"memory": one.memory.model_copy(update=part), "parallel": spread})
        for phase, one in facts.estimates.items()
    }
    text = toy.unmarked(" ".join(story(replace(facts, held=held), Quotes())))
    found = re.search(
        r"From ([\d,]+) (cached tokens|sequences)[^.]*a device's cache takes more memory than its weights", text
    )
    assert found is not None
    each = per_token if found[2] == "cached tokens" else (per_token * tokens + kept) // int(at["batch_size"])
    number = int(found[1].replace(",", ""))
    assert number * each >= weights > (number - 1) * each
    assert (found[2] == "sequences") is (kept > 0)


def test_passes_of_more_sequences_or_images_are_told_with_their_rates(facts: ImplementationFacts) -> None:
    def told(phase: str, calibrated: float | None) -> str:
        alone = facts.estimates[phase]
        totals = alone.totals.model_copy(update={"calibrated_seconds": calibrated, "bound_seconds": 1e-3})
        room = alone.memory.model_copy(update={"largest_batch": 7})
        more = tuple(
            alone.model_copy(update={"totals": totals, "values": {**alone.values, "batch_size": batch}})
            for batch in (4, 7)
        )
        estimates = {**facts.estimates, phase: alone.model_copy(update={"memory": room})}
        return toy.unmarked(" ".join(story(replace(facts, growing=phase, batched=more, estimates=estimates), Quotes())))

    assert (
        "Of more sequences like these, in one modelled step: 4 take 2 ms (2,000 tokens/s), 7 take 2 ms (3,500 tokens/s), the most that "
        "fit, with no room for longer ones."
    ) in told("decode", 2e-3)
    assert "in one step: 4 take at least 1 ms (4,000 tokens/s at most), 7 take at least 1 ms" in told("decode", None)
    assert (
        "Of more sequences like these, in one modelled pass: 4 take 2 ms (2,000 sequences/s), 7 take 2 ms (3,500 sequences/s), the most "
        "that fit."
    ) in told("prefill", 2e-3)
    assert "like these, in one" not in toy.unmarked(" ".join(story(replace(facts, batched=()), Quotes())))


def test_attention_that_adds_a_tensor_to_its_scores_is_told_with_its_time(facts: ImplementationFacts) -> None:
    def told(dtype: str) -> str:
        given = [TensorInfo(name=name, shape=("1",), dtype="bfloat16") for name in ("query", "key", "value")]
        mask = TensorInfo(name="attn_mask", shape=("1",), dtype=dtype)

        def anew(kernel: Kernel) -> Kernel:
            inside = tuple(map(anew, kernel.kernels)) if kernel.kernels else kernel.kernels
            sdpa = {"operator": "opscope.sdpa", "inputs": (*given, mask)} if "mm" in kernel.operator else {}
            return kernel.model_copy(update={"kernels": inside, **sdpa})

        documents = tuple(d.model_copy(update={"kernels": tuple(map(anew, d.kernels))}) for d in facts.documents)
        rows = {
            phase: one.model_copy(
                update={
                    "operators": tuple(
                        row.model_copy(update={"kind": "attention", "measured_as": "x"}) for row in one.operators
                    )
                }
            )
            for phase, one in facts.estimates.items()
        }
        return toy.unmarked(" ".join(story(replace(facts, documents=documents, estimates=rows), Quotes())))

    assert "adds to its scores is read by none of these kernels" in told("bfloat16")
    assert "adds to its scores" not in told("bool")


@pytest.mark.parametrize(
    ("asks", "version", "told"),
    [
        ("is_torch_less_or_equal('2.10.0', accept_dev=True)", "2.13.0+cpu", False),
        ("is_torch_less_or_equal('2.10.0')", "2.10.0", True),
        ("is_torch_less_or_equal('2.10.0')", "2.9.1", True),
        ('is_torch_greater_or_equal("2.10.0")', "2.9.1", False),
        ('is_torch_greater_or_equal("2.10.0")', "2.13.0+cpu", True),
        ("not is_torch_less_or_equal('2.10.0')", "2.13.0+cpu", True),
        ("weight.is_cpu", "2.13.0+cpu", True),
    ],
)
def test_an_alignment_that_another_torch_asks_for_is_none(
    asks: str, version: str, told: bool, facts: ImplementationFacts, tmp_path: Path
) -> None:
    (tmp_path / "moe.py").write_text(f"if (\n    {asks}\n    and weight.data_ptr() % 16 != 0\n):\n    pass\n")
    reader = SourceReader([Repository(name="mine", root=tmp_path, packages=())])
    here = replace(facts, reader=reader, sources=(Source(repository="pytorch", version=version),))
    hit = scan.Hit("moe.py", 3, "", "weight.data_ptr() % 16 != 0")
    assert configuration._of_another_torch(here, hit) is not told
