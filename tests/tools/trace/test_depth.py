"""A trace costs the same at any depth: layers that are built alike are built once, and no document shows it.

Whole traces with and without sharing are compared, of models of several kinds and of planted ones whose constructors
do with their index what no copy may hide.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

import pytest
import torch
import transformers
from opscope_tools.costing.arguments import model_spec
from opscope_tools.running.tool import ToolContext
from opscope_tools.trace.protocol import ModelSpec, TraceRequest
from opscope_tools.trace.worker import attempts, models
from opscope_tools.trace.worker import session as session_module
from opscope_tools.trace.worker.alike import first_of
from opscope_tools.trace.worker.noting import Index
from opscope_tools.trace.worker.recorder import _Memory
from opscope_tools.trace.worker.session import Session, quiet
from opscope_tools.trace.worker.sharing import SharedLayerError
from opscope_tools.trace.worker.stacks import Stacks
from opscope_tools.trace.worker.symbols import Symbols
from opscope_tools.trace.worker.writing import written
from sampled import sampled
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

#: model type, phase, level, depth (None: as configured), whether its layers can be shared
MODELS = [
    ("llama", "prefill", "all", None, True),
    ("llama", "decode", "all", 5, True),
    ("gemma3_text", "prefill", "all", 13, True),
    ("deepseek_v3", "prefill", "run", 7, True),
    ("qwen2_moe", "prefill", "all", 6, True),
    ("bert", "prefill", "all", None, True),
    ("vit", "prefill", "all", None, True),
    ("t5", "prefill", "all", None, True),
    ("t5", "encode", "all", None, True),
    ("gpt2", "decode", "all", None, True),
    ("jamba", "prefill", "run", 9, False),  # asks a list that its config makes anew each time
]


def traced(
    model_class: Any, config_class: Any, spec: ModelSpec, *, share: bool, phase: Any = "prefill", level: str = "all"
) -> tuple[str, Any]:
    """The whole trace as text, and the model that ran."""
    with quiet():
        session = Session(TraceRequest(model=spec, phase=phase), model_class, config_class, level, share=share)
        session.run()
        trace = written(session, Stacks(model_class, config_class, spec, share=share))
    return trace.model_dump_json(), session.model


def copies(model: Any) -> int:
    return sum(first_of(module) is not module for module in model.modules())


@pytest.mark.parametrize(("model_type", "phase", "level", "depth", "shares"), sampled(MODELS))
def test_a_trace_is_the_same_whether_layers_were_shared_or_all_built(
    model_type: str, phase: str, level: str, depth: int | None, shares: bool, context: ToolContext
) -> None:
    spec = model_spec(context.workspace, model_type, {} if depth is None else {"num_layers": depth})
    _, ((model_class, config_class), *_) = models.resolve(spec)
    with_sharing, model = traced(model_class, config_class, spec, share=True, phase=phase, level=level)
    without, built = traced(model_class, config_class, spec, share=False, phase=phase, level=level)
    assert with_sharing == without
    assert (copies(model) > 0) is shares
    assert copies(built) == 0


def test_layers_whose_weights_are_tied_by_name_are_all_built(context: ToolContext) -> None:
    spec = model_spec(context.workspace, "zamba2", None)
    _, ((model_class, config_class), *_) = models.resolve(spec)
    with pytest.raises(SharedLayerError, match="tie_weights"):
        traced(model_class, config_class, spec, share=True, level="run")


def calls_of(layers: int, context: ToolContext) -> int:
    """How many functions of Python a trace of a llama of so many layers calls."""
    count = 0

    def seen(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    spec = model_spec(context.workspace, "llama", {"num_layers": layers})
    _, ((model_class, config_class), *_) = models.resolve(spec)
    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        traced(model_class, config_class, spec, share=True)
    finally:
        sys.setprofile(before)
    return count


def test_a_trace_of_126_layers_takes_at_most_a_fifth_more_than_one_of_2(context: ToolContext) -> None:
    for _ in range(2):  # what is imported and remembered is so once
        deep, shallow = calls_of(126, context), calls_of(2, context)
    assert deep <= 1.2 * shallow


@pytest.mark.parametrize("look", [lambda t: t, lambda t: t.view(12), lambda t: t.transpose(0, 1)[0]])
def test_memory_is_handed_out_again_only_once_nothing_lies_in_it(look: Callable[[Any], Any]) -> None:
    with FakeTensorMode():
        memory = _Memory(torch.empty(3, 4))
        assert memory.free()
        held = look(memory.tensor)
        assert not memory.free()
        del held
        assert memory.free()


# ---------------------------------------------------------------- planted models


class PlantedConfig(transformers.PreTrainedConfig):  # type: ignore[misc]  # transformers is untyped here
    model_type = "planted"

    def __init__(self, hidden_size: int = 24, num_hidden_layers: int = 6, vocab_size: int = 100, **others: Any) -> None:
        self.hidden_size, self.num_hidden_layers, self.vocab_size = hidden_size, num_hidden_layers, vocab_size
        self.widths = [5, 7, 5, 5, 7, 5]
        super().__init__(**others)

    @property
    def made_anew(self) -> list[int]:
        return [5, 7, 5, 7, 7, 5]


class Layer(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Projects to a width that a subclass finds out, and back."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        width = self.width(config, layer_idx)
        self.up = nn.Linear(config.hidden_size, width)
        self.down = nn.Linear(width, config.hidden_size)
        self.layer_idx = layer_idx

    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        return 8

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states + self.down(self.up(states))


class Ranged(Layer):
    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        return 3 + len(range(layer_idx))


class Alternating(Layer):
    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        return 16 if layer_idx % 2 else 8


class Stepping(Layer):
    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        self.is_third = (layer_idx + 1) % 3 == 0
        return 8


class Naming(Layer):
    """Keeps a number of its own, which its siblings do not have."""

    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        self.position = 2 * layer_idx
        return 8


class Leading(Layer):
    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        return 16 if layer_idx < 2 else 8


class Listed(Layer):
    def width(self, config: Any, layer_idx: int) -> int:
        return int(config.widths[layer_idx])


class ListedAnew(Layer):
    def width(self, config: Any, layer_idx: int) -> int:
        return int(config.made_anew[layer_idx])


class Counting(Layer):
    """Asks nothing of its index: it counts how often it was made, where no code's names lead to."""

    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        os.environ["MADE"] = str(int(os.environ["MADE"]) + 1)
        return 3 + int(os.environ["MADE"])


