"""Runs the host functions of CuTe-DSL sources with a stand-in for `cutlass`, and tells what they launch with."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Type:
    """An element type; of numbers that it is called with the whole part."""

    width: int

    def __call__(self, value: Any) -> int:
        return int(value)


class _Anything:
    """What the host code only hands on."""

    def __getattr__(self, name: str) -> Any:
        return _Anything()

    def __call__(self, *_: Any, **__: Any) -> Any:
        return _Anything()

    def __getitem__(self, _: Any) -> Any:
        return _Anything()


def _flat(shape: Any) -> int:
    return math.prod(map(_flat, shape)) if isinstance(shape, tuple) else shape


@contextmanager
def stand_in(folder: Path) -> Iterator[dict[str, Any]]:
    """Modules in `folder` may be imported meanwhile; the mapping then holds what the last launch was given."""
    launched: dict[str, Any] = {}

    def kernel(_: Any) -> Any:
        return lambda *_, **__: SimpleNamespace(launch=lambda **given: launched.update(given))

    types = {"Float32": Type(32), "Float16": Type(16), "BFloat16": Type(16), "Int32": Type(32), "Int64": Type(64)}
    cute, cutlass, elsewhere = ModuleType("cutlass.cute"), ModuleType("cutlass"), ModuleType("elsewhere")
    vars(cute).update(
        jit=lambda function: function, kernel=kernel, ceil_div=lambda a, b: -(-a // b), arch=SimpleNamespace(WARP_SIZE=32),
        make_ordered_layout=lambda shape, **_: shape, make_layout=lambda shape: shape, nvgpu=_Anything(),
        make_copy_atom=lambda *_: None, make_tiled_copy_tv=lambda _atom, threads, _values: SimpleNamespace(size=_flat(threads)),
        size=lambda tensor, mode: tensor.shape[mode[0]], Tensor=Any, Shape=Any, TiledCopy=Any,
        struct=type("struct", (), {"__new__": lambda _, made: made, "MemRange": _Anything(), "Align": _Anything()}),
    )  # fmt: skip
    vars(cutlass).update(
        types, cute=cute, const_expr=lambda value: value, Constexpr=_Anything(), range=range, utils=_Anything()
    )
    vars(elsewhere).update(transform=None)
    before = dict(sys.modules)
    sys.modules.update({"cutlass": cutlass, "cutlass.cute": cute, "elsewhere": elsewhere})
    sys.path.insert(0, str(folder))
    try:
        yield launched
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - set(before):
            del sys.modules[name]
        for name in ("cutlass", "cutlass.cute", "elsewhere"):
            sys.modules.pop(name, None)
            if name in before:
                sys.modules[name] = before[name]


def launch(folder: Path, make: str, *arguments: Any) -> dict[str, Any]:
    """What `make` (an expression over the module `rows` and its `Type`s) launches with when it is called with these."""
    with stand_in(folder) as launched:
        module = importlib.import_module("rows")
        cutlass = sys.modules["cutlass"]
        eval(make, {**vars(module), "cutlass": cutlass})(*arguments)  # a test's own words
        return launched


__all__ = ["Type", "launch", "stand_in"]
