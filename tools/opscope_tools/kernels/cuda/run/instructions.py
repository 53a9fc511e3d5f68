"""Instructions that decide how a tile is computed, by the names of the calls, types and assembly that stand for them."""

from __future__ import annotations

import re

_NAMED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("TMA copy", r"cp\.async\.bulk|\bSM90_TMA\w*|\btma_(?:load|store)\w*|\bcp_async_bulk\w*"),
        (
            "cp.async",
            r"cp\.async(?!\.bulk)|\bcp_async(?!_bulk)\w*|__pipeline_memcpy_async|\bSM80_CP_ASYNC\w*|cuda::memcpy_async",
        ),
        ("ldmatrix", r"\bldmatrix\b|\bldsm\w*|\bSM75_U\w*_LDSM\w*"),
        ("stmatrix", r"\bstmatrix\b|\bSM90_U\w*_STSM\w*"),
        ("wgmma", r"\bwgmma\b|\bwarpgroup_\w+|\bSM90_\w*GMMA\w*"),
        ("tcgen05", r"\btcgen05\b"),
        ("mma.sync", r"\bmma\.sync\b|\bmma_sync_\w+|\bSM80_\d+x\d+x\d+\w*"),
        ("wmma", r"\bwmma::(?:mma_sync|load_matrix_sync|store_matrix_sync)\b"),
        ("cute::gemm", r"\b(?:cute::gemm|FLASH_NAMESPACE::gemm\w*|flash::gemm\w*|gemm(?:_rs|_smem)?)\s*+[<(]"),
        ("cute::copy", r"\b(?:cute::copy|FLASH_NAMESPACE::copy\w*|flash::copy\w*)\s*+[<(]"),
        ("atomic", r"\batomic[A-Z]\w*\s*+\("),
        ("warp shuffle", r"\b__shfl\w*\s*+\("),
        ("barrier", r"\b__syncthreads\w*\s*+\(|\b__syncwarp\s*+\("),
        ("dot product", r"\b__dp4a\s*+\("),
    )
)


def instructions_named(text: str) -> list[str]:
    """The instructions that a call (with its `(`), a type or the text of an `asm` stands for."""
    return [name for name, pattern in _NAMED if pattern.search(text)]


__all__ = ["instructions_named"]
