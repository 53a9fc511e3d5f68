"""What a component is for, in words: from its role, the operators that it runs and the sizes of the model.

What the class's own docstring says in its first sentence stands behind it, as the words of the source.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

from opscope_schemas.analysis import Kernel, ModuleAnalysis, TensorInfo
from opscope_schemas.formula import Rational, evaluate, variables
from opscope_schemas.units import things

from opscope_tools.report.attending import heads_of, heads_said, is_fused, keeps_cache
from opscope_tools.report.call_kinds import shown, width_of
from opscope_tools.report.facts import CallKind, ImplementationFacts, product_widths, short, size_at, walk
from opscope_tools.report.flow import bare
from opscope_tools.report.graph import INPUTS, OUTPUTS, Edge
from opscope_tools.report.kinds import windowed
from opscope_tools.report.links import Operators, Unit, edges_of
from opscope_tools.report.nodes import modules_at, node_of, weights_of
from opscope_tools.report.overview import keeps_latents
from opscope_tools.report.quotes import Quotes, as_source, joined

__all__ = ["purpose", "shared_experts"]

#: pointers of calls that one sentence lists, characters of a docstring that are quoted
_SITES, _QUOTED = 3, 160
#: operators and classes that a sentence names, kinds of layers of one class that it tells apart
_NAMED, _STACKS = 5, 3
#: operators that change each number by itself, and how
_BENDS = {
    "tanh": "bends each number to one between -1 and 1 (tanh)",
    "sigmoid": "bends each number to one between 0 and 1 (sigmoid)",
    "relu": "puts 0 in the place of each negative number (ReLU)",
    "gelu": "multiplies each number by how likely a normal variable is to be below it, exactly or as its class approximates it (GELU)",
    "silu": "multiplies each number by its own sigmoid (SiLU)",
    "softplus": "bends each number to a positive one (softplus)",
}
#: what a layer does by weights of its own
_BY_WEIGHTS = {"mul": "scaling by", "add": "addition of"}
#: axes of what holds a vector for each token: tokens, sequences of tokens
_OF_TOKENS = (2, 3)
#: of a projection, in keys
_ENDS = ("taken", "given")
#: roles whose classes are a library's, or as good as one's
_OF_LIBRARIES = ("projection", "activation")
#: the first axes of a convolution's weight, behind which those of its window stand
_CHANNELS = ("given", "taken")


def purpose(facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> str:
    """A sentence on what it does, where it is called and which calls are shown, and the words of its docstring."""
    name = f"`{short(module.class_name)}` ({facts.pointer(module.class_name)})"
    does = _DOES.get(facts.role(module.class_name), _module)(_Subject(facts, module, quotes))
    does = f" {does}" if does else ""
    own = facts.of_models(module.file) and facts.role(module.class_name) not in _OF_LIBRARIES
    quoted = _docstring(facts, module) if own else ""  # what a library's class may do is not what it does here
    words = f" Its source says: `{quoted}`" if quoted else ""
    return f"{name}{does}.{_called(facts, module)}{shown(facts, module, quotes)}{words}"


def _called(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    calls = [k for _, _, k in walk(facts.main.kernels, "") if k.class_name == module.class_name and k.file]
    lines = (([k.line, *(site.line for site in k.via if site.file == k.file)][-1], k.file) for k in calls)
    sites = list(dict.fromkeys((path, line) for line, path in lines))
    if not sites:
        return ""
    further = len(sites) - _SITES
    more = f" and {further} further {things(further, 'line')}" if further > 0 else ""
    return f" Called at {', '.join(f'`{path}:{line}`' for path, line in sites[:_SITES])}{more}."


def _docstring(facts: ImplementationFacts, module: ModuleAnalysis) -> str:
    """The first sentence of the class's docstring, for a code span."""
    found = facts.locate(module.class_name)
    node = found[1].node if found else None
    text = ast.get_docstring(node) if isinstance(node, ast.ClassDef) else None
    first = re.split(r"(?<=[.!?])\s|\n\s*\n", (text or "").strip(), maxsplit=1)[0]
    said = as_source(first)
    return said if re.search(r"\w", said) and len(said) <= _QUOTED and "http" not in said else ""


