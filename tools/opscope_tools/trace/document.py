"""From a trace to the documents: `module_analysis` of one class, `model_analysis` with every reference expanded.

A trace is a tree of module calls whose leaves are operators. A kernel's figures are its share of the document: what
repeats is multiplied in. So a list of kernels adds up to its holder, and leaves add up to the totals.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from opscope_schemas.analysis import (
    Analysis,
    Evaluated,
    GroupTotal,
    Kernel,
    LineTotal,
    MemoryAccess,
    ModelAnalysis,
    ModuleAnalysis,
    Totals,
    Training,
    Variable,
)
from opscope_schemas.errors import TraceError, ValuesError
from opscope_schemas.formula import Formula, Rational, evaluate, holds, variables, whole_bytes

from opscope_tools.trace import conditions, explaining
from opscope_tools.trace.explaining import plain, shown
from opscope_tools.trace.operators import GROUPED
from opscope_tools.trace.protocol import CallRecord, OpRecord, Trace
from opscope_tools.trace.variables import ELEMENT, RUN_HINTS, is_depth

T = TypeVar("T")
CONVENTIONS = (
    "FLOPs: a multiply and an add are 1 each, so a matrix product of (m, k) and (k, n) is 2*m*n*k; a bias add is 1 per element.",
    "Element-wise arithmetic and each transcendental count 1 per output element, of integers as of floats; a sum, a mean or a product over elements 1 per input element.",
    "Activations, norms and softmax count as the arithmetic of their definitions (sigmoid 4, silu 5, gelu 5, tanh-gelu 8, softmax 3 per element).",
    "Copies, casts, views, comparisons, sorting and indexing count 0 FLOPs.",
    "matmul_flops holds matrix products, attention products, convolutions and grouped products alone, without bias adds.",
    "Attention is counted dense, where one kernel runs it beside its products 4 for each score (the scale 1, softmax 3) and 1 for a mask that is added, else operator by operator; totals.causal_saving says what a causal kernel may skip.",
    "Bytes are those of eager execution: each operator reads each distinct input once and writes its outputs once; views are free.",
    "Broadcast inputs are read at their stored size; an embedding, an index or a gather reads the rows that it takes, each as often as it takes it, and its indices.",
    "Weights are w_bytes, activations a_bytes and the KV cache's keys and values kv_bytes each where they have the model's dtype; "
    "tensors of other dtypes have their own size.",
    "Quantised weights are read with their scales; a total that ends in a fraction of a byte is rounded up.",
    "A kernel's figures are its whole share of the document: `repeat` is already multiplied in, also in nested kernels.",
)  # fmt: skip

#: what one pass is, by phase
_PASSES = {
    "prefill": "Prefill: {seq_len} tokens into an empty KV cache.",
    "decode": "Decode: {seq_len} new tokens against a cache that holds {cache_len} tokens of every sequence.",
    "encode": "Encode: the encoder, or the tower that reads images or audio, alone.",
    "forward": "One forward pass: the model keeps no cache.",
    "train": "Training step: a forward without a cache, then the gradients of its loss; the optimizer is in no total.",
}  # fmt: skip
#: of which positions a pass computes logits
_LOGITS = {
    "all": "Logits of every position.",
    "last": "Logits of the last position alone, as generation asks for them.",
}
_ZERO = Formula.const(0)
#: sizes that torch itself can name
_LARGEST = 2**62
#: sizes of an example
_EXAMPLES = {"batch_size": 1, "cache_len": 127}


@lru_cache(maxsize=65536)
def parse(text: str) -> Formula:
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


def op_sum(op: OpRecord) -> Sum:
    """What an operator costs per call of its module: all the steps of its loop."""
    once = Sum(parse(op.flops), parse(op.matmul_flops), parse(op.read), parse(op.write), parse(op.causal_saving))
    return once.times(parse(op.repeat))


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
        #: what was worked out of the trace, which never changes
        self._once: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once for each key."""
        if key not in self._once:
            self._once[key] = make()
        found: T = self._once[key]
        return found

    def children(self, call: CallRecord) -> list[CallRecord | OpRecord]:
        return self._children.get(call.index, [])

    def own_sum(self, call: CallRecord) -> Sum:
        """One call of `call`, everything below it included."""
        if call.index not in self._sums:
            total = Sum()
            for child in self.children(call):
                total = total + (
                    op_sum(child) if isinstance(child, OpRecord) else self.own_sum(child).times(parse(child.repeat))
                )
            self._sums[call.index] = total
        return self._sums[call.index]

    def ops_below(self, call: CallRecord) -> Iterable[OpRecord]:
        for child in self.children(call):
            if isinstance(child, OpRecord):
                yield child
            else:
                yield from self.ops_below(child)

    def calls_below(self, call: CallRecord) -> Iterable[CallRecord]:
        """The call and all that it makes."""
        yield call
        for child in self.children(call):
            if isinstance(child, CallRecord):
                yield from self.calls_below(child)

    def instances(self, class_name: str) -> list[CallRecord]:
        return [call for call in self.trace.calls if call.class_name == class_name]

    def classes(self, call: CallRecord) -> tuple[str, ...]:
        """The classes of the modules that the call runs in, its own last."""
        return self.once(("classes", call.index), lambda: tuple(c.class_name for c in reversed(self.around(call))))

    def around(self, call: CallRecord) -> list[CallRecord]:
        """The call and those that it runs in, outwards."""
        by_index = self.once("calls", lambda: {c.index: c for c in self.trace.calls})
        found: list[CallRecord] = []
        record: CallRecord | None = call
        while record is not None:
            found.append(record)
            record = by_index.get(record.parent)
        return found

    def pattern(self, call: CallRecord) -> str:
        """The call's path with `*` where it stands for several siblings."""
        return self.once(("pattern", call.index), lambda: self._pattern(call))

    def _pattern(self, call: CallRecord) -> str:
        repeated = [record.path for record in self.around(call) if record.repeat != "1"]
        parts = call.path.split(".") if call.path else []
        for path in repeated:
            depth = len(path.split("."))
            if len(parts) >= depth and parts[depth - 1].isdigit():
                parts[depth - 1] = "*"
        return ".".join(parts)


