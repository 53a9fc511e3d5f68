"""All files together: which module is which file, what a dotted name leads to, who imports what, who derives from whom.

Names are followed through re-exports of packages, never guessed: a name that leads nowhere in the repository is not counted
for any of those that bear it.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from opscope_cache.trees import Signature
from opscope_schemas.common import Repository

from opscope_tools.source.python.imports import chain, heads
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import ClassRow, FileRows, FunctionRow, Guard, ImportRow, Row
from opscope_tools.source.python.trees import PythonSource
from opscope_tools.survey.facts import ClassFact, FileFacts, FunctionFact, Hit
from opscope_tools.survey.module import Function, parameters_of
from opscope_tools.survey.roles import DEMOTED, role_of
from opscope_tools.survey.roots import Roots, roots_of

_ALWAYS = Guard()
#: folders that hold a model each, how many make a zoo, and what their layers derive from
_ZOO = re.compile(r"models?|architectures?|model_implementations|model_zoo")
_MANY = 8
#: what a whole model is called, whatever its folder is; and what only stands for another class
_WHOLE = re.compile(r"(\w+)For(CausalLM|ConditionalGeneration)")
STAND_INS = re.compile(r"(Mock|Dummy|Fake|Stub|Toy|NoOp|Null)\w*|\w*(Mock|Dummy|Fake|Stub)")
LAYER = re.compile(r".*\b(Module|Layer|Model)$")
#: syntax trees kept; each takes some megabytes
_TREES = 80


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
        """How many lines it has."""
        return self.fact.end_line - self.fact.line + 1


class Scanned(SourceTree):
    """The repository as the scan has read it: what a file says of names comes from its facts."""

    def __init__(self, repository: Repository, files: Mapping[str, Signature]) -> None:
        super().__init__(repository)
        self._python = {file: signature for file, signature in files.items() if file.endswith(".py")}
        self._made: dict[str, Unit] = {}
        self._roots: Roots | None = None
        self.by_path: dict[str, FileFacts] = {}

    def settle(self, facts: Iterable[FileFacts], declared: Collection[str], named: Iterable[str]) -> Roots:
        """Take what the files say as known, and with it which folders are packages."""
        self.by_path = {one.path: one for one in facts}
        if not self.repository.packages:
            self._roots = roots_of(self._python, self.by_path.values(), declared, named)
        self._made.clear()
        return self._roots or roots_of(self._python, (), (), ())

    @property
    def folders(self) -> list[str]:
        """Folders that top-level packages lie in, those without `__init__.py` among them."""
        return list(self._roots.holders) if self._roots is not None else super().folders

    def top_packages(self) -> list[str]:
        """Names of the top-level packages, those without `__init__.py` among them."""
        if self._roots is None:
            return super().top_packages()
        return [one.rpartition("/")[2] for one in self._roots.tops]

    def module_name(self, file: str) -> str:
        """The dotted name of a file, below the topmost package that holds it."""
        found = next((top for top in self._roots.tops if file.startswith(f"{top}/")), "") if self._roots else ""
        if not found:
            return super().module_name(file)
        stem = file[len(found.rpartition("/")[0]) :].lstrip("/").removesuffix(".py").removesuffix("/__init__")
        return stem.replace("/", ".")

    def _above_script(self, file: str, top: str) -> Iterator[str]:
        """Where a file outside packages may import from; one in a package imports what Python finds elsewhere."""
        if self._roots is None or file.rpartition("/")[0] not in self._roots.packages:
            yield from super()._above_script(file, top)

    def _now(self) -> Mapping[str, Signature]:
        return self._python

    def _holds(self, file: str) -> bool:
        return file in self.by_path

    def unit(self, file: str) -> Unit:
        """The module in `file`, with what its facts say at its own level."""
        if file not in self._made:
            rows = FileRows(tuple(_rows(self.by_path[file])), self.by_path[file].exports, None)
            self._made[file] = Unit(self, file, self.module_name(file), file.endswith("__init__.py"), rows)
        return self._made[file]


def _rows(facts: FileFacts) -> Iterator[Row]:
    """What binds names at the file's own level; of a class or function the name and the place."""
    for one in facts.imports:
        if one.guard is not None:
            yield ImportRow(one.name, one.module if one.member else one.stands, one.member, one.statement, one.guard)
    for made in facts.classes:
        if "." not in made.path:
            guard = facts.guards.get(made.line, _ALWAYS)
            yield ClassRow(made.path, made.line, made.end_line, made.line, (), (), (), guard)
    for defined in facts.functions:
        guard = facts.guards.get(defined.line, _ALWAYS)
        yield FunctionRow(defined.path, defined.line, defined.end_line, (), "()", "", False, guard)