class _Subject:
    """A component beside the model: what its sentence may speak of."""

    def __init__(self, facts: ImplementationFacts, module: ModuleAnalysis, quotes: Quotes) -> None:
        self.facts = facts
        self.module = module
        self.quotes = quotes
        self.operators = " ".join(k.operator for k in module.kernels if k.kernel_type == "basic")
        self.called = [k for k in module.kernels if k.kernel_type == "composite"]

    @property
    def values(self) -> Mapping[str, Rational]:
        return self.facts.point(self.facts.main)

    def size(self, name: str, key: str = "") -> str:
        """A size of the model with its mark; empty where it has none of that name, or parts of it that differ in it."""
        value = self.number(name, key)
        return "" if value is None else self.quotes(f"config.{name}", value)

    def number(self, name: str, key: str = "") -> int | None:
        """That size itself."""
        value = None if self.differs(key or name) else self.values.get(name, self.facts.tree.config.get(key or name))
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def head_width(self) -> str:
        """`of width 192, with values of width 128`, as its attention is given them; empty where no operator is attention."""
        shapes = [k.inputs for k in self.module.kernels if re.search(r"sdpa|scaled_dot_product", k.operator)]
        if not shapes or len(shapes[0]) < 3 or not shapes[0][0].shape or not shapes[0][2].shape:
            return ""
        point, key = self.facts.point(self.module), f"module.{self.module.class_name}"
        queries, values = (evaluate(shapes[0][at].shape[-1], point) for at in (0, 2))
        said = f"of width {self.quotes(f'{key}.query_dim', queries)}"
        return said if queries == values else f"{said}, with values of width {self.quotes(f'{key}.value_dim', values)},"

    def differs(self, key: str) -> bool:
        """Whether the model has parts, such as towers, with configurations of their own that hold several values of a size."""
        config = self.facts.tree.config
        parts = [config, *(part for part in config.values() if isinstance(part, Mapping))]
        return len({str(part[key]) for part in parts if part.get(key) is not None}) > 1

    def widths(self) -> list[str]:
        """The lengths of the vectors that its calls are given, those of the costliest kind first."""
        kinds = self.facts.call_kinds.get(self.module.class_name, ())
        found = dict.fromkeys(width for kind in kinds if (width := width_of(self.facts, kind)) is not None)
        return [self.quotes(f"module.{self.module.class_name}.width{at}", width) for at, width in enumerate(found, 1)]

    def inner_widths(self) -> tuple[str, str]:
        """What its first projection takes and what its last one does, in the call that is shown; empty where it calls none."""
        widths = product_widths(self.called)
        if widths is None:
            return self.size("hidden_size"), self.size("intermediate_size")
        point, key = self.facts.point(self.facts.main), f"module.{self.module.class_name}"
        outer, inner = (size_at(width, point) for width in widths)
        if isinstance(outer, str) or isinstance(inner, str):
            return "", ""
        return self.quotes(f"{key}.outer_width", outer), self.quotes(f"{key}.inner_width", inner)

    def runs(self, pattern: str) -> bool:
        """Whether one of its own operators is called so."""
        return bool(re.search(pattern, self.operators))


#: what cross attention reads, of an encoder, and of what else it is given
_ENCODED, _GIVEN = "those of the encoder", "those whose keys it is given"


def _attention(of: _Subject) -> str:
    name = of.module.class_name
    kind, kept = heads_of(of.facts, name), keeps_cache(of.facts, name)
    both = bool(of.facts.tree.config.get("is_encoder_decoder"))  # in a model of both sides one class does either
    read = _sides(of) if both else "" if kept else f"{_others(of)}{_fewer(of)}"
    if kind is None:
        how = "queries are compared with keys, and values summed by what that gives"
        return f"lets each token read {read}: {how}" if read else f"is attention: {how}"
    read = read or (_GIVEN if both or _of_others(of) else f"itself and those before it{_window(of)}")
    queries, _, shared = heads_said(of.facts, of.quotes, name, kind).partition(" on ")
    width = of.head_width()
    node = node_of(of.facts, name, of.facts.calls.get(name))
    sinks = next((name for name in (node.weights if node else ()) if "sink" in name), "")
    learned = f" beside a learned score of each head (`{sinks}`)" if sinks else ""
    return (
        f"lets each token read {read}: {queries}{f' {width}' if width else ''} are compared with the keys "
        f"of {shared} ({kind.kind}){learned}, and the values are summed by what that gives; "
        f"{_kept(cached=kept, read=read, latents=kept and keeps_latents(of.facts))}"
    )


def _kept(*, cached: bool, read: str, latents: bool = False) -> str:
    """What becomes of new keys and values, in a model of both sides too."""
    if not cached:
        return "nothing is kept"
    decoder, encoder = (
        " in the decoder" * ("in the decoder" in read),
        ", those of the encoder once" * (_ENCODED in read),
    )
    what = "the latents that keys and values are made from, and not these," if latents else "new keys and values"
    return f"{what} join the cache{decoder}{encoder}"


def _others(of: _Subject) -> str:
    """What its tokens read where nothing is kept from pass to pass: what its operator, or a mask before the softmax, leaves; of calls
    that differ in it where which do."""
    told: dict[str, list[Kernel]] = {}
    for call in (call for kind in of.facts.call_kinds.get(of.module.class_name, ()) for call in kind.calls):
        told.setdefault(f"{_left((call,))}{_parted(of, call)}", []).append(call)
    if len(told) < 2:
        return next(iter(told), "") or _left(of.facts.main.kernels)
    places = [{of.facts.path_of(call) for call in calls} for calls in told.values()]
    if len(set[str]().union(*places)) == sum(map(len, places)):
        said = (f"{read} at {_listed(f'`{of.facts.path_of(call)}`' for call in calls)}" for read, calls in told.items())
        return " and ".join(said)
    key = f"module.{of.module.class_name}.reads"
    counts = {read: sum(evaluate(call.repeat, of.values) for call in calls) for read, calls in told.items()}
    return " and ".join(
        f"{read} in {of.quotes(f'{key}{at}', count)} {things(count, 'call')}"
        for at, (read, count) in enumerate(counts.items(), 1)
    )


