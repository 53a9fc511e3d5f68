"""What `search_source` answers: definitions that hold what was asked for, each with its best line."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult


class SearchHit(Frozen):
    """One definition, and the line of it that answers best."""

    promised: ClassVar[tuple[str, ...]] = ("file", "line", "code", "within", "verified")

    file: str
    line: int
    code: str = Field(description="The line, stripped.")
    within: str = Field(default="", description="Qualified name of the definition around it, else the module's.")
    kind: str = Field(default="", description="class, function or method; in C++ also struct, macro and the like.")
    begins: int = Field(default=0, description="First line of the definition.")
    ends: int = Field(default=0, description="Its last line.")
    verified: bool = Field(default=False, description="For `calls:`: the name was followed to a definition in source.")
    alike: int = Field(default=0, description="Other definitions of that name with the same line, left out.")
    repository: str = Field(default="", description="Where several were searched.")


class SearchSourceResult(ToolResult):
    """Answer of `search_source`."""

    promised: ClassVar[tuple[str, ...]] = ("hits",)
    listed: ClassVar[int] = 0

    understood: tuple[str, ...] = Field(description="Forms, phrases and stems that were looked for.")
    hits: tuple[SearchHit, ...] = ()
    hit_count: int = Field(default=0, description="Hits that were ranked, before `offset` and `limit`.")
    definitions: int = Field(default=0, description="Definitions searched.")
