"""A CUDA launch site: grid, block, shared memory, cluster, and the template arguments that the kernel takes there.

`CudaContext` is what reading a repository's CUDA files needs; `read_sites` reads the launches of one kernel on a line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from opscope_schemas.tiling import Constraint, Launch

from opscope_tools.kernels.cuda.checks import assertions
from opscope_tools.kernels.cuda.launch import cutlass as cuda_cutlass
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.launch.host_text import Names, dim3, enclosing_function, member
from opscope_tools.kernels.cuda.launch.wrappers import configuration, meant, wrapper_calls
from opscope_tools.kernels.cuda.names.definitions import (
    Definition,
    KernelMacros,
    aliases,
    definitions,
    devices,
    expand,
    launch_sites,
    launched_names,
)  # fmt: skip
from opscope_tools.kernels.cuda.names.functions import Library
from opscope_tools.kernels.cuda.names.template_arguments import Instance, callers, enclosing_template, included
from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    split_arguments,
    squeeze,
    whole_words,
)
from opscope_tools.kernels.host.worlds import product, render
from opscope_tools.kernels.records import KernelRef, LaunchRef, MacroRef, WrapperRef


@dataclass
class CudaContext:
    """What describing needs beside the kernel."""

    load: Callable[[str], CSource | None]
    macros: dict[str, MacroRef]
    kernel_macros: KernelMacros
    device_functions: dict[str, list[KernelRef]]
    checkpoint: Callable[[], None]
    #: files of the repository that hold kernels or launches, where callers are looked for
    files: tuple[str, ...] = ()
    #: functions and macros of the repository that launch a kernel that they are given
    wrappers: Mapping[str, tuple[WrapperRef, ...]] = field(default_factory=dict)
    #: compute capability that is asked for, as `__CUDA_ARCH__` gives it; 0: none is
    capability: int = 0
    _around: dict[str, list[CSource]] = field(default_factory=dict)
    _found: dict[tuple[str, bool], list[Definition]] = field(default_factory=dict)
    _launches: dict[str, dict[int, list[tuple[int, int, int, str]]]] = field(default_factory=dict)

    def definitions(self, source: CSource, device: bool) -> list[Definition]:
        """The kernels, or the device functions, of a file."""
        key = (source.path, device)
        if key not in self._found:
            self._found[key] = list(devices(source) if device else definitions(source, self.kernel_macros))
        return self._found[key]

    def launches(self, source: CSource, line: int) -> list[tuple[int, int, int, str]]:
        """The launch sites of a line, as `launch_sites` gives them."""
        if source.path not in self._launches:
            table = self._launches.setdefault(source.path, {})
            sites = {site[1]: site for site in wrapper_calls(source, self.wrappers)}
            sites.update({site[1]: site for site in launch_sites(source)})  # a known form says more
            for site in sorted(sites.values()):
                table.setdefault(source.line(site[0]), []).append(site)
        return self._launches[source.path].get(line, [])

    @cached_property
    def library(self) -> Library:
        """Functions that kernels call, parsed once."""
        return Library(self.load, self.definitions, self.device_functions, self.macros, self.files, self.capability)

    def around(self, path: str) -> list[CSource]:
        """Where callers and traits of a launch are looked for: the file, its includes, the files of its folder."""
        if path not in self._around:
            self._around[path] = self._look_around(path)
        return self._around[path]

    def _look_around(self, path: str) -> list[CSource]:
        source = self.load(path)
        if source is None:
            return []
        folder = path.rpartition("/")[0]
        found = {s.path: s for s in included(source, self.load)}
        for other in self.files:
            if other.rpartition("/")[0] == folder and other not in found and len(found) < 80:
                loaded = self.load(other)
                if loaded is not None:
                    found[other] = loaded
        return list(found.values())


#: calls of a macro that launches which are read
_MACRO_CALLS = 64
#: launches on one line that are read: more is generated text
MOST_ON_A_LINE = 400


@dataclass(frozen=True)
class CudaSite:
    launch: Launch
    #: template arguments of each spelling of the kernel, settled where they can be
    instances: tuple[tuple[str, ...], ...]
    #: template parameter of the launching function -> the values that its callers give
    given: dict[str, list[Instance]]
    constraints: tuple[Constraint, ...]


def read_sites(reference: LaunchRef, kernel: KernelRef, context: CudaContext) -> list[CudaSite]:
    source = context.load(reference.file)
    if source is None:
        return []
    found = []
    for start, first, last, form in context.launches(source, reference.line)[:MOST_ON_A_LINE]:
        through = context.wrappers.get(form)
        if kernel.name in launched_names(source, start, first, last, form, through[0].kernel if through else 0):
            context.checkpoint()
            written = _Written(
                start, source.code[start : first - (3 if form == "<<<>>>" else 1)], source.code[first:last]
            )
            expanded = list(_expanded(source, start, form, kernel.name)) if source.in_define(start) else []
            found += [_site(source, w, form, kernel, context) for w in expanded or [written]]
    return found


@dataclass(frozen=True)
class _Written:
    """A launch as the compiler sees it: where, the callee and the arguments, and the macro that writes it."""

    place: int
    callee: str
    arguments: str
    macro: str = ""


def _expanded(source: CSource, start: int, form: str, kernel: str) -> Iterator[_Written]:
    """The launch that a macro writes, once per call of the macro in this file."""
    index = next(i for i, (first, last) in enumerate(source.defines) if first <= start < last)
    macro, (first, last) = source.macros[index], source.defines[index]
    if macro.parameters is None:
        return
    inside = [s for s in launch_sites(source) if first <= s[0] < last and s[3] == form]
    number = [s[0] for s in inside].index(start) if start in [s[0] for s in inside] else -1
    for place, _ in whole_words(source.statements, macro.name)[:_MACRO_CALLS]:
        opening = place + len(macro.name)
        opening += len(source.statements[opening:]) - len(source.statements[opening:].lstrip())
        closing = matching(source.statements, opening) if source.statements[opening : opening + 1] == "(" else -1
        if closing < 0 or number < 0:
            continue
        made = CSource("", expand(macro, split_arguments(source.code[opening + 1 : closing])))
        sites = [s for s in launch_sites(made) if s[3] == form]
        if len(sites) == len(inside) and kernel in launched_names(made, *sites[number]):
            begin, low, high, _ = sites[number]
            told = f"written by the macro {macro.name} ({macro.file}:{macro.line})"
            yield _Written(place, made.code[begin : low - 3], made.code[low:high], told)


def _site(source: CSource, written: _Written, form: str, kernel: KernelRef, context: CudaContext) -> CudaSite:
    start = written.place
    heading, _, function = enclosing_function(source, start)
    outer = enclosing_template(source, heading, start)
    compile_time = frozenset(outer)
    names = Names(source, heading, start, compile_time, context.macros)
    arguments = split_arguments(written.arguments)
    several = context.wrappers.get(form, ())
    through = meant(several, len(arguments), source.path, context.around) if several else None
    cluster = ""
    if several and through is None:
        callee, grid, block, shared, stream = arguments[several[0].kernel], "", "", f"{form}()", ""
    elif through is not None:
        callee, grid, block, shared, stream = configuration(through, arguments, names, context.load)
    elif form.startswith("cutlass::"):
        callee, grid, block, shared, stream, cluster = cuda_cutlass.configuration(
            form, written.callee, arguments, source.statements[heading:start]
        )
    else:
        callee, grid, block, shared, stream = _configuration(form, written.callee, arguments, names)
    dimensions, unresolved = dim3(grid, names) if grid else ((), ("grid",))
    grid_used = tuple(names.used.values())
    names.forget()
    threads_by_axis, block_unresolved = dim3(block, names) if block else ((), ("block",))
    shown_shared = render(formula(shared, names)) if shared else "0"
    instances = _instances(source, callee, kernel.name, start, names)
    file = "" if source.path == kernel.file else source.path
    threads: int | None = None
    if threads_by_axis and all(t.isdigit() for t in threads_by_axis):
        threads = 1
        for t in threads_by_axis:
            threads *= int(t)
    macro = next((d for d in source.macros if source.in_define(start) and d.line <= source.line(start)), None)
    wrapped = [f"launched by {form} ({through.file}:{through.line})"] if through is not None else []
    wrapped += [written.macro] if written.macro else []
    spelled = [f"{kernel.name}<{', '.join(i)}>" for i in instances if i]
    launch = Launch(
        line=source.line(start),
        file=file,
        function=function or ("a macro" if macro else ""),
        basis="evaluated",
        kernel=spelled[0] if len(spelled) == 1 else squeeze(callee)[:200],
        expression=squeeze(grid),
        dimensions=dimensions,
        num_tiles=product(dimensions),
        block=threads_by_axis,
        threads=threads,
        shared_memory=shown_shared,
        stream=squeeze(stream),
        cluster=", ".join(dim3(cluster, names)[0]) if cluster else _cluster(names, form),
        definitions=tuple(dict.fromkeys((*wrapped, *grid_used, *names.used.values()))),
        unresolved=tuple(dict.fromkeys((*unresolved, *block_unresolved))),
    )
    checks = tuple(assertions(source, heading, start, file, function)) if heading else ()
    used = {a for instance in instances for a in instance}
    around = context.around(source.path) if used & compile_time else []
    given = {name: callers(around, function, index) for index, name in enumerate(outer) if name in used}
    return CudaSite(launch, tuple(instances), given, checks)


def _configuration(form: str, callee: str, arguments: list[str], names: Names) -> tuple[str, str, str, str, str]:
    """(callee, grid, block, shared bytes, stream) of any form of launch."""
    padded = [*arguments, "", "", "", "", "", ""]
    if form == "<<<>>>":
        return squeeze(callee), padded[0], padded[1], padded[2], padded[3]
    if form in {"cudaLaunchKernelEx", "cudaLaunchKernelExC"}:
        variable = padded[0].lstrip("&").strip()
        parts = {f: member(variable, f, names) for f in ("gridDim", "blockDim", "dynamicSmemBytes", "stream")}
        for axis in ("gridDim", "blockDim"):
            components = [member(variable, rf"{axis}\s*+\.\s*{c}", names) for c in "xyz"]
            if any(components):
                if parts[axis]:  # set whole and in parts: which comes last is not followed
                    parts[axis] = f"{variable}.{axis}"
                else:
                    parts[axis] = f"dim3({', '.join(c or '1' for c in components)})"
        return padded[1], parts["gridDim"], parts["blockDim"], parts["dynamicSmemBytes"], parts["stream"]
    if form == "hipLaunchKernelGGL":
        return padded[0], padded[1], padded[2], padded[3], padded[4]
    return padded[0], padded[1], padded[2], padded[4], padded[5]


def _cluster(names: Names, form: str) -> str:
    """Cluster dimensions from the launch attributes, where a launch has them."""
    if not form.startswith("cudaLaunchKernelEx"):
        return ""
    values = [
        re.compile(rf"\bclusterDim\s*+\.\s*{axis}\s*+=(?!=)\s*+([^;]+);").findall(
            names.source.statements, names.start, names.position
        )
        for axis in "xyz"
    ]
    return ", ".join(squeeze(v[-1]) for v in values if v)


def _instances(source: CSource, callee: str, kernel: str, start: int, names: Names) -> list[tuple[str, ...]]:
    """Template arguments of every spelling of the kernel that the launch may mean."""
    spellings = [callee]
    if not re.search(rf"\b{re.escape(kernel)}\b", callee):
        base = re.match(r"[&(\s]*(\w+)", callee)
        spellings = [value for _, value in aliases(source, base[1], start)] if base else []
    found: dict[tuple[str, ...], None] = {}
    for spelling in spellings:
        match = re.search(rf"\b{re.escape(kernel)}\s*+<", spelling)
        closing = matching_angle(spelling, match.end() - 1) if match else -1
        if match and closing > 0:
            inner = split_arguments(spelling[match.end() : closing])
            found.setdefault(tuple(_template_argument(a, names) for a in inner), None)
    return list(found)


def _template_argument(text: str, names: Names) -> str:
    """A settled number where the argument is one, else as written."""
    if text in {"true", "false"}:
        return text
    value = formula(text, names)
    return str(value) if isinstance(value, int) else text
