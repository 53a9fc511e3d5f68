"""Installing into hosts and uninstalling: every host and scope, on files of every kind, never this machine's own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_machine import environment
from opscope_cache.whole_files import written_beside
from opscope_clients.hosts import extras, files, install, record, uninstall
from opscope_clients.hosts.table import HOSTS, Host, Scope, Where
from opscope_schemas.errors import InputError, OutputError

COMMAND = ["/opt/opscope/bin/opscope", "serve", "--repo", "liger=/src/liger"]
OTHER = [*COMMAND, "--trust", "liger"]
PLACES = [(host, scope) for host in HOSTS.values() for scope in host.files]
IDS = [f"{host.key}-{scope}" for host, scope in PLACES]
#: a file of the user's own for each format: comments, odd layout, other servers, keys nobody knows
MINE = {
    "mcpServers": '{\n    "numStartups": 3,\n    "mcpServers": {\n        "git": {"command": "git-mcp", "args": []}\n    },\n    "z": [1,2]\n}',
    "servers": '// mine\r\n{\r\n\t"inputs": [], // none\r\n\t"servers": {\r\n\t\t"git": { "command": "x" }, /* y */\r\n\t},\r\n}\r\n',
    "context_servers": '// Zed settings\n{\n  "theme": "One Dark",\n  "vim_mode": true, // yes\n}\n',
    "mcp": '{"$schema": "https://opencode.ai/config.json", "mcp": {"git": {"type": "local", "command": ["x"]}}}\n',
    "mcp_servers": '# mine\nmodel = "o"   # best\n\n[mcp_servers.git]\ncommand = "x"\n\n# the end\n[tui]\n  a=1\n',
}


def own(host: Host) -> bytes:
    return MINE[host.container[0]].encode()


class Touched:
    """The paths that this process opens, lists, makes, moves or removes while `on`."""

    def __init__(self) -> None:
        self.on = False
        self.paths: set[str] = set()
        sys.addaudithook(self._hook)  # for good: Python takes no hook away

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and (
            event == "open" or event in {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}
        ):
            self.paths.update(
                os.fspath(a)
                for a in arguments[:2]
                if isinstance(a, str | os.PathLike) and os.fspath(a)[:1] in {"/", b"/"}
            )


TOUCHED = Touched()
REAL = Where()


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Where]:
    """A machine of its own: home, config, state and project below the test's folder; the real one is not touched."""
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    kept = environment(tmp_path)
    for name in set(os.environ) - set(kept):
        monkeypatch.delenv(name)
    for name, value in kept.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(project)
    TOUCHED.paths.clear()
    TOUCHED.on = True
    yield Where()
    TOUCHED.on = False
    real = [host.file(scope, REAL) for host in HOSTS.values() for scope in host.files]
    for path in TOUCHED.paths:
        assert not any(path.startswith(str(file)) for file in real), f"{path} is this machine's own"
        assert "/.local/state/opscope" not in path


@pytest.mark.usefixtures("machine")
def test_a_touch_of_this_machines_own_config_would_be_seen() -> None:
    real = HOSTS["claude-code"].file("user", REAL)
    with contextlib.suppress(OSError):
        real.open().close()
    assert str(real) in TOUCHED.paths
    TOUCHED.paths.clear()


