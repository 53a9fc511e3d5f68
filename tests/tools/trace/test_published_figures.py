"""What papers and model cards print of well-known models, beside what is worked out here; each figure with its public source.

Printed figures are rounded: they must be those of ours at as many digits.
"""

from __future__ import annotations

import pytest
from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.expand_refs import ExpandArguments, expand_refs
from opscope_tools.hardware.devices import shipped
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.running.tool import ToolContext
from sampled import sampled

#: "Insights into DeepSeek-V3", arXiv:2505.09343, table 1: KV cache per token in BF16, bytes
CACHE = {
    "deepseek-ai/DeepSeek-V3": 70_272,
    "Qwen/Qwen2.5-72B": 327_680,
    "meta-llama/Meta-Llama-3.1-405B": 516_096,
}
#: billions of parameters as cards on huggingface.co print them, from the safetensors of each repository
PARAMETERS = {
    "meta-llama/Meta-Llama-3-8B": 8.03,
    "meta-llama/Meta-Llama-3-70B": 70.6,
    "meta-llama/Llama-2-7b-hf": 6.74,
    "meta-llama/Llama-2-13b-hf": 13.0,
    "mistralai/Mistral-7B-v0.1": 7.24,
    "Qwen/Qwen2.5-32B": 32.8,
    "Qwen/Qwen2.5-72B": 72.7,
    "Qwen/Qwen3-8B": 8.19,
    "google/gemma-2-2b": 2.61,
    "allenai/OLMo-2-1124-7B": 7.3,
}
#: Narayanan et al. 2021, arXiv:2104.04473, table 1: layers, width, heads, billions of parameters; 51,200 words, 2,048 tokens
MEGATRON = [(24, 2304, 24, 1.7), (30, 3072, 32, 3.6), (36, 4096, 32, 7.5), (40, 6144, 48, 18.4), (48, 8192, 64, 39.1)]
WORDS, LENGTH = 51_200, 2_048


def _rounded(number: float, like: float) -> float:
    digits = len(f"{like}".partition(".")[2])
    return round(number, digits)


@pytest.mark.parametrize("name", sampled(CACHE))
def test_the_cache_takes_the_bytes_per_token_that_are_published(name: str, context: ToolContext) -> None:
    asked = {"target": name, "hardware": "b300_sxm", "precision": {"weights": "bf16", "cache": "bf16"}}
    found = estimate_roofline(RooflineArguments.model_validate(asked), context)
    assert found.memory.cache_bytes_per_token == CACHE[name]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_many_as_the_card_says(name: str, context: ToolContext) -> None:
    found = inspect_model(InspectArguments(model=name), context)
    assert _rounded(found.parameters / 1e9, PARAMETERS[name]) == PARAMETERS[name]


@pytest.mark.parametrize(("layers", "width", "heads", "billions"), MEGATRON)
def test_a_gpt_has_the_parameters_and_flops_of_the_formulas_of_megatron(
    layers: int, width: int, heads: int, billions: float, context: ToolContext
) -> None:
    """Formulas 2 and 3 there: P, and F of a step of training in which layers, not logits, run forward twice."""
    config = {"n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": WORDS, "n_positions": LENGTH}
    batch = 3
    asked = {"target": "gpt2", "config": config, "values": {"batch_size": batch, "seq_len": LENGTH}}
    found = expand_refs(ExpandArguments.model_validate(asked), context)
    assert found.evaluated is not None
    step = 96 * batch * LENGTH * layers * width**2 * (1 + LENGTH / (6 * width) + WORDS / (16 * layers * width))
    logits = 2 * batch * LENGTH * width * WORDS
    assert found.evaluated.matmul_flops == pytest.approx((step - 3 * logits) / 4 + logits, rel=1e-9)
    parameters = 12 * layers * width**2 * (1 + 13 / (12 * width) + (WORDS + LENGTH) / (12 * layers * width))
    ours = inspect_model(InspectArguments(model="gpt2", config=config), context).parameters
    assert ours == pytest.approx(parameters + 2 * width, abs=1)  # it leaves out the last norm
    assert _rounded(ours / 1e9, billions) == billions


