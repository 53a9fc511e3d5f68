"""Functions of CUDA sources, parsed once: parameters, template parameters, statements; and which of them a call means.

`Library` belongs to one repository. A name means the functions of the calling file before those of others; where
several are left, the numbers of arguments and their types choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.cuda.launch.host_text import Names
from opscope_tools.kernels.cuda.names.definitions import Definition
from opscope_tools.kernels.cuda.names.structures import Struct, find_struct
from opscope_tools.kernels.cuda.names.template_arguments import included
from opscope_tools.kernels.cuda.names.values import Type, named_type
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments
from opscope_tools.kernels.cuda.syntax.expressions import Parser, UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Node, TypeName
from opscope_tools.kernels.cuda.syntax.statements import Reader
from opscope_tools.kernels.cuda.syntax.tokens import DeviceCode, Token, TooLongError, words
from opscope_tools.kernels.records import KernelRef, MacroRef

#: characters of a body, and brackets in brackets, that are read
_LONGEST, _DEEPEST = 400_000, 256
#: definitions of one name that are looked at
_OVERLOADS = 24
#: files of a folder that are looked through for a structure
_FILES = 60
#: what opens a namespace or a class
_HEADING = re.compile(r"\b(?:namespace|class|struct|union)\s++([\w:]++)")
_CONSTANT = re.compile(r"\b((?:const|constexpr|__constant__|__device__)\b\s*+(?:[\w:]++\s++)*)(\w++)\s*+([\[={])")
_TYPE_LIKE = re.compile(r"\w+_t|T\d?|[A-Z]\w*(?:Type|Vec|Storage)\w*|\w+::\w*(?:_t|Type|type)")


@dataclass(frozen=True)
class TemplateParameter:
    """One parameter of a template, a type or a value."""

    name: str
    #: `typename` and the like: it stands for a type
    type: bool
    default: str = ""


@dataclass(frozen=True)
class Function:
    """A parsed definition."""

    name: str
    code: DeviceCode
    start: int
    end: int
    template: tuple[TemplateParameter, ...]
    parameters: tuple[tuple[TypeName, str], ...]
    returns: TypeName | None
    body: tuple[Node, ...]
    #: why nothing of it is read; empty: it is
    unread: str = ""

    @property
    def file(self) -> str:
        """The file that it is defined in, relative to the repository."""
        return self.code.source.path


@dataclass
class Library:
    """What a repository's files define."""

    load: Callable[[str], CSource | None]
    definitions: Callable[[CSource, bool], list[Definition]]
    devices: dict[str, list[KernelRef]]
    macros: dict[str, MacroRef]
    #: CUDA files of the repository
    files: tuple[str, ...] = ()
    #: compute capability that is asked for, as `__CUDA_ARCH__` gives it; 0: none is
    capability: int = 0
    #: what statements change, with calls of functions that are not known and without
    writes: tuple[dict[Node, frozenset[str]], dict[Node, frozenset[str]]] = field(default_factory=lambda: ({}, {}))
    constants: dict[tuple[str, str], Any] = field(default_factory=dict)
    objects: dict[tuple[Any, ...], Type] = field(default_factory=dict)
    _declared: dict[str, dict[str, list[tuple[str, str, int]]]] = field(default_factory=dict)
    _names: dict[str, Names] = field(default_factory=dict)
    _structs: dict[tuple[str, str], Struct | None] = field(default_factory=dict)
    _reading: set[str] = field(default_factory=set)
    _headers: dict[str, list[CSource]] = field(default_factory=dict)
    _codes: dict[str, DeviceCode] = field(default_factory=dict)
    _parsed: dict[tuple[str, int], Function] = field(default_factory=dict)
    _named: dict[tuple[str, str], list[Function]] = field(default_factory=dict)

    def code(self, source: CSource) -> DeviceCode:
        """The file as the device's compiler sees it."""
        if source.path not in self._codes:
            self._reading.add(source.path)
            self._codes[source.path] = self._code(source, -1)
            self._reading.discard(source.path)
        return self._codes[source.path]

    def _code(self, source: CSource, wanted: int) -> DeviceCode:
        return DeviceCode(source, self.macros, lambda: self.included(source), self.capability, wanted)

    def around(self, source: CSource, position: int) -> Library:
        """The library in which the branches of `#if` that hold a position are taken, where a flag may turn them on."""
        if self.code(source).inside(position):
            return self
        made = Library(self.load, self.definitions, self.devices, self.macros, self.files, self.capability)
        made._codes, made._headers, made._names = dict(self._codes), self._headers, self._names
        made._reading.add(source.path)
        made._codes[source.path] = made._code(source, position)
        made._reading.discard(source.path)
        return made

    def headers(self, source: CSource) -> list[CSource]:
        """The file and those of the repository that it includes."""
        if source.path not in self._headers:
            self._headers[source.path] = included(source, self.load)
        return self._headers[source.path]

    def struct(self, source: CSource, name: str) -> Struct | None:
        """The definition of a structure that a file sees."""
        key = source.path, name
        if key not in self._structs:
            plain = name.rpartition("::")[2]
            usual = re.fullmatch(r"[A-Za-z_]\w*", plain) is not None
            self._structs[key] = self._struct(source, plain) if usual else None
        return self._structs[key]

    def _struct(self, source: CSource, name: str) -> Struct | None:
        """In the file and its headers; of a header that takes it from who includes it: the one beside it."""
        for header in self.headers(source):
            if name in header.statements and (found := find_struct(self.code(header), name, _known_type)) is not None:
                return found
        folder = source.path.rpartition("/")[0]
        beside = [p for p in self.files if p.rpartition("/")[0] == folder and p.endswith((".cuh", ".h", ".hpp"))]
        others = [s for p in beside[:_FILES] if (s := self.load(p)) is not None and name in s.statements]
        found_ = [f for s in others if (f := find_struct(self.code(s), name, _known_type)) is not None]
        return found_[0] if len(found_) == 1 else None

    def included(self, source: CSource) -> Iterator[DeviceCode]:
        """The headers of a file, those left out that are being read: headers that include each other."""
        for header in self.headers(source)[1:]:
            if header.path not in self._reading:
                yield self.code(header)

    def settled(self, source: CSource, name: str) -> Any:
        """What a constant or macro of a file comes to: an int, an `Expression` or None."""
        if source.path not in self._names:
            self._names[source.path] = Names(source, self.macros)
        return self._names[source.path](name)

    def enumeration(self, source: CSource, name: str) -> str:
        """The scoped enumeration that `Fill::kNone` is of, where the file sees its definition; empty: of none."""
        space, _, last = name.rpartition("::")
        kind = space.rpartition("::")[2]
        if not re.fullmatch(r"\w+", kind):
            return ""
        written = re.compile(rf"\benum\s+(?:class|struct)\s+{kind}\b[^;{{}}]*\{{([^{{}}]*)\}}")
        found = (written.search(header.statements) for header in self.headers(source) if kind in header.statements)
        return kind if any(last in re.findall(r"\w+", match[1]) for match in found if match is not None) else ""

    def declared(self, source: CSource, name: str) -> list[tuple[str, str, int]]:
        """(words before the name, bracket or sign behind it, line) of the constants and tables of that name in a file."""
        if source.path not in self._declared:
            table: dict[str, list[tuple[str, str, int]]] = {}
            for match in _CONSTANT.finditer(source.statements):
                table.setdefault(match[2], []).append((match[1], match[3], source.line(match.start())))
            self._declared[source.path] = table
        return self._declared[source.path].get(name, [])

    def function(self, source: CSource, found: Definition) -> Function:
        """A definition, parsed."""
        key = source.path, found.body
        if key not in self._parsed:
            self._parsed[key] = _parse(self.code(source), found)
        return self._parsed[key]

    def _stands(self, space: str, source: CSource, found: Definition, caller: CSource) -> bool:
        """Whether a definition stands where a name leads: in the namespace or class that is named before it; of a plain name, in a file
        that the caller's includes, or in a namespace that one of these opens or uses."""
        last, seen = space.rpartition("::")[2], self.headers(caller)
        if not last:
            near = source.path in [header.path for header in seen]
            return (
                near or not (around := _scopes(source, found.name_position)) or any(around & _opened(h) for h in seen)
            )
        aliases = (re.search(rf"\bnamespace\s+{last}\s*=\s*([\w:]+)", header.statements) for header in seen)
        names = {last, *(match[1].rpartition("::")[2] for match in aliases if match is not None)}
        around = _scopes(source, found.name_position)
        written = {m.body.strip() for header in self.headers(source) for m in header.macros if m.name in around}
        return bool(names & (around | written))

    def called(self, name: str, caller: CSource) -> list[Function]:
        """The device functions that a name may mean in a file: `cute::copy` none of another namespace than that."""
        key = name, caller.path
        if key not in self._named:
            space, _, name = re.sub(r"<.*>", "", name, flags=re.DOTALL).rpartition("::")
            candidates = self.devices.get(name, [])
            chosen = [c for c in candidates if c.file == caller.path] or candidates
            if len({c.file for c in chosen}) > 1:  # of files that do not see each other: the nearest folder
                folder = caller.path.rpartition("/")[0]
                chosen = [c for c in chosen if c.file.rpartition("/")[0] == folder] or chosen
            found = []
            for reference in chosen[:_OVERLOADS]:
                source = self.load(reference.file)
                for definition in self.definitions(source, True) if source is not None else ():
                    if source is None or definition.name != name:
                        continue
                    here = source.line(definition.name_position) == reference.line
                    if (
                        here
                        and self.code(source).inside(definition.body)
                        and self._stands(space, source, definition, caller)
                    ):
                        found.append(self.function(source, definition))
            self._named[key] = found if len({f.file for f in found}) <= 1 else []
        return self._named[key]


