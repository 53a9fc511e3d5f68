"""The live part of a page: its formulas give what Python's give, its controls move its numbers, broken conditions are said."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from browsing import BROWSER, DEVICE, FIREFOX, browsed, in_firefox, modelled, page_of, result
from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import evaluate, exactly, holds
from opscope_tools.report.facts import ImplementationFacts, leaves
from opscope_tools.report.live import assets, live_data

POINTS = 10_000
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH: apt-get install chromium")


# ---- formulas -------------------------------------------------------------------------------------------------------


def formula(draw: random.Random, depth: int, *, whole: bool = False) -> str:
    """Any text of the grammar; floored quotients and rests are of whole numbers, as those of costs are (`whole`)."""
    if depth == 0 or draw.random() < 0.2:
        return draw.choice([str(draw.randint(0, 99)), "{a}", "{b}", "{long_name}"])
    kind, sign = draw.random(), draw.choice(["+", "-", "*", "//", "%", *([] if whole else ["/"])])
    inner = whole or (kind < 0.7 and sign in ("//", "%"))
    left, right = (formula(draw, depth - 1, whole=inner) for _ in range(2))
    if kind < 0.7:
        return f"({left} {sign} {right})"
    if kind < 0.8:
        return f"{draw.choice(['min', 'max'])}({left}, {right})"
    if kind < 0.9:
        return f"{draw.choice(['ceil', 'floor'])}({left})"
    return f"-{left}" if kind < 0.95 else f"({left}) ** {draw.randint(0, 3)}"


def cases() -> Iterator[tuple[str, dict[str, int], Fraction]]:
    draw, count = random.Random(20), 0
    while count < POINTS:
        text = formula(draw, draw.randint(1, 5))
        values = {name: draw.choice([1, 2, 3, 7, 64, 1000, 4096, 131072]) for name in ("a", "b", "long_name")}
        try:
            value = Fraction(exactly(text, values))
        except ValuesError:  # a division by zero
            continue
        if abs(value) < 2**53:
            yield text, values, value
            count += 1


def test_formulas_of_the_page_are_pythons_on_ten_thousand_random_points(tmp_path: Path) -> None:
    drawn = list(cases())
    script = assets()["live_script"].partition("if (typeof module")[0]
    html = (
        f'<output id="result"></output><script type="application/json" id="cases">{json.dumps([(t, v) for t, v, _ in drawn])}</script>'
        f"<script>{script}\nconst said = JSON.parse(document.getElementById('cases').textContent).map(([t, v]) => Formula.of(t)(v));"
        "document.getElementById('result').textContent = JSON.stringify(said);</script>"
    )
    got = result(browsed(html, tmp_path))
    assert len(got) == POINTS
    wrong = [
        (t, v, float(value), g)
        for (t, v, value), g in zip(drawn, got, strict=True)
        if g is None or abs(g - float(value)) > 1e-9 * max(1.0, abs(float(value)))
    ]
    assert not wrong, (len(wrong), wrong[:3])


def test_conditions_of_the_page_are_pythons(tmp_path: Path) -> None:
    draw, conditions = random.Random(21), []
    for _ in range(1_000):
        parts = [
            f"{{a}} {draw.choice(['<', '<=', '==', '!=', '>', '>='])} {draw.randint(0, 5)} * {{b}}" for _ in range(3)
        ]
        text = f"{parts[0]} {draw.choice(['and', 'or'])} not ({parts[1]}) {draw.choice(['and', 'or'])} {parts[2]}"
        conditions.append((text, {"a": draw.randint(0, 9), "b": draw.randint(0, 3)}))
    script = assets()["live_script"].partition("if (typeof module")[0]
    html = (
        f'<output id="result"></output><script>{script}\nconst said = {json.dumps(conditions)}.map(([t, v]) => Formula.of(t)(v));'
        "document.getElementById('result').textContent = JSON.stringify(said);</script>"
    )
    assert result(browsed(html, tmp_path)) == [holds(text, values) for text, values in conditions]


# ---- the page -------------------------------------------------------------------------------------------------------

#: what a reader does, then what the page shows
ACTIONS = """<output id="result"></output><script>addEventListener("load", () => {
  const said = {}, $ = s => document.querySelector(s), card = name => [...document.querySelectorAll("#live-cards div")].find(d => d.firstChild.textContent.startsWith(name))?.lastChild.firstChild.textContent;
  const set = (name, value) => { const input = $(`[data-value="${name}"]`); input.value = value; input.dispatchEvent(new Event(input.tagName === "SELECT" ? "change" : "input")); };
  const shown = () => ({flops: card("FLOPs"), bytes: card("Bytes moved"), time: card("Roofline time"), weights: card("Weights"), state: $("#live-state").textContent, broken: $("#live-state").classList.contains("broken"), rows: $("#live-table tbody").rows.length, bars: document.querySelectorAll("#live-icicle .node").length});
  said.first = shown();
  set("seq_len", 32); said.shorter = shown();
  said.run = card("As engines run it"); set("plan", "tp2"); said.spread = card("As engines run it"); set("plan", "tp1");
  set("device", "e"); said.faster = shown();
  set("w_bytes", "1"); said.narrow = shown();
  $("#live-pin").click(); set("seq_len", 64); said.pinned = $("#live-cards small").textContent;
  $("#live-search").value = "norm"; $("#live-search").dispatchEvent(new Event("input")); said.searched = shown().rows;
  $("#live-search").value = ""; $("#live-search").dispatchEvent(new Event("input"));
  $("[data-measure=bytes]").click(); said.pressed = $("[data-measure=bytes]").getAttribute("aria-pressed");
  [...document.querySelectorAll("#live-icicle .node")].find(n => n.dataset.path).dispatchEvent(new MouseEvent("click", {bubbles: true})); said.zoomed = shown().bars;
  said.link = decodeURIComponent(location.hash);
  $("#live-reset").click(); said.reset = shown();
  set("seq_len", "0"); said.refused = {...shown(), said: $("#live-said").textContent, marked: $('[data-value="seq_len"]').getAttribute("aria-invalid")};
  $('[data-value="seq_len"]').dispatchEvent(new Event("change")); said.restored = $('[data-value="seq_len"]').value;
  location.hash = "#what-if=" + encodeURIComponent(JSON.stringify({phase: "constructor", measure: "valueOf", values: {w_bytes: 77, seq_len: 1.5, batch_size: 1e308, nosuch: 3}}));
  dispatchEvent(new HashChangeEvent("hashchange")); said.rubbish = shown();
  set("batch_size", 3); said.outside = {...shown(), pin: $("#live-pin").disabled};
  said.unlabelled = [...document.querySelectorAll(".live input, .live select, .live button")].filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.closest("label"))).length;
  said.overflow = document.documentElement.scrollWidth - innerWidth;
  document.getElementById("result").textContent = JSON.stringify(said);
});</script></body>"""


def by_hand(facts: ImplementationFacts, seq_len: int, rate: float, w_bytes: int = 2) -> tuple[int, int, float]:
    """FLOPs, bytes and roofline time of the toy's prefill, from its documents."""
    values = {**facts.point(facts.main), "seq_len": seq_len, "w_bytes": w_bytes}
    flops = moved = 0
    time = 0.0
    for _, kernel in leaves(facts.main):
        work = evaluate(kernel.flops, values)
        each = evaluate(kernel.memory_access.read, values) + evaluate(kernel.memory_access.write, values)
        flops, moved, time = flops + work, moved + each, time + max(work / (rate * 1e12), each / (rate * 1e9))
    return flops, moved, time


