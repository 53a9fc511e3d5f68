"""From measured rows to the parameters and the table of one class of kernels.

First the few parameters of the form's base (least squares of logarithms, outliers damped), then its table, by ridge
regression: entries that few rows hold up follow their neighbours. Only seen rows are used; errors are those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from opscope_tools.hardware.calibration import Fitted, Spread, Unseen
from opscope_tools.hardware.forms import FORMS, Form, Rates
from opscope_tools.hardware.grids import Axis
from opscope_tools.hardware.measured import Numbers, Rows

#: how much neighbours in a table are held alike, by rows of the fit, and where these are few
_SMOOTH, _SMOOTH_OF_FEW, _FEW = 1e-4, 1e-3, 1000
#: parameters that are a share of what the device offers, and the most that is believed of one: caches give more than memory
_SHARES = ("compute", "memory", "link")
_MOST_SHARE = 1.5
#: rows that a few parameters need, and that a table of some hundred entries needs
_ENOUGH, _ENOUGH_FOR_A_TABLE = 1500, 10_000
#: kernels of up to so many seconds have a spread of their own
_LENGTHS = (1e-5, 5e-5, None)


def weights(axis: Axis, values: Numbers) -> Numbers:
    """(rows, knots): what share each knot has in each row."""
    knots = np.log(np.array(axis.knots, dtype=float))
    inside = np.clip(np.log(values), knots[0], knots[-1])
    at = np.clip(np.searchsorted(knots, inside, side="right") - 1, 0, len(knots) - 2)
    share = (inside - knots[at]) / (knots[at + 1] - knots[at])
    found = np.zeros((len(values), len(knots)))
    rows = np.arange(len(values))
    found[rows, at], found[rows, at + 1] = 1 - share, share
    return found


def design(form: Form, sizes: Mapping[str, Numbers]) -> Numbers:
    """(rows, entries of the table)."""
    features = cast(Any, form.features(cast(Any, sizes)))
    found = np.ones((len(next(iter(sizes.values()))), 1))
    for axis, values in zip(form.axes, features, strict=True):
        found = (found[:, :, None] * weights(axis, values)[:, None, :]).reshape(len(found), -1)
    return found


def _bends(shape: tuple[int, ...]) -> Numbers:
    """Second differences of the table along each axis, a row each."""
    entries = np.arange(int(np.prod(shape))).reshape(shape)
    rows = []
    for axis, length in enumerate(shape):
        for middle in range(1, length - 1):
            triple = [np.take(entries, middle + step, axis).ravel() for step in (-1, 0, 1)]
            for before, here, after in zip(*triple, strict=True):
                row = np.zeros(entries.size)
                row[before], row[here], row[after] = 1, -2, 1
                rows.append(row)
    return np.array(rows).reshape(len(rows), entries.size)


def base(form: Form, parameters: Any, sizes: Mapping[str, Numbers], offered: Rates) -> Numbers:
    """Seconds of every row without the table."""
    return cast(Numbers, form.base(parameters, cast(Any, sizes), offered))


def _drawn(rows: int, most: int) -> Any:
    """So many of the rows at most, the same each time."""
    return np.sort(np.random.default_rng(0).permutation(rows)[:most])


def _parameters(form: Form, sizes: Mapping[str, Numbers], seconds: Numbers, offered: Rates) -> Numbers:
    from scipy.optimize import least_squares

    drawn = _drawn(len(seconds), _ENOUGH)
    sizes, seconds = {n: v[drawn] for n, v in sizes.items()}, seconds[drawn]
    start = np.log(form.start)
    most = [np.log(_MOST_SHARE) if name in _SHARES else s + 8 for name, s in zip(form.parameters, start, strict=True)]
    found = least_squares(
        lambda logs: np.log(base(form, np.exp(logs), sizes, offered) / seconds), start,
        loss="soft_l1", f_scale=0.1, bounds=(start - 8, most), max_nfev=50,
    )  # fmt: skip
    return np.array([float(f"{p:.5g}") for p in np.exp(found.x)])


def _table(form: Form, held: Numbers, wanted: Numbers) -> Numbers:
    """Entries whose interpolation gives the wanted logarithms; rows far off weigh little."""
    smooth = _SMOOTH if len(wanted) >= _FEW else _SMOOTH_OF_FEW
    bends = _bends(tuple(len(axis.knots) for axis in form.axes)) * np.sqrt(smooth * len(wanted))
    damping = 1e-6 * len(wanted) * np.eye(held.shape[1])
    weight = np.ones(len(wanted))
    entries = np.zeros(held.shape[1])
    for _ in range(4):
        normal = (held * weight[:, None]).T @ held + bends.T @ bends + damping
        entries = np.linalg.solve(normal, (held * weight[:, None]).T @ wanted)
        off = np.abs(wanted - held @ entries)
        usual = max(1e-3, 1.5 * float(np.median(off)))
        weight = 1 / np.maximum(1.0, off / (2 * usual))
    return np.round(entries, 2)


def predicted(form: Form, parameters: Any, factors: Any, sizes: Mapping[str, Numbers], offered: Rates) -> Numbers:
    """Seconds of every row."""
    return cast(Numbers, base(form, parameters, sizes, offered) * np.exp(design(form, sizes) @ np.asarray(factors)))


def errors(measured: Numbers, estimate: Numbers) -> Unseen:
    """Of estimates, per cent."""
    off = 100 * (estimate / measured - 1)
    return Unseen(
        rows=len(off), mape=round(float(np.mean(np.abs(off))), 1), median=round(float(np.median(np.abs(off))), 1),
        bias=round(float(np.median(off)), 1),
    )  # fmt: skip


def _spread(measured: Numbers, estimate: Numbers) -> tuple[Spread, ...]:
    found = []
    at_least = 0.0
    for length in _LENGTHS:
        chosen = (estimate > at_least) & (estimate <= (np.inf if length is None else length))
        ratio = (measured / estimate)[chosen] if chosen.sum() >= 20 else measured / estimate
        low, high = np.quantile(ratio, (0.1, 0.9))
        found.append(Spread(seconds=length, low=round(float(low), 3), high=round(float(high), 3)))
        at_least = length or at_least
    return tuple(found)


def fitted(rows: Rows, offered: Rates) -> Fitted:
    """One class of kernels."""
    form = FORMS[rows.form]
    sizes = {name: rows.sizes[name] for name in form.sizes}
    seen = {name: values[rows.seen] for name, values in sizes.items()}
    parameters = _parameters(form, seen, rows.seconds[rows.seen], offered)
    wanted = np.log(rows.seconds[rows.seen] / base(form, parameters, seen, offered))
    drawn = _drawn(len(wanted), _ENOUGH_FOR_A_TABLE)
    factors = _table(form, design(form, {n: v[drawn] for n, v in seen.items()}), wanted[drawn])
    unseen = {name: values[~rows.seen] for name, values in sizes.items()}
    estimate, measured = predicted(form, parameters, factors, unseen, offered), rows.seconds[~rows.seen]
    return Fitted(
        form=rows.form, backend=rows.backend, precision=rows.precision, head_dim=rows.head_dim, kernels=rows.kernels, table=rows.table,
        rows=int(rows.seen.sum()), parameters=tuple(map(float, parameters)), factors=tuple(map(float, factors)),
        sizes={n: (float(v.min()), float(v.max())) for n, v in sizes.items() if not n.endswith("_bytes")},
        unseen=errors(measured, estimate), spread=_spread(measured, estimate), held_out=rows.held_out,
    )  # fmt: skip
