"""Rules of fused recurrent kernels, norms and rotations against their definitions in plain PyTorch, counted by the reference walk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from cost_walk import walked
from opscope_schemas.formula import Formula
from opscope_tools.trace import operators
from opscope_tools.trace.operators import Call, Cost, Tensor

L, K, V, C = 8, 3, 5, 4  # tokens, width of q and k, width of v, tokens of a chunk


def cost_of(name: str, inputs: list[torch.Tensor], outputs: list[torch.Tensor], **arguments: Any) -> Cost:
    def tensor(t: torch.Tensor) -> Tensor:
        shape = tuple(map(Formula.const, t.shape))
        return Tensor(shape, "float32", Formula.const(4), Formula.const(t.numel()))

    found = operators.cost_of(Call(name, [tensor(t) for t in inputs], [tensor(t) for t in outputs], arguments))
    assert found is not None
    return found


def flops_of(run: Callable[[], Any]) -> int:
    return walked(lambda: (run(), None)[1]).flops


def heads(*widths: int) -> list[torch.Tensor]:
    """Tensors of one sequence and one head: (1, L, 1, width), or (1, L, 1) for width 0."""
    torch.manual_seed(0)
    return [torch.rand(1, L, 1, w) if w else torch.rand(1, L, 1) for w in widths]


def stepped(q: Any, k: Any, v: Any, g: Any) -> Any:
    state, out = torch.zeros(K, V), []
    for t in range(L):
        if g is not None:
            decay = torch.exp(g[t])
            state = state * (decay[:, None] if decay.dim() else decay)
        state = state + k[t][:, None] * v[t][None]
        out.append((q[t] * K**-0.5) @ state)
    return torch.stack(out)


def in_chunks(q: Any, k: Any, v: Any, g: Any) -> Any:
    state, out = torch.zeros(K, V), []
    for start in range(0, L, C):
        at = slice(start, start + C)
        scaled, keys, last = q[at] * K**-0.5, k[at], None
        if g is None:
            scores, read, kept = scaled @ keys.T, scaled, keys
        else:
            b = g[at].cumsum(0)
            last, rest = torch.exp(b[-1]), torch.exp(b[-1] - b)
            if b.dim() == 2:
                read, kept = scaled * torch.exp(b), keys * rest
                scores = read @ (keys * torch.exp(-b)).T
            else:
                read, kept = scaled * torch.exp(b)[:, None], keys * rest[:, None]
                scores = (scaled @ keys.T) * torch.exp(b[:, None] - b[None])
        scores = scores.masked_fill(torch.ones(C, C, dtype=torch.bool).triu(1), 0)
        out.append(scores @ v[at] + read @ state)
        if last is not None:
            state = state * (last[:, None] if last.dim() else last)
        state = state + kept.T @ v[at]
    return torch.cat(out)


@pytest.mark.parametrize(("decay", "width"), [("none", None), ("scalar", 0), ("vector", K)])
@pytest.mark.parametrize(
    ("rule", "definition"), [("recurrent_gated_linear_attention", stepped), ("chunk_gated_linear_attention", in_chunks)]
)
def test_linear_attention_costs_its_recurrence_step_by_step_and_in_chunks(
    rule: str, definition: Any, decay: str, width: int | None
) -> None:
    q, k, v = heads(K, K, V)
    g = None if width is None else -heads(width)[0]
    flat = [t[0, :, 0] for t in (q, k, v)] + [None if g is None else g[0, :, 0]]
    cost = cost_of(rule, [q, k, v, *([] if g is None else [g])], [v], decay=decay, chunk_size=C)
    torch.testing.assert_close(definition(*flat), stepped(*flat))
    assert int(cost.flops.constant() or 0) == flops_of(lambda: definition(*flat))


def test_the_delta_rule_costs_the_gated_one_without_its_decays() -> None:
    q, k, v, g, beta = heads(K, K, V, 0, 0)
    gated = cost_of("chunk_gated_delta_rule", [q, k, v, g, beta], [v], chunk_size=C)
    plain = cost_of("chunk_delta_rule", [q, k, v, beta], [v], chunk_size=C)
    assert plain.matmul_flops == gated.matmul_flops
    # the decays' sum, C differences and exponentials, 2 C products with them, 4 more, 3 K; a chunk's state decayed
    assert gated.flops - plain.flops == Formula.const(L * (4 * C + 5 + 3 * K) + L // C * (K * V + 1))
    gated = cost_of("fused_recurrent_gated_delta_rule", [q, k, v, g, beta], [v])
    plain = cost_of("fused_recurrent_delta_rule", [q, k, v, beta], [v])
    assert gated.flops - plain.flops == Formula.const(L * (K * V + 1))


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize("gated", [False, True])
def test_a_fused_norm_costs_the_norm_the_residual_and_the_gate(kind: str, gated: bool) -> None:
    x, residual, gate = (torch.rand(L, K) for _ in range(3))
    weight, bias = torch.rand(K), torch.rand(K)

    def definition() -> Any:
        y = x + residual
        if kind == "rms":
            y = torch.nn.functional.rms_norm(y, (K,), weight) + bias
        else:
            y = torch.nn.functional.layer_norm(y, (K,), weight, bias)
        return y * torch.nn.functional.silu(gate) if gated else y

    given = ["weight", "bias", "residual", *(["gate"] if gated else [])]
    inputs = [x, weight, bias, residual, *([gate] if gated else [])]
    assert cost_of("fused_norm", inputs, [x], kind=kind, given=given, gate="silu").flops == Formula.const(
        flops_of(definition)
    )


def test_a_rotation_and_a_gated_activation_cost_their_arithmetic() -> None:
    x, angle = torch.rand(1, L, 2, 6), torch.rand(L, 2)  # 4 of 6 are rotated
    cos, sin = torch.cos(angle)[:, None], torch.sin(angle)[:, None]

    def rotated() -> Any:
        a, b = x[..., :2], x[..., 2:4]
        return torch.cat([a * cos - b * sin, a * sin + b * cos, x[..., 4:]], -1)

    assert cost_of("rotary_embedding", [x, cos, sin], [x], rotated=4).flops == Formula.const(flops_of(rotated))
    y = torch.rand_like(x)
    gated = cost_of("gated_activation", [x, y], [x], gate="silu")
    assert gated.flops == Formula.const(flops_of(lambda: torch.nn.functional.silu(x) * y))


def test_xformers_attention_costs_what_torch_attention_costs() -> None:
    q, k, v = torch.rand(2, L, 3, K), torch.rand(2, 6, 3, K), torch.rand(2, 6, 3, V)
    bias = torch.rand(2, 3, L, 6)
    turned = [t.transpose(1, 2) for t in (q, k, v)]
    for mask in ([], [bias]):
        fused = cost_of("xformers.memory_efficient_attention", [q, k, v, *mask], [torch.rand(2, L, 3, V)])
        expected = walked(partial(torch.nn.functional.scaled_dot_product_attention, *turned, *mask))
        assert (fused.flops, fused.matmul_flops) == (Formula.const(expected.flops), Formula.const(expected.products))
