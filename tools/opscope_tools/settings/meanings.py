"""What a parameter means, in the words of its file: docstring entries, the string below a field, comments, declarations.

Docstrings are read in the styles of Hugging Face, Google, numpy and Sphinx. Only names that are asked for are looked for,
so that prose that resembles an entry is not taken for one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator

from opscope_schemas.extracted_config import Meaning

from opscope_tools.source.python.trees import PythonSource

_LIMIT = 600
_ENTRY = re.compile(
    r"^\s*+(?:[-*]\s++)?[`*\"']{0,3}(?P<names>\w++(?:[`*]*+\s*+,\s*+[`*]*+\w++)*+)[`*\"']{0,3}\s*+(?P<type>\((?:[^()]++|\([^()]*+\))*+\))?\s*+(?::|--)(?P<rest>.*)$"
)
_SPHINX = re.compile(
    r"^\s*[:@](?:param|arg|ivar|cvar|var|attr)\s++(?:[^:\s]++\s++(?!:))*+(?P<names>\w++)\s*+:(?P<rest>.*)$"
)
_PRAGMA = re.compile(r"^#\s*(type:|noqa|fmt:|pragma|pylint|ruff|mypy|pyright|isort|TODO|FIXME)", re.IGNORECASE)
_COMMENT = re.compile(r"^\s*#")
_DECLARED = {"description", "help", "doc"}


class Meanings:
    """The meanings that one file gives."""

    def __init__(self, source: PythonSource) -> None:
        self.source = source

    def of_class(self, line: int, names: Collection[str]) -> dict[str, Meaning]:
        """What the class at a line says of the names: its docstring first, that of its `__init__`, then its fields."""
        node = self.source.class_at(line)
        if node is None:
            return {}
        found = dict(self._entries(node, names))
        init = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
        if init is not None:
            found = {**self._entries(init, names), **found}
        for name, meaning in self._fields(node, names):
            found.setdefault(name, meaning)
        if init is not None:
            for name, meaning in self._parameters(init, names):
                found.setdefault(name, meaning)
        return found

    def at(self, line: int, indent: int) -> Meaning | None:
        """What the comment on the line, or the comment lines right above it, say."""
        text = _trailing(self.source.line(line))
        if text:
            return Meaning(text=text, file=self.source.path, line=line, origin="comment")
        return self._above(line, indent)

    def of_table(self, names: Collection[str]) -> dict[str, Meaning]:
        """What a documentation table says: the class of the file whose body has most of the names as mappings with a
        description."""
        best: dict[str, Meaning] = {}
        for _, node in self.source.definitions:
            if isinstance(node, ast.ClassDef):
                found = dict(self._described(node, names))
                best = found if len(found) > len(best) else best
        return best

    # docstrings

    def _entries(self, node: ast.ClassDef | ast.FunctionDef, names: Collection[str]) -> dict[str, Meaning]:
        first = node.body[0] if node.body else None
        if not (
            isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
        ):
            return {}
        start, end = first.lineno, first.end_lineno or first.lineno
        lines = list(enumerate(self.source.lines[start - 1 : end], start))
        found: dict[str, Meaning] = {}
        fenced = numpy = False
        for position, (number, text) in enumerate(lines):
            fenced ^= text.lstrip().startswith("```")
            if re.match(r"^\s*-{3,}\s*$", text):
                numpy = True
            match = (
                None
                if fenced or text.lstrip().startswith((">>>", "..."))
                else _SPHINX.match(text) or _ENTRY.match(text)
            )
            if match is None:
                continue
            named = [name for name in re.findall(r"\w+", match["names"]) if name in names and name not in found]
            if not named:
                continue
            rest = "" if numpy else match["rest"].strip().removeprefix("--").strip()
            said = _collapsed([rest, *_indented(lines[position + 1 :], text)])
            for name in named:
                if said:
                    found[name] = Meaning(text=said, file=self.source.path, line=number, origin="docstring")
        return found

    # fields

    def _fields(self, node: ast.ClassDef, names: Collection[str]) -> Iterator[tuple[str, Meaning]]:
        for position, statement in enumerate(node.body):
            target: ast.expr | None = statement.target if isinstance(statement, ast.AnnAssign) else None
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
            if not isinstance(target, ast.Name) or target.id not in names:
                continue
            after = node.body[position + 1] if position + 1 < len(node.body) else None
            meaning = self._below(after) or self._declared(statement) or self._commented(statement, after)
            if meaning is not None:
                yield target.id, meaning

    def _below(self, after: ast.stmt | None) -> Meaning | None:
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            said = _collapsed([after.value.value])
            return (
                Meaning(text=said, file=self.source.path, line=after.lineno, origin="field docstring") if said else None
            )
        return None

    def _declared(self, statement: ast.stmt) -> Meaning | None:
        """`Field(description=...)`, `field(metadata={"help": ...})`, `Annotated[..., Doc(...)]`."""
        for node in ast.walk(statement):
            text: ast.expr | None = None
            if isinstance(node, ast.keyword) and node.arg in _DECLARED:
                text = node.value
            elif isinstance(node, ast.Dict):
                text = next(
                    (
                        v
                        for k, v in zip(node.keys, node.values, strict=True)
                        if isinstance(k, ast.Constant) and k.value in _DECLARED
                    ),
                    None,
                )
            elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Doc" and node.args:
                text = node.args[0]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                return Meaning(
                    text=_collapsed([text.value]), file=self.source.path, line=text.lineno, origin="declaration"
                )
        return None

    def _commented(self, statement: ast.stmt, after: ast.stmt | None) -> Meaning | None:
        text = _trailing(self.source.line(statement.end_lineno or statement.lineno)) or _trailing(
            self.source.line(statement.lineno)
        )
        if text:
            return Meaning(text=text, file=self.source.path, line=statement.lineno, origin="comment")
        close = isinstance(after, ast.AnnAssign | ast.Assign) and after.lineno == (statement.end_lineno or 0) + 1
        # a comment above several fields in a row is a heading, not what the first of them means
        return None if close else self._above(statement.lineno, statement.col_offset)

    def _above(self, line: int, indent: int) -> Meaning | None:
        first = line
        while _COMMENT.match(text := self.source.line(first - 1)) and len(text) - len(text.lstrip()) == indent:
            first -= 1
        said = _collapsed([
            text.lstrip("# ") for text in (self.source.line(n).strip() for n in range(first, line)) if not _PRAGMA.match(text)
        ])  # fmt: skip
        if not said or not re.search(r"[A-Za-z]{3}", said):
            return None
        return Meaning(text=said, file=self.source.path, line=first, origin="comment")

    def _parameters(self, node: ast.FunctionDef, names: Collection[str]) -> Iterator[tuple[str, Meaning]]:
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            alone = sum(other.lineno == argument.lineno for other in arguments) == 1 and argument.lineno != node.lineno
            text = _trailing(self.source.line(argument.lineno)) if alone and argument.arg in names else ""
            if text:
                yield argument.arg, Meaning(text=text, file=self.source.path, line=argument.lineno, origin="comment")

    def _described(self, node: ast.ClassDef, names: Collection[str]) -> Iterator[tuple[str, Meaning]]:
        for statement in node.body:
            if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Dict):
                continue
            target = statement.targets[0]
            if not isinstance(target, ast.Name) or target.id not in names:
                continue
            for key, value in zip(statement.value.keys, statement.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value == "description" and isinstance(value, ast.Constant):
                    said = _collapsed([str(value.value)])
                    if said:
                        yield (
                            target.id,
                            Meaning(
                                text=said, file=self.source.path, line=statement.lineno, origin="documentation table"
                            ),
                        )


def _indented(lines: list[tuple[int, str]], head: str) -> Iterator[str]:
    """The lines that belong to an entry: those indented deeper, as long as no blank line is followed by less."""
    depth = len(head) - len(head.lstrip())
    for number, (_, text) in enumerate(lines):
        if not text.strip():
            following = next((t for _, t in lines[number + 1 :] if t.strip()), "")
            if len(following) - len(following.lstrip()) <= depth:
                return
            continue
        if len(text) - len(text.lstrip()) <= depth or text.lstrip().startswith("```"):
            return
        yield text.strip()


def _collapsed(parts: list[str]) -> str:
    said = " ".join(" ".join(parts).split()).removesuffix('"""').removesuffix("'''").strip()
    return said if len(said) <= _LIMIT else said[: _LIMIT - 2].rsplit(" ", 1)[0] + " …"


def _trailing(line: str) -> str:
    """The comment at the end of a line; empty where there is none but a pragma."""
    quote, position = "", 0
    while position < len(line):
        sign = line[position]
        if quote:
            if sign == "\\":
                position += 1
            elif sign == quote:
                quote = ""
        elif sign in "\"'":
            quote = sign
        elif sign == "#":
            text = line[position:]
            while _PRAGMA.match(text) and "#" in text[1:]:
                text = text[1:][text[1:].index("#") :]
            blank = not line[:position].strip()
            return "" if blank or _PRAGMA.match(text) else " ".join(text.lstrip("# ").split())
        position += 1
    return ""
