"""Claude Code's real command line, driven by a scripted model in namespaces of its own: commands, plugin, prompts.

What the model would say is written here; everything else is real: the client, its permissions, the server, the report.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import isolation
import pytest
import scripted_model
import tool_list
from cannot import CANNOT
from filelock import FileLock
from opscope_clients import claude_code
from opscope_tools.catalog import TOOL_NAMES

pytestmark = pytest.mark.agents

ROOT = Path(__file__).parents[3]
OPSCOPE = Path(sys.executable).with_name("opscope")
SECONDS = 400
MODEL = "claude-sonnet-5"


@pytest.fixture(scope="module")
def claude() -> Path:
    """The command line that comes with claude-agent-sdk."""
    spec = find_spec("claude_agent_sdk")
    missing = "" if spec else "claude-agent-sdk is not installed (make clients)"
    if missing:
        pytest.skip(missing)
    if refusal := isolation.refusal():  # where there are no namespaces the real command line is never started
        pytest.skip(f"{CANNOT}{refusal}")
    assert spec
    assert spec.origin
    return Path(spec.origin).with_name("_bundled") / "claude"


@dataclass
class Run:
    """One finished run of the client."""

    record: dict[str, Any]

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.record["stdout"].splitlines() if line.startswith("{")]

    @property
    def result(self) -> dict[str, Any]:
        return next(message for message in self.messages if message["type"] == "result")

    @property
    def servers(self) -> dict[str, str]:
        started = next(m for m in self.messages if m.get("subtype") == "init")
        return {server["name"]: server["status"] for server in started["mcp_servers"]}

    @property
    def first_request(self) -> str:
        request: dict[str, Any] = self.record["requests"][0]
        return json.dumps([request["messages"], request.get("system")])

    def answers(self) -> list[tuple[bool, str]]:
        """What tools answered, in order: whether it is an error, and the text that the model was given."""
        found = []
        for message in self.record["requests"][-1]["messages"]:
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block.get("type") == "tool_result":
                    content = block["content"]
                    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                    found.append((bool(block.get("is_error")), text))
        return found


@dataclass
class Project:
    """A project folder with a client's home beside it."""

    claude: Path
    folder: Path
    cache: Path

    def run(
        self, *arguments: str, turns: list[list[dict[str, Any]]], server: dict[str, Any] | None = None, **given: str
    ) -> Run:
        project = self.folder / "project"
        scenario = {
            "turns": turns, "home": str(self.folder / "home"), "cwd": str(project), "timeout": SECONDS, "server": server,
            "arguments": [
                str(self.claude), *arguments, "--model", MODEL, "--output-format", "stream-json", "--verbose",
            ],
            "environment": {"OPSCOPE_CACHE_DIR": str(self.cache), "MCP_TOOL_TIMEOUT": "240000", "MCP_TIMEOUT": "60000"}
            | given,
        }  # fmt: skip
        asked, told = self.folder / "scenario.json", self.folder / "record.json"
        asked.write_text(json.dumps(scenario))
        script = [sys.executable, scripted_model.__file__, str(asked), str(told)]
        with FileLock(self.cache / "claude"):  # one after another: what the first traced, the others find
            subprocess.run(isolation.command(script, keep=[self.folder, self.cache]), check=True, timeout=SECONDS + 60)
        return Run(json.loads(told.read_text()))


@pytest.fixture
def project(tmp_path: Path, claude: Path, index_folder: Path) -> Project:
    """A project with the plain command files and no server yet."""
    commands = tmp_path / "project/.claude/commands"
    commands.mkdir(parents=True)
    for name, text in claude_code.project_commands().items():
        (commands / name).write_text(text)
    return Project(claude, tmp_path, index_folder)


def over_stdio(project: Project) -> None:
    server = {"command": str(OPSCOPE), "args": ["serve"], "alwaysLoad": True}
    (project.folder / "project/.mcp.json").write_text(json.dumps({"mcpServers": {"opscope": server}}))


CLAIM = "Each query head has a key of its own unless the configuration groups them (`transformers/models/llama/modeling_llama.py:206-230`)."


