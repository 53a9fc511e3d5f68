"""What the parts of the interpreter share: its state, the journal of changes, and lookups of names and classes.

The parts build on one another: base (here), objects.py (attributes and calls), expressions.py, statements.py; the
methods that a part below needs from one above are declared at the end of this class.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Sequence
from typing import Any

from opscope_tools.index.names.torch_modules import MODULE
from opscope_tools.index.objects.values import (
    MISSING,
    ClassValue,
    FieldValue,
    Frame,
    FunctionValue,
    Instance,
    ModuleValue,
    Native,
    OfClass,
    Property,
    RaisedError,
    Static,
    Unknown,
)
from opscope_tools.source.python import syntax as code
from opscope_tools.source.python.names import ClassSymbol, Found, Resolver
from opscope_tools.source.python.repository import SourceTree, Unit
from opscope_tools.source.python.rows import AssignRow, ClassRow, FunctionRow, ImportRow, Row

_CONTAINER = re.compile(r"torch\.nn\.(?:\w+\.)*(ModuleList|Sequential|ModuleDict)")
#: how deep calls may nest, and how many expressions one question may evaluate
DEPTH = 40
#: how deep calls are followed in a branch that is not, or not surely, taken
BRANCH_DEPTH = 1
STEPS = 400_000
#: what one call of a function may take of that: tables of numbers are computed there
CALL_STEPS = 60_000


class Base:
    """State and lookups. What was read and evaluated of files is kept from one question to the next; `reset` forgets
    the objects."""

    def __init__(self, resolver: Resolver, home: SourceTree) -> None:
        self.resolver = resolver
        self.home = home
        self.strict = (
            False  # whether what may not have run counts as undecided: for values, where a likely one will not do
        )
        self.deep = False  # whether the constructors of the modules that are made run as well
        self.exhausted = False
        self.failures = 0
        self.live: bool | None = True
        self.depth = 0
        self.branch = 0
        self.trying = 0
        self.steps = 0
        self.limit = self.ceiling = STEPS
        self.made = 0
        self.serial = 0
        self.changes = 0
        self._absent: set[tuple[int, str]] = set()
        self.journals: list[dict[int, tuple[Any, Any]]] = []
        self.units: dict[int, Unit] = {}
        self.log: list[Instance] = []  # the modules built so far
        self.models: dict[int, Any] = {}  # what was read off whole models, by class
        self.frames: list[Frame] = []
        self._classes: dict[tuple[int, str, int], ClassValue] = {}
        self._globals: dict[tuple[int, str], Any] = {}
        self._modules: dict[int, ModuleValue] = {}
        self._memo: dict[Any, tuple[Instance, list[Instance], Any, Any]] = {}
        self._evaluating: set[tuple[int, str]] = set()
        self._amendments: set[tuple[int, int]] = set()
        #: statements that could not be followed, with the object (no module) that they might have changed
        self.lost: list[tuple[ast.stmt, Instance]] = []

    def reset(self) -> None:
        """Forget the objects of the last question."""
        self.deep = self.exhausted = False
        self.live, self.depth, self.branch, self.trying = True, 0, 0, 0
        self.steps = 0
        self.journals.clear()
        self.frames.clear()
        self.log.clear()
        self.lost.clear()
        self._memo.clear()

    def allow(self) -> None:
        """Let the next part of a question take as many steps as one may."""
        self.limit = self.ceiling = self.steps + STEPS

    # changes: every container (attributes, locals, lists, dicts) is noted before it changes while a branch is tried

    def touch(self, container: Any) -> None:
        if self.journals:
            journal = self.journals[-1]
            if id(container) not in journal:
                journal[id(container)] = (container, container.copy())

    def begin(self) -> None:
        self.journals.append({})

    def end(self, *, undo: bool) -> list[tuple[Any, Any, Any]]:
        """(container, content before, content after) of what changed since `begin`."""
        journal = self.journals.pop()
        changed = []
        outer = self.journals[-1] if self.journals else None
        for key, (container, before) in journal.items():
            changed.append((container, before, container.copy()))
            if undo:
                restore(container, before)
            elif outer is not None and key not in outer:
                outer[key] = (container, before)
        return changed

    # names

    def name(self, unit: Unit, name: str, before: int = 0) -> Any:
        """What a name of the module means (where `before` is given and the name is being assigned: as seen from that
        line); MISSING where nothing binds it."""
        key = (id(unit), name)
        if key in self._globals:
            return self._globals[key]
        if key in self._evaluating:
            earlier = self.resolver.lookup(unit, name, before) if before else None
            if earlier is None or earlier.row is None or (earlier.unit is unit and earlier.row.line >= before):
                return Unknown(name)
            return self._amended(unit, name, self.found(earlier, name), before)
        self._evaluating.add(key)
        self.units[id(unit)] = unit
        try:
            value = self.found(self.resolver.lookup(unit, name), name)
        finally:
            self._evaluating.discard(key)
        if value is MISSING:
            value = self.builtin(name)
        self._globals[key] = value
        return self._amended(unit, name, value)

    def _amended(self, unit: Unit, name: str, value: Any, before: int = 0) -> Any:
        """A table after the module's own statements have added to it (`TABLE.update(...)`, `TABLE[key] = ...`)."""
        if not isinstance(value, dict | list) and not (isinstance(value, Instance) and value.data is not None):
            return value
        known = self._globals.get((id(unit), name), MISSING)
        for line, statement in code.additions(unit, name):
            if (before and line >= before) or (id(unit), line) in self._amendments:
                continue
            self._amendments.add((id(unit), line))
            self._globals[id(unit), name] = value
            journals, self.journals = self.journals, []
            live, self.live = self.live, True
            try:
                self.block(statement.body, Frame(unit, statement, {}))
            except RaisedError:
                pass
            finally:
                self.journals, self.live = journals, live
                if known is MISSING:
                    self._globals.pop((id(unit), name), None)
        return value

    def found(self, found: Found | None, name: str) -> Any:
        if found is None:
            return MISSING
        if found.symbol is not None:
            return self.class_value(found.symbol)
        if found.kind == "module" and found.unit is not None:
            return self.module_value(found.unit)
        unit, row = found.unit, found.row
        if unit is None or row is None:
            return self.external(found.name)
        self.units[id(unit)] = unit
        if isinstance(row, FunctionRow):
            return self.function_value(unit, row)
        if isinstance(row, AssignRow):
            return self.global_value(unit, row, found.name)
        return Unknown(name, name=found.name)

    def module_value(self, unit: Unit) -> ModuleValue:
        self.units[id(unit)] = unit
        return self._modules.setdefault(id(unit), ModuleValue(unit))

    def function_value(self, unit: Unit, row: FunctionRow) -> Any:
        native = self.native(f"{unit.name}.{row.name}")
        if native is not MISSING:
            return native
        parsed = code.function(unit, row)
        return FunctionValue(parsed) if parsed is not None else Unknown(row.name)

    def global_value(self, unit: Unit, row: AssignRow, qualified: str) -> Any:
        """A module-level assignment, evaluated once."""
        if (
            row.guard.type_checking
        ):  # declared for type checkers alone: what the name is at run time comes from elsewhere
            return Unknown(row.name, name=qualified)
        native = self.native(qualified)
        if native is not MISSING:
            return native
        key = (id(unit), f"{row.name}:{row.line}")
        if key in self._globals:
            return self._globals[key]
        if key in self._evaluating:
            return Unknown(row.name)
        plain_key = (id(unit), row.name)
        outer = plain_key in self._evaluating
        self._evaluating |= {key, plain_key}
        journals, self.journals = self.journals, []
        live, self.live = self.live, True
        try:
            parsed = code.value(unit, row)
            value = (
                self.ev(parsed.node, Frame(unit, parsed, {}, before=row.line))
                if parsed is not None
                else Unknown(row.name)
            )
        except RaisedError:
            value = Unknown(row.name)
        finally:
            self.journals, self.live = journals, live
            self._evaluating.discard(key)
            if not outer:
                self._evaluating.discard(plain_key)
        if isinstance(value, Unknown):
            value.name = value.name or qualified
        self._globals[key] = value
        return self._amended(unit, row.name, value)

    def builtin(self, name: str) -> Any:
        native = self.native(f"builtins.{name}")
        if native is not MISSING:
            return native
        value = getattr(builtins, name, MISSING)
        if isinstance(value, type):
            return value
        return MISSING if value is MISSING else Unknown(name, name=name)

    # classes

    def class_value(self, symbol: ClassSymbol) -> ClassValue:
        key = (id(symbol.unit), symbol.path, symbol.line)
        value = self._classes.get(key)
        if value is None:
            value = self._classes[key] = ClassValue(symbol)
            self.units[id(symbol.unit)] = symbol.unit
            order = self.resolver.mro(symbol)
            for base in reversed(order[1:]):  # the furthest first: one call inside another for every class is too many
                if not isinstance(base, str) and not base.same(symbol):
                    self.class_value(base)
            for base in order:
                known = value if not isinstance(base, str) and base.same(symbol) else base
                value.mro.append(known if isinstance(known, str | ClassValue) else self.class_value(known))
            self._fill(value)
        return value

    def _fill(self, cls: ClassValue) -> None:
        unit = cls.symbol.unit
        for row in cls.symbol.row.body:
            if isinstance(row, FunctionRow):
                self._method(cls, row)
            else:
                cls.space[row.name] = row
        self.units[id(unit)] = unit

    def _method(self, cls: ClassValue, row: FunctionRow) -> None:
        names = [text.split("(", 1)[0].rpartition(".")[2] for text in row.decorators]
        if "overload" in names:
            return
        function: Any = _Unread(row)
        if "property" in names or "cached_property" in names or "classproperty" in names:
            cls.space[row.name] = Property(function, None, "classproperty" in names)
        elif "setter" in names or "deleter" in names:
            known = cls.space.get(row.name)
            if isinstance(known, Property):
                cls.space[row.name] = Property(known.getter, function if "setter" in names else known.setter)
            else:
                cls.space[row.name] = Property(None, function)
        elif "staticmethod" in names:
            cls.space[row.name] = Static(function)
        elif "classmethod" in names or row.name in {"__init_subclass__", "__class_getitem__"}:
            cls.space[row.name] = OfClass(function)
        else:
            cls.space[row.name] = function

    def own(self, cls: ClassValue, name: str) -> Any:
        """What the class's own body (or what was set on it) binds to the name, ready to use; else MISSING."""
        if name in cls.added:
            return cls.added[name]
        value = cls.space.get(name, MISSING)
        if value is MISSING:
            return MISSING
        ready = self._ready(cls, name, value)
        if ready is not value:
            cls.space[name] = ready
        return ready

    def _ready(self, cls: ClassValue, name: str, value: Any) -> Any:
        kind = type(value)
        if kind is _Unread:
            parsed = code.function(cls.symbol.unit, value.row)
            return FunctionValue(parsed, None, cls) if parsed is not None else Unknown(name)
        if kind is Property:
            for part in ("getter", "setter"):
                inner = getattr(value, part)
                if type(inner) is _Unread:
                    setattr(value, part, self._ready(cls, name, inner))
            return value
        if kind is Static or kind is OfClass:
            if type(value.function) is _Unread:
                value.function = self._ready(cls, name, value.function)
            return value
        if isinstance(value, AssignRow):
            return self._class_assignment(cls, name, value)
        if isinstance(value, ClassRow):
            symbol = ClassSymbol(cls.symbol.unit, f"{cls.symbol.path}.{value.name}", value)
            return self.class_value(symbol)
        if isinstance(value, ImportRow):
            return self.name(cls.symbol.unit, name)
        return value

    def _class_assignment(self, cls: ClassValue, name: str, row: AssignRow) -> Any:
        if not row.value:
            return MISSING
        parsed = code.value(cls.symbol.unit, row)
        if parsed is None:
            return Unknown(name)
        frame = Frame(cls.symbol.unit, parsed, {}, holder=cls)
        frame.closure = Frame(cls.symbol.unit, parsed, _ClassSpace(self, cls, name))
        journals, self.journals = self.journals, []
        live, self.live = self.live, True
        cls.space[name] = Unknown(name)  # while it is evaluated
        try:
            declared = self._declared(cls, parsed.node, frame)
            return declared if declared is not None else self.ev(parsed.node, frame)
        except RaisedError:
            return Unknown(name)
        finally:
            self.journals, self.live = journals, live

    def _declared(self, cls: ClassValue, node: ast.expr, frame: Frame) -> FieldValue | None:
        """What `specifier(default=...)` says of a field: whatever the specifier checks, that is what it sets. None where
        the expression is no specifier."""
        if not isinstance(node, ast.Call) or not self._specifies(cls, node):
            return None
        for keyword in node.keywords:
            if keyword.arg == "default":
                return FieldValue(MISSING if _is_ellipsis(keyword.value) else self.ev(keyword.value, frame), MISSING)
            if keyword.arg in {"default_factory", "factory"}:
                return FieldValue(MISSING, self.ev(keyword.value, frame))
        if any(keyword.arg is None for keyword in node.keywords):
            return FieldValue(Unknown(ast.unparse(node)), MISSING)
        first = node.args[0] if node.args else None
        return FieldValue(MISSING if first is None or _is_ellipsis(first) else self.ev(first, frame), MISSING)

    def _specifies(self, cls: ClassValue, node: ast.Call) -> bool:
        """Whether a call declares a field: by its name, or a function of the source that is decorated or written so."""
        if isinstance(node.func, ast.Call):  # `interval(min=0)(default=8)`: a validator that makes specifiers
            return any(keyword.arg in {"default", "default_factory"} for keyword in node.keywords)
        text = ast.unparse(node.func)
        if text.rpartition(".")[2] in _SPECIFIERS:
            return True
        if not all(part.isidentifier() for part in text.split(".")):
            return False
        found = self.resolver.dotted(cls.symbol.unit, text)
        if found is not None and isinstance(found.row, AssignRow) and found.row.value.endswith(")"):
            return any(keyword.arg in {"default", "default_factory"} for keyword in node.keywords)
        if found is None or found.unit is None or not isinstance(found.row, FunctionRow):
            return False
        if any("field" in decorator for decorator in found.row.decorators):
            return True
        parsed = code.function(found.unit, found.row)
        returned = [n.value for n in ast.walk(parsed.node) if isinstance(n, ast.Return)] if parsed is not None else []
        return bool(returned) and all(
            isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in _SPECIFIERS
            for value in returned
        )

    def member(self, cls: ClassValue, name: str, after: ClassValue | None = None) -> tuple[ClassValue | None, Any]:
        """(holder, value) of the first class of the MRO that binds the name; `after`: as `super()` of that class."""
        passed = after is None
        for holder in cls.mro:
            if isinstance(holder, str):
                continue
            if passed:
                value = self.own(holder, name)
                if value is not MISSING:
                    return holder, value
            elif holder is after:
                passed = True
        return None, MISSING

    def is_a(self, cls: ClassValue, qualified: str) -> bool:
        known: bool | None = cls.kinds.get(qualified)
        if known is None:
            known = cls.kinds[qualified] = any(
                (base if isinstance(base, str) else base.qualified_name) == qualified for base in cls.mro
            )
        return known

    def is_module(self, cls: ClassValue) -> bool:
        """Whether the class is a torch.nn.Module, as far as source tells."""
        return self.is_a(cls, MODULE) or self.is_a(cls, "torch.nn.Module")

    def container(self, cls: ClassValue) -> str:
        """`ModuleList`, `Sequential` or `ModuleDict` where the class is one of them."""
        known: str | None = cls.kinds.get("")
        if known is None:
            names = [base if isinstance(base, str) else base.qualified_name for base in cls.mro]
            found = [match[1] for name in names if (match := _CONTAINER.fullmatch(name))]
            known = cls.kinds[""] = found[0] if found else ""
        return known

    # of the parts above

    def ev(self, node: ast.expr, frame: Frame) -> Any:
        raise NotImplementedError

    def full(self, node: ast.expr, frame: Frame) -> Any:
        raise NotImplementedError

    def block(self, statements: Sequence[ast.stmt], frame: Frame) -> int:
        raise NotImplementedError

    def run(self, function: FunctionValue, args: tuple[Any, ...], kwargs: dict[str, Any], this: Any = None) -> Any:
        raise NotImplementedError

    def native(self, name: str) -> Any:
        raise NotImplementedError

    def external(self, name: str) -> Any:
        native = self.native(name)
        return Unknown(name.rpartition(".")[2], name=name) if native is MISSING else native


#: functions that declare a field, as dataclasses, pydantic, attrs and msgspec call them
_SPECIFIERS = frozenset({"field", "Field", "ib", "attrib", "PrivateAttr"})


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is ...


class _Unread:
    """A method that nothing has asked for yet."""

    __slots__ = ("row",)

    def __init__(self, row: FunctionRow) -> None:
        self.row = row


class _ClassSpace(dict[str, Any]):
    """The names of a class body as an expression of that body sees them."""

    def __init__(self, machine: Base, cls: ClassValue, leave: str) -> None:
        super().__init__()
        self._machine, self._cls, self._leave = machine, cls, leave

    def __contains__(self, name: object) -> bool:
        return name in self._cls.space and name != self._leave

    def __getitem__(self, name: str) -> Any:
        value = self._machine.own(self._cls, name)
        return Unknown(name) if value is MISSING else value


def restore(container: Any, content: Any) -> None:
    """Put the content back in place."""
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


Act = Callable[[], Any]
__all__ = ["DEPTH", "MODULE", "Act", "Base", "Native", "Row", "restore"]
