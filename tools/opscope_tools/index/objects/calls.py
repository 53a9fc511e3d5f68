"""Calls and construction: functions run, objects made, those of torch left waiting until something looks into them."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial
from typing import Any

from opscope_tools.index.objects.attributes import Attributes, enum_member, of_torch, opened
from opscope_tools.index.objects.classes import Classes, Names
from opscope_tools.index.objects.known import containers, table
from opscope_tools.index.objects.memo import memo_key, same
from opscope_tools.index.objects.parts import Evaluation, Execution
from opscope_tools.index.objects.records import Records
from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.values import (
    DATA_BASES,
    MISSING,
    Args,
    Choice,
    ClassValue,
    ExhaustedError,
    Frame,
    FunctionValue,
    Instance,
    Kwargs,
    Method,
    Native,
    Option,
    Partial,
    RaisedError,
    Turn,
    UndecidedError,
    Unknown,
    choice,
    plain,
)
from opscope_tools.source.python.rows import AssignRow
from opscope_tools.source.python.syntax import parameters

#: how deep calls may nest, and how deep they are followed in a branch that is not, or not surely, taken
_DEPTH = 40
_BRANCH_DEPTH = 1
#: how many expressions one call of a function may evaluate: tables of numbers are computed there
_STEPS = 60_000
#: types of Python's own that are made; what others would make nobody asks for, or it may be large
_TYPES = (int, float, str, bool, complex, range, slice, list, tuple, dict, set, frozenset)
_CONSTRUCTORS = {"__init__", "__post_init__"}


@dataclass(eq=False)
class Calls:
    """Calls; `interpreter` is for the functions that it knows."""

    names: Names
    classes: Classes
    records: Records
    attributes: Attributes
    state: State
    evaluation: Evaluation
    execution: Execution
    interpreter: object

    def call(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """`function(*args, **kwargs)`; arguments may be choices."""
        kind = type(function)
        if kind is Choice:
            return self._each(function, args, kwargs)
        if kind is ClassValue:
            return self.construct(function, args, kwargs)
        if kind is Method:
            if isinstance(function.function, FunctionValue):
                return self._run(function.function, (function.this, *args), kwargs, function.this)
            return self.call(function.function, (function.this, *args), kwargs)
        if kind is FunctionValue:
            return self._run(function, args, kwargs)
        if kind is Native:
            if function.full:
                return function.run(self.interpreter, args, kwargs)
            return function.run(self.interpreter, tuple(map(opened, args)), {k: opened(v) for k, v in kwargs.items()})
        if kind is Partial:
            return self.call(function.function, (*function.args, *args), {**function.kwargs, **kwargs})
        if kind is Unknown:
            return Unknown(function.text, classes=function.classes)
        if kind is Instance:
            found = self.classes.member(function.cls, "__call__")[1] if not function.module else MISSING
            if isinstance(found, FunctionValue):
                return self._run(found, (function, *args), kwargs, function)
            return Unknown(f"{function.cls.name}()")
        if function in _TYPES:
            values = [opened(value) for value in args]
            if any(isinstance(value, Unknown | Choice) for value in values):
                raise UndecidedError
            return function(*values, **{k: opened(v) for k, v in kwargs.items()})
        if isinstance(function, type):
            return Unknown(function.__name__)
        raise RaisedError("TypeError")

    def _each(self, function: Choice, args: Args, kwargs: Kwargs) -> Any:
        made = []
        for option in function.options:
            with self.state.within(option.live):
                value = self._attempt(option.value, args, kwargs)
            made.append(Option(option.condition, value, option.live))
        return choice(made)

    def _run(self, function: FunctionValue, args: Args, kwargs: Kwargs, this: Any = None) -> Any:
        """Run a function of the analysed source."""
        unit, name, state = function.code.unit, function.code.name, self.state
        own = isinstance(this, Instance) and name == "__init__"  # of a base of what is being built
        if self.names.foreign(unit.name) and not own:
            return _handed_back(function, args)
        if state.depth >= _DEPTH or function.code.yields:
            return Unknown(name)
        if state.live is not True and state.depth - state.branch > _BRANCH_DEPTH:
            return Unknown(name)
        if this is None and function.holder is not None and args and isinstance(args[0], Instance | ClassValue):
            this = args[0]
        self.names.units[id(unit)] = unit
        frame = Frame(unit, function.code, {}, function.closure, this, function.holder)
        if function.closure is not None and this is None:
            frame.this = function.closure.this
            frame.holder = frame.holder or function.closure.holder
        self._bind(function, frame, args, kwargs)
        state.depth += 1
        trying, limit, made = state.trying, state.limit, state.made
        if name in _CONSTRUCTORS:
            state.trying = 0
        else:
            state.limit = min(limit, state.steps + _STEPS)
        try:
            return self._body(function, frame)
        except ExhaustedError:
            if state.steps > limit or state.made > made or name in _CONSTRUCTORS:
                raise
            return Unknown(name)
        finally:
            state.trying = trying
            state.limit = limit if state.made == made else state.ceiling  # what builds modules is not cut short
            state.depth -= 1

    def _body(self, function: FunctionValue, frame: Frame) -> Any:
        node = function.code.node
        if isinstance(node, ast.Lambda):
            return self.evaluation.full(node.body, frame)
        try:
            self.execution.block(node.body, frame)
        except RaisedError:
            if not (frame.open and frame.returns):
                raise  # what fails after a branch that may have returned is not sure to be reached
        return choice(frame.returns) if frame.returns else None

    def _attempt(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """The result of a call, unknown where it fails."""
        try:
            return self.call(function, args, kwargs)
        except (RaisedError, UndecidedError):
            return Unknown()

    def _bind(self, function: FunctionValue, frame: Frame, args: Args, kwargs: Kwargs) -> None:
        """Parameters to values; an argument that is missing is what its default says, else unknown."""
        node = function.code.node.args
        given = dict(kwargs)
        spread = given.pop("**", None)
        names = [parameter.arg for parameter in (*node.posonlyargs, *node.args)]
        local = frame.local
        for name, value in zip(names, args, strict=False):
            local[name] = value
        if node.vararg is not None:
            local[node.vararg.arg] = given.pop("*") if "*" in given else tuple(args[len(names) :])
        for parameter, default in parameters(node):
            name = parameter.arg
            if name in given:
                local[name] = given.pop(name)
            elif name not in local:
                if spread is not None or default is None:
                    local[name] = Unknown(name)
                else:
                    outer = function.closure or Frame(function.code.unit, function.code, {}, holder=function.holder)
                    local[name] = self.evaluation.full(default, outer)
        if node.kwarg is not None:
            local[node.kwarg.arg] = given if spread is None else Unknown(node.kwarg.arg)

    # construction

    def construct(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Any:
        """An instance of the class. Constructors of modules run in a deep interpretation only, those of torch never:
        such an instance waits until something looks into it."""
        native = table.known(cls.qualified_name)
        if native is not MISSING:
            return self.call(native, args, kwargs)
        if cls.is_enum():
            return self._enum_of(cls, args)
        self.attributes.prepare(cls)
        state, module, container = self.state, cls.is_module(), cls.container()
        state.serial += 1
        this = Instance(cls, module=module, serial=state.serial)
        waits = state.live is False or (module and not state.deep) or self.names.foreign(cls.symbol.module)
        if waits and not (container and cls.qualified_name.startswith("torch.")):
            this.waiting = partial(self._late, args, kwargs)
        elif module and not container:
            state.made += 1
            state.limit = state.ceiling
            self._memoised(this, args, kwargs)
        else:
            self.initialise(this, args, kwargs)
        return this

    def _enum_of(self, cls: ClassValue, args: Args) -> Any:
        for name, row in cls.space.items():
            if not isinstance(row, AssignRow | str | int):
                continue
            value = self.classes.own(cls, name)
            if args and not isinstance(value, FunctionValue) and same(plain(args[0]), value):
                return enum_member(cls, name, value)
        raise UndecidedError

    def _late(self, args: Args, kwargs: Kwargs, this: Instance) -> None:
        """Run the constructor of an instance that has waited."""
        deep, self.state.deep = self.state.deep, False
        home, self.names.home = self.names.home, this.cls.symbol.unit.tree
        try:
            self.initialise(this, args, kwargs)
        except (RaisedError, UndecidedError):
            pass
        finally:
            self.state.deep, self.names.home = deep, home

    def initialise(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        """Run the `__init__` that Python would find for an object, or do what torch's and a record's own does."""
        data = next((kind for base in this.cls.mro if isinstance(base, str) and (kind := DATA_BASES.get(base))), None)
        if data is not None:
            this.data = data()
        holder, init = self.classes.member(this.cls, "__init__")
        if not this.module and self.records.generates_init(this.cls, holder):
            self.fill_record(this, args, kwargs)
        elif isinstance(init, FunctionValue) and not of_torch(holder):
            self._run(init, (this, *args), kwargs, this)
        elif this.module:
            containers.fill(self.attributes, this, args, kwargs)
        elif data is not None:
            this.data = data(*(plain(a) for a in args), **kwargs)
        if this.module and self.state.live is not False:
            self.state.log.append(this)

    def fill_record(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        """Set the fields of a dataclass or named tuple from arguments and defaults, as its generated `__init__` does."""
        given = dict(kwargs)
        positional = list(args)
        passed: dict[str, Any] = {}
        holders = self.records.field_holders(this.cls)
        for field in self.records.fields(this.cls):
            if positional:
                value = positional.pop(0)
            elif field.name in given:
                value = given.pop(field.name)
            elif field.default_factory is not MISSING:
                value = self._attempt(field.default_factory, (), {})
            else:
                value = field.default if field.default is not MISSING else Unknown(field.name)
            row = holders[field.name][-1].symbol.members.get(field.name)
            if isinstance(row, AssignRow) and "InitVar" in row.annotation:
                passed[field.name] = value
            else:
                self.attributes.put(this, field.name, value)
        for name in ("__attrs_post_init__", "__post_init__", "model_post_init"):
            self._hook(this, name, {**given, **passed})
        for name in self.records.after_hooks(this.cls):
            self._hook(this, name, {})

    def _hook(self, this: Instance, name: str, kwargs: Kwargs) -> None:
        hook = self.classes.member(this.cls, name)[1]
        if isinstance(hook, FunctionValue):
            context = (Unknown("context"),) if name == "model_post_init" else ()
            self._run(hook, (this, *context), kwargs, this)

    def _memoised(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        """Make the instance, with the attributes of an equal one where the same arguments have been seen."""
        state = self.state
        loops = {value.loop for value in (*args, *kwargs.values()) if type(value) is Turn}
        loose = memo_key(this.cls, args, kwargs, state.live, state.changes, exact=False)
        strict = memo_key(this.cls, args, kwargs, state.live, state.changes, exact=True)
        known = state.built.get(loose) or state.built.get(strict) if strict is not None else None
        if known is not None:
            this.attrs, this.places, this.shared = dict(known[0].attrs), known[0].places, True
            state.log.extend(known[1])
            return
        before = [(loop, loop.used) for loop in loops]
        for loop in loops:
            loop.used = False
        failures, first = state.failures, len(state.log)
        self.initialise(this, args, kwargs)
        used = any(loop.used for loop in loops)
        for loop, was in before:
            loop.used = loop.used or was
        if (
            strict is not None
            and failures == state.failures
            and strict == memo_key(this.cls, args, kwargs, state.live, state.changes, exact=True)
        ):
            # the arguments are kept, so that no id is used again
            state.built[strict if used else loose] = (this, state.log[first:], args, kwargs)


def _handed_back(function: FunctionValue, args: Args) -> Any:
    """The first argument where every `return` of the function gives it back, as weight_norm(module) does."""
    node = function.code.node
    first = plain(args[0]) if args else None
    if isinstance(first, Instance) and first.module and isinstance(node, ast.FunctionDef) and node.args.args:
        name = node.args.args[0].arg
        found = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
        if found and all(isinstance(value, ast.Name) and value.id == name for value in found):
            return args[0]
    return Unknown(function.code.name)
