"""Attributes: Python's lookup on instances, classes, files and plain values, as far as constructors use it."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from opscope_tools.index.objects.classes import Classes, Names, external
from opscope_tools.index.objects.known import containers
from opscope_tools.index.objects.memo import same
from opscope_tools.index.objects.operations import Operations
from opscope_tools.index.objects.parts import Calling
from opscope_tools.index.objects.records import Records
from opscope_tools.index.objects.sizes import check_method
from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.values import (
    MISSING,
    Args,
    Choice,
    ClassValue,
    FieldValue,
    FunctionValue,
    Instance,
    Kwargs,
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

_MUTATING = frozenset(
    "append extend insert pop remove clear update setdefault add discard sort reverse popitem".split()
)
#: what calls a property's functions by hand: `C.name.fget(self)`, `C.name.__set__(self, value)`
ACCESSORS = {"fget": "getter", "fset": "setter", "__set__": "setter"}
#: what analysed code makes for real, and the methods behind operators that it calls by their names
_DATA = (int, float, complex, str, bytes, bool, range, slice, list, tuple, dict, set, frozenset, re.Match)
_OPERATORS = frozenset("__len__ __contains__ __getitem__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __iter__".split())
_MAPPING = {"keys", "values", "items", "get"}
_NUMBERS = {"item", "tolist", "cpu", "numpy", "detach"}


def _is_data(value: Any, name: str) -> bool:
    """Whether an attribute is one of plain data, real here as it is there. Anything else of Python's own (a class's
    subclasses, a method's globals) would lead from the analysed text to whatever this process has loaded."""
    if isinstance(value, type):
        return name in {"__name__", "__qualname__"} or (value in _DATA and not name.startswith("_") and name != "mro")
    return isinstance(value, _DATA) and (not name.startswith("_") or name in _OPERATORS)


