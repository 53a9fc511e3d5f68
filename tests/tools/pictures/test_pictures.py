"""Pictures: the same bytes everywhere, names that cover nothing, numbers that are those of the estimate."""

from __future__ import annotations

import io
import itertools
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_up
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from opscope_schemas.estimates import Plan, PlanResult, RooflineResult
from opscope_tools.pictures import canvas, curves, picture, plans
from opscope_tools.pictures.classes import spent_on
from opscope_tools.pictures.labels import Mark, name_marks
from opscope_tools.pictures.layers import stretches
from opscope_tools.pictures.roofline import roofline
from opscope_tools.pictures.timeline import timeline, timeline_text
from PIL import Image

PLANS = [(100.0 / n, 30.0 * n, f"plan {n}") for n in range(1, 9)] + [(10.0, 20.0, "beaten"), (12.0, 20.0, "beaten too")]
#: every kind of picture, of an estimate or of points
DRAWN: dict[str, Callable[[canvas.Form], bytes]] = {
    "roofline": lambda form: picture(made_up.decoder(1), "roofline", form),
    "uncalibrated": lambda form: picture(made_up.decoder(2, calibrated=False), "roofline", form),
    "classes": lambda form: picture(made_up.decoder(3), "classes", form),
    "timeline": lambda form: picture(made_up.decoder(4), "timeline", form),
    "memory": lambda form: curves.memory(
        [(n, made_up.memory(n)) for n in (1000, 9000, 70_000)], "Memory", "of all", "tokens", form
    ),
    "throughput": lambda form: curves.throughput(
        [(n, made_up.rates(n)) for n in (1, 4, 64, 90)], "Throughput", "of all", "sequences", form
    ),
    "pareto": lambda form: curves.pareto(PLANS, "Plans", "of all", form),
}
DIGESTS = """
import hashlib, os
folder = os.getcwd()
import made_up
from opscope_tools.pictures import picture
picture(made_up.decoder(1), "roofline", "svg")
assert os.getcwd() == folder
import test_pictures
for name, drawn in test_pictures.DRAWN.items():
    print(name, *(hashlib.sha256(drawn(form)).hexdigest() for form in ("svg", "png")))
"""


def test_the_picture_of_a_search_names_the_front_and_marks_what_it_beats() -> None:
    def plan(name: str, user: float, device: float) -> Plan:
        return Plan(
            parallel=name, tp=1, pp=1, ep=1, dp=1, replicas=1, weights="bf16", concurrency=4, tpot_seconds=1 / user, ttft_seconds=1.0,
            tokens_per_second_per_user=user, tokens_per_second_per_device=device, weights_bytes=1, basis="calibrated",
        )  # fmt: skip

    result = PlanResult(
        model_class="pack.Some", hardware=made_up.estimate([]).hardware, devices=4, goal="cost", input_len=10, output_len=20,
        front=(plan("tp4", 90.0, 100.0), plan("tp2, 2 replicas", 40.0, 300.0)), beaten=((30.0, 200.0), (80.0, 90.0)), considered=4,
    )  # fmt: skip
    drawn = plans(result, "svg").decode()
    assert "tp4, 4 requests" in drawn
    assert "tp2, 2 replicas, 4 requests" in drawn
    assert "2 of 4 plans are beaten" in drawn


def test_two_processes_draw_the_same_bytes(tmp_path: Path) -> None:
    """Whatever strings hash to, wherever they run, and whatever style lies there: that file is not so much as read."""
    (tmp_path / "matplotlibrc").write_bytes(b"font.size: 30\naxes.facecolor: red\nsvg.fonttype: \xff\n")
    said = []
    for seed, folder in (("1", Path.cwd()), ("2", tmp_path)):
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", DIGESTS], capture_output=True, text=True, timeout=300, check=True, cwd=folder, env=environment
        )  # fmt: skip
        said.append(done.stdout)
    assert said[0] == said[1]
    assert len(said[0].splitlines()) == len(DRAWN)
    assert len(set(said[0].split())) == 3 * len(DRAWN)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_a_file_of_its_form_without_a_date(name: str) -> None:
    drawn = DRAWN[name]("svg")
    root = ElementTree.fromstring(drawn)
    assert root.tag.endswith("svg")
    assert b"date" not in drawn.lower()
    assert b"<script" not in drawn
    image = Image.open(io.BytesIO(DRAWN[name]("png")))
    assert (image.format, image.info) == ("PNG", {})
    wide, high = image.size
    box = [float(part) for part in root.attrib["viewBox"].split()]
    assert (box[2] / 72 * canvas.DPI, box[3] / 72 * canvas.DPI) == pytest.approx((wide, high), abs=2)


