"""Who plays which role by what it does: from what runs a model, attends, samples and keeps keys and values, back along calls to
the loops that lead there, and from the best loop on to what it runs.

The names of classes and functions decide nothing here; components.py lets them rank what is alike.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Set
from dataclasses import dataclass
from functools import cached_property

from opscope_schemas.repo_map import Place

from opscope_tools.survey.call_graph import CallGraph, Node
from opscope_tools.survey.effects import EFFECTS, effects_named
from opscope_tools.survey.holdings import LAYER, Definition, Holdings

__all__ = ["HOLDER", "Behaviour", "Player"]

#: the best loops, which are compared with each other
_COMPARED = 12
#: what the loop of a class counts less where a base has one: importers tell the two apart no further
_OVERRIDES = 3.0
#: how far below what runs a model a model picks that does so itself
_IN_MODEL = 2
#: and where it is that of one model among many
_ONE_MODEL = 5.0
#: what holds keys and values is called so
HOLDER = re.compile(r"(?i:cache|kv|mem|pool|page|block)")
#: names that speak of ranks
_OF_RANKS = re.compile(
    r"(?i:parallel|communicat|distribut|gather|reduce|scatter|all_to|rank|group|collective|shard|mesh)|(^|_)(tp|pp|ep|comm)(_|$)|[TPE]P(?![a-z])"
)
#: effects that stand for running a model, and for picking tokens
RUNS, PICKS = ("model", "layers"), ("sample",)
#: what a loop is called that serves, generates or steps; tells apart loops that are alike
_NAMED = re.compile(r"\w*(loop|generate|decode|step|run|stream|serve|iterate)\w*")
#: loops over whole tasks rather than tokens or batches
_ASIDE = re.compile(r"(^|[/_.])(eval|evals|evaluate|evaluation|train|trainer|training|finetune|bench|benchmark|convert|conversion|quantize|calibrate|warmup|warm_up|profile|capture|compile|dummy|speculative|speculator|spec_decode|draft|candidate|assist|beam|test|record|cudagraph|cuda_graph)", re.IGNORECASE)  # fmt: skip
#: folders of one platform among several
_PLATFORM = re.compile(r"/(hardware_backend|mlx|npu|xpu|hpu|tpu|ascend|musa|rocm)/")
_OTHER_INPUTS = re.compile(r"(^|[/_.])(vision|visual|vit|audio|image|video|encoder|encode_|multimodal|voice|speech|realtime|siglip|clip|tts|diffusion|embedding)|(Vision|Visual|Audio|Image|Video|Encoder(?!Decoder))")  # fmt: skip


@dataclass(frozen=True)
class Player:
    """A definition that does a role's work: how surely, in which methods, and what in its body shows it."""

    one: Definition
    strength: float
    methods: tuple[Place, ...]
    shown: tuple[Place, ...]
    weak: str = ""


