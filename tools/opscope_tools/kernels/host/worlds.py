"""Values of the small interpreter, and the worlds it can be in.

A value is an ordinary Python object where reading alone settles it, else a `Sym`: formula text over other names.
An `Oracle` answers the tests that nobody can settle (`is_hip()`); `worlds` runs a computation once for every way in
which the oracle can answer, so that each result is known together with the assumptions it rests on.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from opscope_tools.kernels.values.conditions import canonical

#: precedence of a formula's outermost operator
ATOM, POWER, UNARY, PRODUCT, SUM, COMPARISON, CONDITION = 7, 6, 5, 4, 3, 2, 1


#: what the operators of Python's syntax do with plain values
BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.Is: ("is", operator.is_),
    ast.IsNot: ("is not", operator.is_not),
    ast.In: ("in", lambda a, b: a in b),
    ast.NotIn: ("not in", lambda a, b: a not in b),
}


class UnresolvedError(Exception):
    """Source that the interpreter does not follow; carries the text."""


class DroppedError(Exception):
    """This world raises an exception in the analysed source: it never gets to a launch."""


@dataclass(frozen=True)
class Sym:
    """Formula text that reading does not reduce to a value. `leaf`: one name, not an expression over names."""

    text: str
    precedence: int = ATOM
    leaf: bool = False

    def within(self, precedence: int) -> str:
        """The text, in parentheses where `precedence` binds tighter."""
        return self.text if self.precedence >= precedence else f"({self.text})"


@dataclass(frozen=True)
class ImportRef:
    """A name that an import statement binds."""

    dotted: str


@dataclass(frozen=True)
class Meta:
    """The argument that Triton hands to a grid function: its items are the kernel's constexprs."""


@dataclass(frozen=True)
class Function:
    """A function or lambda of the analysed source, with the scope it was made in."""

    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    scope: Any


@dataclass
class ConfigValue:
    """A `triton.Config`."""

    values: dict[str, Any]
    options: dict[str, Any]
    file: str
    line: int


#: what Triton gives a configuration that does not say
DEFAULT_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1}

#: bits of a number that is written out
_MOST_BITS = 256


def leaf(text: str) -> Sym:
    """A run-time quantity of the caller."""
    return Sym("{" + text.replace("{", "").replace("}", "") + "}", ATOM, leaf=True)


def render(value: Any, precedence: int = 0) -> str:
    """A value as formula text."""
    if isinstance(value, Sym):
        return value.within(precedence)
    if isinstance(value, tuple | list):
        inner = ", ".join(render(item) for item in value)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return "{a number that no size has}"
    if isinstance(value, int | float) and not isinstance(value, bool) and value < 0 and precedence > SUM:
        return f"({value!r})"
    if isinstance(value, Function):
        return ast.unparse(value.node.body) if isinstance(value.node, ast.Lambda) else value.node.name
    if isinstance(value, ImportRef):
        return value.dotted.removeprefix("builtins.")
    return repr(value)


def is_concrete(value: Any) -> bool:
    """Plain data all the way down."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_concrete(item) for item in value)
    if isinstance(value, dict):
        return all(is_concrete(k) and is_concrete(v) for k, v in value.items())
    return value is None or isinstance(value, bool | int | float | str)


_SYMBOL = {
    ast.Add: ("+", SUM), ast.Sub: ("-", SUM), ast.Mult: ("*", PRODUCT), ast.Div: ("/", PRODUCT),
    ast.FloorDiv: ("//", PRODUCT), ast.Mod: ("%", PRODUCT), ast.Pow: ("**", POWER), ast.LShift: ("<<", SUM),
    ast.RShift: (">>", SUM), ast.BitAnd: ("&", COMPARISON), ast.BitOr: ("|", COMPARISON),
    ast.BitXor: ("^", COMPARISON),
}  # fmt: skip


def combine(op: ast.operator, left: Any, right: Any) -> Any:
    """`left operator right` as formula text; `(a + b - 1) // b` becomes `cdiv(a, b)`."""
    symbol, precedence = _SYMBOL.get(type(op), ("@", PRODUCT))
    if symbol == "*" and 1 in (left, right) and not isinstance(left, bool) and not isinstance(right, bool):
        return right if left == 1 else left
    if symbol in "+-" and right == 0 and not isinstance(right, Sym):
        return left
    if symbol == "//" and right == 1 and isinstance(left, Sym):
        whole = left.text.removesuffix(" + 1 - 1")  # how many blocks of one there are
        return left if whole == left.text else Sym(whole, SUM if " " in whole else ATOM)
    tighter = precedence + (0 if symbol in "+*" else 1)
    if symbol == "*" and isinstance(right, Sym) and re.search(r"/|%", right.text):
        tighter = precedence + 1  # a * (b // 2) is not a * b // 2
    text = f"{render(left, precedence)} {symbol} {render(right, tighter if symbol != '+' else precedence)}"
    if symbol == "//" and (rewritten := _as_cdiv(render(left), render(right), render(right, PRODUCT))) is not None:
        return Sym(rewritten)
    return Sym(text, precedence)


def ceil_div(a: Any, b: Any) -> Any:
    """`a / b`, rounded up."""
    if isinstance(b, int) and b == 1:
        return a
    return -(-a // b) if isinstance(a, int) and isinstance(b, int) and b else Sym(f"cdiv({render(a)}, {render(b)})")


def _as_cdiv(numerator: str, plain: str, wrapped: str) -> str | None:
    """`a + b - 1` over `b`, in the orders in which people write it; with a literal b the `b - 1` may be folded."""
    endings = [f" + {b} - 1" for b in {plain, wrapped}] + [f" - 1 + {b}" for b in {plain, wrapped}]
    if plain.isdigit():
        endings.append(f" + {int(plain) - 1}")
    for ending in endings:
        if numerator.endswith(ending) and len(numerator) > len(ending):
            return f"cdiv({numerator.removesuffix(ending)}, {plain})"
    for b in {plain, wrapped}:
        if numerator.startswith(f"{b} - 1 + "):
            return f"cdiv({numerator.removeprefix(f'{b} - 1 + ')}, {plain})"
    for b in {plain, wrapped}:
        if numerator.startswith(f"{b} + ") and numerator.endswith(" - 1"):
            return f"cdiv({numerator.removeprefix(f'{b} + ').removesuffix(' - 1')}, {plain})"
    return None


def product(terms: Sequence[str]) -> str:
    """The terms multiplied, ones left out."""
    factors = [t for t in terms if t != "1"]
    if not factors:
        return "1" if terms else ""
    return " * ".join(f if _is_factor(f) or len(factors) == 1 else f"({f})" for f in factors)


def _is_factor(text: str) -> bool:
    """Whether multiplying needs no parentheses: a name, a call, or a product."""
    depth = 0
    for i, c in enumerate(text):
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif (depth == 0 and c in "+-%/?|&<>=" and i) or (depth == 0 and text.startswith(" if ", i)):
            return False
    return True


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
