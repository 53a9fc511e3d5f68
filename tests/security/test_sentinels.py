"""Names of planted code in every field of every configuration: none is imported, opened, run or connected to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sampled import sampled
from tally import Tally

SCRIPT = Path(__file__).parents[1] / "support/sentinels.py"
#: of each kind a few: decoders, experts, state space, composite, encoder-decoder, vision, audio, backbones, old configs
TYPES = (
    "llama gpt2 qwen3 gemma3_text mixtral qwen3_moe deepseek_v3 mamba2 jamba bert t5 bart whisper vit clip llava qwen2_vl"
    " detr timm_backbone dpt wav2vec2 musicgen xlstm switch_transformers esm"
).split()


@pytest.mark.parametrize("part", sampled(range(5), 5))
def test_no_field_of_a_configuration_leads_to_planted_code(part: int, tmp_path: Path, tally: Tally) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path), *TYPES[part::5]], capture_output=True, text=True, timeout=600,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found["tried"] > 200
    assert found["built"] > 40
    tally.executions(found["tried"], found["problems"])


def test_the_ear_hears_what_it_is_to_hear(tmp_path: Path) -> None:
    """Without a fence and with an import, an open and a start by hand; so that silence means something."""
    program = (
        "import sys, subprocess; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import sentinels as s\n"
        "folder = Path(sys.argv[2]); s.planted(folder); sys.path.insert(0, str(folder)); ear = s.Ear(); ear.on = True\n"
        "import opscope_sentinel_pkg; open(folder / 'opscope_sentinel_pkg/config.json').close()\n"
        "subprocess.run(['true', 'opscope_sentinel_pkg'])\n"
        "ear.on = False; print(sorted({e.split()[0] for e in ear.heard}), (folder / 'MARK').exists())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(SCRIPT.parent), str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("True")
    for event in ("exec", "import", "open", "subprocess.Popen"):
        assert f"'{event}'" in done.stdout
