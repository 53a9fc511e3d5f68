"""Edits of JSON and JSONC text: a member put into an object or taken out of it, every other byte left as it is.

Order: reading, putting, taking, layout. No library on PyPI keeps comments, commas and indentation; the edits are
insertions and removals of stretches of text, so what they do not touch cannot change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from opscope_clients.hosts.edits import MISSING, Edit, Path, UnreadableError, applied, checked, line_at, newline_of
from opscope_clients.hosts.jsonc_text import Member, Node, Reader

_SAME_LINE = re.compile(r"(?:[ \t]|/\*[^\n]*?\*/)*(?://[^\n\r]*)?")


class Json:
    """The format; `plain` is JSON as its standard has it, without comments."""

    def __init__(self, *, plain: bool) -> None:
        self.plain = plain

    # ---- reading

    def _root(self, text: str) -> Node | None:
        node = Reader(text, plain=self.plain).document()
        if node is not None and not isinstance(node.value, dict):
            raise UnreadableError("expected an object", line_at(text, node.start))
        return node

    def _load(self, text: str) -> Mapping[str, Any]:
        node = self._root(text)
        return {} if node is None else node.value

    def _walk(self, text: str, path: Path) -> tuple[Node | None, list[Member]]:
        """The root, and the members that lead along `path` as far as they are there."""
        root = node = self._root(text)
        found: list[Member] = []
        for key in path:
            if node is None or (member := node.member(key)) is None:
                break
            found.append(member)
            node = member.node
            if len(found) < len(path) and not isinstance(node.value, dict):
                raise UnreadableError(f"{key} is not an object", line_at(text, member.start))
        return root, found

    def get(self, text: str, path: Path) -> Any:
        """The value at `path`, or MISSING."""
        _, found = self._walk(text, path)
        return found[-1].node.value if len(found) == len(path) else MISSING

    def has(self, text: str, path: Path) -> bool:
        """Whether there is an object at `path`."""
        return self.get(text, path) is not MISSING

    def line_of(self, text: str, path: Path) -> int:
        """The line on which the member at `path`, or the nearest one above it, begins."""
        _, found = self._walk(text, path)
        return line_at(text, found[-1].start) if found else 1

    # ---- putting

    def put(self, text: str, path: Path, value: Mapping[str, Any]) -> str:
        """The text with `value` at `path`."""
        root, found = self._walk(text, path)
        nl, unit = newline_of(text), _unit(text, root)
        if root is None:
            gap = nl if text.strip() and not text.endswith("\n") else ""
            return text + gap + _rendered(_nested(path, value), "", unit, nl) + nl
        if len(found) == len(path):
            member = found[-1]
            own = not text[text.rfind("\n", 0, member.start) + 1 : member.start].strip()  # its line is its own
            indent = _indent_at(text, member.start)
            new = _rendered(value, indent, unit, nl) if own else json.dumps(value, ensure_ascii=False)
            edits = [Edit(member.node.start, member.node.end, new)]
        else:
            holder = found[-1].node if found else root
            outer = _indent_at(text, found[-1].start if found else root.start)
            key, rest = path[len(found)], path[len(found) + 1 :]
            edits = self._inserted(text, holder, outer, key, _nested(rest, value), unit, nl)
        line = line_at(text, found[-1].start) if found else 1
        return checked(text, applied(text, edits), path, value, self._load, line)

    def _inserted(
        self, text: str, holder: Node, outer: str, key: str, value: Mapping[str, Any], unit: str, nl: str
    ) -> list[Edit]:
        """A member put at the end of an object, laid out as its neighbours are."""
        name = json.dumps(key)
        if not holder.members:
            return self._first(text, holder, outer, f"{name}: {_rendered(value, outer + unit, unit, nl)}", unit, nl)
        first, last = holder.members[0], holder.members[-1]
        if "\n" not in text[holder.start : first.start]:  # an object on one line stays on one line
            return [Edit(last.node.end, last.node.end, f", {name}: {json.dumps(value, ensure_ascii=False)}")]
        indent = _indent_at(text, first.start)
        comma = Reader(text).skip(last.node.end)
        trailing = text.startswith(",", comma)
        # behind a comment on the last member's line, which belongs to that member
        found = _SAME_LINE.match(text, comma + 1 if trailing else last.node.end)
        assert found is not None, "the pattern matches the empty text"
        place = found.end()
        member = f"{nl}{indent}{name}: {_rendered(value, indent, unit, nl)}"
        if trailing:
            return [Edit(place, place, f"{member},")]
        if place == last.node.end:
            return [Edit(place, place, f",{member}")]
        return [Edit(last.node.end, last.node.end, ","), Edit(place, place, member)]

    def _first(self, text: str, holder: Node, outer: str, member: str, unit: str, nl: str) -> list[Edit]:
        """A member put into an empty object, behind the comments in it."""
        close = holder.end - 1
        inside = text[holder.start + 1 : close]
        place = holder.start + 1 + len(inside.rstrip())
        end = close if not inside.strip() else place
        after = "" if "\n" in text[end:close] else f"{nl}{outer}"
        return [Edit(place, end, f"{nl}{outer}{unit}{member}{after}")]

    # ---- taking

    def take(self, text: str, path: Path, made: Iterable[Path]) -> str:
        """The text without the member at `path`, and without those containers of `made` that held nothing else."""
        root, found = self._walk(text, path)
        assert root is not None, "there is something to take"
        assert len(found) == len(path), "there is something to take"
        made, depth = set(made), len(path) - 1
        while depth > 0 and path[:depth] in made and _alone(text, found[depth - 1].node, found[depth]):
            depth -= 1
        holder = found[depth - 1].node if depth else root
        edits = _removed(text, holder, found[depth])
        return checked(text, applied(text, edits), path, MISSING, self._load, line_at(text, found[-1].start))


def _alone(text: str, holder: Node, member: Member) -> bool:
    """Whether an object holds one member and no comment."""
    around = text[holder.start + 1 : member.start] + text[member.node.end : holder.end - 1]
    return len(holder.members) == 1 and not around.replace(",", "").strip()


def _removed(text: str, holder: Node, member: Member) -> list[Edit]:
    """A member taken out, with one of its commas and the line that it leaves empty."""
    if _alone(text, holder, member):
        return [Edit(holder.start + 1, holder.end - 1, "")]
    skip = Reader(text).skip
    index = holder.members.index(member)
    start, end = member.start, member.node.end
    edits: list[Edit] = []
    comma = skip(end)
    if text.startswith(",", comma):
        if text[end:comma].strip():  # a comment before the comma stays
            edits.append(Edit(comma, comma + 1, ""))
        else:
            end = comma + 1
    elif index:
        before = skip(holder.members[index - 1].node.end)
        edits.append(Edit(before, before + 1, ""))
    line = len(text[:start].rstrip(" \t"))
    rest = re.compile(r"[ \t]*(\r?\n|(?=\}))").match(text, end)
    if text[:line].endswith("\n") and rest:  # alone on its lines: they go with the line end in front of them
        start = line - (2 if text[:line].endswith("\r\n") else 1)
        end = rest.start(1) if rest.group(1) else end
    elif index and text[:line].endswith(","):  # on one line with its neighbours
        start = line
    elif not index and not text[:line].endswith("\n"):
        end += len(text[end:]) - len(text[end:].lstrip(" \t"))
    return [*edits, Edit(start, end, "")]


# ---- layout


def _nested(path: Path, value: Mapping[str, Any]) -> Mapping[str, Any]:
    for key in reversed(path):
        value = {key: value}
    return value


def _unit(text: str, root: Node | None) -> str:
    """One step of indentation, as the file has it."""
    if root is not None and root.members and "\n" in text[root.start : root.members[0].start]:
        return _indent_at(text, root.members[0].start)[len(_indent_at(text, root.start)) :] or "  "
    return "  "


def _indent_at(text: str, position: int) -> str:
    """The indentation of the line of a position."""
    line = text[text.rfind("\n", 0, position) + 1 : position]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _rendered(value: Any, indent: str, unit: str, nl: str) -> str:
    """JSON with a line for each member of an object, and lists on one line."""
    if not isinstance(value, Mapping) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = indent + unit
    lines = [f"{inner}{json.dumps(key)}: {_rendered(item, inner, unit, nl)}" for key, item in value.items()]
    return f"{{{nl}{f',{nl}'.join(lines)}{nl}{indent}}}"
