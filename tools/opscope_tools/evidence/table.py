"""What a collector is: how to ask, how to read the answer, and for what.

`collect` runs commands and returns texts; `read` is a pure function of these texts, so what a record says can be read again from what it
kept. Collectors are listed by the modules of collectors/ in the order in which they run: a later one may use what an earlier one
found (`Bench.known`).
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from opscope_schemas.evidence import (
    EvidenceClass,
    EvidenceKind,
    EvidenceRecord,
    EvidenceStatus,
    Noise,
    Spread,
    Topic,
)

from opscope_tools.evidence.bench import Bench, RefusedError, kept, text_of

__all__ = ["DIGEST", "Collector", "Picture", "Reading", "again", "collected", "excerpt_of", "plain"]

Value = int | float | str
Needs = Literal["cpu", "compiler", "gpu"]
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)*(?:[-+][\w.]+)?")
#: characters of a line that a post shows
_WIDE = 160
#: stands above lines of our own, as a comment of the shell
DIGEST = "# read from it:"


def plain(text: str) -> str:
    """A line without what steers a terminal or turns the direction of writing: it may come from another machine."""
    return "".join(sign for sign in text if sign.isprintable() or sign == "\t")


@dataclass(frozen=True)
class Reading:
    """What was read: numbers and names by field, lines as the tool wrote them, how far repetitions lie apart, and what was read from
    the output in lines of our own."""

    values: Mapping[str, Value]
    excerpt: Sequence[str] = ()
    spread: Mapping[str, Spread] = field(default_factory=dict)
    digest: Sequence[str] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The lines that a post shows; ours are told apart from the tool's."""
        return tuple(map(plain, (*self.excerpt, *([DIGEST, *self.digest] if self.digest else ()))))


@dataclass(frozen=True)
class Picture:
    """A drawing of what was read: its name, its SVG, its data, and what it shows in words."""

    name: str
    svg: str
    data: str
    alternative: str


@dataclass(frozen=True)
class Collector:
    """One line of the table."""

    id: str
    title: str
    tool: str
    kind: EvidenceKind
    evidence_class: EvidenceClass
    topics: tuple[Topic, ...]
    collect: Callable[[Bench], Mapping[str, str]]
    read: Callable[[Mapping[str, str]], Reading]
    needs: Needs = "cpu"
    #: asks the tool for something small and real; raises `RefusedError` where it is missing or refuses
    probe: Callable[[Bench], None] = lambda _: None
    #: says the tool's version
    version: Sequence[str] = ()
    #: how one gets it elsewhere, where this machine cannot
    elsewhere: Callable[[Bench], str] = lambda _: ""
    pictures: Callable[[Mapping[str, str]], Iterable[Picture]] = lambda _: ()
    source: str = ""


def collected(collector: Collector, bench: Bench) -> tuple[EvidenceRecord, list[Picture]]:
    """The record of one collector, whatever comes of it, and its pictures."""
    bench.ran, bench.spread = [], {}
    began = time.monotonic()
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    status: EvidenceStatus = "ok"
    reason, texts, reading, noise, drawn = "", {}, Reading({}), Noise(), []
    version = _version(collector, bench)
    try:
        if collector.version:
            bench.tool(collector.version[0])
        collector.probe(bench)
        bench.ran = []  # a probe is not what was asked
        with bench.quiet() as watched:
            texts = dict(collector.collect(bench))
            noise = watched()
        reading = collector.read(texts)
        drawn = list(collector.pictures(texts))
        noise = noise.model_copy(update={"spread": {**noise.spread, **reading.spread}})
    except RefusedError as error:
        status, reason = error.status, error.reason  # type: ignore[assignment] # one of the words of the type
    except (ValueError, KeyError, IndexError, OSError, StopIteration) as error:
        status, reason = "failed", f"Its output could not be read: {type(error).__name__}: {error}"[:300]
    ok = status == "ok"
    record = EvidenceRecord(
        id=collector.id, title=collector.title, kind=collector.kind, evidence_class=collector.evidence_class, tool=collector.tool,
        tool_version=version, commands=tuple(dict.fromkeys(ran.shown for ran in bench.ran)), machine=bench.machine.name,
        status=status, reason=bench.scrub(reason), elsewhere="" if ok else bench.scrub(collector.elsewhere(bench)),
        excerpt=reading.shown, parsed=dict(reading.values) if ok else {},
        outputs=tuple(kept(name, text) for name, text in texts.items()) if ok else (), noise=noise,
        source=collector.source, started=started, wall_seconds=round(time.monotonic() - began, 2),
    )  # fmt: skip
    return record, drawn if ok else []


def again(collector: Collector, record: EvidenceRecord) -> Reading:
    """What the record's kept output says, read a second time. Raises `ValueError` where it cannot be."""
    try:
        return collector.read({output.name: text_of(output) for output in record.outputs})
    except (RefusedError, KeyError, IndexError, StopIteration) as error:
        raise ValueError(f"the kept output of {record.id} cannot be read: {error}") from None


def _version(collector: Collector, bench: Bench) -> str:
    """The tool's own word on its version; empty where it has none."""
    if not collector.version:
        return ""
    try:
        found = _VERSION.search(bench.run(collector.version, seconds=20, keep=False).text)
    except (RefusedError, OSError):
        return ""
    return found[0] if found else ""


def excerpt_of(text: str, *, first: int = 12, wanted: str = "", last: int = 0) -> list[str]:
    """Lines of an output as a post shows them: the first, those that fit a pattern, the last; what is left out is marked."""
    lines = text.splitlines()
    keep = {at for at, line in enumerate(lines) if at < first or at >= len(lines) - last}
    keep |= {at for at, line in enumerate(lines) if wanted and re.search(wanted, line)}
    shown: list[str] = []
    before = -1
    for at in sorted(keep):
        if at > before + 1:
            shown.append("[...]")
        line = lines[at].rstrip()
        shown.append(line if len(line) <= _WIDE else f"{line[: _WIDE - 5]}[...]")
        before = at
    if before < len(lines) - 1:
        shown.append("[...]")
    return shown
