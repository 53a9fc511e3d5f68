"""`opscope analyze` as a user runs it: several targets, repositories, a running server, JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

#: the same for every test, so that what one has traced the next is told
SMALL = ["--config", "n_embd=64", "--config", "n_layer=2", "--config", "n_head=4", "--values", "seq_len=32"]


@pytest.fixture
def opscope(index_folder: Path, tmp_path: Path) -> Any:
    def run(*arguments: str, output: bool = True) -> subprocess.CompletedProcess[str]:
        where = ["--cache-dir", str(index_folder), "--output", str(tmp_path)] if output else []
        line = [sys.executable, "-m", "opscope_clients", "analyze", *arguments, *where]
        return subprocess.run(line, capture_output=True, text=True, timeout=400, check=False)

    return run


def engine(folder: Path) -> Path:
    """A repository small enough to know."""
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "tiny"\nversion = "3"\n[project.scripts]\ntiny = "tiny:main"\n'
    )
    (folder / "tiny.py").write_text(
        "import os\n\n\ndef main() -> None:\n    print(os.environ.get('TINY_LEVEL', '1'))\n"
    )
    return folder


def test_one_target_that_is_unknown_does_not_stop_the_other_and_the_status_tells(opscope: Any, tmp_path: Path) -> None:
    done = opscope("gpt2", "gpt2000", *SMALL, "--json")
    assert done.returncode == 1
    first, second = json.loads(done.stdout)["analyses"]
    assert (first["target"], first["checked_ok"], first["problems"]) == ("gpt2", True, [])
    assert (tmp_path / first["report"]).read_text().startswith("# Analysis: GPT2LMHeadModel")
    assert "Nothing is called 'gpt2000'" in second["error"]
    assert second["report"] == ""


def test_models_without_a_cache_or_with_images_have_a_report_that_says_which_pass_they_have_not(
    opscope: Any, tmp_path: Path
) -> None:
    done = opscope("modernbert", "clip", "--json", "--config", "num_hidden_layers=2")
    found = json.loads(done.stdout)["analyses"]
    assert [(one["target"], one["error"], one["problems"], one["checked_ok"]) for one in found] == [
        (target, "", [], True) for target in ("modernbert", "clip")
    ]
    for one in found:
        assert (tmp_path / one["report"]).is_file()
        assert one["components"]
        assert [gap for gap in one["gaps"] if "decode" in gap] == one["gaps"]  # and this is said once
        assert len(one["gaps"]) == 1


def test_a_repository_is_mapped_reported_and_checked(opscope: Any, tmp_path: Path) -> None:
    folder = engine(tmp_path / "tiny")
    done = opscope("tiny", "--kind", "repo", "--repo", f"tiny={folder}", "--html")
    assert done.returncode == 0, done.stderr
    assert "Report: reports/repos/tiny.md" in done.stdout
    text = (tmp_path / "reports/repos/tiny.md").read_text()
    assert "TINY_LEVEL" in text
    assert (tmp_path / "reports/repos/tiny.html").is_file()


def test_a_running_server_is_used_and_one_that_is_not_there_is_a_sentence(opscope: Any, tmp_path: Path) -> None:
    folder = engine(tmp_path / "tiny")
    server = subprocess.Popen(
        [sys.executable, "-m", "opscope_server", "--http", "--port", "0", "--repo", f"tiny={folder}",
         "--output", str(tmp_path / "there"), "--cache-dir", str(tmp_path / "cache")],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr
    try:
        address = server.stderr.readline().split()[-1]
        done = opscope("tiny", "--kind", "repo", "--http", address, output=False)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "there/reports/repos/tiny.md").is_file()
    finally:
        server.terminate()
        server.communicate(timeout=20)
    gone = opscope("tiny", "--kind", "repo", "--http", address, output=False)
    assert gone.returncode == 1
    assert gone.stderr.count("\n") == 1
    assert "cannot be reached" in gone.stderr


def test_a_name_that_nothing_bears_is_a_failure_to_a_script(index_folder: Path) -> None:
    line = [sys.executable, "-m", "opscope_clients", "--cache-dir", str(index_folder), "resolve-class"]
    done = subprocess.run([*line, "LlamaAtention"], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "LlamaAttention" in done.stdout
    assert subprocess.run([*line, "LlamaAttention"], capture_output=True, timeout=120, check=False).returncode == 0


def test_a_hub_id_is_answered_with_a_hint_at_the_configuration(opscope: Any) -> None:
    done = opscope("meta-llama/Llama-3.2-1B")
    assert done.returncode == 1
    assert "looks like a model on the hub" in done.stderr
    assert "--config" in done.stderr


def test_the_configuration_that_was_given_is_what_is_reported(opscope: Any, tmp_path: Path) -> None:
    done = opscope("gpt2", *SMALL, "--json")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / json.loads(done.stdout)["analyses"][0]["report"]).read_text()
    assert "`n_embd=64`, `n_layer=2`, `n_head=4` given" in text
    assert "32<!-- fact:prefill.seq_len --> new and 0" in text
    assert "given; default `768`" in text


def test_an_output_folder_that_cannot_be_used_is_told_before_the_first_step(opscope: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = opscope("gpt2", "--output", str(tmp_path / "file"), "--cache-dir", str(tmp_path / "none"), output=False)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr or "not a folder" in done.stderr
    assert "Reconnaissance" not in done.stderr


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder with a configuration of a user's own."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4}))
    return folder


@pytest.mark.slow
def test_a_folder_with_a_configuration_is_a_target_and_names_its_report(
    opscope: Any, checkpoint: Path, tmp_path: Path
) -> None:
    done = opscope(str(checkpoint), "--values", "seq_len=16")
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "reports/implementations/mine-analysis.md").read_text()
    assert text.startswith("# Analysis: mine\n")
    assert "| `hidden_size` | 32<!--" in text


def test_a_folder_with_a_configuration_stands_alone_and_says_its_type(opscope: Any, checkpoint: Path) -> None:
    for line in ((str(checkpoint), "llama"), (str(checkpoint), "--config", "n_head=2")):
        done = opscope(*line)
        assert (done.returncode, "is its own --config" in done.stderr) == (2, True), line
    (checkpoint / "config.json").write_text('{"n_embd": 32}')
    done = opscope(str(checkpoint))
    assert done.returncode == 1
    assert "names no model_type" in done.stderr
    assert "Give the model type as target" in done.stderr
