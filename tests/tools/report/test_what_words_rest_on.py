"""Words of a report that speak of one of several: which call, which module, what most is."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_toy as toy
from opscope_schemas.analysis import CallSite, Kernel, MemoryAccess, ModelInput, ModuleNode, TensorInfo, Variable
from opscope_schemas.dataflow import CacheGrowth, FlowTensor
from opscope_schemas.extracted_config import Check, Configuration, ExtractConfigResult, Hyperparameter, Meaning
from opscope_schemas.formula import evaluate
from opscope_schemas.units import plain_bytes
from opscope_tools.report import components, purposes
from opscope_tools.report.attributes import attributes_of
from opscope_tools.report.components import _elsewhere, _interface, _known, _pseudocode
from opscope_tools.report.configuration import configuration_rows, constraint_lines
from opscope_tools.report.facts import Figures, ImplementationFacts, is_leaf, leaves, limited, outermost, walk
from opscope_tools.report.findings import findings
from opscope_tools.report.flow import forward_pass
from opscope_tools.report.glance import _dominant
from opscope_tools.report.insights import _alike, insights
from opscope_tools.report.kinds import Window, sliding_window, windowed
from opscope_tools.report.lifetimes import Life, life_of
from opscope_tools.report.memory import _appended, _growth, lifetime_rows
from opscope_tools.report.nodes import find
from opscope_tools.report.overview import swappable
from opscope_tools.report.papers import paper_lines
from opscope_tools.report.pseudocode import Call, pseudocode
from opscope_tools.report.purposes import _kept, purpose
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.reference import faq, glossary_rows, references
from opscope_tools.report.sources import SourceReader, Span
from opscope_tools.report.story import _steps, story
from opscope_tools.report.tasks import task_of_operator, tasks
from opscope_tools.report.timeline import _operations
from opscope_tools.report.traits import traits_of
from opscope_tools.settings.reads import Reader, config_reads
from opscope_tools.source.python.trees import PythonSource
from opscope_tools.trace.variables import meaning_of


def test_the_parameters_of_a_call_are_those_of_the_module_at_its_path() -> None:
    """Two towers hold layers of one class; the first in the tree is not the first that is called."""

    def tower(name: str, width: int) -> ModuleNode:
        layer = ModuleNode(name="0-3", class_name="m.Layer", repeat=4, weights={"weight": (width,)})
        return ModuleNode(
            name=name, class_name="m.Tower", children=(ModuleNode(name="layers", class_name="L", children=(layer,)),)
        )

    root = ModuleNode(name="", class_name="m.Both", children=(tower("text", 8), tower("vision", 16)))
    for path, width in (("vision.layers.*", 16), ("text.layers.*", 8), ("vision.layers.0", 16)):
        found = find(root, "m.Layer", path)
        assert found is not None
        assert found.weights == {"weight": (width,)}


@pytest.mark.parametrize(
    ("share", "said"), [(0.51, "with most of the modelled"), (0.38, "with the largest part of the modelled")]
)
def test_most_is_said_of_more_than_half_alone(facts: ImplementationFacts, share: float, said: str) -> None:
    estimates = {
        phase: found.model_copy(update={"spent": (found.spent[0].model_copy(update={"share": share}),)})
        for phase, found in facts.estimates.items()
    }
    text = findings(dataclasses.replace(facts, estimates=estimates), [], Quotes())["8"]
    assert said in text


def test_layers_of_several_kinds_in_a_list_are_repeated_layers(facts: ImplementationFacts) -> None:
    kinds = tuple(ModuleNode(name=str(at), class_name=f"m.{'AB'[at % 2]}", parameters=10) for at in range(4))
    layers = ModuleNode(name="layers", class_name="ModuleList", parameters=40, children=kinds)
    root = facts.tree.tree.model_copy(update={"children": (layers,), "parameters": 50})
    tree = facts.tree.model_copy(update={"tree": root, "parameters": 50})
    assert "80.0" in findings(dataclasses.replace(facts, tree=tree), [], Quotes())["2"]


def test_an_object_of_either_of_two_configurations_reads_both() -> None:
    text = "class A:\n    def __init__(self, config: VisionConfig | TextConfig):\n        self.n = config.heads\n"
    for own in ("VisionConfig", "TextConfig"):
        sought = Reader(own={own}, parents=(), paths=(), names={"heads": {"heads"}})
        assert config_reads(PythonSource("m.py", text), sought) == {"heads": [(3, True)]}


def test_what_nobody_compared_with_a_checkpoint_is_not_said_to_be_no_checkpoints(facts: ImplementationFacts) -> None:
    assert "no checkpoint's" not in toy.rendered_with(facts, {}).text


def test_an_input_is_read_by_the_tasks_of_its_readers(facts: ImplementationFacts) -> None:
    """By the operators that the graph names, not by all tasks of the first call."""
    catalogue = tasks(facts.main, facts.graphs[0])
    reader = FlowTensor(id=999, kind="input", shape=("{seq_len}",), dtype="int64", consumed_by=(2,), lives=(0, 2))
    graph = facts.graphs[0].model_copy(update={"tensors": (*facts.graphs[0].tensors, reader)})
    main = facts.main.model_copy(
        update={"model_inputs": (ModelInput(name="ids", shape=("{seq_len}",), dtype="int64"),)}
    )
    changed = dataclasses.replace(facts, documents=(main, *facts.documents[1:]), graphs=(graph, *facts.graphs[1:]))
    rows = [row for row in lifetime_rows(changed, catalogue) if row[0].startswith("ids")]
    assert [row[2] for row in rows] == [f"task {task_of_operator(main, catalogue)[2]}"]


def test_a_bar_names_few_operators_and_products_that_run_as_one_once(facts: ImplementationFacts) -> None:
    row = next(iter(facts.estimates.values())).operators[0]
    many = row.model_copy(update={"operation": "add, topk, sum, mul, div"})
    joined = row.model_copy(update={"operation": "mm (q_proj, k_proj, v_proj)"})
    assert _operations([many]) == "add, topk, sum and 2 more"
    assert _operations([joined]) == "mm (q_proj, k_proj, v_proj)"


def test_a_pass_that_starting_kernels_takes_most_of_is_not_limited_by_memory(facts: ImplementationFacts) -> None:
    """Told in words beside the bound; what would save a part of the bound does not come first."""

    def started(part: float) -> str:
        estimates = {}
        for phase, found in facts.estimates.items():
            rows = tuple(one.model_copy(update={"launch_seconds": part}) for one in found.operators)
            totals = found.totals.model_copy(update={"launch_seconds": part})
            estimates[phase] = found.model_copy(update={"totals": totals, "operators": rows})
        return re.sub(r"<!--.*?-->", "", toy.rendered_with(dataclasses.replace(facts, estimates=estimates), {}).text)

    few, many = started(0.1e-3), started(1.5e-3)
    assert "is fixed for each kernel" not in few
    assert "by memory: 50 % of the modelled time; 75 % of that time is fixed for each kernel, whatever its size" in many
    assert "**What would save most:** fewer kernels" in many
    assert "decode by the fixed time of its kernels" in many
    assert "decode by memory" not in many
    assert "fixed 75 %, 1 kB" in many


def test_a_size_that_the_tool_has_no_words_for_is_told_in_those_of_source(facts: ImplementationFacts) -> None:
    words = Meaning(text="how wide it is", line=1, origin="docstring")
    patch = Hyperparameter(name="patch", line=1, basis="source", value=1, meaning=words)
    own = Configuration(
        class_name=facts.tree.config_class, file=toy.CONFIG_FILE, line=1, end_line=9, kind="class", hyperparameters=(patch,), total=1
    )  # fmt: skip
    settings = ExtractConfigResult(target="toy", target_kind="model", configurations=(own,))
    sizes = [Variable(name=n, meaning=meaning_of(n), config_key=n, default=1) for n in ("patch", "unsaid")]
    main = facts.main.model_copy(update={"variables": (*facts.main.variables, *sizes)})
    new = dataclasses.replace(facts, documents=(main, *facts.documents[1:]), settings=settings)
    rows = {row[0]: row[2] for row in configuration_rows(new, Quotes())}
    assert rows["`patch`"].startswith("`how wide it is`")
    assert "config attribute" not in "".join(rows.values())


@pytest.mark.parametrize(("inner", "plays"), [("{wide}", True), ("4 * {hidden_size}", False)])
def test_a_standard_size_is_told_under_the_name_that_plays_its_part(
    facts: ImplementationFacts, inner: str, plays: bool
) -> None:
    """The toy's layers with a network of two products, of which the second is given vectors so wide."""

    def product(attribute: str, width: str) -> Kernel:
        given = toy.tensor("x").model_copy(update={"shape": ("{batch_size}", "{seq_len}", width)})
        held = toy._linear("self.o_proj", attribute, "{hidden_size}", "")
        return held.model_copy(update={"inputs": (given,)})

    products = (product("up", "{hidden_size}"), product("down", inner))
    network = toy.call(f"{toy.MODULE}.ToyMLP", "mlp", "self.norm(hidden_states)", products)
    wide = Variable(name="wide", meaning="config attribute wide", config_key="wide", default=32)
    main = facts.main.model_copy(
        update={"kernels": (*facts.main.kernels, network), "variables": (*facts.main.variables, wide)}
    )
    changed = dataclasses.replace(facts, documents=(main, *facts.documents[1:]))
    rows = {row[0]: row[1:] for row in configuration_rows(changed, Quotes())}
    said = "width inside the feed-forward network"
    assert rows["`wide`"] == ("32<!-- fact:config.wide -->", said if plays else "variable of the formulas")
    absent = ("n/a: `ToyConfig` has no intermediate_size", "intermediate size")
    told = ("32<!-- fact:config.wide -->", f"{said}, which stands as `wide`")
    assert rows["`intermediate_size`"] == (told if plays else absent)


