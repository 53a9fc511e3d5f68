"""The scripted client's own judgement: names, components, and how a failed connection is told."""

from __future__ import annotations

import sys

import pytest
from opscope_clients import protocol
from opscope_clients.session_options import SessionOptions
from opscope_schemas.errors import OpscopeError

TREE = {
    "class_name": "a.FooForCausalLM",
    "children": [
        {
            "class_name": "a.FooModel",
            "children": [
                {"class_name": "torch.nn.modules.sparse.Embedding"},
                {
                    "class_name": "a.FooDecoderLayer",
                    "children": [
                        {"class_name": "a.FooAttention", "children": [{"class_name": "torch.nn.Linear"}]},
                        {"class_name": "a.FooSparseMoeBlock", "children": [{"class_name": "a.FooExperts"}]},
                        {"class_name": "a.FooRMSNorm"},
                    ],
                },
                {"class_name": "a.FooRMSNorm"},
            ],
        },
        {"class_name": "torch.nn.Linear"},
    ],
}


def test_components_are_the_models_own_classes_outermost_first_each_once() -> None:
    assert protocol.major_components(TREE) == [
        "a.FooDecoderLayer",
        "a.FooRMSNorm",
        "a.FooAttention",
        "a.FooSparseMoeBlock",
        "a.FooExperts",
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [("llama", "llama"), ("a/b.py:3", "a-b.py-3"), ("../../x", "x"), ("qwen3_moe", "qwen3_moe"), ("///", "target")],
)
def test_a_report_name_is_safe_whatever_the_target(target: str, name: str) -> None:
    assert protocol.report_name(target) == name


@pytest.mark.parametrize("program", ["/bin/false", "/does/not/exist"])
def test_a_server_that_cannot_start_is_one_sentence(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(OpscopeError) as caught:
        protocol.analyze(protocol.Wish(["llama"]), SessionOptions())
    assert "The connection to the opscope server ended" in str(caught.value)


def test_what_was_asked_for_is_the_point_of_each_phase() -> None:
    asked = protocol.Wish(["llama"], values={"seq_len": 512, "batch_size": 2}, config={"hidden_size": 64})
    assert asked.point("prefill") == {"values": {"batch_size": 2, "seq_len": 512}}
    assert asked.point("decode") == {"values": {"batch_size": 2, "seq_len": 1, "cache_len": 512}}
    assert protocol.Wish(["llama"]).point("decode") == {}
    assert asked.configured == {"config": {"hidden_size": 64}}
    assert protocol.Wish(["llama"]).configured == {}
