"""The report on a repository: every section of its template from the map, and the self-review from the checks' results.

`render_repo` is pure: the same map and sections give the same text. What the map did not find is said with the search
that found nothing. Order: rendering, the head and the summary, tables, the deep dive, the end.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from opscope_schemas.common import Source
from opscope_schemas.repo_map import CallNest, Candidate, Component, Counted, EntryPoint, NestLine, Place, RepoMapResult
from opscope_schemas.report import Problem, ReportFacts, ReportSummary
from opscope_schemas.units import things

from opscope_tools.report.architecture import architecture_map
from opscope_tools.report.evidence import with_facts
from opscope_tools.report.markdown import POINTER, Page, number, table
from opscope_tools.report.outline import (
    COMPONENTS,
    DEEP_DIVE,
    NO_FURTHER,
    REPO_SECTIONS,
    REPO_TABLES,
    anchor,
    section_named,
)
from opscope_tools.report.pins import pinned
from opscope_tools.report.quotes import Quotes
from opscope_tools.report.render import Report, Template
from opscope_tools.report.sources import SourceReader
from opscope_tools.source.call_nesting import shortened

__all__ = ["RepoFacts", "render_repo"]

#: rows of tables and bullets of lists
_MODULES, _ENTRIES, _COMMANDS, _EXTENSIONS = 40, 12, 10, 12
_NEST_LINES = 60
_BESIDE = 8
_SHOWN = 90
#: characters of a README paragraph: fewer are a slogan or lead to code, more are not read
_SENTENCE, _GLANCE = 60, 400
#: lines of a README that say what it is about; what follows is usage, credits and licences
_TOP = 60
#: how a line of prose begins
_PROSE = re.compile(r"(?!\W*(?i:note|warning|news|update)\b)[A-Z*_`\"'“]\*{0,2}[^|]*\w")


class RepoFacts:
    """A map, the tree that it was made of, and a reader of its files."""

    def __init__(self, name: str, found: RepoMapResult, source: Source, place: str, reader: SourceReader) -> None:
        self.name, self.map, self.source, self.place, self.reader = name, found, source, place, reader


def render_repo(
    facts: RepoFacts,
    sections: Mapping[str, str],
    path: str,
    template: Template,
    review: Callable[[str, ReportFacts], Sequence[Problem]],
) -> Report:
    """The report on a repository; the self-review at its end lists what `review`, the checks, rejects in it.

    Raises `UnknownNameError` for a section that does not exist.
    """
    quotes, drawing = Quotes(), architecture_map(facts.map)
    context = {**_context(facts, quotes), "map": drawing.text, "map_note": drawing.note}
    prose: dict[str, str] = {}
    for key, text in sections.items():
        found = section_named(key, REPO_SECTIONS).number
        prose[found] = "\n\n".join(
            part for part in (prose.get(found), with_facts(text.strip(), quotes.values)[0]) if part
        )
    context["prose"] = prose
    draft = re.sub(r"\n{3,}", "\n\n", template({**context, "review": ["- [ ] pending"]}))
    kept = ReportFacts(
        kind="repo", name=facts.name, values=quotes.values, summary=_summary(facts, path), sources=(facts.source,),
        pins=pinned(Page(draft), facts.reader),
    )  # fmt: skip
    text = re.sub(r"\n{3,}", "\n\n", template({**context, "review": _review(draft, review(draft, kept))}))
    return Report(text=text, facts=kept, drawings=(drawing,))


def _context(facts: RepoFacts, quotes: Quotes) -> dict[str, object]:
    found = facts.map
    related = found.llm is not None and found.llm.related
    return {
        "name": facts.name, "repo": facts.place, "clone": f"registered as `{found.repository}`; paths are relative to its root", "commit": _commit(facts.source.version),
        "related": "yes" if related else "no", "signals": _signals(found),
        "summary": _tldr(found, quotes), "problem": list(_problem(found, facts.reader)),
        "modules": table(REPO_TABLES["modules"], _module_rows(found)), "skipped": list(_skipped(found)),
        "install": list(_install(found)), "entries": list(_entries(found)),
        "configuration": table(REPO_TABLES["configuration"], _configuration_rows(found, quotes)),
        "configuration_notes": list(_configuration_notes(found)),
        "components": table(REPO_TABLES["components"], list(_component_rows(found))),
        "deep": related, "nests": [(nest.entry, _pointer(nest.at), _nest(nest, found.repository), nest.cut) for nest in found.loops],
        "candidates": [f"`{p.name}` ({_pointer(p.at)})" for p in found.loop_candidates[:6]],
        "cache": _topics(found.kv_cache, "KV cache"), "scheduler": _topics(found.scheduler, "scheduler"),
        "sampling": _topics(found.sampling, "sampling"), "kernels": _topics(found.kernels, "kernels"),
        "extensions": table(REPO_TABLES["extensions"], list(_extension_rows(found))),
        "pitfalls": list(_pitfalls(found)), "questions": list(_questions(found)),
    }  # fmt: skip


def _commit(version: str) -> str:
    if re.fullmatch(r"[0-9a-f]{40}", version):
        return f"`{version}`"
    return (
        f"none: not a git checkout; version {version}"
        if version
        else "none: not a git checkout, and no version is spelt out"
    )


# ---- words ----------------------------------------------------------------------------------------------------------


def _pointer(at: str) -> str:
    """A pointer in back-ticks, where a reader of pointers can follow it; else the path alone."""
    if POINTER.fullmatch(at):
        return f"`{at}`"
    return "`" + at.rpartition(":")[0].rpartition("/")[0] + "/`" if "/" in at else "`" + at.rpartition(":")[0] + "`"


def _code(text: str, most: int = _SHOWN) -> str:
    """Source as a code span on one line: no back-ticks, no braces that look like places to fill."""
    plain = " ".join(text.split()).translate(str.maketrans("`{}", "'()"))
    return f"`{plain[:most]}{'...' if len(plain) > most else ''}`" if plain else ""


def _several(count: int, noun: str) -> str:
    return f"{number(count)} {things(count, noun)}"


def _said(text: str) -> str:
    """What source says in words, in quotation marks."""
    return '"' + re.sub(r"[`\"{}<>\[\]]", "", " ".join(text.split())).strip() + '"'


def _named(place: Place) -> str:
    """A place with its name: a symbol that stands on its line, else what it names in quotation marks."""
    name = place.name if re.fullmatch(r"[A-Za-z_][\w.]*", place.name) else ""
    return f"`{name}` ({_pointer(place.at)})" if name else f"{_pointer(place.at)}"


def _signals(found: RepoMapResult) -> str:
    if found.llm is None:
        return "not looked for"
    shown = [f"{s.name} {number(s.count)}" for s in found.llm.signals if s.count]
    return ", ".join(shown) or "none: " + "; ".join(s.searched or s.name for s in found.llm.signals[:4])


# ---- summary --------------------------------------------------------------------------------------------------------


def _tldr(found: RepoMapResult, quotes: Quotes) -> list[str]:
    languages = ", ".join(f"{name} {number(count)}" for name, count in list(found.languages.items())[:4])
    lines = [
        f"{found.repository}: {found.framework or 'no framework of those looked for'}; {quotes('files', found.files or 0)} {things(found.files or 0, 'file')}, "
        f"{quotes('lines', found.lines or 0)} {things(found.lines or 0, 'line')} ({languages})."
    ]
    modes = [
        f"{m.name} ({_several(m.count, 'line')}, first {_pointer(m.places[0].at)})"
        for m in found.execution
        if m.count and m.places
    ]
    lines.append(
        f"Execution: {'; '.join(modes[:5])}." if modes else "Execution: none of the modes looked for was found."
    )
    if found.entry_points:
        first = found.entry_points[0]
        lines.append(
            f"Ways in: {quotes('entry_points', found.totals.get('entry_points', len(found.entry_points)))}, first {first.kind} {_code(_started(first))} ({_pointer(first.at)})."
        )
    else:
        lines.append("Ways in: none of those looked for was found.")
    best = {c.role: c.candidates[0] for c in found.components if c.candidates}
    known = [(role, c) for role, c in best.items() if not c.weak and role != "most imported"]
    if known:
        doubted = [role for role, c in best.items() if c.weak]
        lacking = [c.role for c in found.components if not c.candidates and not c.searched.startswith("not looked for")]
        shown = "; ".join(f"{role} `{c.name}` ({_pointer(c.at)})" for role, c in known[:4])
        beside = f"; doubtful: {', '.join(doubted)}" if doubted else ""
        beside += f"; not found: {', '.join(lacking)}" if lacking else ""
        lines.append(f"Components: {shown}{beside}.")
    elif best:
        lines.append(
            "Components: none whose body shows its work; the table of key components says what looks like one."
        )
    else:
        lines.append("Components: none; searched every class and function outside tests and examples.")
    lines.append(
        f"Configuration: {quotes('environment', found.totals.get('environment.variables', len(found.environment.variables)))} environment variables, "
        f"{quotes('flags', found.totals.get('flags.flags', len(found.flags.flags)))} flags, "
        f"{quotes('config_classes', found.totals.get('config_classes', len(found.config_classes)))} configuration classes."
    )
    lines.append(
        f"Made for extension: {quotes('extensions', found.totals.get('extensions', len(found.extensions)))} registries, bases, decorators and plugin groups."
    )
    return lines


def _readme(reader: SourceReader) -> Place | None:
    """The first paragraph of prose of the README: no heading, badge, image, list, table or code."""
    for name in ("README.md", "README.rst", "README.txt", "README"):
        fenced = False
        lines = (reader.lines(name) or [])[:_TOP]
        for place, line in enumerate(lines):
            fenced ^= line.lstrip().startswith("```")
            if fenced or not _PROSE.match(line) or (place and lines[place - 1].strip()):
                continue
            paragraph = []
            for following in lines[place:]:
                if not following.strip() or following.lstrip().startswith(("```", "#", "<", "|", "- ", "* ")):
                    break
                paragraph.append(html.unescape(re.sub(r"!?\[([^\]]*)\]\([^)]*\)|\*\*", r"\1", following)).strip())
            text = " ".join(paragraph)
            if len(text) >= _SENTENCE and not text.endswith(":"):
                return Place(name=name, at=f"{name}:{place + 1}", text=_sentences(text))
    return None


def _sentences(text: str, most: int = _GLANCE) -> str:
    """The first sentences of a text, as many as one reads at a glance."""
    if len(text) <= most:
        return text
    end = max(text.rfind(stop, 0, most) for stop in (". ", "! ", "? "))
    return text[: end + 1] if end > 0 else text[: text.rfind(" ", 0, most)] + " ..."


def _problem(found: RepoMapResult, reader: SourceReader) -> Iterator[str]:
    """What the distribution, its README and the packages say of themselves, and what there is to run."""
    summary = found.distribution.summary if found.distribution else None
    if found.distribution and summary:
        yield f"The distribution {found.distribution.name} says of itself: {_said(summary.text)} ({_pointer(summary.at)})"
    if (readme := _readme(reader)) is not None:
        yield f"Its README says: {_said(readme.text)} ({_pointer(readme.at)})"
    for module in found.directories + found.modules:
        if module.says and "/" not in module.path:
            yield f"`{module.path}/` says of itself: {_said(module.says)} ({_pointer(module.at)})"
            break
    else:
        if not summary and readme is None:
            yield "No package at the top says what it is for: searched their docstrings and the metadata beside them."
    kinds: dict[str, list[str]] = {}
    for entry in found.entry_points:
        kinds.setdefault(entry.kind, []).append(f"{_code(_started(entry))} ({_pointer(entry.at)})")
    for kind, entries in list(kinds.items())[:3]:
        yield f"It is run as {kind}: {', '.join(entries[:3])}"
    if not kinds:
        yield "It is a library: no console script, main block, server or benchmark was found."


# ---- tables ---------------------------------------------------------------------------------------------------------


def _module_rows(found: RepoMapResult) -> list[tuple[str, str, str]]:
    rows = []
    held = found.modules or found.directories
    largest = {module.path for module in sorted(held, key=lambda module: -module.lines)[:_MODULES]}
    for module in (module for module in held if module.path in largest):
        says = f"; {_said(module.says)}" if module.says else ""
        at = f" ({_pointer(module.at)})" if module.at else ""
        counted = (
            f"{_several(module.files, 'file')}, {_several(module.lines, 'line')}, {_several(module.classes, 'class')}"
        )
        rows.append(
            (f"`{module.path}/`" if "." not in module.path else f"`{module.path}`", module.role, f"{counted}{says}{at}")
        )
    return rows or [("none found", "searched for folders with source", "0 files")]


def _skipped(found: RepoMapResult) -> Iterator[str]:
    """What the module map leaves out."""
    if (count := len(found.modules)) > _MODULES:
        command = f"opscope map-repo {found.repository} --section modules --limit 500"
        yield f"The {_MODULES} rows with the most lines of {number(count)}; all: `{command}`"
    for one in found.skipped[:8]:
        yield f"`{one.path}`: left out: {one.reason} ({one.files} files)"


def _install(found: RepoMapResult) -> Iterator[str]:
    kinds = [c for c in found.commands if c.kind in ("install", "build", "test", "run")] or list(found.commands)
    for command in kinds[:_COMMANDS]:
        yield f"{_code(command.command)} (what it does: {command.kind}, as {command.source} says at {_pointer(command.at)})"
    held = found.distribution
    if held is not None and held.requires:
        shown = ", ".join(f"{_code(place.text)} ({_pointer(place.at)})" for place in held.requires[:_COMMANDS])
        more = f"; {len(held.requires) - _COMMANDS} more" if len(held.requires) > _COMMANDS else ""
        yield f"Installing {held.name} {held.version} asks for {shown}{more}"
    for script in [e for e in found.entry_points if e.kind == "console script"][:_COMMANDS]:
        yield f"Installing puts {_code(_started(script))} on the path ({_pointer(script.at)})"
    if not found.commands:
        yield "Commands: none found: searched manifests, Makefiles, Dockerfiles, CI files, scripts and README fences."


_HEADS = (
    ("CLI", ("console script", "main module", "main block", "plugin")), ("Server", ("server", "route")),
    ("Benchmarks/examples", ("benchmark", "example")),
)  # fmt: skip


def _started(entry: EntryPoint) -> str:
    """What starts a way in; a console script as manifests spell it, since its name alone reads like a symbol of the file."""
    return f"{entry.name} = {entry.text}" if entry.kind == "console script" and entry.text else entry.name


def _entries(found: RepoMapResult) -> Iterator[str]:
    for head, kinds in _HEADS:
        entries = [e for e in found.entry_points if e.kind in kinds]
        for entry in entries[: _ENTRIES // 3]:
            runs = f", runs {_pointer(entry.target)}" if entry.target else ""
            yield f"{head}: {_pointer(entry.at)} (what it does: {entry.kind} {_code(_started(entry))}{runs})"
        if not entries:
            yield f"{head}: none found: searched for {', '.join(kinds)}."


def _configuration_rows(found: RepoMapResult, quotes: Quotes) -> list[tuple[str, str, str]]:
    rows = []
    for how, count in found.environment.by_mechanism.items():
        variables = [v for v in found.environment.variables if v.how == how]
        shown = ", ".join(f"`{v.name}`" for v in variables[:5])
        where = _pointer(variables[0].at) if variables else "several files"
        rows.append(
            (f"env vars: {how}", where, f"{quotes(f'environment.{how}', count)}: {shown or 'names made at run time'}")
        )
    for folder in found.config_files[:4]:
        keys = ", ".join(_code(k) for k in folder.keys[:5])
        rows.append(
            ("config files", f"`{folder.path}`", f"{number(folder.files)} files; keys {keys or 'none at the top'}")
        )
    used = [held for held in found.config_classes if held.importers] or list(found.config_classes)
    for held in used[:6]:
        fields = ", ".join(f"`{f.name}`" for f in held.fields[:5])
        rows.append(
            (
                f"config class: {held.kind}",
                f"`{held.name}` ({_pointer(held.at)})",
                f"{number(held.field_count)} fields: {fields or 'none of its own'}",
            )
        )
    for how, count in found.flags.by_mechanism.items():
        flags = [f for f in found.flags.flags if f.how == how]
        shown = ", ".join(f"`{f.names[0]}`" for f in flags[:5] if f.names)
        where = _pointer(flags[0].at) if flags else "several files"
        rows.append(
            (f"CLI flags: {how}", where, f"{quotes(f'flags.{how}', count)}: {shown or 'names made at run time'}")
        )
    return rows or [("none found", "searched for environment reads, flags and config classes", "0")]


def _configuration_notes(found: RepoMapResult) -> Iterator[str]:
    """Where the list is partial."""
    if found.environment.dynamic:
        yield f"Names of environment variables that are made at run time, not in the list: {_pointer(found.environment.dynamic[0])} and {len(found.environment.dynamic) - 1} more places."
    if found.environment.unexplained:
        shown = ", ".join(f"`{p.name}` ({_pointer(p.at)})" for p in found.environment.unexplained[:4])
        yield f"Names with a prefix of the project that nothing read here explains: {shown}."
    if found.flags.dynamic:
        yield f"Flags whose name is made at run time, not in the list: {_pointer(found.flags.dynamic[0])}."


def _component_rows(found: RepoMapResult) -> Iterator[tuple[str, str, str]]:
    """Each role with its best candidate; then what is imported most, until there are as many places as are asked for."""
    named: set[str] = set()
    for component in found.components:
        if component.role == "most imported":
            continue
        if component.candidates:
            best = component.candidates[0]
            named.add(best.at)
            yield component.role, f"`{best.name}` ({_pointer(best.at)})", _responsibility(best, component)
        elif component.searched.startswith("not looked for"):
            yield component.role, "not looked for", "nothing here shows a language model"
        else:
            yield (
                component.role,
                "not found",
                f"searched {_quoted(component.searched.partition('; in their bodies ')[0])}, and what every function does",
            )
    yield from _most_imported(found, named)


def _most_imported(found: RepoMapResult, named: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """The first of them, and as many more as the roles leave wanting; a row that says so where there are no more."""
    component = next((c for c in found.components if c.role == "most imported"), None)
    if component is None:
        return
    shown = len(named)
    for place, best in enumerate((c for c in component.candidates if c.at not in named and POINTER.fullmatch(c.at)), 1):
        if shown >= COMPONENTS and (place > 1 or not best.importers):
            return
        shown += 1
        alone = component.model_copy(update={"candidates": (best,)})
        title = component.role if place == 1 else f"{component.role}, {place}"
        yield title, f"`{best.name}` ({_pointer(best.at)})", _responsibility(best, alone)
    if shown < COMPONENTS:
        said = f"searched classes and functions outside tests and examples: {component.total} in all"
        yield NO_FURTHER, "not found", said


def _quoted(searched: str) -> str:
    """What was searched, its patterns as code: in plain Markdown their brackets and stars are links and emphasis."""
    ends = r"(?=; (?:functions, and|in their bodies|\d+ that bear)|$)"
    return re.sub(rf"\b(named|in their bodies) (.+?){ends}", r"\1 `\2`", searched)


def _responsibility(best: Candidate, component: Component) -> str:
    methods = ", ".join(f"`{m.name.rpartition('.')[2]}` ({_pointer(m.at)})" for m in best.methods[:3])
    others = ", ".join(f"`{c.name}` ({_pointer(c.at)})" for c in component.candidates[1:3])
    said = [f"doubtful: {best.weak}"] if best.weak else []
    said += [_said(_sentences(best.says, _GLANCE // 2))] if best.says else []
    said += dict.fromkeys(place.text for place in best.does if place.text)
    said += [f"{_several(best.lines, 'line')}, imported by {_several(best.importers, 'file')}"]
    said += [f"does it in {methods}"] if methods else []
    said += [f"its body has `{best.does[0].name}` ({_pointer(best.does[0].at)})"] if best.does and not methods else []
    said += [f"other candidates: {others}"] if others else []
    return "; ".join(said)


def _extension_rows(found: RepoMapResult) -> Iterator[tuple[str, str, str]]:
    for fact in found.extensions[:_EXTENSIONS]:
        sibling = next(
            (
                f"; `{s.name}` ({_pointer(s.at)}) is there already"
                for s in fact.siblings
                if re.fullmatch(r"[\w.]+", s.name) and s.name != fact.name
            ),
            "",
        )
        yield (
            f"add to {_code(fact.name)}",
            _pointer(fact.at),
            f"{fact.kind} with {_several(fact.count, 'entry')}{sibling}",
        )
    if not found.extensions:
        yield "none found", "searched", "registries, abstract bases, `register_` decorators and plugin groups"


# ---- deep dive ------------------------------------------------------------------------------------------------------


def _nest(nest: CallNest, repository: str) -> str:
    """The nesting, each line with its place; indentation is depth in the syntax tree. Deep lines are left out first."""
    shown = shortened(nest.lines, _NEST_LINES)
    codes = [f"{'  ' * line.depth}{' '.join(line.code.split()).translate(str.maketrans('{}', '()'))}" for line in shown]
    width = min(max((len(code) for code in codes), default=0), 96)
    rows = [
        f"{code:<{width}}  # {line.at}{f' ({_again(line)})' if _again(line) else ''}"
        for code, line in zip(codes, shown, strict=True)
    ]
    if left := len(nest.lines) - len(shown):
        command = f"opscope map-repo {repository} --section loop --entry {nest.entry} --limit 500"
        rows.append(f"... {left} deeper lines are left out; all: {command}")
    return "\n".join(rows) or "nothing that belongs to a stage of an engine is called here"


def _others(places: Sequence[Place]) -> str:
    """The classes after the first ones: other candidates, then those that share a base with a candidate."""
    said = ""
    for what, derived in (("others", False), ("of the same bases", True)):
        chosen = [place for place in places if place.text.startswith("derives from ") == derived]
        shown = ", ".join(_named(place) for place in chosen[:_BESIDE])
        more = f" and {len(chosen) - _BESIDE} more" if len(chosen) > _BESIDE else ""
        said += f"; {what}: {shown}{more}" if chosen else ""
    return said


def _again(line: NestLine) -> str:
    return next((said for said in ("as above", "as below") if line.note.endswith(said)), "")


def _topics(topics: Iterable[Counted], what: str) -> list[str]:
    lines = []
    for position, topic in enumerate(topics):
        if topic.count:
            own = [place for place in topic.places if not place.text.startswith("derives from ")]
            places = ", ".join(dict.fromkeys(_named(place) for place in own[:4])) or "no line kept"
            if position == 0:  # the classes of the role: the others are named too
                places += _others([place for place in topic.places if place not in own[:4]])
            scope = f" ({_code(topic.scope, 300)})" if topic.scope else ""
            lines.append(
                f"{topic.name[:1].upper()}{topic.name[1:]}: {places}; {number(topic.count)} places in {number(topic.files)} files{scope}"
            )
        else:
            lines.append(
                f"{topic.name[:1].upper()}{topic.name[1:]}: none found: searched {_quoted(topic.searched) or what}"
            )
    return lines or [f"None found: searched for {what}."]


# ---- end ------------------------------------------------------------------------------------------------------------


#: what shows a pitfall, by a word of its name
_DETECT = (
    ("warning", "its message in the log"),
    ("deprecat", "its message in the log"),
    ("implemented", "the error is raised"),
)


def _pitfalls(found: RepoMapResult) -> Iterator[str]:
    for topic in found.pitfalls:
        noted = re.search(r"\b(?:TODO|FIXME|XXX)\b", topic.name)
        detect = next((how for word, how in _DETECT if word in topic.name.lower()), "by reading: it is a note")
        shown = [_met(place) for place in topic.places[:2]]
        if shown:
            name = "notes of work to do" if noted else topic.name
            conditions = [place.condition for place in topic.places[:2] if place.condition]
            fix = (
                f"keep {_code(conditions[0], 110)} from holding"
                if conditions
                else "see the lines: no condition stands around them"
            )
            yield f"{name}: {number(topic.count)} places, such as {', '.join(shown)} (how to detect: {detect}; fix: {fix})"
    if not any(topic.places for topic in found.pitfalls):
        yield "None found: searched source, tests and examples left out, for warnings, deprecations, NotImplementedError and notes of work to do."


def _met(place: Place) -> str:
    """A pitfall as its line says it, with the condition that it runs under."""
    where = f" where {_code(place.condition, 110)}" if place.condition else ""
    return f"{_code(place.text)} {_named(place)}{where}".strip()


def _questions(found: RepoMapResult) -> Iterator[str]:
    for place in found.environment.unexplained[:2]:
        yield f"What reads `{place.name}` ({_pointer(place.at)})?"
    for component in found.components:
        if not component.candidates and not component.searched.startswith("not looked for"):
            yield f"Where is the {component.role}, if there is one? No class or function is called so and does its work."
        elif component.candidates and component.candidates[0].weak and component.role != "most imported":
            best = component.candidates[0]
            yield f"Is `{best.name}` ({_pointer(best.at)}) the {component.role}? Doubtful: {best.weak}."
    if found.environment.dynamic:
        yield f"Which environment variables does {_pointer(found.environment.dynamic[0])} read, whose names are made at run time?"
    yield "Which of the candidates above run in a given configuration? The map reads source and runs nothing."


def _review(draft: str, problems: Sequence[Problem]) -> list[str]:
    """The checklist, each item with what the checks found."""
    page = Page(draft)
    by_rule: dict[str, int] = {}
    for problem in problems:
        by_rule[problem.rule] = by_rule.get(problem.rule, 0) + 1
    pointers = sum(len(POINTER.findall(line)) for line in page.lines)
    wrong = sum(
        n
        for rule, n in by_rule.items()
        if rule in ("PATH_MISSING", "LINE_OUT_OF_BOUNDS", "LINE_BLANK", "SYMBOL_MISMATCH")
    )
    items = (
        ("TL;DR is made of counts and pointers, and praises nothing", ("PRAISE", "HEDGE", "TLDR_LENGTH")),
        ("Module map has paths that exist, and a role for each", ("PATH_MISSING", "TABLE_EMPTY", "EMPTY_ROW")),
        ("Key components have pointers at which the named symbol stands", ("SYMBOL_MISMATCH", "TOO_FEW_COMPONENTS")),
        ("Deep dive stands where the repository is about language models, and only there", ("SECTION_MISSING", "SECTION_UNDUE")),
        ("No placeholder is left", ("PLACEHOLDER",)),
    )  # fmt: skip
    lines = [
        f"- [{' ' if (count := sum(by_rule.get(rule, 0) for rule in rules)) else 'x'}] {text}: {count} problems."
        for text, rules in items
    ]
    return [*lines, f"- [{' ' if wrong else 'x'}] {pointers} pointers were followed: {wrong} problems."]


def _summary(facts: RepoFacts, path: str) -> ReportSummary:
    found = facts.map
    best = [f"{c.role}: {c.candidates[0].name} ({c.candidates[0].at})" for c in found.components if c.candidates]
    links = [
        s
        for s in REPO_SECTIONS
        if s.heading.startswith("## ") and (s.number != DEEP_DIVE or (found.llm and found.llm.related))
    ]
    return ReportSummary(
        insights=(f"{found.repository}: {found.framework or 'no known framework'}, {_several(found.files or 0, 'file')}, {_several(found.lines or 0, 'line')}.", *best[:6]),
        limitations=tuple(found.notes), links=tuple(f"{path}#{anchor(s.heading)}" for s in links),
    )  # fmt: skip