def _opened(source: CSource) -> set[str]:
    """Names of the namespaces that a file opens or uses."""
    if "opened" not in source.read:
        used = re.findall(r"\busing\s+namespace\s+([\w:]+)", source.statements)
        source.read["opened"] = {*source.namespaces, *(name.rpartition("::")[2] for name in used)}
    found: set[str] = source.read["opened"]
    return found


def _scopes(source: CSource, position: int) -> set[str]:
    """Names of the namespaces and classes that hold a position."""
    found = set[str]()
    for opening, closing in source.all_blocks:
        if opening < position < closing:
            heading = re.split(r"[;{}]", source.statements[max(opening - 300, 0) : opening])[-1]
            found.update(*(match[1].split("::") for match in _HEADING.finditer(heading)))
    return found


def _known_type(name: str) -> bool:
    return named_type(name) is not None


def _parse(code: DeviceCode, found: Definition) -> Function:
    template = tuple(_template_parameter(p) for p in split_arguments(found.template))
    types = frozenset(p.name for p in template if p.type)
    unread, body, parameters, returns = "", tuple[Node, ...](), tuple[tuple[TypeName, str], ...](), None
    inside = code.inside(found.body)

    def is_type(name: str) -> bool:
        return name in types or named_type(name) is not None or _TYPE_LIKE.fullmatch(name) is not None

    try:
        if code.source.statements[found.body : found.body + 1] != "{":
            unread = "the body, which a macro writes"
        elif not inside:
            unread = "the body, which stands in a branch of #if that is not taken"
        elif code.source.nesting(found.body, found.end) > _DEEPEST:
            unread = f"the body, which is nested more than {_DEEPEST} brackets deep"
        elif found.end - found.body > _LONGEST:
            unread = f"the body, which is longer than {_LONGEST} characters"
        else:
            listed = code.tokens(found.parameters_position - 1, found.parameters_position + len(found.parameters) + 1)
            if found.macro:
                listed = [Token(word, found.name_position) for word in words(f"({found.parameters})")]
            parameters = tuple(Parser(listed, is_type).parameters())
            returns = None if found.macro else _returned(code, found, is_type)
            body = tuple(Reader(code.tokens(found.body + 1, found.end), is_type).body())
    except TooLongError:
        unread = "the body, which is too long with its macros expanded"
    except (UnreadError, RecursionError):
        unread = "the definition, which does not parse"
    return Function(found.name, code, found.body, found.end, template, parameters, returns, body, unread)


