"""What names in the arguments of an operator mean: aliases and constants followed through scopes, classes and the arguments of
templates, to types as they are spelled, numbers, shapes and widths of elements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opscope_tools.kernels.cuda.declarations import aliases_named, constants_named
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.names.element_types import element_bits
from opscope_tools.kernels.cuda.names.template_arguments import class_template
from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    split_arguments,
    squeeze,
)
from opscope_tools.kernels.cutlass.definitions import (
    Scope,
    parameter_default,
    parameter_name,
    scopes,
    template_head,
)

_STEPS = 40
#: names that are looked up for one operator: templates of templates may ask for more than anybody can wait for
_WORK = 20_000
#: types of constants that need no `constexpr` to be compile-time ones
_WHOLE = re.compile(r"int|unsigned|bool|\w+_t")
_PLAIN = re.compile(r"(?:::)?\w+")
_NUMBER = re.compile(r"(?:cute::)?_(\d+)(?:\s*\{\s*\})?")
_CONSTANT = re.compile(
    r"(?:\w+::)*(?:Int|C|integral_constant|StageCount|constant)\s*<\s*(?:int\s*,)?(.*)>(?:\s*\{\s*\}|::value)?",
    re.DOTALL,
)
_SHAPE = re.compile(r"(?:decltype\s*\(\s*)?(?:cute::)?(?:Shape|tuple|make_shape)\s*([<(])")
_BITS = re.compile(r"(?:cute::|cutlass::)?sizeof_bits(?:_v\s*<([^<>]*)>|\s*<([^<>]*)>::value)")
_BYTES = re.compile(r"\bsizeof\s*\(([^()]*)\)")
#: classes whose own arguments are what is looked for
_OF_CUTLASS = frozenset({"CollectiveBuilder", "CollectiveMma"})
#: constants of CUTLASS (cutlass.h) that name what the device has
_OF_DEVICE = {"NumThreadsPerWarp": 32, "NumThreadsPerWarpGroup": 128, "NumWarpsPerWarpGroup": 4}
_FUNDAMENTAL = frozenset("unsigned signed int long short char bool".split())
_SAME = re.compile(r"(?:\w+::)*is_same(?:_v)?\s*<([^<>]*(?:<[^<>]*>[^<>]*)*)>(?:::value)?")
_CHOICE = re.compile(r"(?:\w+::)*conditional_t\s*<(.*)>", re.DOTALL)
#: types around an element, with what they make of its width
_AROUND = re.compile(r"(?:cutlass::|cute::)?(?:(?:nv|mx)_float\w*|tuple|complex)\s*<(.*)>", re.DOTALL)


@dataclass(frozen=True)
class Spelled:
    """A type or constant, as it is written at a place."""

    text: str
    source: CSource
    at: int
    #: template parameters of the scopes around -> what they are bound to
    bound: Mapping[str, Spelled] = field(default_factory=dict)
    #: template parameter that ends the way; '' where none does
    parameter: str = ""

    @property
    def line(self) -> int:
        """Where it stands."""
        return self.source.line(self.at)

    def with_text(self, text: str) -> Spelled:
        """Other text of the same place."""
        return replace(self, text=text, parameter="")


class Names:
    """Follows names through the files around an operator."""

    def __init__(self, sources: Sequence[CSource]) -> None:
        self.sources = sources
        self._around: dict[tuple[str, int], list[Scope]] = {}
        self._left = _WORK

    def _scopes(self, source: CSource, at: int) -> list[Scope]:
        key = source.path, at
        if key not in self._around:
            self._around[key] = list(scopes(source, at))
        return self._around[key]

    def meant(self, spelled: Spelled) -> Spelled:
        """What a name leads to; what is no name stays."""
        for _ in range(_STEPS):
            self._left -= 1
            if self._left < 0:
                return spelled
            following = self._step(spelled)
            if following is None:
                return spelled
            spelled = following
            if spelled.parameter:
                return spelled
        return spelled

    def _step(self, spelled: Spelled) -> Spelled | None:
        text = _bare(spelled.text)
        if _PLAIN.fullmatch(text):
            return None if text.startswith("::") else self._named(text, spelled)
        if (choice := _CHOICE.fullmatch(text)) is not None:
            return self._chosen(split_arguments(choice[1]), spelled)
        if (of_template := re.match(r"(?:\w+::)*(\w+)\s*<", text)) is not None and text.endswith(">"):
            return self._alias(of_template[1], split_arguments(text[of_template.end() : -1]), spelled)
        found = re.search(r"::\s*(?:template\s+)?(\w+)$", text)
        if found is None:
            return None
        scope = text[: found.start()].rstrip()
        if not _is_name(scope):
            return None
        return self._member(scope, found[1], spelled)

    def _named(self, word: str, spelled: Spelled) -> Spelled | None:
        if word in spelled.bound:
            return spelled.bound[word]
        if word.isdigit() or _NUMBER.fullmatch(word) or any(word in _macros(source) for source in self.sources):
            return None
        source, at = spelled.source, spelled.at
        around = self._scopes(source, at)
        local = [d for d in _declared(source, word, at) if _visible(source, d[0], at, around)]
        others = [place for place in _declared_otherwise(source, word) if _visible(source, place, at, around)]
        for scope in [*reversed(around), None]:
            here = [d for d in local if scope is None or scope.opening < d[0] < scope.closing]
            if any(scope is None or scope.opening < place < scope.closing for place in others):
                return None  # a class, a typedef, a variable: whichever of them is meant
            if here:
                return self._one(here, source, spelled)
            if scope is not None and word in map(parameter_name, scope.parameters):
                return replace(spelled, text=word, parameter=word)
            if scope is not None and scope.kind == "class" and _derived(source, scope):
                return None  # a base may have it
        every = [
            (d, s) for s in self.sources if s is not source for d in _declared(s, word) if _in_namespaces(s, d[0])
        ]  # fmt: skip
        if len({text for (_, text), _ in every}) != 1 or any(_declared_otherwise(s, word) for s in self.sources):
            return None
        (at, text), source = every[0]
        return Spelled(text, source, at)

    @staticmethod
    def _one(here: Sequence[tuple[int, str]], source: CSource, spelled: Spelled) -> Spelled | None:
        """The declaration that a name means of those in a scope; None where branches of an `#if` each have one."""
        before = [d for d in here if d[0] < spelled.at] or list(here)
        depth = max(_depth(source, at) for at, _ in before)
        nearest = [d for d in before if _depth(source, d[0]) == depth]
        if len({text for _, text in nearest}) > 1:
            return None
        return Spelled(nearest[-1][1], source, nearest[-1][0], spelled.bound)

    def _chosen(self, parts: Sequence[str], spelled: Spelled) -> Spelled | None:
        """The side that `conditional_t` takes, where its test is told."""
        test = self.number(spelled.with_text(parts[0])) if len(parts) == 3 else None
        return None if test is None else spelled.with_text(parts[1 if test else 2])

    def _alias(self, name: str, arguments: list[str], spelled: Spelled) -> Spelled | None:
        """What an alias that is a template stands for, its parameters bound."""
        for source in (spelled.source, *(s for s in self.sources if s is not spelled.source)):
            for at, text in _declared(source, name, spelled.at if source is spelled.source else -1):
                start = max(source.statements.rfind(c, 0, at) for c in ";{}") + 1
                parameters, after = template_head(source.statements, start)
                if parameters and not source.statements[after:at].strip():
                    return Spelled(text, source, at, self._bound(parameters, arguments, spelled, source, at))
        return None

    def _bound(
        self, parameters: Sequence[str], arguments: Sequence[str], given: Spelled, source: CSource, at: int
    ) -> dict[str, Spelled]:  # fmt: skip
        """Template parameters as arguments of a place bind them, defaults as their own place reads them."""
        bound: dict[str, Spelled] = {}
        for index, parameter in enumerate(parameters):
            text = arguments[index] if index < len(arguments) else parameter_default(parameter)
            if text and (key := parameter_name(parameter)):
                here = given if index < len(arguments) else Spelled("", source, at, dict(bound))
                bound[key] = self.meant(here.with_text(text))
        return bound

    def _member(self, scope: str, word: str, spelled: Spelled) -> Spelled | None:
        """The member of a class, its template parameters bound to the arguments that are written."""
        of = self.meant(spelled.with_text(scope))
        if of.parameter:
            return replace(of, text=f"{of.text}::{word}")
        text = _bare(of.text)
        name = re.match(r"(?:\w+::)*(\w+)\s*(<)?", text)
        if name is None:
            return None
        arguments = split_arguments(text[name.end() : matching_angle(text, name.end() - 1)]) if name[2] else []
        for source in self._holding(name[1], of.source) if name[1] not in _OF_CUTLASS else ():
            body = _class_body(source, name[1])
            if body is None:
                continue
            parameters, start, end = body
            bound = self._bound(parameters, arguments, of, source, start)
            inside = [
                d
                for d in _declared(source, word)
                if start < d[0] < end and _depth(source, d[0]) == _depth(source, start)
            ]
            if len({text for _, text in inside}) == 1 and word not in _macros(source):
                return Spelled(inside[0][1], source, inside[0][0], bound)
        return None

    def _holding(self, name: str, here: CSource) -> list[CSource]:
        """The file whose class a name means in another: that one itself, else the only one that there is."""
        if defines(here, name):
            return [here]
        found = [source for source in self.sources if defines(source, name)]
        return found if len(found) == 1 else []

    # ---- what it comes to

    def number(self, spelled: Spelled, depth: int = 8) -> int | None:
        """An integer constant; None where source does not tell it."""
        if depth == 0:
            return None
        found = self.meant(spelled)
        text = _bare(found.text)
        if (plain := _NUMBER.fullmatch(text)) is not None:
            return int(plain[1])
        if (known := _OF_DEVICE.get(text.removeprefix("cutlass::"))) is not None:
            return known
        if (inner := _CONSTANT.fullmatch(text)) is not None:
            return self.number(found.with_text(inner[1]), depth - 1)

        def bits(match: re.Match[str]) -> str:
            size = self.bits(found.with_text(match[1] or (match[2] if match.re is _BITS else "")))
            if match.re is _BYTES and "tuple" in match[0]:
                return match[0]
            return match[0] if size is None else str(size if match.re is _BITS else -(-size // 8))

        def same(match: re.Match[str]) -> str:
            sides = [self.meant(found.with_text(side)) for side in split_arguments(match[1])]
            if len(sides) != 2 or any(
                side.parameter or re.search(r"::type$|decltype|\bconst\b", side.text) for side in sides
            ):
                return match[0]
            told = _same_type(*(squeeze(side.text).replace(" ", "").removeprefix("::") for side in sides))
            return match[0] if told is None else str(int(told))

        text = _SAME.sub(same, _BYTES.sub(bits, _BITS.sub(bits, text)))
        text = re.sub(r"\b(true|false)\b", lambda m: str(int(m[1] == "true")), text)
        text = re.sub(r"\bstatic_cast\s*<\s*\w+\s*>", "", text)
        value = formula(text, lambda name: self.number(found.with_text(name), depth - 1) if name != text else None)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def shape(self, spelled: Spelled) -> tuple[int | str, ...] | None:
        """Sizes along each mode, a name where one is a template parameter's; None where it is no shape."""
        found = self.meant(spelled)
        text = _bare(found.text)
        match = _SHAPE.match(text)
        if match is None:
            return None
        opening = match.end() - 1
        closing = matching_angle(text, opening) if match[1] == "<" else matching(text, opening)
        if not re.fullmatch(r"(?:\{\})?\)*(?:\{\})?", "".join(text[closing + 1 :].split())):
            return None  # one of several in an expression
        sizes: list[int | str] = []
        for part in split_arguments(text[opening + 1 : closing]) if closing > 0 else ():
            one = found.with_text(part)
            if (value := self.number(one)) is not None:
                sizes.append(value)
            elif (nested := self.shape(one)) is not None and len(nested) == 1:
                sizes.extend(nested)
            else:
                sizes.append(_bare(self.meant(one).text))
        return tuple(sizes) or None

    def bits(self, spelled: Spelled) -> int | None:
        """Of an element; of one with scales or of complex numbers, too. None where source does not tell."""
        found = self.meant(spelled)
        text = _bare(found.text)
        if (around := _AROUND.fullmatch(text)) is not None:
            held = split_arguments(around[1])
            size = self.bits(found.with_text(held[0])) if held else None
            return size and size * (2 if "complex" in text.partition("<")[0] else 1)
        return element_bits(text)

    def shown(self, spelled: Spelled) -> str:
        """A type or number for a reader."""
        value = self.number(spelled)
        if value is not None and not re.search(r"StageCount|Schedule", self.meant(spelled).text):
            return str(value)
        return self._spelled_out(self.meant(spelled), 4)

    def _spelled_out(self, found: Spelled, depth: int) -> str:
        """A type with what its template arguments mean."""
        text = squeeze(_bare(found.text))
        listed = re.match(r"(?:\w+\s*::\s*)*\w+\s*<", text)
        if depth == 0 or listed is None or not text.endswith(">") or not _is_name(text):
            return text
        inner = split_arguments(text[listed.end() : -1])
        told = [self._spelled_out(self.meant(found.with_text(one)), depth - 1) for one in inner]
        return f"{listed[0]}{', '.join(told)}>"


