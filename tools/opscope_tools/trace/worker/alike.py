"""What makes two modules, and two calls of them, alike: everything that can change what a forward costs, and no more."""

from __future__ import annotations

import functools
import logging
import operator
import sys
import types
from collections import deque
from typing import Any

import numpy as np
import torch
import transformers

from opscope_tools.trace.worker.noting import Index

#: what modules call their place among their siblings
IDENTITY = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "idx"})
#: the attribute in which a copy names the module that it is a copy of
FIRST = "_first_alike"
#: those in which it keeps its own index, and which of the first's numbers are an index
INDEX, PLACES = "_own_index", "_places_of_the_index"

#: what every module has, and what is noted of those that stand for others
_OWN = frozenset({*vars(torch.nn.Module()), FIRST, INDEX, PLACES, "_is_hf_initialized"})
_EMPTY = types.CellType()
#: what is told by what it holds, whatever was met before
_CONTAINERS = (dict, set, frozenset, list, tuple, deque, functools.partial, types.MethodType, types.FunctionType)
#: characters, or elements, up to which what is no number itself is told by what it holds; numbers of a tensor up to which it is
_MANY, _FEW = 100_000, 64
#: in place of an identity: the numbers of objects by what they hold
OBJECTS = 0

#: module -> signature, and object -> what it holds, while they live
Known = dict[int, Any]


def alike_siblings(model: Any) -> dict[int, Any]:
    """For each child of a ModuleList of several: a key that equal siblings share."""
    found: dict[int, Any] = {}
    known: Known = {OBJECTS: {}}
    numbers: dict[Any, int] = {}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) > 1:
            for child in module.children():  # a list may also hold None
                key = signature(child, known)
                found[id(child)] = (path, numbers.setdefault(key, len(numbers)))
    return found


def first_of(module: Any) -> Any:
    """The module that `module` is a copy of; itself where it is none."""
    return vars(module).get(FIRST, module)


def signature(module: Any, known: Known | None = None) -> Any:
    """Everything of a module that can change what its forward costs, but for its place in the stack.

    `known` keeps the signatures of modules that have copies.
    """
    known = {} if known is None else known
    first = first_of(module)
    if first is not module and _unchanged(module, first):
        if id(first) not in known:
            known[id(first)] = signature(first, known)
        return known[id(first)]
    held = tuple(sorted((k, described(v, known)) for k, v in settings(module).items()))
    shapes = tuple((n, str(tuple(p.shape)), str(p.dtype)) for n, p in module._parameters.items() if p is not None)
    buffers = tuple(
        (n, str(tuple(b.shape)), str(b.dtype), known_values(b)) for n, b in module._buffers.items() if b is not None
    )
    missing = tuple(n for n, p in module._parameters.items() if p is None)
    children = tuple((name, signature(child, known)) for name, child in first.named_children())
    kind = _class_name(type(module))
    hooked = (
        id(module) if module._forward_hooks or module._forward_pre_hooks else 0
    )  # what a hook does, it does for one
    return (kind, held, shapes, buffers, missing, children, hooked)


def _class_name(kind: type) -> str:
    """Its name; of a class that its name does not lead to, as a function makes them, the very one."""
    found: Any = sys.modules.get(kind.__module__)
    for name in kind.__qualname__.split("."):
        found = getattr(found, name, None)
    name = f"{kind.__module__}.{kind.__qualname__}"
    return name if found is kind else f"{name} {id(kind)}"


def settings(module: Any) -> dict[str, Any]:
    """What a module holds beside what every module has, but for the names of its place and what stands for another's."""
    skipped = _OWN if first_of(module) is module else _OWN | {"forward"}
    return {k: v for k, v in vars(module).items() if k not in skipped and not (k in IDENTITY and is_index(v))}


def is_index(value: Any) -> bool:
    """Whether it is a plain number, or stands for one and hears what is asked of it."""
    return type(value) is int or isinstance(value, Index)


def _unchanged(copy: Any, first: Any) -> bool:
    """Whether a copy's own attributes and weights are still the very ones of the first."""
    a, b = settings(copy), settings(first)
    same = a.keys() == b.keys() and all(map(_identical, a.values(), map(b.get, a)))
    return same and all(
        x.keys() == y.keys() and all(x[k] is y[k] for k in x)
        for x, y in ((copy._parameters, first._parameters), (copy._buffers, first._buffers))
    )


def _identical(a: Any, b: Any) -> bool:
    if type(a) is type(b) is list:
        return len(a) == len(b) and all(map(operator.is_, a, b))
    if type(a) is type(b) is dict:
        return a.keys() == b.keys() and all(a[key] is b[key] for key in a)
    return bool(a == b) if type(a) is type(b) is set else a is b