def _fewer(of: _Subject) -> str:
    """That keys and values are fewer than queries, where calls are given one tensor alone, so that these sum it up; of how many calls."""
    kinds, key = of.facts.call_kinds.get(of.module.class_name, ()), f"module.{of.module.class_name}"
    found = [(kind, summed) for kind in kinds if (summed := _summed(of, kind.shown)) is not None]
    if not found:
        return ""
    some, calls = sum(kind.count for kind, _ in found), sum(kind.count for kind in kinds)
    among = f" in {of.quotes(f'{key}.summing', some)} of {of.quotes(f'{key}.calls', calls)} calls" * (some < calls)
    first, (queries, keys, made) = found[0]
    by = f" that `{made}` makes of them" * bool(made)
    here = first is kinds[0]
    numbers = (
        f" (here {of.quotes(f'{key}.keys', keys)} for {of.quotes(f'{key}.queries', queries)} tokens)" if here else ""
    )
    return f",{among} by way of fewer keys and values{by}{numbers}"


def _summed(of: _Subject, call: Kernel) -> tuple[int, int, str] | None:
    """How many queries and keys an operator of attention is given in a call whose one tensor both are made of, and which module makes
    the keys fewer; None where they are not."""
    if len([t for t in call.inputs if len(t.shape) in _OF_TOKENS and "float" in t.dtype]) != 1:
        return None
    for _, _, kernel in walk((call,), ""):
        queries, keys = (_product(of, [count]) for count in _compared(kernel) or ("0", "0"))
        if 0 < keys < queries:
            return queries, keys, next((k.attribute for k in call.kernels or () if _sums_up(of, k)), "")
    return None


def _sums_up(of: _Subject, call: Kernel) -> bool:
    """Whether a module gives fewer vectors than it is given."""
    shapes = [t.shape for t in (*call.inputs[:1], *call.outputs[:1]) if t.shape]
    return bool(call.class_name) and len(shapes) > 1 and 0 < _product(of, shapes[1][:-1]) < _product(of, shapes[0][:-1])


def _parted(of: _Subject, call: Kernel) -> str:
    """That a token meets those of its part alone, where its operator is given fewer tokens at a time, keys too, than the call is."""
    given = next((t.shape for t in call.inputs if t.shape and "float" in t.dtype), ())
    whole = _product(of, given[:-1]) if len(given) in _OF_TOKENS else 0
    for kernel in (kernel for _, _, kernel in walk((call,), "") if is_fused(kernel) and len(kernel.inputs) > 1):
        shapes = [tensor.shape for tensor in kernel.inputs[:2] if len(tensor.shape) > 1]
        if shapes and all(0 < _product(of, [shape[0], shape[-2]]) < whole for shape in shapes):
            return " of its part of the sequence"
    return ""


def _product(of: _Subject, sizes: Sequence[str]) -> int:
    """How many places a tensor of these sizes has; 0 where that cannot be told."""
    found = [size_at(size, of.values) for size in sizes]
    whole = [size for size in found if isinstance(size, int)]
    return math.prod(whole) if len(whole) == len(found) else 0


def _left(calls: Sequence[Kernel]) -> str:
    """What an operator of attention, or a mask before the softmax, leaves a token to read."""
    own = [k for _, _, k in walk(calls, "") if k.operator]
    fused = [k for k in own if re.search(r"sdpa|scaled_dot_product", k.operator)]
    if any(k.causal_saving != "0" for k in fused):
        return "itself and those before it"
    at = next((place for place, k in enumerate(own) if "softmax" in k.operator), 0)
    masked = any(re.search(r"aten\.(add|sub|rsub|where|masked_fill)\b", k.operator) for k in own[:at])
    masked = masked or any(len(k.inputs) > len(("query", "key", "value")) for k in fused)
    return "those that a mask leaves it" if masked else "all tokens"


def _sides(of: _Subject) -> str:
    """What its tokens read in the encoder and in the decoder, by the lengths of queries and keys; empty where none is told."""
    found = set[str]()
    for queries, keys in _lengths(of):
        if "seq_len" not in variables(queries):
            found.add("all tokens in the encoder")
        elif variables(keys) & {"seq_len", "cache_len"}:
            found.add("itself and those before it in the decoder")
        else:
            found.add(_ENCODED)
    return _or(sorted(found)) if found else ""


def _of_others(of: _Subject) -> bool:
    """Whether its keys are no tokens of the sequence: of each of its operators as many as the sequence does not decide."""
    found = list(_lengths(of))
    return bool(found) and all(
        "seq_len" in variables(queries) and not variables(keys) & {"seq_len", "cache_len"} for queries, keys in found
    )


