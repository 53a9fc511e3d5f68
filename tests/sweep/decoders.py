"""Every causal language model type of transformers: does it trace, and are its formulas exact?

For each type a small configuration is tried (the class default, narrowed); prefill and decode are traced, evaluated at
a point and held against the independent references of tests/support/trace_reference.py: matrix products, and all FLOPs
and bytes. Prints a line per type and the totals. Run with `make sweep`, or with model types as arguments.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import trace_reference as reference
from opscope_schemas.errors import OpscopeError
from opscope_tools.costing import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.engines import close_engines
from opscope_tools.spec import ToolContext
from opscope_tools.workspace import Workspace
from transformers.models.auto import modeling_auto

SECONDS = 60

#: widths and counts of a small model, for the fields that a config class has
NARROW = {
    "intermediate_size": 112, "moe_intermediate_size": 48, "ffn_dim": 112, "head_dim": 16, "num_local_experts": 8,
    "num_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 2, "q_lora_rank": 24,
    "kv_lora_rank": 20, "qk_rope_head_dim": 8, "qk_nope_head_dim": 12, "v_head_dim": 16, "first_k_dense_replace": 1,
    "shared_expert_intermediate_size": 40, "max_position_embeddings": 512,
}  # fmt: skip


class _TimeUpError(Exception):
    pass


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TimeUpError(f"over {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def small(model_type: str) -> dict[str, Any]:
    """Fewer layers and a smaller vocabulary; everything else as the class has it, so that it stays consistent."""
    config = reference.config_of(model_type, {})
    chosen: dict[str, Any] = {}
    fields = set(vars(config)) | set(getattr(type(config), "attribute_map", {}))
    if "num_hidden_layers" in fields and isinstance(config.num_hidden_layers, int):
        chosen["num_hidden_layers"] = min(config.num_hidden_layers, 3)
    if isinstance(getattr(config, "vocab_size", None), int):
        chosen["vocab_size"] = 301
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        if name in fields and isinstance(getattr(config, name), int):
            chosen[name] = None if name == "pad_token_id" else 1
    return chosen


def narrow(model_type: str) -> dict[str, Any]:
    """`small` with narrow layers, where the class takes that: a concrete run then costs little."""
    config, chosen = reference.config_of(model_type, {}), small(model_type)
    heads = getattr(config, "num_attention_heads", None)
    if isinstance(heads, int):
        chosen["hidden_size"] = 16 * heads
    for name, value in NARROW.items():
        if isinstance(vars(config).get(name), int) and vars(config)[name] > value:
            chosen[name] = value
    if isinstance(vars(config).get("word_embed_proj_dim"), int):
        chosen["word_embed_proj_dim"] = chosen["hidden_size"]
    try:
        reference.matmul_flops(model_type, chosen, "prefill", 2, 3, 0)
    except Exception:
        return small(model_type)
    return chosen


def check(model_type: str, phase: Any, context: ToolContext) -> str:
    """'exact', or what is wrong."""
    draw = random.Random(f"{model_type} {phase}")
    overrides = narrow(model_type)
    batch, seq, cache = draw.randint(2, 3), draw.randint(2, 6), draw.randint(3, 8)
    values = {"batch_size": batch, "seq_len": seq, "cache_len": cache}
    try:
        with _limit(SECONDS):
            result = count_flops(
                CostArguments(target=model_type, phase=phase, config=overrides, values=values), context
            )
    except OpscopeError as error:
        try:
            with _limit(SECONDS):
                reference.matmul_flops(model_type, overrides, phase, batch, seq, cache)
        except Exception as reason:
            return f"not runnable: {type(reason).__name__}: {str(reason)[:120]}"
        return f"failed: {error}"
    except _TimeUpError as error:
        return f"failed: trace {error}"
    found = result.evaluated
    assert found is not None
    notes = []
    try:
        with _limit(SECONDS):
            expected = reference.matmul_flops(model_type, overrides, phase, batch, seq, cache)
        if found.matmul_flops != expected:
            notes.append(f"products {found.matmul_flops}, concretely {expected}")
    except Exception as error:
        return f"no reference: {type(error).__name__}: {str(error)[:120]}"
    try:
        with _limit(SECONDS):
            walked = reference.walk(model_type, overrides, phase, batch, seq, cache)
        ours = (found.flops, found.memory_read, found.memory_write)
        if ours != (walked.flops, walked.read, walked.write):
            notes.append(f"totals {ours}, walked {(walked.flops, walked.read, walked.write)}")
    except Exception as error:
        notes.append(f"no walk: {type(error).__name__}: {str(error)[:100]}")
    if result.document.not_counted:
        notes.append(f"not counted: {result.document.not_counted[0][:100]}")
    return (
        "inexact: " + "; ".join(notes)
        if any(n.startswith(("products", "totals")) for n in notes)
        else "; ".join(["exact", *notes])
    )


def main() -> None:
    wanted = sys.argv[1:] or sorted(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(cache_folder=Path(folder))
        context = ToolContext(workspace)
        tally: Counter[str] = Counter()
        for model_type in wanted:
            for phase in ("prefill", "decode"):
                try:
                    answer = check(model_type, phase, context)
                except Exception as error:  # a sweep goes on
                    answer = f"failed: {type(error).__name__}: {str(error)[:160]}"
                tally[f"{phase} {answer.partition(':')[0].partition(';')[0]}"] += 1
                print(f"{model_type:28} {phase:8} {answer[:260]}", flush=True)
        close_engines(workspace)
        workspace.store.close()
    for name, count in sorted(tally.items()):
        print(f"{name}: {count} of {len(wanted)}")


if __name__ == "__main__":
    main()
