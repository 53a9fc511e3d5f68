"""What a decorator or a call does by the name of its function."""

from __future__ import annotations

import ast
import re

#: `use_kernel_forward_from_hub`, `use_kernelized_func`, `use_experts_implementation`
_SWAPS = re.compile(r"kernel|^use_\w*_implementation$", re.IGNORECASE)


def callee(node: ast.expr) -> str:
    """The last name of what is called, or of what stands there without a call."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def swaps_kernels(decorator: ast.expr) -> bool:
    """Whether a decorator's own name says that it puts another kernel in the place of what it decorates."""
    return _SWAPS.search(callee(decorator)) is not None


__all__ = ["callee", "swaps_kernels"]
