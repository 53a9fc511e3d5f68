"""The parameters of a Triton kernel: what the compiler is given and what a launch is."""

from __future__ import annotations

import ast
import re

from opscope_schemas.tiling import Parameter

from opscope_tools.kernels.host.modules import with_defaults
from opscope_tools.kernels.triton.definitions import FunctionNode

#: `tl.constexpr`; `ct.Constant[int]` of cuTile, and names that its sources give that
_COMPILE_TIME = re.compile(r"(^|\.)(constexpr|Constant(\[.*\])?|Const(Int|Bool|Float|Str)?)$")


def parameters(function: FunctionNode) -> list[tuple[ast.arg, str, str, bool]]:
    """(argument, annotation, default, is constexpr) of each parameter, in order."""
    found = []
    for argument, default in with_defaults(function):
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        constexpr = bool(_COMPILE_TIME.search(annotation.strip("'\"")))
        found.append((argument, annotation, ast.unparse(default) if default is not None else "", constexpr))
    return found


def compile_time(function: FunctionNode) -> frozenset[str]:
    """The names that the compiler is given."""
    return frozenset(a.arg for a, _, _, constexpr in parameters(function) if constexpr)


def runtime_parameters(function: FunctionNode, pointers: frozenset[str]) -> list[Parameter]:
    """The run-time parameters; a pointer by its annotation or because an address starts from it."""
    return [
        Parameter(name=a.arg, line=a.lineno, type=annotation, default=default,
                  pointer=a.arg in pointers or annotation.strip("'\"").startswith("*") or "pointer_type" in annotation)
        for a, annotation, default, constexpr in parameters(function) if not constexpr
    ]  # fmt: skip
