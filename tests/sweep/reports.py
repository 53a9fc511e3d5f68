"""Every model type of transformers: is its report written, and does it pass its own checks? Writes the end of docs/coverage.md.

Each type is analysed as `opscope analyze TYPE` does it, in a process of its own. Run with `make sweep-reports`; arguments are
model types, `--part I/N`. What came of a type stands in reports.jsonl beside this file, a line each, and in the repository, so that
another machine goes on where one was stopped. It runs on local processes, or on any Dask cluster with this environment, as costs.py does.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cluster_runs import TimeUpError, cluster, limited, run
from costs import PAGE, ROOT, reported, types, versions

RECORDS = Path(__file__).with_name("reports.jsonl")
SCRATCH = ROOT / ".sweep" / "reports"


def read() -> dict[str, dict[str, Any]]:
    """Type -> what came of it."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    return {record["type"]: record for record in map(json.loads, lines)}


def kept(record: dict[str, Any]) -> None:
    """Put a record in its place among the others."""
    known = {**read(), record["type"]: record}
    RECORDS.write_text("".join(f"{json.dumps(known[name])}\n" for name in sorted(known)))


def analysed(name: str, seconds: float) -> dict[str, Any]:
    """What came of one report: its problems, or why there is none; lines, passes, seconds."""
    import tempfile

    from opscope_schemas.errors import OpscopeError
    from opscope_tools.running.engines import close_engines
    from opscope_tools.running.tool import ToolContext
    from opscope_tools.running.workspace import Workspace
    from opscope_tools.write_report import WRITE_REPORT, WriteReportArguments

    began = time.perf_counter()
    found: dict[str, Any] = {"type": name}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(output=Path(folder))
        try:
            with limited(seconds):
                result = WRITE_REPORT.run(
                    WriteReportArguments(kind="implementation", name=name), ToolContext(workspace)
                )
            found["problems"] = [f"{one.rule}: {one.message}"[:300] for one in result.problems]
            if result.ok:
                text = (Path(folder) / result.path).read_text("utf-8")
                found["lines"] = text.count("\n")
                found["skipped"] = text.count(": not reported: ")
        except OpscopeError as error:
            found["refused"] = f"{type(error).__name__}: {error.message}"[:300]
        except TimeUpError:
            found["failed"] = f"took more than {seconds:g} s"
        except Exception as error:  # a defect: what the sweep is for
            found["failed"] = f"{type(error).__name__}: {error}"[:300]
        finally:
            close_engines(workspace)
    return {**found, "seconds": round(time.perf_counter() - began, 1)}


def section(records: list[dict[str, Any]], every: int) -> str:
    """The end of the page of coverage."""
    made = [r for r in records if "lines" in r]
    others = sorted((r for r in records if "lines" not in r), key=lambda r: r["type"])
    lines = [r["lines"] for r in made]
    told = [
        "", "## Reports", "", f"`make sweep-reports` ({versions()}): {len(records)} of {every} model types were analysed, {len(made)} reports were written with",
        f"no problem by their own checks; median {statistics.median(lines):,.0f} lines, at most {max(lines):,}." if lines else "none was written.",
        f"{sum(bool(r.get('skipped')) for r in made)} of them say which pass is missing and why.", "",
    ]  # fmt: skip
    if others:
        told += ["| Type | What came of it |", "|---|---|"]
        for record in others:
            came = record.get("refused") or record.get("failed") or "; ".join(record["problems"])
            told.append(f"| `{record['type']}` | {came[:220].replace('|', '/')} |")
    return "\n".join(told) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--part", default="0/1", help="the I-th of N samples")
    parser.add_argument("--seconds", type=float, default=600.0, help="for one report")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", default="auto", help="of one worker: 6GiB")
    parser.add_argument("--scheduler", default="", help="address of a running Dask scheduler")
    parser.add_argument("--fresh", action="store_true", help="do again what there are records of")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the workers end with it
    every = types()
    part, parts = map(int, arguments.part.split("/"))
    wanted = (arguments.types or random.Random(0).sample(every, len(every)))[part::parts]
    SCRATCH.mkdir(parents=True, exist_ok=True)
    known = read()
    missing = [name for name in wanted if arguments.fresh or name not in known]
    print(f"{len(missing)} of {len(wanted)} types to do", flush=True)
    with cluster(arguments.scheduler, arguments.workers, SCRATCH, arguments.memory) as client:
        for name, result in run(client, analysed, {one: (one, arguments.seconds) for one in missing}):
            found = {"type": name, "failed": f"{type(result).__name__}: {result}"[:300]} if isinstance(result, Exception) else result  # fmt: skip
            kept(found)
            print({key: value for key, value in found.items() if value}, flush=True)
    done = [record for name, record in sorted(read().items()) if name in every]
    head, _ = reported(PAGE.read_text())
    PAGE.write_text(head.rstrip("\n") + "\n" + section(done, len(every)))
    print(f"{PAGE}: {len(done)} of {len(every)} types")


if __name__ == "__main__":
    main()
