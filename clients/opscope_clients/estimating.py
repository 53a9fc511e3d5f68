"""`opscope estimate`: time and memory of a pass on a device, as one screen; what `estimate-roofline` says in fewer words."""

from __future__ import annotations

from typing import Any

import click
from opscope_tools.catalog import tool_named

from opscope_clients import commands
from opscope_clients.options import parse_object
from opscope_clients.session_options import SessionCommand, SessionOptions, command


def _estimate(session: SessionOptions, target: str, hardware: str, as_json: bool, **given: Any) -> None:
    phase = given["phase"]
    sizes = {"batch_size": given["batch"], "cache_len" if phase == "decode" else "seq_len": given["context"]}
    values: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if given["values"]:
        others = parse_object("values", given["values"])
        if isinstance(others, dict):
            values |= others
    precision = {n: given[n] for n in ("weights", "cache") if given[n]}
    arguments: dict[str, Any] = {
        "target": target, "hardware": hardware, "phase": phase, "backend": given["backend"], "values": values,
        **({"precision": precision} if precision else {}),
    }  # fmt: skip
    if given["config"]:
        arguments["config"] = parse_object("config", given["config"], path=True)
    workspace = session.naming(target, arguments.get("config")).workspace()
    commands.show(commands.run(tool_named("estimate_roofline"), arguments, workspace), as_json=as_json)


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
            click.Option(["--context"], type=click.IntRange(1), help="Tokens in the cache (decode), or new ones (prefill)."),
            click.Option(["--weights"], type=precisions, help="Precision of weights; default: the checkpoint's."),
            click.Option(["--cache"], type=precisions, help="Precision of the cache."),
            click.Option(["--backend"], type=click.Choice(["vllm", "trtllm", "sglang"]), default="vllm", show_default=True),
            click.Option(["--config"], multiple=True, metavar="PATH|KEY=VALUE|JSON", help="Config file, or overrides."),
            click.Option(["--values"], multiple=True, metavar="KEY=VALUE|JSON", help="Other sizes. Repeatable."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print the whole result as JSON."),
        ],
    )  # fmt: skip
