"""The pass as an engine runs it, projected from the operator graph of the eager one.

Order: the view, its rules one by one, then what they share. Every rule says which operators it changes and what they
move then; what no rule changes stays as eager execution moves it. FLOPs change where latents are absorbed, where weights were
converted before, and where masks are not made, nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from opscope_schemas.analysis import CallSite, MemoryAccess, ServingRule, ServingView
from opscope_schemas.formula import Formula, Rational, evaluate, whole_bytes

from opscope_tools.trace.document import CallTree, Sum, assignment, worked_out_once
from opscope_tools.trace.layer_ends import meetings
from opscope_tools.trace.operators import ATTENTION, PAIRS, SOFTMAX
from opscope_tools.trace.protocol import CallRecord, OpRecord, ViewRecord
from opscope_tools.trace.routing import expert_layers

_ONE, _NOTHING = Formula.const(1), Formula.const(0)
_A, _KV = Formula.var("a_bytes"), Formula.var("kv_bytes")
#: operators that one kernel can run in a row: each result needs its own row of the inputs
_LIGHT = frozenset(
    f"aten.{name}"
    for name in (
        "add sub rsub mul div neg pow rsqrt sqrt reciprocal mean sum exp log cos sin abs clamp clamp_min where maximum minimum "
        "silu gelu relu sigmoid tanh hardtanh hardswish softplus leaky_relu elu mish _to_copy clone cat stack arange le lt ge gt eq ne "
        "bitwise_and logical_and logical_not bitwise_not _softmax native_layer_norm _fused_rms_norm rms_norm masked_fill"
    ).split()
)
#: what may lie between scores and their product with values: also what is written in place, and the largest score of a row
_ON_SCORES = _LIGHT | {"aten.max", "aten.amax", "aten._safe_softmax", "aten.native_dropout"}
_ON_SCORES |= {f"aten.{n}_" for n in "add sub mul div masked_fill clamp".split()}
#: how scores are masked
_MASKS = frozenset({"aten.add", "aten.where", "aten.masked_fill"})
#: norms that are one operator, and what else makes one number of a row
_NORMS = frozenset({"aten.native_layer_norm", "aten._fused_rms_norm", "aten.rms_norm"})
_REDUCE = _NORMS | {"aten.mean", "aten.sum"}
#: what only repeats, turns or casts its one input, and beside that what scales it
_COPIES = frozenset({"aten.clone", "aten._to_copy", "aten.repeat"})
_SCALED = _COPIES | {"aten.mul", "aten.div"}
_ACTIVATIONS = frozenset(
    f"aten.{n}" for n in "silu gelu relu sigmoid tanh hardtanh hardswish softplus leaky_relu elu mish".split()
)
_SAYS = {
    "paged cache": "The cache lies in pages: appending writes the new keys and values and copies none of the old; "
    "kernels leave their states in it.",
    "flash attention": "Attention reads keys and values as the cache holds them, fewer heads included, keeps no scores, makes "
    "masks of positions itself, and writes in the layout that the next product reads; so does a product of queries with keys, "
    "a softmax, and the product with values.",
    "no masks": "Attention knows which positions it sees, so that masks of positions are neither made nor kept.",
    "absorbed latents": "A decode step does not expand cached latents: queries are projected into them, attention reads them "
    "once for all heads, and its result is projected out.",
    "hub kernel": "What transformers runs as a kernel from the hub, and as a reference in Python where that is not installed, is one "
    "kernel: it reads its inputs, keeps what lies between, and writes what others read.",
    "fused norm": "A norm, its casts and the residual add before it are one kernel; two norms are two. The add that ends a layer runs in "
    "the norm that begins the next one, and stands in that of its own kind of layer, which runs as often. So the first layer's norm, "
    "which has no add before it, has one here, and the norm behind the last layer, which has one, has none; the totals are the same. "
    "Where no norm follows the last layer, one add too many is in a norm.",
    "fused activation": "An activation and the product with its gate are one kernel.",
    "fused rope": "Rotary embedding is one kernel for queries, one for keys, and one for its angles.",
    "fused elementwise": "Element-wise operators in a row, casts included, are one kernel.",
    "converted weights": "What is computed of weights alone, casts included, is computed once, when they are loaded; what reads it "
    "reads the result.",
}  # fmt: skip
LIMITS = (
    "A residual add that ends a layer stays by itself where a layer that reads it does not begin with its norm, and where its own layer has "
    "no others of its kind; sorting of routed tokens stays as it runs eagerly.",
    "Products that read the same input (q, k and v; gate and up) stay apart: an engine that joins them reads it once.",
)
_MOST_PLACES = 4
#: where transformers chooses between a kernel from the hub and its reference in Python
_HUB = "transformers/integrations/hub_kernels.py"
#: `home` of what runs in a loop of a call: less this, the call's index
_LOOP = -2


@dataclass(frozen=True)
class EngineKernel:
    """Operators that run as one kernel, the one that gives its result first; what it costs once, and how often it runs."""

    ops: tuple[OpRecord, ...]
    cost: Sum
    repeat: Formula
    #: of attention the shapes of queries (sequences, heads, new, width), keys and values
    attention: tuple[tuple[str, ...], ...] = ()
    #: that a kernel from the hub stands for; "": none does
    function: str = ""
    #: under which its operators are one kernel; "": it is one operator, or holds others in its own way
    rule: str = ""
    #: of its operators those that end the layer before the one that it begins, the one that gives their result first
    before: tuple[OpRecord, ...] = ()

    @property
    def own(self) -> tuple[OpRecord, ...]:
        """Its operators without those."""
        others = {op.order for op in self.before}
        return tuple(op for op in self.ops if op.order not in others)


def serving(tree: CallTree, call: CallRecord, values: Mapping[str, Rational] | None) -> ServingView:
    """One call as an engine runs it."""
    graph = _as_served(tree, call)
    limits = list(LIMITS)
    if not graph.known:
        limits.append(
            "Sizes of this trace are fitted, and operators read other tensors at other sizes: which can be fused is not known, so figures are eager's."
        )
    if left := graph.materialised():
        limits.append(
            f"Scores at {', '.join(left[:_MOST_PLACES])} count as materialised: a softmax between two products that was not "
            "recognised as attention."
        )
    if graph.trace.phase == "decode" and (left := graph.expanded()):
        limits.append(
            f"Cached latents are expanded anew at {', '.join(left)}: in what form they could be absorbed was not recognised."
        )
    total = sum((graph.now[o].times(graph.repeat[o]) for o in graph.now), Sum())
    at = None
    if values is not None:
        at = {"flops": evaluate(str(total.flops), values), "matmul_flops": evaluate(str(total.matmul), values),
              "memory_read": whole_bytes(str(total.read), values), "memory_write": whole_bytes(str(total.write), values)}  # fmt: skip
    return ServingView(
        flops=str(total.flops), matmul_flops=str(total.matmul), memory_access=total.access(), rules=tuple(graph.rules()),
        limits=tuple(limits), evaluated=at,
    )  # fmt: skip


def _as_served(tree: CallTree, call: CallRecord) -> _Graph:
    """The graph under every rule; as it is where a trace does not say what its operators read."""
    graph = _Graph(tree, call)
    rules = (_paged, _absorbed, _attention, _eager_attention, _masks, _hub_kernels, _fused, _across_layers, _converted)
    for rule in rules if graph.known else ():
        rule(graph)
    return graph


def kernels(tree: CallTree, call: CallRecord, *, eager: bool = False) -> tuple[EngineKernel, ...]:
    """The kernels of one call in their order, as an engine runs it or as it runs eagerly; views are none."""
    graph = _Graph(tree, call) if eager else _as_served(tree, call)
    parts = graph.parts()
    return tuple(
        EngineKernel(
            (op, *(graph.ops[part] for part in parts.get(order, ()))),
            sum((graph.now[part] for part in parts.get(order, ())), graph.now[order]),
            graph.repeat[order],
            graph.attention.get(order, ()),
            graph.functions.get(order, ""),
            graph.fused_under.get(order, ""),
            tuple(graph.ops[part] for part in graph.before.get(order, ())),
        )
        for order, op in sorted(graph.ops.items())
        if order not in graph.part_of and (graph.now[order] != Sum() or not op.counted)
    )


@worked_out_once
def unmade(tree: CallTree, call: CallRecord) -> frozenset[int]:
    """The operators, by their order, that an engine does not run: they make masks that its kernels do not read."""
    return frozenset(_as_served(tree, call).unmade)


@worked_out_once
def resized(tree: CallTree, call: CallRecord) -> dict[int, Formula]:
    """Tensor -> its bytes where an engine makes another in its place."""
    return _as_served(tree, call).resized


@worked_out_once
def reexpanded(tree: CallTree, call: CallRecord) -> tuple[str, ...]:
    """A note where an eager decode step projects all of what the cache holds again."""
    places = _Graph(tree, call).expanded() if tree.trace.phase == "decode" else []
    said = (
        "anew in every step, as the eager forward does; as engines run it (view='serving', and all times) the projection is absorbed "
        "into queries and results, where it is recognised."
    )
    return (f"The cached latents of all positions are expanded at {', '.join(places)} {said}",) if places else ()


# ---------------------------------------------------------------- the graph


@dataclass
class _Change:
    """What a rule did: places, and per operator what it cost before and after."""

    places: dict[str, None] = field(default_factory=dict)
    before: Sum = field(default_factory=Sum)
    after: Sum = field(default_factory=Sum)


class _Graph:
    """The operators of a call by their order, what each costs now, and who makes and reads which tensor."""

    def __init__(self, tree: CallTree, call: CallRecord) -> None:
        self.tree, self.call, self.trace = tree, call, tree.trace
        #: the sizes of the trace, those that follow from others included
        self.point = assignment(tree.trace.variables, tree.trace.point)
        self.ops: dict[int, OpRecord] = {}
        self.repeat: dict[int, Formula] = {}
        #: the innermost repeated call around an operator: what is in no common one is not one kernel
        self.home: dict[int, int] = {}
        self._place(call, _ONE, -1)
        self.now = {o: _cost(op) for o, op in self.ops.items()}
        self.gone: set[int] = set()
        #: operator -> the one in whose kernel it runs
        self.part_of: dict[int, int] = {}
        #: operator -> the function that its kernel from the hub stands for
        self.functions: dict[int, str] = {}
        #: operator that gives the result of a fused kernel -> the rule that fused it
        self.fused_under: dict[int, str] = {}
        #: operator that gives the result of a norm's kernel -> those in it that end the layer before, the one that gives their result first
        self.before: dict[int, tuple[int, ...]] = {}
        #: by the operator that gives its result, the shapes of queries, keys and values
        self.attention = {
            o: tuple(i.shape for i in op.inputs[:3]) for o, op in self.ops.items() if op.operator == ATTENTION
        }
        #: call -> the layer of experts around it, one kernel of its own
        self.experts = {inner: layer for layer, below in expert_layers(tree, call).items() for inner in below}
        self.kinds = {t.index: t.kind for t in self.trace.tensors}
        self.sizes = {t.index: Formula.parse(t.size) for t in self.trace.tensors if t.size}
        #: view -> others that hold all of it
        self.within = {view.view: view.within for op in self.trace.ops for view in op.views if view.within}
        self.last_dimension = {t.index: t.info.shape[-1] for t in self.trace.tensors if t.info.shape}
        self.makers: dict[int, list[OpRecord]] = {}
        self.readers: dict[int, list[OpRecord]] = {}
        stands = {t.index: t.alias_of for t in self.trace.tensors if t.alias_of is not None}
        for op in self.trace.ops:
            for index in op.writes:
                self.makers.setdefault(index, []).append(op)
            for index in op.reads:
                self.readers.setdefault(index, []).append(op)
                if index in stands:
                    self.readers.setdefault(stands[index], []).append(op)
        self.handed_on = {c.made for c in self.trace.carried}
        #: of weights in a wider type what they take as they are kept: a kernel of several operators widens what it reads
        self.narrow = {
            op.writes[0]: Formula.parse(op.read)
            for op in self.ops.values()
            if op.operator == "aten._to_copy" and op.inputs and not op.reads and len(op.writes) == 1
            and Formula.parse(op.write).evaluate(self.point) > Formula.parse(op.read).evaluate(self.point)
        }  # fmt: skip
        #: (operator, tensor) of masks that a kernel of attention does not read
        self.unread: set[tuple[int, int]] = set()
        #: operators that do not run at all
        self.unmade: set[int] = set()
        #: bytes of what is made in a tensor's place
        self.resized: dict[int, Formula] = {}
        self.known = any(op.views for op in self.ops.values()) or not any(op.reads for op in self.ops.values())
        self._changes: dict[str, _Change] = {}

    def _place(self, call: CallRecord, repeat: Formula, home: int) -> None:
        for child in self.tree.children(call):
            if isinstance(child, OpRecord):
                self.ops[child.order], self.repeat[child.order] = child, repeat * Formula.parse(child.repeat)
                self.home[child.order] = home if child.repeat == "1" else _LOOP - call.index
            else:
                inner = home if child.repeat == "1" else child.index
                self._place(child, repeat * Formula.parse(child.repeat), inner)

    def change(self, rule: str, op: OpRecord, to: Sum) -> None:
        """The operator costs `to` under a rule."""
        order = op.order
        if to == self.now[order]:
            return
        found = self._changes.setdefault(rule, _Change())
        found.places[f"{op.site.file}:{op.site.line}"] = None
        found.before = found.before + self.now[order].times(self.repeat[order])
        found.after = found.after + to.times(self.repeat[order])
        self.now[order] = to

    def drop(self, rule: str, op: OpRecord, holder: OpRecord) -> None:
        """The operator does not run under a rule, or as a part of that other's kernel; its FLOPs stay."""
        self.gone.add(op.order)
        self.part_of[op.order] = holder.order
        self.change(
            rule,
            op,
            Sum(flops=self.now[op.order].flops, matmul=self.now[op.order].matmul, causal=self.now[op.order].causal),
        )

    def parts(self) -> dict[int, list[int]]:
        """Operator that gives a kernel's result -> the others that run in it."""
        found: dict[int, list[int]] = {}
        for order, holder in self.part_of.items():
            while holder in self.part_of:  # what gives the result of a part may be a part of another
                holder = self.part_of[holder]
            found.setdefault(holder, []).append(order)
        return found

    def rules(self) -> Iterator[ServingRule]:
        for name, change in self._changes.items():
            saved = MemoryAccess(
                read=str(change.before.read - change.after.read), write=str(change.before.write - change.after.write)
            )
            yield ServingRule(
                rule=name, says=_SAYS[name], places=tuple(change.places)[:_MOST_PLACES], saved=saved,
                flops_added=str(change.after.flops - change.before.flops),
            )  # fmt: skip

    def cached(self, view: ViewRecord) -> bool:
        return self.kinds[view.tensor] == "cache"

    def materialised(self) -> list[str]:
        """Where scores go through a softmax to another product, each a kernel of its own."""
        left = (op for op in self.ops.values() if op.order not in self.attention and _scores_of(self, op) is not None)
        return list(dict.fromkeys(f"{op.site.file}:{op.site.line}" for op in left))

    def expanded(self) -> list[str]:
        """Where products with weights read what the cache holds, and no rule has changed that."""
        places = (
            f"{self.trace.calls[op.call].path.rpartition('.')[2]} ({op.site.file}:{op.site.line})"
            for op in self.ops.values()
            if _projects(op) and self.cached(op.views[0]) and self.now[op.order] == _cost(op)
        )
        return list(dict.fromkeys(places))


