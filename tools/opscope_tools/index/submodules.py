"""Which modules an object holds: the attribute rows of its constructors, with their classes resolved.

Constructors run as Python runs them: each `super().__init__` leads to the next class of the MRO of the object's own
class, and what runs later replaces what was set before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_tools.index.resolve import ClassSymbol, Found, Resolver
from opscope_tools.index.rows import AssignRow, AttributeRow, FunctionRow

MODULE = "torch.nn.modules.module.Module"
_AUTO = re.compile(r"(^|\.)(Auto\w+\.from_\w+|\w+\._from_config)$")
#: functions that hand back the module given to them
_WRAPPERS = re.compile(
    r"(^|\.)(weight_norm|spectral_norm|parametrization|checkpoint_wrapper|register_parametrization)$"
)


@dataclass(frozen=True, eq=False)
class Submodule:
    """One attribute that holds a module (or, for `x.*`, the modules in the container `x`)."""

    attribute: str
    row: AttributeRow
    holder: ClassSymbol
    symbol: ClassSymbol | None
    class_name: str
    dispatch: str = ""
    condition: str = ""

    @property
    def line(self) -> int:
        return self.row.line


def submodules(resolver: Resolver, symbol: ClassSymbol) -> list[Submodule]:
    """The modules that an instance of `symbol` holds, in order of attribute creation."""
    found: dict[str, list[Submodule]] = {}
    for holder, row in _rows(resolver, symbol):
        resolved = _resolve(resolver, symbol, holder, row)
        top = row.attribute.split(".", 1)[0]
        if not resolved:
            if (row.how == "none" and not row.condition) or (row.how == "other" and not row.condition):
                for name in [name for name in found if name.split(".", 1)[0] == top]:
                    del found[name]  # replaced by something that is no module
            continue
        if not row.condition and "." not in row.attribute:
            for name in [name for name in found if name.split(".", 1)[0] == top]:
                del found[name]
        known = found.setdefault(row.attribute, [])
        for module in resolved:
            if all(
                (m.class_name, m.condition, m.line) != (module.class_name, module.condition, module.line) for m in known
            ):
                known.append(module)
    return [module for modules in found.values() for module in modules]


def _rows(resolver: Resolver, symbol: ClassSymbol) -> Iterator[tuple[ClassSymbol, AttributeRow]]:
    """Attribute rows in order of execution: those of inherited constructors before the class's own."""
    mro = [holder for holder in resolver.mro(symbol) if not isinstance(holder, str)]
    order: list[ClassSymbol] = []

    def visit(start: int) -> None:
        for position in range(start, len(mro)):
            holder = mro[position]
            if "__init__" not in holder.members or any(holder.same(seen) for seen in order):
                continue
            calls = holder.init_calls
            for call in calls:
                if call == "super":
                    visit(position + 1)
                    continue
                base = resolver.base(holder, call.removeprefix("super:"))
                for later, other in enumerate(mro):
                    if not isinstance(base, str) and other.same(base):
                        visit(later + 1 if call.startswith("super:") else later)
            order.append(holder)
            return

    visit(0)
    for holder in order:
        for row in holder.attributes:
            yield holder, row


def _resolve(resolver: Resolver, symbol: ClassSymbol, holder: ClassSymbol, row: AttributeRow) -> list[Submodule]:
    if row.how == "dispatch":
        return _dispatch(resolver, symbol, holder, row)
    if row.how != "call":
        return []
    found = callee(resolver, symbol, holder, row.callee)
    if found is not None and found.symbol is not None:
        return [_made(holder, row, found.symbol)] if is_module(resolver, found.symbol) else []
    if _WRAPPERS.search(row.callee) and row.inner:
        inner = callee(resolver, symbol, holder, row.inner)
        if inner is not None and inner.symbol is not None and is_module(resolver, inner.symbol):
            return [Submodule(row.attribute, row, holder, inner.symbol, inner.name, row.callee, row.condition)]
    if _AUTO.search(row.callee):  # which class this builds is a matter of the configuration
        return [Submodule(row.attribute, row, holder, None, "", f"{row.callee}({row.arguments})", row.condition)]
    if _is_called(holder, row.attribute):  # a function or a parameter made it; what it made is called as a module is
        return [Submodule(row.attribute, row, holder, None, "", f"{row.callee}({row.arguments})", row.condition)]
    return []


