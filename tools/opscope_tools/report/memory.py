"""Section 6.3: the tensors that matter in a pass, who makes and reads them, how long they live, how large they are.

Makers, readers and lifetimes are those of the operator graph; sizes are products of the shapes that the trace records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product

from opscope_schemas.analysis import Kernel, ModelAnalysis, TensorInfo
from opscope_schemas.dataflow import Dataflow, FlowOperator, PeakPoint
from opscope_schemas.formula import Formula, Rational, evaluate, holds, variables
from opscope_schemas.units import plain_bytes, things

from opscope_tools.report.crossing import FUSED_ATTENTION
from opscope_tools.report.facts import ImplementationFacts, leaves, position_limit, short, walk
from opscope_tools.report.kinds import windowed
from opscope_tools.report.lifetimes import life_of
from opscope_tools.report.quotes import as_prose
from opscope_tools.report.tasks import Task, numbering, task_of_operator

__all__ = ["held_by_append", "lifetime_rows", "peak_lines", "tensor_bytes"]

Row = tuple[str, str, str, str]
#: rows of activations, the largest first
_MOST_TENSORS = 5
#: how many times what is looked at memory has to be, to be told of
_NOTABLE = 1.05
#: sizes of a pass that grow, and how they are said
_GROWING = {"seq_len": "{:,} tokens", "cache_len": "{:,} cached tokens", "batch_size": "a batch of {:,}"}
#: the largest that is looked at where the model sets no limit
_LARGEST = 4096
#: how much smaller and larger than here the sizes are that are tried, of which the least is two
_FACTORS = tuple(map(Fraction, ("0", "1/4", "1/2", "2", "4", "16")))
_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}


def tensor_bytes(tensor: TensorInfo, dtype: str) -> Formula:
    """Bytes of a tensor: `{a_bytes}` per element where it has the model's dtype, else the width of its own."""
    width = Formula.var("a_bytes") if tensor.dtype == dtype else Formula.const(_WIDTHS.get(tensor.dtype, 1))
    for size in tensor.shape:
        width = width * Formula.parse(size)
    return width


