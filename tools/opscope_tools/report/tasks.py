"""The operator catalogue: distinct tasks of an expanded document, numbered in the order in which they first run.

A task is one operator with its weights on one line of one class's forward; a class of the model that is called several
times contributes its tasks once. What a task depends on are the tasks whose results it reads, as the operator graph of the pass says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opscope_schemas.analysis import Analysis, Kernel
from opscope_schemas.dataflow import Dataflow

from opscope_tools.report.facts import is_leaf

__all__ = ["Occurrence", "Task", "numbering", "occurrences", "task_of_operator", "tasks"]

Key = tuple[str, str, int, str, str, tuple[str, ...], str, str, int]


@dataclass(frozen=True)
class Occurrence:
    """A kernel that holds no others, the class whose forward issued it, and the call that runs that forward."""

    owner: str
    kernel: Kernel
    call: Kernel | None

    def key(self, model_file: str, weights: tuple[str, ...]) -> Key:
        """What makes two occurrences the same task.

        Operators of a framework's class (`Linear`) are told apart by the call in the model's source, operators of the
        model's own classes by their line, and both by the weights that they read.
        """
        kernel, call = self.kernel, self.call if self.kernel.file != model_file else None
        where = (call.attribute, call.file, call.line) if call else ("", "", 0)
        kind = kernel.operator or kernel.class_name
        return self.owner, kernel.file, kernel.line, kind, kernel.operation, weights, *where


@dataclass(frozen=True)
class Task:
    """One row of the catalogue: its occurrences, and the tasks whose results they read.

    `after`: those that its first run reads; `again`: others, read where it runs again, in the same call, in a layer of another kind, or
    where a module is used again, itself among them; `carried`: read from the repetition before, such as the layer before.
    """

    number: int
    occurrences: tuple[Occurrence, ...]
    after: tuple[int, ...]
    again: tuple[int, ...] = ()
    carried: tuple[int, ...] = ()

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


def tasks(document: Analysis, graph: Dataflow) -> list[Task]:
    """The catalogue of `document`, whose operators `graph` links."""
    found: dict[Key, list[Occurrence]] = {}
    operators: list[Key] = []
    firsts: list[bool] = []  # whether it is the first run of its task
    linked = iter(graph.operators)
    for occurrence in occurrences(document.kernels, document.class_name):
        basic = occurrence.kernel.kernel_type == "basic"
        key = occurrence.key(document.file, next(linked).weights if basic else ())
        found.setdefault(key, []).append(occurrence)
        if basic:
            operators.append(key)
            firsts.append(occurrence is found[key][0])
    numbers = {key: number for number, key in enumerate(found, 1)}
    first: dict[Key, set[int]] = {key: set() for key in found}
    again: dict[Key, set[int]] = {key: set() for key in found}
    carried: dict[Key, set[int]] = {key: set() for key in found}
    for key, now, operator in zip(operators, firsts, graph.operators, strict=True):
        (first if now else again)[key] |= {numbers[operators[other - 1]] for other in operator.depends_on}
        carried[key] |= {numbers[operators[other - 1]] for other in operator.carried_from}
    return [
        Task(
            number, tuple(found[key]), tuple(sorted(first[key])), tuple(sorted(again[key] - first[key])), tuple(sorted(carried[key]))
        )
        for key, number in numbers.items()
    ]  # fmt: skip


def task_of_operator(document: Analysis, catalogue: Sequence[Task]) -> dict[int, int]:
    """Task number by the id of an operator of the graph; 0, which stands for none, is kept."""
    numbers = numbering(catalogue)
    basic = [o.kernel for o in occurrences(document.kernels, document.class_name) if o.kernel.kernel_type == "basic"]
    return {0: 0, **{place: numbers[id(kernel)] for place, kernel in enumerate(basic, 1)}}


def numbering(catalogue: Sequence[Task]) -> dict[int, int]:
    """Task number by the identity of a kernel."""
    return {id(occurrence.kernel): task.number for task in catalogue for occurrence in task.occurrences}
