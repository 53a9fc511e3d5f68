"""Every model type of transformers: is it traced, and are its formulas those of a concrete run? Writes docs/coverage.md.

For each type and phase the document is asked for plainly, its formulas are evaluated at values asked through the tool and at
random points inside the stated conditions, and all is held against the independent reference of tests/support. Run with
`make sweep-cost`; arguments are model types, `--part I/N`, `--phase PHASE`. Records are kept: a second start does what is missing.

It runs on local processes, or on any Dask cluster with this environment: `--scheduler ADDRESS`, with workers started as
`PYTHONPATH=tests/support dask worker ADDRESS --nthreads 1`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cluster_runs import KilledWorker, cluster, run
from cost_records import DIED, FAILED, PHASES, Record, Records, digest_of_sources
from coverage_page import page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"


def types() -> list[str]:
    """The model types that some auto class of transformers holds a model for."""
    from transformers.models.auto import configuration_auto, modeling_auto

    tables = [v for k, v in vars(modeling_auto).items() if k.startswith("MODEL_") and k.endswith("_MAPPING_NAMES")]
    return sorted(t for t in configuration_auto.CONFIG_MAPPING_NAMES if any(t in table for table in tables))


def reported(text: str) -> tuple[str, str]:
    """The page up to what reports.py adds, and that."""
    head, found, rest = text.partition("\n## Reports\n")
    return head, found + rest


def versions() -> str:
    """Of what the types are traced in."""
    from importlib.metadata import version

    return f"transformers {version('transformers')}, torch {version('torch').partition('+')[0]}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--part", default="0/1", help="the I-th of N samples")
    parser.add_argument("--phase", action="append", choices=PHASES)
    parser.add_argument("--points", type=int, default=2, help="compared, at values asked through the tool")
    parser.add_argument("--inside", type=int, default=3, help="points inside the conditions")
    parser.add_argument("--seconds", type=float, default=900.0, help="of a processor, for one type in all its phases")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--memory", default="auto", help="of one worker: 6GiB")
    parser.add_argument("--scheduler", default="", help="address of a running Dask scheduler")
    parser.add_argument("--records", type=Path, default=ROOT / ".sweep" / "cost")
    parser.add_argument("--fresh", action="store_true", help="do again what there are records of")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--page-only", action="store_true", help="no run: the page of the records that there are")
    return parser.parse_args()


def _swept(arguments: argparse.Namespace, wanted: list[str], records: Records) -> None:
    from cost_sweep import Task, swept

    digest = digest_of_sources()
    phases = tuple(arguments.phase or PHASES)
    missing = dict.fromkeys(wanted, phases) if arguments.fresh else records.missing(wanted, phases, digest)
    print(f"{len(missing)} of {len(wanted)} types to do", flush=True)
    tasks = {
        t: (Task(t, rest, digest, arguments.seconds, arguments.points, arguments.inside),)
        for t, rest in missing.items()
    }
    with cluster(arguments.scheduler, arguments.workers, arguments.records / "scratch", arguments.memory) as client:
        for name, result in run(client, swept, tasks):
            found = lost(name, missing[name], digest, result) if isinstance(result, Exception) else result
            records.add(found)
            for record in found:
                print(record.line(), flush=True)


def lost(name: str, phases: tuple[str, ...], digest: str, error: Exception) -> list[Record]:
    """The records of a type that came to no result."""
    died = isinstance(error, KilledWorker)
    reason = "two workers ended while they were at it" if died else f"{type(error).__name__}: {error}"[:400]
    return [Record(name, phase, digest, DIED if died else FAILED, reason) for phase in phases]


def main() -> None:
    arguments = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))  # so that the workers end with it
    every = types()
    shuffled = random.Random(0).sample(every, len(every))  # so that a part is a sample
    part, parts = map(int, arguments.part.split("/"))
    wanted = (arguments.types or shuffled)[part::parts]
    records = Records(arguments.records)
    if not arguments.page_only:
        _swept(arguments, wanted, records)
    known = [r for r in records.every() if r.model_type in every]
    _, kept = reported(arguments.page.read_text()) if arguments.page.exists() else ("", "")
    arguments.page.write_text(page(known, len(every), versions(), digest_of_sources()) + kept)
    print(f"{arguments.page}: {len({r.model_type for r in known})} of {len(every)} types")


if __name__ == "__main__":
    main()