def lifetime_rows(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[Row]:
    """The inputs, the largest activations, then those that every reader asks for: scores, cache, outputs, weights."""
    numbers = numbering(catalogue)
    return [
        *_inputs(facts, catalogue, numbers),
        *_activations(facts, catalogue),
        *_scores(facts, numbers),
        *_cache(facts, catalogue),
        *_outputs(facts, catalogue, numbers),
        _weights(facts),
    ]


def peak_lines(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[str]:
    """Where the activations of each pass take the most memory, and how much."""
    number = task_of_operator(facts.main, catalogue)
    lines = []
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        point = facts.point(document)
        ranked = sorted(graph.peaks, key=lambda p: evaluate(p.bytes, point), reverse=True)
        if not ranked:
            lines.append(f"Peak of activations in {document.phase}: not known, the size of a tensor depends on data.")
            continue
        largest = ranked[0]
        operator = graph.operators[largest.operator - 1]
        where = f"task {number[operator.id]}, " if document is facts.main else ""
        lines.append(
            f"Peak of activations in {document.phase}: `{largest.bytes}` bytes "
            f"({plain_bytes(evaluate(largest.bytes, point))}{_batched(facts, document, largest.bytes)}) during {where}{operator.operator} "
            f"(`{operator.file}:{operator.line}`), each tensor there until no name or running function of Python holds it."
            f"{_next_peak(facts, document, graph, ranked)}{_fused(facts, document.phase, evaluate(largest.bytes, point))}"
            f"{_appended(graph, point)}"
        )
    return lines


def _next_peak(
    facts: ImplementationFacts, document: ModelAnalysis, graph: Dataflow, ranked: Sequence[PeakPoint]
) -> str:
    """Which operator becomes the peak of a longer or larger pass, and at which size; else which others are it at sizes that were tried."""
    point, others = facts.point(document), ranked[1:]
    if not others:
        return " At no sizes does another operator hold more."
    for name, unit in _GROWING.items():
        if (found := _overtaken(facts, document, ranked, name)) is not None:
            size, peak = found
            return f" At {unit.format(size)} another passes it: {_during(graph, peak)}, with `{peak.bytes}` bytes."
    tried = _tried(facts, document, ranked)
    passing = [peak for peak in others if any(_largest(ranked, there) is peak for there in tried)]
    if not passing:
        return (
            ""
            if not tried
            else f" At none of {len(tried)} other sizes that were tried, from two to 16 times these, does another operator hold more."
        )
    held = plain_bytes(evaluate(passing[0].bytes, point))
    said = f"{_during(graph, passing[0])}, during which {held} live here"
    if len(passing) == 1:
        return f" At other sizes it may be {said}."
    return f" At other sizes it may be one of {len(passing)} other operators, as {said}."


def _largest(ranked: Sequence[PeakPoint], there: Mapping[str, Rational]) -> PeakPoint:
    return max(ranked, key=lambda peak: evaluate(peak.bytes, there))


def _tried(
    facts: ImplementationFacts, document: ModelAnalysis, ranked: Sequence[PeakPoint]
) -> list[Mapping[str, Rational]]:
    """Points inside the conditions at which each size of the call, and all of them, are smaller or larger than here."""
    point, limit = facts.point(document), position_limit(facts.tree)
    derived = {v.name: variables(v.definition) for v in document.variables if v.definition}
    named = frozenset().union(*(variables(peak.bytes) for peak in ranked))
    bound = frozenset().union(*(derived[name] for name in named & derived.keys()))
    sizes = [
        v.name for v in document.variables
        if v.kind == "symbol" and not v.config_key and v.name in named - bound and not v.name.endswith("_bytes")
    ]  # fmt: skip
    asked = _met(document, point)
    groups = list(dict.fromkeys([*((name,) for name in sizes), tuple(sizes)])) if sizes else []
    found: list[Mapping[str, Rational]] = []
    for names, factor in product(groups, _FACTORS):
        there = {**point, **{name: max(min(2, int(point[name])), int(point[name] * factor)) for name in names}}
        short = all(there.get(name, 0) <= (limit or there[name]) for name in names if name.endswith("_len"))
        if there != point and short and all(holds(c, there) for c in asked):
            found.append(there)
    return found


def _met(document: ModelAnalysis, point: Mapping[str, Rational]) -> list[str]:
    """The conditions that hold at the point; others a trace made there made good."""
    return [c for c in document.conditions if variables(c) <= point.keys() and holds(c, point)]


def _during(graph: Dataflow, peak: PeakPoint) -> str:
    operator = graph.operators[peak.operator - 1]
    module = f" of {as_prose(operator.module)}" if operator.module else ""
    return f"{operator.operator}{module} (`{operator.file}:{operator.line}`)"


def _overtaken(
    facts: ImplementationFacts, document: ModelAnalysis, ranked: Sequence[PeakPoint], name: str
) -> tuple[int, PeakPoint] | None:
    """A size at which another peak is the largest and was not at one less, all else as it is, and that peak; None where none is found,
    as far as the model has positions and its formulas hold."""
    point = facts.point(document)
    derived = {v.name for v in document.variables if v.definition and name in variables(v.definition)}
    if not point.get(name) or any(derived & variables(peak.bytes) for peak in ranked):
        return None
    limit = position_limit(facts.tree) if name != "batch_size" else None
    asked = _met(document, point)

    def largest(size: int) -> PeakPoint | None:
        there = {**point, name: size}
        return _largest(ranked, there) if all(holds(c, there) for c in asked) else None

    low = high = int(point[name])
    while largest(high) is ranked[0]:
        low, high = high, 2 * high
        if high > (limit or _LARGEST):
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if largest(middle) is ranked[0] else (low, middle)
    return (high, peak) if (peak := largest(high)) is not None else None


def _appended(graph: Dataflow, point: Mapping[str, Rational]) -> str:
    """What appending to the cache takes for a moment, where that makes all of a tensor anew."""
    if (most := held_by_append(graph, point)) is None:
        return ""
    at, extra, whole = most
    return (
        f" An eager append to the cache copies what was there: during {at.operator} (`{at.file}:{at.line}`) the old stands beside the new "
        f"({plain_bytes(extra)}), so that, with activations, {plain_bytes(whole)} are held beside one cache and the weights."
    )


def held_by_append(graph: Dataflow, point: Mapping[str, Rational]) -> tuple[FlowOperator, int, int] | None:
    """Where an append to the cache holds the most beside what the cache is after it: the operator, the bytes that are there twice, and
    these with the activations; None where nothing is copied."""
    held = {tensor.id: tensor for tensor in graph.tensors}
    sizes = {tensor.id: evaluate(tensor.bytes, point) for tensor in graph.tensors if tensor.bytes}
    copied = [
        (held[old], held[new])
        for operator in graph.operators
        if operator.operator == "aten.cat"
        for old in operator.reads
        for new in operator.writes
        if held[old].kind == held[new].kind == "cache" and old in sizes
    ]
    found: list[tuple[int, int, FlowOperator]] = []
    for operator in graph.operators if copied else ():
        there = [old.id for old, new in copied if new.lives[0] <= operator.id <= old.lives[1]]
        if extra := sum(sizes[index] for index in there):
            found.append((extra + sum(sizes.get(index, 0) for index in operator.holds), extra, operator))
    if not found:
        return None
    whole, extra, at = max(found, key=lambda one: one[:2])
    return at, extra, whole


def _fused(facts: ImplementationFacts, phase: str, eager: int) -> str:
    """What the peak is where kernels are fused as engines do, where that is another."""
    found = facts.whole(phase)
    size = found.memory.activation_bytes if found is not None else None
    return (
        f" As engines run the pass, with kernels fused and each tensor freed after its last reader, it is {plain_bytes(size)}."
        if size and size != eager
        else ""
    )


def _activations(facts: ImplementationFacts, catalogue: Sequence[Task]) -> Iterator[Row]:
    """The largest tensors that live inside the pass; tensors alike in all that a row says are one row."""
    graph, point, number = facts.graphs[0], facts.point(facts.main), task_of_operator(facts.main, catalogue)
    made = [t for t in graph.tensors if t.created_by and t.kind == "activation" and t.bytes]
    peak = max(graph.peaks, key=lambda one: evaluate(one.bytes, point), default=None)
    there = frozenset(peak.tensors) if peak is not None else frozenset[int]()  # these make it, and stand first
    made.sort(
        key=lambda t: (
            t.id not in there,
            -evaluate(t.bytes, point) * (1 if t.id in there else t.lives[1] - t.lives[0]),
            t.id,
        )
    )
    repeats = [evaluate(operator.repeat, point) for operator in graph.operators]
    rows: dict[tuple[str, str], dict[tuple[str, str], None]] = {}
    for tensor in made:
        operator = graph.operators[tensor.created_by - 1]
        life = life_of(tensor, graph, repeats)
        later = _readers(life.next_readers, number)
        readers = "; ".join(
            filter(None, (_readers(tensor.consumed_by, number), later and f"in the next repetition {later}"))
        )
        name = TensorInfo(name=f"{operator.operator.partition('.')[2]} result", shape=tensor.shape, dtype=tensor.dtype)
        of = (
            f"{_described(name.name, name)}, {_bytes(facts, Formula.parse(tensor.bytes), facts.main)}",
            f"task {number[tensor.created_by]} (`{operator.file}:{operator.line}`)",
        )
        if of not in rows and len(rows) == _MOST_TENSORS:
            continue
        lived = f"{'about ' * life.about}{life.operators:,} {things(life.operators, 'operator')}, task {number[tensor.created_by]} to {number[life.last]}"
        if life.next_readers:
            lived = f"{lived} of the next repetition, which reads it last, or as long as a name in Python holds it"
        told = (readers or "nobody", lived)
        rows.setdefault(of, {})[told] = None
    for of, told_of in rows.items():
        read, lives = zip(*told_of, strict=True)
        yield *of, "; another: ".join(dict.fromkeys(read)), "; another: ".join(dict.fromkeys(lives))


def _readers(operators: Sequence[int], number: Mapping[int, int]) -> str:
    """The tasks that they are."""
    found = dict.fromkeys(str(number[reader]) for reader in operators)
    return f"task {', '.join(found)}" if found else ""


def _described(name: str, tensor: TensorInfo) -> str:
    return f"{name}: `[{', '.join(tensor.shape)}]` {tensor.dtype}"


def _sized(facts: ImplementationFacts, name: str, tensor: TensorInfo, document: ModelAnalysis | None = None) -> str:
    """Name, shape and bytes of one tensor."""
    size = tensor_bytes(tensor, facts.main.dtype)
    return f"{_described(name, tensor)}, {_bytes(facts, size, document or facts.main)}"


def _bytes(facts: ImplementationFacts, size: Formula, document: ModelAnalysis) -> str:
    return f"`{size}` bytes ({plain_bytes(evaluate(str(size), facts.point(document)))} in {document.phase})"


def _tasks_of(kernel: Kernel, numbers: Mapping[int, int]) -> str:
    """The tasks of a call, from its first to its last."""
    own = [numbers[id(each)] for _, _, each in walk((kernel,), "") if id(each) in numbers]
    if not own:
        return "no task"
    return f"task {own[0]}" if len(own) == 1 else f"tasks {min(own)} to {max(own)}"


# ---- the rows -------------------------------------------------------------------------------------------------------


def _inputs(facts: ImplementationFacts, catalogue: Sequence[Task], numbers: Mapping[int, int]) -> Iterator[Row]:
    """What the model is called with and who reads it; where the graph holds no inputs, what the first call is handed."""
    number, held = task_of_operator(facts.main, catalogue), list(facts.graphs[0].tensors)
    named = False
    for one in facts.main.model_inputs:  # a folded layer leaves tensors that are no input of the model
        found = next((t for t in held if t.kind == "input" and (t.shape, t.dtype) == (one.shape, one.dtype)), None)
        if found is None or not found.consumed_by:
            continue
        held.remove(found)
        named = True
        readers = ", ".join(map(str, dict.fromkeys(number[reader] for reader in found.consumed_by)))
        info = TensorInfo(name="", shape=one.shape, dtype=one.dtype)
        caller = f"the caller of `{short(facts.subject)}`"
        yield _sized(facts, one.name, info), caller, f"task {readers}", "owned by the caller"
    first = next(iter(facts.main.kernels), None)
    if named or first is None or not first.inputs:
        return
    name, tensor = first.inputs[0].name or "input", first.inputs[0]
    reader = (
        f"`{first.attribute}` first ({_tasks_of(first, numbers)})" if first.attribute else _tasks_of(first, numbers)
    )
    yield _sized(facts, name, tensor), f"the caller of `{short(facts.subject)}`", reader, "owned by the caller"


def _outputs(facts: ImplementationFacts, catalogue: Sequence[Task], numbers: Mapping[int, int]) -> Iterator[Row]:
    """What the pass returns; where the graph holds none of it, what the last kernel gives."""
    number, dropped = task_of_operator(facts.main, catalogue), "from the end of the pass until the caller drops it"
    found = [(each, number[by], readers) for each, by, readers in facts.returned if by in number and not facts.within]
    for tensor, task, readers in found:
        name = tensor.name or f"output of `{short(facts.subject)}`"
        tasks = list(dict.fromkeys(str(number[one]) for one in readers if one in number))
        read = f"task {', '.join(tasks)}; the caller" if tasks else "the caller"
        since = f"from task {task} until the caller drops it" if task else dropped
        yield _sized(facts, name, tensor.model_copy(update={"name": ""})), _maker(task), read, since
    if found:
        return
    last = facts.main.kernels[-1] if facts.main.kernels else None
    if last is None or not last.outputs:
        return
    tensor = last.outputs[0]
    name = "logits" if tensor.shape and tensor.shape[-1] == "{vocab_size}" else f"output of `{short(facts.subject)}`"
    made = f"`{last.attribute}` ({_tasks_of(last, numbers)})" if last.attribute else _tasks_of(last, numbers)
    yield _sized(facts, name, tensor), made, "the caller", dropped


def _maker(task: int) -> str:
    return f"task {task}" if task else "not analysed: the trace does not say which operator makes it"


def _scores(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """Attention scores: absent where one operator computes attention, else what the softmax gives."""
    for owner, kernel in leaves(facts.main):
        where = f"task {numbers[id(kernel)]}, {kernel.operator} (`{kernel.file}:{kernel.line}`)"
        if FUSED_ATTENTION.search(kernel.operator):
            name = "attention scores"
            if len(kernel.inputs) > 1 and all(len(tensor.shape) == 4 for tensor in kernel.inputs[:2]):
                query, key = kernel.inputs[:2]
                shape = (*query.shape[:3], key.shape[2])
                scores = TensorInfo(name="", shape=shape, dtype=query.dtype)
                name = _sized(facts, "attention scores, which would be", scores)
            yield name, "none: never in memory as a whole", where, "absent: that operator fuses scores, softmax and sum"
            return
        if "softmax" in kernel.operator and facts.role(owner) == "attention" and kernel.outputs:
            yield (
                _sized(facts, "attention scores", kernel.outputs[0]),
                where,
                "the product with the values, in the same attention",
                "to that product, or as long as a name in Python holds it",
            )
            return


def _cache(facts: ImplementationFacts, catalogue: Sequence[Task]) -> Iterator[Row]:
    """What all layers keep after each pass: keys and values, or the state of a recurrence."""
    sizes = [
        f"after {document.phase} {_bytes(facts, Formula.parse(graph.cache.after), document).replace(f' in {document.phase}', '')}"
        f"{_batched(facts, document, graph.cache.after)}"
        for document, graph in zip(facts.documents, facts.graphs, strict=True)
        if graph.cache is not None
    ]
    graph, number = facts.graphs[0], task_of_operator(facts.main, catalogue)
    made = [graph.operators[t.created_by - 1] for t in graph.tensors if t.kind == "cache" and t.created_by]
    if not sizes or not made or graph.cache is None:
        return
    where = f"task {', '.join(map(str, dict.fromkeys(number[o.id] for o in made)))} (`{made[0].file}:{made[0].line}`)"
    readers = "the layers that made it, in this and every later pass"
    yield f"cache: {'; '.join(sizes)}{_beneath(facts)}", where, readers, f"the whole generation{_growth(facts)}"


def _beneath(facts: ImplementationFacts) -> str:
    """What memory the cache lies in, where a good deal of that is no longer looked at."""
    said = []
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        if graph.cache is not None and graph.cache.memory:
            point = facts.point(document)
            whole, kept = evaluate(graph.cache.memory, point), evaluate(graph.cache.after, point)
            if whole > kept * _NOTABLE:
                said.append(f"{plain_bytes(whole)} after {document.phase}")
    views = "; a window is a view of more until the next pass copies it, so that eager Python holds"
    return f"{views} {' and '.join(said)}" if said else ""


def _batched(facts: ImplementationFacts, document: ModelAnalysis, size: str) -> str:
    """At which batch a formula holds that does not name it: a pass traced at these very values has the batch in its numbers."""
    return "" if "batch_size" in variables(size) else f", at batch {facts.point(document)['batch_size']}"


def _growth(facts: ImplementationFacts) -> str:
    """By what the cache grows with each token: once where all passes say the same, else of each pass.

    Layers with a window stop growing when it is full, so that a pass over more tokens says less.
    """
    found: dict[int, tuple[str, list[str]]] = {}
    for document, graph in zip(facts.documents, facts.graphs, strict=True):
        if graph.cache is not None and graph.cache.per_token:
            growth = graph.cache.per_token
            found.setdefault(evaluate(growth, facts.point(document)), (growth, []))[1].append(document.phase)
    if set(found) <= {0}:
        return "; it is as large after any number of tokens" if found else ""
    said = [f"by `{growth}` bytes with each token in {' and '.join(phases)}" for growth, phases in found.values()]
    alone = len(found) == 1
    window = (
        f", in the layers with a {'window' if limit.slides else 'chunk'} of {limit.tokens:,} tokens until they hold {limit.tokens - 1:,}, "
        "which are all that a new one looks back at"
        if (limit := windowed(facts))
        else ""
    )
    return f"; it grows {said[0].rpartition(' in ')[0] if alone else ', '.join(said)}{window}"


def _weights(facts: ImplementationFacts) -> Row:
    size = Formula.parse(facts.main.weights)
    known = "" if size == Formula.const(0) else f": `{size}` bytes"
    held = plain_bytes(facts.weight_bytes)
    return f"weights{known} ({held})", "model construction", "every task that reads a weight", "as long as the model"
