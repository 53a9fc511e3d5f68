"""Kernels of other packages under tests/corpus/kernels_read, and the facts that were written down when each was read.

A line of a `.facts` file is a kind, the line of the source, a name, then words that must all be said of it; lists of
loads, stores, loops, shared arrays and launches are whole: what the tool lists beyond them is wrong as well.
`python tests/support/read_kernels.py [NAME]` prints what is missing and what is too much.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from opscope_cache.store import MemoryStore
from opscope_schemas.tiling import KernelTiling, MemoryOperation
from opscope_tools.kernels import Inventory, describe, scan, select
from opscope_tools.running.workspace import folder_repository

CORPUS = Path(__file__).parents[1] / "corpus/kernels_read"
FACTS = {path.stem: path for path in sorted(CORPUS.rglob("*.facts"))}
#: lists that are written down whole
_WHOLE = ("load", "store", "loop", "shared", "launch")
_QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}

Fact = tuple[str, str, str, frozenset[str]]


@cache
def _inventory(package: str) -> Inventory:
    return scan(folder_repository(package, CORPUS / package), MemoryStore(), **_QUIET)


def described(target: str, sizes: dict[str, int]) -> KernelTiling:
    return _described(target, tuple(sizes.items()))


@cache
def _described(target: str, sizes: tuple[tuple[str, int], ...]) -> KernelTiling:
    package, _, inner = target.partition("/")
    inventory = _inventory(package)
    repository = folder_repository(package, CORPUS / package)
    (kernel,) = describe(repository, inventory, select(inventory, inner), sizes=dict(sizes), **_QUIET)
    return kernel


def _plain(formula: str) -> str:
    return formula.replace(" ", "").replace("{", "").replace("}", "")


def _place(fact: Any) -> str:
    return f"{fact.file.rpartition('/')[2]}:{fact.line}" if fact.file else str(fact.line)


def _access(kind: str, m: MemoryOperation) -> Fact:
    words = {
        m.level,
        f"step={_plain(','.join(m.strides))}",
        f"coalesced={m.coalesced.partition(' ')[0].rstrip(':')}",
        f"loop={m.loop}",
    }
    words |= {f"shape={_plain(','.join(m.shape))}", f"width={m.width}"}
    name = (m.parameter or m.expression.partition("[")[0]).replace(" ", "_")
    return kind, _place(m), name, frozenset(words)


def facts(k: KernelTiling) -> Iterator[Fact]:
    for g in k.grid:
        words = {f"grid={_plain(','.join(g.dimensions))}", f"block={_plain(','.join(g.block))}"}
        yield (
            "launch",
            _place(g),
            "",
            frozenset(words | ({"grid=*"} if g.dimensions else set()) | ({"block=*"} if g.block else set())),
        )
    yield from (("index", _place(m), m.variable, frozenset()) for m in k.mapping)
    yield from (_access("load", m) for m in k.loads)
    yield from (_access("store", m) for m in k.stores)
    for s in k.shared_memory:
        yield "shared", _place(s), s.name, frozenset({f"bytes={s.bytes}", f"dims={_plain(','.join(s.dimensions))}"})
    for loop in k.loops:
        yield "loop", _place(loop), loop.variable, frozenset({f"trips={_plain(loop.trip_count)}"})
    yield from (("op", _place(i), i.operation, frozenset()) for i in k.instructions)
    if k.autotune is not None:
        words = {f"count={k.autotune.count}", f"key={','.join(k.autotune.key)}"}
        yield "autotune", _place(k.autotune), "", frozenset(words)
    yield from (("tile", "", t.name, frozenset(map(_plain, t.values))) for t in k.tile)
    yield "warps", "", "", frozenset(v.value for v in k.num_warps)


def _words(line: str) -> Fact:
    kind, *rest = line.split()
    place = "" if kind in {"tile", "warps"} else rest.pop(0)
    name = rest.pop(0) if kind in {"index", "load", "store", "shared", "loop", "op", "tile"} else ""
    return kind, place, name, frozenset(rest)


def _cost(target: str, line: str) -> list[str]:
    """What of a `cost SIZES : FIGURES` line is not so."""
    given, _, wanted = line.removeprefix("cost").partition(":")
    sizes = {name: int(value) for name, _, value in (part.rpartition("=") for part in given.split())}
    cost = described(target, sizes).cost
    figures = cost.evaluated if cost else {}
    names = {"read": "read_bytes", "write": "write_bytes"}
    pairs = [part.split("=") for part in wanted.split()]
    return [
        f"{line}: {name} is {found}"
        for name, value in pairs
        if (found := figures.get(names.get(name, name))) != int(value)
    ]


def wrong(name: str, line: str) -> list[str]:
    """What of one fact that is written down is not so."""
    target = FACTS[name].read_text().splitlines()[0].removeprefix("kernel ")
    if line.startswith("cost"):
        return _cost(target, line)
    kernel = described(target, {})
    if line.startswith("missing"):
        said = kernel.cost.not_counted if kernel.cost else ()
        return [] if any(line.removeprefix("missing ") in text for text in said) else [f"{line}: {said}"]
    words = _words(line)[3]
    here = _meant(kernel, line)
    return [] if any(words <= f[3] for f in here) else [f"{line}: {[' '.join(sorted(f[3])) for f in here]}"]


def _meant(kernel: KernelTiling, line: str) -> list[Fact]:
    """The facts of the kernel that a line speaks of."""
    kind, place, called, _ = _words(line)
    return [f for f in facts(kernel) if f[:2] == (kind, place) and called in (f[2], "*")]


def differences(name: str) -> list[str]:
    """Facts that are written down and not found, and those of a whole list that are found and not written down."""
    head, *lines = FACTS[name].read_text().splitlines()
    kernel = described(head.removeprefix("kernel "), {})
    found = [problem for line in lines for problem in wrong(name, line)]
    plain = [line for line in lines if not line.startswith(("cost", "missing"))]
    listed = {f[:3] for line in plain for f in _meant(kernel, line)}
    extra = dict.fromkeys(f[:3] for f in facts(kernel) if f[0] in _WHOLE and f[:3] not in listed)
    return found + [f"also found: {' '.join(f)}" for f in extra]


if __name__ == "__main__":
    for one in sys.argv[1:] or FACTS:
        sys.stdout.write("\n  ".join([one, *differences(one), ""]) + "\n")
