"""A short sample of what `make fuzz` runs for long: always the same inputs."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from targets import TARGETS, held

#: inputs of a target; those that write files and ask several tools cost a tenth of a second each
SAMPLE = {"formula": 150, "python_source": 4, "name": 5}


@pytest.mark.parametrize("target", TARGETS)
def test_whatever_is_read_is_answered_or_refused_in_a_sentence(target: str) -> None:
    @settings(
        max_examples=SAMPLE.get(target, 6), derandomize=True, deadline=None, database=None,
        phases=(Phase.explicit, Phase.generate), suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(TARGETS[target][0])
    def run(text: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            held(target, text)

    run()
