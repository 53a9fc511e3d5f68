"""The operator graph of a pass: what reads what, how long tensors live, what memory and communication that takes.

Tensors are stretches of memory: a view is the tensor that it looks into. Operators are numbered from 1 in the order of
eager execution. Sizes are formulas in bytes of one call of the analysed module, unless a field says otherwise.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.analysis import FormulaText, Phase, Variable
from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.formula import Rational

__all__ = [
    "CacheGrowth", "Communication", "Dataflow", "DataflowNumbers", "DataflowResult", "FlowOperator", "FlowTensor", "HeldTensor", "MemoryNumbers", "Overlap",
    "PeakPoint", "Place", "Strategy",
]  # fmt: skip


class FlowOperator(Frozen):
    """One operator, with the operators whose results it reads."""

    id: int
    operator: str
    file: str
    line: int
    module: str = Field(default="", description="Path of the submodule that issues it, below the analysed one.")
    repeat: FormulaText = Field(default="1", description="How often it runs in one call of the analysed module.")
    reads: tuple[int, ...] = Field(default=(), description="Tensors by id; weights are none.")
    weights: tuple[str, ...] = Field(
        default=(),
        description="Weights that it reads, as the module that issues it names them; `*` stands for places in lists.",
    )
    writes: tuple[int, ...] = ()
    holds: tuple[int, ...] = Field(
        default=(),
        description="Activations in memory while it runs, in the repetition with the most; one stands for those of other repetitions too.",
    )
    depends_on: tuple[int, ...] = Field(default=(), description="Operators by id.")
    carried_from: tuple[int, ...] = Field(
        default=(), description="Operators of the repetition before (the layer before) whose results it reads."
    )
    level: int = Field(default=0, description="Operators on the longest chain before it; equal levels are independent.")


class FlowTensor(Frozen):
    """A tensor: who makes it, who reads it, how long it lives."""

    id: int
    kind: Literal["activation", "input", "output", "cache", "constant"]
    name: str = Field(
        default="", description="Of an output, as the model's result calls it; empty: it calls it nothing."
    )
    shape: tuple[FormulaText, ...]
    dtype: str
    bytes: FormulaText = Field(default="", description="Empty: not known.")
    created_by: int = Field(default=0, description="Operator by id; 0: it is there before the module runs.")
    consumed_by: tuple[int, ...] = Field(default=(), description="Operators by id.")
    lives: tuple[int, int] = Field(description="First and last operator during which it is in memory.")
    in_later_repetitions: bool = Field(
        default=False, description="Whether it is there too while what repeats around the last of them runs again."
    )


class PeakPoint(Frozen):
    """An operator during which activations take the most, for some sizes."""

    operator: int
    bytes: FormulaText
    tensors: tuple[int, ...] = Field(description="What it holds then.")


class CacheGrowth(Frozen):
    """Bytes of the KV cache (or other state) that the pass finds, leaves, and adds for one more token of each sequence."""

    before: FormulaText
    after: FormulaText
    per_token: FormulaText
    memory: FormulaText = Field(
        default="",
        description="What it lies in after the pass, where that is more: a window may be a view of all tokens.",
    )


class Place(Frozen):
    """A line of source and what it says."""

    file: str
    line: int
    text: str


class Strategy(Frozen):
    """One way of splitting a model over devices: the lines that declare or do it, or where it was looked for."""

    kind: Literal["data", "tensor", "pipeline", "sequence", "expert"]
    found: bool
    places: tuple[Place, ...] = ()
    searched: str = Field(default="", description="What was looked for and where, if nothing was found.")


class Communication(Frozen):
    """What one entry of a plan, or one call, communicates."""

    what: str
    primitive: str = Field(description="The collective; or why there is none, or that it is not analysed.")
    when: str
    file: str
    line: int
    bytes: FormulaText = Field(
        default="",
        description="Handled in one call; 0 for what communicates nothing, empty where it is not known: `note` says why.",
    )
    calls: FormulaText = Field(default="", description="Calls in a pass.")
    note: str = ""


class Overlap(Frozen):
    """Whether communication overlaps computation: lines that make it so, or what was looked for."""

    places: tuple[Place, ...] = ()
    searched: str = ""


class Dataflow(Frozen):
    """The graph of one call of a module in a pass."""

    promised: ClassVar[tuple[str, ...]] = ("variables", "assumptions", "conditions", "not_counted")

    class_name: str
    file: str
    line: int
    instance: str = ""
    model_class: str = ""
    phase: Phase
    attention: str
    dtype: str
    operators: tuple[FlowOperator, ...]
    tensors: tuple[FlowTensor, ...]
    depth: int = Field(description="Operators on the longest chain of dependencies, repeated layers once.")
    peak_activations: FormulaText = Field(
        description="The most bytes that tensors of the module take at once, each there until Python lets it go; empty: not known."
    )
    inputs: FormulaText = Field(
        default="", description="Bytes of the model's inputs that it reads, which the caller keeps; empty: not known."
    )
    peaks: tuple[PeakPoint, ...] = Field(default=(), description="Where that may be, by sizes.")
    cache: CacheGrowth | None = Field(default=None, description="Of the whole module, all layers; null: it keeps none.")
    weights: FormulaText = Field(default="0", description="Bytes.")
    variables: tuple[Variable, ...] = ()
    assumptions: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()


class DataflowNumbers(Frozen):
    """The formulas at one point, in bytes."""

    peak_activations: int | None = None
    peak_operator: int = Field(default=0, description="The operator at which the peak is.")
    cache_before: int | None = None
    cache_after: int | None = None
    cache_per_token: int | None = None
    weights: int | None = None
    values: dict[str, Rational] = Field(description="Every variable's value at this point.")


class HeldTensor(Frozen):
    """A tensor that lives during the peak: bytes, and the operator that makes it."""

    bytes: int
    kind: str
    operator: str = Field(default="", description="With its module; empty: there before the module runs.")
    file: str = ""
    line: int = 0


class MemoryNumbers(Frozen):
    """The memory of a pass at one point, in bytes; `said` in a sentence."""

    said: str
    at: dict[str, Rational] = Field(description="Sizes of the run; the configuration's are its own.")
    assumed: tuple[str, ...] = Field(default=(), description="Sizes that nobody gave.")
    weights: int | None
    peak_activations: int | None
    cache_before: int | None
    cache_after: int | None
    cache_per_token: int | None = Field(description="Of one sequence, all layers.")
    peak: str = Field(default="", description="The operator during which activations take the most.")
    largest: tuple[HeldTensor, ...] = Field(default=(), description="What lives then, most first.")


class DataflowResult(ToolResult):
    """Answer of `trace_dataflow`."""

    numbers: MemoryNumbers | None = Field(
        default=None, description="The memory in numbers; null with detail='formulas'."
    )
    document: Dataflow
    evaluated: DataflowNumbers | None = None
    parallelism: tuple[Strategy, ...] = ()
    communication: tuple[Communication, ...] = ()
    overlap: Overlap = Overlap()
