"""Quantities in plain words: which numbers of a sentence say how much or how many, in digits or spelt out.

A quantity is what an analysis would give, so it has to be a fact. No quantity is a number that names something:
- what stands in a code span (a literal there must stand on the cited lines, see prose.py), a pointer, a link;
- an identifier, a token that begins with a letter: Llama-3-8B, h100, bf16, int4, fp8. `top-2` is one, and yet says how many: it is
  held against the experts that a token is sent to. `8x7B`, `7B`, `32x` begin with a digit and are quantities;
- a reference: section 4.2, table 3, task 12, line 7, layer 0, dimension -1, an ordinal (3rd), a year behind a name, a date;
- a version: 5.23.0, v2, PyTorch 2.13, FlashAttention 3; a shape word: 2D; a width of a dtype: 4-bit (claims.py holds it to the dtype).
Words are held to the same: seven billion, a dozen, hundreds of, half, twice, doubles, a third of, tenfold. `one` and `a single` are
quantities where they count heads, layers or experts, and else no more than an article; `first`, `second half`, `both`, `once` and
`half precision` are none.
Small numbers (up to twelve) that count what the lines cited beside them show by themselves, and that no analysis counts, may stand:
"two norms", "three projections", "is applied twice". That holds for `SHOWN` alone, never for layers, heads, experts, parameters, tokens or devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Quantity", "quantities"]


@dataclass(frozen=True)
class Quantity:
    """A number in words or digits: where it stands, how it is written, what it says (None: not one number), and whether it counts
    what cited lines show."""

    start: int
    end: int
    text: str
    value: float | None
    shown: bool = False


_ONES = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
        "eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)
}
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_WORD = "|".join([*_ONES, *_TENS, *_SCALES])
_SPELT = re.compile(
    rf"\b(?:(?:{_WORD})(?:[\s-]+(?:and\s+)?(?:{_WORD})s?)*|(?:hundred|thousand|million|billion|trillion|dozen)s)\b",
    re.IGNORECASE,
)
#: words that say how many times or which part
_PARTS = re.compile(
    r"\b(?:half|halves|halved|halving|twice|thrice|doubled?|doubles|doubling|tripled?|triples|tripling|quadrupled?|quadruples"
    r"|(?:an?|one|two|three|four|five|six|seven|eight|nine)[\s-]+(?:thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?|hundredths?)"
    r"|(?:two|three|four|five|six|seven|eight|nine|ten|hundred|thousand|many)[\s-]?fold|an order of magnitude|orders of magnitude"
    r"|a couple|a handful)\b",
    re.IGNORECASE,
)
_PART_VALUES = {
    "half": 0.5, "halves": 0.5, "halved": 0.5, "halving": 0.5, "twice": 2.0, "double": 2.0, "doubles": 2.0, "doubled": 2.0, "doubling": 2.0,
    "thrice": 3.0, "triple": 3.0, "triples": 3.0, "tripled": 3.0, "tripling": 3.0, "quadruples": 4.0, "quadrupled": 4.0,
}  # fmt: skip
_NAMED_PARTS = {
    "third": 3,
    "quarter": 4,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "eighth": 8,
    "tenth": 10,
    "hundredth": 100,
}
#: `half` and `double` that say which, or name a technique or a dtype
_NO_PART = re.compile(
    r"(?:(?:first|second|each|either|other|upper|lower|left|right|former|latter|both|two|the two)\s+hal(?:f|ves)"
    r"|(?:half|double)[\s-]precision|double[\s-]?buffer\w*|double[\s-]quot\w*|one[\s-]and[\s-]a)$",
    re.IGNORECASE,
)
_TOKEN = re.compile(r"(?<![^\s(\[{\"'/~≈<>=+|:;,—–])[×x~≈<>=≤≥]?[-−+]?\d[^\s|\0]*")
_TRAILING = ".,;:!?)]}\"'*_…"
_NUMBER = re.compile(r"[×x~≈<>=≤≥]?([-−+]?\d[\d,_]*(?:\.\d+)?(?:e[+-]?\d+)?)(.*)", re.DOTALL)
_SCALE_LETTERS = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_REFERENCE = re.compile(
    r"(?:\b(?:sections?|sec\.|chapters?|tables?|figures?|fig\.|tasks?|steps?|lines?|equations?|eq\.|items?|rows?|columns?|appendix"
    r"|notes?|footnotes?|layer|block|stage|ax[ei]s|dims?|dimensions?|ind(?:ex|ices)|argument|rank|level|version|release|issue|PR|pull"
    r" request|algorithm|listing|operators?|opset|component|phase|experiment|case|rule)|[§#])[\s-]*"
    r"(?:-?\d[\d.]*+(?:\s*+(?:,|;|and|or|to|through|–|-)\s*+)++)*+$",
    re.IGNORECASE,
)
_PRODUCT = re.compile(
    r"\b(?:PyTorch|[Tt]orch|CUDA|cuDNN|cuBLAS|CUTLASS|NCCL|ROCm|Python|[Tt]ransformers|Triton|vLLM|SGLang|TensorRT|GCC|C\+\+|Flash ?Attention"
    r"|Llama|Qwen|Mistral|Mixtral|Gemma|Phi|GPT|DeepSeek|Mamba|Whisper|Falcon|BERT|T5|OPT|OLMo|Nemotron|PTX|sm|SM|compute capability"
    r"|[Vv]ersions?|[Rr]eleases?)\s*$"
)
#: what analyses count, so that `one` of them is a number
_COUNTED = re.compile(
    r"\s*(?:\w+[- /]+){0,2}?(?:heads?|layers?|experts?|parameters?|tokens?|devices?|GPUs?|billion|million)\b",
    re.IGNORECASE,
)
_COUNTING = re.compile(
    r"\b(?:has|have|having|with|only|just|exactly|to|uses?|runs?|keeps?|stacks?|contains?|activates?|picks?|selects?|chooses)\s+"
    r"(?:only\s+|just\s+|exactly\s+)?(?:a\s+)?$", re.IGNORECASE,
)  # fmt: skip
#: what cited lines show by themselves and no analysis counts
_SHOWN = re.compile(
    r"-(?:way|stage|step|pass|phase|level|part)\b|\s+(?:(?!(?:query|key|value|kv|heads?|layers?|experts?|parameters?|tokens?|devices?)\b)[a-z-]+\s+){0,2}?(?:tables?|norms?|normali[sz]ations?|projections?|matri(?:x|ces)|linears?|residuals?|additions?|branch(?:es)?|paths?|steps?"
    r"|calls?|lines?|functions?|class(?:es)?|methods?|arguments?|inputs?|outputs?|tensors?|operators?|kernels?|modules?|submodules?|parts?"
    r"|halves|places?|ways?|cases?|reads?|writes?|stages?|phases?|pass(?:es)?|axes|dimensions?|sub-?layers?|products?|transposes?|reshapes?"
    r"|views?|terms?|factors?|conditions?|checks?|flags?|settings?|switches|files?|statements?|copies|kinds?|variants?|loops?|scales?"
    r"|masks?|caches|names?|variables?|attributes?|decorators?|results?|things?|convolutions?|gates?|streams?|others?|values|sizes|blocks"
    r" of code|constants?|assignments?|operations|implementations?|backends?|roles?|components?|rules?|questions?|options?)\b",
    re.IGNORECASE,
)  # fmt: skip
_MOST_SHOWN = 12
#: how often cited lines do something, and not how much of something there is
_DONE_OFTEN = re.compile(
    r"\b(?:appears?|occurs?|called|applied|used|stands?|written|normali[sz]ed|added|normali[sz]es|adds)\s+$"
)
_AS_MUCH = re.compile(r"\s+(?:as|the|more|less|that|its|their|faster|slower)\b")


def quantities(plain: str) -> Iterator[Quantity]:
    """The quantities of a sentence's plain words, digits first."""
    taken: list[tuple[int, int]] = []
    for found in _TOKEN.finditer(plain):
        token = found[0].rstrip(_TRAILING)
        said = _digits(plain, found.start(), token)
        if said is not None:
            taken.append((said.start, said.end))
            yield said
    for pattern in (_PARTS, _SPELT):
        for found in pattern.finditer(plain):
            said = _words(plain, found)
            if said is not None and not any(start < said.end and said.start < end for start, end in taken):
                taken.append((said.start, said.end))
                yield said
    for found in re.finditer(r"\b(?:an?\s+)?single\b", plain, re.IGNORECASE):
        if _COUNTED.match(plain, found.end()) and _COUNTING.search(plain[: found.start()]):
            yield Quantity(found.start(), found.end(), found[0], 1.0)


