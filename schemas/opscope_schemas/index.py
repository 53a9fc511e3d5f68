"""What the index answers: a class as it is defined (`resolve_class`), and the lines of the forward that would run
(`find_forward`). Paths are relative to the repository's root, lines are 1-based; a line is that of the `class` or
`def` keyword.
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Literal

from pydantic import Field

from opscope_schemas.common import Frozen, ToolResult
from opscope_schemas.cpp import CppFacts

LineKind = Literal["op", "submodule_call", "helper_call", "control_flow", "return"]


with warnings.catch_warnings():
    # every class object has a method `mro`; that a field bears the name does not matter to instances
    warnings.filterwarnings("ignore", 'Field name "mro"', UserWarning)

    class Linearised(Frozen):
        """Carries the method resolution order of a class."""

        promised: ClassVar[tuple[str, ...]] = ("mro",)

        mro: tuple[str, ...] = Field(
            default=(), description="Qualified names; a class that is not in the source goes by its import name."
        )


class Parameter(Frozen):
    """One parameter of a signature, as written."""

    name: str
    annotation: str = ""
    default: str = ""


class Candidate(Frozen):
    """One of several functions or classes that a call may run."""

    promised: ClassVar[tuple[str, ...]] = ("file", "line")

    key: str = Field(default="", description="The table's key, or the condition, that picks it.")
    callee: str = Field(description="Qualified name; empty for those that source does not tell, named last.")
    file: str = ""
    line: int = 0


class Decided(Frozen):
    """A config field on which a line hangs, and the line where its value is decided."""

    promised: ClassVar[tuple[str, ...]] = ("value", "file", "line", "rule")

    field: str = Field(description="From the configuration of the class, e.g. `layer_types`, `text_config.hidden_act`.")
    read_file: str = Field(default="", description="Where it is read; empty for the entry's own file.")
    read_line: int = 0
    value: str = Field(
        default="", description="JSON, of the given `config` or by default; empty: not decided by source."
    )
    file: str = Field(default="", description="Where the value is decided; empty for a `config` given as an object.")
    line: int = 0
    rule: str = Field(default="", description="That line: a default, the rule that computes it, or the config's key.")
    also: tuple[int, ...] = Field(default=(), description="Later lines of the file that may change items of it.")


class Call(Frozen):
    """One computation on a line: a call, or an operator such as `operator.add`."""

    promised: ClassVar[tuple[str, ...]] = ("callee", "attribute", "line")

    kind: Literal["op", "submodule_call", "helper_call"]
    code: str
    callee: str = Field(default="", description="Qualified name; empty where source does not tell.")
    callee_file: str = ""
    callee_line: int = 0
    attribute: str = Field(default="", description="Path of the submodule that is called, e.g. `self_attn.q_proj`.")
    dispatch: str = Field(default="", description="The expression that picks the callee at run time.")
    line: int = 0
    candidates: tuple[Candidate, ...] = Field(
        default=(), description="What `dispatch` may pick, 40 at most; those of the line's main call stand at the line."
    )
    candidate_count: int = Field(default=0, description="Candidates in all.")


class ForwardLine(Frozen):
    """One computational line of a forward; `callee` is that of its most telling call, `calls` lists all of them."""

    promised: ClassVar[tuple[str, ...]] = ("callee", "attribute", "condition")

    line: int
    end_line: int
    code: str
    kind: LineKind
    callee: str = ""
    callee_file: str = ""
    callee_line: int = 0
    attribute: str = ""
    dispatch: str = ""
    candidates: tuple[Candidate, ...] = Field(default=(), description="What `dispatch` may pick, 40 at most.")
    candidate_count: int = Field(default=0, description="Candidates in all.")
    condition: str = Field(default="", description="The conditions and loops that the line stands in.")
    training_only: bool = Field(default=False, description="Runs, or has an effect, in training only.")
    calls: tuple[Call, ...] = ()
    decided: tuple[Decided, ...] = Field(
        default=(),
        description="Config fields that the line branches on, or that chose what it uses; branches name all of theirs, other "
        "lines those not named above.",
    )


DecoratorEffect = Literal[
    "documentation", "wraps the call", "replaces the implementation under a condition", "registers", "marks",
    "returns it unchanged", "not known",
]  # fmt: skip


class ExplainedDecorator(Frozen):
    """What a decorator does, read off its own source."""

    promised: ClassVar[tuple[str, ...]] = ("qualified_name", "file", "line")

    decorator: str = Field(description="As written.")
    on: Literal["forward", "class"]
    qualified_name: str = ""
    file: str = ""
    line: int = 0
    effect: DecoratorEffect
    detail: str = Field(default="", description="What in the decorator's source says so.")
    candidates: tuple[Candidate, ...] = Field(default=(), description="What it may put in place of the forward.")


class FindForwardResult(Linearised, ToolResult):
    """Answer of `find_forward`."""

    promised: ClassVar[tuple[str, ...]] = ("decorators", "parameters", "lines")

    target: str
    class_name: str
    defined_in: str
    inherited: bool
    file: str
    line: int
    end_line: int
    decorators: tuple[str, ...] = ()
    decorators_explained: tuple[ExplainedDecorator, ...] = Field(
        default=(), description="What the decorators of the forward and of the class do, outermost first."
    )
    signature: str = ""
    parameters: tuple[Parameter, ...] = ()
    returns: str = ""
    lines: tuple[ForwardLine, ...] = ()
    line_count: int = Field(default=0, description="Computational lines in all, before `limit`.")


class SubmoduleInfo(Frozen):
    """An attribute that holds a module; `layers.*` are the modules in the container `layers`. Where conditions pick
    the class, each alternative is an entry of its own."""

    promised: ClassVar[tuple[str, ...]] = ("arguments", "line", "condition", "file")

    attribute: str
    class_name: str = Field(description="Qualified class; empty where source does not tell it (see `dispatch`).")
    arguments: str = ""
    line: int = 0
    condition: str = ""
    repeat: str = Field(default="", description="The loop that builds it.")
    dispatch: str = Field(default="", description="The expression that picks the class.")
    file: str = Field(default="", description="File of the line where it is not the class's own.")
    at_default: bool | None = Field(
        default=True,
        description="Whether a model built from its default configuration holds this alternative; null: not known.",
    )
    candidates: tuple[str, ...] = Field(
        default=(), description="Where the class is not known: those that the expression chooses among."
    )
    decided: tuple[Decided, ...] = Field(default=(), description="Config fields that choose it.")


class ForwardPlace(Frozen):
    """Where the forward of a class is defined."""

    defined_in: str
    file: str
    line: int
    end_line: int


class ClassPlace(Frozen):
    """Where a class is defined."""

    qualified_name: str
    file: str
    line: int


class ClassUser(Frozen):
    """A place that builds a class or calls a method on it."""

    kind: Literal["instantiate", "call"]
    file: str
    line: int
    within: str = Field(description="Qualified name of the def or class that holds the place, else the module's.")


class ClassMatch(Linearised):
    """One class."""

    promised: ClassVar[tuple[str, ...]] = (
        "decorators",
        "bases",
        "submodules",
        "subclasses",
        "exported_as",
        "condition",
        "language",
        "kind",
    )

    qualified_name: str
    file: str
    line: int
    end_line: int
    repository: str = ""
    decorators: tuple[str, ...] = ()
    bases: tuple[str, ...] = ()
    submodules: tuple[SubmoduleInfo, ...] = ()
    subclasses: tuple[str, ...] = Field(default=(), description="Classes that name this one as a base.")
    subclass_places: tuple[ClassPlace, ...] = Field(default=(), description="Each of `subclasses` with its place.")
    subclass_count: int = Field(default=0, description="Direct subclasses in all.")
    subclasses_verified: bool = Field(
        default=True, description="False: too many to check each; they name a base of the same last name."
    )
    descendant_count: int = Field(default=0, description="Subclasses in all, indirect ones included.")
    users: tuple[ClassUser, ...] = Field(default=(), description="Who builds the class or calls a method on it.")
    user_count: int = Field(default=0, description="Users found, before `user_offset` and `user_limit`.")
    users_complete: bool = Field(default=True, description="False: more places bear the name than were read.")
    exported_as: tuple[str, ...] = ()
    condition: str = Field(default="", description="The guard that the definition stands under.")
    forward: ForwardPlace | None = None
    method: str = Field(default="", description="For `path:line`: the method at that line.")
    generated_from: str = Field(default="", description="The modular_*.py file that this file is generated from.")
    language: str = Field(default="python", description="python, c++ or cuda.")
    kind: str = Field(default="class", description="In C++ also struct, union, enum, alias, concept, function, macro.")
    cpp: CppFacts | None = Field(default=None, description="What only a definition in C++ or CUDA has.")


class ResolveClassResult(ToolResult):
    """Answer of `resolve_class`."""

    promised: ClassVar[tuple[str, ...]] = ("matches", "suggestions")

    name: str
    model_type: str = Field(default="", description="Set where the name is a model type.")
    matches: tuple[ClassMatch, ...] = ()
    match_count: int = Field(default=0, description="Matches in all, before `offset` and `limit`.")
    suggestions: tuple[str, ...] = ()


for _model in (ClassMatch, ResolveClassResult, FindForwardResult):
    # pydantic takes an inherited field's default off the class, where `mro` is type's own method
    if "mro" in _model.model_fields:
        _model.model_fields["mro"].default = ()
    _model.model_rebuild(force=True)
