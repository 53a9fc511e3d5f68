"""Flame graphs: every width is its share, every frame has its words, equal stacks give equal bytes."""

from __future__ import annotations

import colorsys
import re
import xml.etree.ElementTree as ElementTree
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opscope_tools.evidence import folded
from opscope_tools.evidence.flamegraph import flamegraph

NAMES = st.sampled_from(
    ["main", "forward (a/b.py:12)", "sgemm_ (lib.so)", "do_syscall_64_[k]", "operator<", "x&y", "ä;b".replace(";", ":")]
)
STACKS = st.dictionaries(
    st.lists(NAMES, min_size=1, max_size=6).map(tuple), st.integers(1, 500), min_size=1, max_size=12
)
SVG = "{http://www.w3.org/2000/svg}"


def boxes(svg: str) -> list[tuple[str, float, float, float, str]]:
    """Title, x, y, width and colour of each frame."""
    found = []
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        title, rect = group.find(f"{SVG}title"), group.find(f"{SVG}rect")
        assert title is not None
        assert title.text
        assert rect is not None
        found.append((title.text, *(float(rect.attrib[name]) for name in ("x", "y", "width")), rect.attrib["fill"]))
    return found  # type: ignore[return-value] # three numbers


@settings(max_examples=200, deadline=None)
@given(STACKS)
def test_frames_are_as_wide_as_their_share_and_lie_within_the_frame_below(stacks: dict[tuple[str, ...], int]) -> None:
    total = sum(stacks.values())
    drawn = boxes(flamegraph(stacks, "A decode"))
    (root,) = [box for box in drawn if box[0].startswith("all (")]
    for title, x, y, width, _ in drawn:
        count = int(re.findall(r"\(([\d,]+) samples", title)[-1].replace(",", ""))
        assert abs(width - (root[3] * count / total)) < 1.5
        if y < root[2]:
            below = [
                box
                for box in drawn
                if abs(box[2] - y - 17) < 0.1 and box[1] <= x + 0.2 and x + width <= box[1] + box[3] + 1
            ]
            assert below, title
    depths = Counter(len(stack) for stack in stacks)
    assert len({y for _, _, y, _, _ in drawn}) <= max(depths) + 1


@settings(max_examples=50, deadline=None)
@given(STACKS)
def test_equal_stacks_give_equal_bytes_and_read_back_from_their_lines(stacks: dict[tuple[str, ...], int]) -> None:
    assert flamegraph(stacks, "x") == flamegraph(dict(reversed(stacks.items())), "x")
    assert folded.parsed(folded.written(stacks)) == Counter(stacks)


@settings(max_examples=200, deadline=None)
@given(STACKS, st.floats(0.1, 30))
def test_pruning_keeps_every_sample_and_every_innermost_frame(
    stacks: dict[tuple[str, ...], int], percent: float
) -> None:
    fewer = folded.pruned(stacks, percent)
    leaves: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for held, counted in zip((stacks, fewer), leaves, strict=True):
        for stack, count in held.items():
            counted[stack[-1]] += count
    assert leaves[0] == leaves[1]
    assert len(fewer) <= len(stacks)


def test_labels_can_be_read_on_every_colour() -> None:
    stacks: dict[tuple[str, ...], int] = {
        (f"{kind} {at}{end}",): 5 for at in range(60) for kind, end in (("a", "_[k]"), ("b", " (x.py:1)"), ("c", ""))
    }
    ink = (0x14 / 255, 0x17 / 255, 0x1A / 255)
    for _, _, _, _, colour in boxes(flamegraph(stacks, "x")):
        hue, saturation, light = map(float, re.findall(r"[\d.]+", colour))
        ground = colorsys.hls_to_rgb(hue / 360, light / 100, saturation / 100)
        assert (_luminance(ground) + 0.05) / (_luminance(ink) + 0.05) >= 4.5


def _luminance(colour: tuple[float, float, float]) -> float:
    parts = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_no_stack_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one"):
        flamegraph({}, "x")
    with pytest.raises(ValueError, match="no folded stack"):
        folded.parsed("a;b c\n")
