"""What every result shares: the frozen base, where a source comes from, the base of tool results."""

from __future__ import annotations

import html
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from opscope_schemas.errors import InputError
from opscope_schemas.frames import Table, tables_of


class Frozen(BaseModel):
    """Immutable value; unknown fields are an error, so that a misspelt one is never lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    #: fields that other programs rely on: written even where they hold their default; those of base classes count too
    promised: ClassVar[tuple[str, ...]] = ()


@cache
def promised_of(kind: type[BaseModel]) -> frozenset[str]:
    """The fields of a result's type that are written whatever they hold."""
    return frozenset(name for base in kind.__mro__ for name in vars(base).get("promised", ()))


class Repository(Frozen):
    """A tree of source that tools may read.

    `root` is the folder that result paths are relative to: for an installed package the folder that *holds* the
    package, so paths start with the package's own name (`transformers/models/llama/modeling_llama.py`).
    """

    name: str
    root: Path
    packages: tuple[str, ...] = Field(
        default=(), description="Top-level packages or folders below root that belong to it; empty: all of root."
    )
    version: str = Field(default="", description="Package version, or git commit, or empty where neither is known.")
    installed: bool = Field(default=False, description="An installed package: may be imported by the trace worker.")

    def relative(self, path: Path) -> str:
        """`path` as results print it: relative to the root, with forward slashes."""
        return path.relative_to(self.root).as_posix()


class Source(Frozen):
    """Which source a result speaks of."""

    repository: str
    version: str = ""


class ToolArguments(BaseModel):
    """Base of every tool's arguments: an unknown argument is refused by name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolResult(Frozen):
    """Base of every tool's result."""

    sources: tuple[Source, ...] = Field(default=(), description="The source trees this result speaks of.")
    notes: tuple[str, ...] = Field(default=(), description="What the reader must know beside the facts.")
    shortened: str = Field(
        default="", description="Empty where the result is whole; else what was left out and how to ask for it."
    )
    artifact: str = Field(default="", description="URI of the resource that holds the whole result.")

    def tables(self) -> dict[str, Table]:
        """The lists of records in this result, by field: `operators`, `numbers.operators`."""
        return tables_of(self)

    def to_pandas(self, table: str = "") -> Any:
        """One of `tables()` as a data frame of pandas; its `attrs` say what columns hold. Without a name, the only one.

        Raises `InputError` for a name that is not there, where several are and none was named, and without pandas.
        """
        found = self.tables()
        name = table or (next(iter(found)) if len(found) == 1 else "")
        if name not in found:
            said = (
                f"There is no table {name!r}" if name else "There are several tables" if found else "There is no table"
            )
            raise InputError(f"{said} in this answer.", next_step=f"Name one of {', '.join(found)}." if found else "")
        return found[name].frame()

    def _repr_html_(self) -> str:
        """What a notebook shows: what the answer says in words, then its tables, folded where there are several."""
        found = self.tables()
        lines = [str(getattr(self, "said", "") or ""), *self.notes, self.shortened]
        told = "".join(f"<p>{html.escape(line)}</p>" for line in lines if line)
        if len(found) == 1:
            return told + next(iter(found.values())).html()
        each = (
            f"<details><summary>{html.escape(name)} ({len(table.rows):,})</summary>{table.html()}</details>"
            for name, table in found.items()
        )
        return told + "".join(each)
