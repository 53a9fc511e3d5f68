"""The definitions of one C++ or CUDA file: a walk over its scopes, statement by statement, bodies of functions skipped.

The scopes that are open are kept per branch of an `#if`, as braces are (text.py).
"""

from __future__ import annotations

import bisect
import re
from typing import NamedTuple

from opscope_tools.index.cpp.heads import Head, Place, head_of, typedef_names
from opscope_tools.index.cpp.rows import CLASS_KINDS, CppRow
from opscope_tools.index.cpp.statements import CLASS_KEYS, Statement, StatementReader, namespace_macro
from opscope_tools.source.cpp.text import CppText, decoded, readable

_SPACE = re.compile(r"\s*")
_MACRO_CALL = re.compile(r"([A-Z_][A-Z0-9_]*)\b[ \t]*(?:\(([^()]*)\))?")
_SIGNATURE = 400  # characters kept of a signature
_MACRO_TEXT = 600  # characters read of a macro
_ANONYMOUS = "(anonymous)"


class Scope(NamedTuple):
    """A namespace or class whose body is being read; `path` is its qualified name, `namespace` that of the innermost
    namespace, which friends are declared in."""

    path: str = ""
    namespace: str = ""
    class_name: str = ""
    in_class: bool = False
    access: str = ""
    by_macro: bool = False


def definitions(source: bytes) -> tuple[CppRow, ...]:
    """What the file defines and declares, in source order. Never raises on bad source: what cannot be read is left
    out."""
    return _Scan(source).run()


