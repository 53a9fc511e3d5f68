"""What the index answers about a definition in C, C++ or CUDA beside its place. Text is as written, on one line."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from opscope_schemas.common import Frozen


class CppMethod(Frozen):
    """A function that the body of a class declares or defines."""

    name: str
    line: int
    signature: str = ""
    access: str = ""
    defined_here: bool = Field(default=False, description="Has its body here; else it is defined elsewhere or not.")


class CppPlace(Frozen):
    """Another place where the same name is declared or defined."""

    file: str
    line: int
    definition: bool


class CppFacts(Frozen):
    """What only a definition in C++ or CUDA has."""

    promised: ClassVar[tuple[str, ...]] = ("arguments",)

    definition: bool = Field(default=True, description="False: no file that was read defines it; this declares it.")
    template: str | None = Field(default=None, description="Template parameters; empty: a full specialisation.")
    arguments: str = Field(default="", description="The arguments that it specialises a template for.")
    signature: str = Field(default="", description="Of a function its head, of a macro what stands behind its name.")
    attributes: tuple[str, ...] = Field(default=(), description="`__global__`, `inline`, `virtual`, export macros.")
    access: str = Field(default="", description="public, protected or private, of a member.")
    bases_as_written: tuple[str, ...] = ()
    methods: tuple[CppMethod, ...] = Field(default=(), description="The first of them.")
    method_count: int = 0
    elsewhere: tuple[CppPlace, ...] = Field(
        default=(), description="Declarations and other definitions of the qualified name; the first of them."
    )
    elsewhere_count: int = 0
