"""HTTP as others may reach it: tokens, names, slow and half-sent requests, too many of anything, bad messages. Raw sockets."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from opscope_clients.client import Session
from opscope_clients.connection import connected, server_at
from opscope_schemas.errors import InputError, OpscopeError
from opscope_server.access import Token, token_of

TOY_SERVER = Path(__file__).with_name("toy_server.py")
TOKEN = "kB7-" + "x9_~" * 8
#: seconds after which a test has hung
LONG = 30.0
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


class Serving:
    """A toy server over HTTP."""

    def __init__(self, folder: Path, settings: dict[str, Any], token: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(TOY_SERVER), str(folder), "--http"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "TOY_SETTINGS": json.dumps(settings), "OPSCOPE_HTTP_TOKEN": token},
        )  # fmt: skip
        self.log: list[str] = []
        self.port = 0
        assert self.process.stderr
        for said in self.process.stderr:
            self.log.append(said)
            if said.startswith("opscope serves MCP at http://"):
                self.port = int(said.split("/mcp")[0].rpartition(":")[2])
                break
        self._reader = threading.Thread(target=lambda: self.log.extend(self.process.stderr or []), daemon=True)
        self._reader.start()

    def end(self) -> str:
        """Everything that it logged."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LONG)
        self._reader.join(LONG)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe
            pipe.close()
        return "".join(self.log)

    def ask(self, body: object, *, method: str = "POST", path: str = "/mcp", **headers: str) -> tuple[int, str, Any]:
        """Status, body and headers of one request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        sent = {
            "Content-Type": "application/json", "Accept": "application/json, text/event-stream",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }  # fmt: skip
        raw = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        connection.request(method, path, raw, sent)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(), answer.headers
        connection.close()
        return found

    def open(self) -> socket.socket:
        found = socket.create_connection(("127.0.0.1", self.port), timeout=LONG)
        found.settimeout(LONG)
        return found

    def session(self) -> str:
        status, _, headers = self.ask(INITIALIZE)
        assert status == 200
        return str(headers["mcp-session-id"])


Start = Callable[..., Serving]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts servers by their settings, each once."""
    running: dict[str, Serving] = {}

    def started(token: str = "", **settings: Any) -> Serving:
        key = json.dumps([token, settings])
        if key not in running:
            running[key] = Serving(tmp_path_factory.mktemp("out"), settings, token)
        return running[key]

    yield started
    for serving in running.values():
        assert "Traceback" not in serving.end()


