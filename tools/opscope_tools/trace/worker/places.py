"""What a layer makes of its own index while it runs.

A layer may stand for its siblings only where it would do the same with their index. So the first of them that runs is handed
a stand-in for every number by which it knows its place, an attribute or an argument, and each use is noted; a sibling is
alike where every use would tell it the same. What is looked up by an index counts as what was found there: a window of 0 for
one layer and of 512 for the next are told apart, the two tensors of one shape that a list holds for them are not. A cache
holds something of its own for each layer, and has not been filled for those that were alike: nothing that is asked of one counts.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import functools
import inspect
import linecache
import operator
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from opscope_tools.trace.worker import noting
from opscope_tools.trace.worker.alike import (
    FIRST,
    IDENTITY,
    INDEX,
    PLACES,
    argument_signature,
    described,
    is_cache,
    is_index,
    known_values,
    settings,
)
from opscope_tools.trace.worker.frames import names_in
from opscope_tools.trace.worker.noting import Index, Use

#: where an attribute stands: the path to the part that has it, and its name; an argument stands at no path
Slot = tuple[str | None, str]
#: slot -> what it was asked
Uses = dict[Slot, list[Use]]
#: indices up to which it is looked whether a deeper stack's layers would do the same
_DEEPEST = 200
#: folders whose code hands an index on: what it was asked for is said by the line that called it
_ON_THE_WAY = tuple(f"{Path(file).parent}{os.sep}" for file in (__file__, torch.__file__))


class Place(Index):
    """A layer's index while the layer runs."""

    __slots__ = ()

    def note(self, function: Callable[..., Any], others: tuple[Any, ...], result: Any) -> None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code is Place.note.__code__ or is_cache(names_in(frame).get("self")):
                return  # what is held to know what was found asks nothing
            if not frame.f_code.co_filename.startswith(_ON_THE_WAY):
                break
            frame = frame.f_back
        if frame is None:
            return
        found = _looked_up(frame) if function in _ASKED_BY_LOOKING else None
        if found is None:
            super().note(function, others, result)
        elif found.counts:
            super().note(found.at, (), found.at(self.value))


_ASKED_BY_LOOKING = frozenset({hash, operator.index, operator.eq, operator.lt, operator.le, operator.ge, str, int})


class Layer:
    """A layer that is called, the numbers by which it knows its place, and its arguments without those."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        kind: Any = type(module)
        self._names = _parameters(kind)
        given = {**dict(zip(self._names, args, strict=False)), **kwargs}
        self._handed = {n: v for n, v in given.items() if n in IDENTITY and is_index(v)}
        self.numbers = _attributes(module)
        self.numbers.update({(None, name): value for name, value in self._handed.items()})
        self.others = (
            argument_signature([a for i, a in enumerate(args) if self._name(i) not in self._handed]),
            argument_signature({n: v for n, v in kwargs.items() if n not in self._handed}),
            tuple(self.numbers),
        )

    def _name(self, at: int) -> str:
        """The parameter that the argument at a position is for; empty: none that is named."""
        return self._names[at] if at < len(self._names) else ""

    def does_the_same(self, uses: Uses) -> bool:
        """Whether what a sibling asked of its index would be answered alike here."""
        return all(use.same_at(_value(self.numbers[slot])) for slot, asked in uses.items() for use in asked)

    def hand_on(self, uses: Uses) -> None:
        """Tell layers around this one, whose index its own is or comes from, what was or would have been asked."""
        for slot, asked in uses.items():
            if type(number := self.numbers[slot]) is Place:
                for use in asked:
                    Index.note(number, use.function, use.others, use.result)

    @contextlib.contextmanager
    def listening(self) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], Uses]]:
        """Arguments to call it with, and the uses that it makes of its numbers meanwhile."""
        places = {slot: Place(_value(number)) for slot, number in self.numbers.items()}
        put: list[tuple[dict[str, Any], str, Any]] = []
        uses: Uses = {}
        try:
            for (path, name), place in places.items():
                if path is not None:
                    held = vars(self.module.get_submodule(path))
                    put.append((held, name, held[name]))
                    held[name] = place
            args = tuple(places.get((None, self._name(i)), a) for i, a in enumerate(self.args))
            yield args, {n: places.get((None, n), v) for n, v in self.kwargs.items()}, uses
        finally:
            for held, name, value in put:
                if type(held.get(name)) is Place:
                    held[name] = value
            uses.update({slot: place.uses for slot, place in places.items() if place.uses})
            self.hand_on(uses)


#: values that say the same on every layer that has them
_WORDS = (torch.dtype, str, bool)


class Settings:
    """What others set on layers between their calls: a model may tell each layer what to do by an attribute.

    What a layer sets on itself while it runs is not among it: those that were alike have not run.
    """

    def __init__(self, layers: Iterable[Any]) -> None:
        self._held = {id(layer): _state(layer) for layer in layers}
        self._told: dict[int, dict[tuple[str, str], str]] = {}

    def of(self, layer: Any) -> tuple[Any, ...]:
        """All that was set on it from outside so far."""
        held, now = self._held[id(layer)], _state(layer)
        if new := {place: text for place, text in now.items() if text != held.get(place)}:
            self._told.setdefault(id(layer), {}).update(new)
        return tuple(sorted(self._told.get(id(layer), {}).items()))

    def ran(self, layer: Any) -> bool:
        """It ran, or one that is alike did: what it has now is its own. Whether that is not what it had before, and more than a word that
        one alike would have noted too: the dtype of what it was given, say."""
        before, now = self._held[id(layer)], _state(layer)
        self._held[id(layer)] = now
        parts = dict(layer.named_modules()) if before != now else {}
        changed = {place for place in {**before, **now} if before.get(place) != now.get(place)}
        return any(not isinstance(vars(parts[path]).get(name, layer), _WORDS) for path, name in changed)


def _state(layer: Any) -> dict[tuple[str, str], str]:
    """What may change of what it holds: modules and caches by identity, all else by content."""
    known: dict[int, Any] = {}
    return {
        (path, name): f"{type(value).__qualname__} {id(value)}"
        if isinstance(value, torch.nn.Module) or is_cache(value)
        else described(value, known)
        for path, part in layer.named_modules()
        for name, value in settings(part).items()
    }


def decides(uses: Uses) -> bool:
    """Whether a layer's index changes what it does, at whatever depth."""
    return any(not use.same_at(value) for asked in uses.values() for use in asked for value in range(_DEEPEST))


