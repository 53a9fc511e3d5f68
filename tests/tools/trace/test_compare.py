"""What is compared are the single tools' figures, and what makes them differ adds up to their difference."""

from __future__ import annotations

import json
import string
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_schemas.comparison import CompareResult
from opscope_schemas.errors import InputError, OpscopeError, TraceError
from opscope_tools.compare.matching import Node, Part, common_prefix, matched_nodes, matched_parts, places
from opscope_tools.compare.sides import CompareArguments, sides_of
from opscope_tools.compare.tool import COMPARE
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import result_key, run_tool, shorten_to, to_json, validate
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import folder_repository
from sampled import sampled

SMALL = {
    "num_hidden_layers": 3, "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32,
}  # fmt: skip
AT = {"batch_size": 2, "seq_len": 24}


def compared(context: ToolContext, *targets: str, **given: Any) -> CompareResult:
    return run_tool(COMPARE, {"targets": list(targets), **given}, context)


def totals(found: CompareResult, side: int) -> dict[str, Any]:
    return {total.name: total.values[side] for total in found.totals}


def adds_up(found: CompareResult) -> None:
    """Rows and the alike rest are each side's total, exactly where it is whole."""
    exact = found.by in ("flops", "bytes")
    for number in range(1, len(found.sides)):
        rows = [row for row in found.differences if row.side == number]
        same = next(one.figure for one in found.alike if one.side == number)
        left, right = totals(found, 0)[found.by], totals(found, number)[found.by]
        for figure, of in (
            (sum(row.left or 0 for row in rows) + same, left), (sum(row.right or 0 for row in rows) + same, right),
            (sum(row.effect for row in rows), right - left),
            (sum(row.effect for row in found.modules if row.side == number), right - left),
        ):  # fmt: skip
            assert figure == (of if exact else pytest.approx(of, rel=1e-9))
        assert [abs(row.effect) for row in rows] == sorted((abs(row.effect) for row in rows), reverse=True)
        assert all(row.effect for row in rows if not row.only)


@pytest.mark.parametrize("by", ["flops", "bytes"])
@pytest.mark.parametrize(
    ("targets", "given"),
    sampled([
        (["llama", "qwen3"], {}),
        (["llama", "gemma3_text", "mixtral"], {"phase": "decode", "values": {"batch_size": 2, "cache_len": 9}}),
        (["llama", "mamba"], {}),
        (["bert", "t5"], {}),
        (["llama"], {"sides": [{}, {"attention": "eager"}, {"view": "serving"}, {"weights": "int4"}]}),
        (["llama"], {"sides": [{"phase": "prefill"}, {"phase": "decode"}, {"phase": "train"}], "config": SMALL}),
        (["llama"], {"sides": [{}, {"values": {"seq_len": 25}}, {"config": {"num_hidden_layers": 1}}], "config": SMALL}),
    ]),
)  # fmt: skip
def test_differences_and_what_is_alike_are_the_difference_of_the_totals(
    context: ToolContext, targets: list[str], given: dict[str, Any], by: str
) -> None:
    found = compared(context, *targets, by=by, **{"values": AT, **given})
    assert found.by == by
    adds_up(found)
    assert len(to_json(shorten_to(COMPARE, found))) <= 6000


def test_totals_are_those_of_the_single_tools(context: ToolContext) -> None:
    decode = {"phase": "decode", "values": {"batch_size": 3, "cache_len": 40}, "config": SMALL}
    found = compared(context, "llama", "qwen3", hardware="h100_sxm", **decode)
    for number, target in enumerate(("llama", "qwen3")):
        asked = {"target": target, **decode}
        numbers = count_flops(CostArguments.model_validate({**asked, "logits": "last"}), context).numbers
        assert numbers is not None
        timed = estimate_roofline(RooflineArguments.model_validate({**asked, "hardware": "h100_sxm"}), context).totals
        here = totals(found, number)
        for name in ("flops", "matmul_flops", "bytes_read", "bytes_written", "parameters", "weights_bytes"):
            assert here[name] == getattr(numbers, name)
        assert (here["bound_seconds"], here["calibrated_seconds"]) == (timed.bound_seconds, timed.calibrated_seconds)
    assert found.by == "calibrated_seconds"
    adds_up(found)


