"""The tool `write_report`: gathers the facts with the other tools, renders the report, checks it, saves it.

Order: arguments, gathering (which calls the sibling tools through the runner, so their answers come from the cache),
the checks that decide whether anything is written, the tool.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from opscope_prompts.loader import narrative_text
from opscope_prompts.templates import render_template
from opscope_schemas.analysis import ModelAnalysis, ModelAnalysisResult, ModelTreeResult
from opscope_schemas.common import Source, ToolArguments, ToolResult
from opscope_schemas.dataflow import Dataflow
from opscope_schemas.errors import CancelledError, InputError, OpscopeError, TraceError
from opscope_schemas.estimates import RooflineResult
from opscope_schemas.extracted_config import Check, ExtractConfigResult
from opscope_schemas.report import Problem, ReportFacts, ReportKind, WriteReportResult
from opscope_schemas.tiling import TilingResult
from pydantic import Field

from opscope_tools.collect_evidence.files import evidence_path, read_evidence, record_problems, whole
from opscope_tools.costing.arguments import IDLE
from opscope_tools.costing.checkpoints import checkpoint_named, stored_by
from opscope_tools.costing.configured import checkpoint_of
from opscope_tools.count_flops import COUNT_FLOPS
from opscope_tools.cuda_kernel_tiling import CUDA_KERNEL_TILING
from opscope_tools.estimate_roofline.placing import fewest_that_hold, grids, of_more, pass_of, spread_over
from opscope_tools.estimate_roofline.tool import ESTIMATE_ROOFLINE, devices_of
from opscope_tools.expand_refs import EXPAND_REFS
from opscope_tools.extract_config.tool import EXTRACT_CONFIG
from opscope_tools.hardware.calibration import calibration_for
from opscope_tools.hardware.devices import Device, devices
from opscope_tools.inspect_model import INSPECT_MODEL
from opscope_tools.map_repo import MAP_REPO
from opscope_tools.report.checks import Material, check
from opscope_tools.report.crossing import Crossed
from opscope_tools.report.edits import packed
from opscope_tools.report.facts import ImplementationFacts, SizedAs, default_point, position_limit
from opscope_tools.report.kinds import windowed
from opscope_tools.report.live import live_data
from opscope_tools.report.markdown import Page
from opscope_tools.report.overview import checked
from opscope_tools.report.plots import Plot, plots
from opscope_tools.report.post import Post, render_post, told, topic_named
from opscope_tools.report.post_checks import check_post
from opscope_tools.report.render import Report, render, section_problems
from opscope_tools.report.repo import RepoFacts, render_repo
from opscope_tools.report.saving import check_writable, exists_beside, facts_path, inside, page_path, report_path, save
from opscope_tools.report.sources import SourceReader
from opscope_tools.report.traits import traits_of
from opscope_tools.report.webpage import web_page
from opscope_tools.running.config_files import described
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.settings import PythonSource, checks_of
from opscope_tools.trace.protocol import ALONE
from opscope_tools.trace_dataflow import TRACE_DATAFLOW

__all__ = ["WRITE_REPORT", "Draft", "WriteReportArguments", "drafted", "gather", "post_of"]

_FIRST = 40
#: kernels that one report shows
_MOST_KERNELS = 12
#: sequences of the passes that a page holds beside the report's own, and positions below which none is traced at the last
_SEVERAL, _FEWEST = 8, 16
#: what is reported where nobody says otherwise; the second where the model can
_PHASES = ("prefill", "decode")


class WriteReportArguments(ToolArguments):
    """Arguments of `write_report`."""

    kind: ReportKind = Field(
        default="implementation", description="Of a model, a registered repository; post: of collected evidence."
    )
    name: str = Field(
        description="Saved as reports/implementations/NAME-analysis.md or reports/repos/NAME.md; of a post its topic."
    )
    target: str | None = Field(default=None, description="Model type, model class or repository; default: the name.")
    sections: dict[str, str] | None = Field(
        default=None,
        description="Your Markdown below the computed text, by section number (1, 2.3) or heading (KV cache). Each paragraph and bullet cites lines "
        "(`path.py:12-20`), a number of the analysis ({{fact:key}}), or a search that found nothing (searched "
        "`PATTERN` in `PATH`). Every quantity is a {{fact:key}}, in words too; what is said of the model has to be so. Of a post: by heading, or `post` "
        "for all of it, with {{fact:record.field}}, {{output:record}}, {{picture:record}}, {{holds:a.b > 2 * c.d}}.",
    )
    phases: tuple[Literal["prefill", "decode", "encode"], ...] | None = Field(
        default=None,
        min_length=1,
        description="Default: prefill, decode if cached.",
    )
    config: str | dict[str, Any] | None = Field(default=None, description="Path of a config.json, or overrides.")
    values: dict[str, int] | None = Field(default=None, description="Point: batch_size, seq_len, ...")
    hardware: str = Field(default="h100_sxm", description="Device of times, as many as hold it, or DEVICE:NUMBER.")
    kernel: str | None = Field(default=None, description="CUDA or Triton kernel that section 3.2 shows.")
    ridge: float | None = Field(
        default=None, gt=0, description="FLOPs per byte that a device balances, in place of hardware's."
    )
    html: bool = Field(default=False, description="As a page too.")
    overwrite: bool = Field(default=False, description="Replace that report.")


# ---- gathering ------------------------------------------------------------------------------------------------------


def _steps(arguments: WriteReportArguments) -> float:
    """Progress has one step per phase, and one each for the tree, the rendering and the saving."""
    return len(set(arguments.phases or _PHASES)) + 3.0


def gather(arguments: WriteReportArguments, context: ToolContext, date: str = "") -> ImplementationFacts:
    """Everything that the report is computed from; reports progress, raises the siblings' errors. The date is today's where
    none is given."""
    target = arguments.target or arguments.name
    config = {} if arguments.config is None else {"config": arguments.config}
    phases = tuple(dict.fromkeys(arguments.phases or _PHASES))
    skipped: list[str] = []
    total = _steps(arguments)
    device, _ = devices_of(arguments.hardware, None, context)
    context.progress(0, total, f"inspecting {target}")
    tree = run_tool(INSPECT_MODEL, {"model": target, **config}, context)
    answers: list[ModelAnalysisResult] = []
    flows: list[Dataflow] = []
    general: list[tuple[ModelAnalysis, Dataflow]] = []
    estimates: dict[str, RooflineResult] = {}
    made: list[Mapping[str, object]] = []
    for phase in phases:
        context.checkpoint()
        context.progress(1.0 + len(answers), total, f"expanding {phase}")
        point = default_point(phase, arguments.values or {}, position_limit(tree))
        values = {name: value for name, value in point.items() if name != "cache_len" or phase == "decode"}
        asked = {"target": target, "phase": phase, "values": values, "logits": "last", "detail": "formulas", **config}
        try:
            expanded = run_tool(EXPAND_REFS, asked, context)
        except TraceError as error:
            if arguments.phases is not None or not answers:
                raise
            skipped.append(f"{phase}: not reported: {error.message}")
            continue
        answers.append(expanded)
        made.append(asked)
        linked = run_tool(TRACE_DATAFLOW, asked, context)
        flows.append(linked.document)
        if arguments.html:
            general += _elsewhere(asked, values, position_limit(tree), context)
        with _noted(f"{phase}: no time: ", skipped):
            estimates[expanded.document.phase] = run_tool(
                ESTIMATE_ROOFLINE, {**pass_of(asked), "hardware": arguments.hardware}, context
            )
    passes: dict[str, Mapping[str, object]] = {
        answer.document.phase: asked for answer, asked in zip(answers, made, strict=True)
    }
    held = fewest_that_hold(arguments.hardware, passes, estimates, context)
    spread, unspread = spread_over(arguments.hardware, made[-1], context)
    prompt = passes.get("prefill")
    of_prompt = (
        spread_over(arguments.hardware, prompt, context)[0] if prompt is not None and prompt is not made[-1] else {}
    )
    growing = "decode" if "decode" in passes else next(iter(passes))
    alone = (held or estimates).get(growing)
    batched = of_more(arguments.hardware, passes[growing], alone, context) if alone is not None else ()
    tiling = _tiling(arguments.kernel, context)
    settings = _settings(target, config, tree, context, skipped)
    kernels = tuple(_kernel_settings(tiling, context))
    results: list[ToolResult] = [tree, *answers, *([settings] if settings else []), *([tiling] if tiling else [])]
    peak, units = device.peak("bf16")
    rates = (
        f"{peak / 1e12:,.4g} TFLOP/s dense {units} over {device.bandwidth / 1e12:.3g} TB/s, figures of {device.name}"
    )
    given = _given(target, arguments.config, context)
    idle = [note for answer in answers for note in answer.notes if IDLE in note or note.startswith(ALONE)]
    facts = ImplementationFacts(
        name=arguments.name,
        target=target,
        date=date or _today(),
        sources=tuple(dict.fromkeys(source for result in results for source in result.sources)),
        reader=SourceReader(context.workspace.repositories.values(), context.checkpoint),
        tree=tree,
        documents=tuple(answer.document for answer in answers),
        graphs=tuple(flows),
        values=arguments.values or {},
        given=given,
        sized_as=_sized_as(tree, answers[0].document, context) if given is None else None,
        points={a.document.phase: a.evaluated.values for a in answers if a.evaluated},
        notes=(*(f"{a.document.phase}: {note}" for a in answers for note in a.notes), *skipped),
        tiling=tiling,
        kernel_settings=kernels,
        settings=settings,
        estimates=estimates,
        held=held,
        growing=growing,
        batched=batched,
        spread=spread,
        spread_prefill=of_prompt,
        unspread=unspread,
        joined=_joined(device, max(spread, default=0)),
        general=tuple(general),
        active=_active(answers[0].document, made[0], context),
        idle=tuple(idle[:1]) if len(idle) == len(answers) else (),
        ridge=arguments.ridge or max(1, round(peak / device.bandwidth)),
        ridge_source="given by the caller" if arguments.ridge else rates,
    )
    crossed = _crossed(facts, passes.get("prefill"), position_limit(tree), context)
    return replace(facts, checks=tuple(_checks(facts)), crossed=crossed)


def _crossed(
    facts: ImplementationFacts, asked: Mapping[str, Any] | None, limit: int | None, context: ToolContext
) -> Crossed | None:
    """A prefill of twice the window's tokens, or as many as there are positions; None where the report's own is one."""
    found = windowed(facts)
    if found is None or asked is None or asked["values"].get("seq_len", found.tokens + 1) > found.tokens:
        return None
    tokens = min(2 * found.tokens, limit or 2 * found.tokens)
    if tokens <= found.tokens:
        return None
    there = {**asked, "values": {**asked["values"], "seq_len": tokens}}
    with contextlib.suppress(TraceError, InputError):
        flow = run_tool(TRACE_DATAFLOW, there, context)
        if flow.evaluated is not None:
            return Crossed(flow.document, flow.evaluated.values, found.tokens, tokens)
    return None


def _elsewhere(
    asked: Mapping[str, object], values: Mapping[str, object], limit: int | None, context: ToolContext
) -> Iterator[tuple[ModelAnalysis, Dataflow]]:
    """The pass as it is traced elsewhere: at any sizes, for a batch, and beside both at the model's last position, where windows are full."""
    length = "cache_len" if "cache_len" in values else "seq_len"
    points: list[dict[str, object] | None] = [None, {**values, "batch_size": _SEVERAL}]
    if limit is not None and length in values and limit > _FEWEST:
        last = limit - 2 if length == "cache_len" else limit
        points += [{**values, length: last}, {**values, "batch_size": _SEVERAL, length: last}]
    known: set[tuple[str, ...]] = set()
    for point in points:
        there = {**asked, "values": point} if point is not None else {n: v for n, v in asked.items() if n != "values"}
        with contextlib.suppress(TraceError, InputError):
            document = run_tool(EXPAND_REFS, there, context).document
            if document.conditions not in known:
                known.add(document.conditions)
                yield document, run_tool(TRACE_DATAFLOW, there, context).document


