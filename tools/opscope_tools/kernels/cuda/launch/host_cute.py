"""What CuTe's reader asks of a host function that is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from opscope_tools.kernels.cuda.cute.values import is_cute
from opscope_tools.kernels.cuda.launch.host_values import State
from opscope_tools.kernels.cuda.names.element_types import element_bits
from opscope_tools.kernels.cuda.names.values import Type, Value, named_type, pointer
from opscope_tools.kernels.cuda.source_text import squeeze
from opscope_tools.kernels.cuda.syntax.nodes import Name, Node, TypeName, spelled
from opscope_tools.kernels.values.expressions import Expression


class Run(Protocol):
    """The run of a host function."""

    state: State
    #: types by their aliases, as written
    aliases: dict[str, str]

    @property
    def parameters(self) -> Sequence[tuple[TypeName, str]]:
        """Of the outermost function."""

    def value(self, node: Node) -> Any:
        """What an expression comes to."""

    def formula_of(self, text: str) -> Any:
        """The formula of a text."""


class HostAround:
    """The host function around one of CuTe's expressions."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def named(self, name: str) -> Any:
        """What a variable holds, where that is one of CuTe's values."""
        found = self.run.state.find(name)
        return found.value if found is not None and is_cute(found.value) else None

    def declared(self, name: str) -> bool:
        """Whether a variable is called so here."""
        return self.run.state.find(name) is not None

    def scalar(self, node: Node) -> Any:
        """A number or a formula; one of CuTe's values where the run has made it one."""
        found = self.run.value(node)
        return found if isinstance(found, int | Expression) or is_cute(found) else None

    def constant(self, text: str) -> Any:
        """The number that an argument of a template spells, with what is known of its names."""
        if re.fullmatch(r"[\w:\s+*/%()-]+", text) is None:
            return None
        found = self.run.formula_of(text)
        return found if isinstance(found, int | Expression) else None

    def pointer(self, node: Node, space: str) -> Value:
        """An address that the host hands on: of the type that a parameter declares, else of one that is not told."""
        kinds = {name: kind for kind, name in self.run.parameters if kind.pointers == 1}
        kind = kinds.get(node.text) if isinstance(node, Name) else None
        name = kind.name if kind is not None and not kind.arguments else "T"
        element = named_type(name) or Type("generic", name, f"sizeof({name})")
        return Value(pointer(element), space=space or "global", origin=(squeeze(spelled(node)),))

    def type(self, text: str) -> str:
        """What an alias of the function stands for, as written."""
        return self.run.aliases.get(text.strip(), text)

    def bits(self, text: str) -> int | None:
        """Of an element, by the name of its type."""
        return element_bits(text)


__all__ = ["HostAround"]
