"""The tools `write_report` and `check_report`: what is saved, what is refused, and that nothing is left half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import report_toy as toy
from opscope_cache.whole_files import written_beside
from opscope_schemas.errors import InputError, OutputError, PathRefusedError, SourceError, UnknownNameError, ValuesError
from opscope_schemas.report import CheckReportResult, Problem, ReportFacts, WriteReportResult
from opscope_tools import write_report
from opscope_tools.check_report import CHECK_REPORT, CheckReportArguments
from opscope_tools.report import checks, saving
from opscope_tools.report.edits import packed
from opscope_tools.running.runner import shorten_to
from opscope_tools.running.tool import ToolContext
from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

PATH = "reports/implementations/toy-analysis.md"
FACTS = "reports/implementations/toy-analysis.facts.json"


def write(context: ToolContext, **arguments: Any) -> WriteReportResult:
    return WRITE_REPORT.run(WriteReportArguments(**{"name": "toy", **arguments}), context)


def check(context: ToolContext, path: str = PATH) -> CheckReportResult:
    return CHECK_REPORT.run(CheckReportArguments(path=path), context)


def files(context: ToolContext) -> list[str]:
    output = context.workspace.output
    return sorted(path.relative_to(output).as_posix() for path in output.rglob("*") if path.is_file())


def test_a_report_is_saved_beside_its_facts_and_passes_its_own_check(context: ToolContext) -> None:
    result = write(context)
    assert (result.ok, result.problems, result.path) == (True, (), PATH)
    assert files(context) == [FACTS, PATH]
    facts = ReportFacts.model_validate_json((context.workspace.output / FACTS).read_text())
    assert facts.values["parameters"] == 2136
    checked = check(context)
    assert (checked.ok, checked.problems, checked.path) == (True, (), PATH)
    assert checked.summary == result.summary
    assert result.summary.insights
    assert result.summary.optimizations
    assert result.summary.limitations


def test_a_number_changed_after_saving_is_found_by_the_check(context: ToolContext) -> None:
    write(context)
    report = context.workspace.output / PATH
    report.write_text(report.read_text().replace("2.14K<!--", "2.13K<!--"))
    (problem,) = check(context).problems
    assert problem.rule == "FACT_MISMATCH"
    assert problem.message == "parameters is 2,136 in the analysis, not 2.13K."


def test_bad_sections_are_refused_with_place_and_reason_and_nothing_is_written(context: ToolContext) -> None:
    result = write(context, sections={"1": "Good.", "2.3": "Fine.\n\nSee `toyland/gone.py:1`, TODO.", "4.1": "# Mine"})
    assert not result.ok
    assert {(p.section, p.line, p.rule) for p in result.problems} == {
        ("1", 1, "CLAIM_UNSUPPORTED"), ("2.3", 1, "CLAIM_UNSUPPORTED"), ("2.3", 3, "PLACEHOLDER"),
        ("2.3", 3, "PATH_MISSING"), ("4.1", 1, "HEADING"),
    }  # fmt: skip
    assert "not saved" in result.notes[0]
    assert files(context) == []


def test_good_sections_are_saved_under_their_headings(context: ToolContext) -> None:
    pointer = f"`ToyNorm` (`{toy.FILE}:{toy.line_of('class ToyNorm')}`)"
    assert write(context, sections={"Execution Model": f"It starts with {pointer}."}).ok
    text = (context.workspace.output / PATH).read_text()
    assert f"It starts with {pointer}." in text.partition("### 2.3")[2].partition("## 3.")[0]


def test_an_existing_report_is_replaced_only_when_told_to(context: ToolContext) -> None:
    write(context)
    with pytest.raises(InputError, match="exists already") as caught:
        write(context)
    assert "overwrite=true" in str(caught.value)
    assert write(context, overwrite=True).ok


def test_a_target_that_the_name_says_is_the_same_report(context: ToolContext) -> None:
    def kept() -> list[str]:
        return [file.read_text() for file in sorted((context.workspace.output / "reports").rglob("toy*"))]

    write(context)
    before = kept()
    assert write(context, target="toy", overwrite=True).ok
    assert before == kept()
    assert len(before) == 2


def test_a_failure_in_the_middle_leaves_the_old_files(context: ToolContext, monkeypatch: pytest.MonkeyPatch) -> None:
    write(context)
    before = {name: (context.workspace.output / name).read_bytes() for name in files(context)}
    written = []

    def full_disk(target: Path, data: bytes, mode: int) -> Path:
        written.append(target.name)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        return written_beside(target, data, mode)

    monkeypatch.setattr(saving, "written_beside", full_disk)
    with pytest.raises(OutputError, match=r"toy-analysis\.md cannot be written: No space left on device"):
        write(context, overwrite=True, values={"batch_size": 2})
    assert len(written) == 2
    assert {name: (context.workspace.output / name).read_bytes() for name in files(context)} == before


def test_an_output_that_is_no_folder_gives_one_sentence(context: ToolContext) -> None:
    (context.workspace.output / "reports").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written") as caught:
        write(context)
    assert "\n" not in str(caught.value)
    assert files(context) == ["reports"]


def test_a_symlink_out_of_the_output_folder_is_refused(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (context.workspace.output / "reports").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PathRefusedError, match="outside the output folder"):
        write(context)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["../toy", "a/b", "", ".hidden", "a..b", "x" * 101])
def test_a_name_that_is_a_path_is_refused(context: ToolContext, name: str) -> None:
    with pytest.raises(InputError, match="cannot be the name of a report"):
        write(context, name=name)


def test_values_move_the_point_at_which_the_report_is_computed(context: ToolContext) -> None:
    write(context, values={"batch_size": 3, "seq_len": 16, "cache_len": 31})
    text = toy.unmarked((context.workspace.output / PATH).read_text())
    assert "Prefill (batch 3, 16 new and 0 cached tokens)" in text
    assert "Decode (batch 3, 1 new and 31 cached tokens)" in text


def test_bad_targets_and_values_reach_the_caller_as_they_are(context: ToolContext) -> None:
    with pytest.raises(UnknownNameError, match="No model type is called 'toi'"):
        write(context, target="toi")
    with pytest.raises(ValuesError, match="batch_size is -2"):
        write(context, values={"batch_size": -2})
    assert files(context) == []


def test_progress_rises_to_its_total(context: ToolContext) -> None:
    seen: list[tuple[float, float | None]] = []
    context.progress = lambda done, total, _message: seen.append((done, total))
    write(context)
    assert seen == sorted(seen)
    assert seen[-1] == (5.0, 5.0)


@pytest.mark.parametrize(
    ("path", "error", "said"),
    [
        ("reports/none.md", InputError, "There is no report"),
        ("../../etc/passwd.md", PathRefusedError, "outside the output folder"),
        ("/etc/passwd", PathRefusedError, "outside the output folder"),
        ("notes.txt", InputError, "not a Markdown report"),
    ],
)
def test_a_path_that_is_no_report_gives_one_sentence(
    context: ToolContext, path: str, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        check(context, path)


def test_a_facts_file_that_is_damaged_or_gone_is_a_problem_with_the_next_step(context: ToolContext) -> None:
    write(context)
    facts = context.workspace.output / FACTS
    for content in ("{", "{}", facts.read_text().replace('"text": "', '"text": "A')):
        facts.write_text(content)
        assert rules(check(context)) == {"FACTS_UNREADABLE"}
    facts.unlink()
    (problem,) = check(context).problems
    assert (problem.rule, problem.line) == ("FACTS_MISSING", 1)
    assert "write_report" in problem.message


def test_the_facts_file_of_another_report_is_told(context: ToolContext) -> None:
    write(context)
    write(context, name="other", target="toy")
    other = context.workspace.output / "reports/implementations/other-analysis.facts.json"
    (context.workspace.output / FACTS).write_text(other.read_text())
    (problem,) = check(context).problems
    assert (problem.rule, problem.found) == ("FACTS_FOREIGN", "reports/implementations/other-analysis.md")


def test_a_long_list_of_problems_is_cut_and_says_how_many_are_left(context: ToolContext) -> None:
    (context.workspace.output / "bad.md").write_text("TODO\n" * 500)
    result = check(context, "bad.md")
    assert len(result.problems) > 500
    short = shorten_to(CHECK_REPORT, result, 20_000)
    assert isinstance(short, CheckReportResult)
    assert len(short.problems) == 40
    assert f"{len(result.problems) - 40} further problems" in short.shortened


# ---- lines that move, versions that change, claims -----------------------------------------------------------------


def source(context: ToolContext) -> Path:
    return context.workspace.repositories["toyland"].root / toy.FILE


def rules(result: CheckReportResult) -> set[str]:
    return {problem.rule for problem in result.problems}


def test_lines_that_moved_are_told_and_put_right_on_request(context: ToolContext) -> None:
    write(context)
    before = (context.workspace.output / PATH).read_text()
    file = source(context)
    file.write_text(file.read_text().replace("from torch import nn\n", "from torch import nn\n\nEXTRA = 1\n"))
    found = check(context)
    assert "LINE_DRIFTED" in rules(found)
    assert (context.workspace.output / PATH).read_text() == before
    fixed = CHECK_REPORT.run(CheckReportArguments(path=PATH, fix=True), context)
    norm = toy.line_of("class ToyNorm")
    assert any(f"{toy.FILE}:{norm} -> {toy.FILE}:{norm + 2}" in repair for repair in fixed.repairs)
    assert (fixed.ok, fixed.problems) == (True, ())
    assert check(context).ok
    # back again: the pins were moved with the pointers
    file.write_text(file.read_text().replace("\nEXTRA = 1\n", ""))
    assert CHECK_REPORT.run(CheckReportArguments(path=PATH, fix=True), context).ok
    assert (context.workspace.output / PATH).read_text() == before


def test_lines_that_changed_are_stale_and_are_not_put_right(context: ToolContext) -> None:
    write(context)
    file = source(context)
    file.write_text(file.read_text().replace("return self.o_proj(attended)", "return self.o_proj(attended + 1)"))
    fixed = CHECK_REPORT.run(CheckReportArguments(path=PATH, fix=True), context)
    assert not fixed.ok
    assert fixed.repairs == ()
    (cited,) = {p.message.split()[0] for p in fixed.problems if p.rule == "LINE_STALE"}
    assert cited == f"{toy.FILE}:{toy.line_of('self.o_proj(attended)')}"


def test_one_of_several_equal_lines_is_found_by_what_stands_around_it(context: ToolContext) -> None:
    line = toy.line_of("residual = hidden_states")
    write(context, sections={"1": f"The layer keeps its input (`{toy.FILE}:{line}`)."})
    file = source(context)
    text = file.read_text()
    file.write_text(
        text.replace("class ToyNorm", "def other(hidden_states):\n        residual = hidden_states\n\n\nclass ToyNorm")
    )
    CHECK_REPORT.run(CheckReportArguments(path=PATH, fix=True), context)
    assert f"The layer keeps its input (`{toy.FILE}:{line + 4}`)." in (context.workspace.output / PATH).read_text()


def test_another_version_of_the_source_is_told(context: ToolContext) -> None:
    write(context)
    old = context.workspace.repositories["toyland"]
    context.workspace.repositories["toyland"] = old.model_copy(update={"version": "2.0"})
    (problem,) = check(context).problems
    assert problem.rule == "VERSION_STALE"
    assert "toyland 1.0; it is 2.0 now" in problem.message


def test_a_fact_by_key_becomes_its_number_with_a_mark(context: ToolContext) -> None:
    assert write(context, sections={"1": "It has {{fact:parameters}} weights."}).ok
    assert "It has 2,136<!-- fact:parameters --> weights." in (context.workspace.output / PATH).read_text()


CLAIMS = [
    ("It runs eagerly.", "CLAIM_UNSUPPORTED"),
    ("- It has layers.\n- It has a norm.", "CLAIM_UNSUPPORTED"),
    (f"It takes 17 GB (`{toy.FILE}:1`).", "NUMBER_UNMARKED"),
    (f"Attention takes 55 % of the FLOPs (`{toy.FILE}:1`).", "NUMBER_UNMARKED"),
    ("There is no dropout, and it has {{fact:parameters}} weights.", "ABSENCE_UNSEARCHED"),
    ("It has {{fact:weights}} weights.", "FACT_UNKNOWN"),
    ("There is no norm (searched `ToyNorm` in `toyland`).", "SEARCH_FAILED"),
    (f"It is robust (`{toy.FILE}:1`).", "PRAISE"),
]


@pytest.mark.parametrize(("text", "rule"), CLAIMS)
def test_prose_without_evidence_is_refused(context: ToolContext, text: str, rule: str) -> None:
    result = write(context, sections={"1": text})
    assert {problem.rule for problem in result.problems} == {rule}
    assert files(context) == []


def test_prose_with_evidence_is_saved(context: ToolContext) -> None:
    norm = toy.line_of("class ToyNorm")
    good = (
        f"Norms come first (`{toy.FILE}:{norm}`), over two lines\nof one paragraph.\n\n"
        "- Nothing is dropped: there is no all_to_all (searched `all_to_all` in `toyland`).\n"
        "- It has {{fact:parameters}} weights.\n\n"
        f"| What | Where |\n|---|---|\n| norm | `{toy.FILE}:{norm}` |\n\n```\na -> b\n```"
    )
    assert write(context, sections={"1": good}).problems == ()


def test_a_line_changed_by_hand_is_told_with_what_was_expected(context: ToolContext) -> None:
    write(context)
    report = context.workspace.output / PATH
    text = report.read_text()
    report.write_text(text.replace(", multi-head attention (", ", multi-query attention ("))
    (problem,) = check(context).problems
    assert (problem.rule, problem.section) == ("TEXT_CHANGED", "1. Executive Summary")
    assert ("multi-head" in problem.expected, "multi-query" in problem.found) == (True, True)
    report.write_text(text.replace("<!-- fact:parameters -->", ""))
    assert rules(check(context)) == {"TEXT_CHANGED"}
    report.write_text(text.replace("---\n", "---\n\n"))  # blank lines say nothing
    assert check(context).ok


def test_lines_that_are_deleted_added_or_moved_are_told_with_their_section(context: ToolContext) -> None:
    write(context)
    report = context.workspace.output / PATH
    text = report.read_text()
    gone = next(line for line in text.split("\n") if line.startswith("- ") and "; settings: " in line)
    report.write_text(text.replace(f"{gone}\n", ""))
    (problem,) = check(context).problems
    assert (problem.rule, problem.found) == ("TEXT_MISSING", "")
    assert gone.startswith(problem.expected.rstrip("…"))
    report.write_text(text.replace(f"{gone}\n", f"{gone}\n- Everything fits.\n"))
    (problem,) = check(context).problems
    assert (problem.rule, problem.expected, problem.found) == ("TEXT_ADDED", "", "- Everything fits.")
    report.write_text(text.replace(f"{gone}\n", "").replace("\n## 3. ", f"\n{gone}\n\n## 3. "))
    (problem,) = check(context).problems
    assert (problem.rule, problem.section) == ("TEXT_MOVED", "2.3 Execution Model")
    assert "in section '1. Executive Summary'" in problem.expected


def test_a_report_and_its_facts_that_were_changed_alike_are_caught_by_making_it_anew(context: ToolContext) -> None:
    write(context)
    report, beside = context.workspace.output / PATH, context.workspace.output / FACTS
    text = report.read_text().replace("2.14K<!-- fact:parameters", "9.14K<!-- fact:parameters")
    facts = ReportFacts.model_validate_json(beside.read_text())
    forged = facts.model_copy(update={"values": {**facts.values, "parameters": 9136}, "text": packed(text)})
    report.write_text(text)
    beside.write_text(forged.model_dump_json())
    found = check(context)
    assert rules(found) == {"TEXT_CHANGED", "FACTS_CHANGED"}
    assert ("2136", "9136") in {(problem.expected, problem.found) for problem in found.problems}
    written = CHECK_REPORT.run(CheckReportArguments(path=PATH, regenerate=False), context)
    assert written.ok
    assert "as was asked" in written.notes[0]


def test_where_the_source_is_not_registered_a_note_says_what_was_compared(context: ToolContext) -> None:
    write(context)
    context.workspace.repositories["other"] = context.workspace.repositories.pop("toyland")
    context.workspace.repositories["other"] = context.workspace.repositories["other"].model_copy(
        update={"name": "other"}
    )
    beside = context.workspace.output / FACTS
    facts = ReportFacts.model_validate_json(beside.read_text())
    beside.write_text(facts.model_copy(update={"arguments": {"name": "toy", "target": "gone"}}).model_dump_json())
    assert any("toyland is not registered" in note for note in check(context).notes)


def test_what_is_no_regular_file_is_refused_at_once(context: ToolContext) -> None:
    (context.workspace.output / "reports/implementations").mkdir(parents=True)
    os.mkfifo(context.workspace.output / PATH)
    with pytest.raises(SourceError, match="no regular file"):
        check(context)


def test_a_report_that_its_own_checks_doubt_is_saved_and_says_so(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubt = Problem(rule="SYMBOL_MISMATCH", line=7, message="`x` does not occur in toyland/modeling_toy.py.")
    monkeypatch.setattr(write_report, "check", lambda material: [*checks.check(material), doubt])
    result = write(context)
    assert (result.ok, result.problems, result.facts_path) == (False, (doubt,), FACTS)
    assert "own checks doubt" in result.notes[0]
    text = (context.workspace.output / PATH).read_text()
    assert text.endswith(
        "> Its own checks doubt what stands on these lines: 7 (SYMBOL_MISMATCH). check_report says why.\n"
    )
    assert check(context).problems == ()  # the file is as it was written
    prose = f"It starts with `ToyNorm` (`{toy.FILE}:{toy.line_of('class ToyNorm')}`)."
    with_prose = write(context, sections={"Execution Model": prose}, overwrite=True)
    assert (with_prose.ok, with_prose.facts_path) == (False, "")  # an agent may mend what it wrote
