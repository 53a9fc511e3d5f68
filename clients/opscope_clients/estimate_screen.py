"""An estimate as one screen for people: how long, what limits it, what it needs, what the time is spent on."""

from __future__ import annotations

from opscope_schemas.estimates import MemoryUse, PlanResult, RooflineResult, Served, Spread
from rich.console import Console
from rich.markup import escape
from rich.table import Table

#: kernels that are listed
_LISTED = 8
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def seconds(value: float | None) -> str:
    """A time with the unit that suits it."""
    if value is None:
        return "unknown"
    scale, unit = next(((s, u) for s, u in _UNITS if abs(value) >= s), _UNITS[-1])
    return f"{value / scale:.3g} {unit}"


def gigabytes(value: int | None) -> str:
    """Bytes in units of 10^9."""
    return "unknown" if value is None else f"{value / 1e9:.2f} GB" if value < 1e10 else f"{value / 1e9:,.1f} GB"


def show_estimate(console: Console, result: RooflineResult) -> None:
    """One screen: how long, what limits it, what it needs, what the time is spent on."""
    point = ", ".join(f"{name} {value:,}" for name, value in result.values.items() if isinstance(value, int))
    stored = ", ".join(f"{kind} {name}" for kind, name in result.precision.items())
    console.print(
        f"[bold]{escape(result.model_class.rpartition('.')[2])}[/bold] on [bold]{escape(result.hardware.name)}[/bold], "
        f"{result.phase}: {escape(point)}; {escape(stored)}"
    )
    totals = result.totals
    if totals.calibrated_seconds is not None:
        console.print(
            f"[bold]{seconds(totals.calibrated_seconds)}[/bold] calibrated ({seconds(totals.low_seconds)} to "
            f"{seconds(totals.high_seconds)}); bound {seconds(totals.bound_seconds)}, limited by {totals.limited_by}"
        )
    else:
        console.print(
            f"[bold]{seconds(totals.bound_seconds)}[/bold] at least (bound), limited by {totals.limited_by}; uncalibrated"
        )
    rates = [(totals.tokens_per_second, "tokens/s"), (totals.bound_tokens_per_second, "tokens/s at most (bound)")]
    if said := ", ".join(f"{rate:,.0f} {unit}" for rate, unit in rates if rate is not None):
        console.print(said)
    if result.serving is not None:
        _show_served(console, result.serving)
    _show_memory(console, result.memory)
    if result.parallel is not None:
        _show_spread(console, result.parallel)
    _show_spent(console, result)
    _show_alternatives(console, result)
    _show_slowest(console, result)
    if result.calibration is not None:
        errors = ", ".join(f"{name} {error:g} %" for name, error in result.calibration.error.items())
        console.print(
            f"[dim]calibrated with {escape(result.calibration.source)}; mean error on unseen shapes: {escape(errors)}[/dim]"
        )
    for missing in result.not_counted:
        console.print(f"[yellow]not counted:[/yellow] {escape(missing)}")


def show_plan(console: Console, result: PlanResult) -> None:
    """The best plan and the front, a line each."""
    console.print(
        f"[bold]{escape(result.model_class.rpartition('.')[2])}[/bold] on {result.devices} [bold]{escape(result.hardware.name)}[/bold], "
        f"{result.input_len:,} tokens in, {result.output_len:,} out; goal {result.goal}"
    )
    if result.best is None:
        console.print("[red]no plan fits[/red]")
    else:
        console.print(
            f"best: [bold]{escape(result.best.parallel)}[/bold], {result.best.weights}, {result.best.concurrency} requests at a time"
        )
    table = Table(
        "plan",
        "weights",
        "requests",
        "tokens/s a user",
        "tokens/s a device",
        "per token",
        "first token",
        "cost/M",
        box=None,
        header_style="dim",
    )
    for one in result.front:
        cost = "" if one.cost_per_million_tokens is None else f"{one.cost_per_million_tokens:.3g}"
        basis = "" if one.basis == "calibrated" else " (bound)"
        table.add_row(
            escape(one.parallel), one.weights, str(one.concurrency), f"{one.tokens_per_second_per_user:,.1f}",
            f"{one.tokens_per_second_per_device:,.0f}{basis}", seconds(one.tpot_seconds), seconds(one.ttft_seconds), cost,
        )  # fmt: skip
    console.print(table)
    for why in result.refused[:8]:
        console.print(f"[dim]left out: {escape(why)}[/dim]")


