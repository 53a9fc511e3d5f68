"""Loops over the experts that tokens were routed to cost what they do where none is dropped and as many as can be are met.

Every class runs on real tensors whose tokens are spread over as many experts as there are choices; the reference counts what ran.
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
from cost_walk import walked
from opscope_schemas.formula import evaluate, holds
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.tool import ToolContext
from sampled import sampled

WIDTH, EXPERTS, CHOSEN = 24, 6, 2
SHAPES: dict[str, list[str | int]] = {"x": ["batch_size", "seq_len", WIDTH]}
HEAD = f"""
import torch
from torch import nn


class Experts(nn.ModuleDict):
    def __init__(self):
        super().__init__()
        for index in range({EXPERTS}):
            self[f"expert_{{index}}"] = nn.Sequential(nn.Linear({WIDTH}, 40), nn.ReLU(), nn.Linear(40, {WIDTH}, bias=False))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts()
        self.listed = nn.ModuleList(nn.Linear({WIDTH}, {WIDTH}) for _ in range({EXPERTS}))
        self.up = nn.Parameter(torch.randn({EXPERTS}, 40, {WIDTH}))
        self.down = nn.Parameter(torch.randn({EXPERTS}, {WIDTH}, 40))

    def routed(self, x, classes={EXPERTS}):
        rows = x.reshape(-1, x.shape[-1])
        shares, chosen = torch.topk(rows[:, :{EXPERTS}], {CHOSEN}, dim=-1)
        mask = nn.functional.one_hot(chosen, classes).permute(2, 1, 0)
        return rows, shares, mask, torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()


"""
CLASSES = {
    "ByName": """
        rows, shares, mask, met = self.routed(x)
        out = torch.zeros_like(rows)
        for expert in met:
            place, token = torch.where(mask[expert].squeeze(0))
            made = self.experts[f"expert_{expert[0]}"](rows[None, token].reshape(-1, rows.shape[-1]))
            out.index_add_(0, token, made * shares[token, place, None])
        return out.reshape(x.shape)""",
    "ByPlace": """
        rows, shares, mask, met = self.routed(x)
        out = torch.zeros_like(rows)
        for expert in met.squeeze(-1):
            place, token = torch.where(mask[expert])
            out.index_add_(0, token, self.listed[int(expert)](rows[token]))
        return out.reshape(x.shape)""",
    "OfOneTensor": f"""
        rows, shares, mask, met = self.routed(x, {EXPERTS} + 1)
        out = torch.zeros_like(rows)
        for expert in met:
            expert = expert[0]
            if expert == {EXPERTS}:
                continue
            place, token = torch.where(mask[expert])
            made = nn.functional.linear(torch.relu(nn.functional.linear(rows[token], self.up[expert])), self.down[expert])
            out.index_add_(0, token, made * shares[token, place, None])
        return out.reshape(x.shape)""",
    "Copied": """
        rows, shares, mask, met = self.routed(x)
        parts = []
        for expert in met:
            place, token = torch.where(mask[expert].squeeze(0))
            parts.append(rows[token] @ self.up[expert].squeeze(0).t())
        return torch.cat(parts)""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixtures")
    forwards = (f"class {name}(Mixture):\n    def forward(self, x):{body}\n" for name, body in CLASSES.items())
    (folder / "mixtures.py").write_text(HEAD + "\n\n".join(forwards), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def mixing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    yield from own_modules.trusted(folder, tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def written(folder: Path) -> Any:
    return own_modules.imported(folder / "mixtures.py")


def spread(batch: int, length: int) -> torch.Tensor:
    """Tokens that together choose as many experts as there are choices, or all."""
    rows = torch.zeros(batch * length, WIDTH, dtype=torch.bfloat16)
    for row in range(len(rows)):
        for place in range(CHOSEN):
            rows[row, (CHOSEN * row + place) % EXPERTS] = 2 + place
    return rows.view(batch, length, WIDTH)


@pytest.mark.parametrize("name", sampled(CLASSES))
def test_a_loop_over_experts_costs_what_it_does_where_all_that_can_be_are_met(
    name: str, mixing: ToolContext, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = count_flops(CostArguments(target=f"mixtures.{name}", inputs=SHAPES), mixing).document
    assert any("experts run" in said for said in found.assumptions)
    assert not any(" == " in condition for condition in found.conditions)
    # as a GPU does it: the processor looks at the values first
    monkeypatch.setattr(
        torch.nn.functional, "one_hot", lambda chosen, classes: (chosen[..., None] == torch.arange(classes)).long()
    )
    draw, checked = random.Random(name), 0
    for seq_len in [11, 3, 2, *(draw.randint(2, 40) for _ in range(6))]:
        values = {"batch_size": draw.randint(1, 5), "seq_len": seq_len, "w_bytes": 2, "a_bytes": 2}
        if not all(holds(condition, values) for condition in found.conditions):
            continue
        module = getattr(written, name)().to(torch.bfloat16).eval()
        with torch.no_grad():
            run = walked(partial(module, spread(values["batch_size"], seq_len)))
        totals = found.totals
        texts = totals.matmul_flops, totals.flops, totals.memory_access.read, totals.memory_access.write
        assert [evaluate(t, values) for t in texts] == [run.products, run.flops, run.read, run.write], values
        checked += 1
    assert checked > 3, found.conditions
