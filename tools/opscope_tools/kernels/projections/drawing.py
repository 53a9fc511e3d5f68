"""A kernel drawn from its facts: which tile a program works on, and through which memories its data goes.

`ascii` and `svg` draw the same `Picture`; nothing in it is not also a fact of the description.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from opscope_schemas.resources import Resources
from opscope_schemas.tiling import Constraint, IndexMapping, KernelTiling, MemoryOperation, SharedArray

#: characters that a box holds at least, and pixels of one character
_NARROWEST = 44
_CHARACTER = 7.4
#: characters of a line of a screen, and of the name in front of it
_SCREEN, _NAME = 180, 13
_MOST = 6
#: elements of tiles, by what works on them
_LEVELS = {"block": "in a block", "warp": "in a warp", "thread": "in a thread", "instruction": "matrix unit"}


@dataclass(frozen=True)
class Picture:
    """What is drawn: the grid's axes, the tile, and the flow from global memory to global memory."""

    title: str
    axes: tuple[str, ...]
    indices: tuple[str, ...]
    tile: tuple[str, ...]
    reads: tuple[str, ...]
    shared: tuple[str, ...]
    work: tuple[str, ...]
    writes: tuple[str, ...]


def picture(kernel: KernelTiling) -> Picture:
    """The facts of a kernel that a drawing shows; what is left out for room is counted."""
    grid = next((g for g in kernel.grid if g.dimensions), None)
    fast = [i for i in kernel.instructions if i.operation not in {"barrier", "tl.debug_barrier"}]
    return Picture(
        title=f"{kernel.name} ({kernel.language}) {kernel.file}:{kernel.line}",
        axes=grid.dimensions if grid else (),
        indices=_most([f"{axis} -> {', '.join(_most(made))}" for axis, made in _indices(kernel.mapping).items()]),
        tile=_most([f"{t.name} = {_values(t.values)}" for t in kernel.tile]),
        reads=_most(_accesses(kernel.loads)),
        shared=_most([
            *map(_array, kernel.shared_memory),
            *(["operands of tl.dot, placed by the compiler"] if any(i.operation == "tl.dot" for i in fast) else []),
        ]),
        work=_most(_folded([(i.operation, i.line, "") for i in fast])),
        writes=_most(_accesses(kernel.stores)),
    )  # fmt: skip


def _array(array: SharedArray) -> str:
    if array.dynamic:
        return f"{array.name} {array.type}[]: bytes given at the launch"
    size = array.formula if array.bytes is None else str(array.bytes)
    told = f"[{']['.join(array.dimensions)}]: {size} bytes" if size else ": its size is not told"
    return f"{array.name} {array.type}{told}"


def _values(values: Sequence[str]) -> str:
    shown = " | ".join(values[:5])
    return f"{shown} | {len(values) - 5} more" if len(values) > 5 else shown or "not resolved"


def _indices(mapping: Sequence[IndexMapping]) -> dict[str, list[str]]:
    """What is made of each index of program, block or thread."""
    found: dict[str, list[str]] = {}
    for one in mapping:
        if one.axis:
            made = found.setdefault(one.axis, [])
            made += [] if (name := one.variable or one.expression) in made else [name]
    return found


def _folded(facts: Sequence[tuple[str, int, str]]) -> list[str]:
    """(what, line, more) of each fact: what is said of several lines once, with all of them."""
    lines: dict[tuple[str, str], dict[str, None]] = {}
    for what, line, more in facts:
        lines.setdefault((what, more), {})[str(line)] = None
    return [
        f"{what} ({'line' if len(found) == 1 else 'lines'} {', '.join(found)}{more})"
        for (what, more), found in lines.items()
    ]


def _accesses(operations: Sequence[MemoryOperation]) -> list[str]:
    found = []
    for one in operations:
        if one.level == "global":
            atomic = f", {one.operation}" if "atomic" in one.operation else ""
            shape = f" [{' x '.join(one.shape)}]" if one.shape else f" {one.width} bytes a thread" if one.width else ""
            looped = f", loop at line {one.loop}" if one.loop else ""
            found.append((f"{one.parameter or one.expression}{shape}", one.line, f"{looped}{atomic}"))
    return _folded(found)


def _most(lines: Sequence[str]) -> tuple[str, ...]:
    return (*lines[:_MOST], f"and {len(lines) - _MOST} more") if len(lines) > _MOST else tuple(lines)


