"""What every result shares: the frozen base, where a source comes from, the base of tool results."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field


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
