"""Whether a repository is about language models: signals of several kinds, each counted, with pointers.

One kind alone proves nothing: attention stands in image models, a sampler in data loaders. Yes takes two kinds, one of them
of those that only generation of text has.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from opscope_schemas.repo_map import Counted, LlmVerdict, Place

from opscope_tools.survey.entries import Manifests
from opscope_tools.survey.holdings import Holdings, at

#: characters of a class name that says something
_LONGEST = 200
_CLASS = re.compile(
    r".*(ForCausalLM|LMHeadModel|ForConditionalGeneration|CausalLMOutput\w*|LLMEngine|EngineCore|LLM)|(GPT|Llama|Mistral|Qwen\d?|Gemma\d?|Phi\d?|Mixtral|Deepseek\w*|Falcon)\w*?(Model|Block|DecoderLayer|Attention|MLP)"
)
_SAMPLING_CLASS = re.compile(
    r".*(SamplingParams|SamplingParameters|LogitsProcessor(List)?|LogitsWarper|GenerationConfig|GenerationMixin|SamplingMetadata)"
)
_PACKAGES = {
    "transformers", "tokenizers", "sentencepiece", "tiktoken", "flash-attn", "flash_attn", "flashinfer", "flashinfer-python", "vllm",
    "sglang", "sgl-kernel", "sgl_kernel", "xformers", "llama-cpp-python", "llama_cpp", "bitsandbytes", "auto-gptq", "peft", "trl",
    "mlx-lm", "mlx_lm", "exllamav2", "ctransformers", "litgpt", "lm-eval", "xgrammar", "outlines",
}  # fmt: skip
#: kinds that only models of language have
_DECISIVE = ("class names", "KV cache", "sampling", "tokenizer", "generate loop", "prefill and decode")
_RULE = (
    "related where at least two kinds of signal are counted in source (tests, examples and benchmarks left out), one of them of: "
    + ", ".join(_DECISIVE)
)
#: lines below which a kind may be an accident
_FEWEST = 3


def llm_verdict(held: Holdings, manifests: Manifests) -> LlmVerdict:
    """The signals by kind, and what they add up to."""
    signals = [
        _signal("class names", _classes(held, _CLASS), "classes called *ForCausalLM, *LMHeadModel, LLM, *LLMEngine, Llama*, GPT*"),
        _signal("KV cache", (*_doing(held, "allocates"), *_topic(held, "kv.state", "kv.paging")), "kv_cache, past_key_values, block_table, slot_mapping; allocations of keys and values", fewest=_FEWEST),
        _signal("sampling", _sampling(held), "SamplingParams, LogitsProcessor, functions that filter logits and pick from them, files with two of temperature, top_p, top_k"),
        _signal("tokenizer", _topic(held, "text.tokenizer"), "AutoTokenizer, apply_chat_template, eos_token_id", fewest=2),
        _signal("generate loop", _topic(held, "llm.generate loop"), "loops that call a model and sample from it"),
        _signal("attention and kernels", _topic(held, "kernel.attention", "llm.rotary"), "flash_attn, paged_attention, rotary embeddings"),
        _signal("prefill and decode", _topic(held, "llm.phase"), "is_prefill, prefill, num_decode_tokens", fewest=_FEWEST),
        _signal("dependencies", _dependencies(held, manifests), "transformers, tokenizers, flash-attn, sentencepiece, ... imported or required"),
    ]  # fmt: skip
    kinds = {signal.name for signal in signals if signal.count}
    return LlmVerdict(related=len(kinds) >= 2 and bool(kinds & set(_DECISIVE)), signals=tuple(signals), rule=_RULE)


def _signal(name: str, hits: Iterable[tuple[str, Place, int]], searched: str, *, fewest: int = 1) -> Counted:
    """One kind, from (file, place, how many lines it stands for); none where there are fewer than `fewest`."""
    found = list(hits)
    count = sum(weight for _, _, weight in found)
    if count < fewest:
        seen = f"; {count} of the {fewest} lines that it takes" if count else ""
        return Counted(name=name, count=0, searched=f"{searched}{seen}")
    spread: dict[str, Place] = {}
    for file, place, _ in found:
        spread.setdefault(file, place)
    return Counted(name=name, count=count, files=len(spread), places=tuple(spread.values())[:4])


def _classes(held: Holdings, pattern: re.Pattern[str]) -> Iterator[tuple[str, Place, int]]:
    found = [
        one
        for one in held.classes
        if not held.demoted(one.file.path) and len(one.name) < _LONGEST and pattern.fullmatch(one.name)
    ]
    for one in sorted(found, key=lambda one: (-held.importers[one.at], -one.lines, one.at)):
        yield one.file.path, Place(name=one.name, at=one.at), 1


def _topic(held: Holdings, *topics: str) -> Iterator[tuple[str, Place, int]]:
    """The files with the most lines of the topics first; the first place of a file stands for all of its lines."""
    counted: defaultdict[str, int] = defaultdict(int)
    first: dict[str, Place] = {}
    for facts in held.source:
        for topic in topics:
            number, hits = facts.topics.get(topic, (0, []))
            counted[facts.path] += number
            if hits and facts.path not in first:
                first[facts.path] = Place(name=hits[0].name, at=at(facts.path, hits[0].line))
    for path in sorted(first, key=lambda p: (-counted[p], p)):
        yield path, first[path], counted[path]


def _sampling(held: Holdings) -> Iterator[tuple[str, Place, int]]:
    yield from _classes(held, _SAMPLING_CLASS)
    yield from _doing(held, "sample", "filter")
    for facts in held.source:
        number, hits = facts.topics.get("sampling.parameter", (0, []))
        names = {hit.name for hit in hits}
        if "temperature" in names and names & {"top_p", "top_k", "min_p", "repetition_penalty"}:
            yield facts.path, Place(name=hits[0].name, at=at(facts.path, hits[0].line)), number


def _doing(held: Holdings, *effects: str) -> Iterator[tuple[str, Place, int]]:
    """The functions that show all of the effects, each by the first of them; how often."""
    for facts in held.source:
        functions = [*facts.functions, *(method for one in facts.classes for method in one.methods)]
        for work in [one.work for one in functions if one.work is not None]:
            if all(effect in work.effects for effect in effects):
                text, line = work.effects[effects[0]]
                yield facts.path, Place(name=re.split(r"\W", text.removeprefix("self."))[0], at=at(facts.path, line)), 1


def _known(name: str) -> bool:
    return name.lower().replace("_", "-") in _PACKAGES or name.lower() in _PACKAGES


def _dependencies(held: Holdings, manifests: Manifests) -> Iterator[tuple[str, Place, int]]:
    for name, where, text in manifests.dependencies:
        if _known(name):
            yield where.rpartition(":")[0] + name, Place(name=name, at=where, text=text), 1
    for facts in held.files:
        if not held.demoted(facts.path):
            for hit in facts.hits("dep"):
                if _known(hit.name):
                    yield facts.path + hit.name, Place(name=hit.name, at=at(facts.path, hit.line), text=hit.text), 1
            for one in facts.imports:
                top = one.module.partition(".")[0]
                if top in _PACKAGES and top not in held.own:
                    yield top, Place(name=top, at=at(facts.path, one.statement)), 1