def _same_type(one: str, other: str) -> bool | None:
    """Whether two spellings are one type; None where they may be two names of it."""
    if one == other:
        return True
    plain = [re.sub(r"^(?:cutlass|cute)::", "", text) for text in (one, other)]
    tags = [re.match(r"cutlass::\w+::", text) is not None for text in (one, other)]
    if any(tags) and all(
        tag or re.match(r"(?:cute::)?(?:_\d+$|Int<)", text) for tag, text in zip(tags, (one, other), strict=True)
    ):
        return False  # classes of their own
    if any(element_bits(text) is None or "::" in text for text in plain) or any(
        word in _FUNDAMENTAL for text in plain for word in re.findall(r"\w+", text)
    ):
        return None
    known = [re.sub(r"^(?:__nv_|nv_|__)|_t$", "", text) for text in plain]
    if known[0] == known[1]:
        return True if plain[0] == plain[1] else None
    return None if all(re.fullmatch(r"u?int\d+|size|ptrdiff", text) for text in known) else False


def _derived(source: CSource, scope: Scope) -> bool:
    return re.search(r"(?<!:):(?!:)", source.statements[scope.heading : scope.opening]) is not None


def _is_name(text: str) -> bool:
    """Whether a text is one name with its template arguments, no expression of several."""
    position = 0
    while (match := re.compile(r"\s*+(?:::\s*+)?(?:template\s++)?\w++\s*+").match(text, position)) is not None:
        position = match.end()
        if text[position : position + 1] == "<":
            position = matching_angle(text, position) + 1
            if position <= 0:
                return False
        if position == len(text):
            return True
        if not text[position:].lstrip().startswith("::"):
            return False
    return False


