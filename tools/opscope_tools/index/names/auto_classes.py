"""The auto classes of transformers, read off their source: which class a model type leads to, and which one an auto
class picks for a configuration.

An auto class is one whose `_model_mapping` is a mapping made from two tables: model type -> configuration class, and
model type -> class or classes. `pick` follows `_LazyAutoMapping.__getitem__` and `_get_model_class`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from opscope_schemas.errors import ConfigError

from opscope_tools.source.python.found import ClassSymbol, Found
from opscope_tools.source.python.imports import imported
from opscope_tools.source.python.made_classes import call_of
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import AssignRow
from opscope_tools.source.python.trees import tree_of

_MODELING_AUTO = "transformers.models.auto.modeling_auto"
_CONFIGURATION_AUTO = "transformers.models.auto.configuration_auto"
#: the tables that a model type is looked up in before the rest, as written: classes that generate (for an encoder-decoder
#: the one that has both sides comes before its decoder alone), then main classes
_FIRST = tuple(
    f"MODEL_{kind}MAPPING_NAMES"
    for kind in (
        "FOR_SEQ_TO_SEQ_CAUSAL_LM_", "FOR_SPEECH_SEQ_2_SEQ_", "FOR_CAUSAL_LM_", "FOR_IMAGE_TEXT_TO_TEXT_",
        "FOR_VISION_2_SEQ_", "FOR_MULTIMODAL_LM_", "FOR_TEXT_TO_WAVEFORM_", "",
    )
)  # fmt: skip

Entries = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class AutoTable:
    """The two tables of an auto class: model type -> names of configuration classes, and of model classes."""

    configs: Entries
    classes: Entries


class AutoClasses:
    """Reads the tables of one resolver's repositories."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        #: tables by module and name, each with the other modules that it was read from
        self._kept: WeakKeyDictionary[Unit, dict[str, tuple[Mapping[str, str], frozenset[Unit]]]] = WeakKeyDictionary()

    # model types

    def model_types(self, trees: Sequence[SourceTree]) -> list[str]:
        """Model types of the registered `transformers`, in alphabetical order."""
        named = {key for _, row in self._tables(trees) for key, _ in row.entries}
        return sorted(named.union(*(self._configured(tree) for tree in trees)))

    def of_model_type(self, name: str, trees: Sequence[SourceTree]) -> Iterator[tuple[str, Sequence[str]]]:
        """(model type, names of classes) from each table that holds the type, in the order to look: the tables of
        classes that generate, the main one, the others; `-`, `_` and `.` do not count."""
        tables = dict(self._tables(trees))
        wanted = _plain(name)
        for table in [*_FIRST, *(t for t in tables if t not in _FIRST)]:
            for key, value in tables[table].entries if table in tables else ():
                if _plain(key) == wanted:
                    yield key, _names(value)

    def config_class(self, name: str, trees: Sequence[SourceTree]) -> tuple[str, ClassSymbol] | None:
        """(model type, its configuration class) by the table of the registered `transformers`; `-`, `_` and `.` do not
        count."""
        wanted = _plain(name)
        for tree in trees:
            for key, value in self._configured(tree).items():
                for class_name in value if _plain(key) == wanted else ():
                    symbol = _defined(tree, class_name)
                    if symbol is not None:
                        return key, symbol
        return None

    def _configured(self, tree: SourceTree) -> Entries:
        """Model type -> names of configuration classes, of a `transformers`."""
        file = tree.locate(_CONFIGURATION_AUTO)
        return self._entries(tree.unit(file), "CONFIG_MAPPING_NAMES") if file is not None else {}

    def _tables(self, trees: Sequence[SourceTree]) -> list[tuple[str, AssignRow]]:
        for tree in trees:
            file = tree.locate(_MODELING_AUTO)
            if file is not None:
                rows = tree.unit(file).rows.rows
                tables = [row for row in rows if isinstance(row, AssignRow) and row.entries]
                return [(row.name, row) for row in tables if row.name.endswith("_NAMES")]
        return []

    # auto classes

    def table(self, symbol: ClassSymbol) -> AutoTable | None:
        """The tables of an auto class; None where `symbol` is none."""
        member = self._resolver.class_member(symbol, "_model_mapping")
        found = member[1] if member is not None else None
        if found is None or found.unit is None or not isinstance(found.row, AssignRow):
            return None
        called = call_of(found.row.value)
        if called is None or len(called[1].args) != 2:
            return None
        configs, classes = (self._entries(found.unit, ast.unparse(argument)) for argument in called[1].args)
        return AutoTable(configs, classes) if configs and classes else None

    def _entries(self, unit: Unit, name: str) -> Entries:
        table = self._of(self._resolver.dotted(unit, name), 0)
        return {key: _names(value) for key, value in table.items()}

    def _of(self, found: Found | None, depth: int) -> Mapping[str, str]:
        """The entries (key -> text of the value) of the table that was found, after all statements that fill it."""
        if found is None or found.unit is None or not isinstance(found.row, AssignRow) or depth > 8:
            return {}
        unit, name = found.unit, found.row.name
        kept = self._kept.setdefault(unit, {})
        known = kept.get(name)
        if known is None or any(other.tree.unit(other.file) is not other for other in known[1]):
            read: set[Unit] = set()
            known = kept[name] = self._filled(unit, name, depth + 1, read), frozenset(read)
        return known[0]

    def _filled(self, unit: Unit, name: str, depth: int, read: set[Unit]) -> dict[str, str]:
        """`_of` read off the source; `read` takes the other modules that it depends on."""
        entries: dict[str, str] = {}

        def other(found: Found | None) -> dict[str, str]:
            if found is not None and found.unit is not None:
                read.add(found.unit)
            return dict(self._of(found, depth))

        def contents(node: ast.expr) -> dict[str, str]:
            if not isinstance(node, ast.Name):
                return _spelt_out(node, contents)
            return dict(entries) if node.id == name else other(self._resolver.lookup(unit, node.id))

        for statement in _statements(unit):
            if isinstance(statement, ast.ImportFrom):
                for one in imported(statement, unit.package):
                    entries = other(self._resolver.binds(unit, one)) if one.name == name else entries
            elif isinstance(statement, ast.Assign) and any(_is_name(target, name) for target in statement.targets):
                entries = contents(statement.value)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                call = statement.value
                function = call.func
                if isinstance(function, ast.Attribute) and function.attr == "update" and _is_name(function.value, name):
                    entries |= contents(ast.Call(ast.Name("dict", ast.Load()), call.args, call.keywords))
        return entries

    def pick(self, symbol: ClassSymbol, table: AutoTable, config: Mapping[str, object]) -> tuple[str, str]:
        """(model type as its tables have it, class name) that the auto class picks; raises `ConfigError` where it picks none."""
        given = config.get("architectures")
        named = given if isinstance(given, list | tuple) else [given]
        architectures = [name for name in named if isinstance(name, str)]
        model_type = config.get("model_type")
        if isinstance(model_type, str) and model_type:
            for held in self._candidates(table, model_type):
                names = table.classes.get(held)
                if names:
                    return held, next((name for name in architectures if name in names), names[0])
            known = ", ".join(sorted(table.classes)[:6])
            shown = f"the model type {model_type!r}" if model_type in table.configs else "a model type of that name"
            raise ConfigError(
                f"{symbol.name} has no class for {shown}.",
                next_step=f"It knows {len(table.classes)} model types: {known}, ... Ask for another auto class.",
            )
        for held, names in table.classes.items():
            for name in architectures:
                if name in names:
                    return held, name
        raise ConfigError(
            f"The configuration names neither a model_type nor an architecture of {symbol.name}.",
            next_step='Give a config.json, or an object such as {"model_type": "llama"}.',
        )

    @staticmethod
    def _candidates(table: AutoTable, model_type: str) -> list[str]:
        """The model types to look up, in order: several may share one configuration class, which is what is known at
        run time; the last one of them stands for it, then come the others as written."""
        config = table.configs.get(model_type)
        alike = [key for key, value in table.configs.items() if value == config] if config else []
        return [*alike[-1:], *alike] or [model_type]


