"""Sections 5, 6.1 and 6.2: the operator catalogue, the forward pass in execution order, what its tasks read of each other."""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.analysis import Kernel
from opscope_schemas.formula import evaluate

from opscope_tools.report.diagrams import Node, draw_tree
from opscope_tools.report.facts import ImplementationFacts, is_leaf, short
from opscope_tools.report.tasks import Task, numbering

__all__ = ["ORDER_NOTE", "catalogue_rows", "dependency_graph", "forward_pass", "tiling_note"]

ORDER_NOTE = (
    "Dependencies are the tasks whose results a task reads; views count as the tensor that they look into, weights and "
    "inputs are no tasks. Tasks that do not depend on each other may run side by side. A task that runs again is listed "
    "once, where it first runs; section 6.1 shows every run."
)
_LIBRARY = "library"


def catalogue_rows(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[tuple[str, str, str, str, str]]:
    """One row per task: number, operator, what it does and where, tiling, whose results it reads."""
    return [
        (str(task.number), short_operator(task), _purpose(facts, task), _tiling(facts, task), _after(task))
        for task in catalogue
    ]


def short_operator(task: Task) -> str:
    """The operator's name without its namespace and overload."""
    return _bare(task.kind)


def _bare(operator: str) -> str:
    parts = operator.split(".")
    return parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]


def _purpose(facts: ImplementationFacts, task: Task) -> str:
    kernel, call, times = task.first.kernel, task.first.call, len(task.occurrences)
    said = kernel.operation.translate(str.maketrans("{}`", "()'"))
    places = f", {times} places" if times > 1 else ""
    outside = call is not None and call.file != kernel.file
    through = f", called as {call.attribute} at `{call.file}:{call.line}`" if call and outside else ""
    found = facts.locate(task.first.owner)
    # a forward that is inherited or swapped in stands in another file than its class
    owner = (
        f"`{short(task.first.owner)}`" if found and found[0] == kernel.file else f"{short(task.first.owner)}'s forward"
    )
    return f"`{said}`. In {owner} (`{kernel.file}:{kernel.line}`{places}){through}"


def _tiling(facts: ImplementationFacts, task: Task) -> str:
    if facts.tiling is not None:
        for kernel in facts.tiling.kernels:
            if kernel.name in task.kind:
                return (
                    ", ".join(f"{tile.name}={'/'.join(tile.values) or '?'}" for tile in kernel.tile)
                    or "no tile constant"
                )
    return _LIBRARY


def tiling_note(facts: ImplementationFacts, catalogue: Sequence[Task]) -> str:
    """What `library` in the Tiling column means; nothing where no cell says so."""
    if all(_tiling(facts, task) != _LIBRARY for task in catalogue):
        return ""
    return f"Tiling: `{_LIBRARY}` marks operators of a library, which choose their own tiles; those are not analysed."


def _after(task: Task) -> str:
    """The tasks whose results a task reads."""
    said = [_listed(task.after)] if task.after else []
    said += [f"where it runs again: {_listed(task.again)}"] if task.again else []
    said += [f"of the layer before: {_listed(task.carried)}"] if task.carried else []
    return "; ".join(said) or "none"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# ---- 6 --------------------------------------------------------------------------------------------------------------


def forward_pass(facts: ImplementationFacts, catalogue: Sequence[Task]) -> str:
    """The expanded document as a tree: modules with their repeats, operators with their task number and line."""
    numbers, values = numbering(catalogue), facts.point(facts.main)

    def node(kernel: Kernel, outer: int) -> Node:
        repeat = evaluate(kernel.repeat, values)
        if not is_leaf(kernel):
            times = f" ×{repeat // outer}" if repeat != outer else ""
            label = f"{kernel.attribute or 'call'}: {short(kernel.class_name)}{times}  :{kernel.line}"
            return Node(label, tuple(node(child, repeat) for child in kernel.kernels or ()))
        return Node(f"{numbers[id(kernel)]} {_bare(kernel.operator or kernel.class_name)}  :{kernel.line}")

    return draw_tree(Node(short(facts.main.class_name), tuple(node(kernel, 1) for kernel in facts.main.kernels)))


def dependency_graph(catalogue: Sequence[Task]) -> str:
    """Each task with the tasks whose results it reads, runs in which each reads the one before it drawn as one chain."""
    lines: list[str] = []
    chain: list[str] = []
    for task in catalogue:
        label = f"{task.number} {short_operator(task)}"
        follows = task.after == (task.number - 1,) and not (task.again or task.carried)
        if chain and (not follows or len(" -> ".join([*chain, label])) > 100):
            lines.append(" -> ".join(chain))
            chain = []
        if not chain and _after(task) != "none":
            label = f"after {_after(task)}: {label}"
        chain.append(label)
    return "\n".join([*lines, " -> ".join(chain)])
