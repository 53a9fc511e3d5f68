"""The engines that a workspace keeps: built on first use, one per workspace, shared by the tools."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar, cast

from opscope_cache.trees import PYTHON

from opscope_tools.index import Index, open_index
from opscope_tools.index.build.background import BackgroundBuilds
from opscope_tools.index.cpp import CppIndex
from opscope_tools.index.search.texts import Texts
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.engine import TraceEngine

E = TypeVar("E")
T = TypeVar("T")
_REMEMBERED = 100
_MAKING = threading.RLock()


def _one_at_a_time(make: Callable[[Workspace], E]) -> Callable[[Workspace], E]:
    """Two first questions at once would make two engines, and of two trace workers nobody would end the first."""

    @functools.wraps(make)
    def locked(workspace: Workspace) -> E:
        with _MAKING:
            return make(workspace)

    return locked


@_one_at_a_time
def index_of(workspace: Workspace) -> Index:
    """The index over the workspace's repositories; a new one where repositories were added since."""
    repositories = list(workspace.repositories.values())
    kept = workspace._engines.get("index")
    if isinstance(kept, tuple) and kept[0] == repositories and isinstance(kept[1], Index):
        return kept[1]
    builds = _builds_of(workspace) if workspace.builds_index else None
    index = open_index(repositories, workspace.store, builds)
    workspace._engines["index"] = (repositories, index)
    return index


def remembered(workspace: Workspace, about: Hashable, make: Callable[[], T]) -> T:
    """What `make` reads in the workspace's Python files, read anew only where one of them changed; the last hundred are kept."""
    repositories = workspace.repositories.values()
    key = (about, *(f"{r.root}:{workspace.tree(r, PYTHON).now().fingerprint}" for r in repositories))
    with _MAKING:
        kept = cast("OrderedDict[Hashable, T]", workspace._engines.setdefault("remembered", OrderedDict()))
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
    found = make()
    with _MAKING:
        kept[key] = found
        while len(kept) > _REMEMBERED:
            kept.popitem(last=False)
    return found


def _builds_of(workspace: Workspace) -> BackgroundBuilds:
    kept = workspace._engines.get("builds")
    if not isinstance(kept, BackgroundBuilds):
        kept = workspace._engines["builds"] = BackgroundBuilds()
    return kept


@_one_at_a_time
def cpp_index_of(workspace: Workspace) -> CppIndex:
    """The index over the C++ and CUDA files of the workspace's repositories."""
    repositories = list(workspace.repositories.values())
    kept = workspace._engines.get("cpp index")
    if isinstance(kept, tuple) and kept[0] == repositories and isinstance(kept[1], CppIndex):
        return kept[1]
    index = CppIndex(repositories)
    workspace._engines["cpp index"] = (repositories, index)
    return index


@_one_at_a_time
def texts_of(workspace: Workspace) -> Texts:
    """The texts that searches of the workspace's source go through."""
    kept = workspace._engines.setdefault("texts", Texts())
    assert isinstance(kept, Texts)
    return kept


@_one_at_a_time
def tracer_of(workspace: Workspace) -> TraceEngine:
    """The trace engine over what may be traced, with one worker in the workspace's interpreter.

    A client's roots come and go; they are only read, so the engine and its warm worker stay.
    """
    named = workspace.repositories.values()
    repositories = [one for one in named if one.installed or one.name in workspace.trusted]
    kept = workspace._engines.get("trace")
    if isinstance(kept, tuple) and kept[0] == repositories and isinstance(kept[1], TraceEngine):
        return kept[1]
    engine = TraceEngine(
        repositories, workspace.store, python=workspace.python, timeout=workspace.trace_timeout,
        limits=workspace.trace_limits,
    )  # fmt: skip
    workspace._engines["trace"] = (repositories, engine)
    return engine


@_one_at_a_time
def warm_tracer(workspace: Workspace) -> None:
    """Start the trace worker before anybody asks it, once: what it imports takes seconds."""
    if not workspace._engines.get("warmed"):
        workspace._engines["warmed"] = True
        tracer_of(workspace).warm()


@_one_at_a_time
def forget_indexes(workspace: Workspace) -> None:
    """Have the next question open the indexes anew: a call that was broken off in its middle may have left one half built."""
    for name in ("index", "cpp index"):
        workspace._engines.pop(name, None)


def close_engines(workspace: Workspace) -> None:
    """End what the engines keep running; idempotent."""
    builds = workspace._engines.pop("builds", None)
    if isinstance(builds, BackgroundBuilds):
        builds.close()
    index = workspace._engines.pop("index", None)
    if isinstance(index, tuple) and isinstance(index[1], Index):
        index[1].close()
    kept = workspace._engines.pop("trace", None)
    if isinstance(kept, tuple) and isinstance(kept[1], TraceEngine):
        kept[1].close()
