"""Where it is decided what a line runs or an attribute holds, as results show it."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import replace

from opscope_schemas.index import Decided, ForwardLine

from opscope_tools.index import ClassSymbol, ForwardDef, Index
from opscope_tools.index.decisions.choices import Choices, Read
from opscope_tools.index.decisions.values import Decision, decide
from opscope_tools.running.config_files import Config, open_config, read_config
from opscope_tools.running.workspace import Workspace
from opscope_tools.source.python.syntax import function


def decided_lines(
    index: Index, forward: ForwardDef, lines: Sequence[ForwardLine], workspace: Workspace, config: Config
) -> list[ForwardLine]:
    """The lines of a forward, each with the config fields that it hangs on."""
    code = function(forward.unit, forward.row)
    starts = [line.line for line in lines]
    chosen: dict[int, list[Read]] = {}
    try:
        for at, read in Choices(index.resolver, forward.symbol).of_forward(code, forward.defined_in) if code else ():
            entry = bisect.bisect_right(starts, at) - 1
            if entry >= 0 and at <= max(line.end_line for line in lines[: entry + 1]):
                chosen.setdefault(entry, []).append(read)
    except RecursionError:  # expressions that nest beyond reason hang on nothing that could be told
        return list(lines)
    told = _told(index, forward.symbol, [read for reads in chosen.values() for read in reads], workspace, config)
    named: set[str] = set()
    shown = list(lines)
    for entry, reads in sorted(chosen.items()):
        found = _distinct(told[read] for read in reads if read in told)
        if lines[entry].kind != "control_flow":
            found = [each for each in found if each.field not in named]
        named |= {each.field for each in found}
        shown[entry] = lines[entry].model_copy(
            update={"decided": tuple(_elsewhere(each, forward.file) for each in found)}
        )
    return shown


def decided_attributes(
    index: Index, symbol: ClassSymbol, attributes: Iterable[str], workspace: Workspace, config: Config
) -> dict[str, tuple[Decided, ...]]:
    """For each attribute (`layers.*` for a container's items) the config fields that choose what it holds."""
    choices = Choices(index.resolver, symbol)
    try:
        reads = {name: choices.of_attribute(name.partition(".")[0]) for name in dict.fromkeys(attributes)}
    except RecursionError:
        return {}
    told = _told(index, symbol, [read for each in reads.values() for read in each], workspace, config)
    return {
        name: tuple(_elsewhere(one, symbol.file) for one in _distinct(told[read] for read in each if read in told))
        for name, each in reads.items()
    }


def _told(
    index: Index, symbol: ClassSymbol, reads: list[Read], workspace: Workspace, config: Config
) -> dict[Read, Decided]:
    if not reads:
        return {}
    found = decide(index.resolver, symbol, list(dict.fromkeys(reads)), read_config(workspace, config))
    return {read: _shown(decision, workspace, config) for read, decision in found.items()}


def _shown(found: Decision, workspace: Workspace, config: Config) -> Decided:
    if found.key and isinstance(config, str):
        file = open_config(workspace, config)
        found = replace(found, file=str(file.path), line=file.line_of(found.key, found.held))
    return Decided(
        field=found.field, read_file=found.read.file, read_line=found.read.line, value=found.value,
        file=found.file, line=found.line, rule=found.rule, also=found.also,
    )  # fmt: skip


def _distinct(found: Iterable[Decided]) -> list[Decided]:
    """Each field once, where it is read first."""
    kept: dict[str, Decided] = {}
    for each in found:
        kept.setdefault(each.field, each)
    return list(kept.values())


def _elsewhere(found: Decided, file: str) -> Decided:
    return found.model_copy(update={"read_file": "" if found.read_file == file else found.read_file})
