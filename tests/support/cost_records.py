"""What a sweep over model types found, a record for each type and phase, kept as JSON lines: one file for each type.

A record belongs to the code that it was made with (`digest_of_sources`): where that changed it is no answer any more.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import opscope_schemas.formula
import opscope_tools.trace

PHASES = ("prefill", "decode", "encode")
#: outcomes, in the order of the page
EXACT, INCOMPLETE, WRONG, UNREFERENCED = "exact", "incomplete", "wrong", "no concrete run"
REFUSED, TOO_LONG, DIED, FAILED, ABSENT = "refused", "too long", "worker died", "failed", "no such phase"
OUTCOMES = (EXACT, INCOMPLETE, WRONG, UNREFERENCED, REFUSED, TOO_LONG, DIED, FAILED, ABSENT)


@dataclass(frozen=True)
class Record:
    """One type in one phase: `seconds` and `processor` are those of the plain question, the default configuration.

    `equal`, `wrong`, `unbuilt` are about points inside the stated conditions: how many equal a concrete run, and the others in words.
    """

    model_type: str
    phase: str
    digest: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    processor: float = 0.0
    compared: int = 0
    equal: int = 0
    wrong: tuple[str, ...] = ()
    unbuilt: tuple[str, ...] = ()

    def line(self) -> str:
        said = (
            f"{self.model_type:28} {self.phase:8} {self.outcome:12} {self.processor:.1f} s; {self.equal} inside equal"
        )
        return "; ".join((said, *filter(None, (self.reason,)), *(f"WRONG {w}" for w in self.wrong), *self.unbuilt))


def digest_of_sources() -> str:
    """Of the code that traces, of the formulas' language, and of the independent reference with its comparisons."""
    here = Path(__file__).parent
    trace, formula = Path(opscope_tools.trace.__file__).parent, Path(opscope_schemas.formula.__file__)
    counting = (f for f in here.glob("cost_*.py") if f.stem not in ("cost_records", "cost_sweep"))
    reference = (*counting, here / "trace_reference.py", here / "inside_points.py")
    compared = (f for f in trace.rglob("*.py") if f.stem != "serving")  # a view beside what is compared
    files = [*sorted(compared), formula, *sorted(reference)]
    return hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()[:16]


class Records:
    """The folder of records. What a stopped sweep was writing last may be cut short: such a line is none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            with (self._folder / f"{record.model_type}.jsonl").open("a") as file:
                file.write(json.dumps(dataclasses.asdict(record)) + "\n")

    def every(self, digest: str = "") -> list[Record]:
        """The last record of each type and phase; with `digest`, of that code only."""
        found: dict[tuple[str, str], Record] = {}
        for file in sorted(self._folder.glob("*.jsonl")):
            for line in file.read_text().splitlines():
                try:
                    record = _read(line)
                except (ValueError, TypeError):
                    continue
                if digest in ("", record.digest):
                    found[record.model_type, record.phase] = record
        return list(found.values())

    def missing(self, types: Iterable[str], phases: Iterable[str], digest: str) -> dict[str, tuple[str, ...]]:
        """The phases of each type that this code has no answer for; a worker that died gave none."""
        known = {(r.model_type, r.phase) for r in self.every(digest) if r.outcome != DIED}
        wanted = {t: tuple(p for p in phases if (t, p) not in known) for t in types}
        return {t: rest for t, rest in wanted.items() if rest}


def _read(line: str) -> Record:
    held = json.loads(line)
    return Record(**{**held, "wrong": tuple(held["wrong"]), "unbuilt": tuple(held["unbuilt"])})
