"""Tokens of a CUDA body as the compiler for NVIDIA devices sees it: one branch of each `#if`, macros expanded.

`DeviceCode` blanks the branches of a file that are not taken and says on which tests that rests; its `tokens` splits
the rest and expands macros. Names that only another vendor's compiler defines are taken as not defined.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.source_text import CSource
from opscope_tools.kernels.records import MacroRef

#: tokens of one body: more is generated text
MOST_TOKENS = 100_000
_DEPTH = 8
#: `#if`s in `#if`s that a flag around a kernel is looked for in
_DEEPEST = 64
#: between tokens that do not follow each other in the file
_UNPLACED = "\0"
_TOKEN = re.compile(
    r"0[xX][0-9a-fA-F'.]+(?:[pP][-+]?\d+[fF]?)?[uUlL]*|0[bB][01']+[uUlL]*|(?:\d[\d']*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?[uUlLfF]*|[A-Za-z_]\w*"
    r"|<<=|>>=|##|\.\.\.|->|::|\+\+|--|<<|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\S"
)
#: what no compiler for NVIDIA devices defines, or no build for use
_ABSENT = re.compile(r"HIP|ROCM|AMD|MUSA|SYCL|_WIN|_MSC|DEBUG|__gfx|GCN|CDNA|RDNA|__INTEL|__MACA|COREX|__clang__")
_PRESENT = re.compile(r"__CUDA_ARCH|__CUDACC|__NVCC__|CUDART_VERSION|CUDA_VERSION|__cplusplus")
_DEFINED = re.compile(r"\bdefined\s*+(?:\(\s*+(\w+)\s*+\)|(\w+))")
#: what a build turns on by a flag, or CUTLASS for the devices that have it
_FEATURE = re.compile(r"(?:ENABLE|HAVE|HAS|WITH)_|CUTLASS_ARCH_\w+_(?:ENABLED|SUPPORTED)$")
#: bodies of macros that are taken from files that are not included: sizes
_SIZE = re.compile(r"[\s()+*/<>\dA-Z_xuUlL-]*")
_ALTERNATIVE = {"and": "&&", "or": "||", "not": "!"}
#: what is taken for the device and its compiler, where a test asks
_VERSIONS = {
    "__CUDA_ARCH__": 900,
    "CUDART_VERSION": 12080,
    "CUDA_VERSION": 12080,
    "__CUDACC_VER_MAJOR__": 12,
    "__cplusplus": 201703,
}


class TooLongError(Exception):
    """A body, or what its macros expand to, that is longer than `MOST_TOKENS`."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word, number or operator; `position` is in the file (of what a macro expands to: where the macro stands)."""

    text: str
    position: int
    #: of what a macro without parameters stands for: its name at the first token, '' at the others
    written: str | None = None
    #: of what a macro's own text gives: its name, and which of its tokens it is
    origin: tuple[str, int] | None = None

    @property
    def shown(self) -> str:
        """As it is written in the file, not as a macro expands it."""
        return self.text if self.written is None else self.written


def _wraps(macro: MacroRef) -> bool:
    """Whether it stands around a function of the language that it names itself, to log its calls, say: that is what is called."""
    return macro.name.startswith("__") and re.search(rf"\b{macro.name}\s*\(", macro.body) is not None


