"""The scripted MCP client: drives the analysis protocol through a server of its own, over stdio, without a model.

Order: the entry point, the five steps, the calls, the summary. It knows tools only by name and promised fields, as
any other client would; everything it prints was computed by a tool.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CallToolResult, TextContent
from opscope_schemas.errors import OpscopeError
from rich.markup import escape

from opscope_clients import console
from opscope_clients.session import Session
from opscope_clients.steps import Steps

#: a component is worth a look of its own when its class name holds one of these
COMPONENTS = {
    "attention": ("attention", "attn"),
    "mixture of experts": ("moe", "expert", "router"),
    "MLP": ("mlp", "feedforward", "ffn"),
    "norm": ("norm",),
    "embedding": ("embed",),
    "decoder layer": ("layer", "block"),
    "head": ("head",),
}
PHASES = ("prefill", "decode")
#: the point at which the whole is evaluated: new tokens, and tokens already cached
POINTS: dict[str, dict[str, int]] = {
    "prefill": {"batch_size": 1, "seq_len": 128, "cache_len": 0},
    "decode": {"batch_size": 1, "seq_len": 1, "cache_len": 128},
}


class CallError(OpscopeError):
    """A tool refused a call; the message is the tool's own sentence."""


def analyze(target: str, session: Session, *, name: str | None = None, overwrite: bool = True) -> int:
    """Run the protocol on `target`, save the report, print the summary; the exit status."""
    findings = _unwrapped(target, session, name or report_name(target), overwrite)
    _print_summary(findings)
    return 0 if findings.checked_ok else 1