def protocol(prefix: str) -> list[list[dict[str, Any]]]:
    """The five steps as a model would take them, on llama."""

    def turn(tool: str, **given: Any) -> list[dict[str, Any]]:
        return [{"tool": prefix + tool, "input": given}]

    point = {"batch_size": 1, "seq_len": 128, "cache_len": 0}
    return [
        turn("resolve_class", name="llama"),
        turn("find_forward", target="llama"),
        turn("inspect_model", model="llama"),
        turn("count_flops", target="LlamaAttention"),
        turn("expand_refs", target="llama", values=point),
        turn("trace_dataflow", target="llama"),
        turn("write_report", name="llama", target="llama", sections={"4.7": CLAIM}),
        turn("check_report", path="reports/implementations/llama-analysis.md"),
        [{"text": "Llama is analysed."}],
    ]


def written(project: Project) -> str:
    return (project.folder / "project/reports/implementations/llama-analysis.md").read_text()


def assert_the_protocol_ran(run: Run, project: Project) -> None:
    assert run.record["status"] == 0
    assert run.record["turns_left"] == 0
    assert run.result["subtype"] == "success"
    assert run.result["permission_denials"] == []
    answers = run.answers()
    assert len(answers) == 8
    assert not any(failed for failed, _ in answers)
    assert max(len(text) for _, text in answers) < 25_500  # the budget, and a link to the whole
    assert '"ok":true' in answers[-1][1]
    assert CLAIM.partition(" (`")[0] in written(project)


def test_analyze_as_a_project_command_over_stdio_writes_the_report_without_asking(project: Project) -> None:
    over_stdio(project)
    run = project.run("-p", "/analyze llama and be brief", turns=protocol("mcp__opscope__"))
    assert run.servers == {"opscope": "connected"}
    assert_the_protocol_ran(run, project)
    asked = run.first_request
    assert 'resolve_class(name=\\"llama\\")' in asked
    assert "**Target:** llama and be brief" in asked


def test_analyze_over_http_writes_the_report_of_a_server_that_runs_beside(project: Project) -> None:
    port = 8765  # of a network that nothing else is in
    (project.folder / "project/.mcp.json").write_text(
        json.dumps(
            {"mcpServers": {"opscope": {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "alwaysLoad": True}}}
        )
    )
    server = {
        "arguments": [str(OPSCOPE), "serve", "--http", "--port", str(port)],
        "cwd": str(project.folder / "project"),
        "ready": "opscope serves MCP",
    }
    run = project.run("-p", "/analyze llama", turns=protocol("mcp__opscope__"), server=server)
    assert run.servers == {"opscope": "connected"}
    assert_the_protocol_ran(run, project)


def test_the_plugin_brings_command_and_server_and_knows_the_open_project(project: Project) -> None:
    shutil.rmtree(project.folder / "project/.claude")
    (project.folder / "project/pyproject.toml").write_text("[project]\nname = 'mine'\nversion = '7'\n")
    (project.folder / "project/engine.py").write_text("class Engine:\n    pass\n")
    mine = [{"tool": "mcp__plugin_opscope_opscope__resolve_class", "input": {"name": "Engine", "repo": "project"}}]
    turns = [mine, *protocol("mcp__plugin_opscope_opscope__")]
    run = project.run("--plugin-dir", str(ROOT / "clients/claude_code"), "-p", "/opscope:analyze llama", turns=turns)
    assert set(run.servers) == {"plugin:opscope:opscope"}  # which may still be starting: that it answers is seen below
    assert '"file":"engine.py","line":1' in run.answers()[0][1].replace(" ", "")
    run.record["requests"][-1]["messages"] = without_first_answer(run.record["requests"][-1]["messages"])
    assert_the_protocol_ran(run, project)


def without_first_answer(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = False
    kept = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        if not found and any(block.get("type") == "tool_result" for block in blocks):
            found = True
            continue
        kept.append(message)
    return kept


def test_the_servers_own_prompt_is_a_slash_command_too(project: Project) -> None:
    over_stdio(project)
    run = project.run(
        "-p", "/mcp__opscope__analyze llama", "--allowedTools", "mcp__opscope",
        turns=[[{"tool": "mcp__opscope__resolve_class", "input": {"name": "llama"}}], [{"text": "done"}]],
    )  # fmt: skip
    assert run.record["status"] == 0
    assert "Analyse the LLM implementation **llama**" in run.first_request
    assert [failed for failed, _ in run.answers()] == [False]


def test_a_command_allows_nothing_beside_the_tools_that_it_names(project: Project) -> None:
    """analyze names neither a shell, nor editing, nor map_repo; the run goes on without them."""
    over_stdio(project)
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "Bash", "input": {"command": "touch made-by-bash", "description": "x"}}],
        [{"tool": "Write", "input": {"file_path": str(project.folder / "project/made.txt"), "content": "x"}}],
        [{"tool": "mcp__opscope__map_repo", "input": {"repo": "transformers"}}],
        [{"tool": "mcp__opscope__resolve_class", "input": {"name": "llama"}}],
        [{"text": "done"}],
    ]
    run = project.run("-p", "/analyze llama", turns=turns)
    assert [failed for failed, _ in run.answers()] == [True, True, True, False]
    assert [denied["tool_name"] for denied in run.result["permission_denials"]] == [
        "Bash",
        "Write",
        "mcp__opscope__map_repo",
    ]
    left = {path.name for path in (project.folder / "project").iterdir()}
    assert left == {".claude", ".mcp.json"}


