"""The models that every counter is asked about, and the points at which each is run. Standard library alone: any interpreter reads it.

Widths are those of real layers made narrower, with few layers: a run on two cores takes seconds. Fields not named keep the
defaults of transformers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

#: random tokens are drawn from the first so many of a vocabulary
TOKENS = 1000
_TEXT = ({"batch_size": 2, "seq_len": 64}, {"batch_size": 3, "seq_len": 37})
_NARROW = {
    "hidden_size": 512,
    "vocab_size": 16000,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}


@dataclass(frozen=True)
class Case:
    """A model class of transformers, its config's type and fields, and the first and the second point."""

    class_name: str
    config_type: str
    fields: dict[str, int]
    points: tuple[dict[str, int], dict[str, int]] = _TEXT


CASES = {
    "llama": Case("LlamaForCausalLM", "llama", {**_NARROW, "intermediate_size": 1408}),
    "qwen3_moe": Case("Qwen3MoeForCausalLM", "qwen3_moe", {
        **_NARROW, "head_dim": 64, "num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 192,
    }),
    "deepseek_v3": Case("DeepseekV3ForCausalLM", "deepseek_v3", {
        **_NARROW, "num_key_value_heads": 8, "intermediate_size": 1408, "moe_intermediate_size": 192, "n_routed_experts": 16,
        "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4, "first_k_dense_replace": 1, "q_lora_rank": 192,
        "kv_lora_rank": 64, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64,
    }),
    "gemma3_text": Case("Gemma3ForCausalLM", "gemma3_text", {
        **_NARROW, "intermediate_size": 1408, "head_dim": 64, "num_hidden_layers": 6, "sliding_window": 32,
    }),
    "mamba2": Case("Mamba2ForCausalLM", "mamba2", {
        "hidden_size": 512, "vocab_size": 16000, "num_hidden_layers": 2, "num_heads": 16, "n_groups": 1,
    }),
    "bert": Case("BertModel", "bert", {
        "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 2048,
    }),
    "vit": Case("ViTModel", "vit", {
        "hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 1536,
    }, ({"batch_size": 2}, {"batch_size": 3})),
    "whisper": Case("WhisperForConditionalGeneration", "whisper", {"encoder_layers": 2, "decoder_layers": 2}, (
        {"batch_size": 1, "seq_len": 64}, {"batch_size": 2, "seq_len": 37},
    )),
}  # fmt: skip


def swept(case: Case) -> dict[str, list[int]]:
    """Values of a hundred points, none of them one of the two: every batch with every length."""
    if "seq_len" not in case.points[0]:
        return {"batch_size": list(range(10, 110))}
    return {"batch_size": list(range(1, 11)), "seq_len": list(range(200, 300, 10))}


def hundred(case: Case) -> list[dict[str, int]]:
    """The same points one by one."""
    sizes = swept(case)
    return [dict(zip(sizes, chosen, strict=True)) for chosen in product(*sizes.values())]
