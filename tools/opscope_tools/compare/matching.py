"""Which part of one pass is which part of another: modules by their place and role, operators by their order in them.

Modules are matched from the root down: by attribute, else by class without the model's own prefix (LlamaMLP and Qwen3MLP are
both MLP), else by being what repeats. What one side wraps once more is looked into. The rest is in one side alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import groupby

from opscope_tools.trace.document import CallTree
from opscope_tools.trace.protocol import CallRecord

_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True)
class Part:
    """All runs of an operator on a line of a module: its figure, in whatever unit is compared."""

    path: str
    name: str
    file: str
    line: int
    figure: int | float
    #: what it is where its name is another: products with and without a bias
    role: str = ""


@dataclass
class Node:
    """The calls of one module, or of several that are folded or called again."""

    path: str
    tail: str
    class_name: str
    stem: str
    repeated: bool
    #: file and line of its forward
    forward: tuple[str, int]
    children: list[Node] = field(default_factory=list)

    @property
    def own(self) -> bool:
        """Whether it is a class of the model's, not one of torch's."""
        return not self.class_name.startswith("torch.")


def node_of(tree: CallTree, call: CallRecord) -> Node:
    """The modules that a call runs, as a tree of their paths."""
    prefixes = _prefixes(tree.trace.calls)
    return _node(tree, [call], "", prefixes)


def _node(tree: CallTree, calls: Sequence[CallRecord], above: str, prefixes: Mapping[str, str]) -> Node:
    first = calls[0]
    path = tree.pattern(first)
    tail = path.removeprefix(f"{above}.") if above else path
    module, _, name = first.class_name.rpartition(".")
    found = Node(
        path, tail, first.class_name, name.removeprefix(prefixes.get(module, "")), first.repeat != "1",
        (first.forward_file or first.file, first.forward_line or first.line),
    )  # fmt: skip
    groups: dict[tuple[str, str], list[CallRecord]] = {}
    for call in calls:
        for child in tree.children(call):
            if isinstance(child, CallRecord):
                groups.setdefault((tree.pattern(child), child.class_name), []).append(child)
    found.children += [_node(tree, group, path, prefixes) for group in groups.values()]
    return found


def _prefixes(calls: Iterable[CallRecord]) -> dict[str, str]:
    """By Python module: the words that all its classes in the pass begin with."""
    names: dict[str, set[str]] = {}
    for call in calls:
        module, _, name = call.class_name.rpartition(".")
        names.setdefault(module, set()).add(name)
    return {module: common_prefix(found) for module, found in names.items() if not module.startswith("torch.")}


def common_prefix(names: Collection[str]) -> str:
    """What all class names begin with, up to a capital letter in each.

    >>> common_prefix(["LlamaMLP", "LlamaModel"]), common_prefix(["GPT2Model"]), common_prefix(["A", "B"])
    ('Llama', 'GPT2', '')
    """
    shared = min(names)
    while not all(name.startswith(shared) and (not shared or name[len(shared) :][:1].isupper()) for name in names):
        shared = shared[:-1]
    return shared


#: what may tell that two modules are the same, surest first; None: nothing
_SIGNS: tuple[Callable[[Node], Hashable], ...] = (
    lambda n: (n.tail, n.stem),
    lambda n: n.tail,
    lambda n: (_starred(n.tail), n.stem),
    lambda n: (n.tail.rpartition(".")[2], n.stem),
    lambda n: n.stem if n.own else None,
    lambda n: _starred(n.tail) if n.own else None,
    lambda n: n.repeated or None,
)


def _starred(tail: str) -> str:
    return _NUMBER.sub("*", tail)


def matched_nodes(left: Node, right: Node) -> list[tuple[Node, Node]]:
    """Modules of two passes that are the same, the two given first."""
    found = [(left, right)]
    lefts, rights = list(left.children), list(right.children)
    for sign in _SIGNS:
        found += _paired(lefts, rights, sign)
    # one side wraps what the other holds itself
    for wrappers, others, turned in ((list(rights), lefts, False), (list(lefts), rights, True)):
        for wrapper in wrappers:
            inner = list(wrapper.children) if wrapper.own else []
            for sign in _SIGNS[:4]:
                pairs = _paired(inner, others, sign) if turned else _paired(others, inner, sign)
                found += pairs
    # layers of a further kind are layers too
    for first, second in found[1:]:
        for own, rest, turned in ((second, rights, False), (first, lefts, True)):
            for one in [n for n in rest if n.own and (_starred(n.tail), n.stem) == (_starred(own.tail), own.stem)]:
                rest.remove(one)
                found = [*found, *(matched_nodes(one, second) if turned else matched_nodes(first, one))]
    return found


def _paired(lefts: list[Node], rights: list[Node], sign: Callable[[Node], Hashable]) -> list[tuple[Node, Node]]:
    """Pairs of one sign, those that hold the most of the same first, then in their order; they are taken out of both lists."""
    alike = [
        (-len({n.tail for n in one.children} & {n.tail for n in other.children}), i, j)
        for i, one in enumerate(lefts)
        for j, other in enumerate(rights)
        if sign(one) is not None and sign(one) == sign(other)
    ]
    chosen: dict[int, int] = {}
    for _, i, j in sorted(alike):
        if i not in chosen and j not in chosen.values():
            chosen[i] = j
    pairs = [(lefts[i], rights[j]) for i, j in sorted(chosen.items())]
    lefts[:] = [node for i, node in enumerate(lefts) if i not in chosen]
    rights[:] = [node for j, node in enumerate(rights) if j not in chosen.values()]
    return [found for pair in pairs for found in matched_nodes(*pair)]


def summed(parts: Iterable[Part]) -> list[Part]:
    """Those of one name and line of a module as one, in their order."""
    found: dict[tuple[str, str, str, int], Part] = {}
    for part in parts:
        key = (part.path, part.name, part.file, part.line)
        so_far = found.get(key)
        found[key] = part if so_far is None else replace(so_far, figure=so_far.figure + part.figure)
    return list(found.values())


Pair = tuple[Part | None, Part | None]


def places(nodes: Sequence[tuple[Node, Node]]) -> tuple[dict[str, str], dict[str, str]]:
    """Of paths in the left pass and in the right one that both have: the path in the left pass that stands for them."""
    lefts: dict[str, str] = {}
    rights: dict[str, str] = {}
    for left, right in nodes:
        rights.setdefault(right.path, lefts.get(left.path, left.path))
        lefts.setdefault(left.path, rights[right.path])
    return lefts, rights


def matched_parts(
    left: Iterable[Part], right: Iterable[Part], same: tuple[dict[str, str], dict[str, str]]
) -> list[Pair]:
    """Every part of both passes once, beside the one that it is the same as; `same`: the `places` of both."""
    lefts = _by_path(replace(part, path=same[0].get(part.path, part.path)) for part in left)
    right = list(right)
    known = _by_path(replace(part, path=same[1][part.path]) for part in right if part.path in same[1])
    found: list[Pair] = []
    for path in {**lefts, **known}:
        found += _aligned(lefts.get(path, []), known.get(path, []))
    return [*found, *((None, part) for part in summed(part for part in right if part.path not in same[1]))]


def _by_path(parts: Iterable[Part]) -> dict[str, list[Part]]:
    held: dict[str, list[Part]] = {}
    for part in summed(parts):
        held.setdefault(part.path, []).append(part)
    return held


def _aligned(lefts: Sequence[Part], rights: Sequence[Part]) -> list[Pair]:
    """Operators of one module: in order as far as both agree, then by name, then by role where both have as many."""
    a, b = dict(enumerate(lefts)), dict(enumerate(rights))
    found: list[Pair] = []

    def take(i: int, j: int) -> None:
        found.append((a.pop(i), b.pop(j)))

    matcher = SequenceMatcher(None, [p.name for p in lefts], [p.name for p in rights], autojunk=False)
    for i, j, size in matcher.get_matching_blocks():
        for step in range(size):
            take(i + step, j + step)
    for i, part in list(a.items()):
        for j in [j for j, other in b.items() if other.name == part.name][:1]:
            take(i, j)
    for role, group in groupby(sorted(a, key=lambda i: a[i].role), key=lambda i: a[i].role):
        ours, theirs = list(group), [j for j, other in b.items() if other.role == role]
        if role and len(ours) == len(theirs):
            for i, j in zip(ours, theirs, strict=True):
                take(i, j)
    return [*found, *((part, None) for part in a.values()), *((None, part) for part in b.values())]


__all__ = ["Node", "Pair", "Part", "common_prefix", "matched_nodes", "matched_parts", "node_of", "places"]
