"""The flow of both analyzers: the trace, the agent, the check, the file.

The trace comes first, so that what cannot be analysed costs nothing. An answer that differs goes back once, with the
differences; only one that differs in nothing is written. Whatever stops a run stands in SCRATCHPAD.md.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
from opscope_prompts.loader import agent_prompt
from opscope_schemas.analysis import Analysis, ModelAnalysis, ModuleAnalysis
from opscope_schemas.errors import InputError, OpscopeError
from opscope_server.resources import read_schema
from opscope_tools.running.runner import compact
from pydantic import ValidationError

from opscope_clients import console
from opscope_clients.agents import sdk
from opscope_clients.agents.analyses import Expansion, read_analyses, references
from opscope_clients.agents.checking import Check, Difference, schema_differences
from opscope_clients.agents.completing import completed
from opscope_clients.agents.request import Request
from opscope_clients.agents.scratchpad import Scratchpad
from opscope_clients.agents.server import Server
from opscope_clients.documents import write_document
from opscope_clients.session_options import SessionOptions

__all__ = ["run", "run_target"]

_KINDS: dict[str, type[ModuleAnalysis] | type[ModelAnalysis]] = {"module": ModuleAnalysis, "model": ModelAnalysis}
_SHOWN = 60  # differences that are printed and sent back; their number is always told
Result = TypeVar("Result")


class StoppedError(OpscopeError):
    """A run that ended without a document."""


def run(request: Request) -> int:
    """Analyse, write the document, say where; the exit status. Raises `OpscopeError` where nothing was written."""
    if request.agent:
        sdk.require()  # before a trace is made that nothing would come of
    scratchpad = Scratchpad(request.folder)
    scratchpad.note(f"# {request.kind.capitalize()} analysis of {request.target}, {request.phase}")
    try:
        _check_sources(request)
        document = _in_loop(_analysed, request, scratchpad)
        path = write_document(request.folder, request.file, compact(document))
    except (OpscopeError, KeyboardInterrupt, SystemExit) as error:
        why = str(error) if isinstance(error, OpscopeError) else "interrupted."
        scratchpad.note(f"Stopped, {request.file} not written: {why}")
        raise
    scratchpad.note(f"Written: {path.name}")
    console.err().print(f"Written: {path}", soft_wrap=True, markup=False)
    return 0


def run_target(target: str, session: SessionOptions, url: str = "") -> int:
    """The analyzer that fits `target`: a whole model has its references expanded, a module is analysed by line."""
    sdk.require()
    server = Server(session, url)

    folder = Path(session.output or ".").expanduser().absolute()
    try:
        kind = "model" if _in_loop(server.is_model, target) else "module"
    except OpscopeError as error:
        Scratchpad(folder).note(f"# Analysis of {target}\n\nStopped, no document written: {error}")
        raise
    return run(Request(kind=kind, target=target, server=server, folder=folder))


def _check_sources(request: Request) -> None:
    """A folder that is not there is told here, in the words of what was asked for."""
    for option, folder in (("--transformers", request.transformers), ("--pytorch", request.pytorch)):
        if folder and not Path(folder).expanduser().is_dir():
            raise InputError(f"The source folder {folder} of {option} does not exist.", next_step="Name another.")


def _in_loop(work: Callable[..., Awaitable[Result]], *arguments: Any) -> Result:
    """Run the event loop; a failure inside a task group leaves as the failure itself."""
    try:
        return anyio.run(work, *arguments)
    except BaseExceptionGroup as group:  # the SDK's task groups
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        raise error from None


async def _analysed(request: Request, scratchpad: Scratchpad) -> Analysis:
    """The document that is written."""
    known = await request.server.document(request.tool, request.arguments())
    ours = _KINDS[request.kind].model_validate(known)
    check = Check(ours)
    expansions = _expansions(request, ours, check, scratchpad)
    if not request.agent:
        return ours
    question = _Question(request, ours, check, expansions, scratchpad)
    with console.progress("Agent") as sink:
        return await question.answer(lambda tools: sink(0, None, tools))


def _expansions(request: Request, ours: Analysis, check: Check, scratchpad: Scratchpad) -> list[Expansion]:
    """What expands the references of a model; what is missing is told, and is the server's to answer."""
    if not isinstance(ours, ModelAnalysis):
        return []
    found: list[ModuleAnalysis] = []
    others: list[str] = []
    if request.analyses is not None:
        found, others = read_analyses(request.analyses, json.loads(read_schema("module_analysis")))
    expansions = references(ours, found, check)
    missing = [f"{e.place}: {e.operation}: {e.reason}; asked of the server." for e in expansions if not e.analysis]
    if request.analyses is not None and (told := [*others, *missing]):
        scratchpad.note("\n".join(["Module analyses:", *(f"- {line}" for line in told)]))
        for line in told:
            console.err().print(line, soft_wrap=True, markup=False)
    return expansions


