"""The list of tools, kept: a server answers its first question without importing a single tool.

What a definition says follows from our own source and from pydantic, so it is kept under what both look like on disk. The
tools themselves are imported by the first call, or behind the first listing, whichever comes first.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import opscope_schemas
import opscope_tools
import pydantic
from opscope_cache import keys
from opscope_cache.store import Store, recall
from opscope_tools.catalog import TOOL_NAMES, any_imported, toolset
from opscope_tools.running.tool import AnyTool

_IMPORTING = threading.Lock()


@dataclass(frozen=True)
class Definition:
    """All that a client is told of a tool; `arguments` and `answer` are JSON Schemas."""

    name: str
    title: str
    description: str
    arguments: dict[str, Any]
    answer: dict[str, Any]
    read_only: bool
    idempotent: bool


@dataclass(frozen=True)
class Listing:
    """The tools that a server offers, in order, the names of the catalogue's others, and the way to the tools themselves."""

    definitions: tuple[Definition, ...]
    missing: tuple[str, ...]
    #: the tools by name; the first call may take as long as importing all of them does
    tools: Callable[[], Mapping[str, AnyTool]]

    @property
    def names(self) -> list[str]:
        """The tools' names, in order."""
        return [told.name for told in self.definitions]


def listing_of(tools: Sequence[AnyTool]) -> Listing:
    """The listing of tools that are imported already."""
    from opscope_server.definitions import definition

    named = {tool.name: tool for tool in tools}
    assert len(named) == len(tools), f"two tools bear one name: {[tool.name for tool in tools]}"
    missing = tuple(name for name in TOOL_NAMES if name not in named)
    return Listing(tuple(map(definition, tools)), missing, lambda: named)


def kept_listing(store: Store, names: Sequence[str]) -> Listing:
    """The listing of the toolsets and tools that are named (of all for none), from the store where it has been made before.

    Raises `UnknownNameError` for a name that is neither.
    """
    key = f"listing/{keys.of_document([_signature(), list(names)])}"
    found = recall(store, key, _read)
    if found is None:
        imported = any_imported()  # its source may have changed since
        made = listing_of(list(_tools(tuple(names)).values()))
        if not imported:
            store.put(key, json.dumps([[asdict(one) for one in made.definitions], made.missing]))
        return made
    definitions, missing = found
    return Listing(definitions, missing, lambda: _tools(tuple(names)))


def _tools(names: tuple[str, ...]) -> Mapping[str, AnyTool]:
    with _IMPORTING:  # a first call may come while they are imported behind the listing
        return {tool.name: tool for tool in toolset(names)}


def _read(text: str) -> tuple[tuple[Definition, ...], tuple[str, ...]]:
    """What `kept_listing` has put; raises `ValueError` for anything else."""
    try:
        definitions, missing = json.loads(text)
        return tuple(Definition(**one) for one in definitions), tuple(missing)
    except TypeError as error:
        raise ValueError(str(error)) from None


def _signature() -> list[object]:
    """What the source of every definition looks like on disk: changes with any edit, and costs no reading."""
    folders = (Path(__file__).parent, Path(opscope_tools.__path__[0]), Path(opscope_schemas.__path__[0]))
    seen = [(path, state.st_size, state.st_mtime_ns, state.st_ctime_ns) for f in folders for path, state in _sources(f)]
    return [sys.version, pydantic.VERSION, sorted(seen)]


def _sources(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _sources(Path(entry.path))
        elif entry.name.endswith(".py"):
            yield entry.path, entry.stat()
