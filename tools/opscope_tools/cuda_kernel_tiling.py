"""The tool `cuda_kernel_tiling`: how a CUDA, Triton, TileLang, cuTile, Gluon, CuTe-DSL or CUTLASS kernel, a file of them, or a repository is tiled."""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from opscope_cache.keys import digest, engine_version, of_document
from opscope_cache.store import recall
from opscope_schemas.common import Repository, ToolArguments
from opscope_schemas.errors import SourceError, UnknownNameError
from opscope_schemas.tiling import BoundValue, KernelTiling, Launch, TilingResult
from pydantic import Field, TypeAdapter, field_validator

from opscope_tools.running.tool import Tool, ToolContext

if TYPE_CHECKING:
    from opscope_schemas.resources import Resources

    from opscope_tools.kernels import Arch, Inventory, KernelRef

F = TypeVar("F", "BoundValue", "Launch")
#: what a parameter may be given: a constant, or the name of a type
Plain: TypeAlias = bool | int | float | str | None

_LISTED = 60
#: how Python, JSON and C++ write what is no number and no text
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
#: of each kernel: its operations, and its tile sizes by name
_TRAITS = TypeAdapter(list[tuple[list[str], dict[str, list[str]]]])


class TilingArguments(ToolArguments):
    """What the tool is asked."""

    target: str = Field(description="Kernel name, path::name, path:line, file, folder, or repository.")
    repo: str | None = Field(default=None, description="Default: all.")
    arch: str | None = Field(
        default=None,
        description="sm_90, gfx942: decides tests such as is_hip(); several (sm_80,sm_90) to compile for.",
    )
    compile: bool = Field(
        default=False,
        description="Compile, without a GPU; seconds for each kernel.",
    )
    values: dict[str, Plain] | None = Field(
        default=None,
        description='Types ("*fp16", "i32"), constexpr and template parameters; the rest is inferred.',
    )
    sizes: dict[str, int] | None = Field(
        default=None,
        description='Point of `cost`: {"M": 4096, "BLOCK_M": 128, "element_size()": 2}.',
    )
    instance: str | None = Field(default=None, description='CUDA instantiation to compile, "rms_norm<float, 1024>".')
    probe: list[str] = Field(
        default=[],
        max_length=32,
        description='CUDA constants to compute, "Traits<64>::kSmemSize".',
    )
    limit: int = Field(default=10, ge=1, le=200, description="Kernels per page.")
    offset: int = Field(default=0, ge=0, description="Kernels to skip.")
    detail: Literal["screen", "summary", "full"] = Field(
        default="full",
        description="screen: one screen a kernel; summary: no loads, stores, loops.",
    )
    diagram: Literal["ascii", "svg"] | None = Field(default=None, description="Draw tiles and memories.")
    kind: (
        Literal["triton", "cuda", "tilelang", "cutile", "cute_dsl", "gluon", "cutlass", "kernel", "device_function"]
        | None
    ) = Field(default=None, description="Only such kernels.")
    op: str | None = Field(default=None, description='With this operation: "tl.dot", "mma.sync", "cp.async".')
    tile: str | None = Field(default=None, description='With this tile: "BLOCK_M=64".')
    file: str | None = Field(default=None, description='Of these files: "*/ops/*.py".')

    @field_validator("values")
    @classmethod
    def _as_meant(cls, values: dict[str, Plain] | None) -> dict[str, Plain] | None:
        """Values with words of a programming language as what they stand for: the text `False` would hold in every test."""
        return values and {
            name: _WORDS.get(value, value) if isinstance(value, str) else value for name, value in values.items()
        }


