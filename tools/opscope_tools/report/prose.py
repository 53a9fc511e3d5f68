"""What an agent's prose says, sentence by sentence: its numbers are facts that fit, its comparisons rest on one, its claims are so.

- A quantity (quantities.py) is a fact, `{{fact:key}}`; a literal in back-ticks stands on the lines that are cited.
- A fact fits its sentence: what it counts is what the words around it name, its pass is one that they speak of, its class too.
- A comparison or a superlative needs a fact beside it; praise of a rank ("outperforms", "state of the art") has no fact that shows it.
- What is said of how facts stand to each other, and of what limits a pass, is held against the numbers (relations.py).
- What is asserted of the model is held against its traits (claims.py).

Each problem names the sentence as `found` and the fact that would fit as `expected`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from opscope_schemas.report import Problem

from opscope_tools.report.claims import CONDITIONAL, false_claims
from opscope_tools.report.markdown import POINTER, Page, code_spans, number
from opscope_tools.report.measures import PHASE, PHASES, implied_unit, named_unit, phase_of, scaled_unit, unit_of
from opscope_tools.report.quantities import Quantity, quantities
from opscope_tools.report.relations import false_relations, follows
from opscope_tools.report.sentences import Quoted, Sentence, sentences, statements
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.traits import Traits

__all__ = ["COMPARED", "RANKS", "prose_problems"]

#: characters of a paragraph that is read; its sentences are each held against all of it
_LONGEST = 6_000
RANKS = re.compile(
    r"\b(?:outperform\w*|outclass\w*|surpass\w*|superior|inferior|unmatched|unrivall?ed|unbeaten|best|better|worst|state[- ]of[- ]the[- ]art|SOTA"
    r"|(?:most|more|less|least) (?:efficient|powerful|accurate|capable|advanced|performant|modern|scalable|popular|sophisticated|optimi[sz]ed)"
    r"|top[- ]performing|leading|beats?|ahead of|optimal|no other (?:model|implementation|architecture|design)\w*|as (?:efficient|good|capable) as"
    r"|(?:than|unlike) (?:any|all|most|every|other) (?:other )?(?:models?|implementations?|architectures?|designs?))\b",
    re.IGNORECASE,
)
COMPARED = re.compile(
    r"\b(?:(?:fast|slow|cheap|large|small|bigg|high|low|great|few|long|short|heavi|light|wid|narrow|deep|quick|clos)(?:e?r)\b[^.;]{0,60}?\bthan|(?:more|less|fewer)\b[^.;]{0,60}?\bthan"
    r"|as (?:fast|slow|cheap|large|small|big|many|much|long|high|low|few|good) as|exceeds?|outweighs?|dominates?|dwarfs?"
    r"|(?:the|its|their|most of the|by far the|among the)\s+(?:\w+\s+)?(?:fast|slow|cheap|large|small|bigg|high|low|great|few|long|short|heavi|light|quick)est"
    r"|fastest|slowest|cheapest|largest|smallest|biggest|highest|lowest|greatest|(?:the|its) (?:most|least) \w+|most of (?:the|its|all|them)"
    r"|the (?:majority|bulk|lion's share) of|negligible|(?:significantly|considerably|dramatically|substantially|vastly|far|much) (?:\w+er|more|less|fewer))\b",
    re.IGNORECASE,
)
#: what source compares by itself: `max` takes the largest logit
_OF_VALUES = re.compile(
    r"^(?:[\s-]+\w+){0,1}?[\s-]+(?:values?|logits?|scores?|ind(?:ex|ices)|entr(?:y|ies)|elements?|keys?|multiples?|powers?|probabilit\w+|ids?|positions?"
    r"|lengths?|dtype|of (?:the )?(?:logits|scores|values|two|both|all))\b|^[^.;]{0,20}\bthan (?:zero|one|the (?:window|limit|length|cache))\b",
    re.IGNORECASE,
)
_LITERAL = re.compile(
    r"\s*-?\d[\d,_]*(?:\.\d+)?(?:e-?\d+)?\s*(?:%|[kMGTP]?i?B|[kMGTP]?FLOPs?|m?s|bytes?|layers?|heads?|experts?|parameters?)?\s*",
    re.IGNORECASE,
)
_IN_CODE = re.compile(r"(?<![\w.])-?\d+(?:\.\d*)?(?:e-?\d+)?")
_CLOCK = re.compile(r"\b(?:time|slow\w*|fast\w*|latency|throughput|quick\w*|speed)\b", re.IGNORECASE)
#: what a number may count whose key does not say what it counts
_SOFT = frozenset({"tokens", "sequences"})
#: words that ask for one of several facts of a unit, and what its key then holds
_QUALIFIED = (
    (r"active|activated", r"active"), (r"encoder", r"encoder"), (r"decoder", r"decoder|layers|layer|heads"),
    (r"shared experts?", r"shared"), (r"(?:chosen|selected|active|activated|experts? per token|experts? each token)\b.*experts?|experts? (?:per|a|for each) token",
     r"chosen|per_tok|shared"),
)  # fmt: skip


def prose_problems(
    page: Page, values: Mapping[str, float], traits: Traits | None, reader: SourceReader
) -> Iterator[Problem]:
    """What is wrong with what the sentences of `page` say; without traits nothing is held against them."""
    for statement in statements(page):
        if len(statement.text) > _LONGEST:
            said = f"This paragraph has {len(statement.text):,} characters; cut it into some of at most {_LONGEST:,}."
            yield Problem(rule="PARAGRAPH_LONG", line=statement.line, message=said)
            continue
        for sentence in sentences(statement):
            yield from _said(sentence, values, traits, reader)


def _said(
    sentence: Sentence, values: Mapping[str, float], traits: Traits | None, reader: SourceReader
) -> Iterator[Problem]:
    """What is wrong with what one sentence says."""
    yield from _numbers(sentence, values)
    yield from _literals(sentence, values, reader)
    if sentence.within.drawn:
        return
    for fact in sentence.facts:
        yield from _fits(sentence, fact, values)
    yield from _comparisons(sentence, values)
    claims = [*false_relations(sentence, values, traits), *(false_claims(sentence, traits, reader) if traits else ())]
    for claim in claims:
        yield _problem("CLAIM_FALSE", sentence, f"{claim.words!r} is not so: {claim.right}.", claim.right)


def _problem(rule: str, sentence: Sentence, message: str, expected: str) -> Problem:
    return Problem(
        rule=rule, line=sentence.line, message=f"{message} The sentence: {sentence.text!r}.", expected=expected, found=sentence.text,
    )  # fmt: skip


# ---- quantities -----------------------------------------------------------------------------------------------------


def _numbers(sentence: Sentence, values: Mapping[str, float]) -> Iterator[Problem]:
    """Quantities that are no facts."""
    backed = bool(POINTER.search(sentence.within.text) or any(code_spans(sentence.text)))
    for found in quantities(sentence.plain):
        if follows(found, sentence, values):
            continue
        if (found.shown and backed) or (sentence.within.drawn and not named_unit("", sentence.plain[found.end :])):
            continue
        near = _nearest(sentence, found, values)
        said = f"{found.text.strip()!r} is a quantity that nobody can check: write it as {{{{fact:key}}}}, or leave it out."
        yield _problem("NUMBER_UNMARKED", sentence, f"{said} {_offered(near, values)}", _named(near, values))
    for sent in re.finditer(r"\btop-(\d+)\b", sentence.plain):
        chosen = [key for key in values if re.search(r"chosen|per_tok|topk", key)]
        if float(sent[1]) not in {float(values[key]) for key in chosen}:
            written = Quantity(*sent.span(), sent[0], float(sent[1]))
            near = chosen[0] if chosen else _nearest(sentence, written, values)
            said = f"{sent[0]!r} is not how many experts a token is sent to."
            yield _problem("NUMBER_UNMARKED", sentence, f"{said} {_offered(near, values)}", _named(near, values))


def _literals(sentence: Sentence, values: Mapping[str, float], reader: SourceReader) -> Iterator[Problem]:
    """Numbers in back-ticks that do not stand on the lines that are cited."""
    for at, span in code_spans(sentence.text):
        if not _LITERAL.fullmatch(span):
            continue
        value = _number(re.sub(r"[,_]|[^\d.e-].*", "", span.strip()))
        cited = list(POINTER.finditer(sentence.text)) or list(POINTER.finditer(sentence.within.text))
        lines = [
            line.replace("_", "")
            for pointer in cited
            for line in (reader.lines(pointer[1]) or [])[max(0, int(pointer[2]) - 1) : int(pointer[3] or pointer[2])]
        ]
        if any(_number(found) == value for line in lines for found in _IN_CODE.findall(line)):
            continue
        near = _nearest(sentence, Quantity(at, at + len(span) + 2, span, value), values)
        said = f"`{span}` stands on no line that is cited here: cite its line, or write a fact."
        yield _problem("NUMBER_UNMARKED", sentence, f"{said} {_offered(near, values)}", _named(near, values))


def _number(digits: str) -> float | None:
    try:
        return float(digits)
    except ValueError:
        return None


# ---- the fact that fits ---------------------------------------------------------------------------------------------


def _nearest(sentence: Sentence, quantity: Quantity, values: Mapping[str, float]) -> str:
    """The key of the fact that a number should be: one of its value, of the unit that is named, of words of the sentence."""
    units = named_unit(sentence.plain[: quantity.start], sentence.plain[quantity.end :])
    phases = _phases(sentence.plain)
    named = (span for _, span in code_spans(sentence.text) if not POINTER.search(span))
    words = {word for word in _words(" ".join([sentence.plain, *named])) if len(word) > 2}
    words |= {"time", "bound"} if _CLOCK.search(sentence.plain) else set()

    def score(key: str) -> tuple[float, ...]:
        value, parts = values[key], _words(key.replace(_qualified(key), "") if _class_of(key) else key)
        same = quantity.value is not None and _close(value, quantity.value)
        fits = unit_of(key) in units
        pass_fits = not phase_of(key) or phase_of(key) in phases
        shared = sum(part in words or part.rstrip("s") in words or f"{part}s" in words for part in set(parts))
        return (fits, same, pass_fits, shared, -len(parts), -len(key))

    return max(values, key=score, default="")


def _words(text: str) -> list[str]:
    """Words in small letters, names of classes in their parts."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", text)]


