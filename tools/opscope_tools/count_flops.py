"""The MCP tool `count_flops`: one module's forward, each kernel with its line and its formulas."""

from __future__ import annotations

from opscope_cache.trees import IMPORTED
from opscope_schemas.analysis import ModuleAnalysisResult

from opscope_tools.costing import CostArguments, find, remarks, sources
from opscope_tools.spec import Tool, ToolContext
from opscope_tools.trace.document import evaluated, module_analysis


def count_flops(arguments: CostArguments, context: ToolContext) -> ModuleAnalysisResult:
    """The `module_analysis` document, evaluated where `values` are given."""
    found = find(arguments, context)
    document = module_analysis(found.tree, found.call)
    return ModuleAnalysisResult(
        document=document, evaluated=evaluated(document, found.values) if found.values is not None else None,
        sources=sources(context.workspace), notes=remarks(found),
    )  # fmt: skip


def _without_tensors(result: ModuleAnalysisResult) -> ModuleAnalysisResult:
    kernels = tuple(k.model_copy(update={"inputs": (), "outputs": (), "via": ()}) for k in result.document.kernels)
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
        "What each line of a module's forward costs, as exact formulas in standard variables ({batch_size}, {seq_len}, "
        "{hidden_size}, ...): a module_analysis document whose kernels carry file, line, operation, FLOPs, matrix-product "
        "FLOPs and bytes read and written. Calls of submodules stay references `${{qualified.ClassName}}(parameters)` "
        "with their totals; expand_refs opens them. The model is traced on symbolic shapes, without weights, so nothing is "
        "estimated; `conditions` say where the formulas hold and `not_counted` what is missing. Give `values` to have "
        "`evaluated` numbers at a point; phase `decode` needs cache_len."
    ),
    arguments=CostArguments,
    result=ModuleAnalysisResult,
    run=count_flops,
    sources=IMPORTED,
    shorter=(_without_tensors, _totals_only),
)
