"""From a trace to the operator graph of one module call: dependencies, lifetimes, peak memory, growth of the cache.

A tensor lives from the operator that makes it until Python lets it go: the least that eager execution takes. Engines free it
after the last operator that reads it. Order: the graph, its memory, numbers at a point.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from opscope_schemas.analysis import Variable
from opscope_schemas.dataflow import CacheGrowth, Dataflow, DataflowNumbers, FlowOperator, FlowTensor, PeakPoint
from opscope_schemas.formula import Formula, Monomial, Rational, evaluate, variables

from opscope_tools.trace.document import CallTree, not_counted, shown_conditions, worked_out_once
from opscope_tools.trace.protocol import BesideRecord, CallRecord, KeptRecord, OpRecord, TensorRecord
from opscope_tools.trace.routing import GROUPED, expert_layers
from opscope_tools.trace.serving import EngineKernel, kernels, resized, unmade

_ZERO, _ONE = Formula.const(0), Formula.const(1)
#: points of a peak that depend on sizes and are kept apart
_MOST_PEAKS = 200
#: kinds of tensors that count towards a peak
_COUNTED = ("activation", "output")
_EQUAL = re.compile(r"\{(\w+)\} == \{(\w+)\}")
ASSUMPTIONS = (
    "A tensor lives from the operator that makes it until no name, list or running function of Python holds it.",
    "Peaks are of activations: weights, the cache, the inputs that the caller keeps and temporary workspaces of kernels come on top.",
)  # fmt: skip


@dataclass(frozen=True)
class _Placed:
    """An operator of the module with the submodule that issues it and how often it runs."""

    op: OpRecord
    module: str
    repeat: Formula


@worked_out_once
def dataflow(tree: CallTree, call: CallRecord) -> Dataflow:
    """The graph of one call of `call`."""
    placed = list(_placed(tree, call, "", _ONE))
    scope = _Scope(tree, [p.op for p in placed], call)
    operators = list(_operators(tree, placed, scope))
    tensors = [scope.shown(record) for record in scope.tensors]
    peaks = scope.peaks()
    cache = cache_growth(tree, call)
    peak = str(Formula.maximum(*(p for _, p, _ in peaks))) if peaks else ""
    inputs, weights = _inputs(tree, call), Formula.parse(call.weights)
    trace = tree.trace
    texts = [
        peak,
        inputs,
        str(weights),
        *(t.bytes for t in tensors),
        *(s for t in tensors for s in t.shape if s != "?"),
    ]
    texts += [o.repeat for o in operators] + (
        [text for text in (cache.before, cache.after, cache.per_token, cache.memory) if text] if cache else []
    )
    return Dataflow(
        class_name=call.class_name, file=call.file, line=call.line, instance=tree.pattern(call), model_class=trace.model_class,
        phase=trace.phase, attention=trace.attention, dtype=trace.dtype,  # type: ignore[arg-type]  # a trace keeps its phase as text
        operators=tuple(operators), tensors=tuple(tensors), depth=max((o.level for o in operators), default=-1) + 1,
        peak_activations=peak, inputs=inputs, cache=cache, weights=str(weights),
        peaks=tuple(PeakPoint(operator=o, bytes=str(p), tensors=scope.ids(held)) for o, p, held in peaks),
        variables=_used(trace.variables, texts), assumptions=(*ASSUMPTIONS, *trace.assumptions),
        conditions=shown_conditions(tree, call), not_counted=not_counted(tree.ops_below(call)),
    )  # fmt: skip


def _placed(tree: CallTree, call: CallRecord, module: str, repeat: Formula) -> Iterator[_Placed]:
    prefix = tree.pattern(call)
    for child in tree.children(call):
        if isinstance(child, OpRecord):
            yield _Placed(child, module, repeat * Formula.parse(child.repeat))
            continue
        path = tree.pattern(child)
        below = path[len(prefix) + 1 :] if prefix and path.startswith(prefix + ".") else path
        inner = ".".join(part for part in (module, below) if part) if prefix else below
        yield from _placed(tree, child, inner, repeat * Formula.parse(child.repeat))


def _operators(tree: CallTree, placed: Sequence[_Placed], scope: _Scope) -> Iterator[FlowOperator]:
    levels: dict[int, int] = {}
    carried = _carried(tree, placed)
    for number, each in enumerate(placed, 1):
        op = each.op
        before = [scope.numbers[order] for order in op.after if order in scope.numbers]
        levels[number] = max((levels[b] + 1 for b in before), default=0)
        yield FlowOperator(
            id=number, operator=op.operator, file=op.site.file, line=op.site.line, module=each.module, repeat=str(each.repeat),
            reads=scope.ids(op.reads), weights=op.weights, writes=scope.ids(op.writes), holds=scope.ids(scope.holds[op.order]), depends_on=tuple(before),
            carried_from=tuple(sorted(scope.numbers[o] for o in carried.get(op.order, ()) if o in scope.numbers)),
            level=levels[number],
        )  # fmt: skip


def _carried(tree: CallTree, placed: Sequence[_Placed]) -> dict[int, set[int]]:
    """Order of an operator -> orders of those that made, one repetition before, what it reads."""
    made: dict[int, set[int]] = {}
    for each in placed:
        for index in each.op.writes:
            made[index] = {each.op.order}  # the last that writes it
    found: dict[int, set[int]] = {each.op.order: set(each.op.carried) for each in placed if each.op.carried}
    for record in tree.trace.carried:
        inside = {op.order for op in tree.ops_below(tree.trace.calls[record.call])}
        for each in placed:
            if record.read in each.op.reads and each.op.order in inside:
                found.setdefault(each.op.order, set()).update(made.get(record.made, ()))
    return found


def _used(known: Sequence[Variable], texts: Iterable[str]) -> tuple[Variable, ...]:
    used = {name for text in texts for name in (variables(text) if text else ())}
    for variable in known:
        if variable.name in used and variable.definition:
            used |= variables(variable.definition)
    return tuple(variable for variable in known if variable.name in used)


# ---------------------------------------------------------------- memory


class _Scope:
    """The operators of one module call and the tensors that they touch."""

    def __init__(self, tree: CallTree, ops: Sequence[OpRecord], call: CallRecord) -> None:
        self.ops = ops
        self._tree, self._call = tree, call
        self._there: dict[int, list[TensorRecord]] = {}
        self.numbers = {op.order: number for number, op in enumerate(ops, 1)}
        touched = {i for op in ops for i in (*op.reads, *op.writes)}
        self.tensors = [t for t in tree.trace.tensors if t.index in touched]
        self._ids = {t.index: number for number, t in enumerate(self.tensors, 1)}
        self._made = {i: op.order for op in reversed(ops) for i in op.writes}
        self._first, self._last = (ops[0].order, ops[-1].order) if ops else (0, 0)

    def ids(self, indices: Iterable[int]) -> tuple[int, ...]:
        """What stands for a tensor of a folded sibling is that of the first one."""
        return tuple(self._ids[self._first_ones.get(i, i)] for i in indices)

    @cached_property
    def _first_ones(self) -> dict[int, int]:
        return {t.index: t.alias_of for t in self._counted if t.index not in self._ids and t.alias_of is not None}

    def shown(self, record: TensorRecord) -> FlowTensor:
        made = self._made.get(record.index, 0)
        kind = record.kind
        if kind == "activation" and (not made or record.born < self._first):
            kind = "input"
        left = self._left(record)
        if kind == "activation" and left is not None:
            kind = "output"
        readers = [self.numbers[op.order] for op in self.ops if record.index in op.reads]
        begin, end = self._span(record)
        return FlowTensor(
            id=self._ids[record.index], kind=kind, shape=record.info.shape, dtype=record.info.dtype, bytes=record.size,
            name=(left or record).info.name if kind == "output" else "", created_by=self.numbers.get(made, 0), consumed_by=tuple(readers), lives=(begin, end),
            in_later_repetitions=self._is_there_again(record, self.ops[end - 1]),
        )  # fmt: skip

    def _left(self, record: TensorRecord) -> TensorRecord | None:
        """The tensor, or what a folded sibling made in its place, that is there when the call is over: returned, or read later."""
        end = max(self._last, self._call.end)
        alike = [record, *(t for t in self._aliases.get(record.index, ()) if t.born <= end)]
        return next((one for one in reversed(alike) if one.kind == "output" or one.last > end), None)

    @cached_property
    def _aliases(self) -> dict[int, list[TensorRecord]]:
        found: dict[int, list[TensorRecord]] = {}
        for record in self._tree.trace.tensors:
            if record.alias_of is not None:
                found.setdefault(record.alias_of, []).append(record)
        return found

    def _span(self, record: TensorRecord) -> tuple[int, int]:
        """The first and last operator during which the tensor is in memory."""
        inside = [self.numbers[op.order] for op in self.ops if record.born <= op.order <= record.held]
        touching = [self.numbers[op.order] for op in self.ops if record.index in (*op.reads, *op.writes)]
        return min([*inside, *touching]), max([*inside, *touching])

    def _is_there_again(self, record: TensorRecord, last: OpRecord) -> bool:
        """Whether it is in memory when a sibling of a call around an operator runs."""
        around = self._tree.around(self._tree.trace.calls[last.call])
        siblings = (one for call in around if record.born <= call.order for one in self._siblings.get(call.index, ()))
        return any(record.index in one.tensors for one in siblings)

    @cached_property
    def _counted(self) -> list[TensorRecord]:
        """What counts towards a peak: what operators of the pass made, and the module makes or is given."""
        touched = self._ids.keys()
        return [
            t
            for t in self._tree.trace.tensors
            if t.kind in _COUNTED
            and (t.index in touched or (t.alias_of in touched and self._call.order < t.born <= self._last))
        ]

    def peaks(self) -> list[tuple[int, Formula, tuple[int, ...]]]:
        """The operators and sums of which one is the largest, whatever the sizes, and the tensors that are in memory then.

        [] where a size is not known. The largest as traced comes first.
        """
        sums: dict[Formula, tuple[int, tuple[int, ...]]] = {}
        for order, held in self._candidates:
            if any(index not in self._sizes for index in held):
                return []
            sums.setdefault(sum((self._sizes[index] for index in held), _ZERO), (self.numbers[order], held))
        return [(sums[f][0], f, sums[f][1]) for f in _largest(self._tree, sums)]

    @cached_property
    def holds(self) -> dict[int, tuple[int, ...]]:
        """By the order of an operator, what is in memory while it runs: of several, the most as traced."""
        point = _traced_at(self._tree)
        sizes = {index: size.evaluate(point) for index, size in self._sizes.items()}
        found: dict[int, tuple[Rational, tuple[int, ...]]] = {}
        for order, held in self._candidates:
            size = sum(sizes.get(index, 0) for index in held)
            if order not in found or size > found[order][0]:
                found[order] = size, held
        return {order: held for order, (_, held) in found.items()}

    @cached_property
    def _candidates(self) -> list[tuple[int, tuple[int, ...]]]:
        return list(self._held(self._call))

    @cached_property
    def _sizes(self) -> dict[int, Formula]:
        return {t.index: Formula.parse(t.size) for t in self._counted if t.size}

    def _held(self, call: CallRecord) -> Iterator[tuple[int, tuple[int, ...]]]:
        """During each operator of a call, and of those that it makes: what is in memory, of all that the call's own begin leaves.

        Where a call stands for siblings, what lies beside one of these may be more than what lies beside the first.
        """
        whole = call is self._call
        for child in self._tree.children(call):
            if isinstance(child, OpRecord):
                yield child.order, tuple(t.index for t in self._during(child.order) if whole or t.born > call.order)
                continue
            others = [self._beside(record, call, whole) for record in self._siblings.get(child.index, ())]
            for order, inside in self._held(child):
                first = [
                    t.index for t in self._during(order) if t.born <= child.order and (whole or t.born > call.order)
                ]
                for beside in dict.fromkeys((tuple(first), *others)):
                    yield order, (*beside, *inside)

    def _during(self, order: int) -> list[TensorRecord]:
        if order not in self._there:
            self._there[order] = [t for t in self._counted if t.born <= order <= t.held]
        return self._there[order]

    def _beside(self, record: BesideRecord, call: CallRecord, whole: bool) -> tuple[int, ...]:
        """What a call made, or was given, and is in memory when a sibling of one that it makes runs."""
        return tuple(i for i in record.tensors if i in self._born and (whole or self._born[i] > call.order))

    @cached_property
    def _born(self) -> dict[int, int]:
        return {t.index: t.born for t in self._counted}

    @cached_property
    def _siblings(self) -> dict[int, list[BesideRecord]]:
        found: dict[int, list[BesideRecord]] = {}
        for record in self._tree.trace.beside:
            found.setdefault(record.call, []).append(record)
        return found


def _largest(tree: CallTree, sums: Iterable[Formula]) -> list[Formula]:
    """Those of which one is the largest, whatever the sizes, the largest as traced first; [] where they are too many."""
    sums, point = list(sums), _traced_at(tree)
    kept = [f for f in sums if not any(f != other and _below(f, other) for other in sums)]
    kept.sort(key=lambda f: -f.evaluate(point))
    return kept if len(kept) <= _MOST_PEAKS else []


@worked_out_once
def served_peak(tree: CallTree, call: CallRecord) -> str:
    """The most bytes that activations take where the pass runs as the kernels of an engine: what lies inside one is in no memory.

    "" where a size is not known.
    """
    served = kernels(tree, call)
    runs_at = dict(_runs_at(served))
    runs_at.update(_around_experts(tree, call))
    left_out = unmade(tree, call)
    every = [placed.op for placed in _placed(tree, call, "", _ONE)]
    ops = [op for op in every if op.order not in left_out]
    never = {index for op in every if op.order in left_out for index in op.writes}
    touched = {i for op in ops for i in (*op.reads, *op.writes)}.difference(never)
    counted = [t for t in tree.trace.tensors if t.index in touched and t.kind in _COUNTED]
    sizes = {**{t.index: Formula.parse(t.size) for t in counted if t.size}, **resized(tree, call)}
    lives = [*_served_lives(ops, counted, runs_at), *_read_again(served, counted)]
    sums: dict[Formula, None] = {}
    for op in ops:
        if runs_at.get(op.order, op.order) == op.order:
            live = [t.index for begin, end, t in lives if begin <= op.order <= end]
            if any(index not in sizes for index in live):
                return ""
            sums[sum((sizes[index] for index in live), _ZERO)] = None
    largest = _largest(tree, sums)
    return str(Formula.maximum(*largest)) if largest else ""


def _runs_at(served: Iterable[EngineKernel]) -> Iterator[tuple[int, int]]:
    """Order of an operator that runs as a part of a kernel -> that of the kernel; what ends the layer before is counted where it is
    made, as one of its own."""
    for kernel in served:
        for part in kernel.own[1:]:
            yield part.order, kernel.ops[0].order
        for part in kernel.before[1:]:
            yield part.order, kernel.before[0].order


def _read_again(
    served: Iterable[EngineKernel], counted: Iterable[TensorRecord]
) -> Iterator[tuple[int, int, TensorRecord]]:
    """What the end of a layer reads, which is still there while the norm that begins the next one runs, in whose kernel it is."""
    known = {t.index: t for t in counted}
    for kernel in served:
        made = {index for op in kernel.before for index in op.writes}
        for index in {index for op in kernel.before for index in op.reads} - made:
            if index in known:
                yield kernel.ops[0].order, kernel.ops[0].order, known[index]


def _around_experts(tree: CallTree, call: CallRecord) -> Iterator[tuple[int, int]]:
    """Orders of the operators that a layer of experts runs before its first product and after its last -> those as whose parts they
    run: kernels of engines take the rows of the first from where they lie, and sum those of the last in one pass."""
    for layer in expert_layers(tree, call):
        ops = list(tree.ops_below(tree.trace.calls[layer]))
        orders, products = [op.order for op in ops], [op.order for op in ops if op.operator in GROUPED]
        yield from ((order, products[0]) for order in orders if order < products[0])
        yield from ((order, orders[-1]) for order in orders if products[-1] < order < orders[-1])


def _served_lives(
    ops: Sequence[OpRecord], counted: Sequence[TensorRecord], runs_at: Mapping[int, int]
) -> Iterator[tuple[int, int, TensorRecord]]:
    """Between which orders what counts is in memory, each freed after its last reader. What one kernel makes and alone reads is
    in none. `runs_at`: order of an operator -> that of the kernel as whose part it runs, where it is none of its own."""
    made: dict[int, int] = {}
    users: dict[int, set[int]] = {}
    ended: dict[int, int] = {}
    for op in ops:
        at = runs_at.get(op.order, op.order)
        made.update((index, min(at, made.get(index, at))) for index in op.writes)
        for index in (*op.reads, *op.writes):
            users.setdefault(index, set()).add(at)
            ended[index] = max(op.order, at)
    fused = set(runs_at.values())
    for t in counted:
        within = users[t.index] == {made.get(t.index)} <= fused and t.last <= ended[t.index]
        if t.kind == "output" or not within:
            yield made.get(t.index, t.born), max(t.last, *users[t.index]), t


def _inputs(tree: CallTree, call: CallRecord) -> str:
    """Bytes of the model's inputs that the call reads. "" where a size is not known."""
    read = {index for op in tree.ops_below(call) for index in op.reads}
    sizes = [t.size for t in tree.trace.tensors if t.kind == "input" and t.index in read]
    return str(sum(map(Formula.parse, sizes), _ZERO)) if all(sizes) else ""


