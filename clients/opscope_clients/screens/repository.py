"""The screen of a repository: what it is, where its parts are, and how much more of each there is."""

from __future__ import annotations

from opscope_schemas.repo_map import CallNest, Counted, Place, RepoMapResult

from opscope_clients.screens.page import Page, number, place


def show_repository(page: Page, result: RepoMapResult) -> None:
    """The overview, or the one section that was asked for."""
    _show_overview(page, result)
    totals = result.totals
    page.table(
        "modules",
        ["module", "role", number("files"), number("lines"), "says", place()],
        ([m.path, m.role, f"{m.files:,}", f"{m.lines:,}", m.says, m.at] for m in result.modules or result.directories),
        total=totals.get("modules", 0),
    )  # fmt: skip
    page.table(
        "ways in", ["way in", "kind", place()], ([e.name, e.kind, e.at] for e in result.entry_points), total=totals.get("entry_points", 0)
    )  # fmt: skip
    page.table(
        "commands", ["command", "kind", place()], ([c.command, c.kind, c.at] for c in result.commands), total=totals.get("commands", 0)
    )  # fmt: skip
    page.table(
        "variables",
        ["environment", "default", number("reads"), place()],
        ([v.name, v.default, f"{v.reads:,}", v.at] for v in result.environment.variables),
        total=totals.get("environment.variables", 0),
    )  # fmt: skip
    page.table(
        "flags", ["flag", "default", place()], ([", ".join(f.names), f.default, f.at] for f in result.flags.flags), total=totals.get("flags.flags", 0)
    )  # fmt: skip
    page.table(
        "classes",
        ["configuration", "kind", number("fields"), place()],
        ([c.name, c.kind, f"{c.field_count:,}", c.at] for c in result.config_classes),
        total=totals.get("config_classes", 0),
    )  # fmt: skip
    _show_components(page, result)
    for loop in result.loops:
        _show_loop(page, loop)
    page.table("other entries", ["other entry", place()], ([p.name, p.at] for p in result.loop_candidates), most=5)
    _show_counted(page, result)
    page.table(
        "places for extensions",
        ["extension", "kind", number("entries"), place()],
        ([e.name, e.kind, f"{e.count:,}", e.at] for e in result.extensions),
        total=totals.get("extensions", 0),
    )  # fmt: skip


def _show_overview(page: Page, result: RepoMapResult) -> None:
    held = result.distribution
    named = f"{held.name} {held.version}".strip() if held else ""
    page.say(": ".join(part for part in (result.repository, named, result.framework) if part), "bold")
    page.say(held.summary.text if held and held.summary else "")
    if result.files is not None and result.lines is not None:
        languages = ", ".join(f"{count:,} {name}" for name, count in result.languages.items())
        page.say(f"{result.files:,} files ({languages}), {result.lines:,} lines")
    if result.llm is not None:
        said = ", ".join(f"{s.name} {s.count:,}" for s in result.llm.signals if s.count)
        page.say(f"{'about' if result.llm.related else 'not about'} language models: {said or 'no signals'}")
    if held and held.requires:
        page.say(f"requires {', '.join(one.text for one in held.requires)}")


def _show_components(page: Page, result: RepoMapResult) -> None:
    page.table(
        "components",
        ["component", "best candidate", number("candidates"), number("lines"), place()],
        ([c.role, c.candidates[0].name, f"{c.total:,}", f"{c.candidates[0].lines:,}", c.candidates[0].at] for c in result.components if c.candidates),
    )  # fmt: skip
    if result.section == "components":
        page.table(
            "candidates",
            ["candidate", "of", number("lines"), number("importers"), place()],
            ([k.name, c.role, f"{k.lines:,}", f"{k.importers:,}", k.at] for c in result.components for k in c.candidates),
        )  # fmt: skip
    none = ", ".join(c.role for c in result.components if not c.candidates)
    page.say(f"not found: {none}" if none else "")


def _show_loop(page: Page, loop: CallNest) -> None:
    page.say(f"loop of {loop.entry}, {loop.at}" + (f": {' > '.join(loop.reaches)}" if loop.reaches else ""), "bold")
    page.table(
        "lines of the loop", ["code", "stage", place()], ([". " * line.depth + line.code, line.stage, line.at] for line in loop.lines)
    )  # fmt: skip
    page.say(loop.cut, "dim")


def _show_counted(page: Page, result: RepoMapResult) -> None:
    groups = {
        "framework": result.frameworks, "execution": result.execution, "KV cache": result.kv_cache, "scheduler": result.scheduler,
        "sampling": result.sampling, "kernels": result.kernels, "pitfall": result.pitfalls,
    }  # fmt: skip
    found = [(group, one) for group, entries in groups.items() for one in entries if one.count]
    page.table(
        "signs",
        ["sign", "", number("times"), number("files"), place("first")],
        ([group, one.name, f"{one.count:,}", f"{one.files:,}" if one.files else "", _first(one).at] for group, one in found),
    )  # fmt: skip
    if result.section:
        page.table(
            "places", ["sign", "what", "code", place()],
            ([one.name, p.name, p.text, p.at] for _, one in found for p in one.places),
        )  # fmt: skip


def _first(counted: Counted) -> Place:
    return counted.places[0] if counted.places else Place(name="", at="")


__all__ = ["show_repository"]
