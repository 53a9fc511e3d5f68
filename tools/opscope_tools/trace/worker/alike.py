"""What makes two modules, and two calls of them, alike: everything that can change what a forward costs, and no more."""

from __future__ import annotations

import operator
from typing import Any

import torch

#: what modules call their place among their siblings
IDENTITY = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "idx"})
#: the attribute in which a copy names the module that it is a copy of
FIRST = "_first_alike"

#: module -> signature, while the modules live
Known = dict[int, Any]


def alike_siblings(model: Any) -> dict[int, Any]:
    """For each child of a ModuleList of several: a key that equal siblings share."""
    found: dict[int, Any] = {}
    known: Known = {}
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
    settings = tuple(sorted((k, _plain(v)) for k, v in _settings(module).items()))
    shapes = tuple((n, str(tuple(p.shape)), str(p.dtype)) for n, p in module._parameters.items() if p is not None)
    buffers = tuple((n, str(tuple(b.shape)), str(b.dtype)) for n, b in module._buffers.items() if b is not None)
    missing = tuple(n for n, p in module._parameters.items() if p is None)
    children = tuple((name, signature(child, known)) for name, child in first.named_children())
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    return (kind, settings, shapes, buffers, missing, children)


def _settings(module: Any) -> dict[str, Any]:
    return {
        k: v for k, v in vars(module).items() if not k.startswith("_") and k not in IDENTITY and _is_plain(v)
    }  # fmt: skip


def _unchanged(copy: Any, first: Any) -> bool:
    """Whether a copy's own attributes and weights are still the very ones of the first."""
    a, b = _settings(copy), _settings(first)
    same = a.keys() == b.keys() and all(map(_identical, a.values(), map(b.get, a)))
    return same and all(
        x.keys() == y.keys() and all(x[k] is y[k] for k in x)
        for x, y in ((copy._parameters, first._parameters), (copy._buffers, first._buffers))
    )


def _identical(a: Any, b: Any) -> bool:
    if type(a) is type(b) is list:
        return len(a) == len(b) and all(map(operator.is_, a, b))
    return a is b


def _is_plain(value: Any) -> bool:
    return isinstance(value, int | float | str | bool | type(None) | torch.SymInt | torch.SymFloat | torch.dtype) or (
        isinstance(value, tuple | list) and all(_is_plain(item) for item in value)
    )


def _plain(value: Any) -> str:
    return str(value)


def _numbers(sizes: Any) -> tuple[int | str, ...]:
    return tuple(_number(size) for size in sizes)


def _number(size: Any) -> int | str:
    if not isinstance(size, torch.SymInt):
        return int(size)
    return int(size.node.hint) if size.node.has_hint() else str(size)


def argument_signature(value: Any) -> Any:
    """Arguments as far as they can change cost: shapes and plain values; other objects by identity.

    Sizes by their numbers at hand, not by their symbols: a decision in the middle of a pass may settle a symbol.
    """
    if isinstance(value, torch.Tensor):
        return ("tensor", _numbers(value.shape), str(value.dtype), _numbers(value.stride()))
    if isinstance(value, dict):
        return tuple((k, argument_signature(v)) for k, v in sorted(value.items(), key=lambda item: str(item[0])))
    if isinstance(value, list | tuple):
        return tuple(argument_signature(item) for item in value)
    if isinstance(value, torch.SymInt):
        return _number(value)
    return _plain(value) if _is_plain(value) else id(value)
