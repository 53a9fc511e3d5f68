"""Values of the interpreter as plain data that a result can carry, with what is open told apart."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from opscope_tools.index.objects import ClassValue, Instance
from opscope_tools.index.objects.values import MISSING, Choice, FunctionValue, Native, Option, Uncertain, Unknown, plain

__all__ = ["OPEN", "Shown", "shown"]

_DTYPE = re.compile(r"torch\.(float|bfloat|int|uint|bool|half|double|complex|long|short)\w*")
_DEEPEST = 8


@dataclass(frozen=True)
class Shown:
    """`data` where `known`, else the expression in `text`; `instance` where the value is an object of the source."""

    known: bool
    data: object = None
    text: str = ""
    instance: Instance | None = None


OPEN = Shown(False)


def shown(value: object, depth: int = 0) -> Shown:
    """The value as data: mappings with text keys, sets and tuples as lists, classes and functions by name."""
    value = plain(value)
    if value is None or isinstance(value, bool):
        return Shown(True, value)
    if isinstance(value, int):
        return Shown(True, int(value))
    if isinstance(value, float):
        return Shown(True, float(value) if math.isfinite(value) else str(float(value)))
    if isinstance(value, str):
        return Shown(True, str(value))
    if isinstance(value, Unknown):
        return Shown(True, value.name) if _DTYPE.fullmatch(value.name) else Shown(False, None, value.text or value.name)
    if isinstance(value, Choice):
        options = [option for option in value.options if option.live is not False]
        return Shown(False, None, "; ".join(_option(option, depth) for option in options))
    if value is MISSING or isinstance(value, Uncertain) or depth > _DEEPEST:
        return OPEN
    if isinstance(value, Instance):
        return _instance(value, depth)
    if isinstance(value, list | tuple | set | frozenset):
        items = [shown(item, depth + 1) for item in value]
        if isinstance(value, set | frozenset):
            items.sort(key=lambda item: repr(item.data))
        return _all(items, [item.data for item in items])
    if isinstance(value, dict):
        inner = {str(plain(key)): shown(item, depth + 1) for key, item in value.items()}
        return _all(list(inner.values()), {key: item.data for key, item in inner.items()})
    if isinstance(value, ClassValue):
        return Shown(True, value.qualified_name)
    if isinstance(value, FunctionValue):
        return Shown(True, f"{value.code.unit.name}.{value.code.name}")
    if isinstance(value, type):
        return Shown(True, value.__name__)
    if isinstance(value, Native):
        return Shown(True, value.name)
    return Shown(True, repr(value)) if isinstance(value, bytes | complex | range | slice) else OPEN


def _option(option: Option, depth: int) -> str:
    inner = shown(option.value, depth + 1)
    return f"{inner.data!r} where {option.condition}" if inner.known else f"{inner.text} where {option.condition}"


def _all(items: list[Shown], data: object) -> Shown:
    unknown = next((item for item in items if not item.known), None)
    return Shown(True, data) if unknown is None else Shown(False, None, unknown.text)


def _instance(value: Instance, depth: int) -> Shown:
    if value.cls.is_enum() and "name" in value.attrs:
        return Shown(True, f"{value.cls.name}.{value.attrs['name']}")
    if value.module:
        return Shown(False, None, f"{value.cls.name}(...)")
    if value.data is not None:
        return shown(value.data, depth + 1)
    return Shown(True, value.cls.qualified_name, "", value)
