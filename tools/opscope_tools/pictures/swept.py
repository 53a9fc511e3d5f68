"""A picture of a sweep: a field for each figure that was asked for, over the size that takes the most values, a line for each of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opscope_schemas.tables import Cell, TableResult

from opscope_tools.pictures import canvas

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH, _EACH, _FIELDS, _LINES = 9.0, 2.9, 6, 8
#: sizes that lie further apart than this from first to last stand on a logarithmic axis
_FAR = 8

Line = list[tuple[float, float]]


def swept(table: TableResult, form: canvas.Form = "svg") -> bytes:
    """The table's figures as curves. Raises `ValueError` where no size has two values, or no figure is known at two."""
    across = _across(table)
    fields = {name: _lines(table, across, at) for at, name in enumerate(table.columns) if at >= table.varied}
    fields = {name: lines for name, lines in fields.items() if any(len(line) > 1 for line in lines.values())}
    if not fields:
        raise ValueError("no figure is known at two points.")
    shown = dict(list(fields.items())[-_FIELDS:])  # times stand last, and are what a sweep on devices is made for
    names = list(dict.fromkeys(name for lines in shown.values() for name in lines))
    tint = dict(zip(names[:_LINES], canvas.LINES, strict=False))
    notes = [
        f"Not drawn: {', '.join(left)}." for left in ([n for n in fields if n not in shown], names[_LINES:]) if left
    ]
    rows = -(-len(shown) // 2)
    height = 1.3 + _EACH * rows

    def paint(sheet: Figure) -> None:
        from matplotlib.ticker import EngFormatter

        canvas.headed(sheet, f"{', '.join(shown)}", f"over {table.columns[across]}; {table.count:,} points")
        canvas.footed(sheet, notes)
        foot = canvas.foot_inches(notes, _WIDTH)
        for number, (title, lines) in enumerate(shown.items()):
            row, column = divmod(number, 2)
            left = 0.8 + column * _WIDTH / 2
            bottom = height - 0.95 - _EACH * (row + 1) + 0.75
            size = ((_WIDTH / 2 - 1.05) / _WIDTH, (_EACH - 1.0) / height)
            field = sheet.add_axes((left / _WIDTH, bottom / height, *size))
            for name in tint:
                points = sorted(lines.get(name, []))
                field.plot([x for x, _ in points], [y for _, y in points], "o-", color=tint[name], markersize=3)
            field.set_title(canvas.plain(title.replace("_", " ")), size=9, loc="left")
            field.set_xlabel(canvas.plain(table.columns[across]))
            xs = [x for line in lines.values() for x, _ in line]
            if min(xs) > 0 and max(xs) / min(xs) > _FAR:
                field.set_xscale("log", base=2)
            field.xaxis.set_major_formatter(lambda value, _: f"{value:,.12g}")
            field.yaxis.set_major_formatter(EngFormatter(_unit(title)))
            field.set_ylim(bottom=0)
        canvas.legend(sheet, tint if len(tint) > 1 else {}, foot)

    return canvas.drawn(paint, form, _WIDTH, height, f"{', '.join(shown)} over {table.columns[across]}")


def _across(table: TableResult) -> int:
    """The column of the point with the most numbers."""
    counts = [len({row[at] for row in table.rows if _number(row[at])}) for at in range(table.varied)]
    most = max(counts, default=0)
    if most < 2:
        raise ValueError("no size has two values.")
    return counts.index(most)


def _lines(table: TableResult, across: int, at: int) -> dict[str, Line]:
    """Points of a figure where it is known, by what else says the point and differs."""
    others = [i for i in range(table.varied) if i != across and len({row[i] for row in table.rows}) > 1]
    found: dict[str, Line] = {}
    for row in table.rows:
        name = ", ".join(_told(table.columns[i], row[i]) for i in others) or str(row[0])
        x, y = row[across], row[at]
        if isinstance(x, int | float) and isinstance(y, int | float) and _number(x) and _number(y):
            found.setdefault(name, []).append((x, y))
    return found


def _told(column: str, value: Cell) -> str:
    return str(value) if isinstance(value, str) else f"{column} {value:,}"


def _number(value: Cell) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unit(name: str) -> str:
    ends: Sequence[tuple[str, str]] = (("_seconds", "s"), ("flops", "FLOP"))
    return next((unit for end, unit in ends if name.endswith(end)), "B" if "bytes" in name else "")


__all__ = ["swept"]
