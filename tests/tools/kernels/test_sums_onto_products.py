"""What adding to a matrix product costs: nothing where it is the product's own accumulation, 1 per element anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost
from opscope_tools.kernels import describe, scan, select

QUIET: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
#: a kernel by its language: P is a product of `a` and `b`, P(x) one that is handed the accumulator x
LANGUAGES = {
    "triton": (
        """
import triton
import triton.language as tl

@triton.jit
def k(A, B, C, T: tl.constexpr):
    at = tl.program_id(0) + tl.arange(0, T)[:, None] * T + tl.arange(0, T)[None, :]
    a, b, c, row = tl.load(A + at), tl.load(B + at), tl.load(C + at), tl.load(C + tl.arange(0, T))
    acc = tl.zeros([T, T], tl.float32)
    mask = tl.where(at < 5, 0.0, float("-inf"))
{body}
    tl.store(C + at, acc)
""",
        "tl.dot(a, b)",
        "tl.dot(a, b, ACC)",
    ),
    "cutile": (
        """
import cuda.tile as ct

@ct.kernel
def k(A, B, C, T: ct.Constant[int]):
    a, b = ct.load(A, index=(0, 0), shape=(T, T)), ct.load(B, index=(0, 0), shape=(T, T))
    c, row = ct.load(C, index=(0, 0), shape=(T, T)), ct.load(C, index=(0, 0), shape=(1, T))
    acc = ct.full((T, T), 0.0, dtype=ct.float32)
    mask = ct.where(ct.arange(T, dtype=ct.int32)[None, :] < 5, 0.0, -1e9)
{body}
    ct.store(C, index=(0, 0), tile=acc)
""",
        "(a @ b)",
        "ct.mma(a, b, ACC)",
    ),
    "gluon": (
        """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import mma_v2

@gluon.jit
def k(A, B, C, T: gl.constexpr, L: gl.constexpr):
    at = gl.program_id(0) + gl.arange(0, T, L)[:, None] * T + gl.arange(0, T, L)[None, :]
    a, b, c, row = gl.load(A + at), gl.load(B + at), gl.load(C + at), gl.load(C + gl.arange(0, T, L))
    acc = gl.zeros([T, T], gl.float32, L)
    mask = gl.where(at < 5, 0.0, float("-inf"))
{body}
    gl.store(C + at, acc)
""",
        "",
        "mma_v2(a, b, ACC)",
    ),
}
#: lines -> how many products, and how often every element is computed with beside them
FORMS = {
    "acc += P": (1, 0),
    "acc = acc + P": (1, 0),
    "acc = P + acc": (1, 0),
    "acc = P(acc)": (1, 0),
    "s = P; acc += s": (1, 0),
    "for _ in range(4): acc += P": (4, 0),
    "for _ in range(4): acc = P(acc)": (4, 0),
    "acc = acc * 2.0 + P": (1, 1),
    "acc = acc * 2.0; acc += P": (1, 1),
    "c += P; acc = c": (1, 0),
    "acc = P + P": (2, 0),
    "acc = P; acc += c": (1, 1),
    "acc = P; acc = acc + c": (1, 1),
    "acc = P + c": (1, 1),
    "acc = c + P": (1, 1),
    "acc = P; acc += row": (1, 1),
    "acc = P; acc += mask": (1, 1),
    "acc = P; acc += 1.0": (1, 1),
    "acc = P; acc = 1.0 + acc": (1, 1),
    "acc += P * 0.5": (1, 2),
    "acc -= P": (1, 1),
    "s = P; acc = s + s * c": (1, 2),
    "acc = P; acc = acc + acc * c": (1, 2),
    "acc = P(acc); acc += c": (1, 1),
    "acc = P(acc); acc += mask": (1, 1),
    "other = P(acc); acc += other": (1, 1),
    "for _ in range(3): acc = P(acc); acc += c": (3, 3),
    "for _ in range(3): acc += P; acc += 1.0": (3, 3),
}


def cost(folder: Path, language: str, form: str) -> Cost:
    text, product, onto = LANGUAGES[language]
    written = form.replace("P(acc)", onto.replace("ACC", "acc")).replace("P", product)
    (folder / "kernels.py").write_text(text.replace("{body}", f"    {written}"))
    own = Repository(name="own", root=folder, packages=())
    inventory = scan(own, MemoryStore(), **QUIET)
    (kernel,) = describe(own, inventory, select(inventory, "k"), sizes={"T": 16}, **QUIET)
    assert kernel.cost is not None
    return kernel.cost


#: every product of Gluon is handed its accumulator
CASES = [(n, f) for n, (_, alone, _) in LANGUAGES.items() for f in FORMS if alone or "P" not in f.replace("P(acc)", "")]


@pytest.mark.parametrize(("language", "form"), CASES)
def test_only_a_products_own_accumulation_is_part_of_it(tmp_path: Path, language: str, form: str) -> None:
    found = cost(tmp_path, language, form)
    products, elementwise = FORMS[form]
    assert found.not_counted == ()
    assert found.evaluated["matmul_flops"] == products * 2 * 16**3
    assert found.evaluated["flops"] - found.evaluated["matmul_flops"] == elementwise * 16**2
