"""Who uses a definition: each place with its kind, and whether name resolution in that file leads to the definition.

The answer (`References`) and the search over files (`find`); uses.py reads the hits of one file. Files are taken by
nearness to the definition. Places whose name leads elsewhere are left out; places where an object's
class is not known are kept with `verified` false. What stands in comments and prose is counted as a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opscope_schemas.errors import SourceError

from opscope_tools.index.queries import Index
from opscope_tools.index.references.occurrences import occurrences
from opscope_tools.index.references.receivers import Lineage
from opscope_tools.index.references.subject import Sought
from opscope_tools.index.references.uses import Reader, Reference
from opscope_tools.source.python.names import ClassSymbol
from opscope_tools.source.python.repository import SourceTree, Unit

__all__ = ["BUDGET", "Reference", "References", "find"]

#: hits that are read in any case; beyond, reading goes on only until the page that was asked for is full
BUDGET = 3000
_QUOTED = re.compile(rb"[\"']")
_QUOTES = frozenset(b".\"'")


@dataclass
class References:
    """The answer: `hits` words that can be references, `read` of them looked at; `mentions` stand in prose."""

    found: list[Reference] = field(default_factory=list)
    hits: int = 0
    read: int = 0
    files: int = 0
    mentions: int = 0
    templates: int = 0
    aliases: list[str] = field(default_factory=list)
    #: files that cannot be read
    unread: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether every hit was read."""
        return self.read == self.hits


@dataclass(frozen=True)
class _Work:
    """One file to read: the offsets of one word in it."""

    tree: SourceTree
    file: str
    word: str
    offsets: tuple[int, ...]
    #: the word is an attribute that holds an object, calls of which are looked for
    instance: bool = False


def find(
    index: Index,
    target: Sought,
    *,
    wanted: int = 0,
    wants: Callable[[Reference], bool] = lambda _: True,
    repo: str | None = None,
    budget: int = BUDGET,
    most: int | None = None,
    step: Callable[[int, int], None] = lambda _done, _total: None,
) -> References:
    """The references of `target`, in files of `repo` where it is given.

    Reads `budget` hits, and more, up to `most`, until `wanted` references that `wants` accepts are found.
    `step(read, hits)` is called before each file.
    """
    result = References()
    lineage = Lineage(index.resolver)
    verdicts: dict[tuple[str, str, str], bool | None] = {}
    words, seen, accepted = list(target.words), set(), 0
    pending = _instances(index, lineage, target, repo, result, step) + _work(index, target, words, repo, result)
    pending.sort(key=lambda work: (_distance(work, target.unit), work.file))
    local: set[tuple[str, str]] = set()
    while pending:
        work = pending.pop(0)
        if result.read >= budget and (accepted >= wanted or (most is not None and result.read >= most)):
            break
        step(result.read, result.hits)
        result.read += len(work.offsets)
        try:
            unit = work.tree.unit(work.file)
            reader = Reader(
                target, lineage, unit, work.word, work.offsets, verdicts, lambda: step(result.read, result.hits)
            )
            read = list(reader.instances() if work.instance else reader.read())
        except SourceError:
            result.unread.append(work.file)
            continue
        for reference in read:
            key = reference.repository, reference.file, reference.line, reference.kind, reference.verified
            if key in seen:  # twice on one line
                continue
            seen.add(key)
            result.found.append(reference)
            accepted += wants(reference)
        result.mentions += reader.mentions
        for alias, visible in reader.aliases.items():
            if alias not in words and visible:
                words.append(alias)
                result.aliases.append(alias)
                pending += _work(index, target, [alias], repo, result)
            elif alias not in words and (work.file, alias) not in local:
                local.add((work.file, alias))
                pending[:0] = _in_file(work.tree, work.file, target, alias, result)
    return result


