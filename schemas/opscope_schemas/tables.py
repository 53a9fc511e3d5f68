"""Answers that are tables: named columns, a row for each point."""

from __future__ import annotations

import csv
import io

from pydantic import Field

from opscope_schemas.common import ToolResult
from opscope_schemas.frames import Table

Cell = int | float | str | bool | None


class TableResult(ToolResult):
    """Answer of `sweep`: what was varied, then what was asked for. FLOPs, bytes, seconds; null: not known, or it does not fit."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    count: int = Field(description="Rows in all.")
    varied: int = Field(default=1, description="Columns in front that say the point; the others were asked for.")

    def to_csv(self) -> str:
        """The table as CSV with a header."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(["" if cell is None else cell for cell in row] for row in self.rows)
        return text.getvalue()

    def tables(self) -> dict[str, Table]:
        """The table, under the name `rows`."""
        return {"rows": Table(self.columns, {}, self.rows)}


__all__ = ["Cell", "TableResult"]
