"""What a configuration may hold that somebody gives, whoever reads it: plain values of a bearable size.

Before anything is built from it: how deep and how much, numbers that are numbers, names that are no attribute of Python's
own, and counts of what would be built one by one. What the names in it mean is checked where they would be followed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NoReturn

from opscope_schemas.errors import ConfigError, ValuesError

#: layers, blocks or experts that a model is built of, one by one
MOST_LAYERS = 2_000
MOST_EXPERTS = 16_384
#: elements along one dimension: past it products leave 64 bits
LARGEST_SIZE = 2**40
_MOST_DIMENSIONS = 16
#: parts that a byte may be cut into: a float that is no fraction of few parts was not meant exactly
_FINEST = 4096
_MOST_LABELS = 1_000_000
_DEEPEST = 32
_MOST_VALUES = 200_000
_LONGEST_TEXT = 20_000
#: fields that count what is built one by one
_LAYERS = re.compile(r"(layers?|depths?|blocks?|stages?|stacks?|hidden_layers|recurrences?|loops?)$")
_EXPERTS = re.compile(r"experts?$")


def check_given(config: Mapping[str, object]) -> None:
    """Raises `ConfigError` with the field's name where a value is none that a configuration can hold."""
    count = 0
    for path, value in _values(config, "", 0):
        count += 1
        if count > _MOST_VALUES:
            _refuse("The configuration", f"holds more than {_MOST_VALUES:,} values", "Give fewer.")
        if isinstance(value, bool) or value is None:
            continue
        if isinstance(value, str):
            _check_text(path, value)
        elif isinstance(value, int | float):
            _check_number(path, value)


def check_values(values: Mapping[str, int | Fraction] | None, inputs: Mapping[str, Sequence[str | int]] | None) -> None:
    """Raises `ValuesError` for a size that nothing has, `ConfigError` for shapes of inputs that no tensor has."""
    for name, value in (values or {}).items():
        if value > LARGEST_SIZE:
            raise ValuesError(f"{_shown(name)} is larger than 2**40.", next_step="Give a smaller number.")
        if _LAYERS.search(name) and value > MOST_LAYERS:
            raise ValuesError(
                f"{_shown(name)} is {value:,}: a model of more than {MOST_LAYERS:,} of them is not built.",
                next_step=f"Give at most {MOST_LAYERS:,}.",
            )
    for name, shape in (inputs or {}).items():
        if len(shape) > _MOST_DIMENSIONS:
            _refuse(_shown(name), f"has {len(shape)} dimensions", f"Give at most {_MOST_DIMENSIONS}.")
        if any(isinstance(size, int) and not 0 <= size <= LARGEST_SIZE for size in shape):
            _refuse(_shown(name), "has a size that no tensor has", "Give sizes from 0 to 2**40.")


def fraction(name: str, value: object) -> Fraction:
    """Bytes per element as an exact fraction: of `"17/32"`, or of a number that is one; raises `ValueError` otherwise."""
    if not name.endswith("_bytes") or not isinstance(value, str | float | Fraction):
        raise ValueError(f"{name} is a whole number")
    try:
        found = Fraction(value)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise ValueError(f'{name} is a number, or a fraction as text: "17/32"') from None
    if found.denominator > _FINEST or not 0 <= found <= LARGEST_SIZE:
        raise ValueError(f'{name} is no number of bytes; write a fraction exactly, as text: "1/3"')
    return found


def _values(value: object, path: str, depth: int) -> Iterator[tuple[str, object]]:
    """Every plain value with the path of its field; raises for what is nested too deeply and for keys that are no names."""
    if depth > _DEEPEST:
        _refuse(_shown(path), f"is nested more than {_DEEPEST} deep", "Give it flatter.")
    if isinstance(value, Mapping):
        for key, held in value.items():
            _check_key(str(key))
            yield from _values(held, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for held in value:
            yield from _values(held, path, depth + 1)
    else:
        yield path, value


def _check_key(key: str) -> None:
    if len(key) > 500 or "\0" in key:
        _refuse(_shown(key), "is no name of a field", "Give the names that the config class has.")
    if key.startswith("__"):
        _refuse(_shown(key), "is a name of Python's own, and no field of a configuration", "Leave it out.")


def _check_text(path: str, value: str) -> None:
    if len(value) > _LONGEST_TEXT:
        _refuse(_shown(path), f"has {len(value):,} characters", f"Give at most {_LONGEST_TEXT:,}.")
    if "\0" in value:
        _refuse(_shown(path), "holds a NUL character", "Leave it out.")


def _check_number(path: str, value: float) -> None:
    name = path.rpartition(".")[2]
    if isinstance(value, float):
        if not math.isfinite(value) and not (math.isinf(value) and name.endswith("limit")):  # mamba2: [0.0, Infinity]
            _refuse(_shown(path), f"is {value}, which is no number", "Give a finite number.")
        return
    if abs(value) > LARGEST_SIZE:
        _refuse(_shown(path), "is a number past 2**40, larger than any size", "Give a smaller number.")
    if name.endswith("labels") and value > _MOST_LABELS:
        _refuse(_shown(path), f"is {value:,}, and each label is written out", f"Give at most {_MOST_LABELS:,}.")
    if _EXPERTS.search(name) and value > MOST_EXPERTS:
        _refuse(
            _shown(path), f"is {value:,}: a model of more than {MOST_EXPERTS:,} experts is not built", "Give fewer."
        )
    if _LAYERS.search(name) and value > MOST_LAYERS:
        _refuse(
            _shown(path),
            f"is {value:,}: a model of more than {MOST_LAYERS:,} of them is not built",
            f"Give at most {MOST_LAYERS:,}.",
        )


def _shown(path: str) -> str:
    return repr(path if len(path) <= 100 else path[:97] + "...") if path else "The configuration"


def _refuse(what: str, why: str, next_step: str) -> NoReturn:
    raise ConfigError(f"{what} {why}.", next_step=next_step)


__all__ = ["LARGEST_SIZE", "MOST_EXPERTS", "MOST_LAYERS", "check_given", "check_values", "fraction"]
