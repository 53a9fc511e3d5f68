"""Places made for extension (registries, decorators that register, abstract bases, plugin groups), and what to beware of."""

from __future__ import annotations

from collections import Counter, defaultdict

from opscope_schemas.repo_map import Counted, Place, RegistryFact

from opscope_tools.survey.facts import ClassFact, FileFacts, Hit
from opscope_tools.survey.holdings import Definition, Holdings, at

_PITFALLS = {
    "warnings": ("pitfall.warning", "warnings.warn, logger.warning"),
    "deprecations": ("pitfall.deprecation", "warnings of DeprecationWarning or FutureWarning, or that say deprecated"),
    "not implemented": ("pitfall.not implemented", "raise NotImplementedError"),
    "TODO, FIXME, XXX": ("pitfall.todo", "comments with TODO, FIXME or XXX"),
}
_KEPT = 12


def extensions(held: Holdings) -> list[RegistryFact]:
    """Registries, decorators, abstract bases and plugin groups, each kind with the fullest first."""
    found = [*_registries(held), *_loaded(held), *_decorators(held), *_abstract(held), *_plugins(held)]
    return sorted(found, key=lambda fact: -fact.count)


def _registries(held: Holdings) -> list[RegistryFact]:
    """Tables that definitions are put into, with entries spelt out in them or set by other lines."""
    declared = [(facts, hit) for facts, hit in held.topic("ext.registry")]
    by_name: defaultdict[str, list[tuple[FileFacts, Hit]]] = defaultdict(list)
    for facts, hit in held.topic("ext.entry"):
        by_name[hit.name.rpartition(".")[2]].append((facts, hit))
    owners = Counter(hit.name for _, hit in declared)
    found = []
    for facts, registry in declared:
        # an entry belongs to the table of its own file, or to the only table of that name
        entries = [(f, e) for f, e in by_name[registry.name] if f is facts or owners[registry.name] == 1]
        places = tuple(Place(name=registry.name, at=at(f.path, e.line), text=e.text) for f, e in entries[:5])
        listed = int(registry.text.removeprefix("dict of ")) if registry.text.startswith("dict of ") else 0
        spelt = sum(f is facts and registry.line <= e.line for f, e in entries)
        count = max(listed, spelt) + len([1 for f, _ in entries if f is not facts])
        if count >= 2:
            found.append(
                RegistryFact(
                    kind="registry", name=registry.name, at=at(facts.path, registry.line), count=count, siblings=places
                )
            )
    return found


def _loaded(held: Holdings) -> list[RegistryFact]:
    """Registries that go through modules and ask each for a name: what the modules bind to it is registered."""
    bound: defaultdict[str, list[tuple[FileFacts, Hit]]] = defaultdict(list)
    for facts, hit in held.topic("ext.bound"):
        if not hit.within:
            bound[hit.name].append((facts, hit))
    found: dict[str, RegistryFact] = {}
    for facts, hit in held.topic("ext.asked"):
        entries = [(f, e) for f, e in bound[hit.name] if f is not facts]
        if len(entries) >= 2 and hit.name not in found:
            tables = facts.hits("ext.registry")
            name, line = (tables[0].name, tables[0].line) if tables else (hit.name, hit.line)
            places = tuple(
                Place(name=e.text.partition(",")[0], at=at(f.path, e.line), text=e.name) for f, e in entries[:5]
            )
            found[hit.name] = RegistryFact(
                kind="registry", name=name, at=at(facts.path, line), count=len(entries), siblings=places
            )
    return list(found.values())


def _decorators(held: Holdings) -> list[RegistryFact]:
    uses: defaultdict[str, list[tuple[FileFacts, Hit]]] = defaultdict(list)
    homes: dict[str, str] = {}
    for facts, hit in held.topic("ext.decorator"):
        definition = held.definition(hit.name, facts)
        key = definition.at if definition else hit.name
        homes.setdefault(key, hit.name)
        uses[key].append((facts, hit))
    found = []
    for key, lines in uses.items():
        if len(lines) >= 2:
            facts, first = lines[0]
            where = key if ":" in key else at(facts.path, first.line)
            places = tuple(Place(name=h.text, at=at(f.path, h.line), text=h.within) for f, h in lines[:5])
            name = ".".join(homes[key].split(".")[-2:])
            found.append(
                RegistryFact(kind="register decorator", name=name, at=where, count=len(lines), siblings=places)
            )
    return found


def _abstract(held: Holdings) -> list[RegistryFact]:
    """Classes that ask to be derived from (ABC, abstract methods), with the classes below them."""
    found = []
    for one in held.classes:
        if held.demoted(one.file.path) or not isinstance(one.fact, ClassFact) or not _asks(one.fact):
            continue
        below = [d for d in held.descendants(one) if not held.demoted(d.file.path)]
        if below:
            places = tuple(Place(name=d.name, at=d.at) for d in _known_first(held, below)[:5])
            found.append(
                RegistryFact(kind="abstract base", name=one.fact.path, at=one.at, count=len(below), siblings=places)
            )
    return found


def _known_first(held: Holdings, below: list[Definition]) -> list[Definition]:
    return sorted(below, key=lambda one: (-held.importers[one.at], one.at))


def _asks(fact: ClassFact) -> bool:
    return (
        any(base.rpartition(".")[2] == "ABC" for base in fact.bases)
        or fact.metaclass.endswith("ABCMeta")
        or any(d.name.endswith("abstractmethod") for m in fact.methods for d in m.decorators)
    )


def _plugins(held: Holdings) -> list[RegistryFact]:
    return [
        RegistryFact(kind="plugin group", name=hit.name, at=at(facts.path, hit.line), count=1)
        for facts, hit in held.topic("ext.plugin")
    ]


def pitfalls(held: Holdings, near: set[str]) -> list[Counted]:
    """Warnings, deprecations, what is not implemented and what is noted to do; files of key components (`near`) first."""
    found = []
    for name, (topic, searched) in _PITFALLS.items():
        lines = [(facts, hit) for facts, hit in held.topic(topic)]
        lines.sort(key=lambda e: (e[0].path not in near, not e[1].text, not e[1].condition, e[0].path, e[1].line))
        places = tuple(
            Place(
                name=hit.within or hit.name, at=at(facts.path, hit.line), text=hit.text[:120], condition=hit.condition
            )
            for facts, hit in lines[:_KEPT]
        )
        count = held.count(topic)
        files = sum(topic in facts.topics for facts in held.source)
        found.append(
            Counted(
                name=name,
                count=count,
                files=files,
                places=places,
                searched="" if count else f"{searched} in {len(held.source)} source files",
            )
        )
    return found
