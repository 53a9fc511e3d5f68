"""One case that a Triton launch makes: every argument and option worked out from one assignment of the caller's inputs.

Source leaves open what a host function is called with. Here each such input gets one value (a parameter's default, a usual
size for its name), and the launch is worked out with all of them at once, so that values which depend on each other fit.
An assignment under which the function raises, or never comes to the launch, is given up for another.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opscope_tools.kernels.compiled.triton_tensors import Tensor, tensor
from opscope_tools.kernels.host.interpreter import Interpreter
from opscope_tools.kernels.host.reaching import HostFunction, HostScope, Place
from opscope_tools.kernels.host.worlds import Function, ImportRef, Meta, Oracle, UnresolvedError, is_concrete
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.values.conditions import canonical
from opscope_tools.kernels.values.expressions import Expression, Opaque, Quantity, leaf, render

Guess = Callable[[str], Any]

_ELSEWHERE = re.compile(r"(?i)hip|rocm|amd|xpu|npu|ascend|musa|mlu|intel|cpu\b|interpret")
#: library functions of numbers: what is handed to them is one
_NUMERIC = {
    "cdiv", "ceil_div", "ceildiv", "div_up", "next_power_of_2", "min", "max", "int", "float", "ceil", "floor", "log2",
    "sqrt", "abs", "round", "range", "prod",
}  # fmt: skip
#: what is taken for a size whose name tells nothing
_SMALL = 16
#: sizes of a language model's tensors by their number of dimensions: tokens and hidden size, a batch of these, heads of 128
_MODEL = {1: (4096,), 2: (2048, 4096), 3: (16, 2048, 4096), 4: (16, 2048, 32, 128)}
VOCABULARY = 128_256
_TAKEN = "of a tensor taken to be contiguous"
#: tried in turn for an input under whose first value the launch is not reached
_OTHERS = (64, 16, 128, 256, 1024, 4096, 1, 2, 8)


def _given(value: Any) -> Any:
    return value


@dataclass
class Case:
    """The values that the free inputs of one host function have."""

    guess: Guess
    element: str
    #: whether what may be left out is given: parameters whose default is None
    full: bool = False
    answers: dict[str, Any] = field(default_factory=dict)
    #: input -> the name that host code gives it
    hints: dict[str, str] = field(default_factory=dict)
    #: dimensions of tensors whose count the host function says, and tensors that it says are contiguous, with how, and what they hold
    ranks: dict[str, int] = field(default_factory=dict)
    dense: dict[str, str] = field(default_factory=dict)
    elements: dict[str, str] = field(default_factory=dict)
    #: inputs asked for since it was last emptied
    asked: dict[str, None] = field(default_factory=dict)
    defaults: set[str] = field(default_factory=set)
    #: numbers that tests compare with: worth trying for an input under which one fails
    compared: dict[int, None] = field(default_factory=dict)
    #: why the last stride is what it is
    reason: str = ""

    def of(self, key: str, first: Callable[[], Any]) -> Any:
        """The value of an input, the same whenever it is asked for."""
        self.asked[key] = None
        if key not in self.answers:
            self.answers[key] = first()
        return self.answers[key]

    def number(self, value: Any, passed_for: str = "") -> Any:
        """An unknown quantity as the number that it has here; anything else as it is. `passed_for`: a name of it too."""
        if not isinstance(value, Quantity):
            return value
        key = _key(value)
        name = self.hints.get(key) or re.sub(r"\W+", "_", key.rpartition(".")[2])
        return self.of(key, lambda: self._usual(name, passed_for))

    def _usual(self, *names: str) -> Any:
        """The first usual value that a name tells."""
        values = [self.guess(name) for name in names if name]
        return next((v for v in values if v != _SMALL), _SMALL)

    def truth(self, text: str) -> bool:
        """A test that no number decides: of the vendors, NVIDIA; else that it holds."""
        plain, positive = canonical(text)
        name = self.hints.get(plain, plain)
        known = self.of(
            plain, lambda: not _ELSEWHERE.search(plain) and (positive if name == plain else bool(self.guess(name)))
        )
        return bool(known) == positive

    def dimension(self, text: str, index: int, hint: str = "") -> int:
        """The size of a tensor along one axis."""
        found = tensor(text)
        rank = len(found.dims) if found.dims is not None else self.ranks.get(found.base, 0)
        place = index + rank if index < 0 and rank else index
        if found.dims is not None and 0 <= place < rank and (known := found.dims[place]) is not None:
            return known
        key = f"{found.base}.shape[{place}]"
        if hint:
            self.hints.setdefault(key, hint)
        usual = _MODEL.get(rank, (2048, 4096))
        size = usual[place] if place == -1 or place < len(usual) else 128 if place == rank - 1 else 16
        if (named := self.hints.get(key)) is not None:
            size = VOCABULARY if named == "V" and rank == 2 else self._usual(named)
        value = self.of(key, lambda: size)
        return value if isinstance(value, int) else size

    def held(self, text: str) -> str:
        """What a tensor holds, as torch spells it; '' where source does not say."""
        found = tensor(text)
        return found.element or self.elements.get(found.base, "")

    def stride(self, text: str, index: int) -> tuple[int | None, str]:
        """A tensor's stride where it is known, and why; (None, '') where it is not."""
        found = tensor(text)
        rank = len(found.dims) if found.dims is not None else self.ranks.get(found.base, 0)
        place = index + rank if index < 0 and rank else index
        why = "which is contiguous" if found.contiguous else self.dense.get(text) or self.dense.get(found.base) or ""
        if place == -1 or (rank and place == rank - 1):
            return 1, why or _TAKEN
        if not rank or place < 0 or place >= rank:
            return None, ""
        total = 1
        for axis in range(place + 1, rank):
            total *= self.dimension(text, axis)
        return total, why or _TAKEN