# ---- names ----------------------------------------------------------------------------------------------------------

PLACE = st.floats(0, 1)
MARKS = st.lists(
    st.builds(Mark, PLACE, PLACE, st.floats(1, 25), st.text(st.characters(codec="ascii"), min_size=1, max_size=40)), max_size=25
)  # fmt: skip


def boxes(marks: list[Mark]) -> list[tuple[float, float, float, float]]:
    """Where the names of marks are written, and the frame that they have to stand in as the last one; pixels."""
    found: list[Any] = []

    def paint(sheet: Figure) -> None:
        field = canvas.axes(sheet)
        field.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
        texts = name_marks(field, marks)
        found.extend(tuple(text.get_window_extent().extents) for text in [*texts])
        found.append(tuple(field.get_window_extent().extents))

    canvas.drawn(paint, "svg", 9, 6, "names")
    return found


@settings(max_examples=20)
@given(MARKS)
def test_no_name_covers_another_or_leaves_the_frame(marks: list[Mark]) -> None:
    *names, frame = boxes(marks)
    for one, other in itertools.combinations(names, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart, (one, other)
    for box in names:
        assert frame[0] <= box[0]
        assert frame[1] <= box[1]
        assert box[2] <= frame[2]
        assert box[3] <= frame[3]


def test_names_of_marks_that_lie_on_one_another_all_find_a_place() -> None:
    assert len(boxes([Mark(0.5, 0.5, 5, f"operator {n}") for n in range(12)])) == 12 + 1


@pytest.mark.parametrize("name", ["$x^$", "a\nb", "层 \U0001f600", "<script>&amp;", "%s {0}", "x" * 300])
def test_a_name_may_hold_anything(name: str) -> None:
    rows = [
        row.model_copy(update={"module": name, "operation": name, "kind": name}) for row in made_up.decoder(5).operators
    ]
    odd = made_up.estimate(list(rows), model_class=name, values={name: 1})
    for kind in ("roofline", "classes", "timeline"):
        ElementTree.fromstring(picture(odd, kind, "svg"))


@pytest.mark.parametrize("operators", [0, 1])
def test_an_estimate_with_next_to_nothing_is_drawn(operators: int) -> None:
    small = made_up.estimate(list(made_up.decoder(6).operators[:operators]))
    for kind in ("roofline", "classes", "timeline"):
        assert picture(small, kind, "png")
    assert timeline_text(small)


# ---- numbers --------------------------------------------------------------------------------------------------------


def painted(result: RooflineResult, draw: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> Figure:
    """The sheet that a picture was drawn on."""
    kept: list[Figure] = []
    drawn = canvas.drawn

    def keep(paint: Callable[[Figure], None], *rest: Any) -> bytes:
        def both(sheet: Figure) -> None:
            paint(sheet)
            kept.append(sheet)

        return drawn(both, *rest)

    monkeypatch.setattr(canvas, "drawn", keep)
    draw(result, "svg")
    return kept[0]


@pytest.mark.parametrize("calibrated", [True, False])
def test_every_operator_stands_at_its_rate_and_none_above_its_roof(
    calibrated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = made_up.decoder(7, calibrated=calibrated)
    field = painted(result, roofline, monkeypatch).axes[0]
    offsets: list[Any] = [held.get_offsets() for held in field.collections]  # one mark each
    marks = sorted((float(each[0][0]), float(each[0][1])) for each in offsets)
    expected = sorted(
        (row.flops / row.bytes, row.flops / (row.calibrated_seconds or row.bound_seconds))
        for row in result.operators
        if row.flops
    )
    assert len(marks) == len(expected)
    for mark, place in zip(marks, expected, strict=True):
        assert mark == pytest.approx(place)
    (low, high), (bottom, top) = field.get_xlim(), field.get_ylim()
    for x, y in marks:
        assert low < x < high
        assert bottom < y < top
        assert y <= min(3e12 * x, 1e15) * (1 + 1e-9)


def test_roofs_say_precision_figure_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sheet = painted(made_up.decoder(8), roofline, monkeypatch)
    said = [text.get_text() for text in (*sheet.axes[0].texts, *sheet.texts)]
    assert "bf16: 1 PFLOP/s" in said
    assert "fp8, int8: 2 PFLOP/s" in said  # one roof, one name
    assert "memory: 3 TB/s" in said
    assert any("Peak: A data sheet." in text and "Bandwidth: Another page." in text for text in said)


@pytest.mark.parametrize("seed", range(5))
def test_classes_add_up_to_the_totals(seed: int) -> None:
    result = made_up.decoder(seed)
    sums = spent_on(result.operators)
    assert sum(one.bound for one in sums) == pytest.approx(result.totals.bound_seconds)
    for name in ("calibrated", "low", "high"):
        assert sum(getattr(one, name) for one in sums) == pytest.approx(getattr(result.totals, f"{name}_seconds"))
    assert {one.name for one in sums} == {one.kind for one in result.operators}


def test_a_class_with_an_unmeasured_kernel_has_no_calibrated_time() -> None:
    rows = [row.model_copy(update={"kind": "one"}) for row in made_up.decoder(9).operators]
    rows[0] = rows[0].model_copy(update={"calibrated_seconds": None})
    assert [(one.name, one.calibrated) for one in spent_on(rows)] == [("one", None)]


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.sampled_from("abc")), max_size=12))
def test_the_front_holds_what_nothing_beats(drawn: list[tuple[int, int, str]]) -> None:
    plans = [(float(x), float(y), name) for x, y, name in drawn]
    beaten = [p for p in plans if any(o[0] >= p[0] and o[1] >= p[1] and o[:2] != p[:2] for o in plans)]
    front = curves.pareto_front(plans)
    assert sorted(front) == sorted(p for p in plans if p not in beaten)
    assert [p[0] for p in front] == sorted(p[0] for p in front)


