"""docs/reference: the tools, the command line and the documents, from the catalogue, from click and from the exported JSON Schemas.

Order: the three pages, a tool, a command, the fields of a document, what a JSON Schema says of one value, Markdown.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click
from opscope_clients import helping, session_options
from opscope_server.definitions import schema_of
from opscope_tools.catalog import all_tools
from opscope_tools.running.tool import AnyTool

_TOOLS = """# Tools

Every tool of the server, as an agent sees it: what it answers, its arguments, and the fields of its answer. Written by `make golden` from
the tools' own definitions. The whole schema of an answer is the resource `opscope://schema/TOOL`.
"""
_COMMANDS = """# Command line

Every command, its arguments and its options. Written by `make golden` from the commands themselves; `opscope COMMAND --help` says the same.

## Options of every command

They stand before or after the command. Each also comes from a [variable of the environment](environment.md).
"""
_DOCUMENTS = """# Documents

The two JSON documents that `count_flops` and `expand_refs` make, and `opscope module` and `opscope model` write. Made by `make golden` from
`schemas/opscope_schemas/json`, whose JSON Schemas are also the server's resources. A figure is a formula, as [conventions](../conventions.md)
has it. A field without a default is always there.
"""
#: what JSON Schema calls a bound, and what a reader does
_BOUNDS = {
    "minimum": "at least {}", "exclusiveMinimum": "more than {}", "maximum": "at most {}", "exclusiveMaximum": "less than {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters", "minItems": "at least {} entries", "maxItems": "at most {} entries",
}  # fmt: skip
#: goes without saying
_NOT_EMPTY = ((_BOUNDS["minLength"], 1), (_BOUNDS["minItems"], 1))
_DEFINITIONS = "#/$defs/"


def tools() -> str:
    """docs/reference/tools.md."""
    rows = [(f"[`{one.name}`](#{one.name})", one.title) for one in all_tools()]
    return _joined([_TOOLS, _table(("tool", "what it does"), rows), *(_tool(one) for one in all_tools())])


def command_line(command: click.Group) -> str:
    """docs/reference/command-line.md."""
    shared = _options(session_options.options())
    statuses = _table(("status", "meaning"), [(str(number), meaning) for number, meaning in helping.STATUSES])
    parts = [_COMMANDS, shared, "## Exit status", statuses]
    made = helping.below(command)
    for title, names in helping.COMMANDS.items():
        parts += [f"## {title}", *(_command(("opscope", name), made[name]) for name in names)]
    return _joined(parts)


def documents(schemas: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/reference/documents.md, of the schemas of the documents by name."""
    parts = [_DOCUMENTS]
    below: dict[str, Mapping[str, Any]] = {}
    for name, schema in schemas.items():
        parts += [f"## {name}", schema.get("description", ""), _fields(schema)]
        below |= schema["$defs"]
    for name, schema in sorted(below.items()):
        parts += [f"## {name}", schema.get("description", ""), _fields(schema)]
    return _joined(parts)


# ---- a tool, a command ---------------------------------------------------------------------------------------------


def _tool(tool: AnyTool) -> str:
    answer = schema_of(tool.result)
    rights = "Writes files." if not tool.read_only else "Reads only."
    names = [(f"`{name}`", _said(one)) for name, one in answer["properties"].items()]
    return _joined(
        [
            f"## {tool.name}", f"{_escaped(tool.description)} {rights}", "Arguments:", _fields(schema_of(tool.arguments), link=False),
            "The answer:", _table(("field", "meaning"), names),
        ]
    )  # fmt: skip


def _command(path: tuple[str, ...], command: click.Command) -> str:
    below = getattr(command, "commands", None)
    if below:
        return _joined([_command((*path, name), one) for name, one in below.items()])
    shared = {flag for option in session_options.options() for flag in option.opts}
    own = [one for one in command.params if not shared.intersection(one.opts) or _is_own(one)]
    usage = " ".join([*path, *command.collect_usage_pieces(click.Context(command))])
    example = re.sub(r"^\x08\s*Example:\s*", "", command.epilog or "").strip()
    return _joined(
        [
            f"### {' '.join(path)}", _escaped(" ".join((command.help or "").split())), f"```text\n{usage}\n```",
            _options([one for one in own if isinstance(one, click.Option)]), f"```bash\n{example}\n```" if example else "",
        ]
    )  # fmt: skip


