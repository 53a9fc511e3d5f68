"""Sees what a module's weights and operators want of its inputs, before they object to them and when they do."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode


class ChangedError(Exception):
    """A dimension or dtype was put right: try again."""


class Told(Protocol):
    """Who is told of what was seen; what it could put right, it says by `ChangedError`."""

    def meets(self, tensor: Any, axis: int, weight: Any, at: int, times: int = 1) -> None: ...

    def wants(self, tensor: Any, axis: int, size: int) -> None: ...

    def has_rank(self, tensor: Any, rank: int) -> None: ...

    def is_index(self, tensor: Any) -> None: ...

    def apart(self, tensors: list[Any]) -> None: ...


class Watch(TorchFunctionMode):  # type: ignore[misc]  # torch is untyped here
    """Looks at what weights meet, before the operator itself objects; and at what it objected to."""

    def __init__(self, solver: Told) -> None:
        super().__init__()
        self._solver = solver

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        check = getattr(self, f"_{name}", None)
        if check is not None and len(args) > 1:
            check(*args, **(kwargs or {}))
        try:
            return func(*args, **(kwargs or {}))
        except ChangedError:
            raise
        except Exception:
            if name not in ("matmul", "mm", "bmm", "baddbmm", "__matmul__", "einsum", "linear"):
                given = args[0] if name in ("cat", "stack", "concat") and args else args
                self._solver.apart([t for t in given if isinstance(t, torch.Tensor)])
            raise

    def _linear(self, x: Any, weight: Any, *_: Any, **__: Any) -> None:
        self._solver.meets(x, -1, weight, 1)

    def _matmul(self, a: Any, b: Any, **_: Any) -> None:
        if isinstance(b, torch.nn.Parameter) and b.dim() == 2:
            self._solver.meets(a, -1, b, 0)
        elif isinstance(a, torch.nn.Parameter) and a.dim() == 2:
            self._solver.meets(b, -2, a, 1)

    ___matmul__ = _mm = _matmul

    def _embedding(self, x: Any, weight: Any, *_: Any, **__: Any) -> None:
        del weight
        self._solver.is_index(x)

    def _one_hot(self, x: Any, *_: Any, **__: Any) -> None:
        self._solver.is_index(x)

    def ___getitem__(self, x: Any, key: Any) -> None:
        del x
        for one in key if isinstance(key, tuple) else (key,):
            self._solver.is_index(one)

    def _convolution(
        self,
        x: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        **_: Any,
    ) -> None:
        del bias, stride, padding, dilation
        self._solver.has_rank(x, weight.dim())
        self._solver.meets(x, 1, weight, 1, groups)

    _conv1d = _conv2d = _conv3d = _convolution

    def _transposed(self, x: Any, weight: Any, *_: Any, **__: Any) -> None:
        self._solver.has_rank(x, weight.dim())
        self._solver.meets(x, 1, weight, 0)

    _conv_transpose1d = _conv_transpose2d = _conv_transpose3d = _transposed

    def _layer_norm(self, x: Any, shape: Any, weight: Any = None, *_: Any, **__: Any) -> None:
        if weight is not None:
            for axis in range(-1, -1 - len(shape), -1):
                self._solver.meets(x, axis, weight, axis)
        elif len(shape) == 1:
            self._solver.wants(x, -1, int(shape[0]))

    _rms_norm = _layer_norm

    def _group_norm(self, x: Any, groups: Any, weight: Any = None, *_: Any, **__: Any) -> None:
        del groups
        if weight is not None:
            self._solver.meets(x, 1, weight, 0)

    def _batch_norm(self, x: Any, mean: Any, *_: Any, **__: Any) -> None:
        if mean is not None and x.dim() > 1:
            self._solver.meets(x, 1, mean, 0)


__all__ = ["ChangedError", "Told", "Watch"]
