"""Records: dataclasses and what resembles them (pydantic, attrs, msgspec, named tuples): fields, defaults, constructors.

Which classes of an MRO contribute fields is decided as `dataclasses` does it: a subclass that is not itself made a record
only adds plain class attributes.
"""

from __future__ import annotations

import re
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
from opscope_tools.index.rows import AssignRow, FunctionRow

#: base class outside the source -> what its subclasses are
_BASES = {
    "pydantic.BaseModel": "pydantic", "pydantic.main.BaseModel": "pydantic", "pydantic_settings.BaseSettings": "pydantic",
    "pydantic_settings.main.BaseSettings": "pydantic", "msgspec.Struct": "msgspec",
}  # fmt: skip
_ATTRS = frozenset(
    "attr.s attr.attrs attr.define attr.frozen attr.mutable attrs.define attrs.frozen attrs.mutable".split()
)
_MADE = re.compile(r"(\w+\.)*(attr|attrs|ib|attrib|field|Field)\(")


class Records(Attributes):
    """Construction of record instances."""

    def is_record(self, cls: ClassValue) -> bool:
        """Whether the class is a record, by decoration or by a base that says so (PEP 681)."""
        return bool(self.record_kind(cls))

    def record_kind(self, cls: ClassValue) -> str:
        """`dataclass`, `pydantic`, `attrs`, `msgspec`, `namedtuple`; empty where the class is no record."""
        known: str | None = cls.kinds.get("record")
        if known is None:
            kinds = (_BASES.get(base, "") if isinstance(base, str) else self._own_kind(base) for base in cls.mro)
            known = cls.kinds["record"] = next((kind for kind in kinds if kind), "")
        return known

    def _own_kind(self, cls: ClassValue) -> str:
        """The kind by the class's decorators, by its name where it is such a base itself, or as a named tuple."""
        named = any(base.endswith(".NamedTuple") for base in self._direct(cls))
        return self._decorated(cls) or _BASES.get(cls.qualified_name, "") or ("namedtuple" if named else "")

    def _decorated(self, cls: ClassValue) -> str:
        """The kind of record that the class's own decorators make of it."""
        known: str | None = cls.kinds.get("decorated")
        if known is None:
            texts = [text.split("(", 1)[0].strip() for text in cls.symbol.row.decorators]
            known = cls.kinds["decorated"] = next((kind for text in texts if (kind := self._makes(cls, text))), "")
        return known

    def _makes(self, cls: ClassValue, text: str) -> str:
        if text.rpartition(".")[2] in {"dataclass", "dataclass_transform"}:
            return "dataclass"
        if not text.replace(".", "").replace("_", "").isalnum():
            return ""
        found = self.resolver.dotted(cls.symbol.unit, text)
        if found is not None and found.name in _ATTRS:
            return "attrs"
        row = found.row if found is not None else None
        marked = isinstance(row, FunctionRow) and any("dataclass_transform" in own for own in row.decorators)
        return "dataclass" if marked else ""

    def _contributes(self, cls: ClassValue) -> bool:
        """Whether the class's own annotations are fields."""
        if self._decorated(cls) or any(base.endswith(".NamedTuple") for base in self._direct(cls)):
            return True
        for base in cls.mro:
            if isinstance(base, str):
                if base in _BASES:
                    return True
            elif base is not cls and any("dataclass_transform" in text for text in base.symbol.row.decorators):
                return True
        return False

    def _direct(self, cls: ClassValue) -> list[str]:
        return [base for base in self.resolver.bases(cls.symbol) if isinstance(base, str)]

    def field_holders(self, cls: ClassValue) -> dict[str, list[ClassValue]]:
        """The fields of a record in the order of its constructor, each with the classes that declare it, the one whose
        default counts last."""
        known: dict[str, list[ClassValue]] | None = cls.kinds.get("fields")
        if known is not None:
            return known
        found: dict[str, list[ClassValue]] = {}
        private = self.record_kind(cls) == "pydantic"
        for base in reversed(cls.mro):
            if not isinstance(base, ClassValue) or not self._contributes(base):
                continue
            for row in base.symbol.row.body:
                if not isinstance(row, AssignRow) or (private and row.name.startswith("_")):
                    continue
                if "ClassVar" in row.annotation or row.annotation.rpartition(".")[2] == "KW_ONLY":
                    found.pop(row.name, None)
                elif row.annotation or (self.record_kind(cls) == "attrs" and _MADE.match(row.value)):
                    found[row.name] = [*(b for b in found.get(row.name, []) if b is not base), base]
        cls.kinds["fields"] = found
        return found

    def fields(self, cls: ClassValue) -> list[FieldValue]:
        """The fields of a record, those of bases first, each with its default."""
        return [self._field(holders[-1], name) for name, holders in self.field_holders(cls).items()]

    def _field(self, cls: ClassValue, name: str) -> FieldValue:
        value = self.member(cls, name)[1]
        if isinstance(value, FieldValue):
            return FieldValue(value.default, value.default_factory, name)
        return FieldValue(value, MISSING, name)

    def generates_init(self, cls: ClassValue, holder: ClassValue | None, after: ClassValue | None = None) -> bool:
        """Whether the constructor (of the classes behind `after`) is the one that makes a record, and not `holder`'s."""
        if not self.record_kind(cls):
            return False
        passed = after is None
        for base in cls.mro:
            if base is holder:
                return False
            if passed and (base in _BASES if isinstance(base, str) else self._contributes(base)):
                return True
            passed = passed or base is after
        return False

    def fill_record(self, this: Instance, args: Args, kwargs: Kwargs) -> None:
        given = dict(kwargs)
        positional = list(args)
        passed: dict[str, Any] = {}
        holders = self.field_holders(this.cls)
        for field in self.fields(this.cls):
            if positional:
                value = positional.pop(0)
            elif field.name in given:
                value = given.pop(field.name)
            elif field.default_factory is not MISSING:
                value = self.attempt(field.default_factory, (), {})
            else:
                value = field.default if field.default is not MISSING else Unknown(field.name)
            row = holders[field.name][-1].symbol.members.get(field.name)
            if isinstance(row, AssignRow) and "InitVar" in row.annotation:
                passed[field.name] = value
            else:
                self.put(this, field.name, value)
        for name in ("__attrs_post_init__", "__post_init__", "model_post_init"):
            hook = self.member(this.cls, name)[1]
            if isinstance(hook, FunctionValue):
                context = (Unknown("context"),) if name == "model_post_init" else ()
                self.run(hook, (this, *context), {**given, **passed}, this)
        for name in self.after_hooks(this.cls):
            hook = self.member(this.cls, name)[1]
            if isinstance(hook, FunctionValue):
                self.run(hook, (this,), {}, this)

    def after_hooks(self, cls: ClassValue) -> list[str]:
        """Methods that pydantic calls on the finished object."""
        known: list[str] | None = cls.kinds.get("after")
        if known is None:
            rows = [
                row for base in reversed(cls.mro) if isinstance(base, ClassValue)
                for row in base.symbol.row.body if isinstance(row, FunctionRow)
            ]  # fmt: skip
            after = [
                row.name for row in rows
                if any(re.match(r"(\w+\.)*model_validator\(.*[\"']after[\"']", text) for text in row.decorators)
            ]  # fmt: skip
            known = cls.kinds["after"] = list(dict.fromkeys(after))
        return known

    def attempt(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """The result of a call, unknown where it fails."""
        try:
            return self.call(function, args, kwargs)
        except (RaisedError, UndecidedError):
            return Unknown()
