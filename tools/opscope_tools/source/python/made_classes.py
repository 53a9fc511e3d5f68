"""Classes that a call makes: `type("A", (B,), {...})`, `namedtuple("A", ...)`, `Enum("A", ...)`, `ABCMeta("A", ...)`.

Such a call becomes a row as a class statement gives one, as far as its arguments are literal.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from opscope_tools.source.python.rows import AssignRow, ClassRow, Guard, Row
from opscope_tools.source.python.trees import expression_of

#: callee, where it is not in the source -> the base of what it makes; "" for the callee itself
_FACTORIES = {
    "collections.namedtuple": "tuple",
    "typing.NamedTuple": "tuple",
    "typing.TypedDict": "dict",
    "enum.Enum": "",
    "enum.IntEnum": "",
    "enum.StrEnum": "",
    "enum.Flag": "",
    "enum.IntFlag": "",
}


def call_of(text: str) -> tuple[str, ast.Call] | None:
    """(callee, call) of an expression that is the call of a dotted name."""
    if not text.endswith(")"):
        return None
    tree = expression_of(text)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name | ast.Attribute):
        return None
    return ast.unparse(tree.func), tree


def from_metaclass(call: ast.Call, line: int, guard: Guard) -> ClassRow | None:
    """The row of `metaclass(name, bases, body)`; None where name and bases are not spelt out."""
    if len(call.args) < 3 or not isinstance(call.args[1], ast.Tuple):
        return None
    body: list[Row] = []
    if isinstance(call.args[2], ast.Dict):
        for key, value in zip(call.args[2].keys, call.args[2].values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                body.append(AssignRow(key.value, ast.unparse(value), line, Guard()))
    return _row(call, line, guard, [ast.unparse(base) for base in call.args[1].elts], body)


def from_factory(callee: str, call: ast.Call, line: int, guard: Guard) -> ClassRow | None:
    """The row of a factory of the standard library; `callee` is its full name."""
    base = _FACTORIES.get(callee)
    if base is None or len(call.args) + len(call.keywords) < 2:
        return None
    return _row(call, line, guard, [base or ast.unparse(call.func)], [])


def _row(call: ast.Call, line: int, guard: Guard, bases: Sequence[str], body: Sequence[Row]) -> ClassRow | None:
    name = call.args[0] if call.args else None
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
        return None
    return ClassRow(name.value, line, line, line, (), tuple(bases), tuple(body), guard)
