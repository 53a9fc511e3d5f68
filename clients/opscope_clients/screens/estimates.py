"""An estimate as one screen for people: how long, what limits it, what it needs, what the time is spent on."""

from __future__ import annotations

from collections.abc import Sequence

from opscope_schemas.estimates import (
    Alternative,
    Fusion,
    MemoryUse,
    PlanResult,
    RooflineResult,
    Served,
    Speculative,
    Spread,
    SweepResult,
    launches,
)
from opscope_schemas.units import plain_bytes, seconds

from opscope_clients.screens.index import last
from opscope_clients.screens.page import Page, number, place

#: kernels that are listed
_LISTED = 8


def show_estimate(page: Page, result: RooflineResult) -> None:
    """One screen: how long, what limits it, what it needs, what the time is spent on."""
    point = ", ".join(f"{name} {value:,}" for name, value in result.values.items() if isinstance(value, int))
    stored = ", ".join(f"{kind} {name}" for kind, name in result.precision.items())
    page.say(
        f"{last(result.model_class)} on {result.hardware.name}, {result.phase}: {point}; {stored}",
        "bold",
    )
    totals = result.totals
    if not result.memory.fits:
        page.say("does not fit: these are times of devices that had the memory", "red")
    if totals.calibrated_seconds is not None:
        page.say(
            f"{seconds(totals.calibrated_seconds)} calibrated ({seconds(totals.low_seconds)} to "
            f"{seconds(totals.high_seconds)}); bound {seconds(totals.bound_seconds)}, limited by {totals.limited_by}"
        )
        if started := launches(totals):
            page.say(
                f"the fixed time of kernels takes {100 * started:.0f} % of it: fewer kernels, or more sequences for each, help first"
            )
    else:
        page.say(f"{seconds(totals.bound_seconds)} at least (bound), limited by {totals.limited_by}; uncalibrated")
    rates = [(totals.tokens_per_second, "tokens/s"), (totals.bound_tokens_per_second, "tokens/s at most (bound)")]
    if said := ", ".join(f"{rate:,.0f} {unit}" for rate, unit in rates if rate is not None):
        page.say(said)
    if result.serving is not None:
        _show_served(page, result.serving)
    _show_memory(page, result.memory)
    if result.parallel is not None:
        _show_spread(page, result.parallel)
    _show_spent(page, result)
    _show_alternatives(page, result)
    if result.speculative is not None:
        _show_speculative(page, result.speculative)
    _show_fusion(page, result.fusion)
    _show_slowest(page, result)
    if result.calibration is not None:
        errors = ", ".join(f"{name} {error:g} %" for name, error in result.calibration.error.items())
        page.say(f"calibrated with {result.calibration.source}; mean error on unseen shapes: {errors}", "dim")
    page.sayings("operators that are not counted", result.not_counted, mark="not counted: ", style="yellow")


def show_plan(page: Page, result: PlanResult) -> None:
    """The best plan and the front, a line each."""
    page.say(
        f"{last(result.model_class)} on {result.devices} {result.hardware.name}, "
        f"{result.input_len:,} tokens in, {result.output_len:,} out; goal {result.goal}",
        "bold",
    )
    if result.best is None:
        page.say("no plan fits" if not result.front else "no plan keeps to the limit")
    else:
        page.say(f"best: {result.best.parallel}, {result.best.weights}, {result.best.concurrency} requests at a time")
    page.table(
        "plans",
        ["plan", "weights", number("requests"), number("tokens/s a user"), number("tokens/s a device"), number("per token"),
         number("first token"), number("cost/M"), "figures"],
        ([p.parallel, p.weights, p.concurrency, f"{p.tokens_per_second_per_user:,.1f}", f"{p.tokens_per_second_per_device:,.0f}",
          seconds(p.tpot_seconds), seconds(p.ttft_seconds), "" if p.cost_per_million_tokens is None else f"{p.cost_per_million_tokens:.3g}",
          "" if p.basis == "calibrated" else p.basis] for p in result.front),
    )  # fmt: skip
    page.sayings("ways left out", result.refused, mark="left out: ", style="dim", most=8)


def show_sweep(page: Page, result: SweepResult) -> None:
    """A line for each batch and context."""
    page.say(f"{last(result.model_class)} on {result.device}, {result.parallel}, {result.phase}", "bold")
    page.table(
        "points",
        [number("batch"), number("context"), number("calibrated"), number("bound"), "limited by", number("tokens/s"), number("weights"),
         number("cache"), "fits"],
        ([f"{p.batch:,}", f"{p.context:,}", "" if p.calibrated_seconds is None else seconds(p.calibrated_seconds), seconds(p.bound_seconds),
          p.limited_by, "" if p.tokens_per_second is None else f"{p.tokens_per_second:,.0f}", plain_bytes(p.weights_bytes),
          plain_bytes(p.cache_bytes), "yes" if p.fits else "no"] for p in result.points),
    )  # fmt: skip
    page.say("--csv prints all of each point", "dim")


def _bytes(value: int | None) -> str:
    return "unknown" if value is None else plain_bytes(value)


