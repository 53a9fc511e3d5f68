"""The terminal: stdout for answers, stderr for everything else, and how a command ends.

Order: consoles, progress of a running tool, `guarded` (every way in which a command can end, as an exit status).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import click
from opscope_schemas.errors import CancelledError, OpscopeError
from opscope_tools.running.tool import ProgressSink
from rich.console import Console

from opscope_clients import completing

#: between two lines about progress where there is no terminal
_SECONDS = 15.0
INTERRUPTED = 128 + signal.SIGINT
CLOSED_PIPE = 128 + 13  # SIGPIPE; the signal module lacks it on some platforms


def out() -> Console:
    """Where answers go. Without a terminal lines are not folded at 80: whoever reads them is a program."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, soft_wrap=not sys.stdout.isatty())


def say(text: str) -> None:
    """A line of an answer, folded to a terminal's width."""
    out().print(text, markup=False)


def emit(text: str) -> None:
    """Write a long text in pieces: an unbuffered stdout takes a short write for a whole one when its reader leaves."""
    for start in range(0, len(text), 1 << 15):
        sys.stdout.write(text[start : start + (1 << 15)])


def err() -> Console:
    """Where everything else goes."""
    return Console(stderr=True, highlight=False)


@contextlib.contextmanager
def progress(title: str) -> Iterator[ProgressSink]:
    """Shows what a running tool says about its progress; where there is no terminal, now and then of what takes long."""
    console = err()
    if not console.is_terminal:
        yield _seldom(title)
        return
    with console.status(title) as status:

        def sink(done: float, total: float | None, message: str) -> None:
            status.update(_line(title, done, total, message))

        yield sink


def _line(title: str, done: float, total: float | None, message: str) -> str:
    return f"{title}{f' {done:g}/{total:g}' if total else ''} {message}"


def _seldom(title: str) -> ProgressSink:
    """Progress without a terminal: standard error is then somebody's log, which gets a line in so many seconds."""
    last = time.monotonic()

    def sink(done: float, total: float | None, message: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _SECONDS:
            last = time.monotonic()
            err().print(f"opscope: {_line(title, done, total, message)}", markup=False)

    return sink


#: an argument of a tool as its sentences write it: a name in Python or JSON
_ARGUMENT = re.compile(r"(?<![-\w=.{'\"])([a-z_]+)=(?:'([\w.-]+)'|(true|True)\b)")


def as_options(text: str) -> str:
    """What a tool says of its arguments as a shell takes them: `logits='last'` is `--logits last`."""
    if not _ARGUMENT.search(text):
        return text
    known = completing.options()

    def option(found: re.Match[str]) -> str:
        value = f" {found[2]}" if found[2] else ""
        name = f"--{found[1].replace('_', '-')}"
        return f"{name}{value}" if name in known else found[0]

    return _ARGUMENT.sub(option, text)


def fail(message: str) -> None:
    """The one sentence on stderr."""
    sys.stderr.write(f"opscope: {as_options(message)}\n")


def guarded(run: Callable[[], int | None]) -> int:
    """Run a command. Exit status 1: a sentence on stderr says why; 2: usage; 130: interrupted; 141: closed pipe."""
    with contextlib.suppress(ValueError):  # not the main thread
        signal.signal(signal.SIGTERM, _terminated)
    try:
        status = run() or 0
        sys.stdout.flush()
        return status
    except OpscopeError as error:
        if isinstance(error, CancelledError):
            fail("interrupted.")
            return INTERRUPTED
        fail(str(error))
        return 1
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        fail(error.format_message())
        return error.exit_code
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, click.Abort):
        fail("interrupted.")
        return INTERRUPTED
    except BrokenPipeError:
        # the reader has gone; what is still buffered must not complain again at exit
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return CLOSED_PIPE


def _terminated(number: int, _frame: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C does, so that workers are ended and temporary files removed."""
    raise SystemExit(128 + number)


def folder(text: str | None) -> Path | None:
    """A folder option as a path."""
    return Path(text).expanduser() if text else None
