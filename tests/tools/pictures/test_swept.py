"""A sweep as curves: every point that is known, on the line of what else says it; what cannot be drawn is refused or told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from opscope_clients.screens import tables
from opscope_schemas.errors import InputError
from opscope_schemas.tables import Cell, TableResult
from opscope_tools.pictures import swept

COLUMNS = ("target", "batch_size", "hardware", "flops", "bound_seconds", "fits")


def table(*rows: tuple[Cell, ...]) -> TableResult:
    return TableResult(columns=COLUMNS, rows=rows, count=len(rows), varied=3)


def row(batch: int, device: str, seconds: float | None) -> tuple[Cell, ...]:
    return ("llama", batch, device, batch * 10**9, seconds, seconds is not None)


ROWS = [row(batch, device, batch * slow) for batch in (1, 4, 64) for device, slow in (("a100", 0.2), ("h100", 0.1))]


def markers(svg: str) -> int:
    """Points that were drawn: each is a use of a line's mark."""
    lines = re.findall(r'<g id="line2d_\d+">(.*?)</g>\s*</g>', svg, re.DOTALL)
    return sum(part.count("<use") for part in lines if "clip-path" in part or part.count("<use") > 1)


def test_every_known_point_is_a_mark_and_the_bytes_are_the_same_each_time() -> None:
    picture = swept(table(*ROWS))
    assert picture == swept(table(*ROWS))
    less = swept(table(*ROWS[:-1], row(64, "h100", None)))
    assert markers(picture.decode()) - markers(less.decode()) == 1
    assert swept(table(*ROWS), "png").startswith(b"\x89PNG")


def test_a_table_without_a_size_or_without_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="two values"):
        swept(table(*ROWS[:2]))
    with pytest.raises(ValueError, match="two points"):
        swept(TableResult(columns=COLUMNS[:4], rows=tuple((*r[:3], None) for r in ROWS), count=6, varied=3))


def test_the_file_is_written_and_a_picture_of_nothing_is_a_sentence(tmp_path: Path) -> None:
    tables.write(table(*ROWS), str(tmp_path / "a.svg"))
    assert (tmp_path / "a.svg").read_bytes() == swept(table(*ROWS))
    with pytest.raises(InputError, match="nothing to draw"):
        tables.write(table(ROWS[0]), str(tmp_path / "b.svg"))
    assert not (tmp_path / "b.svg").exists()
