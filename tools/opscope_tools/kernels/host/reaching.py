"""Values of names at a point of host code: the caller of a kernel.

`HostScope` finds the assignment that reaches the point (the last before it that is not on another branch), evaluates it
at its own place, and asks the oracle where an assignment only holds on one branch. A name whose definition is no
arithmetic stays itself, `{name}`, with the definition kept for the reader.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.host.interpreter import Interpreter, ModuleScope, Scope
from opscope_tools.kernels.host.modules import PyModule, bound_names
from opscope_tools.kernels.host.worlds import DroppedError, Function, Meta, UnresolvedError
from opscope_tools.kernels.values.expressions import Opaque, Quantity, leaf
from opscope_tools.kernels.values.notation import read_size

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef

#: (compound statement, which of its blocks) from the outside in
Branch = tuple[tuple[ast.stmt, str], ...]


@dataclass(frozen=True)
class Place:
    """A statement of a function body: its order and the branches around it."""

    order: int
    branch: Branch
    statement: ast.stmt


def places(body: list[ast.stmt], branch: Branch = (), counter: list[int] | None = None) -> Iterator[Place]:
    """Every statement below `body` in textual order, functions not entered."""
    counter = counter if counter is not None else [0]
    for statement in body:
        counter[0] += 1
        yield Place(counter[0], branch, statement)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            block = getattr(statement, name, None)
            if isinstance(block, list):
                yield from places(block, (*branch, (statement, name)), counter)
        for index, handler in enumerate(getattr(statement, "handlers", [])):
            yield from places(handler.body, (*branch, (statement, f"handler{index}")), counter)
        for index, case in enumerate(getattr(statement, "cases", [])):
            yield from places(case.body, (*branch, (statement, f"case{index}")), counter)


@dataclass
class HostFunction:
    """A function (or a module's top level) with its assignments by name."""

    node: FunctionNode | ast.Module
    definitions: dict[str, list[Place]] = field(default_factory=dict)
    all_places: list[Place] = field(default_factory=list)

    @classmethod
    def of(cls, node: FunctionNode | ast.Module) -> HostFunction:
        """A function or module with its places in order."""
        host = cls(node)
        for place in places(node.body):
            host.all_places.append(place)
            if isinstance(place.statement, ast.If | ast.Try | ast.With | ast.While):
                continue
            names = bound_names(place.statement)
            if isinstance(place.statement, ast.For):
                names = (n.id for n in ast.walk(place.statement.target) if isinstance(n, ast.Name))
            for name in set(names):
                host.definitions.setdefault(name, []).append(place)
        return host

    def place_of(self, node: ast.AST) -> Place | None:
        """The innermost statement that holds `node`."""
        line = getattr(node, "lineno", 0)
        best = None
        for place in self.all_places:
            if place.statement.lineno <= line <= (place.statement.end_lineno or 0):
                best = place
        return best

    def default(self, name: str) -> ast.expr | None:
        """The default of a parameter."""
        if isinstance(self.node, ast.Module):
            return None
        spec = self.node.args
        plain = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        found: dict[str, ast.expr | None] = dict(
            zip(plain[len(plain) - len(spec.defaults) :], spec.defaults, strict=True)
        )
        found.update(zip((a.arg for a in spec.kwonlyargs), spec.kw_defaults, strict=True))
        return found.get(name)

    def parameters(self) -> set[str]:
        """Names of all parameters, starred ones included; none of a module."""
        if isinstance(self.node, ast.Module):
            return set()
        spec = self.node.args
        extra = [a.arg for a in (spec.vararg, spec.kwarg) if a]
        return {*(a.arg for a in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)), *extra}


