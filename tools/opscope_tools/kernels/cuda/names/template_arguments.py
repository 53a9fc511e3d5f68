"""What template arguments give: the constants that a traits class `Traits<128, 64, 4>` computes from its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from opscope_tools.kernels.cuda.cute.expressions import Cute, parsed
from opscope_tools.kernels.cuda.cute.values import is_cute, shown, told_whole
from opscope_tools.kernels.cuda.declarations import aliases, constants
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.names.definitions import template_names
from opscope_tools.kernels.cuda.names.element_types import element_bits
from opscope_tools.kernels.cuda.names.values import Value
from opscope_tools.kernels.cuda.source_text import CSource, matching_angle, split_arguments
from opscope_tools.kernels.cuda.syntax.nodes import Name, Node, spelled
from opscope_tools.kernels.values.expressions import Expression, Opaque, Quantity, render
from opscope_tools.kernels.values.layouts import LayoutError

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
    #: a layout, a copy or a product
    of_cute: bool = False


def members(sources: list[CSource], spelled: str) -> Members | None:
    """Members of the class that `spelled` names (`Traits<128, 64>`), its base classes' included; None where it is not found."""
    return _read(sources, spelled, 4)


@dataclass
class Members:
    """What a class holds: constants for a reader, numbers, CuTe's values, and types as written."""

    constants: dict[str, TraitConstant] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    # what CuTe's reader asks

    def named(self, name: str) -> Any:
        """A layout, a copy or a product by its alias."""
        return self.values.get(name.rpartition("::")[2])

    def declared(self, _: str) -> bool:
        """A class has no variables."""
        return False

    def number(self, name: str) -> Any:
        """A constant by its name."""
        return self.numbers.get(name.rpartition("::")[2])

    def constant(self, text: str) -> Any:
        """The number of an expression of constants."""
        found = formula(self.settled(text), self.number)
        return found if isinstance(found, int | Expression) and not isinstance(found, Opaque) else None

    def scalar(self, node: Node) -> Any:
        """As `constant`."""
        return self.constant(spelled(node))

    def pointer(self, _: Node, __: str) -> Value:
        """A class holds no tensors."""
        raise LayoutError("a tensor in a class of traits")

    def bits(self, text: str) -> int | None:
        """Of an element of a type."""
        return element_bits(self.type(text))

    def type(self, text: str) -> str:
        """A type, aliases followed as far as they lead to one."""
        for _ in range(8):
            plain = re.sub(r"^\s*typename\s+", "", text).strip()
            text = self.types.get(plain.rpartition("::")[2], plain)
            if text == plain:
                break
        return text

    def settled(self, text: str) -> str:
        """Sizes of types and layouts, and comparisons of types, as the numbers that they are."""

        def measured(match: re.Match[str]) -> str:
            found = Cute(self).value(parsed(match[0]) or Name(0, ""))
            return str(found) if isinstance(found, int) else match[0]

        def held(match: re.Match[str]) -> str:
            bits = self.bits(match[1])
            return str(bits // 8) if bits and bits % 8 == 0 else match[0]

        def same(match: re.Match[str]) -> str:
            one, other = (self.type(part).rpartition("::")[2] for part in split_arguments(match[1]))
            told = one == other or (element_bits(one) is not None and element_bits(other) is not None)
            return str(int(one == other)) if told else match[0]

        text = re.sub(r"\b(?:std::|cute::)?is_same_v\s*<([^<>]*)>", same, text)
        text = re.sub(r"\bsizeof\s*\(\s*([\w:]+)\s*\)", held, text)
        return re.sub(r"\b(?:cute::)?(?:co)?size(?:_v\s*<\s*[\w:]+\s*>|\s*\(\s*[\w:]+\s*\{\s*\}\s*\))", measured, text)


def _read(sources: list[CSource], spelled_: str, depth: int) -> Members | None:
    match = re.match(r"^(?:typename\s+)?(?:\w+::)*(\w+)\s*+<", spelled_)
    closing = matching_angle(spelled_, match.end() - 1) if match else -1
    if match is None or closing < 0 or depth == 0:
        return None
    arguments = split_arguments(spelled_[match.end() : closing])
    for source in sources:
        declared = class_template(source, match[1])
        if declared is None:
            continue
        parameters, bases, body, end = declared
        bound = dict(zip(template_names(parameters), arguments, strict=False))
        for text, name in zip(split_arguments(parameters), template_names(parameters), strict=True):
            if name not in bound and "=" in text:
                bound[name] = _substituted(text.partition("=")[2].strip(), bound)
        members = Members()
        for base in bases:
            if (inherited := _read(sources, _substituted(base, bound), depth - 1)) is not None:
                for one in fields(Members):
                    getattr(members, one.name).update(getattr(inherited, one.name))
        _members(source, body, end, bound, members)
        return members
    return None


def _substituted(text: str, bound: dict[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda m: bound.get(m[0], m[0]), text)


def class_template(source: CSource, name: str) -> tuple[str, list[str], int, int] | None:
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


_WHOLE = re.compile(r"int|size_t|uint32_t|unsigned|unsigned int|bool|auto|\w+_t")


def _members(source: CSource, body: int, end: int, bound: dict[str, str], members: Members) -> None:
    """Members in order, each worked out from the arguments and the members before it; of several of a name (branches of an `#if`)
    the first."""
    for name, text in bound.items():
        value = formula(text, lambda _: None)
        members.numbers[name] = value if isinstance(value, int) else Quantity(text)
        members.types[name] = text
    own: set[str] = set()
    numbers = [
        one
        for one in constants(source)
        if one.constant and {"static", "constexpr"} <= one.qualifiers and _WHOLE.fullmatch(one.type)
    ]
    inside = [one for one in (*numbers, *aliases(source)) if body <= one.start < end]
    for one in sorted(inside, key=lambda one: one.position):
        line, name, text = source.line(one.position), one.name, one.text
        if name in own:
            continue
        own.add(name)
        if one.constant:
            value = formula(members.settled(text), members.number)
            members.numbers[name] = value if isinstance(value, int) else Quantity(name)
            shown_ = render(value).replace("{", "").replace("}", "")
            members.constants[name] = TraitConstant(name, shown_, source.path, line)
        else:
            text = _chosen(text, members)
            found = Cute(members).written(text)
            if is_cute(found):
                members.values[name] = found
                if told_whole(found):
                    members.constants[name] = TraitConstant(name, shown(found), source.path, line, of_cute=True)
            else:
                members.types[name] = members.type(text)


def _chosen(text: str, members: Members) -> str:
    """The side that `conditional_t` takes, where its test is told."""
    text = re.sub(r"\btypename\s+", "", text).strip()
    match = re.match(r"(?:std::|cute::)?conditional_t\s*<", text)
    parts = split_arguments(text[match.end() : text.rindex(">")]) if match is not None and ">" in text else []
    test = members.constant(parts[0]) if len(parts) == 3 else None
    return _chosen(parts[2 - bool(test)], members) if isinstance(test, int) else text
