"""Takes one guard after another away (table.py), in a copy of the tree, and says whether the tests that it names notice.

    python tests/mutants/run.py [--list] [WORD ...]     only guards whose name or file holds one of the words

Exit status 1 where a guard is gone and nothing notices, or where the text that a row replaces does not stand in its file once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from table import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
PACKAGES = ("server", "tools", "prompts", "schemas", "cache", "clients")
#: seconds that the tests of one row may take; a guard against work without end may need them
LONGEST = 900


def copied(folder: Path) -> Path:
    """The tree without what git ignores; the environment is the same one."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def passes(tree: Path, tests: Iterable[str]) -> bool | None:
    """Whether the tests pass over the copy; None where they do not run at all. Work that does not end is noticed too."""
    scratch = tree / "tmp"  # a guard of scratch folders may be gone: those of others must not suffer
    scratch.mkdir(exist_ok=True)
    paths = os.pathsep.join(str(tree / package) for package in PACKAGES)
    environment = {**os.environ, "PYTHONPATH": paths, "TMPDIR": str(scratch)}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        *tests,
    ]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return {0: True, 1: False}.get(done.returncode)


def standing(mutant: Mutant) -> int:
    """How often the text of a row stands in its file."""
    file = ROOT / mutant.file
    return file.read_text(encoding="utf-8").count(mutant.text) if file.is_file() else 0


def tried(tree: Path, mutant: Mutant) -> str:
    """`killed` or `survived`; `not run` where the tests cannot tell."""
    if standing(mutant) != 1:
        return "not found once"
    file = tree / mutant.file
    whole = file.read_text(encoding="utf-8")
    try:
        file.write_text(whole.replace(mutant.text, mutant.replacement), encoding="utf-8")
        there = [test for test in mutant.tests if (tree / test.partition("::")[0]).exists()]
        passed = passes(tree, there) if there else None
    finally:
        file.write_text(whole, encoding="utf-8")
    return {True: "survived", False: "killed", None: "not run"}[passed]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--list", action="store_true", help="print the guards and try none")
    parser.add_argument("words", nargs="*")
    given = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if not given.words or any(word in f"{m.guard} {m.file}" for word in given.words)]
    if given.list:
        sys.stdout.writelines(f"{mutant.guard} ({mutant.file})\n" for mutant in chosen)
        return 0
    with tempfile.TemporaryDirectory(prefix="opscope-mutants-") as folder:
        tree = copied(Path(folder))
        wanted = sorted(
            {test for mutant in chosen for test in mutant.tests if (tree / test.partition("::")[0]).exists()}
        )
        if not passes(tree, wanted):
            sys.stdout.write(
                "The tests fail with every guard in place, so they tell nothing: run them by themselves.\n"
            )
            return 1
        found = []
        for mutant in chosen:
            began = time.monotonic()
            found.append(tried(tree, mutant))
            sys.stdout.write(f"{found[-1]:14} {time.monotonic() - began:6.1f} s  {mutant.guard} ({mutant.file})\n")
            sys.stdout.flush()
    sys.stdout.write(f"{found.count('killed')} of {len(found)} guards are held by a test.\n")
    return int(any(said != "killed" for said in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
