"""What a kernel takes of a GPU: by compiling it where that is asked for, else as far as source and published limits tell."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opscope_cache.store import Store
from opscope_schemas.common import Repository
from opscope_schemas.errors import OpscopeError
from opscope_schemas.resources import Build, Constant, Fit, Occupancy, Resources
from opscope_schemas.tiling import KernelTiling, Launch

from opscope_tools.kernels.architectures import Arch
from opscope_tools.kernels.compiled import nvcc_build, triton_build
from opscope_tools.kernels.compiled.cuda_homes import Homes
from opscope_tools.kernels.compiled.cuda_instance import CudaInstance
from opscope_tools.kernels.compiled.cutlass_build import of_operator, operator_instance
from opscope_tools.kernels.compiled.occupancy import LIMITS, SOURCE, by_registers, occupancy, refused
from opscope_tools.kernels.compiled.triton_slice import sliced
from opscope_tools.kernels.compiled.triton_types import Choice, check_given, choices
from opscope_tools.kernels.cuda.launch.host_expressions import formula
from opscope_tools.kernels.cuda.source_text import CSource, split_arguments
from opscope_tools.kernels.cutlass.classes import class_at
from opscope_tools.kernels.cutlass.definitions import operator_at
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.kernels.records import KernelRef, LaunchRef
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.triton.definitions import function_of
from opscope_tools.kernels.values.notation import evaluate, names_of
from opscope_tools.source.files import read_text

#: architectures that are compiled for unless some are named: one of each generation
USUAL = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
#: element types of the tensors that are tried in turn
_ELEMENTS = ("*bf16", "*fp16", "*fp32")
#: seconds that one call may spend compiling; what was compiled is kept, so that the next call goes on
BUDGET = 60.0
#: how the assumption that names sizes begins and ends
_ASSUMED, _OTHERS = "Sizes that no source gives: ", ". Give others by values."
#: instances, or sizes, that a statement names
_NAMED = 8


@dataclass(frozen=True)
class _Block:
    """What a launch asks for each block: threads and bytes of dynamic shared memory."""

    threads: int
    dynamic: int
    #: why CUDA refuses the launch, whatever the architecture
    refused: str = ""
    #: the blocks run in clusters
    clustered: bool = False

    def refused_on(self, arch: str) -> str:
        """Why CUDA refuses the launch on an architecture; empty where it does not."""
        older = self.clustered and _number_of(arch) < _CLUSTERS
        return self.refused or (f"clusters: from sm_{_CLUSTERS} on" if older else "")

    def run(self, arch: str, registers: int | None, static: int, barriers: int = 1) -> Occupancy:
        """How many of these blocks fit; none where the launch is refused."""
        found = occupancy(arch, self.threads, registers, static, self.dynamic, barriers)
        if not (breaks := self.refused_on(arch)):
            return found
        none = {"blocks": 0, "warps": 0, "percent": 0.0, "limited_by": (), "fits": False, "breaks": breaks}
        return found.model_copy(update=none)


def _bound(kernel: KernelTiling, launched: str) -> int | None:
    """The threads that `__launch_bounds__` allows in this launch; None where none are named or they are no number."""
    found = next((m for d in kernel.decorators if (m := re.match(r"__launch_bounds__\s*+\((.*)\)$", d))), None)
    if found is None:
        return None
    known = {t.name: t.values[0] for t in kernel.tile if len(t.values) == 1}
    if given := re.fullmatch(r"[\w:]+\s*+<(.*)>", launched):
        names = (c.name for c in kernel.constexpr if c.kind == "template")
        known |= dict(zip(names, split_arguments(given[1]), strict=False))
    value = formula(
        split_arguments(found[1])[0], lambda name: int(known[name]) if known.get(name, "").isdigit() else None
    )
    return value if isinstance(value, int) else None


def _number_of(arch: str) -> int:
    """90 of `sm_90a`."""
    return int(re.sub(r"\D", "", arch))


def _clustered(kernel: KernelTiling, launch: Launch) -> bool:
    """Whether blocks run in clusters: the kernel's attribute says so, or the launch."""
    return any(d.startswith("__cluster_dims__") for d in kernel.decorators) or bool(set(launch.cluster) - set("1, "))


