"""Description of one CUDA kernel: its definition, its launches, and the values that its template parameters take.

Order: the description, the parameters, the launches, the template arguments, what measures a tile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType
from typing import Any

from opscope_schemas.tiling import (
    BoundValue,
    Constexpr,
    KernelTiling,
    Launch,
    MemoryOperation,
    Parameter,
    TileSize,
)  # fmt: skip

from opscope_tools.kernels.cuda.handed import Handed, handed, tiles
from opscope_tools.kernels.cuda.launch.cutlass import operators
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.launch.sites import CudaContext, CudaSite, read_sites
from opscope_tools.kernels.cuda.names.definitions import Definition, specialised
from opscope_tools.kernels.cuda.names.template_arguments import Members, members
from opscope_tools.kernels.cuda.run.kernel import run_cuda
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments, squeeze
from opscope_tools.kernels.projections import cuda_lists as lists
from opscope_tools.kernels.projections import lines as line_lists
from opscope_tools.kernels.projections.cost import common_tiles, cuda_cost
from opscope_tools.kernels.records import KernelRef, LaunchRef
from opscope_tools.kernels.run.log import Log, Size
from opscope_tools.kernels.values.expressions import leaf
from opscope_tools.kernels.values.notation import product

_NAMED = 12
#: expressions that are named for a tile size
_USES = 6
#: classes of traits up to which their layouts are listed, beside their sizes
_SPELLED = 4
#: launches of one kernel that are described
_LAUNCHES = 300


def describe_cuda(
    reference: KernelRef, launches: Sequence[LaunchRef], context: CudaContext, given: Mapping[str, object], sizes: Mapping[str, int]
) -> KernelTiling:  # fmt: skip
    """Everything source says about the kernel at `reference`.

    `given`: template parameters that decide branches; `sizes`: numbers for the quantities of the cost's formulas.
    """
    source = context.load(reference.file)
    found = None if source is None else _definition_at(reference, source, context)
    if source is None or found is None:
        raise reference.moved()
    return described(reference, found, source, launches, context, given, sizes)


def described(
    reference: KernelRef, found: Definition, source: CSource, launches: Sequence[LaunchRef], context: CudaContext,
    given: Mapping[str, object], sizes: Mapping[str, int], known: Mapping[int | str, Any] = MappingProxyType({}),
) -> KernelTiling:  # fmt: skip
    """The same of a definition that is found already. `known`: what parameters are, by their place, whatever launches hand."""
    template = _template_parameters(found, source)
    parameters = _parameters(found, source)
    lines = {(launch.file, launch.line): launch for launch in launches}  # a line's launches are read together
    read = [site for launch in list(lines.values())[:_LAUNCHES] for site in read_sites(launch, reference, context)]
    read = [site for one in read if (site := _meaning(one, found, source, context)) is not None]
    sites = read[:_LAUNCHES]
    cut = [f"Only the first {_LAUNCHES} launches are described."] if len(lines) > _LAUNCHES or read[_LAUNCHES:] else []
    grids = tuple(site.launch for site in sites)
    filled = cache(partial(_filled, template, partial(context.library.settled, source)))
    constexprs = tuple(_with_values(parameter, index, sites, filled) for index, parameter in enumerate(template))
    spelled_traits = _spelled(constexprs, launches, context)
    of_cute = handed(parameters, constexprs, sites, spelled_traits)
    of_cute = replace(of_cute, values={**of_cute.values, **known})
    deduced = _deduced(template, found.parameters, sites)
    log = _run(
        found, source, [c for c in constexprs if c.name not in deduced], (of_cute.chosen,) if of_cute.chosen else grids, context, given, sizes, of_cute,
        kernel=reference.role == "kernel",
    )  # fmt: skip
    if (one := of_cute.chosen) is not None:
        log.assumptions.setdefault(
            f"Launched as at {one.file or reference.file}:{one.line}: others hand other layouts."
        )
    every = log.events
    loads, stores = lists.loads_and_stores(every)
    spelled = operators(constexprs, parameters, grids, reference.file, context.around)
    persistent = len(log.shared_tiles) == 1 and all(len(g.dimensions) == 1 for g in grids)
    attributes = re.findall(r"__\w+__\s*+\([^()]*(?:\([^()]*\)[^()]*)*\)|__\w+__", found.attributes)
    return KernelTiling(
        id=reference.id,
        name=reference.name,
        language="cuda",
        role="kernel" if reference.role == "kernel" else "device_function",
        file=reference.file,
        line=reference.line,
        end_line=reference.end_line,
        decorators=tuple(attributes),
        macro=found.macro,
        parameters=tuple(parameters),
        constexpr=constexprs,
        tile=(*_tiles(log, constexprs), *tiles(parameters, sites), *_traits(spelled_traits), *spelled.tiles),
        grid=grids,
        num_tiles=next(iter(log.shared_tiles)) if persistent else common_tiles(grids),
        mapping=lists.mapping(every),
        num_warps=tuple(warps(grids, found, source)),
        num_stages=tuple(_stages(constexprs)),
        loads=loads,
        stores=stores,
        shared_memory=lists.shared_memory(every),
        loops=lists.loops(every),
        instructions=lists.instructions(every),
        calls=lists.calls(every, reference.file),
        cost=cuda_cost(log, grids, sizes) if reference.role == "kernel" else None,
        notes=(
            *_notes(reference, found, grids, (*loads, *stores), lists.unresolved(every)),
            *spelled.left.values(),
            *cut,
            *(
                [f"Blocks are persistent: {common_tiles(grids) or 'those of the grid'} of them share the tiles."]
                if persistent
                else []
            ),
        ),
        constraints=(*line_lists.constraints(log), *dict.fromkeys(c for s in sites for c in s.constraints)),
    )


def _run(
    found: Definition, source: CSource, constexprs: Sequence[Constexpr], grids: tuple[Launch, ...], context: CudaContext,
    given: Mapping[str, object], sizes: Mapping[str, int], of_cute: Handed, *, kernel: bool,
) -> Log:  # fmt: skip
    """What running the body abstractly meets; `constexprs`: the template parameters whose values are all told."""
    settled: dict[str, object] = {}
    for parameter in constexprs:
        values = {v.value for v in parameter.values}
        if len(values) == 1 and "..." not in parameter.type:
            (value,) = values
            settled[parameter.name] = _plain(value)
    compile_time = frozenset(c.name for c in _template_parameters(found, source))
    settled |= {name: _plain(value) if isinstance(value, str) else value for name, value in {**sizes, **given}.items()}
    library = context.library.around(source, found.body)
    body = _with_callees(source, found, context)
    block = block_sizes(grids, body) if kernel else {axis: leaf(f"blockDim.{axis}") for axis in "xyz"}
    return run_cuda(library.function(source, found), library, block, settled, compile_time, of_cute.values)


def _with_callees(source: CSource, found: Definition, context: CudaContext) -> str:
    """The text of a body and of the functions of its file that it names, and these name."""
    others = {d.name: source.statements[d.body : d.end] for d in context.definitions(source, True)}
    text, pending = "", [source.statements[found.body : found.end]]
    while pending:
        part = pending.pop()
        text += part
        pending += [others.pop(name) for name in set(re.findall(r"[A-Za-z_]\w*", part)) & set(others)]
    return text


def _plain(value: str) -> int | str:
    """A template argument as a number where it is one; a truth as C++ or Python spells it."""
    if value in {"true", "false", "True", "False"}:
        return int(value.lower() == "true")
    return int(value) if re.fullmatch(r"-?\d+", value) else value


def block_sizes(grids: Sequence[Launch], body: str) -> dict[str, Any]:
    """Threads along x, y and z: the number that all launches give, else `blockDim`; axes that no source names are 1."""
    sizes: dict[str, Any] = {}
    for index, axis in enumerate("xyz"):
        given = {g.block[index] if index < len(g.block) else "1" for g in grids if g.block}
        value = next(iter(given)) if len(given) == 1 and all(g.block for g in grids) else ""
        if (
            not value
            and axis != "x"
            and not grids
            and not re.search(rf"\b(?:threadIdx|blockDim)\s*+\.\s*{axis}\b", body)
        ):
            value = "1"
        sizes[axis] = int(value) if value.isdigit() else leaf(f"blockDim.{axis}")
    return sizes


def _definition_at(reference: KernelRef, source: CSource, context: CudaContext) -> Definition | None:
    for found in context.definitions(source, reference.role != "kernel"):
        if found.name == reference.name and source.line(found.name_position) == reference.line:
            return found
    return None


def _notes(
    reference: KernelRef, found: Definition, grids: tuple[Launch, ...], accesses: Sequence[MemoryOperation], named: list[str]
) -> list[str]:  # fmt: skip
    notes = []
    if reference.role == "kernel" and not grids:
        notes.append("No launch of it was recognised in this repository.")
    if found.macro:
        notes.append(f"The definition is written by the macro {found.macro}.")
    if len({g.num_tiles for g in grids if g.num_tiles}) > 1:
        notes.append("Launch sites use different grids; each entry of `grid` has its own num_tiles.")
    narrow = [
        f"{' x '.join(g.block)} (line {g.line})" for g in grids
        if len(wide := g.block[next((n for n, size in enumerate(g.block) if size != "1"), 0) :]) > 1 and not _wide(wide[0])
    ]  # fmt: skip
    if narrow and any(o.coalesced for o in accesses):
        notes.append(
            "Steps and coalescing are of lanes that differ in threadIdx.x; a warp of the block "
            f"{', '.join(dict.fromkeys(narrow))} may span several rows."
        )
    if named:
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        notes.append(
            f"accesses through {', '.join(named[:_NAMED])}{more} are not resolved: loads and stores are incomplete"
        )
    if not accesses:
        notes.append(
            "No access through a pointer parameter was recognised; those through CuTe or CUTLASS are instructions."
        )
    return notes


def _wide(size: str) -> bool:
    """Whether whole warps lie along the first axis of a block."""
    return size.isdigit() and int(size) % 32 == 0


# parameters ----------------------------------------------------------------------------------------------------------


def _declared(text: str) -> tuple[str, str, str]:
    """(type, name, default) of one parameter declaration."""
    before, _, default = text.partition("=")
    found = re.match(r"^(.*?[\s*&>.])([A-Za-z_]\w*)\s*((?:\[[^\]]*\])*)$", before.strip(), re.DOTALL)
    if found is None:
        return before.strip(), "", default.strip()
    return squeeze(found[1] + found[3]), found[2], default.strip()


def _parameters(found: Definition, source: CSource) -> list[Parameter]:
    position, parameters = found.parameters_position, []
    for text in split_arguments(found.parameters):
        kind, name, default = _declared(text)
        at = (
            re.compile(rf"\b{re.escape(name)}\b").search(source.statements, position, found.body)
            if name and not found.macro
            else None
        )
        if at is not None:
            position = at.end()
        parameters.append(
            Parameter(name=name or kind, type=kind if name else "", pointer="*" in kind or "[" in kind, default=default,
                      line=source.line(at.start() if at else found.name_position))
        )  # fmt: skip
    return parameters


def _template_parameters(found: Definition, source: CSource) -> list[Constexpr]:
    position, parameters = found.start, []
    for text in split_arguments(found.template):
        kind, name, default = _declared(text)
        at = re.compile(rf"\b{re.escape(name)}\b").search(source.statements, position, found.body) if name else None
        if at is not None:
            position = at.end()
        parameters.append(
            Constexpr(
                name=name or kind,
                kind="template",
                type=kind,
                default=default,
                line=source.line(at.start() if at else found.start),
            )
        )
    return parameters


# template arguments and traits -----------------------------------------------------------------------------------------


def _filled(template: Sequence[Constexpr], constant: Callable[[str], Any], instance: tuple[str, ...]) -> list[str]:
    """The template's arguments in order: those that are given, then defaults, worked out from constants of the file and those before."""
    given = list(instance[: len(template)])
    before = dict(zip((one.name for one in template), given, strict=False))

    def named(name: str) -> Any:
        return formula(before[name], constant) if name in before else constant(name)

    for parameter in template[len(given) :]:
        text = parameter.default
        if not re.match(r"(?:typename|class|bool)\b", parameter.type) and re.search(r"[A-Za-z_]", text):
            told = formula(text, named)
            text = (
                str(told) if isinstance(told, int) and 0 <= told < 2**31 else text
            )  # others a type may hold otherwise
        before[parameter.name] = text
        given.append(text)
    return given