def test_a_config_of_all_sides_may_be_a_file(context: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llama", **SMALL}))
    session = replace(context, workspace=replace(context.workspace, config_places=(tmp_path,)))
    sides = [{"phase": "prefill"}, {"phase": "decode"}]
    given = {"sides": sides, "values": AT, "by": "flops"}
    by_file = compared(session, "llama", config=str(file), **given)
    assert by_file.totals == compared(context, "llama", config=SMALL, **given).totals
    for own in ({"num_hidden_layers": 1}, str(file)):
        shared = str(file) if isinstance(own, dict) else SMALL
        with pytest.raises(InputError, match="as overrides alone"):
            compared(session, "llama", sides=[{}, {"config": own}], config=shared)


def test_what_engines_fuse_is_the_saving_of_each_rule(context: ToolContext) -> None:
    found = compared(context, "llama", sides=[{"view": "eager"}, {"view": "serving"}], values=AT, config=SMALL)
    served = count_flops(
        CostArguments.model_validate({"target": "llama", "view": "serving", "values": AT, "config": SMALL}), context
    ).serving
    assert served is not None
    assert served.evaluated is not None
    assert totals(found, 1)["bytes"] == served.evaluated["memory_read"] + served.evaluated["memory_write"]
    assert {row.what.removeprefix("saved: ") for row in found.differences} == {rule.rule for rule in served.rules}


def test_equal_sides_differ_in_nothing_and_sizes_that_nobody_gave_are_told(context: ToolContext) -> None:
    found = compared(context, "llama", "llama", config=SMALL, values={"batch_size": 2})
    assert (found.differences, found.modules, found.config, found.forwards) == ((), (), (), ())
    assert found.alike[0].figure == totals(found, 0)[found.by]
    assert found.sides[0].name != found.sides[1].name
    assert any("Sizes that nobody gave: seq_len." in note for note in found.notes)


def test_modules_are_matched_through_the_names_of_their_models(context: ToolContext) -> None:
    """Operators that a Llama shares with a Qwen3 are matched, each with its line on both sides; the norms of heads are not."""
    found = compared(context, "llama", "qwen3", values=AT, config=SMALL, by="flops")
    assert {row.what.rpartition(":")[0].rpartition(".")[2] for row in found.differences if row.only} == {
        "q_norm",
        "k_norm",
    }
    assert {row.only for row in found.differences if row.only} == {"qwen3"}
    changed = next(f for f in found.forwards if f.what.endswith("self_attn"))
    assert any(line.startswith("+") and "self.q_norm" in line for line in changed.lines)
    assert not any(f.what.endswith(".mlp") for f in found.forwards)  # LlamaMLP and Qwen3MLP are the same lines
    assert next(f for f in found.config if f.name == "vocab_size").counts


def test_a_repository_may_bring_its_own_transformers(context: ToolContext) -> None:
    """Under the session's own name or another: the same code costs the same. What is not trusted is not run."""
    here = context.workspace.repositories["transformers"].root / "transformers"
    other = folder_repository("other", here)
    session = replace(
        context.workspace, repositories={**context.workspace.repositories, "other": other}, trusted=frozenset({"other"}),
        _engines={}, _trees={},
    )  # fmt: skip
    sides = [{"name": "one"}, {"repo": "other"}]
    found = compared(replace(context, workspace=session), "llama", sides=sides, values=AT, config=SMALL)
    assert found.differences == ()
    assert found.sides[1].stack
    with pytest.raises(TraceError, match="--trust other"):
        compared(
            replace(context, workspace=replace(session, trusted=frozenset(), _engines={})),
            "llama",
            sides=sides,
            values=AT,
        )
    close_engines(session)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"targets": ["llama"]}, "One side"),
        ({"targets": ["llama"], "sides": [{}]}, "One side"),
        ({"targets": ["llama", "qwen3"], "sides": [{}, {}, {}]}, "2 targets have 3 sides"),
        ({"targets": ["llama"], "sides": [{}, {"fase": "decode"}]}, "Did you mean 'phase'"),
        ({"targets": ["llama"], "sides": [{}, {"hardware": "h100_sxm"}]}, "every side or of none"),
        ({"targets": ["llama"], "sides": [{}, {"parallel": {"tp": 2}}]}, "parallel is of devices"),
        ({"targets": ["llama", "llama"], "by": "seconds"}, "every side or of none"),
        ({"targets": ["llama"], "sides": [{}, {"attention": "eager"}], "hardware": "h100_sxm"}, "Times take no attention"),
        ({"targets": ["llama", "llama"], "values": {"batch_size": "two"}}, "values"),
    ],
)  # fmt: skip
def test_what_makes_no_sides_is_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        sides_of(CompareArguments.model_validate(given))


