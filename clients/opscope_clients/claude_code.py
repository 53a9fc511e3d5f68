"""Claude Code's commands, made of the server's own prompts: as a plugin, and as files of a project.

A command is a prompt with the tools that it may use without asking: those that the prompt names, under the names that
the host gives them there (`mcp__opscope__X` in a project, `mcp__plugin_opscope_opscope__X` in the plugin), and nothing else.
The files under clients/claude_code are what these functions return.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib.metadata import version

from opscope_prompts import loader
from opscope_tools.catalog import TOOL_NAMES

__all__ = ["COMMANDS", "command_text", "marketplace_files", "plugin_files", "project_commands"]

#: command -> prompt, and what the user types after it
COMMANDS: dict[str, tuple[str, str]] = {
    "analyze": ("analyze", "TARGET (llama, LlamaAttention, path.py:line)"),
    "analyze-repo": (
        "analyze_repo",
        "REPOSITORY (project: the open one; transformers, pytorch, or one given with --repo)",
    ),
    "hardware-post": ("hardware_post", "TOPIC (memory-bandwidth, system-calls, cache-hierarchy, ...)"),
}
#: what a command needs beside the server's tools: the post reads its sources on the web
_BESIDE: Mapping[str, tuple[str, ...]] = {"hardware-post": ("WebSearch", "WebFetch")}
_SAVED = {
    "analyze": "The report is saved to `reports/implementations/[name]-analysis.md` by `write_report`.",
    "analyze-repo": "The report is saved to `reports/repos/[name].md` by `write_report`.",
    "hardware-post": "The post is saved to `posts/llm-[name].md` by `write_report`.",
}
_SUMMARY = "What LLM implementations cost: FLOPs and bytes per source line, kernel tiling, checked reports"


def command_text(name: str, prefix: str) -> str:
    """The Markdown of the command `name`, where the server's tools are called `prefix` + their names."""
    prompt, hint = COMMANDS[name]
    # the first word is the target; whatever follows it is for the reader of the whole line
    body = loader.prompt_text(prompt, dict.fromkeys(loader.prompt_places(prompt), "$0"))
    head = [
        "---",
        f"description: {json.dumps(loader.prompt_description(prompt))}",
        f"argument-hint: {json.dumps(hint)}",
        f"allowed-tools: {', '.join((*(prefix + tool for tool in _named(body)), *_BESIDE.get(name, ())))}",
        "---",
    ]
    saved = f"{_SAVED[name]}\n\n" if name in _SAVED else ""
    return "\n".join([*head, "", "**Target:** $ARGUMENTS", "", saved + body])


def _named(body: str) -> list[str]:
    """The tools that a prompt names, in the catalogue's order."""
    words = set(re.findall(r"`(\w+)[(`]", body))
    return [name for name in TOOL_NAMES if name in words]


def project_commands(server: str = "opscope") -> dict[str, str]:
    """Command files by name, for a project's `.claude/commands`, beside a server that is called `server`."""
    return {f"{name}.md": command_text(name, f"mcp__{server}__") for name in COMMANDS}


def plugin_files() -> dict[str, str]:
    """The plugin's files by their path in it."""
    manifest = {
        "name": "opscope",
        "version": version("opscope"),
        "description": _SUMMARY,
        "author": {"name": "The opscope authors"},
        "license": "Apache-2.0",
        "keywords": ["mcp", "llm", "flops", "cuda", "triton"],
    }
    # loaded before the first turn, so that a headless run finds its tools
    server = {"command": "sh", "args": ["${CLAUDE_PLUGIN_ROOT}/server.sh"], "alwaysLoad": True}
    files = {
        ".claude-plugin/plugin.json": _json(manifest),
        ".mcp.json": _json({"mcpServers": {"opscope": server}}),
        "server.sh": _LAUNCHER,
    }
    commands = {f"commands/{name}.md": command_text(name, "mcp__plugin_opscope_opscope__") for name in COMMANDS}
    return files | commands


def marketplace_files() -> dict[str, str]:
    """What makes a checkout a marketplace that the plugin can be installed from."""
    plugin = {"name": "opscope", "source": "./clients/claude_code", "description": _SUMMARY}
    held = {"name": "opscope", "owner": {"name": "The opscope authors"}, "description": _SUMMARY, "plugins": [plugin]}
    return {".claude-plugin/marketplace.json": _json(held)}


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


_LAUNCHER = """\
#!/bin/sh
# Starts the opscope server: the one that OPSCOPE_COMMAND names, this checkout's own, or the one on PATH.
# The project that is open, if it is a project, can be asked about as the repository "project"; its code is only read.
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
for program in "$OPSCOPE_COMMAND" "$here/../../.venv/bin/opscope" opscope; do
  if [ -n "$program" ] && command -v "$program" >/dev/null; then
    for sign in .git pyproject.toml setup.py; do
      if [ -e "$sign" ]; then exec "$program" serve --repo "project=$PWD"; fi
    done
    exec "$program" serve
  fi
done
echo "opscope is not installed: run 'make setup' in its checkout, or 'pipx install' it, or set OPSCOPE_COMMAND." >&2
exit 1
"""
