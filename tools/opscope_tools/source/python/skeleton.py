"""A Python source without its function bodies, for reading definitions at a third of the price of a whole parse.

A body becomes blank lines and a `0` on its last line, so that every other line keeps its number. It is left alone
where blanking might hide something: a class defined inside it, a `raise NotImplementedError`, an unpaired triple quote
(the first dedented line may then stand inside a string), tabs. Whoever parses the skeleton and meets an error parses the
source itself.
"""

from __future__ import annotations

import re
from functools import cache

#: patterns that begin with a literal are searched many times faster than those that begin with `^`
_DEF = re.compile(rb"def[ ]+\w+[ ]*(?=[\[(])")
_HEADER = re.compile(
    rb"#[^\n]*|\"\"\".*?\"\"\"|'''.*?'''|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|\\\n|[()\[\]{}:\n]", re.DOTALL
)
#: what makes a header's line more than brackets and names
_UNCLEAR = re.compile(rb"[#'\"{]")
_REST_OF_LINE = re.compile(rb"[ \t]*(?:#[^\n]*)?\r?\n")
_CLASS = re.compile(rb"(?:^|\n)[ ]*class[ \\]")


def skeleton(source: bytes) -> bytes:
    """`source` with the same line numbers, its function bodies blanked where that hides no definition."""
    if b"\f" in source:  # Python takes a form feed for the start of a line's indentation
        return source
    pieces: list[bytes] = []
    done = at = 0
    while (match := _DEF.search(source, at)) is not None:
        at = match.end()
        before = source[source.rfind(b"\n", 0, match.start()) + 1 : match.start()]
        start = _body_start(source, at) if before.strip(b" ") in (b"", b"async") else None
        if start is None:
            continue
        at = start
        indent = len(before) - len(before.lstrip(b" "))
        dedented = _dedent(indent).search(source, start - 1)
        end = dedented.start() + 1 if dedented is not None else len(source)
        blank = _blanked(source[start:end], indent)
        if blank is not None and (dedented is None or source[dedented.end() - 1] not in b")]}"):
            pieces += source[done:start], blank
            done = at = end
    pieces.append(source[done:])
    return b"".join(pieces)


def _body_start(source: bytes, at: int) -> int | None:
    """Where the line after the header begins; None where the body stands on the header's own line."""
    end = source.find(b"\n", at)
    line = source[at:end]
    if line.endswith(b":") and not _UNCLEAR.search(line) and line.count(b"(") == line.count(b")"):
        return end + 1  # most headers
    depth = 0
    for token in _HEADER.finditer(source, at):
        sign = token[0]
        if sign in b"([{":
            depth += 1
        elif sign in b")]}":
            depth -= 1
        elif sign == b"\n" and depth == 0:  # no header after all, but prose
            return None
        elif sign == b":" and depth == 0:
            rest = _REST_OF_LINE.match(source, token.end())
            return rest.end() if rest is not None else None
        if depth < 0:
            return None
    return None


@cache
def _dedent(indent: int) -> re.Pattern[bytes]:
    """The first line of code that is indented by at most `indent` spaces."""
    return re.compile(rb"\n {0,%d}[^\s#]" % indent)


def _blanked(body: bytes, indent: int) -> bytes | None:
    """As many lines as `body` has, with a `0` on the last line of code; None where the body must stay."""
    if b"\t" in body or b"NotImplementedError" in body or (b"class" in body and _CLASS.search(body)):
        return None
    if body.count(b'"""') % 2 or body.count(b"'''") % 2:
        return None
    code = body.rstrip()
    if code.endswith(b"\\"):  # the dedented line continues this one
        return None
    while (last := code.rpartition(b"\n")[2]).lstrip().startswith(b"#"):
        code = code[: len(code) - len(last)].rstrip()
    if not code:
        return None
    before = code.count(b"\n")
    return b"\n" * before + b" " * (indent + 1) + b"0" + b"\n" * (body.count(b"\n") - before)
