"""Kernels from elsewhere, checks and calls of attention that stand in source beside what a pass runs are not told as part of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import report_toy as toy
from opscope_schemas.analysis import CallSite, Kernel, Site, TensorInfo
from opscope_schemas.extracted_config import Check, KernelHook
from opscope_tools.report import overview
from opscope_tools.report.attributes import attributes_of
from opscope_tools.report.components import _pseudocode
from opscope_tools.report.configuration import configuration_rows, constraint_lines
from opscope_tools.report.facts import Figures, ImplementationFacts, leaves
from opscope_tools.report.kernels import kernel_rows
from opscope_tools.report.overview import execution_lines
from opscope_tools.report.parallel import Split, communications, overlap
from opscope_tools.report.performance import bottlenecks
from opscope_tools.report.pseudocode import Call, pseudocode
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.reference import faq
from opscope_tools.report.scan import unbuilt
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.story import _copied, story
from opscope_tools.settings.hooks import kernel_hooks
from opscope_tools.source.python.trees import PythonSource

FUNCTIONS = "\n\ndef rotate(x):\n    return x\n\n\ndef scan(x):\n    return x\n"


def read(facts: ImplementationFacts, folder: Path, source: str) -> ImplementationFacts:
    """The toy with another source."""
    repository = toy.write_source(folder)
    (folder / toy.FILE).write_text(source)
    return replace(facts, reader=SourceReader([repository]))


@pytest.mark.parametrize(
    ("within", "expression", "told"),
    [
        ("ToyNorm", "use_kernel_forward_from_hub('RMSNorm')", True),
        ("", "lazy_load_kernel('scan')", True),
        ("rotate", "use_kernel_func_from_hub('rotate')", False),
        ("ToyAttention", "use_kernelized_func(rotate)", False),
        ("ToyAttention", "use_kernelized_func([rotate, scan])", False),
        ("ToyAttention", "use_kernelized_func([rotate, ToyNorm])", False),
    ],
)
def test_a_kernel_is_told_for_what_ran(
    facts: ImplementationFacts, tmp_path: Path, within: str, expression: str, told: bool
) -> None:
    assert facts.settings is not None
    hook = KernelHook(name="swapped", expression=expression, within=within, file=toy.FILE, line=1)
    settings = facts.settings.model_copy(update={"kernel_hooks": (hook,)})
    anew = read(facts, tmp_path / "src", toy.MODELING + FUNCTIONS)
    assert ("`swapped`" in {row[0] for row in kernel_rows(replace(anew, settings=settings))}) is told


def test_what_ranks_exchange_is_sought_in_the_files_of_all_that_ran(facts: ImplementationFacts, tmp_path: Path) -> None:
    anew = read(facts, tmp_path / "src", toy.MODELING)
    sent = "        dist.all_reduce(input, async_op=True)\n        return F.linear"
    layers = toy.LAYERS.replace("        return F.linear", sent)
    (tmp_path / "src" / toy.LAYERS_FILE).write_text(layers)
    split, at = Split.of(anew), f"{toy.LAYERS_FILE}:{toy.line_of('all_reduce', layers)}"
    assert at in {f"{each.file}:{each.line}" for each in communications(split)}
    assert f"`async_op` is used (`{at}`)." in overlap(split)


@pytest.mark.parametrize(
    ("decorator", "swaps"),
    [
        ('use_kernel_forward_from_hub("Linear")', True), ("use_experts_implementation", True),
        ("torch._jit_internal._overload_method", False), ("torch.jit.ignore", False),
        ("torch.compiler.disable", False), ("_attn_implementation.setter", False), ("retry(kernel_size=3)", False),
    ],
)  # fmt: skip
def test_a_decorator_swaps_a_kernel_where_its_own_name_says_so(
    facts: ImplementationFacts, tmp_path: Path, decorator: str, swaps: bool
) -> None:
    anew = read(facts, tmp_path / "src", toy.MODELING)
    layers = toy.LAYERS.replace("class Linear", f"@{decorator}\nclass Linear")
    (tmp_path / "src" / toy.LAYERS_FILE).write_text(layers)
    assert ("Linear" in {hit.name for hit in overview.swappable(anew)}) is swaps
    hooks = kernel_hooks(PythonSource(toy.LAYERS_FILE, layers))  # what swaps experts takes none from elsewhere
    assert bool(hooks) is (swaps and "kernel" in decorator)


def test_kernels_from_elsewhere_are_sought_in_the_files_of_all_that_ran(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    anew = read(facts, tmp_path / "src", toy.MODELING)
    layers = toy.LAYERS.replace("class Linear", '@use_kernel_forward_from_hub("Linear")\nclass Linear')
    (tmp_path / "src" / toy.LAYERS_FILE).write_text(layers)
    line = toy.line_of("@use_kernel", layers)
    said = " ".join(execution_lines(anew))
    assert re.search(rf"`Linear` by `@use_kernel[^`]*` \(`{toy.LAYERS_FILE}:{line}`\)", said)
    assert "`Linear`" in {row[0] for row in kernel_rows(anew)}


HELPER = "toyland/integrations/grouped.py"


def with_helper(facts: ImplementationFacts, folder: Path, text: str, line: int) -> ImplementationFacts:
    """The toy, whose first module issues its operators through `grouped` of a file beside its modules; 0: it does not."""
    anew = read(facts, folder, toy.MODELING)
    (folder / HELPER).parent.mkdir()
    (folder / HELPER).write_text(text)
    first, *rest = facts.main.kernels
    via = (CallSite(function="grouped", file=HELPER, line=line),) if line else ()
    inner = tuple(each.model_copy(update={"via": via}) for each in first.kernels or ())
    main = facts.main.model_copy(update={"kernels": (first.model_copy(update={"kernels": inner}), *rest)})
    return replace(anew, documents=(main, *facts.documents[1:]))


@pytest.mark.parametrize("ran", [True, False])
def test_what_waits_or_brings_kernels_is_sought_in_functions_of_the_package_that_ran(
    facts: ImplementationFacts, tmp_path: Path, ran: bool
) -> None:
    """As those of an integration, which no module stands beside."""
    text = "def grouped(x, offsets):\n    sizes = offsets.tolist()\n    return load_inline(x, sizes)\n\n\ndef other(x):\n    return x.cpu()\n"
    changed = with_helper(facts, tmp_path / "src", text, 3 * ran)
    waits, brings = bottlenecks(changed, Quotes())[-1], " ".join(execution_lines(changed))
    assert (f"`sizes = offsets.tolist()` (`{HELPER}:2`)" in waits) is ran
    assert (f"`load_inline` is used (`{HELPER}:3`)." in brings) is ran
    assert ".cpu()" not in waits


@pytest.mark.parametrize(("line", "sure"), [(4, True), (6, False)])
def test_what_waits_in_a_branch_in_which_nothing_ran_is_said_to_stand_behind_a_condition(
    facts: ImplementationFacts, tmp_path: Path, line: int, sure: bool
) -> None:
    text = "def grouped(x):\n    if tracing():\n        x = x.item()\n        return x + 1\n    else:\n        return x + 2\n"
    waits = bottlenecks(with_helper(facts, tmp_path / "src", text, line), Quotes())[-1]
    said, behind = f"`x = x.item()` (`{HELPER}:3`)", "of which no operator tells whether these passes meet them: "
    assert waits.endswith(f"{behind}{said}") is not sure
    assert waits.startswith(f"**Synchronization:** {said}") is sure


def test_what_waits_in_a_method_called_as_a_function_that_ran_is_not_told_as_part_of_the_passes(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    """Functions are known by their files and classes; what the model calls without an operator of these passes stands apart."""
    text = "def grouped(x):\n    return x + x.tolist()\n"
    anew = with_helper(facts, tmp_path / "src", text, 2)
    end = "return self.lm_head(hidden_states)\n"
    methods = (
        "\n    def grouped(self, x):\n        return x.item()\n\n    def unasked(self, x):\n        return x.cpu()\n"
    )
    source = toy.MODELING.replace(end, f"{end[:-1]} if past_key_values else self.grouped(input_ids)\n{methods}")
    (tmp_path / "src" / toy.FILE).write_text(source)
    waits = bottlenecks(anew, Quotes())[-1]
    at = next(n for n, line in enumerate(source.split("\n"), 1) if "x.item()" in line)
    assert waits == (
        f"**Synchronization:** `return x + x.tolist()` (`{HELPER}:2`); in functions that what ran may call, through which no operator of "
        f"these passes came: `return x.item()` (`{toy.FILE}:{at}`)"
    )


def test_a_size_that_several_classes_make_is_cited_where_the_class_that_reckons_with_it_makes_it(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    tower = "class ToyTower(nn.Module):\n    def __init__(self):\n        self.head_dim = 7\n\n\n"
    made = "    def __init__(self):\n        self.head_dim = self.hidden_size // self.num_heads\n\n"
    source = toy.MODELING.replace("class ToyNorm", f"{tower}class ToyNorm").replace(
        "class ToyAttention(nn.Module):\n", f"class ToyAttention(nn.Module):\n{made}"
    )
    anew = read(facts, tmp_path / "src", source)
    shape = TensorInfo(name="q", shape=("{batch_size}", "{num_heads}", "{seq_len}", "{head_dim}"), dtype="bfloat16")
    text = facts.main.kernels[1]
    inner = tuple(
        k.model_copy(update={"inputs": (shape,)}) if k.operator else k for k in (text.kernels or ())[1].kernels or ()
    )
    attention = (text.kernels or ())[1].model_copy(update={"kernels": inner})
    beside = toy.call(f"{toy.MODULE}.ToyTower", "tower", "= layer(", toy._norm(""))
    main = facts.main.model_copy(update={"kernels": (facts.main.kernels[0], beside, attention)})
    rows = configuration_rows(replace(anew, documents=(main, *facts.documents[1:])), Quotes())
    (row,) = [row for row in rows if row[0] == "`head_dim`"]
    at = next(n for n, line in enumerate(source.split("\n"), 1) if "self.hidden_size //" in line)
    assert f"`self.head_dim = self.hidden_size // self.num_heads` (`{toy.FILE}:{at}`)" in row[2]


def test_a_forward_that_another_function_ran_in_place_of_is_said_not_to_have_run(facts: ImplementationFacts) -> None:
    norm = facts.main.kernels[2]
    at = toy.line_of("F.linear", toy.LAYERS)
    moved = tuple(k.model_copy(update={"file": toy.LAYERS_FILE, "line": at}) for k in norm.kernels or ())
    kernels = (facts.main.kernels[0], norm.model_copy(update={"kernels": moved}))
    main = facts.main.model_copy(update={"kernels": kernels})
    (said,) = [line for line in execution_lines(replace(facts, documents=(main,))) if "In place of" in line]
    assert said.startswith("In place of the forward of `ToyNorm` `Linear.forward` (")
    assert (
        f"put there by `@use_kernel_forward_from_hub('RMSNorm')` (`{toy.FILE}:{toy.line_of('@use_kernel')}`)." in said
    )
    assert not [line for line in execution_lines(facts) if "In place of" in line]


BRANCHES = """class ToyForCausalLM:
    def forward(self, x):
        if self.plain:
            y = x + 1
        elif x.dtype == torch.bool:
            y = x * 2
            assert y.dtype == torch.bool
        else:
            raise ValueError("no such thing")
        if self.slopes:
            z = torch.where(x, y, x)
            assert z.dtype == torch.bool
        if self.named:
            assert x.dtype == torch.bool
        if x.dtype == torch.half:
            raise ValueError("no halves")
