"""`Session`, for scripts: typed and whole results over stdio and HTTP, and failures as sentences."""

from __future__ import annotations

import http.server
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import opscope_clients
import pytest
from opscope_clients import AsyncSession, CallError, Session
from opscope_schemas.errors import OpscopeError
from opscope_tools.catalog import all_tools
from opscope_tools.count_flops import COUNT_FLOPS

EXAMPLES = Path(__file__).parents[2] / "clients/examples"


@pytest.fixture
def session(index_folder: Path, tmp_path: Path) -> Iterator[Session]:
    with Session(cache_folder=index_folder, output=tmp_path) as opened:
        yield opened


@pytest.fixture
def address(index_folder: Path, tmp_path: Path) -> Iterator[str]:
    """A server over HTTP on a free port of loopback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "opscope_server", "--http", "--port", "0", "--cache-dir", str(index_folder),
         "--output", str(tmp_path)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr
    try:
        said = process.stderr.readline()
        assert "opscope serves MCP at" in said
        yield said.split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_results_are_typed_and_whole_where_an_agent_gets_them_shortened(session: Session) -> None:
    whole = session.expand_refs("LlamaDecoderLayer", values={"batch_size": 1, "seq_len": 128})
    assert whole.evaluated is not None
    assert whole.evaluated.matmul_flops < whole.evaluated.flops
    assert not whole.shortened
    short = session.expand_refs("llama", whole=False)
    assert short.shortened
    again = session.expand_refs("llama")
    assert again.artifact == short.artifact
    assert not again.shortened
    assert again.document.per_operator
    assert again.numbers == short.numbers


def test_a_refusal_is_the_tools_sentence_and_the_session_goes_on(session: Session) -> None:
    with pytest.raises(CallError, match=r"'LlamaAtention'.*LlamaAttention"):
        session.find_forward("LlamaAtention")
    with pytest.raises(CallError, match="nonsense"):
        session.find_forward("llama", nonsense=1)  # type: ignore[call-arg]  # what a checker refuses too
    assert session.find_forward("LlamaMLP").line > 0


def test_a_running_server_is_used_over_http_and_reports_are_written_where_it_says(address: str, tmp_path: Path) -> None:
    with Session(address) as opscope:
        assert opscope.resolve_class("LlamaMLP").matches[0].file == "transformers/models/llama/modeling_llama.py"
        written = opscope.write_report("mlp", target="gpt2", phases=["prefill"])
    assert written.ok
    assert (tmp_path / written.path).is_file()


def test_the_asynchronous_session_gives_the_same_result(index_folder: Path) -> None:
    async def main() -> int:
        async with AsyncSession(cache_folder=index_folder) as opscope:
            found = await opscope.call(COUNT_FLOPS, target="LlamaMLP", values={"batch_size": 1, "seq_len": 2})
            assert found.evaluated
            return found.evaluated.flops

    # 3 products of 4096 x 11008, silu and a product per intermediate element: PRODUCT's conventions, by hand
    assert anyio.run(main) == 2 * (6 * 4096 * 11008 + 6 * 11008)


def test_a_server_that_is_not_there_and_a_session_that_is_not_open_are_sentences() -> None:
    with (
        pytest.raises(OpscopeError, match=r"http://127\.0\.0\.1:9/mcp cannot be reached.*opscope serve --http"),
        Session("http://127.0.0.1:9/mcp"),
    ):
        pass
    with pytest.raises(OpscopeError, match=r"no address of a server.*http://127"):
        Session("localhost:8000")
    with pytest.raises(OpscopeError, match="not open"):
        Session().find_forward("llama")
    with pytest.raises(OpscopeError, match="its own repositories"):
        Session("http://127.0.0.1:9/mcp", repositories={"a": "/b"})


def test_a_server_that_ends_in_the_middle_is_a_sentence(tmp_path: Path) -> None:
    with (
        pytest.raises(OpscopeError, match=r"connection to the opscope server ended"),
        Session(repositories={"a": tmp_path / "gone"}),
    ):
        pass


def test_every_tool_is_a_method_whose_first_parameter_is_its_subject() -> None:
    for tool in all_tools():
        method = getattr(Session, tool.name)
        first = list(inspect.signature(method).parameters)[1]
        assert first in tool.arguments.model_fields
        assert tool.arguments.model_fields[first].is_required()
        assert inspect.signature(method).return_annotation == tool.result.__name__


def test_public_names_are_there_and_no_others() -> None:
    assert {name: getattr(opscope_clients, name).__name__ for name in opscope_clients.__all__} == {
        name: name for name in ("AsyncSession", "CallError", "Session")
    }
    assert not hasattr(opscope_clients, "nonsense")


@pytest.mark.parametrize(
    ("example", "lines"),
    [
        ("cost_of_one_token", ["qwen2: one sequence, one new token", "32,768"]),
        ("where_the_flops_are", ["transformers/models/llama/modeling_llama.py:"]),
        ("who_overrides_forward", ["torch/ao/nn/qat/modules/linear.py:"]),
    ],
)
def test_an_example_runs_as_its_first_lines_say(
    example: str, lines: list[str], index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPSCOPE_CACHE_DIR", str(index_folder))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{example}.py")], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(line in done.stdout for line in lines), done.stdout
    assert len(done.stdout.splitlines()) >= 3


@pytest.mark.parametrize(
    "url", ["http://", "http://[::1", "http://127.0.0.1:99999/mcp", "http://a b/mcp", "ftp://127.0.0.1/mcp", ""]
)
def test_what_is_no_address_of_a_server_is_told_before_any_connection(url: str) -> None:
    with pytest.raises(OpscopeError, match=r"is no address of a server. Give one as in"):
        Session(url)


def test_a_session_that_is_open_is_not_opened_twice_and_stays_open(session: Session) -> None:
    with pytest.raises(OpscopeError, match=r"is open already. Make another one"):
        session.__enter__()
    assert session.resolve_class("LlamaMLP").matches


class NoMcp(http.server.BaseHTTPRequestHandler):
    """Answers every request with JSON that is no message of the protocol."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Nothing: the test's output is its own."""


def test_a_server_of_something_else_is_one_sentence_and_no_traceback() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NoMcp) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [sys.executable, "-m", "opscope_clients", "analyze", "llama", "gpt2", "--json", "--http"]
        address = f"http://127.0.0.1:{server.server_port}/mcp"
        ended = subprocess.run([*words, address], capture_output=True, text=True, timeout=60, check=False)
        server.shutdown()
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    told = json.loads(ended.stdout)["analyses"]
    assert [one["target"] for one in told] == ["llama", "gpt2"]
    assert all(one["error"].count("\n") == 0 and address in one["error"] for one in told)
