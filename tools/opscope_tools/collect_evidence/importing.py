"""The tool `import_evidence`: takes what another machine said, as one command's output or as a whole evidence file, into the records here."""

from __future__ import annotations

import datetime
import re
import shlex
from pathlib import Path

from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import InputError
from opscope_schemas.evidence import EvidenceFile, EvidenceRecord, ImportEvidenceResult, Machine, Noise, Topic
from pydantic import Field, ValidationError

from opscope_tools.collect_evidence.files import edited, evidence_path, joined, kept_text, picture_texts, read_evidence
from opscope_tools.collect_evidence.table import collector_named, of_topic
from opscope_tools.evidence.bench import RefusedError, kept, text_of
from opscope_tools.evidence.scrub import Scrubber
from opscope_tools.evidence.table import Collector, again, plain
from opscope_tools.report.saving import save
from opscope_tools.running.config_files import read_named
from opscope_tools.running.tool import Tool, ToolContext

__all__ = ["IMPORT_EVIDENCE", "ImportEvidenceArguments"]

#: bytes of a file that is taken
_LARGEST = 32 << 20


class ImportEvidenceArguments(ToolArguments):
    """Arguments of `import_evidence`."""

    topic: Topic = Field(description="What the records are about.")
    path: str = Field(description="An evidence file of another machine, or a file with one command's output.")
    collector: str | None = Field(default=None, description="Whose output it is; without, an evidence file.")
    machine: str = Field(
        default="elsewhere", pattern=r"^[\w .-]{1,40}$", description="Name of that machine in the records."
    )


def _run(arguments: ImportEvidenceArguments, context: ToolContext) -> ImportEvidenceResult:
    workspace, topic = context.workspace, arguments.topic
    try:
        text = read_named(workspace, arguments.path, "evidence", _LARGEST).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(
            f"{arguments.path} holds no text.", next_step="Save what the command writes, unchanged."
        ) from None
    if arguments.collector is not None:
        found = _one(collector_named(arguments.collector, topic), text, arguments)
    else:
        found = _file(text, arguments, workspace.output)
    known = read_evidence(workspace.output, topic)
    if known is not None:
        found = found.model_copy(update={"workload": known.workload})
    texts: dict[str, str] = {}
    records = []
    drawers = {one.id: one for one in of_topic(topic)}
    for record in found.records:
        drawn = list(drawers[record.id].pictures(_texts(record))) if record.status == "ok" else []
        told, files = picture_texts(topic, record, drawn)
        records.append(told)
        texts |= files
    found = found.model_copy(update={"records": tuple(records)})
    path = evidence_path(topic)
    save(workspace.output, {**texts, path: kept_text(joined(known, found))})
    return ImportEvidenceResult(path=path, imported=tuple(record.id for record in found.records))


def _texts(record: EvidenceRecord) -> dict[str, str]:
    return {output.name: text_of(output) for output in record.outputs}


def _harmless(command: str) -> bool:
    """Whether a command that a record shows is one program with its arguments, on one line, as the collectors run them."""
    words = shlex.shlex(command, posix=True, punctuation_chars=";|&<>")
    words.whitespace_split = True
    words.commenters = ""
    try:
        several = any(set(word) <= set(";|&<>") for word in words)
    except ValueError:  # a quotation that does not end
        return False
    return plain(command) == command and not several and "`" not in command and "$(" not in command


def _simple(text: str) -> str:
    """A word of another machine, without signs that Markdown, HTML or a terminal read."""
    return re.sub(r"[^\w .,:()/+@-]", "", plain(text))[:80]


def _told(machine: Machine) -> Machine:
    return machine.model_copy(update={name: _simple(value) for name, value in machine if isinstance(value, str)})


