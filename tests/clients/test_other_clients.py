"""Other projects' MCP clients, each in an environment of its own: fastmcp, langchain's adapter, openai-agents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opscope_prompts import loader
from opscope_tools.catalog import TOOL_NAMES

pytestmark = pytest.mark.clients

ROOT = Path(__file__).parents[2]
CLIENTS = ("fastmcp", "langchain", "openai-agents")


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> list[str]:
    """The command that runs one client's script."""
    python = ROOT / ".venv-clients" / request.param / "bin/python"
    if not python.is_file():
        pytest.skip(f"{python} is not there (make clients)")
    return [str(python), str(ROOT / f"tests/clients/foreign/with_{request.param.replace('-', '_')}.py")]


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, index_folder: Path, tmp_path: Path) -> Iterator[list[str]]:
    """Arguments by which a script reaches a server: a command it starts, or an address on loopback."""
    if request.param == "stdio":
        yield [str(Path(sys.executable).with_name("opscope")), str(index_folder)]
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "opscope_server", "--http", "--port", "0", "--cache-dir", str(index_folder)],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert process.stderr
    try:
        yield [process.stderr.readline().split()[-1]]
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_a_client_lists_the_tools_gets_an_answer_a_refusal_and_a_prompt(
    client: list[str], server: list[str], tmp_path: Path
) -> None:
    done = subprocess.run(
        [*client, *server], capture_output=True, text=True, timeout=300, cwd=tmp_path, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["tools"] == list(TOOL_NAMES)
    found = said["found"]
    source = (Path(sys.prefix) / "lib").glob(f"python3.*/site-packages/{found['file']}")
    assert next(source).read_text().splitlines()[found["line"] - 1].strip().startswith("def forward(self, x)")
    assert "LlamaMLP" in said["refused"]
    assert said["prompt"] == loader.prompt_text("analyze", {"target": "llama"})
