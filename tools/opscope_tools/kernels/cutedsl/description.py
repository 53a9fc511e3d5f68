"""Description of one CuTe-DSL kernel: its class' parameters, its launches, and what its run met, put together."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from opscope_schemas.resources import Resources
from opscope_schemas.tiling import (
    BoundValue,
    Constexpr,
    Cost,
    KernelTiling,
    Launch,
    Level,
    MemoryOperation,
    Parameter,
    TileSize,
)

from opscope_tools.kernels.cutedsl.definitions import Marked, kernel_of
from opscope_tools.kernels.cutedsl.effects import Launched
from opscope_tools.kernels.cutedsl.run import Run
from opscope_tools.kernels.host.modules import Modules, PyModule, with_defaults
from opscope_tools.kernels.projections import lines
from opscope_tools.kernels.projections.accesses import grouped
from opscope_tools.kernels.projections.cuda_lists import shared_memory
from opscope_tools.kernels.records import KernelRef
from opscope_tools.kernels.run.events import Access, Unknown
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.run.paths import when
from opscope_tools.kernels.values.expressions import Expression, Opaque, render
from opscope_tools.kernels.values.notation import product

_MOST_STEPS = 60_000
_LEVELS: dict[str, Level] = {"global": "global", "shared": "shared"}
_MOST_LOST = 12
_NO_COST = "FLOPs and bytes of CuTe-DSL kernels are not worked out; tiles, launches, memory and instructions are."


def describe_cutedsl(
    reference: KernelRef, modules: Modules, given: Mapping[str, Any], checkpoint: Callable[[], None]
) -> KernelTiling:
    """Everything source says about the kernel at `reference`; `given`: parameters of its class that decide branches."""
    module, one = kernel_of(reference, modules)
    log = Log(_MOST_STEPS)
    run = Run(modules, module, one, log)
    checkpoint()
    run.go(given)
    grids = tuple(_launch(each, one, run) for each in run.launches)
    return KernelTiling(
        id=reference.id, name=reference.name, language="cute_dsl", role="kernel", file=reference.file, line=reference.line,
        end_line=reference.end_line, decorators=tuple(ast.unparse(d) for d in one.function.decorator_list),
        parameters=tuple(_parameters(one)), constexpr=tuple(_constexprs(run, one, module)), tile=tuple(_tiles(run)), grid=grids,
        num_tiles=grids[0].num_tiles if grids else "", mapping=tuple(lines.mapping(log)), loads=tuple(_accesses(log, "load")),
        stores=tuple(_accesses(log, "store")), shared_memory=shared_memory(e for e in log.events if getattr(e, "space", "") == "shared"),
        instructions=tuple(lines.instructions(log)), loops=tuple(lines.loops(log)), constraints=tuple(lines.constraints(log)),
        calls=tuple(lines.calls(log)), cost=Cost(flops="", matmul_flops="", read_bytes="", write_bytes="", not_counted=(_NO_COST,)), resources=Resources(), notes=tuple(_notes(run, one, log)),
    )  # fmt: skip


def _parameters(one: Marked) -> Iterator[Parameter]:
    for argument, default in with_defaults(one.function)[int(one.owner is not None) :]:
        shown = ast.unparse(argument.annotation) if argument.annotation is not None else ""
        yield Parameter(
            name=argument.arg, line=argument.lineno, type=shown, pointer="Tensor" in shown,
            default=ast.unparse(default) if default is not None else "",
        )  # fmt: skip


def _constexprs(run: Run, one: Marked, module: PyModule) -> Iterator[Constexpr]:
    """The parameters of the class, with what the calls of its file give them."""
    made = [
        c
        for c in module.calls
        if one.owner is not None and isinstance(c.func, ast.Name) and c.func.id == one.owner.name
    ]
    names = [argument.arg for argument, _, _ in run.settings]
    for place, (argument, annotation, default) in enumerate(run.settings):
        found: dict[str, BoundValue] = {}
        for call in made:
            node = next((k.value for k in call.keywords if k.arg == argument.arg), None)
            if (
                node is None
                and place < len(call.args)
                and not any(isinstance(a, ast.Starred) for a in call.args[: place + 1])
            ):
                node = call.args[place]
            if node is not None and not (isinstance(node, ast.Name) and node.id in names):
                text = ast.unparse(node)
                found.setdefault(text, BoundValue(value=text, origin="instantiation", line=node.lineno))
        if default:
            found.setdefault(default, BoundValue(value=default, origin="default", line=argument.lineno))
        yield Constexpr(
            name=argument.arg,
            kind="constexpr",
            line=argument.lineno,
            type=annotation,
            default=default,
            values=tuple(found.values()),
        )


def _tiles(run: Run) -> Iterator[TileSize]:
    found: dict[tuple[str, str], list[tuple[str, int, str]]] = {}
    for tile in run.tiles:
        key = tile.name, " x ".join(map(render, tile.shape))
        found.setdefault(key, []).append((tile.text, tile.line, tile.file))
    for (name, shape), uses in found.items():
        yield TileSize(
            name=name, values=(shape,), used_as=tuple(dict.fromkeys(text for text, _, _ in uses))[:6], line=uses[0][1], file=uses[0][2],
            basis="evaluated",
        )  # fmt: skip


def _defined(texts: Iterable[str], run: Run) -> tuple[str, ...]:
    """What the names in formulas stand for, and the names in that."""
    found: dict[str, str] = {}
    pending = list(texts)
    while pending:
        text = pending.pop(0)
        for name in [name for name in run.names if name not in found and _names(text, name)]:
            found[name] = run.names[name]
            pending.append(found[name])
    return tuple(f"{name} = {text}" for name, text in found.items())


def _names(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w| of line )", text) is not None


def _launch(launched: Launched, one: Marked, run: Run) -> Launch:
    given = launched.given
    node = next((k.value for k in launched.node.keywords if k.arg == "grid"), launched.node)
    axes = [_axes(given.get(name)) for name in ("grid", "block")]
    unresolved = tuple(
        ast.unparse(k.value) for k in launched.node.keywords
        if k.arg in ("grid", "block") and _axes(given.get(k.arg)) is None
    )  # fmt: skip
    dimensions, block = (tuple(map(render, part)) if part is not None else () for part in axes)
    threads = 1
    for size in axes[1] or ["?"]:
        threads = threads * size if isinstance(size, int) and threads else 0
    cluster = given.get("cluster")
    return Launch(
        line=launched.node.lineno, function=one.host.name if one.host is not None else "", kernel=ast.unparse(launched.kernel.func),
        expression=ast.unparse(node), dimensions=dimensions, num_tiles=product(list(dimensions)) if dimensions else "", block=block,
        threads=threads or None, cluster=_shown(cluster), basis="evaluated" if dimensions else "source",
        shared_memory=_shown(given.get("smem")), reached_when=tuple(s.condition for s in launched.path),
        unresolved=unresolved, definitions=_defined([*dimensions, *block, _shown(cluster), _shown(given.get("smem"))], run),
    )  # fmt: skip


def _handed(launched: Launched) -> Iterable[ast.expr]:
    return [*launched.kernel.args, *(keyword.value for keyword in launched.kernel.keywords)]


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return ", ".join(map(render, value)) if isinstance(value, list | tuple) else render(value)


def _axes(value: Any) -> list[Any] | None:
    """The sizes of a grid or a block; None where they are not told."""
    parts = list(value) if isinstance(value, list | tuple) else [value]
    known = all((isinstance(p, Expression) and not isinstance(p, Opaque)) or type(p) is int for p in parts)
    return parts if known and isinstance(value, list | tuple) else None


def _accesses(log: Log, what: str) -> Iterator[MemoryOperation]:
    for alike in grouped([e for e in log.events if isinstance(e, Access) and e.what == what]):
        told: dict[tuple[str, str], list[Access]] = {}
        for event in alike:
            told.setdefault((event.roots[0], event.text), []).append(event)
        for (root, text), events in told.items():
            first = events[0]
            yield MemoryOperation(
                line=first.line, file=first.file, operation=first.operation, level=_LEVELS[first.space], expression=text,
                parameter=root if first.space == "global" else "", mask=first.mask, loop=first.loop, via=first.via,
                when=when([e.path for e in events]), counted=False,
            )  # fmt: skip


def _notes(run: Run, one: Marked, log: Log) -> Iterable[str]:
    if one.host is None:
        yield "No call such as `self.kernel(...).launch(...)` was found in its file: what launches it, and with which grid, is not told."
    elif not run.launches:
        yield f"The launch in {one.host.name} was not reached: what stands before it is not followed."
    for other in one.others:
        yield f"{other.name} ({run.source.path}:{other.lineno}) launches it too, which is not told here."
    if len({tuple(map(ast.unparse, _handed(each))) for each in run.launches}) > 1:
        line = run.launches[0].node.lineno
        yield f"What it reads and writes is told as the launch at line {line} has it; other launches hand it other arguments."
    if run.present:
        yield f"Taken to be given, though they may be None: {', '.join(run.present)}."
    for name, value in run.defaults.items():
        yield f"Taken as by default: {name} is {value}."
    lost = list(
        dict.fromkeys(f"{e.what} ({e.file or run.source.path}:{e.line})" for e in log.events if isinstance(e, Unknown))
    )
    for text in lost[:_MOST_LOST]:
        yield f"Not followed: {text}."
    if len(lost) > _MOST_LOST:
        yield f"And {len(lost) - _MOST_LOST} more that are not followed."


__all__ = ["describe_cutedsl"]
