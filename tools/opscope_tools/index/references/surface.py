"""What a file shows to the outside: definitions, imports, decorators, environment variables and command-line flags; and
which module imports which.

The parts that function bodies hold are read on demand, from an excerpt around the words that can mean them
(occurrences.py); the import graph comes from the rows alone, so it holds imports at module and class level.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from opscope_tools.index.references.local_scopes import Scopes, enclosing, path_of
from opscope_tools.index.references.occurrences import Excerpt, occurrences
from opscope_tools.index.references.receivers import Lineage, Receivers
from opscope_tools.source.python.imports import absolute, spelt
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.parse import Node, line_of, named, text_of
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import ClassRow, FunctionRow, ImportRow, Row

_ENVIRONMENT_WORDS = (b"environ", b"getenv", b"environb")
_FLAG_WORDS = (b"add_argument", b"option", b"argument", b"Option", b"Argument")
#: a string in the form of an environment variable, as an argument
_LITERAL = re.compile(rb"[(,=]\s*[rb]?[\"'][A-Z][A-Z0-9_]{2,}[\"']")
_FLAG_MAKERS = re.compile(r"(click|typer|rich_click|asyncclick)(\.\w+)*\.(option|argument|Option|Argument)$")
_TEXT_LIMIT = 200


@dataclass(frozen=True)
class Definition:
    """A class or function, `path` inside the module."""

    kind: Literal["class", "function"]
    path: str
    line: int
    end_line: int
    decorators: tuple[str, ...]


@dataclass(frozen=True)
class Import:
    """`from module import member as name`, the module made absolute; `file` where the tree holds it, else empty.

    `within` is the function that holds the import; empty at module level.
    """

    module: str
    member: str
    name: str
    line: int
    file: str
    type_checking: bool = False
    within: str = ""


@dataclass(frozen=True)
class EnvironmentRead:
    """A variable of the environment that is read (or set): `how` is the text of what reads it."""

    name: str
    default: str
    line: int
    how: str
    within: str
    written: bool = False


@dataclass(frozen=True)
class Flag:
    """A command-line flag or argument as `add_argument`, `click.option`, `typer.Option` declare it."""

    names: tuple[str, ...]
    default: str
    help: str
    line: int
    how: str
    within: str


@dataclass(frozen=True)
class FileSurface:
    """What one file shows."""

    file: str
    module: str
    definitions: tuple[Definition, ...]
    imports: tuple[Import, ...]
    environment: tuple[EnvironmentRead, ...]
    flags: tuple[Flag, ...]


def surface(resolver: Resolver, tree: SourceTree, file: str) -> FileSurface:
    """The surface of `file`; raises `SourceError` where it cannot be read."""
    reader = _Reader(resolver, tree.unit(file))
    return FileSurface(
        file=file,
        module=reader.unit.name,
        definitions=tuple(_definitions(reader.unit.rows.rows, "")),
        imports=tuple(sorted((*_imports(reader.unit), *reader.local_imports()), key=lambda found: found.line)),
        environment=tuple(reader.environment()),
        flags=tuple(reader.flags()),
    )


def import_graph(tree: SourceTree) -> dict[str, tuple[Import, ...]]:
    """file -> what it imports, for every Python file of the tree."""
    return {file: tuple(_imports(tree.unit(file))) for file in sorted(tree.files())}


def _definitions(rows: tuple[Row, ...], prefix: str) -> Iterator[Definition]:
    for row in rows:
        if isinstance(row, ClassRow):
            yield Definition("class", prefix + row.name, row.line, row.end_line, row.decorators)
            yield from _definitions(row.body, f"{prefix}{row.name}.")
        elif isinstance(row, FunctionRow):
            yield Definition("function", prefix + row.name, row.line, row.end_line, row.decorators)
            yield from _definitions(row.classes, f"{prefix}{row.name}.<locals>.")


def _imports(unit: Unit) -> Iterator[Import]:
    pending = list(unit.rows.rows)
    while pending:
        row = pending.pop(0)
        if isinstance(row, ClassRow):
            pending.extend(row.body)
        elif isinstance(row, ImportRow):
            module = absolute(unit.package, row.module)
            yield Import(
                module, row.member, row.name, row.line, _file(unit.tree, module, row.member), row.guard.type_checking
            )


def _file(tree: SourceTree, module: str, member: str) -> str:
    """The file that the import reads: that of the submodule where `member` is one."""
    inner = tree.locate(f"{module}.{member}") if member not in {"", "*"} else None
    return inner or tree.locate(module) or ""


class _Reader:
    """What the bodies of one file hold."""

    def __init__(self, resolver: Resolver, unit: Unit) -> None:
        self.resolver, self.unit = resolver, unit
        self.source = unit.tree.source(unit.file)

    def _calls(self, offsets: list[int]) -> tuple[Excerpt, Receivers]:
        excerpt = Excerpt(self.unit, self.source, offsets)
        return excerpt, Receivers(Lineage(self.resolver), excerpt, Scopes(excerpt))

    def local_imports(self) -> Iterator[Import]:
        """Imports inside functions."""
        excerpt = Excerpt(self.unit, self.source, occurrences(self.source, b"import"))
        for line, column in excerpt.places:
            if not column:
                continue
            statement = _around(excerpt.node(line, column, 6), {"import_statement", "import_from_statement"})
            if statement is None or all(node.type == "class_definition" for node in enclosing(statement)):
                continue
            within = path_of(statement)
            for one in spelt(text_of(statement), self.unit.package):
                file = _file(self.unit.tree, one.module, one.member)
                yield Import(one.module, one.member, one.name, line, file, within=within)

    # the environment

    def environment(self) -> Iterator[EnvironmentRead]:
        """Variables read by `os.environ`, `os.getenv`, or a function of the tree that hands its argument to them."""
        offsets = _environment_hits(self.unit, self.source)
        helpers = [match.start() for match in _LITERAL.finditer(self.source)]
        excerpt, receivers = self._calls([*offsets, *helpers])
        found: dict[tuple[int, str], EnvironmentRead] = {}
        for read, key in _environment_reads(excerpt, receivers):
            if key.type == "string":
                found[read.line, read.name] = read
        for line, column in excerpt.places:
            call = _around(excerpt.node(line, column, 1), {"call"})
            read_by_helper = self._helper_read(call, receivers) if call is not None else None
            if read_by_helper is not None:
                found.setdefault((read_by_helper.line, read_by_helper.name), read_by_helper)
        yield from sorted(found.values(), key=lambda read: (read.line, read.name))

    def _helper_read(self, call: Node, receivers: Receivers) -> EnvironmentRead | None:
        function = call.child_by_field_name("function")
        found = receivers.meaning(function) if function is not None else None
        if function is None or found is None or not isinstance(found.row, FunctionRow) or found.unit is None:
            return None
        name = passes_on(self.resolver, found.unit, found.row)
        literal = _argument(call, found.row, name) if name else None
        if literal is None or literal.type != "string":
            return None
        others = [one for one in _arguments(call) if one.id != literal.id]
        default = text_of(others[0])[:_TEXT_LIMIT] if others else ""
        return EnvironmentRead(_literal(literal), default, line_of(call), text_of(function), path_of(call))

    # the command line

    def flags(self) -> Iterator[Flag]:
        """Flags and arguments that parsers of argparse, click and typer declare."""
        offsets = [at for word in _FLAG_WORDS for at in occurrences(self.source, word)]
        excerpt, receivers = self._calls(offsets)
        for line, column in excerpt.places:
            node = excerpt.node(line, column, 1)
            call = _around(node, {"call"})
            function = call.child_by_field_name("function") if call is not None else None
            if call is None or function is None or node is None or not _last_is(function, node):
                continue
            how = text_of(function)
            if not how.endswith(".add_argument"):
                found = receivers.meaning(function)
                if found is None or not _FLAG_MAKERS.match(found.name):
                    continue
            yield self._flag(call, how)

    def _flag(self, call: Node, how: str) -> Flag:
        names = [_literal(argument) for argument in _arguments(call) if argument.type == "string"]
        keywords = {
            text_of(child.child_by_field_name("name")): child.child_by_field_name("value")
            for child in named(call.child_by_field_name("arguments") or call)
            if child.type == "keyword_argument"
        }
        first = [argument for argument in _arguments(call) if argument.type != "string"][:1]
        typer = how.endswith(("Option", "Argument")) and first
        default = text_of(keywords.get("default")) or (text_of(first[0]) if typer else "")
        said = keywords.get("help")
        shown = _literal(said) if said is not None and said.type == "string" else text_of(said)
        owner = _around(call, {"typed_default_parameter", "default_parameter"}) if typer and not names else None
        if owner is not None:  # typer names the flag after the parameter
            names = [text_of(owner.child_by_field_name("name"))]
        return Flag(
            tuple(names),
            default[:_TEXT_LIMIT],
            " ".join(shown.split())[:_TEXT_LIMIT],
            line_of(call),
            how,
            path_of(call),
        )


def passes_on(resolver: Resolver, unit: Unit, row: FunctionRow) -> str:
    """The parameter that a function takes as the name of an environment variable; empty where it takes none."""
    source = unit.tree.source(unit.file)
    offsets = _environment_hits(unit, source, *_span(source, row.line, row.end_line))
    if not offsets:
        return ""
    excerpt = Excerpt(unit, source, offsets)
    receivers = Receivers(Lineage(resolver), excerpt, Scopes(excerpt))
    names = [parameter.name for parameter in row.parameters]
    keys = [text_of(key) for _, key in _environment_reads(excerpt, receivers) if key.type == "identifier"]
    return next((key for key in keys if key in names), "")


def _environment_hits(unit: Unit, source: bytes, start: int = 0, end: int | None = None) -> list[int]:
    """Where the words stand that can mean the environment in this file."""
    words = [*_ENVIRONMENT_WORDS, *(_other_names(unit))]
    return [at for word in words for at in occurrences(source, word, start, end)]


def _other_names(unit: Unit) -> list[bytes]:
    """Names that `from os import environ as name` gives the environment."""
    rows = [row for row in unit.rows.rows if isinstance(row, ImportRow) and row.module == "os" and row.member]
    return [row.name.encode() for row in rows if row.name != row.member and row.member.encode() in _ENVIRONMENT_WORDS]


def _environment_reads(excerpt: Excerpt, receivers: Receivers) -> Iterator[tuple[EnvironmentRead, Node]]:
    """Reads of the environment with the node of the key, which may be any expression."""
    for line, column in excerpt.places:
        node = excerpt.node(line, column, 1)
        if node is None or node.type != "identifier":
            continue
        parent = node.parent
        whole = parent if parent is not None and parent.type == "attribute" and _last_is(parent, node) else node
        found = receivers.meaning(whole)
        if found is None or found.name not in {"os.environ", "os.getenv", "os.environb"}:
            continue
        read = _read(whole, found.name)
        if read is not None:
            yield read


def _read(whole: Node, name: str) -> tuple[EnvironmentRead, Node] | None:
    parent = whole.parent
    if parent is None:
        return None
    how, key, default, written = text_of(whole), None, "", False
    if parent.type == "subscript" and whole.id == _id(parent, "value"):
        key = parent.child_by_field_name("subscript")
        around = parent.parent
        written = around is not None and (_id(around, "left") == parent.id or around.type == "delete_statement")
    elif parent.type == "comparison_operator" and any(child.type in {"in", "not in"} for child in parent.children):
        key = parent.named_children[0]
    else:
        call = parent if name == "os.getenv" else parent.parent
        if call is None or call.type != "call":
            return None
        if name != "os.getenv":
            method = text_of(parent.child_by_field_name("attribute"))
            if parent.type != "attribute" or method not in {"get", "setdefault", "pop"}:
                return None
            how, written = f"{how}.{method}", method != "get"
        arguments = _arguments(call)
        key = arguments[0] if arguments else None
        default = text_of(arguments[1]) if len(arguments) > 1 else ""
    if key is None:
        return None
    shown = _literal(key) if key.type == "string" else text_of(key)
    return EnvironmentRead(shown, default[:_TEXT_LIMIT], line_of(key), how, path_of(whole), written), key


def _arguments(call: Node) -> list[Node]:
    """Positional arguments."""
    listed = call.child_by_field_name("arguments")
    return [child for child in named(listed) if child.type != "keyword_argument"] if listed is not None else []


def _argument(call: Node, row: FunctionRow, name: str) -> Node | None:
    """What the call passes for a parameter of the function."""
    for child in named(call.child_by_field_name("arguments") or call):
        if child.type == "keyword_argument" and text_of(child.child_by_field_name("name")) == name:
            return child.child_by_field_name("value")
    position = [parameter.name for parameter in row.parameters].index(name)
    arguments = _arguments(call)
    return arguments[position] if position < len(arguments) else None


def _literal(node: Node) -> str:
    """The content of a string, without its quotes."""
    return "".join(text_of(child) for child in node.named_children if child.type == "string_content")


def _last_is(expression: Node, name: Node) -> bool:
    """Whether `name` is the last name of a dotted expression."""
    if expression.type == "attribute":
        return _id(expression, "attribute") == name.id
    return expression.id == name.id


def _id(node: Node, field: str) -> int:
    held = node.child_by_field_name(field)
    return held.id if held is not None else -1


def _around(node: Node | None, kinds: set[str]) -> Node | None:
    """The innermost node of the kinds that holds `node`, inside its statement."""
    while node is not None and node.type not in kinds:
        node = node.parent if node.type not in {"block", "module"} else None
    return node


def _span(source: bytes, first: int, last: int) -> tuple[int, int]:
    """Byte offsets of a range of lines, 1-based, both included."""
    start = end = 0
    for line in range(1, last + 1):
        if line == first:
            start = end
        at = source.find(b"\n", end)
        end = len(source) if at < 0 else at + 1
    return start, end
