"""The command line as a process: answers, errors in one sentence, Ctrl-C, closed pipes, the cache."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TOY_CLI = Path(__file__).parent.parent / "server/toy_cli.py"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-W", "error", str(TOY_CLI), *arguments]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "OPSCOPE_CACHE_DIR": str(tmp_path / "cache"), "COLUMNS": "120", "NO_COLOR": "1"}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=60, env=environment)


def test_json_is_whole_and_unshortened(environment: dict[str, str]) -> None:
    done = run(environment, "rows", "x", "--rows", "5000", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert len(answer["rows"]) == 5000
    assert "shortened" not in answer


def test_people_get_lines_instead_of_json(environment: dict[str, str]) -> None:
    done = run(environment, "rows", "x", "--rows", "2")
    assert done.stdout == "rows: x 0, x 1\ntotal: 2\n"


def test_a_foreseen_failure_is_one_sentence_and_status_one(environment: dict[str, str]) -> None:
    done = run(environment, "rows", "broken")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "opscope: The class has no forward. (a/b.py:7) Name a module.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["rows"], "Missing argument 'TARGET'."),
        (["rows", "x", "--detail", "most"], "'most' is not one of 'full', 'names'"),
        (["rows", "x", "--row", "1"], "No such option"),
        (["rovs"], "No such command 'rovs'"),
        (["rows", "--repo", "x"], "Missing argument 'TARGET'."),
        (["analyze"], "Missing argument 'TARGET...'."),
        (["analyze", "gpt2", "bert", "--name", "x"], "--name names one report"),
        (["analyze", "gpt2", "--http", "http://127.0.0.1:9/mcp", "--repo", "a=/b"], "start it with these options"),
    ],
)
def test_a_usage_error_is_told_with_status_two(
    environment: dict[str, str], arguments: list[str], sentence: str
) -> None:
    done = run(environment, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_value_that_only_the_tool_knows_is_one_sentence(environment: dict[str, str]) -> None:
    done = run(environment, "rows", "x", "--rows", "-1")
    assert done.returncode == 1
    assert done.stderr == (
        "opscope: The argument 'rows' of rows cannot be -1: input should be greater than or equal to 0.\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_command_with_one_line_at_most(environment: dict[str, str], number: signal.Signals) -> None:
    process = subprocess.Popen(
        command("wait"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        # a run in the background ignores SIGINT, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stderr
    assert process.stderr.readline() == "begun\n"
    process.send_signal(number)
    output, said = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert output == ""
    assert said == ("opscope: interrupted.\n" if number == signal.SIGINT else "")


def test_a_closed_pipe_ends_a_command_quietly(environment: dict[str, str]) -> None:
    process = subprocess.Popen(
        command("rows", "x", "--rows", "90000", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout
    assert process.stderr
    assert process.stdout.read(9) == b'{"artifac'
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(timeout=20) == 141
    process.stderr.close()


def test_the_cache_is_told_and_cleared(environment: dict[str, str], tmp_path: Path) -> None:
    run(environment, "rows", "kept")
    told = run(environment, "cache", "info").stdout
    assert told.startswith(f"{tmp_path / 'cache'}: 1 entries")
    elsewhere = run(environment, "cache", "info", "--cache-dir", str(tmp_path / "other")).stdout
    assert elsewhere.startswith(f"{tmp_path / 'other'}: 0 entries")
    assert run(environment, "cache", "clear").stdout == "1 entries and 0 indexes removed.\n"
    assert ": 0 entries" in run(environment, "--cache-dir", str(tmp_path / "cache"), "cache", "info").stdout


def test_indexes_are_built_found_up_to_date_told_and_cleared(environment: dict[str, str], tmp_path: Path) -> None:
    repositories = []
    for name, package in (("transformers", "transformers"), ("pytorch", "torch")):
        (tmp_path / name / package).mkdir(parents=True)
        (tmp_path / name / package / "__init__.py").write_text("class A:\n    pass\n")
        repositories += ["--repo", f"{name}={tmp_path / name}"]
    told = run(environment, *repositories, "index").stdout.splitlines()
    assert [line.split(" in ")[0] for line in told] == ["transformers: 1 files read", "pytorch: 1 files read"]
    again = run(environment, *repositories, "index").stdout.splitlines()
    assert [line.split(" (")[0] for line in again] == ["transformers: up to date", "pytorch: up to date"]
    assert run(environment, "cache", "info").stdout.splitlines()[1].startswith("2 indexes")
    assert "and 2 indexes removed" in run(environment, "cache", "clear").stdout
    assert run(environment, "cache", "info").stdout.splitlines()[1].startswith("0 indexes")


def test_a_session_option_is_taken_before_and_after_the_subcommand(environment: dict[str, str], tmp_path: Path) -> None:
    for arguments in (["--repo", "x=/none", "rows", "t"], ["rows", "t", "--repo", "x=/none"]):
        done = run(environment, *arguments)
        assert done.returncode == 1
        assert "points at /none, which is not a folder" in done.stderr
    assert run(environment, "rows", "t", "--repo", f"x={tmp_path}").returncode == 0
