"""A product of matrices in Triton, compiled without a GPU: `python matmul_triton.py ARCHITECTURE OUT` writes OUT.ptx and OUT.cubin.

ARCHITECTURE is a compute capability without its point: 80, 90, 100. The tile is 64 x 64 x 32, by four warps; its shape is the same
for each architecture, so what differs is what the compiler makes of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, K, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """c[M, N] = a[M, K] @ b[K, N]; sizes are multiples of the tile."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    left = a + rows[:, None] * K + inner[None, :]
    right = b + inner[:, None] * N + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BLOCK_K
        right += BLOCK_K * N
    tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))


def main() -> None:
    """Compile for the architecture that is asked for, and write what came of it."""
    architecture, out = int(sys.argv[1]), sys.argv[2]
    signature = {"a": "*fp16", "b": "*fp16", "c": "*fp16", "K": "i32", "N": "i32"}
    sizes = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
    # pointers and sizes that are multiples of 16, as a launcher would find them
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(5)}
    source = ASTSource(matmul, {**signature, **dict.fromkeys(sizes, "constexpr")}, sizes, aligned)
    made = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={"num_warps": 4, "num_stages": 3})
    Path(f"{out}.ptx").write_text(made.asm["ptx"])
    Path(f"{out}.cubin").write_bytes(made.asm["cubin"])
    print(
        f"sm_{architecture}: {made.metadata.shared} bytes of shared memory, {made.metadata.num_warps} warps, {made.metadata.num_stages} stages"
    )


if __name__ == "__main__":
    main()
