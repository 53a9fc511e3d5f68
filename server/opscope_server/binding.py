"""Binds an opscope `Tool` to the SDK: annotations, errors, both channels of the answer, the output budget.

The SDK derives tools from function signatures; ours are data, so `BoundTool` takes its place in the SDK's list and
answers for itself. The tool itself is fetched by the first call: a listing needs none. Both channels carry the same facts as compact JSON: some hosts forward only one of them.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import CallToolResult, ImageContent, ResourceLink, TextContent, ToolAnnotations
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import OpscopeError
from opscope_tools.running.runner import compact, encodable, json_text, look_up, run_tool, shorten_to, validate
from opscope_tools.running.tool import AnyTool, ToolContext
from pydantic import PrivateAttr

from opscope_server.listing import Definition
from opscope_server.settings import Settings
from opscope_server.work import Work


def _never() -> None:
    """In the place of the function that the SDK would call; `BoundTool.run` is called instead."""


class BoundTool(SdkTool):
    """An opscope tool in the SDK's list."""

    _tools: Callable[[], Mapping[str, AnyTool]] = PrivateAttr()
    _work: Work = PrivateAttr()
    _settings: Settings = PrivateAttr()

    @classmethod
    def bind(
        cls, told: Definition, tools: Callable[[], Mapping[str, AnyTool]], work: Work, settings: Settings
    ) -> BoundTool:
        """The tool of that definition as the SDK lists and calls it."""
        bound = cls(
            fn=_never,
            name=told.name,
            title=told.title,
            description=told.description,
            parameters=told.arguments,
            fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_schema=told.answer),
            is_async=True,
            context_kwarg=None,
            annotations=ToolAnnotations(
                title=told.title,
                read_only_hint=told.read_only,
                destructive_hint=False,
                idempotent_hint=told.idempotent,
                open_world_hint=False,
            ),
        )
        bound._tools, bound._work, bound._settings = tools, work, settings
        return bound

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Answer one call; every failure leaves as a `ToolError` whose text is all that the caller sees."""
        del convert_result  # the answer is complete as it is

        budget = self._settings.budget

        def kept() -> tuple[AnyTool, ToolArguments, str, CallToolResult | None]:
            tool = self._tools()[self.name]
            checked = validate(tool, arguments)
            key, whole = look_up(tool, checked, self._work.workspace)
            found = answer(tool, whole, budget, tool.picture(checked, whole)) if whole is not None else None
            return tool, checked, key, found

        def computed(tool_context: ToolContext) -> CallToolResult:
            if self._settings.warm:  # here, and not where messages are read: another thread may be making an engine
                from opscope_tools.running.engines import warm_tracer

                warm_tracer(self._work.workspace)
            whole = run_tool(tool, checked, tool_context)
            return answer(tool, whole, budget, tool.picture(checked, whole))

        async def report(done: float, total: float | None, message: str) -> None:
            await context.report_progress(done, total, message or None)

        try:
            tool, checked, key, found = await self._work.look(kept, report)
            return found or await self._work.run(tool.lane(checked), computed, report, key=key)
        except OpscopeError as error:
            raise ToolError(within(in_one_line(str(error)), self._settings.budget)) from error
        except Exception as error:  # the SDK logs it with its traceback; the caller learns whose fault it is
            raise UnexpectedToolError(
                f"{self.name} stopped on a defect of opscope itself, not of your arguments; "
                "the server's log holds the details."
            ) from error


#: what would break a line, move a cursor or turn the order of letters about
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def in_one_line(sentence: str) -> str:
    """A sentence that quotes whatever it was given, with what is no letter in it escaped."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], encodable(sentence))


def within(sentence: str, budget: int) -> str:
    """A sentence that quotes a huge argument back, without its middle: what is wrong opens it, the next step ends it."""
    if len(sentence) <= budget:
        return sentence
    kept = budget // 4
    return f"{sentence[:kept]} [{len(sentence) - 2 * kept} characters left out] {sentence[-kept:]}"


def answer(tool: AnyTool, whole: ToolResult, budget: int, picture: bytes | None = None) -> CallToolResult:
    """Both channels of an answer within the budget, a picture (PNG) beside them, and a link to the whole where there is one."""
    shown = shorten_to(tool, whole, budget)
    structured = compact(shown)
    plain = json_text(structured)
    text = encodable(plain)
    if text is not plain:  # the name of a file that is no text
        structured = json.loads(text)
    content: list[TextContent | ImageContent | ResourceLink] = [TextContent(type="text", text=text)]
    if picture is not None:
        content.append(ImageContent(type="image", data=base64.b64encode(picture).decode(), mime_type="image/png"))
    if shown.artifact:
        content.append(
            ResourceLink(
                type="resource_link", uri=shown.artifact, name=f"{tool.name} result", mime_type="application/json"
            )
        )
    return CallToolResult(content=list(content), structured_content=structured)
