"""Host helpers that the kernels' callers share."""

import os

import triton

IS_AMD = triton.runtime.driver.active.get_current_target().backend == "hip"
TILES = [64, 128] if not IS_AMD else [32]
STAGES = int(os.environ.get("SHOP_STAGES", 3))


def is_hip():
    return triton.runtime.driver.active.get_current_target().backend == "hip"


def row_settings(n):
    limit = 65536
    block = triton.next_power_of_2(n)
    if block > limit:
        raise RuntimeError("too wide")
    warps = 4
    if block >= 8192:
        warps = 16 if not is_hip() else 8
    elif block >= 2048:
        warps = 8
    return block, warps


def matmul_configs():
    configs = []
    for m in TILES:
        for n in (32, 64):
            if m * n > 4096:
                continue
            configs.append(triton.Config({"BLOCK_M": m, "BLOCK_N": n}, num_warps=m // 16, num_stages=STAGES))
    return configs
