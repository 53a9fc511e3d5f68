"""From a syntax tree to the rows of rows.py: a walk over statements, not over expressions.

`extract` reads a file without its function bodies (skeleton.py), which keeps a cold index below the cost of a whole
parse; `syntax_errors` parses all of it, when a question asks for them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import TypeGuard

from msgspec.structs import replace

from opscope_tools.source.python.imports import exports, further_sides, handling, matched, sides, tried
from opscope_tools.source.python.parse import Node, dotted, line_of, named, parse, text_of
from opscope_tools.source.python.rows import (
    AssignRow,
    ClassRow,
    FileRows,
    FunctionRow,
    Guard,
    ImportRow,
    Row,
)  # fmt: skip
from opscope_tools.source.python.skeleton import skeleton
from opscope_tools.source.python.trees import tree_of

#: characters of an assigned value that a row keeps
VALUE_LIMIT = 400
_INNER_CLASS = re.compile(rb"\n[ \t]+class[ \t\\]")
_LAZY_FOLDER = re.compile(rb"define_import_structure\(\s*([^,\n]*)")


def extract(source: bytes) -> FileRows:
    """What the file defines and imports."""
    root = parse(skeleton(source))
    if root.has_error:
        root = parse(source)
    rows = tuple(_statements(root, Guard()))
    lazy: tuple[str, ...] | None = None
    if b"_LazyModule(" in source and b"sys.modules[" in source:
        # `define_import_structure(_file)` serves the package's own folder, `Path(...).parent / "models"` that folder
        folders = [re.findall(rb"/\s*[\"'](\w+)[\"']", match) for match in _LAZY_FOLDER.findall(source)]
        lazy = tuple("/".join(part.decode() for part in parts) for parts in folders)
    try:
        source.decode("utf-8")
        utf8 = True
    except UnicodeDecodeError:
        utf8 = False
    return FileRows(rows, _exports(root), lazy, utf8)


def syntax_errors(source: bytes) -> tuple[int, ...]:
    """The lines that do not parse, ten at most."""
    root = parse(source)
    return tuple(_errors(root)) if root.has_error and not _python_reads(source) else ()


def _python_reads(source: bytes) -> bool:
    """Whether Python itself parses the file: tree-sitter-python cannot read `return a, *([None] * 4)`, for one.

    Asked only where tree-sitter reports an error. Bytes that are no UTF-8 are replaced; they are noted by themselves.
    """
    return tree_of(source.decode("utf-8-sig", "replace")) is not None


def _errors(node: Node) -> Iterator[int]:
    """Lines where parsing failed, outermost first, at most ten."""
    pending, seen = [node], 0
    while pending and seen < 10:
        here = pending.pop()
        if here.type == "ERROR" or here.is_missing:
            seen += 1
            yield line_of(here)
        elif here.has_error:
            pending.extend(reversed(here.children))


def body_rows(source: bytes, function: FunctionRow) -> tuple[Row, ...]:
    """What the statements of a function's body bind, by their lines in the file."""
    text = b"\n".join(source.split(b"\n")[function.line - 1 : function.end_line])
    root = parse(textwrap.dedent(text.decode("utf-8", "replace")).encode())
    for node in root.named_children:
        body = node.child_by_field_name("body") if node.type == "function_definition" else None
        if body is not None:
            return tuple(replace(row, line=row.line + function.line - 1) for row in _statements(body, Guard()))
    return ()


def _statements(block: Node, guard: Guard) -> Iterator[Row]:
    for node in block.named_children:
        kind = node.type
        if kind in {"class_definition", "function_definition"}:
            yield _definition(node, guard, (), line_of(node))
        elif kind == "decorated_definition":
            inner = node.child_by_field_name("definition")
            if inner is not None:
                decorators = tuple(
                    text_of(child.named_children[0])
                    for child in node.named_children
                    if child.type == "decorator" and child.named_children
                )
                yield _definition(inner, guard, decorators, line_of(node))
        elif kind == "import_statement":
            yield from _import(node, guard)
        elif kind == "import_from_statement":
            yield from _import_from(node, guard)
        elif kind == "expression_statement":
            yield from _assignments(node, guard)
        else:
            yield from _compound(node, kind, guard)


def _compound(node: Node, kind: str, guard: Guard) -> Iterator[Row]:
    if kind == "if_statement":
        yield from _if(node, guard)
    elif kind == "try_statement":
        yield from _try(node, guard)
    elif kind in {"with_statement", "for_statement", "while_statement"}:
        body = node.child_by_field_name("body")
        if body is not None:
            yield from _statements(body, guard)
    elif kind == "match_statement":
        yield from _match(node, guard)
    elif kind == "delete_statement":
        for target in named(node):
            for part in named(target) if target.type == "expression_list" else [target]:
                if part.type == "identifier":
                    yield AssignRow(text_of(part), "", line_of(node), guard)
    elif kind == "ERROR":
        yield from _statements(node, guard)


