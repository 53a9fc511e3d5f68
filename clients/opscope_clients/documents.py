"""The commands that write analysis documents: `module`, `model` and `inspect`.

`module` writes module_analysis.json, `model` writes model_analysis.json, each into the output folder; `inspect` prints
the module tree. `--transformers DIR` is the user's own choice of code to run, so tracing may import it; `--pytorch DIR`
is only read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from opscope_cache.whole_files import ordinary_mode, write_whole
from opscope_schemas.errors import OutputError
from opscope_tools.catalog import tool_named
from opscope_tools.report.saving import check_writable
from opscope_tools.running.runner import compact

from opscope_clients import commands, console, hub
from opscope_clients.options import parse_object
from opscope_clients.session_options import SessionCommand, SessionOptions, command


def write_document(folder: Path, name: str, document: object) -> Path:
    """Write JSON to `folder/name` whole or not at all; raises `OutputError`."""
    return write_text(folder, name, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def write_text(folder: Path, name: str, text: str) -> Path:
    """Write `folder/name` whole or not at all; raises `OutputError`."""
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode(), ordinary_mode())
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written: {error.strerror or error}.", next_step="Name another folder with -o."
        ) from error
    return path


def with_sources(session: SessionOptions, given: dict[str, Any]) -> SessionOptions:
    """The session with --transformers and --pytorch folded in."""
    transformers, pytorch = given.pop("transformers"), given.pop("pytorch")
    repo = session.repo
    if transformers:
        repo += (f"transformers={transformers}",)
    if pytorch:
        repo += (f"pytorch={pytorch}",)
    trust = (*session.trust, "transformers") if transformers else session.trust
    output = given.pop("output_folder", None) or session.output
    return replace(session, repo=repo, trust=trust, output=output)


def _analyse(
    tool_name: str, file: str, target: str, session: SessionOptions, as_json: bool, whole: bool, given: dict[str, Any]
) -> None:
    session = with_sources(session, given)
    arguments: dict[str, Any] = {"target": target, "phase": given["phase"]}
    if given["config"]:
        arguments["config"] = parse_object("config", given["config"], path=True)
    if given["values"]:
        arguments["values"] = parse_object("values", given["values"])
    workspace = session.naming(target, arguments.get("config")).workspace()
    check_writable(workspace.output, file)  # before anything is traced
    result = commands.run(tool_named(tool_name), arguments, workspace)
    path = write_document(workspace.output, file, compact(getattr(result, "document")))  # noqa: B009 - only these two tools have one
    commands.show(result, as_json=as_json, whole=whole)
    console.err().print(f"Written: {path}", soft_wrap=True)


def _module(session: SessionOptions, module: str, as_json: bool, whole: bool, **given: Any) -> None:
    _analyse("count_flops", "module_analysis.json", module, session, as_json, whole, given)


def _model(session: SessionOptions, model: str, as_json: bool, whole: bool, **given: Any) -> None:
    _analyse("expand_refs", "model_analysis.json", model, session, as_json, whole, given)


def _inspect(session: SessionOptions, model_id: str, as_json: bool, whole: bool, **given: Any) -> None:
    session = with_sources(session, given)
    arguments: dict[str, Any] = {"model": str(hub.fetch_config(model_id)) if hub.is_hub_id(model_id) else model_id}
    if given["config"]:
        arguments["config"] = parse_object("config", given["config"], path=True)
    workspace = session.naming(arguments["model"], arguments.get("config")).workspace()
    commands.show(commands.run(tool_named("inspect_model"), arguments, workspace), as_json=as_json, whole=whole)


def _common(with_phase: bool) -> list[click.Parameter]:
    sources: list[click.Parameter] = [
        click.Option(["--transformers"], metavar="DIR", help="transformers sources to analyse and trace."),
        click.Option(["--pytorch"], metavar="DIR", help="PyTorch sources to read."),
        click.Option(["--config"], multiple=True, metavar="PATH|KEY=VALUE|JSON", help="Config file, or overrides."),
        *commands.forms(),
    ]
    if not with_phase:
        return sources
    return [
        *sources,
        click.Option(
            ["--phase"],
            type=click.Choice(["prefill", "decode", "encode", "train"]),
            default="prefill",
            show_default=True,
        ),
        click.Option(["--values"], multiple=True, metavar="KEY=VALUE|JSON", help="Variable values. Repeatable."),
        click.Option(["-o", "--output-folder"], metavar="DIR", help="Folder to write to (default: here)."),
    ]


def module_command() -> SessionCommand:
    """`opscope module --module CLASS`."""
    module = click.Option(["--module"], required=True, metavar="CLASS", help="Class, short or qualified.")
    return command(
        _module, "module", "Analyse one module's forward into module_analysis.json.", [module, *_common(True)]
    )


def model_command() -> SessionCommand:
    """`opscope model --model TYPE`."""
    model = click.Option(["--model"], required=True, metavar="CLASS|TYPE", help="Model type or class.")
    return command(_model, "model", "Expand a model's references into model_analysis.json.", [model, *_common(True)])


def inspect_command() -> SessionCommand:
    """`opscope inspect --model-id ID`."""
    model_id = click.Option(
        ["--model-id", "--model_id", "model_id"],
        required=True,
        metavar="ID",
        help="Model type, folder, config.json or hub id.",
    )
    return command(
        _inspect, "inspect", "Print a model's module tree, without its weights.", [model_id, *_common(False)]
    )
