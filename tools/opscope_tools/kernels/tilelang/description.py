"""Description of one TileLang kernel: the functions around its grid, their parameters, and what its run met, put together."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opscope_schemas.resources import Resources
from opscope_schemas.tiling import Autotune, BoundValue, Constexpr, KernelTiling, Launch, Parameter, Scalar, TuneConfig

from opscope_tools.kernels.host.interpreter import ModuleScope
from opscope_tools.kernels.host.modules import Modules, PyModule
from opscope_tools.kernels.host.worlds import DroppedError, UnresolvedError
from opscope_tools.kernels.projections import accesses, lines
from opscope_tools.kernels.projections.cost import cost_of
from opscope_tools.kernels.projections.cuda_lists import shared_memory
from opscope_tools.kernels.records import KernelRef
from opscope_tools.kernels.run.events import Access
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.tilelang.definitions import FunctionNode, Opened, kernel_of
from opscope_tools.kernels.tilelang.run import Run
from opscope_tools.kernels.values.expressions import Size, render
from opscope_tools.kernels.values.notation import product

_MOST_STEPS = 60_000
_SCALARS = (bool, int, float, str, type(None))


def describe_tilelang(
    reference: KernelRef, modules: Modules, given: Mapping[str, Any], sizes: Mapping[str, int], checkpoint: Callable[[], None]
) -> KernelTiling:  # fmt: skip
    """Everything source says about the kernel at `reference`.

    `given`: parameters that decide branches; `sizes`: numbers for the quantities of the cost's formulas.
    """
    module, one = kernel_of(reference, modules)
    log = Log(_MOST_STEPS)
    run = Run(modules, module, one, log)
    checkpoint()
    run.go(given)
    tuned = _autotune(one, module, modules)
    constexprs = tuple(_constexprs(run, one, module, tuned))
    certain = accesses.pointers(log.events)
    names = frozenset(a.arg for a, _, _ in run.settings)
    values = {c.name: tuple(dict.fromkeys(v.value for v in c.values)) for c in constexprs}
    grids = tuple(_grid(run, one))
    asked = {n.id for f in one.functions for n in ast.walk(f) if isinstance(n, ast.Name)}
    tests = " ".join(ast.unparse(f) for f in one.functions)
    assumed = [
        f"{n} is {text}: its default" for n, text in run.defaults.items()
        if n in asked and n not in given and (text != "None" or re.search(rf"\b{n} is (not )?None", tests))
    ]  # fmt: skip
    cost = cost_of(log, certain, grids, sizes, assumed, "thread blocks")
    stage = _stage(log, run, certain)
    inner = one.functions[-1]
    return KernelTiling(
        id=reference.id, name=reference.name, language="tilelang", role="kernel", file=reference.file, line=reference.line,
        end_line=reference.end_line, decorators=tuple(ast.unparse(d) for f in one.functions for d in f.decorator_list),
        parameters=tuple(Parameter(name=a.arg, line=a.lineno, type=ast.unparse(t), pointer=isinstance(t, ast.Call | ast.Subscript))
                         for a, t in run.tensors),
        constexpr=constexprs, tile=tuple(lines.tile_sizes(log, names, values)), grid=grids,
        num_tiles=grids[0].num_tiles if grids else "", mapping=tuple(lines.mapping(log)),
        num_stages=tuple(BoundValue(value=render(stages), origin="constant", line=line) for line, stages in run.stages.items()),
        autotune=tuned, loads=tuple(accesses.loads(log, certain)), stores=tuple(accesses.stores(log, certain)),
        shared_memory=shared_memory(e for e in log.events if e.counted and getattr(e, "space", "") == "shared"),
        instructions=tuple(lines.instructions(log)), loops=tuple(lines.loops(log)), constraints=tuple(lines.constraints(log)),
        calls=tuple(lines.calls(log)), cost=cost.model_copy(update={"stage_bytes": stage}) if stage else cost,
        resources=Resources(), notes=tuple(_notes(run, inner)),
    )  # fmt: skip


def _grid(run: Run, one: Opened) -> Iterable[Launch]:
    if run.grid is None:
        return
    dimensions = tuple(map(render, run.grid))
    cluster = run.given.get("cluster_dims")
    yield Launch(
        line=one.call.lineno, function=one.functions[0].name, expression=ast.unparse(one.call), dimensions=dimensions,
        num_tiles=product(list(dimensions)), block=tuple(map(render, run.axes)),
        threads=run.threads if isinstance(run.threads, int) else None, cluster=render(cluster) if cluster is not None else "",
        assumptions=() if "threads" in run.given else ("T.Kernel gives a block 128 threads where nothing is said.",),
    )  # fmt: skip


def _constexprs(run: Run, one: Opened, module: PyModule, tuned: Autotune | None) -> Iterable[Constexpr]:
    """Parameters of the functions around the grid, with what defaults, tuning and calls in the file give them."""
    calls = _calls(one.functions[0], module)
    for argument, annotation, default in run.settings:
        name, found = argument.arg, dict[tuple[str, str, int], BoundValue]()
        for config in tuned.configs if tuned is not None else ():
            if name in config.values:
                value = str(config.values[name])
                found[value, "autotune", 0] = BoundValue(
                    value=value, origin="autotune", line=tuned.line if tuned else 0
                )
        for call in calls:
            if (text := _passed(call, one.functions[0], name)) and text != name:
                found[text, "launch", call.lineno] = BoundValue(value=text, origin="launch", line=call.lineno)
        if default:
            found[default, "default", 0] = BoundValue(value=default, origin="default", line=argument.lineno)
        yield Constexpr(
            name=name,
            kind="constexpr",
            line=argument.lineno,
            type=annotation,
            default=default,
            values=tuple(found.values()),
        )


def _calls(function: FunctionNode, module: PyModule) -> list[ast.Call]:
    return [c for c in module.calls if isinstance(c.func, ast.Name) and c.func.id == function.name]


def _passed(call: ast.Call, function: FunctionNode, name: str) -> str:
    """What a call gives a parameter, as written; '' where it gives nothing."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    for keyword in call.keywords:
        if keyword.arg == name:
            return ast.unparse(keyword.value)
    place = names.index(name) if name in names else len(call.args)
    before = call.args[: place + 1]
    return (
        ast.unparse(before[place])
        if place < len(before) and not any(isinstance(a, ast.Starred) for a in before)
        else ""
    )