def amount(text: str) -> float:
    number, unit = text.removeprefix("≈ ").split(" ")
    return float(number.replace(",", "")) * {"k": 1e3, "M": 1e6, "m": 1e-3, "µ": 1e-6}.get(unit[0], 1.0)


@pytest.mark.parametrize(("browser", "width"), [("chromium", 1280), ("chromium", 390), ("firefox", 1280)])
def test_controls_move_the_numbers_of_the_page(
    facts: ImplementationFacts, tmp_path: Path, browser: str, width: int
) -> None:
    if browser == "firefox" and FIREFOX is None:
        pytest.skip("no Firefox on PATH: apt-get install firefox-esr")
    main = facts.main.model_copy(update={"conditions": ("{batch_size} <= 2",)})
    html = page_of(replace(facts, documents=(main, *facts.documents[1:])))
    assert not re.search(r'(?:src|href)="https?://[^"]*"[^>]*>(?!\[|https|arXiv)', html.partition("<header>")[0])
    acted = html.replace("</body>", ACTIONS)
    said = in_firefox(acted, tmp_path, width) if browser == "firefox" else result(browsed(acted, tmp_path, width))
    points: list[tuple[str, int, int, int]] = [
        ("first", 64, 1, 2),
        ("shorter", 32, 1, 2),
        ("faster", 32, 4, 2),
        ("narrow", 32, 4, 1),
    ]
    for name, seq_len, rate, w_bytes in points:
        expected = by_hand(facts, seq_len, rate, w_bytes)
        got = [amount(said[name][what]) for what in ("flops", "bytes", "time")]
        assert got == pytest.approx(list(expected), rel=5e-3), name
        assert not said[name]["broken"]
    for name, ranks in (("run", 1), ("spread", 2)):
        assert amount(said[name]) == pytest.approx(modelled(ranks, 1, 32), rel=5e-3)
    assert said["first"]["rows"] == len(list(leaves(facts.main)))
    assert said["pinned"].startswith("pinned: ")
    assert 0 < said["searched"] < said["first"]["rows"]
    assert said["pressed"] == "true"
    assert 0 < said["zoomed"] < said["first"]["bars"]
    assert '"seq_len":64' in said["link"]
    assert said["reset"]["flops"] == said["first"]["flops"]
    assert said["refused"]["flops"] == said["rubbish"]["flops"] == said["first"]["flops"]
    assert (said["refused"]["marked"], said["restored"]) == ("true", "64")
    assert "whole numbers from 1" in said["refused"]["said"]
    assert said["outside"]["broken"]
    assert said["outside"]["pin"]
    assert (said["outside"]["flops"], said["outside"]["time"]) == ("not known", "not known")
    assert "{batch_size} <= 2" in said["outside"]["state"]
    assert "opscope count-flops toy --phase prefill --logits last" in said["outside"]["state"]
    assert said["unlabelled"] == 0
    assert said["overflow"] <= 0


def test_the_data_of_a_page_cannot_end_its_script(facts: ImplementationFacts) -> None:
    evil = "</script><script>alert(1)</script>"
    kernels = tuple(k.model_copy(update={"code": evil}) for k in facts.main.kernels)
    changed = replace(facts, documents=(facts.main.model_copy(update={"kernels": kernels}),), graphs=facts.graphs[:1])
    assert "<" not in live_data(changed, [DEVICE], "d")
