"""The map of transformers, made once for every test that asks about it."""

from __future__ import annotations

import pytest
from map_facts import context_of
from opscope_schemas.repo_map import RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.workspace import installed_repository


@pytest.fixture(scope="session")
def transformers_map(tmp_path_factory: pytest.TempPathFactory) -> RepoMapResult:
    repository = installed_repository("transformers", "transformers")
    assert repository is not None
    context = context_of(repository, tmp_path_factory.mktemp("map"))
    return MAP_REPO.run(MapRepoArguments(repo="transformers", detail="full"), context)
