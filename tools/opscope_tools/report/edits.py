"""What differs between a report as it should be and as it lies there: an ordered comparison of their lines.

What should be there is made anew from source, or is the text that was written, which the facts file keeps (`packed`). Lines are
aligned in order, so that what was deleted, added or moved is found as well as what was changed; blank lines say nothing and are
passed over. Order: keeping a text, aligning, moved blocks, what is said of each difference, joining it with what the rules reject.
"""

from __future__ import annotations

import base64
import binascii
import difflib
import zlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opscope_schemas.report import Problem

from opscope_tools.report.markdown import Page

__all__ = ["differences", "joined", "packed", "section_at", "unpacked"]

#: bytes that a kept text may have; the longest reports have a few hundred thousand
_LARGEST = 16 << 20
#: lines times lines that are compared each with each where none is the only one of its kind, and how often a part is cut
_SQUARE, _CUTS = 40_000, 60
#: lines that are looked through for the one that a changed line became
_WINDOW = 20
#: signs of a line that a problem shows, and places of a repeated line that a block may have come from
_SHOWN, _PLACES = 160, 8


# ---- keeping --------------------------------------------------------------------------------------------------------


def packed(text: str) -> str:
    """A text as the facts file keeps it."""
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def unpacked(kept: str) -> str:
    """The text that `packed` kept; raises `ValueError` for what it did not make, and for more than a report can be."""
    try:
        reader = zlib.decompressobj()
        content = reader.decompress(base64.b64decode(kept, validate=True), _LARGEST)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the kept text cannot be unpacked: {error}") from None
    if not reader.eof:
        raise ValueError("the kept text is cut off, or longer than a report can be")
    return content.decode()


# ---- aligning -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lines:
    """The lines of a page that say something, and where they stand."""

    page: Page
    texts: tuple[str, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, page: Page) -> _Lines:
        held = [(text.rstrip(), number) for number, text in enumerate(page.lines, 1) if text.strip()]
        return cls(page, tuple(text for text, _ in held), tuple(number for _, number in held))

    def line(self, at: int) -> int:
        """The line of the page; past the end its last one."""
        return self.numbers[at] if at < len(self.numbers) else len(self.page.lines)

    def section(self, at: int) -> str:
        return section_at(self.page, self.line(at))


def section_at(page: Page, line: int) -> str:
    """The heading below which a line of a report stands; empty above the first."""
    headings = [(number, text.lstrip("# ")) for number, text in page.headings if not text.startswith("####")]
    place = bisect_right([number for number, _ in headings], line)
    return headings[place - 1][1] if place else ""