@contextlib.contextmanager
def _noted(what: str, notes: list[str]) -> Iterator[None]:
    """Puts a refusal among the notes; a call that was broken off is none."""
    try:
        yield
    except CancelledError:
        raise
    except OpscopeError as error:
        notes.append(f"{what}{error.message}")


def _joined(device: Device, devices: int) -> str:
    """The link that times over several devices stand on, between commas."""
    link = device.link(devices) if devices else None
    return f", joined by {link.name} at {link.bytes_per_second / 1e9:,.4g} GB/s each way" if link is not None else ""


def _active(document: ModelAnalysis, asked: Mapping[str, object], context: ToolContext) -> int | None:
    """Parameters that one token meets; None: all that there are, or not known."""
    if not any("expert" in variable.name for variable in document.variables):
        return None
    numbers = run_tool(COUNT_FLOPS, {**asked, "detail": "numbers"}, context).numbers
    return numbers.active_parameters if numbers is not None else None


def _given(
    target: str, config: str | dict[str, object] | None, context: ToolContext
) -> Mapping[str, object] | str | None:
    """The configuration that the caller gave; a target may be one itself."""
    own, checkpoint = described(context.workspace, target), checkpoint_named(target)
    return str(own.path) if own is not None else checkpoint.name if checkpoint is not None else config or None


