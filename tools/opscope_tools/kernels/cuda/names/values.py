"""Types and values of CUDA expressions as the abstract run sees them.

A `Type` says whether arithmetic on it is floating point, and how many bytes it takes in memory. A `Value` adds what is
known of a whole number as a formula, how it depends on the thread index, and which memory a pointer leads to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from opscope_tools.kernels.cuda.names.element_types import BYTES
from opscope_tools.kernels.values.expressions import (
    COMPARISONS,
    Choice,
    Expression,
    Opaque,
    Operation,
    Prefix,
    Size,
    combine,
    folded,
    leaf,
)
from opscope_tools.kernels.values.quotients import cut, may_be_negative
from opscope_tools.kernels.values.threads import Key

Kind = Literal["float", "int", "generic", "vector", "object", "pointer", "array", "void", "unknown"]

_VECTOR = re.compile(r"(?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|dim3|uint3")
_PACKED = {
    **dict.fromkeys(("half2", "__half2", "half162"), "half"),
    **dict.fromkeys(("nv_bfloat162", "__nv_bfloat162", "bfloat162", "__hip_bfloat162"), "__nv_bfloat16"),
}  # fmt: skip
_FLOATS = re.compile(
    r"float|double|long double|_?_?half|__fp16|_Float16|(?:__)?(?:nv_|hip_)?bfloat16|(?:at|c10)::(?:Half|BFloat16|Float8\w*)|"
    r"__nv_fp8_\w+|__half_raw|nv_half|cutlass::(?:half_t|bfloat16_t|tfloat32_t)"
)
_INTS = re.compile(
    r"bool|size_t|ptrdiff_t|u?intptr_t|uint|uchar|ushort|ulong|wchar_t|(?:std::)?u?int\d+_t|"
    r"(?:(?:un)?signed|char|short|int|long)(?: (?:(?:un)?signed|char|short|int|long))*|__nv_fp8_storage_t"
)


@dataclass(frozen=True, slots=True)
class Type:
    """What a value is; `size` is its bytes as a formula, '' where that is not told."""

    kind: Kind
    name: str = ""
    size: str = ""
    #: pointed to, element of an array, lane of a vector
    of: Type | None = None
    lanes: int = 1
    #: fields of an object
    fields: dict[str, Type] = field(default_factory=dict, compare=False, hash=False)
    #: definition of an object's type, and what its template parameters stand for there
    struct: Any = field(default=None, compare=False, hash=False)
    #: of an object of a structure: the bytes at whose multiples it lies; 0: not told
    alignment: int = field(default=0, compare=False, hash=False)

    @property
    def arithmetic(self) -> bool:
        """Whether `+ - * /` on it is floating point."""
        return self.kind in {"float", "generic"} or (
            self.kind == "vector" and self.of is not None and self.of.kind == "float"
        )


#: how the types of enumerators are called
ENUMERATION = "enum "

INT = Type("int", "int", "4")
UNSIGNED = Type("int", "unsigned", "4")
SIZE = Type("int", "size_t", "8")
LONG = Type("int", "int64_t", "8")
BOOL = Type("int", "bool", "1")
FLOAT = Type("float", "float", "4")
DOUBLE = Type("float", "double", "8")
HALF = Type("float", "half", "2")
UNKNOWN = Type("unknown")
VOID = Type("void", "void")


def unsigned(kind: Type) -> bool:
    """Whether whole numbers of a type are never below none: what would be wraps around."""
    plain = kind.name.rpartition("::")[2]
    return kind.kind == "int" and (plain.startswith("u") or "unsigned" in plain or plain == "size_t")


def usual(a: Type, b: Type) -> Type:
    """The type in which C++ works out an operator on whole numbers of two types."""
    a, b = (kind if int(kind.size or 4) >= 4 else INT for kind in (a, b))
    if int(a.size or 4) != int(b.size or 4):
        return a if int(a.size or 4) > int(b.size or 4) else b
    return b if unsigned(b) else a


def pointer(of: Type) -> Type:
    """A pointer to a type."""
    return Type("pointer", f"{of.name}*", "8", of)


def named_type(name: str) -> Type | None:
    """The type that CUDA or C++ gives a name to; None for other names."""
    name = name.removeprefix("::")
    if name == "void":
        return VOID
    if name in _PACKED:
        return Type("vector", name, "4", named_type(_PACKED[name]), 2)
    if _VECTOR.fullmatch(name):
        lane = named_type(re.sub(r"\d$", "", name)) if name != "dim3" else INT
        lane = {"longlong": LONG, "uint3": INT}.get(re.sub(r"\d$", "", name)) or lane or INT
        lanes = 3 if name == "dim3" else int(name[-1])
        fields = dict.fromkeys("xyzw"[:lanes], lane)
        return Type("object", name, str(BYTES.get(name) or int(lane.size or 4) * lanes), lane, lanes, fields)
    if _FLOATS.fullmatch(name):
        wide = {"float": 4, "double": 8, "long double": 16}.get(name)
        return Type("float", name, str(wide or (1 if re.search(r"(?i)f(?:p|loat)8", name) else 2)))
    if _INTS.fullmatch(name):
        return Type("int", name, str(_whole_bytes(name)))
    return None


def _whole_bytes(name: str) -> int:
    if (exact := re.search(r"int(\d+)_t", name)) is not None:
        return int(exact[1]) // 8
    if name in {"size_t", "ptrdiff_t", "uintptr_t", "intptr_t", "ulong"} or "long" in name:
        return 8
    if "char" in name or name == "bool" or "fp8" in name:
        return 1
    return 2 if "short" in name else 4


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression comes to."""

    type: Type
    #: the whole number as an int or formula; None where it is not told
    number: Any = None
    #: digits of the thread index with their factors, where the number is their sum and `offset`
    digits: tuple[tuple[Key, Any], ...] = ()
    offset: Any = None
    #: on what it depends: thread, block, loop, data
    varies: frozenset[str] = frozenset()
    #: the memory that a pointer or array leads to: global, shared, local
    space: str = ""
    #: the memory that reading this reads: global, or '' for what needs no access
    where: str = ""
    #: the variable that a changed part belongs to
    root: str = ""
    #: how much more it is in the next lane of a warp, bytes for an address; None: as `varies` says, UNTOLD: not told
    step: Any = None
    #: parameters and arrays that an address may start from
    origin: tuple[str, ...] = ()
    #: of a pointer to a variable that is a pointer: the memory that this one leads to
    held: str = ""
    #: what is taken for granted of where it starts
    assumed: str = ""
    #: declaration of the pointer, or where it was set
    definition: str = ""
    literal: bool = False
    #: another way through a function, which is not taken, gives another number
    one_of_several: bool = False
    #: of an unsigned number: it is made of a counter that may be below none, where it wraps around
    below: bool = False
    #: (operator, left, right) of a comparison, (`and`, a, b), (`not`, a)
    test: tuple[Any, ...] = ()
    #: a lambda or the name of a device function
    function: Any = None
    #: one of CuTe's values: a tuple of sizes, a layout, a tensor, a tiled copy
    cute: Any = None
    #: what is known of the fields of an object
    parts: dict[str, Value] = field(default_factory=dict, compare=False)


