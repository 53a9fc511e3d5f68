"""What a report says equals the documents it is made from; its pseudocode is Python, its diagrams close."""

from __future__ import annotations

import ast
import inspect
import json
import random
import re
import symtable
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import report_toy as toy
import transformers
from opscope_prompts.templates import render_template
from opscope_schemas.analysis import CallSite
from opscope_schemas.dataflow import PeakPoint
from opscope_schemas.errors import UnknownNameError, ValuesError
from opscope_schemas.formula import evaluate
from opscope_schemas.units import amount, plain_bytes
from opscope_tools.report.checks_source import pointer_problems
from opscope_tools.report.components import _pseudocode
from opscope_tools.report.facts import ImplementationFacts, bind, role_of
from opscope_tools.report.markdown import Page
from opscope_tools.report.outline import SECTIONS, TABLES, anchor, section_named
from opscope_tools.report.pseudocode import Call, pseudocode
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.render import Report, render
from opscope_tools.report.sources import SourceReader

PREFILL = {
    "batch_size": 1, "seq_len": 64, "cache_len": 0, "a_bytes": 2, "w_bytes": 2, "hidden_size": 8, "num_layers": 2,
    "num_heads": 4, "num_kv_heads": 4, "vocab_size": 100,
}  # fmt: skip
DECODE = {**PREFILL, "seq_len": 1, "cache_len": 64}


@pytest.mark.parametrize(("phase", "values"), [("prefill", PREFILL), ("decode", DECODE)])
def test_totals_in_the_report_are_the_documents_formulas_at_the_stated_point(
    phase: str, values: dict[str, int], rendered: Callable[..., Report]
) -> None:
    report = rendered()
    totals = toy.model_document("prefill" if phase == "prefill" else "decode").totals
    flops = evaluate(totals.flops, values)
    moved = evaluate(totals.memory_access.read, values) + evaluate(totals.memory_access.write, values)
    assert report.facts.values[f"{phase}.flops"] == flops
    assert f"{flops:,}<!-- fact:{phase}.flops -->" in report.text
    assert f"{moved:,}<!-- fact:{phase}.bytes -->" in report.text


def test_matrix_products_of_the_toy_are_what_hand_arithmetic_gives(rendered: Callable[..., Report]) -> None:
    # per layer 2*64*8*24 (qkv) + 4*64*64*8 (attention) + 2*64*8*8 (output), twice; head 2*64*8*100
    by_hand = 2 * (2 * 64 * 8 * 24 + 4 * 64 * 64 * 8 + 2 * 64 * 8 * 8) + 2 * 64 * 8 * 100
    assert rendered().facts.values["prefill.matmul_flops"] == by_hand == 430_080


def test_one_call_of_a_repeated_class_costs_its_share_of_one_layer(rendered: Callable[..., Report]) -> None:
    one_call = 2 * 64 * 8 * 24 + 4 * 64 * 64 * 8 + 2 * 64 * 8 * 8
    values = rendered().facts.values
    assert values["module.toyland.modeling_toy.ToyAttention.prefill.flops"] == 2 * one_call  # of two layers
    attention = rendered().text.partition(": ToyAttention\n")[2].partition("\n### ")[0]
    assert f" moved, {amount(one_call, 'FLOP')} computed at the values" in attention


def test_an_interface_shows_the_weights_and_tensors_of_the_call_whose_costs_it_stands_beside(
    rendered: Callable[..., Report],
) -> None:
    linear = rendered().text.partition("\nLinear, called as lm_head: ")[2].partition("\n")[0]
    assert linear.endswith("PARAMS: - weight: [100, 8] - number of weights: 800")
    listing = rendered().text.partition("def Linear(input):")[2].partition("```")[0]
    assert f" moved, {amount(2 * 64 * 8 * 100, 'FLOP')} computed at the values" in listing
    layer = rendered().text.partition(": ToyLayer\n")[2].partition("\n### ")[0]
    assert "number of weights: 264\n" in layer  # 528 in two layers


def test_cache_growth_per_token_is_two_rows_per_layer(rendered: Callable[..., Report]) -> None:
    assert rendered().facts.values["decode.cache_bytes_per_token"] == 2 * 2 * 8 * 2  # k and v, layers, width, bytes