def _sections(drawn: Picture) -> list[tuple[str, tuple[str, ...]]]:
    """Boxes from top to bottom; an empty one is not drawn."""
    registers = drawn.work or ("element by element",)
    return [
        (name, lines) for name, lines in (
            ("global memory, read", drawn.reads), ("shared memory", drawn.shared), ("registers, units", registers),
            ("global memory, written", drawn.writes),
        ) if lines
    ]  # fmt: skip


def ascii(kernel: KernelTiling) -> str:  # noqa: A001  # the drawing's own name
    """Boxes of plain characters: the grid with one tile marked, then the memories from top to bottom."""
    drawn = picture(kernel)
    lines = [drawn.title, ""]
    across = drawn.axes[0] if drawn.axes else "grid not resolved"
    rows = 3 if len(drawn.axes) > 1 else 1
    lines.append(f"grid   {' x '.join(drawn.axes) or across}   one cell: one {_unit(kernel)}")
    cells = "+----" * 6 + "+"
    for row in range(rows):
        lines.append("       " + cells)
        marked = ["|    "] * 6
        if row == min(1, rows - 1):
            marked[2] = "|####"
        side = f"  axis 1: {drawn.axes[1]}" if rows > 1 and row == 1 else ""
        lines.append("       " + "".join(marked) + "|" + side)
    lines += ["       " + cells, f"       axis 0: {across}"]
    lines += [f"       axis {n}: {axis}" for n, axis in enumerate(drawn.axes[2:], 2)]
    lines += [f"####   {text}" for text in (*drawn.indices, *drawn.tile)]
    lines.append("")
    sections = _sections(drawn)
    width = max((len(text) for _, inner in sections for text in inner), default=0)
    width = min(max(width, 24), 100)
    for number, (name, inner) in enumerate(sections):
        if number:
            lines.append(" " * 10 + "|")
            lines.append(" " * 10 + "v")
        lines.append(f"+-- {name} " + "-" * max(width - len(name) - 2, 0) + "+")
        lines += [f"| {text[:width]:{width}} |" for text in inner]
        lines.append("+" + "-" * (width + 2) + "+")
    return "\n".join(lines)


def _unit(kernel: KernelTiling) -> str:
    return "program" if kernel.language in {"triton", "gluon"} else "thread block"


def svg(kernel: KernelTiling) -> str:
    """The same as a stand-alone SVG document."""
    drawn = picture(kernel)
    parts: list[str] = []
    y, reach = 28, 0

    def text(x: int, at: int, shown: str, weight: str = "normal") -> None:
        nonlocal reach
        reach = max(reach, x + round(len(shown) * _CHARACTER))
        parts.append(f'<text x="{x}" y="{at}" font-weight="{weight}">{escape(shown)}</text>')

    text(16, y, drawn.title, "bold")
    y += 26
    text(16, y, f"grid: {' x '.join(drawn.axes) or 'not resolved'}; one cell is one {_unit(kernel)}")
    y += 12
    rows, columns, size = (3 if len(drawn.axes) > 1 else 1), 6, 34
    for row in range(rows):
        for column in range(columns):
            fill = "#f2a541" if (row, column) == (min(1, rows - 1), 2) else "#eef2f7"
            parts.append(
                f'<rect x="{16 + column * size}" y="{y + row * size}" width="{size}" height="{size}" fill="{fill}" '
                'stroke="#51606f"/>'
            )
    beside = y + 14
    for shown in (*drawn.indices, *drawn.tile):
        text(16 + columns * size + 20, beside, shown)
        beside += 18
    y = max(y + rows * size + 18, beside + 6)
    for number, axis in enumerate(drawn.axes):
        text(16, y, f"axis {number}: {axis}")
        y += 18
    colours = {"global memory, read": "#dbe9f6", "shared memory": "#dcf1e3", "registers, units": "#fbe9d0"}
    sections = _sections(drawn)
    width = 52 + round(max([len(t) for _, inner in sections for t in inner] + [_NARROWEST]) * _CHARACTER)
    for number, (name, inner) in enumerate(sections):
        if number:
            parts.append(
                f'<path d="M 60 {y} v 20 m -5 -7 l 5 7 l 5 -7" fill="none" stroke="#51606f" stroke-width="1.5"/>'
            )
            y += 22
        height = 26 + 18 * len(inner)
        parts.append(
            f'<rect x="16" y="{y}" width="{width - 32}" height="{height}" rx="4" fill="{colours.get(name, "#dbe9f6")}" '
            'stroke="#51606f"/>'
        )
        text(26, y + 18, name, "bold")
        for line, shown in enumerate(inner):
            text(26, y + 36 + 18 * line, shown)
        y += height
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(width, reach + 16)}" height="{y + 16}" '
        f'font-family="monospace" font-size="12"><title>{escape(drawn.title)}</title>'
        f'<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>'
    )


