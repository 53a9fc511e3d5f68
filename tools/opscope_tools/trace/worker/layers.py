"""One trace of a module that no transformers config describes: a layer of torch.nn, a module of somebody's repository.

It is built as a `Blueprint` says, and called with the shapes that the request gives, else with those that `Solver` found:
each of them a size of the run, of the constructor or of a weight, so that they are symbols where these are.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from opscope_schemas.errors import ConfigError, TraceError
from opscope_schemas.formula import Formula

from opscope_tools.trace.protocol import TraceRequest
from opscope_tools.trace.variables import RUNTIME
from opscope_tools.trace.worker import absent, patches
from opscope_tools.trace.worker.blueprint import Blueprint, symbolic
from opscope_tools.trace.worker.inputs import Input
from opscope_tools.trace.worker.recorder import Recorder
from opscope_tools.trace.worker.session import (
    CUTS,
    DECIDED_BY_DATA,
    DTYPE,
    SYMBOLIC,
    Data,
    DataError,
    InputsError,
    Session,
    ones,
    trained,
)
from opscope_tools.trace.worker.shapes import Argument, Dimension, Solver
from opscope_tools.trace.worker.signatures import IDS, parameters, plain

#: what is symbolic, as in session.py; "given": the sizes that were given or chosen, not those that have a default
LEVELS = ("all", "uncut", "given", "run", "batch", "none")
#: those that are still tried once symbols took too long: sizes of pictures, of which others are fractions, are numbers
PLAINER = ("uncut", "batch", "none")
SAID = {
    "all": "every size", "uncut": "every size but those of pictures and heads", "given": "the sizes that were given",
    "run": "the sizes of the run", "batch": "the sizes of the run but those of pictures",
}  # fmt: skip
#: what is then numbers
NUMBERS = {
    "all": "Sizes are", "uncut": "Sizes of pictures and heads are", "given": "Sizes that have a default are",
    "run": "The constructor's sizes are", "batch": "The constructor's sizes and those of pictures are", "none": "All sizes are",
}  # fmt: skip


class ModuleSession(Session):
    """The trace of one module class; without `arguments` the session looks for them itself, on numbers."""

    def __init__(
        self, request: TraceRequest, module_class: Any, blueprint: Blueprint, level: str = "none", *,
        arguments: list[Argument] | None = None, at: dict[str, int] | None = None, dtype: torch.dtype = DTYPE,
        fold: bool = True, data: Data = "",
    ) -> None:  # fmt: skip
        self._blueprint = blueprint
        self.arguments = arguments
        super().__init__(request, module_class, None, level, at=at, dtype=dtype, fold=fold, data=data)

    def _configure(self) -> None:
        self.config = SimpleNamespace(**self._blueprint.sizes)
        self.names = {name: name for name in self._blueprint.sizes}
        self.configured = {name: self.hints.get(name, value) for name, value in self._blueprint.sizes.items()}

    def _make_sizes_symbolic(self) -> None:
        for name, value in self.configured.items():
            wide = self.level in (*SYMBOLIC, "given") and symbolic(name) and value >= 1
            wide = wide and not (self.level == "uncut" and name.endswith((*CUTS, "groups", "heads")))
            wide = wide and (self.level != "given" or name in self._blueprint.given)
            self.config.__dict__[name] = self.symbols.create(name, value) if wide else value
            if wide:
                self.symbolic[name] = name

    def _number(self, name: str) -> bool:
        return self.level in PLAINER and name.endswith(CUTS)

    def _build(self) -> Any:
        self.attention = self.request.attention
        before = torch.get_default_dtype()
        torch.set_default_dtype(self.dtype)  # a module of symbolic sizes cannot be cast after it is made
        try:
            return self._blueprint.build(vars(self.config)).train(self.training)
        finally:
            torch.set_default_dtype(before)

    def _execute(self) -> Recorder:
        if self.request.phase not in ("prefill", "train"):
            raise TraceError(
                f"{self.model_class.__name__} is traced by itself and keeps no KV cache, so it has no {self.request.phase} phase.",
                next_step="Ask for prefill.",
            )
        recorder = Recorder(
            self.model,
            self.symbols,
            self.dtype,
            fold=self.fold,
            training=self.training,
            plain=self.level == "none" and not self.data,
            valued=self.data == "real",
        )
        switches = plain(self.model.forward)
        with absent.counted(recorder.report), patches.Rewriter(recorder.report, real=self.data == "real"):
            if self.arguments is None and not self.request.inputs:
                self.arguments = self._found(switches)
            self.given = self._inputs()
            tensors = {i.name: i.tensor(ones if self.data else _empty) for i in self.given}
            if self.training:
                trained(recorder, lambda: self.model(**tensors, **switches), self.assumptions)
            else:
                with recorder.phase(record=True):
                    self.model(**tensors, **switches)
        if remark := self._blueprint.remark():
            self.assumptions[remark] = None
        self._say_what_data_decided(recorder)
        self.phase = "train" if self.training else "forward"
        return recorder

    # ---- inputs

    def _found(self, switches: dict[str, bool]) -> list[Argument]:
        wanted = parameters(self.model.forward, type(self.model))
        solver = Solver(self.model, self.configured, self.dtype)
        found = solver.solved(wanted, switches, self.model)
        if found is not None:
            return found
        names = ", ".join(p.name for p in wanted if p.stage < 2) or "none that is a tensor"
        error = solver.problem
        if isinstance(error, DECIDED_BY_DATA) and not self.data:
            raise DataError(f"{self.model_class.__name__} takes a decision that depends on data.") from error
        said = (
            f": it ends in {type(error).__name__}: {str(error).strip().splitlines()[0][:200].rstrip('.')}"
            if error and str(error).strip()
            else ""
        )
        raise InputsError(
            f"No input was found that {self.model_class.__name__} runs on (its forward needs {names}){said}.",
            next_step='Give the shapes of the forward\'s arguments with inputs, e.g. {"x": ["batch_size", "seq_len", 64]}, '
            "and what its constructor takes with config.",
        )

    def _inputs(self) -> list[Input]:
        if self.arguments is None:
            shapes = self.request.inputs.items()
            return [
                Input(n, tuple(map(self._given_size, s)), torch.int64 if is_ids(n) else self.dtype) for n, s in shapes
            ]
        return [self._input(argument) for argument in self.arguments]

    def _input(self, argument: Argument) -> Input:
        shape = tuple(self._size(d) for d in argument.dims)
        if not argument.lengths:
            return Input(argument.name, shape, argument.dtype)
        first = next((d for a in self.arguments or () for d in a.dims if d.kind == "run"), None)
        counted = 16 if first is None else self._size(first)
        return Input(argument.name, shape, argument.dtype, lambda: [int(counted)] * int(self.size("batch_size")))

    def _size(self, d: Dimension) -> Any:
        if d.kind == "batch":
            return self.size("batch_size")
        if d.kind == "run":
            return self.size(d.name, d.value if d.name in RUNTIME else 24)
        if d.kind == "size":
            return vars(self.config)[d.name]
        if d.kind == "weight":
            tensors = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
            return tensors[d.name].shape[d.axis] * d.times
        return d.value

    def _given_size(self, size: str | int) -> Any:
        if isinstance(size, int):
            return size
        if size in vars(self.config):
            return vars(self.config)[size]
        if size in RUNTIME or size.isidentifier():
            return self.size(size, 16)
        raise ConfigError(f"{size!r} is no size.", next_step="Name a variable, or give a number.")


def _empty(shape: tuple[Any, ...], dtype: torch.dtype) -> Any:
    return torch.empty(shape, dtype=dtype)


def check_same(plain: Session, session: Session) -> None:
    """Raise `TraceError` where symbols, at their own hints, give other figures than the numbers did."""
    ours, theirs = _figures(plain), _figures(session)
    if ours != theirs:
        raise TraceError(
            f"{session.model_class.__name__} costs {theirs[0]} FLOPs on symbolic sizes and {ours[0]} on the same numbers."
        )


def _figures(session: Session) -> tuple[Any, Any, frozenset[str]]:
    """FLOPs, those of products, and the operators that are not counted."""
    recorder, at = session.recorder, session.symbols.hints
    flops = matmul = Formula({})
    for op in recorder.ops:
        times, call = op.repeat.substitute(at), op.call
        while call >= 0:
            event = recorder.calls[call]
            times, call = times * event.loops.substitute(at) * event.repeat, event.parent
        if op.cost is not None:
            flops = flops + op.cost.flops.substitute(at) * times
            matmul = matmul + op.cost.matmul_flops.substitute(at) * times
    return flops.constant(), matmul.constant(), frozenset(op.operator for op in recorder.ops if op.cost is None)


def is_ids(name: str) -> bool:
    """Token ids are integers, everything else is in the model's dtype."""
    return name in IDS or name.endswith(("_ids", "_idx", "_indices"))


__all__ = ["LEVELS", "NUMBERS", "PLAINER", "SAID", "ModuleSession", "check_same"]
