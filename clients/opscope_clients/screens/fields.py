"""Any record as lines and lists: the screen of results that have none of their own, and of a kernel's every list."""

from __future__ import annotations

from collections.abc import Mapping

from opscope_schemas.common import ToolResult
from opscope_tools.running.runner import compact
from pydantic import BaseModel

from opscope_clients.screens.page import Page


def show_fields(page: Page, value: BaseModel, path: str = "") -> None:
    """Each field that holds something: a line, or a list where it holds records."""
    for name in type(value).model_fields:
        held, title = getattr(value, name), f"{path}{name.replace('_', ' ')}"
        if name in ToolResult.model_fields or held in (None, "", (), [], {}):
            continue
        if isinstance(held, BaseModel):
            show_fields(page, held, f"{title}: ")
        elif isinstance(held, list | tuple) and isinstance(held[0], BaseModel):
            columns = list(type(held[0]).model_fields)
            page.say(title, "bold")
            rows = ([_text(getattr(entry, column)) for column in columns] for entry in held)
            page.table(title, [column.replace("_", " ") for column in columns], rows)
        else:
            page.say(f"{title}: {_text(held)}")


def _text(value: object) -> str:
    plain = compact(value)
    if isinstance(plain, list):
        return ", ".join(_text(entry) for entry in plain)
    if isinstance(plain, Mapping):
        return ", ".join(f"{key}={_text(entry)}" for key, entry in plain.items() if entry not in (None, "", [], {}))
    if isinstance(plain, int) and not isinstance(plain, bool):
        return f"{plain:,}"
    return "" if plain is None else str(plain)


__all__ = ["show_fields"]
