"""Section 7: what config and classes declare about splitting the model, and what that makes them communicate.

Order: the plans, the strategies that they declare, the modules of the traced pass that their entries name, what each
style communicates.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd
from typing import Literal

from opscope_schemas.analysis import Kernel, ModelAnalysis, ModelTreeResult, ModuleNode, TensorInfo
from opscope_schemas.dataflow import Communication, Overlap, Place, Strategy
from opscope_schemas.estimates import Communication as Exchange
from opscope_schemas.estimates import RooflineResult
from opscope_schemas.formula import Formula, Rational, evaluate, variables
from opscope_schemas.units import plain_bytes, seconds

from opscope_tools.report import scan
from opscope_tools.report.facts import ImplementationFacts, locate, short
from opscope_tools.report.memory import tensor_bytes
from opscope_tools.report.nodes import modules_at, tied_modules, with_weights
from opscope_tools.report.overview import scopes
from opscope_tools.report.pipeline import Stages, stages
from opscope_tools.report.quotes import joined
from opscope_tools.report.sources import SourceReader, Span
from opscope_tools.source.python.imports import chain, heads

__all__ = [
    "Split", "communication_rows", "communications", "overlap", "overlapping", "parallelism_lines", "strategies",
]  # fmt: skip

#: names of calls that move data between ranks or wait for them, whoever offers them; and those that do so of `torch.distributed` alone
_COLLECTIVE = re.compile(r"(all_reduce|all_gather|reduce_scatter|all_to_all)(_\w+)?")
_OF_DISTRIBUTED = re.compile(
    r"torch\.distributed\.(\w+\.)*((broadcast|reduce|gather|scatter|i?send|i?recv)(_object(_list)?)?|batch_isend_irecv|(monitored_)?barrier)"
)
#: kind, kind of plan that declares it, calls that do it
_STRATEGIES: tuple[tuple[Literal["data", "tensor", "pipeline", "sequence", "expert"], str, str], ...] = (
    ("data", "fsdp", r"\b(DistributedDataParallel|fully_shard|FSDP)\b"),
    ("tensor", "tp", r"\b(ColumnParallel\w*|RowParallel\w*|parallelize_module)\b"),
    ("pipeline", "pp", r"\b(PipelineStage|pipeline_parallel\w*)\b"),
    ("sequence", "sp", r"\b(SequenceParallel|sequence_parallel\w*|ring_attention)\b"),
    ("expert", "ep", r"\b(expert_parallel\w*)\b"),
)
#: where transformers registers the styles by name; each does in a forward pass what the table below says
_STYLES_FILES = ("transformers/distributed/tensor_parallel.py", "transformers/distributed/expert_parallel.py")
#: style -> the collective on the module's output, empty: none, the output stays split or is whole on every rank
_STYLES = {
    "colwise": "",
    "packed_colwise": "",
    "colwise_gather_output": "all_gather",
    "colwise_rep": "all_gather",
    "rowwise": "all_reduce",
    "rowwise_rep": "all_reduce",
    "rowwise_split_input": "all_reduce",
    "embedding_rowwise": "all_reduce",
    "embedding_colwise": "all_gather",
    "moe_tp_experts": "all_reduce",
    "all_reduce": "all_reduce",
    "replicate": "",
    "replicated_with_grad_allreduce": "",
    "grouped_gemm": "",
    "packed_rowwise": "",
    "moe_identity_expert": "",
    "mla_kv_a_proj": "",
}
#: styles whose output stays split, and what variables that count heads end in
_SPLIT, _HEADS = ("colwise",), re.compile(r"heads?$")
#: the style that brings tokens to their experts: what it communicates, the source chooses when it runs
_DISPATCH = "ep_dispatch_experts"
_INDEX_BYTES = 8
#: the modules at a path that have one size of weights, and the row of what ranks gather of them
_Gathered = tuple[tuple[ModuleNode, ...], Communication]
#: where transformers wraps the model itself, for what no entry of a plan for weights names
_WRAPS = "transformers/distributed/fsdp.py", "fully_shard(model,"
#: where torch makes the stream on which such weights come together
_STREAM = "torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py", "self.all_gather_stream ="
#: what brings the weights of a module together that each rank keeps a part of
_WEIGHTS = "all_gather of its weights, before it runs; in every pass, but where its style keeps them whole"
#: the style of what is kept so, and what transformers puts into one group with the head where these two alone have it
_KEPT, _NORM = "keep_full_weight", re.compile(r"`(?:[\w.*]+\.)?norm`")
#: what PyTorch's `fully_shard` does by default with the module that holds all others
_TIED = (
    "gathered by each group of the plan that holds it, which PyTorch allows where it is tied after the plan was applied"
)
_ROOT = "which a rank then keeps whole, as `fully_shard` does by default with a root"
_UNRECORDED = "not analysed: the trace records no output tensor here"
#: as many modules of a plan are named, of more their number is
_NAMED = 1
#: the class that reads plans, and from which its models derive
_MODEL, _PREFIX = "PreTrainedModel", "base_model_prefix"
#: where transformers adds the table of tokens to a plan, and the words that do
_ADDS_TABLE = ("transformers/distributed/mixin.py", '"embed_tokens": "embedding_rowwise"')


@dataclass(frozen=True)
class Split:
    """What is to be split: the source, the module tree, one pass; `point` are the values for sizes in a table."""

    reader: SourceReader
    tree: ModelTreeResult
    document: ModelAnalysis
    point: Mapping[str, Rational] = field(default_factory=dict)
    #: passes split as engines do it, by the number of ranks, told beside what the source declares
    modelled: tuple[Mapping[int, RooflineResult], ...] = ()

    @classmethod
    def of(cls, facts: ImplementationFacts) -> Split:
        """The first pass of a report."""
        return cls(facts.reader, facts.tree, facts.main, facts.point(facts.main), (facts.spread, facts.spread_prefill))

    @cached_property
    def config_location(self) -> tuple[str, Span] | None:
        """Where the config class is defined."""
        return locate(self.reader, self.tree.config_class)

    @cached_property
    def config_lineage(self) -> list[tuple[str, Span]]:
        """The config class and the classes that it derives from, as far as the registered repositories hold them."""
        return scan.lineage(self.reader, self.config_location)

    @cached_property
    def modules(self) -> _Modules:
        """The modules that ran; the analysed one first."""
        document = self.document
        last = document.kernels[-1].outputs if document.kernels else ()
        found = {_starred(document.instance): [_Ran(document.class_name, (), last, "1")]}
        for path, ran in _submodules(document.kernels, document.instance):
            found.setdefault(path, []).append(ran)
        return found

    @cached_property
    def models(self) -> set[str] | None:
        """Paths of what is a model of transformers by itself; None where the whole is none, so that nothing says where plans begin."""
        found = {path for path in self.modules if any(span.name == _MODEL for _, span in self.lineage(path))}
        return found or None

    @cached_property
    def prefix(self) -> str | None:
        """What a model of transformers calls the model that it puts a head on; None where its class says nothing of one."""
        return scan.declared_text(self.reader, locate(self.reader, self.tree.model_class), _PREFIX)

    @cached_property
    def stages(self) -> Stages | None:
        """How the library cuts the model into stages; None of a part of one."""
        return None if self.document.instance else stages(self.reader, self.tree.tree, self.prefix)

    @cached_property
    def files(self) -> tuple[str, ...]:
        """The file of what is split, then those of its package that define the modules with weights that ran."""
        package, held = self.document.file.partition("/")[0], with_weights(self.tree)
        ran = (one.class_name for several in self.modules.values() for one in several if one.class_name in held)
        places = (locate(self.reader, name) for name in dict.fromkeys(ran))
        files = (place[0] for place in places if place is not None and place[0].partition("/")[0] == package)
        return tuple(dict.fromkeys([self.document.file, *files]))

    def lineage(self, path: str) -> list[tuple[str, Span]]:
        """The class of the module at a path, with those that it derives from."""
        return scan.lineage(self.reader, locate(self.reader, self.modules[path][0].class_name))


def _plans(split: Split) -> list[scan.Plan]:
    """Plans that the config class declares or inherits, then those of the model's class and of the classes that ran."""
    found: list[scan.Plan] = []
    for path, span in split.config_lineage:
        known = {plan.declared.name for plan in found}
        declared = [plan for plan in scan.plans(split.reader, path, span.name) if plan.declared.name not in known]
        if found or (path, span) != split.config_location:  # made for every model: what of it is one of this
            here = [p for p in declared if p.entries and (not split.document.instance or _present(split, p))]
            declared = [p for p in declared if p.takes_back or p in here]
        base = split.prefix if split.prefix and modules_at(split.tree.tree, split.prefix) else ""
        found += [_with_table(split, plan, base) for plan in declared]
    for name in sorted(scopes(split.document) | {short(split.tree.model_class)}):
        found += [plan for file in split.files for plan in scan.plans(split.reader, file, name)]
    found += _of_parts(split, {plan.declared.pointer for plan in found})
    return [plan for plan in found if not plan.takes_back]


