"""How long kernels take: the inventory of CUDA sources beside universal-ctags, and one Triton kernel compiled and
disassembled beside the bare compiler.

Figures are medians of rounds that alternate what they compare. Argument: a folder of CUDA sources (vLLM's csrc is what the
target speaks of); without it the CUDA headers of the installed torch.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.kernels import compiled, describe, launches_of, parse_arch, scan, select
from opscope_tools.source.files import CUDA

ROUNDS = 5
INVENTORY, BUILD = 3.0, 1.5
_KERNEL = """import triton
import triton.language as tl

@triton.jit
def matmul(A, B, C, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a, b = A + m[:, None] * sam + k[None, :], B + k[:, None] * sbk + n[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK)):
        acc = tl.dot(tl.load(a), tl.load(b), acc)
        a += BK
        b += BK * sbk
    tl.store(C + m[:, None] * scm + n[None, :], acc.to(C.dtype.element_ty))
"""
#: the same compilation as somebody would write it
_BARE = """import sys, importlib.util
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import triton
spec = importlib.util.spec_from_file_location("k", sys.argv[1]); m = importlib.util.module_from_spec(spec); spec.loader.exec_module(m)
names = m.matmul.arg_names
signature = {n: "*bf16" if n in "ABC" else "constexpr" if n.startswith("B") and len(n) == 2 else "i32" for n in names}
attrs = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n] != "constexpr"}
constants = {"BM": int(sys.argv[2]), "BN": 128, "BK": 64}
made = triton.compile(ASTSource(m.matmul, signature, constants, attrs), target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
print(made.metadata.shared)
"""


def seconds(action: Callable[[], object]) -> float:
    begun = time.perf_counter()
    action()
    return time.perf_counter() - begun


def quiet(*_: object) -> None:
    pass


def sources() -> Repository:
    """The folder that was asked for, else torch's own CUDA headers."""
    if sys.argv[1:]:
        return Repository(name="sources", root=Path(sys.argv[1]).resolve(), packages=())
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin
    return Repository(name="sources", root=Path(spec.origin).parent / "include/ATen", packages=())


def inventory() -> None:
    repository = sources()
    files = [p for p in repository.root.rglob("*") if p.is_file() and p.name.endswith(CUDA)]
    size, listed, ctags = sum(p.stat().st_size for p in files), "\n".join(map(str, files)), shutil.which("ctags")

    def read(store: MemoryStore) -> None:
        scan(repository, store, checkpoint=quiet, progress=quiet)

    def tag() -> None:
        command = [str(ctags), "--language-force=CUDA", "--fields=+n", "-f", "-", "-L", "-"]
        subprocess.run(command, input=listed, capture_output=True, text=True, check=True)

    cold, warm, theirs = [], [], []
    for _ in range(ROUNDS):
        store = MemoryStore()
        cold.append(seconds(partial(read, store)))
        warm.append(seconds(partial(read, store)))
        if ctags:
            theirs.append(seconds(tag))
    found = scan(repository, MemoryStore(), checkpoint=quiet, progress=quiet)
    print(
        f"{len(files)} CUDA files, {size / 1e6:.1f} MB, {len(found.kernels)} kernels and device functions in {repository.root}"
    )
    print(f"inventory cold   {statistics.median(cold):8.3f} s")
    print(f"inventory warm   {statistics.median(warm) * 1000:8.1f} ms")
    if theirs:
        ratio = statistics.median(cold) / statistics.median(theirs)
        print(
            f"ctags            {statistics.median(theirs):8.3f} s    ratio {ratio:.2f}   (target: at most {INVENTORY})"
        )
    else:
        print("universal-ctags is not on PATH: nothing to compare with (apt-get install universal-ctags)")


def build() -> None:
    if importlib.util.find_spec("triton") is None:
        print("triton is not installed: no compilation to measure")
        return
    ours, theirs = [], []
    widths = itertools.cycle((64, 128))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "k.py").write_text(_KERNEL)
        (folder / "bare.py").write_text(_BARE)
        repository = Repository(name="one", root=folder, packages=())
        found = scan(repository, MemoryStore(), checkpoint=quiet, progress=quiet)
        (reference,) = select(found, "matmul")
        archs = [arch for arch in (parse_arch("sm_90"),) if arch is not None]
        shared = []
        for number, width in zip(range(ROUNDS), widths, strict=False):
            given = {"BM": width, "BN": 128, "BK": 64, "num_warps": 8}

            def tool(given: dict[str, int] = given) -> None:
                (kernel,) = describe(repository, found, [reference], checkpoint=quiet, progress=quiet)
                made = compiled(
                    repository, reference, kernel, launches_of(found, reference), archs, given, "", MemoryStore(),
                    checkpoint=quiet, progress=quiet,
                )  # fmt: skip
                assert made.builds[0].registers, made.statement
                shared.append(made.builds[0].shared_bytes)

            def bare(number: int = number, width: int = width) -> None:
                done = subprocess.run(
                    [sys.executable, "-s", "bare.py", "k.py", str(width)], cwd=folder, check=True, capture_output=True,
                    text=True, env={**os.environ, "TRITON_CACHE_DIR": str(folder / f"cache{number}")},
                )  # fmt: skip
                assert json.loads(done.stdout) == shared[-1]

            ours.append(seconds(tool))
            theirs.append(seconds(bare))
    ratio = statistics.median(ours) / statistics.median(theirs)
    print(f"one Triton kernel compiled and disassembled   {statistics.median(ours):6.2f} s")
    print(
        f"the bare compiler in a process                {statistics.median(theirs):6.2f} s    ratio {ratio:.2f}   (target: at most {BUILD})"
    )


if __name__ == "__main__":
    inventory()
    build()
