"""Which modules an object holds: its constructor interpreted, with the classes, arguments and conditions of each.

A class is asked about in the contexts that its own file gives it: the models of the file, built from the defaults of
their configuration classes, tell with which arguments it is made. Where no model of the file builds it, it is read by
itself, with what its parameters' defaults and annotations say.
"""

from __future__ import annotations

import ast
import re
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from opscope_schemas.errors import SourceError

from opscope_tools.index.modules.default_models import configuration, models_above
from opscope_tools.index.modules.kept_rows import keep, kept
from opscope_tools.index.modules.rows_of_objects import HeldModule, merged, rows
from opscope_tools.index.objects import ClassValue, Instance, Machine, annotated
from opscope_tools.index.objects.values import (
    Choice,
    ExhaustedError,
    FunctionValue,
    RaisedError,
    UndecidedError,
    Unknown,
)
from opscope_tools.source.python.looks import Looks, noting, settled
from opscope_tools.source.python.names import ClassSymbol, Resolver

__all__ = ["HeldModule", "attributes", "built_model", "interpreting", "submodules"]

#: answers that are kept at once, source files and models of an interpreter, interpreters
_KEPT, _UNITS, _MODELS, _MACHINES = 2000, 250, 60, 6
_PLAIN = re.compile(r"\"?((int|float|str|bool|bytes|None|dict|list|tuple)(\[(?>[\w, .\[\]|]*\]))?( *+\| *+)?)++\"?")


def submodules(resolver: Resolver, symbol: ClassSymbol) -> list[HeldModule]:
    """The modules that an instance of `symbol` holds, in order of attribute creation."""
    return [row for row in attributes(resolver, symbol) if row.kind == "module"]


def attributes(resolver: Resolver, symbol: ClassSymbol) -> list[HeldModule]:
    """All that the attributes of an instance of `symbol` hold, in order of their creation. Of a class that is no module
    submodules are no business; what its constructor sets is told as of any other."""
    with LOCK:
        answers = _answers.setdefault(resolver, {})
        key = (symbol.repository.name, symbol.file, symbol.path, symbol.line)
        known = answers.get(key)
        if known is None or not resolver.unchanged(known[1]):
            if len(answers) >= _KEPT:
                answers.clear()
            known = kept(resolver, symbol)
            if known is None:
                known = _answer(resolver, symbol)
                keep(resolver, symbol, *known)
            answers[key] = known
        return known[0]


#: one question at a time: interpreters are kept, for what they have read and evaluated
LOCK = threading.RLock()
_answers: WeakKeyDictionary[Resolver, dict[tuple[str, str, str, int], tuple[list[HeldModule], Looks]]] = (
    WeakKeyDictionary()
)
_machines: WeakKeyDictionary[Resolver, OrderedDict[tuple[str, str, bool], _Kept]] = WeakKeyDictionary()


@dataclass(eq=False)
class _Kept:
    """An interpreter, and all that it has looked at."""

    machine: Machine
    looks: Looks = field(default_factory=dict)


@contextmanager
def interpreting(resolver: Resolver, symbol: ClassSymbol, *, strict: bool = False) -> Iterator[tuple[Machine, Looks]]:
    """An interpreter for questions about the class's file, and what it looks at; what it knows is kept until something
    of that changes. `strict`: one for values, which takes what may not have run for undecided. What it changes is
    undone."""
    with LOCK:
        machines = _machines.setdefault(resolver, OrderedDict())
        name = (symbol.repository.name, symbol.file, strict)
        known = machines.pop(name, None)
        if known is None or len(known.machine.units) > _UNITS or not resolver.unchanged(known.looks):
            known = _Kept(Machine(resolver, symbol.unit.tree))
            known.machine.strict = strict
        machines[name] = known
        while len(machines) > _MACHINES:
            machines.popitem(last=False)
        machine = known.machine
        machine.reset()
        # apart: what another question looked up was not looked at here
        with resolver.question(apart=True), noting(known.looks):
            symbol.unit.tree.unit(symbol.file)
            machine.begin()
            try:
                yield machine, known.looks
            finally:
                machine.end(undo=True)


def _answer(resolver: Resolver, symbol: ClassSymbol) -> tuple[list[HeldModule], Looks]:
    with interpreting(resolver, symbol) as (machine, looks):
        cls = machine.class_value(symbol)
        found, whole = read_alone(machine, cls)
        modules = [row for row in found if row.kind == "module"]
        if machine.is_module(cls) and (
            not whole or any(row.at_default is not True or row.condition or row.dispatch for row in modules)
        ):
            found = _in_context(machine, cls, found)
        return found, settled(looks)


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
    this = Instance(cls, module=machine.is_module(cls), serial=machine.serial)
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
    """Values for the parameters that have no default: a default configuration where one is declared, else unknown. What
    else a module is handed is for its parts; of other objects it is not known either."""
    init = machine.member(cls, "__init__")[1]
    if not isinstance(init, FunctionValue):
        return {}
    node = init.code.node.args
    given: dict[str, Any] = {"*": Unknown(node.vararg.arg)} if node.vararg and not machine.is_module(cls) else {}
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
    with interpreting(resolver, symbol) as (machine, _):
        machine.deep = True
        cls = machine.class_value(symbol)
        made = machine.call(machine.class_value(config), (), {}) if config is not None else configuration(machine, cls)
        build(machine, cls, (made,) if made is not None else ())
        return {name: [row for row in found if row.kind == "module"] for name, found in rows_by_class(machine).items()}