def test_costs_by_class_add_up_to_the_total(rendered: Callable[..., Report]) -> None:
    values = rendered().facts.values
    for kind in ("flops", "matmul_flops", "bytes"):
        parts = [v for key, v in values.items() if re.fullmatch(rf"prefill\.class\..*\.{kind}", key)]
        assert len(parts) == 5
        assert sum(parts) == values[f"prefill.{kind}"]


def test_every_heading_and_table_head_of_the_outline_stands_in_order(rendered: Callable[..., Report]) -> None:
    text = rendered().text
    at = [text.index(f"\n{section.heading}\n") for section in SECTIONS]
    assert at == sorted(at)
    for head in TABLES.values():
        assert f"\n| {' | '.join(head)} |\n" in text


def test_pseudocode_of_every_component_is_python_whose_pointers_lie_in_its_forward(
    rendered: Callable[..., Report],
) -> None:
    fences = ["\n".join(f.lines) for f in Page(rendered().text).fences if f.language == "python"]
    functions = [(function, fence) for fence in fences for function in ast.parse(fence).body]
    listings = [ast.get_source_segment(fence, function) or "" for function, fence in functions]
    assert len(listings) == 6
    for function, _ in functions:
        assert isinstance(function, ast.FunctionDef)
        assert "Tiling:" in (ast.get_docstring(function) or "")
        assert "Memory:" in (ast.get_docstring(function) or "")
    attention = next(listing for listing in listings if listing.startswith("def ToyAttention("))
    assert f", from {toy.FILE}:{toy.line_of('def forward(self, hidden_states: torch.Tensor')}." in attention
    assert f"# :{toy.line_of('qkv = self.qkv_proj')} " in attention
    assert "raise" not in attention
    assert "logger" not in attention
    assert "dropout" not in attention  # training only


def test_pseudocode_takes_the_inference_branch_of_an_if_on_training() -> None:
    source = (
        "def forward(self, x):\n    if not self.training:\n        y = x\n    else:\n        y = drop(x)\n    return y"
    )
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    text = pseudocode(function, "Drop", ["Nothing."], Call())
    assert "y = x  # :3" in text
    assert "drop" not in text


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        ("mask = mask if not self.cross else other\nreturn self.run(x, mask)", ["x", "mask", "other"]),
        ("mask = None\nreturn self.run(x, mask=mask)", ["x"]), ("return Held(x, mask=mask)", ["x"]), ("return run(x, mask=mask)", ["x", "mask"]), ("return _run(x, mask=mask)", ["x", "mask"]), ("return [mask for mask in x]", ["x"]), ("mask += x\nreturn mask", ["x", "mask"]),
    ],
)  # fmt: skip
def test_a_listing_takes_what_it_reads_before_it_sets_it(body: str, parameters: list[str]) -> None:
    source = (
        "def forward(self, x: Tensor, mask: Tensor | None = None, other: Tensor | None = None):\n"
        + textwrap.indent(body, "    ")
    )
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    listing = ast.parse(pseudocode(function, "Drop", ["Nothing."], Call(given=["x"]))).body[0]
    assert isinstance(listing, ast.FunctionDef)
    assert [argument.arg for argument in listing.args.args] == parameters
    nothing = ". None here: mask, other"  # also those that the listing does not take
    assert (ast.get_docstring(listing) or "").endswith(nothing)


def test_no_listing_of_a_forward_reads_a_parameter_that_it_does_not_take() -> None:
    draw, seen = random.Random(7), 0
    for path in sorted(Path(transformers.__file__).parent.glob("models/*/modeling_*.py"))[::15]:
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name == "forward":
                arguments = [a.arg for a in (*function.args.args, *function.args.kwonlyargs)][1:]
                given = [name for name in arguments if draw.random() < 0.5]
                listing = pseudocode(function, "Listing", ["Nothing."], Call(given=given))
                table = symtable.symtable(listing, path.name, "exec").get_children()[0]
                unknown = [n.get_name() for n in table.get_symbols() if n.is_global() and n.get_name() in arguments]
                assert not unknown, f"{path.name}:{function.lineno}: {unknown}\n{listing}"
                seen += 1
    assert seen > 200


