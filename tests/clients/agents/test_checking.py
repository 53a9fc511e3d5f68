"""What the check of an answer finds: every single fault in a document, and no fault in another way of writing it.

The documents are the server's own of LlamaMLP and LlamaRMSNorm, and a hand-written one with conditions.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_runs import free_of
from hypothesis import given, settings
from hypothesis import strategies as st
from opscope_clients.agents.analyses import read_analyses, references
from opscope_clients.agents.checking import Check, Difference, schema_differences
from opscope_clients.agents.completing import completed
from opscope_clients.agents.points import points
from opscope_schemas.analysis import Analysis, ModelAnalysis, ModuleAnalysis, Variable
from opscope_schemas.errors import InputError
from opscope_schemas.formula import evaluate, holds
from opscope_server.resources import read_schema
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines, tracer_of
from opscope_tools.running.runner import compact, run_tool
from opscope_tools.running.session import open_workspace
from opscope_tools.running.tool import ToolContext

Document = dict[str, Any]
LLAMA = "transformers/models/llama/modeling_llama.py"
KINDS: dict[str, type[Analysis]] = {"module": ModuleAnalysis, "model": ModelAnalysis}


@pytest.fixture(scope="module")
def context(index_folder: Path) -> Iterator[ToolContext]:
    workspace = open_workspace(repositories=(), trust=(), python=None, cache_folder=str(index_folder), output=None)
    yield ToolContext(workspace)
    tracer_of(workspace).close()
    close_engines(workspace)
    workspace.store.close()


def traced(context: ToolContext, tool: str, **arguments: Any) -> Document:
    """The document that the tool makes of the installed transformers."""
    document: Document = compact(run_tool(tool_named(tool), arguments, context))["document"]
    return document


@pytest.fixture(scope="module")
def norm(context: ToolContext) -> Document:
    return traced(context, "count_flops", target="LlamaRMSNorm")


@pytest.fixture(scope="module")
def module(context: ToolContext) -> Document:
    return traced(context, "count_flops", target="LlamaMLP")


@pytest.fixture(scope="module")
def model(context: ToolContext) -> Document:
    return traced(context, "expand_refs", target="LlamaMLP")


def kind_of(document: Document) -> str:
    return "model" if any(kernel.get("kernels") for kernel in document["kernels"]) else "module"


def found(said: Document, known: Document) -> list[Difference]:
    """What is wrong with `said`, as the analyzers see it."""
    kind = kind_of(known)
    schema = json.loads(read_schema(f"{kind}_analysis"))
    if wrong := schema_differences(said, schema):
        return wrong
    return Check(KINDS[kind].model_validate(known)).differences(KINDS[kind].model_validate(said))


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Every formula of a document, with the way to it."""
    if isinstance(value, dict):
        for name, part in value.items():
            if isinstance(part, str) and name in ("flops", "matmul_flops", "read", "write", "causal_saving"):
                yield (*path, name), part
            else:
                yield from leaves(part, (*path, name))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, (*path, index))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        document = document[step]
    return document


def with_(document: Document, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Document:
    """A copy in which the value at `path` is changed."""
    made = copy.deepcopy(document)
    holder = at(made, path[:-1])
    known = holder if isinstance(holder, list) or path[-1] in holder else {path[-1]: None}
    holder[path[-1]] = change(known[path[-1]])
    return made


# ---- what is right


def test_the_traces_own_documents_have_no_difference_whole_or_in_an_agents_few_fields(
    norm: Document, module: Document, model: Document
) -> None:
    for document in (norm, module, model):
        assert found(document, document) == []
        assert found(free_of(document), document) == []


def test_a_document_written_by_hand_from_the_source_and_the_conventions_is_right(norm: Document) -> None:
    assert found(NORM_BY_HAND, norm) == []


def test_kernels_in_another_order_and_formulas_written_otherwise_are_right(model: Document) -> None:
    said = free_of(model)
    said["kernels"].reverse()
    for path, text in list(leaves(said)):
        at(said, path[:-1])[path[-1]] = f"({text}) * 3 // 3 + {{hidden_size}} - 1 * {{hidden_size}}"
    assert found(said, model) == []


def test_what_an_answer_leaves_out_is_completed_and_what_it_says_is_kept(model: Document) -> None:
    said = free_of(model)
    said["kernels"].reverse()
    said["assumptions"] = ["an assumption of the agent's own"]
    ours = ModelAnalysis.model_validate(model)
    whole = json.loads(json.dumps(compact(completed(ModelAnalysis.model_validate(said), ours, Check(ours)))))
    assert whole["assumptions"] == [*model["assumptions"], "an assumption of the agent's own"]
    assert {kernel["analysis"] for kernel in whole["kernels"]} == {"as the agent explains it"}
    assert [kernel["analysis"] for kernel in whole["kernels"][0]["kernels"]] == ["as the agent explains it"]
    for document in (whole, model):
        document.pop("assumptions")
    assert without_prose(whole) == without_prose(model)


def without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_prose(part) for name, part in value.items() if name != "analysis"}
    return [without_prose(part) for part in value] if isinstance(value, list) else value


