"""The sides of a comparison: their arguments, their names, and the transformers that each is traced with."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from opscope_schemas.analysis import ModuleAnalysisResult
from opscope_schemas.common import ToolArguments
from opscope_schemas.errors import ConfigError, InputError, TraceError
from pydantic import Field

from opscope_tools.costing.arguments import CostArguments
from opscope_tools.count_flops import count_flops
from opscope_tools.estimate_roofline.tool import Precision, stored_as
from opscope_tools.running.config_files import Config
from opscope_tools.running.engines import close_engines
from opscope_tools.running.runner import validate
from opscope_tools.running.tool import Tool, ToolContext
from opscope_tools.running.trust import importable
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, folder_repository, repositories_of

_MOST = 8


class CompareArguments(ToolArguments):
    """Arguments of `compare`: what all sides share, and what each has of its own."""

    targets: list[str] = Field(min_length=1, max_length=_MOST, description="Models.")
    sides: list[dict[str, Any]] | None = Field(
        default=None, max_length=_MOST,
        description="[{}, {'phase': 'decode'}]; attention, view, weights, repo",
    )  # fmt: skip
    phase: Literal["prefill", "decode", "encode", "train"] = Field(default="prefill", description="Pass.")
    config: Config = Field(default=None, description="Path or overrides.")
    values: dict[str, Any] | None = Field(default=None, description="Sizes.")
    hardware: str = Field(default="", max_length=200, description="Device.")
    by: Literal["flops", "bytes", "seconds"] | None = Field(default=None, description="Order.")


class SideArguments(CostArguments):
    """Arguments of one side: those of `count_flops`, and of `estimate_roofline` what its times depend on."""

    name: str = Field(default="", max_length=100)
    weights: Precision | None = None
    parallel: dict[str, Annotated[int, Field(ge=0, le=1024)]] | None = None
    repo: str = ""


_SIDE: Tool[SideArguments, ModuleAnalysisResult] = Tool(
    name="a side", title="", description="", arguments=SideArguments, result=ModuleAnalysisResult, run=count_flops
)
#: what times on a device leave open, beside the sizes
_UNTIMED = {"attention": "sdpa", "instance": "", "inputs": None, "logits": "last"}


def sides_of(arguments: CompareArguments) -> list[SideArguments]:
    """Each side's arguments, with a name of its own. Raises `InputError` for what makes no two sides."""
    own = arguments.sides or [{} for _ in arguments.targets]
    targets = arguments.targets * len(own) if len(arguments.targets) == 1 else arguments.targets
    if len(own) < 2:
        raise InputError(
            "One side is nothing to compare.",
            next_step="Give a second target, or sides: [{'phase': 'prefill'}, {'phase': 'decode'}].",
        )
    if len(targets) != len(own):
        raise InputError(f"{len(targets)} targets have {len(own)} sides.", next_step="Give one of sides per target.")
    shared = {name: getattr(arguments, name) for name in ("phase", "config", "values", "hardware")}
    several = len({given.get("phase", arguments.phase) for given in own}) > 1
    found = [
        _side(target, _of_phase(shared, given) if several else shared, given)
        for target, given in zip(targets, own, strict=True)
    ]
    if len({bool(side.hardware) for side in found}) > 1 or (arguments.by == "seconds" and not found[0].hardware):
        raise ConfigError("Times are of every side or of none.", next_step="Give hardware for all sides.")
    return [side.model_copy(update={"name": name}) for side, name in zip(found, _names(found, own), strict=True)]


