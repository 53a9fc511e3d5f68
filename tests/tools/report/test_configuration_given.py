"""A report says whose configuration its figures are of."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import report_toy as toy
from opscope_schemas.extracted_config import Configuration, Derivation, Hyperparameter, Place, Reads
from opscope_tools import write_report
from opscope_tools.report.configuration import _derived, _differing, _put_aside
from opscope_tools.report.facts import ImplementationFacts, SizedAs
from opscope_tools.report.summary import summarise
from opscope_tools.running.tool import ToolContext


def head(text: str) -> str:
    return next(line for line in text.splitlines() if line.startswith("**Configuration:**"))


def test_without_a_configuration_the_head_says_that_the_sizes_are_the_classs_defaults(
    facts: ImplementationFacts,
) -> None:
    line = head(toy.rendered_with(facts, {}).text)
    assert "default of `ToyConfig`" in line
    assert "need not be that of any checkpoint" in line
    assert "default of ToyConfig" in summarise(facts, "x.md", ()).insights[0]


def test_defaults_with_a_checkpoints_sizes_say_whose_and_how_it_stores_its_weights(facts: ImplementationFacts) -> None:
    line = head(toy.rendered_with(replace(facts, sized_as=SizedAs("org/toy-1b")), {}).text)
    assert "default of `ToyConfig`, with the sizes of the checkpoint org/toy-1b (" in line
    line = head(toy.rendered_with(replace(facts, sized_as=SizedAs("org/toy-1b", "mxfp4")), {}).text)
    assert "org/toy-1b, which stores its weights as mxfp4 where these are counted in bf16 (" in line


def test_overrides_are_named_field_by_field_in_the_head_the_summary_and_the_table(context: ToolContext) -> None:
    asked = write_report.WriteReportArguments(name="toy", config={"vocab_size": 77})
    facts = write_report.gather(asked, context)
    report = toy.rendered_with(facts, {})
    assert "`vocab_size=77` given" in head(report.text)
    assert "vocab_size=77 given" in report.facts.summary.insights[0]
    (row,) = [line for line in report.text.splitlines() if line.startswith("| `vocab_size`")]
    assert "given; default `100`" in row


def test_a_mapping_that_is_filled_in_part_by_part_says_by_what(facts: ImplementationFacts) -> None:
    """Which of the statements made the value, and which of them did not run, none of them tells alone."""
    steps = ("rope_scaling or self.rope_parameters", "self.rope_parameters or {}", '["rope_type"] = "default"')
    derived = tuple(
        Derivation(formula=f, within="ToyAttention.forward", file=toy.FILE, line=7 + at) for at, f in enumerate(steps)
    )
    own = Configuration(
        class_name="ToyConfig", file="toyland/configuration.py", line=1, end_line=9, kind="class", total=1
    )
    field = Hyperparameter(name="rope_parameters", line=3, basis="source", derived=derived)
    line = next(
        n for n in range(toy.line_of("class ToyAttention"), 999) if "def forward" in facts.reader.line(toy.FILE, n)
    )
    assert _derived(facts, own, field) == [f"filled in by `ToyAttention.forward` (`{toy.FILE}:{line}`)"]
    (alone,) = _derived(facts, own, field.model_copy(update={"derived": derived[2:]}))
    assert alone == f'set by `self.rope_parameters["rope_type"] = "default"` at `{toy.FILE}:9`'


def test_a_file_is_named(facts: ImplementationFacts) -> None:
    line = head(toy.rendered_with(replace(facts, given="/models/tiny/config.json"), {}).text)
    assert "as `tiny/config.json` gives it" in line


def test_a_line_that_declares_none_is_no_source_of_a_value() -> None:
    declared = Hyperparameter(name="head_dim", line=7, basis="source", default="None")
    assert _differing(declared, 128) == ["`None` there, in whose place the model puts this value"]
    assert _differing(declared, None) == []
    derived = Derivation(
        formula="self.hidden_size // self.num_attention_heads", within="ToyConfig.__post_init__", line=9
    )
    assert _differing(declared.model_copy(update={"derived": (derived,)}), 128) == []
    assert _differing(declared.model_copy(update={"value": 64}), 128) == ["source gives `64`"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["self.cap = self.config.cap", "return x"], True),
        (["self.cap = config.cap", "return x * config.cap"], True),  # the second is another place
        (["self.cap = config.cap", "return x * self.cap"], False),
        (["self.cap = config.cap", "return f(x, cap=module.cap)"], False),
        (["self.cap = config.cap", 'return getattr(self, "cap")'], False),
        (["self.cap = config.cap * 2", "return x"], False),
        (["y = config.cap", "return y"], False),
    ],
)
def test_a_setting_that_is_kept_where_nobody_looks_is_said_to_be(lines: list[str], said: bool) -> None:
    reader = SimpleNamespace(lines={"model.py": lines}.get)
    facts: Any = SimpleNamespace(reader=reader, graphs=[SimpleNamespace(operators=[SimpleNamespace(file="model.py")])])
    reads = Reads(count=1, first=(Place(file="model.py", line=1),))
    assert bool(_put_aside(facts, reads)) == said
    assert not _put_aside(facts, reads.model_copy(update={"count": 2}))  # one of them is not known
