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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from opscope_schemas.errors import SourceError

from opscope_tools.index.modules.default_models import configuration, models_above
from opscope_tools.index.modules.kept_rows import keep, kept
from opscope_tools.index.modules.rows_of_objects import HeldModule, merged, rows
from opscope_tools.index.objects import ClassValue, Instance, Interpreter
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
from opscope_tools.source.python.syntax import parameters

__all__ = ["HeldModule", "attributes", "built_model", "interpreting", "submodules"]

#: answers that are kept at once, source files and models of an interpreter, interpreters
_KEPT, _UNITS, _MODELS, _INTERPRETERS = 2000, 250, 60, 6
_PLAIN = re.compile(r"\"?((int|float|str|bool|bytes|None|dict|list|tuple)(\[(?>[\w, .\[\]|]*\]))?( *+\| *+)?)++\"?")


def submodules(resolver: Resolver, symbol: ClassSymbol) -> list[HeldModule]:
    """The modules that an instance of `symbol` holds, in order of attribute creation."""
    return [row for row in attributes(resolver, symbol) if row.kind == "module"]


def attributes(resolver: Resolver, symbol: ClassSymbol) -> list[HeldModule]:
    """All that the attributes of an instance of `symbol` hold, in order of their creation. Of a class that is no module
    submodules are no business; what its constructor sets is told as of any other."""
    with LOCK:
        answers = resolver.kept.of(_Known, _Known).answers
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


@dataclass(eq=False)
class _Kept:
    """An interpreter, and all that it has looked at."""

    interpreter: Interpreter
    looks: Looks = field(default_factory=dict)


@dataclass(eq=False)
class _Known:
    """What is known with one resolver: answers by class, and interpreters by file."""

    answers: dict[tuple[str, str, str, int], tuple[list[HeldModule], Looks]] = field(default_factory=dict)
    interpreters: OrderedDict[tuple[str, str, bool], _Kept] = field(default_factory=OrderedDict)


@contextmanager
def interpreting(resolver: Resolver, of: ClassSymbol, *, strict: bool = False) -> Iterator[tuple[Interpreter, Looks]]:
    """An interpreter for questions about the class's file, and what it looks at; what it knows is kept until something
    of that changes. `strict`: one for values, which takes what may not have run for undecided. What it changes is
    undone."""
    with LOCK:
        interpreters = resolver.kept.of(_Known, _Known).interpreters
        name = (of.repository.name, of.file, strict)
        known = interpreters.pop(name, None)
        if known is None or len(known.interpreter.names.units) > _UNITS or not resolver.unchanged(known.looks):
            known = _Kept(Interpreter(resolver, of.unit.tree))
            known.interpreter.state.strict = strict
        interpreters[name] = known
        while len(interpreters) > _INTERPRETERS:
            interpreters.popitem(last=False)
        interpreter = known.interpreter
        interpreter.state.reset()
        # apart: what another question looked up was not looked at here
        with resolver.question(apart=True), noting(known.looks):
            of.unit.tree.unit(of.file)
            interpreter.state.begin()
            try:
                yield interpreter, known.looks
            finally:
                interpreter.state.end(undo=True)


def _answer(resolver: Resolver, symbol: ClassSymbol) -> tuple[list[HeldModule], Looks]:
    with interpreting(resolver, symbol) as (interpreter, looks):
        cls = interpreter.names.class_value(symbol)
        found, whole = read_alone(interpreter, cls)
        modules = [row for row in found if row.kind == "module"]
        if cls.is_module() and (
            not whole or any(row.at_default is not True or row.condition or row.dispatch for row in modules)
        ):
            found = _in_context(interpreter, cls, found)
        return found, settled(looks)


@dataclass(eq=False)
class _Model:
    """What a model built from its default configuration holds, by class; whether a constructor failed on the way (then
    it cannot be built either: some classes are made with parts of a configuration only), and whether all was read."""

    rows: dict[str, list[HeldModule]]
    failed: bool
    whole: bool


def _in_context(interpreter: Interpreter, cls: ClassValue, alone: list[HeldModule]) -> list[HeldModule]:
    """What the class holds in the models that build it; where none does, what the class read by itself tells."""
    models = [model for root in models_above(interpreter, cls) if (model := _model(interpreter, root)) is not None]
    holding = [model for model in models if cls.qualified_name in model.rows]
    holding = [model for model in holding if not model.failed] or holding
    if not holding:
        return alone
    found = [row for model in holding for row in model.rows[cls.qualified_name]]
    if not all(model.whole for model in models):  # what a model would add that was not read to its end is not known
        found = [*found, *(replace(row, at_default=None) for row in alone)]
    return merged(found)


