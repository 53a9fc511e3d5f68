"""What a test of a CUDA kernel decides: a constant, some threads of the block, an assumption, or data.

A test that holds an index against a bound is taken as met: tiles are full. One that parameters decide is taken in the
one of its forms that does the work, and the same question is never answered in two ways.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, Literal

from opscope_tools.kernels.cuda.names.values import ENUMERATION, Value, asked, computed
from opscope_tools.kernels.run.log import Log
from opscope_tools.kernels.values.conditions import canonical, negated
from opscope_tools.kernels.values.expressions import TURNED, Operation, Quantity, ceil_div, render
from opscope_tools.kernels.values.notation import Counts, holds
from opscope_tools.kernels.values.quotients import may_be_negative
from opscope_tools.kernels.values.threads import Digit, Threads


@dataclass(frozen=True)
class Decision:
    """How a test goes: constant or assumed True or False, by `threads`, or `open` where data or blocks decide."""

    outcome: bool | Literal["threads", "open"]
    yes: Threads | None = None
    no: Threads | None = None
    #: what it takes for granted
    conditions: tuple[str, ...] = ()
    #: a quantity that an earlier test was taken to give a value, and the value that this one asks for
    rests: tuple[str, Any] | None = None

    @property
    def assumed(self) -> bool:
        """Whether it might go the other way."""
        return bool(self.conditions) or self.rests is not None


OPEN = Decision("open")
#: of a test of what a function gives back on the way through it that is taken
_GIVEN = ("what is given back",)


class Guards:
    """Decisions for one run."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._forced = self._repeated = False

    def decide(
        self, test: Value, threads: Threads, wanted: bool = True, forced: bool = False, repeated: bool = False
    ) -> Decision:  # fmt: skip
        """How a test goes; `wanted` is the answer to assume where parameters decide, `forced` also for bounds of indices; `repeated`: in
        a loop, so that what changes there has no one answer."""
        self._forced, self._repeated = forced, repeated
        decision = self._decide(test, threads, wanted)
        told = test.varies == {"thread"} and threads.members is not None and isinstance(decision.outcome, str)
        return self._one_by_one(test, threads, decision) if told else decision

    def _one_by_one(self, test: Value, threads: Threads, decision: Decision) -> Decision:
        """The same decision, with which threads each side is for; what it leaves open is decided so."""
        assert threads.members is not None
        expression = asked(test)
        answers = {one: holds(expression, _indices(one)) for one in threads.members}
        if None in answers.values():
            return decision
        sides = []
        for known, taken in ((decision.yes, True), (decision.no, False)):
            members = frozenset(one for one, answer in answers.items() if answer is taken)
            told = known is not None and known.total(self.log.counts).constant() == len(members)
            sides.append(replace(known, members=members) if known is not None and told else threads.of(members))
        return replace(decision, outcome="threads", yes=sides[0], no=sides[1])

    def turn(self, decision: Decision) -> None:
        """Take what a decision assumed to be the other way round."""
        if decision.rests is not None:
            name, value = decision.rests
            self.log.answers.equal.pop(name, None)
            if value is not None:
                self.log.answers.equal[name] = value
        if len(decision.conditions) != 1:
            return
        plain, positive = canonical(decision.conditions[0])
        self.log.answers.given[plain] = not positive
        for name in [n for n in self.log.answers.equal if plain.startswith((f"{n.strip('{}')} ", n))]:
            del self.log.answers.equal[name]

    def _decide(self, test: Value, threads: Threads, wanted: bool) -> Decision:
        if isinstance(test.number, int):
            return Decision(bool(test.number), conditions=_GIVEN if test.one_of_several else ())
        if not test.test:
            return self._plain(test, wanted)
        word = test.test[0]
        if word == "not":
            return _not(self._decide(test.test[1], threads, not wanted))
        if word == "and":
            return self._and(test.test[1], test.test[2], threads, wanted)
        if word == "or":
            a, b = (Value(v.type, test=("not", v), varies=v.varies) for v in test.test[1:])
            return _not(self._and(a, b, threads, not wanted))
        return self._compared(word, test.test[1], test.test[2], threads, wanted)

    def _plain(self, test: Value, wanted: bool) -> Decision:
        """A value that is itself the test: a flag, a pointer."""
        if test.type.kind == "pointer" and test.space in {"shared", "local"}:
            return Decision(True)
        if test.varies:
            return OPEN
        name = test.root or (render(test.number) if test.number is not None else "")
        if not name:
            return OPEN
        if (same := re.fullmatch(r".*\bis_same\w*+<\s*+([^,]*+),(.*)>[\w:]*", name)) is not None:
            return self._equal(f"type {same[1].rstrip()}", same[2].strip(), True, wanted, name)
        known = self.log.answers.equal.get(render(test.number)) if test.number is not None else None
        plain = name.replace("{", "").replace("}", "")
        if isinstance(known, int):
            return Decision(bool(known), conditions=(plain if known else negated(plain),))
        text = plain if test.type.kind != "pointer" else f"{name} != nullptr"
        return self._assumed(text, wanted if test.type.kind != "pointer" else True)

    def _assumed(self, text: str, wanted: bool) -> Decision:
        plain, positive = canonical(text)
        known = self.log.answers.given.setdefault(plain, wanted == positive)
        outcome = known == positive
        return Decision(outcome, conditions=(text if outcome else negated(text),))

    def _equal(self, name: str, value: Any, equal: bool, wanted: bool, text: str) -> Decision:
        """Whether a quantity has a value: it has one at most, so that of several such tests one is met."""
        known = self.log.answers.equal
        if name in known:
            same = known[name] == value
            told = same or (isinstance(known[name], int) and isinstance(value, int))
            conditions = () if told else (negated(text) if equal else text,)
            return Decision(same == equal, conditions=conditions, rests=(name, None if same else value))
        decision = self._assumed(text, wanted)
        if decision.outcome is equal:
            known[name] = value
        return decision

    def _and(self, first: Value, second: Value, threads: Threads, wanted: bool) -> Decision:
        known = dict(self.log.answers.equal)
        a = self._decide(first, threads, wanted)
        if a.outcome is False:
            return a
        within = a.yes if a.outcome == "threads" and a.yes is not None else threads
        b = self._decide(second, within, wanted)
        if b.outcome is False or "open" in (a.outcome, b.outcome):
            self.log.answers.equal = known  # what the first one takes for granted is not said
            return b if b.outcome is False else OPEN
        conditions = (*a.conditions, *b.conditions)
        rests = a.rests or b.rests
        if a.outcome == "threads" and a.yes is None:
            return OPEN
        if b.outcome == "threads":
            if b.yes is None:
                return OPEN
            return Decision("threads", b.yes, threads.without(b.yes, self.log.counts), conditions, rests)
        return Decision(a.outcome, a.yes, a.no, conditions, rests)

    def _compared(self, operator: str, a: Value, b: Value, threads: Threads, wanted: bool) -> Decision:
        if b.digits and not a.digits:
            operator, a, b = TURNED[operator], b, a
        if (
            a.digits
            and not b.varies & {"thread", "loop"}
            and b.number is not None
            and not a.varies & {"block", "loop", "data"}
        ):
            found = _threads(operator, a, b.number, threads, self.log.counts)
            if found is not None:
                return found
        varies = a.varies | b.varies
        if (
            operator in {"==", "!="}
            and a.type.name == b.type.name
            and a.type.name.startswith(ENUMERATION)
            and not varies
        ):
            return Decision(
                (operator == "==") == (render(a.number) == render(b.number))
            )  # which are told apart by name
        text = _text(operator, a, b)
        if operator in {"==", "!="} and a.type.kind == "pointer" and b.number == 0 and "data" not in varies:
            return Decision(operator == "!=", conditions=(text or "a pointer is given",))
        if not varies and not text:
            return Decision(wanted, conditions=("a test of parameters",))
        if "data" in varies or not text:
            return OPEN
        if not varies and operator in {"==", "!="}:
            return self._equal(render(a.number), b.number, operator == "==", wanted, text)
        known = self.log.answers.equal.get(render(a.number)) if not varies else None
        if isinstance(known, int) and isinstance(b.number, int):
            outcome = bool(computed(operator, known, b.number))
            return Decision(outcome, conditions=(text if outcome else negated(text),))
        if not varies:
            return self._assumed(text, wanted)
        if operator in {"==", "!="}:
            return OPEN
        if "thread" in varies <= {"thread", "loop"} and isinstance(b.number, int):  # some threads, but not told which
            return OPEN
        if "thread" in a.varies & b.varies:  # indices of threads on both sides: neither is the bound
            return OPEN
        changing = len(a.varies) >= len(b.varies)  # the index is on one side, its bound on the other
        bound = (b if changing else a).varies
        if self._repeated and (varies == {"loop"} or ("loop" in varies and bound)):
            return OPEN  # not the same in every turn
        inside = operator in {"<", "<="} if changing else operator in {">", ">="}
        if changing and isinstance(b.number, int) and b.number <= 0:  # an index is not below 0
            inside = not inside
        if self._forced:  # what leaves early is the exception
            inside = wanted
        return Decision(inside, conditions=(text if inside else negated(text),))


