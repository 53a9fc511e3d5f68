"""The stages of an engine, by the names of what is called."""

from __future__ import annotations

import re

__all__ = ["STAGES", "stage_of"]

#: stage of an engine -> names of what is called
STAGES = {
    "schedule": r"_?schedule\w*|get_next_batch\w*|get_new_batch\w*|form_batch|_?next_batch\w*|get_next_\w*batch\w*",
    "prefill or decode": r"(?!_?(should|is|has|can|update|get|set|take|add|negotiate|check|need|needs)_)\w*prefill\w*|decode_step|decode_one\w*|run_decode|forward_decode|prepare_decode|_decode_\w+",
    "model": r"execute_model\w*|_?run_model|run_batch|forward|forward_\w+|_?model_forward|forward_batch\w*|(?!_?(load|get|build|create|make|init|save|download|set|update|compile|is|has|fetch|register|convert|export|parse|prepare|warmup|check|select|wrap|quantize|read|unload|list)_)(\w+_)?model|model_runner|replay|decoder|net|network|transformer|lm|llm|gpt",
    "sample": r"_?sample\w*|\w*sampler|_?multinomial\w*|argmax|categorical\w*|logits_processors?|compute_logits|logits_to_probs|gumbel_sample",
    "KV cache": r"_?allocate\w*|allocate_slots|append_slots?|may_append|can_append|can_allocate|_?evict(_\w+)?|swap_(in|out)|_?preempt\w*|reorder_cache|cache_blocks|hash_blocks|store_kv\w*|update_cache|reset_cache|free_\w+|_free_\w+|deallocate\w*|match_prefix|alloc_\w+",
    "output": r"\w*process_outputs?|append_tokens?|postprocess\w*|update_from_output|detokenize\w*|process_batch_result\w*|stream_output\w*",
}  # fmt: skip
_STAGES = [(stage, re.compile(pattern)) for stage, pattern in STAGES.items()]


def stage_of(name: str) -> str:
    """The stage that a call of this name belongs to; empty where it belongs to none."""
    return next((stage for stage, pattern in _STAGES if pattern.fullmatch(name)), "")