#: a step from lane to lane that reading does not tell
UNTOLD = "?"
_WARP = 32


def lane_step(value: Value) -> Any:
    """How much more a value is in the next lane of a warp, lanes differing in the first axis of the block alone; None: not told."""
    if value.step is not None:
        return None if isinstance(value.step, str) else value.step
    return None if value.varies & {"thread", "data", "loop"} else 0


def told(step: Any) -> Any:
    """A step as a value keeps it."""
    return UNTOLD if step is None else step


def _stepped(operator: str, a: Value, b: Value, digits: tuple[tuple[Key, Any], ...]) -> Any:
    """The step of what an operator makes of two whole numbers."""
    x, y = lane_step(a), lane_step(b)
    along_x = all(axis == "x" for (axis, _, _), _ in digits)
    if digits and along_x and (found := _digits_step(digits)) is not None:
        return found
    if x is None or y is None:
        return UNTOLD
    if x == 0 and y == 0:
        return 0
    if operator in {"+", "-"}:
        return told(computed(operator, x, y))
    if operator == "*" and 0 in (x, y):
        return told(computed("*", x, b.number) if y == 0 else computed("*", y, a.number))
    if (
        operator == "/"
        and y == 0
        and isinstance(x, int)
        and isinstance(b.number, int)
        and b.number
        and x % b.number == 0
    ):
        return x // b.number  # exact, whatever it starts from
    if operator == "<<" and y == 0 and isinstance(b.number, int) and 0 <= b.number < 32:
        return told(computed("*", x, 1 << b.number))
    return UNTOLD


