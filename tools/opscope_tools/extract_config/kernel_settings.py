"""Kernels of a target of `extract_config`: the settings of each, out of what the kernels engine describes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from opscope_schemas.common import Repository
from opscope_schemas.errors import UnknownNameError
from opscope_schemas.extracted_config import Check, Constant, KernelSettings, Setting, TuneSet
from opscope_schemas.tiling import BoundValue, KernelTiling, TuneConfig

from opscope_tools.extract_config.parameters import Sources
from opscope_tools.running.tool import ToolContext
from opscope_tools.settings import checks_of

_FIRST_CONFIGS = 3
_KIND = {"constexpr": "constexpr", "template": "template"}


@dataclass
class FoundKernels:
    """The kernels that a target names, one page of them described."""

    settings: list[KernelSettings] = field(default_factory=list)
    described: list[tuple[Repository, KernelTiling]] = field(default_factory=list)
    total: int = 0
    repositories: list[Repository] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_kernels(
    context: ToolContext, repositories: Sequence[Repository], target: str, offset: int, limit: int, *, must: bool
) -> FoundKernels:
    """The kernels that a target names; raises `UnknownNameError` where it names none and `must`."""
    from opscope_tools.kernels import describe, nearest, scan, select

    found, inventories, chosen = FoundKernels(), [], []
    for repository in repositories:
        inventory = scan(repository, context.workspace.store, checkpoint=context.checkpoint, progress=context.progress)
        inventories.append(inventory)
        mine = select(inventory, target)
        chosen += [(repository, inventory, kernel) for kernel in mine]
        if mine:
            found.repositories.append(repository)
            found.notes += list(inventory.notes[:2])
    if not chosen and must:
        raise UnknownNameError(
            "class, model type, kernel, file or folder", target, nearest(inventories, target),
            next_step="Name a configuration or model class, path.py:line, a kernel, a file or a folder; register a "
            "repository with --repo NAME=PATH.",
        )  # fmt: skip
    found.total = len(chosen)
    page = chosen[offset : offset + limit]
    for repository, inventory in {r.name: (r, i) for r, i, _ in page}.values():
        mine = [kernel for r, _, kernel in page if r is repository]
        described = describe(repository, inventory, mine, checkpoint=context.checkpoint, progress=context.progress)
        found.described += [(repository, kernel) for kernel in described]
        found.settings += [kernel_settings(kernel) for kernel in described]
    return found


def kernel_settings(kernel: KernelTiling) -> KernelSettings:
    """What configures a kernel, out of its description."""
    settings = []
    tiles = {tile.name for tile in kernel.tile}
    given = {constant.name: _values(constant.values) for constant in kernel.constexpr}
    for tile in kernel.tile:
        constant = next((c for c in kernel.constexpr if c.name == tile.name), None)
        values = tuple(tile.values) or given.get(tile.name, ())
        settings.append(
            _setting(
                kernel,
                tile.name,
                "tile",
                values,
                constant.default if constant else "",
                constant.line if constant else tile.line,
                constant.file if constant else tile.file,
            )
        )
    for constant in kernel.constexpr:
        if constant.name not in tiles:
            kind: Literal["constexpr", "template"] = "template" if constant.kind == "template" else "constexpr"
            settings.append(
                _setting(
                    kernel, constant.name, kind, given[constant.name], constant.default, constant.line, constant.file
                )
            )
    for name, bound in (("num_warps", kernel.num_warps), ("num_stages", kernel.num_stages)):
        if bound:
            kind_of: Literal["num_warps", "num_stages"] = "num_warps" if name == "num_warps" else "num_stages"
            settings.append(_setting(kernel, name, kind_of, _values(bound), "", bound[0].line, bound[0].file))
    for launch in kernel.grid:
        if launch.block:
            settings.append(
                _setting(
                    kernel,
                    f"block of {launch.function or 'a launch'}",
                    "block",
                    launch.block,
                    "",
                    launch.line,
                    launch.file,
                )
            )
        if launch.shared_memory not in {"", "0"}:
            settings.append(
                _setting(
                    kernel,
                    "dynamic shared memory",
                    "dynamic_shared_memory",
                    (launch.shared_memory,),
                    "",
                    launch.line,
                    launch.file,
                )
            )
    return KernelSettings(
        id=kernel.id, name=kernel.name, language=kernel.language, role=kernel.role, file=kernel.file, line=kernel.line,
        settings=tuple(dict.fromkeys(settings)), autotune=_tuned(kernel),
    )  # fmt: skip


def with_constants(kernels: Sequence[KernelSettings], constants: Sequence[Constant]) -> list[KernelSettings]:
    """The kernels with what the constants of their files say of settings that no launch gives a value to."""
    said: dict[tuple[str, str], list[str]] = {}
    for constant in constants:
        value = constant.expression if constant.value is None else str(constant.value)
        said.setdefault((constant.file, constant.name), []).append(
            f"{value} if {constant.condition}" if constant.condition else value
        )

    def filled(kernel: KernelSettings, setting: Setting) -> Setting:
        known = setting.values or tuple(dict.fromkeys(said.get((setting.file or kernel.file, setting.name), ())))
        return setting.model_copy(update={"values": known})

    return [k.model_copy(update={"settings": tuple(filled(k, s) for s in k.settings)}) for k in kernels]


def _setting(
    kernel: KernelTiling, name: str, kind: object, values: Sequence[str], default: str, line: int, file: str
) -> Setting:
    return Setting.model_validate({
        "name": name, "kind": kind, "values": tuple(values), "default": default, "file": file or kernel.file, "line": line,
    })  # fmt: skip


def _values(bound: Sequence[BoundValue]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{b.value} if {b.when}" if b.when else b.value for b in bound))


def _tuned(kernel: KernelTiling) -> TuneSet | None:
    tuned = kernel.autotune
    if tuned is None:
        return None
    return TuneSet(
        count=tuned.count, first=tuple(_written(config) for config in tuned.configs[:_FIRST_CONFIGS]), key=tuned.key,
        unresolved=tuned.unresolved, file=tuned.file or kernel.file, line=tuned.line,
    )  # fmt: skip


def _written(config: TuneConfig) -> str:
    parts = [f"{name}={value}" for name, value in config.values.items()]
    parts += [
        f"{name}={value}"
        for name, value in (("num_warps", config.num_warps), ("num_stages", config.num_stages))
        if value is not None
    ]
    parts += [f"{name}={value}" for name, value in config.options.items()]
    return ", ".join(parts) + (f" if {config.when}" if config.when else "")


def checks_of_kernels(sources: Sources, described: Sequence[tuple[Repository, KernelTiling]]) -> list[Check]:
    """What the kernels assert, what the lines of their definitions and the functions that launch them check."""
    from opscope_tools.kernels.cuda.checks import native_checks
    from opscope_tools.source.files import read_text

    found: dict[tuple[str, int, str], Check] = {}
    for repository, kernel in described:
        names = {c.name for c in kernel.constexpr} | {p.name for p in kernel.parameters}
        hosts = {(launch.file or kernel.file, launch.function) for launch in kernel.grid if launch.function}
        for file in dict.fromkeys([kernel.file, *(file for file, _ in hosts)]):
            text = read_text(repository, file)
            if text is None:
                continue
            if file.endswith(".py"):
                source = sources.of(repository, file)
                wanted = {name for where, name in hosts if where == file} | (
                    {kernel.name} if file == kernel.file else set()
                )
                own = [path for path, _ in source.definitions if path in wanted or path.rpartition(".")[2] in wanted]
                checks = checks_of(source, own, names)
            else:
                functions = {name for where, name in hosts if where == file}
                checks = [
                    c for c in native_checks(file, text, names)
                    if (file == kernel.file and kernel.line <= c.line <= kernel.end_line)
                    or c.within.rpartition("::")[2] in {*functions, kernel.name}
                ]  # fmt: skip
            for check in checks:
                found.setdefault((check.file, check.line, check.kind), check)
        for constraint in kernel.constraints:
            file = constraint.file or kernel.file
            kind = constraint.kind.removeprefix("tl.")
            known = any(where == (file, constraint.line) for *where_, _ in found for where in [tuple(where_)])
            if not known:
                found[file, constraint.line, kind] = Check(
                    kind=kind, condition=constraint.condition, message=constraint.message, within=constraint.via or kernel.name,
                    file=file, line=constraint.line,
                )  # fmt: skip
    return sorted(found.values(), key=lambda check: (check.file, check.line))
