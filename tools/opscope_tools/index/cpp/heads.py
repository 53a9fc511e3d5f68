"""What a statement declares, from the tokens of its head: a namespace, a type, an alias, a function, or nothing.

Macros are told by what they do to the grammar, never by a list of names: a call with no type before it declares no
function, a word in capitals between `class` and the name is an attribute. Where a variable with constructor arguments
and a function's declaration look alike, the arguments decide.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from opscope_tools.index.cpp.statements import CLASS_KEYS, Statement, Token
from opscope_tools.source.cpp.text import CppText, readable

SPECIFIERS = frozenset(
    "static inline virtual constexpr consteval constinit explicit friend extern mutable register thread_local typename "
    "__inline __inline__ __forceinline __forceinline__ __noinline__ __extension__ __restrict__ "
    "__global__ __device__ __host__ __shared__ __constant__ __managed__ __grid_constant__".split()
)
#: words whose parentheses hold no parameters
_WITH_ARGUMENTS = frozenset(
    "__attribute__ __attribute __declspec alignas _Alignas __launch_bounds__ __cluster_dims__ __align__ __block_size__ "
    "__maxnreg__ decltype noexcept throw explicit requires typeof __typeof__ asm __asm__ __asm _Pragma __pragma sizeof "
    "alignof __nv_pure__ __tile_global__ __builtin_align__ _Atomic".split()
)
_STATEMENTS = frozenset(
    "if for while switch return catch do else case goto new delete throw static_assert using".split()
)
_BUILTIN = frozenset(
    "void bool char short int long float double unsigned signed auto wchar_t char8_t char16_t char32_t __int128 const "
    "volatile struct class enum union typename decltype".split()
)
_CAPITALS = re.compile(r"[A-Z_][A-Z0-9_]*$")
_PARAMETER = re.compile(
    r"(?:const\b|volatile\b|struct\b|class\b|enum\b|typename\b|unsigned\b|signed\b|\.\.\.|decltype\b)"
    r"|[\w:]+(?:\s*<.*>(?:::\w+)*)?(?:\s+const)?(?:\s*[*&]|\s*\.\.\.|\s+\w+\s*(?:[=,\[]|$)|\s+\(\s*[*&])",
    re.DOTALL,
)
_CALLBACK = re.compile(r"\s*(?:\w+\s*::\s*)*[*&^]")
_POINTER_RESULT = re.compile(r"\(\s*\*\s*(\w+)\s*\(")


class Head(NamedTuple):
    """What a statement declares; `name` is empty for an anonymous type, `outer` the names before its last `::`."""

    kind: str
    name: str
    at: int
    outer: tuple[str, ...] = ()
    arguments: str = ""
    bases: tuple[str, ...] = ()
    template: str | None = None
    attributes: tuple[str, ...] = ()
    #: where the text of a signature starts
    start: int = 0


class Place(NamedTuple):
    """Where a statement stands: in a class of some name, or in a namespace."""

    in_class: bool = False
    class_name: str = ""


def head_of(text: CppText, statement: Statement, place: Place) -> Head | None:
    """What the statement declares; None where it declares nothing that is kept."""
    tokens, template = _without_template(text, statement.tokens)
    if tokens is None:
        return None
    for index, token in enumerate(tokens):
        if token.text in _KEYWORDS:
            head = _KEYWORDS[token.text](text, statement, tokens, index)
            if head is not None:
                return head._replace(template=template)
            if token.text not in CLASS_KEYS and token.text != "friend":
                return None
            if token.text == "friend" and any(t.text in CLASS_KEYS for t in tokens[index + 1 : index + 3]):
                return None
            break
        before = tokens[index - 1] if index else token
        if token.text == "(" and before.word and not _capitals(before) and before.text not in _WITH_ARGUMENTS:
            break  # behind the parameters of a function no keyword tells anything
    head = _function(text, statement, tokens, place)
    return head._replace(template=template) if head is not None else None


def _without_template(text: CppText, tokens: list[Token]) -> tuple[list[Token] | None, str | None]:
    """The tokens behind `template <...>`, and the innermost list; None for an explicit instantiation."""
    template = None
    kept: list[Token] = []
    for token in tokens:
        if token.text == "template":
            if token.end - token.start == len("template"):
                return None, None
            if not any(t.text == "(" for t in kept):
                template = text.written(token.start, token.end).partition("<")[2][:-1].strip()
            kept = [t for t in kept if t.text != "extern"]
        elif token.text != "[" or text.statements[token.start + 1 : token.start + 2] != "[":
            kept.append(token)
    return kept, template


def _capitals(token: Token) -> bool:
    return _CAPITALS.match(token.text) is not None


def _macro_like(token: Token) -> bool:
    return _capitals(token) or token.text.startswith("__")


def attributes_of(text: CppText, tokens: list[Token]) -> tuple[str, ...]:
    """Specifiers and macros among the tokens, with their arguments."""
    found = []
    for index, token in enumerate(tokens):
        if token.word and (token.text in SPECIFIERS or token.text in _WITH_ARGUMENTS or _macro_like(token)):
            after = tokens[index + 1] if index + 1 < len(tokens) else token
            found.append(text.written(token.start, after.end) if after.text == "(" else token.text)
    return tuple(found)


# namespaces and aliases


def _namespace(text: CppText, statement: Statement, tokens: list[Token], index: int) -> Head | None:
    names: list[Token] = []
    apart = True
    for token in tokens[index + 1 :]:
        if token.text == "::":
            apart = True
        elif token.word and token.text not in {"inline", *_WITH_ARGUMENTS} and apart:
            names.append(token)
            apart = False
    name = names[-1].text if names else ""
    outer = tuple(token.text for token in names[:-1])
    at = tokens[index].start
    if statement.ending == "=" and names:
        meant = text.written(statement.head_end + 1, statement.end)
        return Head("alias", name, at, arguments="", bases=(), start=at, attributes=("namespace", meant))
    return Head("namespace", name, at, outer) if statement.ending == "{" else None


def _using(_text: CppText, statement: Statement, tokens: list[Token], index: int) -> Head | None:
    if statement.ending != "=" or index + 1 >= len(tokens) or not tokens[index + 1].word:
        return None
    name = tokens[index + 1]
    return Head("alias", name.text, name.start, start=tokens[index].start)


def typedef_names(text: CppText, tokens: list[Token]) -> list[Token]:
    """The names that the declarators at the end of a typedef declare."""
    found: list[Token] = []
    last: Token | None = None
    for index, token in enumerate(tokens):
        if token.text == ",":
            if last is not None:
                found.append(last)
            last = None
        elif token.word and token.text not in _WITH_ARGUMENTS and not (token.text in _BUILTIN or _dunder(token)):
            last = token
        elif token.text == "(":
            pointer = re.match(
                r"\(\s*+(?:(?:[\w:]++\s*+)*+(?<=[\s:]))?[*&^]++\s*+(?:const\s++)?(\w++)",
                text.statements[token.start : token.end],
            )
            if pointer is not None:
                start = token.start + pointer.start(1)
                return [*found, Token(pointer[1], start, start + len(pointer[1]))]
            if index and tokens[index - 1].text in _WITH_ARGUMENTS:
                continue
            if last is not None and index and tokens[index - 1] is last:
                break  # a function type
    return [*found, last] if last is not None else found


def _dunder(token: Token) -> bool:
    return token.text.startswith("__") and token.text.endswith("__")


def _typedef(text: CppText, statement: Statement, tokens: list[Token], index: int) -> Head | None:
    if statement.ending == "{":
        for inner, token in enumerate(tokens[index + 1 :], index + 1):
            if token.text in CLASS_KEYS:
                return _type(text, statement, tokens, inner)
        return None
    names = typedef_names(text, tokens[index + 1 :])
    if statement.ending != ";" or not names:
        return None
    return Head("alias", names[-1].text, names[-1].start, start=tokens[index].start)


def _concept(_text: CppText, statement: Statement, tokens: list[Token], index: int) -> Head | None:
    if statement.ending != "=" or index + 1 >= len(tokens) or not tokens[index + 1].word:
        return None
    return Head("concept", tokens[index + 1].text, tokens[index + 1].start, start=tokens[index].start)


def _nothing(_text: CppText, _statement: Statement, _tokens: list[Token], _index: int) -> Head | None:
    return None


# types


class _Named(NamedTuple):
    parts: list[Token]
    arguments: Token | None


def _type(text: CppText, statement: Statement, tokens: list[Token], index: int) -> Head | None:
    key = tokens[index]
    rest = tokens[index + 1 :]
    if key.text == "enum" and rest and rest[0].text in {"class", "struct"}:
        rest = rest[1:]
    if statement.ending not in {"{", ";"} or any(token.text == "friend" for token in tokens[:index]):
        return None
    names = _names(rest)
    if names is None:
        return None
    attributes: list[Token] = [*tokens[:index]]
    plain = [name for name in names if len(name.parts) > 1 or name.arguments or not _macro_like(name.parts[0])]
    if len(plain) > 1 and statement.ending == ";":
        return None  # `struct Name variable;`
    chosen = (plain or names)[-1] if names else None
    if statement.ending == ";" and (chosen is None or _behind_type(tokens[:index])):
        return None
    if chosen is not None:
        attributes += [part for name in names if name is not chosen for part in name.parts]
    name = chosen.parts[-1].text if chosen else ""
    return Head(
        kind=key.text,
        name=name,
        at=key.start,
        outer=tuple(part.text for part in chosen.parts[:-1]) if chosen else (),
        arguments=text.written(chosen.arguments.start, chosen.arguments.end) if chosen and chosen.arguments else "",
        bases=tuple(_bases(text, *statement.clause)) if statement.clause else (),
        attributes=(*attributes_of(text, attributes), *_final(rest)),
        start=tokens[0].start,
    )


def _final(tokens: list[Token]) -> list[str]:
    return ["final"] if any(token.text == "final" for token in tokens[1:]) else []


def _behind_type(tokens: list[Token]) -> bool:
    """Whether what stands before a class key is more than specifiers, macros and calls of macros."""
    return any(
        t.word
        and t.text not in SPECIFIERS
        and t.text != "export"
        and not _macro_like(t)
        and t.text not in _WITH_ARGUMENTS
        for t in tokens
    )


def _names(tokens: list[Token]) -> list[_Named] | None:
    """The words between a class key and the end of its head, joined along `::`; None where it is no such head."""
    found: list[_Named] = []
    joined = False
    for index, token in enumerate(tokens):
        if token.text == "::":
            joined = True
        elif token.word:
            if token.text == "final" and found:
                continue
            if token.text in _BUILTIN or token.text in _STATEMENTS:
                return None
            if token.text in _WITH_ARGUMENTS or (index + 1 < len(tokens) and tokens[index + 1].text == "("):
                continue  # an attribute, or the call of a macro: its group follows
            if joined and found:
                found[-1] = _Named([*found[-1].parts, token], None)
            else:
                found.append(_Named([token], None))
            joined = False
        elif token.text == "<":
            if found:
                found[-1] = found[-1]._replace(arguments=token)
        elif token.text == "(":
            if index == 0 or not tokens[index - 1].word or index + 1 == len(tokens):
                return None  # a macro that writes the name, or a function that returns the type
        elif token.text != "[":
            return None
    return found


def _bases(text: CppText, start: int, end: int) -> list[str]:
    """The base classes of a clause, each as written."""
    code = text.statements[start:end]
    found, angles, brackets, at = [], 0, 0, 0
    for match in re.finditer(r"->|[<>(){},]", code):
        if match[0] == "," and not angles and not brackets:
            found.append(text.written(start + at, start + match.start()))
            at = match.end()
        elif match[0] in "({":
            brackets += 1
        elif match[0] in ")}":
            brackets -= 1
        elif match[0] in "<>" and not brackets:
            angles += 1 if match[0] == "<" else -1
    found.append(text.written(start + at, end))
    return [base for base in found if base]


# functions


def _function(text: CppText, statement: Statement, tokens: list[Token], place: Place) -> Head | None:
    first = 0  # where the declaration begins, behind the calls of macros
    for index, token in enumerate(tokens):
        if token.text != "(" or index == 0:
            continue
        at = _name_index(text, tokens, index)
        if at is None:
            continue
        name = tokens[at].text
        if name in _STATEMENTS:
            return None
        if name in _WITH_ARGUMENTS or name in _BUILTIN:
            if name in _BUILTIN and name != "decltype":
                return _pointer_result(text, statement, tokens, index, first)
            continue
        start, outer = _qualified(tokens, at)
        prefix = tokens[first:start]
        if any(t.text in _EXPRESSION or t.text in _STATEMENTS for t in prefix):
            return None
        built = place.class_name if place.in_class and not outer else (outer[-1] if outer else "")
        typed = (
            name.startswith("operator")
            or (at > 0 and tokens[at - 1].text == "~")
            or _has_type(prefix)
            or _written_by_macro(text, statement, tokens, first, start, index)
        )
        if not typed and not (built and name == built):
            first = index + 1
            continue
        if typed and _capitals(tokens[at]) and _call_behind(tokens, index) and name != built:
            continue  # `void BOUNDS(128) kernel(...)`
        if _CALLBACK.match(text.statements, token.start + 1) and not name.startswith("operator"):
            return _pointer_result(text, statement, tokens, index, first)
        if not _declares(text, statement, tokens, index, place, prefix):
            return None
        tilde = "~" if at and tokens[at - 1].text == "~" else ""
        return Head(
            "function", tilde + readable(name), tokens[at].start, outer, start=tokens[first].start,
            arguments=_arguments(text, tokens, at, index),
            attributes=attributes_of(text, [*prefix, *tokens[index + 1 :]]),
        )  # fmt: skip
    return None


def _written_by_macro(
    text: CppText, statement: Statement, tokens: list[Token], first: int, start: int, group: int
) -> bool:
    """Whether the type before a function's name is the call of a macro: `NOINLINE(std::pair<A, B>) name(...) {`."""
    return (
        0 < first == start
        and tokens[first - 1].text == "("
        and statement.ending == "{"
        and not _capitals(tokens[group - 1])
        and _are_parameters(text, tokens[group], [])
    )


