"""The library functions that configuration code calls: `triton.cdiv`, `itertools.product`, `os.environ.get`, ...

Each is given settled arguments or formula text; what the table does not know stays a call in the text.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opscope_tools.kernels.host.worlds import ConfigValue, Function, ImportRef, UnresolvedError, is_concrete
from opscope_tools.kernels.values.expressions import Expression, Quantity, call, ceil_div, leaf, render

if TYPE_CHECKING:
    from opscope_tools.kernels.host.evaluate import Scope
    from opscope_tools.kernels.host.interpreter import Interpreter

_ITEMS = 20_000


def _product(*lists: Any, repeat: int = 1) -> list[Any]:
    if math.prod(len(x) for x in lists) ** repeat > _ITEMS:
        raise UnresolvedError("product too large")
    return list(itertools.product(*lists, repeat=repeat))


def _range(*bounds: int) -> list[int]:
    if len(range(*bounds)) > _ITEMS:
        raise UnresolvedError("range too large")
    return list(range(*bounds))


def _next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length() if n > 0 else 0


#: applied where every argument is plain data; lists may hold unsettled items
_PLAIN: dict[str, Callable[..., Any]] = {
    "builtins.len": len,
    "builtins.range": _range,
    "builtins.list": lambda x=(): list(x),
    "builtins.tuple": lambda x=(): tuple(x),
    "builtins.set": lambda x=(): list(dict.fromkeys(x)),
    "builtins.zip": lambda *x: list(zip(*x, strict=False)),
    "builtins.enumerate": lambda x, start=0: list(enumerate(x, start)),
    "builtins.reversed": lambda x: list(reversed(x)),
    "builtins.dict": dict,
    "copy.copy": lambda x: x,
    "copy.deepcopy": lambda x: x,
    "itertools.product": _product,
    "itertools.chain": lambda *x: list(itertools.chain(*x)),
}
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "builtins.min": min,
    "builtins.max": max,
    "builtins.int": int,
    "builtins.float": float,
    "builtins.str": str,
    "builtins.bool": bool,
    "builtins.abs": abs,
    "builtins.sum": sum,
    "builtins.sorted": sorted,
    "builtins.any": any,
    "builtins.all": all,
    "builtins.round": round,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.log2": math.log2,
    "math.sqrt": math.sqrt,
    "math.prod": math.prod,
}
#: last part of a dotted name -> how formulas spell it
_FORMULA = {
    "cdiv": "cdiv",
    "ceil_div": "cdiv",
    "ceildiv": "cdiv",
    "div_up": "cdiv",
    "next_power_of_2": "next_power_of_2",
}
_NAMED: dict[str, Callable[..., int]] = {"cdiv": ceil_div, "next_power_of_2": _next_power_of_2}
_SPELLED = {"min", "max", "ceil", "floor", "abs"}
_TRANSPARENT = {"int", "float", "constexpr"}


def call_library(run: Interpreter, dotted: str, node: ast.Call, scope: Scope) -> Any:
    """The value of a call of something outside the repository."""
    last = dotted.rpartition(".")[2]
    if last == "Config" and "triton" in dotted:
        return _config(run, node, scope)
    if dotted == "types.SimpleNamespace" and not node.args:
        return ConfigValue(run.arguments(node, scope)[1], {}, scope.module.path, node.lineno, plain=True)
    if dotted in {"os.environ.get", "os.getenv"}:
        return _environment(run, node, scope)
    if dotted == "builtins.map" or dotted == "builtins.filter":
        return _map(run, dotted, node, scope)
    if run.arch is not None and dotted == "torch.cuda.get_device_capability":
        known, value = run.arch.attribute(dotted)
        if known:
            run.oracle.assumed[f"{dotted}() is {value} on {run.arch.name}"] = None
            return value
    positional, keywords = run.arguments(node, scope)
    if (action := _PLAIN.get(dotted)) is not None:
        return _applied(action, positional, keywords, node)
    settled = all(is_concrete(v) for v in (*positional, *keywords.values()))
    if settled and (action := _ARITHMETIC.get(dotted)) is not None:
        return _applied(action, positional, {k: v for k, v in keywords.items() if k != "key"}, node)
    name = _FORMULA.get(last)
    if name is not None and positional:
        if settled and not keywords and all(isinstance(v, int) for v in positional):
            return _applied(_NAMED[name], positional, {}, node)
        return call(name, *positional, *keywords.values())
    if last in _TRANSPARENT and len(positional) == 1:
        return positional[0]
    if last in _SPELLED and dotted.startswith(("builtins.", "math.")) and not keywords:
        return call(last, *positional)
    return _call_text(dotted, positional, keywords)


def _call_text(dotted: str, positional: list[Any], keywords: dict[str, Any]) -> Quantity:
    """A call that stays a call; in braces where it depends on run-time quantities."""
    shown = [*(render(v) for v in positional), *(f"{k}={render(v)}" for k, v in keywords.items())]
    text = f"{dotted.removeprefix('builtins.')}({', '.join(shown)})"
    return leaf(text) if "{" in text else Quantity(text)


def _applied(action: Callable[..., Any], positional: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
    if any(isinstance(v, Expression | ImportRef | Function) for v in (*positional, *keywords.values())):
        raise UnresolvedError(ast.unparse(node))
    try:
        return action(*positional, **keywords)
    except UnresolvedError:
        raise
    except Exception as error:  # the analysed call has no value
        raise UnresolvedError(ast.unparse(node)) from error


def _map(run: Interpreter, dotted: str, node: ast.Call, scope: Scope) -> Any:
    positional, _ = run.arguments(node, scope)
    if len(positional) != 2 or not isinstance(positional[0], Function):
        raise UnresolvedError(ast.unparse(node))
    items = run.iterate(positional[1], node)
    results = [run.invoke(positional[0], [item], {}) for item in items]
    if dotted == "builtins.map":
        return results
    if not all(is_concrete(r) for r in results):
        raise UnresolvedError(ast.unparse(node))
    return [item for item, keep in zip(items, results, strict=True) if keep]


def _environment(run: Interpreter, node: ast.Call, scope: Scope) -> Any:
    """A variable's default, taken as an assumption."""
    positional, keywords = run.arguments(node, scope)
    if not positional or not isinstance(positional[0], str):
        return leaf(ast.unparse(node))
    run.oracle.assumed[f"the environment variable {positional[0]} is not set"] = None
    return positional[1] if len(positional) > 1 else keywords.get("default")