def _cost(op: OpRecord) -> Sum:
    parse = Formula.parse
    return Sum(parse(op.flops), parse(op.matmul_flops), parse(op.read), parse(op.write), parse(op.causal_saving))


def _projects(op: OpRecord) -> bool:
    """Whether the operator is a product of one activation with weights."""
    return op.matmul_flops != "0" and op.operator != ATTENTION and len(op.views) == 1


def _moving(cost: Sum, read: Formula, write: Formula) -> Sum:
    return Sum(cost.flops, cost.matmul, read, write, cost.causal)


# ---------------------------------------------------------------- rules


def _paged(graph: _Graph) -> None:
    """`cat` of the cache and what is new writes all of it: an append reads and writes what is new. A state that a kernel makes lies there."""
    for op in graph.ops.values():
        if op.operator == "aten.copy_" and len(op.views) == 2 and graph.cached(op.views[0]):
            made = graph.makers.get(op.views[1].tensor, [])
            kernel = len(made) == 1 and (not made[0].operator.startswith("aten.") or _replaced(made[0]))
            if kernel and made[0].order in graph.ops:
                graph.drop("paged cache", op, made[0])
            continue
        if op.operator != "aten.cat" or "{kv_bytes}" not in op.write or not any(map(graph.cached, op.views)):
            continue
        new = sum((Formula.parse(v.size) for v in op.views if not graph.cached(v)), Formula.const(0))
        graph.change("paged cache", op, _moving(graph.now[op.order], new, new.substitute({"a_bytes": _KV})))