class Behaviour:
    """The loops of a repository and the players of its roles."""

    def __init__(self, held: Holdings, checkpoint: Callable[[], None]) -> None:
        self.held = held
        self.graph = CallGraph(held, checkpoint)
        self._runs = self.graph.from_effects(*RUNS)
        self._picks = self.graph.from_effects(*PICKS)

    @cached_property
    def loops(self) -> list[tuple[float, Node]]:
        """The functions whose loops run a model and pick tokens, those that serve before those that generate."""
        found = self._looping()
        if not found:
            self._picks = self._picking()
            found = self._looping()
        looping = {(node.owner.at, node.fact.name) for _, node in found if node.owner is not None}
        found = [(score - (_OVERRIDES if self._overrides(node, looping) else 0), node) for score, node in found]
        order = sorted(found, key=lambda entry: self._rank(*entry))
        outer = [(score + self._beside(node, order[:_COMPARED]), node) for score, node in order[:_COMPARED]]
        return sorted(outer, key=lambda entry: self._rank(*entry)) + order[_COMPARED:]

    def _looping(self) -> list[tuple[float, Node]]:
        nodes = [node for node in self.graph.nodes if node.work.loop]
        return [(score, node) for node in nodes if (score := self._loop(node)) is not None]

    def _picking(self) -> dict[Node, int]:
        """How far each function lies above one that picks tokens; a model that picks them itself does where it is run."""
        found = dict(self._picks)
        inside = [steps for node, steps in found.items() if node.fact.name == "forward" and self._is_model_part(node)]
        if inside:
            for node, steps in self._runs.items():
                found[node] = min(found.get(node, _IN_MODEL + steps), _IN_MODEL + steps)
        return found

    def _overrides(self, node: Node, looping: Set[tuple[str, str]]) -> bool:
        """Whether a base of the loop's class, one of several classes or by the same name, loops too: one model's own way."""
        bases = self.held.lineage(node.owner)[1:] if node.owner is not None else []
        own = {one for one in bases if (one.at, node.fact.name) in looping}
        shared = {one for one in bases if len(self.held.descendants(one)) > 1}
        return bool(own) or any(place == one.at for one in shared for place, _ in looping)

    def _rank(self, score: float, node: Node) -> tuple[float, int, str]:
        return -score, -self.held.importers[node.definition.at], node.at

    def _beside(self, node: Node, loops: list[tuple[float, Node]]) -> float:
        """A loop that takes requests and runs another that does is the engine's; one that admits them for another is its part;
        one that runs a loop over tokens is around it."""
        others = [other for _, other in loops if other is not node]
        if _takes(node) and any(node in self.graph.below([other]) for other in others):
            return -4.0
        below = self.graph.below([node])
        under = [other for other in others if other in below]
        if self._serves(node):
            return 4.0 if any(self._serves(other) for other in under) else 0.0
        return -2.5 if any(not _takes(other) for other in under) else 0.0

    def _loop(self, node: Node) -> float | None:
        runs = self.graph.in_loop(node, RUNS, self._runs)
        picks = self.graph.in_loop(node, PICKS, self._picks)
        if runs is None or picks is None or self._trains.get(node, 9) <= 2:
            return None
        score = 8.0 - 0.8 * max(runs, picks) + (2 if node.work.loop == "while" else 0)
        score += 4 if self._serves(node) else 0
        score += 0.5 * math.log2(1 + min(self.held.importers[node.definition.at], 30))
        score -= 4 if "asks" in node.work.effects else 0
        score += 1.5 if _NAMED.fullmatch(node.fact.name) else 0
        score -= 6 if _ASIDE.search(f"{node.file.path}/{node.fact.path}") else 0
        score -= 2 if _PLATFORM.search(node.file.path) else 0
        score -= _ONE_MODEL if self.held.one_of_many(node.file.path) else 0
        return score - (4 if _OTHER_INPUTS.search(f"{node.file.path}/{node.fact.path}") else 0)

    def _serves(self, node: Node) -> bool:
        """Whether the loop takes requests: itself, or in what it calls first; a function that steps an engine is its client."""
        admits = self.graph.in_loop(node, ("admits",), self._admits)
        takes = self.graph.in_loop(node, ("takes",), self._takers)
        return (admits is not None and admits <= (4 if node.owner else 1)) or (takes is not None and takes <= 1)

    @cached_property
    def _trains(self) -> dict[Node, int]:
        return self.graph.from_effects("trains")

    @cached_property
    def _admits(self) -> dict[Node, int]:
        return self.graph.from_effects("admits", far=4)

    @cached_property
    def _takers(self) -> dict[Node, int]:
        return self.graph.from_effects("takes", far=1)

    @cached_property
    def reached(self) -> dict[Node, int]:
        """What the best loops lead to, in how many calls."""
        best = self.loops[0][0] if self.loops else 0
        return self.graph.below(node for score, node in self.loops[:6] if score >= best - 3)

    @cached_property
    def _reached_definitions(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for node, steps in self.reached.items():
            place = node.definition.at
            found[place] = min(steps, found.get(place, steps))
        return found

    def steps_to(self, one: Definition) -> int | None:
        """In how many calls the best loops lead to a definition; None where they do not."""
        return self._reached_definitions.get(one.at)

    @cached_property
    def attending(self) -> Container[Node]:
        """The functions that attend or write keys and values, or lead to one that does."""
        return self.graph.from_effects("attention", "writes", far=4)

    @cached_property
    def leading(self) -> Container[Node]:
        """The functions that run a model, pick tokens, keep keys and values or take requests, or lead to one that does."""
        return self.graph.from_effects(*RUNS, *PICKS, "writes", "allocates", "admits", far=3)

    def aside(self, one: Definition) -> bool:
        """Whether a definition is about pictures or sound, or about a task beside serving, by its path."""
        return bool(_OTHER_INPUTS.search(f"{one.file.path}/{one.fact.path}"))

    def players(self, role: str) -> dict[str, Player]:
        """Pointer -> what does a role's work."""
        if role not in self._players:
            self._players[role] = {player.one.at: player for player in self._made(role)}
        return self._players[role]

    @cached_property
    def _players(self) -> dict[str, dict[str, Player]]:
        return {}

    def _made(self, role: str) -> Iterator[Player]:
        weigh = _WEIGHERS.get(role)
        if weigh is None:
            return
        grouped: defaultdict[str, list[tuple[float, str, Node]]] = defaultdict(list)
        for node in self.graph.nodes:
            found = weigh(self, node) if node.fact.work is not None or role == "runtime loop" else None
            if found is not None:
                grouped[node.definition.at].append((*found, node))
        for entries in grouped.values():
            entries.sort(key=lambda entry: (-entry[0], entry[2].fact.line))
            one = entries[0][2].definition
            methods = tuple(Place(name=n.fact.name, at=n.at) for _, _, n in entries if n.owner is not None)
            shown = tuple(self._shown(effect, node) for _, effect, node in entries[:2] if effect in node.work.effects)
            strength = entries[0][0] + 0.3 * min(len(entries) - 1, 4)
            weak = _WEAK[role](one, {effect for _, effect, _ in entries}) if role in _WEAK else ""
            if role == "parallelism" and _beside(one, len(entries)):
                weak = "communicates beside other work, and its name says nothing of ranks"
            if role == "sampling" and _beside_model(entries[0][2]):
                weak = "runs the model, and calls what picks tokens"
            if role == "scheduler" and entries[0][0] < 2:
                weak = "takes from a queue, and neither runs a model nor is run by the loop"
            yield Player(one, strength + self._over(role, [n for _, _, n in entries], weigh), methods, shown, weak)

    def _over(
        self, role: str, nodes: list[Node], weigh: Callable[[Behaviour, Node], tuple[float, str] | None]
    ) -> float:
        """A sampler that runs another sampler is the one that others run."""
        leads = [target for node in nodes for target, _, _ in self.graph.leads[node]] if role == "sampling" else []
        return float(any(weigh(self, target) for target in leads if target.definition.at != nodes[0].definition.at))

    def _shown(self, effect: str, node: Node) -> Place:
        text, line = node.work.effects[effect]
        return Place(
            name=re.split(r"\W", text.rpartition("self.")[2])[0] or text,
            at=f"{node.file.path}:{line}",
            text=EFFECTS[effect],
        )

    def generates(self, node: Node) -> bool:
        """Whether a loop may be that of an engine: it neither trains nor is about a task beside serving."""
        return self._trains.get(node, 9) > 2 and not _ASIDE.search(f"{node.file.path}/{node.fact.path}")

    # roles

    def _as_loop(self, node: Node) -> tuple[float, str] | None:
        found = next((score for score, one in self.loops if one is node), None)
        return (found / 2, "model") if found is not None else None

    def _as_scheduler(self, node: Node) -> tuple[float, str] | None:
        if "admits" not in node.work.effects or node.fact.name.startswith("__"):
            return None
        return (5.0 if node in self.reached else 3.0 if self._runs.get(node, 9) <= 4 else 1.0), "admits"

    def _as_cache(self, node: Node) -> tuple[float, str] | None:
        effects = node.work.effects
        effect = next((one for one in ("allocates", "writes") if one in effects), None)
        called = r"cache|kv|(^|_)(store|append)(_|$)" if effect == "writes" else r"cache|kv"
        if effect is None or (node.owner is None and not re.search(called, node.fact.name)):
            return None
        own = effects[effect][0].startswith("self.")
        strength = (5.0 if own else 2.5) if effect == "allocates" else (3.0 if own else 2.0)
        strength += 1.5 if HOLDER.search(node.definition.name) else -3 if self._is_model_part(node) else -2
        return strength, effect

    def _as_sampling(self, node: Node) -> tuple[float, str] | None:
        work = node.work
        if "sample" not in work.effects or self._trains.get(node, 9) <= 1:
            return None
        steps = self.reached.get(node)
        only_argmax = work.effects["sample"][0].startswith("argmax")
        called = re.search("sampl", node.definition.name, re.IGNORECASE)
        if steps is None and (only_argmax or not ("filter" in work.effects or called)):
            return None
        strength = 1.5 + min(work.counts.get("filter", 0), 4) * 0.5 + (1 if not only_argmax else 0)
        strength += 1.5 if "filter" in work.effects else 0
        return strength - (2 if "model" in work.effects or "layers" in work.effects else 0), "sample"

    def _as_attention(self, node: Node) -> tuple[float, str] | None:
        if "attention" not in node.work.effects:
            return None
        return 3.0 + min(node.work.counts["attention"], 3) * 0.3 - (
            2 if "layers" in node.work.effects else 0
        ), "attention"

    def _as_runner(self, node: Node) -> tuple[float, str] | None:
        effects = node.work.effects
        steps = self.reached.get(node)
        if not self.loops or steps is None or self._trains.get(node, 9) <= 1:
            return None
        part = self._is_model_part(node)
        if "model" in effects and not part:
            strength = 4.0 if steps else 3.0  # the loop itself
        elif "model" in effects and steps == 0:  # a module that generates: the loop runs the model itself
            strength = 2.0
        elif "layers" in effects and not part:  # a class of no library runs its own layers: the loop only calls it
            strength = 2.5 if node.owner is None else 3.5
        else:
            return None
        strength += ("prepares" in effects) + 0.5 * ("inference" in effects) - 0.5 * ("sample" in effects)
        return strength - (
            2 if _ASIDE.search(f"{node.file.path}/{node.fact.path}") else 0
        ), "model" if "model" in effects else "layers"

    def _as_tokenizer(self, node: Node) -> tuple[float, str] | None:
        return (2.0, "tokenizer") if "tokenizer" in node.work.effects else None

    def _as_parser(self, node: Node) -> tuple[float, str] | None:
        count = node.work.counts.get("flags", 0)
        return (min(count, 40) / 8, "flags") if count >= 5 else None

    def _as_parallel(self, node: Node) -> tuple[float, str] | None:
        if "communicates" not in node.work.effects:
            return None
        wraps = "communicates" in effects_named(node.fact.name) and not node.fact.name.startswith("_")
        return 2.0 + 2 * wraps, "communicates"

    def _is_model_part(self, node: Node) -> bool:
        """Whether a method is that of a layer or model: its class derives from a library's module."""
        return node.owner is not None and any(LAYER.match(base) for base in self.held.base_names(node.owner))


def _takes(node: Node) -> bool:
    """Whether a function takes requests itself."""
    return not {"admits", "takes"}.isdisjoint(node.work.effects)


def _beside(one: Definition, methods: int) -> bool:
    """Whether the methods that do a role's work are few of a class, and its name says nothing of ranks."""
    named = _OF_RANKS.search(f"{one.name} {one.file.path.rpartition('/')[2]}")
    own = getattr(one.fact, "methods", ())
    return named is None and (not own or 3 * methods < len(own))


def _beside_model(node: Node) -> bool:
    """Whether a function runs a model and neither filters logits nor picks from them itself."""
    effects = node.work.effects
    return "model" in effects and "filter" not in effects and "sample_token" in effects["sample"][0]


def _borrowed(one: Definition, _: set[str]) -> str:
    named = {method.name for method in getattr(one.fact, "methods", ())}
    called = "token" in one.name.lower()
    return (
        ""
        if {"encode", "decode"} <= named or (called and {"encode", "decode"} & named)
        else "loads a tokenizer, and is none itself"
    )


def _only_writes(one: Definition, effects: set[str]) -> str:
    return "" if HOLDER.search(one.name) or "allocates" in effects else "writes keys and values, and allocates none"


_WEAK: dict[str, Callable[[Definition, set[str]], str]] = {"tokenizer": _borrowed, "KV cache": _only_writes}
_WEIGHERS: dict[str, Callable[[Behaviour, Node], tuple[float, str] | None]] = {
    "runtime loop": Behaviour._as_loop, "scheduler": Behaviour._as_scheduler, "KV cache": Behaviour._as_cache,
    "sampling": Behaviour._as_sampling, "attention backend": Behaviour._as_attention, "model runner": Behaviour._as_runner,
    "tokenizer": Behaviour._as_tokenizer, "config parser": Behaviour._as_parser, "parallelism": Behaviour._as_parallel,
}  # fmt: skip
