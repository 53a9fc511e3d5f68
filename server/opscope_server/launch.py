"""The command line of the server itself: `python -m opscope_server`, and what `opscope serve` and clients start.

Uses only the standard library until the arguments are known to be good. stdout is reserved first of all.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

from opscope_server.wire import Wire, reserve


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse, build, serve; exits with 2 on usage errors and 1 on any other that the user can put right."""
    wire = reserve()
    gc.disable()  # what is imported stays: looking for rubbish in it takes a tenth of the start
    options = _parser().parse_args(arguments)
    from opscope_schemas.errors import OpscopeError  # after stdout is safe, like every import that follows

    try:
        serve(options, wire)
    except OpscopeError as error:
        sys.stderr.write(f"opscope: {error}\n")
        sys.exit(1)


def serve(options: argparse.Namespace, wire: Wire) -> None:
    """Serve as the options say; ends the process."""
    from opscope_tools.running.session import open_workspace

    from opscope_server.access import VARIABLE, check_reach, token_of
    from opscope_server.settings import Settings, deadlines_of

    settings = Settings.from_environment(
        os.environ,
        host=options.host,
        port=options.port,
        allowed_hosts=tuple(options.allow_host) or None,
        deadlines=deadlines_of(os.environ, options.deadline),
        token=token_of(options.token_file, os.environ) if options.http else None,
    )
    os.environ.pop(VARIABLE, None)  # nothing that is started from here needs it
    if options.http:
        check_reach(settings.host, settings.token)
    workspace = open_workspace(
        repositories=options.repo,
        trust=options.trust,
        python=options.python,
        cache_folder=options.cache_dir,
        output=options.output,
        config_dirs=options.config_dir,
        device_files=options.device_file,
    )
    workspace.paths_allowed = not options.http  # whoever reaches a port is not the user of this machine
    workspace.builds_index = True  # whoever serves will be asked again
    from opscope_server import transports
    from opscope_server.listing import kept_listing
    from opscope_server.server import build_server

    given = options.toolset or [os.environ.get("OPSCOPE_TOOLSET", "")]
    names = [name.strip() for text in given for name in text.split(",") if name.strip()]
    server = build_server(workspace, settings, kept_listing(workspace.store, names))
    gc.freeze()
    gc.enable()
    if options.http:
        transports.run_http(server, announce=announce)
    else:
        transports.run_stdio(server, wire)


def announce(address: str) -> None:
    """Tell where an HTTP server listens; on stderr, because stdout stays empty."""
    sys.stderr.write(f"opscope serves MCP at {address}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m opscope_server", description="The opscope MCP server.")
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """The server's options; each session option may also come from the environment as OPSCOPE_NAME."""
    parser.add_argument("--http", action="store_true", help="streamable HTTP instead of stdio")
    parser.add_argument("--host", default=None, help="address to bind (HTTP; default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=None, help="port (HTTP; default 8000, 0 for any free one)")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="Host header to accept too: NAME or NAME:PORT"
    )
    parser.add_argument(
        "--token-file", default=None, metavar="FILE", help="file with the bearer token that clients give (HTTP)"
    )
    parser.add_argument("--toolset", action="append", default=[], metavar="NAME,...", help="serve only these tools")
    parser.add_argument(
        "--deadline",
        action="append",
        default=[],
        metavar="KIND=SECONDS",
        help="for static, trace, compile or measure calls",
    )
    parser.add_argument("--repo", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--trust", action="append", default=[], metavar="NAME")
    parser.add_argument("--python", default=None, metavar="PATH")
    parser.add_argument("--cache-dir", default=None, metavar="DIR")
    parser.add_argument("--output", default=None, metavar="DIR")
    parser.add_argument("--config-dir", action="append", default=[], metavar="DIR")
    parser.add_argument("--device-file", action="append", default=[], metavar="FILE")
