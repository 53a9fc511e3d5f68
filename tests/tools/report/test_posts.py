"""Posts: what a narrative becomes from its records, what is flagged on another machine, and what the review rejects."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from opscope_schemas.errors import InputError, UnknownNameError
from opscope_schemas.evidence import EvidenceFile, EvidenceRecord, Machine, Noise, Spread
from opscope_tools.report.markdown import Page
from opscope_tools.report.post import Post, render_post, told, untrusted
from opscope_tools.report.post_checks import check_post

QUIET = Noise(pressure_percent=3.0, spread={"step_seconds": Spread(repetitions=5, least=0.09, most=0.12)})
SOURCES = """## Sources

1. A vendor: Manual of caches, 2023 (official). https://example.org/manual
2. Somebody: On attention, 2022 (paper). https://example.org/paper
3. An engineer: How it went, 2010 (practitioner). https://example.org/post
"""
NARRATIVE = (
    """# How slow is it?

{{let:misses_ratio = caches.naive_misses / caches.blocked_misses}}

A step took {{fact:steps.step_seconds}} on this machine, and the manual says why [1].

{{output:steps}}

The plain way misses {{fact:post.misses_ratio}} times as often in the simulation as the other one [2], since it reads again. {{holds:caches.naive_misses > 2 * caches.blocked_misses}}

{{output:caches}}

The loop is {{fact:loop.symbol}}, in registers of {{fact:loop.vector_bytes}} bytes [3].

{{output:loop}}

It adds, and adds again.

{{output:counters}}

So the counters stay unknown.

{{output:calls}}

The kernel is asked {{fact:calls.decode_calls}} times.

{{output:dump}}

The words are those of Python.

{{output:lines}}

That is the loop as it was written.

{{picture:stacks}}

Products stand in {{fact:stacks.products_percent}} of the stacks.

