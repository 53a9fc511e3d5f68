"""What the compiler says of a CUTLASS operator: its threads, shared memory, stages and matrix instruction as constants, what its
collectives are made of as types that it writes out, registers as of any kernel.

The file is compiled as far as the operator, so that nothing else in it is. What an operator has no member for stays unsaid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from opscope_schemas.resources import Build

from opscope_tools.kernels.compiled.cuda_instance import CudaInstance
from opscope_tools.kernels.cuda.source_text import CSource, squeeze
from opscope_tools.kernels.cutlass.definitions import Operator

_TYPE = "opscope_operator"
#: name of a constant -> an expression of it for an operator K; a K that lacks it has -1
_CONSTANTS = {
    "threads": "K::MaxThreadsPerBlock",
    "shared_bytes": "K::SharedStorageSize",
    "min_blocks": "K::MinBlocksPerMultiprocessor",
    "stages": "K::CollectiveMainloop::DispatchPolicy::Stages",
    "epilogue_stages_c": "K::CollectiveEpilogue::DispatchPolicy::StagesC",
    "epilogue_stages_d": "K::CollectiveEpilogue::DispatchPolicy::StagesD",
    "mma_m": "cute::size<0>(typename K::CollectiveMainloop::TiledMma::AtomShape_MNK{})",
    "mma_n": "cute::size<1>(typename K::CollectiveMainloop::TiledMma::AtomShape_MNK{})",
    "mma_k": "cute::size<2>(typename K::CollectiveMainloop::TiledMma::AtomShape_MNK{})",
    "blocks_per_mma": "cute::size(typename K::CollectiveMainloop::TiledMma::AtomThrID{}) % 32 == 0 ? 1 : "
    "cute::size(typename K::CollectiveMainloop::TiledMma::AtomThrID{})",
    "mma_threads": "cute::size(typename K::CollectiveMainloop::TiledMma{})",
}
#: what is told of it -> the type
_TYPES = {
    "mainloop": "K::CollectiveMainloop::DispatchPolicy",
    "matrix product": "K::CollectiveMainloop::TiledMma",
    "element A": "K::CollectiveMainloop::ElementA",
    "element B": "K::CollectiveMainloop::ElementB",
    "copy of A": "K::CollectiveMainloop::GmemTiledCopyA",
    "copy of B": "K::CollectiveMainloop::GmemTiledCopyB",
    "A in shared memory": "K::CollectiveMainloop::SmemLayoutA",
    "B in shared memory": "K::CollectiveMainloop::SmemLayoutB",
    "epilogue": "K::CollectiveEpilogue::DispatchPolicy",
    "tile of the epilogue": "K::CollectiveEpilogue::EpilogueTile",
    "scheduler": "K::TileScheduler",
}
_LONGEST = 300


def operator_instance(source: CSource, found: Operator, instance: str, folders: Sequence[str]) -> CudaInstance:
    """The kernel of an operator; `instance`: of a class or alias that is a template, spelled with its arguments."""
    outer = next((s for s in found.within if s.kind != "alias"), None)
    end = found.end + 1 if outer is None else source.statements.find(";", outer.closing) + 1
    spaces = [s.name for s in found.scopes if s.kind == "namespace"]
    classes = [s.name for s in found.within if s.kind == "class"]
    alias = any(s.kind == "alias" for s in found.within)
    expression = "::".join((*classes, found.name))
    if instance:
        expression = instance if alias or instance.endswith(f"::{found.name}") else f"{instance}::{found.name}"
    text = _closed(source, end)
    declared = f"using {_TYPE} = {expression};"
    for name in reversed([one for one in spaces if one]):
        declared = f"namespace {name} {{ {declared} }}"
    seen = "::".join(("", *(one for one in spaces if one), _TYPE))
    members = "\n".join(
        f"template <class K> constexpr long long opscope_{name}() {{ if constexpr (requires {{ {value}; }}) return {value}; else return -1; }}"
        for name, value in _CONSTANTS.items()
    )
    held = "\n".join(
        f"template <class K, class = void> struct opscope_type_{at} {{ using type = void; }};\n"
        f"template <class K> struct opscope_type_{at}<K, cute::void_t<typename {of}>> {{ using type = typename {of}; }};"
        for at, of in enumerate(_TYPES.values())
    )
    return CudaInstance(
        source.path, "device_kernel", f"cutlass::device_kernel<{seen}>", (), tuple(folders),
        text=f'{text}\n#include "cutlass/device_kernel.h"\n{declared}\n{members}\n{held}\n',
        constants=tuple(f"opscope_{name}<{seen}>()" for name in _CONSTANTS),
        types=tuple(f"typename opscope_type_{at}<{seen}>::type" for at in range(len(_TYPES))),
    )  # fmt: skip


def _closed(source: CSource, end: int) -> str:
    """The file up to a position, its open namespaces and conditions closed."""
    text = source.original[:end]
    braces = sum(opening < end <= closing for opening, closing in source.all_blocks)
    opened = 0
    for match in re.finditer(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|endif)\b", text, re.MULTILINE):
        opened += -1 if match[1] == "endif" else 1
    return text + "\n}" * braces + "\n#endif" * opened + "\n"


def of_operator(build: Build, wanted: CudaInstance) -> Build:
    """A build with what its constants and types say, each under its name."""
    said = {name: value for name, value in zip(_CONSTANTS, build.options.values(), strict=False) if value >= 0}
    told = tuple(f"{name}: {_shown(text)}" for name, text in zip(_TYPES, build.types, strict=False) if text != "void")
    spelled = wanted.text.partition(f"using {_TYPE} = ")[2].partition(";")[0]
    return build.model_copy(update={  # the entry's own name has thousands of characters
        "specialisation": {"instance": spelled}, "types": told, "threads": said.pop("threads", 0), "options": said,
        "shared_bytes": said.pop("shared_bytes", build.shared_bytes),
    })  # fmt: skip


def _shown(text: str) -> str:
    """A type as people write it: `(_128, _64)` for tuples of constants."""
    text = re.sub(r"\bcute::C<(-?\d+)>", r"\1", text)
    text = re.sub(r"\b(?:cutlass|cute|gemm|collective|epilogue|kernel|detail|conv)::", "", text)
    while (inner := re.search(r"\btuple<([^<>]*)>", text)) is not None:
        text = f"{text[: inner.start()]}({squeeze(inner[1])}){text[inner.end() :]}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


__all__ = ["of_operator", "operator_instance"]
