"""The MCP tool `count_flops`: one module's forward, each kernel with its line and its formulas."""

from __future__ import annotations

from opscope_cache.trees import IMPORTED
from opscope_schemas.analysis import ModuleAnalysisResult

from opscope_tools.costing.arguments import CostArguments, find, remarks, sources
from opscope_tools.costing.long_formulas import with_numbers, without_long
from opscope_tools.costing.numbers import briefly, in_numbers
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.trace.document import evaluated, module_analysis
from opscope_tools.trace.explaining import in_words
from opscope_tools.trace.routing import expected
from opscope_tools.trace.serving import serving


def count_flops(arguments: CostArguments, context: ToolContext) -> ModuleAnalysisResult:
    """The `module_analysis` document, evaluated where `values` are given."""
    found = find(arguments, context)
    document = module_analysis(found.tree, found.call)
    return ModuleAnalysisResult(
        numbers=in_numbers(arguments, found, context), document=document, evaluated=evaluated(document, found.values) if found.values is not None else None,
        expected=expected(found.tree, found.call, document, found.values),
        serving=serving(found.tree, found.call, found.values) if arguments.view == "serving" else None,
        sources=sources(context.workspace), notes=remarks(found),
    )  # fmt: skip


def _without_tensors(result: ModuleAnalysisResult) -> ModuleAnalysisResult:
    kernels = tuple(
        in_words(k).model_copy(update={"inputs": (), "outputs": (), "via": ()}) for k in result.document.kernels
    )
    return result.model_copy(
        update={
            "document": result.document.model_copy(update={"kernels": kernels}),
            "shortened": "Tensor lists and helper lines are left out; the artifact holds them.",
        }
    )


def _totals_only(result: ModuleAnalysisResult) -> ModuleAnalysisResult:
    return result.model_copy(
        update={
            "document": result.document.model_copy(update={"kernels": (), "conventions": ()}),
            "shortened": "Only line totals and totals are given; ask for a submodule, or read the artifact.",
        }
    )


COUNT_FLOPS: Tool[CostArguments, ModuleAnalysisResult] = Tool(
    name="count_flops",
    title="FLOPs and bytes of one module, line by line",
    description=(
        "What one module's forward costs: FLOPs, bytes, parameters, and what dominates, each with its line; "
        "with detail='formulas' every kernel's exact formulas in {batch_size}, {seq_len}, {hidden_size}, ... and where they hold. "
        "`not_counted` says what is missing."
    ),
    arguments=CostArguments,
    result=ModuleAnalysisResult,
    run=count_flops,
    sources=IMPORTED,
    shorter=(
        _without_tensors,
        with_numbers(_without_tensors),
        _totals_only,
        with_numbers(_totals_only),
        without_long(with_numbers(_totals_only)),
    ),
    brief=briefly,
    lane=lambda _: "trace",
)
