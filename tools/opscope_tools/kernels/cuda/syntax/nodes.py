"""Syntax nodes of CUDA bodies: types as written, expressions, statements; and what a node holds, changes and leaves.

Every node has its position in the file. They are made by expressions.py and statements.py, and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields

from opscope_tools.kernels.cuda.syntax.tokens import Token, joined


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written: `const vec<T, 4>*` is ("vec", ("T", "4"), 1 pointer)."""

    name: str
    arguments: tuple[str, ...] = ()
    pointers: int = 0
    reference: bool = False
    words: frozenset[str] = frozenset()
    #: arrays in arrays that the last pointer leads to: of a parameter `float x[2][4]`
    rows: int = 0


@dataclass(slots=True, eq=False)
class Node:
    """Anything that was read; `position` is in the file."""

    position: int
    #: what it was read from: tokens, the first of them and the one behind the last
    tokens: tuple[list[Token], int, int] | None = field(default=None, kw_only=True, repr=False)


@dataclass(slots=True, eq=False)
class Name(Node):
    """A name, qualified as written (`std::min`)."""

    text: str
    #: template arguments, as written
    arguments: tuple[str, ...] | None = None


@dataclass(slots=True, eq=False)
class Number(Node):
    """A literal, its suffix included (`1.0f`)."""

    text: str


@dataclass(slots=True, eq=False)
class Unary(Node):
    """A sign before an operand, or `++` and `--` behind it."""

    operator: str
    operand: Node
    postfix: bool = False


@dataclass(slots=True, eq=False)
class Binary(Node):
    """Two operands; `&&` and `||` too."""

    operator: str
    left: Node
    right: Node


@dataclass(slots=True, eq=False)
class Assign(Node):
    """`=`, or `+=` and its like with the whole sign as operator."""

    operator: str
    target: Node
    value: Node


@dataclass(slots=True, eq=False)
class Conditional(Node):
    """`test ? first : second`; `text` is the test as written."""

    test: Node
    first: Node
    second: Node
    text: str


@dataclass(slots=True, eq=False)
class Call(Node):
    """A call of whatever stands before the parenthesis."""

    function: Node
    arguments: list[Node]


@dataclass(slots=True, eq=False)
class Index(Node):
    """`base[index]`."""

    base: Node
    index: Node


@dataclass(slots=True, eq=False)
class Member(Node):
    """`base.name`, or `base->name` with `arrow`."""

    base: Node
    name: str
    arrow: bool


@dataclass(slots=True, eq=False)
class Cast(Node):
    """A cast of either form."""

    type: TypeName
    operand: Node
    #: `reinterpret_cast` and its like; empty for the others
    word: str = ""


@dataclass(slots=True, eq=False)
class Braced(Node):
    """`T{...}`, or a bare list without a type."""

    type: TypeName | None
    items: list[Node]


@dataclass(slots=True, eq=False)
class SizeOf(Node):
    """`sizeof`, with what stands in its parentheses as written."""

    text: str


@dataclass(slots=True, eq=False)
class Sequence(Node):
    """Expressions with commas between them; the last is the value."""

    parts: list[Node]


@dataclass(slots=True, eq=False)
class Lambda(Node):
    """A lambda; its captures are not kept."""

    parameters: list[tuple[TypeName, str]]
    body: Node
    #: it says that it gives a reference
    reference: bool = False


@dataclass(slots=True, eq=False)
class Declare(Node):
    """The declaration of one variable; `int a, b;` is two."""

    type: TypeName
    name: str
    #: sizes of an array; an empty pair of brackets is None
    dimensions: list[Node | None]
    pointers: int
    reference: bool
    value: Node | None
    #: `T x(a, b)`
    arguments: list[Node] | None = None


@dataclass(slots=True, eq=False)
class Unpack(Node):
    """`auto [a, b] = value;`, behind the declarations of the names."""

    names: list[str]
    value: Node


@dataclass(slots=True, eq=False)
class Evaluate(Node):
    """An expression as a statement."""

    expression: Node


@dataclass(slots=True, eq=False)
class Block(Node):
    """Statements in braces."""

    statements: list[Node]


