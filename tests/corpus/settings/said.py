"""What is raised by name, and what tests of the device lead to. `expect` gives class and words of the raise below it."""

import warnings

import torch


def plain(size):
    error = ValueError("size must be even")
    if size % 2:
        # expect: ValueError | size must be even
        raise error


def in_words(size, name):
    message = f"{name} is {size}"
    message += ", which is odd"
    if size % 2:
        # expect: ValueError | {name} is {size} , which is odd
        raise ValueError(message)


def by_branch(size):
    if size > 8:
        problem = ValueError("too large")
    elif size < 0:
        problem = TypeError("too small")
    else:
        return size
    # expect: ValueError or TypeError | too large / too small
    raise problem


def overwritten(size):
    error = ValueError("never seen")
    error = KeyError("seen")
    # expect: KeyError | seen
    raise error from None


def caught(size):
    try:
        size()
    except (OSError, ValueError) as problem:
        # expect: (OSError, ValueError) |
        raise problem


def given(error):
    # expect: error |
    raise error


def hidden(size):
    text = "outer"

    def inner(text):
        # expect: ValueError | text
        raise ValueError(text)

    inner(size)
    # expect: ValueError | outer
    raise ValueError(text)


def on_the_device(x):
    if torch.cuda.get_device_capability()[0] < 9:
        raise RuntimeError("needs " + "sm_90")
    fast = torch.cuda.is_available() and x.is_cuda
    if not x.is_cuda:
        warnings.warn("runs slowly")
    if x.dtype != torch.bfloat16:
        raise TypeError(f"{x.dtype} is not bfloat16")
    return fast and torch.cuda.device_count() > 1