# ---- what is wrong


@pytest.mark.parametrize("kind", ["norm", "module", "model"])
def test_every_single_changed_coefficient_is_found_with_its_values(kind: str, request: pytest.FixtureRequest) -> None:
    document = request.getfixturevalue(kind)
    said = free_of(document)
    check = Check(KINDS[kind_of(document)].model_validate(document))
    changed = 0
    for path, text in leaves(said):
        for position in re.finditer(r"(?<![\w{])\d+(?![\w}])", text):
            other = text[: position.start()] + str(int(position.group()) + 1) + text[position.end() :]
            wrong = check.differences(KINDS[kind_of(document)].model_validate(with_(said, path, lambda _: other)))  # noqa: B023 - used at once
            here = [one for one in wrong if one.theirs == other]
            assert here, (path, other)
            at_point = here[0].at.partition(": ")[2].replace(",", "").split(" and ")
            assert len(at_point) == 2, here[0]
            assert at_point[0] != at_point[1]
            changed += 1
    assert changed > 15


@given(data=st.data())
@settings(max_examples=60)
def test_any_variable_exchanged_for_another_or_any_term_added_is_found(data: st.DataObject, model: Document) -> None:
    said = free_of(model)
    path, text = data.draw(st.sampled_from(sorted(leaves(said), key=str)))
    exchanged = data.draw(st.booleans())
    names = [variable["name"] for variable in model["variables"]]
    inside = sorted(set(re.findall(r"\{(\w+)\}", text)))
    if inside and exchanged:
        old = data.draw(st.sampled_from(inside))
        new = data.draw(st.sampled_from([name for name in names if name != old]))
        other = text.replace(f"{{{old}}}", f"{{{new}}}", 1)
    else:
        other = f"{text} + {data.draw(st.integers(1, 3))} * {{{data.draw(st.sampled_from(names))}}}"
    values = {name: 3 + 2 * index**2 for index, name in enumerate(names)}  # all different: equal only if the same
    wrong = found(with_(said, path, lambda _: other), model)
    assert bool(wrong) == (evaluate(other, values) != evaluate(text, values)), (text, other)


@pytest.mark.parametrize("kind", ["norm", "module", "model"])
def test_every_single_dropped_kernel_is_found_by_its_line(kind: str, request: pytest.FixtureRequest) -> None:
    document = request.getfixturevalue(kind)
    for path, kernel in kernels(free_of(document)):
        said = free_of(document)
        del at(said, path[:-1])[path[-1]]
        wrong = found(said, document)
        place = f"{kernel['file']}:{kernel['line']}"
        told = [one for one in wrong if one.place.startswith(place) and "left out" in one.theirs]
        folded = [one for one in wrong if one.field == "kernels"]  # the only kernel below a reference
        assert told or folded, (path, wrong)


@pytest.mark.parametrize("kind", ["norm", "module", "model"])
def test_every_single_shifted_line_is_found(kind: str, request: pytest.FixtureRequest) -> None:
    document = request.getfixturevalue(kind)
    for path, kernel in kernels(free_of(document)):
        for step in (-1, 1):
            wrong = found(with_(free_of(document), (*path, "line"), lambda line: line + step), document)  # noqa: B023 - used at once
            texts = [str(one) for one in wrong]
            assert any(f"{kernel['file']}:{kernel['line']}" in text for text in texts), path
            assert any(f":{kernel['line'] + step}" in text and "invented" in text for text in texts), path


