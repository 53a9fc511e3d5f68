"""Names of modules and members of classes: what they mean, each evaluated when it is asked for, once."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.index.objects.known import table
from opscope_tools.index.objects.parts import Evaluation, Execution
from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.values import (
    MISSING,
    ClassValue,
    FieldValue,
    Frame,
    FunctionValue,
    Instance,
    ModuleValue,
    OfClass,
    Property,
    RaisedError,
    Static,
    Unknown,
    single,
)
from opscope_tools.source.python import syntax as code
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import AssignRow, ClassRow, FunctionRow, ImportRow

#: functions that declare a field, as dataclasses, pydantic, attrs and msgspec call them
_SPECIFIERS = frozenset({"field", "Field", "ib", "attrib", "PrivateAttr"})


@dataclass(eq=False)
class Names:
    """What was read and evaluated of files is kept from one question to the next."""

    resolver: Resolver
    home: SourceTree
    state: State
    evaluation: Evaluation
    execution: Execution
    units: dict[int, Unit] = field(default_factory=dict)
    _classes: dict[tuple[int, str, int], ClassValue] = field(default_factory=dict)
    _globals: dict[tuple[int, str], Any] = field(default_factory=dict)
    _modules: dict[int, ModuleValue] = field(default_factory=dict)
    _absent: set[tuple[int, str]] = field(default_factory=set)
    _evaluating: set[tuple[int, str]] = field(default_factory=set)
    _amendments: set[tuple[int, int]] = field(default_factory=set)

    def name(self, unit: Unit, name: str, before: int = 0) -> Any:
        """What a name of the module means (where `before` is given and the name is being assigned: as seen from that
        line); MISSING where nothing binds it."""
        key = (id(unit), name)
        if key in self._globals:
            return self._globals[key]
        if key in self._evaluating:
            earlier = self.resolver.lookup(unit, name, before) if before else None
            if earlier is None or earlier.row is None or (earlier.unit is unit and earlier.row.line >= before):
                return Unknown(name)
            return self._amended(unit, name, self.found(earlier, name), before)
        self._evaluating.add(key)
        self.units[id(unit)] = unit
        try:
            value = self.found(self.resolver.lookup(unit, name), name)
        finally:
            self._evaluating.discard(key)
        if value is MISSING:
            value = _builtin(name)
        self._globals[key] = value
        return self._amended(unit, name, value)

    def of_file(self, unit: Unit, name: str) -> Any:
        """What a module has as an attribute; raises `RaisedError` where source proves that there is none."""
        found = self._globals.get((id(unit), name), MISSING)
        if found is MISSING:
            if (id(unit), name) in self._absent:
                raise RaisedError("AttributeError")
            found = self.found(self.resolver.lookup(unit, name), name)
            if found is not MISSING:
                self._globals[id(unit), name] = found
        if found is not MISSING:
            return found
        known = table.known(f"{unit.name}.{name}")
        if known is not MISSING:
            return known
        if name in {"__name__", "__package__"}:
            return unit.name
        if unit.name.split(".", 1)[0] == "torch":  # most of it is defined in C++
            return Unknown(name, name=f"{unit.name}.{name}")
        self._absent.add((id(unit), name))
        raise RaisedError("AttributeError")

    def foreign(self, module: str) -> bool:
        """Whether the module is torch's, and torch is not what the question is about: its classes are taken as they
        stand and its functions are not run."""
        return module.split(".", 1)[0] == "torch" and not self.home.locate("torch")

    def _amended(self, unit: Unit, name: str, value: Any, before: int = 0) -> Any:
        """A table after the module's own statements have added to it (`TABLE.update(...)`, `TABLE[key] = ...`)."""
        if not isinstance(value, dict | list) and not (isinstance(value, Instance) and value.data is not None):
            return value
        known = self._globals.get((id(unit), name), MISSING)
        for line, statement in code.additions(unit, name):
            if (before and line >= before) or (id(unit), line) in self._amendments:
                continue
            self._amendments.add((id(unit), line))
            self._globals[id(unit), name] = value
            try:
                with self.state.apart():
                    self.execution.block(statement.body, Frame(unit, statement, {}))
            except RaisedError:
                pass
            finally:
                if known is MISSING:
                    self._globals.pop((id(unit), name), None)
        return value

    def found(self, found: Found | None, name: str) -> Any:
        """The value of what a name was resolved to; `MISSING` where it was resolved to nothing."""
        if found is None:
            return MISSING
        if found.symbol is not None:
            return self.class_value(found.symbol)
        if found.kind == "module" and found.unit is not None:
            return self.module_value(found.unit)
        unit, row = found.unit, found.row
        if unit is None or row is None:
            return external(found.name)
        self.units[id(unit)] = unit
        if isinstance(row, FunctionRow):
            return _function(unit, row)
        if isinstance(row, AssignRow):
            return self.global_value(unit, row, found.name)
        return Unknown(name, name=found.name)

    def module_value(self, unit: Unit) -> ModuleValue:
        """The one value that stands for a module of the source."""
        self.units[id(unit)] = unit
        return self._modules.setdefault(id(unit), ModuleValue(unit))

    def global_value(self, unit: Unit, row: AssignRow, qualified: str) -> Any:
        """A module-level assignment."""
        if row.guard.type_checking:  # for type checkers alone: what the name is at run time comes from elsewhere
            return Unknown(row.name, name=qualified)
        known = table.known(qualified)
        if known is not MISSING:
            return known
        key = (id(unit), f"{row.name}:{row.line}")
        if key in self._globals:
            return self._globals[key]
        if key in self._evaluating:
            return Unknown(row.name)
        plain_key = (id(unit), row.name)
        outer = plain_key in self._evaluating
        self._evaluating |= {key, plain_key}
        try:
            parsed = code.value(unit, row)
            with self.state.apart():
                value = (
                    single(self.evaluation.full(parsed.node, Frame(unit, parsed, {}, before=row.line)))
                    if parsed is not None
                    else Unknown(row.name)
                )
        except RaisedError:
            value = Unknown(row.name)
        finally:
            self._evaluating.discard(key)
            if not outer:
                self._evaluating.discard(plain_key)
        if isinstance(value, Unknown):
            value.name = value.name or qualified
        self._globals[key] = value
        return self._amended(unit, row.name, value)

    def class_value(self, symbol: ClassSymbol) -> ClassValue:
        """The one value that stands for a class; its bases' values are made before it."""
        key = (id(symbol.unit), symbol.path, symbol.line)
        value = self._classes.get(key)
        if value is None:
            value = self._classes[key] = ClassValue(symbol)
            self.units[id(symbol.unit)] = symbol.unit
            order = self.resolver.mro(symbol)
            for base in reversed(order[1:]):  # the furthest first: one call inside another for every class is too many
                if not isinstance(base, str) and not base.same(symbol):
                    self.class_value(base)
            for base in order:
                known = value if not isinstance(base, str) and base.same(symbol) else base
                value.mro.append(known if isinstance(known, str | ClassValue) else self.class_value(known))
            for row in symbol.row.body:
                if isinstance(row, FunctionRow):
                    _add_method(value.space, row)
                else:
                    value.space[row.name] = row
        return value

    def annotation(self, cls: ClassValue, text: str) -> ClassValue | None:
        """The class that an annotation in the class's file names."""
        stem = text.strip("\"' ").split("[", 1)[0].strip()
        if not stem.replace(".", "").replace("_", "").isalnum():
            return None
        found = self.resolver.dotted(cls.symbol.unit, stem)
        return self.class_value(found.symbol) if found is not None and found.symbol is not None else None


