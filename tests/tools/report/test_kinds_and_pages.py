"""Layers of one class that the trace tells apart are named by the configuration; timelines fit a narrow screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import report_toy as toy
from opscope_schemas.analysis import Kernel, ModuleAnalysis, ModuleNode, TensorInfo
from opscope_schemas.formula import evaluate
from opscope_tools.report.call_kinds import kinds_told, place_shown
from opscope_tools.report.components import _interface
from opscope_tools.report.crossing import Crossed, crossing_said
from opscope_tools.report.facts import Figures, ImplementationFacts, module_of_call
from opscope_tools.report.graph import Graph, Span, Vertex
from opscope_tools.report.kinds import Window, kinds_of, layers_told
from opscope_tools.report.purposes import purpose
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.reference import _while
from opscope_tools.report.story import _above_diagonal
from opscope_tools.report.svg import svg


def two_kinds(facts: ImplementationFacts, **config: object) -> ImplementationFacts:
    """The toy with its layers in two folded calls, three times and once."""
    at = next(place for place, kernel in enumerate(facts.main.kernels) if kernel.class_name.endswith("ToyLayer"))
    layer = facts.main.kernels[at].model_copy(update={"attribute": "layers.*"})
    calls = (layer.model_copy(update={"repeat": "3"}), layer.model_copy(update={"repeat": "1"}))
    kernels = (*facts.main.kernels[:at], *calls, *facts.main.kernels[at + 1 :])
    document = facts.main.model_copy(update={"kernels": kernels})
    tree = facts.tree.model_copy(update={"config": {**facts.tree.config, **config}})
    return replace(facts, documents=(document,), graphs=(toy.graph(document),), tree=tree)


def test_layers_are_named_by_the_list_whose_counts_fit_and_by_their_numbers(facts: ImplementationFacts) -> None:
    mixed = two_kinds(facts, text={"layer_types": ["near", "near", "far", "near"]}, other=[1, 2, 3])
    assert [kind.whole for kind in kinds_of(mixed, mixed.main).values()] == ["near (layers 0-1, 3)", "far (layer 2)"]


def test_a_bare_value_names_a_kind_by_its_setting(facts: ImplementationFacts) -> None:
    mixed = two_kinds(facts, turned=[1, 1, 0, 1])
    assert [kind.whole for kind in kinds_of(mixed, mixed.main).values()] == [
        "turned 1 (layers 0-1, 3)", "turned 0 (layer 2)"
    ]  # fmt: skip


def test_kinds_at_one_place_are_told_by_their_layers_and_by_what_one_lacks(facts: ImplementationFacts) -> None:
    mixed = two_kinds(facts, turned=[1, 1, 0, 1])
    many, few = (kernel for kernel in mixed.main.kernels if kernel.class_name.endswith("ToyLayer"))
    *inner, _ = few.kernels or ()
    bare = toy.call(few.class_name, "layers.*", "= layer(", tuple(inner)).model_copy(update={"repeat": "1"})
    kernels = tuple(bare if k is few else k for k in mixed.main.kernels)
    main = mixed.main.model_copy(update={"kernels": kernels})
    changed = replace(mixed, documents=(main,), graphs=(toy.graph(main),))
    told = toy.unmarked(kinds_told(changed, toy_module(changed, many), Quotes()))
    assert "3 at `layers.*` (layers 0-1, 3) (shown)" in told
    assert re.search(r"1 at `layers\.\*` \(layer 2\), [^;]* without `add`, which others run\.", told)
    assert re.search(r"layers 0-1, 3\) \(shown\), [^;]*, running `add`, as not all kinds do; ", told)
    inside = {layers_told(changed, main)[id(k)] for k in bare.kernels or () if k.class_name}
    assert inside == {"layer 2"}


def test_without_such_a_list_the_kinds_are_only_numbered(facts: ImplementationFacts) -> None:
    for config in (
        {},
        {"layer_types": ["near", "near", "far", "far"]},
        {"a": ["x", "x", "x", "y"], "b": ["y", "x", "x", "x"]},
    ):
        mixed = two_kinds(facts, **config)
        assert [kind.whole for kind in kinds_of(mixed, mixed.main).values()] == ["kind 1 of 2", "kind 2 of 2"]
    assert kinds_of(facts, facts.main) == {}


def unlike(facts: ImplementationFacts) -> ImplementationFacts:
    """The toy with three layers, of which the first runs no attention."""
    mixed = two_kinds(facts)
    first, rest = (kernel for kernel in mixed.main.kernels if kernel.class_name.endswith("ToyLayer"))
    norm, _, add = first.kernels or ()
    few = toy.call(first.class_name, "layers.*", "= layer(", (norm, add)).model_copy(update={"repeat": "1"})
    many = rest.model_copy(update={"repeat": "{num_layers}"})
    kernels = [few if k is first else many if k is rest else k for k in mixed.main.kernels]
    held = next(c for c in facts.tree.tree.children if c.class_name == first.class_name)
    layers = ModuleNode(
        name="layers", class_name="ModuleList", parameters=536,
        children=(
            held.model_copy(update={"name": "0", "repeat": 1, "parameters": 8, "children": held.children[:1]}),
            held.model_copy(update={"name": "1-2"}),
        ),
    )  # fmt: skip
    children = tuple(layers if child is held else child for child in facts.tree.tree.children)
    tree = facts.tree.model_copy(update={"tree": facts.tree.tree.model_copy(update={"children": children})})
    document = mixed.main.model_copy(update={"kernels": tuple(kernels)})
    return replace(mixed, documents=(document,), graphs=(toy.graph(document),), tree=tree)


def test_without_such_a_list_the_tree_says_which_layers_a_call_runs_in(facts: ImplementationFacts) -> None:
    changed = unlike(facts)
    assert [kind.whole for kind in kinds_of(changed, changed.main).values()] == ["layer 0", "layers 1-2"]


def test_a_section_shows_the_kind_of_call_that_costs_most_and_says_what_the_others_cost(
    facts: ImplementationFacts,
) -> None:
    changed = unlike(facts)
    layer = next(m for m in changed.modules if m.class_name.endswith("ToyLayer"))
    assert [k.attribute for k in layer.kernels if k.class_name] == ["norm", "attention"]  # not the first call
    assert "number of weights: 264" in _interface(changed, layer)
    said = toy.unmarked(purpose(changed, layer, Quotes()))
    assert (
        "The 3 calls of `ToyLayer` in prefill are of 2 kinds; shown here are the 2 at `layers.*` (layers 1-2)" in said
    )
    told = toy.unmarked(kinds_told(changed, layer, Quotes()))
    assert re.search(
        r"2 at `layers\.\*` \(layers 1-2\) \(shown\), .* 264 weights, calling `ToyAttention` \(`attention`\); ", told
    )
    assert re.search(r"1 at `layers\.\*` \(layer 0\), .* 8 weights\.", told)
    assert kinds_told(facts, facts.modules[1], Quotes()) == ""


@pytest.mark.parametrize("dearest", ["qkv_proj", "o_proj", "lm_head"])
@pytest.mark.parametrize("without", ["", "o_proj", "totals", "apart"])
def test_what_costs_most_says_by_which_measure_that_is_time_where_each_kind_is_timed(
    facts: ImplementationFacts, dearest: str, without: str
) -> None:
    """Three projections at places of their own, of which one is timed by itself or not, or as one kernel with another."""
    paths = {"qkv_proj": "layers.*.attention.qkv_proj", "o_proj": "layers.*.attention.o_proj", "lm_head": "lm_head"}
    found = facts.estimates["prefill"]
    times = {name: 3e-3 if name == dearest else 1e-3 for name in paths if name != without}
    rows = tuple(
        found.operators[0].model_copy(update={"module": paths[name], "calibrated_seconds": time})
        for name, time in times.items()
    )
    if without == "apart":
        as_one = {"operation": "mm (qkv_proj, o_proj)", "module": "layers.*.attention"}
        rows = (rows[0].model_copy(update=as_one), *rows[1:])
    totals = found.totals.model_copy(update={"calibrated_seconds": None if without == "totals" else 5e-3})
    timed = replace(facts, estimates={"prefill": found.model_copy(update={"operators": rows, "totals": totals})})
    module = next(m for m in timed.modules if m.class_name == "toyland.layers.Linear")
    said = toy.unmarked(purpose(timed, module, Quotes()))
    # 2 * B * S * H * V of each: the head has 100 outputs, and runs once; qkv 3 * 8, and runs twice
    heaviest = dearest if not without else "lm_head"
    measure = "modelled time" if not without else "bytes and FLOPs at the roofs"
    costs = "costs" if heaviest == "lm_head" else "together cost"
    assert f"`{paths[heaviest]}`, which {costs} most by {measure}." in said
    assert timed.calls["toyland.layers.Linear"].attribute == heaviest


@pytest.mark.parametrize("width", ["{num_layers} * 4", "{hidden_size}"])
def test_a_formula_stands_for_the_calls_alone_that_it_holds_for(facts: ImplementationFacts, width: str) -> None:
    """Two norms cost alike at these sizes, by one formula or by two."""
    _, layer, norm, *rest = facts.main.kernels
    other = norm.model_copy(update={"attribute": "twin", "flops": norm.flops.replace(toy.H, width)})
    assert other.flops.count(width) == norm.flops.count(toy.H) > 0
    document = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], layer, norm, other, *rest)})
    changed = replace(facts, documents=(document,), graphs=(toy.graph(document),))
    said = place_shown(changed, next(m for m in changed.modules if m.class_name == norm.class_name))
    if width == toy.H:
        assert "cost as much here" not in said
    else:
        assert said.endswith("(those of `twin` cost as much here by others)")
        assert "`norm`" in said


def narrow(kernel: Kernel, width: str) -> Kernel:
    """A call that is given vectors of `width`."""
    given = toy.tensor("x").model_copy(update={"shape": ("{batch_size}", "{seq_len}", width)})
    return kernel.model_copy(update={"inputs": (given,)})


def with_last(facts: ImplementationFacts, *last: Kernel) -> ImplementationFacts:
    """The toy with other calls behind its layers."""
    document = facts.main.model_copy(update={"kernels": (*facts.main.kernels[:2], *last)})
    return replace(facts, documents=(document,), graphs=(toy.graph(document),))


def test_a_normalisation_of_several_widths_tells_them_all(facts: ImplementationFacts) -> None:
    norm = facts.main.kernels[2]
    changed = with_last(facts, narrow(norm, "{hidden_size} // 2"))
    subject = next(m for m in changed.modules if m.class_name == norm.class_name)
    assert "each vector of 8 or 4 by" in toy.unmarked(purpose(changed, subject, Quotes()))


def test_the_widths_of_a_network_are_those_of_the_call_that_is_shown(facts: ImplementationFacts) -> None:
    """Not those that the configuration has for another of its kinds."""
    up = facts.main.kernels[3].model_copy(update={"attribute": "up_proj"})
    network = toy.call("toyland.modeling_toy.ToyMLP", "mlp", "return residual", (up, narrow(up, "12")))
    changed = with_last(facts, network)
    config = {**facts.tree.config, "intermediate_size": 99}
    changed = replace(changed, tree=facts.tree.model_copy(update={"config": config}))
    subject = toy_module(changed, network)
    assert "from 8 to 12 values and back" in toy.unmarked(purpose(changed, subject, Quotes()))


def toy_module(facts: ImplementationFacts, call: Kernel) -> ModuleAnalysis:
    """A call as a document of its own, whether its class stands in the source or not."""
    found = module_of_call(facts.main, call, call.file, call.line)
    assert found is not None
    return found


def layer_of(facts: ImplementationFacts, *inner: Kernel) -> tuple[ImplementationFacts, ModuleAnalysis]:
    """The toy with one layer that makes other calls, and that layer."""
    layer = toy.call("toyland.modeling_toy.ToyLayer", "layers.*", "= layer(", inner)
    kernels = (facts.main.kernels[0], layer, *facts.main.kernels[2:])
    document = facts.main.model_copy(update={"kernels": kernels})
    changed = replace(facts, documents=(document,), graphs=(toy.graph(document),))
    return changed, toy_module(changed, layer)


@pytest.mark.parametrize(("beside", "said"), [(True, "attention, side by side with"), (False, "attention, then")])
def test_parts_of_a_layer_that_do_not_read_each_other_are_said_to_be_side_by_side(
    facts: ImplementationFacts, beside: bool, said: str
) -> None:
    norm, attention, add = toy.layer_kernels("")
    network = toy.call("toyland.modeling_toy.ToyMLP", "mlp", "return residual", (toy.layer_kernels("")[0],))
    changed, layer = layer_of(facts, norm, attention, network, add)
    graph = changed.graphs[0]
    first = 1 + 2 + 3 + 1  # behind the operators of the embedding, the norm and the attention
    reads = graph.operators[first - 1].model_copy(update={"depends_on": (3,), "carried_from": ()})
    if beside:
        operators = (*graph.operators[: first - 1], reads, *graph.operators[first:])
        changed = replace(changed, graphs=(graph.model_copy(update={"operators": operators}),))
    assert f"normalisation, then {said} feed-forward network" in toy.unmarked(purpose(changed, layer, Quotes()))


@pytest.mark.parametrize(
    ("queries", "keys", "said"),
    [
        ("{seq_len}", "{cache_len} + {seq_len}", "itself and those before it in the decoder: "),
        ("{seq_len}", "{encoder_seq_len}", "those of the encoder: "),
        ("{seq_len}", "1500", "those of the encoder: "),
        ("{encoder_seq_len}", "{encoder_seq_len}", "all tokens in the encoder: "),
    ],
)
def test_attention_of_a_model_of_two_sides_reads_what_its_keys_are_of(
    facts: ImplementationFacts, queries: str, keys: str, said: str
) -> None:
    given = tuple(
        TensorInfo(name="", shape=("{batch_size}", "4", n, "2"), dtype="bfloat16") for n in (queries, keys, keys)
    )
    before, sdpa, after = toy._attention(toy.L)
    layer = facts.main.kernels[1]
    assert layer.kernels is not None
    changed_kernels = (before, sdpa.model_copy(update={"inputs": given}), after)
    attention = layer.kernels[1].model_copy(update={"kernels": changed_kernels})
    tree = facts.tree.model_copy(update={"config": {**facts.tree.config, "is_encoder_decoder": True}})
    changed = with_last(replace(facts, tree=tree), attention)
    module = next(m for m in changed.modules if m.class_name.endswith("ToyAttention"))
    assert f"lets each token read {said}" in toy.unmarked(purpose(changed, module, Quotes()))


def test_two_modules_of_one_role_behind_each_other_are_two(facts: ImplementationFacts) -> None:
    norm, attention, add = toy.layer_kernels("")
    changed, layer = layer_of(facts, attention, norm, add, toy.layer_kernels("")[0])
    assert ": attention, then normalisation, then another normalisation" in purpose(changed, layer, Quotes())


def test_a_layer_is_counted_by_its_calls_and_told_by_the_stacks_that_run_it(facts: ImplementationFacts) -> None:
    layer = facts.main.kernels[1]
    several = with_last(facts, layer.model_copy(update={"attribute": "tower.layers.*"}), facts.main.kernels[3])
    module = next(m for m in several.modules if m.class_name == layer.class_name)
    said = toy.unmarked(purpose(several, module, Quotes()))
    assert "is one of 4 layers (2 at `layers.*`, 2 at `tower.layers.*`)" in said
    assert said.count("normalisation, then attention") == 1  # both run the same
    assert layer.kernels is not None
    shorter = layer.model_copy(update={"attribute": "tower.layers.*", "kernels": layer.kernels[:1]})
    two = with_last(facts, shorter, facts.main.kernels[3])
    said = toy.unmarked(purpose(two, module, Quotes()))
    assert re.search(
        r"2 at `layers\.\*` run normalisation, [^;]*attention; 2 at `tower\.layers\.\*` run normalisation, with what goes past them added behind `attention`",
        said,
    )
    some = replace(facts, points={"prefill": {**facts.point(facts.main), "num_layers": 5}})
    once, module = layer_of(some, *toy.layer_kernels(""))
    assert "is one layer" in purpose(once, module, Quotes())


def test_what_calls_experts_is_a_mixture_of_them_whatever_it_is_called(facts: ImplementationFacts) -> None:
    (gather,) = facts.main.kernels[0].kernels or ()
    experts = toy.call("toyland.modeling_toy.ToyExperts", "experts", "return residual", (gather,))
    network = toy.call("toyland.modeling_toy.ToyMLP", "mlp", "return residual", (experts,))
    changed = with_last(facts, network)
    assert changed.role(network.class_name) == "mixture of experts"
    assert "sends each token to the experts" in purpose(changed, toy_module(changed, network), Quotes())
    layer = toy.call("toyland.modeling_toy.ToyMoELayer", "mlp", "return residual", (experts,))
    assert with_last(facts, layer).role(layer.class_name) == "mixture of experts"
    attention = toy.call("toyland.modeling_toy.ToyAttention", "attention", "return residual", (gather,))
    around = toy.call("toyland.modeling_toy.ToyMoELayer", "layers.*", "return residual", (attention, experts))
    assert with_last(facts, around).role(around.class_name) == "layer"


def test_a_module_that_holds_layers_says_how_many_and_one_that_only_calls_says_nothing(
    facts: ImplementationFacts,
) -> None:
    layer = facts.main.kernels[1].model_copy(update={"attribute": "layers.*"})
    stack = toy.call("toyland.modeling_toy.ToyStack", "stack", "= layer(", (layer,))
    outer = toy.call("toyland.modeling_toy.ToyTower", "tower", "= layer(", (stack,))
    changed = with_last(facts, outer)
    for each in (stack, outer):
        said = toy.unmarked(purpose(changed, toy_module(changed, each), Quotes()))
        assert "sends what it is given through 2 layers (`ToyLayer`)." in said
    alone = toy.call("toyland.modeling_toy.ToyStack", "stack", "= layer(", (toy.layer_kernels("")[1],))
    changed = with_last(facts, alone)
    assert "registered repositories). Called at" in purpose(changed, toy_module(changed, alone), Quotes())


@pytest.mark.parametrize(
    ("depths", "norms", "said"),
    [((2, 2), (1, 1), "2 layers (`ToyLayer`), with `ToyNorm` before them."), ((2, 5), (0, 0), "2 to 5 layers (`ToyLayer`)."),
     ((5, 2), (0, 1), "2 to 5 layers (`ToyLayer`), with `ToyNorm` before them in 1 of 2 calls.")],
)  # fmt: skip
def test_what_is_said_of_a_class_holds_for_all_its_calls(
    facts: ImplementationFacts, depths: tuple[int, int], norms: tuple[int, int], said: str
) -> None:
    """Stages of as many layers or of others, behind a norm or not."""
    kernels = []
    for at, (depth, norm) in enumerate(zip(depths, norms, strict=True)):
        held = toy.layer_kernels(f"{depth} * ")
        listed = toy.call(f"{toy.MODULE}.ToyLayer", "layers.*", "= layer(", held, repeat=str(depth))
        inside = (*facts.main.kernels[2:3] * norm, listed)
        kernels.append(toy.call(f"{toy.MODULE}.ToyStage", f"stages.{at}", "= layer(", inside))
    changed = with_last(facts, *kernels)
    for stage in changed.main.kernels[2:]:  # whichever of them is shown
        assert said in toy.unmarked(purpose(changed, toy_module(changed, stage), Quotes()))


@pytest.mark.parametrize("weights", [(), ("scale",)])
def test_a_layer_names_what_it_does_by_weights_of_its_own(facts: ImplementationFacts, weights: tuple[str, ...]) -> None:
    """What it adds to what goes past is added behind that, and behind no call that runs nothing."""
    norm, attention, add = toy.layer_kernels("")
    scale = add.model_copy(update={"operator": "aten.mul.Tensor"})
    free = add.memory_access.model_copy(update={"read": "0", "write": "0"})
    nothing = toy.call("torch.nn.modules.linear.Identity", "dropped", "= layer(", (add,))
    nothing = nothing.model_copy(update={"flops": "0", "memory_access": free, "kernels": ()})
    changed, layer = layer_of(facts, norm, attention, scale, nothing, add)
    graph = changed.graphs[0]
    reading = tuple(
        o.model_copy(update={"weights": weights * (o.operator == "aten.mul.Tensor")}) for o in graph.operators
    )
    changed = replace(changed, graphs=(graph.model_copy(update={"operators": reading}),))
    said = purpose(changed, layer, Quotes())
    assert ("then attention, then scaling by `scale`" in said) is bool(weights)
    assert f"added behind `{'scale' if weights else 'attention'}`" in said


@pytest.mark.parametrize(
    ("pooled", "said"),
    [(None, "normalises what comes out."), (False, "normalises a part of what comes out (`pooled`)."),
     (True, "normalises what `mean` makes of what comes out (`pooled`).")],
    ids=["all", "view", "mean"],
)  # fmt: skip
def test_a_norm_behind_the_layers_is_said_to_normalise_what_it_reads(
    facts: ImplementationFacts, pooled: bool | None, said: str
) -> None:
    """What layers give is returned as it is where the norm is handed one vector of each sequence, their mean or the first."""
    mean = toy.basic("aten.mean.dim", "x.pow(2)", "1", toy.ROW, toy.ROW)
    one = toy.tensor("x").model_copy(update={"shape": ("{batch_size}", "{hidden_size}")})
    norm = facts.main.kernels[2].model_copy(update={"inputs": (toy.tensor("x") if pooled is None else one,)})
    changed = with_last(facts, *([mean] if pooled else []), norm)
    main = changed.main.model_copy(update={"class_name": f"{toy.MODULE}.ToyModel"})
    graph = toy.graph(main)
    named = tuple(t.model_copy(update={"name": "pooled"}) if t.kind == "output" else t for t in graph.tensors)
    changed = replace(changed, documents=(main,), graphs=(graph.model_copy(update={"tensors": named}),))
    assert toy.unmarked(purpose(changed, changed.modules[0], Quotes())).endswith(f" and {said}")


def test_a_module_without_a_role_is_told_by_what_it_does_to_what_it_is_given(facts: ImplementationFacts) -> None:
    """Widths of projections, what stands between them, and that it adds a second input."""
    add = toy.layer_kernels("")[2].model_copy(update={"inputs": (toy.tensor("x"), toy.tensor("x"))})
    bend = toy.call("torch.nn.modules.activation.Tanh", "act", "return residual", (add,))
    given = {"inputs": (toy.tensor("x"), toy.tensor("y"))}
    output = toy.call("toyland.modeling_toy.ToyOutput", "out", "= layer(", (facts.main.kernels[3], bend, add))
    changed = with_last(facts, output.model_copy(update=given))
    said = toy.unmarked(purpose(changed, toy_module(changed, changed.main.kernels[-1]), Quotes()))
    assert "projects each vector from 8 to 8 values, then applies `Tanh`, then adds what else it is given." in said


@pytest.mark.parametrize(
    ("biased", "said"),
    [(set(), "a matrix of weights, without a bias."), ({"qkv_proj", "o_proj", "lm_head"}, "a matrix of weights and adds a bias."),
     ({"o_proj", "lm_head"}, "a matrix of weights and adds a bias in 3 of 5 calls.")],
)  # fmt: skip
def test_a_projection_has_a_bias_where_its_operators_read_one(
    facts: ImplementationFacts, biased: set[str], said: str
) -> None:
    def callers(kernels: Sequence[Kernel], attribute: str) -> list[str]:
        found = []
        for kernel in kernels:
            found += callers(kernel.kernels, kernel.attribute) if kernel.kernels else [attribute]
        return found

    graph = facts.graphs[0]
    read = [("weight", "bias") if name in biased else ("weight",) for name in callers(facts.main.kernels, "")]
    operators = tuple(o.model_copy(update={"weights": w}) for o, w in zip(graph.operators, read, strict=True))
    changed = replace(facts, graphs=(graph.model_copy(update={"operators": operators}), *facts.graphs[1:]))
    module = next(m for m in changed.modules if m.class_name == "toyland.layers.Linear")
    assert said in toy.unmarked(purpose(changed, module, Quotes()))


@pytest.mark.parametrize(
    ("operators", "said"),
    [(["relu"], "puts 0 in the place of each negative number"), (["silu"], "multiplies each number by its own sigmoid"),
     (["pow", "tanh"], "changes each number by itself, by `pow`, `tanh`.")],
)  # fmt: skip
def test_an_activation_is_told_by_what_it_runs(facts: ImplementationFacts, operators: list[str], said: str) -> None:
    run = tuple(toy.basic(f"aten.{name}.default", "return residual", "1", toy.ROW, toy.ROW) for name in operators)
    bend = toy.call("torch.nn.modules.activation.SomeActivation", "act", "return residual", run)
    changed = with_last(facts, bend)
    assert said in purpose(changed, toy_module(changed, bend), Quotes())


@pytest.mark.parametrize(
    ("attribute", "code", "placed"),
    [("position_table", "x + y", True), ("words", "x + self.positions", True), ("words", "x + y", False)],
)
def test_an_embedding_adds_positions_only_where_its_own_lines_do(
    facts: ImplementationFacts, attribute: str, code: str, placed: bool
) -> None:
    table = facts.main.kernels[0].model_copy(update={"attribute": attribute})
    add = toy.layer_kernels("")[2].model_copy(update={"code": code})
    whole = toy.call("toyland.modeling_toy.ToyEmbedding", "embed", "= layer(", (table, add))
    changed = with_last(facts, whole)
    assert ("positions among them" in purpose(changed, toy_module(changed, whole), Quotes())) is placed


@pytest.mark.parametrize(
    ("saving", "before", "inputs", "said"),
    [
        ("{seq_len}", "mul", 3, "itself and those before it: "), ("0", "mul", 4, "those that a mask leaves it: "), ("0", "mul", 3, "all tokens: "),
        ("0", "add", 0, "those that a mask leaves it: "), ("0", "mul", 0, "all tokens: "), ("0", "addmm", 0, "all tokens: "),
    ],
)  # fmt: skip
def test_attention_without_a_cache_reads_what_its_operator_or_a_mask_leaves(
    facts: ImplementationFacts, saving: str, before: str, inputs: int, said: str
) -> None:
    add = toy.layer_kernels("")[2]
    kind = "aten.scaled_dot_product_attention.default" if inputs else "aten._softmax.default"
    given = (toy.tensor("x"),) * inputs
    inner = (
        add.model_copy(update={"operator": f"aten.{before}.Tensor"}),
        add.model_copy(update={"operator": kind, "inputs": given, "causal_saving": saving}),
    )
    attention = toy.call("toyland.modeling_toy.ToyAttention", "attention", "= layer(", inner)
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], attention)})
    graph = toy.graph(main).model_copy(update={"cache": None})
    changed = replace(facts, documents=(main,), graphs=(graph,))
    assert f"lets each token read {said}" in purpose(changed, toy_module(changed, attention), Quotes())


def test_calls_of_attention_that_read_otherwise_are_told_apart(facts: ImplementationFacts) -> None:
    """As the towers of one model: what one of them hides from a token the other does not."""
    add = toy.layer_kernels("")[2]
    fused = add.model_copy(
        update={"operator": "aten.scaled_dot_product_attention.default", "inputs": (toy.tensor("x"),) * 3}
    )
    towers = [
        toy.call(
            "toyland.modeling_toy.ToyAttention", name, "= layer(", (fused.model_copy(update={"causal_saving": saving}),)
        )
        for name, saving in (("text", "{seq_len}"), ("vision", "0"))
    ]
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], *towers)})
    changed = replace(facts, documents=(main,), graphs=(toy.graph(main).model_copy(update={"cache": None}),))
    said = purpose(changed, toy_module(changed, towers[0]), Quotes())
    assert "lets each token read itself and those before it at `text` and all tokens at `vision`: " in said


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ((3, 3), "2.05 kFLOP are attention to later tokens, which its kernel, told so by the source, need not compute."),
        ((4, 4), "2.05 kFLOP are attention to later tokens that a mask, handed as a tensor, hides: eager execution computes them."),
        ((3, 4), "1.02 kFLOP are attention to later tokens, which its kernel, told so by the source, need not compute, and 1.02 kFLOP "
                 "are attention to later tokens that a mask, handed as a tensor, hides: eager execution computes them."),
    ],
)  # fmt: skip
def test_pairs_that_a_tensor_hides_are_computed(facts: ImplementationFacts, inputs: tuple[int, int], said: str) -> None:
    add = toy.layer_kernels("")[2]
    saved = {"operator": "opscope.sdpa", "causal_saving": "1024", "flops": "4096", "matmul_flops": "4096"}
    kernels = tuple(add.model_copy(update={**saved, "inputs": (toy.tensor("x"),) * count}) for count in inputs)
    totals = facts.main.totals.model_copy(update={"causal_saving": "2048"})
    main = facts.main.model_copy(update={"kernels": kernels, "totals": totals})
    assert toy.unmarked(_above_diagonal(main, facts.point(main), Quotes())).endswith(said)
    assert Figures.sum(kernels, facts.point(main)).needed == 8192 - 1024 * inputs.count(3)


def test_attention_within_a_window_in_some_layers_says_so(facts: ImplementationFacts) -> None:
    attention = next(m for m in facts.modules if m.class_name.endswith("ToyAttention"))
    settings = {**facts.tree.config, "sliding_window": 16}
    for kinds, said in ((["full", "sliding"], ", in 1 of 2 layers no more than"), (["sliding"] * 2, ", no more than")):
        config = {**settings, "part": {"layer_types": kinds}}
        changed = replace(facts, tree=facts.tree.model_copy(update={"config": config}))
        assert f"before it{said} the last 16" in toy.unmarked(purpose(changed, attention, Quotes()))


def test_a_prefill_past_its_window_says_which_attentions_get_a_mask(facts: ImplementationFacts) -> None:
    graph, point = facts.graphs[0], facts.point(facts.main)
    mask = graph.tensors[0].model_copy(update={"id": 999, "kind": "constant", "dtype": "bool", "bytes": "64"})
    operators = tuple(
        one.model_copy(update={"operator": "opscope.sdpa", "reads": (*one.reads, 999)})
        if one is graph.operators[2]
        else one
        for one in graph.operators
    )
    unmasked = graph.operators[2].model_copy(update={"operator": "opscope.sdpa"})
    within = graph.model_copy(update={"operators": (*graph.operators[:2], unmasked, *graph.operators[3:])})
    past = graph.model_copy(update={"operators": operators, "tensors": (*graph.tensors, mask)})
    said = crossing_said(within, point, Crossed(past, point, 8, 16))
    count = evaluate(graph.operators[2].repeat, point)
    assert f"{count} attention{'s' * (count > 1)} are given a mask" in said
    assert not crossing_said(within, point, Crossed(within, point, 8, 16))


@pytest.mark.parametrize("setting", ["sliding_window", "attention_chunk_size"])
@pytest.mark.parametrize("cached", [0, 1, 126, 127, 128, 1000])
def test_growth_of_a_cache_says_whether_its_windows_are_full(setting: str, cached: int) -> None:
    """A layer with a window of 128 keeps 127 tokens: one more is kept of fewer alone."""
    window = Window(128, 18, 36, setting)
    kept = [min(tokens, window.tokens - 1) for tokens in (cached, cached + 1)]
    grows = kept[1] > kept[0]
    assert ("as long as no" in _while(window, cached)) is grows
    assert ("is full: layers with one grow no more" in _while(window, cached)) is not grows


def test_bars_of_a_timeline_begin_at_the_left_edge_however_long_the_labels_are() -> None:
    long = Vertex("a", ("a" * 80, " 50.0 %", "memory, 1 GB"), span=Span(0, 0.5))
    drawn = svg(Graph((long,), layout="timeline"), "t", "n")
    (bar,) = re.findall(r'<rect class="bar" x="([\d.]+)" y="\d+" width="([\d.]+)"', drawn)
    assert float(bar[0]) + 2 * float(bar[1]) <= 320


def test_formats_that_a_device_has_no_units_for_are_named_with_what_products_run_in(facts: ImplementationFacts) -> None:
    def saved(widened_to: str) -> str:
        found = facts.estimates["decode"]
        one = found.alternatives[0].model_copy(update={"name": "weights nvfp4", "widened_to": widened_to})
        estimates = {**facts.estimates, "decode": found.model_copy(update={"alternatives": (one,)})}
        return toy.first_screen(replace(facts, estimates=estimates))

    assert "This device has no units for nvfp4: such products run in bf16" in saved("bf16")
    assert "no units" not in saved("")
