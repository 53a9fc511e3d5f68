"""The page about coverage, made from the records of a sweep and nothing else: counts first, then a line for each type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from cost_records import ABSENT, DIED, FAILED, INCOMPLETE, OUTCOMES, PHASES, REFUSED, TOO_LONG, Record

#: what differs between refusals for one reason: classes, quoted words, numbers
_NAMES = re.compile(
    r"\b(?:[A-Z][a-z0-9]+|[A-Z0-9]+(?=[A-Z]))[A-Za-z0-9]*[A-Z][A-Za-z0-9]*\b(?<!Error)|'[^']*'|\b\d[\d,.]*\b"
)
_PLACE = re.compile(r"\(?[\w/.-]+\.py:\d+\)?")
#: a reason is cut to so many characters
_SHOWN = 160
_LONG = 60.0


def page(records: Sequence[Record], types: int, versions: str, digest: str) -> str:
    """The whole page; `types` is how many transformers has, `digest` that of the code as it is."""
    covered = {r.model_type for r in records}
    of = "all" if len(covered) == types else f"{len(covered)} of the"
    older = sum(r.digest != digest for r in records)
    said = (
        f" {older} of the {len(records)} records were made before the code that traces changed last." if older else ""
    )
    parts = [
        "# Coverage",
        "Made by `make sweep-cost` from its records alone; edit nothing here. It covers "
        f"{of} {types} model types of transformers ({versions}), each asked for as `count_flops TYPE` in every phase.{said}",
        _outcomes(records), _reasons(records), _seconds(records), _inside(records), _lines(records),
    ]  # fmt: skip
    return "\n\n".join(p for p in parts if p) + "\n"


def reason(text: str) -> str:
    """The words of a refusal without what names one model: equal for all that are refused for the same reason."""
    found = _NAMES.sub("…", _PLACE.sub("", text).replace("`", ""))
    found = re.sub(r"…(\s*,?\s*…)+", "…", " ".join(found.split()))
    return found if len(found) <= _SHOWN else found[: _SHOWN - 1].rsplit(" ", 1)[0] + " …"


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(head), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _outcomes(records: Sequence[Record]) -> str:
    counts = Counter((r.outcome, r.phase) for r in records)
    rows = [(name, *(counts[name, p] for p in PHASES)) for name in OUTCOMES if any(counts[name, p] for p in PHASES)]
    said = (
        "`exact`: matrix products, FLOPs, bytes read and written equal those of a concrete run at values asked through the tool or put into the formulas. "
        "`incomplete`: the document names operators that are in no sum. `no concrete run`: traced, but the model ran at none of "
        "the points that were tried. `no such phase`: the model has no cache, or no encoder beside a decoder."
    )
    return f"## Outcomes\n\n{_table(('outcome', *PHASES), rows)}\n\n{said}"


def _numbered(records: Sequence[Record]) -> dict[tuple[str, str], int]:
    """Outcome and reason -> number, the most frequent first."""
    found = Counter(
        (r.outcome, reason(r.reason)) for r in records if r.outcome in (REFUSED, FAILED, TOO_LONG, DIED, INCOMPLETE)
    )
    order = sorted(found, key=lambda key: (OUTCOMES.index(key[0]), -found[key], key))
    return {key: number for number, key in enumerate(order, 1)}


def _reasons(records: Sequence[Record]) -> str:
    numbered = _numbered(records)
    held: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        held.setdefault((record.outcome, reason(record.reason)), []).append(record)
    rows = [
        (number, key[0], key[1] or "–", len(held[key]), ", ".join(sorted({r.model_type for r in held[key]})[:3]))
        for key, number in numbered.items()
    ]
    return f"## Reasons\n\n{_table(('', 'outcome', 'in words', 'times', 'types, some'), rows)}" if rows else ""


def _seconds(records: Sequence[Record]) -> str:
    asked = sorted((r for r in records if r.seconds), key=lambda r: r.seconds)
    if not asked:
        return ""
    wall, processor = [r.seconds for r in asked], sorted(r.processor for r in asked)
    slow = [f"{r.model_type} {r.phase} ({r.processor:.0f} s)" for r in asked if r.processor > _LONG]
    over = f"Over {_LONG:.0f} s: {', '.join(slow)}" if slow else f"None took over {_LONG:.0f} s"
    return (
        "## Seconds\n\nA new trace of the default configuration by a worker that runs already, refusals included, in seconds of "
        f"one processor core: median {_share(processor, 0.5):.1f}, 95 % within {_share(processor, 0.95):.1f}, longest {processor[-1]:.1f} "
        f"(by the clock, on a machine that did other work too: {_share(wall, 0.5):.1f}, {_share(wall, 0.95):.1f}, {wall[-1]:.1f}). {over}."
    )


def _share(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _inside(records: Sequence[Record]) -> str:
    complete = [r for r in records if r.outcome != INCOMPLETE]
    equal, wrong, unbuilt = (
        sum(r.equal for r in complete), sum(len(r.wrong) for r in complete), sum(len(r.unbuilt) for r in complete)
    )  # fmt: skip
    tried = equal + wrong + unbuilt
    if not tried:
        return ""
    short = sum(len(r.wrong) for r in records if r.outcome == INCOMPLETE)
    lines = [
        "## Points inside the stated conditions",
        "Random points that meet every condition of a document, fields of the configuration included, put into its formulas "
        "and held against a model built and run there: matrix products, FLOPs, bytes read, bytes written, parameters.",
        f"Tried {tried}: {equal} equal, {wrong} wrong, {unbuilt} of models that cannot be built or run there; "
        f"{100 * (equal + wrong) / tried:.0f} % could be built."
        + (f" At {short} more the documents are incomplete, and say so." if short else ""),
    ]
    wrongs = [f"- {r.model_type} {r.phase}: {w}" for r in complete for w in r.wrong]
    return "\n\n".join([*lines, *(["\n".join(wrongs)] if wrongs else [])])


def _lines(records: Sequence[Record]) -> str:
    numbered = _numbered(records)
    found = {(r.model_type, r.phase): r for r in records}

    def cell(record: Record | None) -> str:
        if record is None:
            return "not yet"
        if record.outcome == ABSENT:
            return "–"
        number = numbered.get((record.outcome, reason(record.reason)))
        said = [record.outcome + (f" ({number})" if number else ""), f"{record.processor:.1f} s"]
        tried = record.equal + len(record.wrong) + len(record.unbuilt)
        return ", ".join([*said, *([f"{record.equal} of {tried}"] if tried else [])])

    rows = [(t, *(cell(found.get((t, p))) for p in PHASES)) for t in sorted({r.model_type for r in records})]
    head = "A type's three phases: outcome (its reason above), seconds of one core, how many of the points inside the conditions equal a concrete run."
    return f"## Types\n\n{head}\n\n{_table(('type', *PHASES), rows)}"


__all__ = ["page", "reason"]