def _of_parts(split: Split, known: Collection[str]) -> Iterator[scan.Plan]:
    """Plans of configurations inside the model's: each model inside it is made with one, and its plan is read from there on."""
    for path in sorted(split.models or ()):
        nearest: dict[str, scan.Plan] = {}
        for held, span in _configuration_of(split, path):
            for plan in scan.plans(split.reader, held, span.name):
                nearest.setdefault(plan.declared.name, plan)
        for declared in nearest.values():
            plan = _with_table(split, declared, path)
            placed = replace(plan, entries=tuple(replace(e, name=f"{path}.{e.name}") for e in plan.entries))
            if plan.declared.pointer not in known and not plan.takes_back and _present(split, placed):
                yield placed


def _configuration_of(split: Split, path: str) -> list[tuple[str, Span]]:
    """The class of configuration of the model at a path, with those that it derives from: what the model names, or where that is the whole
    model's what that holds under the model's name; [] where it holds none."""
    for place in split.lineage(path):
        if (named := scan.configuration(split.reader, *place)) is not None:
            inner = (
                scan.annotated(split.reader, named, path.rpartition(".")[2]) if named in split.config_lineage else named
            )
            return scan.lineage(split.reader, inner)
    return []


def _present(split: Split, plan: scan.Plan) -> list[str]:
    """The patterns of a plan that name a module or a weight that ran; transformers reads them from each model inside the model on."""
    return [entry.name for entry in plan.entries if _names(split, entry.name)]