def _autotune(one: Opened, module: PyModule, modules: Modules) -> Autotune | None:
    """`@autotune(configs=...)`, enumerated."""
    for function in one.functions:
        for decorator in function.decorator_list:
            head = decorator.func if isinstance(decorator, ast.Call) else decorator
            if isinstance(decorator, ast.Call) and ast.unparse(head).rpartition(".")[2] == "autotune":
                return _enumerated(decorator, one, module, modules)
    return None


def _enumerated(decorator: ast.Call, one: Opened, module: PyModule, modules: Modules) -> Autotune:
    given = {k.arg: k.value for k in decorator.keywords if k.arg}
    node = given.pop("configs", decorator.args[0] if decorator.args else None)
    made: list[dict[str, Scalar]] = []
    unresolved = ""
    try:
        configs = (
            Run(modules, module, one, Log(_MOST_STEPS)).eval(node, ModuleScope(module)) if node is not None else []
        )
        if not isinstance(configs, list | tuple) or not all(isinstance(c, dict) for c in configs):
            raise UnresolvedError(ast.unparse(node) if node is not None else "")
        made = [{str(k): v if isinstance(v, _SCALARS) else render(v) for k, v in c.items()} for c in configs]
    except (UnresolvedError, DroppedError):
        unresolved = ast.unparse(node) if node is not None else ""
    distinct = list({tuple(sorted((k, repr(v)) for k, v in c.items())): c for c in made}.values())
    return Autotune(
        line=decorator.lineno, decorator=ast.unparse(decorator.func), expression=ast.unparse(node) if node is not None else "",
        count=None if unresolved else len(distinct), unresolved=unresolved,
        configs=tuple(TuneConfig(line=decorator.lineno, values=c, num_stages=c.get("num_stages")) for c in distinct),
        other={k: ast.unparse(v) for k, v in given.items()},
    )  # fmt: skip


def _stage(log: Log, run: Run, certain: frozenset[str]) -> str:
    """Operands of products that one turn of a loop brings to shared memory, in bytes; '' without one such loop, or where one is not told."""
    loops = {line: run.multiplied.get(line, {}) for line in run.staged}
    if len(loops) != 1:
        return ""
    (line, names), total = next(iter(loops.items())), None
    if set(names) & set(run.made.get(line, {})):
        return ""
    for event in log.events:
        if (
            isinstance(event, Access)
            and event.counted
            and event.loop == line
            and event.what == "load"
            and event.into in names
        ):
            size = accesses.moved(event, certain, log)
            if size is None:
                return ""
            total = size if total is None else total + size
    return "" if total is None else str(total)


def _notes(run: Run, function: FunctionNode) -> Iterable[str]:
    for line, names in run.staged.items():
        stages: Size = run.stages[line]
        if stages not in (0, 1):
            yield (
                f"T.Pipelined at line {line} keeps up to {render(stages)} of {', '.join(names)}; `shared_memory` says the bytes of one."
            )
    if run.grid is None:
        yield f"The grid of {function.name} was not reached: what stands before it is not followed."


__all__ = ["describe_tilelang"]
