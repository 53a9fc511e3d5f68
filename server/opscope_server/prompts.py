"""Prompts and argument completion.

Prompt arguments are single words, because hosts split a slash command at whitespace. Bad arguments are protocol errors
with their own text; anything else a prompt raises would be masked.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from mcp import MCPError
from mcp.server.mcpserver.prompts.base import Prompt, PromptArgument
from mcp.types import INVALID_PARAMS
from opscope_prompts import loader

_MEANING = {
    "target": "Model type (llama), class name, or path.py:line; one word.",
    "module": "Class name, short or qualified; one word.",
    "model": "Model type or model class; one word.",
    "repo": "Name of a registered repository; one word.",
    "topic": "memory-bandwidth, system-calls, cache-hierarchy, memory-bottlenecks, matrix-multiplication; one word.",
}


def all_prompts() -> list[Prompt]:
    """Every prompt file as an SDK prompt with its places as required arguments."""
    return [_prompt(name) for name in loader.prompt_names()]


def _prompt(name: str) -> Prompt:
    places = loader.prompt_places(name)

    def render(**arguments: str) -> str:
        return loader.prompt_text(name, arguments)

    return Prompt(
        name=name,
        title=_title(name),
        description=loader.prompt_description(name),
        arguments=[PromptArgument(name=place, description=_MEANING.get(place), required=True) for place in places],
        fn=render,
        context_kwarg=None,
    )


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def check_arguments(name: str, places: list[str], arguments: Mapping[str, str] | None) -> None:
    """Raise `MCPError` (invalid params) unless exactly the prompt's arguments are given, each one word."""
    given = arguments or {}
    missing = [place for place in places if not given.get(place, "").strip()]
    unknown = [place for place in given if place not in places]
    spaced = [place for place, value in given.items() if place in places and len(value.split()) > 1]
    if missing:
        raise MCPError(INVALID_PARAMS, f"The prompt {name} needs the argument {missing[0]!r}: {_MEANING[missing[0]]}")
    if unknown:
        raise MCPError(
            INVALID_PARAMS, f"The prompt {name} has no argument {_shown(unknown[0])!r}; it takes: {', '.join(places)}."
        )
    if spaced:
        raise MCPError(
            INVALID_PARAMS, f"The argument {spaced[0]!r} of the prompt {name} must be one word without spaces."
        )


def unknown_prompt(name: str, known: list[str]) -> MCPError:
    """The error for a prompt that does not exist."""
    nearest = difflib.get_close_matches(name, known, n=2, cutoff=0.4) or known
    return MCPError(INVALID_PARAMS, f"Unknown prompt: {_shown(name)}. Nearest names: {', '.join(nearest)}.")


def _shown(text: str) -> str:
    """A name that somebody made up, no longer than names are, in one line."""
    text = text if len(text) <= 100 else f"{text[:100]}..."
    return text if text.isprintable() else repr(text)
