"""The commands `install` and `uninstall`, and the command that they give to a host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from fake_machine import environment
from opscope_clients import console
from opscope_clients.claude_code import COMMANDS
from opscope_clients.cli import opscope
from opscope_clients.hosts import command
from opscope_clients.hosts.table import HOSTS
from opscope_clients.session_options import SessionOptions
from opscope_schemas.errors import InputError

SCRIPT = Path(sys.executable).with_name("opscope")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Project:
    """A folder to work in on a machine of its own, with the command line at hand."""

    path: Path
    output: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> Done:
        """The command line in this process, which starts it in no time."""

        def invoke() -> int | None:
            with opscope.make_context("opscope", list(arguments)) as context:
                status: int | None = opscope.invoke(context)
                return status

        handler = signal.getsignal(signal.SIGTERM)
        status = console.guarded(invoke)
        signal.signal(signal.SIGTERM, handler)
        return Done(status, *self.output.readouterr())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Project:
    kept = environment(tmp_path)
    for name in set(os.environ) - set(kept):
        monkeypatch.delenv(name)
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return Project(tmp_path / "project", capsys)


def test_the_console_script_installs_and_uninstalls(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    for verb, said in (("install", "wrote"), ("uninstall", "removed")):
        done = subprocess.run(
            [str(SCRIPT), verb, "codex"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            env=environment(tmp_path),
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(f"Codex (user): {said} {tmp_path}/home/.codex/config.toml")
    assert list((tmp_path / "home").iterdir()) == []


def test_install_says_what_it_wrote_what_the_host_starts_and_what_comes_next(project: Project) -> None:
    (project.path / ".mcp.json").write_text("{}\n")
    done = project.run("install", "claude-code", "--project")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"Claude Code (project): wrote {project.path}/.mcp.json",
        f"Claude Code (project): kept what was there as {project.path}/.mcp.json.opscope-backup",
        *(f"Claude Code (project): wrote {project.path}/.claude/commands/{name}.md" for name in COMMANDS),
        f"Claude Code (project) starts: {SCRIPT} serve",
        "Claude Code asks once whether this project's servers may run.",
    ]
    entry = json.loads((project.path / ".mcp.json").read_text())["mcpServers"]["opscope"]
    assert entry == {"type": "stdio", "command": str(SCRIPT), "args": ["serve"], "alwaysLoad": True}


def test_a_second_install_says_that_it_changed_nothing(project: Project) -> None:
    project.run("install", "cursor")
    done = project.run("install", "cursor")
    file = project.path.parent / "home/.cursor/mcp.json"
    assert done.stdout == f"Cursor (user) has the server 'opscope' already, in {file}: nothing changed.\n"


@pytest.mark.parametrize("host", list(HOSTS))
def test_a_dry_run_prints_the_diff_that_the_install_makes_and_changes_nothing(host: str, project: Project) -> None:
    dry = project.run("install", host, "--dry-run")
    assert dry.returncode == 0
    assert sorted(project.path.parent.rglob("*")) == [project.path.parent / "home", project.path]
    made = project.run("install", host)
    file = Path(made.stdout.splitlines()[0].partition("wrote ")[2])
    lines = dry.stdout.splitlines()
    assert lines[:2] == ["--- /dev/null", f"+++ {file}"]
    assert [line[1:] for line in lines[3:]] == file.read_text().splitlines()
    back = project.run("uninstall", host, "--dry-run").stdout.splitlines()
    assert [line[1:] for line in back[3:]] == file.read_text().splitlines()
    assert back[:2] == [f"--- {file}", "+++ /dev/null"]


def test_uninstall_tells_each_step_and_a_second_one_that_there_is_nothing(project: Project) -> None:
    project.run("install", "zed", "--project", "--name", "costs")
    done = project.run("uninstall", "zed", "--project", "--name", "costs")
    file = project.path / ".zed/settings.json"
    assert done.stdout == f"Zed (project): removed {file}, which the install had made\n"
    done = project.run("uninstall", "zed", "--project", "--name", "costs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"opscope: Zed (project) has no server 'costs' in {file}: there is nothing to uninstall. "
        "opscope doctor lists where opscope is installed.\n"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["install"], 2, "Missing argument 'HOST'"),
        (["install", "emacs"], 2, "'emacs' is not one of 'claude-code', 'claude-desktop'"),
        (["install", "zed", "--project", "--user"], 2, "--user and --project exclude each other."),
        (["install", "claude-desktop", "--project"], 1, "Claude Desktop has no project configuration."),
        (["install", "zed", "--name", "a b"], 1, "--name 'a b' cannot name a server in every host."),
        (["install", "zed", "--repo", "x"], 1, "--repo 'x' is not of the form NAME=PATH."),
        (["install", "zed", "--repo", "x=nowhere"], 1, "The repository x points at nowhere, which is not a folder."),
        (["install", "zed", "--toolset", "costs"], 1, "No toolset is called 'costs'. Nearest names: cost"),
        (["install", "zed", "--trust", "x"], 1, "No repository is called 'x'."),
        (["install", "zed", "--python", "nowhere"], 1, "--python 'nowhere' is not an executable file."),
    ],
)
def test_what_cannot_be_is_one_sentence_and_changes_nothing(
    project: Project, arguments: list[str], status: int, sentence: str
) -> None:
    done = project.run(*arguments)
    assert (done.returncode, done.stdout) == (status, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(project.path.parent.rglob("*")) == [project.path.parent / "home", project.path]


def test_claude_codes_project_gets_the_commands_for_the_server_of_that_name(project: Project) -> None:
    project.run("install", "claude-code", "--project", "--name", "costs")
    text = (project.path / ".claude/commands/analyze.md").read_text()
    assert "mcp__costs__count_flops" in text
    assert "mcp__opscope__" not in text
    project.run("uninstall", "claude-code", "--project", "--name", "costs")
    assert list(project.path.iterdir()) == []


# ---- the command


def test_the_sessions_options_go_into_the_command_with_absolute_paths(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.path)
    (project.path / "liger").mkdir()
    session = SessionOptions(
        repo=("liger=liger",),
        trust=("liger",),
        python=sys.executable,
        cache_dir="c",
        output="~/o",
        device_file=("own.json",),
    )
    monkeypatch.setenv("HOME", "/h")
    assert command.launch(session, ["cost,kernels"]) == [
        str(SCRIPT), "serve", "--repo", f"liger={project.path}/liger", "--trust", "liger", "--device-file", f"{project.path}/own.json", "--python", sys.executable,
        "--cache-dir", f"{project.path}/c", "--output", "/h/o", "--toolset", "cost,kernels",
    ]  # fmt: skip


def test_without_a_console_script_the_interpreter_starts_the_module_whatever_lies_in_the_folder(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(project.path / "python"))
    (project.path / "python").symlink_to(Path(sys.prefix) / "bin/python")
    (project.path / "opscope_clients.py").write_text("raise SystemExit('shadowed')")
    found = command.executable()
    assert found == [str(project.path / "python"), "-P", "-m", "opscope_clients"]
    real = [str(Path(sys.prefix) / "bin/python"), *found[1:], "--version"]
    done = subprocess.run(real, cwd=project.path, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("opscope "), done.stderr


@pytest.mark.parametrize(
    ("place", "passing"),
    [
        ("/root/.cache/uv/archive-v0/x1Y/bin/opscope", True),
        ("/root/.cache/uv/environments-v2/opscope-1f/bin/opscope", True),
        ("/elsewhere/uv-cache/archive-v0/x/bin/opscope", True),
        ("/root/.local/pipx/.cache/8e0/bin/opscope", True),
        ("/root/.cache/pipx/8e0/bin/opscope", True),
        ("/root/.local/share/uv/tools/opscope/bin/opscope", False),
        ("/root/.local/share/pipx/venvs/opscope/bin/opscope", False),
        ("/src/opscope/.venv/bin/opscope", False),
    ],
)
def test_an_environment_that_goes_away_again_is_warned_about(
    place: str, passing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPSCOPE_CACHE_DIR")  # which is warned about too
    monkeypatch.setenv("UV_CACHE_DIR", "/elsewhere/uv-cache")
    said = command.warnings([place, "serve"], SessionOptions(), host="zed")
    assert [line.startswith(f"{place} lies in a passing environment") for line in said] == [True] * passing


def test_what_only_this_environment_knows_is_warned_about(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_OUTPUT", "/o")
    assert project.run("install", "claude-desktop", "--dry-run").stderr.splitlines() == [
        "opscope: OPSCOPE_OUTPUT is set here, but a host may start the server without it: give --output to keep it.",
        "opscope: Claude Desktop starts servers in no particular folder: give --output DIR to say where reports go.",
    ]


def test_a_session_that_cannot_be_is_refused_before_anything_is_read() -> None:
    with pytest.raises(InputError, match="No repository is called 'vllm'"):
        command.launch(SessionOptions(trust=("vllm",)))
