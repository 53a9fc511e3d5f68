"""What is traced once or not at all: towers that only fill a cache, models whose classes are asked for one by one, numbers of images.

A decode pass is recorded after one that fills the cache. Where tokens alone leave the same in it as tokens with images among them, they
fill it, and the sizes that towers make numbers stay symbols.
"""

from __future__ import annotations

from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from opscope_schemas.analysis import TensorInfo, Variable
from opscope_schemas.errors import TraceError
from opscope_schemas.estimates import ALONE
from opscope_tools.costing.arguments import CostArguments, model_spec
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline import memory
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.document import CallTree
from opscope_tools.trace.engine import TraceEngine
from opscope_tools.trace.flights import Running
from opscope_tools.trace.protocol import KeptRecord, ModelSpec, Trace, TraceRequest
from opscope_tools.trace.worker import attempts
from opscope_tools.trace.worker.attempts import Way
from opscope_tools.trace.worker.places import Settings

MADE = Trace(
    model_class="a.Model", config_class="a.Config", model_type="a", phase="decode", attention="sdpa", calls=(), ops=(),
    variables=(
        Variable(name="batch_size", meaning="sequences", default=3, kind="fixed"),
        Variable(name="hidden_size", meaning="width", default=64),
    ),
    guards=("{batch_size} == 3", "{batch_size} < {hidden_size}"), point={"batch_size": 3, "hidden_size": 64},
)  # fmt: skip
FULL: Any = SimpleNamespace(
    filled_with=frozenset({"input_ids", "pixel_values"}), settled={"batch_size": 3, "image_height": 224}
)
TOKENS: Any = SimpleNamespace(filled_with=frozenset({"input_ids"}), settled={"batch_size": 3})


def test_a_step_after_images_is_traced_for_any_number_of_sequences(context: ToolContext) -> None:
    asked = CostArguments.model_validate({"target": "qwen2_5_vl", "phase": "decode"})
    found = count_flops(asked, context).document
    assert {v.kind for v in found.variables if v.name == "batch_size"} == {"symbol"}
    assert not any("{batch_size} ==" in condition for condition in found.conditions)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, Way(beside_tokens=(("image_height", 224),))),
        ({"point": {"batch_size": 3}, "guards": ()}, Way(beside_tokens=(("image_height", 224),))),
        ({"cache_before": (KeptRecord(index=0, info=TensorInfo(name="", shape=("2",), dtype="bfloat16")),)}, Way()),
        ({"assumptions": ("Something else.",)}, Way()),
    ],
)
def test_tokens_alone_fill_a_cache_where_the_step_after_them_is_the_same(
    changed: dict[str, Any], expected: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {id(FULL): MADE, id(TOKENS): MADE.model_copy(update=changed)}
    monkeypatch.setattr(attempts, "written", lambda session, _: made[id(session)])
    assert attempts._filled_with_tokens(FULL, Way(), lambda _: TOKENS) == expected


def test_images_fill_a_cache_where_the_model_does_not_run_on_tokens_alone() -> None:
    def refuses(_: Way) -> Any:
        raise TraceError("No.")

    assert attempts._filled_with_tokens(FULL, Way(), refuses) == Way()


def test_classes_that_one_model_calls_are_found_in_one_trace_of_it(
    context: ToolContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[TraceRequest] = []

    def widest(request: TraceRequest, *_: Any) -> Trace:
        made.append(request)
        return MADE

    monkeypatch.setattr(attempts, "_widest", widest)
    monkeypatch.setattr(attempts, "_lately", {})

    def ask(target: str, **more: Any) -> None:
        request = TraceRequest(model=model_spec(context.workspace, target, None), **more)
        assert attempts._once(request, ModelSpec, Trace, print) is MADE

    ask("LlamaRMSNorm")
    ask("LlamaMLP")
    assert len(made) == 1
    ask("LlamaMLP", phase="decode")
    ask("LlamaMLP", hints={"batch_size": 1})
    assert len(made) == 3
    for batch in range(2, 30):
        ask("LlamaMLP", hints={"batch_size": batch})
    assert len(attempts._lately) <= 8


def test_no_trace_of_thousands_of_sequences_is_made_where_their_number_is_one_of_the_record() -> None:
    asked: list[TraceRequest] = []
    engine: Any = SimpleNamespace(trace=lambda request, _: asked.append(request))
    values = {"batch_size": 4096, "hidden_size": 64}
    running = Running(Event(), print)
    assert TraceEngine._beside(engine, TraceRequest(model=ModelSpec()), CallTree(MADE), values, running) is None
    assert not asked


@pytest.mark.parametrize(("capacity", "expected"), [(99, 0), (1 << 40, None)])
def test_no_trace_says_how_many_sequences_fit_where_each_number_of_them_is_one(
    capacity: int, expected: int | None
) -> None:
    """Bytes that no number of sequences moves are no room for all."""
    of: Any = SimpleNamespace(found=SimpleNamespace(tree=CallTree(MADE)))
    held = memory.Memory(of, _flow(weights="100"), "")
    asked: list[int] = []

    def elsewhere(_: str, size: int) -> memory.Memory:
        asked.append(size)
        return held

    assert memory._most("batch_size", held, {"batch_size": 1}, capacity, ALONE, elsewhere) == expected
    assert max(asked) <= 3


def _flow(weights: str) -> Any:
    return SimpleNamespace(weights=weights, cache=None, inputs="", phase="prefill")


class _Notes(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    def forward(self, x: torch.Tensor, kept: Any) -> torch.Tensor:
        self.kept = kept
        return x


@pytest.mark.parametrize(("kept", "expected"), [(torch.float32, False), ("eager", False), ([1], True), (7, True)])
def test_a_layer_that_notes_a_dtype_keeps_nothing_that_one_alike_would_not(kept: Any, expected: bool) -> None:
    layer = _Notes()
    settings = Settings([layer])
    layer(torch.ones(1), kept)
    assert settings.ran(layer) == expected
    assert not settings.ran(layer)