class DeviceCode:
    """One file; `shared` are macros of the repository, `headers` gives the files that it includes.

    `capability` is what `__CUDA_ARCH__` gives, 0 where none is asked for; the branches of flags that hold the position
    `wanted` are taken.
    """

    #: macros in macros that are expanded
    deepest = _DEPTH

    def __init__(
        self, source: CSource, shared: Mapping[str, MacroRef], headers: Callable[[], Iterable[DeviceCode]],
        capability: int = 0, wanted: int = -1,
    ) -> None:  # fmt: skip
        self.source, self._headers, self._asked = source, headers, bool(capability)
        self._versions = _VERSIONS | ({"__CUDA_ARCH__": capability} if capability else {})
        self._wanted = _branches_around(source, wanted) if wanted >= 0 else {}
        self._shared = {n: m for n, m in shared.items() if m.parameters is not None or _SIZE.fullmatch(m.body)}
        own: dict[str, tuple[int, MacroRef]] = {}
        for (place, _), macro in zip(source.defines, source.macros, strict=True):
            own.setdefault(macro.name, (place, macro))
        #: stretch that each uncertain test decides over, and what is taken for granted there
        self._tests: list[tuple[int, int, str]] = []
        #: stretches that no taken branch holds, in order
        self._left_out: list[tuple[int, int]] = []
        self._branches(own)
        starts = [a for a, _ in self._left_out]
        #: macros that the file itself defines
        self.own: dict[str, MacroRef] = {}
        #: those that it defines anew, so that what they stand for depends on the line
        self._changing: set[str] = set()
        for (place, _), macro in zip(source.defines, source.macros, strict=True):
            index = bisect_right(starts, place) - 1
            if index < 0 or place >= self._left_out[index][1]:
                old = self.own.setdefault(macro.name, macro)
                if (old.parameters, old.body) != (macro.parameters, macro.body):
                    self._changing.add(macro.name)
        for name in self._changing:
            del self.own[name]
        self._bodies: dict[str, list[str]] = {}

    @cached_property
    def macros(self) -> dict[str, MacroRef]:
        """Every macro that the file sees: its own before those of its headers, and these before the repository's."""
        found: dict[str, MacroRef] = dict(self._shared)
        for header in reversed(list(self._headers())):
            found |= header.own
        seen = {n: m for n, m in (found | self.own).items() if n not in self._changing and not _wraps(m)}
        return self.expanded(seen)

    def expanded(self, macros: dict[str, MacroRef]) -> dict[str, MacroRef]:
        """Those macros that are expanded: all."""
        return macros

    @cached_property
    def types_written(self) -> frozenset[str]:
        """Names that structures, classes and unions of the file may have."""
        text = self.source.statements
        heads = re.findall(r"\b(?:struct|class|union)\b((?:[^;{}()=]|\([^()]*+\))*+)", text)
        return frozenset(re.findall(r"[A-Za-z_]\w*", " ".join(heads))) | frozenset(
            re.findall(r"\}\s*+(\w+)\s*+;", text)
        )

    def _branches(self, macros: Mapping[str, tuple[int, MacroRef]]) -> None:
        #: of each open `#if`: whether the code around it counts, whether a branch was taken, whether this one counts
        open_: list[tuple[bool, bool, bool]] = []
        begun: list[list[int]] = []  # of each open `#if`: the places of its own tests
        done = 0
        for place, word, written, end in self.source.conditionals:
            if open_ and not open_[-1][2]:
                self._left_out.append((done, place))
            done = place
            around, taken, _ = (True, False, True) if not open_ else open_[-1]
            if word in {"if", "ifdef", "ifndef"}:
                around = not open_ or open_[-1][2]
                begun.append([])
                known = len(self._tests)
                holds = self._holds(place, word, written, macros, around)
                begun[-1] += range(known, len(self._tests))
                open_.append((around, holds, around and holds))
            elif open_ and word.startswith("elif"):
                known = len(self._tests)
                holds = not taken and self._holds(place, word[2:], written, macros, around)
                begun[-1] += range(known, len(self._tests))
                open_[-1] = (around, taken or holds, around and holds)
            elif open_ and word == "else":
                open_[-1] = (around, True, around and not taken)
            elif open_:
                open_.pop()
                for index in begun.pop():
                    a, _, text = self._tests[index]
                    self._tests[index] = a, end, text
        if open_ and not open_[-1][2]:
            self._left_out.append((done, len(self.source.statements)))

    def _holds(
        self, place: int, word: str, written: str, macros: Mapping[str, tuple[int, MacroRef]], counts: bool
    ) -> bool:
        """Whether a test is met; what is neither a number nor a vendor's name is put down among the tests."""
        if word != "if":
            written_ = f"defined({written.split(' ')[0]})"
            holds, certain = self._condition(place, f"!{written_}" if word == "ifndef" else written_, macros)
        else:
            holds, certain = self._condition(place, written, macros)
        if self._wanted.get(place, holds) is not holds:
            holds, certain = not holds, False
        if counts and not certain:
            self._tests.append((place, 0, f"#{word} {written} is {'met' if holds else 'not met'}"))
        return holds

    def _condition(self, place: int, written: str, macros: Mapping[str, tuple[int, MacroRef]]) -> tuple[bool, bool]:
        """(met, certain) of the test of an `#if` at a place."""
        certain = True

        def defined(match: re.Match[str]) -> str:
            nonlocal certain
            name = match[1] or match[2]
            if name in macros:  # a definition that follows is a guard against including twice, or a default
                return f" {int(macros[name][0] < place)} "
            if _ABSENT.search(name) is not None:
                return " 0 "
            known = _PRESENT.search(name) is not None
            certain = certain and known
            known = known or _FEATURE.match(name) is not None
            return f" {int(known or self._of_headers(name) is not None)} "

        def value(name: str) -> int:
            nonlocal certain
            if name in self._versions:
                certain = certain and self._asked and name == "__CUDA_ARCH__"
                return self._versions[name]
            macro = macros[name][1] if name in macros else self._of_headers(name)
            if macro is not None and re.fullmatch(r"\(?\d+\)?", macro.body):
                return int(macro.body.strip("()"))
            certain = certain and _ABSENT.search(name) is not None
            return 0

        plain = re.sub(r"\b(?:and|or|not)\b", lambda m: _ALTERNATIVE[m[0]], written)
        found = formula(_DEFINED.sub(defined, plain), value)
        return (bool(found), certain) if isinstance(found, int) else (False, False)

    def _of_headers(self, name: str) -> MacroRef | None:
        return next((h.own[name] for h in self._headers() if name in h.own), None) or self._shared.get(name)

    def tests_of(self, start: int, end: int) -> list[tuple[int, str]]:
        """What reading a stretch of the file takes for granted: the tests in it, and those that it stands under."""
        return [(a, text) for a, b, text in self._tests if start <= a < end or a < start < b]

    def left_out(self, start: int, end: int) -> bool:
        """Whether a stretch of the file holds code of branches that are not taken."""
        return any(a < end and start < b and self.source.statements[a:b].strip() for a, b in self._left_out)

    def inside(self, start: int) -> bool:
        """Whether a position lies in a branch that is taken."""
        index = bisect_right([a for a, _ in self._left_out], start) - 1
        return index < 0 or start >= self._left_out[index][1]

    def tokens(self, start: int, end: int) -> list[Token]:
        """The tokens of a stretch, macros expanded. Raises `TooLongError`."""
        text, found = self.source.statements, list[Token]()
        position, stretches = start, []
        first = bisect_left([b for _, b in self._left_out], start) if self.inside(start) else len(self._left_out)
        for a, b in self._left_out[first:]:
            if a >= end:
                break
            stretches.append((position, max(a, position)))
            position = max(b, position)
        stretches.append((position, end))
        for a, b in stretches:
            found += [Token(_ALTERNATIVE.get(m[0], m[0]), m.start()) for m in _TOKEN.finditer(text, a, b)]
            if len(found) > MOST_TOKENS:
                raise TooLongError
        return self._expanded(found, frozenset(), self.deepest)

    def _expanded(self, tokens: list[Token], active: frozenset[str], depth: int) -> list[Token]:
        if not any(t.text not in active and t.text in self.macros for t in tokens):
            return tokens
        if not depth:
            raise TooLongError  # macros in macros: what they compute would be lost
        made: list[Token] = []
        index = 0
        while index < len(tokens):
            token = tokens[index]
            index += 1
            macro = self.macros.get(token.text) if token.text not in active else None
            arguments: list[list[Token]] = []
            if macro is not None and macro.parameters is not None:
                closing = _closing(tokens, index)
                if closing < 0:
                    macro = None
                else:
                    arguments = [self._expanded(a, active, depth) for a in _arguments(tokens[index + 1 : closing])]
                    index = closing + 1
            if macro is None:
                made.append(token)
            else:
                body = self._body(macro, token.position, arguments)
                closing = _closing(tokens, index) if body and body[-1].text in self.macros else -1
                if closing >= 0:  # a macro that stands for the name of another: what follows are its arguments
                    body += tokens[index : closing + 1]
                    index = closing + 1
                body = self._expanded(body, active | {macro.name}, depth - 1)
                if macro.parameters is None and closing < 0:
                    body = [Token(t.text, t.position, "" if i else token.shown, t.origin) for i, t in enumerate(body)]
                made += body
            if len(made) > MOST_TOKENS:
                raise TooLongError
        return made

    def _body(self, macro: MacroRef, position: int, arguments: list[list[Token]]) -> list[Token]:
        if macro.name not in self._bodies:
            self._bodies[macro.name] = _TOKEN.findall(macro.body)
        given = dict(zip(macro.parameters or (), arguments, strict=False))
        if macro.parameters and macro.parameters[-1] == "..." and len(arguments) >= len(macro.parameters):
            rest = arguments[len(macro.parameters) - 1 :]
            given["__VA_ARGS__"] = [t for one in rest for t in (*one, Token(",", position))][:-1]
        made: list[Token] = []
        pastes = False
        for index, word in enumerate(self._bodies[macro.name]):
            if word == "##":
                pastes = bool(made)
                continue
            added = given[word] if word in given else [Token(word, position, origin=(macro.name, index))]
            if pastes and added:
                added = [Token(made.pop().text + added[0].text, position), *added[1:]]
            made += added
            pastes = False
        return made