def _attention(graph: _Graph) -> None:
    """Keys and values are not copied for attention, nor is its result to be read in another order."""
    for op in graph.ops.values():
        if op.operator != ATTENTION:
            continue
        cost = graph.now[op.order]
        read = cost.read
        for view in op.views[1:3]:
            made = graph.makers.get(view.tensor, [])
            copied = made[0] if len(made) == 1 and made[0].order in graph.ops else None
            if copied is None or copied.operator != "aten.clone" or not all(map(graph.cached, copied.views)):
                continue
            read = read - Formula.parse(view.size) + graph.now[copied.order].read
            graph.drop("flash attention", copied, op)
        for view in op.views[3:]:
            if _of_positions(graph, view.tensor):
                read = read - Formula.parse(view.size)
                graph.unread.add((op.order, view.tensor))
        graph.change("flash attention", op, _moving(cost, read, cost.write))
        _as_next_read(graph, op)


def _as_next_read(graph: _Graph, op: OpRecord) -> None:
    """The result of attention is not turned after it is written, and written as what it is cast to."""
    pending = list(op.writes)
    while pending:
        readers = graph.readers.get(index := pending.pop(), [])
        for reader in (one for one in readers if one.order in graph.ops):
            if reader.operator == "aten.clone":
                graph.drop("flash attention", reader, op)
            elif reader.operator == "aten._to_copy" and len(readers) == 1 and index not in graph.handed_on:
                now, write = graph.now[op.order], graph.now[reader.order].write
                graph.drop("flash attention", reader, op)
                graph.change("flash attention", op, _moving(now, now.read, write))
                pending.extend(reader.writes)


