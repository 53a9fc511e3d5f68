"""Operations whose result could be too large to compute: the analysed source is not trusted, and is not run to the end
of what it asks for."""

from __future__ import annotations

import ast
import re
from typing import Any

from opscope_tools.index.objects.values import UndecidedError

#: items of a sequence, characters of a text, bits of a number
ITEMS, BITS = 1_000_000, 4096
_WIDTH = re.compile(r"\d{5,}")
_PADDING = {"ljust", "rjust", "center", "zfill", "expandtabs"}


def check_binary(step: ast.operator, left: Any, right: Any) -> None:
    """Raise `UndecidedError` where `left step right` would be too large."""
    if isinstance(left, int) and isinstance(right, int):
        _check_numbers(step, left, right)
    elif isinstance(step, ast.Mult):
        times, value = (left, right) if isinstance(left, int) else (right, left)
        if isinstance(times, int) and _length(value) * max(times, 0) > ITEMS:
            raise UndecidedError
    elif isinstance(step, ast.Add):
        if _length(left) + _length(right) > ITEMS:
            raise UndecidedError
    elif isinstance(step, ast.Mod) and isinstance(left, str | bytes):
        check_format(left if isinstance(left, str) else left.decode("latin-1"))
    elif isinstance(step, ast.Pow) and isinstance(right, int | float) and abs(right) > BITS:
        raise UndecidedError


def _check_numbers(step: ast.operator, left: int, right: int) -> None:
    bits = left.bit_length()
    if isinstance(step, ast.Mult):
        bits += right.bit_length()
    elif isinstance(step, ast.Pow):
        bits *= max(right, 1)
    elif isinstance(step, ast.LShift):
        bits += max(right, 0)
    if bits > BITS:
        raise UndecidedError


def check_format(text: str) -> None:
    """Raise `UndecidedError` where a format names a width of five digits or more."""
    if _WIDTH.search(text):
        raise UndecidedError


def check_method(value: Any, name: str, args: tuple[Any, ...]) -> None:
    """Raise `UndecidedError` where a method of a plain value would make too much."""
    if name in _PADDING and args and isinstance(args[0], int) and args[0] > ITEMS:
        raise UndecidedError
    if name == "format" and isinstance(value, str):
        check_format(value)
    if name == "replace" and len(args) > 1 and _length(value) * max(_length(args[1]), 1) > ITEMS:
        raise UndecidedError
    if name == "join" and _length(value) * sum(map(_length, args)) > ITEMS:
        raise UndecidedError
    if name in {"extend", "update"} and _length(value) + sum(map(_length, args)) > ITEMS:
        raise UndecidedError
    if name == "to_bytes":
        raise UndecidedError


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple | dict | set | range) else 0
