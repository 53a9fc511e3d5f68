"""What `find_references` answers: every use of a definition, each with its place and kind."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult

ReferenceKind = Literal[
    "call",
    "import",
    "export",
    "subclass",
    "instantiate",
    "annotation",
    "read",
    "write",
    "define",
    "decorator",
    "string",
]
TargetKind = Literal["class", "function", "method", "field", "value"]


class ReferencePlace(Frozen):
    """One use of the target."""

    file: str
    line: int
    code: str = Field(description="First line of the statement; after `...` the line of the name where that is later.")
    kind: ReferenceKind
    within: str = Field(description="Qualified name of the def or class that holds the place, else the module's.")
    verified: bool = Field(description="The name leads to the target in that file; false: the object is not known.")
    repository: str = Field(default="", description="Given where it is not that of the target.")


class ReferenceCounts(Frozen):
    """How many references of one kind were read, before paging."""

    kind: ReferenceKind
    verified: int = 0
    unverified: int = 0


class FindReferencesResult(ToolResult):
    """Answer of `find_references`."""

    target: str
    target_kind: TargetKind
    qualified_name: str
    file: str = Field(description="Where the target is defined.")
    line: int
    names: tuple[str, ...] = Field(default=(), description="Words looked for, aliases included, where there are more.")
    references: tuple[ReferencePlace, ...] = ()
    reference_count: int = Field(default=0, description="References that the arguments ask for, before paging.")
    counts: tuple[ReferenceCounts, ...] = ()
    hits: int = Field(default=0, description="Occurrences of the words that could be references.")
    hits_read: int = Field(default=0, description="Occurrences read; fewer than `hits`: the counts are lower bounds.")
    files: int = Field(default=0, description="Files that hold the hits.")
    mentions: int = Field(default=0, description="Hits in comments and prose, not listed.")
    templates: int = Field(default=0, description="Hits in modular_*.py, templates that do not run; not listed.")
