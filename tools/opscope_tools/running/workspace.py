"""Where a session works: the repositories it may read, the folder it may write, the cache, the tracing interpreter.

One `Workspace` lives as long as a server or a command; tools reach everything through it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opscope_cache.store import Store, open_store
from opscope_cache.trees import SUFFIXES, Tree, tree_at
from opscope_schemas.common import Repository, Source
from opscope_schemas.errors import InputError, PathRefusedError, UnknownNameError

from opscope_tools.children import Cage, Limits, run

#: repository name -> top-level package of the installed distribution that is read by default
DEFAULT_PACKAGES: Mapping[str, str] = {"transformers": "transformers", "pytorch": "torch"}
#: what the process that traces may use, unless the session says otherwise; it starts no other process
TRACE_LIMITS = Limits(data_bytes=12 << 30, open_files=1024, file_bytes=256 << 20, nice=5)
#: prints {package: [folder, version]} of the named packages that an interpreter has, without importing them
_PLACES = """
import importlib.metadata, importlib.util, json, sys
found = {name: importlib.util.find_spec(name) for name in sys.argv[1:]}
places = {name: spec.submodule_search_locations[0] for name, spec in found.items() if spec and spec.submodule_search_locations}
print(json.dumps({name: [folder, importlib.metadata.version(name)] for name, folder in places.items()}))
"""


def installed_repository(name: str, package: str) -> Repository | None:
    """The installed `package` as a repository, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(next(iter(spec.submodule_search_locations))).resolve()
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = ""
    return Repository(name=name, root=folder.parent, packages=(package,), version=version, installed=True)


def repositories_of(python: str) -> dict[str, Repository]:
    """What `installed_repository` says of the default packages, asked of the interpreter `python`.

    Empty where it cannot be asked: a trace then tells why. What it does not have installed is left out.
    """
    try:
        done = run(
            [python, "-P", "-c", _PLACES, *DEFAULT_PACKAGES.values()], seconds=60, environment={"PYTHONPATH": ""}
        )
        places: dict[str, tuple[str, str]] = json.loads(done.out)
    except (OSError, ValueError):
        return {}
    return {
        name: Repository(
            name=name, root=Path(places[package][0]).resolve().parent, packages=(package,), version=places[package][1],
            installed=True,
        )
        for name, package in DEFAULT_PACKAGES.items() if package in places
    }  # fmt: skip


def folder_repository(name: str, folder: Path) -> Repository:
    """A folder as a repository: a checkout, an unpacked sdist, or the inside of a package folder.

    Raises `InputError` where the folder does not exist.
    """
    from opscope_tools.running.distributions import version_of_package, version_of_tree  # here: not every start has one

    folder = folder.expanduser()
    if not folder.is_dir():
        raise InputError(
            f"The repository {name} points at {folder}, which is not a folder.",
            next_step="Give --repo NAME=PATH an existing folder.",
        )
    folder = folder.resolve()
    version = _git_commit(folder)
    wanted = DEFAULT_PACKAGES.get(name)
    if wanted is not None:  # stands in for an installed package: find that package in a checkout, an sdist or itself
        for holder in (folder, folder / "src", folder.parent):
            package = holder / wanted
            inside = holder != folder.parent or folder.name == wanted
            if inside and (package / "__init__.py").is_file():
                return Repository(
                    name=name, root=holder, packages=(wanted,), version=version or version_of_package(package)
                )
        raise InputError(
            f"The folder {folder} holds no package {wanted}.",
            next_step=f"Give a checkout of {name}, or the package folder {wanted} itself.",
        )
    if (folder / "__init__.py").is_file():  # a package folder itself: paths start with its own name
        return Repository(
            name=name, root=folder.parent, packages=(folder.name,), version=version or version_of_package(folder)
        )
    return Repository(name=name, root=folder, version=version or version_of_tree(folder))


def _git_commit(folder: Path) -> str:
    """The checked-out commit of `folder`, or an empty string where it is not the top of a git work tree."""
    if not (folder / ".git").exists():
        return ""
    try:
        done = run(
            ["git", "-C", str(folder), "rev-parse", "HEAD"], seconds=10, environment={"GIT_OPTIONAL_LOCKS": "0"},
            # a work tree's own settings may name programs; only git's are run
            cage=Cage(read=("/",), execute=("/usr/lib/git-core", "/usr/libexec/git-core")),
        )  # fmt: skip
    except OSError:
        return ""
    return done.out.strip() if done.code == 0 else ""


