"""Numbers that a report quotes from the analysis, each under a key, so that they can be compared again later.

A quoted number is written as `8,030<!-- fact:key -->`; the keys and values go into the facts file beside the report.
Marks are HTML comments: they belong into prose and tables, never into code fences, where they would show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from opscope_schemas.formula import Rational

from opscope_tools.report.markdown import number
from opscope_tools.report.measures import said

__all__ = ["BRACED", "Quotes", "as_prose", "as_source", "in_code", "joined"]

#: braces that a reader would take for something to be filled in
BRACED = re.compile(r"(?<!\$)\{([a-z][a-z0-9_ :]*)\}")


@dataclass
class Quotes:
    """Collects what it quotes."""

    values: dict[str, int | float] = field(default_factory=dict)

    def decimal(self, key: str, value: float, digits: int = 2) -> str:
        """`value` with `digits` places and its mark; the facts file keeps it as it is shown."""
        key = "_".join(key.split())
        shown = f"{value:.{digits}f}"
        assert self.values.setdefault(key, float(shown)) == float(shown), (key, value, self.values[key])
        return f"{shown}<!-- fact:{key} -->"

    def said(self, key: str, value: float) -> str:
        """`value` as people say what its key counts, with its mark; the facts file keeps it whole."""
        key = "_".join(key.split())
        assert self.values.setdefault(key, value) == value, (key, value, self.values[key])
        return f"{said(key, value)}<!-- fact:{key} -->"

    def __call__(self, key: str, value: Rational) -> str:
        """`value` in digits with its mark; a key stands for one number throughout a report."""
        key = "_".join(key.split())  # a mark ends at the first blank
        value = math.ceil(value)  # a fraction of a byte takes a byte
        assert self.values.setdefault(key, value) == value, (key, value, self.values[key])
        return f"{number(value)}<!-- fact:{key} -->"


def in_code(text: str) -> str:
    """Words for a code span: nothing in them ends it or is read as a placeholder."""
    return BRACED.sub(r"(\1)", as_source(text))


def as_prose(text: str) -> str:
    """A module's path as words: nothing in it is read as emphasis."""
    return re.sub(r"(\*|(?<!\w)_)", r"\\\1", text)


def as_source(text: str) -> str:
    """Source for a code span that names its file beside it, letter for letter but for what would end the span."""
    return " ".join(text.replace("`", "'").split())


def joined(said: Iterable[str]) -> str:
    """`a, b and c`; empty where there is nothing."""
    *first, last = [*said] or [""]
    return f"{', '.join(first)} and {last}" if first else last