def _depth(source: CSource, at: int) -> int:
    return sum(opening < at <= closing for opening, closing in source.all_blocks)


def _visible(source: CSource, declared: int, at: int, around: Sequence[Scope]) -> bool:
    """Whether a declaration is seen from a place: every block around it is one around the place, or a namespace of its name."""
    names = {scope.name for scope in around if scope.kind == "namespace"} | {""}
    for opening, closing in source.all_blocks:
        beside = opening < declared < closing and not opening < at < closing
        if beside and source.namespace(opening) not in names:
            return False
    return True


def _in_namespaces(source: CSource, at: int) -> bool:
    """Whether nothing but namespaces is around a place."""
    return [scope.kind for scope in scopes(source, at)] == ["namespace"] * _depth(source, at)


def _macros(source: CSource) -> frozenset[str]:
    return source.table("macro names", lambda: frozenset(macro.name for macro in source.macros))


def _declared_otherwise(source: CSource, word: str) -> list[int]:
    """Where a name is declared that is no alias and no plain constant: a class, a typedef, an enumerator, a variable."""
    known = source.table("declared otherwise", dict[str, list[int]])
    if word not in known:
        one, plain = re.escape(word), {at for at, _ in _declared(source, word)}
        pattern = (
            rf"\b(?:struct|class|union|enum(?:\s+class)?)\s+{one}\b|\btypedef\b[^;{{}}]*\b{one}\s*;|\benum\b[^;{{}}]*\{{[^}}]*\b{one}\b|"
            rf"\b(?:const|constexpr|int|auto|bool|unsigned|long|size_t|\w+_t)\s+{one}\s*(?:\{{|=(?!=))|\busing\s+(?:\w+\s*::\s*)+{one}\s*;"
        )
        found = (m.start() for m in re.finditer(pattern, source.statements)) if word in source.statements else iter(())
        known[word] = [
            at for at in found if not any(start <= at and ";" not in source.statements[start:at] for start in plain)
        ]
    return known[word]


