"""A two-layer toy model with real source in a folder, and analysis documents about it that follow the schemas.

The source is written to a repository `toyland`; lines are found by searching for the statement, so documents and
source agree by construction. Formulas are those of the modules: a projection is `2 * B * S * H * V`, and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_prompts.templates import render_template
from opscope_schemas.analysis import (
    GroupTotal,
    Kernel,
    MemoryAccess,
    ModelAnalysis,
    ModelAnalysisResult,
    ModelTreeResult,
    ModuleNode,
    Phase,
    TensorInfo,
    Totals,
    Variable,
)
from opscope_schemas.common import Repository, Source, ToolResult
from opscope_schemas.dataflow import CacheGrowth, Dataflow, DataflowResult, FlowOperator, FlowTensor, PeakPoint
from opscope_schemas.errors import TraceError, UnknownNameError
from opscope_schemas.estimates import (
    Alternative,
    ClassTime,
    Hardware,
    MemoryUse,
    OperatorTime,
    RooflineResult,
    TimeTotals,
)
from opscope_tools import write_report
from opscope_tools.estimate_roofline import placing
from opscope_tools.report.changes import saved
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.glance import glance
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.render import Report, render
from opscope_tools.report.story import story
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import AnyTool, ToolContext
from opscope_tools.running.workspace import Workspace

MODELING = '''"""A toy."""

import torch
from torch import nn

from .helpers import logger


@use_kernel_forward_from_hub("RMSNorm")
class ToyNorm(nn.Module):
    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


class ToyAttention(nn.Module):
    def forward(self, hidden_states: torch.Tensor, past_key_values=None, attention_mask=None):
        """Attention of the toy."""
        if hidden_states.shape[-1] % self.num_heads != 0:
            raise ValueError(f"hidden size {hidden_states.shape[-1]} is not a multiple of the heads")
        logger.debug("attending")
        qkv = self.qkv_proj(hidden_states)
        query, key, value = qkv.chunk(3, dim=-1)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        if self.training:
            query = self.dropout(query)
        attended = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=attention_mask)
        return self.o_proj(attended)


class ToyLayer(nn.Module):
    """One of the layers that are kept as layers.{index}."""

    def forward(self, hidden_states, past_key_values=None):
        residual = hidden_states
        hidden_states = self.norm(hidden_states)
        hidden_states = self.attention(hidden_states, past_key_values=past_key_values)
        return residual + hidden_states


class ToyForCausalLM(nn.Module):
    _supports_sdpa = True
    _tp_plan = {"lm_head": "colwise_gather_output"}
    _fsdp_plan = {"lm_head": "keep_full_weight"}

    def forward(self, input_ids, past_key_values=None):
        hidden_states = self.embed_tokens(input_ids)
        for layer in self.layers:
            hidden_states = layer(hidden_states, past_key_values=past_key_values)
        hidden_states = self.norm(hidden_states)
        return self.lm_head(hidden_states)
'''

CONFIGURATION = '''"""Its configuration."""


class ToyConfig:
    model_type = "toy"
    base_model_tp_plan = {
        "layers.*.attention.qkv_proj": "colwise",
        "layers.*.attention.o_proj": "rowwise",
    }
    vocab_size: int = 100
    hidden_size: int = 8
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    num_key_value_heads: int = 4
    max_position_embeddings: int = 128
    use_cache: bool = True
'''

LAYERS = '''"""What a framework would bring."""


class Linear:
    def forward(self, input):
        return F.linear(input, self.weight, self.bias)


class Embedding:
    def forward(self, input):
        return F.embedding(input, self.weight)
'''

FILE = "toyland/modeling_toy.py"
LAYERS_FILE = "toyland/layers.py"
CONFIG_FILE = "toyland/configuration_toy.py"
MODULE = "toyland.modeling_toy"
CONFIG: dict[str, object] = {
    "vocab_size": 100, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "max_position_embeddings": 128, "use_cache": True, "head_dim": 2, "intermediate_size": None,
}  # fmt: skip

T = "{batch_size} * {seq_len}"
L = "{num_layers} * "
H = "{hidden_size}"


def line_of(statement: str, source: str = MODELING) -> int:
    """The line on which `statement` stands; the first one."""
    return next(number for number, text in enumerate(source.split("\n"), 1) if statement in text)


def write_source(folder: Path) -> Repository:
    """The toy's repository, written to `folder`."""
    package = folder / "toyland"
    package.mkdir(parents=True)
    (package / "modeling_toy.py").write_text(MODELING)
    (package / "layers.py").write_text(LAYERS)
    (package / "configuration_toy.py").write_text(CONFIGURATION)
    (package / "helpers.py").write_text("import logging\n\nlogger = logging.getLogger()\n")
    return Repository(name="toyland", root=folder, packages=("toyland",), version="1.0")


