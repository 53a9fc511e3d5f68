"""What sentences say of how facts stand to each other: which of two is more, what is most of its kind, what a pass is limited by.

A comparison between two facts that count the same thing has a direction, a superlative has a kind, and `X_passes_Y` says which of two
is larger from there on: each is held against the numbers. Where words do not tell which fact is meant by which side, nothing is held.
Numbers that follow from the facts beside them (`half a megabyte (524 kB)`, `more than twice as many: A against B`) need no key of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from opscope_tools.report.claims import CONDITIONAL, Claim
from opscope_tools.report.markdown import number
from opscope_tools.report.measures import PHASE, PHASES, unit_of
from opscope_tools.report.quantities import Quantity
from opscope_tools.report.sentences import Quoted, Sentence
from opscope_tools.report.traits import Traits

__all__ = ["false_relations", "follows"]

_MORE = (
    r"more|larger|bigger|greater|higher|longer|slower|heavier|costlier|wider|deeper|exceeds?|outweighs?|dwarfs?|above"
)
_LESS = r"less|fewer|smaller|lower|shorter|faster|quicker|cheaper|lighter|narrower|below"
_COMPARES = re.compile(rf"\b(?:(?P<more>{_MORE})|(?P<less>{_LESS}))\b", re.IGNORECASE)
#: what turns a comparison round or takes it back: `no more than`, `not larger`
_DENIED = re.compile(r"\b(?:no|not|never|neither|hardly|n't)\s+(?:\w+\s+)?$", re.IGNORECASE)
#: comparatives that name their other side at once
_ALONE = re.compile(r"(?:above|below|exceeds?|outweighs?|dwarfs?)$", re.IGNORECASE)
#: what a comparative is then said of: a part or a number, and no other fact
_PART = re.compile(
    r"\s+(?:(?:than|as)\s+)?(?:about |roughly |some )?(?:(?:an?|one|two|three|nine)\s+)?(?:half|halves|thirds?|quarters?|fifths?|tenths?|hundredths?|thousandths?|twice|thrice|\d|\w+ times|\w+fold)\b",
    re.IGNORECASE,
)
_THAN = re.compile(r"\b(?:than|over|against|versus|vs\.?|compared (?:with|to))\b", re.IGNORECASE)


def false_relations(sentence: Sentence, values: Mapping[str, float], traits: Traits | None) -> Iterator[Claim]:
    """What a sentence says of its facts, or of what limits a pass, that is not so."""
    facts = [fact for fact in sentence.facts if fact.key in values]
    yield from _compared(sentence, facts, values)
    yield from _passed(sentence, facts)
    yield from _most(sentence, facts, values)
    yield from _moved(sentence, facts, values)
    yield from _of_other_plans(facts, values)
    yield from _parts_of(sentence, facts)
    if traits is not None:
        yield from _limited(sentence, traits)


# ---- which of two is more -------------------------------------------------------------------------------------------


def _compared(sentence: Sentence, facts: Sequence[Quoted], values: Mapping[str, float]) -> Iterator[Claim]:
    """A comparison between two facts that goes the other way."""
    found = _COMPARES.search(sentence.plain)
    if found is None or len(facts) != 2 or not (unit := unit_of(facts[0].key)) or unit != unit_of(facts[1].key):
        return
    if _DENIED.search(sentence.plain[: found.start()]) or CONDITIONAL.search(sentence.plain):
        return
    than = _THAN.search(sentence.plain, found.end())
    if (than is None and not _ALONE.match(found[0])) or _PART.match(sentence.plain, found.end()):
        return
    left = _left(sentence, facts, found.start(), than.end() if than and not _ALONE.match(found[0]) else found.end())
    right = facts[1] if left is facts[0] else facts[0]
    more = found.lastgroup == "more"
    if re.match(r"slower|faster|quicker", found[0], re.IGNORECASE) and unit == "tokens/s":
        more = not more
    one, other = values[left.key], values[right.key]
    if (one > other) is not more:
        said = f"{left.key} is {number(one)}, {right.key} {number(other)}"
        yield Claim(found[0], said)


def _left(sentence: Sentence, facts: Sequence[Quoted], at: int, than: int) -> Quoted:
    """The fact that the side before a comparative speaks of: by the words that its key alone has, else the one that stands first."""
    text = _masked(sentence)
    before, after = text[:at], text[than:]
    one, two = facts
    own = [_own(fact, other) for fact, other in ((one, two), (two, one))]
    told = [_says(words, before) - _says(words, after) for words in own]
    if told[0] != told[1]:
        return one if told[0] > told[1] else two
    return one


def _masked(sentence: Sentence) -> str:
    """The text of a sentence as long as its plain words, facts blank."""
    start = sentence.within.text.find(sentence.text)
    text = sentence.within.text[start : start + len(sentence.plain)] if start >= 0 else sentence.plain
    for fact in sentence.facts:
        text = text[: fact.start] + "\0" + " " * (fact.end - fact.start - 1) + text[fact.end :]
    return text


def _own(fact: Quoted, other: Quoted) -> set[str]:
    """Words that the key of one fact has and that of another lacks."""
    return _parts(fact.key) - _parts(other.key)


def _parts(key: str) -> set[str]:
    return {part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+\d*", key)}


def _says(words: set[str], text: str) -> bool:
    phases = {phase for phase in words if phase in PHASES}
    spoken = {found.lastgroup for found in PHASE.finditer(text)}
    others = (re.search(rf"(?<![a-z]){re.escape(word.rstrip('s'))}", text, re.IGNORECASE) for word in words - phases)
    return bool(phases & spoken) or any(others)


def _passed(sentence: Sentence, facts: Sequence[Quoted]) -> Iterator[Claim]:
    """`cache_passes_weights`: beyond it the cache is larger than the weights, and below it smaller."""
    for fact in facts:
        found = re.search(r"(?:^|\.)([a-z]+)_passes_([a-z]+)$", fact.key)
        compares = _COMPARES.search(sentence.plain, fact.end) if found else None
        if found is None or compares is None or CONDITIONAL.search(sentence.plain):
            continue
        subject = sentence.plain[fact.end : compares.start()]
        sides = [re.search(rf"\b{name}\b", subject) is not None for name in found.groups()]
        if sides[0] is sides[1] or _DENIED.search(sentence.plain[: compares.start()]):
            continue
        below = re.search(
            r"\b(?:below|under|up to|until|before|fewer than|less than|within)\W*$",
            sentence.plain[: fact.start],
            re.IGNORECASE,
        )
        passing = (compares.lastgroup == "more") is sides[0]
        if passing is bool(below):
            yield Claim(compares[0], f"beyond that the {found[1]} is larger than the {found[2]}")


# ---- what is most of its kind ---------------------------------------------------------------------------------------

_SUPERLATIVE = re.compile(
    r"(?<!at )\b(?:(?P<most>most|largest|biggest|highest|greatest|longest|slowest|heaviest|widest|majority|bulk)|(?P<least>least|smallest|fewest|lowest|shortest"
    r"|fastest|lightest|cheapest))\b",
    re.IGNORECASE,
)
#: how far behind a superlative its fact may stand
_NEAR = 120
_HALF = 50.0


def _most(sentence: Sentence, facts: Sequence[Quoted], values: Mapping[str, float]) -> Iterator[Claim]:
    """`most of ..., 6 %`; and the largest or smallest of a kind, which another fact of the kind passes."""
    for found in _SUPERLATIVE.finditer(sentence.plain):
        fact = next((one for one in facts if found.end() <= one.start <= found.end() + _NEAR), None)
        if fact is None or _DENIED.search(sentence.plain[: found.start()]):
            continue
        whole = re.match(r"\s+of\b", sentence.plain[found.end() :]) and found.lastgroup == "most"
        if whole and unit_of(fact.key) == "%":
            if values[fact.key] <= _HALF:
                yield Claim(f"{found[0]} of", f"{fact.key} is {number(values[fact.key])} %")
            continue
        kinds = [kind for kind in _kinds(fact.key, values) if len(kind) > 2]
        best = [(max if found.lastgroup == "most" else min)(kind, key=lambda key: values[key]) for kind in kinds]
        if best and all(values[key] != values[fact.key] for key in best):
            yield Claim(found[0], f"{best[0]} is {number(values[best[0]])}, and {fact.key} {number(values[fact.key])}")


def _kinds(key: str, values: Mapping[str, float]) -> Iterator[list[str]]:
    """The facts that are called as this one is but for one part of the key, which is no pass; by part."""
    own = _split(key)
    alike = [(other, parts) for other in values if len(parts := _split(other)) == len(own) and parts[-1] == own[-1]]
    for place, part in enumerate(own[:-1]):
        if part not in PHASES:
            same = [
                other
                for other, parts in alike
                if parts[:place] == own[:place] and parts[place + 1 :] == own[place + 1 :]
            ]
            yield same
    if unit_of(key) == "%" and len(own) > 1:
        yield [other for other in values if _split(other)[:-1] == own[:-1] and unit_of(other) == "%"]


def _split(key: str) -> list[str]:
    """The parts of a key, the dotted path of a class as one."""
    held = re.sub(r"(?:[a-z_]\w*\.)+(?=[A-Z])", "", key)
    return held.split(".")


# ---- from one amount to another --------------------------------------------------------------------------------------

_FROM_TO = re.compile(r"\bfrom\s+(?:about |some )?(\0)\s*[\w ]{0,30}?\b(?:down |up )?to\s+(?:about |some )?(\0)")
_DOWN = re.compile(
    r"\b(?:speeds?(?: \w+){0,4} up|cuts?|reduc\w+|shorten\w*|lower\w*|brings? down|shrinks?|sav\w+|falls?|drops?|down)\b",
    re.IGNORECASE,
)
_UP = re.compile(r"\b(?:slow\w*|raises?|grows?|increas\w+|lengthen\w*|rises?|climbs?)\b", re.IGNORECASE)


def _moved(sentence: Sentence, facts: Sequence[Quoted], values: Mapping[str, float]) -> Iterator[Claim]:
    """`cuts it from A to B`, `it grows from A to B`: B is the smaller or the larger."""
    for found in _FROM_TO.finditer(sentence.plain):
        one, two = ([fact for fact in facts if fact.start == found.start(n)] for n in (1, 2))
        before = sentence.plain[: found.start()]
        down, up = _DOWN.search(before), _UP.search(before)
        if not one or not two or bool(down) is bool(up) or unit_of(one[0].key) != unit_of(two[0].key):
            continue
        falls = bool(down) is not (unit_of(one[0].key) == "tokens/s")
        first, second = values[one[0].key], values[two[0].key]
        verb = down or up or found
        if _DENIED.search(before[: verb.start()]) or (second < first) is falls:
            continue
        yield Claim(verb[0], f"{one[0].key} is {number(first)}, {two[0].key} {number(second)}")


def _of_other_plans(facts: Sequence[Quoted], values: Mapping[str, float]) -> Iterator[Claim]:
    """Facts of one number of ranks beside the number of another."""
    ranks = {fact.key.split(".")[1] for fact in facts if re.fullmatch(r"rank\.tp\d+\.ranks", fact.key)}
    for fact in facts:
        found = re.fullmatch(r"rank\.(tp\d+)\.(?!ranks)\w+", fact.key)
        if found and ranks and found[1] not in ranks:
            yield Claim(fact.key, f"it is of {number(values[f'rank.{found[1]}.ranks'])} ranks")


def _parts_of(sentence: Sentence, facts: Sequence[Quoted]) -> Iterator[Claim]:
    """`A of the B`: both count the same."""
    for one, two in pairwise(facts):
        units = unit_of(one.key), unit_of(two.key)
        between = sentence.plain[one.start + 1 : two.start]
        if all(units) and units[0] != units[1] and re.fullmatch(r"\s+(?:out )?of (?:the |all |its |these )*", between):
            yield Claim(f"{one.key} of {two.key}", f"the first counts {units[0]}, the second {units[1]}")


# ---- what limits a pass ---------------------------------------------------------------------------------------------

_LIMIT = re.compile(
    r"\b(?:(?P<compute>compute|computing|arithmetic|FLOPs?)|(?P<memory>memory|bandwidth))[- ](?:bandwidth[- ])?(?:bound|limited)\b"
    r"|\b(?:limited|bound|bounded|held back|governed|set|dominated) by (?:the |its |pure )?(?:(?P<by_compute>comput\w+|arithmetic|FLOPs?|math\w*|tensor cores)"
    r"|(?P<by_memory>memory|bandwidth|(?:memory )?traffic|reads?|reading|loads?|loading|HBM|bytes))",
    re.IGNORECASE,
)
#: what a limit is said of that is no whole pass
_PARTS = re.compile(
    r"\b(?:attention|norms?|normali[sz]ations?|projections?|products?|MLP|feed-forward|experts?|activations?|embeddings?|head|layers?|operators?|kernels?|rotary|softmax|classes)\b",
    re.IGNORECASE,
)


def _limited(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    """A pass that is said to be limited by what does not limit it."""
    for found in _LIMIT.finditer(sentence.plain):
        before = sentence.plain[: found.start()]
        spoken = list(PHASE.finditer(before))
        phases = {one.lastgroup or "" for one in spoken}
        if (
            len(phases) != 1
            or CONDITIONAL.search(sentence.plain)
            or re.search(r"\b(?:beyond|from|above|until|up to)\b", before, re.IGNORECASE)
        ):
            continue
        if _PARTS.search(before[spoken[-1].end() :]) or re.search(r"`[A-Za-z_]\w*`", sentence.text[: found.start()]):
            continue
        limit = traits.limits.get(phases.pop())
        said = "compute" if (found.lastgroup or "").endswith("compute") else "memory"
        if _DENIED.search(before):
            said = "memory" if said == "compute" else "compute"
        if limit and limit[0] != said:
            yield Claim(found[0], limit[1])


# ---- numbers that follow from facts ---------------------------------------------------------------------------------

_BYTES = {
    "kilobyte": 1e3,
    "megabyte": 1e6,
    "gigabyte": 1e9,
    "terabyte": 1e12,
    "KB": 1e3,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
}
_ABOUT, _ROUGHLY = 0.06, 0.12
#: how far beside `more than a third` and `less than half` is still said so
_BESIDE = 0.15


def follows(quantity: Quantity, sentence: Sentence, values: Mapping[str, float]) -> bool:
    """Whether a part, a multiple or a rounded amount in words is what the facts of its sentence give."""
    times = re.match(r"\s*(?:times\b|×|x\b)|[\s-]*fold\b", sentence.plain[quantity.end :]) or re.search(
        r"fold$", quantity.text
    )
    if quantity.value is None or not (quantity.text[:1].isalpha() or times):
        return False
    known = [(unit_of(fact.key), values[fact.key]) for fact in sentence.facts if fact.key in values]
    after = sentence.plain[quantity.end :]
    if scaled := re.match(rf"\s*(?:an? )?({'|'.join(_BYTES)})s?\b", after):
        return any(
            unit == "bytes" and _close(quantity.value * _BYTES[scaled[1]], value, _ROUGHLY) for unit, value in known
        )
    before = sentence.plain[: quantity.start]
    short = re.search(
        r"\b(?:short of|less than|below|under|far from|not|nearly|almost)\W*(?:an?\W*)?$", before, re.IGNORECASE
    )
    more = re.search(r"\b(?:more than|over|at least|above)\W*$", before, re.IGNORECASE)
    if quantity.value > 2 and (short or not times) and any(quantity.value == value for _, value in known):
        return True
    if quantity.value < 1:
        shares = [value / 100 for unit, value in known if unit == "%"]
        near = [share for share in shares if _close(quantity.value, share, _ABOUT)]
        beside = [
            share
            for share in shares
            if abs(share - quantity.value) <= _BESIDE * quantity.value
            and ((more and share > quantity.value) or (short and share < quantity.value))
        ]
        if near or beside:
            return True
    if not times and any(re.match(rf"rank\.tp{quantity.value:g}\.", fact.key) for fact in sentence.facts):
        return True
    for unit, one in known:
        for other_unit, other in known:
            ratio = one / other if _kind(unit) == _kind(other_unit) and other else 0.0
            above = more and quantity.value <= ratio < quantity.value * (1 + _BESIDE) + (quantity.value > 1)
            if (
                _close(quantity.value, ratio, _ROUGHLY)
                or above
                or (short and (1 - _BESIDE) * quantity.value <= ratio < quantity.value)
            ):
                return True
    return False


def _kind(unit: str) -> str:
    """What may be divided by what: heads by heads."""
    return "heads" if unit.endswith("heads") else unit


def _close(said: float, value: float, within: float) -> bool:
    return value > 0 and abs(said - value) <= within * value
