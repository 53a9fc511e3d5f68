"""`opscope view`: the page of a model on loopback, to nobody else, until Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from opscope_schemas.formula import holds


def asked(address: str, host: str = "") -> tuple[int, str]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_a_page_is_served_on_loopback_until_ctrl_c(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "opscope_clients",
        "--output",
        str(tmp_path),
        "view",
        "gpt2",
        "--no-browser",
        "--config",
        "n_layer=2",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a job in the background ignores
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            said = process.stdout.readline() + process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/", said)
            assert found is not None, said
            status, page = asked(found[0])
            assert status == 200
            assert 'id="live-data"' in page
            assert "GPT2LMHeadModel" in page
            assert asked(f"{found[0]}etc/passwd")[0] == 404
            assert asked(found[0], host="evil.example:80")[0] == 404
        finally:
            process.send_signal(signal.SIGINT)
            try:
                assert process.wait(timeout=30) != 0
            finally:
                process.kill()
    page = (tmp_path / "reports/implementations/gpt2-analysis.html").read_text("utf-8")
    held = re.search(r'id="live-data"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert held is not None
    for phase, sizes in (("prefill", {}), ("decode", {"cache_len": 300})):
        documents = next(one["documents"] for one in json.loads(held[1])["phases"] if one["phase"] == phase)
        for batch in (1, 8):  # a formula of the page holds for one sequence and for several
            points = [(one, {**one["point"], "batch_size": batch, **sizes}) for one in documents]
            held_by = [
                one
                for one, point in points
                if all(holds(c, point) for c in one["conditions"] if c not in one["waived"])
            ]
            assert held_by, (phase, batch)


@pytest.mark.parametrize("given", [["nosuchmodel"], ["gpt2", "--hardware", "nosuchdevice"], ["gpt2", "--config", "{"]])
def test_a_wrong_argument_is_one_sentence(tmp_path: Path, given: list[str]) -> None:
    command = [sys.executable, "-m", "opscope_clients", "--output", str(tmp_path), "view", *given, "--no-browser"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode != 0
    assert "Traceback" not in found.stderr
    assert 1 <= len(found.stderr.strip().split("\n")) <= 6