def _qualified(key: str) -> str:
    """The module path of a key's class, which says nothing of the number."""
    return key[key.index(".") + 1 : key.index(_class_of(key))]


def _close(value: float, said: float) -> bool:
    return value == said or (said != 0 and abs(value - said) <= 0.006 * abs(said))


def _named(key: str, values: Mapping[str, float]) -> str:
    return f"{{{{fact:{key}}}}} ({number(values[key])})" if key in values else "no number"


def _offered(key: str, values: Mapping[str, float]) -> str:
    return f"Nearest fact: {_named(key, values)}." if key in values else "The analysis has no number that fits."


# ---- facts in their sentences ---------------------------------------------------------------------------------------


def _fits(sentence: Sentence, fact: Quoted, values: Mapping[str, float]) -> Iterator[Problem]:
    """What of a fact does not fit the words around it; the first of unit, pass and class."""
    if fact.key not in values:
        return
    scaled = scaled_unit(sentence.plain[fact.end :])
    if scaled:
        said = f"{fact.key} is written whole, so no {scaled} stands behind it: leave it out, {{{{fact:{fact.key}}}}} brings its unit."
        yield _problem("FACT_UNFIT", sentence, said, _named(fact.key, values))
        return
    fault = _unit_fault(sentence, fact) or _phase_fault(sentence, fact) or _class_fault(sentence, fact, values)
    if fault:
        quantity = Quantity(fact.start, fact.end, fact.key, None)
        others = {key: value for key, value in values.items() if key != fact.key}
        near = _nearest(sentence, quantity, _alike(sentence, fact, others))
        yield _problem("FACT_UNFIT", sentence, f"{fact.key} {fault} {_offered(near, values)}", _named(near, values))


