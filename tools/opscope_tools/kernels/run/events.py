"""What an abstract run of a kernel met, in the order in which it met it.

The one record of a kernel: everything that is told of it is worked out from these by the functions of `projections`.
Texts are formulas in the notation of kernels (`{n}` of a run, `BLOCK` of the compiler), '' where reading does not tell;
what is a `Formula` is printed by the `Counts` of the run.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Table
from dataclasses import dataclass
from typing import Literal

from opscope_schemas.formula import Formula

from opscope_tools.kernels.run.paths import Path, counted

#: where memory lies; unknown: everywhere it might
Space = Literal["register", "shared", "global", "constant", "unknown"]
#: a part of a cost
Part = Literal["flops", "matmul", "read", "write"]

_ONCE = Formula.const(1)


class TooManyStepsError(Exception):
    """A run that does not end soon."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something at a line of a kernel, or of a function that it calls."""

    #: '' in the kernel's own file
    file: str = ""
    line: int
    #: which of the line it is: a column, or a place in the text
    node: int = 0
    #: functions that were entered on the way, joined by " > "
    via: str = ""
    path: Path = ()
    #: how often it runs: in one program (Triton), by all threads of one block together (CUDA)
    times: Formula = _ONCE
    #: line of the innermost loop around it; 0: none
    loop: int = 0

    @property
    def counted(self) -> bool:
        """Whether a cost counts it."""
        return counted(self.path)

    @property
    def place(self) -> tuple[str, int, str, int]:
        """What is alike in everything that one expression does, however often it is run."""
        return self.file, self.line, self.via, self.node


@dataclass(frozen=True, kw_only=True)
class Access(Event):
    """A load, a store or what does both, of all elements of a tile or of one element by each thread."""

    what: Literal["load", "store", "atomic", "copy"]
    #: as the list of loads and stores calls it: `tl.load`, `cp.async`
    operation: str
    space: Space
    #: parameters and arrays from which the address may start, the likeliest first
    roots: tuple[str, ...] = ()
    #: the address as written
    text: str = ""
    #: elements along each axis; None: not known
    shape: tuple[str, ...] | None = ()
    #: elements from one to the next along each axis (Triton) or thread (CUDA)
    steps: tuple[str, ...] = ()
    #: a formula; '': those of the root
    element_bytes: str = ""
    #: bytes that one thread moves at once
    width: int | None = None
    #: which threads of the block, where they are not all
    threads: str = ""
    mask: str = ""
    #: what receives it
    into: str = ""
    #: how the variables of address and mask were defined last: `source (file:line)`
    definition: str = ""
    mask_definition: str = ""
    #: what is taken for granted of where the address starts
    assumes: str = ""
    #: the address was computed from what another access gave
    gathered: bool = False


@dataclass(frozen=True, kw_only=True)
class Allocation(Event):
    """A tile or an array that the kernel makes room for."""

    name: str
    space: Space
    type: str = ""
    dimensions: tuple[str, ...] = ()
    bytes: int | None = None
    formula: str = ""
    dynamic: bool = False
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Loop(Event):
    """A loop: `times` is how often it is come to, `trips` how often its body then runs."""

    variable: str
    text: str
    trips: str = ""
    step: str = ""
    kind: str = ""
    #: something in it leaves before the last turn
    left_early: bool = False


@dataclass(frozen=True, kw_only=True)
class Branch(Event):
    """A test, and the side that is counted."""

    test: str
    holds: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Arithmetic(Event):
    """Arithmetic on data; `flops` of one execution."""

    operation: str
    flops: Formula
    #: places in the log of the accesses whose values it computes with: where all prove to be indices, it is none
    sources: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Product(Event):
    """A matrix product; `flops` of one execution."""

    operation: str
    flops: Formula
    #: places in the log of the accesses that each operand is as it came; -1: it was computed
    operands: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Instruction(Event):
    """A product, copy, barrier or reduction that decides how a tile is computed."""

    operation: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Mapping(Event):
    """A line that turns the id of a program or block into where its tile lies."""

    #: ids that the line itself asks for
    axis: str
    variable: str
    text: str
    #: compile-time names that an id is multiplied by in it, and the product as written
    scaled: tuple[tuple[str, str], ...] = ()
    #: accesses that it is computed from as well: with a tile that proves to be data it tells no place
    sources: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Check(Event):
    """What must hold, as the kernel itself says."""

    kind: str
    condition: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Call(Event):
    """A function that is called; where it is not followed, an `Unknown` says what that loses."""

    name: str
    followed: bool


@dataclass(frozen=True, kw_only=True)
class Unknown(Event):
    """What the run could not tell, and which parts of a cost that leaves out."""

    what: str
    reason: str = ""
    loses: frozenset[Part] = frozenset()
    #: as of `Arithmetic`: where all of these prove to be indices, nothing is lost
    sources: frozenset[int] = frozenset()
    #: parameters that it was handed and nothing else: where none of them proves to be an address, nothing is lost
    roots: tuple[str, ...] = ()


#: what a cost adds up of an access
MOVES: Table[str, tuple[Part, ...]] = {
    "load": ("read",), "store": ("write",), "atomic": ("read", "write"), "copy": ("read",),
}  # fmt: skip


def parts_of(events: Iterable[Event]) -> frozenset[Part]:
    """The parts of a cost that events add to, or lack."""
    found: set[Part] = set()
    for event in events:
        match event:
            case Access():
                found |= {*MOVES[event.what]}
            case Arithmetic():
                found.add("flops")
            case Product():
                found |= {"flops", "matmul"}
            case Unknown():
                found |= event.loses
    return frozenset(found)


__all__ = [
    "MOVES", "Access", "Allocation", "Arithmetic", "Branch", "Call", "Check", "Event", "Instruction", "Loop", "Mapping",
    "Part", "Product", "Space", "TooManyStepsError", "Unknown", "parts_of",
]  # fmt: skip
