"""From a trace to the documents: `module_analysis` of one class, `model_analysis` with every reference expanded.

A trace is a tree of module calls whose leaves are operators. A kernel's figures are its share of the document: what
repeats is multiplied in. So a list of kernels adds up to its holder, and leaves add up to the totals.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from opscope_schemas.analysis import (
    Analysis,
    Evaluated,
    GroupTotal,
    Kernel,
    LineTotal,
    MemoryAccess,
    ModelAnalysis,
    ModuleAnalysis,
    TensorInfo,
    Totals,
    Variable,
)
from opscope_schemas.errors import TraceError, ValuesError
from opscope_schemas.formula import Formula, evaluate, holds, variables

from opscope_tools.trace.protocol import CallRecord, OpRecord, Trace
from opscope_tools.trace.variables import ELEMENT, RUN_HINTS

CONVENTIONS = (
    "FLOPs: a multiply and an add are 1 each, so a matrix product of (m, k) and (k, n) is 2*m*n*k; a bias add is 1 per element.",
    "Element-wise arithmetic and each transcendental count 1 per output element, of integers as of floats; a reduction 1 per input element.",
    "Activations, norms and softmax count as the arithmetic of their definitions (sigmoid 4, silu 5, gelu 5, tanh-gelu 8, softmax 3 per element).",
    "Copies, casts, views, comparisons, sorting and indexing count 0 FLOPs.",
    "matmul_flops holds matrix products, attention products, convolutions and grouped products alone, without bias adds.",
    "Attention is counted dense; totals.causal_saving says what a causal kernel may skip.",
    "Bytes are those of eager execution: each operator reads each distinct input once and writes its outputs once; views are free.",
    "Broadcast inputs are read at their stored size; an embedding reads the rows it gathers and its indices.",
    "Weights are w_bytes and activations a_bytes each where they have the model's dtype; tensors of other dtypes have their own size.",
    "A kernel's figures are its whole share of the document: `repeat` is already multiplied in, also in nested kernels.",
)  # fmt: skip

#: what one pass is, by phase
_PASSES = {
    "prefill": "Prefill: {seq_len} tokens into an empty KV cache; logits for every position.",
    "decode": "Decode: {seq_len} new tokens against a cache that holds {cache_len} tokens of every sequence.",
    "encode": "Encode: the encoder alone.",
    "forward": "One forward pass: the model keeps no cache.",
}  # fmt: skip
_ZERO = Formula.const(0)
#: sizes that torch itself can name
_LARGEST = 2**62


@lru_cache(maxsize=65536)
def _parse(text: str) -> Formula:
    return Formula.parse(text)


@dataclass(frozen=True)
class Sum:
    """Costs added up."""

    flops: Formula = _ZERO
    matmul: Formula = _ZERO
    read: Formula = _ZERO
    write: Formula = _ZERO
    causal: Formula = _ZERO

    def __add__(self, other: Sum) -> Sum:
        return Sum(
            self.flops + other.flops, self.matmul + other.matmul, self.read + other.read, self.write + other.write,
            self.causal + other.causal,
        )  # fmt: skip

    def times(self, factor: Formula) -> Sum:
        if factor == 1:
            return self
        return Sum(
            factor * self.flops, factor * self.matmul, factor * self.read, factor * self.write, factor * self.causal
        )

    def access(self) -> MemoryAccess:
        return MemoryAccess(read=str(self.read), write=str(self.write))


def _op_sum(op: OpRecord) -> Sum:
    return Sum(_parse(op.flops), _parse(op.matmul_flops), _parse(op.read), _parse(op.write), _parse(op.causal_saving))


class CallTree:
    """A trace, indexed for walking."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._children: dict[int, list[CallRecord | OpRecord]] = {}
        for call in trace.calls:
            self._children.setdefault(call.parent, []).append(call)
        for op in trace.ops:
            self._children.setdefault(op.call, []).append(op)
        for children in self._children.values():
            children.sort(key=lambda record: record.order)
        self._sums: dict[int, Sum] = {}

    def children(self, call: CallRecord) -> list[CallRecord | OpRecord]:
        return self._children.get(call.index, [])

    def own_sum(self, call: CallRecord) -> Sum:
        """One call of `call`, everything below it included."""
        if call.index not in self._sums:
            total = Sum()
            for child in self.children(call):
                total = total + (
                    _op_sum(child) if isinstance(child, OpRecord) else self.own_sum(child).times(_parse(child.repeat))
                )
            self._sums[call.index] = total
        return self._sums[call.index]

    def ops_below(self, call: CallRecord) -> Iterable[OpRecord]:
        for child in self.children(call):
            if isinstance(child, OpRecord):
                yield child
            else:
                yield from self.ops_below(child)

    def instances(self, class_name: str) -> list[CallRecord]:
        return [call for call in self.trace.calls if call.class_name == class_name]

    def pattern(self, call: CallRecord) -> str:
        """The call's path with `*` where it stands for several siblings."""
        repeated = []
        record: CallRecord | None = call
        by_index = {c.index: c for c in self.trace.calls}
        while record is not None:
            if record.repeat != "1":
                repeated.append(record.path)
            record = by_index.get(record.parent)
        parts = call.path.split(".") if call.path else []
        for path in repeated:
            depth = len(path.split("."))
            if len(parts) >= depth and parts[depth - 1].isdigit():
                parts[depth - 1] = "*"
        return ".".join(parts)


