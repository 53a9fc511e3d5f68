"""Loops of model code over a size of the run: a few steps run, and one of them stands for all.

`for t in range(seq_len)` would make a number of `seq_len`, and a kernel of every step. Where the source shows that a step
depends on its index through subscripts alone, and the steps that ran are alike in what they call, compute and leave behind,
the record keeps one with its number of repetitions. Lists that a step appends to are filled up to the traced length, and
`joined` gives what is stacked of them its symbolic length. Any other loop runs as Python has it.
"""

from __future__ import annotations

import ast
import builtins
import itertools
import linecache
import sys
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from opscope_schemas.formula import Formula

from opscope_tools.trace.variables import RUNTIME
from opscope_tools.trace.worker.frames import names_in
from opscope_tools.trace.worker.recorder import CallEvent, OpEvent, Parts, Recorder, active_recorder

#: how many steps run, at least and at most: the first may differ (it finds no state), and the next (it decides that a size is 1),
#: two more must be alike
STEPS, _MOST = 3, 5
#: up to so many steps all run where sizes are plain numbers
LONG = 64


def symbolic_range(*bounds: Any) -> Any:
    """`range` for model code."""
    symbolic = any(isinstance(b, torch.SymInt) for b in bounds)
    return Steps(bounds) if symbolic or _long(bounds[-1]) else builtins.range(*bounds)


def _long(stop: Any) -> bool:
    """Whether a pass on plain numbers folds a loop of as many steps: alike steps say it all."""
    recorder = active_recorder()
    return type(stop) is builtins.int and stop > LONG and recorder is not None and recorder.plain


class Steps:
    """A range with a symbolic bound: as a `for` statement's it may be folded, for all else it is the range of numbers."""

    def __init__(self, bounds: tuple[Any, ...]) -> None:
        self._bounds = bounds

    def _plain(self) -> range:
        return builtins.range(*map(builtins.int, self._bounds))

    def __len__(self) -> int:
        return len(self._plain())

    def __getitem__(self, index: Any) -> Any:
        return self._plain()[index]

    def __contains__(self, value: object) -> bool:
        return value in self._plain()

    def __reversed__(self) -> Iterator[int]:
        return reversed(self._plain())

    def __iter__(self) -> Iterator[int]:
        frame, recorder = sys._getframe(1), active_recorder()
        start, stop, step = (0, *self._bounds, 1) if len(self._bounds) == 1 else (*self._bounds, 1)[:3]
        regular = recorder is None or recorder.training is None  # a folded step has no gradient
        regular = (
            regular
            and type(start) is int
            and type(step) is int
            and step == 1
            and (isinstance(stop, torch.SymInt) or _long(stop))
        )
        source = _source_of(frame) if regular and recorder is not None else None
        if recorder is None or source is None or not _of_the_run(recorder, count := stop - start):
            return iter(self._plain())
        return _steps(_Loop(frame, source, recorder, count), start)


def _of_the_run(recorder: Recorder, count: Any) -> bool:
    """Whether a number of steps is a size of the run, which no list of modules has, and more than the steps that run; of plain
    numbers any is, as the steps on a list of modules are never alike."""
    if not isinstance(count, torch.SymInt):
        return _number(count) > STEPS
    names = {recorder.symbols.name_of(symbol) for symbol in count.node.expr.free_symbols}
    return names <= set(RUNTIME) and count.node.hint is not None and count.node.hint > STEPS


def _number(count: Any) -> int:
    """How many steps the traced pass has."""
    return builtins.int(count.node.hint if isinstance(count, torch.SymInt) else count)


def _steps(loop: _Loop, start: int) -> Iterator[int]:
    loop.step()
    for run in builtins.range(1, min(_MOST, _number(loop.count) - 1) + 1):
        yield start + run - 1
        loop.step()
        if run >= STEPS and loop.folded():
            return
    yield from builtins.range(start + run, start + builtins.int(loop.count))


@dataclass(frozen=True)
class _Mark:
    """Where a record stands between two steps."""

    ops: int
    calls: int
    #: what changes where alike siblings are folded, or a cache is used, inside of the loop
    folding: tuple[Any, ...]
    #: the function's names: tensors by what they are, numbers by their value
    names: dict[str, Any]
    lengths: tuple[int, ...]


