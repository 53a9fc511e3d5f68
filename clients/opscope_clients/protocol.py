"""The scripted MCP client: drives the analysis protocol through a server, its own or a running one, without a model.

Order: the entry point, the steps of either kind, the calls, the summary. It knows tools only by name and promised
fields, as any other client would; everything it prints was computed by a tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import anyio
from opscope_schemas.errors import OpscopeError

from opscope_clients import console
from opscope_clients.connection import CallError, Connection, Server, connected, own_server, server_at, translated
from opscope_clients.hub import is_hub_id
from opscope_clients.screens.page import Page
from opscope_clients.session_options import SessionOptions
from opscope_clients.steps import Steps

Kind = Literal["implementation", "repo"]

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


@dataclass(frozen=True)
class Wish:
    """What is to be analysed, and how the report is saved."""

    targets: Sequence[str]
    kind: Kind = "implementation"
    name: str | None = None
    overwrite: bool = True
    html: bool = False
    #: a config.json or its folder, or overrides; and the point at which to evaluate
    config: str | Mapping[str, Any] | None = None
    values: Mapping[str, int] = field(default_factory=dict)
    #: the device of a report's times; None: the tool's own choice
    hardware: str | None = None

    @property
    def configured(self) -> dict[str, Any]:
        """`config` as an argument of a tool; nothing where none is given."""
        return {} if self.config is None else {"config": self.config}

    def point(self, phase: str) -> dict[str, Any]:
        """The point as an argument of a tool: a decode pass follows the prompt that was asked for. Nothing where none is
        given: how long an input the model takes is the server's to know."""
        sizes = {name: size for name, size in self.values.items() if name != "cache_len"}
        if phase == "decode" and (cached := self.values.get("cache_len", self.values.get("seq_len"))) is not None:
            sizes |= {"seq_len": 1, "cache_len": cached}
        return {"values": sizes} if sizes else {}


def analyze(wish: Wish, session: SessionOptions, *, url: str | None = None, as_json: bool = False) -> int:
    """Run the protocol on each target, save the reports, print the summaries; the exit status.

    One target that cannot be analysed does not stop the others; with several, its sentence stands in its place.
    """
    server = own_server(session.server_arguments()) if url is None else server_at(url)
    found: list[Findings] = []

    async def story() -> None:
        await translated(lambda: _all(wish, server, found, as_json=as_json), server)

    try:
        anyio.run(story)
    except OpscopeError as error:  # the server is gone; what was found until then stands
        if not as_json:
            raise
        found += [Findings(target, wish.kind) for target in wish.targets[len(found) :]]
        for one in found:
            one.error = one.error or ("" if one.report else str(error))
    if as_json:
        console.emit(json.dumps({"analyses": [asdict(one) for one in found]}, ensure_ascii=False) + "\n")
    return 0 if all(one.checked_ok for one in found) else 1


def report_name(target: str) -> str:
    """A file name from a target: `llama`, `LlamaAttention`, `a/b.py:3` -> `a-b.py-3`."""
    return re.sub(r"[^A-Za-z0-9_.]+", "-", target).strip("-.") or "target"


# ---- the steps ---------------------------------------------------------------------------------------------------


