"""What a run is asked for: the options of both analyzers, and the request that they add up to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from opscope_schemas.errors import InputError

from opscope_clients.agents.sdk import Limits
from opscope_clients.agents.server import Server
from opscope_clients.documents import with_sources
from opscope_clients.options import parse_object
from opscope_clients.session_options import SessionCommand, SessionOptions, command

__all__ = ["Request", "analyzer_command"]

PHASES = ("prefill", "decode", "encode")


@dataclass(frozen=True)
class Request:
    """One analysis."""

    #: "module" or "model"
    kind: str
    target: str
    server: Server
    folder: Path
    phase: str = "prefill"
    config: Any = None
    agent: bool = True
    limits: Limits = field(default_factory=Limits)
    transcript: Path | None = None
    analyses: Path | None = None
    #: what the agent is told of the sources
    transformers: str = ""
    pytorch: str = ""

    @property
    def tool(self) -> str:
        """The tool whose document the answer is."""
        return "count_flops" if self.kind == "module" else "expand_refs"

    @property
    def file(self) -> str:
        """The file that the document is written to."""
        return f"{self.kind}_analysis.json"

    def arguments(self) -> dict[str, Any]:
        """What the cost tools are called with."""
        config = {"config": self.config} if self.config else {}
        return {"target": self.target, "phase": self.phase, **config}


def analyzer_command(kind: str, run: Callable[[Request], int]) -> SessionCommand:
    """The command line of one analyzer."""

    def callback(session: SessionOptions, target: str, **given: Any) -> int:
        return run(_request(kind, target, session, given))

    about = {
        "module": "Let an agent analyse one module's forward line by line; writes module_analysis.json.",
        "model": "Let an agent expand a model's module references; writes model_analysis.json.",
    }
    return command(callback, f"{kind}_analyzer_agent_sdk.py", about[kind], _parameters(kind))


def _parameters(kind: str) -> list[click.Parameter]:
    own: list[click.Parameter] = [
        click.Option([f"--{kind}", "target"], required=True, metavar="NAME", help="Class or model type."),
        click.Option(["--transformers"], metavar="DIR", help="transformers sources (default: the installed ones)."),
        click.Option(["--pytorch"], metavar="DIR", help="PyTorch sources (default: the installed ones)."),
    ]
    if kind == "model":
        own.append(click.Option(["--module-analysis"], metavar="DIR", help="Folder of module analyses (*.json)."))
    return [
        *own,
        click.Option(["--phase"], type=click.Choice(PHASES), default=PHASES[0], show_default=True),
        click.Option(["--config"], multiple=True, metavar="PATH|KEY=VALUE|JSON", help="Config file, or overrides."),
        click.Option(["-o", "--output-folder"], metavar="DIR", help="Folder to write to (default: here)."),
        click.Option(["--http"], metavar="URL", help="A running opscope server (default: one over stdio)."),
        click.Option(["--no-agent"], is_flag=True, help="The server's own document, without a model."),
        click.Option(["--agent-model"], metavar="NAME", help="The model that the agent runs on."),
        click.Option(["--max-turns"], type=click.IntRange(min=1), help="Stop the agent after so many turns."),
        click.Option(["--max-budget-usd"], type=click.FloatRange(min=0, min_open=True), help="Stop it at this cost."),
        click.Option(["--transcript"], metavar="FILE", help="Append every message, one JSON object a line."),
        click.Option(["--resume"], metavar="SESSION", help="Go on with a session of this output folder."),
    ]


def _request(kind: str, target: str, session: SessionOptions, given: dict[str, Any]) -> Request:
    url, transformers, pytorch = given["http"] or "", given["transformers"], given["pytorch"]
    if url and (transformers or pytorch or session.repo or session.python or session.trust):
        raise InputError(
            "A server at --http reads the sources that it was started with.",
            next_step="Give --transformers, --pytorch, --repo, --trust and --python to that server.",
        )
    folder = Path(given["output_folder"] or session.output or ".").expanduser().absolute()
    session = with_sources(session, {"transformers": transformers, "pytorch": pytorch, "output_folder": str(folder)})
    config = parse_object("config", given["config"], path=True) if given["config"] else None
    session = session if url else session.naming(target, config)
    analyses = given.get("module_analysis")
    return Request(
        kind=kind,
        target=target,
        server=Server(session, url),
        folder=folder,
        phase=given["phase"],
        config=config,
        agent=not given["no_agent"],
        limits=Limits(given["max_turns"], given["max_budget_usd"], given["agent_model"], given["resume"]),
        transcript=Path(given["transcript"]).expanduser().absolute() if given["transcript"] else None,
        analyses=Path(analyses).expanduser() if analyses else None,
        transformers=transformers or "",
        pytorch=pytorch or "",
    )
