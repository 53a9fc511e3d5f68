"""Ends a thread that does not stop when it is told to: an exception that the interpreter raises in it from outside.

A tool is told to stop by its context's event, and long work looks at it often. A loop that does not look would run until the
process ends, and would slow every other call by the share of the interpreter that it takes; Python cannot kill a thread, but
it can raise in one (`PyThreadState_SetAsyncExc`) between two of its instructions. What speaks against it, and why it is
done here all the same:

- It may hit code that holds something. `with lock:` over a plain lock takes it in one instruction, so such locks are let go; what
  takes one by a call (`acquire()`, then `try`) can lose it in the one instruction between, and a loop that does so without
  ever looking at its event is not known here. SQLite's connections belong to their thread, and a transaction that a
  thread leaves open is rolled back when the thread ends, which is at once. What was half built in memory and is shared by later
  calls is forgotten (`engines.forget_indexes`).
- It may be swallowed by code that catches everything. It is no `Exception`, so only `except BaseException` without `raise`
  can, or a finaliser; it is sent three times.
- It does not reach a thread that waits in C for something that never comes; such a thread takes no share of the interpreter.

It is the last resort: only a call whose answer has been given (its deadline came, or nobody waits for it any more) and that has
ignored its event for the whole grace is interrupted, and never outside the tool's own code.
"""

from __future__ import annotations

import ctypes

_RAISE = ctypes.pythonapi.PyThreadState_SetAsyncExc
_RAISE.argtypes = (ctypes.c_ulong, ctypes.py_object)
_RAISE.restype = ctypes.c_int
#: the same function, for what takes an exception back that has not been raised yet
_WITHDRAW = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class Interrupted(BaseException):
    """Raised from outside in a thread that ignored its deadline."""


def interrupt(thread: int) -> None:
    """Have `Interrupted` raised in the thread of that identity, before its next instruction."""
    _RAISE(thread, Interrupted)


def withdraw(thread: int) -> None:
    """Take back an interruption that has not been raised yet."""
    _WITHDRAW(thread, None)