def _bare(text: str) -> str:
    return re.sub(r"^(?:(?:typename|class|const)\s+)+", "", squeeze(text)).strip()


def _declared(source: CSource, word: str, but: int = -1) -> list[tuple[int, str]]:
    """(position, text) of the aliases and constants of a name, but of one whose initialiser a place stands in."""
    static = frozenset({"static", "const"})
    constant = [
        one
        for one in constants_named(source, word)
        if one.constant and ("constexpr" in one.qualifiers or (static <= one.qualifiers and _WHOLE.fullmatch(one.type)))
    ]
    found = sorted((*aliases_named(source, word), *constant), key=lambda one: one.position)
    return [(one.start, one.text) for one in found if not one.start <= but < one.end]


def _class_body(source: CSource, name: str) -> tuple[list[str], int, int] | None:
    """(template parameters, start and end of the body) of a class of this file."""
    bodies = source.table("cutlass classes", dict[str, tuple[list[str], int, int] | None])
    if name not in bodies:
        bodies[name] = _looked_up(source, name) if name in _classes(source) else None
    return bodies[name]


def defines(source: CSource, name: str) -> bool:
    """Whether a file has a class of that name with a body."""
    return _class_body(source, name) is not None or specialised(source, name)


def specialised(source: CSource, name: str) -> bool:
    """Whether a file has several classes of a name, or one and its specialisations."""
    if name not in _classes(source):
        return False
    return len(_bodies(source, name)) > 1


def _bodies(source: CSource, name: str) -> list[re.Match[str]]:
    return list(re.finditer(rf"\b(?:struct|class)\s+{re.escape(name)}\b[^;{{()]*\{{", source.statements))


def _classes(source: CSource) -> frozenset[str]:
    return source.table("class names", lambda: frozenset(re.findall(r"\b(?:struct|class)\s+(\w+)", source.statements)))


def _looked_up(source: CSource, name: str) -> tuple[list[str], int, int] | None:
    if specialised(source, name):
        return None  # of several of a name, or of one and its specialisations, which is meant is not worked out
    if (template := class_template(source, name)) is not None:
        parameters, _, start, end = template
        return split_arguments(parameters), start, end
    found = _bodies(source, name)
    return ([], found[0].end(), source.block_end(found[0].end() - 1)) if found else None


__all__ = ["Names", "Spelled", "defines", "specialised"]
