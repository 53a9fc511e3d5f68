"""What a model is, as sentences say it: grouped-query, tied, quantised, in bfloat16, a mixture of experts, made of which classes.

Every trait is read off the same documents as the report; None where they leave it open, and then nothing is held against it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from opscope_schemas.analysis import ModuleNode
from opscope_schemas.estimates import launches
from opscope_schemas.units import things

from opscope_tools.report.attending import attending
from opscope_tools.report.facts import ImplementationFacts, anywhere, short, walk
from opscope_tools.report.kinds import layer_types, sliding_window, windowed
from opscope_tools.report.overview import latent_width, model_files

__all__ = ["Trait", "Traits", "traits_of"]


@dataclass(frozen=True)
class Trait:
    """Whether something is so, and the sentence that says what is."""

    holds: bool | None
    said: str


@dataclass(frozen=True)
class Traits:
    """The traits of a model by name, the dtype that it runs in, its classes with their roles, and the files that hold them."""

    held: Mapping[str, Trait] = field(default_factory=dict)
    #: pass -> what limits it (`compute`, `memory`), and the sentence that says so; where the device's bound and the eager kernels agree
    limits: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    #: attribute of a projection -> whether it has a bias, where all that are called so are alike; and the class that holds it
    biases: Mapping[str, tuple[bool, str]] = field(default_factory=dict)
    #: class -> what its modules' own parameters are called, or of those below them
    learned: Mapping[str, frozenset[str]] = field(default_factory=dict)
    #: experts that a token is sent to, and those that there are; None without experts
    routed: tuple[float, float] | None = None
    #: whether the passes fit on the device that the report names, and its name
    fits: tuple[bool, str] | None = None
    #: activation functions that ran or are configured, in small letters; empty where none is known
    activations: frozenset[str] = frozenset()
    dtype: str = ""
    classes: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()


def traits_of(facts: ImplementationFacts) -> Traits:
    """The traits of the model that a report is about."""
    classes = {
        short(k.class_name): facts.role(k.class_name) for _, _, k in walk(facts.main.kernels, "") if k.class_name
    }
    classes.setdefault(short(facts.subject), "model with head")
    classes[short(facts.tree.config_class)] = "configuration"
    files = dict.fromkeys([*model_files(facts), *((facts.config_location[0],) if facts.config_location else ())])
    return Traits(
        dict(_traits(facts)), _limits(facts), dict(_biases(facts)), _learned(facts.tree.tree), _routed(facts), _fitting(facts), _activations(facts),
        facts.main.dtype, classes, tuple(files),
    )  # fmt: skip


def _names(node: ModuleNode) -> Iterator[str]:
    yield node.name
    for child in node.children:
        yield from _names(child)


def _limits(facts: ImplementationFacts) -> dict[str, tuple[str, str]]:
    """What limits each pass, where the device's bound and the kernels of the eager pass say the same."""
    found: dict[str, tuple[str, str]] = {}
    for document in facts.documents:
        estimate = facts.estimates.get(document.phase)
        eager, share = facts.limited(document)
        if estimate is None or (estimate.totals.limited_by == eager and launches(estimate.totals) is None):
            said = f"kernels that {eager} limits take {100 * share:.0f} % of {document.phase} at the roofs, ridge {facts.ridge:,.0f}"
            found[document.phase] = (eager, said)
    return found


def _routed(facts: ImplementationFacts) -> tuple[float, float] | None:
    values = facts.point(facts.main)
    chosen, among = values.get("num_experts_per_tok"), values.get("num_experts")
    return (float(chosen), float(among)) if chosen is not None and among is not None else None


def _fitting(facts: ImplementationFacts) -> tuple[bool, str] | None:
    held = {one.memory.fits for one in facts.estimates.values() if one.parallel is None}
    name = next((one.hardware.name for one in facts.estimates.values()), "")
    return (held.pop(), name) if len(held) == 1 else None


def _biases(facts: ImplementationFacts) -> Iterator[tuple[str, tuple[bool, str]]]:
    held: dict[str, set[tuple[bool, str]]] = {}
    for name, has, owner in _projections(facts.tree.tree, ""):
        held.setdefault(name, set()).add((has, facts.role(owner) if owner else ""))
    for name, kinds in held.items():
        if len({has for has, _ in kinds}) == 1:
            yield name, min(kinds)


def _projections(node: ModuleNode, owner: str) -> Iterator[tuple[str, bool, str]]:
    """Of every projection (a matrix that is not an embedding's) its attribute, whether it has a bias, and the class that it stands in."""
    if len(node.weights.get("weight", ())) == 2 and "Embedding" not in node.class_name:
        yield node.name.rpartition(".")[2], "bias" in node.weights, owner
    for child in node.children:
        yield from _projections(child, node.class_name)


