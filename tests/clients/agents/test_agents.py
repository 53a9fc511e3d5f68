"""The analyzers as users start them: the real SDK, its command line and our server, on a model that says what it must.

Every run is in namespaces of its own, with nothing but loopback: where these cannot be had the tests are skipped. So they are
where the agent extra is missing.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import isolation
import pytest
from agent_runs import Run, Turns, answer, call, free_of, run, say
from cannot import CANNOT
from opscope_clients.agents.server import TOOLS

pytestmark = pytest.mark.agents

NORM = "transformers.models.llama.modeling_llama.LlamaRMSNorm"
LLAMA = "transformers/models/llama/modeling_llama.py"
MODULE = ["-m", "opscope_clients.agents.module_analyzer_agent_sdk", "--agent-model", "claude-sonnet-5"]
MODEL = ["-m", "opscope_clients.agents.model_analyzer_agent_sdk", "--agent-model", "claude-sonnet-5"]
LOOK = call("count_flops", target=NORM, phase="prefill")
ELEMENTS = "{batch_size} * {seq_len} * {hidden_size}"


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:  # of the session, so that nothing is prepared for tests that are skipped
    missing = "" if importlib.util.find_spec("claude_agent_sdk") else "pip install 'opscope[agent]' first"
    if missing:
        pytest.skip(missing)
    if refusal := isolation.refusal():
        pytest.skip(f"{CANNOT}{refusal}")


def plain(cache: Path, folder: Path, *arguments: str) -> dict[str, Any]:
    """The document that the command line writes without an agent."""
    done = subprocess.run(
        [sys.executable, "-m", "opscope_clients", *arguments, "-o", str(folder)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "OPSCOPE_CACHE_DIR": str(cache)}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (file,) = folder.iterdir()
    document: dict[str, Any] = json.loads(file.read_text())
    return document


@pytest.fixture(scope="module")
def cache(index_folder: Path) -> Path:
    return index_folder


@pytest.fixture(scope="module")
def norm(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return plain(cache, tmp_path_factory.mktemp("norm"), "module", "--module", NORM)


@pytest.fixture(scope="module")
def mlp(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return plain(cache, tmp_path_factory.mktemp("mlp"), "model", "--model", "LlamaMLP")


def wrong_norm(norm: dict[str, Any]) -> dict[str, Any]:
    """The norm's analysis with a mean that costs twice what it does."""
    said = free_of(norm)
    said["kernels"][2]["flops"] = f"2 * {ELEMENTS}"
    return said


def norm_run(folder: Path, cache: Path, turns: Turns, *arguments: str, **more: Any) -> Run:
    return run(folder, [*MODULE, "--module", NORM, *arguments], turns, cache=cache, **more)


def sentence(done: Run) -> str:
    """The one sentence that a failed run ends with; nothing but it and what it rests on is told."""
    assert done.status == 1, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("opscope: ")
    assert f"not written: {last.removeprefix('opscope: ')}" in done.scratchpad
    return last


# ---- module analyzer


