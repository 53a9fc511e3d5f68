"""Calls and construction: functions run, objects made, those of torch left waiting until something looks into them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from opscope_tools.index.objects import containers
from opscope_tools.index.objects.attributes import DATA_BASES, Args, Kwargs
from opscope_tools.index.objects.base import BRANCH_DEPTH, CALL_STEPS, DEPTH
from opscope_tools.index.objects.memo import memo_key, same
from opscope_tools.index.objects.records import Records
from opscope_tools.index.objects.values import (
    MISSING,
    Choice,
    ClassValue,
    ExhaustedError,
    Frame,
    FunctionValue,
    Instance,
    Method,
    Native,
    OfClass,
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

#: types of Python's own that are made; what others would make nobody asks for, or it may be large
_TYPES = (int, float, str, bool, complex, range, slice, list, tuple, dict, set, frozenset)


class Objects(Records):
    """Calls and construction."""

    def call(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """`function(*args, **kwargs)`; arguments may be choices."""
        kind = type(function)
        if kind is Choice:
            return self._each(function, args, kwargs)
        if kind is ClassValue:
            return self.construct(function, args, kwargs)
        if kind is Method:
            return self._method_call(function, args, kwargs)
        if kind is FunctionValue:
            return self.run(function, args, kwargs)
        if kind is Native:
            if function.full:
                return function.run(self, args, kwargs)
            return function.run(self, tuple(map(self.open, args)), {k: self.open(v) for k, v in kwargs.items()})
        if kind is Partial:
            return self.call(function.function, (*function.args, *args), {**function.kwargs, **kwargs})
        if kind is Unknown:
            return Unknown(function.text, classes=function.classes)
        if kind is Instance:
            return self._instance_call(function, args, kwargs)
        if function in _TYPES:
            values = [self.open(value) for value in args]
            if any(isinstance(value, Unknown | Choice) for value in values):
                raise UndecidedError
            return function(*values, **{k: self.open(v) for k, v in kwargs.items()})
        if isinstance(function, type):
            return Unknown(function.__name__)
        raise RaisedError("TypeError")

    def _method_call(self, method: Method, args: Args, kwargs: Kwargs) -> Any:
        if isinstance(method.function, FunctionValue):
            return self.run(method.function, (method.this, *args), kwargs, method.this)
        return self.call(method.function, (method.this, *args), kwargs)

    def _instance_call(self, this: Instance, args: Args, kwargs: Kwargs) -> Any:
        found = self.member(this.cls, "__call__")[1] if not this.module else MISSING
        if isinstance(found, FunctionValue):
            return self.run(found, (this, *args), kwargs, this)
        return Unknown(f"{this.cls.name}()")

    def _each(self, function: Choice, args: Args, kwargs: Kwargs) -> Any:
        made = []
        for option in function.options:
            value = self.under(option.live, partial(self.attempt, option.value, args, kwargs))
            made.append(Option(option.condition, value, option.live))
        return choice(made)

    def under(self, live: bool | None, act: Callable[[], Any]) -> Any:
        """Run `act` where a branch is taken (True), not taken (False) or open (None); what a branch that is not taken
        changes is undone."""
        if live is True:
            return act()
        branch, self.branch = self.branch, self.depth if self.live is True else self.branch
        before, self.live = self.live, False if self.live is False or live is False else None
        self.begin()
        try:
            return act()
        finally:
            self.end(undo=live is False)
            self.live, self.branch = before, branch

    def run(self, function: FunctionValue, args: Args, kwargs: Kwargs, this: Any = None) -> Any:
        """Run a function of the analysed source."""
        unit = function.code.unit
        own = isinstance(this, Instance) and function.code.name == "__init__"  # of a base of what is being built
        if self.foreign(unit.name) and not own:
            return self._handed_back(function, args)
        if self.depth >= DEPTH or function.code.yields:
            return Unknown(function.code.name)
        if self.live is not True and self.depth - self.branch > BRANCH_DEPTH:
            return Unknown(function.code.name)
        if this is None and function.holder is not None and args and isinstance(args[0], Instance | ClassValue):
            this = args[0]
        self.units[id(unit)] = unit
        frame = Frame(unit, function.code, {}, function.closure, this, function.holder)
        if function.closure is not None and this is None:
            frame.this = function.closure.this
            frame.holder = frame.holder or function.closure.holder
        self.bind_arguments(function, frame, args, kwargs)
        self.depth += 1
        self.frames.append(frame)
        trying, limit, made = self.trying, self.limit, self.made
        if function.code.name in {"__init__", "__post_init__"}:
            self.trying = 0
        else:
            self.limit = min(limit, self.steps + CALL_STEPS)
        try:
            return self.body(function, frame)
        except ExhaustedError:
            if self.steps > limit or self.made > made or function.code.name in {"__init__", "__post_init__"}:
                raise
            return Unknown(function.code.name)
        finally:
            self.trying = trying
            self.limit = limit if self.made == made else self.ceiling  # what builds modules is not cut short
            self.frames.pop()
            self.depth -= 1

    def _handed_back(self, function: FunctionValue, args: Args) -> Any:
        """The first argument where every `return` of the function gives it back, as weight_norm(module) does."""
        node = function.code.node
        first = plain(args[0]) if args else None
        if isinstance(first, Instance) and first.module and isinstance(node, ast.FunctionDef) and node.args.args:
            name = node.args.args[0].arg
            found = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            if found and all(isinstance(value, ast.Name) and value.id == name for value in found):
                return args[0]
        return Unknown(function.code.name)

    def bind_arguments(self, function: FunctionValue, frame: Frame, args: Args, kwargs: Kwargs) -> None:
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
        defaults: dict[str, ast.expr | None] = dict(
            zip(names[len(names) - len(node.defaults) :], node.defaults, strict=True)
        )
        defaults.update({p.arg: d for p, d in zip(node.kwonlyargs, node.kw_defaults, strict=True)})
        for name in [*names, *(parameter.arg for parameter in node.kwonlyargs)]:
            if name in given:
                local[name] = given.pop(name)
            elif name not in local:
                default = defaults.get(name)
                if spread is not None or default is None:
                    local[name] = Unknown(name)
                else:
                    outer = function.closure or Frame(function.code.unit, function.code, {}, holder=function.holder)
                    local[name] = self.full(default, outer) if not isinstance(default, ast.Constant) else default.value
        if node.kwarg is not None:
            local[node.kwarg.arg] = given if spread is None else Unknown(node.kwarg.arg)

    # construction

    def prepare(self, cls: ClassValue) -> None:
        """Run what the bases of a class do when it is defined (`__init_subclass__`), once."""
        if cls.ready:
            return
        cls.ready = True
        for base in cls.mro[1:]:
            if isinstance(base, ClassValue):
                self.prepare(base)
        holder, hook = self.member(cls, "__init_subclass__", cls)
        if isinstance(hook, OfClass) and isinstance(hook.function, FunctionValue) and not self._is_torch_module(holder):
            journals, self.journals = self.journals, []
            live, self.live = self.live, True
            try:
                self.run(hook.function, (cls,), {}, cls)
            except (RaisedError, UndecidedError):
                pass
            finally:
                self.journals, self.live = journals, live

    def construct(self, cls: ClassValue, args: Args, kwargs: Kwargs) -> Any:
        """An instance of the class. Constructors of modules run in a deep interpretation only, those of torch never:
        such an instance waits until something looks into it."""
        native = self.native(cls.qualified_name)
        if native is not MISSING:
            return self.call(native, args, kwargs)
        if self._is_enum(cls):
            return self._enum_of(cls, args)
        self.prepare(cls)
        module = self.is_module(cls)
        self.serial += 1
        this = Instance(cls, module=module, serial=self.serial)
        container = self.container(cls)
        waits = self.live is False or not self.deep or self.foreign(cls.symbol.module)
        if (module and waits and not (container and cls.qualified_name.startswith("torch."))) or (
            not module and (self.live is False or self.foreign(cls.symbol.module))
        ):
            this.waiting = (args, kwargs)
            return this
        if module and not container:
            self.made += 1
            self.limit = self.ceiling
            return self._memoised(this, args, kwargs)
        self.initialise(this, args, kwargs)
        return this

    def _enum_of(self, cls: ClassValue, args: Args) -> Any:
        for name, row in cls.space.items():
            if not isinstance(row, AssignRow) and not isinstance(row, str | int):
                continue
            value = self.own(cls, name)
            if args and not isinstance(value, FunctionValue) and same(plain(args[0]), value):
                return self._enum_member(cls, name, value)
        raise UndecidedError

    def wake(self, this: Instance) -> None:
        """Run the constructor of a waiting instance."""
        if this.waiting is None:
            return
        args, kwargs = this.waiting
        this.waiting = None
        deep, self.deep = self.deep, False
        home = self.home
        self.home = this.cls.symbol.unit.tree
        try:
            self.initialise(this, args, kwargs)
        except (RaisedError, UndecidedError):
            pass
        finally:
            self.deep, self.home = deep, home

    def initialise(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        data = next((kind for base in this.cls.mro if isinstance(base, str) and (kind := DATA_BASES.get(base))), None)
        if data is not None:
            this.data = data()
        holder, init = self.member(this.cls, "__init__")
        if not this.module and self.generates_init(this.cls, holder):
            self.fill_record(this, args, kwargs)
        elif isinstance(init, FunctionValue) and not self._is_torch_module(holder):
            self.run(init, (this, *args), kwargs, this)
        elif this.module:
            containers.fill(self, this, args, kwargs)
        elif data is not None:
            this.data = data(*(plain(a) for a in args), **kwargs)
        if this.module and self.live is not False:
            self.log.append(this)

    def _memoised(self, this: Instance, args: Args, kwargs: Kwargs) -> Instance:
        """The instance, with the attributes of an equal one where the same arguments have been seen."""
        loops = {value.loop for value in (*args, *kwargs.values()) if type(value) is Turn}
        loose = memo_key(this.cls, args, kwargs, self.live, self.changes, exact=False)
        strict = memo_key(this.cls, args, kwargs, self.live, self.changes, exact=True)
        known = self._memo.get(loose) or self._memo.get(strict) if strict is not None else None
        if known is not None:
            this.attrs, this.places, this.shared = dict(known[0].attrs), known[0].places, True
            self.log.extend(known[1])
            return this
        before = [(loop, loop.used) for loop in loops]
        for loop in loops:
            loop.used = False
        failures, first = self.failures, len(self.log)
        self.initialise(this, args, kwargs)
        used = any(loop.used for loop in loops)
        for loop, was in before:
            loop.used = loop.used or was
        if (
            strict is not None
            and failures == self.failures
            and strict == memo_key(this.cls, args, kwargs, self.live, self.changes, exact=True)
        ):
            self._memo[strict if used else loose] = (this, self.log[first:], args, kwargs)  # kept: no id is used again
        return this

    # of the parts above

    def body(self, function: FunctionValue, frame: Frame) -> Any:
        raise NotImplementedError