def kernels(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Document]]:
    for index, kernel in enumerate(value.get("kernels") or []):
        here = (*path, "kernels", index)
        yield here, kernel
        yield from kernels(kernel, here)


def test_a_kernel_on_a_line_without_kernels_is_called_invented(norm: Document) -> None:
    said = free_of(norm)
    said["kernels"].append({**said["kernels"][0], "line": 62})
    wrong, *sums = found(said, norm)
    assert (wrong.place, wrong.ours) == (f"{LLAMA}:62", "no kernel on this line")
    assert wrong.theirs.endswith("(invented)")
    assert {one.field for one in sums} == {"sum of memory_access.read", "sum of memory_access.write"}


def test_a_difference_names_line_field_both_formulas_and_the_numbers_at_a_point(norm: Document) -> None:
    said = with_(free_of(norm), ("kernels", 2, "flops"), lambda _: "{batch_size} * {seq_len}")
    wrong, total = found(said, norm)
    assert wrong.place == f"{LLAMA}:64 (aten.mean)"
    assert (wrong.field, wrong.theirs) == ("flops", "{batch_size} * {seq_len}")
    assert wrong.ours == "{batch_size} * {seq_len} * {hidden_size}"
    values = {name: int(number) for name, number in re.findall(r"(\w+)=(\d+)", wrong.at)}
    theirs = values["batch_size"] * values["seq_len"]
    assert wrong.at.endswith(f": {theirs:,} and {theirs * values['hidden_size']:,}")
    assert total.field == "sum of flops"


@pytest.mark.parametrize(
    ("path", "value", "place", "field"),
    [
        (("class_name",), "transformers.models.llama.modeling_llama.LlamaMLPs", "document", "class_name"),
        (("phase",), "decode", "document", "phase"),
        (("line",), 1, "document", "line"),
        (("conditions",), ["{seq_len} >= 2"], "conditions", "entry"),
        (("not_counted",), ["aten.mm at line 164"], "not_counted", "entry"),
        (("instance",), "model.norm", "document", "instance"),
        (("parameters",), "2 * {hidden_size} * {intermediate_size}", "document", "parameters"),
        (("totals", "causal_saving"), "{seq_len}", "totals", "causal_saving"),
        (("kernels", 0, "attribute"), "up_proj", f"{LLAMA}:164 (torch.nn.modules.linear.Linear)", "attribute"),
        (("kernels", 0, "repeat"), "{num_layers}", f"{LLAMA}:164 (torch.nn.modules.linear.Linear)", "repeat"),
        (("kernels", 0, "code"), "x = y", f"{LLAMA}:164 (torch.nn.modules.linear.Linear)", "code"),
        (("kernels", 0, "inputs", 0, "dtype"), "float32", f"{LLAMA}:164 (torch.nn.modules.linear.Linear)", "inputs"),
        (("kernels", 0, "outputs", 0, "shape", 1), "1", f"{LLAMA}:164 (torch.nn.modules.linear.Linear)", "outputs"),
        (("kernels", 3, "operator"), "aten.add", f"{LLAMA}:164 (aten.mul)", "operator"),
        (("variables", 2, "default"), 5, "variables", "hidden_size.default"),
        (("variables", 2, "name"), "width", "variables", "width"),
        (("lines", 0, "flops"), "0", f"lines {LLAMA}:164", "flops"),
        (("model_inputs", 0, "name"), "pixels", "model_inputs", "entry"),
    ],
)  # fmt: skip
def test_what_is_said_in_an_optional_field_is_checked_too(
    module: Document, path: tuple[Any, ...], value: Any, place: str, field: str
) -> None:
    wrong = found(with_(module, path, lambda _: value), module)
    assert (place, field) in {(one.place, one.field) for one in wrong}, wrong


def test_a_reference_to_another_class_or_with_other_parameters_is_found(module: Document) -> None:
    for old, new in (("linear.Linear", "linear.Bilinear"), ("in_features=hidden_size", "in_features=head_dim")):
        said = with_(free_of(module), ("kernels", 0, "operation"), lambda text: text.replace(old, new))  # noqa: B023 - used at once
        assert any(one.field == "operation" and new.split("=")[0] in one.theirs for one in found(said, module))


