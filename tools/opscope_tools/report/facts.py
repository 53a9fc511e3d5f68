"""Everything an implementation report is computed from, and the questions that its sections ask of it.

`ImplementationFacts` holds the documents of the other tools and a reader of their sources; the tool collects it, the
section builders only read it. Order: the point at which formulas are evaluated, walking a document, roles of modules,
the facts themselves.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from opscope_schemas.analysis import (
    Analysis,
    Kernel,
    MemoryAccess,
    ModelAnalysis,
    ModelTreeResult,
    ModuleAnalysis,
    ModuleNode,
    TensorInfo,
    Totals,
)
from opscope_schemas.common import Source
from opscope_schemas.dataflow import Dataflow, FlowTensor
from opscope_schemas.errors import ValuesError
from opscope_schemas.estimates import OperatorTime, RooflineResult
from opscope_schemas.extracted_config import Check, ExtractConfigResult
from opscope_schemas.formula import Formula, Rational, evaluate, holds, variables, whole_bytes
from opscope_schemas.tiling import TilingResult

from opscope_tools.report import scan
from opscope_tools.report.crossing import Crossed
from opscope_tools.report.point import point_said
from opscope_tools.report.sources import SourceReader, Span

__all__ = [
    "CallKind",
    "Figures",
    "ImplementationFacts",
    "SizedAs",
    "anywhere",
    "bind",
    "default_point",
    "is_leaf",
    "leaves",
    "locate",
    "module_of_call",
    "module_of_document",
    "outermost",
    "position_limit",
    "product_widths",
    "role_of",
    "short",
    "size_at",
    "told_hidden",
    "walk",
]

#: tokens in the context where nobody says otherwise; small enough for every classic decoder (GPT-2 has 1024 positions)
DEFAULT_CONTEXT = 1024
#: what configs call their most positions
_POSITIONS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_sequence_length", "n_ctx")
#: bytes of a bf16 element, the dtype that models are traced in
_BF16_BYTES = 2
#: operators that read rows of a table by their numbers
_LOOKS_UP = re.compile(r"aten\.(embedding|index|index_select)(\.|$)")
_RUNTIME = ("batch_size", "encoder_seq_len", "seq_len", "cache_len", "w_bytes", "a_bytes")


# ---- the point ------------------------------------------------------------------------------------------------------


def position_limit(tree: ModelTreeResult) -> int | None:
    """The fewest positions that the config, or a part of it, makes room for; None where it names none."""
    return min((value for _, value in _named_limits(tree.config, "")), default=None)


def _named_limits(config: Mapping[str, object], within: str) -> Iterator[tuple[str, int]]:
    for name, value in config.items():
        if name in _POSITIONS and isinstance(value, int) and value > 1:
            yield f"{within}{name}", value
        elif isinstance(value, Mapping):
            yield from _named_limits(value, f"{within}{name}.")


def default_point(phase: str, given: Mapping[str, Rational], limit: int | None) -> dict[str, Rational]:
    """Run-time variables of `phase`: one sequence, a context of `DEFAULT_CONTEXT` tokens, or half the model's `limit` where that is
    no more: a table need not have a row for each, and at its edge sizes coincide that elsewhere differ. As many for an encoder to read.

    Decode runs one new token on a cache of `cache_len` tokens (by default the prompt of the prefill point).
    """
    context = DEFAULT_CONTEXT if limit is None or limit > DEFAULT_CONTEXT else limit // 2
    prompt = given.get("seq_len", context)
    cached = given.get("cache_len", min(prompt, limit - 1) if limit else prompt)
    lengths = (1, cached) if phase == "decode" else (prompt, 0)
    point = {"batch_size": 1, "encoder_seq_len": context, "w_bytes": _BF16_BYTES, "a_bytes": _BF16_BYTES, **given}
    return {**point, "seq_len": lengths[0], "cache_len": lengths[1]}


def bind(document: Analysis, given: Mapping[str, Rational], limit: int | None = None) -> dict[str, Rational]:
    """A value for every variable of `document`: the caller's, else the default, else what its definition gives.

    Raises `ValuesError` for negative values, for another value than the default of a fixed variable, and for a variable
    that nothing binds. Whether the formulas hold there is for whoever traced the model: see `notes` of the facts.
    """
    point = default_point(document.phase, given, limit)
    values = {name: point[name] for name in point if name in given or name in _RUNTIME}
    for variable in document.variables:
        if variable.kind == "fixed" and variable.default is not None:
            if variable.name in given and given[variable.name] != variable.default:
                raise ValuesError(
                    f"{variable.name} is {variable.default} in this analysis; values cannot make it "
                    f"{given[variable.name]}.",
                    next_step="Change it through config instead.",
                )
            values[variable.name] = variable.default
        elif variable.name not in values and variable.default is not None:
            values[variable.name] = variable.default
    pending = {v.name: v.definition for v in document.variables if v.name not in values and v.definition}
    while pending:
        ready = {name: text for name, text in pending.items() if variables(text) <= values.keys()}
        if not ready:
            break
        values |= {name: evaluate(text, values) for name, text in ready.items()}
        pending = {name: text for name, text in pending.items() if name not in ready}
    _refuse_bad_values(document, values)
    return values


def _refuse_bad_values(document: Analysis, values: Mapping[str, Rational]) -> None:
    for name, value in values.items():
        if value < 0:
            raise ValuesError(f"{name} is {value}; sizes cannot be negative.")
    missing = [variable.name for variable in document.variables if variable.name not in values]
    if missing:
        raise ValuesError(f"No value for {', '.join(missing)}.", next_step="Give them in values.")


# ---- documents ------------------------------------------------------------------------------------------------------


def module_of_call(document: Analysis, call: Kernel, file: str, line: int) -> ModuleAnalysis | None:
    """One call of a submodule as a document of its own: the expanded figures divided by how often it runs.

    None where they do not divide. The floor stays 0, which says that it is not known.
    """
    repeat = Formula.parse(call.repeat)
    kernels = [_divided(kernel, repeat) for kernel in call.kernels or ()]
    whole = _divided(call, repeat)
    if whole is None or any(kernel is None for kernel in kernels):
        return None
    return ModuleAnalysis(
        **{
            name: getattr(document, name)
            for name in ("phase", "attention", "dtype", "variables", "assumptions", "conditions", "conventions")
        },
        class_name=call.class_name,
        file=file,
        line=line,
        kernels=tuple(kernel for kernel in kernels if kernel is not None),
        totals=Totals(
            flops=whole.flops,
            matmul_flops=whole.matmul_flops,
            memory_access=whole.memory_access,
            floor=MemoryAccess(read="0", write="0"),
        ),
    )


def module_of_document(document: Analysis) -> ModuleAnalysis:
    """An expanded document with its references folded again."""
    fields = {name: getattr(document, name) for name in Analysis.model_fields if name != "kernels"}
    folded = tuple(kernel.model_copy(update={"kernels": None}) for kernel in document.kernels)
    return ModuleAnalysis(**fields, kernels=folded)


def _divided(kernel: Kernel, repeat: Formula) -> Kernel | None:
    """A kernel's own figures without the factor `repeat`, nested ones dropped."""
    texts = (kernel.flops, kernel.matmul_flops, kernel.memory_access.read, kernel.memory_access.write)
    quotients = [str(quotient) for text in texts if (quotient := Formula.parse(text).divided(repeat)) is not None]
    if len(quotients) < len(texts):
        return None
    flops, matmul_flops, read, write = quotients
    access = MemoryAccess(read=read, write=write)
    changes = {"flops": flops, "matmul_flops": matmul_flops, "memory_access": access, "kernels": None}
    return kernel.model_copy(update=changes)


