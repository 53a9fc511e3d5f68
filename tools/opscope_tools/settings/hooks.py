"""Kernels that a model's file takes from elsewhere: decorators and calls whose name says so."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from opscope_schemas.extracted_config import KernelHook

from opscope_tools.source.python.decorators import callee
from opscope_tools.source.python.trees import PythonSource

_KERNEL = re.compile(r"kernel", re.IGNORECASE)
_LAUNCHES = re.compile(r"(^|_)kernel(_|$)")


def kernel_hooks(source: PythonSource) -> list[KernelHook]:
    """Decorators such as `@use_kernel_forward_from_hub("RMSNorm")`, calls such as `lazy_load_kernel("mamba-ssm")`, and
    launches `kernel[grid](...)`, by line."""
    found: dict[int, KernelHook] = {}
    for path, node in source.definitions:
        for decorator in node.decorator_list:
            if _KERNEL.search(callee(decorator)):
                found[decorator.lineno] = _hook(source, decorator, path)
    for call in ast.walk(source.tree) if source.tree is not None else ():
        if (
            isinstance(call, ast.Call)
            and call.lineno not in found
            and (
                _takes(call)
                or (isinstance(call.func, ast.Subscript) and _LAUNCHES.search(ast.unparse(call.func.value)))
            )
        ):
            found[call.lineno] = _hook(source, call, source.around(call.lineno))
    return [found[line] for line in sorted(found)]


def _takes(call: ast.Call) -> bool:
    """Whether a call loads a kernel by its name."""
    named = isinstance(call.func, ast.Name | ast.Attribute) and _KERNEL.search(callee(call))
    return (
        bool(named)
        and bool(call.args)
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    )


def _strings(node: ast.expr) -> Iterator[str]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def _hook(source: PythonSource, node: ast.expr, within: str) -> KernelHook:
    name = next(_strings(node), "") or callee(node)
    return KernelHook(name=name, expression=ast.unparse(node)[:200], within=within, file=source.path, line=node.lineno)
