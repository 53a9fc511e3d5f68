"""Time and memory on named hardware: what a pass takes at least, and what measured kernels of its kinds took.

Two numbers are never mixed. `bound_seconds`: exact FLOPs and bytes against the device's peak and memory bandwidth, nothing
fitted. `calibrated_seconds`: what kernels of that class were measured to take on that device, between `low_seconds` and
`high_seconds` in eight of ten cases. Times are seconds, sizes bytes, rates per second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.formula import Rational

Limit = Literal["compute", "memory", "link"]


class Parallel(Frozen):
    """How a model is spread: `tp * pp * dp` devices. `ep` of the `tp * dp` ranks of a stage share the experts, whole ones each.

    `zero`: what the `dp` ranks of a training step share: 1 optimizer state, 2 gradients too, 3 weights too.
    """

    tp: int = Field(default=1, ge=1, le=1024)
    pp: int = Field(default=1, ge=1, le=1024)
    ep: int = Field(default=1, ge=1, le=1024)
    dp: int = Field(default=1, ge=1, le=1024)
    sp: bool = False
    zero: int = Field(default=0, ge=0, le=3)

    @property
    def devices(self) -> int:
        """In all."""
        return self.tp * self.pp * self.dp

    @property
    def expert_ranks(self) -> int:
        """Ranks that share a layer of experts: those of all replicas where experts are spread, else those of one."""
        return self.tp * self.dp if self.ep > 1 else self.tp

    def __str__(self) -> str:
        named = [
            f"{name}{size}"
            for name, size in (("tp", self.tp), ("pp", self.pp), ("ep", self.ep), ("dp", self.dp))
            if size > 1
        ]
        named += [f"zero{self.zero}"] if self.zero else []
        return " ".join([*named, *(["sp"] if self.sp else [])]) or "one device"


#: no parallelism
ALONE = Parallel()
#: how `measured_as` begins of a kernel that is of no measured class
UNLIKE = "launch and bandwidth"
#: backends and precisions of products whose measured times hold the host's: their floor is 55 to 330 us (vLLM) and 12 us (TensorRT-LLM),
#: whatever the size, and 3 to 6 us in the tables of others; no fit rests on them
HOST_BOUND = {("vllm", "fp8_block"), ("trtllm", "fp8")}
#: exponent of the power law by which tokens choose experts, as kernels were measured: routers are not even
ROUTING_SKEW = 1.01


class Hardware(Frozen):
    """The device as the estimate uses it; `sources` say where its figures stand."""

    id: str
    name: str
    peak_flops: float = Field(description="Dense operations per second in the precision of most of the products.")
    peak_precision: str
    bandwidth: float = Field(description="Bytes per second of device memory.")
    capacity: int = Field(description="Bytes of device memory.")
    l2_bytes: int | None = Field(default=None, description="Bytes of its L2 cache.")
    ridge: float = Field(description="FLOPs per byte above which products are limited by compute.")
    ceilings: Mapping[str, float] = Field(
        default_factory=dict, description="Peak of each precision in which products run."
    )
    sources: tuple[str, ...] = ()


class NearestRow(Frozen):
    """The measured kernel whose sizes are nearest to one's own."""

    sizes: Mapping[str, float]
    seconds: float = Field(description="Of one run, as measured.")
    factor: float = Field(description="Mean factor between its sizes and those of the kernel; 1: the very kernel.")
    backend: str
    kernels: tuple[str, ...]
    table: str


class OperatorTime(Frozen):
    """One kernel of the pass, all its runs together."""

    promised: ClassVar[tuple[str, ...]] = ("calibrated_seconds", "limited_by")

    operation: str
    kind: str = Field(default="", description="Class of kernels, as in `spent`.")
    module: str = Field(
        default="", description="Path of the submodule that issues it, of a fused kernel most of its operators."
    )
    classes: tuple[str, ...] = Field(
        default=(), description="Classes of that submodule and of those that it stands in, outermost first."
    )
    file: str
    line: int
    count: int = Field(description="How often it runs in the pass.")
    flops: int
    bytes: int
    exchanged_bytes: int = Field(default=0, description="What a rank tells others, of a collective.")
    intensity: float = Field(description="FLOPs per byte.")
    bound_seconds: float
    calibrated_seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    launch_seconds: float | None = Field(
        default=None, description="Part of the calibrated time that kernels take however little they do."
    )
    limited_by: Limit | None = Field(default=None, description="Of the bound; null: it moves and computes nothing.")
    wide: bool = Field(
        default=False, description="The source multiplies in 32 bits; timed as the product of engines in 16."
    )
    fits_l2: bool = Field(
        default=False,
        description="What one run moves fits in the L2 cache: it may be faster than device memory allows.",
    )
    measured_as: str = Field(
        default="", description="Class of measured kernels that its calibrated time is of; empty: none."
    )
    outside: tuple[str, ...] = Field(default=(), description="Sizes beyond those that were measured.")
    nearest: NearestRow | None = Field(default=None, description="Where it was asked for and tables are installed.")

    @property
    def backend(self) -> str:
        """Whose kernels like it were measured; empty where none were."""
        named = self.measured_as.split(", ")
        return named[2] if len(named) > 2 else ""