def report_name(target: str) -> str:
    """A file name from a target: `llama`, `LlamaAttention`, `a/b.py:3` -> `a-b.py-3`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", target).strip("-.") or "target"


def _unwrapped(target: str, session: Session, name: str, overwrite: bool) -> Findings:
    """Run the event loop; a failure inside a task group leaves as the failure itself."""
    try:
        return anyio.run(_run, target, session, name, overwrite)
    except BaseExceptionGroup as group:
        for error in _leaves(group):
            if isinstance(error, OpscopeError | KeyboardInterrupt | SystemExit):
                raise error from None
        first = next(_leaves(group))
        if isinstance(first, MCPError | OSError | anyio.BrokenResourceError | anyio.ClosedResourceError):
            raise _lost(first) from None
        raise
    except OpscopeError:
        raise
    except (MCPError, OSError) as error:
        raise _lost(error) from None


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _lost(error: BaseException) -> OpscopeError:
    return OpscopeError(
        f"The connection to the opscope server ended: {error}.",
        next_step="Its own message stands above; OPSCOPE_LOG_LEVEL=INFO shows more.",
    )


# ---- the five steps ------------------------------------------------------------------------------------------------


@dataclass
class Findings:
    """What the steps have found, as the tools told it."""

    target: str
    report: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: what could not be analysed, in the tools' own sentences
    gaps: list[str] = field(default_factory=list)
    components: list[str] = field(default_factory=list)
    checked_ok: bool = False


async def _run(target: str, session: Session, name: str, overwrite: bool) -> Findings:
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "opscope_server", *session.server_arguments()],
        env=dict(os.environ),
    )
    findings = Findings(target)
    steps = Steps(console.err())
    with steps.shown():
        async with Client(server) as client:
            calls = Calls(client, steps)
            steps.begin("Reconnaissance")
            await _reconnaissance(calls, target)
            steps.begin("Architecture")
            tree = await _architecture(calls, findings)
            steps.begin("Components")
            await _components(calls, findings, tree)
            steps.begin("Data flow")
            await _data_flow(calls, findings)
            steps.begin("Report")
            await _report(calls, findings, name, overwrite)
    return findings


async def _reconnaissance(calls: Calls, target: str) -> None:
    found = await calls.call("resolve_class", name=target)
    if not found["matches"]:
        nearest = ", ".join(found.get("suggestions") or [])
        raise CallError(f"Nothing is called {target!r}.", next_step=f"Nearest names: {nearest}." if nearest else "")
    await calls.call("find_forward", target=target)


async def _architecture(calls: Calls, findings: Findings) -> Mapping[str, Any]:
    """The module tree; a target that is no model has none, and is its own only component."""
    try:
        answer = await calls.call("inspect_model", model=findings.target)
    except CallError as error:
        findings.gaps.append(str(error))
        return {}
    tree: Mapping[str, Any] = answer.get("tree") or {}
    return tree


async def _components(calls: Calls, findings: Findings, tree: Mapping[str, Any]) -> None:
    for class_name in major_components(tree) or [findings.target]:
        for phase in PHASES:
            try:
                await calls.call("count_flops", target=class_name, phase=phase)
            except CallError as error:
                findings.gaps.append(f"{class_name.rpartition('.')[2]}, {phase}: {error}")
            else:
                if class_name not in findings.components:
                    findings.components.append(class_name)


def major_components(tree: Mapping[str, Any]) -> list[str]:
    """Qualified classes of the tree that are components, outermost first; operators of torch itself are none."""
    found: dict[str, None] = {}
    pending = [tree] if tree else []
    while pending:
        node = pending.pop(0)
        class_name = str(node.get("class_name", ""))
        short = class_name.rpartition(".")[2].lower()
        if not class_name.startswith("torch.") and any(
            word in short for words in COMPONENTS.values() for word in words
        ):
            found.setdefault(class_name)
        pending += node.get("children") or []
    return list(found)


async def _data_flow(calls: Calls, findings: Findings) -> None:
    for phase in PHASES:
        await calls.call("expand_refs", target=findings.target, phase=phase, values=POINTS[phase])


async def _report(calls: Calls, findings: Findings, name: str, overwrite: bool) -> None:
    written = await calls.call(
        "write_report", kind="implementation", name=name, target=findings.target, overwrite=overwrite
    )
    if not written["ok"]:  # nothing was saved: an older report of that name is no answer
        first: Mapping[str, Any] = next(iter(written.get("problems") or []), {})
        raise CallError(
            f"The report was refused by its own checks and not saved: {first.get('message', 'no reason given')}",
            next_step="Report this with the target's name.",
        )
    findings.report = str(written["path"])
    summary = written.get("summary")
    findings.summary = summary if isinstance(summary, Mapping) else {}
    checked = await calls.call("check_report", path=findings.report)
    findings.checked_ok = bool(checked["ok"])
    findings.problems = [
        f"line {problem['line']}: {problem['message']} ({problem['rule']})" for problem in checked["problems"]
    ]


class Calls:
    """Calls tools, tells progress, turns refusals into `CallError`."""

    def __init__(self, client: Client, steps: Steps) -> None:
        self._client = client
        self._steps = steps

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of `tool`."""
        subject = next(iter(arguments.values()), "")
        doing = f"{tool} {subject if isinstance(subject, str) else ''}".rsplit(".", 1)[-1]
        self._steps.say(doing)

        async def _progress(progress: float, total: float | None, message: str | None) -> None:
            del progress, total
            self._steps.say(f"{doing}: {message}" if message else doing)

        result = await self._client.call_tool(tool, arguments, progress_callback=_progress)
        if result.is_error or result.structured_content is None:
            raise CallError(_text(result) or f"{tool} gave no answer.")
        content: dict[str, Any] = result.structured_content
        return content


def _text(result: CallToolResult) -> str:
    return " ".join(block.text for block in result.content if isinstance(block, TextContent))


# ---- the summary ---------------------------------------------------------------------------------------------------


def _print_summary(findings: Findings) -> None:
    out = console.out()
    out.print(f"[bold]{escape(findings.target)}[/bold]: {len(findings.components)} components analysed")
    for title, lines in findings.summary.items():
        entries = [lines] if isinstance(lines, str) else list(lines or [])
        if entries:
            out.print(f"\n[bold]{escape(str(title).replace('_', ' ').capitalize())}[/bold]")
            for entry in entries:
                out.print(f"- {escape(str(entry))}")
    if findings.gaps:
        out.print("\n[bold]Not analysed[/bold]")
        for gap in findings.gaps:
            out.print(f"- {escape(gap)}")
    out.print(f"\nReport: {escape(findings.report)}")
    if not findings.checked_ok:
        console.fail(f"the report has {len(findings.problems)} problems: {'; '.join(findings.problems[:5])}")
