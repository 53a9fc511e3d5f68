"""Small configurations of decoders by their type, drawn at random."""

from __future__ import annotations

import random
from typing import Any

import trace_reference as reference


def random_config(model_type: str, draw: random.Random) -> dict[str, Any]:
    """A small configuration in which sizes that could be confused differ."""
    reference_config = reference.config_of(model_type, {})

    def has(name: str) -> bool:
        return name in vars(reference_config)

    shared = draw.choice([1, 2, 3])
    heads = shared * draw.choice([2, 3, 4])
    chosen: dict[str, Any] = {
        "num_attention_heads": heads,
        "hidden_size": heads * 8 * draw.randint(1, 4),
        "vocab_size": draw.randint(50, 200),
        "num_hidden_layers": draw.randint(1, 4),
    }
    if has("num_key_value_heads"):
        chosen["num_key_value_heads"] = shared
    if has("head_dim") and draw.random() < 0.5:
        chosen["head_dim"] = 2 * draw.randint(3, 9)
    for name in ("intermediate_size", "moe_intermediate_size", "ffn_dim"):
        if has(name):
            chosen[name] = 8 * draw.randint(3, 40)
    if has("word_embed_proj_dim"):
        chosen["word_embed_proj_dim"] = chosen["hidden_size"]
    if has("sliding_window"):
        chosen["sliding_window"] = draw.choice([5, 9, 64])
    if has("num_experts_per_tok"):
        chosen["num_experts_per_tok"] = draw.randint(1, 3)
        chosen["num_local_experts" if has("num_local_experts") else "num_experts"] = draw.randint(4, 9)
    if has("pad_token_id"):
        chosen["pad_token_id"] = (
            None  # with one, transformers looks for padding to warn, which traces name as not counted
        )
    return chosen


__all__ = ["random_config"]
