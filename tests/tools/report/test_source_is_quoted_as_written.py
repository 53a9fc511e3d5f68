"""What sections 3.1 and 3.3 quote from source stands there letter for letter, whatever braces it has."""

from __future__ import annotations

from dataclasses import replace

import pytest
import report_toy as toy
from opscope_schemas.extracted_config import Derivation, Meaning
from opscope_tools.report.checks import Material, check
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.markdown import Page
from opscope_tools.report.purposes import purpose
from opscope_tools.report.quotes import Quotes


def derived(facts: ImplementationFacts, name: str, formula: str) -> ImplementationFacts:
    """The toy, whose configuration sets one parameter by a statement of its constructor."""
    step = Derivation(formula=formula, within="ToyConfig.__post_init__", line=1)
    return declared(facts, name, {"derived": (step,)})


def test_what_is_set_whatever_was_given_is_not_set_again_where_it_is_none(facts: ImplementationFacts) -> None:
    steps = [
        Derivation(formula=formula, within="ToyConfig.__post_init__", line=line, condition=condition)
        for line, (formula, condition) in enumerate(
            [
                ("self.width // 2", "self.odd"),
                ("self.hidden_size", ""),
                ("self.width", "self.use_cache is None"),
                ("3", "self.odd"),
            ],
            1,
        )
    ]
    said = toy.unmarked(toy.rendered_with(declared(facts, "use_cache", {"derived": tuple(steps)}), {}).text)
    assert "set to `self.width // 2` where `self.odd`" in said
    assert "set to `self.hidden_size` at" in said
    assert "self.use_cache is None" not in said
    assert "set to `3` where `self.odd`" in said


def declared(facts: ImplementationFacts, name: str, update: dict[str, object]) -> ImplementationFacts:
    """The toy, whose source says something else of one parameter."""
    assert facts.settings is not None
    (own,) = facts.settings.configurations
    held = [p.model_copy(update=update if p.name == name else {}) for p in own.hyperparameters]
    changed = own.model_copy(update={"hyperparameters": tuple(held)})
    return replace(facts, settings=facts.settings.model_copy(update={"configurations": (changed,)}))


def test_a_docstring_is_quoted_with_its_braces(facts: ImplementationFacts) -> None:
    text = toy.rendered_with(facts, {}).text
    assert "Its source says: `One of the layers that are kept as layers.{index}.`" in text
    assert not [problem for problem in check(Material(Page(text), facts.reader)) if problem.rule == "PLACEHOLDER"]


def test_no_words_of_a_librarys_class_are_quoted(facts: ImplementationFacts) -> None:
    """It may do more than it does in this model."""
    layer = next(m for m in facts.modules if m.class_name.endswith("ToyLayer"))
    main = facts.main.model_copy(update={"file": "mine/model.py"})
    for told, quoted in ((facts, True), (replace(facts, documents=(main, *facts.documents[1:])), False)):
        assert ("Its source says" in purpose(told, layer, Quotes())) is quoted


@pytest.mark.parametrize(("file", "said"), [("", "{prefix}"), ("toyland/helpers.py", "(prefix)")])
def test_a_meaning_is_quoted_with_its_braces_beside_the_file_that_has_them(
    facts: ImplementationFacts, file: str, said: str
) -> None:
    meaning = Meaning(text="as {prefix}.cache says", file=file, line=3, origin="docstring")
    text = toy.rendered_with(declared(facts, "use_cache", {"meaning": meaning}), {}).text
    assert f"`as {said}.cache says`; `use_cache` (`" in text


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
