"""`--python`: traces in interpreters with other transformers than ours, held against what those interpreters count.

The totals must be those of a concrete pass that a script runs and counts in the same interpreter (second_count.py), and
files, lines and versions those of its own sources. `.ci/second-interpreter` makes the interpreters; where it has not,
these tests are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import opscope_tools
import pytest
from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_schemas.errors import UnknownNameError
from opscope_tools.costing.arguments import CostArguments, model_spec
from opscope_tools.count_flops import count_flops
from opscope_tools.running.engines import close_engines, index_of
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace
from opscope_tools.trace.client import Worker

pytestmark = [pytest.mark.second, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
SECOND = ROOT / ".venv-second"
#: version of transformers -> interpreter
INTERPRETERS = {"5.0.0": SECOND / "bin/python", "4.57.6": SECOND / "transformers-4/bin/python"}


@dataclass(frozen=True)
class Case:
    """A pass to count: `config` is narrow, and no two sizes that could be taken for one another are equal."""

    class_name: str
    config: dict[str, Any]
    phase: str = "prefill"
    sizes: dict[str, int] = field(default_factory=lambda: {"batch_size": 2, "seq_len": 7})
    attention: str = "sdpa"
    experts: bool = False

    @property
    def model_type(self) -> str:
        return self.class_name.split(".")[2]


_DECODER = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2,
}  # fmt: skip
_LLAMA = "transformers.models.llama.modeling_llama.LlamaForCausalLM"
_T5 = "transformers.models.t5.modeling_t5.T5ForConditionalGeneration"
_T5_CONFIG = {
    "vocab_size": 97, "d_model": 40, "d_kv": 12, "d_ff": 72, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4
}  # fmt: skip
CASES = {
    "llama prefill": Case(_LLAMA, _DECODER),
    "llama decode": Case(_LLAMA, _DECODER, "decode", {"batch_size": 3, "seq_len": 2, "cache_len": 11}),
    "bert": Case(
        "transformers.models.bert.modeling_bert.BertLMHeadModel",
        {"vocab_size": 97, "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6},
    ),
    "t5 prefill": Case(
        _T5, _T5_CONFIG, "prefill", {"batch_size": 2, "seq_len": 7, "encoder_seq_len": 13}, attention="eager"
    ),
    "t5 decode": Case(
        _T5, _T5_CONFIG, "decode", {"batch_size": 2, "seq_len": 2, "cache_len": 5, "encoder_seq_len": 13},
        attention="eager",
    ),
    "mixtral": Case(
        "transformers.models.mixtral.modeling_mixtral.MixtralForCausalLM",
        {**_DECODER, "num_local_experts": 5, "num_experts_per_tok": 2}, experts=True,
    ),
    "vit": Case(
        "transformers.models.vit.modeling_vit.ViTModel",
        {"hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3, "num_attention_heads": 6,
         "image_size": 24, "patch_size": 8, "num_channels": 3}, sizes={"batch_size": 2},
    ),
}  # fmt: skip


def alone() -> dict[str, str]:
    """An environment in which an interpreter finds its own packages only."""
    return {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Second:
    """An interpreter, the version of transformers that it must have, and a workspace that traces in it."""

    version: str
    python: Path
    context: ToolContext

    def analysed(self, case: Case) -> ModuleAnalysisResult:
        given = {"target": case.model_type, "phase": case.phase, "config": case.config, "values": case.sizes}
        return count_flops(CostArguments.model_validate(given), self.context)

    def counted(self, case: Case) -> dict[str, Any]:
        """What the interpreter's own run of the case gives, in a process without anything of opscope's."""
        asked = {
            "class_name": case.class_name, "config": case.config, "phase": case.phase, "attention": case.attention,
            "experts": case.experts and not self.version.startswith("4."), **case.sizes,
        }  # fmt: skip
        done = subprocess.run(
            [str(self.python), "-W", "ignore", str(ROOT / "tests/support/second_count.py"), json.dumps(asked)],
            capture_output=True, text=True, timeout=300, env=alone(),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module", params=INTERPRETERS)
def second(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Second]:
    version, python = request.param, INTERPRETERS[request.param]
    if not (SECOND / ".installed").is_file():
        pytest.skip("run .ci/second-interpreter first")
    folder = tmp_path_factory.mktemp("second")
    workspace = Workspace.create(python=str(python), cache_folder=folder / "cache", output=folder)
    yield Second(version, python, ToolContext(workspace))
    close_engines(workspace)
    workspace.store.close()


def held(second: Second, case: Case) -> None:
    """Totals, class, place and versions as the interpreter itself tells them."""
    result, expected = second.analysed(case), second.counted(case)
    assert expected["version"] == second.version
    assert result.evaluated is not None
    assert result.evaluated.matmul_flops == expected["matmul_flops"]
    assert result.document.class_name == case.class_name
    root = second.context.workspace.repository("transformers").root
    place = (root / result.document.file, result.document.line)
    assert place == (Path(expected["file"]).resolve(), expected["line"])
    assert {s.repository: s.version for s in result.sources}["transformers"] == second.version
    for kernel in result.document.kernels:
        assert (root / kernel.file).read_text().splitlines()[kernel.line - 1].strip() == kernel.code


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_totals_and_places_are_those_of_the_interpreter(second: Second, case: Case) -> None:
    held(second, case)


def test_a_loop_over_the_experts_that_were_met_is_told_as_such(second: Second) -> None:
    """transformers 4 loops over the experts that some token was sent to; 5 groups them."""
    said = second.analysed(CASES["mixtral"]).document.assumptions
    loops, grouped = (
        any(a.startswith(start) for a in said) for start in ("Which experts run", "Grouped expert weights")
    )
    assert (loops, grouped) == ((True, False) if second.version.startswith("4.") else (False, True))
    assert not any(a.startswith("Data decides at ") for a in said)


def test_the_interpreters_are_other_than_ours_and_have_no_opscope(second: Second) -> None:
    ours = Workspace.create(cache_folder=second.context.workspace.output / "ours")
    theirs = second.context.workspace
    ours.store.close()
    assert theirs.repository("transformers").version != ours.repository("transformers").version
    assert theirs.repository("transformers").root.is_relative_to(SECOND.resolve())
    assert theirs.repository("pytorch").root.is_relative_to(SECOND.resolve())
    asked = [str(second.python), "-c", "import opscope_tools"]
    done = subprocess.run(asked, capture_output=True, text=True, cwd="/", env=alone())
    assert "No module named 'opscope_tools'" in done.stderr


def test_names_are_resolved_in_the_interpreters_own_source(second: Second) -> None:
    """The class of one expert, which transformers 4 had and 5 has not."""
    index, name = index_of(second.context.workspace), "MixtralBlockSparseTop2MLP"
    if second.version.startswith("4."):
        assert index.target(name).symbol.qualified_name.endswith(f"modeling_mixtral.{name}")
    else:
        with pytest.raises(UnknownNameError, match=name):
            index.target(name)


def test_what_lies_beside_opscope_does_not_stand_in_for_the_interpreters_own(
    second: Second, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a wheel's site-packages: opscope's packages and another transformers in one folder."""
    beside = tmp_path / "site-packages"
    shutil.copytree(
        opscope_tools.__path__[0], beside / "opscope_tools", ignore=shutil.ignore_patterns("__pycache__", "index")
    )
    (beside / "transformers").mkdir()
    (beside / "transformers/__init__.py").write_text("raise SystemExit('the wrong transformers')\n")
    monkeypatch.setattr(opscope_tools, "__path__", [str(beside / "opscope_tools")])
    model = model_spec(second.context.workspace, "llama", _DECODER).model_dump(mode="json")
    worker = Worker(str(second.python), timeout=120)
    try:
        tree = worker.ask(
            "inspect", {"model": model},
            cancelled=threading.Event(), progress=lambda _: None,
        )  # fmt: skip
    finally:
        worker.close()
    assert tree["model_class"] == _LLAMA


def test_an_interpreter_that_cannot_be_asked_leaves_our_sources(tmp_path: Path) -> None:
    """The trace then says what is wrong with it; reading source works all the same."""
    ours = Workspace.create(cache_folder=tmp_path / "cache")
    other = Workspace.create(cache_folder=tmp_path / "cache", python=str(tmp_path / "no-such-python"))
    assert other.repositories == ours.repositories
    assert other.python != sys.executable
    ours.store.close()
    other.store.close()
