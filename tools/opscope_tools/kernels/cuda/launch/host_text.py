"""Names of C++ code at a point of a file: constants, locals, macros; and the `dim3`s of a launch.

`Names` resolves a name to the definition that precedes the point in the same function, or to a constant or macro of the
file; what it used is kept in `used`. Ambiguous names (more than one value on different branches) stay names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.names.definitions import expand
from opscope_tools.kernels.cuda.names.element_types import element_bytes
from opscope_tools.kernels.cuda.source_text import CSource, matching, split_arguments, squeeze
from opscope_tools.kernels.host.worlds import Sym, leaf, render
from opscope_tools.kernels.records import MacroRef

_FUNCTION_BRACE = re.compile(
    r"\)\s*+(?:const|noexcept|override|mutable|->[\w:<>*&\s]++|__attribute__\s*+\(\([^)]*\)\))?\s*+$"
)
_BUILTIN = re.compile(r"^(threadIdx|blockIdx|blockDim|gridDim)(\.[xyz])?$|^(warpSize|sizeof.*)$")


_CALL = re.compile(r"(?<![\w.:>])([A-Za-z_]\w*)\s*+\(")
#: characters of a formula that a name is replaced by
_LONGEST = 600


def enclosing_function(source: CSource, position: int) -> tuple[int, int, str]:
    """(start of the heading, end of the body, name) of the outermost function around a position, or (0, end, '')."""
    text = source.statements
    for brace, end in source.all_blocks:
        if brace >= position:
            break
        if end < position:
            continue
        heading_start = max(text.rfind(c, 0, brace) for c in ";{}") + 1
        heading = text[heading_start:brace]
        if re.search(r"\b(namespace|class|struct|enum|extern|union)\b[^()]*$", heading) or not _FUNCTION_BRACE.search(
            heading
        ):
            continue
        found = re.search(
            r"(?<![~\w])([~\w]++)\s*+(?:<[^()]*>)?\s*+\(", heading.partition("template")[2].partition(">")[2] or heading
        )
        return heading_start, end, found[1] if found else ""
    return 0, len(text), ""


@dataclass
class Names:
    """Resolves names before `position` in the function that starts at `start`."""

    source: CSource
    start: int
    position: int
    compile_time: frozenset[str] = frozenset()
    macros: dict[str, MacroRef] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    _active: set[str] = field(default_factory=set)
    #: macros that may still be expanded: expansions of expansions grow without bound
    _expansions: int = 2000
    _known: dict[str, Any] = field(default_factory=dict)
    _circular: bool = False

    def __call__(self, name: str) -> Any:
        """An int, a `Sym`, or None for what stays a run-time name."""
        if (sized := re.fullmatch(r"sizeof\s*+\((.*)\)", name)) and (size := element_bytes(sized[1])) is not None:
            return 8 if "*" in sized[1] else size
        if name in self.compile_time or _BUILTIN.match(name):
            return Sym(name, leaf=True)
        if "(" in name:
            return self._macro_call(name)
        if name in self._active:
            self._circular = True
            return None
        if name in self._known:
            return self._known[name]
        self._active.add(name)
        around, self._circular = self._circular, False
        try:
            found = self._local(name)
            if found is None:
                found = self._constant(name)
        finally:
            self._active.discard(name)
        if found is None and "::" in name and re.match(r"[A-Z]\w*(<.*>)?::|.*::k?[A-Z]\w*$", name):
            found = Sym(name, leaf=True)  # a member of a type: a compile-time constant
        if isinstance(found, Sym) and len(found.text) > _LONGEST:
            found = leaf(name)  # a value built up over many lines is better read there
        if not self._circular:  # a circle that was cut here may be whole when another name is asked for
            self._known[name] = found
        self._circular = self._circular or around
        return found

    def forget(self) -> None:
        """Start a new list of what is used."""
        self.used, self._known = {}, {}

    def _local(self, name: str) -> Any:
        definitions = self.definitions(name)
        if not definitions:
            return None
        values = {squeeze(value) for _, value, _ in definitions}
        place, text, constexpr = definitions[-1]
        if len(values) > 1:
            for at, value, _ in definitions:
                self._use(f"{name} = {squeeze(value)}", at)
            return leaf(name)
        value = formula(text, self)
        if isinstance(value, Sym) and value.leaf and re.fullmatch(r"\{[^{}]*\}", value.text):
            self._use(f"{name} = {squeeze(text)}", place)
            return Sym(name, leaf=True) if constexpr else leaf(name)
        self._use(f"{name} = {squeeze(text)}", place)
        return value

    def _use(self, text: str, position: int) -> None:
        if len(text) < 300:
            self.used.setdefault(text, f"{text} ({self.source.path}:{self.source.line(position)})")

    def definitions(self, name: str) -> list[tuple[int, str, bool]]:
        """(position, value, constexpr) of the assignments of a local, in order."""
        pattern = re.compile(
            rf"((?:\b(?:const|constexpr|static|auto|unsigned|signed|int|long|short|size_t|bool|float|double|\w+_t|uint)\b[\s&]*+)*+)"
            rf"(?<![\w.>:])\b{re.escape(name)}\s*+(=(?!=)|\{{)\s*+([^;{{}}]*)[;}}]"
        )
        text = self.source.statements
        found: list[tuple[int, str, bool]] = []
        for match in pattern.finditer(text, self.start, self.position):
            place = match.start(2)
            if match[2] == "=" or match[1].strip():
                value = (split_arguments(match[3]) or [match[3]])[0]  # other declarators follow a comma
                if match[1].strip():  # a declaration: it is seen in its own block, and hides what is outside
                    if not self._seen(place):
                        continue
                    found.clear()
                found.append((place, value, "constexpr" in match[1]))
        first = min((place for place, *_ in found), default=self.position)
        changed = re.compile(
            rf"(?<![\w.>:]){re.escape(name)}\s*(?:([-+*/%&|^]|<<|>>)=(?!=)\s*+([^;,)]*)|(\+\+|--))"
            rf"|(\+\+|--)\s*{re.escape(name)}\b(?!\s*[.\[(])"
        )
        for match in changed.finditer(text, first, self.position):
            operator = match[1] or (match[3] or match[4])[0]
            found.append((match.start(), f"{name} {operator}= {match[2] or 1}", False))
        handed = re.compile(rf"[(,]\s*+&\s*{re.escape(name)}\s*+[,)]")
        found += [
            (m.start(), f"{name} := what a function makes of &{name}", False)
            for m in handed.finditer(text, first, self.position)
        ]
        return sorted(found)

    def certain(self, place: int) -> bool:
        """Whether a statement is on every way to the position: in a block that is still open, under no `if` of its own."""
        before = self.source.statements[max(self.start, place - 400) : place]
        return self._seen(place) and re.search(r"(?:\)|\belse)\s*+$", before) is None

    def _seen(self, place: int) -> bool:
        """Whether a declaration's block is still open at the position."""
        return all(end >= self.position for start, end in self.source.all_blocks if start < place < end)

    def _constant(self, name: str) -> Any:
        """A `constexpr` at file level, or an object macro."""
        pattern = rf"\b(?:constexpr|const)\b[\w\s:]*\b{re.escape(name)}\s*+(?:=|\{{)\s*+([^;{{}}]+)[;}}]"
        found = [m for m in re.finditer(pattern, self.source.statements) if self._outside(m.start())]
        values = {squeeze((split_arguments(m[1]) or [m[1]])[0]) for m in found}  # other declarators follow a comma
        if len(values) == 1:
            (text,) = values
            self._use(f"{name} = {text}", found[0].start())
            value = formula(text, self)
            return value if isinstance(value, int) else Sym(name, leaf=True)
        own = [m for m in self.source.macros if m.name == name and m.parameters is None and m.body]
        macro = own[0] if len({m.body for m in own}) == 1 else None if own else self.macros.get(name)
        if own and macro is None:
            for m in own:
                self.used.setdefault(f"{name} = {m.body}", f"#define {name} {squeeze(m.body)} ({m.file}:{m.line})")
            return Sym(name, leaf=True)
        if macro is not None and macro.parameters is None:
            self.used.setdefault(name, f"#define {name} {squeeze(macro.body)} ({macro.file}:{macro.line})")
            value = formula(macro.body, self)
            return value if isinstance(value, int) and _whole(macro.body) else Sym(name, leaf=True)
        return Sym(name, leaf=True) if found else None

    def _outside(self, place: int) -> bool:
        """Whether a constant is of the file, a namespace or a class: those of functions are seen there alone."""
        return not enclosing_function(self.source, place)[2]

    def textual(self, text: str) -> str:
        """The text with function macros put in that are no value by themselves: `#define F(a) a + 1` in `F(n) * 2`."""
        position = 0
        while (match := _CALL.search(text, position)) is not None:
            position = match.end()
            macro = self._function_macro(match[1])
            closing = matching(text, match.end() - 1)
            if macro is None or closing < 0 or _whole(macro.body) or len(macro.body) > 200 or len(text) > _LONGEST:
                continue
            self._expansions -= 1
            if self._expansions < 0 or re.search(rf"\b{re.escape(macro.name)}\s*+\(", macro.body):
                continue
            arguments = split_arguments(text[match.end() : closing])
            text = text[: match.start()] + expand(macro, arguments) + text[closing + 1 :]
            self.used.setdefault(macro.name, f"#define {macro.name} {squeeze(macro.body)} ({macro.file}:{macro.line})")
            position = match.start()  # what was put in may hold macros too
        return text

    def _function_macro(self, name: str) -> MacroRef | None:
        own = [m for m in self.source.macros if m.name == name and m.parameters is not None]
        if len({(m.parameters, m.body) for m in own}) > 1:
            return None  # which of them holds, a condition decides
        return (
            own[0]
            if own
            else self.macros.get(name)
            if (m := self.macros.get(name)) and m.parameters is not None
            else None
        )

    def _macro_call(self, text: str) -> Any:
        """A call of a function macro: its expansion."""
        name, _, rest = text.partition("(")
        macro = self._function_macro(name)
        self._expansions -= 1
        if (
            self._expansions < 0
            or macro is None
            or macro.parameters is None
            or name in self._active
            or len(macro.body) > 200
            or not _whole(macro.body)
        ):
            return None
        self._active.add(name)
        try:
            value = formula(expand(macro, split_arguments(rest[:-1])), self)
        finally:
            self._active.discard(name)
        self.used.setdefault(name, f"#define {name} {squeeze(macro.body)} ({macro.file}:{macro.line})")
        return None if isinstance(value, Sym) and value.leaf else value


