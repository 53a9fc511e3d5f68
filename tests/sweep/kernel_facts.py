"""Every fact of every kernel of the wheels of tests/kernel-sources.txt, one JSON line a kernel: `diff` two of them.

`python tests/sweep/kernel_facts.py PACKAGE ... > facts.jsonl`; `--lines` prints one fact a line instead, and how many
kernels name other lines in their lists than in their cost goes to the end of both, on the error stream.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from access_lines import unlike
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan


def described(package: str, root: Path) -> Iterator[KernelTiling]:
    """The kernels of a package, one description after another."""
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    repository = Repository(name=package, root=root, packages=())
    inventory = scan(repository, MemoryStore(), **quiet)
    yield from describe(repository, inventory, inventory.kernels, **quiet)


def facts(kernel: KernelTiling) -> Iterator[str]:
    """One line a fact, named by its kernel and field."""
    for name, value in kernel.model_dump(mode="json", exclude_defaults=True).items():
        for item in value if isinstance(value, list) else [value]:
            yield f"{kernel.id} {name} {json.dumps(item, sort_keys=True)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*")
    parser.add_argument("--lines", action="store_true")
    options = parser.parse_args()
    for package, root in kernel_sources().items():
        if options.packages and package not in options.packages:
            continue
        kernels = list(described(package, root))
        for kernel in kernels:
            dumped = json.dumps(kernel.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
            sys.stdout.write("\n".join(facts(kernel) if options.lines else [dumped]) + "\n")
        compared = [k for k in kernels if k.cost is not None]
        differ = sum(unlike(k) != set() for k in compared)
        sys.stderr.write(f"{package}: lists and cost name other lines in {differ} of {len(compared)} kernels\n")


if __name__ == "__main__":
    main()
