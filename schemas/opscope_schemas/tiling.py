"""How a GPU kernel is tiled, as its source says it: the vocabulary of `cuda_kernel_tiling`.

Every fact carries the line it was read at and its basis: `source` (the text of that line) or `evaluated` (worked out
from it, under the listed assumptions). In formulas, names in braces are run-time quantities of the caller, bare names
are compile-time constants of the kernel (constexpr, template parameter, tile size), `cdiv(a, b)` is the ceiling of a/b.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.resources import Resources

Basis = Literal["source", "evaluated"]
Language = Literal["triton", "cuda", "tilelang", "cutile", "cute_dsl", "gluon", "cutlass"]
Level = Literal["global", "shared", "constant", "register", "tensor_core"]
TileUnit = Literal["grid", "block", "warp", "thread", "instruction"]
Scalar = bool | int | float | str | None


class Fact(Frozen):
    """Something a source line says."""

    promised: ClassVar[tuple[str, ...]] = ("file", "assumptions")

    line: int
    file: str = Field(default="", description="Empty: the kernel's own file.")
    basis: Basis = "source"
    assumptions: tuple[str, ...] = Field(default=(), description="What an evaluated fact takes for granted.")


class Parameter(Fact):
    """A run-time parameter of a kernel."""

    name: str
    type: str = ""
    pointer: bool = Field(default=False, description="Declared as a pointer, or the base of an address in the body.")
    default: str = ""


class BoundValue(Fact):
    """A value that a compile-time parameter takes, and who gives it."""

    value: str
    origin: Literal["autotune", "launch", "heuristics", "default", "instantiation", "attribute", "constant", "block"]
    when: str = Field(default="", description="Condition under which it is taken; empty: always.")
    definitions: tuple[str, ...] = Field(default=(), description="Host variables in the value: `name = source (line)`.")


class Constexpr(Fact):
    """A compile-time parameter: Triton constexpr, or C++ template parameter."""

    name: str
    kind: Literal["constexpr", "template"]
    type: str = ""
    default: str = ""
    values: tuple[BoundValue, ...] = ()


class TileSize(Fact):
    """A compile-time constant that measures a tile."""

    name: str
    values: tuple[str, ...] = Field(default=(), description="Distinct values found; empty: not resolved.")
    used_as: tuple[str, ...] = Field(default=(), description="Expressions that make it a tile size.")


class TileLevel(Fact):
    """The elements that one grid, block, warp, thread or matrix instruction works on at once."""

    level: TileUnit
    what: str = Field(description="Parameter, shared array or instruction; of a grid, what its tiles are worked on by.")
    shape: tuple[str, ...] = Field(
        default=(),
        description="Elements along each axis (of a grid: tiles); m, n, k of a matrix instruction; empty: not told.",
    )
    elements: str = Field(default="", description="Their number; of a matrix instruction those of its result.")


class Launch(Fact):
    """One launch site: the grid, and what is given beside it."""

    promised: ClassVar[tuple[str, ...]] = ("num_tiles", "shared_memory")

    function: str = Field(default="", description="Host function that holds the launch.")
    kernel: str = Field(default="", description="The launched expression, template arguments resolved.")
    expression: str = Field(description="The grid as written.")
    dimensions: tuple[str, ...] = Field(default=(), description="A formula per axis; empty: not resolved.")
    num_tiles: str = Field(default="", description="Product of the dimensions.")
    block: tuple[str, ...] = Field(default=(), description="CUDA: threads per block along each axis.")
    threads: int | None = Field(default=None, description="CUDA: threads per block, where it is a constant.")
    shared_memory: str = Field(default="", description="CUDA: dynamic shared memory in bytes.")
    stream: str = ""
    cluster: str = ""
    when: str = Field(default="", description="Condition under which this grid is taken; empty: always.")
    reached_when: tuple[str, ...] = Field(default=(), description="Tests around the launch, outermost first.")
    definitions: tuple[str, ...] = Field(default=(), description="Host variables in the grid: `name = source (line)`.")
    unresolved: tuple[str, ...] = Field(default=(), description="Expressions that reading alone cannot resolve.")


class IndexMapping(Fact):
    """A line that turns the program or block id into tile coordinates."""

    axis: str = Field(default="", description="program_id axis or blockIdx member; empty on derived lines.")
    variable: str
    expression: str
    via: str = Field(default="", description="Helper function that holds the line.")
    when: str = ""


class TuneConfig(Fact):
    """One autotune configuration."""

    promised: ClassVar[tuple[str, ...]] = ("num_warps", "num_stages")

    values: dict[str, Scalar]
    num_warps: Scalar = None
    num_stages: Scalar = None
    options: dict[str, Scalar] = Field(default_factory=dict)
    when: str = Field(default="", description="Assumptions that select it; empty: always.")


class TuneVariant(Frozen):
    """How many configurations hold under one set of assumptions."""

    when: str
    count: int


class Autotune(Fact):
    """The autotune decorator, its configurations enumerated."""

    decorator: str
    expression: str
    count: int | None = Field(
        default=None, description="Distinct configurations over all assumptions; null: unresolved."
    )
    configs: tuple[TuneConfig, ...] = ()
    variants: tuple[TuneVariant, ...] = ()
    key: tuple[str, ...] = Field(default=(), description="Arguments whose change starts a new tuning.")
    other: dict[str, str] = Field(default_factory=dict, description="Remaining arguments of the decorator, as written.")
    unresolved: str = Field(default="", description="Expression that could not be enumerated; empty: complete.")


class MemoryOperation(Fact):
    """A load, store or asynchronous copy in the kernel."""

    operation: str
    level: Level
    expression: str = Field(description="Pointer or address expression.")
    parameter: str = Field(default="", description="Kernel parameter that the address starts from.")
    variable: str = Field(default="", description="What receives a load.")
    definition: str = Field(default="", description="Definition of the pointer variable: `source (line)`.")
    mask: str = ""
    mask_definition: str = Field(default="", description="Definition of the mask variable: `source (line)`.")
    loop: int = Field(default=0, description="Line of the innermost loop around it; 0: none.")
    via: str = ""
    shape: tuple[str, ...] = Field(default=(), description="Of languages of tiles: the tile, elements along each axis.")
    strides: tuple[str, ...] = Field(
        default=(), description="Elements from one to the next along each axis (CUDA: thread); '': not told by source."
    )
    coalesced: str = Field(default="", description="Whether neighbours lie side by side: yes, no, or where they do.")
    width: int | None = Field(default=None, description="CUDA: bytes that one thread moves at once.")
    bytes: str = Field(default="", description="Of one execution, by one program or thread block.")
    when: str = Field(default="", description="Condition under which it runs; empty: always.")
    counted: bool = Field(default=True, description="False: on a branch that `cost` does not take.")


class SharedArray(Fact):
    """A declaration of shared memory."""

    name: str
    type: str
    dimensions: tuple[str, ...] = ()
    bytes: int | None = Field(default=None, description="None where the size is not a constant of the source.")
    formula: str = ""
    dynamic: bool = False
    via: str = ""


class Constraint(Fact):
    """What must hold for the kernel to be compiled or launched."""

    promised: ClassVar[tuple[str, ...]] = ("message",)

    kind: str
    condition: str
    message: str = ""
    via: str = ""
    when: str = ""


class Loop(Fact):
    """A loop of the kernel."""

    promised: ClassVar[tuple[str, ...]] = ("kind",)

    variable: str
    expression: str
    trip_count: str = Field(default="", description="Formula; empty where the loop is not a counted one.")
    kind: str = ""
    via: str = ""
    when: str = ""


class Instruction(Fact):
    """A matrix product, asynchronous copy, barrier or reduction that decides how the tile is computed."""

    operation: str
    expression: str
    via: str = ""
    when: str = ""


class DeviceCall(Fact):
    """A device function that the kernel calls; its lines are read along (`via`)."""

    name: str
    followed: bool


class CostLine(Fact):
    """FLOPs and bytes that a line adds to one tile or thread block, its loops and threads counted."""

    promised: ClassVar[tuple[str, ...]] = ("flops",)

    operation: str
    flops: str = ""
    bytes: str = ""
    via: str = ""


class Cost(Frozen):
    """FLOPs and bytes of a kernel as formulas: of one Triton program or thread block, and of a launch where all cost the same.

    2*m*n*k for a matrix product, 1 per element of other arithmetic on data (fma 2), index arithmetic 0. CUDA: as the
    source writes it; what the compiler folds or keeps in registers is not taken off.
    """

    promised: ClassVar[tuple[str, ...]] = ("lines", "variables", "conditions", "not_counted", "assumptions")

    basis: Basis = "evaluated"
    flops: str = Field(description="Empty, as the others: what matters of it is `not_counted`.")
    matmul_flops: str = Field(description="Of matrix products alone.")
    read_bytes: str
    write_bytes: str
    launch_flops: str = ""
    launch_matmul_flops: str = ""
    launch_read_bytes: str = ""
    launch_write_bytes: str = ""
    at_least: tuple[str, ...] = Field(default=(), description="Totals that lack something of `not_counted`.")
    intensity: str = Field(
        default="", description="FLOPs per byte of one tile or thread block; empty: one is `at_least`."
    )
    stage_bytes: str = Field(
        default="",
        description="Operands of products that one iteration loads: what a pipeline stage holds in shared memory.",
    )
    lines: tuple[CostLine, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict, description="Quantities that are no names of the source.")
    conditions: tuple[str, ...] = Field(default=(), description="Branches and `#if`s that were taken to be so.")
    not_counted: tuple[str, ...] = Field(default=(), description="What the sums lack; empty: nothing.")
    unbound: tuple[str, ...] = Field(default=(), description="Names of the formulas that `sizes` does not give.")
    assumptions: tuple[str, ...] = ()
    evaluated: dict[str, int | float] = Field(
        default_factory=dict, description="The formulas that `sizes` bind, as numbers; intensity in FLOPs per byte."
    )


class KernelTiling(Frozen):
    """Everything source says about how one kernel is tiled."""

    promised: ClassVar[tuple[str, ...]] = (
        "decorators",
        "parameters",
        "constexpr",
        "tile",
        "grid",
        "num_tiles",
        "mapping",
        "num_warps",
        "num_stages",
        "autotune",
        "loads",
        "stores",
        "shared_memory",
        "constraints",
        "resources",
    )

    screen: str = Field(default="", description="What matters of it on one screen: drawing and key figures as text.")
    id: str = Field(description="path::name; tells kernels of one name apart.")
    name: str
    language: Language
    role: Literal["kernel", "device_function"] = "kernel"
    file: str
    line: int
    end_line: int
    decorators: tuple[str, ...] = ()
    macro: str = Field(default="", description="Macro that writes the definition; empty: written out.")
    parameters: tuple[Parameter, ...] = ()
    constexpr: tuple[Constexpr, ...] = ()
    tile: tuple[TileSize, ...] = ()
    levels: tuple[TileLevel, ...] = ()
    grid: tuple[Launch, ...] = ()
    num_tiles: str = ""
    mapping: tuple[IndexMapping, ...] = ()
    num_warps: tuple[BoundValue, ...] = ()
    num_stages: tuple[BoundValue, ...] = ()
    autotune: Autotune | None = None
    heuristics: tuple[BoundValue, ...] = ()
    loads: tuple[MemoryOperation, ...] = ()
    stores: tuple[MemoryOperation, ...] = ()
    shared_memory: tuple[SharedArray, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    loops: tuple[Loop, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    calls: tuple[DeviceCall, ...] = ()
    cost: Cost | None = None
    resources: Resources = Resources()
    notes: tuple[str, ...] = ()
    diagram: str = Field(default="", description="The drawing that `diagram` asks for: tile mapping, memory hierarchy.")


class Unanalysed(Frozen):
    """A kernel in a language or form that is recognised but not read."""

    form: str
    name: str
    file: str
    line: int


class TilingResult(ToolResult):
    """Answer of `cuda_kernel_tiling`."""

    promised: ClassVar[tuple[str, ...]] = ("assumptions",)

    kernels: tuple[KernelTiling, ...]
    total: int = Field(description="Kernels that the target names; `kernels` is one page of them.")
    offset: int = 0
    next_offset: int | None = Field(default=None, description="Give it as `offset` for the next page; null: no more.")
    assumptions: tuple[str, ...] = Field(default=(), description="In force for the whole answer, e.g. arch.")
    not_analysed: tuple[Unanalysed, ...] = ()
    not_analysed_counts: dict[str, int] = Field(default_factory=dict)
