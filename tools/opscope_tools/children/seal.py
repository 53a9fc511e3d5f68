"""Loads a filter of system calls into this process. Standard library only: it also runs in other interpreters.

Call it before any thread is started: a filter holds for the thread that loads it and those that it starts.
"""

from __future__ import annotations

import ctypes
import struct

__all__ = ["seal"]

_PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _FILTER_MODE = 22, 38, 2
#: size of the kernel's `struct sock_filter`
_INSTRUCTION = 8


def seal(instructions: bytes) -> None:
    """Load the filter for good; raises `OSError` where the kernel refuses it."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    held = ctypes.create_string_buffer(instructions, len(instructions))
    # struct sock_fprog: how many instructions, and where they are
    program = struct.pack("HP", len(instructions) // _INSTRUCTION, ctypes.addressof(held))
    unused = ctypes.c_ulong(0)
    if prctl(_PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), unused, unused, unused) or prctl(
        _PR_SET_SECCOMP, ctypes.c_ulong(_FILTER_MODE), ctypes.create_string_buffer(program), unused, unused
    ):
        raise OSError(ctypes.get_errno(), "the kernel took no filter of system calls")
