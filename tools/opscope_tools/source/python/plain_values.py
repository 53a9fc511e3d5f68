"""The values that guards.py works with, and what operators, subscripts and methods make of them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


class _Unknown:
    """The value of what source does not tell."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda item, items: item in items, ast.NotIn: lambda item, items: item not in items,
}  # fmt: skip
#: methods of strings that serve to take names apart
_TEXT_METHODS = frozenset(
    "split rsplit partition rpartition startswith endswith strip lstrip rstrip removeprefix removesuffix replace lower "
    "upper".split()
)


class RaisedError(Exception):
    """The source raises here."""


@dataclass(frozen=True)
class Table:
    """A dict of the source: its entries as texts, evaluated when one is asked for."""

    entries: Mapping[str, str]
    read: Callable[[str], Any]

    def __contains__(self, key: object) -> bool:
        return key in self.entries

    def __len__(self) -> int:
        return len(self.entries)

    def item(self, key: Any) -> Any:
        """The value of an entry, evaluated now; raises `KeyError` where there is none."""
        return self.read(self.entries[key])


def compared(left: Any, kind: ast.cmpop, right: Any) -> Any:
    """`left kind right`."""
    if any(part is UNKNOWN for part in (left, right, *_parts(left, right))):
        return UNKNOWN
    try:
        return _COMPARE[type(kind)](left, right)
    except TypeError:
        return UNKNOWN


def _parts(*values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from value


def item_at(value: Any, index: Any) -> Any:
    """`value[index]`; raises `RaisedError` where that is known to fail."""
    if isinstance(value, Table) and isinstance(index, str):
        if index not in value:
            raise RaisedError
        return value.item(index)
    if not isinstance(value, tuple | str) or not isinstance(index, int):
        return UNKNOWN
    if not -len(value) <= index < len(value):
        raise RaisedError
    return value[index]


def call_method(holder: str | Table, name: str, given: Sequence[Any]) -> Any:
    """A method of a string or of a dict."""
    if any(argument is UNKNOWN for argument in given):
        return UNKNOWN
    if isinstance(holder, str):
        if name not in _TEXT_METHODS:
            return UNKNOWN
        try:
            value = getattr(holder, name)(*given)
        except (TypeError, ValueError):
            raise RaisedError from None
        return tuple(value) if isinstance(value, list) else value
    if name == "get" and given:
        return holder.item(given[0]) if given[0] in holder else (given[1] if len(given) > 1 else None)
    whole: dict[str, Callable[[str], Any]] = {
        "keys": lambda key: key,
        "values": holder.item,
        "items": lambda key: (key, holder.item(key)),
    }
    return tuple(whole[name](key) for key in holder.entries) if name in whole else UNKNOWN


def bind(target: ast.expr, value: Any, names: dict[str, Any]) -> None:
    """`target = value` over `names`; what a pattern takes from an unknown value is unknown."""
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        whole = isinstance(value, tuple) and len(value) == len(target.elts)
        for number, part in enumerate(target.elts):
            bind(part, value[number] if whole else UNKNOWN, names)


def bound_arguments(arguments: ast.arguments, given: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a function by name; constant defaults are filled in."""
    names: dict[str, Any] = {}
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [*zip(positional, defaults, strict=True), *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    for parameter, default in pairs:
        names[parameter.arg] = default.value if isinstance(default, ast.Constant) else UNKNOWN
    for parameter, value in zip(positional, given, strict=False):
        names[parameter.arg] = value
    for extra in (arguments.vararg, arguments.kwarg):
        if extra is not None:
            names[extra.arg] = UNKNOWN
    return {**names, **{name: value for name, value in keywords.items() if name in names}}