def _eager_attention(graph: _Graph) -> None:
    """Queries by keys, light operators with a softmax among them, the result by values: one kernel, if nothing else reads scores."""
    for op in list(graph.ops.values()):
        found = _scores_of(graph, op)
        if found is not None and _alone(graph, op, *found):
            _flash(graph, op, *found)


def _scores_of(graph: _Graph, op: OpRecord) -> tuple[OpRecord, list[OpRecord]] | None:
    """Of a product of two activations whose first comes from another such product through a softmax: that one, and what lies between."""
    if not _pairs(graph, op):
        return None
    products: dict[int, OpRecord] = {}
    light: dict[int, OpRecord] = {}
    pending = [op.views[-2].tensor]
    while pending:
        for maker in graph.makers.get(pending.pop(), []):
            if _pairs(graph, maker):
                products[maker.order] = maker
            elif maker.operator in _ON_SCORES and maker.order not in light and maker.order < op.order:
                light[maker.order] = maker
                pending.extend(maker.reads)
    scores = next(iter(products.values()), None)
    if scores is None or len(products) > 1:
        return None
    inner, between = set(scores.writes), []
    for _, one in sorted(light.items()):
        if inner.intersection(one.reads):
            inner.update(one.writes)
            between.append(one)
    between += [one for index in inner for one in graph.readers.get(index, []) if _unread(graph, one)]
    return (scores, between) if any(one.operator in SOFTMAX for one in between) else None


def _unread(graph: _Graph, op: OpRecord) -> bool:
    """Whether nothing reads what the operator makes, as the copy of the scores that sdpa's own definition returns beside its result."""
    return op.operator in _COPIES and not any(graph.readers.get(i) or i in graph.handed_on for i in op.writes)


def _pairs(graph: _Graph, op: OpRecord) -> bool:
    """Whether it is a product of two activations, copies of weights not among them."""
    if op.operator not in PAIRS or not op.counted or len(op.views) < 2:
        return False
    makers = (graph.makers.get(view.tensor, []) for view in op.views[-2:])
    return all(not made or any(maker.reads for maker in made) for made in makers)


def _alone(graph: _Graph, op: OpRecord, scores: OpRecord, between: Sequence[OpRecord]) -> bool:
    """Whether scores run in one call with both products, are as many after the softmax as before, and are read by nothing else."""
    parts = [scores, *between, op]
    orders = {one.order for one in parts}
    if not orders <= graph.ops.keys() or len({(graph.home[o], graph.repeat[o]) for o in orders}) > 1:
        return False
    if any(not one.counted or {v.tensor for v in one.views} != set(one.reads) for one in parts):
        return False
    made, taken = (
        [Formula.parse(n).evaluate(graph.point) for n in shape[-2:]]
        for shape in (scores.outputs[0].shape, op.inputs[-2].shape)
    )
    inside = {index for one in (scores, *between) for index in one.writes}
    return made == taken and all(
        graph.kinds[index] == "activation"
        and index not in graph.handed_on
        and all(reader.order in orders for reader in graph.readers.get(index, []))
        for index in inside
    )


