"""From configurations as read to what `extract_config` answers: places, meanings, reads, given values."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from opscope_schemas.common import Repository
from opscope_schemas.extracted_config import (
    AcceptedKey,
    Basis,
    Configuration,
    Derivation,
    Hyperparameter,
    Meaning,
    Override,
    Place,
    Reads,
)

from opscope_tools.index import ClassSymbol, Index
from opscope_tools.index.configurations.configurations import Held, ReadConfiguration
from opscope_tools.index.configurations.constructor_steps import Taken
from opscope_tools.index.modules.shown_values import Shown
from opscope_tools.settings import Meanings, PythonSource, Reader, config_reads

ModelFiles = Callable[[ClassSymbol], list[tuple[Repository, str]]]
#: what stands at a place in a file
Fact = TypeVar("Fact", Hyperparameter, Meaning | None, Derivation, Override, AcceptedKey)
_FIRST = 3


@dataclass
class Sources:
    """Files read for one question."""

    index: Index
    kept: dict[tuple[str, str], PythonSource] = field(default_factory=dict)

    def of(self, repository: Repository, file: str) -> PythonSource:
        """The source of one file, read once; the repository must be one of the index."""
        key = (repository.name, file)
        if key not in self.kept:
            tree = next(t for t in self.index.resolver.trees if t.repository.name == repository.name)
            self.kept[key] = PythonSource(file, tree.source(file).decode("utf-8-sig", "replace"))
        return self.kept[key]


@dataclass(frozen=True)
class _Owner:
    """The configuration that holds another one, and under which attribute."""

    symbol: ClassSymbol
    attribute: str
    #: what it has by itself
    names: frozenset[str]
    outer: _Owner | None = None


class Parameters:
    """Describes one configuration and those that it holds."""

    def __init__(self, sources: Sources, files: Sequence[tuple[Repository, str]], more: ModelFiles) -> None:
        self.sources, self.files, self.more = sources, list(files), more
        self.found: list[Configuration] = []

    def describe(self, read: ReadConfiguration, given: Mapping[str, object] | None) -> list[Configuration]:
        """The configuration first, then those that it holds, outer before inner."""
        self._add(read, given, "", self.files, None)
        return self.found

    def _add(
        self, read: ReadConfiguration, given: Mapping[str, object] | None, path: str,
        files: list[tuple[Repository, str]], owner: _Owner | None,
    ) -> None:  # fmt: skip
        place = len(self.found)
        meanings = self._meanings(read)
        reads = self._reads(read, path, files, owner)
        parameters = []
        inner: list[tuple[Held, str]] = []
        for held in sorted(read.held, key=lambda h: _inherited(h, read)):
            below = f"{path}.{held.name}" if path else held.name
            if held.sub is not None:
                inner.append((held, below))
            parameters.append(self._parameter(held, read, meanings, reads, given, below, owner))
        known = {held.name for held in read.held} | set(read.aliases) | read.others | {t.name for t in read.taken}
        symbol = read.symbol
        found = Configuration(
            path=path, class_name=symbol.qualified_name, file=symbol.file, line=symbol.line, end_line=symbol.end_line,
            kind=read.kind, parents=tuple(p.qualified_name for p in read.parents[1:]),
            hyperparameters=tuple(parameters), total=len(parameters),
            accepts=tuple(dict.fromkeys(
                AcceptedKey(name=t.name, file=t.file, line=t.line) for t in _first_of(read) if t.name not in {h.name for h in read.held}
            )),
            unknown_keys=tuple(str(key) for key in given or {} if key not in known),
        )  # fmt: skip
        self.found.insert(place, _in_own_file(found))
        for held, below in inner:
            assert held.sub is not None
            value = (given or {}).get(held.name)
            own = [*files, *(f for f in self.more(held.sub.symbol) if f not in files)]
            self._add(
                held.sub,
                value if isinstance(value, dict) else None,
                below,
                own,
                _Owner(symbol, held.name, frozenset(known), owner),
            )

    # one parameter

    def _parameter(
        self, held: Held, read: ReadConfiguration, meanings: Mapping[str, Meaning], reads: Mapping[str, Reads] | None,
        given: Mapping[str, object] | None, path: str, owner: _Owner | None,
    ) -> Hyperparameter:  # fmt: skip
        first, *others = held.declared
        aliases = tuple(alias for alias, name in read.aliases.items() if name == held.name)
        derived = [
            Derivation(formula=s.formula, condition=s.condition, within=s.within, file=s.file, line=s.line)
            for s in held.sets if not _stores(s.formula, held.name)
        ]  # fmt: skip
        changed = held.default is None or not held.default.known or held.value.data != held.default.data
        file, line = first.file, first.line
        own = bool(derived) or (held.kind == "attribute" and bool(held.sets))  # its class says how it comes about
        passed = self._passed(owner, held.name) if owner is not None and not own and changed else None
        if passed is not None:
            derived.append(passed)
            if held.kind == "attribute":
                file, line = passed.file, passed.line
        spelt = next((key for key in (held.name, *aliases) if given is not None and key in given), None)
        effective = held.effective
        return Hyperparameter(
            name=held.name, file=file, line=line, class_name=first.owner, kind=held.kind,
            annotation=first.annotation, default=first.default, basis=_basis(held, changed), value=held.value.data if held.value.known else None,
            open="" if held.value.known else _open(held),
            overrides=tuple(Override(class_name=o.owner, file=o.file, line=o.line, default=o.default) for o in others),
            derived=tuple(derived), aliases=aliases, meaning=meanings.get(held.name),
            sub_config=path if held.sub is not None else "", reads=None if reads is None else reads.get(held.name, Reads(count=0)),
            given=given[spelt] if given is not None and spelt is not None else None, is_given=spelt is not None,
            effective=effective.data if effective is not None and effective.known and effective.data != held.value.data else None,
        )  # fmt: skip

    def _passed(self, owner: _Owner, name: str) -> Derivation:
        """The line on which a holder of the configuration gives it a value; the class of the nearest holder where no such
        line is found."""
        holder: _Owner | None = owner
        while holder is not None:
            found = self._line_that_passes(holder, owner.attribute, name)
            if found is not None:
                return found
            holder = holder.outer
        return Derivation(
            formula=f"passed by {owner.symbol.name}", within=owner.symbol.qualified_name, file=owner.symbol.file,
            line=owner.symbol.line,
        )  # fmt: skip

    def _line_that_passes(self, owner: _Owner, attribute: str, name: str) -> Derivation | None:
        """In the holder's class body, on a line that sets `attribute.name` or behind one that names the attribute."""
        source = self.sources.of(owner.symbol.repository, owner.symbol.file)
        held = re.compile(rf"\b{re.escape(attribute)}\b")
        entry = re.compile(rf"[\"']{re.escape(name)}[\"']\s*:|\b{re.escape(name)}\s*=[^=]")
        inside = False
        for number in range(owner.symbol.line, owner.symbol.end_line + 1):
            text = source.line(number)
            # further out a class has settings of its own by the same name: there the attribute stands on the line itself
            inside = bool(held.search(text)) or (inside and owner.attribute == attribute)
            if inside and (match := entry.search(text)):
                formula = text[match.end() :].strip().rstrip(",") or text.strip()
                return Derivation(
                    formula=f"passed as {formula}",
                    within=owner.symbol.qualified_name,
                    file=owner.symbol.file,
                    line=number,
                )
        return None

    # meanings and reads

    def _meanings(self, read: ReadConfiguration) -> dict[str, Meaning]:
        """What the class says, then its parents, then the tables of their decorators' files."""
        names = {held.name for held in read.held}
        names |= {alias for alias, name in read.aliases.items() if name in names}
        found: dict[str, Meaning] = {}
        for symbol in read.parents:
            missing = names - found.keys()
            if missing and not symbol.qualified_name.startswith("torch.nn.modules.module."):
                said = Meanings(self.sources.of(symbol.repository, symbol.file)).of_class(symbol.line, missing)
                found = {**said, **found}
        for repository, file in self._tables(read.parents):
            missing = names - found.keys()
            if missing:
                found = {**Meanings(self.sources.of(repository, file)).of_table(missing), **found}
        for alias, name in read.aliases.items():
            if alias in found and name not in found:
                found[name] = found[alias]
        return found

    def _tables(self, parents: Sequence[ClassSymbol]) -> list[tuple[Repository, str]]:
        """Files of the registered source that define the decorators of the classes."""
        found: dict[tuple[str, str], tuple[Repository, str]] = {}
        for symbol in parents:
            for text in symbol.row.decorators:
                name = text.split("(", 1)[0]
                leads = self.sources.index.resolver.dotted(symbol.unit, name) if re.fullmatch(r"[\w.]+", name) else None
                if leads is not None and leads.unit is not None and leads.kind == "function":
                    tree = leads.unit.tree
                    found[tree.repository.name, leads.unit.file] = (tree.repository, leads.unit.file)
        return list(found.values())

    def _reads(
        self, read: ReadConfiguration, path: str, files: list[tuple[Repository, str]], owner: _Owner | None
    ) -> dict[str, Reads] | None:
        if not files or read.kind == "arguments":
            return None
        words = {h.name: [h.name, *(a for a, n in read.aliases.items() if n == h.name)] for h in read.held}
        sought = Reader(
            own=[read.symbol.name], parents=[p.name for p in read.parents[1:]],
            paths=[path.rpartition(".")[2]] if path else [], names=words,
            holders={owner.symbol.name: owner.names} if owner is not None else dict(self._holders(read.symbol)),
        )  # fmt: skip
        places: dict[str, list[tuple[str, int, bool]]] = {}
        sources = {file: self.sources.of(repository, file) for repository, file in files}
        for file in sources:
            for name, lines in config_reads(sources[file], sought).items():
                places.setdefault(name, []).extend((file, line, sure) for line, sure in lines)
        return {
            name: Reads(
                count=len(found), unsure=sum(not sure for _, _, sure in found),
                first=tuple(Place(file=file, line=line) for file, line, _ in found[:_FIRST]),
                within=tuple(dict.fromkeys(sources[file].around(line).partition(".")[0] for file, line, _ in found)),
            )
            for name, found in places.items()
        }  # fmt: skip

    def _holders(self, symbol: ClassSymbol) -> Iterator[tuple[str, frozenset[str]]]:
        """Classes of a configuration's file that hold it as a part, with the names of their own: a module of the part may be declared
        to take the whole."""
        for _, node in self.sources.of(symbol.repository, symbol.file).definitions:
            if isinstance(node, ast.ClassDef) and symbol.name in _parts(node):
                yield node.name, frozenset(_fields(node))


