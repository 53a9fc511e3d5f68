"""Who plays which role: classes, and functions where no class does. What their bodies do decides: those that behaviour.py finds
count whatever they are called; one that bears a role's name and shows no more than what the role is about is said to be weak,
and stands behind the others. Methods, importers, size, registries and nearness to the engine rank what is left. A role's
candidates are all listed, so that a reader can overrule the ranking.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_schemas.repo_map import Candidate, Component, Place

from opscope_tools.survey.behaviour import Behaviour, Player
from opscope_tools.survey.facts import ClassFact
from opscope_tools.survey.holdings import STAND_INS, Definition, Holdings, at
from opscope_tools.survey.roles import purpose_of
from opscope_tools.survey.topics import DOES

_KEPT = 40
#: roles that an engine has once for all of its models
_OF_ALL = frozenset((
    "runtime loop", "scheduler", "KV cache", "sampling", "attention backend", "tokenizer", "quantization", "parallelism",
    "model runner", "config parser",
))  # fmt: skip
#: what a body's work counts for beside names and importers
_WORK = 6
#: importers and descendants beyond which more say nothing: each model of a zoo imports its layers
_ENOUGH = 20


@dataclass(frozen=True)
class Role:
    """How a role is recognised: names of classes, those that are surest, those that only look so, methods, functions."""

    name: str
    classes: str
    surest: str
    methods: str
    never: str = "(?!)"
    functions: str = "(?!)"
    #: a class needs one of the methods, unless its name leaves no doubt
    strict: bool = False
    certain: str = "(?!)"
    #: functions are candidates beside classes
    both: bool = False
    #: what the surest names count for
    sure: int = 5
    #: asked of every repository, not of those about language models alone
    general: bool = False


_RECORDS = r".*(Metrics?|Stats?|Logger|Config|Args|Outputs?|Inputs?|Request|Response|Client|Error|Exception|Event|Info|Spec|Mode|Type|Enum|Test\w*|Params|Mixin(?<!GenerationMixin))"
ROLES = (
    Role("runtime loop", r"\w*Engine(Core\w*)?|\w*LLM|GenerationMixin|\w*Generator|\w*InferenceSession", r"\w*LLMEngine|EngineCore\w*|LLM|AsyncLLM|GenerationMixin|\w*Engine",
         r"step|generate|run_busy_loop|event_loop\w*|run_loop|main_loop|_sample|serve_forever|add_request", _RECORDS,
         r"generate(_\w+)?|run_generation|event_loop|main_loop|stream_generate", strict=True),
    Role("scheduler", r"\w*Scheduler|\w*BatchManager|\w*Batcher", r"(Async|Batch|Continuous|V1|Request)?Scheduler",
         r"_?schedule\w*|add_request|get_next_batch\w*|preempt\w*|can_\w+|event_loop\w*|update_from_output|abort\w*|add",
         r".*(L[Rr]Scheduler|Noise\w*|Discrete\w*|DDPM\w*|Euler\w*|DPM\w*|Flow\w*Scheduler|Profil\w*Scheduler)|" + _RECORDS,
         r"schedule(_\w+)?|make_schedul\w+|get_next_batch\w*", strict=True, both=True),
    Role("KV cache", r"\w*(KV|Kv)\w*(Cache|Pool|Manager|Allocator)\w*|\w*(Block|Page|Cache)(Manager|Allocator|Pool|Engine|Table)|\w*Cache", r"\w*KV\w*(Manager|Pool|Cache)|BlockManager|BlockPool|DynamicCache|StaticCache|KVCache|Cache|RadixCache",
         r"append\w*|_?allocate\w*|free\w*|evict\w*|swap\w*|update|get_seq_length|match_prefix|can_allocate|can_append|reorder_cache|get_kv\w*|set_kv\w*|reset",
         r"(MM|Multi[Mm]odal|Encoder(?!Decoder)|Processor|Compil\w*|Tokenizer|Image|Video|Audio|Prompt)\w*Cache\w*|.*(LRU|Disk|File|Http|Dtype|Lookup|Layout|Connector\w*|Event\w*|Schema)\w*Cache|" + _RECORDS, strict=True, certain=r"\w*(KV|Kv)Cache"),
    Role("sampling", r"\w*Sampler|\w*SamplingBackend|\w*LogitsProcessor|\w*LogitsWarper", r"\w*Sampler",
         r"forward|__call__|_?sample\w*|apply\w*|greedy\w*|top_\w+|verify|_verify\w*", r".*(Batch|Random|Distributed|Sequential|Data|Length\w*|Subset\w*|Weighted\w*|Up|Down|Re|Latent|Grid|Video|Frame)[sS]ampler|.*(Stats|Output|Error|Type)",
         r"_?sample(_\w+)?|top_k_top_p\w*|logits_to_probs|top_[kp](_\w+)?|apply_(top|min)_\w+|(make|get|build|create)_sampler|\w*_(sampler|sampling)", sure=9),
    Role("attention backend", r"\w*(Attention|Attn)(Backend|Impl|Layer|Base)?|\w*(Attention|Attn)\w*Backend", r"\w*(Attention|Attn)(Backend|Impl)|Attention|\w*FlashAttention\w*",
         r"forward\w*|init_forward_metadata|get_impl_cls|get_kv_cache_shape|__call__", r".*(Config|Mask|Error|Processor|Output\w*|Metadata\w*)",
         r"\w*(flash|sdpa|paged|eager|flex)_?(attention|attn)(_forward|_func|_varlen\w*)?|\w*attention_forward|(?!(load|get|set|is|has|check|use|make|init|build|create)_)(\w+_)?attention|scaled_dot_product_attention",
        both=True),
    Role("config parser", r"\w*(EngineArgs|ServerArgs|Args|Arguments|Config|Settings)|\w*(Argument|Config)Parser", r"\w*(EngineArgs|ServerArgs|ArgumentParser)|Pre[Tt]rainedConfig|Config|Settings|ModelConfig",
         r"from_cli_args|add_cli_args|from_pretrained|from_dict|from_file|from_json\w*|create_\w*config|__post_init__|parse\w*|load\w*", r".*(Error|Test\w*)",
         r"(get|load|parse|read|make|create|build)_\w*(config|args|arguments|parser|settings)|parse(_args)?|get_parser", general=True),
    Role("model runner", r"\w*ModelRunner\w*|\w*Worker|\w*ModelExecutor|\w*Executor(Base)?", r"\w*ModelRunner",
         r"execute_model|run_model|forward\w*|run|load_model|prepare_\w+|capture\w*|init_device|warmup\w*|_model_forward", _RECORDS, strict=True),
    Role("tokenizer", r"\w*(Tokenizer|TOKENIZER)\w*|\w*Detokenizer\w*", r"\w*Tokenizer(Base|Manager|Fast|Wrapper)?|PreTrainedTokenizer\w*|\w*Detokenizer", r"encode|decode|batch_\w+|apply_chat_template|tokenize|detokenize|from_pretrained|__call__",
         r".*(Output|Config|Error|Request|Mode|Type)", r"get_tokenizer|load_tokenizer|detokenize\w*"),
    Role("quantization", r"\w*Quant\w*|\w*Compress\w*", r"\w*Quantizer|Quantization(Config|\w*Mixin)|\w*QuantizationConfig", r"get_quant_method|apply|create_weights|process_weights\w*|quantize\w*|dequantize\w*|from_config|update_\w+|validate_\w+", r".*(Error|Test\w*)", r"\w*quantiz\w*|(load|make|get|pack|apply|convert)_quant(_\w+)?|quant_\w+|(\w+_)?(mm8|mm4|int8|int4|fp8|fp4|w8a8|w4a16)(_\w+)?", both=True),
    Role("parallelism", r"\w*ParallelLinear|\w*Parallel(State|Embedding|LMHead|Group|Config|Context|Style)?|GroupCoordinator|\w*Communicator", r"(Column|Row)ParallelLinear|GroupCoordinator|\w*TensorParallel\w*|\w*TPStyle", r"all_reduce|all_gather|reduce_scatter|forward|broadcast|_apply|weight_loader|send|recv", r".*(Error|Test\w*|Stats)",
         r"init\w*_(model_)?parallel\w*|initialize_model_parallel|tensor_model_parallel_\w+|all_reduce|get_tp_group|tensor_parallel\w*|(init|setup|initialize)_(\w+_)?distributed\w*|shard_(\w+_)?model"),
)  # fmt: skip
#: parts that only speculative decoding runs, beside those that every request runs
_ASIDE = re.compile(
    r"_?(Reject(ion)?|Spec(ulative)?|Draft|Ngram|Eagle|Medusa)([A-Z]\w*|_\w+)|\w*(speculative|draft|eagle|medusa|ngram)\w*"
)
#: what quantizes keys and values rather than weights
_OF_CACHE = re.compile(r"(^|_)(kv|cache)(_|$)|KV")


def _shown(role: Role, one: Definition) -> int:
    """What the definition's own body shows of a role: its work (2), what it is about (1), nothing (0)."""
    return next((n for n in (2, 1) if f"does.{n}.{role.name}" in one.fact.does), 0)


