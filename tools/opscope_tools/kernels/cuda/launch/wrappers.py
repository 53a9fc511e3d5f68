"""Launches through a function or macro of the repository that takes a kernel and launches it.

`wrappers` finds them: a launch whose callee is a parameter of the function, or of the macro, around it. `wrapper_calls`
finds where they are called, `meant` which of several a call means; what they launch, host_run.py says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence

from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    split_arguments,
    whole_words,
)
from opscope_tools.kernels.records import WrapperRef

_CHEVRON = re.compile(r"(?<!\w)([A-Za-z_]\w*+)\s*+<<<")
_EX = re.compile(r"\bcudaLaunchKernelExC?\s*+\(\s*+&?\s*+([\w.]+)\s*+,\s*+([A-Za-z_]\w*)\s*+[,)]")
#: launches of a file that are looked at: a file with more is generated, and no wrapper
_SITES = 2000


def may_wrap(text: str) -> bool:
    """Whether a file may hold a wrapper: something is launched that is declared as a parameter here."""
    return any(_declared(text, name) for name in {name for _, name, _ in _launched(text)})


def _declared(text: str, name: str) -> bool:
    """Whether a name stands where a parameter's does somewhere: behind a type, before a comma or the end."""
    for position, _ in whole_words(text, name):
        last = text[max(0, position - 80) : position].rstrip()[-1:]
        follows = text[position + len(name) : position + len(name) + 40].lstrip()[:1]
        if follows in {",", ")"} and (last in {"*", "&", ">"} or (_word(last) and text[position - 1].isspace())):
            return True
    return False


def _word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _launched(text: str) -> Iterator[tuple[int, str, bool]]:
    """(position, plain name that is launched, whether by cudaLaunchKernelEx): found as text, which is quick."""
    end = text.find("<<<")
    while end >= 0:
        stop = end
        while stop and text[stop - 1].isspace():
            stop -= 1
        start = stop
        while start and _word(text[start - 1]):
            start -= 1
        if start < stop and not text[start].isdigit():
            yield start, text[start:stop], False
        end = text.find("<<<", end + 3)
    start = text.find("cudaLaunchKernelEx")
    while start >= 0:
        if (match := _EX.match(text, start)) is not None:
            yield start, match[2], True
        start = text.find("cudaLaunchKernelEx", start + 1)


def wrappers(source: CSource) -> Iterator[WrapperRef]:
    """Every function and macro of a file that launches one of its own parameters."""
    for macro in source.macros:
        for match in _CHEVRON.finditer(macro.body) if macro.parameters else ():
            names = macro.parameters or ()
            if match[1] in names:
                yield WrapperRef(name=macro.name, parameters=names, kernel=names.index(match[1]), file=source.path,
                                 line=macro.line, macro=macro.body)  # fmt: skip
                break
    seen: set[int] = set()
    launched = sorted(_launched(source.statements))[:_SITES]
    declared = {name for name in {name for _, name, _ in launched} if _declared(source.statements, name)}
    for position, kernel, extended in launched:
        if kernel not in declared:
            continue
        heading, _, end, name = source.function_around(position) or (0, 0, 0, "")
        parameters = _parameters(source, heading, position) if name and heading not in seen else []
        plain = tuple(_name(p) for p in parameters)
        if kernel in plain:
            if extended and re.compile(rf"\b{re.escape(kernel)}\s*+<<<").search(source.statements, position, end):
                continue  # the plain form of the same launch says more
            seen.add(heading)
            yield WrapperRef(
                name=name, parameters=plain,
                variadic=any("..." in p for p in parameters), kernel=plain.index(kernel),
                file=source.path, line=source.line(position), position=position,
            )  # fmt: skip


def _parameters(source: CSource, heading: int, before: int) -> list[str]:
    """The parameter declarations of the function whose heading starts there."""
    text = source.statements
    start = heading
    if (template := re.compile(r"\s*+template\s*+<").match(text, heading)) is not None:
        start = max(matching_angle(text, template.end() - 1), heading) + 1
    opening = text.find("(", start, before)
    closing = matching(text, opening) if opening > 0 else -1
    return split_arguments(text[opening + 1 : closing]) if 0 < closing < before else []


def _name(declared: str) -> str:
    pointer = re.search(r"\(\s*+[*&]+\s*+(\w+)\s*+\)", declared)
    found = re.search(r"(?<!\w)(\w++)\s*+(?:\[[^\]]*+\]\s*+)?$", declared.partition("=")[0].strip())
    return pointer[1] if pointer else found[1] if found else ""


def wrapper_calls(source: CSource, known: Collection[str]) -> Iterator[tuple[int, int, int, str]]:
    """(start, start and end of the arguments, name of the wrapper) of every call of one."""
    for position, name in whole_words(source.code, *(n for n in known if n in source.code)):
        opening = position + len(name)
        while opening < len(source.code) and source.code[opening].isspace():
            opening += 1
        if source.code[opening : opening + 1] == "<":
            opening = matching_angle(source.code, opening) + 1
        closing = matching(source.code, opening) if source.code[opening : opening + 1] == "(" else -1
        if closing > 0 and not re.match(
            r"#[ \t]*define[ \t]+$", source.code[source.code.rfind("\n", 0, position) + 1 : position]
        ):
            yield position, opening + 1, closing, name


def meant(
    known: Sequence[WrapperRef], arguments: int, file: str, around: Callable[[str], list[CSource]]
) -> WrapperRef | None:  # fmt: skip
    """Of the wrappers of one name the one that a call means: by its arguments, then by where it lies; None if several may be."""
    fitting = [
        w
        for w in known
        if arguments >= len(w.parameters) - w.variadic and (w.variadic or arguments <= len(w.parameters))
    ]
    fitting = [w for w in known if "..." in w.parameters] or fitting
    if len(fitting) > 1:
        fitting = [w for w in fitting if w.file == file] or fitting
    if len(fitting) > 1:
        near = {source.path for source in around(file)}
        fitting = [w for w in fitting if w.file in near] or fitting
    return fitting[0] if len(fitting) == 1 else None


__all__ = ["may_wrap", "meant", "wrapper_calls", "wrappers"]
