"""What the metadata of a distribution says of a folder of source: its version and its console scripts, nothing imported.

An unpacked sdist has `PKG-INFO` at its top, an unpacked wheel or site-packages a `NAME-VERSION.dist-info` beside the package.
Where several could be meant, nothing is said.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path

from opscope_schemas.repo_map import DistributionFact, Place


def version_of_tree(folder: Path) -> str:
    """The version of the sdist, wheel or project unpacked at `folder`; empty where its metadata says none."""
    if version := _header(folder / "PKG-INFO"):
        return version
    found = [*folder.glob("*.dist-info/METADATA")]
    if len(found) == 1:
        return _header(found[0])
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(errors="replace")).get("project", {})
    except (OSError, tomllib.TOMLDecodeError):
        return ""
    version = project.get("version", "") if isinstance(project, dict) else ""
    return version if isinstance(version, str) else ""


def version_of_package(package: Path) -> str:
    """The version of a package's folder: of the metadata beside it, else as its source or the sdist that holds it spells it."""
    held = distribution_of(package.parent, package.name)
    if held is not None and "Version" in held.metadata:
        return held.version
    text = (package / "__init__.py").read_text(errors="replace")
    found = re.search(r"""^__version__\s*=\s*["']([^"']+)["']""", text, re.MULTILINE)
    if found:
        return found.group(1)
    return next((v for v in (_header(package.parent / "PKG-INFO"), _header(package.parents[1] / "PKG-INFO")) if v), "")


def console_scripts_of(holder: Path, package: str) -> dict[str, str]:
    """Console scripts that the metadata beside the folder `package` declares: name -> `module:function`."""
    held = distribution_of(holder, package)
    return {e.name: e.value for e in held.entry_points if e.group == "console_scripts"} if held is not None else {}


def distribution_of(holder: Path, package: str) -> Distribution | None:
    """The one distribution in `holder` that the top-level `package` came with: of its name, else one that lists it."""
    found = _named(holder, package) or [folder for folder in _beside(holder) if _lists(folder, package)]
    return Distribution.at(found[0]) if len(found) == 1 else None


def _beside(holder: Path) -> list[Path]:
    return [*holder.glob("*.dist-info"), *holder.glob("*.egg-info")]


def _named(holder: Path, package: str) -> list[Path]:
    """The folders of metadata in `holder` that bear the package's name."""
    return [folder for folder in _beside(holder) if _plain(folder.name.partition("-")[0]) == _plain(package)]


def described(root: Path, packages: Sequence[str] = ()) -> DistributionFact | None:
    """What the metadata of a repository says of it: that of a wheel, of an sdist, or the project that it declares."""
    file = _metadata_file(root, packages)
    if file is not None:
        return _of_headers(file.read_text(encoding="utf-8", errors="replace"), file.relative_to(root).as_posix())
    try:
        text = (root / "pyproject.toml").read_text(errors="replace")
        project = tomllib.loads(text).get("project")
    except (OSError, tomllib.TOMLDecodeError):
        return None
    return _of_project(text, project) if isinstance(project, dict) and not packages else None


def _metadata_file(root: Path, packages: Sequence[str]) -> Path | None:
    if packages:
        named = _named(root, packages[0])
        found = [f / name for f in named for name in ("METADATA", "PKG-INFO") if (f / name).is_file()]
    else:
        found = [root / "PKG-INFO"] if (root / "PKG-INFO").is_file() else [*root.glob("*.dist-info/METADATA")]
    return found[0] if len(found) == 1 else None


def _of_headers(text: str, path: str) -> DistributionFact | None:
    held = _headers(text)
    if "Name" not in held:
        return None
    (name, first), *_ = held["Name"]
    requires = [
        Place(name=_requirement(value), at=f"{path}:{number}", text=value)
        for value, number in held.get("Requires-Dist", [])
    ]
    summary = next(
        (
            Place(name="Summary", at=f"{path}:{n}", text=value)
            for value, n in held.get("Summary", [])
            if value != "UNKNOWN"
        ),
        None,
    )
    return DistributionFact(
        name=name, version=held.get("Version", [("", 0)])[0][0], at=f"{path}:{first}", summary=summary,
        requires=tuple(sorted(requires, key=lambda place: "extra ==" in place.text)),
    )  # fmt: skip


def _of_project(text: str, project: Mapping[str, object]) -> DistributionFact | None:
    def spelt(key: str) -> tuple[str, str]:
        value, lines = project.get(key), text.splitlines()
        place = next((n for n, line in enumerate(lines, 1) if re.match(rf"\s*{key}\s*=", line)), 0)
        return (value, f"pyproject.toml:{place}") if isinstance(value, str) and place else ("", "")

    (name, at), (version, _), (says, where) = spelt("name"), spelt("version"), spelt("description")
    if not name:
        return None
    wanted = project.get("dependencies")
    lines = text.splitlines()
    requires = [
        Place(name=_requirement(one), at=f"pyproject.toml:{number}", text=one)
        for one in (wanted if isinstance(wanted, list) else []) if isinstance(one, str)
        for number in [next((n for n, text in enumerate(lines, 1) if one in text), 0)] if number
    ]  # fmt: skip
    summary = Place(name="description", at=where, text=says) if says else None
    return DistributionFact(name=name, version=version, at=at, summary=summary, requires=tuple(requires))


def _requirement(text: str) -> str:
    found = re.match(r"[A-Za-z0-9][\w.-]*", text)
    return found[0] if found else text


def _plain(name: str) -> str:
    """A name as indexes compare it, without the ending of an egg-info that bears no version."""
    return re.sub(r"[-_.]+", "-", name.removesuffix(".egg-info").removesuffix(".dist-info")).lower()


def _lists(folder: Path, package: str) -> bool:
    """Whether the metadata names the package among what it installed."""
    for name, named in (("top_level.txt", re.escape(package) + "$"), ("RECORD", re.escape(package) + "/")):
        try:
            if re.search(rf"^{named}", (folder / name).read_text(errors="replace"), re.MULTILINE):
                return True
        except OSError:
            continue
    return False


def _header(file: Path) -> str:
    """`Version` of the headers of a metadata file; empty where there is none."""
    try:
        held = _headers(file.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return ""
    return held.get("Version", [("", 0)])[0][0]


def _headers(text: str) -> dict[str, list[tuple[str, int]]]:
    """Values and lines by header; they end at the first empty line, and what is indented goes on with the one before."""
    held: dict[str, list[tuple[str, int]]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line:  # one of blanks goes on with the header before
            break
        key, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            held.setdefault(key, []).append((value.strip(), number))
    return held