def _plain_enough(role: Role, one: Definition) -> bool:
    """Whether a class needs to show no work: its name leaves no doubt, or it is a record of configuration."""
    record = isinstance(one.fact, ClassFact) and role.general and (one.fact.methods or len(one.fact.fields) >= 5)
    return bool(record) or re.fullmatch(role.certain, one.name) is not None


def _bears_another(role: Role, one: Definition) -> bool:
    """Whether a class is called as those that play another role: its own work comes before what it does beside it."""
    if role.name == "quantization" and _OF_CACHE.search(one.name):
        return True
    return any(other is not role and re.fullmatch(other.surest, one.name) for other in ROLES if not other.general)


def _purpose(path: str) -> str:
    """What the nearest folder around a file holds, of those whose name tells."""
    return next((said for folder in reversed(path.split("/")[:-1]) if (said := purpose_of(folder))), "")


def _value(entry: str) -> str:
    """The last name of the value of a registry's entry, `key: value`."""
    return entry.rpartition(":")[2].strip().rpartition(".")[2]


@dataclass(frozen=True)
class Chosen:
    """A definition that may play a role, its methods that speak for that, and why it is weak where it is."""

    one: Definition
    methods: list[Place]
    shown: tuple[Place, ...] = ()
    weak: str = ""


class Ranking:
    """Candidates of every role; `behaviour` says what they do, where the repository is about language models."""

    def __init__(self, held: Holdings, behaviour: Behaviour | None = None) -> None:
        self.held, self.behaviour = held, behaviour
        self._near: list[str] = []
        self._known: dict[str, list[Chosen]] = {}
        #: how many definitions bear a role's names and show nothing of its work
        self.by_name_alone: Counter[str] = Counter()
        self._registered = {name for _, hit in held.topic("ext.entry") if (name := _value(hit.text))}
        #: files that the engine's file leads to by imports, in how many steps
        self._used: dict[str, int] = {}
        loops = self.candidates(ROLES[0])
        if loops:
            self._known.clear()
            self._near = loops[0].one.file.path.split("/")[:-1]
            self._used = held.reached([loops[0].one.file.path], 4)

    def candidates(self, role: Role) -> list[Chosen]:
        """What may play the role, the best first: what does its work, then what only bears its name."""
        if role.name not in self._known:
            players = self.behaviour.players(role.name) if self.behaviour is not None else {}
            found = [*self._classes(role)]
            if role.both or not found:
                found += self._functions(role)
            if all(self.held.demoted(one.file.path) for _, one, _, _ in found):
                found += self._holders(role)
            listed = {one.at for _, one, _, _ in found}
            found += [
                (self._score(player.one) + 2 * _WORK + min(len(player.methods), 4), player.one, [], 2)
                for player in players.values() if player.one.at not in listed and not re.fullmatch(role.never, player.one.name)
            ]  # fmt: skip
            chosen = [self._chosen(role, entry, players.get(entry[1].at)) for entry in found]
            chosen.sort(key=lambda e: (bool(e[1].weak), -e[0], e[1].one.at))
            self._known[role.name] = [one for _, one in chosen]
        return self._known[role.name]

    def _chosen(
        self, role: Role, entry: tuple[float, Definition, list[Place], int], player: Player | None
    ) -> tuple[float, Chosen]:
        """A candidate with what it does: that ranks it too, and without any it is weak."""
        score, one, methods, work = entry
        weak = ""
        if player is None and not _plain_enough(role, one) and (role.name in DOES or self.behaviour is not None):
            about = "its body handles what the role is about, and shows none of its work"
            weak = "" if work == 2 else about if work else "by its name and its methods' names alone"
            if _bears_another(role, one):
                score, weak = score - 8, weak or "its name is that of another role"
        own = self._doubt(role, one) if self.behaviour is not None else ""
        if self.behaviour is not None and not role.general:
            if player is not None:
                called = re.fullmatch(f"{role.classes}|{role.functions}", one.name)
                score += 2 * player.strength + (4 if called else -8 if _bears_another(role, one) else 0)
            score += 5 if self.behaviour.steps_to(one) is not None else 0
            score -= 12 if self.behaviour.aside(one) else 0
            score -= 8 if self.held.one_of_many(one.file.path) else 0
        weak = weak or own
        if player is None:
            return score, Chosen(one, methods, weak=weak)
        named = {place.name for place in player.methods}
        both = [*player.methods, *(place for place in methods if place.name not in named)]
        return score, Chosen(one, both, player.shown, own or ("" if work == 2 and methods else player.weak))

    def _doubt(self, role: Role, one: Definition) -> str:
        """What makes a definition that does a role's work doubtful all the same."""
        if role.name in _OF_ALL and (self.held.one_of_many(one.file.path) or self.held.named_for_one(one)):
            return "that of one model among many"
        if not role.general and _ASIDE.fullmatch(one.name):
            return "by its name only speculative decoding runs it"
        aside = self.behaviour is not None and not role.general and self.behaviour.aside(one)
        return "by its path about pictures, sound or an encoder" if aside else ""

    def _classes(self, role: Role) -> Iterator[tuple[float, Definition, list[Place], int]]:
        wanted, never, surest, spoken = (re.compile(p) for p in (role.classes, role.never, role.surest, role.methods))
        for one in self.held.classes:
            if not isinstance(one.fact, ClassFact) or not wanted.fullmatch(one.name) or never.fullmatch(one.name):
                continue
            if any(
                base.startswith(("torch.utils.data", "torch.optim", "enum.", "concurrent.")) for base in one.fact.bases
            ):
                continue
            methods = [
                Place(name=m.name, at=at(one.file.path, m.line)) for m in one.fact.methods if spoken.fullmatch(m.name)
            ]
            inherited = any(
                spoken.fullmatch(m.name) for b in self.held.lineage(one)[1:] for m in getattr(b.fact, "methods", ())
            )
            if role.strict and not methods and not inherited and not re.fullmatch(role.certain, one.name):
                continue
            work = self._work(role, one)
            if not work and role.name in DOES and not _plain_enough(role, one):
                self.by_name_alone[role.name] += not self.held.demoted(one.file.path)
                continue
            score = self._score(one) + 2 * min(len(methods), 4) + (role.sure if surest.fullmatch(one.name) else 0)
            yield score + _WORK * work, one, methods, work

    def _functions(self, role: Role) -> Iterator[tuple[float, Definition, list[Place], int]]:
        wanted = re.compile(role.functions)
        for one in self.held.functions:
            if not wanted.fullmatch(one.name):
                continue
            work = self._work(role, one)
            if work or role.name not in DOES:
                yield self._score(one) + _WORK * work + (8 if one.name in self._registered else 0), one, [], work
            else:
                self.by_name_alone[role.name] += not self.held.demoted(one.file.path)

    def _holders(self, role: Role) -> Iterator[tuple[float, Definition, list[Place], int]]:
        """Classes of any name with a method that is called as the role's functions are, and loops or does the role's work."""
        wanted = re.compile(role.functions)
        for one in self.held.classes:
            methods = [m for m in getattr(one.fact, "methods", ()) if wanted.fullmatch(m.name) and not m.abstract]
            works = _shown(role, one) == 2 if role.name in DOES else any(method.loops for method in methods)
            if methods and works:
                places = [Place(name=m.name, at=at(one.file.path, m.line)) for m in methods]
                yield self._score(one) + 2 * min(len(methods), 4), one, places, 2

    def _work(self, role: Role, one: Definition) -> int:
        """2 where the body of the definition, of a base or of most that derive from it does the role's work, 1 where it only
        handles what the role is about, 0 where nothing shows either."""
        own = _shown(role, one)
        bodies = (
            [_shown(role, other) for other in self.held.lineage(one)[1:]] if isinstance(one.fact, ClassFact) else []
        )
        below = [_shown(role, other) for other in self.held.descendants(one)[:20]]
        most = 2 if below and 2 * sum(n == 2 for n in below) >= len(below) else max(below, default=0) and 1
        return max([own, *bodies, most])

    def _score(self, one: Definition) -> float:
        held = self.held
        score = 3 * math.log2(1 + min(held.importers[one.at], _ENOUGH)) + math.log2(1 + min(one.lines, 1000) / 20)
        score += 1.5 * math.log2(1 + min(len(held.descendants(one)), _ENOUGH)) + (
            5 if one.file.path in self._used else 0
        )
        if self._near:
            parts = one.file.path.split("/")[:-1]
            shared = next(
                (n for n, (a, b) in enumerate(zip(parts, self._near, strict=False)) if a != b),
                min(len(parts), len(self._near)),
            )
            score += 6 * shared / max(1, len(self._near))
        score -= 30 if held.demoted(one.file.path) else 0
        score -= 3 if one.name.startswith("_") else 0
        score -= 8 if self.behaviour is not None and _purpose(one.file.path) in {"training", "data"} else 0
        return score - (8 if STAND_INS.fullmatch(one.name) else 6 if _ASIDE.fullmatch(one.name) else 0)


