"""Puts the server together: `build_server(workspace, settings)` returns an SDK server, ready for any transport.

Importing this module imports the SDK, but no tool, no parser, no template engine, no torch.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, GetPromptResult, InputRequiredResult, Resource, Tool
from opscope_prompts import loader
from opscope_tools.running.tool import AnyTool
from opscope_tools.running.workspace import Workspace
from starlette.requests import Request
from starlette.responses import JSONResponse

from opscope_server import prompts, resources
from opscope_server.access import Verifier, auth_settings
from opscope_server.binding import BoundTool
from opscope_server.completion import add_completion
from opscope_server.listing import Listing, kept_listing, listing_of
from opscope_server.roots import Roots
from opscope_server.sentences import in_sentences
from opscope_server.settings import Settings
from opscope_server.stdio import stdio_streams
from opscope_server.wire import configure_logging
from opscope_server.work import Work


def package_version() -> str:
    """opscope's own version."""
    try:
        return version("opscope")
    except PackageNotFoundError:  # a source tree on sys.path
        return "0"


class OpscopeServer(MCPServer[Any]):
    """The SDK's server, with sentences where it would mask a caller's mistake."""

    def __init__(self, workspace: Workspace, settings: Settings, listing: Listing) -> None:
        self.workspace = workspace
        self.opscope_settings = settings
        self.work = Work(workspace, settings)
        #: set where the client is the user who started this process
        self.roots: Roots | None = None
        self._listing = listing
        self._behind: threading.Thread | None = None
        super().__init__(
            name="opscope",
            title="opscope",
            description="FLOPs, bytes and kernel tiling of LLM implementations, computed from their source",
            instructions=_instructions(listing.missing),
            version=package_version(),
            middleware=[in_sentences],
            tools=[BoundTool.bind(told, listing.tools, self.work, settings) for told in listing.definitions],
            token_verifier=Verifier(settings.token) if settings.token else None,
            auth=auth_settings() if settings.token else None,
            log_level=settings.log_level,  # type: ignore[arg-type] # checked by Settings against the SDK's own list
            # the list is fixed for the life of the process
            cache_hints={"tools/list": CacheHint(ttl_ms=60_000, scope="public")},
        )
        for prompt in prompts.all_prompts():
            self.add_prompt(prompt)
        resources.add_resources(self, workspace, listing)
        add_completion(self, workspace, self.work, listing.names)
        self.custom_route("/health", methods=["GET"])(self._health)

    async def run_stdio_async(self) -> None:
        """Serve one client over stdin and stdout."""
        lowlevel = self._lowlevel_server
        async with stdio_streams() as (incoming, outgoing):
            await lowlevel.run(incoming, outgoing, lowlevel.create_initialization_options())

    async def _health(self, _request: Request) -> JSONResponse:
        """Answers without a session (GET on the protocol's own path would open a stream) and without a token: no more than this."""
        return JSONResponse({"status": "ok"})

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; an unknown name gets the nearest ones."""
        known = [tool.name for tool in self._tool_manager.list_tools()]
        if name not in known:
            name = name if len(name) <= 100 else f"{name[:100]}..."
            nearest = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
            raise ToolError(f"No tool is called {name!r}. Nearest names: {', '.join(nearest)}.")
        if self.roots is not None and context is not None:
            await self.roots.take(context)
        return await super().call_tool(name, arguments, context)

    async def list_tools(self) -> list[Tool]:
        """The tools as they are listed; behind the first listing they are imported, so that no call waits for that."""
        if self._behind is None:
            self._behind = threading.Thread(target=self._listing.tools, name="opscope tools", daemon=True)
            self._behind.start()
        return await super().list_tools()

    async def list_resources(self) -> list[Resource]:
        """The registered resources, and what can be read through the templates now."""
        return [*await super().list_resources(), *resources.listed(self.workspace, self._listing.names)]

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """Render a prompt; unknown names and arguments are invalid params, with a sentence."""
        known = {prompt.name: prompt for prompt in self._prompt_manager.list_prompts()}
        if name not in known:
            raise prompts.unknown_prompt(name, list(known))
        if name in loader.prompt_names():
            places = [argument.name for argument in known[name].arguments or []]
            prompts.check_arguments(name, places, arguments)
        return await super().get_prompt(name, arguments, context)


def _instructions(missing: Sequence[str]) -> str:
    """What the server tells an agent; first of all which tools are not there, where only some are served."""
    if not missing:
        return loader.instructions()
    return f"This server was started without {', '.join(missing)}; leave out the steps below that need them.\n\n{loader.instructions()}"


def build_server(
    workspace: Workspace, settings: Settings | None = None, tools: Sequence[AnyTool] | Listing | None = None
) -> OpscopeServer:
    """The opscope server over `workspace`, ready for any transport; it offers the whole catalogue unless told otherwise."""
    settings = settings or Settings()
    configure_logging(settings.log_level)  # before the SDK does it, with tracebacks in boxes
    if tools is None:
        tools = kept_listing(workspace.store, ())
    return OpscopeServer(workspace, settings, tools if isinstance(tools, Listing) else listing_of(tools))
