"""The `opscope` command: the catalogue's tools as subcommands, the server, the scripted analysis, the cache.

A command is made, and what it needs imported, when it is asked for. Only `serve` (serving.py) and `analyze` import the MCP SDK, each
when it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from opscope_cache.store import open_store
from opscope_schemas.errors import InputError

from opscope_clients import console, helping, session_options
from opscope_clients.options import check_there, parse_object
from opscope_clients.session_options import CONTEXT, SessionCommand, SessionOptions

if TYPE_CHECKING:
    from opscope_clients.protocol import Kind

#: commands that are more than a tool, or none: where each lies, or a function that makes it
_MADE: Mapping[str, str] = {
    "serve": "serving.serve",
    "module": "documents.module_command",
    "model": "documents.model_command",
    "inspect": "documents.inspect_command",
    "estimate": "estimating.estimate_command",
    "plan": "estimating.plan_command",
    "compare": "comparing.compare_command",
    "view": "viewing.view_command",
    "post": "posting.post_command",
    "install": "hosts.cli.install_command",
    "uninstall": "hosts.cli.uninstall_command",
    "doctor": "doctor.cli.doctor_command",
}


def _make(name: str) -> click.Command:
    if name in _MADE:
        module, attribute = _MADE[name].rsplit(".", 1)
        found = getattr(import_module(f"opscope_clients.{module}"), attribute)
        made: click.Command = found if isinstance(found, click.Command) else found()
        return made
    from opscope_tools.catalog import tool_named

    from opscope_clients.commands import tool_command

    return tool_command(tool_named(name.replace("-", "_")))


@click.group(
    cls=helping.GroupedCommands,
    make=_make,
    params=list(session_options.options()),
    context_settings=CONTEXT,
)
@click.version_option(package_name="opscope", message="opscope %(version)s")
@click.pass_context
def opscope(ctx: click.Context, /, **given: Any) -> None:
    """FLOPs and bytes per source line of LLM implementations, GPU kernel tiling, reports: computed, with file:line.

    Every option of the session also comes from the environment: OPSCOPE_REPO, OPSCOPE_TRUST, OPSCOPE_PYTHON,
    OPSCOPE_CACHE_DIR, OPSCOPE_OUTPUT, OPSCOPE_CONFIG_DIRS (of --config-dir), OPSCOPE_DEVICE_FILES.
    """
    ctx.obj = SessionOptions().merged(given)


@opscope.command(cls=SessionCommand)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option(
    "--kind",
    type=click.Choice(["implementation", "repo"]),
    default="implementation",
    show_default=True,
    help="What TARGET is: a model or class, or a repository.",
)
@click.option(
    "--config",
    multiple=True,
    metavar="PATH|KEY=VALUE|JSON",
    help="A config.json or its folder, or overrides. Repeatable.",
)
@click.option(
    "--values", multiple=True, metavar="KEY=VALUE|JSON", help="Point to evaluate at: batch_size=1, ... Repeatable."
)
@click.option("--hardware", metavar="DEVICE", help="Device of the times, or DEVICE:NUMBER (default: h100_sxm).")
@click.option("--name", help="Name of the report (default: from the target).")
@click.option("--overwrite/--no-overwrite", default=True, help="Replace a report of that name (default) or keep it.")
@click.option("--html", is_flag=True, help="Save each report as one HTML page too.")
@click.option("--http", "url", metavar="URL", help="Use the server that runs there instead of one started for this.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
@click.option("--agent", is_flag=True, help="Let an agent analyse it instead (needs opscope[agent]); writes JSON.")
def analyze(
    session: SessionOptions,
    targets: tuple[str, ...],
    kind: Kind,
    config: tuple[str, ...],
    values: tuple[str, ...],
    hardware: str | None,
    name: str | None,
    overwrite: bool,
    html: bool,
    url: str | None,
    as_json: bool,
    agent: bool,
) -> int:
    """Analyse each TARGET (a model type, a class, path.py:line; or a repository) through the server, and save reports.

    Drives the whole protocol as an MCP client: reconnaissance, architecture, components, data flow, report. With
    --agent an agent writes module_analysis.json or model_analysis.json, as fits TARGET, checked against the trace.
    """
    if agent:
        if len(targets) > 1 or name or html or as_json or config or values or hardware or kind != "implementation":
            raise click.UsageError("--agent analyses one model or class, and takes no option of a report.")
        from opscope_clients.agents.analysis import run_target

        return run_target(targets[0], session, url or "")
    from opscope_clients.protocol import Wish, report_name
    from opscope_clients.protocol import analyze as drive

    if name is not None and len(targets) > 1:
        raise click.UsageError("--name names one report; leave it out for several targets.")
    if url is not None and session.server_arguments():
        raise click.UsageError("A server at --http has its own repositories and folders; start it with these options.")
    if url is None:
        session, targets = session.placing_all(targets)
    own = _configured(session, targets) if kind == "implementation" else None
    if own is not None:
        if len(targets) > 1 or config:
            raise click.UsageError("A folder with a config.json is analysed alone, and is its own --config.")
        path, model_type = own
        name = name or report_name(path.parent.name if path.name == "config.json" else path.stem)
        targets, config = (model_type,), (str(path),)
    if kind == "repo" and (config or values or hardware):
        raise click.UsageError("--config, --values and --hardware are for models; a repository takes none.")
    if url is None:
        from opscope_tools.estimate_roofline.tool import devices_of
        from opscope_tools.report.saving import check_writable, report_path
        from opscope_tools.running.tool import ToolContext

        workspace = session.workspace()  # a bad option is told here, not by a server that fails to start
        workspace.store.close()
        if hardware and kind != "repo":  # before minutes of tracing
            devices_of(hardware, None, ToolContext(workspace))
        for target in targets:
            check_writable(workspace.output, report_path(name or report_name(target), kind))
    given = _config(config)
    if url is None:
        session = session.naming(given, *targets)
    elif isinstance(given, str):  # a server that runs already has folders of its own: it gets what the file holds
        given = _content(given)
    wish = Wish(targets, kind, name, overwrite, html, given, _values(values), hardware)
    status: int = drive(wish, session, url=url, as_json=as_json)
    return status


def _configured(session: SessionOptions, targets: tuple[str, ...]) -> tuple[Path, str] | None:
    """The first target that is a config.json of the user's or a folder that has one: its file, and the model type that it is of."""
    from opscope_tools.costing.configured import configured
    from opscope_tools.running.config_files import described

    workspace = session.naming(*targets).workspace()
    try:
        for target in targets:
            file = described(workspace, target)
            own = configured(workspace, target) if file is not None else None
            if file is not None and own is not None:
                return file.path, own.model_type
        return None
    finally:
        workspace.store.close()


