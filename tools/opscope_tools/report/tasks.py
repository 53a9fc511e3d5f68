"""The operator catalogue: distinct tasks of an expanded document, numbered in the order in which they first run.

A task is one operator on one line of one class's forward; a class of the model that is called several times contributes
its tasks once. What a task depends on is the order of the trace: eager execution runs operators one after another on one stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from opscope_schemas.analysis import Analysis, Kernel, TensorInfo

from opscope_tools.report.facts import is_leaf

__all__ = ["Lifetime", "Occurrence", "Task", "lifetimes", "numbering", "occurrences", "tasks"]

Key = tuple[str, str, int, str, str, str, str, int]


@dataclass(frozen=True)
class Occurrence:
    """A kernel that holds no others, the class whose forward issued it, and the call that runs that forward."""

    owner: str
    kernel: Kernel
    call: Kernel | None

    def key(self, model_file: str) -> Key:
        """What makes two occurrences the same task.

        Operators of a framework's class (`Linear`) are told apart by the call in the model's source, operators of the
        model's own classes by their line.
        """
        kernel, call = self.kernel, self.call if self.kernel.file != model_file else None
        where = (call.attribute, call.file, call.line) if call else ("", "", 0)
        kind = kernel.operator or kernel.class_name
        return self.owner, kernel.file, kernel.line, kind, kernel.operation, *where


@dataclass(frozen=True)
class Task:
    """One row of the catalogue: its occurrences, and the earlier tasks that ran directly before one of them."""

    number: int
    occurrences: tuple[Occurrence, ...]
    after: tuple[int, ...]

    @property
    def first(self) -> Occurrence:
        """The first occurrence."""
        return self.occurrences[0]

    @property
    def kind(self) -> str:
        """The operator, or what a reference that was not expanded calls."""
        kernel = self.first.kernel
        return kernel.operator or kernel.class_name or kernel.operation


def occurrences(kernels: Sequence[Kernel], owner: str, call: Kernel | None = None) -> Iterator[Occurrence]:
    """The kernels that hold no others, in execution order."""
    for kernel in kernels:
        if is_leaf(kernel):
            yield Occurrence(owner, kernel, call)
        else:
            yield from occurrences(kernel.kernels or (), kernel.class_name, kernel)


def tasks(document: Analysis) -> list[Task]:
    """The catalogue of `document`."""
    found: dict[Key, list[Occurrence]] = {}
    order: list[Key] = []
    for occurrence in occurrences(document.kernels, document.class_name):
        key = occurrence.key(document.file)
        found.setdefault(key, []).append(occurrence)
        order.append(key)
    numbers = {key: number for number, key in enumerate(found, 1)}
    before: dict[Key, dict[int, None]] = {key: {} for key in found}
    for previous, key in pairwise(order):
        if numbers[previous] < numbers[key]:  # a task that runs again follows later ones: that would close a circle
            before[key][numbers[previous]] = None
    return [Task(numbers[key], tuple(found[key]), tuple(before[key])) for key in found]


def numbering(catalogue: Sequence[Task]) -> dict[int, int]:
    """Task number by the identity of a kernel."""
    return {id(occurrence.kernel): task.number for task in catalogue for occurrence in task.occurrences}


@dataclass(frozen=True)
class Lifetime:
    """A tensor that one kernel writes and a later one reads, by the name that the trace gives it."""

    tensor: TensorInfo
    created_by: int
    consumed_by: tuple[int, ...]


def lifetimes(document: Analysis, catalogue: list[Task]) -> list[Lifetime]:
    """Tensors that pass from task to task; empty where the trace gives its tensors no names that link them."""
    numbers = numbering(catalogue)
    rows: dict[str, tuple[TensorInfo, int, dict[int, None]]] = {}
    done: list[Lifetime] = []
    for occurrence in occurrences(document.kernels, document.class_name):
        kernel, number = occurrence.kernel, numbers[id(occurrence.kernel)]
        for tensor in kernel.inputs:
            if tensor.name in rows:
                rows[tensor.name][2][number] = None
        for tensor in kernel.outputs:
            if tensor.name in rows:
                done.append(_closed(rows.pop(tensor.name)))
            if tensor.name:
                rows[tensor.name] = (tensor, number, {})
    done += [_closed(row) for row in rows.values()]
    return [life for life in done if life.consumed_by]


def _closed(row: tuple[TensorInfo, int, dict[int, None]]) -> Lifetime:
    return Lifetime(row[0], row[1], tuple(row[2]))
