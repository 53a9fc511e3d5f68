"""The options of every tool as typed dictionaries, for `Session`'s methods: read from the tools' models, so that the two never differ."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any, Literal

from opscope_tools.catalog import all_tools
from opscope_tools.estimate_roofline.sweeping import SWEEP as POINTS
from opscope_tools.running.tool import AnyTool

_HEAD = '''"""The options of each tool, typed: what `Session`'s methods take by name. Written by `make golden` from the tools' own models."""

# fmt: off
from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, TypedDict
'''


def text() -> str:
    """The module's text."""
    return "\n\n".join([_HEAD, *(_options(tool) for tool in (*all_tools(), POINTS))]).rstrip() + "\n"


def options_name(tool: AnyTool) -> str:
    """`CountFlopsOptions`."""
    return "".join(part.capitalize() for part in tool.name.split("_")) + "Options"


def _options(tool: AnyTool) -> str:
    fields = tool.arguments.model_fields
    taken = [name for name, field in fields.items() if not field.is_required() and name not in tool.of_hosts]
    lines = [f"    {name}: {_shown(fields[name].annotation)}" for name in taken]
    body = "\n".join([*lines, "    whole: bool"])
    return f'class {options_name(tool)}(TypedDict, total=False):\n    """Of `{tool.name}`."""\n\n{body}\n'


def _shown(annotation: Any) -> str:
    arms = list(dict.fromkeys(_arms(annotation)))
    return " | ".join(sorted(arms, key=lambda arm: arm == "None"))


def _arms(annotation: Any) -> Iterator[str]:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        for part in inner:
            yield from _arms(part)
    elif origin is typing.Annotated:
        yield from _arms(inner[0])
    elif origin is Literal:
        yield f"Literal[{', '.join(map(repr, inner))}]".replace("'", '"')
    elif annotation in (type(None), None):
        yield "None"
    elif isinstance(origin, type) and issubclass(origin, Mapping):
        yield f"Mapping[{', '.join(_shown(part) for part in inner)}]"
    elif isinstance(origin, type):
        yield f"Sequence[{_shown(inner[0])}]"
    else:
        yield {Any: "Any", Fraction: "Fraction"}.get(annotation) or annotation.__name__
