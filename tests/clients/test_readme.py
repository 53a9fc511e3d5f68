"""What README and the pages show: every host's config is what an install writes, every `opscope` line is one that the command line takes,
every output is what the command prints, every Python sample runs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import samples
from fake_machine import environment
from opscope_clients import helping
from opscope_clients.cli import opscope
from opscope_clients.hosts import install
from opscope_clients.hosts.table import HOSTS, Where
from opscope_clients.session_options import SessionCommand
from opscope_tools.trace.document import CONVENTIONS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
COMMAND = ["/path/to/checkout/.venv/bin/opscope", "serve"]
SECTIONS = re.findall(
    r"\nopscope install ([\w-]+)\n```\n\nwrites `([^`]+)` \(Linux\)(?:; `--project`: `([^`]+)`)?\n\n```(\w+)\n(.*?)```",
    (DOCS / "how-to/hosts.md").read_text(),
    re.DOTALL,
)
#: pages with commands whose output they show
SHOWN = [page for page in samples.PAGES if samples.samples(page.read_text())]


def lines(text: str) -> Iterator[str]:
    """The shell lines of a page that start opscope, without comments and redirections."""
    for block in samples.blocks(text, "bash"):
        yield from (line.partition(" > ")[0] for line in block.splitlines() if line.startswith("opscope "))
    yield from (sample.command for sample in samples.samples(text))
    yield from (
        found for found in re.findall(r"`(opscope [^`]+)`", text) if not re.search(r"\b[A-Z]{3,}\b|\.\.\.", found)
    )


def test_every_host_has_a_snippet() -> None:
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


def test_every_line_of_the_pages_that_starts_opscope_is_taken_by_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parsed: list[str] = []

    def note(self: click.Command, ctx: click.Context) -> Any:
        del ctx
        parsed.append(self.name or "")

    monkeypatch.setattr(SessionCommand, "invoke", note)
    monkeypatch.setattr(sys, "argv", ["opscope"])
    found = [line for page in samples.PAGES for line in lines(page.read_text()) if "--help" not in line]
    for line in found:
        with opscope.make_context("opscope", shlex.split(line, comments=True)[1:]) as context:
            opscope.invoke(context)
    assert len(parsed) == len(found) > 100
    assert {name for name, one in helping.below(opscope).items() if isinstance(one, SessionCommand)} <= set(parsed)


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_a_page_shows_what_its_commands_print(page: Path, index_folder: Path, tmp_path: Path) -> None:
    """`make samples` renews them."""
    copy = tmp_path / page.name
    copy.write_text(page.read_text())
    place = {"OPSCOPE_CACHE_DIR": str(index_folder)}
    done = subprocess.run(
        [sys.executable, samples.__file__, str(copy)],
        env=os.environ | place, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert copy.read_text() == page.read_text()


def test_a_sample_agrees_with_nothing_but_what_is_printed() -> None:
    told = "a 1\nb 2\nc 3 and more\n"
    assert all(samples.agrees(shown, told) for shown in (told, "a 1\n...\n", "...\nb 2\n...\n", "a 1\nb 2\nc 3 ...\n"))
    assert not any(
        samples.agrees(shown, told)
        for shown in ("", "a 1\n", "a 1\nb 3\nc 3 and more\n", "...\nb\n...\n", "a 1\nc 3 ...\n", "a 1\n...\nd\n")
    )
    page = (ROOT / "README.md").read_text()
    first = samples.samples(page)[0]
    printed = first.shown.replace("\n...\n", "\nwhatever\n")
    assert samples.agrees(first.shown, printed)
    assert not samples.agrees(first.shown.replace("34.6 GFLOP", "34.7 GFLOP"), printed)


@pytest.mark.parametrize("number", [0, 1])
def test_the_python_page_prints_what_it_shows(number: int, index_folder: Path, tmp_path: Path) -> None:
    text = (DOCS / "how-to/python.md").read_text()
    pages = list(zip(samples.blocks(text, "python"), samples.blocks(text, "text"), strict=True))
    assert len(pages) == 2
    sample, shown = pages[number]
    place = {"OPSCOPE_CACHE_DIR": str(index_folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", sample],
        env=os.environ | place, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == shown


def test_links_of_readme_lead_to_files() -> None:
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_site_loads_nothing_from_elsewhere_and_a_broken_anchor_stops_its_build(tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "CONTRIBUTING.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(DOCS, tmp_path / "docs")
    line = re.search(r"^docs: .*\n\t\w+=1 \$\(BIN\)/(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert line is not None
    command, place = [str(Path(sys.executable).with_name("mkdocs")), *line[1].split()[1:]], {"NO_MKDOCS_2_WARNING": "1"}

    def build() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=tmp_path, env=os.environ | place, capture_output=True, text=True, timeout=300, check=False
        )

    done = build()
    assert done.returncode == 0, done.stderr
    pages = {page: page.read_text() for page in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 30
    loaded = [
        found
        for text in pages.values()
        for found in re.findall(r"<(?:script|link|img|iframe)\b[^>]*https?://[^>]*>", text)
    ]
    assert loaded == []
    with (tmp_path / "docs/index.md").open("a") as page:
        page.write("\n[nowhere](start.md#nowhere)\n")
    done = build()
    assert done.returncode != 0
    assert "#nowhere" in done.stderr


def test_the_page_of_conventions_has_every_one_that_documents_spell_out() -> None:
    page = " ".join((DOCS / "conventions.md").read_text().replace("`2*m*n*k`", "2*m*n*k").split())
    assert [said for said in CONVENTIONS if said.rstrip(".") not in page] == []


SMALL = {
    "hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1000,
    "num_hidden_layers": 3,
}  # fmt: skip


@pytest.mark.readme
def test_the_shell_commands_of_the_list_run_in_its_order(
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
    block = next(samples.blocks((DOCS / "how-to/shell.md").read_text(), "bash"))
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