def _traced_at(tree: CallTree) -> dict[str, Rational]:
    """Every variable's value as traced: those that follow from others by their definitions."""
    values = dict(tree.trace.point)
    pending = {v.name: v.definition for v in tree.trace.variables if v.definition and v.name not in values}
    for _ in range(len(pending)):
        ready = [name for name, text in pending.items() if variables(text) <= values.keys()]
        values |= {name: evaluate(pending.pop(name), values) for name in ready}
    return values


def _below(a: Formula, b: Formula) -> bool:
    """Whether `a` is at most `b` at all sizes of at least 1: each of its terms is paid for by terms of `b` that hold it.

    `4 * x` is at most `4 * x * y`, whatever the y: a positive term of the difference may stand for a negative one whose
    factors are among its own.
    """
    terms = (b - a).terms
    left = {monomial: coefficient for monomial, coefficient in terms.items() if coefficient > 0}
    for monomial, coefficient in terms.items():
        owed = -coefficient
        for other in left if owed > 0 else ():
            if _holds(other, monomial):
                paid = min(owed, left[other])
                left[other] -= paid
                owed -= paid
        if owed > 0:
            return False
    return True


def _holds(product: Monomial, part: Monomial) -> bool:
    """Whether a product has all factors of another, and beside them only variables, which are at least 1."""
    powers, wanted = dict(product), dict(part)
    return all(powers.get(atom, 0) >= power for atom, power in wanted.items()) and all(
        isinstance(atom, str) for atom, power in powers.items() if power > wanted.get(atom, 0)
    )


