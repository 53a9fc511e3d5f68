"""The screen of kernels: a line for each of several, the drawing and key figures of one."""

from __future__ import annotations

from opscope_schemas.errors import InputError
from opscope_schemas.tiling import KernelTiling, TilingResult

from opscope_clients.screens.fields import show_fields
from opscope_clients.screens.page import Page, number, place


def show_kernels(page: Page, result: TilingResult) -> None:
    """Raises `InputError` where one SVG of several kernels was asked for."""
    drawn = [kernel for kernel in result.kernels if kernel.diagram]
    if len(drawn) > 1 and drawn[0].diagram.startswith("<svg"):
        ids = ", ".join(kernel.id for kernel in drawn)
        raise InputError(
            f"{len(drawn)} kernels are named, and an SVG is of one: {ids}.", next_step="Give one by path::name."
        )
    several = result.total > 1
    if several:
        page.say(f"{result.total:,} kernels; name one as path::name for its drawing and figures", "bold")
        page.table(
            "kernels",
            ["kernel", "language", "tiles", "tile", "FLOPs of a tile", place()],
            ([k.name, k.language, k.num_tiles or " x ".join(_grid(k)), _tile(k), k.cost.flops if k.cost else "", f"{k.file}:{k.line}"] for k in result.kernels),
            total=result.total,
        )  # fmt: skip
    for kernel in result.kernels:
        if page.whole or not several:
            page.drawing(kernel.diagram or kernel.screen)
            if kernel.parameters and not kernel.diagram:
                show_fields(page, kernel.model_copy(update={"screen": ""}))
    page.table(
        "forms", ["not analysed", number("kernels")], ([form, f"{count:,}"] for form, count in result.not_analysed_counts.items())
    )  # fmt: skip


def _grid(kernel: KernelTiling) -> tuple[str, ...]:
    return kernel.grid[0].dimensions if kernel.grid else ()


def _tile(kernel: KernelTiling) -> str:
    return ", ".join(f"{size.name} {' or '.join(size.values)}".strip() for size in kernel.tile)


__all__ = ["show_kernels"]
