"""The console script: imports the command line so that Ctrl-C ends it quietly even before it has begun.

`opscope serve` comes alone: a host waits a few seconds for it, and the other commands import every tool. So do completions, which a shell waits for.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run `opscope`; an interrupt is told in a word."""
    try:
        if "_OPSCOPE_COMPLETE" in os.environ:  # the shell asks for completions
            from opscope_clients.completing import main as run
        elif sys.argv[1:2] == ["serve"]:
            from opscope_clients.serving import main as run
        else:
            from opscope_clients.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("opscope: interrupted.\n")
        sys.exit(130)
    run()