def test_a_kernel_for_a_function_that_did_not_run_is_not_offered(facts: ImplementationFacts) -> None:
    place = facts.reader
    names = {hit.name for hit in swappable(facts)}
    assert names == {"ToyNorm"}
    text = toy.MODELING.replace("class ToyAttention", "@use_kernelized_func(rotate)\nclass ToyAttention", 1)
    (next(iter(place.repositories)).root / toy.FILE).write_text(f"{text}\n\ndef rotate(x):\n    return x\n")
    anew = dataclasses.replace(facts, reader=SourceReader(place.repositories))
    assert {hit.name for hit in swappable(anew)} == {"ToyNorm"}


def test_checks_of_what_every_configuration_inherits_are_not_told(facts: ImplementationFacts) -> None:
    def check(kind: str, file: str, within: str, line: int) -> Check:
        return Check(kind=kind, file=file, within=within, line=line, condition="", error="ValueError", message="no")

    plumbing = check("raise", "library/configuration_utils.py", "PreTrainedConfig.save", 1)
    said = check("validator", toy.CONFIG_FILE, "ToyConfig.validate", 2)
    raised = check("raise", toy.CONFIG_FILE, "ToyConfig.validate", 3)
    lines = "\n".join(constraint_lines(dataclasses.replace(facts, checks=(plumbing, said, raised))))
    assert "PreTrainedConfig" not in lines
    assert f"{toy.CONFIG_FILE}:3" in lines
    assert f"{toy.CONFIG_FILE}:2" not in lines


def _what(facts: ImplementationFacts) -> str:
    return re.sub(r"<!--.*?-->", "", story(facts, Quotes())[0])


def test_the_first_sentence_says_in_how_many_layers_what_only_some_have_is(facts: ImplementationFacts) -> None:
    assert "in 1 layer" not in _what(facts)
    attends = next(name for name in facts.classes_of("attention"))
    kinds = tuple(
        ModuleNode(
            name=name, class_name=f"m.{kind}Layer", repeat=count, parameters=10 * count,
            children=(ModuleNode(name="inner", class_name=attends if kind == "A" else "m.FooMamba"),),
        )
        for name, kind, count in (("0-4", "B", 5), ("5", "A", 1), ("6-8", "B", 3))
    )  # fmt: skip
    layers = ModuleNode(name="layers", class_name="ModuleList", parameters=90, children=kinds)
    tree = facts.tree.model_copy(update={"tree": facts.tree.tree.model_copy(update={"children": (layers,)})})
    assert "key-value heads) in 1 layer." in _what(dataclasses.replace(facts, tree=tree))