def components(ranking: Ranking, *, related: bool) -> list[Component]:
    """Every role with its candidates; roles of language models only where the repository is about them."""
    held = ranking.held
    found = []
    for role in ROLES:
        if not (related or role.general):
            found.append(Component(role=role.name, searched="not looked for: nothing shows a language model (see llm)"))
            continue
        chosen = [one for one in ranking.candidates(role) if not held.demoted(one.one.file.path)]
        searched = "" if chosen else _searched(role, ranking.by_name_alone[role.name])
        listed = tuple(candidate(held, one, role.name) for one in chosen[:_KEPT])
        found.append(
            Component(role=role.name, candidates=listed, total=len(chosen), files=_files(chosen), searched=searched)
        )
    found.append(_most_imported(held))
    return found


def _files(chosen: list[Chosen]) -> int:
    return len({one.one.file.path for one in chosen})


def _searched(role: Role, by_name: int) -> str:
    """What was looked for where no candidate convinces."""
    named = f"classes named {role.classes}"
    named += f"; functions, and methods of any class, named {role.functions}" if role.functions != "(?!)" else ""
    does = DOES.get(role.name)
    work = f"; in their bodies {does[0]}|{does[1]}" if does else ""
    return f"{named}{work}, tests and examples left out{f'; {by_name} that bear such a name show nothing of it' if by_name else ''}"


def candidate(held: Holdings, chosen: Chosen, role: str = "") -> Candidate:
    """What is said of a definition that may play a role."""
    one = chosen.one
    marks = [mark for n in (2, 1) if (mark := one.fact.does.get(f"does.{n}.{role}"))]
    does = chosen.shown or tuple(Place(name=name, at=at(one.file.path, line)) for name, line in marks)
    return Candidate(
        does=does, weak=chosen.weak, says=one.fact.says,
        name=one.fact.path, at=one.at, lines=one.lines, importers=held.importers[one.at],
        subclasses=len(held.descendants(one)) if isinstance(one.fact, ClassFact) else 0, methods=tuple(chosen.methods[:6]),
    )  # fmt: skip


def _most_imported(held: Holdings) -> Component:
    """What the rest of the repository builds on, whatever it is called."""
    own = [one for one in (*held.classes, *held.functions) if not held.demoted(one.file.path)]
    own.sort(key=lambda one: (-held.importers[one.at], -one.lines, one.at))
    return Component(
        role="most imported",
        candidates=tuple(candidate(held, Chosen(one, [])) for one in own[:_KEPT]),
        total=len(own),
        files=len({one.file.path for one in own}),
    )
