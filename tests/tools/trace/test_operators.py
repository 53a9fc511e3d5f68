"""Cost rules against definitions that count themselves, and against the sizes of real tensors.

FLOPs: each operator's definition is written out in plain Python over numbers that count every multiply, add and
transcendental done with them; its result must be the operator's own, so it is the definition, and the rule must say
what was counted. Bytes: what the operator's real arguments and results occupy.

Order: numbers that count; definitions by class of operators; bytes; the registry.
"""

from __future__ import annotations

import cmath
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from opscope_schemas.formula import Formula
from opscope_tools.trace import operators
from opscope_tools.trace.operators import Call, Cost, Tensor, spectral
from opscope_tools.trace.operators.types import not_counted

aten = torch.ops.aten
NP = Any  # arrays of numbers that count; numpy has no type for arrays of objects


# ---------------------------------------------------------------- numbers that count


class Counted:
    """A number; `flops` counts what was done with all of them, `products` the part done inside `product`."""

    flops: ClassVar[int] = 0
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def _do(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        if isinstance(other, np.ndarray):
            return NotImplemented  # numpy does it element by element
        Counted.flops += 1
        return Counted(function(self.value, other.value if isinstance(other, Counted) else other))

    def __add__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: a * b)

    def __truediv__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: a / b)

    def __rtruediv__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: b / a)

    def __pow__(self, other: Any) -> Any:
        return self._do(other, lambda a, b: a**b)

    def __neg__(self) -> Any:
        return self._do(0, lambda a, _: -a)

    __radd__, __rmul__ = __add__, __mul__


def function(compute: Callable[[float], float]) -> Any:
    """A transcendental: 1 per element."""
    return np.frompyfunc(lambda x: x._do(0, lambda value, _: compute(value)), 1, 1)


exp, log, sqrt, tanh, erf = (function(f) for f in (math.exp, math.log, math.sqrt, math.tanh, math.erf))
absolute, sin, cos = function(abs), function(math.sin), function(math.cos)


def square(x: Any) -> Any:
    return x * x


def counted(tensor: torch.Tensor) -> NP:
    return np.frompyfunc(Counted, 1, 1)(tensor.numpy()) if tensor.dim() else np.array(Counted(tensor.item()), object)


def values(array: Any) -> torch.Tensor:
    flat = np.asarray(array, object).reshape(-1)
    return torch.tensor([getattr(x, "value", x) for x in flat], dtype=torch.float64).reshape(np.shape(array))


def zeros(*shape: int) -> NP:
    """Accumulators: the first addition to them counts, as in a fused multiply-add."""
    made = np.empty(shape, object)
    for at in np.ndindex(*shape):
        made[at] = Counted(0.0)
    return made


def accumulated(x: NP, axis: int = -1) -> NP:
    """A sum of n that counts n adds."""
    x = np.moveaxis(x, axis, -1)
    out = zeros(*x.shape[:-1])
    for i in range(x.shape[-1]):
        out = out + x[..., i]
    return out


def mean(x: NP, axis: int = -1, less: int = 0) -> NP:
    """A mean of n: n - 1 adds and a division."""
    return np.add.reduce(x, axis=axis) / float(x.shape[axis] - less)


def weighted(taps: NP, weights: Any) -> Any:
    """A weighted mean: t multiplies and t - 1 adds."""
    return np.add.reduce([tap * float(w) for tap, w in zip(taps, weights, strict=True)])


class Products:
    """Matrix products, and how many FLOPs they were."""

    flops = 0

    def __call__(self, a: NP, b: NP) -> NP:
        """(..., m, k) @ (..., k, n), each entry from 0."""
        before = Counted.flops
        out = zeros(*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
        for i in range(a.shape[-1]):
            out = out + a[..., :, i : i + 1] * b[..., i : i + 1, :]
        Products.flops += Counted.flops - before
        return out


matmul = Products()


# ---------------------------------------------------------------- calls of real operators


def tensor_of(tensor: torch.Tensor) -> Tensor:
    stored = math.prod(n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
    number = Formula.const
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Tensor(tuple(map(number, tensor.shape)), dtype, number(tensor.element_size()), number(stored), key=key)


def leaves(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)


def called(name: str, inputs: Any, outputs: Any, **arguments: Any) -> Cost:
    call = Call(name, [tensor_of(t) for t in leaves(inputs)], [tensor_of(t) for t in leaves(outputs)], arguments)
    found = operators.cost_of(call)
    assert found is not None, f"{name} has no cost"
    return found


def ran(overload: Any, *args: Any, **kwargs: Any) -> tuple[Any, Cost]:
    """Run an operator, and ask its rule about the run."""
    with torch.no_grad():
        result = overload(*args, **kwargs)
    named = {d.name: v for d, v in zip(overload._schema.arguments, args, strict=False)} | kwargs
    name = overload._schema.name.replace("::", ".")
    others = {k: v for k, v in named.items() if not isinstance(v, torch.Tensor)}
    return result, called(name, list(named.values()), result, **others)


def number(formula: Formula) -> int:
    return formula.evaluate({})


def counting(define: Callable[[], Any]) -> tuple[Any, int, int]:
    """The definition's result, its FLOPs and those of its matrix products."""
    Counted.flops = Products.flops = 0
    result = define()
    return result, Counted.flops, Products.flops


def check(result: torch.Tensor, cost: Cost, define: Callable[[], Any]) -> None:
    """The definition computes what the operator computed, with the FLOPs that the rule says."""
    expected, flops, products = counting(define)
    torch.testing.assert_close(result.double(), values(expected).reshape(result.shape), rtol=2e-4, atol=2e-4)
    assert (number(cost.flops), number(cost.matmul_flops)) == (flops, products)


def rand(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed + sum(shape))) * (high - low) + low


# ---------------------------------------------------------------- elementwise

X, Y, Z = rand(3, 4), rand(3, 4, seed=1), rand(3, 4, seed=2)
P, Q = rand(3, 4, low=0.1, high=0.9), rand(4, seed=3, low=0.1, high=0.9)
NEGATIVE = -P


def sigmoid(x: Any) -> Any:
    return 1.0 / (exp(-x) + 1.0)


def tanh_gelu(x: Any) -> Any:
    return x * 0.5 * (tanh((x**3 * 0.044715 + x) * math.sqrt(2 / math.pi)) + 1.0)


def _name(value: object) -> str:
    """What a case is called: alike in every process, so no address of a function."""
    return getattr(value, "__name__", "") if callable(value) and not hasattr(value, "_schema") else str(value)[:30]


ELEMENTWISE: list[tuple[Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]]] = [
    (aten.add.Tensor, (X, Q), {}, lambda x, q: x + q),
    (aten.add.Tensor, (X, Y), {"alpha": 3}, lambda x, y: x + y * 3.0),
    (aten.rsub.Scalar, (X, 2.0, 3), {}, lambda x: 2.0 - x * 3.0),
    (aten.mul.Tensor, (X, Q), {}, lambda x, q: x * q),
    (aten.div.Tensor, (X, P), {}, lambda x, p: x / p),
    (aten.reciprocal.default, (P,), {}, lambda p: 1.0 / p),
    (aten.square.default, (X,), {}, square),
    (aten.abs.default, (X,), {}, absolute),
    (aten.rrelu_with_noise.default, (NEGATIVE, P, 0.25, 0.25), {}, lambda x, _: x * 0.25),
    (aten.sigmoid.default, (X,), {}, sigmoid),
    (aten.silu.default, (X,), {}, lambda x: x * sigmoid(x)),
    (aten.gelu.default, (X,), {}, lambda x: x / 2.0 * (erf(x * 0.5**0.5) + 1.0)),
    (aten.gelu.default, (X,), {"approximate": "tanh"}, tanh_gelu),
    (aten.glu.default, (X, 1), {}, lambda x: x[:, :2] * sigmoid(x[:, 2:])),
    (aten.mish.default, (X,), {}, lambda x: x * tanh(log(exp(x) + 1.0))),
    (aten.softplus.default, (X,), {}, lambda x: log(exp(x) + 1.0)),
    (aten.softplus.default, (X, 2.0), {}, lambda x: log(exp(x * 2.0) + 1.0) / 2.0),
    (aten.elu.default, (NEGATIVE,), {}, lambda x: exp(x) - 1.0),
    (aten.elu.default, (NEGATIVE, 1.5, 2.0, 0.5), {}, lambda x: (exp(x * 0.5) - 1.0) * 1.5 * 2.0),
    (aten.leaky_relu.default, (NEGATIVE, 0.1), {}, lambda x: x * 0.1),
    (aten._prelu_kernel.default, (NEGATIVE, Q), {}, lambda x, q: x * q),
    (aten.softshrink.default, (P + 1, 0.5), {}, lambda x: x - 0.5),
    (aten.hardsigmoid.default, (X,), {}, lambda x: x / 6.0 + 0.5),
    (aten.hardswish.default, (X,), {}, lambda x: x * (x + 3.0) / 6.0),
    (aten.logit.default, (P,), {}, lambda p: log(p / (1.0 - p))),
    (aten.addcmul.default, (X, Y, Z), {}, lambda x, y, z: x + y * z),
    (aten.addcmul.default, (X, Y, Z), {"value": 2}, lambda x, y, z: x + y * z * 2.0),
    (aten.addcdiv.default, (X, Y, P), {}, lambda x, y, p: x + y / p),
    (aten.lerp.Tensor, (X, Y, P), {}, lambda x, y, p: x + p * (y - x)),
    (aten.logaddexp.default, (X, Y), {}, lambda x, y: log(exp(x) + exp(y))),
    (aten.xlogy.Tensor, (X, P), {}, lambda x, p: x * log(p)),
    (aten.sinc.default, (P,), {}, lambda p: sin(p * math.pi) / (p * math.pi)),
]


