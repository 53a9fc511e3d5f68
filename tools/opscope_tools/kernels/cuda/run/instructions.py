"""What a line is put down as beside its cost: instructions, indices made of those of thread and block, sizes of tiles."""

from __future__ import annotations

import re
from collections.abc import Iterable

from opscope_tools.kernels.cuda.names.values import Value, literal
from opscope_tools.kernels.cuda.run.state import State
from opscope_tools.kernels.cuda.source_text import squeeze
from opscope_tools.kernels.cuda.syntax.nodes import (
    Alias,
    Assembly,
    Binary,
    Braced,
    Call,
    Declare,
    Index,
    Lambda,
    Member,
    Name,
    Node,
    Number,
    Unary,
    spelled,
    within,
)
from opscope_tools.kernels.run.events import Instruction, Mapping
from opscope_tools.kernels.run.log import Size
from opscope_tools.kernels.values.expressions import render

_NAMED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("TMA copy", r"cp\.async\.bulk|\bSM90_TMA\w*|\btma_(?:load|store)\w*|\bcp_async_bulk\w*"),
        (
            "cp.async",
            r"cp\.async(?!\.bulk)|\bcp_async(?!_bulk)\w*|__pipeline_memcpy_async|\bSM80_CP_ASYNC\w*|cuda::memcpy_async",
        ),
        ("ldmatrix", r"\bldmatrix\b|\bldsm\w*|\bSM75_U\w*_LDSM\w*"),
        ("stmatrix", r"\bstmatrix\b|\bSM90_U\w*_STSM\w*"),
        ("setmaxnreg", r"\bsetmaxnreg\b|\bwarpgroup_reg_(?:de)?alloc\b"),
        ("wgmma", r"\bwgmma\b|\bwarpgroup_(?!reg_)\w+|\bSM90_\w*GMMA\w*"),
        ("tcgen05", r"\btcgen05\b"),
        ("mma.sync", r"\bmma\.sync\b|\bmma_sync_\w+|\bSM80_\d+x\d+x\d+\w*"),
        ("wmma", r"\bwmma::(?:mma_sync|load_matrix_sync|store_matrix_sync)\b"),
        ("cute::gemm", r"\b(?:cute::gemm|FLASH_NAMESPACE::gemm\w*|flash::gemm\w*|gemm(?:_rs|_smem)?)\s*+[<(]"),
        ("cute::copy", r"\b(?:cute::copy|FLASH_NAMESPACE::copy\w*|flash::copy\w*)\s*+[<(]"),
        ("atomic", r"\batomic[A-Z]\w*\s*+\("),
        ("warp shuffle", r"\b__shfl\w*\s*+\("),
        ("barrier", r"\b__syncthreads\w*\s*+\(|\b__syncwarp\s*+\("),
        ("dot product", r"\b__dp4a\s*+\("),
    )
)
#: sizes that their own spelling tells
_CONSTANT = re.compile(r"k[A-Z]\w*|[A-Z][A-Z0-9_]{2,}|\w+::k[A-Z]\w*")
_INDICES = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})


def instructions(state: State, node: Node, text: str) -> None:
    """Those that a call (with its `(`), a type or the text of an `asm` stands for."""
    if "_" not in text and "." not in text and "gemm" not in text and "::" not in text and "atomic" not in text:
        return
    for name, pattern in _NAMED:
        if pattern.search(text):
            state.log.met(Instruction(**state.at(node), operation=name, text=_statement(state)))


def instructions_of_type(state: State, node: Declare | Alias) -> None:
    """Put down the hardware instructions that a declared type stands for."""
    if node.type is not None and node.type.arguments:
        instructions(state, node, f"{node.type.name}<{', '.join(node.type.arguments)}>")
    elif node.type is not None:
        instructions(state, node, node.type.name)