def _digits_step(digits: tuple[tuple[Key, Any], ...]) -> Any:
    """The step of a sum of digits of the thread index: whole warps lie along its first 32 values."""
    total: Any = 0
    for (axis, low, high), factor in digits:
        if axis != "x" or (isinstance(low, int) and low % _WARP == 0):
            continue
        if low != 1 or not (high is None or (isinstance(high, int) and high % _WARP == 0)):
            return None
        total = computed("+", total, factor)
    return total


def whole(number: Any, kind: Type = INT, varies: frozenset[str] = frozenset()) -> Value:
    """A whole number."""
    return Value(kind, number, varies=varies)


_MOST = 240


def may_wrap(value: Value) -> bool:
    """Whether an unsigned number may be told as one below none, for which it wraps around."""
    return unsigned(value.type) and value.number is not None and (value.below or may_be_negative(value.number))


def wrapped(value: Value) -> Value:
    """A whole number as its bits are read."""
    if not may_wrap(value):
        return value
    around, number = 1 << 8 * int(value.type.size or 4), value.number
    if isinstance(number, int):
        return replace(value, number=number % around)
    made = Choice(number, Operation(">=", number, 0), combine("+", number, around))
    fits = len(made.text) <= _MOST
    return replace(value, number=made if fits else None, digits=(), offset=None, below=False)


def _below_its_half(value: Value, kind: Type) -> Value:
    """A number of an unsigned type that is more than half of what that holds as the one below none that wraps around to it."""
    half = 1 << 8 * int(kind.size or 4) - 1
    return replace(value, number=(value.number + half) % (2 * half) - half) if isinstance(value.number, int) else value


def ordered(operator: str, a: Value, b: Value) -> tuple[Any, ...]:
    """The test whether one whole number is less than another, or as much, as C++ compares their types."""
    kind = usual(a.type, b.type)
    if not unsigned(kind):
        return operator, a, b
    a, b = converted(a, kind), converted(b, kind)
    if isinstance(a.number, int) and isinstance(b.number, int):
        return operator, wrapped(a), wrapped(b)
    a, b = _below_its_half(a, kind), _below_its_half(b, kind)
    if operator in {"==", "!="}:
        return operator, a, b

    def test(word: str, *parts: Value) -> Value:
        told = computed(word, *(part.number for part in parts)) if word == ">=" else None
        number = told if isinstance(told, int) else None
        return Value(BOOL, number, varies=a.varies | b.varies, test=(word, *parts))

    # what is below none is more than each that is not
    less, more = (a, b) if operator in {"<", "<="} else (b, a)
    one, other = (test(">=", side, whole(0)) if may_wrap(side) else None for side in (less, more))
    as_told = test(operator, a, b)
    if one is None:
        return as_told.test if other is None else test("or", test("not", other), as_told).test
    if other is None:
        return test("and", one, as_told).test
    around = test("not", other)
    return test("or", test("and", one, around), test("and", test("or", one, around), as_told)).test


