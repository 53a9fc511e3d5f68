"""What a dotted name means, asked of every engine that follows names: one answer, however each has read the files."""

from __future__ import annotations

import ast
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_cache.trees import tree_at
from opscope_schemas.common import Repository
from opscope_tools.index import open_index
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.running.workspace import folder_repository, installed_repository
from opscope_tools.source.python.imports import absolute, exports, imported, standing
from opscope_tools.source.python.rows import Guard, ImportRow
from opscope_tools.source.python.trees import parsed
from opscope_tools.source.storage.entries import read_rows, readable
from opscope_tools.survey.gather import SOURCES, gather
from opscope_tools.survey.holdings import Holdings, Scanned

TOOLS = Path(__file__).parents[2] / "tools" / "opscope_tools"

#: `file.py` is asked for each name on the left; the right is where Python takes it from
FILES = {
    "lib/__init__.py": """
from lib.core import Base as Renamed
from .dispatch import dispatch
from .stars import *
from . import nested
try:
    from lib.absent import either
except ImportError:
    from lib.core import either
""",
    "lib/core.py": "class Base:\n    class Inner: ...\n\ndef either(): ...\n",
    "lib/dispatch.py": "def dispatch(): ...\ndef helper(): ...\n",
    "lib/stars.py": "from .shown import *\nfrom .open import *\n__all__ = ['listed', 'plain']\ndef listed(): ...\n",
    "lib/shown.py": "__all__ = ['chosen']\ndef chosen(): ...\ndef unlisted(): ...\n",
    "lib/open.py": "def plain(): ...\ndef _private(): ...\n",
    "lib/nested/__init__.py": "from ..core import Base\nfrom .. import open as opened\n",
    "lib/nested/deep.py": "from ...core import Base as Deep\nfrom .. import core\n",
    "lib/bare/inside.py": "def within(): ...\n",
    "scripts/beside.py": "def near(): ...\n",
    "scripts/run.py": "from beside import near\n",
    "lib/beside.py": "def near(): ...\n",
    "lib/inner.py": "from beside import near\n",
}
NAMES = {
    ("lib.Renamed", ""): "lib/core.py Base",
    ("lib.dispatch", ""): "lib/dispatch.py dispatch",  # the function hides the module
    ("lib.dispatch.helper", ""): "lib/dispatch.py helper",  # as `from lib.dispatch import helper` means it
    ("lib.either", ""): "lib/core.py either",
    ("lib.listed", ""): "lib/stars.py listed",
    ("lib.plain", ""): "lib/open.py plain",
    ("lib.stars.chosen", ""): "lib/shown.py chosen",
    ("lib.chosen", ""): "",  # `__all__` of lib/stars.py leaves it out
    ("lib.stars.unlisted", ""): "",
    ("lib.stars._private", ""): "",
    ("lib.nested.Base", ""): "lib/core.py Base",
    ("lib.nested.opened.plain", ""): "lib/open.py plain",
    ("lib.nested.deep.core.either", ""): "lib/core.py either",
    ("lib.nested.nowhere", ""): "",
    ("lib.bare.inside.within", ""): "lib/bare/inside.py within",
    ("beside.near", "scripts/run.py"): "scripts/beside.py near",  # a script is run with its folder in front
    ("beside.near", "lib/inner.py"): "",  # a module of a package is not
}


@dataclass
class Engines:
    """The three that follow names over one repository; each answers with "file name", or nothing."""

    repository: Repository

    @cached_property
    def modules(self) -> Modules:
        return Modules(self.repository)

    @cached_property
    def held(self) -> Holdings:
        repository = self.repository
        files = tree_at(repository.root, repository.packages, SOURCES).now().files
        tree = Scanned(repository, files)
        names = {file: tree.module_name(file) for file in files if file.endswith(".py")}
        facts = gather(repository.root, files, names, (), checkpoint=lambda: None, progress=lambda *_: None)
        return Holdings(tree, facts)

    def index(self, dotted: str, near: str) -> str:
        resolver = open_index([self.repository], MemoryStore()).resolver
        found, rest = resolver.reached(resolver.trees[0], dotted, near)
        return f"{found.unit.file} {found.row.name}" if found.unit and found.row and not rest else ""

    def kernels(self, dotted: str, near: str) -> str:
        found = self.modules.resolve(dotted, near)
        return f"{found[0].path} {found[1]}" if found is not None else ""

    def survey(self, dotted: str, near: str) -> str:
        found = self.held.definition(dotted, self.held.by_path.get(near))
        return f"{found.file.path} {found.fact.path}" if found is not None else ""