def worked_out_once(make: Callable[[CallTree, CallRecord], T]) -> Callable[[CallTree, CallRecord], T]:
    """The function, computed once for each call of a tree."""

    @functools.wraps(make)
    def kept(tree: CallTree, call: CallRecord) -> T:
        return tree.once((make, call.index), lambda: make(tree, call))

    return kept


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


def _basic(op: OpRecord, scale: Formula) -> Kernel:
    cost = op_sum(op).times(scale)
    name = op.operator.partition(".")[2]
    outputs = ", ".join(shown(t) for t in op.outputs)
    kernel = Kernel(
        kernel_type="basic",
        operation="backward: " * op.backward
        + (f"{name}({', '.join(shown(t) for t in op.inputs)}) -> {outputs}" if outputs else name),
        analysis=explaining.operator(op),
        flops=str(cost.flops), matmul_flops=str(cost.matmul), memory_access=cost.access(),
        file=op.site.file, line=op.site.line, code=op.site.code, via=op.site.via, operator=op.operator,
        inputs=op.inputs, outputs=op.outputs, repeat=str(scale * parse(op.repeat)), causal_saving=str(cost.causal),
    )  # fmt: skip
    return _explained(kernel, cost)


def _explained(kernel: Kernel, cost: Sum) -> Kernel:
    """The kernel with its figures in its analysis too."""
    if kernel.analysis.startswith("not counted"):
        return kernel
    return kernel.model_copy(update={"analysis": explaining.with_figures(kernel.analysis, kernel, str(cost.causal))})


def _reference(call: CallRecord) -> str:
    """`${{qualified.ClassName}}(parameters)`: tensors by name and shape, then the module's own sizes."""
    parameters = [shown(t) for t in call.inputs]
    if call.description:
        parameters.append(plain(call.description))
    return f"${{{{{call.class_name}}}}}({', '.join(parameters)})"


def _composite(
    tree: CallTree, call: CallRecord, base: CallRecord, scale: Formula, *, expand: bool, depth: int | None
) -> Kernel:
    times = parse(call.repeat) * scale
    cost = tree.own_sum(call).times(times)
    site = call.site
    prefix = tree.pattern(base)
    path = tree.pattern(call)
    attribute = path[len(prefix) + 1 :] if prefix and path.startswith(prefix + ".") else path
    nested: tuple[Kernel, ...] | None = None
    if expand and (depth is None or depth > 0):
        nested = tuple(kernels_of(tree, call, times, expand=True, depth=None if depth is None else depth - 1))
    kernel = Kernel(
        kernel_type="composite", operation=_reference(call),
        analysis=explaining.module(call, tree.ops_below(call)),
        flops=str(cost.flops), matmul_flops=str(cost.matmul), memory_access=cost.access(),
        file=site.file if site else call.file, line=site.line if site else call.line, code=site.code if site else "",
        via=site.via if site else (), attribute=attribute, class_name=call.class_name, repeat=str(times),
        inputs=call.inputs, outputs=call.outputs, kernels=nested, causal_saving=str(cost.causal),
    )  # fmt: skip
    return _explained(kernel, cost)


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


