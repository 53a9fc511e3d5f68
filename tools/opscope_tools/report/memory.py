"""Section 6.3: the tensors that matter in a pass, who makes and reads them, how long they live, how large they are.

Sizes are products of the shapes that the trace records. Where it names tensors from operator to operator, those lifetimes
follow; elsewhere nothing is guessed: a reader is named only where the next task of that shape is what is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from opscope_schemas.analysis import Kernel, ModelAnalysis, TensorInfo
from opscope_schemas.formula import Formula, evaluate

from opscope_tools.report.facts import ImplementationFacts, is_leaf, leaves, short, walk
from opscope_tools.report.quotes import plain_bytes
from opscope_tools.report.tasks import Task, lifetimes, numbering

__all__ = ["lifetime_rows", "tensor_bytes"]

Row = tuple[str, str, str, str]
#: rows of tensors that the trace links; the first come first
_MOST_TENSORS = 25
_WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "int16": 2}
_FUSED_ATTENTION = re.compile(r"sdpa|scaled_dot_product|flash_attention")
_UPDATE = re.compile(r"(past_key_values?|layer_past|cache\w*)\.update\(")


def tensor_bytes(tensor: TensorInfo, dtype: str) -> Formula:
    """Bytes of a tensor: `{a_bytes}` per element where it has the model's dtype, else the width of its own."""
    width = Formula.var("a_bytes") if tensor.dtype == dtype else Formula.const(_WIDTHS.get(tensor.dtype, 1))
    for size in tensor.shape:
        width = width * Formula.parse(size)
    return width


def lifetime_rows(facts: ImplementationFacts, catalogue: Sequence[Task]) -> list[Row]:
    """Tensors that the trace links from task to task, then those that every reader asks for."""
    linked = [
        (
            _described(life.tensor.name, life.tensor),
            f"task {life.created_by}",
            f"task {', '.join(map(str, life.consumed_by))}",
            f"from task {life.created_by} until task {life.consumed_by[-1]}",
        )
        for life in lifetimes(facts.main, list(catalogue))[:_MOST_TENSORS]
    ]
    numbers = numbering(catalogue)
    return [
        *dict.fromkeys(linked),  # a module that runs twice passes the same tensor twice
        *_inputs(facts, numbers),
        *_hidden_states(facts, numbers),
        *_largest_activation(facts, numbers),
        *_scores(facts, numbers),
        *_cache(facts, numbers),
        *_outputs(facts, numbers),
        _weights(facts),
    ]


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
    return f"task {own[0]}" if len(own) == 1 else f"tasks {own[0]} to {own[-1]}"


# ---- the rows -------------------------------------------------------------------------------------------------------


