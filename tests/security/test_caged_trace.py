"""The process that traces is really in its cage: a trusted repository's code tries what it may not, and is traced all the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from cannot import CANNOT
from opscope_schemas.errors import InputError, OpscopeError
from opscope_tools.children import Limits, protection
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines
from opscope_tools.running.session import open_workspace
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

caged = pytest.mark.skipif(
    not protection().complete, reason=f"{CANNOT}{'; '.join(protection().missing) or 'no cage here'}"
)

HOSTILE = """
import os, socket, subprocess, threading
import torch

OUTSIDE = {outside!r}
done = []


def attempt(name, what):
    try:
        what()
        done.append(name)
    except Exception:
        pass


def everything():
    attempt("read", lambda: open(OUTSIDE + "/secret").read())
    attempt("write", lambda: open(OUTSIDE + "/written", "w").write("x"))
    attempt("remove", lambda: os.remove(OUTSIDE + "/secret"))
    attempt("list", lambda: os.listdir(OUTSIDE))
    attempt("connect", lambda: socket.create_connection(("127.0.0.1", 9), 1))
    attempt("program", lambda: subprocess.run(["/bin/sh", "-c", "touch " + OUTSIDE + "/ran"], check=True))
    attempt("process", os.fork)
    attempt("kill", lambda: os.kill(os.getppid(), 9))
    attempt("environment", lambda: open(f"/proc/{{os.getppid()}}/environ").read())


everything()