def _lengths(of: _Subject) -> Iterator[tuple[str, str]]:
    """How many queries and keys each of its operators is given; nothing where a pass is told in plain numbers."""
    if not any(variable.name == "seq_len" for variable in of.facts.main.variables):
        return
    for call in (call for kind in of.facts.call_kinds.get(of.module.class_name, ()) for call in kind.calls):
        for _, _, kernel in walk((call,), ""):
            if (compared := _compared(kernel)) is not None:
                yield compared


def _compared(kernel: Kernel) -> tuple[str, str] | None:
    """How many queries and keys an operator of attention, or the softmax of one in parts, is given."""
    if is_fused(kernel) and len(kernel.inputs) > 1 and all(len(t.shape) > 1 for t in kernel.inputs[:2]):
        queries, keys = (each.shape[-2] for each in kernel.inputs[:2])
        return queries, keys
    if "softmax" in kernel.operator and kernel.outputs and len(kernel.outputs[0].shape) > 1:
        queries, keys = kernel.outputs[0].shape[-2:]
        return queries, keys
    return None


def _window(of: _Subject) -> str:
    """How many of the tokens before it one reads, and in which layers, where a window bounds them."""
    if (found := windowed(of.facts)) is None:
        return ""
    among = (
        f"in {of.quotes('window.layers', found.layers)} of {of.quotes('window.of_layers', found.of_layers)} layers "
        if found.layers < found.of_layers
        else ""
    )
    width = of.quotes("window", found.tokens)
    reach = f"the last {width}" if found.slides else f"those in its chunk of {width}"
    return f", {among}no more than {reach} (`{found.setting}`)"


#: what a normalisation does with its weights, by name
_APPLIES = {"weight": "multiplies by a learned weight", "bias": "adds a bias"}


def _normalisation(of: _Subject) -> str:
    widths = [said for said in of.widths() if said] or [said for said in (of.size("hidden_size"),) if said]
    grouped = of.runs(r"group_norm|batch_norm")
    over = f"each vector of {_or(widths)}" if widths and not grouped else "each vector"
    centred = of.runs(r"layer_norm|\.sub|var") and not of.runs(r"rms_norm")
    done = (
        f"takes the mean of {over} away and divides by its standard deviation"
        if centred
        else f"divides {over} by its root mean square"
        if of.runs(r"rms_norm|\.(rsqrt|pow|mean|square)\b")
        else f"normalises {over}"
    )
    if grouped:
        whose = "channel, as training left them" if of.runs("batch_norm") else "group of channels over all places"
        done = f"takes a mean away and divides by a standard deviation, those of each {whose}"
    if of.runs("weight_norm"):
        return "makes a weight of its learned direction, brought to length 1, and a learned magnitude"
    node = node_of(of.facts, of.module.class_name, of.facts.calls.get(of.module.class_name))
    held = node is not None and weights_of(of.facts.tree, node)
    learned = [name for name in ("weight", "bias") if node is not None and held and name in node.weights]
    plus = any(re.search(r"\b1(\.0)?\s*\+\s*self\.weight", k.code) for k in of.module.kernels)
    applied = [_APPLIES[name].replace("a learned", "1 plus a learned") if plus else _APPLIES[name] for name in learned]
    done += f", then {' and '.join(applied)}" if applied else ""
    return done


def _embedding(of: _Subject) -> str:
    filters = list(dict.fromkeys(short(k.class_name) for k in of.called if re.search(r"Conv\d?d", short(k.class_name))))
    if filters:
        return f"slides filters that are learned over what it is given ({_listed(f'`{name}`' for name in filters)}): each place where they stop becomes a vector"
    if of.called:
        placed = any(re.search(r"(^|[._])pos", k.attribute) for k in of.called)
        placed = placed or any(".add" in k.operator and re.search(r"\bself\.\w*pos", k.code) for k in of.module.kernels)
        return f"turns what {'the model' if placed else 'it'} is given into vectors{', positions among them' * placed}"
    computes = dict.fromkeys(
        bare(k.operator) for k in of.module.kernels if evaluate(k.flops, of.facts.point(of.module))
    )
    done = f" (computing {_listed(f'`{name}`' for name in computes)} too)" if computes else ": no arithmetic"
    return f"replaces each index by its row of a table{done}, only the rows that are asked for are read"


def _position(of: _Subject) -> str:
    if of.runs(r"\.(cos|sin)\b"):
        return "computes for each position the cosines and sines by which attention turns queries and keys"
    return "gives each position a vector"


