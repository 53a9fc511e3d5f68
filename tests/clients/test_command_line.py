"""Every subcommand: its line and example in the help, how it ends, what a shell completes of it; Ctrl-C leaves nothing behind."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import psutil
import pytest
from click.testing import CliRunner
from opscope_clients import console, helping, session_options
from opscope_clients.cli import main, opscope
from opscope_clients.session_options import SessionCommand

ENTRY = [sys.executable, "-c", "from opscope_clients.entry import main; main()"]
#: nothing bears these names: arguments with which a command has no answer
NOTHING = {
    "map-repo": ["no_repository"], "resolve-class": ["NoClass"], "find-forward": ["NoClass"], "find-references": ["NoClass.x"],
    "extract-config": ["NoClass"], "inspect-model": ["NoClass"], "count-flops": ["NoClass"], "expand-refs": ["NoClass"],
    "trace-dataflow": ["NoClass"], "estimate-roofline": ["llama", "--hardware", "none"], "estimate": ["llama", "--hardware", "none"],
    "plan": ["llama", "--hardware", "none:2"], "sweep": ["NoClass"], "compare": ["NoClass", "llama"], "search-source": ["zzqqxx"], "cuda-kernel-tiling": ["no_kernel.cu"],
    "collect-evidence": ["cache-hierarchy", "--workload", "model=no_model"], "import-evidence": ["cache-hierarchy", "none.json"], "post": ["cache-hierarchy"],
    "write-report": ["implementation", "NoClass"], "check-report": ["none.md"], "view": ["NoClass", "--no-browser"], "analyze": ["llama", "--config", "/none"],
    "module": ["--module", "NoClass"], "model": ["--model", "NoClass"], "inspect": ["--model-id", "NoClass"],
    "index": ["--repo", "x=/none"], "cache info": ["--cache-dir", "/dev/null/x"], "cache clear": ["--cache-dir", "/dev/null/x"],
    "install": ["claude-code", "--name", "no name"], "uninstall": ["claude-code", "--name", "no name"], "doctor": ["--python", "/none"],
}  # fmt: skip


def commands() -> dict[str, click.Command]:
    found = helping.below(opscope)
    below = found.pop("cache")
    assert isinstance(below, click.Group)
    return found | {f"cache {name}": one for name, one in below.commands.items()}


def ended(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["opscope", *arguments])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert isinstance(leaving.value.code, int)
    return leaving.value.code


def test_help_lists_each_command_once_on_a_short_line_below_a_heading() -> None:
    said = CliRunner().invoke(opscope, ["--help"]).output
    for name in helping.below(opscope):
        lines = [line for line in said.splitlines() if re.match(rf"  {name} ", line)]
        assert len(lines) == 1, name
        assert len(lines[0]) < 70
    assert re.findall(r"^([A-Z][\w -]+):$", said, re.MULTILINE)[1:] == [*helping.COMMANDS, "Exit status"]
    for status, meaning in helping.STATUSES:
        assert f"{status} " in said
        assert meaning in " ".join(said.split())


@pytest.mark.parametrize("name", commands())
def test_each_commands_help_has_one_example_that_the_command_line_takes(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, *name.split(), "--help") == 0
    said = capsys.readouterr().out
    example = shlex.split(said.partition("Example:\n")[2])
    assert example[: 1 + len(name.split())] == ["opscope", *name.split()]
    run: list[str] = []
    monkeypatch.setattr(SessionCommand, "invoke", lambda self, _: run.append(str(self.name)))
    assert ended(monkeypatch, *example[1:]) == 0
    assert run == name.split()[-1:]


def test_each_command_that_a_post_names_is_one_that_the_command_line_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    posts = Path(__file__).parents[2] / "posts"
    named = {found for post in posts.glob("*.md") for found in re.findall(r"`opscope ([^`]+)`", post.read_text())}
    assert len(named) >= 15
    run: list[str] = []
    monkeypatch.setattr(SessionCommand, "invoke", lambda self, _: run.append(str(self.name)))
    for example in sorted(named):
        assert ended(monkeypatch, *shlex.split(example)) == 0, example
    assert {"post", "import-evidence"} == set(run)


@pytest.mark.parametrize("name", commands())
def test_every_command_ends_with_2_for_wrong_usage_and_1_without_an_answer(
    name: str, index_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPSCOPE_CACHE_DIR", str(index_folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ended(monkeypatch, *name.split(), "--no-such-option") == 2
    assert "No such option" in capsys.readouterr().err
    if name != "serve":  # which ends by being ended
        assert ended(monkeypatch, *name.split(), *NOTHING[name]) == 1
        said = capsys.readouterr()
        assert said.out or said.err
        assert "Traceback" not in said.err


@pytest.mark.parametrize("name", [n for n, c in commands().items() if isinstance(c, SessionCommand)])
def test_session_options_stand_behind_every_command(name: str) -> None:
    """Also where an argument or an option of the command bears the same name: NAME=PATH is the session's either way."""
    command = commands()[name]
    taken = {flag for parameter in command.params if isinstance(parameter, click.Option) for flag in parameter.opts}
    assert {flag for option in session_options.options() for flag in option.opts} <= taken


