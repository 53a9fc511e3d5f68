"""Continuous batching in steady state, on steps whose times are given: what must hold whatever they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opscope_tools.estimate_roofline.traffic import Load, Steps, steady


def steps(launch: float, each: float, token: float) -> Steps:
    return Steps(decode=lambda batch, _: launch + each * batch, prefill=lambda count, length: token * count * length)


TIMES = st.builds(steps, st.floats(1e-3, 2e-2), st.floats(1e-6, 1e-3), st.floats(1e-7, 1e-5))
LOADS = st.builds(Load, st.integers(1, 512), st.integers(16, 8192), st.integers(16, 4096))


@given(TIMES, LOADS)
def test_as_many_requests_are_in_the_system_as_were_sent(times: Steps, load: Load) -> None:
    found = steady(times, load, 1, None)
    gaps = load.output_len - 1
    inside = found.rate * (found.service + gaps * found.tpot)  # who waits is sent the later
    assert inside == pytest.approx(load.concurrency, rel=0.002)
    assert 0 < found.batch <= load.concurrency
    assert found.tpot >= found.step * 0.999999
    assert 0 <= found.prefill_share <= 1


@given(TIMES, LOADS, st.integers(1, 64))
def test_no_more_decode_at_a_time_than_there_are_places(times: Steps, load: Load, places: int) -> None:
    found = steady(times, load, 1, places)
    assert found.batch <= places
    if load.concurrency > 2 * places:
        assert found.queue > found.service + (load.output_len - 1) * found.tpot


@given(TIMES, st.integers(16, 4096))
def test_alone_a_request_is_answered_at_the_speed_of_its_steps(times: Steps, length: int) -> None:
    found = steady(times, Load(1, length, 4096), 1, None)
    assert found.tpot == pytest.approx(times.decode(1, 0), rel=0.3)
    assert found.service == pytest.approx(times.prefill(1, length))


@given(TIMES, LOADS)
def test_the_device_does_no_more_than_it_can(times: Steps, load: Load) -> None:
    found = steady(times, load, 1, None)
    prefills = found.rate * times.prefill(1, load.input_len) * (load.concurrency - 1) / load.concurrency
    decodes = found.rate * (load.output_len - 1) * found.step / found.batch
    assert prefills + decodes == pytest.approx(1, rel=1e-6)  # it is never idle while one decodes


@given(TIMES, st.integers(16, 2048), st.integers(16, 2048))
def test_more_requests_give_more_tokens_and_slower_ones(times: Steps, question: int, answer: int) -> None:
    few, many = (steady(times, Load(n, question, answer), 1, None) for n in (4, 64))
    assert many.rate >= few.rate * 0.99
    assert many.tpot >= few.tpot * 0.99


@given(TIMES, LOADS, st.integers(2, 8))
def test_replicas_share_the_load(times: Steps, load: Load, replicas: int) -> None:
    whole = Load(load.concurrency * replicas, load.input_len, load.output_len)
    assert steady(times, whole, replicas, None).rate == pytest.approx(steady(times, load, 1, None).rate)


@given(TIMES, LOADS, st.integers(1, 64), st.floats(0.05, 1))
def test_what_waits_between_tokens_does_not_wait_before_them(
    times: Steps, load: Load, places: int, share: float
) -> None:
    before, later = steady(times, load, 1, places), steady(times, load, 1, places, at_first=share)
    gaps = load.output_len - 1
    assert later.rate == before.rate
    assert later.queue == pytest.approx(share * before.queue)
    assert later.queue + gaps * later.tpot == pytest.approx(before.queue + gaps * before.tpot)
