"""Sizes of the types that CUDA sources name."""

from __future__ import annotations

import re

from opscope_tools.kernels.cuda.source_text import squeeze

#: bytes of element types, by how they are spelled
BYTES = {
    **dict.fromkeys(("char", "int8_t", "uint8_t", "bool", "unsigned char", "uchar"), 1),
    **dict.fromkeys(
        "half __half nv_bfloat16 __nv_bfloat16 short int16_t uint16_t bfloat16 at::Half c10::Half at::BFloat16 "
        "c10::BFloat16".split(), 2,
    ),
    "unsigned short": 2, "ushort": 2, "char2": 2, "uchar2": 2,
    **dict.fromkeys(
        "half2 __half2 nv_bfloat162 __nv_bfloat162 int float unsigned uint int32_t uint32_t char4 uchar4 short2 ushort2".split(), 4
    ),
    "unsigned int": 4,
    **dict.fromkeys("double int64_t uint64_t size_t float2 int2 uint2 short4 ushort4 long2".split(), 8),
    "long long": 8, "unsigned long long": 8,
    **dict.fromkeys("float4 int4 uint4 double2 longlong2 ulonglong2".split(), 16),
}  # fmt: skip
#: bits of those that CUTLASS names
_BITS = {
    "half_t": 16, "bfloat16_t": 16, "tfloat32_t": 32, "float_e4m3_t": 8, "float_e5m2_t": 8, "float_e2m1_t": 4, "float_ue8m0_t": 8,
}  # fmt: skip
_WHOLE = re.compile(r"u?int(\d+)b?_t|uint_bit_t<(\d+)>")
_WORDS = re.compile(r"\b(?:const|volatile|__restrict(?:__)?|static|constexpr|register|__shared__|extern)\b|[*&]")


def element_bytes(kind: str) -> int | None:
    """Bytes of what a pointer or array of the declared type holds; None where the name does not tell."""
    held = kind.rpartition("*")[0] or kind  # behind the `*` stand qualifiers of the pointer, some of them macros
    return BYTES.get(squeeze(_WORDS.sub(" ", held)))


def element_bits(name: str) -> int | None:
    """Bits of an element of a type that CUDA or CUTLASS names; None for other names."""
    plain = name.rpartition("::")[2].strip()
    if (whole := _WHOLE.fullmatch(plain)) is not None:
        return int(whole[1] or whole[2])
    size = BYTES.get(plain)
    return _BITS.get(plain) if size is None else 8 * size
