"""README's snippets: every host's config is what an install writes, every `opscope` line is one that the command line takes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from fake_machine import environment
from opscope_clients.cli import opscope
from opscope_clients.hosts import install
from opscope_clients.hosts.table import HOSTS, Where
from opscope_clients.session_options import SessionCommand

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
COMMAND = ["/path/to/checkout/.venv/bin/opscope", "serve"]
SECTIONS = re.findall(
    r"<code>opscope install ([\w-]+)</code></summary>\n\nwrites `([^`]+)` \(Linux\)(?:; `--project`: `([^`]+)`)?\n\n```(\w+)\n(.*?)```",
    README,
    re.DOTALL,
)


def lines() -> Iterator[str]:
    """The shell lines of README that start opscope, without comments and redirections."""
    for language, block in re.findall(r"^```(bash|console)\n(.*?)^```", README, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            line = line.removeprefix("$ ") if language == "console" else line
            if line.startswith("opscope "):
                yield line.partition(" > ")[0]
    yield from (found for found in re.findall(r"`(opscope [^`]+)`", README) if not re.search(r"\b[A-Z]{3,}\b", found))


def test_readme_has_a_snippet_for_every_host() -> None:
    assert [section[0] for section in SECTIONS] == list(HOSTS)


@pytest.mark.parametrize(
    ("key", "user", "project", "language", "text"), SECTIONS, ids=[section[0] for section in SECTIONS]
)
def test_a_hosts_snippet_and_places_are_what_an_install_writes(
    key: str, user: str, project: str, language: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    host, where = HOSTS[key], Where("linux", {}, tmp_path / "home", tmp_path / "project")
    assert (project != "") == ("project" in host.files)
    for scope in host.files:
        install.make(install.plan(host, scope, "opscope", COMMAND, where=where))
        shown = Path(user.replace("~", str(where.home))) if scope == "user" else where.project / project
        assert shown.read_text() == text
    assert language == ("toml" if user.endswith(".toml") else "json")


def test_every_line_of_readme_that_starts_opscope_is_taken_by_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []

    def note(self: click.Command, ctx: click.Context) -> Any:
        del ctx
        parsed.append(self.name or "")

    monkeypatch.setattr(SessionCommand, "invoke", note)
    monkeypatch.setattr(sys, "argv", ["opscope"])
    found = [line for line in lines() if "--help" not in line]
    for line in found:
        with opscope.make_context("opscope", shlex.split(line, comments=True)[1:]) as context:
            opscope.invoke(context)
    assert len(parsed) == len(found)
    assert {"install", "uninstall", "doctor", "serve", "count-flops"} <= set(parsed)


SMALL = {
    "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000,
    "num_hidden_layers": 3,
}  # fmt: skip


@pytest.mark.readme
def test_the_shell_commands_of_readme_run_in_its_order(
    index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an empty folder, each with the files that those before it wrote; answered, and on one screen."""
    model, repository = tmp_path / "my-model", tmp_path / "vllm"
    with zipfile.ZipFile(next((ROOT / ".venv/sources").glob("liger_kernel-*.whl"))) as wheel:
        wheel.extractall(tmp_path / "liger_kernel")
    (repository / "vllm").mkdir(parents=True)
    (repository / "vllm/__init__.py").write_text("class LLM:\n    def generate(self) -> None:\n        pass\n")
    model.mkdir()
    (model / "config.json").write_text(
        json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]} | SMALL)
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPSCOPE_CACHE_DIR", str(index_folder))
    block = README.partition("## Use it from a shell")[2].partition("```bash\n")[2].partition("```")[0]
    ran = 0
    for line in (
        block.replace("/path/to/.venv", sys.prefix)
        .replace("/path/to/checkout", "/path/to/vllm")
        .replace("/path/to/", f"{tmp_path}/")
        .splitlines()
    ):
        arguments = shlex.split(line.partition(" > ")[0], comments=True)[1:]
        done = subprocess.run(
            [sys.executable, "-m", "opscope_clients", *arguments],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)
        assert "--json" in line or "--csv" in line or len(done.stdout.splitlines()) <= 60, line
        ran += 1
    assert ran > 25
