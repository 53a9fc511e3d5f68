"""Loops over the experts that tokens were routed to: which these are depends on data, and what all of them do together does not.

A one-hot mask of chosen experts has as many ones as choices were made, however they fall. So where a forward sums such a mask up,
loops over the experts that were met and takes the rows of each, one step runs with the rows of all: the work on rows is then that of
all steps together, at any routing that drops none. What a step does beside its rows, and the weights it reads, it does for every
expert that is met: at most all of them, and no more than there are rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from opscope_schemas.formula import Formula
from torch.multiprocessing.reductions import StorageWeakRef

from opscope_tools.trace.operators import ONE, Cost, Tensor
from opscope_tools.trace.operators.types import read_once

ASSUMED = (
    "Which experts run depends on data: every choice of a router counts as taken, none as dropped by a full expert, and of the "
    "experts' weights those are read that can be met, at most one expert for each row."
)
#: what a tensor says of a routing: choices of experts; a mask with a one for each choice; how many chose an expert; whether any did;
#: the experts that were chosen
Kind = Literal["choices", "mask", "counts", "met", "which"]
_CHOOSES = {"aten.topk": 1, "aten.argmax": 0, "aten.sort": 1, "aten.argsort": 0}
_COPIES = frozenset(("aten._to_copy", "aten.clone"))
_KEEPS = frozenset("aten.mul aten.mul_ aten._to_copy aten.clone aten.bitwise_and aten.logical_and aten.index".split())
_SUMS = frozenset("aten.sum aten.any".split())
_COMPARES = frozenset("aten.gt aten.ge aten.ne aten.greater".split())
#: values of a mask
_TRUTH = 2


@dataclass(frozen=True)
class _Mark:
    """What a tensor is of a routing: `rows` choices among `experts`."""

    kind: Kind
    experts: Any
    rows: Any = 0


class _Storages:
    """What is noted of memory, while it lives."""

    def __init__(self) -> None:
        self._noted: dict[int, tuple[StorageWeakRef, Any]] = {}

    def note(self, tensor: Any, value: Any = True) -> None:
        storage = tensor.untyped_storage()
        self._noted[storage._cdata] = StorageWeakRef(storage), value

    def of(self, tensor: Any) -> Any:
        found = self._noted.get(tensor.untyped_storage()._cdata)
        return None if found is None or found[0].expired() else found[1]

    def any_of(self, tensors: Iterable[Any]) -> bool:
        return any(self.of(t) is not None for t in tensors)


class _Step:
    """The step that stands for all, while it runs."""

    def __init__(self, mark: _Mark, met: Formula) -> None:
        self.mark, self.met = mark, met
        #: what has a row for each choice, and what the step made without
        self.rows, self.made = _Storages(), _Storages()


class Routing:
    """What a recorder knows of tokens that were routed."""

    def __init__(self, formula: Any, *, wanted: bool) -> None:
        """`formula` of a size."""
        self._formula = formula
        self._wanted = wanted
        self._marks = _Storages()
        self._step: _Step | None = None
        #: whether a loop over experts ran
        self.met = False

    # ---- what tensors are of a routing

    def one_hot(self, choices: Any, mask: Any) -> None:
        """A mask was made of choices."""
        mark = self._marks.of(choices)
        experts = mark.experts if mark is not None and mark.kind == "choices" else mask.shape[-1]
        if mark is not None and mark.kind == "mask":
            experts = _TRUTH
        if self._wanted:
            self._marks.note(mask, _Mark("mask", experts, choices.numel()))

    def saw(self, name: str, args: Sequence[Any], result: Any) -> None:
        """An operator ran."""
        if not self._wanted or not args or not isinstance(args[0], torch.Tensor):
            return
        if name in _CHOOSES:
            found = result[_CHOOSES[name]] if isinstance(result, tuple | list) else result
            dim = (
                args[2]
                if name == "aten.topk" and len(args) > 2
                else args[1]
                if name == "aten.argmax" and len(args) > 1
                else -1
            )
            if type(dim) is int and args[0].dim():
                self._marks.note(found, _Mark("choices", args[0].shape[dim]))
            return
        marks = [self._marks.of(a) for a in args[:2] if isinstance(a, torch.Tensor)]
        mark = next((m for m in marks if m is not None), None)
        if mark is None or not isinstance(result, torch.Tensor):
            return
        if name in (_KEEPS if mark.kind == "mask" else _COPIES):
            self._marks.note(result, mark)
        elif mark.kind == "mask" and name in _SUMS and result.dim() == 1:
            self._marks.note(result, replace(mark, kind="counts" if name == "aten.sum" else "met"))
        elif mark.kind == "counts" and name in _COMPARES:
            self._marks.note(result, replace(mark, kind="met"))

    def nonzero(self, tensor: Any) -> Any:
        """Which experts were met, or in the step the rows of all; None where neither is asked for."""
        mark = self._marks.of(tensor)
        if mark is not None and mark.kind == "met" and tensor.dim() == 1:
            found = tensor.new_empty((torch.sym_min(mark.experts, mark.rows), 1), dtype=torch.int64)
            self._marks.note(found, replace(mark, kind="which"))
            return found
        if mark is not None and mark.kind == "mask" and self._step is not None and mark.rows is self._step.mark.rows:
            found = tensor.new_empty((mark.rows, tensor.dim()), dtype=torch.int64)
            self._step.rows.note(found)
            return found
        return None

    # ---- the loop

    def steps(self, tensor: Any) -> Iterator[Any] | None:
        """One step in the place of all, where a tensor holds the experts that were met."""
        mark = self._marks.of(tensor)
        return self._steps(mark, tensor.dim() - 1) if mark is not None and mark.kind == "which" else None

    def _steps(self, mark: _Mark, dims: int) -> Iterator[Any]:
        self.met = True
        met = Formula.minimum(self._formula(mark.experts), self._formula(mark.rows))
        expert: Any = 0
        for _ in range(dims):
            expert = [expert]
        before, self._step = self._step, _Step(mark, met)
        try:
            yield torch.tensor(expert)
        finally:
            self._step = before

    # ---- what the step costs

    def counted(
        self, cost: Cost | None, inputs: Sequence[Any], known: Sequence[Tensor], outputs: Sequence[Any]
    ) -> tuple[Cost | None, Formula, Formula]:
        """The cost of an operator that runs now, for all experts together; how often it runs, and how many experts' weights it reads."""
        step = self._step
        if step is None:
            return cost, ONE, ONE
        routed = step.rows.any_of(inputs)
        for tensor in outputs:
            if step.rows.of(tensor) is None:
                (step.rows if routed else step.made).note(tensor)
        if not routed and cost is not None and any(map(step.rows.of, outputs)):  # finds the rows of each expert
            return replace(cost, read=cost.read * step.met), ONE, step.met
        if not routed:
            return cost, step.met, step.met
        own = [
            t for t, raw in zip(known, inputs, strict=False)
            if step.rows.of(raw) is None and (t.weight or step.made.of(raw) is not None)
        ]  # fmt: skip
        if cost is None or not own:
            return cost, ONE, step.met
        more = (step.met - 1) * read_once(own)
        return (
            replace(cost, read=cost.read + more, derivation=f"{cost.derivation}; weights of each expert that is met"),
            ONE,
            step.met,
        )


__all__ = ["ASSUMED", "Routing"]
