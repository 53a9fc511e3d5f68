"""Writes what is derived from the code and kept in the tree: `make golden`.

Tool definitions (golden/tools/NAME.json), the exported JSON Schemas (schemas/opscope_schemas/json), the commands of
Claude Code (clients/claude_code), the entry of the MCP registry (server.json), the shape of the command line for shells, the page of collectors (docs/evidence.md) and the pages of
reference (docs/reference). test_golden.py compares each with what `derived()` gives now.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import evidence_page
import reference_pages
import signatures
from opscope_clients import claude_code, completing
from opscope_clients.cli import opscope
from opscope_schemas.analysis import ModelAnalysis, ModuleAnalysis
from opscope_server.definitions import definition, schema_of
from opscope_tools.catalog import all_tools
from opscope_tools.running.tool import AnyTool
from pydantic import BaseModel

ROOT = Path(__file__).parent.parent.parent
TOOLS = ROOT / "tests/golden/tools"
SCHEMAS = ROOT / "schemas/opscope_schemas/json"
REFERENCE = ROOT / "docs/reference"
PLUGIN = ROOT / "clients/claude_code"
SIGNATURES = ROOT / "clients/opscope_clients/signatures.py"
#: as the MCP registry knows the server; the namespace is the account that publishes, and README repeats the name
REGISTERED = "io.github.opscope/opscope"
COMPLETIONS = ROOT / "clients/opscope_clients/completions.json"
DOCUMENTS: dict[str, type[BaseModel]] = {"module_analysis": ModuleAnalysis, "model_analysis": ModelAnalysis}


def defined(tool: AnyTool) -> str:
    """All that a client sees of `tool`: the answer's short schema on one line, and the whole of it as the resource has it."""
    told = definition(tool)
    held = {
        "name": told.name,
        "title": told.title,
        "description": told.description,
        "inputSchema": told.arguments,
        "outputSchema": "SHORT",
        "annotations": {"readOnlyHint": told.read_only, "idempotentHint": told.idempotent},
        f"opscope://schema/{told.name}": schema_of(tool.result),
    }
    return _text(held).replace('"SHORT"', json.dumps(told.answer, ensure_ascii=False), 1)


def document_schema(name: str) -> dict[str, Any]:
    """The published schema of an analysis document."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema_of(DOCUMENTS[name])}


def registry_entry() -> dict[str, Any]:
    """What the MCP registry lists: the package on PyPI, and how a host starts it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    package = {
        "registryType": "pypi", "identifier": project["name"], "version": project["version"], "runtimeHint": "uvx",
        "packageArguments": [{"type": "positional", "value": "serve"}], "transport": {"type": "stdio"},
    }  # fmt: skip
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": REGISTERED, "title": project["name"], "description": project["description"], "version": project["version"],
        "packages": [package],
    }  # fmt: skip


def derived() -> dict[Path, str]:
    """Every derived file and its text."""
    files = {TOOLS / f"{tool.name}.json": defined(tool) for tool in all_tools()}
    files |= {SCHEMAS / f"{name}_schema.json": _text(document_schema(name)) for name in DOCUMENTS}
    files |= {PLUGIN / name: held for name, held in claude_code.plugin_files().items()}
    files |= {PLUGIN / "project" / name: held for name, held in claude_code.project_commands().items()}
    files |= {ROOT / name: held for name, held in claude_code.marketplace_files().items()}
    files[ROOT / "server.json"] = _text(registry_entry())
    files[SIGNATURES] = signatures.text()
    files[ROOT / "docs/evidence.md"] = evidence_page.page()
    files[REFERENCE / "tools.md"] = reference_pages.tools()
    files[REFERENCE / "command-line.md"] = reference_pages.command_line(opscope)
    files[REFERENCE / "documents.md"] = reference_pages.documents({name: document_schema(name) for name in DOCUMENTS})
    files[COMPLETIONS] = completing.text(opscope)
    return files


def _text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    """Write everything anew, and remove definitions of tools that are gone."""
    files = derived()
    for path in TOOLS.glob("*.json"):
        if path not in files:
            path.unlink()
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{len(files)} files written.\n")


if __name__ == "__main__":
    main()