def _refused(kernel: KernelTiling, launch: Launch) -> str:
    block = [int(b) for b in launch.block if b.isdigit()]
    if not block or len(block) != len(launch.block):
        block = [launch.threads or 1]
    grid = [int(d) if d.isdigit() else None for d in launch.dimensions]
    return refused(block, grid, _bound(kernel, launch.kernel))


def _blocks(kernel: KernelTiling, constants: Sequence[Constant] = ()) -> tuple[list[_Block], list[str]]:
    """The distinct blocks that launches ask for in constants, and the places of launches that do not."""
    told = {c.expression: str(c.value) for c in constants if c.value is not None}
    found: dict[_Block, None] = {}
    elsewhere: list[str] = []
    for launch in kernel.grid:
        shared = told.get(launch.shared_memory, launch.shared_memory or "0")
        if launch.threads and shared.isdigit():
            refusal, clustered = _refused(kernel, launch), _clustered(kernel, launch)
            found[_Block(launch.threads, int(shared), refusal, clustered)] = None
        else:
            elsewhere.append(f"{launch.file or kernel.file}:{launch.line}")
    return list(found), elsewhere


def _limited(archs: Sequence[Arch]) -> list[str]:
    """The architectures whose limits are known; the usual ones where none of these is named."""
    return [a.name for a in archs if a.name.rstrip("af") in LIMITS] or list(USUAL)


def _unknown(elsewhere: list[str]) -> str:
    if not elsewhere:
        return "No launch was found that says how many threads a block has, so occupancy is not known."
    return f"Threads or shared memory are set at run time, and no row is for the launch at {', '.join(elsewhere)}."


#: from which on instructions of one architecture alone are asked for by an `a`
_OF_ITS_OWN = 90
#: languages whose compilers are not asked
_UNASKED_OF = ("tilelang", "cutile", "cute_dsl", "gluon")
#: the first architecture with clusters of blocks
_CLUSTERS = 90
#: bytes of shared memory that a launch gets without asking
_UNASKED = 48 * 1024
#: architectures whose tensor cores read operands from shared memory, so that every stage lies there (wgmma, tcgen05);
#: on the others the last stage is in registers already
_FROM_SHARED = ("sm_90", "sm_100", "sm_103", "sm_110")
#: what Triton takes where a configuration does not say
_WARPS, _STAGES = 4, 3


def _estimated(kernel: KernelTiling, archs: Sequence[Arch], sizes: Mapping[str, int]) -> Resources:
    """Which autotune configurations of a Triton product fit, by the shared memory that their pipeline needs."""
    stage = kernel.cost.stage_bytes if kernel.cost is not None else ""
    configs = kernel.autotune.configs if kernel.autotune is not None else ()
    elements = {name: 2 for name in names_of(stage) if name.endswith(".element_size()")}
    settled = {
        c.name: int(c.values[0].value) for c in kernel.constexpr if len(c.values) == 1 and c.values[0].value.isdigit()
    }
    fits = []
    for index, config in enumerate(configs if stage else ()):
        whole = {k: v for k, v in config.values.items() if isinstance(v, int)}
        held = evaluate(stage, {**elements, **settled, **sizes, **whole})
        if held is None:
            continue
        warps = config.num_warps if isinstance(config.num_warps, int) else _WARPS
        stages = config.num_stages if isinstance(config.num_stages, int) else _STAGES
        for name in _limited(archs):
            kept = stages if name.rstrip("af") in _FROM_SHARED and warps >= 4 else max(stages - 1, 1)
            fits.append(_fit(occupancy(name, 32 * warps, None, 0, kept * int(held)), index, "estimated"))
    if not fits:
        return Resources()
    return Resources(
        fits=tuple(fits),
        assumptions=(
            f"Estimated: shared memory is a stage ({stage}) times num_stages where tensor cores read it "
            f"({', '.join(_FROM_SHARED)}, 4 warps and more), else times num_stages - 1; elements of 2 bytes where sizes says "
            "nothing else; registers are taken to set no limit. With compile=true the compiler says it.",
            f"Limits: {SOURCE}.",
        ),
    )  # fmt: skip