def test_a_reference_that_is_not_expanded_and_one_that_should_not_be_are_found(
    module: Document, model: Document
) -> None:
    folded = free_of(model)
    del folded["kernels"][0]["kernels"]
    assert [one.theirs for one in found(folded, model)] == ["a reference that is not expanded"]
    check = Check(ModuleAnalysis.model_validate(module))
    wrong = check.differences(ModuleAnalysis.model_validate(free_of(model)))
    assert [(one.field, one.theirs) for one in wrong] == [("kernels", "kernels below it")] * 4


def test_an_unknown_variable_and_a_text_that_is_no_formula_are_named(norm: Document) -> None:
    said = with_(free_of(norm), ("kernels", 1, "flops"), lambda _: "{width}")
    assert "{width} is no variable of the document" in str(found(said, norm)[0])
    said = with_(free_of(norm), ("kernels", 1, "flops"), lambda _: "__import__('os')")
    assert "is not a formula" in str(found(said, norm)[0])


def test_what_is_not_in_the_schema_is_found_before_all_else(norm: Document) -> None:
    said = free_of(norm)
    del said["kernels"][0]["flops"]
    said["verdict"] = "fine"
    assert {one.field for one in found(said, norm)} == {"$", "$.kernels[0]"}


@pytest.mark.parametrize(
    "change",
    ["min({}, 10**30)", "{} + max(0, 3 - {{batch_size}})", "{} + max(0, 1 - {{seq_len}} % 1024)",
     "{} + max(0, {{hidden_size}} - 200000)", "{} + {{seq_len}} // 100003", "{} + max(0, 1 - ({{seq_len}} - 4099)**2)"],
)  # fmt: skip
def test_a_formula_that_is_right_at_most_sizes_is_found_where_it_turns(change: str, norm: Document) -> None:
    said = with_(norm, ("totals", "flops"), lambda text: change.format(text))
    assert "totals: flops" in [f"{d.place}: {d.field}" for d in found(said, norm)]


@pytest.mark.parametrize(
    "same",
    ["({} + {{seq_len}} - 1) - ({{seq_len}} - 1)", "min({0}, {0} + 1)", "-(-({}) // 1)", "ceil(({}) * 2 / 2)",
     "({}) + max({{seq_len}}, 7) + min({{seq_len}}, 7) - {{seq_len}} - 7", "({}) + {{seq_len}} // 2 + ({{seq_len}} + 1) // 2 - {{seq_len}}"],
)  # fmt: skip
def test_a_formula_that_only_reads_otherwise_is_right_at_every_turn_too(same: str, norm: Document) -> None:
    assert found(with_(norm, ("totals", "flops"), lambda text: same.format(text)), norm) == []


@pytest.mark.parametrize(
    "bomb", ["*".join(["9" * 4000] * 3), f"({'*'.join(['9' * 4000] * 3)}) / 7", "9**9**9", "+".join(["9" * 4300] * 9)]
)
def test_a_number_too_long_to_be_printed_is_a_difference(bomb: str, norm: Document) -> None:
    wrong = found(with_(norm, ("kernels", 0, "flops"), lambda _: bomb), norm)
    assert any(d.field == "flops" and ("bits" in d.at or "exponent" in d.at) for d in wrong)


def test_kernels_nested_beyond_reading_are_a_difference(module: Document) -> None:
    deep = module["kernels"][0]
    for _ in range(900):
        deep = {**module["kernels"][0], "kernels": [deep]}
    assert "fewer levels" in str(found({**module, "kernels": [deep]}, module)[0])


def test_an_operator_that_is_worded_as_a_reference_is_found(module: Document) -> None:
    place = next(i for i, kernel in enumerate(module["kernels"]) if kernel["kernel_type"] == "basic")
    said = with_(free_of(module), ("kernels", place, "operation"), lambda _: "${{torch.nn.modules.linear.Linear}}(x)")
    assert [d.field for d in found(said, module)] == ["operation"]


