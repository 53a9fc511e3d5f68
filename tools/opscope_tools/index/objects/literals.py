"""Literals, f-strings, lambdas and comprehensions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from opscope_tools.index.objects.expressions import Expressions, Handler, makes
from opscope_tools.index.objects.operations import Operations
from opscope_tools.index.objects.sizes import check_format
from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.values import (
    Choice,
    ClassValue,
    Frame,
    FunctionValue,
    Instance,
    Loop,
    Option,
    Uncertain,
    UndecidedError,
    Unknown,
    absent,
    choice,
    data_of,
    label,
    plain,
    turn,
)
from opscope_tools.source.python.syntax import Function, Text


@dataclass(eq=False)
class Literals:
    """Evaluation of what builds values."""

    expressions: Expressions
    operations: Operations
    state: State

    def handlers(self) -> dict[type[ast.expr], Handler]:
        """Type of node -> what evaluates it, for `Expressions`."""
        return {
            ast.List: self._list, ast.Tuple: self._tuple, ast.Set: self._set, ast.Dict: self._dict,
            ast.JoinedStr: self._joined, ast.Lambda: self._lambda, ast.NamedExpr: self._walrus,
            ast.ListComp: self._comprehension, ast.SetComp: self._comprehension, ast.GeneratorExp: self._comprehension,
            ast.DictComp: self._dict_comprehension,
        }  # fmt: skip

    def _items(self, nodes: Sequence[ast.expr], frame: Frame) -> list[Any]:
        found: list[Any] = []
        uncertain = False
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self.expressions.ev(node.value, frame)
                found.extend(self.operations.iterate(value))
                uncertain = uncertain or isinstance(value, Uncertain)
            else:
                found.append(self.expressions.safe(node, frame))
        return Uncertain(found) if uncertain else found

    def _list(self, node: ast.List, frame: Frame) -> Any:
        return self._items(node.elts, frame)

    def _tuple(self, node: ast.Tuple, frame: Frame) -> Any:
        found = self._items(node.elts, frame)
        return found if isinstance(found, Uncertain) else tuple(found)

    def _set(self, node: ast.Set, frame: Frame) -> Any:
        return {data_of(plain(item)) for item in self._items(node.elts, frame)}

    def _dict(self, node: ast.Dict, frame: Frame) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                spread = self.expressions.ev(value, frame)
                spread = spread.data if isinstance(spread, Instance) else spread
                if not isinstance(spread, dict):
                    raise UndecidedError
                found.update(spread)
            else:
                found[self.expressions.ev(key, frame)] = self.expressions.full(value, frame)
        return found

    def _joined(self, node: ast.JoinedStr, frame: Frame) -> Any:
        parts, pattern, known = [], [], True
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
                pattern.append(str(part.value))
            elif isinstance(part, ast.FormattedValue):
                pattern.append("*")
                value = data_of(self.expressions.ev(part.value, frame))
                spec = self.expressions.ev(part.format_spec, frame) if part.format_spec is not None else ""
                if isinstance(value, Unknown | Choice | Instance | FunctionValue) or not isinstance(spec, str):
                    known = False
                else:
                    check_format(spec)
                    parts.append(format(value.name if isinstance(value, ClassValue) else value, spec))
        if not known:
            unknown = Unknown(self.expressions.text(node, frame))
            unknown.pattern = "".join(pattern)
            return unknown
        return label("".join(parts), "".join(pattern)) if frame.repeat else "".join(parts)

    def _lambda(self, node: ast.Lambda, frame: Frame) -> Any:
        code: Text = frame.code
        return FunctionValue(Function(frame.unit, code.lines, code.first, node, "<lambda>"), frame, frame.holder)

    def _walrus(self, node: ast.NamedExpr, frame: Frame) -> Any:
        value = self.expressions.full(node.value, frame)
        self.state.bind(frame, node.target.id, value)
        return value

    # comprehensions

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame) -> Any:
        found = self._collect(node.generators, frame, lambda: self.expressions.safe(node.elt, frame), makes(node.elt))
        return {data_of(plain(item)) for item in found} if isinstance(node, ast.SetComp) else found

    def _dict_comprehension(self, node: ast.DictComp, frame: Frame) -> Any:
        def one() -> Any:
            return (self.expressions.ev(node.key, frame), self.expressions.safe(node.value, frame))

        found = self._collect(node.generators, frame, one, False)
        if isinstance(found, Uncertain):
            return dict(zip("*", (value for _, value in found[:1]), strict=False))
        return dict(found)

    def _collect(self, loops: list[ast.comprehension], frame: Frame, one: Callable[[], Any], makes: bool) -> list[Any]:
        before = dict(frame.local)
        heads = (self.expressions.head(loop, frame) for loop in loops)
        ifs = (f" if {self.expressions.text(test, frame)}" for g in loops for test in g.ifs)
        frame.repeat.append(" ".join(heads) + "".join(ifs))
        try:
            return self._loop(loops, frame, one, makes)
        finally:
            frame.repeat.pop()
            for name in [name for name in frame.local if name not in before]:
                del frame.local[name]
            frame.local.update(before)

    def _loop(self, loops: list[ast.comprehension], frame: Frame, one: Callable[[], Any], makes: bool) -> list[Any]:
        if not loops:
            return [one()]
        head, *rest = loops
        source = self.expressions.ev(head.iter, frame)
        try:
            values = self.operations.iterate(source)
        except UndecidedError:
            values = []
            source = Uncertain()
        uncertain = isinstance(source, Uncertain)
        if not values:
            if not makes and not uncertain:
                return []
            self.expressions.assign_unknown(head.target, frame)
            if any(self.expressions.test(test, frame) is False for test in head.ifs):
                return []
            live = None if uncertain else False
            with self.state.within(live):
                made = self._loop(rest, frame, one, makes)
            items = [choice([Option("", item, live)]) for item in made]
            return Uncertain(items) if uncertain else [item for item in items if absent(item)]
        found: list[Any] = []
        loop = Loop()
        folds = isinstance(source, range) and not rest and not head.ifs
        for number, value in enumerate(values):
            self.expressions.assign(head.target, turn(value, loop) if folds else value, frame)
            kept = [self.expressions.test(test, frame) for test in head.ifs]
            if False in kept:
                continue
            if None in kept:
                uncertain = True
            found.extend(self._loop(rest, frame, one, makes))
            if folds and number == 0 and not loop.used and len(found) == 1:
                found = found * len(values)
                break
        return Uncertain(found) if uncertain else found