def written(folder: Path, files: Mapping[str, str]) -> Repository:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder_repository("mine", folder)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Engines:
    return Engines(written(tmp_path_factory.mktemp("names"), FILES))


@pytest.mark.parametrize("engine", ["index", "kernels", "survey"])
def test_every_engine_follows_a_name_by_the_rules_of_python(small: Engines, engine: str) -> None:
    answers = {asked: getattr(small, engine)(*asked) for asked in NAMES}
    assert answers == NAMES


@pytest.mark.parametrize(
    ("package", "top", "least"),
    [("liger-kernel", "liger_kernel", 1000), pytest.param("fla-core", "fla", 1500, marks=pytest.mark.slow)],
)
def test_engines_agree_on_the_names_that_real_packages_import(package: str, top: str, least: int) -> None:
    """Every definition that a file of the package imports from it."""
    engines = Engines(folder_repository(package, kernel_sources()[package]))
    resolver = open_index([engines.repository], MemoryStore()).resolver
    compared, differ = 0, []
    for facts in engines.held.python:
        for one in facts.imports:
            if one.module.partition(".")[0] != top or one.member in {"", "*"}:
                continue
            found, rest = resolver.reached(resolver.trees[0], one.stands, facts.path)
            place = f"{found.unit.file} {found.row.name}" if found.unit and found.row and not rest else ""
            if found.kind in {"class", "function"} and found.alias is None:  # the survey knows no others
                compared += 1
                others = engines.kernels(one.stands, facts.path), engines.survey(one.stands, facts.path)
                differ += [(facts.path, one.stands, place, *others)] if {place} != set(others) else []
    assert differ == []
    assert compared > least


def normal(condition: str) -> str:
    """A condition as `ast` spells it."""
    try:
        return ast.unparse(ast.parse(condition, mode="eval"))
    except SyntaxError:
        return condition


def rows_of_ast(text: str, package: str) -> list[tuple[str, str, str, int, Guard]]:
    """The imports of a module's own level as `ast` shows them."""
    return [
        (one.name, one.module if one.member else one.stands, one.member, node.lineno, guard)
        for guard, node in standing(parsed(text).body)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for one in imported(node, package)
        if one.module != "__future__"
    ]


def rows_of_tree_sitter(source: bytes, package: str) -> list[tuple[str, str, str, int, Guard]]:
    """The same as the index keeps them."""
    return [
        (row.name, absolute(package, row.module), row.member, row.line, row.guard)
        for row in read_rows(source).rows
        if isinstance(row, ImportRow)
    ]


def compared(row: tuple[str, str, str, int, Guard]) -> tuple[object, ...]:
    *names, guard = row
    return *names, normal(guard.condition), guard.fallback, guard.type_checking, guard.block


def test_rows_of_ast_are_those_of_tree_sitter() -> None:
    """Names, lines, conditions and `__all__`, in files of transformers and torch drawn at random."""
    packages = [installed_repository("transformers", "transformers"), installed_repository("pytorch", "torch")]
    files = [
        repository.root / file
        for repository in packages if repository is not None
        for file in tree_at(repository.root, repository.packages).now().ending(".py")
    ]  # fmt: skip
    conditions = 0
    for path in random.Random(5).sample(files, 250):
        source = readable(path.read_bytes())
        text = source.decode("utf-8", "replace")
        ours, kept = rows_of_ast(text, "a.b.c.d"), rows_of_tree_sitter(source, "a.b.c.d")
        assert sorted(map(compared, ours)) == sorted(map(compared, kept)), path
        assert exports(node for _, node in standing(parsed(text).body)) == read_rows(source).exports, path
        conditions += sum(bool(row[-1].condition) for row in ours)
    assert conditions > 100


def test_the_dots_of_relative_imports_are_counted_in_one_place() -> None:
    """A second reader of imports would have to count them too."""
    reading = [path for path in TOOLS.rglob("*.py") if "ImportFrom" in path.read_text()]
    counting = {
        path.relative_to(TOOLS).as_posix()
        for path in reading
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "level" and isinstance(node.ctx, ast.Load)
    }
    assert counting == {"source/python/imports.py"}
