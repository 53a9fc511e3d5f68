"""Names and types of one function in the abstract run: variables block by block, template parameters, type aliases.

What the function does not declare is looked up in its file: constants through host_text.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from opscope_tools.kernels.cuda.declarations import constants_named
from opscope_tools.kernels.cuda.names.functions import Function, Library
from opscope_tools.kernels.cuda.names.structures import Struct
from opscope_tools.kernels.cuda.names.values import (
    BOOL,
    ENUMERATION,
    FLOAT,
    INT,
    UNKNOWN,
    Type,
    Value,
    computed,
    named_type,
    pointer,
    whole,
)
from opscope_tools.kernels.cuda.source_text import split_arguments
from opscope_tools.kernels.cuda.syntax.expressions import Parser, UnreadError
from opscope_tools.kernels.cuda.syntax.nodes import Binary, Name, Node, Number, SizeOf, TypeName
from opscope_tools.kernels.cuda.syntax.tokens import Token, words
from opscope_tools.kernels.values.expressions import Expression, Quantity, render, settled
from opscope_tools.kernels.values.notation import Counts, read_size

_STRIPPED = re.compile(r"^(?:typename|const|struct)\s++")
_GIVEN = re.compile(r"_*[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_*")


@dataclass
class Scope:
    """What one function's names stand for."""

    function: Function
    library: Library
    #: template parameters: types, numbers or functions
    types: dict[str, Type] = field(default_factory=dict)
    blocks: list[dict[str, Value]] = field(default_factory=lambda: [{}])
    #: compile-time names of the kernel, that formulas may hold
    compile_time: frozenset[str] = frozenset()
    #: types that stand for one of CuTe's values
    cute: dict[str, Any] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        """The variable of that name."""
        for block in reversed(self.blocks):
            if name in block:
                return block[name]
        return None

    def declare(self, name: str, value: Value) -> None:
        """A new variable in the innermost block."""
        self.blocks[-1][name] = value

    def change(self, name: str, value: Value) -> None:
        """Give a declared variable another value."""
        for block in reversed(self.blocks):
            if name in block:
                block[name] = value
                return

    def called(self, name: str) -> list[Function]:
        """The device functions that a name may mean here."""
        return self.library.called(name, self.function.code.source)

    def constant(self, name: str) -> Value:
        """A constant of the file; of an unknown type where nothing tells one."""
        if "is_same" in name:
            return self._trait(name)  # of this function's template parameters
        known, key = self.library.constants, (self.function.file, name)
        if key not in known:
            known[key] = self._constant(name)
        found: Value = known[key]
        if found.type.kind == "unknown" and found.number is None and name in self.compile_time:
            return replace(found, number=Quantity(name))
        return found

    def _constant(self, name: str) -> Value:
        if name in {"true", "false"}:
            return whole(int(name == "true"))
        if name in {"nullptr", "NULL"}:
            return Value(pointer(UNKNOWN), 0)
        if name == "warpSize":
            return whole(32)
        if re.fullmatch(r"INFINITY|NAN|HUGE_VALF?|FLT_\w+|M_\w+|CUDART_\w+_F", name):
            return Value(FLOAT, literal=True)
        if re.match(r"(?:::)?(?:std|cuda::std|cute|ck)::is_\w+", name):
            return self._trait(name)
        declared = self._declared(name)
        if declared is not None:
            return declared
        if kind := self.library.enumeration(self.function.code.source, name):
            return Value(Type("int", f"{ENUMERATION}{kind}", "4"), Quantity(f"{kind}::{name.rpartition('::')[2]}"))
        found = self.library.settled(self.function.code.source, name)
        if isinstance(found, int):
            return whole(found)
        if isinstance(found, Expression):
            return whole(found)
        # in capitals and defined nowhere: the compiler is given it, `-D_N_=64`
        return Value(UNKNOWN, Quantity(name) if _GIVEN.fullmatch(name) else None)

    def _trait(self, name: str) -> Value:
        """`std::is_same_v<A, B>`, decided where both are told; other traits are the same in every thread."""
        found = re.fullmatch(r".*\bis_same(?:_v)?<(.*)>(?:::value)?", name)
        kinds = [self.read_type(part) for part in split_arguments(found[1])] if found else []
        told = len(kinds) == 2 and kinds[0] is not None and kinds[1] is not None
        if told and (kinds[0] == kinds[1] or "generic" not in [k.kind for k in kinds if k is not None]):
            return whole(int(kinds[0] == kinds[1]))
        return Value(BOOL, root=name)

    def _declared(self, name: str) -> Value | None:
        """A constant or table of the file whose type is written there; None for whole numbers and what is not found."""
        source = self.function.code.source
        for one in constants_named(source, name):
            kind = named_type(one.type)
            if kind is None:
                continue
            if one.sign == "[":
                storage = one.qualifiers
                space = "constant" if "__constant__" in storage else "global" if "__device__" in storage else "local"
                written = f"{one.words.strip()} {name}[...] ({self.function.file}:{source.line(one.position)})"
                return Value(with_size(kind, None), space=space, definition=written)
            if kind.kind != "int":
                return Value(kind)
        return None

    # types -------------------------------------------------------------------------------------------------------

    def type_of(self, name: TypeName) -> Type:
        """The type that is written so; pointers included, references not."""
        made = self._base(name)
        for depth in range(name.pointers):
            if depth == name.pointers - 1:
                for _ in range(name.rows):
                    made = with_size(made, None)
            made = pointer(made)
        return made

    def _base(self, name: TypeName) -> Type:
        plain = name.name
        if not name.arguments and plain in self.types:
            return self.types[plain]
        known = named_type(plain) or named_type(
            plain.rpartition("::")[2] if plain.startswith(("std::", "cuda::")) else plain
        )
        if known is not None:
            return known
        if plain in {"", "auto", "?"} or plain.startswith("decltype"):
            return UNKNOWN
        struct = (
            self.library.struct(self.function.code.source, plain)
            if "::" not in plain or plain.count("::") < 2
            else None
        )
        if struct is not None:
            return self._object(struct, name)
        if not self._told(plain, name.arguments):
            return UNKNOWN
        shown = plain + (f"<{', '.join(name.arguments)}>" if name.arguments else "")
        return Type("object", shown, f"sizeof({shown})" if not re.search(r"[()\"{}]", shown) else "")

    def _object(self, struct: Struct, name: TypeName) -> Type:
        """A structure with its fields, its template parameters settled."""
        shown = name.name + (f"<{', '.join(name.arguments)}>" if name.arguments else "")
        key = self.function.file, self.function.start, shown, tuple((n, t.name) for n, t in self.types.items())
        known = self.library.objects
        if key in known:
            return known[key]
        known[key] = UNKNOWN  # a structure that holds itself
        inner = self.within(struct, name.arguments)
        bases = [inner.type_of(TypeName(text)) for text in struct.bases]
        fields: dict[str, Type] = {name: kind for base in bases for name, kind in base.fields.items()}
        parts = [(base if _derivable(base) else UNKNOWN, "") for base in bases]
        for one in struct.fields:
            kind = inner.type_of(one.type)
            for _ in range(one.pointers):
                kind = pointer(kind)
            for dimension in reversed(one.dimensions):
                kind = with_size(kind, inner.number(dimension) if dimension is not None else None)
            fields[one.name] = kind
            parts.append((kind, struct.aligned.get(one.name, "")))
        told = self._told(name.name, name.arguments)
        size, alignment = _laid_out(struct, parts, inner)
        size = size or (f"sizeof({shown})" if told and not re.search(r"[()\"{}]", shown) else "")
        known[key] = Type("object", shown, size, fields=fields, struct=(struct, inner), alignment=alignment)
        return known[key]

    def within(self, struct: Struct, arguments: tuple[str, ...]) -> Scope:
        """The names inside a structure."""
        function = Function(struct.name, struct.code, struct.start, struct.end, (), (), None, ())
        inner = Scope(function, self.library, compile_time=self.compile_time)
        for (name, kind), text in zip(struct.template, arguments, strict=False):
            if kind:
                inner.types[name] = self.read_type(text) or UNKNOWN
            else:
                inner.declare(name, whole(self.number_of(text)))
        for alias in struct.aliases:
            inner.types[alias.name] = inner.type_of(alias.type) if alias.type is not None else UNKNOWN
        for constant in struct.constants:
            if constant.value is not None and not constant.dimensions:
                inner.declare(constant.name, whole(inner.number(constant.value)))
        return inner

    def number_of(self, text: str) -> Any:
        """A whole number that a template argument spells: an int, a formula, or None."""
        try:
            node = Parser([Token(w, self.function.start) for w in words(text)], lambda _: False).expression()
        except (UnreadError, RecursionError):
            return None
        return self.number(node)

    def number(self, node: Node) -> Any:
        """A constant expression: an int, a formula, or None."""
        match node:
            case Number(text=text) if text.isdigit():
                return int(text)
            case Name(text=text):
                found = self.find(text) or self.constant(text)
                return found.number
            case Binary(operator=operator, left=left, right=right):
                return computed(operator, self.number(left), self.number(right))
            case SizeOf(text=text):
                kind = self.read_type(text)
                return None if kind is None or not kind.size else read_size(kind.size)
        return None

    def _told(self, plain: str, arguments: tuple[str, ...]) -> bool:
        """Whether a type's name means the same in the kernel: a device function's own parameters do not."""
        own = {p.name for p in self.function.template}
        used = set(re.findall(r"[A-Za-z_]\w*", " ".join((plain, *arguments))))
        return not (own & used - self.compile_time)

    def read_type(self, text: str) -> Type | None:
        """The type that a template argument spells; None where it spells none."""
        text = _STRIPPED.sub("", text.strip())
        if text in self.types:
            return self.types[text]
        tokens = [Token(w, 0) for w in words(text)]
        try:
            parser = Parser(tokens, lambda _: True)
            found = parser.type_name()
        except (UnreadError, RecursionError):
            return None
        if found is None or parser.at != len(tokens):
            return None
        made = self.type_of(found)
        return made if named_type(found.name) is not None or found.name in self.types or found.arguments else None


