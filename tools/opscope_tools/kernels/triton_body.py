"""The body of a Triton kernel: program-id mapping, loads and stores, loops, matrix products, assertions, tile sizes.

One walk in line order, then the same walk over the device functions that it calls (`via`): attention kernels keep their
inner loop there. An address belongs to the parameter that its leftmost term leads back to.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from opscope_schemas.tiling import (
    Constraint,
    DeviceCall,
    IndexMapping,
    Instruction,
    Loop,
    MemoryOperation,
    Parameter,
    TileSize,
)  # fmt: skip

from opscope_tools.kernels.pymodule import PyModule
from opscope_tools.kernels.symbols import PRODUCT, SUM, Sym, combine, render
from opscope_tools.kernels.triton_find import FunctionNode, dotted_name, of_language
from opscope_tools.kernels.triton_tiles import symbol

_LOADS = {"load", "_experimental_descriptor_load", "load_tensor_descriptor"}
_STORES = {"store", "_experimental_descriptor_store", "store_tensor_descriptor"}
_IDS = {"program_id", "num_programs"}
_DOT = {"dot", "dot_scaled"}
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "cumsum", "reduce", "associative_scan", "sort", "debug_barrier"}
_SHAPED = {"zeros", "full", "reshape", "view", "broadcast_to", "make_block_ptr", "make_tensor_descriptor", "arange"}

_TILE_NAME = re.compile(r"(?i)block|tile|chunk|^B[A-Z]{1,2}$|^BLK")

#: a callable that finds the device function of a name: (module, function), or None
Finder = Callable[[PyModule, str], tuple[PyModule, FunctionNode] | None]


@dataclass
class Body:
    """Everything the walk finds."""

    mapping: list[IndexMapping] = field(default_factory=list)
    loads: list[MemoryOperation] = field(default_factory=list)
    stores: list[MemoryOperation] = field(default_factory=list)
    #: the call of each load and of each store, by identity
    load_nodes: list[int] = field(default_factory=list)
    store_nodes: list[int] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    calls: dict[str, DeviceCall] = field(default_factory=dict)
    #: compile-time name -> where it measures a tile
    tiles: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    #: compile-time names that multiply a program id; tile sizes if they also size a tile or are named as one
    strides: list[tuple[str, int, str]] = field(default_factory=list)
    #: parameters that addresses start from
    pointers: set[str] = field(default_factory=set)
    #: program ids asked for through a helper module: how it is spelled -> what that is
    wrapped: dict[str, str] = field(default_factory=dict)


def parameters(function: FunctionNode) -> list[tuple[ast.arg, str, str, bool]]:
    """(argument, annotation, default, is constexpr) of each parameter, in order."""
    spec = function.args
    plain = [*spec.posonlyargs, *spec.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(spec.defaults)) + list(spec.defaults)
    pairs = [*zip(plain, defaults, strict=True), *zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    found = []
    for argument, default in pairs:
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        constexpr = annotation.strip("'\"").rpartition(".")[2] == "constexpr"
        found.append((argument, annotation, ast.unparse(default) if default is not None else "", constexpr))
    return found


def read_body(function: FunctionNode, module: PyModule, find: Finder) -> Body:
    """Walk a kernel and the device functions it calls."""
    body = Body()
    constexprs = {a.arg for a, _, _, constexpr in parameters(function) if constexpr}
    roots = {a.arg: a.arg for a, *_ in parameters(function)}
    walk = _Walk(function, module, find, body, "", frozenset(constexprs), roots, 0)
    walk.run()
    for name, line, text in body.strides:
        if name in body.tiles or _TILE_NAME.search(name):
            walk.tile(name, line, text)
    return body


def runtime_parameters(function: FunctionNode, pointers: set[str]) -> list[Parameter]:
    """The run-time parameters; a pointer by its annotation or because an address starts from it."""
    return [
        Parameter(name=a.arg, line=a.lineno, type=annotation, default=default,
                  pointer=a.arg in pointers or annotation.strip("'\"").startswith("*") or "pointer_type" in annotation)
        for a, annotation, default, constexpr in parameters(function) if not constexpr
    ]  # fmt: skip


class _Walk:
    """One function's walk; `roots` maps its parameters to those of the kernel."""

    def __init__(
        self, function: FunctionNode, module: PyModule, find: Finder, body: Body, via: str,
        constexprs: frozenset[str], roots: dict[str, str], depth: int,
    ) -> None:  # fmt: skip
        self.function, self.module, self.find, self.body, self.via = function, module, find, body, via
        self.constexprs, self.roots, self.depth = constexprs, roots, depth
        self.file = module.path if via else ""
        self.arguments = {a.arg for a, *_ in parameters(function)}
        self.definitions: dict[str, list[tuple[int, ast.expr]]] = {}
        #: variables that depend on the program id without a load between
        self.ids: set[str] = set()

    def run(self) -> None:
        self._block(self.function.body, 0)

    def _block(self, statements: list[ast.stmt], loop: int) -> None:
        for statement in statements:
            inner = loop
            if isinstance(statement, ast.For | ast.While):
                self._loop(statement)
                inner = statement.lineno
            headers = [statement.test] if isinstance(statement, ast.If | ast.While | ast.Assert) else []
            if isinstance(statement, ast.Assert):
                self._constraint("assert", statement.test, statement.lineno, statement.msg)
            for header in headers:
                self._expression(header, "", loop)
            if isinstance(statement, ast.For):
                self._expression(statement.iter, "", loop)
            if isinstance(statement, ast.Assign):
                targets = ", ".join(ast.unparse(t) for t in statement.targets)
                self._expression(statement.value, targets, loop)
                self._define(statement.targets, statement.value, statement.lineno)
            elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
                self._expression(statement.value, ast.unparse(statement.target), loop)
                self._define([statement.target], statement.value, statement.lineno)
            elif isinstance(statement, ast.AugAssign | ast.Expr):
                target = ast.unparse(statement.target) if isinstance(statement, ast.AugAssign) else ""
                self._expression(statement.value, target, loop)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                self._expression(statement.value, "", loop)
            for name in ("body", "orelse"):
                block = getattr(statement, name, None)
                if isinstance(block, list) and not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._block(block, inner)

    # definitions and mapping -------------------------------------------------------------------------------------

    def _define(self, targets: list[ast.expr], value: ast.expr, line: int) -> None:
        for target in targets:
            if isinstance(target, ast.Tuple | ast.List):
                matched = isinstance(value, ast.Tuple | ast.List) and not any(
                    isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)
                )
                pairs = (
                    zip(target.elts, value.elts, strict=False)
                    if matched and isinstance(value, ast.Tuple | ast.List)
                    else ((e, value) for e in target.elts)
                )
                for element, item in pairs:
                    self._define_one(element, item, line)
            else:
                self._define_one(target, value, line)

    def _define_one(self, target: ast.expr, value: ast.expr, line: int) -> None:
        if not isinstance(target, ast.Name):
            return
        self.definitions.setdefault(target.id, []).append((line, value))
        axes = [axis for call in _calls(value) if (axis := self._axis(call))]
        names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)}
        loaded = any(self._operation(call)[0] in _LOADS | _DOT or self._computes(call) for call in _calls(value))
        helper = any(self._hides_id(call) for call in _calls(value))
        if axes or helper or (names & self.ids and not loaded and not _long(value)):
            self.ids.add(target.id)
            self.body.mapping.append(
                IndexMapping(
                    line=line,
                    file=self.file,
                    axis=", ".join(axes),
                    variable=target.id,
                    expression=ast.unparse(value),
                    via=self.via,
                )
            )
        for factor, constant in _products(value):
            if constant in self.constexprs and names & self.ids and factor in self.ids:
                self.body.strides.append((constant, line, f"{factor} * {constant}"))

    def _axis(self, call: ast.Call) -> str:
        name = self._operation(call)[0] or self._wrapped(call)
        if name not in _IDS:
            return ""
        axis = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "axis"), None)
        shown = ast.unparse(axis) if axis is not None else "?"
        return f"program_id({shown})" if name == "program_id" else f"num_programs({shown})"

    def _wrapped(self, call: ast.Call) -> str:
        """`program_id` of a helper module that stands for `tl.program_id`: `tle.program_id(0)`."""
        last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        dotted = dotted_name(call.func, self.module)
        if isinstance(call.func, ast.Name):
            dotted = self.module.imports.get(call.func.id, "")
            last = dotted.rpartition(".")[2]
        if last not in _IDS or "." not in dotted or dotted.split(".")[0] in self.arguments:
            return ""
        spelled = ast.unparse(call.func)
        found = self.find(self.module, dotted)
        if found is None:
            what = f"{dotted}, of which no device function was found here; it is taken for tl.{last}"
        elif any(self._is_id(n, last, found[0]) for n in ast.walk(found[1])):
            what = f"a device function over tl.{last} ({found[0].path}:{found[1].lineno})"
        else:
            return ""
        self.body.wrapped.setdefault(spelled, what)
        return last

    def _is_id(self, node: ast.AST, name: str, module: PyModule) -> bool:
        dotted = dotted_name(node, module) if isinstance(node, ast.Attribute | ast.Name) else ""
        return dotted.rpartition(".")[2] == name and "." in dotted

    def _hides_id(self, call: ast.Call) -> bool:
        """A device function that asks for the program id in the caller's place."""
        found = self.find(self.module, call.func.id) if isinstance(call.func, ast.Name) else None
        return found is not None and any(
            isinstance(n, ast.Attribute | ast.Name)
            and (n.attr if isinstance(n, ast.Attribute) else n.id) == "program_id"
            for n in ast.walk(found[1])
        )

    def _computes(self, call: ast.Call) -> bool:
        """A device function that loads or multiplies: what it returns is data, whatever addresses it was handed."""
        found = self.find(self.module, call.func.id) if isinstance(call.func, ast.Name) else None
        return found is not None and any(
            dotted_name(inner.func, found[0]).rpartition(".")[2] in _LOADS | _DOT for inner in _calls(found[1])
        )

    def tile(self, name: str, line: int, text: str) -> None:
        """Note a use of a compile-time name as a tile size."""
        if not self.via:
            uses = self.body.tiles.setdefault(name, [])
            if text not in [t for _, t in uses] and len(uses) < 6:
                uses.append((line, text))

    # expressions -------------------------------------------------------------------------------------------------

    def _expression(self, expression: ast.expr, variable: str, loop: int) -> None:
        for call in sorted(_calls(expression), key=lambda c: (c.lineno, c.col_offset)):
            name, receiver = self._operation(call)
            name = name or self._wrapped(call)
            if name == "program_id" and not variable:
                self.body.mapping.append(
                    IndexMapping(line=call.lineno, file=self.file, axis=self._axis(call), variable="",
                                 expression=ast.unparse(expression), via=self.via)
                )  # fmt: skip
            elif name in _LOADS or (name in {"gather"} and receiver is not None):
                self.body.loads.append(self._memory(name, call, receiver, variable, loop))
                self.body.load_nodes.append(id(call))
            elif name in _STORES or name == "scatter" or name.startswith("atomic_"):
                operation = self._memory(name, call, receiver, variable if name.startswith("atomic_") else "", loop)
                self.body.stores.append(operation)
                self.body.store_nodes.append(id(call))
            elif name in _DOT or name in _REDUCTIONS:
                self.body.instructions.append(
                    Instruction(
                        line=call.lineno,
                        file=self.file,
                        operation=f"tl.{name}",
                        expression=_clip(ast.unparse(call)),
                        via=self.via,
                    )
                )
            elif name in {"static_assert", "device_assert"} and call.args:
                self._constraint(f"tl.{name}", call.args[0], call.lineno, call.args[1] if len(call.args) > 1 else None)
            if name in _SHAPED:
                self._shape(name, call)
            if isinstance(call.func, ast.Name):
                self._follow(call)

    def _operation(self, call: ast.Call) -> tuple[str, ast.expr | None]:
        """(operation, descriptor): `tl.load` or `descriptor.load`; ('', None) for other calls."""
        dotted = dotted_name(call.func, self.module)
        if name := of_language(dotted):
            return name, None
        if isinstance(call.func, ast.Attribute) and call.func.attr in {"load", "store", "gather", "scatter"}:
            return call.func.attr, call.func.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in _REDUCTIONS:
            return "", None
        return "", None

    def _memory(
        self, name: str, call: ast.Call, receiver: ast.expr | None, variable: str, loop: int
    ) -> MemoryOperation:
        address = receiver or (
            call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "pointer"), call)
        )
        given = {k.arg: ast.unparse(k.value) for k in call.keywords if k.arg}
        position = 1 if name == "load" else 2
        mask = given.get("mask", "")
        if not mask and receiver is None and name in {"load", "store"} and len(call.args) > position:
            mask = ast.unparse(call.args[position])
        if "boundary_check" in given:
            mask = f"boundary_check={given['boundary_check']}"
        root = self._root(address)
        if root:
            self.body.pointers.add(root)
        base = address
        while isinstance(base, ast.BinOp):
            base = base.left
        shown = ast.unparse(address)
        if receiver is not None and call.args:
            shown += f"[{ast.unparse(call.args[0])}]"
        return MemoryOperation(
            line=call.lineno, file=self.file, operation=f"tl.{name}" if receiver is None else f"descriptor.{name}",
            level="global", expression=_clip(shown), parameter=root, variable=variable, mask=mask,
            definition=self._definition(base.id if isinstance(base, ast.Name) else ""),
            mask_definition=self._definition(mask), loop=loop, via=self.via,
        )  # fmt: skip

    def _definition(self, name: str) -> str:
        """The last definition of a variable before this point, with its line."""
        known = self.definitions.get(name)
        return f"{_clip(ast.unparse(known[-1][1]))} ({self.module.path}:{known[-1][0]})" if known else ""

    def _root(self, node: ast.expr, depth: int = 12) -> str:
        """The kernel parameter that an address starts from."""
        if depth == 0:
            return ""
        if isinstance(node, ast.Name):
            for _, value in self.definitions.get(node.id, [])[:1]:
                if found := self._root(value, depth - 1):
                    return found
            return self.roots.get(node.id, "")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            return self._root(node.left, depth - 1) or self._root(node.right, depth - 1)
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr in {"to", "advance", "cast"} and not node.args:
                return self._root(node.func.value, depth - 1)
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                return self._root(node.func.value, depth - 1)
            base = (
                node.args[0]
                if node.args
                else next((k.value for k in node.keywords if k.arg in {"base", "base_ptr"}), None)
            )
            return self._root(base, depth - 1) if base is not None else ""
        if isinstance(node, ast.Subscript):
            return self._root(node.value, depth - 1)
        if isinstance(node, ast.IfExp):
            return self._root(node.body, depth - 1) or self._root(node.orelse, depth - 1)
        return ""

    def _shape(self, name: str, call: ast.Call) -> None:
        """Constants in `tl.arange(0, B)` or a shape are tile sizes."""
        shapes: list[ast.expr] = []
        if name == "arange":
            shapes = call.args[1:2] or [k.value for k in call.keywords if k.arg == "end"]
        elif name in {"zeros", "full"}:
            shapes = call.args[:1] or [k.value for k in call.keywords if k.arg == "shape"]
        elif name in {"make_block_ptr", "make_tensor_descriptor"}:
            shapes = [k.value for k in call.keywords if k.arg == "block_shape"] or call.args[4:5]
        for shape in shapes:
            for node in ast.walk(shape):
                if isinstance(node, ast.Name) and node.id in self.constexprs:
                    self.tile(
                        node.id, call.lineno, _clip(f"tl.{name}({', '.join(ast.unparse(a) for a in call.args)})", 120)
                    )

    def _constraint(self, kind: str, test: ast.expr, line: int, message: ast.expr | None) -> None:
        self.body.constraints.append(
            Constraint(
                line=line,
                file=self.file,
                kind=kind,
                condition=ast.unparse(test),
                message=_message(message),
                via=self.via,
            )
        )

    def _loop(self, statement: ast.For | ast.While) -> None:
        if isinstance(statement, ast.While):
            text, variable, trip, kind = ast.unparse(statement.test), "", "", "while"
        else:
            text, variable = ast.unparse(statement.iter), ast.unparse(statement.target)
            trip, kind = self._trip_count(statement.iter)
        self.body.loops.append(
            Loop(
                line=statement.lineno,
                file=self.file,
                variable=variable,
                expression=text,
                trip_count=trip,
                kind=kind,
                via=self.via,
            )
        )

    def _trip_count(self, iterator: ast.expr) -> tuple[str, str]:
        if not isinstance(iterator, ast.Call):
            return "", "for"
        name = dotted_name(iterator.func, self.module).rpartition(".")[2]
        if name not in {"range", "static_range"}:
            return "", "for"
        return trip_count([self._formula(a) for a in iterator.args]), dotted_name(iterator.func, self.module)

    def _formula(self, node: ast.expr) -> str:
        """Kernel arithmetic as a formula: constexprs bare, run-time names in braces."""
        if isinstance(node, ast.Name):
            runtime = node.id in self.arguments - self.constexprs or node.id in self.definitions
            return "{" + node.id + "}" if runtime else node.id
        if isinstance(node, ast.Constant):
            return repr(node.value)
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant | ast.Name)
        ):
            return f"-{self._formula(node.operand)}"
        if isinstance(node, ast.BinOp):
            left, right = self._formula(node.left), self._formula(node.right)
            return render(combine(node.op, _sym(left, node.left), _sym(right, node.right)))
        if isinstance(node, ast.Call) and dotted_name(node.func, self.module).rpartition(".")[2] in {
            "cdiv",
            "min",
            "max",
            "minimum",
            "maximum",
        }:
            last = dotted_name(node.func, self.module).rpartition(".")[2]
            return f"{last}({', '.join(self._formula(a) for a in node.args)})"
        return "{" + ast.unparse(node) + "}"

    # calls of device functions -----------------------------------------------------------------------------------

    def _follow(self, call: ast.Call) -> None:
        assert isinstance(call.func, ast.Name)
        found = self.find(self.module, call.func.id)
        if found is None:
            return
        module, function = found
        follow = self.depth < 4 and call.func.id not in self.via.split(" > ")
        known = self.body.calls.get(call.func.id)
        if known is not None:
            return
        self.body.calls[call.func.id] = DeviceCall(line=call.lineno, file=self.file, name=call.func.id, followed=follow)
        if not follow:
            return
        names = [a.arg for a, *_ in parameters(function)]
        arguments = {**dict(zip(names, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
        roots = {name: root for name, value in arguments.items() if (root := self._root(value))}
        via = f"{self.via} > {call.func.id}" if self.via else call.func.id
        constexprs = frozenset(a.arg for a, _, _, constexpr in parameters(function) if constexpr)
        _Walk(function, module, self.find, self.body, via, constexprs, roots, self.depth + 1).run()


def trip_count(bounds: list[str]) -> str:
    """How often a loop over `range(*bounds)` runs; the bounds are formulas."""
    start, stop, step = ("0", bounds[0], "1") if len(bounds) == 1 else (*bounds, "1")[:3] if bounds else ("0", "?", "1")
    if step.startswith("-"):  # downwards: as many as upwards the other way
        start, stop, step = stop, start, step.removeprefix("-")
    span = stop if start == "0" else render(combine(ast.Sub(), symbol(stop), symbol(start)))
    return span if step == "1" else f"cdiv({span}, {step})"


def tile_sizes(body: Body, values: dict[str, tuple[str, ...]]) -> list[TileSize]:
    """The compile-time names that measure tiles, with the values found for them."""
    return [
        TileSize(line=uses[0][0], name=name, values=values.get(name, ()), used_as=tuple(text for _, text in uses))
        for name, uses in body.tiles.items()
    ]


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return (n for n in ast.walk(node) if isinstance(n, ast.Call))


def _products(node: ast.AST) -> Iterator[tuple[str, str]]:
    """(name, name) of every product of two names, in both orders."""
    for n in ast.walk(node):
        if (
            isinstance(n, ast.BinOp)
            and isinstance(n.op, ast.Mult)
            and isinstance(n.left, ast.Name)
            and isinstance(n.right, ast.Name)
        ):
            yield n.left.id, n.right.id
            yield n.right.id, n.left.id


def _long(value: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in _REDUCTIONS
        for n in ast.walk(value)
    )


def _sym(text: str, node: ast.expr) -> object:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if not isinstance(node, ast.BinOp) or text.startswith("cdiv("):
        return Sym(text)
    return Sym(text, SUM if isinstance(node.op, ast.Add | ast.Sub) else PRODUCT)


def _message(node: ast.expr | None) -> str:
    if node is None:
        return ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ast.unparse(node)


def _clip(text: str, limit: int = 240) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."