def cache_growth(tree: CallTree, call: CallRecord) -> CacheGrowth | None:
    """What the call's layers keep, all repetitions together."""
    repeats = dict(_repeats(tree, call, _ONE))
    before, after = (_kept(kept, repeats) for kept in (tree.trace.cache_before, tree.trace.cache_after))
    if before is None or after is None or not (before.terms or after.terms):
        return None
    owned = _heads_of_keys(tree)
    before, after = before.substitute(owned), after.substitute(owned)
    memory = (_kept(_whole(tree), repeats) or after).substitute(owned)
    growth = CacheGrowth(before=str(before), after=str(after), per_token=_growth(tree, before, after))
    return growth if memory == after else growth.model_copy(update={"memory": str(memory)})


def _whole(tree: CallTree) -> list[KeptRecord]:
    """What the cache keeps, each with all of the memory that it lies in."""
    sizes = {t.index: t.size for t in tree.trace.tensors}
    kept = {record.index: record for record in tree.trace.cache_after}
    return [record.model_copy(update={"size": sizes.get(index, record.size)}) for index, record in kept.items()]


def _heads_of_keys(tree: CallTree) -> dict[str, Formula]:
    """By the name of heads of queries: those of keys, where the trace holds only where there are as many."""
    return {
        names[0]: Formula.var(names[1])
        for guard in tree.trace.guards
        if (found := _EQUAL.fullmatch(guard)) is not None
        for names in (found.groups(), found.groups()[::-1])
        if names[1].endswith("num_kv_heads")
    }


