"""Positions that a model has weights for: a run that looks further up ends in an error, and no operator of a trace says so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from opscope_schemas.formula import Formula, Rational, holds

from opscope_tools.trace.protocol import OpRecord

#: how configurations name the number of positions, with any prefix
_ROOM = re.compile(r"(^|_)(position_embeddings|positions|max_seq_len|max_sequence_length|context_length|block_size)$")


#: what counts positions up: without others on the way, the last position of a sequence is looked up
_COUNTING = frozenset(
    f"aten.{name}" for name in "arange cumsum ones ones_like full ne eq mul add add_ _to_copy clone repeat".split()
)


def room(
    ops: Sequence[OpRecord], paddings: Mapping[int, int], phase: str, point: Mapping[str, Rational]
) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """Conditions, with the calls that look positions up: they are no more than the table has; and those of them beyond which every
    run ends in an error, since positions are counted up from the first.

    Rows beyond the config's number (an offset that the model adds to every position) are not there to be looked up. `paddings`: call -> the row that
    stands for padding; positions begin behind it.
    """
    found: dict[str, tuple[int, ...]] = {}
    certain: dict[str, bool] = {}
    makers = {written: op for op in ops for written in op.writes}
    for op in ops:
        if not _looks_up(op):
            continue
        rows, length, padding = op.inputs[0].shape[0], op.inputs[1].shape[-1:], paddings.get(op.call)
        if limit := _limit(rows, length, padding):
            before = " + {cache_len}" if phase == "decode" and "{seq_len}" in length[0] else ""
            condition = f"{length[0]}{before} <= {limit}"
            if holds(condition, point):
                found[condition] = (*found.get(condition, ()), op.call)
                certain[condition] = limit == _rows(rows, padding) and _counted(op, makers)
    return found, tuple(condition for condition, held in certain.items() if held)


def _looks_up(op: OpRecord) -> bool:
    """Whether it takes a row of a table for each of its indices: an index beyond the table's rows ends the run."""
    if op.operator == "aten.embedding":
        return len(op.inputs) > 1
    if op.operator not in ("aten.index", "aten.index_select") or len(op.inputs) != 2 or not op.outputs:
        return False
    table, looked_up = op.inputs
    return op.outputs[0].shape == (*looked_up.shape, *table.shape[1:])


def _counted(op: OpRecord, makers: Mapping[int, OpRecord]) -> bool:
    """Whether the positions that an operator looks up are counted up from the first, each token by one."""
    waiting, seen = [makers[index] for index in op.reads if index in makers], set[str]()
    while waiting:
        maker = waiting.pop()
        seen.add(maker.operator)
        waiting += [makers[index] for index in maker.reads if index in makers and makers[index].order < maker.order]
    return seen <= _COUNTING and bool(seen & {"aten.arange", "aten.cumsum"})


def _rows(rows: str, padding: int | None) -> str:
    """The rows of a table, those behind the one for padding where it has one."""
    return str(Formula.parse(rows) - (padding + 1 if padding is not None else 0))


def _limit(rows: str, length: Sequence[str], padding: int | None) -> str:
    """How many positions the table has; '' where it is none of positions."""
    if "?" in (rows, *length) or not length:
        return ""
    table, looked_up = Formula.parse(rows), Formula.parse(length[0])
    if not looked_up.variables() or not any(_ROOM.search(name) for name in table.variables()):
        return ""
    offset = table.substitute(dict.fromkeys(table.variables(), Formula.const(0))).constant()
    return str(table - int(offset)) if padding is None and offset and offset > 0 else _rows(rows, padding)


__all__ = ["room"]
