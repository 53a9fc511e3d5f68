"""The options that say where a session works, accepted before and after any subcommand.

Order: the options, the session that they add up to, the command class that carries them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from opscope_schemas.errors import PathRefusedError
from opscope_tools.running.session import open_workspace
from opscope_tools.running.workspace import Workspace
from opscope_tools.source.files import SUFFIXES

#: what stands in the topmost folder of a project
_PROJECT = (".git", "pyproject.toml", "setup.py", "setup.cfg")
#: how every command takes and prints its help
CONTEXT: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}


def options() -> list[click.Option]:
    """A fresh set of the session's options."""
    return [
        click.Option(["--repo"], multiple=True, metavar="NAME=PATH", help="Add a repository of source. Repeatable."),
        click.Option(
            ["--trust"], multiple=True, metavar="NAME", help="Allow tracing to import that repository. Repeatable."
        ),
        click.Option(["--python"], metavar="PATH", help="Interpreter that traces (default: this one)."),
        click.Option(["--cache-dir"], metavar="DIR", help="Folder of the cache."),
        click.Option(["--output"], metavar="DIR", help="Folder that reports are written under (default: here)."),
        click.Option(
            ["--config-dir"],
            multiple=True,
            metavar="DIR",
            help="Let callers of a server name configs there. Repeatable.",
        ),
        click.Option(["--device-file"], multiple=True, metavar="FILE", help="Your own devices, as JSON. Repeatable."),
    ]


@dataclass
class SessionOptions:
    """What the session options add up to; each `OPSCOPE_NAME` variable stands behind its option."""

    repo: tuple[str, ...] = ()
    trust: tuple[str, ...] = ()
    python: str | None = None
    cache_dir: str | None = None
    output: str | None = None
    config_dir: tuple[str, ...] = ()
    device_file: tuple[str, ...] = ()

    def merged(self, given: dict[str, Any]) -> SessionOptions:
        """This session with a subcommand's own options added."""
        return SessionOptions(
            repo=(*self.repo, *(given.get("repo") or ())),
            trust=(*self.trust, *(given.get("trust") or ())),
            python=given.get("python") or self.python,
            cache_dir=given.get("cache_dir") or self.cache_dir,
            output=given.get("output") or self.output,
            config_dir=(*self.config_dir, *(given.get("config_dir") or ())),
            device_file=(*self.device_file, *(given.get("device_file") or ())),
        )

    def naming(self, *arguments: object) -> SessionOptions:
        """This session with the files that a user typed themselves: a config.json, a folder that holds one."""
        found: list[str] = []
        for text in arguments:
            with contextlib.suppress(OSError, ValueError, RuntimeError):  # a name that no file can have
                path = Path(text).expanduser() if isinstance(text, str) and text.strip() else None
                if path is not None and path.is_dir():
                    path = path / "config.json"
                if path is not None and path.is_file():
                    found.append(str(path.resolve()))
        return replace(self, config_dir=(*self.config_dir, *found))

    def placing(self, target: str) -> tuple[SessionOptions, str]:
        """This session with the repository that the source file or folder `target` lies in, and its name in there.

        A path that a user typed themselves is a repository that they gave: of those given, or a new one; unchanged where
        `target` is no such path. `path:line` and `path::Class` keep what stands behind the path.
        """
        head, colon, rest = target.partition(":")
        try:
            path = Path(head).expanduser().resolve()
            root = _root(path, os.sep in head or head in (".", "..")) if head.strip() else None
        except (OSError, ValueError, RuntimeError):  # a name that no file can have
            root = None
        return (self, target) if root is None else self._at(root, path, colon + rest)

    def placing_all(self, targets: Sequence[str]) -> tuple[SessionOptions, tuple[str, ...]]:
        """As `placing`, of several."""
        session, placed = self, []
        for target in targets:
            session, called = session.placing(target)
            placed.append(called)
        return session, tuple(placed)

    def _at(self, root: Path, path: Path, rest: str) -> tuple[SessionOptions, str]:
        opened = replace(self, trust=()).workspace()  # what is trusted may be the one that is added here
        opened.store.close()
        try:
            found, _ = opened.resolve_inside(str(path))
            name, root, session = found.name, found.root, self
        except PathRefusedError:
            stem = re.sub(r"[^\w.-]+", "-", root.name).strip("-.") or "source"
            name = next(n for n in (stem, *(f"{stem}-{k}" for k in range(2, 99))) if n not in opened.repositories)
            session = replace(self, repo=(*self.repo, f"{name}={root}"))
        return session, name if path == root else f"{path.relative_to(root).as_posix()}{rest}"

    def workspace(self) -> Workspace:
        """Open it; raises `InputError`."""
        return open_workspace(
            repositories=self.repo,
            trust=self.trust,
            python=self.python,
            cache_folder=self.cache_dir,
            output=self.output,
            config_dirs=self.config_dir,
            device_files=self.device_file,
        )

    def server_arguments(self) -> list[str]:
        """The same session as arguments of `python -m opscope_server`."""
        found = [part for text in self.repo for part in ("--repo", text)]
        found += [part for name in self.trust for part in ("--trust", name)]
        found += [part for folder in self.config_dir for part in ("--config-dir", folder)]
        found += [part for file in self.device_file for part in ("--device-file", file)]
        for flag, value in (("--python", self.python), ("--cache-dir", self.cache_dir), ("--output", self.output)):
            found += [flag, value] if value else []
        return found