def static_resources(kernel: KernelTiling, archs: Sequence[Arch], sizes: Mapping[str, int] | None = None) -> Resources:
    """Occupancy and fit from source alone: for each launch whose threads and shared memory are constants.

    Triton: the fit of each configuration, estimated; `sizes` may say the bytes of an element.
    """
    if kernel.language == "cutlass":
        return kernel.resources
    if (
        kernel.role != "kernel" or kernel.language in _UNASKED_OF
    ):  # its compiler decides what lies in shared memory when
        return Resources()
    if kernel.language == "triton":
        return _estimated(kernel, archs, sizes or {})
    arrays = [array.bytes for array in kernel.shared_memory if not array.dynamic]
    blocks, elsewhere = _blocks(kernel)
    if None in arrays or not blocks:
        return Resources()
    declared = sum(size for size in arrays if size is not None)
    rows = [(name, block) for block in blocks for name in _limited(archs)]
    said = [
        f"{block.threads} threads per block and {declared + block.dynamic} bytes of shared memory, as launch and declarations say."
        for block in blocks
    ]
    if declared <= _UNASKED and any(declared + block.dynamic > _UNASKED for block in blocks):
        said.append("More than 48 KiB of shared memory has to be asked for before the launch (cudaFuncSetAttribute).")
    if elsewhere:
        said.append(_unknown(elsewhere))
    return Resources(
        occupancy=tuple(
            step for name, b in rows if not b.refused_on(name) for step in by_registers(name, b.threads, declared, b.dynamic)
        ),
        fits=tuple(_fit(b.run(name, None, declared), None, "evaluated") for name, b in rows),
        assumptions=(*said, f"Limits: {SOURCE}."),
    )  # fmt: skip


def _fit(found: Occupancy, config: int | None, basis: Literal["compiled", "evaluated", "estimated"]) -> Fit:
    return Fit(
        arch=found.arch, config=config, basis=basis, threads=found.threads, shared_bytes=found.shared_bytes, fits=found.fits,
        breaks=found.breaks, blocks=found.blocks, limited_by=found.limited_by,
    )  # fmt: skip


def compiled(
    repository: Repository, reference: KernelRef, kernel: KernelTiling, launches: Sequence[LaunchRef], archs: Sequence[Arch],
    given: Mapping[str, Any], instance: str, store: Store, *, probe: Sequence[str] = (), checkpoint: Callable[[], None],
    progress: Callable[[float, float | None, str], None],
) -> Resources:  # fmt: skip
    """Builds, occupancy and fits of one kernel; source facts stand whatever the compiler says."""
    static = static_resources(kernel, archs)
    triton = kernel.language == "triton"
    lacking = triton_build.missing() if triton else nvcc_build.missing()
    if kernel.role != "kernel":
        return static.model_copy(update={"statement": "Not compiled: a device function is compiled with its kernels."})
    if kernel.language in _UNASKED_OF:
        return static.model_copy(
            update={"statement": "Not compiled: kernels of this language are read from source alone."}
        )
    if lacking:
        return static.model_copy(update={"statement": f"Not compiled. {lacking}"})
    named, refused = _architectures(archs, triton)
    if not named:
        return static.model_copy(update={"statement": f"Not compiled: {'; '.join(refused)}."})
    said: list[str] = list(refused)
    ends = time.monotonic() + BUDGET
    try:
        if triton:
            builds, left = _triton(
                repository, reference, kernel, launches, named, given, store, said, ends, checkpoint, progress
            )
            fits = [_fit(b.occupancy, b.config, "compiled") for b in builds if b.occupancy is not None]
        elif kernel.language == "cutlass":
            static, builds, left = _operator(
                repository, reference, kernel, archs, instance, store, checkpoint, progress
            )
            fits = [_fit(b.occupancy, None, "compiled") for b in builds if b.occupancy is not None]
        else:
            homes = Homes(repository, kernel)
            constants = _constants(repository, kernel, homes, named[0], probe, store, checkpoint)
            static = static.model_copy(update={"constants": constants, "instances": tuple(homes.named)})
            builds, left, fits = _cuda(
                repository, kernel, named, instance, constants, homes, store, said, checkpoint, progress
            )
    except OpscopeError as error:
        return static.model_copy(update={"statement": f"Not compiled: {error.message}"})
    good = [b for b in builds if not b.error]
    statement = f"Compiled {len(good)} of {len(builds) + left}"
    if sizes := next((s for s in said if s.startswith(_ASSUMED)), ""):
        statement += (
            f", for {_shortened(sizes.removeprefix(_ASSUMED).removesuffix(_OTHERS))} (assumed: source gives no sizes)"
        )
    if left:
        statement += f"; {left} were not reached in {BUDGET:.0f} s: ask again, what was compiled is kept"
    if bad := next((b.error for b in builds if b.error), ""):
        statement += f"; the first error: {bad}"
    if not good and static.instances:
        statement += f"; source names {', '.join(i.instance for i in static.instances[:_NAMED])}"
    return Resources(
        compiled=bool(good), statement=statement + ".", builds=tuple(builds), fits=tuple(fits) or static.fits,
        instances=static.instances, constants=static.constants, occupancy=() if good else static.occupancy, assumptions=(*said, f"Limits: {SOURCE}.") if good else static.assumptions,
    )  # fmt: skip