def workspace(tmp_path: Path) -> Workspace:
    """A workspace that reads the toy and writes below `tmp_path / "out"`."""
    repository = write_source(tmp_path / "src")
    (tmp_path / "out").mkdir()
    return Workspace(repositories={"toyland": repository}, output=(tmp_path / "out").resolve(), store=MemoryStore())


# ---- documents ------------------------------------------------------------------------------------------------------


def basic(operator: str, statement: str, flops: str, read: str, write: str, **more: Any) -> Kernel:
    """An operator on the line of `statement`, in the model's file or in that of the framework's layers."""
    product = flops if any(word in operator for word in ("mm", "scaled_dot")) else "0"
    place: dict[str, Any] = {"file": FILE, "line": line_of(statement)} if statement in MODELING else {
        "file": LAYERS_FILE, "line": line_of(statement, LAYERS)
    }  # fmt: skip
    return Kernel(
        kernel_type="basic", operation=f"{operator.split('.')[1]} of the toy", analysis="by definition", flops=flops,
        matmul_flops=product, memory_access=MemoryAccess(read=read, write=write), code=statement, operator=operator,
        **place, **more,
    )  # fmt: skip


def call(class_name: str, attribute: str, statement: str, kernels: tuple[Kernel, ...], repeat: str = "1") -> Kernel:
    """A call of a submodule on the line of `statement`; its costs are the sums over `kernels`."""
    total: dict[str, Any] = {
        name: " + ".join(f"({getattr(k, name)})" for k in kernels) for name in ("flops", "matmul_flops")
    }
    return Kernel(
        kernel_type="composite", operation=f"${{{{{class_name}}}}}({attribute})", analysis="sum of its kernels",
        memory_access=access(kernels), file=FILE, line=line_of(statement), code=statement, attribute=attribute,
        class_name=class_name, kernels=kernels, repeat=repeat, inputs=(tensor("x"),), outputs=(tensor("y"),), **total,
    )  # fmt: skip


def repeats(factor: str) -> str:
    """How often a kernel runs whose formulas carry `factor`."""
    return factor.removesuffix(" * ") or "1"


def access(kernels: tuple[Kernel, ...]) -> MemoryAccess:
    return MemoryAccess(
        read=" + ".join(f"({k.memory_access.read})" for k in kernels),
        write=" + ".join(f"({k.memory_access.write})" for k in kernels),
    )


def tensor(name: str) -> TensorInfo:
    return TensorInfo(name=name, shape=("{batch_size}", "{seq_len}", "{hidden_size}"), dtype="bfloat16")


def _norm(factor: str) -> tuple[Kernel, ...]:
    """Square and mean (2 per element), then scale twice (2 per element) with one rsqrt per token."""
    x, y = f"{factor}{T} * {H} * {{a_bytes}}", f"{factor}{T} * {{a_bytes}}"
    return (
        basic("aten.mean.dim", "x.pow(2)", f"{factor}2 * {T} * {H}", x, y, outputs=(tensor("variance"),)),
        basic("aten.rsqrt.default", "torch.rsqrt", f"{factor}{T} * (2 * {H} + 2)", f"{x} + {y} + {factor}{H} * {{w_bytes}}", x,
              inputs=(tensor("variance"),)),
    )  # fmt: skip


