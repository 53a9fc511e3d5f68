"""opscope and what else counts, asked about the same models at the same points, beside a reference that knows none of them.

`make bench-peers` makes their environments and writes the figures to docs/benchmarks.md. Each tool runs in a process of its own and is
recorded in benchmarks/results/peers/; `--tool NAME` asks these anew and takes the others from their records. Seconds are of a
processor, on one thread: of all times what a busy machine bends least.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from genz_bounds import bounds
from peer_counters import PEERS
from peers_page import lines, written

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE, RECORDS = ROOT / "docs" / "benchmarks.md", ROOT / "benchmarks" / "results" / "peers"
#: seconds by the clock for one case of a peer
LIMIT = 300
REFERENCE, OWN, BOUNDS = "reference", "opscope", "GenZ, bounds"
TOOLS = (REFERENCE, OWN, *PEERS, BOUNDS)


def interpreter(tool: str) -> Path:
    """Of the environment that .ci/peer-environments makes for a peer."""
    environment = {"GenZ": "genz", "aiconfigurator": "aiconfigurator"}.get(tool, "counters")
    return ROOT / ".venv-peers" / environment / "bin" / "python"


def asked(tool: str) -> dict[str, Any]:
    """What a tool answers about every case; `error` alone where it did not run."""
    if tool == BOUNDS:
        return {"rows": bounds(interpreter("GenZ"))}
    if tool in PEERS:
        command = [interpreter(tool), HERE / "peer_counters.py", tool, str(LIMIT)]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    else:
        script = {REFERENCE: "reference_counts.py", OWN: "own_counts.py"}[tool]
        command, environment = [Path(sys.executable), HERE / script], dict(os.environ)
    run = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        return {"error": run.stderr.strip().splitlines()[-1][:200], "cases": {}}
    return dict(json.loads(run.stdout.splitlines()[-1]))


def machine() -> str:
    """In words."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = [line.partition(":")[2].strip() for line in told.splitlines() if line.startswith("model name")]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers"))
    return (
        f"{os.cpu_count()} cores of {models[0] if models else platform.machine()}, {platform.system()}, "
        f"Python {platform.python_version()}, {packages}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", action="append", choices=TOOLS, help="ask it anew; default: all")
    parser.add_argument("--page-only", action="store_true", help="no run: the page of the records that there are")
    arguments = parser.parse_args()
    RECORDS.mkdir(parents=True, exist_ok=True)
    for tool in () if arguments.page_only else arguments.tool or TOOLS:
        print(f"asking {tool}", flush=True)
        found = {"date": f"{datetime.date.today()}", "machine": machine(), **asked(tool)}
        (RECORDS / f"{tool}.json").write_text(json.dumps(found))
    records = {tool: json.loads((RECORDS / f"{tool}.json").read_text()) for tool in TOOLS}
    compared = {tool: record for tool, record in records.items() if tool not in (REFERENCE, BOUNDS)}
    for line in lines(records[REFERENCE], compared):
        print(line)
    PAGE.write_text(written(PAGE.read_text(), records[REFERENCE], compared, records[BOUNDS]))


if __name__ == "__main__":
    main()