def _flash(graph: _Graph, op: OpRecord, scores: OpRecord, between: Sequence[OpRecord]) -> None:
    """The kernel reads queries, keys and values, weights (of sinks) and biases that are no masks, and writes the result."""
    rule, inside = "flash attention", {index for one in (scores, *between) for index in one.writes}
    operands = [*scores.views[-2:], op.views[-1]]
    read = {view.view: _stored(graph, view, op, scores) for view in operands}
    rest = Formula.const(0)
    for one in (scores, *between):
        rest = rest + graph.now[one.order].read - sum((Formula.parse(v.size) for v in one.views), Formula.const(0))
        for view in one.views:
            if view in operands or view.tensor in inside:
                continue
            if _of_positions(graph, view.tensor):
                graph.unread.add((one.order, view.tensor))
            else:
                read[view.view] = Formula.parse(view.size)
        graph.drop(rule, one, op)
    softmax = next(one for one in between if one.operator in SOFTMAX).inputs[0].shape
    sequences, heads = softmax[:1] if len(softmax) > 3 else ("1",), softmax[1:-2] if len(softmax) > 3 else softmax[:-2]
    rows = (*sequences, " * ".join(f"({n})" for n in heads) or "1")
    (new, width), context = scores.inputs[-2].shape[-2:], scores.outputs[0].shape[-1]
    now, masked = graph.now[op.order], any(one.operator.removesuffix("_") in _MASKS for one in between)
    if masked and graph.trace.calls[op.call].causal:  # half of the pairs of new tokens, as the fused operator has it
        count = Formula.parse(new)
        pairs = Formula.parse(" * ".join(f"({n})" for n in rows)) * count * (count - 1)
        now = replace(now, causal=pairs * (Formula.parse(width) + Formula.parse(op.outputs[0].shape[-1])))
    graph.change(rule, op, _moving(now, rest + sum(read.values(), Formula.const(0)), now.write))
    _as_next_read(graph, op)
    graph.attention[op.order] = (
        (*rows, new, width),
        (*rows, context, width),
        (*rows, context, op.outputs[0].shape[-1]),
    )


def _stored(graph: _Graph, view: ViewRecord, op: OpRecord, scores: OpRecord) -> Formula:
    """Bytes of queries, keys or values as they were before they were repeated, turned, scaled or widened for a product."""
    point = graph.point
    size, tensor, readers = Formula.parse(view.size), view.tensor, {op.order, scores.order}
    while True:
        made = graph.makers.get(tensor, [])
        copied = made[0] if len(made) == 1 else None
        if (
            copied is None
            or copied.operator not in _SCALED
            or (len(copied.views), len(copied.inputs)) != (1, 1)
            or graph.kinds[tensor] != "activation"
            or copied.order not in graph.ops
            or any(reader.order not in readers for reader in graph.readers.get(tensor, []))
            or Formula.parse(copied.views[0].size).evaluate(point) > size.evaluate(point)
        ):
            return size
        size, tensor, readers = Formula.parse(copied.views[0].size), copied.views[0].tensor, readers | {copied.order}
        graph.drop("flash attention", copied, op)


def _of_positions(graph: _Graph, index: int) -> bool:
    """Whether a tensor is made of positions, lengths and constants alone: no weights, nothing computed from them."""
    seen, pending = set[int](), [index]
    while pending:
        made = graph.makers.get(at := pending.pop(), [])
        if not made and at == index and graph.kinds[at] != "constant":
            return False
        for maker in made:
            if "w_bytes" in maker.read:
                return False
            if maker.order not in seen:
                seen.add(maker.order)
                pending.extend(maker.reads)
    return True


def _absorbed(graph: _Graph) -> None:
    """Decoding from latents: with W the projection (rank -> heads * (nope + v)), scores are (q W) latents, results (p latents) W.

    A projection that reads the cache, gives the values of attention, and makes with the cache's rotary part its keys.
    """
    if graph.trace.phase != "decode":
        return
    for op in list(graph.ops.values()):
        if op.operator != ATTENTION or len(op.views) < 3 or len(op.inputs) < 3:
            continue
        keys, values = op.views[1].tensor, op.views[2].tensor
        made = graph.makers.get(values, [])
        parts = graph.makers.get(keys, [])
        if (
            len(made) != 1
            or made[0].order not in graph.ops
            or not _projects(made[0])
            or not graph.cached(made[0].views[0])
        ):
            continue
        beside = {v.tensor for part in parts for v in part.views} - {keys, values}
        if len(beside) == 1 and all(graph.kinds[index] == "cache" for index in beside):
            _absorb(graph, op, made[0], parts, beside.pop())


def _absorb(graph: _Graph, op: OpRecord, projection: OpRecord, parts: Sequence[OpRecord], rotary: int) -> None:
    parse = Formula.parse
    (batch, heads, new, width), values = map(parse, op.inputs[0].shape), op.inputs[2].shape
    held, out = parse(values[2]), parse(values[3])
    rank, turned = parse(projection.inputs[0].shape[-1]), parse(graph.last_dimension[rotary])
    plain = width - turned
    scores, rows = batch * heads * new * held, batch * new * heads
    project, attend = 2 * batch * held * heads * rank * (plain + out), 2 * scores * (width + out)
    point = graph.point
    now, into = graph.now[op.order], graph.now[projection.order]
    if (project.evaluate(point), attend.evaluate(point)) != (into.matmul.evaluate(point), now.matmul.evaluate(point)):
        return  # another arrangement than the one that is known here
    rule = "absorbed latents"
    twice = 2 * rows * rank * (plain + out)
    latents = parse(projection.views[0].size)
    weights = into.read - latents
    graph.change(rule, projection, Sum(
        into.flops - into.matmul + twice, twice, weights + rows * (plain + rank) * _A, rows * (rank + out) * _A
    ))  # fmt: skip
    products = 2 * scores * (2 * rank + turned)
    others = now.read - sum((parse(v.size) for v in op.views[:3]), Formula.const(0))
    cached = latents + graph.sizes[rotary]
    graph.change(rule, op, Sum(
        now.flops - now.matmul + products, products, rows * (rank + turned) * _A + cached + others, rows * rank * _A, now.causal
    ))  # fmt: skip
    for part in parts:
        graph.drop(rule, part, op)
    # in place of all positions' keys and values: the queries and the results, as latents
    graph.resized.update(dict.fromkeys(projection.writes, 2 * rows * rank * _A))


