"""A fence around what runs for a request: what the caller's texts name is neither imported nor opened, nothing is started
and nothing is connected to.

The second line of defence. Names are resolved before they get here (definitions.py, naming.py); whatever in transformers or
torch would follow a text of a configuration all the same meets an ImportError or PermissionError, as it would where the
package or the file is not there. The hook cannot be taken out again by Python code; outside a request it looks at nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from opscope_tools.trace.protocol import Definition, ModelSpec

#: events of starting a program, of connecting, of code from outside
_STARTED = frozenset(
    "subprocess.Popen os.system os.exec os.posix_spawn os.spawn os.startfile pty.spawn webbrowser.open socket.connect"
    " socket.getaddrinfo socket.gethostbyname socket.sendto urllib.Request ftplib.connect smtplib.connect".split()
)
_OPENED = frozenset("open os.listdir os.scandir shutil.copyfile shutil.copytree glob.glob os.remove os.rename".split())
_OWN = ("torch", "transformers")


class _Fence:
    """What the request at hand may not do."""

    def __init__(self, texts: Collection[str], roots: Sequence[str], *, starts: bool) -> None:
        self._starts = starts
        self._roots = {Path(root).resolve() for root in roots}
        self._packages = {
            token.partition(".")[0] for text in texts for token in re.split(r"[^\w.]+", text) if token
        } - set(_OWN)
        self._paths = {path for text in texts if (path := _path(text)) is not None}

    def imports(self, name: str) -> bool:
        return name.partition(".")[0] not in self._packages

    def opens(self, path: Any) -> bool:
        if not self._paths or not isinstance(path, str | bytes):
            return True
        real = Path(os.fsdecode(path)).resolve()
        around = {real, *real.parents}
        return around.isdisjoint(self._paths) or not around.isdisjoint(self._roots)

    def starts(self) -> bool:
        return self._starts


def _path(text: str) -> Path | None:
    """The place that a text names where it is taken for a path; None where it can be none."""
    try:
        return Path(text).expanduser().resolve() if text else None
    except (OSError, ValueError, RuntimeError):
        return None


_up: list[_Fence] = []
_hooked: list[bool] = []


def _heard(event: str, given: tuple[Any, ...]) -> None:
    if not _up:
        return
    if event in _STARTED and not _up[-1].starts():
        raise PermissionError(f"A trace starts nothing and connects to nothing ({event}).")
    if event in _OPENED and given and not _up[-1].opens(given[0]):
        raise PermissionError("A trace opens nothing that its configuration names.")


class _Finder:
    """First in the import system's list: refuses the packages that the fence keeps out, and finds nothing itself."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        del target
        if _up and path is None and not _up[-1].imports(name):
            raise ModuleNotFoundError(
                f"No module named {name!r} is imported because a configuration names it", name=name
            )
        return None


@contextlib.contextmanager
def fenced(spec: ModelSpec) -> Iterator[None]:
    """While inside, what the spec's configuration names stays where it is. Code of a repository that the user trusts may
    start programs, as it could anywhere."""
    if not _hooked:
        sys.addaudithook(_heard)
        _hooked.append(True)
    definitions: list[Definition] = [d for d in (spec.definition, spec.factory) if d is not None]
    own = {d.module.partition(".")[0] for d in definitions}
    texts = set(_texts([spec.content, spec.overrides])) - own
    _up.append(_Fence(texts, [*sys.path, sys.prefix, *(d.root for d in definitions)], starts=bool(own - set(_OWN))))
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)
        _up.pop()


def _texts(value: object) -> Iterator[str]:
    """Every text of a configuration, names of fields too where they are no plain words."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for held in value.values():
            yield from _texts(held)
    elif isinstance(value, list | tuple):
        for held in value:
            yield from _texts(held)


__all__ = ["fenced"]
