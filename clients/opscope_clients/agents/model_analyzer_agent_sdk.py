"""The model analyzer: `python -m opscope_clients.agents.model_analyzer_agent_sdk --model NAME`, or this file as a script."""

from __future__ import annotations

import sys

from opscope_clients import console
from opscope_clients.agents.analysis import run
from opscope_clients.agents.request import analyzer_command


def main() -> None:
    """Entry point; every end is an exit status, never a traceback."""
    sys.exit(console.guarded(_invoke))


def _invoke() -> int | None:
    command = analyzer_command("model", run)
    with command.make_context(str(command.name), sys.argv[1:]) as context:
        status: int | None = command.invoke(context)
        return status


if __name__ == "__main__":
    main()
