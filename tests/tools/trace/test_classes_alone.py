"""Modules of a trusted repository from nothing but the class: what its own words, its weights and its file tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opscope_schemas.errors import OpscopeError
from opscope_schemas.formula import evaluate
from opscope_tools.costing.arguments import CostArguments, find
from opscope_tools.count_flops import count_flops
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

SOURCE = '''
from typing import Optional

import torch
from torch import nn


class Patches(nn.Module):
    """Takes pictures of its own size alone."""

    def __init__(self, img_size=32, patch_size=8, in_chans=3, embed_dim=48):
        super().__init__()
        self.img_size = (img_size, img_size)
        self.proj = nn.Conv2d(in_chans, embed_dim, patch_size, patch_size)

    def forward(self, x):
        B, C, H, W = x.shape
        assert H == self.img_size[0], "wrong height"
        assert W == self.img_size[1], "wrong width"
        return self.proj(x).flatten(2).transpose(1, 2)


class Noted(nn.Module):
    def __init__(self, dim: int = 32, context_dim: int = 20):
        super().__init__()
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(context_dim, dim, bias=False)

    def forward(self, hidden: torch.Tensor, context: torch.Tensor = None, step: torch.LongTensor = None, guide: torch.Tensor = None):
        """
        Args:
            hidden (`torch.Tensor` of shape `(batch_size, dim, height, width)`): pictures.
            context (`torch.Tensor` of shape `(batch size, text_length, context_dim)`): texts.
            step (`torch.LongTensor`): a number each.
            guide (`torch.Tensor`, *optional*): nothing that this module has weights for.
        """
        assert guide is None, "no weights for a guide"
        q = self.q(hidden.flatten(2).transpose(1, 2) * step.view(-1, 1, 1))
        return q @ self.k(context).transpose(1, 2)


class Waves(nn.Module):
    def __init__(self, width: int = 24):
        super().__init__()
        self.conv = nn.Conv1d(1, width, 5, bias=False)

    def forward(self, wave):
        """Encodes.

        Args:
            wave (torch.Tensor): 3D tensor with shape [batch, channel==1, frames]
        """
        if wave.ndim != 3 or wave.shape[1] != 1:
            raise ValueError("Expected 3D tensor (batch, channel==1, frames).")
        return self.conv(wave)


class Table(nn.Module):
    """Two weights that one operator reads, and sizes that are fitted: which is larger is decided at numbers."""

    def __init__(self, width: int = 24, rows: int = 7):
        super().__init__()
        self.table = nn.Parameter(torch.ones({rows: rows}[rows], {width: width}[width]))

    def forward(self, x):
        return x @ self.table[1:].t() + x @ self.table[:-1].t()


class Grid(nn.Module):
    """Places in a grid, which are known while it runs."""

    def forward(self, x: torch.Tensor):
        places = torch.arange(16, device=x.device)
        rows, columns = torch.meshgrid(places, places, indexing="ij")
        blocks = [each.reshape(8, 2, 8, 2).transpose(1, 2).flatten() for each in (rows, columns)]
        return x + torch.stack(blocks, dim=-1).sum()


class Inner(nn.Module):
    def __init__(self, dim: int, depth=None):
        super().__init__()
        assert depth is not None, "`depth` must be passed in"
        self.weight = nn.Parameter(torch.ones(2 * dim, dim))

    def forward(self, x):
        return (self.weight @ x.transpose(1, 2)).transpose(1, 2)


class Gaps(nn.Module):
    """A list of modules in which one place is empty."""

    def __init__(self, dim: int = 16):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(dim, dim, bias=False), None, nn.Linear(dim, dim, bias=False)])

    def forward(self, x):
        for part in self.parts:
            x = part(x) if part is not None else x
        return x


class Outer(nn.Module):
    """Takes a part by its class, and multiplies by a weight from the left."""

    def __init__(self, inner: Inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


class Chosen(nn.Module):
    def __init__(self, dim, num_heads: int, hidden_features: int, drop: float):
        super().__init__()
        assert dim % num_heads == 0
        self.up, self.down = nn.Linear(dim, hidden_features, bias=False), nn.Linear(hidden_features, dim, bias=False)

    def forward(self, x):
        return self.down(self.up(x))


class Needy(nn.Module):
    def __init__(self, block, dim: int):
        super().__init__()
        self.block = block(dim)

    def forward(self, x):
        return self.block(x)


class Stack(nn.Module):
    def __init__(self, block, widths, out_dim: int):
        super().__init__()
        self.parts = nn.Sequential(*[block(w) for w in widths], nn.Linear(widths[-1], out_dim, bias=False))

    def forward(self, x):
        return self.parts(x)


def square(width):
    return nn.Linear(width, width, bias=False)


def small_stack(pretrained=False, **kwargs) -> Stack:
    return Stack(square, [40, 40], out_dim=56, **kwargs)


class Hashed(nn.Module):
    """Its width is a key of a table, which no symbol can be."""

    def __init__(self, width: int = 24):
        super().__init__()
        self.linear = nn.Linear({width: width}[width], 2 * width, bias=False)

    def forward(self, x):
        return self.linear(x)


class Remembers(nn.Module):
    """Keeps what it computed for the longest input so far."""

    def __init__(self, dim: int = 16):
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)
        self.table = None

    def forward(self, x):
        if self.table is None or len(self.table) < x.shape[1]:
            self.table = torch.arange(x.shape[1]).float() * 2.0
        return self.linear(x) + self.table[: x.shape[1], None].to(x.dtype)


class Refuses(nn.Module):
    def __init__(self, dim: int = 16):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, mapping):
        return self.linear(mapping["x"])
'''
FUSED = """
import torch
from torch import nn
from flash_attn import flash_attn_func
from flash_attn.ops.triton.layer_norm import rms_norm_fn
from mamba_ssm.ops.selective_scan_interface import selective_scan_fn


