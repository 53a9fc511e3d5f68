"""The way to a point of a kernel: the tests on it, how each went, and who decides it.

A branch that is not taken is run too, on the path of its other answer (`other`): what stands there is listed with its
condition and is no part of a cost. One table, `Answers`, holds every answer that was given to a test, so that no two
places of a kernel take it differently.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from opscope_tools.kernels.values.conditions import canonical, negated, when_text

#: taken: a constant decides; some: threads or programs do; assumed: a parameter, so that it is a
#: condition of the answer; other: the side that is not assumed; open: data decides
Status = Literal["taken", "some", "assumed", "other", "open"]


@dataclass(frozen=True, slots=True)
class Step:
    """A test on the way, and how it went."""

    test: str
    holds: bool
    status: Status
    line: int = 0

    @property
    def condition(self) -> str:
        """The test as it holds here, for reading."""
        return self.test if self.holds else negated(self.test)


Path = tuple[Step, ...]


def counted(path: Path) -> bool:
    """Whether a cost counts what stands at the end of a path."""
    return "other" not in [step.status for step in path]


def when(paths: Iterable[Path]) -> str:
    """The condition under which one of several ways is gone; '' where one always is."""
    trails = [tuple((step.test, step.holds) for step in path if step.status != "taken") for path in paths]
    return when_text(
        [tuple((canonical(t)[0], h == canonical(t)[1]) for t, h in dict(trail).items()) for trail in trails]
    )


#: a test by its text, or ("not", test), ("and", test, ...), ("or", test, ...)
Test: TypeAlias = "str | tuple[Test, ...]"


@dataclass
class Answers:
    """Every answer that was given to a test, by the form of the test in which it is kept."""

    given: dict[str, bool] = field(default_factory=dict)
    #: quantities that a test was taken to give one value, and that value
    equal: dict[str, Any] = field(default_factory=dict)
    #: tests of several parts whose answer leaves the parts open
    wholes: list[tuple[Test, bool]] = field(default_factory=list)

    def known(self, test: Test) -> bool | None:
        """The answer that was given to a test, or that those to its parts make; None where there is none."""
        if isinstance(test, str):
            plain, positive = canonical(test)
            answer = self.given.get(plain)
            return None if answer is None else answer == positive
        word, *parts = test
        answers = [self.known(part) for part in parts]
        if word == "not":
            return None if answers[0] is None else not answers[0]
        ends = word == "or"
        return ends if ends in answers else None if None in answers else not ends

    def implied(self, test: Test) -> bool | None:
        """As `known`, or what all answers together leave as the only one."""
        answer = self.known(test)
        if answer is None and self.wholes:
            for tried in (True, False):
                trial = self.supposing(test, tried)
                if any(trial.known(whole) is (not holds) for whole, holds in self.wholes):
                    return not tried
        return answer

    def put(self, test: Test, holds: bool) -> None:
        """Take a test to be so from here on, and of its parts what follows."""
        if isinstance(test, str):
            plain, positive = canonical(test)
            self.given[plain] = holds == positive
            return
        word, *parts = test
        if word == "not":
            self.put(parts[0], not holds)
        elif holds == (word == "and"):
            for part in parts:
                self.put(part, holds)
        else:
            self.wholes.append((test, holds))

    def supposing(self, test: Test, holds: bool) -> Answers:
        """A table of its own in which a test has this answer."""
        made = self.copy()
        made.wholes = [whole for whole in made.wholes if whole[0] != test]
        made.put(test, holds)
        return made

    def copy(self) -> Answers:
        """The same answers, to go another way with."""
        return Answers(dict(self.given), dict(self.equal), list(self.wholes))


__all__ = ["Answers", "Path", "Status", "Step", "Test", "counted", "when"]
