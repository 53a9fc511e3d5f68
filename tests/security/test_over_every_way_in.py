"""The same refusals where a caller stands: a shell, an MCP client over stdio, one over HTTP."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.types import TextContent
from tally import SECRET, Tally

NAMES = ("subprocess.call", "os.system", "runpy.run_path", "torch.load", "torch.hub.load", "planted.make_system")


def calls(mark: Path, ground: Path) -> list[tuple[str, dict[str, Any]]]:
    """Calls that would run something, or read a foreign file, if names and paths were followed."""
    command = {
        "args": f"touch {mark}",
        "command": f"touch {mark}",
        "shell": True,
        "path_name": str(mark),
        "f": str(mark),
    }
    made: list[tuple[str, dict[str, Any]]] = [
        ("count_flops", {"target": "torch.nn.Linear", "config": {"factory": name, **command}}) for name in NAMES
    ]
    made += [("expand_refs", {"target": name}) for name in NAMES]
    foreign = str(ground / "outside/config.json")
    made += [(tool, {name: "llama", "config": foreign}) for tool, name in
             (("inspect_model", "model"), ("extract_config", "target"), ("count_flops", "target"))]  # fmt: skip
    return [*made, ("resolve_class", {"name": "AutoModel", "config": foreign}), ("inspect_model", {"model": foreign})]


def told(server: StdioServerParameters | str, mark: Path, ground: Path) -> list[str]:
    """What a client is told for each call; every one is refused."""

    async def main() -> list[str]:
        found = []
        async with Client(server) as client:
            for tool, arguments in calls(mark, ground):
                answer = await client.call_tool(tool, arguments)
                assert answer.is_error, (tool, arguments)
                found.append(" ".join(block.text for block in answer.content if isinstance(block, TextContent)))
        return found

    return anyio.run(main)


def counted(found: list[str], mark: Path, tally: Tally) -> None:
    tally.executions(2 * len(NAMES), [str(mark)] if mark.exists() else [])
    for said in found[2 * len(NAMES) :]:
        tally.file(said)
    assert all("Traceback" not in said and len(said) <= 600 for said in found)


@pytest.fixture
def options(ground: Path, index_folder: Path) -> list[str]:
    return [
        "--repo", f"planted={ground / 'trusted'}", "--trust", "planted", "--output", str(ground / "out"),
        "--cache-dir", str(index_folder),
    ]  # fmt: skip


def test_over_stdio(options: list[str], ground: Path, tmp_path: Path, tally: Tally) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "opscope_server", *options], env=dict(os.environ)
    )
    counted(told(server, tmp_path / "mark", ground), tmp_path / "mark", tally)


@pytest.fixture
def address(options: list[str], ground: Path) -> Iterator[str]:
    """Where a server listens that may read configurations in one folder."""
    process = subprocess.Popen(
        [sys.executable, "-m", "opscope_server", *options, "--http", "--port", "0", "--config-dir", str(ground / "configs")],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    yield next(said.split()[-1] for said in process.stderr if "serves MCP at" in said)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def test_over_http(address: str, ground: Path, tmp_path: Path, tally: Tally) -> None:
    counted(told(address, tmp_path / "mark", ground), tmp_path / "mark", tally)
    (ground / "out/config.json").write_text(json.dumps({"model_type": "llama", SECRET: SECRET}))
    (ground / "configs/named.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 512}))

    async def main() -> list[str]:
        async with Client(address) as client:
            found = []
            for path in ("out/config.json", "out", "configs/named.json"):
                answer = await client.call_tool("extract_config", {"target": "llama", "config": str(ground / path)})
                found.append(json.dumps(answer.structured_content) if not answer.is_error else str(answer.content))
            return found

    *refused, allowed = anyio.run(main)
    for said in refused:
        assert "--config-dir" in said
        tally.file(said)
    assert '"given": 512' in allowed
    (ground / "out/config.json").unlink()


@pytest.mark.parametrize("name", ["subprocess.call", "planted.make_system"])
def test_on_the_command_line(name: str, options: list[str], tmp_path: Path, tally: Tally) -> None:
    mark = tmp_path / "mark"
    config = json.dumps({"factory": name, "args": f"touch {mark}", "command": f"touch {mark}", "shell": True})
    for given in ([config], [str(tmp_path / "config.json")]):
        (tmp_path / "config.json").write_text(config)
        done = subprocess.run(
            [sys.executable, "-m", "opscope_clients", *options, "count-flops", "torch.nn.Linear", "--config", *given],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert "--trust NAME" in done.stderr
        tally.execution(mark)


def test_a_file_that_the_user_types_is_read_by_the_command_line(options: list[str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 1, "hidden_size": 64}')
    for typed in ("config.json", str(tmp_path)):
        done = subprocess.run(
            [sys.executable, "-m", "opscope_clients", *options, "extract-config", "llama", "--config", typed, "--json"],
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert '"given":64' in done.stdout.replace(" ", "")
