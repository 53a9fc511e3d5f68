"""What people read of a trace's guards: the fewest conditions that say all of them.

torch records several hundred decisions, most of which every positive size satisfies (`a < a * b`). A guard is left out
only where it is *proven* from what is shown: each variable lies within its shown bounds, what a shown division leaves
without remainder is a product, and a difference that has no negative term left is not negative. What cannot be proven is
shown. So a point that meets the shown conditions meets every guard.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Call, Formula, Rational, comparisons, holds, variables

from opscope_tools.trace.proving import Known
from opscope_tools.trace.relations import ZERO, division_in, plain_product, relation_of, single_in

__all__ = ["bounds_of", "shown"]

_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
#: sets of conditions up to this size are looked through for one that follows from the others
_FEW = 24

Read = list[list[tuple[Formula, str, Formula]]]


@lru_cache(maxsize=1 << 14)
def _read(guard: str) -> Read | None:
    """A guard as alternatives of comparisons that all hold; None for what is neither."""
    try:
        return comparisons(guard)
    except ValuesError:
        return None


def _order(guard: str, read: Read | None) -> tuple[object, ...]:
    """Simple guards are shown before, and prove, the others: divisions first, alternatives last."""
    first = relation_of(*read[0][0]) if read is not None and len(read) == 1 else None
    kind = "" if first is None else first.kind
    if first is not None and (division := division_in(first)) is not None:
        kind = "divides" if all(plain_product(part) for part in division) else "remainder"
    return (_KINDS.index(kind), guard.count("{"), len(guard), guard)


_SIGNS = {"eq": "==", "ne": "!=", "ge": ">="}
_KINDS = ("divides", "eq", "remainder", "ge", "ne", "")


def shown(guards: Sequence[str], point: Mapping[str, Rational], always: Sequence[str]) -> tuple[str, ...]:
    """The conditions under which every guard holds, bounds of single sizes merged; `point` meets all of them.

    `always` are conditions that hold without being shown.

    Where rounded quotients make many conditions and all of them follow from the quotients being exact, as they are at the
    point, that is what is shown: it admits a few points less.
    """
    once: dict[str, str] = {}
    for guard in guards:
        once.setdefault(_turned(guard), guard)
    return _shown(tuple(once.values()), tuple(sorted(point.items())), tuple(always))


def _turned(guard: str) -> str:
    """One of a guard and the guard with its sides turned, where these say the same."""
    for sign in (" == ", " != "):
        sides = guard.split(sign)
        if len(sides) == 2 and not re.search(r" (and|or) |[<>]", guard):
            return sign.join(sorted(sides))
    return guard


@lru_cache(maxsize=64)
def bounds_of(guards: tuple[str, ...]) -> tuple[str, ...]:
    """What guards say of single sizes."""
    alone = (g for g in guards if (read := _read(g)) is not None and len(read) == 1)
    return tuple(
        g for g in alone if all(single_in(relation_of(*c)) for alternative in _read(g) or () for c in alternative)
    )


@lru_cache(maxsize=256)
def _shown(guards: tuple[str, ...], at: tuple[tuple[str, Rational], ...], always: Sequence[str]) -> tuple[str, ...]:
    found = _reduced_to(guards, always)
    point = dict(at)
    for guess in _exact_quotients(found, point):
        simpler = _reduced_to((guess, *found), always)
        if len(simpler) < len(found) - 1:
            found = simpler
    return found


def _exact_quotients(conditions: Iterable[str], point: Mapping[str, Rational]) -> Iterator[str]:
    """Divisions that conditions round, of plain products, that leave no remainder at a point."""
    calls: dict[Call, None] = {}
    for condition in conditions:
        for alternative in _read(condition) or ():
            for left, _, right in alternative:
                calls.update(dict.fromkeys((*_calls(left), *_calls(right))))
    for call in sorted(calls, key=lambda one: (len(str(one)), str(one))):
        if call.op == "floordiv" and all(map(plain_product, call.args)) and call.args[0].constant() is None:
            text = f"{call.args[0]._factor_text()} % {call.args[1]._factor_text()} == 0"
            if variables(text) <= point.keys() and holds(text, point):
                yield text


def _calls(form: Formula) -> Iterator[Call]:
    for monomial in form.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                yield atom
                for argument in atom.args:
                    yield from _calls(argument)


def _reduced_to(guards: Sequence[str], always: Sequence[str]) -> tuple[str, ...]:
    known = _told(always)
    kept: list[str] = []
    seen: dict[str, None] = {}
    waiting = []
    for guard in dict.fromkeys(guards):
        read = _read(guard)
        if read is not None and len(read) == 1 and all(single_in(relation_of(*c)) for c in read[0]):
            for comparison in read[0]:
                relation = relation_of(*comparison)
                known.learn(relation)
                seen.update(dict.fromkeys(relation.form.variables()))
        else:
            waiting.append((guard, read))
    for guard, read in sorted(waiting, key=lambda one: _order(*one)):
        kept += _kept(known, seen, guard, read)
    bounds = tuple(_bounds(known, seen))
    return (*bounds, *_needed(bounds, kept, always))


def _told(conditions: Iterable[str]) -> Known:
    """What is known from conditions that all hold."""
    known = Known()
    for condition in conditions:
        read = _read(condition)
        for comparison in read[0] if read is not None and len(read) == 1 else ():
            known.learn(relation_of(*comparison))
    return known


def _needed(bounds: Sequence[str], kept: list[str], always: Sequence[str]) -> list[str]:
    """The conditions that do not follow from the others: one may have been shown before one that implies it.

    `bounds` are those that are shown: what is known of any other size came from these conditions themselves.
    """
    for condition in list(kept):
        read = _read(condition)
        if read is None or len(read) != 1 or len(read[0]) != 1 or len(kept) > _FEW:
            continue
        others = _told((*bounds, *always, *(c for c in kept if c != condition)))
        if others.proves(relation_of(*read[0][0])):
            kept.remove(condition)
    return kept


def _kept(known: Known, seen: dict[str, None], guard: str, read: Read | None) -> Iterator[str]:
    """What of a guard does not follow from what is known."""
    if read is None:
        yield guard
        return
    open_: list[list[tuple[Formula, str, Formula]]] = []
    for alternative in read:
        left = [c for c in alternative if not known.proves(relation_of(*c))]
        if not left:
            return
        # where there is no other the only alternative is the one that was taken
        if len(read) == 1 or not any(known.proves(relation_of(a, _NEGATED[sign], b)) for a, sign, b in left):
            open_.append(left)
    if len(open_) != 1:
        yield guard if len(open_) == len(read) or not open_ else _text(open_)
        return
    for comparison in open_[0]:
        told = relation_of(*comparison)
        for relation in known.simplest(told):
            known.learn(relation)
            if single_in(relation):  # a bound, which is shown with its like
                seen.update(dict.fromkeys(relation.form.variables()))
            else:
                yield _text([[comparison if relation is told else (relation.form, _SIGNS[relation.kind], ZERO)]])


def _text(alternatives: Read) -> str:
    texts = [" and ".join(_sides(*comparison) for comparison in alternative) for alternative in alternatives]
    return texts[0] if len(texts) == 1 else "(" + " or ".join(texts) + ")"


def _sides(left: Formula, sign: str, right: Formula) -> str:
    """A comparison without negative terms, the smaller side first; a remainder of zero as such."""
    if (division := division_in(relation_of(left, sign, right))) is not None:
        return f"{division[0]._factor_text()} % {division[1]._factor_text()} == 0"
    if sign in (">", ">="):
        left, right, sign = right, left, {">": "<", ">=": "<="}[sign]
    form = left - right
    ours, theirs = ({m: c for m, c in form.terms.items() if c * turn > 0} for turn in (1, -1))
    small, large = Formula(ours), Formula({m: -c for m, c in theirs.items()})
    if small.constant() is not None and sign in ("<", "<="):
        return f"{large} {sign.replace('<', '>')} {small}"
    return f"{small} {sign} {large}"


def _bounds(known: Known, names: Iterable[str]) -> Iterator[str]:
    """The bounds of single sizes as text, those that are numbers first."""
    ordered = sorted(name for name in names if " " not in name)
    for name in ordered:
        bound = known.bounds[name]
        if bound.low == bound.high:
            yield f"{{{name}}} == {bound.low}"
    for name in ordered:
        bound = known.bounds[name]
        if bound.low == bound.high:
            continue
        if bound.low > 1:
            yield f"{{{name}}} >= {bound.low}"
        if bound.high is not None:
            yield f"{{{name}}} <= {bound.high}"
        yield from (f"{{{name}}} != {hole}" for hole in sorted(bound.holes))
