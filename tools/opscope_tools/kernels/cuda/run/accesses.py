"""Accesses to memory in the abstract run of a CUDA kernel: where a pointer leads to, and what reading and writing there does.

`read` is where an access costs: a place in memory becomes a value. Every access is listed and counted here, in one step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from opscope_schemas.formula import Formula

from opscope_tools.kernels.cuda.names.values import UNKNOWN, UNTOLD, Type, Value, lane_step, told
from opscope_tools.kernels.cuda.run.state import State
from opscope_tools.kernels.cuda.syntax.nodes import (
    Call,
    Cast,
    Index,
    Member,
    Name,
    Node,
    Number,
    Unary,
    spelled,
    within,
)
from opscope_tools.kernels.run.events import Access, Space
from opscope_tools.kernels.run.log import MEMORY
from opscope_tools.kernels.values.notation import Counts

_DATA = frozenset({"data"})
_SPACES: dict[str, Space] = {"global": "global", "shared": "shared", "constant": "constant"}
#: what reading through a pointer into a memory reads
_WHERE = {"global": "global", "local": "", "shared": "shared", "constant": "constant", "parameter": ""}


def pointed(state: State, base: Value, varies: frozenset[str], step: Any) -> Value:
    """What a pointer or array leads to; `step`: how far the next lane's lies from it, in bytes."""
    kind = base.type.of or UNKNOWN
    where = _WHERE.get(base.space, "unknown")
    if base.type.kind == "array" and not base.space:
        where = ""
    inner = base.space if kind.kind == "array" else ""
    if kind.kind == "pointer":  # where a pointer in memory leads to: what the host hands over is global
        inner = "global" if base.space in {"global", "parameter"} else base.held or state.spaces.get(base.root, "")
    more = _DATA if where in {"global", "shared"} else frozenset[str]()
    return Value(
        kind, varies=varies | more, space=inner, where=where if kind.kind != "array" else "", root=base.root,
        step=told(step) if where or kind.kind == "array" or (base.space == "parameter" and step == 0) else UNTOLD, origin=base.origin, assumed=base.assumed,
    )  # fmt: skip


def read(state: State, found: Value, node: Node, operation: str = "load", written: Node | None = None) -> Value:
    """A place as a value; `written`: the address, where that is not the node."""
    if found.type.kind == "array" or not found.where:
        return found
    if found.where == "unknown":
        text = shown(node)
        state.missing(f"the access through `{text}`", node, MEMORY, text)
    else:
        access(state, node, found, "load", operation, written=written)
    step = 0 if lane_step(found) == 0 else UNTOLD
    return replace(
        found, where="", varies=found.varies | _DATA, digits=(), number=found.number if found.root else None, step=step
    )


def access(
    state: State, node: Node, found: Value, what: Literal["load", "store", "atomic", "copy"], operation: str = "",
    moved: tuple[str, str] | None = None, written: Node | None = None,
) -> None:  # fmt: skip
    """An access, listed and counted; `moved`: bytes read and written where they are not those of its type."""
    size = found.type.size
    _list(state, node, found, what, operation or what, written or node)
    if found.where != "global":
        return
    if moved is None and not size:
        state.missing(f"the {what} of `{shown(node)}`, of a size that is not told", node, MEMORY)
        return
    reads, writes = moved or ("" if what == "store" else size, "" if what in {"load", "copy"} else size)
    state.put(node, "load" if what == "copy" else what, read=reads, written=writes)


def _list(
    state: State,
    node: Node,
    found: Value,
    what: Literal["load", "store", "atomic", "copy"],
    operation: str,
    written: Node,
) -> None:
    if found.where not in _SPACES:
        return
    size = found.type.size
    step = _elements(lane_step(found), found.type, state.log.counts)
    state.log.met(
        Access(
            **state.at(node), what=what, operation=operation, space=_SPACES[found.where], roots=found.origin, element_bytes=size,
            text=spelled(written) or shown(written), steps=(step,) if step else (), width=int(size) if size.isdigit() else None,
            definition=_definition(state, written), assumes=found.assumed,
        )
    )  # fmt: skip


def _definition(state: State, node: Node) -> str:
    """How the variable from which an address starts was set."""
    for one in within(node):
        if isinstance(one, Name) and (found := state.scope.find(one.text)) is not None:
            if found.type.kind in {"pointer", "array", "object"}:
                return found.definition
        elif isinstance(one, Name) and (declared := state.scope.constant(one.text)).type.kind == "array":
            return declared.definition
    return ""


def shown(node: Node) -> str:
    """An expression as a reader recognises it."""
    match node:
        case Name(text=text) | Number(text=text):
            return text
        case Index(base=base):
            return f"{shown(base)}[...]"
        case Member(base=base, name=name, arrow=arrow):
            return f"{shown(base)}{'->' if arrow else '.'}{name}"
        case Call(function=function):
            return f"{shown(function)}(...)"
        case Unary(operator=operator, operand=operand):
            return f"{operator}{shown(operand)}"
        case Cast(operand=operand):
            return shown(operand)
    return "..."


def _elements(step: Any, kind: Type, counts: Counts) -> str:
    """A step in bytes as one in elements of a type; '' where it is not told or no whole number of them."""
    unit = counts.read(kind.size) if step is not None and kind.size else Formula.const(0)
    found = counts.read(step).divided(unit) if len(unit.terms) == 1 else None
    if found is None or any(c.denominator != 1 for c in found.terms.values()):
        return ""
    text = str(found)
    return "" if UNTOLD in text else text.replace("{", "").replace("}", "")


__all__ = ["access", "pointed", "read", "shown"]