class CaseScope(HostScope):
    """A host function's names; its inputs are told by the expression that they come from, not by a local name."""

    case: Case

    def _free(self, name: str, host: HostFunction) -> Any:
        written = host.default(name)
        if written is None:
            return self.case.of(name, lambda: None) if name in self.case.answers else leaf(name)
        try:
            default = ast.literal_eval(written)
        except (ValueError, SyntaxError):
            return leaf(name)
        if default is None and self.case.full:
            return self.case.of(name, lambda: leaf(name))
        self.case.defaults.add(name)
        return self.case.of(name, lambda: default)

    def _named(self, name: str, value: Any, *_: Any) -> Any:
        if isinstance(value, Quantity):
            self.case.hints.setdefault(_key(value), name)
        return value

    def _value(self, name: str, definition: Place, depth: int, run: Interpreter) -> Any:
        statement = definition.statement
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Tuple):
            scope = self.at(definition, depth)
            if (node := _unpacked(statement.targets[0], name, statement.value)) is not None:
                shape, index = node
                value = self._evaluated(shape, scope, run)
                text = _key(value) if isinstance(value, Expression) else ""
                if text.endswith((".shape", ".size()")):
                    return self.case.dimension(text.rpartition(".")[0], index, name)
        return super()._value(name, definition, depth, run)

    def _item(self, name: str, index: int, value: ast.expr, scope: Any, run: Interpreter, line: int) -> Any:
        found = super()._item(name, index, value, scope, run, line)
        return leaf(f"({ast.unparse(value)})[{index}]") if found == leaf(name) else found


def _unpacked(target: ast.Tuple, name: str, value: ast.expr) -> tuple[ast.expr, int] | None:
    """`a, b, c, d = *x.shape, y` : the sequence that `name` is an element of and its place there, behind a star from the end."""
    names = [e.id if isinstance(e, ast.Name) else "*" if isinstance(e, ast.Starred) else "" for e in target.elts]
    if name not in names or not all(names) or names.count("*") > 1:
        return None
    index, count = names.index(name), len(names)
    behind = "*" in names[:index]
    if not isinstance(value, ast.Tuple):
        return value, index - count if behind else index
    starred = [i for i, e in enumerate(value.elts) if isinstance(e, ast.Starred)]
    if len(starred) != 1 or "*" in names:
        return None
    (first,), width = starred, count - len(value.elts) + 1
    inside = value.elts[first]
    if isinstance(inside, ast.Starred) and first <= index < first + width:
        return inside.value, index - first
    return None


