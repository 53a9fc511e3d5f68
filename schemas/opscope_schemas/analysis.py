"""The cost documents: `module_analysis` (one module, references kept) and `model_analysis` (references expanded).

Every cost is a formula string in the standard variables (formula.py parses and evaluates them). In both documents the
costs of a kernel are its whole share of the document: a layer that runs {num_layers} times is listed once, `repeat`
says how often it runs, and its formulas (and those of everything nested in it) already carry that factor. So the
kernels of a list always add up to what holds them, and the leaves of the tree add up to `totals`.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.formula import Rational
from opscope_schemas.numbers import Numbers

#: marks the fields that hold a formula
FORMULA = "formula"
FormulaText = Annotated[str, FORMULA]
Phase = Literal["prefill", "decode", "encode", "forward", "train"]


class MemoryAccess(Frozen):
    """Bytes moved, as formulas."""

    read: FormulaText
    write: FormulaText


class CallSite(Frozen):
    """A line of a helper function on the way from the module's forward to the operator."""

    function: str
    file: str
    line: int


class Site(Frozen):
    """Where in source something happened: a line of the enclosing module's forward, and helpers on the way."""

    file: str
    line: int
    code: str = ""
    via: tuple[CallSite, ...] = ()


class TensorInfo(Frozen):
    """A tensor as it passes: `shape` holds a formula per dimension."""

    name: str
    shape: tuple[FormulaText, ...]
    dtype: str


class ModelInput(Frozen):
    """A tensor that the traced model is called with."""

    name: str
    shape: tuple[FormulaText, ...]
    dtype: str
    data: list[list[int]] | list[int] | None = Field(
        default=None, description="Its values, where the model's path depends on them (grids of patches, sizes)."
    )


class Kernel(Frozen):
    """One computation on one line of a forward: an operator (basic) or a call of a submodule (composite)."""

    promised: ClassVar[tuple[str, ...]] = ("code", "attribute", "class_name")

    kernel_type: Literal["basic", "composite"]
    operation: str = Field(
        description="The operator, or for a composite kernel the reference `${{qualified.ClassName}}(parameters)`."
    )
    analysis: str = Field(description="How the figures come about.")
    flops: FormulaText
    matmul_flops: FormulaText
    memory_access: MemoryAccess
    file: str = Field(description="File of the forward that issued the kernel.")
    line: int = Field(description="Line of that forward, 1-based.")
    code: str = Field(default="", description="The source line.")
    via: tuple[CallSite, ...] = Field(default=(), description="Helper functions between that line and the operator.")
    operator: str = Field(default="", description="ATen operator of a basic kernel.")
    attribute: str = Field(
        default="", description="Path of the submodule below the analysed module, e.g. `layers.*.mlp`."
    )
    class_name: str = Field(default="", description="Qualified class of a composite kernel.")
    repeat: FormulaText = Field(default="1", description="How often the kernel runs; already in the figures.")
    causal_saving: FormulaText = Field(
        default="0", description="FLOPs of attention above the diagonal, which a causal kernel may skip; not deducted."
    )
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    kernels: tuple[Kernel, ...] | None = Field(
        default=None, description="model_analysis: the kernels of the referenced module; they add up to this one."
    )


class Totals(Frozen):
    """Sums over a document's kernels; `floor` is what no implementation can avoid moving."""

    flops: FormulaText
    matmul_flops: FormulaText
    memory_access: MemoryAccess
    floor: MemoryAccess = Field(description="Weights, cache and inputs read once, outputs and new cache written once.")
    causal_saving: FormulaText = Field(
        default="0", description="FLOPs of attention above the diagonal, which a causal kernel may skip; not deducted."
    )


def unknown(name: str) -> str:
    """What stands for the meaning of a setting that this table has no words for."""
    return f"config attribute {name}"


def is_element(name: str) -> bool:
    """Whether a variable is bytes per something of a tensor: no size of the model, and it may be a fraction."""
    return name.endswith("_bytes")