"""


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (5, False),  # the other arm of line 4, which ran
        (7, False),
        (9, False),
        (12, False),  # torch.where would have run
        (14, True),  # nothing says whether it ran
        (16, True),
    ],
)
def test_a_check_in_a_branch_that_was_not_taken_is_not_of_the_pass(
    facts: ImplementationFacts, tmp_path: Path, line: int, told: bool
) -> None:
    first = facts.main.kernels[0].model_copy(update={"line": 4, "kernels": None})
    main = facts.main.model_copy(update={"kernels": (first,)})
    check = Check(kind="dtype", condition="x", within="ToyForCausalLM.forward", file=toy.FILE, line=line)
    anew = replace(read(facts, tmp_path / "src", BRANCHES), documents=(main,), checks=(check,), settings=None)
    lines = [text for text in constraint_lines(anew) if f"{toy.FILE}:{line}`" in text]
    assert [text.startswith("Precision: ") for text in lines] == [told]


def test_attention_is_chosen_where_source_chooses_and_runs_where_it_is_called(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    at = toy.line_of("scaled_dot_product_attention(")
    source = toy.MODELING.replace("        if self.training:", '        if self.config._attn_implementation == "sdpa":')
    source = source.replace('logger.debug("attending")', "scaled_dot_product_attention(query, key, value)")
    said = " ".join(execution_lines(read(facts, tmp_path / "src", source)))
    tested = toy.line_of("if self.training")
    assert f"is chosen at run time by `_attn_implementation` (`{toy.FILE}:{tested}`)." in said
    assert f"Attention runs through `scaled_dot_product_attention` (`{toy.FILE}:{at}`)." in said
    assert said.count("Attention runs through") == 1


def _leaves(kernels: Sequence[Kernel], within: str = "") -> Iterator[tuple[str, Kernel]]:
    for kernel in kernels:
        if kernel.kernels is None:
            yield within, kernel
        yield from _leaves(kernel.kernels or (), ".".join(filter(None, (within, kernel.attribute))))


def test_an_operator_is_bound_module_by_module(facts: ImplementationFacts) -> None:
    """By hand at 6 FLOPs per byte: the head's product takes 102,400 to compute, the layers' 79,872 to move."""
    computing, moving, _ = bottlenecks(replace(facts, ridge=6), Quotes())
    assert "prefill: aten.mm.default of `lm_head` (6.64" in computing
    before = moving.partition("decode")[0]
    named = re.findall(r"aten.mm.default of `([^`]+)`", before)
    moved = {place: Figures.sum([k], facts.point(facts.main)).bytes for place, k in _leaves(facts.main.kernels)}
    assert len(named) > 1
    assert named == sorted(named, key=lambda place: -moved[place])
    assert "lm_head" not in before

    def at_one_place(kernels: Sequence[Kernel]) -> tuple[Kernel, ...]:
        inner = ((k, at_one_place(k.kernels or ()) or None) for k in kernels)
        named = ((k, held, "lm_head" if k.class_name.endswith("Linear") else "") for k, held in inner)
        return tuple(k.model_copy(update={"attribute": name, "kernels": held}) for k, held, name in named)

    both = at_one_place(facts.main.kernels)
    alike = replace(facts, documents=(facts.main.model_copy(update={"kernels": both}), *facts.documents[1:]), ridge=6)
    assert "aten.mm.default of `lm_head" in bottlenecks(alike, Quotes())[0]  # one place on both sides is two facts
    assert "aten.mm.default (" in bottlenecks(replace(facts, ridge=1), Quotes())[0]  # where all are alike, once


def test_where_the_passes_asked_a_tensor_for_its_values_python_waits(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    """At the line of the forward's own file, through a helper of another one; source that says the same is not told twice."""
    source = toy.MODELING.replace("if self.training:", "if attention_mask.all().item():")
    tested = toy.line_of("if attention_mask", source)
    anew = read(facts, tmp_path / "src", source)
    (tmp_path / "src" / HELPER).parent.mkdir()
    (tmp_path / "src" / HELPER).write_text("def checked(cond):\n    assert cond\n")
    own = Site(file=toy.FILE, line=tested)
    helped = Site(file=toy.FILE, line=tested + 1, via=(CallSite(function="checked", file=HELPER, line=2),))

    def told(*sites: Site) -> str:
        main = facts.main.model_copy(update={"reads": sites})
        return bottlenecks(replace(anew, documents=(main, *facts.documents[1:])), Quotes())[-1]

    line = anew.reader.line(toy.FILE, tested + 1).strip()
    assert told(own, helped, own) == (
        f"**Synchronization:** `if attention_mask.all().item():` (`{toy.FILE}:{tested}`), `{line}` (`{toy.FILE}:{tested + 1}`) through "
        f"`assert cond` (`{HELPER}:2`)"
    )


