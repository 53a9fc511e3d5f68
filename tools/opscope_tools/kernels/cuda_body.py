"""The body of a CUDA kernel: index mapping, shared arrays, global and shared accesses, matrix and copy instructions.

A line-order reading of statements, not a compiler. Loads and stores are in cuda_memory.py, the declarations they lead
back to in cuda_scope.py. Device functions that the kernel calls are read along (`via`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from opscope_schemas.tiling import Constraint, IndexMapping, Instruction, Loop, MemoryOperation, SharedArray

from opscope_tools.kernels.ctext import CSource, matching, split_arguments, squeeze
from opscope_tools.kernels.cuda_access import Steps
from opscope_tools.kernels.cuda_expr import formula
from opscope_tools.kernels.cuda_find import expand
from opscope_tools.kernels.cuda_host import Names
from opscope_tools.kernels.cuda_memory import Accesses
from opscope_tools.kernels.cuda_scope import Place, Scopes
from opscope_tools.kernels.cuda_types import element_bytes
from opscope_tools.kernels.facts import MacroRef
from opscope_tools.kernels.symbols import PRODUCT, SUM, Sym, product, render

#: what a call or an assembly text does, by its spelling
_INSTRUCTIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("TMA copy", r"cp\.async\.bulk|\bSM90_TMA\w*|\btma_(?:load|store)\w*|\bcp_async_bulk\w*"),
        (
            "cp.async",
            r"cp\.async(?!\.bulk)|\bcp_async(?!_bulk)\w*|__pipeline_memcpy_async|\bSM80_CP_ASYNC\w*|cuda::memcpy_async",
        ),
        ("ldmatrix", r"\bldmatrix\b|\bldsm\w*|\bSM75_U\w*_LDSM\w*"),
        ("stmatrix", r"\bstmatrix\b|\bSM90_U\w*_STSM\w*"),
        ("wgmma", r"\bwgmma\b|\bwarpgroup_\w+|\bSM90_\w*GMMA\w*"),
        ("tcgen05", r"\btcgen05\b"),
        ("mma.sync", r"\bmma\.sync\b|\bmma_sync_\w+|\bSM80_\d+x\d+x\d+\w*"),
        ("wmma", r"\bwmma::(?:mma_sync|load_matrix_sync|store_matrix_sync)\b"),
        (
            "cute::gemm",
            r"\b(?:cute::gemm|FLASH_NAMESPACE::gemm\w*|flash::gemm\w*|gemm(?:_rs|_smem)?)\s*+[<(](?=[^;]*\))",
        ),
        ("cute::copy", r"\b(?:cute::copy|FLASH_NAMESPACE::copy\w*|flash::copy\w*)\s*+[<(]"),
        ("atomic", r"\batomic[A-Z]\w*\s*+\("),
        ("warp shuffle", r"\b__shfl\w*\s*+\("),
        ("barrier", r"\b__syncthreads\w*\s*+\(|\b__syncwarp\s*+\("),
        ("dot product", r"\b__dp4a\s*+\("),
    )
)
_TENSOR = {"wgmma", "tcgen05", "mma.sync", "wmma"}
_IDS = re.compile(
    r"\b(blockIdx|threadIdx|blockDim|gridDim|cluster_ctarank)\b(?:\.([xyz]))?|\bget_(?:group_id|global_id)\b"
)
_ASSIGN = re.compile(
    r"(?:^|[;{}(])\s*+((?:[A-Za-z_][\w:]*+(?:<[^;=]{0,400}>)?[\s*&]++(?!=)){0,12}+)([A-Za-z_]\w*+)\s*+=(?!=)\s*+([^;{}]+)(?=;)",
    re.MULTILINE,
)
_SHARED = re.compile(
    r"((?:extern\s+)?__shared__|__shared__(?:\s++extern)?)\s++((?:__\w+__\s*+\([^)]*+\)|alignas\s*+\([^)]*+\)|__align__\([^)]*+\)|\s)*+)([^;=]+);"
)
#: brackets in brackets; compilers take 256
_DEEPEST = 256


@dataclass
class CudaBody:
    """What a body says."""

    mapping: list[IndexMapping] = field(default_factory=list)
    loads: list[MemoryOperation] = field(default_factory=list)
    stores: list[MemoryOperation] = field(default_factory=list)
    shared: list[SharedArray] = field(default_factory=list)
    instructions: list[Instruction] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    constraints: list[Constraint] = field(default_factory=list)
    #: compile-time name -> (line, how it measures a tile)
    tiles: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    #: functions called, with the position of the first call
    called: dict[str, int] = field(default_factory=dict)
    #: spellings of accesses that are not resolved, of device functions too
    unresolved: dict[str, None] = field(default_factory=dict)
    #: functions that are handed a pointer into global memory, with their spelling
    passed: dict[str, str] = field(default_factory=dict)
    #: function -> what each argument of its calls stands for
    bound: dict[str, list[Place | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Region:
    """The part of a file that is read, and how facts from it are labelled."""

    source: CSource
    start: int
    end: int
    compile_time: frozenset[str]
    #: what the parameters stand for
    given: tuple[Place, ...]
    via: str = ""
    #: parameters that every thread gets alike: those of the kernel itself
    uniform: tuple[str, ...] = ()
    #: macros of the repository that compute indices
    index_macros: tuple[MacroRef, ...] = ()


def read_region(region: Region, body: CudaBody) -> None:
    """Add what one function body says to `body`."""
    _Reader(region, body).run()


class _Reader:
    def __init__(self, region: Region, body: CudaBody) -> None:
        self.region, self.body, self.source = region, body, region.source
        self.file = self.source.path if region.via else ""
        self.text = self.source.statements[region.start : region.end]
        self.names = Names(self.source, region.start, region.end, region.compile_time)
        self.steps = Steps(self.source, region.start, region.end, region.compile_time, region.uniform)
        self.scopes = Scopes(self.source, region.start, region.end, list(region.given), self.line)
        self.steps.declared = self.scopes.at
        self.steps.at = lambda name: self.scopes.at(name, len(self.text) - 1) or self.scopes.only(name)

    def line(self, position: int) -> int:
        return self.source.line(self.region.start + position)

    def run(self) -> None:
        if self.source.nesting(self.region.start, self.region.end) > _DEEPEST:
            self.body.unresolved.setdefault(f"the body, which is nested more than {_DEEPEST} brackets deep")
            return
        self._shared_arrays()
        self._loops()
        self._mapping()
        self._accesses()
        self._instructions()
        self._constraints()
        for match in re.finditer(r"\b([A-Za-z_]\w*)\s*+(?:<[^;{}()]{0,400}>)?\s*+\(", self.text):
            self.body.called.setdefault(match[1], self.line(match.start()))

    def _formula(self, text: str) -> str:
        return render(formula(text, self.names))

    # shared memory -----------------------------------------------------------------------------------------------

    def _shared_arrays(self) -> None:
        for match in _SHARED.finditer(self.text):
            if "{" in match[3]:
                self._of_written_type(match)
            for declared in _declarators(squeeze(match[3])):
                self._shared_array(match, declared)

    def _of_written_type(self, match: re.Match[str]) -> None:
        """`__shared__ union { ... } both;`: an array whose size only the compiler knows."""
        closing = matching(self.text, self.text.index("{", match.start()))
        name = re.compile(r"\s*+(\w+)").match(self.text, closing + 1) if closing > 0 else None
        if name is not None:
            kind = match[3].partition("{")[0].strip()
            self.body.shared.append(
                SharedArray(
                    line=self.line(match.start()), file=self.file, name=name[1], type=kind, via=self.region.via,
                    formula=f"sizeof({name[1]})",
                )
            )  # fmt: skip

    def _shared_array(self, match: re.Match[str], declared: str) -> None:
        found = re.match(r"^(.*?[\s*&>])([A-Za-z_]\w*)\s*((?:\[[^\]]*\]\s*)*)$", declared)
        if found is None:
            return
        names = Names(self.source, self.region.start, self.region.start + match.start(), self.region.compile_time)
        kind, name = found[1].strip(), found[2]
        kind = re.sub(r"(__align__|alignas|__attribute__)\s*+\([^)]*\)+", "", kind).strip()
        written = re.findall(r"\[([^\]]*)\]", found[3])
        dynamic = "extern" in match[1]
        values = [formula(d, names) for d in written if d.strip()]
        size = 8 if "*" in kind else element_bytes(kind)
        total: int | None = None
        if not dynamic and size is not None and all(isinstance(v, int) for v in values):
            total = size
            for value in values:
                total *= int(value)
        element = str(size) if size is not None else f"sizeof({kind})"
        self.scopes.enter(Place(name, match.end(), self.scopes.block_end(match.end()), "pointer", "shared", type=kind))
        self.body.shared.append(
            SharedArray(
                line=self.line(match.start()),
                file=self.file,
                name=name,
                type=kind,
                dynamic=dynamic,
                bytes=total,
                dimensions=tuple(render(v) for v in values),
                via=self.region.via,
                formula="given at the launch" if dynamic else product([*(render(v) for v in values), element]),
                basis="source" if dynamic or total is None else "evaluated",
            )
        )
        for text in written:
            self._tile(text, self.line(match.start()), f"__shared__ {declared}")

    def _tile(self, text: str, line: int, use: str) -> None:
        for name in dict.fromkeys(re.findall(r"[A-Za-z_][\w:]*", text)):
            if name in self.region.compile_time or re.fullmatch(r"k[A-Z]\w*|[A-Z][A-Z0-9_]{2,}|\w+::k[A-Z]\w*", name):
                uses = self.body.tiles.setdefault(name, [])
                if not self.region.via and len(uses) < 6 and use not in [u for _, u in uses]:
                    uses.append((line, use[:160]))
                elif not uses:
                    del self.body.tiles[name]

    # index mapping -----------------------------------------------------------------------------------------------

    def _mapping(self) -> None:
        ids: set[str] = set()
        for match in _ASSIGN.finditer(self.text):
            name, value, place = match[2], squeeze(match[3]), match.start(2)
            axes = [f"{m[1]}.{m[2]}" if m[2] else m[0] for m in _IDS.finditer(value)]
            used = set(re.findall(r"[A-Za-z_]\w*", value))
            loads = bool(re.search(r"\w\s*+\[", value)) or value.startswith("*")
            pointer = "*" in match[1]
            if axes or (used & ids and not loads and len(value) < 200 and _is_arithmetic(value)):
                if not pointer:
                    ids.add(name)
                if len(self.body.mapping) < 80:
                    self.body.mapping.append(
                        IndexMapping(
                            line=self.line(place),
                            file=self.file,
                            axis=", ".join(dict.fromkeys(axes)),
                            variable=name,
                            expression=value,
                            via=self.region.via,
                        )
                    )
                if "blockIdx" in value or used & ids:
                    for term in re.findall(r"\*\s*+([A-Za-z_][\w:]*+)|(?<![\w:])([A-Za-z_][\w:]*+)\s*+\*", value):
                        self._tile(term[0] or term[1], self.line(place), f"{name} = {value}")
        self._macro_mapping()
        for match in re.finditer(r"\bblockIdx\.[xyz]", self.text):  # ids used in place, not through a variable
            line = self.line(match.start())
            if line not in {m.line for m in self.body.mapping if m.file == self.file}:
                statement = self._statement(match.start())
                self.body.mapping.append(
                    IndexMapping(
                        line=line, file=self.file, axis=match[0], variable="", expression=statement, via=self.region.via
                    )
                )

    def _macro_mapping(self) -> None:
        """Loops over the grid that a macro writes: `CUDA_KERNEL_LOOP(i, n) { ... }`."""
        table = {m.name: m for m in self.region.index_macros}
        for match in re.finditer(r"\b([A-Z][A-Z0-9_]+)\s*+\(", self.text):
            macro = table.get(match[1])
            closing = matching(self.text, match.end() - 1) if macro else -1
            if macro is None or closing < 0:
                continue
            arguments = split_arguments(self.text[match.end() : closing])
            expanded = squeeze(expand(macro, arguments))
            if (outer := re.match(r"^(\w+)\s*+\((.*)\)$", expanded)) and outer[1] in table:
                expanded = squeeze(expand(table[outer[1]], split_arguments(outer[2])))
            axes = dict.fromkeys(f"{m[1]}.{m[2]}" for m in _IDS.finditer(expanded) if m[2])
            self.body.mapping.append(
                IndexMapping(
                    line=self.line(match.start()),
                    file=self.file,
                    axis=", ".join(axes),
                    variable=arguments[0] if arguments else "",
                    expression=f"{match[0]}...) is {expanded[:300]}",
                    via=self.region.via,
                )
            )

    def _statement(self, position: int, original: bool = False) -> str:
        start = max(self.text.rfind(c, 0, position) for c in ";{}") + 1
        depth = 0
        for place in range(start, position):  # behind the heading of a loop: `for (...; i /= 2) x += f(i);`
            depth += {"(": 1, ")": -1}.get(self.text[place], 0)
            if depth < 0:
                start, depth = place + 1, 0
        stop = min((p for p in (self.text.find(c, position) for c in ";{") if p >= 0), default=len(self.text))
        text = self.source.original if original else self.source.statements
        shown = text[self.region.start + start : self.region.start + stop]
        return squeeze(re.sub(r"//[^\n]*|/\*.*?\*/", "", shown, flags=re.DOTALL))[:240]

    # memory ------------------------------------------------------------------------------------------------------

    def _accesses(self) -> None:
        """Loads, stores, and what stays unresolved (cuda_memory.py)."""
        self.scopes.read()
        skipped = [m.span() for m in _SHARED.finditer(self.text)]
        found = Accesses(
            self.source, self.region.start, self.scopes, skipped, file=self.file, via=self.region.via,
            line=self.line, loop=self._loop_of, steps=self.steps,
        ).read()  # fmt: skip
        for kept, new in ((self.body.loads, found.loads), (self.body.stores, found.stores)):
            kept[:] = dict.fromkeys((*kept, *(operation for _, operation in new)))
        self.body.unresolved |= found.unresolved
        self.body.passed, self.body.bound = found.passed, found.bound

    def _loop_of(self, line: int) -> int:
        inside = [start for start, end in self._loop_spans if start <= line <= end]
        return max(inside, default=0)

    # loops, instructions, constraints ----------------------------------------------------------------------------

    def _loops(self) -> None:
        self._loop_spans: list[tuple[int, int]] = []
        for match in re.finditer(r"\b(for|while)\s*+\(", self.text):
            closing = matching(self.text, match.end() - 1)
            if closing < 0:
                continue
            header = squeeze(self.text[match.end() : closing])
            following = re.compile(r"\s*+\{").match(self.text, closing + 1)
            end = (
                self.source.block_end(self.region.start + following.end() - 1) - self.region.start
                if following
                else self.text.find(";", closing)
            )
            self._loop_spans.append((self.line(match.start()), self.line(max(end, closing))))
            variable, trip = self._trip_count(header) if match[1] == "for" else ("", "")
            inside = self.text[closing : max(end, closing)]
            written = rf"(?<![\w.>])(?:{variable}\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*{variable}\b)"
            if variable and re.search(written, inside):
                trip = ""  # the body changes its counter
            early = re.search(r"\b(?:break|goto|return)\b", inside) if trip else None
            self.body.loops.append(
                Loop(
                    line=self.line(match.start()),
                    file=self.file,
                    variable=variable,
                    expression=header[:240],
                    trip_count=trip,
                    kind=match[1],
                    basis="evaluated" if trip else "source",
                    assumptions=(f"it is not left early by {early[0]}",) if early else (),
                    via=self.region.via,
                )
            )

    def _trip_count(self, header: str) -> tuple[str, str]:
        parts = [p.strip() for p in header.split(";")]
        if len(parts) != 3:
            return "", ""
        begins = [m for one in split_arguments(parts[0]) if (m := _BEGINS.match(one))]
        begins = [m for m in begins if re.match(rf"{m[1]}\s*+(?:<|!=)", parts[1])]  # of several, the one that is tested
        if not begins:
            return "", ""
        first, name = begins[0], begins[0][1]
        steps = split_arguments(parts[2])
        until = re.match(rf"^{name}\s*(<=|<|!=)\s*([^&|?]+)$", parts[1])
        step = next((s for s in steps if re.match(rf"^(?:\+\+\s*{name}|{name}\s*+\+\+)$", s)), None)
        by = next((m for s in steps if (m := re.match(rf"^{name}\s*+\+=\s*(.+)$", s))), None)
        moved = set(re.findall(r"[A-Za-z_]\w*", parts[2])) - {name}
        if until is None or not (step or by) or moved & set(re.findall(r"[A-Za-z_]\w*", until[2])):
            return name, ""
        begin, stop = formula(first[2], self.names), formula(until[2], self.names)
        if until[1] == "<=":
            stop = stop + 1 if isinstance(stop, int) else Sym(f"{render(stop, SUM)} + 1", SUM)
        if isinstance(begin, int) and isinstance(stop, int):
            span: object = max(stop - begin, 0)
        else:
            span = stop if begin == 0 else Sym(f"{render(stop, SUM)} - {render(begin, PRODUCT)}", SUM)
        if by is None:
            return name, render(span)
        stride = formula(by[1], self.names)
        if isinstance(span, int) and isinstance(stride, int) and stride > 0:
            return name, str(-(-span // stride))
        return name, f"cdiv({render(span)}, {render(stride)})"

    def _instructions(self) -> None:
        original = self.source.original[self.region.start : self.region.end]
        comments = [m.span() for m in re.finditer(r"//[^\n]*|/\*.*?\*/", original, re.DOTALL)]
        seen: set[tuple[str, int]] = set()
        for name, pattern in _INSTRUCTIONS:
            for match in pattern.finditer(original):
                line = self.line(match.start())
                if (name, line) in seen or any(a <= match.start() < b for a, b in comments):
                    continue
                seen.add((name, line))
                text = self._statement(match.start(), original=True)
                self.body.instructions.append(
                    Instruction(line=line, file=self.file, operation=name, expression=text, via=self.region.via)
                )
        self.body.instructions.sort(key=lambda i: (i.via, i.file, i.line))

    def _constraints(self) -> None:
        self.body.constraints.extend(
            assertions(self.source, self.region.start, self.region.end, self.file, self.region.via)
        )


_BEGINS = re.compile(r"^(?:[\w:]+[\s&]+)*(\w+)\s*+=\s*([^,]+)$")
_CHECK = re.compile(
    r"\b(static_assert|TORCH_CHECK\w*|TORCH_INTERNAL_ASSERT|AT_ASSERT\w*|CHECK_\w+|GGML_ASSERT|assert|FLASHINFER_CHECK|C10_CHECK\w*)\s*+\("
)


def assertions(source: CSource, start: int, end: int, file: str, via: str) -> Iterator[Constraint]:
    """Compile-time and host assertions of a range, with their messages from the original text."""
    for match in _CHECK.finditer(source.statements, start, end):
        closing = matching(source.statements, match.end() - 1)
        if closing < 0:
            continue
        parts = split_arguments(source.statements[match.end() : closing])
        quoted = re.findall(r"\"((?:\\.|[^\"\\])*)\"", source.original[match.end() : closing])
        if parts:
            yield Constraint(
                line=source.line(match.start()),
                file=file,
                kind=match[1],
                condition=parts[0],
                message=" ".join(quoted)[:240],
                via=via,
            )


def _declarators(declared: str) -> list[str]:
    """Each declarator of `float a[2], b[3]` with the type before it; none of a type that is written out in place."""
    if "{" in declared:
        return []
    first, *others = split_arguments(declared)
    base = re.match(r"^(.*?[\s&>])\**\s*+[A-Za-z_]\w*\s*+(?:\[|$)", first)
    return [first, *(f"{base[1].strip()} {other}" for other in others)] if base else [first]


def _is_arithmetic(value: str) -> bool:
    """Index arithmetic: no calls but casts, min and max, no templates."""
    calls = set(re.findall(r"\b(\w+)\s*+(?:<[^<>]*>)?\s*+\(", value))
    return calls <= {"min", "max", "static_cast", "int", "size_t", "int64_t", "uint32_t", "__umulhi", "return"}