class Variable(Frozen):
    """A name that formulas use."""

    promised: ClassVar[tuple[str, ...]] = ("kind",)

    name: str
    meaning: str
    config_key: str = Field(default="", description="Attribute of the config class; empty for run-time variables.")
    default: Rational | None = None
    definition: FormulaText = Field(
        default="", description="Formula that the variable follows where neither config nor values set it."
    )
    kind: Literal["symbol", "fitted", "fixed", "derived"] = Field(
        default="symbol",
        description="symbol: formulas hold for any value; fitted: they hold at all sizes that were run, and are run again "
        "at any other that is asked for; fixed: only for `default`; derived: always its definition.",
    )


class LineTotal(Frozen):
    """Sum of the kernels of one line."""

    file: str
    line: int
    code: str
    flops: FormulaText
    matmul_flops: FormulaText
    memory_access: MemoryAccess


class GroupTotal(Frozen):
    """Sum over a class of modules or operators."""

    name: str
    count: FormulaText
    flops: FormulaText
    matmul_flops: FormulaText
    memory_access: MemoryAccess


class Share(Frozen):
    """The part of a training step that runs one way."""

    flops: FormulaText
    matmul_flops: FormulaText
    memory_access: MemoryAccess


class TrainedLine(Frozen):
    """A line of the forward: its FLOPs on the way there and back, and what is saved for the way back, submodules included."""

    file: str
    line: int
    forward: FormulaText
    backward: FormulaText
    saved: FormulaText = Field(description="Bytes.")


class Optimizer(Frozen):
    """A class of optimizers: the bytes that it keeps beside weights and gradients, and one update of all weights."""

    name: Literal["adamw", "sgd_momentum", "sgd"]
    says: str
    state: FormulaText
    step: Share


class Recomputation(Frozen):
    """The step with every layer run again on the way back (activation checkpointing)."""

    saved_activations: FormulaText = Field(description="The layers' inputs and what is saved outside of them.")
    largest_layer: FormulaText = Field(
        description="What a layer saves while it runs again: the largest, one at a time."
    )
    flops: FormulaText = Field(description="Of forward, backward and the layers' second forward.")
    matmul_flops: FormulaText


class Training(Frozen):
    """What a training step adds to a document: bytes that stay, and which way the work goes."""

    forward: Share
    backward: Share
    saved_activations: FormulaText = Field(description="Bytes that autograd keeps between the two, weights left out.")
    gradients: FormulaText = Field(description="Bytes of the weights' gradients.")
    optimizers: tuple[Optimizer, ...] = Field(description="adamw unless another is chosen; in no total.")
    recomputation: Recomputation | None = Field(default=None, description="Where the forward has layers in lists.")
    lines: tuple[TrainedLine, ...] = ()


class Analysis(Frozen):
    """What both documents share."""

    promised: ClassVar[tuple[str, ...]] = ("assumptions", "conditions", "not_counted", "conventions", "parameters")

    class_name: str
    file: str
    line: int
    forward_file: str = ""
    forward_line: int = 0
    model_class: str = Field(default="", description="The model that was traced to analyse the class.")
    instance: str = Field(default="", description="Path of the analysed instance in that model; `*` stands for layers.")
    phase: Phase
    model_inputs: tuple[ModelInput, ...] = Field(default=(), description="What the traced model is called with.")
    outputs: tuple[TensorInfo, ...] = Field(default=(), description="Tensors that the module returns, views included.")
    attention: str
    logits: Literal["all", "last", ""] = Field(
        default="", description="Positions that logits are computed of; empty: the model's forward has no say in it."
    )
    dtype: str = "bfloat16"
    kernels: tuple[Kernel, ...]
    totals: Totals
    variables: tuple[Variable, ...]
    assumptions: tuple[str, ...] = ()
    conditions: tuple[str, ...] = Field(default=(), description="Under which the formulas hold; each a comparison.")
    not_counted: tuple[str, ...] = ()
    reads: tuple[Site, ...] = Field(
        default=(), description="Where Python reads values of tensors: on a device it waits for them there."
    )
    conventions: tuple[str, ...] = ()
    parameters: FormulaText = Field(default="0", description="Number of weights of the module.")
    weights: FormulaText = Field(default="0", description="Their bytes, as the checkpoint stores them.")
    training: Training | None = Field(default=None, description="Of phase train.")