def _branches_around(source: CSource, wanted: int) -> dict[int, bool]:
    """Which tests of `#if`s around a position must hold, and which not, for it to be compiled; by their places."""
    found: dict[int, bool] = {}
    open_: list[list[int]] = []
    for place, word, _, _ in source.conditionals:
        if word in {"if", "ifdef", "ifndef"}:
            open_.append([place])
        elif open_ and word != "endif":
            open_[-1].append(place)
        elif open_:
            branches = [*open_.pop(), place]
            if branches[0] < wanted < branches[-1] and len(open_) < _DEEPEST:
                found |= {a: a < wanted < b for a, b in pairwise(branches)}
    return found


def joined(tokens: Sequence[Token], start: int, end: int) -> str:
    """Tokens of a range as one line: spaced as in the file, those of macros as one would write them."""
    made: list[str] = []
    before: Token | None = None
    for index in range(start, end):
        token = tokens[index]
        if token.written == "" and index > start:
            continue
        if before is not None:
            after = before.position + len(before.shown)
            made.append(" " if token.position > after else "" if token.position == after else _UNPLACED)
        made.append(token.shown or token.text)
        before = token
    text = "".join(made)
    return tidied(text.replace(_UNPLACED, " ")) if _UNPLACED in text else text


def tidied(text: str) -> str:
    """Tokens that are joined by blanks without those that nobody writes."""
    shown = re.sub(r"(\w|[])>]) ?(\.|->|::|\[|\() ?", r"\1\2", text)
    return re.sub(r"(?<=[(\[!:]) | (?=[)\],;.:])|(?<=->) | (?=->)", "", shown)


def words(text: str) -> list[str]:
    """The tokens of a text that is no part of a file."""
    return _TOKEN.findall(text)


def _closing(tokens: list[Token], opening: int) -> int:
    """Index of the parenthesis that closes the one at `opening`; -1 where none stands there."""
    if opening >= len(tokens) or tokens[opening].text != "(":
        return -1
    depth = 0
    for index in range(opening, len(tokens)):
        depth += (tokens[index].text in "([{") - (tokens[index].text in ")]}")
        if depth == 0:
            return index
    return -1


def _arguments(tokens: list[Token]) -> list[list[Token]]:
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in "([{") - (token.text in ")]}")
        if token.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
