"""Linear algebra beyond products: triangular systems, factorisations with a fixed count, distances.

Legend: n is the matrices' size, r the right-hand sides; counts are per matrix, adds and multiplies and divisions 1 each.
What iterates until it converges (eigenvalues, singular values), or depends on the algorithm chosen, is not counted.
"""

from __future__ import annotations

from opscope_schemas.formula import Formula

from opscope_tools.trace.operators.types import ZERO, Call, Cost, cost, not_counted, operator, times


def _over(value: Formula, number: int) -> Formula:
    """A quotient that is whole by its derivation."""
    exact = value.divided(Formula.const(number))
    assert exact is not None, "a number divides every term"
    return exact


def lu_flops(n: Formula) -> Formula:
    """Below the k-th pivot stand m = n - k rows: m divisions, then m * m multiplies and subtracts: n (n - 1) (4n + 1) / 6."""
    return _over(n * (n - 1) * (4 * n + 1), 6)


def cholesky_flops(n: Formula) -> Formula:
    """Column j takes j products off each of its n - j entries (2j each), a root on the diagonal, divisions below it."""
    return _over(2 * n**3 + 3 * n**2 + n, 6)


def substitution_flops(n: Formula, *, unit: bool) -> Formula:
    """Row i takes i products off its right-hand side (2i) and divides, unless the diagonal is 1: n**2, or n**2 - n."""
    return n * n - n if unit else n * n


@operator("aten.linalg_solve_triangular", "aten.triangular_solve")
def solve_triangular(call: Call) -> Cost:
    """Substitution for each right-hand side: the output's elements are n per right-hand side, so out * n (or n - 1)."""
    unit = bool(call.arguments.get("unitriangular"))
    matrix = call.inputs[1] if call.name == "aten.triangular_solve" else call.inputs[0]
    n = matrix.shape[-1]
    return cost(
        call,
        call.out * (n - 1 if unit else n),
        "substitution: n**2 per right-hand side, n**2 - n with ones on the diagonal",
    )


@operator("aten.linalg_cholesky_ex", "aten.linalg_cholesky", "aten.cholesky")
def cholesky(call: Call) -> Cost:
    """n**3 / 3 in leading order."""
    x = call.inputs[0].shape
    return cost(call, times(x[:-2]) * cholesky_flops(x[-1]), "(2 n**3 + 3 n**2 + n) / 6 per matrix")


@operator("aten.linalg_lu_factor_ex", "aten.linalg_lu_factor", "aten._linalg_det", "aten._linalg_slogdet")
def lu(call: Call) -> Cost:
    """2 n**3 / 3 in leading order; a determinant multiplies the n pivots, its logarithm adds n logarithms of sizes."""
    *batch, n = call.inputs[0].shape[:-1]
    more = n - 1 if call.name.endswith("_det") else 3 * n if "slogdet" in call.name else ZERO
    return cost(call, times(batch) * (lu_flops(n) + more), "LU: n (n - 1) (4n + 1) / 6 per matrix, and its pivots")


@operator("aten.linalg_inv_ex", "aten.linalg_inv", "aten.inverse")
def inverse(call: Call) -> Cost:
    """LU, then both substitutions for each of the n columns of the identity, taken dense: n * (2 n**2 - n)."""
    *batch, n = call.inputs[0].shape[:-1]
    solved = substitution_flops(n, unit=True) + substitution_flops(n, unit=False)
    return cost(call, times(batch) * (lu_flops(n) + n * solved), "LU and 2 n**2 - n for each of n columns")


@operator("aten._linalg_solve_ex", "aten.linalg_solve")
def solve(call: Call) -> Cost:
    """LU, then both substitutions per right-hand side: the output's elements are n per right-hand side."""
    *batch, n = call.inputs[0].shape[:-1]
    return cost(call, times(batch) * lu_flops(n) + call.out * (2 * n - 1), "LU and 2 n**2 - n per right-hand side")


@operator("aten.linalg_lu_solve", "aten.cholesky_solve")
def solve_factored(call: Call) -> Cost:
    """Two substitutions per right-hand side; of LU one has ones on its diagonal."""
    n = call.outputs[0].shape[-2]
    each = 2 * n if "cholesky" in call.name else 2 * n - 1
    return cost(call, call.out * each, "two substitutions per right-hand side")


@operator("aten.linalg_cross")
def cross(call: Call) -> Cost:
    """a1 * b2 - a2 * b1 and so on: two multiplies and a subtract per output element."""
    return cost(call, 3 * call.out, "two multiplies and a subtract per output element")


#: order of a distance -> (per pair of coordinates, per distance)
_DISTANCES = {0.0: (1, 0), 1.0: (3, 0), 2.0: (3, 1), float("inf"): (2, 0)}


@operator("aten._cdist_forward", "aten._pdist_forward")
def cdist(call: Call) -> Cost:
    """Of order 2: subtract, square, add per coordinate, a root per pair; 1: an absolute value in the square's place;

    infinity: subtract, absolute value; 0: adds; other orders: a power more per coordinate, a power per pair.
    """
    each, root = _DISTANCES.get(float(call.arguments.get("p", 2)), (4, 1))
    width = call.inputs[0].shape[-1]
    return cost(call, (each * width + root) * call.out, f"{each} per coordinate of each pair, {root} per pair")


@operator("aten._euclidean_dist")
def euclidean_dist(call: Call) -> Cost:
    """Order 2 through a product: (-2 x, |x|**2, 1) @ (y, 1, |y|**2)^T, whose contracted length is D + 2, then a root.

    Squares and sums of both sides 2 * D per row, the factor -2 D per row of x; setting up the columns copies.
    """
    x, y = call.inputs[:2]
    matmul = 2 * call.out * (x.shape[-1] + 2)
    flops = matmul + call.out + 3 * x.numel + 2 * y.numel
    return cost(call, flops, "2 * pairs * (D + 2), a root per pair, the squared lengths", matmul)


@operator("aten.dist")
def dist(call: Call) -> Cost:
    """The norm of a difference: subtract, square, add per element and a root (order 2)."""
    each, root = _DISTANCES.get(float(call.arguments.get("p", 2)), (4, 1))
    return cost(call, each * call.inputs[0].numel + root, "the norm of a difference")


not_counted(
    "it iterates until it converges, so its work depends on the data",
    *(
        f"aten.{name}"
        for name in "linalg_eigh _linalg_eigh linalg_eig linalg_eigvals _linalg_eigvals _linalg_svd linalg_svd".split()
    ),
)
not_counted(
    "its count depends on the algorithm that the library chooses",
    *(
        f"aten.{name}"
        for name in "linalg_qr geqrf linalg_householder_product linalg_lstsq linalg_matrix_exp linalg_ldl_factor_ex".split()
    ),
)
not_counted(
    "its work depends on the data",
    "aten._ctc_loss",
    "torchvision.nms",
)
