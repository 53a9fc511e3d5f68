"""What a client is told of a tool: its name, its text, the schemas of its arguments and of its answer.

Hosts read the list at the start of every conversation, and some hand all of it to the model, so both schemas are short:
the answer's spells out as many levels as fit in a few lines, and `opscope://schema/TOOL` is the whole of it. Imported only
where no list is kept (listing.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opscope_tools.running.tool import AnyTool
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from opscope_server.listing import Definition

_DEFINITIONS = "#/$defs/"
#: characters of compact JSON that an answer's schema may take, where its type does not say how many (`listed`); the fields of the answer itself are spelled out whatever they take
MOST = 900


class _PlainSchema(GenerateJsonSchema):
    """JSON Schema without a title per field: the field's name says as much, and an agent reads every character."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - pydantic's signature
        return False


def definition(tool: AnyTool) -> Definition:
    """`tool` as it is listed."""
    return Definition(
        tool.name, tool.title, tool.description, arguments_schema(tool.arguments), answer_schema(tool.result),
        tool.read_only, tool.idempotent,
    )  # fmt: skip


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of `model`, with an object at its root even where the model refers to itself."""
    schema = model.model_json_schema(schema_generator=_PlainSchema)
    reference = schema.get("$ref", "")
    if reference.startswith(_DEFINITIONS):
        definition = schema["$defs"][reference.removeprefix(_DEFINITIONS)]
        schema = {**definition, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


# ---- arguments -----------------------------------------------------------------------------------------------------

#: what a schema says to validators; a caller that breaks such a bound is told so by the tool itself
_UNSAID = frozenset(
    {"minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "format"}
)


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
        if key not in _UNSAID and not (key == "default" and value in (None, "", [])) and (key, value) != _ANYTHING
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


# ---- answers -------------------------------------------------------------------------------------------------------

#: what stays of an answer's schema: what its shape is, not what it means or which numbers it may hold
_SHAPE = frozenset({"type", "properties", "required", "additionalProperties", "items", "prefixItems", "enum", "const"})
#: levels at which objects inside the answer are told by nothing but their type, and at which every schema is too long or whole
_BARE, _DEEPEST = -1, 12


def answer_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's answer, short: every answer fits it, and what it spells out is as closed as the model.

    As many levels of objects as fit in `MOST` characters are spelled out; what lies deeper is an object with the fields
    that it always has, or, where not even those fit, any object.
    """
    whole = schema_of(model)
    held: Mapping[str, Any] = whole.get("$defs", {})
    short, most = _shape(whole, held, _BARE), getattr(model, "listed", MOST)
    for levels in range(_BARE + 1, _DEEPEST):
        more = _shape(whole, held, levels)
        if len(json.dumps(more, separators=(",", ":"))) > most:
            break
        short = more
    return short


def _shape(schema: Mapping[str, Any], held: Mapping[str, Any], levels: int) -> dict[str, Any]:
    """`schema` without words and bounds, its references replaced by what they name, `levels` of them deep."""
    if "$ref" in schema:
        named = held[schema["$ref"].removeprefix(_DEFINITIONS)]
        if levels <= 0 and "properties" in named:
            told = ("type", "required") if levels == 0 else ("type",)
            return {key: named[key] for key in told if key in named}
        return _shape(named, held, levels - 1 if "properties" in named else levels)
    kept = {key: value for key, value in schema.items() if key in _SHAPE and (key, value) != _ANYTHING}
    if "properties" in kept:
        kept["properties"] = {name: _shape(field, held, levels) for name, field in kept["properties"].items()}
    for inside in ("additionalProperties", "items"):
        if isinstance(kept.get(inside), dict):
            kept[inside] = _shape(kept[inside], held, levels)
    if "prefixItems" in kept:
        kept["prefixItems"] = [_shape(item, held, levels) for item in kept["prefixItems"]]
    choices: list[dict[str, Any]] = []
    for choice in schema.get("anyOf", schema.get("oneOf", ())):  # of two coarse forms both may fit: any, not one
        if (short := _shape(choice, held, levels)) not in choices:
            choices.append(short)
    if not choices:
        return kept
    # one type a choice: a list of types is short, and some hosts cannot read it
    return {**kept, **(choices[0] if len(choices) == 1 else {"anyOf": choices})}
