"""Serves over stdio and streamable HTTP, and ends quietly: signals, closed pipes, running tools.

Reading stdin blocks a thread that nothing can interrupt, so a stdio server that is told to stop stops its tools, waits
for them a little, and leaves through `os._exit`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
from mcp.server.streamable_http import EventStore
from opscope_schemas.errors import OutputError

from opscope_server.access import check_reach, security
from opscope_server.roots import Roots
from opscope_server.server import OpscopeServer
from opscope_server.wire import Wire

#: seconds after which a thread that computes has to let another one go on. With 5 ms, the interpreter's default, four tools that never
#: pause make a listing of tools take 140 ms (p50, two cores) where it takes 1.5 alone; with this 35, at 2 % of their speed
SWITCH_SECONDS = 0.0005


def run_stdio(server: OpscopeServer, wire: Wire) -> None:
    """Serve one client over stdin and stdout until it closes them or a signal comes; does not return."""
    status = 0
    sys.setswitchinterval(SWITCH_SECONDS)
    server.roots = Roots(server.workspace)
    with wire.serving():
        try:
            anyio.run(_with_signals, server, server.run_stdio_async, lambda number: _leave(server, 128 + number))
        except BaseException as error:
            if not _is_closed_pipe(error):
                _leave(server, 1, error)
    _leave(server, status)


def run_http(
    server: OpscopeServer,
    *,
    event_store: EventStore | None = None,
    retry_interval: int | None = None,
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve over streamable HTTP at the settings' host and port; `announce` is told the address once it is bound.

    Raises `InputError` where the address is not loopback and there is no token.
    """
    import uvicorn  # here: stdio servers need none of it

    from opscope_server.door import Door, connections

    sys.setswitchinterval(SWITCH_SECONDS)
    settings = server.opscope_settings
    check_reach(settings.host, settings.token)
    bound = _bind(settings.host, settings.port)
    port = bound.getsockname()[1]
    accepted = security(settings.host, port, settings.allowed_hosts)
    app = server.streamable_http_app(
        host=settings.host,
        transport_security=accepted,
        event_store=event_store,
        retry_interval=retry_interval,
        session_idle_timeout=settings.session_seconds,
        max_sessions=settings.sessions,
    )
    manager = server.session_manager
    manager.asgi_app = Door(manager.asgi_app, accepted, settings.body_seconds)  # type: ignore[assignment] # any ASGI application

    class Quiet(uvicorn.Server):
        """uvicorn without its own signal handling: it would raise KeyboardInterrupt after serving."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    http = Quiet(
        uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=max(1, round(settings.grace)), ws="none",
            http=connections(settings.connections, settings.head_seconds),
        )
    )  # fmt: skip

    def stop(number: int) -> None:
        if http.should_exit:  # the second signal does not wait
            _leave(server, 128 + number)
        http.should_exit = True
        server.work.stop(0)

    async def serve() -> None:
        await http.serve(sockets=[bound])

    if announce is not None:
        shown = f"[{settings.host}]" if ":" in settings.host else settings.host
        announce(f"http://{shown}:{port}/mcp")
    anyio.run(_with_signals, server, serve, stop)
    _leave(server, 0)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
        bound.listen(128)  # whoever hears the address may connect at once and waits in the backlog
    except (OSError, OverflowError) as error:
        bound.close()
        raise OutputError(
            f"The server cannot listen on {host} port {port}: {getattr(error, 'strerror', '') or error}.",
            next_step="Choose another --port (0 takes any free one) or --host.",
        ) from error
    return bound


async def _with_signals(_server: OpscopeServer, serve: Callable[[], object], on_signal: Callable[[int], None]) -> None:
    """Run `serve` with SIGINT and SIGTERM going to `on_signal`."""

    async def watch() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                on_signal(number)

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await serve()  # type: ignore[misc] # any coroutine function
        group.cancel_scope.cancel()


def _is_closed_pipe(error: BaseException) -> bool:
    """Whether all that went wrong is that the other side has gone."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_closed_pipe(part) for part in error.exceptions)
    return isinstance(error, BrokenPipeError | ConnectionResetError | KeyboardInterrupt)


def _leave(server: OpscopeServer, status: int, error: BaseException | None = None) -> None:
    """End the process: stop the tools, then whatever children they left, then exit without waiting for threads."""
    if error is not None:
        sys.stderr.write(f"opscope: the server stopped on {type(error).__name__}: {error}\n")
    server.work.stop(server.opscope_settings.grace)
    for child in _children():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(Exception):
        server.workspace.store.close()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(status)


def _children() -> list[int]:
    """Processes that this one started and that still run (where /proc tells)."""
    found: list[int] = []
    for listing in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(number) for number in listing.read_text().split()]
    return found
