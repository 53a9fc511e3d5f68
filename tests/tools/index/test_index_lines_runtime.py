"""The lines and callees of forwards against a run of small models of several kinds."""

from __future__ import annotations

import pytest
from forward_comparison import Tally, compare, truths
from opscope_tools.index import Index

#: a decoder, an encoder-decoder, a mixture of experts, a vision and a state-space model
MODELS = ("llama:LlamaForCausalLM", "t5:T5Model", "mixtral:MixtralModel", "vit:ViTModel", "mamba:MambaModel")


@pytest.fixture(scope="module")
def tally(installed_index: Index) -> Tally:
    tally = Tally()
    for truth in truths(MODELS):
        assert set(truth["ran"].values()) == {"whole"}, truth
        for record in truth["forwards"]:
            compare(installed_index, record, tally)
    return tally


def test_every_line_that_computes_is_given_and_none_is_marked_as_training_only(tally: Tally) -> None:
    assert tally.counts["lines compared"] > 150
    assert tally.named.keys() & {"lines missing", "lines wrongly training-only", "forwards not resolved"} == set()


def test_every_callee_is_the_one_that_ran_or_is_told_to_be_unknown(tally: Tally) -> None:
    equal, picked = tally.counts["callees equal"], tally.counts["callees among the candidates"]
    assert equal + picked >= 0.97 * tally.counts["calls compared"]
    assert picked > 5  # attention interfaces and activations
    assert [what for what in tally.named if "wrong" in what or "not listed" in what] == []
