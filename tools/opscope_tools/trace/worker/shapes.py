"""Shapes that a module runs on, found by running it: on numbers, on tensors without data, and by what it says when it stops.

Every dimension that the forward's own words leave open starts as a number that occurs nowhere else. Where a weight meets it
and wants another (`linear`, a convolution, a norm, an embedding), the dimension is that weight's; where two open ones must be
equal they become one; what nothing objects to is free, a variable of the run. A shape is only taken once the module has run
on it, so a wrong guess costs a try and never a figure.
"""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from opscope_schemas.errors import OpscopeError

from opscope_tools.trace.worker.signatures import Parameter, role
from opscope_tools.trace.worker.watching import ChangedError, Watch

#: multiples of 16, so that they can be cut into heads and patches, that no module has for a size of its own
_UNIQUE = tuple(
    16 * prime for prime in (67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151)
)
_SHORT = (16, 24, 40, 56, 8)
_AT_MOST = re.compile(r"\bmax|exceed|at most|too long|longer than|greater than", re.IGNORECASE)
_BATCH, _STEPS, _SECONDS, _TEMPLATES = 3, 80, 90.0, 14
_IMAGE = ("img_size", "image_size", "input_size", "sample_size", "input_resolution", "resolution")
_CONVOLUTION = torch.nn.modules.conv._ConvNd


@dataclass(eq=False)
class Dimension:
    """One size of an argument: `kind` is batch, run (called `name`), size (of the constructor), number or weight."""

    kind: str
    value: int
    name: str = ""
    axis: int = 0
    times: int = 1
    #: whether a value was only put in to be tried
    open: bool = True


@dataclass
class Argument:
    """A tensor that a forward is given."""

    name: str
    dims: list[Dimension]
    dtype: torch.dtype
    lengths: bool = False
    corrected: dict[int, int] = field(default_factory=dict)


