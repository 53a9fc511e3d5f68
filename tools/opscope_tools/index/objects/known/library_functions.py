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

from opscope_tools.index.objects.classes import Names
from opscope_tools.index.objects.interpreter import Interpreter
from opscope_tools.index.objects.known.table import native
from opscope_tools.index.objects.sizes import ITEMS, check_binary
from opscope_tools.index.objects.values import (
    MISSING,
    Args,
    ClassValue,
    FieldValue,
    Instance,
    Kwargs,
    Native,
    Partial,
    RaisedError,
    UndecidedError,
    Unknown,
    known,
    plain,
)
from opscope_tools.source.python.outside import installed_version, is_installed
from opscope_tools.source.python.rows import AssignRow

# ---- the standard library ---------------------------------------------------------------------------------------------


@native("functools.partial", full=True)
def _partial(_: Interpreter, args: Args, kwargs: Kwargs) -> Partial:
    return Partial(plain(args[0]), args[1:], kwargs)


@native("functools.wraps", "functools.lru_cache", "functools.update_wrapper")
def _unchanged(_: Interpreter, __: Args, ___: Kwargs) -> Any:
    return Native("wraps", lambda _, args, __: args[0])


@native("functools.reduce")
def _reduce(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    return functools.reduce(
        lambda a, b: plain(interpreter.calls.call(args[0], (a, b), {})),
        interpreter.operations.iterate(args[1]),
        *args[2:],
    )


@native("copy.copy", "copy.deepcopy")
def _copy(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    return copied(interpreter, args[0], {})


def copied(interpreter: Interpreter, value: Any, seen: dict[int, Any]) -> Any:
    """A deep copy; the attributes of modules are shared, since nobody asks for theirs apart."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, Instance):
        interpreter.state.serial += 1
        made = Instance(value.cls, {}, None, [], value.waiting, value.module, value.module, interpreter.state.serial)
        seen[id(value)] = made
        made.sites, made.places = list(value.sites), dict(value.places)
        made.attrs.update({k: v if value.module else copied(interpreter, v, seen) for k, v in value.attrs.items()})
        made.data = copied(interpreter, value.data, seen) if value.data is not None else None
        return made
    if isinstance(value, list):
        return type(value)(copied(interpreter, item, seen) for item in value)
    if isinstance(value, dict):
        return {key: copied(interpreter, item, seen) for key, item in value.items()}
    return value


@native("collections.defaultdict")
def _defaultdict(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    made = args[0] if args else None
    return collections.defaultdict(lambda: plain(interpreter.calls.call(made, (), {})))


@native("itertools.chain")
def _chain(interpreter: Interpreter, args: Args, _: Kwargs) -> list[Any]:
    return [item for value in args for item in interpreter.operations.iterate(value)]


@native("itertools.accumulate", "numpy.cumsum")
def _accumulate(interpreter: Interpreter, args: Args, _: Kwargs) -> list[Any]:
    return list(itertools.accumulate(interpreter.operations.iterate(args[0])))


@native("itertools.product")
def _product(interpreter: Interpreter, args: Args, _: Kwargs) -> list[Any]:
    lists = [interpreter.operations.iterate(value) for value in args]
    if math.prod(map(len, lists)) > ITEMS // 10:
        raise UndecidedError
    return list(itertools.product(*lists))


@native("operator.mul", "operator.add")
def _operator(_: Interpreter, args: Args, __: Kwargs) -> Any:
    return operator.mul(*args)


@native("importlib.import_module")
def _import_module(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    name, package = args[0], args[1] if len(args) > 1 else ""
    full = f"{package}{name}" if name.startswith(".") else name
    unit = interpreter.names.resolver.module(full, interpreter.names.home)
    return interpreter.names.module_value(unit) if unit is not None else Unknown(full, name=full)


def _on_text(name: str) -> None:
    """A search of the `re` module, where it surely ends: short, few repetitions, and none of a group."""
    made = getattr(re, name)

    def run(_: Interpreter, args: Args, __: Kwargs) -> Any:
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
        """The first number; 0 where there is none."""
        return self[0] if self else 0

    @property
    def minor(self) -> int:
        """The second number; 0 where there is none."""
        return self[1] if len(self) > 1 else 0

    @property
    def base_version(self) -> str:
        """The numbers alone, joined by dots, as packaging gives it."""
        return ".".join(map(str, self))


@native("packaging.version.parse", "packaging.version.Version")
def _version(_: Interpreter, args: Args, __: Kwargs) -> Version:
    known(*args)
    if isinstance(args[0], Version):
        return args[0]
    numbers = re.match(r"[0-9]+(\.[0-9]+)*", args[0])
    if numbers is None:
        raise RaisedError("InvalidVersion")
    return Version(int(part) for part in numbers[0].split("."))


@native("importlib.metadata.version")
def _installed_version(_i: Interpreter, args: Args, _: Kwargs) -> str:
    """The version of an installed package; of one that is registered by path nobody knows it."""
    if not isinstance(args[0], str) or not re.fullmatch(r"\w[\w.-]*", args[0]):
        raise UndecidedError
    found = installed_version(args[0])
    if found is None:
        raise RaisedError("PackageNotFoundError")
    return found


@native("importlib.util.find_spec")
def _find_spec(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    if not isinstance(args[0], str):
        raise UndecidedError
    there = any(tree.locate(args[0]) is not None for tree in interpreter.names.resolver.trees) or is_installed(
        args[0].split(".")[0]
    )
    return Native("spec", lambda *_: Unknown()) if there else None


class _Annotations(dict[str, Any]):
    """The annotations of a class, each evaluated when it is asked for."""

    def __init__(self, names: Names, classes: list[ClassValue]) -> None:
        super().__init__()
        self._names, self._classes = names, classes

    def get(self, name: Any, default: Any = None) -> Any:
        for cls in self._classes:
            for row in cls.symbol.row.body:
                if isinstance(row, AssignRow) and row.name == name and row.annotation:
                    found = self._names.annotation(cls, row.annotation)
                    return default if found is None else found
        return default


@native("inspect.get_annotations")
def _get_annotations(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    return _Annotations(interpreter.names, [args[0]])


@native("typing.get_type_hints")
def _get_type_hints(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    return _Annotations(interpreter.names, [base for base in args[0].mro if isinstance(base, ClassValue)])


@native("dataclasses.dataclass", "huggingface_hub.dataclasses.strict")
def _dataclass(_: Interpreter, args: Args, __: Kwargs) -> Any:
    return args[0] if args else Native("dataclass", lambda _, args, __: args[0])


@native("dataclasses.fields")
def _fields(interpreter: Interpreter, args: Args, _: Kwargs) -> list[FieldValue]:
    cls = args[0].cls if isinstance(args[0], Instance) else args[0]
    found = interpreter.records.fields(cls)
    for field in found:
        field.default = dataclasses.MISSING if field.default is MISSING else field.default
        field.default_factory = dataclasses.MISSING if field.default_factory is MISSING else field.default_factory
    return found


@native("dataclasses.field", full=True)
def _field(_: Interpreter, __: Args, kwargs: Kwargs) -> FieldValue:
    return FieldValue(kwargs.get("default", MISSING), kwargs.get("default_factory", MISSING))


# ---- numbers that constructors lay out layer by layer ------------------------------------------------------------------


class Numbers(list[float]):
    """A row of numbers with the methods that an array of them is asked for."""

    def tolist(self) -> list[float]:
        """As of a tensor of one dimension."""
        return list(self)

    def cumsum(self, *_: Any) -> Numbers:
        """Running sums; the axis and type that torch takes are passed over."""
        return Numbers(itertools.accumulate(self))

    def split(self, sizes: int | list[int]) -> list[Numbers]:
        """Pieces of the given sizes, as torch.Tensor.split makes them."""
        if isinstance(sizes, int):
            sizes = [min(sizes, len(self) - start) for start in range(0, len(self), sizes)]
        ends = list(itertools.accumulate(sizes))
        return [Numbers(self[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


@native("torch.linspace", "numpy.linspace")
def _linspace(_: Interpreter, args: Args, kwargs: Kwargs) -> Numbers:
    """Evenly spaced numbers, both ends included."""
    start, end = args[0], args[1]
    steps: Any = args[2] if len(args) > 2 else kwargs.get("steps", kwargs.get("num", 50))
    known(start, end, steps)
    return Numbers(start + (end - start) * number / max(steps - 1, 1) for number in range(steps))


@native("torch.tensor", "torch._tensor.Tensor", "torch.Tensor", "numpy.array")
def _array(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    """A row of numbers; what has more dimensions is nobody's business here."""
    values = interpreter.operations.iterate(args[0]) if args and isinstance(args[0], list | tuple | range) else []
    if not values or not all(isinstance(value, int | float) for value in values):
        raise UndecidedError
    return Numbers(values)


@native("numpy.argsort")
def _argsort(interpreter: Interpreter, args: Args, _: Kwargs) -> Numbers:
    values = interpreter.operations.iterate(args[0])
    order = sorted(enumerate(values), key=lambda pair: pair[1])
    return Numbers(number for number, _ in order)


@native("numpy.prod", "math.prod")
def _prod(interpreter: Interpreter, args: Args, _: Kwargs) -> Any:
    known(*args)
    found: Any = 1
    for value in [args[0]] if isinstance(args[0], int | float) else interpreter.operations.iterate(args[0]):
        check_binary(ast.Mult(), found, value)
        found *= value
    return found
