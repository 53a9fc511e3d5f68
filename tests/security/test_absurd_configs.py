"""Values that no configuration can have: a result or one sentence of at most 600 characters, and neither after long."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opscope_tools.running.engines import index_of
from opscope_tools.running.workspace import Workspace
from sampled import sampled

Ask = Callable[..., str]
SECONDS = 30
TYPES = "llama gpt2 mixtral deepseek_v3 mamba2 bert t5 whisper vit llava qwen2_vl wav2vec2".split()
VALUES: list[Any] = [
    -1, 0, 1, 7, 10**5, 10**9, 2**40, 2**63, 10**30, -(10**30), 0.5, -0.0, 1e308, float("inf"), float("-inf"), float("nan"), True,
    None, "", "x", "os.system", "x" * 25_000, "\0", "ｏｓ", [], [1], [[[]]], [None] * 3, ["a", 1, {}], {}, {"a": {"b": 1}},
    {"model_type": "x"}, {"model_type": 7}, {"model_type": None},
]  # fmt: skip


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"num_layers": 10**9}, "more than 2,000"),
        ({"num_hidden_layers": 2001}, "more than 2,000"),
        ({"num_labels": 10**9}, "at most 1,000,000"),
        ({"hidden_size": 2**63}, "past 2**40"),
        ({"hidden_size": 2**40}, "hidden_size"),
        ({"vocab_size": float("inf")}, "no number"),
        ({"vocab_size": float("nan")}, "no number"),
        ({"hidden_size": -4}, "not negative"),
        ({"num_attention_heads": 0}, "the value of num_attention_heads"),
        ({"hidden_act": "no such"}, "the value of hidden_act"),
        ({"hidden_act": 3}, "hidden_act"),
        ({"rope_parameters": {"rope_type": "no such"}}, "rope_parameters"),
        ({"pad_token_id": 10**9}, "pad_token_id"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": [[1]]}, "hidden_size"),
        ({"to_dict": 1}, "method of LlamaConfig"),
        ({"__class__": "x"}, "name of Python's own"),
        ({"no\0name": 1}, "no name of a field"),
        ({"hidden_act": "si\0lu"}, "NUL"),
        ({"attn_implementation": "org/kernel"}, "kernels of a hub are not loaded"),
        ({"_attn_implementation": {"": "org/kernel"}}, "kernels of a hub are not loaded"),
        ({"experts_implementation": "deepgemm"}, "kernels of a hub are not loaded"),
        ({"dtype": "load"}, "no dtype of torch"),
        ({"dtype": "os.system"}, "no dtype of torch"),
    ],
    ids=lambda value: ascii(value)[:50],
)
def test_an_absurd_value_is_refused_in_a_sentence_with_the_field(
    config: dict[str, Any], says: str, answer: Ask
) -> None:
    before = time.monotonic()
    assert says in answer("inspect_model", model="llama", config=config)
    assert time.monotonic() - before < SECONDS


def deep(depth: int) -> Any:
    return [deep(depth - 1)] if depth else 1


def test_what_is_too_deep_or_too_much_is_refused(answer: Ask) -> None:
    assert "nested more than 32 deep" in answer("inspect_model", model="llama", config={"a": deep(40)})
    assert "nests deeper than 60 levels" in answer("inspect_model", model="llama", config={"a": deep(200)})
    assert "more than 200,000 values" in answer("inspect_model", model="llama", config={"a": [0] * 300_000})


def test_experts_and_backbones_are_bounded_too(answer: Ask) -> None:
    assert "more than 16,384 experts" in answer("inspect_model", model="mixtral", config={"num_local_experts": 10**6})
    for name in ("org/backbone", "/tmp/backbone", "hf-hub:org/x", "local-dir:/tmp"):
        assert "is not looked up" in answer("inspect_model", model="dpt", config={"backbone": name})


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": {"batch_size": 2**41, "seq_len": 1}},
        {"values": {"batch_size": 1, "seq_len": 10**30}},
        {"values": {"batch_size": 1, "seq_len": 1, "num_layers": 10**6}},
        {"inputs": {"x": [1] * 50}},
        {"inputs": {"x": [-1]}},
        {"inputs": {"x": [2**50]}},
    ],
    ids=str,
)
def test_absurd_points_and_shapes_are_refused_before_a_trace(arguments: dict[str, Any], answer: Ask) -> None:
    before = time.monotonic()
    said = answer("count_flops", target="LlamaMLP", **arguments)
    assert said[:1] != "{"
    assert time.monotonic() - before < SECONDS


def test_a_missing_package_is_named(answer: Ask) -> None:
    assert "needs the package timm" in answer("inspect_model", model="timm_backbone")


def test_infinity_stays_where_a_published_configuration_has_it(answer: Ask, ground: Path) -> None:
    """As files have it: JSON itself, and so an argument, has no such number."""
    file = ground / "configs/infinite.json"
    file.write_text('{"model_type": "mamba2", "num_hidden_layers": 1, "time_step_limit": [0.0, Infinity]}')
    said = answer("inspect_model", model="mamba2", config=str(file))
    assert said[:1] == "{", said


def cases(model_type: str, workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """Fields of the type's configuration class with a value that it does not expect, drawn as its name says."""
    index = index_of(workspace)
    held = index.names.auto.config_class(model_type, index.names.trees(None))
    assert held is not None
    fields = [row.name for row in held[1].row.body if not row.name.startswith("_")] + [
        "dtype",
        "num_labels",
        "text_config",
    ]
    drawn = random.Random(model_type)
    return [{drawn.choice(fields): drawn.choice(VALUES)} for _ in range(count)]


@pytest.mark.parametrize("model_type", sampled(TYPES, 6))
def test_any_value_of_any_field_ends_in_a_result_or_a_sentence(
    model_type: str, answer: Ask, workspace: Workspace
) -> None:
    for config in cases(model_type, workspace, 30):
        before = time.monotonic()
        said = answer("inspect_model", model=model_type, config=config)
        assert "unexpectedly" not in said, (config, said)
        assert time.monotonic() - before < SECONDS, config


@pytest.mark.parametrize("model_type", sampled(["gpt2", "llama", "vit"]))
def test_a_trace_of_such_values_ends_alike(model_type: str, answer: Ask, workspace: Workspace) -> None:
    small = {"num_layers": 1}
    for config in cases(model_type, workspace, 6):
        said = answer("count_flops", target=model_type, config={**small, **config})
        assert "unexpectedly" not in said, (config, said)


def test_a_file_with_such_values_ends_alike(answer: Ask, ground: Any) -> None:
    values: list[Any] = [10**9, -1, [], {}, "x" * 30_000, None, 2**70]
    for value in values:
        (ground / "configs/absurd.json").write_text(json.dumps({"model_type": "llama", "num_hidden_layers": value}))
        said = answer("inspect_model", model=str(ground / "configs/absurd.json"))
        assert "unexpectedly" not in said
