"""The count of what the security tests tried, and of what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

#: what stands for the content of somebody else's file
SECRET = "opscope_secret_e7f1"
FIGURES = _TRIED, _EXECUTED, _FILES, _READ = (
    "executions tried",
    "code executed",
    "foreign files tried",
    "foreign files read",
)


def summary(counts: Mapping[str, int]) -> str:
    """The figures of a whole run as one line."""
    return (
        f"executions tried {counts[_TRIED]}, code executed {counts[_EXECUTED]}; "
        f"foreign files tried {counts[_FILES]}, read {counts[_READ]}"
    )


class Tally:
    """Counts attempts; each is one that did nothing, or the test fails."""

    def __init__(self, record: Callable[[str, object], None]) -> None:
        self._record = record

    def execution(self, mark: Path) -> None:
        """One attempt to run code, which would have left `mark`."""
        self.executions(1, [f"code ran and left {mark}"] if mark.exists() else [])

    def executions(self, count: int, executed: list[str]) -> None:
        """Several attempts at once."""
        self._record(_TRIED, count)
        self._record(_EXECUTED, len(executed))
        assert not executed, executed

    def file(self, said: str) -> None:
        """One attempt to read a foreign file, whose content is not to be in what was said."""
        self._record(_FILES, 1)
        self._record(_READ, int(SECRET in said))
        assert SECRET not in said, said