def _is_own(parameter: click.Parameter) -> bool:
    """Whether an option that bears the name of a session's is the command's own: its words differ."""
    helps = {option.help for option in session_options.options()}
    return isinstance(parameter, click.Option) and parameter.help not in helps


def _options(options: Iterable[click.Option]) -> str:
    rows = []
    for one in options:
        flags = ", ".join([*one.opts, *one.secondary_opts])
        takes = "" if one.is_flag else f" {one.make_metavar(click.Context(click.Command('x')))}"
        rows.append((f"`{flags}{takes}`", _escaped(one.help or "")))
    return _table(("option", "meaning"), rows) if rows else ""


# ---- the fields of an object ---------------------------------------------------------------------------------------


def _fields(schema: Mapping[str, Any], *, link: bool = True) -> str:
    """A table of an object's fields: name, type, default, meaning with its bounds."""
    needed = set(schema.get("required", ()))
    rows = []
    for name, one in schema["properties"].items():
        default = "needed" if name in needed else _default(one)
        rows.append((f"`{name}`", _type(one, schema if not link else None), default, _said(one)))
    return _table(("name", "type", "default", "meaning"), rows)


def _default(one: Mapping[str, Any]) -> str:
    value = one.get("default")
    return "" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _said(one: Mapping[str, Any]) -> str:
    told_of = [(words, held[key]) for held in _arms(one) for key, words in _BOUNDS.items() if key in held]
    bounds = [words.format(f"{bound:,}") for words, bound in told_of if (words, bound) not in _NOT_EMPTY]
    told = _escaped(one.get("description", ""))
    return f"{told} ({', '.join(dict.fromkeys(bounds))})".strip() if bounds else told


def _arms(one: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield one
    yield from one.get("anyOf", ())


def _type(one: Mapping[str, Any], root: Mapping[str, Any] | None) -> str:
    """A value's type in words. References link to their heading, or with `root` are told by what that defines."""
    if "$ref" in one:
        name = one["$ref"].removeprefix(_DEFINITIONS)
        if root is None:
            return f"[{name}](#{name.lower()})"
        return _type(root["$defs"][name], root)
    if "anyOf" in one:
        return " or ".join(dict.fromkeys(_type(arm, root) for arm in one["anyOf"] if arm.get("type") != "null"))
    if "enum" in one:
        return ", ".join(f"`{json.dumps(value, ensure_ascii=False)}`" for value in one["enum"])
    if "const" in one:
        return f"`{json.dumps(one['const'])}`"
    kind = one.get("type", "anything")
    if kind == "array" and "prefixItems" in one:
        return f"list of {' and '.join(_type(part, root) for part in one['prefixItems'])}"
    if kind == "array":
        return f"list of {_type(one.get('items', {}), root)}"
    values = one.get("additionalProperties")
    if kind == "object" and isinstance(values, Mapping):
        return f"object of {_type(values, root)}"
    return str(kind)


# ---- Markdown ------------------------------------------------------------------------------------------------------


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    """A cell; a bar in code is an entity, behind which a line may break, since what a backslash means there differs between readers of Markdown."""
    code = re.sub(r"`([^`]*[|][^`]*)`", lambda found: f"<code>{html.escape(found[1], quote=False)}</code>", text)
    parts = re.split(r"(<code>.*?</code>)", code)
    return "".join(part.replace("|", "&#124;<wbr>" if part.startswith("<code>") else r"\|") for part in parts)


def _escaped(text: str) -> str:
    """Text of a docstring as Markdown: what looks like HTML or emphasis stays as it is written."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*_\[\]])", r"\\\1", part) for part in parts)


def _joined(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
