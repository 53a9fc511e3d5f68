"""Dataclasses: their fields, defaults and constructors."""

from __future__ import annotations

from typing import Any

from opscope_tools.index.building.attributes import Args, Attributes, Kwargs
from opscope_tools.index.building.values import (
    MISSING,
    ClassValue,
    FieldValue,
    FunctionValue,
    Instance,
    RaisedError,
    UndecidedError,
    Unknown,
)
from opscope_tools.index.rows import AssignRow


class Records(Attributes):
    """Construction of dataclass instances."""

    def is_record(self, cls: ClassValue) -> bool:
        """Whether the class is a dataclass, by decoration or by a base that says so (PEP 681)."""
        known: bool | None = cls.kinds.get("record")
        if known is None:
            names = {
                text.split("(", 1)[0].rpartition(".")[2]
                for base in cls.mro
                if isinstance(base, ClassValue)
                for text in base.symbol.row.decorators
            }
            known = cls.kinds["record"] = bool(names & {"dataclass", "dataclass_transform"})
        return known

    def fields(self, cls: ClassValue) -> list[FieldValue]:
        """The fields of a dataclass, those of bases first, each with its default."""
        found: dict[str, ClassValue] = {}
        for base in reversed(cls.mro):
            if isinstance(base, ClassValue):
                for row in base.symbol.row.body:
                    if isinstance(row, AssignRow) and (row.annotation or row.name in found):
                        if row.annotation and "ClassVar" in row.annotation:
                            found.pop(row.name, None)
                        else:
                            found[row.name] = base
        return [self._field(cls, name) for name in found]

    def _field(self, cls: ClassValue, name: str) -> FieldValue:
        value = self.member(cls, name)[1]
        if isinstance(value, FieldValue):
            return FieldValue(value.default, value.default_factory, name)
        return FieldValue(value, MISSING, name)

    def fill_record(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        given = dict(kwargs)
        positional = list(args)
        for field in self.fields(this.cls):
            if positional:
                value = positional.pop(0)
            elif field.name in given:
                value = given.pop(field.name)
            elif field.default_factory is not MISSING:
                value = self.attempt(field.default_factory, (), {})
            else:
                value = field.default if field.default is not MISSING else Unknown(field.name)
            self.put(this, field.name, value)
        hook = self.member(this.cls, "__post_init__")[1]
        if isinstance(hook, FunctionValue):
            self.run(hook, (this,), given, this)

    def attempt(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """The result of a call, unknown where it fails."""
        try:
            return self.call(function, args, kwargs)
        except (RaisedError, UndecidedError):
            return Unknown()
