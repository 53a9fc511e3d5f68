"""What decides how an object is built, as a key: equal arguments make equal objects, which are built once."""

from __future__ import annotations

from typing import Any

from opscope_tools.index.objects.values import (
    Args,
    Choice,
    ClassValue,
    FunctionValue,
    Instance,
    Kwargs,
    Label,
    ModuleValue,
    Native,
    Turn,
    UndecidedError,
    Unknown,
)


def same(first: Any, second: Any) -> bool:
    """Whether two values are surely equal."""
    if first is second:
        return True
    try:
        return type(first) is type(second) and bool(first == second)
    except UndecidedError:
        return False


def memo_key(cls: ClassValue, args: Args, kwargs: Kwargs, live: bool | None, changes: int, *, exact: bool) -> Any:
    """What decides how an instance is built; None where that cannot be compared."""
    keys = _Keys(changes, exact)
    try:
        values = tuple(keys.of(value) for value in args)
        named = tuple((name, keys.of(value)) for name, value in sorted(kwargs.items()))
    except UndecidedError:
        return None
    return (id(cls), live, values, named)


class _Keys:
    """What can be compared of values; `changes` counts the changes of records so far."""

    def __init__(self, changes: int, exact: bool) -> None:
        self._changes, self._exact = changes, exact

    def of(self, value: Any, depth: int = 0) -> Any:
        if type(value) is Turn:
            return ("turn", int(value) if self._exact else id(value.loop))
        if isinstance(value, bool | int | float | str) or value is None:
            return (type(value).__name__ if not isinstance(value, Label) else "str", value)
        if isinstance(value, Unknown):
            return ("unknown", value.name, value.text)
        if isinstance(value, Instance) and not value.module and value.data is None:
            return self._record(value, depth)
        if isinstance(value, Instance | ClassValue | FunctionValue | ModuleValue | Native):
            return ("object", id(value))
        if isinstance(value, list | tuple) and len(value) <= 128 and depth < 4:
            return (type(value).__name__, *(self.of(item, depth + 1) for item in value))
        if isinstance(value, dict) and len(value) <= 128 and depth < 4:
            return ("dict", *((k, self.of(v, depth + 1)) for k, v in value.items()))
        if isinstance(value, Choice) and depth:
            return ("choice", id(value))
        raise UndecidedError

    def _record(self, this: Instance, depth: int) -> Any:
        """A configuration by what it says: two that say the same build the same."""
        if this.key is not None and this.key[0] == self._changes:
            return this.key[1]
        if depth > 4:
            return ("object", id(this))
        found = ("record", id(this.cls), *((name, self._soft(value, depth + 1)) for name, value in this.attrs.items()))
        known = ("hash", hash(found), len(found))
        this.key = (self._changes, known)
        return known

    def _soft(self, value: Any, depth: int) -> Any:
        try:
            return self.of(value, depth)
        except UndecidedError:
            return ("object", id(value))
