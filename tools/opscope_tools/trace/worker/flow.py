"""Which operator makes and which reads each tensor of a pass: what `Recorder` notes for dependencies and lifetimes.

A tensor is a stretch of memory (a storage): its views are it. What a folded sibling returns is a tensor of its own that
stands for the first one's (`alias_of`). How long Python holds one is seen by weak references, asked at each operator: so
the recorder itself may hold none that the model made. Order: `Held`, what the recorder tells, what it is told.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from opscope_schemas.analysis import TensorInfo
from opscope_schemas.formula import Formula
from torch.multiprocessing.reductions import StorageWeakRef

from opscope_tools.trace.operators import Tensor
from opscope_tools.trace.worker.stretches import Stretch, stretch_of

Kind = Literal["activation", "input", "cache", "constant", "output"]
Measure = Callable[[Any], tuple[TensorInfo, Formula | None]]
#: operators that make memory and put nothing into it
_ALLOCATIONS = frozenset(
    f"aten.{name}"
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided")
)
#: how deep tensors are looked for in the objects that hold a cache
_DEEPEST = 8


@dataclass
class Held:
    """A tensor in memory. `born`, `last` and `held` are orders of the record; `born` 0: it was there before the pass.

    `last`: when an operator last touched it; `held`: until when a name, a list or a running function of Python held it.
    `size`: its bytes; None where no formula says them. `makers`: orders of the operators that wrote what it holds now.
    """

    index: int
    kind: Kind
    info: TensorInfo
    size: Formula | None
    born: int = 0
    last: int = 0
    held: int = 0
    makers: frozenset[int] = frozenset()
    alias_of: int | None = None
    #: orders of the operators that read it
    read: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Kept:
    """A tensor of the cache: the memory that it lies in, what it is, and its own bytes."""

    index: int
    info: TensorInfo
    size: Formula | None


@dataclass(frozen=True)
class Step:
    """What one operator reads and writes, by index, and the orders of the operators whose results it reads."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class Flow:
    """The tensors of one recorded pass. `weights`: their storages; `measure` says what a tensor is and its bytes."""

    def __init__(self, weights: Collection[int], measure: Measure) -> None:
        self.tensors: list[Held] = []
        #: (index of the folded call, tensor that its first sibling read, tensor that a sibling before it made)
        self.carried: dict[tuple[int, int, int], None] = {}
        #: what the cache holds before and after the pass
        self.before: list[Kept] = []
        self.after: list[Kept] = []
        self._weights = weights
        self._measure = measure
        self._at: dict[int, int] = {}
        self._views: dict[object, int] = {}
        #: tensor -> its views, and where their elements lie
        self._stretches: dict[int, dict[int, Stretch]] = {}
        #: of every storage, what keeps its place from being another's, but not its memory
        self._places: list[StorageWeakRef] = []
        #: storages that Python holds -> their tensor, and what says that it holds them no more
        self._living: dict[int, tuple[int, Callable[[], bool]]] = {}
        #: (index of the folded call, the tensors of the pass that are in memory when a sibling runs in its place)
        self.beside: dict[tuple[int, tuple[int, ...]], None] = {}

    # ---- before and after the pass

    def enter(self, arguments: dict[str, Any]) -> None:
        """What the model is called with: tensors by name, and whatever its cache holds."""
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor):
                info, size = self._measure(value)
                self._new(value, "input", info.model_copy(update={"name": name}), size)
            else:
                self.before += self._held(value)

    def leave(self, result: Iterable[tuple[str, Any]], cache: Any, order: int) -> None:
        """What the pass returns, by name, and what its cache holds then."""
        self._look(order)
        for index, _ in self._living.values():
            self.tensors[index].held = order
        self.after = self._held(cache)
        for index in (kept.index for kept in self.after):
            self._stays(index, "", order)
        for name, tensor in result:
            if (found := self._index(tensor)) is not None:
                self._stays(found, name, order)

    def _stays(self, index: int, name: str, order: int) -> None:
        held = self.tensors[index]
        held.last = order
        if held.kind == "activation":
            held.kind, held.info = "output", held.info.model_copy(update={"name": name})

    def _held(self, cache: Any) -> list[Kept]:
        found = []
        for tensor in held_by(cache):
            if _storage(tensor) in self._weights:
                continue
            info, size = self._measure(tensor)
            index = self._index(tensor)
            if index is None:
                index = self._new(tensor, "cache", info, size)
            elif self.tensors[index].kind == "activation":
                self.tensors[index].kind = "cache"
            found.append(Kept(index, info, size))
        return found

    # ---- while it runs

    def passed(self, operator: str, inputs: Sequence[Any], outputs: Sequence[Any], order: int) -> None:
        """An operator that moves nothing: memory that it makes, or another name for what it is given."""
        known = [i for i in map(self._index, inputs) if i is not None]
        for tensor in outputs:
            if _storage(tensor) in self._at or _storage(tensor) in self._weights:
                continue
            if operator in _ALLOCATIONS or not known:
                self.tensors[self._new(tensor, "activation", *self._measure(tensor))].born = order
            else:
                self._at[_storage(tensor)] = known[0]
                self._follow(tensor, known[0])

    def ran(self, order: int, inputs: Sequence[Any], outputs: Sequence[Any]) -> Step:
        """An operator with a cost."""
        self._look(order - 1)
        reads: dict[int, None] = {}
        for tensor in inputs:
            if _storage(tensor) in self._weights:
                continue
            index = self._index(tensor)
            if index is None:
                index = self._new(tensor, "constant", *self._measure(tensor))
            reads[index] = None
            self.tensors[index].last = order
            self.tensors[index].read.append(order)
        after = sorted({maker for index in reads for maker in self.tensors[index].makers})
        writes: dict[int, None] = {}
        for tensor in outputs:
            if _storage(tensor) in self._weights:
                continue
            index = self._index(tensor)
            if index is None:
                index = self._new(tensor, "activation", *self._measure(tensor))
            held = self.tensors[index]
            if held.kind == "activation":
                held.born = held.born or order
            held.last, held.makers = order, frozenset((order,))
            writes[index] = None
        return Step(tuple(reads), tuple(writes), tuple(after))

    def views(self, inputs: Sequence[Any], seen: Sequence[Tensor]) -> Iterator[tuple[int, int, Formula]]:
        """Of each input that is no weight: its tensor, its view of it, and the bytes of that."""
        for tensor, known in zip(inputs, seen, strict=False):
            index = self._index(tensor)
            if index is not None and not known.weight:
                view = self._views.setdefault(known.key, len(self._views))
                self._stretches.setdefault(index, {})[view] = stretch_of(tensor)
                yield index, view, known.bytes

    def held_by_others(self) -> dict[int, tuple[int, ...]]:
        """View -> other views of its tensor that hold all its elements; of two with the same elements the later one is held."""
        found = {}
        for views in self._stretches.values():
            for view, own in views.items() if len(views) > 1 else ():
                around = [
                    n for n, one in views.items() if n != view and one.holds(own) and (n < view or not own.holds(one))
                ]
                if around:
                    found[view] = tuple(around)
        return found

    def again(self, call: tuple[int, int, int], order: int, then: Sequence[Any], now: Sequence[Any]) -> None:
        """A folded sibling of a call (index, orders of its begin and end) got `now` where the first one got `then`.

        It reads those that stand where the first one's operators read.
        """
        number, begin, end = call
        self._look(order - 1)
        self.beside[number, tuple(sorted(_made(self.tensors[index]) for index in self._memory()))] = None
        for first, tensor in zip(then, now, strict=True):
            index, before = self._index(tensor), self._index(first)
            if index is None or before is None:
                continue
            held = self.tensors[index]
            if any(begin < at <= end for at in self.tensors[before].read):
                held.last = max(held.last, order)
                if self._is_carried(held, self.tensors[before], begin):
                    self.carried[number, before, _made(held)] = None

    def _is_carried(self, held: Held, first: Held, begin: int) -> bool:
        """Whether a sibling reads what a repetition before it made, in the place of `first`.

        Where both are one tensor, or stand for one, the sibling reads its own of what the first call read. A tensor that
        stands for none is of a repetition only where it was made after the first call began.
        """
        return _made(held) != _made(first) and (held.alias_of is not None or held.born > begin)

    def stands_for(self, tensor: Any, first: Any, order: int, free: Callable[[], bool]) -> None:
        """`tensor` is what a folded sibling returned in the place of `first`.

        The recorder keeps its memory; `free` says whether nobody else holds it.
        """
        index = self._index(first)
        if index is None:
            return
        held = self.tensors[index]
        alias = _made(held)
        self._at[_storage(tensor)] = len(self.tensors)
        self._living[_storage(tensor)] = len(self.tensors), free
        self.tensors.append(
            Held(len(self.tensors), "activation", held.info, held.size, order, order, order, held.makers, alias)
        )

    def before_order(self, storage: int, order: int) -> bool:
        """Whether memory was there before that point of the record."""
        index = self._at.get(storage)
        return index is not None and (
            self.tensors[index].kind in ("input", "constant") or self.tensors[index].born <= order
        )

    def fold(self, orders: dict[int, int], tensors: dict[int, int]) -> None:
        """Steps of a loop that are left out of the record: their operators and tensors are those of the step that stays."""
        for storage, index in self._at.items():
            self._at[storage] = tensors.get(index, index)
        for storage, (index, gone) in self._living.items():
            self._living[storage] = tensors.get(index, index), gone
        for held in self.tensors:
            held.makers = frozenset(orders.get(order, order) for order in held.makers)
            held.read = [orders.get(order, order) for order in held.read]

    def times(self, tensor: Any, times: Formula, made: Collection[int]) -> None:
        """A tensor `made` by a step of a loop that stands for as many, which are all kept."""
        index = self._index(tensor)
        if index is not None and index in made and (size := self.tensors[index].size) is not None:
            self.tensors[index].size = size * times

    def named(self, tensor: Any, first: Any) -> None:
        """`tensor` is another name for what `first` lies in."""
        index = self._index(first)
        if index is not None:
            self._at[_storage(tensor)] = index
            self._places.append(StorageWeakRef(tensor.untyped_storage()))

    # ---- storages

    def _index(self, tensor: Any) -> int | None:
        return self._at.get(_storage(tensor))

    def _new(self, tensor: Any, kind: Kind, info: TensorInfo, size: Formula | None) -> int:
        index = len(self.tensors)
        self.tensors.append(Held(index, kind, info, size))
        self._at[_storage(tensor)] = index
        self._follow(tensor, index)
        return index

    def _follow(self, tensor: Any, index: int) -> None:
        """Watch until when Python holds a tensor's memory."""
        place = StorageWeakRef(tensor.untyped_storage())
        self._places.append(place)
        # as `place.expired` asks it, without the calls in between: all of them are asked after every operator
        self._living[_storage(tensor)] = index, functools.partial(torch.UntypedStorage._expired, place.cdata)

    def _look(self, order: int) -> None:
        """What Python has let go since it was last looked was in memory until that point of the record."""
        for storage in [storage for storage, (_, gone) in self._living.items() if gone()]:
            index, _ = self._living.pop(storage)
            self.tensors[index].held = max(self.tensors[index].held, order)

    def _memory(self) -> set[int]:
        """The tensors that the pass made and Python holds now."""
        return {index for index, _ in self._living.values() if self.tensors[index].kind == "activation"}