@pytest.mark.parametrize("handed", ["hidden_states, mask", "hidden_states, mask=mask", "hidden_states, **kwargs"])
def test_what_a_listing_hands_to_another_is_what_that_one_takes(
    facts: ImplementationFacts, tmp_path: Path, handed: str
) -> None:
    """Parameters that held nothing too, by position, by name, or among further keywords."""
    takes = "hidden_states: torch.Tensor, past_key_values=None, attention_mask=None):"
    source = toy.MODELING.replace(
        takes, "hidden_states: torch.Tensor, mask: torch.Tensor | None, scale=1.0, **kwargs):"
    )
    source = source.replace("attention(hidden_states, past_key_values=past_key_values)", f"attention({handed})")
    source = source.replace(
        "hidden_states, past_key_values=None):", "hidden_states, mask: Tensor | None = None, **kwargs):"
    )
    source = source.replace("layer(hidden_states, past_key_values=past_key_values)", "layer(hidden_states)")
    reader = SourceReader([toy.write_source(tmp_path)])
    (tmp_path / toy.FILE).write_text(source)
    changed = replace(facts, reader=reader)
    listings = [ast.parse(_pseudocode(changed, module)).body[0] for module in changed.modules]
    listed = {each.name: each for each in listings if isinstance(each, ast.FunctionDef)}
    made = [("layer", "ToyLayer"), ("attention", "ToyAttention"), ("norm", "ToyNorm"), ("o_proj", "Linear")]
    bound = 0
    for name, called in made:
        for call in (node for each in listings for node in ast.walk(each) if isinstance(node, ast.Call)):
            if ast.unparse(call.func) in (name, f"self.{name}"):
                taken: dict[str, Any] = {}
                exec(f"def taken({ast.unparse(listed[called].args)}): pass", taken)
                given = {each.arg: None for each in call.keywords if each.arg}
                further = any(each.arg is None for each in call.keywords)
                signature = inspect.signature(taken["taken"])
                (signature.bind_partial if further else signature.bind)(*[None for _ in call.args], **given)
                bound += 1
    assert bound >= len(made)
    assert re.search("None here: .*mask", ast.get_docstring(listed["ToyAttention"]) or "")
    assert ("**kwargs" in ast.unparse(listed["ToyLayer"].body[-2])) == ("**kwargs" in handed)


def test_an_argument_that_held_nothing_is_kept_where_the_listing_of_what_is_called_reads_it(
    facts: ImplementationFacts, tmp_path: Path
) -> None:
    """By what it hands on too; a parameter that no listing reads is handed to none."""
    takes = "mask: torch.Tensor | None = None, unread: torch.Tensor | None = None, **kwargs):"
    source = toy.MODELING.replace("past_key_values=None, attention_mask=None):", takes)
    source = source.replace("value, attn_mask=attention_mask)", "value, mask)")
    source = source.replace("hidden_states, past_key_values=None):", f"hidden_states, {takes}")
    source = source.replace("input_ids, past_key_values=None):", f"input_ids, {takes}")
    for name in ("attention", "layer"):
        handed = f"{name}(hidden_states, mask=mask, unread=unread, **kwargs)"
        source = source.replace(f"{name}(hidden_states, past_key_values=past_key_values)", handed)
    reader = SourceReader([toy.write_source(tmp_path)])
    (tmp_path / toy.FILE).write_text(source)
    changed = replace(facts, reader=reader)
    listings = [_pseudocode(changed, module) for module in changed.modules]
    for name in ("attention", "layer"):
        assert [listing.count(f"{name}(hidden_states, mask=mask)") for listing in listings].count(1) == 1
    assert "def ToyForCausalLM(input_ids, mask=None):" in listings[0]


