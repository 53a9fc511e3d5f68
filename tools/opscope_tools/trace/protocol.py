"""What the server and its trace worker say to each other: one JSON object a line, a request down, replies up.

A reply line is `{"progress": text}` any number of times and then one `{"result": ...}` or `{"error": ...}`, each with the `id` of its request. The types
below are the request and the result of a trace. Formulas travel as text.
"""

from __future__ import annotations

from typing import Any, Literal

from opscope_schemas.analysis import ModelInput, Site, TensorInfo, Variable
from opscope_schemas.common import Frozen
from opscope_schemas.formula import Rational
from pydantic import ConfigDict, Field

#: what a trace's assumption begins with that names fields which were given and count for nothing
IGNORED = "Ignored of the given configuration"
#: what one begins with that says that the class is a part of what its model type describes
ALONE = "Of a whole "


class Asked(Frozen):
    """What the worker is sent: an infinite number of a configuration stays one."""

    model_config = ConfigDict(ser_json_inf_nan="constants")


class Definition(Frozen):
    """A class or function as the index found it in source: the worker imports this one and nothing of another name."""

    kind: Literal["class", "function"]
    module: str = Field(description="The module that defines it, never one that only hands it on.")
    name: str = Field(description="Qualified name within the module.")
    root: str = Field(description="Folder that holds the top package.")
    file: str = Field(description="Relative to the root.")
    line: int


class ModelSpec(Asked):
    """Which model, and from which configuration. No field of it is a name or a path that the worker follows, but for
    the definitions, which the index found, and the model type, which is a key of the worker's own table of configurations."""

    class_name: str = Field(default="", description="Qualified class; empty: the class that model_type means.")
    definition: Definition | None = Field(default=None, description="The class of class_name, or of model_type.")
    model_type: str = ""
    content: dict[str, Any] = Field(default_factory=dict, description="What the config file holds.")
    overrides: dict[str, Any] = Field(default_factory=dict, description="Config attributes or standard variables.")
    read: tuple[str, ...] = Field(
        default=(), description="Names of the content and the overrides that code of the model reads, as source says."
    )
    origin: str = Field(default="", description="A sentence that says whose configuration this is.")
    factory: Definition | None = Field(default=None, description="What builds the module instead of its class.")


class TraceRequest(Asked):
    """Trace one pass of a model."""

    model: ModelSpec
    phase: Literal["prefill", "decode", "encode", "train"] = "prefill"
    attention: Literal["sdpa", "eager"] = "sdpa"
    logits: Literal["all", "last"] = "all"
    inputs: dict[str, tuple[str | int, ...]] = Field(
        default_factory=dict, description="Shapes of the forward's arguments, of a module without a config."
    )
    fit: bool = Field(default=True, description="Fit formulas where sizes cannot be symbols.")
    fused: bool = Field(
        default=False, description="Count what a model defines in the place of a fused kernel as that kernel."
    )
    plain: bool = Field(default=False, description="Plain numbers throughout, every layer run and counted by itself.")
    hints: dict[str, int] = Field(
        default_factory=dict,
        description="Sizes that decide which way branches go, by variable; the rest as configured.",
    )


class ViewRecord(Frozen):
    """What an operator reads of a tensor: a view, equal numbers for the same one, its bytes, and other views that hold all of it."""

    tensor: int
    view: int
    size: str
    within: tuple[int, ...] = ()


class OpRecord(Frozen):
    """One operator call."""

    order: int
    call: int = Field(description="Index of the module call that issued it.")
    site: Site
    operator: str
    derivation: str = Field(description="How the figures come about, or why they are not known.")
    flops: str
    matmul_flops: str
    read: str
    write: str
    causal_saving: str = "0"
    counted: bool = True
    moves_whole: bool = Field(
        default=False, description="Whether all of each distinct input is read once, and each output written once."
    )
    repeat: str = Field(default="1", description="How often it runs per call: the steps of a loop that are alike.")
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    reads: tuple[int, ...] = Field(default=(), description="Tensors that it reads, by index; weights are none.")
    weights: tuple[str, ...] = Field(default=(), description="Weights that it reads, as its module names them.")
    writes: tuple[int, ...] = ()
    views: tuple[ViewRecord, ...] = Field(
        default=(),
        description="What it reads of each tensor, in the order of its inputs; empty where sizes are fitted at points where operators read other tensors.",
    )
    after: tuple[int, ...] = Field(default=(), description="Orders of the operators whose results it reads.")
    carried: tuple[int, ...] = Field(default=(), description="As `after`, of the step of its loop before it.")
    backward: bool = Field(default=False, description="Whether it computes gradients.")

    @property
    def units(self) -> Literal["bf16", "fp32"]:
        """The precision in which its products are computed: a router that widens what it is given multiplies in 32 bits."""
        return "fp32" if self.inputs and all(one.dtype == "float32" for one in self.inputs) else "bf16"


