"""What a fact is counted in, and of which pass it is: both read off its key, here and nowhere else.

Keys are put together where numbers are quoted (quotes.py): one part says the pass (`prefill.flops`), the last what is
counted (`module.x.Attention.bytes`), parameters of a configuration are called as the configuration calls them. Order: units, passes,
the words of English that name a unit, how a fact is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from opscope_schemas.units import amount, counted, plain_bytes, seconds

from opscope_tools.report.markdown import number

__all__ = [
    "PHASE",
    "PHASES",
    "Unit",
    "implied_unit",
    "named_unit",
    "phase_of",
    "said",
    "scaled_unit",
    "unit_of",
    "written",
    "written_forms",
]

#: FLOPs (a multiply and an add are 1 each), bytes, FLOPs per byte, seconds, tokens/s, sequences/s, images/s, %, times, and things that are counted;
#: empty where a key does not say what its number counts
Unit = str
PHASES = ("prefill", "decode", "encode", "forward")

#: the last part of a key, or the name of a parameter; the first that fits
_UNITS: tuple[tuple[str, Unit], ...] = (
    (r"(?:matmul_|causal_|masked_)?flops", "FLOPs"),
    (r"intensity|ridge", "FLOPs per byte"),
    (r"tokens_per_second", "tokens/s"),
    (r"over_floor", "times"),
    (r"bytes|floor|weights|cache|inputs|activations|eager_activations|usable|spare|cache_per_token|\w+_bytes\w*", "bytes"),
    (r"share_of_\w+|growing_share", "%"),
    (r"time", "seconds"),
    (r"parameters|active", "parameters"),
    (r"layers|encoder|decoder|\w+_layers|first_k_dense_replace", "layers"),
    (r"key_value_heads|\w*num_(?:kv|key_value|key)_heads", "key-value heads"),
    (r"query_heads|\w*heads", "query heads"),
    (r"experts|chosen|\w*experts\w*", "experts"),
    (r"(?:largest|turning|outweighing)_batch|batch_size", "sequences"),
    (r"window|sliding_window|chunk_size|longest_context|cache_passes_weights|vocab_size|\w*seq_len|cache_len|\w*positions?\w*|growing_half"
     r"|n_ctx", "tokens"),
    (r"\w+_(?:size|dim|rank)", "width"),
    (r"files|lines|entry_points|config_classes|extensions|environment|flags", "things"),
)  # fmt: skip


def unit_of(key: str) -> Unit:
    """What the number of a fact counts; empty where its key does not say."""
    parts = key.split(".")
    if "time" in parts[1:2]:
        own = {"bytes": "bytes", "kernels": "things"}
        own |= {f"{many}_per_second": f"{many}/s" for many in ("tokens", "sequences", "images")}
        clock = ("bound", "calibrated", "low", "high", "encoder")
        return own.get(parts[-1], "seconds" if parts[-1] in clock else "%")
    if "saved" in parts[1:2] or "largest" in parts[-2:-1]:
        return "%"
    if parts[0] in ("environment", "flags"):
        return "things"
    if parts[:2] == ["attention", "query_heads"]:
        return "query heads"
    return next((unit for pattern, unit in _UNITS if re.fullmatch(pattern, parts[-1])), "")


def phase_of(key: str) -> str:
    """The pass that a fact is of; empty where it holds in every pass."""
    parts = key.split(".")
    named = [part for part in (*parts, parts[-1].removeprefix("share_of_")) if part in PHASES]
    return named[0] if named else ""


#: how sentences speak of passes
_PHASE_WORDS = {
    "prefill": r"prefill\w*|prompt processing|(?:processing|reading|reads?) (?:the|a) prompt",
    "decode": r"decod(?:e|es|ing)\b|generation|generating|generated token|new token",
    "encode": r"encod(?:e|es|ing)\b|encoder pass",
    "forward": r"forward pass",
}
PHASE = re.compile("|".join(rf"(?P<{phase}>\b(?:{words}))" for phase, words in _PHASE_WORDS.items()), re.IGNORECASE)

# ---- units in sentences ---------------------------------------------------------------------------------------------

#: what people call a unit, longest first, and the units of facts that the words can speak of
_WORDS: tuple[tuple[str, frozenset[Unit]], ...] = tuple(
    (pattern, frozenset(units.split("|")))
    for pattern, units in (
        (r"FLOPs? per byte|FLOPs?/(?:B|byte)|FLOPs of each byte", "FLOPs per byte"),
        (r"[kMGTP]?FLOPs?(?:/s| per second)|[kMGTP]?FLOPS", "FLOP/s"),
        (r"tokens?(?: per second| a second|/s)", "tokens/s"),
        (r"sequences?(?: per second| a second|/s)", "sequences/s"),
        (r"images?(?: per second| a second|/s)", "images/s"),
        (r"[kMGTP]?i?B/s|bytes? per second", "bytes/s"),
        (r"[kMGTP]?FLOPs?|flops|floating[- ]point operations|multiply-adds", "FLOPs"),
        (r"(?:kilo|mega|giga|tera|kibi|mebi|gibi)?bytes?|[kKMGTP]?i?B", "bytes"),
        (r"[mµun]?s|(?:milli|micro|nano)?seconds?|minutes?", "seconds"),
        (r"%|percent|per cent", "%"),
        (r"parameters?", "parameters"),
        (r"weights", "parameters|bytes"),
        (r"(?:key[-/ ]?(?:and[- ])?value|kv|KV) heads?", "key-value heads"),
        (r"query heads?", "query heads"),
        (r"heads?", "query heads|key-value heads"),
        (r"layers?", "layers"),
        (r"experts?", "experts"),
        (r"tokens?|positions?|vocabulary entries", "tokens"),
        (r"sequences?|requests?|prompts?", "sequences"),
    )
)
_NAMED = re.compile(
    "|".join(f"(?P<w{at}>(?<![A-Za-z])(?:{pattern})(?![A-Za-z]))" for at, (pattern, _) in enumerate(_WORDS))
)
#: words with which what is counted has been named: what follows speaks of something else
_ENDS = re.compile(
    r"[,;:.()\x00]|\b(?:of|for|in|on|per|to|at|by|from|with|that|which|and|or|as|is|are|each|than|while|where|a|an|the)\b"
)
_SCALED = re.compile(
    r"\s*(?:(?:[kKMGTP]i?(?:B|FLOPs?))|(?:kilo|mega|giga|tera)bytes?|[mµun]s|(?:milli|micro|nano)seconds?|minutes?)\b"
)
#: what stands between the name of a quantity and its number: `the number of layers is 32`, `FLOPs: 12`
#: words of a label, whose last names what stands behind its colon
_LABEL = 4
_LEADS = re.compile(r"(?:\s*(?:is|are|equals?|=|:|amounts? to|comes? to|totals?|count(?:s)?|at|run to))+\s*$")


def named_unit(before: str, after: str) -> frozenset[Unit]:
    """The units that the words around a number name: the words after it as far as they belong to it, else those that it is
    introduced by; empty where no unit is named."""
    found = _NAMED.match(after.lstrip(" -"))
    if not found:
        ends = _ENDS.search(after)
        found = _NAMED.search(after[: ends.start()] if ends else after)
    if (
        not found
        and (lead := _LEADS.search(before))
        and not (":" in lead[0] and len(before[: lead.start()].split()) > _LABEL)
    ):
        found = next(iter(reversed(list(_NAMED.finditer(before[max(0, lead.start() - 40) : lead.start()])))), None)
    return _WORDS[int((found.lastgroup or "w0")[1:])][1] if found else frozenset()


#: what is done with bytes, FLOPs and time, where no unit is named
_DONE: tuple[tuple[Unit, str], ...] = (
    ("bytes", r"moves?|moved|moving|traffic|footprint|occup(?:y|ies|ied)|stores?|memory use|(?:takes?|uses?) up"),
    ("FLOPs", r"computes|arithmetic|multiplications|operations"),
    ("seconds", r"latency|lasts?|duration|waits?"),
)
_DOING = re.compile("|".join(rf"(?P<{unit}>\b(?:{words})\b)" for unit, words in _DONE))


def implied_unit(before: str) -> Unit:
    """The unit that a verb or noun before a number asks for, as far back as the last fact; empty where none does."""
    found = list(_DOING.finditer(re.split(r"[;\0]", before)[-1]))
    return (found[-1].lastgroup or "") if found else ""


def scaled_unit(after: str) -> str:
    """The unit with a prefix (GB, ms) that stands behind a number; empty where there is none."""
    found = _SCALED.match(after)
    return found[0].strip() if found else ""


# ---- how facts are written ------------------------------------------------------------------------------------------


def _flops(value: float) -> str:
    return amount(value, "FLOP")


_FORMS: dict[Unit, Callable[[float], str]] = {
    "FLOPs": _flops, "bytes": plain_bytes, "seconds": seconds, "parameters": counted,
}  # fmt: skip


def written_forms(key: str, value: float) -> tuple[str, ...]:
    """How a fact may stand in a report: in digits, or as people say what it counts."""
    form = _FORMS.get(unit_of(key))
    return (number(value), form(value)) if form else (number(value),)


def said(key: str, value: float) -> str:
    """A fact as people say what it counts: FLOPs, bytes, seconds or parameters with a prefix."""
    return _FORMS[unit_of(key)](value)


def written(key: str, value: float, after: str) -> str:
    """A fact for a sentence that goes on with `after`: in digits where its unit follows, else FLOPs, bytes and times with it."""
    unit = unit_of(key)
    alone = unit in ("FLOPs", "bytes", "seconds") and unit not in named_unit("", after)
    return _FORMS[unit](value) if alone else number(value)
