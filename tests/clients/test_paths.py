"""Sources that a user names by their paths: the repository that each lies in, and what it is called there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from opscope_clients.console import as_options
from opscope_clients.options import parse_object
from opscope_clients.session_options import SessionOptions
from opscope_schemas.errors import InputError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a package of two folders, and a file that stands alone beside it; the current folder is above both."""
    package = tmp_path / "shop" / "src" / "parts"
    (package / "inner").mkdir(parents=True)
    for file in (package / "__init__.py", package / "inner" / "__init__.py", package / "inner" / "kernel.py"):
        file.write_text("x = 1\n")
    (tmp_path / "shop" / "pyproject.toml").write_text("")
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "ops.cu").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("target", "name", "root", "called"),
    [
        ("shop/src/parts/inner/kernel.py", "shop", "shop", "src/parts/inner/kernel.py"),
        ("./shop/src/parts/inner/kernel.py:7", "shop", "shop", "src/parts/inner/kernel.py:7"),
        ("alone/ops.cu::fill", "alone", "alone", "ops.cu::fill"),
        ("./shop", "shop", "shop", "shop"),
        ("alone/", "alone", "alone", "alone"),
    ],
)
def test_a_path_is_a_repository_that_was_given(project: Path, target: str, name: str, root: str, called: str) -> None:
    session, placed = SessionOptions().placing(target)
    assert (session.repo, placed) == ((f"{name}={project / root}",), called)
    opened = session.workspace()
    assert opened.repositories[name].root == project / root
    opened.store.close()


def test_a_package_without_a_project_is_read_from_above_its_topmost_folder(project: Path) -> None:
    (project / "shop" / "pyproject.toml").unlink()
    session, placed = SessionOptions().placing("shop/src/parts/inner/kernel.py")
    assert (session.repo, placed) == ((f"src={project / 'shop/src'}",), "parts/inner/kernel.py")


def test_what_lies_in_a_repository_that_was_given_is_read_there(project: Path) -> None:
    session = SessionOptions(repo=(f"mine={project}",), trust=("mine",))
    assert session.placing("alone/ops.cu") == (session, "alone/ops.cu")
    installed = Path(transformers.__file__).parent / "models/llama/modeling_llama.py"
    assert session.placing(f"{installed}:60") == (session, "transformers/models/llama/modeling_llama.py:60")


def test_two_folders_of_one_name_are_two_repositories(project: Path) -> None:
    session, _ = SessionOptions(repo=(f"alone={project / 'shop'}",)).placing("alone/ops.cu")
    assert session.repo[1:] == (f"alone-2={project / 'alone'}",)


@pytest.mark.parametrize(
    "target", ["shop", "llama", "nothing.py", "./nothing.py", "", ":", "a\0b.py", "~", "/", "x" * 5000]
)
def test_what_is_no_path_of_a_source_stays_as_it_is(
    project: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    monkeypatch.setenv("HOME", str(project))
    assert SessionOptions().placing(target) == (SessionOptions(), target)


@pytest.mark.usefixtures("project")
def test_several_paths_are_read_each_where_it_lies() -> None:
    session, placed = SessionOptions().placing_all(["shop/src/parts/inner/kernel.py:7", "llama", "alone/ops.cu"])
    assert placed == ("src/parts/inner/kernel.py:7", "llama", "ops.cu")
    assert [repo.partition("=")[0] for repo in session.repo] == ["shop", "alone"]


@pytest.mark.parametrize("command", [["analyze"], ["estimate", "--hardware", "h100"], ["compare", "llama"], ["view"]])
def test_commands_take_a_class_by_the_path_of_its_file(project: Path, command: list[str], index_folder: Path) -> None:
    (project / "alone" / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    name, *options = command
    environment = {**os.environ, "OPSCOPE_CACHE_DIR": str(index_folder)}
    ran = subprocess.run(
        [sys.executable, "-m", "opscope_clients", name, "alone/net.py::Net", *options],
        capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=project,
    )  # fmt: skip
    assert ran.returncode not in (0, 2)
    assert "repository alone, which is not trusted" in " ".join(ran.stderr.split())


def test_a_home_and_a_model_are_no_repositories(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(project / "alone"))
    (project / "shop" / "config.json").write_text("{}")
    for target in (
        "alone/ops.cu",
        "./alone",
        "./shop",
        "shop/config.json",
        "./shop/config.json",
        "shop/pyproject.toml",
    ):
        assert SessionOptions().placing(target) == (SessionOptions(), target)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("logits='last', as generation asks", "--logits last, as generation asks"),
        ("Ask with phase='train'.", "Ask with --phase train."),
        ("compile=true adds registers", "--compile adds registers"),
        # a model's own fields, sizes, and what is written for a shell already
        ("attn_implementation='eager' of a config", "attn_implementation='eager' of a config"),
        ("--values seq_len=512, --phase train", "--values seq_len=512, --phase train"),
        ("sides: [{'phase': 'prefill'}]", "sides: [{'phase': 'prefill'}]"),
    ],
)
def test_what_a_tool_says_of_its_arguments_is_said_as_a_shell_takes_them(said: str, shown: str) -> None:
    assert as_options(said) == shown


@pytest.mark.usefixtures("project")
def test_a_config_that_is_not_there_is_missed_and_not_refused() -> None:
    with pytest.raises(InputError, match=r"The config \./none/config\.json does not exist"):
        parse_object("config", ["./none/config.json"], path=True)
    assert parse_object("config", ["./alone"], path=True) == "./alone"
