"""Takes out of a command's output what says who ran it and where: home and scratch folders, names of user and host, secrets of the environment."""

from __future__ import annotations

import os
import re
import socket
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

__all__ = ["Scrubber"]

#: values of the environment that are shorter say nothing by themselves
_SHORTEST = 8
#: what many programs print and nobody minds
_PLAIN = frozenset("PATH LANG LC_ALL TERM SHELL PWD OLDPWD HOME USER LOGNAME TZ SHLVL _ VIRTUAL_ENV HOSTNAME".split())
_SECRETS = re.compile(
    r"\b(?:sk-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[0-9A-Z]{16}|xox[abp]-[A-Za-z0-9-]{10,}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,})"
)
#: names of variables whose value is written out beside them: `API_KEY=...`
_NAMED = re.compile(
    r"\b([A-Z][A-Z0-9_]*(?:TOKEN|SECRET|KEY|PASSWORD|PASSWD|CREDENTIALS?)[A-Z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s\"',]+)"
)


@dataclass(frozen=True)
class Scrubber:
    """Replaces paths by short names, and hides the rest; `folders` are the caller's own, by what stands for them."""

    folders: Mapping[str, str] = field(default_factory=dict)
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @cached_property
    def _paths(self) -> list[tuple[str, str]]:
        """Folders and what stands for them, the longest first."""
        site, home = sysconfig.get_path("purelib"), str(Path.home())
        known = {
            **self.folders, self.python: "python", str(Path(self.python).resolve()): "python", site: "site-packages", sys.prefix: "$VENV", sys.base_prefix: "$PYTHON",
        }  # fmt: skip
        found = {path.rstrip("/"): name for path, name in known.items() if len(path) > 1}
        for path, name in list(found.items()):
            found.setdefault(os.path.realpath(path), name)
        # a home that is the root of everything, or of the system's folders, stands for nobody
        if len(Path(home).parts) > 1:
            found.setdefault(home, "~")
        return sorted(found.items(), key=lambda pair: -len(pair[0]))

    @cached_property
    def _hidden(self) -> list[tuple[str, str]]:
        """Values of the environment and what stands for them."""
        held = {
            value: f"${name}"
            for name, value in self.environment.items()
            if name not in _PLAIN and len(value) >= _SHORTEST and not Path(value).exists()
        }
        return sorted(held.items(), key=lambda pair: -len(pair[0]))

    def __call__(self, text: str) -> str:
        """The text without them; lines and their order stay."""
        for path, name in self._paths:
            text = re.sub(rf"{re.escape(path)}(?![\w.-])", name.replace("\\", r"\\"), text)
        for value, name in self._hidden:
            text = text.replace(value, name)
        text = re.sub(r"(?<![\w.])/(?:home|Users)/[^/\s:\"']+", "~", text)
        host = socket.gethostname()
        if len(host) > 3:
            text = re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", "host", text)
        return _NAMED.sub(r"\1=...", _SECRETS.sub("[hidden]", text))