def _whole(body: str) -> bool:
    """Whether a macro's body is one operand wherever it is put: a name, a number, a call, or text in parentheses."""
    text = body.strip()
    opening = text.find("(")
    if opening < 0:
        return re.fullmatch(r"[\w:.]+", text) is not None
    return re.fullmatch(r"[\w:]*\s*+", text[:opening]) is not None and matching(text, opening) == len(text) - 1


def dim3(text: str, names: Names, depth: int = 4) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(formulas along each axis, what stayed unresolved) of a grid or block argument."""
    text = squeeze(text)
    if (inner := re.match(r"^(?:::)?dim3\s*+[({](.*)[)}]$", text)) or (inner := re.match(r"^\{(.*)\}$", text)):
        return tuple(render(formula(a, names)) for a in split_arguments(inner[1])), ()
    if re.fullmatch(r"[\w.:\->]+", text) and depth:
        built = _declared(text, names)
        if built is not None:
            expressions, place = built
            names._use(f"dim3 {text}({', '.join(expressions)})", place)
            if len(expressions) == 1 and expressions[0] != text:
                return dim3(expressions[0], names, depth - 1)
            return tuple(render(formula(e, names)) for e in expressions), ()
        alternatives = names.definitions(text)
        if alternatives and len({squeeze(v) for _, v, _ in alternatives}) == 1:
            return dim3(alternatives[-1][1], names, depth - 1)
    value = formula(text, names)
    if isinstance(value, Sym) and value.text == "{" + text + "}" and not re.fullmatch(r"\w+", text):
        return (render(value),), (text,)
    if isinstance(value, Sym) and value.leaf and "{" in value.text and not names.used:
        return (value.text,), (text,)
    return (render(value),), ()


def _declared(name: str, names: Names) -> tuple[list[str], int] | None:
    """The component expressions of a `dim3` variable, member assignments applied, and where it is declared."""
    text, escaped = names.source.statements, re.escape(name)
    base: tuple[list[str], int] | None = None
    for match in re.compile(rf"\bdim3\s++(?:const\s++)?([^;]*?\b{escaped}\b)").finditer(
        text, names.start, names.position
    ):
        if not re.fullmatch(rf"(?:[^;]*,\s*)?{escaped}", match[1].strip(), re.DOTALL):
            continue
        after = match.end()
        following = re.compile(r"\s*([({=;,])").match(text, after)
        heading = text[names.start : match.start()]
        if following is None or heading.count("(") > heading.count(")"):  # a parameter: the caller's word
            continue
        if following[1] in "({":
            closing = matching(text, following.end() - 1)
            base = (split_arguments(text[following.end() : closing]), match.start())
        elif following[1] == "=":
            stop = text.find(";", following.end())
            value = squeeze(text[following.end() : stop])
            called = re.match(r"^(?:dim3\s*)?[({](.*)[)}]$", value)
            base = (split_arguments(called[1]) if called else [value], match.start())
        else:
            base = (["1"], match.start())
    again = re.compile(rf"(?<![\w.>]){escaped}\s*+=(?!=)\s*+([^;]+);")
    for match in again.finditer(text, base[1] if base else names.start, names.position):
        value = squeeze(match[1])
        called = re.match(r"^(?:dim3\s*)?[({](.*)[)}]$", value)
        if base is not None and match.start() > base[1]:
            sure = names.certain(match.start())
            base = (split_arguments(called[1]) if called and sure else [value if sure else name], match.start())
    parts: dict[str, tuple[str, int]] = {}
    for match in re.compile(rf"(?<![\w.]){escaped}\s*+\.\s*([xyz])\s*+=(?!=)\s*+([^;]+);").finditer(
        text, base[1] if base else names.start, names.position
    ):
        sure = names.certain(match.start())
        parts[match[1]] = (squeeze(match[2]) if sure else f"{squeeze(match[2])} or as before", match.start())
    if parts:
        start = base[0] if base else ["1"]
        full = [*start, *["1"] * (3 - len(start))]
        for axis, (value, _) in parts.items():
            full["xyz".index(axis)] = value
        while len(full) > 1 and full[-1] == "1":
            full.pop()
        base = (full, base[1] if base else min(p for _, p in parts.values()))
    return base


def member(variable: str, name: str, names: Names) -> str:
    """The last value assigned to `variable.name` before the position; empty where there is none."""
    pattern = re.compile(rf"(?<![\w.]){re.escape(variable)}\s*+(?:\.|->)\s*{name}\s*+=(?!=)\s*+([^;]+);")
    found = [m[1] for m in pattern.finditer(names.source.statements, names.start, names.position)]
    if found:
        return squeeze(found[-1])
    listed = re.compile(rf"\b{re.escape(variable)}\s*+=?\s*+\{{([^;]*)\}}\s*+;").search(
        names.source.statements, names.start, names.position
    )
    fields = ["gridDim", "blockDim", "dynamicSmemBytes", "stream"]
    if listed and name in fields:
        parts = split_arguments(listed[1])
        designated = [p.partition("=")[2].strip() for p in parts if p.lstrip().startswith(f".{name}")]
        if designated:
            return designated[0]
        index = fields.index(name)
        return parts[index] if index < len(parts) and not parts[index].startswith(".") else ""
    return ""