def rest(connection: socket.socket) -> bytes:
    """What comes until the server closes; fails where it does not."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := connection.recv(4096):
            found += piece
    return found


# ---- tokens --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_token_is_asked_for_wherever_one_is_given(start: Start, host: str) -> None:
    server = start(TOKEN, host=host)
    assert server.ask(INITIALIZE)[0] == 401
    for wrong in (TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "", "ÿ" * 40):
        status, body, _ = server.ask(INITIALIZE, Authorization=f"Bearer {wrong}")
        assert status == 401
        assert "invalid_token" in body
    assert server.ask(INITIALIZE, Authorization=f"Bearer {TOKEN}")[0] == 200
    assert server.ask(INITIALIZE, Authorization=f"Basic {TOKEN}")[0] == 401


def test_health_is_open_and_says_nothing_more(start: Start) -> None:
    assert start(TOKEN, host="127.0.0.1").ask(None, method="GET", path="/health")[:2] == (200, '{"status":"ok"}')


def test_a_token_stands_in_no_log_and_no_answer(tmp_path: Path) -> None:
    server = Serving(tmp_path, {"log_level": "DEBUG"}, TOKEN)
    answers = [
        server.ask(INITIALIZE, Authorization=f"Bearer {TOKEN}"),
        server.ask(b"broken", Authorization=f"Bearer {TOKEN}"),
        server.ask(INITIALIZE, Authorization=f"Bearer {TOKEN}", Host="evil.example"),
    ]
    log = server.end()
    assert len(log) > 100
    assert not any(TOKEN in text for text in (log, *(f"{body} {headers}" for _, body, headers in answers)))


def test_our_own_client_gives_its_token_and_says_where_one_is_missing(start: Start) -> None:
    url = f"http://127.0.0.1:{start(TOKEN, host='127.0.0.1').port}/mcp"

    async def names(token: str) -> list[str]:
        async with connected(server_at(url, token)) as connection:
            return [tool.name for tool in (await connection._client.list_tools()).tools]

    assert "rows" in anyio.run(names, TOKEN)
    for token, sentence in (("", "asks for a token"), ("x" * 40, "does not take this token")):
        with pytest.raises(OpscopeError, match=sentence), Session(url, token=token):
            pass


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("short", "has 5 characters; it needs at least 32"),
        ("", "has 0 characters"),
        ("two words " * 8, "no bearer token may have"),
        ("ü" * 40, "no bearer token may have"),
    ],
)
def test_a_bad_token_file_is_a_sentence_that_does_not_quote_it(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(InputError, match=sentence) as caught:
        token_of(str(file), {})
    assert not text or text not in str(caught.value)


def test_a_token_file_that_everybody_reads_is_refused_and_a_good_one_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(InputError, match="can be read by every user"):
        token_of(str(file), {})
    file.chmod(0o400)
    found = token_of(str(file), {})
    assert isinstance(found, Token)
    assert found.matches(TOKEN)
    assert not found.matches(TOKEN + "\n")
    assert TOKEN not in repr(found.__dict__)


def test_a_token_of_the_environment_is_not_inherited_further() -> None:
    environment = {"OPSCOPE_HTTP_TOKEN": TOKEN, "OTHER": "x"}
    assert token_of(None, environment)
    assert environment == {"OTHER": "x"}


# ---- names ---------------------------------------------------------------------------------------------------------


def test_only_the_bound_port_and_the_operators_names_are_hosts(start: Start) -> None:
    server = start(host="127.0.0.1", allowed_hosts=["proxy.example", "other.example:8443"])
    for host in (f"127.0.0.1:{server.port}", f"localhost:{server.port}", "proxy.example", "other.example:8443"):
        assert server.ask(INITIALIZE, Host=host)[0] == 200, host
    for host in (
        "127.0.0.1",
        "127.0.0.1:1",
        f"127.0.0.1:{server.port}0",
        "other.example",
        f"evil.example:{server.port}",
    ):
        assert server.ask(INITIALIZE, Host=host)[0] == 421, host
    assert server.ask(INITIALIZE, Origin=f"http://localhost:{server.port}")[0] == 200
    for origin in ("http://localhost", "http://localhost:1", "null", "https://evil.example"):
        assert server.ask(INITIALIZE, Origin=origin)[0] == 403, origin


# ---- slow and too many ---------------------------------------------------------------------------------------------

HASTY = {"head_seconds": 0.3, "body_seconds": 0.3, "session_seconds": 0.3, "sessions": 3, "connections": 12}


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HT", b"POST /mcp HTTP/1.1\r\nHost: x\r\nX-Slow: "])
def test_a_head_that_does_not_come_ends_the_connection(start: Start, sent: bytes) -> None:
    with start(**HASTY).open() as connection:
        connection.sendall(sent)
        assert rest(connection) == b""


def test_a_head_that_trickles_ends_the_connection_all_the_same(start: Start) -> None:
    with start(**HASTY).open() as connection:
        connection.settimeout(0.05)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(600):
                connection.sendall(b"G")
                with contextlib.suppress(TimeoutError):
                    if connection.recv(100) == b"":
                        return
            raise AssertionError("the server waits for ever")


def test_a_body_that_does_not_come_is_answered_and_ends_the_connection(start: Start) -> None:
    server = start(**HASTY)
    for method in (b"POST", b"GET", b"DELETE"):
        with server.open() as connection:
            head = b"%s /mcp HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Length: 100\r\n\r\n{" % (method, server.port)
            connection.sendall(head)
            assert rest(connection).startswith(b"HTTP/1.1 408")


def test_the_rest_of_a_request_that_was_answered_is_not_waited_for(start: Start) -> None:
    server = start(**HASTY)
    with server.open() as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.settimeout(0.05)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(99):
                connection.sendall(b"x")
                with contextlib.suppress(TimeoutError):
                    if connection.recv(4096) == b"":
                        return
            raise AssertionError("the server waits for ever")


def test_one_connection_too_many_is_refused_and_the_others_go_on(start: Start) -> None:
    server = start(connections=3)
    with contextlib.ExitStack() as held:
        for _ in range(3):
            held.enter_context(server.open()).sendall(b"GET")
        assert rest(held.enter_context(server.open())).startswith(b"HTTP/1.1 503")
    assert server.ask(None, method="GET", path="/health")[0] == 200


def test_sessions_are_bounded_and_idle_ones_end(start: Start) -> None:
    server = start(**HASTY)
    first = server.session()
    alive = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    statuses = [server.ask(INITIALIZE)[0] for _ in range(3)]
    assert 503 in statuses
    while (status := server.ask(alive, mcp_session_id=first)[0]) != 404:
        assert status == 200
        threading.Event().wait(0.4)
    while server.ask(INITIALIZE)[0] == 503:
        threading.Event().wait(0.05)


# ---- messages ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "known"),
    [
        (b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":{"a":' + b"[" * 250 + b"]" * 250 + b"}}", 400, 5),
        (b'{"jsonrpc":"2.0","method":"tools/list","params":{"a":"' + b"x" * (5 << 20) + b'"},"id":"big"}', 413, "big"),
        (b'{"jsonrpc":"2.0","id":6,"method":"tools/list","params":[]}', 400, 6),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list",,}', 400, 7),
        (b'{"jsonrpc":"2.0","id":8,"method":"tools/list","params":{"a":NaN}}', 400, 8),
        (b'{"jsonrpc":"2.0","id":9.5,"method":"tools/list"}', 400, 9.5),
        (b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}', 400, None),
        (b"", 400, None),
    ],
)
@pytest.mark.parametrize("era", ["2025-11-25", "2026-07-28"])
def test_a_bad_message_is_answered_with_its_id(start: Start, body: bytes, status: int, known: object, era: str) -> None:
    server = start(host="127.0.0.1")
    found, text, _ = server.ask(body, MCP_Protocol_Version=era)
    answer = json.loads(text)
    assert (found, answer["id"]) == (status, known)
    assert answer["error"]["message"].endswith((".", "x"))


def test_a_batch_is_answered_request_by_request(start: Start) -> None:
    batch = [{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in (1, "b")]
    status, text, _ = start(host="127.0.0.1").ask(batch)
    assert status == 400
    assert [answer["id"] for answer in json.loads(text)] == [1, "b"]


def test_an_id_that_is_under_way_in_a_session_is_refused_and_the_first_request_is_answered(start: Start) -> None:
    server = start(host="127.0.0.1", deadlines={"static": 3})
    session = server.session()
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {}}}
    first: list[tuple[int, str, Any]] = []
    asking = threading.Thread(target=lambda: first.append(server.ask(call, mcp_session_id=session)))
    asking.start()
    while "begun\n" not in server.log:
        threading.Event().wait(0.01)
    status, text, _ = server.ask(call, mcp_session_id=session)
    assert (status, json.loads(text)["id"]) == (400, 2)
    assert "is under way" in text
    asking.join(LONG)
    assert "questions about source may take 3 s" in first[0][1]


# ---- the page about it ---------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/http.md"


def test_every_serve_command_of_the_page_is_one_that_the_command_line_takes() -> None:
    from opscope_clients import helping
    from opscope_clients.cli import opscope

    commands = [
        line.partition("opscope serve ")[2] for line in PAGE.read_text().splitlines() if "opscope serve " in line
    ]
    assert len(commands) >= 3
    for command in commands:
        arguments = shlex.split(command)
        context = helping.below(opscope)["serve"].make_context(
            "serve", arguments, parent=opscope.make_context("opscope", ["serve"])
        )
        assert context.params["http"], command


def test_the_limits_of_the_page_are_the_servers() -> None:
    from opscope_server.messages import MOST_BYTES, MOST_LEVELS
    from opscope_server.settings import COMPILE_SECONDS, MARGIN_SECONDS, STATIC_SECONDS, Settings

    page, settings = PAGE.read_text(), Settings()
    for row in (
        f"| head of a request | {settings.head_seconds:.0f} s,",
        f"| body of a request | {settings.body_seconds:.0f} s, then 408; {MOST_BYTES >> 20} MiB,",
        f"| levels of JSON | {MOST_LEVELS} |",
        f"| connections | {settings.connections:,}, then 503 |",
        f"| sessions | {settings.sessions}, then 503; one that is not used for {settings.session_seconds / 60:.0f} minutes",
        f"`OPSCOPE_QUEUE` ({settings.queue})",
        f"| {STATIC_SECONDS:.0f} s |",
        f"(600 s) + {MARGIN_SECONDS:.0f} s |",
        f"| {COMPILE_SECONDS:.0f} s |",
    ):
        assert row in page, row
