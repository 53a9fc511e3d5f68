"""The official suites: MCP conformance over HTTP for both requirement sets, the Inspector's strict linter over stdio.

They run where .ci/install-node has put Node and the suites; elsewhere they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from installed import MODULES, NODE

HERE = Path(__file__).parent

pytestmark = pytest.mark.nodejs


@pytest.fixture(scope="module")
def node() -> Path:
    if not (NODE.is_file() and (MODULES / "@modelcontextprotocol").is_dir()):
        pytest.skip("run .ci/install-node first")
    return NODE


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A cache and an output folder of their own; Node first on the path, for what the suites start themselves."""
    folder = tmp_path_factory.mktemp("conformance")
    return {
        **os.environ,
        "PATH": f"{NODE.parent}:{os.environ['PATH']}",
        "OPSCOPE_CACHE_DIR": str(folder / "cache"),
        "OPSCOPE_OUTPUT": str(folder),
        "HOME": str(folder),
        "NO_COLOR": "1",
    }


@pytest.fixture(scope="module")
def url(node: Path, environment: dict[str, str]) -> Iterator[str]:
    """The real server with the suite's fixtures, over HTTP on a free port."""
    del node
    process = subprocess.Popen(
        [sys.executable, str(HERE / "serve.py"), "0"],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    assert process.stderr
    address = next(found.group() for line in process.stderr if (found := re.search(r"http://\S+", line)))
    yield address
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def program(package: str, name: str) -> Path:
    """The script that a package's bin `name` stands for."""
    read = json.loads((MODULES / package / "package.json").read_text())
    return MODULES / package / str(read["bin"][name])


@pytest.mark.parametrize("requirements", ["2025-11-25", "2026-07-28"])
def test_no_scored_conformance_scenario_fails(
    node: Path, url: str, environment: dict[str, str], requirements: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    suite = program("@modelcontextprotocol/conformance", "conformance")
    done = subprocess.run(
        [str(node), str(suite), "server", "--url", url, "--requirements", requirements, "-o", str(tmp_path)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, env=environment,
    )  # fmt: skip
    summary = done.stdout[done.stdout.find("=== SUMMARY ===") :]
    scored, _, unscored = summary.partition("Not scored")
    failing = set(re.findall(r"^✗ ([\w-]+)", scored, re.MULTILINE))
    excused = set(re.findall(r"^\s+✗ ([\w-]+)", unscored, re.MULTILINE))
    passed = re.search(r"Total: (\d+) passed", summary)
    assert passed, done.stdout + done.stderr
    assert int(passed.group(1)) > 80
    assert failing <= excused, summary
    assert all(name.startswith("tasks-") for name in excused), "only the tasks extension, which the SDK lacks"
    assert done.returncode == 0
    with capsys.disabled():
        sys.stdout.write(
            f" {requirements}: {passed.group(1)} checks, no scored scenario failing; unscored: {len(excused)} "
        )


def inspect(node: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """The Inspector's command line over stdio, against exactly what a host starts."""
    inspector = program("@modelcontextprotocol/inspector", "mcp-inspector")
    return subprocess.run(
        [str(node), str(inspector), "--cli", sys.executable, "-m", "opscope_server", *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_finds_nothing_to_say_about_the_tools(node: Path, environment: dict[str, str], era: str) -> None:
    done = inspect(node, environment, "--method", "tools/list", "--strict", "--protocol-era", era)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(json.loads(done.stdout)["tools"]) >= 8
    assert done.stderr == ""


def test_the_inspector_calls_a_tool_and_renders_a_prompt(node: Path, environment: dict[str, str]) -> None:
    called = inspect(
        node, environment, "--method", "tools/call", "--tool-name", "resolve_class", "--tool-arg", "name=LlamaRMSNorm"
    )
    assert called.returncode == 0, called.stdout + called.stderr
    assert json.loads(called.stdout)["structuredContent"]["matches"][0]["qualified_name"].endswith(".LlamaRMSNorm")
    refused = inspect(
        node, environment, "--method", "tools/call", "--tool-name", "resolve_class", "--tool-arg", "nam=x"
    )
    assert refused.returncode == 5
    rendered = inspect(
        node, environment, "--method", "prompts/get", "--prompt-name", "analyze", "--prompt-args", "target=llama"
    )
    assert rendered.returncode == 0, rendered.stdout + rendered.stderr
    assert "llama" in json.loads(rendered.stdout)["messages"][0]["content"]["text"]
