"""`opscope doctor`: what is there, what is missing and what for; it always ends, and says what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_machine import environment
from opscope_clients.doctor import config, places, required, server, tools
from opscope_clients.doctor.findings import Finding, asked
from opscope_clients.hosts import install
from opscope_clients.hosts.table import HOSTS, Where
from opscope_clients.session_options import SessionOptions
from opscope_tools.catalog import TOOL_NAMES
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.storage.places import index_place

SCRIPT = Path(sys.executable).with_name("opscope")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "home").mkdir(exist_ok=True)
    command = [str(SCRIPT), "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment(folder), cwd=folder)


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "a.py").write_text("class A: ...\n")
    (folder / "b.py").write_text("class B: ...\n")
    return folder


# ---- the command


def test_a_machine_that_has_what_is_needed_is_told_so_as_json(tmp_path: Path, toy: Path) -> None:
    done = run(tmp_path, "--repo", f"toy={toy}", "--trust", "toy", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["ok"] is True
    found: dict[tuple[str, str], Any] = {(one["section"], one["name"]): one for one in answer["findings"]}
    assert found["server", "stdio"]["facts"]["tools"] == list(TOOL_NAMES)
    assert found["interpreter", "tracing"]["facts"]["packages"].keys() == {"torch", "transformers", "pydantic"}
    assert found["interpreter", "cage"]["facts"].keys() == {"files", "calls", "landlock"}
    assert found["repositories", "toy"]["facts"]["trusted"] is True
    assert found["repositories", "toy"]["facts"]["root"] == str(toy)
    assert found["repositories", "transformers"]["facts"]["installed"] is True
    assert found["cache", "folder"]["facts"]["writable"] is True
    assert all(one["purpose"] for one in answer["findings"])
    assert {"nvcc", "triton", "node", "perf", "nvidia-smi"} <= {name for section, name in found if section == "tools"}


def test_what_does_not_work_is_told_with_what_to_do_and_status_one(tmp_path: Path) -> None:
    done = run(tmp_path, "--repo", "toy=nowhere", "--cache-dir", "/dev/null/cache")
    assert done.returncode == 1
    assert (
        "  !!  toy=nowhere: The repository toy points at nowhere, which is not a folder.\n      do: Give --repo"
        in done.stdout
    )
    assert "  !!  folder: /dev/null cannot be written: Not a directory\n      do: Name another one with" in done.stdout
    assert done.stdout.splitlines()[-1] == "3 of what opscope needs does not work: toy=nowhere, folder, stdio."
    assert "Traceback" not in done.stdout + done.stderr


# ---- asking programs


def test_a_program_that_hangs_is_ended_with_what_it_started() -> None:
    start = time.monotonic()
    assert asked(["sh", "-c", "tail -f /dev/null & tail -f /dev/null"], seconds=0.2) == ("", "gave no answer in 0.2 s")
    assert time.monotonic() - start < 10


def test_a_program_that_leaves_a_child_behind_is_not_waited_for() -> None:
    start = time.monotonic()
    assert asked(["sh", "-c", "tail -f /dev/null & echo 7"], seconds=30) == ("7", "")
    assert time.monotonic() - start < 10


def test_a_program_that_fails_is_told_with_its_last_line() -> None:
    assert asked(["sh", "-c", "echo a; echo b >&2; exit 3"], seconds=30) == ("a\nb", "exit status 3: b")
    assert asked(["/nowhere/x"], seconds=1) == ("", "cannot be started: No such file or directory")


def test_a_program_is_found_on_path_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = program(tmp_path / "bin", "node", "echo v99.1")
    program(tmp_path / "bin", "perf", "echo no; exit 2")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    found = {one.name: one for one in map(tools.program, tools.PROGRAMS) if one.name in {"node", "perf"}}
    assert found["node"].facts == {"path": str(made), "version": "v99.1"}
    assert (found["perf"].status, found["perf"].required) == ("failed", False)
    assert "exit status 2: no" in found["perf"].found


def test_a_program_that_is_not_there_is_missing_and_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = [one for one in map(tools.program, tools.PROGRAMS) if one.name in {"node", "perf", "git", "nvidia-smi"}]
    assert [one.status for one in found] == ["missing"] * 4
    assert all(one.fix and one.purpose and not one.broken for one in found)


# ---- interpreters


def test_an_interpreter_without_the_packages_is_told_what_to_install(tmp_path: Path) -> None:
    bare = program(tmp_path, "python", f'exec {sys.executable} -S "$@"')
    found = required.tracing(str(bare))
    assert found.broken
    assert found.found.endswith("without torch, transformers, pydantic")
    assert found.fix == f"{bare} -m pip install torch transformers pydantic"


@pytest.mark.parametrize(
    ("script", "said", "fix"),
    [
        ("echo '[\"3.9.1\", {}]'", "Python 3.9.1 at", "Name one with Python 3.11 or newer."),
        ("exit 0", "it printed something else than was asked", "Give --python a Python interpreter that runs."),
        ("echo no >&2; exit 1", "exit status 1: no", "Give --python a Python interpreter that runs."),
    ],
)
def test_an_interpreter_that_cannot_trace_is_told_why(tmp_path: Path, script: str, said: str, fix: str) -> None:
    found = required.tracing(str(program(tmp_path, "python", script)))
    assert found.broken
    assert said in found.found
    assert found.fix == fix


# ---- repositories


def test_a_repository_tells_its_index_once_it_is_built(tmp_path: Path, toy: Path) -> None:
    def state() -> Finding:
        found = places.repositories(SessionOptions(repo=(f"toy={toy}",), cache_dir=str(tmp_path / "cache")))
        return next(one for one in found if one.name == "toy")

    assert "no index yet" in state().found
    assert not (tmp_path / "cache").exists()
    repository = folder_repository("toy", toy)
    assert build(index_place(tmp_path / "cache", repository), repository.root, repository.packages)
    assert state().facts["indexed_files"] == 2
    assert "index of 2 files" in state().found
    assert "read only, not imported" in state().found


def test_a_trusted_name_that_is_no_repository_is_told(tmp_path: Path) -> None:
    (found,) = [
        one for one in places.repositories(SessionOptions(trust=("x",), cache_dir=str(tmp_path))) if one.name == "x"
    ]
    assert found.broken
    assert found.fix == "Register it with --repo x=PATH, or leave its --trust out."


# ---- the server


@pytest.mark.parametrize(
    ("script", "reason"),
    [("exec tail -f /dev/null", "no list of tools in time"), ("exit 1", "it ended without a list of tools")],
)
def test_a_server_that_does_not_answer_is_told_in_time(
    tmp_path: Path, script: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = program(tmp_path, "opscope", script)
    monkeypatch.setattr(server, "launch", lambda _: [str(made)])
    start = time.monotonic()
    found = server.server(SessionOptions(), seconds=1)
    assert found.broken
    assert reason in found.found
    assert time.monotonic() - start < 30


# ---- hosts


def test_hosts_with_opscope_are_listed_and_paths_that_are_gone_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    where = Where("linux", {}, tmp_path / "home", tmp_path / "project")
    (tmp_path / "project").mkdir()
    here = [str(SCRIPT), "serve"]
    gone = [*here, "--repo", f"toy={tmp_path}/gone"]
    for key, command, name in (
        ("codex", here, "opscope"),
        ("opencode", gone, "mine"),
        ("zed", ["/gone/opscope", "serve"], "opscope"),
    ):
        install.make(install.plan(HOSTS[key], "user", name, command, where=where))
    (tmp_path / "project/.mcp.json").write_text("{")
    found = list(config.hosts(where))
    assert [(one.name, one.status, one.facts.get("gone")) for one in found] == [
        ("Zed (user)", "stale", "/gone/opscope"),
        ("Codex (user)", "ok", ""),
        ("opencode (user)", "stale", f"{tmp_path}/gone"),
        ("config", "failed", None),
    ]
    assert found[2].fix == f"{tmp_path}/gone is gone: opscope install opencode --user --name mine --force."
    assert f"({tmp_path}/project/.mcp.json:1)" in found[3].found
    assert not any(one.broken for one in found)
