"""Kernels of NVIDIA's cuTile (`cuda.tile`) on the abstract run of Triton: tiles are loaded from arrays by their index.

An array is known by its parameter alone: its shape and strides are told by a run (`{X.shape[0]}`, `{X.strides[0]}`). What the
two languages call alike and mean alike is in operations.py; here is what cuTile calls or means otherwise.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace

from opscope_tools.kernels.run.events import Access
from opscope_tools.kernels.triton.definitions import dotted_name
from opscope_tools.kernels.triton.operations import Operation, clip
from opscope_tools.kernels.triton.run import Walk
from opscope_tools.kernels.triton.tiles import (
    Shape,
    Steps,
    Value,
    broadcast,
    called,
    computed,
    padded,
    permuted,
    sources_of,
    texts,
)
from opscope_tools.kernels.values.expressions import Size, leaf

_MODULES = {"cuda.tile", "ct", "cutile", "cuda_tile"}
#: what cuTile calls otherwise than Triton
_NAMES = {"bid": "program_id", "num_blocks": "num_programs", "astype": "to", "bitcast": "to", "negative": "neg"}
#: operations that are methods of tiles too
_METHODS = set("astype reshape permute transpose item extract broadcast_to expand_dims sum max min bitcast".split())
#: methods of arrays, and of the views of an array by tiles
_OF_ARRAYS = {"slice", "tiled_view", "load", "store", "atomic_store_add"}
_BINARY: dict[str, ast.operator] = {
    "add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "truediv": ast.Div(), "floordiv": ast.FloorDiv(), "mod": ast.Mod(),
    "pow": ast.Pow(), "bitwise_and": ast.BitAnd(), "bitwise_or": ast.BitOr(), "bitwise_xor": ast.BitXor(),
    "bitwise_lshift": ast.LShift(), "bitwise_rshift": ast.RShift(),
}  # fmt: skip
_COMPARES = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isnan"}


class TileLanguage:
    """What cuTile calls or means otherwise than Triton, for the walk that is handed each time."""

    prefix = "ct"
    strict = False

    def operation(self, walk: Walk, node: ast.Call) -> tuple[str, list[ast.expr]]:
        """(`load`, what it is a method of) of `ct.load` and of `tile.reshape`; ('', []) of calls of other functions."""
        dotted = dotted_name(node.func, walk.module)
        where, _, last = dotted.rpartition(".")
        if where in _MODULES:
            return _NAMES.get(last, last), []
        if dotted in {"min", "max"}:  # of tiles too, element by element
            return f"{dotted}imum", []
        if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS | _OF_ARRAYS:
            return _NAMES.get(node.func.attr, node.func.attr), [node.func.value]
        return "", []

    def operate(self, walk: Walk, op: Operation) -> Value | None:
        """The result of an operation; of two tiles as the operator between them."""
        if op.name in _BINARY and len(op.arguments) >= 2:
            one, other = (walk.value(a) for a in op.arguments[:2])
            return walk.binary(_BINARY[op.name], one, other, op.node)
        if op.name in _COMPARES:
            parts = [walk.value(a) for a in op.arguments]
            return Value(broadcast(parts), sources=sources_of(parts))
        handler: Callable[[Walk, Operation], Value] | None = getattr(self, f"op_{op.name}", None)
        return None if handler is None else handler(walk, op)

    def binary(self, walk: Walk, op: ast.operator, a: Value, b: Value, node: ast.AST) -> Value | None:
        """As of Triton, and `a @ b` a product."""
        return walk.product(node, "@", a, b, alone=True) if isinstance(op, ast.MatMult) else None

    def attribute(self, walk: Walk, base: ast.expr, name: str) -> Value | None:
        """`X.shape` and `X.strides` of an array are told by a run."""
        if name in {"shape", "strides"} and isinstance(base, ast.Name):
            found = walk.env.get(base.id)
            if found is not None and found.name and found.shape == ():
                return Value(name=f"{found.name}.{name}")
        if name == "dtype":
            return Value()
        return None

    # arrays ------------------------------------------------------------------------------------------------------

    def moved(self, walk: Walk, what: str, op: Operation, array: Value, shape: Shape | None, steps: Steps, index: ast.expr | None, mask: ast.expr | None = None) -> int:  # fmt: skip
        """Put down a tile of an array that is read or written."""
        name = ast.unparse(op.arguments[0]) if op.arguments else ""
        walk.asked.data = walk.asked.data or what != "store"
        walk.index(array)
        return walk.put(
            Access, op.node, what=what, operation=f"ct.{op.name}", space="global", roots=array.roots,
            text=clip(f"{name}[{ast.unparse(index)}]" if index is not None else name), shape=None if shape is None else texts(shape),
            steps=texts(steps), mask=ast.unparse(mask) if mask is not None else "", into=walk.into if what != "store" else "",
            gathered=op.name in {"gather", "scatter"} and bool(array.sources),
        )  # fmt: skip

    def op_load(self, walk: Walk, op: Operation) -> Value:
        """`ct.load(array, index, shape)`: the tile at an index, in tiles of that shape."""
        source, index, sizes = _parts(op, "array", "index", "shape")
        array = self.array(walk, source)
        shape = array.shape if array.block else walk.shape(sizes)
        walk.indices_of(index)
        steps = self.strides(walk, array, shape, op.given.get("order"))
        place = self.moved(walk, "load", op, array, shape, steps, index)
        walk.tile(op, shape)
        return Value(shape, data=True, sources=frozenset({place}), strides=(None,) * len(shape or ()), loaded=place)

    def op_store(self, walk: Walk, op: Operation) -> Value:
        """`ct.store(array, index, tile)`."""
        target, index, what = _parts(op, "array", "index", "tile")
        array, tile = self.array(walk, target), walk.value(what) if what is not None else Value(None)
        walk.indices_of(index)
        self.moved(
            walk, "store", op, array, tile.shape, self.strides(walk, array, tile.shape, op.given.get("order")), index
        )
        return Value()

    def op_atomic_store_add(self, walk: Walk, op: Operation) -> Value:
        """`view.atomic_store_add(index, tile)`."""
        target, index, what = _parts(op, "view", "index", "tile")
        array, tile = self.array(walk, target), walk.value(what) if what is not None else Value(None)
        walk.indices_of(index)
        if tile.data:
            walk.compute(op.node, tile.shape, tile.sources, 1)
        self.moved(walk, "atomic", op, array, tile.shape, self.strides(walk, array, tile.shape, None), index)
        return Value()

    def array(self, walk: Walk, node: ast.expr | None) -> Value:
        """The array that an argument names."""
        return Value(None) if node is None else walk.value(node)

    def strides(self, walk: Walk, array: Value, shape: Shape | None, order: ast.expr | None) -> Steps:
        """The steps of a tile along its axes, which are those of its array in an order; of an array that is a parameter."""
        root = array.roots[0] if len(array.roots) == 1 else ""
        axes: list[object] = list(range(len(shape or ())))
        if isinstance(order, ast.Constant):
            axes = axes[::-1] if order.value == "F" else axes
        elif order is not None:
            items = walk.value(order).items or ()
            axes = [item.constant for item in items] if len(items) == len(axes) else [None] * len(axes)
        return tuple(leaf(f"{root}.strides[{axis}]") if root and isinstance(axis, int) else None for axis in axes)

    def scattered(self, walk: Walk, what: str, op: Operation) -> tuple[int, Shape | None, Value]:
        """Put down what is read or written at the places of index tiles: where, in which shape, and the value that is written."""
        source, indices, given = _parts(op, "array", "indices", "update" if what == "atomic" else "value")
        array, places = self.array(walk, source), self.places(walk, indices)
        value = walk.value(given) if given is not None and what != "load" else Value()
        mask = op.given.get("mask")
        walk.indices_of(mask)
        shape = broadcast([*places, value])
        found = replace(array, sources=array.sources | sources_of(places))
        return self.moved(walk, what, op, found, shape, _along(array, places, shape), indices, mask), shape, value

    def op_gather(self, walk: Walk, op: Operation) -> Value:
        """`ct.gather(array, indices)`: an element for each place of the index tiles, broadcast."""
        place, shape, _ = self.scattered(walk, "load", op)
        return Value(shape, data=True, sources=frozenset({place}), strides=(None,) * len(shape or ()), loaded=place)

    op_load_advanced_indexing = op_gather

    def op_scatter(self, walk: Walk, op: Operation) -> Value:
        """`ct.scatter(array, indices, value)`: an element for each place of the index tiles, broadcast."""
        self.scattered(walk, "store", op)
        return Value()

    def _atomic(self, walk: Walk, op: Operation) -> Value:
        _, shape, value = self.scattered(walk, "atomic", op)
        if value.data and op.name == "atomic_add":
            walk.compute(op.node, shape, value.sources, 1)
        return Value(shape, data=value.data)

    op_atomic_add = op_atomic_max = op_atomic_min = op_atomic_xchg = op_atomic_cas = op_atomic_and = op_atomic_or = (
        _atomic
    )
    op_atomic_xor = _atomic

    def places(self, walk: Walk, node: ast.expr | None) -> list[Value]:
        """Index tiles, one for each axis of the array."""
        found = walk.value(node) if node is not None else Value(None)
        every = list(found.items) if found.items is not None else [found]
        for one in every:
            walk.index(one)
        return every

    def op_slice(self, walk: Walk, op: Operation) -> Value:
        """A part of an array, which is an array."""
        return walk.value(op.arguments[0])

    def op_tiled_view(self, walk: Walk, op: Operation) -> Value:
        """An array by tiles of a shape, which loads of the view give."""
        return replace(walk.value(op.arguments[0]), shape=walk.shape(op.argument(1, "tile_shape")), block=True)

    # tiles -------------------------------------------------------------------------------------------------------

    def op_arange(self, walk: Walk, op: Operation) -> Value:
        """`ct.arange(size)`: a tile of one axis and step 1."""
        length = walk.value(op.arguments[0]).number if op.arguments else None
        if length is None:
            return Value(None)
        walk.tile(op, (length,))
        return Value((length,), strides=(1,))

    def op_ones(self, walk: Walk, op: Operation) -> Value:
        """A tile of one value."""
        return walk.op_full(op)

    def op_mma(self, walk: Walk, op: Operation) -> Value:
        """`ct.mma(a, b, acc)`: as Triton's dot."""
        return walk.op_dot(op)

    op_matmul = op_mma

    def op_neg(self, walk: Walk, op: Operation) -> Value:
        """The other sign."""
        return walk.unary(ast.USub(), walk.value(op.arguments[0]), op.node)

    def op_num_tiles(self, walk: Walk, op: Operation) -> Value:
        """`ct.num_tiles(array, axis, shape)`: tiles of that shape along an axis of an array."""
        source, along, sizes = _parts(op, "array", "axis", "shape")
        array, shape = self.array(walk, source), walk.shape(sizes)
        axis = walk.quiet(along).constant if along is not None else None
        if not isinstance(axis, int) or shape is None or not 0 <= axis < len(shape) or len(array.roots) != 1:
            return Value(number=leaf(ast.unparse(op.node)))
        whole = Value(number=leaf(f"{array.roots[0]}.shape[{axis}]"))
        return Value(number=called("cdiv", whole, Value(number=shape[axis])))

    def op_transpose(self, walk: Walk, op: Operation) -> Value:
        """Two axes in each other's place, of two axes both."""
        found = walk.value(op.arguments[0])
        axes = [walk.quiet(a).constant for a in op.arguments[1:3]]
        if found.shape is None:
            return found
        order = list(range(len(found.shape)))
        if not axes:
            return permuted(found, order[::-1]) if len(order) == 2 else replace(found, shape=None)
        if len(axes) != 2 or not all(isinstance(a, int) and -len(order) <= a < len(order) for a in axes):
            return replace(found, shape=None)
        one, other = (int(str(a)) % len(order) for a in axes)
        order[one], order[other] = order[other], order[one]
        return permuted(found, list(order))

    def op_extract(self, walk: Walk, op: Operation) -> Value:
        """A part of a tile."""
        source, index, sizes = _parts(op, "x", "index", "shape")
        walk.indices_of(index)
        shape = walk.shape(sizes)
        found = self.array(walk, source)
        return replace(found, shape=shape, strides=(None,) * len(shape or ()), number=None, loaded=-1)

    def op_item(self, walk: Walk, op: Operation) -> Value:
        """The one element of a tile, as a number."""
        found = walk.value(op.arguments[0])
        return replace(found, shape=(), number=None, strides=())

    def op_cat(self, walk: Walk, op: Operation) -> Value:
        """`ct.cat((a, b), axis)`: two tiles, one behind the other."""
        tiles = walk.value(op.arguments[0]).items or ()
        where = op.argument(1, "axis")
        axis = walk.quiet(where).constant if where is not None else 0
        data, sources = any(t.data for t in tiles), sources_of(tiles)
        shapes = [t.shape for t in tiles]
        if not shapes or None in shapes or not isinstance(axis, int):
            return Value(None, data=data, sources=sources)
        first = list(shapes[0] or ())
        total: Size | None = 0
        for shape in shapes:
            total = computed(ast.Add(), total, (shape or ())[axis])
        if total is None:
            return Value(None, data=data, sources=sources)
        first[axis] = total
        return Value(tuple(first), data=data, sources=sources, strides=(None,) * len(first))


def _parts(op: Operation, *names: str) -> list[ast.expr | None]:
    """The arguments of these names or places."""
    return [op.argument(place, name) for place, name in enumerate(names)]


def _along(array: Value, places: Sequence[Value], shape: Shape | None) -> Steps:
    """The steps in memory along each axis of the index tiles, where one of them alone grows along it."""
    root = array.roots[0] if len(array.roots) == 1 else ""
    if shape is None or not root:
        return ()
    found: list[Size | None] = []
    for back in range(len(shape), 0, -1):
        grown: list[tuple[int, Size | None]] = []
        for axis, place in enumerate(places):
            if place.shape is not None and len(place.shape) >= back and place.shape[-back] != 1:
                grown.append((axis, padded(place)[-back]))
        moving = [(axis, step) for axis, step in grown if step != 0]
        stride = leaf(f"{root}.strides[{moving[0][0]}]") if len(moving) == 1 else None
        found.append(0 if not moving else computed(ast.Mult(), moving[0][1], stride))
    return tuple(found)


__all__ = ["TileLanguage"]
