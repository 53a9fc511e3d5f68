"""The MCP tool `inspect_model`: a model's module tree on the meta device, without weights."""

from __future__ import annotations

from opscope_cache.trees import IMPORTED
from opscope_schemas.analysis import ModelTreeResult, ModuleNode
from opscope_schemas.common import ToolArguments
from pydantic import Field

from opscope_tools.costing.arguments import CONFIG, model_spec, running, sources, uncaged
from opscope_tools.running.config_files import Config
from opscope_tools.running.engines import tracer_of
from opscope_tools.running.tool import Tool, ToolContext


class InspectArguments(ToolArguments):
    """Arguments of `inspect_model`."""

    model: str = Field(
        description="Model type (`llama`), checkpoint (`Qwen/Qwen3-30B-A3B`), model class, or a config.json or its folder.",
        min_length=1,
        max_length=1000,
    )
    config: Config = Field(default=None, description=CONFIG)


def inspect_model(arguments: InspectArguments, context: ToolContext) -> ModelTreeResult:
    """The tree of the model that the config describes."""
    workspace = context.workspace
    spec = model_spec(workspace, arguments.model, arguments.config)
    result = tracer_of(workspace).inspect(spec, running(context))
    return result.model_copy(update={"sources": sources(workspace), "notes": (*result.notes, *uncaged())})


def _without_text(result: ModelTreeResult) -> ModelTreeResult:
    return result.model_copy(update={"text": "", "shortened": "The listing is left out; `tree` holds the same."})


def _leafless(node: ModuleNode, depth: int) -> ModuleNode:
    children = tuple(_leafless(c, depth - 1) for c in node.children) if depth else ()
    return node.model_copy(update={"children": children, "weights": {}})


def _shallow(result: ModelTreeResult) -> ModelTreeResult:
    return result.model_copy(
        update={
            "text": "", "tree": _leafless(result.tree, 3),
            "shortened": "Three levels without shapes; inspect a class below for more, or read the artifact.",
        }
    )  # fmt: skip


INSPECT_MODEL: Tool[InspectArguments, ModelTreeResult] = Tool(
    name="inspect_model",
    title="A model's module tree, without weights",
    description=(
        "The module tree that a config builds: every submodule's qualified class, weight shapes and parameter "
        "counts, repeated layers folded (xN). No weights are loaded."
    ),
    arguments=InspectArguments,
    result=ModelTreeResult,
    run=inspect_model,
    sources=IMPORTED,
    shorter=(_without_text, _shallow),
    positional=("model",),
    lane=lambda _: "trace",
)