@pytest.mark.parametrize("tokens", [512, 2048, 8192])
def test_a_forward_takes_a_third_of_the_flops_per_token_of_the_appendix_of_palm(
    tokens: int, context: ToolContext
) -> None:
    """Chowdhery et al. 2022, arXiv:2204.02311, appendix B: 6N + 12LHQT a token, a forward being a third; N without the table that
    is only looked up, and without norms, which are no products."""
    layers, heads, width, vocabulary = 32, 32, 4096, 128_256
    asked = {"target": "meta-llama/Meta-Llama-3-8B", "values": {"batch_size": 1, "seq_len": tokens}}
    found = expand_refs(ExpandArguments.model_validate(asked), context)
    assert found.evaluated is not None
    products = 8_030_261_248 - vocabulary * width - (2 * layers + 1) * width
    assert found.evaluated.matmul_flops == tokens * (2 * products + 4 * layers * heads * (width // heads) * tokens)


#: Korthikanti et al. 2022, arXiv:2205.05198, tables 3 and 5: layers, width, heads, batch, GPUs, seconds of an iteration, MFU in per cent
KORTHIKANTI = [
    (48, 6144, 64, 4, 8, 1.10, 41.5), (96, 12288, 96, 64, 64, 13.75, 51.4), (105, 20480, 128, 280, 280, 37.83, 56.0),
    (128, 25600, 160, 512, 512, 71.49, 56.3),
]  # fmt: skip


@pytest.mark.parametrize(("layers", "width", "heads", "batch", "gpus", "seconds", "share"), KORTHIKANTI)
def test_a_step_of_megatron_has_the_share_of_the_peak_that_is_published(
    layers: int, width: int, heads: int, batch: int, gpus: int, seconds: float, share: float, context: ToolContext
) -> None:
    """Model FLOPs, three times those of a forward, over the printed time on A100s; as far as the digits of the time tell."""
    config = {"n_layer": layers, "n_embd": width, "n_head": heads, "vocab_size": WORDS, "n_positions": LENGTH}
    asked = {"target": "gpt2", "config": config, "values": {"batch_size": batch, "seq_len": LENGTH}}
    found = expand_refs(ExpandArguments.model_validate(asked), context).evaluated
    assert found is not None
    peak = shipped()["a100_sxm"].peak_flops["bf16"]
    low, high = (300 * found.matmul_flops / ((seconds + off) * gpus * peak) for off in (0.005, -0.005))
    assert low - 0.05 <= share <= high + 0.05


def test_palm_has_the_share_of_the_peak_that_is_published(context: ToolContext) -> None:
    """Chowdhery et al. 2022, arXiv:2204.02311, sections 2 and 4.1, table 3: 540.35 billion parameters, 238.3 thousand tokens a second on
    6,144 TPU v4 of 275 teraFLOP/s are 46.2 %. Its layers are Llama's in what their products cost, with one head of keys and values."""
    config = {
        "num_hidden_layers": 118, "hidden_size": 18_432, "num_attention_heads": 48, "num_key_value_heads": 1, "head_dim": 256,
        "intermediate_size": 4 * 18_432, "vocab_size": 256_000, "tie_word_embeddings": True,
    }  # fmt: skip
    parameters = inspect_model(InspectArguments(model="llama", config=config), context).parameters
    assert _rounded(parameters / 1e9, 540.35) in (540.35, 540.36)  # with norms that it has one of a layer of
    asked = {"target": "llama", "config": config, "values": {"batch_size": 1, "seq_len": LENGTH}}
    found = expand_refs(ExpandArguments.model_validate(asked), context).evaluated
    assert found is not None
    share = 3 * found.matmul_flops / LENGTH * 238.3e3 / (6_144 * 275e12)
    assert _rounded(100 * share, 46.2) == 46.2