class _Scan:
    def __init__(self, source: bytes) -> None:
        self._text = CppText(decoded(source))
        self._reader = StatementReader(self._text)
        self._rows: list[tuple[int, CppRow]] = []
        self._has_macros = "NAMESPACE" in self._text.statements
        self._keys = _key_positions(self._text.statements)
        self._pending: list[tuple[int, int, Scope]] = []

    def run(self) -> tuple[CppRow, ...]:
        for macro in self._text.defined:
            line = self._text.line(macro.start)
            self._add(macro.start, CppRow(
                "macro", macro.name, "", line, line, self._text.line(macro.end), True,
                signature=readable(macro.body[:_MACRO_TEXT])[:_SIGNATURE], condition=self._text.condition(macro.start),
            ))  # fmt: skip
        self._scope(0, len(self._text.statements), Scope())
        while self._pending:
            self._local(*self._pending.pop())
        self._rows.sort(key=lambda item: item[0])
        return tuple(row for _, row in self._rows)

    def _add(self, position: int, row: CppRow) -> None:
        self._rows.append((position, row))

    # scopes

    def _scope(self, position: int, stop: int, outer: Scope) -> None:
        """Read the statements of a range; `outer` is what it stands in."""
        text, reader = self._text, self._reader
        stack = [outer]
        saved: list[tuple[list[Scope], list[list[Scope]]]] = []
        upcoming = text.next_event(position)
        events = text.events
        dead = False
        while position < stop:
            start = _SPACE.match(text.statements, position).end()  # type: ignore[union-attr]  # no text lacks it
            while upcoming < len(events) and events[upcoming].position <= start:
                event, was = events[upcoming], dead
                dead = event.dead
                upcoming += 1
                if event.what == "open":
                    saved.append((stack.copy(), []))
                elif saved:
                    before, after = saved[-1]
                    if not was:
                        after.append(stack)
                    stack = before.copy()
                    if event.what == "close":
                        saved.pop()
                        stack = after[0] if after else before
            if start >= stop:
                return
            if self._has_macros and (macro := _MACRO_CALL.match(text.statements, start)) and _by_macro(macro, stack):
                position = macro.end()
                continue
            scope = stack[-1]
            statement = reader.read(start, in_class=scope.in_class)
            position = statement.end + 1
            if statement.ending == "{":
                position = self._block(start, statement, stack)
            elif statement.ending == "}":
                _close(stack)
            elif statement.ending == ":":
                stack[-1] = scope._replace(access=statement.tokens[0].text)
            elif statement.tokens and statement.ending:
                self._declaration(start, statement, scope)

    def _block(self, start: int, statement: Statement, stack: list[Scope]) -> int:
        """A statement that ends in a block; gives the position where reading goes on, and opens its scope."""
        scope, opening = stack[-1], statement.end
        after = self._text.resumption(opening)
        if not statement.tokens:
            return after
        if _is_linkage(statement):
            stack.append(scope)
            return opening + 1
        close = self._text.closing.get(opening, opening)
        heads = self._heads(start, statement, scope)
        for other, _ in heads[1:]:
            if other.kind == "function":
                self._add(other.at, self._row(start, other, scope, close, definition=True, until=statement.head_end))
        if not heads:
            return after
        head, statement = heads[0]
        if head.kind == "namespace":
            path = _joined(scope.path, *head.outer, head.name or _ANONYMOUS)
            if head.name:
                self._add(head.at, self._row(start, head, scope, close, definition=True))
            stack.append(Scope(path, path))
            return opening + 1
        if head.kind in CLASS_KEYS:
            return self._type(start, statement, head, stack, after)
        self._add(head.at, self._row(start, head, scope, close, definition=True, until=statement.head_end))
        self._remember(
            opening,
            close,
            Scope(_joined(_named_from(self._outer(scope, head), head.outer), head.name), scope.namespace),
        )
        return after

    def _type(self, start: int, statement: Statement, head: Head, stack: list[Scope], after: int) -> int:
        scope, close = stack[-1], self._text.closing.get(statement.end, statement.end)
        aliases = []
        if statement.tokens[0].text == "typedef":
            trailing = self._reader.read(close + 1, in_class=False)
            aliases = typedef_names(self._text, trailing.tokens) if trailing.ending == ";" else []
        if not head.name and aliases:
            head = head._replace(name=aliases[0].text)
        row = self._row(start, head, scope, close, definition=True)
        if head.name:
            self._add(head.at, row)
        for alias in aliases:
            if alias.text != head.name:
                line = self._text.line(alias.start)
                self._add(alias.start, CppRow(
                    "alias", alias.text, scope.path, line, line, line, True, signature=row.qualified_name,
                    condition=self._text.condition(alias.start), access=scope.access,
                ))  # fmt: skip
        if head.kind not in CLASS_KINDS:
            return after
        access = "private" if head.kind == "class" else "public"
        if head.name:
            stack.append(Scope(row.qualified_name, scope.namespace, head.name, in_class=True, access=access))
        else:  # members of an anonymous class are members of what it stands in
            stack.append(scope._replace(in_class=True, access=scope.access or access))
        return statement.end + 1

    def _declaration(self, start: int, statement: Statement, scope: Scope) -> None:
        for head, _ in self._heads(start, statement, scope):
            if not head.name:
                continue
            whole = head.kind in {"alias", "concept"}
            assigned = self._text.statements[statement.head_end + 1 : statement.end].strip()
            definition = whole or (statement.ending == "=" and assigned != "0")
            until = statement.end if whole else statement.head_end
            self._add(head.at, self._row(start, head, scope, statement.end, definition=definition, until=until))

    def _heads(self, start: int, statement: Statement, scope: Scope) -> list[tuple[Head, Statement]]:
        """What the statement declares; more than one thing where an `#if` inside it holds alternatives."""
        place = Place(scope.in_class, scope.class_name)
        ways = self._text.variants(start, statement.head_end)
        if not ways:
            head = head_of(self._text, statement, place)
            return [(head, statement)] if head is not None else []
        found: list[tuple[Head, Statement]] = []
        for left_out in ways:
            tokens = [t for t in statement.tokens if not any(a <= t.start < b for a, b in left_out)]
            one = statement._replace(tokens=tokens)
            head = head_of(self._text, one, place) if tokens else None
            if head is not None and not any(head.at == other.at for other, _ in found):
                found.append((head, one))
        return found

    # classes inside functions

    def _remember(self, opening: int, close: int, scope: Scope) -> None:
        keys = self._keys
        first = bisect.bisect_left(keys, opening)
        if first < len(keys) and keys[first] < close:
            self._pending.append((opening, close, scope))

    def _local(self, opening: int, close: int, scope: Scope) -> None:
        """The classes that the body of a function defines."""
        keys, at = self._keys, opening
        for key in keys[bisect.bisect_left(keys, opening) : bisect.bisect_left(keys, close)]:
            if key < at:
                continue
            statement = self._reader.read(key, in_class=False)
            at = statement.end
            if statement.ending != "{" or statement.end >= close:
                continue
            head = head_of(self._text, statement, Place())
            if head is None or head.kind not in CLASS_KEYS:
                continue
            stack = [scope]
            inside = self._type(key, statement, head, stack, statement.end + 1)
            at = self._text.closing.get(statement.end, close)
            if len(stack) > 1:
                self._scope(inside, at, stack[-1])

    # rows

    def _outer(self, scope: Scope, head: Head) -> str:
        """The scope that a head declares in: a friend is a member of the namespace, not of the class."""
        return scope.namespace if "friend" in head.attributes and scope.in_class else scope.path

    def _row(
        self, start: int, head: Head, scope: Scope, end: int, *, definition: bool, until: int | None = None
    ) -> CppRow:
        text = self._text
        signature = _tidy(text.written(head.start, until))[:_SIGNATURE] if until is not None else ""
        return CppRow(
            kind=head.kind,
            name=head.name,
            scope=_named_from(self._outer(scope, head), head.outer),
            line=text.line(head.at),
            first_line=text.line(start),
            end_line=text.line(end),
            definition=definition,
            bases=head.bases,
            template=head.template,
            arguments=head.arguments,
            signature=signature,
            attributes=head.attributes,
            condition=text.condition(head.at),
            access=scope.access,
        )


