"""Every model type of transformers: is it traced, and are its formulas those of a concrete run?

For each type and phase the document's formulas are evaluated at several points and held against the independent
reference of tests/support: matrix products, all FLOPs, bytes read and written. Prints a line per type and phase, then
the coverage. Run with `make sweep-cost`; arguments are model types, `--part I/N`, `--phase PHASE`, `--points N`.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from cost_comparison import Outcome, compare
from opscope_tools.engines import close_engines
from opscope_tools.spec import ToolContext
from opscope_tools.workspace import Workspace
from transformers.models.auto import configuration_auto, modeling_auto

SECONDS = 240


class _TimeUpError(Exception):
    pass


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TimeUpError(f"over {seconds} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def types() -> list[str]:
    """The model types that some auto class of transformers holds a model for."""
    tables = [v for k, v in vars(modeling_auto).items() if k.startswith("MODEL_") and k.endswith("_MAPPING_NAMES")]
    return sorted(t for t in configuration_auto.CONFIG_MAPPING_NAMES if any(t in table for table in tables))


def _one(model_type: str, phase: str, context: ToolContext, points: int) -> Outcome:
    try:
        with _limit(SECONDS):
            return compare(model_type, phase, context, count=points)
    except Exception as error:  # a sweep goes on
        return Outcome(model_type, phase, "failed", notes=[f"{type(error).__name__}: {str(error)[:200]}"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("types", nargs="*")
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--phase", action="append")
    parser.add_argument("--points", type=int, default=2)
    arguments = parser.parse_args()
    part, parts = map(int, arguments.part.split("/"))
    every = types()
    random.Random(0).shuffle(every)  # so that a part is a sample
    wanted = (arguments.types or every)[part::parts]
    tally: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        context = ToolContext(Workspace.create(cache_folder=Path(folder)))
        for model_type in wanted:
            for phase in arguments.phase or ("prefill", "decode"):
                outcome = _one(model_type, phase, context, arguments.points)
                tally[f"{phase} {outcome.state}"] += 1
                print(outcome.line()[:400], flush=True)
                if outcome.traced == "forward":  # no cache, so no decode phase
                    break
        close_engines(context.workspace)
        context.workspace.store.close()
    for name, count in sorted(tally.items()):
        print(f"{name}: {count} of {len(wanted)}")


if __name__ == "__main__":
    main()
