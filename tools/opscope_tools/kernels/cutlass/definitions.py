"""Where operators stand: `using Name = cutlass::gemm::kernel::GemmUniversal<...>`, and what stands around them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_tools.kernels.cuda.names.definitions import template_names
from opscope_tools.kernels.cuda.source_text import CSource, matching_angle, split_arguments, squeeze, whole_words
from opscope_tools.kernels.records import KernelRef

#: the classes of kernels whose arguments are a problem, a mainloop, an epilogue and a scheduler
_UNIVERSAL = ("GemmUniversal", "ConvUniversal")
_MARKS = tuple(f"kernel::{name}".encode() for name in _UNIVERSAL)
_CUTLASS = re.compile(r"\b(?:gemm|conv)\s*::\s*kernel\s*::\s*$")
_USING = re.compile(r"\s*+using\s+(\w+)\s*+=\s*+")
_CLASS = re.compile(r"(?:struct|class)\s++(?:(?:[A-Z_]+|alignas|__attribute__)\s*+\((?:[^()]|\([^()]*\))*\)\s*+)*(\w+)")


def may_hold(data: bytes) -> bool:
    """Whether a file may spell an operator."""
    return any(mark in data for mark in _MARKS)


@dataclass(frozen=True)
class Scope:
    """What is around a place: a namespace, a class, a function, or the alias itself, with its template parameters."""

    kind: str
    name: str
    #: of the list between `template <` and `>`, as written
    parameters: tuple[str, ...]
    #: where its heading begins, and its braces
    heading: int
    opening: int
    closing: int


@dataclass(frozen=True)
class Operator:
    """The statement that spells one."""

    name: str
    #: positions of the statement, of the arguments of the class
    start: int
    end: int
    arguments: tuple[str, ...]
    scopes: tuple[Scope, ...]

    @property
    def within(self) -> tuple[Scope, ...]:
        """The classes and functions around it, and itself where it is a template."""
        return tuple(s for s in self.scopes if s.kind != "namespace")

    @property
    def path(self) -> str:
        """`Class.Name`."""
        return ".".join((*(s.name for s in self.within if s.kind != "alias"), self.name))


def operators(source: CSource) -> Iterator[Operator]:
    """Every operator that an alias of this file names, in order."""
    text = source.statements
    for position, word in whole_words(text, *_UNIVERSAL):
        opening = re.compile(r"\s*+<").match(text, position + len(word))
        closing = matching_angle(text, opening.end() - 1) if opening is not None else -1
        start = max(text.rfind(c, 0, position) for c in ";{}") + 1
        parameters, after = template_head(text, start)
        using = _USING.match(text, after)
        if (
            opening is None
            or closing < 0
            or using is None
            or not _CUTLASS.search(text, max(0, position - 60), position)
        ):
            continue
        arguments = tuple(split_arguments(text[opening.end() : closing]))
        end = text.find(";", closing)
        if len(arguments) >= 3 and end > 0:
            begin = text.index("using", after)
            around = [*scopes(source, position)]
            if parameters:
                around.append(Scope("alias", using[1], parameters, begin, using.start(), end))
            yield Operator(using[1], begin, end, arguments, tuple(around))


def template_head(text: str, start: int) -> tuple[tuple[str, ...], int]:
    """The parameters of `template <...>` at a place, as often as it stands there, and where what follows begins."""
    parameters: tuple[str, ...] = ()
    while (listed := re.compile(r"\s*+template\s*+<").match(text, start)) is not None:
        end = matching_angle(text, listed.end() - 1)
        if end < 0:
            break
        parameters, start = (*parameters, *split_arguments(text[listed.end() : end])), end + 1
    return parameters, start


def scopes(source: CSource, position: int) -> Iterator[Scope]:
    """The named blocks that hold a position, outermost first."""
    text = source.statements
    for opening, closing in source.all_blocks:
        if not opening < position < closing:
            continue
        start = max(text.rfind(c, 0, opening) for c in ";{}") + 1
        heading = text[start:opening]
        if (space := source.namespace(opening)) is not None:
            yield Scope("namespace", space, (), start, opening, closing)
            continue
        parameters, after = template_head(heading, 0)
        named = _CLASS.match(heading[after:].lstrip()) or re.search(r"(?<![\w.])(\w++)\s*+\([^{}]*$", heading[after:])
        if named is not None and named[1] not in {"if", "for", "while", "switch", "catch"}:
            kind = "class" if re.match(r"\s*+(?:struct|class)\b", heading[after:]) else "function"
            yield Scope(kind, named[1], parameters, start, opening, closing)


def references(source: CSource) -> Iterator[KernelRef]:
    """The operators of a file as kernels."""
    for one in operators(source):
        yield KernelRef(
            name=one.path, language="cutlass", role="kernel", file=source.path, line=source.line(one.start), end_line=source.line(one.end),
        )  # fmt: skip


def operator_at(reference: KernelRef, source: CSource) -> Operator:
    """The operator of a kernel that the inventory holds; raises where it stands there no more."""
    for one in operators(source):
        if (one.path, source.line(one.start)) == (reference.name, reference.line):
            return one
    raise reference.moved()


def parameter_name(text: str) -> str:
    """`Stages` of `int Stages = 4`."""
    return next(iter(template_names(text)), "")


def parameter_default(text: str) -> str:
    """`4` of `int Stages = 4`."""
    return squeeze(text.partition("=")[2])


__all__ = [
    "Operator",
    "Scope",
    "may_hold",
    "operator_at",
    "operators",
    "parameter_default",
    "parameter_name",
    "references",
    "scopes",
    "template_head",
]
