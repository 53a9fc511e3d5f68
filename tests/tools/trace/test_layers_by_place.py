"""A layer stands for its siblings only where it would do what they do: whatever it knows its place by, and however it asks.

Planted models whose layers do one product or two, by their place, are counted and are run for real under torch's own counter.
"""

from __future__ import annotations

import enum
import functools
import linecache
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import transformers
from opscope_schemas.formula import evaluate
from opscope_tools.trace.protocol import ModelSpec, Trace, TraceRequest
from opscope_tools.trace.worker import attempts
from opscope_tools.trace.worker.session import quiet
from opscope_tools.trace.worker.stacks import Stacks
from opscope_tools.trace.worker.writing import written
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

LAYERS, WIDTH, BATCH, TOKENS = 7, 24, 2, 5


class PlacedConfig(transformers.PreTrainedConfig):  # type: ignore[misc]  # transformers is untyped here
    model_type = "placed"

    def __init__(self, hidden_size: int = WIDTH, num_hidden_layers: int = LAYERS, **others: Any) -> None:
        self.hidden_size, self.num_hidden_layers = hidden_size, num_hidden_layers
        self.vocab_size = 100
        self.kinds = ["wide" if i in (1, 4) else "plain" for i in range(num_hidden_layers)]
        super().__init__(**others)


class Layer(nn.Module):  # type: ignore[misc]  # torch is untyped here
    def __init__(self, config: Any, layer_idx: int) -> None:
        super().__init__()
        self.layer_idx = layer_idx
        self.config = config
        self.always = nn.Linear(config.hidden_size, config.hidden_size)
        self.sometimes = nn.Linear(config.hidden_size, config.hidden_size)
        self.prepare(layer_idx)

    def prepare(self, layer_idx: int) -> None:
        """What it keeps of its index."""

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return False

    def forward(self, states: torch.Tensor, block_idx: int) -> torch.Tensor:
        states = states + self.always(states)
        return states + self.sometimes(states) if self.twice(block_idx) else states


class Even(Layer):
    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.layer_idx % 2 == 0


class EvenWithCache(Even):
    """By its name no cache for all that."""


class ByACachesSettings(Layer):
    cache_settings: ClassVar[Any] = type("CacheSettings", (), {"windows": [0, 0, 512, 0, 512, 0, 0]})()

    def twice(self, given: int) -> bool:
        return bool(self.cache_settings.windows[given] > 0)


class HandedIn(Layer):
    def twice(self, given: int) -> bool:
        return given % 3 == 1


class OneOf(Layer):
    def twice(self, given: int) -> bool:
        return given in {2, 5}


class OneOfAList(Layer):
    places: ClassVar[list[int]] = [0, 6]

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.layer_idx in self.places


class ByTable(Layer):
    table: ClassVar[dict[int, int]] = {3: 1}

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.table.get(self.layer_idx, 0))


class ByConfig(Layer):
    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.config.kinds[self.layer_idx] == "wide")


class NextByConfig(Layer):
    def twice(self, given: int) -> bool:
        return given + 1 < len(self.config.kinds) and bool(self.config.kinds[given + 1] == "wide")


class ByTableOfObjects(Layer):
    """Looks an object up, which says it two storeys down."""

    table: ClassVar[list[Any]] = [SimpleNamespace(inner=SimpleNamespace(twice=i == 5)) for i in range(20)]

    def twice(self, given: int) -> bool:
        return bool(self.table[given].inner.twice)


class OfAPart(Layer):
    """A part of it knows the place, by another number."""

    def prepare(self, layer_idx: int) -> None:
        self.part = nn.Module()
        self.part.layer_number = layer_idx + 1

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.part.layer_number > 4)


class ByName(Layer):
    def twice(self, given: int) -> bool:  # noqa: ARG002
        return f"layer {self.layer_idx}".endswith(("1", "2"))


