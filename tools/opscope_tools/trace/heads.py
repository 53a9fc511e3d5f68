"""What a pass spends on logits that generation does not read.

A forward that takes `logits_to_keep` computes the logits of all positions unless it is told otherwise. What it does after the
model below it works row by row, so the formulas of that part at one position are what the last position costs.
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_schemas.formula import Formula, Rational, evaluate, variables

from opscope_tools.trace.document import CallTree, Sum
from opscope_tools.trace.protocol import CallRecord, OpRecord


def saved(tree: CallTree, call: CallRecord) -> Formula | None:
    """FLOPs that `logits="last"` saves; None where the call is not of the model, or its trace says nothing of it."""
    if tree.trace.logits != "all" or tree.trace.phase == "train" or call.parent >= 0:
        return None
    children = tree.children(call)
    below = [child for child in children if isinstance(child, CallRecord) and child.parameters != "0"]
    if len(below) < 2:
        return None
    body = max(below, key=lambda child: sum(1 for _ in tree.ops_below(child)))
    after = sum((_cost(tree, child) for child in children if child.order > body.order), Sum()).flops
    return after - after.substitute({"seq_len": Formula.const(1)})


def _cost(tree: CallTree, child: CallRecord | OpRecord) -> Sum:
    if isinstance(child, OpRecord):
        return Sum(flops=Formula.parse(child.flops))
    return tree.own_sum(child).times(Formula.parse(child.repeat))


def head(tree: CallTree, call: CallRecord, values: Mapping[str, Rational] | None) -> tuple[str, ...]:
    """A note beside a forward that computes all logits; none where one position is all there is."""
    less = saved(tree, call)
    if less is None or not less.terms:
        return ()
    whole = tree.own_sum(call).flops
    said = f"Logits of every position are counted; logits='last', as generation asks, saves {less} FLOPs"
    if values is None or not variables(str(less)) | variables(str(whole)) <= values.keys():
        return (f"{said}.",)
    number, total = evaluate(str(less), values), evaluate(str(whole), values)
    return (f"{said}: {number:,} of {total:,} here.",) if number else ()


__all__ = ["head", "saved"]
