"""The standard variables: their meaning, and which attributes of a config class each stands for.

A config attribute that is no standard variable keeps its own name. Torch-free: the worker and the server share it.
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_schemas.analysis import unknown

#: variables that a run binds, not the config
RUNTIME: Mapping[str, str] = {
    "batch_size": "sequences in the batch",
    "seq_len": "new tokens per sequence",
    "cache_len": "tokens per sequence already in the KV cache",
    "encoder_seq_len": "tokens per sequence that the encoder reads",
    "image_height": "image height in pixels",
    "image_width": "image width in pixels",
    "num_frames": "audio frames",
}

#: sizes at which branches of a run are decided unless a request says otherwise: distinct, small, coprime
RUN_HINTS: Mapping[str, int] = {"batch_size": 3, "encoder_seq_len": 13, "seq_len": 11, "cache_len": 17}

#: bytes per element, with the value that the traced dtype (bfloat16) has
ELEMENT: Mapping[str, tuple[str, int]] = {
    "w_bytes": ("bytes per weight element", 2),
    "a_bytes": ("bytes per activation element", 2),
    "kv_bytes": ("bytes per element of the KV cache", 2),
}

#: standard variable -> (meaning, config attributes that hold it, most usual first)
CONFIG: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "hidden_size": ("width of the residual stream", ("hidden_size", "n_embd", "d_model")),
    "num_heads": ("attention (query) heads", ("num_attention_heads", "n_head", "num_heads")),
    "num_kv_heads": ("key/value heads", ("num_key_value_heads", "num_kv_heads")),
    "head_dim": ("width of one attention head", ("head_dim",)),
    "intermediate_size": (
        "width of the feed-forward layer",
        ("intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size"),
    ),
    "vocab_size": ("tokens in the vocabulary", ("vocab_size",)),
    "num_layers": ("layers", ("num_hidden_layers", "n_layer", "n_layers", "num_layers")),
    "num_experts": ("routed experts", ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")),
    "num_experts_per_tok": ("experts that each token is routed to", ("num_experts_per_tok", "moe_topk", "top_k")),
}


def meaning_of(name: str) -> str:
    """One phrase for a variable; config attributes without an entry are described by their own name."""
    if name in RUNTIME:
        return RUNTIME[name]
    if name in ELEMENT:
        return ELEMENT[name][0]
    if name in CONFIG:
        return CONFIG[name][0]
    return unknown(name)


def is_depth(name: str) -> bool:
    """Whether a variable counts what Python loops over, and so is a number in every trace."""
    return name.endswith(("num_layers", "_layers", "depth", "num_blocks", "layers"))
