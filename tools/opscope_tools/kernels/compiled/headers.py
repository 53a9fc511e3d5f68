"""Which folders a compiler must look into, so that the `#include` lines of a repository's file find what they name.

Each line is followed: a header that does not lie beside the file that includes it is looked for among all files of the
repository by its path as written, the one nearest to the including file first. What the system or torch has is theirs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

from opscope_cache.trees import tree_at
from opscope_schemas.common import Repository

from opscope_tools.source.files import CUDA, HEADERS, read_text

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^">\n]+)[">]', re.MULTILINE)
#: files that one translation unit is followed through
_MOST = 3000


class Headers:
    """The C++ files of a repository, by how they include one another; `elsewhere`: folders of the system's own headers."""

    def __init__(self, repository: Repository, elsewhere: Sequence[Path] = ()) -> None:
        self.repository, self.elsewhere = repository, elsewhere
        listed = tree_at(repository.root, repository.packages).now()
        self.files = list(listed.ending(*CUDA, ".cxx", ".hh", ".hxx"))
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            self._by_name[file.rpartition("/")[2]].append(file)

    def folders(self, file: str) -> list[Path]:
        """The folders in which headers that `file` leads to were found, those that it needs first ahead."""
        return [self.repository.root / folder for folder in self._followed(file)[1]]

    def including(self, header: str) -> list[str]:
        """The files that are compiled themselves and lead to `header`; none for a file that is compiled itself."""
        found: dict[str, None] = {}
        pending = [header]
        while pending:
            reached = pending.pop(0)
            if not reached.endswith(HEADERS):
                continue
            for other in self._mentions.get(reached.rpartition("/")[2], ()):
                if other not in found and reached in self._next(other):
                    found[other] = None
                    pending.append(other)
        return [f for f in found if not f.endswith(HEADERS)]

    @cached_property
    def _mentions(self) -> dict[str, list[str]]:
        """Name of a header -> the files that include one of that name."""
        found: dict[str, list[str]] = defaultdict(list)
        for file in self.files:
            for _, name in self._included(file):
                found[name.rpartition("/")[2]].append(file)
        return found

    def _followed(self, file: str) -> tuple[dict[str, None], dict[str, None]]:
        """Every file that `file` leads to, and the folders that make its lines resolve."""
        reached, folders = {file: None}, dict[str, None]()
        pending = [file]
        while pending and len(reached) < _MOST:
            for other, folder in self._next(pending.pop(0)).items():
                if folder is not None:
                    folders[folder] = None
                if other not in reached:
                    reached[other] = None
                    pending.append(other)
        return reached, folders

    def _next(self, file: str) -> dict[str, str | None]:
        """File that a line of `file` includes -> the folder to look into for it; None where it lies beside."""
        found: dict[str, str | None] = {}
        for mark, name in self._included(file):
            beside = _joined(file, name)
            if mark == '"' and beside in self._by_name.get(name.rpartition("/")[2], ()):
                found.setdefault(beside, None)
            elif not any((folder / name).is_file() for folder in self.elsewhere) and (
                other := self._nearest(file, name)
            ):
                found.setdefault(other, other.removesuffix(name))
        return found

    def _nearest(self, file: str, name: str) -> str:
        """The file whose path ends as written that shares the most folders with `file`."""
        ends = [o for o in self._by_name.get(name.rpartition("/")[2], ()) if f"/{o}".endswith(f"/{name}")]
        own = PurePosixPath(file).parts
        return min(ends, key=lambda o: (-_shared(own, PurePosixPath(o).parts), len(o), o), default="")

    def _included(self, file: str) -> Iterator[tuple[str, str]]:
        for match in _INCLUDE.finditer(read_text(self.repository, file) or ""):
            yield match[1], match[2].strip()


def _joined(file: str, name: str) -> str:
    """The path that `name` has as seen from the folder of `file`."""
    parts: list[str] = list(PurePosixPath(file).parent.parts)
    for part in name.split("/"):
        if part == ".." and parts:
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _shared(one: Sequence[str], other: Sequence[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


__all__ = ["Headers"]