class TimeTotals(Frozen):
    """Sums over the pass, kernels one after the other."""

    promised: ClassVar[tuple[str, ...]] = ("calibrated_seconds", "low_seconds", "high_seconds")

    flops: int
    bytes: int
    bound_seconds: float
    calibrated_seconds: float | None = None
    low_seconds: float | None = Field(default=None, description="As if every kernel were as fast as its fastest tenth.")
    high_seconds: float | None = None
    launch_seconds: float | None = Field(
        default=None, description="Part of the calibrated time that kernels take however little they do."
    )
    limited_by: Limit = Field(description="What limits most of the bound's time.")
    tokens_per_second: float | None = Field(
        default=None,
        description="New tokens of all sequences over the calibrated time; null: unknown, or it does not fit.",
    )
    bound_tokens_per_second: float | None = Field(
        default=None, description="The same of the bound: no device does more."
    )


def launches(one: OperatorTime | TimeTotals) -> float | None:
    """Share of the calibrated time that the fixed time of kernels takes (what one takes however small it is), where it is most of it: then nothing else limits; else None."""
    if not one.calibrated_seconds or one.launch_seconds is None:
        return None
    share = one.launch_seconds / one.calibrated_seconds
    return share if share > 0.5 else None


class ClassTime(Frozen):
    """What is spent on one class of kernels."""

    name: str
    share: float = Field(description="Of the time: calibrated where that is known, else bound.")
    bound_seconds: float
    calibrated_seconds: float | None = None


class RecomputedMemory(Frozen):
    """The step where every layer keeps its inputs alone and runs forward again on the way back."""

    saved_bytes: int = Field(description="The layers' inputs, what is saved outside of them, and all of one layer.")
    flops: int = Field(description="Of forward, backward and the layers' second forward.")
    fits: bool
    largest_batch: int | None = None


class TrainingMemory(Frozen):
    """What a training step has in memory beside weights and saved activations."""

    gradient_bytes: int
    optimizer_bytes: int = Field(description="AdamW: fp32 weights and two moments.")
    recomputed: RecomputedMemory | None = Field(default=None, description="Null: the forward has no layers in lists.")


class MemoryUse(Frozen):
    """Bytes on one device against what it has."""

    promised: ClassVar[tuple[str, ...]] = ("fits", "largest_batch")

    weights_bytes: int = Field(description="Of one device, as are all of these.")
    cache_bytes: int = Field(description="Of all sequences, as the pass leaves it.")
    cache_bytes_per_token: int | None = Field(default=None, description="Of one sequence.")
    activation_bytes: int | None = Field(
        description="Peak of the pass in the view asked for; of a training step what is saved for its way back. null: not known."
    )
    input_bytes: int = Field(
        default=0, description="Of what the pass is called with and its caller keeps: token ids, pixels, sound."
    )
    capacity_bytes: int
    usable_bytes: int = Field(description="Of the capacity, what engines give these four: 90 %.")
    fits: bool
    largest_batch: int | None = Field(
        default=None,
        description="Sequences of this length that fit beside the weights; 0: the weights alone do not fit.",
    )
    longest_context: int | None = Field(default=None, description="Tokens that each sequence of this batch may have.")
    training: TrainingMemory | None = None

    @property
    def needed_bytes(self) -> int:
        """Of weights, cache, inputs and activations together."""
        return self.weights_bytes + self.cache_bytes + self.input_bytes + (self.activation_bytes or 0)

    @property
    def notable_inputs(self) -> int:
        """Bytes of the inputs where they are half a percent or more of what comes beside the weights; else 0."""
        return self.input_bytes if 200 * self.input_bytes >= self.needed_bytes - self.weights_bytes else 0


class Communication(Frozen):
    """One kind of exchange among ranks, all its runs in the pass together."""

    promised: ClassVar[tuple[str, ...]] = ("calibrated_seconds",)

    kind: str = Field(description="all_reduce, all_gather, reduce_scatter or send.")
    bytes: int = Field(description="Of one run.")
    ranks: int
    count: int
    bound_seconds: float
    calibrated_seconds: float | None = None


