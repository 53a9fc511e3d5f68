"""What a kernel takes of a GPU once it is compiled, and whether and how often it fits: vocabulary of `cuda_kernel_tiling`.

Everything here is of basis `compiled` (a compiler said it, for one architecture and one specialisation) or `evaluated`
(worked out from published limits); nothing is mixed with what the source says.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen


class Occupancy(Frozen):
    """How many blocks are resident on one multiprocessor at once."""

    arch: str
    threads: int = Field(description="Per block.")
    registers: int | None = Field(description="Per thread; null: taken to set no limit.")
    shared_bytes: int = Field(description="Static and dynamic, per block.")
    blocks: int
    warps: int
    most_warps: int = Field(description="That the multiprocessor can hold.")
    percent: float = Field(description="Of the warps that it can hold.")
    limited_by: tuple[str, ...] = Field(default=(), description="What stops the next block.")
    fits: bool = Field(description="Whether one block runs at all.")
    breaks: str = Field(default="", description="The resource that does not suffice: asked for, at most.")


class LineInstructions(Frozen):
    """Machine instructions that come from one source line."""

    file: str
    line: int
    count: int


class Build(Frozen):
    """One compilation of a kernel; figures are the compiler's."""

    promised: ClassVar[tuple[str, ...]] = ("lines",)

    arch: str
    basis: Literal["compiled"] = "compiled"
    compiler: str = Field(description="Name and version.")
    specialisation: dict[str, str] = Field(
        description="What was compiled: parameter -> type and what is assumed of its value, or constexpr value."
    )
    options: dict[str, int] = Field(default_factory=dict, description="num_warps, num_stages and the like.")
    types: tuple[str, ...] = Field(default=(), description="CUTLASS: what the collectives are made of, `what: type`.")
    config: int | None = Field(default=None, description="Index of the autotune configuration; null: none.")
    threads: int = Field(default=0, description="Per block; 0: set by the launch alone.")
    registers: int | None = Field(default=None, description="Per thread.")
    stack_bytes: int | None = Field(default=None, description="Per thread, in local memory.")
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    shared_bytes: int | None = Field(default=None, description="Per block: static, for Triton all that it asks for.")
    barriers: int | None = None
    instructions: dict[str, int] = Field(
        default_factory=dict, description="Machine instructions by what they do; the numbers are of places in the code."
    )
    lines: tuple[LineInstructions, ...] = Field(default=(), description="Source lines with the most instructions.")
    occupancy: Occupancy | None = None
    error: str = Field(default="", description="The compiler's first error; empty: it compiled.")


class Constant(Frozen):
    """What a constant expression of the source comes to, by the compiler."""

    expression: str
    value: int | None = None
    basis: Literal["compiled"] = "compiled"
    arch: str = ""
    compiler: str = ""
    error: str = Field(default="", description="The compiler's first error; empty: it has a value.")


class NamedInstance(Frozen):
    """An instance of a CUDA kernel that source names."""

    instance: str = Field(description="As `instance` takes it.")
    by: Literal["launch", "explicit instantiation", "use"]
    file: str
    line: int


class Fit(Frozen):
    """Whether one configuration, launched with so many threads, runs on one architecture."""

    arch: str
    config: int | None = Field(default=None, description="Index of the autotune configuration; null: none.")
    basis: Literal["compiled", "evaluated", "estimated"] = Field(
        description="estimated: shared memory by a formula of tiles and stages, see assumptions."
    )
    threads: int = Field(description="Per block.")
    shared_bytes: int = Field(description="Static and dynamic, per block.")
    fits: bool
    breaks: str = Field(default="", description="The resource that does not suffice: asked for, at most.")
    blocks: int = Field(description="Resident on one multiprocessor.")
    limited_by: tuple[str, ...] = ()


class Resources(Frozen):
    """Registers, spills and occupancy: by compilation, or as far as source alone tells."""

    promised: ClassVar[tuple[str, ...]] = ("assumptions",)

    compiled: bool = False
    statement: str = "Not compiled: registers, spills and the instruction mix are not known from source alone."
    builds: tuple[Build, ...] = ()
    fits: tuple[Fit, ...] = Field(default=(), description="One row per configuration and architecture.")
    occupancy: tuple[Occupancy, ...] = Field(
        default=(), description="Without compiling: as a function of the registers per thread, one entry per step."
    )
    instances: tuple[NamedInstance, ...] = Field(
        default=(),
        description="CUDA, with compile, and CUTLASS: the instances that source names whole; `instance` takes one.",
    )
    constants: tuple[Constant, ...] = Field(
        default=(), description="CUDA: sizes that source leaves to the compiler, and what `probe` asks for."
    )
    assumptions: tuple[str, ...] = ()