def _linear(statement: str, attribute: str, outputs: str, factor: str) -> Kernel:
    kernel = basic(
        "aten.mm.default", "F.linear", f"{factor}2 * {T} * {H} * {outputs}",
        f"{factor}({T} * {H} * {{a_bytes}} + {H} * {outputs} * {{w_bytes}})", f"{factor}{T} * {outputs} * {{a_bytes}}",
    )  # fmt: skip
    return call("toyland.layers.Linear", attribute, statement, (kernel,), repeats(factor))


def _attention(factor: str) -> tuple[Kernel, ...]:
    context = "({cache_len} + {seq_len})"
    return (
        _linear("self.qkv_proj", "qkv_proj", "(3 * {hidden_size})", factor),
        basic(
            "aten.scaled_dot_product_attention.default", "scaled_dot_product_attention(",
            f"{factor}4 * {T} * {context} * {H}",
            f"{factor}({T} * {H} + 2 * {{batch_size}} * {context} * {H}) * {{a_bytes}}",
            f"{factor}{T} * {H} * {{a_bytes}}",
        ),
        _linear("self.o_proj", "o_proj", "{hidden_size}", factor),
    )  # fmt: skip


def layer_kernels(factor: str) -> tuple[Kernel, ...]:
    """A layer: norm, attention, residual addition."""
    x = f"{factor}{T} * {H} * {{a_bytes}}"
    return (
        call(f"{MODULE}.ToyNorm", "norm", "self.norm(hidden_states)", _norm(factor), repeats(factor)),
        call(f"{MODULE}.ToyAttention", "attention", "self.attention(", _attention(factor), repeats(factor)),
        basic("aten.add.Tensor", "return residual", f"{factor}{T} * {H}", f"2 * {x}", x, repeat=repeats(factor)),
    )


def model_kernels() -> tuple[Kernel, ...]:
    row = f"{T} * {H} * "
    gather = basic("aten.embedding.default", "F.embedding", "0", f"{row}{{w_bytes}} + {T} * 8", f"{row}{{a_bytes}}")
    return (
        call("toyland.layers.Embedding", "embed_tokens", "self.embed_tokens", (gather,)),
        call(f"{MODULE}.ToyLayer", "layers.*", "= layer(", layer_kernels(L), repeat="{num_layers}"),
        call(f"{MODULE}.ToyNorm", "norm", "self.norm(hidden_states)", _norm("")),
        _linear("self.lm_head", "lm_head", "{vocab_size}", ""),
    )


VARIABLES = (
    Variable(name="batch_size", meaning="sequences"),
    Variable(name="seq_len", meaning="new tokens"),
    Variable(name="cache_len", meaning="tokens in the cache"),
    Variable(name="a_bytes", meaning="bytes per activation", default=2),
    Variable(name="w_bytes", meaning="bytes per weight", default=2),
    Variable(name="hidden_size", meaning="width of the residual stream", config_key="hidden_size", default=8),
    Variable(name="num_layers", meaning="number of layers", config_key="num_hidden_layers", default=2),
    Variable(name="num_heads", meaning="query heads", config_key="num_attention_heads", default=4),
    Variable(name="num_kv_heads", meaning="key-value heads", config_key="num_key_value_heads", default=4),
    Variable(name="vocab_size", meaning="entries of the vocabulary", config_key="vocab_size", default=100),
)
WEIGHTS = f"{L}(4 * {H} ** 2 + {H}) + {H} + 2 * {{vocab_size}} * {H}"