def _returned(code: DeviceCode, found: Definition, is_type: Callable[[str], bool]) -> TypeName | None:
    """The type before the name."""
    heading = code.tokens(found.start, found.name_position)
    if heading and heading[0].text == "template":
        depth = 0
        for index, token in enumerate(heading[1:], 1):
            depth += (token.text in "<(") - (token.text in ">)")
            if depth == 0:
                heading = heading[index + 1 :]
                break
    known = [t for t in heading if not re.fullmatch(r"__\w+__|[A-Z][A-Z0-9_]{3,}|inline|static|constexpr", t.text)]
    return Parser([*known, Token(";", found.name_position)], is_type).type_name() if known else None


def _template_parameter(text: str) -> TemplateParameter:
    before, _, default = text.partition("=")
    name = re.search(r"(?<!\w)([A-Za-z_]\w*+)\s*+(?:\)\s*+\(.*)?$", before.strip())
    if pointed := re.search(r"\(\s*+\*\s*+(\w+)\s*+\)", before):  # a function
        return TemplateParameter(pointed[1], False)
    kind = re.match(r"\s*+(?:typename|class|template)\b", before) is not None
    return TemplateParameter(name[1] if name else "", kind, default.strip())


def fitting(functions: Sequence[Function], count: int) -> list[Function]:
    """Those that take so many arguments."""
    return [f for f in functions if len(f.parameters) == count] or [f for f in functions if len(f.parameters) > count]