def _network(of: _Subject) -> str:
    wide, inner = of.inner_widths()
    names = [k.attribute for k in of.called]
    gated = any("gate" in name for name in names) or len([n for n in names if "proj" in n or n.startswith("w")]) > 2
    sizes = f" from {wide} to {inner} values and back" if wide and inner else " and back"
    how = "; one of two products in between gates the other" if gated else ""
    windows = _windows(of)
    alone = " by itself" * (not windows)
    met = f"; a convolution of {_or(windows)} lets neighbouring tokens meet" if windows else ""
    return f"takes each token{alone}{sizes}, with a non-linearity between{how}{met}"


def _windows(of: _Subject) -> list[str]:
    """Over how many places its convolutions reach, in each direction: `3 x 3`; none that takes each place by itself."""
    call, key = of.facts.calls.get(of.module.class_name), f"module.{of.module.class_name}"
    found: dict[tuple[Rational | str, ...], None] = {}
    for _, _, kernel in walk((call.kernels if call else None) or of.module.kernels, ""):
        if bare(kernel.operator) == "convolution" and len(kernel.inputs) > 1:
            found[tuple(size_at(size, of.values) for size in kernel.inputs[1].shape[len(_CHANNELS) :])] = None
    reaching = [sizes for sizes in found if any(size != 1 for size in sizes)]
    return [
        " x ".join(
            str(s) if isinstance(s, str) else of.quotes(f"{key}.reach{at}.{axis}", s) for axis, s in enumerate(sizes, 1)
        )
        for at, sizes in enumerate(reaching, 1)
    ]


def _or(said: Sequence[str]) -> str:
    return f"{', '.join(said[:-1])} or {said[-1]}" if len(said) > 1 else said[0]


def _experts(of: _Subject) -> str:
    chosen, among = of.size("num_experts_per_tok"), of.size("num_experts")
    name = short(of.module.class_name)
    if re.search(r"Router|Gate$", name) or (of.runs("topk") and not of.called):
        how = f"{chosen} of {among}" if chosen and among else "some of the"
        return f"chooses for each token {how} experts, and how much each of them counts"
    if of.called and not re.search(r"Experts?$", name):
        shared = ", and what the experts give that every token meets" if shared_experts(of.called) else ""
        if of.facts.dense_experts:
            return f"runs every expert on each token, those that its router did not choose on zeros, and adds up what they give{shared}"
        return f"sends each token to the experts that its router chose and adds up what they give{shared}"
    how = f" ({chosen} of {among} for each)" if chosen and among else ""
    if of.facts.dense_experts:
        return f"holds the experts' weights and runs each expert on every token: what a token's choice{how} leaves out is multiplied by 0"
    return f"holds the experts' weights and runs those that were chosen{how} on their tokens"


def shared_experts(called: Iterable[Kernel]) -> bool:
    """Whether a mixture of experts calls one that no router chooses."""
    return any("shared" in kernel.attribute and "gate" not in kernel.attribute for kernel in called)


def _layer(of: _Subject) -> str:
    """What it runs in which order; told for each stack where one class makes layers that run different modules."""
    orders: dict[str, list[CallKind]] = {}
    for kind in of.facts.call_kinds.get(of.module.class_name, ()):
        orders.setdefault(_order(of, kind.shown.kernels or (), kind.shown.repeat), []).append(kind)
    apart = 1 < len(orders) <= _STACKS
    if apart:
        told = "; ".join(f"{_those(of, at, held)} {order}" for at, (order, held) in enumerate(orders.items(), 1))
    else:
        told = next(iter(orders), "") or _order(of, of.facts.main.kernels or (), "1")
    return f"{_among(of, placed=not apart)}: {told}{_residual(of)}"


def _residual(of: _Subject) -> str:
    """Behind which modules, or weights of its own, what goes past them is added; empty where the layer adds nothing."""
    operators = Operators(of.facts.main)
    behind, last = dict[str, None](), ""
    for kernel, whole in of.facts.uncut(of.module):
        if kernel.class_name and kernel.attribute:
            last = last if _runs_nothing(kernel) else kernel.attribute
        elif weights := _own_weights(of, operators.of([whole])):
            last = weights[0]
        elif re.search(r"\.add", kernel.operator) and last:
            behind[f"`{last}`"] = None
    return f", with what goes past them added behind {joined(behind)}" if behind else ""


def _runs_nothing(kernel: Kernel) -> bool:
    """Whether a call runs no operator that counts (dropout)."""
    return kernel.flops == "0" and not variables(kernel.memory_access.read)


def _own_weights(of: _Subject, operators: Collection[int]) -> list[str]:
    """The weights that operators read, by the names that they have in the module whose own operators these are."""
    read = (one.weights for one in of.facts.graphs[0].operators if one.id in operators)
    return list(dict.fromkeys(name for names in read for name in names))


def _those(of: _Subject, at: int, kinds: Sequence[CallKind]) -> str:
    """Which layers of a class these kinds of calls run: how many, and where."""
    count = sum(kind.count for kind in kinds)
    calls = (call for kind in kinds for call in kind.calls)
    said = of.quotes(f"module.{of.module.class_name}.order{at}", count)
    return f"{said} at {_listed(f'`{of.facts.path_of(call)}`' for call in calls)} {'runs' if count == 1 else 'run'}"