def _meaning(site: CudaSite, found: Definition, source: CSource, context: CudaContext) -> CudaSite | None:
    """A launch as far as it means this definition, of several of a name: by its number of arguments, and by specialisations."""
    others = [d for d in context.definitions(source, False) if d.name == found.name and d.body != found.body]
    if not others:
        return site
    most = len(split_arguments(found.parameters))
    least = sum("=" not in parameter for parameter in split_arguments(found.parameters))
    if site.counts and not any(least <= count <= most for count in site.counts):
        return None
    own, special = specialised(found, source), {specialised(d, source) for d in others} - {()}
    defaults = next((split_arguments(d.template) for d in (found, *others) if d.template), [])
    whole = {i: (*i, *(squeeze(p.partition("=")[2]) for p in defaults[len(i) :])) for i in site.instances}
    kept = tuple(i for i in site.instances if (whole[i] == own if own else whole[i] not in special))
    return replace(site, instances=kept) if kept or not site.instances else None


def _deduced(template: Sequence[Constexpr], parameters: str, sites: Sequence[CudaSite]) -> set[str]:
    """Template parameters that some launch leaves to what its arguments are: their types are not read, so that these have no one value."""
    fewest = min((len(instance) for site in sites for instance in site.instances), default=len(template))
    words = set(re.findall(r"[A-Za-z_]\w*", parameters))
    return {one.name for one in template[fewest:] if one.name in words or not one.default} - {
        one.name for one in template if "..." in one.type
    }


