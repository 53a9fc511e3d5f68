"""What runs when an object is made, and which statements of it set which attribute.

`steps` follows `__init__`, `__post_init__` and their like through `super()`, through the object's own methods and
through property setters; each assignment to the object becomes a `Set` with the tests around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from opscope_tools.index.objects import ClassValue, Interpreter
from opscope_tools.index.objects.attributes import ACCESSORS
from opscope_tools.index.objects.values import FunctionValue, OfClass, Property, Static
from opscope_tools.source.python.rows import FunctionRow
from opscope_tools.source.python.syntax import Function
from opscope_tools.source.python.syntax import function as code_of

__all__ = ["Constructor", "Set", "Taken", "constructor"]

_HOOKS = ("__attrs_post_init__", "__post_init__", "model_post_init")
#: what may be called with the object as an argument and leaves it as it is
_HARMLESS = frozenset(
    "hasattr getattr isinstance issubclass type len id repr str print super setattr vars dir callable fields asdict is_dataclass".split()
)
_MOST = 60


@dataclass(frozen=True)
class Set:
    """`self.name = formula`; an empty name where the statement does not spell it out."""

    name: str
    formula: str
    condition: str
    within: str
    file: str
    line: int
    node: ast.expr | None = None


@dataclass(frozen=True)
class Taken:
    """A key that is looked up in the keyword arguments beside the parameters."""

    name: str
    file: str
    line: int


@dataclass
class Constructor:
    """Everything that was followed. `methods` are (class, function) in the order in which they were met."""

    methods: list[tuple[ClassValue, Function]] = field(default_factory=list)
    sets: list[Set] = field(default_factory=list)
    taken: list[Taken] = field(default_factory=list)
    #: calls out of the source that get the object itself: what they do to it is not known
    escapes: list[Set] = field(default_factory=list)
    #: fields that a validator may set before the object is made
    before: set[str] = field(default_factory=set)


def constructor(interpreter: Interpreter, cls: ClassValue) -> Constructor:
    """The constructor of a class, with the methods that finish a record."""
    reader = _Reader(interpreter, cls)
    holder, init = interpreter.classes.member(cls, "__init__")
    if isinstance(init, FunctionValue) and not interpreter.records.generates_init(cls, holder):
        reader.follow(holder, init)
    if interpreter.records.kind(cls):
        for name in (*_HOOKS, *interpreter.records.after_hooks(cls)):
            holder, hook = interpreter.classes.member(cls, name)
            if isinstance(hook, FunctionValue):
                reader.follow(holder, hook)
        reader.found.before = _set_before(cls)
    return reader.found


def _is_raw(row: FunctionRow) -> bool:
    """Whether pydantic calls the method with what the object is to be made of."""
    return any(
        "root_validator" in text or ("model_validator" in text and ("before" in text or "wrap" in text))
        for text in row.decorators
    )


def _set_before(cls: ClassValue) -> set[str]:
    """Keys that pydantic's validators of the raw input store."""
    names: set[str] = set()
    for base in cls.mro:
        for row in base.symbol.row.body if isinstance(base, ClassValue) else ():
            if not isinstance(row, FunctionRow) or not isinstance(base, ClassValue) or not _is_raw(row):
                continue
            parsed = code_of(base.symbol.unit, row)
            for node in ast.walk(parsed.node) if parsed is not None else ():
                key: ast.expr | None = None
                if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                    key = node.slice
                elif (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "setdefault"
                ):
                    key = node.args[0] if node.args else None
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    names.add(key.value)
    return names


class _Reader:
    def __init__(self, interpreter: Interpreter, cls: ClassValue) -> None:
        self.interpreter, self.cls = interpreter, cls
        self.found = Constructor()
        self.seen: set[int] = set()

    def follow(self, holder: ClassValue | None, function: FunctionValue) -> None:
        node = function.code.node
        if holder is None or id(node) in self.seen or len(self.seen) >= _MOST or isinstance(node, ast.Lambda):
            return
        if holder.qualified_name.startswith("torch.nn.modules.module."):
            return
        self.seen.add(id(node))
        self.found.methods.append((holder, function.code))
        names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
        if names:
            _Body(self, holder, function.code, names[0]).block(node.body, ())

    def method(self, name: str, after: ClassValue | None = None) -> None:
        """Follow what `self.name(...)` or `super().name(...)` calls."""
        holder, found = self.interpreter.classes.member(self.cls, name, after)
        if name == "__init__" and self.interpreter.records.generates_init(self.cls, holder, after):
            return
        if isinstance(found, OfClass | Static):
            found = found.function
        if isinstance(found, FunctionValue):
            self.follow(holder, found)

    def setter(self, name: str) -> None:
        holder, found = self.interpreter.classes.member(self.cls, name)
        if isinstance(found, Property) and isinstance(found.setter, FunctionValue):
            self.follow(holder, found.setter)