def _digits(plain: str, start: int, token: str) -> Quantity | None:
    """The quantity that a token with a digit is; None where it names something."""
    before, end = plain[:start], start + len(token)
    held = _NUMBER.match(token)
    if held is None or not token or _names(token, before, plain[end:]):
        return None
    text = held[1].replace(",", "").replace("_", "").replace("−", "-")
    value: float | None = float(text) if re.fullmatch(r"[-+]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", text) else None
    scale = _SCALE_LETTERS.get(held[2][:1], 1.0) if re.fullmatch(r"[KkMBGT](?:[A-Z]\w*)?", held[2]) else 1.0
    spelt = re.match(r"\s+(hundred|thousand|million|billion|trillion|dozen)s?\b", plain[end:])
    if spelt:
        end, scale = end + spelt.end(), float(_SCALES[spelt[1].lower()])
    value = value * scale if value is not None else None
    shown = bool(
        value is not None and scale == 1 and 0 <= value <= _MOST_SHOWN and not held[2] and _SHOWN.match(plain[end:])
    )
    return Quantity(start, end, plain[start:end], value, shown)


def _names(token: str, before: str, after: str) -> bool:
    """Whether a token with a digit names something instead of counting."""
    if re.fullmatch(r"\d+-?[Dd]|\d+-bit|\d+(?:st|nd|rd|th)|v?\d+(?:\.\d+){2,}\S*|\d{4}-\d\d-\d\d\S*", token):
        return True
    if re.fullmatch(r"-bit\w*", after[:4].strip()) and token.isdigit():
        return True
    if _REFERENCE.search(before):
        return True
    if re.fullmatch(r"\d+(?:\.\d+)*", token) and _PRODUCT.search(before):
        return not _COUNTED.match(after)
    return bool(re.fullmatch(r"(?:19|20)[0-3]\d[a-z]?", token) and re.search(r"(?:et al\.,?|[A-Z]\w+,)\s*\(?$", before))


