"""What a name means at a place inside a function: the local binding that shadows the module's, if there is one.

Bindings are looked for where the name occurs, not by walking the function, so the cost follows the number of hits.
Python's rules: parameters, assignments, loops, imports and definitions anywhere in a function body make a name local
to all of it; a class body is seen only from itself; defaults, annotations, decorators and bases belong outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from opscope_tools.index.references.occurrences import Excerpt, occurrences
from opscope_tools.source.python.parse import Node, text_of

Kind = Literal["parameter", "assignment", "import", "definition", "loop", "as", "global"]
_COMPREHENSIONS = {"list_comprehension", "set_comprehension", "dictionary_comprehension", "generator_expression"}
_PATTERNS = {
    "pattern_list", "tuple_pattern", "list_pattern", "list_splat_pattern", "dictionary_splat_pattern", "expression_list",
    "tuple", "list", "parenthesized_expression",
}  # fmt: skip
_PARAMETERS = {"parameters", "lambda_parameters"}


@dataclass(frozen=True, eq=False)
class Binding:
    """One place that binds a name: `node` is the statement or parameter, `exact` false for a part of a pattern."""

    kind: Kind
    node: Node
    scope: Node | None
    exact: bool = True


def binding_of(name: Node) -> Binding | None:
    """How the identifier binds its name where it stands; None where it only uses it."""
    child, parent, exact = name, name.parent, True
    while parent is not None and parent.type in _PATTERNS:
        exact = exact and parent.type == "parenthesized_expression"
        child, parent = parent, parent.parent
    if parent is None:
        return None
    kind = _kind(child, parent, exact)
    if kind is None:
        return None
    return Binding(kind, parent, _home(child, parent, kind), exact)


def _kind(child: Node, parent: Node, exact: bool) -> Kind | None:
    kind = parent.type
    if kind in _PARAMETERS or (kind == "typed_parameter" and parent.named_children[0].id == child.id):
        return "parameter"
    if kind in {"default_parameter", "typed_default_parameter"}:
        return "parameter" if _is(parent, "name", child) else None
    if kind in {"assignment", "augmented_assignment"}:
        return "assignment" if _is(parent, "left", child) else None
    if kind in {"for_statement", "for_in_clause"}:
        return "loop" if _is(parent, "left", child) else None
    if kind == "as_pattern_target":
        return "as"
    if kind == "named_expression":
        return "assignment" if _is(parent, "name", child) else None
    if kind in {"function_definition", "class_definition"}:
        return "definition" if _is(parent, "name", child) else None
    if kind == "aliased_import":
        return "import" if _is(parent, "alias", child) else None
    if kind == "dotted_name" and parent.parent is not None:
        return _dotted_kind(child, parent, parent.parent)
    return "global" if kind in {"global_statement", "nonlocal_statement"} and exact else None


def _dotted_kind(child: Node, name: Node, statement: Node) -> Kind | None:
    if statement.type == "import_statement":
        return "import" if name.named_children[0].id == child.id else None
    if statement.type == "import_from_statement":
        return "import" if not _is(statement, "module_name", name) else None
    return "as" if statement.type == "case_pattern" and name.named_child_count == 1 else None


def _is(parent: Node, field: str, child: Node) -> bool:
    held = parent.child_by_field_name(field)
    return held is not None and held.id == child.id


def _home(child: Node, parent: Node, kind: Kind) -> Node | None:
    """The function, lambda, comprehension or class whose scope a binding belongs to; None for the module."""
    start = parent if kind == "definition" else child
    for scope in _scopes(start, parameters=kind == "parameter"):
        if scope.type not in _COMPREHENSIONS or parent.type == "for_in_clause":
            return scope
    return None


def _scopes(node: Node, *, parameters: bool = False) -> Iterator[Node]:
    """Scopes around a place, innermost first; `parameters`: the place is a parameter's name."""
    child, here = node, node.parent
    while here is not None:
        if here.type in {"function_definition", "lambda", "class_definition"}:
            inside = _is(here, "body", child) or (parameters and child.type in _PARAMETERS)
            parameters = parameters and not inside
            if inside:
                yield here
        elif here.type in _COMPREHENSIONS:
            yield here
        child, here = here, here.parent


def enclosing(node: Node) -> list[Node]:
    """The `def` and `class` nodes whose bodies, headers or decorators' targets hold the place, innermost first."""
    found, here = [], node.parent
    while here is not None:
        if here.type in {"function_definition", "class_definition"}:
            found.append(here)
        here = here.parent
    return found


class Scopes:
    """Local bindings in one excerpt."""

    def __init__(self, excerpt: Excerpt) -> None:
        self.excerpt = excerpt
        self._known: dict[tuple[int, str], list[Binding]] = {}

    def local(self, node: Node, name: str) -> list[Binding]:
        """The bindings of the innermost scope that binds `name` at the place; empty where the module's counts."""
        passed_function = False
        for scope in _scopes(node):
            if scope.type == "class_definition" and passed_function:
                continue
            passed_function = passed_function or scope.type != "class_definition"
            found = self._bindings(scope, name)
            if any(binding.kind == "global" for binding in found):
                return []
            if found:
                return found
        return []

    def _bindings(self, scope: Node, name: str) -> list[Binding]:
        key = scope.id, name
        known = self._known.get(key)
        if known is None:
            word, root = name.encode(), self.excerpt.root
            known = self._known[key] = []
            for at in occurrences(self.excerpt.text, word, scope.start_byte, scope.end_byte):
                node = root.named_descendant_for_byte_range(at, at + len(word))
                if node is None or node.type != "identifier":
                    continue
                binding = binding_of(node)
                if binding is not None and binding.scope is not None and binding.scope.id == scope.id:
                    known.append(binding)
        return known


def path_of(node: Node) -> str:
    """Names of the enclosing definitions as Python qualifies them: `Class.method`, `outer.<locals>.inner`."""
    names: list[str] = []
    previous = ""
    for definition in reversed(enclosing(node)):
        if previous == "function_definition":
            names.append("<locals>")
        names.append(text_of(definition.child_by_field_name("name")))
        previous = definition.type
    return ".".join(names)