def _name_index(text: CppText, tokens: list[Token], group: int) -> int | None:
    """Index of the word that stands before a parenthesis: a name, a name with template arguments, a name in
    parentheses (`(max)(...)`)."""
    at = group - 1
    if tokens[at].text == "<" and at:
        at -= 1
    if tokens[at].word:
        return at
    if tokens[at].text == "(" and re.fullmatch(r"\(\s*\w+\s*\)", text.statements[tokens[at].start : tokens[at].end]):
        inner = text.statements[tokens[at].start + 1 : tokens[at].end - 1].strip()
        start = text.statements.index(inner, tokens[at].start)
        if at and (tokens[at - 1].text not in _WITH_ARGUMENTS and not inner[0].isdigit()) and at:
            if tokens[at - 1].word and _macro_like(tokens[at - 1]):
                return None
            tokens[at] = Token(inner, start, start + len(inner))
            return at
    return None


def _qualified(tokens: list[Token], at: int) -> tuple[int, tuple[str, ...]]:
    """Index where a qualified name begins, and the names before its last."""
    outer: list[str] = []
    index = at
    if index and tokens[index - 1].text == "~":
        index -= 1
    while index >= 2 and tokens[index - 1].text == "::":
        before = index - 2
        if tokens[before].text == "<" and before:
            before -= 1
        if not tokens[before].word or tokens[before].text in _BUILTIN or tokens[before].text in SPECIFIERS:
            return index - 1, tuple(outer)
        outer.insert(0, tokens[before].text)
        index = before
    if index and tokens[index - 1].text == "::":
        index -= 1
    return index, tuple(outer)


