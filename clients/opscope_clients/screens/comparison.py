"""Sides beside each other."""

from __future__ import annotations

from opscope_schemas.comparison import CompareResult, Difference
from opscope_schemas.units import amount, plain_bytes, seconds

from opscope_clients.screens.page import Page, number, place

#: lines of a forward, and forwards
_LINES, _FORWARDS = 12, 3


def show_comparison(page: Page, result: CompareResult) -> None:
    """Totals, fields, parts and operators by effect, lines."""
    page.say(result.said, "bold")
    for side in result.sides:
        at = ", ".join(f"{name} {value:,}" for name, value in side.at.items() if isinstance(value, int))
        stack = f" ({side.stack})" if side.stack else ""
        page.say(f"{side.name}: {side.class_name}  {side.file}:{side.line}  {at}{stack}", "dim")
    names = [side.name for side in result.sides]
    page.table(
        "totals", ["total", *map(number, names), *(number("times") for _ in names[1:])],
        [
            (total.name.replace("_", " "), *map(_exact, total.shown, total.values), *("" if r is None else f"{r:.3g}" for r in total.ratio))
            for total in result.totals
        ],
    )  # fmt: skip
    page.table("fields", ["field", *names], [(field.name, *field.values) for field in result.config if field.counts])
    others = [field.name for field in result.config if not field.counts]
    page.say(f"also differ, in no formula of the totals: {', '.join(others)}" if others else "", "dim")
    for other in range(1, len(names)):
        columns = (number(names[0]), number(names[other]), number("effect"), place("line"))
        for title, listed in (("module", result.modules), ("operator", result.differences)):
            rows = [_row(row, result.by) for row in listed if row.side == other]
            page.table(f"{title}s", [title, *columns], rows)
        same = result.alike[other - 1]
        page.say(f"alike: {same.operators} operators, {_amount(result.by, same.figure)} on either side", "dim")
        differing = [forward for forward in result.forwards if forward.side == other]
        for forward in differing if page.whole else differing[:_FORWARDS]:
            page.say(f"{forward.what}  {forward.left_at} -> {forward.right_at}")
            page.sayings("lines", forward.lines, most=_LINES)


def _exact(shown: str, value: float | None) -> str:
    return f"{shown} ({value:,})" if isinstance(value, int) and value >= 1000 else shown


def _row(row: Difference, by: str) -> tuple[str, ...]:
    where = f"{row.file.rpartition('/')[2]}:{row.line}"
    if row.right_at:
        where += f" -> {row.right_at.rpartition('/')[2]}"
    sign = "+" if row.effect >= 0 else ""
    return (row.what, _amount(by, row.left), _amount(by, row.right), sign + _amount(by, row.effect), where)


def _amount(by: str, figure: float | None) -> str:
    if figure is None:
        return "-"
    return amount(figure, "FLOP") if by == "flops" else plain_bytes(figure) if by == "bytes" else seconds(figure)


__all__ = ["show_comparison"]
