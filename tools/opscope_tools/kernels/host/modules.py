"""Python files of a repository, parsed once: `PyModule` holds a file's tree, its nodes by kind and its top-level bindings,
`Modules` loads them by path or by a dotted name that leads to one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from opscope_schemas.common import Repository

from opscope_tools.source.files import read_text
from opscope_tools.source.python.imports import heads
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import SourceTree
from opscope_tools.source.python.trees import parsed

_COMPOUND = (ast.If, ast.For, ast.While, ast.Try, ast.With)


@dataclass
class PyModule:
    """One parsed file."""

    path: str
    tree: ast.Module
    #: local name -> dotted name it was imported from, anywhere in the file
    imports: dict[str, str] = field(default_factory=dict)
    #: whether names come from `import *` too
    stars: bool = False
    #: nodes of the whole file by kind, from one walk: walking is what reading a large repository spends its time on
    functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)
    strings: list[ast.Constant] = field(default_factory=list)
    _bindings: dict[str, list[ast.stmt]] | None = None

    def leads_to(self, name: str) -> str:
        """The dotted name that an import of the file may bind `name` to; empty where none does."""
        return self.imports.get(name) or (f"{self.dotted}.{name}" if self.stars else "")

    @property
    def dotted(self) -> str:
        """`liger_kernel.ops.utils` for `liger_kernel/ops/utils.py`."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.dotted if self.path.endswith("__init__.py") else self.dotted.rpartition(".")[0]

    def bindings(self, name: str) -> list[ast.stmt]:
        """Top-level statements that bind or change `name`, in order."""
        if self._bindings is None:
            table: dict[str, list[ast.stmt]] = {}
            for statement in self.tree.body:
                for bound in set(bound_names(statement)):
                    table.setdefault(bound, []).append(statement)
            self._bindings = table
        return self._bindings.get(name, [])


def with_defaults(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """The parameters of a function in order, each with its default where it has one."""
    spec = function.args
    plain = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults)) + list(spec.defaults)
    return [*zip(plain, defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]


def make_module(path: str, text: str) -> PyModule:
    """A file parsed, with its imports."""
    module = PyModule(path, parsed(text))
    statements: list[ast.Import | ast.ImportFrom] = []
    for node in _walk(module.tree):
        match node:
            case ast.Call():
                module.calls.append(node)
            case ast.Constant(value=str()):
                module.strings.append(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                module.functions.append(node)
            case ast.Import() | ast.ImportFrom():
                statements.append(node)
    module.stars = any(alias.name == "*" for node in statements for alias in node.names)
    module.imports = heads(module.tree, module.package, statements)
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
    """Loads the Python files of a repository; names lead where the import rules of source/python/names.py say."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._names = Resolver([SourceTree(repository)])
        self._loaded: dict[str, PyModule | None] = {}
        self._resolved: dict[tuple[str, str], tuple[PyModule, str] | None] = {}

    def load(self, path: str) -> PyModule | None:
        """The module at `path`, None where it is missing or does not parse."""
        if path not in self._loaded:
            text = read_text(self._repository, path)
            try:
                self._loaded[path] = None if text is None else make_module(path, text)
            except (SyntaxError, ValueError, RecursionError):
                self._loaded[path] = None
        return self._loaded[path]

    def resolve(self, dotted: str, beside: str = "") -> tuple[PyModule, str] | None:
        """The module and name that `package.module.name` leads to in the file `beside`, through re-exports."""
        asked = dotted, beside.rpartition("/")[0]
        if asked not in self._resolved:
            self._resolved[asked] = None
            if "." in dotted and (bound := self._names.bound(dotted, beside)) is not None:
                module = self.load(bound[0].file)
                self._resolved[asked] = (module, bound[1].name) if module is not None else None
        return self._resolved[asked]
