"""CUTLASS 3: launches of `device_kernel<Operator>` through CUTLASS' own launchers, and the tiles that an operator's aliases spell.

An operator is a chain of `using` declarations. `followed` walks it from the name that a launch gives, as far as the
repository holds it, and keeps every `Shape<_128, _128, _64>` on the way; a name that is a template parameter ends it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from opscope_schemas.tiling import Constexpr, Launch, Parameter, TileSize

from opscope_tools.kernels.cuda.declarations import aliases_named
from opscope_tools.kernels.cuda.source_text import (
    CSource,
    matching,
    matching_angle,
    names_called,
    opening_angle,
    split_arguments,
    squeeze,
    whole_words,
)

KERNEL = "device_kernel"
#: launcher -> the places of grid, block, shared bytes, stream, cluster and kernel among its arguments; None: none
LAUNCHERS: dict[str, tuple[int, int, int, int, int | None, int | None]] = {
    "kernel_launch": (0, 1, 2, 3, None, None),
    "launch": (0, 2, 3, 4, 1, 5),
    "launch_with_fallback_cluster": (0, 3, 4, 5, 1, 6),
    "launch_kernel_on_cluster": (0, 1, 3, 4, 2, 5),
}
_CLUSTER_PARAMETERS = ["grid_dims", "block_dims", "cluster_dims", "smem_size_in_bytes", "cuda_stream"]
_SIZE = re.compile(
    r"(?:cute::)?(?:_(\d+)|(?:Int|C|constant)\s*+<\s*+(?:int\s*+,\s*)?(\d+)\s*+>|(\d+))(?:\s*+\{\s*+\})?$"
)
_SHAPE = re.compile(r"\b(?:Shape|GemmShape|make_shape)\s*([<(])")
_STEPS = 200


def launcher_calls(source: CSource) -> Iterator[tuple[int, int, int, str]]:
    """(start, start and end of the arguments, form) of every call of a launcher."""
    code = source.code
    if not any(mark in code for mark in ("kernel_launch", "ClusterLauncher", "launch_kernel_on_cluster")):
        return
    for start, name, opening in names_called(code, "launch_kernel_on_cluster"):
        yield from _call(code, start, name, opening)
    for position, word in whole_words(code, "ClusterLauncher"):
        called = re.compile(r"\s*+::\s*+(launch\w*)\s*+\(").match(code, position + len(word))
        if called is not None:
            yield from _call(code, position, called[1], called.end() - 1)
    for position, word in whole_words(code, "kernel_launch"):
        angle = position + len(word)
        closing = matching_angle(code, angle) if code[angle : angle + 1] == "<" else -1
        bracket = re.compile(r"\s*+\(").match(code, closing + 1) if closing > 0 else None
        if bracket is not None:
            yield from _call(code, position, word, bracket.end() - 1)


def _call(code: str, start: int, name: str, opening: int) -> Iterator[tuple[int, int, int, str]]:
    closing = matching(code, opening)
    if name in LAUNCHERS and closing > 0:
        yield start, opening + 1, closing, f"cutlass::{name}"


def callee(form: str, called: str, arguments: list[str]) -> str:
    """The launched expression; '' where the call does not say it. `called`: the text before the arguments."""
    name = form.removeprefix("cutlass::")
    place = LAUNCHERS[name][-1]
    if name == "launch_kernel_on_cluster":
        place = 1
    if place is None:
        return f"{KERNEL}{squeeze(called).partition('kernel_launch')[2].rstrip('(').strip()}"
    return arguments[place] if place < len(arguments) else ""


def cluster_fields(name: str) -> list[str]:
    """The fields of the structure that `launch_kernel_on_cluster` takes, in order; none for other names."""
    return _CLUSTER_PARAMETERS if name == "ClusterLaunchParams" else []


# ---- the operator ---------------------------------------------------------------------------------------------------


@dataclass
class Operator:
    """What the aliases of an operator spell."""

    tiles: list[TileSize] = field(default_factory=list)
    #: names that a template leaves to its callers
    left: dict[str, str] = field(default_factory=dict)


def operators(
    constexprs: tuple[Constexpr, ...], parameters: Sequence[Parameter], launches: Sequence[Launch], here: str,
    around: Callable[[str], list[CSource]],
) -> Operator:  # fmt: skip
    """The tiles of every operator that launches give a kernel which takes the operator's own parameters.

    `around`: files to look for aliases in.
    """
    found = Operator()
    for index, parameter in enumerate(constexprs):
        if not any(re.search(rf"\b{re.escape(parameter.name)}\s*+::", p.type) for p in parameters):
            continue
        given = {(v.value, v.file or here, v.line): None for v in parameter.values if v.origin == "instantiation"}
        for launch in launches:
            spelled = re.match(r"[^<]*<(.*)>$", launch.kernel)
            arguments = split_arguments(spelled[1]) if spelled else []
            if index < len(arguments):
                given[arguments[index], launch.file or here, launch.line] = None
        for text, file, line in given:
            sources = around(file)
            source = next((s for s in sources if s.path == file), None)
            if source is not None:
                _follow(text, source, _position(source, line), sources, found)
    return found


def _position(source: CSource, line: int) -> int:
    return sum(len(text) + 1 for text in source.original.split("\n")[: line - 1])


def _follow(spelled: str, source: CSource, position: int, sources: list[CSource], found: Operator) -> None:
    pending = [("", spelled, source, position)]
    seen: set[tuple[str, str, int]] = set()
    for _ in range(_STEPS):
        if not pending:
            return
        name, text, where, at = pending.pop(0)
        _shapes(name, text, where, at, found)
        for scope, word in dict.fromkeys(_words(text)):
            known = _member(scope, word, sources) if scope else _alias(word, where, at, sources)
            if known is not None:
                key = (word, known[1].path, known[2])
                if key not in seen:
                    seen.add(key)
                    pending.append((word, *known))
            elif (of := _parameter_of(word, where, at)) is not None:
                found.left.setdefault(
                    word,
                    f"{word} is a template parameter of {of} ({where.path}:{where.line(at)}): its tiles are the caller's.",
                )


def _words(text: str) -> Iterator[tuple[str, str]]:
    """(class, name) of every name of a type: `Config<half>::Mainloop` is Mainloop of Config."""
    for match in re.finditer(r"(?<![\w.])[A-Za-z_]\w*", text):
        before = text[: match.start()].rstrip()
        scope = ""
        if before.endswith("::"):
            before = before[:-2].rstrip()
            start = opening_angle(before, len(before) - 1) if before.endswith(">") else len(before)
            named = re.search(r"(?<!\w)(\w++)\s*+$", before[: max(start, 0)])
            scope = named[1] if named else ""
        yield scope, match[0]


def _member(scope: str, word: str, sources: list[CSource]) -> tuple[str, CSource, int] | None:
    """The `using` of a class; of a namespace's name, the only one that there is."""
    for source in sources:
        for match in re.finditer(rf"\b(?:struct|class)\s+{re.escape(scope)}\b[^;{{()]*\{{", source.statements):
            end = source.block_end(match.end() - 1)
            for using in aliases_named(source, word):
                if match.end() <= using.start < end:
                    return using.text, source, using.start
    return None


