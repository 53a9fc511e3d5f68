"""The pass as an engine runs it, projected from the operator graph of the eager one.

Order: the view, its rules one by one, then what they share. Every rule says which operators it changes and what they
move then; what no rule changes stays as eager execution moves it. FLOPs change where latents are absorbed, nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opscope_schemas.analysis import MemoryAccess, ServingRule, ServingView
from opscope_schemas.formula import Formula, Rational, evaluate, whole_bytes

from opscope_tools.trace.document import CallTree, Sum
from opscope_tools.trace.protocol import CallRecord, OpRecord, ViewRecord

_ATTENTION = "opscope.sdpa"
_ONE = Formula.const(1)
_A, _KV = Formula.var("a_bytes"), Formula.var("kv_bytes")
#: operators that one kernel can run in a row: each result needs its own row of the inputs
_LIGHT = frozenset(
    f"aten.{name}"
    for name in (
        "add sub rsub mul div neg pow rsqrt sqrt reciprocal mean sum exp log cos sin abs clamp clamp_min where maximum minimum "
        "silu gelu relu sigmoid tanh hardtanh hardswish softplus leaky_relu elu mish _to_copy clone cat arange le lt ge gt eq ne "
        "bitwise_and logical_and logical_not bitwise_not _softmax native_layer_norm _fused_rms_norm rms_norm masked_fill"
    ).split()
)
_ACTIVATIONS = frozenset(
    f"aten.{n}" for n in "silu gelu relu sigmoid tanh hardtanh hardswish softplus leaky_relu elu mish".split()
)
_SAYS = {
    "paged cache": "The cache lies in pages: appending writes the new keys and values and copies none of the old.",
    "flash attention": "Attention reads keys and values as the cache holds them, fewer heads included, keeps no scores, and "
    "writes in the layout that the next product reads.",
    "absorbed latents": "A decode step does not expand cached latents: queries are projected into them, attention reads them "
    "once for all heads, and its result is projected out.",
    "fused norm": "A norm, its casts and the residual add before it are one kernel.",
    "fused activation": "An activation and the product with its gate are one kernel.",
    "fused rope": "Rotary embedding is one kernel for queries, one for keys, and one for its angles.",
    "fused elementwise": "Element-wise operators in a row, casts included, are one kernel.",
}  # fmt: skip
LIMITS = (
    "A residual add whose norm begins the next layer stays by itself; masks and sorting of routed tokens stay as they run eagerly.",
    "Products that read the same input (q, k and v; gate and up) stay apart: an engine that joins them reads it once.",
)
_MOST_PLACES = 4
#: `home` of what runs in a loop of a call: less this, the call's index
_LOOP = -2


@dataclass(frozen=True)
class EngineKernel:
    """Operators that run as one kernel, the one that gives its result first; what it costs once, and how often it runs."""

    ops: tuple[OpRecord, ...]
    cost: Sum
    repeat: Formula


def serving(tree: CallTree, call: CallRecord, values: Mapping[str, Rational] | None) -> ServingView:
    """One call as an engine runs it."""
    graph = _as_served(tree, call)
    limits = list(LIMITS)
    if not graph.known:
        limits.append(
            "Sizes of this trace are fitted: which operators can be fused is not known, so figures are eager's."
        )
    if graph.trace.attention == "eager":
        limits.append(
            "The model runs eager attention: its scores, and keys and values repeated for grouped heads, count as materialised."
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
    for rule in (_paged, _absorbed, _attention, _fused) if graph.known else ():
        rule(graph)
    return graph


def kernels(tree: CallTree, call: CallRecord, *, eager: bool = False) -> tuple[EngineKernel, ...]:
    """The kernels of one call in their order, as an engine runs it or as it runs eagerly; views are none."""
    graph = _Graph(tree, call) if eager else _as_served(tree, call)
    parts: dict[int, list[int]] = {}
    for order, holder in graph.part_of.items():
        parts.setdefault(holder, []).append(order)
    return tuple(
        EngineKernel(
            (op, *(graph.ops[part] for part in parts.get(order, ()))),
            sum((graph.now[part] for part in parts.get(order, ())), graph.now[order]),
            graph.repeat[order],
        )
        for order, op in sorted(graph.ops.items())
        if order not in graph.part_of and (graph.now[order] != Sum() or not op.counted)
    )


def reexpanded(tree: CallTree, call: CallRecord) -> tuple[str, ...]:
    """A note where an eager decode step projects all of what the cache holds again."""
    places = _Graph(tree, call).expanded() if tree.trace.phase == "decode" else []
    said = (
        "anew in every step, as the eager forward does; view='serving' counts them absorbed where it recognises them."
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
        self.tree, self.trace = tree, tree.trace
        self.ops: dict[int, OpRecord] = {}
        self.repeat: dict[int, Formula] = {}
        #: the innermost repeated call around an operator: what is in no common one is not one kernel
        self.home: dict[int, int] = {}
        self._place(call, _ONE, -1)
        self.now = {o: _cost(op) for o, op in self.ops.items()}
        self.gone: set[int] = set()
        #: operator -> the one in whose kernel it runs
        self.part_of: dict[int, int] = {}
        self.kinds = {t.index: t.kind for t in self.trace.tensors}
        self.sizes = {t.index: Formula.parse(t.size) for t in self.trace.tensors if t.size}
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
    return op.matmul_flops != "0" and op.operator != _ATTENTION and len(op.views) == 1


def _moving(cost: Sum, read: Formula, write: Formula) -> Sum:
    return Sum(cost.flops, cost.matmul, read, write, cost.causal)


# ---------------------------------------------------------------- rules


def _paged(graph: _Graph) -> None:
    """`cat` of the cache and what is new writes all of it: an append reads and writes what is new."""
    for op in graph.ops.values():
        if op.operator != "aten.cat" or "{kv_bytes}" not in op.write or not any(map(graph.cached, op.views)):
            continue
        new = sum((Formula.parse(v.size) for v in op.views if not graph.cached(v)), Formula.const(0))
        graph.change("paged cache", op, _moving(graph.now[op.order], new, new.substitute({"a_bytes": _KV})))


def _attention(graph: _Graph) -> None:
    """Keys and values are not copied for attention, nor is its result to be read in another order."""
    for op in graph.ops.values():
        if op.operator != _ATTENTION:
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
        graph.change("flash attention", op, _moving(cost, read, cost.write))
        for index in op.writes:
            for reader in graph.readers.get(index, []):
                if reader.operator == "aten.clone" and reader.order in graph.ops:
                    graph.drop("flash attention", reader, op)


def _absorbed(graph: _Graph) -> None:
    """Decoding from latents: with W the projection (rank -> heads * (nope + v)), scores are (q W) latents, results (p latents) W.

    A projection that reads the cache, gives the values of attention, and makes with the cache's rotary part its keys.
    """
    if graph.trace.phase != "decode":
        return
    for op in list(graph.ops.values()):
        if op.operator != _ATTENTION or len(op.views) < 3 or len(op.inputs) < 3:
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
    point = graph.trace.point
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


def _fused(graph: _Graph) -> None:
    """Light operators that hand results to one another, with no product or attention between them, are one kernel."""
    for group in _groups(graph):
        if len(group) > 1:
            _fuse(graph, group)


def _fuse(graph: _Graph, group: Sequence[OpRecord]) -> None:
    rule, inside = _rule_of(graph, group), {op.order for op in group}
    made = {index for op in group for index in op.writes}
    outer: dict[int, dict[int, Formula]] = {}
    rest = Formula.const(0)
    for op in group:
        own = {v.view: Formula.parse(v.size) for v in op.views}
        rest = rest + graph.now[op.order].read - sum(own.values(), Formula.const(0))
        for view in op.views:
            if view.tensor not in made:
                outer.setdefault(view.tensor, {})[view.view] = own[view.view]
    read = rest + sum((_once(graph, index, views) for index, views in outer.items()), Formula.const(0))
    write = sum((graph.now[op.order].write for op in group if _leaves(graph, op, inside)), Formula.const(0))
    *others, last = group
    for op in others:
        graph.drop(rule, op, last)
    graph.gone.add(last.order)
    graph.change(rule, last, _moving(graph.now[last.order], read, write))


def _once(graph: _Graph, index: int, views: Mapping[int, Formula]) -> Formula:
    """What a kernel reads of a tensor of which operators read several views: all of it at most."""
    together = sum(views.values(), Formula.const(0))
    whole = graph.sizes.get(index)
    if whole is None or len(views) == 1:
        return together
    return whole if together.evaluate(graph.trace.point) > whole.evaluate(graph.trace.point) else together


def _leaves(graph: _Graph, op: OpRecord, inside: set[int]) -> bool:
    """Whether anybody outside of the kernel reads what the operator makes."""
    for index in op.writes:
        readers = graph.readers.get(index, [])
        if (
            graph.kinds[index] != "activation"
            or index in graph.handed_on
            or any(r.order not in inside for r in readers)
        ):
            return True
        if not readers:
            return True
    return False


def _groups(graph: _Graph) -> Iterable[list[OpRecord]]:
    """Light operators that are connected and have as many products and attentions before them."""
    heads: dict[int, int] = {}
    light = {o: op for o, op in graph.ops.items() if _is_light(graph, op)}
    stage = _stages(graph, light)

    def head(order: int) -> int:
        while heads.get(order, order) != order:
            order = heads[order]
        return order

    for order, op in light.items():
        for index in op.reads:
            for maker in graph.makers.get(index, []):
                at = maker.order
                if at in light and at < order and (stage[at], graph.home[at]) == (stage[order], graph.home[order]):
                    heads[head(order)] = head(at)
    groups: dict[int, list[OpRecord]] = {}
    for order, op in light.items():
        groups.setdefault(head(order), []).append(op)
    return groups.values()


def _is_light(graph: _Graph, op: OpRecord) -> bool:
    alone = len(op.writes) == 1 and len(graph.makers[op.writes[0]]) == 1
    whole = len(op.views) == 0 if not op.reads else {v.tensor for v in op.views} == set(op.reads)
    return (
        op.operator in _LIGHT
        and op.counted
        and alone
        and whole
        and op.order not in graph.gone
        and "kv_bytes" not in op.write
    )


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
    if any("norm" in name for name in classes):
        return "fused norm"
    if names & _ACTIVATIONS:
        return "fused activation"
    if any("rotary" in name for name in classes) or {"aten.neg", "aten.cat"} <= names:
        return "fused rope"
    return "fused elementwise"


__all__ = ["LIMITS", "EngineKernel", "kernels", "reexpanded", "serving"]
