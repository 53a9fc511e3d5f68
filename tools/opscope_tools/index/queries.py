"""The questions that tools ask of the index: classes by name (targets.py), the forward of a class and its lines, bases,
submodules, re-exports. What reads bodies is imported by the first question that needs it, so that a new process answers
where a class or a forward stands without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opscope_cache.store import Store
from opscope_schemas.common import Repository
from opscope_schemas.errors import SourceError

from opscope_tools.index.names.remarks import patches, remarks
from opscope_tools.index.names.targets import Names, Target
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.parse import Node, parse
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import FunctionRow

if TYPE_CHECKING:
    from opscope_schemas.index import ForwardLine

    from opscope_tools.index.modules.held_modules import HeldModule


@dataclass(frozen=True, eq=False)
class ForwardDef:
    """The `def forward` that runs for `symbol`."""

    symbol: ClassSymbol
    defined_in: ClassSymbol
    unit: Unit
    row: FunctionRow

    @property
    def file(self) -> str:
        """Relative to the repository that holds its text, which may be another than the class's."""
        return self.unit.file

    @property
    def line(self) -> int:
        """1-based line of its `def`."""
        return self.row.line

    @property
    def end_line(self) -> int:
        """1-based last line of its body."""
        return self.row.end_line


class Index:
    """Answers over the registered repositories. Everything is read on demand; nothing is imported."""

    def __init__(
        self,
        repositories: Sequence[Repository],
        folder: Path | None = None,
        on_cold: Callable[[SourceTree], None] | None = None,
    ) -> None:
        self.resolver = Resolver([SourceTree(repository, folder, on_cold) for repository in repositories])
        self.names = Names(self.resolver)

    def close(self) -> None:
        """Release the index files; the index cannot be asked any more."""
        for tree in self.resolver.trees:
            tree.close()

    def question(self, checkpoint: Callable[[], None] | None = None) -> AbstractContextManager[None]:
        """Inside, nothing is looked up twice, so the files count as they were when they were first read; `checkpoint` is
        called with every lookup and may raise."""
        return self.resolver.question(checkpoint)

    # names

    def resolve(self, name: str, repo: str | None = None) -> list[ClassSymbol]:
        """Every class that `name` may mean, the best first; raises `UnknownNameError` with the nearest names."""
        return [target.symbol for target in self.targets(name, repo)]

    def one(self, name: str, repo: str | None = None) -> ClassSymbol:
        """The class that `name` means; raises `AmbiguousNameError` where several files outside modular_* define it."""
        return self.target(name, repo).symbol

    def target(self, name: str, repo: str | None = None, config: Mapping[str, Any] | None = None) -> Target:
        """As `one`, with the model type where `name` is one, or an auto class that picks a class for `config`."""
        return self.names.target(name, repo, config)

    def targets(self, name: str, repo: str | None = None, config: Mapping[str, Any] | None = None) -> list[Target]:
        """Every reading of `name`; those that do not run (modular_*.py, stand-ins) last."""
        return self.names.targets(name, repo, config)

    def nearest(self, name: str, repo: str | None = None) -> list[str]:
        """Class names and model types that resemble `name`, at most five."""
        return self.names.nearest(name, self.names.trees(repo))

    def model_types(self) -> list[str]:
        """Model types of the registered `transformers`, in alphabetical order."""
        return self.names.auto.model_types(self.resolver.trees)

    def class_names(self) -> list[str]:
        """Short names of every class in the registered repositories, in alphabetical order."""
        return sorted({name for tree in self.resolver.trees for name in tree.class_names()})

    def picks(self, symbol: ClassSymbol) -> int:
        """Between how many model types an auto class picks by the configuration; 0 for any other class."""
        table = self.names.auto.table(symbol)
        return len(table.classes) if table is not None else 0

    def patches(self, symbol: ClassSymbol) -> list[str]:
        """Assignments that put another forward in place when they run, a sentence each."""
        return list(patches(self.resolver, symbol))

    def remarks(self, symbol: ClassSymbol) -> list[str]:
        """What a reader must know of how the class came to its name and bases, a sentence each."""
        return remarks(self.resolver, self.names.auto, symbol)

    # classes

    def forward(self, symbol: ClassSymbol) -> ForwardDef | None:
        """The forward that runs; None where there is none but torch's stand-in (`forward = _forward_unimplemented`)."""
        return self.method(symbol, "forward")

    def method(self, symbol: ClassSymbol, name: str) -> ForwardDef | None:
        """The method that runs for a name; None where source has none, or only a stand-in of a base."""
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
        """Qualified names of the direct bases, in order; as written where they do not resolve."""
        found = self.resolver.bases(symbol)
        return [base if isinstance(base, str) else base.qualified_name for base in found]

    def submodules(self, symbol: ClassSymbol) -> list[HeldModule]:
        """The modules that an object of the class holds, those of branches not taken by default included."""
        from opscope_tools.index.modules.held_modules import submodules

        with self.question():
            return submodules(self.resolver, symbol)

    def forward_lines(self, forward: ForwardDef) -> list[ForwardLine]:
        """The computational lines of the forward, callees resolved for an object of `forward.symbol`."""
        root = parse(forward.unit.tree.source(forward.file))
        node = _function(root, forward.row)
        body = node.child_by_field_name("body") if node is not None else None
        if body is None:
            broken = "does not parse around its forward, or nests statements too deeply to be read"
            raise SourceError(
                f"{forward.file} {broken if root.has_error else 'changed while it was read'}.",
                next_step="Look at the lines around it." if root.has_error else "Ask again.",
                location=f"{forward.file}:{forward.line}",
            )
        from opscope_tools.index.forwards.callees import Callees
        from opscope_tools.index.forwards.lines import LineReader

        callees = Callees(self.resolver, forward.symbol, forward.defined_in, forward.row)
        try:
            with self.question():
                return LineReader(callees).read(body)
        except RecursionError:
            raise SourceError(
                "The forward nests expressions too deeply to be read.", location=f"{forward.file}:{forward.line}"
            ) from None

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


def open_index(
    repositories: Sequence[Repository], store: Store, on_cold: Callable[[SourceTree], None] | None = None
) -> Index:
    """An index over the repositories, kept on disk beside `store`. Keep it: what it has read is not read again until a
    file changes. `on_cold` is called when a question finds a repository mostly unread."""
    return Index(repositories, store.folder, on_cold)


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
