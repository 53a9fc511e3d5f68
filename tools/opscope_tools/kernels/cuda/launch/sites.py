"""A CUDA launch site: grid, block, shared memory, cluster, and the template arguments that the kernel takes there.

`CudaContext` is what reading a repository's CUDA files needs; `read_sites` reads the launches of one kernel on a line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from opscope_schemas.tiling import Constraint
from opscope_schemas.tiling import Launch as LaunchFact

from opscope_tools.kernels.cuda.checks import assertions
from opscope_tools.kernels.cuda.launch.callers import Instance, callers
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.launch.host_run import Event, Host, Told
from opscope_tools.kernels.cuda.launch.host_syntax import HostFunctions
from opscope_tools.kernels.cuda.launch.host_values import Dims, Spelled, Unknown
from opscope_tools.kernels.cuda.launch.wrappers import meant, wrapper_calls
from opscope_tools.kernels.cuda.names.definitions import (
    Definition,
    KernelMacros,
    definitions,
    devices,
    launch_sites,
    launched_names,
    specialised,
    template_list,
    template_names,
)
from opscope_tools.kernels.cuda.names.functions import Library
from opscope_tools.kernels.cuda.names.template_arguments import included
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments, squeeze, whole_words
from opscope_tools.kernels.records import KernelRef, LaunchRef, MacroRef, WrapperRef
from opscope_tools.kernels.values.conditions import negated
from opscope_tools.kernels.values.expressions import Expression, Quantity, leaf, render
from opscope_tools.kernels.values.notation import product
from opscope_tools.kernels.values.quotients import rounded_down


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
    #: names of the repository's kernels
    kernels: frozenset[str] = frozenset()
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
    def host(self) -> Host:
        """Host functions, run once each."""
        wrapping = {w.name: _as_macro(w) for several in self.wrappers.values() for w in several if w.macro}
        functions = HostFunctions(self.load, {**wrapping, **self.macros}, self.library.headers, self.library.included)
        return Host(functions, self._launcher, self.library, self.kernels)

    def _launcher(self, name: str, arguments: int, file: str) -> tuple[str, int] | None:
        """Where the function lies that launches what a call hands it."""
        several = self.wrappers.get(name, ())
        found = meant(several, arguments, file, self.around) if several else None
        return (found.file, found.position) if found is not None and not found.macro else None

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


def _as_macro(wrapper: WrapperRef) -> MacroRef:
    return MacroRef(
        name=wrapper.name, parameters=wrapper.parameters, body=wrapper.macro, file=wrapper.file, line=wrapper.line
    )


#: launches on one line that are read: more is generated text
MOST_ON_A_LINE = 400
#: different configurations of one launch, and template arguments of one configuration, that are listed
_CONFIGURATIONS, _INSTANCES = 16, 256


@dataclass(frozen=True)
class CudaSite:
    """One launch of a kernel, with what stands around it."""

    launch: LaunchFact
    #: template arguments of each spelling of the kernel, settled where they can be; none where they are defaults or deduced
    instances: tuple[tuple[str, ...], ...]
    #: template parameter of the launching function -> the values that its callers give
    given: dict[str, list[Instance]]
    constraints: tuple[Constraint, ...]
    #: of each way to the launch, what CuTe makes of the kernel's arguments
    handed: tuple[tuple[Any, ...], ...] = ()
    #: and of the template arguments of each spelling
    typed: tuple[tuple[Any, ...], ...] = ()
    #: how many arguments the kernel is given, on each way for which that is told
    counts: frozenset[int] = frozenset()


def read_sites(reference: LaunchRef, kernel: KernelRef, context: CudaContext) -> list[CudaSite]:
    """The launches of one line that mean the kernel; none where the file is gone."""
    source = context.load(reference.file)
    if source is None:
        return []
    found = []
    for start, first, last, form in context.launches(source, reference.line)[:MOST_ON_A_LINE]:
        through = context.wrappers.get(form)
        if kernel.name in launched_names(source, start, first, last, form, through[0].kernel if through else 0):
            context.checkpoint()
            found += _sites(source, _Place(start, first, last, form), kernel, context)
    return found


@dataclass(frozen=True)
class _Place:
    """Where a launch is written: its start, its arguments, and its form."""

    start: int
    first: int
    last: int
    form: str

    @property
    def opening(self) -> int:
        return self.first - (3 if self.form == "<<<>>>" else 1)


def _sites(source: CSource, place: _Place, kernel: KernelRef, context: CudaContext) -> list[CudaSite]:
    """A launch as running the functions that hold it tells; one entry for each configuration that it may have."""
    note = ""
    if source.in_define(place.start):
        events, note = _of_macro(source, place, context)
    else:
        events = [e for e in context.host.around(source, place.opening).events if e.place == place.opening]
    through = _wrapper(source, place, context)
    if through is not None and through.macro:
        events = [e for e in context.host.around(source, place.opening).events if e.place == place.start]
    if through is not None:
        note = f"launched by {place.form} ({through.file}:{through.line})"
    meant = [e for e in events if not e.certain or any(s.name == kernel.name for s in e.kernels)]
    if events and not meant:
        return []  # it launches other kernels
    groups: dict[tuple[object, ...], list[tuple[Event, list[Spelled]]]] = {}
    for event in meant:
        own = [s for s in event.kernels if s.name == kernel.name]
        key = (*(repr(p.value) for p in (event.grid, event.block, event.shared, event.cluster)), event.place)
        groups.setdefault(key, []).append((event, own))
    if not groups:
        return [_site(source, place, [(_unread(source, place, context), [])], note, kernel, context)]
    return [_site(source, place, g, note, kernel, context) for g in list(groups.values())[:_CONFIGURATIONS]]


def _wrapper(source: CSource, place: _Place, context: CudaContext) -> WrapperRef | None:
    several = context.wrappers.get(place.form, ())
    arguments = split_arguments(source.code[place.first : place.last]) if several else []
    return meant(several, len(arguments), source.path, context.around) if several else None


def _of_macro(source: CSource, place: _Place, context: CudaContext) -> tuple[list[Event], str]:
    """The launches that a macro writes, wherever functions of its file call it."""
    index = next(i for i, (first, last) in enumerate(source.defines) if first <= place.start < last)
    macro, (first, _) = source.macros[index], source.defines[index]
    number = sum(first <= s[0] < place.start for s in launch_sites(source))
    called = {macro.name}
    while more := {m.name for m in source.macros if m.name not in called and called & set(re.findall(r"\w+", m.body))}:
        called |= more
    runs: dict[tuple[int, int, int, str], tuple[Event, ...]] = {}
    for position, _ in whole_words(source.statements, *called):
        if (around := source.function_around(position)) is not None and around not in runs and len(runs) < _MACRO_CALLS:
            runs[around] = context.host.around(source, position).events
    found = [e for events in runs.values() for e in events if e.origin is not None and e.origin[0] == macro.name]
    places = sorted({e.origin[1] for e in found if e.origin is not None})
    mine = [e for e in found if number < len(places) and e.origin == (macro.name, places[number])]
    return mine, f"written by the macro {macro.name} ({macro.file}:{macro.line})"


#: functions in which a macro that launches is read
_MACRO_CALLS = 64


def _unread(source: CSource, place: _Place, context: CudaContext) -> Event:
    """A launch that no run met: as it is written."""
    arguments = split_arguments(source.code[place.first : place.last])
    callee = squeeze(source.code[place.start : place.opening])
    several = context.wrappers.get(place.form, ())
    if several:
        told = Told(f"{place.form}()", leaf(f"{place.form}()"))
        callee = arguments[several[0].kernel] if several[0].kernel < len(arguments) else callee
        return Event(place.start, None, Told(callee), (), False, Told(), Told(), told, Told(), Told(), ())
    parts = [Told(a, formula(a, context.host.names(source))) for a in arguments]
    parts = [*(parts if place.form == "<<<>>>" else []), *[Told()] * 4]
    return Event(place.start, None, Told(callee), (), False, parts[0], parts[1], parts[2], parts[3], Told(), ())


def dimensions(told: Told, what: str, *, through: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(a formula along each axis, what stayed unresolved) of a grid or block, none of which is below none."""
    value = told.value
    if isinstance(value, Dims) and None not in value.axes:
        return tuple(render(rounded_down(a)) for a in value.axes), ()
    if isinstance(value, Unknown) and value.reason:
        return (), (f"{told.text or what}: {value.reason}",)
    if isinstance(value, Quantity) and value.run_time:
        written = value.name
        simple = re.fullmatch(r"\w+", written) is not None
        if through and (written == told.text or not simple):
            return (), (what,)
        return (value.text,), (written,) if not simple or not told.uses else ()
    if isinstance(value, int | Expression):
        return (render(rounded_down(value)),), ()
    return (), (told.text or what,)