def find_instance(tree: CallTree, class_name: str, instance: str = "") -> CallRecord:
    """The call that a document is about: the named instance, else the first call of the class, else the root."""
    found = tree.instances(class_name) if class_name else list(tree.trace.calls)
    if instance:
        chosen = [c for c in found if instance in (c.path, tree.pattern(c))]
        if not chosen:
            raise TraceError(
                f"No {class_name.rpartition('.')[2] or 'module'} runs at {instance!r}.",
                next_step=f"Instances: {', '.join(list(dict.fromkeys(tree.pattern(c) for c in found if c.path))[:20])}.",
            )
        return chosen[0]
    if not class_name:
        return tree.trace.calls[0]
    if not found:
        raise TraceError(f"{class_name} did not run in the traced {tree.trace.phase}.")
    return found[0]


# ---------------------------------------------------------------- kernels


def _plain(text: str) -> str:
    """A formula for prose: without braces."""
    return re.sub(r"[{}]", "", text)


def _tensor(info: TensorInfo) -> str:
    shape = "[" + ", ".join(_plain(size) for size in info.shape) + "]"
    return f"{info.name}: {shape}" if info.name else shape


def _basic(op: OpRecord, scale: Formula) -> Kernel:
    cost = _op_sum(op).times(scale)
    name = op.operator.partition(".")[2]
    outputs = ", ".join(_tensor(t) for t in op.outputs)
    return Kernel(
        kernel_type="basic",
        operation=f"{name}({', '.join(_tensor(t) for t in op.inputs)}) -> {outputs}" if outputs else name,
        analysis=(op.derivation or "not counted: no cost rule is registered") + _times(scale),
        flops=str(cost.flops), matmul_flops=str(cost.matmul), memory_access=cost.access(),
        file=op.site.file, line=op.site.line, code=op.site.code, via=op.site.via, operator=op.operator,
        inputs=op.inputs, outputs=op.outputs, repeat=str(scale),
    )  # fmt: skip


def _times(scale: Formula) -> str:
    return "" if scale == 1 else f"; {_plain(str(scale))} times"


def _reference(call: CallRecord) -> str:
    """`${{qualified.ClassName}}(parameters)`: tensors by name and shape, then the module's own sizes."""
    parameters = [_tensor(t) for t in call.inputs]
    if call.description:
        parameters.append(_plain(call.description))
    return f"${{{{{call.class_name}}}}}({', '.join(parameters)})"


