"""The interpreter: its parts, each made once and handed those that it needs."""

from __future__ import annotations

from typing import Any

from opscope_tools.index.objects.attributes import Attributes
from opscope_tools.index.objects.branches import Branches
from opscope_tools.index.objects.calls import Calls
from opscope_tools.index.objects.classes import Classes, Names
from opscope_tools.index.objects.expressions import Expressions
from opscope_tools.index.objects.literals import Literals
from opscope_tools.index.objects.operations import Operations
from opscope_tools.index.objects.records import Records
from opscope_tools.index.objects.state import State
from opscope_tools.index.objects.statements import Statements
from opscope_tools.source.python.names import Resolver
from opscope_tools.source.python.repository import SourceTree


class Interpreter:
    """A part knows those made before it, and of the others one method each (parts.py), which it finds here."""

    def __init__(self, resolver: Resolver, home: SourceTree) -> None:
        self.state = state = State()
        self.names = names = Names(resolver, home, state, self, self)
        self.classes = classes = Classes(names, state, self)
        self.records = records = Records(resolver, classes)
        self.operations = operations = Operations(classes, self)
        self.attributes = attributes = Attributes(names, classes, records, operations, state, self)
        self.calls = calls = Calls(names, classes, records, attributes, state, self, self, self)
        self.expressions = expressions = Expressions(names, operations, attributes, calls, state)
        expressions.handlers |= Literals(expressions, operations, state).handlers()
        branches = Branches(expressions, state, self)
        statements = Statements(names, operations, attributes, calls, expressions, branches, state)
        self.call, self.full, self.block = calls.call, expressions.full, statements.block
        self.models: dict[int, Any] = {}  # what was read off whole models, by class
