"""Keeps stdout for the protocol, and logging on stderr.

The SDK diverts stdout only while it serves: what a module prints while it is imported, or at exit, would still land on
the wire. `reserve()` is therefore the first thing a stdio server does, and `Wire.serving()` lends the descriptor to
the SDK. Imports nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator


class Wire:
    """The real stdout, out of everybody's reach until it is lent."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._wire = os.dup(1)
        os.dup2(2, 1)

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Stdout is the wire inside; afterwards whatever is printed goes to stderr again."""
        sys.stdout.flush()  # text printed so far is buffered, and must not follow the descriptor
        os.dup2(self._wire, 1)
        try:
            yield
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
            os.dup2(2, 1)


def reserve() -> Wire:
    """Take stdout away from everything but the protocol."""
    return Wire()


def configure_logging(level: str) -> None:
    """Plain lines on stderr. Before the SDK is constructed: it would otherwise install boxed tracebacks."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(handler)
    root.setLevel(level)