@dataclass(eq=False)
class Attributes:
    """Attribute access."""

    names: Names
    classes: Classes
    records: Records
    operations: Operations
    state: State
    calling: Calling

    def get(self, value: Any, name: str) -> Any:
        """`value.name`; raises `RaisedError` where source proves that there is no such attribute."""
        kind = type(value)
        if kind is Instance:
            return self._of_instance(value, name)
        if kind is ClassValue:
            return self._of_class(value, name)
        if kind is ModuleValue:
            return self.names.of_file(value.unit, name)
        if kind is Super:
            return self._of_super(value, name)
        if kind is Choice:
            return choice([Option(o.condition, self._of_option(o.value, name), o.live) for o in value.options])
        if kind is Unknown:
            return external(f"{value.name}.{name}") if value.name else Unknown(f"{value.text}.{name}")
        if kind in {Method, FunctionValue, Native, Partial, Property, Static, OfClass}:
            return self._of_callable(value, name)
        if kind is FieldValue:
            return getattr(value, name, Unknown(name))
        return self._of_plain(value, name)

    def _of_option(self, value: Any, name: str) -> Any:
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
        if not _is_data(value, name):
            return Unknown(name)
        if not hasattr(value, name):
            raise RaisedError("AttributeError")
        found = getattr(value, name)
        if not callable(found):
            return found

        def run(_: Any, args: Args, kwargs: Kwargs) -> Any:
            if name in _MUTATING:
                self.state.touch(value)
                self.state.changes += 1
                if not isinstance(value, list):
                    args = (*(opened(a) for a in args[:1]), *args[1:])
            check_method(value, name, args)
            return getattr(value, name)(*args, **kwargs)

        return Native(name, run, full=name in _MUTATING)

    def _of_callable(self, value: Any, name: str) -> Any:
        function = value.function if isinstance(value, Method | Partial | Static | OfClass) else value
        if name in {"__func__", "func", "__wrapped__"}:
            return function
        if name == "__self__" and isinstance(value, Method):
            return value.this
        if isinstance(value, Property) and name in ACCESSORS:
            called = getattr(value, ACCESSORS[name])
            return called if isinstance(called, FunctionValue) else Unknown(name)
        if name in {"__name__", "__qualname__"} and isinstance(function, FunctionValue):
            return function.code.name
        return Unknown(name)

    def _of_super(self, value: Super, name: str) -> Any:
        cls = value.this if isinstance(value.this, ClassValue) else value.this.cls
        holder, found = self.classes.member(cls, name, value.holder)
        if (
            name == "__init__"
            and isinstance(value.this, Instance)
            and self.records.generates_init(cls, holder, value.holder)
        ):
            this = value.this
            return Native(
                name,
                lambda interpreter, args, kwargs: interpreter.calls.fill_record(this, args, kwargs),
                full=True,
            )
        if found is not MISSING and not of_torch(holder):
            return self.bind(found, value.this)
        if isinstance(value.this, Instance):
            native = self._native_member(value.this, name)
            if native is not MISSING:
                return native
        return Native(name, lambda *_: None)  # object's own

    def bind(self, found: Any, this: Any) -> Any:
        """A member of a class as an attribute of `this` (an instance, or a class)."""
        kind = type(found)
        if kind is FunctionValue:
            return Method(found, this) if isinstance(this, Instance) else found
        if kind is Property:
            readable = isinstance(this, Instance) or found.of_class
            if readable and isinstance(found.getter, FunctionValue):
                owner = this.cls if found.of_class and isinstance(this, Instance) else this
                return self.calling.call(found.getter, (owner,), {})
            return found if isinstance(this, ClassValue) else Unknown("property")
        if kind is OfClass:
            return Method(found.function, this.cls if isinstance(this, Instance) else this)
        if kind is Static:
            return found.function
        return found

    def _of_class(self, cls: ClassValue, name: str) -> Any:
        self.prepare(cls)
        holder, found = self.classes.member(cls, name)
        if found is not MISSING:
            bound = isinstance(found, FunctionValue | OfClass | Static | Property)
            if holder is cls and not bound and cls.is_enum():
                return enum_member(cls, name, found)
            return self.bind(found, cls)
        if name in {"__name__", "__qualname__"}:
            return cls.name
        if name == "__module__":
            return cls.symbol.module
        if name == "__mro__":
            return tuple(base for base in cls.mro if isinstance(base, ClassValue))
        if name == "__bases__":
            bases = [self.names.resolver.base(cls.symbol, text) for text in cls.symbol.row.bases]
            return tuple(Unknown(base) if isinstance(base, str) else self.names.class_value(base) for base in bases)
        if name == "__dict__":
            held = ((key, self.classes.own(cls, key)) for key in [*cls.space, *cls.added])
            return {key: value for key, value in held if value is not MISSING}
        if name == "__init__":
            return Native(name, lambda *_: None)
        if cls.outside():
            return Unknown(name)
        raise RaisedError("AttributeError")

    def _of_instance(self, this: Instance, name: str) -> Any:
        cls = this.cls
        aliases = self.classes.aliases(cls)
        name = aliases.get(name, name)
        if not (this.module and name in this.attrs):
            holder, found = self.classes.member(cls, name)
        else:
            holder, found = None, MISSING
        if type(found) is Property:
            if found.getter is None:
                raise RaisedError("AttributeError")
            return self.bind(found, this)
        if name in this.attrs and not absent(this.attrs[name]):
            return this.attrs[name]
        if this.waiting is not None and found is MISSING and _may_set(cls, name):
            if self.state.live is False:
                return Unknown(name)
            this.wake()
            if name in this.attrs:
                return this.attrs[name]
        if found is not MISSING and not of_torch(holder):
            return self.bind(found, this)
        native = self._native_member(this, name)
        if native is not MISSING:
            return native
        if name == "__class__":
            return cls
        if name == "__dict__":
            return this.attrs
        if cls.outside() or (this.module and self.names.foreign(cls.symbol.module) and _may_set(cls, name)):
            return Unknown(name)
        raise RaisedError("AttributeError")

    def _native_member(self, this: Instance, name: str) -> Any:
        if this.module:
            found = containers.member(self, this, name)
            if found is not MISSING:
                return found
        if this.data is not None and hasattr(this.data, name):
            return self._of_plain(this.data, name)
        if name in _MAPPING and any(isinstance(b, str) and b.endswith("Mapping") for b in this.cls.mro):
            return self._of_mapping(this, name)
        if name == "__setattr__":
            return Native(name, lambda _, args, __: self.put(this, plain(args[0]), args[1]), full=True)
        if name in {"__getattribute__", "__getattr__"}:
            return Native(name, lambda _, args, __: self.get(this, args[0]))
        if name in {"__init__", "__post_init__", "__init_subclass__"}:
            return Native(name, lambda *_: None)
        return MISSING

    def _of_mapping(self, this: Instance, name: str) -> Any:
        """What `collections.abc.Mapping` makes of a class's own `__iter__` and `__getitem__`."""

        def run(_: Any, args: Args, __: Kwargs) -> Any:
            if name == "keys":
                return self.operations.iterate(this)
            if name == "get":
                try:
                    return self.operations.item(this, args[0])
                except RaisedError:
                    return args[1] if len(args) > 1 else None
            pairs = [(key, self.operations.item(this, key)) for key in self.operations.iterate(this)]
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
            self.state.touch(this.added)
            this.added[name] = value
            return
        if not isinstance(this, Instance):
            return
        name = self.classes.aliases(this.cls).get(name, name)
        if not this.module:
            found = self.classes.member(this.cls, name)[1]
            if type(found) is Property and isinstance(found.setter, FunctionValue):
                self.calling.call(found.setter, (this, value), {})
                return
            if not same(this.attrs.get(name, MISSING), value):
                self.state.changes += 1
        else:
            self.own_copy(this)
        self.state.touch(this.attrs)
        this.attrs[name] = value

    def own_copy(self, this: Instance) -> None:
        """An instance whose attributes are about to differ from those of its equal counts for itself."""
        if this.shared:
            this.shared = False
            self.state.log.append(this)

    def remove(self, this: Any, name: str) -> None:
        """`del this.name`."""
        if isinstance(this, Instance):
            name = self.classes.aliases(this.cls).get(name, name)
            self.state.touch(this.attrs)
            this.attrs.pop(name, None)
            self.state.changes += 1

    def prepare(self, cls: ClassValue) -> None:
        """Run what the bases of a class do when it is defined (`__init_subclass__`), once."""
        if cls.ready:
            return
        cls.ready = True
        for base in cls.mro[1:]:
            if isinstance(base, ClassValue):
                self.prepare(base)
        holder, hook = self.classes.member(cls, "__init_subclass__", cls)
        if isinstance(hook, OfClass) and isinstance(hook.function, FunctionValue) and not of_torch(holder):
            with self.state.apart(), suppress(RaisedError, UndecidedError):
                self.calling.call(Method(hook.function, cls), (), {})


def _may_set(cls: ClassValue, name: str) -> bool:
    """Whether the files of the class and its bases hold the name at all."""
    key = f"text {name}"
    known: bool | None = cls.kinds.get(key)
    if known is None:
        word = name.encode()
        units = {base.symbol.unit for base in cls.mro if isinstance(base, ClassValue)}
        known = cls.kinds[key] = any(word in unit.tree.source(unit.file) for unit in units)
    return known


def of_torch(holder: ClassValue | None) -> bool:
    """Whether a member is one of torch's own modules, which are known instead of interpreted."""
    return holder is not None and holder.qualified_name.startswith(
        ("torch.nn.modules.module.", "torch.nn.modules.container.")
    )


def enum_member(cls: ClassValue, name: str, value: Any) -> Instance:
    """The one object that stands for a member of an enum, made when it is first asked for."""
    found: Instance = cls.kinds.setdefault(f"enum {name}", Instance(cls, {"value": value, "name": name}, value))
    return found


def opened(value: Any) -> Any:
    """The value for a function of Python's own."""
    value = plain(value)
    if type(value) is list and any(type(item) in {Choice, Turn} for item in value):
        return [plain(item) for item in value if not absent(item)]
    return value
