"""Keys that change whenever an answer could: of documents, of the engine itself. Those of source trees are in trees.py."""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from pathlib import Path


def digest(*parts: str | bytes) -> str:
    """SHA-256 of the parts, each closed by its length so that no two lists of parts collide; 40 hex digits."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        sha.update(len(raw).to_bytes(8, "big"))
        sha.update(raw)
    return sha.hexdigest()[:40]


def of_document(document: object) -> str:
    """Digest of a JSON-able value, independent of key order."""
    return digest(json.dumps(document, sort_keys=True, separators=(",", ":"), default=str))


@cache
def engine_version() -> str:
    """Fingerprint of opscope's own source: a cached answer never outlives the code that gave it."""
    tops = {"opscope_tools", "opscope_schemas", "opscope_cache"}
    import importlib.util  # here: only callers that cache need it

    folders = []
    for top in sorted(tops):
        spec = importlib.util.find_spec(top)
        if spec is not None and spec.submodule_search_locations:
            folders.append(Path(next(iter(spec.submodule_search_locations))))
    return digest(*(_contents(folder) for folder in folders))


def _contents(folder: Path) -> bytes:
    return b"\0".join(
        path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".j2", ".md", ".json"}
    )


@cache
def index_version() -> str:
    """Fingerprint of what the index on disk depends on: the code that reads files, the grammar, the interpreter."""
    import importlib.metadata
    import importlib.util

    spec = importlib.util.find_spec("opscope_tools")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    tools = Path(next(iter(spec.submodule_search_locations)))
    grammar = importlib.metadata.version("tree-sitter-python")
    return digest(_contents(tools / "source"), _contents(tools / "index"), grammar, repr(sys.version_info[:2]))
