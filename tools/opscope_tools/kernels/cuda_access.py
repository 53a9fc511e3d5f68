"""How wide one thread of a CUDA kernel reads or writes, and how far the next thread's access lies from its own.

The index of an access is worked out down to `threadIdx.x`; its step from one lane of a warp to the next is exact where
the index is a polynomial in it, and not told otherwise. Lanes are taken to differ in `threadIdx.x` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.counts import Counts
from opscope_tools.kernels.ctext import CSource, matching, squeeze
from opscope_tools.kernels.cuda_expr import formula
from opscope_tools.kernels.cuda_host import Names
from opscope_tools.kernels.cuda_scope import Place, opening
from opscope_tools.kernels.cuda_types import element_bytes
from opscope_tools.kernels.symbols import Sym, render

_CAST = re.compile(
    r"reinterpret_cast\s*+<([^<>*]*)\*[^<>]*>|"
    r"\(\s*((?:const\s+|volatile\s+)?[A-Za-z_][\w:]*(?:\s++\w+)?)\s*+\*+\s*(?:(?:const|volatile|__restrict(?:__)?)\s*)*\)"
)
_LANE = "__lane__"
_POINTER = 8
_DEPTH = 12
#: characters of an index that is worth following
_LONGEST = 600


@dataclass
class Steps:
    """Widths and steps in one body; `uniform`: parameters of the kernel, which every thread gets alike."""

    source: CSource
    start: int
    end: int
    compile_time: frozenset[str]
    uniform: Collection[str] = ()
    #: what a name stands for, where it is an address
    at: Callable[[str], Place | None] = lambda _: None
    #: the declaration of a name that holds at a position of the body
    declared: Callable[[str, int], Place | None] = lambda _name, _position: None
    #: where the access stands that is read
    _position: int = -1
    _counts: Counts = field(default_factory=Counts)
    _names: Names = field(init=False)
    _active: set[str] = field(default_factory=set)
    _known: dict[tuple[str, int], Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._names = Names(self.source, self.start, self.end, self.compile_time)
        #: what a pointer is set to, by its name
        self._later: dict[str, tuple[str, ...]] = {}

    def width(self, place: Place, text: str) -> int | None:
        """Bytes that one thread moves: of the type that the access casts to, or that its pointer is declared with."""
        cast = _CAST.search(text)
        if cast is None and place.type.count("*") > 1:
            return _POINTER
        return element_bytes((cast[1] or cast[2]) if cast else place.type)

    def lanes(self, place: Place, text: str, position: int = -1) -> str:
        """Elements between the accesses of neighbouring lanes; '' where reading does not tell.

        `position`: where in the body the access stands; names mean what is declared around it.
        """
        self._position = position
        if len(_CAST.findall(text)) > 1 or (
            text.startswith("*") and "[" in text and "&" not in text and "(" not in text
        ):
            return ""  # offsets of several types; what an element of an array points to
        offset = self._offset(text, place, 0)
        wide, own, inside = self.width(place, text), element_bytes(place.type), _counts_own(text)
        if offset is None or (inside and not (wide and own)):
            return ""
        counts = self._counts
        written = re.sub(r"threadIdx\.x (?:% 32|& 31)\b", _LANE, offset)
        written = re.sub(r"threadIdx\.x (?:// 32|>> 5)\b", "0", written)
        found = counts.read(written)
        lane, thread = counts.whole(_LANE), counts.whole("threadIdx.x")
        moving = {str(f).strip("{}"): f + 1 for f in (lane, thread)}
        for name in found.variables():
            factor = counts.show(Formula.var(name))
            if ("threadIdx.x" in factor or _LANE in factor or "?" in factor) and name not in moving:
                return ""
        step = found.substitute(moving) - found
        if step.variables() & set(moving):
            return ""
        if inside and wide and own:
            step = step * own
            if any(coefficient % wide for coefficient in step.terms.values()):
                return ""
            step = Formula({monomial: coefficient / wide for monomial, coefficient in step.terms.items()})
        return counts.show(step)

    def _offset(self, text: str, place: Place | None, depth: int) -> str | None:
        """The offset of an address from where its pointer starts, over `threadIdx.x`; None where it is not read."""
        if depth > _DEPTH or place is None:
            return None
        rest = text.strip().lstrip("*&").strip()
        rest = _CAST.sub("", rest).strip()
        own = self._own(place, depth)
        if own is None or self._moves(place.name):
            return None
        indices: list[str] = []
        while rest.endswith("]"):
            first = opening(rest, len(rest) - 1)
            if first < 0:
                return None
            indices.insert(0, rest[first + 1 : -1])
            rest = rest[:first].strip()
        while rest.startswith("(") and matching(rest, 0) == len(rest) - 1:
            rest = rest[1:-1].strip()
        found = re.fullmatch(rf"&?\s*{re.escape(place.name)}\s*(?:\+\s*(.*))?", rest, re.DOTALL)
        if found is None or len(indices) > 1:
            return None
        if _CAST.search(text) and indices and (found[1] or own != "0"):
            return None  # offsets of two element types
        parts = [own, *(self._index(p) for p in (found[1], *indices) if p)]
        return " + ".join(f"({p})" for p in parts if p)

    def _own(self, place: Place, depth: int) -> str | None:
        """The offset that a pointer starts with: '0' for a kernel's parameter; what a device function is handed is unknown."""
        if place.level == "shared" or (not place.definition and place.name in self.uniform):
            return "0"
        written = place.definition.rpartition(" (")[0].partition("=")[2].strip()
        base = re.match(r"[&(\s]*([A-Za-z_]\w*)", _CAST.sub("", written))
        inner = self.at(base[1]) if base is not None and base[1] != place.name else None
        gathered = "[" in written and not written.lstrip("( ").startswith("&")  # a pointer that is loaded
        if inner is None or inner.kind != "pointer" or "?" in written or gathered:
            return None
        offset = self._offset(written, inner, depth + 1)
        if offset is None or not _CAST.search(written) or offset.strip("()") == "0":
            return offset
        return None if _differs(offset) else "0"  # a uniform offset counts elements of another type, alike for all

    def _moves(self, name: str) -> bool:
        """Whether a pointer is set or advanced by what may differ between threads."""
        if name not in self._later:
            text = self.source.statements[self.start : self.end]
            pattern = rf"(?:^|(?<=[;{{}})]))\s*{re.escape(name)}\s*[-+]?=(?!=)\s*+([^;]+);"
            self._later[name] = tuple(dict.fromkeys(re.findall(pattern, text)))
        later = self._later[name]
        return any(_differs(self._index(_CAST.sub("", value).replace("&", ""))) for value in later)

    def _index(self, text: str) -> str:
        return render(formula(squeeze(text), self))

    def __call__(self, name: str) -> Any:
        """What a name of an index stands for, as `Names` says it; `?` marks what may differ between threads."""
        if re.fullmatch(r"(threadIdx|blockIdx|blockDim|gridDim)\.[xyz]|warpSize", name):
            return Sym("32" if name == "warpSize" else name)
        if name in self.compile_time:
            return Sym(name, leaf=True)
        if "(" in name or "[" in name or name in self._active:
            return Sym(f"unknown['?{name}']")
        declared = self.declared(name, self._position) if self._position >= 0 else None
        key = name, -1 if declared is None else declared.start
        if key in self._known:
            return self._known[key]
        found = self._found(name, declared)
        if len(render(found)) > _LONGEST:
            found = Sym(f"unknown['?{name}']")
        self._known[key] = found
        return found

    def _found(self, name: str, declared: Place | None) -> Any:
        names = self._names
        if declared is not None and declared.start > 0:  # the same name may be declared anew in another loop
            end = min(self.start + declared.end, self.end)
            names = Names(self.source, self.start, end, self.compile_time)
        known = names.definitions(name)
        firsts = list(dict.fromkeys(squeeze(value) for _, value, _ in known if not _updates(name, value)))
        scaled = any(_updates(name, v) and not re.match(rf"{re.escape(name)} [-+]=", v) for _, v, _ in known)
        if not firsts:
            same = re.split(r"\.|->", name)[0] in self.uniform or re.fullmatch(r"(?:\w++::)*+k?[A-Z]\w*+", name)
            return Sym(name) if same else Sym(f"unknown['?{name}']")
        self._active.add(name)
        try:
            values = [formula(value, self) for value in firsts]
            later = [formula(v.partition("=")[2], self) for _, v, _ in known if _updates(name, v)]
        finally:
            self._active.discard(name)
        several = len(values) > 1 or scaled
        uneven = any(map(_differs, map(render, later))) or (several and any(map(_differs, map(render, values))))
        if uneven:
            return Sym(f"unknown['?{name}']")
        return values[0] if len(values) == 1 and _differs(render(values[0])) else Sym(name)


def _updates(name: str, value: str) -> bool:
    return re.match(rf"{re.escape(name)} \S+=", value) is not None


def _differs(text: str) -> bool:
    return "threadIdx" in text or "?" in text


def _counts_own(text: str) -> bool:
    """Whether the offset of an access that casts counts elements of the pointer's own type, not of the one cast to."""
    cast = _CAST.search(text)
    if cast is None:
        return False
    rest = text[cast.end() :].lstrip()
    if rest.startswith("("):
        closing = matching(rest, 0)
        return closing > 0 and not rest[closing + 1 :].lstrip().startswith("[")
    return rest.startswith("&")


def neighbours(step: str) -> str:
    """Whether a warp's accesses are side by side, from the step between lanes."""
    if step == "":
        return ""
    if step == "1":
        return "yes"
    if step == "-1":
        return "yes, downwards"
    if step == "0":
        return "one element for all"
    if step.lstrip("-").isdigit():
        return f"no: {step} elements apart"
    return f"where {step} == 1"
