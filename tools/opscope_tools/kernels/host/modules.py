"""Python files of a repository, parsed once and found by their dotted name, without importing any.

`PyModule` holds a file's tree, its import table and its top-level bindings; `Modules` loads them and resolves an
absolute or relative dotted name to the module that defines it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from opscope_schemas.common import Repository

_COMPOUND = (ast.If, ast.For, ast.While, ast.Try, ast.With)


@dataclass
class PyModule:
    """One parsed file."""

    path: str
    tree: ast.Module
    #: local name -> dotted name it was imported from, anywhere in the file
    imports: dict[str, str] = field(default_factory=dict)
    #: nodes of the whole file by kind, from one walk: walking is what reading a large repository spends its time on
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    assignments: list[ast.Assign] = field(default_factory=list)
    strings: list[ast.Constant] = field(default_factory=list)
    _bindings: dict[str, list[ast.stmt]] | None = None

    @property
    def dotted(self) -> str:
        """`liger_kernel.ops.utils` for `liger_kernel/ops/utils.py`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def bindings(self, name: str) -> list[ast.stmt]:
        """Top-level statements that bind or change `name`, in order."""
        if self._bindings is None:
            table: dict[str, list[ast.stmt]] = {}
            for statement in self.tree.body:
                for bound in set(bound_names(statement)):
                    table.setdefault(bound, []).append(statement)
            self._bindings = table
        return self._bindings.get(name, [])


def parse_python(text: str) -> ast.Module:
    """The tree; raises `SyntaxError`. Warnings about the analysed source's own literals are not ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def make_module(path: str, text: str) -> PyModule:
    """A file parsed, with its imports."""
    module = PyModule(path, parse_python(text))
    package = module.dotted if path.endswith("__init__.py") else module.dotted.rpartition(".")[0]
    for node in _walk(module.tree):
        match node:
            case ast.Call():
                module.calls.append(node)
            case ast.Constant(value=str()):
                module.strings.append(node)
            case ast.Assign():
                module.assignments.append(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                module.functions.append(node)
            case ast.Import() | ast.ImportFrom():
                _import(module, node, package)
    return module


_LEAVES = (ast.expr_context, ast.operator, ast.unaryop, ast.cmpop, ast.boolop)


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node in breadth-first order, as `ast.walk` but without the nodes that carry nothing."""
    level: list[ast.AST] = [tree]
    while level:
        below: list[ast.AST] = []
        for node in level:
            yield node
            for name in node._fields:
                value = getattr(node, name, None)
                if isinstance(value, list):
                    below.extend(item for item in value if isinstance(item, ast.AST))
                elif isinstance(value, ast.AST) and not isinstance(value, _LEAVES):
                    below.append(value)
        level = below


def _import(module: PyModule, node: ast.Import | ast.ImportFrom, package: str) -> None:
    """Enter the names that an import binds."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            top = alias.name if alias.asname else alias.name.split(".")[0]
            module.imports.setdefault(alias.asname or top, top)
        return
    base = node.module or ""
    if node.level:
        parts = package.split(".") if package else []
        parts = parts[: len(parts) - (node.level - 1)] if node.level > 1 else parts
        base = ".".join([*parts, base] if base else parts)
    for alias in node.names:
        module.imports.setdefault(alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name)


def bound_names(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement binds or changes, inside compound statements but not inside functions."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _targets(target)
    elif isinstance(statement, ast.AnnAssign | ast.AugAssign):
        yield from _targets(statement.target)
    elif isinstance(statement, ast.Expr):
        call = statement.value
        method = call.func if isinstance(call, ast.Call) else None
        changing = isinstance(method, ast.Attribute) and method.attr in {"append", "extend", "insert", "update"}
        if changing and isinstance(method, ast.Attribute) and isinstance(method.value, ast.Name):
            yield method.value.id
    elif isinstance(statement, _COMPOUND):
        if isinstance(statement, ast.For):
            yield from _targets(statement.target)
        for block in blocks(statement):
            for inner in block:
                yield from bound_names(inner)


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _targets(element)
    elif isinstance(target, ast.Starred | ast.Subscript):
        yield from _targets(target.value)


def blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    """The statement lists of a compound statement."""
    found = [getattr(statement, name) for name in ("body", "orelse", "finalbody") if getattr(statement, name, None)]
    return found + [handler.body for handler in getattr(statement, "handlers", [])]


class Modules:
    """Loads modules by dotted name or path; `read` returns a file's text, or None."""

    def __init__(self, repository: Repository, read: Callable[[str], str | None]) -> None:
        self._repository = repository
        self._read = read
        self._loaded: dict[str, PyModule | None] = {}

    def load(self, path: str) -> PyModule | None:
        """The module at `path`, None where it is missing or does not parse."""
        if path not in self._loaded:
            text = self._read(path)
            try:
                self._loaded[path] = None if text is None else make_module(path, text)
            except (SyntaxError, ValueError, RecursionError):
                self._loaded[path] = None
        return self._loaded[path]

    def find(self, dotted: str, beside: str = "") -> PyModule | None:
        """The module of that dotted name; a checkout may keep packages below `src`, or beside the importing file."""
        if not dotted:
            return None
        relative = dotted.replace(".", "/")
        for root in self._roots(beside, dotted.split(".")[0]):
            for candidate in (f"{root}{relative}.py", f"{root}{relative}/__init__.py"):
                if (module := self.load(candidate)) is not None:
                    return module
        return None

    def _roots(self, beside: str, top: str) -> Iterator[str]:
        """Prefixes at which the top package may lie: the root, `src`, then the folders above the importing file."""
        yield ""
        yield "src/"
        parts = Path(beside).parts[:-1]
        for depth in range(len(parts), 0, -1):
            if parts[depth - 1] == top:
                yield "".join(f"{p}/" for p in parts[: depth - 1])
        for depth in range(len(parts), 0, -1):
            yield "".join(f"{p}/" for p in parts[:depth])

    def resolve(self, dotted: str, beside: str = "", depth: int = 6) -> tuple[PyModule, str] | None:
        """The module and name that `package.module.name` leads to, through re-exports."""
        base, _, name = dotted.rpartition(".")
        module = self.find(base, beside)
        if module is None or depth == 0:
            return None
        if not module.bindings(name) and name in module.imports and module.imports[name] != dotted:
            return self.resolve(module.imports[name], module.path, depth - 1)
        return (module, name) if module.bindings(name) else None
