"""The questions that tools ask of the index: names of every accepted form to classes, the forward of a class, model
types, subclasses, re-exports, nearest names.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opscope_cache.store import Store
from opscope_schemas.common import Repository
from opscope_schemas.errors import AmbiguousNameError, InputError, PathRefusedError, SourceError, UnknownNameError
from opscope_schemas.index import ForwardLine

from opscope_tools.index.callees import Callees
from opscope_tools.index.lines import LineReader
from opscope_tools.index.parse import Node, parse
from opscope_tools.index.resolve import ClassSymbol, Found, Resolver
from opscope_tools.index.rows import AssignRow, FunctionRow
from opscope_tools.index.submodules import Submodule, submodules
from opscope_tools.index.trees import SourceTree, Unit

_AT_LINE = re.compile(r"(?P<path>.+\.py):(?P<line>\d+)$")
_AUTO = "transformers.models.auto"
#: the mappings that a model type is looked up in, the causal-LM one first, then the main one, then the rest as written
_CAUSAL, _MAIN = "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_MAPPING_NAMES"
_SUBCLASS_FILES = 40


@dataclass(frozen=True, eq=False)
class Target:
    """What a target names; `model_type` is set where it was a model type, `method` where it was a line in a method."""

    symbol: ClassSymbol
    model_type: str | None = None
    method: str = ""


@dataclass(frozen=True, eq=False)
class ForwardDef:
    """The `def forward` that runs for `symbol`."""

    symbol: ClassSymbol
    defined_in: ClassSymbol
    unit: Unit
    row: FunctionRow

    @property
    def file(self) -> str:
        return self.unit.file

    @property
    def line(self) -> int:
        return self.row.line

    @property
    def end_line(self) -> int:
        return self.row.end_line


class Index:
    """Answers over the registered repositories. Everything is read on demand; nothing is imported."""

    def __init__(self, repositories: Sequence[Repository], store: Store) -> None:
        self.resolver = Resolver(repositories, store)

    def _trees(self, repo: str | None) -> list[SourceTree]:
        trees = [tree for tree in self.resolver.trees if repo is None or tree.repository.name == repo]
        if not trees:
            names = sorted(tree.repository.name for tree in self.resolver.trees)
            raise UnknownNameError("repository", str(repo), names, next_step="Register it with --repo NAME=PATH.")
        return trees

    # names

    def resolve(self, name: str, repo: str | None = None) -> list[ClassSymbol]:
        """Every class that `name` may mean, the best first; raises `UnknownNameError` with the nearest names."""
        return [target.symbol for target in self.targets(name, repo)]

    def one(self, name: str, repo: str | None = None) -> ClassSymbol:
        """The class that `name` means; raises `AmbiguousNameError` where several files outside modular_* define it."""
        return self.target(name, repo).symbol

    def target(self, name: str, repo: str | None = None) -> Target:
        """As `one`, with the model type where `name` is one."""
        found = self.targets(name, repo)
        rivals = [t for t in found if not t.symbol.unit.secondary] or found
        if len(rivals) > 1:
            names = [t.symbol.qualified_name for t in rivals]
            if len(set(names)) < len(names):
                names = [f"{n} (repo {t.symbol.repository.name!r})" for n, t in zip(names, rivals, strict=True)]
            raise AmbiguousNameError("class", name, names)
        return rivals[0]

    def targets(self, name: str, repo: str | None = None) -> list[Target]:
        """Every reading of `name`; those that do not run (modular_*.py, stand-ins) last."""
        trees = self._trees(repo)
        name = name.strip()
        if not name:
            raise InputError(
                "An empty name means no class.", next_step="Give a class name, a model type or path.py:line."
            )
        at_line = _AT_LINE.match(name)
        if at_line:
            return [self._at_line(at_line["path"], int(at_line["line"]), trees)]
        if name.endswith(".py") or "/" in name:
            raise UnknownNameError("class", name, next_step="For a file give path.py:line, the line inside the class.")
        typed = self._model_type(name, trees) if name == name.lower() else None
        if typed is not None:
            return [typed]
        found = self._absolute(name, trees) if "." in name else []
        found = found or self._bare(name, trees)
        if not found:
            typed = self._model_type(name, trees)
            if typed is not None:
                return [typed]
            self._refuse_other(name, trees)
            raise UnknownNameError("class", name, self.nearest(name, repo), next_step="Check the spelling.")
        found.sort(key=lambda s: (s.unit.secondary, s.qualified_name.count("."), s.qualified_name))
        return [Target(symbol) for symbol in found]

    def _absolute(self, name: str, trees: list[SourceTree]) -> list[ClassSymbol]:
        return _distinct([f.symbol for f in self.resolver.absolute(name, trees) if f.symbol is not None])

    def _bare(self, name: str, trees: list[SourceTree]) -> list[ClassSymbol]:
        """Classes by their own name, or by the end of their qualified name."""
        found = []
        last = name.rpartition(".")[2]
        for tree in trees:
            for file in tree.files_defining(last):
                unit = tree.unit(file)
                for path, row in unit.classes():
                    symbol = ClassSymbol(unit, path, row)
                    if row.name == last and f".{symbol.qualified_name}".endswith(f".{name}"):
                        found.append(symbol)
        found = self._effective(found)
        found = found or self._exported(name, trees)
        return _distinct(found)

    def _effective(self, symbols: list[ClassSymbol]) -> list[ClassSymbol]:
        """Of several definitions of one qualified name, the one that the name means."""
        best: dict[tuple[str, str], ClassSymbol] = {}
        for symbol in symbols:
            key = (symbol.repository.name, symbol.qualified_name)
            known = best.get(key)
            rank = self.resolver.rank(symbol.unit, symbol.row)
            if known is None or rank < self.resolver.rank(known.unit, known.row):
                best[key] = symbol
        return list(best.values())

    def _exported(self, name: str, trees: list[SourceTree]) -> list[ClassSymbol]:
        """A name as a top-level package knows it: `PretrainedConfig` (an alias there), `nn.Linear`."""
        found = []
        for tree in trees:
            for top in tree.top_packages():
                found += self._absolute(f"{top}.{name}", [tree])
        return found

    def _refuse_other(self, name: str, trees: list[SourceTree]) -> None:
        """Raise a sentence of its own where `name` is known but is no class."""
        for found in self.resolver.absolute(name, trees):
            if found.kind in {"function", "module"} and found.unit is not None:
                what = "a function" if found.kind == "function" else "a module"
                line = found.row.line if found.row is not None else 1
                raise SourceError(
                    f"{name} is {what}, not a class.",
                    next_step="Name a class, such as transformers.LlamaForCausalLM.",
                    location=f"{found.unit.file}:{line}",
                )

    def _at_line(self, path: str, line: int, trees: list[SourceTree]) -> Target:
        for tree in trees:
            file = path
            if Path(path).is_absolute():
                resolved = Path(path).resolve()
                if not resolved.is_relative_to(tree.repository.root.resolve()):
                    continue
                file = resolved.relative_to(tree.repository.root.resolve()).as_posix()
            if not tree.registered(file):
                continue
            unit = tree.unit(file)
            inside = [(p, row) for p, row in unit.classes() if row.first_line <= line <= row.end_line]
            if not inside:
                held = ", ".join(f"{row.name} ({row.line}-{row.end_line})" for _, row in list(unit.classes())[:8])
                raise SourceError(
                    f"No class stands at line {line} of {file}.",
                    next_step=f"Its classes and their lines: {held}." if held else "The file defines no class.",
                )
            qualname, row = max(inside, key=lambda item: item[1].line)
            methods = [m for m in row.body if isinstance(m, FunctionRow) and m.line <= line <= m.end_line]
            return Target(ClassSymbol(unit, qualname, row), None, methods[0].name if methods else "")
        raise PathRefusedError(
            f"{path!r} is not a Python file of a registered repository.",
            next_step="Give the path relative to the repository's root, e.g. torch/nn/modules/linear.py:60.",
        )

    def nearest(self, name: str, repo: str | None = None) -> list[str]:
        """Class names and model types that resemble `name`, at most five."""
        last = name.rpartition(".")[2]
        names = {n for tree in self._trees(repo) for n in tree.class_names()} | set(self.model_types())
        by_case: dict[str, str] = {}
        for known in sorted(names):
            by_case.setdefault(known.lower(), known)
        low = last.lower()
        pool = [n for n in by_case if abs(len(n) - len(low)) <= max(3, len(low) // 3)]
        close = difflib.get_close_matches(low, pool, n=5, cutoff=0.7)
        close = close or difflib.get_close_matches(low, pool, n=3, cutoff=0.5)
        return [by_case[n] for n in close]

    # model types

    def model_types(self) -> list[str]:
        """Model types of the registered `transformers`, in alphabetical order."""
        return sorted({key for mapping in self._mappings(self.resolver.trees).values() for key, _ in mapping})

    def class_names(self) -> list[str]:
        """Short names of every class in the registered repositories, in alphabetical order."""
        return sorted({name for tree in self._trees(None) for name in tree.class_names()})

    def _mappings(self, trees: list[SourceTree]) -> dict[str, tuple[tuple[str, str], ...]]:
        for tree in trees:
            file = tree.locate(f"{_AUTO}.modeling_auto")
            if file is not None:
                rows = tree.unit(file).rows.rows
                return {
                    row.name: row.entries
                    for row in rows
                    if isinstance(row, AssignRow) and row.entries and row.name.endswith("_NAMES")
                }
        return {}

    def _model_type(self, name: str, trees: list[SourceTree]) -> Target | None:
        """The causal-LM class of a model type, else its main class, else the first class that any mapping names."""
        mappings = self._mappings(trees)
        if not mappings:
            return None
        order = [_CAUSAL, _MAIN, *(m for m in mappings if m not in {_CAUSAL, _MAIN})]
        wanted = {name, name.replace("_", "-"), name.replace("-", "_")}
        for mapping in order:
            for key, value in mappings.get(mapping, ()):
                if key in wanted:
                    found = re.search(r"[\"'](\w+)[\"']", value)  # a tuple of classes: the first
                    symbols = self._of_model_type(key, found[1], trees) if found else []
                    if symbols:
                        return Target(symbols[0], key)
        return None

    def _of_model_type(self, model_type: str, name: str, trees: list[SourceTree]) -> list[ClassSymbol]:
        for tree in trees:
            for folder in (model_type, model_type.replace("-", "_")):
                stem = folder.replace("-", "_")
                file = tree.locate(f"transformers.models.{stem}.modeling_{stem}")
                found = self.resolver.lookup(tree.unit(file), name) if file is not None else None
                if found is not None and found.symbol is not None:
                    return [found.symbol]
        symbols = self._bare(name, trees)
        return [s for s in symbols if not s.unit.secondary and s.module.startswith("transformers.")] or symbols

    # classes

    def forward(self, symbol: ClassSymbol) -> ForwardDef | None:
        """The forward that runs; None where there is none but torch's stand-in (`forward = _forward_unimplemented`)."""
        return self.method(symbol, "forward")

    def method(self, symbol: ClassSymbol, name: str) -> ForwardDef | None:
        member = self.resolver.class_member(symbol, name)
        if member is None:
            return None
        holder, found = member
        if found.unit is None or not isinstance(found.row, FunctionRow):
            return None
        if found.row.stub and not isinstance(holder.members[name], FunctionRow):
            return None
        return ForwardDef(symbol, holder, found.unit, found.row)

    def mro(self, symbol: ClassSymbol) -> list[str]:
        """Qualified names; what is not in source goes by the name it is imported under."""
        return [base if isinstance(base, str) else base.qualified_name for base in self.resolver.mro(symbol)]

    def bases(self, symbol: ClassSymbol) -> list[str]:
        found = [self.resolver.base(symbol, text) for text in symbol.row.bases]
        return [base if isinstance(base, str) else base.qualified_name for base in found]

    def submodules(self, symbol: ClassSymbol) -> list[Submodule]:
        return submodules(self.resolver, symbol)

    def forward_lines(self, forward: ForwardDef) -> list[ForwardLine]:
        """The computational lines of the forward, callees resolved for an object of `forward.symbol`."""
        node = _function(parse(forward.unit.tree.source(forward.file)), forward.row)
        body = node.child_by_field_name("body") if node is not None else None
        if body is None:
            raise SourceError(
                f"{forward.file} changed while it was read.",
                next_step="Ask again.",
                location=f"{forward.file}:{forward.line}",
            )
        callees = Callees(self.resolver, forward.symbol, forward.defined_in, forward.row)
        try:
            return LineReader(callees).read(body)
        except RecursionError:
            raise SourceError(
                "The forward nests expressions too deeply to be read.", location=f"{forward.file}:{forward.line}"
            ) from None

    def subclasses(self, symbol: ClassSymbol) -> tuple[list[str], bool]:
        """Qualified names of the classes that name `symbol` as a base, and whether each was verified: beyond a number
        of files the names are those of classes whose base merely bears the same last name."""
        candidates = [
            (tree, name, file)
            for tree in self.resolver.trees
            for name, file in tree.textual_subclasses(symbol.name)
            if not file.rpartition("/")[2].startswith("modular_")
        ]
        if len({(tree.repository.name, file) for tree, _, file in candidates}) > _SUBCLASS_FILES:
            return sorted({f"{tree.module_name(file)}.{name}" for tree, name, file in candidates}), False
        found = []
        for tree, name, file in candidates:
            for path, row in tree.unit(file).classes():
                if row.name == name:
                    inner = ClassSymbol(tree.unit(file), path, row)
                    bases = [self.resolver.base(inner, text) for text in row.bases]
                    if any(not isinstance(base, str) and base.same(symbol) for base in bases):
                        found.append(inner.qualified_name)
        return sorted(set(found)), True

    def template_of(self, symbol: ClassSymbol) -> str:
        """The modular_*.py file that the class's modeling_*.py is generated from; empty where there is none."""
        folder, _, name = symbol.file.rpartition("/")
        file = f"{folder}/modular_{name.removeprefix('modeling_')}"
        return file if name.startswith("modeling_") and symbol.unit.tree.holds(file) else ""

    def exported_as(self, symbol: ClassSymbol) -> list[str]:
        """Shorter dotted names, in the packages above its module, under which the class can be imported."""
        if "." in symbol.path:
            return []
        found = []
        parts = symbol.module.split(".")
        for size in range(1, len(parts)):
            package = ".".join(parts[:size])
            file = symbol.unit.tree.locate(package)
            if file is None:
                continue
            unit = symbol.unit.tree.unit(file)
            if (
                unit.rows.lazy
                and symbol.name not in unit.bindings
                and symbol.name not in (symbol.unit.rows.exports or ())
            ):
                continue  # such a package serves what `__all__` names; looking would read every file below it
            target: Found | None = self.resolver.lookup(unit, symbol.name)
            if target is not None and target.symbol is not None and target.symbol.same(symbol):
                found.append(f"{package}.{symbol.name}")
        return found


def open_index(repositories: Sequence[Repository], store: Store) -> Index:
    """An index over the repositories; keep it: what it has read is not read again until a file changes."""
    return Index(repositories, store)


def _distinct(symbols: list[ClassSymbol]) -> list[ClassSymbol]:
    found: list[ClassSymbol] = []
    for symbol in symbols:
        if not any(symbol.same(other) for other in found):
            found.append(symbol)
    return found


def _function(root: Node, row: FunctionRow) -> Node | None:
    """The `def` node of a row, found by its line."""
    pending = [root]
    while pending:
        node = pending.pop()
        if node.type == "function_definition" and node.start_point[0] + 1 == row.line:
            return node
        pending.extend(
            child for child in node.named_children if child.start_point[0] < row.line <= child.end_point[0] + 1
        )
    return None
