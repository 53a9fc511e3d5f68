"""Which variables of the environment a repository reads, over all of its files.

Besides literal reads: functions that read the name they are given (through others too), objects whose class reads a name
that its constructor or its place in a class body gives, tables. What only looks like a variable is counted apart.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from opscope_tools.survey.facts import ClassFact, EnvironmentFact, FileFacts, NamedCall
from opscope_tools.survey.holdings import Definition, Holdings, at

_ROUNDS = 5


@dataclass
class Variable:
    """A variable: where it is declared or first read, how, how often; `set_only` where it is never read."""

    name: str
    at: str = ""
    mechanism: str = ""
    default: str = ""
    reads: int = 0
    set_only: bool = True
    rank: tuple[int, bool, str, int] = (9, True, "", 0)


@dataclass
class Environment:
    """The variables of a repository, and what is not known of them."""

    variables: dict[str, Variable] = field(default_factory=dict)
    mechanisms: Counter[str] = field(default_factory=Counter)
    #: places where the name is worked out at run time
    dynamic: list[str] = field(default_factory=list)
    #: names with a prefix of the project that stand in source and that no mechanism explains -> a place
    unexplained: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()


#: which mechanism says best where a variable is declared
_ORDER = ("table", "declared object", "settings class", "flag", "direct", "helper", "C++ getenv", "library", "set")


def environment_of(held: Holdings) -> Environment:
    """The environment that the files outside tests read."""
    found = Environment()
    files = [facts for facts in held.files if held.roles[facts.path] not in {"tests", "third party"}]
    for facts in files:
        for read in facts.environment:
            named = [*_named(held, facts, read)]
            for where, name, line in named:
                _add(found, held, where, name, line, "set" if read.written else read.mechanism, read.default)
            if not named and read.kind in {"dynamic", "name"}:
                found.dynamic.append(at(facts.path, read.line))
    for facts, name, line in _by_helpers(held, files):
        _add(found, held, facts, name, line, "helper", "")
    for facts, line, name in _declared(held, files):
        _add(found, held, facts, name, line, "declared object", "")
    for variable in found.variables.values():
        found.mechanisms[variable.mechanism] += 1
    found.prefixes = _prefixes(held, found.variables)
    found.unexplained = dict(_unexplained(held.source, found))
    return found


def _add(
    found: Environment, held: Holdings, facts: FileFacts, name: str, line: int, mechanism: str, default: str
) -> None:  # fmt: skip
    variable = found.variables.setdefault(name, Variable(name))
    written = mechanism == "set"
    rank = (_ORDER.index(mechanism), held.demoted(facts.path), facts.path, line)
    if rank < variable.rank:
        variable.rank, variable.at, variable.mechanism = rank, at(facts.path, line), mechanism
    if not written:
        variable.set_only = False
        variable.reads += 1
    if default and not variable.default:
        variable.default = default


def _named(held: Holdings, facts: FileFacts, read: EnvironmentFact) -> Iterator[tuple[FileFacts, str, int]]:
    """The variables of a read with the file and line where each name stands; none where the read alone does not tell."""
    if read.kind == "literal":
        if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_()]*", read.key):
            yield facts, read.key, read.line
    elif read.kind == "name":
        module, _, constant = read.key.rpartition(".")
        there = held.module(module)
        if there is not None and constant in there.constants:
            yield there, *there.constants[constant]
    elif read.kind == "attribute":  # a name that a class and those below it each give
        holder = held.definition(read.within.rpartition(".")[0], facts)
        for one in [*held.lineage(holder), *held.descendants(holder)] if holder else ():
            if (given := one.file.constants.get(f"{one.fact.path}.{read.key}")) is not None:
                yield one.file, *given


# functions that read the name they are given --------------------------------------------------------------------------


def _by_helpers(
    held: Holdings, files: list[FileFacts]
) -> Iterator[tuple[FileFacts, str, int]]:  # fmt: skip
    helpers: dict[tuple[str, str], set[str]] = defaultdict(set)
    for facts in held.python:
        for read in facts.environment:
            if read.kind == "parameter":
                helpers[facts.path, read.within].add(read.key)
    calls = [(facts, call) for facts in held.python for call in facts.named_calls if call.arguments]
    for _ in range(_ROUNDS):  # a helper may hand its parameter to another one
        known = {function.rpartition(".")[2] for _, function in helpers}
        before = sum(map(len, helpers.values()))
        for facts, call in calls:
            if _last(call) in known and any(kind == "parameter" for _, kind, _, _ in call.arguments):
                for kind, text, _ in _read_arguments(held, facts, call, helpers):
                    if kind == "parameter":
                        helpers[facts.path, call.within].add(text)
        if sum(map(len, helpers.values())) == before:
            break
    wanted = {id(facts) for facts in files}
    for facts, call in calls:
        if id(facts) in wanted and _last(call) in known:
            for kind, text, line in _read_arguments(held, facts, call, helpers):
                if kind == "literal":
                    yield facts, text, line


def _last(call: NamedCall) -> str:
    return call.callee.rpartition(".")[2]


def _read_arguments(
    held: Holdings, facts: FileFacts, call: NamedCall, helpers: dict[tuple[str, str], set[str]]
) -> Iterator[tuple[str, str, int]]:
    """The arguments that land in a parameter which names a variable: kind, text, line."""
    target = _target(held, facts, call, helpers)
    if target not in helpers:
        return
    read, order = helpers[target], held.parameters(*target)
    for place, kind, text, line in call.arguments:
        name = order[int(place)] if place.isdigit() and int(place) < len(order) else place
        if name in read:
            yield kind, text, line


def _target(
    held: Holdings, facts: FileFacts, call: NamedCall, helpers: dict[tuple[str, str], set[str]]
) -> tuple[str, str]:  # fmt: skip
    """(file, path of the function) that a call runs; of empty strings where that is not known."""
    head, _, rest = call.callee.partition(".")
    if head in {"self", "cls"} and rest and "." not in rest:
        holder = call.within.rpartition(".")[0]
        own = held.definition(holder, facts)
        for one in held.lineage(own) if own else ():
            for method in one.fact.methods if isinstance(one.fact, ClassFact) else ():
                if method.name == rest:
                    return one.file.path, method.path
        return "", ""
    found = held.definition(call.callee, facts)
    if found is not None:
        return found.file.path, found.fact.path
    owner, _, name = call.callee.rpartition(".")
    parent = held.definition(owner, facts) if owner else None
    if parent is not None and isinstance(parent.fact, ClassFact):
        inner = next((m for m in parent.fact.methods if m.name == name), None)
        return (parent.file.path, inner.path) if inner else ("", "")
    around = call.within
    while around:  # a function inside the function that calls it
        if (facts.path, f"{around}.{call.callee}") in helpers:
            return facts.path, f"{around}.{call.callee}"
        around = around.rpartition(".")[0]
    return "", ""


# objects that read a name ---------------------------------------------------------------------------------------------


def _declared(held: Holdings, files: Iterable[FileFacts]) -> Iterator[tuple[FileFacts, int, str]]:
    """Assignments of objects whose class reads the variable that they stand for."""
    by_place: set[str] = set()
    by_argument: dict[str, str] = {}
    for facts in held.python:
        attributes = {
            (read.within.partition(".")[0], read.key) for read in facts.environment if read.kind == "attribute"
        }
        for within, attribute, parameter in facts.self_sets:
            holder, _, method = within.rpartition(".")
            definition = held.definition(holder, facts)
            if definition is None or (holder.partition(".")[0], attribute) not in attributes:
                continue
            for one in [definition, *held.descendants(definition)]:
                if method == "__set_name__":
                    by_place.add(one.at)
                else:
                    by_argument[one.at] = parameter
    for facts in files:
        for call in facts.named_calls:
            made = held.definition(call.callee, facts)
            if made is None:
                continue
            if made.at in by_place and call.target:
                yield facts, call.line, call.target
            elif made.at in by_argument:
                yield from _given(held, facts, call, made, by_argument[made.at])


def _given(
    held: Holdings, facts: FileFacts, call: NamedCall, made: Definition, parameter: str
) -> Iterator[tuple[FileFacts, int, str]]:
    order = next(
        (p for one in held.lineage(made) if (p := held.parameters(one.file.path, f"{one.fact.path}.__init__"))), []
    )
    for place, kind, text, line in call.arguments:
        name = order[int(place)] if place.isdigit() and int(place) < len(order) else place
        if kind == "literal" and name == parameter:
            yield facts, line, text


# what is not explained ------------------------------------------------------------------------------------------------


def _prefixes(held: Holdings, variables: dict[str, Variable]) -> tuple[str, ...]:
    """First words of the project's own variables: its packages' names, and what a tenth of them share."""
    own = {name.partition(".")[0].upper() for name in held.names.values()}
    read = [v.name for v in variables.values() if "_" in v.name and not v.set_only and not v.rank[1]]
    counted = Counter(name.partition("_")[0] for name in read)
    return tuple(f"{w}_" for w, n in counted.most_common() if n >= 3 and (w in own or (n * 10 >= len(read) and n >= 5)))


def _unexplained(files: list[FileFacts], found: Environment) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for facts in files:
        for token, line in facts.tokens.items() if facts.language == "python" else ():
            if token not in found.variables and token not in seen and token.startswith(found.prefixes):
                seen.add(token)
                yield token, at(facts.path, line)
