"""What tells repeated layers of one class apart: the kind that a list of the configuration gives each layer, and their numbers.

A trace folds layers that run the same operators. Where one class is folded into several calls, a list with one entry for each
layer (`layer_types`) says which is which, if its counts fit the calls in only one way; else what the modules of the tree hold.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from opscope_schemas.analysis import Kernel, ModelAnalysis
from opscope_schemas.formula import Rational, evaluate

from opscope_tools.report.facts import ImplementationFacts
from opscope_tools.report.nodes import layers_of, numbers_said

__all__ = ["Kind", "kinds_of", "layer_types", "layers_told", "sliding_window", "windowed"]


@dataclass(frozen=True)
class Kind:
    """Which of several folded calls one is: `name` in few words, `layers` with the numbers where they are known."""

    name: str
    layers: str = ""

    @property
    def whole(self) -> str:
        """Name and numbers."""
        return f"{self.name} ({self.layers})" if self.name and self.layers else self.name or self.layers


def kinds_of(facts: ImplementationFacts, document: ModelAnalysis) -> dict[int, Kind]:
    """By the identity of a call; only calls that share their place with another repeated one have a kind."""
    values, lists = facts.point(document), list(_lists(facts))
    found: dict[int, Kind] = {}
    for calls in _together(document.kernels, values):
        names = _named([evaluate(call.repeat, values) for call in calls], lists)
        for place, call in enumerate(calls):
            layers = layers_of(facts, call)
            same = [id(other) for other in calls if other.class_name == call.class_name]
            unnamed = "" if layers or len(same) < 2 else f"kind {same.index(id(call)) + 1} of {len(same)}"
            kind = names[place] if names else Kind(unnamed, layers)
            if kind.whole:
                found[id(call)] = kind
    return found


def layers_told(facts: ImplementationFacts, document: ModelAnalysis) -> dict[int, str]:
    """By the identity of a call the numbers of the layers in which it runs, where it or the layer around it is of one of several
    kinds."""
    kinds = kinds_of(facts, document)

    def below(kernels: Sequence[Kernel], layers: str) -> Iterator[tuple[int, str]]:
        for call in kernels:
            if call.class_name:
                own = kinds[id(call)].layers if id(call) in kinds else layers
                yield id(call), own or layers_of(facts, call)
                yield from below(call.kernels or (), own)

    return dict(below(document.kernels, ""))


def _together(kernels: Sequence[Kernel], values: Mapping[str, Rational]) -> Iterator[list[Kernel]]:
    """Calls at one attribute of one forward, at least one of which is repeated."""
    held: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        if kernel.class_name and kernel.kernels:
            held.setdefault(kernel.attribute, []).append(kernel)
            yield from _together(kernel.kernels, values)
    for attribute, calls in held.items():
        if attribute.endswith("*") and len(calls) > 1 and any(evaluate(call.repeat, values) > 1 for call in calls):
            yield calls


def _lists(facts: ImplementationFacts) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Lists of the configuration, as source computes them and as the built one holds them."""
    for own in facts.settings.configurations if facts.settings is not None else ():
        for parameter in own.hyperparameters:
            for value in (parameter.effective, parameter.given, parameter.value):
                if isinstance(value, list | tuple) and value:
                    yield parameter.name, tuple(map(str, value))
                    break
    pending: list[Mapping[str, object]] = [facts.tree.config]
    while pending:
        for name, value in pending.pop().items():
            if isinstance(value, Mapping):
                pending.append(value)
            elif isinstance(value, list | tuple) and value:
                yield name, tuple(map(str, value))


def layer_types(facts: ImplementationFacts) -> tuple[str, ...]:
    """The kind of each layer, where the configuration has a list of them."""
    return next((kinds for name, kinds in _lists(facts) if name == "layer_types"), ())


class Window(NamedTuple):
    """Tokens of the window, or of the chunk, in which layers attend; how many layers do, of how many; the setting that says so, dotted
    where a part of the configuration holds it."""

    tokens: int
    layers: int
    of_layers: int
    setting: str

    @property
    def slides(self) -> bool:
        """Whether each token has a window of its own; a chunk is that of all tokens in it."""
        return self.setting.rpartition(".")[2] == "sliding_window"


def windowed(facts: ImplementationFacts) -> Window | None:
    """How far back layers attend, by the configuration or by a part of it that says of which kind each layer is; None without a limit."""
    config = facts.tree.config
    if not facts.classes_of("attention"):
        return None
    found = [_windowed(config, layer_types(facts))]
    for name, part in config.items():
        if isinstance(part, Mapping) and (kinds := _kinds_in(facts, name)):
            window = _windowed(part, kinds)
            found.append(window._replace(setting=f"{name}.{window.setting}") if window else None)
    return next((window for window in found if window is not None), None)


def _kinds_in(facts: ImplementationFacts, part: str) -> tuple[str, ...]:
    """The kind of each layer, where a part of the configuration has a list of them."""
    for own in facts.settings.configurations if facts.settings is not None else ():
        for parameter in own.hyperparameters if own.path == part else ():
            held = next((v for v in (parameter.effective, parameter.given, parameter.value) if v is not None), None)
            if parameter.name == "layer_types" and isinstance(held, list | tuple):
                return tuple(map(str, held))
    return ()


def _windowed(config: Mapping[str, object], kinds: Sequence[str]) -> Window | None:
    chunked = [kind == "chunked_attention" for kind in kinds]
    chunk, window = config.get("attention_chunk_size"), config.get("sliding_window")
    if any(chunked) and isinstance(chunk, int):
        return Window(chunk, sum(chunked), len(kinds), "attention_chunk_size")
    if not isinstance(window, int) or not config.get("use_sliding_window", True):
        return None
    sliding = ["sliding" in kind for kind in kinds]
    return None if kinds and not any(sliding) else Window(window, sum(sliding), len(kinds), "sliding_window")


def sliding_window(facts: ImplementationFacts) -> int:
    """Tokens of the window or chunk in which layers attend; 0 where none has one."""
    found = windowed(facts)
    return found.tokens if found else 0


def _named(repeats: Sequence[int], lists: Sequence[tuple[str, tuple[str, ...]]]) -> list[Kind]:
    """A kind for each call; nothing where no list fits, or two fit that part the layers otherwise."""
    fitting = {entries: name for name, entries in lists if len(entries) == sum(repeats) and _fits(entries, repeats)}
    if len(fitting) > 1:
        fitting = {entries: name for entries, name in fitting.items() if name == "layer_types"}
    if len(fitting) != 1:
        return []
    (entries,) = fitting
    counts = Counter(entries)
    order = list(counts)
    if [counts[name] for name in order] != list(repeats):  # not in the order of the first layer of each kind
        order = [next(name for name in order if counts[name] == repeat) for repeat in repeats]
    setting = fitting[entries]
    return [
        Kind(
            name if re.search("[a-z]", name) and name not in ("True", "False", "None") else f"{setting} {name}",
            numbers_said([at for at, entry in enumerate(entries) if entry == name]),
        )
        for name in order
    ]


def _fits(entries: Sequence[str], repeats: Sequence[int]) -> bool:
    counts = list(Counter(entries).values())
    return counts == list(repeats) or (sorted(counts) == sorted(repeats) and len(set(counts)) == len(counts))