def _arguments(text: CppText, tokens: list[Token], at: int, group: int) -> str:
    return text.written(tokens[at].end, tokens[group].start) if tokens[group - 1].text == "<" else ""


def _has_type(prefix: list[Token]) -> bool:
    for index, token in enumerate(prefix):
        if token.word and token.text not in SPECIFIERS:
            if token.text == "decltype" or token.text in {"typeof", "__typeof__"}:
                return True
            after = prefix[index + 1].text if index + 1 < len(prefix) else ""
            if token.text not in _WITH_ARGUMENTS and not _dunder(token) and after != "(":
                return True
    return False


def _call_behind(tokens: list[Token], group: int) -> bool:
    """Whether a word that is not in capitals and has a parenthesis follows, before any qualifier of a function."""
    for index in range(group + 1, len(tokens) - 1):
        if tokens[index].text in {"->", "const", "noexcept", "override", "requires"}:
            return False
        if tokens[index + 1].text == "(" and tokens[index].word and tokens[index].text not in _WITH_ARGUMENTS:
            return not _capitals(tokens[index])
    return False


def _declares(
    text: CppText, statement: Statement, tokens: list[Token], group: int, place: Place, prefix: list[Token]
) -> bool:
    """Whether the parenthesis holds parameters, and what follows may follow a function's head."""
    behind = tokens[group + 1] if group + 1 < len(tokens) else None
    if behind is not None and behind.text in _NOT_BEHIND_PARAMETERS:
        return False
    if statement.ending == "=":
        assigned = text.statements[statement.head_end + 1 : statement.end].strip()
        return assigned in {"0", "default", "delete"} or assigned.startswith("delete")
    if statement.ending == "{":
        return behind is None or behind.text != ","  # a list of variables, the last with braces
    if statement.ending != ";":
        return False
    if place.in_class:
        return True
    return _are_parameters(text, tokens[group], prefix)