def _names(split: Split, pattern: str) -> bool:
    return bool(_paths(split, pattern)) or _is_weight(split, pattern)


def _paths(split: Split, pattern: str) -> list[str]:
    """What ran where a pattern points, from a model on."""
    ends = (f".{pattern}", f".{pattern}.*")  # a list of layers is no module that runs
    found = [(path, end) for path in split.modules for end in ends if f".{path}".endswith(end)]
    models = None if split.document.instance else split.models
    return [path for path, end in found if models is None or f".{path}".removesuffix(end)[1:] in models]


def _with_table(split: Split, plan: scan.Plan, model: str) -> scan.Plan:
    """A tensor-parallel plan with the table of tokens of the model at a path, which transformers adds where the plan has no entry for it."""
    names = {entry.name for entry in plan.entries}
    tables = any(node.weights for node, _ in modules_at(split.tree.tree, f"{model}.embed_tokens".strip(".")))
    if plan.kind != "tp" or not names or "embed_tokens" in names or not tables:
        return plan
    lines = enumerate(split.reader.lines(_ADDS_TABLE[0]) or (), 1)
    added = [
        scan.Hit(_ADDS_TABLE[0], line, "embed_tokens", "embedding_rowwise")
        for line, text in lines
        if _ADDS_TABLE[1] in text
    ]
    return replace(plan, entries=(*added, *plan.entries))


def _files(split: Split) -> list[str]:
    """The model's own: of its code and of its configuration."""
    own = [split.config_location[0]] if split.config_location else []
    return list(dict.fromkeys([*split.files, *own]))


def _searched(split: Split) -> str:
    return joined(f"`{path}`" for path in _files(split))


def strategies(split: Split) -> tuple[Strategy, ...]:
    """Each way of splitting: the plans that declare it, calls that do it, or what was searched for."""
    plans = _plans(split)
    found = []
    for kind, declared, pattern in _STRATEGIES:
        calls = [hit for file in split.files for hit in scan.matching_lines(split.reader, file, pattern)]
        own = [(plan, _present(split, plan)) for plan in plans if plan.kind == declared]
        held = [(plan, names) for plan, names in own if names or split.document.instance or not plan.entries]
        places = [_declares(plan, names) for plan, names in held]
        places += [Place(file=hit.path, line=hit.line, text=f"`{hit.name}`") for hit in calls]
        library = _by_library(split) if kind == "pipeline" else []
        places = [*library, *places] if places else []
        searched = "".join(f"{_said(place)}; " for place in library)
        searched += "".join(f"{_nothing(plan)}; " for plan, names in own if (plan, names) not in held)
        searched += f"searched the code of {_searched(split)} for an attribute that ends in `_{declared}_plan`, and for `{_words(pattern)}`"
        found.append(Strategy(kind=kind, found=bool(places), places=tuple(places), searched="" if places else searched))
    return tuple(found)


def _by_library(split: Split) -> list[Place]:
    """The function that cuts models into stages, with what it does to this one."""
    how = split.stages
    return [] if how is None else [Place(file=how.by.path, line=how.by.line, text=how.said)]


def parallelism_lines(split: Split) -> list[str]:
    """One line per strategy."""
    lines = []
    plans = {strategy: declared for strategy, declared, _ in _STRATEGIES}
    for strategy in strategies(split):
        title = f"**{strategy.kind.capitalize()} Parallelism:**"
        if strategy.found:
            said = _lead(split, plans[strategy.kind], strategy)
            reach = _reach(split) if strategy.kind == "tensor" else ""
            lines.append(f"{title} {said}; {'; '.join(_said(place) for place in strategy.places)}.{reach}")
        else:
            none = (
                "None, as the model has no experts"
                if strategy.kind == "expert" and not _has_experts(split)
                else "None declared"
            )
            lines.append(f"{title} {none}: {strategy.searched}.")
    return lines


