"""Do `resolve_class` and `find_forward` name the same submodules? The calls of a forward beside what the class holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opscope_schemas.index import Call, Candidate
from opscope_tools.index import ClassSymbol, Index

#: candidates beyond which a result names no more
_NAMED = 40


def disagreements(index: Index, symbol: ClassSymbol) -> Iterator[str]:
    """A sentence for each call of a submodule that leaves out a class which the object holds there by its defaults or
    under a condition, or that names one which it does not hold."""
    forward = index.forward(symbol)
    if forward is None:
        return
    held: dict[str, set[str]] = {}
    for module in index.submodules(symbol):
        held.setdefault(module.attribute, set()).update({module.class_name or "?", *module.candidates})
    for line in index.forward_lines(forward):
        for call in line.calls:
            candidates = call.candidates or (line.candidates if call.candidate_count else ())
            if call.attribute in held and "?" not in held[call.attribute] and call.candidate_count <= _NAMED:
                said, there = _named(call, candidates), held[call.attribute]
                # an expression that picks may pick others than the defaults do
                if not there <= said or not (said <= there or call.dispatch):
                    yield f"{symbol.qualified_name}:{call.line} {call.attribute}: {sorted(said)}, held {sorted(there)}"


def _named(call: Call, candidates: Sequence[Candidate]) -> set[str]:
    return {name for name in (*call.callee.split(" | "), *(one.callee for one in candidates)) if name}
