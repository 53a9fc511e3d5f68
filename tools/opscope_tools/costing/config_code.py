"""Which fields of a given configuration the model's own code reads, declared or not.

A published config.json holds more than its class declares: fields that code reads all the same (`getattr(config, "head_dim",
...)`), and others that nothing reads. Which is which stands in source: in the files beside the model's class, and in
those of the library that they import.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from opscope_schemas.common import Repository

from opscope_tools.extract_config.parameters import Sources
from opscope_tools.index import ClassSymbol, Index, Target
from opscope_tools.settings import PythonSource, Reader, config_reads
from opscope_tools.source.python.rows import ImportRow

#: files beside a model that are not its forward, and of the library what reads configurations for other ends
_OTHERS = re.compile(
    r"(^|/)(convert_|modular_|test_|tokenization|processing|image_processing|feature_extraction|video)"
)
_LIBRARY = re.compile(r"/(rope_utils|modeling_rope_utils|masking_utils|cache_utils|activations|integrations/\w+)\.py$")
_CONFIG = re.compile(r"\b\w+Config\b")
_BASES = ("PreTrainedConfig", "PretrainedConfig")
#: files of a folder up to which all of them are taken to belong to one model
_MOST_FILES = 40
#: dtypes, names of files and the like, which describe a checkpoint and no computation
_PARTS = re.compile(r"_configs?$")


def read_by_code(index: Index, target: Target, given: Mapping[str, object]) -> frozenset[str]:
    """The fields among those of `given`, its parts' included, that code of the model reads."""
    names, parts = set(_names(given)), {str(name) for name in given if _PARTS.search(str(name))}
    sources, found = Sources(index), set[str]()
    with index.question(lambda: None):
        for repository, file in _files(index, [target.symbol, *_classes_of_parts(index, given)]):
            left = {name for name in names - found if _mentions(sources, repository, file, name)}
            if left:
                found |= _read_in(sources.of(repository, file), left, parts)
    return frozenset(found)


def _names(given: Mapping[str, object]) -> Iterator[str]:
    for name, value in given.items():
        yield str(name).rpartition(".")[2]
        if isinstance(value, Mapping) and _PARTS.search(str(name)) and name != "quantization_config":
            yield from _names(value)


def _classes_of_parts(index: Index, given: Mapping[str, object]) -> Iterator[ClassSymbol]:
    """The configuration classes that the parts of a composite configuration name by their model type."""
    for value in given.values():
        named = value.get("model_type") if isinstance(value, Mapping) else None
        known = index.names.auto.config_class(named, index.names.trees(None)) if isinstance(named, str) else None
        if known is not None:
            yield known[1]


def _files(index: Index, symbols: Iterable[ClassSymbol]) -> list[tuple[Repository, str]]:
    """The files beside the classes, then those of the library that they import."""
    found: dict[tuple[str, str], tuple[Repository, str]] = {}
    imported: dict[tuple[str, str], tuple[Repository, str]] = {}
    for symbol in symbols:
        tree, folder = symbol.unit.tree, symbol.file.rpartition("/")[0]
        beside = [f for f in tree.files_below(folder) if f.rpartition("/")[0] == folder and f.endswith(".py")]
        for file in beside if len(beside) <= _MOST_FILES else [symbol.file]:
            if _OTHERS.search(file):
                continue
            found[tree.repository.name, file] = (tree.repository, file)
            for module in _imports(index, symbol, file):
                imported[tree.repository.name, module] = (tree.repository, module)
    return list({**found, **imported}.values())


def _imports(index: Index, symbol: ClassSymbol, file: str) -> Iterator[str]:
    tree = symbol.unit.tree
    unit = tree.unit(file)
    for rows in unit.bindings.values():
        for row in rows:
            if isinstance(row, ImportRow):
                known = index.resolver.lookup(unit, row.name)
                if known is not None and known.unit is not None and _LIBRARY.search(known.unit.file):
                    yield known.unit.file


def _mentions(sources: Sources, repository: Repository, file: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", sources.of(repository, file).text) is not None


def _read_in(source: PythonSource, names: set[str], parts: set[str]) -> set[str]:
    own = set(_CONFIG.findall(source.text))
    sought = Reader(own=sorted(own), parents=_BASES, paths=parts, names={name: [name] for name in names})
    found = set(config_reads(source, sought))
    return found | {name for name in names - found if _taken(source, name)}


def _taken(source: PythonSource, name: str) -> bool:
    """Whether a constructor of a configuration takes it out of its keyword arguments, or a method reads it."""
    if "configuration_" not in source.path:
        return False
    word = re.escape(name)
    asked = rf"kwargs\.(get|pop)\(\s*[\"']{word}[\"']|getattr\(\s*self,\s*[\"']{word}[\"']|\bself\.{word}\b(?!\s*=[^=])"
    return re.search(asked, source.text) is not None


__all__ = ["read_by_code"]
