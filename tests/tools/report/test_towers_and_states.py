"""Models that are no single stack of attention layers: towers side by side, state of fixed size, no cache at all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import report_toy as toy
from opscope_schemas.analysis import CallSite, Kernel, ModelInput, ModuleAnalysis, ModuleNode, TensorInfo, Variable
from opscope_schemas.dataflow import CacheGrowth
from opscope_tools.report.attending import attention_kind, heads_by_class
from opscope_tools.report.configuration import configuration_rows
from opscope_tools.report.facts import ImplementationFacts, module_of_call, walk
from opscope_tools.report.findings import findings
from opscope_tools.report.overview import key_features, layers_turned, turned_in
from opscope_tools.report.purposes import purpose
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.reference import faq, fused_operators
from opscope_tools.report.story import story
from opscope_tools.report.summary import summarise
from opscope_tools.report.traits import traits_of


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


# ---- a tower beside the model of text ----------------------------------------------------------------------------------


def shaped(*sizes: str) -> TensorInfo:
    return TensorInfo(name="x", shape=sizes, dtype="bfloat16")


def attends(
    queries: TensorInfo, keys: TensorInfo, statement: str = "scaled_dot_product_attention(", factor: str = ""
) -> Kernel:
    """The operator of attention, on a line of the toy."""
    fused = next(k for k in toy._attention(factor) if k.operator)
    return fused.model_copy(update={"inputs": (queries, keys, keys), "line": toy.line_of(statement)})


def with_tower(facts: ImplementationFacts, *, parts: int = 0) -> ImplementationFacts:
    """The toy, of 4 heads on 2 and with a cache, behind a tower of 3 layers that keeps nothing and has 16 heads, which its part of the
    configuration calls otherwise; `parts` of its layers are given a quarter of the places at a time."""
    text = (
        toy._linear("self.qkv_proj", "qkv_proj", "(3 * {hidden_size})", toy.L),
        toy.basic("aten.cat.default", "key, value = past_key_values", "0", "0", "0").model_copy(
            update={"code": "past_key_values.update("}
        ),
        attends(
            shaped("{batch_size}", "{num_heads}", "{seq_len}", "2"),
            shaped("{batch_size}", "{num_kv_heads}", "{cache_len} + {seq_len}", "2"),
            factor=toy.L,
        ),
    )

    def tower(places: str, often: int) -> Kernel:
        each = shaped("1", "16", places, "7")
        inner = toy.call(
            "toyland.modeling_toy.ToyTowerAttention",
            "attn",
            "self.attention(",
            (attends(each, each, "qkv ="),),
            str(often),
        )
        inner = inner.model_copy(update={"inputs": (shaped("256", "112"),)})
        return toy.call("toyland.modeling_toy.ToyTowerBlock", "visual.blocks.*", "= layer(", (inner,), str(often))

    layer = toy.call(
        "toyland.modeling_toy.ToyLayer", "layers.*", "= layer(",
        (toy.call("toyland.modeling_toy.ToyAttention", "attention", "self.attention(", text, "{num_layers}"),), "{num_layers}",
    )  # fmt: skip
    blocks = [tower("256", 3 - parts), *([tower("64", parts)] if parts else [])]
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], *blocks, layer)})
    run = ModuleNode(name="0-2", class_name="toyland.modeling_toy.ToyTowerBlock", repeat=3, parameters=30)
    stack = ModuleNode(name="blocks", class_name="torch.nn.modules.container.ModuleList", children=(run,))
    visual = ModuleNode(name="visual", class_name="m.Tower", children=(stack,))
    root = facts.tree.tree.model_copy(update={"children": (visual, *facts.tree.tree.children)})
    config = {**facts.tree.config, "vision_config": {"num_heads": 16}, "num_key_value_heads": 2}
    tree = facts.tree.model_copy(update={"tree": root, "config": config})
    values = {**facts.values, "num_kv_heads": 2, "num_layers": 5}
    return replace(facts, documents=(main,), graphs=(toy.graph(main),), tree=tree, values=values, points={})


def alone(facts: ImplementationFacts, class_name: str) -> ModuleAnalysis:
    """A class as a document of its own, whether its source is known or not."""
    call = facts.calls[f"toyland.modeling_toy.{class_name}"]
    found = module_of_call(facts.main, call, call.file, call.line)
    assert found is not None
    return found


def test_attention_of_a_tower_is_told_by_its_own_operators_and_not_by_the_configuration_of_text(
    facts: ImplementationFacts,
) -> None:
    both = with_tower(facts)
    said = toy.unmarked(purpose(both, alone(both, "ToyTowerAttention"), Quotes()))
    assert (
        "lets each token read all tokens: 16 query heads of width 7 are compared with the keys of 16 key-value heads (multi-head)"
        in said
    )
    assert "; nothing is kept." in said
    said = toy.unmarked(purpose(both, alone(both, "ToyAttention"), Quotes()))
    assert (
        "read itself and those before it: 4 query heads of width 2 are compared with the keys of 2 key-value heads (grouped-query)"
        in said
    )
    assert "; new keys and values join the cache." in said


def test_a_tower_whose_operators_are_given_parts_of_the_sequence_says_in_which_calls(
    facts: ImplementationFacts,
) -> None:
    both = with_tower(facts, parts=2)
    said = toy.unmarked(purpose(both, alone(both, "ToyTowerAttention"), Quotes()))
    assert "all tokens of its part of the sequence in 2 calls" in said
    assert "all tokens in 1 call" in said


def with_summary(facts: ImplementationFacts, *, often: int = 3) -> ImplementationFacts:
    """The tower, of 256 places, in `often` of whose 3 calls a module makes 16 keys and values of them."""
    both = with_tower(facts, parts=3 - often)
    mean = toy.basic("aten.mean.dim", "variance = x.pow(2)", "8", "8", "8")
    reduced = toy.call("toyland.modeling_toy.ToyReduction", "reduction", "self.norm(hidden_states)", (mean,))
    reduced = reduced.model_copy(update={"inputs": (shaped("256", "112"),), "outputs": (shaped("16", "112"),)})

    def summed(kernel: Kernel) -> Kernel:
        if kernel.class_name.endswith("ToyTowerAttention") and kernel.repeat == str(often):
            given = attends(shaped("1", "16", "256", "7"), shaped("1", "16", "16", "7"), "qkv =")
            return kernel.model_copy(update={"kernels": (reduced, given)})
        return kernel.model_copy(update={"kernels": tuple(map(summed, kernel.kernels))}) if kernel.kernels else kernel

    main = both.main.model_copy(update={"kernels": tuple(map(summed, both.main.kernels))})
    return replace(both, documents=(main,), graphs=(toy.graph(main),))


def test_keys_that_sum_up_what_queries_are_made_of_are_told_to_be_fewer(facts: ImplementationFacts) -> None:
    told = with_summary(facts)
    said = toy.unmarked(purpose(told, alone(told, "ToyTowerAttention"), Quotes()))
    assert (
        "read all tokens, by way of fewer keys and values that `reduction` makes of them (here 16 for 256 tokens)"
        in said
    )
    some = with_summary(facts, often=1)
    said = toy.unmarked(purpose(some, alone(some, "ToyTowerAttention"), Quotes()))
    assert ", in 1 of 3 calls by way of fewer keys and values that `reduction` makes of them" in said
    plain = with_tower(facts)
    assert "fewer" not in purpose(plain, alone(plain, "ToyTowerAttention"), Quotes())


@pytest.mark.parametrize(
    ("window", "said"),
    [
        (("3", "3"), "takes each token and back, with a non-linearity between; a convolution of 3 x 3 lets neighbouring tokens meet."),
        (("5",), "; a convolution of 5 lets neighbouring tokens meet."),
        (("1", "1"), "takes each token by itself and back, with a non-linearity between."),
        ((), "takes each token by itself and back, with a non-linearity between."),
    ],
)  # fmt: skip
def test_a_network_with_a_convolution_over_neighbours_takes_no_token_by_itself(
    facts: ImplementationFacts, window: tuple[str, ...], said: str
) -> None:
    slid = toy.basic(f"aten.{'convolution' if window else 'mean'}.default", "variance = x.pow(2)", "8", "8", "8")
    slid = slid.model_copy(update={"inputs": (shaped("1", "8", "64"), shaped("8", "1", *window), shaped("8"))})
    inner = toy.call("toyland.modeling_toy.ToyFilter", "dwconv", "self.norm(hidden_states)", (slid,))
    network = toy.call("toyland.modeling_toy.ToyMLP", "mlp", "self.norm(hidden_states)", (inner,))
    main = facts.main.model_copy(update={"kernels": (*facts.main.kernels, network)})
    config = {name: value for name, value in facts.tree.config.items() if name != "intermediate_size"}
    tree = facts.tree.model_copy(update={"config": config})
    held = replace(facts, documents=(main,), graphs=(toy.graph(main),), tree=tree)
    assert said in toy.unmarked(purpose(held, alone(held, "ToyMLP"), Quotes()))


def test_classes_of_attention_with_other_heads_are_told_each_and_stand_for_no_kind_of_the_whole(
    facts: ImplementationFacts,
) -> None:
    both = with_tower(facts)
    assert attention_kind(both) is None
    assert {name.rpartition(".")[2]: tuple(heads) for name, heads in heads_by_class(both).items()} == {
        "ToyAttention": ("grouped-query", 4, 2), "ToyTowerAttention": ("multi-head", 16, 16)
    }  # fmt: skip
    first = unmarked(story(both, Quotes())[0])
    assert "4 query heads on 2 key-value heads (grouped-query, `ToyAttention`) in 5 layers" in first
    assert "16 query heads on 16 key-value heads (multi-head, `ToyTowerAttention`) in 3 layers" in first
    features = unmarked(" ".join(key_features(both, Quotes())))
    assert "grouped-query: 4 query heads on 2 key-value heads" in features
    assert "multi-head: 16 query heads on 16 key-value heads" in features
    insights = " ".join(summarise(both, "toy.md", ()).insights)
    assert "Attention of ToyTowerAttention is multi-head: 16 query heads on 16 key-value heads" in insights
    held = traits_of(both).held
    assert [held[name].holds for name in ("grouped-query", "multi-head", "multi-query")] == [True, True, False]


def test_keys_that_the_sequence_does_not_decide_are_not_of_tokens_before(facts: ImplementationFacts) -> None:
    both = with_tower(facts)
    crossing = both.main.model_dump_json().replace('{cache_len} + {seq_len}","2', '77","2')
    main = type(both.main).model_validate_json(crossing)
    crossed = replace(both, documents=(main,), graphs=(toy.graph(main),))
    assert "read those whose keys it is given: " in purpose(crossed, alone(crossed, "ToyAttention"), Quotes())


def test_layers_of_a_tower_are_counted_among_those_of_its_own_list(facts: ImplementationFacts) -> None:
    both = with_tower(facts)
    said = toy.unmarked(purpose(both, alone(both, "ToyTowerBlock"), Quotes()))
    assert "is one of the 3 layers of `visual.blocks`: " in said
    some = tuple(k.model_copy(update={"repeat": "2"}) if "Block" in k.class_name else k for k in both.main.kernels)
    main = both.main.model_copy(update={"kernels": some})
    fewer = replace(both, documents=(main,), graphs=(toy.graph(main),))
    said = toy.unmarked(purpose(fewer, alone(fewer, "ToyTowerBlock"), Quotes()))
    assert "runs as 2 of the 3 layers of `visual.blocks`: " in said


LINEAR, GELU = "torch.nn.modules.linear.Linear", "torch.nn.modules.activation.GELU"
CONV = (ModuleNode(name="conv", class_name="torch.nn.modules.conv.Conv1d", parameters=10),)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        # steps of one module
        ((("0", LINEAR, 1, ()), ("1", GELU, 1, ()), ("2", LINEAR, 1, ())), "Repeated layers (those of `blocks`) hold 50.0 %"),
        ((("0", "m.Conv1D", 1, ()), ("1", "m.NewGELU", 1, ()), ("2", "m.Conv1D", 1, ())), "(those of `blocks`) hold 50.0 %"),
        ((("0-3", LINEAR, 4, ()),), "(those of `blocks`) hold 50.0 %"),
        # layers of two kinds, one of which stands once
        ((("0", "m.First", 1, CONV), ("1-2", "m.Next", 2, CONV)), "(those of `blocks` and `inner`) hold 100.0 %"),
    ],
)  # fmt: skip
def test_a_list_of_modules_that_are_not_alike_is_no_stack_of_layers_and_those_that_are_are_named(
    facts: ImplementationFacts, entries: tuple[tuple[str, str, int, tuple[ModuleNode, ...]], ...], said: str
) -> None:
    numbered = tuple(
        ModuleNode(name=name, class_name=kind, repeat=often, children=held, parameters=100 // len(entries))
        for name, kind, often, held in entries
    )
    run = ModuleNode(name="0-9", class_name="m.Block", repeat=10, parameters=100)
    children = tuple(
        ModuleNode(name=name, class_name="m.List", children=held, parameters=100)
        for name, held in (("blocks", (run,)), ("inner", numbered))
    )
    root = facts.tree.tree.model_copy(update={"children": children, "parameters": 200})
    tree = facts.tree.model_copy(update={"tree": root, "parameters": 200})
    assert said in unmarked(findings(replace(facts, tree=tree), [], Quotes())["2"])


def in_stages(facts: ImplementationFacts, depths: Sequence[int]) -> ImplementationFacts:
    """The toy in stages of so many layers, which hold 60 of 100 weights of each; alike ones are folded but in the first stage."""

    def listed(name: str, held: Sequence[ModuleNode]) -> ModuleNode:
        total = sum(one.parameters for one in held)
        return ModuleNode(name=name, class_name="m.List", children=tuple(held), parameters=total)

    built = []
    for at, depth in enumerate(depths):
        one = ModuleNode(name="0", class_name="m.ToyLayer", children=CONV, parameters=60 // depth)
        several = [one.model_copy(update={"name": str(n)}) for n in range(depth)]
        folded = [one.model_copy(update={"name": f"0-{depth - 1}", "repeat": depth, "parameters": 60})]
        parts = (
            ModuleNode(name="patch_embeddings", class_name="m.PatchEmbeddings", children=CONV, parameters=30),
            listed("blocks", several if at == 0 or depth == 1 else folded),
            ModuleNode(name="norm", class_name=LINEAR, parameters=10),
        )
        built.append(ModuleNode(name=str(at), class_name="m.Stage", children=parts, parameters=100))
    root = facts.tree.tree.model_copy(update={"children": (listed("stages", built),), "parameters": 100 * len(depths)})
    tree = facts.tree.model_copy(update={"tree": root, "parameters": root.parameters})
    return replace(facts, tree=tree, points={}, values={**facts.values, "num_layers": len(depths)})


@pytest.mark.parametrize("depths", [(2, 2), (2, 3, 1), (3, 1)])
def test_stages_are_no_layers_but_what_holds_them(facts: ImplementationFacts, depths: Sequence[int]) -> None:
    staged = in_stages(facts, depths)
    assert "Repeated layers (those of `stages.*.blocks`) hold 60.0 % of" in unmarked(
        findings(staged, [], Quotes())["2"]
    )
    assert f", {sum(depths)} layers in {len(depths)} stages" in unmarked(story(staged, Quotes())[0])
    rows = {name: text for name, _, text in configuration_rows(staged, Quotes())}
    assert rows["`num_layers`"].startswith("stages, each of layers of its own")
    assert not configuration_rows(facts, Quotes())[1][2].startswith("stages")


def test_embeddings_of_several_stages_in_a_list_are_no_layers(facts: ImplementationFacts) -> None:
    lists = {"embeddings": "m.PatchEmbeddings", "blocks": "m.ToyLayer"}
    children = tuple(
        ModuleNode(
            name=name, class_name="m.List", parameters=100,
            children=tuple(ModuleNode(name=str(n), class_name=kind, children=CONV, parameters=50) for n in range(2)),
        )
        for name, kind in lists.items()
    )  # fmt: skip
    root = facts.tree.tree.model_copy(update={"children": children, "parameters": 200})
    held = replace(facts, tree=facts.tree.model_copy(update={"tree": root, "parameters": 200}))
    assert "(those of `blocks`) hold 50.0 %" in unmarked(findings(held, [], Quotes())["2"])


def test_positions_of_the_sequence_enter_through_the_class_that_its_length_decides(facts: ImplementationFacts) -> None:
    angles = toy.basic("aten.cos.default", "variance = x.pow(2)", "1000000", "8", "8")
    own = toy.basic("aten.cos.default", "variance = x.pow(2)", "2 * {seq_len}", "8", "8")
    towers = [
        toy.call(f"toyland.modeling_toy.{name}", "rotary_emb", "self.norm(hidden_states)", (kernel,))
        for name, kernel in (("ToyTowerRotary", angles), ("ToyRotary", own))
    ]
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], *towers, *facts.main.kernels[1:])})
    answers = " ".join(faq(replace(facts, documents=(main,), graphs=(toy.graph(main),)), Quotes()))
    assert "through `ToyRotary` (" in answers
    assert "ToyTowerRotary" not in answers


def test_what_takes_no_sequence_of_tokens_is_asked_for_the_sizes_that_it_takes(
    facts: ImplementationFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = (
        Variable(name="batch_size", meaning="images", default=1, kind="fixed"),
        Variable(name="image_height", meaning="height", default=224),
        Variable(name="a_bytes", meaning="bytes", default=2),
    )
    given = (ModelInput(name="pixel_values", shape=("1", "3", "{image_height}"), dtype="bfloat16"),)
    variables = (*(v for v in facts.main.variables if v.config_key), *sizes)
    main = facts.main.model_copy(update={"variables": variables, "model_inputs": given})
    config = {k: v for k, v in facts.tree.config.items() if k != "max_position_embeddings"}
    tree = facts.tree.model_copy(update={"config": config})
    graph = toy.graph(main).model_copy(update={"cache": None})
    told = replace(facts, documents=(main,), graphs=(graph,), tree=tree, points={})
    lengths, longest = (toy.unmarked(said) for said in faq(told, Quotes())[:2])
    assert "takes `pixel_values` and no tokens. Its formulas hold for every `image_height` inside" in lengths
    assert "; `batch_size` = 1 stays as traced; others" in lengths
    assert longest.startswith("Does not apply: ")
    assert "no sequence of tokens, and no module or weight of it is named after positions; which sizes" in longest
    assert "no sequence of tokens" in findings(told, [], Quotes())["9"]
    assert "limit of positions" in findings(replace(facts, tree=tree, documents=(facts.main,)), [], Quotes())["9"]
    table = ModuleNode(name="embeddings", class_name="m.Embeddings", weights={"position_embeddings": (1, 1, 8)})
    root = tree.tree.model_copy(update={"children": (*tree.tree.children, table)})
    named = replace(told, tree=tree.model_copy(update={"tree": root}))
    assert "named after positions" not in faq(named, Quotes())[1]
    assert "Does not apply" not in faq(named, Quotes())[1]
    assert "no limit of positions" in findings(named, [], Quotes())["9"]
    monkeypatch.setattr("opscope_tools.report.reference.matching", lambda *_, **__: [])
    assert toy.unmarked(faq(told, Quotes())[-1]).endswith(
        "takes `pixel_values` whole, and no pass goes on from another."
    )


def test_an_operator_that_fuses_several_is_told_with_all_its_lines_the_dearest_first(
    facts: ImplementationFacts,
) -> None:
    small = attends(shaped("1"), shaped("1"), "qkv =").model_copy(update={"flops": "1"})
    layer = facts.main.kernels[1]
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], small, layer)})
    (told,) = fused_operators(replace(facts, documents=(main,), graphs=(toy.graph(main),)))
    dear, cheap = toy.line_of("scaled_dot_product_attention("), toy.line_of("qkv =")
    assert told[2] == f"`{toy.FILE}:{dear}`, `{toy.FILE}:{cheap}`"
