"""The tables of an answer, as data frames and in notebooks: every list of records that it holds, by the name of its field."""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from opscope_schemas.errors import InputError

#: rows of a table that a notebook shows
_SHOWN = 200


@dataclass(frozen=True)
class Table:
    """Columns, what each holds (with its unit, where the schema says it), and rows; nested records are columns with dots."""

    columns: tuple[str, ...]
    meanings: Mapping[str, str]
    rows: Sequence[Sequence[object]]

    def frame(self) -> Any:
        """A data frame of pandas, the meanings in its `attrs`; raises `InputError` where pandas is not installed."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError:
            raise InputError("pandas is not installed.", next_step="Install opscope[tables].") from None
        found = pandas.DataFrame(list(self.rows), columns=list(self.columns))
        found.attrs.update(self.meanings)
        return found

    def html(self) -> str:
        """The first rows; text is escaped, and what a column holds is its title."""
        heads = "".join(
            f'<th title="{html.escape(self.meanings.get(name, ""))}">{html.escape(name)}</th>' for name in self.columns
        )
        shown = self.rows[:_SHOWN]
        body = "".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in shown)
        more = f"<p>and {len(self.rows) - len(shown):,} rows more</p>" if len(shown) < len(self.rows) else ""
        return f"<table><tr>{heads}</tr>{body}</table>{more}"


def _cell(value: object) -> str:
    return "" if value is None else html.escape(str(value))


def tables_of(result: BaseModel, within: str = "", deep: int = 2) -> dict[str, Table]:
    """Tables by field, those of the answer first, then those of the records that it holds (`numbers.operators`)."""
    found: dict[str, Table] = {}
    inner: dict[str, Table] = {}
    for name in type(result).model_fields:
        value = getattr(result, name)
        if isinstance(value, BaseModel) and deep > 0:
            inner |= tables_of(value, f"{within}{name}.", deep - 1)
        elif isinstance(value, tuple) and value and all(isinstance(one, BaseModel) for one in value):
            found[within + name] = _table(value)
    return found | inner


def _table(records: Sequence[BaseModel]) -> Table:
    rows = [dict(_flat(record)) for record in records]
    columns = tuple(dict.fromkeys(name for row in rows for name in row))
    meanings = {name: text for record in records for name, text in _meanings(record)}
    return Table(columns, meanings, [[row.get(name) for name in columns] for row in rows])


def _flat(record: BaseModel, within: str = "") -> Iterator[tuple[str, object]]:
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, BaseModel):
            yield from _flat(value, f"{within}{name}.")
        else:
            yield within + name, value


def _meanings(record: BaseModel, within: str = "") -> Iterator[tuple[str, str]]:
    for name, field in type(record).model_fields.items():
        value = getattr(record, name)
        if isinstance(value, BaseModel):
            yield from _meanings(value, f"{within}{name}.")
        elif field.description:
            yield within + name, field.description


__all__ = ["Table", "tables_of"]
