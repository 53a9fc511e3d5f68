"""What an expression can be while constructors are interpreted.

A value that source decides is a plain Python object (number, string, list, dict, ...). The rest is below: what nobody
knows (`Unknown`), what a branch decides (`Choice`), and the things of the analysed program (classes, functions,
modules, instances). Using an unknown value in an operation raises `UndecidedError`; the evaluator makes that unknown again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from opscope_tools.index.names.torch_modules import MODULE

if TYPE_CHECKING:
    from opscope_tools.source.python.names import ClassSymbol
    from opscope_tools.source.python.repository import Unit
    from opscope_tools.source.python.syntax import Function, Text

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
_CONTAINER = re.compile(r"torch\.nn\.(?:\w+\.)*(ModuleList|Sequential|ModuleDict)")
#: bases without source that add nothing that a constructor would look at, and those that hold data
_EMPTY_BASES = {"object", "abc.ABC", "typing.Generic", "typing.Protocol"}
DATA_BASES = {"dict": dict, "collections.OrderedDict": dict, "list": list, "collections.UserDict": dict}


class UndecidedError(Exception):
    """An operation needs a value that source does not tell."""


class RaisedError(Exception):
    """The interpreted code raises an exception of the class called `kind`."""

    def __init__(self, kind: str, *, explicit: bool = False) -> None:
        super().__init__(kind)
        self.kind = kind
        self.explicit = explicit  # by a `raise` statement


class ExhaustedError(Exception):
    """The interpretation took more steps than it may."""


class _Missing:
    def __repr__(self) -> str:
        return "MISSING"


#: no value: an attribute that is not set, an argument that is not given
MISSING = _Missing()


def _undecided(*_: Any) -> NoReturn:
    raise UndecidedError


class Abstract:
    """Base of values that no operation can look into."""

    __slots__ = ()
    __bool__ = __len__ = __iter__ = __getitem__ = __contains__ = __index__ = __int__ = __float__ = _undecided
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __call__ = _undecided
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __mod__ = __rmod__ = _undecided
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _undecided
    __and__ = __rand__ = __or__ = __ror__ = __neg__ = __pos__ = __invert__ = __round__ = __abs__ = _undecided
    __str__ = __format__ = _undecided


class Unknown(Abstract):
    """Not told by source. `classes`: the module classes that it may be or be made from, where a table names them."""

    __slots__ = ("classes", "failed", "given", "name", "pattern", "text")
    #: how many were made: whether something unknown came up between two moments
    made = 0

    def __init__(
        self, text: str = "", *, name: str = "", classes: Sequence[ClassValue] = (), failed: bool = False
    ) -> None:
        Unknown.made += 1
        self.text = text
        self.name = name  # dotted, for what an import leads to outside the registered source
        self.classes = tuple(classes)
        self.given = False  # a parameter that may be anything, a module too
        self.pattern = ""  # of a string: what is known of it, with `*` for the rest
        self.failed = failed  # left by a statement that could not be followed

    def __repr__(self) -> str:
        return f"Unknown({self.text or self.name})"


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """`value` under `condition`; `live`: whether the evaluated configuration takes it, None where that is open."""

    condition: str
    value: Any
    live: bool | None


class Choice(Abstract):
    """One of several values, by conditions of the source."""

    __slots__ = ("options",)

    def __init__(self, options: Sequence[Option]) -> None:
        self.options = tuple(options)

    def __repr__(self) -> str:
        return f"Choice({self.options})"


class Uncertain(list[Any]):
    """The items of a loop whose number of turns is not known: one turn's."""


class Loop:
    """Whether anything looked at the number of a loop's turn; where nothing did, its turns are all alike."""

    __slots__ = ("used",)

    def __init__(self) -> None:
        self.used = False


class Turn(int):
    """The number of a loop's turn."""

    loop: Loop


def turn(number: int, loop: Loop) -> Turn:
    """The number of one turn of a loop."""
    value = Turn(number)
    value.loop = loop
    return value


class Label(str):
    """A string built by an f-string in a loop; `pattern` has `*` for the parts that vary."""

    pattern: str


def label(text: str, pattern: str) -> Label:
    """A string of a turn, beside the pattern that all turns' strings share."""
    value = Label(text)
    value.pattern = pattern
    return value


def both(first: str, second: str) -> str:
    """Two conditions as one; what the first says already is not said twice."""
    if second and (first == second or first.endswith(f" and {second}") or first.startswith(f"{second} and ")):
        return first
    return f"{first} and {second}" if first and second else first or second


def choice(options: Sequence[Option]) -> Any:
    """The options as one value: nested choices made flat, a single certain one without condition taken out."""
    flat: list[Option] = []
    for option in options:
        if isinstance(option.value, Choice):
            for inner in option.value.options:
                live = False if False in (option.live, inner.live) else (option.live and inner.live)
                flat.append(Option(both(option.condition, inner.condition), inner.value, live))
        else:
            flat.append(option)
    if len(flat) == 1 and flat[0].live and not flat[0].condition:
        return flat[0].value
    return Choice(flat[:64])


def plain(value: Any) -> Any:
    """The value to compute with: the live option of a choice (MISSING where none is), a turn as a number."""
    kind = type(value)
    if kind is Choice:
        live = [option for option in value.options if option.live is not False]
        if len(live) == 1 and live[0].live:
            return plain(live[0].value)
        return value if live else MISSING
    if kind is Turn:
        value.loop.used = True
        return int(value)
    return value


def single(value: Any) -> Any:
    """The value to compute with, where there is one."""
    value = plain(value)
    if value is MISSING:
        raise RaisedError("AttributeError")
    return value


def known(*values: Any) -> None:
    """Raise `UndecidedError` unless source tells all the values."""
    if any(isinstance(value, Unknown | Choice | Uncertain) for value in values):
        raise UndecidedError


