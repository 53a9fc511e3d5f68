"""Resources: JSON Schemas of documents and of every tool's answers, report templates, whole results by key, saved reports. Names, never paths, come in.

`opscope://schema/NAME`, `opscope://template/NAME`, `opscope://artifact/KEY`, `opscope://report/NAME`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError
from mcp.types import Resource
from opscope_cache.store import recall
from opscope_prompts import loader
from opscope_tools.running.workspace import Workspace
from pydantic_core import from_json

from opscope_server.listing import Listing

#: below the output folder, in the order in which a report's name is looked up
REPORT_FOLDERS = ("reports/implementations", "reports/repos", "posts")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\Z")
_KEY = re.compile(r"[0-9a-f]{40}\Z")
_SUFFIX = "_schema.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_names(tools: Sequence[str] = ()) -> list[str]:
    """What has a JSON Schema: documents that have a published one, and answers of `tools`."""
    return [*_published(), *tools]


def _published() -> list[str]:
    folder = files("opscope_schemas").joinpath("json")
    if not folder.is_dir():
        return []
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in folder.iterdir() if entry.name.endswith(_SUFFIX))


def reports(workspace: Workspace) -> dict[str, Path]:
    """Saved reports by name; links that lead out of the output folder are not followed."""
    found: dict[str, Path] = {}
    for folder in REPORT_FOLDERS:
        for path in sorted((workspace.output / folder).glob("*.md")):
            if _NAME.match(path.stem) and path.resolve().is_relative_to(workspace.output.resolve()):
                found.setdefault(path.stem, path)
    return found


def read_schema(name: str, listing: Listing | None = None) -> str:
    """The text of the schema `name`: of a document as it is published, of a listed tool's answer with all that it may hold."""
    if name in _published():
        return files("opscope_schemas").joinpath("json", f"{name}{_SUFFIX}").read_text(encoding="utf-8")
    if listing is None or name not in listing.names:
        raise _missing("schema", name, schema_names(listing.names if listing else ()))
    from opscope_server.definitions import schema_of

    return json.dumps({"$schema": _DIALECT, **schema_of(listing.tools()[name].result)}, ensure_ascii=False)


def read_template(name: str) -> str:
    """The source of the report template `name`."""
    try:
        return loader.template_text(name)
    except KeyError:
        raise _missing("template", name, loader.template_names()) from None


def _missing(kind: str, name: str, known: object) -> ResourceNotFoundError:
    names = ", ".join(known) if isinstance(known, list | tuple) else ""
    name = name if len(name) <= 100 else f"{name[:100]}..."
    return ResourceNotFoundError(
        f"No {kind} is called {name!r}. {'There are: ' + names + '.' if names else ''}".strip()
    )


def _json_text(text: str) -> str:
    """The text itself; raises `ValueError` where it is no JSON."""
    from_json(text)
    return text


def add_resources(server: MCPServer, workspace: Workspace, listing: Listing) -> None:
    """Register the four templates on `server`."""

    @server.resource("opscope://schema/{name}", name="schema", title="JSON Schema", mime_type="application/schema+json")
    def schema(name: str) -> str:
        """JSON Schema of an analysis document, or of a tool's answers."""
        return read_schema(name, listing)

    @server.resource("opscope://template/{name}", name="template", title="Report template", mime_type="text/plain")
    def template(name: str) -> str:
        """Source of a report template."""
        return read_template(name)

    @server.resource("opscope://artifact/{key}", name="artifact", title="Whole result", mime_type="application/json")
    def artifact(key: str) -> str:
        """A tool's whole, unshortened result, by the key that its answer names."""
        kept = recall(workspace.store, f"artifact/{key}", _json_text) if _KEY.match(key) else None
        if kept is None:
            raise ResourceNotFoundError(
                f"No result is kept under {key[:100]!r}. Call the tool again; its answer names the artifact."
            )
        return kept

    @server.resource("opscope://report/{name}", name="report", title="Saved report", mime_type="text/markdown")
    def report(name: str) -> str:
        """A report that write_report has saved."""
        found = reports(workspace)
        path = found.get(name.removesuffix(".md"))
        if path is None:
            raise _missing("saved report", name, list(found))
        return path.read_text(encoding="utf-8")

    del schema, template, artifact, report  # registered; the names serve only the SDK


def listed(workspace: Workspace, tools: Sequence[str]) -> list[Resource]:
    """What can be read now, by name: schemas, templates, saved reports."""

    def entries(kind: str, names: object, mime: str, title: Callable[[str], str]) -> list[Resource]:
        assert isinstance(names, list | tuple)
        return [
            Resource(uri=f"opscope://{kind}/{name}", name=f"{kind}/{name}", title=title(name), mime_type=mime)
            for name in names
        ]

    return [
        *entries("schema", _published(), "application/schema+json", lambda name: f"JSON Schema of {name} documents"),
        *entries("schema", tools, "application/schema+json", lambda name: f"JSON Schema of the answers of {name}"),
        *entries("template", loader.template_names(), "text/plain", lambda name: f"Template of the {name} report"),
        *entries("report", list(reports(workspace)), "text/markdown", lambda name: f"Saved report {name}"),
    ]