class _Body:
    """One method."""

    def __init__(self, reader: _Reader, holder: ClassValue, code: Function, this: str) -> None:
        self.reader, self.holder, self.code, self.this = reader, holder, code, this
        self.within = f"{holder.name}.{code.name}"
        arguments = code.node.args
        self.kwargs = arguments.kwarg.arg if arguments.kwarg else ""

    def block(self, statements: Sequence[ast.stmt], tests: tuple[str, ...]) -> None:
        for statement in statements:
            self._statement(statement, tests)

    def _statement(self, node: ast.stmt, tests: tuple[str, ...]) -> None:
        if isinstance(node, ast.If):
            self._calls(node.test, tests)
            test = self.code.text(node.test)
            self.block(node.body, (*tests, test))
            self.block(node.orelse, (*tests, f"not ({test})"))
        elif isinstance(node, ast.For | ast.While):
            head = (
                f"for {self.code.text(node.target)} in {self.code.text(node.iter)}"
                if isinstance(node, ast.For)
                else self.code.text(node.test)
            )
            self._calls(node.iter if isinstance(node, ast.For) else node.test, tests)
            self.block([*node.body, *node.orelse], (*tests, head))
        elif isinstance(node, ast.With):
            self.block(node.body, tests)
        elif isinstance(node, ast.Try):
            self.block([*node.body, *node.orelse], tests)
            for handler in node.handlers:
                caught = self.code.text(handler.type) if handler.type is not None else "any"
                self.block(handler.body, (*tests, f"on {caught}"))
            self.block(node.finalbody, tests)
        elif not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            self._assigned(node, tests)
            self._calls(node, tests)

    def _assigned(self, node: ast.stmt, tests: tuple[str, ...]) -> None:
        if isinstance(node, ast.Assign):
            targets, value, sign = node.targets, node.value, ""
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets, value, sign = [node.target], node.value, ""
        elif isinstance(node, ast.AugAssign):
            targets, value, sign = [node.target], node.value, f"{_SIGNS.get(type(node.op), '?')}= "
        else:
            return
        for target in [t for each in targets for t in _flat(each)]:
            inner, key = target, ""
            while isinstance(inner, ast.Subscript):
                key = f"[{self.code.text(inner.slice)}]{key}"
                inner = inner.value
            if self._own(inner):
                assert isinstance(inner, ast.Attribute)
                formula = f"{sign}{self.code.text(value)}"
                self._set(
                    inner.attr, f"{key} = {formula}" if key else formula, node, tests, None if key or sign else value
                )
                self.reader.setter(inner.attr)

    def _set(self, name: str, formula: str, node: ast.AST, tests: tuple[str, ...], value: ast.expr | None) -> None:
        name = self.reader.interpreter.classes.aliases(self.reader.cls).get(name, name)
        file, line = self.code.unit.file, self.code.line(node)
        self.reader.found.sets.append(
            Set(name, formula[:400], " and ".join(tests)[:400], self.within, file, line, value)
        )

    def _own(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self.this

    def _calls(self, node: ast.AST, tests: tuple[str, ...]) -> None:
        for call in ast.walk(node):
            if isinstance(call, ast.Call):
                self._call(call, tests)
            elif isinstance(call, ast.Compare) and isinstance(call.ops[0], ast.In | ast.NotIn):
                holder = call.comparators[0]
                if isinstance(holder, ast.Name) and holder.id == self.kwargs:
                    self._take(call.left, call)

    def _call(self, call: ast.Call, tests: tuple[str, ...]) -> None:
        function = call.func
        if isinstance(function, ast.Attribute):
            owner = function.value
            if isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super":
                self.reader.method(function.attr, self.holder)
                return
            if isinstance(owner, ast.Name) and owner.id == self.this:
                self.reader.method(function.attr)
            if (
                isinstance(owner, ast.Name)
                and owner.id == self.kwargs
                and function.attr in {"get", "pop", "setdefault"}
                and call.args
            ):
                self._take(call.args[0], call)
            if self._own(owner) and function.attr in _MUTATORS:
                assert isinstance(owner, ast.Attribute)
                self._set(owner.attr, self.code.text(call), call, tests, None)
        if self._accessor(function):
            return
        name = ast.unparse(function)
        if name in {"setattr", "object.__setattr__"} and len(call.args) == 3 and self._is_this(call.args[0]):
            key = call.args[1]
            literal = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
            self._set(literal, self.code.text(call.args[2]), call, tests, call.args[2] if literal else None)
        elif any(self._is_this(argument) for argument in call.args) and not self._known(function, name):
            self.reader.found.escapes.append(
                Set("", name, " and ".join(tests), self.within, self.code.unit.file, self.code.line(call))
            )

    def _accessor(self, function: ast.expr) -> bool:
        """Follow `C.name.__set__(self, value)` and its like; whether the call is one whose function source tells."""
        inner = function.value if isinstance(function, ast.Attribute) and function.attr in ACCESSORS else None
        if not isinstance(inner, ast.Attribute) or not isinstance(inner.value, ast.Name | ast.Attribute):
            return False
        interpreter = self.reader.interpreter
        found = interpreter.names.resolver.dotted(self.code.unit, ast.unparse(inner.value))
        if found is None or found.symbol is None:
            return False
        holder, held = interpreter.classes.member(interpreter.names.class_value(found.symbol), inner.attr)
        assert isinstance(function, ast.Attribute)
        called = getattr(held, ACCESSORS[function.attr]) if isinstance(held, Property) else None
        if isinstance(called, FunctionValue):
            self.reader.follow(holder, called)
        return isinstance(called, FunctionValue)

    def _is_this(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id == self.this

    def _known(self, function: ast.expr, name: str) -> bool:
        """Whether a call that gets the object is followed by the interpreter, or leaves the object as it is."""
        if name.rpartition(".")[2] in _HARMLESS or name.startswith("logger."):
            return True
        if not all(part.isidentifier() for part in name.split(".")):
            return isinstance(function, ast.Attribute)  # a method of what another call gave
        found = self.reader.interpreter.names.resolver.dotted(self.code.unit, name)
        return found is not None and found.in_source

    def _take(self, key: ast.expr, node: ast.AST) -> None:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            self.reader.found.taken.append(Taken(key.value, self.code.unit.file, self.code.line(node)))


_SIGNS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**", ast.BitOr: "|",
}  # fmt: skip
_MUTATORS = frozenset("append extend insert pop remove clear update setdefault add discard sort reverse".split())


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for inner in target.elts:
            yield from _flat(inner)
    else:
        yield target
