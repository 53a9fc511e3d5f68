"""Renders the report templates (*.j2) of this folder.

Jinja2 is imported on first use: a server that lists its tools never pays for it. Undefined names raise, so a template
cannot print an empty place; trailing blanks of block lines are trimmed, so a loop leaves no empty rows in a table.
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_prompts.loader import template_text

__all__ = ["render_template"]


def render_template(name: str, context: Mapping[str, object]) -> str:
    """The template `name` filled from `context`.

    Raises `KeyError` for an unknown template and `jinja2.UndefinedError` for a name that the context lacks.
    """
    import jinja2  # here: 40 ms that only a report needs

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is Markdown; the checks refuse what would break it
    )
    return environment.from_string(template_text(name)).render(dict(context))
