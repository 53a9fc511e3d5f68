"""Quantities as people say them."""

from __future__ import annotations

from collections.abc import Sequence

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_PARTS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


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


def things(count: float, noun: str) -> str:
    """The noun as it stands behind its number.

    >>> things(1, "key-value head"), things(8, "key-value head"), things(0, "entry"), things(2, "class")
    ('key-value head', 'key-value heads', 'entries', 'classes')
    """
    if count == 1:
        return noun
    if noun.endswith("y"):
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if noun.endswith('s') else 's'}"


def _scaled(value: float, scales: Sequence[tuple[float, str]], least: tuple[float, str]) -> tuple[float, str]:
    """The largest scale that leaves a whole number in front of the point once it is rounded."""
    return next((scale for scale in scales if abs(value) >= 0.9995 * scale[0]), least)


def _digits(value: float) -> str:
    """Three significant digits, of large numbers all."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def plain_bytes(value: float) -> str:
    """Bytes with a decimal prefix."""
    return amount(value, "B")


#: ends of names and what they count, the longest first
_ENDINGS = (
    ("bytes_per_second", "bytes/s"), ("flops_per_second", "FLOP/s"), ("tokens_per_second", "tokens/s"), ("switches_per_second", "switches/s"),
    ("bytes", "bytes"), ("seconds", "seconds"), ("flops", "FLOPs"), ("percent", "%"), ("intensity", "FLOPs per byte"), ("ratio", "times"),
)  # fmt: skip
_BINARY = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def unit_of_field(name: str) -> str:
    """What a number counts by the end of its name; empty where it is a number of things.

    >>> unit_of_field("read_bytes_per_second"), unit_of_field("decode_calls")
    ('bytes/s', '')
    """
    return next((unit for ending, unit in _ENDINGS if name == ending or name.endswith(f"_{ending}")), "")


def said(name: str, value: float) -> str:
    """A number as people say it, by the end of its name; sizes that are whole KiB or MiB are said so.

    >>> said("l1_bytes", 32768), said("step_seconds", 0.0123), said("calls", 12345), said("wait_percent", 3.25)
    ('32 KiB', '12.3 ms', '12,345', '3.25 %')
    """
    unit = unit_of_field(name)
    if unit == "bytes":
        whole = next(
            (
                f"{value / size:,.0f} {word}"
                for size, word in _BINARY
                if size <= value < 10_000 * size and value % size == 0
            ),
            "",
        )
        return whole or plain_bytes(value)
    if unit in ("bytes/s", "FLOP/s"):
        return amount(value, unit.replace("bytes", "B"))
    if unit == "FLOPs":
        return amount(value, "FLOP")
    if unit == "seconds":
        return seconds(value)
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{number} %" if unit == "%" else number


def seconds(value: float | None) -> str:
    """A time with the unit that suits it.

    >>> seconds(0.0012), seconds(None)
    ('1.2 ms', 'unknown')
    """
    if value is None:
        return "unknown"
    scale, unit = _scaled(value, _PARTS, _PARTS[-1])
    return f"{_digits(value / scale)} {unit}"


__all__ = ["amount", "counted", "plain_bytes", "said", "seconds", "things", "unit_of_field"]