@pytest.mark.parametrize(("overload", "args", "kwargs", "define"), ELEMENTWISE, ids=_name)
def test_an_elementwise_operator_costs_its_definition(overload: Any, args: Any, kwargs: Any, define: Any) -> None:
    result, cost = ran(overload, *args, **kwargs)
    check(result, cost, lambda: define(*(counted(t) for t in leaves(args))))


def test_log_sigmoid_writes_its_buffer_too() -> None:
    result, cost = ran(aten.log_sigmoid_forward.default, X)
    check(result[0], cost, lambda: -log(exp(-counted(X)) + 1.0))
    assert number(cost.write) == sum(t.nbytes for t in result)


# ---------------------------------------------------------------- complex numbers


class Complex:
    """A complex number made of two that count."""

    def __init__(self, real: Any, imag: Any) -> None:
        self.real, self.imag = real, imag

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.real + other.real, self.imag + other.imag)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.real - other.real, self.imag - other.imag)

    def __mul__(self, other: Complex) -> Complex:
        real = self.real * other.real - self.imag * other.imag
        return Complex(real, self.real * other.imag + self.imag * other.real)

    def over(self, other: Complex) -> Complex:
        length = square(other.real) + square(other.imag)
        top_real = self.real * other.real + self.imag * other.imag
        top_imag = self.imag * other.real - self.real * other.imag
        return Complex(top_real / length, top_imag / length)

    def __getitem__(self, at: Any) -> Complex:
        return Complex(self.real[at], self.imag[at])


def outer(x: Complex, y: Complex) -> Complex:
    return x[:, None] * y[None]


def contracted(a: Complex, b: Complex) -> Complex:
    out = Complex(zeros(a.real.shape[0], b.real.shape[1]), zeros(a.real.shape[0], b.real.shape[1]))
    for i in range(a.real.shape[1]):
        out = out + outer(a[:, i], b[i])
    return out


U, V = torch.complex(X, Y), torch.complex(Z, P)
COMPLEX: list[tuple[Any, tuple[Any, ...], Callable[..., Any]]] = [
    (aten.add.Tensor, (U, V), lambda u, v: u + v),
    (aten.mul.Tensor, (U, V), lambda u, v: u * v),
    (aten.mul.Tensor, (U, P), lambda u, p: Complex(u.real * p, u.imag * p)),
    (aten.mul.Tensor, (U, 2.0), lambda u: Complex(u.real * 2.0, u.imag * 2.0)),
    (aten.div.Tensor, (U, V), lambda u, v: u.over(v)),
    (aten.div.Tensor, (U, P), lambda u, p: Complex(u.real / p, u.imag / p)),
    (aten.neg.default, (U,), lambda u: Complex(-u.real, -u.imag)),
    (aten.abs.default, (U,), lambda u: Complex(sqrt(square(u.real) + square(u.imag)), 0.0)),
    (aten.reciprocal.default, (U,), lambda u: Complex(u.real / (n := square(u.real) + square(u.imag)), -u.imag / n)),
    (aten.addr.default, (U, V[:, 0], V[0]), lambda u, v, w: u + outer(v, w)),
    (aten.addmm.default, (U, U[:, :3], V), lambda u, a, b: u + contracted(a, b)),
    (aten.addbmm.default, (U, U[None, :, :3], V[None]), lambda u, a, b: u + contracted(a[0], b[0])),
    (aten.exp.default, (U,), lambda u: Complex((r := exp(u.real)) * cos(u.imag), r * sin(u.imag))),
    (aten.sum.default, (U,), lambda u: Complex(accumulated(u.real.reshape(1, -1)), accumulated(u.imag.reshape(1, -1)))),
    (aten.polar.default, (P, X), lambda r, x: Complex(r * cos(x), r * sin(x))),
]


@pytest.mark.parametrize(("overload", "args", "define"), COMPLEX, ids=_name)
def test_complex_arithmetic_costs_the_real_arithmetic_behind_it(overload: Any, args: Any, define: Any) -> None:
    def twins() -> Iterator[Any]:
        for tensor in leaves(args):
            yield Complex(counted(tensor.real), counted(tensor.imag)) if tensor.is_complex() else counted(tensor)

    result, cost = ran(overload, *args)
    expected, flops, _ = counting(lambda: define(*twins()))
    torch.testing.assert_close(result.real.double(), values(expected.real).reshape(result.shape), rtol=1e-4, atol=1e-4)
    if result.is_complex():
        torch.testing.assert_close(
            result.imag.double(), values(expected.imag).reshape(result.shape), rtol=1e-4, atol=1e-4
        )
    assert number(cost.flops) == flops


# ---------------------------------------------------------------- reductions, norms, softmax


def variance(x: NP, less: int = 1) -> NP:
    return mean(square(x - mean(x)[..., None]), less=less)


def softmax(x: NP) -> NP:
    e = exp(x)
    return e / accumulated(e)[..., None]


def layer_norm(x: NP) -> NP:
    off = x - mean(x)[..., None]
    return off / sqrt(mean(square(off)) + 1e-5)[..., None]


def batch_norm(x: NP, center: NP, spread: NP) -> NP:
    return (x - center[:, None]) / sqrt(spread + 1e-5)[:, None]


def own_statistics(x: NP) -> NP:
    flat = np.moveaxis(x, 1, 0).reshape(x.shape[1], -1)
    return np.moveaxis(layer_norm(flat).reshape(x.shape[1], x.shape[0], -1), 1, 0)


def weight_norm(v: NP, g: NP) -> NP:
    flat = v.reshape(v.shape[0], -1)
    return flat * (g.reshape(-1) / sqrt(accumulated(square(flat))))[:, None]


IMAGE, CENTER, SPREAD = rand(2, 4, 6), rand(4, seed=5), rand(4, seed=6, low=0.5, high=1.0)
W4, B4 = rand(4, seed=7), rand(4, seed=8)
REDUCTIONS: list[tuple[Any, tuple[Any, ...], Callable[..., Any]]] = [
    (aten.sum.dim_IntList, (X, [1]), accumulated),
    (aten.mean.dim, (X, [1]), mean),
    (aten.cumsum.default, (X, 1), lambda x: np.add.accumulate(np.concatenate([zeros(3, 1), x], 1), axis=1)[:, 1:]),
    (aten.var.correction, (X, [1]), variance),
    (aten.std.correction, (X, [1]), lambda x: sqrt(variance(x))),
    (aten.linalg_vector_norm.default, (X, 2, [1]), lambda x: sqrt(accumulated(square(x)))),
    (aten.linalg_vector_norm.default, (X, 1, [1]), lambda x: accumulated(absolute(x))),
    (aten.linalg_vector_norm.default, (X, 3, [1]), lambda x: accumulated(absolute(x) ** 3) ** (1 / 3)),
    (aten.logsumexp.default, (X, [1]), lambda x: log(accumulated(exp(x)))),
    (aten._softmax.default, (X, 1, False), softmax),
    (aten._log_softmax.default, (X, 1, False), lambda x: x - log(accumulated(exp(x)))[:, None]),
    (aten.native_layer_norm.default, (X, [4], W4, B4, 1e-5), lambda x, w, b: layer_norm(x) * w + b),
    (aten.native_layer_norm.default, (X, [4], W4, None, 1e-5), lambda x, w: layer_norm(x) * w),
    (aten.native_layer_norm.default, (X, [4], None, None, 1e-5), layer_norm),
    (aten._fused_rms_norm.default, (X, [4], W4, 1e-5), lambda x, w: x / sqrt(mean(square(x)) + 1e-5)[:, None] * w),
    (aten.native_group_norm.default, (IMAGE, W4, B4, 2, 4, 6, 2, 1e-5),
     lambda x, w, b: layer_norm(x.reshape(4, 12)).reshape(2, 4, 6) * w[:, None] + b[:, None]),
    (aten.native_batch_norm.default, (IMAGE, W4, B4, CENTER, SPREAD, False, 0.1, 1e-5),
     lambda x, w, b, m, v: batch_norm(x, m, v) * w[:, None] + b[:, None]),
    (aten.native_batch_norm.default, (IMAGE, None, None, CENTER, SPREAD, False, 0.1, 1e-5), batch_norm),
    (aten.native_batch_norm.default, (IMAGE, None, None, None, None, True, 0.1, 1e-5), own_statistics),
    (aten._weight_norm_interface.default, (rand(4, 3, 2), rand(4, 1, 1, seed=2)), weight_norm),
    (aten.mse_loss.default, (X, Y), lambda x, y: mean(square(x - y).reshape(1, -1))),
]  # fmt: skip


