"""Positions that a model has weights for: a run that looks further up ends in an error, and no operator of a trace says so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from opscope_schemas.formula import Formula, Rational, holds

from opscope_tools.trace.protocol import OpRecord

#: how configurations name the number of positions, with any prefix
_ROOM = re.compile(r"(^|_)(position_embeddings|positions|max_seq_len|max_sequence_length|context_length|block_size)$")


def room(
    ops: Iterable[OpRecord], paddings: Mapping[int, int], phase: str, point: Mapping[str, Rational]
) -> dict[str, tuple[int, ...]]:
    """Conditions, with the calls that look positions up: they are no more than the table has.

    Rows beyond the config's number (an offset that the model adds to every position) are not there to be looked up. `paddings`: call -> the row that
    stands for padding; positions begin behind it.
    """
    found: dict[str, tuple[int, ...]] = {}
    for op in ops:
        if op.operator != "aten.embedding" or len(op.inputs) < 2:
            continue
        rows, length = op.inputs[0].shape[0], op.inputs[1].shape[-1:]
        if limit := _limit(rows, length, paddings.get(op.call)):
            before = " + {cache_len}" if phase == "decode" and "{seq_len}" in length[0] else ""
            condition = f"{length[0]}{before} <= {limit}"
            found[condition] = (*found.get(condition, ()), op.call)
    return {condition: calls for condition, calls in found.items() if holds(condition, point)}


def _limit(rows: str, length: Sequence[str], padding: int | None) -> str:
    """How many positions the table has; '' where it is none of positions."""
    if "?" in (rows, *length) or not length:
        return ""
    table, looked_up = Formula.parse(rows), Formula.parse(length[0])
    if not looked_up.variables() or not any(_ROOM.search(name) for name in table.variables()):
        return ""
    if padding is not None:
        return str(table - padding - 1)
    offset = table.substitute(dict.fromkeys(table.variables(), Formula.const(0))).constant()
    return str(table - int(offset)) if offset and offset > 0 else str(table)


__all__ = ["room"]