def maker_of(tensor: FlowTensor, graph: Dataflow) -> int:
    """The operator that makes a tensor; of a stand-in for the result of folded layers what all its readers depend on beside
    the makers of what else they read; 0 where that is not one."""
    if tensor.created_by or not tensor.consumed_by:
        return tensor.created_by
    made = {each.id: each.created_by for each in graph.tensors}
    readers = [graph.operators[number - 1] for number in tensor.consumed_by if 0 < number <= len(graph.operators)]
    makers = [set(reader.depends_on) - {made.get(number, 0) for number in reader.reads} for reader in readers]
    common = set.intersection(*makers) if makers else set()
    return common.pop() if len(common) == 1 else 0


def walk(kernels: Sequence[Kernel], owner: str, depth: int = 0) -> Iterator[tuple[int, str, Kernel]]:
    """Every kernel in execution order with its depth and the class whose forward issued it."""
    for kernel in kernels:
        yield depth, owner, kernel
        yield from walk(kernel.kernels or (), kernel.class_name or owner, depth + 1)


def is_leaf(kernel: Kernel) -> bool:
    """An operator, or a reference that was not expanded; a module that runs no operator (dropout) is neither."""
    return kernel.kernel_type == "basic" or kernel.kernels is None


def issued_in(kernel: Kernel) -> str:
    """The file of the innermost known line that issues an operator: what a helper runs is not its caller's."""
    return kernel.via[-1].file if kernel.via else kernel.file


def leaves(document: Analysis) -> Iterator[tuple[str, Kernel]]:
    """The kernels that hold no others, in execution order, each with the class whose forward issued it."""
    return ((owner, kernel) for _, owner, kernel in walk(document.kernels, document.class_name) if is_leaf(kernel))


def told_hidden(kernel: Kernel) -> str:
    """FLOPs of attention above the diagonal that a kernel need not compute: none where a tensor hides these pairs, all of which it reads."""
    tensor = "sdpa" in kernel.operator and len(kernel.inputs) > len(("query", "key", "value"))
    return "0" if tensor else kernel.causal_saving


