"""A formula holds at every point inside the conditions that its document states; config fields are part of a point.

The sample here is small and fixed; the sweep over all types (`make sweep-cost`) checks the same of every type.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from cost_comparison import overrides
from inside_points import check, inside, points
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import holds
from opscope_tools.costing.arguments import CostArguments, model_spec, running
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import tracer_of
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.conditions import shown
from opscope_tools.trace.document import assignment, broken_guard
from opscope_tools.trace.protocol import TraceRequest
from sampled import sampled

DECODERS = ["qwen2_moe", "glm4_moe_lite", "gpt2", "gemma3_text"]
KINDS = [*sampled(DECODERS, 2), "t5", "clip", *sampled(("bert", "swin", "mamba2"), 3)]


@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("model_type", sampled(DECODERS))
def test_random_points_inside_the_conditions_equal_a_concrete_run(
    model_type: str, phase: Any, context: ToolContext
) -> None:
    found = check(model_type, phase, context, count=2)
    assert (found.refused, found.wrong, found.unbuilt) == ("", [], []), found.line()


#: sizes that a class makes from others, loops over the sequence, work for each layer outside of it, sizes that are fitted,
#: builtins as dtypes, clips in one batch, states with channels first, a range between fractions, angles of complex numbers
OTHERS = [
    *sampled(("recurrent_gemma", "jamba", "rwkv", "falcon_mamba", "xlm", "xlstm"), 6),
    *sampled(("llama4_text", "vibevoice_acoustic_tokenizer_decoder", "xclip_vision_model", "idefics3_vision"), 4),
]


@pytest.mark.parametrize("model_type", OTHERS)
def test_random_points_equal_a_concrete_run_whatever_makes_the_sizes(model_type: str, context: ToolContext) -> None:
    found = check(model_type, "prefill", context, count=3)
    assert (found.refused, found.wrong, found.unbuilt) == ("", [], []), found.line()


@pytest.mark.slow
def test_sizes_that_only_symbols_hide_are_numbers_rather_than_lost(context: ToolContext) -> None:
    """mimi pads by lengths that it computes in tensors: of numbers these are known, of symbols they would be data."""
    document = count_flops(CostArguments(target="mimi_encoder"), context).document
    assert document.not_counted == ()


@pytest.mark.parametrize("model_type", KINDS)
def test_a_point_that_meets_the_stated_conditions_meets_every_decision_of_the_trace(
    model_type: str, context: ToolContext
) -> None:
    base = overrides(model_type) if model_type != "mamba2" else {}
    spec = model_spec(context.workspace, model_type, base)
    tree = tracer_of(context.workspace).trace(TraceRequest(model=spec), running(context))
    document = count_flops(CostArguments(target=model_type, config=base), context).document
    draw = random.Random(model_type)
    reached = 0
    for given in points(document, draw, 40):
        values = assignment(document.variables, given)
        assert inside(document, values)
        rest = assignment(tree.trace.variables, given)
        assert broken_guard(tree.trace, {**rest, **values}) == "", given
        reached += 1
    assert reached == 40


def test_what_follows_is_left_out_and_what_does_not_is_shown() -> None:
    guards = (
        "{a} != 1", "{a} * {b} >= 2", "{b} < {a} * {b}", "{h} % {k} == 0", "({h} // {k}) > 1", "{h} != {k}",
        "max(1, {d}) == {d}", "{d} % 2 == 0", "{d} / 2 >= 2", "(({d} + 1) // 2) == ({d} // 2)", "{t} <= {e}", "{x} == 7",
    )  # fmt: skip
    found = shown(guards, {"a": 3, "b": 2, "h": 8, "k": 4, "d": 8, "t": 2, "e": 6, "x": 7}, ())
    assert set(found) == {
        "{x} == 7", "{a} >= 2", "{d} >= 4", "{d} % 2 == 0", "{h} % {k} == 0", "({h} // {k}) > 1", "{t} <= {e}",
    }  # fmt: skip


@pytest.mark.parametrize("definitions", [{}, {"d": "{a} // {b}"}])
def test_conditions_are_no_weaker_than_the_guards_they_stand_for(definitions: dict[str, str]) -> None:
    """Random guards over few sizes: at every small point, the shown conditions hold only where all guards do.

    `d` is always the quotient of two others, which most guards here take to be exact.
    """
    draw = random.Random(5)
    names = ("a", "b", "c", *definitions)
    exact = ("{a} % {b} == 0", "({a} // {b}) != 1", "{a} != {b}", "{b} * {d} == {a}") if definitions else ()
    sizes = [
        {"a": x, "b": y, "c": z, **({"d": x // y} if definitions else {})}
        for x in range(1, 9) for y in range(1, 9) for z in range(1, 5) if x >= y or not definitions
    ]  # fmt: skip
    for _ in range(150):
        point = draw.choice(sizes)
        drawn = (*draw.sample(exact, draw.randint(0, len(exact))), *(_guard(draw, names) for _ in range(9)))
        guards = tuple(g for g in drawn if holds(g, point))
        found = shown(guards, point, [f"{{{name}}} == {text}" for name, text in definitions.items()])
        assert all(holds(c, point) for c in found)
        for other in sizes:
            if all(holds(c, other) for c in found):
                assert all(holds(g, other) for g in guards), (guards, found, other)


@pytest.mark.parametrize("seed", range(4))
def test_products_quotients_and_paddings_are_shown_no_weaker(seed: int) -> None:
    """The same of four free sizes, with what models ask of them: exact divisions by several, equal products, what fills up to a multiple."""
    draw = random.Random(seed)
    names = ("a", "b", "c", "d")
    sizes = [dict(zip(names, drawn, strict=True)) for drawn in itertools.product(range(1, 6), repeat=4)]
    shaped = (
        "{a} % {b} == 0", "{a} % {c} == 0", "({a} * {d}) % {b} == 0", "{a} * {d} == {b} * {c}", "{c} == (({a} * {d}) // {b})",
        "({a} // ({a} // {c})) == {c}", "{a} % ({a} // {c}) == 0", "({a} // {c}) != 1", "({c} % {a}) != 0", "{a} != ({a} // {c})",
        "{b} * max(({a} // {b}), 1) == {a}", "{a} + ((4 - ({a} % 4)) % 4) == 4", "4 * max(({d} + ((4 - ({d} % 4)) % 4)) / 4, 1) == {d}",
        "({d} + ((2 - ({d} % 2)) % 2)) / 2 > 1", "((2 - ({d} % 2)) % 2) >= 0", "({d} // 2) == 2",
    )  # fmt: skip
    for _ in range(20):
        point = draw.choice(sizes)
        drawn = (*draw.sample(shaped, 7), *(_guard(draw, names) for _ in range(5)))
        guards = tuple(g for g in drawn if _meets(g, point))
        found = shown(guards, point, ())
        assert all(_meets(c, point) for c in found), (guards, point, found)
        for other in sizes:
            if all(_meets(c, other) for c in found):
                assert all(_meets(g, other) for g in guards), (guards, found, other)


def test_a_quotient_that_is_exact_and_what_fills_up_are_shown_in_a_few_conditions() -> None:
    heads = (
        "{h} % {k} == 0", "{h} % {d} == 0", "({h} // ({h} // {d})) == {d}", "max(({h} // {d}), 1) * max(1, {d}) == {h}", "{d} != {h}",
        "{h} % ({h} // ({h} // {d})) == 0", "({h} // {d}) != 1", "{h} != ({h} // {d})", "({d} % {h}) != 0",
        "{t} * max(({h} // {d}), 1) <= {t} * max(({h} // {d}), 1) * max(1, {d})",
    )  # fmt: skip
    found = shown(("{k} >= 2", "{d} >= 2", *heads), {"h": 8, "k": 4, "d": 2, "t": 3}, ())
    assert set(found) == {"{k} >= 2", "{d} >= 2", "{h} % {k} == 0", "{h} % {d} == 0", "({h} // {d}) != 1"}
    filled = "{t} + ((64 - ({t} % 64)) % 64)"
    assert set(shown((f"{filled} == 64", f"({filled}) / 64 != 64", "{t} != 64"), {"t": 3}, ())) == {"{t} <= 63"}
    assert set(shown((f"{filled} == {{t}}", f"({filled}) / 64 > 2"), {"t": 192}, ())) == {"{t} % 64 == 0", "{t} >= 129"}
    products = (
        "{h} * {x} == {k} * {d}",
        "({h} * {x}) % {k} == 0",
        "{d} == (({h} * {x}) // {k})",
        "{t} * {h} * {x} == {t} * {k} * {d}",
    )
    assert shown(products, {"h": 6, "x": 2, "k": 4, "d": 3, "t": 5}, ()) == ("{h} * {x} == {d} * {k}",)


def test_an_equality_is_shown_once_however_it_is_turned() -> None:
    rows, made = "({h} // {p}) * ({w} // {p})", "({s} // {p})**2"
    found = shown(
        (f"{rows} == {made}", f"{made} == {rows}", f"{made} != 9", f"9 != {made}"), {"h": 9, "w": 9, "s": 8, "p": 4}, ()
    )
    assert sum("==" in one for one in found) == 1
    assert sum("!=" in one for one in found) <= 1


def _meets(guard: str, point: dict[str, int]) -> bool:
    """Whether a guard holds at a point; none does that divides by zero there."""
    try:
        return holds(guard, point)
    except ValuesError:
        return False


def _guard(draw: random.Random, names: tuple[str, ...]) -> str:
    def term() -> str:
        x, y = (f"{{{draw.choice(names)}}}" for _ in range(2))
        number = draw.randint(1, 5)
        forms = (x, f"{number} * {x}", f"{x} * {y}", f"({x} // {y})", f"({x} // {number})", f"(({x} + 1) // 2)",
                 f"max(1, {x})", f"min({x}, {y})", f"({x} + {y})", f"{number}")  # fmt: skip
        return draw.choice(forms)

    if draw.random() < 0.25:
        return f"{term()} % {draw.choice((*(f'{{{n}}}' for n in names), '2', '3'))} == 0"
    if draw.random() < 0.15:
        return f"({term()} < {term()} or {term()} == {term()})"
    return f"{term()} {draw.choice(('==', '!=', '<', '<=', '>', '>='))} {term()}"


@pytest.mark.parametrize(
    "model_type", sampled(["glm4_moe_lite", "exaone_moe", "ernie4_5_moe", "deepseek_v3", "qwen2_moe"])
)
def test_a_field_of_the_config_is_one_variable(model_type: str, context: ToolContext) -> None:
    document = count_flops(CostArguments(target=model_type), context).document
    keys = [v.config_key for v in document.variables if v.config_key]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("model_type", "values"),
    sampled(
        [
            ("glm4_moe_lite", {"n_routed_experts": 8}),
            ("glm4_moe_lite", {"num_layers": 51}),
            ("qwen2_moe", {"num_heads": 48, "num_kv_heads": 16, "hidden_size": 48 * 16}),
            ("ernie4_5_moe", {"num_layers": 31, "num_experts": 16}),
        ],
        2,
    ),
)
def test_values_of_config_fields_have_the_weights_of_a_model_built_with_them(
    model_type: str, values: dict[str, int], context: ToolContext
) -> None:
    import trace_reference as reference
    from inside_points import parameters

    base = overrides(model_type)
    asked = CostArguments(target=model_type, config=base, values={"batch_size": 2, "seq_len": 8, **values})
    result = count_flops(asked, context)
    real = reference.config_of(
        model_type,
        {**base, **{reference.config_of(model_type, {}).attribute_map.get(k, k): v for k, v in _own(values).items()}},
    )
    assert result.evaluated is not None
    assert result.evaluated.parameters == parameters(result.document, real)


def _own(values: dict[str, int]) -> dict[str, int]:
    names = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
    }
    return {names.get(name, name): value for name, value in values.items()}


def test_what_fills_tokens_up_to_a_multiple_is_in_no_formula_where_the_conditions_leave_nothing_to_fill(
    context: ToolContext,
) -> None:
    """falcon_h1 pads its tokens to chunks of 256 and cuts the padding off again only where there is some."""
    config = {
        "num_hidden_layers": 2, "hidden_size": 128, "intermediate_size": 256, "vocab_size": 512, "mamba_d_ssm": 128, "mamba_n_heads": 4
    }  # fmt: skip

    def found(length: int) -> ModuleAnalysisResult:
        values = {"batch_size": 1, "seq_len": length}
        asked = {"target": "falcon_h1", "phase": "prefill", "config": config, "values": values}
        return count_flops(CostArguments.model_validate(asked), context)

    one, other = found(512), found(768)
    assert "{seq_len} % 256 == 0" in one.document.conditions
    told = one.document.model_dump_json()
    assert told.count("% 256") == told.count("{seq_len} % 256 == 0") == 1
    assert one.evaluated is not None
    assert other.evaluated is not None
    assert other.document.totals == one.document.totals


def test_angles_of_complex_numbers_make_no_number_of_the_sequence(context: ToolContext) -> None:
    document = count_flops(CostArguments(target="llama4_text", config=overrides("llama4_text")), context).document
    assert not [said for said in document.assumptions if "fitted" in said]
    assert "{seq_len}" in document.totals.flops
