"""Bad input to the cost tools: one clear sentence that says what to do next, and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from opscope_schemas.errors import (
    CancelledError,
    ConfigError,
    InputError,
    OpscopeError,
    PathRefusedError,
    TraceError,
    UnknownNameError,
    ValuesError,
    WorkerError,
)
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.running.engines import close_engines, tracer_of
from opscope_tools.running.session import open_workspace
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.client import Worker

SMALL = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 99,
    "num_hidden_layers": 2,
}


@pytest.mark.parametrize(
    ("arguments", "kind", "says"),
    [
        ({"target": "lama"}, UnknownNameError, "llama"),
        ({"target": "LlamaAttentoin"}, UnknownNameError, "LlamaAttention"),
        ({"target": "llama", "config": {"hiden_size": 64}}, ConfigError, "hidden_size"),
        ({"target": "llama", "config": {"hidden_size": "wide"}}, ConfigError, "hidden_size"),
        ({"target": "llama", "config": {"hidden_size": 65}}, ConfigError, "multiple"),
        ({"target": "llama", "config": "/nowhere/config.json"}, PathRefusedError, "--config-dir"),
        ({"target": "llama", "values": {"batch_size": 1}}, ValuesError, "seq_len"),
        ({"target": "llama", "phase": "decode", "values": {"batch_size": 1, "seq_len": 1}}, ValuesError, "cache_len"),
        ({"target": "llama", "values": {"batch_size": -1, "seq_len": 4}}, ValuesError, "batch_size is -1"),
        ({"target": "llama", "values": {"batch_size": 1, "seq_len": 0}}, ValuesError, "at least 1"),
        ({"target": "llama", "values": {"batch_size": 1, "seq_len": 4, "hiden_size": 8}}, ValuesError, "hidden_size"),
        (
            {"target": "llama", "values": {"batch_size": 1, "seq_len": 4, "num_heads": 4, "hidden_size": 33}},
            ConfigError,
            "33",
        ),
        ({"target": "llama", "values": {"batch_size": 1, "seq_len": 10**30}}, ValuesError, "larger than"),
        ({"target": "llama", "config": {"num_layers": -1}}, ConfigError, "not negative"),
        (
            {
                "target": "llama",
                "config": {**SMALL, "num_key_value_heads": 3},
                "values": {"batch_size": 1, "seq_len": 4},
            },
            TraceError,
            "heads do not divide",
        ),
        ({"target": "LlamaConfig"}, OpscopeError, "forward"),
        ({"target": "LlamaMLP", "instance": "model.layers.7.mlp"}, TraceError, "model.layers.*.mlp"),
    ],
)
def test_wrong_arguments_are_told_with_the_next_step(
    arguments: dict[str, Any], kind: type[OpscopeError], says: str, context: ToolContext
) -> None:
    with pytest.raises(kind) as caught:
        count_flops(CostArguments.model_validate(arguments), context)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_config_of_another_model_type_is_refused(tmp_path: Path, context: ToolContext) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "gpt2", "n_embd": 64}))
    with pytest.raises(ConfigError, match=r"'gpt2'.*'llama'"):
        count_flops(CostArguments(target="llama", config=str(path)), context)


def test_a_config_file_that_is_no_json_is_refused(tmp_path: Path, context: ToolContext) -> None:
    path = tmp_path / "config.json"
    path.write_text("{not json")
    with pytest.raises(ConfigError, match="cannot be read"):
        count_flops(CostArguments(target="llama", config=str(path)), context)


def test_a_published_config_file_sets_the_values(tmp_path: Path, context: ToolContext) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SMALL})
    )
    result = count_flops(
        CostArguments(target="llama", config=str(tmp_path), values={"batch_size": 2, "seq_len": 3}), context
    )
    assert result.evaluated is not None
    assert {k: result.evaluated.values[k] for k in ("hidden_size", "num_heads", "num_kv_heads", "num_layers")} == {
        "hidden_size": 64, "num_heads": 4, "num_kv_heads": 2, "num_layers": 2,
    }  # fmt: skip


def test_a_config_file_or_its_folder_is_a_target(tmp_path: Path, context: ToolContext) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SMALL}))
    trees = [inspect_model(InspectArguments(model=str(p)), context) for p in (tmp_path, tmp_path / "config.json")]
    assert trees[0] == trees[1]
    assert trees[0].config["hidden_size"] == 64


def test_a_config_file_without_a_model_type_is_no_target(tmp_path: Path, context: ToolContext) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="names no model_type"):
        inspect_model(InspectArguments(model=str(tmp_path)), context)


def test_values_take_the_configs_own_names_and_what_follows_from_them(context: ToolContext) -> None:
    own = {"batch_size": 2, "seq_len": 3, "num_attention_heads": 8, "hidden_size": 256}
    result = count_flops(CostArguments(target="llama", values=own), context)
    assert result.evaluated is not None
    assert result.evaluated.values["head_dim"] == 32
    assert result.evaluated.values["num_kv_heads"] == 8


def test_a_value_given_twice_under_two_names_is_refused(context: ToolContext) -> None:
    with pytest.raises(ValuesError, match="twice"):
        count_flops(
            CostArguments(
                target="llama", values={"batch_size": 1, "seq_len": 2, "num_heads": 4, "num_attention_heads": 8}
            ),
            context,
        )


def test_code_of_a_repository_that_nobody_trusts_is_not_imported(tmp_path: Path) -> None:
    package = tmp_path / "mine"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "net.py").write_text(
        "import pathlib, torch\npathlib.Path(__file__).with_name('ran').touch()\n"
        "class UntrustedNet(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    workspace = Workspace.create(repositories=[("mine", tmp_path)], cache_folder=tmp_path / "cache", output=tmp_path)
    with pytest.raises(TraceError, match="--trust mine"):
        count_flops(CostArguments(target="UntrustedNet"), ToolContext(workspace))
    assert not (package / "ran").exists()
    workspace.store.close()


def test_a_cancelled_trace_ends_the_worker_and_the_next_one_works(tmp_path: Path) -> None:
    workspace = Workspace.create(cache_folder=tmp_path / "cache", output=tmp_path)
    cancelled = threading.Event()
    seen: list[str] = []

    def progress(done: float, total: float | None, message: str) -> None:  # noqa: ARG001
        seen.append(message)
        cancelled.set()  # at the first sign of life

    with pytest.raises(CancelledError):
        count_flops(CostArguments(target="gpt2"), ToolContext(workspace, progress, cancelled))
    assert seen
    assert tracer_of(workspace)._worker._process is None
    tree = inspect_model(InspectArguments(model="gpt2", config={"n_layer": 2}), ToolContext(workspace))
    assert tree.model_class.endswith("GPT2LMHeadModel")
    close_engines(workspace)
    workspace.store.close()


def ask(worker: Worker, cancelled: threading.Event | None = None) -> Any:
    return worker.ask("ping", {}, cancelled=cancelled or threading.Event(), progress=lambda _: None)


def test_a_worker_that_dies_is_reported_and_replaced() -> None:
    worker = Worker(sys.executable, timeout=30)
    assert ask(worker) == "pong"
    assert worker._process is not None
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait(10)
    assert ask(worker) == "pong"  # found dead before the request: a new one answers
    worker.close()


def test_an_interpreter_without_torch_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="--python"):
        ask(Worker(str(tmp_path / "no-such-python")))


def test_a_trace_over_its_time_is_stopped() -> None:
    worker = Worker(sys.executable, timeout=0.2)
    began = time.monotonic()
    with pytest.raises(WorkerError, match="longer than"):
        worker.ask("inspect", {"model": {"model_type": "gpt2"}}, cancelled=threading.Event(), progress=lambda _: None)
    assert worker._process is None
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("text", ["soon", "-1", "0", "inf", "nan"])
def test_a_time_limit_that_is_none_is_refused(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPSCOPE_TRACE_TIMEOUT", text)
    with pytest.raises(InputError, match="positive number of seconds"):
        open_workspace(cache_folder=str(tmp_path))


def test_the_time_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPSCOPE_TRACE_TIMEOUT", "12.5")
    workspace = open_workspace(cache_folder=str(tmp_path))
    assert workspace.trace_timeout == 12.5
    workspace.store.close()


def test_unknown_values_types_are_refused_by_the_argument_model() -> None:
    for values in ({"batch_size": 1.5}, {"batch_size": True}, {"batch_size": "4"}):
        with pytest.raises(ValueError, match="batch_size"):
            CostArguments.model_validate({"target": "llama", "values": values})


def test_inspecting_takes_no_weights_and_folds_layers(context: ToolContext) -> None:
    tree = inspect_model(InspectArguments(model="llama", config=SMALL), context)
    assert "(0-1) transformers.models.llama.modeling_llama.LlamaDecoderLayer x2" in tree.text
    assert isinstance(InputError("x"), ValueError)
    embedding, layers = 99 * 64, tree.tree.children[0].children[1]
    assert embedding in [c.parameters for c in tree.tree.children[0].children]
    assert layers.class_name.endswith("ModuleList")


def test_a_size_that_is_no_field_is_not_its_own_nearest_name(context: ToolContext) -> None:
    with pytest.raises(ConfigError, match="has no field 'num_experts'") as found:
        inspect_model(InspectArguments(model="llama", config={"num_experts": 16}), context)
    assert "num_experts" not in str(found.value.next_step).partition(": ")[2].rstrip(".").split(", ")


def test_a_model_that_its_default_configuration_does_not_build_says_line_and_fields(context: ToolContext) -> None:
    with pytest.raises(TraceError) as raised:
        inspect_model(InspectArguments(model="nemotron"), context)
    assert raised.value.location.startswith("transformers/models/nemotron/modeling_nemotron.py:")
    assert "num_key_value_heads" in raised.value.next_step
    assert "nobody has set them" in raised.value.next_step


def test_a_refusal_of_the_model_itself_is_not_put_down_to_fields_that_it_does_not_name(context: ToolContext) -> None:
    """By default it has no layer of attention, and its cache refuses to be asked for its length."""
    with pytest.raises(TraceError, match="get_seq_length") as raised:
        count_flops(CostArguments(target="granitemoehybrid"), context)
    assert "nobody has set them" not in raised.value.next_step