@dataclass(eq=False)
class Classes:
    """Members of classes."""

    names: Names
    state: State
    evaluation: Evaluation

    def member(self, cls: ClassValue, name: str, after: ClassValue | None = None) -> tuple[ClassValue | None, Any]:
        """(holder, value) of the first class of the MRO that binds the name; `after`: as `super()` of that class."""
        passed = after is None
        for holder in cls.mro:
            if isinstance(holder, str):
                continue
            if passed:
                value = self.own(holder, name) if name in holder.space or name in holder.added else MISSING
                if value is not MISSING:
                    return holder, value
            elif holder is after:
                passed = True
        return None, MISSING

    def own(self, cls: ClassValue, name: str) -> Any:
        """What the class's own body (or what was set on it) binds to the name, ready to use; else MISSING."""
        if name in cls.added:
            return cls.added[name]
        value = cls.space.get(name, MISSING)
        if value is MISSING or type(value) is FunctionValue:
            return value
        ready = self._ready(cls, name, value)
        if ready is not value:
            cls.space[name] = ready
        return ready

    def _ready(self, cls: ClassValue, name: str, value: Any) -> Any:
        if isinstance(value, FunctionRow):
            parsed = code.function(cls.symbol.unit, value)
            return FunctionValue(parsed, None, cls) if parsed is not None else Unknown(name)
        for part in _PARTS.get(type(value), ()):
            if isinstance(inner := getattr(value, part), FunctionRow):
                setattr(value, part, self._ready(cls, name, inner))
        if isinstance(value, AssignRow):
            return self._assignment(cls, name, value)
        if isinstance(value, ClassRow):
            return self.names.class_value(ClassSymbol(cls.symbol.unit, f"{cls.symbol.path}.{value.name}", value))
        if isinstance(value, ImportRow):
            return self.names.name(cls.symbol.unit, name)
        return value

    def _assignment(self, cls: ClassValue, name: str, row: AssignRow) -> Any:
        if not row.value:
            return MISSING
        parsed = code.value(cls.symbol.unit, row)
        if parsed is None:
            return Unknown(name)
        frame = Frame(cls.symbol.unit, parsed, {}, holder=cls)
        frame.closure = Frame(cls.symbol.unit, parsed, _ClassSpace(self, cls, name))
        cls.space[name] = Unknown(name)  # while it is evaluated
        with self.state.apart():
            try:
                declared = self.declared(cls, parsed.node, frame)
                return declared if declared is not None else self._value(parsed.node, frame)
            except RaisedError:
                return Unknown(name)

    def _value(self, node: ast.expr, frame: Frame) -> Any:
        return single(self.evaluation.full(node, frame))

    # fields

    def declared(self, cls: ClassValue, node: ast.expr, frame: Frame) -> FieldValue | None:
        """What `specifier(default=...)` says of a field: whatever the specifier checks, that is what it sets. None where
        the expression is no specifier."""
        if not isinstance(node, ast.Call) or not self.specifies(cls, node):
            return None
        for keyword in node.keywords:
            if keyword.arg == "default":
                return FieldValue(self._default(keyword.value, frame), MISSING)
            if keyword.arg in {"default_factory", "factory"}:
                return FieldValue(MISSING, self._value(keyword.value, frame))
        if any(keyword.arg is None for keyword in node.keywords):
            return FieldValue(Unknown(ast.unparse(node)), MISSING)
        return FieldValue(self._default(node.args[0], frame) if node.args else MISSING, MISSING)

    def _default(self, node: ast.expr, frame: Frame) -> Any:
        """The value of a default; `...` stands for none."""
        return MISSING if isinstance(node, ast.Constant) and node.value is ... else self._value(node, frame)

    def specifies(self, cls: ClassValue, node: ast.Call) -> bool:
        """Whether a call declares a field: by its name, or a function of the source that is decorated or written so."""
        if isinstance(node.func, ast.Call):  # `interval(min=0)(default=8)`: a validator that makes specifiers
            return any(keyword.arg in {"default", "default_factory"} for keyword in node.keywords)
        text = ast.unparse(node.func)
        if text.rpartition(".")[2] in _SPECIFIERS:
            return True
        if not all(part.isidentifier() for part in text.split(".")):
            return False
        found = self.names.resolver.dotted(cls.symbol.unit, text)
        if found is not None and isinstance(found.row, AssignRow) and found.row.value.endswith(")"):
            return any(keyword.arg in {"default", "default_factory"} for keyword in node.keywords)
        if found is None or found.unit is None or not isinstance(found.row, FunctionRow):
            return False
        if any("field" in decorator for decorator in found.row.decorators):
            return True
        parsed = code.function(found.unit, found.row)
        returned = [n.value for n in ast.walk(parsed.node) if isinstance(n, ast.Return)] if parsed is not None else []
        return bool(returned) and all(
            isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _SPECIFIERS
            for value in returned
        )

    def aliases(self, cls: ClassValue) -> dict[str, str]:
        """`attribute_map`: names that the class stores under another name."""
        known: dict[str, str] | None = cls.kinds.get("map")
        if known is None:
            found = self.member(cls, "attribute_map")[1] if not cls.is_module() else MISSING
            known = cls.kinds["map"] = found if isinstance(found, dict) else {}
        return known


