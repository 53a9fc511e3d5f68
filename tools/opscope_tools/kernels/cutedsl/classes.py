"""Classes of a CuTe-DSL program: what they are made from, their functions, and the fields of dataclasses."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

from opscope_tools.kernels.cutedsl.definitions import FunctionNode
from opscope_tools.kernels.cutedsl.values import Class, Instance, Method, Partial
from opscope_tools.kernels.host.evaluate import Scope
from opscope_tools.kernels.host.worlds import Function, UnresolvedError
from opscope_tools.kernels.values.expressions import Quantity


class Classes(ABC):
    """The classes of a run."""

    def __init__(self) -> None:
        #: classes with those that they are made from, by what tells them apart
        self._lines: dict[tuple[int, int], tuple[Class, list[Class]]] = {}

    @abstractmethod
    def eval(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression."""

    @abstractmethod
    def _run(self, function: Function, values: dict[str, Any], owner: Class | None, instance: Instance | None) -> Any:
        """What a function of a class gives."""

    def _bases(self, of: Class) -> list[Class]:
        """The class and those that it is made from, in the order in which Python looks through them."""
        key = id(of.node), id(of.scope)
        if key not in self._lines:
            self._lines[key] = of, self._line(of)
        return self._lines[key][1]

    def _line(self, of: Class) -> list[Class]:
        lines = []
        for base in of.node.bases:
            with suppress(UnresolvedError):
                value = self.eval(base, of.scope)
                if isinstance(value, Class) and value.node is not of.node:
                    lines.append(self._bases(value))
        lines.append([line[0] for line in lines])
        found = [of]
        while lines := [line for line in lines if line]:
            heads = [line[0] for line in lines]
            behind = [one.node for line in lines for one in line[1:]]
            first = next((head for head in heads if head.node not in behind), heads[0])
            found.append(first)
            lines = [[one for one in line if one.node is not first.node] for line in lines]
        return found

    def _method(self, of: Class, name: str, *, behind: Class | None = None) -> tuple[Class, Function] | None:
        """A function of a class, and the class that has it; `behind`: of those that come after this one."""
        line = self._bases(of)
        start = next((place + 1 for place, one in enumerate(line) if behind is not None and one.node is behind.node), 0)
        for each in line[start:]:
            for statement in each.node.body:
                if isinstance(statement, FunctionNode) and statement.name == name:
                    return each, Function(statement, each.scope)
        return None

    def _member(self, instance: Instance, name: str) -> Any:
        if name in instance.values:
            return instance.values[name]
        found = self._method(instance.of, name)
        if found is not None:
            owner, function = found
            kind = kind_of(function)
            if kind == "property":
                return self._run(function, {}, owner, instance)
            return Method(function, owner, instance) if not kind else bound_to(function, kind, instance.of)
        held = self._of_class(instance.of, name)
        return held[0] if held is not None else Quantity(instance.attribute(name))

    def _of_class(self, of: Class, name: str) -> tuple[Any] | None:
        for each in self._bases(of):
            for statement in each.node.body:
                if isinstance(statement, ast.Assign):
                    target: ast.expr | None = statement.targets[0]
                else:
                    target = statement.target if isinstance(statement, ast.AnnAssign) else None
                value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
                if isinstance(target, ast.Name) and target.id == name and value is not None:
                    return (self.eval(field_default(value), each.scope),)
        return None

    def _fields_of(self, of: Class) -> dict[str, tuple[ast.AnnAssign, Class]]:
        """The fields of a dataclass, those of what it is made from first."""
        found: dict[str, tuple[ast.AnnAssign, Class]] = {}
        for each in reversed(self._bases(of)):
            for statement in each.node.body if each.is_dataclass else ():
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                    found[statement.target.id] = statement, each
        return found

    def _after_init(self, made: Instance) -> None:
        found = self._method(made.of, "__post_init__")
        if found is not None:
            self._run(found[1], {}, found[0], made)


def kind_of(function: Function) -> str:
    """What a method is by its decorators; '' of one that is bound to its object."""
    names = {ast.unparse(d).rpartition(".")[2] for d in getattr(function.node, "decorator_list", [])}
    if names & {"property", "cached_property"}:
        return "property"
    return next((name for name in ("staticmethod", "classmethod") if name in names), "")


def field_default(node: ast.expr) -> ast.expr:
    """What a field of a dataclass is by default: 96 of `field(default=96)`."""
    if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "field":
        return next((k.value for k in node.keywords if k.arg == "default"), node)
    return node


def bound_to(function: Function, kind: str, of: Class) -> Any:
    """A function of a class as the class itself gives it: with the class in the first place of a class method."""
    return Partial(function, [of], {}) if kind == "classmethod" else function


__all__ = ["Classes", "bound_to", "field_default", "kind_of"]