class HostScope:
    """Names as the point `place` of a function sees them; `bare` names stand for the kernel's own constants,
    `tiles` are host variables that are passed as one of its tile sizes."""

    def __init__(
        self,
        module: PyModule,
        chain: list[HostFunction],
        place: Place | None,
        bare: frozenset[str] = frozenset(),
        tiles: dict[str, str] | None = None,
    ):
        self.module = module
        self.chain = chain
        self.place = place
        self.bare = bare
        self.tiles = tiles or {}
        self.used: dict[str, str] = {}
        self.root = self
        self._active: set[tuple[str, int]] = set()

    def at(self, place: Place, depth: int) -> HostScope:
        """The same point of view, moved to a definition in the function `depth` levels out."""
        moved = copy.copy(self)
        moved.chain, moved.place = self.chain[depth:], place
        return moved

    def lookup(self, name: str, run: Interpreter) -> Any:
        """The value that reaches the launch; a name in `bare` or `tiles` stands for itself."""
        if name in self.bare:
            return Opaque(name)
        if name in self.tiles:
            return read_size(self.tiles[name])
        for depth, host in enumerate(self.chain):
            place = self.place if depth == 0 else host.place_of(self.chain[depth - 1].node)
            if name in host.definitions:
                return self._reaching(name, host, place, depth, run)
            if name in host.parameters():
                return self._free(name, host)
        return ModuleScope(self.module).lookup(name, run)

    def _free(self, name: str, _host: HostFunction) -> Any:
        """What a parameter of the function stands for."""
        return leaf(name)

    def _reaching(self, name: str, host: HostFunction, place: Place | None, depth: int, run: Interpreter) -> Any:
        before = [d for d in host.definitions[name] if place is None or d.order < place.order]
        for definition in reversed(before):
            if place is not None and not self._taken(definition, place, depth, run):
                continue
            if (name, definition.order) in self._active:
                return leaf(name)
            self._active.add((name, definition.order))
            try:
                return self._value(name, definition, depth, run)
            finally:
                self._active.discard((name, definition.order))
        if name in host.parameters():
            return self._free(name, host)
        if before or place is None or not isinstance(host.node, ast.Module):
            return leaf(name)
        raise KeyError(name)

    def _taken(self, definition: Place, place: Place, depth: int, run: Interpreter) -> bool:
        """Whether the definition is on the way to `place` in this world."""
        for index, (compound, block) in enumerate(definition.branch):
            if index < len(place.branch) and place.branch[index][0] is compound:
                if place.branch[index][1] != block:
                    return False
                continue
            if block.startswith(("handler", "case")):
                return False
            if isinstance(compound, ast.If):
                around = Place(order=self._order(compound, depth), branch=definition.branch[:index], statement=compound)
                if run.decide(compound.test, self.at(around, depth)) != (block == "body"):
                    return False
        return True

    def _order(self, compound: ast.stmt, depth: int) -> int:
        return next((p.order for p in self.chain[depth].all_places if p.statement is compound), 0)

    def _value(self, name: str, definition: Place, depth: int, run: Interpreter) -> Any:
        statement = definition.statement
        scope = self.at(definition, depth)
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return Function(statement, self.root if depth == 0 else scope)
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self._named(name, self._evaluated(value, scope, run), value, statement.lineno)
            case ast.AugAssign(op=op, value=value):
                before = scope.lookup(name, run)
                after = run.eval(value, scope)
                return (
                    run.eval(ast.BinOp(_Quoted(before), op, _Quoted(after)), scope)
                    if not definition.branch
                    else leaf(name)
                )
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Tuple | ast.List):
                        if any(isinstance(e, ast.Starred) for e in target.elts) or _starred(value):
                            break  # which element it is depends on lengths
                        index = next(
                            (i for i, e in enumerate(target.elts) if isinstance(e, ast.Name) and e.id == name), None
                        )
                        if index is not None:
                            return self._item(name, index, value, scope, run, statement.lineno)
                    elif isinstance(target, ast.Name) and target.id == name:
                        return self._named(name, self._evaluated(value, scope, run), value, statement.lineno)
        self.used.setdefault(
            name, f"{name}: {ast.unparse(statement).splitlines()[0]} ({self.module.path}:{statement.lineno})"
        )
        return leaf(name)

    def _item(self, name: str, index: int, value: ast.expr, scope: Scope, run: Interpreter, line: int) -> Any:
        """An element of an unpacked value."""
        if isinstance(value, ast.Tuple | ast.List) and index < len(value.elts):
            return self._named(name, self._evaluated(value.elts[index], scope, run), value.elts[index], line)
        settled = self._evaluated(value, scope, run)
        if isinstance(settled, tuple | list) and index < len(settled):
            return self._named(name, settled[index], value, line, index)
        self.used.setdefault(name, f"{name} = ({ast.unparse(value)})[{index}] ({self.module.path}:{line})")
        return leaf(name)

    def _evaluated(self, value: ast.expr, scope: Scope, run: Interpreter) -> Any:
        if isinstance(value, ast.Lambda):
            return Function(value, self.root)
        try:
            return run.eval(value, scope)
        except UnresolvedError:
            return leaf(ast.unparse(value))

    def _named(self, name: str, value: Any, node: ast.expr, line: int, index: int | None = None) -> Any:
        """A leaf takes the name it was assigned to; its definition is kept."""
        if not isinstance(value, Meta | Function) and not isinstance(node, ast.Constant | ast.Name):
            shown = ast.unparse(node) if index is None else f"({ast.unparse(node)})[{index}]"
            self.used.setdefault(name, f"{name} = {shown} ({self.module.path}:{line})")
            if isinstance(value, Quantity):
                return leaf(name)
        return value


def _starred(value: ast.expr) -> bool:
    return isinstance(value, ast.Tuple | ast.List) and any(isinstance(e, ast.Starred) for e in value.elts)


class _Quoted(ast.Constant):
    """A value that is already known, as an expression."""


def enclosing(module: PyModule, node: ast.AST) -> list[HostFunction]:
    """The functions around `node`, innermost first, and the module's top level where there is none."""
    line, end = getattr(node, "lineno", 0), getattr(node, "end_lineno", 0)
    around: list[FunctionNode] = [
        f for f in module.functions if f.body[0].lineno <= line and (f.end_lineno or 0) >= end
    ]
    around.sort(key=lambda f: -f.lineno)
    return [HostFunction.of(f) for f in around] or [HostFunction.of(module.tree)]


__all__ = ["DroppedError", "HostFunction", "HostScope", "Place", "enclosing", "places"]
