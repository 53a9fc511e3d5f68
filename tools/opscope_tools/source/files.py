"""The files of a repository that may hold kernels, read without leaving it.

Folders reached through symlinks are not entered, and a file whose real path lies outside is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from opscope_cache.trees import tree_at
from opscope_schemas.common import Repository

PYTHON = (".py",)
#: of C++ and CUDA, what other files include
HEADERS = (".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl")
CUDA = (".cu", ".cuh", ".inl", ".h", ".hpp", ".hip", ".cc", ".cpp")
TEMPLATES = (".jinja", ".jinja2")
SUFFIXES = (*PYTHON, *CUDA, *TEMPLATES)
LIMIT = 8 << 20  # bytes; larger files are generated tables


def walk(repository: Repository) -> Iterator[str]:
    """Relative paths of every candidate file, in path order."""
    yield from tree_at(repository.root, repository.packages).now().ending(*SUFFIXES)


def fingerprint(repository: Repository) -> str:
    """What changes with any file of the repository."""
    return tree_at(repository.root, repository.packages).now().fingerprint


def _inside(repository: Repository, path: Path) -> bool:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return False
    tops = [repository.root / package for package in repository.packages] or [repository.root]
    return any(real.is_relative_to(top) for top in tops)


def read_bytes(repository: Repository, relative: str, *, walked: bool = False) -> bytes | None:
    """The content of a file inside the repository; None where it is missing, too large, or outside.

    `walked`: the path comes from `walk`, which has made sure that it is inside.
    """
    path = repository.root / relative
    try:
        if not (walked or _inside(repository, path)) or path.stat().st_size > LIMIT:
            return None
        return path.read_bytes()
    except OSError:
        return None


def too_large(repository: Repository, relative: str) -> bool:
    """Whether `read_bytes` leaves a file out for its size."""
    try:
        return (repository.root / relative).stat().st_size > LIMIT
    except OSError:
        return False


def read_text(repository: Repository, relative: str) -> str | None:
    """The same as text; bytes that are no UTF-8 are replaced, so that positions and lines stay."""
    data = read_bytes(repository, relative)
    return None if data is None else data.decode("utf-8-sig", errors="replace")