def _root(path: Path, is_path: bool) -> Path | None:
    """The folder that is read with the source `path`: a project's, else that around its package; None for what is no source.

    A bare word means a folder only where it `is_path`; a folder with a config.json is a model's; a home is nobody's project.
    """
    if path.is_file() and path.suffix in SUFFIXES:
        folder = path.parent
        while (folder / "__init__.py").is_file():
            folder = folder.parent
        root = next((f for f in (folder, *folder.parents) if any((f / mark).exists() for mark in _PROJECT)), folder)
    elif path.is_dir() and is_path and not (path / "config.json").is_file():
        root = path
    else:
        return None
    return None if root in (Path.home().resolve(), Path(root.anchor)) else root


class SessionCommand(click.Command):
    """A command that takes the session options too, and hands its callback the merged session as `session`."""

    def __init__(self, name: str | None, *, params: list[click.Parameter] | None = None, **kwargs: Any) -> None:
        own = list(params or [])
        flags = {flag for parameter in own if isinstance(parameter, click.Option) for flag in parameter.opts}
        added = [option for option in options() if not flags.intersection(option.opts)]
        names = {parameter.name for parameter in own}
        #: name of a session's option -> that of the command's parameter: an argument may bear the option's own
        self._added = {str(o.name): f"session_{o.name}" if o.name in names else str(o.name) for o in added}
        for option in added:
            option.name = self._added[str(option.name)]
        super().__init__(name, params=[*own, *added], **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Take the session options out of the parameters, and put the session in."""
        given = {name: ctx.params.pop(held, None) for name, held in self._added.items()}
        base = ctx.find_object(SessionOptions) or SessionOptions()
        # a tool that has a `repo` of its own: NAME=PATH both registers the repository and selects it
        selected = ctx.params.get("repo")
        if isinstance(selected, str) and "=" in selected:
            given["repo"] = (selected,)
            ctx.params["repo"] = selected.partition("=")[0].strip()
        ctx.params["session"] = base.merged(given)
        return super().invoke(ctx)


def command(callback: Callable[..., Any], name: str, help_text: str, params: list[click.Parameter]) -> SessionCommand:
    """A session command made from data rather than a decorated function."""
    return SessionCommand(name, callback=callback, help=help_text, params=params, short_help=help_text.split(". ")[0])
