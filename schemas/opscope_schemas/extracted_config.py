"""What configures an implementation, as its source says it: the vocabulary of `extract_config`.

Order: one hyperparameter and what belongs to it, configuration classes, kernels, constraints, the result. `value` is what
an object made without arguments holds; what source does not decide has no value but the expression in `open`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, WithJsonSchema

from opscope_schemas.common import Frozen, ToolResult

#: a fact of a configuration names its file where that is not the configuration's own
OWN_FILE = Field(default="", description="Empty: the configuration's own file.")
ParameterKind = Literal["field", "argument", "attribute", "class attribute"]
ConfigurationKind = Literal["dataclass", "pydantic", "attrs", "msgspec", "namedtuple", "class", "arguments"]
TargetKind = Literal["model", "configuration", "kernels", "files"]
Basis = Literal["source", "evaluated", "derived", "required", "open"]


#: what JSON can hold of a setting
_KINDS = ("boolean", "number", "string", "array", "object", "null")
Json = Annotated[Any, WithJsonSchema({"anyOf": [{"type": kind} for kind in _KINDS]})]


class Place(Frozen):
    """A line of source."""

    file: str
    line: int


class Meaning(Frozen):
    """What source says a parameter means, in its own words."""

    promised: ClassVar[tuple[str, ...]] = ("file",)

    text: str
    file: str = OWN_FILE
    line: int
    origin: Literal["docstring", "field docstring", "comment", "declaration", "documentation table"]


class Override(Frozen):
    """A declaration of the same name further up the MRO, which does not count."""

    promised: ClassVar[tuple[str, ...]] = ("file",)

    class_name: str
    file: str = OWN_FILE
    line: int
    default: str = ""


class Derivation(Frozen):
    """A statement of a constructor that sets the parameter to something else than what was given."""

    promised: ClassVar[tuple[str, ...]] = ("condition", "file")

    formula: str
    condition: str = Field(default="", description="Tests around the statement; empty: always.")
    within: str = Field(description="`Class.method` that holds the statement.")
    file: str = OWN_FILE
    line: int


class Reads(Frozen):
    """Where the model's files read the parameter."""

    count: int = Field(description="Places; 0: read nowhere in the model's files.")
    unsure: int = Field(
        default=0, description="Of these, places whose object is not declared to be this configuration."
    )
    first: tuple[Place, ...] = ()
    within: tuple[str, ...] = Field(
        default=(), description="Classes and functions that hold all these places; an empty name: a place is in none."
    )


class Hyperparameter(Frozen):
    """One parameter of a configuration."""

    promised: ClassVar[tuple[str, ...]] = ("file", "class_name", "kind")

    name: str
    file: str = OWN_FILE
    line: int
    class_name: str = Field(
        default="", description="Class whose definition counts, or the function; empty: the configuration itself."
    )
    kind: ParameterKind = "field"
    annotation: str = ""
    default: str = Field(default="", description="As written; empty: none is written.")
    basis: Basis
    value: Json = Field(default=None, description="Of an object made without arguments. Keys of mappings are text.")
    open: str = Field(default="", description="Expression that source does not decide.")
    overrides: tuple[Override, ...] = ()
    derived: tuple[Derivation, ...] = ()
    aliases: tuple[str, ...] = Field(default=(), description="Other names for it (attribute_map).")
    meaning: Meaning | None = None
    sub_config: str = Field(default="", description="`path` of the configuration that it holds by default.")
    reads: Reads | None = Field(default=None, description="Null where no model's file belongs to the target.")
    given: Json = Field(default=None, description="What `config` gives for it.")
    effective: Json = Field(default=None, description="What an object made with `config` holds, where not `value`.")
    is_given: bool = False


class AcceptedKey(Frozen):
    """A name that the constructor takes beside its parameters, for older files for instance."""

    promised: ClassVar[tuple[str, ...]] = ("file",)

    name: str
    file: str = OWN_FILE
    line: int


