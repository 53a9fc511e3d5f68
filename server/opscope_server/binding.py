"""Binds an opscope `Tool` to the SDK: schemas, annotations, errors, both channels of the answer, the output budget.

The SDK derives tools from function signatures; ours are data, so `BoundTool` takes its place in the SDK's list and
answers for itself. Both channels carry the same facts as compact JSON: some hosts forward only one of them.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.server.mcpserver.tools import Tool as SdkTool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp.types import CallToolResult, ImageContent, ResourceLink, TextContent, ToolAnnotations
from opscope_schemas.common import ToolArguments, ToolResult
from opscope_schemas.errors import OpscopeError
from opscope_tools.running.engines import warm_tracer
from opscope_tools.running.runner import compact, encodable, json_text, look_up, run_tool, shorten_to, validate
from opscope_tools.running.tool import AnyTool, ToolContext
from pydantic import BaseModel, PrivateAttr
from pydantic.json_schema import GenerateJsonSchema

from opscope_server.settings import Settings
from opscope_server.work import Work

_DEFINITIONS = "#/$defs/"


class _PlainSchema(GenerateJsonSchema):
    """JSON Schema without a title per field: the field's name says as much, and an agent reads every character."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of `model`, with an object at its root even where the model refers to itself."""
    schema = model.model_json_schema(schema_generator=_PlainSchema)
    reference = schema.get("$ref", "")
    if reference.startswith(_DEFINITIONS):
        definition = schema["$defs"][reference.removeprefix(_DEFINITIONS)]
        schema = {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


#: what a schema says to validators; a caller that breaks such a bound is told so by the tool itself
_BOUNDS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum"})


#: what an object allows that says nothing of what it holds
_ANYTHING = ("additionalProperties", True)


def arguments_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments as an agent reads it at the start of every conversation, therefore short.

    An argument that may be left out is not required; that it may also be null, which defaults to null, which bears the
    model's name are not said again. The tool still takes an explicit null.
    """
    schema = schema_of(model)
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {**schema, "properties": {name: _lean(field) for name, field in schema.get("properties", {}).items()}}


def _lean(field: dict[str, Any]) -> dict[str, Any]:
    kept = {
        key: value
        for key, value in field.items()
        if key not in _BOUNDS and not (key == "default" and value in (None, "", [])) and (key, value) != _ANYTHING
    }
    for inside in ("additionalProperties", "items"):
        if isinstance(kept.get(inside), dict):
            kept[inside] = _lean(kept[inside])
    choices = kept.pop("anyOf", None)
    if choices is None:
        return kept
    numbers = {"type": "number"} in choices  # an integer is one
    left = [
        _lean(choice)
        for choice in choices
        if choice != {"type": "null"} and not (numbers and choice == {"type": "integer"})
    ]
    if len(left) == 1:
        return {**left[0], **kept}
    return {"anyOf": left, **kept}


class BoundTool(SdkTool):
    """An opscope tool in the SDK's list."""

    _tool: AnyTool = PrivateAttr()
    _work: Work = PrivateAttr()
    _settings: Settings = PrivateAttr()

    @classmethod
    def bind(cls, tool: AnyTool, work: Work, settings: Settings) -> BoundTool:
        """`tool` as the SDK lists and calls it."""
        bound = cls(
            fn=tool.run,
            name=tool.name,
            title=tool.title,
            description=tool.description,
            parameters=arguments_schema(tool.arguments),
            fn_metadata=FuncMetadata(arg_model=ArgModelBase, output_schema=schema_of(tool.result)),
            is_async=True,
            context_kwarg=None,
            annotations=ToolAnnotations(
                title=tool.title,
                read_only_hint=tool.read_only,
                destructive_hint=False,
                idempotent_hint=tool.idempotent,
                open_world_hint=False,
            ),
        )
        bound._tool, bound._work, bound._settings = tool, work, settings
        return bound

    async def run(self, arguments: dict[str, Any], context: Context[Any, Any], convert_result: bool = False) -> Any:
        """Answer one call; every failure leaves as a `ToolError` whose text is all that the caller sees."""
        del convert_result  # the answer is complete as it is

        tool, budget = self._tool, self._settings.budget

        def kept() -> tuple[ToolArguments, str, CallToolResult | None]:
            checked = validate(tool, arguments)
            key, whole = look_up(tool, checked, self._work.workspace)
            return (
                checked,
                key,
                answer(tool, whole, budget, tool.picture(checked, whole)) if whole is not None else None,
            )

        def computed(tool_context: ToolContext) -> CallToolResult:
            if self._settings.warm:  # here, and not where messages are read: another thread may be making an engine
                warm_tracer(self._work.workspace)
            whole = run_tool(tool, checked, tool_context)
            return answer(tool, whole, budget, tool.picture(checked, whole))

        async def report(done: float, total: float | None, message: str) -> None:
            await context.report_progress(done, total, message or None)

        try:
            checked, key, found = await self._work.look(kept, report)
            return found or await self._work.run(tool.lane(checked), computed, report, key=key)
        except OpscopeError as error:
            raise ToolError(within(in_one_line(str(error)), self._settings.budget)) from error
        except Exception as error:  # the SDK logs it with its traceback; the caller learns whose fault it is
            raise UnexpectedToolError(
                f"{self._tool.name} stopped on a defect of opscope itself, not of your arguments; "
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
