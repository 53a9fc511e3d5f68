"""Sections 5, 6.1 and 6.2: the operator catalogue, the forward pass in execution order, what its tasks read of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opscope_schemas.analysis import Kernel
from opscope_schemas.formula import evaluate

from opscope_tools.report.facts import Figures, ImplementationFacts, is_leaf, short, walk
from opscope_tools.report.graph import Edge, Graph, Vertex
from opscope_tools.report.kinds import kinds_of
from opscope_tools.report.tasks import Task, numbering

__all__ = ["ORDER_NOTE", "bare", "catalogue_rows", "dependency_graph", "forward_pass", "tile_of", "tiling_note"]

ORDER_NOTE = (
    "Dependencies are the tasks whose results a task reads; views count as the tensor that they look into, weights and "
    "inputs are no tasks. Tasks that do not depend on each other may run side by side. A task that runs again is listed once, with what its "
    "first run reads, then with what others read beside or in place of that: behind `again` later runs, behind `of the repetition before` those of every "
    "repetition but the first (its own number: a run before it); section 6.1 shows every run. A row holds tasks that follow one another and run as often as each other, on one line or in one call of a module that calls no "
    "others; where others read from its middle, they name the task."
)
_LIBRARY = "library"
#: how a reader says that another run of it than the first reads something, or that it reads what was made in the repetition before (of a layer, or of a step of a loop)
RERUN, CARRIED = " again", " of the repetition before"
#: tasks of one chain
_CHAIN = 12
#: characters of a line of operators that follow each other
_ROW = 130


def catalogue_rows(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[tuple[str, str, str, str, str]]:
    """One row per task or run of tasks of one place: numbers, operators, what they do and where, tiling, whose
    results they read."""
    rows = []
    for run in _runs(catalogue):
        first, last = run[0], run[-1]
        number = str(first.number) if first is last else f"{first.number}-{last.number}"
        tiles = dict.fromkeys(_tiling(facts, task) for task in run)
        named = ", ".join(short_operator(task) for task in run)
        rows.append((number, named, _purpose(facts, run), ", ".join(tiles), _after(run)))
    return rows


def _runs(catalogue: Sequence[Task]) -> list[list[Task]]:
    """Tasks of one place, one after the other."""
    runs: list[list[Task]] = []
    for task in catalogue:
        if runs and _place(runs[-1][0]) == _place(task):
            runs[-1].append(task)
        else:
            runs.append([task])
    return runs


def _place(task: Task) -> tuple[object, ...]:
    """The line and the call that issue a task; a call of a module that calls no others is one place, whatever its lines."""
    one, kernel = task.first, task.first.kernel
    leaf = one.call is not None and all(is_leaf(each) for each in one.call.kernels or ())
    return one.owner, kernel.file, 0 if leaf else kernel.line, id(one.call), len(task.occurrences)


def short_operator(task: Task) -> str:
    """The operator's name without its namespace and overload."""
    return bare(task.kind)


def bare(operator: str) -> str:
    """An operator's name without its namespace and overload."""
    parts = operator.split(".")
    return parts[1] if parts[0] in ("aten", "prims") and len(parts) > 1 else parts[-1]


def _purpose(facts: ImplementationFacts, run: Sequence[Task]) -> str:
    task = run[0]
    kernel, call = task.first.kernel, task.first.call
    said = _plain(kernel.operation) if len(run) == 1 else "; ".join(_result(task.first.kernel) for task in run)
    last = max(each.first.kernel.line for each in run)
    lines = f"{kernel.line}-{last}" if last > kernel.line else f"{kernel.line}"
    outside = call is not None and call.file != kernel.file
    at = (call.via or (call,))[-1] if call else None  # in a helper of the forward, if it is called there
    through = f", called as {call.attribute} at `{at.file}:{at.line}`" if call and at and outside else ""
    found = facts.locate(task.first.owner)
    # a forward that is inherited or swapped in stands outside its class
    inside = found and found[0] == kernel.file and found[1].line <= kernel.line <= found[1].end_line
    owner = f"`{short(task.first.owner)}`" if inside else f"{short(task.first.owner)}'s forward"
    return f"`{said}`. In {owner} (`{kernel.file}:{lines}`){through}"


def _plain(text: str) -> str:
    return text.translate(str.maketrans("{}`", "()'"))


def _result(kernel: Kernel) -> str:
    """The operator with the shape of what it gives."""
    shape = f" -> [{', '.join(kernel.outputs[0].shape)}]".replace("{", "").replace("}", "") if kernel.outputs else ""
    return f"{_plain(bare(kernel.operator or kernel.class_name))}{shape}"


def tile_of(facts: ImplementationFacts, operator: str) -> str:
    """The tile constants of the kernel that an operator runs; empty where none was named or it is another."""
    for kernel in facts.tiling.kernels if facts.tiling is not None else ():
        if kernel.name in operator:
            return ", ".join(f"{t.name}={'/'.join(t.values) or '?'}" for t in kernel.tile) or "no tile constant"
    return ""


def _tiling(facts: ImplementationFacts, task: Task) -> str:
    return tile_of(facts, task.kind) or _LIBRARY


def tiling_note(facts: ImplementationFacts, catalogue: Sequence[Task]) -> str:
    """What `library` in the Tiling column means; nothing where no cell says so."""
    if all(_tiling(facts, task) != _LIBRARY for task in catalogue):
        return ""
    return f"Tiling: `{_LIBRARY}` marks operators of a library, which choose their own tiles; those are not analysed."


