"""Description of one operator: what its collectives are given, the tile and its bytes, the launches, and what a tile costs.

The arguments of CUTLASS' own templates are named as it declares them (gemm/collective/collective_builder_decl.hpp and
epilogue/collective/collective_builder.hpp). Which instruction, how many stages and how many threads a builder chooses is
its own template code: that is the compiler's to say (compiled/cutlass_build.py), nothing here repeats it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from opscope_schemas.resources import NamedInstance, Resources
from opscope_schemas.tiling import (
    BoundValue,
    Constexpr,
    Cost,
    CostLine,
    Instruction,
    KernelTiling,
    Launch,
    SharedArray,
    TileLevel,
    TileSize,
)

from opscope_tools.kernels.cuda.source_text import CSource, matching_angle, split_arguments, squeeze
from opscope_tools.kernels.cutlass.definitions import Operator, operator_at, parameter_default, parameter_name
from opscope_tools.kernels.cutlass.instances import instances
from opscope_tools.kernels.cutlass.names import Names, Spelled, specialised
from opscope_tools.kernels.projections.cost import evaluated_at
from opscope_tools.kernels.records import KernelRef

_MAINLOOP = (
    "ArchTag", "OpClass", "ElementA", "GmemLayoutA", "AlignmentA", "ElementB", "GmemLayoutB", "AlignmentB", "ElementAccumulator",
    "TileShape_MNK", "ClusterShape_MNK", "StageCountType", "KernelScheduleType",
)  # fmt: skip
_EPILOGUE = (
    "ArchTag", "OpClass", "TileShape_MNK", "ClusterShape_MNK", "EpilogueTileType", "ElementAccumulator", "ElementCompute", "ElementC",
    "GmemLayoutTagC", "AlignmentC", "ElementD", "GmemLayoutTagD", "AlignmentD", "EpilogueScheduleType", "FusionOpOrCallbacks",
)  # fmt: skip
#: template -> its parameters, of mainloop and epilogue
_TEMPLATES = {
    ("gemm", "CollectiveBuilder"): _MAINLOOP,
    ("conv", "CollectiveBuilder"): ("ArchTag", "OpClass", "ConvOp", *_MAINLOOP[2:]),
    ("epilogue", "CollectiveBuilder"): _EPILOGUE,
    ("gemm", "CollectiveMma"): (
        "DispatchPolicy", "TileShape_MNK", "ElementA", "StrideA", "ElementB", "StrideB", "TiledMma", "GmemTiledCopyA", "SmemLayoutAtomA",
        "SmemCopyAtomA", "TransformA", "GmemTiledCopyB", "SmemLayoutAtomB", "SmemCopyAtomB", "TransformB",
    ),
}  # fmt: skip
_TYPED = {"AlignmentA": "int", "AlignmentB": "int", "AlignmentC": "int", "AlignmentD": "int"}
_TILES = ("TileShape_MNK", "ClusterShape_MNK", "EpilogueTileType")
_ADAPTER = re.compile(r"\b(\w*Adapter)\s*<")
_VALUES = 24
#: characters of a type that are shown
_LONG = 160


@dataclass(frozen=True)
class Collective:
    """What one instance gives a mainloop or an epilogue."""

    template: str
    arguments: Mapping[str, Spelled]
    #: the text that is followed no further, where it is none of the known templates
    unread: str = ""


def describe_cutlass(
    reference: KernelRef, load: Callable[[str], CSource | None], around: Callable[[str], list[CSource]], sizes: Mapping[str, int]
) -> KernelTiling:  # fmt: skip
    """Everything source says about the operator at `reference`."""
    source = load(reference.file)
    if source is None:
        raise reference.moved()
    return _Description(
        reference, source, operator_at(reference, source), around(reference.file) or [source], sizes
    ).made()


class _Description:
    def __init__(
        self,
        reference: KernelRef,
        source: CSource,
        operator: Operator,
        sources: list[CSource],
        sizes: Mapping[str, int],
    ) -> None:
        self.reference, self.source, self.operator, self.sources, self.sizes = (
            reference,
            source,
            operator,
            sources,
            sizes,
        )
        self.names = Names(sources)
        self.convolves = "ConvUniversal" in source.statements[operator.start : operator.end]
        self.notes: list[str] = []
        #: each instance: what the template parameters around are bound to, where that is written
        self.instances = list(self._instances()) or [({}, Spelled("", source, operator.start))]

    def made(self) -> KernelTiling:
        mainloops = [self.collective(1, bound) for bound, _ in self.instances]
        epilogues = [self.collective(2, bound) for bound, _ in self.instances]
        for what, collectives in (("mainloop", mainloops), ("epilogue", epilogues)):
            for text in dict.fromkeys(c.unread for c in collectives if c.unread):
                self.notes.append(f"The {what} is {text[:_LONG]}: which collective that is source does not tell.")
        constexprs = (
            *self.parameters(), *self.arguments(mainloops, ""), *self.arguments(epilogues, "epilogue."), *self.scheduler(),
        )  # fmt: skip
        tiles = tuple(self.tiles(mainloops, ""))
        tiles += tuple(
            t for t in self.tiles(epilogues, "epilogue.") if t.values and t.values not in {o.values for o in tiles}
        )
        stages = tuple(self.stages(mainloops))
        shape = self.shape(mainloops)
        launches = tuple(self.launches(shape))
        r = self.reference
        return KernelTiling(
            id=r.id, name=r.name, language="cutlass", file=r.file, line=r.line, end_line=r.end_line,
            constexpr=constexprs, tile=tiles, levels=tuple(self.levels(mainloops, shape)), grid=launches,
            num_tiles=self.num_tiles(shape), num_stages=stages,
            shared_memory=tuple(self.shared(mainloops, shape)), instructions=tuple(self.products(mainloops)), cost=self.cost(mainloops, epilogues, shape),
            resources=Resources(instances=tuple(self.named())), notes=tuple(dict.fromkeys((*self.notes, *self.left()))),
        )  # fmt: skip

    # ---- instances

    def _instances(self) -> Iterator[tuple[dict[str, Spelled], Spelled]]:
        """The uses of the innermost class or function around whose template parameters the operator depends on."""
        within = [s for s in self.operator.within if s.parameters]
        if not within:
            return
        scope = within[-1]
        if scope.kind == "class" and specialised(self.source, scope.name):
            self.notes.append(f"Of {scope.name} there are several: which of them a use means is not worked out.")
            return
        spaces = frozenset(s.name for s in self.operator.scopes if s.kind == "namespace")
        yield from instances(self.names, self.source, scope, spaces)

    def file(self, at: Spelled) -> str:
        """Of a fact; empty for the operator's own."""
        return "" if at.source.path == self.reference.file else at.source.path

    def spelled(self, text: str, bound: Mapping[str, Spelled]) -> Spelled:
        return Spelled(text, self.source, self.operator.start, bound)

    def collective(self, place: int, bound: Mapping[str, Spelled]) -> Collective:
        found = self.names.meant(self.spelled(self.operator.arguments[place], bound))
        for _ in range(8):  # `Builder<...>::CollectiveOp`, or an alias of the builder itself
            match = re.search(r"\b(?:(\w+)::collective::)?(CollectiveBuilder|CollectiveMma)\s*<", found.text)
            if match is None:
                inner = re.match(r"(?:typename\s+)?(.+)::CollectiveOp$", found.text.strip())
                if inner is None:
                    break
                found = self.names.meant(found.with_text(inner[1]))
                continue
            if re.match(r"(?:typename\s+)?(?:\w+::)*$", found.text[: match.start(2)].strip()) is None:
                break  # inside of something that chooses, such as conditional_t
            closing = matching_angle(found.text, match.end() - 1)
            arguments = split_arguments(found.text[match.end() : closing]) if closing > 0 else []
            kind = "epilogue" if place == 2 else match[1] or "gemm"
            names = _TEMPLATES.get((kind, match[2]))
            if names is None:
                break
            return Collective(match[2], dict(zip(names, _placed(found, arguments), strict=False)))
        return Collective("", {}, found.parameter or squeeze(found.text))

    def named(self) -> Iterator[NamedInstance]:
        """The uses that give all template parameters."""
        for _, written in self.instances:
            if written.text:
                yield NamedInstance(
                    instance=squeeze(written.text), by="use", file=written.source.path, line=written.line
                )

    # ---- what is listed

    def parameters(self) -> Iterator[Constexpr]:
        """Template parameters of the class or function around, with what its uses give them."""
        for scope in self.operator.within:
            for parameter in scope.parameters:
                name = parameter_name(parameter)
                if not name:
                    continue
                values = [
                    self.value(bound[name], written) for bound, written in self.instances if name in bound
                ]  # fmt: skip
                distinct = list({v.value: v for v in values}.values())
                yield Constexpr(
                    name=name, kind="template", type=squeeze(parameter.partition("=")[0].rpartition(name)[0]),
                    default=parameter_default(parameter), line=self.source.line(scope.heading), values=tuple(distinct[:_VALUES]),
                )  # fmt: skip

    def value(self, spelled: Spelled, written: Spelled | None = None) -> BoundValue:
        found = self.names.meant(spelled)
        at = written or found
        file = self.file(at)
        return BoundValue(
            value=_short(self.names.shown(found)), origin="instantiation", line=at.line, file=file, basis="evaluated",
        )  # fmt: skip

    def arguments(self, collectives: Sequence[Collective], prefix: str) -> Iterator[Constexpr]:
        """The arguments of the collectives; of the epilogue those that the mainloop has not been given too."""
        names = dict.fromkeys(name for c in collectives for name in c.arguments)
        for name in names:
            if name in _TILES or (prefix and name in {"ArchTag", "OpClass", "ElementAccumulator"}):
                continue
            given = [c.arguments[name] for c in collectives if name in c.arguments]
            values = {v.value: v for v in map(self.value, given)}
            first = given[0]
            yield Constexpr(
                name=name, kind="template", type=_TYPED.get(name, "class"), line=first.line,
                file=self.file(first), values=tuple(values.values())[:_VALUES],
            )  # fmt: skip

    def scheduler(self) -> Iterator[Constexpr]:
        if len(self.operator.arguments) < 4:
            return
        values = {
            v.value: v for v in (self.value(self.spelled(self.operator.arguments[3], b)) for b, _ in self.instances)
        }
        yield Constexpr(
            name="TileScheduler",
            kind="template",
            type="class",
            line=self.source.line(self.operator.start),
            values=tuple(values.values()),
        )

    def tiles(self, collectives: Sequence[Collective], prefix: str) -> Iterator[TileSize]:
        for name in _TILES:
            given = [c.arguments[name] for c in collectives if name in c.arguments]
            if not given:
                continue
            shapes = [self.names.shape(g) for g in given]
            values = dict.fromkeys(
                " x ".join(map(str, s)) if s else _short(self.names.shown(g)) for s, g in zip(shapes, given, strict=True)
            )  # fmt: skip
            at = self.names.meant(given[0])
            yield TileSize(
                name=f"{prefix}{name}", values=tuple(values)[:_VALUES], line=at.line, basis="evaluated",
                file=self.file(at),
                used_as=tuple(dict.fromkeys(f"{name} of {c.template}: {squeeze(g.text)}"[:_LONG] for c, g in zip(collectives, given, strict=False))),
            )  # fmt: skip

    def stages(self, collectives: Sequence[Collective]) -> Iterator[BoundValue]:
        """The stages that are numbers; of several instances each with the one that it is of."""
        several = len(self.instances) > 1
        for one, (_, written) in zip(collectives, self.instances, strict=True):
            found, count = self._count(one)
            if found is None:
                continue
            if count is None and (chosen := re.search(r"StageCountAuto\w*", found.text)) is not None:
                self.notes.append(f"{chosen[0]}: as many stages as fit in shared memory; compile=true says how many.")
            elif count is not None:
                yield BoundValue(
                    value=str(count), origin="constant", line=found.line, when=squeeze(written.text) if several else "",
                    file=self.file(found),
                )  # fmt: skip

    def _count(self, one: Collective) -> tuple[Spelled | None, int | None]:
        """What says how many stages there are, and that number; None where it is not told."""
        spelled = one.arguments.get("StageCountType") or one.arguments.get("DispatchPolicy")
        if spelled is None:
            return None, None
        found = self.names.meant(spelled)
        if "StageCountType" not in one.arguments:
            listed = re.search(r"\bMainloop\w+\s*<", found.text)
            inner = split_arguments(found.text[listed.end() :]) if listed else []
            found = found.with_text(inner[0]) if inner else found
        return found, self.names.number(found)

    def products(self, collectives: Sequence[Collective]) -> Iterator[Instruction]:
        """What the mainloop multiplies with, as far as its class of operators says."""
        unit, given = (
            self._said(collectives, "OpClass"),
            [c.arguments["OpClass"] for c in collectives if "OpClass" in c.arguments],
        )
        if unit:
            at, kind = self.names.meant(given[0]), "tensor-core product (mma)" if "TensorOp" in unit else "product"
            held = self._said(collectives, "ElementAccumulator")
            yield Instruction(
                operation=kind, expression=f"{unit.rpartition('::')[2]}{f', sums in {held}' if held else ''}", line=at.line,
                file=self.file(at),
            )  # fmt: skip

    # ---- the tile

    def shape(self, collectives: Sequence[Collective]) -> tuple[int, int, int] | None:
        """m, n, k of the tile, where every instance has the same in numbers."""
        found = {
            self.names.shape(c.arguments["TileShape_MNK"]) if "TileShape_MNK" in c.arguments else None
            for c in collectives
        }
        if len(found) != 1 or (one := found.pop()) is None or len(one) != 3 or not all(isinstance(s, int) for s in one):
            return None
        m, n, k = one
        return (m, n, k) if isinstance(m, int) and isinstance(n, int) and isinstance(k, int) else None

    def _said(self, collectives: Sequence[Collective], name: str) -> str:
        """The one text that all instances give an argument; '' where they differ or give none."""
        found = {self.names.shown(c.arguments[name]) if name in c.arguments else "" for c in collectives}
        return found.pop() if len(found) == 1 else ""

    def sharing(self, collectives: Sequence[Collective]) -> int | None:
        """Thread blocks that work on one tile together; None where the builder decides."""
        arch, schedule = self._said(collectives, "ArchTag"), self._said(collectives, "KernelScheduleType")
        if not re.search(r"Sm10\d$", arch):
            return 1 if re.search(r"Sm\d+$", arch) or self._said(collectives, "DispatchPolicy") else None
        return 2 if re.search(r"2Sm", schedule) else 1 if re.search(r"1Sm", schedule) else None

    def levels(self, collectives: Sequence[Collective], shape: tuple[int, int, int] | None) -> Iterator[TileLevel]:
        if shape is None:
            return
        m, n, _ = shape
        shared = self.sharing(collectives)
        if shared is None:
            self.notes.append(
                "Whether one or two thread blocks work on a tile (1Sm, 2Sm) the builder decides; compile=true says it."
            )
            return
        at = self.names.meant(collectives[0].arguments["TileShape_MNK"])
        yield TileLevel(
            level="block", what="tile of the result", shape=(str(m // shared), str(n)), elements=str(m // shared * n), line=at.line,
            file=self.file(at), basis="evaluated",
            assumptions=("Two thread blocks share the tile along m (2Sm).",) if shared == 2 else (),
        )  # fmt: skip

    def num_tiles(self, shape: tuple[int, int, int] | None) -> str:
        """How many tiles a launch works on; empty where that is not one problem of known sizes."""
        problem = self.names.meant(self.spelled(self.operator.arguments[0], self.instances[0][0])).text
        sizes = self.names.shape(self.spelled(self.operator.arguments[0], self.instances[0][0]))
        if shape is None or "Group" in problem or self.convolves or sizes is None or len(sizes) not in (3, 4):
            return ""
        many = " * {L}" if len(sizes) != 3 else ""
        return f"cdiv({{M}}, {shape[0]}) * cdiv({{N}}, {shape[1]}){many}"

    def launches(self, shape: tuple[int, int, int] | None) -> Iterator[Launch]:
        """The adapters that launch it."""
        text = self.source.statements
        tiles = self.num_tiles(shape)
        for match in _ADAPTER.finditer(text):
            closing = matching_angle(text, match.end() - 1)
            if closing < 0 or split_arguments(text[match.end() : closing])[:1] != [self.operator.name]:
                continue
            start = max(text.rfind(c, 0, match.start()) for c in ";{}") + 1
            if not all(s.opening < match.start() < s.closing for s in self.operator.scopes):
                continue
            yield Launch(
                line=self.source.line(match.start()), kernel=f"device_kernel<{self.operator.name}>", num_tiles=tiles,
                expression=squeeze(text[start : closing + 1]),
                unresolved=("the grid is what the tile scheduler makes of the problem: get_grid_shape",),
            )  # fmt: skip

    def _element(self, collectives: Sequence[Collective], name: str) -> tuple[str, int | None]:
        """Type and bits of the elements of an operand."""
        text = self._said(collectives, name)
        given = [c.arguments[name] for c in collectives if name in c.arguments]
        widths = {self.names.bits(g) for g in given}
        return text, widths.pop() if len(widths) == 1 else None

    def _packed(self, collectives: Sequence[Collective]) -> bool:
        """Whether elements lie in shared memory as densely as in global memory: narrow ones of several formats are widened to bytes."""
        widths = [self._element(collectives, f"Element{name}")[1] or 0 for name in "AB"]
        arch, schedule = self._said(collectives, "ArchTag"), self._said(collectives, "KernelScheduleType")
        if arch.endswith("Sm103"):  # its builders cut k anew
            return False
        return min(widths) >= 8 or (widths == [4, 4] and re.search(r"(?<!f6)f4", schedule) is not None)

    def shared(self, collectives: Sequence[Collective], shape: tuple[int, int, int] | None) -> Iterator[SharedArray]:
        """Where A and B wait for the products: a stage of each, as many as there are stages."""
        sparse = "Sparse" in self._said(collectives, "OpClass")
        if shape is None or self.sharing(collectives) != 1 or sparse or not self._packed(collectives):
            return
        m, n, k = shape
        counts = {self._count(one)[1] for one in collectives}
        count = str(next(iter(counts))) if len(counts) == 1 and None not in counts else "Stages"
        for name, rows in (("A", m), ("B", n)):
            text, bits = self._element(collectives, f"Element{name}")
            at = next((c.arguments[f"Element{name}"] for c in collectives if f"Element{name}" in c.arguments), None)
            if bits is None or at is None:
                continue
            size = rows * k * bits // 8
            yield SharedArray(
                name=f"smem_{name}", type=text, dimensions=(str(rows), str(k), count), line=at.line, basis="evaluated",
                file=self.file(at),
                bytes=size * int(count) if count.isdigit() else None, formula=f"{size} * {count}",
            )  # fmt: skip

    def cost(
        self, mainloops: Sequence[Collective], epilogues: Sequence[Collective], shape: tuple[int, int, int] | None
    ) -> Cost | None:
        """Of one tile along all of k: products exactly, bytes of A and B as the mainloop loads them, the result's as it is stored."""
        if shape is None or "Sparse" in self._said(mainloops, "OpClass") or self.convolves:
            return None  # a convolution goes over k for each place of its filter
        m, n, k = shape
        (_, a), (_, b), (_, d) = (
            self._element(mainloops, "ElementA"), self._element(mainloops, "ElementB"), self._element(epilogues, "ElementD"),
        )  # fmt: skip
        turns = f"cdiv({{K}}, {k})"
        products = f"{2 * m * n * k} * {turns}"
        operands = "" if a is None or b is None else str((m * a + n * b) * k // 8)
        read = f"{operands} * {turns}" if operands else ""
        written = "" if d is None else str(m * n * d // 8)
        tiles, shared = self.num_tiles(shape), self.sharing(mainloops)
        source_c = self._said(epilogues, "ElementC")
        lacking = ["arithmetic of the epilogue"]
        if source_c != "void":
            lacking.append("the epilogue's source C, read where beta is not 0")
        scaled = (
            ("OpClass", "BlockScaled"),
            ("GmemLayoutA", "tuple<"),
            ("ElementA", "tuple<"),
            ("GmemLayoutB", "tuple<"),
        )
        if any(mark in self._said(mainloops, name) for name, mark in scaled):
            lacking.append("scales and zero points: their bytes, and what multiplies by them")
        if re.search(r"FastF(?:P)?32", self._said(mainloops, "KernelScheduleType")):
            lacking.append("that each product of floats is several of narrower parts")
        if a != b:
            lacking.append("conversions of the narrower operand")
        if not written:
            lacking.append("bytes of the result")
        of_block = {"flops": products, "matmul_flops": products, "read_bytes": read, "write_bytes": written}
        if shared != 1:  # of a tile that two thread blocks share each has half; where the builder decides, nobody knows
            of_block = {name: f"{text} / 2" if text and shared else "" for name, text in of_block.items()}
        texts = {
            **of_block,
            **({f"launch_{name}": f"{text} * {tiles}" if text else "" for name, text in (
                ("flops", products), ("matmul_flops", products), ("read_bytes", read), ("write_bytes", written))} if tiles else {}),
        }  # fmt: skip
        texts = {name: text for name, text in texts.items() if text}
        names = [n for n in ("M", "N", "K", "L") if any(f"{{{n}}}" in text for text in texts.values())]
        numbers, unbound = evaluated_at(texts, names, self.sizes)
        at = self.names.meant(mainloops[0].arguments["TileShape_MNK"])
        return Cost(
            flops=texts.get("flops", ""), matmul_flops=texts.get("matmul_flops", ""), read_bytes=texts.get("read_bytes", ""),
            write_bytes=texts.get("write_bytes", ""),
            launch_flops=texts.get("launch_flops", ""), launch_matmul_flops=texts.get("launch_matmul_flops", ""),
            launch_read_bytes=texts.get("launch_read_bytes", ""), launch_write_bytes=texts.get("launch_write_bytes", ""),
            stage_bytes=str(int(operands) // shared) if operands and shared and self._packed(mainloops) else "",
            at_least=tuple(n for n in texts if not n.endswith("matmul_flops")), not_counted=tuple(lacking),
            lines=(CostLine(line=at.line, operation=f"product of a tile, {m} x {n} x {k} a turn", flops=products, bytes=read, basis="evaluated",
                            file=self.file(at)),),
            variables={"{M}, {N}, {K}": "rows of A, columns of B, and what is summed over"}
            | ({"{L}": "products of that size"} if "{L}" in tiles else {}),
            assumptions=("Tiles count whole: what lies beyond the problem is computed as zeros, and is not fetched.",),
            unbound=unbound, evaluated=numbers,
        )  # fmt: skip

    def left(self) -> Iterator[str]:
        """What no instance of this repository settles."""
        open_ = [c.name for c in self.parameters() if not c.values]
        if open_:
            yield f"{', '.join(open_)}: what uses of {self.operator.within[-1].name} give, the files around do not tell."
        problem = self.names.meant(self.spelled(self.operator.arguments[0], self.instances[0][0])).text
        if "Group" in problem:
            yield "A launch takes a group of problems: tiles and costs are of each, those of a launch are their sum."
        yield "Matrix instruction, threads, stages left to the builder and swizzles are template code of CUTLASS: compile=true asks the compiler."


def _placed(found: Spelled, arguments: Sequence[str]) -> Iterator[Spelled]:
    """Arguments of a statement, each where it stands in it."""
    text, at = found.source.statements, found.at
    for argument in arguments:
        written = re.compile(r"\s*".join(map(re.escape, re.findall(r"\w+|\S", argument)))).search(text, at)
        at = written.start() if written is not None else at
        yield replace(found, text=argument, at=at, parameter="")
        at = written.end() if written is not None else at


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


__all__ = ["describe_cutlass"]