def test_a_right_answer_is_written_whole_with_the_agents_words_and_notes(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    note = [{"tool": "mcp__scratchpad__edit", "input": {"old": "", "new": "the mean reads every element"}}]
    read = [{"tool": "mcp__scratchpad__read", "input": {}}]
    transcript = tmp_path / "messages.jsonl"
    done = norm_run(tmp_path, cache, [LOOK, note, read, answer(free_of(norm))], "--transcript", str(transcript))
    assert done.status == 0, done.stderr
    assert done.turns_left == 0
    written = done.document("module")
    assert written is not None
    assert {kernel["analysis"] for kernel in written["kernels"]} == {"as the agent explains it"}
    for document in (written, copied := copy.deepcopy(norm)):
        for kernel in document["kernels"]:
            kernel.pop("analysis")
    assert written == copied
    assert "the mean reads every element" in done.scratchpad
    assert "Written: module_analysis.json" in done.scratchpad
    assert "the mean reads every element" in done.said_to_model()
    messages = [json.loads(line) for line in transcript.read_text().splitlines()]
    assert messages[0]["type"] == "Prompt"
    assert NORM in messages[0]["text"]
    assert {"SystemMessage", "AssistantMessage", "UserMessage", "ResultMessage"} <= {m["type"] for m in messages}
    assert "<<" not in messages[0]["text"]


def test_an_agent_has_our_tools_and_its_scratchpad_and_nothing_of_the_users(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    settings = tmp_path / "home/.claude/settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"permissions": {"allow": ["Bash"]}, "outputStyle": "pineapple"}')
    (settings.parent / "CLAUDE.md").write_text("pineapple")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/CLAUDE.md").write_text("pineapple")
    (tmp_path / "out/.mcp.json").write_text('{"mcpServers": {"pineapple": {"command": "true"}}}')
    done = norm_run(tmp_path, cache, [answer(free_of(norm))])
    assert done.status == 0, done.stderr
    given = {tool["name"] for request in done.requests for tool in request["tools"]}
    ours = {f"mcp__opscope__{name}" for name in TOOLS}
    assert given == ours | {"mcp__scratchpad__read", "mcp__scratchpad__edit", "StructuredOutput"}
    assert "pineapple" not in json.dumps(done.requests)


#: Python runs it at every start: writes down what a server gets of the environment
_WITNESS = """
import json, os, pathlib, sys
if "opscope_server" in sys.orig_argv:
    seen = {name: os.environ.get(name) for name in ("SECRET", "ANTHROPIC_API_KEY", "OPSCOPE_CACHE_DIR")}
    pathlib.Path(__file__).with_name(f"{os.getpid()}.json").write_text(json.dumps(seen))
"""


def test_no_server_sees_the_key_and_the_agents_sees_nothing_but_what_it_needs(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    witness = tmp_path / "witness"
    witness.mkdir()
    (witness / "sitecustomize.py").write_text(_WITNESS)
    environment = {"PYTHONPATH": str(witness), "SECRET": "word"}
    done = norm_run(tmp_path, cache, [answer(free_of(norm))], environment=environment)
    assert done.status == 0, done.stderr
    seen = [json.loads(path.read_text()) for path in witness.glob("*.json")]
    assert [one["SECRET"] for one in seen] == [None, None]  # the agent's, and the client's own
    assert [one["ANTHROPIC_API_KEY"] for one in seen] == ["", ""]
    assert [one["OPSCOPE_CACHE_DIR"] for one in seen] == [str(cache)] * 2


def test_a_wrong_formula_goes_back_once_with_its_line_and_its_numbers(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    done = norm_run(tmp_path, cache, [LOOK, answer(wrong_norm(norm)), answer(free_of(norm))])
    assert done.status == 0, done.stderr
    told = done.said_to_model()
    said = re.search(
        rf"- {re.escape(LLAMA)}:64 \(aten.mean\): flops: the answer says {re.escape(f'2 * {ELEMENTS}')}, "
        rf"the trace {re.escape(ELEMENTS)}; "
        r"at batch_size=(\d+), seq_len=(\d+), hidden_size=(\d+): ([\d,]+) and ([\d,]+)",
        told,
    )
    assert said, told[-3000:]
    batch, length, width, theirs, ours = (int(text.replace(",", "")) for text in said.groups())
    assert (theirs, ours) == (2 * batch * length * width, batch * length * width)
    assert "Answer 1 differs from the trace" in done.scratchpad
    written = done.document("module")
    assert written is not None
    assert written["kernels"][2]["flops"] == ELEMENTS


def test_an_invented_line_and_then_a_line_left_out_are_rejected_and_an_older_file_stays(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    inventive, forgetful = free_of(norm), free_of(norm)
    inventive["kernels"].append({**inventive["kernels"][1], "line": 62})
    forgetful["kernels"] = [kernel for kernel in forgetful["kernels"] if kernel["line"] != 63]
    (tmp_path / "out").mkdir()
    (tmp_path / "out/module_analysis.json").write_text('"older"')
    done = norm_run(tmp_path, cache, [answer(inventive), answer(forgetful)])
    assert "second answer still differs" in sentence(done)
    assert f"{LLAMA}:62: a kernel of {NORM}: the answer says pow(" in done.said_to_model()
    assert "(invented), the trace no kernel on this line" in done.said_to_model()
    assert f"{LLAMA}:63: a kernel of {NORM}: the answer says nothing (left out)" in done.stderr
    assert (done.folder / "module_analysis.json").read_text() == '"older"'
    assert {path.name for path in done.folder.iterdir()} == {"module_analysis.json", "SCRATCHPAD.md"}


def test_an_answer_that_is_wrong_twice_is_reported_and_not_written(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    done = norm_run(tmp_path, cache, [answer(wrong_norm(norm)), answer(wrong_norm(norm)), answer(free_of(norm))])
    assert re.search(r"still differs from the trace in 2 places\. Nothing was written\. --resume \S+", sentence(done))
    assert f"{LLAMA}:64 (aten.mean): flops: the answer says 2 * {ELEMENTS}, the trace {ELEMENTS}" in done.stderr
    assert done.turns_left == 1  # it is asked twice, never a third time
    assert done.document("module") is None


def test_an_agent_that_stops_without_an_answer_fails_and_a_resumed_one_goes_on(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    done = norm_run(tmp_path, cache, [LOOK, *[say("I would rather not.")] * 8])
    assert done.document("module") is None
    found = re.search(r"--resume (\S+) goes on", sentence(done))
    assert found, done.stderr
    again = norm_run(tmp_path, cache, [answer(free_of(norm))], "--resume", found.group(1), home=tmp_path / "home")
    assert again.status == 0, again.stderr
    history = "\n".join(json.dumps(message) for message in again.requests[0]["messages"])
    assert "I would rather not." in history
    assert "Go on where this session stopped" in history
    assert again.document("module") is not None


@pytest.mark.parametrize(
    ("limit", "word"), [(("--max-turns", "2"), "max_turns"), (("--max-budget-usd", "0.00001"), "budget")]
)
def test_a_limit_that_is_reached_fails_the_run(
    tmp_path: Path, cache: Path, norm: dict[str, Any], limit: tuple[str, str], word: str
) -> None:
    done = norm_run(tmp_path, cache, [LOOK, LOOK, LOOK, LOOK, answer(free_of(norm))], *limit)
    assert word in sentence(done)
    assert done.document("module") is None
    assert done.turns_left > 0


def test_a_built_in_tool_that_the_agent_asks_for_fails_the_run(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    shell = [{"tool": "Bash", "input": {"command": f"touch {tmp_path}/touched"}}]
    done = norm_run(tmp_path, cache, [shell, answer(free_of(norm))])
    assert "asked for the tool Bash, which it is not given" in sentence(done)
    assert not (tmp_path / "touched").exists()
    assert done.document("module") is None


def http_server(folder: Path, *, refused: str = "") -> dict[str, Any]:
    """A whole opscope server over HTTP, with tools that an agent is not given; `refused`: an agent it turns away."""
    program = [sys.executable, str(Path(__file__).parent / "http_server.py"), refused]
    return {"arguments": program, "cwd": str(folder), "ready": "serves MCP at"}


URL = "http://127.0.0.1:8765/mcp"


def test_over_http_a_tool_that_writes_is_denied_and_fails_the_run(
    tmp_path: Path, cache: Path, norm: dict[str, Any]
) -> None:
    writing = call("write_report", kind="implementation", name="x", target="llama")
    turns = [writing, answer(free_of(norm))]
    done = norm_run(tmp_path, cache, turns, "--http", URL, server=http_server(tmp_path))
    assert "was denied the tool mcp__opscope__write_report" in sentence(done)
    assert done.document("module") is None


def test_over_http_a_right_answer_is_written(tmp_path: Path, cache: Path, norm: dict[str, Any]) -> None:
    done = norm_run(tmp_path, cache, [LOOK, answer(free_of(norm))], "--http", URL, server=http_server(tmp_path))
    assert done.status == 0, done.stderr
    assert done.document("module") is not None


def test_a_server_that_the_agent_cannot_reach_fails_the_run(tmp_path: Path, cache: Path, norm: dict[str, Any]) -> None:
    server = http_server(tmp_path, refused="claude")
    done = norm_run(tmp_path, cache, [answer(free_of(norm))], "--http", URL, server=server)
    assert "The agent's server opscope is not connected: failed." in sentence(done)
    assert done.document("module") is None


def test_a_model_that_cannot_be_reached_is_one_sentence(tmp_path: Path, cache: Path) -> None:
    done = norm_run(tmp_path, cache, [])
    assert "the script has ended" in sentence(done)


# ---- what is missing stops a run before an agent is asked


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--module", "LlamaRMSNrm"], "No class is called 'LlamaRMSNrm'. Nearest names: LlamaRMSNorm"),
        (["--module", NORM, "--transformers", "/none"], "The source folder /none of --transformers does not exist."),
        (
            ["--module", NORM, "--http", "http://127.0.0.1:9/mcp"],
            "The opscope server at http://127.0.0.1:9/mcp cannot be reached",
        ),
    ],
)
def test_a_missing_source_stops_the_run_with_the_reason_in_the_scratchpad(
    tmp_path: Path, cache: Path, arguments: list[str], reason: str
) -> None:
    done = run(tmp_path, [*MODULE, *arguments], [say("never asked")], cache=cache)
    assert reason in sentence(done)
    assert reason in done.scratchpad
    assert done.requests == []


# ---- model analyzer


def test_a_model_is_expanded_with_the_analyses_at_hand_and_the_missing_ones_are_told(
    tmp_path: Path, cache: Path, mlp: dict[str, Any]
) -> None:
    analyses = tmp_path / "analyses"
    plain(cache, analyses, "module", "--module", "torch.nn.Linear", "--config", "bias=false")
    turns = [call("expand_refs", target="LlamaMLP", phase="prefill"), answer(free_of(mlp))]
    done = run(tmp_path, [*MODEL, "--model", "LlamaMLP", "--module-analysis", str(analyses)], turns, cache=cache)
    assert done.status == 0, done.stderr
    written = done.document("model")
    assert written is not None
    assert [len(kernel.get("kernels") or []) for kernel in written["kernels"]] == [1, 1, 1, 0, 1]
    assert written["per_operator"] == mlp["per_operator"]
    asked = done.said_to_model()
    assert "the analysis of torch.nn.modules.linear.Linear:" in asked
    assert "2 * {batch_size} * {seq_len} * {hidden_size} * {intermediate_size}" in asked
    for told in (done.stderr, done.scratchpad):
        assert "no analysis of transformers.activations.SiLUActivation; asked of the server." in told
        assert "no analysis of torch" not in told


def test_a_nested_kernel_that_is_wrong_and_then_a_reference_left_folded_are_rejected(
    tmp_path: Path, cache: Path, mlp: dict[str, Any]
) -> None:
    wrong, folded = free_of(mlp), free_of(mlp)
    wrong["kernels"][1]["kernels"][0]["flops"] = "4 * {batch_size} * {seq_len} * {intermediate_size}"
    del folded["kernels"][0]["kernels"]
    done = run(tmp_path, [*MODEL, "--model", "LlamaMLP"], [answer(wrong), answer(folded)], cache=cache)
    assert "(aten.silu): flops: the answer says 4 *" in done.said_to_model()
    assert "a reference that is not expanded" in done.stderr
    assert "still differs from the trace in 1 place." in sentence(done)
    assert done.document("model") is None


def test_a_folder_of_analyses_that_is_missing_stops_the_run(tmp_path: Path, cache: Path) -> None:
    arguments = [*MODEL, "--model", "LlamaMLP", "--module-analysis", "/none"]
    done = run(tmp_path, arguments, [say("never asked")], cache=cache)
    assert "The folder of module analyses /none does not exist." in sentence(done)
    assert done.requests == []


# ---- from the command line


def test_analyze_with_an_agent_takes_the_analyzer_that_fits(tmp_path: Path, cache: Path, norm: dict[str, Any]) -> None:
    analyze = ["-m", "opscope_clients", "analyze", "--agent"]
    done = run(tmp_path / "module", [*analyze, NORM], [answer(free_of(norm))], cache=cache)
    assert done.status == 0, done.stderr
    assert done.document("module") is not None
    done = run(tmp_path / "model", [*analyze, "llama"], [say("no")] * 9, cache=cache)
    assert "Expand every module reference of **llama**" in done.said_to_model()
    assert done.status == 1
    assert "# Model analysis of llama" in done.scratchpad
