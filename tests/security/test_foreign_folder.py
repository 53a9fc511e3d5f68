"""The folder that one stands in holds files called like everything that opscope imports; none of them may ever be executed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tally import Tally

BIN = Path(sys.executable).parent
#: what opscope, its workers and its compilers import: our packages' dependencies, and modules of the standard library
NAMES = (
    "filelock diskcache click rich jinja2 pydantic pydantic_core anyio mcp httpx2 uvicorn starlette pathspec platformdirs"
    " tree_sitter tree_sitter_python inotify_simple markdown_it pygments jsonschema landlockpy pyseccomp seal triton torch"
    " numpy transformers safetensors tokenizers huggingface_hub yaml regex requests tqdm sympy networkx typing_extensions"
    " json marshal pickle sqlite3 ctypes tempfile subprocess selectors queue threading inspect ast tokenize difflib runpy"
    " hashlib struct resource signal shutil contextlib dataclasses typing collections enum logging argparse random glob"
    " sitecustomize usercustomize opscope_planted"
).split()  # fmt: skip
REPOSITORY = """
import torch


class Planted(torch.nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.inner = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.inner(x)
"""


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A folder full of traps; each leaves its name in `sprung` when it is executed."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    for name in NAMES:
        trap = f"open({str(tmp_path / 'sprung')!r}, 'a').write({name + chr(10)!r})\nraise ImportError('a trap')\n"
        (folder / f"{name}.py").write_text(trap)
        (folder / f"{name}.pth").write_text(f"import {name}\n")
    (folder / "net.py").write_text(REPOSITORY)
    (folder / "kernel.cu").write_text("__global__ void planted_kernel(float* x) { x[threadIdx.x] = 1.f; }\n")
    for program in ("git", "gcc", "ldconfig", "uname", "node", "ptxas"):
        (folder / program).write_text(f"#!/bin/sh\necho {program} >> {tmp_path / 'sprung'}\n")
        (folder / program).chmod(0o755)
    return folder


def run(foreign: Path, tally: Tally, command: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    given = {**os.environ, "OPSCOPE_CACHE_DIR": str(foreign.parent / "cache"), **environment}
    done = subprocess.run(
        command,
        cwd=foreign,
        env=given,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    sprung = foreign.parent / "sprung"
    tally.executions(1, sprung.read_text().split() if sprung.exists() else [])
    return done


OPSCOPE = [str(BIN / "opscope"), "--repo", "here=."]


@pytest.mark.parametrize(
    "arguments",
    [
        ["index"], ["map-repo", "here"], ["resolve-class", "Planted", "--repo", "here"],
        ["find-forward", "Planted", "--repo", "here"], ["extract-config", "Planted"], ["cuda-kernel-tiling", "planted_kernel", "--repo", "here"],
        ["cache", "info"], ["doctor"], ["inspect-model", "gpt2"], ["write-report", "repo", "here"],
    ],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_no_command_runs_what_lies_in_its_folder(foreign: Path, tally: Tally, arguments: list[str]) -> None:
    done = run(foreign, tally, [*OPSCOPE, "--output", str(foreign.parent / "out"), *arguments])
    assert done.returncode == 0, done.stderr


def test_an_empty_entry_of_a_search_path_does_not_open_the_folder_to_children(foreign: Path, tally: Tally) -> None:
    """PYTHONPATH and PATH with relative entries are the user's mistake for the command itself; its children do not share it."""
    code = (
        "import os\nfrom opscope_tools.children import run, python_module\n"
        "os.environ['PYTHONPATH'] = os.pathsep + '.'\nos.environ['PATH'] = '.:' + os.environ['PATH']\n"
        "print(run(python_module('opscope_tools.index.build.build'), seconds=60).err)\n"
        "print(run(['git', '--version'], seconds=60).out)\n"
    )
    done = run(foreign, tally, [sys.executable, "-P", "-c", code])
    assert "not enough values to unpack" in done.stdout  # it ran as far as its arguments
    assert "git version" in done.stdout


@pytest.mark.parametrize("module", ["opscope_server", "opscope_clients"])
def test_a_module_that_is_run_by_name_leaves_the_folder_at_once(foreign: Path, tally: Tally, module: str) -> None:
    """`python -m` itself looks into the folder before our first line; what comes after that line does not."""
    for name in NAMES[NAMES.index("json") :]:
        (foreign / f"{name}.py").unlink()
    done = run(foreign, tally, [sys.executable, "-m", module, "--help"])
    assert done.returncode == 0, done.stderr


def test_the_server_of_a_scripted_client_and_its_work_import_nothing_from_the_folder(
    foreign: Path, tally: Tally
) -> None:
    done = run(foreign, tally, [*OPSCOPE, "--output", str(foreign.parent / "out"), "analyze", "--kind", "repo", "here"])
    assert done.returncode == 0, done.stderr


def test_a_trusted_repository_is_imported_and_its_neighbours_that_nobody_names_are_not(
    foreign: Path, tally: Tally
) -> None:
    """Trust is for the repository's own code; what shadows installed packages in it is still shadowed by them."""
    (foreign / "mine").mkdir()
    (foreign / "mine/__init__.py").write_text("")
    (foreign / "mine/net.py").write_text(REPOSITORY)
    done = run(
        foreign, tally,
        [str(BIN / "opscope"), "--repo", f"mine={foreign / 'mine'}", "--trust", "mine", "count-flops", "mine.net.Planted",
         "--config", '{"dim": 64}', "--json"],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