class CaseInterpreter(Interpreter):
    """One run in which every input has its value."""

    def __init__(self, context: Context, case: Case) -> None:
        super().__init__(context.modules, Oracle(), context.arch)
        self.case = case

    def decide(self, test: ast.expr, scope: Any) -> bool:
        """Whether a test holds for the case at hand; a text that does not evaluate is asked of the case."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return not self.decide(test.operand, scope)
        if isinstance(test, ast.BoolOp):
            stop = isinstance(test.op, ast.Or)
            return stop if any(self.decide(part, scope) == stop for part in test.values) else not stop
        try:
            value = self.eval(test, scope)
        except UnresolvedError:
            value = Opaque(ast.unparse(test))
        if isinstance(value, Expression | ImportRef | Function):
            if _ELSEWHERE.search(ast.unparse(test)) and isinstance(test, ast.Call | ast.Name | ast.Attribute):
                return self.case.truth(ast.unparse(test))
            return self.case.truth(render(value))
        return bool(value)

    def arguments(self, node: ast.Call, scope: Any) -> tuple[list[Any], dict[str, Any]]:
        """(positional, by name); functions that count get the case's numbers."""
        positional, keywords = super().arguments(node, scope)
        if ast.unparse(node.func).rpartition(".")[2] in _NUMERIC:
            return [self.case.number(v) for v in positional], keywords
        return positional, keywords

    def call(self, node: ast.Call, scope: Any) -> Any:
        """The value of a call, `isinstance` and methods of tensors answered from the case."""
        if isinstance(node.func, ast.Name) and node.func.id == "isinstance" and len(node.args) == 2:
            known = _instance(self.eval(node.args[0], scope), ast.unparse(node.args[1]))
            if known is not None:
                return known
        if isinstance(node.func, ast.Attribute):
            holder = self.eval(node.func.value, scope)
            if isinstance(holder, Quantity):
                return self._method(_key(holder), node.func.attr, node, scope)
        return super().call(node, scope)

    def _method(self, holder: str, name: str, node: ast.Call, scope: Any) -> Any:
        positional, keywords = self.arguments(node, scope)
        index = positional[0] if len(positional) == 1 and isinstance(positional[0], int) else None
        if name == "stride" and index is not None:
            known, self.case.reason = self.case.stride(holder, index)
            return leaf(f"{holder}.stride({index})") if known is None else known
        if name == "size" and index is not None:
            return self.case.dimension(holder, index)
        if name in ("dim", "element_size", "is_contiguous") and not node.args:
            return self._attribute_of(holder, {"dim": "ndim", "element_size": "itemsize"}.get(name, name))
        shown = [*map(render, positional), *(f"{k}={render(v)}" for k, v in keywords.items())]
        return leaf(f"{holder}.{name}({', '.join(shown)})")

    def _attribute(self, node: ast.Attribute, scope: Any) -> Any:
        value = self.eval(node.value, scope)
        if isinstance(value, Quantity):
            return self._attribute_of(_key(value), node.attr)
        return super()._attribute(node, scope)

    def _attribute_of(self, holder: str, name: str) -> Any:
        if name == "dtype":
            return ImportRef(f"torch.{self.case.held(holder) or self.case.element}")
        if name == "itemsize":
            kind = self.case.held(holder) or self.case.element
            return 8 if "64" in kind else 4 if "32" in kind else 2 if "16" in kind else 1
        if name in ("is_cuda", "is_contiguous"):
            return True
        if name == "ndim" and (rank := len(tensor(holder).dims or ()) or self.case.ranks.get(tensor(holder).base)):
            return rank
        return leaf(f"{holder}.{name}")

    def _subscript(self, node: ast.Subscript, scope: Any) -> Any:
        value = self.eval(node.value, scope)
        text = _key(value) if isinstance(value, Quantity) else ""
        if text.endswith((".shape", ".size()")) and not isinstance(node.slice, ast.Slice):
            index = self.eval(node.slice, scope)
            if isinstance(index, int):
                return self.case.dimension(text.rpartition(".")[0], index)
        return super()._subscript(node, scope)

    def _binop(self, node: ast.BinOp, scope: Any) -> Any:
        left, right = (self.case.number(self.eval(n, scope)) for n in (node.left, node.right))
        return super()._binop(ast.BinOp(_Known(left), node.op, _Known(right)), scope)

    def _unaryop(self, node: ast.UnaryOp, scope: Any) -> Any:
        value = self.eval(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return not (self.decide(_Known(value), scope) if isinstance(value, Expression) else value)
        return super()._unaryop(ast.UnaryOp(node.op, _Known(self.case.number(value))), scope)

    def _compare(self, node: ast.Compare, scope: Any) -> Any:
        operands = [self.eval(n, scope) for n in (node.left, *node.comparators)]
        if len(operands) == 2:
            (left, right), op = operands, node.ops[0]
            if isinstance(op, ast.Is | ast.IsNot) and right is None and left is not None and not is_concrete(left):
                absent = bool(_ELSEWHERE.search(ast.unparse(node.left)))  # `torch.version.hip is not None`
                return isinstance(op, ast.IsNot) != absent
            shapes = [
                _key(o) for o in operands if isinstance(o, Expression) and _key(o).endswith((".shape", ".size()"))
            ]
            if shapes and isinstance(op, ast.Eq | ast.NotEq):
                other = right if left is operands[0] and isinstance(left, Expression) else left
                return self._sizes(shapes[0].rpartition(".")[0], other) == isinstance(op, ast.Eq)
            types = [left.dotted] if isinstance(left, ImportRef) else []
            among = [right] if not isinstance(right, list | tuple) else list(right)
            if types and all(isinstance(r, ImportRef) for r in among):
                same = types[0] in [r.dotted for r in among]
                return same != isinstance(op, ast.NotEq | ast.NotIn | ast.IsNot)
        if not any(
            isinstance(o, str | ImportRef) or (isinstance(o, list | tuple) and not _numbers(o)) for o in operands
        ):
            operands = [self.case.number(o) for o in operands]
        for operand in operands:
            among = list(operand) if isinstance(operand, list | tuple) else [operand]
            self.case.compared.update(dict.fromkeys(o for o in among if type(o) is int))
        known: list[ast.expr] = [_Known(o) for o in operands]
        return super()._compare(ast.Compare(known[0], node.ops, known[1:]), scope)

    def _sizes(self, text: str, given: Any) -> bool:
        """Whether a tensor has these sizes; it takes them where it has none yet."""
        if not isinstance(given, tuple | list):
            return True
        base = tensor(text).base
        self.case.ranks.setdefault(base, len(given))
        for index, size in enumerate(given):
            held = self.case.of(f"{base}.shape[{index}]", partial(_given, size))
            if type(size) is int and held != size:
                self.case.compared.update(dict.fromkeys((size, held)))
                return False
        return True

    def _known(self, node: ast.Constant, _scope: Any) -> Any:
        return node.value


class _Known(ast.Constant):
    """A value that is worked out already, as an expression."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)


def _numbers(values: Any) -> bool:
    return all(isinstance(v, int | float) for v in values)


def _instance(value: Any, kind: str) -> bool | None:
    """`isinstance` of a plain value and one plain type, None of anything else."""
    types = {"int": int, "float": float, "str": str, "bool": bool}
    return isinstance(value, types[kind]) if kind in types and is_concrete(value) else None


def _key(value: Expression) -> str:
    return value.text.replace("{", "").replace("}", "")


# ---- the search for a case ------------------------------------------------------------------------------------------


class RefusedError(Exception):
    """With these inputs the host function does not come to its launch."""


_TRIES = 32


def search(
    make: Callable[[dict[str, Any]], Case], work: Callable[[Case], Any], preset: Mapping[str, Any]
) -> tuple[Any, Case] | None:
    """The result of `work` for the first assignment that it does not refuse, inputs changed one more at a time."""
    pending: list[dict[str, Any]] = [dict(preset)]
    seen: set[str] = set()
    for _ in range(_TRIES):
        if not pending:
            return None
        answers = pending.pop(0)
        case = make(dict(answers))
        try:
            return work(case), case
        except RefusedError:
            for key in reversed(case.asked):
                for other in _alternatives(key, case):
                    changed = {**answers, key: other}
                    if key not in preset and repr(sorted(changed.items(), key=str)) not in seen:
                        seen.add(repr(sorted(changed.items(), key=str)))
                        pending.append(changed)
    return None


def _alternatives(key: str, case: Case) -> list[Any]:
    value = case.answers.get(key)
    if isinstance(value, bool):
        return [not value]
    if value is None and key in case.defaults:
        return [leaf(key)]  # it is given after all
    if isinstance(value, int):
        return [o for o in dict.fromkeys((*case.compared, *_OTHERS)) if o != value]
    return []


__all__ = ["VOCABULARY", "Case", "CaseInterpreter", "CaseScope", "Meta", "RefusedError", "Tensor", "search"]
