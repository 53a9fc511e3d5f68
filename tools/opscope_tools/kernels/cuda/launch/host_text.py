"""Constants and macros of a file by name. What functions declare, host_run.py knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.cuda.declarations import constants_named
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.names.definitions import expand
from opscope_tools.kernels.cuda.names.element_types import element_bytes
from opscope_tools.kernels.cuda.source_text import CSource, matching, split_arguments, squeeze
from opscope_tools.kernels.records import MacroRef
from opscope_tools.kernels.values.expressions import Expression, Quantity, leaf

_BUILTIN = re.compile(r"^(threadIdx|blockIdx|blockDim|gridDim)(\.[xyz])?$|^(warpSize|sizeof.*)$")


_CALL = re.compile(r"(?<![\w.:>])([A-Za-z_]\w*)\s*+\(")
#: characters of a formula that a name is replaced by
LONGEST = 600


@dataclass
class Names:
    """The constants and macros of a file, by name; what the last ones rest on is kept in `used`."""

    source: CSource
    macros: Mapping[str, MacroRef] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)
    #: a constant that the headers of the file declare: its value, `name = text`, and where that stands
    elsewhere: Callable[[str], tuple[int, str, str] | None] = lambda _: None
    _active: set[str] = field(default_factory=set)
    #: macros that may still be expanded: expansions of expansions grow without bound
    _expansions: int = 2000
    _known: dict[str, tuple[Any, dict[str, str]]] = field(default_factory=dict)
    _circular: bool = False

    def __call__(self, name: str) -> Any:
        """An int, an `Expression`, or None for what stays a run-time name."""
        if (sized := re.fullmatch(r"sizeof\s*+\((.*)\)", name)) and (size := element_bytes(sized[1])) is not None:
            return 8 if "*" in sized[1] else size
        if _BUILTIN.match(name):
            return Quantity(name)
        if "(" in name:
            return self.macro_call(name, self)
        if name in self._active:
            self._circular = True
            return None
        if name not in self._known:
            value, used = self._looked_up(name)
            if not self._circular:  # a circle that was cut here may be whole when another name is asked for
                self._known[name] = value, used
        else:
            value, used = self._known[name]
        self.used.update({k: u for k, u in used.items() if k not in self.used})
        return value

    def _looked_up(self, name: str) -> tuple[Any, dict[str, str]]:
        self._active.add(name)
        around, self._circular = self._circular, False
        before, self.used = self.used, {}
        try:
            found = self._constant(name)
        finally:
            self._active.discard(name)
            used, self.used = self.used, before
        if found is None and "::" in name and re.match(r"[A-Z]\w*(<.*>)?::|.*::k?[A-Z]\w*$", name):
            found = Quantity(name)  # a member of a type: a compile-time constant
        if isinstance(found, Expression) and len(found.text) > LONGEST:
            found = leaf(name)  # a value built up over many lines is better read there
        self._circular = self._circular or around
        return found, used

    def forget(self) -> None:
        """Start a new list of what is used."""
        self.used, self._expansions = {}, 2000

    def _use(self, text: str, position: int) -> None:
        if len(text) < 300:
            self.used.setdefault(text, f"{text} ({self.source.path}:{self.source.line(position)})")

    def _constant(self, name: str) -> Any:
        """A `constexpr` at file level, or an object macro."""
        found = [one for one in constants_named(self.source, name) if one.plain and self._outside(one.position)]
        values = {one.text for one in found}
        if len(values) == 1:
            (text,) = values
            self._use(f"{name} = {text}", found[0].position)
            value = formula(text, self)
            return value if isinstance(value, int) else Quantity(name)
        own = [m for m in self.source.macros if m.name == name and m.parameters is None and m.body]
        macro = own[0] if len({m.body for m in own}) == 1 else None if own else self.macros.get(name)
        if own and macro is None:
            for m in own:
                self.used.setdefault(f"{name} = {m.body}", f"#define {name} {squeeze(m.body)} ({m.file}:{m.line})")
            return Quantity(name)
        if macro is not None and macro.parameters is None:
            self.used.setdefault(name, f"#define {name} {squeeze(macro.body)} ({macro.file}:{macro.line})")
            value = formula(macro.body, self)
            return value if isinstance(value, int) and _whole(macro.body) else Quantity(name)
        if found:
            return Quantity(name)
        told = self.elsewhere(name)
        if told is not None:
            value, said, at = told
            self.used.setdefault(said, f"{said} ({at})")
            return value
        return None

    def _outside(self, place: int) -> bool:
        """Whether a constant is of the file, a namespace or a class: those of functions are seen there alone."""
        around = self.source.function_around(place)
        return around is None or not around[3]

    def textual(self, text: str) -> str:
        """The text with function macros put in that are no value by themselves: `#define F(a) a + 1` in `F(n) * 2`."""
        position = 0
        while (match := _CALL.search(text, position)) is not None:
            position = match.end()
            macro = self._function_macro(match[1])
            closing = matching(text, match.end() - 1)
            if macro is None or closing < 0 or _whole(macro.body) or len(macro.body) > 200 or len(text) > LONGEST:
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

    def macro_call(self, text: str, resolve: Callable[[str], Any]) -> Any:
        """A call of a function macro: its expansion, in which `resolve` settles the names."""
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
            value = formula(expand(macro, split_arguments(rest[:-1])), resolve)
        finally:
            self._active.discard(name)
        self.used.setdefault(name, f"#define {name} {squeeze(macro.body)} ({macro.file}:{macro.line})")
        return None if isinstance(value, Quantity) else value


def _whole(body: str) -> bool:
    """Whether a macro's body is one operand wherever it is put: a name, a number, a call, or text in parentheses."""
    text = body.strip()
    opening = text.find("(")
    if opening < 0:
        return re.fullmatch(r"[\w:.]+", text) is not None
    return re.fullmatch(r"[\w:]*\s*+", text[:opening]) is not None and matching(text, opening) == len(text) - 1
