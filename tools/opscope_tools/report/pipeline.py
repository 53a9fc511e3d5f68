"""How transformers cuts a model into stages: read from the function that does so, held against the modules of the model.

It goes by the list of layers of the model that a head stands on and not by a declared plan. Where it is not found, or written
otherwise, nothing is said.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from opscope_schemas.analysis import ModuleNode

from opscope_tools.report.nodes import modules_at
from opscope_tools.report.quotes import joined
from opscope_tools.report.scan import Hit
from opscope_tools.report.sources import SourceReader

__all__ = ["Stages", "stages"]

_FILE, _CUTS = "transformers/distributed/pipeline_parallel.py", "apply_pipeline_parallelism"
#: the methods that hand on what a layer gives, and logits to all stages, with the calls in them that do
_HANDS_ON = "PipelineStage.communicate", "batch_isend_irecv"
_TELLS_ALL = "PipelineStage.broadcast_from_last", "broadcast"


@dataclass(frozen=True)
class Stages:
    """What the library does with a model: the list of layers that it takes, by path, and whether the model has one there."""

    layers: str
    cut: bool
    #: the function that cuts, at its first line, or where it takes what is not there
    by: Hit
    #: modules that it leaves out of stages, by path: of the whole model, and those that this one does not have
    heads: tuple[str, ...]
    absent: tuple[str, ...]
    #: the calls that move tensors between stages, as far as they are found
    hands_on: Hit | None
    tells_all: Hit | None

    @property
    def said(self) -> str:
        """What the function does, as a sentence."""
        if not self.cut:
            return f"`{self.by.name}` takes `{self.layers}`, which this model does not have"
        held = (
            f", and leaves in every stage what this model has in place of {joined(f'`{path}`' for path in self.absent)}"
        )
        return f"`{self.by.name}` cuts `{self.layers}` by the number of layers, whatever a plan declares{held if self.absent else ''}"


def stages(reader: SourceReader, root: ModuleNode, prefix: str | None) -> Stages | None:
    """How the library cuts a model whose class calls its base by a prefix; None where its source is not found or reads otherwise."""
    span = reader.definition(_FILE, _CUTS)
    if span is None or prefix is None:
        return None
    nodes = list(ast.walk(span.node))
    base, taken = (_bound(nodes, name) for name in ("base_model_prefix", "layers"))
    by_number = any(isinstance(node, ast.Call) and ast.unparse(node.func) == "len" for node in nodes)
    if not (base and taken and by_number) or any(getattr(node, "attr", "").endswith("_plan") for node in nodes):
        return None
    layers = f"{prefix}.layers"
    cut = bool(prefix and modules_at(root, layers))
    left = [
        f"{prefix}.{node.targets[0].attr}" if ast.unparse(node.targets[0].value) in base else node.targets[0].attr
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Attribute)
        and isinstance(node.value, ast.Call)
    ]
    return Stages(
        layers, cut, Hit(_FILE, span.line if cut else min(taken.values()), _CUTS, ""),
        heads=tuple(path for path in left if "." not in path), absent=tuple(path for path in left if not modules_at(root, path)),
        hands_on=_call(reader, *_HANDS_ON), tells_all=_call(reader, *_TELLS_ALL),
    )  # fmt: skip


def _bound(nodes: Sequence[ast.AST], attribute: str) -> dict[str, int]:
    """The names that are bound to what an attribute gives, each with its line."""
    return {
        ast.unparse(node.targets[0]): node.lineno
        for node in nodes
        if isinstance(node, ast.Assign)
        and any(isinstance(part, ast.Attribute) and part.attr == attribute for part in ast.walk(node.value))
    }


def _call(reader: SourceReader, method: str, called: str) -> Hit | None:
    """The last call of a name in a method."""
    span = reader.definition(_FILE, method)
    nodes = [node for node in ast.walk(span.node) if isinstance(node, ast.Call)] if span is not None else []
    lines = [node.lineno for node in nodes if ast.unparse(node.func).rpartition(".")[2] == called]
    return Hit(_FILE, max(lines), called, "") if lines else None
