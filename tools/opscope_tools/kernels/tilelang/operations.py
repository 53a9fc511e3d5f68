"""The operations of TileLang's language as an abstract run sees them: what they move, multiply and make room for.

`Operations.operate` answers a call by its name: a method `op_NAME` where it moves or computes, else the tables. Statements
and expressions around the calls are those of run.py.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from opscope_schemas.formula import Formula

from opscope_tools.kernels.host.evaluate import Scope
from opscope_tools.kernels.host.worlds import UnresolvedError
from opscope_tools.kernels.run.events import (
    Access,
    Allocation,
    Arithmetic,
    Check,
    Event,
    Instruction,
    Part,
    Product,
    Unknown,
)
from opscope_tools.kernels.run.log import EVERY, FLOPS, Log
from opscope_tools.kernels.run.paths import Path
from opscope_tools.kernels.tilelang.values import (
    Buffer,
    Datum,
    Region,
    Space,
    bits_of,
    bytes_of,
    floating,
    name_of,
    of_thread,
    sizes_of,
    step_of,
)
from opscope_tools.kernels.values.expressions import (
    Choice,
    Expression,
    Quantity,
    Size,
    call,
    ceil_div,
    combine,
    leaf,
    operand,
    render,
    settled,
)  # fmt: skip
from opscope_tools.kernels.values.notation import evaluate, read_size
from opscope_tools.kernels.values.trips import PER_ELEMENT
from opscope_tools.kernels.values.turns import Turns

_ALLOCATES: dict[str, Space] = {
    "alloc_shared": "shared", "alloc_fragment": "fragment", "alloc_local": "local", "alloc_tmem": "tmem", "alloc_global": "global",
    "alloc_barrier": "barrier", "alloc_cluster_barrier": "barrier", "alloc_reducer": "fragment", "alloc_buffer": "shared",
    "alloc_descriptor": "local", "alloc_wgmma_desc": "local", "alloc_tcgen05_smem_desc": "local",
}  # fmt: skip
#: they decide how the kernel runs, and move or compute nothing
_SILENT = set(
    "use_swizzle annotate_layout annotate_safe_value annotate_l2_hit_ratio annotate_restrict_buffers set_max_nreg no_set_max_nreg "
    "disable_warp_group_reg_alloc annotate_producer_reg_dealloc annotate_consumer_reg_alloc import_source pdl_sync pdl_trigger "
    "wait_wgmma warpgroup_wait warpgroup_arrive warpgroup_commit_batch ptx_wait_group ptx_commit_group fence_proxy_async "
    "tcgen05_mma_arrive mbarrier_expect_tx cp_async_barrier_noinc create_list_of_mbarrier get_mbarrier attr func_attr "
    "block_attr reads writes loop_break print device_print initialize_wgmma_descriptor initialize_tcgen05_descriptor "
    "increase_descriptor_offset tcgen05_before_thread_sync tcgen05_after_thread_sync warp_sync cluster_arrive cluster_wait sync_cluster "
    "Fragment Layout make_swizzled_layout cp_async_wait_group".split()
)
_BARRIERS = set(
    "sync_threads sync_warp sync_grid barrier_arrive barrier_wait mbarrier_arrive mbarrier_wait_parity mbarrier_arrive_expect_tx".split()
)
#: FLOPs per element that is reduced
_REDUCES = {
    "reduce_sum": 1, "reduce_abssum": 1, "cumsum": 1, "reduce_max": 0, "reduce_min": 0, "reduce_absmax": 0, "reduce_bitand": 0,
    "reduce_bitor": 0, "reduce_bitxor": 0,
}  # fmt: skip
_COPIES = {"copy", "async_copy", "tma_copy"}
_GEMMS = {"gemm", "gemm_v1", "gemm_v2", "wgmma_gemm", "tcgen05_gemm"}
#: the result is as the arguments are and costs nothing
_FREE = set(
    "max min abs floor ceil round trunc nearbyint isnan isinf isfinite clamp Select if_then_else likely bool shift_left shift_right "
    "bitwise_and bitwise_or bitwise_xor bitwise_not any_of all_of truncdiv truncmod".split()
)
#: conversions, by the type or with it as an argument
_CASTS = set(
    "reinterpret Cast cast to reinterpret_cast float16 float32 float64 bfloat16 half int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float8_e4m3fn float8_e5m2".split()
)
_PLACES: dict[str, str] = {
    "floordiv": "//",
    "floormod": "%",
    "truncdiv": "//",
    "truncmod": "%",
    "indexdiv": "//",
    "indexmod": "%",
}
_ROUNDED = {
    "ieee_add",
    "ieee_sub",
    "ieee_mul",
    "ieee_fdiv",
    "ieee_frcp",
    "ieee_fsqrt",
    "ieee_frsqrt",
    "add",
    "sub",
    "mul",
    "div",
}


class Operations(ABC):
    """What one kernel's run does with calls of the language."""

    def __init__(self, log: Log, file: str) -> None:
        self.log, self.kernel_file = log, file
        #: the file of the line that is run, and functions that were entered on the way
        self.file, self.via = file, ""
        self.path: Path = ()
        #: how often what is met runs in one block, and the line of the innermost loop around it
        self.times: Formula = Formula.const(1)
        self.line = 0
        #: loops over elements around it: of each those that come here
        self.elements: tuple[Turns, ...] = ()
        #: what the statement gives its value to
        self.into = ""
        #: threads of a block, along each axis, and the numbers of those that the tests around a line leave; None: all, where
        #: it is not told
        self.threads: Size = Quantity("threads")
        self.axes: tuple[Size, ...] = ()
        self.here: frozenset[int] | None = None
        #: the tests leave some, and it is not told how many
        self.some = False
        #: ids of the block
        self.ids: set[str] = set()
        #: buffer -> place in the log of the access that filled it and nothing else
        self.filled: dict[str, int] = {}
        #: buffers that are copied to in a pipelined loop, by its line
        self.staged: dict[int, dict[str, None]] = {}
        self.stages: dict[int, Size] = {}
        #: by the line of the loop, tiles in shared memory that products read, and those that are written element by element
        self.multiplied: dict[int, dict[str, None]] = {}
        self.made: dict[int, dict[str, None]] = {}

    @abstractmethod
    def eval(self, node: ast.expr, scope: Scope) -> Any:
        """The value of an expression; what computing it costs is put down."""

    @abstractmethod
    def arguments(self, node: ast.Call, scope: Scope) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword values of a call."""

    @abstractmethod
    def decide(self, test: ast.expr, scope: Scope) -> bool:
        """How a test goes."""

    # events ------------------------------------------------------------------------------------------------------

    def put(self, made: type[Event], node: ast.AST, /, **fields: Any) -> int:
        """Put down an event at a node."""
        self.log.step()
        return self.log.put(
            made(
                file="" if self.file == self.kernel_file else self.file, line=getattr(node, "lineno", 0),
                node=getattr(node, "col_offset", 0), via=self.via, path=self.path, times=self.times, loop=self.line, **fields,
            )
        )  # fmt: skip

    def lost(self, what: str, node: ast.AST, parts: frozenset[Part] = EVERY) -> None:
        """Put down what is not counted."""
        self.put(Unknown, node, what=what, loses=parts)

    def lanes(self, each: bool) -> tuple[Size, ...] | None:
        """How often an element's work is done: for each element of the loops around it, or by each thread that has its own.

        None where it is not told how many threads are here.
        """
        if self.elements or not each:
            return tuple(some.count for some in self.elements)
        if self.some:
            return None
        return (self.threads if self.here is None else len(self.here),)

    def compute(self, node: ast.AST, operation: str, flops: int, each: bool) -> None:
        """Arithmetic on an element."""
        lanes = self.lanes(each)
        if lanes is None:
            self.lost(f"{operation} of some of the threads", node, FLOPS)
        elif flops:
            self.put(Arithmetic, node, operation=operation, flops=self.log.counts.size(lanes) * flops)

    # parts of buffers --------------------------------------------------------------------------------------------

    def region(self, node: ast.expr, scope: Scope) -> Region | Any:
        """The part of a buffer that an argument names, without reading it; what it is where it names none."""
        if isinstance(node, ast.Subscript):
            base = (
                self.region(node.value, scope)
                if isinstance(node.value, ast.Subscript)
                else self.eval(node.value, scope)
            )
            if isinstance(base, Region):
                base = base.buffer
            if isinstance(base, Buffer):
                return self.part(base, node.slice, scope)
        value = self.eval(node, scope)
        return Region(value, whole=True) if isinstance(value, Buffer) else value

    def handed(self, node: ast.expr, scope: Scope) -> Any:
        """An argument: an element is read, a tile or a slice of one is handed on as it is."""
        element = isinstance(node, ast.Subscript) and not any(isinstance(n, ast.Slice) for n in ast.walk(node.slice))
        return self.eval(node, scope) if element else self.region(node, scope)

    def part(self, buffer: Buffer, index: ast.expr, scope: Scope) -> Region:
        """A buffer at an index."""
        starts: list[Size | None] = []
        extents: list[Size | None] = []
        gathered = False
        for axis, one in enumerate(index.elts if isinstance(index, ast.Tuple) else [index]):
            whole: Size | None = buffer.shape[axis] if axis < len(buffer.shape) else None
            if isinstance(one, ast.Slice):
                low = 0 if one.lower is None else self.index(one.lower, scope)
                high = whole if one.upper is None else self.index(one.upper, scope)
                starts.append(low)
                extents.append(None if low is None or high is None else self.difference(high, low))
                continue
            start = self.index(one, scope)
            gathered = gathered or start is None
            starts.append(start)
            extents.append(None)
        for size in buffer.shape[len(starts) :]:
            starts.append(0)
            extents.append(size)
        return Region(buffer, tuple(starts), tuple(extents), gathered=gathered)

    def index(self, node: ast.expr, scope: Scope) -> Size | None:
        """An index as a size; None where data tells it."""
        value = self.eval(node, scope)
        return value if isinstance(value, int | Expression) and not isinstance(value, bool) else None

    def difference(self, high: Size, low: Size) -> Size:
        """How many places lie between two."""
        counts = self.log.counts
        return read_size(str(counts.read(operand(high)) - counts.read(operand(low))))

    def named(self, node: ast.Call, *names: str) -> list[ast.expr | None]:
        """The arguments of a call by their places or names."""
        given = {k.arg: k.value for k in node.keywords}
        return [node.args[at] if at < len(node.args) else given.get(name) for at, name in enumerate(names)]

    # accesses ----------------------------------------------------------------------------------------------------

    def element(
        self, what: Any, region: Region, node: ast.AST, text: str, width: int = 1, each: bool = False
    ) -> None:  # fmt: skip
        """Read or write one element of a tensor, or `width` side by side, in each turn of the loops over elements around it."""
        buffer = region.buffer
        names = [some.loop.name for some in self.elements]
        each = not names and (each or any(of_thread(start) for start in region.starts))
        if each:  # neighbours are those along the first axis; with gaps between them nothing is told
            names = (
                ["threadIdx.x"]
                if self.here is None or len(self.here) == max(self.here, default=-1) - min(self.here, default=0) + 1
                else []
            )
        steps: list[str] = [""] if each and not names else []
        for name in names:
            parts = [
                None if start is None else _times(step_of(start, name), step)
                for start, step in zip(region.starts, buffer.steps(), strict=False)
            ]
            steps.append("" if None in parts else render(_sum(parts)))
        shape = self.lanes(each)
        if width > 1 and shape is not None:
            shape, steps = (*shape, width), [*steps, "1"]
        self.put(
            Access, node, what=what, operation=what, space="global", roots=(buffer.name,), text=text,
            shape=None if shape is None else tuple(map(render, shape)), steps=tuple(steps), element_bytes=bytes_of(buffer.dtype), into=self.into,
            gathered=region.gathered,
        )  # fmt: skip

    def tile(self, what: Any, region: Region, shape: tuple[Size, ...], node: ast.Call, into: str, text: str) -> int:
        """Read or write a tile of a tensor, which `text` names."""
        buffer = region.buffer
        axes = [
            (render(size), render(step))
            for size, step in zip(shape, buffer.steps(), strict=False) if not (isinstance(size, int) and size == 1)
        ] if len(shape) == len(buffer.shape) else [(render(size), "") for size in shape]  # fmt: skip
        return self.put(
            Access, node, what=what, operation=ast.unparse(node.func), space="global", roots=(buffer.name,),
            text=text,
            shape=tuple(size for size, _ in axes), steps=tuple(step for _, step in axes), element_bytes=bytes_of(buffer.dtype),
            into=into, gathered=region.gathered,
        )  # fmt: skip

    # calls -------------------------------------------------------------------------------------------------------

    def operate(self, name: str, node: ast.Call, scope: Scope) -> Any:
        """The result of an operation of the language; one that is not known and takes data or tensors is not counted."""
        found: Callable[[ast.Call, Scope], Any] | None = getattr(self, f"op_{name.lower()}", None)
        if found is not None:
            return found(node, scope)
        if name in _ALLOCATES:
            return self.allocate(name, node, scope)
        if name in _COPIES:
            return self.copy(node, scope)
        if name in _GEMMS:
            return self.gemm(node, scope)
        if name in _REDUCES:
            return self.reduce(name, node, scope)
        if name in _SILENT:
            return None
        if name in _BARRIERS:
            self.put(Instruction, node, operation=ast.unparse(node.func), text=ast.unparse(node))
            return None
        given = [self.handed(a, scope) for a in (*node.args, *(k.value for k in node.keywords))]
        return self.of_values(name, given, node)

    def of_values(self, name: str, given: list[Any], node: ast.Call) -> Any:
        """An operation on elements and sizes."""
        data = [v for v in given if isinstance(v, Datum)]
        if any(isinstance(v, Region) for v in given):
            self.lost(ast.unparse(node.func), node)
            return Datum()
        if name in PER_ELEMENT or name in _ROUNDED:
            each = any(v.each for v in data)
            if data:
                self.compute(node, ast.unparse(node.func), PER_ELEMENT.get(name, 1), each)
            return Datum(each=each)
        if name.startswith("warp_reduce_") and data:  # in steps of two, over the 32 threads of a warp
            self.compute(node, ast.unparse(node.func), 5 if name.endswith("sum") else 0, each=True)
            return Datum(each=True)
        if name in _CASTS and given:
            return self.cast(name, given)
        if name in _FREE:
            if data:
                return Datum(any(v.floating for v in data), any(v.each for v in data))
            return self.of_sizes(name, given, ast.unparse(node))
        if name in _PLACES and len(given) == 2:
            return Datum(False, any(v.each for v in data)) if data else settled(_PLACES[name], *given)
        if data:  # elements go in and come out: what it moves, it moves between threads
            self.lost(ast.unparse(node.func), node, FLOPS)
            return Datum(each=any(v.each for v in data))
        return self.of_sizes(name, given, ast.unparse(node))

    def cast(self, name: str, given: list[Any]) -> Any:
        """A conversion: whether its result is a number to compute with is told by the type."""
        values = [v for v in given if isinstance(v, Datum)]
        types = [name] if bits_of(name) is not None else [v for v in given if not isinstance(v, Datum) and name_of(v)]
        whole = not floating(types[0]) if types else not any(v.floating for v in values)
        if values:
            return Datum(not whole, any(v.each for v in values))
        sizes = [v for v in given if not name_of(v)]
        one = sizes[-1] if sizes else given[-1]
        return one if whole or not isinstance(one, Expression) else Datum(each=of_thread(one))

    def of_sizes(self, name: str, given: list[Any], written: str) -> Any:
        """An operation on sizes and constants."""
        if name in {"max", "min"} and len(given) >= 2:
            if all(isinstance(v, int | float) for v in given):
                return max(given) if name == "max" else min(given)
            return call(name, *given)
        if name in {"if_then_else", "Select"} and len(given) == 3:
            test, one, other = given
            if isinstance(test, bool):
                return one if test else other
            return one if one == other else Choice(operand(one), operand(test), operand(other))
        if len(given) == 1 and name in _FREE and not isinstance(given[0], str):
            return given[0]
        if name in {"next_power_of_2", "gcd"} and all(isinstance(v, int | Expression) for v in given):
            plain = evaluate(render(call(name, *given)), {})
            return call(name, *given) if plain is None else int(plain)
        return leaf(written)

    def op_ceildiv(self, node: ast.Call, scope: Scope) -> Any:
        """`T.ceildiv(a, b)`."""
        one, other = (self.eval(a, scope) for a in node.args[:2])
        return ceil_div(one, other)

    op_cdiv = op_ceildiv

    def op_infinity(self, _node: ast.Call, _scope: Scope) -> Any:
        """A constant."""
        return float("inf")

    op_max_value = op_min_value = op_infinity

    def op_dynamic(self, node: ast.Call, scope: Scope) -> Any:
        """Sizes that a run tells."""
        names = [name.strip() for name in str(self.eval(node.args[0], scope)).split(",")]
        return leaf(names[0]) if len(names) == 1 else tuple(map(leaf, names))

    op_symbolic = op_var = op_dynamic

    def op_const(self, node: ast.Call, scope: Scope) -> Any:
        """Sizes that the compiler is given: `T.const("M, N")`; or a constant of a type: `tir.const(1, "uint8")`."""
        value = self.eval(node.args[0], scope)
        if not isinstance(value, str):
            return value
        names = [name.strip() for name in value.split(",")]
        return Quantity(names[0]) if len(names) == 1 else tuple(map(Quantity, names))

    def op_dtype(self, node: ast.Call, scope: Scope) -> Any:
        """A type of elements."""
        return self.eval(node.args[0], scope) if node.args else None

    def op_get_thread_binding(self, node: ast.Call, scope: Scope) -> Any:
        """The thread's own number."""
        axis = self.eval(node.args[0], scope) if node.args else 0
        return leaf(f"threadIdx.{'xyz'[axis] if axis in (0, 1, 2) else 'x'}")

    def op_thread_binding(self, node: ast.Call, scope: Scope) -> Any:
        """`T.thread_binding(first, end, thread="threadIdx.y")`: the thread's number along an axis."""
        given = {k.arg: self.eval(k.value, scope) for k in node.keywords}
        axis = given.get("thread")
        return leaf(axis) if isinstance(axis, str) else leaf("threadIdx.x")

    def op_evaluate(self, node: ast.Call, scope: Scope) -> Any:
        """What is computed for what it does."""
        for argument in node.args:
            self.handed(argument, scope)

    def op_get_warp_idx(self, _node: ast.Call, _scope: Scope) -> Any:
        """The number of the thread's warp."""
        return combine("//", leaf("threadIdx.x"), 32)

    op_get_warp_idx_sync = op_get_warp_idx

    def op_get_warp_group_idx(self, _node: ast.Call, _scope: Scope) -> Any:
        """The number of the thread's group of four warps."""
        return combine("//", leaf("threadIdx.x"), 128)

    def op_get_lane_idx(self, _node: ast.Call, _scope: Scope) -> Any:
        """The thread's number in its warp."""
        return combine("%", leaf("threadIdx.x"), 32)

    def op_assume(self, node: ast.Call, _scope: Scope) -> Any:
        """What must hold."""
        self.put(Check, node, kind="T.assume", condition=ast.unparse(node.args[0]) if node.args else "")

    def op_device_assert(self, node: ast.Call, _scope: Scope) -> Any:
        """What must hold."""
        self.put(Check, node, kind="T.device_assert", condition=ast.unparse(node.args[0]) if node.args else "")

    def op_alloc_var(self, node: ast.Call, scope: Scope) -> Any:
        """A variable of each thread."""
        dtype = self.eval(node.args[0], scope) if node.args else None
        return Datum(each=True) if floating(dtype) else self.varied(self.into or "variable")

    def varied(self, name: str, each: bool = False) -> Size:
        """A quantity that differs from block to block, or from turn to turn; `each`: from thread to thread."""
        name = f"{name} of threadIdx.x" if each and "threadIdx." not in name else name
        self.log.varying.add(name)
        return leaf(name)

    def allocate(self, name: str, node: ast.Call, scope: Scope) -> Buffer:
        """Room for a tile."""
        if _ALLOCATES[name] == "barrier":
            return Buffer(self.into or name, "barrier", (1,), "uint64")
        arguments, given = self.arguments(node, scope)
        shape = given.get("shape", arguments[0] if arguments else ())
        dtype = given.get("dtype", arguments[1] if len(arguments) > 1 else None)
        sizes = sizes_of(shape)
        space = _ALLOCATES[name]
        if name == "alloc_buffer" and given.get("scope") in {"local", "local.fragment"}:
            space = "fragment"
        buffer = Buffer(self.into or f"{name} at line {node.lineno}", space, sizes, dtype)
        text = bytes_of(dtype)
        formula = str(self.log.counts.size(sizes) * self.log.counts.read(text)) if text else ""
        plain = evaluate(formula, {}) if formula else None
        self.put(
            Allocation, node, name=buffer.name, space={"global": "global", "shared": "shared"}.get(space, "register"),
            type=name_of(dtype) or (render(dtype) if isinstance(dtype, Expression) else ""), dimensions=tuple(map(render, sizes)),
            bytes=int(plain) if plain is not None else None, formula=formula if plain is None else "", text=ast.unparse(node),
        )  # fmt: skip
        return buffer

    def op_empty(self, node: ast.Call, scope: Scope) -> Any:
        """A tensor that is given back: `T.empty(shape, dtype)`."""
        arguments, given = self.arguments(node, scope)
        shape = given.get("shape", arguments[0] if arguments else ())
        sizes = sizes_of(shape)
        dtype = given.get("dtype", arguments[1] if len(arguments) > 1 else None)
        return Buffer(self.into or "result", "global", sizes, dtype)

    def op_make_tensor(self, node: ast.Call, scope: Scope) -> Any:
        """A tensor from a pointer: `T.make_tensor(pointer, shape, dtype)`."""
        arguments, given = self.arguments(node, scope)
        shape = given.get("shape", arguments[1] if len(arguments) > 1 else ())
        dtype = given.get("dtype", arguments[2] if len(arguments) > 2 else None)
        if not isinstance(shape, tuple | list):
            raise UnresolvedError(ast.unparse(node))
        return Buffer(ast.unparse(node.args[0]), "global", sizes_of(shape), dtype)

    op_match_buffer = op_make_tensor

    def op_tensor(self, node: ast.Call, scope: Scope) -> Any:
        """The elements of a tensor in another shape: `T.Tensor(shape, dtype, tensor.data)`."""
        arguments, given = self.arguments(node, scope)
        data = given.get("data", arguments[2] if len(arguments) > 2 else None)
        shape, dtype = arguments[0], given.get("dtype", arguments[1] if len(arguments) > 1 else None)
        if not isinstance(data, Buffer) or not isinstance(shape, tuple | list):
            raise UnresolvedError(ast.unparse(node))
        return Buffer(data.name, data.space, sizes_of(shape), dtype)

    def op_access_ptr(self, node: ast.Call, scope: Scope) -> Any:
        """Where an element lies, handed to an instruction."""
        return self.region(node.args[0], scope)

    def op_ptx_cp_async(self, node: ast.Call, scope: Scope) -> None:
        """`T.ptx_cp_async(to, from, elements)`: each thread copies as many elements as its pointer `T.access_ptr` has."""
        sides = [self.region(a, scope) for a in node.args[:2]]
        pointer = node.args[1] if len(node.args) > 1 else None
        extent = pointer.args[2] if isinstance(pointer, ast.Call) and len(pointer.args) == 3 else None
        width = self.eval(extent, scope) if extent is not None else None
        self.put(Instruction, node, operation=ast.unparse(node.func), text=ast.unparse(node))
        source = sides[1] if len(sides) == 2 else None
        lanes = self.lanes(each=True)
        if not isinstance(source, Region) or not isinstance(width, int) or lanes is None:
            self.lost(ast.unparse(node.func), node, frozenset({"read"}))
        elif source.buffer.space == "global":
            self.put(
                Access, node, what="load", operation=ast.unparse(node.func), space="global", roots=(source.buffer.name,),
                text=ast.unparse(node.args[1]), shape=(*map(render, lanes), str(width)), steps=("", "1"), element_bytes=bytes_of(source.buffer.dtype),
                gathered=source.gathered,
            )  # fmt: skip

    def op_reshape(self, node: ast.Call, scope: Scope) -> Any:
        """The same elements in another shape."""
        region = self.region(node.args[0], scope)
        arguments, given = self.arguments(node, scope)
        shape = given.get("shape", arguments[1] if len(arguments) > 1 else None)
        if not isinstance(region, Region) or not isinstance(shape, tuple | list):
            raise UnresolvedError(ast.unparse(node))
        old = region.buffer
        dtype = given.get("dtype", arguments[2] if len(arguments) > 2 else old.dtype)
        return Buffer(old.name, old.space, sizes_of(shape), dtype)

    op_view = op_reshape

    def copy(self, node: ast.Call, scope: Scope) -> None:
        """`T.copy(source, destination)`: what crosses the border of global memory is moved."""
        sides = self.named(node, "src", "dst")
        source, target = (self.region(side, scope) if side is not None else None for side in sides)
        read, written = (ast.unparse(side) if side is not None else "" for side in sides)
        if not isinstance(source, Region) or not isinstance(target, Region):
            self.lost(ast.unparse(node.func), node, frozenset({"read", "write"}))
            return
        into, out = target.buffer, source.buffer
        place = -1
        if out.space == "global":
            place = self.tile("load", source, source.shape(target.shape(None)), node, into.name, read)
        elif source.whole:
            place = self.filled.get(out.name, -1)
        if into.space == "global":
            self.tile("store", target, target.shape(source.shape(None)), node, "", written)
        else:
            self.fill(into, place)
            if out.space == "global" and into.space == "shared" and self.line in self.stages:
                self.staged.setdefault(self.line, {})[into.name] = None

    def op_c2d_im2col(self, node: ast.Call, scope: Scope) -> None:
        """`T.c2d_im2col(image, columns, ...)`: the tile of columns is gathered from the image."""
        image, columns = (self.region(a, scope) if a is not None else None for a in self.named(node, "img", "col"))
        if not isinstance(image, Region) or not isinstance(columns, Region):
            self.lost(ast.unparse(node.func), node, frozenset({"read"}))
            return
        place = self.tile("load", image, columns.shape(None), node, columns.buffer.name, image.buffer.name)
        self.fill(columns.buffer, place)
        if self.line in self.stages:
            self.staged.setdefault(self.line, {})[columns.buffer.name] = None

    def fill(self, buffer: Buffer, place: int = -1) -> None:
        """A buffer holds something else from here on."""
        self.filled[buffer.name] = place

    def op_fill(self, node: ast.Call, scope: Scope) -> None:
        """`T.fill(buffer, value)`, `T.clear(buffer)`."""
        (what,) = self.named(node, "buffer")
        region = self.region(what, scope) if what is not None else None
        if isinstance(region, Region):
            if region.buffer.space == "global":
                self.tile("store", region, region.shape(None), node, "", ast.unparse(what) if what is not None else "")
            else:
                self.fill(region.buffer)

    op_clear = op_fill

    def gemm(self, node: ast.Call, scope: Scope) -> None:
        """`T.gemm(A, B, C)`, [M, K] by [K, N]: 2 * M * N * K FLOPs, adding to C is part of it."""
        named = {k.arg: k.value for k in node.keywords}
        operands = [self.region(a, scope) for a in (*node.args[:3], *(named[n] for n in "ABC" if n in named))]
        turn = named.get("transpose_A", node.args[3] if len(node.args) > 3 else ast.Constant(False))
        turned = self.decide(turn, scope)
        text = ast.unparse(node.func)
        self.put(Instruction, node, operation=text, text=ast.unparse(node))
        if len(operands) < 3 or not all(isinstance(o, Region) for o in operands):
            self.lost(f"{text} of tiles of unknown shape", node, frozenset({"flops", "matmul"}))
            return
        a, b, c = (self.matrix(o) for o in operands)
        if a is None or b is None or c is None:
            self.lost(f"{text} of tiles of unknown shape", node, frozenset({"flops", "matmul"}))
            return
        depth = a[0] if turned else a[1]
        places = tuple(self.filled.get(o.buffer.name, -1) for o in operands[:2])
        self.multiplied.setdefault(self.line, {}).update(
            dict.fromkeys(o.buffer.name for o in operands[:2] if o.buffer.space == "shared")
        )
        self.put(Product, node, operation=text, flops=2 * self.log.counts.size((*c, depth)), operands=places)
        self.fill(operands[2].buffer)

    def matrix(self, region: Region) -> tuple[Size, Size] | None:
        """The two axes of a matrix."""
        shape = region.shape(None)
        if len(shape) > 2:
            shape = tuple(size for size in shape if not (isinstance(size, int) and size == 1))
        return (shape[-2], shape[-1]) if len(shape) >= 2 else None

    def reduce(self, name: str, node: ast.Call, scope: Scope) -> None:
        """`T.reduce_sum(source, destination)`: a sum 1 per element that goes in, the others 0."""
        second = "dst" if name == "cumsum" else "out"
        sides = self.named(node, "src" if name == "cumsum" else "buffer", second)
        regions = [self.region(a, scope) for a in sides if a is not None]
        text = ast.unparse(node.func)
        self.put(Instruction, node, operation=text, text=ast.unparse(node))
        if not regions or not isinstance(regions[0], Region):
            self.lost(text, node, frozenset({"flops"}))
            return
        if _REDUCES[name] and floating(regions[0].buffer.dtype):
            shape = regions[0].told() or ()
            self.put(Arithmetic, node, operation=text, flops=self.log.counts.size(shape) * _REDUCES[name])
        if len(regions) > 1 and isinstance(regions[1], Region):
            self.fill(regions[1].buffer)

    def op_atomic_add(self, node: ast.Call, scope: Scope) -> Any:
        """`T.atomic_add(destination, value)`: 1 per element."""
        sides = self.named(node, "dst", "value")
        target = self.region(sides[0], scope) if sides[0] is not None else None
        value = self.handed(sides[1], scope) if sides[1] is not None else None
        written = ast.unparse(sides[0]) if sides[0] is not None else ""
        name = ast.unparse(node.func)
        if not isinstance(target, Region):
            self.lost(name, node)
            return Datum()
        adds = not name.endswith(("max", "min"))
        each = of_thread(value) or any(of_thread(start) for start in target.starts)
        if isinstance(value, Region):
            shape = target.shape(value.told())
            if adds:
                self.put(Arithmetic, node, operation=name, flops=self.log.counts.size(shape))
            if target.buffer.space == "global":
                self.tile("atomic", target, shape, node, "", written)
            return None
        width = int(name[-1]) if name.endswith(("x2", "x4")) else 1
        if adds and floating(target.buffer.dtype):
            self.compute(node, name, width, each)
        if target.buffer.space == "global":
            self.element("atomic", target, node, written, width, each)
        return Datum(each=each) if floating(target.buffer.dtype) else self.varied(ast.unparse(node), each)

    op_atomic_max = op_atomic_min = op_atomic_addx2 = op_atomic_addx4 = op_atomic_add


def _times(step: Size | None, stride: Size) -> Size | None:
    return None if step is None else 0 if step == 0 else settled("*", step, stride)


def _sum(parts: list[Size | None]) -> Size:
    total: Size = 0
    for part in parts:
        if part is not None and part != 0:
            total = part if total == 0 else settled("+", total, part)
    return total


__all__ = ["Operations"]
