"""What a search found: where, in which definition, which line."""

from __future__ import annotations

from opscope_schemas.search import SearchSourceResult

from opscope_clients.screens.page import Page, place


def show_search(page: Page, result: SearchSourceResult) -> None:
    """The hits, best first, and how many definitions were searched."""
    searched = f"{result.definitions:,} definitions searched"
    page.say(f"{searched}, looked for {', '.join(result.understood)}" if result.understood else searched, "bold")
    page.table(
        "hits", [place(), "in", "line"],
        [
            (
                f"{hit.repository}: {hit.file}:{hit.line}" if hit.repository else f"{hit.file}:{hit.line}",
                f"{hit.within} (+{hit.alike} alike)" if hit.alike else hit.within,
                hit.code,
            )
            for hit in result.hits
        ],
        total=result.hit_count,
    )  # fmt: skip


__all__ = ["show_search"]
