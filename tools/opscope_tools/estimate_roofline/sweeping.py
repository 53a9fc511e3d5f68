"""Many points of one pass from one trace: what `opscope estimate --sweep` prints. No tool of hosts, who would drown in rows."""

from __future__ import annotations

from opscope_cache.trees import IMPORTED
from opscope_schemas.errors import ValuesError
from opscope_schemas.estimates import SweepResult
from pydantic import Field

from opscope_tools.costing.arguments import sources
from opscope_tools.estimate_roofline.parallel import check
from opscope_tools.estimate_roofline.predicting import Replica, swept
from opscope_tools.estimate_roofline.tool import RooflineArguments, devices_of, model_of
from opscope_tools.hardware.calibration import calibration_for
from opscope_tools.running.tool import Tool, ToolContext

#: points of one sweep
_MOST = 20_000


class SweepArguments(RooflineArguments):
    """Arguments of a sweep: those of an estimate, and every batch with every context."""

    batches: list[int] = Field(min_length=1, description="Sequences.")
    contexts: list[int] = Field(
        min_length=1, description="Tokens in the cache of a decode step, new ones of a prefill."
    )


def sweep(arguments: SweepArguments, context: ToolContext) -> SweepResult:
    """Raises `ValuesError` for too many points, or sizes below 1, and what `estimate_roofline` raises."""
    count = len(arguments.batches) * len(arguments.contexts)
    if count > _MOST:
        raise ValuesError(f"{count:,} points are more than {_MOST:,}.", next_step="Take larger steps.")
    if min(*arguments.batches, *arguments.contexts) < 1:
        raise ValuesError("Sizes begin with 1.")
    if arguments.phase not in ("prefill", "decode"):
        raise ValuesError("A sweep is of a prefill or of a decode step.", next_step="Choose --phase prefill or decode.")
    device, parallel = devices_of(arguments.hardware, arguments.parallel, context)
    model = model_of(arguments, context)
    replica = Replica(model, device, calibration_for(device), arguments.backend, parallel)
    first = model.timing(arguments.phase, arguments.batches[-1], arguments.contexts[-1])
    check(first.of, first.at(), parallel)
    points = []
    for length in arguments.contexts:
        for batch in arguments.batches:
            context.checkpoint()
            points.append(swept(replica, arguments.phase, batch, length))
    return SweepResult(
        model_class=first.found.call.class_name, phase=arguments.phase, device=device.id, parallel=str(parallel),
        points=tuple(points), sources=sources(context.workspace),
    )  # fmt: skip


SWEEP: Tool[SweepArguments, SweepResult] = Tool(
    name="sweep_roofline",
    title="Time and memory at many points",
    description="Batches and contexts of a pass on a device.",
    arguments=SweepArguments,
    result=SweepResult,
    run=sweep,
    sources=IMPORTED,
    files=lambda workspace: workspace.device_files,
    lane=lambda _: "trace",
)
