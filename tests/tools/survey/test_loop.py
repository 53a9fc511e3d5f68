"""The call nesting against the calls that really happen, and its depth against the syntax tree."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
from map_facts import CORPUS, context_of, mapped
from opscope_schemas.errors import UnknownNameError
from opscope_schemas.repo_map import CallNest, NestLine, RepoMapResult
from opscope_tools.map_repo import MAP_REPO, MapRepoArguments
from opscope_tools.running.runner import shorten_to
from opscope_tools.running.workspace import folder_repository
from opscope_tools.source.call_nesting import shortened

ENGINE = CORPUS / "engine"
#: runs the engine and notes each call inside the package: (caller's file and line, callee's file and first line)
_TRACER = """
import json, os, sys
root = sys.argv[1]
sys.path.insert(0, root)
from pocket.config import EngineArgs
from pocket.engine.llm_engine import LLMEngine
from pocket.sampling_params import SamplingParams
seen = set()
def note(frame, event, argument):
    back = frame.f_back
    if event == "call" and back and all(f.f_code.co_filename.startswith(root) for f in (frame, back)):
        place = lambda f, line: os.path.relpath(f.f_code.co_filename, root) + ":" + str(line)
        seen.add((place(back, back.f_lineno), place(frame, frame.f_code.co_firstlineno)))
engine = LLMEngine(EngineArgs())
sys.settrace(note)
engine.generate([[1, 2], [3], [4, 5, 6]], SamplingParams())
sys.settrace(None)
print(json.dumps(sorted(seen)))
"""


def real_calls() -> set[tuple[str, str]]:
    done = subprocess.run(
        [sys.executable, "-c", _TRACER, str(ENGINE)], capture_output=True, text=True, check=True, timeout=60
    )
    return {(caller, callee) for caller, callee in json.loads(done.stdout.splitlines()[-1])}


def led(lines: tuple[NestLine, ...]) -> set[tuple[str, str]]:
    return {(line.at, line.into) for line in lines if line.into}


def test_every_call_of_the_nesting_happens_so_in_a_run(tmp_path: Path) -> None:
    """But for the sampler, whose class only the run knows, and calls made through `call` by the method's name."""
    nest = mapped("engine", tmp_path).loops[0]
    real = real_calls()
    by_name = {(at, into) for at, into in led(nest.lines) if "model_runner.py" in into and "llm_engine.py" in at}
    assert len(by_name) == 1
    unreal = {(at, into) for at, into in led(nest.lines) - by_name if (at, into) not in real}
    preempts = {(at, into) for at, into in unreal if "scheduler.py" in at}  # nothing ran out of blocks in this run
    lines = {line.at: line.code for line in nest.lines}
    assert {lines[at] for at, _ in preempts} <= {
        "self.preempt(self.running.pop())",
        "self.block_manager.deallocate(seq)",
    }
    assert unreal == preempts


def test_every_call_of_a_stage_in_a_run_stands_in_the_nesting(tmp_path: Path) -> None:
    nest = mapped("engine", tmp_path).loops[0]
    assert nest.entry == "LLMEngine.generate"
    assert set(nest.reaches) == {"schedule", "prefill or decode", "model", "sample", "KV cache", "output"}
    found = {line.at for line in nest.lines}
    stages = (
        "schedule",
        "run_model",
        "prepare_prefill",
        "prepare_decode",
        "sample",
        "allocate",
        "can_append",
        "postprocess",
    )
    source = {
        f: (ENGINE / f).read_text().splitlines()
        for f in {at.rpartition(":")[0] for pair in real_calls() for at in pair}
    }
    for caller, callee in real_calls():
        file, _, line = callee.rpartition(":")
        if any(f"def {stage}(" in source[file][int(line) - 1] for stage in stages):
            assert caller in found, f"{caller} calls {callee}"


def test_depth_is_that_of_the_syntax_tree(tmp_path: Path) -> None:
    """Within one function a line's depth differs from another's by the statements around it."""
    lines = mapped("engine", tmp_path).loops[0].lines
    around: dict[str, dict[int, int]] = {}
    for line in lines:
        path = line.at.rpartition(":")[0]
        if path not in around:
            around[path] = _depths(ENGINE / path)
    compared = 0
    for before, after in itertools.pairwise(lines):
        path, _, first = before.at.rpartition(":")
        same = after.at.startswith(f"{path}:") and not before.into and before.kind != "choice"
        if same and "else" not in after.code + before.code:
            second = after.at.rpartition(":")[2]
            difference = around[path][int(second)] - around[path][int(first)]
            if after.at == before.at:  # the condition of a loop runs inside it
                difference = 1
            assert after.depth - before.depth == difference, (before, after)
            compared += 1
    assert compared >= 4


def _depths(path: Path) -> dict[int, int]:
    found: dict[int, int] = {}

    def walk(body: list[ast.stmt], depth: int) -> None:
        for statement in body:
            found[statement.lineno] = depth
            inside = isinstance(statement, ast.While | ast.For | ast.If | ast.With | ast.Try)
            for field in ("body", "orelse", "finalbody"):
                walk(getattr(statement, field, []), depth + inside if inside else 0)

    walk(ast.parse(path.read_text()).body, 0)
    return found


