"""What sections 1, 3 and 9 say of parameters: which sizes formulas hold, which tell layers apart, which nothing reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.analysis import Variable
from opscope_schemas.common import Repository
from opscope_schemas.extracted_config import Hyperparameter, Place, Reads
from opscope_tools.report import scan
from opscope_tools.report.configuration import configuration_note, configuration_rows, constraint_lines, layer_settings
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.findings import findings
from opscope_tools.report.overview import key_features
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.reference import faq
from opscope_tools.report.sources import SourceReader
from opscope_tools.settings.reads import Reader, config_reads
from opscope_tools.source.python.trees import PythonSource

PERIODS = """    every: int = 2

    @property
    def kinds(self):
        return [at % self.every == 0 for at in range(self.num_hidden_layers)]
"""


def changed(facts: ImplementationFacts, **parameters: Mapping[str, object]) -> ImplementationFacts:
    """The toy with its parameters changed, or with others beside them."""
    assert facts.settings is not None
    (own,) = facts.settings.configurations
    held = {p.name: p for p in own.hyperparameters}
    for name, fields in parameters.items():
        old = held.get(name, Hyperparameter(name=name, line=1, basis="source", value=1))
        held[name] = old.model_copy(update=dict(fields))
    settings = facts.settings.model_copy(
        update={"configurations": (own.model_copy(update={"hyperparameters": tuple(held.values())}),)}
    )
    return replace(facts, settings=settings)


@pytest.fixture
def periodic(facts: ImplementationFacts, tmp_path: Path) -> ImplementationFacts:
    """The toy whose layers are of two kinds, by a property of its configuration."""
    repository = toy.write_source(tmp_path / "src")
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(toy.CONFIGURATION + PERIODS)
    init = "class ToyForCausalLM(nn.Module):\n    def __init__(self, config):\n{}\n"
    built = "        self.layers = [(One, Other)[config.kinds[i]](config) for i in range(config.num_hidden_layers)]"
    source = toy.MODELING.replace("class ToyForCausalLM(nn.Module):\n", init.format(built))
    (tmp_path / "src" / toy.FILE).write_text(source)
    line = toy.line_of("every", toy.CONFIGURATION + PERIODS)
    told = changed(facts, every={"line": line, "reads": Reads(count=0)})
    return replace(told, reader=SourceReader([repository]))


def test_the_sizes_of_a_pass_are_those_of_its_formulas(facts: ImplementationFacts) -> None:
    idle = Variable(name="positions", meaning="no formula names it", config_key="max_position_embeddings", default=64)
    window = Variable(name="window", meaning="no formula names it", config_key="window", default=64)
    fixed = [v.model_copy(update={"kind": "fixed"} if v.name == "num_layers" else {}) for v in facts.main.variables]
    bounds = {"conditions": ("{seq_len} <= {positions}", "{seq_len} < {window}")}
    documents = [d.model_copy(update={"variables": (*fixed, idle, window), **bounds}) for d in facts.documents]
    floor = documents[0].totals.floor.model_copy(update={"read": "{positions}"})
    documents[0] = documents[0].model_copy(update={"totals": documents[0].totals.model_copy(update={"floor": floor})})
    said = findings(replace(facts, documents=tuple(documents)), [], Quotes())["3"]
    assert "from those of the call and, outside the conditions of section 3.3, from `window`. Every other" in said
    assert "`num_layers`" in said
    assert "`vocab_size`" in said
    assert "positions" not in said
    assert "which layer" not in said


def test_leads_claim_no_more_than_was_compared(facts: ImplementationFacts) -> None:
    """Not every figure has a key, and classes that hold others take more of the time than what they hold."""
    said = findings(facts, [], Quotes())
    assert "A figure with a comment `fact:KEY` in the Markdown stands under that key" in said["11"]
    inside = {
        phase: found.model_copy(
            update={
                "operators": tuple(
                    o.model_copy(update={"classes": (f"{toy.MODULE}.ToyAttention",)}) for o in found.operators
                )
            }
        )
        for phase, found in facts.estimates.items()
    }
    said = findings(replace(facts, estimates=inside), [], Quotes())
    assert said["4"].startswith(
        "Among the model's own classes that hold no other with more than one operator or module in it, "
    )


@pytest.mark.parametrize(
    ("repeat", "said"), [("1", "each run of them counted"), ("{num_layers}", "what repeats counted once")]
)
def test_the_longest_chain_says_what_of_the_pass_it_counts(facts: ImplementationFacts, repeat: str, said: str) -> None:
    graph = facts.graphs[0]
    operators = tuple(one.model_copy(update={"repeat": repeat}) for one in graph.operators)
    told = replace(facts, graphs=(graph.model_copy(update={"operators": operators}), *facts.graphs[1:]))
    assert f"operators, {said}: " in findings(told, [], Quotes())["6"]


def test_settings_that_tell_layers_apart_are_named_as_such(periodic: ImplementationFacts) -> None:
    assert layer_settings(periodic) == ["num_hidden_layers", "every"]
    every = Variable(name="every", meaning="period of layers", config_key="every", default=2)
    named = [d.model_copy(update={"variables": (*d.variables, every)}) for d in periodic.documents]
    totals = named[0].totals.model_copy(update={"flops": f"{named[0].totals.flops} + {{every}}"})
    named[0] = named[0].model_copy(update={"totals": totals})
    for told in (periodic, replace(periodic, documents=tuple(named))):  # a size of the formulas decides no less
        said = findings(told, [], Quotes())["3"]
        assert "; which layer is of which kind, `every` says. Every other" in said


def test_a_parameter_that_a_property_reads_is_not_read_nowhere(periodic: ImplementationFacts) -> None:
    at = toy.line_of("def kinds", toy.CONFIGURATION + PERIODS)
    read = f"Declared and read by the configuration's own `kinds` (`{toy.CONFIG_FILE}:{at}`): `every` ("
    assert read in configuration_note(periodic)


def test_a_parameter_that_a_configuration_makes_others_of_is_not_read_nowhere(
    periodic: ImplementationFacts, tmp_path: Path
) -> None:
    """In a method of its own or of a base class, by name as an attribute or as a string."""
    base = "class Base:\n    def settle(self):\n        self.kind = getattr(self, 'every', 1)\n\n\n"
    own = PERIODS.replace("    @property\n    def kinds", "    def __post_init__")
    text = base + toy.CONFIGURATION.replace("class ToyConfig:", "class ToyConfig(Base):") + own
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(text)
    repository = Repository(name="toyland", root=tmp_path / "src", packages=("toyland",), version="1.0")
    note = configuration_note(replace(periodic, reader=SourceReader([repository])))
    at = text.splitlines().index("    def __post_init__(self):") + 1
    read = f"read by the configuration's own `__post_init__` (`{toy.CONFIG_FILE}:{at}`), `settle` (`{toy.CONFIG_FILE}:2`): "
    assert read in note


_READS, _FIXED = "eps=config.norm_eps", "eps=1e-6"


@pytest.mark.parametrize(
    ("layer", "model", "said"),
    [
        (_FIXED, _READS, "read in 1 place, for 1 of 3 modules of `ToyNorm`"),
        (_READS, _FIXED, "read in 1 place, for 2 of 3 modules of `ToyNorm`"),
        (_READS, _READS, "read in 2 places"),
        (_FIXED, "width=config.norm_eps", "read in 1 place"),  # which the setting is not named after
    ],
)
def test_a_setting_that_some_modules_of_a_class_are_built_without_says_for_how_many_it_is(
    facts: ImplementationFacts, tmp_path: Path, layer: str, model: str, said: str
) -> None:
    """The norms of two layers and the last one."""
    source = toy.MODELING
    for name, given in (("ToyLayer", layer), ("ToyForCausalLM", model)):
        made = f"    def __init__(self, config):\n        self.norm = ToyNorm({given})\n\n"
        head = f"class {name}(nn.Module):\n"
        source = source.replace(head, f"{head}{made}")
    places = [at for at, text in enumerate(source.split("\n"), 1) if "config.norm_eps" in text]
    reads = Reads(count=len(places), first=tuple(Place(file=toy.FILE, line=at) for at in places))
    repository = toy.write_source(tmp_path)
    (tmp_path / toy.FILE).write_text(source)
    told = replace(changed(facts, norm_eps={"reads": reads}), reader=SourceReader([repository]))
    (row,) = (row for row in configuration_rows(told, Quotes()) if row[0] == "`norm_eps`")
    assert row[2].endswith(said)


@pytest.mark.parametrize(
    ("line", "shared"),
    [("    scale = config.idle", True), ("    scale = getattr(self.config, 'idle', 1)", True),
     ("    # scale = config.idle", False), ("    text = 'config.idle'", False), ("    scale = self.idle", False)],
)  # fmt: skip
def test_a_parameter_that_only_comments_and_strings_beside_the_model_name_is_read_by_no_code(
    facts: ImplementationFacts, tmp_path: Path, line: str, shared: bool
) -> None:
    repository = toy.write_source(tmp_path)
    (tmp_path / toy.LAYERS_FILE).write_text(f"{toy.LAYERS}\n\ndef scaled(self, config):\n{line}\n    return self\n")
    told = replace(changed(facts, idle={"reads": Reads(count=0)}), reader=SourceReader([repository]))
    (said,) = (part for part in configuration_note(told).split(". ") if "idle" in part)
    assert ("by code that all models share" in said) is shared
    assert ("nor in other files of which something ran" in said) is not shared


def test_a_line_is_told_with_what_its_condition_asks_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text(
        "def f(x, y):\n    if (\n        old() and y > 1\n        or x.cpu\n        and old()\n        and (x % 16 or y)\n    ):\n        return x % 2\n"
    )
    reader = SourceReader([Repository(name="a", root=tmp_path, packages=("a",), version="1")])
    assert scan.asked_beside(reader, "a/b.py", 6) == ["x.cpu", "old()"]
    assert scan.asked_beside(reader, "a/b.py", 8) == []


def test_a_tower_that_is_declared_to_take_the_whole_reads_its_part() -> None:
    text = "class Tower:\n    def __init__(self, config: Whole):\n        self.x = config.depth + config.width\n"
    sought = Reader(own={"Part"}, parents=(), paths=(), names={n: {n} for n in ("depth", "width")})
    assert config_reads(PythonSource("m.py", text), sought) == {}
    held = replace(sought, holders={"Whole": {"width"}})
    assert config_reads(PythonSource("m.py", text), held) == {"depth": [(3, False)]}


def test_a_parameter_is_told_by_the_name_that_its_line_declares(facts: ImplementationFacts) -> None:
    line = toy.line_of("num_key_value_heads", toy.CONFIGURATION)
    fields = {"line": line, "aliases": ("num_key_value_heads",), "reads": Reads(count=0)}
    note = configuration_note(changed(facts, groups=fields))
    assert f"`num_key_value_heads` (`{toy.CONFIG_FILE}:{line}`), kept as `groups` = 1" in note


def test_what_a_method_sets_is_inherited_from_its_class(facts: ImplementationFacts) -> None:
    fields = {"kind": "attribute", "class_name": "Mixin.convert", "reads": Reads(count=0)}
    assert "Inherited from `Mixin` and named nowhere" in configuration_note(changed(facts, ignored=fields))


@pytest.mark.parametrize("count", [0, 1])
def test_positions_that_nothing_reads_make_none(facts: ImplementationFacts, count: int) -> None:
    told = changed(facts, max_position_embeddings={"reads": Reads(count=count)})
    (row,) = [row for row in configuration_rows(told, Quotes()) if row[0] == "`max_seq_len`"]
    assert ("that the configuration states" in row[2]) is bool(count)
    assert ("states " in findings(told, [], Quotes())["9"]) is bool(count)
    assert ("the model's file reads nowhere" in faq(told, Quotes())[1]) is not bool(count)


def test_a_size_that_no_formula_names_and_one_that_follows_another_say_so(facts: ImplementationFacts) -> None:
    tree = facts.tree.model_copy(update={"config": {**facts.tree.config, "intermediate_size": 32}})
    main = facts.main.model_copy(update={"conditions": ("{seq_len} == {hidden_size}", "{batch_size} == 1")})
    told = {row[0]: row[2] for row in configuration_rows(replace(facts, tree=tree, documents=(main,)), Quotes())}
    assert "which no formula of this pass names" in told["`intermediate_size`"]
    assert "no formula" not in told["`hidden_size`"]
    (call,) = [text for name, text in told.items() if "`seq_len`" in name]
    assert "sequences; new tokens, which the formulas take to equal `{hidden_size}`; " in call


@pytest.mark.parametrize("count", [0, 1])
def test_an_activation_that_nothing_reads_is_no_feature(facts: ImplementationFacts, tmp_path: Path, count: int) -> None:
    repository = toy.write_source(tmp_path / "src")
    (tmp_path / "src" / toy.CONFIG_FILE).write_text(f'{toy.CONFIGURATION}    hidden_act: str = "silu"\n')
    tree = facts.tree.model_copy(update={"config": {**facts.tree.config, "hidden_act": "silu"}})
    told = changed(facts, hidden_act={"reads": Reads(count=count)})
    features = key_features(replace(told, tree=tree, reader=SourceReader([repository])), Quotes())
    assert ("`hidden_act` = silu" in " ".join(features)) is bool(count)


def test_values_outside_the_conditions_are_said_to_have_been_traced(facts: ImplementationFacts) -> None:
    main = facts.main.model_copy(update={"conditions": ("{batch_size} >= 2",)})
    outside = replace(facts, documents=(main,))
    assert constraint_lines(outside)[-1].endswith("the values of section 3.1 are outside")
    traced = replace(outside, points={"prefill": facts.point(facts.main)})
    assert constraint_lines(traced)[-1].endswith("which are outside, they give what a trace made there gave")


def test_functions_that_what_ran_calls_are_searched_with_it(facts: ImplementationFacts, tmp_path: Path) -> None:
    repository = toy.write_source(tmp_path / "src")
    asked = "\n\ndef usable(x):\n    return torch.cuda.get_device_capability(x.device) >= (8, 0)\n\n\ndef idle(x):\n    return x.is_cuda\n"
    body = "def forward(self, input_ids, past_key_values=None):\n"
    (tmp_path / "src" / toy.FILE).write_text(toy.MODELING.replace(body, f"{body}        usable(input_ids)\n") + asked)
    hardware = faq(replace(facts, reader=SourceReader([repository])), Quotes())[3]
    assert (
        "Lines of what issues operators here that test for a device: of functions beside it that it may call `return torch.cuda.get_device_capability(x.device) >= (8, 0)`"
        in hardware
    )
    assert "is_cuda" not in hardware


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("layer_idx in config.dense_layers", ["dense_layers"]),
        ("config.kinds[layer_idx] == 'full'", ["kinds"]),
        ("(layer_idx + 1) % config.step == 0", ["step"]),
        ("config.experts > 0 and (layer_idx + 1) % config.step == 0", ["step"]),
        ("2 * (layer_idx - 1) // config.step > config.first", ["first", "step"]),
        ("config.step > 1", []),
    ],
)
def test_settings_that_are_held_against_a_layers_number_are_found_however_it_is_reckoned(
    tmp_path: Path, test: str, told: list[str]
) -> None:
    source = f"class Layer:\n    def __init__(self, config, layer_idx):\n        self.wide = {test}\n"
    repository = toy.write_source(tmp_path / "src")
    (tmp_path / "src" / toy.FILE).write_text(source)
    assert sorted(scan.by_layer(SourceReader([repository]), toy.FILE, ["Layer"])) == told


def told_of(facts: ImplementationFacts, folder: Path, source: str, read: str, within: str) -> str:
    """What section 3.1 says of a parameter that this source reads on the line of `read`, within that class or function."""
    repository = toy.write_source(folder)
    (folder / toy.FILE).write_text(source)
    place = Place(file=toy.FILE, line=toy.line_of(read, source))
    told = changed(facts, every={"reads": Reads(count=1, first=(place,), within=(within,))})
    rows = configuration_rows(replace(told, reader=SourceReader([repository])), Quotes())
    (row,) = (row for row in rows if "every" in row[0])
    return " ".join(row)


@pytest.mark.parametrize(
    ("caller", "called", "said"),
    [
        ("ToyForCausalLM:__init__", "widths", "read in 1 place, where the model is built"),
        ("ToyForCausalLM:other", "widths", "read in 1 place, in `widths`, which did not run"),
        ("Other:__init__", "widths", "read in 1 place, in `widths`, which did not run"),
        ("ToyForCausalLM:__init__", "Widths", "read in 1 place, in `Widths`, which did not run"),
    ],
)
def test_what_constructors_of_what_ran_call_is_where_the_model_is_built(
    facts: ImplementationFacts, tmp_path: Path, caller: str, called: str, said: str
) -> None:
    """And what other methods call, or constructors of classes that did not run, did not run either; nor did an object that they make."""
    owner, _, method = caller.partition(":")
    head = f"class {owner}(nn.Module):\n"
    source = (
        f"{toy.MODELING}\n\nclass Other(nn.Module):\n    pass\n\n\ndef widths(config):\n    return config.every\n\n\n"
        "class Widths:\n    def __init__(self, config):\n        self.wide = config.every\n"
    )
    source = source.replace(head, f"{head}    def {method}(self, config):\n        self.made = {called}(config)\n\n")
    read = {"widths": "return config.every", "Widths": "self.wide = config.every"}[called]
    assert said in told_of(facts, tmp_path / "src", source, read, called)


def test_what_is_read_where_weights_are_set_runs_before_any_pass(facts: ImplementationFacts, tmp_path: Path) -> None:
    head = "class ToyForCausalLM(nn.Module):\n"
    method = "    def _init_weights(self, module):\n        std = self.config.every\n\n"
    source = toy.MODELING.replace(head, head + method)
    said = told_of(facts, tmp_path / "src", source, "self.config.every", "ToyForCausalLM")
    assert "read in 1 place, where weights are set before any pass" in said
