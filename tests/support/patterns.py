"""Every regular expression of the code that reads other people's text, and strings made to have each of them look twice.

`collected` finds the patterns: those that modules hold, and those written at a call of `re`, where what a pattern is filled with is
stood for by a word. `hostile` takes a pattern apart and repeats what its repetitions repeat, behind what stands before them, so that
a search that could begin or go on in many ways has to try them all.
"""

from __future__ import annotations

import ast
import importlib
import re
import re._constants as opcodes  # type: ignore[import-not-found]  # no stubs: how a pattern is taken apart is nowhere public
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Mode = Literal["search", "match", "fullmatch"]
_FOLDERS = ("index", "report", "survey", "settings", "kernels")
_CALLS = ("compile", "match", "fullmatch", "search", "finditer", "findall", "sub", "split")
#: stands for a name that a pattern is filled with
_WORD = "NAME"
_CLASSES: dict[object, tuple[str, str]] = {
    opcodes.CATEGORY_WORD: ("a", r"\w"),
    opcodes.CATEGORY_DIGIT: ("1", r"\d"),
    opcodes.CATEGORY_SPACE: (" ", r"\s"),
    opcodes.CATEGORY_NOT_SPACE: ("a", r"\S"),
    opcodes.CATEGORY_NOT_WORD: (".", r"\W"),
    opcodes.CATEGORY_NOT_DIGIT: ("a", r"\D"),
}
_SIGNS = "aA1_ \t\n.-/,\"'(<[{:*+\\|`~"


@dataclass(frozen=True)
class Written:
    """A pattern, where it is written, and how it is used: a match is tried at one place, a search at all."""

    where: str
    pattern: re.Pattern[Any]
    mode: Mode


def collected(root: Path) -> list[Written]:
    """The patterns of the engines that read source and reports, and of the tools above them."""
    package = root / "tools" / "opscope_tools"
    files = [file for folder in _FOLDERS for file in sorted((package / folder).rglob("*.py"))]
    files += [*sorted(package.glob("*.py")), *sorted((root / "schemas" / "opscope_schemas").glob("*.py"))]
    sources = {file: file.read_text() for file in files}
    found: dict[tuple[Any, int], Written] = {}
    for file, source in sources.items():
        base = root / "tools" if file.is_relative_to(package) else root / "schemas"
        name = ".".join(file.relative_to(base).with_suffix("").parts)
        for written in (*_held(name, sources.values()), *_inline(name, source)):
            found.setdefault((written.pattern.pattern, written.pattern.flags), written)
    return list(found.values())


def _held(name: str, sources: Iterable[str]) -> Iterator[Written]:
    module = importlib.import_module(name)
    for attribute, value in vars(module).items():
        for pattern in _patterns(value):
            used: set[str] = set()
            for source in [_source(module)] if attribute.startswith("_") else sources:
                used |= set(re.findall(rf"\b{re.escape(attribute)}\.(\w+)\b", source))
            plain = isinstance(value, re.Pattern)
            mode: Mode = "search"
            if plain and used and used <= {"match", "fullmatch"}:
                mode = "match" if "match" in used else "fullmatch"
            elif not plain and ".fullmatch(" in _source(module) and ".search(" not in _source(module):
                mode = "fullmatch"  # a table of patterns
            yield Written(f"{name}:{attribute}", pattern, mode)


def _source(module: object) -> str:
    return Path(str(getattr(module, "__file__", ""))).read_text()


def _patterns(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, tuple | list | set | frozenset):
        for inner in value:
            yield from _patterns(inner, depth + 1)
    elif depth < 4 and isinstance(value, dict):
        yield from _patterns((*value, *value.values()), depth + 1)


def _inline(name: str, source: str) -> Iterator[Written]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re"), attr=called), args=[first, *_]) if (
                called in _CALLS
            ):
                text = _text(first)
            case _:
                continue
        if text is None:
            continue
        flags = 0
        for word in ("MULTILINE", "DOTALL", "IGNORECASE"):
            flags |= getattr(re, word) if f"re.{word}" in ast.unparse(node) else 0
        mode: Mode = "match" if called == "match" else "fullmatch" if called == "fullmatch" else "search"
        after = source.splitlines()[node.lineno - 1 : (node.end_lineno or node.lineno) + 1]
        if called == "compile" and any(").match(" in line for line in after):
            mode = "match"
        yield Written(f"{name}:{node.lineno}", re.compile(text, flags), mode)


