"""A model that says what a script says: the Messages API on loopback, answered from a list of turns.

A turn is a list of blocks: `{"text": ...}` or `{"tool": name, "input": {...}}`. Each request takes the next turn; every
request is kept. Run as a script (inside `isolation`), it serves one client command and writes down what happened:

    python scripted_model.py SCENARIO.json RECORD.json

SCENARIO holds `turns`, `arguments` (the client's command), `cwd`, `environment`, `timeout`, and may hold `server`, a
command to start first; RECORD gets `requests`, `status`, `stdout`, `stderr`.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

Block = dict[str, Any]


class ScriptedModel(http.server.ThreadingHTTPServer):
    """Serves the turns, one a request; answers 400 when there are none left, which no client tries again."""

    daemon_threads = True

    def __init__(self, turns: list[list[Block]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.turns = list(turns)
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_turn(self, request: dict[str, Any]) -> list[Block] | None:
        with self.lock:
            self.requests.append(request)
            return self.turns.pop(0) if self.turns else None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        script = cast(ScriptedModel, self.server)
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": len(json.dumps(body)) // 4})
        elif not path.endswith("/messages"):
            self._json(404, {"type": "error", "error": {"type": "not_found_error", "message": path}})
        elif (turn := script.next_turn(body)) is None:
            said = {"type": "invalid_request_error", "message": "the script has ended"}
            self._json(400, {"type": "error", "error": said})
        else:
            number = len(script.requests)
            message = _message(turn, number, str(body.get("model", "")))
            if body.get("stream"):
                self._events(message)
            else:
                self._json(200, message)

    def do_GET(self) -> None:
        self._json(404, {"type": "error", "error": {"type": "not_found_error", "message": self.path}})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _json(self, status: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _events(self, message: dict[str, Any]) -> None:
        data = b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _stream(message))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Quiet."""


def _message(turn: list[Block], number: int, model: str) -> dict[str, Any]:
    content: list[Block] = []
    for position, block in enumerate(turn):
        if "tool" in block:
            name = f"toolu_{number:03}_{position}"
            content.append({"type": "tool_use", "id": name, "name": block["tool"], "input": block["input"]})
        else:
            content.append({"type": "text", "text": block["text"]})
    calls = any("tool" in block for block in turn)
    return {
        "id": f"msg_{number:03}", "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 10},
    }  # fmt: skip


def _stream(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = message["usage"]
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        empty = {**block, "input": {}} if block["type"] == "tool_use" else {"type": "text", "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        delta = (
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            if block["type"] == "tool_use"
            else {"type": "text_delta", "text": block["text"]}
        )
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": usage}
    yield {"type": "message_stop"}


@contextlib.contextmanager
def serving(turns: list[list[Block]]) -> Iterator[ScriptedModel]:
    """A scripted model that listens while inside."""
    model = ScriptedModel(turns)
    thread = threading.Thread(target=model.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.shutdown()
        thread.join()
        model.server_close()


def environment(home: Path, address: str) -> dict[str, str]:
    """All that a client is given of an environment: a home of its own, the scripted model, nothing of this machine."""
    folders = {
        "HOME": home, "CLAUDE_CONFIG_DIR": home / ".claude", "XDG_CONFIG_HOME": home / ".config",
        "XDG_CACHE_HOME": home / ".cache", "XDG_DATA_HOME": home / ".local", "TMPDIR": home / "tmp",
    }  # fmt: skip
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    return {
        **{name: str(folder) for name, folder in folders.items()},
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), "/usr/bin", "/bin")),
        "LANG": "C.UTF-8",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "MCP_CONNECTION_NONBLOCKING": "0",
        "MCP_CONNECT_TIMEOUT_MS": "120000",  # servers are waited for, however loaded the machine is
    }


def main(scenario_file: Path, record_file: Path) -> None:
    """Serve one client and write down what happened."""
    scenario = json.loads(scenario_file.read_text())
    record: dict[str, Any] = {}
    with contextlib.ExitStack() as held:
        model = held.enter_context(serving(scenario["turns"]))
        given = environment(Path(scenario["home"]), model.address) | scenario.get("environment", {})
        if server := scenario.get("server"):
            held.enter_context(_started(server, given))
        try:
            done = subprocess.run(
                scenario["arguments"], cwd=scenario["cwd"], env=given, capture_output=True, text=True,
                stdin=subprocess.DEVNULL, timeout=scenario["timeout"], check=False,
            )  # fmt: skip
            record = {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
        except subprocess.TimeoutExpired as error:
            record = {"status": None, "stdout": str(error.stdout), "stderr": str(error.stderr)}
        record["requests"], record["turns_left"] = model.requests, len(model.turns)
    record_file.write_text(json.dumps(record))


@contextlib.contextmanager
def _started(server: dict[str, Any], given: dict[str, str]) -> Iterator[None]:
    """A server beside the client, ready once it has said its `ready` word on stderr."""
    process = subprocess.Popen(
        server["arguments"], env=given, cwd=server["cwd"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr
        for line in process.stderr:
            if server["ready"] in line:
                break
        drained = threading.Thread(target=process.stderr.read, daemon=True)
        drained.start()
        yield
    finally:
        process.terminate()
        process.wait(20)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