def outermost(document: Analysis, class_name: str) -> list[Kernel]:
    """Calls of a class that are not inside another call of it, so that their costs add up."""
    found: list[Kernel] = []
    hidden_below: int | None = None
    for depth, _, kernel in walk(document.kernels, ""):
        if hidden_below is not None and depth > hidden_below:
            continue
        hidden_below = None
        if kernel.class_name == class_name:
            found.append(kernel)
            hidden_below = depth
    return found


def product_widths(kernels: Sequence[Kernel]) -> tuple[str, str] | None:
    """How wide the vectors are that the first product among calls is given, and the last one; None where there are not two."""
    calls = [k for k in kernels if k.kernel_type == "composite" and k.matmul_flops != "0"]
    given = [k.inputs[0].shape for k in calls if k.inputs and k.outputs]
    return (given[0][-1], given[-1][-1]) if len(given) > 1 and given[0] and given[-1] else None


def short(class_name: str) -> str:
    """The last part of a qualified name."""
    return class_name.rpartition(".")[2]


@dataclass(frozen=True)
class Figures:
    """Costs at one point: FLOPs (a multiply and an add are 1 each) and bytes as eager execution moves them."""

    flops: int
    matmul_flops: int
    read: int
    write: int
    #: FLOPs of attention above the diagonal, which its kernel, told that it is causal, need not compute
    hidden: int = 0

    @classmethod
    def sum(cls, kernels: Iterable[Kernel], values: Mapping[str, Rational]) -> Figures:
        """The figures of `kernels` together."""
        rows = [
            (k.flops, k.matmul_flops, k.memory_access.read, k.memory_access.write, told_hidden(k)) for k in kernels
        ]  # a kernel's formulas carry its repeats already
        totals = [sum(evaluate(text, values) for text in column) for column in zip(*rows, strict=True)] or [0, 0, 0, 0]
        return cls(*totals)

    @property
    def needed(self) -> int:
        """FLOPs that have to be computed: what limits a kernel goes by them, as an engine's kernels are timed by them."""
        return self.flops - self.hidden

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.write

    @property
    def intensity(self) -> float:
        """FLOPs per byte; 0 where nothing is moved."""
        return self.flops / self.bytes if self.bytes else 0.0

    def weight(self, ridge: float) -> float:
        """Bytes that take as long as it all does, on a device that does `ridge` FLOPs in the time of a byte."""
        return self.bytes + self.needed / ridge


@dataclass(frozen=True)
class CallKind:
    """Calls of one class that are alike: one to show, all of them, how often they run in the pass, what each costs, and how long all
    take together as engines run them; None where that cannot be told of each kind."""

    shown: Kernel
    calls: tuple[Kernel, ...]
    count: int
    each: Figures
    seconds: float | None = None


def _likeness(call: Kernel, each: Figures, values: Mapping[str, Rational]) -> object:
    """What calls of one class have in common that are alike: cost, what it depends on at run time, widths, what they call."""
    texts = (call.flops, call.memory_access.read, call.memory_access.write)
    depends = frozenset().union(*map(variables, texts)) & frozenset(_RUNTIME)
    shapes = tuple(tuple(size_at(size, values) for size in tensor.shape) for tensor in call.inputs)
    return each, depends, shapes, tuple((k.attribute, k.class_name) for k in call.kernels or () if k.class_name)


def size_at(text: str, values: Mapping[str, Rational]) -> Rational | str:
    """A size of a tensor at a point; as it is written where it cannot be told."""
    try:
        return evaluate(text, values)
    except ValuesError:
        return text


def limited(kernels: Iterable[Figures], ridge: float) -> tuple[str, float]:
    """What limits kernels that run one after another, each at its roof: `compute` or `memory`, and its share of their time.

    The intensity of all of them together does not say it: a large product and a large copy side by side may stand anywhere.
    """
    time = {"memory": 0.0, "compute": 0.0}
    for one in kernels:
        roof = one.bytes * ridge
        time["compute" if one.bytes and one.needed >= roof else "memory"] += max(one.needed, roof)
    most = max(time, key=lambda kind: time[kind])
    return most, time[most] / (sum(time.values()) or 1.0)


# ---- roles ----------------------------------------------------------------------------------------------------------

#: operators that give a module away by themselves, in order of precedence
_BY_OPERATOR = (
    (re.compile(r"sdpa|scaled_dot_product|_attention"), "attention"),
    (re.compile(r"topk|grouped_mm"), "mixture of experts"),
    (re.compile(r"embedding"), "embedding"),
    (re.compile(r"layer_norm|rms_norm|rsqrt"), "normalisation"),
    (re.compile(r"\.(cos|sin)\b"), "position embedding"),
)
#: what a cache is called with to keep states that steps go on from
_KEEPS_STATES = "update_recurrent_state"
#: what a class is called, where its operators do not say; the first that fits
_BY_NAME = (
    (re.compile(r"Attention$|Attn"), "attention"),
    (re.compile(r"(Moe|MoE)(Block)?$|Experts?$|Router"), "mixture of experts"),  # Qwen2MoeMLP is a plain network
    (re.compile(r"Mamba\w*Mixer$|Mamba2?$|SSM$|DeltaNet$|TimeMix|RecurrentBlock$|LRU$"), "state-space layer"),
    (re.compile(r"MLP|FeedForward|FFN"), "feed-forward network"),
    (re.compile(r"Norm"), "normalisation"),
    (re.compile(r"Rotary|Position"), "position embedding"),
    (re.compile(r"Embedding"), "embedding"),
    (re.compile(r"Layer$|Block$"), "layer"),
    (re.compile(r"For[A-Z]\w+$|LMHeadModel$"), "model with head"),
    (re.compile(r"Model$|Decoder$|Transformer$"), "backbone"),
    (re.compile(r"Linear$|Conv1D$"), "projection"),
    (re.compile(r"Activation$|GELU|SiLU|ReLU|Tanh$|Sigmoid$"), "activation"),
)


