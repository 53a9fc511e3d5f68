"""What class an expression's object is, as far as source says it: annotations, constructors, `self.x = Class(...)`.

Nothing is guessed: an expression that source leaves open has no class. More than one class means that source names
alternatives.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from opscope_tools.source.python.trees import expression_of
from opscope_tools.survey.facts import ClassFact, FileFacts
from opscope_tools.survey.holdings import STAND_INS, Definition, Holdings, at
from opscope_tools.survey.module import Function, parameters_of

_DEEPEST = 6
_NOTHING = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])


Setting = ast.Assign | ast.AnnAssign
#: generic containers whose first argument is what they hold, and calls that hand on what they are given
_HOLDS = {
    "list",
    "List",
    "deque",
    "Deque",
    "set",
    "Set",
    "Sequence",
    "Iterable",
    "Iterator",
    "tuple",
    "Tuple",
    "frozenset",
}
_HANDS_ON = {"list", "sorted", "reversed", "set", "tuple", "deque", "iter"}


def _loops(body: Sequence[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    """The names that loops of a body bind, each with the expression whose elements it takes."""
    for statement in body:
        if isinstance(statement, ast.For | ast.AsyncFor):
            yield from _bound(statement.target, statement.iter)
        for name in ("body", "orelse", "finalbody"):
            yield from _loops(getattr(statement, name, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from _loops(handler.body)


def _bound(target: ast.expr, taken: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, taken
    elif isinstance(target, ast.Tuple) and isinstance(taken, ast.Call) and isinstance(taken.func, ast.Name):
        if taken.func.id == "zip":
            for one, source in zip(target.elts, taken.args, strict=False):
                yield from _bound(one, source)
        elif taken.func.id == "enumerate" and len(target.elts) == 2 and taken.args:
            yield from _bound(target.elts[1], taken.args[0])


def assignments(body: Sequence[ast.stmt]) -> Iterator[Setting]:
    """The assignments of a body and of the statements in it; expressions are not gone through."""
    for statement in body:
        if isinstance(statement, Setting):
            yield statement
        for field_name in ("body", "orelse", "finalbody"):
            yield from assignments(getattr(statement, field_name, ()))
        for handler in getattr(statement, "handlers", ()):
            yield from assignments(handler.body)


@dataclass(frozen=True, eq=False)
class Target:
    """A function that a call runs: `owner` is the class of `self`, the most derived that is known."""

    held: Holdings
    file: FileFacts
    path: str
    line: int
    owner: Definition | None = None

    @property
    def key(self) -> tuple[str, str]:
        """(file, path in it), which tells definitions apart."""
        return self.file.path, self.path

    @property
    def at(self) -> str:
        """`file:line`, as answers give places."""
        return at(self.file.path, self.line)

    @cached_property
    def node(self) -> Function:
        """Its syntax tree, read when it is asked for; an empty function where the file has changed."""
        found = self.held.node(self.file.path, self.path)
        if isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            return found
        return ast.FunctionDef(self.path, _NOTHING, [], [], lineno=self.line)


@dataclass(eq=False)
class Frame:
    """A function that is being read: what its names stand for."""

    target: Target
    local: dict[str, list[ast.expr]] = field(default_factory=dict)
    annotated: dict[str, ast.expr] = field(default_factory=dict)
    #: name -> what a loop takes it from
    looped: dict[str, list[ast.expr]] = field(default_factory=dict)
    #: what tokens that were picked are bound to, as far as it was read
    picked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for bound, taken in _loops(self.target.node.body):
            self.looped.setdefault(bound, []).append(taken)
        for parameter in parameters_of(self.target.node):
            if parameter.annotation is not None:
                self.annotated[parameter.arg] = parameter.annotation
        for node in assignments(self.target.node.body):
            if isinstance(node, ast.Assign):
                for name in node.targets:
                    if isinstance(name, ast.Name):
                        self.local.setdefault(name.id, []).append(node.value)
            elif isinstance(node.target, ast.Name):
                self.annotated[node.target.id] = node.annotation


class Types:
    """Classes of expressions."""

    def __init__(self, held: Holdings) -> None:
        self.held = held
        self._attributes: dict[tuple[str, str], list[Definition]] = {}
        self._overriding: dict[tuple[str, str], list[Target]] = {}
        self._set: dict[str, dict[str, list[tuple[Function, Setting]]]] = {}

    def named(self, node: ast.expr | None, file: FileFacts) -> Definition | None:
        """The class or function that a plain or dotted name leads to in a file."""
        dotted = self.held.dotted(node, file)
        return self.held.definition(dotted, file) if dotted else None

    def annotation(self, node: ast.expr | None, file: FileFacts, *, classes: bool = False) -> list[Definition]:
        """Classes that an annotation names: `A`, `A | None`, `Optional[A]`, `"A"`; with `classes`, those of `type[A]`."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = expression_of(node.value)
        if isinstance(node, ast.BinOp):
            return self.annotation(node.left, file, classes=classes) + self.annotation(
                node.right, file, classes=classes
            )
        if isinstance(node, ast.Subscript):
            head = self.held.dotted(node.value, file).rpartition(".")[2]
            if head in {"type", "Type"}:
                return self.annotation(node.slice, file) if classes else []
            if head in {"Optional", "Annotated", "Union"}:
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                return [
                    one
                    for part in (parts[:1] if head == "Annotated" else parts)
                    for one in self.annotation(part, file, classes=classes)
                ]
            node = node.value
        found = self.named(node, file) if isinstance(node, ast.Name | ast.Attribute) and not classes else None
        return [found] if found is not None and isinstance(found.fact, ClassFact) else []

    def of(self, node: ast.expr, frame: Frame, depth: int = 0) -> list[Definition]:
        """The classes that the object of an expression may be of."""
        if depth > _DEEPEST:
            return []
        if isinstance(node, ast.Await):
            return self.of(node.value, frame, depth)
        if isinstance(node, ast.IfExp):
            return _distinct(self.of(node.body, frame, depth + 1) + self.of(node.orelse, frame, depth + 1))
        if isinstance(node, ast.BoolOp):
            return _distinct([one for value in node.values for one in self.of(value, frame, depth + 1)])
        if isinstance(node, ast.Name):
            return self._name(node.id, frame, depth)
        if isinstance(node, ast.Attribute):
            return _distinct(
                [
                    one
                    for owner in self.of(node.value, frame, depth + 1)
                    for one in self.attribute(owner, node.attr, depth + 1)
                ]
            )
        if isinstance(node, ast.Call):
            return self._made(node, frame, depth)
        return []

    def _name(self, name: str, frame: Frame, depth: int) -> list[Definition]:
        if name in {"self", "cls"} and frame.target.owner is not None:
            return [frame.target.owner]
        if name in frame.annotated:
            return self.annotation(frame.annotated[name], frame.target.file)
        found = [one for value in frame.local.get(name, []) for one in self.of(value, frame, depth + 1)]
        found += [one for taken in frame.looped.get(name, []) for one in self._elements(taken, frame, depth + 1)]
        return _distinct(found)

    def _elements(self, node: ast.expr, frame: Frame, depth: int) -> list[Definition]:
        """The classes of what a container holds, where the annotation of the container says it."""
        if depth > _DEEPEST:
            return []
        if isinstance(node, ast.BinOp):
            return self._elements(node.left, frame, depth + 1) + self._elements(node.right, frame, depth + 1)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "copy":
                return self._elements(node.func.value, frame, depth + 1)
            if isinstance(node.func, ast.Name) and node.func.id in _HANDS_ON and len(node.args) == 1:
                return self._elements(node.args[0], frame, depth + 1)
            return []
        if isinstance(node, ast.Name):
            said = frame.annotated.get(node.id)
            if said is not None:
                return self._held(said, frame.target.file)
            return [one for value in frame.local.get(node.id, []) for one in self._elements(value, frame, depth + 1)]
        if isinstance(node, ast.Attribute):
            owners = self.of(node.value, frame, depth + 1)
            return [
                one for owner in owners for said, file in self._said(owner, node.attr) for one in self._held(said, file)
            ]
        return []

    def _held(self, said: ast.expr | None, file: FileFacts) -> list[Definition]:
        """The classes that an annotation of a container says are in it: `list[A]`, `deque[A] | None`."""
        if isinstance(said, ast.Constant) and isinstance(said.value, str):
            return self._held(expression_of(said.value), file)
        if isinstance(said, ast.BinOp):
            return self._held(said.left, file) + self._held(said.right, file)
        if not isinstance(said, ast.Subscript):
            return []
        head = self.held.dotted(said.value, file).rpartition(".")[2]
        if head == "Optional":
            return self._held(said.slice, file)
        inside = said.slice.elts[0] if isinstance(said.slice, ast.Tuple) and said.slice.elts else said.slice
        return self.annotation(inside, file) if head in _HOLDS else []

    def _said(self, owner: Definition, name: str) -> list[tuple[ast.expr, FileFacts]]:
        """The annotations of an attribute, in the bodies and methods of the class and of its bases."""
        found: list[tuple[ast.expr, FileFacts]] = []
        for one in self.held.lineage(owner):
            node = self.held.node(one.file.path, one.fact.path)
            if not isinstance(node, ast.ClassDef):
                continue
            found += [
                (statement.annotation, one.file)
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and getattr(statement.target, "id", "") == name
            ]
            values = self.set_values(one, node, name, owner)
            found += [(value[0], one.file) for value, _ in values if isinstance(value, tuple)]
        return found[:1]

    def _made(self, call: ast.Call, frame: Frame, depth: int) -> list[Definition]:
        """What a call returns: an object of the class, or what the function's annotation says."""
        file = frame.target.file
        if isinstance(call.func, ast.Name):
            if call.func.id in frame.annotated:
                return self.annotation(frame.annotated[call.func.id], file, classes=True)
            if call.func.id == "cls" and frame.target.owner:
                return [frame.target.owner]
        found = self.named(call.func, file)
        if found is not None and isinstance(found.fact, ClassFact):
            return [found]
        if found is not None:
            node = self.held.node(found.file.path, found.fact.path)
            return self.annotation(getattr(node, "returns", None), found.file)
        if isinstance(call.func, ast.Attribute):
            owners = self.of(call.func.value, frame, depth + 1)
            named = self.named(call.func.value, file)  # a class method that makes an object
            owners += [named] if named is not None and isinstance(named.fact, ClassFact) else []
            for owner in owners:
                if method := self.method(owner, call.func.attr):
                    returns = method.node.returns
                    if (
                        isinstance(returns, ast.Name | ast.Constant)
                        and getattr(returns, "id", getattr(returns, "value", "")) == "Self"
                    ):
                        return [owner]
                    return self.annotation(returns, method.file)
        return []

    # attributes and methods of objects

    def attribute(self, owner: Definition, name: str, depth: int = 0) -> list[Definition]:
        """The classes of `object.name` for an object of `owner`, by what its class and its bases set."""
        key = (owner.at, name)
        if key not in self._attributes:
            self._attributes[key] = []  # an attribute may be set from itself
            self._attributes[key] = self._attribute(owner, name, depth)
        return self._attributes[key]

    def _attribute(self, owner: Definition, name: str, depth: int) -> list[Definition]:
        for one in self.held.lineage(owner):
            node = self.held.node(one.file.path, one.fact.path)
            if not isinstance(node, ast.ClassDef):
                continue
            for statement in node.body:
                if (
                    isinstance(statement, ast.AnnAssign)
                    and isinstance(statement.target, ast.Name)
                    and statement.target.id == name
                ):
                    return self.annotation(statement.annotation, one.file)
                if isinstance(statement, ast.FunctionDef) and statement.name == name and statement.decorator_list:
                    return self.annotation(statement.returns, one.file)  # a property
            found = [
                c for value, frame in self.set_values(one, node, name, owner) for c in self._value(value, frame, depth)
            ]
            if found:
                return _distinct([one for one in found if not STAND_INS.fullmatch(one.name)] or found)
        return []

    def _value(self, value: ast.expr | tuple[ast.expr], frame: Frame, depth: int) -> list[Definition]:
        if isinstance(value, tuple):
            return self.annotation(value[0], frame.target.file)
        return self.of(value, frame, depth + 1)

    def set_values(
        self, one: Definition, node: ast.ClassDef, name: str, owner: Definition
    ) -> list[tuple[ast.expr | tuple[ast.expr], Frame]]:
        """What `self.name` is set to in the methods of a class; an annotation comes as a tuple of one."""
        found: list[tuple[ast.expr | tuple[ast.expr], Frame]] = []
        for method, statement in self._settings(one, node).get(name, []):
            frame = Frame(Target(self.held, one.file, f"{one.fact.path}.{method.name}", method.lineno, owner))
            if isinstance(statement, ast.AnnAssign):
                found.append(((statement.annotation,), frame))
            if statement.value is not None:
                found.append((statement.value, frame))
        return found

    def _settings(self, one: Definition, node: ast.ClassDef) -> dict[str, list[tuple[Function, Setting]]]:
        """Attribute -> the statements of the class's methods that set it on self; each class is gone through once."""
        if one.at not in self._set:
            found: dict[str, list[tuple[Function, Setting]]] = {}
            for method in node.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
                    for statement in assignments(method.body):
                        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                            if (
                                isinstance(target, ast.Attribute)
                                and isinstance(target.value, ast.Name)
                                and target.value.id == "self"
                            ):
                                found.setdefault(target.attr, []).append((method, statement))
            self._set[one.at] = found
        return self._set[one.at]

    def method(self, owner: Definition, name: str) -> Target | None:
        """The method that `object.name()` runs for an object of exactly `owner`."""
        for one in self.held.lineage(owner):
            for method in one.fact.methods if isinstance(one.fact, ClassFact) else ():
                if method.name == name and not any(d.name.endswith("overload") for d in method.decorators):
                    return Target(self.held, one.file, method.path, method.line, owner)
        return None

    def overriding(self, owner: Definition, name: str) -> list[Target]:
        """The methods that objects of classes below `owner` run instead, stand-ins of tests left out."""
        known = self._overriding.get((owner.at, name))
        if known is not None:
            return known
        found: dict[tuple[str, str], Target] = {}
        for one in self.held.descendants(owner):
            fact = one.fact
            if not isinstance(fact, ClassFact) or self.held.demoted(one.file.path):
                continue
            if any(m.name == name and not m.abstract for m in fact.methods) and (target := self.method(one, name)):
                found[target.key] = target
        self._overriding[owner.at, name] = list(found.values())
        return self._overriding[owner.at, name]

    def is_abstract(self, target: Target) -> bool:
        """Whether the method only raises, or is declared abstract."""
        for one in target.file.classes:
            for method in one.methods:
                if method.path == target.path and method.line == target.line:
                    return method.abstract
        return False


def _distinct(found: list[Definition]) -> list[Definition]:
    return list({one.at: one for one in found}.values())
