"""Description of one Triton kernel: body, decorators and every launch site put together.

Order: the description, the values of each constexpr from all who give them, the search for device functions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from opscope_schemas.resources import Resources
from opscope_schemas.tiling import (
    Autotune,
    BoundValue,
    Constexpr,
    Constraint,
    KernelTiling,
    Launch,
)  # fmt: skip

from opscope_tools.kernels.autotune import Context, decorators
from opscope_tools.kernels.cost import placed, triton_cost
from opscope_tools.kernels.facts import KernelRef, LaunchRef
from opscope_tools.kernels.pymodule import PyModule
from opscope_tools.kernels.triton_body import Finder, parameters, read_body, runtime_parameters, tile_sizes
from opscope_tools.kernels.triton_cost import run_kernel
from opscope_tools.kernels.triton_find import (
    FunctionNode,
    decorator_name,
    function_of,
    is_triton_jit,
    jitted_functions,
)  # fmt: skip
from opscope_tools.kernels.triton_launch import SiteFacts, read_launch

T = TypeVar("T")


def describe_triton(
    reference: KernelRef, launches: Iterable[LaunchRef], context: Context, given: Mapping[str, Any], sizes: Mapping[str, int]
) -> KernelTiling:  # fmt: skip
    """Everything source says about the kernel at `reference`.

    `given`: constexprs that decide branches; `sizes`: numbers for the quantities of the cost's formulas.
    """
    module, function = function_of(reference, context.modules)
    find = device_functions(context)
    body = read_body(function, module, find)
    tuned, heuristics = decorators(function, module, context)
    sites: list[SiteFacts] = []
    for launch in launches:
        context.checkpoint()
        host = context.modules.load(launch.file)
        if (
            host is not None
            and (facts := read_launch(launch, host, function, context, reference.file, body.tiles)) is not None
        ):
            sites.append(facts)
    constexprs = _constexprs(function, tuned, heuristics, sites)
    grids = tuple(launch for site in sites for launch in site.grids)
    values = {c.name: tuple(dict.fromkeys(v.value for v in c.values)) for c in constexprs}
    constraints = [*body.constraints, *_unique(c for site in sites for c in site.constraints)]
    run = run_kernel(
        function, module, find, context.modules, body.pointers, {**_settled(constexprs, sites), **given, **sizes}
    )
    return KernelTiling(
        id=reference.id,
        name=reference.name,
        language="triton",
        role="kernel" if reference.role == "kernel" else "device_function",
        file=reference.file,
        line=reference.line,
        end_line=reference.end_line,
        decorators=tuple(decorator_name(d, module) for d in function.decorator_list),
        parameters=tuple(runtime_parameters(function, body.pointers)),
        constexpr=tuple(constexprs),
        tile=tuple(tile_sizes(body, values)),
        grid=grids,
        num_tiles=common_tiles(grids),
        mapping=tuple(body.mapping),
        num_warps=tuple(_option("num_warps", tuned, sites)),
        num_stages=tuple(_option("num_stages", tuned, sites)),
        autotune=tuned,
        heuristics=tuple(heuristics),
        loads=tuple(placed(body.loads, body.load_nodes, run)),
        stores=tuple(placed(body.stores, body.store_nodes, run)),
        instructions=tuple(body.instructions),
        loops=tuple(body.loops),
        constraints=tuple(constraints),
        calls=tuple(body.calls.values()),
        cost=triton_cost(run, grids, sizes) if reference.role == "kernel" else None,
        resources=Resources(),
        notes=(
            *_notes(
                reference,
                grids,
                body.calls.keys(),
                products=any(i.operation.startswith("tl.dot") for i in body.instructions),
            ),
            *(f"{spelled} is {what}." for spelled, what in body.wrapped.items()),
        ),
    )


def _settled(constexprs: Iterable[Constexpr], sites: list[SiteFacts]) -> dict[str, Any]:
    """Parameters to which everything that is known of them gives one value: a plain one, or None by every launch."""
    nothing = {n for n, passed in (sites[0].passed.items() if sites else ()) if passed == "None"}
    nothing = {n for n in nothing if all(site.passed.get(n) == "None" for site in sites)}
    found: dict[str, Any] = dict.fromkeys(nothing)
    for constexpr in constexprs:
        values = list({v.value for v in constexpr.values} or {constexpr.default})
        asked = re.fullmatch(r"args\['(\w+)'\] is (not )?None", values[0]) if len(values) == 1 else None
        if asked and asked[1] in nothing:
            found[constexpr.name] = asked[2] is None
        elif len(values) == 1 and values[0]:
            try:
                found[constexpr.name] = ast.literal_eval(values[0])
            except (ValueError, SyntaxError):
                continue
    return found


def common_tiles(grids: tuple[Launch, ...]) -> str:
    """The number of tiles where all resolved launch sites agree on it; else the alternatives, joined by `or`."""
    return " or ".join(dict.fromkeys(g.num_tiles for g in grids if g.num_tiles))


def _notes(reference: KernelRef, grids: tuple[Launch, ...], calls: Iterable[str], *, products: bool) -> list[str]:
    notes = []
    if products:
        notes.append(
            "Triton places operands of tl.dot in shared memory at compile time; source does not say how many bytes."
        )
    if reference.role == "kernel" and not grids:
        notes.append("No launch of it was recognised in this repository.")
    if reference.role != "kernel":
        notes.append("A device function: it asks for no program id and is called by kernels.")
    if len({g.num_tiles for g in grids if g.num_tiles}) > 1:
        notes.append("Launch sites use different grids; each entry of `grid` has its own num_tiles.")
    if list(calls):
        notes.append("Facts with `via` are in device functions that the kernel calls.")
    return notes


def device_functions(context: Context) -> Finder:
    """A finder of jitted functions by the name a kernel calls them by: same file first, then the file's imports."""
    tables: dict[str, dict[str, FunctionNode]] = {}

    def table(module: PyModule) -> dict[str, FunctionNode]:
        if module.path not in tables:
            tables[module.path] = {f.name: f for f in jitted_functions(module)}
        return tables[module.path]

    def find(module: PyModule, name: str) -> tuple[PyModule, FunctionNode] | None:
        if name in (own := table(module)):
            return module, own[name]
        dotted = name if "." in name else module.imports.get(name)
        if dotted is None or is_triton_jit(dotted) or dotted.startswith("triton."):
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


__all__ = ["Constraint", "common_tiles", "describe_triton"]
