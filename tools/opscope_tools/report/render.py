"""Puts a report together: computed content, the agent's own sections, the template; then facts file and summary.

`render` is pure: the same facts and sections give the same text. The text of the template is given by the caller.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opscope_schemas.report import Problem, ReportFacts

from opscope_tools.report import changes, components, configuration, flow, kernels, overview, performance, reference
from opscope_tools.report.checks import FRAGMENT_RULES, Material, check
from opscope_tools.report.evidence import evidence_problems, with_facts
from opscope_tools.report.facts import ImplementationFacts, short
from opscope_tools.report.findings import findings, ranks_line
from opscope_tools.report.given import configuration_given
from opscope_tools.report.glance import glance
from opscope_tools.report.graph import Drawing
from opscope_tools.report.markdown import Page, table
from opscope_tools.report.memory import lifetime_rows, peak_lines
from opscope_tools.report.outline import CLOSING, TABLES, Section, section_named, with_components
from opscope_tools.report.parallel import Split, communication_rows, overlap, parallelism_lines
from opscope_tools.report.pictures import pictures
from opscope_tools.report.pins import pinned
from opscope_tools.report.prose import prose_problems
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.story import story
from opscope_tools.report.summary import summarise
from opscope_tools.report.tasks import Task, tasks
from opscope_tools.report.timeline import LEGEND
from opscope_tools.report.traits import Traits

__all__ = ["Report", "Template", "outline_of", "place_sections", "render", "section_problems"]

#: fills the report template from a context
Template = Callable[[Mapping[str, object]], str]


@dataclass(frozen=True)
class Report:
    """A rendered report, the facts file that goes beside it, and its diagrams in the order of the text."""

    text: str
    facts: ReportFacts
    drawings: tuple[Drawing, ...] = ()


def outline_of(facts: ImplementationFacts) -> list[Section]:
    """The outline of the report on `facts`."""
    return with_components([*components.component_titles(facts), *kernels.kernel_titles(facts)])


def place_sections(sections: Mapping[str, str], outline: list[Section]) -> dict[str, str]:
    """The agent's prose by section number; raises `UnknownNameError` for a key that names no section."""
    placed: dict[str, str] = {}
    for key, text in sections.items():
        number = section_named(key, outline).number
        placed[number] = "\n\n".join(part for part in (placed.get(number), text.strip()) if part)
    return placed


def section_problems(
    reader: SourceReader, facts: ReportFacts, sections: Mapping[str, str], traits: Traits | None = None
) -> list[Problem]:
    """What the checks reject in the agent's own sections of a report with `facts` on a model of those traits; lines are those of
    each section's text."""
    problems = []
    for key, given in sections.items():
        text, unknown = with_facts(given, facts.values)
        page = Page(text.strip())
        found = [*check(Material(page, reader, facts), FRAGMENT_RULES), *evidence_problems(page), *unknown]
        found += prose_problems(page, facts.values, traits, reader)
        found += [
            Problem(
                rule="HEADING", line=line, message="A section's own text may hold headings of level 4 and deeper only."
            )
            for line, heading in page.headings
            if len(heading) - len(heading.lstrip("#")) < 4
        ]
        if not text.strip():
            found.append(
                Problem(rule="SECTION_EMPTY", line=1, message="This section's text is empty; leave the key out.")
            )
        problems += [problem.model_copy(update={"section": key}) for problem in found]
    return problems


def _variables(facts: ImplementationFacts) -> tuple[str, ...]:
    documents = (*facts.documents, *facts.modules)
    return tuple(dict.fromkeys(variable.name for document in documents for variable in document.variables))


def render(facts: ImplementationFacts, sections: Mapping[str, str], path: str, template: Template) -> Report:
    """The report on `facts`, to be saved at `path`; `sections` hold the agent's prose by key.

    Raises `UnknownNameError` for a section that does not exist and `ValuesError` for values that bind no formula.
    """
    outline, quotes = outline_of(facts), Quotes()
    catalogue = tasks(facts.main, facts.graphs[0])
    drawings = pictures(facts, catalogue)
    context = _context(facts, quotes, catalogue)
    context["drawings"] = drawings
    context["prose"] = place_sections({k: with_facts(t, quotes.values)[0] for k, t in sections.items()}, outline)
    draft = template({**context, "glossary": "| - | - |"})
    context["glossary"] = table(TABLES["11.A"], reference.glossary_rows(facts, draft))
    text = re.sub(r"\n{3,}", "\n\n", template(context))
    return Report(
        text=text,
        facts=ReportFacts(
            name=facts.name,
            values=quotes.values,
            variables=_variables(facts),
            summary=summarise(facts, path, outline),
            sources=facts.sources,
            pins=pinned(Page(text), facts.reader),
        ),
        drawings=tuple(drawings.values()),
    )


def _context(facts: ImplementationFacts, quotes: Quotes, catalogue: Sequence[Task]) -> dict[str, object]:
    split, long = Split.of(facts), components.LongFormulas()
    return {
        "title": short(facts.subject) if facts.name == facts.target else f"{facts.name}",
        "repository": _repository(facts),
        "given": configuration_given(facts),
        "framework": overview.framework(facts),
        "date": facts.date,
        "glance": glance(facts, quotes),
        "story": story(facts, quotes),
        "savings": changes.saved(facts, quotes),
        "features": overview.key_features(facts, quotes),
        "execution": overview.execution_lines(facts),
        "configuration": "\n\n".join((
            table(TABLES["3.1"], configuration.configuration_rows(facts, quotes)),
            f"{configuration.docstrings(facts)} {configuration.configuration_note(facts)}".strip(),
        )),
        "kernels": table(TABLES["3.2"], kernels.kernel_rows(facts)),
        "constraints": configuration.constraint_lines(facts),
        "phase": facts.main.phase,
        "components": [*components.components(facts, quotes, long), *kernels.kernel_components(facts)],
        "unavailable": [f"`{short(name)}`: not analysed: {why}" for name, why in facts.unavailable.items()],
        "catalogue": table(TABLES["5"], [
            *flow.catalogue_rows(facts, catalogue), *kernels.kernel_tasks(facts, len(catalogue) + 1),
        ]),
        "order_note": flow.ORDER_NOTE,
        "tiling_note": flow.tiling_note(facts, catalogue),
        "lifetimes": table(TABLES["6.3"], lifetime_rows(facts, catalogue)),
        "peaks": peak_lines(facts, catalogue),
        "parallelism": [*parallelism_lines(split), *ranks_line(facts, quotes)],
        "findings": findings(facts, catalogue, quotes),
        "communication": table(TABLES["7.2"], communication_rows(split)),
        "overlap": overlap(split),
        "legend": LEGEND,
        "costs": performance.cost_table(facts, quotes),
        "points": performance.points_said(facts, quotes),
        "basis": performance.basis_said(facts),
        "ridge": f"{quotes.decimal('ridge', facts.ridge, 0 if facts.ridge == int(facts.ridge) else 2)} FLOPs per byte ({facts.ridge_source}{performance.WIDE * performance.has_wide(facts)})",
        "bottlenecks": performance.bottlenecks(facts, quotes),
        "answers": reference.faq(facts, quotes),
        "files": table(TABLES["10"], reference.file_rows(facts)),
        "references": [*reference.references(facts), *long.rows(facts.main.phase), *components.formulas_elsewhere(facts)],
        "closing": CLOSING,
    }  # fmt: skip


def _repository(facts: ImplementationFacts) -> str:
    top = facts.main.file.split("/")[0]
    version = next((source.version for source in facts.sources if source.repository == top), "")
    return f"{top} {version}".strip() + f", `{facts.main.file}`"
