"""Kernels that are classes of a repository's own: `cutlass::device_kernel<Class>` runs the class' `operator()(Params const&, char*)`.

What stands in that operator is read as the body of any CUDA kernel is. The class says the rest: its constants and aliases, followed
for every use of it, `get_grid_shape` and `get_block_shape`, from which launchers take grid and block.
"""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from opscope_schemas.tiling import BoundValue, Constexpr, KernelTiling, Launch, TileSize

from opscope_tools.kernels.cuda.declarations import aliases, constants
from opscope_tools.kernels.cuda.description import CudaContext, described, warps
from opscope_tools.kernels.cuda.launch.cutlass import KERNEL
from opscope_tools.kernels.cuda.launch.sites import read_sites
from opscope_tools.kernels.cuda.names.definitions import Definition
from opscope_tools.kernels.cuda.names.values import Type, Value, named_type, pointer
from opscope_tools.kernels.cuda.source_text import CSource, matching, split_arguments, squeeze
from opscope_tools.kernels.cutlass.definitions import Scope, scopes
from opscope_tools.kernels.cutlass.instances import INSTANCES, instances
from opscope_tools.kernels.cutlass.names import Names, Spelled, defines, specialised
from opscope_tools.kernels.records import KernelRef, LaunchRef

_CALLED = re.compile(r"\boperator\s*\(\s*\)\s*\(")
_ENTRY = re.compile(
    r"^(?:const\s+)?(?:typename\s+)?(?:\w+::)*Params\b[^,]*&[^,]*,\s*(?:\[\[[\w:, ]*\]\]\s*)?char\s*\*\s*\w*$"
)
_DEVICE = re.compile(r"\b(?:CUTLASS|CUTE)_(?:HOST_)?DEVICE\b|__device__")
#: text whose value conversions decide, which are not worked out
_CONVERTS = re.compile(
    r"\b(?:float|double|unsigned|bool|char|u?int\d*_t)\s*[({]|\bstatic_cast\b|\(\s*(?:float|double|unsigned|bool|char|u?int\d+_t)\s*\)|\d[uU]|\d\.|^\W*$"
)
_BODY = re.compile(r"[^;{}()]*\{")
_RETURNED = re.compile(r"\bdim3\s*(?:\w+\s*)?[({]([^;]*?)[)}]\s*;|\breturn\s+([^;]+);")
_TILE = re.compile(r"(?i)tile|cluster|block")
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
        if body is None or _DEVICE.search(text, start, called.start()) is None:
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
    return (_reference(one, source) for one in kernel_classes(source))


def _reference(one: KernelClass, source: CSource) -> KernelRef:
    head = re.compile(r"\s*").match(source.statements, one.scope.heading)
    return KernelRef(
        name=one.scope.name, language="cutlass", role="kernel", file=source.path, entry="operator()",
        line=source.line(head.end() if head is not None else one.scope.heading), end_line=source.line(one.scope.closing),
    )  # fmt: skip


