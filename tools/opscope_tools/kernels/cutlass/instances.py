"""The uses of a template: where the files around name it with arguments, and what these bind its parameters to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from opscope_tools.kernels.cuda.source_text import CSource, matching_angle, split_arguments, whole_words
from opscope_tools.kernels.cutlass.definitions import Scope, parameter_default, parameter_name
from opscope_tools.kernels.cutlass.names import Names, Spelled, defines

#: instances of one template that are read
INSTANCES = 60


def instances(
    names: Names, source: CSource, scope: Scope, spaces: frozenset[str]
) -> Iterator[tuple[dict[str, Spelled], Spelled]]:
    """What each use binds the parameters of the class or function `scope` of `source` to, and the use as it is written; `spaces`: the
    namespaces around the template."""
    seen: set[tuple[str, ...]] = set()
    packed = any("..." in parameter for parameter in scope.parameters)
    for other in names.sources:
        if other is not source and scope.kind == "class" and defines(other, scope.name):
            continue  # a class of its own by that name
        for position, given in _uses(other, scope, spaces, own=other is source):
            if len(seen) >= INSTANCES:
                continue
            if len(given) > len(scope.parameters) and not packed:
                continue
            bound: dict[str, Spelled] = {}
            for index, parameter in enumerate(scope.parameters):
                if "..." in parameter:
                    break
                text = given[index] if index < len(given) else parameter_default(parameter)
                if text:
                    where = (
                        Spelled(text, other, position)
                        if index < len(given)
                        else Spelled(text, source, scope.heading, dict(bound))
                    )
                    bound[parameter_name(parameter)] = names.meant(where)
            key = (*given, *(names.shown(one) for one in bound.values()))
            if key not in seen:
                seen.add(key)
                yield bound, Spelled(f"{scope.name}<{', '.join(given)}>", other, position)


def _uses(source: CSource, scope: Scope, spaces: frozenset[str], *, own: bool) -> Iterator[tuple[int, list[str]]]:
    """Where a file names the template with arguments: position, and these. What another namespace qualifies is another."""
    text = source.statements
    for position, _ in whole_words(text, scope.name):
        after = re.compile(r"\s*+<").match(text, position + len(scope.name))
        before = text[max(0, position - 80) : position]
        if after is None or (own and scope.heading <= position < scope.opening):
            continue
        if re.search(r"\b(?:struct|class)\s+$", before) or (
            scope.kind != "class" and re.search(r"\breturn\s+$", before)
        ):
            continue  # a specialisation; a comparison
        qualified = re.search(r"(\w+)\s*::\s*$", before)
        if qualified is not None and qualified[1] not in spaces:
            continue
        closing = matching_angle(text, after.end() - 1)
        given = split_arguments(text[after.end() : closing]) if closing > 0 else []
        if given and (scope.kind == "class" or not any(re.search(r"&&|\|\|", one) for one in given)):
            yield position, given


__all__ = ["INSTANCES", "instances"]
