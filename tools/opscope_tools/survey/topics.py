"""Identifiers that mean something in an LLM engine: topic -> the names that stand for it, and where they count.

A topic counts identifiers in code (names, attributes, parameters), never words in comments or strings. `SEARCHED` is what
a result quotes where a topic has no hit.
"""

from __future__ import annotations

import re

#: topic -> regular expression of a whole identifier
IDENTIFIERS = {
    "kv.paging": r"block_tables?|page_tables?|slot_mapping|slot_mappings|block_tables_\w+|paged_kv\w*|kv_indptr|kv_indices|req_to_token",
    "kv.memory": r"mem_get_info|memory_allocated|max_memory_allocated|memory_reserved|gpu_memory_utilization|mem_fraction_static|num_gpu_blocks\w*|num_kvcache_blocks|num_kv_blocks|get_num_free_blocks|num_free_blocks|available_size|page_size_bytes|kv_cache_memory\w*|kv_cache_bytes|free_block_ids|cache_bytes\w*",
    "kv.state": r"\w*kv_?caches?\w*|past_key_values?|key_cache|value_cache|k_cache|v_cache|kv_pool\w*",
    "scheduler.queue": r"waiting(_queue|_requests\w*|_reqs)?|running(_queue|_requests|_reqs|_batch)?|wait_queue|request_queue|active_requests|heappush|PriorityQueue|priority|schedule_policy|scheduling_policy|SchedulingPolicy",
    "scheduler.chunk": r"\w*chunked_prefill\w*|prefill_chunk\w*|chunked_prefill_size|long_prefill\w*|\w*preempt\w*|retract_decode|\w*retracted\w*",
    "scheduler.admission": r"can_allocate|can_append|max_num_seqs|max_num_batched_tokens|max_running_requests|max_queued_requests|max_batch_size|max_batch_tokens|token_budget|max_num_scheduled_tokens|max_concurrent_requests|max_total_tokens|QueueFull|rem_total_tokens",
    "sampling.parameter": r"temperature|top_p|top_k|min_p|repetition_penalty|presence_penalty|frequency_penalty|min_tokens|max_new_tokens",
    "sampling.seed": r"manual_seed|manual_seed_all|set_seed|seed|seed_everything|random_seed|sampling_seed|generators|Generator|PRNGKey|fold_in",
    "kernel.attention": r"flash_attn\w*|scaled_dot_product_attention|paged_attention\w*|flex_attention|memory_efficient_attention|BatchPrefillWith\w+|BatchDecodeWith\w+|flash_mla\w*|dot_product_attention",
    "kernel.gemm": r"\w*scaled_mm\w*|\w*gemm(?!a)\w*|marlin\w*|gptq_\w+|awq_\w+|\w*fp8_linear\w*|w8a8\w*|\w*int8_mm\w*|Linear4bit|Linear8bitLt|deep_gemm\w*|grouped_mm\w*|dequantize\w*|quantize_\w+",
    "text.tokenizer": r"AutoTokenizer|apply_chat_template|PreTrainedTokenizer\w*|LlamaTokenizer\w*|SentencePieceProcessor|batch_decode|eos_token_id|get_encoding",
    "llm.rotary": r"\w*rotary\w*|\w*[Rr]o[Pp][Ee]_?[Ss]caling\w*|apply_rope\w*",
    "llm.phase": r"is_prefill|\w*_prefill|prefill|prefill_\w+|decode_step|is_decode|num_prefill_tokens|num_decode_tokens",
}  # fmt: skip
_COMPILED = [(topic, re.compile(pattern)) for topic, pattern in IDENTIFIERS.items()]
_MEMO: dict[str, tuple[str, ...]] = {}


def topics_of(identifier: str) -> tuple[str, ...]:
    """The topics that an identifier stands for."""
    found = _MEMO.get(identifier)
    if found is None:
        if len(_MEMO) > 400_000:
            _MEMO.clear()
        found = _MEMO[identifier] = tuple(topic for topic, pattern in _COMPILED if pattern.fullmatch(identifier))
    return found