def test_the_post_command_runs_no_program_and_writes_no_file_by_itself(project: Project) -> None:
    """Its commands are those of `collect_evidence`, its files those of `write_report`."""
    over_stdio(project)
    posts = project.folder / "project/posts"
    turns: list[list[dict[str, Any]]] = [
        [{"tool": "Bash", "input": {"command": "lscpu; touch made-by-bash", "description": "x"}}],
        [{"tool": "Write", "input": {"file_path": str(posts / "llm-x.md"), "content": "# x\n"}}],
        [{"tool": "mcp__opscope__check_report", "input": {"path": "posts/llm-cache-hierarchy.md"}}],
        [{"text": "done"}],
    ]
    run = project.run("-p", "/hardware-post cache-hierarchy", turns=turns)
    assert [denied["tool_name"] for denied in run.result["permission_denials"]] == ["Bash", "Write"]
    assert "There is no report" in run.answers()[-1][1]
    assert {path.name for path in posts.parent.iterdir()} == {".claude", ".mcp.json"}


def test_the_whole_list_of_tools_reaches_the_model_and_costs_it_what_is_promised(project: Project) -> None:
    over_stdio(project)
    run = project.run("-p", "/analyze llama", turns=[[{"text": "done"}]])
    ours = [tool for tool in run.record["requests"][0]["tools"] if tool["name"].startswith("mcp__opscope__")]
    assert {tool["name"] for tool in ours} == {f"mcp__opscope__{name}" for name in TOOL_NAMES}
    measured = tool_list.measured()
    shown = sum(measured.size([tool["name"], tool["description"], tool["input_schema"]]) for tool in ours)
    assert shown / 4 <= measured.MOST_TOKENS
    instructions = "Protocol for analysing a target"
    assert instructions in run.first_request


#: what the client does where nobody sets anything
DEFAULTS = {"MCP_CONNECTION_NONBLOCKING": "1", "MCP_CONNECT_TIMEOUT_MS": "5000"}


@pytest.mark.parametrize("waited", [True, False])
def test_a_headless_run_has_the_tools_of_a_server_that_is_late_where_it_names_the_config(
    project: Project, waited: bool
) -> None:
    """The line of docs/how-to/claude-code.md; without the option the same server is missing, so that the client's habit is seen to change."""
    over_stdio(project)
    place = project.folder / "project/.mcp.json"
    held = json.loads(place.read_text())
    entry = held["mcpServers"]["opscope"]
    slow = f"sleep 8; exec {entry['command']} serve"  # later than the client waits by itself
    place.write_text(json.dumps({"mcpServers": {"opscope": {**entry, "command": "sh", "args": ["-c", slow]}}}))
    named = ["--mcp-config", ".mcp.json"] if waited else []
    run = project.run("-p", "/analyze llama", *named, turns=[[{"text": "done"}]], server=None, **DEFAULTS)
    names = {tool["name"] for tool in run.record["requests"][0]["tools"]}
    assert run.servers == {"opscope": "connected" if waited else "pending"}
    assert {f"mcp__opscope__{name}" in names for name in TOOL_NAMES} == {waited}


def test_the_plugin_and_the_marketplace_pass_the_clients_own_validation(claude: Path, tmp_path: Path) -> None:
    given = scripted_model.environment(tmp_path, "http://127.0.0.1:9")
    for path in (ROOT / "clients/claude_code", ROOT):
        done = subprocess.run(
            isolation.command([str(claude), "plugin", "validate", "--strict", str(path)], keep=[tmp_path]),
            env=given, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
