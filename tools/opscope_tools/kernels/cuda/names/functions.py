"""Functions of CUDA sources, parsed once: parameters, template parameters, statements; and which of them a call means.

`Library` belongs to one repository. A name means the functions of the calling file before those of others; where
several are left, the numbers of arguments and their types choose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opscope_tools.kernels.cuda.declarations import constants_named
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.launch.host_text import Names
from opscope_tools.kernels.cuda.names.definitions import Definition, specialised
from opscope_tools.kernels.cuda.names.structures import Struct, find_struct
from opscope_tools.kernels.cuda.names.template_arguments import included
from opscope_tools.kernels.cuda.names.values import Type, named_type
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments
from opscope_tools.kernels.cuda.syntax.expressions import Parser, UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Node, TypeName
from opscope_tools.kernels.cuda.syntax.statements import Reader
from opscope_tools.kernels.cuda.syntax.tokens import DeviceCode, Token, TooLongError, words
from opscope_tools.kernels.records import KernelRef, MacroRef
from opscope_tools.source.files import HEADERS

#: characters of a body, and brackets in brackets, that are read
_LONGEST, _DEEPEST = 400_000, 256
#: definitions of one name that are looked at
_OVERLOADS = 24

#: files of a folder that are looked through for a structure
_FILES = 60
#: an enumeration that is scoped, with its enumerators
_ENUMERATION = re.compile(r"\benum\s++(?:class|struct)\s++(\w++)[^;{}]*+\{([^{}]*+)\}")
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
    #: what its last parameters are where a call does not give them, as written
    defaults: tuple[str, ...] = ()
    #: of a specialisation (`template <> f<0>`): the arguments that its name gives; None: it is none
    special: tuple[str, ...] | None = None

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
    _names: dict[str, Names] = field(default_factory=dict)
    _structs: dict[tuple[str, str], Struct | None] = field(default_factory=dict)
    _reading: set[str] = field(default_factory=set)
    _settling: set[tuple[str, str]] = field(default_factory=set)
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

    def nested(self, source: CSource, name: str, within: tuple[int, int]) -> Struct | None:
        """The definition of a structure inside a class, whose braces `within` gives."""
        return find_struct(self.code(source), name, _known_type, within)

    def _struct(self, source: CSource, name: str) -> Struct | None:
        """In the file and its headers; of a header that takes it from who includes it: the one beside it."""
        for header in self.headers(source):
            if name in header.statements and (found := find_struct(self.code(header), name, _known_type)) is not None:
                return found
        folder = source.path.rpartition("/")[0]
        beside = [p for p in self.files if p.rpartition("/")[0] == folder and p.endswith(HEADERS)]
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
            self._names[source.path] = Names(source, self.macros, elsewhere=partial(self.of_headers, source))
        return self._names[source.path](name)

    def of_headers(self, source: CSource, name: str) -> tuple[int, str, str] | None:
        """The number that a constant is which a file sees in its headers, `name = text`, and where it stands; None where none is, or
        several differ. One of another namespace is seen where the file opens or uses that, or the name says it."""
        space, _, plain = name.rpartition("::")
        seen = self.headers(source)
        found = [
            (header, one) for header in (seen if space else seen[1:]) for one in constants_named(header, plain)
            if one.plain and not header.function_around(one.position) and not header.class_around(one.position)
        ]  # fmt: skip
        if not found or (source.path, name) in self._settling:
            return None
        opened = source.namespaces.union(*map(_used, seen))
        taken = rf"\busing\s++((?:\w++::)++){re.escape(plain)}\s*+;"
        spaces = [space] if space else [s.removesuffix("::") for one in seen for s in re.findall(taken, one.statements)]
        self._settling.add((source.path, name))
        try:
            told = []
            for header, one in found:
                around = [part for part in header.namespaces_around(one.position) if part]
                meant = any(f"::{'::'.join(around)}".endswith(f"::{one_of}") for one_of in spaces)
                reached = meant or (not space and opened.issuperset(around))
                if reached and self.code(header).inside(one.position):
                    at = f"{header.path}:{header.line(one.position)}"
                    told.append((formula(one.text, partial(self.settled, header)), f"{plain} = {one.text}", at))
        finally:
            self._settling.discard((source.path, name))
        values = {value for value, _, _ in told}
        return told[0] if len(values) == 1 and all(isinstance(value, int) for value in values) else None

    def enumeration(self, source: CSource, name: str) -> str:
        """The scoped enumeration that `Fill::kNone` is of, where the file sees its definition and no two of it are one number; empty: none."""
        space, _, last = name.rpartition("::")
        kind = space.rpartition("::")[2]
        tables = (_enumerations(header) for header in self.headers(source)) if kind else ()
        return kind if any(last in table.get(kind, ()) for table in tables) else ""

    def function(self, source: CSource, found: Definition) -> Function:
        """A definition, parsed."""
        key = source.path, found.body
        if key not in self._parsed:
            self._parsed[key] = _parse(self.code(source), found)
        return self._parsed[key]

    def _stands(self, space: str, source: CSource, found: Definition, caller: CSource) -> bool:
        """Whether a definition may stand where a name leads: `cute::copy` in no other namespace, as far as the caller's files tell; a plain
        name in a file that they include, or in a namespace that one of them opens or uses."""
        last, seen = space.rpartition("::")[2], self.headers(caller)
        around = _scopes(source, found.name_position)
        if not around or last in around:
            return True
        used = set[str]().union(*map(_used, seen))
        if not last:
            opened = used.union(*(header.namespaces for header in seen))
            return source.path in [header.path for header in seen] or bool(around & opened)
        typed = last.endswith(("_t", "type")) or any(last in _types(header) for header in seen)
        if typed or around & used or found.name in used:
            return True  # a class or an alias, or what another namespace takes over
        return last in {m.body.strip() for header in self.headers(source) for m in header.macros if m.name in around}

    def _defined(self, name: str, space: str, references: Sequence[KernelRef], caller: CSource) -> list[Function]:
        """The definitions that stand where a name leads."""
        found: list[Function] = []
        for reference in references:
            source = self.load(reference.file)
            for definition in self.definitions(source, True) if source is not None and len(found) < _OVERLOADS else ():
                if source is None or definition.name != name or source.line(definition.name_position) != reference.line:
                    continue
                if self.code(source).inside(definition.body) and self._stands(space, source, definition, caller):
                    found.append(self.function(source, definition))
        return found

    def called(self, name: str, caller: CSource) -> list[Function]:
        """The device functions that a name may mean in a file: `cute::copy` none of another namespace than that."""
        key = name, caller.path
        if key not in self._named:
            space, _, name = re.sub(r"<.*>", "", name, flags=re.DOTALL).rpartition("::")
            candidates = self.devices.get(name, [])
            folder, seen = caller.path.rpartition("/")[0], {header.path for header in self.headers(caller)}
            tiers = (
                [c for c in candidates if c.file == caller.path], [c for c in candidates if c.file in seen],
                [c for c in candidates if c.file.rpartition("/")[0] == folder], candidates[:_OVERLOADS],
            )  # fmt: skip
            found = next((made for tier in tiers if (made := self._defined(name, space, tier, caller))), [])
            self._named[key] = found if len({f.file for f in found}) <= 1 else []
        return self._named[key]


def _used(source: CSource) -> set[str]:
    """Names of the namespaces that a file uses, and of what it takes over from some."""
    words = r"\busing\s+(?:namespace\s+)?(?:\w+::)*(\w+)\s*;"
    return source.table("used", lambda: set(re.findall(words, source.statements)))


def _types(source: CSource) -> set[str]:
    """Names that a file gives to types, parameters of templates and aliases of namespaces among them."""
    words = r"\b(?:class|struct|union|typename|using|typedef|namespace(?=\s+\w+\s*=))\b([^;{}=<>]*)"
    return source.table(
        "types", lambda: {w for text in re.findall(words, source.statements) for w in re.findall(r"\w+", text)}
    )


def _enumerations(source: CSource) -> dict[str, tuple[str, ...]]:
    """The scoped enumerations of a file whose enumerators are numbers apart."""

    def made() -> dict[str, tuple[str, ...]]:
        found = {}
        for match in _ENUMERATION.finditer(source.statements):
            parts = [part.partition("=") for part in match[2].split(",") if part.strip()]
            numbers: list[int] = []
            for _, given, text in parts:
                if given and not text.strip().isdigit():
                    break
                numbers.append(int(text) if given else numbers[-1] + 1 if numbers else 0)
            if len(set(numbers)) == len(parts):
                found[match[1]] = tuple(name.strip() for name, _, _ in parts)
        return found

    return source.table("enumerations", made)


def _scopes(source: CSource, position: int) -> set[str]:
    """Names of the namespaces that hold a definition whose name stands at a position, and those that are written before it."""
    written = re.search(r"((?:\w+::)+)$", source.statements[max(position - 200, 0) : position])
    return {*source.namespaces_around(position), *(written[1].split("::") if written is not None else ())} - {""}


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
    written = [text.partition("=")[2].strip() for text in split_arguments(found.parameters)]
    defaults = tuple(text for text in written if text)
    special = not found.template and not found.macro and code.source.statements.startswith("template", found.start)
    return Function(
        found.name, code, found.body, found.end, template, parameters, returns, body, unread, defaults,
        specialised(found, code.source) if special else None,
    )  # fmt: skip


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
    """Those that take so many arguments, defaults filling what a call leaves out."""
    return [f for f in functions if len(f.parameters) - len(f.defaults) <= count <= len(f.parameters)] or [
        f for f in functions if len(f.parameters) > count
    ]