"""
    + SOURCES
)


def record(name: str, kind: str, evidence_class: str = "measured", **more: object) -> EvidenceRecord:
    """A record that is ok unless said otherwise."""
    given = {"status": "ok", "commands": (f"{name} --all",), "excerpt": (f"{name} said 7 things",), "tool": name, "machine": "here", "noise": QUIET, **more}  # fmt: skip
    return EvidenceRecord.model_validate(
        {"id": name, "title": f"What does {name} say?", "kind": kind, "evidence_class": evidence_class, **given}
    )


def records() -> list[EvidenceRecord]:
    return [
        record("steps", "counters", parsed={"step_seconds": 0.1, "batch": 1}),
        record("caches", "counters", "simulated", parsed={"naive_misses": 9000, "blocked_misses": 1500}),
        record("loop", "code", parsed={"symbol": "gemv_def", "vector_bytes": 16}),
        record("counters", "counters", status="unsupported", reason="perf says <not supported>", elsewhere="perf stat -e cycles true", parsed={}),
        record("calls", "syscalls", parsed={"decode_calls": 0}),
        record("dump", "dump", "exact", parsed={"words": 8}),
        record("lines", "source", "exact", parsed={"lines": 3}),
        record("stacks", "flamegraph", parsed={"products_percent": 61.5}, pictures={"evidence/cache-hierarchy/stacks.svg": "Flame graph of a decode"}),
    ]  # fmt: skip


def post(narrative: str = NARRATIVE, changed: Callable[[EvidenceRecord], EvidenceRecord] = lambda one: one) -> Post:
    evidence = EvidenceFile(
        topic="cache-hierarchy",
        machines=(Machine(name="here", cpu="A processor", cpus=2),),
        records=tuple(map(changed, records())),
    )
    return Post("cache-hierarchy", narrative, evidence, "2026-11-25")


def with_values(name: str, **values: object) -> Callable[[EvidenceRecord], EvidenceRecord]:
    return lambda one: one.model_copy(update={"parsed": {**one.parsed, **values}}) if one.id == name else one


def with_fields(name: str, **fields: object) -> Callable[[EvidenceRecord], EvidenceRecord]:
    return lambda one: one.model_copy(update=fields) if one.id == name else one


def rules(text: str, of: Post) -> set[str]:
    return {problem.rule for problem in check_post(Page(text), of)}


# ---- what a narrative becomes ---------------------------------------------------------------------------------------


def test_facts_outputs_and_claims_are_those_of_the_records() -> None:
    text = render_post(post()).text
    assert "A step took 100 ms<!-- fact:steps.step_seconds --> on this machine" in text
    assert "misses 6<!-- fact:post.misses_ratio --> times" in text
    assert "`gemv_def`<!-- fact:loop.symbol -->, in registers of 16 B<!-- fact:loop.vector_bytes -->" in text
    assert "```console\n$ caches --all\ncaches said 7 things\n```\n<!-- evidence: caches -->" in text
    assert "<!-- holds: caches.naive_misses > 2 * caches.blocked_misses -->" in text
    assert "![Flame graph of a decode](evidence/cache-hierarchy/stacks.svg)" in text
    assert "$ perf stat -e cycles true\n```\n<!-- elsewhere: counters -->" in text
    assert check_post(Page(text), post()) == []


def test_a_claim_that_does_not_hold_is_flagged_and_not_kept() -> None:
    other = post(changed=with_values("caches", blocked_misses=8000))
    text = render_post(other).text
    assert "since it reads again" not in text
    assert "> **Does not hold here.** What stood here rests on `caches.naive_misses > 2 * caches.blocked_misses`; on this machine caches.naive_misses is 9,000, caches.blocked_misses is 8,000." in text  # fmt: skip
    assert render_post(other).facts.summary.limitations
    assert rules(text, other) <= {"SOURCE_UNCITED"}  # the paragraph that cited it is gone


@pytest.mark.parametrize(
    ("noise", "why"),
    [
        (Noise(pressure_percent=60.0, spread=QUIET.spread), "waited for a CPU 60 %"), (Noise(pressure_percent=1.0, spread={"step_seconds": Spread(repetitions=4, least=0.1, most=0.1)}), "4 time(s)"),
        (Noise(pressure_percent=1.0), "1 time(s)"),
    ],
)  # fmt: skip
def test_a_time_from_a_busy_machine_or_of_few_runs_is_not_told(noise: Noise, why: str) -> None:
    text = render_post(post(changed=with_fields("steps", noise=noise))).text
    assert "A step took" not in text
    assert "> **Not told here.** What stood here rests on times that cannot be relied on: `steps" in text
    assert why in text


def test_a_number_that_is_derived_from_an_untrusted_time_is_as_untrusted() -> None:
    narrative = NARRATIVE.replace(
        "{{let:misses",
        "{{let:rate_bytes_per_second = 1000 / steps.step_seconds}}\n{{let:twice_ratio = post.rate_bytes_per_second * 2}}\n{{let:misses",
    )
    busy = post(narrative, with_fields("steps", noise=Noise(pressure_percent=99.0)))
    assert "waited for a CPU 99 %" in untrusted("post.twice_ratio", busy)
    assert untrusted("post.twice_ratio", post(narrative)) == ""


def test_what_a_record_does_not_have_here_is_flagged_with_its_reason() -> None:
    text = render_post(
        post(
            changed=with_fields(
                "loop", status="missing", reason="perf is not installed", parsed={}, elsewhere="perf record true"
            )
        )
    ).text
    assert "rests on `loop`, which is missing on this machine: perf is not installed." in text
    assert "gemv_def" not in text


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("{{fact:nowhere.calls}}", "there is no record of that name"), ("{{output:nowhere}}", "There is no record 'nowhere'"), ("{{holds:caches.naive_misses >}}", "ends too early"),
        ("{{let:x = caches.naive_misses +}}", "ends too early"), ("{{let:= 3}}", "derives nothing"), ("{{picture:caches}}", "has no picture"), ("{{fact:post.unknown}}", "is not derived"),
        ("In a sentence {{output:caches}}", "paragraph of its own"),
    ],
)  # fmt: skip
def test_a_narrative_that_names_what_is_not_there_is_refused(place: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as error:
        render_post(post(NARRATIVE.replace("So the counters", f"{place}\n\nSo the counters")))
    assert error.value.next_step


def test_an_agent_replaces_the_text_below_a_heading_or_all_of_it() -> None:
    assert "nothing else" in told(NARRATIVE, {"sources": "nothing else"})
    assert told(NARRATIVE, {"post": "# Mine\n\nAll of it."}) == "# Mine\n\nAll of it."
    with pytest.raises(UnknownNameError, match="conclusions"):
        told(NARRATIVE, {"conclusions": "none"})


# ---- what the review rejects ----------------------------------------------------------------------------------------

#: in the narrative: what is put in place of what, and the rule that says so
_PLANTED = (
    ("on this machine, and", "on this machine, 12 % more than elsewhere, and", "NUMBER_UNMARKED"),
    ("It adds, and adds again.", "It takes three seconds.", "NUMBER_UNMARKED"),
    ("It adds, and adds again.", "It is faster than any other loop.", "COMPARISON"),
    ("It adds, and adds again.", "This is the fastest of them.", "COMPARISON"),
    ("It adds, and adds again.", "It is faster than another. {{holds:caches.naive_misses > 0}}", "COMPARISON"),
    ("It adds, and adds again.", "A GPU would show about 40 GB/s here.", "HEDGED"),
    ("It adds, and adds again.", "It runs `vfmadd231ps` on `zmm31`.", "QUOTE_UNKNOWN"),
    ("It adds, and adds again.", "As [7] has it, it adds.", "SOURCE_UNKNOWN"),
    ("times as often in the simulation as the other one", "times as often as the other one", "CLASS_UNSAID"),
    ("It adds, and adds again.", "Run `nvprof` to see it.", "TOOL_GONE"),
    ("It adds, and adds again.", "Ask ncu for gld_efficiency.", "METRIC_UNKNOWN"),
    ("It adds, and adds again.", "```console\n$ perf stat -e cycles true\n1,000,000 cycles\n```\n\nA million.", "COMMAND_UNKNOWN"),
    ("{{output:calls}}\n\nThe kernel is asked {{fact:calls.decode_calls}} times.", "", "DEPTH_MISSING"),
    ("{{output:lines}}\n\nThat is the loop as it was written.", "", "DEPTH_MISSING"),
    ("It adds, and adds again.", "", "OUTPUT_UNEXPLAINED"),
    (SOURCES, "", "SOURCES_MISSING"),
    ("3. An engineer: How it went, 2010 (practitioner). https://example.org/post\n", "", "SOURCES_FEW"),
    ("(paper)", "(practitioner)", "SOURCES_KIND"),
    ("2022 (paper)", "2012 (paper)", "SOURCES_OLD"),
    ("bytes [3].", "bytes.", "SOURCE_UNCITED"),
    ("2022 (paper). https://example.org/paper", "2022 (paper).", "SOURCE_UNPLACED"),
    ("It adds, and adds again.", "- It adds.\n- It adds.\n- It adds again.", "NOT_NARRATIVE"),
    ("It adds, and adds again.", "It adds TODO.", "PLACEHOLDER"),
)  # fmt: skip


@pytest.mark.parametrize(("before", "after", "rule"), _PLANTED)
def test_a_fault_in_a_narrative_is_named(before: str, after: str, rule: str) -> None:
    assert before in NARRATIVE
    faulty = post(NARRATIVE.replace(before, after))
    assert rule in rules(render_post(faulty).text, faulty)


#: in the post as it lies there
_EDITED = (
    ("100 ms<!-- fact:steps.step_seconds -->", "90 ms<!-- fact:steps.step_seconds -->", "FACT_MISMATCH"),
    ("`gemv_def`<!-- fact:loop.symbol -->", "`gemv_avx512`<!-- fact:loop.symbol -->", "FACT_MISMATCH"),
    ("<!-- fact:steps.step_seconds -->", "<!-- fact:steps.stride_seconds -->", "FACT_UNKNOWN"),
    ("caches said 7 things", "caches said 8 things", "OUTPUT_CHANGED"),
    ("$ caches --all", "$ caches --some", "COMMAND_UNKNOWN"),
    ("$ perf stat -e cycles true\n", "$ perf stat -e cycles true\n 12,345 cycles\n", "OUTPUT_INVENTED"),
    ("<!-- evidence: caches -->", "<!-- evidence: counters -->", "OUTPUT_INVENTED"),
    ("<!-- holds: caches.naive_misses > 2 * caches.blocked_misses -->", "<!-- holds: caches.naive_misses > 20 * caches.blocked_misses -->", "CLAIM_FALSE"),
    ("<!-- holds: caches.naive_misses > 2 * caches.blocked_misses -->", "<!-- holds: caches.naive_misses beats -->", "CLAIM_UNREADABLE"),
    ("<!-- holds: caches.naive_misses > 2 * caches.blocked_misses -->", "<!-- holds: 1 < 2 -->", "CLAIM_BESIDE"),
    ("<!-- holds: caches.naive_misses > 2 * caches.blocked_misses -->", "<!-- holds: loop.vector_bytes > 2 -->", "CLAIM_BESIDE"),
)  # fmt: skip


@pytest.mark.parametrize(("before", "after", "rule"), _EDITED)
def test_an_edit_of_a_post_is_named(before: str, after: str, rule: str) -> None:
    text = render_post(post()).text
    assert before in text
    assert rule in rules(text.replace(before, after), post())


def test_times_of_a_busy_machine_are_refused_in_a_text_that_keeps_them() -> None:
    text = render_post(post()).text
    assert "TIME_UNDER_LOAD" in rules(
        text, post(changed=with_fields("steps", noise=Noise(pressure_percent=80.0, spread=QUIET.spread)))
    )


def test_a_flagged_paragraph_takes_its_citation_along_and_the_source_stays() -> None:
    other = post(changed=with_values("caches", naive_misses=1500))
    text = render_post(other).text
    assert "Does not hold here" in text
    assert "SOURCE_UNCITED" not in rules(text, other)


def test_the_status_of_a_record_can_be_claimed() -> None:
    narrative = NARRATIVE.replace(
        "So the counters stay unknown.", "Nobody lends them. {{holds:counters.status == 'unsupported'}}"
    )
    assert "Nobody lends them." in render_post(post(narrative)).text
    there = post(narrative, with_fields("counters", status="ok", reason="", elsewhere="", parsed={"cycles": 5}))
    assert "Nobody lends them." not in render_post(there).text


def test_a_count_that_other_programs_raise_is_not_told_of_a_busy_machine() -> None:
    busy = Noise(pressure_percent=60.0)
    narrative = NARRATIVE.replace("{{fact:calls.decode_calls}}", "{{fact:calls.context_switches}}")
    quiet = with_fields("calls", parsed={"context_switches": 3}, noise=Noise(pressure_percent=1.0))
    assert "The kernel is asked 3" in render_post(post(narrative, quiet)).text
    assert (
        "The kernel is asked"
        not in render_post(post(narrative, with_fields("calls", parsed={"context_switches": 3}, noise=busy))).text
    )


@pytest.mark.parametrize(
    "said",
    [
        "It runs at batch size {{fact:workload.batch_size}} on {{fact:workload.threads}} thread(s).",
        "The processor is of the x86-64 family.",
        "The manual has more on this [1, 2].",
    ],
)
def test_what_an_honest_engineer_adds_is_not_refused(said: str) -> None:
    edited = post(NARRATIVE.replace("It adds, and adds again.", f"It adds, and adds again. {said}"))
    assert rules(render_post(edited).text, edited) == rules(render_post(post()).text, post()) == set()