def _show_memory(page: Page, memory: MemoryUse) -> None:
    if memory.fits:
        room = "fits"
    elif memory.weights_bytes > memory.usable_bytes:
        room = "the weights alone do not fit"
    else:
        room = "does not fit"
    if memory.largest_batch:
        room += f"; at most {memory.largest_batch:,} sequences like these"
    if memory.longest_context:
        room += f"; {memory.longest_context:,} tokens each with this batch"
    inputs = f" inputs {_bytes(memory.input_bytes)}," if memory.notable_inputs else ""
    page.say(
        f"memory: weights {_bytes(memory.weights_bytes)}, cache {_bytes(memory.cache_bytes)},{inputs} activations "
        f"{_bytes(memory.activation_bytes)} of {_bytes(memory.usable_bytes)} (90 % of {_bytes(memory.capacity_bytes)}): {room}"
    )
    if (step := memory.training) is not None:
        again = step.recomputed
        less = f"; activations {_bytes(again.saved_bytes)} where layers run again" if again is not None else ""
        page.say(f"and with it: gradients {_bytes(step.gradient_bytes)}, AdamW {_bytes(step.optimizer_bytes)}{less}")


def _show_served(page: Page, served: Served) -> None:
    limit = f"; the cache has room for {served.cache_limit:,}" if served.cache_limit is not None else ""
    rate = f", {served.tokens_per_second:,.0f} tokens/s" if served.tokens_per_second is not None else ""
    page.say(
        f"{served.concurrency:,} requests of {served.input_len:,} + {served.output_len:,} tokens: {seconds(served.tpot_seconds)} a token, "
        f"first after {seconds(served.ttft_seconds)} ({seconds(served.ttft_service_seconds)} of it service){rate}; "
        f"{served.decode_batch:,.4g} decode at a time{limit}; {served.basis}"
    )


def _show_spread(page: Page, spread: Spread) -> None:
    degrees = ", ".join(
        f"{name} {size}"
        for name, size in (("tp", spread.tp), ("pp", spread.pp), ("ep", spread.ep), ("dp", spread.dp))
        if size > 1
    )
    told = "; ".join(
        f"{one.count:,} {one.kind} of {one.bytes / 1e6:.3g} MB among {one.ranks}" for one in spread.communication
    )
    page.say(
        f"{spread.devices} devices ({degrees}): {told or 'nothing is exchanged'}; all of it hidden: {seconds(spread.hidden_seconds)}"
    )


def _show_spent(page: Page, result: RooflineResult) -> None:
    page.table(
        "classes",
        ["spent on", number("share"), number("calibrated"), number("bound")],
        ([k.name, f"{100 * k.share:.0f} %", seconds(k.calibrated_seconds), seconds(k.bound_seconds)] for k in result.spent),
    )  # fmt: skip


def _show_alternatives(page: Page, result: RooflineResult) -> None:
    shown = [one for one in result.alternatives if one.share >= max(0.01, one.error_share)]
    measured = [one for one in shown if one.basis == "calibrated"]
    said = [f"{one.name} saves {100 * one.share:.0f} %{_how_sure(one)}" for one in measured[:4]]
    said += [
        f"{one.name} saves {100 * one.share:.0f} % of the bound" + (" (not measured so)" if one.unmeasured else "")
        for one in shown if one.basis == "bound"
    ][: 4 - len(said[:3])]  # fmt: skip
    if result.turning_batch is not None:
        said.append(f"compute limits from a batch of {result.turning_batch:,}")
    if said:
        page.say("; ".join(said))


def _how_sure(one: Alternative) -> str:
    """What the fits behind it are off by, and whose kernels they are of."""
    whose = f", kernels of {' and '.join(one.backends)}" if one.backends else ""
    return f" (give or take {100 * one.error_share:.0f} %{whose})"


def _show_speculative(page: Page, found: Speculative) -> None:
    page.say(
        f"speculative: {found.num_speculative_tokens} proposed, {found.tokens_per_step:.3g} tokens a step; draft "
        f"{seconds(found.draft_seconds)}, verified in {seconds(found.verify_seconds)}: {seconds(found.seconds_per_token)} a token, "
        f"{found.speedup:.3g} times as fast ({found.basis})"
    )


def _show_fusion(page: Page, found: Sequence[Fusion]) -> None:
    page.table(
        "fused kernels",
        ["fused", number("bytes"), number("become"), number("kernels"), number("become"), number("less (bound)")],
        ([f"{f.module}: {f.operation}", plain_bytes(f.eager_bytes), plain_bytes(f.fused_bytes), f"{f.kernels:,}", f"{f.fused_kernels:,}",
          seconds(f.saved_seconds)] for f in found),
        most=_LISTED,
    )  # fmt: skip


def _show_slowest(page: Page, result: RooflineResult) -> None:
    slowest = sorted(result.operators, key=lambda o: -(o.calibrated_seconds or o.bound_seconds))
    page.table(
        "kernels that take less",
        ["kernel", number("runs"), number("calibrated"), number("bound"), "limited by", number("FLOPs/byte"), place()],
        ([f"{o.module}: {o.operation}".lstrip(": "), o.count, seconds(o.calibrated_seconds), seconds(o.bound_seconds), "launch" if launches(o) else o.limited_by or "",
          f"{o.intensity:,.1f}", f"{o.file.rpartition('/')[2]}:{o.line}"] for o in slowest),
        most=_LISTED,
    )  # fmt: skip
    page.table(
        "kernels",
        ["measured near", number("runs"), number("seconds"), "sizes", "by", number("off by a factor of")],
        ([f"{o.module}: {o.operation}", o.count, seconds(o.nearest.seconds * o.count),
          ", ".join(f"{name} {size:,g}" for name, size in o.nearest.sizes.items()), o.nearest.backend, f"{o.nearest.factor:.3g}"]
         for o in slowest if o.nearest is not None),
        most=_LISTED,
    )  # fmt: skip


__all__ = ["show_estimate", "show_plan", "show_sweep"]
