"""What a kernel's analysis says of its figures: the same formulas that its fields hold, at every point."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest
from opscope_schemas.analysis import Kernel
from opscope_schemas.formula import evaluate, variables
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import COUNT_FLOPS, count_flops
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.explaining import HERE

_FIGURES = re.compile(
    r"(?P<flops>.+?) FLOPs(?: \((?P<matmul_flops>.+) of them in products\))?, (?P<read>.+) bytes read, (?P<write>.+?) bytes written"
    r"(?:, in all (?P<repeat>.+) calls together)?\.(?: A causal kernel may skip .+ of the FLOPs\.)?"
)
_NAME = re.compile(r"\b(?!(?:min|max|ceil|floor)\b)[a-z_]\w*")


def _formula(text: str) -> str:
    return _NAME.sub(lambda name: f"{{{name.group()}}}", text)


def _all(kernels: tuple[Kernel, ...]) -> Iterator[Kernel]:
    for kernel in kernels:
        yield kernel
        yield from _all(kernel.kernels or ())


@pytest.mark.parametrize("model_type", ["llama", "mixtral"])
def test_every_formula_in_an_analysis_is_the_kernels_own_figure(model_type: str, context: ToolContext) -> None:
    document = expand_refs(ExpandArguments(target=model_type), context).document
    kernels, draw = list(_all(document.kernels)), random.Random(model_type)
    assert {kernel.kernel_type for kernel in kernels} == {"basic", "composite"}
    for kernel in kernels:
        found = _FIGURES.fullmatch(kernel.analysis.partition(HERE)[2])
        assert found, kernel.analysis
        fields = {
            "flops": kernel.flops, "matmul_flops": kernel.matmul_flops, "read": kernel.memory_access.read,
            "write": kernel.memory_access.write, "repeat": kernel.repeat,
        }  # fmt: skip
        for name, quoted in found.groupdict().items():
            if quoted is not None:
                at = {v: 4 * draw.randint(2, 40) for v in variables(fields[name])}
                assert evaluate(_formula(quoted), at) == evaluate(fields[name], at), (name, kernel.analysis)


def test_an_analysis_says_shapes_arithmetic_and_what_moves(context: ToolContext) -> None:
    kernels = count_flops(CostArguments(target="LlamaMLP"), context).document.kernels
    said = {kernel.attribute or kernel.operator: kernel.analysis.partition(HERE)[0] for kernel in kernels}
    assert said["aten.mul"].startswith(
        "On [batch_size, seq_len, intermediate_size] and [batch_size, seq_len, intermediate_size]: "
    )
    assert said["aten.mul"].endswith("each input is read once and the result written once.")
    assert re.search(r"torch/nn/modules/linear\.py:\d+ runs mm\.$", said["gate_proj"])


def test_a_short_answer_keeps_the_words_and_leaves_out_the_figures(context: ToolContext) -> None:
    whole = count_flops(CostArguments(target="LlamaAttention"), context)
    short = COUNT_FLOPS.shorter[0](whole)
    assert all(HERE in kernel.analysis for kernel in whole.document.kernels)
    assert all(kernel.analysis and HERE not in kernel.analysis for kernel in short.document.kernels)