class _Loop:
    """One loop while its steps run."""

    def __init__(self, frame: FrameType, source: _Source, recorder: Recorder, count: Any) -> None:
        self.count = count
        self._frame, self._source, self._recorder = frame, source, recorder
        self._lists = list({id(value): value for value in names_in(frame).values() if type(value) is list}.values())
        self._marks: list[_Mark] = []
        #: which step stands for the others: the first of those that are alike
        self._first = 0

    def step(self) -> None:
        """A step begins, or the last one is over."""
        recorder, names = self._recorder, names_in(self._frame)
        running = recorder.calls[recorder._stack[-1]] if recorder.recording and recorder._stack else None
        used = (running.cache_read, running.cache_written) if running is not None else ()
        followed = set(map(id, self._lists))
        said = {n: _said(v) for n, v in names.items() if n != self._source.index and id(v) not in followed}
        lengths = tuple(map(len, self._lists))
        self._marks.append(
            _Mark(
                len(recorder.ops),
                len(recorder.calls),
                (recorder.folded, sum(map(len, recorder._memo.values())), *used),
                said,
                lengths,
            )
        )

    def folded(self) -> bool:
        """One step stands for all that are alike, if they are; else nothing has changed."""
        marks = self._marks
        if marks[-1].names != marks[-2].names or not self._keeps_tensors() or len({m.folding for m in marks}) > 1:
            return False
        steps = [self._events(a, b) for a, b in itertools.pairwise(marks)]
        said = [_as_said(ops, calls, mark) for (ops, calls), mark in zip(steps, marks, strict=False)]
        if said[-1] != said[-2]:
            return False
        self._first = next(n for n, one in enumerate(said) if all(other == one for other in said[n:]))
        if self._first > 1 and not self.count > self._first:  # asked of the symbol: fewer steps are not told
            return False
        made = self._fold(steps)
        with self._recorder.paused():
            self._fill(made)
        return True

    def _events(self, a: _Mark, b: _Mark) -> tuple[list[OpEvent], list[CallEvent]]:
        return self._recorder.ops[a.ops : b.ops], self._recorder.calls[a.calls : b.calls]

    def _keeps_tensors(self) -> bool:
        """Whether every step appends one tensor to a list, or nothing, and puts parts into tensors alone."""
        names = names_in(self._frame)
        if not all(isinstance(names.get(name), torch.Tensor) for name in self._source.put_into):
            return False
        for whole, *lengths in zip(self._lists, *(m.lengths for m in self._marks), strict=True):
            grown = {b - a for a, b in itertools.pairwise(lengths)}
            if grown == {1} and all(isinstance(part, torch.Tensor) for part in whole[lengths[0] :]):
                continue
            if grown != {0}:
                return False
        return all(type(names.get(name)) is list for name in self._source.appended_to)

    @property
    def _times(self) -> Formula:
        return self._recorder.symbols.formula(self.count) - self._first

    def _fold(self, steps: list[tuple[list[OpEvent], list[CallEvent]]]) -> set[int]:
        """Leave one step in the record, repeated; the tensors that it makes."""
        recorder, begin = self._recorder, self._marks[0].calls
        (ops, calls), following = steps[self._first], steps[self._first + 1]
        own = {op.order for op in ops}
        for op, then in zip(ops, following[0], strict=True):
            op.carried = tuple(order for order in then.step.after if order in own)
            if op.call < begin:
                op.repeat = op.repeat * self._times
        for call in calls:
            if call.parent < begin:
                call.loops = call.loops * self._times
        orders: dict[int, int] = {}
        tensors: dict[int, int] = {}
        for others, _ in steps[self._first + 1 :]:
            for op, other in zip(ops, others, strict=True):
                orders[other.order] = op.order
                tensors.update(zip(other.step.writes, op.step.writes, strict=True))
        recorder.flow.fold(orders, {old: new for old, new in tensors.items() if old != new})
        end = self._marks[self._first + 1]
        del recorder.ops[end.ops :], recorder.calls[end.calls :]
        return set(tensors.values())

    def _fill(self, made: set[int]) -> None:
        """In every list, a tensor for each step that did not run; the last that ran is the last."""
        recorder = self._recorder
        for whole, begun in zip(self._lists, self._marks[0].lengths, strict=True):
            if len(whole) == begun:
                continue
            *first, last = whole[begun:]
            recorder.flow.times(last, self._times, made)
            left = [_alike(recorder, last) for _ in range(_number(self.count) - len(self._marks) + 1)]
            recorder.leave_out(left, self.count)
            whole[begun:] = [*first, *left, last]
            recorder.parts[id(whole[begun])] = Parts(tuple(map(weakref.ref, whole[begun:])), self.count)


def _alike(recorder: Recorder, tensor: Any) -> Any:
    """A tensor like another, which for the record is the other."""
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
    recorder.flow.named(new, tensor)
    return new


def _as_said(ops: list[OpEvent], calls: list[CallEvent], mark: _Mark) -> Any:
    """What a step did, alike for steps that do the same."""

    def place(call: int) -> int:
        return call if call < mark.calls else mark.calls - call - 2

    return (
        [(op.operator, op.site, op.cost, op.inputs, op.outputs, op.masks, op.reason, op.repeat, place(op.call)) for op in ops],
        [(call.path, id(call.module), call.inputs, call.outputs, call.repeat, call.loops, place(call.parent)) for call in calls],
    )  # fmt: skip


