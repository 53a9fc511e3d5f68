"""A C++ file as kernels are read from it, literals blanked whole, with what only they ask of it: its macros as records,
its functions by their braces. Below stand arguments, template lists and words of such text.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeVar

from opscope_tools.kernels.records import MacroRef
from opscope_tools.source.cpp.text import CppText, Macro, joined, matching, without_quotes

__all__ = [
    "CSource", "matching", "matching_angle", "names_called", "opening_angle", "split_arguments", "squeeze", "whole_words",
]  # fmt: skip

_T = TypeVar("_T")

_PARAMETERS = re.compile(r"\(([^)]*)\)")
_FUNCTION_BRACE = re.compile(
    r"\)\s*+(?:const|noexcept|override|mutable|->[\w:<>*&\s]++|__attribute__\s*+\(\([^)]*\)\))?\s*+$"
)
_NO_FUNCTION = re.compile(r"\b(namespace|class|struct|enum|extern|union)\b[^()]*$")
#: characters of a heading in which a name is looked for
_LONGEST_HEADING = 4000
_HEADED = re.compile(r"(?<![~\w])([~\w]++)\s*+(?:<[^()]*>)?\s*+\(")
_BRACKET = re.compile(r"[()\[\]{}]")
#: a class, with an alignment and its name
_CLASS = re.compile(r"\b(?:class|struct|union)\b(?:\s*+(?:alignas|__align__)\s*+\([^()]*+\))?+(?:\s++(\w++))?+")
_NAMESPACE = re.compile(r"\bnamespace\b(?:\s*+\[\[[^\]]*+\]\])?\s*+((?:\w++\s*+::\s*+)*+\w*+)\s*+$")


class CSource(CppText):
    """One file."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(text)
        self.statements = without_quotes(self.statements)
        self.path = path
        #: what readers have found out and will ask again
        self.memo: dict[tuple[str, str], list[str]] = {}
        self._tables: dict[str, Any] = {}

    def table(self, name: str, make: Callable[[], _T]) -> _T:
        """A table of the whole file, made once by the one reader that asks for it."""
        if name not in self._tables:
            self._tables[name] = make()
        found: _T = self._tables[name]
        return found

    @cached_property
    def code(self) -> str:
        """As in every C++ file, without quotes."""
        return without_quotes(super().code)

    @cached_property
    def of_cute(self) -> bool:
        """Whether it speaks of CuTe."""
        return re.search(r"\bcute\b", self.original) is not None

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Names of the namespaces that it opens."""
        found = re.findall(r"\bnamespace\s+([\w:]+)", self.statements)
        return frozenset(name for names in found for name in names.split("::"))

    def namespace(self, opening: int) -> str | None:
        """The name of the namespace that a brace opens, empty where it has none; None of other blocks."""
        start = max(self.statements.rfind(mark, 0, opening) for mark in ";{}") + 1
        found = _NAMESPACE.search(self.statements, start, opening)
        return re.sub(r"\s", "", found[1]) if found is not None else None

    def namespaces_around(self, position: int) -> list[str]:
        """The namespaces that hold a position, outermost first; '' for a nameless one."""
        around = (opening for opening, closing in self.all_blocks if opening < position <= closing)
        written = (name for opening in around if (name := self.namespace(opening)) is not None)
        return [part for name in written for part in name.split("::")]

    def class_around(self, position: int) -> tuple[str, int, int] | None:
        """(name, `{`, `}`) of the innermost class, structure or union that holds a position; None where none does."""
        for opening, closing in reversed(self.all_blocks[: bisect.bisect_left(self.all_blocks, (position,))]):
            if position < closing and (name := self._class(opening)) is not None:
                return name, opening, closing
        return None

    def _class(self, opening: int) -> str | None:
        """The name of the class that a brace opens, empty where it has none; None of other blocks."""
        start = max(self.statements.rfind(mark, 0, opening) for mark in ";{}") + 1
        head = self.statements[max(start, opening - _LONGEST_HEADING) : opening]
        for found in _CLASS.finditer(head):
            of_template = head[: found.start()].rstrip().endswith(("<", ","))  # `template <class T>`
            if not of_template and "(" not in head[found.end() :]:
                return found[1] or ""
        return None

    def nesting(self, start: int, end: int) -> int:
        """How deep brackets of all kinds lie in each other in a range; branches of one `#if` each count."""
        depth = deepest = 0
        for match in _BRACKET.finditer(self.statements, start, end):
            depth = depth + 1 if match[0] in "([{" else max(depth - 1, 0)
            deepest = max(deepest, depth)
        return deepest

    @cached_property
    def _live(self) -> list[Macro]:
        """The macros outside of dead code."""
        return [macro for macro in self.defined if not self.is_dead(macro.start)]

    @cached_property
    def defines(self) -> list[tuple[int, int]]:
        """Range of every macro definition, in the order of `macros`."""
        return [(macro.start, macro.end) for macro in self._live]

    def in_define(self, position: int) -> bool:
        """Whether a position lies in the definition of a macro."""
        return self.macro_around(position) is not None

    def macro_around(self, position: int) -> Macro | None:
        """The macro whose definition holds a position."""
        index = bisect.bisect_right(self.defines, (position, len(self.original))) - 1
        return self._live[index] if index >= 0 and position < self._live[index].end else None

    @cached_property
    def macros(self) -> tuple[MacroRef, ...]:
        """Every macro definition outside of dead code."""
        return tuple(self._macros())

    def _macros(self) -> Iterator[MacroRef]:
        for macro in self._live:
            given = _PARAMETERS.match(macro.body)
            parameters = None if given is None else tuple(p.strip() for p in given[1].split(",") if p.strip())
            body = joined(macro.body[given.end() :] if given is not None else macro.body)
            yield MacroRef(
                name=macro.name,
                parameters=parameters,
                body=without_quotes(body).strip(),
                file=self.path,
                line=self.line(macro.start),
            )

    def block_end(self, opening: int) -> int:
        """Position of the `}` that closes the `{` at `opening`, the file's last where none does."""
        last = len(self.statements) - 1
        return min(self.closing.get(opening, last), last)

    @cached_property
    def functions(self) -> list[tuple[int, int, int, str]]:
        """(start of the heading, brace, end, name) of every function that stands in no other."""
        text, found = self.statements, list[tuple[int, int, int, str]]()
        for brace, end in self.all_blocks:
            if found and brace < found[-1][2]:
                continue
            start = max(text.rfind(c, 0, brace) for c in ";{}") + 1
            heading = text[start:brace]
            if _NO_FUNCTION.search(heading) or not _FUNCTION_BRACE.search(heading):
                continue
            named = heading if len(heading) < _LONGEST_HEADING else ""
            name = _HEADED.search(named.partition("template")[2].partition(">")[2] or named)
            found.append((start, brace, end, name[1] if name else ""))
        return found

    def function_around(self, position: int) -> tuple[int, int, int, str] | None:
        """The outermost function that holds a position, as `functions` gives it."""
        index = bisect.bisect_left(self.functions, position, key=lambda f: f[1]) - 1
        return self.functions[index] if index >= 0 and self.functions[index][2] >= position else None

    @cached_property
    def all_blocks(self) -> list[tuple[int, int]]:
        """(position of `{`, position of `}`) of every block of the file, outer before inner."""
        return sorted(self.closing.items())


