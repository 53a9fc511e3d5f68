"""Functions of Python itself on interpreted values."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from opscope_tools.index.objects.interpreter import Interpreter
from opscope_tools.index.objects.known.table import native
from opscope_tools.index.objects.values import (
    MISSING,
    Args,
    Choice,
    ClassValue,
    FunctionValue,
    Instance,
    Kwargs,
    Method,
    Native,
    Partial,
    RaisedError,
    Uncertain,
    UndecidedError,
    Unknown,
    known,
    plain,
)


@native("builtins.len")
def _len(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    known(args[0])
    if isinstance(args[0], Instance):
        return len(interpreter.operations.iterate(args[0]))
    return len(args[0])


@native("builtins.isinstance")
def _isinstance(_: Interpreter, args: Args, __: Kwargs) -> bool:
    value, kinds = args
    if isinstance(value, Unknown | Choice):
        raise UndecidedError
    found = [_is(value, kind) for kind in (kinds if isinstance(kinds, tuple) else (kinds,))]
    if None in found and True not in found:
        raise UndecidedError
    return True in found


def _is(value: Any, kind: Any) -> bool | None:
    """Whether a value is of a kind; None where that is open."""
    if isinstance(kind, Native) and kind.name.startswith("builtins."):
        kind = getattr(builtins, kind.name[9:])
    if isinstance(kind, ClassValue):
        return isinstance(value, Instance) and kind in value.cls.mro
    if isinstance(kind, type):
        if isinstance(value, Instance):
            return (
                isinstance(value.data, kind) and value.cls.is_a(kind.__name__)
                if kind in {dict, list}
                else (kind is object or (isinstance(value.data, str) and kind is str))
            )
        if isinstance(value, ClassValue):
            return kind is type
        return isinstance(value, kind)
    name = getattr(kind, "name", "")
    if isinstance(value, Instance):
        return value.cls.is_a(name) if name and not value.cls.outside() else None
    if name.rpartition(".")[2] in {"Sequence", "Iterable", "Collection"}:
        return isinstance(value, list | tuple | str)
    if name.rpartition(".")[2] in {"Mapping", "MutableMapping"}:
        return isinstance(value, dict)
    if name.rpartition(".")[2] == "Callable":
        return isinstance(value, FunctionValue | Method | ClassValue | Native | Partial)
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return False if name.startswith(("torch.", "transformers.", "numpy.")) else None
    return None


@native("builtins.issubclass")
def _issubclass(_i: Interpreter, args: Args, _: Kwargs) -> bool:
    value, kinds = args
    known(value)
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        known(kind)
        if isinstance(value, ClassValue) and isinstance(kind, ClassValue) and kind in value.mro:
            return True
    return False


@native("builtins.getattr", full=True)
def _getattr(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    name = plain(args[1])
    if not isinstance(name, str):
        raise UndecidedError
    try:
        value = interpreter.attributes.get(plain(args[0]), name)
        if plain(value) is MISSING:
            raise RaisedError("AttributeError")
        return value
    except RaisedError:
        if len(args) > 2:
            return args[2]
        raise


@native("builtins.setattr", full=True)
def _setattr(interpreter: Interpreter, args: Args, _: Kwargs) -> None:
    name = plain(args[1])
    interpreter.attributes.put(plain(args[0]), name if isinstance(name, str) else "*", args[2])


@native("builtins.hasattr")
def _hasattr(interpreter: Interpreter, args: Args, _: Kwargs) -> bool:
    return interpreter.attributes.has(args[0], args[1])


@native("builtins.delattr")
def _delattr(interpreter: Interpreter, args: Args, _: Kwargs) -> None:
    interpreter.attributes.remove(args[0], args[1])


@native("builtins.type")
def _type(_: Interpreter, args: Args, __: Kwargs) -> Any:
    known(*args)
    if len(args) != 1:
        raise UndecidedError
    return args[0].cls if isinstance(args[0], Instance) else type(args[0])


@native("builtins.callable")
def _callable(_i: Interpreter, args: Args, _: Kwargs) -> bool:
    known(args[0])
    return isinstance(args[0], FunctionValue | Method | ClassValue | Native | Partial | type) or (
        isinstance(args[0], Instance) and args[0].module
    )


@native("builtins.print", "builtins.id", "builtins.repr", "builtins.hash")
def _nothing(*_: Any) -> Any:
    raise UndecidedError


def _on_items(name: str, made: Callable[..., Any]) -> None:
    """A function of Python's own whose arguments are iterated."""

    def run(interpreter: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        lists = [
            interpreter.operations.iterate(a) if isinstance(a, Instance | list | tuple | dict | range) else a
            for a in args
        ]
        key = kwargs.pop("key", None)
        if key is not None:
            kwargs["key"] = lambda value: plain(interpreter.calls.call(key, (value,), {}))
        for value in args:
            known(value)
        return made(*lists, **kwargs)

    native(f"builtins.{name}")(run)


_LISTS: dict[str, Callable[..., Any]] = {
    "enumerate": lambda *a, **k: list(enumerate(*a, **k)), "zip": lambda *a, **_: list(zip(*a, strict=False)),
    "sum": sum, "sorted": sorted, "reversed": lambda a: list(reversed(a)), "list": list, "tuple": tuple,
    "set": set, "frozenset": frozenset, "min": min, "max": max, "iter": list,
}  # fmt: skip
for _name, _made in _LISTS.items():
    _on_items(_name, _made)


def _on_numbers(name: str) -> None:
    """A function of Python's own that needs to know all its arguments."""
    made = getattr(builtins, name)

    def run(_: Interpreter, args: Args, kwargs: Kwargs) -> Any:
        known(*args, *kwargs.values())
        return made(*args, **kwargs)

    native(f"builtins.{name}")(run)


for _name in ("abs", "round", "divmod", "ord", "chr"):
    _on_numbers(_name)


def _decided_by(name: str, stop: bool) -> None:
    """`any` and `all`: one item of that truth decides."""

    def run(interpreter: Interpreter, args: Args, _: Kwargs) -> bool:
        found = [interpreter.operations.truth(plain(item)) for item in interpreter.operations.iterate(args[0])]
        if stop in found and not isinstance(args[0], Uncertain):
            return stop
        if None in found or isinstance(args[0], Uncertain):
            raise UndecidedError
        return not stop

    native(f"builtins.{name}")(run)


_decided_by("any", True)
_decided_by("all", False)


@native("builtins.map", full=True)
def _map(interpreter: Interpreter, args: Args, _: Kwargs) -> list[Any]:
    function, *lists = args
    values = [interpreter.operations.iterate(plain(a)) for a in lists]
    return [interpreter.calls.call(function, items, {}) for items in zip(*values, strict=False)]


@native("builtins.filter")
def _filter(interpreter: Interpreter, args: Args, _: Kwargs) -> list[Any]:
    found = []
    for item in interpreter.operations.iterate(args[1]):
        kept = interpreter.operations.truth(
            item if args[0] is None else plain(interpreter.calls.call(args[0], (item,), {}))
        )
        if kept is None:
            raise UndecidedError
        if kept:
            found.append(item)
    return found


@native("builtins.next")
def _next(_i: Interpreter, args: Args, _: Kwargs) -> Any:
    if isinstance(args[0], list) and args[0] and not isinstance(args[0], Uncertain):
        return args[0][0]
    if len(args) > 1 and isinstance(args[0], list):
        return args[1]
    raise UndecidedError


@native("builtins.dict", full=True)
def _dict(_: Interpreter, args: Args, kwargs: Kwargs) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for value in map(plain, args):
        held = value.data if isinstance(value, Instance) else value
        if isinstance(held, Unknown | Choice):
            raise UndecidedError
        found.update(held)
    if "**" in kwargs:
        raise UndecidedError
    found.update(kwargs)
    return found


@native("builtins.vars")
def _vars(_: Interpreter, args: Args, __: Kwargs) -> Any:
    return args[0].attrs if isinstance(args[0], Instance) else Unknown("vars()")
