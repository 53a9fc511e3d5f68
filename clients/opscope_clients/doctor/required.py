"""Checks of the two interpreters, the one that runs opscope and the one that traces (--python), and of what cages the latter."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Mapping

from opscope_schemas.errors import InputError
from opscope_tools.children import protection
from opscope_tools.running.session import interpreter

from opscope_clients.doctor.findings import Finding, asked

_OLDEST = (3, 11)
_PACKAGES = ("torch", "transformers", "pydantic")
#: prints an interpreter's version and those of its packages, without importing them
_ASK = """
import importlib.metadata as m, json, platform, sys
def version(name):
    try:
        return m.version(name)
    except m.PackageNotFoundError:
        return None
print(json.dumps([platform.python_version(), {name: version(name) for name in sys.argv[1:]}]))
"""


def interpreters(python: str | None) -> Iterator[Finding]:
    """The interpreter that runs this, and the one that traces."""
    fine = sys.version_info[:2] >= _OLDEST
    yield Finding(
        "interpreter", "python", "ok" if fine else "failed", f"{platform.python_version()} at {sys.executable}",
        "runs opscope", required=True, fix="" if fine else "Install opscope with Python 3.11 to 3.13.",
        facts={"version": platform.python_version(), "path": sys.executable},
    )  # fmt: skip
    yield tracing(python)
    yield cage()


def cage() -> Finding:
    """What the kernel keeps the process that traces from."""
    found = protection()
    kept = [
        *(["files outside its folder, signals and TCP (Landlock)"] if found.files else []),
        *(["network, other processes and new programs (seccomp)"] if found.calls else []),
    ]
    said = f"kept from {' and '.join(kept)}" if kept else "nothing is kept from it"
    return Finding(
        "interpreter", "cage", "ok" if found.complete else "missing", said, "confines the process that runs models' code",
        fix="" if found.complete else f"{'; '.join(found.missing)}. Until then trace only code that you would run yourself.",
        facts={"files": found.files, "calls": found.calls, "landlock": found.landlock_version},
    )  # fmt: skip


def tracing(python: str | None) -> Finding:
    """Whether models can be traced: an interpreter that answers, new enough, with torch, transformers and pydantic."""
    purpose = "traces models: FLOPs, bytes, data flow"
    named = python is not None
    try:
        path = interpreter(python) or sys.executable
    except InputError as error:
        return Finding("interpreter", "tracing", "failed", error.message, purpose, required=True, fix=error.next_step)
    text, failure = asked([path, "-c", _ASK, *_PACKAGES], seconds=60, environment={"PYTHONSAFEPATH": "1"})
    try:
        version, packages = json.loads(text.splitlines()[-1])
    except (ValueError, IndexError):
        said = f"{path}: {failure or 'it printed something else than was asked'}"
        return Finding(
            "interpreter", "tracing", "failed", said, purpose, required=True,
            fix="Give --python a Python interpreter that runs." if named else "Install opscope again.",
        )  # fmt: skip
    return _judged(path, version, packages, purpose)


def _judged(path: str, version: str, packages: Mapping[str, str | None], purpose: str) -> Finding:
    lacking = [name for name, found in packages.items() if found is None]
    old = tuple(map(int, version.split(".")[:2])) < _OLDEST
    held = ", ".join(f"{name} {found}" for name, found in packages.items() if found)
    said = f"Python {version} at {path}" + (f" with {held}" if held else "")
    fix = (
        "Name one with Python 3.11 or newer."
        if old
        else f"{path} -m pip install {' '.join(lacking)}"
        if lacking
        else ""
    )
    if lacking:
        said += f", without {', '.join(lacking)}"
    return Finding(
        "interpreter", "tracing", "failed" if fix else "ok", said, purpose, required=True, fix=fix,
        facts={"path": path, "version": version, "packages": dict(packages)},
    )  # fmt: skip
