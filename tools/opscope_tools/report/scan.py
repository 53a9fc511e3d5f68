"""What a report quotes straight from source: parallel plans, dispatch lines, capability flags, the cache.

Each scan returns hits with their line, so that an empty answer can say what was searched for and where.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from opscope_tools.report.sources import SourceReader

__all__ = ["Hit", "Plan", "capabilities", "decorators", "matching_lines", "plans"]


@dataclass(frozen=True)
class Hit:
    """A line of source that says something: `name` is what it names, `text` what it says."""

    path: str
    line: int
    name: str
    text: str

    @property
    def pointer(self) -> str:
        """`path:line` in back-ticks."""
        return f"`{self.path}:{self.line}`"


@dataclass(frozen=True)
class Plan:
    """A dictionary that declares how to split a model: the class that holds it, its own line, its entries.

    An entry's `name` is the pattern of modules, its `text` the style as source writes it.
    """

    declared: Hit
    holder: str
    entries: tuple[Hit, ...]

    @property
    def kind(self) -> str:
        """What is split: `tp`, `pp`, `ep`, `sp`, `fsdp`."""
        return self.declared.name.removesuffix("_plan").rpartition("_")[2]


def plans(reader: SourceReader, path: str, class_name: str) -> list[Plan]:
    """Attributes of a class that declare how to split a model: `base_model_*_plan` and `_*_plan`."""
    span = reader.definition(path, class_name)
    found = []
    for node in span.node.body if span else []:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [target.id for target in targets if isinstance(target, ast.Name) and target.id.endswith("_plan")]
        if names and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            entries = (
                [
                    Hit(path, key.lineno, _text(key), _text(value))
                    for key, value in zip(node.value.keys, node.value.values, strict=True)
                    if key is not None
                ]
                if isinstance(node.value, ast.Dict)
                else []
            )
            found.append(Plan(Hit(path, node.lineno, names[0], ""), class_name, tuple(entries)))
    return found


def _text(node: ast.expr) -> str:
    """A string's own words; other expressions as source writes them."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def decorators(reader: SourceReader, path: str, scopes: Iterable[str]) -> list[Hit]:
    """Decorators of the definitions `scopes` and of the functions inside them that swap or compile what runs."""
    wanted = set(scopes)
    pattern = re.compile(r"kernel|compile|jit|custom_op|cuda|graph", re.IGNORECASE)
    return [
        Hit(path, decorator.lineno, span.name, ast.unparse(decorator))
        for span in reader.spans(path)
        if span.name.split(".")[0] in wanted
        for decorator in span.node.decorator_list
        if pattern.search(ast.unparse(decorator))
    ]


def matching_lines(reader: SourceReader, path: str, pattern: str, scopes: Iterable[str] | None = None) -> list[Hit]:
    """Lines of `path` that match the regular expression, inside `scopes` where given; the first group is the name."""
    compiled, wanted = re.compile(pattern), None if scopes is None else set(scopes)
    hits = []
    for number, text in enumerate(reader.lines(path) or [], 1):
        found = compiled.search(text)
        if not found or text.lstrip().startswith(("#", "import ", "from ")):
            continue
        around = reader.enclosing(path, number)
        if wanted is None or (around and around[0].name in wanted):
            hits.append(Hit(path, number, found.group(1) if found.groups() else found.group(), text.strip()))
    return hits


def capabilities(reader: SourceReader, path: str) -> list[Hit]:
    """Flags such as `_supports_sdpa = True` that classes of `path` set."""
    return matching_lines(reader, path, r"^\s+(_supports_\w+|_can_compile_fullgraph)\s*=\s*True")