def _aligned(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Places of equal lines in the same order: common beginnings and ends first, then lines that both sides have once."""
    pairs: list[tuple[int, int]] = []
    pending = [(0, len(a), 0, len(b), 0)]
    while pending:
        a_low, a_high, b_low, b_high, cuts = pending.pop()
        while a_low < a_high and b_low < b_high and a[a_low] == b[b_low]:
            pairs.append((a_low, b_low))
            a_low, b_low = a_low + 1, b_low + 1
        while a_low < a_high and b_low < b_high and a[a_high - 1] == b[b_high - 1]:
            a_high, b_high = a_high - 1, b_high - 1
            pairs.append((a_high, b_high))
        if a_low == a_high or b_low == b_high:
            continue
        anchors = _anchors(a[a_low:a_high], b[b_low:b_high]) if cuts < _CUTS else []
        if anchors:
            ends = [(a_low + one, b_low + other) for one, other in anchors]
            pairs += ends
            starts = [(a_low, b_low), *((one + 1, other + 1) for one, other in ends)]
            for (one, other), (one_end, other_end) in zip(starts, [*ends, (a_high, b_high)], strict=True):
                pending.append((one, one_end, other, other_end, cuts + 1))
        elif (a_high - a_low) * (b_high - b_low) <= _SQUARE:
            matcher = difflib.SequenceMatcher(None, a[a_low:a_high], b[b_low:b_high], autojunk=False)
            for match in matcher.get_matching_blocks():
                pairs += [(a_low + match.a + at, b_low + match.b + at) for at in range(match.size)]
    return sorted(pairs)


def _anchors(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Lines that stand once on each side, as many of them as are in the same order on both."""
    in_a, in_b = Counter(a), Counter(b)
    places = {text: at for at, text in enumerate(b) if in_b[text] == 1}
    common = [(at, places[text]) for at, text in enumerate(a) if in_a[text] == 1 and text in places]
    ends: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for at, (_, place) in enumerate(common):
        length = bisect_left(ends, place)
        before.append(last[length - 1] if length else -1)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [at]
    chain = []
    at = last[-1] if last else -1
    while at >= 0:
        chain.append(common[at])
        at = before[at]
    return chain[::-1]


# ---- moved blocks ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """Lines that stand elsewhere now: their first place before and now, and how many they are."""

    before: int
    now: int
    size: int


def _moved(a: Sequence[str], b: Sequence[str], gone: Sequence[int], come: Sequence[int]) -> list[_Block]:
    """Runs of lines that are gone in one place and have come in another; one of its lines stands nowhere else, or is gone once
    and has come once."""
    free, arrived, counts = set(gone), set(come), Counter(a)
    once = {
        text for text, n in Counter(a[at] for at in gone).items() if n == 1 and any(sign.isalnum() for sign in text)
    }
    once &= {text for text, n in Counter(b[at] for at in come).items() if n == 1}
    places: dict[str, list[int]] = {}
    for at in gone:
        places.setdefault(a[at], []).append(at)
    blocks: list[_Block] = []
    taken = -1
    for now in come:
        if now <= taken:
            continue
        best = _Block(0, now, 0)
        for before in [at for at in places.get(b[now], ()) if at in free][:_PLACES]:
            size = 0
            while before + size in free and now + size in arrived and a[before + size] == b[now + size]:
                size += 1
            best = max(best, _Block(before, now, size), key=lambda block: block.size)
        lines = range(best.before, best.before + best.size)
        if any(counts[a[at]] == 1 or a[at] in once for at in lines):
            blocks.append(best)
            free.difference_update(lines)
            taken = now + best.size - 1
    return blocks


# ---- what is said ---------------------------------------------------------------------------------------------------


def differences(expected: Page, found: Page) -> list[Problem]:
    """What differs, by line of `found`; each names its section, what was expected and what was found."""
    before, now = _Lines.of(expected), _Lines.of(found)
    pairs = _aligned(before.texts, now.texts)
    kept, held = {one for one, _ in pairs}, {other for _, other in pairs}
    gone = [at for at in range(len(before.texts)) if at not in kept]
    come = [at for at in range(len(now.texts)) if at not in held]
    blocks = _moved(before.texts, now.texts, gone, come)
    problems = [_moved_problem(before, now, block) for block in blocks]
    left = {at for block in blocks for at in range(block.before, block.before + block.size)}
    arrived = {at for block in blocks for at in range(block.now, block.now + block.size)}
    for (one, other), (one_end, other_end) in zip(
        [(-1, -1), *pairs], [*pairs, (len(before.texts), len(now.texts))], strict=True
    ):
        lost = [at for at in range(one + 1, one_end) if at not in left]
        new = [at for at in range(other + 1, other_end) if at not in arrived]
        problems += _gap(before, now, lost, new, other_end)
    return sorted(problems, key=lambda problem: problem.line)


def _gap(before: _Lines, now: _Lines, lost: list[int], new: list[int], end: int) -> Iterator[Problem]:
    """What differs between two lines that are the same on both sides."""
    became = _became(before.texts, now.texts, lost, new)
    for at, place in became.items():
        yield _problem(
            "TEXT_CHANGED", now.line(place), now.section(place), *_excerpts(before.texts[at], now.texts[place])
        )
    kept = set(became.values())
    for run in _runs(at for at in new if at not in kept):
        yield _problem("TEXT_ADDED", now.line(run[0]), now.section(run[0]), "", _block_said(now, run))
    for run in _runs(at for at in lost if at not in became):
        following = next((became[at] for at in lost if at > run[0] and at in became), end)
        yield _problem("TEXT_MISSING", now.line(following), before.section(run[0]), _block_said(before, run), "")


def _became(a: Sequence[str], b: Sequence[str], lost: Sequence[int], new: Sequence[int]) -> dict[int, int]:
    """Which line a changed line is now: of equally many the one in its place, else the next that shares most of its words."""
    if len(lost) == len(new):
        return dict(zip(lost, new, strict=True))
    found: dict[int, int] = {}
    start = 0
    for at in lost:
        words = Counter(a[at].split())
        for place in range(start, min(len(new), start + _WINDOW)):
            others = Counter(b[new[place]].split())
            if 2 * sum((words & others).values()) > max(sum(words.values()), sum(others.values())):
                found[at], start = new[place], place + 1
                break
    return found


def _runs(places: Iterable[int]) -> Iterator[list[int]]:
    """Neighbouring places together."""
    run: list[int] = []
    for at in places:
        if run and at != run[-1] + 1:
            yield run
            run = []
        run.append(at)
    if run:
        yield run


def _moved_problem(before: _Lines, now: _Lines, block: _Block) -> Problem:
    told = _block_said(now, range(block.now, block.now + block.size))
    above = f", below {_cut(before.texts[block.before - 1])!r}" if block.before else ""
    expected = f"in section {before.section(block.before) or 'the head'!r}{above}: {told}"
    section = now.section(block.now)
    return _problem("TEXT_MOVED", now.line(block.now), section, expected, f"in section {section or 'the head'!r}")


def _block_said(lines: _Lines, run: Sequence[int]) -> str:
    more = f" (and {len(run) - 1} more lines)" if len(run) > 1 else ""
    return f"{_cut(lines.texts[run[0]])}{more}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _excerpts(expected: str, found: str) -> tuple[str, str]:
    """Both lines from shortly before their first difference to shortly behind their last."""
    if max(len(expected), len(found)) <= _SHOWN:
        return expected, found
    least = min(len(expected), len(found))
    first = next((at for at in range(least) if expected[at] != found[at]), least)
    same = next((at for at in range(least - first) if expected[-1 - at] != found[-1 - at]), least - first)
    around = _SHOWN // 4
    start = max(0, first - around)

    def shown(text: str) -> str:
        end = min(len(text), len(text) - same + around)
        inner = text[start:end]
        inner = inner if len(inner) <= 2 * _SHOWN else f"{inner[:_SHOWN]}…{inner[-_SHOWN:]}"
        return f"{'…' if start else ''}{inner}{'…' if end < len(text) else ''}"

    return shown(expected), shown(found)


_SAID = {
    "TEXT_CHANGED": "This line is not what it should be.",
    "TEXT_ADDED": "This was added since the report was written, and nothing of it was checked.",
    "TEXT_MISSING": "Lines are missing before this one.",
    "TEXT_MOVED": "These lines stood elsewhere.",
}


def _problem(rule: str, line: int, section: str, expected: str, found: str) -> Problem:
    message = (
        f"{_SAID[rule]} Expected: {expected or 'nothing'}. Found: {found or 'nothing'}. Put it back, or write the report "
        "again with write_report; prose of your own goes in through `sections`."
    )
    return Problem(rule=rule, line=line, section=section, expected=expected, found=found, message=message)


def joined(page: Page, problems: Iterable[Problem], different: Sequence[Problem]) -> list[Problem]:
    """What the rules reject together with what differs, by line; of a changed line in which a rule rejects something it is
    said there what was expected and found, and not said twice."""
    changed = {problem.line: problem for problem in different if problem.rule == "TEXT_CHANGED"}
    told: set[int] = set()
    found = []
    for problem in problems:
        section = problem.section or section_at(page, problem.line)
        difference = changed.get(problem.line) if not problem.expected else None
        more = {"expected": difference.expected, "found": difference.found} if difference else {}
        told |= {problem.line} if difference else set()
        found.append(problem.model_copy(update={"section": section, **more}))
    found += [one for one in different if one.rule != "TEXT_CHANGED" or one.line not in told]
    return sorted(found, key=lambda problem: problem.line)
