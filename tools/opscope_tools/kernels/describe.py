"""From an inventory to descriptions: choosing the kernels that a target names, and describing a page of them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from opscope_schemas.common import Repository
from opscope_schemas.tiling import KernelTiling

from opscope_tools.kernels.architectures import Arch
from opscope_tools.kernels.cuda.description import CudaContext, describe_cuda
from opscope_tools.kernels.cuda.launch.cutlass import KERNEL
from opscope_tools.kernels.cuda.names.definitions import KernelMacros
from opscope_tools.kernels.cuda.names.element_types import element_bytes
from opscope_tools.kernels.cuda.source_text import CSource
from opscope_tools.kernels.cutedsl.description import describe_cutedsl
from opscope_tools.kernels.cutlass.classes import class_at, describe_class
from opscope_tools.kernels.cutlass.description import describe_cutlass
from opscope_tools.kernels.host.modules import Modules
from opscope_tools.kernels.projections.levels import levels
from opscope_tools.kernels.records import Inventory, KernelRef, LaunchRef, WrapperRef
from opscope_tools.kernels.tilelang.description import describe_tilelang
from opscope_tools.kernels.triton.decorators import Context
from opscope_tools.kernels.triton.description import describe_triton
from opscope_tools.source.cpp.text import decoded
from opscope_tools.source.files import PYTHON, SUFFIXES, read_bytes, walk

_WHOLE = {"", "*", "."}
#: language -> that as whose kernels its own are launched
_LAUNCHED_AS = {"gluon": "triton"}
#: languages whose kernels are named by what they stand in, and that has their launches
_WITHIN = {"tilelang", "cute_dsl", "cutlass"}


def select(inventory: Inventory, target: str) -> list[KernelRef]:
    """The kernels that a target names: a name, `path::name`, `path:line`, a file, a folder, or the whole repository."""
    target = target.strip()
    if target in _WHOLE or target == inventory.repository:
        return list(inventory.kernels)
    path, separator, name = target.rpartition("::")
    if separator:
        found = [k for k in inventory.kernels if _called(k, name) and _same_file(k.file, path)]
        if found:
            return found
    exact = [k for k in inventory.kernels if _called(k, target)]
    if exact:
        return exact
    if at := re.fullmatch(r"(.+\.\w+):(\d+)", target):
        return [k for k in inventory.kernels if _same_file(k.file, at[1]) and k.line <= int(at[2]) <= k.end_line][:1]
    in_file = [k for k in inventory.kernels if _same_file(k.file, target)]
    if in_file:
        return in_file
    folder = target.rstrip("/") + "/"
    return [k for k in inventory.kernels if k.file.startswith(folder)]


def _called(kernel: KernelRef, name: str) -> bool:
    """Whether a name is a kernel's own, or that of a function around its grid."""
    return kernel.name == name or (kernel.language in _WITHIN and name in kernel.name.split("."))


def named_file(target: str) -> str:
    """The source file that a target names (`path`, `path::name`, `path:line`); empty where it names none."""
    path = re.sub(r":\d+$", "", target.strip().partition("::")[0])
    return path if path.endswith(SUFFIXES) else ""


def nearest_files(repositories: Iterable[Repository], path: str, limit: int = 6) -> list[str] | None:
    """Files whose names resemble a path, from the file lists alone; None where a repository has that file."""
    by_name: dict[str, list[str]] = {}  # the stem is compared: a common suffix is no resemblance
    for repository in repositories:
        for file in walk(repository):
            if _same_file(file, path):
                return None
            if file.endswith(PYTHON) == path.endswith(PYTHON):
                by_name.setdefault(file.rpartition("/")[2], []).append(file)
    name = path.rpartition("/")[2]
    if name in by_name:
        same = sorted(by_name[name], key=lambda f: -difflib.SequenceMatcher(None, f, path).ratio())
        return same[:limit]
    stems: dict[str, list[str]] = {}
    for other in by_name:
        stems.setdefault(other.rpartition(".")[0].lower(), []).append(other)
    close = difflib.get_close_matches(name.rpartition(".")[0].lower(), list(stems), n=limit, cutoff=0.6)
    found = [
        n for stem in close for n in sorted(stems[stem], key=lambda n: n.rpartition(".")[2] != name.rpartition(".")[2])
    ]
    return [by_name[n][0] if len(by_name[n]) == 1 else n for n in found][:limit]


def _same_file(file: str, given: str) -> bool:
    return file == given or file.endswith("/" + given.lstrip("/"))


def nearest(inventories: Iterable[Inventory], target: str, limit: int = 6) -> list[str]:
    """Kernel names and files that resemble a target."""
    last = target.rpartition("::")[2]
    names = {k.name for i in inventories for k in i.kernels}
    lowered = {n.lower(): n for n in names}
    close = [lowered[n] for n in difflib.get_close_matches(last.lower(), list(lowered), n=limit, cutoff=0.5)]
    containing = [n for n in sorted(names) if len(last) > 3 and last.lower() in n.lower()]
    return list(dict.fromkeys([*close, *containing]))[:limit]


