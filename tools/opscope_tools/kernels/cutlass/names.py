"""What names in the arguments of an operator mean: aliases and constants followed through scopes, classes and the arguments of
templates, to types as they are spelled, numbers, shapes and widths of elements."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.names.element_types import element_bits
from opscope_tools.kernels.cuda.names.template_arguments import class_template
from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    opening_angle,
    split_arguments,
    squeeze,
)
from opscope_tools.kernels.cutlass.definitions import Scope, parameter_default, parameter_name, scopes, template_head

_STEPS = 40
_DECLARED = re.compile(
    r"\busing\s+(\w+)\s*+=\s*+([^;]+);|\bconstexpr\s+(?:static\s+)?(?:const\s+)?[\w:]+\s+(\w+)\s*+=\s*+([^;]+);"
)
_PLAIN = re.compile(r"(?:::)?\w+")
_NUMBER = re.compile(r"(?:cute::)?_(\d+)(?:\s*\{\s*\})?")
_CONSTANT = re.compile(
    r"(?:\w+::)*(?:Int|C|integral_constant|StageCount|constant)\s*<\s*(?:int\s*,)?(.*)>(?:\s*\{\s*\}|::value)?",
    re.DOTALL,
)
_SHAPE = re.compile(r"(?:decltype\s*\(\s*)?(?:cute::)?(?:Shape|tuple|make_shape)\s*([<(])")
_BITS = re.compile(r"(?:cute::|cutlass::)?sizeof_bits(?:_v\s*<([^<>]*)>|\s*<([^<>]*)>::value)")
_BYTES = re.compile(r"\bsizeof\s*\(([^()]*)\)")
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

    def _scopes(self, source: CSource, at: int) -> list[Scope]:
        key = source.path, at
        if key not in self._around:
            self._around[key] = list(scopes(source, at))
        return self._around[key]

    def meant(self, spelled: Spelled) -> Spelled:
        """What a name leads to; what is no name stays."""
        for _ in range(_STEPS):
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
            return self._named(text.removeprefix("::"), spelled)
        if (choice := _CHOICE.fullmatch(text)) is not None:
            return self._chosen(split_arguments(choice[1]), spelled)
        if (of_template := re.match(r"(?:\w+::)*(\w+)\s*<", text)) is not None and text.endswith(">"):
            return self._alias(of_template[1], split_arguments(text[of_template.end() : -1]), spelled)
        found = re.search(r"::\s*(?:template\s+)?(\w+)$", text)
        if found is None:
            return None
        scope = text[: found.start()].rstrip()
        if scope.endswith(">") and opening_angle(scope, len(scope) - 1) < 0:
            return None
        return self._member(scope, found[1], spelled)

    def _named(self, word: str, spelled: Spelled) -> Spelled | None:
        if word in spelled.bound:
            return spelled.bound[word]
        if word.isdigit() or _NUMBER.fullmatch(word):
            return None
        around = self._scopes(spelled.source, spelled.at)
        local = _declared(spelled.source, word, spelled.at)
        for scope in reversed(around):
            here = [d for d in local if scope.opening < d[0] < scope.closing]
            if near := ([d for d in here if d[0] < spelled.at] or here):
                return Spelled(near[-1][1], spelled.source, near[-1][0], spelled.bound)
            if word in map(parameter_name, scope.parameters):
                return replace(spelled, text=word, parameter=word)
        if near := ([d for d in local if d[0] < spelled.at] or local):
            return Spelled(near[-1][1], spelled.source, near[-1][0], spelled.bound)
        every = [(d, s) for s in self.sources if s is not spelled.source for d in _declared(s, word)]
        if len({text for (_, text), _ in every}) != 1:
            return None
        (at, text), source = every[0]
        return Spelled(text, source, at)

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
            return replace(of, text=f"{of.parameter}::{word}")
        text = _bare(of.text)
        name = re.match(r"(?:\w+::)*(\w+)\s*(<)?", text)
        if name is None:
            return None
        arguments = split_arguments(text[name.end() : matching_angle(text, name.end() - 1)]) if name[2] else []
        for source in self._holding(name[1], of.source):
            body = _class_body(source, name[1])
            if body is None:
                continue
            parameters, start, end = body
            bound = self._bound(parameters, arguments, of, source, start)
            inside = [d for d in _declared(source, word) if start < d[0] < end]
            if inside:
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
        if (inner := _CONSTANT.fullmatch(text)) is not None:
            return self.number(found.with_text(inner[1]), depth - 1)

        def bits(match: re.Match[str]) -> str:
            size = self.bits(found.with_text(match[1] or (match[2] if match.re is _BITS else "")))
            return match[0] if size is None else str(size if match.re is _BITS else size // 8)

        def same(match: re.Match[str]) -> str:
            sides = [self.meant(found.with_text(side)) for side in split_arguments(match[1])]
            told = len(sides) == 2 and not any(side.parameter for side in sides)
            return str(int(_bare(sides[0].text) == _bare(sides[1].text))) if told else match[0]

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
        return squeeze(_bare(self.meant(spelled).text))


def _bare(text: str) -> str:
    return re.sub(r"^(?:(?:typename|class|const)\s+)+", "", squeeze(text)).strip()


def _declared(source: CSource, word: str, but: int = -1) -> list[tuple[int, str]]:
    """(position, text) of the aliases and constants of a name, but the one at a place."""
    if "cutlass names" not in source.read:
        every: dict[str, list[tuple[int, str]]] = {}
        for match in _DECLARED.finditer(source.statements):
            every.setdefault(match[1] or match[3], []).append((match.start(), squeeze(match[2] or match[4])))
        source.read["cutlass names"] = every
    found = source.read["cutlass names"].get(word, [])
    return [(at, text) for at, text in found if not at <= but < at + len(text) + len(word) + 9]


def _class_body(source: CSource, name: str) -> tuple[list[str], int, int] | None:
    """(template parameters, start and end of the body) of a class of this file."""
    bodies: dict[str, tuple[list[str], int, int] | None] = source.read.setdefault("cutlass classes", {})
    if name not in bodies:
        bodies[name] = _looked_up(source, name) if name in _classes(source) else None
    return bodies[name]


def defines(source: CSource, name: str) -> bool:
    """Whether a file has a class of that name with a body."""
    return _class_body(source, name) is not None


def _classes(source: CSource) -> frozenset[str]:
    names: frozenset[str] | None = source.read.get("class names")
    if names is None:
        names = source.read["class names"] = frozenset(re.findall(r"\b(?:struct|class)\s+(\w+)", source.statements))
    return names


def _looked_up(source: CSource, name: str) -> tuple[list[str], int, int] | None:
    if (template := class_template(source, name)) is not None:
        parameters, _, start, end = template
        return split_arguments(parameters), start, end
    found = re.search(rf"\b(?:struct|class)\s+{re.escape(name)}\b[^;{{()]*\{{", source.statements)
    return None if found is None else ([], found.end(), source.block_end(found.end() - 1))


__all__ = ["Names", "Spelled", "defines"]
