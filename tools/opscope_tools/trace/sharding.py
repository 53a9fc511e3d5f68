"""How a pass is spread over tensor-parallel ranks, as its operators allow it.

Found from the data flow, not from names: a product is split by columns where everything up to the next product or attention works on
each column (or each head) by itself, one that reads split activations is split by rows, and its partial results are added up where
something first needs them whole. `shards` is for one call; what is split keeps 1/N of its work and of its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from opscope_schemas.errors import ValuesError
from opscope_schemas.formula import Formula, Rational, evaluate

from opscope_tools.trace.document import CallTree, assignment
from opscope_tools.trace.operators import ATTENTION, GROUPED, PAIRS, SOFTMAX
from opscope_tools.trace.protocol import CallRecord, OpRecord

#: column, row: of products; experts: of products of routed tokens; vocabulary: of a table of tokens; split: works on what others have split
Split = Literal["column", "row", "experts", "vocabulary", "split"]
#: each result of these needs a whole row
_ROWWISE = frozenset(
    f"aten.{n}"
    for n in "_softmax _log_softmax native_layer_norm _fused_rms_norm rms_norm topk sort argsort argmax cumsum max".split()
)
#: what of a sum may be computed of its parts, each by itself
_LINEAR = frozenset(
    f"aten.{n}"
    for n in (
        "add add_ sub mul mul_ div div_ neg sum mean _to_copy clone cat index index_select gather index_add index_add_ scatter_add "
        "scatter_add_ index_put index_put_ slice_scatter where masked_fill constant_pad_nd copy_ stack"
    ).split()
)
#: with weights, where they read one activation
_PRODUCTS = frozenset("mm addmm linear bmm baddbmm _scaled_mm matmul".split())
_SUMS = frozenset({"aten.add", "aten.add_", "aten.sub"})
_FRESH = frozenset({"aten.zeros", "aten.zeros_like", "aten.new_zeros", "aten.full", "aten.empty"})
State = Literal["whole", "split", "partial"]
#: a weight is that of fewer parts
_SHARED = 8


@dataclass(frozen=True)
class Exchange:
    """What ranks tell one another: before the operator `order` reads a tensor of so many bytes, or, at the end, of the result."""

    kind: Literal["all_reduce", "all_gather"]
    order: int
    #: where its parts are made, and how often
    made: int
    repeat: str
    bytes: str


@dataclass
class Shards:
    """By order of an operator how it is split; whole where it is not named."""

    split: dict[int, Split] = field(default_factory=dict)
    #: products of which only keys and values come, and how many heads they are: no more ranks share them
    of_keys: dict[int, str] = field(default_factory=dict)
    exchanges: list[Exchange] = field(default_factory=list)
    #: whether partial results of several products are added up, so that they are exchanged once
    merged: bool = False
    #: whether a norm is over all heads together, of which each rank has some
    across_heads: bool = False
    #: bytes of what the cache holds after the pass, all repetitions, and of what is split the number of heads (or channels)
    cache: list[tuple[str, str]] = field(default_factory=list)
    #: bytes of what layers hand on to each other
    handed_on: str = ""


def shards(tree: CallTree, call: CallRecord) -> Shards:
    """Of one call, for any number of ranks."""
    return _Walk(tree, call).found()


class _Walk:
    def __init__(self, tree: CallTree, call: CallRecord) -> None:
        self.trace = tree.trace
        self.ops = sorted(tree.ops_below(call), key=lambda op: op.order)
        self.values: Mapping[str, Rational] = assignment(self.trace.variables, self.trace.point)
        self.tensors = {t.index: t for t in self.trace.tensors}
        self.readers: dict[int, list[OpRecord]] = {}
        self.makers = {index: op for op in self.ops for index in op.writes}
        self.alike: dict[tuple[object, ...], list[OpRecord]] = {}
        for op in self.ops:
            self.alike.setdefault(_place(op), []).append(op)
        for op in self.ops:
            for index in op.reads:
                self.readers.setdefault(index, []).append(op)
                alias = self.tensors[index].alias_of
                if alias is not None:
                    self.readers.setdefault(alias, []).append(op)
        self.states: dict[int, State] = {}
        self.made: dict[int, int] = {}
        self.may: dict[tuple[int, float], bool] = {}
        #: means over what ranks have parts of
        self.means: set[int] = set()
        self.result = Shards()
        self.repeats = {
            child.order: str(repeat * Formula.parse(child.repeat))
            for below, repeat in _repeated(tree, call, Formula.const(1)) for child in tree.children(below)
            if isinstance(child, OpRecord)
        }  # fmt: skip
        self.calls = {below.index: repeat for below, repeat in _repeated(tree, call, Formula.const(1))}

    def found(self) -> Shards:
        for op in self.ops:
            self._step(op)
        last = self.ops[-1].order if self.ops else 0
        for index, state in list(self.states.items()):
            if state == "partial" and not self.readers.get(index):
                self._whole(index, last)
            elif state == "split" and self.tensors[index].kind == "output":
                self._exchange("all_gather", index, last)
        for kept in self.trace.cache_after:
            if kept.call in self.calls and kept.size:
                heads = kept.info.shape[1] if self._state(kept.index) == "split" and len(kept.info.shape) > 1 else ""
                self.result.cache.append((str(Formula.parse(kept.size) * self.calls[kept.call]), heads))
        sums = [e for e in self.result.exchanges if e.kind == "all_reduce"]
        self.result.across_heads = bool(self.means)
        self.result.handed_on = sums[0].bytes if sums else ""
        return self.result

    # ------------------------------------------------------------ forward

    def _step(self, op: OpRecord) -> None:
        states = [self._state(index) for index in op.reads]
        if op.operator in GROUPED:
            self._mark(op, "experts", "partial" if "split" in states else "split")
        elif op.operator == ATTENTION:
            self._whole_parts(op)
            if "split" in states:
                self._mark(op, "split", "split")
                for index in op.reads[1:3]:  # kept by an earlier pass: a rank has those of its own heads
                    if self.tensors[index].kind == "cache" and self._state(index) == "whole":
                        self.states[index] = "split"
        elif self._mixes(op):
            self._product(op)
        elif op.operator == "aten.embedding" and any(self.tensors[i].kind == "input" for i in op.reads):
            self._mark(op, "vocabulary", "partial")
        elif "partial" in states and self._linear(op):
            made = {self._made(index) for index in op.reads if self._state(index) == "partial"}
            by_rows = [order for order in made if order is not None and self.result.split.get(order) == "row"]
            if op.operator in _SUMS and len(by_rows) > 1:
                self.result.merged = True
            for index in op.writes:
                self.states[index], self.made[index] = "partial", self._origin(op)
        else:
            self._whole_parts(op)
            if "split" in states:
                self._mark(op, "split", "partial" if op.order in self.means else "split")
                self._split_states(op)

    def _split_states(self, op: OpRecord) -> None:
        """A state of the cache that one operator takes and changes, channel by channel, is split as the channels are."""
        given = list(zip(op.reads, op.inputs, strict=False))
        channels = {tensor.shape[1:2] for index, tensor in given if self._state(index) == "split"} - {()}
        for index in op.reads:
            kept = self.tensors[index]
            if kept.kind == "cache" and self._state(index) == "whole" and kept.info.shape[1:2] in channels:
                self.states[index] = "split"

    def _product(self, op: OpRecord) -> None:
        self._whole_parts(op)
        if any(self._state(index) == "split" for index in op.reads):
            self._mark(op, "row", "partial")
            return
        reached, alone, means = self._reaches(op)
        if reached and alone and not all(self._may_split(index, self._rows(op)) for index in op.writes):
            self.means |= means  # a norm of all heads together: ranks tell one another the sums of squares
            self.may.clear()
        apart = all(self._may_split(index, self._rows(op)) for index in op.writes)
        if apart or all(self.tensors[index].kind == "output" for index in op.writes):
            self._mark(op, "column", "split")
            if not apart:  # it is returned, so that what reads it has the whole that is returned
                for index in op.writes:
                    self._exchange("all_gather", index, op.order)
                    self.states[index] = "whole"
            if reached and {place for place, _ in reached} <= {1, 2}:
                self.result.of_keys[op.order] = f"({op.outputs[0].shape[-1]}) / ({next(iter(reached))[1]})"

    def _mark(self, op: OpRecord, split: Split, state: State) -> None:
        self.result.split[op.order] = split
        for index in op.writes:
            self.states[index], self.made[index] = state, op.order

    def _state(self, index: int) -> State:
        alias = self.tensors[index].alias_of
        return self.states.get(index, self.states.get(alias, "whole") if alias is not None else "whole")

    def _made(self, index: int) -> int | None:
        alias = self.tensors[index].alias_of
        return self.made.get(index, self.made.get(alias) if alias is not None else None)

    def _origin(self, op: OpRecord) -> int:
        made = (self._made(i) for i in op.reads if self._state(i) == "partial")
        return next(op.order if order is None else order for order in made)

    def _linear(self, op: OpRecord) -> bool:
        """Whether it may run on the parts of a sum: it adds nothing whole to them, and multiplies no two."""
        if op.operator not in _LINEAR:
            return False
        parts = [i for i in op.reads if self._state(i) == "partial"]
        others = [i for i in op.reads if self._state(i) != "partial"]
        if self._widens(op):  # what is exchanged is so before it is widened
            return False
        if op.operator in {"aten.mul", "aten.mul_", "aten.div", "aten.div_"}:
            return len(parts) == 1
        if op.operator not in _SUMS:
            return True
        routed = any(
            o.operator in GROUPED for o in self.ops if o.call == op.call
        )  # a bias of experts: one rank adds it
        return routed or all(i in self.makers and self.makers[i].operator in _FRESH for i in others)

    def _widens(self, op: OpRecord) -> bool:
        if op.operator != "aten._to_copy" or not (op.inputs and op.outputs):
            return False
        given, made = (1 if one.dtype == "float32" else 0 for one in (op.inputs[0], op.outputs[0]))
        return made > given

    def _whole_parts(self, op: OpRecord) -> None:
        for index in op.reads:
            if self._state(index) == "partial":
                self._whole(index, op.order)

    def _whole(self, index: int, order: int) -> None:
        self._exchange("all_reduce", index, order)
        alias = self.tensors[index].alias_of
        for known in (index, alias):
            if known is not None and known in self.states:
                self.states[known] = "whole"

    def _exchange(self, kind: Literal["all_reduce", "all_gather"], index: int, order: int) -> None:
        alias = self.tensors[index].alias_of
        size = self.tensors[index].size or (self.tensors[alias].size if alias is not None else "")
        made = self._made(index)
        by = order if made is None else made
        self.result.exchanges.append(Exchange(kind, order, by, self.repeats[by], size))

    # ------------------------------------------------------------ what may be split

    def _may_split(self, index: int, rows: float) -> bool:
        """Whether everything that reads the tensor, of so many rows, may do so by columns or heads."""
        tensor = self.tensors[index]
        if tensor.kind == "cache":
            return True
        key = (index, rows)
        if key not in self.may:
            self.may[key] = True  # what leads back to itself is decided by the others
            readers = self.readers.get(index, [])
            used = bool(readers) or tensor.kind == "output"
            self.may[key] = used and all(self._accepts(op, rows) for op in readers)
        return self.may[key]

    def _accepts(self, op: OpRecord, rows: float) -> bool:
        if op.operator == ATTENTION or self._mixes(op):
            return True
        if op.operator in GROUPED or (op.operator == "aten.mm" and len(op.reads) > 1):  # of two matrices of activations
            return False
        if self._reduces(op) and self._counts(op) <= rows:
            return op.order in self.means
        # of the turns of a loop that keeps what each makes, what comes behind reads that of the last
        alike = self.alike[_place(op)]
        read = self._read(op) or [index for one in alike for index in self._read(one)]
        return bool(read) and all(self._may_split(index, rows) for index in read)

    def _read(self, op: OpRecord) -> list[int]:
        """Its results that somebody reads."""
        kept = ("cache", "output")
        return [index for index in op.writes if self.readers.get(index) or self.tensors[index].kind in kept]

    def _reduces(self, op: OpRecord) -> bool:
        made = max((self._elements(o.shape) for o in op.outputs), default=0.0)
        given = max((self._elements(i.shape) for i in op.inputs), default=0.0)
        return op.operator in _ROWWISE or (
            op.operator in {"aten.mean", "aten.sum", "aten.amax", "aten.var", "aten.linalg_vector_norm"}
            and made < given
        )

    def _counts(self, op: OpRecord) -> float:
        """How many rows it reduces, each to itself: as many as there are heads in all where it goes by heads."""
        shape = max((i.shape for i in op.inputs), key=self._elements)
        return self._elements(shape) / max(1.0, self._elements(shape[-1:]))

    def _reaches(self, op: OpRecord) -> tuple[set[tuple[int, str]], bool, set[int]]:
        """Places among the inputs of attention that the results of a product come to without another product, and their width;
        whether they come to no other product; and the means on the way."""
        found: set[tuple[int, str]] = set()
        seen: set[int] = set()
        alone, means = True, set[int]()
        pending = list(op.writes)
        while pending:
            index = pending.pop()
            for reader in self.readers.get(index, []):
                if reader.operator == ATTENTION:
                    found |= {
                        (n, reader.inputs[n].shape[-1])
                        for n, read in enumerate(reader.reads)
                        if read == index and n < 3
                    }
                elif self._pairs(reader):
                    found |= self._operand(reader, index)
                elif self._mixes(reader):
                    alone = False
                elif reader.order not in seen:
                    seen.add(reader.order)
                    pending.extend(reader.writes)
                    if reader.operator == "aten.mean" and self._counts(reader) <= self._rows(op):
                        means.add(reader.order)
        return found, alone, means

    def _operand(self, op: OpRecord, index: int) -> set[tuple[int, str]]:
        """What a tensor is to a product of two activations, as a place among the inputs of attention, and its width: queries or keys
        where its result goes to a softmax, else values. Scores are none of them."""
        scores, last = self._to_softmax(op), op.reads[-1] == index
        if scores:
            return {(1, op.inputs[-1].shape[-2]) if last else (0, op.inputs[-2].shape[-1])}
        return {(2, op.inputs[-1].shape[-1])} if last else set()

    def _to_softmax(self, op: OpRecord) -> bool:
        """Whether a softmax comes before the next product."""
        seen, pending = {op.order}, list(op.writes)
        while pending:
            for reader in self.readers.get(pending.pop(), []):
                if reader.operator in SOFTMAX:
                    return True
                if reader.order not in seen and reader.matmul_flops == "0":
                    seen.add(reader.order)
                    pending.extend(reader.writes)
        return False

    # ------------------------------------------------------------ operators

    def _pairs(self, op: OpRecord) -> bool:
        """Whether it is a product of two activations."""
        return op.matmul_flops != "0" and op.operator in PAIRS and len(op.reads) > 1 and len(op.inputs) > 1

    def _mixes(self, op: OpRecord) -> bool:
        """Whether it is a product of one activation with weights, each result of a whole row of it."""
        if op.matmul_flops == "0" or op.operator == ATTENTION or len(op.reads) != 1 or not (op.outputs and op.inputs):
            return False
        if "conv" in op.operator:  # over several channels at once, not each by itself
            return len(op.inputs) > 1 and self._number(op.inputs[0].shape[1]) == self._number(op.inputs[1].shape[1])
        return op.operator.rpartition(".")[2] in _PRODUCTS

    def _rows(self, op: OpRecord) -> float:
        shape = op.outputs[0].shape
        return self._elements(shape[:-1])

    def _elements(self, shape: Iterable[str]) -> float:
        count = 1.0
        for size in shape:
            count *= self._number(size)
        return count

    def _number(self, text: str) -> float:
        try:
            return float(evaluate(text, self.values)) if text != "?" else 1.0
        except ValuesError:
            return 1.0


def _place(op: OpRecord) -> tuple[object, ...]:
    """The same for what a loop runs again."""
    return op.call, op.operator, op.site.file, op.site.line


def weight_shares(tree: CallTree, call: CallRecord, found: Shards) -> Iterator[tuple[Formula, Split | None, str, bool]]:
    """The weights of each kind of module in bytes, all its calls, how it is split, the heads of keys and values that it makes, and
    whether it is part of a stack of layers."""
    for below, repeat in _repeated(tree, call, Formula.const(1)):
        children = [c for c in tree.children(below) if isinstance(c, CallRecord)]
        parts = (Formula.parse(c.weights) * Formula.parse(c.repeat) for c in children)
        own = Formula.parse(below.weights) - sum(parts, Formula.const(0))
        if (tied := _tied(tree, below, own)) is not None:  # its parts hold a weight together, which each of them counts
            shared, of = tied
            own = own + shared
            yield -shared * repeat, _split_of(tree, of, found), "", False
        ops = [c for c in tree.children(below) if isinstance(c, OpRecord)]
        layered = "*" in tree.pattern(below)
        biases = (_bias(op) for op in ops if found.split.get(op.order) == "row")
        whole = sum(biases, Formula.const(0)) if own.terms else Formula.const(0)
        if whole.terms:  # added to the sum, which every rank has
            own = own - whole
            yield whole * repeat, None, "", layered
        if own.terms:
            heads = next((found.of_keys[op.order] for op in ops if op.order in found.of_keys), "")
            yield own * repeat, _split_of(tree, below, found), heads, layered


def _bias(op: OpRecord) -> Formula:
    """Bytes of what a product adds to each row."""
    if "addmm" not in op.operator or not op.inputs or len(op.inputs[0].shape) != 1:
        return Formula.const(0)
    return Formula.parse(op.inputs[0].shape[0]) * Formula.var("w_bytes")


def _split_of(tree: CallTree, call: CallRecord, found: Shards) -> Split | None:
    """What splits the weights that a module's own operators take."""
    ops = (c.order for c in tree.children(call) if isinstance(c, OpRecord))
    return next((found.split[order] for order in ops if found.split.get(order, "split") != "split"), None)


def _tied(tree: CallTree, call: CallRecord, own: Formula) -> tuple[Formula, CallRecord] | None:
    """What is counted too often of a weight that several parts of a module share, and the last of them; None where none do."""
    if _positive(own):
        return None
    below = [part for part in reversed(list(tree.calls_below(call))) if part is not call and part.weights != "0"]
    for times in range(1, _SHARED):
        for part in below:
            again = times * Formula.parse(part.weights)
            if _positive(own + again):
                return again, part
    return None


def _positive(size: Formula) -> bool:
    return all(coefficient > 0 for coefficient in size.terms.values())


def _repeated(tree: CallTree, call: CallRecord, repeat: Formula) -> Iterator[tuple[CallRecord, Formula]]:
    yield call, repeat
    for child in tree.children(call):
        if isinstance(child, CallRecord):
            yield from _repeated(tree, child, repeat * Formula.parse(child.repeat))


__all__ = ["Exchange", "Shards", "Split", "shards", "weight_shares"]
