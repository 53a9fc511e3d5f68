"""The console script: imports the command line so that Ctrl-C ends it quietly even before it has begun."""

from __future__ import annotations

import sys


def main() -> None:
    """Run `opscope`; an interrupt is told in a word."""
    try:
        from opscope_clients.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted.\n")
        sys.exit(130)
    run()
