"""Description of one Triton kernel: body, decorators and every launch site put together.

Order: the description, the values of each constexpr from all who give them, the search for device functions.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from opscope_schemas.formula import Formula
from opscope_schemas.resources import Resources
from opscope_schemas.tiling import (
    Autotune,
    BoundValue,
    Constexpr,
    Constraint,
    DeviceCall,
    KernelTiling,
    Launch,
    MemoryOperation,
)  # fmt: skip

from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.projections import accesses, lines
from opscope_tools.kernels.projections.cost import common_tiles, cost_of, persistent
from opscope_tools.kernels.projections.cuda_lists import shared_memory
from opscope_tools.kernels.records import KernelRef, LaunchRef
from opscope_tools.kernels.run.events import Allocation
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.triton.decorators import Context, decorators
from opscope_tools.kernels.triton.definitions import (
    FunctionNode,
    decorator_name,
    function_of,
    gluon_functions,
    is_triton_jit,
    jitted_functions,
)  # fmt: skip
from opscope_tools.kernels.triton.expressions import Finder, Surroundings
from opscope_tools.kernels.triton.gluon import Gluon
from opscope_tools.kernels.triton.launch import LaunchSite, SiteFacts, launch_site
from opscope_tools.kernels.triton.operations import Language
from opscope_tools.kernels.triton.parameters import compile_time, parameters, runtime_parameters
from opscope_tools.kernels.triton.run import run_kernel
from opscope_tools.kernels.triton.tile_language import TileLanguage
from opscope_tools.kernels.values.notation import product

T = TypeVar("T")


def describe_triton(
    reference: KernelRef, launches: Iterable[LaunchRef], context: Context, given: Mapping[str, Any], sizes: Mapping[str, int]
) -> KernelTiling:  # fmt: skip
    """Everything source says about the kernel at `reference`.

    `given`: constexprs that decide branches; `sizes`: numbers for the quantities of the cost's formulas.
    """
    module, function = function_of(reference, context.modules)
    tuned, heuristics = decorators(function, module, context)
    places: list[LaunchSite] = []
    for launch in launches:
        context.checkpoint()
        host = context.modules.load(launch.file)
        site = launch_site(launch, host, function, context, reference.file) if host is not None else None
        places += [site] if site is not None else []
    tuned = tuned or next((found for place in places if (found := place.tuned()) is not None), None)
    sites = [place.facts for place in places]
    constexprs = _constexprs(function, tuned, heuristics, sites)
    settled, reasons = _settled(function, constexprs, sites)
    asked = {n.id for test in _tests(function) for n in ast.walk(test) if isinstance(n, ast.Name)}
    refuted = {reasons[n] for n, value in given.items() if n in reasons and settled[n] != value}
    for name, why in reasons.items():  # a parameter that no test asks for is better left one
        if why in refuted or (settled[name] is None and name not in asked):
            del settled[name]
    taken = {n: why for n, why in reasons.items() if n in settled and n in asked - {*given, *sizes}}
    if not sites:
        alone = (c for c in constexprs if c.default and c.name in settled and c.name not in reasons)
        taken |= {c.name: "its default, and no launch was found" for c in alone if c.name in asked - {*given, *sizes}}
    around = Surroundings(
        context.modules, device_functions(context, reference.language), compile_time(function), _rules(constexprs)
    )
    log = run_kernel(
        function, module, around, {**settled, **given, **sizes}, _language(reference.language, module, function)
    )
    pointers = accesses.pointers(log.events)
    values = {c.name: tuple(dict.fromkeys(v.value for v in c.values)) for c in constexprs}
    tiles = lines.tile_sizes(log, around.compile_time, values)
    grids = tuple(launch for place in places for launch in place.grids({t.name for t in tiles}))
    shared = persistent(log, grids)
    constraints = [*lines.constraints(log), *_unique(c for site in sites for c in site.constraints)]
    instructions, calls = lines.instructions(log), lines.calls(log)
    by_layout = _beside_layouts if reference.language == "gluon" else list
    assumed = [f"{name} is {settled[name]}: {why}" for name, why in taken.items()]
    return KernelTiling(
        id=reference.id,
        name=reference.name,
        language=reference.language,
        role="kernel" if reference.role == "kernel" else "device_function",
        file=reference.file,
        line=reference.line,
        end_line=reference.end_line,
        decorators=tuple(decorator_name(d, module) for d in function.decorator_list),
        parameters=tuple(runtime_parameters(function, pointers)),
        constexpr=tuple(constexprs),
        tile=(
            *tiles,
            *(_unique(block for place in places for block in place.blocks()) if reference.language == "gluon" else ()),
        ),
        grid=grids,
        num_tiles=product([shared.tiles, *shared.beside]) if shared is not None else common_tiles(grids),
        mapping=tuple(lines.mapping(log)),
        num_warps=tuple(_option("num_warps", tuned, sites)),
        num_stages=tuple(_option("num_stages", tuned, sites)),
        autotune=tuned,
        heuristics=tuple(heuristics),
        loads=tuple(by_layout(accesses.loads(log, pointers))),
        stores=tuple(by_layout(accesses.stores(log, pointers))),
        instructions=tuple(instructions),
        loops=tuple(lines.loops(log)),
        constraints=tuple(constraints),
        calls=tuple(calls),
        cost=cost_of(log, pointers, grids, sizes, assumed) if reference.role == "kernel" else None,
        shared_memory=shared_memory(e for e in log.events if e.counted and getattr(e, "space", "") == "shared"),
        resources=Resources(),
        notes=(
            *_notes(
                reference,
                grids,
                calls,
                products=any(i.operation.startswith("tl.dot") for i in instructions),
                several=_several(log),
            ),
            *(f"{spelled} is {what}." for spelled, what in log.wrapped.items()),
            *(
                [f"Programs are persistent: {common_tiles(grids)} of them share the tiles, {shared.trip} each."]
                if shared
                else []
            ),
        ),
    )


def _language(name: str, module: PyModule, function: FunctionNode) -> Language | None:
    """What a language means otherwise than Triton; None: it is Triton."""
    if name == "gluon":
        return Gluon(module, function)
    return TileLanguage() if name == "cutile" else None


def _several(log: Log) -> list[str]:
    """Arrays in shared memory that one line makes more than once: in a loop that is unrolled, or in a function that is called again."""
    made = [e for e in log.events if isinstance(e, Allocation) and e.space == "shared" and e.counted]
    places = Counter((e.file, e.line, e.node) for e in made)
    again = [e for e in made if places[e.file, e.line, e.node] > 1 or e.times != Formula.const(1)]
    return list(dict.fromkeys(f"{e.name} (line {e.line})" for e in again))


def _beside_layouts(found: Sequence[MemoryOperation]) -> list[MemoryOperation]:
    """Neighbours lie side by side, but which lanes have them the layout says; a descriptor's copy has none."""
    said = "where the layout's lanes go along the axis of step 1"
    return [
        one.model_copy(update={"coalesced": said})
        if one.coalesced == "yes" and not one.operation.startswith("tma.")
        else one
        for one in found
    ]


