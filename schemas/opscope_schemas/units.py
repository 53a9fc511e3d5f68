"""Quantities as people say them."""

from __future__ import annotations

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_PARTS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def amount(value: float, unit: str) -> str:
    """`value` with a decimal prefix and three significant digits.

    >>> amount(13_210_000_000, "FLOP"), amount(999, "B")
    ('13.2 GFLOP', '999 B')
    """
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return (
                f"{value / factor:.3g} {prefix}{unit}"
                if value < 1000 * factor
                else f"{value / factor:,.0f} {prefix}{unit}"
            )
    return f"{value:.3g} {unit}"


def counted(value: int) -> str:
    """A number of things as people say it of parameters.

    >>> counted(30_532_122_624), counted(405)
    ('30.5B', '405')
    """
    factor, letter = next(
        ((f, x) for f, x in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")) if value >= f), (1.0, "")
    )
    return f"{value / factor:.3g}{letter}"


def plain_bytes(value: float) -> str:
    """Bytes with a decimal prefix."""
    return amount(value, "B")


def seconds(value: float | None) -> str:
    """A time with the unit that suits it.

    >>> seconds(0.0012), seconds(None)
    ('1.2 ms', 'unknown')
    """
    if value is None:
        return "unknown"
    scale, unit = next(((s, u) for s, u in _PARTS if abs(value) >= s), _PARTS[-1])
    return f"{value / scale:.3g} {unit}"


__all__ = ["amount", "counted", "plain_bytes", "seconds"]