def _config(run: Interpreter, node: ast.Call, scope: Scope) -> ConfigValue:
    positional, keywords = run.arguments(node, scope)
    names = ["kwargs", "num_warps", "num_stages", "num_ctas", "maxnreg", "pre_hook"]
    given = {**dict(zip(names, positional, strict=False)), **keywords}
    values = given.pop("kwargs", {})
    if not isinstance(values, dict):
        raise UnresolvedError(ast.unparse(node))
    return ConfigValue(dict(values), given, scope.module.path, node.lineno)


_METHODS: dict[type, set[str]] = {
    list: {"append", "extend", "insert", "copy", "index", "count", "pop"},
    dict: {"get", "items", "keys", "values", "copy", "update", "pop", "setdefault"},
    str: {"lower", "upper", "strip", "split", "startswith", "endswith", "replace", "join"},
    tuple: {"index", "count"},
}


#: methods whose answer depends on what they are asked for
_LOOKS_UP = {"get", "pop", "setdefault", "index", "count", "startswith", "endswith", "replace", "split", "join"}


def call_method(holder: Any, name: str, arguments: list[Any], node: ast.Call) -> Any:
    """A method of plain data; views become lists."""
    if name not in _METHODS[type(holder)] or any(isinstance(a, ImportRef) for a in arguments):
        raise UnresolvedError(ast.unparse(node))
    if name in _LOOKS_UP and arguments and not is_concrete(arguments[0]):
        raise UnresolvedError(ast.unparse(node))
    if name == "extend" and not isinstance(arguments[0], list | tuple):
        raise UnresolvedError(ast.unparse(node))
    try:
        value = getattr(holder, name)(*arguments)
    except Exception as error:  # the analysed call has no value
        raise UnresolvedError(ast.unparse(node)) from error
    return [*value] if name in {"items", "keys", "values"} else value
