"""Kernels of CuTe-DSL whose launches depend on the size of a row."""

from typing import Optional

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from elsewhere import transform

from base import Base, Config, total


class Rows(Base):
    def __init__(self, dtype, n, wide: bool = False):
        super().__init__(dtype, n, stages=2 if wide else 1)
        config = Config.for_size(n, dtype.width, wide=wide)
        self.threads = config.threads
        self.clusters = config.clusters

    def per_row(self):
        for limit, threads in [(64, 8), (1024, 32), (4096, 64)]:
            if self.n <= limit:
                return threads
        return 128

    @cute.jit
    def __call__(self, mX: cute.Tensor, mY: cute.Tensor, mW: Optional[cute.Tensor], rows: Int32, stream):
        assert mX.element_type == self.dtype
        if const_expr(self.n % self.vector != 0):
            raise ValueError("whole vectors")
        copy, tiler, per_row = self.tiled(self.threads)
        threads = copy.size
        heads = mX.shape[1] if const_expr(self.stages == 2) else 1
        self.kernel(mX, mY, mW, tiler, copy, per_row).launch(
            grid=[cute.ceil_div(mX.shape[0], tiler[0]), self.clusters, heads],
            block=[threads, 1, 1],
            cluster=[1, self.clusters, 1] if const_expr(self.clusters > 1) else None,
            smem=self.whole(self.stages * 8, 16),
            stream=stream,
        )

    @cute.kernel
    def kernel(
        self, mX: cute.Tensor, mY: cute.Tensor, mW: Optional[cute.Tensor], tiler: cute.Shape, copy: cute.TiledCopy,
        per_row: cutlass.Constexpr[int],
    ):
        tidx, _, _ = cute.arch.thread_idx()
        bidx, _, _ = cute.arch.block_idx()
        gX, gY = [cute.local_tile(m, tiler, (bidx, 0)) for m in (mX, mY)]
        smem = cutlass.utils.SmemAllocator()
        sX = smem.allocate_tensor(mX.element_type, cute.make_ordered_layout(tiler, order=(1, 0)), byte_alignment=16)
        mine = copy.get_slice(tidx)
        tXgX, tXsX, tYgY = mine.partition_S(gX), mine.partition_D(sX), mine.partition_D(gY)
        tXrX = cute.make_rmem_tensor_like(tXgX)
        cute.copy(copy, tXgX, tXsX)
        cute.arch.cp_async_commit_group()
        cute.arch.cp_async_wait_group(0)
        cute.autovec_copy(tXsX, tXrX)
        x = tXrX.load()
        if const_expr(mW is not None):
            x = x * mW[bidx]
        buffer = smem.allocate_array(Float32, num_elems=cute.ceil_div(self.threads, 32))
        sums = cute.make_tensor(buffer, cute.make_layout(cute.ceil_div(self.threads, 32)))
        x = total(x, per_row, sums)
        transform(gY)
        tXrX.store(x)
        cute.copy(copy, tXrX, tYgY)


@cute.struct
class Storage:
    mbar: cute.struct.MemRange[cutlass.Int64, 4]
    sA: cute.struct.Align[cute.struct.MemRange[cutlass.BFloat16, 128 * 64 * 3], 1024]
    count: cutlass.Int32


@cute.kernel
def scale(mA: cute.Tensor, mB: cute.Tensor, factor: Float32, steps: cutlass.Constexpr[int]):
    bidx, bidy, _ = cute.arch.block_idx()
    rank = cute.arch.block_idx_in_cluster()
    storage = cutlass.utils.SmemAllocator().allocate(Storage)
    sA = storage.sA.get_tensor(cute.make_layout((128, 64, 3)))
    gA = cute.local_tile(mA, (128, 64), (bidx, None))
    gB = cute.make_tensor(mB.iterator + bidy * 64, cute.make_layout((64,)))
    for k in cutlass.range(steps):
        cute.copy(mA, gA[None, None, k], sA[None, None, k % 3])
        cute.gemm(mA, mB, sA, sA, mB)
    if bidy == 0:
        gB[bidx] = factor


@cute.jit
def run(mA: cute.Tensor, mB: cute.Tensor, factor: Float32, stream):
    blocks = cute.size(mA, mode=[0]) // 128
    scale(mA, mB, factor, 7).launch(grid=(blocks, 2, 1), block=(64 * 3, 1, 1), smem=Storage.size_in_bytes(), stream=stream)


@cute.kernel
def alone(mA: cute.Tensor, steps: Int32):
    cute.arch.sync_threads()
    places = 8
    for _ in cutlass.range(steps):
        places = places + 8
    cutlass.utils.SmemAllocator().allocate_array(Float32, num_elems=places)
