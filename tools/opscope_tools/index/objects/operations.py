"""What Python's operators, `for` and `[]` do with a value; `UndecidedError` where source does not tell."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opscope_tools.index.objects.classes import Classes
from opscope_tools.index.objects.known import containers
from opscope_tools.index.objects.memo import same
from opscope_tools.index.objects.parts import Calling
from opscope_tools.index.objects.sizes import check_binary
from opscope_tools.index.objects.values import (
    MISSING,
    Choice,
    ClassValue,
    FunctionValue,
    Instance,
    Method,
    Uncertain,
    UndecidedError,
    Unknown,
    absent,
    data_of,
    plain,
)

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.BitOr: operator.or_,
    ast.BitAnd: operator.and_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip
#: turns of a loop that are taken
TURNS = 4000


@dataclass(eq=False)
class Operations:
    """Operations on values."""

    classes: Classes
    calling: Calling

    def _own(self, this: Instance, name: str, *args: Any) -> Any:
        """What the special method of the object's class gives; MISSING where it has none."""
        found = self.classes.member(this.cls, name)[1]
        return self.calling.call(Method(found, this), args, {}) if isinstance(found, FunctionValue) else MISSING

    def truth(self, value: Any) -> bool | None:
        """The truth of a value; None where source does not tell."""
        kind = type(value)
        if kind is Unknown:
            return None
        if kind is Choice:
            found = {self.truth(plain(o.value)) for o in value.options if o.live is not False}
            return found.pop() if len(found) == 1 else None
        if kind is Uncertain:
            return None
        if kind is Instance:
            if value.module:
                return bool(containers.items(value)) if value.cls.container() else True
            if value.data is not None:
                return bool(value.data)
            return None if any(self.classes.member(value.cls, name)[0] for name in ("__bool__", "__len__")) else True
        try:
            return bool(value)
        except UndecidedError:
            return None

    def iterate(self, value: Any) -> list[Any]:
        """The items of a value."""
        if isinstance(value, Instance):
            if value.module and value.cls.container():
                return list(value.attrs) if value.cls.container() == "ModuleDict" else containers.items(value)
            if value.data is not None:
                return list(value.data)
            found = MISSING if value.cls.is_enum() else self._own(value, "__iter__")
            if found is MISSING:
                raise UndecidedError
            return self.iterate(plain(found))
        if isinstance(value, ClassValue | Unknown | Choice | FunctionValue):
            raise UndecidedError
        if isinstance(value, range) and len(value) > TURNS:
            raise UndecidedError
        return [item for item in list(value) if not absent(item)]

    def item(self, value: Any, key: Any) -> Any:
        """`value[key]`."""
        if isinstance(value, Instance):
            if value.module and value.cls.container():
                return containers.item(value, key)
            found = self._own(value, "__getitem__", key)
            if found is not MISSING:
                return found
            if value.data is not None:
                return value.data[key]
            raise UndecidedError
        if isinstance(value, ClassValue) and not value.is_enum():
            return value  # a generic class with its parameters
        if isinstance(value, type):
            return value
        if isinstance(value, Uncertain):
            if value and all(same(item, value[0]) for item in value):
                return value[0]
            raise UndecidedError
        if isinstance(key, Unknown | Choice):
            raise UndecidedError
        return value[key]

    def binary(self, step: ast.operator, left: Any, right: Any) -> Any:
        """`left step right` of plain data; raises `UndecidedError` where an object may define the operator itself."""
        made = _BINARY.get(type(step))
        if made is None or isinstance(left, Instance) or isinstance(right, Instance):
            raise UndecidedError
        check_binary(step, left, right)
        result = made(left, right)
        return Uncertain(result) if isinstance(left, Uncertain) or isinstance(right, Uncertain) else result

    def compared(self, step: ast.cmpop, left: Any, right: Any) -> bool:
        """One comparison of a chain; raises what Python raises for operands without an order."""
        if isinstance(step, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            return _equal(left, right, isinstance(step, ast.Is | ast.IsNot)) is isinstance(step, ast.Eq | ast.Is)
        if isinstance(step, ast.In | ast.NotIn):
            return self._within(left, right) is isinstance(step, ast.In)
        return bool(_ORDER[type(step)](data_of(left), data_of(right)))

    def _within(self, left: Any, right: Any) -> bool:
        if isinstance(right, Instance):
            found = self._own(right, "__contains__", left)
            if found is not MISSING:
                answer = self.truth(plain(found))
                if answer is None:
                    raise UndecidedError
                return answer
            if right.module:
                return isinstance(left, str) and left in right.attrs
            right = right.data if right.data is not None else self.iterate(right)
        if isinstance(right, list | tuple | dict | set) and not right and not isinstance(right, Uncertain):
            return False
        if isinstance(left, Unknown | Choice) or isinstance(right, Unknown | Choice | ClassValue | Uncertain):
            raise UndecidedError
        return bool(data_of(left) in right)


def _equal(left: Any, right: Any, identity: bool) -> bool:
    if isinstance(left, Unknown) and isinstance(right, Unknown) and left.name and left.name == right.name:
        return True
    if isinstance(left, Unknown | Choice) or isinstance(right, Unknown | Choice):
        raise UndecidedError
    if left is right:
        return True
    if identity and (left is None or right is None):
        return False
    return bool(data_of(left) == data_of(right))
