"""One self-contained HTML page from a report: the same text, with plots, cited source, sortable tables and sections that fold.

Nothing is loaded from a network. The Markdown is rendered without raw HTML, so that text from an agent cannot bring any;
pointers lead to the cited lines, which the page holds itself. Fact marks, which are comments, are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape

from opscope_tools.report.graph import Drawing
from opscope_tools.report.live import assets
from opscope_tools.report.markdown import POINTER, without
from opscope_tools.report.outline import anchor
from opscope_tools.report.plots import Plot
from opscope_tools.report.render import Report
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.svg import svg

__all__ = ["web_page"]

#: lines shown before and after the cited ones, and the most of one excerpt
_AROUND, _MOST = 3, 60
#: characters of a code span that is not broken in a cell of a table
_SHORT = 36
_HEADING = re.compile(r"<h([1-6])>(.*?)</h\1>", re.DOTALL)
_CODE = re.compile(r"<code>([^<]*)</code>")


@dataclass(frozen=True)
class _Section:
    """A section of the second level: its anchor, its heading, its content."""

    anchor: str
    heading: str
    body: str


def web_page(
    report: Report, plots: Sequence[Plot], reader: SourceReader, template: Callable[[Mapping[str, object]], str],
    live: str = "", pictures: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """The page of a report; `template` fills the page's frame, `live` is the data of the part in which formulas are evaluated, `pictures`
    are the drawings that the text names, by path."""
    cited: dict[tuple[str, int, int], str] = {}
    html = _drawn(
        _rendered("\n".join(without(line, "<!--", "-->") for line in report.text.split("\n"))),
        report.drawings,
    )
    html = _pictured(html, pictures or {})
    html = _linked(html, reader, cited)
    html = _anchored(html)
    for plot in reversed(plots):  # each goes right behind the heading
        figure = f"<figure>{plot.svg}<figcaption>{escape(plot.title)}</figcaption></figure>"
        html = _inserted(html, plot.section, figure)
    title = re.search(r"<h1[^>]*>(.*?)</h1>", html, re.DOTALL)
    head, sections = _split(html)
    return template(
        {
            "title": re.sub(r"<[^>]+>", "", title[1]) if title else "Report", "head": head, "sections": sections,
            "excerpts": list(_excerpts(cited, reader)), "style": _highlighting(), "live": live, **assets(),
        }
    )  # fmt: skip


def _rendered(text: str) -> str:
    from markdown_it import MarkdownIt  # here: only a page needs it

    parser = MarkdownIt("commonmark", {"html": False, "highlight": _highlighted}).enable("table")
    html = str(parser.render(text))
    return html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def _drawn(html: str, drawings: Sequence[Drawing]) -> str:
    """The page with each diagram drawn; its text folds below the drawing, as what says the same in words."""
    parts, at = [], 0
    for drawing in drawings:
        block = re.compile(rf'<pre><code(?: class="language-\w+")?>{re.escape(escape(drawing.text))}\n</code></pre>')
        found = block.search(html, at) if drawing.graphs else None
        if found is None:
            continue
        parts += [html[at : found.start()], _figure(drawing, found[0])]
        at = found.end()
    return "".join([*parts, html[at:]])


def _pictured(html: str, pictures: Mapping[str, str]) -> str:
    """The page with each named drawing in place of the image that would load it."""

    def put(match: re.Match[str]) -> str:
        drawing = pictures.get(unescape(match[1]))
        if drawing is None:
            return f"<p>{match[2]}</p>"
        return f'<figure><div class="wide" tabindex="0" role="region" aria-label="Drawing, to scroll">{drawing}</div><figcaption>{match[2]}</figcaption></figure>'

    return re.sub(r'<p><img src="([^"]*)" alt="([^"]*)" /></p>', put, html)


def _figure(drawing: Drawing, text: str) -> str:
    name = "diagram-" + re.sub(r"\W", "-", drawing.section)
    shown = ""
    for place, graph in enumerate(drawing.graphs, 1):
        shown += f"<p>{escape(graph.title)}</p>" if graph.title else ""
        shown += f'<div class="wide">{svg(graph, graph.title or drawing.title, f"{name}-{place}")}</div>'
    note = f" {escape(drawing.note)}" if drawing.note else ""
    return (
        f'<figure class="drawn">{shown}<figcaption>{escape(drawing.title)}.{note}</figcaption>'
        f'<details class="text"><summary>As text</summary>{text}</details></figure>'
    )


def _highlighted(code: str, language: str, _: str) -> str:
    if language != "python":
        return escape(code)
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return str(highlight(code, PythonLexer(), HtmlFormatter(nowrap=True)))


def _highlighting() -> str:
    """Colours of code, for light and for dark, each 4.5 times as bright or dark as the ground behind it."""
    from pygments.formatters import HtmlFormatter

    light = HtmlFormatter(style="xcode").get_style_defs("pre")
    dark = HtmlFormatter(style="github-dark").get_style_defs("pre")
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _anchored(html: str) -> str:
    """Headings with the anchors that links of the report use."""
    seen: dict[str, int] = {}

    def put(match: re.Match[str]) -> str:
        plain = re.sub(r"<[^>]+>", "", match[2])
        return f'<h{match[1]} id="{anchor("# " + unescape(plain), seen)}">{match[2]}</h{match[1]}>'

    return _HEADING.sub(put, html)


def _name(path: str, first: int, last: int) -> str:
    return "src-" + re.sub(r"[^\w]+", "-", path) + f"-{first}-{last}"


def _linked(html: str, reader: SourceReader, cited: dict[tuple[str, int, int], str]) -> str:
    """Pointers in code spans as links to the excerpts that they cite."""

    def code(match: re.Match[str]) -> str:
        short = ' class="short"' if len(unescape(match[1])) <= _SHORT and not POINTER.search(match[1]) else ""
        return f"<code{short}>{POINTER.sub(pointer, match[1])}</code>"

    def pointer(match: re.Match[str]) -> str:
        path, first = match[1], int(match[2])
        last = int(match[3] or first)
        lines = reader.lines(path)
        if lines is None or not 1 <= first <= last <= len(lines):
            return match[0]
        cited[path, first, last] = _name(path, first, last)
        return f'<a class="cite" href="#{cited[path, first, last]}">{match[0]}</a>'

    return _CODE.sub(code, html)


def _excerpts(cited: Mapping[tuple[str, int, int], str], reader: SourceReader) -> Iterable[dict[str, object]]:
    for (path, first, last), name in sorted(cited.items()):
        lines = reader.lines(path) or []
        begin, end = max(1, first - _AROUND), min(len(lines), last + _AROUND, first + _MOST)
        rows = [(number, lines[number - 1], first <= number <= last) for number in range(begin, end + 1)]
        yield {"name": name, "title": f"{path}:{first}" + (f"-{last}" if last > first else ""), "rows": rows}


def _inserted(html: str, section: str, figure: str) -> str:
    """The figure behind the heading of a section."""
    found = re.search(rf"<h3 id=\"[^\"]*\">{re.escape(section)} .*?</h3>", html)
    return html if found is None else f"{html[: found.end()]}\n{figure}{html[found.end() :]}"


def _split(html: str) -> tuple[str, list[_Section]]:
    """What stands before the first section, and the sections."""
    parts = re.split(r'<h2 id="([^"]*)">(.*?)</h2>', html.replace("<hr />", ""), flags=re.DOTALL)
    sections = [_Section(parts[at], parts[at + 1], parts[at + 2]) for at in range(1, len(parts), 3)]
    return parts[0], sections