def tree(*tops: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Every file and folder below `tops`: mode, and content or where a link leads."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for top in tops:
        for path in sorted(top.rglob("*")):
            content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            found[str(path)] = (stat.S_IMODE(path.lstat().st_mode), content)
    return found


def put(
    host: Host, scope: Scope, where: Where, command: list[str] = COMMAND, name: str = "opscope", *, force: bool = False
) -> list[str]:
    return install.make(install.plan(host, scope, name, command, where=where, force=force))


def take(host: Host, scope: Scope, where: Where, name: str = "opscope", *, force: bool = False) -> list[str]:
    return uninstall.make(uninstall.plan(host, scope, name, where=where, force=force))


def written(host: Host, scope: Scope, where: Where, data: bytes | None = None) -> Path:
    """The host's file with the user's content in it."""
    path = host.file(scope, where)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(own(host) if data is None else data)
    return path


def servers(host: Host, path: Path) -> dict[str, Any]:
    """The servers in a file, read without our reader where the format allows it."""
    text = path.read_text()
    if path.suffix == ".toml":
        document: Any = tomllib.loads(text)
    else:
        lines = [
            line.partition("//")[0] if "http" not in line else line for line in text.replace("/* y */", "").splitlines()
        ]
        joined = "".join("".join(lines).split("\t"))
        document = json.loads(joined.replace(", }", "}").replace(",}", "}").replace(",  }", "}"))
    found: dict[str, Any] = document[host.container[0]]
    return found


def backups(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.opscope-backup*"))


# ---- every host, every scope


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_install_merges_and_uninstall_gives_the_same_bytes_back(
    host: Host, scope: Scope, machine: Where, tmp_path: Path
) -> None:
    path = written(host, scope, machine)
    path.chmod(0o600)
    before = tree(machine.home, machine.project)
    put(host, scope, machine)
    found = servers(host, path)
    assert found.pop("opscope") == host.entry(COMMAND)
    assert host.command(host.entry(COMMAND)) == COMMAND
    assert set(found) == ({"git"} if b"git" in own(host) else set())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (copy,) = backups(tmp_path)
    assert (copy.parent, copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode)) == (path.parent, own(host), 0o600)
    take(host, scope, machine)
    assert tree(machine.home, machine.project) == before


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_a_file_and_folders_that_an_install_made_go_with_it(host: Host, scope: Scope, machine: Where) -> None:
    put(host, scope, machine)
    assert servers(host, host.file(scope, machine)) == {"opscope": host.entry(COMMAND)}
    assert "wrote" not in "".join(said := take(host, scope, machine))
    assert "which the install had made" in said[0]
    assert tree(machine.home, machine.project) == {}


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_a_second_install_changes_nothing(host: Host, scope: Scope, machine: Where, tmp_path: Path) -> None:
    written(host, scope, machine)
    put(host, scope, machine)
    before = tree(tmp_path)
    plan = install.plan(host, scope, "opscope", COMMAND, where=machine)
    assert plan.changes == []
    assert install.make(plan) == []
    assert tree(tmp_path) == before


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_out_of_a_file_that_was_edited_since_only_the_entry_goes(
    host: Host, scope: Scope, machine: Where, tmp_path: Path
) -> None:
    path = written(host, scope, machine)
    put(host, scope, machine)
    new = (
        path.read_bytes()
        .replace(b"mine", b"my own")
        .replace(b'"git"', b'"hub"')
        .replace(b"One Dark", b"Light")
        .replace(b"schema", b"scheme")
    )
    assert new != path.read_bytes()
    path.write_bytes(new)
    take(host, scope, machine)
    expected = (
        own(host)
        .replace(b"mine", b"my own")
        .replace(b'"git"', b'"hub"')
        .replace(b"One Dark", b"Light")
        .replace(b"schema", b"scheme")
    )
    assert path.read_bytes() == expected
    assert backups(tmp_path) == []


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_a_later_install_with_other_options_keeps_the_first_backup_and_the_edits_between(
    host: Host, scope: Scope, machine: Where, tmp_path: Path
) -> None:
    path = written(host, scope, machine)
    put(host, scope, machine)
    path.write_bytes(path.read_bytes() + (b"\n# more\n" if path.suffix == ".toml" else b"\n\n"))
    put(host, scope, machine, OTHER)
    assert servers(host, path)["opscope"] == host.entry(OTHER)
    assert [copy.read_bytes() for copy in backups(tmp_path)] == [own(host)]
    take(host, scope, machine)
    assert path.read_bytes() == own(host) + (b"\n# more\n" if path.suffix == ".toml" else b"\n\n")


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_a_server_of_the_users_own_is_refused_replaced_only_by_force_and_put_back(
    host: Host, scope: Scope, machine: Where, tmp_path: Path
) -> None:
    path = written(host, scope, machine)
    mine = host.entry(["/my/own", "thing"])
    path.write_text(
        host.format.put(path.read_bytes().decode(), host.path("", "opscope"), mine),
        newline="",
    )
    data = path.read_bytes()
    before = tree(tmp_path)
    with pytest.raises(
        InputError,
        match=r"already has a server 'opscope' that this did not write: /my/own thing\. .*:\d+\) Give --force",
    ):
        put(host, scope, machine)
    assert tree(tmp_path) == before
    put(host, scope, machine, force=True)
    assert servers(host, path)["opscope"] == host.entry(COMMAND)
    take(host, scope, machine)
    assert path.read_bytes() == data
    put(host, scope, machine, force=True)
    path.write_bytes(path.read_bytes() + b"\n")
    take(host, scope, machine)
    assert servers(host, path)["opscope"] == mine


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_a_malformed_file_is_refused_with_its_line_and_left_alone(
    host: Host, scope: Scope, machine: Where, tmp_path: Path
) -> None:
    path = written(host, scope, machine, b'\n\n = "' if host.key == "codex" else b'{\n  "a": 1\n  "b": 2\n}\n')
    before = tree(tmp_path)
    with pytest.raises(InputError, match=rf"config cannot be edited: .*{path.name}:3\) .* left as it is"):
        put(host, scope, machine)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_a_write_that_fails_leaves_everything_as_it_was(
    host: Host, scope: Scope, machine: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(host, scope, machine)
    before = tree(machine.home, machine.project)
    real = files.replace

    def full(target: Path, data: bytes, mode: int | None, *last: Callable[[], None]) -> None:
        if "state" in target.parts:
            return real(target, data, mode, *last)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(OutputError, match="cannot be written: No space left on device"):
        put(host, scope, machine)
    assert tree(machine.home, machine.project) == before
    assert list(record.recorded()) == []


# ---- places


@pytest.mark.parametrize(
    ("platform", "expected"),
    [
        ("linux", [".claude.json", ".config/Claude/claude_desktop_config.json", ".config/Code/User/mcp.json", ".cursor/mcp.json",
                   ".config/zed/settings.json", ".codex/config.toml", ".config/opencode/opencode.json"]),
        ("darwin", [".claude.json", "Library/Application Support/Claude/claude_desktop_config.json",
                    "Library/Application Support/Code/User/mcp.json", ".cursor/mcp.json", ".config/zed/settings.json",
                    ".codex/config.toml", ".config/opencode/opencode.json"]),
        ("win32", [".claude.json", "AppData/Roaming/Claude/claude_desktop_config.json", "AppData/Roaming/Code/User/mcp.json",
                   ".cursor/mcp.json", "AppData/Roaming/Zed/settings.json", ".codex/config.toml", ".config/opencode/opencode.json"]),
    ],
)  # fmt: skip
def test_each_platform_has_its_places_for_the_users_config(platform: str, expected: list[str], tmp_path: Path) -> None:
    where = Where(platform=platform, environment={}, home=tmp_path, project=tmp_path)
    assert [str(host.file("user", where).relative_to(tmp_path)) for host in HOSTS.values()] == expected


def test_variables_move_the_users_config(tmp_path: Path) -> None:
    environment = {"CLAUDE_CONFIG_DIR": "/c", "CODEX_HOME": "/x", "XDG_CONFIG_HOME": "/g", "APPDATA": "/a"}
    linux, windows = (Where(platform, environment, tmp_path, tmp_path) for platform in ("linux", "win32"))
    keys = ("claude-code", "codex", "zed", "opencode", "vscode")
    assert [str(HOSTS[key].file("user", linux)) for key in keys] == [
        "/c/.claude.json", "/x/config.toml", "/g/zed/settings.json", "/g/opencode/opencode.json", "/g/Code/User/mcp.json",
    ]  # fmt: skip
    assert str(HOSTS["claude-desktop"].file("user", windows)) == "/a/Claude/claude_desktop_config.json"


def test_a_scope_that_a_host_does_not_have_is_named(machine: Where) -> None:
    with pytest.raises(InputError, match=r"Claude Desktop has no project configuration\. Leave --project out"):
        put(HOSTS["claude-desktop"], "project", machine)


def test_opencode_takes_the_file_that_is_there_and_the_second_versions_nesting(machine: Where) -> None:
    path = machine.project / "opencode.jsonc"
    path.write_text('{\n  // two\n  "mcp": {"servers": {"a": {"type": "local", "command": ["x"]}}}\n}\n')
    put(HOSTS["opencode"], "project", machine)
    assert '"servers": {"a": {"type": "local", "command": ["x"]}, "opscope": {' in path.read_text()
    assert not (machine.project / "opencode.json").exists()


# ---- kinds of files


@pytest.mark.parametrize("data", [b"", b"\n", b"\xef\xbb\xbf{}\n", b"{ }", b'{"mcpServers": {}}'])
def test_an_odd_file_comes_back_byte_for_byte(machine: Where, data: bytes) -> None:
    host = HOSTS["cursor"]
    path = written(host, "user", machine, data)
    put(host, "user", machine)
    assert path.read_bytes().startswith(data[:3] if data[:1] == b"\xef" else b"")
    assert json.loads(path.read_text("utf-8-sig"))["mcpServers"] == {"opscope": host.entry(COMMAND)}
    take(host, "user", machine)
    assert path.read_bytes() == data


def test_a_file_in_another_encoding_is_refused(machine: Where) -> None:
    path = written(HOSTS["cursor"], "user", machine, '{"ü": 1}'.encode("latin-1"))
    with pytest.raises(InputError, match=r"not text in UTF-8\. \(.*mcp.json:1\)"):
        put(HOSTS["cursor"], "user", machine)
    assert path.read_bytes() == '{"ü": 1}'.encode("latin-1")


@pytest.mark.parametrize("there", [True, False])
def test_a_link_into_a_dotfiles_repository_stays_a_link_and_its_target_is_edited(
    machine: Where, tmp_path: Path, there: bool
) -> None:
    host, target = HOSTS["zed"], tmp_path / "dotfiles/settings.json"
    target.parent.mkdir()
    if there:
        target.write_bytes(own(host))
    link = host.file("user", machine)
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    before = tree(machine.home, target.parent)
    put(host, "user", machine)
    assert link.is_symlink()
    assert b'"opscope"' in target.read_bytes()
    assert backups(target.parent) == []
    take(host, "user", machine)
    assert link.is_symlink()
    assert tree(machine.home, target.parent) == before


def test_a_folder_in_the_place_of_a_config_is_refused(machine: Where) -> None:
    (machine.project / ".mcp.json").mkdir()
    with pytest.raises(InputError, match="is not a file"):
        put(HOSTS["claude-code"], "project", machine)


def test_a_file_that_another_program_writes_at_the_same_moment_is_not_written_over(machine: Where) -> None:
    host = HOSTS["claude-code"]
    path = written(host, "user", machine)
    plan = install.plan(host, "user", "opscope", COMMAND, where=machine)
    path.write_bytes(b'{"numStartups": 4}')
    with pytest.raises(OutputError, match="changed by another program"):
        install.make(plan)
    assert path.read_bytes() == b'{"numStartups": 4}'
    assert backups(machine.home) == []


def test_a_file_that_another_program_writes_while_the_new_one_is_being_written_is_kept(
    machine: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HOSTS["claude-code"]
    path = written(host, "user", machine)
    plan = install.plan(host, "user", "opscope", COMMAND, where=machine)

    def meanwhile(target: Path, data: bytes, mode: int) -> Path:
        copy = written_beside(target, data, mode)
        if target == path:
            path.write_bytes(b'{"numStartups": 5}')
        return copy

    monkeypatch.setattr(files, "written_beside", meanwhile)
    with pytest.raises(OutputError, match="changed by another program"):
        install.make(plan)
    assert path.read_bytes() == b'{"numStartups": 5}'
    assert backups(machine.home) == []


def test_installs_at_the_same_time_all_stand_and_all_go_again(machine: Where) -> None:
    path = written(HOSTS["cursor"], "project", machine)
    before = path.read_bytes()

    def opscope(verb: str, number: int) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-m", "opscope_clients", verb, "cursor", "--project", "--name", f"s{number}"]
        return subprocess.Popen(words, cwd=machine.project, env=environment(machine.home), stdout=subprocess.DEVNULL)

    for verb, expected in (("install", {"git", "s0", "s1", "s2"}), ("uninstall", {"git"})):
        assert [process.wait(60) for process in [opscope(verb, number) for number in range(3)]] == [0, 0, 0]
        assert json.loads(path.read_bytes())["mcpServers"].keys() == expected
    assert path.read_bytes() == before
    assert backups(machine.project) == []


KILLED = """
import os, pathlib, signal, sys
real = pathlib.Path.replace
def replace(self, target):
    if "state" in pathlib.Path(target).parts:
        return real(self, target)
    os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace
sys.argv = ["opscope", "install", "cursor", "--project"]
from opscope_clients.cli import main
main()
"""


def test_a_process_killed_while_it_writes_leaves_the_old_file_and_a_later_uninstall_still_restores(
    machine: Where,
) -> None:
    host = HOSTS["cursor"]
    path = written(host, "project", machine)
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=machine.project, timeout=60, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == own(host)
    put(host, "project", machine)
    assert [copy.read_bytes() for copy in backups(machine.project)] == [own(host)]
    take(host, "project", machine)
    assert path.read_bytes() == own(host)
    assert backups(machine.project) == []


# ---- what happened in between


def test_two_servers_in_one_file_come_and_go_by_name(machine: Where) -> None:
    host = HOSTS["vscode"]
    path = written(host, "project", machine)
    put(host, "project", machine)
    put(host, "project", machine, OTHER, name="second")
    assert list(servers(host, path)) == ["git", "opscope", "second"]
    take(host, "project", machine)
    assert list(servers(host, path)) == ["git", "second"]
    take(host, "project", machine, name="second")
    assert path.read_bytes() == own(host)
    assert backups(machine.project) == []


def test_an_entry_that_the_user_edited_is_refused_by_install_and_taken_out_by_uninstall(machine: Where) -> None:
    host = HOSTS["codex"]
    path = written(host, "user", machine)
    put(host, "user", machine)
    path.write_text(path.read_text() + 'env = { A = "1" }\n')
    with pytest.raises(InputError, match="did not write"):
        put(host, "user", machine, OTHER)
    take(host, "user", machine)
    assert path.read_bytes() == own(host)


def test_an_entry_that_the_user_took_out_is_told_and_a_new_install_makes_a_new_backup(machine: Where) -> None:
    host = HOSTS["cursor"]
    path = written(host, "user", machine)
    put(host, "user", machine)
    path.write_bytes(b'{"mcpServers": {"new": {}}}')
    put(host, "user", machine)
    assert [copy.read_bytes() for copy in backups(machine.home)] == [own(host), b'{"mcpServers": {"new": {}}}']
    take(host, "user", machine)
    assert path.read_bytes() == b'{"mcpServers": {"new": {}}}'
    put(host, "user", machine)
    path.write_bytes(b"{}")
    assert take(host, "user", machine) == [f"the server 'opscope' was already taken out of {path}"]
    assert path.read_bytes() == b"{}"


def test_a_config_that_the_user_removed_is_told(machine: Where) -> None:
    host = HOSTS["cursor"]
    put(host, "project", machine)
    host.file("project", machine).unlink()
    assert take(host, "project", machine) == [f"{machine.project}/.cursor/mcp.json is no longer there"]
    assert tree(machine.project) == {}


@pytest.mark.parametrize(("host", "scope"), PLACES, ids=IDS)
def test_uninstall_without_install_says_so(host: Host, scope: Scope, machine: Where, tmp_path: Path) -> None:
    written(host, scope, machine)
    before = tree(tmp_path)
    with pytest.raises(InputError, match=r"has no server 'opscope' in .*: there is nothing to uninstall"):
        take(host, scope, machine)
    assert tree(tmp_path) == before


def test_an_entry_without_a_record_is_taken_out_where_it_starts_opscope_and_refused_otherwise(machine: Where) -> None:
    host = HOSTS["cursor"]
    path = written(host, "user", machine)
    path.write_text(host.format.put(path.read_text(), ("mcpServers", "opscope"), host.entry(COMMAND)))
    take(host, "user", machine)
    assert path.read_bytes() == own(host)
    with pytest.raises(InputError, match=r"'git' of Cursor is not opscope's: it runs git-mcp\..*--force"):
        take(host, "user", machine, name="git")
    take(host, "user", machine, name="git", force=True)
    assert json.loads(path.read_text())["mcpServers"] == {}


# ---- other files


@pytest.fixture
def command_file(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(extras, "extra_files", lambda *_: {".claude/commands/analyze.md": "Analyse $ARGUMENTS.\n"})
    return ".claude/commands/analyze.md"


def test_a_backup_that_was_changed_is_left_and_only_the_entry_goes(machine: Where) -> None:
    host = HOSTS["cursor"]
    path = written(host, "user", machine)
    before = json.loads(path.read_bytes())
    put(host, "user", machine)
    (copy,) = backups(machine.home)
    copy.write_bytes(b"")
    assert any("no longer what was there before" in line for line in take(host, "user", machine))
    assert json.loads(path.read_bytes()) == before
    assert copy.exists()


def test_other_files_of_a_host_come_and_go_with_the_server(machine: Where, command_file: str) -> None:
    host = HOSTS["claude-code"]
    said = put(host, "project", machine)
    assert said == [f"wrote {machine.project}/.mcp.json", f"wrote {machine.project}/{command_file}"]
    assert install.plan(host, "project", "opscope", COMMAND, where=machine).changes == []
    take(host, "project", machine)
    assert tree(machine.project) == {}


def test_another_file_of_the_users_own_is_refused_replaced_only_by_force_and_put_back(
    machine: Where, command_file: str
) -> None:
    host, path = HOSTS["claude-code"], machine.project / command_file
    path.parent.mkdir(parents=True)
    path.write_text("mine\n")
    before = tree(machine.project)
    with pytest.raises(InputError, match=r"analyze.md is there already, with another text. Give --force"):
        put(host, "project", machine)
    assert tree(machine.project) == before
    put(host, "project", machine, force=True)
    assert path.read_text() == "Analyse $ARGUMENTS.\n"
    take(host, "project", machine)
    assert tree(machine.project) == before


def test_another_file_that_was_edited_since_stays(machine: Where, command_file: str) -> None:
    host, path = HOSTS["claude-code"], machine.project / command_file
    put(host, "project", machine)
    path.write_text("edited\n")
    assert f"left {path}, which was edited since" in take(host, "project", machine)
    assert path.read_text() == "edited\n"


def test_a_later_file_that_cannot_be_written_leaves_the_files_before_it_as_they_were(
    machine: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, names = HOSTS["claude-code"], (".claude/commands/a.md", ".claude/commands/b.md")
    monkeypatch.setattr(extras, "extra_files", lambda *_: dict.fromkeys(names, "ours\n"))
    written(host, "project", machine)
    for name in names:
        (machine.project / name).parent.mkdir(parents=True, exist_ok=True)
        (machine.project / name).write_text(f"my own {name}\n")
    before = tree(machine.project)
    real = files.replace

    def full(target: Path, data: bytes, mode: int | None, *last: Callable[[], None]) -> None:
        if target.name == "b.md":
            raise OSError(28, "No space left on device")
        real(target, data, mode, *last)

    monkeypatch.setattr(files, "replace", full)
    with pytest.raises(OutputError, match=r"b.md cannot be written: No space left on device"):
        put(host, "project", machine, force=True)
    assert tree(machine.project) == before
    assert list(record.recorded()) == []


def test_other_files_are_installed_beside_an_entry_that_was_there_already(machine: Where, command_file: str) -> None:
    host = HOSTS["claude-code"]
    path = written(host, "project", machine)
    path.write_text(host.format.put(path.read_text(), ("mcpServers", "opscope"), host.entry(COMMAND)))
    assert put(host, "project", machine) == [f"wrote {machine.project}/{command_file}"]
    take(host, "project", machine)
    assert tree(machine.project) == {str(path): (0o644, own(host))}
