"""Records: their figures are what their own output says, whoever reads it and whenever; what was changed since is told."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from opscope_schemas.evidence import TOPICS, EvidenceFile, EvidenceRecord, Topic
from opscope_tools.collect_evidence.files import read_evidence, record_problems
from opscope_tools.collect_evidence.table import ALL_COLLECTORS, of_topic
from opscope_tools.evidence.bench import kept, text_of
from opscope_tools.evidence.table import again
from opscope_tools.report.post import Post

ROOT = Path(__file__).parents[3]


def records(topic: Topic) -> EvidenceFile:
    found = read_evidence(ROOT, topic)
    assert found is not None
    return found


def post(found: EvidenceFile) -> Post:
    return Post(found.topic, "# Nothing", found, "2026-11-25")


@pytest.mark.parametrize("topic", TOPICS)
def test_each_kept_record_says_what_its_output_says(topic: Topic) -> None:
    found = records(topic)
    assert [one.id for one in found.records] == [one.id for one in of_topic(topic)]
    assert list(record_problems(post(found), ROOT)) == []
    assert sum(one.status == "ok" for one in found.records) >= 7


@pytest.mark.parametrize("topic", TOPICS)
def test_what_is_not_ok_says_why_and_what_to_run_elsewhere_and_gives_no_number(topic: Topic) -> None:
    for one in records(topic).records:
        if one.status != "ok":
            assert one.reason
            assert one.elsewhere
            assert not one.parsed
            assert not one.excerpt


@pytest.mark.parametrize("topic", TOPICS)
def test_a_figure_that_was_changed_is_told_with_the_right_one(topic: Topic) -> None:
    found = records(topic)
    drawn = random.Random(topic)
    good = [one for one in found.records if one.status == "ok"]
    for one in drawn.sample(good, 5):
        name = drawn.choice(sorted(one.parsed))
        value = one.parsed[name]
        other = f"{value}x" if isinstance(value, str) else value + 1
        changed = found.model_copy(
            update={"records": tuple(_with(record, one.id, {**one.parsed, name: other}) for record in found.records)}
        )
        told = [problem for problem in record_problems(post(changed), ROOT) if problem.section == one.id]
        assert (str(value), str(other)) in [(problem.expected, problem.found) for problem in told]
        assert any("edited" in problem.message for problem in told)


def _with(record: EvidenceRecord, name: str, parsed: dict[str, int | float | str]) -> EvidenceRecord:
    return record.model_copy(update={"parsed": parsed}) if record.id == name else record


def test_an_output_that_was_changed_no_longer_fits_its_digest() -> None:
    whole = kept("said", "calls 12\n")
    assert text_of(whole) == "calls 12\n"
    forged = whole.model_copy(update={"text": kept("said", "calls 13\n").text})
    with pytest.raises(ValueError, match="digest"):
        text_of(forged)
    with pytest.raises(ValueError, match="unpacked"):
        text_of(whole.model_copy(update={"text": "no packed text"}))


def test_the_table_names_each_collector_once_with_a_question_a_topic_and_a_way_elsewhere() -> None:
    names = [one.id for one in ALL_COLLECTORS]
    assert len(names) == len(set(names))
    for one in ALL_COLLECTORS:
        assert one.topics
        assert set(one.topics) <= set(TOPICS)
        assert one.title.endswith("?") or one.kind == "source"
        assert re.fullmatch(r"[a-z][a-z0-9-]*", one.id)


@pytest.mark.parametrize("topic", TOPICS)
def test_no_record_holds_a_home_a_folder_of_a_checkout_or_a_host(topic: Topic) -> None:
    for one in records(topic).records:
        text = "\n".join(
            (*one.commands, *one.excerpt, one.reason, one.elsewhere, *(text_of(output) for output in one.outputs))
        )
        assert not re.search(r"/(?:home|root|Users|work)/", text), one.id
        assert str(ROOT) not in text


@pytest.mark.parametrize("topic", TOPICS)
def test_no_reader_takes_an_empty_or_foreign_output_for_one(topic: Topic) -> None:
    """A garbled output is refused; it never becomes figures of nothing."""
    for one in records(topic).records:
        collector = next(each for each in ALL_COLLECTORS if each.id == one.id)
        if one.status != "ok" or one.kind == "source":
            continue
        for text in ("", "Segmentation fault\n", "{}"):
            emptied = one.model_copy(update={"outputs": tuple(kept(output.name, text) for output in one.outputs)})
            try:
                read = again(collector, emptied)
            except (ValueError, AttributeError, TypeError):
                continue
            figures = {name: value for name, value in read.values.items() if isinstance(value, int | float)}
            assert figures.keys() != one.parsed.keys() or figures != {
                k: v for k, v in one.parsed.items() if not isinstance(v, str)
            }, one.id