def test_the_first_sentence_knows_the_lists_that_source_computes(facts: ImplementationFacts) -> None:
    """Windows of some layers, caps of scores, and the layers of a decoder by the names that its class has."""
    kinds = Hyperparameter(name="layer_types", line=1, basis="evaluated", value=["sliding_attention", "full_attention"])
    own = Configuration(
        class_name=facts.tree.config_class, file=toy.CONFIG_FILE, line=1, end_line=9, kind="class", hyperparameters=(kinds,), total=1
    )  # fmt: skip
    settings = ExtractConfigResult(target="toy", target_kind="model", configurations=(own,))
    config = {**facts.tree.config, "sliding_window": 16, "attn_logit_softcapping": 50.0}
    said = _what(dataclasses.replace(facts, settings=settings, tree=facts.tree.model_copy(update={"config": config})))
    assert "windows of 16 tokens in 1 of the layers" in said
    assert "attention scores capped at 50" in said
    config = {**facts.tree.config, "is_encoder_decoder": True, "num_layers": 3, "num_decoder_layers": 2}
    assert "3 encoder and 2 decoder layers" in _what(
        dataclasses.replace(facts, tree=facts.tree.model_copy(update={"config": config}))
    )


def test_a_model_is_called_with_all_its_inputs_and_returns_all_its_outputs(facts: ImplementationFacts) -> None:
    """Not what its first module is handed and its last one gives."""
    size = ("{batch_size}", "{seq_len}")
    given = tuple(ModelInput(name=name, shape=size, dtype="int64") for name in ("input_ids", "decoder_input_ids"))
    made = tuple(
        FlowTensor(
            id=900 + at,
            kind="output",
            name=name,
            shape=shape,
            dtype="bfloat16",
            created_by=at,
            consumed_by=read,
            lives=(at, at),
        )
        for at, name, read, shape in (
            (1, "encoder.last", (2,), (*size, "{hidden_size}")),
            (2, "logits", (), ("{batch_size} * {seq_len}", "{vocab_size}")),
        )
    )
    kept = tuple(t for t in facts.graphs[0].tensors if t.kind != "output")
    graph = facts.graphs[0].model_copy(update={"tensors": (*kept, *made)})
    logits = TensorInfo(name="", shape=(*size, "{vocab_size}"), dtype="bfloat16")
    *others, last = facts.main.kernels
    kernels = (*others, last.model_copy(update={"outputs": (logits,)}))
    shapes = {"encoder.last": (*size, "{hidden_size}"), "logits": logits.shape, "logits_per_text": ("1", "1")}
    outputs = tuple(TensorInfo(name=name, shape=shape, dtype="bfloat16") for name, shape in shapes.items())
    main = facts.main.model_copy(update={"model_inputs": given, "kernels": kernels, "outputs": outputs})
    changed = dataclasses.replace(facts, documents=(main, *facts.documents[1:]), graphs=(graph, *facts.graphs[1:]))
    model = next(m for m in changed.modules if m.class_name == main.class_name)
    text = _interface(changed, model)
    assert "input_ids, decoder_input_ids: [{batch_size}, {seq_len}], int64" in text
    assert "encoder.last: [{batch_size}, {seq_len}, {hidden_size}]" in text
    assert "logits: [{batch_size}, {seq_len}, {vocab_size}]" in text
    assert "logits_per_text: [1, 1]" in text  # a view of another
    asked = dataclasses.replace(changed, documents=(main.model_copy(update={"logits": "last"}), *facts.documents[1:]))
    assert "logits (of the last position alone, as asked for): [" in _interface(asked, model)
    rows = lifetime_rows(changed, tasks(changed.main, changed.graphs[0]))
    assert [row[2] for row in rows if row[2].endswith("the caller")] == ["task 2; the caller", "the caller"]


@pytest.mark.parametrize("within", ["ToyForCausalLM", "ToyAttention", "ToyNorm"])
def test_a_module_that_hands_back_the_cache_that_it_fills_says_so(
    facts: ImplementationFacts, tmp_path: Path, within: str
) -> None:
    """With the bytes that the graph has; one that fills none hands none back, whatever its source names."""
    repository = toy.write_source(tmp_path)
    attends = next(o.id for o in facts.graphs[0].operators if "scaled_dot" in o.operator)
    kept = FlowTensor(id=999, kind="cache", shape=(), dtype="bfloat16", created_by=attends, lives=(attends, attends))
    graph = facts.graphs[0].model_copy(update={"tensors": (*facts.graphs[0].tensors, kept)})
    with_cache = dataclasses.replace(facts, graphs=(graph, *facts.graphs[1:]), reader=SourceReader([repository]))
    module = next(m for m in facts.modules if m.class_name.endswith(f".{within}"))
    assert "past_key_values" not in _interface(with_cache, module).partition("OUTPUTS")[2]
    returned = re.compile(r"^        return (.*)$", re.MULTILINE)
    text = returned.sub(r"        return ToyOutput(\1, past_key_values=past_key_values)", toy.MODELING)
    (tmp_path / toy.FILE).write_text(text)
    handing = dataclasses.replace(with_cache, reader=SourceReader([repository]))
    said = _interface(handing, module).partition("OUTPUTS")[2]
    bytes_kept = 2 * 2 * 8 * 2 * facts.point(facts.main)["seq_len"]  # keys and values of two layers of width 8
    assert f"past_key_values: the cache, {plain_bytes(float(bytes_kept))} after prefill" in said or within == "ToyNorm"
    assert ("past_key_values" in said) == (within != "ToyNorm")
    alone = dataclasses.replace(handing, graphs=(graph.model_copy(update={"cache": None}), *facts.graphs[1:]))
    assert "past_key_values" not in _interface(alone, module).partition("OUTPUTS")[2]


