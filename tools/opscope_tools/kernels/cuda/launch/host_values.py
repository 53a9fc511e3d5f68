"""What host variables hold where a launch is come to: numbers, `dim3`s, structures, kernels, lambdas; and how branches join.

`State` holds the blocks of all functions that are entered; a chain says which of them a point sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opscope_tools.kernels.cuda.syntax.nodes import Lambda
from opscope_tools.kernels.values.expressions import Expression, Quantity, leaf

#: tests on the way to a point of a host function, and how each went
Way = tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class Dims:
    """A `dim3`: a formula along each axis that was written; None: not told."""

    axes: tuple[Any, ...]

    def along(self, axis: str) -> Any:
        """The size along `x`, `y` or `z`; 1 for an axis that is not given."""
        index = "xyz".index(axis)
        return self.axes[index] if index < len(self.axes) else 1


@dataclass(frozen=True)
class Listed:
    """`{a, b, .c = d}`: values, and the names of those that have one."""

    items: tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Parts:
    """A structure."""

    fields: Mapping[str, Variable]


@dataclass(frozen=True)
class Spelled:
    """A kernel as a launch or an assignment spells it."""

    text: str
    name: str
    arguments: tuple[str, ...] = ()
    way: Way = ()
    #: what CuTe makes of each argument; None: none of its values
    cute: tuple[Any, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Kernels:
    """The kernels that a pointer may lead to."""

    spelled: tuple[Spelled, ...]


@dataclass(frozen=True)
class Closure:
    """A lambda, and the blocks that it sees."""

    node: Lambda
    chain: tuple[int, ...]


@dataclass(frozen=True)
class Pointer:
    """The variable that a reference or a pointer leads to."""

    block: int
    name: str


@dataclass(frozen=True)
class Unknown:
    """A value that is not told; `reason`: why, where that is not that branches or loops decide."""

    reason: str = ""


@dataclass(frozen=True)
class Variable:
    """What a variable of a host function holds, and the definitions that its value rests on."""

    value: Any
    #: its definition, and those of what that names: text -> text with its place
    own: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    #: a `constexpr`; declared as a `bool`, as a `dim3`
    constant: bool = False
    boolean: bool = False
    dims: bool = False
    #: a parameter that stands for what the caller gives
    parameter: bool = False
    #: of a member: as written where it was set
    text: str = field(default="", compare=False)
    #: of a `dim3`: what its axes were given, as written
    axes: tuple[str, ...] = field(default=(), compare=False)
    #: the type that it is declared with, `float*`; empty: not told
    kind: str = field(default="", compare=False)

    @property
    def uses(self) -> dict[str, str]:
        """The definitions in the order in which they are told: text -> text with its place."""
        return {**self.own, **self.inner} if self.dims else {**self.inner, **self.own}


@dataclass
class State:
    """The variables of a run on one way through a function: `chain` names the blocks that are seen."""

    blocks: list[dict[str, Variable]] = field(default_factory=lambda: [{}])
    chain: tuple[int, ...] = (0,)
    way: Way = ()
    #: nothing is run behind a `return`
    dead: bool = False

    def copy(self) -> State:
        """The same variables, to go another way with; the values themselves are shared."""
        return State([dict(block) for block in self.blocks], self.chain, self.way, self.dead)

    def where(self, name: str) -> Pointer | None:
        """The block of a variable, references followed."""
        for index in reversed(self.chain):
            found = self.blocks[index].get(name)
            if found is not None:
                target = found.value
                known = isinstance(target, Pointer) and target.name in self.blocks[target.block]
                return target if known else Pointer(index, name)
        return None

    def find(self, name: str) -> Variable | None:
        """The variable that a name means here; None where the function has none."""
        at = self.where(name)
        return None if at is None else self.blocks[at.block][at.name]

    def declare(self, name: str, variable: Variable) -> None:
        """A new variable in the innermost block."""
        self.blocks[self.chain[-1]][name] = variable

    def change(self, at: Pointer, variable: Variable) -> None:
        """Another value for a variable that is there."""
        self.blocks[at.block][at.name] = variable

    def enter(self, chain: tuple[int, ...] | None = None) -> None:
        """A new block: within the present ones, or within those of a chain."""
        self.blocks.append({})
        self.chain = (*(self.chain if chain is None else chain), len(self.blocks) - 1)

    def seen(self) -> Iterator[tuple[str, Variable]]:
        """Every variable with its name, outer before inner; a hidden one too."""
        for index in self.chain:
            yield from self.blocks[index].items()


def joined(one: State, other: State, test: str = "") -> State:
    """What holds behind two ways, of which `test` decides."""
    if one.dead or other.dead:
        return other if one.dead else one
    blocks = []
    for a, b in zip(one.blocks, other.blocks, strict=False):
        made = {}
        for name in dict.fromkeys((*a, *b)):
            x, y = a.get(name), b.get(name)
            if x is None or y is None:
                made[name] = x or y
            else:
                made[name] = x if x is y or x == y else _either(name, x, y, test)
        blocks.append({n: v for n, v in made.items() if v is not None})
    return State(blocks, one.chain, one.way)


def _either(name: str, x: Variable, y: Variable, test: str) -> Variable:
    own = {**x.own, **y.own}
    if x.value == y.value:
        return replace(x, own=own, inner={**x.inner, **y.inner})
    value = either(name, x.value, y.value, test)
    kept = isinstance(value, Dims | Kernels | Parts)
    return replace(
        x, value=value, own=own, inner={**x.inner, **y.inner} if kept else {}, constant=x.constant and y.constant
    )


def either(name: str, x: Any, y: Any, test: str) -> Any:
    """One of two values of a variable."""
    if x == y:
        return x
    if isinstance(x, Unknown) or isinstance(y, Unknown):
        return x if isinstance(x, Unknown) and x.reason else y if isinstance(y, Unknown) else x
    if isinstance(x, Parts) and isinstance(y, Parts):
        names = dict.fromkeys((*x.fields, *y.fields))
        unset = Variable(Unknown())
        return Parts({n: _either(f"{name}.{n}", x.fields.get(n, unset), y.fields.get(n, unset), test) for n in names})
    if isinstance(x, Kernels) and isinstance(y, Kernels):
        ways = [(s, True) for s in x.spelled] + [(s, False) for s in y.spelled]
        marked = [replace(s, way=((test, holds), *s.way)) if test else s for s, holds in ways]
        return Kernels(tuple(dict.fromkeys(marked)))
    if (
        isinstance(x, Dims | int | Expression)
        and isinstance(y, Dims | int | Expression)
        and (isinstance(x, Dims) or isinstance(y, Dims))
    ):
        a, b = (v if isinstance(v, Dims) else Dims((v,)) for v in (x, y))
        axes = "xyz"[: max(len(a.axes), len(b.axes))]
        return Dims(tuple(a.along(i) if a.along(i) == b.along(i) else leaf(f"{name}.{i}") for i in axes))
    return Unknown()


def component(variable: Variable, part: str) -> Variable | None:
    """A member of a value; None where it is not told."""
    value = variable.value
    if isinstance(value, Parts):
        return value.fields.get(part)
    if isinstance(value, Dims) and part in {"x", "y", "z"}:
        return replace(variable, value=value.along(part))
    if isinstance(value, Quantity) and variable.parameter:
        return replace(variable, value=leaf(f"{value.name}.{part}"))
    return None


__all__ = [
    "Closure", "Dims", "Kernels", "Listed", "Parts", "Pointer", "Spelled", "State", "Unknown", "Variable", "Way", "component",
    "either", "joined",
]  # fmt: skip
