"""What plain sentences assert of a model, held against its traits (traits.py): yes or no, dtypes, classes.

A phrase counts as asserted where a verb says it of the model ("uses grouped-query attention", "the embeddings are tied") and as
denied where a negation stands before or behind it. What is said on a condition ("if", "would", "supports"), of a purpose ("expands
keys for grouped-query attention") or as a contrast to something else is no assertion, and is let through.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_schemas.units import things

from opscope_tools.report.markdown import POINTER
from opscope_tools.report.sentences import Sentence
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.traits import Traits

__all__ = ["CONDITIONAL", "Claim", "false_claims"]


@dataclass(frozen=True)
class Claim:
    """Words of a sentence that say what is not so, and what is."""

    words: str
    right: str


#: trait -> the phrases that speak of it, and those that deny it by themselves
_PHRASES: tuple[tuple[str, str, str], ...] = (
    ("grouped-query", r"grouped[- ]query|GQA\b", ""),
    ("multi-query", r"multi[- ]query|MQA\b", ""),
    ("multi-head", r"multi[- ]head(?:ed)?(?![- ]latent)|MHA\b", ""),
    ("latent", r"(?:multi[- ]head[- ])?latent[- ]attention|MLA\b", ""),
    ("experts", r"mixture[- ]of[- ]experts|MoE\b|experts?\b|expert[- ]rout\w+", r"dense (?:model|transformer|decoder(?!\s+layer))"),
    ("shared", r"shared experts?", ""),
    ("windows", r"sliding[- ]windows?|windowed attention|local attention|attention windows?", r"(?:full|global) attention (?:in|on) (?:every|each|all)"),
    ("tied", r"tied\b|tie[sd]?\b|tying\b|shares? (?:its |one |their |the same |the |a )?(?:weights?|matrix)|sharing (?:its |their )?weights?"
     r"|reus\w+ (?:the |its )?(?:\w+ )?(?:matrix|weights?|table|embeddings?)|(?:the )?same (?:matrix|weights?|table) (?:as|for)", r"untied\b|(?:separate|own|different) (?:matri\w+|weights|tables?)"),
    ("bias", r"bias(?:es)?\b(?! term of the mask)|biased\b", r"bias[- ]free|bias-?less|unbiased"),
    ("quantised", r"quanti[sz]ed\b|quanti[sz]ation\b", r"un-?quanti[sz]ed|non-quanti[sz]ed"),
    ("encoder-decoder", r"encoder[-–— ]decoder|encoder and (?:a |one )?decoder", r"decoder[- ]only|encoder[- ]only"),
    ("attends", r"(?:softmax|self-?|causal|cross-?)[- ]?attention|attends", r"attention-free|no attention(?! mask)"),
    ("rotary", r"rotary|RoPE\b|rotat(?:es|ing) (?:the )?(?:queries|keys)", r"learned (?:absolute )?position\w*|ALiBi\b"),
    ("cache", r"(?:KV|key[-/ ]value)[- ]cache", ""),
)  # fmt: skip
#: experts and biases are denied as a whole only by "no" and its like: not every expert is met by a token
_SOME, _NONE = (
    re.compile(r"experts?|bias", re.IGNORECASE),
    re.compile(r"\b(?:no|without|any|zero|lacks?)\s+(?:\w+\s+)?$", re.IGNORECASE),
)
#: what the sentence has to speak of beside the phrase
_ABOUT = {
    "tied": re.compile(r"embedd|head|output|unembed|vocab|weights?\b", re.IGNORECASE),
    "bias": re.compile(r"proj|linear|layer|model|weight|attention|MLP|matri|q_|k_|v_|\bterm", re.IGNORECASE),
}
_NOT = r"(?:\b(?:no|not|never|without|neither|nor|none|cannot|lacks?|lacking|instead of|rather than|unlike|avoids?|omits?|free of|zero)\b|n't\b)"
#: a negation that is of the phrase: what stands between them only says that something is there, or which
_DENIES = re.compile(
    rf"{_NOT}(?:\W+(?:an?|any|the|its|their|use[ds]?|using|have|has|having|keeps?|kept|apply|applie[sd]|employ\w*|contain\w*|includ\w*"
    r"|implement\w*|adopt\w*|rely|relies|on|of|in|be|been|is|are|by|to|with|from|runs?|routes?|tokens?|sort|form|kind|single|separate|additive"
    r"|learned|weight|shared|routed|sparse|even|a mixture|model|network)){0,5}\W*$",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"^(?:[\s-]+\w+){0,3}?(?:\s+(?:is|are|was|were)(?:n't|\s+(?:not|never))\s+(?:used|present|applied|there|kept|enabled|employed|part|tied|"
    r"configured|active|in use|involved|quanti[sz]ed)|\s+(?:is|are)\s+(?:absent|missing|off|disabled|unused|left out)|\s+plays? no|-free)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(rf"{_NOT}(?:\W+[\w-]+){{0,6}}\W*$", re.IGNORECASE)
_NEGATED_AFTER = re.compile(
    r"^(?:\W+\w+){0,2}?\W+(?:is|are|was|were|has|have|does|do|need|needs)(?:n't|\s+(?:not|never|no)\b)", re.IGNORECASE
)
#: what is said on a condition, or of what may be
CONDITIONAL = re.compile(
    r"\b(?:if|unless|would|could|might|may|whether|supports?|supported|supporting|variants?|were|optional(?:ly)?|possible|allows?|can be"
    r"|can also|configurable|depending|depends|other models|elsewhere|in principle|declared?s?|by default|hypothetical\w*)\b",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[;:—–(|]|,?\s(?:but|while|whereas|although|though|because|since|and then|which|so that)\s|\.\s")
_WHEN = re.compile(r"\b(?:when|where|wherever|whenever|once)\b", re.IGNORECASE)
_VERB = re.compile(
    r"(?:^(?:\s*\w+){0,1}|\b(?:is|are|was|has|have|having|uses?|using|used|employs?|implements?|applies|apply|adopts?|features?|contains?|includes?|runs?"
    r"|performs?|relies on|rely on|use of|kind of|form of|builds? on|built (?:on|as|from)|keeps?|does|do|with|without|no|via|through|as|carr(?:y|ies)"
    r"|routes?|routed|picks?|chooses?|selects?|sends?|stores?|stored|computes?|computed|gets?|takes?|attends?|lacks?|not|its|their|this|ties|limits?"
    r"|replaces?|adds?|makes?|an?|the|all|every|each|these|those|only|in|cast|kept|held|loaded|executed|to))\b"
    r"(?:\s+[\w\0`'-]+){0,4}?\s*[\s\W]*$",
    re.IGNORECASE,
)
_DOES = re.compile(r"(?:reus|shar|ti|rotat|attend)\w*s\b", re.IGNORECASE)
_PURPOSE = re.compile(
    r"\b(?<!use )(?<!kind )(?<!form )(?:for|of|from|like|against|towards?|than)\s+(?:the |an? |its |their )?(?:[\w-]+ )?$",
    re.IGNORECASE,
)


def _asserts(plain: str, start: int, end: int) -> bool | None:
    """Whether a sentence asserts (True) or denies (False) the phrase at that place; None where it does neither."""
    clauses = [found.end() for found in _CLAUSE.finditer(plain[:start])]
    before, after = plain[clauses[-1] if clauses else 0 : start], plain[end:]
    if CONDITIONAL.search(plain) or _WHEN.search(before):
        return None
    if _DENIES.search(before) or _DENIED.match(after):
        return False
    if _NEGATED.search(before) or _NEGATED_AFTER.match(after):
        return None
    if not before.strip() and _DOES.match(plain, start):  # of what stands as code in front of it
        return True
    if _PURPOSE.search(before) or not _VERB.search(before.rstrip() + " "):
        return None
    return True


def false_claims(sentence: Sentence, traits: Traits, reader: SourceReader) -> Iterator[Claim]:
    """What a sentence says of the model that is not so."""
    yield from _of_traits(sentence, traits)
    yield from _of_dtype(sentence, traits, reader)
    yield from _of_classes(sentence, traits, reader)
    yield from _of_biases(sentence, traits)
    yield from _of_parameters(sentence, traits)
    yield from _of_activations(sentence, traits)
    yield from _of_growth(sentence, traits)
    yield from _of_room(sentence, traits)


def _of_traits(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    for name, phrase, opposite in _PHRASES:
        trait = traits.held.get(name)
        if trait is None or trait.holds is None or (name in _ABOUT and not _ABOUT[name].search(sentence.text)):
            continue
        for pattern, sign in ((phrase, True), (opposite, False)):
            for found in re.finditer(rf"(?<![\w-])(?:{pattern})", sentence.plain, re.IGNORECASE) if pattern else ():
                said = _asserts(sentence.plain, *found.span())
                if said is False and _SOME.match(found[0]) and not _NONE.search(sentence.plain[: found.start()]):
                    continue
                if said is not None and (said is sign) != trait.holds:
                    yield Claim(found[0], trait.said)
                    return


# ---- projections, parameters, activations ---------------------------------------------------------------------------

#: words for projections -> what their attributes are called
_PROJECTIONS = (
    (r"quer(?:y|ies)", r"(?:w_?)?q(?:_\w*)?|query\w*|q_?proj|c_attn|qkv\w*"), (r"keys?", r"(?:w_?)?k(?:_\w*)?|key\w*|c_attn|qkv\w*|kv\w*"),
    (r"values?", r"(?:w_?)?v(?:_\w*)?|value\w*|c_attn|qkv\w*|kv\w*"), (r"output projections?", r"o_proj|out_proj|wo|o|out_lin|dense_out"),
    (r"gate projections?", r"gate\w*|w1"), (r"up projections?", r"up\w*|w3"), (r"down projections?", r"down\w*|w2"),
    (r"(?:LM |language[- ]model(?:ling)? )?head|output matrix", r"lm_head|embed_out|output"),
)  # fmt: skip
_WITHIN = ((r"attention", "attention"), (r"MLP|feed-forward(?: network| block)?|FFN", "feed-forward network"))
_NO_BIAS = re.compile(
    r"\b(?:no|without(?: an?| any)?|lacks?(?: an?)?|neither|nor|not (?:have|carry|add|use)(?: an?| any)?|(?:do|does|has|have)n't (?:have |carry |add |use )?(?:an? |any )?)\s*(?:\w+\s+)?bias(?:es)?\b"
    r"|\bbias[- ]?(?:free|less)\b|\b(?:no|none)\b[^.;]{0,60}\b(?:has|have|carr\w+|adds?|uses?)\s+(?:an?\s+)?bias",
    re.IGNORECASE,
)
_HAS_BIAS = re.compile(
    r"\b(?:has|have|having|carr(?:y|ies)|with|adds?|adding|keeps?|uses?|includes?|learns?)(?:\s+(?:an?|the|its|their))?(?:\s+\w+)?\s+bias(?:es)?\b",
    re.IGNORECASE,
)


def _of_biases(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    """Projections that are named and said to have a bias, or none, clause by clause."""
    if "bias" not in sentence.plain.lower() or CONDITIONAL.search(sentence.plain):
        return
    text = POINTER.sub("", sentence.text).replace("`", " ")
    for clause in re.split(r"[;:]|,?\s(?:but|while|whereas|although|and (?:the|its))\s", text):
        none, some = _NO_BIAS.search(clause), _HAS_BIAS.search(clause)
        if not (none or some):
            continue
        meant = {name: traits.biases[name][0] for name in _meant(clause, traits)}
        wrong = [name for name, has in meant.items() if has is bool(none)]
        every = re.search(r"\b(?:all|every|each|both)\b", clause, re.IGNORECASE)
        if meant and wrong and (none or every or len(wrong) == len(meant)):
            word = "has a bias" if none else "has none"
            yield Claim("bias", f"`{wrong[0]}` {word}")
            return


def _meant(clause: str, traits: Traits) -> Iterator[str]:
    """The projections that a clause names; all of an attention or feed-forward network where it names one of those alone."""
    named = [name for name in traits.biases if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", clause)]
    for words, pattern in _PROJECTIONS:
        if re.search(rf"\b(?:{words})\b", clause, re.IGNORECASE):
            named += [name for name in traits.biases if re.fullmatch(pattern, name)]
    if named:
        yield from dict.fromkeys(named)
        return
    played = {traits.classes.get(found, "") for found in re.findall(r"[A-Z]\w+", clause)}
    for words, role in _WITHIN:
        if role in played or re.search(rf"\b(?:{words})\b", clause, re.IGNORECASE):
            yield from (name for name, (_, held) in traits.biases.items() if held == role)


_LEARNS = re.compile(
    r"\b(?:learn(?:s|ed|able|ing)?|trainable|trained|has (?:an? |its own )?(?:learn\w+ )?(?:weights?|scales?|gains?|parameters))\b",
    re.IGNORECASE,
)
_LEARNS_NOTHING = re.compile(
    r"\b(?:no|without(?: any| an?)?|neither|lacks?)\s+(?:(?:learn\w+|trainable|own|affine)\s+)*(?:weights?|parameters?|scales?|gains?)\b|parameter-free|non-parametric|learns? nothing",
    re.IGNORECASE,
)


def _of_parameters(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    """A class that is said to learn something and has no parameters, or the other way round."""
    named = [found[1] for found in _CAMEL.finditer(sentence.text) if found[1] in traits.learned]
    if len(set(named)) != 1 or CONDITIONAL.search(sentence.plain):
        return
    has = bool(traits.learned[named[0]])
    if traits.learned[named[0]] and not any(name == "weight" or "bias" in name for name in traits.learned[named[0]]):
        return
    plain = sentence.plain
    if (
        _NO_BIAS.search(plain)
        and "bias" in traits.learned[named[0]]
        and traits.classes.get(named[0]) == "normalisation"
    ):
        yield Claim("bias", f"`{named[0]}` has a bias")
        return
    if (
        _HAS_BIAS.search(plain)
        and not _NO_BIAS.search(plain)
        and "bias" not in traits.learned[named[0]]
        and traits.classes.get(named[0]) == "normalisation"
    ):
        yield Claim("bias", f"`{named[0]}` has none")
        return
    nothing, learns = _LEARNS_NOTHING.search(sentence.plain), _LEARNS.search(sentence.plain)
    if nothing and has:
        yield Claim(nothing[0], f"`{named[0]}` has parameters")
    elif learns and not nothing and not has and not _NEGATED.search(sentence.plain[: learns.start()]):
        yield Claim(learns[0], f"`{named[0]}` has no parameters")


_GROWS = re.compile(r"\bcache\b[^.;]{0,40}?\bgrow(?:s|ing)?\b|\bgrowing cache\b", re.IGNORECASE)
_FIXED = re.compile(
    r"\bcache\b[^.;]{0,40}?\b(?:(?:fixed|constant|same) (?:in )?size|(?:does not|never|no longer) grows?|stays? the same)",
    re.IGNORECASE,
)


def _of_growth(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    """A cache that is said to grow and does not, or the other way round."""
    trait = traits.held.get("growing")
    if trait is None or trait.holds is None or CONDITIONAL.search(sentence.plain):
        return
    fixed, grows = _FIXED.search(sentence.plain), _GROWS.search(sentence.plain)
    if fixed and trait.holds:
        yield Claim(fixed[0], trait.said)
    elif grows and not fixed and not trait.holds and not re.search(r"\b(?:no|not|never|n't)\b", grows[0]):
        yield Claim(grows[0], trait.said)


_ALL_EXPERTS = re.compile(
    r"\btokens?\b[^.;]{0,60}\b(?:all|every one of)\b(?: the| of the)?[\s\0]{0,80}(?:\w+\s+)?experts\b", re.IGNORECASE
)
_ON_ONE = re.compile(
    r"\bfits?\b[^.;]{0,20}\b(?:on|in|into|onto)\s+(?:an?|one)\s+(?:single\s+)?(?:[A-Z]\w+|device|card|GPU)\b|\b(?:one|a single) (?:card|device|GPU)(?: \w+)? (?:is enough|suffices|holds it)",
    re.IGNORECASE,
)


def _of_room(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    """Tokens that are said to meet every expert, and a model that is said to fit on one device, where that is not so."""
    if CONDITIONAL.search(sentence.plain):
        return
    everyone = _ALL_EXPERTS.search(sentence.plain)
    if (
        everyone
        and traits.routed
        and traits.routed[0] < traits.routed[1]
        and not _NEGATED.search(sentence.plain[: everyone.end()])
    ):
        yield Claim(
            everyone[0].replace("\0", "N"),
            f"a token is sent to {traits.routed[0]:g} of {traits.routed[1]:g} {things(traits.routed[1], 'expert')}",
        )
    fits = _ON_ONE.search(sentence.plain)
    if (
        fits
        and traits.fits
        and not traits.fits[0]
        and not re.search(r"\b(?:no|not|never|n't|neither|quantised|quantized|int4|fp8)\b", sentence.plain)
    ):
        yield Claim(fits[0], f"it does not fit on one {traits.fits[1]}")


_ACTIVATION = re.compile(r"(?<![\w-])(?:(GELU|ReLU|SiLU|Swish|Mish)|(SwiGLU|GeGLU|ReGLU))(?![\w-])", re.IGNORECASE)
_GATED = {"swiglu": "silu", "geglu": "gelu", "reglu": "relu"}
_NO_GATE = re.compile(
    r"\b(?:no|without(?: an?)?|lacks? (?:an? )?|not)\s+(?:gat(?:e|ing|ed))\b|\bungated\b|\bnon-gated\b", re.IGNORECASE
)


def _of_activations(sentence: Sentence, traits: Traits) -> Iterator[Claim]:
    """An activation function that the model does not have, and a gate that it has or lacks."""
    if CONDITIONAL.search(sentence.plain):
        return
    for found in _ACTIVATION.finditer(sentence.plain) if traits.activations else ():
        name = (found[1] or _GATED[found[2].lower()]).lower().replace("swish", "silu")
        if name not in traits.activations and not _NEGATED.search(sentence.plain[: found.start()]):
            yield Claim(found[0], f"the activation is {' and '.join(sorted(traits.activations))}")
            return
    gate = _NO_GATE.search(sentence.plain)
    gates = [name for name in traits.biases if re.search("gate", name)]
    if gate and gates and re.search(r"MLP|feed-forward|FFN", sentence.plain, re.IGNORECASE):
        yield Claim(gate[0], f"`{gates[0]}` is a gate")


# ---- dtypes ---------------------------------------------------------------------------------------------------------

_DTYPES = (
    ("bfloat16", r"bf16|bfloat16|brain float\w*"),
    ("float16", r"fp16|float16|half[- ]precision"),
    ("float32", r"fp32|float32|single[- ]precision|full[- ]precision|float\(\)"),
    ("float64", r"fp64|float64|double[- ]precision"),
    ("float8", r"fp8|float8\w*|e4m3\w*|e5m2\w*"),
    ("int8", r"int8|8[- ]bit"), ("int4", r"(?:u?int|nf|mxfp|nvfp|fp)4|4[- ]bit"), ("16 bits", r"16[- ]bit"), ("32 bits", r"32[- ]bit"),
    ("2 bits", r"[23][- ]bit|int2|ternary|binary weights"),
)  # fmt: skip
_ALIKE = {"bfloat16": {"16 bits"}, "float16": {"16 bits"}, "float32": {"32 bits"}}
_IN_DTYPE = re.compile(
    r"\b(?:is|are|as|in|uses?|using|stored|kept|held|runs?|computed?|cast|casts|upcasts?|convert(?:s|ed)?|loads?|loaded|with|to|has|have|executes?)\b"
    r"(?:\s+[\w\0'-]+){0,3}?\W*$",
    re.IGNORECASE,
)


def _of_dtype(sentence: Sentence, traits: Traits, reader: SourceReader) -> Iterator[Claim]:
    """A dtype that the model does not run in, unless the cited lines name it or a fact of the sentence is of it."""
    if not traits.dtype or CONDITIONAL.search(sentence.plain):
        return
    quantised = traits.held.get("quantised")
    text = sentence.text.replace("`", " ")
    for name, pattern in _DTYPES:
        found = re.search(rf"(?<![\w.])(?:torch\.)?(?:{pattern})(?!\w)", text, re.IGNORECASE)
        if found is None or name == traits.dtype or name in _ALIKE.get(traits.dtype, ()):
            continue
        before = text[: found.start()]
        cited = any(re.search(pattern, line, re.IGNORECASE) for line in _cited(sentence, reader))
        priced = any(re.search(pattern, fact.key.replace("_", " "), re.IGNORECASE) for fact in sentence.facts)
        stored = quantised is not None and quantised.holds and name in ("float8", "int8", "int4", "2 bits")
        if cited or priced or stored or _NEGATED.search(before) or not _IN_DTYPE.search(before):
            continue
        yield Claim(found[0], f"the model runs in {traits.dtype}")


def _cited(sentence: Sentence, reader: SourceReader) -> Iterator[str]:
    """The lines that a sentence cites, or its paragraph where it cites none."""
    pointers = list(POINTER.finditer(sentence.text)) or list(POINTER.finditer(sentence.within.text))
    for pointer in pointers:
        lines = reader.lines(pointer[1]) or []
        yield from lines[max(0, int(pointer[2]) - 1) : int(pointer[3] or pointer[2])]


# ---- classes --------------------------------------------------------------------------------------------------------

_ROLES: tuple[tuple[str, frozenset[str]], ...] = tuple(
    (words, frozenset(roles.split("|")))
    for words, roles in (
        (r"(?:rotary|position(?:al)?) embeddings?", "position embedding"),
        (r"(?:token |input )?embeddings?", "embedding|position embedding"),
        (r"(?:self-?|cross-?)?attention", "attention"),
        (r"norm(?:s|ali[sz]ations?)?", "normalisation"),
        (r"(?:MLP|feed-forward(?: network)?|FFN)", "feed-forward network|mixture of experts"),
        (r"(?:experts?|mixture of experts|router|MoE block)", "mixture of experts"),
        (r"(?:decoder |encoder )?(?:layers?|blocks?)", "layer"),
        (r"backbone", "backbone"),
        (r"activation(?: function)?", "activation"),
        (r"(?:projections?|(?:output |LM )?head)", "projection|model with head"),
        (r"(?:whole |top-level )?(?:model|language model)", "model with head|backbone"),
        (r"config(?:uration)?", "configuration"),
    )
)
_CAMEL = re.compile(r"`([A-Z]\w*+)(?:\.\w++)?`")
_IS = r"(?:is|are|runs as|runs in|is (?:implemented|done|computed|made|performed|handled) (?:by|in|as)|comes from|is called|happens in|lives in)"


def _of_classes(sentence: Sentence, traits: Traits, reader: SourceReader) -> Iterator[Claim]:
    """A class that is given a role that another plays, and one that is in none of the files."""
    if not traits.classes:
        return
    for words, roles in _ROLES:
        for name in _named(sentence.text, words):
            role = traits.classes.get(name, "")
            others = [known for known, played in traits.classes.items() if played in roles]
            if others and role not in (*roles, "module") and name not in others:
                yield Claim(f"`{name}`", f"that is `{others[0]}`" + (f"; `{name}` is the {role}" if role else ""))
                return
    files = dict.fromkeys([*traits.files, *(found[1] for found in POINTER.finditer(sentence.within.text))])
    for found in _CAMEL.finditer(sentence.text):
        camel = len(re.findall(r"[A-Z]++[a-z0-9]++", found[1])) > 1
        if camel and found[1] not in traits.classes and not any(reader.occurrences(file, found[1]) for file in files):
            near = difflib.get_close_matches(found[1], traits.classes, n=3, cutoff=0.3) or list(traits.classes)[:3]
            yield Claim(
                found[0], f"no such class is in the model's files; nearest: {', '.join(f'`{name}`' for name in near)}"
            )


def _named(text: str, words: str) -> Iterator[str]:
    """Classes that a sentence says to be what the words name, in either order."""
    role = rf"(?<![\w`-])(?:the |its |each |every |a |an )?{words}"
    for pattern in (
        rf"{role}\s+(?:{_IS})\s+(?:an? |the |one )?`([A-Z]\w*[a-z]\w*)`",
        rf"`([A-Z]\w*[a-z]\w*)`(?:\s*\([^()]*\))?\s+is\s+{role}(?=[\s.,;:]|$)",
    ):
        yield from (found[1] for found in re.finditer(pattern, text, re.IGNORECASE) if found[1][:1].isupper())