def _composite(
    tree: CallTree, call: CallRecord, base: CallRecord, scale: Formula, *, expand: bool, depth: int | None
) -> Kernel:
    times = _parse(call.repeat) * scale
    cost = tree.own_sum(call).times(times)
    site = call.site
    prefix = tree.pattern(base)
    path = tree.pattern(call)
    attribute = path[len(prefix) + 1 :] if prefix and path.startswith(prefix + ".") else path
    nested: tuple[Kernel, ...] | None = None
    if expand and (depth is None or depth > 0):
        nested = tuple(kernels_of(tree, call, times, expand=True, depth=None if depth is None else depth - 1))
    return Kernel(
        kernel_type="composite", operation=_reference(call),
        analysis=f"forward at {call.forward_file}:{call.forward_line}" + _times(times),
        flops=str(cost.flops), matmul_flops=str(cost.matmul), memory_access=cost.access(),
        file=site.file if site else call.file, line=site.line if site else call.line, code=site.code if site else "",
        via=site.via if site else (), attribute=attribute, class_name=call.class_name, repeat=str(times),
        inputs=call.inputs, outputs=call.outputs, kernels=nested,
    )  # fmt: skip


def kernels_of(
    tree: CallTree, call: CallRecord, scale: Formula, *, expand: bool, depth: int | None = None
) -> list[Kernel]:
    """The kernels of one call's forward, in order."""
    return [
        _basic(child, scale)
        if isinstance(child, OpRecord)
        else _composite(tree, child, call, scale, expand=expand, depth=depth)
        for child in tree.children(call)
    ]


# ---------------------------------------------------------------- conditions

#: samples that take one size past another, at most
_CROSSINGS = 120


