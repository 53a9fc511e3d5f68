"""What one pass over a file keeps: where its kernels, launches, macros and unread kernels are.

These are the cached values, so they hold positions and names only; descriptions are worked out from the source again.
"""

from __future__ import annotations

from opscope_schemas.common import Frozen
from opscope_schemas.errors import SourceError
from opscope_schemas.tiling import Language, Unanalysed


class KernelRef(Frozen):
    """A kernel or device function, where it is defined."""

    name: str
    language: Language
    role: str
    file: str
    line: int
    end_line: int
    macro: str = ""
    #: of a class that is a kernel, the member that runs
    entry: str = ""

    @property
    def id(self) -> str:
        """`path::name`."""
        return f"{self.file}::{self.name}"

    def moved(self) -> SourceError:
        """The error of a file that no longer holds the kernel where the inventory says."""
        return SourceError(
            f"{self.name} is no longer where it was found.", location=f"{self.file}:{self.line}",
            next_step="Call again: the repository changed while it was read.",
        )  # fmt: skip


class LaunchRef(Frozen):
    """A launch site; `callees` are the names it may launch."""

    callees: tuple[str, ...]
    file: str
    line: int
    #: where in its line it stands, which several may share; -1 where nobody asks
    column: int = -1
    #: the language whose way of launching it is, where only one has it
    language: str = ""
    #: dotted name that the first callee was imported from, where it was
    imported_from: str = ""


class MacroRef(Frozen):
    """A preprocessor macro with parameters, or an object macro (`parameters` is None)."""

    name: str
    parameters: tuple[str, ...] | None
    body: str
    file: str
    line: int


class WrapperRef(Frozen):
    """A host function, or a macro with this body, that launches its parameter number `kernel`."""

    name: str
    parameters: tuple[str, ...]
    kernel: int
    file: str
    line: int
    macro: str = ""
    #: whether it takes any number of arguments behind its parameters
    variadic: bool = False
    #: where its launch stands in the file
    position: int = 0


class PickerRef(Frozen):
    """A host function that chooses a kernel: the names that it may return, other choosers among them."""

    name: str
    names: tuple[str, ...]


class FileFacts(Frozen):
    """Everything found in one file."""

    kernels: tuple[KernelRef, ...] = ()
    launches: tuple[LaunchRef, ...] = ()
    pickers: tuple[PickerRef, ...] = ()
    not_analysed: tuple[Unanalysed, ...] = ()
    note: str = ""


class Inventory(Frozen):
    """Everything found in one repository."""

    repository: str
    kernels: tuple[KernelRef, ...]
    launches: tuple[LaunchRef, ...]
    #: small macros that size expressions may use, and macros that compute indices
    macros: tuple[MacroRef, ...]
    #: object macros that stand for `__global__`, and function macros that write a kernel with it
    global_objects: tuple[str, ...]
    global_functions: tuple[MacroRef, ...]
    #: functions and macros that launch a kernel that they are given
    wrappers: tuple[WrapperRef, ...]
    not_analysed: tuple[Unanalysed, ...]
    notes: tuple[str, ...]
    files_read: int
    #: CUDA files that hold kernels, device functions or launches
    cuda_files: tuple[str, ...] = ()