def _masks(graph: _Graph) -> None:
    """What is made of positions and only says what attention sees is not made."""
    for order, op in sorted(graph.ops.items(), reverse=True):
        if op.writes and order not in graph.gone and all(_unasked(graph, index) for index in op.writes):
            graph.gone.add(order)
            graph.unmade.add(order)
            graph.change("no masks", op, Sum())


def _unasked(graph: _Graph, index: int) -> bool:
    """Whether a tensor of positions has no reader that runs and reads it: none at all, as what a mask's maker is handed unused."""
    readers = graph.readers.get(index, [])
    left = (r for r in readers if r.order not in graph.unmade and (r.order, index) not in graph.unread)
    plain = graph.kinds[index] == "activation" and index not in graph.handed_on
    return plain and not any(left) and _of_positions(graph, index)


def _hub_kernels(graph: _Graph) -> None:
    """Each call of a function that transformers replaces by a kernel from the hub is one kernel, loops over tokens included."""
    calls: dict[tuple[int, int, tuple[CallSite, ...], str], list[OpRecord]] = {}
    for order, op in graph.ops.items():
        if order not in graph.gone and (replaced := _replaced(op)):
            calls.setdefault((op.call, op.site.line, *replaced), []).append(op)
    for (*_, function), every in calls.items():
        for group in _one_call_each(graph, every):
            if len(group) > 1:
                _fuse(graph, group, "hub kernel")
                graph.functions[group[-1].order] = function


def _one_call_each(graph: _Graph, every: list[OpRecord]) -> Iterable[list[OpRecord]]:
    """A loop is the function's own where something runs once after it; else the function is what a loop calls, its first step by itself."""
    if every[-1].repeat == "1":
        return (every,)
    steps: dict[int, list[OpRecord]] = {}
    for op in every:
        steps.setdefault(graph.home[op.order], []).append(op)
    return steps.values()


def _replaced(op: OpRecord) -> tuple[tuple[CallSite, ...], str] | None:
    """The way to the function in which the operator runs and which a kernel from the hub replaces, and its name."""
    via = op.site.via
    at = next((n for n, frame in enumerate(via[:-1]) if frame.file.endswith(_HUB)), None)
    return None if at is None else (via[: at + 1], via[at + 1].function)


def _fused(graph: _Graph) -> None:
    """Light operators that hand results to one another, with no product or attention between them, are one kernel."""
    for group in (each for connected in _groups(graph) for each in _by_norms(graph, connected)):
        if len(group) > 1:
            _fuse(graph, group, _rule_of(graph, group))


def _fuse(graph: _Graph, group: Sequence[OpRecord], rule: str) -> None:
    """One kernel of all, the steps of its own loops included: of those it reads weights once, and writes what is there at their end."""
    inside = {op.order for op in group}
    last = _place(graph, group, inside)
    others = [op for op in group if op is not last]
    made = {index for op in group for index in op.writes}
    looped = {op.order for op in group if op.repeat != last.repeat}
    outer: dict[int, dict[int, Formula]] = {}
    rest = write = Formula.const(0)
    for op in group:
        own, now = {(v.tensor, v.view): Formula.parse(v.size) for v in op.views}, graph.now[op.order]
        ahead = {key: size for key, size in own.items() if key[0] not in made}
        steps = Formula.parse(op.repeat) if op.order in looped else _ONE
        read = now.read - sum((own[key] for key in own.keys() - ahead), Formula.const(0))
        if read.evaluate(graph.point) > 0:  # one that looks at the shape of a tensor alone reads none of it
            rest = rest + read - sum(ahead.values(), Formula.const(0))
            for (tensor, view), size in ahead.items():
                narrow = graph.narrow.get(tensor, size) if size == graph.sizes.get(tensor) else size
                outer.setdefault(tensor, {})[view] = narrow * steps
        if _leaves(graph, op, inside):
            write = write + _left(graph, op, inside, op.order in looped)
        if op.order in looped:
            graph.now[op.order], graph.repeat[op.order] = now.times(steps), graph.repeat[last.order]
    read = rest + sum((_once(graph, index, views) for index, views in outer.items()), Formula.const(0))
    for op in others:
        graph.drop(rule, op, last)
    graph.gone.add(last.order)
    graph.fused_under[last.order] = rule
    graph.change(rule, last, _moving(graph.now[last.order], read, write))


def _place(graph: _Graph, group: Sequence[OpRecord], inside: set[int]) -> OpRecord:
    """The operator in whose place all of them run: the last, or the last before anybody outside reads what one makes."""
    if len({op.repeat for op in group}) > 1:
        return group[-1]
    readers = (r.order for op in group for index in op.writes for r in graph.readers.get(index, ()))
    first = min((order for order in readers if order not in inside), default=group[-1].order + 1)
    makers = (m.order for op in group for index in op.reads for m in graph.makers.get(index, ()))
    ready = max((order for order in makers if order not in inside and order < group[-1].order), default=0)
    return max((op for op in group if ready < op.order < first), key=lambda op: op.order, default=group[-1])


