"""What a kernel's `analysis` says: its shapes, how the figures come about, and the figures themselves.

Two parts: the words, which short answers keep, and behind `HERE` the kernel's own figures, the very formulas of its fields.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from opscope_schemas.analysis import Kernel, TensorInfo

from opscope_tools.trace.protocol import CallRecord, OpRecord

HERE = " Here: "
#: kinds of operators that are named of a module
_NAMED = 6


def plain(text: str) -> str:
    """A formula for prose: without braces."""
    return re.sub(r"[{}]", "", text)


def shown(info: TensorInfo) -> str:
    """A tensor by name, if it has one, and shape."""
    shape = "[" + ", ".join(map(plain, info.shape)) + "]"
    return f"{info.name}: {shape}" if info.name else shape


def operator(op: OpRecord) -> str:
    """The words about an operator: shapes, the rule's derivation, what is read and written."""
    if not op.counted:
        return f"not counted, so its work is missing in every sum: {op.derivation}."
    over = " and ".join(map(shown, op.inputs)) or "no tensors"
    whole = "; each input is read once and the result written once" if op.moves_whole and op.inputs else ""
    return f"On {over}: {op.derivation}{whole}."


def module(call: CallRecord, ops: Iterable[OpRecord]) -> str:
    """The words about a module's call: which operators run in it, and where its forward is."""
    kinds = Counter(op.operator.partition(".")[2] for op in ops)
    named = [name if count == 1 else f"{count} {name}" for name, count in kinds.most_common(_NAMED)]
    more = f" and {len(kinds) - _NAMED} other kinds" if len(kinds) > _NAMED else ""
    said = f"runs {', '.join(named)}{more}" if named else "runs no operator that costs anything"
    return f"The forward at {call.forward_file}:{call.forward_line} {said}."


def with_figures(words: str, kernel: Kernel, causal: str) -> str:
    """The words, and behind them the kernel's figures."""
    often = "" if kernel.repeat == "1" else f", in all {plain(kernel.repeat)} calls together"
    products = (
        f" ({plain(kernel.matmul_flops)} of them in products)" if kernel.matmul_flops not in ("0", kernel.flops) else ""
    )
    moved = f"{plain(kernel.memory_access.read)} bytes read, {plain(kernel.memory_access.write)} bytes written"
    dense = "" if causal == "0" else f" A causal kernel may skip {plain(causal)} of the FLOPs."
    return f"{words}{HERE}{plain(kernel.flops)} FLOPs{products}, {moved}{often}.{dense}"


def in_words(kernel: Kernel) -> Kernel:
    """A kernel whose analysis says nothing that its fields hold: no figures, and no shapes, which `operation` has."""
    return kernel.model_copy(update={"analysis": kernel.analysis.partition(HERE)[0].rpartition("]: ")[2]})


__all__ = ["HERE", "in_words", "module", "operator", "plain", "shown", "with_figures"]
