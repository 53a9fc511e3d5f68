"""Structures of CUDA sources: their fields, sizes and methods, as far as they are written in the file or its headers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from opscope_tools.kernels.cuda.source_text import split_arguments
from opscope_tools.kernels.cuda.syntax.expressions import UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Alias, Declare, Node, TypeName
from opscope_tools.kernels.cuda.syntax.statements import Reader
from opscope_tools.kernels.cuda.syntax.tokens import DeviceCode, Token, TooLongError

_WORD = re.compile(r"[A-Za-z_]\w*")
_LONGEST = 60_000


@dataclass(frozen=True)
class Method:
    """A method or constructor: `starts` are what its initialisers give to fields."""

    name: str
    parameters: tuple[tuple[TypeName, str], ...]
    returns: TypeName | None
    body: tuple[Node, ...]
    starts: tuple[tuple[str, Node], ...] = ()
    position: int = 0


@dataclass
class Struct:
    """A definition; `whole` is False where some member was not read, so that its size is not told."""

    name: str
    code: DeviceCode
    start: int
    end: int
    #: template parameters: (name, whether it is a type)
    template: tuple[tuple[str, bool], ...]
    fields: list[Declare] = field(default_factory=list)
    constants: list[Declare] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    methods: list[Method] = field(default_factory=list)
    union: bool = False
    #: what `alignas` says, as written
    alignment: str = ""
    whole: bool = True
    #: base classes, as written
    bases: tuple[str, ...] = ()
    #: what `alignas` says of fields
    aligned: dict[str, str] = field(default_factory=dict)
    #: what derives from it begins behind the whole of it: no constructor, no base class, nothing private
    plain: bool = True

    def called(self, name: str, count: int) -> Method | None:
        """The one method of a name that takes so many arguments; of two that differ in `const` alone the one that may be written through."""
        found = [m for m in self.methods if m.name == name and len(m.parameters) == count]
        alike = len({tuple(kind for kind, _ in m.parameters) for m in found}) == 1
        written = [m for m in found if m.returns is not None and m.returns.reference and "const" not in m.returns.words]
        return (written or found)[0] if alike and len(found) <= 2 else None


def find_struct(
    code: DeviceCode, name: str, is_type: Callable[[str], bool], within: tuple[int, int] | None = None
) -> Struct | None:
    """The definition of a structure in a file, or in a part of it; None where it is not there, or several are."""
    text = code.source.statements
    if name not in code.types_written:
        return None
    pattern = rf"\b(struct|class|union)\s+((?:(?:alignas|__align__|__attribute__)\s*+\((?:[^()]|\([^()]*\))*\)\s*)*){name}\b(?!\s*+<)([^;{{}}()=]*)\{{"
    places = re.compile(pattern).finditer(text, *(within or ()))
    found = [m for m in places if code.inside(m.start())]
    if len(found) != 1:
        return _typedef(code, name, is_type) if within is None else None
    (match,) = found
    head = max(text.rfind(c, 0, match.start()) for c in ";}{") + 1
    template = re.search(r"\btemplate\s*+<(.*)>[\w\s]*+$", text[head : match.start()], re.DOTALL)
    made = _read(
        code, name, match.end() - 1, match[1] == "union", _alignment(match[2]), template[1] if template else "", is_type
    )
    if made is not None and ":" in match[3]:
        listed = split_arguments(match[3].partition(":")[2])
        made.bases = tuple(re.sub(r"\b(?:public|private|protected)\b", "", one).strip() for one in listed)
        made.plain = False
    return made


def _typedef(code: DeviceCode, name: str, is_type: Callable[[str], bool]) -> Struct | None:
    """`typedef struct { ... } name;`."""
    text = code.source.statements
    end = re.search(rf"\}}\s*{name}\s*+;", text)
    if end is None or not code.inside(end.start()):
        return None
    start = next((a for a, b in code.source.all_blocks if b == end.start()), -1)
    head = (
        re.search(r"\btypedef\s++(struct|union)\s*+\w*\s*+$", text[max(start - 120, 0) : start]) if start >= 0 else None
    )
    return _read(code, name, start, head[1] == "union", "", "", is_type) if head else None


def _read(
    code: DeviceCode, name: str, opening: int, union: bool, alignment: str, template: str, is_type: Callable[[str], bool]
) -> Struct | None:  # fmt: skip
    end = code.source.block_end(opening)
    if end - opening > _LONGEST:
        return None
    parameters = []
    for text in split_arguments(template):
        words = re.findall(r"[A-Za-z_]\w*", text.partition("=")[0])
        parameters.append((words[-1] if words else "", bool(words) and words[0] in {"typename", "class"}))
    made = Struct(name, code, opening, end, tuple(parameters), union=union, alignment=alignment)
    types = {n for n, kind in parameters if kind}
    try:
        _Members(code.tokens(opening + 1, end), lambda n: n in types or n == name or is_type(n), made).read()
    except (TooLongError, RecursionError):
        return None
    return made


def _alignment(text: str) -> str:
    found = re.search(r"(?:alignas|__align__|aligned)\s*+\((.*)\)", text, re.DOTALL)
    return (
        found[1].strip(" ()")
        if found and found[1].count("(") != found[1].count(")")
        else found[1].strip()
        if found
        else text.strip()
    )


class _Members(Reader):
    def __init__(self, tokens: list[Token], is_type: Callable[[str], bool], made: Struct) -> None:
        super().__init__(tokens, is_type)
        self.made = made

    def read(self) -> None:
        while self.at < len(self.tokens):
            start = self.at
            try:
                self._member()
            except UnreadError:
                self.at = start
                self._skip()
                self.made.whole = False

    def _member(self) -> None:
        word = self.peek()
        if word in {"public", "private", "protected"} and self.peek(1) == ":":
            self.at += 2
            self.made.plain = self.made.plain and word == "public"
        elif word == ";":
            self.at += 1
        elif word == "template":
            self.at += 1
            end = self.list_end(self.at)
            if not end:
                raise UnreadError(word)
            self.at = end
        elif word in {"using", "typedef"}:
            self.made.aliases += [a for a in self._alias() if isinstance(a, Alias)]
        elif word in {"static_assert", "friend"}:
            self._until(";")
        elif word in {"struct", "class", "union", "enum"} and "{" in (self.peek(1), self.peek(2)):
            self.made.whole = self.made.whole and word == "enum"
            self._skip()
        else:
            self._field_or_method()

    def _field_or_method(self) -> None:
        aligned = ""
        while self.peek() in {"alignas", "__align__"}:
            self.at += 1
            start = self.at
            self.skip_bracketed()
            aligned = " ".join(token.text for token in self.tokens[start + 1 : self.at - 1])
        while self.peek() in {
            "__device__",
            "__host__",
            "__forceinline__",
            "inline",
            "explicit",
            "virtual",
            "constexpr",
        }:
            self.made.whole = self.made.whole and self.peek() != "virtual"
            self.at += 1
        position = self.position()
        if self.peek() == "~" or self.peek() == "operator":
            return self._skip()
        if self.peek() == self.made.name and self.peek(1) == "(":
            self.at += 1
            self.made.plain = False
            return self._method(self.made.name, None, position)
        before = self.at
        static = {self.tokens[i].text for i in range(before, min(before + 4, len(self.tokens)))} & {"static"}
        kind = self.type_name()
        if kind is None:
            raise UnreadError(self.peek())
        if self.peek() == "operator":
            self.at += 1
            name = "operator"
            while self.peek() != "(" or name == "operator":
                name += self.take()
            return self._method(name, kind, position)
        if _WORD.fullmatch(self.peek()) and self.peek(1) == "(":
            return self._method(self.take(), kind, position)
        plain = TypeName(kind.name, kind.arguments, 0, False, kind.words)
        pointers, reference = kind.pointers, kind.reference
        while True:
            made = self._declarator(plain, pointers, reference)
            if aligned:
                self.made.aligned[made.name] = aligned
            (self.made.constants if static or "static" in kind.words else self.made.fields).append(made)
            if self.peek() != ",":
                self.take(";")
                return None
            self.at += 1
            pointers = 0
            while self.peek() == "*":
                pointers += 1
                self.at += 1

    def _method(self, name: str, returns: TypeName | None, position: int) -> None:
        parameters = tuple(self.parameters())
        starts: list[tuple[str, Node]] = []
        while self.peek() not in {"{", ";", ":", ""}:
            self.at += 1
        if self.peek() == ":":
            self.at += 1
            while self.peek() != "{":
                target = self.take()
                values = self.arguments() if self.peek() == "(" else self.braced().items
                if len(values) == 1:
                    starts.append((target, values[0]))
                if self.peek() == ",":
                    self.at += 1
        if self.peek() != "{":
            self._until(";")
            return
        body = self.block()
        self.made.methods.append(Method(name, parameters, returns, tuple(body.statements), tuple(starts), position))
