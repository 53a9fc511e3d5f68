"""All files together: which module is which file, what a dotted name leads to, who imports what, who derives from whom.

Names are followed through re-exports of packages, never guessed: a name that leads nowhere in the repository is not counted
for any of those that bear it.
"""

from __future__ import annotations

import ast
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opscope_tools.survey.facts import ClassFact, FileFacts, FunctionFact, Hit
from opscope_tools.survey.module import Function, chain, parameters_of
from opscope_tools.survey.roles import DEMOTED, role_of

_DEEPEST = 6
#: syntax trees kept; each takes some megabytes
_TREES = 40


def at(path: str, line: int) -> str:
    """A pointer, as results print it."""
    return f"{path}:{line}"


@dataclass(frozen=True, eq=False)
class Definition:
    """A class or function with its file."""

    file: FileFacts
    fact: ClassFact | FunctionFact

    @cached_property
    def name(self) -> str:
        """Its own name, without those of the classes around it."""
        return self.fact.name

    @cached_property
    def at(self) -> str:
        """Where it stands; what definitions are told apart by."""
        return at(self.file.path, self.fact.line)

    @property
    def lines(self) -> int:
        return self.fact.end_line - self.fact.line + 1


def module_names(files: Mapping[str, object]) -> tuple[dict[str, str], set[str]]:
    """Python file -> dotted name of its module, and the folders that are packages.

    The name begins with the first package or module below the repository's top, `src`, or whatever folder holds it.
    """
    packages = {f.rpartition("/")[0] for f in files if f.endswith("/__init__.py")}
    holders = sorted({p.rpartition("/")[0] for p in packages if p.rpartition("/")[0] not in packages}, key=len)
    names = {}
    for file in files:
        if file.endswith(".py"):
            names[file] = _module_name(file, packages, holders)
    return names, packages