@dataclass(frozen=True)
class _Question:
    """One document asked of an agent, and held against the trace."""

    request: Request
    ours: Analysis
    check: Check
    expansions: Sequence[Expansion]
    scratchpad: Scratchpad

    async def answer(self, doing: Callable[[str], None]) -> Analysis:
        """The agent's document, without a difference; raises `StoppedError`."""
        schema = json.loads(read_schema(f"{self.request.kind}_analysis"))
        request = self.request
        async with sdk.conversation(
            request.server, self.scratchpad, schema, request.limits, request.transcript, doing
        ) as agent:
            prompt = self._prompt()
            for attempt in (1, 2):
                turn = await agent.ask(prompt)
                self._tell(turn)
                if turn.failures:
                    raise StoppedError(" ".join(turn.failures), next_step=_going_on(turn))
                found, theirs = self._judged(turn.answer, schema)
                if theirs is not None and not found:
                    return completed(theirs, self.ours, self.check)
                lines = _lines(found)
                self.scratchpad.note("\n".join([f"Answer {attempt} differs from the trace:", *lines]))
                prompt = "\n".join([_AGAIN, *lines])
        for line in lines:
            console.err().print(line, soft_wrap=True, markup=False)
        raise StoppedError(
            f"The agent's second answer still differs from the trace in {_places(len(found))}.",
            next_step=_going_on(turn),
        )

    def _judged(self, answer: Any, schema: dict[str, Any]) -> tuple[list[Difference], Analysis | None]:
        if wrong := schema_differences(answer, schema):
            return wrong, None
        try:
            theirs = _KINDS[self.request.kind].model_validate(answer)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            return [Difference("document", place, repr(first["input"])[:160], f"(schema) {first['msg']}")], None
        return self.check.differences(theirs), theirs

    def _prompt(self) -> str:
        request = self.request
        places = {
            request.kind: request.target,
            "phase": request.phase,
            "transformers": request.transformers or "the installed package",
            "pytorch": request.pytorch or "the installed package",
            "arguments": json.dumps(request.arguments()),
            "analyses": _at_hand(self.expansions),
        }
        prompt = agent_prompt(f"{request.kind}_analyzer", places)
        return f"{_RESUMED}\n\n{prompt}" if request.limits.resume else prompt

    def _tell(self, turn: sdk.Turn) -> None:
        cost = f", {turn.cost_usd:.4f} USD" if turn.cost_usd is not None else ""
        console.err().print(f"Session {turn.session or 'none'}{cost}", soft_wrap=True, markup=False)


_AGAIN = (
    "Your document differs from the server's trace as listed here. Look each up again, and answer with the whole "
    "document once more."
)
_RESUMED = "Go on where this session stopped; SCRATCHPAD.md holds the notes. What is asked for is:"


def _lines(found: Sequence[Difference]) -> list[str]:
    more = [f"- and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    return [*(f"- {difference}" for difference in found[:_SHOWN]), *more]


def _places(count: int) -> str:
    return f"{count} places" if count != 1 else "1 place"


def _going_on(turn: sdk.Turn) -> str:
    return f"Nothing was written. --resume {turn.session} goes on with the session." if turn.session else ""


def _at_hand(expansions: Sequence[Expansion]) -> str:
    """What the agent reads of each reference: the kernels that an analysis expands it to, or that there is none."""
    lines: list[str] = []
    for expansion in expansions:
        where = f"- {expansion.operation} ({expansion.place}): "
        if expansion.analysis is None:
            lines.append(f"{where}none; ask `expand_refs`.")
            continue
        times = "" if expansion.repeat == "1" else f", all figures times {expansion.repeat}"
        lines.append(f"{where}the analysis of {expansion.analysis.class_name}{times}:")
        lines.append(f"  {json.dumps(expansion.kernels(), ensure_ascii=False)}")
    return "\n".join(lines) or "- none"
