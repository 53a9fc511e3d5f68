"""Writes a report and its facts file inside the output folder: both whole, or neither.

Both texts are first written in full beside their targets and only then renamed over them, so a full disk, a missing
permission or a kill leaves the old files as they were.
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote

from opscope_cache.whole_files import written_beside
from opscope_schemas.errors import InputError, OutputError, PathRefusedError
from opscope_schemas.evidence import Topic

__all__ = ["POSTS", "check_writable", "exists_beside", "facts_path", "inside", "page_path", "report_path", "save"]

#: topic of a post -> its file below posts/
POSTS: Mapping[Topic, str] = {
    "memory-bandwidth": "llm-gpu-memory-bandwidth", "system-calls": "llm-cpu-gpu-system-calls", "cache-hierarchy": "llm-cache-hierarchy",
    "memory-bottlenecks": "llm-memory-bottlenecks", "matrix-multiplication": "llm-matrix-multiplication",
}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def report_path(name: str, kind: str = "implementation") -> str:
    """Where the report `name` of a kind lies, relative to the output folder; raises `InputError` for a name with a path."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise InputError(
            f"{name!r} cannot be the name of a report.",
            next_step="Use letters, digits, dots, dashes and underscores, beginning with a letter or digit.",
        )
    if kind == "post":
        if name not in POSTS:
            raise InputError(f"There is no post {name!r}.", next_step=f"Topics: {', '.join(POSTS)}.")
        return f"posts/{POSTS[name]}.md"  # type: ignore[index] # it is one of them
    return f"reports/repos/{name}.md" if kind == "repo" else f"reports/implementations/{name}-analysis.md"


def facts_path(path: str) -> str:
    """The facts file beside a report."""
    return f"{path.removesuffix('.md')}.facts.json"


def page_path(path: str) -> str:
    """The HTML page beside a report."""
    return f"{path.removesuffix('.md')}.html"


def inside(output: Path, path: str) -> Path:
    """`path` below the output folder; raises `PathRefusedError` where `..` or a symlink leads out of it."""
    try:
        resolved = (output / path).resolve()
    except (OSError, ValueError, RuntimeError):  # a name that no file can have, or links in a circle
        raise PathRefusedError(
            f"{path[:200]!r} cannot be a path.", next_step="Give a path of the output folder."
        ) from None
    if not resolved.is_relative_to(output.resolve()):
        raise PathRefusedError(
            f"{path!r} lies outside the output folder {output}.", next_step="Give a path relative to that folder."
        )
    return resolved


def exists_beside(output: Path, report: str, target: str) -> bool:
    """Whether a link of the report leads to a file of the output folder."""
    try:
        return inside(output, f"{report.rpartition('/')[0]}/{unquote(target)}").exists()
    except PathRefusedError:
        return False


def check_writable(output: Path, path: str) -> None:
    """That a report can be saved at `path`, by making and removing a file where it will lie; raises `OutputError`."""
    target = inside(output, path)
    made = [folder for folder in (target.parent, *target.parent.parents) if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {error.strerror or error}.",
            next_step="Choose a writable folder with --output, or make this one writable.",
        ) from error
    finally:
        for folder in made:  # the nearest first; another's file keeps its folder
            with contextlib.suppress(OSError):
                folder.rmdir()


def save(output: Path, texts: Mapping[str, str]) -> None:
    """Write each text to its path below `output`; raises `OutputError` and leaves everything as it was on failure."""
    written: list[tuple[Path, Path]] = []
    target = output
    try:
        for path, text in texts.items():
            target = inside(output, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target = inside(output, path)  # again: the folder may be a symlink that has come to be since
            written.append((written_beside(target, text.encode(), 0o644), target))
        for temporary, target in written:
            temporary.replace(target)
    except OSError as error:
        raise OutputError(
            f"{target} cannot be written: {error.strerror or error}.",
            next_step="Choose a writable folder with --output, or make this one writable.",
        ) from error
    finally:
        for temporary, _ in written:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
