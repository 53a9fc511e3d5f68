"""What is exact is held against arithmetic, on a model that really runs: calls of the library, bytes of the cache, simulated misses.

Profilers that are not installed skip these, and so does a tool that this machine refuses, with what it said.
"""

from __future__ import annotations

import random
import tempfile
from typing import Any

import pytest
from cannot import CANNOT
from opscope_schemas.evidence import CollectEvidenceResult
from opscope_tools.collect_evidence.tool import COLLECT_EVIDENCE
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from sampled import sampled


@pytest.fixture(autouse=True)
def own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """One measurement at a time is the rule of a folder: tests beside this one have another."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.getbasetemp()))


def said(context: ToolContext, topic: str, workload: dict[str, Any], *only: str) -> list[dict[str, Any]]:
    """What each collector read; skips, or fails where it must not, what a machine cannot say."""
    found = run_tool(COLLECT_EVIDENCE, {"topic": topic, "workload": workload, "only": list(only)}, context)
    assert isinstance(found, CollectEvidenceResult)
    for record in found.records:
        if record.status in ("missing", "denied", "unsupported"):
            pytest.skip(f"{'' if record.status == 'missing' else CANNOT}{record.id}: {record.reason}")
        assert record.status == "ok", (record.id, record.status, record.reason)
    return [dict(record.parsed) for record in found.records]


def drawn(seed: int) -> dict[str, Any]:
    """Sizes of a small model; every projection is a matrix of its own."""
    some = random.Random(seed)
    shared = some.choice([1, 2])
    return {
        "model": some.choice(["llama", "qwen2", "mistral"]), "hidden_size": 64 * some.randint(1, 4), "num_layers": some.randint(1, 3),
        "num_heads": 2 * shared, "num_kv_heads": 2, "intermediate_size": 64 * some.randint(2, 6), "vocab_size": 32 * some.randint(9, 30),
        "prompt": some.randint(9, 40), "tokens": some.randint(3, 12),
    }  # fmt: skip


@pytest.mark.parametrize("seed", sampled([1, 2]))
def test_bytes_of_the_cache_in_memory_are_those_of_the_formula(context: ToolContext, seed: int) -> None:
    sizes = drawn(seed) | {"batch_size": seed}
    formula, memory = said(context, "cache-hierarchy", sizes, "workload-counts", "process-memory")
    head = sizes["hidden_size"] // sizes["num_heads"]
    tokens = sizes["prompt"] + sizes["tokens"] - 1
    by_hand = 2 * sizes["num_layers"] * sizes["num_kv_heads"] * head * tokens * seed * 4
    assert memory["cache_bytes"] == formula["cache_bytes"] == by_hand


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_calls_of_the_library_are_as_many_as_products(context: ToolContext, seed: int) -> None:
    """Seven matrices a layer and the vocabulary, and two products a head with the cache, in each step."""
    sizes = drawn(seed)
    (counted,) = said(context, "matrix-multiplication", sizes, "products")
    linears = 7 * sizes["num_layers"] + 1
    attention = 2 * sizes["num_layers"] * sizes["num_heads"]
    assert counted["linears"] == linears
    assert counted["decode_products"] == (sizes["tokens"] - 1) * (linears + attention)
    assert counted["prefill_products"] > linears  # attention over many queries is done in blocks


@pytest.mark.slow
def test_simulated_misses_repeat_to_the_unit(context: ToolContext) -> None:
    first = said(context, "cache-hierarchy", {}, "attention-caches")
    assert first == said(context, "cache-hierarchy", {}, "attention-caches")
    assert first[0]["again_equal"] == 1


@pytest.mark.slow
def test_a_larger_cache_misses_less_and_nothing_else_changes(context: ToolContext) -> None:
    (small,) = said(context, "cache-hierarchy", {"l1_bytes": 16384, "l2_bytes": 262144}, "attention-caches")
    (large,) = said(context, "cache-hierarchy", {"l1_bytes": 65536, "l2_bytes": 4194304}, "attention-caches")
    for name, value in small.items():
        if name.endswith("_misses"):
            assert large[name] <= value
        elif name.endswith("_refs"):
            assert large[name] == value
