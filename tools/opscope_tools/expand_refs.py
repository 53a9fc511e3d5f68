"""The MCP tool `expand_refs`: a module's whole cost tree, every reference replaced by kernels, down to operators."""

from __future__ import annotations

from collections.abc import Callable

from opscope_cache.trees import IMPORTED
from opscope_schemas.analysis import Kernel, ModelAnalysisResult
from pydantic import Field

from opscope_tools.costing.arguments import CostArguments, find, remarks, sources
from opscope_tools.costing.long_formulas import with_numbers, without_long
from opscope_tools.costing.numbers import briefly, in_numbers
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.document import evaluated, model_analysis, per_line, pruned
from opscope_tools.trace.explaining import in_words
from opscope_tools.trace.routing import expected
from opscope_tools.trace.serving import serving


class ExpandArguments(CostArguments):
    """Arguments of `expand_refs`."""

    depth: int | None = Field(default=None, ge=0, description="Levels to open; default: all.")


def expand_refs(arguments: ExpandArguments, context: ToolContext) -> ModelAnalysisResult:
    """The `model_analysis` document, evaluated where `values` are given."""
    found = find(arguments, context)
    document = model_analysis(found.tree, found.call, arguments.depth)
    return ModelAnalysisResult(
        numbers=in_numbers(arguments, found, context), document=document, evaluated=evaluated(document, found.values) if found.values is not None else None,
        expected=expected(found.tree, found.call, document, found.values),
        serving=serving(found.tree, found.call, found.values) if arguments.view == "serving" else None,
        sources=sources(context.workspace), notes=remarks(found),
    )  # fmt: skip


def _plain(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Without what can be looked up: tensors (shapes stand in the operation), source text, repeated names."""
    bare: dict[str, object] = {"inputs": (), "outputs": (), "via": (), "code": "", "operator": "", "class_name": ""}
    return tuple(
        in_words(k).model_copy(update={**bare, "kernels": _plain(k.kernels) if k.kernels is not None else None})
        for k in kernels
    )


def _shortened(result: ModelAnalysisResult, kernels: tuple[Kernel, ...], why: str) -> ModelAnalysisResult:
    document = result.document.model_copy(update={"kernels": kernels, "per_operator": (), "conventions": ()})
    return result.model_copy(
        update={"document": document, "shortened": f"{why} Every level adds up; the artifact is whole."}
    )


def _without_tensors(result: ModelAnalysisResult) -> ModelAnalysisResult:
    return _shortened(
        result, _plain(result.document.kernels), "Tensors, source text and totals per operator are left out."
    )


def _by_line(result: ModelAnalysisResult) -> ModelAnalysisResult:
    return _shortened(result, per_line(_plain(result.document.kernels)), "Operators of one line are added up.")


def _to_depth(depth: int) -> Callable[[ModelAnalysisResult], ModelAnalysisResult]:
    def rung(result: ModelAnalysisResult) -> ModelAnalysisResult:
        why = f"Operators of one line are added up, references expanded {depth} levels only: call expand_refs on a class for more."
        return _shortened(result, pruned(per_line(_plain(result.document.kernels)), depth), why)

    return rung


EXPAND_REFS: Tool[ExpandArguments, ModelAnalysisResult] = Tool(
    name="expand_refs",
    title="The whole cost tree of a model or module",
    description=(
        "As count_flops, of a whole model or module: with detail='formulas' every submodule opened down to operators, with totals per class "
        "and per operator; a repeated layer stands once with `repeat`."
    ),
    arguments=ExpandArguments,
    result=ModelAnalysisResult,
    run=expand_refs,
    sources=IMPORTED,
    shorter=(
        _without_tensors,
        _by_line,
        _to_depth(3),
        _to_depth(2),
        with_numbers(_to_depth(2)),
        _to_depth(1),
        with_numbers(_to_depth(1)),
        with_numbers(_to_depth(0)),
        without_long(with_numbers(_to_depth(0))),
        without_long(with_numbers(_to_depth(0)), 40),
    ),
    brief=briefly,
    lane=lambda _: "trace",
)
