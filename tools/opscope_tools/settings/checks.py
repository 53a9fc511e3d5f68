"""Assertions, raises, and tests of hardware and types in Python source.

A raise is spelt with the condition that triggers it: the tests around it within its function, those of `else` negated.
Every `assert` and every `raise` of the definitions asked for is given, once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from opscope_schemas.extracted_config import Check

from opscope_tools.settings.messages import Bound, said_within
from opscope_tools.source.python.trees import PythonSource, expression_of

__all__ = ["checks_of", "definitions_named"]

_CAPABILITY = re.compile(
    r"\b(get_device_capability|get_device_properties|has_device_capability|is_device_capability\w*|compute_capability|"
    r"is_\w+_available|is_cuda|is_hip|is_rocm|is_xpu|is_npu|is_cpu|is_tpu|is_cuda_alike|device_count|get_arch_list|"
    r"current_platform\.\w+|cuda_arch\w*|torch\.version\.(cuda|hip))\b"
)
_DTYPE = re.compile(r"\.dtype\b|\bdtype\b|torch\.(float|bfloat|int|uint|half|double)\w*")
_CALLS = {
    "static_assert": "static_assert", "device_assert": "device_assert", "_assert": "assert", "_check": "assert",
    "_check_is_size": "assert", "_check_value": "assert",
}  # fmt: skip
_VALIDATING = re.compile(
    r"(\w+\.)*(field_validator|model_validator|validator|root_validator|model_validate|validates)\b"
)
_CONFIGURATION = re.compile(r"(config|configuration|cfg|args|params|values|data)$")
_LIMIT = 400


@dataclass(frozen=True)
class _Around:
    """Where a statement stands: the tests of its function, and the path of the definition."""

    within: str
    tests: tuple[str, ...] = ()


def checks_of(source: PythonSource, paths: Collection[str] | None = None, names: Collection[str] = ()) -> list[Check]:
    """The checks of the file's definitions `paths` (all of the file where None), by line. `names` are parameters: each
    check says which of them it names."""
    if source.tree is None:
        return []
    wanted = set(paths) if paths is not None else None
    roots: Iterable[tuple[str, ast.AST]] = [("", source.tree)]
    if wanted is not None:
        tops = [(p, n) for p, n in source.definitions if p in wanted]
        roots = [(p, n) for p, n in tops if not any(p.startswith(f"{other}.") for other in wanted)]
    found: list[Check] = []
    for path, node in roots:
        reader = _Checks(source, set(names))
        reader.definition(node, path)
        found += reader.found
    return sorted(dict.fromkeys(found), key=lambda check: (check.line, check.kind))


def definitions_named(source: PythonSource, start: Collection[str]) -> list[str]:
    """Top-level definitions of the file that `start` lead to by name, `start` included."""
    bodies = {path: node for path, node in source.definitions if "." not in path}
    words = {path: {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} for path, node in bodies.items()}
    reached = [path for path in start if path in bodies]
    for path in reached:  # grows while it is walked
        functions = [
            p for p in words[path] if p in bodies and isinstance(bodies[p], ast.FunctionDef) and p not in reached
        ]
        reached += sorted(functions)
    return reached


class _Checks:
    def __init__(self, source: PythonSource, names: set[str]) -> None:
        self.source, self.names = source, names
        self.found: list[Check] = []
        self.bound = Bound()

    def definition(self, node: ast.AST, path: str) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._validator(node, path)
        body = getattr(node, "body", [])
        outside, self.bound = self.bound, self.bound.inside(node)
        self._block(body if isinstance(body, list) else [], _Around(path))
        self.bound = outside

    def _validator(self, node: ast.FunctionDef | ast.AsyncFunctionDef, path: str) -> None:
        decorated = [
            d for d in node.decorator_list if _VALIDATING.match(ast.unparse(d)) or ast.unparse(d).endswith(".validator")
        ]
        if "." not in path or not (decorated or node.name.startswith("validate_")):
            return
        named = [
            a.value for d in decorated if isinstance(d, ast.Call) for a in d.args
            if isinstance(a, ast.Constant) and isinstance(a.value, str)
        ]  # fmt: skip
        said = (ast.get_docstring(node) or "").split("\n", 1)[0]
        self._note("validator", node.lineno, path, ", ".join(named), said, [node, *decorated], more=named)

    def _block(self, statements: list[ast.stmt], around: _Around) -> None:
        for statement in statements:
            self._statement(statement, around)

    def _statement(self, node: ast.stmt, around: _Around) -> None:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            self.definition(node, f"{around.within}.{node.name}" if around.within else node.name)
            return
        if isinstance(node, ast.Assert):
            self._note("assert", node.lineno, around.within, self._text(node.test), self._message(node.msg), [node])
        elif isinstance(node, ast.Raise):
            self._raise(node, around)
        else:
            self._tested(node, around)
            self._called(node, around)
            self.bound.note(node)
        ways = self.bound.ways(node)
        for block, tests in self._blocks(node):
            with ways.one(block):
                self._block(block, _Around(around.within, (*around.tests, *tests)))
        ways.meet()

    def _blocks(self, node: ast.stmt) -> Iterator[tuple[list[ast.stmt], tuple[str, ...]]]:
        if isinstance(node, ast.If | ast.While):
            test = self._text(node.test)
            yield node.body, (test,)
            yield node.orelse, (f"not ({test})",)
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield node.body, (f"for {self._text(node.target)} in {self._text(node.iter)}",)
            yield node.orelse, ()
        elif isinstance(node, ast.With | ast.AsyncWith):
            yield node.body, ()
        elif isinstance(node, ast.Try | ast.TryStar):
            yield node.body, ()
            for handler in node.handlers:
                yield (
                    handler.body,
                    (f"on {self._text(handler.type)}" if handler.type is not None else "on any exception",),
                )
            yield node.orelse, ()
            yield node.finalbody, ()
        elif isinstance(node, ast.Match):
            for case in node.cases:
                guard = f" if {self._text(case.guard)}" if case.guard is not None else ""
                yield case.body, (f"{self._text(node.subject)} matches {ast.unparse(case.pattern)}{guard}",)

    def _raise(self, node: ast.Raise, around: _Around) -> None:
        error, message = self.bound.raised(node.exc)
        condition = (
            " and ".join(_bracketed(test) for test in around.tests) if len(around.tests) > 1 else "".join(around.tests)
        )
        self._note("raise", node.lineno, around.within, condition, message, [node], error=error, more=around.tests)

    def _tested(self, node: ast.stmt, around: _Around) -> None:
        """Tests of hardware, packages and types: in `if` and `while`, and what is kept of them; with what the code that
        depends on them says, or the name that keeps the answer."""
        test = isinstance(node, ast.If | ast.While)
        kept = isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
        for expression in _own_expressions(node) if test or kept else ():
            text = ast.unparse(expression)
            capable = _CAPABILITY.search(text) is not None
            typed = test and _DTYPE.search(text) and any(isinstance(n, ast.Compare) for n in ast.walk(expression))
            if capable or typed:
                kind = "capability" if capable else "dtype"
                said = said_within(node)
                self._note(kind, expression.lineno, around.within, self._text(expression), said, [expression])

    def _called(self, node: ast.stmt, around: _Around) -> None:
        for expression in _own_expressions(node):
            for call in ast.walk(expression):
                if (
                    not isinstance(call, ast.Call)
                    or not call.args
                    or not isinstance(call.func, ast.Attribute | ast.Name)
                ):
                    continue
                name = ast.unparse(call.func)
                last = name.rpartition(".")[2]
                kind = _CALLS.get(last, "")
                if kind and (last in {"static_assert", "device_assert"} or name.startswith("torch.")):
                    message = self._message(call.args[1]) if len(call.args) > 1 else ""
                    self._note(kind, call.lineno, around.within, self._text(call.args[0]), message, [call])

    def _note(
        self, kind: str, line: int, within: str, condition: str, message: str, nodes: list[ast.AST], *, error: str = "",
        more: Iterable[str] = (),
    ) -> None:  # fmt: skip
        words = {w for node in nodes for n in ast.walk(node) for w in _mentioned(n)}
        words |= {w for text in more for w in _words_of(text)}
        self.found.append(Check(
            kind=kind, condition=condition[:_LIMIT], message=message[:_LIMIT], error=error, within=within,
            file=self.source.path, line=line, names=tuple(sorted(words & self.names)),
        ))  # fmt: skip

    def _text(self, node: ast.AST | None) -> str:
        return "" if node is None else ast.unparse(node)

    def _message(self, node: ast.expr | None) -> str:
        return "" if node is None else self.bound.message(node)


def _own_expressions(node: ast.stmt) -> list[ast.expr]:
    """The expressions of a statement, without those of the statements inside it."""
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _mentioned(node: ast.AST) -> tuple[str, ...]:
    if isinstance(
        node, ast.Attribute
    ):  # of the object itself or of a configuration; a tensor's `dtype` is no parameter
        owner = ast.unparse(node.value).rpartition(".")[2]
        return (node.attr,) if owner in {"self", "cls"} or _CONFIGURATION.search(owner) else ()
    if isinstance(node, ast.Name):
        return (node.id,)
    return (node.value,) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ()


def _words_of(text: str) -> set[str]:
    """What a test or a field's name mentions; of text that is no expression nothing."""
    tree = expression_of(text)
    return {word for node in ast.walk(tree) for word in _mentioned(node)} if tree is not None else set()


def _bracketed(test: str) -> str:
    return f"({test})" if re.search(r"\b(or|if|lambda)\b", test) and not test.startswith(("not (", "for ")) else test
