"""What makes two modules, and two calls of them, alike: everything that can change what a forward costs, and no more."""

from __future__ import annotations

from typing import Any

import torch

_IDENTITY = frozenset({"layer_idx", "layer_id", "layer_index", "layer_number", "block_idx", "idx"})


def alike_siblings(model: Any) -> dict[int, Any]:
    """For each child of a ModuleList of several: a key that equal siblings share."""
    found: dict[int, Any] = {}
    for path, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) > 1:
            for child in module:
                found[id(child)] = (path, signature(child))
    return found


def signature(module: Any) -> Any:
    """Everything of a module that can change what its forward costs, but for its place in the stack."""
    settings = tuple(
        sorted(
            (k, _plain(v))
            for k, v in vars(module).items()
            if not k.startswith("_") and k not in _IDENTITY and _is_plain(v)
        )
    )
    shapes = tuple((n, str(tuple(p.shape)), str(p.dtype)) for n, p in module._parameters.items() if p is not None)
    buffers = tuple((n, str(tuple(b.shape)), str(b.dtype)) for n, b in module._buffers.items() if b is not None)
    missing = tuple(n for n, p in module._parameters.items() if p is None)
    children = tuple((name, signature(child)) for name, child in module.named_children())
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    return (kind, settings, shapes, buffers, missing, children)


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
