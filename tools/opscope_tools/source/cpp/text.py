"""A C++ file made ready for reading: comments, literals and preprocessor lines blanked, every position kept.

`CppText` holds the original (`text`) and the blanked `code`, which have the same length, the preprocessor conditionals
with the condition that holds after each, the macros, and for every `{` the position of its `}`. The branches of one
`#if` are alternatives: each starts from the braces that were open before the `#if`, and what follows the `#endif` goes
on from the first live branch, so that a brace in every branch counts once.
"""

from __future__ import annotations

import bisect
import itertools
import re
from typing import NamedTuple

# every alternative begins with a literal: such a pattern is searched several times faster
_NOISE = re.compile(
    r"//[^\n]*(?:(?<=\\)\n[^\n]*|(?<=\\\r)\n[^\n]*)*"
    r"|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/|/\*.*\Z"
    r'|R(?<![A-KM-TV-Za-tv-z_0-79]R)"([^\s()\\]{0,16})\((?:.*?\)\1"|.*\Z)'
    r'|"[^"\\\n]*(?:\\(?:\r\n|.)[^"\\\n]*)*"'
    r"|'(?<![0-9a-fA-F]')[^'\\\n]*(?:\\.[^'\\\n]*)*'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(r"#[ \t]*([a-z]+)([^\n]*(?:(?:(?<=\\)|(?<=\\\r))\n[^\n]*)*)")
#: the end of a line inside a comment or literal, which ends no directive
_INNER_NEWLINE = "\x1d"
_MACRO_TEXT = 600  # characters kept of a macro
_DEEPEST = 256  # conditionals inside one another; a compiler need not take more
_WAYS = 4  # branches of one conditional inside a declaration that are followed
_LITERAL = re.compile(r"\"[^\"]*\"|'[^']*'")
_BRACE = re.compile(r"[{}]")
_CONDITIONALS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"})
_MACRO = re.compile(r"\s*(\w+)")


class Event(NamedTuple):
    """A conditional line: `open` (#if), `next` (#elif, #else) or `close`; `condition` holds from here on, and `dead`
    says that nothing up to the next event of this conditional is ever compiled (`#if 0`)."""

    position: int
    what: str
    condition: str
    dead: bool = False


class Macro(NamedTuple):
    """A `#define`; `text` is what stands behind the macro's name, the parameters first."""

    start: int
    end: int
    name: str
    text: str


def decoded(source: bytes) -> str:
    """One character per byte, so that columns hold; UTF-16 is recoded, a lone carriage return is a line's end."""
    if source[:2] in (b"\xff\xfe", b"\xfe\xff"):
        source = source.decode("utf-16", "replace").encode()
    if b"\r" in source and b"\n" not in source:
        source = source.replace(b"\r", b"\n")
    if source[:3] == b"\xef\xbb\xbf":
        source = b"   " + source[3:]
    return source.decode("latin-1")


def readable(text: str) -> str:
    """Text as it reads: on one line, as UTF-8."""
    if not text.isascii():
        text = text.encode("latin-1").decode("utf-8", "replace")
    return " ".join(text.replace("\\\n", " ").split())


def spaces(text: str, newline: str = "\n") -> str:
    """Spaces of the same length, in as many lines."""
    if "\n" not in text:
        return " " * len(text)
    return newline.join([" " * len(line) for line in text.split("\n")])


def _blank(match: re.Match[str]) -> str:
    found = match[0]
    if found[0] == "R":
        return f' "{spaces(found[2:-1], _INNER_NEWLINE)}"'
    if found[0] in "\"'":
        return f"{found[0]}{spaces(found[1:-1], _INNER_NEWLINE)}{found[0]}"
    return spaces(found, _INNER_NEWLINE)


class CppText:
    """One file."""

    def __init__(self, source: bytes) -> None:
        self.text = decoded(source)
        self.code = _NOISE.sub(_blank, self.text.replace(_INNER_NEWLINE, " "))
        self.events: list[Event] = []
        self.macros: list[Macro] = []
        self._read_directives()
        self.code = self.code.replace(_INNER_NEWLINE, "\n")
        if "\\" in self.code:
            self.code = self.code.replace("\\", " ")
        self._lines = [m.end() for m in re.finditer(r"\n", self.code)]
        self._event_positions = [event.position for event in self.events]
        #: position of `{` -> position of its `}`
        self.closing: dict[int, int] = {}
        self._match_braces()

    def line(self, position: int) -> int:
        """1-based line of a position."""
        return bisect.bisect_right(self._lines, position) + 1

    def condition(self, position: int) -> str:
        """The preprocessor conditions that a position stands under."""
        index = bisect.bisect_right(self._event_positions, position) - 1
        return self.events[index].condition if index >= 0 else ""

    def next_event(self, position: int) -> int:
        """Index of the first conditional at or behind a position."""
        return bisect.bisect_left(self._event_positions, position)

    def original(self, start: int, end: int) -> str:
        """The text of a range on one line, comments and preprocessor lines left out, literals kept."""
        code = self.code[start:end]
        if '"' in code or "'" in code:
            code = _LITERAL.sub(lambda m: self.text[start + m.start() : start + m.end()], code)
        return readable(code)

    def resumption(self, opening: int) -> int:
        """Where reading goes on behind the block that opens at a position: at its end, or at the `#else` before it
        where the block opens in one branch of a conditional and ends behind another."""
        end = self.closing.get(opening, len(self.code))
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

    def _read_directives(self) -> None:
        code = self.code
        if "#" not in code:
            return
        parts: list[str] = []
        lines: list[tuple[int, str, str]] = []
        at = 0
        for match in _DIRECTIVE.finditer(code):
            start, end = match.span()
            if code[code.rfind("\n", 0, start) + 1 : start].strip():
                continue
            word = match[1]
            if word in _CONDITIONALS:
                lines.append((start, word, readable(match[2])))
            elif word == "define":
                macro = _MACRO.match(match[2])
                if macro is not None:
                    text = readable(match[2][macro.end() : macro.end() + _MACRO_TEXT])
                    self.macros.append(Macro(start, end, macro[1], text))
            parts += (code[at:start], spaces(match[0].replace(_INNER_NEWLINE, "\n")))
            at = end
        parts.append(code[at:])
        self.code = "".join(parts)
        self.events = _conditions(lines, self._guards(lines))
        self._blank_dead()

    def _guards(self, lines: list[tuple[int, str, str]]) -> set[int]:
        """Positions of the `#ifndef X` that an empty `#define X` follows: guards, which are no conditions."""
        found = set()
        macros = iter(self.macros)
        macro = next(macros, None)
        for number, (position, word, text) in enumerate(lines):
            while macro is not None and macro.start < position:
                macro = next(macros, None)
            behind = lines[number + 1][0] if number + 1 < len(lines) else len(self.code)
            if (
                word == "ifndef"
                and macro is not None
                and macro.start < behind
                and (macro.name, macro.text) == (text, "")
            ):
                found.add(position)
        return found

    def _blank_dead(self) -> None:
        """Blank what `#if 0` leaves out."""
        since = -1
        for event in self.events:
            if event.dead and since < 0:
                since = event.position
            elif since >= 0 and not event.dead:
                self.code = self.code[:since] + spaces(self.code[since : event.position]) + self.code[event.position :]
                since = -1

    def _match_braces(self) -> None:
        """Fill `closing`; a `{` that nothing closes ends with the file."""
        code, closing = self.code, self.closing
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


def _conditions(lines: list[tuple[int, str, str]], guards: set[int]) -> list[Event]:
    """Conditional lines (position, word, text) as events; an `#else` or `#endif` of nothing is dropped."""
    found: list[Event] = []
    stack: list[list[str]] = []  # of each conditional: the conditions of its branches so far
    too_deep = 0
    for position, word, text in lines:
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
