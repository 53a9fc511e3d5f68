"""How many experts a layer is expected to read where tokens choose them uniformly, beside the bound that formulas hold.

Each of a pass's tokens leaves an expert out with probability 1 - k/E, so E * (1 - (1 - k/E) ** tokens) of E experts are
expected to be chosen by at least one. The power has a variable for exponent, which formulas do not: this is worked out at values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from opscope_schemas.analysis import Analysis, ExpectedExperts
from opscope_schemas.formula import Formula, Rational, approximated, evaluate, whole_bytes

from opscope_tools.trace.document import CallTree
from opscope_tools.trace.operators import GROUPED
from opscope_tools.trace.protocol import CallRecord, OpRecord

#: digits of the power, and of the number of experts behind the point
_DIGITS, _PLACES = 60, 12
_CHOSEN = "num_experts_per_tok"


@dataclass(frozen=True)
class Routing:
    """Rows of `tokens` tokens, `chosen` of each, spread over `experts`; `bound` is the formula that stands in the bytes read."""

    experts: Formula
    chosen: Formula
    tokens: Formula
    bound: Formula

    def text(self) -> str:
        """The expectation, for people."""
        e = self.experts._factor_text()
        return f"{e} * (1 - (1 - {self.chosen} / {e}) ** ({self.tokens}))"

    def experts_read(self, values: Mapping[str, Rational]) -> Fraction:
        """The expectation at values, to `_PLACES` digits behind the point."""
        experts, chosen, tokens = (evaluate(str(f), values) for f in (self.experts, self.chosen, self.tokens))
        with localcontext() as context:
            context.prec = _DIGITS
            left_out = (1 - Decimal(chosen) / Decimal(experts)) ** tokens
            return Fraction(round(Decimal(experts) * (1 - left_out), _PLACES))


def routings(tree: CallTree, call: CallRecord) -> dict[Routing, None]:
    """The kinds of routing below a call."""
    return dict.fromkeys(r for op in tree.ops_below(call) if op.operator in GROUPED for r in _routing(tree, op))


def _routing(tree: CallTree, op: OpRecord) -> Iterator[Routing]:
    if len(op.inputs) < 2 or "?" in (op.inputs[0].shape[0], op.inputs[1].shape[0]):
        return
    rows, experts = Formula.parse(op.inputs[0].shape[0]), Formula.parse(op.inputs[1].shape[0])
    bound = Formula.minimum(experts, rows)
    for chosen in (Formula.var(_CHOSEN), Formula.of(int(tree.trace.point.get(_CHOSEN, 0)))):
        tokens = rows.divided(chosen) if chosen.terms else None
        if tokens is not None and str(bound) in op.read:
            yield Routing(experts, chosen, tokens, bound)
            return


def grouped(ops: Iterable[OpRecord]) -> dict[int, str]:
    """Calls that choose among experts -> how many there are, as their weights' shape says."""
    return {op.call: op.inputs[1].shape[0] for op in ops if op.operator in GROUPED and len(op.inputs) > 1}


def expert_layers(tree: CallTree, call: CallRecord) -> dict[int, frozenset[int]]:
    """Calls with several products of experts, each of which engines run as one kernel -> those below it, itself among them."""
    products = Counter(op.call for op in tree.ops_below(call) if op.operator in GROUPED)
    layers = (tree.trace.calls[index] for index, number in products.items() if number > 1)
    return {layer.index: frozenset(one.index for one in tree.calls_below(layer)) for layer in layers}


def left_out(op: OpRecord, values: Mapping[str, float], experts_of: Mapping[int, str]) -> float | None:
    """Of an operator's experts, the weights that one token does not meet, in elements; None where none are chosen from.

    Products of experts, and in the same call (`experts_of`: `grouped`) the gathers of their biases.
    """
    bias = (
        op.operator == "aten.index" and "{w_bytes}" in op.read and op.inputs[0].shape[:1] == (experts_of.get(op.call),)
    )
    shape = op.inputs[1].shape if op.operator in GROUPED and len(op.inputs) > 1 else op.inputs[0].shape if bias else ()
    chosen = values.get(_CHOSEN)
    if not shape or "?" in shape or chosen is None:
        return None
    experts, *matrix = (approximated(size)(values) for size in shape)
    return (experts - min(chosen, experts)) * math.prod(matrix)


def touched(text: str, found: Sequence[Routing]) -> str:
    """Bytes read with the variable `touched_0`, `touched_1`, ... in the place of each bound; one that is a number stays, since no text
    tells it from others."""
    for number, routing in enumerate(found):
        if routing.bound.constant() is None:
            text = text.replace(str(routing.bound), f"{{touched_{number}}}")
    return text


def expected(
    tree: CallTree, call: CallRecord, document: Analysis, values: Mapping[str, Rational] | None
) -> ExpectedExperts | None:
    """What uniform routing is expected to read in the place of the bound; None where no experts are grouped, values are missing, or the
    bound is a number, which no text tells from others."""
    found = list(routings(tree, call))
    if not found or values is None or any(routing.bound.constant() is not None for routing in found):
        return None
    text, at = touched(document.totals.memory_access.read, found), dict(values)
    for number, routing in enumerate(found):
        at[f"touched_{number}"] = routing.experts_read(values)
    return ExpectedExperts(
        experts_read=round(float(at["touched_0"]), 6), bound=evaluate(str(found[0].bound), values), memory_read=whole_bytes(text, at)
    )  # fmt: skip


def notes(tree: CallTree, call: CallRecord) -> tuple[str, ...]:
    """The expectation as a formula, for each kind of routing."""
    return tuple(
        f"Of the experts of a layer, totals read those that can be touched, {r.bound}; uniform routing is expected to touch {r.text()}."
        for r in routings(tree, call)
        if r.tokens.constant() != 1  # one token touches as many as it chooses
    )


__all__ = ["GROUPED", "Routing", "expected", "expert_layers", "grouped", "left_out", "notes", "routings", "touched"]
