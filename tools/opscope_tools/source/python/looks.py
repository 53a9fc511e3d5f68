"""What an answer looked at, with what it saw: as long as each look still gives the same, the answer holds and may be kept.

Whoever looks at something outside the process notes it (`note`); `noting` gathers the notes of one thread, and `unchanged`
looks again. A look is a kind, the repository it is of (none for the interpreter's surroundings) and what it is about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

#: (kind, repository, what it is about) -> what it gave
Looks = dict[tuple[str, str, str], bytes]
#: looks again: (repository, what it is about) -> what it gives now
Ask = Callable[[str, str], bytes]


class _Gathering(threading.local):
    looks: Looks | None = None


_gathering = _Gathering()


@contextmanager
def noting(looks: Looks | None) -> Iterator[None]:
    """Gather in `looks` what is looked at inside, and what it holds already in those of whoever gathers outside."""
    outer, _gathering.looks = _gathering.looks, looks
    try:
        yield
    finally:
        _gathering.looks = outer
        if looks is not None:
            pass_on(looks)


def pass_on(looks: Looks) -> None:
    """Note what was looked at for something that was kept and is used again."""
    if _gathering.looks is not None:
        for look, gave in looks.items():
            _gathering.looks.setdefault(look, gave)


def note(kind: str, repository: str, about: str, gave: Callable[[], bytes]) -> None:
    """Note a look; what it gave first counts, should a file change in between."""
    looks = _gathering.looks
    if looks is not None and (kind, repository, about) not in looks:
        looks[kind, repository, about] = gave()


def settled(looks: Looks) -> Looks:
    """The looks, without those at whether a file is there that was read as well."""
    return {
        look: gave for look, gave in looks.items() if look[0] != "there" or not gave or ("file", *look[1:]) not in looks
    }


def unchanged(looks: Mapping[tuple[str, str, str], bytes], asks: Mapping[str, Ask]) -> bool:
    """Whether every look gives what it gave."""
    with noting(None):
        return all(
            kind in asks and asks[kind](repository, about) == gave for (kind, repository, about), gave in looks.items()
        )


def said(found: bool) -> bytes:
    """Yes or no as what a look gave."""
    return b"1" if found else b""
