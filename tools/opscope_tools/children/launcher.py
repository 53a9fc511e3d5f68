"""Runs first in every child: ties its life to ours, limits and cages it, then becomes the program that was asked for.

`PYTHON -I -S launcher.py SPECIFICATION PROGRAM ARGUMENT...`, run by path, with nothing on the search path but the standard
library. A kept program stays a child of the launcher, which takes in whatever that program leaves behind and ends all of it
when the program ends, when it is told to (SIGTERM), or when the process that started it is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import TypedDict

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
#: statuses for what goes wrong before the program runs, as shells give them
NOT_FOUND, NOT_STARTED = 127, 126
#: what a program may read about itself
_ABOUT_ONESELF = (
    "auxv", "cgroup", "cmdline", "comm", "environ", "fd", "limits", "maps", "smaps", "stat", "statm", "status", "task",
)  # fmt: skip
_WAITED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}


class DescribedCage(TypedDict):
    """A cage as it comes here: folders and files, the folder of landlockpy and the filter in hexadecimal digits, both
    empty where this machine cannot enforce them."""

    landlock: str
    read: list[str]
    write: list[str]
    execute: list[str]
    walls: str


class Specification(TypedDict):
    """What `starting.py` says of a child: `limits` by the names of module `resource`, `sealing` the folder of seal.py."""

    parent: int
    kept: bool
    limits: dict[str, int]
    nice: int
    cage: DescribedCage | None
    sealing: str


def main() -> None:
    """Become the command of the arguments, or stay above it where the specification says that it is kept."""
    specification: Specification = json.loads(sys.argv[1])
    command = sys.argv[2:]
    kept = specification["kept"]
    _end_with(specification["parent"], signal.SIGTERM if kept else signal.SIGKILL)
    if kept:
        _keep(command, specification)
    else:
        _become(command, specification)


def _end_with(parent: int, number: int) -> None:
    """Have the kernel send us a signal when the parent ends (Linux); end at once where that has happened already."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(NOT_STARTED)


# ---- becoming the program


def _become(command: list[str], specification: Specification) -> None:
    """Limits, then the cage, then the program; ends the process with a sentence on stderr where one of them fails."""
    try:
        for name, value in specification["limits"].items():
            _limit(getattr(resource, name, None), int(value))
        if specification["nice"]:
            os.nice(specification["nice"])
        if specification["cage"]:
            _enter(specification["cage"], specification["sealing"])
        os.execve(command[0], command, os.environ)
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror or error}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_STARTED)


def _limit(what: int | None, value: int) -> None:
    """Set a limit, or the highest that we may; a platform without it has none."""
    if what is None:
        return
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _enter(cage: DescribedCage, sealing: str) -> None:
    sys.path += [sealing, *filter(None, [cage["landlock"]])]
    from seal import seal  # type: ignore[import-not-found] # by its folder: opscope itself is not on the path here

    if cage["landlock"]:
        _confine(cage)
    if cage["walls"]:
        seal(bytes.fromhex(cage["walls"]))


def _confine(cage: DescribedCage) -> None:
    """Landlock: what the cage names may be read, written, run; nothing else, and no signal leaves the cage."""
    from landlockpy import AccessFS, Ruleset, Scope

    look = AccessFS.READ_FILE | AccessFS.READ_DIR
    change = (
        look | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.REMOVE_DIR | AccessFS.REMOVE_FILE | AccessFS.MAKE_DIR
        | AccessFS.MAKE_REG | AccessFS.MAKE_SYM | AccessFS.MAKE_FIFO | AccessFS.MAKE_SOCK | AccessFS.REFER
    )  # fmt: skip
    folderless = AccessFS.READ_FILE | AccessFS.WRITE_FILE | AccessFS.TRUNCATE | AccessFS.EXECUTE
    with Ruleset(scoped=Scope.ABSTRACT_UNIX_SOCKET | Scope.SIGNAL) as rules:
        # the program that we become has this number; what tells of the network and of mounts is left out
        own = [f"/proc/{os.getpid()}/{name}" for name in _ABOUT_ONESELF if Path(f"/proc/self/{name}").exists()]
        wanted = ((look, [*cage["read"], *own]), (change, cage["write"]), (look | AccessFS.EXECUTE, cage["execute"]))
        for access, paths in wanted:
            for path in paths:
                rules.allow_path(path, access if Path(path).is_dir() else access & folderless)
        rules.restrict()


# ---- keeping it


def _keep(command: list[str], specification: Specification) -> None:
    """Start the program as a child and end with it, after everything that it started."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    keeper = os.getpid()
    program = os.fork()  # this process has one thread
    if program == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        _end_with(keeper, signal.SIGKILL)
        _become(command, specification)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the program's alone: whoever reads them hears their end when the program closes them
        os.dup2(nothing, stream)
    status = _ended(program)
    _end_all()
    code = os.waitstatus_to_exitcode(status) if status is not None else -signal.SIGTERM
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else NOT_STARTED)


def _ended(program: int) -> int | None:
    """The program's wait status; None where we were told to end before it did."""
    while signal.sigwait(_WAITED) == signal.SIGCHLD:
        while True:
            try:
                gone, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return None
            if gone == program:
                return status
            if not gone:
                break
    return None


def _end_all() -> None:
    """Kill every descendant: stopped first, so that none starts another meanwhile, until there are none."""
    while below := _below():
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for one in below:
                _send(one, number)
        while True:
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    break
            except ChildProcessError:
                break


def _send(process: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


def _below() -> list[int]:
    """Every process that descends from this one, where /proc tells; zombies are reaped by their parent's end."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        process = waiting.pop()
        for listing in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                children = [int(one) for one in listing.read_text().split()]
            except OSError:
                continue
            found += children
            waiting += children
    return found


if __name__ == "__main__":
    main()
