"""One reading of a C++ file under the index and the kernels: positions, lines and braces, held against a slow reader
that goes through the text character by character.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from opscope_tools.kernels.cuda.source_text import CSource
from opscope_tools.source.cpp.text import CppText, decoded, without_quotes

_PIECES = (
    "a", "{", "}", "(", ")", ";", " ", "\n", "\r\n", "\\\n", "// { \"'", "/* } \n ' */", '"{\\"}"', "'{'", "'\\''", "u8'}'",
    "1'000'000", 'R"({ " )"', 'R"x(\n#if 0\n)" })x"', "#define M(x) { \\\n  x", "#define N /* a\n b */ 3 {", '#include "a{.h"',
    "#if A\n", "#ifdef B\n", "#elif C\n", "#else\n", "#endif\n", "\n#if 0\n", "\n#endif\n", "# \n", "\x1d", "\N{BULLET}", "operator",
)  # fmt: skip
SOURCES = st.lists(st.sampled_from(_PIECES), max_size=40).map("".join)
_RAW = re.compile(r'R"([^\s()\\]{0,16})\(.*?\)\1"', re.DOTALL)


def real_sources() -> list[Path]:
    """Every eightieth of torch's headers."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    found = sorted(Path(spec.origin).parent.joinpath("include").rglob("*.*"))
    return [path for path in found if path.suffix in {".h", ".cuh", ".hpp", ".inl"}][::80]


def code_positions(text: str) -> list[int]:
    """Positions outside of comments, literals and preprocessor lines, read one character after another."""
    found: list[int] = []
    at, directive, begun = 0, False, True  # begun: nothing but blanks on the line so far
    while at < len(text):
        end = _behind_noise(text, at)
        if end > at:
            begun = begun and text[at] == "/"
            at = end
            continue
        if text[at] == "#" and begun:
            directive = True
        if continued := re.match(r"\\\r?\n", text[at : at + 3]):  # the line goes on, whatever it is
            at += continued.end()
            continue
        if text[at] == "\n":
            directive, begun = False, True
        elif not text[at].isspace():
            begun = False
        if not directive:
            found.append(at)
        at += 1
    return found


def _behind_noise(text: str, at: int) -> int:
    """Where the comment or literal that begins at a position ends; the position itself where none does."""
    if text.startswith("//", at):
        end = at
        while end < len(text) and (text[end] != "\n" or text[:end].removesuffix("\r").endswith("\\")):
            end += 1
        return end
    if text.startswith("/*", at):
        end = text.find("*/", at + 2)
        return end + 2 if end >= 0 else len(text)
    before = re.search(r"\w*\Z", text[max(0, at - 40) : at])
    assert before is not None
    if text.startswith('R"', at) and before[0][-1:] in {"", "L", "U", "u", "8"} and (raw := _RAW.match(text, at)):
        return raw.end()
    apart = before[0] == "u8" or before[0][-1:] not in set("0123456789abcdefABCDEF")
    if text[at] == '"' or (text[at] == "'" and apart):
        whole = re.compile(rf"{text[at]}(?:\\\r\n|\\.|[^{text[at]}\\\n])*{text[at]}", re.DOTALL).match(text, at)
        return whole.end() if whole is not None else at
    return at


def check(text: str) -> None:
    index, kernels = CppText(text), CSource("x.cu", text)
    newlines = [at for at, c in enumerate(text) if c == "\n"]
    for made in (index.code, index.statements, kernels.code, kernels.statements):
        assert len(made) == len(text)
        assert [at for at, c in enumerate(made) if c == "\n"] == newlines
    assert index.closing == kernels.closing
    live = [at for at in code_positions(text) if not index.is_dead(at) and text[at] in "{}"]
    for one in (index, kernels):
        assert [at for at, c in enumerate(one.statements) if c in "{}"] == live
    for opening, end in index.closing.items():
        assert text[opening] == "{"
        assert end == len(text) or (end > opening and text[end] == "}")
    for place in range(0, len(text), max(1, len(text) // 50)):
        assert index.line(place) == kernels.line(place) == text.count("\n", 0, place) + 1


@given(SOURCES)
def test_both_readers_see_the_same_positions_lines_and_braces(text: str) -> None:
    if _unclosed(text):
        return  # where a literal ends is then anyone's guess
    check(text)


def _unclosed(text: str) -> bool:
    blanked = without_quotes(CppText(text).code)
    return '"' in blanked or re.search(r"(?<![0-9a-fA-F])'", blanked) is not None or "R" in blanked


def test_real_headers_read_alike() -> None:
    sources = real_sources()
    assert len(sources) > 100
    for path in sources:
        check(decoded(path.read_bytes()))


@given(SOURCES)
def test_without_conditionals_braces_match_as_they_stand(text: str) -> None:
    plain = CppText(text.replace("#", " "))
    stack: list[int] = []
    expected: dict[int, int] = {}
    for at, c in enumerate(plain.statements):
        if c == "{":
            stack.append(at)
        elif c == "}" and stack:
            expected[stack.pop()] = at
    assert plain.closing == expected | dict.fromkeys(stack, len(text))


def test_what_if_0_leaves_out_is_no_code() -> None:
    text = CppText('int a;\n#if 0\n} "\n#define X 1\n#else\nint b;\n#endif\n')
    assert text.code.split() == ["int", "a;", "#else", "int", "b;", "#endif"]
    assert text.statements.split() == ["int", "a;", "int", "b;"]
    assert [text.is_dead(macro.start) for macro in text.defined] == [True]


def test_a_comment_over_several_lines_does_not_end_a_macro() -> None:
    source = CSource("x.cu", "#define X(a) f(a, /* of\n both */ 2)\nint y;\n#include <a.h>\n// #include <b.h>\n")
    (macro,) = source.macros
    assert (macro.name, macro.parameters, " ".join(macro.body.split())) == ("X", ("a",), "f(a, 2)")
    assert source.statements.split() == ["int", "y;"]
    assert source.includes == ["a.h"]
