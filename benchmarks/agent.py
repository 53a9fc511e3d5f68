"""What questions cost an agent: calls and characters of the shortest route of tool calls, and whether it answers right.

Every question is asked of the server over stdio, as hosts start it. What is right is worked out here, from published
sizes of the models and from the source's own text; nothing of the project is imported.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

Answers = Sequence[dict[str, Any]]
LLAMA8, LLAMA70, QWEN = "meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-70B", "Qwen/Qwen3-30B-A3B"
AT_8K = {"batch_size": 1, "cache_len": 8192}
H100_BANDWIDTH = 3.35e12


@dataclass(frozen=True)
class Question:
    """A question, calls that answer it, and what tells whether they did."""

    asked: str
    route: tuple[tuple[str, dict[str, Any]], ...]
    right: Callable[[Answers], bool]


def one(asked: str, tool: str, right: Callable[[dict[str, Any]], bool], **arguments: Any) -> Question:
    """A question of one call."""
    return Question(asked, ((tool, arguments),), lambda answers: right(answers[0]))


@dataclass(frozen=True)
class Sizes:
    """A decoder's published sizes; `experts` of its layers are read of every token, `every` are there."""

    hidden: int
    layers: int
    heads: int
    kv: int
    head: int
    inter: int
    vocab: int
    experts: int = 1
    every: int = 1
    tied: bool = False

    def products(self, context: int) -> int:
        """FLOPs of the matrix products of one token, `context` positions to attend to."""
        return 2 * (self.layers * self.layer(self.experts) + self.vocab * self.hidden) + (
            4 * self.layers * self.heads * self.head * context
        )

    def layer(self, experts: int) -> int:
        """Weights of the products of a layer."""
        attention = self.hidden * self.head * (2 * self.heads + 2 * self.kv)
        router = self.hidden * self.every if self.every > 1 else 0
        return attention + router + 3 * experts * self.hidden * self.inter

    def parameters(self, norms: int) -> int:
        """All of them; `norms` weights of norms in a layer."""
        outside = self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * (self.layer(self.every) + norms) + outside

    @property
    def cached(self) -> int:
        """Bytes of cache for a token in bf16."""
        return 4 * self.layers * self.kv * self.head


SMALL = Sizes(4096, 32, 32, 8, 128, 14336, 128256)
LARGE = Sizes(8192, 80, 64, 8, 128, 28672, 128256)
MIXED = Sizes(2048, 48, 32, 4, 128, 768, 151936, experts=8, every=128)
MIXTRAL = Sizes(4096, 32, 32, 8, 128, 14336, 32000, experts=2, every=8)
DENSE = Sizes(4096, 36, 32, 8, 128, 12288, 151936)


def source(file: str) -> str:
    """Text of a file of the installed transformers."""
    found = importlib.util.find_spec("transformers")
    assert found is not None
    assert found.origin is not None
    return (Path(found.origin).parent / file).read_text()


def line_of(file: str, text: str) -> int:
    """The first line that holds a text."""
    return next(number for number, line in enumerate(source(file).splitlines(), 1) if text in line)


def near(found: float | None, wanted: float, within: float) -> bool:
    """Whether a figure lies within a share of another."""
    return found is not None and abs(found - wanted) <= within * abs(wanted)


