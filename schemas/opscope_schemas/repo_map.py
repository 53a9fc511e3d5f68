"""What `map_repo` answers: the reconnaissance of a repository, section by section, each fact with `at`, its `path:line`.

Lists hold the best first; `totals` of the result says how many there are in all. Where nothing was found, `searched` says
what was looked for, so that "none" is a statement that can be checked.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult

Section = Literal[
    "overview",
    "modules",
    "entry_points",
    "commands",
    "environment",
    "flags",
    "config",
    "llm",
    "components",
    "loop",
    "kv_cache",
    "scheduler",
    "sampling",
    "kernels",
    "extensions",
    "pitfalls",
]


class Place(Frozen):
    """A line of source: `name` is what it names there."""

    promised: ClassVar[tuple[str, ...]] = ("condition",)

    name: str
    at: str = Field(description="path:line")
    text: str = Field(default="", description="The line, or what it says.")
    condition: str = Field(default="", description="Of a pitfall: what has to hold for the line to run.")


class Counted(Frozen):
    """Something that was counted, with its first or best places."""

    name: str
    count: int = Field(description="Lines of source, tests and examples left out.")
    files: int = 0
    places: tuple[Place, ...] = ()
    searched: str = Field(default="", description="Given where the count is 0: what was looked for.")
    scope: str = Field(
        default="", description="Given where not all source files are counted: which, and what is elsewhere."
    )


class ModuleRow(Frozen):
    """A folder or top-level module."""

    path: str
    role: str = Field(description="What it is for: by its name, or by what it holds.")
    files: int
    lines: int
    classes: int = 0
    functions: int = 0
    at: str = Field(default="", description="Its first docstring, else its first definition.")
    says: str = Field(default="", description="First line of that docstring.")


class Skipped(Frozen):
    """A folder that the module map leaves out, and why."""

    path: str
    reason: str
    files: int


class EntryPoint(Frozen):
    """A way in."""

    kind: Literal["console script", "plugin", "main module", "main block", "server", "route", "benchmark", "example"]
    name: str
    at: str
    target: str = Field(
        default="", description="path:line of the function that it runs, where that is in the repository."
    )
    text: str = ""


class Command(Frozen):
    """A command, quoted as it stands on its line."""

    kind: str
    command: str
    at: str
    source: str = Field(description="makefile, dockerfile, ci, readme, guide, script or manifest.")


class EnvironmentVariable(Frozen):
    """A variable of the environment."""

    name: str
    at: str
    how: str = Field(
        description="table, declared object, settings class, flag, direct, helper, C++ getenv, library, or set."
    )
    default: str = ""
    reads: int = 0


class EnvironmentSurface(Frozen):
    """The environment variables that the repository reads."""

    promised: ClassVar[tuple[str, ...]] = ("variables",)

    variables: tuple[EnvironmentVariable, ...] = ()
    by_mechanism: dict[str, int] = Field(
        default={}, description="Distinct variables; `set` are those only set, never read."
    )
    dynamic: tuple[str, ...] = Field(
        default=(), description="Places where the name is made at run time: not in the list."
    )
    prefixes: tuple[str, ...] = ()
    unexplained: tuple[Place, ...] = Field(
        default=(), description="Names with a prefix of the project that no mechanism read here explains."
    )
    searched: str = ""


class Flag(Frozen):
    """A command-line flag or argument."""

    names: tuple[str, ...]
    at: str
    how: str
    default: str = ""


class FlagSurface(Frozen):
    """The command line."""

    flags: tuple[Flag, ...] = ()
    by_mechanism: dict[str, int] = Field(default={}, description="Declarations.")
    files: tuple[Counted, ...] = Field(default=(), description="Files that declare most of them.")
    dynamic: tuple[str, ...] = Field(default=(), description="Declarations whose name is made at run time.")
    searched: str = ""


class ConfigField(Frozen):
    """A field of a configuration class."""

    name: str
    line: int
    annotation: str = ""
    default: str = ""


class ConfigClass(Frozen):
    """A class that holds configuration."""

    name: str
    at: str
    kind: str = Field(description="dataclass, pydantic, msgspec, PretrainedConfig, attrs, or class.")
    importers: int = Field(default=0, description="Files outside tests that import it.")
    field_count: int = Field(description="Fields of its own, those of bases left out.")
    fields: tuple[ConfigField, ...] = ()


class ConfigFolder(Frozen):
    """Configuration files of a folder."""

    path: str
    files: int
    at: str = Field(description="The first key of the first file.")
    keys: tuple[str, ...] = ()


class Candidate(Frozen):
    """A definition that may be a component."""

    promised: ClassVar[tuple[str, ...]] = ("subclasses", "weak")

    name: str
    at: str
    lines: int
    importers: int = Field(default=0, description="Files outside tests that import it.")
    subclasses: int = 0
    methods: tuple[Place, ...] = Field(default=(), description="Methods that speak for the role.")
    does: tuple[Place, ...] = Field(
        default=(), description="The first lines of its body that do the role's work, or handle what it is about."
    )
    weak: str = Field(
        default="", description="Why it may well not play the role; empty where its body does the role's work."
    )
    says: str = Field(default="", description="The first paragraph of its docstring.")


class Component(Frozen):
    """A role and what plays it, the best candidate first."""

    role: str
    candidates: tuple[Candidate, ...] = ()
    total: int = 0
    files: int = Field(default=0, description="Files that hold the candidates.")
    searched: str = ""


class NestLine(Frozen):
    """A line of the call nesting; `depth` is the depth in the syntax tree, summed over the calls that lead here."""

    depth: int
    kind: Literal["loop", "branch", "block", "call", "work", "choice", "exit"]
    code: str
    at: str
    into: str = Field(default="", description="path:line of the definition that the lines below are the body of.")
    note: str = ""
    calls: int = Field(default=0, description="How many calls lead from the entry to the function that holds the line.")
    stage: str = Field(default="", description="The stage of an engine that is called here.")


class CallNest(Frozen):
    """What a function does, call by call."""

    promised: ClassVar[tuple[str, ...]] = ("lines",)

    entry: str
    at: str
    lines: tuple[NestLine, ...] = ()
    reaches: tuple[str, ...] = Field(default=(), description="Stages of an engine that the lines reach.")
    cut: str = Field(default="", description="What was left out by the limits.")


class LlmVerdict(Frozen):
    """Whether this is about language models, by counted signals."""

    promised: ClassVar[tuple[str, ...]] = ("rule",)

    related: bool
    signals: tuple[Counted, ...] = ()
    rule: str = ""


class RegistryFact(Frozen):
    """A place that was made for extension."""

    kind: Literal["registry", "register decorator", "abstract base", "plugin group"]
    name: str
    at: str
    count: int = Field(description="Entries, decorated definitions or subclasses.")
    siblings: tuple[Place, ...] = Field(default=(), description="What is registered there already.")


class DistributionFact(Frozen):
    """What the metadata of a distribution says: METADATA, PKG-INFO, or the project table of pyproject.toml."""

    promised: ClassVar[tuple[str, ...]] = ("summary",)

    name: str
    version: str = ""
    at: str = Field(description="path:line of the name.")
    summary: Place | None = Field(default=None, description="What the distribution says it is.")
    requires: tuple[Place, ...] = Field(default=(), description="Requirements, those of extras after the others.")


class RepoMapResult(ToolResult):
    """Answer of `map_repo`."""

    promised: ClassVar[tuple[str, ...]] = ("lines", "totals")

    repository: str
    distribution: DistributionFact | None = None
    framework: str = ""
    frameworks: tuple[Counted, ...] = ()
    execution: tuple[Counted, ...] = ()
    files: int | None = Field(default=None, description="Files read.")
    lines: int | None = None
    languages: dict[str, int] = Field(default={}, description="Files by language.")
    directories: tuple[ModuleRow, ...] = Field(default=(), description="Folders at the top.")
    modules: tuple[ModuleRow, ...] = Field(
        default=(),
        description="Source packages, the packages directly below, and those below a row that holds most of the lines.",
    )
    skipped: tuple[Skipped, ...] = ()
    unread: tuple[Place, ...] = Field(default=(), description="Files that do not parse.")
    entry_points: tuple[EntryPoint, ...] = ()
    commands: tuple[Command, ...] = ()
    environment: EnvironmentSurface = EnvironmentSurface()
    flags: FlagSurface = FlagSurface()
    config_classes: tuple[ConfigClass, ...] = ()
    config_files: tuple[ConfigFolder, ...] = ()
    llm: LlmVerdict | None = None
    components: tuple[Component, ...] = ()
    loops: tuple[CallNest, ...] = Field(
        default=(), description="The engine's loop; then the step of the model, where the first does not lead into it."
    )
    loop_candidates: tuple[Place, ...] = Field(default=(), description="Other entries; give one as `entry`.")
    kv_cache: tuple[Counted, ...] = ()
    scheduler: tuple[Counted, ...] = ()
    sampling: tuple[Counted, ...] = ()
    kernels: tuple[Counted, ...] = ()
    extensions: tuple[RegistryFact, ...] = ()
    pitfalls: tuple[Counted, ...] = ()
    totals: dict[str, int] = Field(default={}, description="How many entries each list has in all.")
    section: str = Field(default="", description="Given where one section was asked for.")
    offset: int = Field(default=0, description="Where the page of the section begins.")
    next_offset: int | None = None