class Attends(nn.Module):
    def __init__(self, dim: int = 32, heads: int = 4):
        super().__init__()
        self.heads = heads
        self.weight = nn.Parameter(torch.ones(dim))
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)

    def forward(self, x):
        b, n, d = x.shape
        x = rms_norm_fn(x, self.weight, None)
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).unbind(2)
        return flash_attn_func(q, k, v, causal=True).reshape(b, n, d)
"""
OPTIONAL = """
import torch
from torch import nn

try:
    from xformers.ops import memory_efficient_attention
except ImportError:
    memory_efficient_attention = None


class MayAttend(nn.Module):
    def __init__(self, dim: int = 32):
        super().__init__()
        self.linear = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        x = self.linear(x)
        if memory_efficient_attention is not None:
            return memory_efficient_attention(x, x, x)
        return x @ x.transpose(1, 2)
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    folder = tmp_path_factory.mktemp("repository")
    for name, source in (("alone", SOURCE), ("fused", FUSED), ("maybe", OPTIONAL)):
        (folder / f"{name}.py").write_text(source)
    cache = tmp_path_factory.mktemp("cache")
    found = Workspace.create(cache_folder=cache, repositories=[("mine", folder)], trusted=["mine"])
    yield ToolContext(found)
    close_engines(found)
    found.store.close()


def document(context: ToolContext, target: str, **arguments: Any) -> Any:
    return count_flops(CostArguments.model_validate({"target": target, **arguments}), context).document


def at(found: Any, **values: int) -> int:
    """Product FLOPs at the variables' defaults and `values`."""
    known = {v.name: v.default for v in found.variables if v.default is not None}
    return evaluate(found.totals.matmul_flops, {**known, **values})


def test_a_module_that_takes_pictures_of_its_own_size_gets_them(alone: ToolContext) -> None:
    found = document(alone, "alone.Patches")
    assert at(found, batch_size=2) == 2 * 2 * 16 * 48 * 3 * 64
    assert {v.name for v in found.variables if v.kind == "symbol"} >= {"embed_dim", "in_chans"}


def test_shapes_come_from_notes_annotations_and_what_weights_meet(alone: ToolContext) -> None:
    found = document(alone, "alone.Noted")
    shapes = {i.name: i.shape for i in found.model_inputs}
    assert shapes["context"] == ("{batch_size}", "{text_length}", "{context_dim}")
    assert shapes["hidden"][1:] == ("{dim}", "{image_height}", "{image_width}")
    assert next(i.dtype for i in found.model_inputs if i.name == "step") == "int64"
    b, p, t = 2, 6 * 7, 5
    expected = 2 * b * (p * 32 * 32 + t * 20 * 32 + p * t * 32)
    assert at(found, batch_size=b, image_height=6, image_width=7, text_length=t) == expected


