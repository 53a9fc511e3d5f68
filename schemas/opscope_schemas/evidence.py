"""What a machine said: records of profiling commands, the workload that they watched, and the file in which a topic's records lie.

A record keeps what was typed, by which version of which tool, on which machine, what came of it and why, the output that was read (packed,
with its digest), what was read from it, and how quiet the machine was. `EvidenceFile` is `posts/evidence/TOPIC.json`; posts are
written from it and held to it. Names of fields end with their unit (`opscope_schemas.units.unit_of_field`).
"""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult

__all__ = [
    "KINDS", "TOPICS", "CollectEvidenceResult", "CollectorRow", "EvidenceClass", "EvidenceFile", "EvidenceKind", "EvidenceRecord",
    "EvidenceStatus", "ImportEvidenceResult", "Machine", "Noise", "Output", "Spread", "Topic", "Workload",
]  # fmt: skip

Topic = Literal["memory-bandwidth", "system-calls", "cache-hierarchy", "memory-bottlenecks", "matrix-multiplication"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
#: what of depth a record brings into a post
EvidenceKind = Literal["command", "code", "dump", "syscalls", "counters", "source", "flamegraph"]
KINDS: tuple[EvidenceKind, ...] = get_args(EvidenceKind)
EvidenceStatus = Literal["ok", "missing", "unsupported", "denied", "failed", "timeout"]
#: exact: counted, and the same each time; simulated: by a model of the machine that runs the real code; modelled: by a formula with fitted
#: parameters; measured: by a clock or a sampler here; published: by somebody else's, who is named
EvidenceClass = Literal["exact", "simulated", "modelled", "measured", "published"]


class Workload(Frozen):
    """A small model with random weights that generates tokens; every size is the caller's."""

    model: str = Field(default="llama", max_length=80, description="A model type of transformers that generates text.")
    hidden_size: int = Field(default=1024, ge=8, le=16384)
    num_layers: int = Field(default=8, ge=1, le=128)
    num_heads: int = Field(default=16, ge=1, le=256)
    num_kv_heads: int = Field(default=16, ge=1, le=256)
    intermediate_size: int = Field(default=2816, ge=8, le=65536)
    vocab_size: int = Field(default=8192, ge=16, le=262144)
    batch_size: int = Field(default=1, ge=1, le=256)
    prompt: int = Field(default=128, ge=2, le=16384, description="Tokens of each prompt.")
    tokens: int = Field(default=32, ge=4, le=4096, description="Tokens that are generated.")
    threads: int = Field(default=1, ge=1, le=256, description="Threads of torch.")
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["cpu", "cuda"] = "cpu"
    repeat: int = Field(default=5, ge=1, le=50, description="How often what is timed is done.")
    l1_bytes: int = Field(
        default=0, ge=0, le=1 << 24, description="Simulated first-level data cache; 0: this machine's."
    )
    l2_bytes: int = Field(default=0, ge=0, le=1 << 30, description="Simulated last-level cache; 0: this machine's L2.")


class Machine(Frozen):
    """Where something was measured."""

    name: str = Field(description="What a record's `machine` names.")
    cpu: str = ""
    cpus: int = 0
    kernel: str = ""
    virtual: str = Field(default="", description="The hypervisor; empty on bare metal.")
    memory_bytes: int = 0
    l1_bytes: int = Field(default=0, description="First-level data cache of one core.")
    l2_bytes: int = Field(default=0, description="Second-level cache of one core.")
    l3_bytes: int = 0
    gpu: str = ""
    driver: str = ""


class Output(Frozen):
    """What one command wrote, or as much of it as was read."""

    name: str
    sha256: str = Field(description="Of the text that is kept.")
    text: str = Field(description="Scrubbed, compressed by zlib, in base64.")
    left_out: int = Field(default=0, description="Characters that were not kept.")


class Spread(Frozen):
    """How far repetitions lie apart."""

    repetitions: int
    least: float
    most: float


class Noise(Frozen):
    """How quiet the machine was."""

    pressure_percent: float | None = Field(
        default=None, description="Part of the time in which something waited for a CPU while it ran (PSI)."
    )
    load: float = Field(default=0.0, description="Load average of the last minute, before.")
    spread: dict[str, Spread] = Field(default_factory=dict, description="By field.")


class EvidenceRecord(Frozen):
    """What came of one collector."""

    promised: ClassVar[tuple[str, ...]] = ("status", "parsed")

    id: str
    title: str = Field(description="What was asked.")
    kind: EvidenceKind
    evidence_class: EvidenceClass
    tool: str
    tool_version: str = ""
    commands: tuple[str, ...] = Field(default=(), description="As one types them.")
    machine: str = ""
    status: EvidenceStatus
    reason: str = Field(default="", description="Why the status is not ok.")
    elsewhere: str = Field(default="", description="The command that brings it on a machine that can.")
    excerpt: tuple[str, ...] = Field(
        default=(), description="The lines that a post shows; `[...]` where some are left out."
    )
    parsed: dict[str, int | float | str] = Field(
        default_factory=dict, description="What was read; names end with units."
    )
    outputs: tuple[Output, ...] = ()
    pictures: dict[str, str] = Field(default_factory=dict, description="Alternative text by path, relative to posts/.")
    noise: Noise = Noise()
    source: str = Field(default="", description="Where a published or imported figure comes from.")
    started: str = ""
    wall_seconds: float = 0.0


class EvidenceFile(Frozen):
    """Everything that was collected on a topic."""

    promised: ClassVar[tuple[str, ...]] = ("machines", "records")

    topic: Topic
    workload: Workload = Workload()
    machines: tuple[Machine, ...] = ()
    records: tuple[EvidenceRecord, ...] = ()
    seals: dict[str, str] = Field(
        default_factory=dict,
        description="SHA-256 of each record, of each machine (`machine NAME`) and of the workload, as they were when they were collected.",
    )


class CollectorRow(Frozen):
    """What one collector said."""

    id: str
    tool: str
    kind: str
    evidence_class: str
    needs: str = Field(description="cpu, compiler or gpu.")
    status: EvidenceStatus
    reason: str = ""
    elsewhere: str = Field(default="", description="To type on a machine that can.")
    parsed: dict[str, int | float | str] = Field(default_factory=dict)


class CollectEvidenceResult(ToolResult):
    """Answer of `collect_evidence` and `import_evidence`."""

    promised: ClassVar[tuple[str, ...]] = ("records",)

    topic: str
    path: str = Field(description="The evidence file, relative to the output folder.")
    machine: str = Field(description="Where they were made.")
    records: tuple[CollectorRow, ...] = ()
    counted: dict[str, int] = Field(default_factory=dict, description="Records by status.")


class ImportEvidenceResult(ToolResult):
    """Answer of `import_evidence`."""

    promised: ClassVar[tuple[str, ...]] = ("imported",)

    path: str = Field(description="The evidence file.")
    imported: tuple[str, ...] = Field(default=(), description="Records.")