class CallRecord(Frozen):
    """One call of a module. `repeat` counts it and its folded siblings, per call of the parent."""

    index: int
    order: int
    end: int = Field(
        default=0, description="Order of the last event in it, the folded siblings that it calls included."
    )
    parent: int = -1
    path: str
    class_name: str
    file: str
    line: int
    forward_file: str = ""
    forward_line: int = 0
    site: Site | None = None
    repeat: str = "1"
    parameters: str = "0"
    weights: str = Field(default="0", description="Bytes of the weights as the checkpoint stores them.")
    description: str = Field(default="", description="The module's extra_repr, in variables.")
    window: str = Field(default="", description="Positions that its attention sees, itself among them; empty: all.")
    causal: bool = Field(default=False, description="Whether it says of itself that no position sees a later one.")
    inputs: tuple[TensorInfo, ...] = ()
    outputs: tuple[TensorInfo, ...] = ()
    reads: tuple[Site, ...] = Field(default=(), description="Where it reads values of tensors itself.")
    floor_read: str = "0"
    floor_write: str = "0"
    names: tuple[str, ...] = Field(
        default=(), description="Variables of its own figures, before what the run decided was put into them."
    )


class TensorRecord(Frozen):
    """A tensor in memory: made by an operator of the pass, or there before it (`born` 0)."""

    index: int
    kind: Literal["activation", "input", "cache", "constant", "output"]
    info: TensorInfo
    size: str = Field(default="", description="Bytes; empty: not known.")
    born: int = 0
    last: int = Field(default=0, description="Order of the last event that reads it.")
    held: int = Field(default=0, description="Order of the last event during which Python holds it.")
    alias_of: int | None = Field(default=None, description="The tensor that a folded sibling returned it in place of.")


class KeptRecord(Frozen):
    """A tensor of the cache: the memory in which it lies, its own bytes, and the module call that it belongs to."""

    index: int
    info: TensorInfo
    size: str = ""
    call: int = -1


class CarriedRecord(Frozen):
    """A repeated call reads `made`, which the call before it left, where the first one reads `read`."""

    call: int
    read: int
    made: int


class BesideRecord(Frozen):
    """What is in memory when a folded sibling runs in the place of a call: tensors of the pass, or those they stand for."""

    call: int
    tensors: tuple[int, ...]


class SavedRecord(Frozen):
    """Memory that autograd keeps for the way back, per call of the module in which it was first saved."""

    call: int
    site: Site
    info: TensorInfo
    size: str
    kind: Literal["", "layer", "input"] = Field(
        default="", description="layer: saved within a layer; input: what a layer is given, kept where it runs again."
    )


class IdleRecord(Frozen):
    """A part of the model that has weights and did not run in the pass."""

    path: str
    class_name: str
    parameters: str


class Trace(Frozen):
    """One pass, recorded."""

    model_class: str
    config_class: str
    model_type: str
    phase: str
    attention: str
    logits: Literal["all", "last", ""] = Field(
        default="", description="Positions that logits are computed of; empty: the forward has no argument for it."
    )
    dtype: str = "bfloat16"
    inputs: tuple[ModelInput, ...] = ()
    calls: tuple[CallRecord, ...]
    ops: tuple[OpRecord, ...]
    variables: tuple[Variable, ...]
    guards: tuple[str, ...] = Field(description="Conditions under which the record holds, complete.")
    decided: dict[str, tuple[int, ...]] = Field(
        default={},
        description="By guard: the calls that asked for it, or whose module's construction did; -1: neither.",
    )
    looked_up: dict[str, tuple[int, ...]] = Field(
        default={}, description="Guards that only calls need which look something up, with these."
    )
    ends: tuple[str, ...] = Field(default=(), description="Of these, conditions beyond which a run ends in an error.")
    merged: tuple[str, ...] = Field(default=(), description="Sizes that equalities put others in the place of.")
    point: dict[str, Rational] = Field(description="The sizes at which the branches were taken.")
    assumptions: tuple[str, ...] = ()
    tensors: tuple[TensorRecord, ...] = ()
    cache_before: tuple[KeptRecord, ...] = ()
    cache_after: tuple[KeptRecord, ...] = ()
    carried: tuple[CarriedRecord, ...] = ()
    beside: tuple[BesideRecord, ...] = ()
    idle: tuple[IdleRecord, ...] = ()
    saved: tuple[SavedRecord, ...] = Field(default=(), description="Of a training step.")
    layers: tuple[int, ...] = Field(default=(), description="Calls that recomputation runs again, of a training step.")

    @property
    def fixed(self) -> dict[str, Rational | None]:
        """Sizes that are numbers in it, with these: it holds at them alone."""
        return {v.name: v.default for v in self.variables if v.kind == "fixed"}


class InspectRequest(Asked):
    """Build a model on the meta device and describe its tree."""

    model: ModelSpec
