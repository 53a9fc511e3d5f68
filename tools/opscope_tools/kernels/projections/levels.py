"""How many elements one grid, block, warp, thread and matrix instruction works on, from the facts of a description.

What a Triton program or a TileLang block works on is in its source, how threads share it is the compiler's: counts stand for shapes there. In CUDA a
thread's share is in its accesses, a warp's is 32 of these or the shape of its matrix instruction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from math import prod

from opscope_schemas.resources import Resources
from opscope_schemas.tiling import KernelTiling, MemoryOperation, TileLevel, TileUnit

from opscope_tools.kernels.values.notation import product

_SHAPE = re.compile(r"(?<![A-Za-z0-9])m(\d+)n(\d+)k(\d+)(?![0-9])")
_MACHINE = re.compile(r"tensor-core product, (\d+)x(\d+)x(\d+)")
_WARP = 32
_COMPILERS = "which elements a warp and a thread hold is the compiler's choice; the count is the even share"


def levels(kernel: KernelTiling, element_bytes: Callable[[str], int | None]) -> tuple[TileLevel, ...]:
    """Every level that the description tells; `element_bytes`: of a declared type of CUDA."""
    if kernel.language == "cutlass":  # a tile of the result, of which a thread block has all or half
        return kernel.levels
    inner = _of_cuda(kernel, element_bytes) if kernel.language == "cuda" else _of_tiles(kernel)
    return tuple(dict.fromkeys((*_grid(kernel), *inner)))


def of_builds(resources: Resources) -> tuple[TileLevel, ...]:
    """The shapes of the matrix instructions that a compiler chose."""
    found = {}
    for build in resources.builds:
        if build.types and "mma_m" in build.options:
            made = _instruction(0, f"{build.arch}, compiled", [str(build.options[f"mma_{axis}"]) for axis in "mnk"])
            found[made.what, made.shape] = made
        for name in build.instructions:
            if shape := _MACHINE.fullmatch(name):
                made = _instruction(0, f"{build.arch}, compiled", shape.groups())
                found[made.what, made.shape] = made
    return tuple(found.values())


def _grid(kernel: KernelTiling) -> Iterator[TileLevel]:
    unit = "programs" if kernel.language in {"triton", "gluon"} else "thread blocks"
    first = {launch.dimensions: launch for launch in reversed(kernel.grid) if launch.dimensions}
    for launch in reversed(first.values()):
        yield _level("grid", launch.line, unit, launch.dimensions, launch.file)


def _of_tiles(kernel: KernelTiling) -> Iterator[TileLevel]:
    """Of languages that say what a block does and leave its threads to the compiler."""
    warps, threads = _threads(kernel)
    cut: dict[tuple[str, ...], list[MemoryOperation]] = {}
    for access in _moving(kernel):
        if access.shape:
            cut.setdefault(access.shape, []).append(access)
    for shape, accesses in cut.items():
        names = ", ".join(dict.fromkeys(a.parameter or a.expression for a in accesses))
        yield _level("block", accesses[0].line, names, shape, accesses[0].file)
    if kernel.language in {
        "cutile",
        "gluon",
    }:  # its threads are the compiler's, or those of layouts, which are not worked out
        return
    for shape, accesses in cut.items():
        names = ", ".join(dict.fromkeys(a.parameter or a.expression for a in accesses))
        shares: tuple[tuple[TileUnit, str], ...] = ("warp", warps), ("thread", threads)
        for level, parts in shares:
            yield TileLevel(
                level=level, line=accesses[0].line, file=accesses[0].file, what=names, basis="evaluated",
                elements=f"{product(list(shape))} / {parts}", assumptions=(_COMPILERS,),
            )  # fmt: skip


def _threads(kernel: KernelTiling) -> tuple[str, str]:
    """Warps and threads of a block."""
    if kernel.language in {"triton", "gluon"}:
        told = {v.value for v in kernel.num_warps}
        warps = told.pop() if len(told) == 1 else "num_warps"
        return warps, f"({warps} * {_WARP})"
    block = product(list(kernel.grid[0].block)) if kernel.grid else "threads"
    plain = block.isdigit() and int(block) % _WARP == 0
    return str(int(block) // _WARP) if plain else f"(({block}) / {_WARP})", block if block.isdigit() else f"({block})"


def _of_cuda(kernel: KernelTiling, element_bytes: Callable[[str], int | None]) -> Iterator[TileLevel]:
    types = {p.name: p.type for p in kernel.parameters}
    for array in kernel.shared_memory:
        if array.dimensions and not array.dynamic:
            yield _level("block", array.line, array.name, array.dimensions, array.file)
    threads = {" * ".join(g.block) for g in kernel.grid if g.block}
    block = threads.pop() if len(threads) == 1 else ""
    for access in _moving(kernel):
        size = element_bytes(types.get(access.parameter, ""))
        if access.width is None:  # of a type that is a template parameter: one of them, but for tiled copies
            each: int | None = 1 if access.parameter in types and not access.operation.startswith("copy(") else None
        else:
            each = access.width // size if size and access.width % size == 0 else None
        if each is None:
            continue
        yield _level("thread", access.line, access.parameter, (str(each),), access.file)
        if not access.strides or access.strides[0] in {"", "0"} or " == " in access.when:
            continue  # one element for all, or those of some threads alone
        yield _level("warp", access.line, access.parameter, (str(each * _WARP),), access.file)
        if block:
            total = str(each * int(block)) if block.isdigit() else f"{each} * {block}"
            yield _level("block", access.line, access.parameter, (total,), access.file)
    for one in kernel.instructions:
        for shape in dict.fromkeys(m.groups() for m in _SHAPE.finditer(f"{one.operation} {one.expression}")):
            yield _instruction(one.line, one.operation, shape, one.file)
    for line in kernel.cost.lines if kernel.cost is not None else ():
        if found := _SHAPE.search(line.operation):
            yield _instruction(line.line, line.operation.partition(" ")[0], found.groups(), line.file)


def _instruction(line: int, name: str, shape: Sequence[str], file: str = "") -> TileLevel:
    m, n, _ = map(int, shape)
    return TileLevel(
        level="instruction", line=line, file=file, what=name, shape=tuple(shape), elements=str(m * n), basis="evaluated"
    )


def _moving(kernel: KernelTiling) -> Iterator[MemoryOperation]:
    """Accesses to global memory, one for each tile that a parameter is cut into."""
    seen = set()
    for access in (*kernel.loads, *kernel.stores):
        key = access.parameter, access.shape, access.width
        if access.level == "global" and key not in seen:
            seen.add(key)
            yield access


def _level(level: TileUnit, line: int, what: str, shape: Sequence[str], file: str = "") -> TileLevel:
    total = product(list(shape)) if not all(s.isdigit() for s in shape) else str(prod(map(int, shape)))
    return TileLevel(
        level=level, line=line, file=file, what=what, shape=tuple(shape), elements=total, basis="evaluated"
    )


__all__ = ["levels", "of_builds"]
