"""The one error tree.

Whatever a user can put right is an `OpscopeError`: its message is one clear sentence, `next_step` says what to do, and
`location` points at the source line concerned. Everything else that escapes is a bug. Order: the root, what the user
gave us, what we found in source, what happened while tracing, what stopped us.
"""

from __future__ import annotations

from collections.abc import Sequence


class OpscopeError(Exception):
    """Root of every foreseeable failure; `str()` is the whole message a user or an agent reads."""

    def __init__(self, message: str, *, next_step: str = "", location: str = "") -> None:
        self.message = message.rstrip()
        self.next_step = next_step
        self.location = location
        super().__init__(message)

    def __str__(self) -> str:
        text = f"{self.message} ({self.location})" if self.location else self.message
        return f"{text} {self.next_step}" if self.next_step else text


class InputError(OpscopeError, ValueError):
    """An argument that cannot be taken as it is."""


class UnknownNameError(InputError):
    """No class, model type, kernel or repository of that name; carries the nearest names.

    >>> str(UnknownNameError("model type", "lama", ["llama", "llama4"]))
    "No model type is called 'lama'. Nearest names: llama, llama4."
    """

    def __init__(self, kind: str, name: str, nearest: Sequence[str] = (), *, next_step: str = "") -> None:
        self.kind = kind
        self.name = name
        self.nearest = list(nearest)
        hint = " ".join((f"Nearest names: {', '.join(nearest)}." if nearest else "", next_step)).strip()
        super().__init__(f"No {kind} is called {name!r}.", next_step=hint)


class AmbiguousNameError(InputError):
    """A name that several definitions bear; carries the names that tell them apart."""

    def __init__(self, kind: str, name: str, candidates: Sequence[str]) -> None:
        self.kind = kind
        self.name = name
        self.candidates = list(candidates)
        shown = ", ".join(candidates[:8]) + (f" and {len(candidates) - 8} more" if len(candidates) > 8 else "")
        super().__init__(
            f"{len(candidates)} {kind} definitions are called {name!r}.", next_step=f"Name one of: {shown}."
        )


class ConfigError(InputError):
    """A configuration file or override that the model's config class refuses."""


class ValuesError(InputError):
    """Variable values that are missing, negative, or outside the conditions of a formula."""


class PathRefusedError(InputError):
    """A path outside the registered repositories or the output folder."""


class OutputError(OpscopeError, OSError):
    """A file that could not be written; nothing was left half-written."""


class SourceError(OpscopeError):
    """Source that cannot be read, or does not hold what was asked of it."""


class TraceError(OpscopeError):
    """A model that could not be traced; says where tracing stopped."""


class WorkerError(TraceError):
    """The tracing process died, ran out of its memory or over its time."""


class CancelledError(OpscopeError):
    """The caller cancelled, or the call's deadline came; the work was stopped."""


class DeadlineError(OpscopeError):
    """The call took longer than calls of its kind may; the work was stopped."""


class BusyError(OpscopeError):
    """Too many calls of this kind are under way; nothing was begun."""
