"""The review of a post: what of its text is backed by records, and whether it is a post at all.

One small function per rule, listed in `RULES`: numbers, names and comparisons need a fact, a claim or a source; commands and outputs are those of
records; what is simulated, modelled or published is called so; times are told only where they were measured well; every kind of depth is
there or excused; at least three sources, each cited; a narrative, not a list. A rule that needs the text alone also holds a
narrative before it is filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from opscope_schemas.evidence import KINDS, EvidenceKind, EvidenceRecord
from opscope_schemas.report import Problem
from opscope_schemas.units import said, unit_of_field

from opscope_tools.report.markdown import FACT_MARK, Page, code_spans, without_code
from opscope_tools.report.post import FLAGS, Post, Value, post_facts, roots_of, untrusted
from opscope_tools.report.post_language import ExpressionError, UnheldError, names_in, value_of
from opscope_tools.report.prose import COMPARED, RANKS
from opscope_tools.report.quantities import quantities
from opscope_tools.report.sentences import Sentence, paragraphs, sentences

__all__ = ["POST_RULES", "check_post"]

#: sources that a post has at least, of what kinds, how many of them from when on, and paragraphs
_SOURCES, _RECENT, _SINCE = 3, 2, 2022
_KINDS_OF_SOURCE = ("official", "paper")
#: bullets among lines of prose, at most
_BULLETS = 0.10
#: what such figures are called in the paragraph that quotes them
_CLASSES = {
    "simulated": re.compile(r"\bsimulat\w+|cachegrind|callgrind", re.IGNORECASE), "modelled": re.compile(r"\bmodel(?:led|s)\b|\bby the model\b|\bbound\b|calibrat\w+", re.IGNORECASE),
    "published": re.compile(r"\bpublish\w+", re.IGNORECASE),
}  # fmt: skip
#: metrics of nvprof, which ncu does not know
_OLD_METRICS = re.compile(
    r"\b(?:gld_efficiency|gst_efficiency|gld_throughput|gst_throughput|dram_read_throughput|dram_write_throughput|dram_utilization|l2_tex_hit_rate|tex_cache_hit_rate|ipc|sm_efficiency"
    r"|achieved_occupancy|stall_memory_dependency|tensor_precision_fu_utilization|shared_efficiency|flop_count_\w+|warp_execution_efficiency|branch_efficiency)\b"
)
_HEDGED = re.compile(
    r"\b(?:would (?:show|print|give|look|be)|(?:typically|usually|normally|generally) (?:around|about|some|near|between)|in the (?:range|order) of|expect (?:to see|around|about)|should be (?:around|about))\b",
    re.IGNORECASE,
)
_CITED = re.compile(r"\[(\d+(?:, ?\d+)*)\](?!\()")
#: digits that count nothing: a source that is cited, the name of an architecture
_NO_QUANTITY = re.compile(rf"{_CITED.pattern}|\bx86(?:[-_]64)?\b")
_CLAIM = re.compile(r"<!-- holds: (.*?) -->")
#: true of every count and time, so it holds no comparison
_TRIVIAL = re.compile(r"\S+ >=? 0(?:\.0*)?")
_RECORD = re.compile(r"<!-- (evidence|elsewhere): ([a-z0-9-]+) -->")
_SOURCE = re.compile(r"^(\d+)\.\s+(.*)$")
_YEAR = re.compile(r"\b(19[89]\d|20[0-4]\d)\b")


@dataclass(frozen=True)
class _Material:
    """A post as it lies there, and what it is compared with."""

    page: Page
    post: Post

    @cached_property
    def facts(self) -> Mapping[str, Value]:
        return post_facts(self.post)

    @cached_property
    def appendix(self) -> int:
        """The line from which on the post tells how it was made, which is written from the records alone."""
        return self.heading("How this was measured") or len(self.page.lines) + 1

    def heading(self, title: str) -> int:
        """The line of a heading; 0 where there is none."""
        return next((line for line, text in self.page.headings if text.lstrip("# ").strip() == title), 0)

    @cached_property
    def told(self) -> list[Sentence]:
        """The sentences of the narrative, without flags, sources and the appendix."""
        first = self.heading("Sources") or self.appendix
        held = [
            one
            for one in paragraphs(self.page)
            if one.line < min(first, self.appendix) and not one.text.startswith((">", "![", "*", "Its output comes"))
        ]
        return [sentence for paragraph in held for sentence in sentences(paragraph)]

    @cached_property
    def records(self) -> Mapping[str, EvidenceRecord]:
        return self.post.records


Rule = Callable[[_Material], Iterator[Problem]]


def check_post(page: Page, post: Post) -> list[Problem]:
    """What the rules reject, by line."""
    material = _Material(page, post)
    return sorted((problem for rule in POST_RULES for problem in rule(material)), key=lambda problem: problem.line)


def _problem(rule: str, line: int, message: str, expected: str = "", found: str = "") -> Problem:
    return Problem(rule=rule, line=line, message=message, expected=expected, found=found)


# ---- numbers and claims ---------------------------------------------------------------------------------------------

#: spelt out, such numbers count what is in sight, unless what they count is measured
_SMALL = 12
_MEASURED = re.compile(
    r"[\s-]*(?:times|fold|percent|per cent|%|[kMGT]?i?bytes?|kilobytes?|megabytes?|gigabytes?|seconds?|milliseconds?|nanoseconds?|hundred|thousand|million|billion|cycles|misses|tokens|flops)\b",
    re.IGNORECASE,
)
#: parts and multiples in words, which the claim of a paragraph has to hold
_PART = re.compile(r"hal(?:f|ves|ved)|twice|thrice|doubl(?:e|es|ed|ing)|quarters?|thirds?", re.IGNORECASE)
_MARKED = re.compile(
    r"(`[^`]*`|(?<![\d,])-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?: ?(?:[kMGTP]?(?:FLOP/s|FLOP|B/s|B)|[KMGT]iB|m?s|us|ns|%))?)?"
    + FACT_MARK.pattern
)


def marked(material: _Material) -> Iterator[Problem]:
    """A marked number or name is that of its record."""
    for line, text in material.page.prose:
        for found in _MARKED.finditer(text):
            written, key = (found[1] or "").strip(), found[2]
            if key not in material.facts:
                yield _problem("FACT_UNKNOWN", line, f"No record has {key!r}.", "a fact of a record", key)
                continue
            value = material.facts[key]
            right = f"`{value}`" if isinstance(value, str) else said(key.partition(".")[2], value)
            if written != right:
                yield _problem(
                    "FACT_MISMATCH",
                    line,
                    f"{key} is {right} in its record, not {written or 'nothing'}.",
                    right,
                    written,
                )


def unmarked(material: _Material) -> Iterator[Problem]:
    """A quantity is a fact: nobody can check another one."""
    for sentence in material.told:
        plain = _NO_QUANTITY.sub(lambda found: " " * len(found[0]), sentence.plain)
        for found in quantities(plain):
            counts = (
                found.text[0].isalpha()
                and found.value is not None
                and found.value <= _SMALL
                and found.value == int(found.value)
                and not _MEASURED.match(plain[found.end :])
            )
            parts = (
                found.text.isalpha() and bool(_CLAIM.search(sentence.within.text)) and bool(_PART.fullmatch(found.text))
            )
            year = re.fullmatch(r"\(?(?:19|20)\d\d\)?", found.text.strip())
            if not found.shown and not counts and not parts and not year:
                yield _problem("NUMBER_UNMARKED", sentence.line, f"{found.text.strip()!r} is a quantity that no record backs: write it as {{{{fact:record.field}}}}, or leave it out. The sentence: {sentence.text!r}.", "a fact", sentence.text)  # fmt: skip


def literals(material: _Material) -> Iterator[Problem]:
    """Names in back-ticks that hold a digit stand in an output, a command or a name of a record: what the text quotes is there."""
    shown = "\n".join(
        "\n".join((*one.commands, *one.excerpt, one.elsewhere, one.id, one.tool, *one.parsed, *map(str, one.parsed.values()))) for one in material.records.values()
    )  # fmt: skip
    for sentence in material.told:
        for at, span in code_spans(sentence.text):
            after = sentence.text[at + len(span) + 2 :]
            if re.search(r"\d", span) and not after.startswith("<!-- fact:") and not _stands(span, shown):
                yield _problem(
                    "QUOTE_UNKNOWN",
                    sentence.line,
                    f"`{span}` stands in no output, command or source of the records.",
                    "what a record holds",
                    span,
                )


def _stands(span: str, shown: str) -> bool:
    pattern = r"\s+".join(re.escape(word) for word in span.split())
    return re.search(pattern, shown) is not None


def claims(material: _Material) -> Iterator[Problem]:
    """Every claim holds, and is about what its paragraph quotes."""
    for line, text in material.page.prose:
        quoted = _records_of(material, (key for _, key in _MARKED.findall(text)))
        for found in _CLAIM.finditer(text):
            about = _records_of(material, names_in(found[1]))
            if not about or (quoted and not about & quoted):
                yield _problem(
                    "CLAIM_BESIDE",
                    line,
                    f"The claim `{found[1]}` is about nothing that its paragraph quotes.",
                    f"a comparison of facts of {', '.join(sorted(quoted)) or 'a record'}",
                    found[1],
                )
                continue
            try:
                holds = bool(value_of(found[1], material.facts))
            except (ExpressionError, UnheldError) as error:
                yield _problem(
                    "CLAIM_UNREADABLE",
                    line,
                    f"The claim `{found[1]}` cannot be held against the records: {error}.",
                    "an expression of facts",
                    found[1],
                )
                continue
            if not holds:
                yield _problem(
                    "CLAIM_FALSE", line, f"`{found[1]}` does not hold for the records.", "a claim that holds", found[1]
                )


def _records_of(material: _Material, keys: Iterable[str]) -> set[str]:
    """The records that facts come from, through what they are derived from."""
    return {root.partition(".")[0] for key in keys for root in roots_of(key, material.post.narrative)}


def compared(material: _Material) -> Iterator[Problem]:
    """A comparison rests on a claim of its paragraph or on a source that its sentence cites; a rank on nothing."""
    for sentence in material.told:
        claimed = [part.strip() for claim in _CLAIM.findall(sentence.within.text) for part in claim.split(" and ")]
        backed = any(not _TRIVIAL.fullmatch(part) for part in claimed) or bool(_CITED.search(sentence.text))
        rank = RANKS.search(sentence.plain)
        found = (rank if rank and not _CITED.search(sentence.text) and not _CLAIM.search(sentence.within.text) else None) or (None if backed else COMPARED.search(sentence.plain))  # fmt: skip
        if found is not None:
            yield _problem("COMPARISON", sentence.line, f"{found[0]!r} compares, and nothing holds it: add {{{{holds:expression}}}} to the paragraph, or cite a source. The sentence: {sentence.text!r}.", "a claim or a source", sentence.text)  # fmt: skip


#: words that a figure of a level of the cache stands beside, and those of the other level
_LEVELS = {"_l1_": re.compile(r"\b(?:first|L1|small)\b", re.IGNORECASE), "_l2_": re.compile(r"\b(?:second|last|L2|past|further|large)\b", re.IGNORECASE)}  # fmt: skip
#: what a figure in such a unit is not called
_MISCALLED = {
    "bytes/s": r"latency|delay|duration|seconds",
    "seconds": r"bandwidth|throughput",
    "FLOP/s": r"latency|delay|bandwidth",
}
_EVERYWHERE = re.compile(
    r"\b(?:any|every|all|no(?:ne)?) (?:other )?(?:\w+ )?(?:programs?|machines?|processors?|librar(?:y|ies)|kernels?|models?|implementations?)\b[^.]{0,60}\b(?:can|could|will|ever|exists?)\b",
    re.IGNORECASE,
)


def named(material: _Material) -> Iterator[Problem]:
    """A figure is called what it is: its level of the cache, its unit; and nothing is said of all machines from records of one."""
    for sentence in material.told:
        found = _EVERYWHERE.search(sentence.plain)
        if found and sentence.facts and not _CITED.search(sentence.text):
            yield _problem("TOO_WIDE", sentence.line, f"{found[0]!r}: records of one machine do not say that.", "what was measured", sentence.text)  # fmt: skip
        for fact in sentence.facts:
            if fact.key not in material.facts:
                continue
            levels = {level for level, words in _LEVELS.items() if words.search(sentence.plain)}
            own = next((level for level in _LEVELS if level in fact.key), "")
            if own and levels and own not in levels:
                yield _problem("LEVEL_MISMATCH", sentence.line, f"{fact.key} is of another level of the cache than the sentence says.", own.strip("_").upper(), sentence.text)  # fmt: skip
            name = fact.key.partition(".")[2]
            unit = unit_of_field(name)
            value = material.facts[fact.key]
            written = value if isinstance(value, str) else said(name, value)
            before = sentence.text.partition(f"<!-- fact:{fact.key} -->")[0].removesuffix(written)
            word = (
                re.search(rf"\b({_MISCALLED[unit]})(?: \w+){{0,3}} ?$", before, re.IGNORECASE)
                if unit in _MISCALLED
                else None
            )
            if word:
                yield _problem("UNIT_MISCALLED", sentence.line, f"{fact.key} is in {unit}, and the sentence calls it {word[1]}.", unit, sentence.text)  # fmt: skip


def hedged(material: _Material) -> Iterator[Problem]:
    """No number that might be: what was not measured is said to be so."""
    for sentence in material.told:
        found = _HEDGED.search(sentence.plain)
        if found is not None and (re.search(r"[\d\0]", sentence.plain)):
            yield _problem(
                "HEDGED",
                sentence.line,
                f"{found[0]!r} beside a number: write what a record says, or that it was not measured.",
                "what was measured",
                sentence.text,
            )


# ---- classes and times ----------------------------------------------------------------------------------------------


def classes(material: _Material) -> Iterator[Problem]:
    """What is simulated, modelled or published is called so in the paragraph that quotes it."""
    for sentence in material.told:
        text = without_code(sentence.within.text)
        roots = {
            root.partition(".")[0] for fact in sentence.facts for root in roots_of(fact.key, material.post.narrative)
        }
        for record in (material.records[name] for name in sorted(roots & material.records.keys())):
            words = _CLASSES.get(record.evidence_class)
            if words is not None and not words.search(text):
                yield _problem(
                    "CLASS_UNSAID", sentence.line, f"Figures of {record.id} are {record.evidence_class}, and the paragraph does not say so.",
                    f"the word {record.evidence_class!r}", sentence.text,
                )  # fmt: skip


def times(material: _Material) -> Iterator[Problem]:
    """A time is told only where the machine was quiet and it was measured often enough."""
    for sentence in material.told:
        for fact in sentence.facts:
            if fact.key in material.facts and (why := untrusted(fact.key, material.post)):
                yield _problem(
                    "TIME_UNDER_LOAD",
                    sentence.line,
                    f"{fact.key} is no time to rely on: {why}.",
                    "a measurement on a quiet machine",
                    sentence.text,
                )


# ---- commands and outputs -------------------------------------------------------------------------------------------


def commands(material: _Material) -> Iterator[Problem]:
    """Each block of commands is the output of a record, or the command of one that is not here; it says which."""
    marks = {line: (found[1], found[2]) for line, text in material.page.prose if (found := _RECORD.search(text))}
    for fence in material.page.fences:
        if fence.line >= material.appendix or fence.language not in ("console", "bash", "sh", "shell", ""):
            continue
        end = fence.line + len(fence.lines) + 2
        mark = marks.get(end)
        if mark is None or mark[1] not in material.records:
            if any(text.startswith("$ ") for text in fence.lines) or fence.language == "console":
                yield _problem(
                    "COMMAND_UNKNOWN",
                    fence.line,
                    "These commands belong to no record.",
                    "{{output:record}}",
                    fence.lines[0] if fence.lines else "",
                )
            continue
        record = material.records[mark[1]]
        joined = "\n".join(fence.lines).replace(" \\\n    ", " ").splitlines()
        known = {*record.commands, record.elsewhere}
        for offset, text in enumerate(joined, 1):
            if text.startswith("$ ") and not text.startswith("$ #") and text[2:] not in known:
                near = next((one for one in known if one.split(" ")[0] == text[2:].split(" ")[0]), next(iter(known)))
                yield _problem(
                    "COMMAND_UNKNOWN",
                    fence.line + offset,
                    f"This command is not one of the record {record.id}.",
                    near,
                    text[2:],
                )
        if mark[0] == "evidence":
            if record.status != "ok":
                yield _problem(
                    "OUTPUT_INVENTED",
                    fence.line,
                    f"The record {record.id} is {record.status}: it has no output.",
                    record.reason,
                    "\n".join(fence.lines[:3]),
                )
            told = [text for text in joined if not text.startswith("$ ")]
            if told != list(record.excerpt) and record.status == "ok":
                odd = next((one for one in told if one not in record.excerpt), told[0] if told else "")
                right = next(
                    (one for one in record.excerpt if one not in told), record.excerpt[0] if record.excerpt else ""
                )
                yield _problem(
                    "OUTPUT_CHANGED", fence.line, f"This is not what the record {record.id} says.", right, odd
                )
        elif any(not text.startswith("$ ") for text in joined):
            yield _problem(
                "OUTPUT_INVENTED",
                fence.line,
                f"{record.id} was not collected here, so nothing is shown of it.",
                f"$ {record.elsewhere}",
                joined[-1],
            )


def old_names(material: _Material) -> Iterator[Problem]:
    """Metrics of nvprof are never asked of ncu, and nvprof stands only beside what replaced it."""
    for line, text in enumerate(material.page.lines, 1):
        if "ncu" in text and (found := _OLD_METRICS.search(re.sub(r"\w+__[\w.]+", "", text))):
            yield _problem(
                "METRIC_UNKNOWN",
                line,
                f"`{found[0]}` is a metric of nvprof, which ncu does not know.",
                "ncu's own name: ncu --query-metrics",
                found[0],
            )
    for paragraph in paragraphs(material.page):
        if re.search(r"\bnvprof\b|\bnvvp\b", paragraph.text) and not re.search(
            r"\bncu\b|\bnsys\b|Nsight", paragraph.text
        ):
            yield _problem(
                "TOOL_GONE",
                paragraph.line,
                "nvprof is gone since CUDA 13: say beside it what took its place.",
                "nsys or ncu",
                paragraph.text[:160],
            )
    for fence in material.page.fences:
        text = "\n".join(fence.lines)
        if re.search(r"^\$ nvprof\b", text, re.MULTILINE) and not re.search(r"\bncu\b|\bnsys\b", text):
            yield _problem(
                "TOOL_GONE",
                fence.line,
                "nvprof is gone since CUDA 13: show what took its place.",
                "nsys or ncu",
                fence.lines[0],
            )


# ---- depth, sources, form -------------------------------------------------------------------------------------------


def depth(material: _Material) -> Iterator[Problem]:
    """Each kind of depth is shown, or its absence is."""
    shown: set[EvidenceKind] = set()
    for line, text in material.page.prose:
        for _, name in _RECORD.findall(text) if line < material.appendix else ():
            if name in material.records:
                shown.add(material.records[name].kind)
        if line < material.appendix and text.startswith(FLAGS):
            shown |= {one.kind for one in material.records.values() if f"`{one.id}`" in text}
        if line < material.appendix and (picture := re.match(r"!\[[^\]]*\]\(([^)]+)\)", text)):
            shown |= {one.kind for one in material.records.values() if picture[1] in one.pictures}
    # a command is shown by any of them
    missing = [kind for kind in KINDS if kind not in shown and not (kind == "command" and shown)]
    for kind in missing:
        there = [one.id for one in material.records.values() if one.kind == kind]
        yield _problem(
            "DEPTH_MISSING",
            1,
            f"Nothing of the kind {kind!r} is shown, and its absence is not.",
            f"{{{{output:{there[0]}}}}}" if there else "a record of that kind",
            "",
        )


def sources(material: _Material) -> Iterator[Problem]:
    """At least three sources, official and scholarly ones among them, recent ones too, each cited in the text."""
    start = material.heading("Sources")
    if not start:
        yield _problem(
            "SOURCES_MISSING",
            len(material.page.lines),
            "The post has no section Sources.",
            f"at least {_SOURCES} sources",
            "none",
        )
        return
    rows = [
        (line, found[1], found[2])
        for line, text in material.page.prose
        if start < line < material.appendix and (found := _SOURCE.match(text))
    ]
    # a paragraph that is flagged here took its citations along
    cited = {number for sentence in material.told for number in _numbers(sentence.text)}
    held = cited | set(_numbers(material.post.narrative.partition("\n## Sources")[0]))
    if len(rows) < _SOURCES:
        yield _problem(
            "SOURCES_FEW",
            start,
            f"{len(rows)} sources are named; at least {_SOURCES} are asked for.",
            f"{_SOURCES} sources",
            str(len(rows)),
        )
    for kind in _KINDS_OF_SOURCE:
        if not any(re.search(rf"\({kind}\b", text) for _, _, text in rows):
            yield _problem("SOURCES_KIND", start, f"No source is marked ({kind}).", f"a source marked ({kind})", "")
    recent = [text for _, _, text in rows if any(int(year) >= _SINCE for year in _YEAR.findall(text))]
    if len(recent) < _RECENT:
        yield _problem(
            "SOURCES_OLD",
            start,
            f"{len(recent)} sources are of {_SINCE} or later; at least {_RECENT} are asked for.",
            f"{_RECENT} sources since {_SINCE}",
            str(len(recent)),
        )
    for line, number, text in rows:
        if number not in held:
            yield _problem(
                "SOURCE_UNCITED",
                line,
                f"Source {number} is cited nowhere in the text.",
                f"[{number}] at the sentence that rests on it",
                text[:120],
            )
        if not re.search(r"https?://", text):
            yield _problem("SOURCE_UNPLACED", line, f"Source {number} has no address.", "its address", text[:120])
    for number in sorted(cited - {number for _, number, _ in rows}):
        line = next(sentence.line for sentence in material.told if number in _numbers(sentence.text))
        yield _problem(
            "SOURCE_UNKNOWN",
            line,
            f"[{number}] is no source of this post.",
            "a number of the section Sources",
            f"[{number}]",
        )


def _numbers(text: str) -> list[str]:
    """The sources that a text cites: `[1]`, `[1, 3]`."""
    return [number for found in _CITED.findall(text) for number in re.split(r", ?", found)]


def narrative(material: _Material) -> Iterator[Problem]:
    """It is told, not listed: few bullets, and a paragraph after each output."""
    end = material.heading("Sources") or material.appendix
    lines = [
        (line, text)
        for line, text in material.page.prose
        if line < end and text.strip() and not text.startswith(("#", "<!--", "!["))
    ]
    bullets = [line for line, text in lines if re.match(r"\s*(?:[-*+]|\d+\.)\s", text)]
    if lines and len(bullets) > _BULLETS * len(lines):
        yield _problem(
            "NOT_NARRATIVE",
            bullets[0],
            f"{len(bullets)} of {len(lines)} lines of prose are bullets; at most {_BULLETS:.0%} are taken.",
            "paragraphs",
            f"{len(bullets)} bullets",
        )
    starts = [line for line, _ in material.page.prose]
    held = dict(material.page.prose)
    for line, text in material.page.prose:
        if line < end and _RECORD.search(text):
            following = next((held[at] for at in starts if at > line and held[at].strip()), "")
            explained = following and not following.startswith("#") and not _fenced_next(material, line)
            if not explained or ("evidence:" in text and following.startswith(f"{FLAGS[1]} *")):
                yield _problem(
                    "OUTPUT_UNEXPLAINED",
                    line,
                    "No paragraph follows this output: say what it shows.",
                    "a paragraph",
                    following[:120],
                )


def _fenced_next(material: _Material, line: int) -> bool:
    """Whether nothing but blank lines stands between a line and the next fence."""
    following = next(
        (at for at in range(line + 1, len(material.page.lines) + 1) if material.page.lines[at - 1].strip()), 0
    )
    return following in material.page.fenced


_UNDONE = re.compile(r"\{\{[^{}]*\}\}|\b(?:TODO|TBD|FIXME|XXX)\b|\[\.\.\.\](?=\s*$)")


def placeholders(material: _Material) -> Iterator[Problem]:
    """Nothing is left to be filled in."""
    for line, text in material.page.prose:
        if found := _UNDONE.search(without_code(text)):
            yield _problem("PLACEHOLDER", line, f"{found[0]!r} is a placeholder.", "what it stands for", found[0])


POST_RULES: tuple[Rule, ...] = (
    placeholders, marked, unmarked, literals, claims, compared, named, hedged, classes, times, commands, old_names, depth, sources, narrative,
)  # fmt: skip