def describe(
    repository: Repository, inventory: Inventory, kernels: Sequence[KernelRef], *, arch: Arch | None = None,
    given: Mapping[str, object] | None = None, sizes: Mapping[str, int] | None = None, checkpoint: Callable[[], None], progress: Callable[[float, float | None, str], None],
) -> list[KernelTiling]:  # fmt: skip
    """Describe kernels of one inventory, in the given order.

    `given`: values of constexprs that decide branches; `sizes`: numbers for the quantities of cost formulas.
    """
    modules = Modules(repository)
    context = Context(modules, arch, checkpoint)
    capability = arch.capability[0] * 100 + arch.capability[1] * 10 if arch is not None else 0
    cuda = _cuda_context(repository, inventory, checkpoint, capability)
    described = []
    for index, kernel in enumerate(kernels):
        checkpoint()
        progress(index, len(kernels), f"reading {kernel.name}")
        launches = launches_of(inventory, kernel) if kernel.language not in _WITHIN else []
        if kernel.language in {"triton", "cutile", "gluon"}:
            described.append(describe_triton(kernel, launches, context, given or {}, sizes or {}))
        elif kernel.language == "tilelang":
            described.append(describe_tilelang(kernel, modules, given or {}, sizes or {}, checkpoint))
        elif kernel.language == "cute_dsl":
            described.append(describe_cutedsl(kernel, modules, given or {}, checkpoint))
        elif kernel.language == "cutlass":
            described.append(_of_cutlass(kernel, inventory, cuda, given or {}, sizes or {}))
        else:
            described.append(describe_cuda(kernel, launches, cuda, given or {}, sizes or {}))
    return [k.model_copy(update={"levels": levels(k, element_bytes)}) for k in described]


def _of_cutlass(
    kernel: KernelRef, inventory: Inventory, context: CudaContext, given: Mapping[str, object], sizes: Mapping[str, int]
) -> KernelTiling:
    source = context.load(kernel.file)
    one = class_at(kernel, source) if source is not None else None
    if one is None:
        return describe_cutlass(kernel, context.load, context.around, sizes)
    launches = [launch for launch in inventory.launches if KERNEL in launch.callees]
    return describe_class(kernel, one, launches, context, given, sizes)


def launches_of(inventory: Inventory, kernel: KernelRef) -> list[LaunchRef]:
    """The launches that mean this kernel; where several kernels share the name, the import or the file decides."""
    namesakes = [
        k for k in inventory.kernels if k.name == kernel.name and k.role == "kernel" and k.language == kernel.language
    ]
    suffixes = (".py",) if kernel.language != "cuda" else ()
    found = []
    for launch in inventory.launches:
        if kernel.name not in launch.callees or (launch.file.endswith(".py") != bool(suffixes)):
            continue
        if launch.language not in ("", _LAUNCHED_AS.get(kernel.language, kernel.language)):
            continue
        if len(namesakes) < 2 or _means(launch, kernel, namesakes):
            found.append(launch)
    return found


def _means(launch: LaunchRef, kernel: KernelRef, namesakes: list[KernelRef]) -> bool:
    files = {k.file for k in namesakes}
    if launch.file in files:
        return launch.file == kernel.file
    if launch.imported_from:
        module = launch.imported_from.rpartition(".")[0].replace(".", "/")
        named = {f for f in files if f.removesuffix(".py").removesuffix("/__init__").endswith(module)}
        if named:
            return kernel.file in named
    folder = kernel.file.rpartition("/")[0]
    beside = {f for f in files if f.rpartition("/")[0] == launch.file.rpartition("/")[0]}
    return kernel.file in beside if beside else bool(folder) or True


def _cuda_context(
    repository: Repository, inventory: Inventory, checkpoint: Callable[[], None], capability: int
) -> CudaContext:
    sources: dict[str, CSource | None] = {}
    written = frozenset(walk(repository))

    def load(path: str) -> CSource | None:
        if path not in sources:
            looked_for = path in written or not path.endswith(SUFFIXES)  # most names of headers are tried in vain
            data = read_bytes(repository, path) if looked_for else None
            sources[path] = None if data is None else CSource(path, decoded(data))
        return sources[path]

    devices: dict[str, list[KernelRef]] = {}
    for kernel in inventory.kernels:
        if kernel.language == "cuda" and kernel.role != "kernel":
            devices.setdefault(kernel.name, []).append(kernel)
    wrappers: dict[str, tuple[WrapperRef, ...]] = {}
    for wrapper in inventory.wrappers:
        wrappers[wrapper.name] = (*wrappers.get(wrapper.name, ()), wrapper)
    writing = KernelMacros(frozenset(inventory.global_objects), {m.name: m for m in inventory.global_functions})
    return CudaContext(
        load,
        {m.name: m for m in inventory.macros},
        writing,
        devices,
        checkpoint,
        inventory.cuda_files,
        wrappers,
        frozenset(k.name for k in inventory.kernels if k.language == "cuda" and k.role == "kernel"),
        capability,
    )