def _order(of: _Subject, kernels: Sequence[Kernel], repeat: str) -> str:
    """What one call runs, in words, and what of it goes on with what stood before."""
    operators = Operators(of.facts.main)
    units = [Unit(str(at), operators.of([kernel])) for at, kernel in enumerate(kernels)]
    own = {unit.id: _own_weights(of, unit.operators) for unit, k in zip(units, kernels, strict=True) if k.operator}
    ran = [
        (unit, k)
        for unit, k in zip(units, kernels, strict=True)
        if (k.class_name and unit.operators) or own.get(unit.id)
    ]  # dropout does not
    behind = _behind(edges_of(units, of.facts.graphs[0], repeat))
    attentions = {k.attribute for _, k in ran if of.facts.role(k.class_name) == "attention"}

    def said(unit: Unit, kernel: Kernel) -> str:
        if weights := own.get(unit.id):
            does = _BY_WEIGHTS.get(bare(kernel.operator), f"`{bare(kernel.operator)}` with")
            return f"{does} {joined(f'`{name}`' for name in weights)}"
        role = of.facts.role(kernel.class_name)
        if role == "attention" and len(attentions) > 1:
            return f"attention (`{kernel.attribute}`)"
        return f"`{short(kernel.class_name)}`" if role == "module" else role

    text, last, before = "", "", ""
    for unit, kernel in ran:
        name, follows = said(unit, kernel), last in behind.get(unit.id, ())
        if not text:
            text = name
        elif name != before or follows:
            text += f", {'then' if follows else 'side by side with'} {'another ' * (name == before)}{name}"
        last, before = unit.id, name
    return text or "operators of its own"


def _behind(edges: Sequence[Edge]) -> dict[str, set[str]]:
    """Per unit those whose results it reads, by way of others too; edges lead from earlier units to later ones."""
    found: dict[str, set[str]] = {}
    for edge in sorted(
        (e for e in edges if not e.again and e.target != OUTPUTS and e.source != INPUTS), key=lambda e: int(e.target)
    ):
        found.setdefault(edge.target, set()).update({edge.source}, found.get(edge.source, ()))
    return found


def _among(of: _Subject, *, placed: bool) -> str:
    """Which part of the model's layers it is: one of all, some of them, or of more than one stack, which are named where `placed`."""
    counts: dict[str, int] = {}
    for kind in of.facts.call_kinds.get(of.module.class_name, ()):
        for call in kind.calls:
            path = of.facts.path_of(call)
            counts[path] = counts.get(path, 0) + evaluate(call.repeat, of.values)
    total, layers = sum(counts.values()), of.number("num_layers", "num_hidden_layers")
    key = f"module.{of.module.class_name}"
    if layers is not None and (total == layers or of.facts.within):
        return "is the only layer" if layers == 1 else f"is one of {of.size('num_layers', 'num_hidden_layers')} layers"
    if total < 2:
        return "is one layer"
    said = of.quotes(f"{key}.calls", total)
    listed = sum(count for path in counts for _, count in modules_at(of.facts.tree.tree, path))
    if len(counts) == 1 and listed:  # layers of its own list, whatever others the model has
        within = f" of `{next(iter(counts)).rpartition('.')[0]}`" * (layers is not None and listed != layers)
        if total < listed:
            return f"runs as {said} of the {of.quotes(f'{key}.listed', listed)} layers{within}"
        return f"is one of {'the ' * bool(within)}{said} layers{within}"
    if layers is not None and total < layers:
        return f"runs as {said} of the {of.size('num_layers', 'num_hidden_layers')} layers"
    places = [
        f"{of.quotes(f'{key}.place{at}', count)} at `{path}`" for at, (path, count) in enumerate(counts.items(), 1)
    ]
    return f"is one of {said} layers" + (f" ({', '.join(places)})" if placed and len(places) > 1 else "")


def _head(of: _Subject) -> str:
    if of.module.class_name != of.facts.main.class_name:
        return "turns what the layers give into what the task asks for"
    vocabulary = of.size("vocab_size")
    ends = any(k.class_name.endswith("Linear") for k in of.called)
    gives = f"gives each of {vocabulary} tokens a score" if vocabulary and ends else "computes what the task asks for"
    return f"is the whole model: it runs its backbone and {gives}"


def _backbone(of: _Subject) -> str:
    roles = [of.facts.role(k.class_name) for k in of.called]
    first = "turns its inputs into vectors" if "embedding" in roles else ""
    through = _through(of, "them" if first else "what it is given")
    ran = [k for k in of.called if k.flops != "0"]
    layers = [at for at, k in enumerate(ran) if of.facts.role(k.class_name) == "layer" or _holds_layers(of, k)]
    norms = [of.facts.role(k.class_name) == "normalisation" for k in ran]
    before = "normalises them" if first and layers and any(norms[: layers[0]]) else ""
    given = ran[layers[-1]].outputs[:1] if layers else ()
    ran = ran[layers[-1] + 1 :] if layers else ran
    behind = [*takewhile(lambda k: of.facts.role(k.class_name) in ("normalisation", "module"), reversed(ran))][::-1]
    last = [_behind_layers(of, k, given) for k in behind]
    *others, end = [*filter(None, (first, before, through, *(last if through else ())))] or [""]
    return f"{', '.join(others)} and {end}" if others else end