@lru_cache(maxsize=64)
def _shown(guards: tuple[str, ...], point: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """The guards that some sizes of at least 2 break, without those that the others imply, and which must be at least 2.

    torch records several hundred decisions, most of which every size of at least 2 satisfies (`a < a * b`). Those are
    left out of what people read, and kept in the trace, against which values are always checked in full. Which guards
    are needed is seen at sizes drawn at random, far from the traced ones and near them.
    """
    at = dict(point)
    names = sorted({name for guard in guards for name in variables(guard)})
    pinned = _pinned(guards)
    start = {name: at.get(name, 2) if name in pinned else max(2, at.get(name, 2)) for name in names}
    draw = random.Random(0)
    first = [s for _ in range(20) for s in (_anywhere(names, draw), _nearby(start, draw), _nearby(start, draw))]
    first += _crossed(start, guards)
    samples = first + [
        s for _ in range(30) for s in (_anywhere(names, draw), _nearby(start, draw), _nearby(start, draw))
    ]
    changed = [frozenset(name for name in names if sample[name] != start[name]) for sample in samples]
    masks: dict[str, int] = {}
    for guard in dict.fromkeys(guards):
        touched, holds_there = variables(guard), _holds(guard, start)

        def breaks(i: int, guard: str = guard, touched: frozenset[str] = touched, there: bool = holds_there) -> bool:
            # most samples change a few sizes only, and most guards are about others
            return not (_holds(guard, samples[i]) if changed[i] & touched else there)

        broken = sum(1 << i for i in range(len(first)) if breaks(i))
        if broken:
            masks[guard] = broken + sum(1 << i for i in range(len(first), len(samples)) if breaks(i))
    shown: list[str] = []
    covered = 0
    for guard in sorted(masks, key=lambda g: (not _pinned([g]), len(g), g)):
        if masks[guard] & ~covered:
            shown.append(guard)
            covered |= masks[guard]
    pinned = _pinned(shown)
    ones = [f"{{{name}}} >= 2" for name in names if not all(_holds(g, {**at, name: 1}) for g in guards)]
    return tuple(dict.fromkeys([*shown, *(o for o in ones if _parse_name(o) not in pinned)]))


def shown_conditions(trace: Trace) -> tuple[str, ...]:
    """The conditions of a trace that people read."""
    return _shown(trace.guards, tuple(sorted(trace.point.items())))


def _anywhere(names: Iterable[str], draw: random.Random) -> dict[str, int]:
    top = draw.choice((4, 16, 256, 8192))
    return {name: draw.randint(2, top) for name in names}


def _nearby(start: Mapping[str, int], draw: random.Random) -> dict[str, int]:
    """The traced sizes with a few of them changed: where most guards hold, each by itself can be seen to matter."""
    found = dict(start)
    for name in draw.sample(sorted(found), min(len(found), draw.choice((1, 1, 2, 3)))):
        found[name] = max(
            2, draw.choice((found[name] + 1, found[name] - 1, 2 * found[name], 3 * found[name], found[name] // 2))
        )
    return found


def _crossed(start: Mapping[str, int], guards: Iterable[str]) -> list[dict[str, int]]:
    """The traced sizes with one of them taken past another that a guard compares it with: a window and what is cached."""
    few = sorted({tuple(sorted(variables(guard))) for guard in guards}, key=lambda names: (len(names), names))
    pairs = dict.fromkeys((a, b) for names in few for a in names for b in names if a != b)
    made = dict.fromkeys((a, max(2, n)) for a, b in pairs for n in (start[b], 2 * start[b] + 1, start[b] // 2))
    return [{**start, name: value} for name, value in made if value != start[name]][:_CROSSINGS]


def _parse_name(condition: str) -> str:
    return next(iter(variables(condition)))


def _pinned(conditions: Iterable[str]) -> set[str]:
    """Variables that a condition fixes to a number."""
    return {m.group(1) for c in conditions if (m := re.fullmatch(r"\{(\w+)\} == \d+", c))}


def _holds(guard: str, values: Mapping[str, int]) -> bool:
    try:
        return holds(guard, values)
    except ValuesError:
        return False


def broken_guard(trace: Trace, values: Mapping[str, int]) -> str:
    """The first condition that `values` break; empty where the trace holds at them."""
    return next((guard for guard in trace.guards if not _holds(guard, values)), "")


# ---------------------------------------------------------------- documents


def _common(tree: CallTree, call: CallRecord, kernels: tuple[Kernel, ...]) -> dict[str, object]:
    trace = tree.trace
    total = tree.own_sum(call)
    below = list(tree.ops_below(call))
    totals = Totals(
        flops=str(total.flops), matmul_flops=str(total.matmul), memory_access=total.access(),
        floor=MemoryAccess(read=call.floor_read, write=call.floor_write), causal_saving=str(total.causal),
    )  # fmt: skip
    conditions = shown_conditions(trace)
    used: set[str] = set()
    for text in (
        *_texts(kernels), totals.flops, totals.memory_access.read, totals.memory_access.write, totals.floor.read,
        totals.floor.write, call.parameters, *conditions,
    ):  # fmt: skip
        used |= variables(text)
    known = {v.name: v for v in trace.variables}
    for name in list(used):
        if name in known and known[name].definition:
            used |= variables(known[name].definition)
    assumptions = [
        f"Traced as {trace.model_class.rpartition('.')[2]} runs in {trace.phase}, in {trace.dtype}, evaluation mode, without gradients.",
        f"Attention implementation: {trace.attention}.",
        *trace.assumptions,
    ]
    assumptions.append(_PASSES[trace.phase])
    if trace.attention == "eager":
        assumptions.append(
            "Eager attention: totals.causal_saving is derived for the fused operator only, and is 0 here."
        )
    if any(op.operator in ("aten._grouped_mm", "transformers.grouped_mm_fallback") for op in below):
        assumptions.append(
            "Grouped expert weights: read are the experts that can be touched, at most one per routed row."
        )
    return {
        "class_name": call.class_name, "file": call.file, "line": call.line, "forward_file": call.forward_file,
        "forward_line": call.forward_line, "model_class": trace.model_class, "instance": tree.pattern(call),
        "phase": trace.phase, "model_inputs": trace.inputs, "dtype": trace.dtype, "attention": trace.attention, "kernels": kernels, "totals": totals,
        "variables": tuple(v for v in trace.variables if v.name in used), "assumptions": tuple(assumptions),
        "conditions": conditions, "not_counted": trace.not_counted, "conventions": CONVENTIONS,
        "parameters": call.parameters,
    }  # fmt: skip


def _texts(kernels: Iterable[Kernel]) -> Iterable[str]:
    for kernel in kernels:
        yield from (kernel.flops, kernel.memory_access.read, kernel.memory_access.write, kernel.repeat)
        for tensor in (*kernel.inputs, *kernel.outputs):
            yield from (size for size in tensor.shape if size != "?")
        yield from _texts(kernel.kernels or ())


def module_analysis(tree: CallTree, call: CallRecord) -> ModuleAnalysis:
    """One module's forward, its submodule calls kept as references."""
    one = Formula.const(1)
    children = tree.children(call)
    kernels = tuple(kernels_of(tree, call, one, expand=False))
    lines: dict[tuple[str, int], tuple[str, Sum]] = {}
    for child, kernel in zip(children, kernels, strict=True):
        cost = _op_sum(child) if isinstance(child, OpRecord) else tree.own_sum(child).times(_parse(child.repeat))
        key = (kernel.file, kernel.line)
        code, so_far = lines.get(key, (kernel.code, Sum()))
        lines[key] = (code, so_far + cost)
    totals = tuple(
        LineTotal(file=f, line=n, code=code, flops=str(s.flops), matmul_flops=str(s.matmul), memory_access=s.access())
        for (f, n), (code, s) in lines.items()
    )
    return ModuleAnalysis.model_validate({**_common(tree, call, kernels), "lines": totals})


def model_analysis(tree: CallTree, call: CallRecord, depth: int | None = None) -> ModelAnalysis:
    """Every reference replaced by the referenced module's kernels, down to `depth` levels (None: all)."""
    one = Formula.const(1)
    kernels = tuple(kernels_of(tree, call, one, expand=True, depth=depth))
    classes: dict[str, tuple[Formula, Sum]] = {}
    operators: dict[str, tuple[Formula, Sum]] = {}

    def walk(record: CallRecord, scale: Formula) -> None:
        count, so_far = classes.get(record.class_name, (_ZERO, Sum()))
        own = Sum()
        for child in tree.children(record):
            if isinstance(child, OpRecord):
                cost = _op_sum(child).times(scale)
                own = own + cost
                times, before = operators.get(child.operator, (_ZERO, Sum()))
                operators[child.operator] = (times + scale, before + cost)
            else:
                walk(child, scale * _parse(child.repeat))
        count, so_far = classes.get(record.class_name, (_ZERO, Sum()))
        classes[record.class_name] = (count + scale, so_far + own)

    walk(call, one)
    return ModelAnalysis.model_validate(
        {**_common(tree, call, kernels), "per_class": _groups(classes), "per_operator": _groups(operators)}
    )


def _groups(found: Mapping[str, tuple[Formula, Sum]]) -> tuple[GroupTotal, ...]:
    return tuple(
        GroupTotal(name=n, count=str(c), flops=str(s.flops), matmul_flops=str(s.matmul), memory_access=s.access())
        for n, (c, s) in found.items()
    )


# ---------------------------------------------------------------- values


def assignment(trace_variables: Iterable[Variable], given: Mapping[str, int]) -> dict[str, int]:
    """Every variable's value: as given, else by its definition, else its default.

    Names may be the standard ones or the config's own. Raises `ValuesError` for unknown names, sizes below 1 and
    run-time variables without a value.
    """
    known = list(trace_variables)
    by_key = {v.config_key: v.name for v in known if v.config_key}
    names = {v.name for v in known}
    values: dict[str, int] = {}
    for name, value in given.items():
        standard = name if name in names else by_key.get(name)
        if standard is None:
            if name in (*RUN_HINTS, *ELEMENT):
                continue  # a run-time variable that this phase does not have
            near = _nearest(name, [*names, *by_key])
            raise ValuesError(
                f"No variable is called {name!r}.",
                next_step=f"Nearest names: {near}." if near else f"Variables: {', '.join(sorted(names))}.",
            )
        if value < 1:
            raise ValuesError(
                f"The variable {name} is {value}, but sizes are at least 1.", next_step="Give a positive integer."
            )
        if value > _LARGEST:
            raise ValuesError(
                f"The variable {name} is larger than {_LARGEST}.", next_step="Give a size that a tensor can have."
            )
        if values.get(standard, value) != value:
            raise ValuesError(f"The values give {standard} twice, as {values[standard]} and {value}.")
        values[standard] = value
    for v in known:
        if v.name not in values and not v.definition and v.default is not None:
            values[v.name] = v.default
    for v in known:
        if v.name not in values and v.definition:
            # a definition counts where one of its variables was given; else the config's own value stands
            changed = any(n in given or any(by_key.get(k) == n for k in given) for n in variables(v.definition))
            values[v.name] = evaluate(v.definition, values) if changed or v.default is None else v.default
    missing = [v.name for v in known if v.name not in values]
    if missing:
        raise ValuesError(
            f"The variable{'s' if len(missing) > 1 else ''} {', '.join(missing)} {'have' if len(missing) > 1 else 'has'} no value.",
            next_step='Give each in values, for example {"batch_size": 1, "seq_len": 128, "cache_len": 127}.',
        )
    return values


def independent(trace_variables: Iterable[Variable], values: Mapping[str, int]) -> dict[str, int]:
    """Derived variables that `values` set apart from their definition, where the config has a field for them.

    Raises `ValuesError` where it has none.
    """
    found = {}
    for v in trace_variables:
        if v.kind == "derived" and values[v.name] != evaluate(v.definition, values):
            if not v.config_key:
                follows = evaluate(v.definition, values)
                raise ValuesError(
                    f"{v.name} is {v.definition} in this model, so it is {follows} here, not {values[v.name]}.",
                    next_step=f"Leave {v.name} out.",
                )
            found[v.name] = values[v.name]
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    return ", ".join(difflib.get_close_matches(name, sorted(set(known)), n=4, cutoff=0.5))


def evaluated(document: Analysis, values: Mapping[str, int]) -> Evaluated:
    """The totals at `values`."""
    totals = document.totals
    return Evaluated(
        flops=evaluate(totals.flops, values), matmul_flops=evaluate(totals.matmul_flops, values),
        memory_read=evaluate(totals.memory_access.read, values), memory_write=evaluate(totals.memory_access.write, values),
        floor_read=evaluate(totals.floor.read, values), floor_write=evaluate(totals.floor.write, values),
        parameters=evaluate(document.parameters, values),
        values={v.name: values[v.name] for v in document.variables},
    )  # fmt: skip


def per_line(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The same kernels with neighbouring operators of one line made one; every level still adds up."""
    merged: list[Kernel] = []
    for kernel in kernels:
        nested = per_line(kernel.kernels) if kernel.kernels is not None else None
        kernel = kernel.model_copy(update={"kernels": nested})
        last = merged[-1] if merged else None
        same = last is not None and (last.kernel_type, last.file, last.line) == ("basic", kernel.file, kernel.line)
        if last is not None and same and kernel.kernel_type == "basic":
            merged[-1] = last.model_copy(
                update={
                    "operation": f"{last.operation.partition('(')[0]}, {kernel.operation.partition('(')[0]}",
                    "operator": "", "analysis": "the operators of the line together",
                    "flops": _plus(last.flops, kernel.flops),
                    "matmul_flops": _plus(last.matmul_flops, kernel.matmul_flops),
                    "memory_access": MemoryAccess(
                        read=_plus(last.memory_access.read, kernel.memory_access.read),
                        write=_plus(last.memory_access.write, kernel.memory_access.write),
                    ),
                }
            )  # fmt: skip
        else:
            merged.append(kernel)
    return tuple(merged)


def _plus(a: str, b: str) -> str:
    return str(_parse(a) + _parse(b))


def pruned(kernels: tuple[Kernel, ...], depth: int) -> tuple[Kernel, ...]:
    """The same kernels, nested only `depth` levels; every level still adds up."""
    return tuple(
        k.model_copy(update={"kernels": pruned(k.kernels, depth - 1) if depth > 0 else None})
        if k.kernels is not None
        else k
        for k in kernels
    )


__all__ = [
    "CONVENTIONS", "CallTree", "Sum", "assignment", "broken_guard", "evaluated", "find_instance", "independent", "kernels_of",
    "model_analysis", "module_analysis", "per_line", "pruned", "shown_conditions",
]  # fmt: skip
