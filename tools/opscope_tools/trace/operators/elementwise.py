"""Elementwise operators: so many FLOPs per output element, by name.

Order: the table (real numbers), complex numbers, what depends on arguments (scalings, forms of activations).
"""

from __future__ import annotations

from collections.abc import Mapping

from opscope_tools.trace.operators.types import ZERO, Call, Cost, Rule, cost, operator

_ONE = (
    "neg pow exp exp2 log log2 log10 log1p expm1 sqrt rsqrt cos sin tan asin acos atan atan2 sinh cosh tanh "
    "asinh acosh atanh erf erfc erfinv remainder fmod floor_divide frac digamma lgamma polygamma hypot "
    "cumprod float_power angle deg2rad rad2deg i0 igamma igammac special_i0e special_i1 special_i1e special_ndtri "
    "special_log_ndtr special_erfcx special_bessel_j0 special_bessel_j1 special_zeta"
).split()

#: per output element; the words spell the definition's arithmetic
_PER_ELEMENT: Mapping[str, tuple[int, str]] = {
    **dict.fromkeys(_ONE, (1, "1 per output element")),
    "sigmoid": (4, "1 / (1 + exp(-x)): negate, exp, add, divide"),
    "silu": (5, "x * sigmoid(x): sigmoid's 4 and a multiply"),
    "glu": (5, "a * sigmoid(b) over the two halves: sigmoid's 4 and a multiply"),
    "mish": (5, "x * tanh(log(1 + exp(x))): exp, add, log, tanh, multiply"),
    "leaky_relu": (1, "slope * x: a multiply"),
    "rrelu": (1, "slope * x: a multiply"),
    "rrelu_with_noise": (1, "slope * x: a multiply"),
    "prelu": (1, "slope * x: a multiply"),
    "_prelu_kernel": (1, "slope * x: a multiply"),
    "softshrink": (1, "x - lambda: a subtract"),
    "hardsigmoid": (2, "x / 6 + 1 / 2: divide, add"),
    "hardswish": (3, "x * (x + 3) / 6: add, multiply, divide"),
    "log_sigmoid_forward": (5, "-log(1 + exp(-x)): negate, exp, add, log, negate"),
    "logit": (3, "log(x / (1 - x)): subtract, divide, log"),
    "addcdiv": (2, "a + b / c: divide, add"),
    "lerp": (3, "a + w * (b - a): subtract, multiply, add"),
    "polar": (4, "r * cos, r * sin: two transcendentals, two multiplies"),
    "logaddexp": (4, "log(exp(a) + exp(b)): two exps, add, log"),
    "logaddexp2": (4, "log2(2**a + 2**b): two powers, add, log"),
    "xlogy": (2, "x * log(y): log, multiply"),
    "special_xlog1py": (2, "x * log1p(y): log1p, multiply"),
    "special_entr": (3, "-x * log(x): log, multiply, negate"),
    "sinc": (4, "sin(pi * x) / (pi * x): two multiplies, sine, divide"),
    "ldexp": (2, "a * 2**b: power, multiply"),
    "native_dropout": (2, "x * kept / (1 - p): two multiplies"),
}

#: per output element of complex numbers; what is not here has no rule for them
_COMPLEX: Mapping[str, tuple[int, str]] = {
    "neg": (2, "complex: both parts negated"),
    "exp": (5, "complex: exp(a) * (cos b + i sin b): exp, cos, sin, two multiplies"),
    "log": (6, "complex: log |z| + i angle z: two squares, add, root, log, atan2"),
    "angle": (1, "complex: atan2 of the parts"),
}


def _elementwise(name: str) -> Rule:
    def rule(call: Call) -> Cost | None:
        table = _COMPLEX if call.is_complex else _PER_ELEMENT
        if name not in table:
            return None
        count, why = table[name]
        return cost(call, count * call.out, why)

    return rule


for _name in _PER_ELEMENT:
    operator(f"aten.{_name}", complex_too=True)(_elementwise(_name))


# ---------------------------------------------------------------- sums and products, real or complex


def _scaled(call: Call, name: str) -> bool:
    """Whether a factor that is 1 by default is something else."""
    return bool(call.arguments.get(name, 1) != 1)


def _both_complex(call: Call) -> bool:
    """Whether two factors are complex: two tensors, or a tensor and a complex number."""
    numbers = sum(isinstance(value, complex) for value in call.arguments.values())
    return sum(tensor.is_complex for tensor in call.inputs) + numbers > 1


