"""Which function leads to which over the whole repository, as far as names of calls tell, and how far each lies from an effect.

A call is followed by its import, by the class of `self`, by the attribute's name where that is the name of a class (`self.scheduler`
runs a `Scheduler`), by the name of the method where few bear it, and where a remote call gives a method's name (`exposed_x`
for `x`). What the name leaves open is not followed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush

from opscope_tools.survey.facts import ClassFact, FileFacts, FunctionFact, Work
from opscope_tools.survey.holdings import STAND_INS, Definition, Holdings, at

__all__ = ["CallGraph", "Node"]

#: definitions that a method's name may lead to where nothing else tells which
_FEW = 3
#: of those that an attribute's name leaves
_NAMED = 12
#: calls after which nothing is held to lead anywhere
_FAR = 8
_NOTHING = Work()


@dataclass(frozen=True, eq=False)
class Node:
    """A function, or a method of `owner`."""

    file: FileFacts
    fact: FunctionFact
    owner: Definition | None

    @property
    def at(self) -> str:
        """Where it stands."""
        return at(self.file.path, self.fact.line)

    @property
    def work(self) -> Work:
        """What it does."""
        return self.fact.work or _NOTHING

    @property
    def definition(self) -> Definition:
        """Its class, or itself where it is a function."""
        return self.owner or Definition(self.file, self.fact)


class CallGraph:
    """The functions of the source and what leads to what."""

    def __init__(self, held: Holdings, checkpoint: Callable[[], None]) -> None:
        self.held = held
        self.nodes = [*self._read()]
        self._methods: dict[tuple[str, str], Node] = {(n.owner.at, n.fact.name): n for n in self.nodes if n.owner}
        self._functions = {(n.file.path, n.fact.path): n for n in self.nodes if n.owner is None}
        self._named: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            if node.owner is not None and not node.fact.abstract:
                self._named[node.fact.name].append(node)
        for name, nodes in self._named.items():
            real = [node for node in nodes if node.owner is not None and not STAND_INS.fullmatch(node.owner.name)]
            self._named[name] = real or nodes
        #: what the dotted names of the repository's modules begin with
        self._tops = {name.partition(".")[0] for name in held.names.values()} | held.own
        #: (class, attribute) -> the functions that its methods bind the attribute to
        self._bound: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        #: (class or file, queue) -> the functions that take from the queue
        self._getters: defaultdict[str, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for attribute, names in node.work.binds.items() if node.owner is not None else ():
                self._bound[node.owner.at if node.owner else "", attribute] |= names
            for called in node.work.calls:
                if called.startswith("get "):
                    self._getters[called[4:]].append(node)
        self._ever_bound = {attribute for _, attribute in self._bound}
        #: the names of the classes that have a method of a name, in small letters and one text: most attributes are in none
        self._spelt: dict[str, str] = {}
        self._followed: dict[tuple[str, str, str], list[Node]] = {}
        self._held: dict[tuple[str, str], list[Node]] = {}
        self._small = {n.owner.at: n.owner.name.lower() for n in self.nodes if n.owner is not None}
        #: node -> (what it leads to, whether inside a loop, how much the step counts)
        self.leads: dict[Node, list[tuple[Node, bool, int]]] = {}
        for node in self.nodes:
            checkpoint()
            self.leads[node] = [*self._edges(node)]

    def _read(self) -> Iterator[Node]:
        for one in self.held.classes:
            if isinstance(one.fact, ClassFact) and not self.held.demoted(one.file.path):
                for method in one.fact.methods:
                    yield Node(one.file, method, one)
        for one in self.held.functions:
            if isinstance(one.fact, FunctionFact) and not self.held.demoted(one.file.path):
                yield Node(one.file, one.fact, None)

    def at(self, path: str, name: str) -> Node | None:
        """The function or method `name` (`Class.method`) of a file; of one inside another that which holds it."""
        return self._by_path.get((path, name)) or self._by_path.get((path, name.rpartition(".")[0]))

    @cached_property
    def _by_path(self) -> dict[tuple[str, str], Node]:
        return {(node.file.path, node.fact.path): node for node in self.nodes}

    def called(self, node: Node, owner: Definition | None, dotted: str) -> list[Node]:
        """What a call in a function leads to; `owner` is the class whose object runs it."""
        return self._targets(Node(node.file, node.fact, owner or node.owner), dotted)

    @cached_property
    def callers(self) -> dict[Node, list[tuple[Node, int]]]:
        """Node -> what leads to it, and how much the step counts."""
        found: defaultdict[Node, list[tuple[Node, int]]] = defaultdict(list)
        for node, leads in self.leads.items():
            for target, _, weight in leads:
                found[target].append((node, weight))
        return found

    def from_effects(self, *effects: str, far: int = _FAR) -> dict[Node, int]:
        """How far each function lies above the nearest that shows one of the effects; those that are too far are left out."""
        return self.above([node for node in self.nodes if any(effect in node.work.effects for effect in effects)], far)

    def above(self, begins: Iterable[Node], far: int = _FAR) -> dict[Node, int]:
        """How far each function lies above the nearest of `begins`."""
        return _spread(begins, lambda node: self.callers.get(node, ()), far)

    def below(self, begins: Iterable[Node]) -> dict[Node, int]:
        """How far each function lies below the nearest of `begins`."""
        return _spread(begins, lambda node: ((target, weight) for target, _, weight in self.leads[node]))

    def in_loop(self, node: Node, effects: tuple[str, ...], far: dict[Node, int]) -> int | None:
        """How far an effect lies from the loops of a function; None where they do not lead to it."""
        if node.work.looped.intersection(effects):
            return 0
        inside = [far[target] + weight for target, looped, weight in self.leads[node] if looped and target in far]
        return min(inside, default=None)

    # what a call leads to

    def _edges(self, node: Node) -> Iterator[tuple[Node, bool, int]]:
        found: dict[Node, tuple[bool, int]] = {}
        for called in sorted(node.work.calls):
            targets = self._targets(node, called)
            looped = called in node.work.looped_calls
            for target in targets:
                if target is not node:
                    before = found.get(target, (False, 9))
                    found[target] = (looped or before[0], min(before[1], 1 if len(targets) == 1 else 2))
        for target, (looped, weight) in found.items():
            yield target, looped, weight

    def _takers(self, node: Node, queue: str) -> list[Node]:
        """What takes from a queue that a function puts into: in its class or file, else where few do."""
        getters = self._getters.get(queue, [])
        near = [one for one in getters if one.file is node.file]
        return near or (getters if len(getters) <= _FEW else [])

    def _targets(self, node: Node, called: str) -> list[Node]:
        if called.startswith("put "):
            return self._takers(node, called[4:])
        owner = node.owner.at if node.owner is not None else ""
        key = (owner or node.file.path, called, "" if called.startswith(("self.", "cls.")) else node.file.path)
        if key not in self._followed:
            self._followed[key] = self._follow(node, called)
        return self._followed[key]

    def _follow(self, node: Node, called: str) -> list[Node]:
        head, _, rest = called.partition(".")
        if head in {"self", "cls"} and node.owner is not None and rest:
            return self._of_self(node.owner, rest)
        holder, _, name = called.rpartition(".")
        known = head in self._tops
        found = self.held.definition(called, node.file) if known or not holder else None
        if found is not None:
            return self._run(found)
        if not holder:
            return []
        within = self.held.definition(holder, node.file) if known or "." not in holder else None
        if within is not None and isinstance(within.fact, ClassFact):
            return self._method(within, name)
        return self._of_attribute(name, holder.rpartition(".")[2])

    def _of_self(self, owner: Definition, rest: str) -> list[Node]:
        holder, _, name = rest.rpartition(".")
        if holder:
            return self._of_attribute(name, holder.rpartition(".")[2])
        if found := self._method(owner, name):
            return found
        lineage = self.held.lineage(owner) if name in self._ever_bound else []
        bound = {one for held in lineage for one in self._bound.get((held.at, name), ())}
        methods = [
            node for one in sorted(bound) if one.startswith("self.") for node in self._self_bound(owner, one[5:])
        ]
        return methods or self._of_attribute("", name)

    def _self_bound(self, owner: Definition, rest: str) -> list[Node]:
        holder, _, name = rest.rpartition(".")
        if not holder:
            return self._method(owner, name)
        return [node for node in self._of_attribute(name, holder.rpartition(".")[2]) if node.owner is not owner]

    def _run(self, found: Definition) -> list[Node]:
        """What calling a definition runs: the function; of a class nothing that goes on."""
        if isinstance(found.fact, ClassFact):
            return []
        node = self._functions.get((found.file.path, found.fact.path))
        return [node] if node is not None else []

    def _method(self, owner: Definition, name: str) -> list[Node]:
        """The method that objects of a class run, and those that classes below it run instead."""
        found = next((n for one in self.held.lineage(owner) if (n := self._methods.get((one.at, name)))), None)
        below = [n for one in self.held.descendants(owner) if (n := self._methods.get((one.at, name)))]
        own = [found] if found is not None and not found.fact.abstract else []
        return own + [node for node in below if not node.fact.abstract][:_NAMED]

    def _of_attribute(self, name: str, attribute: str) -> list[Node]:
        """The methods called `name` of the classes that an attribute may hold; without a name, the object's own call."""
        if (name, attribute) not in self._held:
            self._held[name, attribute] = self._by_attribute(name, attribute)
        return self._held[name, attribute]

    def _by_attribute(self, name: str, attribute: str) -> list[Node]:
        if not name:
            held = [node for call in ("forward", "__call__") for node in self._alike(attribute, call)]
            return held if 0 < len(held) <= _FEW else self._remote(attribute)
        named, few = self._named.get(name, []), _FEW
        if len(named) > 1 and (alike := self._alike(attribute, name)):
            named, few = alike, 2 * _FEW
        if not named:
            return self._remote(name)
        return named if len(named) <= few or (len(named) <= _NAMED and self._kin(named)) else []

    def _alike(self, attribute: str, name: str) -> list[Node]:
        """The methods called `name` of the classes that an attribute is called as: `self.model_runner`, `TPModelRunner`."""
        word = re.sub(r"[_\d]|s$|(?<=.)_?(client|list)$", "", attribute.lower())
        if len(word) <= 2:
            return []
        nodes = self._named.get(name, [])
        if name not in self._spelt:
            self._spelt[name] = " ".join(self._small[node.owner.at] for node in nodes if node.owner is not None)
        if word not in self._spelt[name]:
            return []
        return [node for node in nodes if node.owner is not None and word in self._small[node.owner.at]]

    def _remote(self, name: str) -> list[Node]:
        """What a remote call runs, by the names that such methods bear."""
        bare = name.lstrip("_")
        for one in (f"exposed_{bare}", bare):
            if one != name and (found := self._named.get(one, [])) and len(found) <= _FEW:
                return found
        return []

    def _kin(self, nodes: list[Node]) -> bool:
        """Whether the classes of all the methods share a base of the source."""
        families = [{one.at for one in self.held.lineage(node.owner)} for node in nodes if node.owner is not None]
        return bool(families) and bool(set.intersection(*families))


def _spread(
    begins: Iterable[Node], near: Callable[[Node], Iterable[tuple[Node, int]]], far: int = _FAR
) -> dict[Node, int]:
    """The least number of steps from `begins` to each node, as far as `far`."""
    found: dict[Node, int] = {}
    waiting = [(0, number, node) for number, node in enumerate(begins)]
    count = len(waiting)
    while waiting:
        steps, _, node = heappop(waiting)
        if node in found:
            continue
        found[node] = steps
        for other, weight in near(node):
            if other not in found and steps + weight <= far:
                count += 1
                heappush(waiting, (steps + weight, count, other))
    return found
