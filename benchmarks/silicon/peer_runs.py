"""What aiconfigurator predicts for runs: served_runs.py starts this with another interpreter, which has `aiconfigurator==0.12.0`.

A list of the arguments of `cli_estimate` comes in as JSON, one of seconds to the first token and of one more token goes out, null
where it has no answer. The package parses the same YAML files again for every estimate: here each is parsed once.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import sys
from typing import Any

import yaml


def main() -> None:
    """Reads, estimates, writes."""
    parsed = functools.cache(yaml.safe_load)

    def once(text: Any) -> Any:
        return copy.deepcopy(parsed(text if isinstance(text, str | bytes) else text.read()))

    yaml.safe_load = once
    with contextlib.redirect_stdout(sys.stderr):
        from aiconfigurator.cli.api import cli_estimate

        found: list[tuple[float, float] | None] = []
        for asked in json.load(sys.stdin):
            try:
                answer = cli_estimate(mode="agg", **asked)
            except Exception:  # whatever it cannot answer counts as not answered
                found.append(None)
            else:
                found.append((answer.ttft / 1e3, answer.tpot / 1e3))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