class InADict(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.kept = {"twice": layer_idx == 3}

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.kept["twice"]


class Hidden(Layer):
    def prepare(self, layer_idx: int) -> None:
        self._twice = layer_idx in (0, 3)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self._twice


class InAClosure(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.asks: Any = lambda: layer_idx > 4

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.asks())


class InAPartial(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.asks = functools.partial(max, layer_idx)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.asks(3) > 3)


class InAnObject(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.plan = SimpleNamespace(inner=SimpleNamespace(twice=layer_idx < 2))

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.plan.inner.twice)


@dataclass(frozen=True, slots=True)
class Plan:
    twice: bool


class InSlots(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.plan = Plan(layer_idx == 6)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.plan.twice


class Kind(enum.Enum):
    PLAIN = 0
    WIDE = 1


class AsAKind(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.kind = Kind(layer_idx == 2)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.kind is Kind.WIDE


class AsManyAsStandBefore(Layer):
    """Runs as many products as a slice up to its place has items."""

    listed: ClassVar[list[int]] = [1] * 20

    def forward(self, states: torch.Tensor, block_idx: int) -> torch.Tensor:
        for _ in self.listed[: self.layer_idx // 2]:
            states = self.sometimes(states)
        return self.always(states) * torch.ones((9, 1))[:block_idx].shape[0]


class OfPartOfATensor(Layer):
    def prepare(self, layer_idx: int) -> None:  # noqa: ARG002
        self.bank = nn.Parameter(torch.zeros(9, WIDTH))

    def forward(self, states: torch.Tensor, block_idx: int) -> torch.Tensor:  # noqa: ARG002
        return self.always(states) + (states @ self.bank[: self.layer_idx + 1].T) @ self.bank[: self.layer_idx + 1]


class OneOfTwoLambdas(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.asks: Any = (lambda: layer_idx < 0) if layer_idx % 2 else (lambda: layer_idx >= 0)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.asks())


class ByAKeywordsDefault(Layer):
    def prepare(self, layer_idx: int) -> None:
        def asks(*, twice: bool = layer_idx == 4) -> bool:
            return twice

        self.asks: Any = asks

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.asks())


class ByABuiltin(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.join: Any = all if layer_idx % 3 else any

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.join([True, False]))


class ByAnArray(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.mask = np.arange(300) < 300 * (layer_idx % 2)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.mask.any())


class ByAnIndexThatIsAnArraysNumber(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.layer_idx: Any = np.int64(layer_idx)

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.layer_idx % 2)


class ByAnIndexThatIsText(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.layer_id = f"layer_{layer_idx}"

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.layer_id in ("layer_2", "layer_3")


class ByABuffer(Layer):
    def prepare(self, layer_idx: int) -> None:
        self.rounds = torch.tensor(layer_idx % 2, device="cpu")

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(int(self.rounds))


class OfAClassOfItsOwn(Layer):
    """Every layer is of a class that a function made."""

    def __new__(cls, config: Any, layer_idx: int) -> Any:  # noqa: ARG004
        def made(twice: bool) -> Any:
            class Inner(cls):  # type: ignore[misc, valid-type]
                def twice(self, given: int) -> bool:  # noqa: ARG002
                    return twice

            return Inner

        return nn.Module.__new__(made(layer_idx % 3 == 2)) if cls is OfAClassOfItsOwn else nn.Module.__new__(cls)


class Neither(Layer):
    """Keeps what tells nothing: all its layers are alike."""

    def prepare(self, layer_idx: int) -> None:  # noqa: ARG002
        self.plan, self._kept, self.asks = SimpleNamespace(twice=False), {"a": [1, None]}, lambda: 3


class Listed(Layer):
    """Looks its state up in a list that holds the same for each layer."""

    states: ClassVar[list[dict[str, int]]] = [{"seen": 0} for _ in range(LAYERS)]

    def twice(self, given: int) -> bool:
        return self.states[given]["seen"] > 0 or self.states[self.layer_idx]["seen"] > 0


class AlongADimension(Layer):
    """Takes its own part of one tensor that holds the states of all layers, and puts it back."""

    def forward(self, states: torch.Tensor, block_idx: int) -> torch.Tensor:
        kept = states.new_zeros((2, LAYERS, states.shape[-1]))
        states = states + self.always(states) + kept[1][self.layer_idx] + kept[0, block_idx]
        kept[:, self.layer_idx] = states[0, 0]
        return states


class OwnCache(transformers.DynamicCache):  # type: ignore[misc]  # transformers is untyped here
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def keep(self, index: int, value: Any) -> None:
        for _ in range(len(self.kept), index + 1):
            self.kept.append(None)
        self.kept[index] = value


class InACache(Layer):
    cache: ClassVar[Any] = OwnCache()

    def forward(self, states: torch.Tensor, block_idx: int) -> torch.Tensor:  # noqa: ARG002
        self.cache.keep(self.layer_idx, True)
        return states + self.always(states)


class Placed(transformers.PreTrainedModel):  # type: ignore[misc]  # transformers is untyped here
    config_class = PlacedConfig
    layer: ClassVar[Any] = Layer

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([self.layer(config, layer_idx=i) for i in range(config.num_hidden_layers)])
        self.post_init()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            states = layer(states, index)
        return states


class Told(Layer):
    """Is told by an object that is made anew for every layer, or changed before each."""

    def forward(self, states: torch.Tensor, context: Any) -> torch.Tensor:
        states = states + self.always(states)
        return states + self.sometimes(states) if context.number % 3 == 0 else states


class Telling(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            states = layer(states, SimpleNamespace(number=index))
        return states


class Changing(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        context = SimpleNamespace(number=0)
        for index, layer in enumerate(self.layers):
            context.number = index
            states = layer(states, context)
        return states


class Set(Layer):
    """Does what its model has told it by an attribute, and counts its calls for itself."""

    calls, mode = 0, 0

    def forward(self, states: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # as its model calls it
        self.calls += 1
        states = states + self.always(states)
        return states + self.sometimes(states) if self.mode else states


class SetOtherwise(Layer):
    fn: Any = None

    def prepare(self, layer_idx: int) -> None:  # noqa: ARG002
        self.options = {"twice": False}

    def forward(self, states: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # as its model calls it
        return self.fn(self, states) if self.options["twice"] else self.always(states)


class SettingOtherwise(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            layer.options["twice"] = index > 2
            layer.fn = (lambda one, x: one.sometimes(one.always(x))) if index % 2 else (lambda one, x: one.always(x))
            states = layer(states)
        return states


class Keeps(Layer):
    """Computes something at its first call, and has it at the next."""

    def prepare(self, layer_idx: int) -> None:  # noqa: ARG002
        self.kept: Any = None

    def forward(self, states: torch.Tensor) -> torch.Tensor:  # type: ignore[override]  # as its model calls it
        if self.kept is None:
            self.kept = self.sometimes(states)
        return self.always(states) + self.kept


class CallingTwice(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for layer in (*self.layers, *self.layers):
            states = layer(states)
        return states


class Returns(Layer):
    def forward(self, states: torch.Tensor) -> Any:  # type: ignore[override]  # as its model calls it
        return self.always(states), self.layer_idx


class AskingBack(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for layer in self.layers:
            states, number = layer(states)
            states = self.layers[0].sometimes(states) if number % 3 == 0 else states
        return states


class SharedStates:
    """A cache of its own kind: of every two layers the first computes, the second finds."""

    def __init__(self) -> None:
        self.held: dict[int, Any] = {}


class FindingCache(Layer):
    def forward(self, states: torch.Tensor, shared: Any) -> torch.Tensor:
        place = self.layer_idx - self.layer_idx % 2
        if place not in shared.held:
            shared.held[self.layer_idx] = self.sometimes(states)
        return self.always(states) + shared.held[place]


class Sharing(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states, shared = self.embed(input_ids), SharedStates()
        for layer in self.layers:
            states = layer(states, shared)
        return states


class Hooked(Placed):
    """A product beside every layer, and one before some, by hooks."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for index, layer in enumerate(self.layers):
            layer.register_forward_hook(lambda module, _, out: out + module.sometimes(out))
            if index in (2, 5):
                layer.register_forward_pre_hook(lambda module, given: (module.always(given[0]), *given[1:]))


class Setting(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            layer.mode = index % 3
            states = layer(states)
        return states


class Counter:
    def __init__(self) -> None:
        self.count, self.held = 0, {"count": 0}

    def __call__(self) -> int:
        self.count += 1
        self.held["count"] += 1
        return self.count


class Counters:
    """Where a layer's code may count its calls: in its class, in its file, in an object there, in what a function closes over, in
    another class, in an object that all layers hold."""

    of_class = 0
    of_file = Counter()

    @classmethod
    def reset(cls) -> None:
        globals()["_calls"] = cls.of_class = CountingInItsClass.calls = 0
        cls.of_file.count = cls.of_file.held["count"] = 0
        _count_here(0)


_calls = 0


def _counting() -> Any:
    calls = 0

    def count(given: int | None = None) -> int:
        nonlocal calls
        calls = calls + 1 if given is None else given
        return calls

    return count


_count_here = _counting()


class Counts(Layer):
    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.counted() % 3 == 1

    def counted(self) -> int:
        """Which call it is, wherever that is kept; here nowhere."""
        return 0


class CountingInItsClass(Counts):
    calls = 0

    def counted(self) -> int:
        type(self).calls += 1
        return self.calls


class CountingInItsFile(Counts):
    def counted(self) -> int:
        global _calls
        _calls += 1
        return _calls


class CountingInAnObject(Counts):
    def counted(self) -> int:
        return Counters.of_file() and Counters.of_file.held["count"]


class CountingInAClosure(Counts):
    def counted(self) -> int:
        return int(_count_here())


class CountingInAnotherClass(Counts):
    def counted(self) -> int:
        Counters.of_class += 1
        return Counters.of_class


class Counting(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        Counters.reset()
        return super().forward(input_ids)


class Flipping(Layer):
    """Turns a switch of its class round with every call, so that the same state comes again."""

    flip = False

    def twice(self, given: int) -> bool:  # noqa: ARG002
        type(self).flip = not self.flip
        return self.flip


class Late:
    """What is set here only once layers run."""

    count: ClassVar[int]


class SetLater(Layer):
    def twice(self, given: int) -> bool:  # noqa: ARG002
        count = int(getattr(Late, "count", 0))
        Late.count = count + 1
        return count % 3 == 1


def _one(_: Any) -> bool:
    return False


def _two(_: Any) -> bool:
    return True


_do = _one


class BySwitchedFunction(Layer):
    def twice(self, given: int) -> bool:
        return _do(given)


class Switching(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            globals()["_do"] = _two if index % 3 == 0 else _one
            states = layer(states, index)
        return states


class Starting(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        Late.count = 0
        Flipping.flip = False
        return super().forward(input_ids)


class BuiltInTurns(Layer):
    turn: ClassVar[bool] = False

    def prepare(self, layer_idx: int) -> None:
        if layer_idx == 0:
            BuiltInTurns.turn = False
        BuiltInTurns.turn = not self.turn
        self.mine = self.turn

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.mine


class BuiltInOrder(Layer):
    """Counts the layers that were built, and keeps which of them it is."""

    built: ClassVar[list[int]] = []

    def prepare(self, layer_idx: int) -> None:
        self.built[layer_idx:] = [layer_idx]
        self.third = len(self.built) % 3 == 0

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.third


class HoldsWhatAllHold(Layer):
    shared = Counter()

    def prepare(self, layer_idx: int) -> None:  # noqa: ARG002
        self.state = self.shared

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.state.count == 2


class ChangingWhatAllHold(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            layer.state.count = index % 4
            states = layer(states, index)
        return states


class ChangingTheConfig(Placed):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        for index, layer in enumerate(self.layers):
            self.config.wide = index % 3 == 2
            states = layer(states, index)
        return states


class ByTheConfigsSwitch(Layer):
    def twice(self, given: int) -> bool:  # noqa: ARG002
        return bool(self.config.wide)


class FromThePastThirtieth(Layer):
    """Is built otherwise far down only."""

    def prepare(self, layer_idx: int) -> None:
        self.far = layer_idx >= 30

    def twice(self, given: int) -> bool:  # noqa: ARG002
        return self.far


class Beside(Layer):
    def forward(self, states: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        return states + self.always(states) + self.sometimes(others).sum(1, keepdim=True)


class AlikeAtThePoint(Placed):
    """Hands some layers as many tokens as the trace happens to have, whatever the sequence."""

    tokens = 0

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        states = self.embed(input_ids)
        constant = states.new_zeros((states.shape[0], self.tokens, states.shape[2]))
        for index, layer in enumerate(self.layers):
            states = layer(states, constant if index % 2 else states)
        return states


def recorded(layer: Any, base: Any = Placed) -> tuple[Trace, Any]:
    model_class = type(f"Model{layer.__name__}", (base,), {"layer": layer, "__module__": __name__})
    spec = ModelSpec(model_type="placed")
    with quiet():
        session = attempts._ran(TraceRequest(model=spec), model_class, PlacedConfig, "all", attempts.Way())
        return written(session, Stacks(model_class, PlacedConfig, spec)), model_class


def counted(trace: Trace) -> int:
    """FLOPs of all products at the traced depth."""
    at = {**trace.point, "batch_size": BATCH, "seq_len": TOKENS}
    times: list[Any] = []
    for call in trace.calls:
        times.append(evaluate(call.repeat, at) * (times[call.parent] if call.parent >= 0 else 1))
    return int(sum(evaluate(op.matmul_flops, at) * evaluate(op.repeat, at) * times[op.call] for op in trace.ops))


def really(model_class: Any) -> int:
    model = model_class(PlacedConfig())
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(BATCH, TOKENS, dtype=torch.int64))
    return int(counter.get_total_flops())


DECIDING = (
    Even, EvenWithCache, ByACachesSettings, HandedIn, OneOf, OneOfAList, ByTable, ByConfig, NextByConfig, ByTableOfObjects, OfAPart, ByName, InADict, Hidden, InAClosure, InAPartial,
    InAnObject, InSlots, AsAKind, OneOfTwoLambdas, ByAKeywordsDefault, ByABuiltin, ByAnArray, ByAnIndexThatIsAnArraysNumber,
    ByAnIndexThatIsText, ByABuffer, OfAClassOfItsOwn, AsManyAsStandBefore, OfPartOfATensor,
)  # fmt: skip


@pytest.mark.parametrize("layer", DECIDING)
def test_what_a_layer_does_for_its_place_is_counted_at_that_place(layer: Any) -> None:
    trace, model_class = recorded(layer)
    one = 2 * BATCH * TOKENS * WIDTH * WIDTH
    assert counted(trace) == really(model_class)
    assert counted(trace) > LAYERS * one  # it does decide


@pytest.mark.parametrize(
    ("layer", "base"),
    [
        (Told, Telling), (Told, Changing), (Set, Setting), (SetOtherwise, SettingOtherwise), (Keeps, CallingTwice),
        (Returns, AskingBack), (FindingCache, Sharing), (Layer, Hooked), (CountingInItsClass, Counting), (CountingInItsFile, Counting),
        (CountingInAnObject, Counting), (CountingInAClosure, Counting), (CountingInAnotherClass, Counting),
        (Flipping, Starting), (SetLater, Starting), (BySwitchedFunction, Switching), (HoldsWhatAllHold, ChangingWhatAllHold), (ByTheConfigsSwitch, ChangingTheConfig),
    ],
)  # fmt: skip
def test_what_a_layer_does_for_what_it_is_handed_or_told_is_counted(layer: Any, base: Any) -> None:
    trace, model_class = recorded(layer, base)
    assert counted(trace) == really(model_class)
    holds_at_every_depth(trace, model_class)


@pytest.mark.parametrize("layer", [BuiltInOrder, BuiltInTurns, FromThePastThirtieth])
def test_what_a_layer_is_built_as_is_counted_at_every_depth_inside_the_conditions(layer: Any) -> None:
    trace, model_class = recorded(layer)
    assert counted(trace) == really(model_class)
    holds_at_every_depth(trace, model_class)


def test_arguments_that_are_of_one_size_at_the_point_alone_are_two() -> None:
    seen = recorded(Layer)[0].point["seq_len"]
    trace, model_class = recorded(Beside, type("Alike", (AlikeAtThePoint,), {"tokens": seen, "__module__": __name__}))
    assert counted(trace) == really(model_class)


@pytest.mark.parametrize("layer", [Layer, Neither, Listed, AlongADimension, InACache])
def test_layers_whose_place_tells_them_nothing_are_one(layer: Any) -> None:
    trace, model_class = recorded(layer)
    assert counted(trace) == really(model_class)
    assert sum(call.class_name.endswith(f".{layer.__name__}") for call in trace.calls) == 1


class Deep(Layer):
    def forward(self, states: torch.Tensor, deep: bool) -> torch.Tensor:  # type: ignore[override]  # as its model calls it
        return self.sometimes(self.always(states)) if deep else self.always(states)


def looping(body: str) -> Any:
    """A model whose loop over its layers is written so."""
    source = (
        "def forward(self, input_ids):\n    states = self.embed(input_ids)\n"
        f"    for index, layer in enumerate(self.layers):\n        {body}\n    return states\n"
    )
    return made_from(source)


def made_from(source: str) -> Any:
    file = f"<loop {source}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"torch": torch, "FIRST": (9, 12)}
    exec(compile(source, file, "exec"), names)
    later = [i == 11 for i in range(60)]
    return type(
        "Looping", (Placed,), {"forward": names["forward"], "later": later, "limit": 10, "__module__": __name__}
    )


LOOPS = [
    "states = layer(states, index >= 10)", "states = layer(states, index % 10 == 9)", "states = layer(states, index in FIRST)",
    "states = layer(states, self.later[index])", "states = layer(states, index > self.limit)",
    "states = layer(states, False) if index not in (8, 11) else states", "states = layer(states, 9 <= index < 12)",
]  # fmt: skip


@pytest.mark.parametrize("body", LOOPS)
def test_what_a_loop_does_for_places_that_it_has_not_reached_is_in_no_formula(body: str) -> None:
    holds_at_every_depth(*recorded(Deep, looping(body)))


def test_a_loop_over_a_part_of_the_layers_has_no_formula_past_it() -> None:
    source = "def forward(self, input_ids):\n    states = self.embed(input_ids)\n    for layer in self.layers[:12]:\n        states = layer(states, False)\n    return states\n"
    holds_at_every_depth(*recorded(Deep, made_from(source)))


@pytest.mark.parametrize(
    "body", ["states = layer(states, False)", "states = layer(states, index < 0) if index < len(self.layers) else 0"]
)
def test_a_loop_that_asks_nothing_leaves_the_depth_open(body: str) -> None:
    trace, _ = recorded(Deep, looping(body))
    # but for one layer of each of the two kinds that the configuration's list tells
    assert [guard for guard in trace.guards if "num_layers" in guard] == ["{num_layers} >= 2"]


@pytest.mark.parametrize("layer", DECIDING)
def test_another_depth_is_inside_the_conditions_only_where_the_formula_holds_there(layer: Any) -> None:
    holds_at_every_depth(*recorded(layer))


def holds_at_every_depth(trace: Trace, model_class: Any) -> None:
    whole = [guard for guard in trace.guards if "num_layers" in guard]
    for depth in (3, 8, 14, 40):
        if all(eval(guard.format(num_layers=depth)) for guard in whole):  # of our own making
            model = model_class(PlacedConfig(num_hidden_layers=depth))
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                model(torch.zeros(BATCH, TOKENS, dtype=torch.int64))
            deeper = trace.model_copy(update={"point": {**trace.point, "num_layers": depth}})
            assert counted(deeper) == counter.get_total_flops()
