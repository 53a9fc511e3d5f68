"""CuTe's expressions in host functions and kernels: `make_layout(...)`, `local_tile(...)`, `Layout<Shape<_32, _8>>{}`.

`Cute` reads the forms that it knows and asks its `Around` for names and numbers; None is what it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from opscope_tools.kernels.cuda.cute import values as cute
from opscope_tools.kernels.cuda.cute.values import (
    FREE,
    Atom,
    Compact,
    Free,
    Major,
    OperandCopy,
    Slice,
    Swizzled,
    Tensor,
    TiledCopy,
    TiledMma,
    Tma,
)
from opscope_tools.kernels.cuda.names.values import Value, computed, named_type, whole
from opscope_tools.kernels.cuda.syntax.expressions import Parser, UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Binary, Braced, Call, Member, Name, Node, TypeName
from opscope_tools.kernels.cuda.syntax.tokens import Token, words
from opscope_tools.kernels.values import layouts
from opscope_tools.kernels.values.expressions import Expression
from opscope_tools.kernels.values.layouts import Layout, LayoutError, Swizzle

#: types that are tuples of sizes
_TUPLES = frozenset("Shape Stride Step Coord Tile tuple".split())
_INTEGER = re.compile(r"_(\d+)$")
_INTEGERS = frozenset("Int C constant integral_constant".split())
#: layouts of shared memory that tensor cores read, by the bits of a row: `Layout_K_SW128_Atom<half_t>`
_ROWS = {"INTER": (128, 0), "SW32": (256, 1), "SW64": (512, 2), "SW128": (1024, 3)}
_ATOM = re.compile(r"Layout_(K|MN)_(INTER|SW\d+)_(?:32B_)?Atom$")
_MADE = frozenset(f"make_{name}" for name in "shape stride coord step tile tuple".split())
#: what makes a pointer -> the memory that it leads to
_POINTERS = {"make_gmem_ptr": "global", "make_smem_ptr": "shared", "make_rmem_ptr": "local", "raw_pointer_cast": ""}


class Around(Protocol):
    """What stands around an expression."""

    def named(self, name: str) -> Any:
        """What a variable, a template parameter or an alias stands for, where that is one of CuTe's; else None."""

    def declared(self, name: str) -> bool:
        """Whether a variable is called so."""

    def scalar(self, node: Node) -> Any:
        """A whole number as an int or a formula, an index as a `Value`; None for others."""

    def constant(self, text: str) -> Any:
        """A whole number that a template argument spells; None for others."""

    def pointer(self, node: Node, space: str) -> Value:
        """The address that a tensor starts from, in the memory that its maker names; '': as its type says."""

    def bits(self, text: str) -> int | None:
        """Of an element of a type."""

    def type(self, text: str) -> str:
        """A type as written, aliases followed."""


