"""Which code a trace may import: what the index knows as a definition of the analysed packages or of a trusted repository.

Names come from callers and from configurations. Each is looked up in source, nothing imported, and followed to the file
that defines it; the worker gets that definition and imports it, or nothing. Of transformers and torch only modules
(`nn.Module`) are taken: their functions load files, run programs and fetch from hubs. A repository that the user trusts by
name may give functions too, but its own ones: what it merely imports is somebody else's.
"""

from __future__ import annotations

import re

from opscope_schemas.common import Repository
from opscope_schemas.errors import ConfigError, TraceError

from opscope_tools.index import ClassSymbol, Index, Target
from opscope_tools.running.engines import index_of
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace
from opscope_tools.trace.protocol import Definition

_DOTTED = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)*+(?::[A-Za-z_]\w*+)?", re.ASCII)
_MODULE = ("torch.nn.modules.module.Module", "torch.nn.Module")


def is_trusted(workspace: Workspace, repository: Repository) -> bool:
    """Whether the user trusts all code of the repository, by its name; of transformers and torch modules alone are taken,
    also where the user named another folder for them."""
    return repository.name in workspace.trusted and repository.name not in DEFAULT_PACKAGES


def importable(workspace: Workspace, repository: Repository) -> bool:
    """Whether tracing may import from the repository: what is analysed as installed, and what is trusted; a folder that
    stands in for transformers or torch is no exception."""
    return repository.installed or repository.name in workspace.trusted


def traced_class(workspace: Workspace, target: str) -> tuple[Target, Definition]:
    """What a target names and where it is defined; raises the index's errors for unknown and ambiguous names, `TraceError`
    where tracing may not import it."""
    index = index_of(workspace)
    found = index.target(target)
    symbol = found.symbol
    if not importable(workspace, symbol.repository):
        name = symbol.repository.name
        raise TraceError(
            f"Tracing {symbol.qualified_name} would import code of the repository {name}, which is not trusted.",
            next_step=f"Start with --trust {name} to allow it.",
        )
    if not is_trusted(workspace, symbol.repository) and not _is_module(index, symbol):
        raise TraceError(
            f"{symbol.qualified_name} has no forward: it is no nn.Module.", next_step="Name an nn.Module class."
        )
    return found, _of_class(symbol)


def factory(workspace: Workspace, name: object) -> Definition:
    """The function or class that a configuration names to build a module with; raises `ConfigError` for any other name."""
    if isinstance(name, str) and len(name) <= 500 and _DOTTED.fullmatch(name) and not name.isidentifier():
        index = index_of(workspace)
        for found in index.resolver.absolute(name.replace(":", ".")):
            if found.unit is None or found.row is None:
                continue
            repository = found.unit.tree.repository
            if not is_trusted(workspace, repository):
                continue
            if found.symbol is not None:
                return _of_class(found.symbol)
            if found.kind == "function":
                inside = found.name.removeprefix(f"{found.unit.name}.")
                return Definition(
                    kind="function", module=found.unit.name, name=inside, root=str(repository.root),
                    file=found.unit.file, line=found.row.line,
                )  # fmt: skip
    shown = repr(name if len(str(name)) <= 100 else f"{str(name)[:97]}...")
    raise ConfigError(
        f"The factory {shown} is no function or class that a trusted repository defines, so it is not called.",
        next_step="Register the repository that defines it and trust it: --repo NAME=PATH --trust NAME.",
    )


def _of_class(symbol: ClassSymbol) -> Definition:
    return Definition(
        kind="class", module=symbol.module, name=symbol.path, root=str(symbol.repository.root), file=symbol.file,
        line=symbol.line,
    )  # fmt: skip


def _is_module(index: Index, symbol: ClassSymbol) -> bool:
    return any(name in _MODULE for name in index.mro(symbol))


__all__ = ["factory", "importable", "is_trusted", "traced_class"]
