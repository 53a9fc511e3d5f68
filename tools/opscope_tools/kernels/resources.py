"""What a kernel takes of a GPU: by compiling it where that is asked for, else as far as source and published limits tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opscope_cache.store import Store
from opscope_cache.trees import tree_at
from opscope_schemas.common import Repository
from opscope_schemas.errors import OpscopeError
from opscope_schemas.resources import Build, Fit, Occupancy, Resources
from opscope_schemas.tiling import KernelTiling

from opscope_tools.kernels.arch import Arch
from opscope_tools.kernels.autotune import Context
from opscope_tools.kernels.compiled import nvcc_build, triton_build
from opscope_tools.kernels.compiled.triton_slice import sliced, source_lines
from opscope_tools.kernels.compiled.triton_types import choices
from opscope_tools.kernels.facts import KernelRef, LaunchRef
from opscope_tools.kernels.files import read_text
from opscope_tools.kernels.occupancy import LIMITS, SOURCE, WARP, by_registers, occupancy
from opscope_tools.kernels.pymodule import Modules

#: architectures that are compiled for unless some are named: one of each generation
USUAL = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
#: element types of the tensors that are tried in turn
_ELEMENTS = ("*bf16", "*fp16", "*fp32")
#: seconds that one call may spend compiling; what was compiled is kept, so that the next call goes on
BUDGET = 60.0


def static_resources(kernel: KernelTiling, archs: Sequence[Arch]) -> Resources:
    """Occupancy and fit from source alone: threads and shared memory where they are constants."""
    if kernel.role != "kernel" or kernel.language != "cuda":
        return Resources()
    threads = next((launch.threads for launch in kernel.grid if launch.threads), None)
    sizes = [array.bytes for array in kernel.shared_memory if not array.dynamic]
    dynamic = {launch.shared_memory for launch in kernel.grid} - {"", "0"}
    if threads is None or None in sizes or dynamic:
        return Resources()
    shared = sum(size for size in sizes if size is not None)
    names = [a.name for a in archs if a.name.rstrip("af") in LIMITS] or list(USUAL)
    return Resources(
        occupancy=tuple(step for name in names for step in by_registers(name, threads, shared)),
        fits=tuple(_fit(occupancy(name, threads, None, shared), None, "evaluated") for name in names),
        assumptions=(
            f"{threads} threads per block and {shared} bytes of shared memory, as the launch and the declarations say; "
            f"limits: {SOURCE}.",
        ),
    )  # fmt: skip


def _fit(found: Occupancy, config: int | None, basis: Any) -> Fit:
    return Fit(
        arch=found.arch, config=config, basis=basis, fits=found.fits, breaks=found.breaks, blocks=found.blocks,
        limited_by=found.limited_by,
    )  # fmt: skip


def compiled(
    repository: Repository, reference: KernelRef, kernel: KernelTiling, launches: Sequence[LaunchRef], archs: Sequence[Arch],
    given: Mapping[str, Any], instance: str, store: Store, *, checkpoint: Callable[[], None],
    progress: Callable[[float, float | None, str], None],
) -> Resources:  # fmt: skip
    """Builds, occupancy and fits of one kernel; source facts stand whatever the compiler says."""
    static = static_resources(kernel, archs)
    triton = kernel.language == "triton"
    lacking = triton_build.missing() if triton else nvcc_build.missing()
    if kernel.role != "kernel":
        return static.model_copy(update={"statement": "Not compiled: a device function is compiled with its kernels."})
    if lacking:
        return static.model_copy(update={"statement": f"Not compiled. {lacking}"})
    named, refused = _architectures(archs, triton)
    if not named:
        return static.model_copy(update={"statement": f"Not compiled: {'; '.join(refused)}."})
    said: list[str] = list(refused)
    try:
        if triton:
            builds, left = _triton(
                repository, reference, kernel, launches, named, given, store, said, checkpoint, progress
            )
        else:
            builds, left = _cuda(repository, kernel, named, instance, store, checkpoint, progress)
    except OpscopeError as error:
        return static.model_copy(update={"statement": f"Not compiled: {error.message}"})
    good = [b for b in builds if not b.error]
    statement = f"Compiled {len(good)} of {len(builds) + left}"
    if left:
        statement += f"; {left} were not reached in {BUDGET:.0f} s: ask again, what was compiled is kept"
    if bad := next((b.error for b in builds if b.error), ""):
        statement += f"; the first error: {bad}"
    return Resources(
        compiled=bool(good), statement=statement + ".", builds=tuple(builds),
        fits=tuple(_fit(b.occupancy, b.config, "compiled") for b in good if b.occupancy is not None) or static.fits,
        occupancy=() if good else static.occupancy, assumptions=(*said, f"Limits: {SOURCE}.") if good else static.assumptions,
    )  # fmt: skip


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
    given: Mapping[str, Any], store: Store, said: list[str], checkpoint: Callable[[], None],
    progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    def read(path: str) -> str | None:
        return read_text(repository, path)

    context = Context(Modules(repository, read), None, checkpoint)
    cut = sliced(reference, context)
    cut.files = source_lines(cut, read, context)
    module = context.modules.load(reference.file)
    function = (
        next(f for f in module.functions if f.name == reference.name and f.lineno == reference.line) if module else None
    )
    assert function is not None  # `sliced` found it
    unknown = sorted(
        set(given) - {a.arg for a in function.args.args + function.args.kwonlyargs} - {"num_warps", "num_stages"}
    )
    if unknown:
        raise OpscopeError(f"{reference.name} has no parameter {', '.join(unknown)}.")
    said.extend(cut.assumptions)
    first: list[Build] = []
    for element in _ELEMENTS:  # what the tensors hold is not in the source: the first type that compiles
        wanted = choices(function, kernel, launches, context, given, element)
        tried, _ = triton_build.build_triton(
            cut, wanted[:1], archs[:1], store, seconds=BUDGET / 2, checkpoint=checkpoint, progress=progress
        )
        first = first or tried
        if not tried or not tried[0].error:
            break
        if not any(kind == element for kind in wanted[0].signature.values()):
            return first, 0
    else:
        return first, 0
    said.append(f"Tensors of no other type are taken to hold {element.removeprefix('*')}.")
    return triton_build.build_triton(
        cut, wanted, archs, store, seconds=BUDGET, checkpoint=checkpoint, progress=progress
    )


def _cuda(
    repository: Repository, kernel: KernelTiling, archs: list[str], instance: str, store: Store,
    checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> tuple[list[Build], int]:  # fmt: skip
    templates = [c for c in kernel.constexpr if c.kind == "template"]
    wanted = instance or (kernel.name if not templates else _instance(kernel))
    if not wanted:
        raise OpscopeError(
            f"{kernel.name} is a template, and no launch of it names all its arguments: give instance, "
            f"such as {kernel.name}<{', '.join(c.type or c.name for c in templates)}>."
        )
    threads = next((launch.threads for launch in kernel.grid if launch.threads), 0) or 0
    dynamic = next((int(launch.shared_memory) for launch in kernel.grid if launch.shared_memory.isdigit()), 0)
    content = tree_at(repository.root, repository.packages).now().fingerprint  # headers count too
    return nvcc_build.build_cuda(
        repository.root, kernel.file, kernel.name, wanted, archs, threads, dynamic, content, store, seconds=BUDGET,
        checkpoint=checkpoint, progress=progress,
    )  # fmt: skip


def _instance(kernel: KernelTiling) -> str:
    """The first launched expression whose template arguments are all concrete: no name of the host's templates left."""
    for launch in kernel.grid:
        found = re.fullmatch(r"([\w:]+)\s*<(.*)>", launch.kernel.strip())
        if found is None:
            continue
        arguments = [a.strip() for a in found[2].split(",")]
        if all(
            re.fullmatch(
                r"-?\d+|true|false|float|double|int|half|__half|__nv_bfloat16|u?int\d+_t|char|unsigned|c10::\w+|at::\w+",
                a,
            )
            for a in arguments
        ):
            return f"{found[1]}<{', '.join(arguments)}>"
    return ""


__all__ = ["BUDGET", "USUAL", "WARP", "compiled", "static_resources"]
