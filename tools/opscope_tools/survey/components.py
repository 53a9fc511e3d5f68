"""Who plays which role: classes, and functions where no class does, ranked by name, methods, importers, size and nearness to
the engine. A role's candidates are all listed, so that a reader can overrule the ranking.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from opscope_schemas.repo_map import Candidate, Component, Place

from opscope_tools.survey.facts import ClassFact
from opscope_tools.survey.holdings import Definition, Holdings, at

_KEPT = 40


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
    #: asked of every repository, not of those about language models alone
    general: bool = False


_RECORDS = r".*(Metrics?|Stats?|Logger|Config|Args|Outputs?|Inputs?|Request|Response|Client|Error|Exception|Event|Info|Spec|Mode|Type|Enum|Test\w*|Params|Mixin(?<!GenerationMixin))"
ROLES = (
    Role("runtime loop", r"\w*Engine(Core\w*)?|\w*LLM|GenerationMixin|\w*Generator|\w*InferenceSession", r"\w*LLMEngine|EngineCore\w*|LLM|AsyncLLM|GenerationMixin|\w*Engine",
         r"step|generate|run_busy_loop|event_loop\w*|run_loop|main_loop|_sample|serve_forever|add_request", _RECORDS,
         r"generate(_\w+)?|run_generation|event_loop|main_loop|stream_generate", strict=True),
    Role("scheduler", r"\w*Scheduler|\w*BatchManager|\w*Batcher", r"(Async|Batch|Continuous|V1|Request)?Scheduler",
         r"_?schedule\w*|add_request|get_next_batch\w*|preempt\w*|can_\w+|event_loop\w*|update_from_output|abort\w*|add",
         r".*(L[Rr]Scheduler|Noise\w*|Discrete\w*|DDPM\w*|Euler\w*|DPM\w*|Flow\w*Scheduler|Profil\w*Scheduler)|" + _RECORDS, strict=True),
    Role("KV cache", r"\w*(KV|Kv)\w*(Cache|Pool|Manager|Allocator)\w*|\w*(Block|Page|Cache)(Manager|Allocator|Pool|Engine|Table)|\w*Cache", r"\w*KV\w*(Manager|Pool|Cache)|BlockManager|BlockPool|DynamicCache|StaticCache|KVCache|Cache|RadixCache",
         r"append\w*|_?allocate\w*|free\w*|evict\w*|swap\w*|update|get_seq_length|match_prefix|can_allocate|can_append|reorder_cache|get_kv\w*|set_kv\w*|reset",
         r"(MM|Multi[Mm]odal|Encoder(?!Decoder)|Processor|Compil\w*|Tokenizer|Image|Video|Audio|Prompt)\w*Cache\w*|.*(LRU|Disk|File|Http|Dtype|Lookup|Layout|Connector\w*|Event\w*|Schema)\w*Cache|" + _RECORDS, strict=True, certain=r"\w*(KV|Kv)Cache"),
    Role("sampling", r"\w*Sampler|\w*SamplingParams|\w*LogitsProcessor|\w*LogitsWarper|GenerationConfig|SamplingMetadata", r"Sampler|SamplingParams|LogitsProcessor|GenerationConfig",
         r"forward|__call__|_?sample\w*|apply\w*|greedy\w*|top_\w+|verify|_verify\w*", r".*(Batch|Random|Distributed|Sequential|Data|Length\w*|Subset\w*|Weighted\w*|Up|Down|Re|Latent|Grid|Video|Frame)[sS]ampler|.*(Stats|Output|Error|Type)",
         r"_?sample(_\w+)?|top_k_top_p\w*|logits_to_probs|top_[kp](_\w+)?|apply_top_\w+"),
    Role("attention backend", r"\w*(Attention|Attn)(Backend|Impl|Layer|Base)?|\w*(Attention|Attn)\w*Backend", r"\w*(Attention|Attn)(Backend|Impl)|Attention|\w*FlashAttention\w*",
         r"forward\w*|init_forward_metadata|get_impl_cls|get_kv_cache_shape|__call__", r".*(Config|Mask|Error|Processor|Output\w*|Metadata\w*)",
         r"\w*(flash|sdpa|paged|eager|flex)_?(attention|attn)(_forward|_func|_varlen\w*)?|\w*attention_forward|attention|scaled_dot_product_attention",
        both=True),
    Role("config parser", r"\w*(EngineArgs|ServerArgs|Args|Arguments|Config|Settings)", r"\w*(EngineArgs|ServerArgs)|Pre[Tt]rainedConfig|Config|Settings|ModelConfig",
         r"from_cli_args|add_cli_args|from_pretrained|from_dict|from_file|from_json\w*|create_\w*config|__post_init__|parse\w*|load\w*", r".*(Error|Test\w*)",
         r"(get|load|parse|read|make|create|build)_\w*(config|args|arguments|parser|settings)|parse_args|get_parser", general=True),
    Role("model runner", r"\w*ModelRunner\w*|\w*Worker|\w*ModelExecutor|\w*Executor", r"\w*ModelRunner",
         r"execute_model|run_model|forward\w*|run|load_model|prepare_\w+|capture\w*|init_device|warmup\w*|_model_forward", _RECORDS, strict=True),
    Role("tokenizer", r"\w*Tokenizer\w*|\w*Detokenizer\w*", r"\w*Tokenizer(Base|Manager|Fast)?|PreTrainedTokenizer\w*|\w*Detokenizer", r"encode|decode|batch_\w+|apply_chat_template|tokenize|detokenize|from_pretrained|__call__",
         r".*(Output|Config|Error|Request|Mode|Type)", r"get_tokenizer|load_tokenizer|detokenize\w*"),
    Role("quantization", r"\w*Quant\w*(Config|Method|Scheme|Linear)|\w*Quantizer|\w*Quantization\w*", r"\w*Quantizer|Quantization(Config|\w*Mixin)|\w*QuantizationConfig", r"get_quant_method|apply|create_weights|process_weights\w*|quantize\w*|dequantize\w*|from_config|update_\w+|validate_\w+", r".*(Error|Test\w*)", r"quantize_?\w*|dequantize_?\w*"),
    Role("parallelism", r"\w*ParallelLinear|\w*Parallel(State|Embedding|LMHead|Group|Config|Context|Style)?|GroupCoordinator|\w*Communicator", r"(Column|Row)ParallelLinear|GroupCoordinator|\w*TensorParallel\w*|\w*TPStyle", r"all_reduce|all_gather|reduce_scatter|forward|broadcast|_apply|weight_loader|send|recv", r".*(Error|Test\w*|Stats)",
         r"init\w*_(model_)?parallel\w*|initialize_model_parallel|tensor_model_parallel_\w+|all_reduce|get_tp_group|tensor_parallel\w*"),
)  # fmt: skip
_STAND_INS = re.compile(r"(Mock|Dummy|Fake|Stub|Toy|NoOp|Null)\w*|\w*(Mock|Dummy|Fake|Stub)")


class Ranking:
    """Candidates of every role. `near` is the folder of the engine, once that is known."""

    def __init__(self, held: Holdings) -> None:
        self.held = held
        self._near: list[str] = []
        loops = self.candidates(ROLES[0])
        if loops:
            self._near = loops[0][0].file.path.split("/")[:-1]

    def candidates(self, role: Role) -> list[tuple[Definition, list[Place]]]:
        """Classes that may play the role, then functions where there is none; the best first, with their methods."""
        found = [*self._classes(role)]
        if role.both or not found:
            found += self._functions(role)
        found.sort(key=lambda e: (-e[0], e[1].at))
        return [(one, methods) for _, one, methods in found]

    def _classes(self, role: Role) -> Iterator[tuple[float, Definition, list[Place]]]:
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
            score = self._score(one) + 2 * min(len(methods), 4) + (5 if surest.fullmatch(one.name) else 0)
            yield score, one, methods

    def _functions(self, role: Role) -> Iterator[tuple[float, Definition, list[Place]]]:
        wanted = re.compile(role.functions)
        for one in self.held.functions:
            if wanted.fullmatch(one.name):
                yield self._score(one), one, []

    def _score(self, one: Definition) -> float:
        held = self.held
        score = 3 * math.log2(1 + held.importers[one.at]) + math.log2(1 + one.lines / 20)
        score += 1.5 * math.log2(1 + len(held.descendants(one)))
        if self._near:
            parts = one.file.path.split("/")[:-1]
            shared = next(
                (n for n, (a, b) in enumerate(zip(parts, self._near, strict=False)) if a != b),
                min(len(parts), len(self._near)),
            )
            score += 6 * shared / max(1, len(self._near))
        score -= 30 if held.demoted(one.file.path) else 0
        return score - (8 if _STAND_INS.fullmatch(one.name) else 0)


def components(ranking: Ranking, *, related: bool) -> list[Component]:
    """Every role with its candidates; roles of language models only where the repository is about them."""
    held = ranking.held
    found = []
    for role in ROLES:
        if not (related or role.general):
            found.append(Component(role=role.name, searched="not looked for: nothing shows a language model (see llm)"))
            continue
        chosen = [(one, methods) for one, methods in ranking.candidates(role) if not held.demoted(one.file.path)]
        searched = f"classes named {role.classes}; functions named {role.functions}" if not chosen else ""
        listed = tuple(candidate(held, one, methods) for one, methods in chosen[:_KEPT])
        found.append(Component(role=role.name, candidates=listed, total=len(chosen), searched=searched))
    found.append(_most_imported(held))
    return found


def candidate(held: Holdings, one: Definition, methods: list[Place]) -> Candidate:
    """What is said of a definition that may play a role."""
    return Candidate(
        name=one.fact.path, at=one.at, lines=one.lines, importers=held.importers[one.at],
        subclasses=len(held.descendants(one)) if isinstance(one.fact, ClassFact) else 0, methods=tuple(methods[:6]),
    )  # fmt: skip


def _most_imported(held: Holdings) -> Component:
    """What the rest of the repository builds on, whatever it is called."""
    own = [one for one in (*held.classes, *held.functions) if not held.demoted(one.file.path)]
    own.sort(key=lambda one: (-held.importers[one.at], -one.lines, one.at))
    return Component(
        role="most imported", candidates=tuple(candidate(held, one, []) for one in own[:_KEPT]), total=len(own)
    )