def _statement(state: State) -> str:
    """The statement that is run, on one line; of assembly with its text."""
    node = state.statement
    if isinstance(node, Assembly):
        source = state.scope.function.code.source.original[node.position : node.end]
        return squeeze(re.sub(r"//[^\n]*|/\*.*?\*/", "", source, flags=re.DOTALL))[:240]
    return spelled(node)[:240]


def maps(state: State, node: Node, name: str, value: Node, made: Value) -> None:
    """Put down a line that makes an index of those of thread and block."""
    parts = list(within(value))
    asked = _ids_in(parts)
    used = {one.text for one in parts if isinstance(one, Name)}
    if not asked and not (used & state.indices and _is_arithmetic(value)):
        return
    if made.type.kind != "pointer":
        state.indices.add(name)
    text = spelled(value)
    state.log.met(Mapping(**state.at(node), axis=", ".join(asked), variable=name, text=text))
    if any(axis.startswith("blockIdx") for axis in asked) or used & state.indices:
        factors = [
            side for one in parts if isinstance(one, Binary) and one.operator == "*" for side in (one.left, one.right)
        ]  # fmt: skip
        measures(state, node, factors, f"{name} = {text}")


def used_in_place(state: State, node: Node, axis: str) -> None:
    """Put down an index of the grid or block that no variable holds."""
    state.log.met(Mapping(**state.at(node), axis=axis, variable="", text=_statement(state)))


def measures(state: State, node: Node, parts: Iterable[Node], use: str) -> None:
    """Put down the compile-time names that measure a tile."""
    for one in parts:
        name = _constant_name(one)
        if name in state.scope.compile_time or _CONSTANT.fullmatch(name):
            measure(state, name, state.line(node), use, one)


def measure(state: State, name: str, line: int, use: str, node: Node) -> None:
    """Note that a name or number measures something (`use`), once for each use; not inside of called functions."""
    if state.via:
        return
    found = literal(node.text) if isinstance(node, Number) else state.scope.find(name) or state.scope.constant(name)
    shown = "" if found.number is None else render(found.number).strip("{}")
    state.log.sizes.setdefault(name, Size({}, shown if shown != name else "")).uses.setdefault(use[:160], line)


def _constant_name(node: Node) -> str:
    """The name that a node is written as: its own, or that of the macro which stands for a number."""
    if isinstance(node, Name):
        return node.text
    if isinstance(node, Number) and node.tokens is not None:
        return node.tokens[0][node.tokens[1]].written or ""
    return ""


def _ids_in(parts: Iterable[Node]) -> list[str]:
    """The indices of thread and block, and their sizes, that the nodes of an expression ask for."""
    found: dict[str, None] = {}
    for one in parts:
        if isinstance(one, Member) and isinstance(one.base, Name) and one.base.text in _INDICES:
            found.setdefault(f"{one.base.text}.{one.name}")
        elif isinstance(one, Member) and isinstance(one.base, Call) and isinstance(one.base.function, Member):
            group = {"thread_index": "threadIdx", "group_index": "blockIdx"}.get(one.base.function.name)
            if group is not None:
                found.setdefault(f"{group}.{one.name}")
        elif isinstance(one, Call) and isinstance(one.function, Member) and one.function.name == "thread_rank":
            found.setdefault("thread_rank()")
        elif isinstance(one, Name) and one.text in {"cluster_ctarank", "get_group_id", "get_global_id"}:
            found.setdefault(one.text)
    return list(found)


def _is_arithmetic(node: Node) -> bool:
    """Index arithmetic: no access, no call but minima and maxima."""
    for one in within(node):
        if isinstance(one, Index | Lambda | Braced) or (isinstance(one, Unary) and one.operator in {"*", "&"}):
            return False
        if isinstance(one, Call) and not (
            isinstance(one.function, Name) and one.function.text.rpartition("::")[2] in {"min", "max", "__umulhi"}
        ):
            return False
    return True


__all__ = ["instructions", "instructions_of_type", "maps", "measure", "measures", "used_in_place"]
