"""Recurrent layers and cells: the gates' products and the arithmetic that joins them.

Legend: K input size, H hidden size, G gates (LSTM 4, GRU 3, plain 1), tokens = steps * batch. A layer's weights are
w_ih (G*H, K), w_hh (G*H, H), biases b_ih and b_hh (G*H), and in an LSTM with projection w_hr (P, H).
Per token every weight matrix is used once: 2 * its elements; each bias is an add per element.
"""

from __future__ import annotations

from dataclasses import replace

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ZERO, Call, Cost, Tensor, cost, operator, times, total

#: gates, and FLOPs per hidden unit beside products and biases
_LSTM = (4, 22, "W x + U h of 4 gates 4, three sigmoids 12, tanh 1, f * c + i * g 3, o * tanh(c) 2")
_GRU = (3, 17, "W x + U h of 2 gates 2, two sigmoids 8, tanh(n + r * h) 3, (1 - z) * n + z * h 4")
_TANH = (1, 2, "W x + U h 1, tanh 1")
_RELU = (1, 1, "W x + U h 1")
_KINDS = {"lstm": _LSTM, "gru": _GRU, "rnn_tanh": _TANH, "rnn_relu": _RELU}
_BY_NUMBER = (_RELU, _TANH, _LSTM, _GRU)  # the `mode` of the fused layers of cuDNN and oneDNN


def _weights(call: Call, states: int) -> tuple[list[Tensor], list[Tensor]]:
    """Matrices and biases among the inputs after x and a cell's `states`.

    A layer's states are (layers, batch, H) and its batch sizes integers, so that neither is taken for a weight.
    """
    rest = [t for t in call.inputs[1 + states :] if not t.dtype.startswith("int")]
    return [t for t in rest if len(t.shape) == 2], [t for t in rest if len(t.shape) == 1]


def _units(matrices: list[Tensor], gates: int, *, projected: bool) -> Formula:
    """Hidden units of all layers and directions: w_ih and w_hh have gates * H rows each, w_hr follows where present."""
    return total(w_ih.shape[0] // gates for w_ih in matrices[:: 3 if projected else 2])


def _projected(call: Call) -> bool:
    """An LSTM with projection has a smaller h than c; they are the first two states."""
    states = [t for t in call.inputs[1:3] if len(t.shape) == 3]
    return len(states) == 2 and states[0].shape[-1] != states[1].shape[-1]


def _layer(call: Call, kind: tuple[int, int, str], *, states: int = 0, biased: bool = True) -> Cost:
    gates, per_unit, words = kind
    x = call.inputs[0]
    tokens = times(x.shape[:-1])
    matrices, biases = _weights(call, states)
    matmul = 2 * tokens * total(w.numel for w in matrices)
    adds = tokens * total(b.numel for b in biases) if biased else ZERO
    flops = matmul + adds + tokens * per_unit * _units(matrices, gates, projected=_projected(call))
    return cost(call, flops, f"2 * tokens * weights, the biases, and per hidden unit: {words}", matmul)


@operator("aten.lstm", "aten.gru", "aten.rnn_tanh", "aten.rnn_relu")
def layers(call: Call) -> Cost:
    """All layers and directions of a module: x (steps, batch, K) or packed (tokens, K), states, then its parameters."""
    return _layer(call, _KINDS[call.name.removeprefix("aten.")])


@operator("aten.mkldnn_rnn_layer")
def mkldnn_rnn_layer(call: Call) -> Cost:
    """One layer and direction: x, w_ih, w_hh, b_ih, b_hh (zeros where there are none), hx, cx: states of (batch, H) too."""
    kind, biased = _BY_NUMBER[call.arguments.get("mode", 2)], bool(call.arguments.get("has_biases", True))
    layer = _layer(replace(call, inputs=call.inputs[:5]), kind, biased=biased)
    return cost(call, layer.flops, layer.derivation, layer.matmul_flops)


@operator("aten.lstm_cell", "aten.gru_cell", "aten.rnn_tanh_cell", "aten.rnn_relu_cell")
def cell(call: Call) -> Cost:
    """One step: x (batch, K), the states (batch, H), then w_ih, w_hh and the biases."""
    name = call.name.removeprefix("aten.").removesuffix("_cell")
    return _layer(call, _KINDS[name], states=2 if name == "lstm" else 1)


@operator("aten._thnn_fused_lstm_cell", "aten._thnn_fused_gru_cell")
def fused_cell(call: Call) -> Cost:
    """The arithmetic after the products: gates of x and of h come in as (batch, G*H), biases where present."""
    gates, per_unit, words = _LSTM if "lstm" in call.name else _GRU
    batch, width = call.inputs[0].shape
    biases = total(t.numel for t in call.inputs[3:])
    return cost(call, batch * (per_unit * (width // gates) + biases), f"the biases, and per hidden unit: {words}")