def _alike(sentence: Sentence, fact: Quoted, values: Mapping[str, float]) -> Mapping[str, float]:
    """Facts called as this one is but for pass or class, where there are any; else all."""
    last = fact.key.rpartition(".")[2]
    units = named_unit(sentence.plain[: fact.start], sentence.plain[fact.end :])
    same = {k: v for k, v in values.items() if k.rpartition(".")[2] == last and k.count(".") == fact.key.count(".")}
    return same if same and (not units or unit_of(fact.key) in units) else values


def _unit_fault(sentence: Sentence, fact: Quoted) -> str:
    before, after = sentence.plain[: fact.start], sentence.plain[fact.end :]
    unit, named = unit_of(fact.key), named_unit(before, after)
    if named and unit not in named and (unit or not named & _SOFT):
        return f"counts {unit or 'something else'}, not {' or '.join(sorted(named))}."
    implied = implied_unit(before) if not named and unit in ("FLOPs", "bytes", "seconds") else ""
    if implied and implied != unit:
        return f"counts {unit}, not {implied}."
    if unit == "FLOPs" and re.match(r"\s*FLOPs? of (?:memory|storage|traffic)", after):
        return "counts FLOPs, not bytes."
    following = re.split(r"[,;:.()\0]", after)[0]
    for words, keys in _QUALIFIED:
        if (
            unit in ("parameters", "layers", "experts")
            and re.match(rf"\s*(?:\w+\s+){{0,2}}?(?:{words})\b", following, re.IGNORECASE)
            and not re.search(keys, fact.key)
        ):
            return f"is not of the {following.strip()[:40]} that the sentence speaks of."
    return ""


