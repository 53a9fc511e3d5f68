"""`opscope compare` and its options."""

from __future__ import annotations

import re
from typing import Any

import click
from opscope_tools.catalog import tool_named

from opscope_clients import commands
from opscope_clients.options import parse_object, sizes_of
from opscope_clients.session_options import SessionCommand, SessionOptions, command

#: options that make sides where they are given several times
_VARIED = ("phase", "attention", "view", "weights", "hardware")


def _compare(session: SessionOptions, targets: tuple[str, ...], as_json: bool, whole: bool, **given: Any) -> None:
    session, targets = session.placing_all(targets)
    arguments: dict[str, Any] = {"targets": list(targets)}
    own = parse_object("values", given["values"]) if given["values"] else {}
    assert isinstance(own, dict)
    values = {**sizes_of(given), **own}
    sides: list[dict[str, Any]] = [_side(text) for text in given["side"]]
    several = {name: given[name] for name in _VARIED if len(given[name]) > 1}
    count = max([len(targets), len(sides), *map(len, several.values())])
    sides = sides or [{} for _ in range(count)]
    for name in _VARIED:
        if len(chosen := given[name]) == 1 and name in ("phase", "hardware"):
            arguments[name] = chosen[0]
        elif chosen:
            if len(chosen) not in (1, len(sides)):
                raise click.UsageError(f"--{name} is given {len(chosen)} times, for {len(sides)} sides.")
            sides = [{name: chosen[min(i, len(chosen) - 1)], **side} for i, side in enumerate(sides)]
    if any(sides):
        arguments["sides"] = sides
    if given["config"]:
        arguments["config"] = parse_object("config", given["config"], path=True)
    if values:
        arguments["values"] = values
    if given["by"]:
        arguments["by"] = given["by"]
    named = session.naming(
        *targets, arguments.get("config"), *(side.get(n) for side in sides for n in ("target", "config"))
    )
    result = commands.run(tool_named("compare"), arguments, named.workspace())
    commands.show(result, as_json=as_json, whole=whole)


def _side(text: str) -> dict[str, Any]:
    """`phase=decode,values.cache_len=4096`, or JSON."""
    if text.lstrip().startswith("{"):
        found = parse_object("side", text)
    else:
        found = parse_object("side", re.split(r",(?=[\w.]+=)", text))
    assert isinstance(found, dict)
    for name in [name for name in found if name.startswith(("config.", "values."))]:
        holder, _, field = name.partition(".")
        found.setdefault(holder, {})[field] = found.pop(name)
    return found


def compare_command() -> SessionCommand:
    """`opscope compare TARGET TARGET`, or one TARGET with --phase, --attention, --view or --side given for each side."""
    return command(
        _compare, "compare", "What differs between models, phases, attentions or versions: totals, operators by effect, lines.",
        [
            click.Argument(["targets"], nargs=-1, required=True, metavar="TARGET..."),
            click.Option(["--batch"], type=click.IntRange(1), help="Sequences."),
            click.Option(["--seq"], type=click.IntRange(1), help="Tokens of a prefill; of a decode step beside it, those in the cache."),
            click.Option(["--context"], type=click.IntRange(1), help="Tokens in the cache of a decode step."),
            click.Option(["--phase"], type=click.Choice(["prefill", "decode", "encode", "train"]), multiple=True, help="One, or one for each side."),
            click.Option(["--attention"], type=click.Choice(["sdpa", "eager"]), multiple=True, help="One, or one for each side."),
            click.Option(["--view"], type=click.Choice(["eager", "serving"]), multiple=True, help="As it is, or as engines run it; one for each side."),
            click.Option(["--weights"], multiple=True, metavar="PRECISION", help="bf16, fp8, int4, ...; one, or one for each side."),
            click.Option(["--hardware"], multiple=True, metavar="DEVICE", help="Times on h100_sxm, ...; one, or one for each side."),
            click.Option(["--by"], type=click.Choice(["flops", "bytes", "seconds"]), help="What rows are of; default: seconds, or what differs most."),
            click.Option(["--config"], multiple=True, metavar="PATH|KEY=VALUE|JSON", help="Config file, or overrides, for all sides."),
            click.Option(["--values"], multiple=True, metavar="KEY=VALUE|JSON", help="Sizes for all sides. Repeatable."),
            click.Option(["--side"], multiple=True, metavar="KEY=VALUE,...|JSON",
                         help="What one side has of its own: phase=decode,values.cache_len=4096,repo=NAME. Once for each side."),
            click.Option(["--all", "whole"], is_flag=True, help="Print all of it, however long."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print the whole result as JSON."),
        ],
    )  # fmt: skip


__all__ = ["compare_command"]
