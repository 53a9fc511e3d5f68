"""How long a tensor of a pass lives, counted in operators that run, and who reads it in the next repetition of what repeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opscope_schemas.dataflow import Dataflow, FlowTensor

__all__ = ["Life", "life_of"]


@dataclass(frozen=True)
class Life:
    """How many operators run while a tensor is there, the last of them, and the readers of the repetition after its own."""

    operators: int
    #: whether something repeats meanwhile, so that the count rests on where in it the tensor goes
    about: bool
    last: int
    next_readers: tuple[int, ...] = ()


def life_of(tensor: FlowTensor, graph: Dataflow, repeats: Sequence[float]) -> Life:
    """Of a tensor that an operator makes; `repeats`: how often each operator runs in the pass."""
    own = repeats[tensor.created_by - 1]
    times = [each / own for each in repeats]
    again = tuple(
        one.id
        for one in graph.operators[: tensor.created_by]
        if tensor.created_by in one.carried_from and repeats[one.id - 1] > 1
    )
    if again and tensor.kind == "activation":
        first, end = _block(repeats, tensor.created_by)
        ran = [*times[tensor.created_by - 1 : end], *times[first - 1 : again[-1]]]
        return Life(sum(max(1, round(each)) for each in ran), max(ran) > 1, again[-1], again)
    begin, last = tensor.lives
    if times[last - 1] > 1 and not tensor.in_later_repetitions:  # the first repetition alone meets it
        first, _ = _block(repeats, last)
        times[first - 1 : last] = [1.0] * (last - first + 1)
        return Life(
            sum(max(1, round(each)) for each in times[begin - 1 : last]), max(times[begin - 1 : last]) > 1, last
        )
    return Life(_outlived(times, begin, last), max(times[begin - 1 : last]) > 1, last)


def _block(repeats: Sequence[float], at: int) -> tuple[int, int]:
    """The first and last operator of what repeats with one, as often or, within it, oftener."""
    first = end = at
    while first > 1 and repeats[first - 2] >= repeats[at - 1]:
        first -= 1
    while end < len(repeats) and repeats[end] >= repeats[at - 1]:
        end += 1
    return first, end


def _outlived(times: Sequence[float], first: int, last: int) -> int:
    """How many operators run from one to another, by how often each runs: what stands behind the last in what repeats runs too,
    but for its last time."""
    count = sum(max(1, round(each)) for each in times[first - 1 : last])
    for each in times[last:] if times[last - 1] > 1 else ():
        if each != times[last - 1]:
            break
        count += round(each) - 1
    return count