def class_at(reference: KernelRef, source: CSource) -> KernelClass | None:
    """The class of a kernel that the inventory holds; None where an operator of another kind stands there."""
    return next((one for one in kernel_classes(source) if _reference(one, source) == reference), None)


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
        #: other files that define a class of the name
        self.definers = [
            other.path for other in self.names.sources if other is not source and defines(other, one.scope.name)
        ]
        near = [(self.nearer(use[1].source.path), use) for use in uses]
        found: list[tuple[Mapping[str, Spelled], Spelled]] = [use for mine, use in near if mine]
        if not found or len(near) == INSTANCES or None in [mine for mine, _ in near]:  # there may be others
            found.append(({}, Spelled("", source, one.scope.heading)))
        self.instances = found

    def nearer(self, path: str) -> bool | None:
        """Whether a file that names the class means this one rather than a namesake of another file, by their folders; None: either."""
        if path == self.reference.file or not self.definers:
            return True
        mine, others = (
            self._shared(path, self.reference.file),
            max(self._shared(path, other) for other in self.definers),
        )
        return None if mine == others and path not in self.definers else mine > others

    @staticmethod
    def _shared(one: str, other: str) -> int:
        return _common(one.split("/")[:-1], other.split("/")[:-1])

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
        notes = [n for n in body.notes if not (grid and n.startswith("No launch of it"))]
        if self.one.scope.parameters:
            notes.append(
                "Values are of the uses in the files around and in those that hold kernels or launches: others may have others."
            )
        open_ = [p.name for p in parameters if not p.values]
        if open_:
            notes.append(f"{', '.join(open_)}: what uses of {self.reference.name} give, the files around do not tell.")
        return body.model_copy(update={
            "language": "cutlass", "line": self.reference.line, "constexpr": (*parameters, *constants), "tile": tuple(tiles.values()),
            "grid": grid, "num_tiles": "", "num_warps": tuple(warps(grid, definition, self.source)), "cost": None,
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
    def inner(self) -> list[tuple[int, int]]:
        """The blocks of the class that stand in no other: functions', other classes'."""
        scope, found = self.one.scope, list[tuple[int, int]]()
        for opening, closing in self.source.all_blocks:
            if scope.opening < opening and closing < scope.closing and not (found and closing < found[-1][1]):
                found.append((opening, closing))
        return found

    def nested(self, at: int) -> bool:
        index = bisect.bisect_right(self.inner, (at, at)) - 1
        return index >= 0 and self.inner[index][0] < at < self.inner[index][1]

    @cached_property
    def members(self) -> list[tuple[int, str, str, str]]:
        """(position, type, name, text) of the class' own constants and aliases, `using` as the type of these."""
        scope = self.one.scope
        static = [one for one in constants(self.source) if one.constant and one.type and "static" in one.qualifiers]
        found = [
            (one.position, one.type, one.name, one.text)
            for one in (*static, *aliases(self.source))
            if scope.opening <= one.start < scope.closing
        ]
        return sorted(one for one in found if not self.nested(one[0]))

    @cached_property
    def named(self) -> dict[str, list[tuple[int, str, str, str]]]:
        """The members by name."""
        found: dict[str, list[tuple[int, str, str, str]]] = {}
        for one in self.members:
            found.setdefault(one[2], []).append(one)
        return found

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
        found = self.named.get(name, [])
        if len(found) != 1:
            return None
        at, kind, _, text = found[0]
        written = self.source.original[at : self.source.statements.find(";", at)]
        kinds = {kind for word in re.findall(r"\w+", text) for _, kind, _, _ in self.named.get(word, [])}
        converts = _CONVERTS.search(re.sub(r"sizeof\s*\([^()]*\)", "", text)) or kinds & {"float", "double"}
        if converts or "'" in written or len(split_arguments(text)) > 1:
            return None
        return _held(self.number(text, at, bound), kind)

    def number(self, text: str, at: int, bound: Mapping[str, Spelled]) -> int | None:
        return self.names.number(Spelled(text, self.source, at, bound))

    def tiles(self) -> Iterator[TileSize]:
        for at, kind, name, text in self.members:
            if kind != "using" or not _TILE.search(name) or len(self.named[name]) > 1:
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

    def returned(self, function: str) -> tuple[str, str, int]:
        """The body of a function of the class that returns one thing, what it returns, and the line; empty where there are several."""
        scope, text = self.one.scope, self.source.statements
        pattern = re.compile(rf"\bdim3\s+(?:const\s+)?{function}\s*\([^{{}}]*?\)\s*(?:const\s*)?\{{")
        heads = [m for m in pattern.finditer(text, scope.opening, scope.closing) if not self.nested(m.start())]
        if len(heads) != 1:
            return "", "", 0
        start, end = heads[0].end(), self.source.block_end(heads[0].end() - 1)
        body = text[start:end]
        if len(re.findall(r"\breturn\b", body)) != 1:
            return "", "", 0
        last = re.search(r"\breturn\s+([^;]+);\s*$", body)
        named = re.fullmatch(r"\w+", last[1].strip()) if last is not None else None
        if last is None or named is None:
            return (
                squeeze(body),
                squeeze(last[1]) if last is not None else "",
                self.source.line(start + last.start()) if last else 0,
            )
        made = list(re.finditer(rf"\bdim3\s+(?:const\s+)?{named[0]}\s*[({{]([^;]*)[)}}]\s*;", body))
        changed = re.search(rf"\b{named[0]}\s*(?:\.\s*[xyz]\s*)?[-+*/%|&^]?=(?!=)", body)
        if len(made) != 1 or changed is not None:
            return squeeze(body), named[0], self.source.line(start + last.start())
        return squeeze(body), squeeze(made[0][1]), self.source.line(start + made[0].start())

    def block(self) -> tuple[str, ...]:
        """Threads along x, y and z: numbers where all uses agree on one; empty where the function does more than return them."""
        body, said, _ = self.returned("get_block_shape")
        plain = re.fullmatch(r"(?:dim3(?: const)? (\w+) ?[({][^;]*[)}]; ?)?return [^;]+;", body)
        if plain is None:
            return ()
        listed = re.match(r"(?:dim3\s*)?([({])", said)
        if listed is not None and matching(said, listed.end() - 1) == len(said) - 1:
            said = said[listed.end() : -1]
            sides = split_arguments(said)
        elif plain[1]:
            sides = split_arguments(said)
        else:
            sides = [said]
        told = []
        for side in map(squeeze, sides):
            values = {self.side(side, bound) for bound, _ in self.instances}
            if (len(values) != 1 or None in values) and not re.fullmatch(r"\w+", side):
                return ()
            told.append(str(values.pop()) if len(values) == 1 and None not in values else side)
        return (*told, "1", "1")[:3] if told else ()

    def side(self, text: str, bound: Mapping[str, Spelled]) -> int | None:
        return (
            self.constant(text, bound) if text in self.named else self.number(text, self.one.scope.closing - 1, bound)
        )

    def launches(self) -> Iterator[Launch]:
        """The launches of `device_kernel` whose operator this class is, or may be where a template leaves it to its callers."""
        _, grid, at = self.returned("get_grid_shape")
        said = (f"get_grid_shape = {grid} ({self.reference.file}:{at})",) if grid else ()
        kernel = self.reference.model_copy(update={"name": KERNEL})
        for reference in self.launched:
            source = self.context.load(reference.file)
            places = self.context.launches(source, reference.line) if source is not None else []
            for launch in (site.launch for site in read_sites(reference, kernel, self.context)):
                spelled = re.fullmatch(rf"(?:\w+::)*{KERNEL}<(.*)>", launch.kernel)
                if source is None or spelled is None or not places:
                    continue
                when = self.meant(Spelled(spelled[1], source, places[0][0]))
                if when is None:
                    continue
                block = self.given_block(launch, source, places[0][0])
                numbers = [int(side) for side in block if side.isdigit()]
                update: dict[str, object] = {
                    "when": when,
                    "block": block,
                    "threads": math.prod(numbers) if len(numbers) == 3 else None,
                }
                if re.fullmatch(r"(?:\w+::)*SharedStorageSize", launch.shared_memory):
                    update["shared_memory"] = self.shared()
                unresolved = tuple(one for one in launch.unresolved if "get_block_shape" not in one)
                if said and any("get_grid_shape" in one for one in launch.dimensions):
                    unresolved = ("the grid is what get_grid_shape makes of the problem",)
                    update |= {"dimensions": (), "num_tiles": "", "definitions": said}
                yield launch.model_copy(update={**update, "unresolved": unresolved})

    def given_block(self, launch: Launch, source: CSource, at: int) -> tuple[str, ...]:
        """The class' own block where the launch asks it, else what the launch gives, constants as numbers."""
        if any("get_block_shape" in side for side in launch.block):
            return self.block()
        told = [self.names.number(Spelled(side, source, at)) for side in launch.block]
        sides = [side if number is None else str(number) for side, number in zip(launch.block, told, strict=True)]
        return (*sides, "1", "1")[:3] if sides else ()

    def shared(self) -> str:
        """Bytes of shared memory as the class says them: a number where all uses agree on one, else the text."""
        found = self.named.get("SharedStorageSize", [])
        values = {self.constant("SharedStorageSize", bound) for bound, _ in self.instances}
        if len(values) == 1 and None not in values:
            return str(values.pop())
        return found[0][3] if len(found) == 1 else ""

    def nearest(self, found: Sequence[Launch]) -> tuple[Launch, ...]:
        """Those that name the class; where none does, of those that leave their operator to callers the ones of the nearest folders."""
        named = tuple(one for one in found if "left to callers" not in one.when)
        own = self.reference.file.split("/")
        shared = [_common((one.file or self.reference.file).split("/"), own) for one in found]
        return named or tuple(one for one, count in zip(found, shared, strict=True) if count == max(shared))

    def meant(self, operator: Spelled) -> str | None:
        """When the operator of a launch is this class ('': always); None where it is another."""
        meant, own = self.names.meant(operator), self.reference.name
        named = re.match(rf"(?:typename\s+)?(?:::)?(?:\w+::)*?(?:(\w+)::)?{own}\s*(?:<|$)", meant.text)
        if named is not None:
            mine = self.nearer(operator.source.path)
            if mine is False or (named[1] and named[1] not in self.spaces):
                return None
            return f"{operator.text} is this {own} of several" if mine is None or specialised(self.source, own) else ""
        if re.search(rf"\b{own}\b", meant.text):
            return f"{operator.text} comes to {own}: {_short(squeeze(meant.text))}"
        return f"{operator.text}, which is left to callers, is {own}" if meant.parameter else None


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


__all__ = ["KernelClass", "class_at", "class_references", "describe_class", "kernel_classes", "may_be_class"]