class _OneText(dict[str, str]):
    """One text under whatever name a reader asks for."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text
        self.asked: set[str] = set()

    def __missing__(self, name: str) -> str:
        self.asked.add(name)
        return self.text


def _one(collector: Collector, text: str, arguments: ImportEvidenceArguments) -> EvidenceFile:
    """The record of one command that somebody ran elsewhere."""
    scrubbed = _OneText(Scrubber()(text))
    wrong = "Save what the command writes, unchanged."
    try:
        reading = collector.read(scrubbed)
    except RefusedError as error:
        raise InputError(f"{arguments.path} is no output of {collector.id}: {error.reason}", next_step=wrong) from None
    except (ValueError, KeyError, IndexError, AttributeError, StopIteration) as error:
        raise InputError(f"{arguments.path} is no output of {collector.id}: {error}", next_step=wrong) from None
    if len(scrubbed.asked) != 1:
        raise InputError(
            f"{collector.id} reads several outputs, so one file does not hold them.",
            next_step="Run opscope there, and import its evidence file.",
        )
    (name,) = scrubbed.asked
    record = EvidenceRecord(
        id=collector.id, title=collector.title, kind=collector.kind, evidence_class=collector.evidence_class, tool=collector.tool,
        commands=(f"# run on {arguments.machine}, taken in from its output",), machine=arguments.machine, status="ok", excerpt=reading.shown,
        parsed=dict(reading.values), outputs=(kept(name, scrubbed.text),), noise=Noise(spread=dict(reading.spread)), source=f"imported from {Path(arguments.path).name}",
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    return EvidenceFile(topic=arguments.topic, machines=(Machine(name=arguments.machine),), records=(record,))


def _file(text: str, arguments: ImportEvidenceArguments, output: Path) -> EvidenceFile:
    """An evidence file of another machine: its good records, each read again by the collector that it is of."""
    try:
        found = EvidenceFile.model_validate_json(text)
    except ValidationError as error:
        raise InputError(
            f"{arguments.path} is no evidence file: {str(error).splitlines()[0]}",
            next_step="Name the collector whose output it is.",
        ) from None
    if found.topic != arguments.topic:
        raise InputError(
            f"{arguments.path} holds records on {found.topic}.", next_step=f"Import it with the topic {found.topic}."
        )
    if changed := sorted(edited(found)):
        raise InputError(
            f"{arguments.path} was edited since it was saved: {', '.join(changed[:3])}.",
            next_step="Collect it again there.",
        )
    known = {one.id: one for one in of_topic(arguments.topic)}
    known_here = read_evidence(output, arguments.topic)
    if known_here is not None and known_here.workload != found.workload:
        raise InputError(
            f"{arguments.path} is of another workload than the records here.",
            next_step="Collect there with the same --workload, or import it into another output folder.",
        )
    good = []
    for record in found.records:
        if record.status != "ok" or record.id not in known:
            continue
        collector = known[record.id]
        try:
            reading = again(collector, record)
        except ValueError as error:
            said = f"{arguments.path} does not hold the output that {record.id} was read from: {error}."
            raise InputError(said, next_step="Collect it again there.") from None
        if dict(reading.values) != record.parsed:
            raise InputError(
                f"{record.id} of {arguments.path} does not say what its own output says.",
                next_step="Collect it again there.",
            )
        if odd := next((line for line in record.commands if not _harmless(line)), ""):
            raise InputError(
                f"{record.id} of {arguments.path} says that it ran {odd[:120]!r}, which is more than one program.",
                next_step="Collect it again there.",
            )
        good.append(
            record.model_copy(
                update={
                    "machine": arguments.machine, "source": f"imported from {Path(arguments.path).name}", "title": collector.title,
                    "kind": collector.kind, "tool": collector.tool, "tool_version": _simple(record.tool_version), "reason": "", "elsewhere": "", "evidence_class": collector.evidence_class, "excerpt": reading.shown,
                    "noise": record.noise.model_copy(update={"spread": {**record.noise.spread, **reading.spread}}),
                }
            )
        )  # fmt: skip
    if not good:
        raise InputError(f"{arguments.path} holds no record that is ok.", next_step="Collect on that machine first.")
    machine = _told(
        (found.machines[0] if found.machines else Machine(name=arguments.machine)).model_copy(
            update={"name": arguments.machine}
        )
    )
    return EvidenceFile(topic=found.topic, workload=found.workload, machines=(machine,), records=tuple(good))


IMPORT_EVIDENCE: Tool[ImportEvidenceArguments, ImportEvidenceResult] = Tool(
    name="import_evidence",
    title="Import evidence",
    description=(
        "Takes another machine's output into posts/evidence/: of one command, or the evidence file made there."
    ),
    arguments=ImportEvidenceArguments,
    result=ImportEvidenceResult,
    run=_run,
    read_only=False,
    positional=("topic", "path"),
    cached=False,
)
