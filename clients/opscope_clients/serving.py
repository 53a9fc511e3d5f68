"""`opscope serve`, which hosts start and wait for: imported without the other commands, which take longer than the server does."""

from __future__ import annotations

import sys

import click
from opscope_tools.toolsets import TOOLSETS

from opscope_clients import console
from opscope_clients.session_options import CONTEXT, SessionCommand, SessionOptions


@click.command(cls=SessionCommand)
@click.option("--http", is_flag=True, help="Streamable HTTP instead of stdio.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port for HTTP (default 8000; 0: any free one).")
@click.option("--host", help="Address to bind for HTTP (default 127.0.0.1).")
@click.option(
    "--allow-host", multiple=True, metavar="NAME[:PORT]", help="Host header to accept beside loopback. Repeatable."
)
@click.option(
    "--token-file", metavar="FILE", help="Bearer token for HTTP, needed beyond loopback; or OPSCOPE_HTTP_TOKEN."
)
@click.option(
    "--toolset", multiple=True, metavar="NAME,...", help=f"Only these: {', '.join(TOOLSETS)}, or tools by name."
)
@click.option(
    "--deadline", multiple=True, metavar="KIND=SECONDS", help="For static, trace or compile calls. Repeatable."
)
def serve(
    session: SessionOptions,
    http: bool,
    port: int | None,
    host: str | None,
    allow_host: tuple[str, ...],
    token_file: str | None,
    toolset: tuple[str, ...],
    deadline: tuple[str, ...],
) -> None:
    """Start the MCP server, over stdio unless --http is given."""
    from opscope_server.launch import main as launch  # here: no other command needs the SDK

    arguments = session.server_arguments()
    arguments += ["--http"] if http else []
    arguments += ["--port", str(port)] if port is not None else []
    arguments += ["--host", host] if host else []
    arguments += [part for name in allow_host for part in ("--allow-host", name)]
    arguments += ["--token-file", token_file] if token_file else []
    arguments += [part for names in toolset for part in ("--toolset", names)]
    arguments += [part for given in deadline for part in ("--deadline", given)]
    launch(arguments)


def main() -> None:
    """Entry point of `opscope serve`; every end is an exit status, never a traceback."""
    sys.exit(console.guarded(_invoke))


def _invoke() -> int | None:
    with serve.make_context("opscope serve", sys.argv[2:], **CONTEXT) as context:
        status: int | None = serve.invoke(context)
        return status