def _text(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else _WORD for part in node.values)
    return None


# ---- strings ---------------------------------------------------------------------------------------------------------


def hostile(written: Written, size: int) -> Iterator[Any]:
    """Strings of about `size` characters."""
    text = written.pattern.pattern
    tree = parser.parse(
        text if isinstance(text, str) else text.decode("latin-1"), written.pattern.flags & ~re.UNICODE.value
    )
    seen: set[str] = set()
    for choice in range(2):
        for before, body in _repetitions(tree, "", choice):
            many = body * (size // len(body))
            whole = before + body
            for made in (
                f"{before}{many}\0",
                whole * (size // len(whole)),
                before * (size // len(before)) if before else "",
            ):
                if made and made not in seen:
                    seen.add(made)
                    yield made if isinstance(text, str) else made.encode("utf-8", "replace")


def _repetitions(tree: Any, before: str, choice: int) -> Iterator[tuple[str, str]]:
    """What stands before each repetition without a small bound, and what it repeats."""
    for operation, value in tree:
        if operation in (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT, opcodes.POSSESSIVE_REPEAT):
            _, most, inner = value
            if most >= 50:
                yield from ((before, body) for body in _bodies(inner, choice) if body)
            yield from _repetitions(inner, before, choice)
        elif operation is opcodes.SUBPATTERN:
            yield from _repetitions(value[3], before, choice)
        elif operation is opcodes.ATOMIC_GROUP:
            yield from _repetitions(value, before, choice)
        elif operation is opcodes.BRANCH:
            for branch in value[1]:
                yield from _repetitions(branch, before, choice)
        elif operation in (opcodes.ASSERT, opcodes.ASSERT_NOT):
            yield from _repetitions(value[1], before, choice)
        before += _witness([(operation, value)], choice)


def _bodies(inner: Any, choice: int) -> Iterator[str]:
    yield _witness(inner, choice)
    yield _witness(inner, choice + 1)
    if len(inner) == 1 and inner[0][0] is opcodes.IN:
        taken = re.compile(_class(inner[0][1]))
        yield from (sign for sign in _SIGNS if taken.match(sign))
    elif len(inner) == 1 and inner[0][0] is opcodes.ANY:
        yield from "a (<`-"


def _class(items: list[Any]) -> str:
    negated = items[0][0] is opcodes.NEGATE
    return f"[{'^' if negated else ''}{''.join(map(_member, items[negated:]))}]"


def _member(item: tuple[Any, Any]) -> str:
    operation, value = item
    if operation is opcodes.LITERAL:
        return re.escape(chr(value))
    if operation is opcodes.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    return _CLASSES[value][1]


def _witness(tree: Any, choice: int) -> str:
    """A text that the pattern takes; which one of its alternatives, `choice` says."""
    made = ""
    for operation, value in tree:
        if operation is opcodes.LITERAL:
            made += chr(value)
        elif operation is opcodes.NOT_LITERAL:
            made += "b" if chr(value) == "a" else "a"
        elif operation is opcodes.ANY:
            made += "a"
        elif operation is opcodes.IN:
            taken = re.compile(_class(value))
            made += next(
                (sign for sign in f"{_SIGNS};=#@" if taken.match(sign)),
                chr(value[0][1]) if value[0][0] is opcodes.LITERAL else "a",
            )
        elif operation is opcodes.BRANCH:
            made += _witness(value[1][choice % len(value[1])], choice)
        elif operation is opcodes.SUBPATTERN:
            made += _witness(value[3], choice)
        elif operation is opcodes.ATOMIC_GROUP:
            made += _witness(value, choice)
        elif operation in (opcodes.MAX_REPEAT, opcodes.MIN_REPEAT, opcodes.POSSESSIVE_REPEAT):
            made += _witness(value[2], choice) * max(value[0], choice % 2)
    return made
