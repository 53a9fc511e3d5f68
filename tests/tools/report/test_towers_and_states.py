"""Models that are no single stack of attention layers: towers side by side, state of fixed size, no cache at all."""

from __future__ import annotations

import re
from dataclasses import replace

import report_toy as toy
from opscope_schemas.analysis import CallSite, ModuleNode
from opscope_schemas.dataflow import CacheGrowth
from opscope_tools.report.facts import ImplementationFacts, walk
from opscope_tools.report.overview import layers_turned, turned_in
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.reference import faq
from opscope_tools.report.story import story
from opscope_tools.report.summary import summarise


def unmarked(text: str) -> str:
    return re.sub("<!--.*?-->", "", text)


def test_layers_of_towers_are_told_for_each(facts: ImplementationFacts) -> None:
    def tower(name: str, count: int) -> ModuleNode:
        layer = ModuleNode(name=f"0-{count - 1}", class_name="m.Layer", repeat=count)
        stack = ModuleNode(name="layers", class_name="m.List", children=(layer,))
        return ModuleNode(name=name, class_name="m.Tower", children=(stack,))

    def told(*children: ModuleNode) -> str:
        root = facts.tree.tree.model_copy(update={"children": children})
        tree = facts.tree.model_copy(update={"tree": root})
        return unmarked(story(replace(facts, tree=tree), Quotes())[0])

    assert ", 2 layers, " in told(tower("words", 2))
    assert ", 2 layers in `words` and 3 layers in `pictures`, " in told(tower("words", 2), tower("pictures", 3))
    both = ModuleNode(name="model", class_name="m.Both", children=(tower("words", 2), tower("pictures", 3)))
    assert ", 2 layers in `words` and 3 layers in `pictures`, " in told(both)


def test_one_of_a_kind_is_told_in_the_singular(facts: ImplementationFacts) -> None:
    """Whatever number stands before it: each noun of the report agrees with it."""
    few = replace(facts, values={**facts.values, "num_layers": 1, "num_kv_heads": 1}, points={})
    summary = summarise(few, "toy.md", ())
    text = "\n".join([unmarked(toy.rendered_with(few, {}).text), *summary.insights, *summary.optimizations])
    assert "on 1 key-value head (" in text
    assert ", 1 layer, " in text
    assert "is the only layer" in text
    wrong = r"\b1 (?:[a-z-]+ )?(?:heads|layers|experts|operators|places|loads|weights|lines|files|checks|ranks)\b"
    assert not re.findall(wrong, text)


def test_a_model_without_a_cache_fits_with_activations_alone(facts: ImplementationFacts) -> None:
    assert "; with cache and activations it fits at these sizes on one" in faq(facts, Quotes())[3]
    without = {
        phase: found.model_copy(update={"memory": found.memory.model_copy(update={"cache_bytes": 0})})
        for phase, found in facts.estimates.items()
    }
    assert "; with activations it fits at these sizes on one" in faq(replace(facts, estimates=without), Quotes())[3]


def test_state_of_fixed_size_is_told_apart_from_what_grows(facts: ImplementationFacts) -> None:
    assert "size is fixed" not in faq(facts, Quotes())[4]

    def mamba(text: str) -> str:
        return text.replace("ToyAttention", "ToyMamba")

    documents = tuple(type(d).model_validate_json(mamba(d.model_dump_json())) for d in facts.documents)
    grown = CacheGrowth(before="0", after="1000 + 10 * ({cache_len} + {seq_len})", per_token="10")
    graphs = tuple(graph.model_copy(update={"cache": grown}) for graph in facts.graphs)
    answer = unmarked(faq(replace(facts, documents=documents, graphs=graphs), Quotes())[4])
    values = facts.point(facts.documents[1])
    whole = 1000 + 10 * (values["cache_len"] + values["seq_len"])
    assert f"Of the {float(whole) / 1000:.3g} kB that decode leaves, 1 kB are states of `ToyMamba`" in answer


def test_layers_whose_queries_are_not_turned_by_positions_are_told_apart(facts: ImplementationFacts) -> None:
    attention = next(k for _, _, k in walk(facts.main.kernels, "") if facts.role(k.class_name) == "attention")
    assert attention.kernels
    leaf = next(k for k in attention.kernels if k.kernel_type == "basic")
    site = CallSite(function="apply_rotary_pos_emb", file=leaf.file, line=leaf.line)
    turned, plain = (
        attention.model_copy(update={"repeat": often, "kernels": (leaf.model_copy(update={"via": via}),)})
        for often, via in (("3 * {num_layers}", (site,)), ("{num_layers}", ()))
    )
    main = facts.main.model_copy(update={"kernels": (turned, plain)})
    layers = facts.point(facts.main)["num_layers"]
    some = replace(facts, documents=(main,))
    assert layers_turned(some) == (3 * layers, 4 * layers)
    assert toy.unmarked(turned_in(some, Quotes())) == f"{3 * layers} of {4 * layers} layers"
    assert turned_in(replace(facts, documents=(main.model_copy(update={"kernels": (turned,)}),)), Quotes()) == ""