MASKED = """class ToyForCausalLM:
    def forward(self, input_ids, attention_mask: Tensor | None = None, other_mask: Tensor | None = None):
        if self.config.is_decoder:
            attention_mask = create_causal_mask(attention_mask)
        else:
            attention_mask = create_bidirectional_mask(attention_mask)
        if other_mask is not None:
            other_mask = create_other_mask(other_mask)
        if self.config.is_encoder_decoder:
            past_key_values = PairCache()
        past_key_values = (
            PairCache()
            if self.config.is_encoder_decoder
            else ToyCache()
        )
        past_key_values.update(1)
"""


def test_masks_and_caches_are_those_of_branches_that_the_configuration_leaves(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    config = {**facts.tree.config, "is_decoder": False, "is_encoder_decoder": False}
    anew = replace(
        read(facts, tmp_path / "src", MASKED),
        tree=facts.tree.model_copy(update={"config": config}),
        documents=(facts.main.model_copy(update={"forward_line": 3}), *facts.documents[1:]),
    )
    lengths, *_, cache = faq(anew, Quotes())
    assert lengths.endswith(
        f"masked through `create_bidirectional_mask` (`{toy.FILE}:6`): no formula here has that work."
    )
    assert f"it is created as `ToyCache` (`{toy.FILE}:14`)." in cache
    without = tuple(graph.model_copy(update={"cache": None}) for graph in facts.graphs)
    assert faq(replace(anew, graphs=without), Quotes())[-1].endswith("keeps none in this configuration.")


def test_a_mask_of_the_caller_is_told_where_it_is_changed(facts: ImplementationFacts, tmp_path: Path) -> None:
    """Not where a list of parameters or a condition names it."""
    source = MASKED.replace("create_causal_mask(", "(").replace("create_bidirectional_mask(", "1.0 - (")
    source = source.replace("create_other_mask(", "(").replace("self.config.is_decoder", "attention_mask is None")
    anew = read(facts, tmp_path / "src", source)
    assert faq(anew, Quotes())[0].endswith(
        f"masked through `attention_mask` (`{toy.FILE}:6`): no formula here has that work."
    )


CHOSEN_ON_ONE_LINE = """class ToyForCausalLM:
    def forward(self, input_ids):
        build = create_causal_mask if self.config.window is None else create_sliding_window_causal_mask
        mask = build(config=self.config)
        kept = FullCache() if self.config.window is None else WindowCache()
        kept.update(1)
"""
CHOSEN_BY_STATEMENTS = """class ToyForCausalLM:
    def forward(self, input_ids):
        if self.config.window is None:
            build = create_causal_mask
        else:
            build = create_bidirectional_mask
        mask = build(config=self.config)
"""


@pytest.mark.parametrize(("window", "mask", "cache"), [
    (None, "create_causal_mask", "FullCache"), (4, "create_sliding_window_causal_mask", "WindowCache"),
])  # fmt: skip
def test_a_function_that_is_chosen_on_one_line_is_the_one_that_the_configuration_takes(
    facts: ImplementationFacts, tmp_path: Path, window: int | None, mask: str, cache: str
) -> None:
    config = {**facts.tree.config, "window": window, "sliding_window": window}
    tree = facts.tree.model_copy(update={"config": config})
    lengths, *_, kept = faq(replace(read(facts, tmp_path / "src", CHOSEN_ON_ONE_LINE), tree=tree), Quotes())
    assert lengths.endswith(f"masked through `{mask}` (`{toy.FILE}:3`): no formula here has that work.")
    assert f"it is created as `{cache}` (`{toy.FILE}:5`)." in kept
    by_statements = faq(replace(read(facts, tmp_path / "then", CHOSEN_BY_STATEMENTS), tree=tree), Quotes())[0]
    taken = "`create_causal_mask` (`{}:4`)" if window is None else "`create_bidirectional_mask` (`{}:6`)"
    assert by_statements.endswith(f"masked through {taken.format(toy.FILE)}: no formula here has that work.")


def test_what_a_class_declares_it_cannot_is_said_with_what_it_can(facts: ImplementationFacts, tmp_path: Path) -> None:
    can, cannot = "_supports_sdpa = True", "_supports_flash_attn = False"
    anew = read(facts, tmp_path / "src", toy.MODELING.replace(can, f"{can}\n    {cannot}"))
    told = " ".join(execution_lines(anew))
    assert "`_supports_sdpa` (" in told
    assert f"`{cannot}` (" in told


_BASE = """

class ToyBase:
    def plan(self, dtype):
        if self._keep_in_fp32_modules is not None and dtype {}:
            return self._keep_in_fp32_modules
        if self.other and dtype == torch.float64:
            return None
"""


@pytest.mark.parametrize(
    ("tested", "said"),
    [
        ("== torch.float16", "which does nothing in bfloat16: it holds in float16 alone"),
        ("in (torch.float16, torch.bfloat16)", "which holds in bfloat16 and float16 alone"),
        ("is not None", ""),
    ],
)
def test_a_flag_that_acts_in_some_dtypes_says_whether_it_does_in_the_one_that_is_traced(
    facts: ImplementationFacts, tmp_path: Path, tested: str, said: str
) -> None:
    """By the test of a base class; the test of another flag says nothing of it."""
    source = toy.MODELING.replace("class ToyForCausalLM(nn.Module):", "class ToyForCausalLM(ToyBase):")
    source = source.replace("_supports_sdpa = True", '_keep_in_fp32_modules = ["norm"]') + _BASE.format(tested)
    told = " ".join(execution_lines(read(facts, tmp_path / "src", source)))
    at = toy.line_of("if self._keep_in_fp32", source)
    assert facts.main.dtype == "bfloat16"
    assert f"`_keep_in_fp32_modules` (`{toy.FILE}:{toy.line_of('_keep_in_fp32_modules = [', source)}`" in told
    assert (f", {said}, `{toy.FILE}:{at}`)" in told) if said else "alone" not in told


HYBRID = """

class ToyConv(nn.Module):
    def forward(self, x):
        return x


class ToyOptions:
    def __init__(self):
        pass


class ToyMixed(nn.Module):
    def __init__(self, config):
        if config.kind == "attention":
            self.mixer = ToyAttention(config)
        else:
            self.mixer = ToyConv()
            self.options = ToyOptions()
"""


@pytest.mark.parametrize(
    ("built", "told"),
    [({"ToyMixed", "ToyAttention"}, ["ToyConv"]), ({"ToyMixed", "ToyAttention", "ToyConv"}, []), ({"ToyAttention"}, []),
     ({"ToyMixed"}, ["ToyAttention", "ToyConv"])],
)  # fmt: skip
def test_classes_that_another_configuration_builds_are_told_with_their_test(
    facts: ImplementationFacts, tmp_path: Path, built: set[str], told: list[str]
) -> None:
    """Only what has a forward, in constructors of what is built, and with the side of the test on which it stands."""
    anew = read(facts, tmp_path / "src", toy.MODELING + HYBRID)
    found = unbuilt(anew.reader, toy.FILE, dict.fromkeys(built, ()))
    assert [one.made.name for one in found] == told
    for one in found:
        assert f"{one.made.name}(" in anew.reader.line(toy.FILE, one.made.line)
        assert f"class {one.made.name}" in anew.reader.line(toy.FILE, one.defined)
        assert one.made.text == (
            "not (config.kind == 'attention')" if one.made.name == "ToyConv" else "config.kind == 'attention'"
        )


def test_the_story_names_what_this_configuration_does_not_build(facts: ImplementationFacts, tmp_path: Path) -> None:
    mixed = facts.tree.tree.model_copy(update={"class_name": f"{toy.MODULE}.ToyMixed", "children": (facts.tree.tree,)})
    anew = replace(
        read(facts, tmp_path / "src", toy.MODELING + HYBRID), tree=facts.tree.model_copy(update={"tree": mixed})
    )
    text = toy.unmarked(" ".join(story(anew, Quotes())))
    assert "This configuration builds no `ToyConv`" in text
    said = text[text.index("This configuration builds no") :].partition("'`")[0]
    placed = re.findall(r"`([^`]+)` \(`([^`:]+):(\d+)`\)", said)
    # what a place stands behind is written there, and a test is not
    assert [name for name, *_ in placed] == ["ToyConv"]
    assert all(name in anew.reader.line(path, int(line)) for name, path, line in placed)
    assert "This configuration builds no" not in toy.unmarked(" ".join(story(facts, Quotes())))


@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 11, 16, 97])
def test_a_width_that_no_weight_has_is_not_said_to_be_a_layers(facts: ImplementationFacts, size: int) -> None:
    config = {**facts.tree.config, "intermediate_size": size}
    told = {
        row[0]: row[2]
        for row in configuration_rows(replace(facts, tree=facts.tree.model_copy(update={"config": config})), Quotes())
    }
    pending, sides = [facts.tree.tree], set[int]()
    while pending:
        node = pending.pop()
        sides |= {side for shape in node.weights.values() for side in shape}
        pending += node.children
    assert ("no weight is so wide" in told["`intermediate_size`"]) != any(side % size == 0 for side in sides)