def _required(check: Constraint) -> str:
    """A check as it reads: a macro of a repository with its name, since it says what is asked of its argument."""
    own = check.kind.startswith("CHECK_")
    asked = f"{check.kind}({check.condition})" if own else check.condition
    return f"{asked} (when {check.when})" if check.when else asked


def _rows(name: str, values: Sequence[str]) -> Iterator[str]:
    """Values behind their name, on as many lines as they take; one that no line holds is cut."""
    held = ""
    for value in values:
        joined = f"{held} | {value}" if held else value
        if held and _NAME + len(joined) > _SCREEN:
            yield f"{name:{_NAME - 1}} {held}"
            name, joined = "", value
        held = joined if _NAME + len(joined) <= _SCREEN else f"{joined[: _SCREEN - _NAME - 3]}..."
    yield f"{name:{_NAME - 1}} {held}"


def screen(kernel: KernelTiling) -> str:
    """What matters of one kernel on one screen: the drawing, then launch, cost, limits and what was not resolved."""
    lines = [ascii(kernel), ""]

    def say(name: str, values: Sequence[str]) -> None:
        if values:
            lines.extend(_rows(name, list(dict.fromkeys(values))))

    say("tiles", [kernel.num_tiles] if kernel.num_tiles else [])
    say("block", [" x ".join(g.block) for g in kernel.grid if g.block])
    for level, name in _LEVELS.items():
        say(
            name, [f"{one.what} {' x '.join(one.shape) or one.elements}" for one in kernel.levels if one.level == level]
        )
    say("warps", [v.value for v in kernel.num_warps])
    say("stages", [v.value for v in kernel.num_stages])
    if kernel.autotune is not None:
        count = "unresolved" if kernel.autotune.count is None else kernel.autotune.count
        say("autotune", [f"{count} configurations, key {', '.join(kernel.autotune.key) or 'none'}"])
    if kernel.cost is not None:
        said = {"flops": "FLOPs", "read_bytes": "bytes read", "write_bytes": "bytes written"}
        for number, (name, what) in enumerate(said.items()):
            total, least = getattr(kernel.cost, name), "at least " if name in kernel.cost.at_least else ""
            told = f"{least}{total} {what}" if total else f"{what} not counted"
            say("" if number else f"per {_unit(kernel)}", [told])
        say("evaluated", [f"{name} {number:,}" for name, number in kernel.cost.evaluated.items()])
        say("not counted", list(kernel.cost.not_counted[:3]))
        say("taken to be", list(kernel.cost.conditions[:6]))
        say("sizes lacks", list(kernel.cost.unbound))
    not_whole = [
        f"line {a.line}: {a.coalesced}" for a in (*kernel.loads, *kernel.stores) if a.coalesced.startswith("no")
    ]
    say("not coalesced", not_whole[:4])
    say("requires", [_required(c) for c in kernel.constraints[:4]])
    does_not = [
        f"{f.arch}{'' if f.config is None else f' config {f.config}'}: {f.breaks}"
        for f in kernel.resources.fits
        if not f.fits
    ]
    say("does not fit", does_not[:4])
    if kernel.resources.builds or kernel.resources.statement != Resources().statement:
        say("compiling", [kernel.resources.statement])
    builds = [
        f"{b.arch}{'' if b.config is None else f' config {b.config}'}: {f'{b.threads} threads, ' if b.types else ''}{b.registers} registers, "
        f"{b.shared_bytes} shared bytes, {b.spill_store_bytes} spilled{f', {stages} stages' if b.types and (stages := b.options.get('stages')) else ''}"
        for b in kernel.resources.builds if not b.error
    ]  # fmt: skip
    say("compiled", builds[:4] + ([f"{len(builds) - 4} more"] if len(builds) > 4 else []))
    say("is made of", [*dict.fromkeys(text for b in kernel.resources.builds for text in b.types)])
    fitting = {f.config: None for f in kernel.resources.fits if f.fits and f.config is not None}
    say(
        "fits",
        [f"{len(fitting)} of {len({f.config for f in kernel.resources.fits})} configurations somewhere"]
        if fitting
        else [],
    )
    say("notes", list(kernel.notes[:2]))
    return "\n".join(lines)
