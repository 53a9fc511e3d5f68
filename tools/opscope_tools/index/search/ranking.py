"""Pieces of source ranked for a question: BM25 over definitions, names above bodies, then the best line of each.

A word counts more in a definition's head, and some in the head of the class around it. Words that are everywhere are looked up only in
pieces that rarer words found. Pieces that hold the same line under the same name are one hit.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opscope_schemas.common import Repository

from opscope_tools.index.search.query import Query, Word
from opscope_tools.index.search.texts import Block, Texts

__all__ = ["Found", "Ranked", "search"]

_K, _B = 1.2, 0.6
#: what an occurrence in the head of a definition counts, in that of the class around it, in the path; another word for it
_HEAD, _AROUND, _PATH, _OTHER = 4.0, 2.0, 0.3, 0.6
#: what a hit outside definitions is worth, and one in tests, examples or stand-ins
_MODULE, _LESS = 0.6, 0.5
#: what a word in a definition's name adds, of its rarity
_NAME = 1.2
#: occurrences above which a word is looked up in candidates only, pieces that are candidates, pieces whose lines are read
_COMMON, _CANDIDATES, _READ = 4000, 1200, 100
#: the same where nothing but forms was asked for: all of them are as good
_LISTED = 1000
#: blocks that are counted to see how common a word is
_SAMPLE = 4
_SHORT = 4
#: bytes of a line beside a name that tell in which form it stands
_NEAR = 300
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")
_NAMED = re.compile(rb"\s*(?:async\s+)?(?:def|class)\s+(\w+)")
_ASIDE = re.compile(r"(^|/)(tests?|testing_utils|benchmarks?|examples?|docs?|conftest|dummy_\w+)(/|_|\.|$)")


@dataclass
class Found:
    """One hit: its best line, the line of the definition's head, and how many others hold the same line under the same name."""

    repository: Repository
    file: str
    line: int
    head: int
    score: float
    same: tuple[bytes, bytes] = (b"", b"")
    alike: int = 0


@dataclass
class Ranked:
    """The hits, best first; `pieces` is how many were searched."""

    found: list[Found] = field(default_factory=list)
    pieces: int = 0


Piece = tuple[int, int]