def _with_values(
    parameter: Constexpr, index: int, sites: list[CudaSite], filled: Callable[[tuple[str, ...]], list[str]]
) -> Constexpr:
    values: list[BoundValue] = []
    for site in sites:
        for instance in site.instances:
            given = ", ".join(instance[index:]) if "..." in parameter.type else filled(instance)[index]
            bound = [
                BoundValue(line=i.line, file=i.file, value=i.value, origin="instantiation", basis="evaluated")
                for i in site.given.get(given, [])
            ] or [
                BoundValue(
                    line=site.launch.line, file=site.launch.file, value=given, origin="launch", basis="evaluated"
                )
            ]
            values.extend(b for b in bound if given and b.value not in [v.value for v in values])
    if not values and parameter.default:
        values.append(BoundValue(line=parameter.line, value=filled(())[index], origin="default"))
    return parameter.model_copy(update={"values": tuple(values)})


def _spelled(
    constexprs: Iterable[Constexpr], launches: Iterable[LaunchRef], context: CudaContext
) -> list[tuple[Constexpr, str, Members]]:
    """The traits classes that are passed as template arguments, each as it is spelled."""
    spelled = [(c, v.value) for c in constexprs for v in c.values if re.match(r"^[\w:]+\s*+<", v.value)]
    files = dict.fromkeys(launch.file for launch in launches)
    sources = {s.path: s for f in files for s in context.around(f)} if spelled else {}
    read = ((c, text, members(list(sources.values()), text)) for c, text in spelled)
    return [(c, text, found) for c, text, found in read if found is not None]


