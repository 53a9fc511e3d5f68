"""Bars of instructions: each part as wide as its count, all with names and numbers, whatever is in them."""

from __future__ import annotations

import colorsys
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_tools.evidence.bars import bars

ROWS = st.dictionaries(
    st.text("abc<&\"' _", min_size=1, max_size=12),
    st.dictionaries(st.sampled_from([f"kind <{at}>" for at in range(14)]), st.integers(1, 500), max_size=14),
    min_size=1,
    max_size=8,
).filter(lambda rows: any(rows.values()))
_SPACE = "{http://www.w3.org/2000/svg}"


@given(ROWS)
def test_each_part_is_as_wide_as_its_count_and_said_in_words(rows: dict[str, dict[str, int]]) -> None:
    drawn = ElementTree.fromstring(bars(rows, "A <title>", "instructions"))
    parts = [(one.find(f"{_SPACE}title"), one.find(f"{_SPACE}rect")) for one in drawn.findall(f"{_SPACE}g")]
    told = sorted(str(title.text) for title, _ in parts if title is not None)
    assert told == sorted(
        f"{name}: {n:,} instructions, {kind}" for name, held in rows.items() for kind, n in held.items()
    )
    widths = []
    for title, rect in parts:
        assert title is not None
        assert rect is not None
        count = int(re.findall(r": ([\d,]+) instructions, ", str(title.text))[-1].replace(",", ""))
        x, width = float(rect.get("x", "")), float(rect.get("width", ""))
        assert x + width <= float(drawn.get("width", ""))
        if width > 3:
            widths.append((width + 0.6) / count)
    assert max(widths, default=1.0) / min(widths, default=1.0) < 1.1
    assert len({(rect.get("x"), rect.get("y")) for _, rect in parts if rect is not None}) == len(parts)


def test_labels_can_be_read_on_every_colour() -> None:
    ink = _luminance(0x14 / 255, 0x17 / 255, 0x1A / 255)
    colours = set(re.findall(r"hsl\((\d+) (\d+)% (\d+)%\)", bars({"a": {f"k{at}": 5 for at in range(20)}}, "x", "y")))
    assert len(colours) >= 16
    for hue, saturation, light in colours:
        ground = colorsys.hls_to_rgb(int(hue) / 360, int(light) / 100, int(saturation) / 100)
        assert (_luminance(*ground) + 0.05) / (ink + 0.05) >= 4.5


def _luminance(*channels: float) -> float:
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_nothing_is_no_picture() -> None:
    with pytest.raises(ValueError, match="count"):
        bars({"a": {}}, "x", "y")