def _if(node: Node, guard: Guard) -> Iterator[Row]:
    body = node.child_by_field_name("consequence")
    first, other = sides(guard, text_of(node.child_by_field_name("condition")))
    if body is not None:
        yield from _statements(body, first)
    for clause in named(node):
        if clause.type in {"elif_clause", "else_clause"}:
            inner = clause.child_by_field_name("consequence") or clause.child_by_field_name("body")
            case = other
            if clause.type == "elif_clause":
                case, other = further_sides(other, text_of(clause.child_by_field_name("condition")))
            if inner is not None:
                yield from _statements(inner, case)


def _try(node: Node, guard: Guard) -> Iterator[Row]:
    line = line_of(node)
    inside = tried(guard, line)
    for clause in named(node):
        if clause.type == "block":
            yield from _statements(clause, inside)
        elif clause.type in {"except_clause", "except_group_clause"}:
            parts = named(clause)
            condition = " ".join(["except", *(text_of(part) for part in parts[:-1])])
            if parts:
                yield from _statements(parts[-1], handling(guard, line, condition))
        elif clause.type in {"else_clause", "finally_clause"}:
            for inner in named(clause):
                yield from _statements(inner, inside if clause.type == "else_clause" else guard)


def _match(node: Node, guard: Guard) -> Iterator[Row]:
    subject = text_of(node.child_by_field_name("subject"))
    body = node.child_by_field_name("body")
    for case in named(body) if body is not None else []:
        pattern = ", ".join(text_of(part) for part in named(case) if part.type == "case_pattern")
        inner = case.child_by_field_name("consequence")
        if inner is not None:
            yield from _statements(inner, matched(guard, subject, pattern))


def _import(node: Node, guard: Guard) -> Iterator[Row]:
    for child in named(node):
        if child.type == "dotted_name":
            full = text_of(child)
            top = full.split(".", 1)[0]
            yield ImportRow(top, top, "", line_of(node), guard)
        elif child.type == "aliased_import":
            full = text_of(child.child_by_field_name("name"))
            yield ImportRow(text_of(child.child_by_field_name("alias")), full, "", line_of(node), guard)


def _import_from(node: Node, guard: Guard) -> Iterator[Row]:
    module = text_of(node.child_by_field_name("module_name")).replace(" ", "")
    for child in node.children_by_field_name("name"):
        if child.type == "aliased_import":
            member = text_of(child.child_by_field_name("name"))
            yield ImportRow(text_of(child.child_by_field_name("alias")), module, member, line_of(node), guard)
        else:
            yield ImportRow(text_of(child), module, text_of(child), line_of(node), guard)
    if any(child.type == "wildcard_import" for child in node.named_children):
        yield ImportRow("*", module, "*", line_of(node), guard)


def _assignments(statement: Node, guard: Guard) -> Iterator[Row]:
    for node in named(statement):
        if node.type == "call":
            yield from _structure_call(node, guard)
        if node.type == "augmented_assignment":
            yield from _structure_entry(node.child_by_field_name("left"), node.child_by_field_name("right"), guard)
        if node.type != "assignment":
            continue
        value = node.child_by_field_name("right")
        targets = [node.child_by_field_name("left")]
        while value is not None and value.type == "assignment":  # a = b = value
            targets.append(value.child_by_field_name("left"))
            value = value.child_by_field_name("right")
        annotation = text_of(node.child_by_field_name("type"))
        for target in targets:
            if target is None:
                continue
            if target.type == "identifier":
                shown = text_of(value)[:VALUE_LIMIT]
                yield AssignRow(text_of(target), shown, line_of(node), guard, annotation, _entries(value))
            elif target.type == "pattern_list" and value is not None:
                yield from _unpacked(named(target), value, guard)
            else:
                yield from _structure_entry(target, value, guard)


def _unpacked(targets: list[Node], value: Node, guard: Guard) -> Iterator[Row]:
    """`a, b = value`: each name is bound to its item."""
    items = named(value) if value.type in {"expression_list", "tuple"} else []
    for number, target in enumerate(targets):
        if target.type == "identifier":
            matching = len(items) == len(targets)
            shown = text_of(items[number]) if matching else f"({text_of(value)})[{number}]"
            entries = _entries(items[number]) if matching else ()
            yield AssignRow(text_of(target), shown[:VALUE_LIMIT], line_of(target), guard, "", entries)


def _structure_entry(target: Node | None, value: Node | None, guard: Guard) -> Iterator[Row]:
    """`_import_structure["submodule"] = [names]`, or `+=`, fills the same table as its literal does."""
    if target is None or target.type != "subscript":
        return
    if dotted(target.child_by_field_name("value")) == "_import_structure":
        key = text_of(target.child_by_field_name("subscript")).strip("\"'")
        yield AssignRow("_import_structure", "", line_of(target), guard, "", ((key, text_of(value)),))