def matching_angle(text: str, opening: int) -> int:
    """Position of the `>` that closes the `<` of a template argument list; -1 where it is none."""
    depth, position = 0, opening
    while position < len(text):
        c = text[position]
        if c in "([{":
            position = matching(text, position)
            if position < 0:
                return -1
        elif c == "<" and text[position + 1 : position + 2] != "=":
            depth += 1
        elif c == ">" and text[position - 1] not in "-=" and text[position : position + 3] != ">= ":
            depth -= 1
            if depth == 0:
                return position
        elif c in ";}":
            return -1
        position += 1
    return -1


def opening_angle(text: str, closing: int) -> int:
    """Position of the `<` that opens the list closed by the `>` at `closing`; -1 where there is none."""
    depth, position = 0, closing
    while position >= 0:
        c = text[position]
        if c == ">" and text[position - 1] not in "-=" and text[position : position + 3] != ">= ":
            depth += 1
        elif c == "<" and text[position + 1 : position + 2] != "=":
            depth -= 1
            if depth == 0:
                return position
        elif c in ";{}":
            return -1
        position -= 1
    return -1


def split_arguments(text: str) -> list[str]:
    """The arguments of a call or template list, at its top level, trimmed."""
    parts, depth, angle, start = [], 0, 0, 0
    for position, c in enumerate(text):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif (
            c == "<"
            and depth == 0
            and text[position + 1 : position + 2] != "="
            and re.search(r"(?<!\w)[A-Za-z_]\w*+\s*+$", text[start:position])
            and _closes(text, position)
        ):
            angle += 1
        elif c == ">" and angle and depth == 0 and text[position - 1] not in "-=":
            angle -= 1
        elif c == "," and depth == 0 and angle == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [squeeze(p) for p in parts if p.strip()]


def _closes(text: str, position: int) -> bool:
    end = matching_angle(text, position)
    return end > 0 and not re.search(r"&&|\|\|", text[position:end])


def whole_words(text: str, *words: str) -> list[tuple[int, str]]:
    """(position, word) of every place where one of the words stands by itself, in order."""
    found = []
    for word in words:
        position = text.find(word)
        while position >= 0:
            end = position + len(word)
            if not (_in_word(text, position - 1) or _in_word(text, end)):
                found.append((position, word))
            position = text.find(word, end)
    return sorted(found)


def names_called(text: str, part: str) -> Iterator[tuple[int, str, int]]:
    """(position, name, position of the parenthesis) of every call or declaration of a name that holds `part`."""
    for match in re.compile(rf"{part}\w*\s*+\(").finditer(text):
        start = match.start()
        while _in_word(text, start - 1):
            start -= 1
        yield start, text[start : match.end() - 1].rstrip(), match.end() - 1


def _in_word(text: str, position: int) -> bool:
    return 0 <= position < len(text) and (text[position].isalnum() or text[position] == "_")


def squeeze(text: str) -> str:
    """The text on one line."""
    return re.sub(r"\s++", " ", text.replace("\\\n", " ")).strip()
