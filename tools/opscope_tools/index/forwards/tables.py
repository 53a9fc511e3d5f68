"""Tables that functions and classes are picked from at run time, read statically: dict literals, copies of them, objects
of mapping classes with the dict that their `__getitem__` reads, and what is registered or assigned elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow

_READ = re.compile(r"return self\.(\w+)\[")
_FORWARDED = re.compile(r"return (?:super\(\)|self)(?:\.get\(|\[)")
_CALLED = re.compile(r"return (?!self\b|super\b)\w+\(")
#: begins with a literal, which is searched many times faster
_REGISTER = re.compile(r"\.register\(\s*([\"']\w+[\"'])\s*,\s*([A-Za-z_][\w.]*)\s*\)")
_STEM = re.compile(r"\(?\s*([A-Za-z_][\w.]*)")
_HIGHER = re.compile(r"([A-Za-z_][\w.]*)\((.*)\)$")
_KEYWORD = re.compile(r"(?<!\w)(\w++)=([A-Za-z_][\w.]*+)\s*+(?:,|$)")


def entries_of(resolver: Resolver, table: Found) -> list[tuple[str, Found]]:
    """(key, function or class) of a table, in order of registration; empty where it is none, or none that source
    tells. An entry that is not in source goes by its import name."""
    if table.kind != "value" or table.unit is None or not isinstance(table.row, AssignRow):
        return []
    pairs = [(key, text, found.unit) for key, text, found in _entries(resolver, table)]
    made = None if pairs else _class_of(resolver, table)
    if made is not None:
        pairs = [(key, text, unit) for row, unit in _mappings(resolver, made) for key, text in row.entries]
        pairs += list(_registered(resolver, made, table))
    pairs += list(_assigned(table))
    found: dict[str, Found] = {}
    for key, text, unit in pairs:
        stem = _STEM.match(text)
        entry = resolver.dotted(unit, stem[1]) if stem is not None and unit is not None else None
        if entry is not None and entry.kind in {"function", "class", "external", "value"}:
            found[key.strip("\"'")] = entry
    return list(found.items())


def _entries(resolver: Resolver, table: Found, depth: int = 0) -> list[tuple[str, str, Found]]:
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
            return _entries(resolver, found, depth + 1)
    return []


def is_lookup(resolver: Resolver, symbol: ClassSymbol, method: str) -> bool:
    """Whether a method of a mapping class hands on what `get` or `[]` gives for its argument."""
    return any(_FORWARDED.search(line) for line in _body(resolver, symbol, method))


def instantiates(resolver: Resolver, table: Found) -> bool:
    """Whether looking up in the table calls what it holds: the `__getitem__` of its class returns a call."""
    made = _class_of(resolver, table)
    return made is not None and any(_CALLED.search(line) for line in _body(resolver, made, "__getitem__"))


def made_from(resolver: Resolver, found: Found, depth: int = 0) -> list[tuple[str, Found]]:
    """(parameter, function) of a module-level callable that a call made from functions: `f = choose(if_true=g, if_false=h)`;
    where `g` was made so itself, what it was made from."""
    row, unit = found.row, found.unit
    called = _HIGHER.match(row.value) if isinstance(row, AssignRow) and depth < 4 else None
    maker = resolver.dotted(unit, called[1]) if called is not None and unit is not None else None
    if called is None or unit is None or maker is None or maker.kind != "function":
        return []
    chosen: list[tuple[str, Found]] = []
    for name, text in _KEYWORD.findall(called[2]):
        given = resolver.dotted(unit, text)
        if given is not None and given.kind == "function":
            chosen.append((name, given))
        elif given is not None and given.kind == "value":
            chosen += [(f"{name}, {inner}", one) for inner, one in made_from(resolver, given, depth + 1)]
    return chosen


def _class_of(resolver: Resolver, table: Found) -> ClassSymbol | None:
    row = table.row
    called = re.match(r"([A-Za-z_][\w.]*)\(", row.value) if isinstance(row, AssignRow) else None
    found = resolver.dotted(table.unit, called[1]) if called is not None and table.unit is not None else None
    return found.symbol if found is not None else None


def _mappings(resolver: Resolver, symbol: ClassSymbol) -> Iterator[tuple[AssignRow, Unit]]:
    """The dict literals of the class that its `__getitem__` reads, the one read last first: what is read first
    overrides."""
    names = [name for line in _body(resolver, symbol, "__getitem__") for name in _READ.findall(line)]
    for name in reversed(names):
        member = resolver.class_member(symbol, name)
        row = member[1].row if member is not None else None
        if isinstance(row, AssignRow) and member is not None:
            yield row, member[0].unit


def _body(resolver: Resolver, symbol: ClassSymbol, method: str) -> list[str]:
    member = resolver.class_member(symbol, method)
    row = member[1].row if member is not None else None
    unit = member[1].unit if member is not None else None
    if not isinstance(row, FunctionRow) or unit is None:
        return []
    return _source(unit).split("\n")[row.line - 1 : row.end_line]


def _source(unit: Unit) -> str:
    return unit.tree.source(unit.file).decode("utf-8", "replace")


def _registered(resolver: Resolver, made: ClassSymbol, table: Found) -> Iterator[tuple[str, str, Unit]]:
    """`Class.register("key", function)` and `TABLE.register("key", function)` anywhere in the repository."""
    if table.unit is None or resolver.class_member(made, "register") is None:
        return
    holders = {made.name, table.name.rpartition(".")[2]}
    tree = table.unit.tree
    for file in tree.files_mentioning("register"):
        source = tree.source(file)
        if not any(holder.encode() in source for holder in holders):
            continue
        unit = tree.unit(file)
        if not unit.secondary:
            text = source.decode("utf-8", "replace")
            for match in _REGISTER.finditer(text):
                if re.findall(r"\w*$", text[max(0, match.start() - 80) : match.start()])[0] in holders:
                    yield match[1], match[2], unit


def _assigned(table: Found) -> Iterator[tuple[str, str, Unit]]:
    """`TABLE["key"] = function` in the module of the table."""
    if table.unit is None:
        return
    name = table.name.rpartition(".")[2]
    pattern = re.compile(rf"^{name}\[([\"']\w+[\"'])\]\s*=\s*([A-Za-z_][\w.]*)\s*$", re.MULTILINE)
    for key, text in pattern.findall(_source(table.unit)):
        yield key, text, table.unit