def rows(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a table by column."""
    return [dict(zip(answer["columns"], row, strict=True)) for row in answer["rows"]]


def told(answer: dict[str, Any], *texts: str) -> bool:
    """Whether all texts stand in an answer."""
    return all(text in json.dumps(answer, ensure_ascii=False) for text in texts)


RULE = line_of("models/gemma3/configuration_gemma3.py", '"sliding_attention" if')
QUESTIONS = [
    one("FLOPs per token of Qwen3-30B-A3B at 8k context, and the operators that dominate", "expand_refs",
        lambda a: a["numbers"]["matmul_flops"] == MIXED.products(8193) and a["numbers"]["operators"][0]["name"].endswith("sdpa"),
        target=QWEN, phase="decode", values=AT_8K),
    one("Parameters of Qwen3-30B-A3B, all and active", "count_flops",
        lambda a: a["numbers"]["parameters"] == MIXED.parameters(2 * 2048 + 2 * 128)
        and near(a["numbers"]["active_parameters"], MIXED.parameters(0) - 48 * 120 * 3 * 2048 * 768, 0.001),
        target=QWEN, phase="decode"),
    one("Which tensor-parallel degree of H100s holds Llama-3.1-70B at batch 8 and 8k", "sweep",
        lambda a: [row["fits"] for row in rows(a)] == [
            (LARGE.parameters(2 * 8192) * 2 + 8 * 8193 * LARGE.cached) / n < 80 * 2**30 for n in (1, 2, 4, 8)],
        targets=[LLAMA70], values={"batch_size": 8, "cache_len": 8192}, hardware=[f"h100_sxm:{n}" for n in (1, 2, 4, 8)]),
    one("A table of Llama-3.1-8B's decode for batch 1 to 256", "sweep",
        lambda a: len(rows(a)) == 9 and all(r["matmul_flops"] == r["batch_size"] * SMALL.products(1025) for r in rows(a)),
        targets=[LLAMA8], values={"batch_size": "1..256*2", "cache_len": 1024}, columns=["matmul_flops", "bytes_read"]),
    one("What would int4 change for Llama-3.1-8B's decode on an H100", "estimate_roofline",
        lambda a: any(x["name"] == "weights int4" and x["saved_seconds"] > 0 for x in a["alternatives"]),
        target=LLAMA8, hardware="h100_sxm", values=AT_8K),
    one("Cache per token of Llama-3.1-70B", "trace_dataflow",
        lambda a: a["numbers"]["cache_per_token"] == LARGE.cached, target=LLAMA70, phase="decode"),
    one("Time of a decode step of Llama-3.1-8B on an H100 at 8k, at least", "estimate_roofline",
        lambda a: near(a["totals"]["bound_seconds"],
            (2 * (SMALL.parameters(0) - 128256 * 4096) + 8193 * SMALL.cached) / H100_BANDWIDTH, 0.02)
        and a["totals"]["calibrated_seconds"] > a["totals"]["bound_seconds"],
        target=LLAMA8, hardware="h100_sxm", values=AT_8K),
    one("How many sequences of 8k fit beside Llama-3.1-8B on an H100", "estimate_roofline",
        lambda a: near(a["memory"]["largest_batch"], (80 * 2**30 - 2 * SMALL.parameters(0)) / (8193 * SMALL.cached), 0.1),
        target=LLAMA8, hardware="h100_sxm", values=AT_8K),
    one("Where the forward of gemma3's RMSNorm is", "find_forward",
        lambda a: told(a, "modeling_gemma3.py") and told(a, str(line_of("models/gemma3/modeling_gemma3.py", "class Gemma3RMSNorm") + 10)[:2]),
        target="Gemma3RMSNorm"),
    one("Where it is decided which layers of gemma3 slide", "find_forward",
        lambda a: told(a, "configuration_gemma3.py") and f'"line": {RULE}' in json.dumps(a), target="Gemma3Attention"),
    one("Who calls grouped_mm", "search_source", lambda a: any("moe.py" in h["file"] for h in a["hits"]), query="calls:grouped_mm"),
    one("Where the key-value cache is written", "search_source",
        lambda a: any(h["file"].endswith("cache_utils.py") for h in a["hits"][:5]), query="where is the key value cache updated"),
    one("Where sampling applies a temperature", "search_source",
        lambda a: any("logits_process.py" in h["file"] for h in a["hits"][:5]), query="apply sampling temperature to logits"),
    one("What Llama-3.1-8B and Qwen3-8B differ in", "compare",
        lambda a: next(t for t in a["totals"] if t["name"] == "matmul_flops")["values"] == [SMALL.products(1025), DENSE.products(1025)],
        targets=[LLAMA8, "Qwen/Qwen3-8B"], phase="decode", values={"batch_size": 1, "cache_len": 1024}),
    one("What flash attention saves Llama-3.1-8B against the eager form at 4k", "compare",
        lambda a: len(a["sides"]) == 2 and a["differences"] and a["differences"][0]["effect"] < 0,
        targets=[LLAMA8], sides=[{"attention": "eager"}, {"attention": "sdpa"}], values={"batch_size": 1, "seq_len": 4096}),
    one("Parameters of Mixtral-8x7B, all and active", "count_flops",
        lambda a: a["numbers"]["parameters"] == MIXTRAL.parameters(2 * 4096)
        and near(a["numbers"]["active_parameters"], MIXTRAL.parameters(0) - 32 * 6 * 3 * 4096 * 14336, 0.001),
        target="mistralai/Mixtral-8x7B-v0.1", phase="decode"),
    one("FLOPs of a prefill of Llama-3.1-8B at 2k", "count_flops",
        lambda a: near(a["numbers"]["matmul_flops"], 2048 * (SMALL.products(0) - 2 * 128256 * 4096)
            + 2 * 128256 * 4096 * 2048 + 4 * 32 * 4096 * 2048**2, 0.001),
        target=LLAMA8, values={"batch_size": 1, "seq_len": 2048}),
    one("FLOPs of bert-base for 512 tokens", "count_flops",
        lambda a: near(a["numbers"]["matmul_flops"], 12 * (2 * 512 * 12 * 768**2 + 4 * 512**2 * 768), 0.01),
        target="BertModel", values={"batch_size": 1, "seq_len": 512}),
    one("From which batch Llama-3.1-8B's decode is limited by compute", "estimate_roofline",
        lambda a: 200 < (a["turning_batch"] or 0) < 600, target=LLAMA8, hardware="h100_sxm", values={"batch_size": 1, "cache_len": 64}),
    one("Weights on each of four H100s that share Llama-3.1-70B", "estimate_roofline",
        lambda a: near(a["memory"]["weights_bytes"], LARGE.parameters(0) / 2, 0.01),
        target=LLAMA70, hardware="h100_sxm:4", values=AT_8K),
    one("Tokens a second of Llama-3.1-8B on an H100 with 64 users", "estimate_roofline",
        lambda a: near(a["serving"]["tokens_per_second"], 64 * 512 / (a["serving"]["ttft_seconds"] + 511 * a["serving"]["tpot_seconds"]), 0.05),
        target=LLAMA8, hardware="h100_sxm", phase="serve", serving={"concurrency": 64, "input_len": 1024, "output_len": 512}),
    one("How eight H100s serve Llama-3.1-70B with the most tokens", "plan",
        lambda a: told(a["best"], "tp") and a["best"]["tokens_per_second_per_device"] > 0,
        target=LLAMA70, hardware="h100_sxm:8", goal="throughput"),
    one("The longest context of gemma-2-9b on an H100", "estimate_roofline",
        lambda a: near(a["memory"]["longest_context"], (80 * 2**30 - 2 * 9.24e9 - 21 * 4096 * 8192) / (21 * 8192), 0.02),
        target="google/gemma-2-9b", hardware="h100_sxm", values={"batch_size": 1, "cache_len": 1024}),
    one("Memory of a training step of Llama-3.1-8B on eight H100s with ZeRO 3", "estimate_roofline",
        lambda a: near(a["memory"]["weights_bytes"], SMALL.parameters(0) / 4, 0.01) and a["memory"]["training"] is not None,
        target=LLAMA8, hardware="h100_sxm:8", phase="train", parallel={"dp": 8, "zero": 3}, values={"batch_size": 8, "seq_len": 1024}),
    one("What limits Llama-3.1-8B at batch 256 and 1k", "estimate_roofline",
        lambda a: a["totals"]["limited_by"] == "memory", target=LLAMA8, hardware="h100_sxm", values={"batch_size": 256, "cache_len": 1024}),
    one("Which class gpt-oss runs its attention with", "resolve_class", lambda a: told(a, "GptOssAttention", "modeling_gpt_oss.py"),
        name="GptOssAttention"),
    one("Which of llama's classes extend the one that classifies sequences", "find_references",
        lambda a: told(a, "modeling_llama.py", "LlamaForSequenceClassification"),
        target="GenericForSequenceClassification", kind="subclass"),
    one("Where rms_norm_eps of llama is read", "find_references",
        lambda a: told(a, "modeling_llama.py"), target="LlamaConfig.rms_norm_eps"),
    one("What mixtral is made of", "inspect_model", lambda a: told(a, "MixtralSparseMoeBlock", "MixtralAttention"), model="mixtral"),
    one("What a llama config may hold and must fulfil", "extract_config", lambda a: told(a, "num_attention_heads"),
        target="llama", section="hyperparameters"),
    one("DeepSeek-V3's parameters", "count_flops", lambda a: near(a["numbers"]["parameters"], 671.0e9, 0.002),
        target="deepseek-ai/DeepSeek-V3", phase="decode"),
    one("Decode of Qwen3-30B-A3B on five devices at batch 32", "sweep",
        lambda a: len(rows(a)) == 5 and min(rows(a), key=lambda r: r["bound_seconds"])["hardware"] == "b200_sxm",
        targets=[QWEN], values={"batch_size": 32, "cache_len": 4096},
        hardware=["a100_sxm", "h100_sxm", "h200_sxm", "b200_sxm", "mi300x"]),
]  # fmt: skip


async def run(chosen: Sequence[Question], *options: str) -> list[tuple[Question, str, int, float]]:
    """Each with what went wrong (empty: nothing), the characters that a model reads of its answers, and seconds."""
    found = []
    server = StdioServerParameters(command=sys.executable, args=["-m", "opscope_server", *options])
    async with Client(server, read_timeout_seconds=600) as client:
        for question in chosen:
            answers, characters, wrong, began = [], 0, "", time.perf_counter()
            for tool, arguments in question.route:
                result = await client.call_tool(tool, arguments)
                text = "".join(getattr(block, "text", "") for block in result.content)
                characters += len(text)
                if result.is_error:
                    wrong = text[:300]
                    break
                answers.append(result.structured_content or {})
            if not wrong:
                try:
                    wrong = "" if question.right(answers) else "the answer is another"
                except (KeyError, IndexError, TypeError, StopIteration) as error:
                    wrong = f"the answer lacks {error!r}"
            found.append((question, wrong, characters, time.perf_counter() - began))
            print(f"{'wrong' if wrong else 'right':6} {len(question.route):2} call {characters:7,} characters "
                  f"{found[-1][-1]:6.1f} s  {question.asked}{f': {wrong}' if wrong else ''}", flush=True)  # fmt: skip
    return found


def main() -> int:
    """Print a line for each question and the medians; 1 where one was answered wrongly."""
    words = sys.argv[1:]
    chosen = [q for q in QUESTIONS if all(word.lower() in q.asked.lower() for word in words)]
    found = anyio.run(run, chosen)
    right = sum(not wrong for _, wrong, _, _ in found)
    calls = statistics.median(len(question.route) for question, *_ in found)
    read = [characters for *_, characters, _ in found]
    print(
        f"{right} of {len(found)} right; median {calls:.0f} calls and {statistics.median(read):,.0f} characters, at most {max(read):,}"
    )
    return 0 if right == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
