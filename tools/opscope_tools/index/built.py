"""Which modules an object holds: its constructor interpreted, with the classes, arguments and conditions of each.

A class is asked about in the contexts that its own file gives it: the models of the file, built from the defaults of
their configuration classes, tell with which arguments it is made. Where no model of the file builds it, it is read by
itself, with what its parameters' defaults and annotations say.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from opscope_schemas.errors import SourceError

from opscope_tools.index.building import ClassValue, Instance, Machine, annotated
from opscope_tools.index.building.values import (
    Choice,
    ExhaustedError,
    FunctionValue,
    RaisedError,
    UndecidedError,
    Unknown,
)
from opscope_tools.index.contexts import configuration, models_above
from opscope_tools.index.held import HeldModule, merged, rows
from opscope_tools.index.resolve import ClassSymbol, Resolver
from opscope_tools.index.trees import Unit

__all__ = ["LOCK", "HeldModule", "built_model", "machine_of", "submodules"]

#: answers, source files and models that are kept at once
_KEPT, _UNITS, _MODELS = 2000, 250, 60
_PLAIN = re.compile(r"\"?((int|float|str|bool|bytes|None|dict|list|tuple)(\[(?>[\w, .\[\]|]*\]))?( *+\| *+)?)++\"?")


def submodules(resolver: Resolver, symbol: ClassSymbol) -> list[HeldModule]:
    """The modules that an instance of `symbol` holds, in order of attribute creation."""
    with LOCK:
        answers = _answers.setdefault(resolver, {})
        key = (symbol.repository.name, symbol.file, symbol.path, symbol.line)
        known = answers.get(key)
        if known is None or not _current(known.units):
            if len(answers) >= _KEPT:
                answers.clear()
            known = answers[key] = _answer(resolver, symbol)
        return known.modules


@dataclass(eq=False)
class _Answer:
    """The modules of a class, and the files that say so."""

    modules: list[HeldModule]
    units: list[Unit]


#: one question at a time: interpreters are kept, for what they have read and evaluated
LOCK = threading.RLock()
_answers: WeakKeyDictionary[Resolver, dict[tuple[str, str, str, int], _Answer]] = WeakKeyDictionary()
_machines: WeakKeyDictionary[Resolver, dict[str, Machine]] = WeakKeyDictionary()


def _current(units: Iterable[Unit]) -> bool:
    """Whether none of the files has changed."""
    return all(unit.tree.unit(unit.file) is unit for unit in units)


def machine_of(resolver: Resolver, symbol: ClassSymbol, *, strict: bool = False) -> Machine:
    """An interpreter for the class's repository; what it knows of the files is kept until one of them changes. `strict`:
    one for values, which takes what may not have run for undecided."""
    kept = _machines.setdefault(resolver, {})
    name = f"{symbol.repository.name}{' strict' if strict else ''}"
    machine = kept.get(name)
    if machine is None or len(machine.units) > _UNITS or not _current(machine.units.values()):
        machine = kept[name] = Machine(resolver, symbol.unit.tree)
        machine.strict = strict
    machine.reset()
    return machine


def _answer(resolver: Resolver, symbol: ClassSymbol) -> _Answer:
    machine = machine_of(resolver, symbol)
    machine.begin()
    try:
        cls = machine.class_value(symbol)
        if not machine.is_module(cls):
            return _Answer([], [symbol.unit])
        found, whole = read_alone(machine, cls)
        if not whole or any(row.at_default is not True or row.condition or row.dispatch for row in found):
            found = _in_context(machine, cls, found)
        return _Answer(found, list(machine.units.values()))
    finally:
        machine.end(undo=True)


@dataclass(eq=False)
class _Model:
    """What a model built from its default configuration holds, by class; whether a constructor failed on the way (then
    it cannot be built either: some classes are made with parts of a configuration only), and whether all was read."""

    rows: dict[str, list[HeldModule]]
    failed: bool
    whole: bool


def _in_context(machine: Machine, cls: ClassValue, alone: list[HeldModule]) -> list[HeldModule]:
    """What the class holds in the models that build it; where none does, what the class read by itself tells."""
    models = [model for root in models_above(machine, cls) if (model := _model(machine, root)) is not None]
    holding = [model for model in models if cls.qualified_name in model.rows]
    holding = [model for model in holding if not model.failed] or holding
    if not holding:
        return alone
    found = [row for model in holding for row in model.rows[cls.qualified_name]]
    if not all(model.whole for model in models):  # what a model would add that was not read to its end is not known
        found = [*found, *(replace(row, at_default=None) for row in alone)]
    return merged(found)


def _model(machine: Machine, root: ClassValue) -> _Model | None:
    """The model of a class, read once; None where it has no default configuration."""
    known = machine.models.get(id(root))
    if isinstance(known, _Model):
        return known
    config = configuration(machine, root)
    if config is None:
        return None
    if len(machine.models) >= _MODELS:
        machine.models.clear()
    machine.deep, machine.exhausted = True, False
    failures = machine.failures
    machine.log.clear()
    build(machine, root, (config,))
    found = _Model(rows_by_class(machine), failures != machine.failures, not machine.exhausted)
    machine.models[id(root)] = found
    return found


def rows_by_class(machine: Machine) -> dict[str, list[HeldModule]]:
    """The rows of everything built, by qualified class name."""
    found: dict[str, list[HeldModule]] = {}
    for this in {id(this): this for this in machine.log}.values():
        found.setdefault(this.cls.qualified_name, []).extend(rows(machine, this))
    return {name: merged(held) for name, held in found.items()}


def build(machine: Machine, cls: ClassValue, args: tuple[Any, ...]) -> Instance | None:
    """An object of the class, as far as it can be built."""
    machine.live, machine.depth, machine.branch, machine.trying = True, 0, 0, 0
    machine.allow()
    try:
        made = machine.construct(cls, args, {})
    except ExhaustedError:
        machine.exhausted = True
        return None
    except (RaisedError, UndecidedError, RecursionError):
        return None
    return made if isinstance(made, Instance) else None


def read_alone(machine: Machine, cls: ClassValue) -> tuple[list[HeldModule], bool]:
    """The modules of the class, its parameters being what their defaults and annotations say; and whether its
    constructor was read to its end and holds nothing that a caller hands it."""
    machine.deep = False
    machine.serial += 1
    this = Instance(cls, module=True, serial=machine.serial)
    if isinstance(machine.member(cls, "__init__")[1], Unknown):
        raise SourceError(
            f"The constructor of {cls.name} nests expressions too deeply to be read, or does not parse.",
            location=f"{cls.symbol.file}:{cls.symbol.line}",
        )
    machine.allow()
    whole = True
    failures = machine.failures
    try:
        machine.initialise(this, (), own_arguments(machine, cls))
    except (RaisedError, UndecidedError, ExhaustedError, RecursionError):
        whole = False
    whole = whole and failures == machine.failures and not _is_filled_by_others(machine, this)
    return merged(rows(machine, this)), whole


def _is_filled_by_others(machine: Machine, this: Instance) -> bool:
    """Whether who makes the object decides on modules of it: it holds a parameter, or an attribute that is None here
    and set from outside in the same file."""
    if _holds_parameters(this, 0):
        return True
    init = machine.member(this.cls, "__init__")[1]
    if isinstance(init, FunctionValue) and _keeps_optional(init):
        return True
    empty = [name for name, value in this.attrs.items() if value is None]
    if not empty:
        return False
    source = this.cls.symbol.unit.tree.source(this.cls.symbol.file)
    return re.search(rb"(?<!self)\.(%s) *=[^=]" % "|".join(map(re.escape, empty)).encode(), source) is not None


def _keeps_optional(init: FunctionValue) -> bool:
    """Whether the constructor stores a parameter whose default is None and that may be a module."""
    node = init.code.node
    parameters = [*node.args.posonlyargs, *node.args.args]
    pairs = [*zip(reversed(parameters), reversed(node.args.defaults), strict=False)]
    pairs += [(p, d) for p, d in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if d is not None]
    optional = {
        parameter.arg
        for parameter, default in pairs
        if isinstance(default, ast.Constant)
        and default.value is None
        and not (parameter.annotation and _PLAIN.fullmatch(init.code.text(parameter.annotation)))
    }
    return bool(optional) and any(
        isinstance(inner, ast.Assign)
        and isinstance(inner.value, ast.Name)
        and inner.value.id in optional
        and isinstance(inner.targets[0], ast.Attribute)
        for inner in (node.body if isinstance(node.body, list) else ())
    )


def _holds_parameters(value: Any, depth: int) -> bool:
    """Whether an attribute, or the item of a container, is a parameter that may be a module."""
    if isinstance(value, Unknown):
        return value.given
    if isinstance(value, Choice):
        return any(_holds_parameters(option.value, depth) for option in value.options)
    if isinstance(value, Instance) and value.module and depth < 3:
        return any(_holds_parameters(inner, depth + 1) for inner in value.attrs.values())
    return False


def own_arguments(machine: Machine, cls: ClassValue) -> dict[str, Any]:
    """Values for the parameters that have no default: a default configuration where one is declared, else unknown."""
    init = machine.member(cls, "__init__")[1]
    if not isinstance(init, FunctionValue):
        return {}
    given: dict[str, Any] = {}
    node = init.code.node.args
    defaults = len(node.args) - len(node.defaults)
    for number, parameter in enumerate([*node.posonlyargs, *node.args][1:], 1):
        if number >= defaults + len(node.posonlyargs):
            break
        name = parameter.arg
        declared = None
        if parameter.annotation is not None and init.holder is not None:
            declared = annotated(machine, init.holder, init.code.text(parameter.annotation))
        made: Any = None
        if name == "config":
            made = configuration(machine, cls)
        if made is None and declared is not None and not machine.is_module(declared) and machine.is_record(declared):
            try:
                made = machine.call(declared, (), {})
            except (RaisedError, UndecidedError, ExhaustedError):
                made = None
        given[name] = (
            made
            if made is not None
            else _parameter(name, init.code.text(parameter.annotation) if parameter.annotation else "")
        )
    return given


def _parameter(name: str, annotation: str) -> Unknown:
    """A parameter that nothing is known of; one declared as a number or the like is no module."""
    value = Unknown(name)
    value.given = _PLAIN.fullmatch(annotation) is None
    return value


def built_model(
    resolver: Resolver, symbol: ClassSymbol, config: ClassSymbol | None = None
) -> dict[str, list[HeldModule]]:
    """What each module class holds in a model of class `symbol` built from its default configuration (or from that of
    the class `config`)."""
    with LOCK:
        machine = machine_of(resolver, symbol)
        machine.begin()
        try:
            machine.deep = True
            cls = machine.class_value(symbol)
            made = (
                machine.call(machine.class_value(config), (), {}) if config is not None else configuration(machine, cls)
            )
            build(machine, cls, (made,) if made is not None else ())
            return rows_by_class(machine)
        finally:
            machine.end(undo=True)
