"""Checks and constants of whole C++ and CUDA files: assertion macros, launch bounds, tests of the architecture and of
types, `#define`d and `constexpr` numbers. Kernels' own facts are described elsewhere; here a file is read as text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from opscope_schemas.extracted_config import Check, Constant
from opscope_schemas.tiling import Constraint

from opscope_tools.kernels.cuda.declarations import constants
from opscope_tools.kernels.cuda.source_text import CSource, matching, split_arguments, squeeze

__all__ = ["assertions", "native_checks", "native_constants"]

_MACRO = re.compile(
    r"\b(static_assert|assert|(?=[A-Z0-9_]*(?:CHECK|ASSERT|ENFORCE|EXPECT))[A-Z][A-Z0-9_]*(?:_NOT_NULL|_EQ|_NE|_LT|_LE|_GT|_GE)?)\s*+\("
)
_BOUNDS = re.compile(r"\b__launch_bounds__\s*+\(")
_ARCH = re.compile(r"\b(?:__CUDA_ARCH\w*|CUDA_VERSION|CUDART_VERSION|USE_ROCM|__HIP\w*)\b")
_DEVICE = re.compile(
    r"\bif\s*+(?:constexpr\s*)?\((?=[^;{}]{0,400}\b(?:major|minor|get_sm_version\w*|sm_version\w*|compute_capability\w*|cc_major)\b)"
)
_DISPATCH = re.compile(r"\b\w*DISPATCH_\w+\s*+\(")
_HEAD = re.compile(
    r"(?<![~\w:<>])([~\w:<>]++)\s*+\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*+(?:const|noexcept|override|->\s*+[\w:<>]+|\s)*$"
)
_NUMBER = re.compile(r"\(?\s*(-?(?:0[xX][0-9a-fA-F]+|\d+))\s*[uUlL]*\s*+\)?$")
_FLOAT = re.compile(r"\(?\s*(-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?)[fF]?\s*+\)?$")
_LIMIT = 400


def native_checks(path: str, text: str, names: Collection[str] = ()) -> list[Check]:
    """Every check of a file, by line. Those in the body of a macro count where the macro is defined."""
    source = CSource(path, text)
    owners = _Owners(source)
    found = [*_macros(source, owners), *_bounds(source, owners), *_tests(source, owners)]
    known = set(names)
    named = [c.model_copy(update={"names": tuple(sorted(known & set(re.findall(r"\w+", c.condition))))}) for c in found]
    return sorted(named, key=lambda check: (check.line, check.kind))


def native_constants(path: str, text: str) -> list[Constant]:
    """Object macros and constants outside of functions that are, or are worked out from, numbers."""
    source = CSource(path, text)
    owners = _Owners(source)
    defined = [m for m in source.macros if m.parameters is None and re.match(r"[-(]?\s*[\d.]", m.body)]
    declared = [
        one
        for one in constants(source)
        if one.plain and re.fullmatch(r"[\w ]+", one.type) and not owners.of(one.position)
    ]
    found = [_constant(path, m.name, squeeze(m.body), m.line) for m in defined]
    found += [_constant(path, one.name, one.text, source.line(one.position)) for one in declared]
    return sorted(found, key=lambda constant: constant.line)


def _constant(path: str, name: str, expression: str, line: int) -> Constant:
    value: int | float | bool | None = None
    if number := _NUMBER.match(expression):
        text = number[1]
        octal = re.fullmatch(r"-?0\d+", text)
        value = int(text, 8 if octal else 0)
    elif fraction := _FLOAT.match(expression):
        value = float(fraction[1])
    elif expression in {"true", "false"}:
        value = expression == "true"
    return Constant(
        name=name, expression=expression[:_LIMIT], value=value, basis="source" if value is not None else "open",
        file=path, line=line,
    )  # fmt: skip


class _Owners:
    """Which function a position stands in."""

    def __init__(self, source: CSource) -> None:
        self.source = source
        self.heads: list[tuple[int, int, str]] = []
        for start, end in source.all_blocks:
            if any(first <= start and end <= last for first, last, _ in self.heads[-1:]):
                continue  # inside a function already
            name = self._name(start)
            if name:
                self.heads.append((start, end, name))

    def _name(self, opening: int) -> str:
        statements = self.source.statements
        begin = max(statements.rfind(sign, 0, opening) for sign in ";{}")
        head = statements[max(begin + 1, opening - 4000) : opening]
        head = re.split(r"\)\s*+:\s*+(?!:)", head)[0] + (")" if re.search(r"\)\s*+:\s*+(?!:)", head) else "")
        match = _HEAD.search(head.rstrip())
        name = match[1] if match else ""
        return "" if name in {"if", "for", "while", "switch", "catch", "__launch_bounds__", "requires"} else name

    def of(self, position: int) -> str:
        return next((name for first, last, name in self.heads if first <= position <= last), "")


def _macros(source: CSource, owners: _Owners) -> Iterator[Check]:
    for match in _MACRO.finditer(source.code):
        if _defines(source, match.start()):
            continue
        closing = matching(source.code, match.end() - 1)
        if closing < 0:
            continue
        parts = split_arguments(source.code[match.end() : closing].replace("\\\n", " "))
        if not parts:
            continue
        quoted = re.findall(r"\"((?:\\.|[^\"\\])*)\"", source.original[match.end() : closing])
        length = _first(source.code[match.end() : closing], parts[0])
        first = squeeze(source.original[match.end() : match.end() + length])
        owner = owners.of(match.start()) or _macro_around(source, match.start())
        yield Check(
            kind=match[1], condition=(first or parts[0])[:_LIMIT], message=" ".join("".join(quoted).split())[:_LIMIT],
            within=owner, file=source.path, line=source.line(match.start()),
        )  # fmt: skip


def _defines(source: CSource, position: int) -> bool:
    """Whether the name at a position is the one that a `#define` of its line defines."""
    before = source.code[source.code.rfind("\n", 0, position) + 1 : position]
    return re.match(r"[ \t]*#[ \t]*(define|undef)[ \t]+$", before) is not None


def _first(text: str, argument: str) -> int:
    """How long the first argument is, given that argument on one line."""
    commas = (match.start() for match in re.finditer(",", text))
    return next((comma for comma in commas if squeeze(text[:comma]) == argument), len(text))


def _macro_around(source: CSource, position: int) -> str:
    macro = source.macro_around(position)
    return f"#define {macro.name}" if macro is not None else ""


def _bounds(source: CSource, owners: _Owners) -> Iterator[Check]:
    for match in _BOUNDS.finditer(source.code):
        closing = matching(source.code, match.end() - 1)
        if closing < 0 or _defines(source, match.start()):
            continue
        following = re.match(r"\s*+(?:void\s+)?(\w+)\s*+\(", source.code[closing + 1 :])
        yield Check(
            kind="launch_bounds", condition=squeeze(source.code[match.end() : closing])[:_LIMIT],
            within=following[1] if following else owners.of(match.start()) or _macro_around(source, match.start()),
            file=source.path, line=source.line(match.start()),
        )  # fmt: skip


def _tests(source: CSource, owners: _Owners) -> Iterator[Check]:
    for test in source.conditionals:
        if _ARCH.search(test.text):
            yield Check(
                kind="capability", condition=f"{test.word} {test.text}", within=owners.of(test.position),
                file=source.path, line=source.line(test.position),
            )  # fmt: skip
    for match in _DEVICE.finditer(source.statements):
        closing = matching(source.statements, match.end() - 1)
        if closing > 0:
            yield Check(
                kind="capability", condition=squeeze(source.statements[match.end() : closing])[:_LIMIT],
                within=owners.of(match.start()), file=source.path, line=source.line(match.start()),
            )  # fmt: skip
    for match in _DISPATCH.finditer(source.statements):
        name = match[0].rstrip("( \t\n")
        yield Check(
            kind="dtype",
            condition=name,
            within=owners.of(match.start()),
            file=source.path,
            line=source.line(match.start()),
        )


_ASSERTION = re.compile(
    r"\b(static_assert|TORCH_CHECK\w*|TORCH_INTERNAL_ASSERT|AT_ASSERT\w*|CHECK_\w+|GGML_ASSERT|assert|FLASHINFER_CHECK|C10_CHECK\w*)\s*+\("
)


_BRANCH = re.compile(r"\bif\s*+(?:constexpr\s*+)?(\()|\belse\b")


def assertions(source: CSource, start: int, end: int, file: str, via: str) -> Iterator[Constraint]:
    """Compile-time and host assertions of a range, with their messages from the original text."""
    for match in _ASSERTION.finditer(source.statements, start, end):
        closing = matching(source.statements, match.end() - 1)
        if closing < 0:
            continue
        parts = split_arguments(source.statements[match.end() : closing])
        quoted = re.findall(r"\"((?:\\.|[^\"\\])*)\"", source.original[match.end() : closing])
        if parts:
            yield Constraint(
                line=source.line(match.start()),
                file=file,
                kind=match[1],
                condition=parts[0],
                message=" ".join(quoted)[:240],
                via=via,
                when=" and ".join(_tests_around(source, start, match.start())),
            )


def _tests_around(source: CSource, start: int, position: int) -> Iterator[str]:
    """The tests of the `if`s that a position stands under, outermost first."""
    text = source.statements
    opening = [brace for brace, end in source.all_blocks if start <= brace < position <= end]
    for at in (*opening, position):
        head = max(text.rfind(c, start, at) for c in ";{}") + 1
        found = _BRANCH.search(text[head:at])
        if found is None:
            continue
        closing = matching(text, head + found.end() - 1) if found[1] else -1
        yield (
            squeeze(text[head + found.end() : closing])
            if closing > 0
            else f"the test before line {source.line(at)} fails"
        )