def test_operators_of_one_line_and_one_cost_keep_their_names_in_any_order(module: Document) -> None:
    place = next(i for i, kernel in enumerate(module["kernels"]) if kernel["kernel_type"] == "basic")
    known = copy.deepcopy(module)
    twin = {**known["kernels"][place], "operation": "add(x, y)", "operator": "aten.add"}
    known["kernels"].insert(place, twin)
    ours = ModuleAnalysis.model_validate(known)
    said = free_of(known)
    said["kernels"].reverse()
    whole = completed(ModuleAnalysis.model_validate(said), ours, Check(ours))
    names = [(k.operator.removeprefix("aten."), k.operation.partition("(")[0]) for k in whole.kernels if k.operator]
    assert names == [("add", "add"), ("mul", "mul")]


def test_an_empty_formula_says_nothing_and_conventions_are_the_traces(module: Document) -> None:
    said = {**free_of(module), "parameters": "", "conventions": ["A multiply and an add are 1 FLOP."]}
    said["totals"] = {**said["totals"], "causal_saving": ""}
    assert found(said, module) == []
    ours = ModuleAnalysis.model_validate(module)
    whole = completed(ModuleAnalysis.model_validate(said), ours, Check(ours))
    assert (whole.parameters, whole.totals.causal_saving) == (ours.parameters, ours.totals.causal_saving)
    assert whole.conventions == ours.conventions


def test_a_formula_that_would_take_forever_to_expand_is_compared_by_its_numbers(norm: Document) -> None:
    names = [variable["name"] for variable in norm["variables"]]
    tower = f"({' + '.join(f'{{{name}}}' for name in names)})**120"
    (wrong, *_) = found(with_(free_of(norm), ("kernels", 1, "flops"), lambda _: tower), norm)
    assert wrong.theirs == tower
    pathless = Check(ModuleAnalysis.model_validate({**norm, "conditions": ["{seq_len} < {seq_len}"]}))
    (wrong,) = pathless.formula("", "", tower, "{seq_len}")
    assert "no point" in wrong.at


# ---- points


@pytest.mark.parametrize(
    "conditions",
    [
        ["{a} % {b} == 0", "({a} // {b}) > 1", "{b} >= 3"],
        ["{a} == 2 * {b}", "{c} < {b}", "{c} >= 2"],
        ["{a} * {b} == {c}", "{c} <= 4096"],
        ["{a} > 700 and {a} < 703", "not {b} == {c}"],
    ],
)
def test_points_satisfy_conditions_that_their_defaults_break(conditions: list[str]) -> None:
    known = [Variable(name=name, meaning="", default=1) for name in "abc"]
    drawn = points(known, conditions)
    assert len(drawn) == 8
    assert all(holds(condition, point) for condition in conditions for point in drawn)
    assert len({tuple(point.values()) for point in drawn}) > 2


def test_what_is_fixed_stays_and_what_is_derived_follows() -> None:
    known = [
        Variable(name="heads", meaning="", default=8, kind="fixed"),
        Variable(name="width", meaning="", default=64),
        Variable(name="head_dim", meaning="", definition="{width} // {heads}", kind="derived"),
    ]
    for point in points(known, ["{width} % {heads} == 0", "{head_dim} >= 4"]):
        assert point["heads"] == 8
        assert point["head_dim"] * 8 == point["width"] >= 32


def test_conditions_that_nothing_satisfies_give_no_point_and_writing_decides(norm: Document) -> None:
    impossible = {**norm, "conditions": ["{seq_len} < {seq_len}"]}
    check = Check(ModuleAnalysis.model_validate(impossible))
    assert check.points == []
    assert list(check.formula("", "", "2 * {seq_len}", "{seq_len} + {seq_len}")) == []
    (wrong,) = check.formula("", "", "3 * {seq_len}", "2 * {seq_len}")
    assert "no point" in wrong.at


# ---- analyses of modules


def test_an_analysis_expands_references_in_their_own_sizes_and_the_rest_is_missing(
    tmp_path: Path, context: ToolContext, model: Document
) -> None:
    linear = traced(context, "count_flops", target="torch.nn.Linear", config={"bias": False})
    (tmp_path / "linear.json").write_text(json.dumps(linear))
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    analyses, others = read_analyses(tmp_path, json.loads(read_schema("module_analysis")))
    assert [text.split()[0] for text in others] == ["broken.json", "notes.json"]
    ours = ModelAnalysis.model_validate(model)
    check = Check(ours)
    up, act, down = references(ours, analyses, check)
    assert [(e.analysis is None) for e in (up, act, down)] == [False, True, False]
    assert act.reason == "no analysis of transformers.activations.SiLUActivation"
    (kernel,) = down.kernels()
    (known,) = (k for k in ours.kernels if k.attribute == "down_proj")
    assert known.kernels
    assert list(check.formula("", "", kernel["memory_access"]["read"], known.kernels[0].memory_access.read)) == []


