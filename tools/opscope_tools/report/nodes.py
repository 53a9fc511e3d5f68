"""Modules of the tree by the calls that run them: which module a call is of, in which numbered layers it stands, its weights.

A call's path has `*` for the numbers of a list, so modules of several kinds share it; what a call runs says which it is of.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from opscope_schemas.analysis import Kernel, ModelTreeResult, ModuleNode
from opscope_schemas.formula import evaluate
from opscope_schemas.units import things

from opscope_tools.report.facts import ImplementationFacts, role_of

__all__ = [
    "counted_again",
    "find",
    "layer_lists",
    "layers_of",
    "modules_at",
    "node_of",
    "numbers_said",
    "repeated",
    "stages",
    "tied_modules",
    "weights_of",
]

#: stretches of layer numbers that a label lists
_MOST = 16
#: layers at equal distances from which on they are told by the first two and the last
_STEPS = 5


@dataclass(frozen=True)
class _Place:
    """A module with its path, `*` for the numbers of a list, the numbers in it, and how many modules it stands for."""

    path: str
    node: ModuleNode
    numbers: tuple[str, ...] = ()
    count: int = 1

    def has(self, path: str) -> bool:
        """Whether the numbers that a path has are among its own."""
        asked = [part for part in path.split(".") if _unnumbered(part) == "*"]
        each = zip(asked, self.numbers, strict=False)
        return all(int(part) in _range(own) for part, own in each if part.isdigit() and _range(own))


def node_of(facts: ImplementationFacts, class_name: str, call: Kernel | None) -> ModuleNode | None:
    """The module that a call of a class runs."""
    inside = {(k.attribute, k.class_name) for k in (call.kernels or () if call else ()) if k.class_name}
    runs = int(evaluate(call.repeat, facts.point(facts.main))) if call else 0
    return find(facts.tree.tree, class_name, facts.path_of(call) if call else "", inside, runs)


def find(
    root: ModuleNode, class_name: str, path: str, inside: Collection[tuple[str, str]] = (), runs: int = 0
) -> ModuleNode | None:
    """The module of a class at the path of a call, rather one that holds what the call runs, and of several that do one that
    stands for as many modules as the call `runs`; where none stands there, one of the same name, else the first one of the class."""
    found = [place for place in _places(root) if place.node.class_name == class_name]
    there = [place for place in found if place.path == _unnumbered(path) and place.has(path)]
    alike = [place for place in found if place.node.name == path.rpartition(".")[2]]
    fitting = _that_run(there, inside)
    as_many = [place for place in fitting if place.count == runs]
    return next((place.node for place in (*as_many, *fitting, *there, *alike, *found)), None)


def modules_at(root: ModuleNode, path: str) -> list[tuple[ModuleNode, int]]:
    """The modules at a path, `*` for the numbers of a list, each with how many it stands for."""
    return [(place.node, place.count) for place in _places(root) if place.path == path]


def layers_of(facts: ImplementationFacts, call: Kernel) -> str:
    """`layers 1-45`: the numbers of the layers in which a call runs; empty where they are all layers of that list or not known."""
    path = facts.path_of(call)
    if path.split(".").count("*") != 1:
        return ""
    inside = {(k.attribute, k.class_name) for k in call.kernels or () if k.class_name}
    places = list(_places(facts.tree.tree))
    there = _that_run([p for p in places if p.path == path and p.node.class_name == call.class_name], inside)
    listed = sum(p.count for p in places if p.path == f"{path.partition('*')[0]}*")
    numbers = [number for place in there for number in _range(place.numbers[0])]
    runs = evaluate(call.repeat, facts.point(facts.main))
    return numbers_said(numbers) if len(numbers) == runs < listed else ""


def tied_modules(tree: ModelTreeResult) -> list[ModuleNode]:
    """The modules that hold one weight, which is counted with each of them; none where weights of one shape, each counted once,
    do not say which."""
    twice = tree.tree.parameters - tree.parameters
    found: dict[tuple[int, ...], list[ModuleNode]] = {}
    for node in (place.node for place in _places(tree.tree) if twice > 0 and place.count == 1):
        for shape in node.weights.values():
            if (size := math.prod(shape)) and twice % size == 0:
                found.setdefault(tuple(shape), []).append(node)
    tied = [nodes for shape, nodes in found.items() if math.prod(shape) * (len(nodes) - 1) == twice]
    return tied[0] if len(tied) == 1 else []


def with_weights(tree: ModelTreeResult) -> set[str]:
    """Classes of modules that hold weights, or others that do; activations and the like are none."""
    return {place.node.class_name for place in _places(tree.tree) if place.node.parameters}


def counted_again(tree: ModelTreeResult, node: ModuleNode) -> int:
    """Weights that the count of a module holds more than once."""
    tied, twice = tied_modules(tree), tree.tree.parameters - tree.parameters
    if node is tree.tree or not tied:
        return twice if node is tree.tree else 0
    inside = sum(any(place.node is one for place in _places(node)) for one in tied)
    return max(inside - 1, 0) * twice // (len(tied) - 1)


def weights_of(tree: ModelTreeResult, node: ModuleNode) -> int:
    """How many weights one such module has, a weight that several of its parts share once."""
    return node.parameters // node.repeat - counted_again(tree, node)


def repeated(node: ModuleNode) -> list[ModuleNode]:
    """Layers: modules that are alike in a row, and those of a list that holds a few kinds of them again and again."""
    return [found for nodes in layer_lists(node).values() for found in nodes]


def stages(node: ModuleNode) -> list[list[ModuleNode]]:
    """The layers of each of the numbered modules that hold layers, and are none themselves."""
    numbered = _numbered(node)
    if any(map(_is_stage, numbered)):
        return [[one for nodes in layer_lists(stage, staged=True).values() for one in nodes] for stage in numbered]
    return [found for child in node.children for found in stages(child)]


def _is_stage(node: ModuleNode) -> bool:
    """Whether a module that is not called a layer holds a list of such as are."""
    held = [] if node.repeat > 1 or _is_layer(node) else repeated(node)
    return bool(held) and all(map(_is_layer, held))


def _is_layer(node: ModuleNode) -> bool:
    """By its name."""
    return role_of(node.class_name, ()) == "layer"


def _numbered(node: ModuleNode) -> list[ModuleNode]:
    """What a list of modules holds."""
    return [child for child in node.children if child.name[:1].isdigit()]


def layer_lists(node: ModuleNode, path: str = "", *, staged: bool = False) -> dict[str, list[ModuleNode]]:
    """The layers by the path of the list that holds them, `*` for the numbers of a list that holds it; one that stands alone is a layer
    in a stage."""
    if node.repeat > 1:
        return {} if _bare(node) else {path.rpartition(".")[0]: [node]}
    numbered = _numbered(node)
    of_stages = any(map(_is_stage, numbered))
    if (len(numbered) > 1 and _stacked(numbered) and not of_stages) or (
        staged and [*map(_is_layer, numbered)] == [True]
    ):
        return {path: numbered}
    found: dict[str, list[ModuleNode]] = {}
    for child in node.children:
        name = "*" if child.name[:1].isdigit() else child.name
        below = layer_lists(
            child, f"{path}.{name}" if path else name, staged=staged or (of_stages and child in numbered)
        )
        for place, nodes in below.items():
            found.setdefault(place, []).extend(nodes)
    return found


def _stacked(numbered: Sequence[ModuleNode]) -> bool:
    """Whether numbered modules are layers: fewer classes than modules, none an operator of the library or an embedding, and each that
    stands once holds others; a projection, an activation and a projection are steps of one module."""
    often = Counter[str]()
    for child in numbered:
        often[child.class_name] += child.repeat
    return len(often) < often.total() and not any(
        _bare(child)
        or role_of(child.class_name, ()) == "embedding"
        or (often[child.class_name] == 1 and not child.children)
        for child in numbered
    )


def _bare(node: ModuleNode) -> bool:
    """Whether a module is one operator of the library, with or without a weight."""
    return node.class_name.startswith("torch.") and not node.children


def numbers_said(layers: Sequence[int]) -> str:
    """`layers 0-4, 6-10`, `layers 1, 3, …, 31`."""
    steps = {after - before for before, after in pairwise(layers)}
    if len(steps) == 1 and len(layers) >= _STEPS and steps != {1}:
        return f"layers {layers[0]}, {layers[1]}, …, {layers[-1]}"
    runs = [[at for _, at in run] for _, run in groupby(enumerate(layers), lambda pair: pair[1] - pair[0])]
    said = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    more = ", …" if len(said) > _MOST else ""
    return f"{things(len(layers), 'layer')} {', '.join(said[:_MOST])}{more}"


def _range(name: str) -> range:
    """The numbers that a folded name stands for; none where it only begins with one."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", name)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)


def _that_run(places: Sequence[_Place], inside: Collection[tuple[str, str]]) -> list[_Place]:
    """Those whose modules hold what a call runs, by path and class; rather those that hold no more that has weights."""

    def holds(node: ModuleNode) -> bool:
        held = {(place.path, place.node.class_name) for place in _places(node)}
        return all((_unnumbered(attribute), class_name) in held for attribute, class_name in inside)

    def no_more(node: ModuleNode) -> bool:
        return {child.name for child in node.children if child.parameters} <= {
            name.partition(".")[0] for name, _ in inside
        }

    found = [place for place in places if holds(place.node)]
    return [place for place in found if no_more(place.node)] or found


def _places(node: ModuleNode, at: _Place | None = None) -> Iterator[_Place]:
    at = at or _Place("", node)
    yield at
    for child in node.children:
        name = _unnumbered(child.name)
        numbers = (*at.numbers, child.name) if name == "*" else at.numbers
        path = ".".join(filter(None, (at.path, name)))
        yield from _places(child, _Place(path, child, numbers, at.count * child.repeat))


def _unnumbered(path: str) -> str:
    return re.sub(r"(?<![^.])\d[^.]*", "*", path)
