"""Fuzzes for a time: `python tests/fuzz/fuzz.py --seconds 1200 [TARGET ...]`, the time split over the targets.

Each target runs in a process of its own, which is killed where it does not come back. What fails is cut down and written to
tests/corpus/fuzz/, where test_found_cases.py runs it from then on. Exit status 1 where something was found.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOUND = ROOT / "tests" / "corpus" / "fuzz"
for _folder in ("tests/fuzz", "tests/support", "tests/tools/report"):
    sys.path.insert(0, str(ROOT / _folder))

#: inputs between two looks at the clock, and seconds after the end that a process may go on
_BATCH, _GRACE = 60, 120


def fuzzed(target: str, seconds: float) -> int:
    """Run one target here; 1 where something was found."""
    from hypothesis import HealthCheck, Verbosity, given, seed, settings
    from targets import TARGETS, held

    warnings.simplefilter("error")
    faulthandler.enable()
    current = Path(os.environ["OPSCOPE_FUZZ_CURRENT"])
    last = ""

    def property_of(text: str) -> None:
        nonlocal last
        last = text
        current.write_bytes(text.encode("utf-8", "surrogatepass"))
        held(target, text)

    ran, found, until = 0, 0, time.monotonic() + seconds
    seen: set[str] = set()
    while time.monotonic() < until:
        chosen = settings(
            max_examples=_BATCH,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        try:
            seed(random.getrandbits(64))(chosen(given(TARGETS[target][0])(property_of)))()
        except Exception as error:
            where = [
                f"{Path(f.filename).name}:{f.name}"
                for f in traceback.extract_tb(error.__traceback__)
                if "opscope" in f.filename
            ]
            kind = f"{type(error).__name__} in {where[-1] if where else '?'}"
            if kind not in seen:
                seen.add(kind)
                found += 1
                kept = _kept(target, last)
                sys.stdout.write(
                    f"{target}: {kind}, kept as {kept}\n{''.join(traceback.format_exception(error)[-12:])}\n"
                )
                sys.stdout.flush()
        ran += _BATCH
    sys.stdout.write(f"{target}: about {ran} inputs, {found} found\n")
    return int(bool(found))


def _kept(target: str, text: str) -> str:
    data = text.encode("utf-8", "surrogatepass")
    file = FOUND / f"{target}.{hashlib.sha256(data).hexdigest()[:10]}.txt"
    file.write_bytes(data)
    return file.relative_to(ROOT).as_posix()


def main(arguments: Sequence[str]) -> int:
    from targets import TARGETS

    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--here", action="store_true", help="run the one target in this process")
    parser.add_argument("targets", nargs="*", default=list(TARGETS))
    given = parser.parse_args(arguments)
    if given.here:
        return fuzzed(given.targets[0], given.seconds)
    found = 0
    for target in given.targets:
        share = given.seconds / len(given.targets)
        current = Path(tempfile.gettempdir()) / f"opscope-fuzz-{os.getpid()}-{target}"
        command = [sys.executable, __file__, "--here", "--seconds", str(share), target]
        try:
            done = subprocess.run(
                command, env={**os.environ, "OPSCOPE_FUZZ_CURRENT": str(current)}, timeout=share + _GRACE, check=False
            )
            if done.returncode < 0:
                sys.stdout.write(
                    f"{target}: ended by signal {-done.returncode}, kept as {_kept(target, _read(current))}\n"
                )
            found |= done.returncode != 0
        except subprocess.TimeoutExpired:
            sys.stdout.write(f"{target}: did not come back, kept as {_kept(target, _read(current))}\n")
            found = 1
        current.unlink(missing_ok=True)
    return int(found)


def _read(file: Path) -> str:
    return file.read_bytes().decode("utf-8", "surrogatepass")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
