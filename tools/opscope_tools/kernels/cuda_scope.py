"""What the names of a CUDA body point to, block by block.

A `Place` is what a name stands for in one stretch of the text: a pointer into global or shared memory with the kernel
parameter it comes from, an object that holds such pointers (a view), something local, or a pointer of unknown origin.
`Scopes.at` answers with the declaration of the innermost enclosing block.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from opscope_schemas.tiling import Level

from opscope_tools.kernels.ctext import CSource, matching, matching_angle, squeeze

Kind = Literal["pointer", "view", "local", "unknown"]

_SCALAR = re.compile(
    r"(?:const |volatile |unsigned |signed |long )*(?:bool|float|double|half|__half|(?:__)?nv_bfloat16|(?:__)?bfloat16|dim3|size_t|"
    r"(?:u|unsigned )?(?:char|short|int|long|longlong)|unsigned|\w*int\d+_t|(?:u?(?:char|short|int|long|longlong)|float|double|"
    r"half|__half|(?:__)?nv_bfloat16)[x_]?[1-4])(?: const)?(?:\s*+&)?"
)
_NO_TYPE = {
    "return", "else", "goto", "case", "delete", "new", "using", "typedef", "throw", "asm", "extern", "namespace",
    "template", "if", "for", "while", "do", "switch", "sizeof", "operator", "public", "private", "struct", "class",
}  # fmt: skip
_TYPE = (
    r"(?:(?:const|constexpr|static|volatile|unsigned|signed|long|typename|register|alignas\s*+\([^)]*\)|__align__\s*+\([^)]*\))\s+)*"
    r"[A-Za-z_][\w:]*+(?:\s*+<[^;={}]{0,400}?>)?(?:::\w+)*"
)
#: two words behind a `*`: the first is a qualifier that a macro spells (`float * MY_RESTRICT x = y`)
_MACRO = r"[A-Za-z_]\w*(?=\s++(?:const\s+)?[A-Za-z_]\w*\s*[=;,({\[])"
_MARK = rf"(?:\s|\*\s*+{_MACRO}|\*|&|\bconst\b|\b__restrict(?:__)?\b)++"
_DECLARATION = re.compile(
    rf"(?:^|(?<=[;{{}}]))\s*(?P<head>(?:for|if|while|switch)\s*+(?:constexpr\s*)?\(\s*)?(?P<type>{_TYPE})(?P<mark>{_MARK})(?P<name>[A-Za-z_]\w*)"
    r"\s*+(?=[=;,({\[:])"
)
_NEXT = re.compile(rf"\s*+(?P<mark>{_MARK})?(?P<name>[A-Za-z_]\w*)\s*+")
_ASSIGNMENT = re.compile(r"(?:^|(?<=[;{}()]))\s*+(?:else\s+)?([A-Za-z_]\w*)\s*+=(?!=)\s*+([^;{}]+)(?=;)")
_NAME = re.compile(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*")
_LAMBDA = re.compile(r"\[[^\[\]]*+\]\s*+\(([^()]*+)\)\s*+(?:mutable\s*+)?(?:->[^{;(]*+)?\{")
POINTER_CAST = re.compile(r"\s*+[A-Za-z_][\w:\s<>,]*?\*[\s*]*(?:const\s*|__restrict__\s*|volatile\s*)*")
NAMED_CAST = re.compile(r"(?:reinterpret|static|const)_cast\s*+<|\(?\s*+\b__cvta_generic_to_\w+")


@dataclass
class Place:
    """What a name stands for between two positions."""

    name: str
    start: int
    end: int
    kind: Kind
    level: Level = "global"
    parameter: str = ""
    #: declaration or assignment that made it, with its line; empty for parameters
    definition: str = ""
    #: its type is a template parameter, so that it may as well be a number
    generic: bool = False
    #: what the parameter is taken from without reading it
    assumed: str = ""
    #: its declared type
    type: str = ""

    def address(self) -> str:
        """What is taken for granted where a pointer comes from here."""
        own = self.kind == "view" and self.parameter and self.parameter != self.name
        return f"an address that {self.name} gives lies in {self.parameter}" if own else self.assumed


def joined(*parameters: str) -> str:
    """Parameters that an address may start from: `a or b`."""
    return " or ".join(dict.fromkeys(p for text in parameters for p in text.split(" or ") if p))


def is_scalar(kind: str) -> bool:
    """Whether a declared type is a number or a small vector of numbers."""
    return _SCALAR.fullmatch(squeeze(kind)) is not None


def opening(text: str, closing: int) -> int:
    """Position of the bracket that the one at `closing` closes; -1 where there is none."""
    depth = 0
    for position in range(closing, -1, -1):
        if text[position] in ")]}":
            depth += 1
        elif text[position] in "([{":
            depth -= 1
            if depth == 0:
                return position
    return -1


def _initialiser_end(text: str, position: int) -> int:
    """Where an initialiser ends: the next `,`, `;` or closing bracket outside brackets and template lists."""
    while position < len(text):
        c = text[position]
        if c in "([{":
            closing = matching(text, position)
            if closing < 0:
                return len(text)
            position = closing
        elif c == "<" and re.match(r"\w", text[position - 1]):
            closing = matching_angle(text, position)
            if closing > 0 and re.match(r"\s*(\(|::|\{)", text[closing + 1 : closing + 8]):
                position = closing
        elif c in ",;)]}":
            return position
        position += 1
    return position


class Scopes:
    """The places of one body; `text` is the body, `start` its position in the file."""

    def __init__(
        self, source: CSource, start: int, end: int, given: list[Place], line: Callable[[int], int],
    ) -> None:  # fmt: skip
        self.text = source.statements[start:end]
        self._line, self._path = line, source.path
        self._blocks = [(a - start, b - start) for a, b in source.blocks(start, end)]
        self.places: dict[str, list[Place]] = {}
        #: positions at which a name is declared, not used
        self.declared: set[int] = set()
        #: stretches of the text that initialise a pointer: calls in them compute addresses
        self.addresses: list[tuple[int, int]] = []
        for place in given:
            self.enter(place)

    def enter(self, place: Place) -> None:
        """Add a declaration."""
        bisect.insort(self.places.setdefault(place.name, []), place, key=lambda p: p.start)

    def at(self, name: str, position: int) -> Place | None:
        """What the name stands for there: the nearest declaration whose block is still open."""
        known = self.places.get(name, ())
        return next((p for p in reversed(known) if p.start <= position < p.end), None)

    def only(self, name: str) -> Place | None:
        """The one declaration of a name in the body; None where there are several."""
        known = self.places.get(name, ())
        return known[0] if len(known) == 1 else None

    def block_end(self, position: int) -> int:
        """Where the innermost block around a position ends."""
        return min((b for a, b in self._blocks if a < position <= b), default=len(self.text))

    def read(self) -> None:
        """Enter the declarations and assignments, in order."""
        for match in _LAMBDA.finditer(self.text):
            for parameter in match[1].split(","):
                if found := re.search(r"([*&]?)\s*+(?<!\w)([A-Za-z_]\w*+)\s*+$", parameter):
                    self.declared.add(match.start(1) + match[1].find(parameter) + found.start(2))
                    kind: Kind = "unknown" if found[1] == "*" else "local"
                    self.enter(Place(found[2], match.start(1), self.block_end(match.end()), kind))
        found_all = [(m.start("name"), m, True) for m in _DECLARATION.finditer(self.text)]
        found_all += [(m.start(1), m, False) for m in _ASSIGNMENT.finditer(self.text)]
        for position, match, declares in sorted(found_all, key=lambda item: item[0]):
            if not declares:
                self._assign(match[1], position, match.start(2), match.end(2))
            elif match["type"].split()[0].split("<")[0] not in _NO_TYPE and "__shared__" not in match["type"]:
                self._declare(match)

    def _declare(self, match: re.Match[str]) -> None:
        end = self.block_end(match.start("name"))
        if match["head"]:
            if not match["head"].startswith("for") and self.text[match.end() : match.end() + 1] != "=":
                return
            closing = matching(self.text, self.text.index("(", match.start("head")))
            following = re.compile(r"\s*+\{").match(self.text, closing + 1)
            until = self.block_end(following.end()) if following else self.text.find(";", closing)
            end = until if closing > 0 and until > 0 else end
        position, mark = match.start("name"), match["mark"]
        while found := _NEXT.match(self.text, position):
            mark = found["mark"] or ("" if position != match.start("name") else mark)
            name, at = found["name"], found.start("name")
            position, array = found.end(), False
            while self.text[position : position + 1] == "[":
                array = True
                closing = matching(self.text, position)
                if closing < 0:
                    return
                position = closing + 1
                while self.text[position : position + 1].isspace():
                    position += 1
            stop = _initialiser_end(self.text, position)
            self.declared.add(at)
            self.enter(self._made(match["type"], mark, name, array, (at, position, stop), end))
            if self.text[stop : stop + 1] != ",":
                return
            position = stop + 1

    def _made(self, kind: str, mark: str, name: str, array: bool, where: tuple[int, int, int], end: int) -> Place:
        at, begin, stop = where
        value = self.text[begin:stop].strip()
        place = Place(name, stop, end, "local", type=f"{kind}{mark}")
        written = f"{squeeze(kind + mark)} {name} {squeeze(value)}".strip()
        place.definition = f"{written} ({self._path}:{self._line(at)})"
        if value.startswith(":"):
            return place
        value_at = begin + len(self.text[begin:stop]) - len(self.text[begin:stop].lstrip())
        if "*" in mark and not array:
            self._point(place, value.lstrip("="), at)
            self.addresses.append((value_at, stop))
        elif "*" in mark:
            place.kind = "unknown"
        elif kind.split()[-1] == "auto" and value.startswith("="):
            self._automatic(place, value[1:].strip(), at, (value_at, stop))
        elif not is_scalar(kind):
            builds = value[:1] in {"(", "{"} or re.match(
                rf"=\s*(?:{re.escape(squeeze(kind))}\s*+[({{]|(?:\w+::)*make_\w+\s*+[(<])", value
            )
            source = next(self.bare(value, at), None) if builds else None
            if source is not None and source.kind in {"pointer", "view"}:
                place.kind, place.level, place.parameter = "view", source.level, source.parameter
        return place

    def _automatic(self, place: Place, value: str, at: int, where: tuple[int, int]) -> None:
        """`auto`: a pointer where the value is one, a view where it is made from one."""
        made = re.match(r"(?:\w+::)*(?:make_\w+|[A-Z]\w*)\s*+(?:<[^;]*>)?\s*+[({]", value)
        cast = NAMED_CAST.match(value)
        if (
            cast is not None
            or value.startswith("(")
            or not re.match(r"[\w:]+\s*+(?:<[^;]*>)?\s*+\(|[\w.]+\.\w+\s*+\(", value)
        ):
            stripped = value
            if cast is not None and cast[0].endswith("<"):
                closing = matching_angle(value, value.index("<"))
                if "*" not in value[:closing]:
                    return
                if re.search(r"\)\s*+\[", value[closing:]):
                    return
            elif (
                value.startswith("(")
                and not POINTER_CAST.fullmatch(value[1 : max(matching(value, 0), 1)])
                and "*" in value
            ):
                return
            source = next(self.bare(stripped, at), None)
            if source is not None and source.kind != "local":
                place.kind, place.level, place.parameter = source.kind, source.level, source.parameter
                self.addresses.append(where)
        elif made is not None:
            source = next(self.bare(value, at), None)
            if source is not None and source.kind in {"pointer", "view"}:
                place.kind, place.level, place.parameter = "view", source.level, source.parameter

    def _point(self, place: Place, value: str, at: int) -> None:
        """Where a pointer with that value points."""
        choices = re.split(r"(?<!:):(?!:)", value.partition("?")[2]) if "?" in value else [value]
        found = [list(self.bare(choice, at, addresses=True)) for choice in choices]
        sources = [s for places in found for s in places]
        firsts = [s for places in found if (s := next((p for p in places if p.kind in {"pointer", "view"}), None))]
        if firsts:
            place.kind, place.level, place.assumed = "pointer", firsts[0].level, firsts[0].address()
            place.parameter = joined(*(s.parameter for s in firsts))
        elif sources and not any(s.kind == "unknown" for s in sources):
            place.kind = "local"  # the address of a local variable or array
        elif not sources and (row := self._row(value, at)) is not None:
            place.kind, place.level, place.parameter = row.kind, row.level, row.parameter
        else:
            place.kind = "unknown"

    def _row(self, value: str, at: int) -> Place | None:
        """The array whose row, or whose stored pointer, a value is: `rows[i]`."""
        found = re.match(r"\s*+(?:\([^()]*\*\s*+\)\s*)?([A-Za-z_]\w*)\s*+\[", value)
        place = self.at(found[1], at) if found else None
        return place if place is not None and place.kind in {"pointer", "local"} else None

    def _assign(self, name: str, at: int, begin: int, stop: int) -> None:
        place = self.at(name, at)
        if place is None or place.kind not in {"pointer", "unknown"}:
            return
        made = Place(name, at, place.end, "unknown", type=place.type)
        self._point(made, self.text[begin:stop], at)
        self.addresses.append((begin, stop))
        if made.kind == "unknown":
            return
        if place.kind == "unknown":
            place.kind, place.level, place.parameter = made.kind, made.level, made.parameter
            place.assumed = made.assumed
            place.definition = f"{name} = {squeeze(self.text[begin:stop])} ({self._path}:{self._line(at)})"
        elif made.kind == "pointer":
            place.parameter = joined(place.parameter, made.parameter)

    def bare(self, text: str, position: int, *, addresses: bool = False) -> Iterator[Place]:
        """Pointers and views that an expression hands on without following them.

        `addresses`: also `&name[...]`, and local names.
        """
        masked = re.sub(r"(?:reinterpret|static|const)_cast\s*+<[^()]*>\s*(?=\()", lambda m: " " * len(m[0]), text)
        for match in _NAME.finditer(masked):
            before, after = masked[: match.start()].rstrip(), masked[match.end() :].lstrip()
            place = self.at(match[0], position)
            if place is None or _depth(masked, match.start()) > 0 or after.startswith(("==", "!=")):
                continue
            if place.kind == "local":
                if addresses and not after.startswith("("):
                    yield place
            elif after.startswith("["):
                if before.endswith("&") and not before.endswith("&&"):
                    yield place
            elif place.kind == "view":
                if addresses or not after.startswith((".", "->", "(")) or re.match(r"(?:\.|->)\s*+\w*ptr", after):
                    yield place
            elif not after.startswith("->") and not re.search(r"(?:^|[(,=+\-/?:&|<>!])\s*+\*$", before):
                yield place


def _depth(text: str, position: int) -> int:
    """How many square brackets are open at a position."""
    return text.count("[", 0, position) - text.count("]", 0, position)