class Hostile(torch.nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        threading.Thread(target=everything).start()
        everything()
        self.inner = torch.nn.Linear(dim, dim)

    def forward(self, x):
        everything()
        # one FLOP an element more for each thing that was possible
        for _ in done:
            x = x + 1
        return self.inner(x)
"""


#: what the module costs where nothing that it tries is possible
ALONE = "{batch_size} * {seq_len} * {dim} * (2 * {dim} + 1)"


def traced(workspace: Workspace) -> str:
    try:
        document = count_flops(CostArguments(target="hostile.net.Hostile", config={"dim": 64}), ToolContext(workspace))
        return document.document.totals.flops
    finally:
        close_engines(workspace)
        workspace.store.close()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    outside, package = tmp_path / "outside", tmp_path / "code/hostile"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(HOSTILE.format(outside=str(outside)))
    return open_workspace(
        repositories=[f"hostile={package}"],
        trust=["hostile"],
        cache_folder=str(tmp_path / "cache"),
        output=str(tmp_path),
    )


@caged
def test_a_trusted_repository_is_traced_and_reaches_nothing(tmp_path: Path, workspace: Workspace) -> None:
    flops = traced(workspace)
    assert flops == ALONE
    assert sorted(one.name for one in (tmp_path / "outside").iterdir()) == ["secret"]
    assert (tmp_path / "outside/secret").read_text() == "secret"


@caged
def test_a_number_of_processes_lets_a_trace_start_some(tmp_path: Path, workspace: Workspace) -> None:
    workspace.trace_limits = Limits(processes=50)
    code = (tmp_path / "code/hostile/net.py").read_text()
    harmless = code.replace(
        'attempt("process", os.fork)', "attempt('process', lambda: os.waitpid(os.fork() or os._exit(0), 0))"
    )
    (tmp_path / "code/hostile/net.py").write_text(harmless)
    assert traced(workspace) != ALONE  # starting one was possible, and nothing else
    assert sorted(one.name for one in (tmp_path / "outside").iterdir()) == ["secret"]


def test_the_limits_of_a_trace_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_TRACE_MEMORY", "500")
    monkeypatch.setenv("OPSCOPE_TRACE_PROCESSES", "3")
    monkeypatch.setenv("OPSCOPE_TRACE_FILES", "200")
    opened = open_workspace(cache_folder=str(tmp_path / "cache"), output=str(tmp_path))
    limits = opened.trace_limits
    opened.store.close()
    assert (limits.data_bytes, limits.processes, limits.open_files) == (500 << 20, 3, 200)
    for wrong in ("-1", "many", "1e3", "9" * 20, "٣"):
        monkeypatch.setenv("OPSCOPE_TRACE_MEMORY", wrong)
        with pytest.raises(InputError, match="OPSCOPE_TRACE_MEMORY"):
            open_workspace(cache_folder=str(tmp_path / "cache"), output=str(tmp_path))


def test_a_trace_that_needs_more_memory_than_it_may_have_says_so(tmp_path: Path, workspace: Workspace) -> None:
    workspace.trace_limits = Limits(data_bytes=3 << 30)
    code = (tmp_path / "code/hostile/net.py").read_text()
    (tmp_path / "code/hostile/net.py").write_text(
        code.replace("everything()\n\n\nclass", "hog = bytearray(8 << 30)\n\n\nclass")
    )
    with pytest.raises(Exception, match=r"memory|Memory") as caught:
        traced(workspace)
    assert len(str(caught.value)) < 600


FORGER = """
import json, os
import torch


def say(*texts):
    for number in range(3, 40):  # whichever descriptor the replies go to
        try:
            if os.readlink(f"/proc/self/fd/{{number}}").startswith("pipe:"):
                os.write(number, ("\\n".join(texts) + "\\n").encode())
        except OSError:
            pass


say(*{said!r})


class Hostile(torch.nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.inner = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.inner(x)
"""


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(['{"error": {"type": "annotations", "message": "m"}}'], id="kind of error"),
        pytest.param(["[]"], id="no object", marks=pytest.mark.slow),
        pytest.param(['{"result": {"model_class": 3}}'], id="no trace"),
        pytest.param(['{"progress": {}}'], id="no note", marks=pytest.mark.slow),
        pytest.param(['{"progress": "x"}'] * 5000, id="flood"),
    ],
)
def test_what_traced_code_writes_into_the_replies_is_a_sentence_at_most(
    tmp_path: Path, workspace: Workspace, said: list[str]
) -> None:
    (tmp_path / "code/hostile/net.py").write_text(FORGER.format(said=said))
    try:
        flops = traced(workspace)
    except OpscopeError as error:
        flops = ""
        said = [str(error)]
    assert flops == ALONE or len(said[0]) < 600


PATCHING = """
import threading, time
import torch
import transformers.models.gpt2.modeling_gpt2 as gpt2

real = gpt2.GPT2MLP.forward
gpt2.GPT2MLP.forward = lambda self, states: real(self, states) + states


class Hostile(torch.nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.inner = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.inner(x)
"""


def test_trusted_code_that_changes_a_library_changes_no_other_trace(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "code/hostile/net.py").write_text(PATCHING)
    context = ToolContext(workspace)
    first = count_flops(CostArguments(target="hostile.net.Hostile", config={"dim": 64}), context)
    patched = count_flops(CostArguments(target="GPT2MLP"), context).document.totals
    close_engines(workspace)
    workspace.store.close()
    alone = Workspace.create(cache_folder=tmp_path / "other", output=tmp_path)
    plain = count_flops(CostArguments(target="GPT2MLP"), ToolContext(alone)).document.totals
    close_engines(alone)
    alone.store.close()
    assert first.document.totals.flops == ALONE
    assert patched == plain


SURPLUS = """
import json, os, threading, time
import torch


def write():
    error = {"error": {"type": "TraceError", "message": "FORGED FOR ANOTHER CALL"}}
    while True:
        time.sleep(0.01)
        for number in range(3, 12):
            try:
                if os.readlink(f"/proc/self/fd/{number}").startswith("pipe:"):
                    os.write(number, (json.dumps(error) + "\\n").encode())
            except OSError:
                pass


threading.Thread(target=write, daemon=True).start()


class Hostile(torch.nn.Module):
    def __init__(self, dim: int = 8):
        super().__init__()
        self.inner = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.inner(x)
"""


def test_replies_without_the_mark_of_a_request_reach_nobody(tmp_path: Path, workspace: Workspace) -> None:
    (tmp_path / "code/hostile/net.py").write_text(SURPLUS)
    context = ToolContext(workspace)
    said = []
    for dim in (64, 32, 16):
        try:
            document = count_flops(CostArguments(target="hostile.net.Hostile", config={"dim": dim}), context).document
            said.append(document.totals.flops)
        except OpscopeError as error:  # a line in the middle of another is no answer
            said.append(str(error))
    close_engines(workspace)
    workspace.store.close()
    assert not any("FORGED" in one for one in said)
    assert all(one == ALONE or "no answer" in one for one in said), said