@dataclass
class Workspace:
    """The session's repositories, output folder, cache and tracing interpreter."""

    repositories: dict[str, Repository]
    output: Path
    store: Store
    #: interpreter that the trace worker runs in; the one that runs us by default
    python: str = sys.executable
    #: names of folder repositories whose code the trace worker may import
    trusted: frozenset[str] = frozenset()
    #: folders (or single files) that configurations may be read from beside the repositories and the output folder
    config_places: tuple[Path, ...] = ()
    #: the user's own tables of devices, the last one wins
    device_files: tuple[Path, ...] = ()
    #: whether a caller may name a configuration by its path outside of `config_places`; over HTTP nobody may
    paths_allowed: bool = True
    #: whether a question about a repository without an index starts a build behind it
    builds_index: bool = False
    #: seconds that one trace may take, and what else the process that traces may use
    trace_timeout: float = 600.0
    trace_limits: Limits = TRACE_LIMITS
    #: node_modules folder that holds the npm package mermaid, whose parser then reads the diagrams of reports
    mermaid: Path | None = None
    _engines: dict[str, object] = field(default_factory=dict, repr=False)
    _trees: dict[tuple[str, tuple[str, ...]], Tree] = field(default_factory=dict, repr=False)

    @classmethod
    def create(
        cls,
        *,
        repositories: Iterable[tuple[str, Path]] = (),
        output: Path | None = None,
        cache_folder: Path | None = None,
        python: str | None = None,
        trusted: Iterable[str] = (),
    ) -> Workspace:
        """The `transformers` and `torch` installed for `python`, plus (or replaced by) the named folders."""
        found = {}
        for name, package in DEFAULT_PACKAGES.items():
            installed = installed_repository(name, package)
            if installed is not None:
                found[name] = installed
        if python is not None and python != sys.executable:
            found.update(repositories_of(python))
        for name, folder in repositories:
            found[name] = folder_repository(name, folder)
        return cls(
            repositories=found,
            output=(output or Path.cwd()).resolve(),
            store=open_store(cache_folder),
            python=python or sys.executable,
            trusted=frozenset(trusted),
        )

    def tree(self, repository: Repository, suffixes: tuple[str, ...] = SUFFIXES) -> Tree:
        """The repository's files that end in `suffixes`, held here so that one watch serves all who ask."""
        held = self._trees.get((repository.name, suffixes))
        if held is None or (held.root, held.packages) != (repository.root.resolve(), repository.packages):
            held = tree_at(repository.root, repository.packages, suffixes)
            self._trees[repository.name, suffixes] = held
        return held

    def repository(self, name: str) -> Repository:
        """The repository called `name`; raises `UnknownNameError` with the registered ones."""
        try:
            return self.repositories[name]
        except KeyError:
            raise UnknownNameError(
                "repository", name, sorted(self.repositories), next_step="Register it with --repo NAME=PATH."
            ) from None

    def select(self, repo: str | None) -> list[Repository]:
        """The repositories that a tool's `repo` argument means: the named one, or all."""
        return [self.repository(repo)] if repo else list(self.repositories.values())

    def source(self, repository: Repository) -> Source:
        """What results say of `repository`."""
        return Source(repository=repository.name, version=repository.version)

    def resolve_inside(self, path: str) -> tuple[Repository, Path]:
        """The repository and absolute path of `path`, as results print it or absolute.

        Symlinks and `..` that lead out of every repository are refused with `PathRefusedError`.
        """
        for repository in self.repositories.values():
            try:
                candidate = (repository.root / path).resolve()
                there = candidate.exists()
            except (OSError, ValueError, RuntimeError):  # a name that no file can have
                continue
            inside = candidate.is_relative_to(repository.root) and (
                not repository.packages
                or candidate.relative_to(repository.root).parts[:1] in [(p,) for p in repository.packages]
            )
            if inside and there:
                return repository, candidate
        raise PathRefusedError(
            f"{path!r} is not a file of any registered repository ({', '.join(sorted(self.repositories))}).",
            next_step="Give a path relative to a repository's root, or register its folder with --repo NAME=PATH.",
        )
