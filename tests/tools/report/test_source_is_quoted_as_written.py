"""What sections 3.1 and 3.3 quote from source stands there letter for letter, whatever braces it has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import report_toy as toy
from opscope_schemas.extracted_config import Derivation
from opscope_tools.report.checks import Material, check
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.markdown import Page


def derived(facts: ImplementationFacts, name: str, formula: str) -> ImplementationFacts:
    """The toy, whose configuration sets one parameter by a statement of its constructor."""
    assert facts.settings is not None
    (own,) = facts.settings.configurations
    step = Derivation(formula=formula, within="ToyConfig.__post_init__", line=1)
    held = [p.model_copy(update={"derived": (step,)} if p.name == name else {}) for p in own.hyperparameters]
    changed = own.model_copy(update={"hyperparameters": tuple(held)})
    return replace(facts, settings=facts.settings.model_copy(update={"configurations": (changed,)}))


def test_a_check_is_quoted_with_the_braces_of_its_message(facts: ImplementationFacts) -> None:
    assert "raises ValueError: hidden size {hidden_states.shape[-1]} is not" in toy.rendered_with(facts, {}).text


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("self.sizes if self.sizes else {}", "set to `self.sizes if self.sizes else {}` at"),
        ('["full"] = {"kind": "default"}', 'set by `self.use_cache["full"] = {"kind": "default"}` at'),
        ("//= 2", "set by `self.use_cache //= 2` at"),
        ("[1] == [2]", "set to `[1] == [2]` at"),
    ],
)
def test_a_statement_is_quoted_whole(facts: ImplementationFacts, formula: str, said: str) -> None:
    assert said in toy.rendered_with(derived(facts, "use_cache", formula), {}).text


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("raises `{path}` (`toyland/modeling_toy.py:1`)", False),
        ("raises `{path}` (`toyland/layers.py:1`)", True),
        ("raises {path} (`toyland/modeling_toy.py:1`)", True),
        ("raises `{path}`", True),
    ],
)
def test_braces_of_a_code_span_are_source_where_a_file_beside_it_has_them(
    facts: ImplementationFacts, text: str, refused: bool
) -> None:
    facts.reader._lines["toyland/modeling_toy.py"] = ['raise ValueError(f"{path} is no file")']
    try:
        rules = [problem.rule for problem in check(Material(Page(text), facts.reader))]
    finally:
        del facts.reader._lines["toyland/modeling_toy.py"]
    assert ("PLACEHOLDER" in rules) is refused