def _structure_call(node: Node, guard: Guard) -> Iterator[Row]:
    """`_import_structure["submodule"].extend([names])`, `.append(name)`; `_import_structure.update({...})`."""
    function = node.child_by_field_name("function")
    if function is None or function.type != "attribute" or not (function.text or b"").startswith(b"_import_structure"):
        return
    arguments = node.child_by_field_name("arguments")
    if text_of(function.child_by_field_name("attribute")) in {"extend", "append"}:
        yield from _structure_entry(function.child_by_field_name("object"), arguments, guard)
    elif arguments is not None and dotted(function) == "_import_structure.update":
        entries = tuple(entry for argument in named(arguments) for entry in _entries(argument))
        yield AssignRow("_import_structure", "", line_of(node), guard, "", entries)


def _entries(value: Node | None) -> tuple[tuple[str, str], ...]:
    """Pairs of `{...}`, `Call({...})`, `Call([(k, v), ...])` and of either on the sides of `|`."""
    if value is None:
        return ()
    if value.type == "call":
        arguments = value.child_by_field_name("arguments")
        inner = named(arguments) if arguments is not None else []
        return _entries(inner[0]) if len(inner) == 1 else ()
    found: list[tuple[str, str]] = []
    if value.type == "dictionary":
        for pair in named(value):
            if pair.type == "pair":
                found.append(_pair(pair.child_by_field_name("key"), pair.child_by_field_name("value")))
            elif pair.type == "dictionary_splat":
                found.append(("**", text_of(pair).lstrip("*")))
    elif value.type == "list":
        for item in named(value):
            parts = named(item)
            if item.type != "tuple" or len(parts) != 2:
                return ()
            found.append(_pair(parts[0], parts[1]))
    return tuple(found)


def _pair(key: Node | None, value: Node | None) -> tuple[str, str]:
    name = text_of(key)
    return (name[1:-1] if key is not None and key.type == "string" else name, text_of(value))


def _exports(root: Node) -> tuple[str, ...] | None:
    if b"__all__" not in (root.text or b""):
        return None
    texts = [text for node in _expression_statements(root) if b"__all__" in (text := node.text or b"")]
    trees = [tree_of(text.decode("utf-8", "replace")) for text in texts]
    return exports(statement for tree in trees if tree is not None for statement in tree.body)


def _expression_statements(block: Node) -> Iterator[Node]:
    """Those of the module's own level, under whatever condition."""
    for node in block.named_children:
        if node.type == "expression_statement":
            yield node
        elif node.type.endswith(("_statement", "_clause")) or node.type == "block":
            yield from _expression_statements(node)


def _definition(node: Node, guard: Guard, decorators: tuple[str, ...], first_line: int) -> Row:
    name = text_of(node.child_by_field_name("name"))
    body = node.child_by_field_name("body")
    end_line = node.end_point[0] + 1
    if node.type == "function_definition":
        inner: tuple[ClassRow | FunctionRow, ...] = ()
        if body is not None and _INNER_CLASS.search(node.text or b""):
            inner = tuple(row for row in _statements(body, guard) if _holds_class(row))
        return FunctionRow(
            name=name,
            line=line_of(node),
            end_line=end_line,
            decorators=decorators,
            parameter_text=_raw(node.child_by_field_name("parameters")),
            returns=text_of(node.child_by_field_name("return_type")),
            stub=_is_stub(body),
            guard=guard,
            classes=inner,
        )
    arguments = node.child_by_field_name("superclasses")
    bases = tuple(text_of(child) for child in named(arguments) if child.type != "keyword_argument") if arguments else ()
    if node.child_by_field_name("type_parameters") is not None:  # class A[T]
        bases = (*bases, "typing.Generic")
    rows = tuple(_statements(body, Guard())) if body is not None else ()
    return ClassRow(name, line_of(node), end_line, first_line, decorators, bases, rows, guard)


def _holds_class(row: Row) -> TypeGuard[ClassRow | FunctionRow]:
    return isinstance(row, ClassRow) or (isinstance(row, FunctionRow) and bool(row.classes))


def _raw(node: Node | None) -> str:
    """The node's source with its line breaks, since comments may stand in it."""
    return node.text.decode("utf-8", "replace") if node is not None and node.text else "()"


def _is_stub(body: Node | None) -> bool:
    statements = named(body) if body is not None else []
    rest = [
        s for s in statements if not (s.type == "expression_statement" and [n.type for n in named(s)] == ["string"])
    ]
    return len(rest) == 1 and rest[0].type == "raise_statement" and b"NotImplementedError" in (rest[0].text or b"")