def held_by(value: Any, depth: int = _DEEPEST, seen: set[int] | None = None) -> Iterator[Any]:
    """Every tensor in an object, its attributes and containers; each once."""
    seen = set() if seen is None else seen
    if id(value) in seen or depth < 0:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in list(value.values()):
            yield from held_by(item, depth - 1, seen)
    elif isinstance(value, list | tuple | set):
        for item in list(value):
            yield from held_by(item, depth - 1, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type | torch.nn.Module):
        yield from held_by(vars(value), depth - 1, seen)


def keys_and_values(value: Any, depth: int = _DEEPEST, seen: set[int] | None = None) -> Iterator[Any]:
    """The tensors of a cache that are the keys and values of attention, and no state of another kind."""
    seen = set() if seen is None else seen
    if id(value) in seen or depth < 0 or isinstance(value, torch.Tensor):
        return
    seen.add(id(value))
    if isinstance(value, list | tuple):
        for item in value:
            yield from keys_and_values(item, depth - 1, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, type | torch.nn.Module):
        for name, item in vars(value).items():
            if name in ("keys", "values") and isinstance(item, torch.Tensor):
                yield item
            else:
                yield from keys_and_values(item, depth - 1, seen)


def _made(held: Held) -> int:
    """The tensor that an operator of the record made, where `held` stands for one."""
    return held.index if held.alias_of is None else held.alias_of


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)