def test_a_curve_needs_two_points() -> None:
    with pytest.raises(ValueError, match="two points"):
        curves.memory([(5, made_up.memory(5)), (5, made_up.memory(5))], "", "", "")
    with pytest.raises(ValueError, match="two points"):
        curves.throughput([], "", "", "")


# ---- layers and traces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kinds", [0, 1, 2, 5])
def test_stretches_are_the_pass_in_order_and_their_runs_add_up_to_it(kinds: int) -> None:
    for seed in range(10):
        result = made_up.decoder(seed, kinds=kinds)
        found = stretches(result.operators)
        assert [row for stretch in found for row in stretch.rows] == list(result.operators)
        assert len([stretch for stretch in found if stretch.path]) == kinds
        whole = sum(s.runs * step.length for s in found for step in s.steps(calibrated=True))
        assert whole == pytest.approx(result.totals.calibrated_seconds)
        assert all(stretch.share(row) == int(stretch.share(row)) for stretch in found for row in stretch.rows)


def test_the_timeline_as_text_has_a_line_for_each_operator_of_the_longest_layer() -> None:
    result = made_up.decoder(11)
    longest = max(
        (s for s in stretches(result.operators) if s.path), key=lambda s: sum(r.calibrated_seconds or 0 for r in s.rows)
    )
    title, *lines = timeline_text(result).splitlines()
    assert f"(1 of {longest.runs} runs)" in title
    assert len(lines) == len(longest.rows)
    for line, row in zip(lines, longest.rows, strict=True):
        assert line.endswith(f"{row.file.rpartition('/')[2]}:{row.line}")


def test_bars_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    field = painted(made_up.decoder(12), timeline, monkeypatch).axes[0]
    bars = [(bar.get_x(), bar.get_width()) for bar in field.patches]  # type: ignore[attr-defined] # rectangles
    for (x, width), (after, _) in itertools.pairwise(bars):
        assert x + width == pytest.approx(after)
