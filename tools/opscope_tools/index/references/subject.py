"""What a question about references is about: the text of a target to the one definition that it names.

A target is a class, a function, a method or field of a class (`LlamaAttention.forward`, `LlamaConfig.hidden_size`,
`llama.hidden_size`), a name that a module binds (`ACT2FN`), or `path.py:line`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from opscope_schemas.errors import AmbiguousNameError, SourceError, UnknownNameError

from opscope_tools.index.names.config_classes import declared_configs
from opscope_tools.index.names.targets import Target
from opscope_tools.index.queries import Index
from opscope_tools.index.references.receivers import Lineage
from opscope_tools.source.python.names import ClassSymbol, Found
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow, ImportRow

Kind = Literal["class", "function", "method", "field", "value"]
_AT_LINE = re.compile(r"\A(?P<path>.+\.py):(?P<line>\d+)$")


@dataclass(frozen=True, eq=False)
class Sought:
    """A definition whose references are looked for.

    `symbol` is the class itself, or the class of a method or field; `holder` the class that defines the member (an
    inherited one is looked for on objects of `symbol`); `words` are the names it goes by.
    """

    kind: Kind
    name: str
    qualified_name: str
    unit: Unit
    line: int
    words: tuple[str, ...]
    symbol: ClassSymbol | None = None
    holder: ClassSymbol | None = None

    @property
    def member(self) -> bool:
        """Whether it is reached through an object: a method or a field."""
        return self.kind in {"method", "field"}

    def is_found(self, found: Found) -> bool:
        """Whether a name that leads to `found` leads here."""
        if found.unit is None or found.unit.tree is not self.unit.tree or found.unit.file != self.unit.file:
            return False
        if self.kind == "class":
            return found.symbol is not None and self.symbol is not None and found.symbol.path == self.symbol.path
        return found.kind in {"function", "value"} and found.name == self.qualified_name


def sought(index: Index, text: str, repo: str | None = None) -> Sought:
    """The definition that `text` names; raises `UnknownNameError`, `AmbiguousNameError`, `SourceError` for a module."""
    text = text.strip()
    at_line = _AT_LINE.match(text)
    if at_line:
        return _at_line(index, text, repo)
    found = _whole(index, text, repo)
    if found is not None:
        return found
    owner, _, member = text.rpartition(".")
    for module in index.resolver.absolute(owner, index.names.trees(repo)) if owner else ():
        if module.kind == "module" and module.unit is not None:
            close = difflib.get_close_matches(member, list(module.unit.bindings), n=5)
            raise UnknownNameError(
                f"name of {module.name}", member, close, next_step=f"{module.unit.file} does not bind it."
            )
    if owner:
        return _member_of(index, index.target(owner, repo), member, text)
    raise UnknownNameError(
        "class, function or module-level name", text, index.nearest(text, repo) if text else (),
        next_step="Give a class, a function, CLASS.method, CONFIG.field or path.py:line.",
    )  # fmt: skip


def _whole(index: Index, text: str, repo: str | None) -> Sought | None:
    """A class, model type, function or module-level name; None where `text` is none of them."""
    trees = index.names.trees(repo)
    definitions = [found for found in index.resolver.absolute(text, trees) if "." in text] or _bare(index, text, trees)
    if "." in text:  # what a class inherits is looked for on the class that was named
        definitions = [found for found in definitions if not _in_class(found)]
    modules = [found for found in definitions if found.kind == "module"]
    items = _distinct([_of_found(found) for found in definitions if found.kind != "module"])
    if not items:
        try:
            return sought_class(index.target(text, repo).symbol)
        except (UnknownNameError, SourceError):
            if modules and modules[0].unit is not None:
                raise SourceError(
                    f"{text} is a module.", next_step="Name something that it defines.",
                    location=f"{modules[0].unit.file}:1",
                ) from None  # fmt: skip
            return None
    primary = [item for item in items if not item.unit.secondary] or items
    if len(primary) > 1:
        raise AmbiguousNameError("class, function or value", text, [item.qualified_name for item in primary])
    return primary[0]


def _in_class(found: Found) -> bool:
    """Whether it is a member of a class that is no class itself."""
    if found.unit is None or found.symbol is not None or found.kind == "module":
        return False
    inside = found.name.removeprefix(f"{found.unit.name}.")
    return "." in inside


def _bare(index: Index, text: str, trees: list[SourceTree]) -> list[Found]:
    """Definitions at module level by their own name or the end of their qualified name, classes included."""
    last = text.rpartition(".")[2]
    found: list[Found] = []
    if not re.fullmatch(r"[A-Za-z_]\w*", last):
        return found
    starts = [f"\n{head}{last}".encode() for head in ("def ", "async def ", "class ", "")]
    for tree in trees:
        for file in tree.files_mentioning(last):
            source = b"\n" + tree.source(file)
            if not any(start in source for start in starts):
                continue
            unit = tree.unit(file)
            rows = [row for row in unit.bindings.get(last, ()) if not isinstance(row, ImportRow)]
            if rows and f".{unit.name}.{last}".endswith(f".{text}"):
                known = index.resolver.lookup(unit, last)
                found += [known] if known is not None and known.kind != "external" else []
    if not found and "." in text:
        for tree in trees:
            for top in tree.top_packages():
                found += index.resolver.absolute(f"{top}.{text}", [tree])
    return found


def _of_found(found: Found) -> Sought:
    if found.symbol is not None:
        return sought_class(found.symbol)
    if found.unit is None or found.row is None:
        raise SourceError(f"{found.name} is not defined in the registered source.")
    name = found.name.rpartition(".")[2]
    kind: Kind = "function" if found.kind == "function" else "value"
    # the name of a function as defined: `a = b` leads to b
    row_name = found.row.name if isinstance(found.row, FunctionRow) else name
    qualified = f"{found.unit.name}.{row_name}"
    return Sought(kind, row_name, qualified, found.unit, found.row.line, (row_name,))


def sought_class(symbol: ClassSymbol) -> Sought:
    """The class itself as what is looked for."""
    return Sought("class", symbol.name, symbol.qualified_name, symbol.unit, symbol.line, (symbol.name,), symbol)


def _member_of(index: Index, target: Target, member: str, text: str) -> Sought:
    """A method or field of the class; of a model type, a field of its config class if that has it."""
    lineage = Lineage(index.resolver)
    symbols = [target.symbol]
    if target.model_type:
        symbols = [*config_classes(index, target.symbol), target.symbol]
    for symbol in symbols:
        name = lineage.mapped(symbol).get(member, member)
        if lineage.holder(symbol, name) is not None:
            return _member(index, symbol, name)
    names = {name for held in lineage.mro(symbols[0]) for name in _own_names(lineage, held)}
    close = sorted(name for name in names if member[:4] and name.startswith(member[:4]))[:5]
    raise UnknownNameError(
        f"method or field of {symbols[0].qualified_name}", member, close, next_step=f"{text} is not defined in source."
    )


def _member(index: Index, symbol: ClassSymbol, name: str) -> Sought:
    lineage = Lineage(index.resolver)
    holder = lineage.holder(symbol, name) or symbol
    row = holder.members.get(name)
    set_at = [] if row is not None else [a.line for a in lineage.set_by(holder, name)]
    line = row.line if row is not None else next(iter(set_at), holder.line)
    # a property is read like a field
    plain = isinstance(row, FunctionRow) and not any("property" in decorator for decorator in row.decorators)
    names = [name, *(alias for alias, held in lineage.mapped(symbol).items() if held == name)]
    return Sought(
        "method" if plain else "field", name, f"{symbol.qualified_name}.{name}", holder.unit, line,
        tuple(dict.fromkeys(names)), symbol, holder,
    )  # fmt: skip


def config_classes(index: Index, symbol: ClassSymbol) -> list[ClassSymbol]:
    """The config classes that a model class declares."""
    return declared_configs(index.resolver, symbol)


def _own_names(lineage: Lineage, symbol: ClassSymbol) -> list[str]:
    return [*symbol.members, *(row.attribute for row in lineage.set_in(symbol, "self.") if "." not in row.attribute)]


def _at_line(index: Index, text: str, repo: str | None) -> Sought:
    """The method, class or function at a line."""
    match = _AT_LINE.match(text)
    assert match is not None
    for tree in index.names.trees(repo):
        if not tree.registered(match["path"]):
            continue
        unit, line = tree.unit(match["path"]), int(match["line"])
        for row in unit.rows.rows:
            if isinstance(row, FunctionRow) and row.line <= line <= row.end_line:
                return Sought("function", row.name, f"{unit.name}.{row.name}", unit, row.line, (row.name,))
            if isinstance(row, AssignRow) and row.line == line:
                return Sought("value", row.name, f"{unit.name}.{row.name}", unit, row.line, (row.name,))
    target = index.target(text, repo)
    if target.method:
        return _member(index, target.symbol, target.method)
    at = [row for row in target.symbol.row.body if isinstance(row, AssignRow) and row.line == int(match["line"])]
    return _member(index, target.symbol, at[0].name) if at else sought_class(target.symbol)


def _distinct(items: list[Sought]) -> list[Sought]:
    found: dict[tuple[str, str], Sought] = {}
    for item in items:
        found.setdefault((item.unit.tree.repository.name, item.qualified_name), item)
    return list(found.values())


__all__ = ["Sought", "config_classes", "sought", "sought_class"]