def totals(kernels: tuple[Kernel, ...], layers: str = L, top: bool = True) -> Totals:
    """Sums over `kernels`; the floor reads weights (gathered embedding rows only) and cache once, and writes once."""
    rows = f"({T} + {{vocab_size}}) * {H} + {H} + " if top else ""
    weights = f"({rows}{layers}(4 * {H} ** 2 + {H})) * {{w_bytes}}"
    floor = f"{weights} + 2 * {layers}{{batch_size}} * {{cache_len}} * {H} * {{a_bytes}}"
    return Totals(
        flops=" + ".join(f"({k.flops})" for k in kernels),
        matmul_flops=" + ".join(f"({k.matmul_flops})" for k in kernels),
        memory_access=access(kernels),
        floor=MemoryAccess(read=floor, write=f"{T} * {'{vocab_size}' if top else H} * {{a_bytes}}"),
    )


def _common(phase: Phase, name: str, kernels: tuple[Kernel, ...]) -> dict[str, Any]:
    top = name == "ToyForCausalLM"
    return {
        "class_name": f"{MODULE}.{name}", "file": FILE, "line": line_of(f"class {name}"), "phase": phase,
        "forward_file": FILE, "forward_line": _forward(name), "attention": "sdpa", "kernels": kernels,
        "totals": totals(kernels, *(() if top else ("", False))), "variables": VARIABLES, "assumptions": ("Attention is counted dense.",),
        "conditions": ("{seq_len} > 1",) if phase == "prefill" else (), "parameters": WEIGHTS if top else f"4 * {H} ** 2",
        "weights": f"({WEIGHTS}) * {{w_bytes}}" if top else f"4 * {H} ** 2 * {{w_bytes}}",
        "not_counted": ("the sampler",), "conventions": ("A multiply and an add are 1 FLOP each.",),
    }  # fmt: skip


def _forward(name: str) -> int:
    start = line_of(f"class {name}")
    return start + next(at for at, text in enumerate(MODELING.split("\n")[start - 1 :]) if "def forward" in text)


def _group(name: str, kernels: list[Kernel]) -> GroupTotal:
    whole = totals(tuple(kernels))
    return GroupTotal(
        name=name, count=str(len(kernels)), flops=whole.flops, matmul_flops=whole.matmul_flops,
        memory_access=whole.memory_access,
    )  # fmt: skip


def leaves(kernels: tuple[Kernel, ...], owner: str) -> list[tuple[str, Kernel]]:
    """Written anew here: the independent reference of what the engine walks."""
    found = []
    for kernel in kernels:
        found += leaves(kernel.kernels, kernel.class_name) if kernel.kernels else [(owner, kernel)]
    return found


def model_document(phase: Phase = "prefill") -> ModelAnalysis:
    """`expand_refs` of the toy."""
    kernels = model_kernels()
    rows = leaves(kernels, f"{MODULE}.ToyForCausalLM")
    classes = {owner: [k for o, k in rows if o == owner] for owner, _ in rows}
    operators = {kernel.operator: [k for _, k in rows if k.operator == kernel.operator] for _, kernel in rows}
    return ModelAnalysis(
        **_common(phase, "ToyForCausalLM", kernels),
        per_class=tuple(_group(name, own) for name, own in classes.items()),
        per_operator=tuple(_group(name, own) for name, own in operators.items()),
    )


def attention_document(phase: Phase = "prefill") -> ModelAnalysis:
    """`expand_refs` of the attention alone, as it runs in the toy."""
    return ModelAnalysis(
        **_common(phase, "ToyAttention", _attention("")),
        model_class=f"{MODULE}.ToyForCausalLM",
        instance="layers.*.attention",
    )


def attention_tree() -> ModelTreeResult:
    """`inspect_model` of the attention alone: one of the two layers' 256 weights."""
    whole = tree()
    attention = whole.tree.children[1].children[1].model_copy(update={"name": "", "parameters": 256})
    return whole.model_copy(update={"tree": attention, "parameters": 256})