def test_operators_that_a_tensor_outlives_are_counted_as_often_as_they_run(
    facts: ImplementationFacts,
) -> None:
    """As a rotation's cosines, which every layer reads."""
    linked = facts.graphs[0]
    repeats = {operator.id: evaluate(operator.repeat, facts.point(facts.main)) for operator in linked.operators}
    made = next(t for t in linked.tensors if t.created_by and repeats[t.created_by] == 1)
    reader = next(place for place, count in repeats.items() if count > 1)
    kept = tuple(
        t.model_copy(
            update={
                "consumed_by": (reader,),
                "lives": (made.created_by, reader),
                "bytes": "10 ** 9",
                "in_later_repetitions": True,
            }
        )
        if t is made
        else t
        for t in linked.tensors
    )
    graph = linked.model_copy(update={"tensors": kept})
    rows = lifetime_rows(dataclasses.replace(facts, graphs=(graph, *facts.graphs[1:])), tasks(facts.main, graph))
    said = [row[3] for row in rows if "1 GB" in row[0]]
    assert said
    body = [place for place, count in repeats.items() if count == repeats[reader] and place >= reader]
    behind = next((i for i, place in enumerate(body) if place != reader + i), len(body))  # of the same layer
    ran = sum(repeats[place] for place in range(made.created_by, reader + 1)) + (repeats[reader] - 1) * (behind - 1)
    assert all(text.startswith(f"about {ran:,} operators, task") for text in said)
    assert not any(row[3].startswith("about") for row in rows if "1 GB" not in row[0])


def test_an_output_whose_maker_is_not_known_is_of_no_task(facts: ImplementationFacts) -> None:
    *kept, last = facts.graphs[0].tensors
    graph = facts.graphs[0].model_copy(update={"tensors": (*kept, last.model_copy(update={"created_by": 0}))})
    changed = dataclasses.replace(facts, graphs=(graph, *facts.graphs[1:]))
    rows = lifetime_rows(changed, tasks(changed.main, graph))
    (made,) = (row[1] for row in rows if row[2] == "the caller")
    assert made.startswith("not analysed")
    assert not any(re.search(r"\btask 0\b", cell) for row in rows for cell in row)


def test_the_floor_is_said_to_hold_all_that_it_counts(facts: ImplementationFacts) -> None:
    """Buffers such as a table of masks are read too."""
    ((_, meaning),) = glossary_rows(facts, "a floor")
    assert "constants" in meaning


def test_assumptions_are_sentences_and_fields_are_those_of_a_named_answer(facts: ImplementationFacts) -> None:
    main = facts.main.model_copy(update={"assumptions": ("Traced with eager", "One pass.")})
    said = references(dataclasses.replace(facts, documents=(main, *facts.documents[1:])))
    assert "Assumptions: Traced with eager. One pass." in said
    assert any(
        line.startswith("Conventions, whose names of fields are those of the answer of `count_flops`: ")
        for line in said
    )


def test_a_setting_that_the_model_changes_in_a_copy_decides_no_branch(facts: ImplementationFacts) -> None:
    """A class that runs as encoder and as decoder is given two copies."""
    root = next(iter(facts.reader.repositories)).root
    text = toy.MODELING.replace(
        "        residual = hidden_states\n",
        "        if self.config.is_decoder:\n            mask = causal(hidden_states)\n        residual = hidden_states\n", 1,
    )  # fmt: skip
    layer = next(m for m in facts.modules if m.class_name.endswith("ToyLayer"))
    config = {**facts.tree.config, "is_decoder": False}
    of_class = "\n\nclass {}:\n    def __init__(self, decoder_config):\n        decoder_config.is_decoder = True\n"
    of_base = text.replace("class ToyForCausalLM(nn.Module)", "class ToyForCausalLM(ToyBase)", 1)
    for written, added, shown in (
        (text, "", False),
        (text, "\n\ndef of(decoder_config):\n    decoder_config.is_decoder = True\n", True),
        (text, of_class.format("OtherModel"), False),  # which this model has no part of
        (of_base, of_class.format("ToyBase"), True),
    ):
        (root / toy.FILE).write_text(f"{written}{added}")
        changed = dataclasses.replace(
            facts,
            reader=SourceReader(facts.reader.repositories),
            tree=facts.tree.model_copy(update={"config": config}),
        )
        assert ("mask = causal(hidden_states)" in _pseudocode(changed, layer)) == shown


_FLAGGED = """
from .flags import flagged

@flagged(has_bias=True)
class Flagged:
    def __init__(self, config):
        self.use_norm = config.use_norm
        self.changed = False
        self.changed = compute()
"""
_DECORATOR = """
def flagged(made=None, *, has_bias=False, has_gate=True):
    def wrapper(made):
        def __init__(self, config):
            self.has_bias = has_bias
            self.has_gate = has_gate
            self.parallel = False
"""


def test_flags_that_a_class_or_its_decorator_sets_are_known(facts: ImplementationFacts, tmp_path: Path) -> None:
    """So that pseudocode leaves out what they switch off; what is set twice is not known."""
    repository = toy.write_source(tmp_path)
    (tmp_path / "toyland/flagged.py").write_text(_FLAGGED)
    (tmp_path / "toyland/flags.py").write_text(_DECORATOR)
    changed = dataclasses.replace(facts, reader=SourceReader([repository]))
    assert attributes_of(changed, "toyland.flagged.Flagged", {"use_norm": False}) == {
        "self.use_norm": False, "self.has_bias": True, "self.has_gate": True, "self.parallel": False
    }  # fmt: skip
    source = "def f(self, x):\n    if self.use_norm:\n        x = self.norm(x)\n    b = x if self.use_norm else None\n    return g(x, b=b)"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    drawn = pseudocode(function, "f", ["note"], Call(settings={"self.use_norm": False}))
    assert "norm" not in drawn
    assert "g(x)" in drawn


