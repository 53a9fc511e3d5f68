"""Values of a launching function's template parameters: those of the calls `run<...>`, callers of callers included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_tools.kernels.cuda.launch.host_run import Host
from opscope_tools.kernels.cuda.names.definitions import template_list
from opscope_tools.kernels.cuda.source_text import CSource, matching_angle, split_arguments, whole_words

#: instances per function, and levels of callers, that are followed
_CALLS = 48
_LEVELS = 3
_LIST, _CALLED = re.compile(r"\s*+<"), re.compile(r"\s*+[({]")


@dataclass(frozen=True)
class Instance:
    """One value of a template argument, and the call that gives it."""

    value: str
    file: str
    line: int


def callers(host: Host, sources: list[CSource], function: str, index: int, level: int = _LEVELS) -> list[Instance]:
    """Values of template argument `index` at the calls of `function`."""
    found: dict[str, Instance] = {}
    for source in sources:
        for position, _ in whole_words(source.statements, function):
            match = _LIST.match(source.statements, position + len(function))
            closing = matching_angle(source.statements, match.end() - 1) if match else -1
            if match is None or source.statements[position - 1 : position] == ":":
                continue
            if closing < 0 or not _CALLED.match(source.statements, closing + 1):
                continue
            arguments = split_arguments(source.statements[match.end() : closing])
            if index >= len(arguments) or len(found) >= _CALLS:
                continue
            for instance in _settled(host, source, position, arguments[index], index, sources, level):
                found.setdefault(instance.value, instance)
    return list(found.values())


def _settled(
    host: Host, source: CSource, position: int, text: str, index: int, sources: list[CSource], level: int
) -> Iterator[Instance]:  # fmt: skip
    """The argument as each way to the call gives it; one that is a template parameter is followed outwards."""
    heading, brace, _, name = source.function_around(position) or (0, 0, 0, "")
    outer = template_list(source, heading, brace)[0]
    line = source.line(position)
    if text in outer and level > 1 and name:
        yield from callers(host, sources, name, outer.index(text), level - 1) or [Instance(text, source.path, line)]
        return
    calls = [c.arguments for c in host.around(source, position).named if c.place == position]
    for value in dict.fromkeys(a[index] for a in calls if index < len(a)) or (text,):
        yield Instance(value, source.path, line)


__all__ = ["Instance", "callers"]
