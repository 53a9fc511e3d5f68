"""A C++ or CUDA file made ready for reading: comments, literals and preprocessor lines blanked, every position kept.

`CppText` holds three texts of the same length: the `original`, the `code` without comments and literals, and the
`statements`, without preprocessor lines too. Beside them stand the tables of conditionals, macros and included files,
the condition that holds after each conditional, and for every `{` the position of its `}`. The branches of one `#if`
are alternatives: each starts from the braces that were open before the `#if`, and what follows the `#endif` goes on
from the first live branch, so that a brace in every branch counts once.
"""

from __future__ import annotations

import bisect
import itertools
import re
from functools import cached_property
from typing import NamedTuple

# every alternative begins with a literal: such a pattern is searched several times faster
_NOISE = re.compile(
    r"//[^\n]*(?:(?<=\\)\n[^\n]*|(?<=\\\r)\n[^\n]*)*"
    r"|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|/\*.*\Z"
    r'|R(?<![A-KM-TV-Za-tv-z_0-79]R)"([^\s()\\]{0,16})\((?:.*?\)\1"|.*\Z)'
    r'|"[^"\\\n]*(?:\\(?:\r\n|.)[^"\\\n]*)*"'
    r"|'(?:(?<![0-9a-fA-F]')|(?<=\bu8'))[^'\\\n]*(?:\\.[^'\\\n]*)*'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"#[ \t]*(\w*)([^\n]*(?:(?:(?<=\\)|(?<=\\\r))\n[^\n]*)*)")
#: the end of a line inside a comment or literal, which ends no directive
_INNER_NEWLINE = "\x1d"
_DEEPEST = 256  # conditionals inside one another; a compiler need not take more
_WAYS = 4  # branches of one conditional inside a declaration that are followed
_LITERAL = re.compile(r"\"[ \n]*\"|'[ \n]*'")
_BRACE = re.compile(r"[{}]")
_CONDITIONALS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"})
#: tests that are decided by what is written
_DECIDED = frozenset({"0", "1", "false", "true"})
_MACRO = re.compile(r"\s*(\w+)")
_INCLUDE = re.compile(r'[^"<\n]*["<]([^">\n]+)[">]')
_CONTINUED = re.compile(r"\\\r?\n")
#: opening bracket -> it and the one that closes it
_EITHER = {both[0]: re.compile(f"[{re.escape(both)}]") for both in ("()", "[]", "{}")}


class Conditional(NamedTuple):
    """A line of `#if` to `#endif` (`word`) and its test, on one line; `end` is behind it."""

    position: int
    word: str
    text: str
    end: int


class Event(NamedTuple):
    """A conditional line: `open` (#if), `next` (#elif, #else) or `close`; `condition` holds from here on, and `dead`
    says that nothing up to the next event of this conditional is ever compiled (`#if 0`)."""

    position: int
    what: str
    condition: str
    dead: bool = False


class Macro(NamedTuple):
    """A `#define`; `body` is what stands behind the macro's name, the parameters first, its lines still apart."""

    start: int
    end: int
    name: str
    body: str


def decoded(source: bytes) -> str:
    """A file's bytes as text, UTF-8 unless marked as UTF-16; where no line ends otherwise, a carriage return ends it."""
    if source[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = source.decode("utf-16", "replace")
    else:
        text = source.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return text.replace("\r", "\n") if "\r" in text and "\n" not in text else text


def readable(text: str) -> str:
    """Text on one line."""
    if "\\" in text:
        text = joined(text, " ")
    return " ".join(text.split())


def joined(text: str, by: str = "\n") -> str:
    """Text whose lines no longer end in a backslash."""
    return _CONTINUED.sub(by, text)


def spaces(text: str, newline: str = "\n") -> str:
    """Spaces of the same length, in as many lines."""
    if "\n" not in text:
        return " " * len(text)
    return newline.join([" " * len(line) for line in text.split("\n")])


def matching(text: str, opening: int, stop: int | None = None) -> int:
    """Position of the bracket that closes the one at `opening`, those of its kind counted; -1 where there is none."""
    bracket = text[opening : opening + 1]
    if bracket not in _EITHER:
        return -1
    depth = 0
    for match in _EITHER[bracket].finditer(text, opening, len(text) if stop is None else stop):
        depth += 1 if match[0] == bracket else -1
        if depth == 0:
            return match.start()
    return -1


def _begins_line(code: str, end: int) -> bool:
    """Whether only blanks stand before a position on its line; one that ends in a backslash goes on with the next."""
    while True:
        begin = code.rfind("\n", 0, end) + 1
        if code[begin:end].strip():
            return False
        end = begin - 1  # the line before, without its end
        if code[end - 1 : end] == "\r":
            end -= 1
        if end < 1 or code[end - 1] != "\\":
            return True
        end -= 1


def without_quotes(text: str) -> str:
    """Blanked text whose literals leave nothing, not even their quotes."""
    return _LITERAL.sub(lambda match: spaces(match[0]), text)


class CppText:
    """One file; of its literals the quotes stay in the blanked texts."""

    def __init__(self, text: str) -> None:
        self.original = text
        #: (position, text) of raw strings
        self.raw_strings: list[tuple[int, str]] = []
        #: (position, word, text) of preprocessor lines
        self._directives: list[tuple[int, str, str]] = []
        self.conditionals: list[Conditional] = []
        #: every `#define`, those in dead code too
        self.defined: list[Macro] = []
        statements = self._read_directives(_NOISE.sub(self._blank, text.replace(_INNER_NEWLINE, " ")))
        #: stretches that `#if 0` leaves out
        self.dead = self._dead()
        #: the text without comments, literals and preprocessor lines
        self.statements = _without(statements, self.dead).replace("\\", " ")

    @cached_property
    def code(self) -> str:
        """The text without comments and literals; preprocessor lines stand, but for those in dead code."""
        parts: list[str] = []
        at = 0
        for start, _, line in self._directives:
            if not self.is_dead(start):
                parts += (self.statements[at:start], line)
                at = start + len(line)
        return "".join([*parts, self.statements[at:]]).replace(_INNER_NEWLINE, "\n")

    @cached_property
    def includes(self) -> list[str]:
        """Names of the files that it includes, as written."""
        lines = [start for start, word, _ in self._directives if word == "include"]
        return [named[1] for start in lines if (named := _INCLUDE.match(self.original, start)) is not None]

    def line(self, position: int) -> int:
        """1-based line of a position."""
        return bisect.bisect_right(self._lines, position) + 1

    @cached_property
    def _lines(self) -> list[int]:
        return [m.end() for m in re.finditer(r"\n", self.original)]

    @cached_property
    def _event_positions(self) -> list[int]:
        return [event.position for event in self.events]

    def condition(self, position: int) -> str:
        """The preprocessor conditions that a position stands under."""
        index = bisect.bisect_right(self._event_positions, position) - 1
        return self.events[index].condition if index >= 0 else ""

    def is_dead(self, position: int) -> bool:
        """Whether a position lies in what `#if 0` leaves out."""
        index = bisect.bisect_right(self.dead, (position, len(self.original))) - 1
        return index >= 0 and position < self.dead[index][1]

    def next_event(self, position: int) -> int:
        """Index of the first conditional at or behind a position."""
        return bisect.bisect_left(self._event_positions, position)

    def written(self, start: int, end: int) -> str:
        """The text of a range on one line, comments and preprocessor lines left out, literals kept."""
        code = self.statements[start:end]
        if '"' in code or "'" in code:
            code = _LITERAL.sub(lambda m: self.original[start + m.start() : start + m.end()], code)
        return readable(code)

    def resumption(self, opening: int) -> int:
        """Where reading goes on behind the block that opens at a position: at its end, or at the `#else` before it
        where the block opens in one branch of a conditional and ends behind another."""
        end = self.closing.get(opening, len(self.statements))
        depth = 0
        for event in self.events[self.next_event(opening) : self.next_event(end)]:
            if event.what == "open":
                depth += 1
            elif event.what == "close":
                depth -= 1
                if depth < 0:
                    break
            elif depth == 0:
                return event.position
        return end + 1

    def variants(self, start: int, end: int) -> list[list[tuple[int, int]]]:
        """What to leave out of a range that alternatives of conditionals stand in, one list of ranges for each way
        through: the first branch of every conditional, then the second (the last where there are fewer)."""
        events = self.events[self.next_event(start) : self.next_event(end)]
        if not any(event.what == "next" for event in events):
            return []
        branches: list[list[int]] = []  # positions that bound the branches of each outermost conditional
        depth, opened = 0, [start]
        for event in events:
            depth += event.what == "open"
            if event.what == "open" and depth == 1:
                opened = [event.position]
            elif event.what == "next" and depth <= 1:
                opened.append(event.position)
            elif event.what == "close" and depth <= 1:
                branches.append([*opened, event.position])
                opened = [event.position]
            depth = max(0, depth - (event.what == "close"))
        if len(opened) > 1:
            branches.append([*opened, end])
        return [
            [
                (a, b)
                for bounds in branches
                for number, (a, b) in enumerate(itertools.pairwise(bounds))
                if number != min(way, len(bounds) - 2)
            ]
            for way in range(min(_WAYS, max((len(bounds) - 1 for bounds in branches), default=0)))
        ]

    # reading

    def _blank(self, match: re.Match[str]) -> str:
        """What stands in place of a comment or literal."""
        found = match[0]
        sign = found[0]
        if sign == "/":
            return spaces(found, _INNER_NEWLINE)
        if sign == "R":
            self.raw_strings.append((match.start(), self.original[match.start() : match.end()]))
            return f' "{spaces(found[2:-1], _INNER_NEWLINE)}"'
        return f"{sign}{spaces(found[1:-1], _INNER_NEWLINE)}{sign}"

    def _read_directives(self, code: str) -> str:
        """Fill the tables; gives the code without preprocessor lines."""
        if "#" not in code:
            return code
        parts: list[str] = []
        at = 0
        for match in _DIRECTIVE.finditer(code):
            start, end = match.span()
            if not _begins_line(code, start):
                continue
            word = match[1]
            if word in _CONDITIONALS:
                self.conditionals.append(Conditional(start, word, readable(match[2]), end))
            elif word == "define":
                macro = _MACRO.match(match[2])
                if macro is not None:
                    body = match[2][macro.end() :].replace(_INNER_NEWLINE, "\n")
                    self.defined.append(Macro(start, end, macro[1], body))
            self._directives.append((start, word, match[0]))
            parts += (code[at:start], spaces(match[0].replace(_INNER_NEWLINE, "\n")))
            at = end
        return "".join([*parts, code[at:]])

    @cached_property
    def events(self) -> list[Event]:
        """The conditionals that belong to an `#if`, each with the condition that holds behind it."""
        return _conditions(self.conditionals, self._guards())

    def _guards(self) -> set[int]:
        """Positions of the `#ifndef X` that an empty `#define X` follows: guards, which are no conditions."""
        found = set()
        macros = iter(self.defined)
        macro = next(macros, None)
        bounds = [*(line.position for line in self.conditionals), len(self.original)]
        for line, behind in zip(self.conditionals, bounds[1:], strict=True):
            while macro is not None and macro.start < line.position:
                macro = next(macros, None)
            if line.word != "ifndef" or macro is None or macro.start >= behind:
                continue
            if macro.name == line.text and not readable(macro.body):
                found.add(line.position)
        return found

    def _dead(self) -> list[tuple[int, int]]:
        """Stretches that `#if 0` leaves out."""
        if not any(line.text in _DECIDED for line in self.conditionals):
            return []
        found: list[tuple[int, int]] = []
        since = -1
        for event in self.events:
            if event.dead and since < 0:
                since = event.position
            elif since >= 0 and not event.dead:
                found.append((since, event.position))
                since = -1
        return found

    @cached_property
    def closing(self) -> dict[int, int]:
        """Position of every `{` -> position of its `}`, or the file's end where nothing closes it."""
        code, closing = self.statements, dict[int, int]()
        stack: list[int] = []
        saved: list[tuple[list[int], list[list[int]]]] = []  # before the #if; after each branch
        same: list[tuple[int, int]] = []  # braces of other branches, and the one of the first that they stand beside
        at, dead = 0, False
        for event in [*self.events, Event(len(code), "", "")]:
            for match in _BRACE.finditer(code, at, event.position):
                if match[0] == "{":
                    stack.append(match.start())
                elif stack:
                    closing[stack.pop()] = match.start()
            at, dead, was = event.position, event.dead, dead
            if event.what == "open":
                saved.append((stack.copy(), []))
            elif event.what and saved:
                before, after = saved[-1]
                if not was:
                    after.append(stack)
                stack = before.copy()
                if event.what == "close":
                    saved.pop()
                    stack = after[0] if after else before
                    same += [
                        (other, one)
                        for branch in after[1:]
                        if len(branch) == len(stack)
                        for other, one in zip(branch, stack, strict=True)
                        if other != one
                    ]
        end = len(code)
        for position in stack:
            closing.setdefault(position, end)
        for other, one in reversed(same):
            closing[other] = closing.get(one, end)
        return closing


def _without(text: str, left_out: list[tuple[int, int]]) -> str:
    """Blanked text with stretches of it blanked too, its lines ending in newlines again."""
    text = text.replace(_INNER_NEWLINE, "\n")
    if not left_out:
        return text
    parts: list[str] = []
    at = 0
    for start, end in left_out:
        parts += (text[at:start], spaces(text[start:end]))
        at = end
    return "".join([*parts, text[at:]])


def _conditions(lines: list[Conditional], guards: set[int]) -> list[Event]:
    """Conditional lines as events; an `#else` or `#endif` of nothing is dropped."""
    found: list[Event] = []
    stack: list[list[str]] = []  # of each conditional: the conditions of its branches so far
    too_deep = 0
    for position, word, text, _ in lines:
        if word in {"if", "ifdef", "ifndef"}:
            if len(stack) == _DEEPEST:
                too_deep += 1
                continue
            stack.append(["" if position in guards else _condition(word, text)])
            what = "open"
        elif too_deep:
            too_deep -= word == "endif"
            continue
        elif not stack:
            continue
        elif word == "endif":
            stack.pop()
            what = "close"
        else:
            stack[-1].append(_condition(word.removeprefix("el"), text) if word != "else" else "")
            what = "next"
        parts = [part for branches in stack for part in (*map(_negated, branches[:-1]), branches[-1])]
        dead = any(_dead(branches) for branches in stack)
        found.append(Event(position, what, " && ".join(part for part in parts if part), dead))
    return found


def _dead(branches: list[str]) -> bool:
    return branches[-1] in {"0", "false"} or any(branch in {"1", "true"} for branch in branches[:-1])


def _condition(word: str, text: str) -> str:
    if word == "ifdef":
        return f"defined({text})"
    if word == "ifndef":
        return f"!defined({text})"
    return f"({text})" if "||" in text else text


def _negated(condition: str) -> str:
    plain = re.fullmatch(r"!?\w+(?:\(\w*\))?", condition)
    if plain is not None:
        return condition[1:] if condition[0] == "!" else f"!{condition}"
    return f"!({condition})" if condition else ""