class Spread(Frozen):
    """The pass over several devices: what one rank exchanges, and which degrees the model allows."""

    promised: ClassVar[tuple[str, ...]] = ("hidden_seconds",)

    tp: int
    pp: int
    ep: int
    dp: int
    sp: bool
    zero: int = 0
    devices: int
    communication: tuple[Communication, ...] = ()
    hidden_seconds: float | None = Field(
        default=None, description="The pass if all that ranks exchange ran beside other kernels; the total: none does."
    )
    tp_degrees: tuple[int, ...] = Field(
        default=(), description="That divide heads, and heads of keys and values or are divided by them."
    )
    ep_degrees: tuple[int, ...] = Field(default=(), description="That divide the experts.")
    differs: tuple[str, ...] = Field(default=(), description="What an engine may split or exchange otherwise.")


class Served(Frozen):
    """Continuous batching in steady state: so many requests at a time, each answered as soon as a place is free."""

    promised: ClassVar[tuple[str, ...]] = (
        "tpot_seconds",
        "ttft_service_seconds",
        "ttft_queue_seconds",
        "ttft_seconds",
        "tokens_per_second",
    )

    concurrency: int
    input_len: int
    output_len: int
    tpot_seconds: float | None = Field(
        default=None, description="Between two tokens of a sequence, prefills of others included."
    )
    step_seconds: float = Field(description="Of a decode step alone.")
    ttft_service_seconds: float | None = Field(
        default=None, description="Until the first token, with nobody before one."
    )
    ttft_queue_seconds: float | None = Field(default=None, description="Waiting beside that.")
    ttft_seconds: float | None = None
    decode_batch: float = Field(description="Sequences that decode at a time, of a replica.")
    cache_limit: int | None = Field(
        default=None, description="Sequences whose cache fits, of a replica; null: no limit met."
    )
    tokens_per_second: float | None = Field(default=None, description="Of all devices, answers alone.")
    tokens_per_second_per_device: float | None = None
    prefill_share: float = Field(description="Of the device's time.")
    basis: Literal["calibrated", "bound"] = Field(
        description="Which times these rest on; of a bound nothing can be faster."
    )


class Alternative(Frozen):
    """One change, and what it saves of the pass: calibrated against calibrated, or bound against bound."""

    name: str
    seconds: float = Field(description="Of the pass with it, with kernels of `backends` where these are told.")
    saved_seconds: float = Field(description="Not above 0: it takes as long or longer, though its bound is less.")
    share: float = Field(description="Saved, of the pass as it is with kernels of the same backend.")
    basis: Literal["calibrated", "bound"]
    bound_share: float = Field(description="Of the bound: what all alternatives can be compared by.")
    error_share: float = Field(
        default=0.0,
        description="Of the pass: how far off the fits of the kernels that it changes are on average, before and after; a smaller share tells nothing.",
    )
    other_backend: str = Field(
        default="",
        description="Where these kernels gain nothing by it: the backend whose own were measured to gain most.",
    )
    other_share: float = Field(
        default=0.0, description="Saved with that backend's, of the pass timed as its kernels before."
    )
    unmeasured: tuple[str, ...] = Field(
        default=(), description="Classes of kernels that nobody measured so: why only bounds are compared."
    )
    backends: tuple[str, ...] = Field(
        default=(),
        description="Whose kernels those that it changes were measured as, before and after; another's may take longer or less.",
    )
    outside: tuple[str, ...] = Field(
        default=(), description="Sizes of the kernels that it changes beyond those that were measured."
    )
    widened_to: str = Field(
        default="", description="What products of such weights run in where the device has no units for them."
    )


class Speculative(Frozen):
    """Speculative decoding instead of the step: a draft's passes, and one pass of the target that verifies what they propose."""

    num_speculative_tokens: int
    acceptance_rate: float
    draft_model: str | None = Field(default=None, description="Null: a share of the target's time was given.")
    tokens_per_step: float = Field(description="Expected, of each sequence.")
    draft_seconds: float = Field(description="All passes of the draft of one step.")
    verify_seconds: float
    seconds_per_token: float
    speedup: float = Field(description="Time of a token without speculation over that with it.")
    basis: Literal["calibrated", "bound"]


class Fusion(Frozen):
    """Operators of the eager pass that an engine runs as one kernel, all runs together."""

    operation: str = Field(description="The operators.")
    module: str
    file: str
    line: int
    kernels: int = Field(description="That run eagerly.")
    fused_kernels: int
    eager_bytes: int
    fused_bytes: int
    saved_seconds: float = Field(description="Of the bound; launches come beside it.")