def _alias(word: str, source: CSource, at: int, sources: list[CSource]) -> tuple[str, CSource, int] | None:
    """(text, file, position) of the `using` that a name means: in the blocks around, else the only one there is."""
    own = [one for one in aliases_named(source, word) if one.start != at]
    inside = [one for one in own if all(b >= at for a, b in source.all_blocks if a < one.start < b)]
    near = [one for one in inside if one.start < at] or inside
    if near:
        return near[-1].text, source, near[-1].start
    every = [(one, s) for s in sources for one in aliases_named(s, word) if one.start != at or s is not source]
    if len({one.text for one, _ in every}) != 1:
        return None
    found, other = every[0]
    return found.text, other, found.start


def _parameter_of(word: str, source: CSource, at: int) -> str | None:
    """The class or function around a position that has this name as a template parameter."""
    text = source.statements
    for a, b in source.all_blocks:
        if not a < at < b:
            continue
        start = max(text.rfind(c, 0, a) for c in ";{}") + 1
        heading = re.compile(r"\s*+template\s*+<").match(text, start)
        closing = matching_angle(text, heading.end() - 1) if heading is not None else -1
        if heading is not None and 0 < closing < a:
            parameters = split_arguments(text[heading.end() : closing])
            if any(re.search(rf"\b{re.escape(word)}\s*+(?:=.*)?$", p) for p in parameters):
                named = re.search(r"(?:struct|class)\s++(\w+)", text[closing:a]) or re.search(
                    r"(?<!\w)(\w++)\s*+\(", text[closing:a]
                )
                return named[1] if named else "a template"
    return None


def _shapes(name: str, text: str, source: CSource, at: int, found: Operator) -> None:
    """Enter every shape of constants that stands in an alias."""
    for match in _SHAPE.finditer(text):
        opening = match.end() - 1
        closing = matching_angle(text, opening) if match[1] == "<" else matching(text, opening)
        sizes = [_SIZE.match(part) for part in split_arguments(text[opening + 1 : closing])] if closing > 0 else []
        if not sizes or not all(sizes):
            continue
        value = " x ".join(next(g for g in m.groups() if g) for m in sizes if m)
        whole = re.match(r"(?:decltype\s*+\(\s*)?(?:\w+::)*\w+\s*+[<(]", text) and text[: match.start()].count("<") == 0
        use = f"using {name} = {text}" if name else text
        tile = TileSize(
            name=name if whole and name else f"{squeeze(text[match.start() : closing + 1])}{f' in {name}' if name else ''}",
            file=source.path, line=source.line(at), values=(value,), used_as=(use[:200],), basis="evaluated",
        )  # fmt: skip
        if tile not in found.tiles:
            found.tiles.append(tile)


__all__ = ["KERNEL", "LAUNCHERS", "Operator", "callee", "cluster_fields", "launcher_calls", "operators"]
