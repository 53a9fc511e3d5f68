"""What a report says of the CUDA or Triton kernels that were named: section 3.2, rows of section 5, components of section 4.

Settings and checks are those of `extract_config`, the rest is of `cuda_kernel_tiling`. A kernel stands for itself: nothing
here says that the traced pass launches it, unless an operator of the pass bears its name.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from opscope_schemas.extracted_config import KernelSettings, Setting
from opscope_schemas.tiling import KernelTiling, MemoryOperation
from opscope_schemas.units import things

from opscope_tools.report.components import ComponentText
from opscope_tools.report.facts import ImplementationFacts, short
from opscope_tools.report.graph import INPUTS, OUTPUTS, Edge, Graph, Vertex
from opscope_tools.report.overview import hooks_that_ran
from opscope_tools.report.pseudocode import Call, pseudocode
from opscope_tools.report.quotes import in_code as in_span
from opscope_tools.report.quotes import joined

__all__ = ["kernel_components", "kernel_graphs", "kernel_rows", "kernel_tasks", "kernel_titles"]

Row = tuple[str, str, str]
_ROWS = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "NUM_STAGES", "NUM_WARPS")
_PURPOSE = {
    "tile": "tile size", "constexpr": "compile-time constant", "template": "template parameter", "block": "threads of a block",
    "num_warps": "launch parameter", "num_stages": "launch parameter", "launch_bounds": "launch bounds",
    "dynamic_shared_memory": "bytes of dynamic shared memory",
}  # fmt: skip
_MOST_ACCESSES = 12


def in_code(text: str) -> str:
    """A formula or words of a kernel for a code span: its names are its own and no variables of the report."""
    return in_span(re.sub(r"\{([\w.]+)\}", r"\1", text))


# ---- 3.2 ------------------------------------------------------------------------------------------------------------


def kernel_rows(facts: ImplementationFacts) -> list[Row]:
    """The five rows that every report has, every other setting of the kernels that were named or that the model's file
    defines, then the places where the files of what ran take kernels from elsewhere."""
    found = _settings(facts)
    rows = [row for kernel in found for row in _of_kernel(kernel)]
    if not rows:
        why = f"`{facts.modeling_file}` launches kernels of libraries only, which choose tiles, stages and warps themselves"
        rows = [(", ".join(f"`{name}`" for name in _ROWS), "not in source", why)]
    hooks = hooks_that_ran(facts)
    if not hooks:
        return rows
    names = ", ".join(dict.fromkeys(f"`{hook.name}`" for hook in hooks))
    said = ", ".join(f"`{in_code(hook.expression)}`: `{hook.file}:{hook.line}`" for hook in hooks)
    within = joined(dict.fromkeys(hook.within for hook in hooks if hook.within))
    return [
        *rows,
        (
            names,
            said,
            f"a kernel from elsewhere may take the place of each, as none did here{f', in {within}' * bool(within)}",
        ),
    ]


def _settings(facts: ImplementationFacts) -> list[KernelSettings]:
    named = [kernel for found in facts.kernel_settings for kernel in found.kernels]
    return named or list(facts.settings.kernels if facts.settings is not None else ())


def _of_kernel(kernel: KernelSettings) -> Iterator[Row]:
    left = list(kernel.settings)
    for name in _ROWS:
        setting = next((s for s in left if _standard(s) == name), None)
        if setting is None:
            yield f"`{name}`", "n/a", f"no such setting in the source of {kernel.name}: `{kernel.file}:{kernel.line}`"
        else:
            left.remove(setting)
            spelt = (
                ""
                if setting.name == name or setting.kind in {"num_warps", "num_stages"}
                else f", called {setting.name}"
            )
            yield f"`{name}`", _values(kernel, setting), _purpose(kernel, setting, spelt)
    for setting in left:
        yield f"`{setting.name}`", _values(kernel, setting), _purpose(kernel, setting, "")
    if kernel.autotune is not None:
        tuned = kernel.autotune
        first = "; ".join(in_code(text) for text in tuned.first) or in_code(tuned.unresolved)
        said = f"{tuned.count} configurations, the first: `{first}`" if tuned.count else f"not resolved: `{first}`"
        yield (
            "`autotune`",
            said,
            f"what is tried for {kernel.name}, by {', '.join(tuned.key) or 'no key'}: `{tuned.file}:{tuned.line}`",
        )


def _standard(setting: Setting) -> str:
    """The row that a setting belongs to: `BLOCK_SIZE_M`, `kBlockM` and `TILE_M` are `BLOCK_M`."""
    if setting.kind in {"num_warps", "num_stages"}:
        return setting.kind.upper()
    if setting.kind not in {"tile", "constexpr", "template"}:
        return ""
    plain = (
        re.sub(r"^k(?=[A-Z])", "", setting.name).lower().replace("_", "").replace("size", "").replace("tile", "block")
    )
    match = re.fullmatch(r"(?:block([mnk])|b([mnk])|([mnk])block)", plain)
    return f"BLOCK_{next(filter(None, match.groups())).upper()}" if match else ""


def _values(kernel: KernelSettings, setting: Setting) -> str:
    said = [in_code(value) for value in setting.values] or ([in_code(setting.default)] if setting.default else [])
    if said:
        return ", ".join(f"`{value}`" for value in said)
    tuned = kernel.autotune is not None and any(f"{setting.name}=" in text for text in kernel.autotune.first)
    return "what autotuning picks" if tuned else "not set in source"


def _purpose(kernel: KernelSettings, setting: Setting, spelt: str) -> str:
    return f"{_PURPOSE[setting.kind]} of {kernel.name}{spelt}: `{setting.file or kernel.file}:{setting.line}`"


# ---- 5 --------------------------------------------------------------------------------------------------------------


def kernel_tasks(facts: ImplementationFacts, first: int) -> list[tuple[str, str, str, str, str]]:
    """A row of the catalogue for each kernel that was named, numbered behind the tasks of the pass."""
    return [
        (
            str(first + place), kernel.name,
            f"the {kernel.language} kernel that was named; the traced pass is not known to launch it: `{kernel.file}:{kernel.line}`",
            tiling_of(facts, kernel), "none",
        )
        for place, kernel in enumerate(_named(facts))
    ]  # fmt: skip


def _named(facts: ImplementationFacts) -> Sequence[KernelTiling]:
    """The kernels that were named and described, those with settings read."""
    return [
        kernel for kernel in (facts.tiling.kernels if facts.tiling else ()) if _setting_of(facts, kernel) is not None
    ]


def _setting_of(facts: ImplementationFacts, kernel: KernelTiling) -> KernelSettings | None:
    return next((found for found in _settings(facts) if found.id == kernel.id), None)


def tiling_of(facts: ImplementationFacts, kernel: KernelTiling) -> str:
    """The tile sizes of a kernel as one line."""
    found = _setting_of(facts, kernel)
    tiles = [s for s in found.settings if s.kind == "tile"] if found is not None else []
    said = [f"{tile.name}={_short(tile)}" for tile in tiles]
    return ", ".join(said) or "no tile constant"


def _short(setting: Setting) -> str:
    return " or ".join(in_code(value) for value in setting.values) or in_code(setting.default) or "not set in source"


# ---- 4 --------------------------------------------------------------------------------------------------------------


def kernel_titles(facts: ImplementationFacts) -> list[str]:
    """Titles of the subsections on kernels."""
    return [f"Kernel: {kernel.name}" for kernel in _named(facts)]


def kernel_components(facts: ImplementationFacts) -> list[ComponentText]:
    """A subsection for each kernel that was named, behind those of the modules."""
    return [
        ComponentText(
            title, _about(facts, kernel), _interface(facts, kernel), _code(facts, kernel),
            f"{'; '.join(_costs(kernel))}.", tuple(_insights(kernel)),
        )
        for title, kernel in zip(kernel_titles(facts), _named(facts), strict=True)
    ]  # fmt: skip


def _about(facts: ImplementationFacts, kernel: KernelTiling) -> str:
    loads, stores = len(kernel.loads), len(kernel.stores)
    return (
        f"`{kernel.name}` (`{kernel.file}:{kernel.line}`) is a {kernel.language} kernel with {loads} {things(loads, 'load')} "
        f"and {stores} {things(stores, 'store')}. It was named; whether `{short(facts.subject)}` launches it was not analysed."
    )


def _interface(facts: ImplementationFacts, kernel: KernelTiling) -> str:
    found = _setting_of(facts, kernel)
    read = dict.fromkeys(load.parameter for load in kernel.loads if load.parameter)
    written = dict.fromkeys(store.parameter for store in kernel.stores if store.parameter)
    settings = [f"{s.name}: {_short(s)}" for s in found.settings] if found is not None else []
    return "\n\n".join(
        f"{head}:\n" + "\n".join(f"  - {line}" for line in lines)
        for head, lines in (
            ("INPUTS", [f"{name}: read from memory" for name in read] or ["no parameter whose loads were followed"]),
            (
                "OUTPUTS",
                [f"{name}: written to memory" for name in written] or ["no parameter whose stores were followed"],
            ),
            ("PARAMS", settings or ["no compile-time or launch parameter"]),
        )
    )


def _code(facts: ImplementationFacts, kernel: KernelTiling) -> str:
    """The kernel as Python has it; of CUDA its loads and stores in order, which is what was read of it."""
    notes = [
        f"{kernel.language} kernel, from {kernel.file}:{kernel.line}",
        f"Tiling: {tiling_of(facts, kernel)}; grid {_grid(kernel)}",
        f"Memory: {_memory(kernel)}",
    ]  # fmt: skip
    span = facts.reader.definition(kernel.file, kernel.name) if kernel.file.endswith(".py") else None
    if span is not None and isinstance(span.node, ast.FunctionDef):
        return pseudocode(span.node, kernel.name, notes, Call())
    names = ", ".join(dict.fromkeys(p.name for p in kernel.parameters if p.name.isidentifier()))
    steps = [f"    # {_access(each)}  {each.file or kernel.file}:{each.line}" for each in _accesses(kernel)]
    doc = "\n".join(f"    {line}" if line else "" for line in notes)
    return "\n".join([f"def {kernel.name}({names}):", f'    """{doc.lstrip()}\n    """', *steps, "    return"])


def _grid(kernel: KernelTiling) -> str:
    found = dict.fromkeys(" x ".join(launch.dimensions) or launch.expression for launch in kernel.grid)
    return in_code(" or ".join(found)) or "not launched in this repository"


def _memory(kernel: KernelTiling) -> str:
    levels = dict.fromkeys(each.level for each in (*kernel.loads, *kernel.stores))
    loads, stores = len(kernel.loads), len(kernel.stores)
    shared = (
        f"; shared arrays: {', '.join(array.name for array in kernel.shared_memory)}" if kernel.shared_memory else ""
    )
    return f"{loads} {things(loads, 'load')}, {stores} {things(stores, 'store')} ({', '.join(levels) or 'none'}){in_code(shared)}"


def _accesses(kernel: KernelTiling) -> list[MemoryOperation]:
    return sorted((*kernel.loads, *kernel.stores), key=lambda each: each.line)


def _access(each: MemoryOperation) -> str:
    shape = f" [{', '.join(each.shape)}]" if each.shape else ""
    size = f", {each.bytes} bytes" if each.bytes else ""
    return in_code(f"{each.operation} {each.parameter or each.expression}{shape} ({each.level}{size})")


def kernel_graphs(facts: ImplementationFacts) -> list[Graph]:
    """The data flow of each kernel that was named: what it loads, the grid that computes, what it stores."""
    return [_graph(kernel) for kernel in _named(facts)]


def _graph(kernel: KernelTiling) -> Graph:
    accesses = _accesses(kernel)
    shown, left = accesses[:_MOST_ACCESSES], len(accesses) - _MOST_ACCESSES
    boxes = [(each, Vertex(f"access{at}", (f"line {each.line}: {_access(each)}",))) for at, each in enumerate(shown)]
    loads = [box for each, box in boxes if each in kernel.loads]
    stores = [box for each, box in boxes if each not in kernel.loads]
    body = Vertex("body", (kernel.name, f"grid of {_grid(kernel)}"))
    edges = [
        *(Edge(INPUTS, box.id) for box in loads), *(Edge(box.id, body.id) for box in loads),
        *(Edge(body.id, box.id) for box in stores), *(Edge(box.id, OUTPUTS) for box in stores),
    ]  # fmt: skip
    held = (Vertex(INPUTS, ("inputs",)), *loads, body, *stores, Vertex(OUTPUTS, ("outputs",)))
    return Graph(held, tuple(edges), note=f"{left} further loads and stores are left out." if left > 0 else "")


def _costs(kernel: KernelTiling) -> list[str]:
    cost = kernel.cost
    if cost is None:
        return ["not counted: the kernel's body was not followed"]
    rows = (
        ("FLOPs of a tile or block", cost.flops), ("of these matrix products", cost.matmul_flops),
        ("bytes read by it", cost.read_bytes), ("bytes written by it", cost.write_bytes),
        ("FLOPs of a launch", cost.launch_flops),
    )  # fmt: skip
    lines = [f"{label}: `{in_code(text)}`" for label, text in rows if text]
    return [*lines, *(f"not counted: `{in_code(text)}`" for text in cost.not_counted)]


def _insights(kernel: KernelTiling) -> list[str]:
    lines = [
        f"Launched in {launch.function or 'a file'} on a grid of `{in_code(' x '.join(launch.dimensions) or launch.expression)}`: "
        f"`{launch.file or kernel.file}:{launch.line}`"
        for launch in kernel.grid
    ]
    return lines or [f"No launch was found in its repository: `{kernel.file}:{kernel.line}`"]