def _sized_as(tree: ModelTreeResult, document: ModelAnalysis, context: ToolContext) -> SizedAs | None:
    """The checkpoint of opscope's table that has the sizes of the class's defaults."""
    sizes = {
        one.config_key: one.default for one in document.variables if one.config_key and isinstance(one.default, int)
    }
    found = checkpoint_of(context.workspace, tree.config_class, sizes)
    return SizedAs(found.name, stored_by(found.name)) if found is not None else None


def _checks(facts: ImplementationFacts) -> Iterator[Check]:
    """Checks of the classes and functions that ran, and of the configuration class."""
    for path, names in checked(facts).items():
        lines = facts.reader.lines(path)
        yield from checks_of(PythonSource(path, "\n".join(lines)), names) if lines is not None else []


def _quietly(arguments: Mapping[str, object], context: ToolContext) -> ExtractConfigResult:
    """What `extract_config` says; its progress is not the report's."""
    return run_tool(
        EXTRACT_CONFIG, {**arguments, "detail": "full"}, ToolContext(context.workspace, cancelled=context.cancelled)
    )


def _settings(
    target: str, config: Mapping[str, object], tree: ModelTreeResult, context: ToolContext, skipped: list[str]
) -> ExtractConfigResult | None:
    """What source says of the configuration that the model was built with; None, and a note, where it cannot be read."""
    why = ""
    for asked in (target, tree.config_class):
        try:
            found = _quietly({"target": asked, **config}, context)
        except OpscopeError as error:
            why = error.message
            continue
        if found.configurations and found.configurations[0].class_name == tree.config_class:
            return found
        why = f"{asked} is configured by another class than the model was built with."
    skipped.append(f"configuration: its source was not read: {why}")
    return None


