"""Which model class a configuration class is for, where no auto class names one: parts of models (`chinese_clip_text_model`).

A model declares its configuration by `config: C` or `config_class = C`; a part that is no model of its own takes one in its
constructor. Classes of the configuration's own folder come first.
"""

from __future__ import annotations

from collections.abc import Iterator

from opscope_tools.index.references.receivers import Lineage, declared
from opscope_tools.source.python.found import ClassSymbol
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import Unit
from opscope_tools.source.python.rows import AssignRow, FunctionRow

_MODEL = "PreTrainedModel"
#: how the names of classes that generate end, the likeliest first
_GENERATING = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def declared_configs(resolver: Resolver, symbol: ClassSymbol) -> list[ClassSymbol]:
    """The config classes that a model class declares: by `config: C` or `config_class = C`, itself or by a base."""
    for holder in Lineage(resolver).mro(symbol):
        row = holder.members.get("config_class")
        if isinstance(row, AssignRow) and row.value:
            found = resolver.dotted(holder.unit, row.value)
            if found is not None and found.symbol is not None:
                return [found.symbol]
        row = holder.members.get("config")
        if isinstance(row, AssignRow) and row.annotation:
            return list(declared(resolver, holder.unit, row.annotation))
    return []


def model_of(resolver: Resolver, config: ClassSymbol) -> tuple[ClassSymbol, bool] | None:
    """The class that a configuration class makes, and whether it is a model by itself: of those that declare it the one
    that generates, else the main one; else a module whose constructor takes it, or that has its name. None where there
    is none."""
    units, stem = list(_modeling(config)), _stem(config)
    for takes in (_declares, _constructed):
        found = [s for unit in units for s in _classes(unit) if takes(resolver, s, config) and _runs(resolver, s)]
        if found:
            return min(found, key=lambda s: _rank(s.name, stem)), takes is _declares
    tree = config.unit.tree
    alike = [s for file in tree.files_defining(stem) for s in _classes(tree.unit(file)) if s.name == stem]
    return next(((s, False) for s in alike if not s.unit.secondary and _runs(resolver, s)), None)


def _stem(config: ClassSymbol) -> str:
    return config.name.removesuffix("Config")


def _modeling(config: ClassSymbol) -> Iterator[Unit]:
    """The modules that name the configuration class, those of its own folder first."""
    tree, folder = config.unit.tree, config.file.rpartition("/")[0]
    for file in sorted(tree.files_mentioning(config.name), key=lambda f: (f.rpartition("/")[0] != folder, f)):
        unit = tree.unit(file)
        if not unit.secondary and file != config.file:
            yield unit


def _classes(unit: Unit) -> Iterator[ClassSymbol]:
    for path, row in unit.classes():
        if "." not in path and not row.name.endswith(_MODEL):
            yield ClassSymbol(unit, path, row)


def _declares(resolver: Resolver, symbol: ClassSymbol, config: ClassSymbol) -> bool:
    return any(found.same(config) for found in declared_configs(resolver, symbol))


def _constructed(resolver: Resolver, symbol: ClassSymbol, config: ClassSymbol) -> bool:
    """Whether a class is named as its configuration is, and made from it."""
    init = symbol.members.get("__init__") if symbol.name.startswith(_stem(config)) else None
    annotations = [p.annotation for p in init.parameters if p.annotation] if isinstance(init, FunctionRow) else []
    return any(found.same(config) for text in annotations for found in declared(resolver, symbol.unit, text))


def _runs(resolver: Resolver, symbol: ClassSymbol) -> bool:
    """Whether a class has a forward of its own making, in source that is no base of all modules."""
    return any("forward" in base.members for base in Lineage(resolver).mro(symbol) if base.name != "Module")


def _rank(name: str, stem: str) -> tuple[int, int]:
    """How likely a class is the one that its configuration is named after."""
    for rank, ending in enumerate(_GENERATING):
        if name.endswith(ending):
            return rank, 0
    exact = [f"{stem}Model", stem, f"{stem}Transformer"]
    return (
        (len(_GENERATING), exact.index(name))
        if name in exact
        else (len(_GENERATING) + 1 + (not name.endswith("Model")), 0)
    )


__all__ = ["declared_configs", "model_of"]
