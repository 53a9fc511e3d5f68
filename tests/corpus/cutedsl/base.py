"""What the kernels of rows.py share: a class to build upon, a configuration, helpers on the device."""

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr


@dataclass
class Config:
    threads: int
    clusters: int

    @classmethod
    def for_size(cls, n, width, wide=False):
        threads = 128 if n <= 4096 else 256
        clusters = 1
        for limit, found in [(8192, 1), (16384, 2), (32768, 4)]:
            if n * width <= limit * 16:
                clusters = found
                break
        else:
            clusters = 8
        if wide:
            return cls(threads=2 * threads, clusters=clusters)
        return cls(threads=threads, clusters=clusters)


class Base:
    def __init__(self, dtype, n, stages=1):
        self.dtype = dtype
        self.n = n
        self.stages = stages

    def per_row(self):
        raise NotImplementedError()

    @property
    def vector(self):
        return 128 // self.dtype.width

    @staticmethod
    def whole(a, b):
        return (a + b - 1) // b * b

    def tiled(self, threads):
        per_row = self.per_row()
        assert threads % cute.arch.WARP_SIZE == 0, "whole warps"
        blocks = cute.ceil_div(self.n // self.vector, per_row * self.clusters)
        tiler = (threads // per_row, self.vector * blocks * per_row)
        layout = cute.make_ordered_layout((threads // per_row, per_row), order=(1, 0))
        copy = cute.make_tiled_copy_tv(
            cute.make_copy_atom(cute.nvgpu.CopyUniversalOp(), self.dtype), layout, cute.make_layout((1, self.vector))
        )
        return copy, tiler, per_row


@cute.jit
def total(x, threads, buffer, mbar=None):
    lane = cute.arch.lane_idx()
    if const_expr(threads > 32):
        if lane == 0:
            buffer[cute.arch.warp_idx()] = x
        cute.arch.barrier()
        x = buffer[lane]
    return x
