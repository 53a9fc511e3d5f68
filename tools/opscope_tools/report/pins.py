"""What the cited lines said when a report was written: kept as digests, compared on every check, found again if moved.

A pin holds one pointer's range, a digest of its lines and one of the lines around it. Lines that stand elsewhere in their
file now have drifted, which `repaired` mends; lines that stand nowhere are stale, which only a reader can mend.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opscope_schemas.report import Pin, Problem

from opscope_tools.report.markdown import POINTER, Page
from opscope_tools.report.sources import SourceReader

__all__ = ["Repair", "moved_to", "pin_problems", "pinned", "repaired"]

#: lines before and after the cited ones that tell equal lines apart
_AROUND = 3


def _digest(lines: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(line.strip() for line in lines).encode()).hexdigest()[:24]


def _around(lines: Sequence[str], first: int, last: int) -> str:
    before, after = lines[max(0, first - 1 - _AROUND) : first - 1], lines[last : last + _AROUND]
    return _digest([*before, "", *after])


def _key(found: re.Match[str]) -> tuple[str, int, int]:
    return found.group(1), int(found.group(2)), int(found.group(3) or found.group(2))


def pinned(page: Page, reader: SourceReader) -> tuple[Pin, ...]:
    """A pin for every pointer of a report that leads to lines; each range once."""
    found: dict[tuple[str, int, int], Pin] = {}
    for text in page.lines:
        for match in POINTER.finditer(text):
            path, first, last = _key(match)
            lines = reader.lines(path)
            if lines is not None and 1 <= first <= last <= len(lines):
                found[path, first, last] = Pin(
                    path=path, first=first, last=last, digest=_digest(lines[first - 1 : last]),
                    around=_around(lines, first, last),
                )  # fmt: skip
    return tuple(found[key] for key in sorted(found))


def moved_to(pin: Pin, reader: SourceReader) -> list[int]:
    """Where the pinned lines begin now: the place itself, one elsewhere, several that cannot be told apart, or none."""
    lines = reader.lines(pin.path) or []
    count = pin.last - pin.first + 1
    if _digest(lines[pin.first - 1 : pin.last]) == pin.digest:
        return [pin.first]
    places = [at for at in range(1, len(lines) - count + 2) if _digest(lines[at - 1 : at - 1 + count]) == pin.digest]
    alike = [at for at in places if _around(lines, at, at + count - 1) == pin.around]
    return alike if len(alike) == 1 else places


def pin_problems(page: Page, reader: SourceReader, pins: Iterable[Pin]) -> Iterator[Problem]:
    """Pointers whose lines are not what they were."""
    known = {(pin.path, pin.first, pin.last): pin for pin in pins}
    for number, text in enumerate(page.lines, 1):
        for match in POINTER.finditer(text):
            pin = known.get(_key(match))
            fault = None if pin is None or reader.lines(pin.path) is None else _fault(pin, moved_to(pin, reader))
            if fault:
                yield Problem(rule=fault[0], line=number, message=fault[1])


def _fault(pin: Pin, places: list[int]) -> tuple[str, str] | None:
    cited = f"{pin.path}:{pin.first}" + (f"-{pin.last}" if pin.last > pin.first else "")
    if places == [pin.first]:
        return None
    if len(places) == 1:
        return (
            "LINE_DRIFTED",
            f"The lines cited as {cited} are at line {places[0]} now; check_report with fix mends it.",
        )
    if places:
        listed = ", ".join(map(str, places[:5]))
        return "LINE_DRIFTED", f"The lines cited as {cited} are at {listed} now: say which of them is meant."
    return (
        "LINE_STALE",
        f"{cited} is not what it was when the report was written: read it again, and what is said of it.",
    )


@dataclass(frozen=True)
class Repair:
    """A pointer that was put right."""

    line: int
    old: str
    new: str


def repaired(page: Page, reader: SourceReader, pins: Iterable[Pin]) -> tuple[str, list[Repair]]:
    """The report with the pointers of drifted lines put right, and what was changed."""
    known = {(pin.path, pin.first, pin.last): pin for pin in pins}
    repairs: list[Repair] = []
    lines = []
    for number, text in enumerate(page.lines, 1):

        def put(match: re.Match[str], number: int = number) -> str:
            pin = known.get(_key(match))
            places = [] if pin is None or reader.lines(pin.path) is None else moved_to(pin, reader)
            if pin is None or len(places) != 1 or places == [pin.first]:
                return match[0]
            last = places[0] + pin.last - pin.first
            new = f"{pin.path}:{places[0]}" + (f"-{last}" if match.group(3) else "")
            repairs.append(Repair(number, match[0], new))
            return new

        lines.append(POINTER.sub(put, text))
    return "\n".join(lines), repairs
