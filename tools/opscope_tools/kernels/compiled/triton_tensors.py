"""What the expression that makes a tensor says of it: sizes, whether it is contiguous, what it holds.

Expressions come as text in which sizes are numbers already (triton_case.py). Only what torch documents is taken:
`empty`, `zeros`, ... and `.contiguous()` are contiguous, `empty_like` and its kin keep the layout of what they are like.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

#: torch.X(size...) and tensor.new_X(size...)
_MADE = ("empty", "zeros", "ones", "rand", "randn")
_LIKE = ("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like")
#: methods that keep sizes; with `torch.preserve_format`, the layout of a dense tensor too
_SAME = ("contiguous", "to", "clone", "detach", "float", "half", "bfloat16", "int", "long", "cuda", "type", "view_as")
_VIEWS = ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "ravel")
_CASTS = {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64"}
#: torch's names of types -> triton's
TYPES = {
    "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32", "float": "fp32", "float64": "fp64",
    "double": "fp64", "int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32", "int": "i32", "int64": "i64",
    "long": "i64", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
}  # fmt: skip


@dataclass(frozen=True)
class Tensor:
    """One tensor; `base` is the expression whose sizes it has, `element` a type as torch spells it, '' where unknown."""

    base: str
    dims: tuple[int | None, ...] | None = None
    contiguous: bool = False
    element: str = ""


def tensor(text: str) -> Tensor:
    """The tensor that an expression makes; one of unknown sizes and layout where it says nothing."""
    try:
        return _of(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, RecursionError):
        return Tensor(text)


def _of(node: ast.expr) -> Tensor:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return Tensor(ast.unparse(node))
    name = node.func.attr
    keywords = {k.arg: k.value for k in node.keywords if k.arg}
    element = _element(keywords.get("dtype"))
    plain = "memory_format" not in keywords
    if ast.unparse(node.func.value) == "torch":
        if name in _MADE or name == "full":
            return Tensor(ast.unparse(node), _sizes(node.args[:1] if name == "full" else node.args), plain, element)
        if name in _LIKE and node.args:
            like = _of(node.args[0])
            return replace(like, contiguous=like.contiguous and plain, element=element or like.element)
        return Tensor(ast.unparse(node))
    if name.removeprefix("new_") in (*_MADE, "full") and name.startswith("new_"):
        sizes = node.args[:1] if name == "new_full" else node.args
        return Tensor(ast.unparse(node), _sizes(sizes), plain, element or _of(node.func.value).element)
    held = _of(node.func.value)
    if name in _SAME:
        kind = _CASTS.get(name) or element or next(filter(None, map(_element, node.args)), "") or held.element
        return replace(held, contiguous=(held.contiguous or name == "contiguous") and plain, element=kind)
    if name in _VIEWS:
        sizes_of = _sizes(node.args) if name in ("view", "reshape") else None
        cast = next(filter(None, map(_element, node.args)), "")  # `x.view(torch.int8)`
        return Tensor(ast.unparse(node), sizes_of, held.contiguous, cast or held.element)
    return Tensor(ast.unparse(node))


def _element(node: ast.expr | None) -> str:
    """`torch.float32` as `float32`; '' of what is no type."""
    text = ast.unparse(node) if node is not None else ""
    name = text.removeprefix("torch.")
    return name if text.startswith("torch.") and name in TYPES else ""


def _sizes(nodes: list[ast.expr]) -> tuple[int | None, ...] | None:
    """Sizes as written, None each where it is no number; None where not even their count is known."""
    if len(nodes) == 1 and isinstance(nodes[0], ast.Tuple | ast.List):
        nodes = nodes[0].elts
    elif len(nodes) == 1 and not isinstance(nodes[0], ast.Constant):
        return None
    if not nodes or any(isinstance(n, ast.Starred) for n in nodes):
        return None
    return tuple(n.value if isinstance(n, ast.Constant) and type(n.value) is int else None for n in nodes)


__all__ = ["TYPES", "Tensor", "tensor"]
