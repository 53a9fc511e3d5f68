"""The decorators of a Triton kernel, and its launch options: configurations enumerated, heuristics, warps and stages.

A configuration list that depends on the platform is worked out once per answer to each predicate; every configuration
says under which answers it is in the list.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from opscope_schemas.tiling import Autotune, BoundValue, Scalar, TuneConfig, TuneVariant

from opscope_tools.kernels.architectures import Arch
from opscope_tools.kernels.host.interpreter import Interpreter, ModuleScope
from opscope_tools.kernels.host.modules import Modules, PyModule
from opscope_tools.kernels.host.reaching import HostFunction
from opscope_tools.kernels.host.worlds import (
    DEFAULT_OPTIONS,
    ConfigValue,
    DroppedError,
    Function,
    Oracle,
    Outcome,
    UnresolvedError,
    is_concrete,
    worlds,
)  # fmt: skip
from opscope_tools.kernels.triton.definitions import FunctionNode, decorator_name, wrappers
from opscope_tools.kernels.values.conditions import when_text
from opscope_tools.kernels.values.expressions import render

#: ways in which the tests of one configuration list may turn out that are followed
_LISTS = 160


@dataclass(frozen=True)
class Context:
    """What evaluation needs beside an expression."""

    modules: Modules
    arch: Arch | None
    checkpoint: Callable[[], None]


def decorators(function: FunctionNode, module: PyModule, context: Context) -> tuple[Autotune | None, list[BoundValue]]:
    """The autotune decorator and the heuristics of a kernel."""
    tuned: Autotune | None = None
    heuristics: list[BoundValue] = []
    for node in [*function.decorator_list, *wrappers(function, module)]:
        if not isinstance(node, ast.Call):
            continue
        name = decorator_name(node, module)
        if name.rpartition(".")[2] == "heuristics":
            heuristics.extend(_heuristics(node, module, context))
        elif "autotune" in name or "libtuner" in name or any(k.arg == "configs" for k in node.keywords):
            around = function if node in function.decorator_list else node
            tuned = _autotune(node, name, module, context, _branches(around, module))
    return tuned, heuristics


def _branches(node: ast.AST, module: PyModule) -> list[tuple[ast.expr, bool]]:
    """The tests of the file's own `if`s around a definition, and how each turned out for it to be there."""
    place = HostFunction.of(module.tree).place_of(node)
    around = place.branch if place is not None else ()
    return [(s.test, block == "body") for s, block in around if isinstance(s, ast.If)]


def _autotune(
    node: ast.Call, name: str, module: PyModule, context: Context, around: list[tuple[ast.expr, bool]]
) -> Autotune:
    given = {k.arg: k.value for k in node.keywords if k.arg}
    configs = given.pop("configs", node.args[0] if node.args else None)
    key = given.pop("key", node.args[1] if len(node.args) > 1 else None)
    other = {arg: ast.unparse(value) for arg, value in given.items()}
    if configs is None:
        return Autotune(
            line=node.lineno,
            decorator=name,
            expression="",
            other=other,
            unresolved=f"no configs in {ast.unparse(node)}",
        )
    written = ast.unparse(configs)

    def run(oracle: Oracle) -> Any:
        context.checkpoint()
        interpreter = Interpreter(context.modules, oracle, context.arch)
        if any(interpreter.decide(test, ModuleScope(module)) is not holds for test, holds in around):
            raise DroppedError(name)
        listed = _config_list(interpreter.eval(configs, ModuleScope(module)))
        if not listed:
            oracle.assumed["Triton tries one configuration of its own where the list is empty"] = None
        return listed or [ConfigValue({}, dict(DEFAULT_OPTIONS), module.path, node.lineno)]

    try:
        outcomes, complete = worlds(run, _LISTS)
        unresolved = "" if complete else f"more combinations of assumptions than are followed: {written}"
    except UnresolvedError as error:
        outcomes, unresolved = [], f"{written} ({error})" if str(error) not in written else written
    if not outcomes and not unresolved:
        unresolved = f"no way through the source reaches {written}"
    merged = _merged(outcomes, module.path)
    assumed = tuple(dict.fromkeys(a for o in outcomes for a in o.assumed))
    return Autotune(
        line=node.lineno, decorator=name, expression=_short(written), basis="evaluated", assumptions=assumed,
        count=len(merged) if outcomes else None, configs=tuple(merged), variants=_variants(outcomes), key=_key(key, module, context),
        other=other, unresolved=unresolved,
    )  # fmt: skip


