"""How many blocks of a kernel fit on a multiprocessor, and what stops the next one, per NVIDIA architecture.

`LIMITS` holds what an architecture grants, from CCCL's `cuda/__device/arch_traits.h` (nvidia-cuda-cccl 13.3.5, Apache-2.0
WITH LLVM-exception). The rules of allocation (warps in fours, registers per warp in 256, shared memory in 128 bytes, or
256 before compute capability 8) are those of the CUDA occupancy calculator. Not covered: clusters, tensor memory, and
kernels that move registers between warps (`setmaxnreg`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from opscope_schemas.errors import InputError
from opscope_schemas.resources import Occupancy

WARP = 32
#: warps are placed on the four partitions of a multiprocessor
_PARTITIONS = 4
_REGISTERS_PER_SM = _REGISTERS_PER_BLOCK = 64 * 1024
_REGISTERS_PER_THREAD = 255
_REGISTER_UNIT = 256
_THREADS_PER_BLOCK = 1024
#: of one block along z, and of a grid along x, y and z (CUDA C++ Programming Guide, compute capabilities)
_DEEPEST_BLOCK = 64
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
#: what declarations of fixed size may take together; more has to be asked for at the launch
_STATIC_SHARED = 48 * 1024
SOURCE = "nvidia-cuda-cccl 13.3.5, cuda/__device/arch_traits.h"


@dataclass(frozen=True)
class Limits:
    """What one multiprocessor and one block may hold; bytes of shared memory."""

    threads: int
    blocks: int
    shared: int
    #: what the driver keeps of each block's shared memory
    reserved: int
    shared_unit: int
    #: barriers of a multiprocessor per block that it can hold; 0: they never limit
    barriers: int

    @property
    def shared_per_block(self) -> int:
        """What a block may ask for, having opted in."""
        return self.shared - self.reserved


def _limits(threads: int, blocks: int, kib: int, major: int) -> Limits:
    barriers = 0 if major < 9 else 2 if major < 11 else 1
    return Limits(threads, blocks, kib * 1024, 1024 if major >= 8 else 0, 128 if major >= 8 else 256, barriers)


LIMITS: dict[str, Limits] = {
    "sm_75": _limits(1024, 16, 64, 7),
    "sm_80": _limits(2048, 32, 164, 8),
    "sm_86": _limits(1536, 16, 100, 8),
    "sm_87": _limits(1536, 16, 164, 8),
    "sm_88": _limits(1536, 16, 100, 8),
    "sm_89": _limits(1536, 24, 100, 8),
    "sm_90": _limits(2048, 32, 228, 9),
    "sm_100": _limits(2048, 32, 228, 10),
    "sm_103": _limits(2048, 32, 228, 10),
    "sm_110": _limits(1536, 24, 228, 11),
    "sm_120": _limits(1536, 24, 100, 12),
    "sm_121": _limits(1536, 24, 100, 12),
}


def limits_of(arch: str) -> Limits:
    """The limits of `sm_90`, also spelt `sm_90a`; raises `InputError` where none are known."""
    name = arch.rstrip("af")
    if name not in LIMITS:
        raise InputError(
            f"No limits of {arch} are known, so no occupancy.", next_step=f"Give one of {', '.join(LIMITS)}."
        )
    return LIMITS[name]


def occupancy(
    arch: str, threads: int, registers: int | None, static: int, dynamic: int = 0, barriers: int = 1
) -> Occupancy:
    """Blocks and warps that are resident at once; with `registers` None, as if they set no limit.

    `threads` per block, `registers` per thread, `static` and `dynamic` bytes of shared memory per block.
    """
    limits = limits_of(arch)
    warps = -(-threads // WARP)
    shared = static + dynamic
    refused = _refusal(limits, threads, warps, registers, static, shared)
    bounds = {"warps": limits.threads // WARP // warps, "blocks": limits.blocks}
    if registers:
        bounds["registers"] = _REGISTERS_PER_SM // _PARTITIONS // _per_warp(registers) * _PARTITIONS // warps
    allocated = -(-(shared + limits.reserved) // limits.shared_unit) * limits.shared_unit
    if allocated:
        bounds["shared memory"] = limits.shared // allocated
    if limits.barriers and barriers:
        bounds["barriers"] = limits.blocks * limits.barriers // barriers
    blocks = 0 if refused else min(bounds.values())
    return Occupancy(
        arch=arch, threads=threads, registers=registers, shared_bytes=shared, blocks=blocks, warps=blocks * warps,
        most_warps=limits.threads // WARP, percent=round(100 * blocks * warps * WARP / limits.threads, 1),
        limited_by=() if refused else tuple(name for name, bound in bounds.items() if bound == blocks),
        fits=not refused, breaks=refused,
    )  # fmt: skip


def _per_warp(registers: int) -> int:
    """Registers that are allocated to a warp."""
    return -(-registers * WARP // _REGISTER_UNIT) * _REGISTER_UNIT


def _refusal(limits: Limits, threads: int, warps: int, registers: int | None, static: int, shared: int) -> str:
    """Why not even one block runs; empty where one does."""
    if threads < 1 or threads > _THREADS_PER_BLOCK:
        return f"threads: {threads} per block, at most {_THREADS_PER_BLOCK}"
    if static > _STATIC_SHARED:
        return f"static shared memory: {static} bytes, at most {_STATIC_SHARED}"
    if shared > limits.shared_per_block:
        return f"shared memory: {shared} bytes, at most {limits.shared_per_block}"
    if registers:
        if registers > _REGISTERS_PER_THREAD:
            return f"registers: {registers} per thread, at most {_REGISTERS_PER_THREAD}"
        held = _per_warp(registers) * -(-warps // _PARTITIONS) * _PARTITIONS
        if held > _REGISTERS_PER_BLOCK:
            return f"registers: {held} per block, at most {_REGISTERS_PER_BLOCK}"
    return ""


def refused(block: Sequence[int], grid: Sequence[int | None], bound: int | None) -> str:
    """Why CUDA refuses a launch on every architecture; empty where it does not.

    `block`: threads along each axis; `grid`: blocks along each axis, None where that is no constant; `bound`: the threads
    that `__launch_bounds__` promises at most.
    """
    threads = math.prod(block)
    if threads > _THREADS_PER_BLOCK:
        return f"threads: {threads} per block, at most {_THREADS_PER_BLOCK}"
    if len(block) > 2 and block[2] > _DEEPEST_BLOCK:
        return f"blockDim.z: {block[2]}, at most {_DEEPEST_BLOCK}"
    if bound is not None and threads > bound:
        return f"threads: {threads} per block, at most {bound} by __launch_bounds__"
    for axis, blocks, most in zip("xyz", grid, _LARGEST_GRID, strict=False):
        if blocks is not None and blocks > most:
            return f"gridDim.{axis}: {blocks}, at most {most}"
    if 0 in (*block, *grid):
        return "an empty grid or block"
    return ""


def by_registers(arch: str, threads: int, static: int, dynamic: int = 0) -> list[Occupancy]:
    """Occupancy as a function of the registers per thread: one entry per step, at the most registers of the step."""
    found: list[Occupancy] = []
    for registers in (*range(8, 256, 8), _REGISTERS_PER_THREAD):
        here = occupancy(arch, threads, registers, static, dynamic)
        if found and found[-1].blocks == here.blocks:
            found.pop()
        found.append(here)
    return found