def data_of(value: Any) -> Any:
    """An enum member or a dict subclass by what it holds."""
    return value.data if isinstance(value, Instance) and value.data is not None else value


def absent(value: Any) -> bool:
    """Whether the value stands only in branches that are not taken."""
    return type(value) is Choice and all(option.live is False for option in value.options)


@dataclass(eq=False, slots=True, repr=False)
class ClassValue:
    """A class; `added` holds what was set on it while interpreting, `space` its members by name."""

    symbol: ClassSymbol
    mro: list[ClassValue | str] = field(default_factory=list)
    space: dict[str, Any] = field(default_factory=dict)
    added: dict[str, Any] = field(default_factory=dict)
    ready: bool = False
    kinds: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ClassValue({self.qualified_name})"

    @property
    def name(self) -> str:
        """The name behind the last dot."""
        return self.symbol.name

    @property
    def qualified_name(self) -> str:
        """Module and path in it, joined by a dot."""
        return self.symbol.qualified_name

    def names(self) -> list[str]:
        """Qualified, of the classes of the MRO."""
        return [base if isinstance(base, str) else base.qualified_name for base in self.mro]

    def is_a(self, qualified: str) -> bool:
        """Whether it is, or inherits from, a class of this qualified name."""
        known: bool | None = self.kinds.get(qualified)
        if known is None:
            known = self.kinds[qualified] = qualified in self.names()
        return known

    def is_module(self) -> bool:
        """Whether the class is a torch.nn.Module, as far as source tells."""
        return self.is_a(MODULE) or self.is_a("torch.nn.Module")

    def is_enum(self) -> bool:
        """Whether its members are made by `enum`."""
        return self.is_a("enum.Enum")

    def container(self) -> str:
        """`ModuleList`, `Sequential` or `ModuleDict` where the class is one of them."""
        known: str | None = self.kinds.get("")
        if known is None:
            found = [match[1] for name in self.names() if (match := _CONTAINER.fullmatch(name))]
            known = self.kinds[""] = found[0] if found else ""
        return known

    def outside(self) -> bool:
        """Whether a base of the class has no source, so that it may have any attribute."""
        known: bool | None = self.kinds.get("outside")
        if known is None:
            known = self.kinds["outside"] = any(
                isinstance(base, str) and base not in _EMPTY_BASES and base not in DATA_BASES for base in self.mro
            )
        return known


@dataclass(eq=False, slots=True, repr=False)
class FunctionValue:
    """A `def` or lambda with the frame that it was made in; `holder` is the class whose body holds it."""

    code: Function
    closure: Frame | None = None
    holder: ClassValue | None = None


@dataclass(eq=False, slots=True, repr=False)
class Method:
    """A function bound to an instance or a class."""

    function: Any
    this: Any


@dataclass(eq=False, slots=True, repr=False)
class Property:
    """A property; `of_class` where it is read from the class."""

    getter: Any = None
    setter: Any = None
    of_class: bool = False


@dataclass(eq=False, slots=True, repr=False)
class Static:
    """A `staticmethod`, called without the object."""

    function: Any


@dataclass(eq=False, slots=True, repr=False)
class OfClass:
    """A `classmethod`, called with the class."""

    function: Any


@dataclass(eq=False, slots=True, repr=False)
class ModuleValue:
    """A module of the source."""

    unit: Unit


@dataclass(eq=False, slots=True, repr=False)
class Super:
    """`super()`: attributes of `this` are looked up behind `holder` in its order of classes."""

    holder: ClassValue
    this: Any


@dataclass(eq=False, slots=True, repr=False)
class Native:
    """A function of the interpreter's own, called with (interpreter, args, kwargs); `full`: it takes choices."""

    name: str
    run: Callable[..., Any]
    full: bool = False


@dataclass(eq=False, slots=True, repr=False)
class Partial:
    """`functools.partial`."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False, slots=True, repr=False)
class FieldValue:
    """`dataclasses.field(...)`."""

    default: Any
    default_factory: Any
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """Where an instance was asked for: in code that builds `owner`. `dispatch` is the expression that led to the class
    where that is no plain class name."""

    owner: Any
    unit: Unit
    line: int
    arguments: str
    dispatch: str
    repeat: str
    column: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where an attribute was set to a value: the expression, in a method of the class `holder`."""

    value: Any
    holder: ClassValue | None
    code: Text
    node: ast.expr


@dataclass(eq=False, slots=True, repr=False)
class Instance:
    """An object. `waiting` runs its constructor, where that has not been done; `data` is what an instance of a
    list or dict subclass holds; `shared`: its attributes are those of an equal instance; `places` where attributes were
    set, by their names and the ids of what they were set to."""

    cls: ClassValue
    attrs: dict[str, Any] = field(default_factory=dict)
    data: Any = None
    sites: list[Site] = field(default_factory=list)
    waiting: Callable[[Instance], None] | None = None
    shared: bool = False
    module: bool = False
    serial: int = 0
    key: tuple[int, Any] | None = None
    places: dict[tuple[str, int], Place] = field(default_factory=dict)

    def wake(self) -> None:
        """Run the constructor where it waits."""
        act, self.waiting = self.waiting, None
        if act is not None:
            act(self)


@dataclass(eq=False, slots=True, repr=False)
class Frame:
    """One running function: its local values, what it builds (`this`), and how it has returned so far."""

    unit: Unit
    code: Text
    local: dict[str, Any]
    closure: Frame | None = None
    this: Any = None
    holder: ClassValue | None = None
    repeat: list[str] = field(default_factory=list)
    returns: list[Option] = field(default_factory=list)
    passed: str = ""
    open: bool = False
    before: int = 0