class Configuration(Frozen):
    """A class (or function) that is configured, with its parameters."""

    promised: ClassVar[tuple[str, ...]] = ("path",)

    path: str = Field(default="", description="Attribute that holds it, dotted; empty: the target's own.")
    class_name: str
    file: str
    line: int
    end_line: int
    kind: ConfigurationKind
    parents: tuple[str, ...] = Field(default=(), description="Classes of the MRO that are in source, nearest first.")
    hyperparameters: tuple[Hyperparameter, ...] = ()
    total: int = Field(description="Parameters; `hyperparameters` may be a page of them.")
    accepts: tuple[AcceptedKey, ...] = ()
    unknown_keys: tuple[str, ...] = Field(
        default=(), description="Keys of a `config` object that source knows nothing of."
    )


class Constant(Frozen):
    """A constant of a file: assigned at module level, or `#define`d or `constexpr` in C++ and CUDA."""

    promised: ClassVar[tuple[str, ...]] = ("condition",)

    name: str
    expression: str
    value: Json = None
    basis: Literal["source", "evaluated", "open"] = "source"
    meaning: Meaning | None = None
    condition: str = ""
    file: str
    line: int


class Setting(Frozen):
    """One compile-time or launch parameter of a kernel."""

    name: str
    kind: Literal[
        "tile", "constexpr", "template", "num_warps", "num_stages", "launch_bounds", "dynamic_shared_memory", "block"
    ]
    values: tuple[str, ...] = ()
    default: str = ""
    file: str
    line: int


class TuneSet(Frozen):
    """An autotune decorator."""

    count: int | None = None
    first: tuple[str, ...] = Field(default=(), description="The first configurations, written out.")
    key: tuple[str, ...] = ()
    unresolved: str = ""
    file: str
    line: int


class KernelSettings(Frozen):
    """What configures one kernel; `cuda_kernel_tiling` with its `id` tells the rest."""

    promised: ClassVar[tuple[str, ...]] = ("autotune",)

    id: str
    name: str
    language: str
    role: str
    file: str
    line: int
    settings: tuple[Setting, ...] = ()
    autotune: TuneSet | None = None


class KernelHook(Frozen):
    """A place where the model's file takes a kernel from elsewhere."""

    name: str
    expression: str
    within: str
    file: str
    line: int


class Check(Frozen):
    """What must hold, or what is tested before something runs."""

    promised: ClassVar[tuple[str, ...]] = ("condition", "message")

    kind: str = Field(
        description="assert, raise, validator, capability, dtype, static_assert, device_assert, launch_bounds, a macro's name."
    )
    condition: str = Field(default="", description="assert: must hold; raise: what triggers it; empty: always.")
    message: str = ""
    error: str = Field(default="", description="Exception class of a raise.")
    within: str = Field(default="", description="Class, method or function around it.")
    file: str
    line: int
    names: tuple[str, ...] = Field(default=(), description="Parameters of the configuration or kernel that it names.")


class ExtractConfigResult(ToolResult):
    """Answer of `extract_config`."""

    promised: ClassVar[tuple[str, ...]] = ("class_name", "constraints")

    target: str
    target_kind: TargetKind
    class_name: str = Field(default="", description="The model or configuration class meant; empty: none.")
    model_type: str = ""
    configurations: tuple[Configuration, ...] = ()
    constants: tuple[Constant, ...] = ()
    constant_count: int = 0
    kernels: tuple[KernelSettings, ...] = ()
    kernel_count: int = 0
    kernel_hooks: tuple[KernelHook, ...] = ()
    constraints: tuple[Check, ...] = ()
    constraint_count: int = 0
    constraint_kinds: dict[str, int] = Field(default_factory=dict)
    files: tuple[str, ...] = Field(default=(), description="Files whose constraints were read.")
    next_offset: int | None = Field(default=None, description="Give it as `offset` with `section`; null: no more.")
