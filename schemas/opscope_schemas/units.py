"""Quantities as people say them."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_PARTS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def amount(value: float, unit: str) -> str:
    """`value` with a decimal prefix and three significant digits.

    >>> amount(13_210_000_000, "FLOP"), amount(999, "B"), amount(999_600, "B")
    ('13.2 GFLOP', '999 B', '1 MB')
    """
    factor, prefix = _scaled(value, _PREFIXES, (1.0, ""))
    return f"{_digits(value / factor)} {prefix}{unit}"


def counted(value: float) -> str:
    """A number of things as people say it of parameters.

    >>> counted(30_532_122_624), counted(405)
    ('30.5B', '405')
    """
    factor, letter = _scaled(value, _COUNTS, (1.0, ""))
    return f"{_digits(value / factor)}{letter}"


def _scaled(value: float, scales: Sequence[tuple[float, str]], least: tuple[float, str]) -> tuple[float, str]:
    """The largest scale that leaves a whole number in front of the point once it is rounded."""
    return next((scale for scale in scales if abs(value) >= 0.9995 * scale[0]), least)


def _digits(value: float) -> str:
    """Three significant digits, of large numbers all."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


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
    scale, unit = _scaled(value, _PARTS, _PARTS[-1])
    return f"{_digits(value / scale)} {unit}"


__all__ = ["amount", "counted", "plain_bytes", "seconds"]
