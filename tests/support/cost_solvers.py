"""FLOPs of factorisations, counted by the loops of the textbook algorithms, one multiply, divide, add or root at a time."""

from __future__ import annotations

import math

from cost_operator import Count, Ran


def _eliminated(n: int) -> int:
    """Gaussian elimination: below each pivot a quotient per row, and a multiply and a subtract per entry right of it."""
    return sum(1 + 2 * (n - pivot - 1) for pivot in range(n) for _ in range(pivot + 1, n))


def _rooted(n: int) -> int:
    """Cholesky: each entry below the diagonal less the products left of it, and divided; a root on the diagonal."""
    return sum(2 * column + 1 for column in range(n) for _ in range(column, n))


def _substituted(n: int, *, unit: bool) -> int:
    """One right-hand side: row i less i products, and divided unless the diagonal is 1."""
    return sum(2 * row + (0 if unit else 1) for row in range(n))


def _both(n: int) -> int:
    return _substituted(n, unit=True) + _substituted(n, unit=False)


def _shape(call: Ran) -> tuple[int, int]:
    """How many square matrices, and of how many rows."""
    *batch, n, _ = call.inputs[0].shape
    return math.prod(batch), int(n)


def _cholesky(call: Ran) -> int:
    batch, n = _shape(call)
    return batch * _rooted(n)


def _factors(call: Ran) -> int:
    """LU; a determinant multiplies the n pivots, its logarithm takes each one's size and logarithm, and adds n."""
    batch, n = _shape(call)
    return batch * (_eliminated(n) + {"_linalg_det": n - 1, "_linalg_slogdet": 3 * n}.get(call.name, 0))


def _solved(call: Ran) -> int:
    """Each right-hand side lies in n elements of the solution."""
    batch, n = _shape(call)
    return batch * _eliminated(n) + (call.made // n * _both(n) if n else 0)


def _inverse(call: Ran) -> int:
    """The identity's columns as right-hand sides."""
    batch, n = _shape(call)
    return batch * (_eliminated(n) + n * _both(n))


def _triangular(call: Ran) -> int:
    n = int(call["self" if call.name == "linalg_solve_triangular" else "A"].shape[-1])
    return call.made // n * _substituted(n, unit=bool(call["unitriangular"])) if n else 0


def _factored(call: Ran) -> int:
    """Both substitutions from given factors: of a Cholesky factor neither diagonal is 1."""
    n = int(call.outputs[0].shape[-2])
    each = 2 * _substituted(n, unit=False) if call.name == "cholesky_solve" else _both(n)
    return call.made // n * each if n else 0


SOLVERS: dict[str, Count] = {
    "linalg_cholesky_ex": _cholesky, "cholesky": _cholesky, "linalg_lu_factor_ex": _factors, "_linalg_det": _factors,
    "_linalg_slogdet": _factors, "_linalg_solve_ex": _solved, "linalg_inv_ex": _inverse, "linalg_lu_solve": _factored,
    "cholesky_solve": _factored, "linalg_solve_triangular": _triangular, "triangular_solve": _triangular,
}  # fmt: skip