@dataclass(slots=True, eq=False)
class If(Node):
    """An `if`; `text` is its test as written."""

    test: Node
    text: str
    then: Node
    other: Node | None
    constexpr: bool


@dataclass(slots=True, eq=False)
class For(Node):
    """A `for`; `text` is what stands in its parentheses."""

    start: Node | None
    test: Node | None
    step: Node | None
    body: Node
    text: str


@dataclass(slots=True, eq=False)
class While(Node):
    """A `while` or `do`; `text` is its test as written."""

    test: Node
    body: Node
    text: str
    #: the test stands behind the body
    after: bool = False


@dataclass(slots=True, eq=False)
class Each(Node):
    """`for (T x : range)`."""

    name: str
    body: Node
    text: str


@dataclass(slots=True, eq=False)
class Switch(Node):
    """A `switch`; `text` is its subject as written."""

    subject: Node
    text: str
    #: (values, whether `default` is among them, statements)
    cases: list[tuple[list[Node], bool, list[Node]]]


@dataclass(slots=True, eq=False)
class Return(Node):
    """A `return`, with a value or without."""

    value: Node | None


@dataclass(slots=True, eq=False)
class Jump(Node):
    """`break`, `continue`, `goto`."""

    word: str


@dataclass(slots=True, eq=False)
class Assembly(Node):
    """Inline assembly; its text is read from the file, `arguments` are all operands."""

    end: int
    arguments: list[Node]


@dataclass(slots=True, eq=False)
class Alias(Node):
    """`using name = type`, `typedef type name`."""

    name: str
    type: TypeName | None


@dataclass(slots=True, eq=False)
class Unread(Node):
    """A statement that did not parse, as written."""

    text: str


_FIELDS: dict[type[Node], tuple[str, ...]] = {}


def spelled(node: Node) -> str:
    """A node as its file writes it, on one line."""
    return "" if node.tokens is None else joined(*node.tokens)


def children(node: Node) -> list[Node]:
    """The nodes right below one."""
    names = _FIELDS.get(type(node))
    if names is None:
        names = _FIELDS[type(node)] = tuple(
            f.name for f in fields(node) if f.name not in {"position", "tokens", "text", "operator"}
        )
    found: list[Node] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, Node):
            found.append(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Node):
                    found.append(item)
                elif isinstance(item, tuple):
                    found += [p for part in item if isinstance(part, list) for p in part if isinstance(p, Node)]
    return found


def written(node: Node, changed: Callable[[Call], Iterable[Node]], known: dict[Node, frozenset[str]]) -> frozenset[str]:
    """Names that running a node may change, those of objects whose parts it changes among them.

    `changed`: the arguments that a call may change; `known`: what was found before, added to.
    """
    if node in known:
        return known[node]
    found = [written(one, changed, known) for one in children(node)]
    targets: list[Node | None] = []
    if isinstance(node, Assign):
        targets = [node.target]
    elif isinstance(node, Unary) and node.operator in {"++", "--", "&"}:
        targets = [node.operand]
    elif isinstance(node, Call):
        targets = list(changed(node))
    elif isinstance(node, Assembly):
        targets = list(node.arguments)
    names = set()
    for target in targets:
        if isinstance(target, Call) and isinstance(target.function, Name):
            continue  # an element of a tensor, or what a function leads to: the name itself stays what it is
        while target is not None and not isinstance(target, Name):
            target = next(iter(children(target)), None)
        if target is not None:
            names.add(target.text)
    made = frozenset(names).union(*found)
    if not isinstance(node, Name | Number):
        known[node] = made
    return made


def within(node: Node) -> Iterator[Node]:
    """A node and all below it, in order."""
    yield node
    for child in children(node):
        yield from within(child)


def leaves(node: Node | None) -> bool:
    """Whether a statement leaves at its end: `return`, `break` or `continue`; not where it gives a value back."""
    if isinstance(node, Block):
        return bool(node.statements) and leaves(node.statements[-1])
    return isinstance(node, Jump) or (isinstance(node, Return) and node.value is None)