def _behind_layers(of: _Subject, kernel: Kernel, given: Sequence[TensorInfo]) -> str:
    """What becomes of what the layers gave, or of the part of it or what operators make of it where a module is handed fewer numbers,
    and which output of the model comes of that."""
    normalises = of.facts.role(kernel.class_name) == "normalisation"
    said = "normalises {}" if normalises else f"hands {{}} to `{short(kernel.class_name)}`"
    sizes = [_product(of, tensor.shape) for tensor in (*kernel.inputs[:1], *given)]
    if len(sizes) < 2 or not 0 < sizes[0] < sizes[1]:
        return said.format("what comes out")
    operators, graph, held = Operators(of.facts.main), of.facts.graphs[0], of.facts.uncut(of.module)
    own = operators.of([whole for part, whole in held if part is kernel])
    read = {number for one in graph.operators if one.id in own for number in one.depends_on}
    makers = (bare(k.operator) for k, whole in held if k.kernel_type == "basic" and operators.of([whole]) & read)
    made = " and ".join(f"`{name}`" for name in dict.fromkeys(makers))
    outputs = [info.name for info, maker, _ in of.facts.returned if maker in own and info.name]
    what = f"what {made} makes of what comes out" if made else "a part of what comes out"
    return said.format(what) + "".join(f" (`{name}`)" for name in outputs[:1])


def _holds_layers(of: _Subject, kernel: Kernel) -> bool:
    """Whether the layers run in a call, which then is no step behind them."""
    call = of.facts.calls.get(kernel.class_name)
    return call is not None and any(of.facts.role(k.class_name) == "layer" for _, _, k in walk(call.kernels or (), ""))


def _through(of: _Subject, what: str = "what it is given") -> str:
    """Through how many layers of which classes it sends what it is given, whether it calls them or what it calls does: in all its calls."""
    kinds = of.facts.call_kinds.get(of.module.class_name, ())
    every = [_layers_in(of, kind.shown.kernels or (), kind.shown.repeat) for kind in kinds]
    every = every or [_layers_in(of, of.facts.main.kernels, "1")]
    names = dict.fromkeys(f"`{short(k.class_name)}`" for layers in every for k, _ in layers)
    key = f"module.{of.module.class_name}.layers"
    lists: dict[str, int] = {}
    for k, count in every[0]:
        place = of.facts.path_of(k).rpartition(".")[0]
        lists[place] = lists.get(place, 0) + count
    if len(lists) > 1:
        told = (
            f"{of.quotes(f'{key}.{place}', one)} {things(one, 'layer')} of `{place}`" for place, one in lists.items()
        )
        return f"runs {_listed(told)} ({', '.join(names)})"
    runs = sorted({sum(count for _, count in layers) for layers in every})
    if not runs[-1]:
        return ""
    most = of.quotes(f"{key}.most" if runs[1:] else key, runs[-1])
    least = of.quotes(f"{key}.least", runs[0]) if runs[1:] else ""
    many = f"{least} to {most}" if least else most
    return f"sends {what} through {many} {things(runs[-1], 'layer')} ({', '.join(names)})"


