"""One parsed Python file: its nodes by kind, what its names mean by its imports, which definition holds a line.

A file is parsed once and its nodes are gone through once; the readers (definitions.py, environment_reads.py, flag_reads.py,
markers.py) take what they want from here.
"""

from __future__ import annotations

import ast
import bisect
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any, TypeVar

from opscope_tools.source.python.imports import chain, exports, heads, imported, standing
from opscope_tools.source.python.trees import Definition, parsed
from opscope_tools.survey.facts import ImportFact

N = TypeVar("N", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_SHOWN = 160
#: where a name in capitals may stand for a variable of the environment
CAPITALS = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+|[A-Z][A-Z0-9]{2,}")


class Module:
    """A parsed file. Raises `SyntaxError`, `ValueError` or `RecursionError` where it does not parse."""

    def __init__(self, path: str, text: str, name: str) -> None:
        self.path, self.name, self.source = path, name, text
        self.is_package = path.endswith("__init__.py")
        self.lines = text.splitlines()
        self.tree = parsed(text)
        self._nodes: defaultdict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        _sort(self.tree, self._nodes)
        self._dotted: dict[int, str] = {}
        self._guards = {node: guard for guard, node in standing(self.tree.body)}
        self.exports = exports(self._guards)
        #: of definitions under a condition, by line
        self.guards = {
            node.lineno: guard
            for node, guard in self._guards.items()
            if guard.condition and isinstance(node, Definition)
        }
        self.imports = tuple(self._read_imports())
        self.spans: list[tuple[int, int, str, Definition]] = [*self._read_spans()]
        self._starts = [span[0] for span in self.spans]
        self.constants = dict(self._read_constants())

    def mentions(self, words: Iterable[str]) -> bool:
        """Whether the code holds one of the words in a name (`.word` in an attribute): cheap, it spares going through the nodes."""
        return any(word in self._spelt for word in words)

    @cached_property
    def _spelt(self) -> str:
        """Every name of the code once: a tenth of the text, and neither strings nor comments."""
        spelt = {node.id for node in self.all(ast.Name)} | {f".{node.attr}" for node in self.all(ast.Attribute)}
        spelt |= {keyword.arg for keyword in self.all(ast.keyword) if keyword.arg}
        spelt |= {f"{one.module}.{one.member} {one.name}" for one in self.imports}
        return " ".join((*spelt, ""))  # each is followed by a space, so that `word ` asks for its end

    @cached_property
    def calls(self) -> list[tuple[ast.Call, str]]:
        """Every call with the dotted name of what it calls."""
        return [(call, self.dotted(call.func)) for call in self.all(ast.Call)]

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
        if node.__class__ is ast.Name:
            return self.aliases.get(node.id, node.id)
        known = self._dotted.get(id(node))  # chains are asked several times; the tree keeps every node alive
        if known is None:
            known = self._dotted[id(node)] = chain(node, self.aliases)
        return known

    def around(self, line: int) -> list[tuple[str, Definition]]:
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

    def _read_spans(self) -> Iterator[tuple[int, int, str, Definition]]:
        """(first line with decorators, last line, path, node) of every class and function, in the order of lines."""
        kinds: tuple[type[Definition], ...] = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        definitions = sorted((node for kind in kinds for node in self.all(kind)), key=_line)
        around: list[tuple[int, str]] = []  # last line and path of the definitions that are open
        for node in definitions:
            while around and around[-1][0] < node.lineno:
                around.pop()
            path = f"{around[-1][1]}.{node.name}" if around else node.name
            last = node.end_lineno or node.lineno
            around.append((last, path))
            yield min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), last, path, node

    def _read_imports(self) -> Iterator[ImportFact]:
        found: list[ast.Import | ast.ImportFrom] = [*self.all(ast.Import), *self.all(ast.ImportFrom)]
        nodes = sorted(found, key=_line)
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        self.aliases = heads(self.tree, package, nodes)
        tried = [(node.body[0].lineno, node.body[-1].end_lineno or 0) for node in self.all(ast.Try) if node.handlers]
        for node in nodes:
            optional = any(first <= node.lineno <= last for first, last in tried)
            for one in imported(node, package):
                guard = self._guards.get(node)
                yield ImportFact(*one, node.lineno, optional, guard)

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


def _getter(kind: type[ast.AST]) -> Callable[[ast.AST], object] | None:
    """What gives the children of a node of a kind: one field or list, or several in a tuple; None where it has none."""
    fields = _child_fields(kind)
    return attrgetter(*fields) if fields else None


_CHILDREN = {kind: _getter(kind) for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)}


def _sort(tree: ast.AST, nodes: defaultdict[type[ast.AST], list[ast.AST]]) -> None:
    """Every node below `tree` into `nodes` by kind: `ast.walk` without what holds nothing, at a fifth of its time.

    Written for speed, since it runs for every node of every file: leaves, half of all nodes, never wait for their turn.
    """
    children = _CHILDREN
    nodes[tree.__class__].append(tree)
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        held = children[node.__class__](node)  # type: ignore[misc]  # only nodes that have children wait here
        for one in held if held.__class__ is tuple else (held,):
            if one.__class__ is list:
                for child in one:
                    if child is not None:
                        nodes[child.__class__].append(child)
                        if children[child.__class__] is not None:
                            pending.append(child)
            elif one is not None:
                nodes[one.__class__].append(one)
                if children[one.__class__] is not None:
                    pending.append(one)


def _line(node: ast.stmt) -> int:
    return node.lineno


def parameters_of(function: Function) -> list[ast.arg]:
    """Every parameter but the starred ones, in order."""
    arguments = function.args
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]


def string(node: ast.AST | None) -> str | None:
    """The value of a string literal; None for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