def _inputs(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """What is handed to the first call of the analysed class."""
    first = next(iter(facts.main.kernels), None)
    if first is None or not first.inputs:
        return
    name, tensor = first.inputs[0].name or "input", first.inputs[0]
    reader = (
        f"`{first.attribute}` first ({_tasks_of(first, numbers)})" if first.attribute else _tasks_of(first, numbers)
    )
    yield _sized(facts, name, tensor), f"the caller of `{short(facts.subject)}`", reader, "owned by the caller"


def _outputs(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """What the last kernel gives: logits where its width is the vocabulary's."""
    last = facts.main.kernels[-1] if facts.main.kernels else None
    if last is None or not last.outputs:
        return
    tensor = last.outputs[0]
    name = "logits" if tensor.shape and tensor.shape[-1] == "{vocab_size}" else f"output of `{short(facts.subject)}`"
    made = f"`{last.attribute}` ({_tasks_of(last, numbers)})" if last.attribute else _tasks_of(last, numbers)
    yield _sized(facts, name, tensor), made, "the caller", "from the end of the pass until the caller drops it"


def _hidden_states(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """The residual stream: what a layer takes and gives."""
    layers = [k for _, _, k in walk(facts.main.kernels, "") if k.class_name and facts.role(k.class_name) == "layer"]
    if not layers or not layers[0].outputs:
        return
    layer = layers[0]
    calls = f"each of the {evaluate(layer.repeat, facts.point(facts.main))} calls of `{layer.attribute}`"
    yield (
        _sized(facts, "hidden states between layers", layer.outputs[0]),
        f"{calls} ({_tasks_of(layer, numbers)})",
        "the next layer; after the last one what follows the layers",
        "until the next layer has added to it",
    )


def _largest_activation(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """The largest tensor that lives only inside the pass, and the next task that takes one of its shape and dtype."""
    point = facts.point(facts.main)
    made = [kernel for _, kernel in leaves(facts.main) if is_leaf(kernel)]
    last = facts.main.kernels[-1].outputs if facts.main.kernels else ()
    kept = {id(kernel) for kernel in _updates(facts.main)}
    sizes = [
        (evaluate(str(tensor_bytes(tensor, facts.main.dtype)), point), at, tensor)
        for at, kernel in enumerate(made)
        for tensor in kernel.outputs[:1]
        if id(kernel) not in kept and (not last or _elements(tensor) != _elements(last[0]))
    ]
    if not sizes:
        return
    _, at, tensor = max(sizes, key=lambda row: (row[0], -row[1]))
    kernel, number = made[at], numbers[id(made[at])]
    elements = _elements(tensor)
    after = next((k for k in made[at + 1 :] if any(_elements(t) == elements for t in k.inputs)), None)
    taken = f"task {numbers[id(after)]}, the next that takes a tensor of that size" if after is not None else ""
    yield (
        _sized(facts, "largest activation", tensor),
        f"task {number}, {kernel.operator} (`{kernel.file}:{kernel.line}`)",
        taken or "tasks that read views of it, which the trace does not link",
        f"from task {number} until its readers are done",
    )


def _elements(tensor: TensorInfo) -> tuple[Formula, str]:
    """What a view keeps: the number of elements and the dtype."""
    count = Formula.const(1)
    for size in tensor.shape:
        count = count * Formula.parse(size)
    return count, tensor.dtype


def _scores(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """Attention scores: absent where one operator computes attention, else what the softmax gives."""
    for owner, kernel in leaves(facts.main):
        where = f"task {numbers[id(kernel)]}, {kernel.operator} (`{kernel.file}:{kernel.line}`)"
        if _FUSED_ATTENTION.search(kernel.operator):
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
                "one layer's attention",
            )
            return


def _updates(document: ModelAnalysis) -> list[Kernel]:
    """Operators that write the key-value cache: those on a line that updates it, that give a tensor of the model's dtype."""
    return [
        kernel
        for _, kernel in leaves(document)
        if _UPDATE.search(kernel.code) and kernel.outputs and kernel.outputs[0].dtype == document.dtype
    ]


def _cache(facts: ImplementationFacts, numbers: Mapping[int, int]) -> Iterator[Row]:
    """Keys and values of all layers as they are after each pass."""
    sizes = []
    for document in facts.documents:
        total = Formula.const(0)
        for kernel in _updates(document):
            total = total + tensor_bytes(kernel.outputs[0], document.dtype) * Formula.parse(kernel.repeat)
        if total != Formula.const(0):
            sizes.append(
                f"after {document.phase} {_bytes(facts, total, document).replace(f' in {document.phase}', '')}"
            )
    own = [numbers[id(kernel)] for kernel in _updates(facts.main)]
    if not sizes or not own:
        return
    update = _updates(facts.main)[0]
    yield (
        f"key-value cache: {'; '.join(sizes)}",
        f"task {', '.join(map(str, dict.fromkeys(own)))} in every layer (`{update.file}:{update.line}`)",
        "attention of this and of every later pass",
        "the whole generation; it grows by the new tokens of each pass",
    )


def _weights(facts: ImplementationFacts) -> Row:
    size = Formula.parse(facts.main.parameters) * Formula.var("w_bytes")
    known = "" if size == Formula.const(0) else f": `{size}` bytes"
    held = plain_bytes(facts.tree.parameters * facts.point(facts.main)["w_bytes"])
    return f"weights{known} ({held})", "model construction", "every task that reads a weight", "as long as the model"
