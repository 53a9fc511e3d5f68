"""Functions of Python and of a few libraries, by their qualified names: what they do to interpreted values."""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import functools
import importlib.metadata
import itertools
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from opscope_tools.index.building import containers
from opscope_tools.index.building.base import Base
from opscope_tools.index.building.containers import Uncertain
from opscope_tools.index.building.statements import Statements
from opscope_tools.index.building.values import (
    MISSING,
    Choice,
    ClassValue,
    FieldValue,
    FunctionValue,
    Instance,
    Method,
    ModuleValue,
    Native,
    Partial,
    RaisedError,
    UndecidedError,
    Unknown,
    plain,
)
from opscope_tools.index.rows import AssignRow
from opscope_tools.index.standard import is_installed

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_TABLE: dict[str, Native] = {}


def native(*names: str, full: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function of (interpreter, args, kwargs) under its qualified names."""

    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            if name in _TABLE:
                raise ValueError(f"{name} is registered twice")
            _TABLE[name] = Native(name, run, full)
        return run

    return register


class Machine(Statements):
    """The whole interpreter."""

    def native(self, name: str) -> Any:
        found: Any = _TABLE.get(name)
        module, _, member = name.partition(".")
        if found is None and module in _PURE and hasattr(_PURE[module], member):
            made = getattr(_PURE[module], member)
            found = Native(name, lambda _, args, kwargs: made(*args, **kwargs)) if callable(made) else made
        elif found is None and module == "numpy" and member in _SCALAR:
            scalar = getattr(math, member)
            found = Native(name, lambda _, args, kwargs: scalar(*args))
        if found is None:
            found = _VALUES.get(name, MISSING)
        return found


#: functions of numpy that do to a number what Python's own do
_SCALAR = {"log2", "log", "log10", "sqrt", "ceil", "floor", "exp"}
#: modules whose functions depend on nothing but their arguments
_PURE: dict[str, Any] = {"math": math, "re": re}
_VALUES: dict[str, Any] = {
    "dataclasses.MISSING": dataclasses.MISSING, "typing.TYPE_CHECKING": False, "sys.version_info": Unknown("sys.version_info"),
    "collections.OrderedDict": dict, "collections.deque": list, "typing.OrderedDict": dict,
}  # fmt: skip


def _known(*values: Any) -> None:
    if any(isinstance(value, Unknown | Choice | Uncertain) for value in values):
        raise UndecidedError


@native("builtins.len")
def _len(machine: Machine, args: Args, _: Kwargs) -> Any:
    _known(args[0])
    if isinstance(args[0], Instance):
        return len(machine.iterate(args[0]))
    return len(args[0])


@native("builtins.isinstance")
def _isinstance(machine: Machine, args: Args, _: Kwargs) -> bool:
    value, kinds = args
    if isinstance(value, Unknown | Choice):
        raise UndecidedError
    open_ = False
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        found = _is(machine, value, kind)
        if found:
            return True
        open_ = open_ or found is None
    if open_:
        raise UndecidedError
    return False


def _is(machine: Machine, value: Any, kind: Any) -> bool | None:
    """Whether a value is of a kind; None where that is open."""
    if isinstance(kind, Native) and kind.name.startswith("builtins."):
        kind = getattr(builtins, kind.name[9:])
    if isinstance(kind, ClassValue):
        return isinstance(value, Instance) and kind in value.cls.mro
    if isinstance(kind, type):
        if isinstance(value, Instance):
            return (
                isinstance(value.data, kind) and machine.is_a(value.cls, kind.__name__)
                if kind in {dict, list}
                else (kind is object or (isinstance(value.data, str) and kind is str))
            )
        if isinstance(value, ClassValue):
            return kind is type
        return isinstance(value, kind)
    name = getattr(kind, "name", "")
    if isinstance(value, Instance):
        return machine.is_a(value.cls, name) if name and not machine._outside(value.cls) else None
    if name.rpartition(".")[2] in {"Sequence", "Iterable", "Collection"}:
        return isinstance(value, list | tuple | str)
    if name.rpartition(".")[2] in {"Mapping", "MutableMapping"}:
        return isinstance(value, dict)
    if name.rpartition(".")[2] == "Callable":
        return isinstance(value, FunctionValue | Method | ClassValue | Native | Partial)
    if value is None or isinstance(value, str | int | float | list | tuple | dict):
        return False if name.startswith(("torch.", "transformers.", "numpy.")) else None
    return None


@native("builtins.issubclass")
def _issubclass(machine: Machine, args: Args, _: Kwargs) -> bool:
    value, kinds = args
    _known(value)
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        _known(kind)
        if isinstance(value, ClassValue) and isinstance(kind, ClassValue) and kind in value.mro:
            return True
    return False


@native("builtins.getattr", full=True)
def _getattr(machine: Machine, args: Args, _: Kwargs) -> Any:
    name = plain(args[1])
    if not isinstance(name, str):
        raise UndecidedError
    try:
        value = machine.get(plain(args[0]), name)
        if plain(value) is MISSING:
            raise RaisedError("AttributeError")
        return value
    except RaisedError:
        if len(args) > 2:
            return args[2]
        raise


@native("builtins.setattr", full=True)
def _setattr(machine: Machine, args: Args, _: Kwargs) -> None:
    name = plain(args[1])
    machine.put(plain(args[0]), name if isinstance(name, str) else "*", args[2])


@native("builtins.hasattr")
def _hasattr(machine: Machine, args: Args, _: Kwargs) -> bool:
    return machine.has(args[0], args[1])


@native("builtins.delattr")
def _delattr(machine: Machine, args: Args, _: Kwargs) -> None:
    machine.remove(args[0], args[1])


@native("builtins.type")
def _type(_: Machine, args: Args, __: Kwargs) -> Any:
    _known(*args)
    if len(args) != 1:
        raise UndecidedError
    return args[0].cls if isinstance(args[0], Instance) else type(args[0])


@native("builtins.callable")
def _callable(machine: Machine, args: Args, _: Kwargs) -> bool:
    _known(args[0])
    return isinstance(args[0], FunctionValue | Method | ClassValue | Native | Partial | type) or (
        isinstance(args[0], Instance) and args[0].module
    )


@native("builtins.print", "builtins.id", "builtins.repr", "builtins.hash")
def _nothing(_: Machine, args: Args, __: Kwargs) -> Any:
    raise UndecidedError


def _on_items(name: str, made: Callable[..., Any]) -> None:
    """A function of Python's own whose arguments are iterated."""

    def run(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        lists = [machine.iterate(a) if isinstance(a, Instance | list | tuple | dict | range) else a for a in args]
        key = kwargs.pop("key", None)
        if key is not None:
            kwargs["key"] = lambda value: plain(machine.call(key, (value,), {}))
        for value in args:
            _known(value)
        return made(*lists, **kwargs)

    native(f"builtins.{name}")(run)


for _name, _made in {
    "enumerate": lambda *a, **k: list(enumerate(*a, **k)), "zip": lambda *a, **_: list(zip(*a, strict=False)),
    "sum": sum, "sorted": sorted, "reversed": lambda a: list(reversed(a)), "list": list, "tuple": tuple,
    "set": set, "frozenset": frozenset, "min": min, "max": max, "iter": list,
}.items():  # fmt: skip
    _on_items(_name, _made)


@native("builtins.any")
def _any(machine: Machine, args: Args, _: Kwargs) -> bool:
    found = [machine.truth(plain(item)) for item in machine.iterate(args[0])]
    if True in found and not isinstance(args[0], Uncertain):
        return True
    if None in found or isinstance(args[0], Uncertain):
        raise UndecidedError
    return False


@native("builtins.all")
def _all(machine: Machine, args: Args, _: Kwargs) -> bool:
    found = [machine.truth(plain(item)) for item in machine.iterate(args[0])]
    if False in found and not isinstance(args[0], Uncertain):
        return False
    if None in found or isinstance(args[0], Uncertain):
        raise UndecidedError
    return True


@native("builtins.map", full=True)
def _map(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    function, *lists = args
    values = [machine.iterate(plain(a)) for a in lists]
    return [machine.call(function, items, {}) for items in zip(*values, strict=False)]


@native("builtins.filter")
def _filter(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    found = []
    for item in machine.iterate(args[1]):
        kept = machine.truth(item if args[0] is None else plain(machine.call(args[0], (item,), {})))
        if kept is None:
            raise UndecidedError
        if kept:
            found.append(item)
    return found


@native("builtins.next")
def _next(machine: Machine, args: Args, _: Kwargs) -> Any:
    if isinstance(args[0], list) and args[0] and not isinstance(args[0], Uncertain):
        return args[0][0]
    if len(args) > 1 and isinstance(args[0], list):
        return args[1]
    raise UndecidedError


@native("builtins.dict", full=True)
def _dict(machine: Machine, args: Args, kwargs: Kwargs) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for value in map(plain, args):
        held = value.data if isinstance(value, Instance) else value
        if isinstance(held, Unknown | Choice):
            raise UndecidedError
        found.update(held)
    if "**" in kwargs:
        raise UndecidedError
    found.update(kwargs)
    return found


@native("builtins.vars")
def _vars(_: Machine, args: Args, __: Kwargs) -> Any:
    return args[0].attrs if isinstance(args[0], Instance) else Unknown("vars()")


# ---- the standard library ---------------------------------------------------------------------------------------------


@native("functools.partial", full=True)
def _partial(_: Machine, args: Args, kwargs: Kwargs) -> Partial:
    return Partial(plain(args[0]), args[1:], kwargs)


@native("functools.wraps", "functools.lru_cache", "functools.update_wrapper")
def _unchanged(_: Machine, __: Args, ___: Kwargs) -> Any:
    return Native("wraps", lambda _, args, kwargs: args[0])


@native("functools.reduce")
def _reduce(machine: Machine, args: Args, _: Kwargs) -> Any:
    return functools.reduce(lambda a, b: plain(machine.call(args[0], (a, b), {})), machine.iterate(args[1]), *args[2:])


@native("copy.copy", "copy.deepcopy")
def _copy(machine: Machine, args: Args, _: Kwargs) -> Any:
    return copied(machine, args[0], {})


def copied(machine: Machine, value: Any, seen: dict[int, Any]) -> Any:
    """A deep copy; the attributes of modules are shared, since nobody asks for theirs apart."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, Instance):
        machine.serial += 1
        made = Instance(value.cls, {}, None, [], value.waiting, value.module, value.module, machine.serial)
        seen[id(value)] = made
        made.sites = list(value.sites)
        made.attrs.update({k: v if value.module else copied(machine, v, seen) for k, v in value.attrs.items()})
        made.data = copied(machine, value.data, seen) if value.data is not None else None
        return made
    if isinstance(value, list):
        return type(value)(copied(machine, item, seen) for item in value)
    if isinstance(value, dict):
        return {key: copied(machine, item, seen) for key, item in value.items()}
    return value


@native("collections.defaultdict")
def _defaultdict(machine: Machine, args: Args, _: Kwargs) -> Any:
    made = args[0] if args else None
    return collections.defaultdict(lambda: plain(machine.call(made, (), {})))


@native("itertools.chain")
def _chain(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    return [item for value in args for item in machine.iterate(value)]


@native("itertools.accumulate")
def _accumulate(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    return list(itertools.accumulate(machine.iterate(args[0])))


@native("itertools.product")
def _product(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    return list(itertools.product(*(machine.iterate(value) for value in args)))


@native("operator.mul", "operator.add")
def _operator(_: Machine, args: Args, __: Kwargs) -> Any:
    return operator.mul(*args)


@native("importlib.import_module")
def _import_module(machine: Machine, args: Args, _: Kwargs) -> Any:
    name, package = args[0], args[1] if len(args) > 1 else ""
    full = f"{package}{name}" if name.startswith(".") else name
    unit = machine.resolver.module(full, machine.home)
    return machine.module_value(unit) if unit is not None else Unknown(full, name=full)


class Version(tuple[int, ...]):
    """The release numbers of a version."""

    @property
    def major(self) -> int:
        return self[0] if self else 0

    @property
    def minor(self) -> int:
        return self[1] if len(self) > 1 else 0

    @property
    def base_version(self) -> str:
        return ".".join(map(str, self))


@native("packaging.version.parse", "packaging.version.Version")
def _version(_: Machine, args: Args, __: Kwargs) -> Version:
    _known(*args)
    if isinstance(args[0], Version):
        return args[0]
    numbers = re.match(r"[0-9]+(\.[0-9]+)*", args[0])
    if numbers is None:
        raise RaisedError("InvalidVersion")
    return Version(int(part) for part in numbers[0].split("."))


@native("importlib.metadata.version")
def _installed_version(machine: Machine, args: Args, _: Kwargs) -> str:
    """The version of an installed package; of one that is registered by path nobody knows it."""
    try:
        return importlib.metadata.version(args[0])
    except importlib.metadata.PackageNotFoundError:
        raise RaisedError("PackageNotFoundError") from None


@native("importlib.util.find_spec")
def _find_spec(machine: Machine, args: Args, _: Kwargs) -> Any:
    known = any(tree.locate(args[0]) is not None for tree in machine.resolver.trees) or is_installed(
        args[0].split(".")[0]
    )
    return Native("spec", _nothing) if known else None


class _Annotations(dict[str, Any]):
    """The annotations of a class, each evaluated when it is asked for."""

    def __init__(self, machine: Machine, classes: list[ClassValue]) -> None:
        super().__init__()
        self._machine, self._classes = machine, classes

    def get(self, name: Any, default: Any = None) -> Any:
        for cls in self._classes:
            for row in cls.symbol.row.body:
                if isinstance(row, AssignRow) and row.name == name and row.annotation:
                    found = annotated(self._machine, cls, row.annotation)
                    return default if found is None else found
        return default


def annotated(machine: Base, cls: ClassValue, text: str) -> ClassValue | None:
    """The class that an annotation in the class's file names."""
    stem = text.strip("\"' ").split("[", 1)[0].strip()
    if not stem.replace(".", "").replace("_", "").isalnum():
        return None
    found = machine.resolver.dotted(cls.symbol.unit, stem)
    return machine.class_value(found.symbol) if found is not None and found.symbol is not None else None


@native("inspect.get_annotations")
def _get_annotations(machine: Machine, args: Args, _: Kwargs) -> Any:
    return _Annotations(machine, [args[0]])


@native("typing.get_type_hints")
def _get_type_hints(machine: Machine, args: Args, _: Kwargs) -> Any:
    return _Annotations(machine, [base for base in args[0].mro if isinstance(base, ClassValue)])


@native("dataclasses.dataclass", "huggingface_hub.dataclasses.strict")
def _dataclass(_: Machine, args: Args, __: Kwargs) -> Any:
    return args[0] if args else Native("dataclass", lambda _, args, kwargs: args[0])


@native("dataclasses.fields")
def _fields(machine: Machine, args: Args, _: Kwargs) -> list[FieldValue]:
    cls = args[0].cls if isinstance(args[0], Instance) else args[0]
    found = machine.fields(cls)
    for field in found:
        field.default = dataclasses.MISSING if field.default is MISSING else field.default
        field.default_factory = dataclasses.MISSING if field.default_factory is MISSING else field.default_factory
    return found


@native("dataclasses.field", full=True)
def _field(_: Machine, args: Args, kwargs: Kwargs) -> FieldValue:
    return FieldValue(kwargs.get("default", MISSING), kwargs.get("default_factory", MISSING))


# ---- numbers that constructors lay out layer by layer ------------------------------------------------------------------


class Numbers(list[float]):
    """A row of numbers with the methods that an array of them is asked for."""

    def tolist(self) -> list[float]:
        return list(self)

    def cumsum(self, *_: Any) -> Numbers:
        return Numbers(itertools.accumulate(self))

    def split(self, sizes: int | list[int]) -> list[Numbers]:
        """Pieces of the given sizes, as torch.Tensor.split makes them."""
        if isinstance(sizes, int):
            sizes = [min(sizes, len(self) - start) for start in range(0, len(self), sizes)]
        ends = list(itertools.accumulate(sizes))
        return [Numbers(self[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


@native("torch.linspace", "numpy.linspace")
def _linspace(_: Machine, args: Args, kwargs: Kwargs) -> Numbers:
    """Evenly spaced numbers, both ends included."""
    start, end = args[0], args[1]
    steps = args[2] if len(args) > 2 else kwargs.get("steps", kwargs.get("num", 50))
    _known(start, end, steps)
    return Numbers(start + (end - start) * number / max(steps - 1, 1) for number in range(steps))


@native("torch.tensor", "torch._tensor.Tensor", "torch.Tensor", "numpy.array")
def _array(machine: Machine, args: Args, _: Kwargs) -> Any:
    """A row of numbers; what has more dimensions is nobody's business here."""
    values = machine.iterate(args[0]) if args and isinstance(args[0], list | tuple | range) else []
    if not values or not all(isinstance(value, int | float) for value in values):
        raise UndecidedError
    return Numbers(values)


@native("numpy.argsort")
def _argsort(machine: Machine, args: Args, _: Kwargs) -> Numbers:
    values = machine.iterate(args[0])
    return Numbers(sorted(range(len(values)), key=values.__getitem__))


@native("numpy.cumsum")
def _cumsum(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    return list(itertools.accumulate(machine.iterate(args[0])))


@native("numpy.prod")
def _prod(machine: Machine, args: Args, _: Kwargs) -> Any:
    return args[0] if isinstance(args[0], int | float) else math.prod(machine.iterate(args[0]))


_ = containers