def _site(
    source: CSource, place: _Place, met: Sequence[tuple[Event, list[Spelled]]], note: str, kernel: KernelRef, context: CudaContext
) -> CudaSite:  # fmt: skip
    event = met[0][0]
    at = event.place if note.startswith("written") else place.start
    heading, brace, _, function = source.function_around(at) or (0, 0, 0, "")
    outer = template_list(source, heading, brace)[0]
    through = place.form in context.wrappers
    grid, unresolved = dimensions(event.grid, "grid", through=through)
    block, block_unresolved = dimensions(event.block, "block", through=through)
    primary = _primary(kernel, context)
    instances = list(dict.fromkeys(deduced(s.arguments, e.types, primary) for e, own in met for s in own))[:_INSTANCES]
    threads = math.prod(int(t) for t in block) if block and all(t.isdigit() for t in block) else None
    macro = source.in_define(place.start)
    told = (event.grid, event.block, event.shared, event.cluster)
    cluster = dimensions(event.cluster, "cluster", through=False)[0] if event.cluster.text else ()
    ways = [[*e.way, *(s.way if len(own) == 1 else ())] for e, own in met for s in own or [Spelled("", "")]]
    around = [step for step in ways[0] if all(step in way for way in ways[1:])]
    spelled = dict.fromkeys(s.arguments for _, own in met for s in own)
    texts = [f"{kernel.name}<{', '.join(i)}>" for i in list(spelled)[:_INSTANCES] if i]
    if len(texts) != 1:  # as written, where one text stands for several
        texts = list({s.text for _, own in met for s in own}) if texts else []
    written = texts[0] if len(texts) == 1 else event.callee.text
    launch = LaunchFact(
        line=source.line(at),
        file="" if source.path == kernel.file else source.path,
        function=function or ("a macro" if macro else ""),
        basis="evaluated",
        kernel=squeeze(re.sub(r" ?([<>]) ?", r"\1", squeeze(written)))[:200],
        expression=event.grid.text,
        dimensions=grid,
        num_tiles=product(grid),
        block=block,
        threads=threads,
        shared_memory=_bytes(event.shared),
        stream=render(event.stream.value).strip("{}")
        if through and isinstance(event.stream.value, Expression)
        else event.stream.text,
        cluster=", ".join(cluster),
        reached_when=tuple(dict.fromkeys(test if holds else negated(test) for test, holds in around)),
        definitions=tuple(dict.fromkeys((*([note] if note else []), *(u for t in told[:3] for u in t.uses.values())))),
        unresolved=tuple(dict.fromkeys((*unresolved, *block_unresolved))),
    )
    checks = tuple(assertions(source, heading, at, launch.file, function)) if function else ()
    used = {a for instance in instances for a in instance}
    near = context.around(source.path) if used & set(outer) else []
    given = {n: callers(context.host, near, function, i) for i, n in enumerate(outer) if n in used}
    return CudaSite(
        launch,
        tuple(instances),
        given,
        checks,
        tuple(e.handed for e, _ in met),
        tuple(s.cute for _, own in met for s in own if s.cute),
        frozenset(e.given for e, _ in met if e.given is not None),
    )


