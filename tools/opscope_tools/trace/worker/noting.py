"""A layer's index that notes every use that a constructor makes of it, and lists that are read by one.

`Index` is no subclass of `int`, so that C code has to ask it for its number (`range`, plain lists) and is heard too.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

#: values that two uses can be compared by
PLAIN = (int, float, str, bool, bytes, type(None), torch.dtype)


@dataclass(frozen=True)
class Use:
    """One operation on an index, and what it gave."""

    function: Callable[..., Any]
    others: tuple[Any, ...]
    result: Any

    def same_at(self, value: int) -> bool:
        """Whether the operation gives the same for another index; only plain values are ever compared."""
        if not isinstance(self.result, PLAIN) or not all(isinstance(o, (*PLAIN, list, tuple)) for o in self.others):
            return False
        try:
            found = self.function(value, *self.others)
        except Exception:  # an index that the list does not have
            return False
        return type(found) is type(self.result) and bool(found == self.result)


class Index:
    """Stands in for a layer's index, or for a number computed from it: behaves as `value`, and notes each use.

    `kin` are the index and all that was computed from it, `uses` what anything else was told of them.
    """

    __slots__ = ("kin", "rule", "uses", "value")

    def __init__(self, value: int, rule: Callable[[int], int] = int, of: Index | None = None) -> None:
        self.value = value
        #: this number, from the index
        self.rule = rule
        self.uses: list[Use] = of.uses if of is not None else []
        self.kin: list[Index] = of.kin if of is not None else []
        self.kin.append(self)

    @property  # type: ignore[misc]  # a property where object has a plain attribute
    def __class__(self) -> Any:  # what asks `isinstance(index, int)` hears yes
        return int

    def use(self, function: Callable[..., Any], *others: Any) -> Any:
        """What `function` says of the number, noted."""
        others = tuple(o.value if isinstance(o, Index) else o for o in others)
        result = function(self.value, *others)
        self.note(function, others, result)
        return result

    def note(self, function: Callable[..., Any], others: tuple[Any, ...], result: Any) -> None:
        """Remember that `function` was asked of the number, and what it said."""
        self.uses.append(Use(_after(self.rule, function), others, result))

    def computed(self, function: Callable[..., Any], *others: Any) -> Any:
        """Another number, whose uses will be noted instead; what is no integer is a use itself."""
        if all(type(o) is int for o in others) and type(found := function(self.value, *others)) is int:
            return type(self)(found, _after(self.rule, function, *others), self)
        return self.use(function, *others)

    def settled(self) -> int:
        """The number itself, for good."""
        return int(self.use(operator.pos))

    def __getattr__(self, name: str) -> Any:
        return self.use(lambda value, name: getattr(value, name), name)

    def __copy__(self) -> Index:
        return self

    def __deepcopy__(self, _: Any) -> Index:
        return self


def _listen() -> None:
    """Give `Index` every operation of an integer."""

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *others: self.use(function, *others)

    def computed(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, *others: self.computed(function, *others)

    def swapped(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda value, other: function(other, value)

    for name in ("lt", "le", "eq", "ne", "gt", "ge", "index"):
        setattr(Index, f"__{name}__", noted(getattr(operator, name)))
    for name in ("neg", "pos", "invert", "abs"):
        setattr(Index, f"__{name}__", computed(getattr(operator, name)))
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift", "and_", "or_", "xor", "pow"):
        setattr(Index, f"__{name.rstrip('_')}__", computed(getattr(operator, name)))
        setattr(Index, f"__r{name.rstrip('_')}__", computed(swapped(getattr(operator, name))))
    for function in (hash, bool, int, float, str, repr, format, round, divmod, math.trunc, math.ceil, math.floor):
        setattr(Index, f"__{function.__name__}__", noted(function))
    Index.__rdivmod__ = noted(swapped(divmod))  # type: ignore[attr-defined]  # set like those above, by a name that setattr would only hide


_listen()


def _after(rule: Callable[[int], int], function: Callable[..., Any], *known: Any) -> Callable[..., Any]:
    """What `function` says of the number that `rule` makes of an index."""
    return lambda value, *others: function(rule(value), *known, *others)


def _item(value: int, values: Any) -> Any:
    return values[value]


class NotedList(list[Any]):
    """A list of the config: reading it by a layer's index gives the element and notes it."""

    def __getitem__(self, key: Any) -> Any:
        return key.use(_item, tuple(self)) if isinstance(key, Index) else super().__getitem__(key)


class NotedTuple(tuple[Any, ...]):
    """A tuple of the config, likewise."""

    def __getitem__(self, key: Any) -> Any:
        return key.use(_item, tuple(self)) if isinstance(key, Index) else super().__getitem__(key)


__all__ = ["PLAIN", "Index", "NotedList", "NotedTuple", "Use"]
