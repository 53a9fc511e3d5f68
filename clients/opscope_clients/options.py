"""A tool's arguments as command-line parameters, derived from its pydantic model.

Order: what kind of parameter a field makes, the parameters of a tool, and text back into arguments. Objects are given
as JSON, as KEY=VALUE (repeatable), or, where the field takes text too, as a path.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from opscope_schemas.errors import InputError
from opscope_tools.running.tool import AnyTool
from pydantic.fields import FieldInfo


class Kind(enum.Enum):
    """What a field is on the command line."""

    FLAG = "flag"
    CHOICE = "choice"
    INTEGER = "integer"
    NUMBER = "number"
    TEXT = "text"
    TEXTS = "texts"
    OBJECT = "object"
    OBJECT_OR_TEXT = "object or text"
    JSON = "json"


def kind_of(field: FieldInfo) -> tuple[Kind, tuple[str, ...]]:
    """The kind of `field`, and its choices where it has some."""
    arms = [arm for arm in _arms(field.annotation) if arm is not type(None)]
    origins = [typing.get_origin(arm) or arm for arm in arms]
    if any(_is(origin, Mapping) for origin in origins):
        return (Kind.OBJECT_OR_TEXT if str in origins else Kind.OBJECT), ()
    if any(_is(origin, Sequence) and origin is not str for origin in origins):
        return Kind.TEXTS, ()
    if len(arms) == 1 and origins[0] is Literal:
        return Kind.CHOICE, tuple(str(choice) for choice in typing.get_args(arms[0]))
    simple = {bool: Kind.FLAG, int: Kind.INTEGER, float: Kind.NUMBER, str: Kind.TEXT}
    return (simple.get(origins[0], Kind.JSON) if len(arms) == 1 else Kind.JSON), ()


def _arms(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return tuple(arm for part in typing.get_args(annotation) for arm in _arms(part))
    if typing.get_origin(annotation) is typing.Annotated:
        return _arms(typing.get_args(annotation)[0])
    return (annotation,)


def _is(origin: Any, base: type) -> bool:
    return isinstance(origin, type) and issubclass(origin, base)


def parameters(tool: AnyTool) -> list[click.Parameter]:
    """The click parameters of `tool`: its positional arguments in order, then an option per other field."""
    fields = {name: field for name, field in tool.arguments.model_fields.items() if name not in tool.of_hosts}
    positional = [name for name in tool.positional if name in fields]
    made: list[click.Parameter] = [_argument(name, fields[name]) for name in positional]
    return made + [_option(name, field) for name, field in fields.items() if name not in positional]


def _argument(name: str, field: FieldInfo) -> click.Argument:
    kind, choices = kind_of(field)
    several = kind is Kind.TEXTS
    return click.Argument(
        [name], required=field.is_required(), type=click.Choice(choices) if choices else None, nargs=-1 if several else 1,
        metavar=f"{name.upper()}{'...' if several else ''}",
    )  # fmt: skip


def _option(name: str, field: FieldInfo) -> click.Option:
    kind, choices = kind_of(field)
    flag = f"--{name.replace('_', '-')}"
    help_text = field.description or ""
    if kind is Kind.FLAG:
        return click.Option([f"{flag}/--no-{name.replace('_', '-')}", name], default=None, help=help_text)
    metavars = {
        Kind.OBJECT: "KEY=VALUE|JSON",
        Kind.OBJECT_OR_TEXT: "PATH|KEY=VALUE|JSON",
        Kind.JSON: "JSON",
    }
    plain: dict[Kind, click.ParamType[Any]] = {Kind.INTEGER: click.INT, Kind.NUMBER: click.FLOAT}
    several = kind in {Kind.OBJECT, Kind.OBJECT_OR_TEXT, Kind.TEXTS}
    return click.Option(
        [flag, name],
        type=click.Choice(choices) if choices else plain.get(kind, click.STRING),
        multiple=several,
        default=None,
        required=field.is_required(),
        metavar=metavars.get(kind),
        help=help_text + (" Repeatable." if several else ""),
    )


def arguments_of(tool: AnyTool, given: Mapping[str, Any]) -> dict[str, Any]:
    """What the user gave, as the tool's arguments; what was not given is left to the tool's default."""
    found: dict[str, Any] = {}
    for name, field in tool.arguments.model_fields.items():
        value = given.get(name)
        if value is None or value == ():
            continue
        kind, _ = kind_of(field)
        if kind in {Kind.OBJECT, Kind.OBJECT_OR_TEXT}:
            found[name] = parse_object(name, value, path=kind is Kind.OBJECT_OR_TEXT)
        elif kind is Kind.TEXTS:
            found[name] = list(value)
        elif kind is Kind.JSON:
            found[name] = _json(value) if isinstance(value, str) else value
        else:
            found[name] = value
    return found


#: option of a size -> its name in `values`, and what it says
_SIZES = {
    "batch": ("batch_size", "Sequences."),
    "seq": ("seq_len", "New tokens of each."),
    "context": ("cache_len", "Tokens in the cache of a decode step."),
}


def size_options() -> list[click.Parameter]:
    """Short names of the usual sizes of a pass."""
    return [click.Option([f"--{n}"], type=click.IntRange(1), help=said) for n, (_, said) in _SIZES.items()]


def sizes_of(given: Mapping[str, Any]) -> dict[str, int]:
    """The `values` that the short names give."""
    return {name: given[option] for option, (name, _) in _SIZES.items() if given.get(option) is not None}


def parse_object(name: str, texts: str | Sequence[str], *, path: bool = False) -> dict[str, Any] | str:
    """KEY=VALUE texts and JSON objects merged into one object; or, where `path` allows it, the one text as it is.

    A value is read as JSON where it is JSON, else as text; `@FILE` stands for the text of that file.
    """
    parts = [texts] if isinstance(texts, str) else list(texts)
    one_text = path and len(parts) == 1 and not parts[0].lstrip().startswith("{")
    if one_text and ("=" not in parts[0] or Path(parts[0]).expanduser().exists()):
        if parts[0].startswith(("/", "./", "../", "~")):  # what is no such path may lie in a repository
            check_there(name, parts[0])
        return parts[0]
    merged: dict[str, Any] = {}
    option = f"--{name.replace('_', '-')}"
    for text in parts:
        if text.lstrip().startswith("{"):
            read = _json(text)
            if not isinstance(read, dict):
                raise InputError(f"{option} {text!r} is not a JSON object.", next_step='Example: {"batch_size": 1}.')
            merged.update(read)
            continue
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise InputError(
                f"{option} {text!r} is neither JSON nor KEY=VALUE.", next_step=f"Example: {option} batch_size=1."
            )
        merged[key.strip()] = _file(option, value[1:]) if value.startswith("@") else _json(value)
    return merged


def check_there(name: str, path: str) -> None:
    """Raise `InputError` where a configuration's file or folder is not there."""
    if not Path(path).expanduser().exists():
        raise InputError(f"The {name} {path} does not exist.", next_step="Give a config.json, or its folder.")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _file(option: str, name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"{option} names the file {name}, which cannot be read: {reason}.") from None
