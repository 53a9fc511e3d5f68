"""Runs an analyzer as a user would, through the real SDK and command line, on a scripted model inside namespaces.

`run(...)` answers with everything that can be observed: status, output, what the model was asked, the files left.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import isolation
import scripted_model

Turns = list[list[dict[str, Any]]]
_HERE = Path(__file__).parent
ANSWER = "StructuredOutput"


@dataclass(frozen=True)
class Run:
    """What a run left behind."""

    status: int | None
    stdout: str
    stderr: str
    requests: list[dict[str, Any]]
    turns_left: int
    folder: Path

    def document(self, kind: str) -> dict[str, Any] | None:
        """The written analysis; None where there is none."""
        path = self.folder / f"{kind}_analysis.json"
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def scratchpad(self) -> str:
        return (self.folder / "SCRATCHPAD.md").read_text()

    def said_to_model(self) -> str:
        """All texts of the last request: what the model has been told by the end."""
        return "\n".join(texts(self.requests[-1]["messages"]))


def texts(value: Any) -> list[str]:
    """Every text in a request's messages, tool results included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    if isinstance(value, dict):
        return [text for key in ("text", "content") if key in value for text in texts(value[key])]
    return []


def answer(document: dict[str, Any]) -> list[dict[str, Any]]:
    """A turn that gives the structured answer."""
    return [{"tool": ANSWER, "input": document}]


def call(tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """A turn that calls a tool of the opscope server."""
    return [{"tool": f"mcp__opscope__{tool}", "input": arguments}]


def say(text: str) -> list[dict[str, Any]]:
    """A turn that only says something, which ends the agent's run."""
    return [{"text": text}]


def run(
    folder: Path, arguments: list[str], turns: Turns, *, cache: Path, home: Path | None = None,
    server: dict[str, Any] | None = None, environment: dict[str, str] | None = None, timeout: float = 150,
) -> Run:  # fmt: skip
    """Run a client command (after `python`) in `folder / out`, its model saying `turns`."""
    out = folder / "out"
    out.mkdir(parents=True, exist_ok=True)
    home = home or folder / "home"
    scenario = {
        "turns": turns, "arguments": [sys.executable, *arguments], "cwd": str(out), "home": str(home),
        "timeout": timeout, "server": server,
        "environment": {"OPSCOPE_CACHE_DIR": str(cache), **(environment or {})},
    }  # fmt: skip
    scenario_file, record_file = folder / "scenario.json", folder / "record.json"
    scenario_file.write_text(json.dumps(scenario))
    inside = [sys.executable, str(_HERE / "scripted_model.py"), str(scenario_file), str(record_file)]
    done = subprocess.run(
        isolation.command(inside, keep=[folder, cache]), capture_output=True, text=True, timeout=timeout + 60,
        check=False, cwd=folder, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_HERE), "TMPDIR": str(folder)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(record_file.read_text())
    return Run(**record, folder=out)


def free_of(document: dict[str, Any]) -> dict[str, Any]:
    """A document as an agent would write it: only what the schema requires, in words of its own."""
    return {
        name: document[name] for name in ("class_name", "file", "line", "phase", "attention", "totals")
    } | {
        "variables": [{"name": v["name"], "meaning": v["meaning"]} for v in document["variables"]],
        "kernels": [_kernel(kernel) for kernel in document["kernels"]],
    }  # fmt: skip


def _kernel(kernel: dict[str, Any]) -> dict[str, Any]:
    names = ("kernel_type", "operation", "flops", "matmul_flops", "memory_access", "file", "line")
    own = {name: kernel[name] for name in names} | {"analysis": "as the agent explains it"}
    below = kernel.get("kernels")
    return own | ({"kernels": [_kernel(part) for part in below]} if below else {})


__all__ = ["ANSWER", "Run", "answer", "call", "free_of", "run", "say", "scripted_model", "texts"]