@pytest.mark.parametrize(("overload", "args", "define"), REDUCTIONS, ids=_name)
def test_a_reduction_or_norm_costs_its_definition(overload: Any, args: Any, define: Any) -> None:
    result, cost = ran(overload, *args)
    check(next(leaves(result)), cost, lambda: define(*(counted(t) for t in leaves(args))))


NEAR, TRUTH = X * 0.3, Y * 0.3
LOSSES: list[tuple[Any, tuple[Any, ...], Callable[..., Any]]] = [
    (aten.l1_loss.default, (X, Y), lambda x, y: absolute(x - y)),
    (aten.smooth_l1_loss.default, (NEAR, TRUTH), lambda x, y: [square(d := x - y) * 0.5, absolute(d)][0]),
    (aten.huber_loss.default, (NEAR, TRUTH), lambda x, y: [square(d := x - y) * 0.5, absolute(d)][0]),
    (aten.soft_margin_loss.default, (X, Y), lambda x, y: log(exp(-y * x) + 1.0)),
    (aten.kl_div.default, (X, P), lambda x, p: p * (log(p) - x)),
    (aten.binary_cross_entropy.default, (P, Q.expand(3, 4)), lambda p, q: -(q * log(p) + (1.0 - q) * log(1.0 - p))),
]


@pytest.mark.parametrize(("overload", "args", "define"), LOSSES, ids=_name)
def test_a_loss_costs_its_definition_and_the_mean(overload: Any, args: Any, define: Any) -> None:
    result, cost = ran(overload, *args)
    check(result, cost, lambda: mean(define(*(counted(t) for t in leaves(args))).reshape(1, -1)))


# ---------------------------------------------------------------- products and convolutions


def patches(x: NP, kernel: tuple[int, ...], stride: int, dilation: int) -> tuple[NP, tuple[int, ...]]:
    """The taps of every position, (batch, positions, channels * kernel), and the positions' shape."""
    sizes = [(n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], kernel, strict=True)]
    columns = []
    for at in np.ndindex(*sizes):
        window = tuple(
            slice(a * stride, a * stride + dilation * (k - 1) + 1, dilation) for a, k in zip(at, kernel, strict=True)
        )
        columns.append(x[(slice(None), slice(None), *window)].reshape(x.shape[0], -1))
    return np.stack(columns, 1), tuple(sizes)


def convolution(x: NP, w: NP, stride: int = 1, padding: int = 0, dilation: int = 1, groups: int = 1) -> NP:
    border = [(0, 0), (0, 0)] + [(padding, padding)] * (x.ndim - 2)
    zero: Any = Counted(0.0)
    x = np.pad(x, border, constant_values=zero)
    parts = []
    for part, weights in zip(np.split(x, groups, 1), np.split(w, groups, 0), strict=True):
        columns, sizes = patches(part, w.shape[2:], stride, dilation)
        out = matmul(columns, weights.reshape(weights.shape[0], -1).T)
        parts.append(np.moveaxis(out, -1, 1).reshape(x.shape[0], -1, *sizes))
    return np.concatenate(parts, 1)


def transposed(x: NP, w: NP, stride: int) -> NP:
    """Each input element, times its weights, added into the output: (in, out, kernel), one dimension."""
    out = zeros(x.shape[0], w.shape[1], (x.shape[2] - 1) * stride + w.shape[2])
    for i in range(x.shape[2]):
        for c in range(x.shape[1]):
            window = slice(i * stride, i * stride + w.shape[2])
            before = Counted.flops
            out[:, :, window] = out[:, :, window] + x[:, c, i][:, None, None] * w[c][None]
            Products.flops += Counted.flops - before
    return out


def bilinear(x: NP, w: NP, y: NP) -> NP:
    out = zeros(x.shape[0], w.shape[0])
    for i, j in np.ndindex(*w.shape[1:]):
        left, before = x[:, i, None] * w[None, :, i, j], Counted.flops
        out = out + left * y[:, j, None]
        Products.flops += Counted.flops - before
    return out