def test_an_unknown_target_or_repository_is_named(context: ToolContext) -> None:
    with pytest.raises(OpscopeError, match="lamma"):
        compared(context, "llama", "lamma")
    with pytest.raises(OpscopeError, match="nowhere"):
        compared(context, "llama", sides=[{}, {"repo": "nowhere"}])


def test_an_edited_configuration_is_another_question(context: ToolContext, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    session = replace(context.workspace, config_places=(tmp_path,))
    for sides, target in (([{}, {}], str(file)), ([{}, {"config": str(file)}], "llama")):
        keys = set()
        for layers in (1, 2):
            file.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": layers}))
            keys.add(result_key(COMPARE, validate(COMPARE, {"targets": [target], "sides": sides}), session))
        assert len(keys) == 2


# ---------------------------------------------------------------- matching alone

NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=2)
PARTS = st.lists(
    st.builds(
        Part, path=st.sampled_from(["", "a", "a.b", "c"]), name=NAMES, file=st.just("f.py"),
        line=st.integers(1, 3), figure=st.integers(0, 9), role=st.sampled_from(["", "product"]),
    ),
    max_size=12,
)  # fmt: skip


def node(path: str, prefix: str, children: list[Node]) -> Node:
    stem = path.rpartition(".")[2].capitalize() or "Root"
    return Node(path, path.rpartition(".")[2], f"m.{prefix}{stem}", stem, False, ("f.py", 1), children)


@given(PARTS, PARTS, st.dictionaries(st.sampled_from(["", "a", "a.b", "c"]), st.sampled_from(["", "a", "a.b", "c"])))
def test_every_part_stands_once(left: list[Part], right: list[Part], same: dict[str, str]) -> None:
    pairs = matched_parts(left, right, ({}, same))
    assert sum(a.figure for a, _ in pairs if a) == sum(part.figure for part in left)
    assert sum(b.figure for _, b in pairs if b) == sum(part.figure for part in right)
    assert all(a or b for a, b in pairs)
    assert all(a.name == b.name or (a.role and a.role == b.role) for a, b in pairs if a and b)


@given(PARTS, st.lists(NAMES, unique=True, max_size=4))
def test_a_pass_is_like_itself_whatever_its_classes_are_called(parts: list[Part], names: list[str]) -> None:
    trees = [
        node("", prefix, [node("a", prefix, [node("a.b", prefix, [])]), node("c", prefix, [])])
        for prefix in ("Llama", "T5")
    ]
    same = places(matched_nodes(*trees))
    assert same[1] == {"": "", "a": "a", "a.b": "a.b", "c": "c"}
    assert all(a == b for a, b in matched_parts(parts, parts, same))
    classes = [f"Qwen3{name.capitalize()}" for name in names] + ["Qwen3MLP", "Qwen3Model"]
    assert common_prefix(classes) == "Qwen3"


def test_the_interpreter_of_another_environment_is_found(tmp_path: Path) -> None:
    from opscope_tools.compare.sides import _interpreter

    inside = tmp_path / "lib/python3/site-packages"
    inside.mkdir(parents=True)
    (tmp_path / "pyvenv.cfg").write_text("")
    assert _interpreter(inside) is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").write_text("")
    assert _interpreter(inside) == tmp_path / "bin/python"
    assert _interpreter(Path(sys.prefix)) is None