def _kernel_settings(tiling: TilingResult | None, context: ToolContext) -> Iterator[ExtractConfigResult]:
    for kernel in tiling.kernels[:_MOST_KERNELS] if tiling is not None else ():
        yield _quietly({"target": kernel.id}, context)


def _tiling(kernel: str | None, context: ToolContext) -> TilingResult | None:
    if kernel is None:
        return None
    return run_tool(CUDA_KERNEL_TILING, {"target": kernel}, context)


def _today() -> str:
    return datetime.datetime.now(datetime.UTC).date().isoformat()


# ---- the report before it is saved ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draft:
    """A report before it is saved: what is rejected in the agent's sections, its plots, the source that it speaks of, and what its own
    checks doubt where no agent wrote in it."""

    report: Report
    problems: tuple[Problem, ...]
    plots: list[Plot]
    live: str
    reader: SourceReader
    sources: tuple[Source, ...]
    doubts: tuple[Problem, ...] = ()


def _template(name: str) -> Callable[[Mapping[str, object]], str]:
    return lambda values: render_template(name, values)


def drafted(arguments: WriteReportArguments, context: ToolContext, date: str = "") -> Draft:
    """The report that the arguments give, as of `date` or today, with all that its facts file keeps. The same arguments give the
    same report on the same source, so `check_report` makes it a second time to compare.

    Raises what the tools raise that the report is gathered with.
    """
    path, date = report_path(arguments.name, arguments.kind), date or _today()
    if arguments.kind == "post":
        draft = _of_post(arguments, date, context)
    elif arguments.kind == "repo":
        draft = _of_repository(arguments, path, context)
    else:
        draft = _of_model(arguments, path, date, context)
    if _of_opscope_alone(arguments):
        draft = _doubted(draft, path, context)
    left_out = {"overwrite", "html", *(["target"] if arguments.target == arguments.name else [])}  # the name says it
    kept = {
        "arguments": arguments.model_dump(mode="json", exclude_defaults=True, exclude=left_out),
        "date": date,
        "text": packed(draft.report.text),
    }
    return replace(draft, report=replace(draft.report, facts=draft.report.facts.model_copy(update=kept)))