class SweepPoint(Frozen):
    """One point of a sweep; `context`: tokens in the cache of a decode step, new ones of a prefill; counts are of one device."""

    promised: ClassVar[tuple[str, ...]] = ("calibrated_seconds", "low_seconds", "high_seconds", "tokens_per_second")

    batch: int
    context: int
    flops: int
    bytes: int
    bound_seconds: float
    calibrated_seconds: float | None = None
    low_seconds: float | None = None
    high_seconds: float | None = None
    limited_by: Limit
    tokens_per_second: float | None = Field(default=None, description="Null: unknown, or it does not fit.")
    weights_bytes: int
    cache_bytes: int
    fits: bool


class SweepResult(ToolResult):
    """Every batch with every context."""

    model_class: str
    phase: str
    device: str
    parallel: str
    points: tuple[SweepPoint, ...]


class Plan(Frozen):
    """One way to serve a model on the devices. Rates are tokens of answers a second."""

    promised: ClassVar[tuple[str, ...]] = ("cost_per_million_tokens",)

    parallel: str
    tp: int
    pp: int
    ep: int
    dp: int
    replicas: int = Field(description="That share no experts, each of tp * pp * dp devices.")
    weights: str
    concurrency: int
    tpot_seconds: float
    ttft_seconds: float
    tokens_per_second_per_user: float
    tokens_per_second_per_device: float
    cost_per_million_tokens: float | None = Field(default=None, description="In the unit of the price.")
    weights_bytes: int = Field(description="On one device.")
    basis: Literal["calibrated", "bound"]


class PlanResult(ToolResult):
    """Answer of `plan`: `front` holds the plans that no other beats in both rates, fastest for a user first."""

    promised: ClassVar[tuple[str, ...]] = ("best",)

    model_class: str
    hardware: Hardware
    devices: int
    goal: Literal["latency", "throughput", "cost"]
    input_len: int
    output_len: int
    best: Plan | None = Field(default=None, description="For the goal, of those within `tpot_limit`; null: none fits.")
    front: tuple[Plan, ...] = ()
    beaten: tuple[tuple[float, float], ...] = Field(
        default=(), description="Tokens/s per user and per device of the other plans."
    )
    considered: int = Field(description="Plans whose weights fit, each at every concurrency.")
    refused: tuple[str, ...] = Field(default=(), description="Ways that were left out, and why.")
    assumptions: tuple[str, ...] = ()


class CalibrationNote(Frozen):
    """Where calibrated times come from; `error`: mean absolute error on shapes that the fit has not seen, per cent, by class, those of
    the alternatives among them."""

    device: str
    source: str
    licence: str
    digest: str = Field(description="Of the tables that the parameters were fitted on.")
    valid: bool = Field(description="Every kernel lies within the sizes that were measured.")
    error: Mapping[str, float] = Field(default_factory=dict)


class RooflineResult(ToolResult):
    """Answer of `estimate_roofline`."""

    promised: ClassVar[tuple[str, ...]] = ("calibration",)

    model_class: str
    phase: str
    view: str
    precision: Mapping[str, str]
    hardware: Hardware
    values: Mapping[str, Rational] = Field(description="The point of the estimate.")
    totals: TimeTotals
    spent: tuple[ClassTime, ...] = Field(description="By class of kernels, most first.")
    memory: MemoryUse
    parallel: Spread | None = Field(default=None, description="Null: one device.")
    serving: Served | None = Field(default=None, description="With `serving` given.")
    alternatives: tuple[Alternative, ...] = Field(
        default=(), description="Narrower weights and caches, most saved first."
    )
    speculative: Speculative | None = Field(default=None, description="With `speculative` given.")
    fusion: tuple[Fusion, ...] = Field(
        default=(), description="Of the eager view: what engines fuse, most saved first."
    )
    turning_batch: int | None = Field(
        default=None,
        description="The smallest batch at which compute limits most of the bound, and clearly so at larger ones; null: none does.",
    )
    operators: tuple[OperatorTime, ...]
    calibration: CalibrationNote | None = None
    assumptions: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()

    def seconds_of(self, one: OperatorTime) -> float:
        """All runs of a kernel as the totals have them: calibrated where every kernel is, else bounds; the two are never added."""
        calibrated = one.calibrated_seconds if self.totals.calibrated_seconds is not None else None
        return one.bound_seconds if calibrated is None else calibrated


__all__ = [
    "ALONE",
    "HOST_BOUND",
    "ROUTING_SKEW",
    "UNLIKE",
    "Alternative",
    "CalibrationNote",
    "ClassTime",
    "Communication",
    "Fusion",
    "Hardware",
    "MemoryUse",
    "NearestRow",
    "OperatorTime",
    "Parallel",
    "Plan",
    "PlanResult",
    "RecomputedMemory",
    "RooflineResult",
    "Served",
    "Speculative",
    "Spread",
    "SweepPoint",
    "SweepResult",
    "TimeTotals",
    "TrainingMemory",
]  # fmt: skip