def _lead(split: Split, kind: str, strategy: Strategy) -> str:
    """Whether it is of this model, of a part of it alone, or of every model."""
    if strategy.kind == "pipeline" and split.stages is not None:
        return "Yes" if split.stages.cut else "Declared, but the library cannot do it"
    alone = _alone(split, kind, strategy)
    inside = [place[0] for path in split.models or () for place in _configuration_of(split, path)[:1]]
    everywhere = not any(place.file in [*_files(split), *inside] for place in strategy.places)
    said = f"Of {alone} alone" * bool(alone)
    if everywhere:
        said += ", as the library does it for every model" if said else "As the library does it for every model"
    return said or "Yes"


def _has_experts(split: Split) -> bool:
    return any("expert" in variable.name for variable in split.document.variables)


def _alone(split: Split, kind: str, strategy: Strategy) -> str:
    """What is split where that is nothing that repeats, as an output head; empty where layers are, where a plan does not say, and under
    an `fsdp` plan, whose root takes what no entry names."""
    if kind == "fsdp" or split.document.instance:
        return ""
    plans = [plan for plan in _plans(split) if plan.kind == kind]
    names = list(dict.fromkeys(name for plan in plans for name in _present(split, plan)))
    whole = len(plans) < len(strategy.places) or not all(plan.entries for plan in plans)
    starred = any("*" in name or f".{name}.*" in f".{path}" for name in names for path in split.modules)
    return "" if whole or starred else " and ".join(f"`{name}`" for name in names)


def _reach(split: Split) -> str:
    """The numbers of ranks that a declared plan bears: it cuts between heads, so that the ranks divide their numbers."""
    made: dict[str, list[str]] = {}
    for entry in (entry for plan in _plans(split) if plan.kind == "tp" for entry in plan.entries):
        for ran in _named(split, entry.name) if entry.text in _SPLIT else ():
            width = ran.outputs[0].shape[-1] if ran.outputs and ran.outputs[0].shape else ""
            for name in sorted(variables(width) & split.point.keys()):
                if _HEADS.search(name) and Formula.parse(width).substitute({name: 0}).constant() == 0:
                    made.setdefault(name, []).append(f"`{entry.name}`")
    most = gcd(*(int(split.point[name]) for name in made))
    least = [name for name in made if split.point[name] == most][:1] or list(made)
    said = joined(f"`{{{name}}}`, {split.point[name]} in {joined(dict.fromkeys(made[name]))}" for name in least)
    return f" It leaves heads whole: the number of ranks has to divide {said}." if said else ""


def _said(place: Place) -> str:
    """A place with its pointer behind the name that it begins with."""
    name, _, rest = place.text.partition("` ")
    pointer = f"(`{place.file}:{place.line}`)"
    return f"{name}` {pointer} {rest}" if rest else f"{place.text} {pointer}"


def _declares(plan: scan.Plan, present: Sequence[str]) -> Place:
    own = [entry for entry in plan.entries if entry.path == plan.declared.path]
    count = len(own)
    names = ", ".join(f"`{entry.name}`" for entry in own)
    entries = names if 0 < count <= _NAMED else f"{count} entries" if count else "entries that its source does not list"
    there = sum(entry.name in present for entry in own)
    held = f", of which {there} {'is' if there == 1 else 'are'} of this pass" if there < count and present else ""
    more = "".join(f"; `{e.name}` ({e.pointer}) is added to them" for e in plan.entries if e not in own)
    said = f"`{plan.declared.name}` declares it for {entries}{held}{more}"
    return Place(file=plan.declared.path, line=plan.declared.line, text=said)


def _nothing(plan: scan.Plan) -> str:
    names = ", ".join(f"`{entry.name}`" for entry in plan.entries)
    return f"`{plan.declared.name}` ({plan.declared.pointer}) names no module of this pass ({names})"


def _words(pattern: str) -> str:
    return pattern.replace(r"\b", "").replace(r"\w*", "").replace("\\", "").strip("()").replace("|", " ")


# ---- 7.2 ------------------------------------------------------------------------------------------------------------


def communications(split: Split) -> tuple[Communication, ...]:
    """Collectives that source calls, and plan entries with what their style communicates where a plan is applied."""
    calls = [hit for file in split.files for hit in _collectives(split.reader, file)]
    rows = [
        Communication(what=hit.text, primitive=hit.name, when="", file=hit.path, line=hit.line,
                      note="not analysed: source sets the size")
        for hit in calls
    ]  # fmt: skip
    gathered: list[_Gathered] = []
    for plan in _plans(split):
        if plan.kind in ("tp", "ep", "sp"):
            rows += [
                row for entry in plan.entries for row in _entries(split, plan, entry) if _concerns(split, entry.name)
            ]
        elif plan.kind == "fsdp":
            gathered += _gathered(split, plan)
    return (*rows, *_as_wrapped(split, gathered), *_between_stages(split))


