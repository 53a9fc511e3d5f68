"""What template arguments give: the constants that a traits class `Traits<128, 64, 4>` computes from its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.names.definitions import template_names
from opscope_tools.kernels.cuda.source_text import CSource, matching_angle, split_arguments
from opscope_tools.kernels.values.expressions import Quantity, render
from opscope_tools.kernels.values.notation import read_size

Load = Callable[[str], CSource | None]

#: files that are searched for traits of one launch
_FILES = 40


def included(source: CSource, load: Load, depth: int = 6) -> list[CSource]:
    """The file and what it includes by a quoted path, as far as the repository holds it."""
    found: dict[str, CSource] = {source.path: source}
    pending = [(source, depth)]
    while pending:
        current, left = pending.pop(0)
        if left == 0 or len(found) >= _FILES:
            continue
        folder = current.path.rpartition("/")[0]
        for name in current.includes:
            base = folder
            while True:
                path = _normal(f"{base}/{name}" if base else name)
                other = found.get(path) or load(path)
                if other is not None or not base:
                    break
                base = base.rpartition("/")[0]
            if other is not None and other.path not in found:
                found[other.path] = other
                pending.append((other, left - 1))
    return list(found.values())


def _normal(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in {"", "."}:
            parts.append(part)
    return "/".join(parts)


@dataclass(frozen=True)
class TraitConstant:
    """A constant member of a traits class for one set of arguments."""

    name: str
    value: str
    file: str
    line: int


def trait_constants(sources: list[CSource], spelled: str, depth: int = 4) -> list[TraitConstant]:
    """Integer constants of the class that `spelled` names (`Traits<128, 64>`), its base classes' included."""
    match = re.match(r"^(?:typename\s+)?(?:\w+::)*(\w+)\s*+<", spelled)
    closing = matching_angle(spelled, match.end() - 1) if match else -1
    if match is None or closing < 0 or depth == 0:
        return []
    arguments = split_arguments(spelled[match.end() : closing])
    for source in sources:
        declared = _class(source, match[1])
        if declared is None:
            continue
        parameters, bases, body, end = declared
        bound = dict(zip(template_names(parameters), arguments, strict=False))
        for text, name in zip(split_arguments(parameters), template_names(parameters), strict=True):
            if name not in bound and "=" in text:
                bound[name] = _substituted(text.partition("=")[2].strip(), bound)
        found = {c.name: c for b in bases for c in trait_constants(sources, _substituted(b, bound), depth - 1)}
        found |= {c.name: c for c in _members(source, body, end, bound, found)}
        return list(found.values())
    return []


def _substituted(text: str, bound: dict[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: bound.get(m[0], m[0]), text)


def _class(source: CSource, name: str) -> tuple[str, list[str], int, int] | None:
    """(template parameters, bases, start and end of the body) of a class template of this file."""
    found = re.search(rf"\b(?:struct|class)\s+{re.escape(name)}\s*+(?::([^{{;]*+))?\{{", source.statements)
    if found is None:
        return None
    before = source.statements.rfind("template", 0, found.start())
    opening = source.statements.find("<", before) if before >= 0 else -1
    closing = matching_angle(source.statements, opening) if opening > 0 else -1
    if closing < 0 or source.statements[closing + 1 : found.start()].strip():
        return None
    bases = [re.sub(r"^\s*+(public|private|protected)\s++", "", b) for b in split_arguments(found[1] or "")]
    return source.statements[opening + 1 : closing], bases, found.end(), source.block_end(found.end() - 1)


def _members(
    source: CSource, body: int, end: int, bound: dict[str, str], inherited: dict[str, TraitConstant]
) -> Iterator[TraitConstant]:
    """`static constexpr int` members in order, each worked out from the arguments and the members before it."""
    known: dict[str, object] = {}
    for constant in inherited.values():
        known[constant.name] = read_size(constant.value)
    for name, text in bound.items():
        value = formula(text, lambda _: None)
        known[name] = value if isinstance(value, int) else Quantity(text)

    def resolve(name: str) -> object | None:
        return known.get(name.rpartition("::")[2])

    pattern = re.compile(
        r"\bstatic\s++constexpr\s++(?:static\s+)?(?:int|size_t|uint32_t|unsigned|bool|auto|\w+_t)\s++(\w+)\s*+=\s*+([^;]+);"
    )
    for match in pattern.finditer(source.statements, body, end):
        value = formula(match[2], resolve)
        known[match[1]] = value if isinstance(value, int) else Quantity(match[1])
        shown = render(value).replace("{", "").replace("}", "")
        yield TraitConstant(match[1], shown, source.path, source.line(match.start()))
