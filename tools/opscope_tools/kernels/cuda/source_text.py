"""CUDA source as text whose comments and strings are blanked, with brackets that match across `#if` branches.

`CSource` keeps the original beside the blanked text, both of the same length, so that positions hold in both.
`split_arguments` and `matching` do the bracket work of everything above.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator
from functools import cached_property

from opscope_tools.kernels.records import MacroRef
from opscope_tools.source.cpp.text import spaces

_NOISE = re.compile(
    r"//(?:\\\n|[^\n])*|/\*.*?\*/|R\"([^\s()\\]{0,16})\(.*?\)\1\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])'", re.DOTALL
)
_PREPROCESSOR = re.compile(r"#[ \t]*(\w*)(?:\\\r?\n|[^\n])*")
_DEFINE = re.compile(r"#[ \t]*define[ \t]+(\w+)(\([^)]*\))?((?:\\\r?\n|[^\n])*)")
_BRANCHES = frozenset({"if", "ifdef", "ifndef", "elif", "else", "endif"})
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', re.MULTILINE)
_FUNCTION_BRACE = re.compile(
    r"\)\s*+(?:const|noexcept|override|mutable|->[\w:<>*&\s]++|__attribute__\s*+\(\([^)]*\)\))?\s*+$"
)
_NO_FUNCTION = re.compile(r"\b(namespace|class|struct|enum|extern|union)\b[^()]*$")
#: characters of a heading in which a name is looked for
_LONGEST_HEADING = 4000
_HEADED = re.compile(r"(?<![~\w])([~\w]++)\s*+(?:<[^()]*>)?\s*+\(")
_OPENING = {"(": ")", "[": "]", "{": "}"}


def _blank(text: str) -> str:
    """Spaces of the same length, in as many lines; a comment inside a definition of several lines does not end that."""
    *lines, last = text.split("\n")
    if not lines or not all(line.endswith("\\") for line in lines):
        return spaces(text)
    return "\n".join([*(" " * (len(line) - 1) + "\\" for line in lines), " " * len(last)])


class CSource:
    """One file."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.original = text
        #: (position, text) of raw strings, in which generators keep whole kernels
        self.raw_strings: list[tuple[int, str]] = []
        self.code = _NOISE.sub(self._without_noise, text)
        #: range of every macro definition
        self.defines: list[tuple[int, int]] = []
        #: what readers have found out and will ask again
        self.memo: dict[tuple[str, str], list[str]] = {}
        self._directives: list[tuple[int, str]] = []
        #: the code with preprocessor lines blanked too: what statements are read from
        self.statements = self._without_preprocessor()

    @cached_property
    def includes(self) -> list[str]:
        """The names of the files that it includes, as written."""
        return _INCLUDE.findall(self.original)

    def _without_noise(self, match: re.Match[str]) -> str:
        if match[0].startswith("R"):
            self.raw_strings.append((match.start(), match[0]))
        return _blank(match[0])

    def _without_preprocessor(self) -> str:
        code, parts, done = self.code, [], 0
        position = code.find("#")
        while position >= 0:
            first = code.rfind("\n", 0, position) + 1
            line = None if code[first:position].strip(" \t") else _PREPROCESSOR.match(code, position)
            if line is None:
                position = code.find("#", position + 1)
                continue
            if line[1] == "define" and (definition := _DEFINE.match(code, position)) is not None:
                self.defines.append((first, definition.end()))
            elif line[1] in _BRANCHES:
                self._directives.append((first, line[1]))
            parts += [code[done:position], spaces(line[0])]
            done = line.end()
            position = code.find("#", done)
        return "".join([*parts, code[done:]])

    @cached_property
    def namespaces(self) -> frozenset[str]:
        """Names of the namespaces that it opens."""
        found = re.findall(r"\bnamespace\s+([\w:]+)", self.statements)
        return frozenset(name for names in found for name in names.split("::"))

    @cached_property
    def _lines(self) -> list[int]:
        return list(itertools.accumulate((len(line) + 1 for line in self.original.split("\n")), initial=0))

    def line(self, position: int) -> int:
        """1-based line of a position."""
        return bisect.bisect_right(self._lines, position)

    def nesting(self, start: int, end: int) -> int:
        """How deep brackets of all kinds lie in each other in a range; branches of one `#if` each count."""
        depth = deepest = 0
        for match in re.compile(r"[()\[\]{}]").finditer(self.statements, start, end):
            depth = depth + 1 if match[0] in "([{" else max(depth - 1, 0)
            deepest = max(deepest, depth)
        return deepest

    def in_define(self, position: int) -> bool:
        """Whether a position lies in the body of a macro."""
        index = bisect.bisect_right(self.defines, (position, len(self.code))) - 1
        return index >= 0 and self.defines[index][0] <= position < self.defines[index][1]

    @cached_property
    def macros(self) -> tuple[MacroRef, ...]:
        """Every macro definition."""
        return tuple(self._macros())

    def _macros(self) -> Iterator[MacroRef]:
        for first, _ in self.defines:
            match = _DEFINE.search(self.code, first)
            assert match is not None  # read there before
            parameters = None if match[2] is None else tuple(p.strip() for p in match[2][1:-1].split(",") if p.strip())
            body = re.sub(r"\\\r?\n", "\n", self.code[match.start(3) : match.end(3)]).strip()
            yield MacroRef(name=match[1], parameters=parameters, body=body, file=self.path, line=self.line(first))

    def block_end(self, opening: int) -> int:
        """Position of the `}` that closes the `{` at `opening`; of the branches of one `#if` the last counts."""
        last = len(self.statements) - 1
        return min(self._ends.get(opening, last), last)

    @cached_property
    def _ends(self) -> dict[int, int]:
        return dict(self.all_blocks)

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
        """The outermost function that holds a position."""
        index = bisect.bisect_left(self.functions, position, key=lambda f: f[1]) - 1
        return self.functions[index] if index >= 0 and self.functions[index][2] >= position else None

    @cached_property
    def all_blocks(self) -> list[tuple[int, int]]:
        """Every block of the file, outer before inner."""
        return self.blocks(0, len(self.statements))

    def blocks(self, start: int, end: int) -> list[tuple[int, int]]:
        """(position of `{`, position of `}`) of every block in a range; of the branches of one `#if` the last counts."""
        found: list[tuple[int, int]] = []
        opened: list[int] = []
        saved: list[list[int]] = []
        first = bisect.bisect_left(self._directives, (start, ""))
        events = iter(self._directives[first:])
        upcoming = next(events, None)
        for match in re.compile(r"[{}]").finditer(self.statements, start, end):
            while upcoming is not None and upcoming[0] < match.start():
                if upcoming[1] in {"if", "ifdef", "ifndef"}:
                    saved.append(list(opened))
                elif upcoming[1] in {"elif", "else"} and saved:
                    opened = list(saved[-1])
                elif upcoming[1] == "endif" and saved:
                    saved.pop()
                upcoming = next(events, None)
            if match[0] == "{":
                opened.append(match.start())
            elif opened:
                found.append((opened.pop(), match.start()))
        return sorted([*found, *((position, end) for position in opened)])


def matching(text: str, opening: int) -> int:
    """Position of the bracket that closes the one at `opening`; -1 where there is none."""
    depth = 0
    for position in range(opening, len(text)):
        c = text[position]
        if c in _OPENING:
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return position
    return -1


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
