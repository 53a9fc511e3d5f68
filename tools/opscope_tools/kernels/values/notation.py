"""Counts of a kernel as formulas: the exact algebra of `Formula` under the notation of kernels.

In a kernel's formulas a run-time name stands in braces and a compile-time name bare, and some factors are no polynomial
at all (`cdiv({K}, BLOCK_K)`). `Counts` reads such text, keeps what it cannot take apart as one factor, and writes the
result in the same notation; `evaluate` puts numbers in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

from opscope_schemas.formula import Formula

from opscope_tools.kernels.host.worlds import BINARY, COMPARE

#: a run-time quantity, or a compile-time one that is no name of Python: `sizeof(T)`, `Traits::kBlockM`
_BRACED = re.compile(r"\{([^{}]*+)\}|(sizeof\([^()]*+\)|(?<!\w)[A-Za-z_]\w*+(?:<[^<>()+*/-]*+>)?(?:::[A-Za-z_]\w*+)++)")
_MARK = "§"
_MARKED = re.compile(rf"\{{{_MARK}(\d+)\}}")
_MOST_BITS = 4096
#: operators whose results on exact numbers are exact
_EXACT = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


class Counts:
    """Formulas of one kernel; factors that stay whole are numbered in the order in which they turn up."""

    def __init__(self) -> None:
        self._factors: dict[str, Formula] = {}

    def whole(self, text: str) -> Formula:
        """A factor that is not taken apart, shown as written."""
        return self._factors.setdefault(text, Formula.var(f"{_MARK}{len(self._factors):04}"))

    def factor(self, text: str) -> Formula:
        """As `read`, but a sum stays whole: products of many sums would not fit on a page, or in memory."""
        found = self.read(text)
        return found if len(found.terms) == 1 else self.whole(text)

    def size(self, shape: Iterable[str]) -> Formula:
        """Elements of a tile."""
        total = Formula.const(1)
        for part in shape:
            total = total * self.factor(part)
        return total

    def read(self, text: str) -> Formula:
        """The formula that a text in a kernel's notation writes."""
        braced: list[str] = []

        def put(match: re.Match[str]) -> str:
            braced.append(match[0])
            return f" __{len(braced) - 1}__ "

        try:
            return self._of(ast.parse(_BRACED.sub(put, text).strip(), mode="eval").body, braced)
        except (SyntaxError, ValueError, RecursionError):
            return self.whole(text)

    def _of(self, node: ast.expr, braced: list[str]) -> Formula:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return Formula.const(node.value)
        if isinstance(node, ast.BinOp):
            left, right = self._of(node.left, braced), self._of(node.right, braced)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            a, b = left.constant(), right.constant()
            if isinstance(node.op, ast.FloorDiv) and a is not None and b:
                return Formula.const(a // b)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._of(node.operand, braced)
        if isinstance(node, ast.Name) and (found := re.fullmatch(r"__(\d+)__", node.id)):
            return self.whole(braced[int(found[1])])
        text = re.sub(r"__(\d+)__", lambda m: braced[int(m[1])], ast.unparse(node))
        return self.whole(text)

    def show(self, formula: Formula) -> str:
        """The formula in the kernel's notation."""
        names = list(self._factors)
        return _MARKED.sub(lambda m: _within_product(names[int(m[1])]), str(formula))


def _within_product(text: str) -> str:
    """A factor as it stands among others: in parentheses where it is an expression."""
    plain = _BRACED.sub("x", text)
    return text if re.fullmatch(r"[\w.]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?", plain) else f"({text})"


def names_of(text: str) -> list[str]:
    """The quantities that a formula's value depends on, as they are to be given: without braces."""
    plain = {m[1] or m[2]: None for m in _BRACED.finditer(text)}
    rest = _BRACED.sub(" ", text)
    plain |= {m[0]: None for m in re.finditer(r"[A-Za-z_][\w.]*(?!\w*\s*+\()", rest)}
    return [name for name in plain if name not in {"cdiv", "min", "max", "if", "else", "and", "or", "not"}]


def evaluate(text: str, values: Mapping[str, int]) -> Fraction | None:
    """The number that a formula gives, exactly; None where a quantity is not given or it is no arithmetic."""
    given: list[int] = []

    def put(match: re.Match[str]) -> str:
        given.append(values[match[1] or match[2]])
        return f" __{len(given) - 1}__ "

    try:
        return _number(ast.parse(_BRACED.sub(put, text).strip(), mode="eval").body, values, given)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _number(node: ast.expr, values: Mapping[str, int], given: list[int]) -> Fraction:
    def of(inner: ast.expr) -> Fraction:
        return _number(inner, values, given)

    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
        name = ast.unparse(node)
        found = re.fullmatch(r"__(\d+)__", name)
        return Fraction(given[int(found[1])] if found else values[name])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -of(node.operand)
    if isinstance(node, ast.IfExp) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
        test = COMPARE[type(node.test.ops[0])][1]
        return of(node.body if test(of(node.test.left), of(node.test.comparators[0])) else node.orelse)
    if isinstance(node, ast.BinOp) and isinstance(node.op, _EXACT):
        a, b = of(node.left), of(node.right)
        if max(a.numerator.bit_length(), b.numerator.bit_length()) > _MOST_BITS:
            raise ValueError("too large")
        if not isinstance(node.op, ast.Pow):
            return Fraction(BINARY[type(node.op)](a, b))
        if b.denominator == 1 and 0 <= b <= 64:
            return Fraction(a ** int(b))
    if isinstance(node, ast.Call):
        name, arguments = ast.unparse(node.func).rpartition(".")[2], [of(a) for a in node.args]
        if name == "cdiv" and len(arguments) == 2:
            return Fraction(-(-arguments[0] // arguments[1]))
        if name in {"min", "minimum"} and arguments:
            return min(arguments)
        if name in {"max", "maximum"} and arguments:
            return max(arguments)
        return Fraction(values[ast.unparse(node)])
    raise ValueError(ast.dump(node))