def _across_layers(graph: _Graph) -> None:
    """The add that ends a layer runs in the kernel of the norm that begins the next one."""
    parts, settled = graph.parts(), _of_weights(graph)
    every = {
        o: [op, *(graph.ops[part] for part in parts.get(o, ()))]
        for o, op in graph.ops.items()
        if o not in graph.part_of
    }
    begins = {o: read for o, ops in every.items() if (read := _begun_with(graph, ops, settled)) is not None}
    ends = {made: o for o, ops in every.items() if (made := _ended_with(graph, ops)) is not None}
    sums = {kernel: made for made, kernel in ends.items()}
    for add, norm in meetings(graph.tree, graph.call, graph.home, graph.makers, graph.readers, begins, ends):
        views = {v.view: Formula.parse(v.size) for op in every[norm] for v in op.views if v.tensor == begins[norm]}
        whole = _once(graph, begins[norm], views)
        if whole == graph.sizes.get(sums[add]):
            given, now = graph.now[add], graph.now[norm]
            graph.drop("fused norm", graph.ops[add], graph.ops[norm])
            graph.change(
                "fused norm", graph.ops[norm], _moving(now, now.read - whole + given.read, now.write + given.write)
            )
            graph.fused_under[norm] = "fused norm"
            graph.before[norm] = tuple(op.order for op in every[add])


def _begun_with(graph: _Graph, ops: Sequence[OpRecord], settled: Collection[int]) -> int | None:
    """The one tensor that the kernel of a norm reads, beside weights and what is made of them."""
    if len(set(_norms(graph, ops).values())) != 1 or graph.fused_under.get(ops[0].order, "fused norm") != "fused norm":
        return None
    read = {index for op in ops for index in op.reads}.difference(*(op.writes for op in ops))
    made = {i for i in read if not (m := graph.makers.get(i)) or any(op.order not in settled for op in m)}
    found = {index for index in made if graph.kinds[index] != "constant"}
    return found.pop() if len(found) == 1 else None


def _ended_with(graph: _Graph, ops: Sequence[OpRecord]) -> int | None:
    """The sum that a kernel of light operators without a norm makes, and nothing else that others read."""
    inside = {op.order for op in ops}
    left = [op for op in ops if _leaves(graph, op, inside)]
    if (
        len(left) != 1
        or left[0].operator != "aten.add"
        or _norms(graph, ops)
        or any(op.call in graph.experts for op in ops)
    ):
        return None
    light = graph.fused_under.get(ops[0].order) in ("fused elementwise", "fused activation") or _is_light(graph, ops[0])
    return left[0].writes[0] if light and graph.kinds[left[0].writes[0]] == "activation" else None


def _converted(graph: _Graph) -> None:
    """Kernels of light operators that read weights, and nothing else but what such ones made, run once before all steps."""
    settled = _of_weights(graph)
    parts = graph.parts()
    for holder in [order for order in graph.ops if order not in graph.part_of]:
        together = {holder, *parts.get(holder, ())}
        for order in sorted(together) if together <= settled else ():
            graph.gone.add(order)
            graph.change("converted weights", graph.ops[order], Sum())


def _of_weights(graph: _Graph) -> set[int]:
    """Light operators that read weights, and what such ones made."""
    made: set[int] = set()
    settled: set[int] = set()
    for order, op in graph.ops.items():
        if op.operator in _LIGHT and op.counted and op.inputs and made.issuperset(op.reads):
            settled.add(order)
            made.update(op.writes)
    return settled


def _once(graph: _Graph, index: int, views: Mapping[int, Formula]) -> Formula:
    """What a kernel reads of a tensor, in several views or in steps: what lies in two of them once, all of it at most."""
    apart = (size for view, size in views.items() if views.keys().isdisjoint(graph.within.get(view, ())))
    together = sum(apart, Formula.const(0))
    whole = graph.sizes.get(index)
    if whole is None or together == whole:
        return together
    return whole if together.evaluate(graph.point) > whole.evaluate(graph.point) else together


def _left(graph: _Graph, op: OpRecord, inside: set[int], looped: bool) -> Formula:
    """Bytes that a kernel writes of what one of its operators makes: those that others read, where a view of it is all that they do.

    A norm writes every row: engines pick those that logits are made of after it.
    """
    write = graph.now[op.order].write
    if looped:
        write = sum((graph.sizes[index] for index in op.writes if index in graph.sizes), Formula.const(0))
    readers = [r for index in op.writes for r in graph.readers.get(index, ()) if r.order not in inside]
    views = [[v for v in r.views if v.tensor in op.writes] for r in readers]
    if len(op.writes) != 1 or _kept(graph, op) or _is_norm(graph, op) or not all(views):
        return write
    read = _once(graph, op.writes[0], {v.view: Formula.parse(v.size) for each in views for v in each})
    return read if views and read.evaluate(graph.point) < write.evaluate(graph.point) else write


def _leaves(graph: _Graph, op: OpRecord, inside: set[int]) -> bool:
    """Whether anybody outside of the kernel reads what the operator makes."""
    for index in op.writes:
        readers = graph.readers.get(index, [])
        if not readers or any(r.order not in inside for r in readers):
            return True
    return _kept(graph, op)


