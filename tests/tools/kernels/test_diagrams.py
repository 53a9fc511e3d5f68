"""Drawings and screens: everything in them is a fact of the description, and an SVG is well-formed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.tiling import KernelTiling
from opscope_tools.kernels import describe, scan
from opscope_tools.kernels.projections import drawing as diagrams
from opscope_tools.running.workspace import folder_repository

CORPUS = Path(__file__).parents[2] / "corpus" / "kernels"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def kernels() -> list[KernelTiling]:
    repository = folder_repository("corpus", CORPUS)
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(repository, MemoryStore(), **quiet)
    return describe(repository, inventory, inventory.kernels, **quiet)


def named(kernels: list[KernelTiling], name: str) -> KernelTiling:
    return next(k for k in kernels if k.name == name)


def test_a_drawing_shows_grid_tile_and_the_way_through_the_memories(kernels: list[KernelTiling]) -> None:
    lines = diagrams.ascii(named(kernels, "matmul_kernel")).splitlines()
    assert lines[0] == "matmul_kernel (triton) shop/ops/matmul.py:23"
    assert "####   program_id(0) -> pid" in lines
    assert "####   BLOCK_M = 32 | 64 | 128" in lines
    boxes = [line for line in lines if line.startswith("+-- ")]
    assert [box.split(" -")[0] for box in boxes] == [
        "+-- global memory, read", "+-- shared memory", "+-- registers, units", "+-- global memory, written",
    ]  # fmt: skip
    where = {
        text: lines.index(next(line for line in lines if text in line)) for text in ("| A [", "tl.dot (line", "| C [")
    }
    assert where["| A ["] < where["tl.dot (line"] < where["| C ["]


def test_a_grid_of_two_axes_is_drawn_with_both(kernels: list[KernelTiling]) -> None:
    drawn = diagrams.ascii(named(kernels, "sgemm_kernel"))
    assert "grid   cdiv({n}, 64) x cdiv({m}, 128)   one cell: one thread block" in drawn
    assert "axis 1: cdiv({m}, 128)" in drawn
    assert "| b_tile float[32][33]: 4224 bytes" in drawn
    assert drawn.count("####|") == 1


def test_every_kernel_is_drawn_as_well_formed_svg_with_the_same_words(kernels: list[KernelTiling]) -> None:
    for kernel in kernels:
        root = ElementTree.fromstring(diagrams.svg(kernel))
        assert root.tag == f"{SVG}svg"
        words = [element.text for element in root.iter(f"{SVG}text")]
        drawn = diagrams.picture(kernel)
        assert words[0] == drawn.title
        assert {*drawn.tile, *drawn.reads, *drawn.writes, *drawn.shared} <= set(words)
        width = float(root.attrib["width"])
        for element in root.iter(f"{SVG}text"):  # 7.4 pixels a character of the 12-pixel font
            assert float(element.attrib["x"]) + 7.2 * len(element.text or "") <= width


def test_a_screen_fits_one_and_says_what_was_asked(kernels: list[KernelTiling]) -> None:
    for kernel in kernels:
        lines = diagrams.screen(kernel).splitlines()
        assert len(lines) <= 60
        assert max(map(len, lines)) <= 180
    shown = diagrams.screen(named(kernels, "matmul_kernel"))
    assert "warps        2 | 4 | 8" in shown
    assert "autotune     5 configurations, key M, N, K" in shown
    assert "requires     BLOCK_K % 16 == 0 | a.shape[1] == b.shape[0]" in shown
