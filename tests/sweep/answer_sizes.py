"""How long the default answers are, tool by tool: every model type, the largest classes, kernels and repositories.

`python tests/sweep/answer_sizes.py [MODEL_TYPE ...]`; without names, every 24th model type of transformers. Prints the
longest answer of each tool, and each call that gives none within the budget.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from opscope_schemas.errors import OpscopeError
from opscope_tools.catalog import tool_named
from opscope_tools.running.engines import close_engines, index_of
from opscope_tools.running.runner import run_tool, shorten_to, to_json
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

COSTED = ("count_flops", "expand_refs", "trace_dataflow")


def calls(models: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """What an agent asks first, with nothing but the target."""
    for name in ("Module", "PreTrainedModel", "PreTrainedConfig", "at::Tensor", "GenerationMixin"):
        yield "resolve_class", {"name": name}
    for target in ("Linear", "PreTrainedModel", "at::Tensor"):
        yield "find_references", {"target": target}
    for repo in ("transformers", "pytorch"):
        yield "map_repo", {"repo": repo}
        yield "cuda_kernel_tiling", {"target": repo}
        yield "extract_config", {"target": repo}
    for model in models:
        yield "resolve_class", {"name": model}
        yield "inspect_model", {"model": model}
        for tool in ("find_forward", "extract_config", *COSTED):
            yield tool, {"target": model}
        for tool in COSTED:
            yield tool, {"target": model, "phase": "decode"}


def main(models: list[str]) -> int:
    """Ask everything; 1 where a call has no answer that fits."""
    context = ToolContext(Workspace.create())
    longest: dict[str, tuple[int, str]] = {}
    failed = 0
    for name, arguments in calls(models or index_of(context.workspace).model_types()[::24]):
        tool = tool_named(name)
        try:
            whole = run_tool(tool, arguments, context)
        except OpscopeError:
            continue  # a refusal is a sentence
        try:
            size = len(to_json(shorten_to(tool, whole)))
        except OpscopeError as error:
            failed += 1
            print(f"{name} {arguments}: {error}")
            continue
        if size > longest.get(name, (0, ""))[0]:
            longest[name] = size, next(iter(arguments.values()))
    for name, (size, target) in sorted(longest.items()):
        print(f"{name:<20} {size:>7,} characters ({target})")
    close_engines(context.workspace)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
