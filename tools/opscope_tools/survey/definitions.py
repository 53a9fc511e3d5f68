"""The classes and functions of one file, with what others ask of them: bases, decorators, methods, fields."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from opscope_tools.survey.effects import EffectReader
from opscope_tools.survey.facts import ClassFact, FieldFact, FunctionFact, Hit
from opscope_tools.survey.module import Function, Module, parameters_of, string

#: classes whose fields configure something
CONFIG_NAME = re.compile(
    r".*(Config|Configs|Configuration|Args|Arguments|Settings|Options|Params|Parameters)(Mixin|Base)?$"
)
#: characters of a docstring that are kept
_SAID = 240


class DefinitionReader:
    """The definitions of one file."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self._work = EffectReader(module).work()
        self._looping = {
            found[0]
            for node in (*module.all(ast.While), *module.all(ast.For), *module.all(ast.AsyncFor))
            if (found := module.function_at(node.lineno))
        }

    def classes(self) -> Iterator[ClassFact]:
        """Every class that is not inside a function, nested ones by their path."""
        for _, _, path, node in self.module.spans:
            if isinstance(node, ast.ClassDef):
                outer = self.module.around(node.lineno)[:-1]
                if all(isinstance(one, ast.ClassDef) for _, one in outer):
                    yield self._class(path, node)

    def functions(self) -> Iterator[FunctionFact]:
        """Every function at module level."""
        for _, _, path, node in self.module.spans:
            if "." not in path and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield self._function(path, node)

    def _class(self, path: str, node: ast.ClassDef) -> ClassFact:
        decorators = self._decorators(node.decorator_list)
        methods = tuple(
            self._function(f"{path}.{inner.name}", inner, configures=bool(CONFIG_NAME.match(node.name)))
            for inner in _direct(node.body) if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
        )  # fmt: skip
        metaclass = next((self.module.dotted(k.value) for k in node.keywords if k.arg == "metaclass"), "")
        return ClassFact(
            path, node.lineno, node.end_lineno or node.lineno, tuple(self._bases(node)), decorators, methods,
            tuple(self._fields(node)), metaclass, says=_says(node),
        )  # fmt: skip

    def _bases(self, node: ast.ClassDef) -> Iterator[str]:
        for base in node.bases:
            held = base.value if isinstance(base, ast.Subscript) else base
            if name := self.module.dotted(held):
                yield name

    def _fields(self, node: ast.ClassDef) -> Iterator[FieldFact]:
        """The annotated names of the body; of a configuration without public ones, what its constructor sets on self."""
        fields = [*self._annotated(node)]
        if all(field.name.startswith("_") for field in fields) and CONFIG_NAME.match(node.name):
            set_by_constructor = [*self._set_on_self(node)]
            fields = set_by_constructor or fields
        yield from fields

    def _annotated(self, node: ast.ClassDef) -> Iterator[FieldFact]:
        for statement in _direct(node.body):
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                annotation = self.module.text(statement.annotation, 60)
                if not annotation.startswith(("ClassVar", "typing.ClassVar")):
                    default = self.module.text(statement.value, 40)
                    yield FieldFact(statement.target.id, statement.lineno, annotation, default)

    def _set_on_self(self, node: ast.ClassDef) -> Iterator[FieldFact]:
        constructor = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        seen: set[str] = set()
        for statement in ast.walk(constructor) if constructor else ():
            if not isinstance(statement, ast.Assign) or not isinstance(target := statement.targets[0], ast.Attribute):
                continue
            name = target.attr
            if self.module.dotted(target) == f"self.{name}" and not name.startswith("_") and name not in seen:
                seen.add(name)
                yield FieldFact(name, target.lineno, "", self.module.text(statement.value, 40))

    def _function(self, path: str, node: Function, *, configures: bool = False) -> FunctionFact:
        decorators = self._decorators(node.decorator_list)
        parameters: tuple[FieldFact, ...] = ()
        if configures and node.name == "__init__":
            parameters = tuple(
                FieldFact(p.arg, p.lineno, self.module.text(p.annotation, 60))
                for p in parameters_of(node) if p.arg not in {"self", "cls"}
            )  # fmt: skip
        abstract = any(d.name.endswith("abstractmethod") for d in decorators) or _only_raises(node.body)
        return FunctionFact(
            path, node.lineno, node.end_lineno or node.lineno, decorators, parameters, abstract, path in self._looping,
            work=self._work.get(path), says=_says(node),
        )  # fmt: skip

    def _decorators(self, nodes: Sequence[ast.expr]) -> tuple[Hit, ...]:
        return tuple(
            Hit(self.module.dotted(n.func if isinstance(n, ast.Call) else n), n.lineno, self.module.text(n))
            for n in nodes
        )


def _says(node: ast.ClassDef | Function) -> str:
    """The first paragraph of a docstring on one line, cut; empty where there is none."""
    first = node.body[0]
    if not (isinstance(first, ast.Expr) and (text := string(first.value))):
        return ""
    return " ".join(text.strip().partition("\n\n")[0].split())[:_SAID]


def _direct(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a class body, those under an `if` or `try` included."""
    for statement in body:
        if isinstance(statement, ast.If):
            yield from _direct([*statement.body, *statement.orelse])
        elif isinstance(statement, ast.Try):
            yield from _direct([*statement.body, *statement.orelse, *statement.finalbody])
        else:
            yield statement


def _only_raises(body: Sequence[ast.stmt]) -> bool:
    """A body that holds a docstring and nothing but `...`, `pass` or `raise NotImplementedError`."""
    rest = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if not rest:
        return True
    if len(rest) > 1:
        return False
    if isinstance(rest[0], ast.Raise):
        error = rest[0].exc
        name = error.func if isinstance(error, ast.Call) else error
        return isinstance(name, ast.Name) and name.id == "NotImplementedError"
    return isinstance(rest[0], ast.Pass)