def _named_from(scope: str, outer: tuple[str, ...]) -> str:
    """The scope that `outer` names inside another: `a::b` in `a::c` is `a::b`, as its first name is found there."""
    parts = scope.split("::") if scope else []
    if outer and outer[0] in parts:
        parts = parts[: parts.index(outer[0])]
    return "::".join([*parts, *outer])


def _tidy(signature: str) -> str:
    """Without the blanks that line breaks and comments leave inside parentheses."""
    return signature.replace("( ", "(").replace(" )", ")").replace(" ,", ",")


def _joined(*parts: str) -> str:
    return "::".join(part for part in parts if part)


def _by_macro(macro: re.Match[str], stack: list[Scope]) -> bool:
    """Open or close the namespace that a macro opens or closes. It goes by the macro's arguments (`X_BEGIN(a, b)` is
    `a::b`), or by the macro's own name where it has none."""
    effect, scope = namespace_macro(macro[1]), stack[-1]
    if effect == "opens" and not scope.in_class:
        parts = [part.strip() for part in (macro[2] or macro[1]).split(",")]
        path = _joined(scope.path, *parts)
        stack.append(Scope(path, path, by_macro=True))
    elif effect == "closes" and scope.by_macro:
        stack.pop()
    return bool(effect)


def _close(stack: list[Scope]) -> None:
    """Close the innermost scope that a brace opened."""
    opened = [number for number, scope in enumerate(stack) if number and not scope.by_macro]
    if opened:
        del stack[opened[-1] :]


def _is_linkage(statement: Statement) -> bool:
    """`extern "C" {`"""
    return statement.tokens[0].text == "extern" and all(t.text in {"extern", '"'} for t in statement.tokens)


def _key_positions(code: str) -> list[int]:
    """Where words that may be class keys stand."""
    found = []
    for key in sorted(CLASS_KEYS):
        at = code.find(key)
        while at >= 0:
            end = at + len(key)
            if code[end : end + 1].isspace() and not (code[at - 1 : at].isalnum() or code[at - 1 : at] == "_"):
                found.append(at)
            at = code.find(key, end)
    return sorted(found)