def test_a_decode_that_generation_runs_otherwise_is_said_to_be_the_forwards(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    """Only of a decode with grouped products, and where the source of generation swaps them."""

    def told(operator: str, source: str) -> str:
        folder = tmp_path / operator / str(len(source))
        repository = toy.write_source(folder)
        (folder / "transformers/generation").mkdir(parents=True)
        (folder / "transformers/generation/utils.py").write_text(source)
        documents = tuple(
            d.model_copy(
                update={"per_operator": tuple(g.model_copy(update={"name": operator}) for g in d.per_operator)}
            )
            for d in facts.documents
        )
        packages = (*repository.packages, "transformers")
        reader = SourceReader([repository.model_copy(update={"packages": packages})])
        return toy.unmarked(" ".join(story(replace(facts, documents=documents, reader=reader), Quotes())))

    swaps = "class Mixin:\n    def _optimize_model_for_decode(self):\n        pass\n"
    assert "`transformers/generation/utils.py:2`): more bytes are written and read again" in told(
        "aten._grouped_mm", swaps
    )
    assert "Decode is the forward as it is called" not in told("aten.mm", swaps)
    assert "Decode is the forward as it is called" not in told("aten._grouped_mm", "x = 1\n")


def test_copies_of_experts_weights_have_their_bytes(facts: ImplementationFacts) -> None:
    """Of each row, all of one expert's matrix; nothing is said of sizes that data decides."""
    decode = facts.documents[-1]
    leaf = next(kernel for _, kernel in leaves(decode))
    rows, weight = (TensorInfo(name="", shape=shape, dtype="bfloat16") for shape in (("6", "30"), ("16", "30", "50")))
    product = leaf.model_copy(
        update={"operator": "aten._grouped_mm", "inputs": (rows, weight), "repeat": "4", "kernels": None}
    )
    assert _copied(facts, decode.model_copy(update={"kernels": (product,)})) == "72 kB more are"  # 4 * 6 * 30 * 50 * 2
    unknown = product.model_copy(update={"inputs": (rows.model_copy(update={"shape": ("?", "30")}), weight)})
    assert _copied(facts, decode.model_copy(update={"kernels": (unknown,)})) == "more bytes are"


@pytest.mark.parametrize("handed", ["", "@use_kernelized_func(turn)\n", "@use_kernelized_func([turn, other])\n"])
def test_a_function_of_a_hub_is_told_where_a_module_hands_it_over(
    facts: ImplementationFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, handed: str
) -> None:
    source = toy.MODELING.replace("class ToyAttention", f"{handed}class ToyAttention")
    source += '\n\n@use_kernel_forward_from_hub("turn")\ndef turn(x):\n    return x\n'
    anew = read(facts, tmp_path / "src", source)
    ran = frozenset({"turn", "ToyAttention", "ToyNorm"})
    monkeypatch.setattr(overview, "ran_in", lambda _: {toy.FILE: ran})
    monkeypatch.setattr(overview, "scopes", lambda _: ran)
    assert ("turn" in {hit.name for hit in overview.swappable(anew)}) is bool(handed)
    assert "ToyNorm" in {hit.name for hit in overview.swappable(anew)}
    assert anew.settings is not None
    hook = KernelHook(
        name="turned", expression="use_kernel_forward_from_hub('turn')", within="turn", file=toy.FILE, line=1
    )
    settings = anew.settings.model_copy(update={"kernel_hooks": (hook,)})
    assert ("turned" in {one.name for one in overview.hooks_that_ran(replace(anew, settings=settings))}) is bool(handed)


def test_a_module_that_this_configuration_builds_nowhere_is_none_and_its_branch_is_left_out(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    made = "        if config.wide:\n            self.inner = Inner()\n        else:\n            self.inner = None\n"
    last = "        return residual + hidden_states\n"
    asked = "        if self.inner is not None:\n            residual = self.inner(residual)\n"
    source = toy.MODELING.replace(last, f"{asked}{last}\n    def __init__(self, config):\n{made}")
    anew = read(facts, tmp_path / "src", source)
    layer = next(one.class_name for one in facts.modules if one.class_name.endswith("ToyLayer"))
    assert attributes_of(anew, layer, {})["self.inner"] is None
    module = next(one for one in anew.modules if one.class_name == layer)
    assert "inner" not in _pseudocode(anew, module)
    of_tensors = read(facts, tmp_path / "other", source.replace("Inner()", "torch.zeros(1)"))
    assert "self.inner" not in attributes_of(of_tensors, layer, {})


def test_a_cache_that_no_pass_keeps_is_told_as_none(facts: ImplementationFacts) -> None:
    without = replace(facts, graphs=tuple(graph.model_copy(update={"cache": None}) for graph in facts.graphs))
    attention = next(one for one in facts.modules if one.class_name.endswith("ToyAttention"))
    assert "past_key_values.update" in _pseudocode(facts, attention)
    listing = _pseudocode(without, attention)
    assert "past_key_values.update" not in listing
    assert "past_key_values" in listing.partition("None here: ")[2].partition('"""')[0]


def test_a_name_that_was_set_to_false_decides_what_follows() -> None:
    source = "def forward(self, x, keep=None):\n    keep = False\n    if keep and x is not None:\n        x = x + 1\n    return x\n"
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    assert "x + 1" not in pseudocode(function, "f", ["note"], Call(given=["x"]))
    (function,) = ast.parse(source.replace("    if", "    keep = len(x)\n    if")).body
    assert isinstance(function, ast.FunctionDef)
    assert "x + 1" in pseudocode(function, "f", ["note"], Call(given=["x"]))
