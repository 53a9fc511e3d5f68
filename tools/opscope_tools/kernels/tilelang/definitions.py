"""TileLang kernels of a Python file: every `with T.Kernel(...)`, and the functions around it.

A kernel is what one grid is opened for; a function may open several. It is named by the functions that it stands in,
outermost first (`matmul.main`), a second one of the same functions with a number (`matmul.main.2`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_tools.kernels.host.modules import Modules, PyModule
from opscope_tools.kernels.records import KernelRef
from opscope_tools.source.python.imports import chain

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Opened:
    """A grid, with the functions around it, outermost first."""

    name: str
    functions: tuple[FunctionNode, ...]
    block: ast.With
    call: ast.Call


def of_language(node: ast.expr, module: PyModule) -> str:
    """`copy` of `T.copy`, whichever door of a project leads to TileLang's language; '' of anything else."""
    dotted = chain(node, module.imports)
    where, _, last = dotted.rpartition(".")
    parts = where.split(".")
    return last if "tilelang" in where or parts[0] == "tvm" or parts[-1] == "T" else ""


def opened(module: PyModule) -> list[Opened]:
    """The grids of a file, in the order of its lines."""
    found = list(_grids(module.tree, (), module))
    times: Counter[str] = Counter()
    made = []
    for functions, block, call in found:
        name = ".".join(f.name for f in functions)
        times[name] += 1
        made.append(Opened(name if times[name] == 1 else f"{name}.{times[name]}", functions, block, call))
    return made


def _grids(
    node: ast.AST, functions: tuple[FunctionNode, ...], module: PyModule
) -> Iterator[tuple[tuple[FunctionNode, ...], ast.With, ast.Call]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _grids(child, (*functions, child), module)
        elif isinstance(child, ast.With) and functions and (call := grid_of(child, module)) is not None:
            yield functions, child, call
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            yield from _grids(child, functions, module)


def grid_of(block: ast.With, module: PyModule) -> ast.Call | None:
    """The `T.Kernel(...)` that a `with` opens."""
    for item in block.items:
        call = item.context_expr
        if isinstance(call, ast.Call) and of_language(call.func, module) == "Kernel":
            return call
    return None


def kernels(module: PyModule) -> Iterator[KernelRef]:
    """The kernels of a file as the inventory keeps them."""
    for one in opened(module):
        inner = one.functions[-1]
        yield KernelRef(
            name=one.name, language="tilelang", role="kernel", file=module.path, line=inner.lineno,
            end_line=inner.end_lineno or inner.lineno,
        )  # fmt: skip


def kernel_of(reference: KernelRef, modules: Modules) -> tuple[PyModule, Opened]:
    """A kernel's module and grid; raises `SourceError` where it is no longer where it was found."""
    module = modules.load(reference.file)
    for one in opened(module) if module is not None else ():
        if module is not None and one.name == reference.name and one.functions[-1].lineno == reference.line:
            return module, one
    raise reference.moved()


__all__ = ["FunctionNode", "Opened", "grid_of", "kernel_of", "kernels", "of_language", "opened"]