class CountingInItsClass(Layer):
    made: ClassVar[int] = 0

    def width(self, config: Any, layer_idx: int) -> int:  # noqa: ARG002
        type(self).made += 1
        return 3 + self.made


class Keeping(Layer):
    """Keeps its index where no copy would look for it, and uses it while it runs."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.kept = {"place": layer_idx}

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        for _ in range(self.kept["place"]):
            states = states + 1
        return super().forward(states)


class KeepingAnother(Keeping):
    """Keeps a number that it computed from its index."""

    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.kept = {"place": layer_idx + 1}


class Planted(transformers.PreTrainedModel):  # type: ignore[misc]  # transformers is untyped here
    config_class = PlantedConfig
    layer: ClassVar[Any] = Layer

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([self.layer(config, layer_idx=i) for i in range(config.num_hidden_layers)])
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for layer in self.layers:
            states = layer(states)
        return states


class Peeking(Planted):
    """Takes a weight out of a layer from outside."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        last: Any = self.layers[-1]
        return super().forward(input_ids) + last.down.bias


@pytest.mark.parametrize("names", list(itertools.permutations(("projection_size", "vision_hidden_size", "features"))))
def test_of_sizes_that_must_be_equal_the_one_by_a_standard_name_is_kept(names: tuple[str, ...]) -> None:
    symbols = Symbols()
    first, *others = (symbols.create(name, 64) for name in names)
    assert all(first == other for other in others)
    kept = {str(symbols.converted(target)) for target in symbols.env.equal.values()}
    assert kept == {"{vision_hidden_size}"}


def planted(layer: Any, base: Any = Planted) -> Any:
    return type(f"{layer.__name__}{base.__name__}", (base,), {"layer": layer, "__module__": __name__})


SPEC = ModelSpec(model_type="planted")