def tree() -> ModelTreeResult:
    """`inspect_model` of the toy: 2 * (4 * 8 * 8 + 8) + 8 + 2 * 100 * 8 = 2136 weights."""
    linear = "toyland.layers.Linear"
    attention = ModuleNode(
        name="attention", class_name=f"{MODULE}.ToyAttention", parameters=512,
        children=(
            ModuleNode(name="qkv_proj", class_name=linear, parameters=384, weights={"weight": (24, 8)}),
            ModuleNode(name="o_proj", class_name=linear, parameters=128, weights={"weight": (8, 8)}),
        ),
    )  # fmt: skip
    norm = ModuleNode(name="norm", class_name=f"{MODULE}.ToyNorm", parameters=16, weights={"weight": (8,)})
    embedding = ModuleNode(
        name="embed_tokens",
        class_name="toyland.layers.Embedding",
        parameters=800,
        weights={"weight": (100, 8)},
    )
    layers = ModuleNode(
        name="layers", class_name=f"{MODULE}.ToyLayer", repeat=2, parameters=528, children=(norm, attention)
    )
    head = ModuleNode(name="lm_head", class_name=linear, parameters=800, weights={"weight": (100, 8)})
    last = norm.model_copy(update={"parameters": 8})
    root = ModuleNode(
        name="", class_name=f"{MODULE}.ToyForCausalLM", parameters=2136, children=(embedding, layers, last, head)
    )
    return ModelTreeResult(
        model_class=f"{MODULE}.ToyForCausalLM", config_class="toyland.configuration_toy.ToyConfig", config=CONFIG,
        parameters=2136, tree=root, text="", sources=(Source(repository="toyland", version="1.0"),),
    )  # fmt: skip


ROW = f"{T} * {H} * {{a_bytes}}"


def graph(document: ModelAnalysis) -> Dataflow:
    """`trace_dataflow` of a document: each operator reads the one before it, the first of a layer the layer before."""
    rows = leaves(document.kernels, document.class_name)
    add = next((place for place, (_, k) in enumerate(rows, 1) if k.operator == "aten.add.Tensor"), 0)
    operators = tuple(
        FlowOperator(
            id=place, operator=kernel.operator, file=kernel.file, line=kernel.line, repeat=kernel.repeat, level=place - 1,
            reads=(place - 1,) if place > 1 else (), writes=(place,), depends_on=(place - 1,) if place > 1 else (),
            holds=(place - 1, place) if place > 1 else (place,), carried_from=(add,) if place == 2 and add else (),
        )
        for place, (_, kernel) in enumerate(rows, 1)
    )  # fmt: skip
    last = len(rows)
    tensors = tuple(
        FlowTensor(
            id=place, name="logits" if place == last else "", kind="output" if place == last else "cache" if kernel.code.startswith("past_key") else "activation",
            shape=tensor("").shape, dtype="bfloat16", bytes=ROW, created_by=place,
            consumed_by=(place + 1,) if place < last else (), lives=(place, min(place + 1, last)),
        )
        for place, (_, kernel) in enumerate(rows, 1)
    )  # fmt: skip
    kept = f"2 * {L}{{batch_size}} * {H} * {{a_bytes}}"
    cache = CacheGrowth(
        before="0" if document.phase == "prefill" else f"{kept} * {{cache_len}}",
        after=f"{kept} * ({{cache_len}} + {{seq_len}})", per_token=kept,
    )  # fmt: skip
    return Dataflow(
        class_name=document.class_name, file=document.file, line=document.line, phase=document.phase,
        attention=document.attention, dtype=document.dtype, operators=operators, tensors=tensors, depth=last,
        peak_activations=f"2 * {ROW}", peaks=(PeakPoint(operator=2, bytes=f"2 * {ROW}", tensors=(1, 2)),), cache=cache,
    )  # fmt: skip