def _show_memory(console: Console, memory: MemoryUse) -> None:
    if memory.fits:
        room = "fits"
    elif memory.weights_bytes > memory.capacity_bytes:
        room = "[red]the weights alone do not fit[/red]"
    else:
        room = "[red]does not fit[/red]"
    if memory.largest_batch:
        room += f"; at most {memory.largest_batch:,} sequences like these"
    if memory.longest_context:
        room += f"; {memory.longest_context:,} tokens each with this batch"
    console.print(
        f"memory: weights {gigabytes(memory.weights_bytes)}, cache {gigabytes(memory.cache_bytes)}, activations "
        f"{gigabytes(memory.activation_bytes)} of {gigabytes(memory.capacity_bytes)}: {room}"
    )
    if (step := memory.training) is not None:
        again = step.recomputed
        less = f"; activations {gigabytes(again.saved_bytes)} where layers run again" if again is not None else ""
        console.print(
            f"and with it: gradients {gigabytes(step.gradient_bytes)}, AdamW {gigabytes(step.optimizer_bytes)}{less}",
            soft_wrap=True,
        )


def _show_served(console: Console, served: Served) -> None:
    limit = f"; the cache has room for {served.cache_limit:,}" if served.cache_limit is not None else ""
    rate = f", {served.tokens_per_second:,.0f} tokens/s" if served.tokens_per_second is not None else ""
    console.print(
        f"{served.concurrency:,} requests of {served.input_len:,} + {served.output_len:,} tokens: {seconds(served.tpot_seconds)} a token, "
        f"first after {seconds(served.ttft_seconds)} ({seconds(served.ttft_service_seconds)} of it service){rate}; "
        f"{served.decode_batch:,.4g} decode at a time{limit}; {served.basis}"
    )


def _show_spread(console: Console, spread: Spread) -> None:
    degrees = ", ".join(
        f"{name} {size}"
        for name, size in (("tp", spread.tp), ("pp", spread.pp), ("ep", spread.ep), ("dp", spread.dp))
        if size > 1
    )
    told = "; ".join(
        f"{one.count:,} {one.kind} of {one.bytes / 1e6:.3g} MB among {one.ranks}" for one in spread.communication
    )
    console.print(
        f"{spread.devices} devices ({degrees}): {told or 'nothing is exchanged'}; all of it hidden: {seconds(spread.hidden_seconds)}"
    )


def _show_spent(console: Console, result: RooflineResult) -> None:
    table = Table("spent on", "share", "calibrated", "bound", box=None, header_style="dim")
    for kind in result.spent:
        table.add_row(
            kind.name, f"{100 * kind.share:.0f} %", seconds(kind.calibrated_seconds), seconds(kind.bound_seconds)
        )
    console.print(table)


def _show_alternatives(console: Console, result: RooflineResult) -> None:
    said = [f"{one.name} saves {100 * one.share:.0f} %" for one in result.alternatives[:4] if one.share >= 0.01]
    if result.turning_batch is not None:
        said.append(f"compute limits from a batch of {result.turning_batch:,}")
    if said:
        console.print("; ".join(said))


def _show_slowest(console: Console, result: RooflineResult) -> None:
    slowest = sorted(result.operators, key=lambda o: -(o.calibrated_seconds or o.bound_seconds))
    table = Table(
        "kernel", "runs", "calibrated", "bound", "limited by", "FLOPs/byte", "line", box=None, header_style="dim"
    )
    for one in slowest[:_LISTED]:
        where = f"{one.file.rpartition('/')[2]}:{one.line}"
        table.add_row(
            escape(f"{one.module}: {one.operation}".lstrip(": ")), str(one.count), seconds(one.calibrated_seconds),
            seconds(one.bound_seconds), one.limited_by or "", f"{one.intensity:,.1f}", escape(where),
        )  # fmt: skip
    console.print(table)
    if len(slowest) > _LISTED:
        console.print(f"[dim]and {len(slowest) - _LISTED} kernels that take less; --json shows all[/dim]")