def test_a_view_of_values_that_are_known_is_the_tensor_that_they_are_of(alone: ToolContext) -> None:
    found = find(CostArguments.model_validate({"target": "alone.Grid"}), alone)
    made: dict[str, list[int]] = {}
    for op in found.tree.trace.ops:
        made.setdefault(op.operator, []).append(op.order)
    clones = [op for op in found.tree.trace.ops if op.operator == "aten.clone"]
    assert len(clones) == 2
    assert all(list(op.after) == made["aten.arange"] for op in clones)
    (stacked,) = [op for op in found.tree.trace.ops if op.operator == "aten.stack"]
    assert list(stacked.after) == made["aten.clone"]


def test_a_note_of_one_channel_is_kept(alone: ToolContext) -> None:
    assert [i.shape[1] for i in document(alone, "alone.Waves").model_inputs] == ["1"]


def test_parts_of_a_weight_are_compared_where_sizes_are_fitted(alone: ToolContext) -> None:
    assert "{rows}" in document(alone, "alone.Table").totals.matmul_flops


def test_a_part_that_the_constructor_is_annotated_with_is_built(alone: ToolContext) -> None:
    found = document(alone, "alone.Outer")
    assert at(found, batch_size=2, seq_len=3) == 2 * 6 * 64 * 128
    assert any("inner=Inner" in a for a in found.assumptions)


def test_an_empty_place_in_a_list_of_modules_is_no_module(alone: ToolContext) -> None:
    assert at(document(alone, "alone.Gaps"), batch_size=2, seq_len=3) == 2 * 2 * 6 * 16 * 16


def test_sizes_that_nobody_gave_are_symbols_and_named(alone: ToolContext) -> None:
    found = document(alone, "alone.Chosen")
    assert found.totals.matmul_flops == "4 * {batch_size} * {seq_len} * {dim} * {hidden_features}"
    assert any("num_heads=4" in a and "give yours" in a for a in found.assumptions)


def test_an_argument_that_is_no_size_is_asked_for_by_name(alone: ToolContext) -> None:
    with pytest.raises(OpscopeError, match="Needy needs the argument 'block'") as refused:
        document(alone, "alone.Needy")
    assert "config" in refused.value.next_step


def test_what_the_file_itself_builds_the_class_with_is_taken(alone: ToolContext) -> None:
    found = document(alone, "alone.Stack")
    assert at(found, batch_size=2, seq_len=3) == 2 * 6 * (2 * 40 * 40 + 40 * 56)
    assert any("alone.small_stack()" in a for a in found.assumptions)
    assert at(document(alone, "alone.Stack", config={"out_dim": 8}), batch_size=2, seq_len=3) == 2 * 6 * (
        2 * 40 * 40 + 40 * 8
    )


def test_modules_that_a_sequential_calls_are_called_on_the_line_of_its_forward(alone: ToolContext) -> None:
    (sequential,) = expand_refs(ExpandArguments(target="alone.Stack"), alone).document.kernels
    assert sequential.kernels is not None
    calls = [(k.file, k.code) for k in sequential.kernels]
    assert calls == [("torch/nn/modules/container.py", "input = module(input)")] * 3


def test_a_size_that_cannot_be_a_symbol_is_fitted(alone: ToolContext) -> None:
    found = document(alone, "alone.Hashed")
    assert found.totals.matmul_flops == "4 * {batch_size} * {seq_len} * {width}**2"


def test_looking_for_an_input_leaves_nothing_in_what_is_counted(alone: ToolContext) -> None:
    found = document(alone, "alone.Remembers")
    assert any(k.operator == "aten.mul" for k in found.kernels)  # the table is made in the pass that is counted


def test_what_takes_no_tensor_is_refused_with_the_argument(alone: ToolContext) -> None:
    with pytest.raises(OpscopeError, match=r"its forward needs mapping") as refused:
        document(alone, "alone.Refuses")
    assert "inputs" in refused.value.next_step


def test_kernels_of_packages_that_are_not_installed_are_counted_by_rule(alone: ToolContext) -> None:
    found = document(alone, "fused.Attends")
    assert [k.operator for k in found.kernels if k.operator] == ["fused_norm", "flash_attn._flash_attn_forward"]
    b, n, d = 2, 5, 32
    assert at(found, batch_size=b, seq_len=n) == 6 * b * n * d * d + 4 * b * n * n * d
    assert found.not_counted == ()
    assert any("flash_attn, mamba_ssm" in a for a in found.assumptions)


def test_a_package_that_code_can_do_without_stays_absent(alone: ToolContext) -> None:
    document(alone, "fused.Attends")  # in the same process, before
    found = document(alone, "maybe.MayAttend")
    assert [k.operator for k in found.kernels if k.operator] == ["aten.bmm"]
    assert not any("Not installed" in a for a in found.assumptions)