class Solver:
    """Finds what `model`'s forward takes. `sizes` are the constructor's integers; `dtype` is the model's."""

    def __init__(self, model: Any, sizes: Mapping[str, int], dtype: torch.dtype) -> None:
        self._model = model
        self._sizes = sizes
        self._dtype = dtype
        self._ends = time.process_time() + _SECONDS
        self._weights = {id(t): name for name, t in [*model.named_parameters(), *model.named_buffers()]}
        self._unused: Iterator[int] = iter(())
        self._named: dict[str, Dimension] = {}
        self._arguments: list[Argument] = []
        self._tensors: dict[str, Any] = {}
        self.problem: Exception | None = None

    def solved(
        self, parameters: list[Parameter], plain: Mapping[str, Any], run: Callable[..., Any]
    ) -> list[Argument] | None:
        """The arguments that `run` takes, or None; `problem` then holds what the likeliest set ended in."""
        log = logging.getLogger("torch._subclasses.fake_tensor")  # which writes every try that fails
        before, log.disabled = log.disabled, True
        try:
            return self._solved(parameters, plain, run)
        finally:
            log.disabled = before

    def _solved(
        self, parameters: list[Parameter], plain: Mapping[str, Any], run: Callable[..., Any]
    ) -> list[Argument] | None:
        stages = dict.fromkeys(tuple(p for p in parameters if p.stage <= s) for s in (1, 2, 0))
        for given in stages:
            for templates in itertools.islice(
                itertools.product(*(self._templates(p, first=p is given[0]) for p in given)), _TEMPLATES
            ):
                self._start(given, templates)
                if self._settled(plain, run):
                    self._name_free()
                    return self._arguments
                if time.process_time() > self._ends:
                    return None
        return None

    # ---- what to try

    def _templates(self, parameter: Parameter, *, first: bool) -> list[tuple[str, ...]]:
        """Names of dimensions that the argument may have, the likeliest first."""
        if parameter.dims is not None:
            return [self._without_dots(parameter.dims)]
        pictures = [("batch", "", "height", "width"), ("batch", "height", "width", "")]
        states, rows = ("batch", "", ""), ("batch", "")
        leaf = next(
            (m for m in self._model.modules() if isinstance(m, _CONVOLUTION | torch.nn.Linear | torch.nn.Embedding)),
            None,
        )
        if parameter.dtype is torch.int64 or (first and isinstance(leaf, torch.nn.Embedding)):
            return [rows, ("batch",), states]
        if first and isinstance(leaf, _CONVOLUTION):
            rank = leaf.weight.dim()
            clip = ("batch", "", "num_frames", "height", "width")
            return [
                {3: states, 4: pictures[0], 5: clip}[rank],
                *(t for t in (pictures[0], rows, states) if len(t) != rank),
            ]
        return [states, *pictures, rows]

    @staticmethod
    def _without_dots(dims: tuple[str, ...]) -> tuple[str, ...]:
        """An ellipsis in front stands for the batch and a sequence."""
        if dims and dims[0] in ("...", "*"):
            return ("batch", "", *dims[1:]) if len(dims) < 3 else ("batch", *dims[1:])
        return tuple(d for d in dims if d != "...")

    def _start(self, given: tuple[Parameter, ...], templates: tuple[tuple[str, ...], ...]) -> None:
        self._unused, self._named = iter(_UNIQUE * 4), {}
        self._arguments = [
            Argument(p.name, [self._dimension(d, axis) for axis, d in enumerate(dims)], p.dtype or self._dtype, p.name.endswith("lengths"))
            for p, dims in zip(given, templates, strict=True)
        ]  # fmt: skip

    def _dimension(self, word: str, axis: int) -> Dimension:
        kind = role(word, axis)
        if kind == "batch":
            return Dimension("batch", _BATCH, open=False)
        if kind.isdigit():
            return Dimension("number", int(kind))
        if kind in ("height", "width"):
            return self._named.setdefault(kind, Dimension("run", self._picture()[kind == "width"], f"image_{kind}"))
        if not kind:
            return Dimension("run", next(self._unused))
        if kind not in self._named:
            configured = self._configured(kind)
            if configured is None:
                self._named[kind] = Dimension("run", next(self._unused), kind)
            else:
                self._named[kind] = Dimension("size" if kind in self._sizes else "number", configured, kind)
        return self._named[kind]

    def _configured(self, name: str) -> int | None:
        """What the constructor or the module itself holds under a name."""
        found = self._sizes.get(name, getattr(self._model, name, None))
        return found if type(found) is int and found > 0 else None

    def _picture(self) -> tuple[int, int]:
        """The size of pictures that the module is made for."""
        for module in itertools.islice(self._model.modules(), 200):
            for holder in (module, getattr(module, "config", None)):
                for name in _IMAGE:
                    found = getattr(holder, name, None)
                    if type(found) is int and found > 1:
                        return found, found
                    if isinstance(found, tuple | list) and len(found) == 2 and all(type(n) is int for n in found):
                        return found[0], found[1]
        return 64, 64

    # ---- trying

    def _settled(self, plain: Mapping[str, Any], run: Callable[..., Any]) -> bool:
        for _ in range(_STEPS):
            if time.process_time() > self._ends:
                return False
            self._tensors = {a.name: self._tensor(a) for a in self._arguments}
            try:
                with Watch(self):
                    run(**self._tensors, **plain)
            except ChangedError:
                continue
            except OpscopeError:
                raise
            except Exception as error:
                self.problem = self.problem or error
                if not self._told(str(error)) and not self._shrunk():
                    return False
                continue
            return True
        return False

    def _shrunk(self) -> bool:
        """Make what is still open as short as a sequence may be: longer ones may be refused."""
        found = [d for d in self._all_open() if d.value in _UNIQUE]
        for d, value in zip(found, _SHORT, strict=False):
            d.value = value
        return bool(found)

    def _tensor(self, argument: Argument) -> Any:
        if argument.lengths:
            return torch.tensor([self.longest()] * _BATCH, dtype=argument.dtype)
        return torch.empty([d.value for d in argument.dims], dtype=argument.dtype)

    def longest(self) -> int:
        """The first open dimension: what lengths count."""
        return next((d.value for a in self._arguments for d in a.dims if d.kind == "run"), 16)

    def _told(self, message: str) -> bool:
        """Put right what an error says in words: one open size and the number that it should be, or two open ones."""
        if _AT_MOST.search(message):  # a bound is no size: a shorter one does
            return False
        numbers = {int(n) for n in re.findall(r"\b\d+\b", re.sub(r"dim(ension)?\s+-?\d+", "", message))}
        mine = [d for d in self._all_open() if d.value in numbers]
        others = numbers - {d.value for d in mine}
        if len(mine) == 1 and len(others) == 1 and min(others) > 0:
            return self.put(mine[0], min(others))
        return len(mine) == 2 and not others and self.put(mine[1], mine[0].value, mine[0])

    def _all_open(self) -> list[Dimension]:
        return list({id(d): d for a in self._arguments for d in a.dims if d.open}.values())

    # ---- putting right

    def place(self, tensor: Any, axis: int) -> Dimension | None:
        """Which argument's dimension a tensor's is: an argument's own, or the open one of that value."""
        for argument in self._arguments:
            if self._tensors.get(argument.name) is tensor:
                dims = argument.dims
                return dims[axis] if -len(dims) <= axis < len(dims) and dims[axis].kind != "batch" else None
        return next((d for d in self._all_open() if d.value == tensor.shape[axis] and d.value in _UNIQUE), None)

    def argument_of(self, tensor: Any) -> Argument | None:
        return next((a for a in self._arguments if self._tensors.get(a.name) is tensor), None)

    def put(
        self,
        mine: Dimension | None,
        value: int,
        other: Dimension | None = None,
        weight: Any = None,
        axis: int = 0,
        times: int = 1,
    ) -> bool:
        """Make an open dimension a number, another dimension, or a weight's; False where it was put right too often."""
        if mine is None or mine is other or (mine.value == value and other is None):
            return False
        if other is not None:
            for argument in self._arguments:
                argument.dims = [other if d is mine else d for d in argument.dims]
            return True
        if not mine.open:
            return False
        mine.value, mine.open = value, mine.kind == "number"  # a note may be wrong once
        path = self._weights.get(id(weight), "")
        mine.kind, mine.name, mine.axis, mine.times = ("weight", path, axis, times) if path else ("number", "", 0, 1)
        same = [n for n, v in self._sizes.items() if v == value]
        if not path and len(same) == 1:
            mine.kind, mine.name = "size", same[0]
        return True

    def meets(self, tensor: Any, axis: int, weight: Any, at: int, times: int = 1) -> None:
        """A weight's size is what a tensor's must be."""
        wanted = int(weight.shape[at]) * times
        differs = -tensor.dim() <= axis < tensor.dim() and tensor.shape[axis] != wanted
        if differs and self.put(self.place(tensor, axis), wanted, weight=weight, axis=at, times=times):
            raise ChangedError

    def wants(self, tensor: Any, axis: int, size: int) -> None:
        """A size that is no weight's is what a tensor's must be."""
        if tensor.shape[axis] != size and self.put(self.place(tensor, axis), size):
            raise ChangedError

    def has_rank(self, tensor: Any, rank: int) -> None:
        """An argument that reaches an operator as it is must have the operator's rank."""
        argument = self.argument_of(tensor)
        if argument is not None and tensor.dim() != rank and argument.corrected.setdefault(-1, 0) < 2:
            argument.corrected[-1] += 1
            words = {2: ("batch", ""), 3: ("batch", "", ""), 4: ("batch", "", "height", "width"),
                     5: ("batch", "", "num_frames", "height", "width")}.get(rank)  # fmt: skip
            if words is not None:
                argument.dims = [self._dimension(w, i) for i, w in enumerate(words)]
                raise ChangedError

    def is_index(self, tensor: Any) -> None:
        argument = self.argument_of(tensor) if isinstance(tensor, torch.Tensor) else None
        if argument is not None and argument.dtype.is_floating_point:
            argument.dtype = torch.int64
            if len(argument.dims) == 3:
                argument.dims = argument.dims[:2]
            raise ChangedError

    def apart(self, tensors: list[Any]) -> None:
        """Two tensors that an operator could not bring together, from their last dimensions."""
        for a, b in itertools.combinations(tensors, 2):
            for axis in range(-1, -1 - min(a.dim(), b.dim()), -1):
                x, y = a.shape[axis], b.shape[axis]
                if x == y or 1 in (x, y):
                    continue
                mine, theirs = self.place(a, axis), self.place(b, axis)
                if mine is not None and theirs is not None and theirs.open and self.put(theirs, mine.value, mine):
                    raise ChangedError
                if mine is not None and self.put(mine, y, weight=b, axis=axis):
                    raise ChangedError
                if theirs is not None and self.put(theirs, x, weight=a, axis=axis):
                    raise ChangedError

    # ---- names of what stayed free

    def _name_free(self) -> None:
        used = {d.name for a in self._arguments for d in a.dims if d.name}
        for argument in self._arguments:
            for axis, d in enumerate(argument.dims):
                if d.kind == "run" and (not d.name.isidentifier() or len(d.name) < 4):
                    d.name = self._free_name(argument, axis, used)
                    used.add(d.name)

    def _free_name(self, argument: Argument, axis: int, used: set[str]) -> str:
        rank = len(argument.dims)
        last = axis == rank - 1 and rank > 2 and argument.dtype.is_floating_point
        if last and "hidden_size" not in used and not isinstance(self._first(), _CONVOLUTION):
            return "hidden_size"
        for name in (
            "seq_len",
            "encoder_seq_len" if argument.name.startswith(("enc", "context", "mem", "cond", "key")) else "",
            f"{argument.name}_len",
        ):
            if name and name not in used:
                return name
        return f"{argument.name}_size_{axis}"

    def _first(self) -> Any:
        return next((m for m in self._model.modules() if next(iter(m._parameters.values()), None) is not None), None)


__all__ = ["Argument", "Dimension", "Solver"]
