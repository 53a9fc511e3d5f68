"""What each section of a report says about its subject: a class inside a model, call order, plans, tensors, limits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import report_toy as toy
from opscope_schemas.analysis import TensorInfo
from opscope_schemas.dataflow import PeakPoint
from opscope_schemas.formula import Formula, evaluate
from opscope_schemas.notes import OWN_TRACE, SECOND_TRACE
from opscope_schemas.units import plain_bytes
from opscope_tools.report.components import LongFormulas
from opscope_tools.report.facts import ImplementationFacts, role_of
from opscope_tools.report.flow import catalogue_rows
from opscope_tools.report.markdown import Page
from opscope_tools.report.memory import lifetime_rows, peak_lines, tensor_bytes
from opscope_tools.report.outline import TABLES
from opscope_tools.report.parallel import Split, communication_rows
from opscope_tools.report.render import Report
from opscope_tools.report.summary import summarise
from opscope_tools.report.tasks import numbering, occurrences, task_of_operator, tasks

MODEL = f"{toy.MODULE}.ToyForCausalLM"


@pytest.fixture(scope="module")
def attention(facts: ImplementationFacts) -> ImplementationFacts:
    """Facts on the attention as it runs in the toy."""
    return replace(
        facts,
        name="ToyAttention",
        target="ToyAttention",
        tree=toy.attention_tree(),
        documents=(toy.attention_document(), toy.attention_document("decode")),
        graphs=(toy.graph(toy.attention_document()), toy.graph(toy.attention_document("decode"))),
    )


def section(text: str, number: str) -> str:
    """The text below the heading that begins with `number`."""
    return re.split(r"\n##+ ", text.partition(f"# {number} ")[2])[0]


def rows(text: str, number: str) -> list[tuple[str, ...]]:
    """Cells of the table of a section."""
    (found,) = [table for table in Page(text).tables if table.head == TABLES[number]]
    return [cells for _, cells in found.rows]


# ---- a class inside a model ----------------------------------------------------------------------------------------


def test_a_report_on_a_class_is_about_the_class_and_names_the_model_once(attention: ImplementationFacts) -> None:
    report = toy.rendered_with(attention, {})
    assert report.text.startswith("# Analysis: ToyAttention\n")
    summary = section(report.text, "1. Executive Summary") or report.text.partition("## 1. ")[2].partition("\n## 2")[0]
    assert summary.count("ToyForCausalLM") == 1
    assert "`ToyAttention`" in summary
    assert ", as it runs in `ToyForCausalLM` (" in summary
    assert "has 256<!-- fact:parameters --> parameters" in summary
    summary = toy.unmarked(summary)
    assert "2 layers" not in summary  # those are the model's
    assert "One call of `ToyAttention` in prefill (batch 1, 64 new" in summary
    assert "Prefill (" not in summary
    diagram = report.text.partition("### 2.1")[2].partition("### 2.2")[0]
    assert "inputs of ToyAttention" in diagram
    assert "outputs of ToyAttention" in diagram
    assert "ToyForCausalLM" not in diagram


def test_the_summary_of_a_class_speaks_of_the_class(attention: ImplementationFacts) -> None:
    first, *others = summarise(attention, "x.md", ()).insights
    assert first.startswith("ToyAttention has 256 parameters")
    assert "as it runs in ToyForCausalLM" in first
    assert any(line.startswith("One call of ToyAttention in decode (batch 1, 1 new") for line in others)
    assert not any("ToyForCausalLM" in line for line in others)


def test_a_whole_model_is_its_own_subject(facts: ImplementationFacts, rendered: Callable[..., Report]) -> None:
    assert (facts.subject, facts.within) == (MODEL, "")
    assert "as it runs in" not in rendered().text
    assert facts.called(facts.main) == "Prefill (batch 1, 64 new and 0 cached tokens)"


# ---- 2.1 and 6.2: order --------------------------------------------------------------------------------------------


def test_the_system_diagram_follows_the_calls_not_the_order_of_the_tree(facts: ImplementationFacts) -> None:
    first, *rest = facts.tree.tree.children
    late = facts.tree.tree.model_copy(update={"children": (*rest, first)})  # as where `rotary_emb` is defined last
    text = toy.rendered_with(replace(facts, tree=facts.tree.model_copy(update={"tree": late})), {}).text
    diagram = text.partition("### 2.1")[2].partition("### 2.2")[0]
    titles = [
        "embed_tokens: Embedding",
        "layers.*: ToyLayer ×2",
        "  norm: ToyNorm",
        "  attention: ToyAttention",
        "lm_head: Linear",
    ]
    at = [diagram.index(title) for title in titles]
    assert at == sorted(at)


def test_dependencies_are_those_of_the_graph_and_have_no_circle(facts: ImplementationFacts) -> None:
    catalogue = tasks(facts.main, facts.graphs[0])
    twice = [task for task in catalogue if len(task.occurrences) > 1]  # the toy's norm runs in layers and after them
    assert twice
    assert all(number < task.number for task in catalogue for number in task.after)
    assert catalogue[-1].after == (
        twice[-1].number,
    )  # the head reads the last norm, which is listed where it first ran
    # the norm's first task reads the embedding; after the layers it reads their last addition, as in each next layer
    add = next(task.number for task in catalogue if task.kind == "aten.add.Tensor")
    assert (twice[0].after, twice[0].again, twice[0].carried) == ((1,), (add,), (add,))


def test_operators_of_one_line_with_different_weights_are_different_tasks(facts: ImplementationFacts) -> None:
    linked = facts.graphs[0]
    catalogue = tasks(facts.main, linked)
    twice = next(task for task in catalogue if len(task.occurrences) > 1)
    places = task_of_operator(facts.main, catalogue)
    one, *others = [place for place, number in places.items() if number == twice.number]
    operators = tuple(
        each.model_copy(update={"weights": ("in_proj_weight",) if each.id == one else ("out_proj.weight",)})
        if each.id in (one, *others)
        else each
        for each in linked.operators
    )
    found = tasks(facts.main, linked.model_copy(update={"operators": operators}))
    numbers = task_of_operator(facts.main, found)
    assert {numbers[place] for place in others}.isdisjoint({numbers[one]})
    assert len(found) == len(catalogue) + 1


def test_what_only_a_later_run_of_a_task_reads_is_told_apart(facts: ImplementationFacts) -> None:
    """As in layers of another kind, where attention reads its queries with no rotation between."""
    linked = facts.graphs[0]
    catalogue = tasks(facts.main, linked)
    last = [task for task in catalogue if len(task.occurrences) > 1][-1]
    assert 1 not in last.after
    numbers = numbering(catalogue)
    runs = [numbers[id(o.kernel)] for o in occurrences(facts.main.kernels, facts.main.class_name)]
    operators = list(linked.operators)
    later = runs.index(last.number, runs.index(last.number) + 1)
    read = operators[later].depends_on
    operators[later] = operators[later].model_copy(update={"depends_on": (*read, 1)})
    found = tasks(facts.main, linked.model_copy(update={"operators": tuple(operators)}))[last.number - 1]
    assert (found.after, found.again) == (last.after, (1, *last.again))


def test_what_one_call_issues_twice_on_a_line_is_told_run_by_run(facts: ImplementationFacts) -> None:
    """As a line that casts both the cosines and the sines."""
    head = facts.main.kernels[-1]
    cast = toy.basic("aten._to_copy.default", "torch.rsqrt", "0", "0", "0")
    held = head.model_copy(update={"kernels": (*(head.kernels or ()), cast, cast.model_copy())})
    document = facts.main.model_copy(update={"kernels": (*facts.main.kernels[:-1], held)})
    linked = toy.graph(document)
    last = linked.operators[-1].model_copy(update={"depends_on": (1,)})
    found = tasks(document, linked.model_copy(update={"operators": (*linked.operators[:-1], last)}))[-1]
    assert len(found.occurrences) == 2
    assert (found.after, found.again) == ((found.number - 1,), (1,))
    # and the first of two may be read on the way to the second: as sines and cosines are multiplied on one line
    between = toy.basic("aten.neg.default", "torch.rsqrt", "0", "0", "0")
    held = head.model_copy(update={"kernels": (*(head.kernels or ()), cast, between, cast.model_copy())})
    document = facts.main.model_copy(update={"kernels": (*facts.main.kernels[:-1], held)})
    *_, found, after_it = tasks(document, toy.graph(document))
    assert (found.after, found.again) == ((found.number - 1,), (after_it.number,))
    assert after_it.after == (found.number,)


def test_a_task_that_reads_its_run_before_says_so(facts: ImplementationFacts) -> None:
    """As the last of two products on a line: the second takes what the first gave, and both stand as one task."""
    head = facts.main.kernels[-1]
    one = toy.basic("aten.mul.Tensor", "torch.rsqrt", "0", "0", "0")
    held = head.model_copy(update={"kernels": (*(head.kernels or ()), one, one.model_copy())})
    document = facts.main.model_copy(update={"kernels": (*facts.main.kernels[:-1], held)})
    found = tasks(document, toy.graph(document))[-1]
    assert (found.after, found.again) == ((found.number - 1,), (found.number,))
    [row] = catalogue_rows(facts, [found])
    assert row[-1] == f"{found.number - 1}; again: {found.number}"


@pytest.mark.parametrize("seed", range(5))
def test_what_each_run_of_a_task_reads_is_in_what_its_row_says(seed: int, facts: ImplementationFacts) -> None:
    """The first run reads all of `after` and nothing else, the others only what `after` and `again` name."""
    draw, linked = random.Random(seed), facts.graphs[0]
    operators = [
        operator.model_copy(update={"depends_on": tuple(sorted(draw.sample(range(1, at), min(at - 1, draw.randint(0, 3)))))})
        for at, operator in enumerate(linked.operators, 1)
    ]  # fmt: skip
    graph = linked.model_copy(update={"operators": tuple(operators)})
    catalogue = tasks(facts.main, graph)
    number = task_of_operator(facts.main, catalogue)
    seen: set[int] = set()
    for at, operator in enumerate(operators, 1):
        task = catalogue[number[at] - 1]
        read = {number[other] for other in operator.depends_on}
        assert read == set(task.after) if task.number not in seen else read <= {*task.after, *task.again}
        seen.add(task.number)
    assert any(task.again for task in catalogue)


# ---- 3.2, 4 and 5: said once, said whole ---------------------------------------------------------------------------


def test_reasons_stand_once_below_the_tables(rendered: Callable[..., Report]) -> None:
    text = rendered().text
    assert {cells[3] for cells in rows(text, "5")} == {"library"}
    assert text.count("Tiling: `library` marks operators of a library") == 1
    [(names, value, why)] = rows(text, "3.2")
    assert names == "`BLOCK_M`, `BLOCK_N`, `BLOCK_K`, `NUM_STAGES`, `NUM_WARPS`"
    assert value == "not in source"
    assert why.endswith("launches kernels of libraries only, which choose tiles, stages and warps themselves")


def test_each_component_prints_its_four_formulas_whole(
    facts: ImplementationFacts, rendered: Callable[..., Report]
) -> None:
    text = rendered().text
    assert "a formula in" not in text
    for module in facts.modules:
        totals = module.totals
        for formula in (totals.flops, totals.matmul_flops, totals.memory_access.read, totals.memory_access.write):
            assert f"`{Formula.parse(formula)}`" in text  # below its component, or in the appendix where it is long
    assert not any(
        len(found) > 210 for found in re.findall(r"`[^`\n]*`", text.partition("## 5.")[0].partition("## 4.")[2])
    )


def test_a_call_whose_formulas_are_all_long_says_so_once() -> None:
    long, formula = LongFormulas(), " + ".join(["{seq_len}"] * 40)
    assert long("`A`", [("FLOPs", formula), ("bytes read", "1")]) == "FLOPs in 11.B; bytes read `1`"
    said = long("`B`", [("FLOPs", formula), ("bytes read", formula)])
    assert said == "its formulas stand in 11.B, as each is too long for a line"
    assert long.rows("prefill")[1] == f"One call of `B` in prefill: FLOPs `{formula}`; bytes read `{formula}`"


def test_shares_of_a_single_kernel_are_not_an_insight(rendered: Callable[..., Report]) -> None:
    text = toy.unmarked(rendered().text)
    linear = text.partition(": Linear\n")[2].partition("\n### ")[0]
    assert "100.0 % of its" not in linear
    attention = text.partition(": ToyAttention\n")[2].partition("\n### ")[0]
    assert re.search(r"takes \d+\.\d % of its FLOPs", attention)


def test_a_network_of_a_model_with_experts_in_its_name_is_no_mixture() -> None:
    assert role_of("a.Qwen2MoeMLP", ()) == "feed-forward network"
    assert role_of("a.Qwen2MoeDecoderLayer", ()) == "layer"
    assert role_of("a.Qwen2MoeSparseMoeBlock", ()) == "mixture of experts"


# ---- 7 -------------------------------------------------------------------------------------------------------------


def test_each_plan_is_counted_on_its_own_and_fsdp_is_data_parallel(rendered: Callable[..., Report]) -> None:
    text = rendered().text
    config, own = toy.line_of("base_model_tp_plan", toy.CONFIGURATION), toy.line_of("_tp_plan = ")
    assert (
        f"Yes; `base_model_tp_plan` (`{toy.CONFIG_FILE}:{config}`) declares it for 2 entries; "
        f"`_tp_plan` (`{toy.FILE}:{own}`) declares it for `lm_head`." in text
    )
    assert f"**Data Parallelism:** Yes; `_fsdp_plan` (`{toy.FILE}:{toy.line_of('_fsdp_plan')}`)" in text
    (kept,) = [cells for cells in rows(text, "7.2") if any("keep_full_weight" in cell for cell in cells)]
    assert kept[1].startswith("all_gather of its weights, before it runs")
    assert kept[0] == f"`lm_head` split as `keep_full_weight` (`{toy.FILE}:{toy.line_of('_fsdp_plan')}`)"
    assert kept[2] == "when the fsdp plan is applied"


def test_communication_follows_from_the_style_and_the_shape_that_ran(rendered: Callable[..., Report]) -> None:
    said = {cells[0].split("`")[1]: cells for cells in rows(rendered().text, "7.2") if "weights" not in cells[1]}
    size = "`{batch_size} * {seq_len} * {hidden_size} * {a_bytes}` bytes (1.02 kB in prefill)"  # 64 * 8 * 2 bytes
    assert said["layers.*.attention.o_proj"][1].startswith("all_reduce of its output")
    assert said["layers.*.attention.o_proj"][3] == f"{size} in each of `{{num_layers}}` calls"
    assert said["layers.*.attention.qkv_proj"][1] == "none"
    assert said["lm_head"][1].startswith("all_gather of its output")
    assert said["lm_head"][3] == size


def test_only_entries_inside_the_analysed_class_are_listed(attention: ImplementationFacts) -> None:
    names = {row[0].split("`")[1] for row in communication_rows(Split.of(attention))}
    assert names == {"layers.*.attention.qkv_proj", "layers.*.attention.o_proj"}


# ---- 6.3 and the summary -------------------------------------------------------------------------------------------


def test_the_lifecycle_names_activations_scores_weights_and_the_peak(
    facts: ImplementationFacts, rendered: Callable[..., Report]
) -> None:
    text = rendered().text
    said = {cells[0].split(":")[0]: cells for cells in rows(text, "6.3")}
    made = said["rsqrt.default result"]
    assert "`{batch_size} * {seq_len} * {hidden_size} * {a_bytes}` bytes (1.02 kB in prefill)" in made[0]
    catalogue = tasks(facts.main, facts.graphs[0])
    number = next(task.number for task in catalogue if task.kind == "aten.rsqrt.default")
    assert made[1] == f"task {number} (`{toy.FILE}:{toy.line_of('torch.rsqrt')}`)"
    assert said["attention scores"][3].startswith("absent: that operator fuses")
    assert f"`{Formula.parse(facts.main.parameters) * Formula.var('w_bytes')}` bytes" in said["weights"][0]
    assert "- Peak of activations in prefill: `2 * {batch_size}" in text
    assert "(2.05 kB) during task 2" in text  # two tensors of 64 * 8 * 2 bytes


def test_tensors_of_one_task_with_readers_of_their_own_are_told_with_the_readers_of_each(
    facts: ImplementationFacts,
) -> None:
    graph = facts.graphs[0]
    one = next(t for t in graph.tensors if t.kind == "activation" and t.created_by and t.consumed_by and t.lives[1] < 6)
    other = one.model_copy(update={"id": 999, "consumed_by": (7,), "lives": (one.lives[0], 7)})
    changed = replace(facts, graphs=(graph.model_copy(update={"tensors": (*graph.tensors, other)}), *facts.graphs[1:]))
    number = task_of_operator(facts.main, tasks(facts.main, graph))
    read, lives = f"task {number[one.consumed_by[0]]}", f"task {number[one.lives[0]]} to"
    told = [row for row in lifetime_rows(changed, tasks(facts.main, graph)) if f"; another: task {number[7]}" in row[2]]
    assert len(told) == 1
    assert read in told[0][2]
    assert told[0][3].count(lives) == 2


def test_what_may_be_the_peak_at_other_sizes_is_named_by_its_operator_or_is_none(facts: ImplementationFacts) -> None:
    graph, length = facts.graphs[0], facts.point(facts.main)["seq_len"]
    texts = ("20 * {seq_len}", "650", "330 + 12 * {seq_len}", "10 * {seq_len}")
    first, constant, between, never = (PeakPoint(operator=n, bytes=text, tensors=()) for n, text in enumerate(texts, 1))

    def said(*peaks: PeakPoint) -> str:
        changed = replace(facts, graphs=(graph.model_copy(update={"peaks": peaks}), *facts.graphs[1:]))
        return peak_lines(changed, tasks(facts.main, graph))[0]

    def named(peak: PeakPoint) -> str:
        operator = graph.operators[peak.operator - 1]
        held = plain_bytes(evaluate(peak.bytes, {"seq_len": length}))
        return f"{operator.operator} (`{operator.file}:{operator.line}`), during which {held} live here."

    assert length == 64  # a quarter and half of it are tried
    every = [said(first), said(never, first), said(never, constant, first), said(never, constant, between, first)]
    assert not any("  " in text for text in every)
    assert "At no sizes does another operator hold more." in said(first)
    assert "other sizes that were tried, from two to 16 times these, does another operator hold more." in said(
        never, first
    )
    assert f"At other sizes it may be {named(constant)}" in said(never, constant, first)
    assert f"At other sizes it may be one of 2 other operators, as {named(between)}" in said(
        never, constant, between, first
    )


@pytest.mark.parametrize("seed", range(10))
def test_an_operator_that_holds_more_at_no_size_is_not_named_as_the_peak(facts: ImplementationFacts, seed: int) -> None:
    """Those that are counted are the largest at some size, of all that a call may have; what is said of none is true of all of them."""
    rng, point, graph = random.Random(seed), facts.point(facts.main), facts.graphs[0]
    limit, first = 64, int(point["seq_len"])
    texts = [f"{rng.randrange(1, 900)} + {rng.randrange(9)} * {{seq_len}}" for _ in range(4)]
    peaks = [PeakPoint(operator=n, bytes=text, tensors=()) for n, text in enumerate(texts, 1)]
    changed = replace(facts, graphs=(graph.model_copy(update={"peaks": tuple(peaks)}), *facts.graphs[1:]))
    said = peak_lines(changed, tasks(facts.main, graph))[0]
    sizes = {n: [evaluate(peak.bytes, {**point, "seq_len": n}) for peak in peaks] for n in range(1, limit + 1)}
    here = sizes[first].index(max(sizes[first]))
    others = {held.index(max(held)) for held in sizes.values()} - {here}
    if told := re.search(r"At other sizes it may be (?:one of (\d+) other operators, as )?(\S+) ", said):
        assert int(told[1] or 1) <= len(others)
        assert told[2] in {graph.operators[at].operator for at in others}


@pytest.mark.parametrize("seed", range(20))
def test_at_the_size_that_is_told_another_operator_becomes_the_peak(facts: ImplementationFacts, seed: int) -> None:
    """Against all sizes one after another; no size is told where none of them changes the operator."""
    rng, point = random.Random(seed), facts.point(facts.main)
    peaks = [
        PeakPoint(operator=number, bytes=f"{rng.randrange(1, 9000)} + {rng.randrange(40)} * {{seq_len}}", tensors=())
        for number in (1, 2, 3)
    ]
    graph = facts.graphs[0].model_copy(update={"peaks": tuple(peaks)})
    changed = replace(facts, graphs=(graph, *facts.graphs[1:]))
    said = peak_lines(changed, tasks(facts.main, graph))[0]

    def largest(length: int) -> PeakPoint:
        return max(peaks, key=lambda peak: evaluate(peak.bytes, {**point, "seq_len": length}))

    first, longest = int(point["seq_len"]), toy.CONFIG["max_position_embeddings"]
    assert isinstance(longest, int)
    changes = [n for n in range(first + 1, longest + 1) if largest(n) is not largest(first)]
    if told := re.search(r"At (\d+) tokens another passes it: (\S+) [^;]*?, with `([^`]+)` bytes", said):
        assert int(told[1]) == changes[0]
        assert (told[2], told[3]) == (
            graph.operators[largest(changes[0]).operator - 1].operator,
            largest(changes[0]).bytes,
        )
    else:
        assert not changes


def test_the_cache_is_that_of_the_graph_and_logits_are_as_wide_as_the_vocabulary(facts: ImplementationFacts) -> None:
    statement = "past_key_values.update("
    update = toy.basic("aten.cat.default", statement, "0", "0", "0", repeat="{num_layers}")
    *others, head = facts.main.kernels
    document = facts.main.model_copy(update={"kernels": (*others, update, head)})
    graph = toy.graph(document)
    logits = graph.tensors[-1].model_copy(update={"shape": ("{batch_size}", "{seq_len}", "{vocab_size}")})
    graph = graph.model_copy(update={"tensors": (*graph.tensors[:-1], logits)})
    changed = replace(facts, documents=(document,), graphs=(graph,))
    said = {cells[0].split(":")[0]: cells for cells in rows(toy.rendered_with(changed, {}).text, "6.3")}
    # keys and values: 2 * 2 layers * 4 heads * 64 tokens * 2 wide * 2 bytes
    assert f"bytes ({2 * 2 * 4 * 64 * 2 * 2 / 1000:.3g} kB)" in said["cache"][0]
    assert said["cache"][3].endswith("bytes with each token")
    assert f"bytes ({64 * 100 * 2 / 1000:.3g} kB in prefill)" in said["logits"][0]


def test_a_tensor_of_another_dtype_has_its_own_width() -> None:
    tensor = TensorInfo(name="x", shape=("{seq_len}", "3"), dtype="float32")
    assert tensor_bytes(tensor, "bfloat16") == Formula.parse("12 * {seq_len}")
    assert tensor_bytes(tensor, "float32") == Formula.parse("3 * {seq_len} * {a_bytes}")


@pytest.mark.parametrize(
    "note",
    [
        f"prefill: The formulas of a trace for any sizes, not shown here, hold where {{seq_len}} != 1, which is not so at these values: {OWN_TRACE}",
        f"prefill: {SECOND_TRACE}",
    ],
)
def test_conditions_do_not_bound_figures_that_were_traced_anew(note: str, facts: ImplementationFacts) -> None:
    many = facts.main.model_copy(update={"conditions": tuple(f"{{seq_len}} > {n}" for n in range(5))})
    plain = summarise(replace(facts, documents=(many,), graphs=facts.graphs[:1], notes=()), "x.md", ()).limitations
    assert "The formulas of prefill hold where the conditions of section 3.3 do." in plain
    assert not any("seq_len >" in line for line in plain)  # they stand there
    anew = summarise(replace(facts, documents=(many,), graphs=facts.graphs[:1], notes=(note,)), "x.md", ()).limitations
    assert any("the reported values were traced anew" in line for line in anew)
    assert not any("seq_len >" in line for line in anew)
