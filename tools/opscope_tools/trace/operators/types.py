"""The vocabulary of cost rules: tensors, calls and costs as formulas, and the registry of rules by operator name.

Order: `Tensor`, `Call`, `Cost`; registering and looking up; then what rules share: bytes by the general rule, products
of sizes, arguments as formulas. Conventions stand in the package's docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.formula import Formula

ZERO, ONE = Formula.const(0), Formula.const(1)


@dataclass(frozen=True)
class Tensor:
    """A tensor as an operator sees it. `key` is equal for the same view of the same memory; None is equal to no other."""

    shape: tuple[Formula, ...]
    dtype: str
    element: Formula
    stored: Formula
    weight: bool = False
    key: object = None
    #: bytes of the scales of a quantised weight, beside its elements
    scales: Formula = ZERO

    @property
    def numel(self) -> Formula:
        return times(self.shape)

    @property
    def bytes(self) -> Formula:
        return self.stored * self.element + self.scales

    def bytes_of(self, count: Formula) -> Formula:
        """Bytes of so many of its elements, with their share of the scales."""
        if not self.scales.terms:
            return count * self.element
        share = (self.scales * count).divided(self.numel)
        return count * self.element + (share if share is not None else (self.scales * count).ceildiv(self.numel))

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    @property
    def is_mask(self) -> bool:
        """Whether it selects by truth: an index by mask, a mask that is not added."""
        return self.dtype in ("bool", "uint8")


@dataclass(frozen=True)
class Call:
    """One operator call: tensors in and out, and its other arguments by schema name.

    `inputs` are the tensors that were passed, in the schema's order. An optional tensor that was passed as None stands
    in `arguments` as None.
    """

    name: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Formula:
        """Elements of the first output."""
        return self.outputs[0].numel if self.outputs else ZERO

    @property
    def is_complex(self) -> bool:
        return any(tensor.is_complex for tensor in self.inputs)

    @property
    def in_place(self) -> bool:
        """Whether the name says that the first input is overwritten (`add_`, `__iand__`)."""
        return self.name.endswith("_")


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of one call; `free` marks what moves and computes nothing, and is left out of documents."""

    flops: Formula = ZERO
    matmul_flops: Formula = ZERO
    read: Formula = ZERO
    write: Formula = ZERO
    derivation: str = ""
    free: bool = False
    causal_saving: Formula = ZERO


Rule = Callable[[Call], Cost | None]
_RULES: dict[str, Rule] = {}
_REASONS: dict[str, str] = {}
#: rules that know what complex numbers cost
_COMPLEX: set[str] = set()


# ---------------------------------------------------------------- registry


def operator(*names: str, complex_too: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for operators; a second rule for the same name is a mistake and raises.

    Arithmetic on complex numbers is counted only by rules that say so (`complex_too`): a count of real numbers would be too low.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in _RULES or name in _REASONS:
                raise ValueError(f"the operator {name} already has a cost rule")
            _RULES[name] = rule
        _COMPLEX.update(names if complex_too else ())
        return rule

    return register


def not_counted(reason: str, *names: str) -> None:
    """Say why operators have no rule; `cost_of` answers None for them."""
    for name in names:
        if name in _RULES or name in _REASONS:
            raise ValueError(f"the operator {name} already has a cost rule")
        _REASONS[name] = reason


def registered() -> frozenset[str]:
    """Every operator that has a rule."""
    return frozenset(_RULES)


def reason_of(name: str) -> str:
    """Why an operator has no cost: what was decided about it, or that nothing was."""
    return _REASONS.get(_known(name, _REASONS), "no cost rule is registered")


def rule_of(name: str) -> Rule | None:
    """The rule of an operator."""
    return _RULES.get(_known(name, _RULES))


def cost_of(call: Call) -> Cost | None:
    """The call's cost, or None where no rule is registered or the rule cannot say."""
    name = _known(call.name, _RULES)
    found = _RULES[name](call) if name in _RULES else None
    if found is not None and found.flops.terms and call.is_complex and name not in _COMPLEX:
        return None
    return found


def _known(name: str, table: Mapping[str, object]) -> str:
    """An in-place operator computes what its functional twin does."""
    in_place = name not in table and name.endswith("_") and not name.endswith("__")
    return name[:-1] if in_place else name


# ---------------------------------------------------------------- what rules share


def moved(call: Call) -> tuple[Formula, Formula]:
    """Bytes by the general rule: distinct inputs read once, outputs written once; an `out=` buffer is an output."""
    buffers = set() if call.in_place else {t.key for t in call.outputs if t.key is not None}
    write = ZERO
    for tensor in call.outputs:
        write = write + tensor.numel * tensor.element
    return read_once(t for t in call.inputs if t.key not in buffers), write


def read_once(tensors: Iterable[Tensor]) -> Formula:
    """Stored bytes of the tensors, the same view of the same memory counted once."""
    read, seen = ZERO, set()
    for tensor in tensors:
        if tensor.key is None or tensor.key not in seen:
            seen.add(tensor.key)
            read = read + tensor.bytes
    return read


def cost(call: Call, flops: Formula, derivation: str, matmul: Formula = ZERO) -> Cost:
    """A cost whose bytes follow the general rule."""
    read, write = moved(call)
    return Cost(flops, matmul, read, write, derivation)


def times(sizes: Iterable[Formula]) -> Formula:
    """The product of sizes."""
    total = ONE
    for size in sizes:
        total = total * size
    return total


def total(formulas: Iterable[Formula]) -> Formula:
    """The sum of formulas."""
    return sum(formulas, ZERO)


def size_of(value: Any) -> Formula | None:
    """An argument that is a size as a formula; None where it is neither a number nor a formula."""
    if isinstance(value, Formula):
        return value
    return Formula.const(value) if isinstance(value, int) and not isinstance(value, bool) else None


def optional(call: Call, required: int, *names: str) -> list[str]:
    """Which optional tensors were passed after the `required` ones: those not None, in the schema's order."""
    passed = [name for name in names if call.arguments.get(name, name) is not None]
    return passed[: max(len(call.inputs) - required, 0)]
