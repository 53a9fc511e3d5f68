"""One pass over a CUDA file: kernel definitions, also those that macros write, and launches.

`kernel_macros` first collects, over the whole repository, the macros whose text holds `__global__`: object macros stand
for the keyword, function macros for a whole definition. `definitions` yields every function that carries such a mark.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from opscope_schemas.tiling import Unanalysed

from opscope_tools.kernels.cuda.launch.cutlass import callee, launcher_calls
from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    names_called,
    opening_angle,
    split_arguments,
    squeeze,
    whole_words,
)
from opscope_tools.kernels.records import FileFacts, KernelRef, LaunchRef, MacroRef, PickerRef

_GROUP = re.compile(r"(?<![\w:~])([A-Za-z_~][\w:]*+)\s*+(<[^;{}()]{0,400}>)?\s*+\(")
_ATTRIBUTE = re.compile(
    r"^(__\w+__|__\w+|alignas|decltype|noexcept|requires|[A-Z][A-Z0-9_]+)$"
)  # what may stand with parentheses before the name
LAUNCH_CALLS = frozenset(
    {
        "cudaLaunchKernelEx", "cudaLaunchKernelExC", "cudaLaunchKernel", "cudaLaunchCooperativeKernel",
        "hipLaunchKernelGGL", "cuLaunchKernel",
    }
)  # fmt: skip
#: one of these a file must contain to be read at all
_MARKS = (
    b"__global__",
    b"__device__",
    b"<<<",
    b"cudaLaunch",
    b"kernel_launch<",
    b"ClusterLauncher",
    b"launch_kernel_on_cluster",
)
#: what stands behind the name of a table of kernels, of a function where it is defined, of a variable that is set
_TABLE = re.compile(r"\s*+\[[^\]]*\]\s*+=\s*+\{([^{}]*)\}")
_HEADED = re.compile(r"\s*+\([^;{}]{0,4000}\)\s*+\{")
_ASSIGNED = re.compile(r"\s*+=(?!=)\s*+([^;]++);")
#: what marks a function of the device
DEVICE = ("__device__", "CUTE_DEVICE", "CUTLASS_DEVICE")
#: a function that chooses a kernel, by its name
_CHOOSES = re.compile(r"(?:pick|select|choose|get)\w*kernel")


#: (start, start and end of the arguments, form, which argument the kernel is) of launches
Sites = Callable[[CSource], Iterable[tuple[int, int, int, str, int]]]


@dataclass(frozen=True)
class Definition:
    """A function marked `__global__` or `__device__`, by positions in its file."""

    name: str
    start: int
    name_position: int
    template: str
    parameters: str
    parameters_position: int
    attributes: str
    body: int
    end: int
    macro: str = ""


@dataclass(frozen=True)
class KernelMacros:
    """Macros that write `__global__`."""

    objects: frozenset[str]
    functions: dict[str, MacroRef]


def kernel_macros(macros: Iterable[MacroRef]) -> KernelMacros:
    """The macros that stand for `__global__` or write a definition with it, through other macros too."""
    table = list(macros)
    objects = {"__global__"}
    while True:
        pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, objects))})\b")
        more = {
            m.name for m in table if m.parameters is None and pattern.search(m.body) and "(" not in _plain(m.body)
        } - objects
        if not more:
            break
        objects |= more
    functions = {m.name: m for m in table if m.parameters is not None and pattern.search(m.body)}
    return KernelMacros(frozenset(objects - {"__global__"}), functions)


def _plain(body: str) -> str:
    return re.sub(r"\b(__\w+__|__\w+)\s*+\([^()]*\)", "", body)


#: where a declaration ends or becomes something else; comparisons may stand in its type (`enable_if_t<(N == 0)>`)
_STOP = re.compile(r"[;{}]|(?<![=!<>])=(?!=)")


def worth_reading(data: bytes) -> bool:
    """Whether a file may hold a kernel, a launch, or a function that chooses a kernel."""
    return any(mark in data for mark in _MARKS) or bool(_choosers(data.decode("latin-1")))


def _choosers(text: str) -> list[str]:
    """Functions that are declared or called here and choose a kernel, by their names."""
    return list(dict.fromkeys(name for _, name, _ in names_called(text, "kernel") if _CHOOSES.search(name)))


def find_in_cuda(path: str, text: str, macros: KernelMacros, wrapped: Sites | None = None) -> FileFacts:
    """The facts of one file; `wrapped` gives its launches through wrappers, as `launch_sites` gives the others."""
    source = CSource(path, text)
    kernels = [
        *_references(definitions(source, macros), source, "kernel"),
        *_references(devices(source), source, "device_function"),
    ]
    return FileFacts(
        kernels=tuple(kernels), launches=tuple(_launches(source, wrapped)), pickers=tuple(_pickers(source)),
        not_analysed=tuple(_in_strings(source)),
    )  # fmt: skip


def _in_strings(source: CSource) -> Iterator[Unanalysed]:
    """Kernels that the file only holds as text for a run-time compiler."""
    for start, text in source.raw_strings:
        for match in re.finditer(r"\b__global__\b\s*+(?:void\s+)?([\w${}]+)", text):
            yield Unanalysed(
                form="CUDA source in a string", name=match[1], file=source.path, line=source.line(start + match.start())
            )


def _references(found: Iterable[Definition], source: CSource, role: str) -> Iterator[KernelRef]:
    for d in found:
        yield KernelRef(
            name=d.name, language="cuda", role=role, file=source.path, line=source.line(d.name_position),
            end_line=source.line(d.end), macro=d.macro,
        )  # fmt: skip


def definitions(source: CSource, macros: KernelMacros) -> Iterator[Definition]:
    """Every kernel of the file, in order."""
    seen: set[int] = set()
    for position, mark in whole_words(source.code, "__global__", *macros.objects):
        found = None if source.in_define(position) else _definition(source, position, position + len(mark))
        if found is not None and found.body not in seen:
            seen.add(found.body)
            yield found
    for name, macro in macros.functions.items():
        if name in source.code:
            yield from _macro_definitions(source, name, macro)


def devices(source: CSource) -> Iterator[Definition]:
    """Every named `__device__` function that is defined here."""
    seen: set[int] = set()
    for position, mark in whole_words(source.code, *DEVICE):
        if source.in_define(position):
            continue
        found = _definition(source, position, position + len(mark))
        if found is not None and found.body not in seen and "__global__" not in source.code[found.start : found.body]:
            seen.add(found.body)
            yield found


def _definition(source: CSource, mark: int, after: int) -> Definition | None:
    """The definition that carries the mark; None for declarations, variables and lambdas."""
    text = source.statements
    position = after
    name, name_at, parameters, parameters_at = "", 0, "", 0
    while True:
        stop = _STOP.search(text, position)
        if stop is None:
            return None
        group = _GROUP.search(text, position, stop.start())
        if group is None:
            break
        opening = group.end() - 1
        closing = matching(text, opening)
        if closing < 0:
            return None
        if name and _ATTRIBUTE.match(name) is None:
            position = closing + 1  # noexcept(...), requires (...), a member initialiser: after the parameters
            continue
        name, name_at = group[1].rpartition("::")[2], group.start(1)
        parameters, parameters_at = text[opening + 1 : closing], opening + 1
        position = closing + 1
    if text[stop.start()] != "{" or not name or name in {"if", "for", "while", "switch", "operator"}:
        return None
    start, template = _heading(text, mark)
    return Definition(
        name=name, start=start, name_position=name_at, template=template, parameters=parameters,
        parameters_position=parameters_at, attributes=squeeze(text[mark:name_at]), body=stop.start(),
        end=source.block_end(stop.start()),
    )  # fmt: skip


def _heading(text: str, mark: int) -> tuple[int, str]:
    """(start, template parameter list) of the declaration that holds the mark."""
    start = max(text.rfind(c, 0, mark) for c in ";}{") + 1
    found = re.compile(r"\btemplate\s*+<").search(text, start, mark)
    while found is None and start > 0 and text[start - 1] in "}{" and ">" in text[start:mark]:
        before = text.rfind("template", max(0, start - 400), start)  # a default template argument in braces
        if before < 0:
            break
        found, start = re.compile(r"\btemplate\s*+<").match(text, before), before
    if found is None:
        return mark, ""
    closing = matching_angle(text, found.end() - 1)
    return found.start(), squeeze(text[found.end() : closing]) if closing > 0 else ""


def _macro_definitions(source: CSource, name: str, macro: MacroRef) -> Iterator[Definition]:
    """Kernels that a function macro writes: `NAME(args) { body }`, or a macro that holds the body too."""
    for match in re.finditer(rf"\b{re.escape(name)}\s*+\(", source.code):
        if source.in_define(match.start()):
            continue
        closing = matching(source.code, match.end() - 1)
        if closing < 0:
            continue
        expanded = expand(macro, split_arguments(source.code[match.end() : closing]))
        written = CSource("", squeeze(expanded) + (" {}" if not re.search(r"\{", expanded) else ""))
        marks = re.search(r"\b__global__\b", written.code)
        inner = _definition(written, marks.start(), marks.end()) if marks else None
        if inner is None:
            continue
        after = re.compile(r"\s*+\{").match(source.statements, closing + 1)
        body = after.end() - 1 if after else closing
        yield Definition(
            name=inner.name, start=match.start(), name_position=match.start(), template=inner.template,
            parameters=inner.parameters, parameters_position=match.start(), attributes=inner.attributes, body=body,
            end=source.block_end(body) if after else closing, macro=f"{macro.name} ({macro.file}:{macro.line})",
        )  # fmt: skip


def expand(macro: MacroRef, arguments: list[str]) -> str:
    """One expansion of a function macro; `##` pastes."""
    names = list(macro.parameters or ())
    table = dict(zip((n for n in names if n != "..."), arguments, strict=False))
    if "..." in names:
        table["__VA_ARGS__"] = ", ".join(arguments[names.index("...") :])
    body = re.sub(r"\b(\w+)\b", lambda m: table.get(m[1], m[1]), macro.body)
    return re.sub(r"\s*+##\s*+", "", body)


def template_list(source: CSource, heading: int, before: int) -> tuple[tuple[str, ...], int]:
    """(template parameters, where the rest begins) of the function whose heading starts there."""
    names, start = tuple[str, ...](), heading
    while (found := re.compile(r"\s*+template\s*+<").match(source.statements, start, before)) is not None:
        closing = matching_angle(source.statements, found.end() - 1)
        if closing < 0:
            break
        names, start = (*names, *template_names(source.statements[found.end() : closing])), closing + 1
    return names, start


def specialised(found: Definition, source: CSource) -> tuple[str, ...]:
    """The template arguments for which a definition is: `f<double>`; none where it is for all."""
    text = source.statements[found.name_position + len(found.name) : found.parameters_position]
    listed = re.match(r"\s*+<(.*)>\s*+\(", text, re.DOTALL)
    return tuple(map(squeeze, split_arguments(listed[1]))) if listed is not None else ()


def template_names(text: str) -> list[str]:
    """Parameter names of a template parameter list."""
    names = []
    for part in split_arguments(text):
        found = re.search(r"(?<!\w)([A-Za-z_]\w*+)\s*+$", part.partition("=")[0].strip())
        names.append(found[1] if found else "")
    return names


def launch_sites(source: CSource) -> Iterator[tuple[int, int, int, str]]:
    """(start of the callee, start and end of the configuration, form) of every launch."""
    code = source.code
    for match in re.finditer(r"<<<", code):
        end = code.find(">>>", match.end())
        while end > 0 and code[end + 3 : end + 4] == ">":  # `f<g<1>>>>`: the configuration ends at the last three
            end += 1
        if end < 0 or (start := callee_start(code, match.start())) is None:
            continue
        yield start, match.end(), end, "<<<>>>"
    for start, name, opening in names_called(code, "Launch"):
        closing = matching(code, opening) if name in LAUNCH_CALLS else -1
        if closing > 0:
            yield start, opening + 1, closing, name
    yield from launcher_calls(source)


def callee_start(code: str, end: int) -> int | None:
    """Where the launched expression that ends at `end` begins."""
    position = end - 1
    while position >= 0 and code[position].isspace():
        position -= 1
    if position >= 0 and code[position] == ">":
        position = opening_angle(code, position) - 1
        while position >= 0 and code[position].isspace():
            position -= 1
    elif position >= 0 and code[position] in ")]":
        depth = 0
        while position >= 0:
            depth += (code[position] in ")]") - (code[position] in "([")
            position -= 1
            if depth == 0:
                break
    stop = position
    while stop >= 0 and (code[stop].isalnum() or code[stop] in "_:.#"):
        stop -= 1
    return stop + 1 if stop < position or code[position + 1] == "(" else None


def _launches(source: CSource, wrapped: Sites | None) -> Iterator[LaunchRef]:
    sites = {site[1]: site for site in (wrapped(source) if wrapped is not None else ())}
    sites.update({site[1]: (*site, 0) for site in launch_sites(source)})
    for start, first, last, form, place in sorted(sites.values()):
        names = launched_names(source, start, first, last, form, place)
        if names:
            yield LaunchRef(callees=tuple(names), file=source.path, line=source.line(start))


def launched_names(source: CSource, start: int, first: int, last: int, form: str, place: int = 0) -> list[str]:
    """Names that a launch may mean: the callee, and what local aliases of it stand for.

    `place`: which argument of a call the kernel is, where the form does not say.
    """
    if form == "<<<>>>":
        expression = source.code[start : first - 3]
    elif form.startswith("cutlass::"):
        expression = callee(form, source.code[start : first - 1], split_arguments(source.code[first:last]))
    else:
        arguments = split_arguments(source.code[first:last])
        if form in {"cudaLaunchKernelEx", "cudaLaunchKernelExC"}:
            expression = arguments[1] if len(arguments) > 1 else ""
        else:
            expression = arguments[place] if len(arguments) > place else ""
    base = _base_name(expression)
    if not base:
        return []
    values = [part for _, value in aliases(source, base, start) for part in _alternatives(value)]
    named = [n for n in map(_base_name, values) if n and n != base]
    picked = [
        n for name in dict.fromkeys((base, *named)) for n in (*_picked(source, name), *_tabled(source, name, start))
    ]
    return list(dict.fromkeys([base, *named, *picked]))


def _alternatives(value: str) -> list[str]:
    """The values that a conditional expression chooses from."""
    _, question, rest = value.partition("?")
    return [value] if not question else [p for p in re.split(r"(?<!:):(?!:)|\?", rest) if p.strip()]


def _tabled(source: CSource, name: str, before: int) -> list[str]:
    """Names in a local table of kernels: `F table[2] = {&kernel<A>, &kernel<B>};`, nearest first."""
    window = source.code[max(0, before - 12_000) : before]
    found = [m[1] for m in _followed(window, name, _TABLE)]
    return [n for items in found[::-1][:1] for item in split_arguments(items) if (n := _base_name(item))]


def _followed(text: str, name: str, what: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """What stands right behind a name, wherever it matches."""
    for position, _ in whole_words(text, name):
        if (match := what.match(text, position + len(name))) is not None:
            yield match


def _picked(source: CSource, name: str) -> list[str]:
    """Names that a function of this file may return: `return kernel<4>;`, also through macros in its body."""
    if (known := source.memo.get(("picked", name))) is None:
        known = source.memo["picked", name] = _returned(source, name)
    return known


def _returned(source: CSource, name: str) -> list[str]:
    found = next(_followed(source.statements, name, _HEADED), None)
    if found is None:
        return []
    body = source.statements[found.end() : source.block_end(found.end() - 1)]
    return [n for text in _with_macros(source, body) for n in re.findall(r"\breturn\s++&?\s*+(\w+)", text)]


def _with_macros(source: CSource, text: str) -> list[str]:
    """The text, and the bodies of the macros of this file that it names."""
    words = set(re.findall(r"\w+", text))
    return [text, *(m.body for m in source.macros if m.name in words)]


def _pickers(source: CSource) -> Iterator[PickerRef]:
    """Host functions whose name says that they choose a kernel, wherever the launch of what they choose may be."""
    for name in _choosers(source.code):
        names: dict[str, None] = {}
        for match in _followed(source.statements, name, _HEADED):
            body = source.statements[match.end() : source.block_end(match.end() - 1)]
            for text in _with_macros(source, body):
                names.update(dict.fromkeys(re.findall(r"\breturn\s++&?\s*(?:\w+::)*(\w+)", text)))
                names.update(dict.fromkeys(_choosers(text)))
        names.pop(name, None)
        if names:
            yield PickerRef(name=name, names=tuple(names))


def _base_name(expression: str) -> str:
    """`kernel` of `&ns::kernel<A, B>`, of `(void*) kernel<A>` and of `reinterpret_cast<...>(kernel)`."""
    text = re.sub(
        r"^\s*+(?:\(\s*+(?:const\s+)?void\s*+(?:const\s*)?\*+\s*+\)|(?:reinterpret|static)_cast\s*+<[^>]*>|[&(\s])*",
        "",
        expression.replace("##", ""),
    )
    found = re.match(r"(?:template\s+)?((?:\w+(?:::|\.))*)(\w+)", text)
    return found[2] if found else ""


def aliases(source: CSource, name: str, before: int, reach: int = 12_000) -> list[tuple[int, str]]:
    """(position, value) of the assignments of a local kernel pointer, nearest first."""
    first = max(0, before - reach, source.code.rfind("\n}", 0, before))  # a brace in the first column ends a function
    window = source.code[first:before]
    found = [
        (first + m.start() - len(name), m[1])
        for m in _followed(window, name, _ASSIGNED)
        if window[m.start() - len(name) - 1 : m.start() - len(name)] not in {".", ">", ":"}
    ]
    return found[::-1][:16]
