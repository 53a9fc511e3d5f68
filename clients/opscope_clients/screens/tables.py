"""Tables on a screen, as CSV, and in files."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click
from opscope_schemas.common import ToolResult
from opscope_schemas.errors import InputError
from opscope_schemas.tables import Cell, TableResult
from opscope_schemas.units import amount, plain_bytes, seconds
from opscope_tools.running.runner import compact

from opscope_clients import console
from opscope_clients.screens.page import Page, number

_PICTURES: dict[str, Literal["svg", "png"]] = {".svg": "svg", ".png": "png"}
_ENDINGS = (".csv", ".json", ".parquet", *_PICTURES)
#: what a narrow screen shows first of what was asked for
_FIRST = ("calibrated_seconds", "bound_seconds", "tokens_per_second", "fits")


def options() -> Sequence[click.Parameter]:
    """How a table may be had beside on the screen."""
    return (
        click.Option(["--csv", "as_csv"], is_flag=True, help="Print it as CSV."),
        click.Option(["-o", "--out"], metavar="FILE", help="Write it: .csv, .json, .parquet; .svg, .png: curves."),
    )


def check(file: str) -> None:
    """Raises `InputError` for a file that no table can be written to, before anything is computed."""
    path = Path(file).expanduser()
    if path.suffix not in _ENDINGS:
        raise InputError(f"{file} is no table's name.", next_step=f"End it in {', '.join(_ENDINGS)}.")
    if path.exists():
        raise InputError(f"{file} exists.", next_step="Take another name, or remove it.")
    if not path.absolute().parent.is_dir():
        raise InputError(f"The folder of {file} does not exist.", next_step="Make it first.")
    if path.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow.", next_step="Install opscope[tables], or write .csv.")


def write(result: TableResult, file: str) -> None:
    """Write the table; raises `InputError` where it cannot be."""
    path = Path(file).expanduser()
    try:
        if path.suffix == ".csv":
            path.write_text(result.to_csv(), encoding="utf-8")
        elif path.suffix == ".json":
            path.write_text(json.dumps(compact(result), ensure_ascii=False), encoding="utf-8")
        elif path.suffix in _PICTURES:
            from opscope_tools.pictures import swept

            path.write_bytes(swept(result, _PICTURES[path.suffix]))
        else:
            result.to_pandas().to_parquet(path)
    except ValueError as error:
        raise InputError(
            f"There is nothing to draw: {error}", next_step="Vary a size: --values batch_size=1..64*2."
        ) from None
    except OSError as error:
        raise InputError(f"{file} cannot be written: {error.strerror}.") from None
    console.err().print(f"Written: {path}", soft_wrap=True)


def say_notes(result: ToolResult) -> None:
    """The notes on stderr, where the table went elsewhere."""
    for note in result.notes:
        console.err().print(f"note: {console.as_options(note)}", markup=False, soft_wrap=True)


def show_table(page: Page, result: TableResult) -> None:
    """The first rows, in units; columns that are the same in every row are told once."""
    rows = [[_shown(name, cell) for name, cell in zip(result.columns, row, strict=True)] for row in result.rows]
    names = [name.removesuffix("_seconds").replace("_per_second", "/s").replace("_", " ") for name in result.columns]
    same = [i for i in range(len(names)) if len(rows) > 1 and len({row[i] for row in rows}) == 1]
    page.say(", ".join(f"{names[i]} {rows[0][i]}" for i in same if rows[0][i]), "bold")
    shown = [i for i in range(len(names)) if i not in same]
    shown.sort(key=lambda i: (i >= result.varied, result.columns[i] not in _FIRST))
    texts = {i for i in shown if any(isinstance(row[i], (str, bool)) for row in result.rows)}
    page.table(
        "rows", [names[i] if i in texts else number(names[i]) for i in shown], ([row[i] for i in shown] for row in rows), total=result.count
    )  # fmt: skip
    page.say("--csv or --out FILE: every digit", "dim")


def _shown(name: str, cell: Cell) -> str:
    if cell is None or isinstance(cell, (bool, str)):
        return {None: "", True: "yes", False: "no"}.get(cell, str(cell)) if not isinstance(cell, str) else cell
    if name.endswith("_seconds"):
        return seconds(float(cell))
    if "bytes" in name:
        return plain_bytes(cell)
    if name.endswith("flops"):
        return amount(cell, "FLOP")
    return f"{cell:,.0f}" if isinstance(cell, int) or abs(cell) >= 1000 else f"{cell:.4g}"


__all__ = ["check", "options", "say_notes", "show_table", "write"]
