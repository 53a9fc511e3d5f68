"""Functions that are not interpreted but known by their qualified names: builtin_functions.py and library_functions.py
register them here."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from opscope_tools.index.objects.values import MISSING, Native, Unknown

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


def known(name: str) -> Any:
    """The function or value of that qualified name; MISSING where it is not one of these."""
    found: Any = _TABLE.get(name)
    module, _, member = name.partition(".")
    if found is None and module == "math" and member in _MATH:
        made = getattr(math, member)
        found = Native(name, lambda _, args, kwargs: made(*args, **kwargs)) if callable(made) else made
    elif found is None and module == "numpy" and member in _SCALAR:
        scalar = getattr(math, member)
        found = Native(name, lambda _, args, __: scalar(*args))
    return _VALUES.get(name, MISSING) if found is None else found


#: functions of a number that cost nothing, whatever the number
_SCALAR = {"log2", "log", "log10", "sqrt", "ceil", "floor", "exp"}
_MATH = {*_SCALAR, *"pi e inf nan tau pow gcd isqrt trunc fabs sin cos tan tanh log1p".split()}
_VALUES: dict[str, Any] = {
    "dataclasses.MISSING": dataclasses.MISSING, "typing.TYPE_CHECKING": False, "sys.version_info": Unknown("sys.version_info"),
    "collections.OrderedDict": dict, "collections.deque": list, "typing.OrderedDict": dict,
}  # fmt: skip
