"""The lines of a call nesting as a tree, and what of it is left: calls that lead to a stage, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from opscope_schemas.repo_map import NestLine

__all__ = ["Line", "flat", "kept"]


@dataclass
class Line:
    """A line, and what lies below it."""

    line: NestLine
    calls: int  # how many calls lead here
    stages: set[str] = field(default_factory=set)
    below: list[Line] = field(default_factory=list)
    #: what is called says that the line belongs to a stage
    sure: bool = False
    #: a break, return or yield, which says how the loop around it goes on
    leaves: bool = False
    #: the function that the call runs, and the same where it is expanded at another call
    runs: tuple[str, str] | None = None
    again: tuple[str, str] | None = None


def flat(lines: list[Line]) -> Iterator[Line]:
    """The lines in order."""
    for line in lines:
        yield line
        yield from flat(line.below)


def kept(tree: list[Line]) -> list[Line]:
    """The tree without calls that lead to no stage, and without the statements that hold nothing else."""
    leading: set[tuple[str, str]] = set()
    while True:  # a call of a function that is expanded elsewhere leads to what that one leads to
        found = {line.runs for line in flat(tree) if line.runs and line.below and _leads(line.below, leading)}
        if found <= leading:
            break
        leading |= found
    return _without_idle(_pruned(tree, leading, set()))


def _without_idle(lines: list[Line]) -> list[Line]:
    """The tree without what leaves a loop that runs no stage, and without the branches that hold nothing else."""
    for line in lines:
        if line.line.kind == "loop" and not any(one.sure or one.again for one in flat(line.below)):
            line.below = _kept_calls(line.below)
        line.below = _without_idle(line.below)
    return [line for line in lines if line.below or line.sure or line.again or line.leaves]


def _kept_calls(lines: list[Line]) -> list[Line]:
    for line in lines:
        line.below = _kept_calls(line.below)
    return [line for line in lines if not line.leaves]


def _leads(lines: list[Line], leading: set[tuple[str, str]]) -> bool:
    return any(line.sure or line.again in leading for line in flat(lines))


def _pruned(lines: list[Line], leading: set[tuple[str, str]], shown: set[tuple[str, str]]) -> list[Line]:
    found: list[Line] = []
    for line in lines:
        if line.runs and line.below:
            shown.add(line.runs)
        below = _pruned(line.below, leading, shown)
        holds = line.again in leading
        if holds:
            where = "as above" if line.again in shown else "as below"
            note = f"{line.line.note}; {where}".removeprefix("; ")
            line.line = line.line.model_copy(update={"note": note})
        if below or line.sure or holds or line.leaves or line.line.code.startswith(("if ", "elif ")):
            line.below = below
            found.append(line)
    return _with_their_rest(found)


def _with_their_rest(lines: list[Line]) -> list[Line]:
    """Without an `if` or `elif` that holds nothing, unless an `elif` or `else` of it follows."""
    found: list[Line] = []
    for line in reversed(lines):
        opens = line.line.kind == "branch" and line.line.code.startswith(("if ", "elif "))
        rest = (
            bool(found)
            and found[-1].line.code.startswith(("elif ", "else:"))
            and found[-1].line.depth == line.line.depth
        )
        if not opens or line.below or rest:
            found.append(line)
    return found[::-1]
