"""An operator call that ran on real tensors: its name, its arguments by the names of its schema, its tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Ran:
    """`inputs` leave out the buffers that `out=` arguments name; `name` ends in an underscore where in place."""

    name: str
    arguments: dict[str, Any]
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def made(self) -> int:
        """Elements of the first output."""
        return int(self.outputs[0].numel()) if self.outputs else 0

    @property
    def taken(self) -> int:
        """Elements of the first input."""
        return int(self.inputs[0].numel())

    @property
    def is_complex(self) -> bool:
        return any(t.is_complex() for t in self.inputs)

    @property
    def in_place(self) -> bool:
        return self.name.endswith("_")

    def given(self, *names: str) -> int:
        """How many of these optional arguments are there."""
        return sum(self.arguments.get(name) is not None for name in names)

    def is_scaled(self, name: str) -> bool:
        """Whether a factor that is 1 by default is another."""
        return bool(self.arguments.get(name, 1) != 1)


Count = Callable[[Ran], int | None]


def ran(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Ran:
    """The call with its defaults filled in, in the schema's order."""
    schema = func._schema.arguments
    arguments = {a.name: a.default_value for a in schema}
    arguments |= dict(zip(arguments, args, strict=False)) | kwargs
    buffers = {a.name for a in schema if a.is_out}
    return Ran(
        func._schema.name.rpartition("::")[2],
        arguments,
        tensors([value for name, value in arguments.items() if name not in buffers]),
        tensors(out),
    )


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def find(name: str, table: dict[str, Any]) -> Any:
    """A table's entry; what works in place costs what its other form does. None where there is neither."""
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    return table.get(name, table.get(plain))


def is_mask(index: torch.Tensor) -> bool:
    return index.dtype in (torch.bool, torch.uint8)


def places_written(call: Ran) -> int:
    """Elements that `index_put` writes: the indices' joint shape times the dimensions that none of them names.

    A mask names as many places as there are values; filled with one value, at most all that it covers.
    """
    sizes, values = list(call["self"].shape), call["values"]
    given = [index for index in call["indices"] if index is not None]
    if any(map(is_mask, given)) and values.numel() != 1:
        return int(values.numel())
    whole = []
    for index in call["indices"]:
        named = 1 if index is None or not is_mask(index) else index.dim()
        whole += [] if index is not None else sizes[:named]
        del sizes[:named]
    joint = torch.broadcast_shapes(*(index.shape for index in given))
    return math.prod([*joint, *whole, *sizes])
