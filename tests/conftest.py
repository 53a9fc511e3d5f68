"""What tests of several packages share."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path

import pytest
from cannot import CANNOT
from filelock import FileLock
from hypothesis import HealthCheck, settings
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import DEFAULT_PACKAGES, installed_repository
from opscope_tools.source.storage.places import index_place

#: how long an example takes is the machine's affair, not a property of the code
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

#: servers that tests start trace what they are asked, and nothing in advance
os.environ.setdefault("OPSCOPE_WARM", "0")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where nothing may be missing (`OPSCOPE_SKIPS=fail`), a test that skips itself fails, unless the machine cannot do what it tests."""
    report = yield
    said = str(call.excinfo.value) if call.excinfo is not None else ""
    if report.skipped and os.environ.get("OPSCOPE_SKIPS") == "fail" and not said.startswith(CANNOT):
        report.outcome, report.longrepr = "failed", f"{item.nodeid} was skipped, where nothing may be: {said}"
    return report


def pytest_collection_finish() -> None:
    """What was imported and collected stays: the collector need not walk it again and again."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def begun() -> None:
    """What the file of tests before left is collected: a user has 128 watches of folders, and without one each question walks its tree.

    What is still held then stays, by the session or as remembered: no collection in this file walks it again.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache of every command whose test names none, one for all test processes: no command reads what another has read."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if base.name.startswith("popen-") else base) / "opscope-cache"
    folder.mkdir(exist_ok=True)
    os.environ.setdefault("OPSCOPE_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def index_folder(shared_cache: Path) -> Path:
    """The shared cache, with the whole index of the installed packages in it."""
    folder = shared_cache
    with FileLock(folder / "first"):
        for name, package in DEFAULT_PACKAGES.items():
            repository = installed_repository(name, package)
            assert repository is not None
            assert build(index_place(folder, repository), repository.root, repository.packages)
    return folder
