"""What the analyzers do without the SDK: their plain result, their own judgement of results, their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opscope_clients.agents import environment, sdk
from opscope_clients.agents.analysis import run, run_target
from opscope_clients.agents.request import Request
from opscope_clients.agents.scratchpad import Scratchpad
from opscope_clients.agents.server import Server
from opscope_clients.session_options import SessionOptions
from opscope_prompts.loader import agent_prompt
from opscope_schemas.errors import InputError, OutputError

AGENTS = Path(str(sdk.__file__)).parent
NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"


@pytest.fixture(scope="module")
def given(index_folder: Path) -> dict[str, str]:
    return {**os.environ, "OPSCOPE_CACHE_DIR": str(index_folder), "COLUMNS": "120"}


def python(given: dict[str, str], *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=given, cwd=cwd, check=False
    )


# ---- without an agent


@pytest.mark.parametrize(("kind", "target"), [("module", NORM), ("model", "LlamaMLP")])
def test_without_an_agent_the_document_is_that_of_the_command_line(
    given: dict[str, str], tmp_path: Path, kind: str, target: str
) -> None:
    script = str(AGENTS / f"{kind}_analyzer_agent_sdk.py")
    done = python(given, script, f"--{kind}", target, "--no-agent", "-o", str(tmp_path / "a"))
    assert done.returncode == 0, done.stderr
    other = python(given, "-m", "opscope_clients", kind, f"--{kind}", target, "-o", str(tmp_path / "b"))
    assert other.returncode == 0, other.stderr
    name = f"{kind}_analysis.json"
    assert (tmp_path / "a" / name).read_text() == (tmp_path / "b" / name).read_text()
    assert f"Written: {name}" in (tmp_path / "a/SCRATCHPAD.md").read_text()


def test_without_an_agent_a_missing_source_stops_with_the_reason_too(given: dict[str, str], tmp_path: Path) -> None:
    module = "opscope_clients.agents.module_analyzer_agent_sdk"
    done = python(given, "-m", module, "--module", "LlamaRMSNrm", "--no-agent", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("opscope: No class is called 'LlamaRMSNrm'.")
    assert done.stderr.count("\n") == 1
    assert done.stderr.removeprefix("opscope: ") in (tmp_path / "SCRATCHPAD.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["SCRATCHPAD.md"]


def test_the_sdk_is_loaded_only_where_an_agent_is_asked_for(given: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['claude_agent_sdk'] = None; sys.argv = ['x', '--module', sys.argv[1], *sys.argv[2:]]\n"
        "from opscope_clients.agents.module_analyzer_agent_sdk import main; main()"
    )
    without = python(given, "-c", code, NORM, "--no-agent", "-o", str(tmp_path))
    assert without.returncode == 0, without.stderr
    asked = python(given, "-c", code, NORM, "-o", str(tmp_path / "none"))
    assert asked.returncode == 1
    assert asked.stderr == (
        "opscope: An agent needs claude-agent-sdk, which is not installed. "
        "Install it with: pip install 'opscope[agent]'; --no-agent needs none.\n"
    )
    assert not (tmp_path / "none").exists()


def test_analyze_with_an_agent_says_what_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)
    with pytest.raises(sdk.MissingError, match="pip install 'opscope\\[agent\\]'"):
        run_target("llama", SessionOptions(output=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [("llama", "--name", "x"), ("llama", "mixtral"), ("llama", "--kind", "repo")])
def test_analyze_with_an_agent_takes_one_target_and_nothing_of_a_report(
    given: dict[str, str], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    done = python(given, "-m", "opscope_clients", "analyze", "--agent", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "--agent analyses one model or class" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_at_a_url_takes_no_sources_of_ours(given: dict[str, str], tmp_path: Path) -> None:
    module = "opscope_clients.agents.module_analyzer_agent_sdk"
    arguments = ("--module", NORM, "--http", "http://127.0.0.1:9/mcp", "--transformers", str(tmp_path))
    done = python(given, "-m", module, *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert "reads the sources that it was started with" in done.stderr


@pytest.mark.parametrize("program", ["/bin/false", "/does/not/exist"])
def test_a_server_that_cannot_start_is_one_sentence(
    program: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    request = Request(kind="module", target=NORM, server=Server(SessionOptions()), folder=tmp_path, agent=False)
    with pytest.raises(Exception, match=r"^The connection to the opscope server ended"):
        run(request)
    assert "The connection to the opscope server ended" in (tmp_path / "SCRATCHPAD.md").read_text()


# ---- what a result is worth


def result(**fields: Any) -> SimpleNamespace:
    whole = {"subtype": "success", "is_error": False, "permission_denials": [], "structured_output": {"a": 1},
             "errors": None, "result": "done"}  # fmt: skip
    return SimpleNamespace(**(whole | fields))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, []),
        ({"structured_output": None}, ["The agent stopped without a structured answer."]),
        ({"permission_denials": [{"tool_name": "Bash"}]}, ["The agent was denied the tool Bash."]),
        ({"is_error": True, "result": "overloaded."}, ["The agent's run ended with success: overloaded."]),
        (
            {"subtype": "error_max_turns", "errors": ["Reached maximum"], "structured_output": None},
            ["The agent's run ended with error_max_turns: Reached maximum."],
        ),
    ],
)
def test_a_result_that_the_sdk_calls_a_success_can_be_a_failure(fields: dict[str, Any], said: list[str]) -> None:
    assert sdk.result_failures(result(**fields)) == said


def test_a_tool_that_is_not_given_fails_the_result_once() -> None:
    denied = result(permission_denials=[{"tool_name": "Bash"}])
    assert sdk.result_failures(denied, {"Bash"}) == ["The agent was denied the tool Bash."]
    assert sdk.result_failures(result(), {"Web"}) == ["The agent asked for the tool Web, which it is not given."]


@pytest.mark.parametrize("status", ["failed", "pending", "needs-auth"])
def test_a_server_that_is_not_connected_fails_the_run(status: str) -> None:
    started = {"mcp_servers": [{"name": "opscope", "status": status}, {"name": "scratchpad", "status": "connected"}]}
    assert sdk.server_failures(started) == [f"The agent's server opscope is not connected: {status}."]
    started["mcp_servers"][0]["status"] = "connected"
    assert sdk.server_failures(started) == []
    assert len(sdk.server_failures({})) == 2


# ---- the scratchpad and the environment


def test_the_scratchpad_keeps_what_is_there_and_edits_only_what_is_certain(tmp_path: Path) -> None:
    pad = Scratchpad(tmp_path / "new")
    assert pad.text() == ""
    pad.note("# First")
    pad.edit("", "line 63 casts\nline 64 squares")
    pad.edit("line 63", "line 62")
    assert (tmp_path / "new/SCRATCHPAD.md").read_text() == "# First\n\nline 62 casts\nline 64 squares\n"
    for unsure in ("line", "line 70"):
        with pytest.raises(InputError, match=r"times in SCRATCHPAD\.md"):
            pad.edit(unsure, "")
    with pytest.raises(InputError, match="exceed"):
        pad.edit("", "x" * 600_000)
    assert pad.text().endswith("line 64 squares\n")


def test_a_link_in_place_of_the_scratchpad_is_replaced_and_its_target_left(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("mine\n")
    (tmp_path / "SCRATCHPAD.md").symlink_to(tmp_path / "elsewhere")
    Scratchpad(tmp_path).note("note")
    assert (tmp_path / "elsewhere").read_text() == "mine\n"


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="Name another folder"):
        Scratchpad(tmp_path / "file").note("note")


def test_the_environment_of_an_agent_holds_what_it_needs_and_no_other_secret() -> None:
    given = {
        "PATH": "/bin",
        "HOME": "/h",
        "ANTHROPIC_API_KEY": "k",
        "GITHUB_TOKEN": "t",
        "LC_ALL": "C",
        "CLAUDECODE": "1",
    }
    kept = environment.for_agent(given)
    assert kept == {"PATH": "/bin", "HOME": "/h", "ANTHROPIC_API_KEY": "k", "LC_ALL": "C"}
    assert environment.for_server(kept) == {"ANTHROPIC_API_KEY": ""}
    before = dict(os.environ)
    with environment.replaced(kept):
        assert dict(os.environ) == kept
    assert dict(os.environ) == before


# ---- prompts


@pytest.mark.parametrize("kind", ["module", "model"])
def test_a_prompt_names_target_tools_and_rules_and_leaves_the_notation_alone(kind: str) -> None:
    places = {
        kind: "a.B",
        "phase": "decode",
        "transformers": "/t",
        "pytorch": "/p",
        "arguments": "{}",
        "analyses": "- x",
    }
    text = agent_prompt(f"{kind}_analyzer", places)
    assert "<<" not in text
    for word in (
        "**a.B**",
        "`decode`",
        "/t",
        "/p",
        "SCRATCHPAD.md",
        "${{qualified.ClassName}}(parameters)",
        "{seq_len}",
    ):
        assert word in text or (kind == "model" and word == "{seq_len}"), word
    with pytest.raises(KeyError):
        agent_prompt(f"{kind}_analyzer", {})


def test_the_schemas_that_agents_answer_in_name_every_required_field() -> None:
    from opscope_server.resources import read_schema

    for kind in ("module", "model"):
        schema = json.loads(read_schema(f"{kind}_analysis"))
        assert {"class_name", "kernels", "totals", "variables"} <= set(schema["required"])