class Holdings:
    """The facts of every file of a repository."""

    def __init__(
        self, tree: Scanned, files: list[FileFacts], declared: Collection[str] = (), named: Iterable[str] = ()
    ) -> None:
        self.root = tree.repository.root
        self.files = files
        self.packages = tree.settle(files, declared, named).packages
        self.names = {file: tree.module_name(file) for file in tree.files()}
        self.own = set(tree.top_packages())
        self.by_path = {facts.path: facts for facts in files}
        found = {facts.path: role_of(facts.path, self.packages) for facts in files}
        self.roles = {path: role for path, (role, _) in found.items()}
        #: file -> the folder or file whose name gives the role
        self.role_folders = {path: folder for path, (_, folder) in found.items()}
        self._tree, self._resolver = tree, Resolver([tree])
        self._sources: dict[str, PythonSource] = {}
        self._nodes: dict[str, dict[str, ast.ClassDef | Function]] = {}
        self._above: dict[str, list[Definition]] = {}
        self._below: dict[str, list[Definition]] = {}
        self._aliases: dict[str, dict[str, str]] = {}
        self._followed: dict[tuple[str, str], Definition | None] = {}
        self._import_files: dict[str, set[str]] = {}

    @cached_property
    def python(self) -> list[FileFacts]:
        """The Python files, in the order of `files`."""
        return [facts for facts in self.files if facts.language == "python"]

    @cached_property
    def source(self) -> list[FileFacts]:
        """Files of any language that are neither tests, examples, benchmarks, documentation, tools nor others' code."""
        return [facts for facts in self.files if not self.demoted(facts.path)]

    def demoted(self, path: str) -> bool:
        """Whether a file is a test, an example or the like, which counts after all others."""
        return self.roles[path] in DEMOTED

    # definitions

    @cached_property
    def classes(self) -> list[Definition]:
        """Every class of the Python files, file by file."""
        return [Definition(facts, fact) for facts in self.python for fact in facts.classes]

    @cached_property
    def functions(self) -> list[Definition]:
        """Every function and method of the Python files, file by file."""
        return [Definition(facts, fact) for facts in self.python for fact in facts.functions]

    @cached_property
    def _defined(self) -> dict[tuple[str, str], Definition]:
        found: dict[tuple[str, str], Definition] = {}
        for definition in (*self.functions, *self.classes):
            found.setdefault((definition.file.path, definition.fact.path), definition)
        return found

    def module(self, dotted: str, beside: str = "") -> FileFacts | None:
        """The file of a module, as the file `beside` may import it."""
        file = self._tree.locate(dotted, beside)
        return self.by_path[file] if file is not None else None

    def definition(self, dotted: str, near: FileFacts | None = None) -> Definition | None:
        """What a dotted name leads to: in the file `near` where it is plain, else by its module and re-exports."""
        if near is not None and (own := self._defined.get((near.path, dotted))):
            return own
        return self._imported(dotted, near.path if near is not None else "")

    def _imported(self, dotted: str, beside: str) -> Definition | None:
        """What an imported name leads to; each name is followed once, but for files outside packages."""
        folder = beside.rpartition("/")[0]
        key = dotted, "" if folder in self.packages else folder
        if key not in self._followed:
            found, rest = self._resolver.reached(self._tree, dotted, beside)
            name = ".".join([found.row.name, *rest]) if found.row is not None else ""
            self._followed[key] = self._defined.get((found.unit.file, name)) if found.unit is not None else None
        return self._followed[key]

    def dotted(self, node: ast.AST | None, file: FileFacts) -> str:
        """`a.b.c` of an expression in `file`, its head's import followed; empty where it is no chain of names."""
        if file.path not in self._aliases:
            tree = self.tree(file.path)
            statements = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
            self._aliases[file.path] = heads(tree, self._tree.unit(file.path).package, statements)
        return chain(node, self._aliases[file.path])

    # bodies, read again for the few definitions whose calls are followed

    def _source(self, path: str) -> PythonSource:
        """A file's text and tree. The last ones asked for are kept."""
        if path not in self._sources:
            text = ""
            with suppress(OSError):
                text = (self.root / path).read_text(encoding="utf-8-sig", errors="replace").replace("\f", " ")
            while len(self._sources) >= _TREES:
                gone = next(iter(self._sources))
                del self._sources[gone]
                self._nodes.pop(gone, None)
            self._sources[path] = PythonSource(path, text)
        self._sources[path] = self._sources.pop(path)  # the last to be dropped
        return self._sources[path]

    def tree(self, path: str) -> ast.Module:
        """The syntax tree of a file; empty where it does not parse any more."""
        return self._source(path).tree or ast.Module(body=[], type_ignores=[])

    def lines(self, path: str) -> list[str]:
        """The lines of a file."""
        return self._source(path).lines

    def node(self, path: str, name: str) -> ast.ClassDef | Function | None:
        """The class or function `name` (`Class.method`) of a file."""
        if path not in self._nodes:
            found = self._nodes[path] = {}
            for inside, node in self._source(path).definitions:
                if not _overload(node):
                    found.setdefault(inside, node)
        return self._nodes[path].get(name)

    def parameters(self, path: str, function: str) -> list[str]:
        """The names of a function's parameters, without self; empty where it is not found."""
        node = self.node(path, function)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        names = [parameter.arg for parameter in parameters_of(node)]
        return names[1:] if names[:1] in (["self"], ["cls"]) else names

    def one_of_many(self, path: str) -> bool:
        """Whether a file is about one model of a zoo: a folder that has a file or folder of its own for each."""
        parts = path.split("/")
        return any("/".join(parts[:n]) in self._of_zoos for n in range(2, len(parts) + 1))

    def named_for_one(self, one: Definition) -> bool:
        """Whether a class outside a zoo bears the name of one of its models: `LlamaBackend` beside a `LlamaForCausalLM`."""
        return any(one.name.startswith(model) and one.name[len(model) :][:1].isupper() for model in self._models)

    @cached_property
    def _models(self) -> tuple[str, ...]:
        """What the models of the zoos are called."""
        found = [(one, _WHOLE.fullmatch(one.name)) for one in self.classes]
        return tuple({named[1] for one, named in found if named is not None and self.one_of_many(one.file.path)})

    @cached_property
    def _of_zoos(self) -> set[str]:
        """The files and folders of the folders that hold many models, by their own name or those of the models; without the files that the others share."""
        held: defaultdict[str, set[str]] = defaultdict(set)
        whole: defaultdict[str, set[str]] = defaultdict(set)
        for facts in self.source:
            parts = facts.path.split("/")
            folders = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
            for folder, child in itertools.pairwise(folders):
                if any(LAYER.match(base) for one in facts.classes for base in one.bases):
                    held[folder].add(child)
                if any(_WHOLE.fullmatch(one.name) for one in facts.classes):
                    whole[folder].add(child)
        shared = {one.file.path for one in (*self.classes, *self.functions) if self.importers[one.at] >= _MANY}
        zoos = {
            folder
            for folder, children in held.items()
            if len(children if _ZOO.fullmatch(folder.rpartition("/")[2]) else whole[folder]) >= _MANY
        }
        return {child for folder in zoos for child in held[folder] - self._layers_of(folder, held[folder])} - shared

    def _layers_of(self, folder: str, children: set[str]) -> set[str]:
        """The files and folders of a zoo that half of the others import: the layers that its models share."""
        importers: defaultdict[str, set[str]] = defaultdict(set)
        depth = folder.count("/") + 2
        for facts in self.source:
            child = "/".join(facts.path.split("/")[:depth])
            if child in children:
                for other in self.imports_of(facts.path):
                    importers["/".join(other.split("/")[:depth])].add(child)
        return {child for child in children if 2 * len(importers[child] - {child}) >= len(children) - 1}

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
                found = self._imported(f"{one.module}.{one.member}", facts.path)
                if found is not None and found.file is not facts:
                    seen.add(found.at)
            counted.update(seen)
        return counted

    def imports_of(self, path: str) -> set[str]:
        """The files that a file imports: where the names come from, behind re-exports, and the modules."""
        if path not in self._import_files:
            found = set()
            for one in self.by_path[path].imports:
                there = self._imported(f"{one.module}.{one.member}", path) if one.member not in {"", "*"} else None
                whole = self.module(f"{one.module}.{one.member}", path) or self.module(one.module, path)
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


def _overload(node: ast.ClassDef | Function) -> bool:
    return any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