@pytest.mark.parametrize(
    ("layer", "expected"),
    [(Layer, 5), (Alternating, 4), (Leading, 4), (Listed, 4), (Stepping, 4), (Ranged, 0), (ListedAnew, 0), (Naming, 0)],
)
def test_a_layer_is_a_copy_only_where_its_index_is_used_alike(layer: Any, expected: int) -> None:
    with_sharing, model = traced(planted(layer), PlantedConfig, SPEC, share=True)
    without, _ = traced(planted(layer), PlantedConfig, SPEC, share=False)
    assert copies(model) == expected
    assert with_sharing == without
    assert [layer.layer_idx for layer in model.layers] == list(range(6))
    assert all(type(layer.layer_idx) is int for layer in model.layers)


def test_layers_that_count_themselves_in_their_class_are_no_copies() -> None:
    _, model = traced(planted(CountingInItsClass), PlantedConfig, SPEC, share=True)
    assert copies(model) == 0


def test_what_an_index_does_not_show_the_last_layer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADE", "0")
    with pytest.raises(SharedLayerError, match="last Counting"):
        traced(planted(Counting), PlantedConfig, SPEC, share=True)


@pytest.mark.parametrize("layer", [Keeping, KeepingAnother])
def test_an_index_that_is_kept_out_of_sight_is_noticed(layer: Any) -> None:
    with pytest.raises(SharedLayerError, match="keeps"):
        traced(planted(layer), PlantedConfig, SPEC, share=True)


def test_a_copy_lets_nobody_at_its_children() -> None:
    with pytest.raises(SharedLayerError, match="needed itself"):
        traced(planted(Layer, Peeking), PlantedConfig, SPEC, share=True)


@pytest.mark.parametrize(("layer", "base"), [(Layer, Peeking), (Counting, Planted)])
def test_where_a_layer_is_needed_itself_all_are_built(layer: Any, base: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model_class = planted(layer, base)
    monkeypatch.setenv("MADE", "0")
    with quiet():
        session = attempts._ran(TraceRequest(model=SPEC), model_class, PlantedConfig, "all", attempts.Way())
    assert copies(session.model) == 0
    widths = [layer.up.out_features for layer in session.model.layers]
    assert len(set(widths)) == (6 if layer is Counting else 1)


class Pondering(Layer):
    """Is never done with a size that is a symbol, all within one step."""

    begun: ClassVar[list[str]] = []

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        if isinstance(states.shape[1], torch.SymInt):
            self.begun.append(str(states.shape[1]))
            while True:
                pass
        return states + self.down(self.up(states))


def test_a_step_that_takes_too_long_on_symbols_ends_the_pass_and_is_not_begun_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session_module, "_PATIENCE", 0.5)
    model_class = planted(Pondering)
    for seq_len in (16, 32):
        asked = TraceRequest(model=SPEC, hints={"seq_len": seq_len})
        with quiet():
            trace = attempts._widest(asked, model_class, PlantedConfig, lambda _: None)
        assert trace.point["seq_len"] == seq_len
        assert any("takes too long on symbolic sizes" in text for text in trace.assumptions)
    assert len(Pondering.begun) == 1


def test_constructors_and_configs_are_left_as_they_were() -> None:
    before = Layer.__init__
    _, model = traced(planted(Listed), PlantedConfig, SPEC, share=True)
    assert Layer.__init__ is before
    session = Session(TraceRequest(model=SPEC), planted(Listed), PlantedConfig)
    with quiet():
        session.run()
    assert type(session.config.widths) is list
    assert isinstance(model, Planted)


def test_an_index_is_an_integer_to_whoever_asks_and_hears_of_it() -> None:
    index = Index(3)
    asked: Any = index
    assert isinstance(asked, int)
    assert (asked + 1, 7 - asked, asked < 4, [0, 1, 2, 9][asked], f"{asked}", asked in (1, 3)) == (
        4,
        4,
        True,
        9,
        "3",
        True,
    )
    assert len(range(asked)) == 3
    assert {3: "c"}[asked] == "c"
    assert 0.5**asked == 0.125
    assert len(index.uses) >= 9
    assert all(use.same_at(3) for use in index.uses)
    assert not all(use.same_at(4) for use in index.uses)
