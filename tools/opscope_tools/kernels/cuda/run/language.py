"""What the functions of CUDA's language and libraries cost, and which type they give.

FLOPs are of one call on one lane, by the conventions of Triton's operations: add, multiply, divide and a transcendental
1, fma 2; comparisons, minimum and maximum, absolute values, rounding and casts 0. Inline assembly is here as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from opscope_tools.kernels.cuda.names.values import BOOL, FLOAT, HALF, INT, Type, named_type

#: arithmetic of one result; the type is that of the arguments
_ONE = frozenset(
    "exp expf exp2 exp2f exp10 exp10f expm1 expm1f __expf __exp10f log logf log2 log2f log10 log10f log1p log1pf __logf __log2f "
    "__log10f sqrt sqrtf rsqrt rsqrtf __fsqrt_rn __fsqrt_rd __frsqrt_rn cbrt cbrtf rcbrtf sin sinf cos cosf tan tanf __sinf __cosf "
    "__tanf asin asinf acos acosf atan atanf atan2 atan2f sinh sinhf cosh coshf tanh tanhf erf erff erfc erfcf erfinvf pow powf "
    "__powf fmod fmodf remainderf sinpi sinpif cospi cospif lgammaf tgammaf hexp hexp2 hlog hlog2 hsqrt hrsqrt hsin hcos htanh "
    "hrcp h2exp h2exp2 h2log h2log2 h2sqrt h2rsqrt h2sin h2cos h2tanh h2rcp __frcp_rn __fadd_rn __fsub_rn __fmul_rn __fdiv_rn "
    "__fdividef fdividef __dadd_rn __dmul_rn __hadd __hsub __hmul __hdiv __hadd_rn __hsub_rn __hmul_rn __hadd_sat __hmul_sat "
    "__hadd2 __hsub2 __hmul2 __h2div __hadd2_rn __hsub2_rn __hmul2_rn __hadd2_sat __hneg __hneg2 __tanhf".split()
)
_TWO = frozenset(
    "fma fmaf __fmaf_rn __fma_rn __fmaf_rz __hfma __hfma2 __hfma_sat __hfma2_sat __hfma_relu __hfma2_relu".split()
)
#: of the type of their arguments, without arithmetic
_SAME = frozenset(
    "max min fmax fmaxf fmin fminf fabs fabsf abs labs llabs floor floorf ceil ceilf round roundf rint rintf nearbyintf trunc "
    "truncf copysign copysignf __saturatef __habs __habs2 __hmax __hmin __hmax2 __hmin2 __hmax_nan __hmin_nan hfloor hceil hrint "
    "htrunc fdim umin umax clamp ldexpf ldexp scalbnf forward move __builtin_assume_aligned __ldcg_ __lowhigh2highlow __low2half2 "
    "__high2half2 __shfl_sync __shfl_xor_sync __shfl_down_sync __shfl_up_sync __shfl __shfl_xor __shfl_down __shfl_up "
    "__reduce_add_sync __reduce_max_sync __reduce_min_sync __nv_cvta_generic_to_global_impl".split()
)
_TO_BOOL = frozenset(
    "isnan isinf isfinite signbit __heq __hne __hlt __hle __hgt __hge __hisnan __hisinf __all_sync __any_sync __all __any "
    "__isGlobal __isShared elect_one_sync".split()
)
_TO_INT = frozenset(
    "__popc __popcll __clz __clzll __ffs __ffsll __brev __byte_perm __umulhi __mulhi __mul24 __umul24 __dp4a __dp2a __funnelshift_l "
    "__funnelshift_r __funnelshift_lc __ballot_sync __ballot __activemask __match_any_sync __float_as_int __float_as_uint "
    "__vsub4 __vadd4 __vsubss4 __vcmpne4 __vcmpeq4 __vabs4 __vmaxs4 __vmins4 __vmaxu4 __sad __usad lrintf lroundf __half_as_ushort "
    "__half_as_short __bfloat16_as_ushort __cvta_generic_to_shared __syncthreads_or __syncthreads_and __syncthreads_count "
    "__bitreverse __lane_id __smid clock __ldmatrix __nvvm_get_smem_pointer cast_smem_ptr_to_uint __fns".split()
)
_NOTHING = frozenset(
    "__syncthreads __syncwarp __threadfence __threadfence_block __threadfence_system printf __trap __nanosleep __pipeline_commit "
    "__pipeline_wait_prior cp_async_fence cp_async_wait cudaGridDependencySynchronize cudaTriggerProgrammaticLaunchCompletion "
    "__builtin_unreachable __builtin_trap assert __prof_trigger __assertfail unused ignore_unused".split()
)
_LITERAL_TYPES: dict[str, Type] = {
    "__int_as_float": FLOAT,
    "__uint_as_float": FLOAT,
    "__ushort_as_half": HALF,
    "__short_as_half": HALF,
}
_MAKES = re.compile(r"make_([a-z]+\d)")
_CONVERTS = re.compile(r"__(\w+?)2(\w+?)(?:_r[nzud][ai]?|_sat\w*)?")
_CONVERTED = {
    "float": "float", "half": "half", "half2": "half2", "float2": "float2", "bfloat16": "__nv_bfloat16", "int": "int",
    "bfloat162": "__nv_bfloat162", "uint": "unsigned", "short": "short", "ushort": "unsigned short", "double": "double",
    "ll": "long long", "ull": "unsigned long long", "uchar": "unsigned char", "char": "char", "half1": "half",
}  # fmt: skip
_SPECIAL = {
    "__halves2half2": "half2", "__low2half": "half", "__high2half": "half", "__low2float": "float", "__high2float": "float",
    "__low2bfloat16": "__nv_bfloat16", "__high2bfloat16": "__nv_bfloat16", "__halves2bfloat162": "__nv_bfloat162",
    "__low2bfloat162": "__nv_bfloat162", "__high2bfloat162": "__nv_bfloat162", "__float2half2_rn": "half2",
    "__half2half2": "half2", "__bfloat162bfloat162": "__nv_bfloat162", "__half22float2": "float2",
    "__bfloat1622float2": "float2", "__float22half2_rn": "half2", "__float22bfloat162_rn": "__nv_bfloat162",
    "__floats2half2_rn": "half2", "__floats2bfloat162_rn": "__nv_bfloat162", "__float2bfloat162_rn": "__nv_bfloat162",
    "__hadd2_": "half2", "__int2float_rn": "float", "clock64": "long long",
}  # fmt: skip
#: loads and stores by function: (bytes of what the pointer points to)
LOADS = frozenset("__ldg __ldcg __ldca __ldcs __ldlu __ldcv".split())
STORES = frozenset("__stcs __stcg __stwb __stwt".split())


@dataclass(frozen=True, slots=True)
class Effect:
    """FLOPs per lane of a call, and the type of its result; None: that of the arguments."""

    flops: int
    type: Type | None


def effect(name: str) -> Effect | None:
    """What a function of the language does; None for a name that is not known."""
    plain = name.rpartition("::")[2]
    if plain in _ONE:
        return Effect(1, None)
    if plain in _TWO:
        return Effect(2, None)
    if plain in _SAME:
        return Effect(0, None)
    if plain in _TO_BOOL:
        return Effect(0, BOOL)
    if plain in _TO_INT:
        return Effect(0, INT)
    if plain in _NOTHING or re.fullmatch(r"_*(?:mbarrier|fence|bar)_\w+", plain):
        return Effect(0, Type("void", "void"))
    if plain in _LITERAL_TYPES:
        return Effect(0, _LITERAL_TYPES[plain])
    if plain in _SPECIAL:
        return Effect(0, named_type(_SPECIAL[plain]))
    if (made := _MAKES.fullmatch(plain)) is not None and (kind := named_type(made[1])) is not None:
        return Effect(0, kind)
    if plain in {"make_half2", "make_bfloat162", "make_nv_bfloat162"}:
        return Effect(0, named_type("half2" if plain == "make_half2" else "__nv_bfloat162"))
    if (made := _CONVERTS.fullmatch(plain)) is not None and made[1] in _CONVERTED and made[2] in _CONVERTED:
        return Effect(0, named_type(_CONVERTED[made[2]]))
    return None


@dataclass(frozen=True, slots=True)
class Moved:
    """What one instruction moves to or from global memory, by each thread."""

    what: Literal["load", "store", "copy"]
    operation: str
    size: int
    #: which operand of the `asm` is the address
    operand: int


@dataclass(frozen=True, slots=True)
class Assembled:
    """What the instructions of one `asm` do, per thread; a product is per warp or warpgroup."""

    flops: int = 0
    moved: tuple[Moved, ...] = ()
    #: FLOPs of a matrix product, and the threads that make it together
    product: int = 0
    threads: int = 32
    #: instructions that are not known
    unknown: tuple[str, ...] = ()


_INSTRUCTION = re.compile(r"(?:^|[;{}\s])(?:@!?%?\w++\s++)?([a-z][\w]*(?:\.[\w:]+)*)\s*(?=[\s;{%\[]|$)")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_QUIET = re.compile(
    r"(?:mov|cvt|cvta|setp|selp|min|max|abs|and|or|xor|not|shl|shr|shf|lop3|prmt|bfe|bfi|popc|clz|brev|ldmatrix|stmatrix|bar|barrier|"
    r"fence|membar|mbarrier|prefetch|prefetchu|griddepcontrol|nanosleep|trap|bra|ret|exit|elect|setmaxnreg|vote|shfl|match|redux|"
    r"activemask|isspacep|createpolicy|discard|applypriority|dp4a|dp2a|vset|vset4|vsub4|vadd4|sad|movmatrix|stacksave|mapa|getctarank)\b.*"
    r"|(?:add|sub|mul|mad|div|rem|neg|mad24|mul24)(?:\.\w+)*\.[usb]\d+(?:\.\w+)?|(?:ld|st)\.(?:volatile\.)?shared.*|ld\.param.*|reg|"
    r"cp\.async\.(?:commit_group|wait_group|wait_all|mbarrier.*|bulk\.(?:commit_group|wait_group).*)|wgmma\.(?:fence|commit_group|"
    r"wait_group).*|st\.shared.*|tensormap.*|pred|b32|b64|b16|u32|r\d*|p\d*|q\d*"
)
_FLOATING = re.compile(
    r"(add|sub|mul|div|fma|mad|ex2|lg2|rcp|sqrt|rsqrt|sin|cos|tanh|neg)(?:\.\w+)*\.(f16x2|bf16x2|f16|bf16|f32|f64|f32x2)"
)
_MEMORY = re.compile(r"(ld|st)(?:\.\w+(?:::\w+)*){0,8}?\.global(?:\.\w+(?:::\w+)*){0,8}?(?:\.(v\d))?\.[a-z]{1,3}(\d+)")
_COPY = re.compile(r"cp\.async\.c[ag]\.shared(?:::\w+)?\.global")
#: the address in an instruction, and for a copy the bytes behind it
_ADDRESS = re.compile(r"[^;]*?\[\s*%(\d+)")
_COPIED = re.compile(r"[^;\[]*\[[^\]]*\]\s*,\s*\[\s*%(\d+)[^\]]*\]\s*,\s*(%?)(\d+)")


def assembled(text: str, numbers: Sequence[Any]) -> Assembled:
    """What the instructions in the text of an `asm` do; `numbers`: its operands, where they are whole numbers."""
    flops = product = 0
    threads, unknown, moved = 32, list[str](), list[Moved]()
    for match in _INSTRUCTION.finditer(text):
        name = match[1]
        if name in {"asm", "volatile", "memory"} or not ("." in name or _QUIET.fullmatch(name)):
            continue
        shape = _SHAPE.search(name)
        if (
            name.startswith(("mma.sync", "wgmma.mma_async", "wmma.mma"))
            and shape is not None
            and "sp" not in name.split(".")
        ):
            product += 2 * int(shape[1]) * int(shape[2]) * int(shape[3])
            threads = 128 if name.startswith("wgmma") else 32
        elif (one := _FLOATING.fullmatch(name)) is not None:
            flops += (2 if one[1] in {"fma", "mad"} else 1) * (2 if one[2].endswith("x2") else 1)
        elif (one := _MEMORY.match(name)) is not None:
            size = int((one[2] or "v1")[1:]) * int(one[3]) // 8
            address = _ADDRESS.match(text, match.end(1))
            moved.append(Moved("load" if one[1] == "ld" else "store", one[1], size, int(address[1]) if address else 99))
        elif _COPY.match(name) and (copied := _COPIED.match(text, match.end(1))) is not None:
            place = int(copied[3])
            amount: Any = place if not copied[2] else numbers[place] if place < len(numbers) else None
            if isinstance(amount, int):
                moved.append(Moved("copy", "cp.async", amount, int(copied[1])))
            else:
                unknown.append(name)
        elif not _QUIET.fullmatch(name):
            unknown.append(name)
    return Assembled(flops, tuple(moved), product, threads, tuple(dict.fromkeys(unknown)))
