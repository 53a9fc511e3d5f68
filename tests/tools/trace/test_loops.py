"""Loops of Python over the sequence: one step stands for all where they are alike, and for nothing where they are not.

Every class runs on real tensors at sizes inside the conditions that its document states; the reference counts what ran.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import own_modules
import pytest
import torch
import transformers
from cost_walk import walked
from opscope_schemas.formula import evaluate, holds
from opscope_tools.costing.arguments import CostArguments, model_spec, running
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import tracer_of
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import module_analysis
from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace_dataflow import DataflowArguments, trace_dataflow
from sampled import sampled

WIDTH = 24
SHAPES: dict[str, list[str | int]] = {"x": ["batch_size", "seq_len", "width"]}
HEAD = f"""
import torch
from torch import nn


class Loop(nn.Module):
    def __init__(self, width: int = {WIDTH}):
        super().__init__()
        self.width = width
        self.into, self.over = nn.Linear(width, width), nn.Linear(width, width, bias=False)
        self.several = nn.ModuleList(nn.Linear(width, width) for _ in range(3))


"""
#: what a step stands for all of: no number of tokens in the conditions but how many there are at least
FOLDED = {
    "Appends": """
        outs, h = [], torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = torch.tanh(self.into(x[:, t]) + self.over(h))
            outs.append(h)
        return torch.stack(outs, dim=1)""",
    "StartsWithNothing": """
        h, outs = None, []
        for t in range(x.size(1)):
            new = self.into(x[:, t])
            h = new if h is None else new * h
            outs.append(h[:, None])
        return torch.cat(outs, dim=1) + x""",
    "WritesInPlace": """
        b, n, _ = x.shape
        out, state = torch.empty_like(x), x.new_zeros(b, self.width)
        for t in range(n):
            state = state * 0.5 + x[:, t]
            out[:, t] = state
        return self.over(out), state""",
    "KeepsTheLast": """
        n = x.shape[1]
        h = x[:, 0]
        for t in range(1, n):
            h = self.over(h) + x[:, t]
        return h.sum(-1)""",
    "OneBesideTheOthers": """
        outs = [x[:, 0]]
        for t in range(x.shape[1]):
            outs.append(self.over(x[:, t]))
        return torch.stack(outs)""",
    "TwoNamesOfAList": """
        outs = []
        same = outs
        for t in range(x.shape[1]):
            same.append(self.over(x[:, t]))
        return torch.stack(outs, dim=1)""",
    "TakesTheEnds": """
        outs = []
        for t in range(x.shape[1]):
            outs.append(torch.relu(self.over(x[:, t])))
        return torch.stack(outs, dim=1), outs[-1] * 2, outs[0] + outs[1]""",
    "TwoLoops": """
        outs, sums = [], []
        for t in range(x.shape[1]):
            outs.append(self.into(x[:, t]))
            sums.append(outs[-1].sum(-1))
        y = torch.stack(outs, 1)
        for t in range(y.shape[1]):
            y[:, t] = y[:, t] * 2
        return y, torch.stack(sums, dim=-1)""",
}
#: what no step stands for: the steps differ, or more is left of them than their tensors
COUNTED = {
    "Grows": """
        h = x[:, :1]
        for t in range(x.shape[1]):
            h = torch.cat([h, x[:, t : t + 1]], dim=1)
        return h * 2""",
    "TurnsAtOne": """
        h = x[:, 0]
        for t in range(x.shape[1]):
            h = self.over(h) if t == 5 else h + x[:, t]
        return h""",
    "CountsItself": """
        h, seen = x[:, 0], 0
        for t in range(x.shape[1]):
            h = h + x[:, t]
            seen += 1
        return h.repeat(1, seen)""",
    "StopsEarly": """
        h = x[:, 0]
        for t in range(x.shape[1]):
            h = h + x[:, t]
            if h.shape[0] < 0:
                break
        return h""",
    "ReadsTheIndexLater": """
        h = x[:, 0]
        for t in range(x.shape[1]):
            h = h + x[:, t]
        return x[:, :t] * 2""",
    "LayersInEveryStep": """
        outs = []
        for t in range(x.shape[1]):
            h = x[:, t]
            for layer in self.several:
                h = layer(h)
            outs.append(h)
        return torch.stack(outs, 1)""",
    "TwoOfAStep": """
        outs = []
        for t in range(x.shape[1]):
            outs.append(x[:, t] * 2)
            outs.append(x[:, t] + 1)
        return torch.stack(outs, 1)""",
    "KeepsOnItself": """
        self.seen = []
        for t in range(x.shape[1]):
            self.seen.append(x[:, t] * 2)
        return torch.stack(self.seen, 1)""",
    "AddsToAList": """
        outs = []
        for t in range(x.shape[1]):
            outs = outs + [self.over(x[:, t])]
        return torch.stack(outs, 1)""",
    "FillsAList": """
        outs = [None] * x.shape[1]
        for t in range(x.shape[1]):
            outs[t] = self.over(x[:, t])
        return torch.stack(outs, 1)""",
    "FillsATable": """
        outs = {}
        for t in range(x.shape[1]):
            outs[t] = self.over(x[:, t])
        return torch.stack(list(outs.values()), 1)""",
    "WalksThemAgain": """
        outs = []
        for t in range(x.shape[1]):
            outs.append(self.over(x[:, t]))
        total = outs[0]
        for each in outs[1:]:
            total = total + each
        return total""",
    "TakesSomeAfterwards": """
        outs = []
        for t in range(x.shape[1]):
            outs.append(self.over(x[:, t]))
        return torch.stack(outs[1:], 1), torch.stack(outs[::2], 1)""",
}
CLASSES = {**FOLDED, **COUNTED}


def _source() -> str:
    forwards = (f"class {name}(Loop):\n    def forward(self, x):{body}\n" for name, body in CLASSES.items())
    return HEAD + "\n\n".join(forwards)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("loops")
    (folder / "loops.py").write_text(_source(), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def looping(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    yield from own_modules.trusted(folder, tmp_path_factory.mktemp("cache"))


def document(context: ToolContext, name: str) -> Any:
    return count_flops(CostArguments(target=f"loops.{name}", inputs=SHAPES), context).document


@pytest.fixture(scope="module")
def written(folder: Path) -> Any:
    return own_modules.imported(folder / "loops.py")


@pytest.mark.parametrize("name", sampled(CLASSES))
def test_a_loop_costs_what_its_steps_do_wherever_the_conditions_hold(
    name: str, looping: ToolContext, written: Any
) -> None:
    found = document(looping, name)
    draw, checked = random.Random(name), 0
    for seq_len in [11, 3, 4, *(draw.randint(5, 40) for _ in range(8))]:
        values = {"batch_size": draw.randint(2, 9), "seq_len": seq_len, "width": WIDTH, "w_bytes": 2, "a_bytes": 2}
        if not all(holds(condition, values) for condition in found.conditions):
            continue
        module = getattr(written, name)().to(torch.bfloat16).eval()
        tensor = torch.ones(values["batch_size"], seq_len, WIDTH, dtype=torch.bfloat16)
        with torch.no_grad():
            run = walked(partial(module, tensor))
        totals = found.totals
        texts = totals.matmul_flops, totals.flops, totals.memory_access.read, totals.memory_access.write
        assert [evaluate(t, values) for t in texts] == [run.products, run.flops, run.read, run.write], values
        checked += 1
    assert checked > (8 if name in FOLDED else 0), found.conditions


@pytest.mark.parametrize("name", sampled(FOLDED))
def test_alike_steps_are_one_kernel_each_line_with_their_number(name: str, looping: ToolContext) -> None:
    found = document(looping, name)
    assert not any("{seq_len} ==" in condition for condition in found.conditions)
    assert any("{seq_len}" in kernel.repeat for kernel in found.kernels)
    lines = [(kernel.line, kernel.operation, kernel.attribute, kernel.repeat) for kernel in found.kernels]
    assert len(lines) == len(set(lines))


def test_a_step_depends_on_the_step_before_it(looping: ToolContext) -> None:
    flow = trace_dataflow(DataflowArguments(target="loops.WritesInPlace", inputs=SHAPES), looping).document
    (scaled,) = [o for o in flow.operators if o.operator == "aten.mul"]
    (added,) = [o for o in flow.operators if o.operator == "aten.add"]
    assert scaled.carried_from == (added.id,)
    assert scaled.repeat == added.repeat == "{seq_len}"


@pytest.mark.parametrize("name", sampled(CLASSES))
def test_a_pass_on_plain_numbers_counts_a_long_loop_as_its_steps_do(
    name: str, looping: ToolContext, written: Any
) -> None:
    """Its steps too stand for one another where they are alike, so that thousands of them do not run."""
    values = {"batch_size": 3, "seq_len": 150, "width": WIDTH, "w_bytes": 2, "a_bytes": 2}
    spec = model_spec(looping.workspace, f"loops.{name}", None)
    shapes = {given: tuple(shape) for given, shape in SHAPES.items()}
    hints = {given: int(values[given]) for given in ("batch_size", "seq_len")}
    request = TraceRequest(model=spec, inputs=shapes, fit=False, plain=True, hints=hints)
    tree = tracer_of(looping.workspace).trace(request, running(looping))
    module = getattr(written, name)().to(torch.bfloat16).eval()
    tensor = torch.ones(values["batch_size"], values["seq_len"], WIDTH, dtype=torch.bfloat16)
    with torch.no_grad():
        run = walked(partial(module, tensor))
    found = module_analysis(tree, tree.trace.calls[0])
    totals = found.totals
    texts = totals.matmul_flops, totals.flops, totals.memory_access.read, totals.memory_access.write
    assert [evaluate(t, values) for t in texts] == [run.products, run.flops, run.read, run.write]
    assert len(tree.trace.ops) < values["seq_len"] or name not in FOLDED


@pytest.mark.parametrize("model", sampled(["falcon_mamba", "mamba"]))
def test_what_only_fills_a_cache_in_a_loop_leaves_the_caches_length_a_symbol(model: str, context: ToolContext) -> None:
    """Parts of its steps are gone by then; their memory is not taken for that of a tensor made later."""
    config = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99}
    asked = CostArguments.model_validate({"target": model, "phase": "decode", "config": config})
    found = count_flops(asked, context).document
    assert {v.kind for v in found.variables if v.name == "cache_len"} <= {"symbol"}
    assert not any("{cache_len} ==" in condition for condition in found.conditions)


def test_a_loop_whose_first_steps_decide_that_one_sequence_is_one_stands_for_all_its_steps(
    context: ToolContext,
) -> None:
    """In whatever way the pass is run: its sizes symbols decided there, or numbers. The reference is the model itself on real tensors."""
    config = {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2, "vocab_size": 99, "intermediate_size": 40}  # fmt: skip
    hints = {"batch_size": 1, "seq_len": 150}
    spec = model_spec(context.workspace, "rwkv", config)
    tree = tracer_of(context.workspace).trace(TraceRequest(model=spec, fit=False, hints=hints), running(context))
    model = transformers.RwkvForCausalLM(transformers.RwkvConfig(**config)).to(torch.bfloat16).eval()
    with torch.no_grad():
        run = walked(partial(model, torch.ones(1, 150, dtype=torch.int64), use_cache=True))
    values = {**tree.trace.point, **hints, "w_bytes": 2, "a_bytes": 2}
    totals = module_analysis(tree, tree.trace.calls[0]).totals
    assert [evaluate(t, values) for t in (totals.matmul_flops, totals.flops)] == [run.products, run.flops]
    assert len(tree.trace.ops) < 4 * 150