def _of_phase(shared: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What all sides share, for one of several phases: the tokens of a prefill are those that a decode step finds in its cache."""
    values = shared["values"]
    if given.get("phase", shared["phase"]) != "decode" or not values or "seq_len" not in values:
        return shared
    rest = {name: value for name, value in values.items() if name != "seq_len"}
    return {**shared, "values": {"cache_len": values["seq_len"], **rest}}


def _side(target: str, shared: Mapping[str, Any], given: Mapping[str, Any]) -> SideArguments:
    merged = {"target": target, **shared, **given}
    for name in ("config", "values"):
        general, own = shared[name], given.get(name)
        if isinstance(general, Mapping) and isinstance(own, Mapping):
            merged[name] = {**general, **own}
        elif name == "config" and general and own:  # one of them is a file: of the other nothing would be left
            raise ConfigError(
                "A config for all sides and one of a side's own go together as overrides alone.",
                next_step="Give each side its own config: a file, or overrides.",
            )
    side = validate(_SIDE, merged)
    if not side.hardware and side.parallel:
        raise ConfigError("parallel is of devices.", next_step="Give hardware, or leave parallel out.")
    if side.hardware:
        if wrong := [n for n, usual in _UNTIMED.items() if n in given and getattr(side, n) != usual]:
            raise ConfigError(
                f"Times take no {wrong[0]}: they are of a whole pass that computes the last position's logits.",
                next_step=f"Leave out {wrong[0]} or hardware; view is eager or serving.",
            )
        last = side.phase in ("prefill", "decode")
        side = side.model_copy(
            update={"logits": "last" if last else "all", "view": given.get("view", "eager" if side.phase == "train" else "serving")}
        )  # fmt: skip
    return side


def stored(side: SideArguments, workspace: Workspace) -> SideArguments:
    """What the cost tools are asked: a precision of weights is a checkpoint's own way to say so."""
    if side.weights is None:
        return side
    return side.model_copy(update={"config": stored_as(workspace, side.config, side.weights)})


def _names(sides: Sequence[SideArguments], own: Sequence[Mapping[str, Any]]) -> list[str]:
    """By what tells them apart: the target where they differ, and each side's own arguments."""
    short = [side.target.rpartition("/")[2] or side.target for side in sides]
    targets = short if len(set(short)) == len({side.target for side in sides}) else [side.target for side in sides]
    several = len(set(targets)) > 1
    named = [
        side.name or " ".join([*([target] if several else []), *(_told(n, x) for n, x in given.items() if n != "target")])
        for side, target, given in zip(sides, targets, own, strict=True)
    ]  # fmt: skip
    numbered = [name or targets[0] for name in named]
    return [f"{name} ({i + 1})" if numbered.count(name) > 1 else name for i, name in enumerate(numbered)]


def _told(name: str, value: object) -> str:
    if name in ("phase", "hardware"):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={held}" for key, held in value.items())[:80]
    return f"{name}={value}"[:80]


@contextlib.contextmanager
def contexts(context: ToolContext, sides: Sequence[SideArguments]) -> Iterator[list[ToolContext]]:
    """Where each side is traced: in the session, or with the transformers of the repository that it names."""
    named = {side.repo for side in sides if side.repo}
    made: dict[str, Workspace] = {}
    try:
        for name in dict.fromkeys(side.repo for side in sides):
            made[name] = _workspace(context.workspace, name, named) if named else context.workspace
        yield [replace(context, workspace=made[side.repo]) for side in sides]
    finally:
        for workspace in made.values():
            if workspace is not context.workspace:
                close_engines(workspace)


def _workspace(session: Workspace, name: str, named: set[str]) -> Workspace:
    """The session with one of the repositories that sides name: its transformers takes the place of the session's, and where
    it lies in a virtual environment, that one's interpreter and torch do too. Raises `TraceError` for one that is not trusted."""
    others = {n: r for n, r in session.repositories.items() if n not in named or n in DEFAULT_PACKAGES}
    apart = replace(session, repositories=others, _engines={}, _trees={})
    if not name or name in DEFAULT_PACKAGES:
        return apart
    repository = session.repository(name)
    if not importable(session, repository):
        raise TraceError(
            f"Tracing a side with {name} would run its code, and it is not trusted.", next_step=f"Start with --trust {name}."
        )  # fmt: skip
    python = _interpreter(repository.root)
    if python is not None:
        stack = repositories_of(str(python))
        if DEFAULT_PACKAGES.keys() - stack.keys():
            raise TraceError(f"{python} has no transformers and torch to trace with.", next_step="Install both there.")
        return replace(apart, repositories={**others, **stack}, python=str(python))
    package = DEFAULT_PACKAGES["transformers"]
    if not any((repository.root / place / package / "__init__.py").is_file() for place in ("", "src")):
        return replace(apart, repositories={**others, name: repository})
    found = folder_repository("transformers", repository.root)
    found = found.model_copy(update={"version": repository.version or found.version})
    return replace(apart, repositories={**others, "transformers": found}, trusted=session.trusted | {"transformers"})


def _interpreter(folder: Path) -> Path | None:
    """The interpreter of the virtual environment that a folder lies in; None where it lies in none, or in our own."""
    for place in (folder, *folder.parents):
        if (place / "pyvenv.cfg").is_file():
            python = next((p for p in (place / "bin/python", place / "Scripts/python.exe") if p.exists()), None)
            return python if place != Path(sys.prefix).resolve() else None
    return None


__all__ = ["CompareArguments", "SideArguments", "contexts", "sides_of", "stored"]