def _of_opscope_alone(arguments: WriteReportArguments) -> bool:
    """Whether no prose stands in the report that somebody could mend."""
    return arguments.kind != "post" and not arguments.sections


def _doubted(draft: Draft, path: str, context: ToolContext) -> Draft:
    """With a sentence at the end on the lines that its own checks doubt: nobody could repair them, and the rest is not lost for them."""
    doubts = _rejected(draft, path, context)
    if not doubts:
        return draft
    lines = ", ".join(f"{problem.line} ({problem.rule})" for problem in doubts[:_FIRST])
    text = f"{draft.report.text.rstrip()}\n\n> Its own checks doubt what stands on these lines: {lines}. check_report says why.\n"
    return replace(draft, report=replace(draft.report, text=text), doubts=doubts)


def _of_model(arguments: WriteReportArguments, path: str, date: str, context: ToolContext) -> Draft:
    facts = gather(arguments, context, date)
    sections = arguments.sections or {}
    context.progress(_steps(arguments) - 1, _steps(arguments), "rendering and checking")
    report = render(facts, sections, path, _template("implementation.md"))
    problems = tuple(section_problems(facts.reader, report.facts, sections, traits_of(facts)))
    drawn, live = (plots(facts), _live(arguments, facts, context)) if arguments.html and not problems else ([], "")
    return Draft(report, problems, drawn, live, facts.reader, facts.sources)


def _live(arguments: WriteReportArguments, facts: ImplementationFacts, context: ToolContext) -> str:
    """The data of the page's live part; the device that the report names is shown first."""
    device, _ = devices_of(arguments.hardware, None, context)
    context.progress(_steps(arguments) - 1, _steps(arguments), "pricing other batches, contexts and plans")
    known = {device.id: device, **devices(context.workspace.device_files)}
    table = [
        {
            "id": one.id,
            "name": one.name,
            "peaks": dict(one.peak_flops),
            "bandwidth": one.bandwidth,
            "usable": one.usable,
        }
        for one in known.values()
    ]
    if calibration_for(device) is None:
        return live_data(facts, table, device.id, [])
    others = {name: size for name, size in facts.values.items() if name not in ("batch_size", "seq_len", "cache_len")}
    asked = {"target": facts.target, "config": arguments.config, "values": others or None, "hardware": device.id}
    phases = [document.phase for document in facts.documents if document.phase in ("prefill", "decode")]
    return live_data(facts, table, device.id, [*grids(asked, phases, facts.limit, context)])


def _of_repository(arguments: WriteReportArguments, path: str, context: ToolContext) -> Draft:
    workspace = context.workspace
    repository = workspace.repository(arguments.target or arguments.name)
    context.progress(0, _steps(arguments), f"mapping {repository.name}")
    found = run_tool(MAP_REPO, {"repo": repository.name, "detail": "full"}, context)
    source, reader = workspace.source(repository), SourceReader([repository], context.checkpoint)
    held = found.distribution
    called = held.name if held else " and ".join(f"package {package}" for package in repository.packages)
    place = repository.name if called in {"", repository.name} else f"{repository.name}: {called}"
    place = f"{place} {held.version}".rstrip() if held else place
    if repository.installed:
        place = f"{source.repository} {source.version}, an installed package"
    facts = RepoFacts(arguments.name, found, source, place, reader)
    sections = arguments.sections or {}
    exists = partial(exists_beside, workspace.output, path)

    def review(text: str, kept: ReportFacts) -> list[Problem]:
        return check(Material(Page(text), reader, kept, (source,), exists))

    context.progress(_steps(arguments) - 1, _steps(arguments), "rendering and checking")
    report = render_repo(facts, sections, path, _template("repo.md"), review)
    problems = tuple(section_problems(reader, report.facts, sections))
    return Draft(report, problems, [], "", reader, (source,))


def _of_post(arguments: WriteReportArguments, date: str, context: ToolContext) -> Draft:
    """The post of a topic from its records; the narrative is the standard one where the agent gave none."""
    post = post_of(arguments, date, context)
    context.progress(_steps(arguments) - 1, _steps(arguments), "rendering and checking")
    return Draft(render_post(post), (), [], "", SourceReader([], context.checkpoint), ())


