"""Papers and documentation of a model: those that its source names, and those of a small table kept here.

The table holds the papers of architectures and of the parts that they are made of; each line of a report says which of the two
it is from. Keys are folders of transformers/models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from opscope_tools.report.facts import ImplementationFacts, short, walk
from opscope_tools.report.nodes import with_weights
from opscope_tools.report.overview import model_files, ran_in, scopes
from opscope_tools.report.sources import Span

__all__ = ["paper_lines"]

#: links of one report that its source names
_MOST = 8
_LINK = re.compile(r"https?://[^\s)\]>\"'`,]+")
#: what an example in a docstring loads, and nobody reads
_DATA = re.compile(r"\.(jpe?g|png|gif|webp|mp[34]|wav|flac)$", re.IGNORECASE)
#: folder of transformers/models -> title and arXiv number
_MODELS = {
    "llama": ("LLaMA: Open and Efficient Foundation Language Models", "2302.13971"),
    "mistral": ("Mistral 7B", "2310.06825"),
    "mixtral": ("Mixtral of Experts", "2401.04088"),
    "gpt_neox": ("GPT-NeoX-20B: An Open-Source Autoregressive Language Model", "2204.06745"),
    "bloom": ("BLOOM: A 176B-Parameter Open-Access Multilingual Language Model", "2211.05100"),
    "opt": ("OPT: Open Pre-trained Transformer Language Models", "2205.01068"),
    "falcon": ("The Falcon Series of Open Language Models", "2311.16867"),
    "phi3": ("Phi-3 Technical Report", "2404.14219"),
    "qwen2": ("Qwen2 Technical Report", "2407.10671"),
    "qwen3": ("Qwen3 Technical Report", "2505.09388"),
    "qwen3_moe": ("Qwen3 Technical Report", "2505.09388"),
    "deepseek_v2": ("DeepSeek-V2: A Strong, Economical, and Efficient Mixture-of-Experts Language Model", "2405.04434"),
    "deepseek_v3": ("DeepSeek-V3 Technical Report", "2412.19437"),
    "gemma": ("Gemma: Open Models Based on Gemini Research and Technology", "2403.08295"),
    "gemma2": ("Gemma 2: Improving Open Language Models at a Practical Size", "2408.00118"),
    "gemma3_text": ("Gemma 3 Technical Report", "2503.19786"),
    "gemma3": ("Gemma 3 Technical Report", "2503.19786"),
    "olmo": ("OLMo: Accelerating the Science of Language Models", "2402.00838"),
    "olmo2": ("2 OLMo 2 Furious", "2501.00656"),
    "olmoe": ("OLMoE: Open Mixture-of-Experts Language Models", "2409.02060"),
    "mamba": ("Mamba: Linear-Time Sequence Modeling with Selective State Spaces", "2312.00752"),
    "mamba2": (
        "Transformers are SSMs: Generalized Models and Efficient Algorithms Through Structured State Space Duality",
        "2405.21060",
    ),
    "jamba": ("Jamba: A Hybrid Transformer-Mamba Language Model", "2403.19887"),
    "zamba2": ("The Zamba2 Suite: Technical Report", "2411.15242"),
    "recurrent_gemma": ("RecurrentGemma: Moving Past Transformers for Efficient Open Language Models", "2404.07839"),
    "bert": ("BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", "1810.04805"),
    "roberta": ("RoBERTa: A Robustly Optimized BERT Pretraining Approach", "1907.11692"),
    "modernbert": ("Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder", "2412.13663"),
    "t5": ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", "1910.10683"),
    "bart": ("BART: Denoising Sequence-to-Sequence Pre-training", "1910.13461"),
    "whisper": ("Robust Speech Recognition via Large-Scale Weak Supervision", "2212.04356"),
    "vit": ("An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale", "2010.11929"),
    "clip": ("Learning Transferable Visual Models From Natural Language Supervision", "2103.00020"),
    "siglip": ("Sigmoid Loss for Language Image Pre-Training", "2303.15343"),
}
#: what classes that ran are called -> the paper of that part
_PARTS = (
    (r"Attention$", "Attention Is All You Need", "1706.03762"),
    (r"Rotary", "RoFormer: Enhanced Transformer with Rotary Position Embedding", "2104.09864"),
    (r"RMSNorm", "Root Mean Square Layer Normalization", "1910.07467"),
    (r"LayerNorm", "Layer Normalization", "1607.06450"),
    (r"GatedDelta", "Gated Delta Networks: Improving Mamba2 with Delta Rule", "2412.06464"),
    (
        r"SiLU",
        "Sigmoid-Weighted Linear Units for Neural Network Function Approximation in Reinforcement Learning",
        "1702.03118",
    ),
    (r"GELU", "Gaussian Error Linear Units", "1606.08415"),
)


def paper_lines(facts: ImplementationFacts) -> list[str]:
    """Links that the source of the classes that ran names, then the papers of the table that fit."""
    named = [f"[{link}]({link}), named at `{path}:{line}`" for path, line, link in _named(facts)]
    kept = [
        f'"{title}", [arXiv {number}](https://arxiv.org/abs/{number})' for title, number in dict.fromkeys(_kept(facts))
    ]
    lines = [f"Named in the source of what ran: {'; '.join(named)}"] if named else []
    return [*lines, *([f"From opscope's table of papers: {'; '.join(kept)}"] if kept else [])]


def _named(facts: ImplementationFacts) -> Iterator[tuple[str, int, str]]:
    """File, line and address of links in the classes that ran and in the configuration's class, each address once."""
    places = [(path, span.line, span.end_line) for path, span in _spans(facts)]
    if facts.config_location is not None:
        path, span = facts.config_location
        places.append((path, span.line, span.end_line))
    seen: set[str] = set()
    for path, first, last in places:
        for line in range(first, last + 1):
            for found in _LINK.finditer(facts.reader.line(path, line)):
                link = found[0].rstrip(".")
                if link not in seen and not _DATA.search(link) and len(seen) < _MOST:
                    seen.add(link)
                    yield path, line, link