def _traits(spelled: Sequence[tuple[Constexpr, str, Members]]) -> list[TileSize]:
    """Their tile constants; of few of them their layouts, copies and products too."""
    found: dict[tuple[str, int], tuple[str, list[str], list[str]]] = {}
    for parameter, text, held in spelled:
        for constant in held.constants.values():
            listed = _TILE_NAME.search(constant.name) or (constant.of_cute and len(spelled) <= _SPELLED)
            if listed and not constant.name.startswith(("Is_", "Share")):
                entry = found.setdefault((constant.file, constant.line), (f"{parameter.name}::{constant.name}", [], []))
                entry[1].append(constant.value)
                entry[2].append(f"{constant.value} in {text}")
    return [
        TileSize(
            name=name,
            file=file,
            line=line,
            values=tuple(dict.fromkeys(values)),
            used_as=tuple(dict.fromkeys(uses)),
            basis="evaluated",
        )
        for (file, line), (name, values, uses) in found.items()
    ]


_TILE_NAME = re.compile(
    r"^k?(Block[MNK]\w*|HeadDim\w*|Tile\w*|NWarps|NThreads|Stages|Smem\w*)$|TILE|BLOCK|ROWS|COLS|WARPS|THREADS|STAGES|CTAS|SMEM"
)


# tiles, warps, stages ------------------------------------------------------------------------------------------------