def _shortened(listed: str) -> str:
    parts = listed.split(", ")
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def _architectures(archs: Sequence[Arch], triton: bool) -> tuple[list[str], list[str]]:
    """Those to compile for, and why some are not."""
    named, refused = [], []
    for arch in archs:
        number = arch.capability[0] * 10 + arch.capability[1]
        if arch.vendor != "nvidia":
            refused.append(f"{arch.name} is no NVIDIA architecture")
        elif arch.name.rstrip("af") not in LIMITS:
            refused.append(f"no limits of {arch.name} are known")
        elif triton and number < triton_build.OLDEST:
            refused.append(f"Triton's output for {arch.name} is of no use below sm_{triton_build.OLDEST}")
        else:
            named.append(arch.name)
    return (named, refused) if archs else (list(USUAL), [])


def _triton(
    repository: Repository, reference: KernelRef, kernel: KernelTiling, launches: Sequence[LaunchRef], archs: list[str],
    given: Mapping[str, Any], store: Store, said: list[str], ends: float, checkpoint: Callable[[], None],
    progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    def read(path: str) -> str | None:
        return read_text(repository, path)

    context = Context(Modules(repository), None, checkpoint)
    cut = sliced(reference, context, read)
    _, function = function_of(reference, context.modules)
    check_given(function, given)
    said.extend(cut.assumptions)

    def build(wanted: Sequence[Choice], archs: Sequence[str]) -> tuple[list[Build], int]:
        return triton_build.build_triton(
            cut, wanted, archs, store, seconds=ends - time.monotonic(), checkpoint=checkpoint, progress=progress
        )

    first: list[Build] = []
    # what the tensors hold, and which of the optional ones are given, is not in the source: the first that compiles
    for full, element in ((full, element) for full in (False, True) for element in _ELEMENTS):
        wanted = choices(function, kernel, launches, context, given, element, full=full)
        ends_of = list(dict.fromkeys((archs[0], archs[-1])))  # a type may be unknown to the older
        tried, left = build([*wanted[:1], *wanted[1:][-1:]], ends_of)  # one configuration may be wrong by itself
        first = first or tried
        if left or any(not b.error for b in tried):
            said.append(f"Tensors of no other type are taken to hold {element.removeprefix('*')}.")
            sizes = {name: value for choice in wanted for name, value in choice.assumed.items()}
            if sizes:
                shown = ", ".join(f"{name} = {value}" for name, value in sizes.items())
                said.append(f"{_ASSUMED}{shown}{_OTHERS}")
            return build(wanted, archs)
        if full and element not in wanted[0].signature.values():
            break
    if untried := len(wanted) * len(archs) - len(first):
        first[-1] = first[-1].model_copy(
            update={"error": f"{first[-1].error} (the other {untried} were not tried, since these failed)"}
        )
    return first, 0


def _constants(
    repository: Repository, kernel: KernelTiling, homes: Homes, arch: str, asked: Sequence[str], store: Store,
    checkpoint: Callable[[], None],
) -> tuple[Constant, ...]:  # fmt: skip
    """The expressions that a caller asks for, and sizes of shared memory that are the compiler's to tell."""
    templates = {c.name for c in kernel.constexpr}
    sizes = [a.formula for a in kernel.shared_memory if a.bytes is None and not a.dynamic]
    sizes += [launch.shared_memory for launch in kernel.grid if not launch.shared_memory.isdigit()]
    open_ = [
        s for s in sizes if s and "{" not in s and not templates & set(re.findall(r"[A-Za-z_]\w*", s)) and "cdiv" not in s
    ]  # fmt: skip
    wanted = list(dict.fromkeys([*asked, *open_]))
    if not wanted:
        return ()
    return tuple(
        nvcc_build.probe(
            repository.root,
            kernel.file,
            wanted,
            arch,
            homes.content,
            store,
            seconds=BUDGET,
            checkpoint=checkpoint,
            folders=homes.folders(kernel.file),
        )
    )


def _operator(
    repository: Repository, reference: KernelRef, kernel: KernelTiling, archs: Sequence[Arch], instance: str, store: Store,
    checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[Resources, list[Build], int]:  # fmt: skip
    """The builds of a CUTLASS operator for the architectures of its tag, or those that are named."""
    source = CSource(reference.file, read_text(repository, reference.file) or "")
    if class_at(reference, source) is not None:
        raise OpscopeError(
            f"{kernel.name} is a class that device_kernel runs; of CUTLASS, operators that an alias spells are compiled."
        )
    found = operator_at(reference, source)
    if any(scope.kind == "function" for scope in found.within):
        raise OpscopeError(f"{found.name} is local to a function, and no other code can name it.")
    named = kernel.resources.instances
    if any(scope.parameters for scope in found.within) and not (instance or named):
        raise OpscopeError(
            f"{kernel.name} depends on template parameters: give instance, {found.within[-1].name}<...>."
        )
    homes = Homes(repository, kernel)
    wanted = operator_instance(
        source, found, instance or next((n.instance for n in named), ""), homes.folders(kernel.file)
    )
    tag = next(
        (re.search(r"Sm(\d+)$", v.value) for c in kernel.constexpr if c.name == "ArchTag" for v in c.values), None
    )
    numbers = [a.name.rstrip("af") for a in archs] or [f"sm_{tag[1]}" if tag else "sm_90"]
    chosen = [f"{name}a" if int(name.partition("_")[2]) >= _OF_ITS_OWN else name for name in numbers]
    builds, left = nvcc_build.build_cuda(
        repository.root, wanted, chosen, homes.content, store, seconds=BUDGET, checkpoint=checkpoint, progress=progress
    )
    read = [of_operator(one, wanted) for one in builds]
    shown = [
        b.model_copy(update={"occupancy": occupancy(b.arch.rstrip("af"), b.threads, b.registers, 0, b.shared_bytes or 0)})
        if b.threads and b.arch.rstrip("af") in LIMITS else b for b in read
    ]  # fmt: skip
    return Resources(instances=named), shown, left


def _cuda(
    repository: Repository, kernel: KernelTiling, archs: list[str], instance: str, constants: Sequence[Constant],
    homes: Homes, store: Store, said: list[str],
    checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int, list[Fit]]:  # fmt: skip
    ends = time.monotonic() + BUDGET

    def build(wanted: CudaInstance, archs: Sequence[str]) -> tuple[list[Build], int]:
        return nvcc_build.build_cuda(
            repository.root, wanted, archs, homes.content, store, seconds=ends - time.monotonic(),
            checkpoint=checkpoint, progress=progress,
        )  # fmt: skip

    wanted = homes.wanted(instance)
    chosen = wanted[0]
    for one in wanted:  # a header may only be read in the files that include it
        tried, left = build(one, archs[:1])
        if left or not tried[0].error:
            chosen = one
            break
    builds, left = build(chosen, archs)
    if chosen.file != kernel.file:
        said.append(f"Compiled as {chosen.file} includes it: {kernel.file} alone does not compile.")
    blocks, elsewhere = _blocks(kernel, constants)
    if elsewhere or not blocks:
        said.append(_unknown(elsewhere))
    rows = [
        (i, block, block.run(b.arch, b.registers, b.shared_bytes or 0, b.barriers or 0))
        for i, b in enumerate(builds) for block in blocks if not b.error
    ]  # fmt: skip
    if len(blocks) == 1 and not elsewhere:
        for i, block, found in rows:
            builds[i] = builds[i].model_copy(update={"threads": block.threads, "occupancy": found})
    return builds, left, [_fit(found, None, "compiled") for _, _, found in rows]


__all__ = ["BUDGET", "USUAL", "compiled", "static_resources"]
