"""Comparisons, superlatives, limits, biases: a sentence is refused exactly where the numbers or the model say otherwise."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from opscope_schemas.report import Problem
from opscope_tools.report.evidence import with_facts
from opscope_tools.report.markdown import Page
from opscope_tools.report.prose import prose_problems
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.traits import Trait, Traits

NOTHING = Traits()


def problems(text: str, values: Mapping[str, float], traits: Traits = NOTHING) -> list[Problem]:
    written, unknown = with_facts(text, values)
    assert not unknown
    return list(prose_problems(Page(written), values, traits, SourceReader(())))


def false(text: str, values: Mapping[str, float], traits: Traits = NOTHING) -> bool:
    found = problems(text, values, traits)
    assert {one.rule for one in found} <= {"CLAIM_FALSE"}, found
    return bool(found)


#: one side, what is said, the other: the sign of what is said, the places of both facts
COMPARISONS = (
    ("Decode moves more bytes than prefill: {{fact:decode.bytes}} against {{fact:prefill.bytes}}.", 1),
    ("Decode moves fewer bytes than prefill: {{fact:decode.bytes}} against {{fact:prefill.bytes}}.", -1),
    ("Decode moves {{fact:decode.bytes}}, which is more than the {{fact:prefill.bytes}} of prefill.", 1),
    ("With {{fact:decode.bytes}} moved, decode stays below prefill, against its {{fact:prefill.bytes}}.", -1),
    ("Prefill moves less than decode: {{fact:prefill.bytes}} against {{fact:decode.bytes}}.", 1),
    ("Prefill is heavier than decode: {{fact:prefill.bytes}} against {{fact:decode.bytes}}.", -1),
)


@pytest.mark.parametrize("seed", range(40))
def test_a_comparison_is_refused_exactly_where_it_goes_the_other_way(seed: int) -> None:
    draw = random.Random(seed)
    values = {"decode.bytes": float(draw.randint(1, 10**12)), "prefill.bytes": float(draw.randint(1, 10**12))}
    for text, sign in COMPARISONS:
        right = (values["decode.bytes"] > values["prefill.bytes"]) is (sign > 0)
        assert false(text, values) is not right, text


@pytest.mark.parametrize("seed", range(20))
def test_the_largest_and_the_smallest_are_those_of_their_kind(seed: int) -> None:
    draw = random.Random(seed)
    names = ["weights_int4", "weights_fp8", "weights_mxfp4", "cache_fp8"]
    values = {f"decode.saved.{name}.bound": float(draw.randint(1, 99)) for name in names}
    for name in names:
        key = f"decode.saved.{name}.bound"
        for word, extreme in (("most", max(values.values())), ("least", min(values.values()))):
            text = f"Of all savings this one brings the {word}: {{{{fact:{key}}}}} % of the bound."
            assert false(text, values) is (values[key] != extreme), text


@pytest.mark.parametrize("share", [1.0, 49.0, 51.0, 88.0])
def test_most_of_something_is_more_than_half(share: float) -> None:
    text = "Most of a decode step goes to attention, {{fact:decode.time.attention}} % of its time."
    assert false(text, {"decode.time.attention": share}) is (share < 50)


def test_what_passes_what_is_the_larger_from_there_on() -> None:
    values = {"decode.cache_passes_weights": 45_967.0}
    beyond, below = (
        "Beyond {{fact:decode.cache_passes_weights}} cached tokens",
        "Below {{fact:decode.cache_passes_weights}} cached tokens",
    )
    assert not false(f"{beyond} the cache is larger than the weights.", values)
    assert false(f"{beyond} the weights are larger than the cache.", values)
    assert false(f"{below} the cache is larger than the weights.", values)
    assert not false(f"{below} the weights are larger than the cache.", values)


def limits() -> Iterator[tuple[str, bool]]:
    """What is said of a decode step that memory limits, and whether it is so."""
    for said, memory in (("limited by memory", True), ("memory-bound", True), ("bound by bandwidth", True), ("limited by compute", False), ("compute-bound", False)):  # fmt: skip
        yield f"Decode is {said}.", memory
        yield f"A decode step is not {said}.", not memory


@pytest.mark.parametrize(("text", "right"), list(limits()))
def test_a_pass_is_limited_by_what_limits_it(text: str, right: bool) -> None:
    traits = Traits(limits={"decode": ("memory", "memory limits decode")})
    assert false(text, {}, traits) is not right
    assert not false(
        text.replace("ecode", "ncode", 1).replace("Dn", "En"), {}, traits
    )  # of another pass nothing is known


def test_biases_are_those_of_the_projections_that_are_named() -> None:
    attention, feed = "attention", "feed-forward network"
    biases = {
        **{f"{x}_proj": (x != "o", attention) for x in "qkvo"},
        "up_proj": (False, feed),
        "down_proj": (False, feed),
    }
    traits = Traits(biases=biases, held={"bias": Trait(None, "some projections have a bias")})
    for right in (
        "`q_proj` has a bias.", "`o_proj` has no bias.", "The query, key and value projections carry a bias, while the output projection has no bias.",
        "The MLP has no bias.", "The projections of query and key add a bias.",
    ):  # fmt: skip
        assert not false(right, {}, traits), right
    for wrong in (
        "`q_proj` has no bias.", "`o_proj` has a bias.", "The query, key and value projections carry no bias; the output projection does.",
        "The feed-forward network adds a bias.", "No projection of attention has a bias.", "The projections of query and key are bias-free.",
    ):  # fmt: skip
        assert false(wrong, {}, traits), wrong


def test_what_has_no_parameters_learns_nothing() -> None:
    traits = Traits(
        learned={"PlainNorm": frozenset(), "ScaledNorm": frozenset({"weight"})},
        classes={"PlainNorm": "normalisation", "ScaledNorm": "normalisation"},
    )
    assert false("`PlainNorm` learns one scale per channel.".replace("one scale", "a scale"), {}, traits)
    assert false("`ScaledNorm` has no learnable weight.", {}, traits)
    assert not false("`PlainNorm` has no learnable weight.", {}, traits)
    assert not false("`ScaledNorm` has a learned scale.", {}, traits)


def test_an_activation_is_the_models() -> None:
    traits = Traits(activations=frozenset({"silu"}), biases={"gate_proj": (False, "feed-forward network")})
    assert false("The MLP uses GELU between its projections.", {}, traits)
    assert false("The MLP has no gate.", {}, traits)
    assert not false("The MLP is gated: SiLU of the gate multiplies the other branch.", {}, traits)
    assert not false("The MLP uses SwiGLU, not GELU.", {}, traits)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("Each token costs half a megabyte ({{fact:decode.cache_per_token}}).", False),
        ("Each token costs half a gigabyte ({{fact:decode.cache_per_token}}).", True),
        ("Nine tenths of them sit in the layers: {{fact:layers.share_of_parameters}} %.", False),
        ("Six tenths of them sit in the layers: {{fact:layers.share_of_parameters}} %.", True),
        ("Prefill moves more than twice as many bytes as decode: {{fact:prefill.bytes}} against {{fact:decode.bytes}}.", False),
        ("Prefill moves about three times as many bytes as decode: {{fact:prefill.bytes}} against {{fact:decode.bytes}}.", True),
    ],
)  # fmt: skip
def test_a_number_that_follows_from_the_facts_beside_it_may_stand(text: str, refused: bool) -> None:
    values = {
        "decode.cache_per_token": 524_288.0,
        "layers.share_of_parameters": 89.7,
        "prefill.bytes": 57e9,
        "decode.bytes": 25e9,
    }
    assert bool(problems(text, values)) is refused


def test_heads_and_layers_are_counted_by_facts_alone() -> None:
    file = Path(__file__).name
    text = f"Groups of four query heads read a key-value head, which keeps the cache small (`{file}:1`)."
    assert [one.rule for one in problems(text, {"attention.query_heads": 32.0})] == ["NUMBER_UNMARKED"]


@pytest.mark.parametrize("seed", range(20))
def test_what_falls_from_one_amount_to_another_falls(seed: int) -> None:
    draw = random.Random(seed)
    values = {"decode.time.calibrated": draw.random(), "rank.tp8.time": draw.random(), "rank.tp8.ranks": 8.0}
    down = values["rank.tp8.time"] < values["decode.time.calibrated"]
    amounts = "from {{fact:decode.time.calibrated}} to {{fact:rank.tp8.time}}"
    assert false(f"Splitting the model cuts a decode step {amounts}.", values) is not down
    assert false(f"Splitting the model slows a decode step {amounts}.", values) is down


def test_the_figures_of_a_plan_are_of_its_ranks() -> None:
    values = {"rank.tp4.ranks": 4.0, "rank.tp4.time": 0.004, "rank.tp8.ranks": 8.0, "rank.tp8.time": 0.002}
    assert not false("Over {{fact:rank.tp4.ranks}} devices a decode step takes {{fact:rank.tp4.time}}.", values)
    assert false("Over {{fact:rank.tp4.ranks}} devices a decode step takes {{fact:rank.tp8.time}}.", values)


@pytest.mark.parametrize("grows", [True, False])
def test_a_cache_grows_where_it_does(grows: bool) -> None:
    traits = Traits(held={"growing": Trait(grows, "as it is")})
    assert false("The cache grows by the same amount with each token.", {}, traits) is not grows
    assert false("The cache stays of constant size.", {}, traits) is grows


def test_what_does_not_fit_and_what_is_not_routed_everywhere() -> None:
    traits = Traits(fits=(False, "H100"), routed=(2.0, 8.0))
    assert false("The weights fit on a single H100, so that one card is enough.", {}, traits)
    assert not false("The weights do not fit on a single H100.", {}, traits)
    assert false("Every token passes through all {{fact:experts}} experts.", {"experts": 8.0}, traits)
    assert not false("A token is never sent to all {{fact:experts}} experts.", {"experts": 8.0}, traits)
    assert not false("The weights fit on a single H100.", {}, Traits(fits=(True, "H100")))


def test_a_ratio_beside_two_facts_is_no_comparison_of_them() -> None:
    values = {"decode.flops": 14e9, "prefill.flops": 14e12}
    text = "A decode step takes {{fact:decode.flops}} against {{fact:prefill.flops}} and still moves more than a third of the bytes."
    assert "CLAIM_FALSE" not in [one.rule for one in problems(text, values)]


def test_above_a_ridge_is_above_it() -> None:
    text = "With {{fact:prefill.intensity}} FLOPs per byte a prefill lies above the ridge of {{fact:ridge}}."
    assert false(text, {"prefill.intensity": 133.0, "ridge": 295.0})
    assert not false(text, {"prefill.intensity": 333.0, "ridge": 295.0})


def test_a_number_of_ranks_may_stand_beside_their_facts_and_is_no_speed_up() -> None:
    values = {
        "rank.tp8.time": 2.0,
        "decode.time.calibrated": 5.0,
        "attention.query_heads": 32.0,
        "attention.key_value_heads": 8.0,
    }
    assert not problems("Over eight devices a decode step takes {{fact:rank.tp8.time}}.", values)
    assert problems(
        "A decode step is eight times faster: {{fact:rank.tp8.time}} instead of {{fact:decode.time.calibrated}}.",
        values,
    )
    heads = (
        "there are {{fact:attention.query_heads}} query heads on {{fact:attention.key_value_heads}} key-value heads."
    )
    assert not problems(f"Four query heads read each key-value head, as {heads}", values)
    assert problems(f"Six query heads read each key-value head, as {heads}", values)


def test_a_part_counts_what_its_whole_counts() -> None:
    values = {"attention.query_heads": 16.0, "experts": 512.0, "experts.chosen": 10.0}
    assert problems(
        "The router sends each token to {{fact:attention.query_heads}} of the {{fact:experts}} experts.", values
    )
    assert not problems(
        "The router sends each token to {{fact:experts.chosen}} of the {{fact:experts}} experts.", values
    )