def shown_conditions(tree: CallTree, call: CallRecord) -> tuple[str, ...]:
    """The conditions of one call's figures that people read: they say all that the guards say on which these rest.

    How small a size may be that the figures do not name is none of them.
    """
    trace = tree.trace
    always = [f"{{{v.name}}} == {v.definition}" for v in trace.variables if v.kind == "derived" and v.definition]
    if call.parent < 0:
        return conditions.shown(guards_of(tree, call), trace.point, always)
    own = _names_of(tree.calls_below(call))
    always += [guard for guard in conditions.bounds_of(trace.guards) if not variables(guard) & own]
    found = conditions.shown(guards_of(tree, call), trace.point, always)
    return tuple(condition for condition in found if variables(condition) & own)


def _names_of(calls: Iterable[CallRecord]) -> set[str]:
    return {name for call in calls for name in call.names}


def guards_of(tree: CallTree, call: CallRecord) -> tuple[str, ...]:
    """The conditions of a trace that one call's figures rest on.

    What the call, or the construction of a module in it, asked for itself. Of what was asked elsewhere: an equality, where it
    was put into the figures; an exact division, where they name all its sizes; any other decision from before the call that
    may have shaped its inputs, which is one about sizes that its weights do not have too. What nobody asked for (numbers, fits)
    holds everywhere, but for depths, which are those of layers.
    """
    if call.parent < 0:
        return tree.trace.guards
    below, merged = list(tree.calls_below(call)), set(tree.trace.merged)
    inside, names = {c.index for c in below}, _names_of(below)
    shaping = names - variables(call.parameters)

    def rests(guard: str) -> bool:
        if (looking := tree.trace.looked_up.get(guard)) is not None:
            return bool(inside.intersection(looking))
        asked, used = tree.trace.decided.get(guard), variables(guard)
        if asked is None:
            return len(below) > 1 or not all(map(is_depth, used))
        if inside.intersection(asked):
            return True
        if " == " in guard:
            return bool(names & merged) if used & merged else used <= names
        return bool(used & shaping) and min(asked, default=-1) < call.index

    return tuple(guard for guard in tree.trace.guards if rests(guard))


def _holds(guard: str, values: Mapping[str, Rational]) -> bool:
    try:
        return holds(guard, values)
    except ValuesError:
        return False


def broken_guard(trace: Trace, values: Mapping[str, Rational]) -> str:
    """The first condition that `values` break; empty where the trace holds at them."""
    return next(iter(broken_guards(trace, values)), "")


def broken_guards(trace: Trace, values: Mapping[str, Rational]) -> list[str]:
    """Every condition that `values` break."""
    return [guard for guard in trace.guards if not _holds(guard, values)]


# ---------------------------------------------------------------- documents


def _common(tree: CallTree, call: CallRecord, kernels: tuple[Kernel, ...]) -> dict[str, object]:
    trace = tree.trace
    total = tree.own_sum(call)
    below = list(tree.ops_below(call))
    totals = Totals(
        flops=str(total.flops), matmul_flops=str(total.matmul), memory_access=total.access(),
        floor=MemoryAccess(read=call.floor_read, write=call.floor_write), causal_saving=str(total.causal),
    )  # fmt: skip
    from opscope_tools.trace.training import training_of  # it reads the tree that is defined here

    needed = shown_conditions(tree, call)
    trained = training_of(tree, call)
    used: set[str] = set()
    for text in (
        *_texts(kernels), totals.flops, totals.memory_access.read, totals.memory_access.write, totals.floor.read,
        totals.floor.write, call.parameters, call.weights, *needed, *_texts_of(trained),
    ):  # fmt: skip
        used |= variables(text)
    known = {v.name: v for v in trace.variables}
    for name in list(used):
        if name in known and known[name].definition:
            used |= variables(known[name].definition)
    assumptions = [
        f"Traced as {trace.model_class.rpartition('.')[2]} runs in {trace.phase}, in {trace.dtype}, "
        + ("training mode, with gradients." if trace.phase == "train" else "evaluation mode, without gradients."),
        f"Attention implementation: {trace.attention}.",
        *trace.assumptions,
    ]
    assumptions += [_PASSES[trace.phase], *([_LOGITS[trace.logits]] if trace.logits else [])]
    if trace.attention == "eager":
        assumptions.append(
            "Eager attention: what a causal kernel may skip (totals.causal_saving) is derived for the fused operator only, and is 0 here."
        )
    if any(op.operator in GROUPED for op in below):
        assumptions.append(
            "Grouped expert weights: totals read the experts that can be touched, at most one per routed row; `expected` and a "
            "note say how many uniform routing is expected to touch."
        )
    return {
        "class_name": call.class_name, "file": call.file, "line": call.line, "forward_file": call.forward_file,
        "forward_line": call.forward_line, "model_class": trace.model_class, "instance": tree.pattern(call),
        "phase": trace.phase, "model_inputs": trace.inputs, "outputs": call.outputs, "dtype": trace.dtype, "attention": trace.attention, "logits": trace.logits, "kernels": kernels, "totals": totals,
        "variables": tuple(v for v in trace.variables if v.name in used), "assumptions": tuple(assumptions),
        "conditions": needed, "not_counted": not_counted(below), "conventions": CONVENTIONS,
        "reads": tuple(dict.fromkeys(site for one in tree.calls_below(call) for site in one.reads)),
        "parameters": call.parameters, "weights": call.weights, "training": trained,
    }  # fmt: skip


