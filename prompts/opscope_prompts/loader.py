"""Reads the prompts (*.md), the agents' prompts (*.txt), report templates (*.j2) and the narratives of posts (posts/*.md) that lie beside this file.

A prompt is text with `<<argument>>` places: the braces of formulas and of `${{Class}}` references stay as they are.
The first line of a prompt file is `<!-- description -->`; what follows is what the agent reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_PLACE = re.compile(r"<<(\w+)>>")
_DESCRIPTION = re.compile(r"\A<!-- (.+?) -->\n+", re.DOTALL)


@cache
def prompt_names() -> tuple[str, ...]:
    """Every prompt, sorted; `instructions` is the server's own and no prompt."""
    return tuple(name for name in _names(".md") if name != "instructions")


@cache
def template_names() -> tuple[str, ...]:
    """Every report template, sorted, without the suffix."""
    return _names(".j2")


def template_text(name: str) -> str:
    """The source of the template `name`; raises `KeyError` for an unknown one."""
    if name not in template_names():
        raise KeyError(name)
    return _read(f"{name}.j2")


def prompt_description(name: str) -> str:
    """One sentence on what the prompt `name` does."""
    found = _DESCRIPTION.match(_read(f"{name}.md"))
    assert found, f"{name}.md does not begin with a description"
    return found.group(1)


def prompt_places(name: str) -> tuple[str, ...]:
    """The arguments that the prompt `name` has places for, in order of first appearance."""
    return tuple(dict.fromkeys(_PLACE.findall(_read(f"{name}.md"))))


def prompt_text(name: str, arguments: Mapping[str, str]) -> str:
    """The prompt `name` with its places filled; raises `KeyError` for a place without an argument."""
    return _filled(_DESCRIPTION.sub("", _read(f"{name}.md")), arguments)


def narrative_text(topic: str) -> str:
    """The narrative of the post on `topic`, with its places; raises `FileNotFoundError` for an unknown one."""
    return files("opscope_prompts").joinpath("posts", f"{topic}.md").read_text(encoding="utf-8")


def agent_prompt(name: str, arguments: Mapping[str, str]) -> str:
    """What the headless agent `name` is asked, its places filled; raises `KeyError` for a place without an argument."""
    return _filled(_read(f"{name}.txt"), arguments)


def _filled(text: str, arguments: Mapping[str, str]) -> str:
    return _PLACE.sub(lambda place: arguments[place.group(1)], text).strip() + "\n"


def instructions() -> str:
    """What the server tells an agent when it connects."""
    return prompt_text("instructions", {})


def _names(suffix: str) -> tuple[str, ...]:
    here = files("opscope_prompts").iterdir()
    return tuple(sorted(entry.name.removesuffix(suffix) for entry in here if entry.name.endswith(suffix)))


@cache
def _read(file: str) -> str:
    return files("opscope_prompts").joinpath(file).read_text(encoding="utf-8")
