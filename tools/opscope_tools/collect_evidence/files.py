"""Where records lie: `posts/evidence/TOPIC.json` below the output folder, pictures and their data in the folder of that name beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from opscope_schemas.errors import InputError, SourceError
from opscope_schemas.evidence import EvidenceFile, EvidenceRecord, Machine, Topic
from opscope_schemas.report import Problem
from pydantic import ValidationError

from opscope_tools.collect_evidence.table import of_topic
from opscope_tools.evidence.bench import text_of
from opscope_tools.evidence.table import Collector, Picture, again
from opscope_tools.report.post import Post
from opscope_tools.report.saving import inside

__all__ = [
    "edited",
    "evidence_path",
    "joined",
    "kept_text",
    "picture_texts",
    "read_evidence",
    "record_problems",
    "whole",
]


#: why a record has nothing that nobody asked for
NOT_COLLECTED = "It was not collected."


def evidence_path(topic: Topic) -> str:
    """Where the records of a topic lie, relative to the output folder."""
    return f"posts/evidence/{topic}.json"


def read_evidence(output: Path, topic: Topic) -> EvidenceFile | None:
    """What was collected on a topic; None where nothing was. Raises `SourceError` for a file that is none."""
    file = inside(output, evidence_path(topic))
    if not file.is_file():
        return None
    try:
        found = EvidenceFile.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        why = str(error).splitlines()[0]
        raise SourceError(f"{evidence_path(topic)} holds no records: {why}", next_step="Collect them again, or take the file away.") from None  # fmt: skip
    if found.topic != topic:
        raise InputError(f"{evidence_path(topic)} holds records on {found.topic}.", next_step="Put it under that name.")
    return found


def kept_text(found: EvidenceFile) -> str:
    """The file as it is saved, each part sealed: an edit shows, a deliberate forgery need not."""
    sealed = found.model_copy(update={"seals": _seals(found)})
    return sealed.model_dump_json(indent=1, exclude_defaults=True) + "\n"


def _seals(found: EvidenceFile) -> dict[str, str]:
    parts = {one.id: one.model_dump_json() for one in found.records}
    parts |= {f"machine {one.name}": one.model_dump_json() for one in found.machines}
    parts["workload"] = found.workload.model_dump_json()
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in parts.items()}


def edited(found: EvidenceFile) -> dict[str, tuple[str, str]]:
    """What of a file is not as it was saved: seal that it had, seal that it has, by name."""
    now, then = _seals(found), found.seals
    return {
        name: (then.get(name, "none"), now.get(name, "none")) for name in now.keys() | then.keys() if now.get(name) != then.get(name)
    }  # fmt: skip


def whole(found: EvidenceFile) -> EvidenceFile:
    """The file with a record of each collector of its topic: one that nobody ran says so."""
    held = {one.id for one in found.records}
    absent = tuple(
        EvidenceRecord(
            id=one.id, title=one.title, kind=one.kind, evidence_class=one.evidence_class, tool=one.tool, status="missing",
            reason=NOT_COLLECTED, elsewhere=f"opscope collect-evidence {found.topic} --only {one.id}",
        ) for one in of_topic(found.topic) if one.id not in held
    )  # fmt: skip
    return found.model_copy(update={"records": (*found.records, *absent)}) if absent else found


def record_problems(post: Post, folder: Path) -> Iterator[Problem]:
    """Records whose figures or pictures below the folder are not what their own kept output says, read again by the collector that made them."""
    present = {one.id for one in post.evidence.records if one.reason != NOT_COLLECTED}
    kept = post.evidence.model_copy(
        update={"records": tuple(one for one in post.evidence.records if one.id in present)}
    )
    for name, (then, now) in sorted(edited(kept).items()):
        yield _odd(name, then, now, f"{name} was edited since it was saved: its digest is another.")
    known = {one.id: one for one in of_topic(post.topic)}
    machines = {one.name for one in post.evidence.machines}
    for record in post.evidence.records:
        collector = known.get(record.id)
        if collector is None:
            yield _odd(
                record.id, "a collector of the table", record.id, f"{record.id} is no collector of {post.topic}."
            )
            continue
        if (record.title, record.tool) != (collector.title, collector.tool):
            said = f"{collector.title} ({collector.tool})"
            yield _odd(record.id, said, f"{record.title} ({record.tool})", f"The question of {record.id} is another.")
        if record.machine and record.machine not in machines:
            yield _odd(
                record.id,
                ", ".join(sorted(machines)),
                record.machine,
                f"{record.id} is of a machine that the file does not describe.",
            )
        if record.status == "ok":
            if (record.evidence_class, record.kind) != (collector.evidence_class, collector.kind):
                yield _odd(
                    record.id,
                    f"{collector.evidence_class} {collector.kind}",
                    f"{record.evidence_class} {record.kind}",
                    f"The class of {record.id} is another.",
                )
            yield from _unlike(collector, record)
            yield from _unlike_pictures(collector, record, post.topic, folder)


def _unlike(collector: Collector, record: EvidenceRecord) -> Iterator[Problem]:
    try:
        reading = again(collector, record)
    except ValueError as error:
        yield _odd(record.id, "the output that was collected", "another", f"{error}.")
        return
    for name in sorted(reading.values.keys() | record.parsed.keys()):
        right, found = reading.values.get(name), record.parsed.get(name)
        if right != found:
            yield _odd(
                record.id, str(right), str(found), f"{record.id}.{name} is {right} in its own output, not {found}."
            )
    for name, spread in reading.spread.items():
        if record.noise.spread.get(name) != spread:
            found = f"{record.noise.spread.get(name)}"
            yield _odd(
                record.id, f"{spread}", found, f"How far {record.id}.{name} spreads is not what its output says."
            )
    if reading.shown != record.excerpt:
        odd = next((line for line in record.excerpt if line not in reading.shown), "")
        right = next((line for line in reading.shown if line not in record.excerpt), "")
        yield _odd(record.id, right, odd, f"The excerpt of {record.id} is not what its output gives.")


def _unlike_pictures(collector: Collector, record: EvidenceRecord, topic: Topic, folder: Path) -> Iterator[Problem]:
    try:
        drawn = tuple(collector.pictures({output.name: text_of(output) for output in record.outputs}))
    except (ValueError, KeyError, IndexError):
        return  # that the output cannot be read is said already
    expected, files = picture_texts(topic, record.model_copy(update={"pictures": {}}), drawn)
    if expected.pictures != record.pictures:
        said = "the pictures that its output gives, with what they show in words"
        yield _odd(record.id, f"{expected.pictures}", f"{record.pictures}", f"{record.id} does not name {said}.")
    for path, text in files.items():
        file = inside(folder, path)
        if not file.is_file():
            yield _odd(record.id, path, "no such file", f"The picture {path} is not there.")
        elif (found := file.read_text(encoding="utf-8", errors="replace")) != text:
            right, odd = next(
                ((a, b) for a, b in zip_longest(text.splitlines(), found.splitlines(), fillvalue="") if a != b),
                ("", ""),
            )
            yield _odd(
                record.id, right[:300], odd[:300], f"The picture {path} is not what the output of {record.id} gives."
            )


def _odd(record: str, expected: str, found: str, message: str) -> Problem:
    return Problem(
        rule="EVIDENCE_CHANGED",
        line=1,
        section=record,
        message=f"{message} Collect it again.",
        expected=expected,
        found=found,
    )


def picture_texts(
    topic: Topic, record: EvidenceRecord, drawn: Iterable[Picture]
) -> tuple[EvidenceRecord, dict[str, str]]:
    """The record that names its pictures, and the files that they are, by path."""
    texts: dict[str, str] = {}
    named: dict[str, str] = {}
    for picture in drawn:
        base = f"evidence/{topic}/{picture.name}"
        texts |= {f"posts/{base}.svg": picture.svg, f"posts/{base}.folded": picture.data}
        named[f"{base}.svg"] = picture.alternative
    return record.model_copy(update={"pictures": named}) if named else record, texts


def joined(known: EvidenceFile | None, found: EvidenceFile) -> EvidenceFile:
    """New records in place of those of the same collectors; a collector that cannot here does not take away what another machine said."""
    if known is None:
        return found
    held = {record.id: record for record in known.records}
    for record in found.records:
        before = held.get(record.id)
        if before is None or record.status == "ok" or before.status != "ok" or before.machine == record.machine:
            held[record.id] = record
    used = {record.machine for record in held.values()}
    machines: Mapping[str, Machine] = {machine.name: machine for machine in (*known.machines, *found.machines)}
    return EvidenceFile(
        topic=found.topic, workload=found.workload, machines=tuple(machine for name, machine in machines.items() if name in used), records=tuple(held.values()),
    )  # fmt: skip