def _tiles(log: Log, constexprs: tuple[Constexpr, ...]) -> Iterable[TileSize]:
    given = {c.name: tuple(v.value for v in c.values) for c in constexprs}
    tiles = {name: Size(dict(size.uses), size.value) for name, size in log.sizes.items()}
    for c in constexprs:
        if (
            re.search(r"(?i)(block|tile|head_?dim|kBlock|^B[MNK]$|_[MNK]$|rows|cols)", c.name)
            and "bool" not in c.type
            and c.type not in {"typename", "class"}
        ):
            tiles.setdefault(c.name, Size({f"template parameter {c.type} {c.name}": c.line}))
    for name, size in tiles.items():
        values = given.get(name) or ((size.value,) if size.value and name not in given else ())
        yield TileSize(
            line=next(iter(size.uses.values())),
            name=name,
            values=values,
            used_as=tuple(size.uses)[:_USES],
            basis="evaluated" if values else "source",
        )


def warps(grids: tuple[Launch, ...], found: Definition, source: CSource) -> Iterable[BoundValue]:
    """Warps per block of each launch, and the bound that the kernel declares."""
    seen: dict[str, BoundValue] = {}
    for launch in grids:
        if launch.threads is not None:
            value, basis = str(-(-launch.threads // 32)), ("a warp is 32 threads",)
        elif launch.block:
            value, basis = f"cdiv({product(launch.block)}, 32)", ("a warp is 32 threads",)
        else:
            continue
        seen.setdefault(
            value,
            BoundValue(
                line=launch.line, file=launch.file, basis="evaluated", assumptions=basis, value=value, origin="block"
            ),
        )
    yield from seen.values()
    bounds = re.search(r"__launch_bounds__\s*+\(([^;{]*?)\)\s*(?:\w|$)", found.attributes + " ")
    if bounds:
        limit = split_arguments(bounds[1])[0]
        yield BoundValue(
            line=source.line(found.name_position),
            value=f"at most cdiv({limit}, 32)",
            origin="attribute",
            assumptions=("a warp is 32 threads",),
            basis="evaluated",
        )


def _stages(constexprs: tuple[Constexpr, ...]) -> Iterable[BoundValue]:
    for c in constexprs:
        if re.search(r"(?i)stages?\b|stages?_?", c.name):
            yield from c.values or (BoundValue(line=c.line, value=c.name, origin="instantiation"),)


__all__ = ["CudaContext", "describe_cuda", "described", "leaf", "warps"]
