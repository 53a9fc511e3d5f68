"""Kernels that are classes of a repository's own: `cutlass::device_kernel<Class>` runs the class' `operator()(Params const&, char*)`.

What stands in that operator is read as the body of any CUDA kernel is. The class says the rest: its constants and aliases, followed
for every use of it, `get_grid_shape` and `get_block_shape`, from which launchers take grid and block.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from opscope_schemas.tiling import BoundValue, Constexpr, KernelTiling, Launch, TileSize

from opscope_tools.kernels.cuda.description import CudaContext, described
from opscope_tools.kernels.cuda.launch.cutlass import KERNEL, LAUNCHERS
from opscope_tools.kernels.cuda.names.definitions import DEVICE, Definition
from opscope_tools.kernels.cuda.names.values import Type, Value, named_type, pointer
from opscope_tools.kernels.cuda.source_text import CSource, matching, matching_angle, split_arguments, squeeze
from opscope_tools.kernels.cutlass.definitions import Scope, scopes
from opscope_tools.kernels.cutlass.instances import instances
from opscope_tools.kernels.cutlass.names import Names, Spelled, specialised
from opscope_tools.kernels.records import KernelRef, LaunchRef

_CALLED = re.compile(r"\boperator\s*\(\s*\)\s*\(")
_ENTRY = re.compile(
    r"^(?:const\s+)?(?:typename\s+)?(?:\w+::)*Params\b[^,]*&[^,]*,\s*(?:\[\[[\w:, ]*\]\]\s*)?char\s*\*\s*\w*$"
)
_BODY = re.compile(r"[^;{}()]*\{")
_CONSTANT = re.compile(
    r"\bstatic\s+(?:constexpr|const)\s+(?:static\s+)?(?:const\s+)?([\w:]+(?:\s+[\w:]+)*?)\s+(\w+)\s*=\s*([^;]+);"
)
_ALIAS = re.compile(r"\busing\s+(\w+)\s*=\s*([^;]+);")
_RETURNED = re.compile(r"\bdim3\s*(?:\w+\s*)?[({]([^;]*?)[)}]\s*;|\breturn\s+([^;]+);")
_TILE = re.compile(r"(?i)tile|cluster|block")
_LAUNCHED = re.compile(rf"\b(?:{KERNEL}|kernel_launch)\s*<")
_STAGES = re.compile(r"(?i)^k?(?:num_?)?stages?$")
_VALUES, _LONG = 24, 200
#: files beside those around a class that are looked through for uses of it
_FILES = 80


@dataclass(frozen=True)
class KernelClass:
    """A class with such an operator."""

    scopes: tuple[Scope, ...]
    definition: Definition

    @property
    def scope(self) -> Scope:
        """Of the class itself."""
        return self.scopes[-1]


def kernel_classes(source: CSource) -> Iterator[KernelClass]:
    """The classes of a file whose operator takes its parameters and shared memory."""
    text, seen = source.statements, set[int]()
    for called in _CALLED.finditer(text):
        closing = matching(text, called.end() - 1)
        parameters = squeeze(text[called.end() : closing]) if closing > 0 else ""
        body = _BODY.match(text, closing + 1) if _ENTRY.match(parameters) else None
        start = max(text.rfind(c, 0, called.start()) for c in ";{}") + 1
        if body is None or not any(mark in text[start : called.start()] for mark in DEVICE):
            continue
        around = tuple(scopes(source, called.start()))
        if around and around[-1].kind == "class" and around[-1].opening not in seen:  # overloads are one kernel
            seen.add(around[-1].opening)
            name, opening = around[-1].name, body.end() - 1
            yield KernelClass(around, Definition(
                name=name, start=around[-1].heading, name_position=called.start(), template=", ".join(around[-1].parameters),
                parameters=parameters, parameters_position=called.end(), attributes=squeeze(text[start : called.start()]), body=opening,
                end=source.block_end(opening),
            ))  # fmt: skip


def may_be_class(data: bytes) -> bool:
    """Whether a file may hold such a class."""
    return b"operator()" in data and b"Params" in data and b"char" in data


def class_references(source: CSource) -> Iterator[KernelRef]:
    """The classes of a file as kernels, from the line of the class on."""
    for one in kernel_classes(source):
        text, heading = source.statements, one.scope.heading
        first = re.compile(r"\s*").match(text, heading)
        yield KernelRef(
            name=one.scope.name, language="cutlass", role="kernel", file=source.path, entry="operator()", line=source.line(first.end() if first else heading),
            end_line=source.line(one.scope.closing),
        )  # fmt: skip


def class_at(reference: KernelRef, source: CSource) -> KernelClass | None:
    """The class of a kernel that the inventory holds; None where an operator of another kind stands there."""
    return next(
        (one for one, made in zip(kernel_classes(source), class_references(source), strict=True) if made == reference),
        None,
    )


def describe_class(
    reference: KernelRef, one: KernelClass, launches: Sequence[LaunchRef], context: CudaContext, given: Mapping[str, object],
    sizes: Mapping[str, int],
) -> KernelTiling:  # fmt: skip
    """Everything source says about it."""
    source = context.load(reference.file)
    if source is None:
        raise reference.moved()
    return _Class(reference, one, source, launches, context).made(given, sizes)


class _Class:
    def __init__(
        self,
        reference: KernelRef,
        one: KernelClass,
        source: CSource,
        launches: Sequence[LaunchRef],
        context: CudaContext,
    ) -> None:
        self.reference, self.one, self.source, self.context = reference, one, source, context
        self.launched = list(launches)
        self.names = Names(self._sources())
        #: names by which what is around the class may be spelled before its own
        self.spaces = frozenset(s.name.rpartition("::")[2] for s in one.scopes[:-1])
        #: which of several of a name a use means is not worked out
        one_of_several = specialised(source, one.scope.name)
        uses = (
            () if one_of_several or not one.scope.parameters else instances(self.names, source, one.scope, self.spaces)
        )
        self.instances = list(uses) or [({}, Spelled("", source, one.scope.heading))]

    def _sources(self) -> list[CSource]:
        """The files around, those of launches, and those of the folder that holds the class' own."""
        found = {source.path: source for source in self.context.around(self.reference.file)} or {
            self.source.path: self.source
        }
        folder = self.reference.file.rpartition("/")[0].rpartition("/")[0]
        beside = [path for path in self.context.files if path.startswith(f"{folder}/" if folder else "")]
        for path in dict.fromkeys([*(launch.file for launch in self.launched), *beside[:_FILES]]):
            source = self.context.load(path)
            if source is not None:
                found.setdefault(path, source)
        return list(found.values())

    def made(self, given: Mapping[str, object], sizes: Mapping[str, int]) -> KernelTiling:
        definition = self.one.definition
        shared = Value(
            pointer(Type("int", "char", "1")),
            space="shared",
            origin=(definition.parameters.rpartition("*")[2].strip(),),
        )
        body = described(self.reference, definition, self.source, (), self.context, given, sizes, known={1: shared})
        parameters = tuple(self.parameters(body.constexpr))
        constants = tuple(self.constants())
        grid = self.nearest(list(self.launches()))
        tiles = {t.name: t for t in (*body.tile, *self.tiles())}
        warps = {one.value: one for one in (self.warps(launch) for launch in grid if launch.block)}
        notes = [n for n in body.notes if not (grid and n.startswith("No launch of it"))]
        open_ = [p.name for p in parameters if not p.values]
        if open_:
            notes.append(f"{', '.join(open_)}: what uses of {self.reference.name} give, the files around do not tell.")
        return body.model_copy(update={
            "language": "cutlass", "line": self.reference.line, "constexpr": (*parameters, *constants), "tile": tuple(tiles.values()),
            "grid": grid, "num_tiles": "", "num_warps": tuple(warps.values()), "cost": None,
            "num_stages": tuple(v for c in (*parameters, *constants) if _STAGES.search(c.name) for v in c.values),
            "notes": (*notes, "Costs are not told: what its collectives load and multiply stands in their own classes."),
        })  # fmt: skip

    # ---- parameters and constants

    def parameters(self, read: Sequence[Constexpr]) -> Iterator[Constexpr]:
        """Template parameters, with what the uses give them."""
        for parameter in read:
            values: dict[str, BoundValue] = {}
            for bound, written in self.instances:
                if parameter.name in bound:
                    value = self.value(bound[parameter.name], written)
                    values.setdefault(value.value, value)
            twice = re.search(rf"\b{parameter.name}\b", parameter.default)  # branches of an `#if` that each declare it
            default = "" if twice else parameter.default
            yield parameter.model_copy(update={"default": default, "values": tuple(values.values())[:_VALUES]})

    def value(self, spelled: Spelled, at: Spelled) -> BoundValue:
        file = "" if at.source.path == self.reference.file else at.source.path
        return BoundValue(
            value=_short(self.names.shown(spelled)), origin="instantiation", line=at.line, file=file, basis="evaluated"
        )

    @cached_property
    def members(self) -> list[tuple[int, str, str, str]]:
        """(position, type, name, text) of the class' own constants and aliases, `using` as the type of these."""
        scope, text = self.one.scope, self.source.statements
        inner = [(o, c) for o, c in self.source.all_blocks if scope.opening < o and c < scope.closing]
        found = [(m.start(), m[1], m[2], squeeze(m[3])) for m in _CONSTANT.finditer(text, scope.opening, scope.closing)]
        found += [
            (m.start(), "using", m[1], squeeze(m[2])) for m in _ALIAS.finditer(text, scope.opening, scope.closing)
        ]
        return sorted(one for one in found if not any(o < one[0] < c for o, c in inner))

    def constants(self) -> Iterator[Constexpr]:
        """Its static constants: as numbers where every step to them is written, else as the text that says them."""
        for at, kind, name, text in self.members:
            if kind != "using":
                values = dict.fromkeys(self.constant(name, bound) for bound, _ in self.instances)
                told = tuple(
                    BoundValue(value=str(value), origin="constant", line=self.source.line(at), basis="evaluated")
                    for value in values if value is not None
                )  # fmt: skip
                yield Constexpr(
                    name=name, kind="constexpr", type=kind, default=text, line=self.source.line(at), values=told
                )

    def constant(self, name: str, bound: Mapping[str, Spelled]) -> int | None:
        """What a constant of the class is in one use; of several in branches of an `#if` nothing is told."""
        found = [one for one in self.members if one[2] == name]
        if len(found) != 1:
            return None
        at, kind, _, text = found[0]
        return _held(self.number(text, at, bound), kind)

    def number(self, text: str, at: int, bound: Mapping[str, Spelled]) -> int | None:
        return self.names.number(Spelled(text, self.source, at, bound))

    def tiles(self) -> Iterator[TileSize]:
        for at, kind, name, text in self.members:
            if kind != "using" or not _TILE.search(name):
                continue
            values: dict[str, None] = {}
            for bound, _ in self.instances:
                shape = self.names.shape(Spelled(text, self.source, at, bound))
                if shape is not None:
                    values[" x ".join(map(str, shape))] = None
            if values:
                yield TileSize(
                    name=name,
                    values=tuple(values)[:_VALUES],
                    line=self.source.line(at),
                    basis="evaluated",
                    used_as=(text[:160],),
                )

    # ---- launches

    def returned(self, function: str) -> tuple[str, int]:
        """What a function of the class returns, and its line; empty where it has none."""
        scope, text = self.one.scope, self.source.statements
        head = re.compile(rf"\bdim3\s+(?:const\s+)?{function}\s*\([^{{}}]*?\)\s*(?:const\s*)?\{{").search(
            text, scope.opening, scope.closing
        )
        if head is None:
            return "", 0
        start, end = head.end() - 1, self.source.block_end(head.end() - 1)
        if len(re.findall(r"\breturn\b", text[start:end])) != 1:  # which of several is not worked out
            return "", 0
        said = _RETURNED.search(text, start, end)
        return (squeeze(said[1] or said[2]), self.source.line(said.start())) if said is not None else ("", 0)

    def block(self) -> tuple[str, ...]:
        """Threads along x, y and z: numbers where all uses agree on one."""
        said, _ = self.returned("get_block_shape")
        listed = re.fullmatch(r"(?:dim3\s*)?[({](.*)[)}]", said)
        sides = [squeeze(part) for part in split_arguments(listed[1] if listed else said)] if said else []
        told = []
        for side in sides:
            own = any(side == name for _, _, name, _ in self.members)
            values = {
                self.constant(side, bound) if own else self.number(side, self.one.scope.closing - 1, bound)
                for bound, _ in self.instances
            }
            told.append(str(values.pop()) if len(values) == 1 and None not in values else side)
        return (*told, "1", "1")[:3] if told else ()

    def launches(self) -> Iterator[Launch]:
        """The launches of `device_kernel` whose operator this class is, or may be where a template leaves it to its callers."""
        block, (grid, at) = self.block(), self.returned("get_grid_shape")
        said = (f"get_grid_shape = {grid} ({self.reference.file}:{at})",) if grid else ()
        shared = self.shared()
        for launch in self.launched:
            source = self.context.load(launch.file)
            for start, first, last, form in self.context.launches(source, launch.line) if source is not None else ():
                named = self.operator(source, start) if source is not None else None
                if source is None or named is None:
                    continue
                name, when = named
                around = source.function_around(start)
                given = _given(source, first, last, form, around[1] if around else 0)
                threads = self.threads(given.get("block", ""), source, start) or block
                numbers = [int(side) for side in threads if side.isdigit()]
                yield Launch(
                    line=launch.line, file="" if launch.file == self.reference.file else launch.file, function=around[3] if around else "",
                    kernel=f"{KERNEL}<{name}>", expression=given.get("grid", ""), block=threads, cluster=given.get("cluster", ""),
                    threads=math.prod(numbers) if len(numbers) == 3 else None, shared_memory=shared or given.get("shared", ""), definitions=said,
                    stream=given.get("stream", ""), when=when,
                    unresolved=("the grid is what get_grid_shape makes of the problem",) if grid else (),
                )  # fmt: skip

    def shared(self) -> str:
        """Bytes of shared memory as the class says them: a number where all uses agree on one, else the text."""
        for _, _, name, text in self.members:
            if name == "SharedStorageSize":
                values = {self.constant(name, bound) for bound, _ in self.instances}
                return str(values.pop()) if len(values) == 1 and None not in values else text
        return ""

    def threads(self, text: str, source: CSource, at: int) -> tuple[str, ...]:
        """A block that is one number of threads, or a constant that comes to one."""
        value = self.names.number(Spelled(text, source, at)) if text else None
        return (str(value), "1", "1") if value is not None else ()

    def nearest(self, found: Sequence[Launch]) -> tuple[Launch, ...]:
        """Those that name the class; where none does, of those that leave their operator to callers the ones of the nearest folders."""
        named = tuple(one for one in found if "left to callers" not in one.when)
        own = self.reference.file.split("/")
        shared = [_common((one.file or self.reference.file).split("/"), own) for one in found]
        return named or tuple(one for one, count in zip(found, shared, strict=True) if count == max(shared))

    def operator(self, source: CSource, at: int) -> tuple[str, str] | None:
        """The operator that a launch names last in its function, and when it is this class ('': always); None where it is another."""
        around, own = source.function_around(at), self.reference.name
        end = source.statements.find(";", at)
        for match in reversed(list(_LAUNCHED.finditer(source.statements, around[0] if around else 0, end))):
            closing = matching_angle(source.statements, match.end() - 1)
            if closing < 0:
                continue
            inner = squeeze(source.statements[match.end() : closing])
            meant = self.names.meant(Spelled(inner, source, match.start()))
            named = re.match(rf"(?:typename\s+)?(?:::)?(?:\w+::)*?(?:(\w+)::)?{own}\s*(?:<|$)", meant.text)
            if named is not None:
                return None if named[1] and named[1] not in self.spaces else (inner, "")
            if re.search(rf"\b{own}\b", meant.text):
                return inner, f"{inner} comes to {own}: {_short(squeeze(meant.text))}"
            return (inner, f"{inner}, which is left to callers, is {own}") if meant.parameter else None
        return None

    def warps(self, launch: Launch) -> BoundValue:
        _, line = self.returned("get_block_shape")
        return BoundValue(
            value=str(-(-launch.threads // 32)) if launch.threads else f"cdiv({' * '.join(launch.block)}, 32)", origin="block",
            line=line or launch.line, file="" if line else launch.file, basis="evaluated", assumptions=("a warp is 32 threads",),
        )  # fmt: skip


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many folders two paths begin with alike."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(other))


def _held(value: int | None, kind: str) -> int | None:
    """What a constant of that type holds; None where the value is none that the type has: conversions are not worked out."""
    of = named_type(kind)
    if value is None or of is None or not of.size.isdigit() or of.kind != "int":
        return value
    if kind == "bool":
        return value if value in (0, 1) else None
    bits, unsigned = 8 * int(of.size), re.match(r"u|size_t", kind) is not None
    low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return value if low <= value < high else None


def _short(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _given(source: CSource, first: int, last: int, form: str, function: int) -> dict[str, str]:
    """What a launch is given, by name; of launches on clusters the fields of the structure that is made before."""
    code = source.code
    given = [squeeze(part) for part in split_arguments(code[first:last])]
    if form == "<<<>>>":
        return dict(zip(("grid", "block", "shared", "stream"), given, strict=False))
    name = form.removeprefix("cutlass::")
    if name == "launch_kernel_on_cluster" and given:
        made = re.compile(rf"\bClusterLaunchParams\s+{re.escape(given[0])}\s*[{{(]").search(code, function, first)
        closing = matching(code, made.end() - 1) if made is not None else -1
        fields = split_arguments(code[made.end() : closing]) if made is not None and closing > 0 else []
        return dict(zip(("grid", "block", "cluster", "shared", "stream"), map(squeeze, fields), strict=False))
    places = zip(("grid", "block", "shared", "stream", "cluster"), LAUNCHERS.get(name, ()), strict=False)
    return {what: given[place] for what, place in places if place is not None and place < len(given)}


__all__ = ["KernelClass", "class_at", "class_references", "describe_class", "kernel_classes", "may_be_class"]
