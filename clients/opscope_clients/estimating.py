"""`opscope estimate`: time and memory of a pass on a device, as one screen; what `estimate-roofline` says in fewer words."""

from __future__ import annotations

import re
from typing import Any

import click
from opscope_schemas.estimates import PlanResult, RooflineResult, SweepPoint, SweepResult
from opscope_tools.catalog import tool_named
from opscope_tools.estimate_roofline.sweeping import SWEEP
from opscope_tools.estimate_roofline.tool import NEAREST

from opscope_clients import commands, drawing
from opscope_clients.options import parse_object, sizes_of
from opscope_clients.session_options import SessionCommand, SessionOptions, command


def _estimate(session: SessionOptions, target: str, hardware: str, as_json: bool, whole: bool, **given: Any) -> None:
    session, target = session.placing(target)
    file = drawing.check(given["plot"], given["picture"], overwrite=given["overwrite"]) if given["plot"] else None
    phase = given["phase"]
    if phase != "decode":  # the context is what the pass reads
        given = {**given, "seq": given["seq"] or given["context"], "context": None}
    values: dict[str, Any] = {**sizes_of(given)}
    if given["values"]:
        others = parse_object("values", given["values"])
        if isinstance(others, dict):
            values |= others
    precision = {n: given[n] for n in ("weights", "cache", "activations") if given[n]}
    arguments: dict[str, Any] = {
        "target": target, "hardware": hardware, "phase": phase, "backend": given["backend"], "values": values,
        **({"precision": precision} if precision else {}),
    }  # fmt: skip
    if given["config"]:
        arguments["config"] = parse_object("config", given["config"], path=True)
    if given["parallel"]:
        arguments["parallel"] = parse_object("parallel", given["parallel"])
    if given["speculative"]:
        arguments["speculative"] = parse_object("speculative", given["speculative"])
    if given["view"] != "serving":
        arguments["view"] = given["view"]
    if given["serve"]:
        arguments["serving"] = _load(given["serve"])
    workspace = session.naming(target, arguments.get("config")).workspace()
    if given["sweep"]:
        arguments |= _points(given["sweep"], values, phase)
        swept = commands.run(SWEEP, arguments, workspace)
        if given["as_csv"] and isinstance(swept, SweepResult):
            _print_csv(swept)
        else:
            commands.show(swept, as_json=as_json, whole=whole)
        return
    if given["as_csv"]:
        raise click.UsageError("--csv prints the points of a sweep: give --sweep too.")

    def at(other: dict[str, int]) -> RooflineResult:
        asked = {**arguments, "values": {**values, **other}}
        found = commands.run(NEAREST if given["nearest"] else tool_named("estimate_roofline"), asked, workspace)
        assert isinstance(found, RooflineResult)
        return found

    result = at({})
    commands.show(result, as_json=as_json, whole=whole)
    if file is not None:
        drawing.draw(result, given["picture"], file, at)


def _load(text: str) -> dict[str, int]:
    """`64,1024,1024`: requests at a time, tokens of a question and of an answer."""
    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdigit() for part in parts):
        raise click.BadParameter("write CONCURRENCY,INPUT,OUTPUT, as in 64,1024,1024", param_hint="--serve")
    return dict(zip(("concurrency", "input_len", "output_len"), map(int, parts), strict=True))


def _points(given: tuple[str, ...], values: dict[str, Any], phase: str) -> dict[str, list[int]]:
    """`batch=1..256`, `context=1024,2048`, `batch=1..256*2` (doubling), `batch=8..64+8`."""
    found = {"batches": [int(values.get("batch_size", 1))],
             "contexts": [int(values.get("cache_len" if phase == "decode" else "seq_len", 1024))]}  # fmt: skip
    for text in given:
        name, _, sizes = text.partition("=")
        key = {"batch": "batches", "context": "contexts"}.get(name.strip())
        read = _sizes(sizes)
        if key is None or not read:
            raise click.BadParameter(
                f"{text!r} is neither batch=SIZES nor context=SIZES; sizes are 1,2,4 or 1..256, 1..256+8, 1..256*2",
                param_hint="--sweep",
            )
        found[key] = read
    return found


def _sizes(text: str) -> list[int]:
    if (span := re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})(?:([+*])(\d{1,9}))?", text.strip())) is None:
        return [int(part) for part in text.split(",")] if re.fullmatch(r"\d{1,9}(,\d{1,9})*", text.strip()) else []
    size, last, sign, step = int(span[1]), int(span[2]), span[3] or "+", int(span[4] or 1)
    if size < 1 or step < (2 if sign == "*" else 1):
        return []
    found: list[int] = []
    while size <= last and len(found) < 100_000:
        found.append(size)
        size = size * step if sign == "*" else size + step
    return found


def _print_csv(result: SweepResult) -> None:
    names = list(SweepPoint.model_fields)
    click.echo(",".join(names))
    for point in result.points:
        click.echo(",".join("" if (value := getattr(point, name)) is None else str(value) for name in names))


