"""Values of the small interpreter, and the worlds it can be in.

A value is an ordinary Python object where reading alone settles it, else an `Expression` over other names.
An `Oracle` answers the tests that nobody can settle (`is_hip()`); `worlds` runs a computation once for every way in
which the oracle can answer, so that each result is known together with the assumptions it rests on.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.values.conditions import canonical


class UnresolvedError(Exception):
    """Source that the interpreter does not follow; carries the text."""


class DroppedError(Exception):
    """This world raises an exception in the analysed source: it never gets to a launch."""


@dataclass(frozen=True, repr=False)
class ImportRef:
    """A name that an import statement binds."""

    dotted: str

    def __repr__(self) -> str:
        return self.dotted.removeprefix("builtins.")


@dataclass(frozen=True)
class Meta:
    """The argument that Triton hands to a grid function: its items are the kernel's constexprs. Of a search over configurations
    it is one of these: `names` says which constexprs its attributes are handed as."""

    names: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, repr=False)
class Function:
    """A function or lambda of the analysed source, with the scope it was made in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Any

    def __repr__(self) -> str:
        return ast.unparse(self.node.body) if isinstance(self.node, ast.Lambda) else self.node.name


@dataclass
class ConfigValue:
    """A `triton.Config`, or a `SimpleNamespace` of values to try."""

    values: dict[str, Any]
    options: dict[str, Any]
    file: str
    line: int
    #: of a `SimpleNamespace`, which has nothing that it was not given
    plain: bool = False


#: what Triton gives a configuration that does not say
DEFAULT_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}


def is_concrete(value: Any) -> bool:
    """Plain data all the way down."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_concrete(item) for item in value)
    if isinstance(value, dict):
        return all(is_concrete(k) and is_concrete(v) for k, v in value.items())
    return value is None or isinstance(value, bool | int | float | str)


@dataclass
class Oracle:
    """Answers tests that reading does not settle: first as `prefix` says, then True."""

    prefix: Sequence[bool] = ()
    trail: list[tuple[str, bool]] = field(default_factory=list)
    #: facts taken for granted in every world (an architecture's, an unset environment variable)
    assumed: dict[str, None] = field(default_factory=dict)

    def ask(self, text: str) -> bool:
        """The answer for `text`; the same question, or its negation, is never answered in two ways."""
        plain, positive = canonical(text)
        for known, answer in self.trail:
            if known == plain:
                return answer == positive
        index = len(self.trail)
        answer = self.prefix[index] if index < len(self.prefix) else positive
        self.trail.append((plain, answer))
        return answer == positive


@dataclass(frozen=True)
class Outcome:
    """One result with what it rests on: `trail` may be answered otherwise, `assumed` holds in every world."""

    trail: tuple[tuple[str, bool], ...]
    assumed: tuple[str, ...]
    value: Any


def worlds(run: Callable[[Oracle], Any], limit: int = 32) -> tuple[list[Outcome], bool]:
    """Every outcome of `run`, and whether that is all of them (False: more than `limit`)."""
    outcomes: list[Outcome] = []
    prefix: list[bool] = []
    tried: list[int] = []  # questions, by place, that have had both answers
    for _ in range(limit):
        oracle = Oracle(prefix)
        try:
            value = run(oracle)
        except DroppedError:
            pass
        else:
            outcomes.append(Outcome(tuple(oracle.trail), tuple(oracle.assumed), value))
        # depth first: the last question that has been answered in one way only is answered in the other
        tried = [t for t in tried if t < len(oracle.trail)]
        answers = [answer for _, answer in oracle.trail]
        while answers and len(answers) - 1 in tried:
            tried.remove(len(answers) - 1)
            answers.pop()
        if not answers:
            return outcomes, True
        tried.append(len(answers) - 1)
        prefix = [*answers[:-1], not answers[-1]]
    return outcomes, False
