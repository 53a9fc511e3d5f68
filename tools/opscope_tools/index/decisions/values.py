"""Where the value of a config field is decided: the key that was given, the rule of the constructor that computed it, or the
default of its declaration.

The configuration is made by the interpreter of `objects`, which notes by which expression an attribute was set; a rule that a
test kept from running is therefore never named.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from opscope_tools.index.configurations.constructor_steps import constructor
from opscope_tools.index.decisions.choices import Read
from opscope_tools.index.modules.held_modules import interpreting
from opscope_tools.index.modules.shown_values import OPEN, Shown, shown
from opscope_tools.index.names.config_classes import declared_configs
from opscope_tools.index.objects import ClassValue, Instance, Interpreter
from opscope_tools.index.objects.values import (
    MISSING,
    ExhaustedError,
    Place,
    RaisedError,
    UndecidedError,
)
from opscope_tools.index.references.receivers import declared
from opscope_tools.source.python.names import ClassSymbol, Resolver
from opscope_tools.source.python.rows import AssignRow, FunctionRow
from opscope_tools.source.python.syntax import Function, parameters
from opscope_tools.source.python.syntax import function as code_of

__all__ = ["Decision", "decide"]

_LONGEST = 120
#: the configuration class that says nothing of which one it is
_ANY = "PreTrainedConfig"


@dataclass(frozen=True)
class Decision:
    """The value of the field that `read` reads (JSON, empty where source leaves it open), and the line that decides it;
    `also` are lines of the same file that may change items of it afterwards. `key`: what was
    given `held` under it."""

    read: Read
    field: str
    value: str
    file: str = ""
    line: int = 0
    rule: str = ""
    also: tuple[int, ...] = ()
    key: str = ""
    held: object = None


def decide(
    resolver: Resolver, symbol: ClassSymbol, reads: list[Read], config: Mapping[str, Any] | None = None
) -> dict[Read, Decision]:
    """The decision of every read whose configuration class source tells; `config` is what was given of it."""
    found: dict[Read, Decision] = {}
    classes = {(read.root, read.holder.qualified_name): _classes(resolver, read) for read in reads}
    if not any(classes.values()):
        return found
    with interpreting(resolver, symbol, strict=True) as (interpreter, _):
        deciding = _Deciding(interpreter, config or {})
        for read in reads:
            for cls in classes[read.root, read.holder.qualified_name]:
                decision = deciding.decision(read, cls)
                if decision is not None:
                    found[read] = deciding.by_model(symbol, decision)
                    break
    return found


def _classes(resolver: Resolver, read: Read) -> list[ClassSymbol]:
    """The configuration classes that a root may be of: its annotation's, the class's own, those of the models of its file."""
    holder = read.holder
    for base in resolver.mro(holder):
        init = base.members.get("__init__") if not isinstance(base, str) else None
        for parameter in init.parameters if isinstance(init, FunctionRow) else ():
            if parameter.name == read.root and parameter.annotation and not isinstance(base, str):
                found = [c for c in declared(resolver, base.unit, parameter.annotation) if c.name != _ANY]
                if found:
                    return found
    own = declared_configs(resolver, holder)
    models = [ClassSymbol(holder.unit, path, row) for path, row in holder.unit.classes() if "." not in path]
    others = [config for model in models for config in declared_configs(resolver, model)]
    return list({config.qualified_name: config for config in (*own, *others)}.values())


class _Deciding:
    def __init__(self, interpreter: Interpreter, given: Mapping[str, Any]) -> None:
        self.interpreter, self.given = interpreter, given
        self.made: dict[str, tuple[Instance | None, Mapping[str, Any]]] = {}

    def decision(self, read: Read, config: ClassSymbol) -> Decision | None:
        if config.qualified_name not in self.made:
            self.made[config.qualified_name] = self._make(self.interpreter.names.class_value(config))
        this, given = self.made[config.qualified_name]
        for name in read.path[:-1]:
            value = this.attrs.get(name) if this is not None else None
            this = value if isinstance(value, Instance) else None
            inner = given.get(name)
            given = inner if isinstance(inner, dict) else {}
        if this is None:
            return None
        if this.waiting is not None:
            this.wake()
        return self._of(this, given, read)

    def _make(self, cls: ClassValue) -> tuple[Instance | None, Mapping[str, Any]]:
        interpreter = self.interpreter
        own = self._try(lambda: interpreter.attributes.get(cls, "model_type"))
        given = _part(self.given, own) if isinstance(own, str) else self.given
        known = {key: value for key, value in given.items() if key not in {"model_type", "architectures"}}
        for kwargs in (known, {}) if known else ({},):
            interpreter.state.at_top()
            interpreter.state.allow()
            made = self._try(lambda kwargs=kwargs: interpreter.call(cls, (), dict(kwargs)))
            if isinstance(made, Instance):
                return made, given
        return None, given

    def _try(self, ask: Any) -> Any:
        try:
            return ask()
        except (RaisedError, UndecidedError, ExhaustedError, RecursionError):
            return MISSING

    def _of(self, this: Instance, given: Mapping[str, Any], read: Read) -> Decision | None:
        cls, interpreter = this.cls, self.interpreter
        aliases = interpreter.classes.aliases(cls)
        field = aliases.get(read.path[-1], read.path[-1])
        names = [field, *(alias for alias, name in aliases.items() if name == field)]
        fields = interpreter.records.field_holders(cls) if interpreter.records.kind(cls) else {}
        path = ".".join((*read.path[:-1], next((name for name in names if name in fields), field)))
        value = this.attrs[field] if field in this.attrs else self._try(lambda: interpreter.attributes.get(this, field))
        if value is MISSING:
            return None
        found = Decision(read, path, _json(shown(value)))
        key = next((name for name in names if name in given), "")
        if key and json.dumps(given[key], default=str) == json.dumps(shown(value).data, default=str):
            return replace(found, key=key, held=given[key], rule=f"{json.dumps(key)}: {_json(Shown(True, given[key]))}")
        place = this.places.get((field, id(value)))
        if place is not None and isinstance(place.code, Function):
            return self._by_rule(found, place, cls, field)
        for name in names:
            declaring = fields[name][-1] if name in fields else interpreter.classes.member(cls, name)[0]
            row = declaring.symbol.members.get(name) if declaring is not None else None
            if declaring is not None and isinstance(row, AssignRow | FunctionRow):
                return _at(found, declaring.symbol, row.line)
        return None

    def _by_rule(self, found: Decision, place: Place, cls: ClassValue, field: str) -> Decision:
        """The expression that set the field; a bare parameter leads on to its default, or to what the body made of it."""
        code, node = place.code, place.node
        assert isinstance(code, Function)
        if isinstance(node, ast.Name):
            sets = [
                each.value for each in ast.walk(code.node)
                if isinstance(each, ast.Assign)
                and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets)
            ]  # fmt: skip
            default = next((d for p, d in parameters(code.node.args) if p.arg == node.id), None)
            if default is not None and (not sets or _json(_literal(default)) == found.value):
                node = default
            elif sets:
                node = sets[-1]
        line = code.line(_rule(node))
        also = tuple(
            each.line for each in constructor(self.interpreter, cls).sets
            if each.name == field and each.node is None and each.file == code.unit.file and each.line > line
        )  # fmt: skip
        return replace(_at(found, code, line), also=also)

    def by_model(self, symbol: ClassSymbol, found: Decision) -> Decision:
        """Where the constructor of a model of the file (`self.config.x = ...`, `x` or what its property gives) has the last word
        over the configuration."""
        if found.key or not found.rule:
            return found
        return _overruled(self.interpreter, symbol, found) or found


def _overruled(interpreter: Interpreter, symbol: ClassSymbol, found: Decision) -> Decision | None:
    field = found.field.rpartition(".")[2]
    for path, row in symbol.unit.classes():
        if "." in path or not row.name.endswith("PreTrainedModel"):
            continue
        for base in interpreter.names.class_value(ClassSymbol(symbol.unit, path, row)).mro:
            init = base.symbol.members.get("__init__") if isinstance(base, ClassValue) else None
            code = (
                code_of(base.symbol.unit, init)
                if isinstance(base, ClassValue) and isinstance(init, FunctionRow)
                else None
            )
            for node in ast.walk(code.node) if code is not None else ():
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
                    owner, name = ast.unparse(node.targets[0].value), node.targets[0].attr
                    if owner in {"config", "self.config"} and name in {field, f"{field}_internal"} and code is not None:
                        return replace(_at(found, code, code.line(node)), value="", also=())
    return None


def _part(given: Mapping[str, Any], model_type: str) -> Mapping[str, Any]:
    """What of a given configuration is for a model type: itself, or the part of it that says so."""
    if given.get("model_type") in {None, model_type}:
        return given
    parts = [value for value in given.values() if isinstance(value, dict)]
    return next((part for part in parts if part.get("model_type") == model_type), {})


def _rule(node: ast.expr) -> ast.AST:
    """The part of an expression that decides: the item of a comprehension."""
    while isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
        node = node.elt
    return node


def _literal(node: ast.expr) -> Shown:
    try:
        return Shown(True, ast.literal_eval(node))
    except (ValueError, TypeError, RecursionError):
        return OPEN


def _json(value: Shown) -> str:
    text = json.dumps(value.data, default=str) if value.known else ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def _at(found: Decision, where: ClassSymbol | Function, line: int) -> Decision:
    lines = where.unit.tree.source(where.unit.file).split(b"\n")
    rule = lines[line - 1].decode("utf-8", "replace").strip() if line <= len(lines) else ""
    return replace(found, file=where.unit.file, line=line, rule=rule[:300])