def _attributes(module: Any) -> dict[Slot, Any]:
    first = vars(module).get(FIRST, module)
    if first is module:
        return {
            (path, name): value
            for path, part in module.named_modules()
            for name in IDENTITY.intersection(vars(part))
            if is_index(value := vars(part)[name])
        }
    index, places = vars(module)[INDEX], vars(module).get(PLACES, ())
    return {slot: index if slot in places else value for slot, value in _attributes(first).items()}


def _value(number: Any) -> int:
    return int(number.value if type(number) is Place else number)


@functools.lru_cache(maxsize=4096)
def _parameters(kind: Any) -> tuple[str, ...]:
    """Names of a forward's parameters that may be given by position."""
    try:
        found = inspect.signature(kind.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(p.name for p in found if p.kind in by_position)[1:]


# ---- what is looked up


@dataclass(frozen=True)
class _Container:
    """What an index was looked up in."""

    holder: Any
    #: whether what it holds may differ between layers that are alike otherwise
    counts: bool = True
    #: whether it was asked only if it holds the index
    whether: bool = False

    def at(self, index: int) -> str:
        """What it has there, as text that is the same for what costs the same."""
        if self.whether:
            return str(index in self.holder)
        if isinstance(self.holder, torch.Tensor):
            return str(self.holder.constant[index].item())
        if isinstance(self.holder, list | tuple | torch.nn.ModuleList | torch.nn.ParameterList):
            return described(self.holder[index]) if index < len(self.holder) else "nothing"
        return described(self.holder[index]) if index in self.holder else "nothing"


def _looked_up(frame: FrameType) -> _Container | None:
    """What the expression at hand looks an index up in; None where it does something else with it."""
    code, at = frame.f_code, frame.f_lasti
    position = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    if None in position:
        return None
    container, whether = _expression(code.co_filename, *position)
    if container is None:
        return None
    if dis.opname[code.co_code[at]] in ("STORE_SUBSCR", "DELETE_SUBSCR"):
        return _Container(None, counts=False)
    try:
        chain = list(_evaluated(container, frame))
    except Exception:  # an expression that only its own line can say the value of
        return None
    if (
        isinstance(chain[-1], torch.Tensor) and known_values(chain[-1]) is None
    ):  # what lies along a dimension is of one shape
        return _Container(None, counts=False)
    if isinstance(chain[-1], torch.Tensor) and chain[-1].dim() != 1:  # along which dimension, the key says
        return None
    if any(map(is_cache, chain)):
        return _Container(None, counts=False)
    known: tuple[Any, ...] = (list, tuple, dict)
    modules = (torch.nn.ModuleList, torch.nn.ModuleDict, torch.nn.ParameterList, torch.Tensor)
    known += (set, frozenset) if whether else modules
    return _Container(chain[-1], whether=whether) if isinstance(chain[-1], known) else None


@functools.lru_cache(maxsize=4096)
def _expression(file: str, line: int, last: int, column: int, end: int) -> tuple[ast.expr | None, bool]:
    """The container in a subscript, a `get` or a membership, and whether it is the latter."""
    lines = [text.encode() for text in linecache.getlines(file)[line - 1 : last]]
    if not lines:
        return None, False
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][column:]
    try:
        node = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except SyntaxError:
        return None, False
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
        return node.comparators[0], True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        return node.func.value, False
    one = isinstance(node, ast.Subscript) and not any(_bounded(part) for part in ast.walk(node.slice))
    return (node.value if isinstance(node, ast.Subscript) and one else None), False


