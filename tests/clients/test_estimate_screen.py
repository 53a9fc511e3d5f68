"""`opscope estimate`: one screen that a person can read, and what it says of wrong arguments."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from opscope_schemas.units import seconds
from opscope_tools.hardware.devices import shipped

SMALL = (
    "hidden_size=256",
    "num_attention_heads=8",
    "num_key_value_heads=2",
    "intermediate_size=512",
    "vocab_size=1000",
    "num_hidden_layers=3",
)


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = [part for text in SMALL for part in ("--config", text)]
    line = [
        sys.executable,
        "-m",
        "opscope_clients",
        "--cache-dir",
        str(tmp_path),
        "estimate",
        "llama",
        *config,
        *arguments,
    ]
    return subprocess.run(line, capture_output=True, text=True, timeout=400, check=False)


def test_times_have_units_that_suit_them() -> None:
    assert [seconds(s) for s in (2.5, 0.0123, 4e-6, 3e-9, None)] == ["2.5 s", "12.3 ms", "4 us", "3 ns", "unknown"]


@pytest.mark.slow
def test_one_screen_says_how_long_what_limits_and_whether_it_fits(tmp_path: Path) -> None:
    done = run(tmp_path, "--hardware", "h100", "--batch", "4", "--context", "96")
    assert done.returncode == 0
    for words in ("calibrated (", "limited by memory", "fits", "matrix products", "tokens/s"):
        assert words in done.stdout
    assert len(done.stdout.splitlines()) < 45


def test_a_device_that_nobody_knows_is_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "--hardware", "h1000")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No device is called 'h1000'. Nearest names: h100_sxm" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_picture_is_written_once_and_not_over_another_file(tmp_path: Path) -> None:
    file = tmp_path / "line.json"
    asked = ("--hardware", "h100", "--batch", "4", "--context", "96", "--picture", "timeline", "--plot", str(file))
    assert run(tmp_path / "cache", *asked).returncode == 0
    events = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {"flops", "bytes", "bound", "file"} <= set(events[0]["args"])
    again = run(tmp_path / "cache", *asked)
    assert (again.returncode, again.stdout) == (1, "")
    assert "is there already" in " ".join(again.stderr.split())


@pytest.mark.slow
def test_a_users_own_device_is_estimated_on_from_the_option_and_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = shipped()["h100_sxm"].model_dump(mode="json") | {
        "id": "mine",
        "name": "My own chip",
        "bandwidth": 1e12,
        "aliases": [],
    }
    file = tmp_path / "own.json"
    file.write_text(json.dumps({"devices": [own]}))
    asked = ("--hardware", "mine", "--batch", "4", "--context", "96", "--json")
    found = json.loads(run(tmp_path / "cache", *asked, "--device-file", str(file)).stdout)
    assert (found["hardware"]["name"], found["hardware"]["bandwidth"]) == ("My own chip", 1e12)
    assert "calibrated_seconds" not in found["operators"][0] or found["operators"][0]["calibrated_seconds"] is None
    file.write_text(json.dumps({"devices": [own | {"bandwidth": 5e11}]}))
    monkeypatch.setenv("OPSCOPE_DEVICE_FILES", str(file))
    slower = json.loads(run(tmp_path / "cache", *asked).stdout)  # the kept answer is of the file as it was
    assert slower["totals"]["bound_seconds"] == pytest.approx(2 * found["totals"]["bound_seconds"], rel=1e-6)


def test_a_device_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "--hardware", "h100", "--device-file", str(tmp_path / "none.json"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "none.json' is not a file" in " ".join(done.stderr.split())


def test_a_sweep_is_printed_as_csv(tmp_path: Path) -> None:
    done = run(tmp_path, "--hardware", "h100_sxm", "--sweep", "batch=1..8*2", "--sweep", "context=64,128", "--csv")
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(int(r["batch"]), int(r["context"])) for r in rows] == [(b, c) for c in (64, 128) for b in (1, 2, 4, 8)]
    assert all(float(r["calibrated_seconds"]) > 0 for r in rows)
    wrong = run(tmp_path, "--hardware", "h100_sxm", "--sweep", "heads=1..2")
    assert wrong.returncode == 2
    assert "neither batch=SIZES nor context=SIZES" in " ".join(wrong.stderr.split())


def test_a_load_and_several_devices_are_a_line_each(tmp_path: Path) -> None:
    done = run(tmp_path, "--hardware", "h100_sxm:2", "--serve", "8,256,64")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "8 requests of 256 + 64 tokens" in said
    assert "2 devices (tp 2)" in said
    wrong = run(tmp_path, "--hardware", "h100_sxm:3")
    assert wrong.returncode != 0
    assert "does not divide 8 heads" in " ".join((wrong.stderr + wrong.stdout).split())