def _parts(node: ast.ClassDef) -> set[str]:
    """The classes that declarations in a class's body name, as values or as annotations."""
    declared = [each for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)]
    return {name.id for each in declared for name in ast.walk(each) if isinstance(name, ast.Name)}


def _fields(node: ast.ClassDef) -> Iterator[str]:
    """What a class declares in its body or sets on itself."""
    for each in ast.walk(node):
        for target in _targets(each):
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                yield target.attr
            elif isinstance(target, ast.Name) and each in node.body:
                yield target.id


def _targets(node: ast.AST) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []


def _in_own_file(found: Configuration) -> Configuration:
    """The same with the file left out of each fact that stands in the configuration's own, and the class likewise."""

    def short(fact: Fact) -> Fact:
        return fact.model_copy(update={"file": ""}) if fact is not None and fact.file == found.file else fact

    parameters = tuple(
        short(parameter).model_copy(update={
            "class_name": "" if parameter.class_name == found.class_name else parameter.class_name,
            "meaning": short(parameter.meaning), "derived": tuple(map(short, parameter.derived)),
            "overrides": tuple(map(short, parameter.overrides)),
        })
        for parameter in found.hyperparameters
    )  # fmt: skip
    return found.model_copy(update={"hyperparameters": parameters, "accepts": tuple(map(short, found.accepts))})


def _first_of(read: ReadConfiguration) -> list[Taken]:
    seen: dict[str, Taken] = {}
    for taken in read.taken:
        seen.setdefault(taken.name, taken)
    return list(seen.values())


def _inherited(held: Held, read: ReadConfiguration) -> bool:
    symbol = held.declared[0].symbol
    return symbol is not None and not symbol.same(read.symbol)


def _stores(formula: str, name: str) -> bool:
    """Whether `self.name = name` just keeps the argument."""
    return formula == name


def _open(held: Held) -> str:
    return (
        held.value.text
        or (held.default.text if held.default is not None else "")
        or held.declared[0].default
        or held.name
    )


def _basis(held: Held, changed: bool) -> Basis:
    default = held.default
    if not held.value.known:
        return "required" if default is None and held.kind != "attribute" and not held.sets else "open"
    if default is None or changed:
        return "derived"
    return "source" if _is_literal(held.declared[0].default, default) else "evaluated"


def _is_literal(text: str, default: Shown) -> bool:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return bool(value == default.data) or isinstance(value, tuple | set | dict)
