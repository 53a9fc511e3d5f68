"""Records: dataclasses and what resembles them (pydantic, attrs, msgspec, named tuples): fields and their defaults.

Which classes of an MRO contribute fields is decided as `dataclasses` does it: a subclass that is not itself made a record
only adds plain class attributes.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from opscope_tools.index.objects.classes import Classes
from opscope_tools.index.objects.values import MISSING, ClassValue, FieldValue, Frame
from opscope_tools.source.python import syntax as code
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.rows import AssignRow, FunctionRow

#: base class outside the source -> what its subclasses are
_BASES = {
    "pydantic.BaseModel": "pydantic", "pydantic.main.BaseModel": "pydantic", "pydantic_settings.BaseSettings": "pydantic",
    "pydantic_settings.main.BaseSettings": "pydantic", "msgspec.Struct": "msgspec",
}  # fmt: skip
_ATTRS = frozenset(
    "attr.s attr.attrs attr.define attr.frozen attr.mutable attrs.define attrs.frozen attrs.mutable".split()
)
_PYDANTIC = "pydantic.dataclasses.dataclass"
_DATACLASSES = frozenset({"dataclasses.dataclass", _PYDANTIC})
#: aliases of annotations that lead to one another
_DEEPEST_ALIAS = 6
_MADE = re.compile(r"(\w+\.)*(attr|attrs|ib|attrib|field|Field)\(")


@dataclass(eq=False)
class Records:
    """Which classes are records, and of what."""

    resolver: Resolver
    classes: Classes

    def kind(self, cls: ClassValue) -> str:
        """`dataclass`, `pydantic`, `attrs`, `msgspec`, `namedtuple`, by decoration or by a base that says so (PEP 681);
        empty where the class is no record."""
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
        names = self._decorator(cls, text)
        if names & _ATTRS:
            return "attrs"
        return "dataclass" if names & {*_DATACLASSES, "dataclass_transform"} else ""

    def _decorator(self, cls: ClassValue, text: str) -> set[str]:
        """What a decorator is: its qualified name, and of a function of the source those whose result it returns."""
        if not text.replace(".", "").replace("_", "").isalnum():
            return set()
        found = self.resolver.dotted(cls.symbol.unit, text)
        if found is None:
            return set()
        names = {found.name}
        if found.unit is not None and isinstance(found.row, FunctionRow):
            names |= {"dataclass_transform" for own in found.row.decorators if "dataclass_transform" in own}
            parsed = code.function(found.unit, found.row)
            for node in ast.walk(parsed.node) if parsed is not None else ():
                made = node.value.func if isinstance(node, ast.Return) and isinstance(node.value, ast.Call) else None
                made = made.func if isinstance(made, ast.Call) else made  # `return dataclass(**options)(cls)`
                if isinstance(made, ast.Name | ast.Attribute):
                    inner = self.resolver.dotted(found.unit, ast.unparse(made))
                    names |= {inner.name} if inner is not None else set()
        return names

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
        private = self.kind(cls) == "pydantic"
        for base in reversed(cls.mro):
            if not isinstance(base, ClassValue) or not self._contributes(base):
                continue
            for row in base.symbol.row.body:
                if not isinstance(row, AssignRow) or (private and row.name.startswith("_")):
                    continue
                if "ClassVar" in row.annotation or row.annotation.rpartition(".")[2] == "KW_ONLY":
                    found.pop(row.name, None)
                elif row.annotation or (self.kind(cls) == "attrs" and _MADE.match(row.value)):
                    found[row.name] = [*(b for b in found.get(row.name, []) if b is not base), base]
        cls.kinds["fields"] = found
        return found

    def fields(self, cls: ClassValue) -> list[FieldValue]:
        """The fields of a record, those of bases first, each with its default."""
        return [self._field(holders[-1], name) for name, holders in self.field_holders(cls).items()]

    def _field(self, cls: ClassValue, name: str) -> FieldValue:
        value = self.classes.member(cls, name)[1]
        field = value if isinstance(value, FieldValue) else FieldValue(value, MISSING, name)
        if field.default is MISSING and field.default_factory is MISSING:
            row = cls.symbol.members.get(name)
            specifier = self.annotated(cls, row) if isinstance(row, AssignRow) else None
            if specifier is not None and row is not None:
                unit = cls.symbol.unit
                text = code.Value(unit, [ast.unparse(specifier).encode()], row.line, specifier)
                field = self.classes.declared(cls, specifier, Frame(unit, text, {}, holder=cls)) or field
        return FieldValue(field.default, field.default_factory, name)

    def annotated(self, cls: ClassValue, row: AssignRow) -> ast.Call | None:
        """The call within `Annotated[type, Field(default=...)]` that gives a field its default, where the class is made
        by pydantic, which alone reads it. Of several the last one counts; within a union none does."""
        if not row.annotation or not self._by_pydantic(cls):
            return None
        specifiers = [
            s for s in self._metadata(cls, row.annotation) if isinstance(s, ast.Call) and self.classes.specifies(cls, s)
        ]
        defaults = [s for s in specifiers if _gives_default(s)]
        return defaults[-1] if defaults else None

    def _metadata(self, cls: ClassValue, text: str, depth: int = 0) -> list[ast.expr]:
        """What an annotation holds behind the type, that of an alias or of an inner one first."""
        try:
            node: ast.expr = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and depth < _DEEPEST_ALIAS:
            return self._metadata(cls, node.value, depth + 1)
        if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST_ALIAS:
            found = self.resolver.dotted(cls.symbol.unit, ast.unparse(node))
            alias = found.row.value if found is not None and isinstance(found.row, AssignRow) else ""
            return self._metadata(cls, alias, depth + 1) if alias else []
        named = isinstance(node, ast.Subscript) and ast.unparse(node.value).rpartition(".")[2] == "Annotated"
        if not named or not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
            return []
        inner, *own = node.slice.elts
        return [*self._metadata(cls, ast.unparse(inner), depth + 1), *own]

    def _by_pydantic(self, cls: ClassValue) -> bool:
        """Whether pydantic makes the class a record: by a base, or by its dataclass decorator or one that calls it."""
        known: bool | None = cls.kinds.get("pydantic")
        if known is None:
            made = (self._decorator(cls, text.split("(", 1)[0].strip()) for text in cls.symbol.row.decorators)
            known = self.kind(cls) == "pydantic" or any(_PYDANTIC in names for names in made)
            cls.kinds["pydantic"] = known
        return known

    def generates_init(self, cls: ClassValue, holder: ClassValue | None, after: ClassValue | None = None) -> bool:
        """Whether the constructor (of the classes behind `after`) is the one that makes a record, and not `holder`'s."""
        if not self.kind(cls):
            return False
        passed = after is None
        for base in cls.mro:
            if base is holder:
                return False
            if passed and (base in _BASES if isinstance(base, str) else self._contributes(base)):
                return True
            passed = passed or base is after
        return False

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


def _gives_default(node: ast.Call) -> bool:
    return bool(node.args) or any(k.arg in {"default", "default_factory"} for k in node.keywords)