def _is_called(holder: ClassSymbol, attribute: str) -> bool:
    """Whether the class calls `self.attribute`."""
    if "." in attribute:
        return False
    lines = holder.unit.tree.source(holder.file).split(b"\n")[holder.line - 1 : holder.end_line]
    return re.search(rb"\bself\.%s\(" % attribute.encode(), b"\n".join(lines)) is not None


def _made(holder: ClassSymbol, row: AttributeRow, made: ClassSymbol) -> Submodule:
    return Submodule(row.attribute, row, holder, made, made.qualified_name, "", row.condition)


def callee(resolver: Resolver, symbol: ClassSymbol, holder: ClassSymbol, text: str) -> Found | None:
    """What a called name means inside a method of `holder`, for an instance of `symbol`."""
    if text.startswith("self."):
        head, *rest = text[5:].split(".")
        member = resolver.class_member(symbol, head)
        found = member[1] if member is not None else None
        for part in rest:
            found = resolver.member(found, part) if found is not None else None
        return found
    return resolver.dotted(holder.unit, text) if re.match(r"[A-Za-z_][\w.]*$", text) else None


def _dispatch(resolver: Resolver, symbol: ClassSymbol, holder: ClassSymbol, row: AttributeRow) -> list[Submodule]:
    """`TABLE[key]` or `TABLE[key](...)`: the classes of the table where it is a literal of module classes, each under
    the condition that the key is its own; where the configuration's default picks one, that one is named first."""
    expression = f"{row.callee}[{row.arguments}]"
    table = callee(resolver, symbol, holder, row.callee)
    if table is None or table.unit is None or not isinstance(table.row, AssignRow):
        return []
    entries = table_entries(resolver, table)
    members: list[tuple[str, ClassSymbol]] = []
    for key, text, unit_found in entries:
        stem = re.match(r"\(?\s*([A-Za-z_][\w.]*)", text)
        target = resolver.dotted(unit_found.unit, stem[1]) if stem and unit_found.unit is not None else None
        if target is not None and target.symbol is not None and is_module(resolver, target.symbol):
            members.append((key, target.symbol))
    if not members:
        return []
    fixed = row.arguments.strip("\"'")
    chosen = [found for key, found in members if key == fixed and row.arguments[:1] in "\"'"]
    if chosen:
        return [_made(holder, row, chosen[0])]
    if len({found.qualified_name for _, found in members}) > 8:
        return [Submodule(row.attribute, row, holder, None, "", expression, row.condition)]
    return [
        Submodule(
            row.attribute, row, holder, found, found.qualified_name, expression,
            " and ".join(part for part in (row.condition, f"{row.arguments} == {key!r}") if part),
        )
        for key, found in members
    ]  # fmt: skip


def table_entries(resolver: Resolver, table: Found, depth: int = 0) -> list[tuple[str, str, Found]]:
    """(key, value text, the module that holds the text) of a dict literal, followed through `Call(OTHER_TABLE)`."""
    row, unit = table.row, table.unit
    if not isinstance(row, AssignRow) or unit is None or depth > 4:
        return []
    if row.entries:
        return [(key, value, table) for key, value in row.entries]
    inner = re.match(r"[\w.]+\(([A-Za-z_][\w.]*)\)$", row.value)
    if inner:
        found = resolver.dotted(unit, inner[1])
        if found is not None:
            return table_entries(resolver, found, depth + 1)
    return []


def is_module(resolver: Resolver, symbol: ClassSymbol) -> bool:
    """Whether the class is a torch.nn.Module, as far as source tells."""
    return any(
        (base if isinstance(base, str) else base.qualified_name) in {MODULE, "torch.nn.Module"}
        for base in resolver.mro(symbol)
    )


def own_function(symbol: ClassSymbol, name: str) -> FunctionRow | None:
    """The `def name` in the class's own body."""
    row = symbol.members.get(name)
    return row if isinstance(row, FunctionRow) else None
