"""Attributes, calls and construction: Python's object model as far as constructors use it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

from opscope_tools.index.building import containers
from opscope_tools.index.building.base import BRANCH_DEPTH, CALL_STEPS, DEPTH, Base
from opscope_tools.index.building.values import (
    MISSING,
    Choice,
    ClassValue,
    ExhaustedError,
    FieldValue,
    Frame,
    FunctionValue,
    Instance,
    Label,
    Method,
    ModuleValue,
    Native,
    OfClass,
    Option,
    Partial,
    Property,
    RaisedError,
    Static,
    Super,
    Turn,
    UndecidedError,
    Unknown,
    absent,
    choice,
    plain,
)
from opscope_tools.index.rows import AssignRow

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
#: bases without source that add nothing that a constructor would look at
_EMPTY_BASES = {"object", "abc.ABC", "typing.Generic", "typing.Protocol"}
_DATA_BASES = {"dict": dict, "collections.OrderedDict": dict, "list": list, "collections.UserDict": dict}
_MUTATING = frozenset(
    "append extend insert pop remove clear update setdefault add discard sort reverse popitem".split()
)
_MAPPING = {"keys", "values", "items", "get"}
_NUMBERS = {"item", "tolist", "cpu", "numpy", "detach"}


class Objects(Base):
    """Attribute access and calls."""

    # attributes

    def get(self, value: Any, name: str) -> Any:
        """`value.name`; raises `RaisedError` where source proves that there is no such attribute."""
        kind = type(value)
        if kind is Instance:
            return self._of_instance(value, name)
        if kind is ClassValue:
            return self._of_class(value, name)
        if kind is ModuleValue:
            return self._of_file(value, name)
        if kind is Super:
            return self._of_super(value, name)
        if kind is Choice:
            return choice([Option(o.condition, self._try(o.value, name), o.live) for o in value.options])
        if kind is Unknown:
            return self.external(f"{value.name}.{name}") if value.name else Unknown(f"{value.text}.{name}")
        if kind in {Method, FunctionValue, Native, Partial, Property, Static, OfClass}:
            return self._of_callable(value, name)
        if kind is FieldValue:
            return getattr(value, name, Unknown(name))
        return self._of_plain(value, name)

    def _try(self, value: Any, name: str) -> Any:
        try:
            return self.get(plain(value), name)
        except RaisedError:
            return Unknown(name)

    def _of_plain(self, value: Any, name: str) -> Any:
        if value is MISSING or value is None:
            raise RaisedError("AttributeError")
        if name in _NUMBERS and isinstance(value, int | float | list):
            return Native(name, lambda *_: value)
        if name == "__class__":
            return type(value)
        if not hasattr(value, name):
            raise RaisedError("AttributeError")
        found = getattr(value, name)
        if not callable(found):
            return found

        def run(_: Any, args: Args, kwargs: Kwargs) -> Any:
            if name in _MUTATING:
                self.touch(value)
                self.changes += 1
                if not isinstance(value, list):
                    args = (*(self.open(a) for a in args[:1]), *args[1:])
            return getattr(value, name)(*args, **kwargs)

        return Native(name, run, full=name in _MUTATING)

    def _of_callable(self, value: Any, name: str) -> Any:
        function = value.function if isinstance(value, Method | Partial | Static | OfClass) else value
        if name in {"__func__", "func", "__wrapped__"}:
            return function
        if name == "__self__" and isinstance(value, Method):
            return value.this
        if name in {"__name__", "__qualname__"} and isinstance(function, FunctionValue):
            return function.code.name
        return Unknown(name)

    def _of_file(self, module: ModuleValue, name: str) -> Any:
        unit = module.unit
        found = self._globals.get((id(unit), name), MISSING)
        if found is MISSING:
            if (id(unit), name) in self._absent:
                raise RaisedError("AttributeError")
            found = self.found(self.resolver.lookup(unit, name), name)
            if found is not MISSING:
                self._globals[id(unit), name] = found
        if found is not MISSING:
            return found
        native = self.native(f"{unit.name}.{name}")
        if native is not MISSING:
            return native
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

    def _of_super(self, value: Super, name: str) -> Any:
        cls = value.this if isinstance(value.this, ClassValue) else value.this.cls
        holder, found = self.member(cls, name, value.holder)
        if found is not MISSING and not self._is_torch_module(holder):
            return self.bind(found, value.this)
        if isinstance(value.this, Instance):
            native = self._native_member(value.this, name)
            if native is not MISSING:
                return native
        return Native(name, lambda *_: None)  # object's own

    def _is_torch_module(self, holder: ClassValue | None) -> bool:
        return holder is not None and holder.qualified_name.startswith(
            ("torch.nn.modules.module.", "torch.nn.modules.container.")
        )

    def bind(self, found: Any, this: Any) -> Any:
        """A member of a class as an attribute of `this` (an instance, or a class)."""
        kind = type(found)
        if kind is FunctionValue:
            return Method(found, this) if isinstance(this, Instance) else found
        if kind is Property:
            if (isinstance(this, Instance) or found.of_class) and isinstance(found.getter, FunctionValue):
                return self.run(
                    found.getter, (this.cls if found.of_class and isinstance(this, Instance) else this,), {}
                )
            return Unknown("property")
        if kind is OfClass:
            return Method(found.function, this.cls if isinstance(this, Instance) else this)
        if kind is Static:
            return found.function
        return found

    def _of_class(self, cls: ClassValue, name: str) -> Any:
        self.prepare(cls)
        holder, found = self.member(cls, name)
        if found is not MISSING:
            if (
                self._is_enum(cls)
                and holder is cls
                and not isinstance(found, FunctionValue | OfClass | Static | Property)
            ):
                return self._enum_member(cls, name, found)
            return self.bind(found, cls)
        if name in {"__name__", "__qualname__"}:
            return cls.name
        if name == "__module__":
            return cls.symbol.module
        if name == "__mro__":
            return tuple(base for base in cls.mro if isinstance(base, ClassValue))
        if name == "__bases__":
            bases = [self.resolver.base(cls.symbol, text) for text in cls.symbol.row.bases]
            return tuple(Unknown(base) if isinstance(base, str) else self.class_value(base) for base in bases)
        if name == "__dict__":
            return {key: self.own(cls, key) for key in [*cls.space, *cls.added] if self.own(cls, key) is not MISSING}
        if name == "__init__":
            return Native(name, lambda *_: None)
        if self._outside(cls):
            return Unknown(name)
        raise RaisedError("AttributeError")

    def _is_enum(self, cls: ClassValue) -> bool:
        return self.is_a(cls, "enum.Enum")

    def _enum_member(self, cls: ClassValue, name: str, value: Any) -> Any:
        key = f"enum {name}"
        if key not in cls.kinds:
            cls.kinds[key] = Instance(cls, {"value": value, "name": name}, value)
        return cls.kinds[key]

    def _outside(self, cls: ClassValue) -> bool:
        """Whether a base of the class has no source, so that it may have any attribute."""
        known: bool | None = cls.kinds.get("outside")
        if known is None:
            known = cls.kinds["outside"] = any(
                isinstance(base, str) and base not in _EMPTY_BASES and base not in _DATA_BASES for base in cls.mro
            )
        return known

    def aliases(self, cls: ClassValue) -> dict[str, str]:
        """`attribute_map`: names that the class stores under another name."""
        known: dict[str, str] | None = cls.kinds.get("map")
        if known is None:
            found = self.member(cls, "attribute_map")[1] if not self.is_module(cls) else MISSING
            known = cls.kinds["map"] = found if isinstance(found, dict) else {}
        return known

    def _of_instance(self, this: Instance, name: str) -> Any:
        cls = this.cls
        aliases = self.aliases(cls)
        name = aliases.get(name, name)
        if not (this.module and name in this.attrs):
            holder, found = self.member(cls, name)
        else:
            holder, found = None, MISSING
        if type(found) is Property:
            if found.getter is None:
                raise RaisedError("AttributeError")
            return self.bind(found, this)
        if name in this.attrs and not absent(this.attrs[name]):
            return this.attrs[name]
        if this.waiting is not None and found is MISSING:
            if self._may_set(cls, name):
                if self.live is False:
                    return Unknown(name)
                self.wake(this)
                if name in this.attrs:
                    return this.attrs[name]
        if found is not MISSING and not self._is_torch_module(holder):
            return self.bind(found, this)
        native = self._native_member(this, name)
        if native is not MISSING:
            return native
        if name == "__class__":
            return cls
        if name == "__dict__":
            return this.attrs
        if self._outside(cls) or (this.module and self.foreign(cls.symbol.module) and self._may_set(cls, name)):
            return Unknown(name)
        raise RaisedError("AttributeError")

    def _may_set(self, cls: ClassValue, name: str) -> bool:
        """Whether the files of the class and its bases hold the name at all."""
        key = f"text {name}"
        known: bool | None = cls.kinds.get(key)
        if known is None:
            word = name.encode()
            units = {base.symbol.unit for base in cls.mro if isinstance(base, ClassValue)}
            known = cls.kinds[key] = any(word in unit.tree.source(unit.file) for unit in units)
        return known

    def _native_member(self, this: Instance, name: str) -> Any:
        if this.module:
            found = containers.member(self, this, name)
            if found is not MISSING:
                return found
        if this.data is not None and hasattr(this.data, name):
            return self._of_plain(this.data, name)
        if name in _MAPPING and any(isinstance(b, str) and b.endswith("Mapping") for b in this.cls.mro):
            return self._of_mapping(this, name)
        if name in {"__init__", "__post_init__", "__init_subclass__", "__setattr__", "__getattribute__"}:
            return Native(name, lambda *_: None)
        return MISSING

    def _of_mapping(self, this: Instance, name: str) -> Any:
        """What `collections.abc.Mapping` makes of a class's own `__iter__` and `__getitem__`."""

        def run(_: Any, args: Args, __: Kwargs) -> Any:
            if name == "keys":
                return self.iterate(this)
            if name == "get":
                try:
                    return self.item(this, args[0])
                except RaisedError:
                    return args[1] if len(args) > 1 else None
            pairs = [(key, self.item(this, key)) for key in self.iterate(this)]
            return pairs if name == "items" else [value for _, value in pairs]

        return Native(name, run)

    def has(self, value: Any, name: str) -> bool:
        """`hasattr`; raises `UndecidedError` where source does not tell."""
        if isinstance(value, Unknown | Choice):
            raise UndecidedError
        try:
            found = plain(self.get(value, name))
        except RaisedError:
            return False
        if found is MISSING:
            return False
        if isinstance(found, Unknown | Choice) and not (isinstance(value, Instance) and name in value.attrs):
            raise UndecidedError
        return True

    def put(self, this: Any, name: str, value: Any) -> None:
        """`this.name = value`."""
        if type(this) is Choice:
            this = plain(this)
        if isinstance(this, ClassValue):
            self.touch(this.added)
            this.added[name] = value
            return
        if not isinstance(this, Instance):
            return
        name = self.aliases(this.cls).get(name, name)
        if not this.module:
            found = self.member(this.cls, name)[1]
            if type(found) is Property and isinstance(found.setter, FunctionValue):
                self.run(found.setter, (this, value), {})
                return
            if not same(this.attrs.get(name, MISSING), value):
                self.changes += 1
        else:
            self.own_copy(this)
        self.touch(this.attrs)
        this.attrs[name] = value

    def own_copy(self, this: Instance) -> None:
        """An instance whose attributes are about to differ from those of its equal counts for itself."""
        if this.shared:
            this.shared = False
            self.built.setdefault(this.cls.qualified_name, []).append(this)

    def remove(self, this: Any, name: str) -> None:
        """`del this.name`."""
        if isinstance(this, Instance):
            name = self.aliases(this.cls).get(name, name)
            self.touch(this.attrs)
            this.attrs.pop(name, None)
            self.changes += 1

    # calls

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
        if isinstance(function, type):
            values = [self.open(value) for value in args]
            if any(isinstance(value, Abstract_) for value in values):
                raise UndecidedError
            return function(*values, **{k: self.open(v) for k, v in kwargs.items()})
        raise RaisedError("TypeError")

    def open(self, value: Any) -> Any:
        """The value for a function of Python's own."""
        value = plain(value)
        if type(value) is list and any(type(item) in {Choice, Turn} for item in value):
            return [plain(item) for item in value if not absent(item)]
        return value

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
            value = self.under(option.live, lambda o=option: self._attempt(o.value, args, kwargs))
            made.append(Option(option.condition, value, option.live))
        return choice(made)

    def _attempt(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        try:
            return self.call(function, args, kwargs)
        except (RaisedError, UndecidedError):
            return Unknown()

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
            local[node.vararg.arg] = tuple(args[len(names) :])
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
        data = next((kind for base in this.cls.mro if isinstance(base, str) and (kind := _DATA_BASES.get(base))), None)
        if data is not None:
            this.data = data()
        holder, init = self.member(this.cls, "__init__")
        if isinstance(init, FunctionValue) and not self._is_torch_module(holder):
            self.run(init, (this, *args), kwargs, this)
        elif this.module:
            containers.fill(self, this, args, kwargs)
        elif data is not None:
            this.data = data(*(plain(a) for a in args), **kwargs)
        elif self.is_record(this.cls):
            self._fill_record(this, args, kwargs)
        if this.module and self.live is not False:
            self.built.setdefault(this.cls.qualified_name, []).append(this)

    def _memoised(self, this: Instance, args: Args, kwargs: Kwargs) -> Instance:
        """The instance, with the attributes of an equal one where the same arguments have been seen."""
        loops = {value.loop for value in (*args, *kwargs.values()) if type(value) is Turn}
        loose = memo_key(this.cls, args, kwargs, self.live, self.changes, exact=False)
        strict = memo_key(this.cls, args, kwargs, self.live, self.changes, exact=True)
        known = self._memo.get(loose) or self._memo.get(strict) if strict is not None else None
        if known is not None:
            this.attrs, this.shared = dict(known[0].attrs), True
            return this
        before = [(loop, loop.used) for loop in loops]
        for loop in loops:
            loop.used = False
        failures = self.failures
        self.initialise(this, args, kwargs)
        used = any(loop.used for loop in loops)
        for loop, was in before:
            loop.used = loop.used or was
        if strict is not None and failures == self.failures and strict == memo_key(this.cls, args, kwargs, self.live, self.changes, exact=True):
            self._memo[strict if used else loose] = (this, args, kwargs)  # kept, so that no id is used again
        return this

    # records (dataclasses)

    def is_record(self, cls: ClassValue) -> bool:
        """Whether the class is a dataclass, by decoration or by a base that says so (PEP 681)."""
        known: bool | None = cls.kinds.get("record")
        if known is None:
            names = {
                text.split("(", 1)[0].rpartition(".")[2]
                for base in cls.mro
                if isinstance(base, ClassValue)
                for text in base.symbol.row.decorators
            }
            known = cls.kinds["record"] = bool(names & {"dataclass", "dataclass_transform"})
        return known

    def fields(self, cls: ClassValue) -> list[FieldValue]:
        """The fields of a dataclass, those of bases first, each with its default."""
        found: dict[str, ClassValue] = {}
        for base in reversed(cls.mro):
            if isinstance(base, ClassValue):
                for row in base.symbol.row.body:
                    if isinstance(row, AssignRow) and (row.annotation or row.name in found):
                        if row.annotation and "ClassVar" in row.annotation:
                            found.pop(row.name, None)
                        else:
                            found[row.name] = base
        return [self._field(cls, name) for name in found]

    def _field(self, cls: ClassValue, name: str) -> FieldValue:
        value = self.member(cls, name)[1]
        if isinstance(value, FieldValue):
            return FieldValue(value.default, value.default_factory, name)
        return FieldValue(value, MISSING, name)

    def _fill_record(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        given = dict(kwargs)
        positional = list(args)
        for field in self.fields(this.cls):
            if positional:
                value = positional.pop(0)
            elif field.name in given:
                value = given.pop(field.name)
            elif field.default_factory is not MISSING:
                value = self._attempt(field.default_factory, (), {})
            else:
                value = field.default if field.default is not MISSING else Unknown(field.name)
            self.put(this, field.name, value)
        hook = self.member(this.cls, "__post_init__")[1]
        if isinstance(hook, FunctionValue):
            self.run(hook, (this,), given, this)

    # of the parts above

    def body(self, function: FunctionValue, frame: Frame) -> Any:
        raise NotImplementedError

    def iterate(self, value: Any) -> list[Any]:
        raise NotImplementedError

    def item(self, value: Any, key: Any) -> Any:
        raise NotImplementedError


def same(first: Any, second: Any) -> bool:
    """Whether two values are surely equal."""
    if first is second:
        return True
    try:
        return type(first) is type(second) and bool(first == second)
    except UndecidedError:
        return False


def memo_key(cls: ClassValue, args: Args, kwargs: Kwargs, live: bool | None, changes: int, *, exact: bool) -> Any:
    """What decides how an instance is built; None where that cannot be compared."""
    keys = _Keys(changes, exact)
    try:
        values = tuple(keys.of(value) for value in args)
        named = tuple((name, keys.of(value)) for name, value in sorted(kwargs.items()))
    except UndecidedError:
        return None
    return (id(cls), live, values, named)


class _Keys:
    """What can be compared of values; `changes` counts the changes of records so far."""

    def __init__(self, changes: int, exact: bool) -> None:
        self._changes, self._exact = changes, exact

    def of(self, value: Any, depth: int = 0) -> Any:
        if type(value) is Turn:
            return ("turn", int(value) if self._exact else id(value.loop))
        if isinstance(value, bool | int | float | str) or value is None:
            return (type(value).__name__ if not isinstance(value, Label) else "str", value)
        if isinstance(value, Unknown):
            return ("unknown", value.name, value.text)
        if isinstance(value, Instance) and not value.module and value.data is None:
            return self._record(value, depth)
        if isinstance(value, Instance | ClassValue | FunctionValue | ModuleValue | Native):
            return ("object", id(value))
        if isinstance(value, list | tuple) and len(value) <= 128 and depth < 4:
            return (type(value).__name__, *(self.of(item, depth + 1) for item in value))
        if isinstance(value, dict) and len(value) <= 128 and depth < 4:
            return ("dict", *((k, self.of(v, depth + 1)) for k, v in value.items()))
        if isinstance(value, Choice) and depth:
            return ("choice", id(value))
        raise UndecidedError

    def _record(self, this: Instance, depth: int) -> Any:
        """A configuration by what it says: two that say the same build the same."""
        if this.key is not None and this.key[0] == self._changes:
            return this.key[1]
        if depth > 4:
            return ("object", id(this))
        found = ("record", id(this.cls), *((name, self._soft(value, depth + 1)) for name, value in this.attrs.items()))
        known = ("hash", hash(found), len(found))
        this.key = (self._changes, known)
        return known

    def _soft(self, value: Any, depth: int) -> Any:
        try:
            return self.of(value, depth)
        except UndecidedError:
            return ("object", id(value))


Abstract_ = Unknown | Choice
Items = Iterable[Any]
