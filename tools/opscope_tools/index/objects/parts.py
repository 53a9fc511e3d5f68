"""What a part of the interpreter knows of those that are made after it: one method each, fulfilled by the interpreter."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Protocol

from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.values import Args, Frame, Instance, Kwargs


class Evaluation(Protocol):
    """Evaluates expressions, for parts that must not know how."""

    def full(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression, its alternatives kept."""


class Execution(Protocol):
    """Runs statements, for parts that must not know how."""

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> int:
        """Run statements; says how they ended."""


class Calling(Protocol):
    """Calls functions of the source, for parts that must not know how."""

    def call(self, function: Any, args: Args, kwargs: Kwargs) -> Any:
        """`function(*args, **kwargs)`; arguments may be choices."""


class Access(Protocol):
    """Attributes, for the methods of torch's containers."""

    state: State

    def get(self, value: Any, name: str) -> Any: ...
    def put(self, this: Any, name: str, value: Any) -> None: ...
    def own_copy(self, this: Instance) -> None: ...