#: what holds functions of a class body
_PARTS = {Property: ("getter", "setter"), Static: ("function",), OfClass: ("function",)}


class _ClassSpace(dict[str, Any]):
    """The names of a class body as an expression of that body sees them."""

    def __init__(self, classes: Classes, cls: ClassValue, leave: str) -> None:
        super().__init__()
        self._classes, self._cls, self._leave = classes, cls, leave

    def __contains__(self, name: object) -> bool:
        return name in self._cls.space and name != self._leave

    def __getitem__(self, name: str) -> Any:
        value = self._classes.own(self._cls, name)
        return Unknown(name) if value is MISSING else value


def external(name: str) -> Any:
    """What lies outside of the source, by its qualified name."""
    known = table.known(name)
    return Unknown(name.rpartition(".")[2], name=name) if known is MISSING else known


def _builtin(name: str) -> Any:
    known = table.known(f"builtins.{name}")
    if known is not MISSING:
        return known
    value = getattr(builtins, name, MISSING)
    return value if value is MISSING or isinstance(value, type) else Unknown(name, name=name)


def _function(unit: Unit, row: FunctionRow) -> Any:
    known = table.known(f"{unit.name}.{row.name}")
    if known is not MISSING:
        return known
    parsed = code.function(unit, row)
    return FunctionValue(parsed) if parsed is not None else Unknown(row.name)


def _add_method(space: dict[str, Any], row: FunctionRow) -> None:
    """The member that a `def` of a class body makes; its function is read when something asks for it."""
    names = [text.split("(", 1)[0].rpartition(".")[2] for text in row.decorators]
    if "overload" in names:
        return
    if "property" in names or "cached_property" in names or "classproperty" in names:
        space[row.name] = Property(row, None, "classproperty" in names)
    elif "setter" in names or "deleter" in names:
        known = space.get(row.name)
        if isinstance(known, Property):
            space[row.name] = Property(known.getter, row if "setter" in names else known.setter)
        else:
            space[row.name] = Property(None, row)
    elif "staticmethod" in names:
        space[row.name] = Static(row)
    elif "classmethod" in names or row.name in {"__init_subclass__", "__class_getitem__"}:
        space[row.name] = OfClass(row)
    else:
        space[row.name] = row