def _config(texts: tuple[str, ...]) -> str | dict[str, Any] | None:
    """A path made absolute, since a running server has another folder; or overrides."""
    found = parse_object("config", texts, path=True) if texts else None
    if not isinstance(found, str):
        return found
    check_there("config", found)
    return str(Path(found).expanduser().resolve())


def _content(path: str) -> dict[str, Any]:
    from opscope_tools.running.config_files import open_config

    workspace = SessionOptions().naming(path).workspace()
    try:
        return open_config(workspace, path).content
    finally:
        workspace.store.close()


def _values(texts: tuple[str, ...]) -> dict[str, int]:
    found = parse_object("values", texts) if texts else {}
    assert isinstance(found, dict)
    for name, value in found.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"--values {name}={value} is no whole number.", next_step="Example: --values seq_len=512.")
    return found


@opscope.command(cls=SessionCommand)
def index(session: SessionOptions) -> None:
    """Build the index of every repository now; a server does it by itself behind its first answers.

    What is up to date is not read again; Ctrl-C keeps what was read.
    """
    from opscope_clients.indexing import build_indexes

    build_indexes(session)


@opscope.group()
def cache() -> None:
    """The cache of results, and the indexes."""


@cache.command("info", cls=SessionCommand)
def cache_info(session: SessionOptions) -> None:
    """Where the cache is and what it holds."""
    from opscope_tools.source.storage import places

    store = open_store(console.folder(session.cache_dir))
    info = store.info()
    store.close()
    share = f" of {info.limit_bytes / 2**20:,.0f} MiB" if info.limit_bytes else ""
    console.say(f"{info.location}: {info.entries:,} entries, {info.size_bytes / 2**20:,.1f} MiB{share}")
    if store.folder is not None:
        held = places.sizes(store.folder)
        console.say(f"{len(held)} indexes, {sum(held.values()) / 2**20:,.1f} MiB")


@cache.command("clear", cls=SessionCommand)
def cache_clear(session: SessionOptions) -> None:
    """Forget every cached result and every index."""
    from opscope_tools.source.storage import places

    store = open_store(console.folder(session.cache_dir))
    removed = places.clear(store.folder) if store.folder is not None else 0
    console.say(f"{store.clear():,} entries and {removed} indexes removed.")
    store.close()


def main() -> None:
    """Entry point of the console script; every end is an exit status, never a traceback."""
    sys.exit(console.guarded(_invoke))


def _invoke() -> int | None:
    # not `opscope.main`: it answers Ctrl-C and closed pipes in its own way
    with opscope.make_context("opscope", sys.argv[1:]) as context:
        status: int | None = opscope.invoke(context)
        return status
