"""Faults planted in the posts that are shipped and in their records: nearly all are caught, each with what was expected and found.

The kinds come from what people and agents get wrong when they write up measurements. Where each stands is drawn, with a fixed
seed for every post. Narratives of an agent's own, which nothing but the rules hold, are below.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opscope_prompts.loader import narrative_text
from opscope_schemas.report import Problem
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.report.saving import page_path, report_path
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

ROOT = Path(__file__).parents[3]
TOPICS = ("memory-bandwidth", "system-calls", "cache-hierarchy", "memory-bottlenecks", "matrix-multiplication")

Records = dict[str, Any]
Fault = Callable[[str, Records, random.Random], tuple[str, Records]]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolContext]:
    folder = tmp_path_factory.mktemp("posts")
    shutil.copytree(ROOT / "posts", folder / "posts")
    workspace = Workspace.create(output=folder)
    yield ToolContext(workspace)
    workspace.store.close()


def problems(context: ToolContext, topic: str) -> tuple[Problem, ...]:
    return CHECK_REPORT.run(CheckReportArguments(path=report_path(topic, "post")), context).problems


# ---- what is planted ------------------------------------------------------------------------------------------------


def _spot(pattern: str, text: str, drawn: random.Random) -> re.Match[str]:
    """One of the places that fit, in the narrative."""
    found = list(re.finditer(pattern, text[: text.index("\n## Sources")], re.MULTILINE))
    assert found, pattern
    return drawn.choice(found)


def _put(text: str, at: re.Match[str], new: str, group: int = 0) -> str:
    assert new != at[group]
    return text[: at.start(group)] + new + text[at.end(group) :]


def _digit(text: str, drawn: random.Random) -> str:
    places = [found.start() for found in re.finditer(r"\d", text)]
    at = drawn.choice(places)
    return text[:at] + str((int(text[at]) + drawn.randint(1, 9)) % 10) + text[at + 1 :]


def figure(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    at = _spot(r"(?<=[ (])(\d[\d.,]*)(?= ?[\w/%]*<!-- fact:)", text, drawn)
    return _put(text, at, _digit(at[1], drawn), 1), records


def figure_of_something_else(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    """Number and mark of another place: each right by itself."""
    one, other = drawn.sample(list(re.finditer(r"(?<= )\d[\d.,]*(?: [\w/%]+)?<!-- fact:\S+ -->", text)), 2)
    assert one[0] != other[0]
    return _put(text, one, other[0]), records


def unit(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    at = _spot(r"\d (MB|GB|kB|ms|us|GB/s|KiB|MiB|%)(?=<!-- fact)", text, drawn)
    other = {"MB": "GB", "GB": "MB", "kB": "MB", "ms": "us", "us": "ms", "GB/s": "MB/s", "KiB": "MiB", "MiB": "KiB", "%": "ms"}  # fmt: skip
    return _put(text, at, other[at[1]], 1), records


def output(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    """A digit of what a tool printed."""
    fences = re.findall(r"```console\n(.*?)```\n<!-- evidence", text, re.DOTALL)
    lines = [
        line for fence in fences for line in fence.splitlines() if re.search(r"\d{2}", line) and line[0] not in "$ "
    ]
    line = drawn.choice([line for line in lines if text.count(line) == 1])
    return text.replace(line, _digit(line, drawn)), records


def output_left_out(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    at = _spot(r"^(?!\$|```|#|>|<|!|\*)\S.*\n(?=.*\n```\n<!-- evidence)", text, drawn)
    return _put(text, at, ""), records


def command(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    at = _spot(r"^\$ (\S+) .*(?=\n)", text, drawn)
    return _put(text, at, f"{at[0]} --verbose"), records


def claim_gone(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    return _put(text, _spot(r" <!-- holds: .*? -->", text, drawn), ""), records


def claim_weaker(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    """A claim that holds anyhow, in place of the one that the paragraph needs."""
    return _put(text, _spot(r"<!-- holds: (.*?) -->", text, drawn), "1 < 2", 1), records


def swapped(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    parts = text.split("\n\n")
    told = [
        at for at in range(3, len(parts) - 8) if re.match(r"[A-Z]", parts[at]) and re.match(r"[A-Z]", parts[at + 1])
    ]
    at = drawn.choice(told)
    parts[at], parts[at + 1] = parts[at + 1], parts[at]
    return "\n\n".join(parts), records


def deleted(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    return _put(text, _spot(r"^[A-Z][^\n]{200,}\n\n", text, drawn), ""), records


def invented(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    """A number in place of the block that says that nothing was measured."""
    at = _spot(r"^> \*\*Not measured here.*\n", text, drawn)
    return _put(text, at, "The counters say 1.27 instructions per cycle and 41 % of the cycles stalled.\n"), records


def added(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    said = drawn.choice(
        ("On an H100 the same loop reaches 2,900 GB/s.", "Twice the cores would halve the time.", "It is the fastest.")
    )
    return _put(text, _spot(r"\n\n(?=[A-Z])", text, drawn), f" {said}\n\n"), records


def parsed(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    fields = [
        (one, name)
        for one in records["records"]
        if one.get("status") == "ok"
        for name, value in one["parsed"].items()
        if isinstance(value, int | float) and value
    ]
    one, name = drawn.choice(fields)
    one["parsed"][name] *= 1.5
    return text, records


def kept_output(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    """A digit of the output that a record shows, and the post with it, as if it had been printed so."""
    shown = [
        (one, at)
        for one in records["records"]
        if one.get("status") == "ok"
        for at, line in enumerate(one["excerpt"])
        if re.search(r"\d{2}", line) and text.count(line) == 1
    ]
    one, at = drawn.choice(shown)
    line = one["excerpt"][at]
    one["excerpt"][at] = _digit(line, drawn)
    return text.replace(line, one["excerpt"][at]), records


def evidence_class(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    one = drawn.choice([one for one in records["records"] if one.get("status") == "ok"])
    one["evidence_class"] = {"measured": "exact", "exact": "measured"}.get(one["evidence_class"], "measured")
    return text, records


def made_up(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    """Figures in a record of what was not measured."""
    one = drawn.choice([one for one in records["records"] if one.get("status") != "ok"])
    one |= {"status": "ok", "parsed": {"cycles": 123456789}, "excerpt": ["123,456,789 cycles"], "reason": ""}
    return text, records


def _edited(field: str, value: Any) -> Fault:
    """A field of a record that no output is read for."""

    def fault(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
        drawn.choice([one for one in records["records"] if one.get("status") == "ok"])[field] = value
        return text, records

    fault.__name__ = field
    return fault


def machine_itself(text: str, records: Records, drawn: random.Random) -> tuple[str, Records]:
    drawn.choice(records["machines"])["cpu"] = "Intel Xeon Platinum 8480C"
    return text, records


FAULTS: tuple[Fault, ...] = (
    _edited("noise", {"pressure_percent": 0.1}), _edited("commands", ["lscpu --all"]), _edited("tool_version", "99.0"),
    _edited("title", "What is fastest?"), _edited("machine", "cluster"), machine_itself,
    figure, figure_of_something_else, unit, output, output_left_out, command, claim_gone, claim_weaker, swapped, deleted, invented,
    added, parsed, kept_output, evidence_class, made_up,
)  # fmt: skip


@pytest.mark.parametrize("topic", TOPICS)
def test_a_shipped_post_is_whole(context: ToolContext, topic: str) -> None:
    assert problems(context, topic) == ()


@pytest.mark.parametrize("topic", TOPICS)
def test_a_planted_fault_is_caught_with_what_was_expected_and_found(context: ToolContext, topic: str) -> None:
    output = context.workspace.output
    post, held = output / report_path(topic, "post"), output / f"posts/evidence/{topic}.json"
    text, records = post.read_text(), held.read_text()
    missed = []
    for fault in FAULTS:
        changed, others = fault(text, json.loads(records), random.Random(f"{topic} {fault.__name__}"))
        assert changed != text or others != json.loads(records), fault.__name__
        post.write_text(changed)
        held.write_text(json.dumps(others))
        found = problems(context, topic)
        if not any(problem.expected or problem.found for problem in found):
            missed.append(fault.__name__)
    post.write_text(text)
    held.write_text(records)
    assert missed == []


@pytest.mark.parametrize("change", ["gone", "altered", "other words"])
def test_a_picture_that_is_not_what_its_record_gives_is_named(context: ToolContext, change: str) -> None:
    topic = "cache-hierarchy"
    folder = context.workspace.output / "posts/evidence"
    picture, held = folder / topic / "decode-stacks.svg", folder / f"{topic}.json"
    drawn, records = picture.read_text(), held.read_text()
    try:
        if change == "gone":
            picture.unlink()
        elif change == "altered":
            picture.write_text(drawn.replace("%", "% more", 1))
        else:
            held.write_text(records.replace("Flame graph of 969", "Flame graph of 9690"))
        (told,) = {problem.section for problem in problems(context, topic) if problem.rule == "EVIDENCE_CHANGED"}
        assert told == "stacks"
    finally:
        picture.write_text(drawn)
        held.write_text(records)


# ---- an agent's own narrative ---------------------------------------------------------------------------------------

#: sentences that an agent may not add, on any topic
SAID = (
    "The second level misses {{fact:attention-caches.naive_1024_l1_misses}} lines in the simulation.",
    "From the first level there come {{fact:attention-caches.blocked_1024_l2_misses}} misses in the simulation.",
    "A simulated count of {{fact:attention-caches.blocked_1024_l1_misses}} is the least that any program on any machine can reach.",
    "Memory has a latency of {{fact:ceilings.read_32KiB_bytes_per_second}}.",
    "The processor retires 3.1 instructions per cycle here.",
    "That is roughly a third of the peak.",
    "A hundred and twenty gigabytes pass each second.",
    "An H100 is 200 times faster.",
    "This outperforms every other library.",
    "It is the slowest part of any model.",
    "Halving the tile doubles the speed.",
    "One would expect about 40 % misses on an Intel machine.",
    "The instruction `vdpbf16ps` on `zmm17` does it.",
    "As [9] shows, caches matter.",
    "Run `nvprof --metrics ipc` on the GPU to see it.",
    "With ncu, ask for `sm_efficiency` and `ipc`.",
    "TODO: measure this again.",
    "```console\n$ perf stat -e cycles ./run\n 1,234,567 cycles\n```\n\nThat is little.",
)


@pytest.mark.parametrize("said", SAID)
def test_a_sentence_that_nothing_backs_is_refused_in_a_post(context: ToolContext, said: str) -> None:
    narrative = narrative_text("cache-hierarchy").replace("\n## Sources", f"\n{said}\n\n## Sources")
    result = WRITE_REPORT.run(
        WriteReportArguments(kind="post", name="cache-hierarchy", sections={"post": narrative}, overwrite=True), context
    )
    assert not result.ok
    assert any(problem.expected or problem.found for problem in result.problems)


@pytest.mark.parametrize("topic", TOPICS)
def test_a_shipped_post_is_what_its_narrative_and_records_give(topic: str, tmp_path: Path) -> None:
    """To the letter, with the date on which it was made."""
    shutil.copytree(ROOT / "posts/evidence", tmp_path / "posts/evidence")
    workspace = Workspace.create(output=tmp_path)
    written = WRITE_REPORT.run(WriteReportArguments(kind="post", name=topic, html=True), ToolContext(workspace))
    workspace.store.close()
    assert written.ok, written.problems
    day = re.compile(r"\b\d{4}-\d\d-\d\d(?=\. Every number)")
    for path in (written.path, page_path(written.path)):
        made, shipped = ((folder / path).read_text() for folder in (tmp_path, ROOT))
        assert day.sub("", made) == day.sub("", shipped), "make gallery, and look at the difference"