def computed(operator: str, a: Any, b: Any) -> Any:
    """What an operator makes of two whole numbers or formulas; None where a formula would not be one of sizes."""
    if a is None or b is None:
        return None
    operator = {"||": "or", "&&": "and"}.get(operator, operator)
    if isinstance(a, int) and isinstance(b, int):
        return folded(operator, a, b)
    if operator in {"<<", ">>"} and isinstance(b, int) and 0 <= b < 63:  # which rounds down
        operator, b = ("*" if operator == "<<" else "//"), 1 << b
    if operator == "&" and isinstance(b, int) and b > 0 and b & (b + 1) == 0:
        made: Any = combine("%", a, b + 1)  # of what is below none too
    elif operator in COMPARISONS:
        return Operation(operator, a, b)
    elif operator in {"/", "%"}:
        made = cut("//" if operator == "/" else "%", a, b)
    elif operator not in {"+", "-", "*", "//"}:
        return None
    elif operator == "*" and 0 in (a, b):
        return 0
    else:
        made = combine(operator, a, b)
    return None if isinstance(made, Expression) and len(made.text) > _MOST else made


def asked(test: Value) -> Size:
    """What a test asks, as one expression; what is not told of it stands there without a name."""
    if not test.test or isinstance(test.number, int):
        return Opaque("") if test.number is None else test.number
    word, *parts = test.test
    if word == "not":
        return Prefix("not", asked(parts[0]))
    return Operation(word, *map(asked, parts))


def arithmetic(operator: str, a: Value, b: Value, kind: Type) -> Value:
    """The value of an operator on whole numbers."""
    if unsigned(kind) and operator in {"/", "%", ">>"}:
        a, b = wrapped(a), wrapped(b)
    number = computed(operator, a.number, b.number)
    several = a.one_of_several or b.one_of_several
    made = Value(kind, number, varies=a.varies | b.varies, literal=a.literal and b.literal, one_of_several=several)
    if unsigned(kind) and (a.below or b.below):
        made = replace(made, below=True)
    digits, offset = _digits_of(operator, a, b)
    if made.varies:
        made = replace(made, step=_stepped(operator, a, b, digits))
    return replace(made, digits=digits, offset=offset) if digits else made


def _digits_of(operator: str, a: Value, b: Value) -> tuple[tuple[tuple[Key, Any], ...], Any]:
    """The digits of the thread index that an operator leaves, and the number beside them; none where it is no such sum."""
    if not (a.digits or b.digits) or operator not in {"+", "-", "*", "/", "%", "<<", ">>", "&"}:
        return (), None
    digits: tuple[tuple[Key, Any], ...] | None = None
    offset: Any = None
    x, y = _linear(a), _linear(b)
    if operator in {"+", "-"} and x is not None and y is not None:
        if not (operator == "-" and y[0]) and not {k for k, _ in x[0]} & {k for k, _ in y[0]}:
            digits, offset = (*x[0], *y[0]), computed(operator, x[1], y[1])
    elif operator in {"*", "<<"} and x is not None and y is not None and (not x[0] or not y[0]):
        (inner, start), by = (x, y[1]) if x[0] else (y, x[1])
        if operator == "<<":
            by = computed("<<", 1, by) if a.digits else None
        if by is not None:
            digits, offset = tuple((k, computed("*", c, by)) for k, c in inner), computed("*", start, by)
    elif x is not None and y is not None and len(x[0]) == 1 and not y[0] and x[1] == 0 and x[0][0][1] == 1:
        digits, offset = _part(operator, x[0][0][0], y[1]), 0
    if digits is None or offset is None or any(c is None for _, c in digits):
        return (), None
    return digits, offset