def run(arguments: TilingArguments, context: ToolContext) -> TilingResult:
    """Find the kernels that the target names and describe one page of them."""
    # here: the engine's tables take a tenth of the server's start, and most sessions ask for no kernel
    from opscope_tools.kernels import describe, named_file, nearest, nearest_files, parse_arch, scan, select

    archs = [arch for part in (arguments.arch or "").split(",") if (arch := parse_arch(part)) is not None]
    arch = archs[0] if len(archs) == 1 else None
    workspace = context.workspace
    chosen: list[tuple[Repository, Inventory, KernelRef]] = []
    inventories: list[tuple[Repository, Inventory]] = []
    any_named = False
    if path := named_file(arguments.target):
        # here: the file lists answer at once, the inventory of the default repositories takes 20 seconds the first time
        similar = nearest_files(workspace.select(arguments.repo), path)
        if similar is not None:
            raise UnknownNameError(
                "source file", path, similar,
                next_step="Give the path of a file in a registered repository, or register one with --repo NAME=PATH.",
            )  # fmt: skip
    for repository in workspace.select(arguments.repo):
        inventory = scan(repository, workspace.store, checkpoint=context.checkpoint, progress=context.progress)
        inventories.append((repository, inventory))
        selected = select(inventory, arguments.target)
        any_named = any_named or bool(selected)
        named = [k for k in selected if _wanted(arguments, k)]
        chosen.extend((repository, inventory, k) for k in _with_facts(arguments, context, repository, inventory, named))
    unread = [
        u
        for _, inventory in inventories
        for u in inventory.not_analysed
        if _concerns(arguments.target, inventory, u.name, u.file)
    ]
    if path and not any_named and not unread:
        there = {k.name for _, inventory in inventories for k in select(inventory, path)}
        if there and "::" in arguments.target:
            close = [name for name in nearest([i for _, i in inventories], arguments.target) if name in there]
            raise UnknownNameError(
                f"kernel of {path}", arguments.target.rpartition("::")[2], close or sorted(there)[:6],
                next_step="Name one of them as path::name, or the file alone for all.",
            )  # fmt: skip
        broken = [note for _, i in inventories for note in i.notes if f"/{note.partition(':')[0]}".endswith(f"/{path}")]
        raise SourceError(
            broken[0] if broken else f"{path} defines no kernel.",
            next_step="Mend it and ask again." if broken else "Name the file that does, or a folder or repository to list its kernels.",
        )  # fmt: skip
    if not any_named and not unread:
        raise UnknownNameError(
            "kernel, file or folder with kernels",
            arguments.target,
            nearest([i for _, i in inventories], arguments.target),
            next_step="Name a registered repository to list its kernels, or register one with --repo NAME=PATH."
            + "".join(f" {note}" for _, i in inventories for note in i.notes[:2]),
        )
    page = chosen[arguments.offset : arguments.offset + arguments.limit]
    kernels: list[KernelTiling] = []
    for repository, inventory in inventories:
        mine = [k for r, _, k in page if r is repository]
        if mine:
            kernels.extend(
                describe(
                    repository,
                    inventory,
                    mine,
                    arch=arch,
                    given=_constants(arguments),
                    sizes=arguments.sizes,
                    checkpoint=context.checkpoint,
                    progress=context.progress,
                )
            )
            kernels[-len(mine) :] = [
                k.model_copy(update={"resources": _resources(arguments, context, repository, inventory, r, k, archs)})
                for r, k in zip(mine, kernels[-len(mine) :], strict=True)
            ]
    following = arguments.offset + len(page)
    concerned = {r.name: (r, i) for r, i, _ in chosen} or {r.name: (r, i) for r, i in inventories}
    result = TilingResult(
        kernels=tuple(kernels), total=len(chosen), offset=arguments.offset,
        next_offset=following if following < len(chosen) else None,
        assumptions=(f"The target architecture is {arch.name}; platform predicates follow it.",) if arch else (),
        not_analysed=tuple(unread[:_LISTED]), not_analysed_counts=dict(sorted(Counter(u.form for u in unread).items())),
        sources=tuple(workspace.source(r) for r, _ in concerned.values()),
        notes=(
            *_unread_sizes(arguments.sizes or {}, kernels), *_unread_values(arguments.values or {}, kernels), *_notes(arguments, chosen, [i for _, i in concerned.values()], len(unread)),
        ),
    )  # fmt: skip
    if arguments.diagram:
        result = result.model_copy(update={"kernels": tuple(_drawn(k, arguments.diagram) for k in result.kernels)})
    result = result.model_copy(update={"kernels": tuple(_with_screen(k) for k in result.kernels)})
    if arguments.detail == "screen":
        return screens(result)
    return summary(result) if arguments.detail == "summary" else result


def _wanted(arguments: TilingArguments, kernel: KernelRef) -> bool:
    """Whether the inventory's own facts pass the filters."""
    return (arguments.kind is None or arguments.kind in (kernel.language, kernel.role)) and (
        arguments.file is None or fnmatch(kernel.file, arguments.file) or kernel.file == arguments.file
    )