def _bounded(node: ast.AST) -> bool:
    """Whether it cuts a part out: how much depends on the index."""
    return isinstance(node, ast.Slice) and any((node.lower, node.upper, node.step))


def _evaluated(node: ast.expr, frame: FrameType) -> Iterator[Any]:
    """Every object on the way to what the expression names; raises where it is more than names, attributes and constant keys."""
    if isinstance(node, ast.Name):
        for names in (names_in(frame), frame.f_globals):
            if node.id in names:
                yield names[node.id]
                return
        raise LookupError(node.id)
    if isinstance(node, ast.Constant | ast.Tuple | ast.List | ast.Set):
        found = ast.literal_eval(node)
    elif isinstance(node, ast.Attribute):
        *before, holder = _evaluated(node.value, frame)
        yield from (*before, holder)
        found = getattr(holder, node.attr)
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        *before, holder = _evaluated(node.value, frame)
        yield from (*before, holder)
        found = holder[node.slice.value]
    else:
        raise LookupError(ast.dump(node))
    yield found


# ---- what loops ask of an index


def asks_beyond(frame: FrameType, depth: int) -> bool:
    """Whether the loop around the line that runs holds its index against numbers that a stack of so many layers has not reached: then
    it may do otherwise with those of a deeper one."""
    loop = _loop_around(frame.f_code.co_filename, frame.f_lineno)
    if loop is None:
        return False
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    return any(_reaches(number, depth, frame) for number in _numbers_beside(loop, names)) or any(
        _changes(node, depth, frame) for node in _asked_lists(loop, names)
    )


@functools.lru_cache(maxsize=4096)
def _loop_around(file: str, line: int) -> ast.For | None:
    """The innermost loop whose body has the line."""
    loops = (node for node in _loops_of(file) if node.body[0].lineno <= line <= (node.end_lineno or 0))
    return min(loops, key=lambda node: (node.end_lineno or 0) - node.lineno, default=None)


@functools.lru_cache(maxsize=64)
def _loops_of(file: str) -> tuple[ast.For, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.For))


def _has(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _numbers_beside(loop: ast.For, names: set[str]) -> Iterator[ast.expr]:
    """What the loop's index is compared with or divided by, and the bounds of the part of a list that it goes through."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if any(_has(side, names) for side in sides):
                yield from (side for side in sides if not _has(side, names))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod | ast.FloorDiv) and _has(node.left, names):
            yield node.right
    for node in ast.walk(loop.iter):
        if isinstance(node, ast.Slice):
            yield from (bound for bound in (node.lower, node.upper) if bound is not None)


def _reaches(node: ast.expr, depth: int, frame: FrameType) -> bool:
    """Whether it is a number, or holds one, past the stack's; a name's may be the number of layers itself."""
    try:
        *_, found = _evaluated(node, frame)
    except Exception:  # more than a name or a number
        return False
    if type(found) is int:
        return found >= depth + (not isinstance(node, ast.Constant))
    return isinstance(found, list | tuple | set | frozenset | dict) and any(
        type(number) is int and number >= depth for number in found
    )


def _asked_lists(loop: ast.For, names: set[str]) -> Iterator[ast.expr]:
    for node in ast.walk(loop):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name) and node.slice.id in names:
            yield node.value


def _changes(node: ast.expr, depth: int, frame: FrameType) -> bool:
    """Whether a list says something past the stack's layers that it says of none of them."""
    try:
        *_, found = _evaluated(node, frame)
    except Exception:  # more than a name
        return False
    plain = isinstance(found, list | tuple) and all(isinstance(one, noting.PLAIN) for one in found)
    return plain and not set(found[depth:]) <= set(found[:depth])


__all__ = ["Layer", "Place", "Settings", "Uses", "asks_beyond", "decides"]
