"""Host functions of CUDA sources run abstractly: what each launch asks for, on every way that leads to it.

Both sides of a test are run and joined; lambdas run where they are called, or handed to something that is not read; a
function of the repository is entered where it may change what it is handed, launch it, or give back what is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from opscope_tools.kernels.cuda.cute.expressions import Cute
from opscope_tools.kernels.cuda.launch.cutlass import LAUNCHERS, cluster_fields
from opscope_tools.kernels.cuda.launch.host_cute import HostAround
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.launch.host_syntax import HostFunction, HostFunctions, Launch, called_at
from opscope_tools.kernels.cuda.launch.host_text import LONGEST, Names
from opscope_tools.kernels.cuda.launch.host_values import (
    Closure,
    Dims,
    Kernels,
    Listed,
    Parts,
    Pointer,
    Spelled,
    State,
    Unknown,
    Variable,
    Way,
    component,
    either,
    joined,
)
from opscope_tools.kernels.cuda.names.definitions import LAUNCH_CALLS
from opscope_tools.kernels.cuda.names.functions import Library
from opscope_tools.kernels.cuda.names.structures import Struct
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments, squeeze, whole_words
from opscope_tools.kernels.cuda.syntax.nodes import (
    Alias,
    Assign,
    Block,
    Braced,
    Call,
    Cast,
    Conditional,
    Declare,
    Each,
    Evaluate,
    For,
    If,
    Lambda,
    Member,
    Name,
    Node,
    Return,
    Switch,
    TypeName,
    Unary,
    Unpack,
    While,
    children,
    leaves,
    spelled,
    written,
)
from opscope_tools.kernels.values.expressions import Choice, Expression, Opaque, Quantity, leaf, operand
from opscope_tools.kernels.values.notation import parts

#: statements and calls that are run for one function; calls in calls
_STEPS, _DEEPEST = 30_000, 12
#: statements of a function that is entered for what it gives back
_SHORT = 8
#: functions that take what they are handed by value, or as a pointer
_LIBRARY = re.compile(r"(?:std::|::?cuda|cuda|hip|cu[A-Z]|cublas)\w*|[A-Z][A-Z0-9_]+|printf|sizeof|decltype")
#: a type that a condition chooses
_CHOSEN = re.compile(r"(?:std::)?conditional_t<(.*)>", re.DOTALL)
_NAME = re.compile(r"(?:\w+::)*\w+")
_TRUTH = re.compile(r"!|&&|\|\||[=!<>]=|\s[<>]\s|^(?:true|false)$|\bstd::is_\w+")
#: launching calls whose arguments from that place on are the kernel's
_HANDED = {"launch_kernel_on_cluster": 2, "cudaLaunchKernelEx": 2, "hipLaunchKernelGGL": 5}
_CONFIG = ("gridDim", "blockDim", "dynamicSmemBytes", "stream")


@dataclass(frozen=True)
class Told:
    """A part of a launch: as written, what it comes to, and the definitions that this rests on."""

    text: str = ""
    value: Any = None
    uses: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """A launch on one way to it. `place` is where the outermost function launches, or calls what launches."""

    place: int
    origin: tuple[str, int] | None
    callee: Told
    #: what may be launched; `certain`: nothing else may
    kernels: tuple[Spelled, ...]
    certain: bool
    grid: Told
    block: Told
    shared: Told
    stream: Told
    cluster: Told
    way: Way
    #: what CuTe makes of each argument of the kernel; None: none of its values
    handed: tuple[Any, ...] = ()
    #: how many arguments the kernel is given; None: not told
    given: int | None = None
    #: the types of these, `float*`; empty where that is not told
    types: tuple[str, ...] = ()


@dataclass(frozen=True)
class Named:
    """A call with template arguments."""

    place: int
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Ran:
    """What running a function met."""

    function: HostFunction | None = None
    events: tuple[Event, ...] = ()
    named: tuple[Named, ...] = ()


@dataclass
class Host:
    """The host functions of a repository, run once each."""

    functions: HostFunctions
    #: the function that launches what a call hands it: (name, number of arguments, file) -> (file, position), None: not one
    launcher: Callable[[str, int, str], tuple[str, int] | None]
    library: Library
    kernels: frozenset[str] = frozenset()
    _names: dict[str, Names] = field(default_factory=dict)
    _structures: dict[tuple[str, str], Struct | None] = field(default_factory=dict)
    _ran: dict[tuple[str, int, bool], Ran] = field(default_factory=dict)

    def names(self, source: CSource) -> Names:
        """The constants of a file, read once."""
        if source.path not in self._names:
            elsewhere = partial(self.library.of_headers, source)
            self._names[source.path] = Names(source, self.functions.macros, elsewhere=elsewhere)
        return self._names[source.path]

    def structure(self, source: CSource, name: str) -> Struct | None:
        """The definition of a structure that a file sees."""
        key = source.path, name
        if key not in self._structures:
            written = any(
                re.match(r"\s*[:{]", h.statements[at + len(name) :])
                and re.search(r"\b(?:struct|class)\s+$", h.statements[max(at - 20, 0) : at])
                for h in self.functions.headers(source)
                for at, _ in whole_words(h.statements, name)
            )
            self._structures[key] = self.library.struct(source, name) if written else None
        return self._structures[key]

    def nested(self, function: HostFunction, name: str) -> Struct | None:
        """The structure of that name in the class whose member a function is."""
        source = function.code.source
        around = source.class_around(function.start)
        return self.library.nested(source, name.rpartition("::")[2], around[1:]) if around is not None else None

    def around(self, source: CSource, position: int) -> Ran:
        """What running the function around a position meets."""
        found = self.functions.around(source, position)
        if found is None:
            return Ran()
        key = source.path, found.start, found.code is self.functions.code(source)
        if key not in self._ran or not key[2]:
            run = _Run(self)
            run.outermost(found)
            self._ran[key] = Ran(found, tuple(run.events), tuple(run.named))
        return self._ran[key]


@dataclass
class _Frame:
    """A function that is entered."""

    function: HostFunction
    names: Names
    #: the first of its blocks
    root: int
    #: a member of a class, whose constants are not read here
    of_class: bool = False
    returned: list[tuple[Any, State]] = field(default_factory=list)


class _TooFarError(Exception):
    """A run that does not end soon."""


class _OwnNameError(Exception):
    """A member asks for what neither it nor its caller holds."""


class _Run:
    def __init__(self, host: Host) -> None:
        self.host = host
        self.state = State()
        self.frames: list[_Frame] = []
        self.events: list[Event] = []
        self.named: list[Named] = []
        self.used: dict[str, str] = {}
        #: what calls of functions of the repository gave, by their text
        self.given: dict[str, Any] = {}
        #: where the outermost function calls what is being run
        self.calls: list[tuple[int, tuple[str, int] | None]] = []
        self.steps = _STEPS
        self.cute = Cute(HostAround(self))
        #: types by their aliases, as written
        self.aliases: dict[str, str] = {}
        #: lambdas that nothing has called yet, and what holds where they are made
        self.waiting: dict[Lambda, tuple[Closure, State]] = {}

    # names -----------------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> Sequence[tuple[TypeName, str]]:
        """Of the outermost function."""
        return self.frames[0].function.parameters

    @property
    def frame(self) -> _Frame:
        return self.frames[-1]

    @property
    def source(self) -> CSource:
        return self.frame.function.code.source

    def textual(self, text: str) -> str:
        return self.frame.names.textual(text)

    def __call__(self, name: str) -> Any:
        """What a name of a size expression stands for."""
        if "(" in name:
            known = self.given.get(re.sub(r"\s+", "", name))
            return known if known is not None else self._outside(name)
        found = self._variable(name)
        if found is None:
            return Quantity(name) if name in self.frame.function.template else self._outside(name)
        value = found.value
        self.used.update({k: u for k, u in found.uses.items() if k not in self.used})
        if found.parameter:
            return value if isinstance(value, int | Expression) else None
        if isinstance(value, int):
            return value
        if not isinstance(value, Expression):
            return None
        run_time = isinstance(value, Quantity) and value.run_time
        return value if not run_time and len(value.text) <= LONGEST else Quantity(name) if found.constant else None

    def _outside(self, name: str) -> Any:
        if self.frame.of_class:
            raise _OwnNameError(name)
        names = self.frame.names
        names.used = self.used
        return names.macro_call(name, self) if "(" in name and not name.startswith("sizeof") else names(name)

    def _variable(self, name: str) -> Variable | None:
        """The variable, or the member of one, that a text names."""
        whole = self.state.find(name)
        if whole is not None:
            return whole
        first, *rest = re.split(r"\.|->", name)
        found = self.state.find(first) if rest else None
        for part in rest:
            found = component(found, part) if found is not None else None
        return found

    # functions -------------------------------------------------------------------------------------------------------

    def outermost(self, function: HostFunction) -> None:
        self.frames.append(_Frame(function, self.host.names(function.code.source), 0))
        for kind, name in function.parameters:
            held = self._kind(kind)
            self.state.declare(name, Variable(leaf(name), parameter=True, dims=kind.name == "dim3", kind=held))
        try:
            self.block(function.body.statements)
            while self.waiting:
                made, self.state = self.waiting.popitem()[1]
                self.closure(made, [])
        except (_TooFarError, RecursionError):
            self.events, self.named = [], []

    def enter(
        self,
        function: HostFunction,
        arguments: Sequence[Node],
        template: tuple[str, ...] = (),
        *,
        of_class: bool = False,
    ) -> Any:
        """Run a function of the repository; what it gives back. `of_class`: it is a member, and no name of its class may count."""
        bound = []
        for index, (kind, name) in enumerate(function.parameters):
            if index < len(arguments) and not self._pack(function, index):
                bound.append((name, self._as_defined(function, kind, self._bound(kind, arguments[index]))))
            else:
                bound.append((name, Variable(leaf(name), parameter=True)))
        given = [self._template_argument(a) for a in template]
        chain, way, size, aliases = self.state.chain, self.state.way, len(self.state.blocks), dict(self.aliases)
        self.frames.append(_Frame(function, self.host.names(function.code.source), size, of_class))
        self.state.enter(())
        for name, variable in bound:
            self.state.declare(name, variable)
        for name, text in zip(function.template, given, strict=False):
            value = formula(text, lambda _: None)
            self.state.declare(name, Variable(value if isinstance(value, int) else Quantity(text), parameter=True))
        try:
            return self._to_the_end(function.body.statements)
        finally:
            self.frames.pop()
            self.aliases = aliases
            self._leave(size, chain, way)

    @staticmethod
    def _pack(function: HostFunction, index: int) -> bool:
        return index == len(function.parameters) - 1 and "Args" in function.parameters[index][0].name

    def _to_the_end(self, statements: Sequence[Node]) -> Any:
        """Run a body up to all of its ends, which are joined."""
        frame, before = self.frame, self.frame.returned
        frame.returned = []
        self.block(statements)
        ends, frame.returned = frame.returned, before
        if not self.state.dead:
            ends.append((None, self.state))
        value, self.state = ends[0] if ends else (None, self.state)
        for other, state in ends[1:]:
            value = either("", value, other, "") if value is not None and other is not None else None
            self.state = joined(self._cut(self.state, state), state)
        self.state.dead = False
        return value

    @staticmethod
    def _cut(state: State, other: State) -> State:
        size = min(len(state.blocks), len(other.blocks))
        del state.blocks[size:], other.blocks[size:]
        return state

    def _leave(self, size: int, chain: tuple[int, ...], way: Way) -> None:
        del self.state.blocks[size:]
        self.state.chain, self.state.way = chain, way

    def _bound(self, kind: TypeName, argument: Node) -> Variable:
        """A parameter with what the caller hands it."""
        target = argument.operand if isinstance(argument, Unary) and argument.operator == "&" else argument
        by_name = kind.reference or kind.pointers or target is not argument
        if by_name and isinstance(target, Name) and (at := self.state.where(target.text)) is not None:
            return Variable(Pointer(at.block, at.name))
        value, inner = self.told(argument)
        return Variable(
            self._of_kind(kind, value), inner=inner, parameter=True, dims=kind.name == "dim3", kind=self._kind(kind)
        )

    def _as_defined(self, function: HostFunction, kind: TypeName, given: Variable) -> Variable:
        """A parameter whose type the class of a member defines: what was handed as a list is of that type."""
        at = given.value
        held = self.state.blocks[at.block][at.name] if isinstance(at, Pointer) else given
        if not isinstance(held.value, Listed):
            return given
        struct = self.host.nested(function, kind.name)
        return (
            replace(held, value=_filled([f.name for f in struct.fields], held.value)) if struct is not None else given
        )

    def closure(self, made: Closure, arguments: Sequence[Node]) -> Any:
        if len(self.frames) > _DEEPEST * 2:
            raise _TooFarError
        self.waiting.pop(made.node, None)
        bound = [(n, self._bound(k, a)) for (k, n), a in zip(made.node.parameters, arguments, strict=False)]
        chain, way, size = self.state.chain, self.state.way, len(self.state.blocks)
        self.state.enter(made.chain)
        for name, variable in bound:
            self.state.declare(name, variable)
        body, calls = made.node.body, self.calls
        self.frames.append(next((f for f in self.frames if f.root == made.chain[0]), self.frame))
        if made.chain[0] == 0:  # written in the outermost function: what it launches is launched there
            self.calls = []
        try:
            return self._to_the_end(body.statements if isinstance(body, Block) else [body])
        finally:
            self.frames.pop()
            self.calls = calls
            self._leave(size, chain, way)

    # statements ------------------------------------------------------------------------------------------------------

    def block(self, statements: Sequence[Node]) -> None:
        for statement in statements:
            if self.state.dead:
                return
            self.given.clear()
            self.statement(statement)

    def _within(self, node: Node | None, step: tuple[str, bool] | None = None) -> None:
        """A statement in a block of its own."""
        chain, way, size = self.state.chain, self.state.way, len(self.state.blocks)
        self.state.enter()
        if step is not None:
            self.state.way = (*way, step)
        self.block(node.statements if isinstance(node, Block) else [] if node is None else [node])
        self._leave(size, chain, way)

    def statement(self, node: Node) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _TooFarError
        match node:
            case Block():
                self._within(node)
            case Evaluate(expression=expression):
                self.value(expression)
            case Unpack(names=names, value=value):
                found = self.value(value)
                for name, part in zip(names, found if isinstance(found, tuple) else (), strict=False):
                    self.state.declare(name, Variable(part))
            case Declare():
                self._declare(node)
            case Return(value=value):
                self.frame.returned.append((None if value is None else self._returned(value), self.state.copy()))
                self.state.dead = True
            case If():
                self._if(node)
            case Switch():
                self._switch(node)
            case For(start=start, test=test, step=step, body=body):
                chain, way, size = self.state.chain, self.state.way, len(self.state.blocks)
                self.state.enter()
                if start is not None:
                    self.block(start.statements if isinstance(start, Block) else [start])
                self._loop([n for n in (test, step, body) if n is not None], body, step)
                self._leave(size, chain, way)
            case While(body=body) | Each(body=body):
                self._loop([node], body, None)
            case Alias(name=name, type=kind) if kind is not None:
                arguments = f"<{', '.join(kind.arguments)}>" if kind.arguments else ""
                self.aliases[name] = f"{kind.name}{arguments}"
                if self._of_cute() and (made := self.cute.written(self.aliases[name])) is not None:
                    self.state.declare(name, Variable(made))
            case Alias():
                pass

    def _returned(self, value: Node) -> Any:
        """What a function gives back, `{a, b}` as the `dim3` that it says it gives."""
        if isinstance(value, Braced) and value.type is None and self.frame.function.gives_dims:
            return Dims(tuple(self._size(item, self.value(item)) for item in value.items) or (1,))
        return self.value(value)

    def _if(self, node: If) -> None:
        test = self.value(node.test)
        if isinstance(test, int):
            self._within(node.then if test else node.other)
            return
        text, before = squeeze(node.text), self.state
        self.state = before.copy()
        self._within(node.then, (text, True))
        first, self.state = self.state, before
        self._within(node.other, (text, False))
        self.state = joined(first, self.state, text)

    def _switch(self, node: Switch) -> None:
        self.value(node.subject)
        before, ends = self.state, list[State]()
        for index, (values, _, statements) in enumerate(node.cases):
            self.state = before.copy()
            names = " or ".join(f"{squeeze(node.text)} == {squeeze(spelled(v))}" for v in values)
            following = statements
            for _, _, more in node.cases[index + 1 :]:
                if following and leaves(following[-1]):
                    break
                following = [*following, *more]
            self._within(
                Block(node.position, list(following)), (names or f"{squeeze(node.text)} is none of these", True)
            )
            ends.append(self.state)
        if not any(default for _, default, _ in node.cases):
            ends.append(before)
        self.state = ends[0]
        for other in ends[1:]:
            self.state = joined(self.state, other)

    def _loop(self, parts: list[Node], body: Node, step: Node | None) -> None:
        """A loop: what its body changes is not told before it, nor behind it."""
        for part in parts:
            for name in written(part, self._changed, {}):
                at = self.state.where(name)
                if at is not None:
                    old = self.state.blocks[at.block][at.name]
                    self.state.change(at, replace(old, value=Unknown(), inner={}, parameter=False))
        before = self.state.copy()
        self._within(body)
        if step is not None and not self.state.dead:
            self.value(step)
        self.state = joined(before, self.state)

    def _changed(self, call: Call) -> list[Node]:
        """The arguments that a call takes by a reference that is not const."""
        if not isinstance(call.function, Name):
            return []
        found = self._candidates(call.function.text, len(call.arguments))
        return [a for f in found for (k, _), a in zip(f.parameters, call.arguments, strict=False) if _changes(k)]

    def _declare(self, node: Declare) -> None:
        name, kind = node.name, node.type
        constant = "constexpr" in kind.words
        boolean, dims = kind.name == "bool", kind.name.rpartition("::")[2] == "dim3" and not node.pointers
        given = node.arguments
        if node.reference and isinstance(node.value, Name) and (at := self.state.where(node.value.text)) is not None:
            self.state.declare(name, Variable(Pointer(at.block, at.name)))
            return
        if node.dimensions or (node.value is None and given is None):
            if self._of_cute() and (made := self.cute.type(kind)) is not None:
                self.state.declare(name, Variable(made))
                return
            structure = not node.dimensions and kind.name != "?" and not _plain(kind)
            value: Any = Dims((1,)) if dims else Parts({}) if structure else Unknown()
            own = self._use(f"dim3 {name}(1)", node) if dims else {}
            held = self._kind(kind, node.pointers + len(node.dimensions))
            self.state.declare(name, Variable(value, own, dims=dims, axes=("1",), kind=held))
            return
        if node.value is not None and not (isinstance(node.value, Braced) and node.value.type is None):
            value, inner = self.told(node.value)
            value = self._of_kind(kind, value)
            parts = _components(node.value)
        else:
            listed = node.value.items if isinstance(node.value, Braced) else given or []
            told = [self._item(i) for i in listed]
            if dims:
                told = [
                    ((k, replace(v, value=self._size(n, v.value))), u)
                    for n, ((k, v), u) in zip(listed, told, strict=True)
                ]
            if dims and len(told) == 1:
                (key, one), uses = told[0]
                told = [((key, replace(one, value=self._lone(spelled(listed[0]), one.value))), uses)]
            inner = {k: u for _, one in told for k, u in one.items()}
            value = self._of_kind(kind, Listed(tuple(i for i, _ in told)))
            parts = [squeeze(spelled(i)) for i in listed]
        if isinstance(value, Closure):
            own = {}
            self.waiting[value.node] = (value, self.state.copy())
        elif dims:
            own = self._use(f"dim3 {name}({', '.join(parts)})", node)
        else:
            own = self._use(f"{name} = {parts[0] if parts else ''}", node)
        held = self._kind(kind, node.pointers)
        self.state.declare(name, Variable(value, own, inner, constant, boolean, dims, axes=tuple(parts), kind=held))

    def _kind(self, kind: TypeName, pointers: int | None = None) -> str:
        """A type as it is declared, what template parameters stand for put in; empty where that is not told."""
        found = self.state.find(kind.name)
        name = found.value.name if found is not None and isinstance(found.value, Quantity) else kind.name
        if name in {"", "?", "auto"} or (found is None and self.frames and name in self.frame.function.template):
            return ""
        arguments = f"<{', '.join(kind.arguments)}>" if kind.arguments else ""
        return name + arguments + "*" * (kind.pointers if pointers is None else pointers)

    def _kind_of(self, node: Node) -> str:
        """The type of an argument that is a variable, its address or a cast."""
        if isinstance(node, Cast):
            return self._kind(node.type)
        if isinstance(node, Unary) and node.operator == "&":
            kind = self._kind_of(node.operand)
            return kind and f"{kind}*"
        found = self.state.find(node.text) if isinstance(node, Name) else None
        return found.kind if found is not None else ""

    def _item(self, node: Node) -> tuple[tuple[str, Any], dict[str, str]]:
        name = node.target.text if isinstance(node, Assign) and isinstance(node.target, Name) else ""
        given = node.value if isinstance(node, Assign) else node
        value, uses = self.told(given)
        return (name, Variable(value, inner=uses, parameter=True, text=squeeze(spelled(given)))), uses

    def _use(self, text: str, node: Node) -> dict[str, str]:
        text = squeeze(text)
        return {text: f"{text} ({self.source.path}:{self.source.line(node.position)})"} if len(text) < 300 else {}

    def _of_kind(self, kind: TypeName, value: Any) -> Any:
        """A value as a variable of some type holds it."""
        name = kind.name.rpartition("::")[2]
        listed = [v.value for _, v in value.items] if isinstance(value, Listed) else None
        if name == "dim3" and not kind.pointers:
            if listed is not None:
                return Dims(tuple(v if isinstance(v, int | Expression) else None for v in listed) or (1,))
            return Dims((value,)) if isinstance(value, int) else value
        if listed is None or ("::" in kind.name and not self._namespace(kind.name)):
            return value  # a type of a class: what it is depends on which
        if _plain(kind):
            return listed[0] if len(listed) == 1 else Unknown()
        return self._structure(name, value)

    def _structure(self, name: str, value: Listed) -> Any:
        """A structure that is made from a list."""
        order = list(_CONFIG) if name.startswith("cudaLaunchConfig") else cluster_fields(name)
        if not order:
            struct = self.host.structure(self.source, name)
            made = struct.called(name, len(value.items)) if struct is not None else None
            if struct is None:
                return value if value.items else Parts({})
            if made is not None:
                bound = dict(zip((n for _, n in made.parameters), (v for _, v in value.items), strict=False))
                starts = [(f, next((w for w in map(str, _words(n)) if w in bound), "")) for f, n in made.starts]
                return Parts({f: bound[w] for f, w in starts if w})
            order = [f.name for f in struct.fields]
        return _filled(order, value)

    # expressions -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _using(self) -> Iterator[dict[str, str]]:
        before, self.used = self.used, {}
        try:
            yield self.used
        finally:
            self.used = before

    def told(self, node: Node) -> tuple[Any, dict[str, str]]:
        """What an expression comes to, and the definitions that this rests on."""
        with self._using() as used:
            return self.value(node), used

    def value(self, node: Node) -> Any:
        """What an expression comes to, its effects made."""
        if isinstance(node, Braced | Call) and self._of_cute() and (made := self.cute.value(node)) is not None:
            return made
        match node:
            case Lambda():
                return Closure(node, self.state.chain)
            case Launch():
                self._launched(node)
                return None
            case Assign():
                return self._assign(node)
            case Cast(operand=operand):
                inner = self.value(operand)
                if isinstance(inner, int) and isinstance(operand, Call) and self._of_cute():
                    return inner
                return inner if isinstance(inner, Kernels | Dims | Parts) else self.formula(node)
            case Unary(operator="&", operand=Name() as operand) if self.state.where(operand.text) is None:
                return self._kernels(operand)
            case Unary(operator="++" | "--", operand=operand):
                return self._set(operand, f"{node.operator[0]}=", "1", node)
            case Braced():
                items = [self._item(i) for i in node.items]
                self.used.update({k: u for _, one in items for k, u in one.items()})
                listed = Listed(tuple(i for i, _ in items))
                return listed if node.type is None else self._of_kind(node.type, listed)
            case Conditional():
                return self._conditional(node)
            case Call():
                return self._call(node)
            case Name():
                return self._name(node)
            case Member():
                found = self._variable(squeeze(spelled(node)))
                if found is not None and not isinstance(found.value, int | Expression | Unknown):
                    self.used.update(found.uses)
                    return found.value
        for child in children(node):
            self.effects(child)
        return self.formula(node)

    def effects(self, node: Node) -> None:
        """What an expression does, below one that a formula tells."""
        if isinstance(node, Call | Assign | Launch | Lambda) or (
            isinstance(node, Unary) and node.operator in {"++", "--"}
        ):
            with self._using():
                self.value(node)
        else:
            for child in children(node):
                self.effects(child)

    def formula(self, node: Node) -> Any:
        self.frame.names.used = self.used
        return formula(squeeze(spelled(node)), self)

    def _name(self, node: Name) -> Any:
        found = self.state.find(node.text)
        if found is None:
            plain = node.text.rpartition("::")[2]
            return (
                self._kernels(node) if node.arguments is not None or plain in self.host.kernels else self.formula(node)
            )
        if isinstance(found.value, int | Expression) or (
            isinstance(found.value, Unknown | Parts) and found.value in (Unknown(), Parts({})) and not found.dims
        ):
            return self.formula(node)
        self.used.update(found.uses)
        return found.value

    def _size(self, node: Node, value: Any) -> Any:
        """A whole number along an axis."""
        return value if isinstance(value, int | Expression) else self.formula(node)

    def _lone(self, text: str, value: Any) -> Any:
        """What the only size of a `dim3` comes to: of a name, what it was set to."""
        found = self.state.find(text)
        return found.value if found is not None and isinstance(found.value, Expression) else value

    def _kernels(self, node: Name) -> Kernels:
        arguments = tuple(self._template_argument(a) for a in node.arguments or ())
        of_cute = tuple(map(self.cute.written, node.arguments or ())) if self._of_cute() else ()
        text = squeeze(spelled(node)) or node.text
        return Kernels((Spelled(text, node.text.rpartition("::")[2], arguments, cute=of_cute),))

    def _template_argument(self, text: str) -> str:
        """A settled number where the argument is one, else as written with the numbers put in."""
        text = squeeze(text)
        with self._using():
            value = self.formula_of(text)
        if isinstance(value, int):
            found = self.state.find(text)
            truth = _TRUTH.search(text) or (found is not None and found.boolean)
            return ("false", "true")[value] if truth and value in (0, 1) else str(value)
        return re.sub(r"(?<![\w:.])[A-Za-z_]\w*(?![\w:(<])", self._settled, text)

    def _settled(self, match: re.Match[str]) -> str:
        found = self.state.find(match[0])
        if found is None or not isinstance(found.value, int):
            return match[0]
        return ("false", "true")[found.value] if found.boolean and found.value in (0, 1) else str(found.value)

    def formula_of(self, text: str) -> Any:
        self.frame.names.used = self.used
        return formula(text, self)

    def _conditional(self, node: Conditional) -> Any:
        test = self.value(node.test)
        if isinstance(test, int):
            return self.value(node.first if test else node.second)
        first, second = self.value(node.first), self.value(node.second)
        if isinstance(first, Kernels) and isinstance(second, Kernels):
            return either("", first, second, squeeze(node.text))
        if isinstance(first, Dims) or isinstance(second, Dims):
            return self._either(test if isinstance(test, Expression) else Opaque(squeeze(node.text)), first, second)
        return self.formula(node) if all(isinstance(v, int | Expression) for v in (first, second)) else Unknown()

    @staticmethod
    def _either(asked: Any, first: Any, second: Any) -> Dims:
        """One of two `dim3`s, each axis by itself."""
        a, b = (v if isinstance(v, Dims) else Dims((v,)) for v in (first, second))
        return Dims(
            tuple(
                x if x == y else Choice(operand(x), asked, operand(y))
                for x, y in ((a.along(i), b.along(i)) for i in "xyz"[: max(len(a.axes), len(b.axes))])
            )
        )

    # assignments -----------------------------------------------------------------------------------------------------

    def _assign(self, node: Assign) -> Any:
        return self._set(node.target, node.operator, node.value, node)

    def _set(self, target: Node, operator: str, given: Node | str, node: Node) -> Any:
        name = squeeze(spelled(target)).removeprefix("*")
        text = given if isinstance(given, str) else squeeze(spelled(given))
        value, inner = (1, {}) if isinstance(given, str) else self.told(given)
        if operator != "=":
            with self._using() as inner:
                value = self.formula_of(f"({name}) {operator[:-1]} ({text})")
        own = self._use(f"{name} {operator} {text}", node)
        path = re.split(r"\.|->", name)
        at = self.state.where(path[0])
        old = self.state.blocks[at.block][at.name] if at is not None else None
        of_itself = operator != "=" or re.search(rf"(?<![\w.]){re.escape(name)}\b", text) is not None
        if isinstance(value, Expression) and ((of_itself and len(path) == 1) or leaf(name) in parts(value)):
            value, own = Unknown(), {**(old.own if old is not None else {}), **own}
        if at is not None and old is not None and len(path) > 1 and all(p.isidentifier() for p in path):
            self.state.change(
                at, self._with_part(old, path[0], path[1:], Variable(value, own, inner, parameter=True, text=text))
            )
        elif at is not None and old is not None and len(path) == 1:
            dims = old.dims or isinstance(value, Dims)
            value = Dims((value,)) if old.dims and isinstance(value, int) else value
            self.state.change(at, Variable(value, own, inner, boolean=old.boolean, dims=dims, kind=old.kind))
        else:
            self.state.blocks[self.frame.root][name] = Variable(value, own, inner, dims=isinstance(value, Dims))
        return value

    def _with_part(self, old: Variable, name: str, path: list[str], part: Variable) -> Variable:
        """A structure or `dim3` with one member set."""
        first, *rest = path
        if isinstance(old.value, Dims) and first in {"x", "y", "z"}:
            axes = [old.value.along(i) for i in "xyz"]
            told = isinstance(part.value, int | Expression)
            axes["xyz".index(first)] = part.value if told else leaf(f"{name}.{first}")
            while len(axes) > 1 and axes[-1] == 1:
                axes.pop()
            own, texts = self._filled(old, name, "xyz".index(first), part)
            inner = {**old.inner, **part.inner}
            return replace(old, value=Dims(tuple(axes)), own=own, inner=inner, axes=texts)
        fields = dict(old.value.fields) if isinstance(old.value, Parts) else {}
        if rest:
            inside = fields.get(
                first, Variable(Dims((1,)) if first in {"gridDim", "blockDim"} else Parts({}), dims=first != "")
            )
            part = self._with_part(inside, f"{name}.{first}", rest, part)
        return replace(old, value=Parts({**fields, first: part}), parameter=False)

    def _filled(self, old: Variable, name: str, axis: int, part: Variable) -> tuple[dict[str, str], tuple[str, ...]]:
        """The definition of a `dim3` with an axis put in, where one function declares and fills it."""
        declared = list(old.own.values())[:1]
        if len(declared) != len(old.own) or not old.axes or len(self.frames) > 1:
            return {**old.own, **part.own}, ()
        texts = [*old.axes, "1", "1"][:3]
        texts[axis] = part.text
        while len(texts) > 1 and texts[-1] == "1":
            texts.pop()
        text = f"dim3 {name}({', '.join(texts)})"
        return {text: f"{text} ({declared[0].rpartition(' (')[2]}"}, tuple(texts)

    # calls -----------------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Any:
        self.steps -= 1
        if self.steps < 0:
            raise _TooFarError
        function = node.function
        if isinstance(function, Lambda):
            return self.closure(Closure(function, self.state.chain), node.arguments)
        text = function.text if isinstance(function, Name) else ""
        known = self.state.find(text) if text else None
        if known is not None and isinstance(known.value, Closure):
            return self.closure(known.value, node.arguments)
        last = re.sub(r"<.*", "", text).rpartition("::")[2] if not text.endswith(">") else ""
        if last == "dim3":
            values = [self._size(a, self.value(a)) for a in node.arguments]
            values = [self._lone(spelled(node.arguments[0]), values[0])] if len(values) == 1 else values
            return Dims(tuple(values) or (1,))
        if isinstance(function, Name) and function.arguments is not None:
            self.named.append(Named(function.position, tuple(self._template_argument(a) for a in function.arguments)))
        if (form := self._form(text, last)) is not None:
            self._through_call(node, form)
            return None
        with self._using():
            for argument in node.arguments:
                self.effects(argument)
        return self._entered(node, text, last) if text else self._handed(node, "a method")

    @staticmethod
    def _form(text: str, last: str) -> str | None:
        if last in LAUNCH_CALLS:
            return last
        cutlass = last in LAUNCHERS and (last != "launch" or "ClusterLauncher" in text)
        return f"cutlass::{last}" if cutlass and (last != "kernel_launch" or "launch" in text) else None

    def _entered(self, node: Call, text: str, last: str) -> Any:
        """A call of a function by its name: run where that tells something."""
        function = node.function
        assert isinstance(function, Name)
        if "::" in text and (given := self._member(*text.rpartition("::")[::2], node)) is not None:
            return given
        found = self._candidates(text, len(node.arguments))
        if not found and node.arguments and not _LIBRARY.fullmatch(text) and self.host.structure(self.source, last):
            return self._structure(last, Listed(tuple(self._item(a)[0] for a in node.arguments)))
        if len(found) != 1 or found[0].unread or not self._worth(found[0], node):
            changed = [a for f in found for (k, _), a in zip(f.parameters, node.arguments, strict=False) if _changes(k)]
            if len(found) > 1 or (found and found[0].unread):
                return self._handed(node, last, changed)
            return self._handed(node, last, None if not found else [])
        if self._too_deep(found[0]):
            return self._handed(node, last, self._changed(node))
        result = self._ran(found[0], node, function.arguments or ())
        if isinstance(result, int):
            self.given[re.sub(r"\s+", "", squeeze(spelled(node)))] = result
        return result if isinstance(result, int | Dims | Parts | Kernels) else self.formula(node)

    def _too_deep(self, function: HostFunction) -> bool:
        return len(self.frames) > _DEEPEST or any(f.function is function for f in self.frames)

    def _ran(
        self, function: HostFunction, node: Call, template: tuple[str, ...] = (), *, of_class: bool = False
    ) -> Any:
        self.calls.append(called_at(node))
        try:
            return self.enter(function, node.arguments, template, of_class=of_class)
        finally:
            self.calls.pop()

    def _member(self, kind: str, name: str, node: Call) -> Dims | None:
        """The `dim3` that a static member of a type gives, where it is told; of a type that a condition chooses, either's."""
        kind = self.aliases.get(kind, kind)
        if (chosen := _CHOSEN.fullmatch(kind)) is not None:
            test, *sides = (text.strip() for text in split_arguments(chosen[1]))
            if len(sides) != 2:
                return None
            asked = self.formula_of(test)
            if isinstance(asked, int):
                return self._member(sides[not asked], name, node)
            first, second = (self._member(side, name, node) for side in sides)
            return self._either(asked, first, second) if first is not None and second is not None else None
        holder = re.sub(r"<.*", "", kind, flags=re.DOTALL).rpartition("::")[2].strip()
        found = self.host.functions.named(self.source, name, len(node.arguments), holder) if holder else []
        if len(found) != 1 or found[0].unread or not found[0].gives_dims or self._too_deep(found[0]):
            return None
        before = self.state.copy()
        try:
            result = self._ran(found[0], node, of_class=True)
        except _OwnNameError:
            self.state, result = before, None
        return Dims((result,)) if isinstance(result, int) else result if isinstance(result, Dims) else None

    def _candidates(self, text: str, count: int) -> list[HostFunction]:
        last = text.rpartition("::")[2]
        launcher = self.host.launcher(last, count, self.source.path)
        if launcher is not None:
            source = self.host.functions.load(launcher[0])
            found = self.host.functions.around(source, launcher[1]) if source is not None else None
            return [found] if found is not None else []
        if _LIBRARY.fullmatch(text) or ("::" in text and not self._namespace(text)):
            return []
        return self.host.functions.named(self.source, last, count)

    def _namespace(self, text: str) -> bool:
        names = text.rpartition("::")[0].split("::")
        return all(n in {"", "at", "native", "c10", "cuda", "detail"} or n in self._namespaces() for n in names)

    def _namespaces(self) -> set[str]:
        found = set[str]()
        for source in self.host.functions.headers(self.source):
            found |= source.namespaces
        return found

    def _worth(self, function: HostFunction, node: Call) -> bool:
        """Whether running a function may tell something."""
        by_name = any(_changes(k) for k, _ in function.parameters)
        handed = any(isinstance(a, Lambda) or self._launchable(a) for a in node.arguments)
        return by_name or handed or len(function.body.statements) <= _SHORT

    def _launchable(self, node: Node) -> bool:
        if isinstance(node, Unary | Cast):
            return self._launchable(node.operand)
        found = self.state.find(node.text) if isinstance(node, Name) else None
        if found is not None:
            return isinstance(found.value, Kernels | Closure)
        return isinstance(node, Name) and (
            node.arguments is not None or node.text.rpartition("::")[2] in self.host.kernels
        )

    def _handed(self, node: Call, name: str, changed: Sequence[Node] | None = None) -> Any:
        """A call that is not followed: lambdas are taken to run once; what it may change is not told."""
        for argument in node.arguments:
            made = self.value(argument) if isinstance(argument, Lambda) else None
            if isinstance(argument, Name) and (found := self.state.find(argument.text)) is not None:
                made = found.value
            if isinstance(made, Closure):
                before = self.state.copy()
                self.closure(made, [])
                self.state = joined(before, self.state)
        for argument in node.arguments:
            target = argument.operand if isinstance(argument, Unary) and argument.operator == "&" else argument
            if not isinstance(target, Name) or (at := self.state.where(target.text)) is None:
                continue
            old = self.state.blocks[at.block][at.name]
            guessed = (
                changed is None and isinstance(old.value, Dims) and not _LIBRARY.fullmatch(name) and name != "a method"
            )
            if target is argument and not guessed and argument not in (changed or ()):
                continue
            if isinstance(old.value, Parts | Kernels | Closure):
                continue
            given = f"&{target.text}" if target is not argument else target.text
            own = {**old.own, **self._use(f"{target.text} := what {name} makes of {given}", node)}
            self.state.change(at, Variable(Unknown(f"{name}, which is not read, may change it"), own, dims=old.dims))
        return self.formula(node)

    # launches --------------------------------------------------------------------------------------------------------

    def _part(self, node: Node | None) -> Told:
        if node is None:
            return Told()
        value, uses = self.told(node)
        return Told(squeeze(spelled(node)), value if value is not None else Unknown(), uses)

    def _launched(self, node: Launch) -> None:
        for argument in node.arguments:
            self.effects(argument)
        parts = [self._part(p) for p in node.configuration[:4]]
        handed = tuple(self.cute.given(a) for a in node.arguments) if self._of_cute() else ()
        parts += [Told()] * (4 - len(parts))
        types = tuple(map(self._kind_of, node.arguments))
        self._event(node, self._part(node.function), parts, handed=handed, given=len(node.arguments), types=types)

    def _through_call(self, node: Call, form: str) -> None:
        arguments = [self._part(a) for a in node.arguments]
        given = [*arguments, *[Told()] * 10]
        cluster = Told()
        if form.startswith("cutlass::"):
            callee, parts, cluster = self._cutlass(node, form, given)
        elif form.startswith("cudaLaunchKernelEx"):
            callee, parts = given[1], [self._field(given[0], node.arguments[0], n) for n in _CONFIG]
            cluster = self._cluster()
        elif form == "hipLaunchKernelGGL":
            callee, parts = given[0], given[1:5]
        elif form == "cuLaunchKernel":
            callee = given[0]
            parts = [*(_dims(given[i : i + 3]) for i in (1, 4)), given[7], given[8]]
        else:
            callee, parts = given[0], [given[1], given[2], given[4], given[5]]
        behind = _HANDED.get(form.removeprefix("cutlass::"))
        handed = tuple(self.cute.given(a) for a in node.arguments[behind:]) if behind and self._of_cute() else ()
        self._event(node, callee, parts, cluster, handed)

    def _cutlass(self, node: Call, form: str, given: list[Told]) -> tuple[Told, list[Told], Told]:
        name = form.removeprefix("cutlass::")
        grid, block, shared, stream, cluster, kernel = LAUNCHERS[name]
        if name == "launch_kernel_on_cluster":
            fields = cluster_fields("ClusterLaunchParams")
            callee, told = given[1], [self._field(given[0], node.arguments[0], f) for f in fields]
        else:
            callee, told = given[kernel] if kernel is not None else Told(), given
        if name == "kernel_launch":
            function = node.function
            arguments = function.arguments if isinstance(function, Name) and function.arguments else ()
            text = f"device_kernel<{', '.join(arguments)}>"
            own = Spelled(text, "device_kernel", tuple(self._template_argument(a) for a in arguments))
            callee = Told(text, Kernels((own,)))
        parts = [told[grid], told[block], told[shared], told[stream]]
        return callee, parts, told[cluster] if cluster is not None else Told()

    def _field(self, given: Told, node: Node, name: str) -> Told:
        """A member of the structure that a launch is handed."""
        operand = node.operand if isinstance(node, Unary) and node.operator == "&" else node
        found = self.state.find(operand.text) if isinstance(operand, Name) else None
        value = found.value if found is not None else given.value
        if isinstance(value, Listed):
            value = self._structure("ClusterLaunchParams", value)
        part = value.fields.get(name) if isinstance(value, Parts) else None
        if part is None:
            return Told() if isinstance(value, Parts) else Told(f"{squeeze(spelled(operand))}.{name}", Unknown())
        return Told(part.text or f"{squeeze(spelled(operand))}.{name}", part.value, part.inner)

    def _cluster(self) -> Told:
        """Cluster dimensions among the launch attributes."""
        axes = {n[-1]: v for n, v in self.state.seen() if re.search(r"\bclusterDim\.[xyz]$", n)}
        if not axes:
            return Told()
        return Told("clusterDim", Dims(tuple(axes[a].value if a in axes else 1 for a in "xyz" if a in axes)))

    def _of_cute(self) -> bool:
        return self.source.of_cute

    def _event(
        self, node: Node, callee: Told, parts: list[Told], cluster: Told | None = None, handed: tuple[Any, ...] = (),
        given: int | None = None, types: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        value = callee.value
        text = re.sub(r"^[&*(\s]+", "", callee.text)
        if isinstance(value, Kernels):
            kernels, certain = value.spelled, True
        elif isinstance(value, Quantity):
            plain = value.name
            kernels, certain = (Spelled(plain, re.sub(r"<.*", "", plain).rpartition("::")[2]),), False
        else:
            kernels, certain = (Spelled(text, re.sub(r"<.*", "", text).rpartition("::")[2]),), False
        place, origin = self.calls[0] if self.calls else called_at(node)
        grid, block = (replace(p, value=self._lone(p.text, p.value)) for p in parts[:2])
        shared, stream = parts[2:4]
        where = (place, origin, callee, kernels, certain)
        asked = (grid, block, shared, stream, cluster or Told())
        self.events.append(Event(*where, *asked, self.state.way, handed, given, types))


def _changes(kind: TypeName) -> bool:
    return (kind.reference or kind.pointers > 0) and "const" not in kind.words


def _plain(kind: TypeName) -> bool:
    return (
        re.fullmatch(
            r"auto|bool|float|double|(?:std::)?\w*size_t|\w*int\w*(?: \w+)*|(?:unsigned|signed|long|short|char)(?: \w+)*",
            kind.name,
        )
        is not None
    )


def _words(node: Node) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.text
    for child in children(node):
        yield from _words(child)


def _filled(order: Sequence[str], value: Listed) -> Parts:
    """A structure with fields in that order, made from a list."""
    named = {n: v for n, v in value.items if n}
    return Parts(named or dict(zip(order, (v for _, v in value.items), strict=False)))


def _components(node: Node) -> list[str]:
    """A value as written; the arguments of `dim3(...)`."""
    if isinstance(node, Call) and isinstance(node.function, Name) and node.function.text == "dim3":
        return [squeeze(spelled(a)) for a in node.arguments]
    return [squeeze(spelled(node))]


def _dims(parts: Sequence[Told]) -> Told:
    values = tuple(p.value if isinstance(p.value, int | Expression) else None for p in parts)
    return Told(", ".join(p.text for p in parts), Dims(values), {k: u for p in parts for k, u in p.uses.items()})


__all__ = ["Event", "Host", "Named", "Ran", "Told"]
