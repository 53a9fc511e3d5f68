"""The server as a process: stdout purity, signals, closed pipes, Host and Origin, busy ports."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from opscope_server.access import security

TOY_SERVER = Path(__file__).with_name("toy_server.py")


def line(method: str, number: int | None = None, **params: Any) -> str:
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if number is not None:
        message["id"] = number
    if params:
        message["params"] = params
    return json.dumps(message) + "\n"


HANDSHAKE = line(
    "initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"}
) + line("notifications/initialized")


@pytest.fixture
def stdio(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(TOY_SERVER), str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def exchange(process: subprocess.Popen[str], text: str, number: int) -> dict[str, Any]:
    """Send, and read up to the answer of that number."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(text)
    process.stdin.flush()
    for answer in process.stdout:
        read: dict[str, Any] = json.loads(answer)
        if read.get("id") == number:
            return read
    raise AssertionError("the server closed stdout")


def test_nothing_but_protocol_reaches_stdout(stdio: subprocess.Popen[str]) -> None:
    exchange(stdio, HANDSHAKE, 1)
    said = exchange(stdio, line("tools/call", 2, name="chatter", arguments={}), 2)
    assert said["result"]["structuredContent"]["rows"] == ["said"]
    rest, log = stdio.communicate(timeout=10)
    assert rest == ""
    assert "printed while importing" in log
    assert "this must not reach the wire" in log
    assert stdio.returncode == 0


def test_a_client_that_closes_the_pipe_ends_the_server_and_its_work(stdio: subprocess.Popen[str]) -> None:
    exchange(stdio, HANDSHAKE, 1)
    assert stdio.stdin
    stdio.stdin.write(line("tools/call", 2, name="wait", arguments={}))
    stdio.stdin.flush()
    _, log = stdio.communicate(timeout=10)
    assert stdio.returncode == 0
    assert "Traceback" not in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_stdio_server_quietly_while_it_reads_and_works(
    stdio: subprocess.Popen[str], number: signal.Signals
) -> None:
    exchange(stdio, HANDSHAKE + line("tools/call", 2, name="wait", arguments={}) + line("tools/list", 3), 3)
    stdio.send_signal(number)
    assert stdio.wait(timeout=10) == 128 + number
    assert stdio.stderr
    assert "Traceback" not in stdio.stderr.read()


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_both_eras_work_over_stdio(tmp_path: Path, era: str) -> None:
    async def main() -> Any:
        server = StdioServerParameters(command=sys.executable, args=[str(TOY_SERVER), str(tmp_path)])
        async with Client(server, mode=era) as client:
            seen: list[float] = []

            async def note(progress: float, total: float | None, message: str | None) -> None:
                assert (total, message) == (2, f"row {progress:g}")
                seen.append(progress)

            answer = await client.call_tool("rows", {"target": "x", "rows": 2}, progress_callback=note)
            return answer.structured_content, seen

    answer, seen = anyio.run(main)
    assert answer["rows"] == ["x 0", "x 1"]
    assert seen == [1, 2]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a toy server over HTTP."""
    process = subprocess.Popen(
        [sys.executable, str(TOY_SERVER), str(tmp_path_factory.mktemp("out")), "--http"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    found = ""
    for said in process.stderr:
        if said.startswith("opscope serves MCP at http://"):
            found = said.split("//")[1].split("/")[0]
            break
    yield found
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=15)
    assert output == ""


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_both_eras_work_over_http_with_progress(address: str, era: str) -> None:
    async def main() -> tuple[Any, int]:
        seen: list[float] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            assert (total, message) == (3, f"row {progress:g}")
            seen.append(progress)

        async with Client(f"http://{address}/mcp", mode=era) as client:
            answer = await client.call_tool("rows", {"target": era, "rows": 3}, progress_callback=note)
            return answer.structured_content, len(seen)

    answer, count = anyio.run(main)
    assert answer["total"] == 3
    assert count == 3


def post(address: str, **headers: str) -> int:
    connection = http.client.HTTPConnection(address, timeout=10)
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    sent = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
    connection.request("POST", "/mcp", body, sent)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_foreign_host_or_origin_is_refused(address: str) -> None:
    assert post(address, Host="evil.example.com") == 421
    assert post(address, Origin="http://evil.example.com") == 403
    assert post(address, Origin=f"http://{address}") not in (403, 421)


def test_health_answers_without_a_session(address: str) -> None:
    connection = http.client.HTTPConnection(address, timeout=10)
    connection.request("GET", "/health")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert answer["status"] == "ok"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "192.0.2.7", "localhost"])
def test_protection_is_armed_whatever_address_is_bound(host: str) -> None:
    armed = security(host, 8000, ("gpu-box.example", "proxy.example:8443"))
    assert armed.enable_dns_rebinding_protection
    assert {"127.0.0.1:8000", "gpu-box.example", "gpu-box.example:8000", "proxy.example:8443"} < {*armed.allowed_hosts}
    assert not any("*" in name for name in (*armed.allowed_hosts, *armed.allowed_origins))
    assert not any(name.startswith(("0.0.0.0", "[::]")) for name in armed.allowed_hosts)
    assert ("192.0.2.7:8000" in armed.allowed_hosts) == (host == "192.0.2.7")
    assert "proxy.example" not in armed.allowed_hosts


def serve(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opscope_server", *arguments],
        capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL, cwd=cwd,
        env={**os.environ, "OPSCOPE_CACHE_DIR": str(cwd / "cache")},
    )  # fmt: skip


def test_a_port_in_use_is_one_sentence(address: str, tmp_path: Path) -> None:
    done = serve("--http", "--port", address.rpartition(":")[2], cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "Choose another --port" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--http", "--host", "0.0.0.0"], "can be reached from other machines, and needs a token"),
        (["--http", "--host", "192.0.2.7"], "can be reached from other machines, and needs a token"),
        (["--http", "--port", "99999"], "cannot listen on 127.0.0.1 port 99999"),
        (["--http", "--port", "0", "--allow-host", "*"], "is no host"),
        (["--http", "--token-file", "/does/not/exist"], "cannot be read"),
        (["--deadline", "static"], "must be a positive number of seconds"),
        (["--deadline", "lunch=5"], "names no kind of call"),
        (["--repo", "nothing"], "is not of the form NAME=PATH"),
        (["--repo", "x=/does/not/exist"], "which is not a folder"),
        (["--trust", "stranger"], "No repository is called 'stranger'"),
        (["--python", "/does/not/exist"], "is not an executable file"),
    ],
)
def test_a_bad_option_is_one_sentence(arguments: list[str], sentence: str, tmp_path: Path) -> None:
    done = serve(*arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_a_bad_setting_in_the_environment_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPSCOPE_OUTPUT_BUDGET", "plenty")
    done = serve(cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "opscope: OPSCOPE_OUTPUT_BUDGET is 'plenty'; it must be a whole number of at least 1000.\n"