def test_an_analysis_of_another_use_or_phase_is_not_taken_and_the_reason_told(
    tmp_path: Path, context: ToolContext, model: Document
) -> None:
    linear = traced(context, "count_flops", target="torch.nn.Linear")  # with a bias, which no Linear of Llama has
    (tmp_path / "linear.json").write_text(json.dumps(linear))
    schema = json.loads(read_schema("module_analysis"))
    ours = ModelAnalysis.model_validate(model)
    up, *_ = references(ours, read_analyses(tmp_path, schema)[0], Check(ours))
    assert up.analysis is None
    assert "is of another use: flops" in up.reason
    (tmp_path / "linear.json").write_text(json.dumps({**linear, "phase": "decode"}))
    up, *_ = references(ours, read_analyses(tmp_path, schema)[0], Check(ours))
    assert up.reason == "the analysis of torch.nn.modules.linear.Linear is of decode"


def test_a_folder_of_analyses_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_analyses(tmp_path / "none", {})


_ELEMENTS = "{batch_size} * {seq_len} * {hidden_size}"
_ROWS = "{seq_len} * {batch_size}"


def _kernel(line: int, operation: str, flops: str, read: str, write: str) -> Document:
    return {
        "kernel_type": "basic", "operation": operation, "analysis": operation, "file": LLAMA, "line": line,
        "flops": flops, "matmul_flops": "0", "memory_access": {"read": read, "write": write},
    }  # fmt: skip


#: LlamaRMSNorm from its source: 16-bit input (a_bytes), arithmetic in float32 (4 bytes)
NORM_BY_HAND: Document = {
    "class_name": "transformers.models.llama.modeling_llama.LlamaRMSNorm",
    "file": LLAMA, "line": 52, "phase": "prefill", "attention": "sdpa",
    "variables": [{"name": name, "meaning": name} for name in ("batch_size", "seq_len", "hidden_size", "a_bytes", "w_bytes")],
    "kernels": [
        _kernel(63, "cast to float32", "0", f"{_ELEMENTS} * {{a_bytes}}", f"{_ELEMENTS} * 4"),
        _kernel(64, "square", _ELEMENTS, f"{_ELEMENTS} * 4", f"{_ELEMENTS} * 4"),
        _kernel(64, "mean over the last dimension", _ELEMENTS, f"{_ELEMENTS} * 4", f"4 * {_ROWS}"),
        _kernel(65, "add epsilon", _ROWS, f"4 * {_ROWS}", f"4 * {_ROWS}"),
        _kernel(65, "rsqrt", _ROWS, f"4 * {_ROWS}", f"4 * {_ROWS}"),
        _kernel(65, "scale by the root", _ELEMENTS, f"4 * ({_ELEMENTS} + {_ROWS})", f"4 * {_ELEMENTS}"),
        _kernel(66, "cast back", "0", f"4 * {_ELEMENTS}", f"{_ELEMENTS} * {{a_bytes}}"),
        _kernel(66, "scale by the weight", _ELEMENTS, f"{_ELEMENTS} * {{a_bytes}} + {{hidden_size}} * {{w_bytes}}", f"{_ELEMENTS} * {{a_bytes}}"),
    ],
    "totals": {
        "flops": f"4 * {_ELEMENTS} + 2 * {_ROWS}",
        "matmul_flops": "0",
        "memory_access": {
            "read": f"2 * {{a_bytes}} * {_ELEMENTS} + 16 * {_ELEMENTS} + 12 * {_ROWS} + {{hidden_size}} * {{w_bytes}}",
            "write": f"2 * {{a_bytes}} * {_ELEMENTS} + 12 * {_ELEMENTS} + 12 * {_ROWS}",
        },
        "floor": {
            "read": f"{{a_bytes}} * {_ELEMENTS} + {{hidden_size}} * {{w_bytes}}",
            "write": f"{{a_bytes}} * {_ELEMENTS}",
        },
    },
}  # fmt: skip