def _instances(
    index: Index,
    lineage: Lineage,
    target: Sought,
    repo: str | None,
    result: References,
    step: Callable[[int, int], None],
) -> list[_Work]:
    """For the method that calling an object runs: the attributes that hold objects of the class, where they are built."""
    if target.symbol is None or target.kind != "method" or target.name not in {"forward", "__call__"}:
        return []
    found = []
    for tree in index.names.trees(repo):
        for file in tree.files_mentioning(target.symbol.name):
            step(0, result.hits)
            source = tree.source(file)
            built = f"{target.symbol.name}(".encode() in source
            if not built or file.rpartition("/")[2].startswith("modular_"):
                continue
            try:
                held = _holding(lineage, tree.unit(file), target.symbol)
            except SourceError:
                result.unread.append(file)
                continue
            for name in held:
                offsets = tuple(at for at in occurrences(source, name.encode()) if source[at - 1 : at] == b".")
                result.hits += len(offsets)
                found.append(_Work(tree, file, name, offsets, instance=True))
    return found


def _holding(lineage: Lineage, unit: Unit, symbol: ClassSymbol) -> list[str]:
    """The attributes that constructors of the file set to objects of the class, or to containers of them."""
    found: dict[str, None] = {}
    for path, row in unit.classes():
        for attribute in lineage.set_in(ClassSymbol(unit, path, row), symbol.name):
            if attribute.made and attribute.callee.rpartition(".")[2] == symbol.name:
                made = lineage.resolver.dotted(unit, attribute.callee)
                if made is not None and made.symbol is not None and made.symbol.same(symbol):
                    found[attribute.attribute.split(".", 1)[0]] = None
    return list(found)


def _work(index: Index, target: Sought, words: list[str], repo: str | None, result: References) -> list[_Work]:
    """The files that hold one of the words, the nearest first; templates are counted only."""
    found = [
        work
        for tree in index.names.trees(repo)
        for word in words
        for file in tree.files_mentioning(word)
        for work in _in_file(tree, file, target, word, result)
    ]
    return sorted(found, key=lambda work: (_distance(work, target.unit), work.file))


def _distance(work: _Work, unit: Unit) -> int:
    """0 for the definition's own file, 1 for its folder, 2 for its package, 3 for the rest."""
    if work.tree is not unit.tree or work.file.split("/", 1)[0] != unit.file.split("/", 1)[0]:
        return 3
    if work.file == unit.file:
        return 0
    return 1 if work.file.rpartition("/")[0] == unit.file.rpartition("/")[0] else 2


def _in_file(tree: SourceTree, file: str, target: Sought, word: str, result: References) -> Iterator[_Work]:
    try:
        source = tree.source(file)
    except OSError:
        return
    offsets = tuple(_offsets(source, target, word, own=file == target.unit.file))
    if not offsets:
        return
    if file.rpartition("/")[2].startswith("modular_"):
        result.templates += len(offsets)
        return
    code = tuple(at for at in offsets if not _commented(source, at))
    result.mentions += len(offsets) - len(code)
    if code:
        result.hits += len(code)
        result.files += 1
        yield _Work(tree, file, word, code)


def _commented(source: bytes, at: int) -> bool:
    """Whether a `#` before the hit makes it prose: where the line so far has no quote, of a comment or of a string."""
    before = source[source.rfind(b"\n", 0, at) + 1 : at]
    return b"#" in before and not _QUOTED.search(before.partition(b"#")[0])


def _offsets(source: bytes, target: Sought, word: str, *, own: bool) -> Iterator[int]:
    """Hits that can be references: a member is reached by `.name` or a string, set by keyword, or bound in a class."""
    text = word.encode()
    constructed = own or (target.symbol is not None and target.symbol.name.encode() in source)
    for at in occurrences(source, text):
        if not target.member or own or source[at - 1] in _QUOTES:
            yield at
        elif constructed or b"super()" in source:
            after = source[at + len(text) : at + len(text) + 3].lstrip()
            if after.startswith(b"=") and not after.startswith(b"=="):
                yield at
