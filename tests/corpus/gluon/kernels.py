"""Gluon kernels of several kinds, each with its launch: pointers, asynchronous copies, descriptors, products, warps of their own."""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    tcgen05_commit,
    tcgen05_mma,
)
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor


@gluon.jit
def scale_rows(x, y, width, factor, BLOCK: gl.constexpr, layout: gl.constexpr):
    row = gl.program_id(0)
    at = gl.arange(0, BLOCK, layout=layout)
    inside = at < width
    values = gl.load(x + row * width + at, mask=inside, other=0.0)
    gl.store(y + row * width + at, values * factor, mask=inside)


def scale(x, factor):
    y = torch.empty_like(x)
    layout = gl.BlockedLayout([1], [32], [4], [0])
    scale_rows[(x.shape[0],)](x, y, x.shape[1], factor, BLOCK=triton.next_power_of_2(x.shape[1]), layout=layout, num_warps=4)
    return y


@gluon.jit
def add_through_shared(a, b, out, count, BLOCK: gl.constexpr, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    held = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    first = gl.program_id(0) * BLOCK
    at = first + gl.arange(0, BLOCK, layout)
    async_copy.async_load(held.index(0), a + at, mask=at < count)
    async_copy.async_load(held.index(1), b + at, mask=at < count)
    async_copy.commit_group()
    async_copy.wait_group(0)
    total = held.index(0).load(layout) + held.index(1).load(layout)
    gl.store(out + at, total, mask=at < count)


def add(a, b):
    out = torch.empty_like(a)
    add_through_shared[(triton.cdiv(a.numel(), 1024),)](a, b, out, a.numel(), 1024, 2, num_warps=4)
    return out


@gluon.constexpr_function
def columns_of(block, warps):
    width = 256
    while width > block // warps:
        width //= 2
    return width


@gluon.jit
def matmul_tma(a_desc, b_desc, c_desc, ADD: gl.constexpr, num_warps: gl.constexpr):
    rows: gl.constexpr = c_desc.block_type.shape[0]
    columns: gl.constexpr = c_desc.block_type.shape[1]
    step: gl.constexpr = a_desc.block_type.shape[1]
    inner = a_desc.shape[1]
    n: gl.constexpr = columns_of(columns, num_warps)
    parts: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, n, 16])
    left = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    right = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    row, column = gl.program_id(0) * rows, gl.program_id(1) * columns
    total = gl.zeros((rows, columns), dtype=gl.float32, layout=parts)
    phase = 0
    for k in range(0, inner, step):
        mbarrier.expect(ready, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        tma.async_load(a_desc, [row, k], ready, left)
        tma.async_load(b_desc, [column, k], ready, right)
        mbarrier.wait(ready, phase=phase)
        phase ^= 1
        total = warpgroup_mma(left, right.permute((1, 0)), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
    if ADD:
        total = total + 1.0
    made = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    made.store(total.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [row, column], made)
    tma.store_wait(pendings=0)


def matmul(a, b, c, block_m=128, block_n=128, block_k=64):
    layout = gl.NVMMASharedLayout.get_default_for([block_m, block_k], gl.float16)
    a_desc = TensorDescriptor.from_tensor(a, [block_m, block_k], layout)
    b_desc = TensorDescriptor.from_tensor(b, [block_n, block_k], layout)
    c_desc = TensorDescriptor.from_tensor(c, [block_m, block_n], layout)
    grid = (triton.cdiv(a.shape[0], block_m), triton.cdiv(b.shape[0], block_n))
    matmul_tma[grid](a_desc, b_desc, c_desc, False, num_warps=4)


@gluon.jit
def bring(descs, bars, buffers, row, width, STEP: gl.constexpr):
    source, target = descs
    empty, full = bars
    depth: gl.constexpr = buffers.shape[0]
    for i in range(gl.cdiv(width, STEP)):
        slot = i % depth
        mbarrier.wait(empty.index(slot), i // depth & 1 ^ 1)
        mbarrier.expect(full.index(slot), source.block_type.nbytes)
        tma.async_load(source, [row, i * STEP], full.index(slot), buffers.index(slot))


@gluon.jit
def double(descs, bars, buffers, row, width, STEP: gl.constexpr, layout: gl.constexpr):
    source, target = descs
    empty, full = bars
    depth: gl.constexpr = buffers.shape[0]
    for i in range(gl.cdiv(width, STEP)):
        slot = i % depth
        mbarrier.wait(full.index(slot), i // depth & 1)
        buffers.index(slot).store(buffers.index(slot).load(layout) * 2.0)
        fence_async_shared()
        tma.async_store(target, [row, i * STEP], buffers.index(slot))
        tma.store_wait(0)
        mbarrier.arrive(empty.index(slot), count=1)


@gluon.jit
def doubled(source, target, width, ROWS: gl.constexpr, STEP: gl.constexpr, DEPTH: gl.constexpr, num_warps: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, num_warps], [1, 0])
    buffers = gl.allocate_shared_memory(gl.float32, [DEPTH, ROWS, STEP], source.layout)
    empty = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [DEPTH, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(DEPTH):
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(full.index(i), count=1)
    row = gl.program_id(0) * ROWS
    gl.warp_specialize(
        [
            (double, ((source, target), (empty, full), buffers, row, width, STEP, layout)),
            (bring, ((source, target), (empty, full), buffers, row, width, STEP)),
        ],
        [1],
        [24],
    )


def twice(x, y):
    layout = gl.NVMMASharedLayout.get_default_for([32, 64], gl.float32)
    source = TensorDescriptor.from_tensor(x, [32, 64], layout)
    target = TensorDescriptor.from_tensor(y, [32, 64], layout)
    doubled[(triton.cdiv(x.shape[0], 32),)](source, target, x.shape[1], 32, 64, 3, num_warps=4)


@gluon.jit
def product_in_tensor_memory(a_desc, b_desc, d, stride, M: gl.constexpr, N: gl.constexpr, K: gl.constexpr):
    left = gl.allocate_shared_memory(gl.float16, [M, K], a_desc.layout)
    right = gl.allocate_shared_memory(gl.float16, [K, N], b_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(ready.index(0), count=1)
    mbarrier.init(ready.index(1), count=1)
    mbarrier.expect(ready.index(0), 2 * (M * K + K * N))
    tma.async_load(a_desc, [0, 0], ready.index(0), left)
    tma.async_load(b_desc, [0, 0], ready.index(0), right)
    mbarrier.wait(ready.index(0), 0)
    total = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([128, N], col_stride=1))
    tcgen05_mma(left, right, total, use_acc=False)
    tcgen05_commit(ready.index(1))
    mbarrier.wait(ready.index(1), 0)
    layout: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [4, 1], [0, 1])
    made = total.load(layout)
    rows = gl.arange(0, M, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, N, layout=gl.SliceLayout(0, layout))
    gl.store(d + rows[:, None] * stride + columns[None, :], made)


def product(a_desc, b_desc, d):
    product_in_tensor_memory[(1,)](a_desc, b_desc, d, d.stride(0), 128, 64, 32)