@operator("aten.add", "aten.sub", "aten.rsub", complex_too=True)
def add(call: Call) -> Cost:
    """`a + alpha * b`: 1 per output element, and a multiply more where alpha is not 1; complex: both parts."""
    count = (2 if _scaled(call, "alpha") else 1) * (2 if call.is_complex else 1)
    words = "1 per output element" + (" and the scaling" if _scaled(call, "alpha") else "")
    return cost(call, count * call.out, words + (", of both complex parts" if call.is_complex else ""))


@operator("aten.mul", "aten.multiply", complex_too=True)
def mul(call: Call) -> Cost:
    """1 per output element. Complex: (a + bi)(c + di) is 4 multiplies and 2 adds, by a real number 2 multiplies."""
    if not call.is_complex:
        return cost(call, call.out, "1 per output element")
    count = 6 if _both_complex(call) else 2
    return cost(
        call, count * call.out, f"complex: {'4 multiplies, 2 adds' if count == 6 else '2 multiplies by a real'}"
    )


@operator("aten.square", complex_too=True)
def square(call: Call) -> Cost:
    """1 per output element; complex: as a multiply, 6."""
    return cost(call, (6 if call.is_complex else 1) * call.out, "x * x")


@operator("aten.div", "aten.true_divide", "aten.divide", complex_too=True)
def div(call: Call) -> Cost:
    """1 per output element. Complex by complex: times the conjugate 6, its squared length 3, two divides; by a real 2."""
    if not call.is_complex:
        return cost(call, call.out, "1 per output element")
    by_complex = call.inputs[-1].is_complex and (len(call.inputs) > 1 or _both_complex(call))
    return cost(
        call, (11 if by_complex else 2) * call.out, f"complex, by a {'complex' if by_complex else 'real'} number"
    )


@operator("aten.reciprocal", complex_too=True)
def reciprocal(call: Call) -> Cost:
    """1 per output element. Complex: conj(z) / |z|**2: negate, two squares, an add, two divides."""
    return cost(call, (6 if call.is_complex else 1) * call.out, "1 / x")


@operator("aten.abs", complex_too=True)
def absolute(call: Call) -> Cost:
    """1 per output element. Complex: sqrt(a**2 + b**2): two squares, an add, a root."""
    return cost(call, (4 if call.is_complex else 1) * call.out, "|x|")


@operator("aten.addcmul")
def addcmul(call: Call) -> Cost:
    """`a + value * b * c`: multiply and add, and a multiply more where value is not 1."""
    return cost(call, (3 if _scaled(call, "value") else 2) * call.out, "a + b * c: multiply, add (and the scaling)")


# ---------------------------------------------------------------- activations with forms


@operator("aten.gelu")
def gelu(call: Call) -> Cost:
    """x / 2 * (1 + erf(x / sqrt 2)): 5 per element (divide, erf, add, two multiplies).

    The tanh form, x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))), is 8: pow, multiply, add, multiply, tanh,
    add, two multiplies.
    """
    if call.arguments.get("approximate") == "tanh":
        return cost(call, 8 * call.out, "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))): 8 per element")
    return cost(call, 5 * call.out, "x / 2 * (1 + erf(x / sqrt 2)): divide, erf, add, two multiplies")


@operator("aten.elu", "aten.selu", "aten.celu")
def elu(call: Call) -> Cost:
    """`scale * alpha * (exp(input_scale * x) - 1)`: exp, subtract, and a multiply for each factor that is not 1.

    selu and celu reach the dispatcher as elu with their factors; on their own selu has two, celu one and a divide.
    """
    own = {"aten.selu": 2, "aten.celu": 2 if _scaled(call, "alpha") else 0}.get(call.name.rstrip("_"))
    factors = sum(_scaled(call, name) for name in ("alpha", "scale", "input_scale")) if own is None else own
    return cost(call, (2 + factors) * call.out, f"exp(x) - 1: exp, subtract, and {factors} factors")


@operator("aten.softplus")
def softplus(call: Call) -> Cost:
    """log(1 + exp(beta * x)) / beta: exp, add, log, and for a beta that is not 1 a multiply and a divide."""
    factors = 2 if _scaled(call, "beta") else 0
    return cost(
        call, (3 + factors) * call.out, "log(1 + exp(x)): exp, add, log" + (", and beta twice" if factors else "")
    )


@operator("aten._fused_dropout")
def training_only(call: Call) -> Cost:
    """x * kept / (1 - p): two multiplies per element."""
    return cost(call, 2 * call.out if call.inputs else ZERO, "x * kept / (1 - p): two multiplies")