def _defined(tree: SourceTree, class_name: str) -> ClassSymbol | None:
    for file in tree.files_defining(class_name):
        unit = tree.unit(file)
        row = next((row for path, row in unit.classes() if path == class_name), None)
        if row is not None and not unit.secondary:
            return ClassSymbol(unit, class_name, row)
    return None


def _plain(model_type: str) -> str:
    return re.sub(r"[-_.]", "", model_type)


def _statements(unit: Unit) -> list[ast.stmt]:
    """The statements of a module's own level; none where Python cannot read the file."""
    tree = tree_of(unit.tree.source(unit.file).decode("utf-8-sig", "replace"))
    return tree.body if tree is not None else []


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _spelt_out(node: ast.expr, contents: Callable[[ast.expr], dict[str, str]]) -> dict[str, str]:
    """The entries of `{...}`, `[(key, value), *table.items()]`, `a | b` and of calls on such; `contents` gives those of
    the parts."""
    entries: dict[str, str] = {}
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                entries |= contents(value)
            elif isinstance(key, ast.Constant):
                entries[str(key.value)] = ast.unparse(value)
    elif isinstance(node, ast.List | ast.Tuple):
        for pair in node.elts:
            if isinstance(pair, ast.Starred):
                entries |= contents(pair.value)
            elif isinstance(pair, ast.Tuple) and len(pair.elts) == 2 and isinstance(pair.elts[0], ast.Constant):
                entries[str(pair.elts[0].value)] = ast.unparse(pair.elts[1])
    elif isinstance(node, ast.BinOp):
        entries = {**contents(node.left), **contents(node.right)}
    elif isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in {"items", "copy"}:
            entries |= contents(node.func.value)
        for argument in node.args:
            entries |= contents(argument)
        for keyword in node.keywords:
            entries |= contents(keyword.value) if keyword.arg is None else {keyword.arg: ast.unparse(keyword.value)}
    return entries


def _names(value: str) -> list[str]:
    """The class names in the text of an entry: a string, or a tuple of such."""
    return re.findall(r"[\"'](\w+)[\"']", value)
