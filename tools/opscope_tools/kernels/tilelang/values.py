"""What the run of a TileLang kernel computes with beside sizes: tensors and tiles, parts of them, and elements of data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from opscope_tools.kernels.host.worlds import ImportRef
from opscope_tools.kernels.values.expressions import Expression, Operation, Quantity, Size, operand, settled
from opscope_tools.kernels.values.notation import names_of

#: tmem: tensor memory of Blackwell
Space = Literal["global", "shared", "fragment", "local", "tmem", "barrier"]
_BITS = {"half": 16, "bool": 8, "float": 32, "double": 64}
_TYPE = re.compile(r"(?:float|int|fp)(\d+)")
_THREAD = "threadIdx."


@dataclass(frozen=True)
class Buffer:
    """A tensor of the caller, or a tile that the kernel makes room for."""

    name: str
    space: Space
    shape: tuple[Size, ...]
    dtype: Any = None
    #: elements from one to the next along each axis; None: as they lie in a contiguous one
    strides: tuple[Size, ...] | None = None

    def steps(self) -> tuple[Size, ...]:
        """Elements from one to the next along each axis."""
        if self.strides is not None:
            return self.strides
        found: list[Size] = []
        step: Size = 1
        for size in reversed(self.shape):
            found.append(step)
            step = settled("*", size, step)
        return tuple(reversed(found))


@dataclass(frozen=True)
class Region:
    """A part of a buffer: along each axis where it starts (None: not told) and its extent (None: one place).

    `whole`: all of it, named without an index.
    """

    buffer: Buffer
    starts: tuple[Size | None, ...] = ()
    extents: tuple[Size | None, ...] = ()
    whole: bool = False
    #: a place was looked up in data
    gathered: bool = False

    def told(self) -> tuple[Size, ...] | None:
        """The extents that the part itself says; None where it names a place alone."""
        if self.whole:
            return self.buffer.shape
        if all(extent is None for extent in self.extents):
            return None
        return tuple(1 if extent is None else extent for extent in self.extents)

    def shape(self, other: tuple[Size, ...] | None) -> tuple[Size, ...]:
        """The extents along each axis, where need be those of the tile that it is copied from or to, aligned at the end."""
        if (told := self.told()) is not None:
            return told
        axes = len(self.buffer.shape)
        return (1,) * axes if other is None else (1,) * max(0, axes - len(other)) + other[max(0, len(other) - axes) :]


@dataclass(frozen=True)
class Datum:
    """An element of data, not an index; `each`: every thread has its own."""

    floating: bool = True
    each: bool = False


def sizes_of(shape: Any) -> tuple[Size, ...]:
    """The sizes of a shape, which may be one number."""
    return tuple(map(operand, shape)) if isinstance(shape, tuple | list) else (operand(shape),)


def name_of(dtype: Any) -> str:
    """`float16` of `T.float16` and of "float16"; '' where reading does not tell."""
    text = dtype.dotted if isinstance(dtype, ImportRef) else dtype.name if isinstance(dtype, Quantity) else dtype
    last = text.rpartition(".")[2] if isinstance(text, str) else ""
    return last if last in _BITS or _TYPE.search(last) else ""


def bits_of(dtype: Any) -> int | None:
    """Bits of one element; None where reading does not tell."""
    name = name_of(dtype)
    found = _TYPE.search(name)
    return int(found[1]) if found else _BITS.get(name)


def bytes_of(dtype: Any) -> str:
    """Bytes of one element as a formula; '' where reading does not tell."""
    bits = bits_of(dtype)
    return "" if bits is None else str(bits // 8) if bits % 8 == 0 else f"{bits}/8"


def floating(dtype: Any) -> bool:
    """Whether elements are numbers to compute with; a type that reading does not tell is taken for one."""
    return not re.match(r"u?int\d|bool", name_of(dtype))


def step_of(size: Any, name: str) -> Size | None:
    """By how much a size grows with a quantity; None where it is no straight line in it."""
    if not isinstance(size, Expression) or name not in names_of(size):
        return 0
    match size:
        case Quantity(name=found) if found == name:
            return 1
        case Operation(operator="+" | "-" as symbol, left=left, right=right):
            one, other = step_of(left, name), step_of(right, name)
            made: Size | None = None if one is None or other is None else settled(symbol, one, other)
            return made
        case Operation(operator="*", left=left, right=right):
            for one, other in ((left, right), (right, left)):
                step = step_of(one, name)
                if step is not None and step_of(other, name) == 0:
                    grown: Size = settled("*", step, other)
                    return grown
    return None


def of_thread(value: Any) -> bool:
    """Whether it differs from thread to thread."""
    return (isinstance(value, Expression) and any(_THREAD in name for name in names_of(value))) or (
        isinstance(value, Datum) and value.each
    )


__all__ = [
    "Buffer", "Datum", "Region", "Space", "bits_of", "bytes_of", "floating", "name_of", "of_thread",
    "sizes_of", "step_of",
]  # fmt: skip
