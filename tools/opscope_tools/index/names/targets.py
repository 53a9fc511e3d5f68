"""What the names that users give mean: classes by short, dotted or exported name, by alias, by place in a file, by model
type, by auto class and configuration; and the nearest names where nothing is meant.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opscope_schemas.errors import (
    AmbiguousNameError,
    ConfigError,
    InputError,
    PathRefusedError,
    SourceError,
    UnknownNameError,
)

from opscope_tools.index.names.auto_classes import AutoClasses
from opscope_tools.index.names.config_classes import model_of
from opscope_tools.source.python.found import ClassSymbol
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import FunctionRow

#: `path.py:line`, `path.py:Name` and `path.py::Name`
IN_FILE = re.compile(r"(?P<path>.+\.py)::?(?:(?P<line>\d+)|(?P<name>[A-Za-z_][\w.<>]*))$")


@dataclass(frozen=True, eq=False)
class Target:
    """What a target names; `model_type` is set where it was a model type or an auto class with a configuration,
    `method` where it was a line in a method."""

    symbol: ClassSymbol
    model_type: str | None = None
    method: str = ""


class Names:
    """Lookups of names over the repositories of one resolver."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self.auto = AutoClasses(resolver)

    def trees(self, repo: str | None) -> list[SourceTree]:
        """The trees of one repository, or of all."""
        trees = [tree for tree in self.resolver.trees if repo is None or tree.repository.name == repo]
        if not trees:
            names = sorted(tree.repository.name for tree in self.resolver.trees)
            raise UnknownNameError("repository", str(repo), names, next_step="Register it with --repo NAME=PATH.")
        return trees

    def target(self, name: str, repo: str | None = None, config: Mapping[str, object] | None = None) -> Target:
        """The one meaning of `name`; raises `AmbiguousNameError` where several files outside modular_* define it."""
        found = self.targets(name, repo, config)
        rivals = [t for t in found if not t.symbol.unit.secondary] or found
        if len(rivals) > 1:
            raise AmbiguousNameError("class", name, _told_apart([t.symbol for t in rivals]))
        return rivals[0]

    def targets(self, name: str, repo: str | None = None, config: Mapping[str, object] | None = None) -> list[Target]:
        """Every reading of `name`; those that do not run (modular_*.py, stand-ins) last. An auto class with a
        configuration means the class that it picks."""
        trees = self.trees(repo)
        name = name.strip()
        if not name:
            raise InputError(
                "An empty name means no class.", next_step="Give a class name, a model type or path.py:line."
            )
        found = self._readings(name, trees)
        if config is not None:
            return [self._picked(target, config, trees) for target in found]
        return found

    def _readings(self, name: str, trees: list[SourceTree]) -> list[Target]:
        in_file = IN_FILE.match(name)
        if in_file is not None:
            return self._in_file(in_file["path"], in_file["line"], in_file["name"], trees)
        if name.endswith(".py") or "/" in name:
            raise UnknownNameError(
                "class", name, next_step="For a file give path.py:line, the line inside the class, or path.py:Class."
            )
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
            raise UnknownNameError("class", name, self.nearest(name, trees), next_step="Check the spelling.")
        found.sort(key=lambda s: (s.unit.secondary, s.qualified_name.count("."), s.qualified_name, s.file))
        return [Target(symbol) for symbol in found]

    # by name

    def _absolute(self, name: str, trees: Sequence[SourceTree]) -> list[ClassSymbol]:
        return _distinct([f.symbol for f in self.resolver.absolute(name, trees) if f.symbol is not None])

    def _bare(self, name: str, trees: Sequence[SourceTree]) -> list[ClassSymbol]:
        """Classes by their own name or the end of their qualified name, else as a package knows them, else by alias."""
        found = []
        last = name.rpartition(".")[2]
        for tree in trees:
            for file in tree.files_defining(last):
                unit = tree.unit(file)
                for path, row in unit.classes():
                    symbol = ClassSymbol(unit, path, row)
                    if row.name == last and f".{symbol.qualified_name}".endswith(f".{name}"):
                        found.append(symbol)
        found = self._effective(found) or self._exported(name, trees) or self._bound(name, trees)
        return _distinct(found)

    def _effective(self, symbols: list[ClassSymbol]) -> list[ClassSymbol]:
        """Of several definitions of one qualified name in a file, the one that the name means."""
        best: dict[tuple[str, str, str], ClassSymbol] = {}
        for symbol in symbols:
            key = (symbol.repository.name, symbol.file, symbol.qualified_name)
            known = best.get(key)
            rank = self.resolver.rank(symbol.unit, symbol.row)
            if known is None or rank < self.resolver.rank(known.unit, known.row):
                best[key] = symbol
        return list(best.values())

    def _exported(self, name: str, trees: Sequence[SourceTree]) -> list[ClassSymbol]:
        """A name as a top-level package knows it: `PretrainedConfig` (an alias there), `nn.Linear`."""
        found = []
        for tree in trees:
            for top in tree.top_packages():
                found += self._absolute(f"{top}.{name}", [tree])
        return found

    def _bound(self, name: str, trees: Sequence[SourceTree]) -> list[ClassSymbol]:
        """A name that some module binds to a class without defining it: `Name = Other`, `Name = type("Name", ...)`."""
        last = name.rpartition(".")[2]
        found = []
        for tree in trees if last.isidentifier() else ():
            for file in tree.files_mentioning(last):
                unit = tree.unit(file)
                if last in unit.bindings and f".{unit.name}.{last}".endswith(f".{name}"):
                    bound = self.resolver.lookup(unit, last)
                    if bound is not None and bound.symbol is not None:
                        found.append(bound.symbol)
        return found

    def _refuse_other(self, name: str, trees: Sequence[SourceTree]) -> None:
        """Raise a sentence of its own where `name` is known but is no class, or where only running would tell."""
        configured = self.auto.config_class(name, trees)
        if configured is not None:
            model_type, config = configured
            raise SourceError(
                f"The model type {model_type} has a configuration, {config.name}, but no class that runs is made from it.",
                next_step="Name the class that you mean.",
                location=f"{config.file}:{config.line}",
            )
        for found in self.resolver.absolute(name, trees):
            if found.kind in {"function", "module"} and found.unit is not None:
                what = "a function" if found.kind == "function" else "a module"
                line = found.row.line if found.row is not None else 1
                raise SourceError(
                    f"{name} is {what}, not a class.",
                    next_step="Name a class, such as transformers.LlamaForCausalLM.",
                    location=f"{found.unit.file}:{line}",
                )
        hook = self._hook(name, trees)
        if hook is not None:
            unit, row = hook
            raise UnknownNameError(
                "class", name, self.nearest(name, trees),
                next_step=f"{unit.name} has a __getattr__ ({unit.file}:{row.line}) that may make it at run time; its "
                "source does not tell. Name the class by the module that defines it.",
            )  # fmt: skip

    def _hook(self, name: str, trees: Sequence[SourceTree]) -> tuple[Unit, FunctionRow] | None:
        """The `__getattr__` of the module that a dotted name would be taken from."""
        module = name.rpartition(".")[0]
        for found in self.resolver.absolute(module, trees) if module else ():
            rows = found.unit.bindings.get("__getattr__", ()) if found.kind == "module" and found.unit else ()
            if found.unit is not None and rows and isinstance(rows[-1], FunctionRow):
                return found.unit, rows[-1]
        return None

    # by place

    def _in_file(self, path: str, line: str | None, name: str | None, trees: list[SourceTree]) -> list[Target]:
        for tree in trees:
            file = _relative(path, tree)
            if file is None or not tree.registered(file):
                continue
            unit = tree.unit(file)
            return [_at_line(unit, int(line))] if line else self._named_in(unit, name or "", trees)
        here = Path(path)
        if not here.is_absolute() and here.is_file():  # as the shell's own folder has it
            return self._in_file(str(here.resolve()), line, name, trees)
        ending = [(tree, file) for tree in trees for file in tree.files() if file.endswith(f"/{path}")]
        if len(ending) == 1:
            return self._in_file(str(ending[0][0].repository.root / ending[0][1]), line, name, trees)
        known = ", ".join(file for _, file in ending[:8])
        raise PathRefusedError(
            f"{path!r} is not a Python file of a registered repository.",
            next_step=f"Did you mean one of: {known}?"
            if ending
            else "Give the path relative to the repository's root, e.g. torch/nn/modules/linear.py:60.",
        )

    def _named_in(self, unit: Unit, name: str, trees: list[SourceTree]) -> list[Target]:
        """The classes that a file calls `name`: its own ones, nested ones too, else what the name is bound to there."""
        own = [ClassSymbol(unit, path, row) for path, row in unit.classes() if f".{path}".endswith(f".{name}")]
        found = self._effective(own)
        if not found:
            bound = self.resolver.dotted(unit, name)
            found = [bound.symbol] if bound is not None and bound.symbol is not None else []
        if not found:
            names = [row.name for _, row in unit.classes()]
            close = difflib.get_close_matches(name, names, n=5) or self.nearest(name, trees)
            raise UnknownNameError("class", f"{unit.file}:{name}", close, next_step=_held(unit))
        return [Target(symbol) for symbol in found]

    # model types and auto classes

    def _model_type(self, name: str, trees: list[SourceTree]) -> Target | None:
        """The class of a model type that generates, else its main class, else the first class that any mapping names, else
        the one that its configuration class is for."""
        for model_type, classes in self.auto.of_model_type(name, trees):
            symbols = self._of_model_type(model_type, classes[0], trees) if classes else []
            if symbols:
                return Target(symbols[0], model_type)
        configured = self.auto.config_class(name, trees)
        found = model_of(self.resolver, configured[1]) if configured is not None else None
        if configured is None or found is None:
            return None
        symbol, alone = found
        return Target(symbol, configured[0] if alone else None)  # a part of models is what these call

    def _of_model_type(self, model_type: str, name: str, trees: list[SourceTree]) -> list[ClassSymbol]:
        for tree in trees:
            stem = model_type.replace("-", "_")
            file = tree.locate(f"transformers.models.{stem}.modeling_{stem}")
            found = self.resolver.lookup(tree.unit(file), name) if file is not None else None
            if found is not None and found.symbol is not None:
                return [found.symbol]
        symbols = self._bare(name, trees)
        return [s for s in symbols if not s.unit.secondary and s.module.startswith("transformers.")] or symbols

    def _picked(self, target: Target, config: Mapping[str, object], trees: list[SourceTree]) -> Target:
        """What an auto class picks for a configuration; any other class is itself."""
        table = self.auto.table(target.symbol)
        if table is None and target.symbol.name.startswith("Auto"):
            raise ConfigError(
                f"{target.symbol.qualified_name} picks no model class, so a configuration does not say what it means.",
                next_step="Leave `config` out, or ask for an auto class of models such as AutoModel.",
            )
        if table is None:
            return target
        model_type, name = self.auto.pick(target.symbol, table, config)
        symbols = self._of_model_type(model_type, name, trees) or self._of_model_type(
            model_type, name, self.trees(None)
        )
        if not symbols:
            raise SourceError(
                f"{target.symbol.name} names {name} for {model_type}, a class that no registered file defines.",
                next_step="Name the class that you mean.",
                location=f"{target.symbol.file}:{target.symbol.line}",
            )
        given = config.get("model_type")  # several model types may share the one that the tables hold
        return Target(symbols[0], given if isinstance(given, str) and given else model_type)

    # all names

    def nearest(self, name: str, trees: Sequence[SourceTree]) -> list[str]:
        """Class names and model types that resemble `name`, at most five."""
        last = name.rpartition(".")[2]
        names = {n for tree in trees for n in tree.class_names()} | set(self.auto.model_types(self.resolver.trees))
        by_case: dict[str, str] = {}
        for known in sorted(names):
            by_case.setdefault(known.lower(), known)
        low = last.lower()
        pool = [n for n in by_case if abs(len(n) - len(low)) <= max(3, len(low) // 3)]
        close = difflib.get_close_matches(low, pool, n=5, cutoff=0.7)
        close = close or difflib.get_close_matches(low, pool, n=3, cutoff=0.5)
        return [by_case[n] for n in close]


def _relative(path: str, tree: SourceTree) -> str | None:
    """`path` relative to the repository's root; None where it lies outside."""
    if not Path(path).is_absolute():
        return path
    resolved, root = Path(path).resolve(), tree.repository.root.resolve()
    return resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else None


def _at_line(unit: Unit, line: int) -> Target:
    """The innermost class at a line."""
    inside = [(p, row) for p, row in unit.classes() if row.first_line <= line <= row.end_line]
    if not inside:
        raise SourceError(f"No class stands at line {line} of {unit.file}.", next_step=_held(unit))
    qualname, row = max(inside, key=lambda item: item[1].line)
    methods = [m for m in row.body if isinstance(m, FunctionRow) and m.line <= line <= m.end_line]
    return Target(ClassSymbol(unit, qualname, row), None, methods[0].name if methods else "")


def _held(unit: Unit) -> str:
    held = ", ".join(f"{row.name} ({row.line}-{row.end_line})" for _, row in list(unit.classes())[:8])
    return f"Its classes and their lines: {held}." if held else "The file defines no class."


def _told_apart(symbols: Sequence[ClassSymbol]) -> list[str]:
    """A name for each class that no other of them bears."""
    names = [symbol.qualified_name for symbol in symbols]
    if len(set(names)) == len(names):
        return names
    places = [(symbol.repository.name, name) for symbol, name in zip(symbols, names, strict=True)]
    if len(set(places)) == len(places):
        return [f"{name} (repo {repository!r})" for repository, name in places]
    return [f"{symbol.file}:{symbol.line}" for symbol in symbols]


def _distinct(symbols: Sequence[ClassSymbol]) -> list[ClassSymbol]:
    found: list[ClassSymbol] = []
    for symbol in symbols:
        if not any(symbol.same(other) and symbol.file == other.file for other in found):
            found.append(symbol)
    return found
