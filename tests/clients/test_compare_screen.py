"""Sides beside each other on a screen, and the options that make them."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from opscope_clients import screens
from opscope_clients.comparing import _side
from opscope_schemas.comparison import CompareResult
from rich.console import Console

SMALL = '{"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}'


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "opscope_clients",
        "compare",
        *arguments,
        "--cache-dir",
        str(folder),
        "--config",
        SMALL,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_a_comparison_is_a_screen_of_any_width(tmp_path: Path) -> None:
    done = run(tmp_path, "llama", "--phase", "prefill", "--phase", "decode", "--batch", "2", "--seq", "16", "--json")
    assert done.returncode == 0, done.stderr
    found = CompareResult.model_validate_json(done.stdout)
    assert [side.at.get("cache_len", side.at["seq_len"]) for side in found.sides] == [16, 16]
    for width in (60, 100, 160):
        screen = Console(file=io.StringIO(), width=width, force_terminal=True, no_color=True, highlight=False)
        screens.show(screen, found)
        assert isinstance(screen.file, io.StringIO)
        text = re.sub(r"\x1b\[[0-9;]*m", "", screen.file.getvalue())
        assert all(len(line) <= width for line in text.splitlines())
        assert {"prefill", "decode", "effect", "alike:"} <= set(text.split())
    wrong = run(tmp_path, "llama", "qwen3", "mixtral", "--phase", "prefill", "--phase", "decode")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "given 2 times, for 3 sides" in " ".join(wrong.stderr.split())
    alone = run(tmp_path, "llama")
    assert (alone.returncode, alone.stdout) == (1, "")
    assert "nothing to compare" in alone.stderr


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("phase=decode", {"phase": "decode"}),
        ("phase=decode,values.cache_len=9,values.batch_size=2", {"phase": "decode", "values": {"cache_len": 9, "batch_size": 2}}),
        ("config.hidden_act=gelu,name=a, b", {"config": {"hidden_act": "gelu"}, "name": "a, b"}),
        (json.dumps({"view": "serving"}), {"view": "serving"}),
    ],
)  # fmt: skip
def test_a_side_is_written_as_fields_or_as_json(text: str, meant: dict[str, object]) -> None:
    assert _side(text) == meant