def _spans(facts: ImplementationFacts) -> Iterator[tuple[str, Span]]:
    """What ran of the files that define modules with weights: what says where an activation comes from is of no one model."""
    places = map(facts.locate, with_weights(facts.tree))
    files = {place[0] for place in places if place is not None} | {facts.modeling_file}
    ran = ran_in(facts)  # functions too
    for path, names in model_files(facts).items():
        for name in sorted(names | ran.get(path, set())) if path in files else ():
            span = facts.reader.definition(path, name)
            if span is not None:
                yield path, span


def _kept(facts: ImplementationFacts) -> Iterator[tuple[str, str]]:
    kind = facts.modeling_file.split("/")[-2] if facts.modeling_file.startswith("transformers/models/") else ""
    if kind in _MODELS:
        yield _MODELS[kind]
    names = scopes(facts.main) | {short(module.class_name) for module in facts.modules}
    scaled = _scaled(facts)
    names = {"RMSNorm" if name in scaled else name for name in names}
    for pattern, title, number in _PARTS:
        if any(re.search(pattern, name) for name in names):
            yield title, number


def _scaled(facts: ImplementationFacts) -> set[str]:
    """Classes that are called layer norms and only divide by the root mean square (T5LayerNorm)."""
    ran: dict[str, str] = {}
    for _, _, kernel in walk(facts.main.kernels, ""):
        if kernel.class_name and re.search(r"LayerNorm", kernel.class_name):
            ran[short(kernel.class_name)] = " ".join(inner.operator for inner in kernel.kernels or ())
    return {name for name, run in ran.items() if "rsqrt" in run and not re.search(r"layer_norm|\.sub|\.var", run)}
