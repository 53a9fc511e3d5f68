"""Which constraints belong to a target of `extract_config`, and the constants of its files."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from opscope_schemas.common import Repository
from opscope_schemas.extracted_config import Check, Constant

from opscope_tools.extract_config.parameters import Sources
from opscope_tools.extract_config.subject import NATIVE, PYTHON, Subject
from opscope_tools.index import ClassSymbol, Index
from opscope_tools.index.configurations.constants import file_constants
from opscope_tools.index.modules.held_modules import built_model
from opscope_tools.running.tool import ToolContext
from opscope_tools.settings import Meanings, checks_of, definitions_named

__all__ = ["built_classes", "checks_of_classes", "checks_of_files", "checks_of_model", "constants_of_files"]


def checks_of_classes(sources: Sources, symbols: Sequence[ClassSymbol], names: Collection[str]) -> list[Check]:
    """The checks in the bodies of the classes, class by class."""
    found: list[Check] = []
    for symbol in symbols:
        if not symbol.qualified_name.startswith("torch.nn.modules.module."):
            found += checks_of(sources.of(symbol.repository, symbol.file), [symbol.path], names)
    return list(dict.fromkeys(found))


def built_classes(index: Index, subject: Subject) -> tuple[list[ClassSymbol], list[str], bool]:
    """The classes of the model's file that the model builds, with their parents in that file; the other files that hold
    classes it builds; and whether the model could be built."""
    model = subject.model
    assert model is not None
    own = {
        ClassSymbol(model.unit, path, row).qualified_name: ClassSymbol(model.unit, path, row)
        for path, row in model.unit.classes()
    }
    rows = built_model(index.resolver, model)
    names = {model.qualified_name, *rows, *(row.class_name for held in rows.values() for row in held)}
    built = bool(rows)
    if not built:
        names |= _mentioned(model, own)
    chosen: dict[str, ClassSymbol] = {}
    others: dict[str, int] = {}
    for name in names:
        symbol = own.get(name)
        if symbol is None:
            module = name.rpartition(".")[0]
            if module and not name.startswith("torch."):
                others[module] = others.get(module, 0) + 1
            continue
        for base in index.resolver.mro(symbol):
            if not isinstance(base, str) and base.qualified_name in own:
                chosen[base.qualified_name] = base
    return sorted(chosen.values(), key=lambda s: s.line), sorted(others), built


def _mentioned(model: ClassSymbol, own: dict[str, ClassSymbol]) -> set[str]:
    """Classes of the file that the model's text leads to by name."""
    lines = model.unit.tree.source(model.file).decode("utf-8", "replace").split("\n")
    by_name = {symbol.name: name for name, symbol in own.items()}
    reached, pending = {model.qualified_name}, [model]
    while pending:
        symbol = pending.pop()
        for word in set(re.findall(r"\w+", "\n".join(lines[symbol.line - 1 : symbol.end_line]))):
            name = by_name.get(word)
            if name is not None and name not in reached:
                reached.add(name)
                pending.append(own[name])
    return reached


def checks_of_model(sources: Sources, classes: Sequence[ClassSymbol], names: Collection[str]) -> list[Check]:
    """The checks of classes of one file, and of the functions of that file that they lead to."""
    if not classes:
        return []
    source = sources.of(classes[0].repository, classes[0].file)
    tops = list(dict.fromkeys(symbol.path.split(".")[0] for symbol in classes))
    return checks_of(source, definitions_named(source, tops), names)


def checks_of_files(
    sources: Sources, context: ToolContext, files: Sequence[tuple[Repository, str]], names: Collection[str]
) -> list[Check]:
    """Every check of the files."""
    from opscope_tools.kernels.cuda.checks import native_checks
    from opscope_tools.source.files import read_text

    found: list[Check] = []
    for number, (repository, file) in enumerate(files):
        if number % 32 == 0:
            context.checkpoint()
            context.progress(number, len(files), "reading checks")
        text = read_text(repository, file)
        if text is None:
            continue
        if file.endswith(PYTHON):
            found += checks_of(sources.of(repository, file), None, names)
        elif file.endswith(NATIVE):
            found += native_checks(file, text, names)
    return found


def constants_of_files(
    sources: Sources, context: ToolContext, files: Sequence[tuple[Repository, str]]
) -> list[Constant]:
    """Module-level constants of Python files, object macros and constants of C++ and CUDA files."""
    from opscope_tools.kernels.cuda.checks import native_constants
    from opscope_tools.source.files import read_text

    found: list[Constant] = []
    for number, (repository, file) in enumerate(files):
        if number % 32 == 0:
            context.checkpoint()
        if file.endswith(NATIVE):
            text = read_text(repository, file)
            found += native_constants(file, text) if text is not None else []
        elif file.endswith(PYTHON):
            source = sources.of(repository, file)
            meanings = Meanings(source)
            for each in file_constants(sources.index.resolver, repository.name, file):
                found.append(Constant(
                    name=each.name, expression=each.expression, value=each.value.data if each.value.known else None,
                    basis=each.basis, meaning=meanings.at(each.line, 0), condition=each.condition, file=file, line=each.line,
                ))  # fmt: skip
    return found