def _words(plain: str, found: re.Match[str]) -> Quantity | None:
    """The quantity that number words are; None where they only count as an article does, or name something."""
    word, start, end = found[0].lower(), found.start(), found.end()
    after = plain[end:]
    if re.match(r"hal|doubl", word):
        if _NO_PART.search(plain[:end]) or (
            re.search(r"(?:half|double)$", word) and _NO_PART.search(plain[: end + 12].rstrip())
        ):
            return None
        if re.match(r"[\s-]*(?:precision|buffer|quot|float)", after):
            return None
    if re.match(r"-(?:dimensional|sided)\b", after):
        return None
    if word in ("one", "zero") and not (_COUNTED.match(after) and _COUNTING.search(plain[:start])):
        return None
    value = _PART_VALUES[word] if word in _PART_VALUES else _part(word)
    if word in ("twice", "thrice"):
        return Quantity(
            start, end, found[0], value, bool(_DONE_OFTEN.search(plain[:start])) and not _AS_MUCH.match(after)
        )
    shown = value is not None and 0 <= value <= _MOST_SHOWN and word in _ONES and bool(_SHOWN.match(after))
    return Quantity(start, end, found[0], value, shown)


def _part(word: str) -> float | None:
    """The number of a part or a multiple in words; None where they say no one number.

    >>> _part("nine tenths"), _part("a third"), _part("sixfold"), _part("seven")
    (0.9, 0.3333333333333333, 6.0, 7.0)
    """
    *counted, last = re.split(r"[\s-]+", word)
    if counted and (parts := _NAMED_PARTS.get(last.rstrip("s"))):
        return (_ONES.get(counted[-1], 1)) / parts
    times = re.fullmatch(r"(\w+?)-?fold", word)
    return _spelt(times[1]) if times else _spelt(word)


def _spelt(text: str) -> float | None:
    """The number that words spell; None where they spell no one number.

    >>> _spelt("seven billion"), _spelt("thirty-two"), _spelt("a dozen"), _spelt("hundreds")
    (7000000000.0, 32.0, 12.0, None)
    """
    total, held = 0, 0
    words = [word for word in re.split(r"[\s-]+", text.lower()) if word not in ("a", "an", "and")]
    for word in words:
        if word in _ONES or word in _TENS:
            held += _ONES.get(word, _TENS.get(word, 0))
        elif word in _SCALES:
            scale = _SCALES[word]
            held = max(held, 1) * scale
            if scale >= 1000:
                total, held = total + held, 0
        else:
            return None
    return float(total + held)