def _with_facts(
    arguments: TilingArguments, context: ToolContext, repository: Repository, inventory: Inventory, named: list[KernelRef]
) -> list[KernelRef]:  # fmt: skip
    """Those whose description passes the filters that ask for one: `op` and `tile`."""
    if arguments.op is None and arguments.tile is None:
        return named
    name, _, value = (arguments.tile or "").partition("=")
    traits = _traits(context, repository, inventory, named)
    return [
        kernel for kernel, (operations, tiles) in zip(named, traits, strict=True)
        if (arguments.op is None or any(_operates(arguments.op, o) for o in operations))
        and (arguments.tile is None or (name in tiles and (not value or value in tiles[name])))
    ]  # fmt: skip


def _traits(
    context: ToolContext, repository: Repository, inventory: Inventory, named: list[KernelRef]
) -> list[tuple[list[str], dict[str, list[str]]]]:
    """Operations and tile sizes of each kernel; kept, since describing a large repository takes many seconds."""
    from opscope_tools.kernels import describe, fingerprint

    store = context.workspace.store
    key = digest(
        "kernel traits", engine_version(), fingerprint(repository), of_document([f"{k.id}:{k.line}" for k in named])
    )
    known = recall(store, key, _TRAITS.validate_json)
    if known is not None:
        return known
    described = describe(repository, inventory, named, checkpoint=context.checkpoint, progress=context.progress)
    found = []
    for kernel in described:
        memory = (*kernel.loads, *kernel.stores)
        operations = dict.fromkeys((*(i.operation for i in kernel.instructions), *(m.operation for m in memory)))
        found.append((list(operations), {t.name: list(t.values) for t in kernel.tile}))
    store.put(key, json.dumps(found))
    return found


def _operates(wanted: str, operation: str) -> bool:
    plain = operation.removeprefix("tl.")
    return wanted in (operation, plain) or plain.startswith(f"{wanted}_")


def _with_screen(kernel: KernelTiling) -> KernelTiling:
    """The kernel with what compilers chose for its tiles, and with what matters of it as text, before every list."""
    from opscope_tools.kernels.projections import drawing as diagrams
    from opscope_tools.kernels.projections.levels import of_builds

    kernel = kernel.model_copy(update={"levels": (*kernel.levels, *of_builds(kernel.resources))})
    return kernel.model_copy(update={"screen": diagrams.screen(kernel)})


def _drawn(kernel: KernelTiling, how: str) -> KernelTiling:
    from opscope_tools.kernels.projections import drawing as diagrams

    return kernel.model_copy(update={"diagram": (diagrams.svg if how == "svg" else diagrams.ascii)(kernel)})


def _constants(arguments: TilingArguments) -> dict[str, Plain]:
    """Constexpr values among `values`; the others are types."""
    from opscope_tools.kernels import is_type

    return {name: value for name, value in (arguments.values or {}).items() if not is_type(value)}


def _resources(
    arguments: TilingArguments, context: ToolContext, repository: Repository, inventory: Inventory, reference: KernelRef,
    kernel: KernelTiling, archs: list[Arch],
) -> Resources:  # fmt: skip
    """What the kernel takes of a GPU: compiled where that is asked for."""
    from opscope_tools.kernels import compiled, launches_of, static_resources

    if not arguments.compile:
        return static_resources(kernel, archs, arguments.sizes)
    return compiled(
        repository, reference, kernel, launches_of(inventory, reference), archs, arguments.values or {},
        arguments.instance or "", context.workspace.store, probe=arguments.probe, checkpoint=context.checkpoint, progress=context.progress,
    )  # fmt: skip


def _concerns(target: str, inventory: Inventory, name: str, file: str) -> bool:
    """Whether something that was recognised but not read falls under the target."""
    if target.strip() in {"", "*", ".", inventory.repository}:
        return True
    return (
        target in {name, file, f"{file}::{name}"}
        or file.endswith("/" + target)
        or file.startswith(target.rstrip("/") + "/")
    )