class Cute:
    """Reads CuTe's expressions in one function."""

    def __init__(self, around: Around) -> None:
        self.around = around

    def value(self, node: Node) -> Any:
        """What an expression of CuTe's comes to; None where it is none, or not told."""
        return _told(self._value, node)

    def given(self, node: Node) -> Any:
        """An argument: one of CuTe's values, or a scalar."""
        return _told(self._given, node)

    def written(self, text: str) -> Any:
        """What a type that is written so stands for; a number where it spells one."""
        return _told(self._written, text)

    def type(self, kind: TypeName) -> Any:
        """What a type that holds its value stands for."""
        return _told(self._type, kind)

    def _value(self, node: Node) -> Any:
        match node:
            case Name(text="_" | "X" as text, arguments=None) if not self.around.declared(text):
                return FREE
            case Name(text=text, arguments=None):
                return self._constant_of(text) if text.endswith("::value") else self.around.named(text)
            case Name(text=text, arguments=arguments) if text.rpartition("::")[2] in {"size_v", "cosize_v", "rank_v"}:
                of = self._written(", ".join(arguments or ()))
                return None if of is None else self._measured(text.rpartition("::")[2][:-2], (of,), ())
            case Binary(operator=operator, left=left, right=right):
                sides = [self._value(side) for side in (left, right)]
                if not any(isinstance(side, int | Expression) for side in sides):
                    return None
                a, b = (self._given(n) if s is None else s for n, s in zip((left, right), sides, strict=True))
                return computed(operator, a, b) if all(isinstance(s, int | Expression) for s in (a, b)) else None
            case Braced(type=kind, items=items) if kind is not None:
                if items:
                    return self._built(kind, items)
                return self._type(kind)
            case Call(function=Name() as function, arguments=arguments):
                return self._call(function, arguments)
            case Call(function=Member() as function, arguments=arguments):
                return self._method(function, arguments)
        return None

    def _given(self, node: Node) -> Any:
        """An argument: one of CuTe's values, or a scalar."""
        found = self._value(node)
        return self.around.scalar(node) if found is None else found

    # types -----------------------------------------------------------------------------------------------------------

    def _written(self, text: str) -> Any:
        """What a type that is written so stands for; a number where it spells one."""
        text = text.strip().removesuffix("{}").strip()
        if (inner := re.fullmatch(r"decltype\s*\((.*)\)", text, re.DOTALL)) is not None:
            node = parsed(inner[1].strip())
            return None if node is None else self._given(node)
        tokens = [Token(w, 0) for w in words(text)]
        try:
            parser = Parser(tokens, lambda _: True)
            kind = parser.type_name()
        except (UnreadError, RecursionError):
            return self.around.constant(text)
        if kind is None or parser.at != len(tokens):
            return self.around.constant(text)
        found = self._type(kind)
        return self.around.constant(text) if found is None else found

    def _constant_of(self, text: str) -> Any:
        inner = re.fullmatch(r"decltype\s*\((.*)\)\s*::\s*value", text)
        return self._written(f"decltype({inner[1]})") if inner else None

    def _type(self, kind: TypeName) -> Any:
        """What a type that holds its value stands for."""
        space, _, plain = kind.name.rpartition("::")
        arguments = kind.arguments
        if not arguments and (known := self.around.named(kind.name)) is not None:
            return known
        if plain in _INTEGERS and arguments:
            return self.around.constant(arguments[-1])
        if (number := _INTEGER.match(plain)) is not None:
            return int(number[1])
        if plain in {"X", "Underscore"}:
            return FREE
        if plain in _TUPLES:
            made = tuple(map(self._written, arguments))
            return None if None in made else made
        if plain == "Layout" and arguments:
            parts = [self._written(a) for a in arguments]
            return None if None in parts else _layout(parts)
        if plain == "Swizzle" and len(arguments) in (2, 3):
            bits, base, *shift = (self.around.constant(a) for a in arguments)
            sizes = (bits, base, *(shift or (bits,)))
            return Swizzle(*sizes) if all(isinstance(s, int) for s in sizes) else None
        if plain in {"LayoutLeft", "GenColMajor", "LayoutRight", "GenRowMajor"}:
            return Major("Right" in plain or "Row" in plain)
        if (rows := _ATOM.match(plain)) is not None and arguments:
            return self._smem_atom(rows[1], rows[2], arguments[0])
        if plain in {"MMA_Atom", "TiledMMA"} and arguments:
            return self._mma(plain, arguments)
        if plain == "Copy_Atom" and arguments:
            return self._copy_atom(arguments[0], arguments[1] if len(arguments) > 1 else "")
        if re.match(r"SM\d+_TMA_\w+$", plain):
            return Atom(plain)
        shown = plain + (f"<{', '.join(arguments)}>" if arguments else "")
        return cute.mma_atom(shown) if plain.startswith(("SM", "UniversalFMA")) or space.endswith("SM90") else None

    def _smem_atom(self, major: str, row: str, element: str) -> Any:
        bits, swizzle = _ROWS[row]
        wide = self.around.bits(element)
        if not wide:
            return Compact()
        across = bits // wide
        layout = Layout((8, across), (across, 1)) if major == "K" else Layout((across, 8), (1, across))
        base = {8: 4, 16: 3, 32: 2}.get(wide, 3)
        return Swizzled(Swizzle(swizzle, base, 3), layout)

    def _copy_atom(self, operation: str, element: str) -> Atom:
        operation = self.around.type(operation)
        plain, _, inner = (part.strip() for part in operation.partition("<"))
        moved = inner.removesuffix(">").strip()
        wide = self.around.bits(moved) if re.fullmatch(r"[\w:]+", moved) else None
        one_by_one = moved == element or plain.startswith(("Auto", "Default")) or (not inner and "_" in plain)
        return Atom(plain.rpartition("::")[2], width=(wide or 0) // 8, told=wide is not None or one_by_one)

    def _mma(self, plain: str, arguments: Sequence[str]) -> Any:
        atom = self._written(arguments[0])
        if plain == "MMA_Atom":
            return atom if isinstance(atom, Atom) else cute.mma_atom(arguments[0])
        layout = self._written(arguments[1]) if len(arguments) > 1 else Layout((1, 1, 1), (0, 0, 0))
        known = isinstance(atom, Atom) and isinstance(layout, Layout)
        return TiledMma(atom, layout, permuted=len(arguments) > 2) if known else None

    def _built(self, kind: TypeName, items: Sequence[Node]) -> Any:
        plain = kind.name.rpartition("::")[2]
        if plain in _TUPLES:
            made = tuple(self._given(i) for i in items)
            return None if None in made else made
        return None

    # calls -----------------------------------------------------------------------------------------------------------

    def _call(self, function: Name, arguments: Sequence[Node]) -> Any:
        plain = function.text.rpartition("::")[2]
        variable = self.around.named(function.text)
        if isinstance(variable, Tensor | Layout | Swizzled):
            return self._indexed(variable, arguments)
        template = function.arguments or ()
        if plain in _POINTERS and len(arguments) == 1:
            return self.around.pointer(arguments[0], _POINTERS[plain])
        if plain == "make_tensor" and arguments:
            return self._tensor(template, arguments)
        if plain in _MADE:
            made = tuple(self._given(a) for a in arguments)
            return None if None in made else made
        known = _tma if re.match(r"make_tma_(?:atom|copy)(?:_|$)", plain) else _FUNCTIONS.get(plain)
        if known is None and plain not in _MEASURES:
            return None
        found = [self._given(a) for a in arguments]
        if None in found or not found:
            return None
        if plain in _MEASURES:
            return self._measured(plain, found, template)
        assert known is not None
        try:  # it may be handed other kinds of values than it takes
            return known(self, found, template)
        except (TypeError, AttributeError, IndexError, ValueError):
            return None

    def _measured(self, name: str, found: Sequence[Any], template: Sequence[str]) -> Any:
        of = found[0]
        if isinstance(of, TiledCopy | TiledMma | OperandCopy) and name == "size":
            return of.size
        if isinstance(of, int | Expression):
            return of if name == "size" and not template else None
        if isinstance(of, Tensor):
            of = of.layout
        of = cute.unswizzled(of)
        path = [self.around.constant(t) for t in template]
        if not all(isinstance(p, int) for p in path):
            return None
        layout = of if isinstance(of, Layout) else None
        if layout is None and not _sizes(of):
            return _part_of(of, path) if name == "get" and isinstance(of, tuple) else None
        shape = layouts.mode(of.shape if isinstance(of, Layout) else of, *path)
        match name:
            case "size":
                return layouts.product(shape)
            case "cosize" if layout is not None and not path:
                return layout.cosize
            case "cosize" if layout is not None:
                return Layout(shape, layouts.mode(layout.stride, *path)).cosize
            case "rank":
                return layouts.rank(shape)
            case "depth":
                return layouts.depth(shape)
            case "shape":
                return shape
            case "stride" if layout is not None:
                return layouts.mode(layout.stride, *path)
            case "get":
                if layout is None:
                    return shape
                return Layout(shape, layouts.mode(layout.stride, *path))
        return None

    def _tensor(self, template: Sequence[str], arguments: Sequence[Node]) -> Any:
        base = self._given(arguments[0])
        parts = [self._given(a) for a in arguments[1:]]
        if not template and parts and not isinstance(base, tuple | Layout | Value):  # a pointer as it is
            base = self.around.pointer(arguments[0], "")
        if isinstance(base, Value) and base.type.kind in {"pointer", "array"}:
            layout = _layout(parts) if parts and None not in parts else None
            return None if layout is None else Tensor(layout, base)
        if template and base is not None:  # make_tensor<float>(shape): in registers
            layout = _layout([base, *parts])
            return Tensor(layout, element=named_type(template[0])) if layout is not None else None
        return None

    def _indexed(self, of: Any, arguments: Sequence[Node]) -> Any:
        at = [self._given(a) for a in arguments]
        return None if None in at else self._at(of, at)

    def at(self, of: Any, at: Sequence[Any]) -> Any:
        """A tensor or a layout at a coordinate; None where that is not told."""
        return None if None in at else _told(lambda given: self._at(*given), (of, at))

    @staticmethod
    def _at(of: Any, at: Sequence[Any]) -> Any:
        if len(at) == 1 and isinstance(at[0], tuple):
            at = list(at[0])
        if isinstance(of, Tensor):
            return cute.sliced(of, at)
        if any(isinstance(a, Free) for a in at):
            return cute.sliced(Tensor(of), at).layout
        return None

    def _method(self, function: Member, arguments: Sequence[Node]) -> Any:
        of = self._given(function.base)
        if of is None or isinstance(of, int | Expression | Value):
            return None
        name = function.name
        if (
            isinstance(of, TiledCopy | TiledMma | OperandCopy)
            and name in {"get_slice", "get_thread_slice"}
            and arguments
        ):
            thread = self._given(arguments[0])
            return Slice(of, thread) if isinstance(thread, Value) else None
        if isinstance(of, Tma) and name == "with":
            return of
        given = [self._given(a) for a in arguments]
        if isinstance(of, Tma) and name == "get_tma_tensor" and given and given[0] is not None:
            return Tensor(Layout.of(given[0]), of.tensor.base)
        if isinstance(of, Slice | TiledMma) and given and isinstance(given[0], Tensor):
            return self._part(of, name, given[0])
        if not arguments and isinstance(of, Tensor | Layout | Swizzled):
            if name == "layout":
                return of.layout if isinstance(of, Tensor) else of
            if name in {"shape", "stride", "size"}:
                return self._measured(name, (of,), ())
        return None

    def _part(self, of: Slice | TiledMma, name: str, tensor: Tensor) -> Any:
        mma = of if isinstance(of, TiledMma) else of.of
        if isinstance(mma, TiledMma):
            operand = name[-1]
            if name.startswith("partition_fragment_") and operand in cute.OPERANDS:
                return cute.in_registers(cute.multiplied_part(of, tensor, operand).plain.shape)
            if name.startswith("make_fragment_"):
                return cute.in_registers(tensor.plain.shape, tensor.kind if operand == "C" else None)
            if name.startswith("partition_") and operand in cute.OPERANDS:
                return cute.multiplied_part(of, tensor, operand)
        elif isinstance(mma, OperandCopy) and name in {"partition_S", "partition_D"}:
            return cute.multiplied_part(mma.mma, tensor, mma.operand)
        elif isinstance(of, Slice) and name in {"partition_S", "partition_D"}:
            return cute.copied_part(of, tensor)
        return tensor if name in {"retile_S", "retile_D"} else None


def _told(read: Callable[[Any], Any], given: Any) -> Any:
    """What a reader says; None where source asks for what there is not: sizes of 0, numbers of thousands of digits."""
    try:
        return read(given)
    except (LayoutError, RecursionError, ArithmeticError, ValueError):
        return None


def parsed(text: str) -> Node | None:
    """An expression as written; None where it is none."""
    try:
        tokens = [Token(w, 0) for w in words(text)]
        parser = Parser(tokens, lambda _: False)
        node = parser.expression()
    except (UnreadError, RecursionError):
        return None
    return node if parser.at == len(tokens) else None


def _sizes(nested: Any) -> bool:
    """Whether it is a size, or tuples of nothing else."""
    return all(map(_sizes, nested)) if isinstance(nested, tuple) else isinstance(nested, int | Expression)


def _part_of(nested: Any, path: Sequence[int]) -> Any:
    for place in path:
        nested = nested[place] if isinstance(nested, tuple) and 0 <= place < len(nested) else None
    return nested


def _layout(parts: Sequence[Any]) -> Any:
    """A layout of a shape and strides, of a shape alone, or of layouts for its modes."""
    first = parts[0]
    if isinstance(first, Layout | Swizzled):
        if len(parts) == 1:
            return first
        return Layout.joined(parts) if all(isinstance(p, Layout) for p in parts) else None
    if not _sizes(first):
        return None
    if len(parts) == 1 or isinstance(parts[1], Major):
        return Layout.of(first, right=len(parts) > 1 and parts[1].right)
    if not _sizes(parts[1]):
        return None
    return Layout(first, layouts.mapped(lambda _, stride: stride, first, parts[1]))


# ---- functions ------------------------------------------------------------------------------------------------------

_MEASURES = frozenset("size cosize rank depth shape stride get".split())
_Function = Callable[[Cute, Sequence[Any], Sequence[str]], Any]


def _on(of: Any, change: Callable[[Layout], Layout]) -> Any:
    """A tensor, or a swizzled layout, with another layout."""
    if isinstance(of, Tensor):
        return replace(of, layout=_on(of.layout, change))
    return Swizzled(of.swizzle, change(of.layout)) if isinstance(of, Swizzled) else change(of)


def _tiler(of: Any) -> Any:
    """A tiler as the algebra takes it: None keeps a mode whole."""
    if isinstance(of, Free):
        return None
    if not isinstance(of, tuple | int | Expression | Layout):
        raise LayoutError("a tiler of no sizes")
    return tuple(map(_tiler, of)) if isinstance(of, tuple) else of


def _by(operation: Callable[[Layout, Any], Layout]) -> _Function:
    return lambda _, given, __: _on(given[0], lambda layout: operation(layout, _tiler(given[1])))


def _composition(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    outer, *inner = given
    if isinstance(outer, Swizzle):
        return Swizzled(outer, inner[-1])
    return _on(outer, lambda layout: layouts.composition(layout, _tiler(inner[0])))


def _tile_to_shape(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    block, shape, *order = given
    if isinstance(block, Compact):
        return cute.covered(tuple(map(layouts.product, shape)))
    steps = order[0] if order and isinstance(order[0], tuple) else None
    if order and isinstance(order[0], Major) and order[0].right:
        steps = tuple(range(layouts.rank(shape), 0, -1))
    return _on(block, lambda layout: layouts.tile_to_shape(layout, shape, steps))


def _local_tile(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    tensor, tiler, at, *projection = given
    if projection:
        tiler, at = cute.diced(projection[0], tiler), cute.diced(projection[0], at)
    return cute.local_tile(tensor, _tiler(tiler), at)


def _local_partition(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    tensor, threads, index, *projection = given
    if projection:
        threads = cute.diced(projection[0], threads)
    return cute.local_partition(tensor, threads, index if isinstance(index, Value) else whole(index))


def _modes(cute_: Cute, given: Sequence[Any], template: Sequence[str]) -> Any:
    """`select<0, 2>(x)`."""
    places = [cute_.around.constant(t) for t in template]
    return _picked(given[0], places)


def _taken(cute_: Cute, given: Sequence[Any], template: Sequence[str]) -> Any:
    first, last = (cute_.around.constant(t) for t in template)
    return _picked(given[0], range(first, last))


def _picked(of: Any, places: Any) -> Any:
    if isinstance(of, tuple):
        return tuple(of[p] for p in places)
    return _on(of, lambda layout: Layout.joined(layout.modes[p] for p in places))


def _grouped(cute_: Cute, given: Sequence[Any], template: Sequence[str]) -> Any:
    first, last = (cute_.around.constant(t) for t in template)
    return _on(
        given[0], lambda o: Layout.joined([*o.modes[:first], Layout.joined(o.modes[first:last]), *o.modes[last:]])
    )


def _tiled_copy(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    atom, threads, *each = given
    ones = Layout((1,) * len(threads.modes), (0,) * len(threads.modes))
    return TiledCopy(atom, threads, each[0] if each else ones) if isinstance(atom, Atom) else None


def _tiled_mma(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    atom, *rest = given
    layout = rest[0] if rest else Layout((1, 1, 1), (0, 0, 0))
    known = isinstance(atom, Atom) and isinstance(layout, Layout)
    return TiledMma(atom, layout, permuted=len(rest) > 1) if known else None


def _tma(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    atom, tensor, stage, *tile = given
    if not isinstance(atom, Atom) or not isinstance(tensor, Tensor):
        return None
    return Tma(atom, tensor, tile[0] if tile else cute.unswizzled(stage).shape)


def _tma_partition(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    """The tensors of global and shared memory by tiles; of one that several blocks share out it is not told."""
    tma, _place, spread, shared, of_all = given
    alone = isinstance(tma, Tma) and "MULTICAST" not in tma.atom.name and spread.size == 1
    return (of_all, shared) if alone else None


def _operand_copy(operand: str) -> _Function:
    return lambda _, given, __: OperandCopy(given[0], given[1], operand) if isinstance(given[1], TiledMma) else None


def _like(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    of = given[0]
    return cute.in_registers(of.plain.shape, of.kind) if isinstance(of, Tensor) else cute.in_registers(of.shape)


def _fragment_c(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    mma, shape = given
    return cute.in_registers(cute.multiplied_part(mma, Tensor(Layout.of(shape)), "C").plain.shape)


def _ceil_div(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    return None if any(isinstance(g, Value) for g in given) else layouts.rounded_up(*given)


def _round_up(_: Cute, given: Sequence[Any], __: Sequence[str]) -> Any:
    if any(isinstance(g, Value | tuple) for g in given):
        return None
    return given[0] if given[1] == 1 else layouts.times(layouts.rounded_up(*given), given[1])


_FUNCTIONS: dict[str, _Function] = {
    "make_layout": lambda _, given, __: _layout(given),
    "make_ordered_layout": lambda _, given, __: Layout(given[0], layouts.ordered(given[0], given[1])),
    "make_identity_tensor": lambda _, given, __: Tensor(Layout.of(given[0])),
    "ceil_div": _ceil_div, "round_up": _round_up,
    "product_each": lambda _, given, __: tuple(map(layouts.product, given[0])),
    "product": lambda _, given, __: layouts.product(given[0]) if len(given) == 1 and isinstance(given[0], tuple) else None,
    "select": _modes, "take": _taken, "group_modes": _grouped, "group": _grouped,
    "coalesce": lambda _, given, __: _on(given[0], layouts.coalesced),
    "filter": lambda _, given, __: _on(given[0], layouts.filtered),
    "flatten": lambda _, given, __: layouts.flatten(given[0]) if isinstance(given[0], tuple) else None,
    "composition": _composition, "tile_to_shape": _tile_to_shape,
    "logical_divide": _by(layouts.logical_divide), "zipped_divide": _by(layouts.zipped_divide),
    "tiled_divide": _by(layouts.tiled_divide), "flat_divide": _by(layouts.flat_divide),
    "logical_product": _by(layouts.logical_product), "zipped_product": _by(layouts.zipped_product),
    "tiled_product": _by(layouts.tiled_product), "blocked_product": _by(layouts.blocked_product),
    "raked_product": lambda _, given, __: layouts.blocked_product(given[0], given[1], raked=True),
    "right_inverse": lambda _, given, __: layouts.right_inverse(given[0]),
    "complement": lambda _, given, __: layouts.complement(*given) if len(given) == 2 else None,
    "left_inverse": lambda _, given, __: layouts.left_inverse(given[0]),
    "tma_partition": _tma_partition,
    "local_tile": _local_tile, "local_partition": _local_partition,
    **{f"make_tiled_copy_{operand}": _operand_copy(operand) for operand in cute.OPERANDS},
    "make_tiled_copy": _tiled_copy, "make_tiled_mma": _tiled_mma,
    "make_tensor_like": _like, "make_fragment_like": _like, "partition_fragment_C": _fragment_c,
    "as_position_independent_swizzle_tensor": lambda _, given, __: given[0],
}  # fmt: skip


__all__ = ["Around", "Cute", "parsed"]
