"""A question as what is looked for in text: words by their stems, identifiers, forms such as `calls:NAME`, quoted phrases."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["FORMS", "Form", "Query", "Word", "understood"]

#: before a name, the name, behind it; on one line in lower case
_SPOKEN = r"(?<![\w]){}(?!\w)"
FORMS: dict[str, str] = {
    "calls": r"(?<!def )(?<!class )(?<!\w){}(?:<[^<>;]*>)?\s*(?:<<<|\()",
    "assigns": r"(?<!\w){}(?:\[[^\]\n]*\])*\s*(?::[^=\n]*)?(?:[-+*/|&@]?=(?!=)|\.(?:copy_|fill_|append|extend|index_copy_|scatter_)\()",
    "def": r"(?:def\s+{}(?!\w)|^[^\s#/@][^;=\n]*[\s*&:]{}\s*\([^;]*$)",
    "class": r"(?:class|struct)\s+{}(?!\w)",
    "decorator": r"^\s*@[^\n]*(?<!\w){}(?!\w)",
}
_TOKEN = re.compile(r'"([^"]+)"|(\w+):([\w.]+)|([A-Za-z_][\w.]*)')
_ASKS_CALLS = re.compile(r"(?i)\b(?:who|what|which|where)\b.*\b(?:calls?|called|invokes?)\b")
_STOP = frozenset(
    "a an and any are as at be been by can do does done for from get gets has have how i in into is it its made of on or should that "
    "the their then there this to used uses using was what when where which who whom why will with call calls called code function "
    "line place does find show me all".split()
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ied", "ies", "ed", "es", "ly", "s", "y", "e")
#: other words for a stem that code uses where people do not
_OTHERWISE: dict[str, tuple[str, ...]] = {
    "writ": ("write", "update", "store", "copy_"), "stor": ("store", "update", "save"), "kv": ("key_value", "key_cache"),
    "attention": ("attn",), "position": ("pos_",), "configur": ("config",), "expert": ("moe",), "rotar": ("rope",),
    "rope": ("rotary",), "quantiz": ("quant",), "remov": ("delete", "drop"), "creat": ("build", "make_"),
    "check": ("valid",), "normaliz": ("norm",), "predict": ("draft",), "speculativ": ("assist", "draft"),
    "key": ("kv",), "valu": ("kv",), "choos": ("select",), "pick": ("select",), "throw": ("raise",),
}  # fmt: skip
_SHORT = 4


@dataclass(frozen=True)
class Word:
    """One word: what text is searched for, in lower case, the spelling of the question first; `exact` as a whole identifier."""

    said: str
    forms: tuple[bytes, ...]
    exact: bool = False


@dataclass(frozen=True)
class Form:
    """`kind:name`, or a phrase (`kind` empty): what finds it in lower case, and the name as it was spelt."""

    kind: str
    name: str
    pattern: re.Pattern[bytes]


@dataclass(frozen=True)
class Query:
    """A question: every form has to be there, words rank."""

    words: tuple[Word, ...]
    forms: tuple[Form, ...]

    def said(self) -> tuple[str, ...]:
        """What is searched for, in words."""
        forms = [f"{form.kind}:{form.name}" if form.kind else f'"{form.name}"' for form in self.forms]
        return (*forms, *("|".join(form.decode() for form in word.forms) for word in self.words))


def understood(text: str) -> Query:
    """What a question asks for; neither words nor forms where it holds none."""
    words: dict[str, Word] = {}
    forms: list[Form] = []
    asks_calls = bool(_ASKS_CALLS.search(text))
    for phrase, kind, value, word in _TOKEN.findall(text):
        if phrase:
            forms.append(Form("", phrase, re.compile(re.escape(phrase.lower().encode()))))
        elif kind in FORMS:
            forms.append(_form(kind, value))
        else:
            for one in [word] if word else [kind, value]:
                if asks_calls and _is_identifier(one):
                    forms.append(_form("calls", one))
                elif one.lower() not in _STOP:
                    made = _word(one)
                    words.setdefault(made.said, made)
    return Query(tuple(words.values()), tuple(forms))


def _form(kind: str, name: str) -> Form:
    last = re.escape(name.rpartition(".")[2].lower())
    return Form(kind, name, re.compile(FORMS[kind].replace("{}", last).encode(), re.MULTILINE))


def _is_identifier(word: str) -> bool:
    return "_" in word.strip("_") or bool(re.search(r"[a-z][A-Z]", word)) or word.startswith("__")


def _word(text: str) -> Word:
    if _is_identifier(text):
        return Word(text.lower(), (text.lower().rpartition(".")[2].encode(),), exact=True)
    low = text.lower().strip("._")
    stem = low
    for ending in _ENDINGS:
        if low.endswith(ending) and len(low) - len(ending) >= _SHORT:
            stem = low.removesuffix(ending)
            break
    if low in {"written", "wrote", "writes", "write"}:
        stem = "writ"
    return Word(stem, tuple(dict.fromkeys(form.encode() for form in (stem, *_OTHERWISE.get(stem, ())))))