def test_a_branch_that_other_calls_do_not_take_says_so(facts: ImplementationFacts) -> None:
    attention = next(m for m in facts.modules if m.class_name.endswith("ToyAttention"))
    line = attention.kernels[1].line
    path = attention.kernels[1].file
    assert _elsewhere(facts, attention, path, range(line, line + 1)) == ""

    def without(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
        kept = (k for k in kernels if k.line != line or k.file != path)
        return tuple(k.model_copy(update={"kernels": without(k.kernels)}) if k.kernels else k for k in kept)

    decode = facts.documents[1].model_copy(update={"kernels": without(facts.documents[1].kernels)})
    changed = dataclasses.replace(facts, documents=(facts.main, decode))
    said = _elsewhere(changed, attention, path, range(line, line + 1))
    assert said == "in decode at layers.*.attention"
    (function,) = ast.parse("def f(x):\n    if known:\n        y = x\n    else:\n        y = g(x)\n    return y").body
    assert isinstance(function, ast.FunctionDef)
    drawn = pseudocode(
        function, "f", ["note"], Call(ran=lambda first, _: first == 5, elsewhere=lambda first, _: said * (first == 5))
    )
    assert f"# :5 does not run {said}\n    if not (known):  # :2\n        y = g(x)" in drawn
    # and a branch that other calls alone take is not left out
    assert attention.kernels[1].line == line
    kept = tuple(k for k in attention.kernels if k.line != line)
    shown = _elsewhere(facts, attention.model_copy(update={"kernels": kept}), path, range(line, line + 1))
    assert shown == "in prefill at layers.*.attention, in decode at layers.*.attention"
    drawn = pseudocode(
        function, "f", ["note"], Call(ran=lambda first, _: first == 5, elsewhere=lambda first, _: shown * (first == 3))
    )
    assert f"if known:  # :2, runs {shown}, not here\n        y = x  # :3\n    else:\n        y = g(x)" in drawn


_CROSSED = """def forward(self, x, other):
    if self.crosses(other):
        shape = x.shape
        x = self.cross(x)
        if narrow(x):
            x = {}
        x = self.more(x)
        if wide(x):
            x = self.wider(x)
    return x
"""


@pytest.mark.parametrize(
    ("under", "drawn"), [("torch.clamp(x, min=lowest)", False), ("self.lowered(x)", True)], ids=["moves", "may not"]
)
def test_lines_that_do_not_run_elsewhere_are_those_that_ran_here(under: str, drawn: bool) -> None:
    """Not what stands among them and ran nowhere: an operator there, which would have run, leaves it out of the listing too."""
    function = ast.parse(_CROSSED.format(under)).body[0]
    assert isinstance(function, ast.FunctionDef)
    ran = {4, 7, 9}
    call = Call(
        ran=lambda first, last: bool(ran & {*range(first, last + 1)}),
        elsewhere=lambda first, last: "in prefill at encoder" * bool(ran & {*range(first, last + 1)}),
    )
    text = pseudocode(function, "f", ["note"], call)
    assert "# :3 to :4 and :7 to :9 do not run in prefill at encoder" in text
    assert ("narrow(x)" in text) is drawn


def test_what_runs_under_a_condition_says_so_though_its_branch_is_not_drawn() -> None:
    source = (
        "def f(self, x, mask=None):\n    if self.config.scaled:\n        x = g(x)\n    if not mask:\n        x = h(x)\n"
        "    else:\n        x = k(x)\n    if self.training:\n        x = drop(x)\n    else:\n        x = keep(x)\n"
        f"    if {' and '.join(['flag'] * 20)}:\n        x = far(x)\n    return x"
    )
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    drawn = pseudocode(function, "f", ["note"], Call(ran=lambda first, _: first in (3, 7, 13), given=["x", "mask"]))
    said = {line.strip().partition(" = ")[2].partition("(")[0]: line.partition("  # ")[2] for line in drawn.split("\n")}
    assert said["g"] == ":3; where self.config.scaled"
    assert said["k"] == ":7; where mask"
    assert said["keep"] == ":11"  # no pass of inference takes the other way
    assert said["far"] == ":13; where the test of :12 holds"


@pytest.mark.parametrize(
    ("inside", "between", "left"),
    [
        ("joined = torch.cat(found['image'], dim=0)", "y = x", False),
        ("x = x.masked_scatter(mask, x)", "y = x", False),
        # what may run without an operator, or not at all, may have run
        ("joined = self.prepared(found)", "y = x", True),
        ("joined = np.stack(found['image'])", "y = x", True),
        ("joined = torch.cat(found['image']) if self.joins else x", "y = x", True),
        # and what holds nothing holds it until it may have changed
        ("joined = torch.cat(found['image'], dim=0)", "found['image'] = x", None),
        ("joined = torch.cat(found['image'], dim=0)", "found.update(image=x)", None),
        ("joined = torch.cat(found['image'], dim=0)", "found = x", None),
    ],
)
def test_a_branch_whose_operators_did_not_run_was_not_taken(inside: str, between: str, left: bool | None) -> None:
    """Nor is what stands behind the same test a second time."""
    text = f"def forward(self, x, found):\n    if found.get('image') is not None:\n        {inside}\n    {between}\n    return joined if found.get('image') is not None else x\n"
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    drawn = pseudocode(function, "f", ["note"], Call(given=["x"]))
    assert (inside in drawn.replace('"', "'")) is bool(left)
    assert ("return joined if" in drawn) is (left is not False)
    assert pseudocode(function, "f", ["note"], Call(given=["x"], ran=lambda *_: True)).count(inside) == 1


@pytest.mark.parametrize(
    ("given", "at_times", "shown"),
    [
        (["x", "other"], [], "read = other"), (["x"], [], "read = x"),
        (["x"], ["other"], "read = other if other is not None else x"),  # as attention of a decoder, within it and to what was read
    ],
)  # fmt: skip
def test_a_choice_by_what_some_calls_alone_are_given_is_told_whole(
    given: list[str], at_times: list[str], shown: str
) -> None:
    text = "def forward(self, x: Tensor, other: Tensor | None = None):\n    read = other if other is not None else x\n    return read\n"
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    drawn = pseudocode(function, "f", ["note"], Call(given=given, at_times=at_times))
    assert f"{shown}  #" in drawn
    assert ("None here: other" in drawn) is (shown == "read = x")


def test_the_listing_of_a_class_is_of_all_its_calls(facts: ImplementationFacts) -> None:
    """A parameter that one of them leaves out is not told as nothing."""
    norm = next(kernel for kernel in facts.main.kernels if kernel.class_name.endswith("Norm"))
    more = TensorInfo(name="residual", shape=("{hidden_size}",), dtype="bfloat16")
    other = norm.model_copy(update={"inputs": (*norm.inputs, more)})
    main = facts.main.model_copy(update={"kernels": (*facts.main.kernels, other)})
    changed = dataclasses.replace(facts, documents=(main, *facts.documents[1:]))
    module = next(m for m in changed.modules if m.class_name == norm.class_name)
    known = _known(changed, module, module.file, (module.class_name,))
    assert set(known.at_times) == {"residual"}
    assert set(known.given) == {each.name for each in norm.inputs}


def test_pictures_that_an_example_loads_are_no_references(facts: ImplementationFacts, tmp_path: Path) -> None:
    repository = toy.write_source(tmp_path)
    links = '    """See https://a.org/paper and https://a.org/cats.JPG."""\n'
    text = toy.MODELING.replace("class ToyNorm(nn.Module):\n", f"class ToyNorm(nn.Module):\n{links}")
    (tmp_path / toy.FILE).write_text(text)
    named = paper_lines(dataclasses.replace(facts, reader=SourceReader([repository])))[0]
    assert "https://a.org/paper" in named
    assert "cats" not in named


def test_a_pass_says_how_many_operators_it_runs(facts: ImplementationFacts) -> None:
    """Steps of a loop over tokens among them, which the sections on operators show once."""
    grown = tuple(group.model_copy(update={"count": "{seq_len}"}) for group in facts.main.per_operator)
    main = facts.main.model_copy(update={"per_operator": grown})
    said = toy.first_screen(dataclasses.replace(facts, documents=(main,)))
    assert f"in {len(grown) * facts.point(main)['seq_len']:,} operators" in said


def test_what_limits_a_pass_is_what_limits_its_kernels_and_not_their_sum() -> None:
    """A product at ten times the ridge and a copy: together just below it, though the product takes most of the time."""
    product, copy = Figures(1000, 1000, 1, 0), Figures(0, 0, 5, 5)
    assert (product.flops + copy.flops) / (product.bytes + copy.bytes) < 100
    assert limited([product, copy], 100) == ("memory", 0.5)
    assert limited([product, product, copy], 100) == ("compute", 2 / 3)
    assert limited([copy], 100) == ("memory", 1.0)
    causal = Figures(1000, 1000, 4, 4, hidden=500)  # what lies above the diagonal is counted, and limits nothing
    assert limited([Figures(1000, 1000, 4, 4)], 100) == ("compute", 1.0)
    assert limited([causal], 100) == ("memory", 1.0)
    assert causal.weight(100) == 8 + 5


def test_a_pass_and_a_class_are_limited_by_the_kernels_inside_them(facts: ImplementationFacts) -> None:
    values = facts.point(facts.main)
    for name in ("", *(call.class_name for _, _, call in walk(facts.main.kernels, "") if call.class_name)):
        within = (
            [
                Figures.sum([kernel], values)
                for _, _, call in walk(facts.main.kernels, "")
                if call.class_name == name or not name
                for _, _, kernel in walk((call,), "")
                if is_leaf(kernel)
            ]
            if name
            else [Figures.sum([kernel], values) for _, kernel in leaves(facts.main)]
        )
        assert facts.limited(facts.main, name) == limited(within, facts.ridge)


def test_the_steps_of_a_loop_are_told_where_its_operators_stand(facts: ImplementationFacts) -> None:
    def looped(kernels: tuple[Kernel, ...], outer: int) -> tuple[Kernel, ...]:
        return tuple(
            kernel.model_copy(update={"repeat": str(7 * outer)}) if is_leaf(kernel)
            else kernel.model_copy(update={"kernels": looped(kernel.kernels or (), evaluate(kernel.repeat, facts.point(facts.main)))})
            for kernel in kernels
        )  # fmt: skip

    plain = "\n".join(line for _, line in forward_pass(facts, tasks(facts.main, facts.graphs[0])))
    main = facts.main.model_copy(update={"kernels": looped(facts.main.kernels, 1)})
    changed = dataclasses.replace(facts, documents=(main, *facts.documents[1:]))
    catalogue = tasks(main, facts.graphs[0])
    assert "×7" not in plain
    assert "×7" in "\n".join(line for _, line in forward_pass(changed, catalogue))
    assert "the steps of loops" in str(findings(changed, catalogue, Quotes()))
    assert "the steps of loops" not in str(findings(facts, tasks(facts.main, facts.graphs[0]), Quotes()))


def test_a_cache_with_windows_grows_until_they_are_full(facts: ImplementationFacts) -> None:
    config = {**facts.tree.config, "sliding_window": 4096}
    windowed = dataclasses.replace(facts, tree=facts.tree.model_copy(update={"config": config}))
    unused = dataclasses.replace(
        facts, tree=facts.tree.model_copy(update={"config": {**config, "use_sliding_window": False}})
    )
    assert sliding_window(windowed) == 4096
    assert sliding_window(unused) == sliding_window(facts) == 0
    cache = CacheGrowth(per_token="64 * {num_layers}", after="0", before="0")
    for held, said in (
        (
            windowed,
            ", in the layers with a window of 4,096 tokens until they hold 4,095, which are all that a new one looks back at",
        ),
        (unused, ""),
    ):
        graphs = tuple(graph.model_copy(update={"cache": cache}) for graph in facts.graphs)
        grown = _growth(dataclasses.replace(held, graphs=graphs))
        assert grown == f"; it grows by `64 * {{num_layers}}` bytes with each token{said}"


def test_the_side_that_other_calls_take_stands_beside_the_one_shown() -> None:
    (function,) = ast.parse(
        "def f(x, c):\n    if c.full:\n        k = c.keys\n    else:\n        k = g(x)\n    return k"
    ).body
    assert isinstance(function, ast.FunctionDef)
    call = Call(ran=lambda first, _: first == 5, elsewhere=lambda first, _: "in decode at a" * (first == 5))
    quiet = Call(ran=lambda *_: False, elsewhere=lambda *_: "in decode at b", settings={"full": True})
    (chosen,) = ast.parse("def f(x, config):\n    if config.full:\n        x = x.float()\n    return x").body
    assert isinstance(chosen, ast.FunctionDef)
    assert "do not run" not in pseudocode(chosen, "f", ["note"], quiet)  # where nothing ran here, others do no less
    drawn = pseudocode(function, "f", ["note"], call)
    assert (
        "# :5 does not run in decode at a\n    if not (c.full):  # :2\n        k = g(x)  # :5\n    else:\n        k = c.keys  # :3"
        in drawn
    )


def test_what_a_whole_side_is_told_to_be_is_not_told_of_a_part_of_it() -> None:
    """Told of the part alone, it would say that the rest of the side runs there."""
    source = "def f(x, c):\n    if c.step:\n        y = step(x)\n    else:\n        if c.kept:\n            x = save(x)\n        y = g(x)\n    return y"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    call = Call(
        ran=lambda first, last: first <= 7 and last >= 6,
        elsewhere=lambda first, _: "in decode at a" * (first in (3, 5, 6)),
    )
    drawn = pseudocode(function, "f", ["note"], call)
    assert "if c.step:  # :2, runs in decode at a, not here\n" in drawn
    assert "x = save(x)  # :6" in drawn
    assert "do not run" not in drawn


def test_all_steps_of_a_loop_are_counted_and_told_where_the_loop_stands(facts: ImplementationFacts) -> None:
    """The first step stands apart in a trace where it differs from the others."""
    first = next(kernel for _, kernel in leaves(facts.main) if kernel.operator)
    site = CallSite(function="scan", file="toyland/scans.py", line=7)
    steps = [first.model_copy(update={"via": (site,), "repeat": times}) for times in ("1", "{seq_len} - 1")]
    main = facts.main.model_copy(update={"kernels": (*facts.main.kernels, *steps)})
    seq_len = facts.point(facts.main)["seq_len"]
    assert f" {seq_len:,} of the operators" in (said := toy.unmarked(_steps(main, facts.point(main), Quotes())))
    assert "(from `toyland/scans.py:7`)" in said


def test_a_norm_without_weights_multiplies_by_none(facts: ImplementationFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    norm = next(module for module in facts.modules if module.class_name.endswith("Norm"))
    assert "multiplies by a learned weight" in purpose(facts, norm, Quotes())
    monkeypatch.setattr(purposes, "weights_of", lambda _tree, _node: 0)  # it is a buffer
    assert "learned" not in purpose(facts, norm, Quotes())


def test_lines_and_kernels_that_come_to_the_same_are_no_largest_ones(facts: ImplementationFacts) -> None:
    one, two = ([kernel] for _, kernel in list(leaves(facts.main))[:2])
    assert _alike((one, 3), [(one, 3), (two, 2)]) == ""
    assert _alike((one, 3), [(one, 3), (two, 3)]) == f" (as :{two[0].line} does)"
    found = facts.estimates["decode"]
    slowest = max(found.operators, key=lambda one: one.calibrated_seconds or one.bound_seconds)
    seconds = [one.calibrated_seconds or one.bound_seconds for one in found.operators]
    share = f"{slowest.count} runs): {100 * max(seconds) / sum(seconds):.0f} %"
    assert toy.unmarked(_dominant(facts, "decode", found, Quotes())).endswith(share)
    doubled = found.model_copy(update={"operators": (*found.operators, slowest)})
    assert toy.unmarked(_dominant(facts, "decode", doubled, Quotes())).endswith("and as much in 1 other kernel")


def test_a_size_that_conditions_pin_is_said_to_hold_at_its_value_alone(facts: ImplementationFacts) -> None:
    main = facts.main.model_copy(update={"conditions": ("{hidden_size} == 8",)})
    said = re.sub(r"<!--.*?-->", "", findings(dataclasses.replace(facts, documents=(main,)), [], Quotes())["3"])
    assert "`hidden_size` at its value alone)" in said
    assert "at its value alone" not in findings(facts, [], Quotes())["3"]


def test_a_call_is_of_the_module_that_stands_for_as_many_as_it_runs() -> None:
    """The first block of a list holds a table that the others lack, in the module that all have."""
    first, others = (
        ModuleNode(name=name, class_name="m.Block", repeat=repeat, parameters=size * repeat, children=(
            ModuleNode(name="attention", class_name="m.Attention", parameters=size * repeat),
        )) for name, repeat, size in (("0", 1, 12), ("1-5", 5, 10))
    )  # fmt: skip
    root = ModuleNode(name="", class_name="m.Model", parameters=62, children=(
        ModuleNode(name="block", class_name="m.List", parameters=62, children=(first, others)),
    ))  # fmt: skip
    for runs, wanted in ((1, first), (5, others)):
        assert find(root, "m.Block", "block.*", runs=runs) is wanted
        assert find(root, "m.Attention", "block.*.attention", runs=runs) is wanted.children[0]


@pytest.mark.parametrize(
    ("read", "said"),
    [
        ("itself and those before it in the decoder", "new keys and values join the cache in the decoder"),
        (
            "itself and those before it in the decoder or those of the encoder",
            "new keys and values join the cache in the decoder, those of the encoder once",
        ),
        ("itself and those before it", "new keys and values join the cache"),
    ],
)
def test_what_is_kept_is_told_of_what_a_class_reads(read: str, said: str) -> None:
    assert _kept(cached=True, read=read) == said
    assert _kept(cached=False, read=read) == "nothing is kept"


def test_what_appending_to_a_cache_copies_is_told_beside_the_peak(facts: ImplementationFacts) -> None:
    old, new = (
        FlowTensor(
            id=at, kind="cache", shape=(size,), dtype="bfloat16", bytes=f"2 * {size}", created_by=by, lives=(1, 1)
        )
        for at, size, by in ((901, "{cache_len}", 0), (902, "({cache_len} + 1)", 1))
    )
    first = facts.graphs[0].operators[0]
    joins = first.model_copy(update={"operator": "aten.cat", "reads": (901,), "writes": (902,), "holds": ()})
    graph = facts.graphs[0].model_copy(update={"operators": (joins,), "tensors": (old, new)})
    said = _appended(graph, {"cache_len": 500})
    assert said.endswith(
        "the old stands beside the new (1 kB), so that, with activations, 1 kB are held beside one cache and the weights."
    )
    fresh = joins.model_copy(update={"reads": ()})  # a prefill has nothing to copy
    assert _appended(graph.model_copy(update={"operators": (fresh,)}), {"cache_len": 499}) == ""


def test_arguments_are_known_by_the_names_of_the_function_that_ran(
    facts: ImplementationFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A function that a decorator puts in the place of a forward takes the same things in the same order under names of its own."""
    own = ast.parse("class Experts:\n    def forward(self, x, index=None, weights=None): ...").body[0]
    assert isinstance(own, ast.ClassDef)
    shown = ast.parse("def grouped(self, x, top_k_index, top_k_weights): ...").body[0]
    module = facts.modules[0]
    span = Span("Experts", 1, 2, own)
    monkeypatch.setattr(ImplementationFacts, "locate", lambda _self, _name: ("m.py", span))
    monkeypatch.setattr(components, "_forward", lambda _facts, _module: ("m.py", shown))
    assert components._as_shown(facts, module, {"x", "weights"}) == {"x", "top_k_weights"}
    assert components._as_shown(facts, module, {"x", "top_k_index"}) == {"x", "top_k_index"}
    monkeypatch.setattr(components, "_forward", lambda _facts, _module: ("m.py", None))
    assert components._as_shown(facts, module, {"index"}) == {"index"}


def test_a_window_that_a_part_of_the_configuration_states_is_that_of_its_layers(facts: ImplementationFacts) -> None:
    kinds = Hyperparameter(name="layer_types", line=1, basis="source", value=["sliding_attention", "full_attention"])
    assert facts.settings is not None
    own = facts.settings.configurations[0].model_copy(update={"path": "text_config", "hyperparameters": (kinds,)})
    settings = facts.settings.model_copy(update={"configurations": (*facts.settings.configurations, own)})
    config = {**facts.tree.config, "vision_config": {"sliding_window": 8}, "text_config": {"sliding_window": 64}}
    there = replace(facts, settings=settings, tree=facts.tree.model_copy(update={"config": config}))
    assert windowed(there) == Window(64, 1, 2, "text_config.sliding_window")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"sliding_window": 64}, Window(64, 0, 0, "sliding_window")),
        (
            {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"]},
            Window(64, 1, 2, "sliding_window"),
        ),
        (
            {"attention_chunk_size": 32, "layer_types": ["chunked_attention", "full_attention"]},
            Window(32, 1, 2, "attention_chunk_size"),
        ),
        ({"attention_chunk_size": 32, "layer_types": ["full_attention"]}, None),
        ({}, None),
    ],
)
def test_chunks_bound_attention_as_windows_do(
    facts: ImplementationFacts, config: dict[str, Any], said: Window | None
) -> None:
    tree = facts.tree.model_copy(
        update={"config": {n: v for n, v in facts.tree.config.items() if n != "sliding_window"} | config}
    )
    there = replace(facts, tree=tree, settings=None)
    assert windowed(there) == said
    assert traits_of(there).held["windows"].holds is (said is not None)
    answer = "\n".join(faq(there, Quotes()))
    kind = "chunk" if said is not None and not said.slides else "window"
    told = re.sub("<!--.*?-->", "", answer)
    assert (f"Layers with a {kind} of " in told) == (said is not None)
    assert said is None or f"keep no more than {said.tokens - 1}, " in told


def test_what_a_layer_hands_to_the_next_is_read_there_and_what_it_gets_before_the_first_ends_there(
    facts: ImplementationFacts,
) -> None:
    """Three operators that run four times between two that run once: counted by walking through all of them."""
    linked = facts.graphs[0]
    often = [1, 4, 4, 4, 1]
    given = {
        1: [],
        2: [1],
        3: [2],
        4: [1, 3],
        5: [4],
    }  # the second and the last of the layer read what the one before made
    operators = tuple(
        linked.operators[0].model_copy(
            update={
                "id": n,
                "repeat": str(often[n - 1]),
                "depends_on": tuple(given[n]),
                "carried_from": (4,) * (n in (2, 4)),
            }
        )
        for n in given
    )
    graph = linked.model_copy(update={"operators": operators})

    def life(created: int, readers: tuple[int, ...], *, again: bool = False) -> Life:
        tensor = linked.tensors[0].model_copy(
            update={
                "id": created, "kind": "activation", "created_by": created, "consumed_by": readers, "lives": (created, max((created, *readers))), "in_later_repetitions": again
            }
        )  # fmt: skip
        return life_of(tensor, graph, often)

    runs = [1, *[2, 3, 4] * 4, 5]  # operators in the order in which they run
    first = runs.index(4) - runs.index(1) + 1
    assert (life(1, (2, 4)).operators, life(1, (2, 4)).about) == (first, False)
    assert life(1, (2, 4), again=True).operators == len(runs) - runs[::-1].index(4) - runs.index(1)
    at = runs.index(4)
    assert life(4, ()).operators == runs.index(4, at + 1) - at + 1
    assert life(4, ()).next_readers == (2, 4)
    assert life(2, (3,)).operators == 2


def test_the_line_that_moves_most_is_told_of_each_pass(facts: ImplementationFacts) -> None:
    """In the toy's decode step another line is made the widest."""
    module = next(one for one in facts.modules if one.class_name.endswith("ToyLayer"))
    decode = facts.document_of("decode")
    last = (outermost(decode, module.class_name)[0].kernels or ())[-1]

    def wider(kernel: Kernel) -> Kernel:
        inside = tuple(map(wider, kernel.kernels)) if kernel.kernels else kernel.kernels
        moved = MemoryAccess(read="10 ** 12", write="0")
        same = (kernel.file, kernel.line, kernel.operator) == (last.file, last.line, last.operator)
        return kernel.model_copy(update={"kernels": inside, **({"memory_access": moved} if same else {})})

    changed = decode.model_copy(update={"kernels": tuple(map(wider, decode.kernels))})
    told = dataclasses.replace(facts, documents=(facts.main, changed))
    text = toy.unmarked(" ".join(insights(told, module, Quotes())))
    assert f"In decode most bytes move on `{last.file}:{last.line}`" in text
    assert ": 100.0 %." in text
    assert "In prefill `" in text
    alone = toy.unmarked(" ".join(insights(dataclasses.replace(facts, documents=(facts.main,)), module, Quotes())))
    assert "In prefill" not in alone.partition("what grows")[0]
