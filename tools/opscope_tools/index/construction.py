"""How an object comes to its attributes: `self.x = ...` in `__init__` and in the methods that `__init__` calls.

A small abstract interpreter over expressions: it follows local names, conditional expressions, loops and the module
containers (ModuleList, Sequential, ModuleDict), and gives up by recording the expression as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from opscope_tools.index.parse import Node, dotted, line_of, named, text_of
from opscope_tools.index.rows import AttributeRow
from opscope_tools.index.symbols import cut_short

_CONTAINERS = {"ModuleList", "Sequential", "ModuleDict"}
_SUPER = re.compile(r"super\(\s*+([\w.]*+)[^)]*+\)\.__init__$")
_TEXT_LIMIT = 400
#: branches of a value and parts of a container; rows of one constructor, whose lists may hold one another
_MOST, _MOST_ROWS = 2000, 20_000


@dataclass(frozen=True)
class Built:
    """A value: what was called, with the parts that a container holds."""

    how: str
    callee: str
    arguments: str = ""
    line: int = 0
    condition: str = ""
    repeat: str = ""
    inner: str = ""
    parts: tuple[tuple[str, Built], ...] = ()


@dataclass
class _Scope:
    """One method being read: its local values, and the rows found so far."""

    rows: list[AttributeRow]
    local: dict[str, list[Built]] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)


def constructions(methods: Mapping[str, Node]) -> tuple[AttributeRow, ...]:
    """The attribute rows of a class, in order of execution."""
    rows: list[AttributeRow] = []
    pending, done = ["__init__"], set()
    while pending:
        name = pending.pop(0)
        body = methods[name].child_by_field_name("body") if name in methods else None
        if body is None or name in done:
            continue
        done.add(name)
        scope = _Scope(rows)
        _block(body, scope, "", "")
        pending.extend(called for called in scope.called if called in methods)
    return tuple(rows)


def init_calls(init: Node | None) -> tuple[str, ...]:
    """Which constructors `__init__` runs: `super`, `super:Name` for `super(Name, self)`, `Name` for `Name.__init__`."""
    found: list[str] = []
    pending = [init] if init is not None else []
    while pending:
        node = pending.pop()
        if node.type == "call":
            text = text_of(node.child_by_field_name("function"))
            if text.endswith(".__init__"):
                match = _SUPER.match(text)
                if match:
                    found.append(f"super:{match[1]}" if match[1] else "super")
                elif dotted(node.child_by_field_name("function")):
                    found.append(text[: -len(".__init__")])
        pending.extend(reversed(node.named_children))
    return tuple(dict.fromkeys(found))


def _both(first: str, second: str) -> str:
    return cut_short(first, second) or (f"{first} and {second}" if first and second else first or second)


def _block(block: Node, scope: _Scope, condition: str, repeat: str) -> None:
    for node in named(block):
        kind = node.type
        if kind == "expression_statement":
            for inner in named(node):
                if inner.type == "assignment":
                    _assign(inner, scope, condition, repeat)
                elif inner.type == "call":
                    _call(inner, scope, condition, repeat)
                elif inner.type == "augmented_assignment":
                    _extend(
                        inner.child_by_field_name("left"), inner.child_by_field_name("right"), scope, condition, repeat
                    )
        elif kind == "if_statement":
            test = text_of(node.child_by_field_name("condition"))
            body = node.child_by_field_name("consequence")
            if body is not None:
                _block(body, scope, _both(condition, test), repeat)
            failed = f"not ({test})"
            for clause in named(node):
                if clause.type == "elif_clause":
                    test = text_of(clause.child_by_field_name("condition"))
                    inner_body = clause.child_by_field_name("consequence")
                    if inner_body is not None:
                        _block(inner_body, scope, _both(condition, f"{failed} and {test}"), repeat)
                    failed = f"{failed} and not ({test})"
                elif clause.type == "else_clause":
                    inner_body = clause.child_by_field_name("body")
                    if inner_body is not None:
                        _block(inner_body, scope, _both(condition, failed), repeat)
        elif kind == "for_statement":
            body = node.child_by_field_name("body")
            head = f"for {text_of(node.child_by_field_name('left'))} in {text_of(node.child_by_field_name('right'))}"
            if body is not None:
                _block(body, scope, condition, f"{repeat} {head}".strip())
        elif kind == "delete_statement":
            for target in named(node):
                if dotted(target).startswith("self.") and dotted(target).count(".") == 1:
                    attribute = dotted(target)[5:]
                    scope.rows.append(AttributeRow(attribute, "none", "", "", line_of(node), condition))
        elif kind in {"with_statement", "while_statement"}:
            body = node.child_by_field_name("body")
            if body is not None:
                _block(body, scope, condition, repeat)
        elif kind == "try_statement":
            for clause in named(node):
                if clause.type == "block":
                    _block(clause, scope, condition, repeat)
                elif clause.type in {"else_clause", "finally_clause"}:
                    for inner in named(clause):
                        _block(inner, scope, condition, repeat)
                elif clause.type == "except_clause":
                    _block(named(clause)[-1], scope, _both(condition, "except"), repeat)


def _assign(node: Node, scope: _Scope, condition: str, repeat: str) -> None:
    value = node.child_by_field_name("right")
    targets = [node.child_by_field_name("left")]
    while value is not None and value.type == "assignment":
        targets.append(value.child_by_field_name("left"))
        value = value.child_by_field_name("right")
    if value is None:
        return
    built = [replace(b, repeat=_joined(repeat, b.repeat)) for b in _value(value, scope, condition)]
    for target in targets:
        if target is None:
            continue
        name = dotted(target)
        if target.type == "identifier":
            earlier = scope.local.get(name, []) if condition else []
            scope.local[name] = [*earlier, *built]
        elif name.startswith("self.") and name.count(".") == 1:
            _record(name[5:], built, scope)
            scope.local[name] = built


def _joined(outer: str, inner: str) -> str:
    return f"{outer} {inner}".strip()


def _record(attribute: str, built: list[Built], scope: _Scope) -> None:
    for value in built:
        if len(scope.rows) > _MOST_ROWS:
            return
        scope.rows.append(
            AttributeRow(
                attribute, value.how, value.callee, value.arguments[:_TEXT_LIMIT], value.line, value.condition,
                value.repeat, value.inner,
            )
        )  # fmt: skip
        for suffix, part in value.parts:
            _record(
                f"{attribute}.{suffix}",
                [replace(part, repeat=_joined(value.repeat, part.repeat), condition=part.condition or value.condition)],
                scope,
            )


def _call(node: Node, scope: _Scope, condition: str, repeat: str) -> None:
    """Statement calls that add attributes: append, extend, add_module, register_module, setattr; else a method."""
    function = node.child_by_field_name("function")
    arguments = _arguments(node)
    name = dotted(function)
    method = name.rpartition(".")[2]
    if name == "setattr" and len(arguments) == 3 and text_of(arguments[0]) == "self":
        arguments, method, name = arguments[1:], "add_module", "self.add_module"
    if name in {"self.add_module", "self.register_module"} and len(arguments) == 2:
        key = arguments[0]
        label = _label(key)
        if label:
            values = _value(arguments[1], scope, condition)
            _record(label, [replace(v, repeat=_joined(repeat, v.repeat)) for v in values], scope)
    elif method in {"append", "extend", "add_module", "insert"} and function is not None and arguments:
        _extend(function.child_by_field_name("object"), arguments[-1], scope, condition, repeat, one=method != "extend")
    elif name.startswith("self.") and name.count(".") == 1:
        scope.called.append(name[5:])


def _label(key: Node) -> str:
    """The attribute that a string names; the replaced parts of an f-string become `*`."""
    if key.type != "string":
        return ""
    return "".join("*" if part.type == "interpolation" else text_of(part) for part in named(key)[1:-1])


def _extend(
    target: Node | None, value: Node | None, scope: _Scope, condition: str, repeat: str, *, one: bool = False
) -> None:
    """A container named `target` grows by `value` (one element, or the elements of a list)."""
    name = dotted(target)
    if not name or value is None:
        return
    parts: list[tuple[str, Built]] = []
    for built in _value(value, scope, condition):
        if one:
            parts.append(("*", replace(built, repeat=_joined(repeat, built.repeat))))
        else:
            parts.extend(("*", replace(part, repeat=_joined(repeat, part.repeat))) for _, part in built.parts)
    if name.startswith("self.") and name.count(".") == 1:
        for suffix, part in parts:
            _record(f"{name[5:]}.{suffix}", [part], scope)
    elif name in scope.local:
        scope.local[name] = [replace(known, parts=(*known.parts, *parts)) for known in scope.local[name]]


def _arguments(call: Node) -> list[Node]:
    node = call.child_by_field_name("arguments")
    if node is None:
        return []
    return [node] if node.type == "generator_expression" else named(node)


def _value(node: Node, scope: _Scope, condition: str) -> list[Built]:
    """What an expression may be, one entry per branch; where there are more than anybody builds, its text."""
    found = _branches(node, scope, condition)
    if len(found) <= _MOST and all(len(built.parts) <= _MOST for built in found):
        return found
    return [Built("other", text_of(node)[:_TEXT_LIMIT], "", line_of(node), condition)]


def _branches(node: Node, scope: _Scope, condition: str) -> list[Built]:
    kind, line = node.type, line_of(node)
    if kind == "parenthesized_expression" and named(node):
        return _value(named(node)[0], scope, condition)
    if kind == "none":
        return [Built("none", "", "", line, condition)]
    if kind == "conditional_expression":
        chosen, test, other = named(node)
        yes, no = _both(condition, text_of(test)), _both(condition, f"not ({text_of(test)})")
        return [*_value(chosen, scope, yes), *_value(other, scope, no)]
    if kind == "call":
        return _called(node, scope, condition)
    if kind == "subscript":
        table = text_of(node.child_by_field_name("value"))
        key = text_of(node.child_by_field_name("subscript"))
        return [Built("dispatch", table, key, line, condition)]
    if kind in {"list", "tuple"}:
        return [Built("list", "", "", line, condition, parts=_numbered(named(node), scope, condition))]
    if kind in {"list_comprehension", "generator_expression"}:
        return [Built("list", "", "", line, condition, parts=_comprehension(node, scope, condition))]
    if kind in {"dictionary", "dictionary_comprehension"}:
        return [Built("list", "", "", line, condition, parts=_keyed(node, scope, condition))]
    if kind == "binary_operator":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sides = [b for side in (left, right) if side is not None for b in _value(side, scope, condition)]
        parts = tuple(part for side in sides for part in side.parts)
        if parts and b"*" in {child.type.encode() for child in node.children}:  # [Block()] * depth
            parts = tuple(("*", replace(part, repeat=text_of(right))) for _, part in parts)
        if parts:
            return [Built("list", "", "", line, condition, parts=parts)]
    if kind in {"identifier", "attribute"}:
        known = scope.local.get(dotted(node))
        if known:
            return [replace(b, condition=_both(condition, b.condition)) if not b.condition else b for b in known]
    return [Built("other", text_of(node)[:_TEXT_LIMIT], "", line, condition)]


def _called(node: Node, scope: _Scope, condition: str) -> list[Built]:
    function = node.child_by_field_name("function")
    arguments = _arguments(node)
    line, text = (
        line_of(node),
        text_of(node.child_by_field_name("arguments")).removeprefix("(").removesuffix(")").strip(),
    )
    if function is not None and function.type == "subscript":
        table = text_of(function.child_by_field_name("value"))
        key = text_of(function.child_by_field_name("subscript"))
        return [Built("dispatch", table, key, line, condition, inner=text[:_TEXT_LIMIT])]
    name = dotted(function)
    if name.rpartition(".")[2] in _CONTAINERS:
        parts = _contents(name.rpartition(".")[2], arguments, scope, condition)
        return [Built("call", name, text if not parts else "", line, condition, parts=parts)]
    if name in scope.local:  # norm = A if flag else B; self.norm = norm(size)
        found = []
        for known in scope.local[name]:
            how = {"other": "call", "dispatch": "dispatch"}.get(known.how)
            if how == "call":
                found.append(Built("call", known.callee, text, line, _both(condition, known.condition)))
            elif how:
                found.append(replace(known, line=line, condition=_both(condition, known.condition), inner=text))
        return found or [Built("other", text_of(node)[:_TEXT_LIMIT], "", line, condition)]
    # weight_norm(nn.Conv1d(...)): should the callee prove a function, the module is its argument
    inner = text_of(arguments[0].child_by_field_name("function")) if arguments and arguments[0].type == "call" else ""
    return [Built("call", name or text_of(function)[:_TEXT_LIMIT], text, line, condition, inner=inner)]


def _contents(kind: str, arguments: list[Node], scope: _Scope, condition: str) -> tuple[tuple[str, Built], ...]:
    """The parts that a container is built from."""
    if kind == "Sequential":
        if len(arguments) == 1 and arguments[0].type == "call":
            inner = _arguments(arguments[0])
            if dotted(arguments[0].child_by_field_name("function")).endswith("OrderedDict") and inner:
                return _keyed(inner[0], scope, condition)
        return _numbered(arguments, scope, condition)
    if len(arguments) != 1:
        return ()
    if kind == "ModuleDict" and arguments[0].type in {"dictionary", "dictionary_comprehension"}:
        return _keyed(arguments[0], scope, condition)
    return tuple(part for built in _value(arguments[0], scope, condition) for part in built.parts)


def _numbered(nodes: list[Node], scope: _Scope, condition: str) -> tuple[tuple[str, Built], ...]:
    found: list[tuple[str, Built]] = []
    counted = True
    for number, node in enumerate(nodes):
        if node.type == "list_splat":
            counted = False
            found.extend(part for b in _value(named(node)[0], scope, condition) for part in b.parts)
        else:
            label = str(number) if counted else "*"
            found.extend((label, built) for built in _value(node, scope, condition))
    return tuple(found)


def _comprehension(node: Node, scope: _Scope, condition: str) -> tuple[tuple[str, Built], ...]:
    body, *clauses = named(node)
    repeat = " ".join(text_of(clause) for clause in clauses)
    return tuple(("*", replace(b, repeat=_joined(repeat, b.repeat))) for b in _value(body, scope, condition))


def _keyed(node: Node, scope: _Scope, condition: str) -> tuple[tuple[str, Built], ...]:
    """Parts of `{key: value}`, of a comprehension over pairs, of `[(key, value), ...]`."""
    found: list[tuple[str, Built]] = []
    if node.type == "dictionary_comprehension":
        body, *clauses = named(node)
        value = body.child_by_field_name("value")
        repeat = " ".join(text_of(clause) for clause in clauses)
        if value is not None:
            found.extend(("*", replace(b, repeat=repeat)) for b in _value(value, scope, condition))
        return tuple(found)
    for item in named(node):
        key, value = item.child_by_field_name("key"), item.child_by_field_name("value")
        if item.type == "tuple" and len(named(item)) == 2:
            key, value = named(item)
        if key is not None and value is not None:
            label = _label(key) or "*"
            found.extend((label, built) for built in _value(value, scope, condition))
    return tuple(found)
