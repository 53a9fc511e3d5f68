"""The HTML page of a report: self-contained, the same text, links that lead somewhere, and no overflow in a real browser."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import report_toy as toy
from opscope_prompts.templates import render_template
from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.outline import SECTIONS
from opscope_tools.report.plots import plots
from opscope_tools.report.render import Report
from opscope_tools.report.webpage import web_page
from opscope_tools.running.tool import ToolContext
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Seen(HTMLParser):
    """Ids, links, what would be loaded, elements with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        self.ids += [given["id"]] if given.get("id") else []
        self.links += [given["href"]] if tag == "a" and given.get("href") else []
        self.loads += [
            v for k, v in given.items() if v and (k in ("src", "srcset", "data") or (k == "href" and tag != "a"))
        ]

    def handle_data(self, data: str) -> None:
        self.text += data


def page_of(facts: ImplementationFacts, sections: dict[str, str] | None = None) -> str:
    report = toy.rendered_with(facts, sections or {})
    return web_page(report, plots(facts), facts.reader, lambda values: render_template("page.html", values))


@pytest.fixture(scope="module")
def page(facts: ImplementationFacts) -> str:
    return page_of(facts)


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    assert Seen(page).loads == []
    assert not re.search(r"@import|url\(", page)


def test_every_link_inside_the_page_leads_to_something_and_ids_are_unique(page: str) -> None:
    seen = Seen(page)
    inside = [link[1:] for link in seen.links if link.startswith("#")]
    assert len(inside) > 40
    assert set(inside) <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))


def test_all_sections_are_there_and_fold(page: str) -> None:
    seen = Seen(page)
    main = [section for section in SECTIONS if "." not in section.number]
    folds = [given for tag, given in seen.elements if tag == "details" and given.get("class") != "text"]
    assert len(folds) == len(main) + 1  # and the cited source
    for section in SECTIONS:
        assert section.heading.lstrip("# ") in " ".join(seen.text.split())


def test_a_pointer_leads_to_the_cited_line(page: str) -> None:
    line = toy.line_of("class ToyNorm")
    excerpt = page.partition(f'id="src-toyland-modeling_toy-py-{line}-{line}"')[2].partition("</div>")[0]
    assert f"<b>{line:6d}  class ToyNorm(nn.Module):</b>" in excerpt


def test_raw_html_of_an_agent_is_shown_and_not_obeyed(facts: ImplementationFacts) -> None:
    pointer = f"`{toy.FILE}:1`"
    page = page_of(facts, {"1": f"An alert <script>alert(1)</script> <img src=x onerror=alert(2)> ({pointer})."})
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script>") == 1  # the page's own
    assert not any(tag == "img" for tag, _ in Seen(page).elements)


def test_plots_say_their_numbers_to_those_who_do_not_see_them(page: str, facts: ImplementationFacts) -> None:
    drawings = re.findall(r"<svg[^>]*class=\"plot\".*?</svg>", page, re.DOTALL)
    assert len(drawings) == 2 * len(facts.documents)
    for drawing in drawings:
        said = re.search(r"<title[^>]*>(.+?)</title><desc[^>]*>(.+?)</desc>", drawing, re.DOTALL)
        assert said is not None
        assert re.search(r"\d", said[2])
    # two tensors of 64 * 8 elements of 2 bytes are alive at once: 2,048 bytes
    assert "Peak 2.05 kB during operator 2" in page


def test_every_diagram_is_drawn_and_its_text_folds_below_it(page: str, report: Report) -> None:
    drawn = [drawing for drawing in report.drawings if drawing.graphs]
    # what holds the layers is drawn once, in section 2.1
    elsewhere = {
        f"4.{place}"
        for place in range(1, 9)
        if re.search(rf"### 4\.{place} .*(?:ToyForCausalLM|ToyLayer)\n", report.text)
    }
    assert {drawing.section.partition(".")[0] for drawing in drawn} == {"2", "4", "6", "8"}
    figures = re.findall(r'<figure class="drawn">.*?</figure>', page, re.DOTALL)
    shown = [drawing for drawing in drawn if drawing.section not in elsewhere]
    assert len(figures) == len(shown)
    for figure, drawing in zip(figures, shown, strict=True):
        assert figure.count('class="diagram"') == len(drawing.graphs)
        text = figure.partition("<summary>As text</summary>")[2]
        assert escape(drawing.text.split("\n")[0]) in text
        assert figure.count("<desc ") == len(drawing.graphs)
    outside = re.sub(r'<figure class="drawn">.*?</figure>', "", page, flags=re.DOTALL)
    assert not set("┌▼├█") & set(
        outside.partition("<main")[2].partition('id="cited-source"')[0]
    )  # no diagram is text alone
    assert "flowchart" not in page


def test_the_page_is_saved_beside_the_report(context: ToolContext) -> None:
    result = WRITE_REPORT.run(WriteReportArguments(name="toy", html=True), context)
    assert result.page_path == "reports/implementations/toy-analysis.html"
    assert (context.workspace.output / result.page_path).read_text().startswith("<!DOCTYPE html>")


PROBE = """<script>addEventListener("load", () => {
  const wide = [...document.querySelectorAll("body *")].filter(e => !e.closest("pre, .wide, .skip, svg") && e.getBoundingClientRect().right > innerWidth + 1);
  const head = document.querySelector("th"); head.querySelector("button").click();
  document.body.dataset.overflow = document.documentElement.scrollWidth - innerWidth;
  document.body.dataset.wide = wide.slice(0, 3).map(e => e.outerHTML.slice(0, 80)).join("; ");
  document.body.dataset.sorted = head.getAttribute("aria-sort");
});</script></body>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH: apt-get install chromium")
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_overflows_in_a_browser(page: str, tmp_path: Path, width: int) -> None:
    file, picture = tmp_path / "page.html", tmp_path / "page.png"
    file.write_text(page.replace("</body>", PROBE))
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},2000", "--virtual-time-budget=3000",
    ]  # fmt: skip
    shot = subprocess.run(
        [*command, f"--screenshot={picture}", file.as_uri()], capture_output=True, timeout=120, check=False
    )
    assert shot.returncode == 0, shot.stderr[-500:]
    assert struct.unpack(">II", picture.read_bytes()[16:24]) == (width, 2000)
    dumped = subprocess.run(
        [*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    found = {name: re.search(rf'data-{name}="([^"]*)"', dumped.stdout) for name in ("overflow", "wide", "sorted")}
    assert {name: match[1] if match else None for name, match in found.items()} == {
        "overflow": "0", "wide": "", "sorted": "ascending",
    }  # fmt: skip
