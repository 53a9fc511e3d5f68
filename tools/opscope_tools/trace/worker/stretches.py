"""Where in memory the elements of a view lie at the sizes of a trace, and whether another view holds them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch

#: of views of more elements it is not asked which hold which
_MOST_ELEMENTS = 1 << 16


@dataclass(frozen=True)
class Stretch:
    """The first element, counted from where the memory begins, and the dimensions: (size, stride) of each that has several elements."""

    first: int
    dimensions: tuple[tuple[int, int], ...]
    dtype: str
    known: bool = True

    @property
    def last(self) -> int:
        """The element that lies farthest."""
        return self.first + sum((size - 1) * stride for size, stride in self.dimensions)

    def holds(self, other: Stretch) -> bool:
        """Whether every element of the other is one of these; also no where it is not known, or takes long to say."""
        if not (
            self.known
            and other.known
            and self.dtype == other.dtype
            and self.first <= other.first
            and other.last <= self.last
        ):
            return False
        own, others = _apart(self.dimensions, other.dimensions)
        if max(prod(size for size, _ in own), prod(size for size, _ in others)) > _MOST_ELEMENTS:
            return False
        return bool(np.isin(_elements(other.first, others), _elements(self.first, own)).all())


def stretch_of(view: torch.Tensor) -> Stretch:
    """Where it lies; not known where a size depends on data, or where it has no elements."""
    sizes, strides, first = (
        [_known(n) for n in each] for each in (view.shape, view.stride(), (view.storage_offset(),))
    )
    if None in (*sizes, *strides, *first) or 0 in sizes:
        return Stretch(0, (), str(view.dtype), known=False)
    dimensions = tuple((size, stride) for size, stride in zip(sizes, strides, strict=True) if size > 1 and stride)
    return Stretch(first[0], dimensions, str(view.dtype))


def _known(size: Any) -> Any:
    """A size at the trace's point, without deciding anything by it."""
    if isinstance(size, int):
        return size
    return int(size.node.hint) if size.node.has_hint() else None


def _apart(
    one: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The dimensions without those that both have: what holds at one place of these holds at all."""
    own, others = list(one), list(other)
    for dimension in one:
        if dimension in others:
            own.remove(dimension)
            others.remove(dimension)
    return own, others


def _elements(first: int, dimensions: Sequence[tuple[int, int]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = np.array([first], dtype=np.int64)
    for size, stride in dimensions:
        found = (found[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
    return found


__all__ = ["Stretch", "stretch_of"]