def not_counted(ops: Iterable[OpRecord]) -> tuple[str, ...]:
    """The operators whose work is in no sum: name, line, reason."""
    missing = (op for op in ops if not op.counted)
    return tuple(dict.fromkeys(f"{op.operator} at {op.site.file}:{op.site.line}: {op.derivation}" for op in missing))


def _texts(kernels: Iterable[Kernel]) -> Iterable[str]:
    for kernel in kernels:
        yield from (kernel.flops, kernel.memory_access.read, kernel.memory_access.write, kernel.repeat)
        for tensor in (*kernel.inputs, *kernel.outputs):
            yield from (size for size in tensor.shape if size != "?")
        yield from _texts(kernel.kernels or ())


def _texts_of(trained: Training | None) -> tuple[str, ...]:
    return (
        ()
        if trained is None
        else (trained.saved_activations, trained.gradients, *(line.saved for line in trained.lines))
    )


@worked_out_once
def module_analysis(tree: CallTree, call: CallRecord) -> ModuleAnalysis:
    """One module's forward, its submodule calls kept as references."""
    one = Formula.const(1)
    children = tree.children(call)
    kernels = tuple(kernels_of(tree, call, one, expand=False))
    lines: dict[tuple[str, int], tuple[str, Sum]] = {}
    for child, kernel in zip(children, kernels, strict=True):
        cost = op_sum(child) if isinstance(child, OpRecord) else tree.own_sum(child).times(parse(child.repeat))
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
                cost = op_sum(child).times(scale)
                own = own + cost
                times, before = operators.get(child.operator, (_ZERO, Sum()))
                operators[child.operator] = (times + scale * parse(child.repeat), before + cost)
            else:
                walk(child, scale * parse(child.repeat))
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


def assignment(trace_variables: Iterable[Variable], given: Mapping[str, Rational]) -> dict[str, Rational]:
    """Every variable's value: as given, else by its definition, else its default.

    Names may be the standard ones or the config's own. Raises `ValuesError` for unknown names, sizes below 1 and
    run-time variables without a value.
    """
    known = list(trace_variables)
    by_key = {v.config_key: v.name for v in known if v.config_key}
    names = {v.name for v in known}
    values: dict[str, Rational] = {}
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
        if value < (0 if name.endswith("_bytes") else 1):
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
            next_step=f"Give each in values, for example {json.dumps({name: _EXAMPLES.get(name, 128) for name in missing})}.",
        )
    return values


def independent(trace_variables: Iterable[Variable], values: Mapping[str, Rational]) -> dict[str, int]:
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
            found[v.name] = int(values[v.name])
    return found


def _nearest(name: str, known: Iterable[str]) -> str:
    import difflib

    return ", ".join(difflib.get_close_matches(name, sorted(set(known)), n=4, cutoff=0.5))


def evaluated(document: Analysis, values: Mapping[str, Rational]) -> Evaluated:
    """The totals at `values`."""
    totals = document.totals
    return Evaluated(
        flops=evaluate(totals.flops, values), matmul_flops=evaluate(totals.matmul_flops, values),
        memory_read=whole_bytes(totals.memory_access.read, values), memory_write=whole_bytes(totals.memory_access.write, values),
        floor_read=whole_bytes(totals.floor.read, values), floor_write=whole_bytes(totals.floor.write, values),
        parameters=evaluate(document.parameters, values), weights=whole_bytes(document.weights, values),
        saved_activations=whole_bytes(document.training.saved_activations, values) if document.training else None,
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
    return str(parse(a) + parse(b))


def pruned(kernels: tuple[Kernel, ...], depth: int) -> tuple[Kernel, ...]:
    """The same kernels, nested only `depth` levels; every level still adds up."""
    return tuple(
        k.model_copy(update={"kernels": pruned(k.kernels, depth - 1) if depth > 0 else None})
        if k.kernels is not None
        else k
        for k in kernels
    )


__all__ = [
    "CONVENTIONS", "CallTree", "Sum", "assignment", "broken_guard", "broken_guards", "evaluated", "find_instance", "guards_of", "independent",
    "kernels_of", "model_analysis", "module_analysis", "not_counted", "per_line", "pruned", "shown_conditions",
]  # fmt: skip
