"""Hundreds of bad requests over a real stdio client and over HTTP: each is answered, in a sentence, and the server lives on.

The client is a pipe, so that malformed messages are possible. The sample runs always; all of them with `make faults`.
"""

from __future__ import annotations

import collections
import http.client
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from bad_inputs import Bad, bad_requests

#: seconds in which every request is answered
PATIENCE = 30.0
TINY = Path(__file__).parents[1] / "corpus/cuda_costs"
#: of those that a client library could send and that take no trace, the ordinary tests send every so-manieth
EVERY = 9
#: what no answer to a caller's mistake may hold
_INTERNAL = re.compile(
    r"Traceback|defect of opscope itself|opscope_(tools|server|schemas|cache|prompts|clients)\b|File \"|site-packages/(mcp|pydantic|anyio)"
    r"|Internal server error|Error executing tool|object at 0x|pydantic|RecursionError|UnicodeEncodeError"
)
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


class Pipe:
    """A server over stdio, and what it writes, line by line."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "opscope_server", "--cache-dir", str(cache), "--output", str(folder / "out"),
                 "--repo", f"tiny={TINY}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=folder,
                env={**os.environ, "OPSCOPE_TRACE_TIMEOUT": "10"},
            )  # fmt: skip
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.strange: list[bytes] = []
        self.unasked: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                answer = json.loads(line)
                assert answer["jsonrpc"] == "2.0"
            except (ValueError, KeyError, TypeError, AssertionError):
                self.strange.append(line)
                continue
            if "method" not in answer:
                self.answers.put(answer)

    def send(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def answer(self, known: object) -> dict[str, Any]:
        """The answer under that id; raises `queue.Empty`."""
        while True:
            answer = self.answers.get(timeout=PATIENCE)
            if answer.get("id") == known and type(answer.get("id")) is type(known):
                return answer
            self.unasked.append(answer)

    def ask(self, number: int, method: str, **params: Any) -> Any:
        self.send(json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode())
        return self.answer(number)["result"]

    def end(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        assert self.process.wait(PATIENCE) == 0
        self._reader.join(PATIENCE)
        self.process.stdout.close()


@pytest.fixture
def pipe(tmp_path: Path, index_folder: Path) -> Iterator[Pipe]:
    (tmp_path / "out").mkdir()
    server = Pipe(tmp_path, index_folder)
    server.send(json.dumps(INITIALIZE).encode())
    assert "result" in server.answer(1)
    server.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    yield server
    server.process.kill()
    server.process.wait()
    assert server.process.stdin
    assert server.process.stdout
    server.process.stdin.close() if not server.process.stdin.closed else None
    server.process.stdout.close()


def complaints(bad: Bad, answer: dict[str, Any]) -> list[str]:
    """What is wrong with an answer; empty where nothing is."""
    found = []
    result = answer.get("result", {})
    failed = "error" in answer or result.get("isError")
    text = (
        answer["error"]["message"]
        if "error" in answer
        else "".join(c.get("text", "") for c in result.get("content", []))
    )
    if failed:
        if not text.strip() or len(text) > 25_000:
            found.append(f"an error of {len(text)} characters")
        if " " not in text.strip():
            found.append("an error that is no sentence")
        if "\n" in text.strip():
            found.append("an error of several lines")
        if spilled := _INTERNAL.search(text):
            found.append(f"an error that says {spilled[0]!r}")
    return [f"{bad!r}\n    {what}: {text[:400]}" for what in found]


def tell(kind: str, sent: Sequence[Bad], answers: Sequence[dict[str, Any]]) -> None:
    """Print what happened; `-s` or a failure shows it."""
    outcomes = collections.Counter(
        "protocol error" if "error" in a else "tool error" if a["result"].get("isError") else "answered"
        for a in answers
    )
    sys.stdout.write(f"{kind}: {len(sent)} bad requests: {dict(outcomes)}\n")


def put_through(pipe: Pipe, bad: Sequence[Bad]) -> None:
    """Send all of them, one after the other, and hold every answer against the rules."""
    found: list[str] = []
    answers: list[dict[str, Any]] = []
    took: list[tuple[float, str]] = []
    for request in bad:
        begun = time.monotonic()
        pipe.send(request.line)
        if not request.answered:
            continue
        try:
            answers.append(pipe.answer(request.id))
        except queue.Empty:
            found.append(f"{request!r}\n    no answer within {PATIENCE:.0f} s")
            if pipe.process.poll() is not None:
                break
            continue
        took.append((time.monotonic() - begun, repr(request)[:200]))
        found += complaints(request, answers[-1])
    tell("stdio", bad, answers)
    sys.stdout.write("".join(f"{seconds:6.2f} s {what}\n" for seconds, what in sorted(took)[:-9:-1]))
    assert not found, f"{len(found)} of {len(bad)}:\n" + "\n".join(found)
    assert len(pipe.ask(1, "tools/list")["tools"]) >= 12
    assert pipe.answers.empty()
    assert pipe.unasked == [], "something was answered twice, or under another id"
    pipe.end()
    assert pipe.strange == []
    log = pipe.log.read_text(errors="replace")
    assert "Traceback" not in log, log[-3000:]


def written(folder: Path) -> list[str]:
    """Files that appeared beside what a server may write."""
    known = {"log"}
    return [str(p) for p in folder.rglob("*") if p.is_file() and p.name not in known]


@pytest.fixture
def requests(pipe: Pipe) -> list[Bad]:
    return bad_requests(pipe.ask(2, "tools/list")["tools"], pipe.ask(3, "prompts/list")["prompts"])


def test_there_are_hundreds_and_they_are_the_same_each_time(pipe: Pipe, requests: list[Bad]) -> None:
    assert len(requests) >= 800
    tools, prompts = pipe.ask(4, "tools/list")["tools"], pipe.ask(5, "prompts/list")["prompts"]
    assert requests == bad_requests(tools, prompts)
    labels = {request.label.split()[0] for request in requests}
    assert labels >= {tool["name"] for tool in tools}


def test_a_sample_of_bad_requests_is_answered_in_sentences(pipe: Pipe, requests: list[Bad], tmp_path: Path) -> None:
    light = [request for request in requests if not request.heavy]
    put_through(pipe, [request for n, request in enumerate(light) if request.raw or n % EVERY == 0])
    assert written(tmp_path) == []


@pytest.mark.faults
@pytest.mark.slow
def test_every_bad_request_is_answered_in_a_sentence(pipe: Pipe, requests: list[Bad], tmp_path: Path) -> None:
    put_through(pipe, requests)
    assert written(tmp_path) == []


def over_http(port: int, bad: Sequence[Bad]) -> tuple[list[str], list[dict[str, Any]]]:
    """Post all of them in one session: complaints, and the answers."""
    head = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}

    def post(body: bytes) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("POST", "/mcp", body, head)
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response, text

    head["mcp-session-id"] = str(post(json.dumps(INITIALIZE).encode())[0].headers["mcp-session-id"])
    post(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    found: list[str] = []
    answers: list[dict[str, Any]] = []
    for request in bad:
        _, text = post(request.line)
        data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")] or [text]
        mine = [answer for piece in data if piece and "method" not in (answer := json.loads(piece))]
        if not request.answered:
            continue
        if len(mine) != 1:
            found.append(f"{request!r}\n    answered {len(mine)} times: {text[:300]}")
        for answer in mine:
            found += complaints(request, answer)
            answers.append(answer)
    return found, answers


@pytest.mark.parametrize("share", [EVERY * 3, pytest.param(2, marks=[pytest.mark.faults, pytest.mark.slow])])
def test_the_same_holds_over_http(tmp_path: Path, index_folder: Path, requests: list[Bad], share: int) -> None:
    log = tmp_path / "http-log"
    with log.open("wb") as sink, subprocess.Popen(
        [sys.executable, "-m", "opscope_server", "--http", "--port", "0", "--cache-dir", str(index_folder), "--repo", f"tiny={TINY}"],
        stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, cwd=tmp_path,
    ) as process:  # fmt: skip
        try:
            while not (told := re.search(r"127\.0\.0\.1:(\d+)/mcp", log.read_text())):
                assert process.poll() is None, log.read_text()
                threading.Event().wait(0.05)
            bad = [request for request in requests if not request.heavy][::share]
            found, answers = over_http(int(told[1]), bad)
        finally:
            process.terminate()
    tell("HTTP", bad, answers)
    assert not found, f"{len(found)} of {len(bad)}:\n" + "\n".join(found)
    assert "Traceback" not in log.read_text()
