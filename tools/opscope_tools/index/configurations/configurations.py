"""The parameters of a configuration: declared where, with which default, and what an object made without arguments holds.

`read_configuration` brings together what the class bodies declare (records, or the parameters of `__init__`), what the
constructor sets (constructor_steps.py), and the object that the interpreter of `objects` makes. A value is given only where
source decides it; what a statement that could not be followed might have changed counts as open.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from opscope_schemas.extracted_config import ConfigurationKind, ParameterKind

from opscope_tools.index.configurations.constructor_steps import Constructor, Set, Taken, constructor
from opscope_tools.index.modules.held_modules import interpreting
from opscope_tools.index.modules.shown_values import OPEN, Shown, shown
from opscope_tools.index.objects import ClassValue, Instance, Interpreter
from opscope_tools.index.objects.values import (
    MISSING,
    ExhaustedError,
    FieldValue,
    Frame,
    RaisedError,
    UndecidedError,
    Unknown,
)
from opscope_tools.source.python.names import ClassSymbol, Resolver
from opscope_tools.source.python.rows import AssignRow, FunctionRow
from opscope_tools.source.python.syntax import Function, parameters

__all__ = ["Declared", "Held", "ReadConfiguration", "read_configuration"]

_DEEPEST = 4
#: characters of a statement or value that an answer quotes
_LONGEST = 120


@dataclass(frozen=True)
class Declared:
    """One declaration of a parameter: the line, and the class or function that it stands in."""

    owner: str
    file: str
    line: int
    annotation: str = ""
    default: str = ""
    symbol: ClassSymbol | None = None


@dataclass
class Held:
    """One parameter: its declarations (the one that counts first), its default, and what the object holds."""

    name: str
    kind: ParameterKind
    declared: list[Declared]
    default: Shown | None = None
    value: Shown = OPEN
    sets: list[Set] = field(default_factory=list)
    effective: Shown | None = None
    sub: ReadConfiguration | None = None


@dataclass
class ReadConfiguration:
    """A configuration class as read. `parents` are the classes of its MRO that are in source, itself first."""

    symbol: ClassSymbol
    kind: ConfigurationKind
    parents: list[ClassSymbol]
    held: list[Held] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    #: names that class bodies bind and that are no parameters
    others: set[str] = field(default_factory=set)
    open_ended: bool = False
    notes: list[str] = field(default_factory=list)


def read_configuration(
    resolver: Resolver, symbol: ClassSymbol, given: Mapping[str, object] | None = None
) -> ReadConfiguration:
    """The configuration of a class; of a torch module the parameters of its constructor. `given` are values to make a
    second object with, whose values become `effective`."""
    with interpreting(resolver, symbol, strict=True) as (interpreter, _):
        return _Reading(interpreter, given or {}).of_class(interpreter.names.class_value(symbol))


@dataclass(frozen=True)
class _Doubt:
    """Attributes that source leaves open, each with the statement that may have set it; `anything`: all of them."""

    names: Mapping[str, str] = field(default_factory=dict)
    anything: bool = False
    why: str = ""

    def about(self, name: str) -> bool:
        return self.anything or name in self.names

    def said(self, name: str, value: Shown) -> str:
        """What is known: the value without the statement in doubt, and that statement."""
        why = self.names.get(name) or self.why
        data = json.dumps(value.data, default=str) if value.known else value.text
        known = data if len(data) <= _LONGEST else f"{data[: _LONGEST - 2]} …"
        return f"{known} unless {why}" if known else why


class _Reading:
    def __init__(self, interpreter: Interpreter, given: Mapping[str, object]) -> None:
        self.interpreter, self.given = interpreter, given

    def of_class(self, cls: ClassValue) -> ReadConfiguration:
        interpreter = self.interpreter
        parents = [base.symbol for base in cls.mro if isinstance(base, ClassValue)]
        kind = interpreter.records.kind(cls)
        module = cls.is_module()
        interpreter.state.allow()
        found = ReadConfiguration(cls.symbol, _kind(kind or ("arguments" if module else "class")), parents)
        built = constructor(interpreter, cls)
        found.taken = built.taken
        found.aliases = (
            {} if module else {a: str(n) for a, n in interpreter.classes.aliases(cls).items() if isinstance(n, str)}
        )
        found.others = {name for base in cls.mro if isinstance(base, ClassValue) for name in base.symbol.members}
        if kind:
            self._record(cls, found, built)
        else:
            self._plain(cls, found, built, attributes=not module)
        if not module:
            this = self._made(cls, {})
            self._values(found, built, this, 0)
            if self.given:
                self._given(cls, found, built)
        return found

    # what is declared

    def _record(self, cls: ClassValue, found: ReadConfiguration, built: Constructor) -> None:
        interpreter = self.interpreter
        holders = interpreter.records.field_holders(cls)
        defaults = {each.name: each for each in interpreter.records.fields(cls)}
        known: dict[str, Held] = {}
        for name, classes in holders.items():
            declared = [_row(base, name, interpreter) for base in reversed(classes)]
            stored = found.aliases.get(name, name)  # a field may itself go by the name of another attribute
            earlier = known.get(stored)
            if earlier is not None:
                declared += earlier.declared
            known[stored] = Held(stored, "field", declared, self._default(defaults[name]))
        found.held += known.values()
        found.others -= {held.name for held in found.held}
        # a constructor that takes more than its fields says so in its signature, or where its class is made a record
        found.open_ended = any(code.node.args.kwarg is not None for _, code in built.methods)

    def _default(self, declared: FieldValue) -> Shown | None:
        if declared.default is not MISSING:
            return shown(declared.default)
        if declared.default_factory is MISSING:
            return None
        return shown(self._attempted(declared.default_factory))

    def _attempted(self, factory: object) -> Any:
        try:
            return self.interpreter.call(factory, (), {})
        except (RaisedError, UndecidedError, ExhaustedError, RecursionError):
            return Unknown("")

    def _plain(self, cls: ClassValue, found: ReadConfiguration, built: Constructor, *, attributes: bool) -> None:
        """The parameters of `__init__`, and of the constructors that it hands its keyword arguments to."""
        passed: set[str] = set()
        known: dict[str, Held] = {}
        for holder, code in built.methods:
            if code.name != "__init__":
                continue
            node = code.node.args
            for parameter, default in parameters(node)[1:]:
                if parameter.arg in passed:
                    continue
                text = code.text(default) if default is not None else ""
                annotation = code.text(parameter.annotation) if parameter.annotation is not None else ""
                owner = f"{holder.qualified_name}.__init__"
                declared = Declared(owner, code.unit.file, code.line(parameter), annotation, text, holder.symbol)
                if parameter.arg in known:
                    known[parameter.arg].declared.append(declared)
                    continue
                value = None if default is None else shown(self._evaluated(default, holder, code))
                known[parameter.arg] = Held(parameter.arg, "argument", [declared], value, value or OPEN)
            passed |= _passed(code.node)
            if node.kwarg is None:
                break
            found.open_ended = True
        if not known and attributes:
            self._class_attributes(cls, known)
        found.held = list(known.values())
        found.others -= set(known)

    def _evaluated(self, node: ast.expr, holder: ClassValue, code: Function) -> Any:
        frame = Frame(code.unit, code, {}, holder=holder)
        try:
            return self.interpreter.full(node, frame)
        except (RaisedError, UndecidedError, ExhaustedError, RecursionError):
            return Unknown(code.text(node))

    def _class_attributes(self, cls: ClassValue, known: dict[str, Held]) -> None:
        for base in reversed(cls.mro):
            if not isinstance(base, ClassValue):
                continue
            for row in base.symbol.row.body:
                if isinstance(row, AssignRow) and not row.name.startswith("_") and (row.value or row.entries):
                    earlier = known[row.name].declared if row.name in known else []
                    value = shown(self.interpreter.classes.member(cls, row.name)[1])
                    known[row.name] = Held(row.name, "class attribute", [_row(base, row.name), *earlier], value, value)

    # what an object holds

    def _made(self, cls: ClassValue, kwargs: dict[str, Any]) -> Instance | None:
        interpreter = self.interpreter
        interpreter.state.lost.clear()
        interpreter.state.at_top()
        interpreter.state.allow()
        try:
            made = interpreter.call(cls, (), kwargs)
        except (RaisedError, UndecidedError, ExhaustedError, RecursionError):
            return None
        return made if isinstance(made, Instance) else None

    def _values(self, found: ReadConfiguration, built: Constructor, this: Instance | None, depth: int) -> None:
        by_name: dict[str, list[Set]] = {}
        for each in built.sets:
            by_name.setdefault(each.name, []).append(each)
        doubt = self._doubtful(this, built)
        stored = dict(this.attrs) if this is not None and this.data is None else {}
        if stored.pop("*", MISSING) is not MISSING:  # an attribute whose name source does not tell
            setter = "".join(f" ({s.condition}; {s.within}, {s.file}:{s.line})" for s in by_name.get("", [])[:1])
            doubt = replace(doubt, anything=True, why=f"a name that source does not tell is set{setter}")
        for held in found.held:
            held.sets = by_name.get(held.name, [])
            if held.name in stored:
                self._value(held, stored[held.name], depth)
            elif held.kind == "field":
                held.value = OPEN if this is None or held.default is None else held.default
            if doubt.about(held.name):
                held.value = Shown(False, None, doubt.said(held.name, held.value))
        known = {held.name for held in found.held}
        for name, value in stored.items():
            if name in known or name.startswith("_") or found.kind == "arguments":
                continue
            sets = by_name.get(name, []) or _spelt(built, name) or by_name.get("", [])
            if not sets:
                continue
            where = Declared(sets[0].within, sets[0].file, sets[0].line, default=sets[0].formula)
            held = Held(name, "attribute", [where], None, OPEN, by_name.get(name, []))
            self._value(held, value, depth)
            if doubt.about(name):
                held.value = Shown(False, None, doubt.said(name, held.value) if doubt.anything else sets[0].formula)
            found.held.append(held)
        if this is None:
            found.notes.append(
                f"{found.symbol.name} could not be made without arguments: what its constructor sets is open."
            )

    def _value(self, held: Held, value: object, depth: int) -> None:
        held.value = shown(value)
        inner = held.value.instance
        if inner is not None and depth < _DEEPEST:
            inner.wake()
            sub = self._of_instance(inner, depth + 1)
            held.sub = sub

    def _of_instance(self, this: Instance, depth: int) -> ReadConfiguration:
        """A configuration that another one holds, with the values that this object has."""
        cls, interpreter = this.cls, self.interpreter
        parents = [base.symbol for base in cls.mro if isinstance(base, ClassValue)]
        found = ReadConfiguration(cls.symbol, _kind(interpreter.records.kind(cls) or "class"), parents)
        built = constructor(interpreter, cls)
        found.taken = built.taken
        found.aliases = {a: str(n) for a, n in interpreter.classes.aliases(cls).items() if isinstance(n, str)}
        found.others = {name for base in cls.mro if isinstance(base, ClassValue) for name in base.symbol.members}
        if found.kind == "class":
            self._plain(cls, found, built, attributes=True)
        else:
            self._record(cls, found, built)
        self._values(found, built, this, depth)
        return found

    def _doubtful(self, this: Instance | None, built: Constructor) -> _Doubt:
        """Attributes that a statement which could not be followed may have set, with that statement."""
        names = dict.fromkeys(built.before, "a validator of the raw input")
        if built.escapes:
            each = built.escapes[0]
            return _Doubt(names, True, f"`{each.formula}` gets the object ({each.within}, {each.file}:{each.line})")
        anything, why = False, ""
        for statement, owner in self.interpreter.state.lost:
            if owner is not this:
                continue
            text = _first_line(statement)
            said = f"`{text if len(text) <= _LONGEST else text[: _LONGEST - 2] + ' …'}` is not decided by source"
            for node in ast.walk(statement):
                sets, all_of_it = _may_set(node)
                names |= dict.fromkeys(sets, said)
                if all_of_it and not anything:
                    anything, why = True, said
        return _Doubt(names, anything, why)

    # what is given

    def _given(self, cls: ClassValue, found: ReadConfiguration, built: Constructor) -> None:
        known = {held.name for held in found.held} | set(found.aliases)
        kwargs = {
            str(key): value for key, value in self.given.items()
            if found.aliases.get(key, key) in known or key in {t.name for t in found.taken}
        }  # fmt: skip
        this = self._made(cls, kwargs)
        if this is None or this.data is not None:
            found.notes.append(f"{found.symbol.name} could not be made with the given values: `effective` is left out.")
            return
        self._effective(found, this, self._doubtful(this, built))

    def _effective(self, found: ReadConfiguration, this: Instance, doubt: _Doubt) -> None:
        for held in found.held:
            if held.name not in this.attrs or "*" in this.attrs or doubt.about(held.name):
                continue
            held.effective = shown(this.attrs[held.name])
            inner = held.effective.instance
            if inner is not None and held.sub is not None and inner.cls.symbol.same(held.sub.symbol):
                inner.wake()
                self._effective(held.sub, inner, _Doubt())


def _may_set(node: ast.AST) -> tuple[list[str], bool]:
    """Attributes of the object that a piece of a statement names as set, and whether it may set any."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        return ([node.attr] if isinstance(node.ctx, ast.Store) else []), node.attr == "__dict__"
    if not isinstance(node, ast.Call):
        return [], False
    if ast.unparse(node.func) == "setattr":
        key = node.args[1] if len(node.args) > 1 else None
        literal = isinstance(key, ast.Constant) and isinstance(key.value, str)
        return ([str(key.value)] if isinstance(key, ast.Constant) and literal else []), not literal
    return [], _goes_on(node.func)