def _growth(tree: CallTree, before: Formula, after: Formula) -> str:
    """What one more token adds; empty where the trace holds at one number of new tokens alone, and that is not 1."""
    pinned = any(guard.startswith("{seq_len} == ") for guard in tree.trace.guards)
    if not pinned and any(v.name == "seq_len" and v.kind == "symbol" for v in tree.trace.variables):
        return str(after.substitute({"seq_len": Formula.var("seq_len") + 1}) - after)
    new = 1 if "{seq_len} == 1" in tree.trace.guards else tree.trace.point.get("seq_len")
    return str(after - before) if new == 1 else ""


def _repeats(tree: CallTree, call: CallRecord, repeat: Formula) -> Iterator[tuple[int, Formula]]:
    yield call.index, repeat
    for child in tree.children(call):
        if isinstance(child, CallRecord):
            yield from _repeats(tree, child, repeat * Formula.parse(child.repeat))


def _kept(records: Iterable[KeptRecord], repeats: Mapping[int, Formula]) -> Formula | None:
    total = _ZERO
    for record in records:
        if record.call not in repeats:
            continue
        if not record.size:
            return None
        total = total + repeats[record.call] * Formula.parse(record.size)
    return total


# ---------------------------------------------------------------- numbers


def evaluated(flow: Dataflow, values: Mapping[str, Rational]) -> DataflowNumbers:
    """The formulas at a point; `values` has every variable that they use."""

    def number(text: str) -> int | None:
        return evaluate(text, values) if text else None

    largest = max(flow.peaks, key=lambda p: evaluate(p.bytes, values), default=None)
    cache = flow.cache
    return DataflowNumbers(
        peak_activations=number(flow.peak_activations), peak_operator=largest.operator if largest else 0,
        cache_before=number(cache.before) if cache else None, cache_after=number(cache.after) if cache else None,
        cache_per_token=number(cache.per_token) if cache else None, weights=number(flow.weights), values=dict(values),
    )  # fmt: skip


__all__ = ["ASSUMPTIONS", "cache_growth", "dataflow", "evaluated", "served_peak"]
