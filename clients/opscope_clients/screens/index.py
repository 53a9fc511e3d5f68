"""Screens of the index: a class, the forward that runs, who uses a definition."""

from __future__ import annotations

from opscope_schemas.index import Candidate, ClassMatch, FindForwardResult, ForwardLine, ResolveClassResult
from opscope_schemas.references import FindReferencesResult

from opscope_clients.screens.page import Page, number, place


def last(name: str) -> str:
    """The name without its modules."""
    return name.rpartition(".")[2]


def show_class(page: Page, result: ResolveClassResult) -> None:
    """The one match in full; of several a line each."""
    if result.match_count > 1:
        page.say(f"{result.name}: {result.match_count:,} matches; name one in full for more of it", "bold")
        page.table(
            "matches",
            ["class", place(), "kind", "bases", number("subclasses"), "under"],
            ([m.qualified_name, f"{m.file}:{m.line}", m.kind, ", ".join(map(last, m.bases)), f"{m.descendant_count:,}", m.condition] for m in result.matches),
            total=result.match_count,
        )  # fmt: skip
    for match in result.matches:
        if page.whole or len(result.matches) == 1:
            _show_match(page, match)


def _show_match(page: Page, match: ClassMatch) -> None:
    page.say(f"{match.qualified_name}, {match.file}:{match.line}-{match.end_line}", "bold")
    facts = {
        "what": "" if match.kind == "class" and match.language == "python" else f"{match.language} {match.kind}",
        "under": match.condition, "decorators": ", ".join(match.decorators), "order": " > ".join(map(last, match.mro)),
        "method at that line": match.method, "exported as": ", ".join(match.exported_as), "generated from": match.generated_from,
    }  # fmt: skip
    if not match.mro:
        facts["bases"] = ", ".join(match.bases)
    if match.forward is not None:
        held = match.forward
        facts["forward"] = f"of {last(held.defined_in)}, {held.file}:{held.line}-{held.end_line}"
    if (cpp := match.cpp) is not None:
        facts |= {"template": cpp.template or "", "signature": cpp.signature, "attributes": ", ".join(cpp.attributes)}
    for name, text in facts.items():
        page.say(f"{name}: {text}" if text else "")
    page.table(
        "submodules",
        ["submodule", "class", "arguments", "built", "when", "by default", place()],
        (
            [s.attribute, last(s.class_name) or s.dispatch or ", ".join(map(last, s.candidates)), s.arguments, s.repeat, s.condition,
             {False: "no", None: "not known"}.get(s.at_default, ""), f"{s.file or match.file}:{s.line}"]
            for s in match.submodules
        ),
    )  # fmt: skip
    if match.descendant_count:
        page.say(f"{match.subclass_count:,} classes name it as a base, {match.descendant_count:,} descend from it")
    places = {found.qualified_name: f"{found.file}:{found.line}" for found in match.subclass_places}
    page.table(
        "subclasses", ["subclass", place()], ([name, places.get(name, "")] for name in match.subclasses), total=match.subclass_count
    )  # fmt: skip
    page.table(
        "places", ["used in", "how", place()], ([u.within, u.kind, f"{u.file}:{u.line}"] for u in match.users), total=match.user_count
    )  # fmt: skip
    if cpp is not None:
        page.table(
            "methods", ["method", "access", number("line")], ([m.signature or m.name, m.access, m.line] for m in cpp.methods), total=cpp.method_count
        )  # fmt: skip
        page.table(
            "places", ["also", place()],
            (["defined" if e.definition else "declared", f"{e.file}:{e.line}"] for e in cpp.elsewhere), total=cpp.elsewhere_count,
        )  # fmt: skip


def show_forward(page: Page, result: FindForwardResult) -> None:
    """Which forward, and its lines."""
    page.say(f"{result.class_name}, {result.file}:{result.line}-{result.end_line}", "bold")
    page.say(f"its forward is that of {result.defined_in}" if result.inherited else "")
    page.say(result.signature)
    page.table(
        "decorators",
        ["decorator", "on", "effect", "how", place()],
        ([d.decorator, d.on, d.effect, d.detail, f"{d.file}:{d.line}" if d.file else ""] for d in result.decorators_explained),
        most=5,
    )  # fmt: skip
    page.table(
        "lines",
        [number("line"), "kind", "code", "runs", place(), "when"],
        ([one.line, one.kind.replace("_", " "), one.code, _runs(one),
          f"{one.callee_file}:{one.callee_line}" if one.callee_file else "", _when(one)] for one in result.lines),
        total=result.line_count,
    )  # fmt: skip


def _runs(line: ForwardLine) -> str:
    if line.candidates:
        return f"one of {line.candidate_count:,}: {', '.join(map(_named, line.candidates))}"
    return last(line.callee) or line.dispatch


def _named(candidate: Candidate) -> str:
    return last(candidate.callee) or "one that source does not tell"


def _when(line: ForwardLine) -> str:
    return f"{line.condition} (training only)".strip() if line.training_only else line.condition


def show_references(page: Page, result: FindReferencesResult) -> None:
    """How many of which kind, and where."""
    page.say(f"{result.qualified_name}, {result.file}:{result.line}", "bold")
    page.say(f"also called {', '.join(result.names)}" if result.names else "")
    page.say(
        f"{result.reference_count:,} references: "
        + ", ".join(f"{c.kind} {c.verified:,} sure, {c.unverified:,} not" if c.unverified else f"{c.kind} {c.verified:,}" for c in result.counts)
    )  # fmt: skip
    if result.hits_read < result.hits:
        page.say(f"{result.hits_read:,} of {result.hits:,} occurrences were read: there may be more")
    page.table(
        "references",
        [place(), "how", "code", "in", "sure"],
        ([f"{r.file}:{r.line}", r.kind, r.code, last(r.within), "yes" if r.verified else "no"] for r in result.references),
        total=result.reference_count,
    )  # fmt: skip


__all__ = ["last", "show_class", "show_forward", "show_references"]
