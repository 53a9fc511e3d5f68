"""Loads and stores of a CUDA body, and the accesses that reading does not resolve.

Subscripts, dereferences, members through a pointer, read-only loads, atomics and inline assembly are accesses where the
name leads back to a parameter or a shared array (cuda_scope.py). What goes through an object or a function that is not
read is kept by its spelling, so that an incomplete list says that it is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from opscope_schemas.tiling import MemoryOperation

from opscope_tools.kernels.ctext import CSource, matching, matching_angle, split_arguments, squeeze
from opscope_tools.kernels.cuda_access import Steps, neighbours
from opscope_tools.kernels.cuda_scope import NAMED_CAST, POINTER_CAST, Place, Scopes, joined, opening

_SUBSCRIPT = re.compile(r"(?<![\w.])(?<!->)(?<!::)([A-Za-z_]\w*+)((?:\s*+(?:\.|->)\s*+\w++)*+)\s*+\[")
_TAIL = re.compile(r"(?:\s*+(?:\.|->)\s*+\w+)?\s*(\+\+|--|[-+*/|&^]=|<<=|=(?!=))?")
_METHOD = re.compile(
    r"(?<![\w.])(?<!->)(?<!::)([A-Za-z_]\w*+)((?:\s*+(?:\.|->)\s*+\w++)++)\s*+(?:<[^;{}()]{0,400}>)?\s*+\("
)
_TEMPLATE = re.compile(r"(?<=[.>])\s*+template\s+(?=\w)")
_ARROW = re.compile(r"(?<![\w.])(?<!->)(?<!::)([A-Za-z_]\w*)\s*->\s*+\w+\b(?!\s*[\[(])")
_CALL = re.compile(r"(?<![\w:])([A-Za-z_][\w:]*+)\s*+(<[^;{}()]{0,400}>)?\s*+\(")
_READ_ONLY = re.compile(r"__ld(?:g|cs|ca|cg|cv|lu)")
_WRITE_THROUGH = re.compile(r"__st(?:cs|cg|wt|wb)")
_COPY = re.compile(r"(?i)cp_async|memcpy_async|tma_(?:load|store)")
_ASSEMBLY = re.compile(r"\b(?:asm|__asm__)\b(?:\s|\w++)*+\(")
_ASSEMBLED = re.compile(
    r"\b(?:(ld|cp\.async)|(st|red|atom))(?:\.\w+)*?\.(?:global|bulk)(?:\.\w+)*|\bcp\.async\.\w+(?:\.\w+)*"
)
#: members that give a size or an address, not an element
_HARMLESS = re.compile(
    r"(?i)sizes?|strides?|dim|ndim|rank|numel|shape|layout|length|\w*offset|(?:get_?)?(?:\w*_)?(?:ptr|pointer)|data|get|begin|end|"
    r"is_\w+|has_\w+|extent|thread_rank|sync"
)
_NO_CALL = {
    "if", "for", "while", "switch", "return", "sizeof", "decltype", "assert", "printf", "alignof", "defined", "min", "max",
    "static_assert", "reinterpret_cast", "static_cast", "const_cast", "__cvta_generic_to_shared", "asm", "volatile",
    "__cvta_generic_to_global", "__builtin_assume", "__builtin_assume_aligned", "catch", "constexpr", "noexcept", "rank", "size",
    "cast_smem_ptr_to_uint", "isShared", "__isGlobal", "__isShared", "__nv_cvta_generic_to_shared_impl",
}  # fmt: skip


@dataclass
class Access:
    """What the walk over one body finds."""

    loads: list[tuple[int, MemoryOperation]] = field(default_factory=list)
    stores: list[tuple[int, MemoryOperation]] = field(default_factory=list)
    #: spelling of an access that is not resolved
    unresolved: dict[str, None] = field(default_factory=dict)
    #: function that is handed a pointer into global memory -> spelling
    passed: dict[str, str] = field(default_factory=dict)
    #: function -> what each argument stands for, over all of its calls
    bound: dict[str, list[Place | None]] = field(default_factory=dict)


class Accesses:
    """Reads the accesses of one body; `scopes` has its declarations."""

    def __init__(
        self, source: CSource, start: int, scopes: Scopes, skipped: list[tuple[int, int]], *, file: str, via: str,
        line: Callable[[int], int], loop: Callable[[int], int], steps: Steps,
    ) -> None:  # fmt: skip
        self.source, self.start, self.scopes, self.text = source, start, scopes, scopes.text
        self.skipped, self.file, self.via, self.line, self.loop = skipped, file, via, line, loop
        self.found, self.steps = Access(), steps
        #: stretches that a dereference has accounted for
        self._within: list[tuple[int, int]] = []

    def read(self) -> Access:
        self._dereferences()
        self._calls()
        self._subscripts()
        self._members()
        self._assembly()
        self.found.loads.sort(key=lambda item: item[0])
        self.found.stores.sort(key=lambda item: item[0])
        return self.found

    def _skips(self, position: int) -> bool:
        return position in self.scopes.declared or any(a <= position < b for a, b in self.skipped)

    def _initialises_pointer(self, position: int) -> bool:
        return any(a <= position < b for a, b in self.scopes.addresses)

    def _name(self, text: str) -> None:
        self.found.unresolved.setdefault(text)

    def _add(self, place: Place, position: int, text: str, operator: str | None, operation: str = "") -> None:
        if place.kind == "local":
            return
        if place.kind != "pointer":
            self._name(f"{place.name}[...]" if text.startswith(place.name) else f"*{place.name}")
            return
        line, step = self.line(position), self.steps.lanes(place, text, position)
        width = self.steps.width(place, text)
        if re.compile(r"\s*+(?:\.|->)\s*+[A-Za-z_]").match(self.text, position + len(text)):
            step, width = "", None  # a member: neither the element's bytes nor its step
        made = MemoryOperation(
            line=line, file=self.file, level=place.level, expression=squeeze(text), loop=self.loop(line), via=self.via,
            operation=operation or ("store" if operator == "=" else "load"),
            parameter="" if place.level == "shared" else place.parameter, definition=place.definition,
            assumptions=(place.assumed,) if place.assumed else (), width=width,
            strides=(step,) if step else (), coalesced=neighbours(step) if place.level == "global" else "",
        )  # fmt: skip
        if operator == "=":
            self.found.stores.append((position, made))
            return
        self.found.loads.append((position, made))
        if operator:
            self.found.stores.append((position, made.model_copy(update={"operation": f"store {operator}"})))

    # subscripts and dereferences ---------------------------------------------------------------------------------

    def _subscripts(self) -> None:
        for match in _SUBSCRIPT.finditer(self.text):
            position = match.start()
            if self._skips(position):
                continue
            place = self.scopes.at(match[1], position)
            members = re.sub(r"\s", "", match[2])
            if place is None:
                place = None if members else self._of_file(match[1])
            if place is None or place.kind == "local":
                continue
            if members or place.kind != "pointer":
                if not self._initialises_pointer(position):
                    self._name(f"{match[1]}{members}[...]")
                continue
            end = self._closed(match.end() - 1)
            if end > 0:
                address = self._takes_address(position)
                if address and any(a <= position < b for a, b in self._within):
                    continue
                before = self.text[:position].rstrip()
                followed = before.endswith("*") and self._unary(len(before) - 1)  # `*p[i] = 1` reads p[i]
                operator = None if followed else self._operator(end)
                self._add(place, position, self.text[position:end], operator, "address" if address else "")
        for match in re.finditer(r"\)\s*+\[", self.text):
            first = opening(self.text, match.start())
            end = self._closed(match.end() - 1)
            if first < 0 or end < 0 or re.search(r"\]\s*+$", self.text[:first]):
                continue
            before = self.text[:first].rstrip()
            cast = re.search(r"(?:reinterpret|static|const)_cast\s*+<[^;]*>$", before[-300:])
            if cast is None and re.search(r"[\w>]$", before):
                continue  # a call: named by `_calls` or `_members`
            place = self._base(self.text[first + 1 : match.start()], match.start())
            position = first - len(cast[0]) if cast else first
            if place is not None and not self._takes_address(position):
                self._add(place, position, self.text[position:end], self._operator(end))

    def _of_file(self, name: str) -> Place | None:
        """An array in global or constant memory that the file declares outside functions."""
        found = re.search(rf"(?:__device__|__constant__)[^;{{}}()=]*?\b{re.escape(name)}\s*+\[", self.source.statements)
        if found is None:
            return None
        declared = f"{squeeze(found[0])}...] ({self.source.path}:{self.source.line(found.start())})"
        return Place(name, 0, len(self.text), "pointer", definition=declared)

    def _closed(self, position: int) -> int:
        """Just after the subscripts that open at a position; -1 where they do not close."""
        closing = matching(self.text, position)
        while closing > 0 and (following := re.compile(r"\s*+\[").match(self.text, closing + 1)):
            closing = matching(self.text, following.end() - 1)
        return closing + 1 if closing > 0 else -1

    def _operator(self, end: int) -> str | None:
        tail = _TAIL.match(self.text, end)
        return tail[1] if tail else None

    def _takes_address(self, position: int) -> bool:
        before = self.text[:position].rstrip()
        if not before.endswith("&") or before.endswith("&&"):
            return False
        return self._unary(len(before) - 1)

    def _unary(self, position: int) -> bool:
        """Whether the `*` or `&` there has no left operand."""
        before = self.text[:position].rstrip()
        if not before or before[-1] in "=,;{}(?:+-/%&|!<>[^~*":
            return not re.search(r"\w\s*+<[^;=]*>$", before[-120:]) or before.endswith("->")
        if before[-1] == ")":
            first = opening(before, len(before) - 1)
            inner = before[first + 1 : -1]
            if re.search(r"\b(?:if|for|while|switch)\s*+(?:constexpr\s*)?$", before[:first]):
                return True
            return POINTER_CAST.fullmatch(inner) is not None or re.fullmatch(
                r"\s*+(?:const\s+)?(?:float|double|half2?|int|unsigned|u?int\d+_t|u?long|size_t)\s*+", inner
            ) is not None  # fmt: skip
        return re.search(r"\b(?:return|else)$", before[-8:]) is not None

    def _dereferences(self) -> None:
        for match in re.finditer(r"\*(?!=)", self.text):
            position = match.start()
            if self.text[position + 1 : position + 2] == "*" or self._skips(position):
                continue
            bare = re.compile(r"\*\s*(?:\+\+|--)?\s*+([A-Za-z_]\w*)").match(self.text, position)
            if bare is not None and bare.start(1) in self.scopes.declared:
                continue
            place = self.scopes.at(bare[1], position) if bare else None
            plain = (
                place is not None
                and bare is not None
                and not re.compile(r"\s*+(?:\[|\(|\.|->)").match(self.text, bare.end())
            )
            pointer = plain and place is not None and place.kind in {"pointer", "unknown"}
            if not pointer and not self._unary(position):
                continue
            if re.search(r"\b(?:sizeof|decltype)\s*+\(\s*+$", self.text[:position][-40:]):
                continue
            end = self._operand_end(position + 1)
            operand = self.text[position + 1 : end]
            if re.match(r"\s*+[\w:]+\s*+(?:<[^;]*>)?\s*+\(", operand) and NAMED_CAST.match(operand.lstrip()) is None:
                continue  # the result of a call: named by `_calls` or `_members`
            base = place if plain else self._base(operand, position)
            if base is None or (base.kind == "view" and plain):
                continue
            if bare is not None and not plain and "[" in operand and "&" not in operand and "(" not in operand:
                self._name(f"*{base.name}[...]")  # an array of pointers
                continue
            if base.kind == "view":  # the address that one of its members gives
                base = replace(base, kind="pointer", assumed=base.address())
            self._within.append((position, end))
            shown = (
                operand
                if plain or operand.lstrip().startswith("(") or operand.startswith("re")
                else f"({operand.strip()})"
            )
            self._add(base, position, f"*{shown.strip()}", self._operator(end))

    def _operand_end(self, position: int) -> int:
        """Where the operand of a unary operator ends: casts, one primary, its postfixes."""
        text = self.text
        while True:
            while text[position : position + 1].isspace() or text[position : position + 1] in {"&", "*"}:
                position += 1
            if text[position : position + 2] in {"++", "--"}:
                position += 2
            elif text[position : position + 1] == "(":
                closing = matching(text, position)
                if closing < 0:
                    return len(text)
                cast = POINTER_CAST.fullmatch(text[position + 1 : closing])
                position = closing + 1
                if cast is None:
                    break
            else:
                word = re.compile(r"[\w:]+").match(text, position)
                position = word.end() if word else position + 1
                break
        while following := re.compile(r"\s*(\[|\(|\+\+|--|\.\s*+\w+|->\s*+\w+|<)").match(text, position):
            if following[1] in {"[", "("}:
                closing = matching(text, following.end() - 1)
            elif following[1] == "<":
                closing = matching_angle(text, following.end() - 1)
                if closing < 0 or not re.match(r"\s*+\(", text[closing + 1 :]):
                    return position
            else:
                closing = following.end() - 1
            if closing < 0:
                return len(text)
            position = closing + 1
        return position

    def _base(self, expression: str, position: int) -> Place | None:
        """The pointer that an address expression starts from."""
        sources = list(self.scopes.bare(expression, position, addresses=True))
        order = {"pointer": 0, "unknown": 1, "view": 2, "local": 3}
        return min(sources, key=lambda p: order[p.kind], default=None)

    # members, calls, assembly ------------------------------------------------------------------------------------

    def _members(self) -> None:
        for match in _ARROW.finditer(self.text):
            place = self.scopes.at(match[1], match.start())
            if place is not None and place.kind == "pointer" and not self._takes_address(match.start()):
                self._add(place, match.start(), match[0], self._operator(match.end()))
        plain = _TEMPLATE.sub(lambda m: " " * len(m[0]), self.text)
        for match in _METHOD.finditer(plain):
            place = self.scopes.at(match[1], match.start())
            members = re.sub(r"\s", "", match[2])
            last = re.split(r"\.|->", members)[-1]
            if place is None or place.kind == "local" or place.level == "shared":
                continue
            if _HARMLESS.fullmatch(last) is None and not self._initialises_pointer(match.start()):
                self._name(f"{match[1]}{members}(...)")

    def _calls(self) -> None:
        for match in _CALL.finditer(self.text):
            position, name = match.start(), match[1].rpartition("::")[2]
            if name in _NO_CALL or "ASSERT" in name or self._skips(position):
                continue
            closing = matching(self.text, match.end() - 1)
            if closing < 0:
                continue
            arguments = split_arguments(self.text[match.end() : closing])
            before = self.text[:position].rstrip()
            place = self.scopes.at(name, position) if "::" not in match[1] else None
            if place is not None and place.kind == "view" and not before.endswith((".", "->")):
                if not self._initialises_pointer(position):
                    self._name(f"{name}(...)")
                continue
            given = [next(self.scopes.bare(a, position, addresses=True), None) for a in arguments]
            handed = [next(self.scopes.bare(a, position), None) for a in arguments]
            pointers = [p for p in handed if p is not None and p.level == "global" and not p.generic]
            if _READ_ONLY.fullmatch(name) or _WRITE_THROUGH.fullmatch(name):
                base = self._base(arguments[0], position) if arguments else None
                if base is not None:
                    operator = "=" if _WRITE_THROUGH.fullmatch(name) else None
                    self._within.append((position, closing))
                    self._add(base, position, arguments[0], operator, name)
            elif re.match(r"atomic[A-Z]", name):
                base = self._base(arguments[0], position) if arguments else None
                if base is not None:
                    self._within.append((position, closing))
                    self._add(base, position, arguments[0], "=", name)
            elif _COPY.search(name):
                for argument, source in zip(arguments, handed, strict=True):
                    if source is not None and source.level == "global" and source.kind == "pointer":
                        self._add(source, position, argument, None, name)
            else:
                self._bind(name, given)
                if pointers and not self._initialises_pointer(position):
                    spelled = f"{'.' if before.endswith(('.', '->')) else ''}{name}(...)"
                    self.found.passed.setdefault(name, spelled)

    def _bind(self, name: str, given: list[Place | None]) -> None:
        """Put what the arguments of a call stand for beside those of earlier calls."""
        known = self.found.bound.get(name)
        if known is None:
            self.found.bound[name] = given
            return
        for index, (one, other) in enumerate(zip(known, given, strict=False)):
            if one is None or other is None or (one.kind, one.level) != (other.kind, other.level):
                known[index] = None
            else:
                known[index] = Place(one.name, 0, 0, one.kind, one.level, joined(one.parameter, other.parameter))

    def _assembly(self) -> None:
        """Inline assembly that reads or writes global memory."""
        for match in _ASSEMBLY.finditer(self.text):
            closing = matching(self.text, match.end() - 1)
            if closing < 0:
                continue
            written = self.source.original[self.start + match.end() : self.start + closing]
            for one in _ASSEMBLED.finditer(written):
                sources = [
                    p for p in self.scopes.bare(self.text[match.end() : closing].replace(":", ","), match.start())
                    if p.level == "global" and p.kind == "pointer"
                ]  # fmt: skip
                if sources:
                    self._add(sources[0], match.start(), sources[0].name, "=" if one[2] else None, one[0])
                else:
                    self._name(f'asm("{one[0]} ...")')
