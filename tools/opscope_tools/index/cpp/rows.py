"""What one C, C++ or CUDA file defines, as plain rows in source order.

Rows hold text and lines only and depend on the file's bytes alone, so that they may be kept on disk under their digest.
"""

from __future__ import annotations

from typing import NamedTuple

#: kinds whose members are rows with `scope` set to their qualified name
CLASS_KINDS = frozenset({"class", "struct", "union"})
TYPE_KINDS = CLASS_KINDS | {"enum", "alias"}


class CppRow(NamedTuple):
    """A definition or declaration.

    `kind`: namespace, class, struct, union, enum, function, macro, alias (`typedef`, `using X =`, `namespace X =`) or
    concept. `scope` is the qualified name of what it stands in (`at::native`), as far as this file tells; a function
    that is defined outside of its class stands in the class. `line` is that of the keyword of a type and of the name of
    a function; `first_line` is where the declaration begins, template and attributes included. Lines are 1-based.
    """

    kind: str
    name: str
    scope: str
    line: int
    first_line: int
    end_line: int
    #: False for a forward declaration, and for a function without a body
    definition: bool
    #: as written, access included: `public Base<T>`
    bases: tuple[str, ...] = ()
    #: the text between the angles of `template <...>`; None where it is no template, `` for a full specialisation
    template: str | None = None
    #: template arguments of a specialisation, `<int, 4>`
    arguments: str = ""
    #: a function's text without its body; a macro's parameters and body; the text of an alias
    signature: str = ""
    #: `__global__`, `inline`, `virtual`, export macros and the like, in source order
    attributes: tuple[str, ...] = ()
    #: the preprocessor conditions that it stands under, joined by ` && `
    condition: str = ""
    #: of a member: public, protected or private
    access: str = ""

    @property
    def qualified_name(self) -> str:
        """Scope and name (`at::native::copy`), without template arguments."""
        return f"{self.scope}::{self.name}" if self.scope else self.name
