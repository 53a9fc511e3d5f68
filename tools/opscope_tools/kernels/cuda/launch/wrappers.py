"""Launches through a function or macro of the repository that takes a kernel and launches it.

`wrappers` finds them: a launch whose callee is a parameter of the function, or of the macro, around it. `wrapper_calls`
finds where they are called; `configuration` writes their launch's grid, block, shared memory and stream in the caller's
own arguments.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from opscope_tools.kernels.cuda.launch.host_text import Names, enclosing_function, member
from opscope_tools.kernels.cuda.names.definitions import callee_start, expand
from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    split_arguments,
    squeeze,
    whole_words,
)
from opscope_tools.kernels.records import MacroRef, WrapperRef

#: (callee, grid, block, shared bytes, stream)
Configuration = tuple[str, str, str, str, str]
_CHEVRON = re.compile(r"(?<!\w)([A-Za-z_]\w*+)\s*+<<<")
_EX = re.compile(r"\bcudaLaunchKernelExC?\s*+\(\s*+&?\s*+([\w.]+)\s*+,\s*+([A-Za-z_]\w*)\s*+[,)]")
_FIELDS = ("gridDim", "blockDim", "dynamicSmemBytes", "stream")
_LEVELS = 4
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
        heading, _, name = enclosing_function(source, position)
        parameters = _parameters(source, heading, position) if name and heading not in seen else []
        plain = tuple(_name(p) for p in parameters)
        if kernel in plain:
            if extended and re.compile(rf"\b{re.escape(kernel)}\s*+<<<").search(source.statements, position):
                continue  # the plain form of the same launch says more
            seen.add(heading)
            yield WrapperRef(
                name=name, parameters=plain, types=tuple(_type(p) for p in parameters),
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


def _type(declared: str) -> str:
    words = re.findall(r"\w+", re.sub(r"\b(?:const|struct|volatile)\b", "", declared.partition("=")[0]))
    return words[-2] if len(words) > 1 else ""


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


def configuration(
    wrapper: WrapperRef, arguments: list[str], names: Names, load: Callable[[str], CSource | None]
) -> Configuration:
    """A wrapper's launch in the caller's words; what they do not tell stays ''."""
    if wrapper.macro:
        made = MacroRef(
            name="", parameters=wrapper.parameters, body=wrapper.macro, file=wrapper.file, line=wrapper.line
        )
        return _written(CSource("", expand(made, arguments)))
    source = load(wrapper.file)
    bound = {**dict.fromkeys(wrapper.parameters, ""), **dict(zip(wrapper.parameters, arguments, strict=False))}
    callee = bound.get(wrapper.parameters[wrapper.kernel], "")
    if source is None:
        return callee, "", "", "", ""
    heading, _, _ = enclosing_function(source, wrapper.position)
    inside = Names(source, heading, wrapper.position, frozenset(wrapper.parameters))
    ex = _EX.match(source.statements, wrapper.position)
    if ex is not None:
        texts = [member(ex[1], field, inside) for field in _FIELDS]
    else:
        chevron = source.statements.index("<<<", wrapper.position)
        parts = split_arguments(source.statements[chevron + 3 : source.statements.find(">>>", chevron)])
        texts = [*parts, "", "", "", ""][:4]
    types = dict(zip(wrapper.parameters, wrapper.types, strict=False))
    told = [_outside(text, inside, bound, types, names, source, _LEVELS) for text in texts]
    return callee, told[0], told[1], told[2] or texts[2], told[3]  # bytes that are not told are not 0


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


def _written(source: CSource) -> Configuration:
    """The one launch of an expanded macro."""
    opening = source.code.find("<<<")
    closing = source.code.find(">>>", opening)
    start = callee_start(source.code, opening) if opening > 0 else None
    if start is None or closing < 0:
        return "", "", "", "", ""
    parts = [*split_arguments(source.code[opening + 3 : closing]), "", "", "", ""]
    return squeeze(source.code[start:opening]), parts[0], parts[1], parts[2], parts[3]


def _outside(
    text: str, inside: Names, bound: Mapping[str, str], types: Mapping[str, str], names: Names, source: CSource, level: int
) -> str:  # fmt: skip
    """An expression of the wrapper with its locals and parameters put in; '' where one is not told."""
    lost = False

    def told(match: re.Match[str]) -> str:
        nonlocal lost
        name, fields = match[1], match[2]
        if name in bound:
            found = (
                _field(bound[name], fields.lstrip(".>-"), types.get(name, ""), names, source) if fields else bound[name]
            )
        elif fields:
            found = match[0]
        else:
            values = {squeeze(value) for _, value, _ in inside.definitions(name)}
            if not values:
                return match[0]
            found = (
                _outside(values.pop(), inside, bound, types, names, source, level - 1)
                if len(values) == 1 and level
                else ""
            )
        lost = lost or not found
        return found if re.fullmatch(r"[\w.:]+|\w+\s*+[({].*[)}]|\{.*\}", found) or found == text else f"({found})"

    result = re.sub(r"(?<![\w.:>])([A-Za-z_]\w*)(?!\s*+\()((?:\.|->)\w+)?", told, text)
    return "" if lost else re.sub(r"^\((.*)\)$", r"\1", result) if text.isidentifier() else result


def _field(argument: str, field: str, kind: str, names: Names, source: CSource) -> str:
    """`argument.field` of a structure that the caller fills: in the call, where it is declared, or field by field."""
    fields = _order(source, kind)
    index = fields.index(field) if field in fields else -1
    made = re.match(rf"^(?:(?:\w+::)*{re.escape(kind)}\s*)?([({{].*[)}}])$", argument) if kind else None
    if made is None and re.fullmatch(r"\w+", argument):
        if set_there := member(argument, field, names):
            return set_there
        declared = re.compile(
            rf"\b{re.escape(kind)}\s+{re.escape(argument)}\s*+(?:=\s*(?:(?:\w+::)*{re.escape(kind)}\s*)?)?([({{])"
        )
        found = list(declared.finditer(names.source.statements, names.start, names.position)) if kind else []
        if found:
            opening = found[-1].end() - 1
            made = re.match(
                r"(.*)", names.source.statements[opening : matching(names.source.statements, opening) + 1], re.DOTALL
            )
    if made is None:
        return ""
    parts = split_arguments(made[1].strip()[1:-1])
    for part in parts:
        if designated := re.match(rf"\.{re.escape(field)}\s*+=\s*(.+)", part):
            return designated[1]
    return parts[index] if 0 <= index < len(parts) else ""


def _order(source: CSource, kind: str) -> list[str]:
    """The fields of a structure in the order in which it is made: of its constructor, else as declared."""
    found = re.search(rf"\bstruct\s+{re.escape(kind)}\s*+\{{", source.statements) if kind else None
    if found is None:
        return []
    body = source.statements[found.end() : source.block_end(found.end() - 1)]
    made = re.search(rf"\b{re.escape(kind)}\s*+\(", body)
    closing = matching(body, made.end() - 1) if made else -1
    initialisers = re.match(r"\s*+:\s*+([^{]*+)\{", body[closing + 1 :]) if made and closing > 0 else None
    if made and initialisers:
        table = {}
        for part in split_arguments(initialisers[1]):
            if member_of := re.match(r"(\w+)\s*+[({](.*)[)}]$", part):
                words = re.findall(r"[A-Za-z_]\w*", member_of[2])
                table.update(dict.fromkeys(words[-1:], member_of[1]))
        return [table.get(_name(p), "") for p in split_arguments(body[made.end() : closing])]
    plain = re.sub(r"(?<!\w)\w++\s*+\((?=[^;{}]*\))[^;{}]*+(?:;|\{[^{}]*+\})", "", body)
    return [_name(part) for part in plain.split(";") if part.strip()]


__all__ = ["configuration", "may_wrap", "meant", "wrapper_calls", "wrappers"]