@dataclass
class _Searching:
    blocks: list[tuple[Repository, Block]]
    query: Query
    #: piece -> weight of each word there
    weights: dict[Piece, dict[int, float]] = field(default_factory=dict)
    at: dict[Piece, list[int]] = field(default_factory=dict)
    rarity: dict[int, float] = field(default_factory=dict)

    def forms(self) -> set[Piece] | None:
        """The pieces that hold every form, with the offsets in `at`; None where the question has none."""
        kept: set[Piece] | None = None
        for form in self.query.forms:
            name, here = form.name.rpartition(".")[2].lower().encode(), set[Piece]()
            if not form.kind:
                name = form.name.lower().encode()
            for number, (_, block) in enumerate(self.blocks):
                for at in _occurrences(block.text, name):
                    start = max(block.text.rfind(b"\n", 0, at) + 1, at - _NEAR)
                    stop = block.text.find(b"\n", at + len(name), at + len(name) + _NEAR)
                    stop = stop if stop >= 0 else at + len(name) + _NEAR
                    match = form.pattern.search(block.text[start:stop]) if form.kind else True
                    if match and not (form.kind and block.text[start:at].lstrip().startswith((b"#", b"//", b"*"))):
                        piece = number, block.piece(at) + (form.kind == "decorator")
                        here.add(piece)
                        self.at.setdefault(piece, []).append(at)
            kept = here if kept is None else kept & here
        return kept

    def words(self, within: set[Piece] | None) -> None:
        """Weigh every word, the rarest first."""
        total = sum(len(block.heads) for _, block in self.blocks) or 1
        # files are dealt out to blocks by their names, so some of the blocks tell how common a word is in all of them
        sample = self.blocks[:: max(1, len(self.blocks) // _SAMPLE)]
        times = len(self.blocks) / max(1, len(sample))
        counts = {
            n: times * sum(block.text.count(form) for _, block in sample for form in word.forms)
            for n, word in enumerate(self.query.words)
        }
        order = sorted(counts, key=lambda n: counts[n])
        for number in order:
            word = self.query.words[number]
            narrow = within
            if narrow is None and counts[number] > _COMMON and self.weights:
                narrow = set(heapq.nlargest(_CANDIDATES, self.weights, key=self._promise))
            self._weigh(number, word, narrow)
            if narrow is None:
                counts[number] = sum(number in held for held in self.weights.values())
            self.rarity[number] = math.log(1 + total / (0.5 + min(counts[number], total)))

    def _promise(self, piece: Piece) -> float:
        """What a piece may come to, as far as it is known."""
        return sum(2.0 + min(weight, 6.0) for weight in self.weights[piece].values())

    def _weigh(self, number: int, word: Word, within: set[Piece] | None) -> None:
        for rank, form in enumerate(word.forms):
            worth = _OTHER if rank else 1.0
            if within is not None:
                for piece in within:
                    block = self.blocks[piece[0]][1]
                    self._add(
                        number,
                        piece,
                        _occurrences(block.text, form, block.heads[piece[1]], block.end(piece[1])),
                        word,
                        worth,
                    )
                continue
            for index, (_, block) in enumerate(self.blocks):
                at = block.text.find(form)
                while at >= 0:
                    here = block.piece(at)
                    end = block.end(here)
                    self._add(number, (index, here), _occurrences(block.text, form, at, end), word, worth)
                    at = block.text.find(form, end)

    def _add(self, number: int, piece: Piece, found: Sequence[int], word: Word, worth: float) -> None:
        block = self.blocks[piece[0]][1]
        head = block.heads[piece[1]]
        head_end = -1
        total = 0.0
        for at in found:
            if not _counts(block.text, at, word):
                continue
            if head_end < 0:
                head_end = block.text.find(b"\n", head)
            total += worth * (_HEAD if at < head_end else 1.0)
        if total:
            held = self.weights.setdefault(piece, {})
            held[number] = held.get(number, 0.0) + total

    def scores(self, within: set[Piece] | None) -> list[tuple[float, Piece]]:
        """Pieces by their score, best first."""
        rarity = self.rarity
        found = []
        for piece in within if within is not None else self.weights:
            held = dict(self.weights.get(piece, {}))
            block = self.blocks[piece[0]][1]
            named = self._named(block, piece[1], held)
            size = (block.end(piece[1]) - block.heads[piece[1]]) / 1000
            score = sum(
                rarity.get(n, 0.0) * w * (_K + 1) / (w + _K * (1 - _B + _B * min(size, 12.0))) for n, w in held.items()
            )
            covered = len(held) / max(1, len(self.query.words))
            found.append(((score + named) * (0.5 + 0.5 * covered) + (within is not None), piece))
        found.sort(key=lambda one: (-one[0], one[1]))
        return found

    def _named(self, block: Block, piece: int, held: dict[int, float]) -> float:
        """What the name of a definition adds to its score, and that of the class around it (which counts as held)."""
        own, parent = _line(block.text, block.heads[piece]).partition(b"(")[0], block.parents[piece]
        around = _line(block.text, block.heads[parent]).partition(b"(")[0] if parent >= 0 else b""
        added = 0.0
        for number, word in enumerate(self.query.words):
            rarity = self.rarity.get(number, 0.0)
            added += rarity * _NAME * _spelt(word, own)
            if _spelt(word, around):
                held[number] = held.get(number, 0.0) + _AROUND
                added += rarity * _NAME / 2
        return added

    def best(self, score: float, piece: Piece) -> Found:
        """The best line of a piece: that of the form, else the one that holds most of the words."""
        repository, block = self.blocks[piece[0]]
        start, end = block.heads[piece[1]], block.end(piece[1])
        at = self.at[piece][0] if piece in self.at else start
        gain = 0.0
        if piece not in self.at:
            lines: dict[int, dict[int, float]] = {}
            for number, word in enumerate(self.query.words):
                for rank, form in enumerate(word.forms):
                    for hit in _occurrences(block.text, form, start, end):
                        line = lines.setdefault(block.text.rfind(b"\n", 0, hit) + 1, {})
                        line[number] = max(line.get(number, 0.0), _OTHER if rank else 1.0)
            for here, held in sorted(lines.items()):
                worth = sum(self.rarity.get(number, 0.0) * spelt for number, spelt in held.items())
                worth *= 0.7 if block.text[here : here + 80].lstrip()[:1] in {b"#", b'"', b"*"} else 1.0
                if worth > gain:
                    at, gain = here, worth
        (file, line_number), head_line = block.place(at), block.place(start)[1]
        path = file.lower().encode()
        gain *= 0.4
        gain += _PATH * sum(self.rarity.get(n, 0.0) * _spelt(word, path) for n, word in enumerate(self.query.words))
        factor = 1.0 / (1.0 + 0.08 * max(0, file.count("/") - 1))
        if _ASIDE.search(file) and not any(b"test" in word.forms[0] for word in self.query.words):
            factor *= _LESS
        head = _line(block.text, start)
        name = _NAMED.match(head)
        if name is None and file.endswith(".py"):
            factor *= _MODULE
        same = (name[1] if name else head, _line(block.text, at).strip())
        return Found(repository, file, line_number, head_line, (score + gain) * factor, same)


def _spelt(word: Word, text: bytes) -> float:
    """Whether a text holds a word, another word for it counting less."""
    return next((_OTHER if rank else 1.0 for rank, form in enumerate(word.forms) if form in text), 0.0)


def _line(text: bytes, at: int) -> bytes:
    """The line that holds an offset."""
    end = text.find(b"\n", at)
    return text[text.rfind(b"\n", 0, at) + 1 : end if end >= 0 else len(text)]


def search(
    texts: Texts, repositories: Sequence[Repository], query: Query, checkpoint: Callable[[], None] = lambda: None
) -> Ranked:
    """The pieces of the repositories' source that answer a question, best first."""
    searching = _Searching([(r, block) for r in repositories for block in texts.blocks(r, checkpoint)], query)
    ranked = Ranked(
        pieces=sum(len(block.heads) for _, block in searching.blocks),
    )
    within = searching.forms()
    checkpoint()
    searching.words(within)
    scores = searching.scores(within)
    kept: dict[tuple[bytes, bytes], Found] = {}
    for score, piece in scores[: _READ if query.words else _LISTED]:
        found = searching.best(score, piece)
        before = kept.setdefault(found.same, found)
        if before is not found:
            better = found if found.score > before.score else before
            better.alike = before.alike + 1
            kept[found.same] = better
    ranked.found = sorted(kept.values(), key=lambda one: (-one.score, one.file, one.line))
    return ranked


def _occurrences(text: bytes, word: bytes, start: int = 0, end: int | None = None) -> list[int]:
    found, stop = [], len(text) if end is None else end
    at = text.find(word, start, stop)
    while at >= 0:
        found.append(at)
        at = text.find(word, at + len(word), stop)
    return found


def _counts(text: bytes, at: int, word: Word) -> bool:
    """Whether an occurrence is the word: a short one begins a word, an identifier is whole."""
    before = text[at - 1] if at else 0
    if word.exact:
        after = at + len(word.forms[0])
        return before not in _LETTERS and not (after < len(text) and (text[after] in _LETTERS))
    return len(word.said) >= _SHORT or before not in _LETTERS