def _groups(graph: _Graph) -> Iterable[list[OpRecord]]:
    """Light operators that are connected and have as many products and attentions before them."""
    heads: dict[int, int] = {}
    light = {o: op for o, op in graph.ops.items() if _is_light(graph, op)}
    stage = _stages(graph, light)

    def around(order: int) -> tuple[object, ...]:
        return graph.home[order], light[order].repeat, graph.experts.get(light[order].call)

    def alike(order: int) -> tuple[object, ...]:
        return stage[order], *around(order)

    settled = _of_weights(graph)
    for order, op in reversed(light.items()):  # what only later kernels read is computed there, unless that reads more
        if order in settled:
            continue
        readers = {r.order for index in op.writes for r in graph.readers.get(index, ())}
        if (
            readers <= light.keys()
            and {around(reader) for reader in readers} == {around(order)}
            and not _kept(graph, op)
        ):
            later = {stage[reader] for reader in readers}
            if len(later) == 1 and _is_cheap(graph, op):
                (stage[order],) = later

    def head(order: int) -> int:
        while heads.get(order, order) != order:
            order = heads[order]
        return order

    for order, op in light.items():
        for index in op.reads:
            for maker in graph.makers.get(index, []):
                at = maker.order
                if at in light and at < order and alike(at) == alike(order):
                    heads[head(order)] = head(at)
    groups: dict[int, list[OpRecord]] = {}
    for order, op in light.items():
        groups.setdefault(head(order), []).append(op)
    return groups.values()


def _by_norms(graph: _Graph, group: list[OpRecord]) -> Iterable[list[OpRecord]]:
    """A kernel for each norm of a group: what one reads is made in its kernel, what no norm reads in that of the last one before it."""
    norms = _norms(graph, group)
    if len(set(norms.values())) < 2:
        return (group,)
    holder = dict(norms)
    readers = {op.order: [r.order for index in op.writes for r in graph.readers.get(index, ())] for op in group}
    makers = {op.order: [m.order for index in op.reads for m in graph.makers.get(index, ())] for op in group}

    def hand(ops: Iterable[OpRecord], beside: Mapping[int, list[int]], choose: Callable[[list[int]], int]) -> None:
        for order in (op.order for op in ops if op.order not in holder):
            if near := [holder[other] for other in beside[order] if other in holder]:
                holder[order] = choose(near)

    hand(reversed(group), readers, min)
    hand(group, makers, max)
    hand(reversed(group), readers, min)
    kernels: dict[int, list[OpRecord]] = {}
    for op in group:
        kernels.setdefault(holder[op.order], []).append(op)
    return kernels.values()


def _norms(graph: _Graph, group: Iterable[OpRecord]) -> dict[int, int]:
    """Operators of norms -> the first one of each: a call of a norm's class that reduces rows, or one operator of its own."""
    calls: dict[int, list[OpRecord]] = {}
    found: dict[int, int] = {}
    for op in group:
        if _is_norm(graph, op):
            calls.setdefault(op.call, []).append(op)
        elif op.operator in _NORMS:
            found[op.order] = op.order
    for ops in calls.values():
        if any(op.operator in _REDUCE for op in ops):
            found.update(dict.fromkeys((op.order for op in ops), ops[0].order))
    return found


def _is_norm(graph: _Graph, op: OpRecord) -> bool:
    return "norm" in graph.trace.calls[op.call].class_name.rpartition(".")[2].lower()


def _is_light(graph: _Graph, op: OpRecord) -> bool:
    asked = [
        index for index in op.writes if graph.readers.get(index) or _is_kept(graph, index)
    ]  # mean and scale of a norm are not
    alone = (len(op.writes) == 1 or len(asked) == 1) and all(len(graph.makers[index]) == 1 for index in op.writes)
    whole = len(op.views) == 0 if not op.reads else {v.tensor for v in op.views} == set(op.reads)
    return (
        op.operator in _LIGHT
        and op.counted
        and alone
        and whole
        and op.order not in graph.gone
        and "kv_bytes" not in op.write
    )


def _kept(graph: _Graph, op: OpRecord) -> bool:
    """Whether what an operator makes is more than a result on the way."""
    return any(_is_kept(graph, index) for index in op.writes)


def _is_kept(graph: _Graph, index: int) -> bool:
    return graph.kinds[index] != "activation" or index in graph.handed_on


def _is_cheap(graph: _Graph, op: OpRecord) -> bool:
    """Whether reading what an operator reads takes no more than writing and reading what it makes."""
    made = sum((graph.sizes.get(index, _NOTHING) for index in op.writes), _NOTHING)
    read = sum((Formula.parse(view.size) for view in op.views), _NOTHING)
    return read.evaluate(graph.point) <= 2 * made.evaluate(graph.point)


def _stages(graph: _Graph, light: Collection[int]) -> dict[int, int]:
    """Of each operator, how many that are not light lie one after the other before it."""
    found: dict[int, int] = {}
    ends: dict[int, int] = {}
    for op in sorted(graph.trace.ops, key=lambda one: one.order):
        found[op.order] = max((ends[order] for order in op.after if order in ends), default=0)
        heavy = op.order not in light if op.order in graph.ops else op.operator not in _LIGHT
        ends[op.order] = found[op.order] + heavy
    return found


def _rule_of(graph: _Graph, group: Sequence[OpRecord]) -> str:
    classes = {graph.trace.calls[op.call].class_name.rpartition(".")[2].lower() for op in group}
    names = {op.operator for op in group}
    if any(_is_norm(graph, op) for op in group):
        return "fused norm"
    if names & _ACTIVATIONS:
        return "fused activation"
    if any("rotary" in name for name in classes) or ("aten.neg" in names and names & {"aten.cat", "aten.stack"}):
        return "fused rope"
    return "fused elementwise"


__all__ = ["LIMITS", "EngineKernel", "kernels", "reexpanded", "resized", "serving", "unmade"]