def _between_stages(split: Split) -> Iterator[Communication]:
    """What stages send where a plan is declared and the library cuts the model: what layers give, and the head's result."""
    how = split.stages
    if how is None or not how.cut or not any(plan.kind == "pp" for plan in _plans(split)):
        return
    handed = (
        split.prefix or "",
        f"`{how.layers}` cut into stages",
        "send and recv, between each two stages, of what the last layer gives",
        how.hands_on,
    )
    told = (
        (head, f"`{head}` of the last stage", "broadcast of its output to every stage", how.tells_all)
        for head in how.heads
    )
    for path, what, primitive, call in (handed, *told):
        if call is not None and path in split.modules:
            outputs = split.modules[path][0].outputs
            yield Communication(
                what=what, primitive=primitive, when=f"when the library cuts the model into stages, by `{call.name}`",
                file=call.path, line=call.line, bytes=str(tensor_bytes(outputs[0], split.document.dtype)) if outputs else "",
                calls="1" if outputs else "", note="" if outputs else _UNRECORDED,
            )  # fmt: skip


def _as_wrapped(split: Split, gathered: Sequence[_Gathered]) -> Iterator[Communication]:
    """The entries as transformers wraps them: a weight that several modules hold goes with the first, as the entry of the last says, and
    with the whole model where one of two has no entry; so does what no entry names."""
    tied = tied_modules(split.tree)
    shared = [row for nodes, row in gathered if any(node is one for one in tied for node in nodes[:1])]
    kept: list[ModuleNode] = []
    rows: list[_Gathered] = []
    for nodes, row in gathered:
        if not any(row is one for one in shared):
            kept += nodes
            rows.append((nodes, row))
        elif row is shared[0] and (len(shared) > 1 or len(tied) > 2):
            others = [other.what.partition(" split as ")[0] for other in shared[1:]]
            name, last = row.what.partition(" split as ")[0], shared[-1]
            what = f"{name} split as {last.what.partition(' split as ')[2]}"
            note = f"one weight with {', '.join(others)}: {_TIED}" if others else ""
            kept += nodes
            rows.append(
                (nodes, row.model_copy(update={"what": what, "file": last.file, "line": last.line, "note": note}))
            )
    yield from _in_one_group(split, rows)
    left = [row.what.partition(" split as ")[0] for row in shared] if len(shared) == 1 and len(tied) == 2 else []
    beside = "".join(f", with {name}, one weight with a module of no entry, {_TIED}" for name in left)
    rest = split.tree.parameters - _within(split.tree.tree, kept)
    lines = enumerate(split.reader.lines(_WRAPS[0]) or (), 1)
    wraps = next((line for line, text in lines if _WRAPS[1] in text), 0)
    known = bool(gathered) and all(nodes for nodes, _ in gathered)
    if known and rest > 0 and wraps and not split.document.instance:
        yield Communication(
            what="what no entry names split as the root", primitive=_WEIGHTS, when=gathered[0][1].when,
            file=_WRAPS[0], line=wraps, bytes=f"{rest} * {{w_bytes}}", calls="1", note=f"{_ROOT}{beside}",
        )  # fmt: skip


def _in_one_group(split: Split, rows: Sequence[_Gathered]) -> Iterator[Communication]:
    """The entries; of a last norm and a head that alone are kept whole it is said that they are gathered together."""
    whole = [(nodes, row) for nodes, row in rows if nodes and row.what.endswith(f"`{_KEPT}`")]
    names = [row.what.partition(" split as ")[0] for _, row in whole]
    vocabulary = split.point.get("vocab_size")
    heads = [
        name
        for (nodes, _), name in zip(whole, names, strict=True)
        for node in nodes
        if any(vocabulary in shape for shape in node.weights.values())
    ]
    pair = len(whole) == 2 and len(heads) == 1 and any(_NORM.fullmatch(name) for name in names if name not in heads)
    for _, row in rows:
        name = row.what.partition(" split as ")[0]
        if pair and name in names and name not in heads:
            yield row.model_copy(update={"note": f"in one group with {heads[0]}: gathered with it"})
        else:
            yield row


def _within(node: ModuleNode, kept: Sequence[ModuleNode]) -> int:
    """Weights of modules, of one inside another once."""
    if any(node is one for one in kept):
        return node.parameters
    return sum(_within(child, kept) for child in node.children)