def _are_parameters(text: CppText, group: Token, prefix: list[Token]) -> bool:
    inside = text.statements[group.start + 1 : group.end - 1].strip()
    if not inside or any(t.text in {"extern", "void", "friend", "virtual"} for t in prefix):
        return True
    if inside[0] in "\"'-!&{+" or inside[0].isdigit():
        return False
    if _PARAMETER.match(inside):
        return True
    word = re.match(r"[\w:]+", inside)
    if word is None:
        return False
    if inside[word.end() :].lstrip()[:1] in {"(", ".", "-", "+", "/", "?", "["}:
        return False
    last = word[0].rpartition("::")[2]
    typelike = last.endswith("_t") or last.startswith("__") or (last[0].isupper() and not _CAPITALS.match(last))
    return typelike or word[0] in _BUILTIN


def _pointer_result(text: CppText, statement: Statement, tokens: list[Token], group: int, first: int) -> Head | None:
    """`int (*name(...))(...) {`: a function whose result is a pointer to a function."""
    inside = _POINTER_RESULT.match(text.statements, tokens[group].start)
    if inside is None or statement.ending not in {"{", ";"}:
        return None
    return Head(
        "function",
        inside[1],
        inside.start(1),
        start=tokens[first].start,
        attributes=attributes_of(text, tokens[:group]),
    )


_EXPRESSION = frozenset({".", "->", "+", "-", "/", "?", "!", "|", "^", "%", ",", "@"})
_NOT_BEHIND_PARAMETERS = (_EXPRESSION - {"->", ","}) | {"less", "::"}
_KEYWORDS = {
    "namespace": _namespace,
    "using": _using,
    "typedef": _typedef,
    "concept": _concept,
    "static_assert": _nothing,
    "friend": _nothing,
    **dict.fromkeys(CLASS_KEYS, _type),
}