def _module_name(file: str, packages: set[str], holders: list[str]) -> str:
    inner = file
    for holder in holders:
        start = f"{holder}/" if holder else ""
        if file.startswith(start):
            rest = file[len(start) :]
            if f"{start}{rest.partition('/')[0]}" in packages:
                inner = rest
                break
    return inner.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Holdings:
    """The facts of every file of a repository."""

    def __init__(self, root: Path, files: list[FileFacts], names: Mapping[str, str], packages: set[str]) -> None:
        self.root = root
        self.files = files
        self.names = names
        self.packages = packages
        self.by_path = {facts.path: facts for facts in files}
        found = {facts.path: role_of(facts.path, packages) for facts in files}
        self.roles = {path: role for path, (role, _) in found.items()}
        #: file -> the folder or file whose name gives the role
        self.role_folders = {path: folder for path, (_, folder) in found.items()}
        self._trees: dict[str, ast.Module] = {}
        self._lines: dict[str, list[str]] = {}
        self._above: dict[str, list[Definition]] = {}
        self._below: dict[str, list[Definition]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._followed: dict[str, Definition | None] = {}
        self._import_files: dict[str, set[str]] = {}
        self.modules: dict[str, FileFacts] = {}
        for path, name in names.items():
            if path in self.by_path:
                self.modules.setdefault(name, self.by_path[path])
        for path in names:  # a package inside a folder without `__init__.py` is imported by both names
            if path in self.by_path:
                whole = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                self.modules.setdefault(whole, self.by_path[path])

    @cached_property
    def python(self) -> list[FileFacts]:
        return [facts for facts in self.files if facts.language == "python"]

    @cached_property
    def source(self) -> list[FileFacts]:
        """Files of any language that are neither tests, examples, benchmarks, documentation, tools nor others' code."""
        return [facts for facts in self.files if not self.demoted(facts.path)]

    def demoted(self, path: str) -> bool:
        return self.roles[path] in DEMOTED

    # definitions

    @cached_property
    def classes(self) -> list[Definition]:
        return [Definition(facts, fact) for facts in self.python for fact in facts.classes]

    @cached_property
    def functions(self) -> list[Definition]:
        return [Definition(facts, fact) for facts in self.python for fact in facts.functions]

    @cached_property
    def _defined(self) -> dict[tuple[str, str], Definition]:
        found: dict[tuple[str, str], Definition] = {}
        for definition in (*self.functions, *self.classes):
            found.setdefault((definition.file.path, definition.fact.path), definition)
        return found

    @cached_property
    def _bound(self) -> dict[str, dict[str, str]]:
        """File -> name -> dotted name that its imports bind it to; `*` lists the modules taken whole."""
        return {
            facts.path: {
                i.name if i.member != "*" else f"*{n}": f"{i.module}.{i.member}" if i.member not in {"", "*"} else i.module
                for n, i in enumerate(facts.imports) if i.member
            }
            for facts in self.python
        }  # fmt: skip

    def definition(self, dotted: str, near: FileFacts | None = None) -> Definition | None:
        """What a dotted name leads to: in the file `near` where it is plain, else by its module and re-exports."""
        if near is not None and (own := self._defined.get((near.path, dotted))):
            return own
        return self._follow(dotted, 0)

    def dotted(self, node: ast.AST | None, file: FileFacts) -> str:
        """`a.b.c` of an expression in `file`, its head's import followed; empty where it is no chain of names."""
        return chain(node, self._heads(file))

    def _heads(self, file: FileFacts) -> dict[str, str]:
        if file.path not in self._aliases:
            self._aliases[file.path] = {
                i.name: f"{i.module}.{i.member}" if i.member else (i.module if i.name != i.module.partition(".")[0] else i.name)
                for i in file.imports if i.member != "*"
            }  # fmt: skip
        return self._aliases[file.path]

    def _follow(self, dotted: str, depth: int) -> Definition | None:
        parts = dotted.split(".")
        for size in range(len(parts) - 1, 0, -1):
            module = self.modules.get(".".join(parts[:size]))
            if module is not None:
                return self._inside(module, parts[size:], depth)
        return None

    def _inside(self, module: FileFacts, rest: list[str], depth: int) -> Definition | None:
        if own := self._defined.get((module.path, ".".join(rest))):
            return own
        if depth >= _DEEPEST:
            return None
        bound = self._bound[module.path]
        target = bound.get(rest[0])
        if target is not None:
            return self._follow(".".join([target, *rest[1:]]), depth + 1)
        for name, whole in bound.items():
            if name.startswith("*") and (found := self._follow(".".join([whole, *rest]), depth + 1)):
                return found
        return None

    # bodies, read again for the few definitions whose calls are followed

    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a file; empty where it does not parse any more. The last ones asked for are kept."""
        if path not in self._trees:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    source = (self.root / path).read_text(encoding="utf-8-sig", errors="replace").replace("\f", " ")
                    tree = ast.parse(source)
            except (OSError, SyntaxError, ValueError, RecursionError):
                source, tree = "", ast.Module(body=[], type_ignores=[])
            while len(self._trees) >= _TREES:
                gone = next(iter(self._trees))
                del self._trees[gone], self._lines[gone]
            self._trees[path], self._lines[path] = tree, source.split("\n")
        return self._trees[path]

    def lines(self, path: str) -> list[str]:
        """The lines of a file whose tree is kept."""
        self.tree(path)
        return self._lines[path]

    def node(self, path: str, name: str) -> ast.ClassDef | Function | None:
        """The class or function `name` (`Class.method`) of a file."""
        body: list[ast.stmt] = self.tree(path).body
        found: ast.ClassDef | Function | None = None
        for part in name.split("."):
            found = next((n for n in _definitions(body) if n.name == part and not _overload(n)), None)
            if found is None:
                return None
            body = found.body
        return found

    def parameters(self, path: str, function: str) -> list[str]:
        """The names of a function's parameters, without self; empty where it is not found."""
        node = self.node(path, function)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        names = [parameter.arg for parameter in parameters_of(node)]
        return names[1:] if names[:1] in (["self"], ["cls"]) else names

    # who uses, who derives

    @cached_property
    def importers(self) -> Counter[str]:
        """Pointer of a definition -> how many files outside tests, examples and the like import it."""
        counted: Counter[str] = Counter()
        for facts in self.python:
            if self.demoted(facts.path):
                continue
            seen = set()
            for one in facts.imports:
                if not one.member or one.member == "*":
                    continue
                found = self._imported(f"{one.module}.{one.member}")
                if found is not None and found.file is not facts:
                    seen.add(found.at)
            counted.update(seen)
        return counted

    def _imported(self, dotted: str) -> Definition | None:
        """What an imported name leads to; each name is followed once."""
        if dotted not in self._followed:
            self._followed[dotted] = self._follow(dotted, 0)
        return self._followed[dotted]

    def imports_of(self, path: str) -> set[str]:
        """The files that a file imports: where the names come from, behind re-exports, and the modules."""
        if path not in self._import_files:
            found = set()
            for one in self.by_path[path].imports:
                there = self._imported(f"{one.module}.{one.member}") if one.member not in {"", "*"} else None
                whole = self.modules.get(f"{one.module}.{one.member}") or self.modules.get(one.module)
                if there is not None or whole is not None:
                    found.add(there.file.path if there is not None else whole.path if whole is not None else "")
            self._import_files[path] = found - {path}
        return self._import_files[path]

    def reached(self, paths: Iterable[str], most: int) -> dict[str, int]:
        """Every file that files reach by imports, in how many steps, at most `most`."""
        found = dict.fromkeys(paths, 0)
        pending = list(found)
        for step in range(1, most + 1):
            pending = [f for path in pending for f in sorted(self.imports_of(path)) if f not in found]
            found |= dict.fromkeys(pending, step)
            pending = list(dict.fromkeys(pending))
        return found

    @cached_property
    def bases(self) -> dict[str, list[Definition]]:
        """Pointer of a class -> its bases that are in the repository."""
        return {
            one.at: [
                found for base in one.fact.bases
                if (found := self.definition(base, one.file)) and found.at != one.at and isinstance(found.fact, ClassFact)
            ]
            for one in self.classes if isinstance(one.fact, ClassFact)
        }  # fmt: skip

    @cached_property
    def subclasses(self) -> dict[str, list[Definition]]:
        """Pointer of a class -> the classes that name it as a base."""
        found: defaultdict[str, list[Definition]] = defaultdict(list)
        for one in self.classes:
            for base in self.bases[one.at]:
                found[base.at].append(one)
        return found

    def descendants(self, one: Definition) -> list[Definition]:
        """Every class below `one`, the nearest first."""
        known = self._below.get(one.at)
        if known is not None:
            return known
        found: dict[str, Definition] = {}
        pending = [one]
        while pending:
            for below in self.subclasses.get(pending.pop(0).at, ()):
                if below.at not in found and below.at != one.at:
                    found[below.at] = below
                    pending.append(below)
        return self._below.setdefault(one.at, list(found.values()))

    def lineage(self, one: Definition) -> list[Definition]:
        """The class and every base of it in the repository, nearest first."""
        known = self._above.get(one.at)
        if known is not None:
            return known
        found: dict[str, Definition] = {one.at: one}
        pending = [one]
        while pending:
            for base in self.bases.get(pending.pop(0).at, ()):
                if base.at not in found:
                    found[base.at] = base
                    pending.append(base)
        return self._above.setdefault(one.at, list(found.values()))

    def base_names(self, one: Definition) -> set[str]:
        """The dotted names of every base, those outside the repository included."""
        return {
            base for held in self.lineage(one) if isinstance(held.fact, ClassFact) for base in held.fact.bases
        }  # fmt: skip

    # topics

    def topic(self, topic: str, *, everywhere: bool = False) -> Iterator[tuple[FileFacts, Hit]]:
        """The kept lines of a topic, those of the source alone unless `everywhere`."""
        for facts in self.files if everywhere else self.source:
            for hit in facts.hits(topic):
                yield facts, hit

    def count(self, topic: str) -> int:
        """How many lines of the source a topic has."""
        return sum(facts.topics[topic][0] for facts in self.source if topic in facts.topics)


def _definitions(body: Sequence[ast.stmt]) -> Iterator[ast.ClassDef | Function]:
    """The classes and functions of a body, those under `if`, `try` and `with` included."""
    for statement in body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement
        else:
            for field in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(statement, field, []))
            for handler in getattr(statement, "handlers", []):
                yield from _definitions(handler.body)


def _overload(node: ast.ClassDef | Function) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