@dataclass
class Findings:
    """What the steps have found, as the tools told it."""

    target: str
    kind: Kind = "implementation"
    #: why there is no report, in a tool's own sentence
    error: str = ""
    report: str = ""
    summary: Mapping[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    #: what could not be analysed, in the tools' own sentences
    gaps: list[str] = field(default_factory=list)
    components: list[str] = field(default_factory=list)
    checked_ok: bool = False


async def _all(wish: Wish, server: Server, found: list[Findings], *, as_json: bool) -> None:
    async with connected(server) as connection:
        for target in wish.targets:
            found.append(findings := Findings(target, wish.kind))
            try:
                await _one(wish, connection, findings)
            except OpscopeError as error:
                if len(wish.targets) == 1 and not as_json:
                    raise
                findings.error = str(error)
            if not as_json:
                _print_summary(findings)


async def _one(wish: Wish, connection: Connection, findings: Findings) -> None:
    steps = Steps(console.err(), wish.kind)
    with steps.shown():
        calls = Calls(connection, steps)
        steps.begin("Reconnaissance")
        if wish.kind == "repo":
            await calls.call("map_repo", repo=findings.target)
        else:
            await _reconnaissance(calls, findings.target)
            steps.begin("Architecture")
            tree = await _architecture(calls, findings, wish)
            steps.begin("Data flow")
            phases = await _data_flow(calls, findings, wish)
            steps.begin("Components")
            await _components(calls, findings, tree, wish, phases)
        steps.begin("Report")
        await _report(calls, findings, wish)


async def _reconnaissance(calls: Calls, target: str) -> None:
    try:
        found = await calls.call("resolve_class", name=target)
    except CallError:
        if is_hub_id(target):
            raise _hub_target(target) from None
        raise
    if not found["matches"]:
        if is_hub_id(target):
            raise _hub_target(target)
        nearest = ", ".join(found.get("suggestions") or [])
        raise CallError(f"Nothing is called {target!r}.", next_step=f"Nearest names: {nearest}." if nearest else "")
    await calls.call("find_forward", target=target)


def _hub_target(target: str) -> CallError:
    return CallError(
        f"{target!r} looks like a model on the hub, and a report is made without the network.",
        next_step="Give its model type as TARGET and its config.json with --config.",
    )


async def _architecture(calls: Calls, findings: Findings, wish: Wish) -> Mapping[str, Any]:
    """The module tree; a target that is no model has none, and is its own only component."""
    try:
        answer = await calls.call("inspect_model", model=findings.target, **wish.configured)
    except CallError as error:
        findings.gaps.append(str(error))
        return {}
    tree: Mapping[str, Any] = answer.get("tree") or {}
    return tree


async def _components(
    calls: Calls, findings: Findings, tree: Mapping[str, Any], wish: Wish, phases: Sequence[str]
) -> None:
    for class_name in major_components(tree) or [findings.target]:
        for phase in phases:
            try:
                at = wish.point(phase)
                await calls.call(
                    "count_flops", target=class_name, phase=phase, detail="formulas", **at, **wish.configured
                )
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


async def _data_flow(calls: Calls, findings: Findings, wish: Wish) -> list[str]:
    """The phases that the target runs in. One that it has not, as decoding without a cache, is a gap."""
    found = []
    for phase in PHASES:
        try:
            await calls.call("expand_refs", target=findings.target, phase=phase, **wish.point(phase), **wish.configured)
        except CallError as error:
            findings.gaps.append(f"{phase}: {error}")
        else:
            found.append(phase)
    return found


async def _report(calls: Calls, findings: Findings, wish: Wish) -> None:
    written = await calls.call(
        "write_report", kind=wish.kind, name=wish.name or report_name(findings.target), target=findings.target,
        overwrite=wish.overwrite, html=wish.html, **wish.configured, **({"values": dict(wish.values)} if wish.values else {}),
        **({"hardware": wish.hardware} if wish.hardware else {}),
    )  # fmt: skip
    if not written.get("facts_path"):  # nothing was saved: an older report of that name is no answer
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
    """Calls tools and tells what they are doing."""

    def __init__(self, connection: Connection, steps: Steps) -> None:
        self._connection = connection
        self._steps = steps

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The structured answer of `tool`; raises `CallError`."""
        subject = next((value for key, value in arguments.items() if key in ("target", "name", "repo")), "")
        doing = f"{tool} {subject}".rsplit(".", 1)[-1]
        self._steps.say(doing)
        return await self._connection.call(tool, arguments, lambda message: self._steps.say(f"{doing}: {message}"))


# ---- the summary ---------------------------------------------------------------------------------------------------


def _print_summary(findings: Findings) -> None:
    if findings.error:
        console.fail(f"{findings.target}: {findings.error}")
        return
    page = Page(console.out(), rest="the report has everything")
    analysed = f": {len(findings.components)} components analysed" if findings.kind == "implementation" else ""
    page.say(f"{findings.target}{analysed}", "bold")
    for title, lines in findings.summary.items():
        entries = [lines] if isinstance(lines, str) else list(lines or [])
        page.say(str(title).replace("_", " ").capitalize() if entries else "", "bold")
        page.sayings(title, [str(entry) for entry in entries], mark="- ", most=6)
    page.say("Not analysed" if findings.gaps else "", "bold")
    page.sayings("gaps", findings.gaps, mark="- ", most=6)
    page.say(f"Report: {findings.report}")
    page.show()
    if not findings.checked_ok:
        console.fail(f"the report has {len(findings.problems)} problems: {'; '.join(findings.problems[:5])}")
