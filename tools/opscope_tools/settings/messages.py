"""What an error, an assertion or a test says, in the words of the source.

An exception or a message may be built before and raised by name: `Bound` follows, statement by statement, which
expressions a local name may stand for. Where branches bind it differently all of them are given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Bound", "said_within"]

_ENDS = ast.Raise | ast.Return | ast.Continue | ast.Break
_SAYING = frozenset(
    "warn warning warning_once warning_advice error critical info info_once debug exception print".split()
)
_FEW = 3
_DEEPEST = 4

Values = dict[str, tuple[ast.expr, ...]]


class Bound:
    """The local names of a function, each with the expressions that it may stand for here."""

    def __init__(self, values: Values | None = None) -> None:
        self.values: Values = dict(values or {})

    def inside(self, node: ast.AST) -> Bound:
        """What a definition sees of the names around it: its own parameters hide them."""
        arguments = getattr(node, "args", None)
        hidden = {a.arg for a in ast.walk(arguments) if isinstance(a, ast.arg)} if arguments is not None else set()
        return Bound({name: values for name, values in self.values.items() if name not in hidden})

    def note(self, node: ast.stmt) -> None:
        """Take up what a statement binds."""
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in _names(target):
                    plain = isinstance(target, ast.Name)
                    self._bind(name, (node.value,) if plain else ())
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            before = self.values.get(node.target.id, ())
            joined = tuple(ast.BinOp(value, node.op, node.value) for value in before)
            self._bind(node.target.id, joined)
        elif isinstance(node, ast.For | ast.AsyncFor):
            for name in _names(node.target):
                self._bind(name, ())
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                for name in _names(item.optional_vars) if item.optional_vars is not None else ():
                    self._bind(name, ())

    def _bind(self, name: str, values: tuple[ast.expr, ...]) -> None:
        if values:
            self.values[name] = values
        else:
            self.values.pop(name, None)

    def ways(self, node: ast.stmt) -> Ways:
        """The branches of a statement, to be walked one by one."""
        return Ways(self, node)

    # what is said

    def raised(self, node: ast.expr | None) -> tuple[str, str]:
        """Class and message of what `raise` raises."""
        if node is None:
            return "", ""
        values = [v for v in self._values(node) if isinstance(v, ast.Call)] if isinstance(node, ast.Name) else [node]
        calls = [value for value in values if isinstance(value, ast.Call)]
        if not calls:
            return ast.unparse(node), ""
        errors = dict.fromkeys(ast.unparse(call.func) for call in calls)
        said = dict.fromkeys(" ".join(filter(None, (self.message(a) for a in call.args))) for call in calls)
        return " or ".join(errors), " / ".join(filter(None, said))

    def message(self, node: ast.expr, depth: int = 0) -> str:
        """The words of a message; the places of an f-string as `{expression}`, a name by what it was given."""
        if isinstance(node, ast.Constant):
            return " ".join(str(node.value).split())
        if isinstance(node, ast.JoinedStr):
            return " ".join(_spelt(node).split())
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _is_text(node):
            return " ".join(filter(None, (self.message(node.left, depth), self.message(node.right, depth))))
        if isinstance(node, ast.Name) and depth < _DEEPEST:
            texts = [value for value in self._values(node) if _is_text(value)]
            if texts:
                return " / ".join(dict.fromkeys(self.message(text, depth + 1) for text in texts))
        return ast.unparse(node)

    def _values(self, node: ast.Name) -> tuple[ast.expr, ...]:
        return self.values.get(node.id, ())


class Ways:
    """The branches of one statement: each starts with what was bound before, and what they end with meets behind."""

    def __init__(self, bound: Bound, node: ast.stmt) -> None:
        self.bound, self.node = bound, node
        self.before = dict(bound.values)
        self.ends: list[Values] = []
        self.straight = isinstance(node, ast.With | ast.AsyncWith)

    @contextmanager
    def one(self, block: list[ast.stmt]) -> Iterator[None]:
        """Walk one branch."""
        if not self.straight:
            self.bound.values = dict(self.before)
        for handler in getattr(self.node, "handlers", ()):
            if handler.body is block and handler.name and handler.type is not None:
                self.bound.values[handler.name] = (ast.Call(handler.type, [], []),)
        yield
        if not (block and isinstance(block[-1], _ENDS)):
            self.ends.append(self.bound.values)

    def meet(self) -> None:
        """Behind the statement a name may stand for what any branch that goes on left it with."""
        ends = self.ends
        if not ends or self.straight:
            self.bound.values = ends[-1] if ends else dict(self.before)
            return
        met: Values = {}
        for name in dict.fromkeys(name for end in ends for name in end):
            values = [value for end in ends for value in end.get(name, ())]
            met[name] = tuple({id(value): value for value in values}.values())[:_FEW]
        self.bound.values = met


def said_within(node: ast.stmt) -> str:
    """What the branches of a test say when they raise or warn; of an assignment the name that keeps the answer."""
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return f"kept as {', '.join(ast.unparse(target) for target in targets)}"
    if isinstance(node, ast.Return):
        return "returned"
    if not isinstance(node, ast.If | ast.While):
        return ""
    plain, found = Bound(), []
    for number, inner in enumerate([*node.body, *([] if _is_chain(node.orelse) else node.orelse)]):
        prefix = "otherwise " if number >= len(node.body) else ""
        if isinstance(inner, ast.Raise) and inner.exc is not None:
            error, message = plain.raised(inner.exc)
            found.append(f"{prefix}raises {error}: {message}" if message else f"{prefix}raises {error}")
        elif isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Call) and inner.value.args:
            name = ast.unparse(inner.value.func).rpartition(".")[2]
            if name in _SAYING:
                found.append(f"{prefix}{name}: {plain.message(inner.value.args[0])}")
    return "; ".join(found)


def _is_chain(block: list[ast.stmt]) -> bool:
    """Whether an `else` is an `elif`, which is a test of its own."""
    return len(block) == 1 and isinstance(block[0], ast.If)


def _names(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (_is_text(node.left) or _is_text(node.right))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _spelt(node: ast.JoinedStr) -> str:
    parts = [
        str(p.value) if isinstance(p, ast.Constant) else f"{{{ast.unparse(p.value)}}}"
        for p in node.values
        if isinstance(p, ast.Constant | ast.FormattedValue)
    ]
    return "".join(parts)
