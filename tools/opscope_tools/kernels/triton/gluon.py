"""Kernels of Gluon (`triton.experimental.gluon`) on the abstract run of Triton: memories, copies and warps are the source's own.

A descriptor of a tensor is known by its parameter alone: `{a_desc.block_shape[0]}` is a size of the block that it moves,
`{a_desc.shape[0]}` one of its tensor. What the two languages call alike and mean alike is in operations.py; layouts say where
elements lie, not which there are, and are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from opscope_tools.kernels.host.modules import PyModule
from opscope_tools.kernels.run.events import Access, Allocation, Instruction, Part
from opscope_tools.kernels.triton.definitions import FunctionNode, dotted_name, last_name, of_language
from opscope_tools.kernels.triton.operations import Operation, clip, clipped, understood
from opscope_tools.kernels.triton.run import Walk
from opscope_tools.kernels.triton.tiles import Shape, Value, broadcast, computed, permuted, texts
from opscope_tools.kernels.values.expressions import Size, leaf, render

#: positional arguments of operations before their layout
_BEFORE_LAYOUT = {"arange": 2, "zeros": 2, "full": 3, "convert_layout": 1, "zeros_like": 1, "full_like": 2}
#: modules whose functions are told by their own name too: `mbarrier.wait`, `tma.async_load`
_OWNERS = {"mbarrier", "tma", "async_copy", "cluster", "clc", "tdm"}
#: copies through a descriptor, and at which place of their arguments the buffer is
_TO_SHARED = {
    "tma.async_copy_global_to_shared": 3, "tma.async_load": 3, "tma.async_gather": 4, "tma.async_load_im2col": 4,
    "tma.async_copy_global_to_shared_im2col": 4,
}  # fmt: skip
_TO_GLOBAL = {"tma.async_copy_shared_to_global": 2, "tma.async_store": 2, "tma.async_scatter": 3}
_ADDS = re.compile(r"tma\.async_atomic_\w+")
#: copies from pointers: how the shared memory is called among their arguments, and how the pointers
_FROM_POINTERS = {
    "async_copy.async_copy_global_to_shared": ("smem", "pointer"), "async_copy.async_load": ("smem", "pointer"),
    "async_copy.global_load_to_shared": ("dest", "ptr"),
}  # fmt: skip
#: products of two operands onto a third; in place: they write the accumulator and give nothing
_PRODUCTS, _IN_PLACE = {"warpgroup_mma", "mma_v2", "mfma", "wmma", "dot_fma"}, {"tcgen05_mma"}
_SCALED = {"tcgen05_mma_scaled", "mfma_scaled", "wmma_scaled"}
#: what orders memory and warps, and gives nothing
_ORDERS = re.compile(
    r"mbarrier\.(init|expect|wait|arrive|invalidate|sync)\w*|\w+\.store_wait|tma\.prefetch\w*|async_copy\.(commit_group|wait_group|mbarrier_arrive\w*)|"
    r"fence_async_shared|fence\w*|tcgen05_commit|tcgen05_copy|thread_barrier|barrier|cluster\.\w+|set_auto_layout"
)
#: methods of buffers alone
_OF_BUFFERS = set("load store scatter gather index slice subslice _reinterpret reinterpret atomic_scatter_add".split())
#: how a layout says that a buffer takes more than its elements, or that blocks of a cluster share it
_MORE_ROOM = re.compile(r"Padded|fp4_padded|cga_layout|two_ctas")
_ALL: tuple[Part, ...] = ("flops", "matmul", "read", "write")
_LAYOUT = re.compile(r"\w*Layout|get_\w*layout\w*|to_linear_layout")
_BYTES = re.compile(r"(?:float|bfloat|u?int)(\d+)")


@dataclass(frozen=True)
class Memory:
    """What a value that names shared or tensor memory stands for; `element`: bytes of one, None where it is not told."""

    space: Literal["shared", "tensor"]
    element: Size | None


class Gluon:
    """What Gluon calls or means otherwise than Triton, for the walk that is handed each time."""

    prefix = "gl"
    #: a function that is not followed may do anything with what it is handed: no pointer need prove to be one
    strict = True

    def __init__(self, module: PyModule, function: FunctionNode) -> None:
        self.ranks = _ranks(module, function)

    def operation(self, walk: Walk, node: ast.Call) -> tuple[str, list[ast.expr]]:
        """(`load`, what it is a method of) of `gl.load` and of `buffer.load`; ('', []) of calls of other functions."""
        dotted = dotted_name(node.func, walk.module)
        *where, last = dotted.split(".") if dotted else [""]
        if "gluon" in where or of_language(dotted):
            owner = where[-1]
            if _LAYOUT.fullmatch(owner):  # what makes one: `NVMMASharedLayout.get_default_for(...)`
                return owner, []
            return f"{owner}.{last}" if owner in _OWNERS else last, []
        spelled = node.func.id if isinstance(node.func, ast.Name) else dotted
        if walk.around.find(walk.module, spelled) is not None:
            return "", []
        if dotted in {"min", "max"}:
            return dotted, []
        return (node.func.attr, [node.func.value]) if isinstance(node.func, ast.Attribute) else ("", [])

    def operate(self, walk: Walk, op: Operation) -> Value | None:
        """The result of an operation; without its layout."""
        if _LAYOUT.fullmatch(op.name):
            return Value(None)
        if _ORDERS.fullmatch(op.name):
            self.told(walk, op)
            return Value()
        if op.name == "mbarrier.allocate_mbarrier":
            return self.barriers(walk, op)
        if op.name in _TO_SHARED:
            return self.through_descriptor(walk, op, "load")
        if op.name in _TO_GLOBAL or _ADDS.fullmatch(op.name):
            return self.through_descriptor(walk, op, "store" if op.name in _TO_GLOBAL else "atomic")
        if op.name in _FROM_POINTERS:
            return self.from_pointers(walk, op)
        if op.name in _PRODUCTS | _IN_PLACE:
            return self.product(walk, op)
        if op.name in _SCALED:
            self.told(walk, op)
            walk.lost(f"{op.name}, whose operands are packed", op.node, "flops", "matmul")
            return Value()
        if op.name.endswith("buffer_load_to_shared"):
            return self.at_offsets(walk, op, "load", 1)
        if op.method and op.name in _OF_BUFFERS | {"permute", "trans", "reshape"}:
            found = walk.value(op.arguments[0])
            if isinstance(found.constant, Memory):
                return self.of_memory(walk, op, found, found.constant)
            if op.name in _OF_BUFFERS:  # of which one, reading does not tell
                return self.unknown(walk, op)
        handler: Callable[[Walk, Operation], Value] | None = getattr(self, f"op_{op.name}", None)
        if handler is not None:
            return handler(walk, op)
        most = _BEFORE_LAYOUT.get(op.name)
        given = {name: node for name, node in op.given.items() if name != "layout"}
        if op.name == "tma.make_tensor_descriptor":
            return walk.op_make_tensor_descriptor(replace(op, arguments=op.arguments[:4], given=given))
        handlers: Callable[[Operation], Value] | None = getattr(walk, f"op_{op.name}", None)
        if handlers is not None:
            return handlers(replace(op, arguments=op.arguments[:most], given=given))
        return None if understood(op.name) else self.unknown(walk, op)

    def unknown(self, walk: Walk, op: Operation) -> Value:
        """What is done here is not told: nothing of it is in the cost."""
        for part in (*op.arguments, *op.given.values()):
            walk.value(part)
        self.told(walk, op)
        walk.lost(ast.unparse(op.node.func), op.node, *_ALL)
        return Value(None, data=True)

    def binary(self, walk: Walk, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value | None:
        """As of Triton, and two lists behind each other."""
        del walk, node
        both = isinstance(op, ast.Add) and a.items is not None and b.items is not None
        return Value(items=(*(a.items or ()), *(b.items or ()))) if both else None

    def attribute(self, walk: Walk, base: ast.expr, name: str) -> Value | None:
        """What descriptors and buffers say of themselves; the block of a descriptor has a shape of its own."""
        if name in {"block_type", "type"}:
            return walk.value(base)
        if name in {"shape", "block_shape", "strides"}:
            found = walk.value(base)
            if isinstance(found.constant, Memory) and found.shape is not None:
                return Value(items=tuple(Value(number=size) for size in found.shape))
            if found.block and found.shape is not None and name != "strides":
                return Value(items=tuple(Value(number=size) for size in found.shape))
            of_block = name == "block_shape" or (isinstance(base, ast.Attribute) and base.attr == "block_type")
            if found.name and not found.shape:
                return self.sizes(found, "block_shape" if of_block else name)
            return None if found.shape else Value(None)
        if name == "dtype":
            found = walk.value(base)
            return Value(name=f"{found.name}.dtype", roots=found.roots) if found.name else Value()
        if name in {"nbytes", "primitive_bitwidth"}:
            return Value(number=leaf(ast.unparse(ast.Attribute(base, name))))
        return Value() if name == "layout" else None

    def sizes(self, found: Value, name: str) -> Value:
        """The sizes of a descriptor, each by its place where it is known how many there are."""
        rank = self.ranks.get(found.name)
        if rank is None:
            return Value(name=f"{found.name}.{name}")
        return Value(items=tuple(Value(number=leaf(f"{found.name}.{name}[{axis}]")) for axis in range(rank)))

    def told(self, walk: Walk, op: Operation, text: str = "") -> None:
        """Put down an instruction."""
        walk.put(Instruction, op.node, operation=op.name, text=text or clipped(op.node))

    # memories ----------------------------------------------------------------------------------------------------

    def allocated(self, walk: Walk, op: Operation, space: Literal["shared", "tensor"]) -> Value:
        """Room for a tile, or for several of them behind each other."""
        kind, sizes = op.argument(0, "element_ty"), op.argument(1, "shape")
        shape, element = walk.shape(sizes), self.element(walk, kind)
        total: Size | None = element
        for size in shape or (None,):
            total = computed(ast.Mult(), total, size) if total is not None and size is not None else None
        formula = "" if total is None else render(total)
        written = ast.unparse(kind) if kind is not None else ""
        laid = op.argument(2, "layout")
        said = ast.unparse(laid) if laid is not None else ""
        if _MORE_ROOM.search(f"{said} {walk.definitions.get(said, '')}"):  # its bytes are the layout's affair
            formula = ""
        if space == "shared":
            walk.put(
                Allocation, op.node, name=walk.into, space="shared", type=written, dimensions=texts(shape or ()),
                bytes=int(formula) if formula.isdigit() else None, formula=formula, text=clipped(op.node),
            )  # fmt: skip
        else:
            self.told(walk, op, clip(f"{walk.into} = {ast.unparse(op.node)}"))
        if (given := op.argument(3, "value")) is not None:
            walk.value(given)
        return Value(shape, constant=Memory(space, element))

    def op_allocate_shared_memory(self, walk: Walk, op: Operation) -> Value:
        """`gl.allocate_shared_memory(element_ty, shape, layout)`."""
        return self.allocated(walk, op, "shared")

    def op_async_store(self, walk: Walk, op: Operation) -> Value:
        """`async_store(dst, value, mbarrier)`: into shared memory, of another block of the cluster as well."""
        for part in (*op.arguments, *op.given.values()):
            walk.value(part)
        self.told(walk, op)
        return Value()

    def op_allocate_tensor_memory(self, walk: Walk, op: Operation) -> Value:
        """`allocate_tensor_memory(element_ty, shape, layout)`."""
        return self.allocated(walk, op, "tensor")

    def barriers(self, walk: Walk, op: Operation) -> Value:
        """`mbarrier.allocate_mbarrier(batch)`: eight bytes each."""
        batch = walk.value(one).number if (one := op.argument(0, "batch")) is not None else 1
        shape: Shape | None = None if batch is None else (1,) if op.argument(0, "batch") is None else (batch, 1)
        formula = "" if batch is None else render(computed(ast.Mult(), 8, batch) or 8)
        walk.put(
            Allocation, op.node, name=walk.into, space="shared", type="mbarrier", dimensions=texts(shape or ()),
            bytes=int(formula) if formula.isdigit() else None, formula=formula, text=clipped(op.node),
        )  # fmt: skip
        return Value(shape, constant=Memory("shared", 8))

    def element(self, walk: Walk, kind: ast.expr | None) -> Size | None:
        """Bytes of an element of a type."""
        if kind is None:
            return None
        found = walk.value(kind)
        if found.name.endswith(".dtype"):
            return leaf(f"{found.name.removesuffix('.dtype')}.element_size()")
        bits = _BYTES.search(str(found.constant or ast.unparse(kind)).rpartition(".")[2])
        return max(int(bits[1]) // 8, 1) if bits else None

    def of_memory(self, walk: Walk, op: Operation, found: Value, memory: Memory) -> Value:
        """A method of a buffer: what is read, written, or a part or another view of it."""
        rest = op.arguments[1:]
        if op.name == "load":
            self.told(walk, replace(op, name=f"{memory.space}.load"))
            return Value(found.shape, data=True, strides=(None,) * len(found.shape or ()))
        if op.name in {"store", "scatter"}:
            for part in (*rest, *op.given.values()):
                walk.value(part)
            self.told(walk, replace(op, name=f"{memory.space}.{op.name}"))
            return Value()
        if found.shape is None:
            return found
        shape: Shape | None = found.shape
        if op.name == "index":
            walk.indices_of(*rest, *op.given.values())
            shape = found.shape[1:]
        elif op.name in {"slice", "subslice"}:
            walk.indices_of(*rest[:1])
            length = walk.value(one).number if (one := op.argument(2, "length")) is not None else None
            axis = walk.quiet(dim).constant if (dim := op.argument(3, "dim")) is not None else 0
            axis = len(found.shape) - 1 if memory.space == "tensor" else axis  # which is cut by its columns
            known = isinstance(axis, int) and length is not None and axis < len(found.shape)
            shape = tuple(length if at == axis else size for at, size in enumerate(found.shape)) if known and length is not None else None  # fmt: skip
        elif op.name in {"permute", "trans"}:
            order = [
                walk.quiet(a).constant
                for a in (rest[0].elts if rest and isinstance(rest[0], ast.Tuple | ast.List) else rest)
            ]
            return permuted(found, order)
        elif op.name in {"reshape", "_reinterpret", "reinterpret"}:
            wanted = op.argument(1 if op.name == "reshape" else 2, "shape")
            shape = walk.shape(wanted)
        else:
            walk.lost(f"{op.name} of a buffer", op.node, "flops")
            shape = None
        return replace(found, shape=shape, strides=())

    # copies ------------------------------------------------------------------------------------------------------

    def moved(self, walk: Walk, op: Operation, what: Literal["load", "store", "atomic"], address: Value, text: str, mask: ast.expr | None, *, gathered: bool = False) -> None:  # fmt: skip
        """Put down what is copied between global and shared memory."""
        self.told(walk, op)
        walk.asked.data = True
        walk.put(
            Access, op.node, what=what, operation=op.name, space="global", roots=address.roots, text=clip(text),
            shape=None if address.shape is None else texts(address.shape), steps=texts(address.strides),
            mask=ast.unparse(mask) if mask is not None else "", gathered=gathered, element_bytes=address.element,
        )  # fmt: skip

    def through_descriptor(self, walk: Walk, op: Operation, what: Literal["load", "store", "atomic"]) -> Value:
        """A block, or rows of one, between the tensor of a descriptor and a buffer, whose shape it has."""
        apart = op.name.endswith(("gather", "scatter"))
        last = {**_TO_SHARED, **_TO_GLOBAL}.get(op.name, 2)
        named, held = op.argument(0, "tensor_desc"), op.argument(last, "result" if what == "load" else "src")
        at = op.argument(1, "x_offsets" if apart else "coord")
        mask = op.argument(last + 1, "pred") if what == "load" else None
        if named is None or held is None or at is None:
            return self.unknown(walk, op)
        address, buffer = walk.value(named), walk.value(held)
        walk.indices_of(at, mask, *([op.argument(2, "y_offset")] if apart else []))
        root, axes, where = ast.unparse(named), range(len(buffer.shape or ())), ast.unparse(at)
        steps = tuple(
            1 if axis == axes[-1] else None if apart else leaf(f"{address.name or root}.strides[{axis}]")
            for axis in axes
        )
        text = f"{root}{where if where.startswith('[') else f'[{where}]'}"
        self.moved(walk, op, what, replace(address, shape=buffer.shape, strides=steps), text, mask, gathered=apart)
        if op.name == "tma.async_atomic_add":
            walk.compute(op.node, buffer.shape, frozenset(), 1)
        return Value()

    def from_pointers(self, walk: Walk, op: Operation) -> Value:
        """`async_copy`: each element at a pointer of a tile of them, into shared memory."""
        into, source = op.argument(0, _FROM_POINTERS[op.name][0]), op.argument(1, _FROM_POINTERS[op.name][1])
        if into is None or source is None:
            return self.unknown(walk, op)
        address, mask = walk.value(source), op.argument(2, "mask")
        walk.value(into)
        walk.indices_of(mask)
        walk.index(address)
        self.moved(walk, op, "load", address, ast.unparse(source), mask)
        return Value()

    def at_offsets(self, walk: Walk, op: Operation, what: Literal["load", "store"], first: int) -> Value:
        """AMD's moves between a pointer at a tile of offsets and registers or shared memory; `first`: which argument the pointer is."""
        base, offsets = (
            walk.value(a) if a is not None else Value(None)
            for a in (op.argument(first, "ptr"), op.argument(first + 1, "offsets"))
        )
        beside = [walk.value(a) for a in op.arguments[:first]]
        mask = op.argument(first + 2, "mask")
        walk.indices_of(mask)
        walk.index(offsets)
        shape = broadcast([offsets, *beside]) if what == "store" else offsets.shape
        self.moved(walk, op, what, replace(offsets, shape=shape, roots=base.roots), ast.unparse(op.node), mask)
        return Value(shape, data=True, strides=(None,) * len(shape or ()))

    def op_buffer_load(self, walk: Walk, op: Operation) -> Value:
        """`buffer_load(ptr, offsets, mask)`."""
        return self.at_offsets(walk, op, "load", 0)

    def op_buffer_store(self, walk: Walk, op: Operation) -> Value:
        """`buffer_store(stored_value, ptr, offsets, mask)`."""
        return self.at_offsets(walk, op, "store", 1)

    # products and warps ------------------------------------------------------------------------------------------

    def product(self, walk: Walk, op: Operation) -> Value:
        """[M, K] by [K, N] onto an accumulator; operands may lie in shared or tensor memory."""
        self.told(walk, op)
        walk.asked.data = True
        for part in (*op.arguments[2:], *op.given.values()):
            walk.value(part)
        a, b = (
            walk.value(one) if one is not None else Value(None) for one in (op.argument(0, "a"), op.argument(1, "b"))
        )
        kept = walk.path
        if (pred := op.given.get("pred")) is not None and op.name in _IN_PLACE:
            walk.path = (*kept, walk.step(pred, *walk.answer(pred, usual=True)))
        made = walk.product(op.node, op.name, a, b, alone=False)
        walk.path = kept
        return Value() if op.name in _IN_PLACE else made

    def op_warpgroup_mma_wait(self, walk: Walk, op: Operation) -> Value:
        """Waits for products that run beside; gives what depends on them."""
        self.told(walk, op)
        deps = op.argument(1, "deps")
        found = walk.value(deps) if deps is not None else Value()
        return found.items[0] if found.items is not None and len(found.items) == 1 else found

    def op_warpgroup_mma_init(self, walk: Walk, op: Operation) -> Value:
        """An accumulator that products may run on."""
        return walk.value(one) if (one := op.argument(0, "value")) is not None else Value(None)

    def op_convert_layout(self, walk: Walk, op: Operation) -> Value:
        """The same tile, spread over threads otherwise."""
        return replace(walk.value(one), strides=()) if (one := op.argument(0, "value")) is not None else Value(None)

    def op_warp_specialize(self, walk: Walk, op: Operation) -> Value:
        """Functions that run beside each other, each on warps of its own; the first on those of the launch."""
        parts, numbers = self.partitions(op)
        warps, registers = (_each(node) for node in numbers)
        names = [ast.unparse(function) for function, _ in parts]
        said = [f"{names[0]}: the launch's warps"] if names else []
        for at, name in enumerate(names[1:]):
            own = [
                f"{count[at]} {what}"
                for count, what in ((warps, "warps"), (registers, "registers a thread"))
                if at < len(count)
            ]
            said.append(f"{name}: {', '.join(own)}" if own else name)
        self.told(walk, op, clip("; ".join(said)) if said else "")
        for function, handed in parts:
            call = ast.copy_location(ast.Call(func=function, args=handed, keywords=[]), op.node)
            if any(isinstance(a, ast.Starred) for a in handed):
                walk.lost(ast.unparse(function), op.node, *_ALL)
            else:
                walk.called(Operation("", call, handed, {}))
        if not parts:
            walk.lost("warps of their own", op.node, *_ALL)
        return Value()

    def partitions(self, op: Operation) -> tuple[list[tuple[ast.expr, list[ast.expr]]], list[ast.expr | None]]:
        """(function, its arguments) of each, and the lists of warps and registers; both forms: pairs, or arguments and functions apart."""
        first = op.argument(0, "functions_and_args")
        listed = first.elts if isinstance(first, ast.List | ast.Tuple) else []
        if listed and all(isinstance(pair, ast.Tuple) and len(pair.elts) == 2 for pair in listed) and not isinstance(op.argument(1, "default_partition"), ast.Name | ast.Attribute):  # fmt: skip
            pairs = [(pair.elts[0], _elements(pair.elts[1])) for pair in listed if isinstance(pair, ast.Tuple)]
            return pairs, [op.argument(1, "worker_num_warps"), op.argument(2, "worker_num_regs")]
        default, workers = op.argument(1, "default_partition"), op.argument(3, "worker_partitions")
        if default is None or not isinstance(workers, ast.List | ast.Tuple):
            return [], [None, None]
        handed = _elements(op.argument(2, "worker_args"))
        pairs = [(default, _elements(op.argument(0, "default_args"))), *((one, handed) for one in workers.elts)]
        return pairs, [op.argument(4, "worker_num_warps"), op.argument(5, "worker_num_regs")]


