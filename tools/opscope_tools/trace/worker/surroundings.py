"""What a layer's code may ask beside its own module and arguments: values of its file, and of the classes that it uses.

A counter in a class, a switch in a file: a model that changes one between two layers, or a layer that does for the next,
tells each something else, though their modules are alike. Where to look is found once per class, by the names in the code of
its methods and of what these call, and looked at anew each time; files of Python's, torch's and transformers' own keep none.
"""

from __future__ import annotations

import builtins
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

#: whose values are asked (a file's names, a class, what a function closes over), and under which names; None: all of a class
Asked = tuple[Any, tuple[str, ...] | None]


def surroundings(*kinds: Any) -> tuple[str, ...]:
    """What the values that the code of these classes may ask are now."""
    known: dict[int, Any] = {}
    return tuple(
        f"{name}: {_told(value, known)}"
        for kind in dict.fromkeys(kinds)
        for holder, names in _asked(kind)
        for name, value in _values(holder, names)
    )


def _values(holder: Any, names: tuple[str, ...] | None) -> Iterator[tuple[str, Any]]:
    if isinstance(holder, types.CellType):
        yield "", holder.cell_contents if holder != types.CellType() else None
    elif names is None:
        yield from ((name, value) for name, value in list(vars(holder).items()) if not name.startswith("__"))
    else:
        yield from ((name, holder.get(name)) for name in names)


def _told(value: Any, known: dict[int, Any]) -> str:
    """A plain value, what holds some, an object of an own class by what it is now; all else by which it is."""
    if is_plain(value) or isinstance(value, torch.Tensor):
        return described(value, known)
    kept = isinstance(value, _SMALL) or (_own(type(value)) and not _is_code(value) and not is_cache(value))
    return (
        described(value, known) if kept and _is_small(value, [_ENTRIES]) else f"{type(value).__qualname__} {id(value)}"
    )


def _is_code(value: Any) -> bool:
    return isinstance(value, type | types.FunctionType | types.ModuleType | torch.nn.Module)


def _is_small(value: Any, left: list[int]) -> bool:
    """Whether a container holds few entries, those of containers in it counted too."""
    if isinstance(value, _SMALL):
        left[0] -= len(value)
        inside = value.values() if isinstance(value, dict) else value
        return left[0] >= 0 and all(_is_small(one, left) for one in inside)
    return True


def _own(made: Any) -> bool:
    """Whether a class or function is of a file that may keep values."""
    return _own_file(str(getattr(made, "__module__", None)))


def _own_file(name: str) -> bool:
    return name.partition(".")[0] not in _KEEP_NONE


@functools.lru_cache(maxsize=4096)
def _asked(kind: Any) -> tuple[Asked, ...]:
    """Where the values are that a class's code names."""
    found: dict[int, tuple[Any, dict[str, None] | None]] = {}
    waiting: deque[Any] = deque([kind])
    seen: set[int] = set()
    while waiting and len(seen) < _FUNCTIONS:
        one = waiting.popleft()
        if id(one) in seen:
            continue
        seen.add(id(one))
        for holder, names in _of_class(one) if isinstance(one, type) else _of_function(one):
            known = found.setdefault(id(holder), (holder, None if names is None else {}))[1]
            if known is not None:
                known.update(dict.fromkeys(names or ()))
            for _, value in _values(holder, names):
                called = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
                if isinstance(called, type | types.FunctionType) and _own(called):
                    waiting.append(called)
    return tuple((holder, None if names is None else tuple(names)) for holder, names in found.values())


def _of_class(kind: Any) -> Iterator[Asked]:
    yield from ((base, None) for base in kind.__mro__ if _own(base))


def _of_function(function: Any) -> Iterator[Asked]:
    yield from ((cell, ("",)) for cell in function.__closure__ or ())
    names = {name for code in _codes(function.__code__) for name in code.co_names} - vars(builtins).keys()
    files = [function.__globals__]
    files += [vars(v) for n in names if isinstance(v := files[0].get(n), types.ModuleType) and _own_file(v.__name__)]
    yield from ((file, tuple(sorted(names))) for file in files)


def _codes(code: Any) -> Iterator[Any]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


__all__ = ["surroundings"]
