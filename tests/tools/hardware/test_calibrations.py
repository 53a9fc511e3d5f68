"""Calibrated times: tables read between their knots, what ships, and the properties that any time must have."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_tools.hardware.calibration import (
    ELSEWHERE,
    FOLDER,
    between,
    beyond,
    calibration_of,
    chosen,
    generic,
    rates,
    timed,
)
from opscope_tools.hardware.devices import shipped
from opscope_tools.hardware.forms import (
    BYTES,
    DECODE_ATTENTION,
    DELTA_PREFILL,
    EXPERTS,
    FORMS,
    LATENT_DECODE,
    LATENT_PREFILL,
    PREFILL_ATTENTION,
    PRODUCT,
    WINDOW_DECODE,
    WINDOW_PREFILL,
    Rates,
)
from opscope_tools.hardware.grids import Axis, interpolated

CALIBRATED = sorted(path.stem for path in FOLDER.glob("*.json") if path.stem != ELSEWHERE)
AXES = (Axis("m", (1, 8, 64, 1024)), Axis("n", (2, 32, 512)))
positive = st.floats(0.01, 1e6)


@given(st.lists(st.floats(-2, 2), min_size=12, max_size=12), st.integers(0, 3), st.integers(0, 2))
def test_at_a_knot_a_table_is_its_entry(table: list[float], i: int, j: int) -> None:
    assert interpolated(AXES, table, (AXES[0].knots[i], AXES[1].knots[j])) == pytest.approx(table[3 * i + j], abs=1e-9)


@given(st.tuples(*[st.floats(-2, 2)] * 3), positive, positive)
def test_a_table_that_is_linear_in_logarithms_is_read_without_error(
    line: tuple[float, float, float], m: float, n: float
) -> None:
    a, b, c = line
    table = [a + b * math.log(x) + c * math.log(y) for x, y in itertools.product(*(axis.knots for axis in AXES))]
    inside = [min(max(v, axis.knots[0]), axis.knots[-1]) for v, axis in zip((m, n), AXES, strict=True)]
    wanted = a + b * math.log(inside[0]) + c * math.log(inside[1])
    assert interpolated(AXES, table, (m, n)) == pytest.approx(wanted, abs=1e-6)


def test_what_ships_is_of_known_devices_and_forms_and_says_whose_measurements_it_is() -> None:
    assert {"a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm"} <= set(CALIBRATED)
    for name in CALIBRATED:
        held = calibration_of(name)
        assert held is not None
        assert name in shipped()
        assert held.licence == "Apache-2.0"
        for one in held.classes:
            form = FORMS[one.form]
            assert len(one.parameters) == len(form.parameters) <= 10
            assert len(one.factors) == math.prod(len(axis.knots) for axis in form.axes)
            assert all(p > 0 for p in one.parameters)
            assert one.spread[-1].seconds is None
            assert all(0 < s.low <= s.high for s in one.spread)
            assert len(held.tables[one.table]) == 64


def test_what_ships_for_devices_that_nobody_measured_says_so_and_spreads_wider_than_what_was_measured() -> None:
    held = generic(shipped()["mi300x"])
    assert held.device == "mi300x"
    assert held.source.startswith("uncalibrated")
    assert calibration_of("mi300x") is None
    assert {"product", "decode_attention", "prefill_attention", "experts"} <= {c.form for c in held.classes}
    wider = []
    for one in held.classes:
        assert len(one.parameters) == len(FORMS[one.form].parameters)
        assert 0 < one.spread[0].low <= one.spread[0].high
        own = calibration_of("h100_sxm")
        assert own is not None
        same = chosen(own, FORMS[one.form], one.precision, one.backend, one.head_dim)
        if same is not None and same.precision == one.precision:
            wider.append(one.unseen.mape > same.unseen.mape)
    assert sum(wider) > 0.8 * len(wider)


@pytest.mark.parametrize("precision", ["mxfp4", "int4"])
def test_a_class_of_which_every_shape_is_in_the_fit_says_what_it_was_judged_by(precision: str) -> None:
    held = calibration_of("h100_sxm")
    assert held is not None
    found = chosen(held, EXPERTS, precision, "vllm")
    assert found is not None
    assert (found.precision, found.held_out) == (precision, "token counts")
    assert found.unseen.rows > 100
    assert all(one.held_out == "shapes" for one in held.classes if one.form != "experts")


def test_what_ships_stays_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.glob("*.json")) < 2_000_000


@dataclass(frozen=True)
class Promise:
    """The mean absolute error on unseen shapes that a class is to stay within, per cent."""

    form: str
    backend: str
    precision: str
    head_dim: int | None
    most: float


@pytest.mark.parametrize("name", ["h100_sxm", "h200_sxm", "b200_sxm"])
@pytest.mark.parametrize(
    "promise",
    [
        Promise("product", "vllm", "bf16", None, 10), Promise("product", "trtllm", "fp8_block", None, 8),
        Promise("decode_attention", "vllm", "bf16", 128, 10), Promise("prefill_attention", "trtllm", "bf16", 128, 10),
        Promise("latent_prefill", "trtllm", "bf16", None, 10), Promise("latent_decode", "trtllm", "bf16", None, 13),
        Promise("gated_delta_decode", "vllm", "bf16", None, 10), Promise("gated_delta_prefill", "vllm", "bf16", None, 10),
        Promise("all_reduce", "trtllm", "bf16", None, 10), Promise("experts", "vllm", "fp8", None, 20),
        Promise("experts", "vllm", "bf16", None, 20), Promise("experts", "vllm", "fp8_block", None, 20),
        Promise("window_decode_attention", "vllm", "bf16", 128, 10),
    ],
    ids=lambda p: f"{p.form}-{p.backend}-{p.precision}",
)  # fmt: skip
def test_errors_on_unseen_shapes_as_kept_with_the_parameters(name: str, promise: Promise) -> None:
    held = calibration_of(name)
    assert held is not None
    found = chosen(held, FORMS[promise.form], promise.precision, promise.backend, promise.head_dim)
    assert found is not None
    assert (found.backend, found.precision, found.head_dim) == (promise.backend, promise.precision, promise.head_dim)
    assert found.unseen.mape <= promise.most


@pytest.mark.parametrize(("m", "measured"), [(1024, 117.9e-6), (1025, 194.3e-6), (256, 37.7e-6), (257, 80.0e-6)])
def test_one_row_more_than_tiles_hold_costs_a_product_in_8_bits_what_it_was_measured_to(
    m: int, measured: float
) -> None:
    """Of vLLM's CUTLASS kernel, rows as aiconfigurator's table of the device has them."""
    held, device = calibration_of("h100_sxm"), shipped()["h100_sxm"]
    assert held is not None
    found = chosen(held, PRODUCT, "fp8", "vllm")
    assert found is not None
    asked = {"m": m, "n": 8192, "k": 8192, "weight_bytes": 1.0, "activation_bytes": 1.0}
    assert timed(found, asked, rates(device, "fp8")).seconds == pytest.approx(measured, rel=0.2)


@given(st.sampled_from(["h100_sxm", "b200_sxm"]), st.integers(65, 255), st.sampled_from([16, 256, 1024, 8192]))
def test_a_head_width_between_two_measured_ones_takes_what_lies_between_them(name: str, width: int, new: int) -> None:
    held, offered = calibration_of(name), rates(shipped()[name], "bf16")
    assert held is not None
    asked = {"b": 2.0, "h": 32.0, "kv": 8.0, "d": float(width), "new": float(new), "cache_bytes": 2.0}
    near = chosen(held, PREFILL_ATTENTION, "bf16", "vllm", width)
    assert near is not None
    assert near.head_dim is not None
    other = beyond(held, near, width)
    assert (other is None) == (near.head_dim == width)
    if other is None:
        return
    assert other.head_dim is not None
    assert min(near.head_dim, other.head_dim) < width < max(near.head_dim, other.head_dim)
    found = between(near, other, asked, offered)
    ends = [timed(one, {**asked, "d": float(one.head_dim or 0)}, offered).seconds for one in (near, other)]
    assert min(ends) <= found.seconds <= max(ends)
    assert found.low <= found.seconds <= found.high
    assert "d" not in found.outside


sizes = st.sampled_from([16, 64, 256, 1024, 4096, 16384])


@given(st.sampled_from(["a100_sxm", "h100_sxm", "b200_sxm"]), st.integers(1, 16384), sizes, sizes)
def test_a_product_takes_longer_than_its_launch_and_stands_within_its_spread(name: str, m: int, n: int, k: int) -> None:
    held = calibration_of(name)
    assert held is not None
    fitted = chosen(held, PRODUCT, "bf16")
    assert fitted is not None
    x = {"m": m, "n": n, "k": k, "weight_bytes": 2.0, "activation_bytes": 2.0}
    found = timed(fitted, x, rates(shipped()[name], "bf16"))
    assert 0 < found.low <= found.high
    assert found.seconds > 0.3 * fitted.parameters[0]
    assert ("n" in found.outside) == (not fitted.sizes["n"][0] <= n <= fitted.sizes["n"][1])


def test_work_is_that_of_the_definition() -> None:
    product = PRODUCT.work({"m": 3, "n": 5, "k": 7, "weight_bytes": 1.0, "activation_bytes": 2.0})
    assert product == (2 * 3 * 5 * 7, 2 * 21 + 35 + 2 * 15)
    decode = DECODE_ATTENTION.work({"b": 2, "h": 8, "kv": 2, "d": 16, "context": 100, "cache_bytes": 1.0})
    assert decode == (4 * 2 * 8 * 16 * 100, 2 * 2 * 100 * 2 * 16 + 4 * 2 * 8 * 16)
    b, h, d, new = 1, 2, 4, 3
    pairs = sum(1 for q in range(new) for k in range(new) if k <= q)
    assert (
        PREFILL_ATTENTION.work({"b": b, "h": h, "kv": 1, "d": d, "new": new, "cache_bytes": 2.0})[0]
        == 4 * b * h * d * pairs
    )


def test_work_over_latents_is_that_of_attention_with_one_key_head_whose_values_are_part_of_its_keys() -> None:
    b, h, context, rank, rope = 2, 8, 100, 32, 4
    work = LATENT_DECODE.work({"b": b, "h": h, "context": context, "rank": rank, "rope": rope, "cache_bytes": 1.0})
    scores, results = 2 * b * h * context * (rank + rope), 2 * b * h * context * rank
    queries, written = 2 * b * h * (rank + rope), 2 * b * h * rank
    assert work == (scores + results, b * context * (rank + rope) + queries + written)


@given(st.integers(1, 4), st.integers(1, 64), st.sampled_from([(192, 128), (96, 64), (64, 64)]))
def test_expanded_latents_are_plain_attention_where_keys_are_as_wide_as_values(
    b: int, new: int, widths: tuple[int, int]
) -> None:
    keys, values = widths
    x = {"b": b, "h": 4, "kv": 4, "new": new, "keys": keys, "values": values, "d": values, "cache_bytes": 2.0}
    flops, moved = LATENT_PREFILL.work(x)
    pairs = b * 4 * new * (new + 1) // 2
    assert flops == 2 * pairs * keys + 2 * pairs * values
    if keys == values:
        assert (flops, moved) == PREFILL_ATTENTION.work(x)


@given(st.integers(1, 40), st.integers(1, 60))
def test_a_window_counts_what_each_query_sees(new: int, window: int) -> None:
    x = {"b": 2, "h": 4, "kv": 2, "d": 8, "new": new, "context": new, "window": window, "cache_bytes": 2.0}
    pairs = sum(1 for q in range(new) for k in range(new) if q - window < k <= q)
    assert WINDOW_PREFILL.work(x)[0] == 4 * 2 * 4 * 8 * pairs
    last = sum(1 for k in range(new) if new - 1 - window < k)
    assert WINDOW_DECODE.work(x) == DECODE_ATTENTION.work({**x, "context": last})


def test_mxfp4_weights_take_the_kernels_whose_activations_are_mxfp8_where_they_were_measured() -> None:
    found = calibration_of("b200_sxm")
    assert found is not None
    kinds = {(c.backend, c.precision) for c in found.classes if c.form == "experts" and c.precision.startswith("mxfp4")}
    assert len(kinds) == sum(c.form == "experts" and c.precision.startswith("mxfp4") for c in found.classes)
    for backend in ("trtllm", "sglang"):
        one = chosen(found, FORMS["experts"], "mxfp4", backend)
        assert one is not None
        assert (one.backend, one.precision) == (backend, "mxfp4_mxfp8")


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3))
def test_a_delta_rule_reads_and_writes_each_state_once_however_many_tokens_are_new(
    b: int, new: int, heads: int
) -> None:
    x = {"b": b, "new": new, "k_heads": heads, "v_heads": 2 * heads, "k_dim": 8, "v_dim": 16}
    flops, moved = DELTA_PREFILL.work(x)
    states = b * 2 * heads * 8 * 16
    products = sum(2 * states for _ in range(new) for _ in ("what is remembered", "what is put in", "what is read"))
    assert flops == products
    assert moved - 2 * 4 * states == 2 * b * new * heads * (8 + 8 + 2 * 16 + 2 * 16)  # q, k, v and the result


@given(st.integers(1, 8192), st.sampled_from([8, 64, 128]), st.sampled_from([1, 2, 8]))
def test_experts_touched_are_never_more_than_there_are_or_are_chosen(tokens: int, experts: int, topk: int) -> None:
    x = {
        "tokens": tokens,
        "hidden": 64.0,
        "inter": 32.0,
        "topk": topk,
        "experts": experts,
        "tp": 1,
        "ep": 1,
        "matrices": 3,
        "weight_bytes": 2.0,
    }
    _, moved = FORMS["experts"].work(x)
    activations = 4 * tokens * 64 + tokens * topk * (4 * 64 + 6 * 32)
    touched = (moved - activations) / (3 * 64 * 32 * 2)
    assert 0 < touched <= min(experts, tokens * topk) + 1e-6


def test_bytes_of_an_element_hold_the_scales_beside_it() -> None:
    assert BYTES["mxfp4"] == (32 * 4 + 8) / 32 / 8
    assert BYTES["nvfp4"] == (16 * 4 + 8) / 16 / 8
    assert BYTES["bf16"] == 2.0


def test_base_of_every_form_grows_with_the_work() -> None:
    small = {"m": 8, "n": 512, "k": 512, "weight_bytes": 2.0, "activation_bytes": 2.0, "b": 2, "h": 8, "kv": 2, "d": 128, "context": 64,
             "new": 64, "cache_bytes": 2.0, "tokens": 8, "hidden": 512, "inter": 256, "topk": 2, "experts": 8, "tp": 1, "ep": 1,
             "matrices": 3, "skew": 1.0, "window": 64 * 64, "bytes": 4096, "ranks": 2, "rank": 512, "rope": 64, "keys": 192, "values": 128, "k_heads": 2, "v_heads": 8, "k_dim": 128,
             "v_dim": 128, "channels": 1024, "width": 4}  # fmt: skip
    offered = Rates(1e15, 3e12, 132.0, 4e11)
    for form in FORMS.values():
        size = next(n for n in ("m", "context", "new", "tokens", "bytes") if n in form.sizes)
        assert form.base(form.start, {**small, size: 64 * small[size]}, offered) > form.base(form.start, small, offered)