A34, A45, A35 = rand(3, 4), rand(4, 5), rand(3, 5)
BATCH_A, BATCH_B = rand(2, 3, 4), rand(2, 4, 5)
ROW, SQUARES = rand(2, 4, 9), rand(2, 4, 6, 5)
PRODUCTS: list[tuple[Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]]] = [
    (aten.mm.default, (A34, A45), {}, matmul),
    (aten.bmm.default, (BATCH_A, BATCH_B), {}, matmul),
    (aten.mv.default, (A34, Q), {}, lambda a, x: matmul(a, x[:, None])),
    (aten.dot.default, (Q, W4), {}, lambda x, y: matmul(x[None], y[:, None])),
    (aten.addmm.default, (A35, A34, A45), {}, lambda c, a, b: c + matmul(a, b)),
    (aten.addmm.default, (A35, A34, A45), {"beta": 0}, lambda _, a, b: matmul(a, b)),
    (aten.baddbmm.default, (rand(2, 3, 5), BATCH_A, BATCH_B), {"beta": 2, "alpha": 3}, lambda c, a, b: c * 2.0 + matmul(a, b) * 3.0),
    (aten.addbmm.default, (A35, BATCH_A, BATCH_B), {},
     lambda c, a, b: c + matmul(np.concatenate(list(a), 1), np.concatenate(list(b), 0))),
    (aten.addmv.default, (A34[:, 0], A34, Q), {}, lambda c, a, x: c + matmul(a, x[:, None])[:, 0]),
    (aten.addr.default, (A45, Q, A35[0]), {}, lambda c, x, y: c + x[:, None] * y[None]),
    (aten._trilinear.default, (A34[:, None, :, None].reshape(3, 4), rand(2, 4, 5), A35, [1, 3], [0], [1, 2], [2, 3]), {}, bilinear),
    (aten.convolution.default, (ROW, rand(6, 4, 3), rand(6), [1], [0], [1], False, [0], 1), {},
     lambda x, w, b: convolution(x, w) + b[:, None]),
    (aten.convolution.default, (SQUARES, rand(6, 4, 3, 2), None, [2, 2], [1, 1], [1, 1], False, [0, 0], 1), {},
     lambda x, w: convolution(x, w, stride=2, padding=1)),
    (aten.convolution.default, (SQUARES, rand(8, 2, 2, 2), None, [1, 1], [0, 0], [2, 2], False, [0, 0], 2), {},
     lambda x, w: convolution(x, w, dilation=2, groups=2)),
    (aten.convolution.default, (ROW, rand(4, 1, 4), None, [1], [3], [1], False, [0], 4), {},
     lambda x, w: convolution(x, w, padding=3, groups=4)),  # depthwise
    (aten.convolution.default, (rand(1, 2, 4, 4, 3), rand(3, 2, 2, 2, 2), None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1), {},
     convolution),
    (aten.convolution.default, (ROW, rand(4, 3, 5), None, [2], [0], [1], True, [0], 1), {},
     lambda x, w: transposed(x, w, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("overload", "args", "kwargs", "define"), PRODUCTS, ids=_name)
def test_a_product_costs_its_multiplies_and_adds(overload: Any, args: Any, kwargs: Any, define: Any) -> None:
    result, cost = ran(overload, *args, **kwargs)
    check(result, cost, lambda: define(*(counted(t) for t in leaves(args))))


def test_a_complex_product_costs_8_per_multiply_add() -> None:
    _, cost = ran(aten.mm.default, torch.complex(A34, A34), torch.complex(A45, A45))
    one = counting(
        lambda: (
            Complex(Counted(1.0), Counted(2.0)) * Complex(Counted(3.0), Counted(4.0))
            + Complex(Counted(0.0), Counted(0.0))
        )
    )[1]
    assert number(cost.matmul_flops) == number(cost.flops) == one * 3 * 4 * 5


@pytest.mark.parametrize(
    ("name", "inputs", "per_output", "once"),
    [
        ("aten._int_mm", [A34, A45], 0, 0),
        ("aten._scaled_mm", [A34, A45, torch.ones(1), torch.ones(1) + 1], 2, 0),
        ("aten._scaled_mm", [A34, A45, torch.ones(1), torch.ones(1) + 1, rand(5)], 3, 0),  # two scales and the bias
        ("aten._weight_int8pack_mm", [A34, A45.T, rand(5)], 1, 0),
        ("aten._weight_int4pack_mm", [A34, A45.T, rand(5)], 0, 2 * 4 * 5),  # a scale and a shift per weight
    ],
)
def test_a_product_of_low_precision_costs_its_scales_too(name: str, inputs: Any, per_output: int, once: int) -> None:
    cost = called(name, inputs, A35)
    assert number(cost.matmul_flops) == counting(lambda: matmul(counted(A34), counted(A45)))[2]
    assert number(cost.flops) - number(cost.matmul_flops) == per_output * 15 + once


def attention(q: NP, k: NP, v: NP, mask: NP | None = None) -> NP:
    scores = matmul(q, np.swapaxes(k, -1, -2)) * float(q.shape[-1] ** -0.5)
    return matmul(softmax(scores if mask is None else scores + mask), v)


QUERY, KEY, VALUE, MASK = rand(2, 3, 4, 8), rand(2, 3, 5, 8), rand(2, 3, 5, 8, seed=4), rand(1, 1, 4, 5)


@pytest.mark.parametrize("mask", [None, MASK])
def test_fused_attention_costs_its_products_scale_mask_and_softmax(mask: torch.Tensor | None) -> None:
    result, cost = ran(aten._scaled_dot_product_flash_attention_for_cpu.default, QUERY, KEY, VALUE, attn_mask=mask)
    given = [counted(t) for t in leaves((QUERY, KEY, VALUE, mask))]
    check(result[0], cost, lambda: attention(*given))
    assert number(cost.read) == sum(t.nbytes for t in leaves((QUERY, KEY, VALUE, mask)))
    assert number(cost.write) == sum(t.nbytes for t in leaves(result))


def test_attention_by_token_and_packed_costs_the_same_as_by_head() -> None:
    by_head = called("opscope.sdpa", [QUERY, KEY, VALUE], QUERY)
    swapped = [t.transpose(1, 2).contiguous() for t in (QUERY, KEY, VALUE)]
    ends = torch.zeros(3, dtype=torch.int32)
    packed = [t.reshape(-1, 3, 8) for t in swapped]  # two sequences of 4 queries and 5 keys
    for name, inputs, more in (
        ("aten._flash_attention_forward", swapped, {}),
        ("aten._efficient_attention_forward", swapped, {"bias": None}),
        ("flash_attn._flash_attn_forward", swapped, {}),
        ("aten._flash_attention_forward", [*packed, ends, ends], {"max_k": 5}),
        ("flash_attn._flash_attn_varlen_forward", [*packed, ends, ends], {"max_seqlen_k": 5}),
    ):
        cost = called(name, inputs, inputs[0], **more)
        assert (cost.flops, cost.matmul_flops) == (by_head.flops, by_head.matmul_flops), name


def test_the_causal_saving_is_the_products_of_the_pairs_above_the_diagonal() -> None:
    q = rand(2, 3, 6, 8)
    cost = called("opscope.sdpa", [q, q, q], q, causal=True)
    pairs = sum(key > query for query in range(6) for key in range(6))
    assert number(cost.causal_saving) == 2 * 3 * pairs * (2 * 8 + 2 * 8)


def test_products_of_experts_read_the_experts_that_rows_reach() -> None:
    x, w, ends = rand(3, 4), rand(7, 4, 5), torch.zeros(7, dtype=torch.int32)
    cost = called("aten._grouped_mm", [x, w, ends], rand(3, 5))
    assert number(cost.matmul_flops) == 2 * 3 * 4 * 5
    assert number(cost.read) == x.nbytes + w[:3].nbytes + ends.nbytes


# ---------------------------------------------------------------- pools, interpolation, sampling


def linear_taps(size: int, wanted: int) -> list[tuple[list[int], list[float]]]:
    """By output place: the taps and their weights, corners not aligned."""
    places = [max((i + 0.5) * size / wanted - 0.5, 0.0) for i in range(wanted)]
    return [([(low := int(p)), min(low + 1, size - 1)], [1 - (p - low), p - low]) for p in places]


def cubic_weights(t: float, a: float = -0.75) -> list[float]:
    def near(d: float) -> float:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: float) -> float:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def cubic_taps(size: int, wanted: int) -> list[tuple[list[int], list[float]]]:
    found = []
    for i in range(wanted):
        place = (i + 0.5) * size / wanted - 0.5
        low = math.floor(place)
        found.append(([min(max(low + k, 0), size - 1) for k in (-1, 0, 1, 2)], cubic_weights(place - low)))
    return found


def interpolated(x: NP, sizes: tuple[int, ...], taps: Any) -> NP:
    """Dimension by dimension for each output element on its own, as the kernels do it."""
    where = [taps(n, m) for n, m in zip(x.shape[2:], sizes, strict=True)]

    def at(block: NP, chosen: list[tuple[list[int], list[float]]]) -> Any:
        if not chosen:
            return block
        (places, weights), *rest = chosen
        return weighted([at(block[:, :, place], rest) for place in places], weights)

    out = np.empty((*x.shape[:2], *sizes), object)
    for index in np.ndindex(*sizes):
        out[(slice(None), slice(None), *index)] = at(x, [taps[i] for taps, i in zip(where, index, strict=True)])
    return out


def pooled(x: NP, windows: list[list[tuple[int, int]]]) -> NP:
    """The mean of each window; `windows` by dimension: from, to."""
    out = np.empty((*x.shape[:2], *(len(w) for w in windows)), object)
    for index in np.ndindex(*(len(w) for w in windows)):
        block = x[(slice(None), slice(None), *(slice(*w[i]) for w, i in zip(windows, index, strict=True)))]
        out[(slice(None), slice(None), *index)] = mean(block.reshape(*x.shape[:2], -1))
    return out


def every(size: int, kernel: int, stride: int) -> list[tuple[int, int]]:
    return [(i, i + kernel) for i in range(0, size - kernel + 1, stride)]


def adaptive(size: int, wanted: int) -> list[tuple[int, int]]:
    return [(i * size // wanted, -(-(i + 1) * size // wanted)) for i in range(wanted)]


def folded(columns: NP) -> NP:
    """Columns of a 2 x 2 kernel put back into a 4 x 5 image, from zero."""
    out = zeros(1, 2, 4, 5)
    blocks = columns.reshape(1, 2, 2, 2, 3, 4)
    for i, j in np.ndindex(2, 2):
        out[:, :, i : i + 3, j : j + 4] = out[:, :, i : i + 3, j : j + 4] + blocks[:, :, i, j]
    return out


LINE, PLANE, SPACE = rand(1, 2, 5), rand(1, 2, 4, 5), rand(1, 2, 3, 4, 2)
IMAGES: list[tuple[Any, tuple[Any, ...], Callable[..., Any]]] = [
    (aten.avg_pool2d.default, (PLANE, [2, 3], [1, 2]), lambda x: pooled(x, [every(4, 2, 1), every(5, 3, 2)])),
    (aten.avg_pool2d.default, (PLANE, [2]), lambda x: pooled(x, [every(4, 2, 2), every(5, 2, 2)])),
    (aten.avg_pool3d.default, (SPACE, [2], [1]), lambda x: pooled(x, [every(n, 2, 1) for n in (3, 4, 2)])),
    (aten._adaptive_avg_pool2d.default, (PLANE, [2, 3]), lambda x: pooled(x, [adaptive(4, 2), adaptive(5, 3)])),
    (aten._adaptive_avg_pool2d.default, (PLANE, [7, 1]), lambda x: pooled(x, [adaptive(4, 7), adaptive(5, 1)])),
    (
        aten._adaptive_avg_pool3d.default,
        (SPACE, [2, 6, 2]),
        lambda x: pooled(x, [adaptive(3, 2), adaptive(4, 6), adaptive(2, 2)]),
    ),
    (aten.upsample_linear1d.default, (LINE, [7], False), lambda x: interpolated(x, (7,), linear_taps)),
    (aten.upsample_bilinear2d.default, (PLANE, [7, 3], False), lambda x: interpolated(x, (7, 3), linear_taps)),
    (aten.upsample_trilinear3d.default, (SPACE, [4, 3, 5], False), lambda x: interpolated(x, (4, 3, 5), linear_taps)),
    (aten.upsample_bicubic2d.default, (PLANE, [6, 7], False), lambda x: interpolated(x, (6, 7), cubic_taps)),
    (aten.col2im.default, (rand(1, 8, 12), [4, 5], [2, 2], [1, 1], [0, 0], [1, 1]), folded),
]


@pytest.mark.parametrize(("overload", "args", "define"), IMAGES, ids=_name)
def test_an_image_operator_costs_its_taps(overload: Any, args: Any, define: Any) -> None:
    result, cost = ran(overload, *args)
    check(result, cost, lambda: define(*(counted(t) for t in leaves(args))))


def test_an_adaptive_pool_of_an_unknown_size_agrees_with_every_size() -> None:
    size, element = Formula.var("image_height"), Formula.const(4)
    x = Tensor((Formula.const(1), Formula.const(1), size), "float32", element, size)
    for wanted in (1, 6, 7):
        out = Tensor((*x.shape[:2], Formula.const(wanted)), "float32", element, Formula.const(wanted))
        cost = operators.cost_of(Call("aten.adaptive_avg_pool1d", [x], [out]))
        assert cost is not None
        for known in range(1, 40):
            inside = sum(end - start for start, end in adaptive(known, wanted))
            assert cost.flops.evaluate({"image_height": known}) == inside, (known, wanted)


def test_antialiased_interpolation_takes_as_many_taps_as_it_shrinks() -> None:
    """A third of the size: 2 * 3 taps of a linear kernel inside the image; borders, where it takes fewer, count whole."""
    line = torch.eye(30).reshape(30, 1, 1, 30)
    result, _ = ran(aten._upsample_bilinear2d_aa.default, line, [1, 10], False)
    taps = int((result.abs() > 1e-9).sum(0).max())
    assert taps in (5, 6)  # of 6 in reach, one may have the weight 0
    _, cost = ran(aten._upsample_bilinear2d_aa.default, rand(1, 1, 1, 30), [1, 10], False)
    assert number(cost.flops) == 10 * (2 * 6 - 1) + 10 * (2 * 2 - 1)


def coordinate(g: Any, size: int) -> Any:
    return ((g + 1.0) * float(size) - 1.0) / 2.0


def sampled(x: NP, grid: NP) -> NP:
    """Linear sampling of a plane, zeros outside; weights by product, as the kernel takes them."""
    out = np.empty((*x.shape[:2], *grid.shape[1:3]), object)
    for i, j in np.ndindex(*grid.shape[1:3]):
        (column, row) = (coordinate(g, n) for g, n in zip(grid[0, i, j], (x.shape[3], x.shape[2]), strict=True))
        lows = [math.floor(p.value) for p in (row, column)]
        near = [(p - float(low), (Counted(float(low)) + 1.0) - p) for p, low in zip((row, column), lows, strict=True)]
        terms = []
        for down, right in np.ndindex(2, 2):
            weight = near[0][1 - down] * near[1][1 - right]
            at = (lows[0] + down, lows[1] + right)
            inside = 0 <= at[0] < x.shape[2] and 0 <= at[1] < x.shape[3]
            terms.append((x[:, :, at[0], at[1]] if inside else zeros(*x.shape[:2])) * weight)
        out[:, :, i, j] = np.add.reduce(terms)
    return out


def test_sampling_at_places_costs_coordinates_weights_and_taps() -> None:
    grid = rand(1, 3, 2, 2, low=-1.1, high=1.1)
    result, cost = ran(aten.grid_sampler_2d.default, PLANE, grid, 0, 0, False)
    check(result, cost, lambda: sampled(counted(PLANE), counted(grid)))
    nearest = ran(aten.grid_sampler_2d.default, PLANE, grid, 1, 0, False)[1]
    assert number(nearest.flops) == counting(lambda: [coordinate(g, 4) for g in counted(grid).reshape(-1)])[1]


def test_a_bin_of_a_region_is_the_mean_of_its_samples() -> None:
    """With a ratio of 2: 4 samples of 4 weighted neighbours each."""
    neighbours = counted(rand(4))
    sample = counting(lambda: weighted(neighbours, [0.25] * 4))[1]
    bins = rand(3, 2, 7, 7)
    cost = called("torchvision.roi_align", [IMAGE, rand(3, 5)], bins, sampling_ratio=2)
    assert number(cost.flops) == bins.numel() * (4 * sample + counting(lambda: mean(neighbours))[1])


# ---------------------------------------------------------------- recurrent layers


def lstm_step(x: NP, h: NP, c: NP, w: list[NP]) -> tuple[NP, NP]:
    gates = matmul(x, w[0].T) + matmul(h, w[1].T)
    for bias in w[2:4]:
        gates = gates + bias
    i, f, g, o = np.split(gates, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * tanh(g)
    h = sigmoid(o) * tanh(c)
    return (matmul(h, w[4].T) if len(w) == 5 else h), c


def gru_step(x: NP, h: NP, c: NP, w: list[NP]) -> tuple[NP, NP]:
    of_x, of_h = matmul(x, w[0].T) + w[2], matmul(h, w[1].T) + w[3]
    (xr, xz, xn), (hr, hz, hn) = np.split(of_x, 3, 1), np.split(of_h, 3, 1)
    r, z = sigmoid(xr + hr), sigmoid(xz + hz)
    n = tanh(xn + r * hn)
    return (1.0 - z) * n + z * h, c


def tanh_step(x: NP, h: NP, c: NP, w: list[NP]) -> tuple[NP, NP]:
    return tanh((matmul(x, w[0].T) + w[2]) + (matmul(h, w[1].T) + w[3])), c


def unrolled(step: Any, layers: list[list[list[NP]]], x: NP, states: list[NP]) -> NP:
    """Layers of one or two directions over (steps, batch, K); `states` are h and, of an LSTM, c."""
    for layer, directions in enumerate(layers):
        sides = []
        for d, weights in enumerate(directions):
            h, c = (s[layer * len(directions) + d] for s in (states[0], states[-1]))
            made = []
            for t in range(x.shape[0]) if d == 0 else reversed(range(x.shape[0])):
                h, c = step(x[t], h, c, weights)
                made.append(h)
            sides.append(np.stack(made if d == 0 else made[::-1]))
        x = np.concatenate(sides, -1)
    return x


@pytest.mark.parametrize(
    ("kind", "step", "options"),
    [
        ("lstm", lstm_step, {"num_layers": 2, "bidirectional": True}),
        ("lstm", lstm_step, {"bias": False}),
        ("lstm", lstm_step, {"proj_size": 2, "num_layers": 2}),
        ("gru", gru_step, {"num_layers": 2}),
        ("gru", gru_step, {"bidirectional": True}),
        ("rnn_tanh", tanh_step, {}),
    ],
)
def test_a_recurrent_layer_costs_its_steps(kind: str, step: Any, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn_tanh": torch.nn.RNN}[kind](3, 4, **options)
    parameters = [p.detach() for p in module.parameters()]
    directions = 2 if module.bidirectional else 1
    per_direction = len(parameters) // (module.num_layers * directions)
    x = rand(3, 2, 3)
    widths = [module.proj_size or 4, 4][: 2 if kind == "lstm" else 1]
    states = [torch.zeros(module.num_layers * directions, 2, width) for width in widths]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # which library does not support projections
        result = module(x, tuple(states) if kind == "lstm" else states[0])
    cost = called(f"aten.{kind}", [x, states, parameters], result)

    def define() -> NP:
        flat = [counted(p) for p in parameters]
        each = [flat[i : i + per_direction] for i in range(0, len(flat), per_direction)]
        layers = [each[i : i + directions] for i in range(0, len(each), directions)]
        return unrolled(step, layers, counted(x), [counted(s) for s in states])

    check(result[0], cost, define)
    assert number(cost.read) == sum(t.nbytes for t in leaves([x, states, parameters]))


def test_the_layer_of_the_cpu_library_costs_what_the_general_one_does() -> None:
    x, states = rand(3, 2, 3), [rand(1, 2, 4), rand(1, 2, 4, seed=1)]
    weights = [rand(16, 3), rand(16, 4), rand(16), rand(16, seed=1)]
    general = called("aten.lstm", [x, states, weights], x)
    for biased, given in (
        (True, states),
        (False, states),
        (True, [s[0] for s in states]),
    ):  # states of one layer come flat
        args = {"mode": 2, "has_biases": biased}
        layer = called("aten.mkldnn_rnn_layer", [x, weights, given], x, **args)
        assert layer.matmul_flops == general.matmul_flops
        assert number(general.flops) - number(layer.flops) == (0 if biased else 3 * 2 * 2 * 16)


def test_a_recurrent_cell_costs_one_step() -> None:
    x, h, c, w = rand(2, 3), rand(2, 4), rand(2, 4, seed=1), [rand(16, 3), rand(16, 4), rand(16), rand(16, seed=1)]
    given = [counted(t) for t in (x, h, c)]
    result, cost = ran(aten.lstm_cell.default, x, [h, c], *w)
    check(result[0], cost, lambda: lstm_step(*(*given, [counted(t) for t in w]))[0])
    fused = called("aten._thnn_fused_lstm_cell", [rand(2, 16), rand(2, 16, seed=1), c, w[2], w[3]], [h, c, rand(2, 16)])
    assert number(fused.flops) == number(cost.flops) - number(cost.matmul_flops)


# ---------------------------------------------------------------- Fourier transforms, linear algebra


def radix_2(x: list[Complex]) -> list[Complex]:
    if len(x) == 1:
        return x
    even, odd = radix_2(x[::2]), radix_2(x[1::2])
    turns = [cmath.exp(-2j * math.pi * k / len(x)) for k in range(len(odd))]
    turned = [Complex(Counted(t.real), Counted(t.imag)) * o for t, o in zip(turns, odd, strict=True)]
    pairs = list(zip(even, turned, strict=True))
    return [e + t for e, t in pairs] + [e - t for e, t in pairs]


def test_a_transform_of_a_power_of_two_costs_its_butterflies() -> None:
    x = torch.complex(rand(16), rand(16, seed=1))
    result, cost = ran(aten._fft_c2c.default, x, [0], 0, True)
    expected, flops, _ = counting(lambda: radix_2([Complex(Counted(float(v.real)), Counted(float(v.imag))) for v in x]))
    torch.testing.assert_close(result.real.double(), values([e.real for e in expected]), rtol=1e-4, atol=1e-4)
    assert number(cost.flops) == flops == 5 * 16 * 4
    real = rand(3, 16)
    half, forth = ran(aten._fft_r2c.default, real, [1], 0, True)
    _, back = ran(aten._fft_c2r.default, half, [1], 2, 16)
    assert number(forth.flops) == 3 * flops // 2
    assert number(back.flops) == 3 * flops // 2 + 3 * 16  # divided by n
    assert (number(forth.read), number(forth.write)) == (real.nbytes, half.nbytes)


def test_a_logarithm_of_an_unknown_length_is_rounded_up() -> None:
    formula = spectral.ceil_log2(Formula.var("seq_len"))
    for n in [*range(1, 70), 1023, 1024, 1025, 2**24]:
        assert formula.evaluate({"seq_len": n}) == math.ceil(math.log2(n)), n


def factored(a: NP) -> NP:
    """LU in place, without pivoting."""
    a = a.copy()
    n = len(a)
    for k in range(n):
        for i in range(k + 1, n):
            a[i, k] = a[i, k] / a[k, k]
            for j in range(k + 1, n):
                a[i, j] = a[i, j] - a[i, k] * a[k, j]
    return a


def substituted(a: NP, b: NP, *, lower: bool, unit: bool) -> NP:
    n, x = len(a), b.copy()
    for i in range(n) if lower else reversed(range(n)):
        for k in range(i) if lower else range(i + 1, n):
            x[i] = x[i] - x[k] * a[i, k]
        x[i] = x[i] if unit else x[i] / a[i, i]
    return x


def cholesky(a: NP) -> NP:
    n, out = len(a), zeros(*a.shape)
    for j in range(n):
        for i in range(j, n):
            rest = a[i, j]
            for k in range(j):
                rest = rest - out[i, k] * out[j, k]
            out[i, j] = sqrt(rest) if i == j else rest / out[j, j]
    return out


def solved(a: NP, b: NP) -> NP:
    lu = factored(a)
    return substituted(lu, substituted(lu, b, lower=True, unit=True), lower=False, unit=False)


def distances(x: NP, y: NP) -> NP:
    off = x[:, None] - y[None]
    return sqrt(accumulated(square(off)))


def distances_by_product(x: NP, y: NP) -> NP:
    ones = np.array([[Counted(1.0)]] * len(x)), np.array([[Counted(1.0)]] * len(y))
    left = np.concatenate([x * -2.0, accumulated(square(x))[:, None], ones[0]], 1)
    right = np.concatenate([y, ones[1], accumulated(square(y))[:, None]], 1)
    return sqrt(matmul(left, right.T))


DOMINANT = rand(5, 5) + 5 * torch.eye(5)
DEFINITE = DOMINANT @ DOMINANT.T
SIDES = rand(5, 3)
FACTORED = torch.linalg.lu_factor(DOMINANT, pivot=True)[0]
SOLVERS: list[tuple[Any, tuple[Any, ...], dict[str, Any], Callable[..., Any]]] = [
    (aten.linalg_solve_triangular.default, (DOMINANT.tril(), SIDES), {"upper": False}, lambda a, b: substituted(a, b, lower=True, unit=False)),
    (aten.linalg_solve_triangular.default, (DOMINANT.triu(), SIDES), {"upper": True, "unitriangular": True},
     lambda a, b: substituted(a, b, lower=False, unit=True)),
    (aten.linalg_cholesky_ex.default, (DEFINITE,), {}, cholesky),
    (aten._linalg_det.default, (DOMINANT,), {}, lambda a: np.multiply.reduce(np.diagonal(factored(a)))),
    (aten._linalg_solve_ex.default, (DOMINANT, SIDES), {}, solved),
    (aten.linalg_lu_solve.default, (FACTORED, torch.arange(1, 6, dtype=torch.int32), SIDES), {},
     lambda lu, _, b: substituted(lu, substituted(lu, b, lower=True, unit=True), lower=False, unit=False)),
    (aten.cholesky_solve.default, (SIDES, DOMINANT.tril()), {},
     lambda b, low: substituted(low.T, substituted(low, b, lower=True, unit=False), lower=False, unit=False)),
    (aten.linalg_inv_ex.default, (DOMINANT,), {}, lambda a: solved(a, counted(torch.eye(5)))),
    (aten.linalg_cross.default, (rand(2, 3), rand(2, 3, seed=1)), {},
     lambda a, b: np.roll(a, -1, 1) * np.roll(b, -2, 1) - np.roll(a, -2, 1) * np.roll(b, -1, 1)),
    (aten._cdist_forward.default, (A34, rand(5, 4), 2.0, None), {}, distances),
    (aten._cdist_forward.default, (A34, rand(5, 4), 1.0, None), {}, lambda x, y: accumulated(absolute(x[:, None] - y[None]))),
    (aten._euclidean_dist.default, (A34, rand(5, 4)), {}, distances_by_product),
]  # fmt: skip


@pytest.mark.parametrize(("overload", "args", "kwargs", "define"), SOLVERS, ids=_name)
def test_linear_algebra_costs_its_textbook_loops(overload: Any, args: Any, kwargs: Any, define: Any) -> None:
    result, cost = ran(overload, *args, **kwargs)
    check(next(leaves(result)), cost, lambda: define(*(counted(t) for t in leaves(args))))


# ---------------------------------------------------------------- custom kernels


def short_convolution(x: NP, w: NP, b: NP) -> NP:
    """Each channel's last values, oldest first, zeros before the start; then SiLU."""
    taps = w.shape[1]
    before = np.concatenate([zeros(*x.shape[:2], taps - 1), x], 2)
    windows = np.stack([before[:, :, k : k + x.shape[2]] for k in range(taps)], -1)
    out = matmul(windows[..., None, :], w[:, None, :, None])[..., 0, 0] + b[:, None]
    return out * sigmoid(out)


def test_a_short_convolution_costs_its_taps_bias_and_activation() -> None:
    x, w, b = rand(2, 3, 5), rand(3, 4), rand(3)
    padded = torch.nn.functional.conv1d(x, w[:, None], b, padding=3, groups=3)[..., :5]
    whole = called("causal_conv1d_fwd", [x, w, b], x, silu_activation=True)
    check(torch.nn.functional.silu(padded), whole, lambda: short_convolution(counted(x), counted(w), counted(b)))
    state = rand(2, 3, 4)
    step = called("causal_conv1d_update", [x[..., :1], state, w, b], x[..., :1], activation="silu")
    assert 5 * number(step.flops) == number(whole.flops)
    assert number(step.write) == x[..., :1].nbytes + state.nbytes


def scanned(u: NP, delta: NP, a: NP, b: NP, c: NP, d: NP, z: NP, bias: NP) -> NP:
    """The recurrence of a selective state space, one token after another."""
    delta = log(exp(delta + bias[:, None]) + 1.0)
    h, out = zeros(*u.shape[:2], a.shape[1]), np.empty(u.shape, object)
    for t in range(u.shape[2]):
        decayed = exp(delta[:, :, t, None] * a) * h
        scaled = delta[:, :, t] * u[:, :, t]
        before = Counted.flops
        h = decayed + scaled[:, :, None] * b[:, None, :, t]
        Products.flops += Counted.flops - before
        out[:, :, t] = matmul(h[:, :, None, :], c[:, None, :, t, None])[:, :, 0, 0]
    out = out + u * d[:, None]
    return out * (z * sigmoid(z))


def test_a_selective_scan_costs_its_recurrence() -> None:
    u, a, b, d = rand(2, 3, 4), rand(3, 5), rand(2, 5, 4), rand(3)
    inputs = [u, rand(2, 3, 4, seed=1), a, b, rand(2, 5, 4, seed=1), d, rand(2, 3, 4, seed=2), rand(3, seed=1)]
    _, flops, products = counting(lambda: scanned(*(counted(t) for t in inputs)))
    cost = called("selective_scan_fwd", inputs, u, delta_softplus=True)
    assert (number(cost.flops), number(cost.matmul_flops)) == (flops, products)
    state, x = rand(2, 3, 5), u[..., 0].contiguous()
    update = [state, x, x.clone(), a, b[..., 0].contiguous(), b[..., 1].contiguous(), d, x.clone(), d.clone()]
    step = called("selective_state_update", update, x, dt_softplus=True)
    assert 4 * number(step.flops) == flops
    assert number(step.write) == x.nbytes + state.nbytes
    bare = called("selective_scan_fwd", inputs[:5], u)
    assert number(bare.flops) == 7 * u.numel() * 5 + u.numel()


def gated_delta(q: NP, k: NP, v: NP, g: NP, beta: NP) -> NP:
    """One token after another; (batch, steps, heads, size)."""
    q = q * float(q.shape[-1] ** -0.5)
    batch, steps, heads, size = v.shape
    state, out = zeros(batch, heads, q.shape[-1], size), np.empty(v.shape, object)
    for t in range(steps):
        state = state * exp(g[:, t])[..., None, None]
        rest = (v[:, t] - matmul(k[:, t, :, None, :], state)[..., 0, :]) * beta[:, t][..., None]
        before = Counted.flops
        state = state + k[:, t][..., None] * rest[..., None, :]
        Products.flops += Counted.flops - before
        out[:, t] = matmul(q[:, t, :, None, :], state)[..., 0, :]
    return out


def gated_delta_by_chunks(q: NP, k: NP, v: NP, g: NP, beta: NP, size: int) -> NP:
    """The same by chunks of `size` tokens, for one batch entry and head: (steps, size) and (steps,)."""
    q = q * float(q.shape[-1] ** -0.5)
    state, outs = zeros(q.shape[-1], v.shape[-1]), []
    for start in range(0, len(q), size):
        at = slice(start, start + size)
        decay = accumulated_so_far(g[at])
        between = exp(decay[:, None] - decay[None])
        system = matmul(k[at] * beta[at][:, None], k[at].T) * between
        scores = matmul(q[at], k[at].T) * between * np.tri(size).astype(object)
        Counted.flops -= size * size  # the triangle is a mask, not arithmetic
        new = substituted(system, v[at] * beta[at][:, None], lower=True, unit=True)
        gone = substituted(system, k[at] * beta[at][:, None] * exp(decay)[:, None], lower=True, unit=True)
        Counted.flops -= size * k.shape[1]  # k * beta stands there twice, and is computed once
        fresh = new - matmul(gone, state)
        outs.append(matmul(q[at] * exp(decay)[:, None], state) + matmul(scores, fresh))
        kept = k[at] * exp(decay[-1] - decay)[:, None]
        state = state * exp(np.array([decay[-1]], object))[0] + matmul(kept.T, fresh)
    return np.concatenate(outs)


def accumulated_so_far(x: NP) -> NP:
    found = [Counted(0.0)]
    for item in x:
        found.append(found[-1] + item)
    return np.array(found[1:], object)


def test_the_gated_delta_rule_costs_its_recurrence_and_its_chunks() -> None:
    from transformers.models.qwen3_next import modeling_qwen3_next as qwen

    q, k, v = rand(1, 6, 1, 4), rand(1, 6, 1, 4, seed=1), rand(1, 6, 1, 3)
    g, beta = -rand(1, 6, 1, low=0.1), rand(1, 6, 1, seed=1, low=0.1)
    given = [q, k, v, g, beta]
    steps = called("fused_recurrent_gated_delta_rule", given, v)
    check(qwen.torch_recurrent_gated_delta_rule(*given)[0], steps, lambda: gated_delta(*(counted(t) for t in given)))
    chunks = called("chunk_gated_delta_rule", given, v, chunk_size=3)
    flat = [counted(t[0, :, 0]) for t in given]
    by_chunks = qwen.torch_chunk_gated_delta_rule(*given, chunk_size=3)[0]
    check(by_chunks, chunks, lambda: gated_delta_by_chunks(*(*flat, 3)))
    padded = called("chunk_gated_delta_rule", [t[:, :5].contiguous() for t in given], v[:, :5], chunk_size=3)
    assert padded.matmul_flops == chunks.matmul_flops
    normal = called("chunk_gated_delta_rule", given, v, chunk_size=3, use_qk_l2norm_in_kernel=True)
    one = counting(lambda: (x := counted(q[0, 0])) * (1.0 / sqrt(accumulated(square(x)) + 1e-6))[:, None])[1] - 1
    assert number(normal.flops) - number(chunks.flops) == 2 * 6 * one  # rsqrt is one


def chunked_scan(x: NP, dt: NP, a: Any, b: NP, c: NP, size: int) -> NP:
    """A state space of scalar decay by chunks, for one batch entry and head: x (steps, P), dt (steps,), b, c (steps, N)."""
    state, outs = zeros(b.shape[1], x.shape[1]), []
    for start in range(0, len(x), size):
        at = slice(start, start + size)
        decay = accumulated_so_far(dt[at] * a)
        scores = matmul(c[at], b[at].T) * exp(decay[:, None] - decay[None])
        scores = np.where(np.tri(size, dtype=bool), scores, zeros(size, size))
        scaled = x[at] * dt[at][:, None]
        carried = matmul(c[at], state) * exp(decay)[:, None]
        outs.append(matmul(scores, scaled) + carried)
        kept = b[at] * exp(decay[-1] - decay)[:, None]
        state = state * exp(np.array([decay[-1]], object))[0] + matmul(kept.T, scaled)
    return np.concatenate(outs)


def test_a_chunked_scan_costs_its_products_and_decays() -> None:
    x, dt, a = rand(1, 6, 1, 3), rand(1, 6, 1, low=0.1), -rand(1, low=0.5)
    b, c = rand(1, 6, 1, 4), rand(1, 6, 1, 4, seed=1)
    cost = called("mamba_chunk_scan_combined", [x, dt, a, b, c], x, chunk_size=3)
    flat = [counted(t[0, :, 0]) for t in (x, dt, b, c)]
    expected = torch.zeros(6, 3)
    state = torch.zeros(4, 3)
    for t in range(6):
        state = state * torch.exp(dt[0, t, 0] * a) + torch.outer(b[0, t, 0], x[0, t, 0] * dt[0, t, 0])
        expected[t] = c[0, t, 0] @ state
    more = [rand(1), x.clone(), rand(1, seed=1)]  # D, z and the bias of dt
    whole = called("mamba_chunk_scan_combined", [x, dt, a, b, c, *more], x, chunk_size=3, dt_softplus=True)
    gate = counting(lambda: (counted(x) + counted(x) * 2.0) * ((z := counted(x)) * sigmoid(z)))[1]
    step = counting(lambda: log(exp(counted(dt) + 1.0) + 1.0))[1]
    assert number(whole.flops) - number(cost.flops) == gate + step
    check(expected, cost, lambda: chunked_scan(flat[0], flat[1], Counted(a.item()), flat[2], flat[3], 3))


# ---------------------------------------------------------------- bytes


WIDE = rand(1, 4).expand(3, 4)
TABLE, ROWS, INDEX = rand(10, 4), torch.tensor([1, 1, 7]), torch.tensor([[0, 2], [1, 1]])
TRUE = torch.tensor([[True, False, True, False]] * 3)
BYTES: list[tuple[str, Any, tuple[Any, ...], dict[str, Any], int, int]] = [
    # name, operator, arguments, bytes read, bytes written; a float and an int32 have 4 bytes, an int64 8
    ("broadcast inputs at their stored size", aten.add.Tensor, (X, WIDE), {}, 48 + 16, 48),
    ("an input that is there twice once", aten.mul.Tensor, (X, X), {}, 48, 48),
    ("a cast in both types", aten._to_copy.default, (X,), {"dtype": torch.float64}, 48, 96),
    ("a comparison writes truth", aten.eq.Tensor, (X, Y), {}, 96, 12),
    ("an expanded copy", aten.expand_copy.default, (rand(1, 4), [3, 4]), {}, 16, 48),
    ("in place: read, then written", aten.add_.Tensor, (X.clone(), Y), {}, 96, 48),
    ("in place by bits", aten.__iand__.Tensor, (TRUE.clone(), TRUE), {}, 24, 12),
    ("an `out` buffer is not read", aten.add.out, (X, Y), {"out": torch.empty(3, 4)}, 96, 48),
    ("an overwritten tensor is not read", aten.fill_.Scalar, (X.clone(), 1.0), {}, 0, 48),
    ("random numbers read nothing", aten.uniform_.default, (X.clone(),), {}, 0, 48),
    ("a copy reads its source", aten.copy_.default, (X.clone(), W4), {}, 16, 48),
    ("a masked fill reads the mask", aten.masked_fill.Scalar, (X, TRUE, 0.0), {}, 48 + 12, 48),
    ("norms write their statistics", aten.native_layer_norm.default, (X, [4], W4, B4, 1e-5), {}, 48 + 32, 48 + 2 * 12),
    ("groups write their statistics", aten.native_group_norm.default, (IMAGE, W4, B4, 2, 4, 6, 2, 1e-5), {}, 192 + 32, 192 + 2 * 16),
    ("stored statistics are read", aten.native_batch_norm.default, (IMAGE, W4, B4, CENTER, SPREAD, False, 0.1, 1e-5), {}, 192 + 64, 192),
    ("largest of a window with its place", aten.max_pool2d_with_indices.default, (PLANE, [2, 2]), {}, 160, 2 * 4 * (4 + 8)),
    ("sorting writes places", aten.sort.default, (X,), {}, 48, 48 + 96),
    ("rows of a table", aten.embedding.default, (TABLE, ROWS), {}, 3 * 16 + 24, 48),
    ("bags of rows", aten._embedding_bag.default, (TABLE, ROWS, torch.tensor([0, 2])), {}, 3 * 16 + 24 + 16, 2 * 16 + 16 + 16),
    ("elements by index", aten.gather.default, (X, 1, INDEX), {}, 4 * 4 + 32, 16),
    ("elements by a mask", aten.index.Tensor, (X, [TRUE]), {}, 6 * 4 + 12, 24),
    ("rows by index, all columns", aten.index.Tensor, (TABLE, [ROWS]), {}, 12 * 4 + 24, 48),
    ("rows overwritten by one value", aten.index_put_.default, (TABLE.clone(), [ROWS], torch.tensor(0.0)), {}, 24 + 4, 12 * 4),
    ("columns overwritten", aten.index_put_.default, (TABLE.clone(), [None, ROWS - ROWS], rand(10, 3)), {}, 24 + 120, 120),
    ("places overwritten", aten.index_put_.default, (TABLE.clone(), [ROWS, ROWS - ROWS], rand(3)), {}, 24 + 24 + 12, 12),
    ("a copy with rows overwritten", aten.index_put.default, (TABLE, [ROWS], rand(3, 4)), {}, 160 + 24 + 48, 160),
    ("rows added to", aten.index_put_.default, (TABLE.clone(), [ROWS], rand(3, 4), True), {}, 24 + 48 + 48, 48),
    ("what a mask lets through", aten.index_put_.default, (X.clone(), [TRUE], rand(6)), {}, 12 + 24, 24),
    ("scattered elements", aten.scatter_.src, (X.clone(), 1, INDEX, Y), {}, 32 + 16, 16),
    ("scattered value", aten.scatter_.value, (X.clone(), 1, INDEX, 1.0), {}, 32, 16),
    ("scattered sums", aten.scatter_add_.default, (X.clone(), 1, INDEX, Y), {}, 32 + 16 + 16, 16),
    ("slices added", aten.index_add_.default, (TABLE.clone(), 0, ROWS, rand(3, 4)), {}, 24 + 48 + 48, 48),
    ("slices filled", aten.index_fill_.int_Scalar, (TABLE.clone(), 0, ROWS, 0.0), {}, 24, 48),
    ("a source through a mask", aten.masked_scatter.default, (X, TRUE, rand(6)), {}, 48 + 12 + 24, 48),
    ("one score of each row", aten.nll_loss_forward.default, (X, torch.tensor([0, 1, 3]), None, 1, -100), {}, 3 * 4 + 24, 4 + 4),
]  # fmt: skip


@pytest.mark.parametrize(("why", "overload", "args", "kwargs", "read", "write"), BYTES, ids=[case[0] for case in BYTES])
def test_bytes_are_what_the_tensors_occupy(
    why: str, overload: Any, args: Any, kwargs: Any, read: int, write: int
) -> None:
    _, cost = ran(overload, *args, **kwargs)
    assert (number(cost.read), number(cost.write)) == (read, write), why


def test_what_is_accumulated_by_index_counts_an_add() -> None:
    adds = [
        ran(aten.scatter_add.default, X, 1, INDEX, Y)[1],
        ran(aten.scatter_reduce.two, X, 1, INDEX, Y, "sum")[1],
        ran(aten.index_put.default, TABLE, [ROWS[:1]], rand(1, 4), True)[1],
        ran(aten.index_add.default, TABLE, 0, ROWS[:1], rand(1, 4))[1],
    ]
    assert [number(cost.flops) for cost in adds] == [4, 4, 4, 4]
    largest = ran(aten.scatter_reduce.two, X, 1, INDEX, Y, "amax")[1]
    assert number(largest.flops) == 0


def test_bags_of_rows_count_an_add_per_element_and_the_means_divisions() -> None:
    bags = (TABLE, torch.tensor([1, 1, 7, 3]), torch.tensor([0, 1]))
    weights = rand(4)
    flops = [number(ran(aten._embedding_bag.default, *bags, False, mode)[1].flops) for mode in (0, 1, 2)]
    assert flops == [4 * 4, 4 * 4 + 2 * 4, 0]
    assert number(ran(aten._embedding_bag.default, *bags, False, 0, False, weights)[1].flops) == 2 * 4 * 4


@pytest.mark.parametrize(
    "overload", [aten.relu.default, aten.floor.default, aten.clone.default, aten.isnan.default, aten.tril.default]
)
def test_copies_comparisons_and_rounding_count_nothing(overload: Any) -> None:
    assert ran(overload, X)[1].flops == operators.ZERO


# ---------------------------------------------------------------- the registry


def test_a_second_rule_for_an_operator_is_refused() -> None:
    for name in ("aten.mm", "aten.linalg_qr"):
        with pytest.raises(ValueError, match=f"{name} already has a cost rule"):
            operators.operator(name)(lambda _: Cost())
        with pytest.raises(ValueError, match=f"{name} already has a cost rule"):
            not_counted("no", name)


def test_what_is_not_counted_says_why() -> None:
    made = tensor_of(X)
    for name, words in (("aten.linalg_eigh", "converges"), ("aten.no_such_operator", "no cost rule is registered")):
        assert operators.cost_of(Call(name, [made], [made])) is None
        assert words in operators.reason_of(name)
    assert operators.cost_of(Call("aten.tan", [tensor_of(U)], [tensor_of(U)])) is None  # complex: nobody decided


def test_every_rule_is_for_an_operator_that_torch_has() -> None:
    known = {name.partition(".")[0].replace("::", ".") for name in torch._C._dispatch_get_all_op_names()}
    ours = {name for name in operators.registered() if name.startswith("aten.")}
    assert len(ours) > 400
    assert not ours - known
