"""Kept answers over HTTP: alone, beside two traces that never end, and two hundred at once; beside a bare server of the SDK.

`alone` asks one call after the other on an idle server. `runaways` asks the same way while two traces of a trusted repository
loop for ever, and is what the promise is about: a kept answer waits for no work. `burst` and `burst + runaways` ask two
hundred at once; what a call costs in the SDK and in HTTP then adds up, so a bare server with a trivial tool is asked the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CALLS = 200
PROMISE = 5.0
#: seconds that a runaway trace is given
TRACE_SECONDS = 40.0
HEAD = "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n"
RUNAWAYS = """
from torch import nn


class Forever(nn.Module):
    def forward(self, x):
        while True:
            pass


class Evermore(nn.Module):
    def forward(self, x):
        number = 0
        while True:
            number += 1


class Kept(nn.Module):
    def forward(self, x):
        return x
"""
BARE = """
import uvicorn
from mcp.server import MCPServer
server = MCPServer("bare", log_level="ERROR")
@server.tool()
def resolve_class(name: str, repo: str) -> str:
    return name
uvicorn.run(server.streamable_http_app(), port={port}, log_level="error")
"""


@dataclass(frozen=True)
class Answer:
    """One call's answer: seconds, and the JSON-RPC message."""

    seconds: float
    message: Mapping[str, object]

    @property
    def text(self) -> str:
        """What it says, whether it is an answer or an error."""
        return json.dumps(self.message)


class Client:
    """One session. Every call has a connection of its own, and costs next to nothing here."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session = ""
        self._number = 1

    async def start(self) -> None:
        """Open the session."""
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
        head, _ = await self._post({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        found = next(line for line in head.splitlines() if line.lower().startswith("mcp-session-id:"))
        self._session = f"{found}\r\n"
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, **arguments: object) -> Answer:
        """Call a tool."""
        self._number += 1
        params = {"name": tool, "arguments": arguments}
        begun = time.perf_counter()
        _, body = await self._post({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})
        taken = time.perf_counter() - begun
        data = [line.removeprefix("data: ") for line in body.splitlines() if line.startswith("data: {")] or [body]
        return Answer(taken, json.loads(data[-1]))

    async def _post(self, message: Mapping[str, object]) -> tuple[str, str]:
        body = json.dumps(message)
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n{HEAD}{self._session}Content-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        answer = (await reader.read()).decode()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        found, _, rest = answer.partition("\r\n\r\n")
        return found, rest


@contextlib.contextmanager
def serving(folder: Path, cache: Path, seconds: float = TRACE_SECONDS) -> Iterator[int]:
    """The port of an opscope server over a trusted repository whose traces never end."""
    source = folder / "runaway"
    source.mkdir(exist_ok=True)
    (source / "runaway.py").write_text(RUNAWAYS)
    arguments = [
        "--http",
        "--port",
        "0",
        "--repo",
        f"runaway={source}",
        "--trust",
        "runaway",
        "--cache-dir",
        str(cache),
    ]
    log = folder / "log"
    with log.open("wb") as sink, subprocess.Popen(
        [sys.executable, "-m", "opscope_server", *arguments], stdout=sink, stderr=sink, stdin=subprocess.DEVNULL, cwd=folder,
        env={**os.environ, "OPSCOPE_TRACE_TIMEOUT": str(seconds)},
    ) as process:  # fmt: skip
        try:
            while "/mcp" not in (said := log.read_text()):
                assert process.poll() is None, said
                time.sleep(0.05)
            yield int(said.partition("127.0.0.1:")[2].partition("/")[0])
        finally:
            process.terminate()


@contextlib.contextmanager
def bare() -> Iterator[int]:
    """The port of a bare server of the SDK."""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with subprocess.Popen([sys.executable, "-c", BARE.replace("{port}", str(port))]) as process:
        try:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()


async def kept(client: Client) -> Answer:
    """The call that the store has an answer to."""
    return await client.call("resolve_class", name="Kept", repo="runaway")


async def one_by_one(client: Client, count: int = CALLS) -> list[Answer]:
    """One call after the other."""
    return [await kept(client) for _ in range(count)]


async def at_once(client: Client, count: int = CALLS) -> list[Answer]:
    """All calls at the same time."""
    return list(await asyncio.gather(*(kept(client) for _ in range(count))))


async def runaways(client: Client) -> list[asyncio.Task[Answer]]:
    """Two traces that never end, on their way."""
    tasks = [
        asyncio.create_task(client.call("count_flops", target=f"runaway.py:{name}")) for name in ("Forever", "Evermore")
    ]
    await asyncio.sleep(3)
    return tasks


def percentile(answers: Sequence[Answer], share: float) -> float:
    """Seconds in which that share of the calls was answered."""
    taken = sorted(answer.seconds for answer in answers)
    return taken[min(len(taken) - 1, round(share * len(taken)))]


def show(what: str, answers: Sequence[Answer]) -> float:
    """Print one row; p99 in seconds."""
    p50, p95, p99 = (percentile(answers, share) * 1e3 for share in (0.5, 0.95, 0.99))
    print(f"{what:28} p50 {p50:8.1f} ms   p95 {p95:8.1f} ms   p99 {p99:8.1f} ms")
    return p99 / 1e3


async def measure_opscope(port: int) -> tuple[float, float]:
    """p99 alone and beside the runaways."""
    client = Client(port)
    await client.start()
    await one_by_one(client, 20)  # computes it, and has the sources watched
    alone = show("opscope alone", await one_by_one(client))
    show(f"opscope burst of {CALLS}", await at_once(client))
    tasks = await runaways(client)
    beside = show("opscope, runaways", await one_by_one(client))
    show(f"opscope burst of {CALLS}, runaways", await at_once(client))
    still = sum(not task.done() for task in tasks)
    for task in tasks:
        print(f"a runaway ended after {(await task).seconds:.0f} s: {task.result().text[-200:]}")
    print(f"{still} of 2 runaways went on to the end of the measurement")
    return alone, beside


async def measure_bare(port: int) -> None:
    """The same calls to a trivial tool."""
    client = Client(port)
    await client.start()
    await one_by_one(client, 20)
    show("bare SDK server alone", await one_by_one(client))
    show(f"bare SDK server burst of {CALLS}", await at_once(client))


def main() -> int:
    """Print the table; 1 where the promise is broken."""
    with tempfile.TemporaryDirectory() as folder:
        with bare() as port:
            asyncio.run(measure_bare(port))
        with serving(Path(folder), Path(folder) / "cache") as port:
            alone, beside = asyncio.run(measure_opscope(port))
    print(f"p99 beside two runaways / alone: {beside / alone:.1f} (promised: at most {PROMISE})")
    return 0 if beside / alone <= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
