"""CuTe-DSL kernels of a Python file: functions and methods that `@cute.kernel` marks, and the calls that launch them.

What a kernel calls on the device (`@cute.jit`) is none, nor is the host function that launches it. A method is named with its
class (`Softmax.kernel`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_tools.kernels.host.modules import Modules, PyModule
from opscope_tools.kernels.records import KernelRef
from opscope_tools.source.python.imports import chain

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
#: classes that stand on one another
_DEPTH = 8
_KERNEL = re.compile(r"(^|\.)cute\.kernel$")


@dataclass(frozen=True)
class Marked:
    """A kernel, with the class that it is a method of, if it is one, and the function that launches it, if its file has one."""

    function: FunctionNode
    owner: ast.ClassDef | None
    #: the function that launches it, the class that this is a method of, and others of its file that do
    host: FunctionNode | None = None
    holder: ast.ClassDef | None = None
    others: tuple[FunctionNode, ...] = ()

    @property
    def name(self) -> str:
        """As the inventory has it."""
        return f"{self.owner.name}.{self.function.name}" if self.owner is not None else self.function.name


def is_kernel(function: ast.AST, module: PyModule) -> bool:
    """Whether `@cute.kernel` marks it."""
    return isinstance(function, FunctionNode) and any(
        _KERNEL.search(chain(d.func if isinstance(d, ast.Call) else d, module.imports)) for d in function.decorator_list
    )


def marked(module: PyModule) -> list[Marked]:
    """The kernels of a file, in the order of its lines."""
    functions = [f for f in module.functions if is_kernel(f, module)]
    if not functions:
        return []
    classes = [node for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef)]
    found = []
    for function in sorted(functions, key=lambda f: f.lineno):
        owner = next((one for one in classes if function in one.body), None)
        places: list[tuple[ast.ClassDef | None, FunctionNode]] = []
        if owner is not None:
            family = [owner, *(c for c in classes if _kin(c, owner, classes))]
            places = [(c, f) for c in family for f in c.body if isinstance(f, FunctionNode)]
        else:
            places = [(None, f) for f in module.functions]
        hosts = [(c, f) for c, f in places if _launches(f, function.name, owner is not None)]
        holder, host = hosts[0] if hosts else (None, None)
        found.append(Marked(function, owner, host, holder, tuple(f for _, f in hosts[1:])))
    return found


def _kin(one: ast.ClassDef, other: ast.ClassDef, classes: list[ast.ClassDef]) -> bool:
    """Whether of two classes of a file the one is made from the other."""
    return _made_from(one, other, classes) or _made_from(other, one, classes)


def _made_from(one: ast.ClassDef, other: ast.ClassDef, classes: list[ast.ClassDef], depth: int = 0) -> bool:
    names = {ast.unparse(base).rpartition(".")[2] for base in one.bases}
    above = [c for c in classes if c.name in names and c is not one]
    return depth < _DEPTH and (other in above or any(_made_from(c, other, classes, depth + 1) for c in above))


def launch_of(node: ast.Call) -> ast.Call | None:
    """The call of the kernel in `kernel(...).launch(...)`."""
    inner = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "launch" else None
    return inner if isinstance(inner, ast.Call) else None


def _launches(host: FunctionNode, name: str, method: bool) -> bool:
    """Whether a function launches the kernel of that name."""
    for node in ast.walk(host):
        inner = launch_of(node) if isinstance(node, ast.Call) else None
        called = ast.unparse(inner.func) if inner is not None else ""
        if called == (f"self.{name}" if method else name):
            return True
    return False


def kernels(module: PyModule) -> Iterator[KernelRef]:
    """The kernels of a file as the inventory keeps them."""
    for one in marked(module):
        yield KernelRef(
            name=one.name, language="cute_dsl", role="kernel", file=module.path, line=one.function.lineno,
            end_line=one.function.end_lineno or one.function.lineno,
        )  # fmt: skip


def kernel_of(reference: KernelRef, modules: Modules) -> tuple[PyModule, Marked]:
    """A kernel's module and definition; raises `SourceError` where it is no longer where it was found."""
    module = modules.load(reference.file)
    for one in marked(module) if module is not None else ():
        if module is not None and one.name == reference.name and one.function.lineno == reference.line:
            return module, one
    raise reference.moved()


__all__ = ["FunctionNode", "Marked", "is_kernel", "kernel_of", "kernels", "launch_of", "marked"]