def searched(node: ast.expr, outcomes: list[Outcome], unresolved: str, tried: Mapping[str, str], here: str) -> Autotune:
    """What cuTile's search goes through: `tried` names the attribute of a configuration that each parameter is handed."""
    written = _short(ast.unparse(node))
    try:
        listed = [replace(one, value=[_renamed(c, tried) for c in _config_list(one.value)]) for one in outcomes]
    except UnresolvedError as error:
        listed, unresolved = [], f"{written} ({error})"
    merged = _merged(listed, here)
    return Autotune(
        line=node.lineno, decorator="exhaustive_search", expression=written, basis="evaluated", unresolved=unresolved,
        assumptions=tuple(dict.fromkeys(a for o in listed for a in o.assumed)), count=len(merged) if listed else None,
        configs=tuple(merged), variants=_variants(listed),
    )  # fmt: skip


def _renamed(config: ConfigValue, tried: Mapping[str, str]) -> ConfigValue:
    """A configuration by the names of the kernel's parameters; what else it says are its options."""
    values = {name: config.values[attribute] for name, attribute in tried.items() if attribute in config.values}
    options = {k: v for k, v in config.values.items() if k not in tried.values()}
    return replace(config, values=values, options=options)


def _config_list(value: Any) -> list[ConfigValue]:
    if not isinstance(value, list | tuple):
        raise UnresolvedError(render(value))
    for item in value:
        if not isinstance(item, ConfigValue):
            raise UnresolvedError(render(item))
    return list(value)


def _variants(outcomes: list[Outcome]) -> tuple[TuneVariant, ...]:
    if not any(outcome.trail for outcome in outcomes):
        return ()
    return tuple(TuneVariant(when=when_text([o.trail]), count=len(o.value)) for o in outcomes)


def _merged(outcomes: list[Outcome], here: str) -> list[TuneConfig]:
    """Every distinct configuration once, in order, with the condition under which it is listed."""
    found: dict[str, tuple[ConfigValue, list[Outcome]]] = {}
    for outcome in outcomes:
        for config in outcome.value:
            identity = repr((_scalars(config.values), _scalars(config.options)))
            entry = found.setdefault(identity, (config, []))
            if outcome not in entry[1]:
                entry[1].append(outcome)
    merged = []
    for config, holding in found.values():
        options = _scalars(config.options)
        merged.append(
            TuneConfig(
                line=config.line,
                file="" if config.file == here else config.file,
                basis="evaluated",
                values=_scalars(config.values),
                num_warps=options.pop("num_warps", None),
                num_stages=options.pop("num_stages", None),
                options=options,
                when="" if len(holding) == len(outcomes) else when_text([o.trail for o in holding]),
            )
        )
    return merged


def _scalars(values: dict[str, Any]) -> dict[str, Scalar]:
    return {str(k): v if isinstance(v, bool | int | float | str | None) else render(v) for k, v in values.items()}


def _key(node: ast.expr | None, module: PyModule, context: Context) -> tuple[str, ...]:
    if node is None:
        return ()
    try:
        value = Interpreter(context.modules, Oracle(), context.arch).eval(node, ModuleScope(module))
    except UnresolvedError:
        return (ast.unparse(node),)
    if isinstance(value, list | tuple) and is_concrete(value):
        return tuple(str(item) for item in value)
    return (ast.unparse(node),)


def _heuristics(node: ast.Call, module: PyModule, context: Context) -> list[BoundValue]:
    """`@triton.heuristics({...})`: the expression that each constexpr is computed by."""
    table = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "values"), None)
    if table is None:
        return []
    if isinstance(table, ast.Dict):
        return [
            BoundValue(line=v.lineno, value=f"{_text(k)} = {_rule(v)}", origin="heuristics")
            for k, v in zip(table.keys, table.values, strict=True)
            if k is not None
        ]
    try:
        value = Interpreter(context.modules, Oracle(), context.arch).eval(table, ModuleScope(module))
    except UnresolvedError:
        value = None
    if isinstance(value, dict):
        return [
            BoundValue(line=node.lineno, value=f"{k} = {render(v)}", origin="heuristics", basis="evaluated")
            for k, v in value.items()
        ]
    return [BoundValue(line=node.lineno, value=f"not resolved: {ast.unparse(table)}", origin="heuristics")]


def _rule(node: ast.expr) -> str:
    return ast.unparse(node.body if isinstance(node, ast.Lambda) else node)


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _short(text: str) -> str:
    return text if len(text) <= 300 else text[:297] + "..."


__all__ = ["Context", "Function", "decorators", "searched"]
