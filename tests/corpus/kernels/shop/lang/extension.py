import triton
from triton import language as tl
from triton.language import num_programs


@triton.jit
def program_id(axis: tl.constexpr) -> tl.tensor:
    return tl.program_id(axis).to(tl.int64)