def _plan(session: SessionOptions, target: str, hardware: str, as_json: bool, whole: bool, **given: Any) -> int:
    session, target = session.placing(target)
    file = drawing.check(given["plot"], "plans", overwrite=given["overwrite"]) if given["plot"] else None
    arguments: dict[str, Any] = {
        "target": target, "hardware": hardware,
        **{n: given[n] for n in ("goal", "input_len", "output_len", "tpot_limit", "price", "backend") if given[n] is not None},
    }  # fmt: skip
    if given["weights"]:
        arguments["weights"] = list(given["weights"])
    if given["config"]:
        arguments["config"] = parse_object("config", given["config"], path=True)
    workspace = session.naming(target, arguments.get("config")).workspace()
    result = commands.run(tool_named("plan"), arguments, workspace)
    commands.show(result, as_json=as_json, whole=whole)
    if file is not None and isinstance(result, PlanResult):
        drawing.draw_plans(result, file)
    return commands.status(tool_named("plan"), result)


def plan_command() -> SessionCommand:
    """`opscope plan TARGET --hardware DEVICE:NUMBER`."""
    precisions = click.Choice(["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"])
    return command(
        _plan, "plan", "Ways to serve a model on several devices, and those that no other beats.",
        [
            click.Argument(["target"]),
            click.Option(["--hardware"], required=True, metavar="DEVICE:NUMBER", help="h100_sxm:8, ..."),
            click.Option(["--goal"], type=click.Choice(["latency", "throughput", "cost"]), default="throughput", show_default=True),
            click.Option(["--input-len"], type=click.IntRange(1), default=1024, show_default=True, help="Tokens of a question."),
            click.Option(["--output-len"], type=click.IntRange(1), default=1024, show_default=True, help="Tokens of an answer."),
            click.Option(["--weights"], type=precisions, multiple=True, help="Precisions to try. Repeatable."),
            click.Option(["--tpot-limit"], type=float, help="Seconds a token may take."),
            click.Option(["--price"], type=float, help="Of a device an hour."),
            click.Option(["--backend"], type=click.Choice(["vllm", "trtllm", "sglang"]), default="vllm", show_default=True),
            click.Option(["--config"], multiple=True, metavar="PATH|KEY=VALUE|JSON", help="Config file, or overrides."),
            click.Option(["--plot"], metavar="FILE", help="Draw all plans and their front: .svg or .png."),
            click.Option(["--overwrite"], is_flag=True, help="Let --plot replace a file."),
            *commands.forms(),
        ],
    )  # fmt: skip


def estimate_command() -> SessionCommand:
    """`opscope estimate TARGET --hardware DEVICE`."""
    precisions = click.Choice(["bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4"])
    return command(
        _estimate, "estimate", "How long a pass takes on a device, and whether it fits: one screen.",
        [
            click.Argument(["target"]),
            click.Option(["--hardware"], required=True, metavar="DEVICE", help="h100_sxm, b200_sxm, a100_sxm, mi300x, ..."),
            click.Option(["--phase"], type=click.Choice(["prefill", "decode", "encode", "train"]), default="decode", show_default=True),
            click.Option(["--batch"], type=click.IntRange(1), help="Sequences."),
            click.Option(["--seq"], type=click.IntRange(1), help="New tokens of each."),
            click.Option(["--context"], type=click.IntRange(1), help="Tokens in the cache (decode), or new ones (prefill)."),
            click.Option(["--parallel"], multiple=True, metavar="KEY=VALUE|JSON", help="tp, pp, ep, dp, sp; of a training step dp and zero. Repeatable."),
            click.Option(["--serve"], metavar="CONCURRENCY,INPUT,OUTPUT", help="Under load: requests at a time, tokens of each."),
            click.Option(["--sweep"], multiple=True, metavar="batch|context=SIZES", help="batch=1..256, context=1024,8192. Repeatable."),
            click.Option(["--csv", "as_csv"], is_flag=True, help="Print a sweep as CSV."),
            click.Option(["--weights"], type=precisions, help="Precision of weights; default: the checkpoint's."),
            click.Option(["--cache"], type=precisions, help="Precision of the cache."),
            click.Option(["--activations"], type=click.Choice(["bf16", "fp16", "fp8"]), help="Precision that products read."),
            click.Option(["--speculative"], multiple=True, metavar="KEY=VALUE|JSON",
                         help="num_speculative_tokens, acceptance_rate, and draft_model or draft_cost. Repeatable."),
            click.Option(["--view"], type=click.Choice(["serving", "eager"]), default="serving", show_default=True, help="eager: and what fusing would save."),
            click.Option(["--backend"], type=click.Choice(["vllm", "trtllm", "sglang"]), default="vllm", show_default=True),
            click.Option(["--config"], multiple=True, metavar="PATH|KEY=VALUE|JSON", help="Config file, or overrides."),
            click.Option(["--values"], multiple=True, metavar="KEY=VALUE|JSON", help="Other sizes. Repeatable."),
            click.Option(["--nearest"], is_flag=True, help="The nearest measured kernel beside each; needs the extra silicon."),
            click.Option(["--plot"], metavar="FILE", help="Draw it: .svg, .png; a timeline also .json (for Perfetto) or .txt."),
            click.Option(["--picture"], type=click.Choice(drawing.PICTURES), default="roofline", show_default=True, help="What --plot draws."),
            click.Option(["--overwrite"], is_flag=True, help="Let --plot replace a file."),
            *commands.forms(),
        ],
    )  # fmt: skip