def _phases(plain: str) -> list[str]:
    return [found.lastgroup or "" for found in PHASE.finditer(plain)]


def _phase_fault(sentence: Sentence, fact: Quoted) -> str:
    """A pass that the sentence speaks of, next to the fact on either side, and that is not the fact's."""
    phase = phase_of(fact.key)
    spoken = [(found.start(), found.lastgroup) for found in PHASE.finditer(sentence.plain)]
    told = [of for quoted in sentence.facts if (of := phase_of(quoted.key))]
    if not phase or not spoken or told == [name for _, name in spoken]:  # one after the other, as they are named
        return ""
    before = [name for at, name in spoken if at < fact.start][-1:]
    after = [name for at, name in spoken if at > fact.start][:1]
    if phase in (*before, *after):
        return ""
    return f"is of {phase}, and the sentence speaks of {' and '.join(dict.fromkeys(name or '' for _, name in spoken))}."


def _class_of(key: str) -> str:
    """The class that a fact is of; empty where it is of no class."""
    found = re.fullmatch(rf"(?:(?:{'|'.join(PHASES)})\.class|module)\.(.+)\.\w+", key)
    parts = found[1].removesuffix(".largest").split(".") if found else []
    return next((part for part in reversed(parts) if part[:1].isupper()), "")


def _class_fault(sentence: Sentence, fact: Quoted, values: Mapping[str, float]) -> str:
    """A class that the sentence names as code while the fact is of another, which it does not speak of."""
    own = _class_of(fact.key)
    known = {name for key in values if (name := _class_of(key))}
    named = [span.split(".")[0] for _, span in code_spans(sentence.text) if span.split(".")[0] in known]
    if not own or not named or own in named:
        return ""
    parts = set(_words(own)) - {part for name in named for part in _words(name)}
    if any(re.search(rf"\b{part}", sentence.plain, re.IGNORECASE) for part in parts):
        return ""
    return f"is of `{own}`, and the sentence speaks of `{named[0]}`."


# ---- comparisons ----------------------------------------------------------------------------------------------------


def _comparisons(sentence: Sentence, values: Mapping[str, float]) -> Iterator[Problem]:
    """Ranks, which nothing here shows, and comparisons that no fact of the sentence shows."""
    rank = RANKS.search(sentence.plain)
    found = rank or COMPARED.search(sentence.plain)
    if found is None:
        return
    if rank is None:
        cited = POINTER.search(sentence.within.text) is not None
        counts = CONDITIONAL.search(sentence.plain) and re.match(r"(?:fewer|more|less)\b", found[0], re.IGNORECASE)
        if sentence.facts or (cited and (counts or _OF_VALUES.match(sentence.plain[found.end() :]))):
            return
    near = _nearest(sentence, Quantity(*found.span(), found[0], None), values)
    said = "ranks: no analysis of one model shows it" if rank else "compares without a number"
    text = f"{found[0]!r} {said}; say what was computed instead."
    yield _problem("COMPARISON", sentence, f"{text} {_offered(near, values)}", _named(near, values))