def described(value: Any, known: Known | None = None, depth: int = 8) -> str:
    """What can change a cost, as text: of tensors the shape, of plain values the value, of all else what it holds.

    Where `known` numbers objects, those that hold the same share a number, by the order in which they are met: a deeper model's
    layers hold another configuration, but each of them the same one.
    """
    known = {} if known is None else known
    if isinstance(value, torch.nn.Module):
        return repr(signature(value, known))
    if isinstance(value, torch.Tensor) or is_plain(value):
        return str(argument_signature(value))
    if isinstance(value, type):
        return _class_name(value)
    if depth == 0 or isinstance(value, types.ModuleType | logging.Logger):
        return getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or type(value).__qualname__
    kind = type(value).__qualname__
    if id(value) not in known:
        known[id(value)] = (value, kind)  # what holds itself
        told = f"{kind}{_held(value, known, depth - 1)}"
        if OBJECTS in known and not isinstance(value, _CONTAINERS):
            told = f"{kind} {known[OBJECTS].setdefault(told, len(known[OBJECTS]))}"
        known[id(value)] = (value, told)
    return str(known[id(value)][1])


def _held(value: Any, known: Known, depth: int) -> list[str]:
    if isinstance(value, dict):
        return [f"{k}: {described(v, known, depth)}" for k, v in value.items()]
    if isinstance(value, set | frozenset):
        return sorted(described(v, known, depth) for v in value)
    if isinstance(value, list | tuple | deque):
        return [described(v, known, depth) for v in value]
    if isinstance(value, functools.partial):
        return _held((value.func, value.args, value.keywords), known, depth)
    if isinstance(value, types.MethodType):
        return [value.__qualname__, described(value.__self__, known, depth)]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY]
        given = (*cells, *(value.__defaults__ or ()), value.__kwdefaults__)
        return [value.__qualname__, str(hash(value.__code__)), *_held(given, known, depth)]
    if isinstance(value, types.BuiltinFunctionType):
        return [f"{value.__module__}.{value.__qualname__}"]
    if hasattr(value, "__dict__"):
        return [f"{k}: {described(v, known, depth)}" for k, v in vars(value).items()]
    slots = [n for kind in type(value).__mro__ for n in getattr(kind, "__slots__", ()) if hasattr(value, n)]
    return [f"{n}: {described(getattr(value, n), known, depth)}" for n in slots] or [_text(value)]


def _text(value: Any) -> str:
    """As it prints itself, where that says no address; numbers in whole."""
    if isinstance(value, np.ndarray):
        held = hash(value.tobytes()) if value.size < _MANY else ""
        return f"{value.shape} {value.dtype} {held}"
    text = repr(value)
    return text if len(text) < _MANY and " at 0x" not in text else ""


def known_values(tensor: Any) -> Any:
    """What a small tensor holds, where a trace knows that: a model may decide by it."""
    held = getattr(tensor, "constant", None)
    return None if held is None or held.numel() > _FEW else str(held.tolist())


def is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bool | type(None) | torch.SymInt | torch.SymFloat | torch.dtype) or (
        isinstance(value, tuple | list) and all(is_plain(item) for item in value)
    )


def _plain(value: Any) -> str:
    return str(value)


def _numbers(sizes: Any) -> tuple[int | str, ...]:
    return tuple([_number(size) for size in sizes])


def _number(size: Any) -> int | str:
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.hint) if size.node.has_hint() else str(size)


def argument_signature(value: Any) -> Any:
    """Arguments as far as they can change cost: shapes, plain values, and what other objects hold; a cache, which every layer
    fills, by identity.

    Sizes by their numbers at hand, not by their symbols: a decision in the middle of a pass may settle a symbol.
    """
    if isinstance(value, torch.Tensor):
        return ("tensor", _numbers(value.shape), str(value.dtype), _numbers(value.stride()), known_values(value))
    if isinstance(value, dict):
        return tuple((k, argument_signature(v)) for k, v in sorted(value.items(), key=lambda item: str(item[0])))
    if isinstance(value, list | tuple):
        return tuple(argument_signature(item) for item in value)
    if isinstance(value, torch.SymInt):
        return _number(value)
    if is_plain(value):
        return _plain(value)
    return id(value) if is_cache(value) else described(value)


def is_cache(value: Any) -> bool:
    """Whether it is one of transformers' caches, which hold something of its own for each layer. Of others nobody knows what they do."""
    kind = type(value)
    named = kind.__name__.endswith("Cache") and kind.__module__.startswith("transformers.")
    return (named and not isinstance(value, torch.nn.Module)) or isinstance(value, transformers.Cache)