def _indices(thread: tuple[int, ...]) -> dict[str, int]:
    return {f"threadIdx.{axis}": index for axis, index in zip("xyz", thread, strict=True)}


def _text(operator: str, a: Value, b: Value) -> str:
    left, right = (Quantity(v.root) if v.number is None and v.root else v.number for v in (a, b))
    text = "" if left is None or right is None else Operation(operator, left, right).text
    return text.replace("{", "").replace("}", "")


def _not(decision: Decision) -> Decision:
    outcome = decision.outcome if isinstance(decision.outcome, str) else not decision.outcome
    return Decision(outcome, decision.no, decision.yes, decision.conditions, decision.rests)


def _threads(operator: str, a: Value, bound: Any, threads: Threads, counts: Counts) -> Decision | None:
    """The threads that a test on digits of the thread index picks; None where it does not tell them apart."""
    if any(may_be_negative(factor) for _, factor in a.digits):
        return None
    made: Threads | None = threads
    keys = sorted(a.digits, key=lambda d: (d[0][0], d[0][1] if isinstance(d[0][1], int) else 1 << 40))
    covered: list[Digit] = []
    for key, _ in keys:
        split = made.split(key) if made is not None else None
        if split is None:
            return None
        made, _ = split
    for key, _ in keys:  # splitting by one key may have split what another covers
        split = made.split(key) if made is not None else None
        if split is None:
            return None
        covered += split[1]
    if made is None or any(d.left != "first" for d in covered):
        return None
    if operator in {"<=", ">"}:
        bound, operator = computed("+", bound, 1), "<" if operator == "<=" else ">="
    if operator in {"==", "!="}:
        one = _equal(a, bound, made, covered)
    else:
        one = _below(keys, a.offset, bound, made, covered, counts)
    if one is None:
        return None
    rest = made.without(one, counts)
    return Decision("threads", one, rest) if operator in {"==", "<"} else Decision("threads", rest, one)


def _equal(a: Value, bound: Any, threads: Threads, covered: list[Digit]) -> Threads | None:
    if a.offset != 0 or not isinstance(bound, int) or bound < 0:
        return None
    if bound and (len(covered) > 1 or a.digits[0][1] != 1):
        return None
    if bound and not (isinstance(covered[0].count, int) and bound < covered[0].count):
        return None
    return threads.at(covered)


def _below(
    keys: list[tuple[Any, Any]], offset: Any, bound: Any, threads: Threads, covered: list[Digit], counts: Counts
) -> Threads | None:
    """Those below a bound; of several digits only where they count up together."""
    factor = keys[0][1]
    expected = factor
    for (_, factor_), digit in zip(keys, covered, strict=False):
        if len(keys) > 1 and (len(keys) != len(covered) or counts.read(factor_) != counts.read(expected)):
            return None
        expected = computed("*", expected, digit.count)
    rest = computed("-", bound, offset)
    if rest is None or len({d.axis for d in covered}) > 1:
        return None
    if factor != 1:
        rest = ceil_div(rest, factor)
    return threads.below(covered, rest)


__all__ = ["OPEN", "Decision", "Guards"]
