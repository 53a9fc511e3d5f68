"""What a line that warns or raises says, and under which condition it runs: both as source spells them.

Where a message is put together at run time, the expression stands in the place that it fills.
"""

from __future__ import annotations

import ast
import re

from opscope_tools.survey.module import Module

_LONGEST = 110
_HOLE = re.compile(r"%(?:\(\w+\))?[-#0 +]*\d*(?:\.\d+)?[sdrfxgi]")


def condition_at(module: Module, line: int) -> str:
    """The test of the innermost `if`, or the exception of the innermost handler, that a line runs under; empty without one."""
    function = module.function_at(line)
    first = function[1].lineno if function else 0
    best: tuple[int, str] = (first, "")
    for node in module.all(ast.If):
        if node.lineno > best[0] and _holds(node.body, line):
            best = (node.lineno, _text(node.test))
        elif node.orelse and node.lineno > best[0] and _holds(node.orelse, line):
            best = (node.lineno, _text(ast.UnaryOp(ast.Not(), node.test)))
    for statement in module.all(ast.Try):
        for handler in statement.handlers:
            if handler.lineno > best[0] and _holds(handler.body, line):
                best = (handler.lineno, f"except {_text(handler.type)}" if handler.type else "except")
    return best[1]


def _holds(body: list[ast.stmt], line: int) -> bool:
    return body[0].lineno <= line <= (body[-1].end_lineno or body[-1].lineno)


def _text(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def message_of(call: ast.Call) -> str:
    """The words of the first argument, with the expressions that fill its holes; `%s` takes the arguments after it."""
    if not call.args:
        return ""
    words = _words(call.args[0])
    for filled in call.args[1:] if _HOLE.search(words) else ():
        words = _HOLE.sub(lambda _, node=filled: f"{{{_text(node)}}}", words, count=1)  # type: ignore[misc]  # bound here
    return " ".join(words.split())


def _words(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(
            f"{{{_text(part.value)}}}" if isinstance(part, ast.FormattedValue) else _words(part) for part in node.values
        )
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left) + (_words(node.right) or f"{{{_text(node.right)}}}")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        filled = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        words = _words(node.left)
        for one in filled:
            words = _HOLE.sub(lambda _, held=one: f"{{{_text(held)}}}", words, count=1)  # type: ignore[misc]  # bound here
        return words
    return " ".join(n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str))