def _layers_in(of: _Subject, kernels: Sequence[Kernel], repeat: str) -> list[tuple[Kernel, int]]:
    """The layers that run in a call, or in what it calls, and how often in each of its runs."""
    runs = evaluate(repeat, of.values) or 1
    below = (k for _, _, k in walk(kernels, "") if re.search(r"(^|\.)(\*|\d+)$", k.attribute))
    return [(k, evaluate(k.repeat, of.values) // runs) for k in below if of.facts.role(k.class_name) == "layer"]


def _around_layers(of: _Subject) -> str:
    """`, with A before and B behind them`: which other modules its calls run beside their layers, and in how many calls where not in all;
    nothing of a side on which calls differ in more than that."""
    kinds = of.facts.call_kinds.get(of.module.class_name, ())
    sides: dict[str, dict[str, int]] = {"before": {}, "behind": {}}
    for kind in kinds:
        ran = [k for k in kind.shown.kernels or () if k.class_name and not _runs_nothing(k)]
        layers = [at for at, k in enumerate(ran) if of.facts.role(k.class_name) == "layer" or _holds_layers(of, k)]
        for side, others in (("before", ran[: layers[0]]), ("behind", ran[layers[-1] + 1 :])) if layers else ():
            named = joined(dict.fromkeys(f"`{short(k.class_name)}`" for k in others))
            sides[side][named] = sides[side].get(named, 0) + kind.count
    total, said, key = sum(kind.count for kind in kinds), list[str](), f"module.{of.module.class_name}"
    for side, held in sides.items():
        counts = [(name, count) for name, count in held.items() if name]
        for name, count in counts if len(counts) == 1 else ():
            among = f" in {of.quotes(f'{key}.{side}', count)} of {of.quotes(f'{key}.calls', total)} calls"
            said.append(f"{name} {side} them{among * (count < total)}")
    return f", with {joined(said)}" if said else ""


def _projection(of: _Subject) -> str:
    """That it multiplies, and whether it adds a bias, by the weights that its operators read: in how many calls where not in all."""
    operators, counts = Operators(of.facts.main), {True: 0, False: 0}
    for call in (call for kind in of.facts.call_kinds.get(of.module.class_name, ()) for call in kind.calls):
        added = any(bare(k.operator).endswith("addmm") for _, _, k in walk((call,), ""))
        biased = added or any("bias" in name for name in _own_weights(of, operators.of([call])))
        counts[biased] += evaluate(call.repeat, of.values)
    total, key = sum(counts.values()), f"module.{of.module.class_name}"
    among = f" in {of.quotes(f'{key}.biased', counts[True])} of {of.quotes(f'{key}.calls', total)} calls"
    bias = f" and adds a bias{among * (counts[True] < total)}" if counts[True] else ", without a bias" * bool(total)
    return f"multiplies each vector by a matrix of weights{bias}"


def _activation(of: _Subject) -> str:
    run = list(dict.fromkeys(bare(k.operator) for k in of.module.kernels if k.kernel_type == "basic"))
    if len(run) == 1 and (does := _BENDS.get(run[0].rstrip("_"))):
        return does
    return f"changes each number by itself, by {_listed(f'`{name}`' for name in run)}" if run else ""


def _recurrent(_: _Subject) -> str:
    return "mixes tokens through a state of fixed size that each token updates, so that what it keeps does not grow with the context"


def _module(of: _Subject) -> str:
    """What a module without a role does, step by step; nothing where all that is known is which others it calls, as its flow shows."""
    if through := _through(of):
        return f"{through}{_around_layers(of)}"
    steps = [step for k in of.module.kernels if (step := _step(of, k))]
    told = [step for at, step in enumerate(steps) if not at or step != steps[at - 1]]
    if not 0 < len(told) <= _NAMED or all(step.startswith(("runs", "calls")) for step in told):
        own = dict.fromkeys(bare(k.operator) for k in of.module.kernels if k.kernel_type == "basic")
        return f"runs {_listed(f'`{name}`' for name in own)}" if own and not of.called else ""
    return ", then ".join(told)


def _step(of: _Subject, kernel: Kernel) -> str:
    """What one operator, or one call, does to what it is given; empty where it runs nothing (dropout)."""
    name = short(kernel.class_name)
    if kernel.kernel_type == "basic":
        operator = bare(kernel.operator)
        if operator == "convolution":
            return "slides filters that are learned over what it is given"
        if operator in _BENDS:
            return f"applies {operator} to each number"
        call = of.facts.calls.get(of.module.class_name)
        node = node_of(of.facts, of.module.class_name, call)
        if operator == "mul" and node is not None and len(node.weights) == 1:
            return f"scales what it is given by weights of its own (`{next(iter(node.weights))}`)"
        second = operator == "add" and len(kernel.inputs) > 1 and call is not None and len(call.inputs) > 1
        return "adds what else it is given" if second else f"runs `{operator}`"
    if _runs_nothing(kernel):
        return ""
    role = of.facts.role(kernel.class_name)
    if role == "projection" and kernel.inputs and kernel.outputs:
        point, key = of.facts.point(of.module), f"module.{of.module.class_name}.{kernel.attribute}"
        sizes = [size_at(t.shape[-1], point) if t.shape else "" for t in (kernel.inputs[0], kernel.outputs[0])]
        taken, given = (
            "" if isinstance(s, str) else of.quotes(f"{key}.{end}", s) for end, s in zip(_ENDS, sizes, strict=True)
        )
        if taken and given:
            call = of.facts.calls.get(of.module.class_name)
            more = call is not None and any(len(t.shape) > len(kernel.inputs[0].shape) for t in call.inputs)
            return f"projects {'a vector of each sequence' if more else 'each vector'} from {taken} to {given} values"
    return (
        f"applies `{name}`" if role == "activation" else "normalises" if role == "normalisation" else f"calls `{name}`"
    )


def _listed(names: Iterable[str]) -> str:
    """The first few of them."""
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{', '.join(found[:_NAMED])}{more}"


_DOES: Mapping[str, Callable[[_Subject], str]] = {
    "attention": _attention, "normalisation": _normalisation, "embedding": _embedding, "position embedding": _position,
    "feed-forward network": _network, "mixture of experts": _experts, "layer": _layer, "model with head": _head,
    "backbone": _backbone, "projection": _projection, "activation": _activation, "state-space layer": _recurrent,
}  # fmt: skip