def _unread_sizes(sizes: Mapping[str, int], kernels: Sequence[KernelTiling]) -> list[str]:
    """A note on the sizes that no formula of any of the kernels names."""
    from opscope_tools.kernels.values.notation import names_of

    costs = [kernel.cost for kernel in kernels if kernel.cost is not None]
    texts = [text for cost in costs for name, text in cost if isinstance(text, str) and name != "basis"]
    named = sorted({name for text in texts for name in names_of(text)})
    unread = [name for name in sizes if name not in named and name != "element_size()"]
    if not unread:
        return []
    which = f"They name {', '.join(named)}." if named else "They have no formula with a size."
    return [
        f"The costs of these kernels do not depend on {', '.join(unread)}: what `sizes` says of it is not read. {which}"
    ]


def _unread_values(values: Mapping[str, object], kernels: Sequence[KernelTiling]) -> list[str]:
    """A note on the values whose names none of the kernels has as a parameter."""
    own = {one.name for kernel in kernels for one in kernel.parameters} | {
        one.name for kernel in kernels for one in kernel.constexpr
    }
    unread = [name for name in values if name not in own and name not in ("num_warps", "num_stages")]
    if not unread or not kernels:
        return []
    near = {name: difflib.get_close_matches(name, sorted(own), n=3, cutoff=0.5) for name in unread}
    said = (f"{name} (nearest: {', '.join(names)})" if names else name for name, names in near.items())
    return [f"`values`: no parameter of these kernels is called {', '.join(said)}."]


def _notes(
    arguments: TilingArguments,
    chosen: list[tuple[Repository, Inventory, KernelRef]],
    inventories: list[Inventory],
    unread: int,
) -> list[str]:
    notes = []
    if not chosen and (arguments.kind or arguments.op or arguments.tile or arguments.file):
        notes.append(
            "Kernels of the target are there, but none passes kind, op, tile and file: leave some of these out."
        )
    ids = [k.id for _, _, k in chosen]
    names = {k.name for _, _, k in chosen}
    if len(ids) > 1 and names == {arguments.target}:
        notes.append(f"{len(ids)} kernels are called {arguments.target}: {', '.join(dict.fromkeys(ids))}.")
    if len(names) > 1:
        roles = Counter((k.language, k.role) for _, _, k in chosen)
        shown = ", ".join(f"{n} {language} {role.replace('_', ' ')}s" for (language, role), n in sorted(roles.items()))
        notes.append(f"The target names {shown}.")
    if unread:
        notes.append(f"{unread} kernels are in forms that are recognised but not analysed; see not_analysed_counts.")
    notes.extend(note for inventory in inventories for note in inventory.notes[:5])
    return notes


#: what every form of a kernel keeps
_IDENTITY = ("id", "name", "language", "role", "file", "line", "end_line", "num_tiles", "macro", "diagram")
#: configurations up to which each is listed in an answer that has to be short
_FEW_CONFIGS = 16


# the ladder of shorter forms -----------------------------------------------------------------------------------------


def _marked(result: TilingResult, kernels: list[KernelTiling], left_out: str) -> TilingResult:
    return result.model_copy(update={"kernels": tuple(kernels), "shortened": left_out})


def folded(result: TilingResult) -> TilingResult:
    """Every fact, but what launches, values and configurations repeat only once."""
    return _marked(
        result, [_folded(k) for k in result.kernels],
        f"Folded: definitions that several launches or values share stand at the first; of more than {_FEW_CONFIGS} autotune "
        "configurations their number and values. Ask for one kernel by path::name with detail=full.",
    )  # fmt: skip


def without_screens(result: TilingResult) -> TilingResult:
    """The facts alone, folded: of several kernels they say more than a screen of each."""
    kernels = [k.model_copy(update={"screen": ""}) for k in folded(result).kernels]
    return _marked(
        result, kernels,
        "Left out: screens, and what launches, values and configurations repeat. Ask for one kernel by path::name, or detail=screen.",
    )  # fmt: skip


def _folded(kernel: KernelTiling) -> KernelTiling:
    said: set[tuple[str, ...]] = set()

    def once(fact: F) -> F:
        if fact.definitions in said:
            return fact.model_copy(update={"definitions": ()})
        said.add(fact.definitions)
        return fact

    tuned = kernel.autotune
    if tuned is not None and len(tuned.configs) > _FEW_CONFIGS:
        tuned = tuned.model_copy(update={"configs": ()})
    constexpr = tuple(c.model_copy(update={"values": tuple(once(v) for v in c.values)}) for c in kernel.constexpr)
    return kernel.model_copy(update={
        "autotune": tuned, "grid": tuple(once(g) for g in kernel.grid), "constexpr": constexpr,
        "num_warps": tuple(once(v) for v in kernel.num_warps), "num_stages": tuple(once(v) for v in kernel.num_stages),
    })  # fmt: skip