#: operators of a class that normalises
_NORMALISES = re.compile(r"norm|\.(rsqrt|sqrt|mean|var|std|pow)\b")


def role_of(class_name: str, kernels: Sequence[Kernel]) -> str:
    """What a module does, from the operators of its own lines, else from its name; `module` where neither says."""
    operators = " ".join(kernel.operator for kernel in kernels if kernel.kernel_type == "basic")
    for pattern, role in _BY_NAME[:3]:  # attention with its own norm, experts with their own top-k: the name is sharper
        if pattern.search(short(class_name)):
            return role
    if any(short(site.function) == _KEEPS_STATES for kernel in kernels for site in kernel.via):
        return "state-space layer"
    named = [role for pattern, role in _BY_NAME if pattern.search(short(class_name))]
    if not _NORMALISES.search(operators):  # it calls a norm, or is called after one that it does without
        named = [role for role in named if role != "normalisation"]
    return next((role for pattern, role in _BY_OPERATOR if pattern.search(operators)), next(iter(named), "module"))


def locate(reader: SourceReader, class_name: str) -> tuple[str, Span] | None:
    """File and definition of a qualified class, found by its module path; None where no repository holds it."""
    parts = class_name.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        stem = "/".join(parts[:cut])
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            span = reader.definition(path, ".".join(parts[cut:]))
            if span is not None:
                return path, span
    return None


def anywhere(config: Mapping[str, object], name: str) -> object | None:
    """A setting of the config or of a configuration nested in it."""
    if config.get(name) is not None:
        return config[name]
    parts = (part for part in config.values() if isinstance(part, Mapping))
    return next((found for part in parts if (found := anywhere(part, name)) is not None), None)


def _elements(shape: Sequence[str]) -> str:
    """How many numbers a tensor holds, as a formula."""
    if "?" in shape:
        return ", ".join(shape)
    return str(math.prod(map(Formula.parse, shape), start=Formula.const(1)))


# ---- the facts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SizedAs:
    """A published checkpoint by its public name, and how it stores its weights; empty: in the model's own dtype."""

    name: str
    stored: str = ""


