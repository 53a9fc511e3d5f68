"""Argument completion: model types and class names for prompts, known names for resources.

Names come from the source index; building it can take seconds, so a completion that is not ready in time answers with
nothing rather than hold up a user who types.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence

import anyio
from mcp.server import MCPServer
from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)
from opscope_prompts import loader
from opscope_schemas.errors import OpscopeError
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

from opscope_server.resources import reports, schema_names
from opscope_server.work import Work

#: the protocol's ceiling on one answer
MOST = 100
#: seconds a user who types is kept waiting
PATIENCE = 5.0


def add_completion(server: MCPServer, workspace: Workspace, work: Work, tools: Sequence[str]) -> None:
    """Register the completion handler on `server`, which offers `tools`."""
    known: dict[str, Callable[[], Iterable[str]]] = {
        "opscope://schema/{name}": lambda: schema_names(tools),
        "opscope://template/{name}": loader.template_names,
        "opscope://report/{name}": lambda: reports(workspace),
    }

    @server.completion()  # type: ignore[no-untyped-call, untyped-decorator] # the SDK types neither
    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,  # noqa: ARG001 - the SDK's signature
    ) -> Completion:
        if isinstance(ref, PromptReference):
            if argument.name not in {"target", "module", "model"}:
                return Completion(values=[])
            with anyio.move_on_after(PATIENCE), contextlib.suppress(OpscopeError):
                return await work.run("static", lambda context: _from_index(context, argument.value))
            return Completion(values=[])
        names = known.get(ref.uri)
        return _answer(names() if names else [], argument.value)

    del complete  # registered


def _from_index(context: ToolContext, typed: str) -> Completion:
    from opscope_tools.running.engines import (
        index_of,  # here: the parser is loaded on the first completion, not at start
    )

    index = index_of(context.workspace)
    return _answer([*index.model_types(), *index.class_names()], typed)


def _answer(names: Iterable[str], typed: str) -> Completion:
    """Names that begin with what was typed, then those that contain it, ignoring case."""
    wanted = typed.casefold()
    unique = list(dict.fromkeys(names))
    first = [name for name in unique if name.casefold().startswith(wanted)]
    within = [name for name in unique if wanted in name.casefold() and not name.casefold().startswith(wanted)]
    found = first + within
    return Completion(values=found[:MOST], total=len(found), has_more=len(found) > MOST)
