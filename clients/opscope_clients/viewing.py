"""`opscope view TARGET`: the report of a model as a page in which its formulas are alive, served on loopback to the browser."""

from __future__ import annotations

import webbrowser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import click
from opscope_schemas.errors import InputError
from opscope_schemas.report import WriteReportResult
from opscope_tools.report.saving import inside
from opscope_tools.write_report import WRITE_REPORT

from opscope_clients import console
from opscope_clients.commands import run, show
from opscope_clients.options import parse_object
from opscope_clients.session_options import SessionCommand, SessionOptions

__all__ = ["view_command"]

_LOOPBACK = "127.0.0.1"
#: the page brings all that it needs with it
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def _handler(page: bytes) -> type[BaseHTTPRequestHandler]:
    """A handler that serves the page to a browser that asked for loopback, and nothing else to nobody."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if self.path != "/" or host not in (_LOOPBACK, "localhost"):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            self.send_response(HTTPStatus.OK)
            for name, value in (
                ("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(page))), ("Cache-Control", "no-store"),
                ("Content-Security-Policy", _POLICY), ("X-Content-Type-Options", "nosniff"),
            ):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            """Requests are not told."""

    return Handler


@click.command("view", cls=SessionCommand)
@click.argument("target")
@click.option("--config", multiple=True, metavar="PATH|KEY=VALUE|JSON", help="A config.json, or overrides. Repeatable.")
@click.option(
    "--values", multiple=True, metavar="KEY=VALUE|JSON", help="The point it begins at: batch_size=1, ... Repeatable."
)
@click.option("--hardware", metavar="DEVICE", default="h100_sxm", show_default=True, help="The device it begins with.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback (default: a free one).")
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
def view_command(
    session: SessionOptions, target: str, config: tuple[str, ...], values: tuple[str, ...], hardware: str, port: int, no_browser: bool
) -> int:  # fmt: skip
    """Analyse TARGET, save its report, and open it as a page with live formulas; Ctrl-C ends it."""
    from opscope_clients.protocol import report_name

    session, target = session.placing(target)
    given = parse_object("config", config, path=True) if config else None
    arguments = {
        "kind": "implementation", "name": report_name(target), "target": target, "hardware": hardware, "html": True, "overwrite": True,
        **({} if given is None else {"config": given}), **({"values": parse_object("values", values)} if values else {}),
    }  # fmt: skip
    workspace = session.naming(given, target).workspace()
    result = run(WRITE_REPORT, arguments, workspace)
    assert isinstance(result, WriteReportResult)
    if not result.ok:
        show(result, as_json=False)
    if not result.page_path:
        return 1
    page = inside(workspace.output, result.page_path).read_bytes()
    try:
        server = ThreadingHTTPServer((_LOOPBACK, port), _handler(page))
    except OSError as error:
        raise InputError(
            f"Port {port} cannot be used: {error.strerror}.", next_step="Leave --port out for a free one."
        ) from None
    address = f"http://{_LOOPBACK}:{server.server_port}/"
    console.emit(f"{result.page_path}\n{address}  (Ctrl-C ends it)\n")
    if not no_browser:
        webbrowser.open(address)
    with server:
        server.serve_forever(poll_interval=0.2)
    return 0
