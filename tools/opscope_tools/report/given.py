"""Whose configuration the figures of a report are of: a class's defaults, or what the caller gave.

The defaults of a configuration class are seldom those of a checkpoint, so every report says at its head which it is.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import PurePath

from opscope_tools.report.facts import ImplementationFacts, short
from opscope_tools.report.quotes import in_code

__all__ = ["configuration_given", "given_names"]

#: fields that a sentence names before it only counts them
_MOST = 8


def configuration_given(facts: ImplementationFacts) -> str:
    """One sentence without a full stop: whose values the configuration holds."""
    name, given = f"`{short(facts.tree.config_class)}`", facts.given
    if isinstance(given, str):
        said = in_code("/".join(PurePath(given).parts[-2:]))
        return f"as `{said}` gives it; what that leaves out is the default of {name}"
    fields = [f"`{path}={in_code(str(value))}`" for path, value in given_names(given)]
    if fields:
        more = f" and {len(fields) - _MOST} more" if len(fields) > _MOST else ""
        return f"the default of {name} with {', '.join(fields[:_MOST])}{more} given, which need not be that of any checkpoint"
    if (sized := facts.sized_as) is not None:  # no name of the sources that were read
        stored = f", which stores its weights as {sized.stored} where these are counted in bf16" if sized.stored else ""
        return f"the default of {name}, with the sizes of the checkpoint {sized.name}{stored} (by opscope's own table; as a target that name has its figures); none was given"
    named = _named_checkpoint(facts)
    return f"the default of {name}, which need not be that of any checkpoint{named}; none was given"


def _named_checkpoint(facts: ImplementationFacts) -> str:
    """The checkpoint that the class of configuration is decorated with, whose values may be others."""
    path, span = facts.locate(facts.tree.config_class) or ("", None)
    for one in span.node.decorator_list if span is not None and isinstance(span.node, ast.ClassDef) else ():
        for word in one.keywords if isinstance(one, ast.Call) else ():
            if word.arg == "checkpoint" and isinstance(word.value, ast.Constant) and word.value.value:
                return f", nor of `{in_code(str(word.value.value))}`, which its decorator names (`{path}:{word.value.lineno}`)"
    return ""


def given_names(given: Mapping[str, object] | str | None, within: str = "") -> Iterator[tuple[str, object]]:
    """The overrides with their dotted names, nested ones spelt out."""
    for name, value in given.items() if isinstance(given, Mapping) else ():
        path = f"{within}{name}"
        if isinstance(value, Mapping) and value:
            yield from given_names(value, f"{path}.")
        else:
            yield path, value