def _primary(kernel: KernelRef, context: CudaContext) -> Definition | None:
    """The one template of a kernel's name in its file."""
    source = context.load(kernel.file)
    every = context.definitions(source, False) if source is not None else ()
    found = [one for one in every if one.name == kernel.name]
    templates = [one for one in found if one.template]
    plain = [one for one in found if not one.template and source is not None and not specialised(one, source)]
    return templates[0] if len(templates) == 1 and not plain else None


def deduced(given: tuple[str, ...], types: tuple[str, ...], primary: Definition | None) -> tuple[str, ...]:
    """The template arguments of a launch, those that it leaves to its arguments worked out as far as their types tell."""
    template = split_arguments(primary.template) if primary is not None and types else []
    made, told = list(given), len(given)
    for name, text in list(zip(template_names(", ".join(template)), template, strict=True))[len(given) :]:
        before, _, default = text.partition("=")
        found = _from_types(name, types, primary) if primary is not None and "..." not in before else set()
        if len(found) != 1 and not default:
            break
        made.append(found.pop() if found and len(found) == 1 else squeeze(default))
        told = told if made[-1] == squeeze(default) else len(made)
    return tuple(made[:told])


def _from_types(name: str, types: tuple[str, ...], primary: Definition) -> set[str]:
    """What a template parameter is for arguments of these types: `float` for `const T*` of `float*`."""
    found = set[str]()
    for text, kind in zip(split_arguments(primary.parameters), types, strict=False):
        pattern = rf"(?:const\s+)?{re.escape(name)}(?:\s+const)?\s*(\**)(?:\s|&|\bconst\b|\b_*restrict_*\b)*\w*"
        match = re.fullmatch(pattern, text.partition("=")[0].strip()) if name else None
        if match is not None and kind and kind.endswith(match[1]):
            found.add(kind.removesuffix(match[1]))
    return found


def _bytes(told: Told) -> str:
    """Dynamic shared memory; what is not told is not 0."""
    if not told.text and told.value is None:
        return "0"
    return render(told.value) if isinstance(told.value, int | Expression) else render(leaf(told.text))
