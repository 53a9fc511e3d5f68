"""What each operator costs: pure functions of shapes, registered by operator name.

Legend: a tensor's `numel` is the product of its shape; `stored` leaves broadcast (stride 0) dimensions out; `element`
is bytes per element. FLOPs: a multiply and an add are 1 each, so a product of (m, k) and (k, n) is 2*m*n*k. Elementwise
arithmetic and each transcendental are 1 per output element; a reduction is 1 per input element; activations, norms
and softmax are the arithmetic of their definitions; copies, casts, views, comparisons and indexing are 0.
Bytes: each distinct input is read once at its stored size, each output written once; views move nothing.

Order: types, the registry, then the operators by class: views, copies and comparisons, factories, elementwise,
activations, reductions and norms, products, gathers and scatters. A formula's derivation stands in its docstring or
beside it. An operator that is not here costs "unknown": documents list it under `not_counted`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opscope_schemas.formula import Formula

ZERO, ONE = Formula.const(0), Formula.const(1)


@dataclass(frozen=True)
class Tensor:
    """A tensor as an operator sees it. `key` is equal for the same view of the same memory."""

    shape: tuple[Formula, ...]
    dtype: str
    element: Formula
    stored: Formula
    weight: bool = False
    key: object = None

    @property
    def numel(self) -> Formula:
        total = ONE
        for size in self.shape:
            total = total * size
        return total

    @property
    def bytes(self) -> Formula:
        return self.stored * self.element


@dataclass(frozen=True)
class Call:
    """One operator call: tensors in and out, and its other arguments by schema name."""

    name: str
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def out(self) -> Formula:
        """Elements of the first output."""
        return self.outputs[0].numel if self.outputs else ZERO


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of one call; `free` marks what moves and computes nothing, and is left out of documents."""

    flops: Formula = ZERO
    matmul_flops: Formula = ZERO
    read: Formula = ZERO
    write: Formula = ZERO
    derivation: str = ""
    free: bool = False
    causal_saving: Formula = ZERO


Rule = Callable[[Call], Cost]
_RULES: dict[str, Rule] = {}


