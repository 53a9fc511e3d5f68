"""Pseudocode of a forward: its own statements without boilerplate, each with its `path:line` and what it costs.

The statements are printed from the syntax tree, so the result is valid Python by construction. Left out: annotations,
docstrings, raises and assertions, logging and warnings, and the branch that only training takes.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Sequence
from typing import TypeAlias

__all__ = ["pseudocode"]

#: objects whose calls only talk to the user
_TALK = frozenset({"logger", "logging", "warnings", "print"})


#: the comment behind a statement that stands on lines first to last
Mark: TypeAlias = Callable[[int, int], str]


def pseudocode(
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    path: str,
    name: str,
    notes: Sequence[str],
    cost: Callable[[int, int], str] = lambda _first, _last: "",
) -> str:
    """`function` as a listing called `name`; `notes` become its docstring, `cost` says what lines first to last take."""

    def mark(first: int, last: int) -> str:
        return "; ".join(filter(None, (f"  # {path}:{first}", cost(first, last))))

    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    header = f"def {name}({', '.join(p for p in parameters if p != 'self')}):"
    # a quote inside would end the docstring
    text = [line.replace("\\", "/").replace('"""', "'''") for line in notes]
    docstring = ['"""', *text, '"""']
    body = _block(function.body, mark) or [f"pass  # {path}:{function.lineno}"]
    return "\n".join([header, *textwrap.indent("\n".join([*docstring, *body]), "    ").split("\n")])


def _block(statements: Sequence[ast.stmt], mark: Mark) -> list[str]:
    return [line for statement in statements for line in _statement(statement, mark)]


def _statement(statement: ast.stmt, mark: Mark) -> list[str]:
    whole = mark(statement.lineno, statement.end_lineno or statement.lineno)
    match statement:
        case ast.Raise() | ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom():
            return []
        case ast.Expr(value=ast.Constant()):
            return []
        case ast.Expr(value=ast.Call(func=function)) if _root(function) in _TALK:
            return []
        case ast.AnnAssign(target=target, value=value):
            return [f"{ast.unparse(target)} = {ast.unparse(value)}{whole}"] if value is not None else []
        case ast.If():
            return _if(statement, mark)
        case ast.For(target=target, iter=iterator, body=body):
            return _nested(f"for {ast.unparse(target)} in {ast.unparse(iterator)}:{_head(statement, mark)}", body, mark)
        case ast.While(test=test, body=body):
            return _nested(f"while {ast.unparse(test)}:{_head(statement, mark)}", body, mark)
        case ast.With(items=items, body=body):
            return _nested(
                f"with {', '.join(ast.unparse(item) for item in items)}:{_head(statement, mark)}", body, mark
            )
        case ast.Try(body=body):  # the handlers are boilerplate; the body is the algorithm
            return _block(body, mark)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            arguments = ", ".join(a.arg for a in statement.args.args)
            return _nested(f"def {statement.name}({arguments}):{_head(statement, mark)}", statement.body, mark)
        case _:
            lines = ast.unparse(statement).split("\n")  # more than one: a string with line breaks, or a match
            return [lines[0] + whole] if len(lines) == 1 else lines


def _head(
    statement: ast.For | ast.While | ast.With | ast.FunctionDef | ast.AsyncFunctionDef | ast.If, mark: Mark
) -> str:
    """The comment of a statement that holds others: what its own lines cost, before the first that it holds."""
    return mark(statement.lineno, max(statement.lineno, statement.body[0].lineno - 1))


def _if(statement: ast.If, mark: Mark) -> list[str]:
    said = _head(statement, mark)
    training = _training(statement.test)
    if training is not None:  # inference takes the other branch
        return _block(statement.orelse if training else statement.body, mark)
    body, otherwise = _block(statement.body, mark), _block(statement.orelse, mark)
    if not body and not otherwise:
        return []
    if not body:
        return [f"if not ({ast.unparse(statement.test)}):{said}", *_indented(otherwise)]
    drawn = [f"if {ast.unparse(statement.test)}:{said}", *_indented(body)]
    return [*drawn, "else:", *_indented(otherwise)] if otherwise else drawn


def _training(test: ast.expr) -> bool | None:
    """True where `test` holds only in training, False where only in inference, None where it says neither."""
    match test:
        case ast.Attribute(attr="training"):
            return True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = _training(operand)
            return None if inner is None else not inner
        case ast.BoolOp(op=ast.And(), values=values) if any(_training(value) is True for value in values):
            return True
        case _:
            return None


def _nested(header: str, body: Sequence[ast.stmt], mark: Mark) -> list[str]:
    lines = _block(body, mark)
    return [header, *_indented(lines)] if lines else []


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