def _after(run: Sequence[Task]) -> str:
    """The tasks whose results a run reads: of its own only those that ran before it began."""
    own = {task.number for task in run}

    def others(kind: str) -> str:
        return _listed(sorted({n for task in run for n in getattr(task, kind)} - (own if kind == "after" else set())))

    said = [others("after")]
    said += [
        f"{how.strip()}: {text}" for how, kind in ((RERUN, "again"), (CARRIED, "carried")) if (text := others(kind))
    ]
    return "; ".join(filter(None, said)) or "none"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


# ---- 6 --------------------------------------------------------------------------------------------------------------


def forward_pass(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[tuple[int, str]]:
    """The expanded document as rows of a tree: modules with their repeats, operators with their task number and line.

    A call that runs one operator is that operator; a call that runs the tasks of an earlier one names their numbers.
    """
    numbers, values, kinds = numbering(catalogue), facts.point(facts.main), kinds_of(facts, facts.main)
    seen: set[tuple[object, ...]] = set()
    home = {
        name: found[0]
        for name in {k.class_name for _, _, k in walk(facts.main.kernels, "")}
        if name and (found := facts.locate(name))
    }

    def elsewhere(kernel: Kernel) -> str:
        """The file of the lines of a module's own operators, where that is not the one that its class stands in."""
        files = dict.fromkeys(one.file for one in kernel.kernels or () if is_leaf(one))
        other = [file for file in files if file != home.get(kernel.class_name, file)]
        return f", its lines those of {other[0].rpartition('/')[2]}" if len(files) == len(other) == 1 else ""

    def row(kernel: Kernel, steps: int) -> str:
        """An operator, with the steps of the loop that it runs in, or a call of one; empty: a call of more."""
        if is_leaf(kernel):
            loop = f" ×{steps}" if steps > 1 else ""
            return f"{numbers[id(kernel)]} {bare(kernel.operator or kernel.class_name)}{loop}  :{kernel.line}"
        inner = [each for _, _, each in walk((kernel,), "") if is_leaf(each)]
        alone = len(inner) == 1 and len(kernel.kernels or ()) == 1
        return (
            f"{numbers[id(inner[0])]} {kernel.attribute or 'call'}: {bare(inner[0].operator)}  :{kernel.line}"
            if alone
            else ""
        )

    def below(kernels: Sequence[Kernel], depth: int, outer: int) -> Iterator[tuple[int, str]]:
        """Operators that follow each other stand on one line, as far as it reaches."""
        line = ""
        for kernel in kernels:
            repeat = evaluate(kernel.repeat, values)
            said = row(kernel, repeat // outer)
            single = said and (repeat == outer or is_leaf(kernel))
            if line and (not single or len(line) + len(said) > _ROW):
                yield depth, line
                line = ""
            if single:
                line = f"{line}, {said}" if line else said
                continue
            times = f" ×{repeat // outer}" if repeat != outer else ""
            kind = f", {kinds[id(kernel)].whole}" if id(kernel) in kinds else ""
            head = f"{kernel.attribute or 'call'}: {short(kernel.class_name)}{times}{kind}  :{kernel.line}"
            run = tuple(numbers[id(each)] for _, _, each in walk((kernel,), "") if id(each) in numbers)
            if (kernel.class_name, run) in seen and len(run) > 1:
                yield depth, f"{head}: tasks {_spans(sorted(set(run)))} again"
                continue
            seen.add((kernel.class_name, run))
            yield depth, f"{head}{elsewhere(kernel)}"
            yield from below(kernel.kernels or (), depth + 1, repeat)
        if line:
            yield depth, line

    return [(0, short(facts.main.class_name)), *below(facts.main.kernels, 1, 1)]


def dependency_graph(facts: ImplementationFacts, catalogue: Sequence[Task]) -> Graph:
    """Each task with the tasks whose results it reads; runs in which each reads the one before it alone are one vertex."""
    weights = _weights(facts, catalogue)
    chains: list[list[Task]] = []
    for task in catalogue:
        follows = task.after == (task.number - 1,) and not (task.again or task.carried)
        if chains and follows and len(chains[-1]) < _CHAIN:
            chains[-1].append(task)
        else:
            chains.append([task])
    holder = {task.number: f"c{chain[0].number}" for chain in chains for task in chain}
    vertices = tuple(
        Vertex(
            f"c{chain[0].number}", tuple(f"{task.number} {short_operator(task)}" for task in chain),
            weight=sum(weights[task.number] for task in chain),
        )
        for chain in chains
    )  # fmt: skip
    edges = [
        Edge(holder[n], holder[chain[0].number], f"{n}{kind}", bool(kind))
        for chain in chains
        for kind, read in (("", chain[0].after), (RERUN, chain[0].again), (CARRIED, chain[0].carried))
        for n in read
    ]
    return Graph(vertices, tuple(edges), layout="chains")


def _weights(facts: ImplementationFacts, catalogue: Sequence[Task]) -> dict[int, int]:
    values = facts.point(facts.main)
    return {task.number: Figures.sum([o.kernel for o in task.occurrences], values).bytes for task in catalogue}


def _spans(numbers: Sequence[int]) -> str:
    """`2 to 9, 33 to 36` of numbers in order."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ", ".join(str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in found)
