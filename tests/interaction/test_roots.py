"""The client's roots as repositories, through a real client in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import ListRootsResult, Root
from opscope_cache.store import MemoryStore
from opscope_server.roots import Roots, folder_of
from opscope_server.server import OpscopeServer, build_server
from opscope_server.settings import Settings
from opscope_tools.running.workspace import Workspace
from pydantic import FileUrl


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "model.py").write_text("class Sparse:\n    def forward(self, x):\n        return x + 1\n")
    return folder


@pytest.fixture
def server(tmp_path: Path) -> OpscopeServer:
    workspace = Workspace(repositories={}, output=tmp_path, store=MemoryStore())
    server = build_server(workspace, Settings(log_level="CRITICAL"))
    server.roots = Roots(workspace)
    return server


def ask(server: OpscopeServer, roots: list[Root], mode: str = "legacy", **arguments: Any) -> Any:
    asked = []

    async def list_roots(context: Any) -> ListRootsResult:
        del context
        asked.append(True)
        return ListRootsResult(roots=roots)

    async def main() -> Any:
        async with Client(server, mode=mode, list_roots_callback=list_roots) as client:
            await client.call_tool("find_forward", arguments)
            return await client.call_tool("find_forward", arguments)

    answer = anyio.run(main)
    assert len(asked) <= 1  # not once a call
    return answer


def test_a_root_is_a_repository_that_can_be_asked(server: OpscopeServer, project: Path) -> None:
    answer = ask(server, [Root(uri=FileUrl(project.as_uri()))], target="Sparse", repo="my-project")
    assert not answer.is_error
    assert answer.structured_content["file"] == "model.py"
    assert answer.structured_content["line"] == 2


def test_a_roots_own_name_is_used_and_names_are_kept_apart(
    server: OpscopeServer, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    roots = [Root(uri=FileUrl((place).as_uri()), name="code") for place in (project, tmp_path / "other", project)]
    ask(server, roots, target="Sparse")
    assert {name: r.root for name, r in server.workspace.repositories.items()} == {
        "code": project,
        "code-2": tmp_path / "other",
    }
    assert not server.workspace.trusted


def test_clients_of_the_newer_era_are_not_asked(server: OpscopeServer, project: Path) -> None:
    answer = ask(server, [Root(uri=FileUrl(project.as_uri()))], mode="2026-07-28", target="Sparse")
    assert answer.is_error
    assert not server.workspace.repositories


def test_what_is_no_repository_is_no_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    (home / "code").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert folder_of((home / "code").as_uri()) == home / "code"
    for uri in (
        "file:///",
        home.as_uri(),
        tmp_path.as_uri(),
        "file:///no/such",
        "https://example.org/x",
        "file://host/x",
    ):
        assert folder_of(uri) is None, uri