def _model(interpreter: Interpreter, root: ClassValue) -> _Model | None:
    """The model of a class, read once; None where it has no default configuration."""
    known = interpreter.models.get(id(root))
    if isinstance(known, _Model):
        return known
    config = configuration(interpreter, root)
    if config is None:
        return None
    if len(interpreter.models) >= _MODELS:
        interpreter.models.clear()
    interpreter.state.deep, interpreter.state.exhausted = True, False
    failures = interpreter.state.failures
    interpreter.state.log.clear()
    build(interpreter, root, (config,))
    found = _Model(rows_by_class(interpreter), failures != interpreter.state.failures, not interpreter.state.exhausted)
    interpreter.models[id(root)] = found
    return found


def rows_by_class(interpreter: Interpreter) -> dict[str, list[HeldModule]]:
    """The rows of everything built, by qualified class name."""
    found: dict[str, list[HeldModule]] = {}
    for this in {id(this): this for this in interpreter.state.log}.values():
        found.setdefault(this.cls.qualified_name, []).extend(rows(this))
    return {name: merged(held) for name, held in found.items()}


def build(interpreter: Interpreter, cls: ClassValue, args: tuple[object, ...]) -> Instance | None:
    """An object of the class, as far as it can be built."""
    interpreter.state.at_top()
    interpreter.state.allow()
    try:
        made = interpreter.calls.construct(cls, args, {})
    except ExhaustedError:
        interpreter.state.exhausted = True
        return None
    except (RaisedError, UndecidedError, RecursionError):
        return None
    return made if isinstance(made, Instance) else None


def read_alone(interpreter: Interpreter, cls: ClassValue) -> tuple[list[HeldModule], bool]:
    """The modules of the class, its parameters being what their defaults and annotations say; and whether its
    constructor was read to its end and holds nothing that a caller hands it."""
    interpreter.state.deep = False
    interpreter.state.serial += 1
    this = Instance(cls, module=cls.is_module(), serial=interpreter.state.serial)
    if isinstance(interpreter.classes.member(cls, "__init__")[1], Unknown):
        raise SourceError(
            f"The constructor of {cls.name} nests expressions too deeply to be read, or does not parse.",
            location=f"{cls.symbol.file}:{cls.symbol.line}",
        )
    interpreter.state.allow()
    whole = True
    failures = interpreter.state.failures
    try:
        interpreter.calls.initialise(this, (), own_arguments(interpreter, cls))
    except (RaisedError, UndecidedError, ExhaustedError, RecursionError):
        whole = False
    whole = whole and failures == interpreter.state.failures and not _is_filled_by_others(interpreter, this)
    return merged(rows(this)), whole


def _is_filled_by_others(interpreter: Interpreter, this: Instance) -> bool:
    """Whether who makes the object decides on modules of it: it holds a parameter, or an attribute that is None here
    and set from outside in the same file."""
    if _holds_parameters(this, 0):
        return True
    init = interpreter.classes.member(this.cls, "__init__")[1]
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
    optional = {
        parameter.arg
        for parameter, default in parameters(node.args)
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


def _holds_parameters(value: object, depth: int) -> bool:
    """Whether an attribute, or the item of a container, is a parameter that may be a module."""
    if isinstance(value, Unknown):
        return value.given
    if isinstance(value, Choice):
        return any(_holds_parameters(option.value, depth) for option in value.options)
    if isinstance(value, Instance) and value.module and depth < 3:
        return any(_holds_parameters(inner, depth + 1) for inner in value.attrs.values())
    return False


def own_arguments(interpreter: Interpreter, cls: ClassValue) -> dict[str, Any]:
    """Values for the parameters that have no default: a default configuration where one is declared, else unknown. What
    else a module is handed is for its parts; of other objects it is not known either."""
    init = interpreter.classes.member(cls, "__init__")[1]
    if not isinstance(init, FunctionValue):
        return {}
    node = init.code.node.args
    given: dict[str, Any] = {"*": Unknown(node.vararg.arg)} if node.vararg and not cls.is_module() else {}
    positional = [*node.posonlyargs, *node.args]
    for parameter in positional[1 : len(positional) - len(node.defaults)]:
        name = parameter.arg
        annotation = init.code.text(parameter.annotation) if parameter.annotation is not None else ""
        declared = interpreter.names.annotation(init.holder, annotation) if init.holder is not None else None
        made: Any = configuration(interpreter, cls) if name == "config" else None
        if made is None and declared is not None and not declared.is_module() and interpreter.records.kind(declared):
            with suppress(RaisedError, UndecidedError, ExhaustedError):
                made = interpreter.call(declared, (), {})
        given[name] = made if made is not None else _parameter(name, annotation)
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
    with interpreting(resolver, symbol) as (interpreter, _):
        interpreter.state.deep = True
        cls = interpreter.names.class_value(symbol)
        own = interpreter.names.class_value(config) if config is not None else None
        made = configuration(interpreter, cls) if own is None else interpreter.call(own, (), {})
        build(interpreter, cls, (made,) if made is not None else ())
        held = rows_by_class(interpreter)
        return {name: [row for row in found if row.kind == "module"] for name, found in held.items()}
