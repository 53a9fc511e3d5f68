"""docs/evidence.md: the table of collectors, with what each said on the machine that the posts of this repository were made on."""

from __future__ import annotations

from pathlib import Path

from opscope_schemas.evidence import TOPICS, EvidenceRecord
from opscope_schemas.units import said
from opscope_tools.collect_evidence.files import read_evidence
from opscope_tools.collect_evidence.table import of_topic

_INTRO = """# Evidence

What `opscope collect-evidence TOPIC` runs, and what each collector said on the machine that made the posts of this repository. Written
by `make golden` from the table of collectors and the records in `posts/evidence/`; on your machine the command prints the same table.

A record says `ok`, or why not: `missing` (no such tool), `unsupported` (this machine cannot), `denied` (it may not), `failed`, `timeout`; then it holds no
number, and the command to run elsewhere. Its class says what its figures are: `exact` (counted, or read from what is there), `measured` (by a clock or
a sampler; told only if nothing waited for a CPU more than 20 % of the time and five runs were made), `simulated` (a model of caches), `modelled` (an
estimate), `published` (another's measurement, with its source).

## Collectors
"""
#: figures of a record that the table names
_NAMED = 3


def page() -> str:
    """The whole file."""
    rows: dict[str, tuple[str, ...]] = {}
    for topic in TOPICS:
        kept = read_evidence(Path(__file__).parents[2], topic)
        records = {one.id: one for one in kept.records} if kept is not None else {}
        for one in of_topic(topic):
            topics = f"{rows[one.id][4]}, {topic}" if one.id in rows else topic
            record = records.get(one.id)
            told = _told(record) if record is not None else "not collected"
            rows[one.id] = (f"`{one.id}`", one.title, f"{one.tool} ({one.needs})", f"{one.evidence_class} {one.kind}", topics, told)  # fmt: skip
    heads = ("collector", "question", "tool (needs)", "class and kind", "topics", "what it said")
    table = [" | ".join(heads), "|".join(["---"] * len(heads)), *(" | ".join(row) for row in rows.values())]
    return _INTRO + "\n" + "\n".join(f"| {row} |" for row in table) + "\n"


def _told(record: EvidenceRecord) -> str:
    """Its first figures, or why it has none."""
    if record.status != "ok":
        return f"{record.status}: {record.reason.rstrip('.')}"
    first = [(name, value) for name, value in record.parsed.items() if value not in ("", 0)][:_NAMED]
    told = [f"{name} {value if isinstance(value, str) else said(name, value)}" for name, value in first]
    return f"ok: {', '.join(told)}".replace("|", "/")