def test_a_repository_may_be_added_behind_the_command_that_maps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine.py").write_text('"""An engine."""\n')
    assert ended(monkeypatch, "map-repo", "own", "--repo", f"own={tmp_path}", "--json") == 0


def completed(*words: str) -> list[str]:
    line = {
        "COMP_WORDS": shlex.join(["opscope", *words]),
        "COMP_CWORD": str(len(words)),
        "_OPSCOPE_COMPLETE": "bash_complete",
    }
    done = subprocess.run(ENTRY, env=os.environ | line, capture_output=True, text=True, timeout=60, check=True)
    return [text.partition(",")[2] for text in done.stdout.splitlines()]


def test_a_shell_completes_commands_options_models_devices_and_repositories() -> None:
    assert completed("find-r") == ["find-references"]
    assert completed("count-flops", "llama", "--pha") == ["--phase"]
    assert "decode" in completed("count-flops", "llama", "--phase", "")
    assert {"llama", "llama4"} <= set(completed("estimate", "lla"))
    assert "Qwen/Qwen3-8B" in completed("sweep", "llama", "Qwen/")
    assert {"h100_sxm", "h100_pcie"} <= set(completed("plan", "llama", "--hardware", "h100"))
    assert completed("--repo", "vllm=/x", "map-repo", "v") == ["vllm"]
    assert completed("cache", "i") == ["info"]


def test_a_completion_takes_less_than_300_ms_of_a_processor_and_imports_no_tool() -> None:
    took = []
    for _ in range(5):
        begun = os.times()
        assert "llama" in completed("estimate", "llama")
        ended = os.times()
        took.append(ended.children_user - begun.children_user + ended.children_system - begun.children_system)
    assert min(took) < 0.3
    code = (
        "import sys, json; from opscope_clients import completing as c; c._models(None); c._devices(None);"
        "assert not {'pydantic', 'torch', 'transformers', 'opscope_tools.catalog'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


@pytest.mark.parametrize(
    ("command", "tools"),
    [("find-forward", ["find_forward"]), ("count-flops", ["count_flops"]), ("cuda-kernel-tiling", ["cuda_kernel_tiling"]), ("cache", []), ("--help", [])],
)  # fmt: skip
def test_a_command_imports_its_own_tool_and_no_other(command: str, tools: list[str]) -> None:
    code = (
        "import sys, click; from opscope_clients.cli import opscope; from opscope_tools import catalog\n"
        "name = sys.argv[1]; print(opscope.get_help(click.Context(opscope)) if name == '--help' else opscope.get_command(None, name))\n"
        "print([one for one, module in catalog._MODULES.items() if f'opscope_tools.{module}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == str(tools)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["count-flops", "gpt2"], ["analyze", "gpt2"]])
def test_an_interrupt_leaves_no_process_and_says_so_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*ENTRY, *arguments], env=os.environ | {"OPSCOPE_CACHE_DIR": str(tmp_path / "cache")}, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    begun = psutil.Process(process.pid)
    while not (below := begun.children(recursive=True)):  # a worker or a server works for it
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    output, said = process.communicate(timeout=30)
    assert (process.returncode, output, said) == (console.INTERRUPTED, "", "opscope: interrupted.\n")
    assert psutil.wait_procs(below, timeout=10)[1] == []
