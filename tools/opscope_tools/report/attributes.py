"""What attributes of a module hold that decide what its forward does: flags that its class, or what decorates it, sets.

Read off source: `self.NAME = constant`, `self.NAME = config.SETTING`, and in a decorator `self.NAME = parameter`. An attribute
that is assigned more than once, or outside of these, is not known.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.scan import meant
from opscope_tools.report.sources import Span

__all__ = ["attributes_of"]

_PLAIN = bool | int | float | str | None


def attributes_of(facts: ImplementationFacts, class_name: str, settings: Mapping[str, object]) -> dict[str, object]:
    """By `self.NAME` what it holds; `settings` are those of the configuration."""
    found = facts.locate(class_name)
    if found is None:
        return {}
    path, span = found
    values = {f"config.{name}": value for name, value in settings.items()}
    held = list(_assigned(span.node, values))
    for decorator in span.node.decorator_list:
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if (found := meant(facts.reader, path, ast.unparse(name))) is not None:
            held += _assigned(found[1].node, _parameters(found[1], decorator))
    names = [name for name, _, _ in held]
    found_once = {f"self.{name}": value for name, known, value in held if known and names.count(name) == 1}
    return {**dict.fromkeys(f"self.{name}" for name in _unbuilt(facts, class_name, span.node)), **found_once}


def _unbuilt(facts: ImplementationFacts, class_name: str, node: ast.AST) -> Iterator[str]:
    """Attributes that are set to a module or to None, and to no module in any object of the class here."""
    nodes = [one for one in facts.nodes if one.class_name == class_name]
    values: dict[str, list[ast.expr]] = {}
    for each in ast.walk(node):
        match each:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=value):
                values.setdefault(name, []).append(value)
    for name, every in values.items():
        made = [one for one in every if not (isinstance(one, ast.Constant) and one.value is None)]
        built = any(child.name == name for one in nodes for child in one.children)
        if nodes and not built and made and len(made) < len(every) and all(map(_makes_module, made)):
            yield name


def _makes_module(value: ast.expr) -> bool:
    """Whether a class is called, as its name says."""
    return isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2][:1].isupper()


def _assigned(node: ast.AST, values: Mapping[str, object]) -> Iterator[tuple[str, bool, object]]:
    """Attributes of `self` that code assigns: the name, whether what is assigned is known, and what it is."""
    for each in ast.walk(node):
        targets = (
            each.targets
            if isinstance(each, ast.Assign)
            else [each.target]
            if isinstance(each, ast.AnnAssign | ast.AugAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
                text = ast.unparse(value).removeprefix("self.") if value is not None else ""
                if isinstance(value, ast.Constant) and isinstance(value.value, _PLAIN):
                    yield target.attr, True, value.value
                else:
                    yield target.attr, text in values, values.get(text)


def _parameters(function: Span, decorator: ast.expr) -> dict[str, object]:
    """Plain keyword parameters of a decorator, as the decorated class gives them or by their defaults."""
    if isinstance(function.node, ast.ClassDef):
        return {}
    arguments = function.node.args
    given = {k.arg: k.value for k in decorator.keywords} if isinstance(decorator, ast.Call) else {}
    defaults = dict(zip((a.arg for a in arguments.kwonlyargs), arguments.kw_defaults, strict=True))
    found = {name: given.get(name, default) for name, default in defaults.items()}
    return {name: value.value for name, value in found.items() if isinstance(value, ast.Constant)}