def _goes_on(function: ast.expr) -> bool:
    """Whether a call runs a method of the object itself."""
    owner = function.value if isinstance(function, ast.Attribute) else None
    if isinstance(owner, ast.Call):
        return ast.unparse(owner.func) == "super"
    return isinstance(owner, ast.Name) and owner.id == "self"


def _first_line(statement: ast.stmt) -> str:
    try:
        return ast.unparse(statement).split("\n")[0]
    except RecursionError:
        return "a statement that nests expressions too deeply"


def _spelt(built: Constructor, name: str) -> list[Set]:
    """The line of the constructor that holds the name, as a keyword that is handed on or as text, where a loop over names
    sets it."""
    for holder, code in built.methods:
        within = f"{holder.name}.{code.name}"
        for node in ast.walk(code.node):
            if isinstance(node, ast.keyword) and node.arg == name:
                return [Set(name, code.text(node.value), "", within, code.unit.file, code.line(node))]
            if isinstance(node, ast.Constant) and node.value == name:
                return [Set(name, "set by name", "", within, code.unit.file, code.line(node))]
    return []


def _kind(text: str) -> ConfigurationKind:
    return cast(ConfigurationKind, text)


def _row(base: ClassValue, name: str, interpreter: Interpreter | None = None) -> Declared:
    row = base.symbol.members[name]
    annotation = row.annotation if isinstance(row, AssignRow) else ""
    text = row.value if isinstance(row, AssignRow) else ""
    if isinstance(row, AssignRow) and not text and interpreter is not None:
        specifier = interpreter.records.annotated(base, row)
        text = ast.unparse(specifier) if specifier is not None else ""
    if isinstance(row, FunctionRow):
        text = ""
    return Declared(base.qualified_name, base.symbol.file, row.line, annotation, text, base.symbol)


def _passed(node: ast.AST) -> set[str]:
    """Names that a constructor hands on by keyword to `super().__init__`: its bases' defaults for them do not count."""
    return {
        keyword.arg for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "__init__"
        for keyword in call.keywords if keyword.arg
    }  # fmt: skip