@pytest.mark.parametrize(
    ("test", "settings", "left"),
    [
        ("self.config.clip is not None", {"clip": None}, False), ("self.config.clip is not None", {"clip": 3.0}, True), ("self.config.clip", {"clip": 0.0}, False),
        ("config.kind == 'plain'", {"kind": "plain"}, True), ("config.kind != 'plain'", {"kind": "plain"}, False), ("not self.config.gated", {"gated": False}, True),
        ("self.config.unknown", {}, True), ("self.other.clip is not None", {"clip": None}, True),
    ],
)  # fmt: skip
def test_what_the_configuration_decides_is_no_branch_of_pseudocode(
    test: str, settings: dict[str, object], left: bool
) -> None:
    function = ast.parse(f"def forward(self, x):\n    if {test}:\n        x = self.clamped(x)\n    return x\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert ("clamp" in pseudocode(function, "Drop", ["Nothing."], Call(settings=settings))) is left


def test_catalogue_numbers_known_tasks_and_the_forward_pass_names_all_of_them(rendered: Callable[..., Report]) -> None:
    page = Page(rendered().text)
    (table,) = [table for table in page.tables if table.head == TABLES["5"]]
    ends = [[int(end) for end in cells[0].split("-")] for _, cells in table.rows]
    numbers = [number for first, *last in ends for number in range(first, (last or [first])[0] + 1)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert " places)" not in rendered().text  # how often a task occurs is no place
    for _, cells in table.rows[1:]:
        assert {int(part) for part in re.findall(r"\d+", cells[4])} <= set(numbers)
    start = next(line for line, text in page.headings if text == "### 6.1 Full Forward Pass")
    drawn = next(fence for fence in page.fences if fence.line > start)
    assert {int(n) for line in drawn.lines for n in re.findall(r"(?:── |, )(\d+) \w", line)} == set(numbers)
    assert not any("×0" in line for line in drawn.lines)


def test_configuration_rows_carry_the_value_and_the_line_that_declares_it(rendered: Callable[..., Report]) -> None:
    line = toy.line_of("num_hidden_layers", toy.CONFIGURATION)
    assert (
        f"| `num_layers` | 2<!-- fact:config.num_layers --> | number of layers; `num_hidden_layers` (`{toy.CONFIG_FILE}:{line}`) |"
        in rendered().text
    )


def test_every_parameter_of_extract_config_stands_in_section_31_with_its_value_and_line(
    facts: ImplementationFacts, rendered: Callable[..., Report]
) -> None:
    assert facts.settings is not None
    (own,) = facts.settings.configurations
    text = toy.unmarked(rendered().text).partition("### 3.1")[2].partition("### 3.2")[0]
    assert {p.name for p in own.hyperparameters} >= {"use_cache", "num_key_value_heads", "max_position_embeddings"}
    for parameter in own.hyperparameters:
        (row,) = [
            row for row in text.split("\n") if f"`{parameter.name}` (`{toy.CONFIG_FILE}:{parameter.line}`)" in row
        ]
        shown = parameter.value if isinstance(parameter.value, str) else json.dumps(parameter.value)
        assert row.split(" | ")[1].strip("`") == shown, parameter.name


def test_a_value_that_the_trace_ran_with_stands_before_the_one_of_source_and_both_are_said(
    facts: ImplementationFacts,
) -> None:
    tree = facts.tree.model_copy(update={"config": {**facts.tree.config, "use_cache": False}})
    text = toy.rendered_with(replace(facts, tree=tree), {}).text
    (row,) = [row for row in text.split("\n") if row.startswith("| `use_cache` |")]
    assert row.startswith("| `use_cache` | `false` |")
    assert "source gives `true`" in row


def test_a_configuration_whose_source_cannot_be_read_is_said_not_to_be(facts: ImplementationFacts) -> None:
    text = toy.rendered_with(replace(facts, settings=None), {}).text
    assert "The source of the configuration was not read." in text.partition("### 3.1")[2].partition("### 3.2")[0]


def test_declared_plans_constraints_and_absences_are_reported(rendered: Callable[..., Report]) -> None:
    text = rendered().text
    plan = toy.line_of("base_model_tp_plan", toy.CONFIGURATION)
    assert f"**Tensor Parallelism:** Yes; `base_model_tp_plan` (`{toy.CONFIG_FILE}:{plan}`)" in text
    assert "**Pipeline Parallelism:** None declared: searched" in text
    assert (
        f"`ToyAttention.forward` (`{toy.FILE}:{toy.line_of('raise ValueError')}`): `raises ValueError: hidden size"
        in text
    )


def test_tensors_have_the_lifetime_that_the_graph_gives_them(rendered: Callable[..., Report]) -> None:
    (table,) = [table for table in Page(rendered().text).tables if table.head == TABLES["6.3"]]
    made = [cells for _, cells in table.rows if cells[1].startswith("task 2 ")]
    assert [cells[2:] for cells in made] == [("task 3", "2 operators, task 2 to 3")]


def test_an_agents_section_follows_the_computed_text_of_its_heading(rendered: Callable[..., Report]) -> None:
    text = rendered(**{"2.3": "Runs eagerly.", "technical faq": "Asked often.", "ToyNorm": "A norm."}).text
    assert text.index("### 2.3 Execution Model") < text.index("Runs eagerly.") < text.index("## 3. Configuration")
    assert text.index("## 9. Technical FAQ") < text.index("Asked often.") < text.index("### Q: How are variable")
    assert text.index(": ToyNorm\n") < text.index("A norm.")


def test_a_section_that_does_not_exist_is_refused_with_the_nearest(rendered: Callable[..., Report]) -> None:
    with pytest.raises(UnknownNameError, match=r"No section is called 'Executive Sumary'. Nearest names: 1 Executive"):
        rendered(**{"Executive Sumary": "text"})


def test_links_of_the_summary_lead_to_headings_of_the_report(rendered: Callable[..., Report]) -> None:
    report = rendered()
    seen: dict[str, int] = {}
    anchors = {anchor(text, seen) for _, text in Page(report.text).headings}
    links = [link.partition("#") for link in report.facts.summary.links]
    assert len(links) == 11
    assert all(path == "x.md" and slug in anchors for path, _, slug in links)


def test_the_same_facts_give_the_same_report(facts: ImplementationFacts, report: Report) -> None:
    again = render(facts, {}, "x.md", lambda values: render_template("implementation.md", values))
    assert again == report


# ---- parts ----------------------------------------------------------------------------------------------------------


def test_a_key_stands_for_one_number_and_amounts_keep_three_digits() -> None:
    quotes = Quotes()
    assert quotes("a", 1234) == quotes("a", 1234) == "1,234<!-- fact:a -->"
    with pytest.raises(AssertionError):
        quotes("a", 5)
    assert [amount(v, "B") for v in (0, 999, 1500, 41_549_906_176)] == ["0 B", "999 B", "1.5 kB", "41.5 GB"]


def test_values_that_bind_nothing_or_are_negative_are_refused() -> None:
    document = toy.model_document()
    with pytest.raises(ValuesError, match="batch_size is -1; sizes cannot be negative"):
        bind(document, {"batch_size": -1})
    extra = document.variables[0].model_copy(update={"name": "num_frames"})
    with pytest.raises(ValuesError, match="No value for num_frames"):
        bind(document.model_copy(update={"variables": (*document.variables, extra)}), {})


def test_a_variable_with_a_definition_follows_the_given_values() -> None:
    document = toy.model_document()
    head = document.variables[0].model_copy(update={"name": "head_dim", "definition": "{hidden_size} // {num_heads}"})
    bound = bind(document.model_copy(update={"variables": (*document.variables, head)}), {"hidden_size": 64})
    assert bound["head_dim"] == 64 // 4


def test_roles_come_from_operators_before_names() -> None:
    kernels = toy.model_document().kernels
    assert role_of("a.Mystery", kernels[0].kernels or ()) == "embedding"
    assert role_of("a.SomethingAttention", ()) == "attention"
    assert role_of("a.Thing", ()) == "module"
    kept = toy.basic("aten.copy_.default", "return self.o_proj(attended)", "0", "0", "0")
    assert role_of("a.Thing", (kept,)) == "module"
    keeper = CallSite(function="Cache.update_recurrent_state", file=toy.FILE, line=1)
    assert role_of("a.Thing", (kept.model_copy(update={"via": (keeper,)}),)) == "state-space layer"


def test_sections_answer_to_number_heading_and_title() -> None:
    outline = list(SECTIONS)
    for key in ("6.3", "### 6.3 Memory Lifecycle", "memory lifecycle"):
        assert section_named(key, outline).number == "6.3"
    assert section_named("What operations are fused?", outline).number == "9.3"


def test_facts_answer_from_source_alone(facts: ImplementationFacts) -> None:
    assert facts.pointer("toyland.modeling_toy.ToyNorm") == f"`{toy.FILE}:{toy.line_of('class ToyNorm')}`"
    assert facts.pointer("elsewhere.Thing").startswith("source not found")
    assert facts.classes_of("attention") == ["toyland.modeling_toy.ToyAttention"]


def test_a_pass_that_does_not_fit_takes_no_time_there(facts: ImplementationFacts) -> None:
    (phase, found), *_ = facts.estimates.items()
    assert f"As engines run it, on one {found.hardware.name}: times" in toy.rendered_with(facts, {}).text
    small = found.model_copy(update={"memory": found.memory.model_copy(update={"fits": False})})
    text = toy.rendered_with(replace(facts, estimates={phase: small}), {}).text
    assert "| Time, modelled as engines run it | had it the memory, " in text
    assert "does not fit" in text


@pytest.mark.parametrize(("peak", "said"), [("8 * {seq_len}**2", 8 * 200_000**2), ("100 * {seq_len}", None)])
def test_a_length_that_the_pass_does_not_bear_run_eagerly_says_so(
    facts: ImplementationFacts, peak: str, said: int | None
) -> None:
    """What engines hold of a long prefill, scores stored nowhere, is not what its source does."""
    found = next(iter(facts.estimates.values())).model_copy(update={"phase": "prefill"})
    memory = found.memory.model_copy(update={"fits": True, "longest_context": 200_000, "usable_bytes": 77 * 10**9})
    graph = facts.graphs[0].model_copy(update={"peaks": (PeakPoint(operator=2, bytes=peak, tensors=()),)})
    changed = replace(
        facts,
        graphs=(graph, *facts.graphs[1:]),
        estimates={"prefill": found.model_copy(update={"memory": memory})},
    )
    text = toy.unmarked(toy.rendered_with(changed, {}).text)
    assert "or contexts of 200,000 tokens" in text
    told = f"(run eagerly, as its source is, activations alone would take {plain_bytes(said or 0)} there)"
    assert (told in text) == (said is not None)


def test_what_barely_fits_is_said_to_and_what_cannot_be_cached_beside_the_weights_too(
    facts: ImplementationFacts,
) -> None:
    found = facts.estimates["decode"]

    def told(**changes: int) -> str:
        memory = found.memory.model_copy(update={"fits": True, "cache_bytes": 0, "activation_bytes": 0, **changes})
        changed = found.model_copy(update={"memory": memory})
        return toy.unmarked(toy.rendered_with(replace(facts, estimates={"decode": changed}), {}).text)

    assert "fits with 5 GB to spare" in told(weights_bytes=95 * 10**9, usable_bytes=100 * 10**9)
    roomy = told(weights_bytes=20 * 10**9, usable_bytes=100 * 10**9)
    assert "to spare" not in roomy
    assert "more than fit beside them" not in roomy
    assert "all sequences together, more than fit beside them, the cache" in told(
        weights_bytes=60 * 10**9, usable_bytes=100 * 10**9
    )


def test_what_was_measured_to_save_stands_before_what_a_bound_promises(facts: ImplementationFacts) -> None:
    found = facts.estimates["decode"]
    measured = found.alternatives[0].model_copy(update={"backends": ("vllm",)})
    promised = measured.model_copy(
        update={
            "name": "weights int4",
            "basis": "bound",
            "share": 0.0,
            "bound_share": 0.7,
            "unmeasured": ("matrix products int4", "matrix products bf16"),
        }
    )
    nothing = measured.model_copy(update={"name": "cache fp8", "share": -0.001})
    slower = measured.model_copy(update={"name": "weights fp8_block", "share": -1.5, "backends": ("sglang", "vllm")})
    changed = found.model_copy(update={"alternatives": (promised, slower, nothing, measured)})
    told = toy.unmarked(toy.rendered_with(replace(facts, estimates={"decode": changed}, batched=()), {}).text)
    rows = [
        "| weights fp8 | 50 % (40 %; vllm's kernels) |", "| cache fp8 | 0 %, less than fits are off by (40 %; vllm's kernels) |",
        "| weights fp8_block | 150 % longer (bound 40 % less; sglang and vllm's kernels) |", "| weights int4 | not measured (70 %) |",
    ]  # fmt: skip
    assert [line for line in told.split("\n") if line.startswith(("| weights ", "| cache fp8 "))] == rows
    assert (
        "Not measured: no measurement of matrix products of these formats is at hand. What is measured to take longer does so with these kernels; others"
        in told
    )


@pytest.mark.parametrize(
    ("backend", "asked", "said"),
    [
        ("vllm", "vllm", None),
        ("trtllm", "vllm", "With weights fp8_block kernels of trtllm are compared before and after: those of vllm's that were measured hold the host's own time."),
        ("trtllm", "sglang", "With weights fp8_block kernels of trtllm are compared before and after: there is no fit of sglang's."),
    ],
)  # fmt: skip
def test_savings_of_other_kernels_than_those_of_the_pass_say_why(
    facts: ImplementationFacts, backend: str, asked: str, said: str | None
) -> None:
    found = facts.estimates["decode"]
    product = found.operators[0].model_copy(update={"measured_as": f"product, bf16, {asked}"})
    narrow = found.alternatives[0].model_copy(update={"name": "weights fp8_block", "backends": (backend,)})
    changed = found.model_copy(update={"operators": (product,), "alternatives": (narrow,)})
    told = toy.unmarked(toy.rendered_with(replace(facts, estimates={"decode": changed}, batched=()), {}).text)
    assert (f"| weights fp8_block | 50 % (40 %; {backend}'s kernels) |" in told) == (said is not None)
    assert (said in told) if said else ("compared before and after" not in told)


def test_kernels_that_no_table_has_are_not_said_to_be_measured(facts: ImplementationFacts) -> None:
    found = facts.estimates["decode"]
    product = found.operators[0].model_copy(update={"measured_as": "product, bf16, vllm"})
    norm = product.model_copy(update={"kind": "norms", "measured_as": "launch and bandwidth of vllm products"})
    huge = product.model_copy(update={"outside": ("window",)})
    for rows, said in (
        ((product,), " Matrix products are timed as kernels like them (of vllm) were measured."),
        ((huge,), " measured; in decode some kernels of matrix products (vllm's) lie outside of the sizes that were measured (in the window), and are less certain."),
        ((norm, product), " Matrix products are timed as kernels like them (of vllm) were measured; norms, of which there are no measurements, by their bytes"),
        ((norm,), " Norms, of which there are no measurements, by their bytes"),
    ):  # fmt: skip
        told = replace(facts, estimates={"decode": found.model_copy(update={"operators": rows})})
        text = toy.unmarked(toy.rendered_with(told, {}).text)
        assert said in text
        assert list(pointer_problems(Page(text), facts.reader)) == []
        assert ("like them (of vllm) were measured" in text) == (rows != (norm,))


def test_the_story_holds_the_facts_of_the_estimate_and_no_others(facts: ImplementationFacts) -> None:
    """What no tool told is left out, and the section stands without it."""
    told = toy.unmarked(toy.rendered_with(facts, {}).text)
    assert "cached tokens each, computing limits most of a decode step's bound from a batch of 200" in told
    assert "| weights fp8 | 50 % (40 %) |" in told
    without = toy.unmarked(toy.rendered_with(replace(facts, estimates={}), {}).text)
    assert "| FLOPs | " in without
    assert not any(
        title in without
        for title in ("How long it takes", "what fits", "What turns", "What would save most", "| Time", "| Memory")
    )


def test_an_agents_own_summary_stands_before_the_story(rendered: Callable[..., Report]) -> None:
    text = rendered(**{"1": f"It is small (`{toy.FILE}:1`)."}).text
    assert text.index("It is small") < text.index("**What it is:**") < text.index("**Key Features:**")


def test_what_runs_in_no_pass_is_left_out_in_the_traces_own_words(facts: ImplementationFacts) -> None:
    said = "Of ToyForCausalLM, tower (Tower, 9 parameters) did not run in this pass"
    assert said in toy.rendered_with(replace(facts, idle=(said,)), {}).text.partition("**Key Features:**")[0]
