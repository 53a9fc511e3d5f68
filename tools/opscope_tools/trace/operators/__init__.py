"""What each operator costs: pure functions of shapes, registered by operator name.

Legend: a tensor's `numel` is the product of its shape; `stored` leaves broadcast (stride 0) dimensions out; `element`
is bytes per element. FLOPs: a multiply and an add are 1 each, so a product of (m, k) and (k, n) is 2*m*n*k. Elementwise
arithmetic and each transcendental are 1 per output element; a reduction is 1 per input element; activations, norms
and softmax are the arithmetic of their definitions; copies, casts, views, comparisons and indexing are 0. Complex
arithmetic is the real arithmetic that it stands for: an add 2, a multiply 6 (2 by a real), a multiply-add 8.
Bytes: each distinct input is read once at its stored size, each output written once; views move nothing.

Order: types.py (vocabulary and registry), then rules by class: moves.py (views, copies, comparisons, factories),
elementwise.py, norms.py (reductions, norms, softmax, losses), products.py, attention.py, recurrent.py, gathers.py,
images.py (pools, interpolation, sampling), gradients.py (what autograd runs backwards), spectral.py (Fourier transforms), solvers.py (linear algebra), kernels.py
(custom kernels by name), linear_attention.py (those of recurrent layers and around them). A formula's derivation stands in its docstring or beside it. An operator that is not here
costs "unknown": documents list it under `not_counted`.
"""

from __future__ import annotations

from opscope_tools.trace.operators import (
    attention,
    elementwise,
    gathers,
    gradients,
    images,
    kernels,
    linear_attention,
    moves,
    norms,
    products,
    recurrent,
    solvers,
    spectral,
)
from opscope_tools.trace.operators.attention import ATTENTION
from opscope_tools.trace.operators.kernels import CHANGES_STATE
from opscope_tools.trace.operators.moves import free
from opscope_tools.trace.operators.products import GROUPED
from opscope_tools.trace.operators.types import (
    ONE,
    ZERO,
    Call,
    Cost,
    Rule,
    Tensor,
    cost_of,
    moved,
    operator,
    reason_of,
    registered,
)

#: products that two activations can have
PAIRS = frozenset({"aten.bmm", "aten.baddbmm", "aten.matmul"})
SOFTMAX = frozenset({"aten._softmax", "aten._safe_softmax"})

__all__ = [
    "ATTENTION",
    "CHANGES_STATE",
    "GROUPED",
    "ONE",
    "PAIRS",
    "SOFTMAX",
    "ZERO",
    "Call",
    "Cost",
    "Rule",
    "Tensor",
    "attention",
    "cost_of",
    "elementwise",
    "free",
    "gathers",
    "gradients",
    "images",
    "kernels",
    "linear_attention",
    "moved",
    "moves",
    "norms",
    "operator",
    "products",
    "reason_of",
    "recurrent",
    "registered",
    "solvers",
    "spectral",
]