def _derivable(base: Type) -> bool:
    """Whether a structure begins with a base class as with a field: an empty one, or one whose end is filled, takes less."""
    return base.struct is not None and base.struct[0].plain and bool(base.fields)


def _laid_out(struct: Struct, parts: list[tuple[Type, str]], inner: Scope) -> tuple[str, int]:
    """(bytes, alignment) of a structure as the compiler lays it out, with what `alignas` says of each part; '' and 0 where not told."""
    least = inner.number_of(struct.alignment) if struct.alignment else 1
    aligned = [_aligned(kind, inner.number_of(text) if text else 1) for kind, text in parts]
    widest = max([*aligned, least]) if isinstance(least, int) and struct.whole and all(aligned) else 0
    if not struct.whole or not parts or any(not kind.size for kind, _ in parts):
        return "", widest
    if not widest or not all(kind.size.isdigit() for kind, _ in parts):
        alone = parts[0][0].size if len(parts) == 1 and not struct.aligned else ""
        counts = Counts()  # one for both: it numbers what it does not take apart
        same = bool(alone) and least is not None and counts.read(alone) == counts.read(least)
        return alone if not struct.alignment or same else "", widest
    at = 0
    for (kind, _), align in zip(parts, aligned, strict=True):
        at = max(at, int(kind.size)) if struct.union else -(-at // align) * align + int(kind.size)
    return str(-(-at // widest) * widest), widest


def _aligned(kind: Type, least: Any) -> int:
    """Bytes at whose multiples a part of a type lies that is asked to lie at those of `least`; 0: not told."""
    own = _alignment(kind)
    return max(own, least) if own and isinstance(least, int) else 0


def _alignment(kind: Type) -> int:
    """Bytes at whose multiples a type lies; 0: not told."""
    while kind.kind == "array" and kind.of is not None:
        kind = kind.of
    if kind.kind in {"int", "float", "pointer", "vector"} and kind.size.isdigit():
        return int(kind.size)
    if kind.kind == "object" and kind.struct is not None:
        return kind.alignment
    if kind.kind == "object" and kind.of is not None and kind.of.size.isdigit() and kind.size.isdigit():
        return min(int(kind.size), 16) if kind.lanes in {2, 4} else int(kind.of.size)
    return 0


def generic(name: str) -> Type:
    """A type that is a template parameter of the kernel."""
    return Type("generic", name, f"sizeof({name})")


def with_size(kind: Type, length: Any) -> Type:
    """An array of a type."""
    total = render(settled("*", length, read_size(kind.size))) if length is not None and kind.size else ""
    return Type("array", f"{kind.name}[]", total, kind)


__all__ = ["INT", "Scope", "generic", "with_size"]
