"""Functions of the standard library, and the few of torch and numpy that lay out numbers layer by layer."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import itertools
import math
import operator
import re
from typing import Any

from opscope_tools.index.objects.base import Base
from opscope_tools.index.objects.natives import Args, Kwargs, Machine, known, native
from opscope_tools.index.objects.sizes import ITEMS, check_binary
from opscope_tools.index.objects.values import (
    MISSING,
    ClassValue,
    FieldValue,
    Instance,
    Native,
    Partial,
    RaisedError,
    UndecidedError,
    Unknown,
    plain,
)
from opscope_tools.source.python.outside import installed_version, is_installed
from opscope_tools.source.python.rows import AssignRow

# ---- the standard library ---------------------------------------------------------------------------------------------


@native("functools.partial", full=True)
def _partial(_: Machine, args: Args, kwargs: Kwargs) -> Partial:
    return Partial(plain(args[0]), args[1:], kwargs)


@native("functools.wraps", "functools.lru_cache", "functools.update_wrapper")
def _unchanged(_: Machine, __: Args, ___: Kwargs) -> Any:
    return Native("wraps", lambda _, args, __: args[0])


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
        made.sites, made.places = list(value.sites), dict(value.places)
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
    lists = [machine.iterate(value) for value in args]
    if math.prod(map(len, lists)) > ITEMS // 10:
        raise UndecidedError
    return list(itertools.product(*lists))


@native("operator.mul", "operator.add")
def _operator(_: Machine, args: Args, __: Kwargs) -> Any:
    return operator.mul(*args)


@native("importlib.import_module")
def _import_module(machine: Machine, args: Args, _: Kwargs) -> Any:
    name, package = args[0], args[1] if len(args) > 1 else ""
    full = f"{package}{name}" if name.startswith(".") else name
    unit = machine.resolver.module(full, machine.home)
    return machine.module_value(unit) if unit is not None else Unknown(full, name=full)


def _on_text(name: str) -> None:
    """A search of the `re` module, where it surely ends: short, few repetitions, and none of a group."""
    made = getattr(re, name)

    def run(_: Machine, args: Args, __: Kwargs) -> Any:
        known(*args)
        pattern, text = args[:2]
        if not isinstance(pattern, str) or not isinstance(text, str) or len(args) > 2:
            raise UndecidedError
        repeated = len(re.findall(r"[*+{]", pattern))
        if len(pattern) > 4000 or len(text) ** repeated > ITEMS or re.search(r"\)[*+{]", pattern):
            raise UndecidedError
        try:
            return made(pattern, text)
        except re.error:
            raise RaisedError("error") from None

    native(f"re.{name}")(run)


for _name in ("search", "match", "fullmatch", "findall"):
    _on_text(_name)


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
    known(*args)
    if isinstance(args[0], Version):
        return args[0]
    numbers = re.match(r"[0-9]+(\.[0-9]+)*", args[0])
    if numbers is None:
        raise RaisedError("InvalidVersion")
    return Version(int(part) for part in numbers[0].split("."))


@native("importlib.metadata.version")
def _installed_version(_m: Machine, args: Args, _: Kwargs) -> str:
    """The version of an installed package; of one that is registered by path nobody knows it."""
    if not isinstance(args[0], str) or not re.fullmatch(r"\w[\w.-]*", args[0]):
        raise UndecidedError
    found = installed_version(args[0])
    if found is None:
        raise RaisedError("PackageNotFoundError")
    return found


@native("importlib.util.find_spec")
def _find_spec(machine: Machine, args: Args, _: Kwargs) -> Any:
    if not isinstance(args[0], str):
        raise UndecidedError
    there = any(tree.locate(args[0]) is not None for tree in machine.resolver.trees) or is_installed(
        args[0].split(".")[0]
    )
    return Native("spec", lambda *_: Unknown()) if there else None


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
    return args[0] if args else Native("dataclass", lambda _, args, __: args[0])


@native("dataclasses.fields")
def _fields(machine: Machine, args: Args, _: Kwargs) -> list[FieldValue]:
    cls = args[0].cls if isinstance(args[0], Instance) else args[0]
    found = machine.fields(cls)
    for field in found:
        field.default = dataclasses.MISSING if field.default is MISSING else field.default
        field.default_factory = dataclasses.MISSING if field.default_factory is MISSING else field.default_factory
    return found


@native("dataclasses.field", full=True)
def _field(_: Machine, __: Args, kwargs: Kwargs) -> FieldValue:
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
    steps: Any = args[2] if len(args) > 2 else kwargs.get("steps", kwargs.get("num", 50))
    known(start, end, steps)
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
    order = sorted(enumerate(values), key=lambda pair: pair[1])
    return Numbers(number for number, _ in order)


@native("numpy.cumsum")
def _cumsum(machine: Machine, args: Args, _: Kwargs) -> list[Any]:
    return list(itertools.accumulate(machine.iterate(args[0])))


@native("numpy.prod", "math.prod")
def _prod(machine: Machine, args: Args, _: Kwargs) -> Any:
    known(*args)
    found: Any = 1
    for value in [args[0]] if isinstance(args[0], int | float) else machine.iterate(args[0]):
        check_binary(ast.Mult(), found, value)
        found *= value
    return found
