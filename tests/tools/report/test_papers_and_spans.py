"""Which paper a norm is of, and how tasks that are not in a row are said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from opscope_tools.report.flow import _spans
from opscope_tools.report.papers import _scaled


def call(name: str, *operators: str) -> Any:
    return SimpleNamespace(
        class_name=f"m.{name}", kernels=[SimpleNamespace(class_name="", operator=o, kernels=()) for o in operators]
    )


def test_a_layer_norm_that_takes_no_mean_away_is_of_the_paper_on_root_mean_squares() -> None:
    kernels = [
        call("T5LayerNorm", "aten.pow", "aten.mean", "aten.add", "aten.rsqrt", "aten.mul"), call("LayerNorm", "aten.native_layer_norm"),
        call("OwnLayerNorm", "aten.mean", "aten.sub", "aten.pow", "aten.rsqrt", "aten.mul"), call("LlamaRMSNorm", "aten.rsqrt"),
    ]  # fmt: skip
    assert _scaled(cast(Any, SimpleNamespace(main=SimpleNamespace(kernels=kernels)))) == {"T5LayerNorm"}


@pytest.mark.parametrize(
    ("numbers", "said"), [((2, 3, 4), "2 to 4"), ((2, 3, 33, 34, 40), "2 to 3, 33 to 34, 40"), ((7,), "7"), ((), "")]
)
def test_tasks_that_are_not_in_a_row_are_told_apart(numbers: tuple[int, ...], said: str) -> None:
    assert _spans(numbers) == said
