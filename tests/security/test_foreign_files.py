"""Files of other people: a configuration is read only where the session allows it, and only what its class knows is shown."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from opscope_schemas.errors import ConfigError, OpscopeError, PathRefusedError
from opscope_tools.catalog import tool_named
from opscope_tools.running import config_files
from opscope_tools.running.config_files import read_config
from opscope_tools.running.runner import result_key, validate
from opscope_tools.running.workspace import Workspace
from tally import SECRET, Tally

Ask = Callable[..., str]
#: tools that take a configuration, with what they need beside it
TOOLS = {
    "inspect_model": {"model": "llama"},
    "count_flops": {"target": "LlamaMLP"},
    "expand_refs": {"target": "LlamaMLP"},
    "trace_dataflow": {"target": "LlamaMLP"},
    "extract_config": {"target": "llama"},
    "resolve_class": {"name": "AutoModelForCausalLM"},
    "find_forward": {"target": "AutoModelForCausalLM"},
    "write_report": {"kind": "implementation", "name": "llama"},
}
TARGETS = {"inspect_model": "model", "count_flops": "target", "expand_refs": "target", "trace_dataflow": "target"}


def foreign(ground: Path) -> dict[str, str]:
    """How a foreign file may be named; what needs making lies in the folder that may be read."""
    inside, outside = ground / "configs", ground / "outside"
    links = {"link.json": outside / "config.json", "folder": outside}
    for name, target in links.items():
        if not (inside / name).is_symlink():
            (inside / name).symlink_to(target)
    if not (inside / "linked").is_dir():
        (inside / "linked").mkdir()
        (inside / "linked/config.json").symlink_to(outside / "config.json")
    return {
        "absolute": str(outside / "config.json"),
        "folder": str(outside),
        "dots": str(inside / "../outside/config.json"),
        "dots of a folder": str(inside / ".." / "outside"),
        "link": str(inside / "link.json"),
        "link of a folder": str(inside / "folder"),
        "config.json is a link": str(inside / "linked"),
        "through a link": str(inside / "folder/config.json"),
        "relative": os.path.relpath(outside / "config.json"),
        "doubled slashes": str(outside / "config.json").replace("/", "//"),
        "passwd": "/etc/passwd",
        "environment": "/proc/self/environ",
        "root": f"/proc/self/root{outside}/config.json",
        "cwd": f"/proc/self/cwd/{os.path.relpath(outside / 'config.json')}",
        "home": "~/config.json",
        "user": "~root/.bashrc",
        "nul": f"{outside}/config.json\0.txt",
        "newline": f"{outside}/config.json\n",
        "url": f"file://{outside}/config.json",
        "nothing": "/nowhere/at/all/config.json",
        "long": "/" + "a" * 5000,
    }  # fmt: skip


NAMES = [
    *"absolute folder dots link relative passwd environment root cwd home user nul newline url nothing long".split(),
    "dots of a folder", "link of a folder", "config.json is a link", "through a link", "doubled slashes",
]  # fmt: skip


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", NAMES)
def test_a_config_outside_of_what_is_allowed_is_refused_unread(
    tool: str, name: str, ground: Path, answer: Ask, tally: Tally
) -> None:
    said = answer(tool, **TOOLS[tool], config=foreign(ground)[name])
    assert said.startswith("The config path ")
    assert "--config-dir" in said
    tally.file(said)


@pytest.mark.parametrize("tool", TARGETS)
@pytest.mark.parametrize("name", ["absolute", "folder", "dots", "link", "link of a folder", "root", "home", "passwd"])
def test_a_target_outside_of_what_is_allowed_is_refused_unread(
    tool: str, name: str, ground: Path, answer: Ask, tally: Tally
) -> None:
    said = answer(tool, **{TARGETS[tool]: foreign(ground)[name]})
    assert said[:1] != "{"
    tally.file(said)


@pytest.mark.parametrize("name", NAMES)
def test_the_key_of_a_result_reads_no_foreign_file(
    name: str, ground: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    opened: list[str] = []
    real = os.open

    def noted(path: str, flags: int) -> int:
        opened.append(str(path))
        return real(path, flags)

    monkeypatch.setattr(os, "open", noted)
    tool = tool_named("inspect_model")
    result_key(tool, validate(tool, {"model": "llama", "config": foreign(ground)[name]}), workspace)
    assert opened == []
    tally.file("")


@pytest.fixture
def fifo(ground: Path) -> Iterator[Path]:
    path = ground / "configs/pipe.json"
    os.mkfifo(path)
    yield path
    path.unlink()


def test_a_pipe_is_refused_and_not_waited_for(fifo: Path, answer: Ask, tally: Tally) -> None:
    said = answer("inspect_model", model="llama", config=str(fifo))
    assert "is no ordinary file" in said
    tally.file(said)


def test_a_socket_a_device_and_a_folder_of_that_name_are_refused(
    ground: Path, answer: Ask, tally: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ground / "configs/folder.json/config.json").mkdir(parents=True, exist_ok=True)
    (ground / "configs/zero.json").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as served:
        monkeypatch.chdir(ground / "configs")
        served.bind("socket.json")  # a socket's path may have 107 characters
        for name in ("socket.json", "zero.json", "folder.json"):
            said = answer("inspect_model", model="llama", config=str(ground / "configs" / name))
            assert said[:1] != "{"
            tally.file(said)


def test_a_file_past_the_limit_is_refused_unread(ground: Path, answer: Ask, tally: Tally) -> None:
    path = ground / "configs/large.json"
    with path.open("wb") as file:
        file.truncate(50 << 30)  # takes no room, and would take all memory to read
    said = answer("inspect_model", model="llama", config=str(path))
    path.unlink()
    assert "is larger than 10,000,000 bytes" in said
    tally.file(said)


@pytest.mark.parametrize(
    "content",
    [
        "[1]",
        "{",
        "{" * 100_000,
        '"x"',
        "",
        "\ufeff{",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        "\udcff",
    ],
)
def test_what_a_file_holds_is_not_quoted_where_it_is_no_configuration(
    content: str, ground: Path, answer: Ask, tally: Tally
) -> None:
    path = ground / "configs/odd.json"
    path.write_bytes((SECRET + content if content in ("", "\udcff") else content).encode("utf-8", "surrogateescape"))
    said = answer("inspect_model", model="llama", config=str(path))
    assert said[:1] != "{"
    tally.file(said)


def test_what_fields_hold_that_the_class_does_not_know_is_not_shown(ground: Path, answer: Ask, tally: Tally) -> None:
    path = ground / "configs/extra.json"
    path.write_text(json.dumps({"model_type": "llama", "num_hidden_layers": 1, "notes": SECRET, "more": [SECRET]}))
    for tool, arguments in TOOLS.items():
        if tool != "write_report":
            tally.file(answer(tool, **arguments, config=str(path)))
    found = json.loads(answer("inspect_model", model=str(path)))
    assert found["config"]["num_hidden_layers"] == 1
    tally.file(json.dumps(found))


def test_errors_over_a_file_name_fields_and_quote_nothing(ground: Path, answer: Ask, tally: Tally) -> None:
    path = ground / "configs/wrong.json"
    for content in ({"model_type": SECRET}, {"model_type": {"x": SECRET}}, {"model_type": "gpt2", "x": SECRET}):
        path.write_text(json.dumps(content))
        tally.file(answer("inspect_model", model="llama", config=str(path)))
        tally.file(answer("inspect_model", model=str(path)))
        for tool, arguments in TOOLS.items():
            tally.file(answer(tool, **arguments, config=str(path)))
        tally.file(answer("count_flops", target="torch.nn.Linear", config=str(path)))
    path.write_text(json.dumps({SECRET: [SECRET], "in_features": 3, "out_features": 4}))
    tally.file(answer("count_flops", target="torch.nn.Linear", config=str(path)))


def test_a_folder_that_becomes_a_link_after_the_check_is_not_followed(
    ground: Path, workspace: Workspace, tally: Tally
) -> None:
    """Another process swaps the folder between two contents as fast as it can; only the allowed one is ever read."""
    place = ground / "configs/swapped"
    (ground / "configs/kept").mkdir(exist_ok=True)
    (ground / "configs/kept/config.json").write_text('{"model_type": "llama"}')
    over = threading.Event()

    def swap() -> None:
        number = 0
        while not over.is_set():
            number += 1
            fresh = ground / f"configs/.fresh{number % 2}"
            fresh.unlink(missing_ok=True)
            fresh.symlink_to(ground / ("outside" if number % 2 else "configs/kept"))
            fresh.replace(place)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(300):
            try:
                said = json.dumps(config_files.open_config(workspace, str(place / "config.json")).content)
            except OpscopeError as error:
                said = str(error)
            assert SECRET not in said
    finally:
        over.set()
        thread.join()
    tally.file(said)


def test_what_was_opened_is_checked_and_not_what_the_path_said_before(
    ground: Path, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tally: Tally
) -> None:
    (ground / "configs/real.json").write_text('{"model_type": "llama"}')
    monkeypatch.setattr(config_files, "_allowed", lambda *_: ground / "configs/folder/config.json")
    foreign(ground)
    with pytest.raises(PathRefusedError, match="changed while it was opened"):
        config_files.open_config(workspace, str(ground / "configs/real.json"))
    tally.file("")


def test_over_http_no_path_counts_but_those_of_a_named_folder(ground: Path, workspace: Workspace, tally: Tally) -> None:
    served = replace(workspace, paths_allowed=False)
    (ground / "out/config.json").write_text(json.dumps({"model_type": "llama", "x": SECRET}))
    for path in (ground / "out/config.json", ground / "trusted/planted.py", ground / "outside/config.json"):
        with pytest.raises(PathRefusedError) as caught:
            config_files.read_config(served, str(path))
        tally.file(str(caught.value))
    (ground / "configs/mine.json").write_text('{"model_type": "llama"}')
    assert config_files.read_config(served, str(ground / "configs/mine.json")) == {"model_type": "llama"}
    served.config_places = ()
    with pytest.raises(PathRefusedError, match="--config-dir FOLDER"):
        config_files.read_config(served, str(ground / "configs/mine.json"))
    (ground / "out/config.json").unlink()


def test_a_config_in_a_repository_or_the_output_folder_is_read(ground: Path, workspace: Workspace) -> None:
    for folder in ("trusted", "out", "configs"):
        (ground / folder / "config.json").write_text('{"model_type": "llama"}')
        for text in (str(ground / folder), str(ground / folder / "config.json")):
            assert config_files.read_config(workspace, text) == {"model_type": "llama"}
    with pytest.raises(ConfigError, match="does not exist"):
        config_files.read_config(workspace, str(ground / "configs/no.json"))


@pytest.mark.parametrize("wide", ["/", "home"])
def test_a_server_that_was_started_at_home_reads_no_configuration_there(
    ground: Path, workspace: Workspace, tally: Tally, monkeypatch: pytest.MonkeyPatch, wide: str
) -> None:
    """The output folder is where the server was started unless somebody names one."""
    monkeypatch.setenv("HOME", str(ground))
    started = replace(workspace, output=Path("/") if wide == "/" else ground)
    with pytest.raises(PathRefusedError) as refused:
        read_config(started, str(ground / "outside/config.json"))
    tally.file(str(refused.value))