def _learned(node: ModuleNode) -> dict[str, frozenset[str]]:
    held: dict[str, frozenset[str]] = {}
    pending = [node]
    for one in pending:
        pending += one.children
        below = frozenset(name for child in one.children for name in child.weights)
        held[short(one.class_name)] = held.get(short(one.class_name), frozenset()) | frozenset(one.weights) | below
    return held


#: what activation functions are called: as sentences and configurations do -> one name
_ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "mish": "mish",
}


def _activations(facts: ImplementationFacts) -> frozenset[str]:
    """The activation functions that ran or are configured."""
    config = [
        str(value).lower()
        for name, value in facts.tree.config.items()
        if re.search("act", name) and isinstance(value, str)
    ]
    ran = [
        kernel.operation.lower() + kernel.operator for _, _, kernel in walk(facts.main.kernels, "") if kernel.operator
    ]
    text = " ".join([*config, *ran])
    return frozenset(name for word, name in _ACTIVATIONS.items() if word in text)


def _traits(facts: ImplementationFacts) -> Iterator[tuple[str, Trait]]:
    config = facts.tree.config
    if told := attending(facts):
        said = " and ".join(
            f"{f'`{short(name)}`' if len(told) > 1 else 'attention'} is {heads.kind}: {heads.queries} "
            f"{things(heads.queries, 'query head')} on {heads.shared} {things(heads.shared, 'key-value head')}"
            for name, heads in told.items()
        )
        for name in ("grouped-query", "multi-query", "multi-head"):
            yield name, Trait(any(heads.kind == name for heads in told.values()), said)
    attends = bool(facts.classes_of("attention"))
    yield "attends", Trait(attends, "attention ran" if attends else "no class that ran is an attention")
    grows = [graph.cache.per_token not in ("", "0") for graph in facts.graphs if graph.cache is not None]
    if grows:
        said = (
            "the cache grows with each token"
            if any(grows)
            else "what is kept is of one size, however many tokens there were"
        )
        yield "growing", Trait(any(grows) if not sliding_window(facts) else None, said)
    latent = attends and latent_width(facts) is not None
    yield (
        "latent",
        Trait(
            latent,
            "keys and values are projected down to `kv_lora_rank`" if latent else "no `kv_lora_rank` is configured",
        ),
    )
    experts = facts.classes_of("mixture of experts")
    found = f"experts run in `{short(experts[0])}`" if experts else "no class that ran is a mixture of experts"
    yield "experts", Trait(bool(experts), found)
    shared = any("shared_expert" in name for name in _names(facts.tree.tree))
    yield "shared", Trait(shared, "a shared expert runs on every token" if shared else "no expert is shared")
    yield "windows", _windows(facts, attends)
    if not facts.within:
        tied = config.get("tie_word_embeddings")
        yield "tied", Trait(tied if isinstance(tied, bool) else None, f"`tie_word_embeddings` is {tied}")
        both = config.get("is_encoder_decoder")
        yield "encoder-decoder", Trait(both if isinstance(both, bool) else None, f"`is_encoder_decoder` is {both}")
    biased = [has for _, has, _ in _projections(facts.tree.tree, "")]
    some = any(biased)
    every = None if some and not all(biased) else some
    yield "bias", Trait(every, "every projection has a bias" if some else "no projection has a bias")
    stored = anywhere(config, "quantization_config") is not None
    said = (
        "a `quantization_config` is given"
        if stored
        else f"weights are {facts.main.dtype}: no `quantization_config` is given"
    )
    yield "quantised", Trait(stored, said)
    rotary = bool(facts.classes_of("position embedding")) or any("rope" in name for name in config)
    yield (
        "rotary",
        Trait(rotary, "positions are rotated" if rotary else "no rotary embedding ran and none is configured"),
    )
    kept = [graph.cache for graph in facts.graphs if graph.cache is not None and graph.cache.after != "0"]
    yield "cache", Trait(bool(kept), "a cache is kept between passes" if kept else "no pass keeps a cache")


def _windows(facts: ImplementationFacts, attends: bool) -> Trait:
    """Whether some layer attends within a window, or within chunks."""
    config, chunks = facts.tree.config, windowed(facts)
    if chunks is not None and not chunks.slides:
        return Trait(attends, f"`{chunks.setting}` is {chunks.tokens}")
    window = anywhere(config, "sliding_window")
    kinds = layer_types(facts)
    some = not kinds or any("sliding" in kind for kind in kinds)
    held = attends and isinstance(window, int) and some and anywhere(config, "use_sliding_window") is not False
    return Trait(held, f"`sliding_window` is {window}" + ("" if held or window is None else " and is not used"))