class ModuleAnalysis(Analysis):
    """A document: one module's forward, submodule calls kept as references."""

    promised: ClassVar[tuple[str, ...]] = ("lines",)

    lines: tuple[LineTotal, ...] = ()


class ModelAnalysis(Analysis):
    """A document: every reference replaced by the referenced module's kernels."""

    per_class: tuple[GroupTotal, ...] = Field(default=(), description="Per module class: kernels of its own lines.")
    per_operator: tuple[GroupTotal, ...] = Field(default=(), description="Per operator.")


class Evaluated(Frozen):
    """The totals at one point: exact integers, FLOPs and bytes."""

    flops: int
    matmul_flops: int
    memory_read: int
    memory_write: int
    floor_read: int
    floor_write: int
    parameters: int
    weights: int = Field(default=0, description="Bytes of the weights.")
    saved_activations: int | None = Field(default=None, description="Bytes, of phase train.")
    values: dict[str, Rational] = Field(description="Every variable's value at this point.")


class ExpectedExperts(Frozen):
    """What a pass is expected to read where its tokens choose experts uniformly; totals hold the bound instead."""

    experts_read: float = Field(description="Experts of one layer (of the first kind).")
    bound: int = Field(description="Those that can be touched, which totals and `evaluated` count.")
    memory_read: int = Field(
        description="Bytes read by the document's pass with the expected number in place of the bound."
    )


class ServingRule(Frozen):
    """One change that an engine makes to the eager pass, and the bytes that it saves in the document's pass."""

    rule: str
    says: str
    places: tuple[str, ...] = Field(default=(), description="Where it applies, file:line; the first few.")
    saved: MemoryAccess
    flops_added: FormulaText = Field(default="0", description="Negative where FLOPs are saved.")


class ServingView(Frozen):
    """The pass as an engine runs it: the document's operators under the rules, each named with what it changes."""

    flops: FormulaText
    matmul_flops: FormulaText
    memory_access: MemoryAccess
    rules: tuple[ServingRule, ...]
    limits: tuple[str, ...] = Field(
        default=(), description="What engines do beyond these rules, or was not recognised."
    )
    evaluated: dict[str, int] | None = Field(
        default=None, description="flops, matmul_flops, memory_read, memory_write."
    )


class ModuleAnalysisResult(ToolResult):
    """Answer of `count_flops`."""

    numbers: Numbers | None = Field(default=None, description="The pass in numbers; null with detail='formulas'.")
    document: ModuleAnalysis
    evaluated: Evaluated | None = None
    expected: ExpectedExperts | None = None
    serving: ServingView | None = Field(default=None, description="With view='serving'.")


class ModelAnalysisResult(ToolResult):
    """Answer of `expand_refs`."""

    numbers: Numbers | None = Field(default=None, description="The pass in numbers; null with detail='formulas'.")
    document: ModelAnalysis
    evaluated: Evaluated | None = None
    expected: ExpectedExperts | None = None
    serving: ServingView | None = Field(default=None, description="With view='serving'.")


class ModuleNode(Frozen):
    """A module of a model, repeated siblings folded."""

    promised: ClassVar[tuple[str, ...]] = ("parameters",)

    name: str
    class_name: str
    repeat: int = 1
    parameters: int = Field(default=0, description="Weights in this subtree, all repeats together.")
    weights: dict[str, tuple[int, ...]] = Field(default_factory=dict, description="Own parameters and buffers: shapes.")
    buffers: tuple[str, ...] = Field(default=(), description="Which of them are buffers, and no weights.")
    children: tuple[ModuleNode, ...] = ()


class ModelTreeResult(ToolResult):
    """Answer of `inspect_model`."""

    model_class: str
    config_class: str
    config: dict[str, object] = Field(default_factory=dict)
    parameters: int
    tree: ModuleNode
    text: str = Field(description="The tree as an indented listing.")
