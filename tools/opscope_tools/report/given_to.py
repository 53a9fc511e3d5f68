"""For how many modules of a class a setting is what they are built with: those of others are built with something else.

Read off constructors: `self.NAME = Class(..., keyword=config.SETTING)`, in a list too, where the setting is named after the keyword.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opscope_schemas.analysis import ModuleNode
from opscope_schemas.extracted_config import Reads

from opscope_tools.report import scan
from opscope_tools.report.facts import ImplementationFacts, short
from opscope_tools.report.quotes import joined

__all__ = ["given_to"]

_CONTAINERS = "torch.nn.modules.container."


def given_to(facts: ImplementationFacts, setting: str, reads: Reads) -> str:
    """`, for 1 of 23 modules of ...`; empty where all of them are built with it, or where it is read for something else too."""
    made: set[tuple[str, str, str]] = set()
    for place in reads.first:
        around = facts.reader.enclosing(place.file, place.line)
        found = _made(around[0].node, setting, place.line) if around else None
        if found is None:
            return ""
        made.add((short(around[0].name), *found))
    names = {name for _, _, name in made}
    if len(reads.first) != reads.count or len(names) != 1:
        return ""
    counts = {True: 0, False: 0}
    kinds: dict[str, None] = {}
    slots = {(maker, attribute) for maker, attribute, _ in made}
    for node, slot, count in _modules(facts.tree.tree, ("", ""), 1):
        if names & _kin(facts, node.class_name):
            counts[slot in slots] += count
            kinds[f"`{short(node.class_name)}`"] = None
    if not all(counts.values()):
        return ""
    return f", for {counts[True]} of {sum(counts.values())} modules of {joined(sorted(kinds))}"


def _made(node: ast.AST, setting: str, line: int) -> tuple[str, str] | None:
    """The attribute for which a class makes a module with the setting that a line reads, and the class of that module."""
    for each in ast.walk(node):
        targets = (
            [one.attr for one in each.targets if isinstance(one, ast.Attribute)] if isinstance(each, ast.Assign) else []
        )
        calls = [call for call in ast.walk(each) if isinstance(call, ast.Call)] if targets else []
        for call in calls:
            for keyword in call.keywords:
                read = keyword.value.lineno <= line <= (keyword.value.end_lineno or line)
                named = keyword.arg is not None and setting.endswith(keyword.arg)
                if read and named and ast.unparse(keyword.value).endswith(f"config.{setting}"):
                    return targets[0], ast.unparse(call.func).rpartition(".")[2]
    return None


def _modules(node: ModuleNode, slot: tuple[str, str], count: int) -> Iterator[tuple[ModuleNode, tuple[str, str], int]]:
    """Every module with the class and the attribute that hold it, or the list that it is in, and how many it stands for."""
    yield node, slot, count
    for child in node.children:
        within = slot if node.class_name.startswith(_CONTAINERS) else (short(node.class_name), child.name)
        yield from _modules(child, within, count * child.repeat)


def _kin(facts: ImplementationFacts, class_name: str) -> set[str]:
    """The names of a class and of those that it derives from."""
    found = scan.lineage(facts.reader, facts.locate(class_name))
    nodes = [span.node for _, span in found if isinstance(span.node, ast.ClassDef)]
    return {short(class_name), *(ast.unparse(base).rpartition(".")[2] for node in nodes for base in node.bases)}
