"""One parsed Python file: its nodes by kind, what its names mean by its imports, which definition holds a line.

A file is parsed once and its nodes are gone through once; the readers (definitions.py, environment_reads.py, flag_reads.py,
markers.py) take what they want from here.
"""

from __future__ import annotations

import ast
import bisect
import re
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from opscope_tools.survey.facts import ImportFact

N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHOWN = 160
#: where a name in capitals may stand for a variable of the environment
CAPITALS = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[A-Z][A-Z0-9]{2,}")


def chain(node: ast.AST | None, heads: Mapping[str, str]) -> str:
    """`a.b.c` of an expression, its head as `heads` has it; empty where it is no chain of names."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([heads.get(node.id, node.id), *reversed(parts)])


class Module:
    """A parsed file. Raises `SyntaxError`, `ValueError` or `RecursionError` where it does not parse."""

    def __init__(self, path: str, text: str, name: str) -> None:
        self.path, self.name, self.source = path, name, text
        self.is_package = path.endswith("__init__.py")
        self.lines = text.splitlines()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # escapes that Python warns about are not ours
            self.tree = ast.parse(text)
        self._nodes: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        _sort(self.tree, self._nodes)
        self.aliases: dict[str, str] = {}
        self._dotted: dict[int, str] = {}
        self.imports = tuple(self._read_imports())
        self.spans: list[tuple[int, int, str, ast.AST]] = sorted(_spans(self.tree, ""), key=lambda span: span[:2])
        self._starts = [span[0] for span in self.spans]
        self.constants = dict(self._read_constants())

    def mentions(self, words: Iterable[str]) -> bool:
        """Whether the text holds one of the words: a search costs a hundredth of going through the nodes."""
        return any(word in self.source for word in words)

    def all(self, kind: type[N]) -> list[N]:
        """Every node of a kind, in no particular order."""
        return self._nodes[kind]  # type: ignore[return-value]  # kept by their very kind

    def line(self, number: int) -> str:
        """A line of source, stripped and cut."""
        text = self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""
        return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."

    def text(self, node: ast.AST | None, limit: int = 80) -> str:
        """The source of an expression on one line, cut."""
        if not isinstance(node, ast.expr | ast.arg) or node.end_lineno is None or node.end_col_offset is None:
            return ""
        lines = [line.encode() for line in self.lines[node.lineno - 1 : node.end_lineno]]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        text = " ".join(b" ".join(lines).decode("utf-8", "replace").split())
        return text if len(text) <= limit else text[: limit - 3] + "..."

    def dotted(self, node: ast.AST | None) -> str:
        """`a.b.c` with the head's import followed; empty where it is no plain chain of names."""
        known = self._dotted.get(id(node))  # calls are asked several times; the tree keeps every node alive
        if known is None:
            known = self._dotted[id(node)] = chain(node, self.aliases)
        return known

    def around(self, line: int) -> list[tuple[str, ast.AST]]:
        """The definitions that hold a line, the outermost first."""
        found = []
        last = bisect.bisect_right(self._starts, line)
        while last:
            last -= 1
            start, end, path, node = self.spans[last]
            if end >= line:
                found.append((path, node))
                if "." not in path:
                    break
            elif "." not in path and start < line:
                break
        return found[::-1]

    def within(self, line: int) -> str:
        """The path of the innermost definition that holds a line; empty at module level."""
        around = self.around(line)
        return around[-1][0] if around else ""

    def function_at(self, line: int) -> tuple[str, Function] | None:
        """The innermost function that holds a line."""
        for path, node in reversed(self.around(line)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                return path, node
        return None

    def _read_imports(self) -> Iterator[ImportFact]:
        optional = {
            id(child)
            for node in self.all(ast.Try) if node.handlers
            for statement in node.body for child in ast.walk(statement)
        }  # fmt: skip
        for node in sorted(self.all(ast.Import), key=_line):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                self.aliases[name] = alias.name if alias.asname else name
                yield ImportFact(alias.name, "", name, alias.lineno, node.lineno, id(node) in optional)
        for imported in sorted(self.all(ast.ImportFrom), key=_line):
            module = self.absolute(imported.module or "", imported.level)
            for alias in imported.names:
                self.aliases[alias.asname or alias.name] = f"{module}.{alias.name}"
                yield ImportFact(
                    module,
                    alias.name,
                    alias.asname or alias.name,
                    alias.lineno,
                    imported.lineno,
                    id(imported) in optional,
                )

    def absolute(self, module: str, level: int) -> str:
        """The module that a relative import names."""
        if not level:
            return module
        parts = self.name.split(".")
        drop = level - 1 if self.is_package else level
        base = parts[: len(parts) - drop] if drop <= len(parts) else []
        return ".".join([*base, module] if module else base)

    def _read_constants(self) -> Iterator[tuple[str, tuple[str, int]]]:
        """Strings in capitals that module-level names (`NAME`) and class attributes (`Class.NAME`) stand for, with lines."""
        bodies = [("", self.tree.body)]
        bodies += [(f"{path}.", node.body) for _, _, path, node in self.spans if isinstance(node, ast.ClassDef)]
        for prefix, statement in ((prefix, statement) for prefix, body in bodies for statement in body):
            if isinstance(statement, ast.Assign | ast.AnnAssign) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str) and CAPITALS.fullmatch(value):
                    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                    names = [target.id for target in targets if isinstance(target, ast.Name)]
                    yield from ((f"{prefix}{name}", (value, statement.value.lineno)) for name in names)


def _child_fields(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node that hold nodes with a place: neither names and values nor contexts and operators."""
    plain = {"ctx", "op", "ops", "id", "attr", "name", "asname", "arg", "module", "level", "kind", "conversion", "simple", "type_comment", "type_ignores", "is_async", "names", "n", "s", "cls", "rest", "kwd_attrs", "tag", "lineno"}  # fmt: skip
    fields = tuple(field for field in kind._fields if field not in plain)
    if kind in {ast.Constant, ast.MatchSingleton}:
        return ()
    return (*fields, "names") if kind in {ast.Import, ast.ImportFrom} else fields


_CHILDREN = {
    kind: _child_fields(kind) for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)
}
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def _sort(tree: ast.AST, nodes: defaultdict[type[ast.AST], list[ast.AST]]) -> None:
    """Every node below `tree` into `nodes` by kind: `ast.walk` without what holds nothing, at a third of its time."""
    pending = [tree]
    while pending:
        node = pending.pop()
        kind = node.__class__
        nodes[kind].append(node)
        for field in _CHILDREN[kind]:
            held = getattr(node, field)
            if held.__class__ is list:
                pending += [child for child in held if child is not None]
            elif held is not None:
                pending.append(held)


def _spans(node: ast.AST, prefix: str) -> Iterator[tuple[int, int, str, ast.AST]]:
    """(first line with decorators, last line, path, node) of every class and function."""
    pending = [(child, prefix) for field in _BODIES for child in getattr(node, field, ())]
    while pending:
        child, before = pending.pop()
        inner = before
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            path = f"{before}.{child.name}" if before else child.name
            first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            yield first, child.end_lineno or child.lineno, path, child
            inner = path
        for field in _BODIES:
            held = getattr(child, field, None)
            if held:
                pending += [(below, inner) for below in held]


def _line(node: ast.stmt) -> int:
    return node.lineno


def parameters_of(function: Function) -> list[ast.arg]:
    """Every parameter but the starred ones, in order."""
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def string(node: ast.AST | None) -> str | None:
    """The value of a string literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