def post_of(arguments: WriteReportArguments, date: str, context: ToolContext) -> Post:
    """The narrative and the records of a topic. Raises `InputError` where nothing was collected."""
    topic = topic_named(arguments.name)
    evidence = read_evidence(context.workspace.output, topic)
    if evidence is None:
        raise InputError(
            f"Nothing was collected on {topic}: {evidence_path(topic)} is not there.",
            next_step=f"Collect it with collect_evidence, or `opscope post {topic} --collect`.",
        )
    return Post(topic, told(narrative_text(topic), arguments.sections or {}), whole(evidence), date)


# ---- the tool -------------------------------------------------------------------------------------------------------


def _run(arguments: WriteReportArguments, context: ToolContext) -> WriteReportResult:
    workspace = context.workspace
    path = report_path(arguments.name, arguments.kind)
    if inside(workspace.output, path).exists() and not arguments.overwrite:
        raise InputError(
            f"{path} exists already in {workspace.output}.",
            next_step="Give overwrite=true to replace it, or another name.",
        )
    check_writable(workspace.output, path)  # before minutes of tracing
    draft = drafted(arguments, context)
    refused = draft.problems or (() if _of_opscope_alone(arguments) else _rejected(draft, path, context))
    notes: tuple[str, ...] = ()
    if refused:
        notes = ("The report was not saved: repair the problems and call write_report again.",)
    else:
        notes = draft.report.facts.summary.limitations if arguments.kind == "post" else ()
        if draft.doubts:
            notes = (
                "The report was saved, though its own checks doubt some of what opscope wrote: report `problems` with the name of the target.",
            )
        context.checkpoint()
        texts = {facts_path(path): draft.report.facts.model_dump_json(indent=1) + "\n", path: draft.report.text}
        if arguments.html:
            texts[page_path(path)] = web_page(
                draft.report, draft.plots, draft.reader, _template("page.html"), draft.live,
                _pictures(draft.report.text, context) if arguments.kind == "post" else {},
            )  # fmt: skip
        save(workspace.output, texts)
    context.progress(_steps(arguments), _steps(arguments), "not saved" if refused else "saved")
    return WriteReportResult(
        path=path,
        ok=not refused and not draft.doubts,
        problems=refused or draft.doubts,
        summary=draft.report.facts.summary,
        facts_path=facts_path(path) if not refused else "",
        page_path=page_path(path) if arguments.html and not refused else "",
        sources=draft.sources,
        notes=notes,
    )


def _pictures(text: str, context: ToolContext) -> dict[str, str]:
    """The drawings that a post names, by path."""
    found = {}
    for path in re.findall(r"!\[[^\]]*\]\((evidence/[^)\s]+\.svg)\)", text):
        with contextlib.suppress(OSError):
            found[path] = inside(context.workspace.output, f"posts/{path}").read_text(encoding="utf-8")
    return found


def _rejected(draft: Draft, path: str, context: ToolContext) -> tuple[Problem, ...]:
    """What the rules reject in the whole report."""
    kept = draft.report.facts
    if kept.kind == "post":
        post = post_of(WriteReportArguments.model_validate(kept.arguments), kept.date, context)
        return (*record_problems(post, context.workspace.output), *check_post(Page(draft.report.text), post))
    exists = partial(exists_beside, context.workspace.output, path)
    return tuple(check(Material(Page(draft.report.text), draft.reader, draft.report.facts, draft.sources, exists)))


def _first_problems(result: WriteReportResult) -> WriteReportResult:
    left_out = len(result.problems) - _FIRST
    if left_out <= 0:
        return result
    said = f"{left_out} further problems are left out: repair these and write again."
    return result.model_copy(update={"problems": result.problems[:_FIRST], "shortened": said})


WRITE_REPORT: Tool[WriteReportArguments, WriteReportResult] = Tool(
    name="write_report",
    title="Write a report",
    description=(
        "Analyses a model (kind implementation) or a repository (kind repo) and saves a report, every table "
        "computed, with path:line pointers; or writes a post on a topic from its evidence (kind post). It is checked first: where `problems` are found in your prose nothing is saved. Your "
        "prose goes in through `sections`."
    ),
    arguments=WriteReportArguments,
    result=WriteReportResult,
    run=_run,
    shorter=(_first_problems,),
    read_only=False,
    positional=("kind", "name"),
    cached=False,
    lane=lambda arguments: "trace" if arguments.kind == "implementation" else "static",
)
