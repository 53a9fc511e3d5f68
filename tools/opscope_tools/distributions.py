"""What the metadata of a distribution says of a folder of source: its version and its console scripts, nothing imported.

An unpacked sdist has `PKG-INFO` at its top, an unpacked wheel or site-packages a `NAME-VERSION.dist-info` beside the package.
Where several could be meant, nothing is said.
"""

from __future__ import annotations

import re
import tomllib
from email.parser import HeaderParser
from importlib.metadata import Distribution
from pathlib import Path


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
    metadata = [*holder.glob("*.dist-info"), *holder.glob("*.egg-info")]
    named = [folder for folder in metadata if _plain(folder.name.partition("-")[0]) == _plain(package)]
    found = named or [folder for folder in metadata if _lists(folder, package)]
    return Distribution.at(found[0]) if len(found) == 1 else None


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
        with file.open(encoding="utf-8", errors="replace") as held:
            version = HeaderParser().parse(held).get("Version", "")
    except OSError:
        return ""
    return str(version).strip()
