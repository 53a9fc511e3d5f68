"""The inventory of a repository: every kernel, launch and kernel-writing macro, cached by file content.

Two passes over the CUDA files, because a macro of one file writes kernels in another. The stored entry holds the
facts of each file under the digest of its content, so an edit re-reads one file, and the whole under
the tree's fingerprint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from opscope_cache.keys import digest, engine_version, of_document
from opscope_cache.store import Store, recall
from opscope_cache.trees import tree_at
from opscope_schemas.common import Frozen, Repository
from opscope_schemas.errors import CancelledError
from opscope_schemas.tiling import Unanalysed

from opscope_tools.kernels.cuda.launch.cutlass import KERNEL
from opscope_tools.kernels.cuda.launch.wrappers import may_wrap, wrapper_calls, wrappers
from opscope_tools.kernels.cuda.names.definitions import KernelMacros, find_in_cuda, kernel_macros, worth_reading
from opscope_tools.kernels.cuda.source_text import CSource
from opscope_tools.kernels.cutlass.classes import class_references, may_be_class
from opscope_tools.kernels.cutlass.definitions import may_hold, references
from opscope_tools.kernels.records import FileFacts, Inventory, KernelRef, MacroRef, PickerRef, WrapperRef
from opscope_tools.kernels.triton.definitions import find_in_python, worth_parsing
from opscope_tools.source.cpp.text import decoded
from opscope_tools.source.files import CUDA, HEADERS, LIMIT, PYTHON, TEMPLATES, read_bytes, too_large, walk

Progress = Callable[[float, float | None, str], None]
_TEMPLATE_KERNEL = re.compile(
    r"@triton\.jit[^\n]*\n\s*+def\s+([^(\s]+)|__global__\s++(?:(?!__global__)[^;{])*?(?<!\w)(\w++)\s*+\("
)
_BEGUN = "/begun"
_DEFINE = re.compile(rb"#[ \t]*define")


class _Begun(Frozen):
    """What a scan that was cancelled had read."""

    #: as in `_Stored`
    files: dict[str, tuple[str, FileFacts]]


class _Stored(Frozen):
    tree: str
    inventory: Inventory
    #: path -> (digest of content and macros, facts)
    files: dict[str, tuple[str, FileFacts]]


def scan(repository: Repository, store: Store, *, checkpoint: Callable[[], None], progress: Progress) -> Inventory:
    """Every kernel and launch of a repository."""
    key = digest("kernels", engine_version(), str(repository.root), *repository.packages)
    fingerprint = tree_at(repository.root, repository.packages).now().fingerprint
    stored = recall(store, key, _Stored.model_validate_json)
    if stored is not None and stored.tree == fingerprint:
        return stored.inventory
    begun = None if stored else recall(store, key + _BEGUN, _Begun.model_validate_json)
    reader = _Reader(repository, stored.files if stored else begun.files if begun else {}, checkpoint, progress)
    try:
        inventory = reader.read()
    except CancelledError:  # the next scan goes on from here
        store.put(key + _BEGUN, _Begun(files={**reader.known, **reader.kept}).model_dump_json())
        raise
    store.put(key, _Stored(tree=fingerprint, inventory=inventory, files=reader.kept).model_dump_json())
    return inventory


class _Reader:
    def __init__(
        self,
        repository: Repository,
        known: dict[str, tuple[str, FileFacts]],
        checkpoint: Callable[[], None],
        progress: Progress,
    ) -> None:
        self.repository, self.known = repository, known
        self.checkpoint, self.progress = checkpoint, progress
        self.kept: dict[str, tuple[str, FileFacts]] = {}

    def read(self) -> Inventory:
        paths = list(walk(self.repository))
        total = len(paths)
        cuda: dict[str, bytes] = {}
        macros: list[MacroRef] = []
        wrapping: list[WrapperRef] = []
        for index, path in enumerate(paths):
            if index % 64 == 0:
                self.checkpoint()
                self.progress(index, total, f"reading {self.repository.name} for kernels")
            data = read_bytes(self.repository, path, walked=True)
            if data is None:
                if path.endswith((*PYTHON, *CUDA)) and too_large(self.repository, path):
                    note = f"{path} is larger than {LIMIT >> 20} MiB; it was left out."
                    self._keep(path, "too large", partial(FileFacts, note=note))
                continue
            if path.endswith(PYTHON):
                if worth_parsing(data):
                    self._keep(path, digest(data), partial(_python, path, data))
            elif path.endswith(CUDA):
                if worth_reading(data) or may_hold(data) or may_be_class(data):
                    cuda[path] = data
                    text = decoded(data)
                    defines, wraps = _DEFINE.search(data) is not None, may_wrap(text)
                    source = CSource(path, text) if defines or wraps else None
                    if source is not None and defines:
                        macros.extend(source.macros)
                    if source is not None and wraps:
                        wrapping.extend(wrappers(source))
            elif path.endswith(TEMPLATES) and (b"triton.jit" in data or b"__global__" in data):
                self._keep(path, digest(data), partial(_template, path, data))
        writing = kernel_macros(macros)
        known = {w.name: w for w in reversed(wrapping)}
        marks = of_document(
            [
                sorted(writing.objects), {n: m.model_dump() for n, m in sorted(writing.functions.items())},
                {n: w.kernel for n, w in sorted(known.items())},
            ]
        )  # fmt: skip
        cuda |= self._also_written(paths, cuda, [*writing.functions, *writing.objects, *known])
        for path, data in cuda.items():
            self.checkpoint()
            self._keep(path, digest(data, marks), partial(_cuda, path, data, writing, known))
        self.progress(total, total, f"read {self.repository.name}")
        written = tuple(path for path in self.kept if path.endswith(CUDA))
        return _assembled(
            self.repository, written, [facts for _, facts in self.kept.values()], macros, writing, wrapping, total
        )

    def _also_written(self, paths: list[str], cuda: dict[str, bytes], written: list[str]) -> dict[str, bytes]:
        """Files without the keywords in which a macro writes a kernel, or a function of another file launches one."""
        names = [name.encode() for name in written]
        if not names:
            return {}
        found = {}
        for path in paths:
            if path.endswith(CUDA) and path not in cuda:
                data = read_bytes(self.repository, path, walked=True)
                if data is not None and any(name in data for name in names):
                    found[path] = data
        return found

    def _keep(self, path: str, identity: str, make: Callable[[], FileFacts]) -> None:
        old = self.known.get(path)
        facts = old[1] if old is not None and old[0] == identity else make()
        if facts != FileFacts():
            self.kept[path] = (identity, facts)


def _python(path: str, data: bytes) -> FileFacts:
    return find_in_python(path, decoded(data))


def _cuda(path: str, data: bytes, writing: KernelMacros, known: Mapping[str, WrapperRef]) -> FileFacts:
    def wrapped(source: CSource) -> list[tuple[int, int, int, str, int]]:
        return [(*site, known[site[3]].kernel) for site in wrapper_calls(source, known)]

    facts = find_in_cuda(path, decoded(data), writing, wrapped)
    if not may_hold(data) and not may_be_class(data):
        return facts
    source = CSource(path, decoded(data))
    return facts.model_copy(update={"kernels": (*facts.kernels, *references(source), *class_references(source))})


def _template(path: str, data: bytes) -> FileFacts:
    text = decoded(data)
    found = [
        Unanalysed(
            form="kernel in a Jinja template",
            name=m[1] or m[2] or "",
            file=path,
            line=text.count("\n", 0, m.start()) + 1,
        )
        for m in _TEMPLATE_KERNEL.finditer(text)
    ]
    return FileFacts(not_analysed=tuple(found))


def _assembled(
    repository: Repository,
    written: tuple[str, ...],
    files: list[FileFacts],
    macros: list[MacroRef],
    writing: KernelMacros,
    wrapping: list[WrapperRef],
    total: int,
) -> Inventory:
    """The files put together; a launched device function turns out to be a kernel."""
    picked = _closed([picker for facts in files for picker in facts.pickers])
    files = [_with_picked(facts, picked) for facts in files] if picked else files
    launched = {name for facts in files for launch in facts.launches for name in launch.callees}
    kernels = [
        k.model_copy(update={"role": "kernel"}) if k.language == "triton" and k.name in launched else k
        for facts in files for k in facts.kernels
    ]  # fmt: skip
    names = {k.name for k in kernels if k.role == "kernel"}
    if any(k.entry for k in kernels):  # which of them a launch means, their descriptions work out
        names.add(KERNEL)
    launches = [launch for facts in files for launch in facts.launches if names & set(launch.callees)]
    outside = [
        Unanalysed(form="CUTLASS operator whose kernel is outside the repository", name=KERNEL, file=launch.file, line=launch.line)
        for facts in files for launch in facts.launches if KERNEL in launch.callees and KERNEL not in names
    ]  # fmt: skip
    shared = [m for m in macros if m.file.endswith(HEADERS)]  # no file sees those of what is compiled by itself
    kept = {m.name: m for m in shared if len(m.body) <= 120 and re.search(r"\d|/", m.body)}
    kept |= {m.name: m for m in shared if _indexes(m, shared)}
    return Inventory(
        repository=repository.name, kernels=tuple(sorted(kernels, key=_order)), launches=tuple(launches),
        macros=tuple(kept.values()), global_objects=tuple(sorted(writing.objects)),
        global_functions=tuple(writing.functions.values()), wrappers=tuple(wrapping),
        not_analysed=(*(u for facts in files for u in facts.not_analysed), *outside),
        notes=tuple(facts.note for facts in files if facts.note), files_read=total, cuda_files=written,
    )  # fmt: skip


def _closed(pickers: list[PickerRef]) -> dict[str, tuple[str, ...]]:
    """Choosing function -> every name that it may return, through the choosers that it asks."""
    table: dict[str, dict[str, None]] = {}
    for picker in pickers:
        table.setdefault(picker.name, {}).update(dict.fromkeys(picker.names))
    closed = {}
    for name in table:
        seen, todo = {name: None}, [name]
        while todo:
            for other in table.get(todo.pop(), ()):
                if other not in seen:
                    seen[other] = None
                    todo.append(other)
        closed[name] = tuple(seen)
    return closed


def _with_picked(facts: FileFacts, picked: dict[str, tuple[str, ...]]) -> FileFacts:
    """A file's facts whose launches also name the kernels that a function elsewhere chooses for them."""
    launches = [
        launch.model_copy(update={"callees": tuple(dict.fromkeys((*launch.callees, *(n for c in launch.callees for n in picked.get(c, ())))))})
        for launch in facts.launches
    ]  # fmt: skip
    return facts.model_copy(update={"launches": tuple(launches)})


def _indexes(macro: MacroRef, macros: list[MacroRef]) -> bool:
    """Whether a function macro computes an index from block or thread ids, itself or through a macro that does."""
    if macro.parameters is None or len(macro.body) > 600:
        return False
    if "blockIdx" in macro.body:
        return True
    name = re.match(r"^\s*+(\w+)\s*+\(", macro.body)
    inner = [m for m in macros if name is not None and m.name == name[1] and m.name != macro.name]
    return any("blockIdx" in m.body and len(m.body) <= 600 for m in inner)


def _order(kernel: KernelRef) -> tuple[bool, str, int]:
    return kernel.role != "kernel", kernel.file, kernel.line