@pytest.mark.parametrize(
    "entry", ["LLMEngine.step", "pocket.engine.llm_engine.LLMEngine.step", "pocket/engine/llm_engine.py:22"]
)
def test_an_entry_is_a_method_by_name_or_line(tmp_path: Path, entry: str) -> None:
    nest = mapped("engine", tmp_path, entry=entry).loops[0]
    assert nest.entry == "LLMEngine.step"
    assert nest.lines[0].code.startswith("(seqs, is_prefill) = self.scheduler.schedule()")


def test_an_unknown_entry_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"LLMEngine\.step"):
        mapped("engine", tmp_path, entry="LLMEngine.stepp")


def test_a_call_with_several_definitions_stays_and_says_so(tmp_path: Path) -> None:
    """`build_sampler` says Sampler; two classes below it define or inherit `sample`, one of them defines it."""
    lines = {line.code: line for line in mapped("engine", tmp_path).loops[0].lines}
    sample = lines["return self.sampler.sample(logits)"]
    assert sample.into.startswith("pocket/engine/sampler.py:")
    assert {line.code for line in lines.values() if line.kind == "choice"} == {"either LLMEngine.step"}


BRANCHES = """
from llm.worker import Worker


class Engine:
    jobs: list[Worker]

    def generate(self):
        self.jobs = []
        while True:
            for job in self.jobs.copy():
                job.take()
            if self.draft:
                self.turn(1)
            elif self.trie:
                self.turn(2)
            else:
                self.turn()
            self.prepare()
            self.finish()

    def prepare(self):
        self.deep()

    def deep(self):
        self.turn(4)
        self.tidy()

    def tidy(self):
        self.log()

    def turn(self, length=0):
        return self.model.forward(length)

    def finish(self):
        return self.sampler.sample()

    def log(self):
        print(self)
"""
WORKER = "class Worker:\n    def take(self):\n        self.logits.argmax()\n\n\nclass Other:\n    def take(self):\n        return 1\n"


@pytest.fixture
def branches(tmp_path: Path) -> CallNest:
    folder = tmp_path / "repo/llm"
    folder.mkdir(parents=True)
    for name, text in (("__init__", ""), ("engine", BRANCHES), ("worker", WORKER)):
        (folder / f"{name}.py").write_text(text)
    context = context_of(folder_repository("repo", tmp_path / "repo"), tmp_path)
    return MAP_REPO.run(MapRepoArguments(repo="repo", entry="Engine.generate", detail="full"), context).loops[0]


def test_every_branch_shows_the_call_that_another_branch_expands(branches: CallNest) -> None:
    codes = [(line.depth, line.code, line.note) for line in branches.lines]
    assert codes == [
        (0, "while True:", ""),
        (1, "for job in self.jobs.copy():", ""),
        (2, "job.take()", ""),
        (3, "self.logits.argmax()", ""),
        (1, "if self.draft:", ""),
        (2, "self.turn(1)", ""),
        (3, "return self.model.forward(length)", ""),
        (1, "elif self.trie:", ""),
        (2, "self.turn(2)", "as above"),
        (1, "else:", ""),
        (2, "self.turn()", "as above"),
        (1, "self.prepare()", ""),
        (2, "self.deep()", ""),
        (3, "self.turn(4)", "as above"),
        (1, "self.finish()", ""),
        (2, "return self.sampler.sample()", ""),
    ]


def test_an_element_of_a_list_is_what_its_annotation_says(branches: CallNest) -> None:
    """Two classes have a method `take`; the list holds objects of the first."""
    assert next(line.into for line in branches.lines if line.code == "job.take()") == "llm/worker.py:2"


def test_a_shorter_nesting_keeps_the_loop_and_its_stages_and_leaves_out_what_is_deep(branches: CallNest) -> None:
    assert shortened(branches.lines, 16) == list(branches.lines)
    kept = [line.code for line in shortened(branches.lines, 13)]
    assert "self.logits.argmax()" in kept
    assert "return self.model.forward(length)" in kept
    assert "return self.sampler.sample()" not in kept  # the nearest call that samples is kept already
    assert "self.finish()" in kept
    assert "self.turn(4)" not in kept
    body = [line.code for line in branches.lines if line.calls == 0]
    assert [code for code in kept if code in body] == body


def test_pages_of_the_loop_hold_every_line_once_however_short_an_answer_has_to_be(tmp_path: Path) -> None:
    context = context_of(folder_repository("engine", ENGINE), tmp_path)
    whole = MAP_REPO.run(MapRepoArguments(repo="engine", detail="full"), context).loops[0].lines
    pages: list[NestLine] = []
    offset: int | None = 0
    while offset is not None:
        arguments = MapRepoArguments(repo="engine", section="loop", limit=500, offset=offset)
        answer = shorten_to(MAP_REPO, MAP_REPO.run(arguments, context), 6000)
        assert isinstance(answer, RepoMapResult)
        pages += answer.loops[0].lines
        offset = answer.next_offset
    assert tuple(pages) == whole
    assert len(pages) > 20