def operator(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for operators; a second rule for the same name is a mistake and raises."""

    def register(rule: Rule) -> Rule:
        for name in names:
            if name in _RULES:
                raise ValueError(f"the operator {name} already has a cost rule")
            _RULES[name] = rule
        return rule

    return register


def registered() -> frozenset[str]:
    """Every operator that has a rule."""
    return frozenset(_RULES)


def cost_of(call: Call) -> Cost | None:
    """The call's cost, or None where no rule is registered."""
    rule = _RULES.get(call.name)
    if rule is None and call.name.endswith("_") and not call.name.endswith("__"):
        rule = _RULES.get(call.name[:-1])  # an in-place operator computes what its functional twin does
    return rule(call) if rule else None


def moved(call: Call) -> tuple[Formula, Formula]:
    """Bytes by the general rule: distinct inputs read once, outputs written once."""
    read, seen = ZERO, set()
    for tensor in call.inputs:
        if tensor.key not in seen:
            seen.add(tensor.key)
            read = read + tensor.bytes
    write = ZERO
    for tensor in call.outputs:
        write = write + tensor.numel * tensor.element
    return read, write


def _cost(call: Call, flops: Formula, derivation: str, matmul: Formula = ZERO) -> Cost:
    read, write = moved(call)
    return Cost(flops, matmul, read, write, derivation)


# ---------------------------------------------------------------- views: nothing moves

_VIEWS = (
    "aten.view aten._unsafe_view aten.t aten.transpose aten.permute aten.expand aten.unsqueeze "
    "aten.squeeze aten.slice aten.select aten.split aten.split_with_sizes aten.chunk aten.unbind "
    "aten.narrow aten.as_strided aten.alias aten.detach aten.lift_fresh aten.lift aten._reshape_alias "
    "aten.unfold aten.diagonal aten.view_as_real aten.view_as_complex aten.movedim aten.expand_as "
    "aten.flatten aten.real aten.imag aten.conj aten._conj aten.resolve_conj aten.resolve_neg "
    "aten._neg_view aten.unsafe_split aten.unsafe_chunk prim.device aten.sym_size aten.sym_stride "
    "aten.sym_numel aten.is_pinned aten.empty aten.empty_like aten.empty_strided aten.new_empty "
    "aten.new_empty_strided aten._assert_async aten._assert_scalar aten.dropout aten.is_same_size "
    "aten._local_scalar_dense aten.is_nonzero aten.item aten._has_compatible_shallow_copy_type aten.set_ "
    "aten.resize_ aten.numel aten.size"
).split()


@operator(*_VIEWS)
def view(_: Call) -> Cost:
    """A view, an allocation, or metadata: no arithmetic and no traffic."""
    return Cost(free=True)


# ---------------------------------------------------------------- copies, comparisons, selection: bytes only

_MOVES = (
    "aten.clone aten._to_copy aten.copy aten.cat aten.stack aten.contiguous aten.repeat aten.roll "
    "aten.flip aten.constant_pad_nd aten.pad aten.reflection_pad1d aten.reflection_pad2d "
    "aten.replication_pad1d aten.repeat_interleave aten.tile aten.unsafe_index aten.pixel_shuffle "
    "aten.pixel_unshuffle aten.im2col aten.tril aten.triu aten.where aten.masked_fill aten.eq aten.ne "
    "aten.lt aten.le aten.gt aten.ge aten.equal aten.logical_and aten.logical_or aten.logical_not "
    "aten.logical_xor aten.bitwise_and aten.bitwise_or aten.bitwise_not aten.bitwise_xor "
    "aten.bitwise_left_shift aten.bitwise_right_shift aten.__and__ aten.__or__ aten.__xor__ "
    "aten.__lshift__ aten.__rshift__ aten.max aten.min aten.amax aten.amin aten.argmax aten.argmin "
    "aten.aminmax aten.topk aten.sort aten.argsort aten.maximum aten.minimum aten.clamp aten.clamp_min "
    "aten.clamp_max aten.any aten.all aten.isnan aten.isinf aten.isfinite aten.sign aten.sgn aten.floor "
    "aten.ceil aten.round aten.trunc aten.relu aten.relu6 aten.hardtanh aten.threshold aten.nonzero "
    "aten.unique_consecutive aten._unique2 aten.searchsorted aten.bucketize aten.isin "
    "aten.max_pool2d_with_indices aten.fmax aten.fmin aten.cummax aten.diag_embed aten.meshgrid "
    "aten.nan_to_num aten.histc aten.bincount aten.random aten.randperm aten.rot90"
).split()


@operator(*_MOVES)
def move(call: Call) -> Cost:
    """A copy, cast, comparison, selection or rounding: 0 FLOPs, its tensors move once."""
    return _cost(call, ZERO, "copies, casts, comparisons and selections count 0 FLOPs")


# ---------------------------------------------------------------- factories: only the output is written

_FACTORIES = (
    "aten.arange aten.zeros aten.ones aten.full aten.zeros_like aten.ones_like aten.full_like "
    "aten.new_zeros aten.new_ones aten.new_full aten.scalar_tensor aten.linspace aten.eye "
    "aten.tril_indices aten.triu_indices aten.one_hot aten.rand aten.randn aten.rand_like "
    "aten.randn_like aten.randint aten.normal aten.uniform aten.bernoulli"
).split()


@operator(*_FACTORIES)
def factory(call: Call) -> Cost:
    """A tensor made from scalars: written once."""
    return Cost(write=moved(call)[1], derivation="made from scalars: 0 FLOPs, written once")


@operator("aten.fill_", "aten.zero_", "aten.fill")
def fill(call: Call) -> Cost:
    """Overwrites its input without reading it."""
    return Cost(write=moved(call)[1], derivation="overwritten without being read")


@operator("aten.copy_")
def copy_(call: Call) -> Cost:
    """`dst.copy_(src)`: the source is read, the destination written."""
    return Cost(read=call.inputs[-1].bytes, write=moved(call)[1], derivation="source read, destination written")


# ---------------------------------------------------------------- elementwise: k per output element

_PER_ELEMENT: Mapping[str, tuple[int, str]] = {
    **{
        f"aten.{name}": (1, "1 per output element")
        for name in (
            "add sub rsub mul div neg pow exp exp2 log log2 log10 log1p expm1 sqrt rsqrt reciprocal sin cos tan "
            "asin acos atan atan2 sinh cosh tanh erf erfc erfinv abs square remainder fmod floor_divide "
            "true_divide lerp_scalar frac digamma lgamma hypot cumprod float_power"
        ).split()
    },
    "aten.sigmoid": (4, "1 / (1 + exp(-x)): negate, exp, add, divide"),
    "aten.silu": (5, "x * sigmoid(x): sigmoid's 4 and a multiply"),
    "aten.gelu": (5, "x / 2 * (1 + erf(x / sqrt 2)): divide, erf, add, two multiplies"),
    "aten.softplus": (3, "log(1 + exp(x)): exp, add, log"),
    "aten.mish": (5, "x * tanh(log(1 + exp(x))): exp, add, log, tanh, multiply"),
    "aten.elu": (2, "exp(x) - 1: exp, subtract"),
    "aten.leaky_relu": (1, "slope * x: a multiply"),
    "aten.hardsigmoid": (2, "x / 6 + 1 / 2: divide, add"),
    "aten.hardswish": (3, "x * (x + 3) / 6: add, multiply, divide"),
    "aten.log_sigmoid_forward": (4, "log(1 / (1 + exp(-x))): negate, exp, add, log"),
    "aten.logit": (3, "log(x / (1 - x)): subtract, divide, log"),
    "aten.addcmul": (2, "a + b * c: multiply, add"),
    "aten.addcdiv": (2, "a + b / c: divide, add"),
    "aten.lerp": (3, "a + w * (b - a): subtract, multiply, add"),
    "aten.polar": (4, "r * cos, r * sin: two transcendentals, two multiplies"),
}


def _elementwise(count: int, derivation: str) -> Rule:
    def rule(call: Call) -> Cost:
        return _cost(call, count * call.out, derivation)

    return rule


for _name, (_count, _why) in _PER_ELEMENT.items():
    if _name not in ("aten.add", "aten.sub", "aten.rsub", "aten.gelu"):
        operator(_name)(_elementwise(_count, _why))


@operator("aten.add", "aten.sub", "aten.rsub")
def add(call: Call) -> Cost:
    """`a + alpha * b`: 1 per output element, and a multiply more where alpha is not 1."""
    scaled = call.arguments.get("alpha", 1) != 1
    return _cost(call, (2 if scaled else 1) * call.out, "1 per output element" + (" and the scaling" if scaled else ""))


@operator("aten.gelu")
def gelu(call: Call) -> Cost:
    """By its definition: with erf 5 per element; the tanh form 8 (pow, multiply, add, multiply, tanh, add, two multiplies)."""
    if call.arguments.get("approximate") == "tanh":
        return _cost(call, 8 * call.out, "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))): 8 per element")
    return _cost(call, 5 * call.out, _PER_ELEMENT["aten.gelu"][1])


@operator("aten.glu")
def glu(call: Call) -> Cost:
    """`a * sigmoid(b)` over the two halves: 5 per output element."""
    return _cost(call, 5 * call.out, "a * sigmoid(b): sigmoid's 4 and a multiply")


# ---------------------------------------------------------------- reductions and norms


@operator("aten.sum", "aten.mean", "aten.cumsum", "aten.prod", "aten.nansum", "aten.trace", "aten.logcumsumexp")
def reduction(call: Call) -> Cost:
    """1 per input element (a mean of n is n-1 adds and a division)."""
    return _cost(call, call.inputs[0].numel, "1 per input element")


@operator("aten.var", "aten.var_mean", "aten.std", "aten.std_mean")
def variance(call: Call) -> Cost:
    """mean(x) n, x - mean n, square n, their mean n: 4 per input element; a square root per output for std."""
    root = call.out if call.name.startswith("aten.std") else ZERO
    return _cost(call, 4 * call.inputs[0].numel + root, "mean, subtract, square, mean: 4 per input element")


@operator("aten.linalg_vector_norm", "aten.norm")
def norm(call: Call) -> Cost:
    """Square and add per input element, a square root per output."""
    return _cost(call, 2 * call.inputs[0].numel + call.out, "square, add per input element; root per output")


@operator("aten.logsumexp")
def logsumexp(call: Call) -> Cost:
    """exp and add per input element, a logarithm per output."""
    return _cost(call, 2 * call.inputs[0].numel + call.out, "exp, add per input element; log per output")


@operator("aten._softmax", "aten.softmax", "aten._safe_softmax")
def softmax(call: Call) -> Cost:
    """exp(x) / sum(exp(x)): exp, add, divide = 3 per element (the maximum that kernels subtract first is not counted)."""
    return _cost(call, 3 * call.out, "exp(x) / sum(exp(x)): exp, add, divide = 3 per element")


@operator("aten._log_softmax", "aten.log_softmax")
def log_softmax(call: Call) -> Cost:
    """x - log(sum(exp(x))): exp, add, subtract per element, a logarithm per row (counted 3 per element)."""
    return _cost(call, 3 * call.out, "x - log(sum(exp(x))): exp, add, subtract = 3 per element")


def _rows(call: Call) -> Formula:
    """Rows of a norm over its last `normalized_shape` dimensions."""
    width = len(call.arguments.get("normalized_shape") or (1,))
    rows = ONE
    for size in call.inputs[0].shape[: len(call.inputs[0].shape) - width]:
        rows = rows * size
    return rows


@operator("aten.native_layer_norm", "aten.layer_norm")
def layer_norm(call: Call) -> Cost:
    """mean n, subtract n, square n, mean n, divide n (5n); eps and root per row; scale n and shift n where present."""
    n, affine = call.inputs[0].numel, len(call.inputs) - 1
    return _cost(
        call, (5 + affine) * n + 2 * _rows(call),
        f"mean, subtract, square, mean, divide: 5 per element; eps and root per row; {affine} affine per element",
    )  # fmt: skip


@operator("aten.rms_norm", "aten._fused_rms_norm")
def rms_norm(call: Call) -> Cost:
    """square n, mean n, scale by 1/root n (3n); eps and root per row; weight n where present."""
    n, affine = call.inputs[0].numel, len(call.inputs) - 1
    return _cost(
        call, (3 + affine) * n + 2 * _rows(call),
        f"square, mean, scale: 3 per element; eps and root per row; {affine} affine per element",
    )  # fmt: skip


@operator("aten.native_group_norm", "aten.native_batch_norm", "aten._native_batch_norm_legit_no_training")
def group_norm(call: Call) -> Cost:
    """As layer norm: 5 per element and one more for scale and for shift."""
    affine = min(len(call.inputs) - 1, 2)
    return _cost(call, (5 + affine) * call.inputs[0].numel, "5 per element and the affine part")


# ---------------------------------------------------------------- products


def _product(call: Call, a: Tensor, extra: Formula = ZERO, why: str = "") -> Cost:
    """2 * (elements of the output) * (contracted length): `a` is (..., m, k)."""
    contracted = a.shape[-1]
    matmul = 2 * call.out * contracted
    return _cost(call, matmul + extra, "2 * m * n * k" + why, matmul)


@operator("aten.mm", "aten.bmm")
def mm(call: Call) -> Cost:
    """(m, k) @ (k, n): 2*m*n*k, per batch entry."""
    return _product(call, call.inputs[0])


@operator("aten.addmm", "aten.baddbmm")
def addmm(call: Call) -> Cost:
    """beta * bias + alpha * (a @ b): the product, an add per output element, and a multiply for a beta or alpha not 0 or 1."""
    extra = ZERO
    beta, alpha = call.arguments.get("beta", 1), call.arguments.get("alpha", 1)
    if beta != 0:
        extra = extra + call.out + (call.out if beta != 1 else ZERO)
    if alpha != 1:
        extra = extra + call.out
    return _product(call, call.inputs[1], extra, " and the bias add")


@operator("aten.mv", "aten.dot", "aten.vdot")
def mv(call: Call) -> Cost:
    """(m, k) @ (k): 2*m*k."""
    return _product(call, call.inputs[0])


@operator("aten.linear")
def linear(call: Call) -> Cost:
    """x @ W^T + b: 2*m*n*k and an add per output element where there is a bias."""
    bias = call.out if len(call.inputs) > 2 else ZERO
    return _product(call, call.inputs[0], bias, " and the bias add" if bias is not ZERO else "")


@operator("aten.convolution", "aten._convolution", "aten.conv1d", "aten.conv2d", "aten.conv3d")
def convolution(call: Call) -> Cost:
    """2 * output elements * (input channels per group * kernel volume); transposed: 2 * input elements * weight per input channel."""
    x, w = call.inputs[0], call.inputs[1]
    taps = ONE
    for size in w.shape[1:]:
        taps = taps * size
    positions = x.numel if call.arguments.get("transposed") else call.out
    matmul = 2 * positions * taps
    bias = call.out if len(call.inputs) > 2 else ZERO
    return _cost(
        call, matmul + bias, "2 * positions * taps" + (" and the bias add" if len(call.inputs) > 2 else ""), matmul
    )


@operator("aten._grouped_mm", "transformers.grouped_mm_fallback")
def grouped_mm(call: Call) -> Cost:
    """Rows of (rows, k) each meet one of the experts' (k, n): 2*rows*k*n. Only experts that rows can reach are read."""
    x, w = call.inputs[0], call.inputs[1]
    matmul = 2 * call.out * x.shape[-1]
    touched = Formula.minimum(w.shape[0], x.shape[0])
    per_expert = ONE
    for size in w.shape[1:]:
        per_expert = per_expert * size
    read = x.bytes + touched * per_expert * w.element
    for other in call.inputs[2:]:
        read = read + other.bytes
    return Cost(matmul, matmul, read, moved(call)[1], "2 * rows * k * n; weights of min(experts, rows) experts read")


@operator("opscope.sdpa")
def sdpa(call: Call) -> Cost:
    """softmax(scale * q @ k^T + mask) @ v, dense. Per score: 2*d (q k), 1 scale, 3 softmax, 1 for an additive mask, 2*dv (p v).

    q is (batch, heads, q_len, d), k (batch, kv_heads, kv_len, d), v (..., dv): heads are q's, kv heads are shared.
    """
    q, k, v = call.inputs[:3]
    scores = ONE
    for size in q.shape[:-1]:
        scores = scores * size
    scores = scores * k.shape[-2]
    per_score = q.shape[-1] + v.shape[-1]
    matmul = 2 * scores * per_score
    additive = len(call.inputs) > 3 and call.inputs[3].dtype != "bool"
    flops = matmul + (5 if additive else 4) * scores
    saving = ZERO
    if call.arguments.get("causal"):
        pairs = q.shape[-2] * (q.shape[-2] - 1)  # twice the pairs above the diagonal
        rows = ONE
        for size in q.shape[:-2]:
            rows = rows * size
        saving = rows * pairs * per_score
    read, write = moved(call)
    return Cost(
        flops, matmul, read, write,
        "2 * scores * (d + dv), and per score: scale 1, softmax 3" + (", mask 1" if additive else ""),
        causal_saving=saving,
    )  # fmt: skip


# ---------------------------------------------------------------- gathers and scatters: the rows touched


@operator("aten.embedding", "aten.index_select")
def embedding(call: Call) -> Cost:
    """Reads its indices and the rows that they name, writes them."""
    table, indices = call.inputs[0], call.inputs[-1]
    return Cost(
        read=call.out * table.element + indices.bytes,
        write=moved(call)[1],
        derivation="the rows gathered and the indices",
    )


@operator("aten.gather", "aten.index", "aten.take_along_dim", "aten.take")
def gather(call: Call) -> Cost:
    """Reads one element per output element, and the indices."""
    read, seen = call.out * call.inputs[0].element, set()
    for index in call.inputs[1:]:
        if index.key not in seen:
            seen.add(index.key)
            read = read + index.bytes
    return Cost(read=read, write=moved(call)[1], derivation="the elements gathered and the indices")


def _scatter(call: Call, adds: bool) -> Cost:
    """Reads source and indices; writes the elements named. The functional form also copies its input."""
    target, rest = call.inputs[0], list(call.inputs[1:])
    source = max(rest, key=lambda t: len(t.shape), default=target) if rest else target
    count = source.numel
    read = ZERO
    for tensor in rest:
        read = read + tensor.bytes
    write = count * target.element
    if adds:
        read = read + count * target.element
    if not call.name.endswith("_"):
        read, write = read + target.bytes, moved(call)[1]
    return Cost(count if adds else ZERO, ZERO, read, write, "the elements scattered" + (", 1 add each" if adds else ""))


@operator("aten.scatter", "aten.scatter_", "aten.index_put", "aten.index_put_", "aten.index_copy", "aten.index_copy_",
          "aten._index_put_impl_", "aten.masked_scatter", "aten.masked_scatter_", "aten.slice_scatter", "aten.select_scatter")  # fmt: skip
def scatter(call: Call) -> Cost:
    """Elements written by index: 0 FLOPs."""
    return _scatter(call, adds=False)


@operator(
    "aten.scatter_add",
    "aten.scatter_add_",
    "aten.index_add",
    "aten.index_add_",
    "aten.scatter_reduce",
    "aten.scatter_reduce_",
)
def scatter_add(call: Call) -> Cost:
    """Elements accumulated by index: 1 add each."""
    return _scatter(call, adds=True)