def _rules(constexprs: Iterable[Constexpr]) -> dict[str, str]:
    """Flags that say whether an argument is given, and that test."""
    found = {}
    for known in constexprs:
        asked = (
            re.fullmatch(r"args\['(\w+)'\] is (not )?None", known.values[0].value) if len(known.values) == 1 else None
        )
        if asked:
            found[known.name] = f"{asked[1]} is {asked[2] or ''}None"
    return found


def _settled(
    function: FunctionNode, constexprs: Iterable[Constexpr], sites: list[SiteFacts]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Parameters to which everything that is known of them gives one value, and of those why where that is an assumption.

    Of constexprs, the one value that all sources agree on; of any other, what every launch passes; else what the defaults
    of every launching function make of it.
    """
    found: dict[str, Any] = {}
    reasons: dict[str, str] = {}
    computed = {c.name: c for c in constexprs}
    for argument, _, default, _ in parameters(function):
        name = argument.arg
        values = [_passed_by(site, name, default) for site in sites]
        known = computed.get(name)
        elsewhere = known is not None and any(v.origin not in ("launch", "default") for v in known.values)
        if elsewhere:
            values = [_plain(v.value) for v in known.values] if known is not None else []
        elif not sites and known is not None:
            values = [_plain(default)]
        if values and None not in values and len({repr(v) for v in values}) == 1:
            found[name] = values[0][0]  # type: ignore[index]  # no None is among them: asked above
        elif sites and not elsewhere:
            usual = [site.defaults.get(name) or _passed_by(site, name, default) for site in sites]
            if None not in usual and len({repr(v[0]) for v in usual if v}) == 1:
                found[name] = usual[0][0]  # type: ignore[index]  # no None is among them: asked above
                reasons[name] = "; ".join(dict.fromkeys(v[1] for v in usual if v and len(v) > 1))
    for name, known in computed.items():  # nobody who is read says otherwise
        one = {v.value for v in known.values if v.origin == "default"}
        plain = _plain(one.pop()) if len(one) == len(known.values) == 1 and name not in found else None
        if plain is not None:
            found[name] = plain[0]
            reasons[name] = f"{name} is so by default, and no launch that is read says otherwise (line {known.line})"
    for name, rule in _rules(computed.values()).items():  # a heuristic that asks whether something is given
        asked, _, what = rule.partition(" is ")
        if asked in found and found[asked] is None:
            found[name] = what == "None"
            if asked in reasons:
                reasons[name] = reasons[asked]
    return found, reasons


def _tests(function: FunctionNode) -> Iterable[ast.expr]:
    return (n.test for n in ast.walk(function) if isinstance(n, ast.If | ast.IfExp | ast.While))


def _passed_by(site: SiteFacts, name: str, default: str) -> tuple[Any] | None:
    """The one constant that a launch gives a parameter, in a tuple; None where it is not known to be one."""
    if name in site.constants:
        return (site.constants[name],)
    if bound := site.constexprs.get(name):
        return _plain(bound[0].value) if len(bound) == 1 else None
    if name in site.passed or not site.complete:
        return None
    return _plain(default)


def _plain(text: str) -> tuple[Any] | None:
    try:
        return (ast.literal_eval(text),)
    except (ValueError, SyntaxError):
        return None


def _notes(
    reference: KernelRef,
    grids: tuple[Launch, ...],
    calls: Sequence[DeviceCall],
    *,
    products: bool,
    several: Sequence[str],
) -> list[str]:
    notes = []
    if products:
        notes.append(
            "Triton places operands of tl.dot in shared memory at compile time; source does not say how many bytes."
        )
    if reference.language == "gluon":
        notes.append(
            "What Triton's compiler itself lays in shared memory is in no figure: to convert layouts, to reduce across warps, to hand functions "
            "on warps of their own what they take."
        )
        if several:
            notes.append(f"Made more than once, and listed once: {', '.join(several)}.")
    if reference.role == "kernel" and not grids:
        notes.append("No launch of it was recognised in this repository.")
    if reference.role != "kernel":
        notes.append("A device function: it asks for no program id and is called by kernels.")
    if len({g.num_tiles for g in grids if g.num_tiles}) > 1:
        notes.append("Launch sites use different grids; each entry of `grid` has its own num_tiles.")
    if calls:
        notes.append("Facts with `via` are in device functions that the kernel calls.")
    return notes


def device_functions(context: Context, language: str = "triton") -> Finder:
    """A finder of functions by the name a kernel calls them by: same file first, then the file's imports.

    Of cuTile, which compiles what a kernel calls, all functions; else jitted ones.
    """

    def compiled(module: PyModule) -> Iterable[FunctionNode]:
        if language == "cutile":
            return module.functions
        return [*jitted_functions(module), *(gluon_functions(module) if language == "gluon" else ())]

    tables: dict[str, dict[str, FunctionNode]] = {}

    def table(module: PyModule) -> dict[str, FunctionNode]:
        if module.path not in tables:
            tables[module.path] = {f.name: f for f in compiled(module)}
        return tables[module.path]

    def find(module: PyModule, name: str) -> tuple[PyModule, FunctionNode] | None:
        if name in (own := table(module)):
            return module, own[name]
        dotted = name if "." in name else module.leads_to(name)
        if not dotted or is_triton_jit(dotted) or dotted.startswith(("triton.", "cuda.tile.")):
            return None
        resolved = context.modules.resolve(dotted, module.path)
        if resolved is not None and resolved[1] in (other := table(resolved[0])):
            return resolved[0], other[resolved[1]]
        return None

    return find


def _constexprs(
    function: FunctionNode, tuned: Autotune | None, heuristics: list[BoundValue], sites: list[SiteFacts]
) -> list[Constexpr]:
    """Each constexpr with the values that default, launch sites, autotune and heuristics give it."""
    computed = {h.value.partition(" = ")[0]: h for h in heuristics}
    found = []
    for argument, annotation, default, constexpr in parameters(function):
        if not constexpr:
            continue
        name = argument.arg
        values: list[BoundValue] = []
        if tuned is not None:
            values.extend(_tuned(name, tuned))
        if name in computed:
            values.append(computed[name].model_copy(update={"value": computed[name].value.partition(" = ")[2]}))
        for site in sites:
            values.extend(site.constexprs.get(name, []))
        if default and not values:
            values.append(BoundValue(line=argument.lineno, value=default, origin="default"))
        found.append(
            Constexpr(
                line=argument.lineno,
                name=name,
                kind="constexpr",
                type=annotation,
                default=default,
                values=tuple(_unique(values)),
            )
        )
    return found


def _tuned(name: str, tuned: Autotune) -> list[BoundValue]:
    """Distinct values of one name over the autotune configurations."""
    found: dict[str, BoundValue] = {}
    for config in tuned.configs:
        if name in config.values:
            value = str(config.values[name])
            found.setdefault(
                value,
                BoundValue(
                    line=config.line,
                    file=config.file,
                    basis="evaluated",
                    value=value,
                    origin="autotune",
                    when=config.when,
                ),
            )
    return list(found.values())


def _option(name: str, tuned: Autotune | None, sites: list[SiteFacts]) -> list[BoundValue]:
    values: dict[str, BoundValue] = {}
    for config in tuned.configs if tuned else ():
        given = config.num_warps if name == "num_warps" else config.num_stages
        if given is not None:
            values.setdefault(
                str(given),
                BoundValue(line=config.line, file=config.file, basis="evaluated", value=str(given), origin="autotune"),
            )
    return _unique([*values.values(), *(v for site in sites for v in site.options.get(name, []))])


def _unique(items: Iterable[T]) -> list[T]:
    kept: list[T] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return kept


__all__ = ["Constraint", "describe_triton"]