def _gathered(split: Split, plan: scan.Plan) -> Iterator[_Gathered]:
    """The weights of modules that each rank keeps a part of: whole before they run. A row for each size that modules at a path have."""
    for entry in plan.entries:
        paths = _paths(split, entry.name)
        for path in paths:
            sizes: dict[int, list[tuple[ModuleNode, int]]] = {}
            for node, count in modules_at(split.tree.tree, path):
                sizes.setdefault(node.parameters // node.repeat, []).append((node, count))
            row = Communication(
                what=f"`{path if len(paths) > 1 else entry.name}` split as `{entry.text}`", primitive=_WEIGHTS,
                when=f"when the {plan.kind} plan is applied", file=entry.path, line=entry.line,
                calls=str(sum((Formula.parse(ran.repeat) for ran in split.modules[path]), Formula.const(0))),
            )  # fmt: skip
            if not sizes:
                yield (), row.model_copy(update={"note": "not analysed: the module tree has none at this path"})
            for size, those in sizes.items():
                calls = row.calls if len(sizes) == 1 else _calls(split, path, sum(count for _, count in those))
                changes = {"bytes": f"{size} * {{w_bytes}}", "calls": calls}
                yield tuple(node for node, _ in those), row.model_copy(update=changes)


def _calls(split: Split, path: str, count: int) -> str:
    """How often so many of the modules at a path run: the formula of those that run as often, where that is one."""
    formulas = {ran.repeat for ran in split.modules[path] if variables(ran.repeat) <= split.point.keys()}
    alike = [text for text in formulas if evaluate(text, split.point) == count]
    return alike[0] if len(alike) == 1 else str(count)


def _collectives(reader: SourceReader, path: str) -> list[scan.Hit]:
    """The calls of a file that communicate; what asks for a rank or a world does not."""
    tree = reader.tree(path)
    nodes = list(ast.walk(tree)) if tree is not None else []
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    bound = heads(tree, ".".join(path.split("/")[:-1]), statements) if tree is not None else {}
    found = []
    for node in sorted((n for n in nodes if isinstance(n, ast.Call)), key=lambda n: (n.lineno, n.col_offset)):
        called = chain(node.func, bound)
        name = called.rpartition(".")[2]
        if _COLLECTIVE.fullmatch(name) or _OF_DISTRIBUTED.fullmatch(called):
            found.append(scan.Hit(path, node.lineno, name, reader.line(path, node.lineno).strip()))
    return list(dict.fromkeys(found))


def communication_rows(split: Split) -> list[tuple[str, str, str, str]]:
    """The same as rows of a table, with sizes at the report's point; modules whose split is alike share a row."""
    rows: dict[tuple[str, ...], list[Communication]] = {}
    for each in communications(split):
        size = (each.note, each.bytes, each.calls, each.what.partition("` ")[2]) if each.primitive != _WEIGHTS else ()
        key = (each.primitive, each.when, *size, "" if each.when else each.what)
        rows.setdefault(key, []).append(each)
    searched = f"searched {_searched(split)} for collectives and for entries of plans that name a module of this pass"
    said = [_row(split, alike) for alike in rows.values()]
    return [*(said or [("none found", "none", searched, "none declared")]), *_modelled(split)]


def _modelled(split: Split) -> Iterator[tuple[str, str, str, str]]:
    """What ranks exchange where section 7.1 models them, of the most of them, and how long that takes: a row for each number of ranks."""
    rows: dict[int, dict[str, tuple[Exchange, ...]]] = {}
    for passes in split.modelled:
        most = max(passes, default=1)
        spread = passes[most].parallel if passes else None
        if spread is not None and spread.communication:
            rows.setdefault(most, {})[passes[most].phase] = spread.communication
    for most, told in rows.items():
        when = f"in a pass of {' and one of '.join(told)}, as section 7.1 models it"
        kinds = ", ".join(dict.fromkeys(one.kind for sent in told.values() for one in sent))
        sizes = [
            f"{f'{phase}: ' * (len(told) > 1)}{'; '.join(f'{one.count} {one.kind} of {plain_bytes(one.bytes)}{_taking(one)}' for one in sent)}"
            for phase, sent in told.items()
        ]
        yield f"the split over {most} ranks", kinds, when, "; ".join(sizes)


def _taking(sent: Exchange) -> str:
    """How long exchanges of one kind take together."""
    return "" if sent.calibrated_seconds is None else f", {seconds(sent.calibrated_seconds)} together"


def _row(split: Split, alike: Sequence[Communication]) -> tuple[str, str, str, str]:
    first = alike[0]
    pointers = ", ".join(f"`{each.file}:{each.line}`" for each in alike)
    if not first.when:
        return f"`{first.what}`", first.primitive, pointers, first.note
    styles: dict[str, dict[str, str]] = {}
    for each in alike:
        name, _, style = each.what.partition(" split as ")
        styles.setdefault(style, {})[name] = f"`{each.file}:{each.line}`"
    if first.primitive == _WEIGHTS:  # a style may stand in another file than the next one's
        told = [
            f"{', '.join(at)} split as {style} ({', '.join(dict.fromkeys(at.values()))})"
            for style, at in styles.items()
        ]
        sizes = "; ".join(f"{each.what.partition(' split as ')[0]} {_size(split, each)}" for each in alike)
        return "; ".join(told), first.primitive, first.when, sizes
    split_as = "; ".join(
        f"{', '.join(at)} split as {style}" if style else ", ".join(at) for style, at in styles.items()
    )
    each_of = "each " if len(alike) > 1 and first.bytes not in ("", "0") else ""
    return split_as, first.primitive, f"{first.when} ({pointers})", f"{each_of}{_size(split, first)}"


@dataclass(frozen=True)
class _Ran:
    """A module of the traced pass: its class, what a call gives, how many calls a pass makes."""

    class_name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    repeat: str


#: path in the model, with `*` for layers -> what ran there: once for each kind of layer and each line that calls it
_Modules = dict[str, list[_Ran]]


def _submodules(kernels: Sequence[Kernel], above: str) -> Iterator[tuple[str, _Ran]]:
    for kernel in kernels:
        if kernel.class_name:
            path = ".".join(part for part in (above, kernel.attribute) if part)
            yield _starred(path), _Ran(kernel.class_name, kernel.inputs, kernel.outputs, kernel.repeat)
            yield from _submodules(kernel.kernels or (), path)


def _starred(path: str) -> str:
    return re.sub(r"\.[\d,-]+(?=\.|$)", ".*", path)


def _concerns(split: Split, pattern: str) -> bool:
    """Whether an entry names the analysed module or something inside it; a whole model holds everything."""
    instance = _starred(split.document.instance)
    if not instance or _named(split, pattern):
        return True
    parts = pattern.split(".")
    heads = (".".join(parts[:count]) for count in range(1, len(parts)))
    return any(f".{instance}".endswith(f".{head}") for head in heads)


def _named(split: Split, pattern: str) -> list[_Ran]:
    """What ran where a pattern points; plans of a base model leave out the attribute that holds it.

    Layers of several kinds stand at one starred path: runs whose calls give and take the same are one, with all their calls.
    """
    there = next((ran for path, ran in split.modules.items() if f".{path}".endswith(f".{pattern}")), [])
    found: dict[object, _Ran] = {}
    for ran in there:
        shapes = tuple((t.shape, t.dtype) for t in (*ran.inputs, *ran.outputs))
        key = (ran.class_name, len(ran.inputs), shapes)
        before = found.get(key)
        calls = Formula.parse(ran.repeat) + (Formula.parse(before.repeat) if before else Formula.const(0))
        found[key] = replace(ran, repeat=str(calls))
    return list(found.values())


def _is_weight(split: Split, pattern: str) -> bool:
    """Whether a pattern names a weight of a module that ran."""
    holder, _, weight = pattern.rpartition(".")
    classes = {ran.class_name for ran in _named(split, holder)} if holder else set()
    return any(node.class_name in classes and weight in node.weights for node in _nodes(split.tree.tree))


def _nodes(node: ModuleNode) -> Iterator[ModuleNode]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _entries(split: Split, plan: scan.Plan, entry: scan.Hit) -> list[Communication]:
    """What one entry of a plan communicates: one row for each size of a call, two where the source chooses between ways."""
    calls = _named(split, entry.name)
    if entry.text == _DISPATCH and calls and _registered(split, _DISPATCH):
        return [row for call in calls for row in _dispatched(split, plan, entry, call)]
    rows: dict[tuple[str, str, str], Communication] = {}
    runs: list[_Ran | None] = [*calls] or [None]
    for call in runs:
        row = _entry(split, plan, entry, call)
        key = (row.primitive, row.note, row.bytes)
        if key in rows and row.calls:
            row = row.model_copy(update={"calls": str(Formula.parse(rows[key].calls) + Formula.parse(row.calls))})
        rows[key] = row
    return list(rows.values())


def _dispatched(split: Split, plan: scan.Plan, entry: scan.Hit, call: _Ran) -> list[Communication]:
    """Experts on several ranks: where all of them hold the same batch each computes its experts' share of the output and
    the shares are summed; else each pair of token and expert is sent to the expert's rank and its result sent back.

    Sent are, of the batch that the ranks of a group share: a row of the hidden width for each pair, twice, and before them
    the number of pairs for each expert. Rows whose expert lives on their own rank are counted too.
    """
    document, where = split.document, _registered(split, _DISPATCH)
    applied = f"when the {plan.kind} plan is applied"
    reduced = tensor_bytes(call.outputs[0], document.dtype) if call.outputs else None
    sent = _sent(document, call)
    rows = (
        (f"all_reduce of its output{where}", f"{applied} and all expert ranks hold the same batch", reduced),
        (
            f"all_to_all of the routed tokens, there and back, and of their counts{where}",
            f"{applied} and they do not",
            sent,
        ),
    )
    return [
        Communication(
            what=f"`{entry.name}` split as `{entry.text}`", primitive=primitive, when=when, file=entry.path, line=entry.line,
            note="" if size is not None else "not analysed: the trace does not show which experts a token goes to",
            bytes="" if size is None else str(size), calls=call.repeat if size is not None else "",
        )
        for primitive, when, size in rows
    ]  # fmt: skip


def _sent(document: ModelAnalysis, call: _Ran) -> Formula | None:
    """Bytes of the two exchanges of one call, from the indices of the experts that each token goes to."""
    chosen = next((t for t in call.inputs if t.dtype == "int64" and len(t.shape) > 1), None)
    experts = any(variable.name == "num_experts" for variable in document.variables)
    if chosen is None or not call.outputs or not experts:
        return None
    pairs = Formula.const(1)
    for size in chosen.shape:
        pairs = pairs * Formula.parse(size)
    row = tensor_bytes(call.outputs[0].model_copy(update={"shape": call.outputs[0].shape[-1:]}), document.dtype)
    return Formula.const(2) * pairs * row + Formula.const(_INDEX_BYTES) * Formula.var("num_experts")


def _entry(
    split: Split, plan: scan.Plan, entry: scan.Hit, call: _Ran | None
) -> Communication:  # fmt: skip
    primitive, note, ran = _communicated(split, entry, call)
    size = tensor_bytes(ran.outputs[0], split.document.dtype) if ran is not None else None
    nothing = "0" if primitive.startswith("none") else ""
    return Communication(
        what=f"`{entry.name}` split as `{entry.text}`", primitive=primitive, when=f"when the {plan.kind} plan is applied",
        file=entry.path, line=entry.line, note=note, bytes=nothing if size is None else str(size),
        calls="" if ran is None else ran.repeat,
    )  # fmt: skip


def _communicated(
    split: Split, entry: scan.Hit, call: _Ran | None
) -> tuple[str, str, _Ran | None]:  # fmt: skip
    """The collective of one entry, what is to be said of its size, and the module whose output it handles."""
    if call is None and _is_weight(split, entry.name):
        holder = entry.name.rpartition(".")[0]
        note = f"it splits a weight of `{holder}`, whose own entry communicates"
        return "none of its own", note, None
    if call is None:
        return "none in this pass", "the traced pass has no such module", None
    if entry.text not in _STYLES:
        primitive = f"not analysed: the code of `{entry.text}` decides"
        return primitive, "not analysed: this style's collective is not known", None
    collective = _STYLES[entry.text]
    if not collective:
        return "none", "the output stays where it is computed", None
    said = f"{collective} of its output{_registered(split, entry.text)}"
    if not call.outputs:
        return said, _UNRECORDED, None
    return said, "", call


def _registered(split: Split, style: str) -> str:
    """Where the style is registered, in parentheses."""
    lines = (
        (file, number, text) for file in _STYLES_FILES for number, text in enumerate(split.reader.lines(file) or (), 1)
    )
    found = [row for row in lines if f'"{style}"' in row[2]]
    found = [row for row in found if "register" in row[2]] or found
    return f" (its style is registered at `{found[0][0]}:{found[0][1]}`)" if found else ""


def _size(split: Split, each: Communication) -> str:
    """Bytes of the output of one call, and how many calls a pass makes."""
    if each.bytes in ("", "0"):
        return f"0 bytes: {each.note}" if each.bytes else each.note
    bytes_now = plain_bytes(evaluate(each.bytes, split.point))
    calls = "" if each.calls == "1" else f" in each of `{each.calls}` calls"
    note = f", {each.note}" if each.note else ""
    return f"`{each.bytes}` bytes ({bytes_now} in {split.document.phase}){calls}{note}"


# ---- 7.3 ------------------------------------------------------------------------------------------------------------


def overlapping(split: Split) -> Overlap:
    """Lines that overlap communication with computation, or what was looked for."""
    pattern = r"\b(async_op|cuda\.Stream|wait_stream)\b"
    hits = [hit for file in split.files for hit in scan.matching_lines(split.reader, file, pattern)]
    places = tuple(Place(file=hit.path, line=hit.line, text=f"`{hit.name}` is used") for hit in hits)
    searched = f"searched {joined(f'`{file}`' for file in split.files)} for async_op, cuda.Stream and wait_stream"
    return Overlap(places=places, searched="" if places else searched)


def overlap(split: Split) -> str:
    """Whether communication is overlapped with computation."""
    found = overlapping(split)
    if found.places:
        return " ".join(f"{place.text} (`{place.file}:{place.line}`)." for place in found.places)
    lines = enumerate(split.reader.lines(_STREAM[0]) or (), 1)
    made = next((line for line, text in lines if _STREAM[1] in text), 0)
    gathers = made and any(row.primitive == _WEIGHTS for row in communications(split))
    beside = (
        f" Under the fsdp plan torch gathers weights on a stream of its own (`{_STREAM[0]}:{made}`)." if gathers else ""
    )
    return f"None found: {found.searched}; the traced forward runs on one stream.{beside}"
