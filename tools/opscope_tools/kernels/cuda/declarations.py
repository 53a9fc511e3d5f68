"""Constants, tables and aliases as C++ declares them (`static constexpr int M = 3, N{4};`, `using T = half;`): their one reader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from opscope_tools.kernels.cuda.source_text import CSource, matching, split_arguments, squeeze

#: characters of a declaration that are read
_LONGEST = 8000
_QUALIFIERS = frozenset(
    "static inline extern const constexpr constinit volatile __constant__ __device__ __host__ __shared__".split()
)
_HEAD = re.compile(
    r"\b((?:(?:static|inline|extern)\s++)*+(?:const|constexpr|__constant__|__device__)\b\s*+(?:[\w:]++\s++)*)(\w++)\s*+(?=[\[={])"
)
_FURTHER = re.compile(r",\s*+([*&]?)\s*+(\w++)\s*+(?=[\[={])")
_STOP = re.compile(r"[()\[\]{};,]")
_BLANK = re.compile(r"\s*+")
_ALIAS = re.compile(r"\busing\s++(\w++)\s*+=\s*+([^;]+);")
#: what stands between the parameters of a function and its body
_BEHIND_PARAMETERS = frozenset({"noexcept", "override", "final", "volatile"})


@dataclass(frozen=True)
class Declared:
    """One name of a declaration."""

    name: str
    #: what stands before the names: storage, qualifiers and type
    words: str
    #: behind the name: `=`, `{` or, of a table, `[`
    sign: str
    #: its initialiser, on one line; of a table all that stands behind its name
    text: str
    #: of the declaration, of the name, and where its initialiser ends
    start: int
    position: int
    end: int

    @cached_property
    def qualifiers(self) -> frozenset[str]:
        """Of `words`, those that are no type."""
        return _QUALIFIERS.intersection(self.words.split())

    @cached_property
    def type(self) -> str:
        """Of `words`, the type."""
        return " ".join(word for word in self.words.split() if word not in _QUALIFIERS)

    @property
    def constant(self) -> bool:
        """Whether it is constant and one value, no table."""
        return self.sign != "[" and bool(self.text) and bool(self.qualifiers & {"const", "constexpr"})

    @property
    def plain(self) -> bool:
        """Whether it is such a constant and its initialiser one expression, no list of others."""
        return self.constant and not re.search(r"[{}]", self.text)


def constants(source: CSource) -> list[Declared]:
    """Constants and tables of a file, of its classes and functions, in order."""
    return source.table("constants", lambda: list(_declared(source.statements)))


def constants_named(source: CSource, name: str) -> list[Declared]:
    """Those of one name."""
    return source.table("constants by name", lambda: _by_name(constants(source))).get(name, [])


def aliases(source: CSource) -> list[Declared]:
    """What `using` names, in order; `text` is what it stands for."""

    def made() -> list[Declared]:
        found = _ALIAS.finditer(source.statements)
        return [Declared(m[1], "using", "=", squeeze(m[2]), m.start(), m.start(1), m.end()) for m in found]

    return source.table("aliases", made)


def aliases_named(source: CSource, name: str) -> list[Declared]:
    """Those of one name."""
    return source.table("aliases by name", lambda: _by_name(aliases(source))).get(name, [])


def _by_name(declared: list[Declared]) -> dict[str, list[Declared]]:
    table: dict[str, list[Declared]] = {}
    for one in declared:
        table.setdefault(one.name, []).append(one)
    return table


def _declared(code: str) -> Iterator[Declared]:
    for head in _HEAD.finditer(code):
        name, position, at, pointer = head[2], head.start(2), head.end(), ""
        while name not in _BEHIND_PARAMETERS:
            text, end = _initialiser(code, at)
            if not pointer:
                yield Declared(name, head[1], code[at], squeeze(text), head.start(), position, end)
            further = _FURTHER.match(code, end)
            if further is None:
                break
            pointer, name, position, at = further[1], further[2], further.start(2), further.end()


def _initialiser(code: str, at: int) -> tuple[str, int]:
    """What stands behind a name, and where it ends: at the comma before the next name, or what ends the declaration."""
    if code[at] == "{":
        closing = matching(code, at, at + _LONGEST)
        behind = _BLANK.match(code, closing + 1)
        return (code[at + 1 : closing], behind.end()) if closing > 0 and behind is not None else ("", at)
    depth, end = 0, at
    for stop in _STOP.finditer(code, at, at + _LONGEST):
        end = stop.start()
        if stop[0] in "([{":
            depth += 1
        elif stop[0] in ")]}":
            if not depth:
                break
            depth -= 1
        elif not depth and (stop[0] == ";" or _FURTHER.match(code, end)):
            break
    text = code[at + (code[at] == "=") : end]
    if code[end : end + 1] == ")":  # the default of a parameter
        text = next(iter(split_arguments(text)), text)
    return text, end
