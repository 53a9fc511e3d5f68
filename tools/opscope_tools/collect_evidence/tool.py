"""The tool `collect_evidence`: runs the collectors of a topic on a workload and keeps a record of each, whatever came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import InputError, OpscopeError
from opscope_schemas.evidence import (
    CollectEvidenceResult,
    CollectorRow,
    EvidenceFile,
    EvidenceRecord,
    Machine,
    Topic,
    Workload,
)
from pydantic import Field, ValidationError

from opscope_tools.children import alone, scratch_folder
from opscope_tools.collect_evidence.files import evidence_path, joined, kept_text, picture_texts, read_evidence
from opscope_tools.collect_evidence.table import collector_named, of_topic
from opscope_tools.estimate_roofline.tool import ESTIMATE_ROOFLINE
from opscope_tools.evidence.bench import Bench, RefusedError
from opscope_tools.evidence.machine import this_machine
from opscope_tools.evidence.table import collected
from opscope_tools.expand_refs import EXPAND_REFS
from opscope_tools.report.saving import check_writable, save
from opscope_tools.running.runner import run_tool, to_json
from opscope_tools.running.tool import AnyTool, Tool, ToolContext
from opscope_tools.running.trust import traced_class
from opscope_tools.trace_dataflow import TRACE_DATAFLOW

__all__ = ["COLLECT_EVIDENCE", "CollectEvidenceArguments"]

#: what collectors may ask of opscope itself
_ASKED: Mapping[str, AnyTool] = {tool.name: tool for tool in (EXPAND_REFS, TRACE_DATAFLOW, ESTIMATE_ROOFLINE)}
#: name of the machine that records were made on, where nobody names it
_HERE = "here"


class CollectEvidenceArguments(ToolArguments):
    """Arguments of `collect_evidence`."""

    topic: Topic = Field(description="What the post is about.")
    workload: dict[str, int | str] | None = Field(
        default=None,
        description="Of the model that runs: threads, batch_size, prompt, tokens, dtype, hidden_size, num_layers, l1_bytes, ...",
    )
    only: tuple[str, ...] | None = Field(
        default=None, max_length=40, description="Collectors by name; default: all of the topic."
    )
    machine: str = Field(default=_HERE, pattern=r"^[\w .-]{1,40}$", description="Name of this machine in the records.")
    needs: Literal["any", "cpu", "gpu"] = Field(default="any", description="gpu: only what a GPU says; cpu: all else.")


def _answered(
    path: str, found: EvidenceFile, machine: Machine, rows: tuple[EvidenceRecord, ...]
) -> CollectEvidenceResult:
    """What is answered of the records that were made or taken."""
    needs = {one.id: one.needs for one in of_topic(found.topic)}
    told = tuple(
        CollectorRow(
            id=record.id, tool=record.tool, kind=record.kind, evidence_class=record.evidence_class, needs=needs.get(record.id, "cpu"),
            status=record.status, reason=record.reason, elsewhere=record.elsewhere, parsed=record.parsed,
        ) for record in rows
    )  # fmt: skip
    counted = {str(status): count for status, count in Counter(record.status for record in rows).items()}
    where = (
        f"{machine.name}: {machine.cpu}, {machine.cpus} CPUs{f', {machine.gpu}' if machine.gpu else ''}"
        if machine.cpu
        else machine.name
    )
    return CollectEvidenceResult(topic=found.topic, path=path, machine=where, records=told, counted=counted)


def _workload(given: dict[str, int | str] | None) -> Workload:
    """The sizes that were given, the others as they are by default; raises `InputError` for what is no size."""
    try:
        return Workload.model_validate(given or {})
    except ValidationError as error:
        (first, *_) = error.errors()
        name = ".".join(map(str, first["loc"]))
        known = ", ".join(Workload.model_fields)
        raise InputError(f"workload: {name}: {first['msg']}.", next_step=f"Sizes of a workload: {known}.") from None


def _sizes_of_caches(workload: Workload) -> None:
    """That simulated caches have sizes that the simulator takes."""
    for name in ("l1_bytes", "l2_bytes"):
        size = getattr(workload, name)
        if size and (size & (size - 1) or size < 4096):
            raise InputError(
                f"workload: {name} {size:,} is no power of two of at least 4,096.",
                next_step="Give one that the simulator takes: 32768, 65536, 1048576.",
            )


def _one_workload(known: EvidenceFile | None, workload: Workload, remade: set[str], path: str) -> None:
    """That records of two workloads do not come to lie beside each other."""
    if known is None or known.workload == workload or {one.id for one in known.records} <= remade:
        return
    raise InputError(
        f"{path} holds records of another workload, and not all of them would be made anew.",
        next_step="Give the same workload, collect the whole topic, or name another output folder.",
    )


def _run(arguments: CollectEvidenceArguments, context: ToolContext) -> CollectEvidenceResult:
    workspace, topic = context.workspace, arguments.topic
    workload = _workload(arguments.workload)
    _sizes_of_caches(workload)
    _known_model(workload, context)
    wanted = [
        one for one in of_topic(topic) if arguments.needs == "any" or (one.needs == "gpu") == (arguments.needs == "gpu")
    ]
    if arguments.only is not None:
        wanted = [collector_named(name, topic) for name in dict.fromkeys(arguments.only)]
    path = evidence_path(topic)
    check_writable(workspace.output, path)
    known = read_evidence(workspace.output, topic)
    _one_workload(known, workload, {one.id for one in wanted}, path)
    machine = this_machine(arguments.machine)
    records: list[EvidenceRecord] = []
    texts: dict[str, str] = {}
    with alone("measurement"), scratch_folder("evidence") as folder:
        bench = Bench(
            workload, machine, folder, workspace.python, context.checkpoint, opscope=_asking(context), known=_values(known, {one.id for one in wanted}),
        )  # fmt: skip
        for at, collector in enumerate(wanted):
            context.progress(at, len(wanted), collector.id)
            record, drawn = collected(collector, bench)
            record, files = picture_texts(topic, record, drawn)
            bench.known |= {f"{record.id}.{name}": value for name, value in record.parsed.items()}
            records.append(record)
            texts |= files
            context.checkpoint()
    found = joined(known, EvidenceFile(topic=topic, workload=workload, machines=(machine,), records=tuple(records)))
    save(workspace.output, {**texts, path: kept_text(found)})
    context.progress(len(wanted), len(wanted), "saved")
    return _answered(path, found, machine, tuple(records))


def _values(known: EvidenceFile | None, remade: set[str]) -> dict[str, int | float | str]:
    """What earlier records say, of collectors that do not run again."""
    records = known.records if known is not None else ()
    return {f"{one.id}.{name}": value for one in records if one.id not in remade for name, value in one.parsed.items()}


def _known_model(workload: Workload, context: ToolContext) -> None:
    """That the workload's model is a type of the installed transformers: nothing else is imported. Raises the index's errors."""
    found, _ = traced_class(context.workspace, workload.model)
    if not found.model_type:
        raise InputError(f"{workload.model!r} is no model type.", next_step="Give one of transformers' types: llama.")
    if workload.hidden_size % workload.num_heads or workload.num_heads % workload.num_kv_heads:
        raise InputError(
            f"{workload.hidden_size} wide, {workload.num_heads} heads and {workload.num_kv_heads} key-value heads do not divide.",
            next_step="Give sizes of which each divides the one before.",
        )


def _asking(context: ToolContext) -> Any:
    """Lets a collector ask a tool; its errors become refusals, its progress is not told."""
    inner = ToolContext(context.workspace, cancelled=context.cancelled)

    def ask(name: str, asked: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = json.loads(to_json(run_tool(_ASKED[name], asked, inner)))
        except InputError as error:
            raise RefusedError("unsupported", error.message) from None
        except OpscopeError as error:
            context.checkpoint()
            raise RefusedError("failed", error.message) from None
        return found

    return ask


def _without_values(result: CollectEvidenceResult) -> CollectEvidenceResult:
    rows = tuple(row.model_copy(update={"parsed": dict(list(row.parsed.items())[:6])}) for row in result.records)
    return result.model_copy(
        update={
            "records": rows,
            "shortened": f"The first six values of each record are shown; all are in {result.path}.",
        }
    )


COLLECT_EVIDENCE: Tool[CollectEvidenceArguments, CollectEvidenceResult] = Tool(
    name="collect_evidence",
    title="Collect evidence",
    description=(
        "Runs profilers (strace, perf, bpftrace, valgrind, gdb, compilers; ncu and nsys on a GPU) on a small model and keeps "
        "each one's output and status in posts/evidence/; what is missing is told with the command to run elsewhere. Takes minutes."
    ),
    arguments=CollectEvidenceArguments,
    result=CollectEvidenceResult,
    run=_run,
    shorter=(_without_values,),
    read_only=False,
    idempotent=False,
    positional=("topic",),
    cached=False,
    lane=lambda _: "measure",
)
