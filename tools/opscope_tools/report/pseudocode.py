"""Pseudocode of a forward: its own statements without boilerplate, each with its `path:line`.

The statements are printed from the syntax tree, so the result is valid Python by construction. Left out: annotations,
docstrings, raises and assertions, logging and warnings, and the branch that only training takes.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Sequence

__all__ = ["pseudocode"]

#: objects whose calls only talk to the user
_TALK = frozenset({"logger", "logging", "warnings", "print"})


def pseudocode(function: ast.FunctionDef | ast.AsyncFunctionDef, path: str, name: str, notes: Sequence[str]) -> str:
    """`function` as a listing called `name`; `notes` become its docstring."""
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    header = f"def {name}({', '.join(p for p in parameters if p != 'self')}):"
    # a quote inside would end the docstring
    text = [line.replace("\\", "/").replace('"""', "'''") for line in notes]
    docstring = ['"""', *text, '"""']
    body = _block(function.body, path) or [f"pass  # {path}:{function.lineno}"]
    return "\n".join([header, *textwrap.indent("\n".join([*docstring, *body]), "    ").split("\n")])


def _block(statements: Sequence[ast.stmt], path: str) -> list[str]:
    return [line for statement in statements for line in _statement(statement, path)]


def _statement(statement: ast.stmt, path: str) -> list[str]:
    mark = f"  # {path}:{statement.lineno}"
    match statement:
        case ast.Raise() | ast.Assert() | ast.Pass() | ast.Import() | ast.ImportFrom():
            return []
        case ast.Expr(value=ast.Constant()):
            return []
        case ast.Expr(value=ast.Call(func=function)) if _root(function) in _TALK:
            return []
        case ast.AnnAssign(target=target, value=value):
            return [f"{ast.unparse(target)} = {ast.unparse(value)}{mark}"] if value is not None else []
        case ast.If():
            return _if(statement, path, mark)
        case ast.For(target=target, iter=iterator, body=body):
            return _nested(f"for {ast.unparse(target)} in {ast.unparse(iterator)}:{mark}", body, path)
        case ast.While(test=test, body=body):
            return _nested(f"while {ast.unparse(test)}:{mark}", body, path)
        case ast.With(items=items, body=body):
            return _nested(f"with {', '.join(ast.unparse(item) for item in items)}:{mark}", body, path)
        case ast.Try(body=body):  # the handlers are boilerplate; the body is the algorithm
            return _block(body, path)
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            arguments = ", ".join(a.arg for a in statement.args.args)
            return _nested(f"def {statement.name}({arguments}):{mark}", statement.body, path)
        case _:
            lines = ast.unparse(statement).split("\n")  # more than one: a string with line breaks, or a match
            return [lines[0] + mark] if len(lines) == 1 else lines


def _if(statement: ast.If, path: str, mark: str) -> list[str]:
    training = _training(statement.test)
    if training is not None:  # inference takes the other branch
        return _block(statement.orelse if training else statement.body, path)
    body, otherwise = _block(statement.body, path), _block(statement.orelse, path)
    if not body and not otherwise:
        return []
    if not body:
        return [f"if not ({ast.unparse(statement.test)}):{mark}", *_indented(otherwise)]
    drawn = [f"if {ast.unparse(statement.test)}:{mark}", *_indented(body)]
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


def _nested(header: str, body: Sequence[ast.stmt], path: str) -> list[str]:
    lines = _block(body, path)
    return [header, *_indented(lines)] if lines else []


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
