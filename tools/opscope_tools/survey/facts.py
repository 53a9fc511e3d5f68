"""What one file says, as plain records: made by the readers of files (python_file.py, plain_file.py), which may run in
another process, and put together by everything else. Lines are 1-based; paths are relative to the repository's root.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from opscope_tools.source.python.rows import Guard


@dataclass(slots=True)
class Hit:
    """A line that says something: `name` is what it names, `text` what it says, `within` the definition around it."""

    name: str
    line: int
    text: str = ""
    within: str = ""
    #: what has to hold for the line to run, where one is around it
    condition: str = ""


@dataclass(slots=True)
class FieldFact:
    """A field of a class, or a parameter of a function: `name: annotation = default`."""

    name: str
    line: int
    annotation: str = ""
    default: str = ""


@dataclass(slots=True)
class Work:
    """What one function does: effect (effects.py) -> (what shows it, its line), and how many times; the effects inside its
    loops; the calls that lead on, in and outside loops; whether it loops by `while` or `for`."""

    effects: dict[str, tuple[str, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    looped: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    looped_calls: set[str] = field(default_factory=set)
    #: attribute of self -> the functions that it is bound to
    binds: dict[str, set[str]] = field(default_factory=dict)
    loop: str = ""


@dataclass(slots=True)
class FunctionFact:
    """A function or method; `path` inside the module; `abstract` where it only raises, or is declared so."""

    path: str
    line: int
    end_line: int
    decorators: tuple[Hit, ...] = ()
    parameters: tuple[FieldFact, ...] = ()
    abstract: bool = False
    loops: bool = False
    #: of a function at module level: `does.N.ROLE` (topics.py) -> the first name in its body that shows it, with its line
    does: dict[str, tuple[str, int]] = field(default_factory=dict)
    work: Work | None = None
    #: the first line of its docstring
    says: str = ""

    @property
    def name(self) -> str:
        """The name behind the last dot of its path."""
        return self.path.rpartition(".")[2]


@dataclass(slots=True)
class ClassFact:
    """A class; `bases` and decorators with the file's imports followed (`nn.Module` is `torch.nn.Module`)."""

    path: str
    line: int
    end_line: int
    bases: tuple[str, ...] = ()
    decorators: tuple[Hit, ...] = ()
    methods: tuple[FunctionFact, ...] = ()
    fields: tuple[FieldFact, ...] = ()
    metaclass: str = ""
    #: as of functions
    does: dict[str, tuple[str, int]] = field(default_factory=dict)
    says: str = ""

    @property
    def name(self) -> str:
        """The name behind the last dot of its path."""
        return self.path.rpartition(".")[2]

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.end_line - self.line + 1


@dataclass(slots=True)
class ImportFact:
    """`from module import member as name` with relative dots resolved, and what the name `stands` for; `optional` inside a
    `try` with an except.

    `line` is that of the name, `statement` that of the statement, which may hold several; `guard` is what a statement of the
    module's own level stands under.
    """

    module: str
    member: str
    name: str
    stands: str
    line: int
    statement: int
    optional: bool = False
    guard: Guard | None = None


@dataclass(slots=True)
class EnvironmentFact:
    """A read (or setting) of the environment.

    `key` is a literal name; or, by `kind`: `name` (a constant elsewhere), `parameter` (of the function `within`),
    `attribute` (of self in the method `within`), `dynamic` (anything else).
    """

    key: str
    kind: str
    line: int
    within: str
    default: str = ""
    written: bool = False
    mechanism: str = "direct"


#: (position or keyword, `literal` or `parameter`, text, line)
Argument = tuple[str, str, str, int]


@dataclass(slots=True)
class NamedCall:
    """A call that is given a name in capitals or a parameter of its function: it may read the environment.

    `arguments` are (position or keyword, `literal` or `parameter`, text, line); `target` is what it is assigned to.
    """

    callee: str
    line: int
    within: str
    arguments: tuple[Argument, ...]
    target: str = ""


@dataclass(slots=True)
class FlagFact:
    """A command-line flag; without names it is made from something that is no literal."""

    names: tuple[str, ...]
    line: int
    how: str
    default: str = ""
    within: str = ""


@dataclass(slots=True)
class CommandFact:
    """A line that is a command: `kind` install, build, test, run or other; `source` the kind of file."""

    text: str
    line: int
    kind: str
    source: str


@dataclass(slots=True)
class FileFacts:
    """What one file says."""

    path: str
    language: str
    lines: int = 0
    #: the first line that is not blank; 0: there is none
    first: int = 0
    broken: str = ""
    docstring: Hit | None = None
    classes: tuple[ClassFact, ...] = ()
    functions: tuple[FunctionFact, ...] = ()
    imports: tuple[ImportFact, ...] = ()
    exports: tuple[str, ...] | None = None
    #: line of a definition at the module's own level -> what it stands under
    guards: dict[int, Guard] = field(default_factory=dict)
    environment: tuple[EnvironmentFact, ...] = ()
    named_calls: tuple[NamedCall, ...] = ()
    self_sets: tuple[tuple[str, str, str], ...] = ()
    constants: dict[str, tuple[str, int]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    flags: tuple[FlagFact, ...] = ()
    flag_makers: dict[str, str] = field(default_factory=dict)
    class_calls: tuple[Hit, ...] = ()
    commands: tuple[CommandFact, ...] = ()
    #: topic -> (how many lines, the first of them)
    topics: dict[str, tuple[int, list[Hit]]] = field(default_factory=dict)

    def hits(self, topic: str) -> list[Hit]:
        """The first lines of a topic."""
        return self.topics.get(topic, (0, []))[1]