def _said(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", str(tuple(value.shape)), str(value.stride()), value.dtype)
    if isinstance(value, tuple):
        return tuple(map(_said, value))
    if isinstance(value, dict | set | list):
        return type(value), len(value)
    return (type(value), str(value)) if isinstance(value, builtins.int | float | str | torch.SymInt) else type(value)


# ---------------------------------------------------------------- what the source shows


@dataclass(frozen=True)
class _Source:
    """What the source of a loop that may be folded says: its index, what its steps append to and put parts into."""

    index: str
    appended_to: frozenset[str]
    put_into: frozenset[str]


def _source_of(frame: FrameType) -> _Source | None:
    """The loop that a function is at, if its source shows that it may be folded."""
    return _read(frame.f_code.co_filename, frame.f_code.co_firstlineno, frame.f_lineno)


@lru_cache(maxsize=1024)
def _read(filename: str, first: int, line: int) -> _Source | None:
    try:
        tree = ast.parse("".join(linecache.getlines(filename)))
    except (SyntaxError, ValueError):
        return None
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _first_line(n) == first]
    found = [(f, n) for f in functions for n in ast.walk(f) if isinstance(n, ast.For) and n.iter.lineno == line]
    if len(found) != 1 or not _is_plain(found[0][1]) or not _index_stays_inside(*found[0]):
        return None
    loop = found[0][1]
    inside = [n for statement in loop.body for n in ast.walk(statement)]
    changed = [n.func for n in inside if isinstance(n, ast.Call) and _changes(n.func)]
    stores = [n for n in inside if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
    holders = [each.value for each in (*changed, *stores) if isinstance(each, ast.Attribute | ast.Subscript)]
    if not all(isinstance(holder, ast.Name) for holder in holders) or any(_other_change(n) for n in changed):
        return None
    assert isinstance(loop.target, ast.Name)
    return _Source(loop.target.id, _names(n.value for n in changed if isinstance(n, ast.Attribute)), _names(n.value for n in stores))  # fmt: skip


#: methods that change a container of Python's
_CHANGES = frozenset("append extend insert remove pop clear add discard update setdefault popitem appendleft".split())


def _changes(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _CHANGES


def _other_change(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr != "append"


def _names(found: Iterable[ast.expr]) -> frozenset[str]:
    return frozenset(n.id for n in found if isinstance(n, ast.Name))


def _first_line(function: ast.FunctionDef) -> int:
    return min([function.lineno, *(d.lineno for d in function.decorator_list)])


def _is_plain(loop: ast.For) -> bool:
    """A loop over `range(...)` whose body runs to its end, changes names, elements and lists, and no object else."""
    ranged = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Name) and loop.iter.func.id == "range"
    if not ranged or loop.orelse or not isinstance(loop.target, ast.Name):
        return False
    inside = [n for statement in loop.body for n in ast.walk(statement)]
    leaves = (ast.Break, ast.Continue, ast.Return, ast.Yield, ast.YieldFrom, ast.Delete, ast.Try, ast.With, ast.While)
    return not any(
        isinstance(n, leaves) or (isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)) for n in inside
    )


def _index_stays_inside(function: ast.FunctionDef, loop: ast.For) -> bool:
    """Whether the loop's index is read in subscripts alone, and only by loops that set it."""
    assert isinstance(loop.target, ast.Name)
    name = loop.target.id
    allowed = {
        id(part)
        for n in ast.walk(loop)
        if isinstance(n, ast.Subscript)
        for part in (n.slice.elts if isinstance(n.slice, ast.Tuple) else [n.slice])
    }
    others = [n for n in ast.walk(function) if isinstance(n, ast.For) and n is not loop and _sets(n, name)]
    elsewhere = {id(n) for other in others for n in ast.walk(other)}
    return all(
        id(n) in allowed or id(n) in elsewhere
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)
    )


def _sets(loop: ast.For, name: str) -> bool:
    return isinstance(loop.target, ast.Name) and loop.target.id == name


# ---------------------------------------------------------------- what is joined of a loop's parts


def joined(recorder: Recorder, tensors: Sequence[Any], dim: int, *, new: bool) -> tuple[Any, list[Any]] | None:
    """What `stack` (`new`) or `cat` makes of a loop's parts, and what it reads; None where they are none.

    The parts of one loop, as many as the trace's length, are read as one tensor of the symbolic length.
    """
    if not any(id(tensor) in recorder.parts for tensor in tensors):
        return None
    parts, at, length, found = [], 0, 0, False
    while at < len(tensors):
        kept = recorder.parts.get(id(tensors[at]))
        extent = 1 if new else tensors[at].shape[dim]
        if kept is not None and kept.begin(tensors[at:]):
            found = True
            length = length + kept.count * extent
            parts.append(_stand_in(recorder, kept))
            at += len(kept.tensors)
        else:
            length = length + extent
            parts.append(tensors[at])
            at += 1
    if not found:
        return None
    shape = list(tensors[0].shape)
    place = dim % (len(shape) + 1) if new else dim % len(shape)
    if new:
        shape.insert(place, length)
    else:
        shape[place] = length
    return tensors[0].new_empty(shape), parts


def _stand_in(recorder: Recorder, parts: Parts) -> Any:
    """One tensor in the place of all parts."""
    last = parts.tensors[-1]()
    with recorder.paused():
        tensor = last.new_empty((parts.count, *last.shape))
    recorder.flow.named(tensor, last)
    return tensor


__all__ = ["STEPS", "joined", "symbolic_range"]