def estimate(phase: Phase) -> RooflineResult:
    """Of one kernel, the projection of the attention, on a device of round figures."""
    at = line_of("qkv = self.qkv_proj(hidden_states)")
    kernel = OperatorTime(
        operation="mm", kind="matrix products", module="model.layers.*.attn", file=FILE, line=at, count=2, flops=2_000, bytes=1_000,
        intensity=2.0, bound_seconds=1e-3, calibrated_seconds=2e-3, low_seconds=1.5e-3, high_seconds=3e-3, limited_by="memory",
    )  # fmt: skip
    totals = TimeTotals(
        flops=2_000, bytes=1_000, bound_seconds=1e-3, calibrated_seconds=2e-3, low_seconds=1.5e-3, high_seconds=3e-3,
        limited_by="memory", tokens_per_second=500.0,
    )  # fmt: skip
    return RooflineResult(
        model_class=f"{MODULE}.ToyForCausalLM", phase=phase, view="serving", precision={"weights": "bf16"}, values={"batch_size": 1},
        hardware=Hardware(id="d", name="Device", peak_flops=1e15, peak_precision="bf16", bandwidth=3e12, capacity=10**10, ridge=333.3),
        totals=totals, spent=(ClassTime(name="matrix products", share=1.0, bound_seconds=1e-3, calibrated_seconds=2e-3),),
        memory=MemoryUse(
            weights_bytes=96, cache_bytes=64, cache_bytes_per_token=8, activation_bytes=32, capacity_bytes=10**10, usable_bytes=9 * 10**9,
            fits=True, largest_batch=7,
        ),
        alternatives=(Alternative(name="weights fp8", seconds=1e-3, saved_seconds=1e-3, share=0.5, basis="calibrated", bound_share=0.4),),
        turning_batch=200, operators=(kernel,),
    )  # fmt: skip


def answers(patch: pytest.MonkeyPatch) -> None:
    """Lets the toy answer wherever a report asks other tools."""
    for module in (write_report, placing):
        patch.setattr(module, "run_tool", answer)


def answer(tool: AnyTool, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
    """What other tools say about the toy; what reads source reads the toy's, and lines are those of the source as it is now."""
    if tool.name in {"extract_config", "cuda_kernel_tiling"}:
        answered: ToolResult = run_tool(tool, arguments, context)
        return answered
    said = _answer(tool.name, arguments)
    now = (context.workspace.repositories["toyland"].root / FILE).read_text()
    return said if now == MODELING else type(said).model_validate(_at_present(said.model_dump(), now))


def _at_present(held: Any, source: str) -> Any:
    """A document with every line of the model's file where its statement stands in `source`."""
    if isinstance(held, dict):
        moved = {name: _at_present(value, source) for name, value in held.items()}
        for file, line in (("file", "line"), ("forward_file", "forward_line")):
            if held.get(file) == FILE and held.get(line):
                moved[line] = line_of(MODELING.split("\n")[held[line] - 1], source)
        return moved
    return [_at_present(value, source) for value in held] if isinstance(held, list | tuple) else held


def _answer(name: str, arguments: Mapping[str, Any]) -> ToolResult:
    phase: Phase = arguments.get("phase", "prefill")
    if name == "sweep_roofline":
        raise TraceError("The toy has no times at many points.")
    if name == "inspect_model":
        if arguments["model"] != "toy":
            raise UnknownNameError("model type", arguments["model"], ["toy"])
        return tree()
    if name == "trace_dataflow":
        return DataflowResult(document=graph(model_document(phase)))
    if name == "estimate_roofline":
        return estimate(phase)
    if name == "count_flops":
        return ModelAnalysisResult(document=model_document(phase))
    assert name == "expand_refs", name
    return ModelAnalysisResult(document=model_document(phase))


def first_screen(facts: ImplementationFacts) -> str:
    """Section 1's table, lines and table of savings, without marks."""
    quotes = Quotes()
    return unmarked("\n".join([glance(facts, quotes), *story(facts, quotes), saved(facts, quotes)]))


def unmarked(text: str) -> str:
    """A report as its reader sees it: numbers without the comments that mark them."""
    return re.sub(r"<!-- fact:\S+ -->", "", text)


def rendered_with(facts: ImplementationFacts, sections: dict[str, str]) -> Report:
    """The toy's report with an agent's sections."""
    return render(facts, sections, "x.md", lambda values: render_template("implementation.md", values))
