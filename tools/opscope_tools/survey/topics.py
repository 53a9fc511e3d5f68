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
    "sampling.seed": r"manual_seed|manual_seed_all|seed|seeds|seed_everything|set_(\w+_)?seed|random_seed|sampling_seed|default_rng|default_generator|generators|PRNGKey|fold_in",
    "kernel.attention": r"flash_attn\w*|scaled_dot_product_attention|paged_attention\w*|flex_attention|memory_efficient_attention|BatchPrefillWith\w+|BatchDecodeWith\w+|flash_mla\w*|dot_product_attention",
    "kernel.gemm": r"\w*scaled_mm\w*|\w*gemm(?!a)\w*|marlin\w*|gptq_\w+|awq_\w+|\w*fp8_linear\w*|w8a8\w*|\w*int8_mm\w*|Linear4bit|Linear8bitLt|deep_gemm\w*|grouped_mm\w*|dequantize\w*|quantize_\w+",
    "text.tokenizer": r"AutoTokenizer|apply_chat_template|PreTrainedTokenizer\w*|LlamaTokenizer\w*|SentencePieceProcessor|batch_decode|eos_token_id|get_encoding",
    "llm.rotary": r"\w*rotary\w*|\w*[Rr]o[Pp][Ee]_?[Ss]caling\w*|apply_rope\w*",
    "llm.phase": r"is_prefill|\w*_prefill|prefill|prefill_\w+|decode_step|is_decode|num_prefill_tokens|num_decode_tokens",
}  # fmt: skip
#: role -> identifiers in a body that does the role's work; and those of one that only handles what the role is about
DOES = {
    "scheduler": (r"_?waiting\w*|_?running\w*|\w*queue\w*|pending\w*|deque|heappush|token_budget", r"requests?|reqs?|seqs?|batch(es)?"),
    "KV cache": (r"k_cache|v_cache|key_cache|value_cache|\w*[kv]_buffers?|\w*kv_caches?|key_states|value_states|cache_[kv]|\w*free_(block|page|slot)\w*|\w*block_tables?|block_pool|slot_mapping|kv_data|past_key_values?|index_copy_", r"blocks|block_ids?|pages|page_size|\w*kv_\w+|layers"),
    "sampling": (r"argmax|_?multinomial\w*|categorical|exponential_|gumbel\w*|\w*sampling_from_\w+|sample_\w*from_\w+|topk_topp\w*|top_k_top_p\w*", r"logits|scores|(log)?probs"),
    "attention backend": (r"scaled_dot_product_attention|flash_attn\w*|softmax|\w*paged_attention\w*|flex_attention\w*|memory_efficient_attention|BatchPrefill\w+|BatchDecode\w+|flash_mla\w*|unified_attention\w*|flash_attention\w*|attention_fwd\w*", r"query|query_states|qkv|q_proj|attn_metadata|attention_interface|forward_metadata|kv_cache|attn_output|get_impl_cls"),
    "config parser": (r"add_argument|parse_args|parse_known_args|ArgumentParser|safe_load|json|yaml|tomllib|from_dict|from_cli_args|OmegaConf|from_pretrained|from_json_file", r"config|args|asdict|fields"),
    "model runner": (r"execute_model\w*|run_model\w*|forward_\w+|model_runner|model_input\w*|input_batch|forward_batch|CUDAGraph|capture_model", r"forward|model|workers?"),
    "tokenizer": (r"encode\w*|decode\w*|tokenize\w*|convert_tokens_to_ids|apply_chat_template|detokenize\w*", r"token_ids|input_ids|tokenizer|vocab\w*"),
    "quantization": (r"\w*scales?|\w*zero_points?|qweight|qzeros|quantize\w*|dequantize\w*|get_quant_method|weight_bits|quant_method\w*", r"bits|\w*quant\w*"),
    "parallelism": (r"\w*all_reduce\w*|\w*all_gather\w*|\w*reduce_scatter\w*|all_to_all\w*|device_group|distribute_tensor|DTensor|init_process_group|new_group|Shard", r"tp_size|tp_rank|world_size|process_group|device_mesh|\w*tensor_model_parallel\w*"),
}  # fmt: skip
_COMPILED = [(topic, re.compile(pattern)) for topic, pattern in IDENTIFIERS.items()]
_COMPILED += [
    (f"does.{n}.{role}", re.compile(pattern))
    for role, both in DOES.items()
    for n, pattern in ((2, both[0]), (1, both[1]))
]
#: characters of an identifier that stands for something
_LONGEST = 200
_MEMO: dict[str, tuple[str, ...]] = {}


def topics_of(identifier: str) -> tuple[str, ...]:
    """The topics that an identifier stands for."""
    found = _MEMO.get(identifier)
    if found is None and len(identifier) > _LONGEST:
        return ()
    if found is None:
        if len(_MEMO) > 400_000:
            _MEMO.clear()
        found = _MEMO[identifier] = tuple(topic for topic, pattern in _COMPILED if pattern.fullmatch(identifier))
    return found
