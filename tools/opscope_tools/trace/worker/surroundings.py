"""What a layer's code may ask beside its own module and arguments: values of its file, and of the classes that it uses.

A counter in a class, a switch in a file: a model that changes one between two layers, or a layer that does for the next,
tells each something else, though their modules are alike. Values are found once per class by the names in the code of its
methods and of what these call; files of Python's, torch's and transformers' own keep none.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from opscope_tools.trace.worker.alike import described, is_cache, is_plain

_KEEP_NONE = frozenset({*sys.stdlib_module_names, "torch", "transformers", "numpy", "opscope_tools"})
_SMALL = (dict, list, tuple, set, frozenset, deque)
#: functions whose code is gone through, entries up to which a container is told by what it holds
_FUNCTIONS, _ENTRIES = 500, 1000

#: whose it is (a file's names, a class, what a function closes over), and its name there
Slot = tuple[Any, str]


def surroundings(*kinds: Any) -> tuple[str, ...]:
    """What the values that the code of these classes may ask are now."""
    return tuple(
        _told(value)
        for kind in dict.fromkeys(kinds)
        for holder, name in _asked(kind)
        if _may_change(value := _value(holder, name))
    )


def _told(value: Any) -> str:
    return str(len(value)) if isinstance(value, _SMALL) and len(value) > _ENTRIES else described(value)


def _value(holder: Any, name: str) -> Any:
    if isinstance(holder, types.CellType):
        return holder.cell_contents if holder != types.CellType() else None
    return (holder if isinstance(holder, dict) else vars(holder)).get(name)


def _may_change(value: Any) -> bool:
    """Whether it is told by what it is now: a plain value, what holds some, an object of an own class."""
    if is_plain(value) or isinstance(value, _SMALL):
        return True
    left_out = isinstance(value, type | types.FunctionType | types.ModuleType | torch.nn.Module) or is_cache(value)
    return _own(type(value)) and not left_out


def _own(made: Any) -> bool:
    """Whether a class or function is of a file that may keep values."""
    return _own_file(str(getattr(made, "__module__", None)))


def _own_file(name: str) -> bool:
    return name.partition(".")[0] not in _KEEP_NONE


@functools.lru_cache(maxsize=4096)
def _asked(kind: Any) -> tuple[Slot, ...]:
    """Where the values are that a class's code names."""
    found: dict[tuple[int, str], Slot] = {}
    waiting: deque[Any] = deque([kind])
    seen: set[int] = set()
    while waiting and len(seen) < _FUNCTIONS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for holder, name in _of_class(one) if isinstance(one, type) else _of_function(one):
            value = _value(holder, name)
            if isinstance(value, type | types.FunctionType):
                waiting.extend([value] if _own(value) else ())
            elif isinstance(value, staticmethod | classmethod | property):
                function = value.fget if isinstance(value, property) else value.__func__
                waiting.extend([function] if isinstance(function, types.FunctionType) else ())
            elif not name.startswith("__"):
                found[id(holder), name] = (holder, name)
    return tuple(found.values())


def _of_class(kind: Any) -> Iterator[Slot]:
    for base in kind.__mro__:
        if _own(base):
            yield from ((base, name) for name in vars(base))


def _of_function(function: Any) -> Iterator[Slot]:
    yield from (
        (cell, name) for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    files = [function.__globals__]
    files += [vars(v) for n in names if isinstance(v := files[0].get(n), types.ModuleType) and _own_file(v.__name__)]
    yield from ((file, name) for file in files for name in sorted(names & file.keys()))


def _codes(code: Any) -> Iterator[Any]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


__all__ = ["surroundings"]