def _elements(node: ast.expr | None) -> list[ast.expr]:
    """The expressions of a tuple that is written out; what is none is handed as one that hides how many there are."""
    if isinstance(node, ast.Tuple | ast.List):
        return list(node.elts)
    return [] if node is None else [ast.Starred(node, ast.Load())]


def _each(node: ast.expr | None) -> list[str]:
    return [ast.unparse(one) for one in node.elts] if isinstance(node, ast.List | ast.Tuple) else []


def _ranks(module: PyModule, function: FunctionNode) -> Mapping[str, int]:
    """How many axes a descriptor has, by the parameter's name: as many as copies name coordinates, those of the kernel itself first."""
    own, others = dict[str, set[int]](), dict[str, set[int]]()
    inside = {id(node) for node in ast.walk(function)}
    for call in module.calls:
        last = last_name(call.func)
        copies = last.startswith(("async_copy_", "async_load", "async_store", "async_atomic"))
        if (
            copies
            and len(call.args) > 1
            and isinstance(call.args[0], ast.Name)
            and isinstance(call.args[1], ast.List | ast.Tuple)
        ):
            held = own if id(call) in inside else others
            held.setdefault(call.args[0].id, set()).add(len(call.args[1].elts))
    return {name: next(iter(axes)) for name, axes in {**others, **own}.items() if len(axes) == 1}


__all__ = ["Gluon", "Memory"]
