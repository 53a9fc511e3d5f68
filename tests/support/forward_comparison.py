"""The lines that `find_forward` gives against what ran, as tests/support/forward_truth.py saw it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opscope_schemas.index import Call, ForwardLine
from opscope_tools.index import ClassSymbol, ForwardDef, Index
from opscope_tools.index.forwards.decorators import explain
from opscope_tools.source.python.rows import FunctionRow

TRUTH = Path(__file__).parent / "forward_truth.py"
_CODE_LIMIT = 300


@dataclass
class Tally:
    """Figures, and the names behind those that should be zero."""

    counts: Counter[str] = field(default_factory=Counter)
    named: dict[str, set[str]] = field(default_factory=dict)

    def add(self, what: str, name: str = "") -> None:
        self.counts[what] += 1
        if name:
            self.named.setdefault(what, set()).add(name)


def truths(types: Sequence[str]) -> Iterator[dict[str, Any]]:
    """What ran, type by type."""
    with subprocess.Popen(
        [sys.executable, str(TRUTH), *types], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line)


def forward_at(index: Index, symbol: ClassSymbol, file: str, line: int) -> ForwardDef | None:
    """The forward of `symbol` or, where it ran through `super()`, of one of its bases, that is defined there."""
    found = index.forward(symbol)
    if found is not None and (found.file, found.line) == (file, line):
        return found
    for holder in index.resolver.mro(symbol):
        row = None if isinstance(holder, str) else holder.members.get("forward")
        if not isinstance(holder, str) and isinstance(row, FunctionRow) and (holder.file, row.line) == (file, line):
            return ForwardDef(symbol, holder, holder.unit, row)
    return None


def compare(index: Index, record: Mapping[str, Any], tally: Tally) -> None:
    """Put one forward into the tally."""
    name = f"{record['class']} {record['file']}:{record['line']}"
    try:
        symbol = index.one(record["class"])
    except Exception as error:
        tally.add("classes not resolved", f"{name}: {error}")
        return
    forward = forward_at(index, symbol, record["file"], record["line"])
    if forward is None:
        if any(
            explain(index.resolver, symbol.unit, text, "class").effect.startswith("replaces")
            for text in symbol.row.decorators
        ):
            tally.add("forwards that a class decorator puts in place, as told")
        else:
            tally.add("forwards not resolved", name)
        return
    tally.add("forwards compared")
    given = index.forward_lines(forward)
    by_line: dict[int, list[ForwardLine]] = {}
    for line in given:
        by_line.setdefault(line.line, []).append(line)
    for number in record["computed"]:
        tally.add("lines compared")
        if number not in by_line:
            tally.add("lines missing", f"{record['file']}:{number}")
        elif all(line.training_only for line in by_line[number]):
            tally.add("lines wrongly training-only", f"{record['file']}:{number}")
    for number in set(record["touched"]) - set(record["computed"]):
        tally.add("lines that only call torch")
        if number not in by_line:
            tally.add("lines that only call torch: missing", f"{record['file']}:{number}")
    claims: dict[tuple[int, str], Call] = {}
    for line in given:
        for call in line.calls:
            whole = call.model_copy(update={"candidates": call.candidates or line.candidates})
            claims.setdefault((call.line, call.code), whole if call.candidate_count else call)
    for number, text, computed, targets in record["calls"]:
        place = f"{record['file']}:{number} {text[:90]}"
        found = claims.get((number, text[:_CODE_LIMIT]))
        if found is None:
            if computed and targets:  # of `tuple(f(x) for x in y)` nothing is seen but what its argument computes
                tally.add("calls compared")
                tally.add("callees not listed", place)
            continue
        tally.add("calls compared")
        answer = verdict(found, targets)
        tally.add(
            f"callees {answer}",
            ""
            if answer in {"equal", "among the candidates", "not checkable"}
            else f"{place} -> {shown(found)}; ran {targets[:3]}",
        )


def shown(call: Call) -> str:
    return f"{call.callee or '?'} [{call.dispatch}] {call.callee_file}:{call.callee_line}"


def verdict(call: Call, targets: Sequence[Sequence[Any]]) -> str:
    """How the callee that the index names stands to what the call entered."""
    names = call.callee.split(" | ")
    if all(kind == "def" and not rest[0] for kind, *rest in targets):
        return "not checkable"  # nothing seen (a partial object of a C function), or code that Python wrote itself
    for kind, *rest in targets:
        if kind in {"module", "class"} and rest[0] in names:
            return "equal" if len(names) == 1 else "among the candidates"
        if kind == "def" and call.callee_file and [call.callee_file, call.callee_line] == rest[:2]:
            return "equal"
        if (
            kind == "def"
            and not call.callee_file
            and call.callee
            and _same_package(call.callee, rest[0], str(rest[-1]))
        ):
            return "equal"
        if kind == "c" and _built_in(call.callee, rest[0]):
            return "equal"
        for candidate in call.candidates:
            if (
                rest[0] == candidate.callee
                or rest[:2] == [candidate.file, candidate.line]
                or (kind == "c" and _built_in(candidate.callee, rest[0]))
            ):
                return "among the candidates"
    if any(not candidate.callee for candidate in call.candidates):
        return "not known"
    if call.candidates:
        return "wrong: among none of the candidates"
    return "wrong" if call.callee else "not known"


def _built_in(callee: str, name: str) -> bool:
    """Whether a C function bears the last part of a name, or its last two: `torch.linalg.norm` is `linalg_norm`."""
    parts = callee.split(".")
    return name in {parts[-1], "_".join(parts[-2:])}


def _same_package(callee: str, file: str, name: str) -> bool:
    """Whether a callee outside the registered source is a function of that name in the package named."""
    return callee.split(".", 1)[0] == file.split("/", 1)[0] and callee.rpartition(".")[2] == name