@dataclass(frozen=True)
class ImplementationFacts:
    """What the other tools found out about one model."""

    name: str
    target: str
    date: str
    sources: tuple[Source, ...]
    reader: SourceReader
    tree: ModelTreeResult
    #: expanded documents, the first one is what component sections speak of, and the operator graph of each
    documents: tuple[ModelAnalysis, ...]
    graphs: tuple[Dataflow, ...]
    #: what the caller asked for, and per phase every variable's value where the trace evaluated its document
    values: Mapping[str, Rational] = field(default_factory=dict)
    #: the config.json or the overrides that the caller gave; None: the defaults of the configuration's class
    given: Mapping[str, object] | str | None = None
    #: the published checkpoint that has the sizes of these defaults; None: none that is known, or they are no defaults
    sized_as: SizedAs | None = None
    points: Mapping[str, Mapping[str, Rational]] = field(default_factory=dict)
    #: what the other tools said beside their documents
    notes: tuple[str, ...] = ()
    #: the kernels that were named, and what configures and what checks each
    tiling: TilingResult | None = None
    kernel_settings: tuple[ExtractConfigResult, ...] = ()
    #: what source says of the model's configuration; None where it could not be read
    settings: ExtractConfigResult | None = None
    #: checks of the classes and functions that ran and of the configuration
    checks: tuple[Check, ...] = ()
    #: how long each pass takes as engines run it on one device; none where it cannot be told
    estimates: Mapping[str, RooflineResult] = field(default_factory=dict)
    #: the same over as few of these devices as hold every pass, of the numbers that were tried; none where one holds them, or none does
    held: Mapping[str, RooflineResult] = field(default_factory=dict)
    #: the pass that is timed with more sequences or images: a decode step where there is one
    growing: str = "decode"
    #: that pass with more and more of them, on one device or on those that hold them
    batched: tuple[RooflineResult, ...] = ()
    #: the same of the last pass over so many devices by tensor parallelism, where the model and the device allow it
    spread: Mapping[int, RooflineResult] = field(default_factory=dict)
    #: and of prefill, where that is not the last pass
    spread_prefill: Mapping[int, RooflineResult] = field(default_factory=dict)
    #: why a number of them bears it not, the first refusal
    unspread: str = ""
    #: `, joined by NVLink 4 at 450 GB/s each way,`: how those devices are linked; empty where that is not known
    joined: str = ""
    #: traces of the same passes at no point in particular, with the operator graph of each, for a page that moves the point
    general: tuple[tuple[ModelAnalysis, Dataflow], ...] = ()
    #: a prefill of more tokens than the window of its layers, where the report's is not; None: they have none
    crossed: Crossed | None = None
    #: parameters that one token meets; None: not known
    active: int | None = None
    #: what of the model runs in none of the passes, as the traces say it
    idle: tuple[str, ...] = ()
    #: FLOPs per byte at which a device turns from memory- to compute-bound, and where the figure comes from
    ridge: float = 295.0
    ridge_source: str = "989 TFLOP/s dense bf16 over 3.35 TB/s, the data-sheet figures of an H100 SXM"

    @cached_property
    def main(self) -> ModelAnalysis:
        """The first document: prefill where it was asked for."""
        return self.documents[0]

    @property
    def served(self) -> Mapping[str, RooflineResult]:
        """How long passes take where they can run: on one device, else on those that hold them."""
        return self.held or self.estimates

    @property
    def full(self) -> RooflineResult | None:
        """Of those the pass of most sequences or images."""
        return self.batched[-1] if self.batched else None

    def device(self, phase: str) -> str:
        """What a pass is timed on: one device, or the share of each of several; what has to be said where they cannot hold it."""
        found = self.served[phase]
        many = found.parallel.devices if found.parallel is not None else 1
        named = f"{many} {found.hardware.name}, the share of each" if many > 1 else found.hardware.name
        return named if found.memory.fits else f"{named}, had {'they' if many > 1 else 'one'} the memory"

    def whole(self, phase: str) -> RooflineResult | None:
        """The estimate of a pass that one device runs, whether it holds it or not; None where one rank's share alone is known."""
        found = self.estimates.get(phase)
        return found if found is not None and found.parallel is None else None

    @property
    def subject(self) -> str:
        """The qualified class that the report is about."""
        return self.tree.tree.class_name

    @property
    def within(self) -> str:
        """The model in which the subject was traced; empty where the subject is that model."""
        return "" if self.tree.model_class == self.subject else self.tree.model_class

    def document_of(self, phase: str) -> ModelAnalysis:
        """That of a phase, else the main one."""
        return next((one for one in self.documents if one.phase == phase), self.main)

    def graph_of(self, document: ModelAnalysis) -> Dataflow:
        """The operators of a pass and what they read."""
        return next(graph for one, graph in zip(self.documents, self.graphs, strict=True) if one is document)

    def outside(self, document: ModelAnalysis) -> list[str]:
        """The conditions of its formulas that the report's own point does not meet."""
        values = self.point(document)
        return [c for c in document.conditions if variables(c) <= values.keys() and not holds(c, values)]

    def called(self, document: Analysis, quote: Callable[[str, Rational], str] | None = None) -> str:
        """What the totals of `document` are of, as the beginning of a sentence: a whole pass, or one call in it. `quote`
        writes a number under its key."""
        cached = not self.within or "cache_len" in self.formula_names(document)
        point = point_said(document, self.point(document), quote, cached=cached)
        if self.within:
            return f"One call of `{short(self.subject)}` in {document.phase} ({point})"
        return f"{document.phase.capitalize()} ({point})"

    @staticmethod
    def formula_names(document: Analysis) -> frozenset[str]:
        """The variables that the totals of a document name."""
        totals = document.totals
        texts = (
            totals.flops,
            *(text for access in (totals.memory_access, totals.floor) for text in (access.read, access.write)),
        )
        return frozenset().union(*(variables(text) for text in texts))

    @cached_property
    def modules(self) -> tuple[ModuleAnalysis, ...]:
        """One document per class that ran, the model first, then in order of first call.

        Cut out of the expanded document, so that every figure of a report comes from one trace.
        """
        return (module_of_document(self.main), *(module for module in self._cuts.values() if module is not None))

    @cached_property
    def unavailable(self) -> dict[str, str]:
        """Classes that ran and have no document of their own, with the reason."""
        why = "its source is in no registered repository, or its figures are not a multiple of its calls"
        return {name: why for name, module in self._cuts.items() if module is None}

    @property
    def calls(self) -> dict[str, Kernel]:
        """Per class the call that sections show."""
        return {name: kinds[0].shown for name, kinds in self.call_kinds.items()}

    @cached_property
    def call_kinds(self) -> dict[str, tuple[CallKind, ...]]:
        """Per class the kinds of its calls, first the one whose calls take most time as modelled, else those that cost most at the roofs."""
        values = self.point(self.main)
        held: dict[str, dict[object, list[tuple[Kernel, Figures]]]] = {}
        for call, _ in self._paths:
            if call.kernels:
                whole, times = Figures.sum([call], values), evaluate(call.repeat, values) or 1
                each = Figures(
                    *(value // times for value in (whole.flops, whole.matmul_flops, whole.read, whole.write))
                )
                alike = held.setdefault(call.class_name, {})
                alike.setdefault(_likeness(call, each, values), []).append((call, each))
        found: dict[str, tuple[CallKind, ...]] = {}
        for name, groups in held.items():
            kinds = []
            for rows in groups.values():
                calls = tuple(call for call, _ in rows)
                shown = next(
                    (call for call in calls if call.repeat == "1"), calls[0]
                )  # there nothing has to be divided
                kinds.append(CallKind(shown, calls, sum(evaluate(c.repeat, values) for c in calls), rows[0][1]))
            kinds.sort(key=lambda kind: -kind.count * kind.each.weight(self.ridge))
            found[name] = tuple(sorted(self._timed(kinds), key=lambda kind: -(kind.seconds or 0)))
        return found

    def _timed(self, kinds: Sequence[CallKind]) -> list[CallKind]:
        """Kinds with the modelled time of their calls, where kernels are timed in the modules of each and no two share a place, or a
        kernel, as products do that engines run as one."""
        found = self.served.get(self.main.phase)
        places = [{f"{self.path_of(call)}." for call in kind.calls} for kind in kinds]
        apart = len(set[str]().union(*places)) == sum(map(len, places))
        if found is None or found.totals.calibrated_seconds is None or not apart:
            return list(kinds)
        times = [0.0 for _ in kinds]
        for row in found.operators:
            joined = re.search(r"\(([\w, ]+)\)", row.operation)  # `mm (q_proj, k_proj)`
            paths = [f"{row.module}.{name}" for name in (joined[1].split(", ") if joined else [""])]
            inside = [at for at, held in enumerate(places) if any(f"{path}.".startswith(tuple(held)) for path in paths)]
            if len(inside) > 1:
                return list(kinds)
            for at in inside:
                times[at] += found.seconds_of(row)
        return (
            [replace(kind, seconds=time) for kind, time in zip(kinds, times, strict=True)]
            if all(times)
            else list(kinds)
        )

    @cached_property
    def _paths(self) -> tuple[tuple[Kernel, str], ...]:
        return tuple(self.calls_in(self.main))

    @staticmethod
    def calls_in(document: Analysis) -> Iterator[tuple[Kernel, str]]:
        """The calls of a document, each with the path of the module that is called."""

        def below(kernels: Sequence[Kernel], above: str) -> Iterator[tuple[Kernel, str]]:
            for kernel in kernels:
                if kernel.class_name:
                    path = ".".join(filter(None, (above, kernel.attribute)))
                    yield kernel, path
                    yield from below(kernel.kernels or (), path)

        return below(document.kernels, "")

    @cached_property
    def _called_at(self) -> dict[str, tuple[str, int]]:
        """Path of a module -> file and line of its first call."""
        calls = [one for document in self.documents for one in self.calls_in(document)]
        return {path: (call.file, call.line) for call, path in reversed(calls)}

    def place_of(self, row: OperatorTime) -> tuple[str, int]:
        """File and line of a timed kernel: where the module is called by whose name its operation goes, else its own."""
        named = re.search(r"\((\w+)", row.operation)
        path = ".".join(filter(None, (row.module, named[1] if named else "")))
        of_library = named or not self.of_models(row.file)
        return self._called_at.get(path, (row.file, row.line)) if of_library else (row.file, row.line)

    def path_of(self, call: Kernel) -> str:
        """Path of the module that a call of the main document runs, `*` for the numbers of a list."""
        return next((path for kernel, path in self._paths if kernel is call), call.attribute)

    @cached_property
    def _cuts(self) -> dict[str, ModuleAnalysis | None]:
        return {name: self._cut(kernel) for name, kernel in self.calls.items()}

    def _cut(self, call: Kernel) -> ModuleAnalysis | None:
        found = self.locate(call.class_name)
        return module_of_call(self.main, call, found[0], found[1].line) if found else None

    @cached_property
    def positions(self) -> dict[str, int]:
        """The most positions of the config and of every configuration nested in it, by dotted name."""
        return dict(_named_limits(self.tree.config, ""))

    @cached_property
    def position_names(self) -> frozenset[str]:
        """The variables that are the most positions of a configuration."""
        held = (variable for document in self.documents for variable in document.variables)
        return frozenset(v.name for v in held if v.config_key.rpartition(".")[2] in _POSITIONS)

    @cached_property
    def table_rows(self) -> int | None:
        """The tokens of the longest sequence for which a table that is looked up has positions; None where positions are computed."""
        named, found = self.position_names, []
        for document in self.documents:
            tables = [k.inputs[0].shape for _, k in leaves(document) if k.inputs and _LOOKS_UP.match(k.operator)]
            rows = [shape[0] for shape in tables if shape and variables(shape[0]) and variables(shape[0]) <= named]
            values = {**self.point(document), "seq_len": 0, "encoder_seq_len": 0, "cache_len": 0}
            found += [int(evaluate(each, values)) for each in rows]
            for asked, _, has in (c.partition(" <= ") for c in document.conditions if rows):
                if variables(asked) & {"seq_len", "encoder_seq_len"} and variables(has) and variables(has) <= named:
                    found.append(int(evaluate(f"({has}) - ({asked})", values)))
        return min(found, default=None)

    @cached_property
    def table_weight(self) -> tuple[str, int] | None:
        """A weight of the model itself that holds a vector for each position, and for how many."""
        for node in self.nodes:
            for name, shape in node.weights.items():
                if re.search(r"(^|_)pos(ition)?s?(_|$)", name) and len(shape) > 1 and shape[-2] > 1:
                    return name, shape[-2]
        return None

    @property
    def nodes(self) -> Iterator[ModuleNode]:
        """Every module of the tree, each before those that it holds."""
        pending = [self.tree.tree]
        while pending:
            node = pending.pop()
            yield node
            pending += reversed(node.children)

    @cached_property
    def built(self) -> frozenset[tuple[str, str]]:
        """File and name of the classes that the model is built of, and of those that they derive from."""
        names = {self.main.class_name, *(node.class_name for node in self.nodes)}
        found = (place for name in names for place in scan.lineage(self.reader, self.locate(name)))
        return frozenset((path, span.name) for path, span in found)

    @cached_property
    def lines_run(self) -> frozenset[tuple[str, int]]:
        """File and line of all that a pass runs: operators, calls of modules and the calls of functions on the way to them."""
        kernels = [kernel for document in self.documents for _, _, kernel in walk(document.kernels, "")]
        sites = [site for kernel in kernels for site in kernel.via]
        return frozenset([*((k.file, k.line) for k in kernels), *((site.file, site.line) for site in sites)])

    def unread(self, path: str) -> bool:
        """Whether a parameter of the configurations is known to be read nowhere in the model's files."""
        for own in self.settings.configurations if self.settings is not None else ():
            name = path.removeprefix(f"{own.path}.") if own.path else path
            for held in own.hyperparameters:
                if name in (held.name, *held.aliases) and held.reads is not None:
                    return not held.reads.count
        return False

    @cached_property
    def weight_bytes(self) -> int:
        """The weights of the main document in memory, as the checkpoint stores them."""
        return whole_bytes(self.main.weights, self.point(self.main))

    @cached_property
    def limit(self) -> int | None:
        """The config's maximum number of positions."""
        return position_limit(self.tree)

    @cached_property
    def config_methods(self) -> Mapping[str, Sequence[scan.Method]]:
        """Methods of each class of configuration, by its qualified name."""
        names = [own.class_name for own in self.settings.configurations] if self.settings is not None else []
        return {name: scan.methods(self.reader, self.locate(name)) for name in names}

    def of_models(self, path: str) -> bool:
        """Whether a file is of the package that the model is of, as models inside it are, and no library's."""
        return path.partition("/")[0] == self.modeling_file.partition("/")[0]

    def point(self, document: Analysis) -> dict[str, Rational]:
        """The values at which `document` is evaluated."""
        # sizes of the model are the same in every phase; a document need not list all that its formulas name
        sizes = {name: value for point in self.points.values() for name, value in point.items() if name not in _RUNTIME}
        traced = {**sizes, **self.points.get(document.phase, {})}
        if traced and {variable.name for variable in document.variables} <= traced.keys():
            return {**default_point(document.phase, self.values, self.limit), **traced}
        return bind(document, {**self.values, **traced}, self.limit)

    def totals(self, document: Analysis) -> Figures:
        """The document's own totals, evaluated."""
        values, totals = self.point(document), document.totals
        return Figures(
            evaluate(totals.flops, values),
            evaluate(totals.matmul_flops, values),
            evaluate(totals.memory_access.read, values),
            evaluate(totals.memory_access.write, values),
        )

    def limited(self, document: Analysis, class_name: str = "") -> tuple[str, float]:
        """What limits a pass as eager execution runs it, or all calls of a class in it, and for which share of that time."""
        return self.limits(outermost(document, class_name) if class_name else document.kernels, self.point(document))

    def limits(self, kernels: Sequence[Kernel], values: Mapping[str, Rational]) -> tuple[str, float]:
        """What limits the operators that run in `kernels`, and for which share of their time at the roofs."""
        own = (Figures.sum([kernel], values) for _, _, kernel in walk(kernels, "") if is_leaf(kernel))
        return limited(own, self.ridge)

    def uncut(self, module: ModuleAnalysis) -> list[tuple[Kernel, Kernel]]:
        """Each kernel of a class beside that of the main document, which holds all that runs in it."""
        call = self.calls.get(module.class_name) if module.class_name != self.main.class_name else None
        return list(zip(module.kernels, (call.kernels if call else self.main.kernels) or (), strict=True))

    def floor_bytes(self, document: Analysis) -> int:
        """Bytes that no implementation can avoid moving."""
        values, floor = self.point(document), document.totals.floor
        return evaluate(floor.read, values) + evaluate(floor.write, values)

    def locate(self, class_name: str) -> tuple[str, Span] | None:
        """File and definition of a qualified class."""
        return locate(self.reader, class_name)

    def pointer(self, class_name: str) -> str:
        """`path:line` of a class in back-ticks, or a sentence that says that it was not found."""
        found = self.locate(class_name)
        return f"`{found[0]}:{found[1].line}`" if found else "source not found in the registered repositories"

    @cached_property
    def returned(self) -> tuple[tuple[TensorInfo, int, tuple[int, ...]], ...]:
        """The tensors that the first pass returns, its cache apart, the operator of its graph that makes each, and those that read it."""
        outputs = [t for t in self.graphs[0].tensors if t.kind == "output"] if self.graphs else []
        given = {_elements(o.shape): o.shape for o in self.main.kernels[-1].outputs} if self.main.kernels else {}
        found: dict[tuple[str, int, str], tuple[TensorInfo, int, tuple[int, ...]]] = {}
        for tensor, maker in sorted(((t, maker_of(t, self.graphs[0])) for t in outputs), key=lambda pair: pair[1]):
            shape = given.get(_elements(tensor.shape), tensor.shape)  # a product returns a view of what it writes
            name = (
                (tensor.name, maker, _elements(tensor.shape)) if tensor.name and maker else (f"{tensor.id}", maker, "")
            )
            _, _, readers = found.get(name, (None, 0, ()))  # of what the last of folded layers returns there are two
            info = TensorInfo(name=tensor.name, shape=shape, dtype=tensor.dtype)
            found[name] = (info, maker, tuple(dict.fromkeys((*readers, *tensor.consumed_by))))
        return tuple(found.values())

    @cached_property
    def modeling_file(self) -> str:
        """The file that defines the model's class."""
        return self.main.file

    @cached_property
    def config_location(self) -> tuple[str, Span] | None:
        """Where the config class is defined."""
        return self.locate(self.tree.config_class)

    def config_field(self, name: str) -> tuple[str, int] | None:
        """File and line on which the config class (or a base of it in the same file) declares `name`."""
        if self.config_location is None:
            return None
        path, span = self.config_location
        for line in range(span.line, span.end_line + 1):
            if re.match(rf"(self\.)?{re.escape(name)}\s*(:|=)(?!=)", self.reader.line(path, line)):
                return path, line
        return None

    @cached_property
    def modeling_line(self) -> int:
        """Line of the model's class keyword."""
        found = self.locate(self.main.class_name)
        return found[1].line if found else self.main.line

    def role(self, class_name: str) -> str:
        """Role of a class of this model: what calls experts or their router, and nothing that belongs around them, is a mixture of them."""
        issued = self._issued.get(class_name, ())
        found = role_of(class_name, issued)
        if found in ("feed-forward network", "module", "layer"):
            called = {kernel.class_name for kernel in issued if kernel.class_name} - {class_name}
            roles = {role_of(name, self._issued.get(name, ())) for name in called}
            around = {"attention", "normalisation", "state-space layer"} if found == "layer" else set()
            if "mixture of experts" in roles and not roles & around:
                return "mixture of experts"
        return found

    @cached_property
    def _issued(self) -> dict[str, list[Kernel]]:
        """Per class the kernels that its forward issues, in all its calls."""
        found: dict[str, list[Kernel]] = {}
        for _, owner, kernel in walk(self.main.kernels, self.main.class_name):
            found.setdefault(owner, []).append(kernel)
        return found

    @cached_property
    def dense_experts(self) -> bool:
        """Whether every expert runs on every token: its products are over all experts at once, none is over routed rows."""
        run = [k for _, _, k in walk(self.main.kernels, "") if k.operator and k.inputs]
        dense = any("bmm" in k.operator and k.inputs[0].shape[:1] == ("{num_experts}",) for k in run)
        return dense and not any("grouped" in k.operator for k in run)

    def dearest_of(self, role: str) -> str:
        """The class of a role whose calls compute most, or move most where none computes; empty where there is none."""
        return max(self.classes_of(role), key=lambda name: self._costs[name], default="")

    @cached_property
    def _costs(self) -> dict[str, tuple[int, int]]:
        """FLOPs and bytes of all calls of each class in the first pass."""
        calls: dict[str, list[Kernel]] = {}
        for _, _, kernel in walk(self.main.kernels, ""):
            if kernel.class_name:
                calls.setdefault(kernel.class_name, []).append(kernel)
        sums = {name: Figures.sum(each, self.point(self.main)) for name, each in calls.items()}
        return {name: (figures.flops, figures.bytes) for name, figures in sums.items()}

    def classes_of(self, role: str) -> list[str]:
        """Classes of the expanded document that play `role`, in order of first call."""
        names = dict.fromkeys(k.class_name for _, _, k in walk(self.main.kernels, "") if k.class_name)
        return [name for name in names if self.role(name) == role]