def without_accesses(result: TilingResult) -> TilingResult:
    """Loads, stores, instructions and loops left out."""
    empty = {"loads": (), "stores": (), "instructions": (), "loops": (), "calls": ()}
    kernels = [
        k.model_copy(update={
            **empty, "resources": _shorter(k.resources),
            "cost": k.cost.model_copy(update={"lines": ()}) if k.cost else None,
            "screen": k.screen if len(result.kernels) == 1 else "",
        }) for k in result.kernels
    ]  # fmt: skip
    return _marked(
        result, kernels,
        "Left out: loads, stores, instructions, loops, calls, cost by line, occupancy by registers. "
        "Ask for one kernel by path::name, or a smaller limit.",
    )  # fmt: skip


def _shorter(resources: Resources) -> Resources:
    """Without machine instructions and steps of occupancy; a build keeps its specialisation: its figures hold for that alone."""
    builds = tuple(b.model_copy(update={"instructions": {}, "lines": ()}) for b in resources.builds)
    return resources.model_copy(update={"builds": builds, "occupancy": ()})


def summary(result: TilingResult) -> TilingResult:
    """Also without the bodies of autotune configurations and the definitions of host variables."""
    kernels = []
    for kernel in without_accesses(result).kernels:
        tuned = kernel.autotune.model_copy(update={"configs": ()}) if kernel.autotune else None
        grid = tuple(g.model_copy(update={"definitions": ()}) for g in kernel.grid)
        constexpr = tuple(
            c.model_copy(update={"values": tuple(v.model_copy(update={"definitions": ()}) for v in c.values[:8])})
            for c in kernel.constexpr
        )
        kernels.append(
            kernel.model_copy(
                update={"autotune": tuned, "grid": grid, "constexpr": constexpr, "constraints": kernel.constraints[:5]}
            )
        )
    return _marked(
        result, kernels,
        "Left out: loads, stores, instructions, loops, calls, autotune configurations (counted), host definitions. "
        "Ask for one kernel by path::name with detail=full.",
    )  # fmt: skip


def screens(result: TilingResult) -> TilingResult:
    """One screen of text for each kernel."""
    kernels = [KernelTiling(**{field: getattr(k, field) for field in (*_IDENTITY, "screen")}) for k in result.kernels]
    return _marked(
        result, kernels, "One screen each. Ask for one kernel by path::name with detail=full for every fact."
    )


def names_only(result: TilingResult) -> TilingResult:
    """Names, lines, number of tiles."""
    kernels = [KernelTiling(**{field: getattr(k, field) for field in _IDENTITY}) for k in result.kernels]
    shorter = result.model_copy(update={"not_analysed": result.not_analysed[:10]})
    return _marked(shorter, kernels, "Only names, lines and num_tiles. Ask for one kernel by path::name.")


CUDA_KERNEL_TILING: Tool[TilingArguments, TilingResult] = Tool(
    name="cuda_kernel_tiling",
    title="Tiling of CUDA, Triton, TileLang, cuTile, Gluon, CuTe-DSL and CUTLASS kernels",
    description=(
        "How a CUDA, Triton, TileLang, cuTile, Gluon, CuTe-DSL or CUTLASS kernel is tiled, read from source: tiles, grid at every launch, program id to tile mapping, warps, stages, "
        "autotuning, loads and stores with coalescing, shared memory, assertions, `cost` of a tile. A repository's name "
        "lists its kernels. compile=true adds registers, spills, occupancy (`resources`). In "
        "formulas {name} is known at run time, a bare name at compile time."
    ),
    arguments=TilingArguments,
    result=TilingResult,
    run=run,
    shorter=(folded, without_screens, without_accesses, summary, screens, names_only),
    finds=("kernels", "not_analysed"),
    otherwise="name a file, a folder or a repository with CUDA, Triton, TileLang, cuTile, Gluon, CuTe-DSL or CUTLASS source; map_repo says where it lies.",
    for_people={"detail": "screen"},
    fresh=lambda arguments: arguments.compile,  # the builds are kept by compiler and source
    lane=lambda arguments: "compile" if arguments.compile else "static",
)
