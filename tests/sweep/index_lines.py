"""The lines that `find_forward` gives against what ran: every forward that small models of many types enter.

tests/support/forward_truth.py runs the models and says at which line which operator ran and what each call entered;
forward_comparison.py beside it holds that against the index. Prints, by name, each line that computed and is not given,
each line marked as training-only that computed, each callee that was not the one called, and the callees that the index
does not know. Run with `make sweep-index`; with model types (`llama`, `llama:LlamaModel`) or `all` as arguments for others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forward_comparison import Tally, compare, truths
from opscope_cache.store import MemoryStore
from opscope_tools.index import open_index
from opscope_tools.running.workspace import installed_repository

#: model types of all kinds
TYPES = """
    llama gemma3 gpt2 gpt_neox mistral qwen3 phi3 falcon bloom opt mpt gptj olmo2 cohere2
    bert roberta deberta-v2 albert xlm-roberta modernbert funnel longformer reformer xlnet canine perceiver layoutlmv3
    t5 bart pegasus led prophetnet switch_transformers
    vit swin convnext dinov2 segformer mask2former detr rt_detr sam resnet mobilenet_v2 levit videomae
    whisper wav2vec2 speecht5 clap encodec mimi seamless_m4t vits
    mixtral qwen3_moe gpt_oss jamba granitemoe olmoe
    mamba mamba2 rwkv recurrent_gemma zamba2 qwen3_next
    clip siglip blip blip-2 llava qwen2_vl idefics3 flava
    time_series_transformer patchtst decision_transformer llama4 sam2 musicgen
""".split()


def main() -> None:
    installed = [installed_repository("transformers", "transformers"), installed_repository("pytorch", "torch")]
    index = open_index([r for r in installed if r is not None], MemoryStore())
    tally, seen = Tally(), set()
    wanted = [] if sys.argv[1:] == ["all"] else sys.argv[1:] or TYPES
    for truth in truths(wanted):
        whole = sum(how == "whole" for how in truth["ran"].values())
        tally.add("types run" if whole else "types not run", "" if whole else f"{truth['type']}: {truth['ran']}")
        for record in truth["forwards"]:
            key = json.dumps(record, sort_keys=True)
            if record["file"] and key not in seen:
                seen.add(key)
                compare(index, record, tally)
        print(f"{truth['type']:28} {whole} of {len(truth['ran'])} classes ran whole", flush=True)
    for what, names in sorted(tally.named.items()):
        print(f"\n{what}:")
        for name in sorted(names):
            print(f"  {name}")
    print()
    for what, count in sorted(tally.counts.items()):
        print(f"{what}: {count}")


if __name__ == "__main__":
    main()