def _linear(value: Value) -> tuple[tuple[tuple[Key, Any], ...], Any] | None:
    """(digits, offset) of a number; None where it depends on the thread in another way."""
    if value.digits:
        return value.digits, value.offset
    return None if "thread" in value.varies or value.number is None else ((), value.number)


def _part(operator: str, key: Key, by: Any) -> tuple[tuple[Key, Any], ...] | None:
    """The digit that dividing another, or the rest of that, gives."""
    axis, low, high = key
    if operator == ">>":
        operator, by = "/", computed("<<", 1, by)
    elif operator == "&" and isinstance(by, int) and by & (by + 1) == 0:
        operator, by = "%", by + 1
    if by is None or may_be_negative(by):
        return None
    place = computed("*", low, by) if operator in {"/", "%"} and by not in (0, None) else None
    if place is None:
        return None
    if operator == "%" and isinstance(place, int) and isinstance(high, int) and place >= high:
        return ((key, 1),)
    if operator == "/" and place == high:
        return None
    return (((axis, place, high), 1),) if operator == "/" else (((axis, low, place), 1),)


def thread_index(axis: str, size: Any, lanes: str = "x") -> Value:
    """`threadIdx.x`, or 0 where the axis has one thread; `lanes`: the axis along which a warp lies."""
    if size == 1:
        return whole(0, UNSIGNED)
    name = leaf(f"threadIdx.{axis}")
    return Value(UNSIGNED, name, (((axis, 1, None), 1),), 0, frozenset({"thread"}), step=int(axis == lanes))


def literal(text: str) -> Value:
    """A literal."""
    plain = text.replace("'", "")
    if re.fullmatch(r"(?:0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)[uUlL]*", plain):
        digits = plain.rstrip("uUlL")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        suffix = plain[len(plain.rstrip("uUlL")) :].lower()
        number = int(digits, 8) if octal and not set(digits) & {"8", "9"} else int(digits, 0) if not octal else None
        wide = "l" in suffix or (number or 0) >> 32 or ((number or 0) >> 31 and digits.isdigit() and not suffix)
        around = "u" in suffix or (not digits.isdigit() and (number or 0) >> (63 if wide else 31))
        kind = (SIZE if around else LONG) if wide else UNSIGNED if around else INT
        return replace(whole(number, kind), literal=True)
    return Value(FLOAT if plain[-1:] in {"f", "F"} else DOUBLE, literal=True)


def converted(found: Value, kind: Type) -> Value:
    """A value as one of another type."""
    if kind.kind == "unknown" or kind is found.type or found.cute is not None:
        return found
    if kind.kind == "pointer":
        space = found.space if found.type.kind in {"pointer", "array"} or found.origin else ""
        return replace(found, type=kind, space=space, number=found.number if found.number == 0 else None, where="")
    if kind.kind == "int" and found.type.kind in {"int", "unknown"} and kind.name != "bool":
        if int(kind.size or 4) > int(found.type.size or 4):
            found = wrapped(found)
        # a counter stands for itself: that it may be below none is not told by its number
        counter = unsigned(kind) and not unsigned(found.type) and "loop" in found.varies
        made = replace(found, type=kind, below=unsigned(kind) and (found.below or counter))
        return wrapped(made) if int(kind.size or 4) < 4 else made
    if kind.name == "bool":
        return replace(found, type=BOOL)
    made = Value(kind, varies=found.varies, literal=found.literal and kind.kind == "float")
    return replace(made, origin=found.origin, space=found.space) if kind.kind == "object" else made


__all__ = [
    "BOOL", "DOUBLE", "FLOAT", "HALF", "INT", "LONG", "SIZE", "UNKNOWN", "UNSIGNED", "UNTOLD", "VOID", "Kind", "Type", "Value",
    "arithmetic", "asked", "computed", "converted", "lane_step", "literal", "may_wrap", "named_type", "ordered", "pointer",
    "thread_index", "told", "unsigned", "usual", "whole", "wrapped",
]  # fmt: skip
