"""FLOPs and bytes of Triton kernels against triton's own interpreter, which runs the real kernels and counts as it goes."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kernel_sources import inventory_of, kernel_sources
from opscope_schemas.common import Repository
from opscope_schemas.tiling import Cost
from opscope_tools.kernels import Inventory, describe, select
from opscope_tools.kernels.values.notation import evaluate
from sampled import sampled

SCRIPT = Path(__file__).parents[2] / "support/triton_count.py"
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int8": 1, "int32": 4, "int64": 8, "uint8": 1}


def t(*shape: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, **more}


@dataclass(frozen=True)
class Case:
    """A kernel of a package and what it is launched with."""

    package: str
    module: str
    kernel: str
    grid: tuple[int, ...]
    arguments: dict[str, Any]


def strided(name: str, heads: int, length: int, width: int) -> dict[str, int]:
    return {f"stride_{name}z": heads * length * width, f"stride_{name}h": length * width, f"stride_{name}n": width}


ROWS = {"X_ptr": t(5, 96), "X_row_stride": 96, "n_cols": 96, "BLOCK_SIZE": 128}
CASES = [
    Case("sageattention", "sageattention.attn_qk_int8_per_block", "_attn_fwd", (2, 3, 1), {
        "Q": t(1, 3, 128, 64, dtype="int8", below=5), "K": t(1, 3, 128, 64, dtype="int8", below=5),
        "V": t(1, 3, 128, 64, dtype="float16"), "Q_scale": t(6), "K_scale": t(6), "Out": t(1, 3, 128, 64, dtype="float16"),
        **strided("q", 3, 128, 64), **strided("k", 3, 128, 64), **strided("v", 3, 128, 64), **strided("o", 3, 128, 64),
        "qo_len": 128, "kv_len": 128, "H": 3, "num_kv_groups": 1, "HEAD_DIM": 64, "BLOCK_M": 64, "BLOCK_N": 32, "STAGE": 1,
    }),
    Case("sageattention", "sageattention.quant_per_block", "quant_per_block_int8_kernel", (2, 3, 1), {
        "Input": t(1, 3, 100, 64, dtype="float16"), "Output": t(1, 3, 100, 64, dtype="int8", below=2), "Scale": t(6), "L": 100,
        **strided("i", 3, 100, 64), **strided("o", 3, 100, 64), "stride_sz": 6, "stride_sh": 2, "sm_scale": 0.5, "C": 64,
        "BLK": 64,
    }),
    Case("liger-kernel", "liger_kernel.ops.rms_norm", "_rms_norm_forward_kernel", (5,), {
        **ROWS, "Y_ptr": t(5, 96), "Y_row_stride": 96, "W_ptr": t(96), "W_row_stride": 1, "RSTD_ptr": t(5),
        "RSTD_row_stride": 1, "eps": 1e-6, "offset": 0.0, "casting_mode": 0, "elementwise_affine": True,
    }),
    Case("liger-kernel", "liger_kernel.ops.rms_norm", "_block_rms_norm_forward_kernel", (2,), {
        **ROWS, "Y_ptr": t(5, 96), "Y_row_stride": 96, "W_ptr": t(96), "W_row_stride": 1, "RSTD_ptr": t(5), "n_rows": 5,
        "RSTD_row_stride": 1, "eps": 1e-6, "offset": 0.0, "casting_mode": 1, "elementwise_affine": False, "BLOCK_ROW": 4,
    }),
    Case("liger-kernel", "liger_kernel.ops.layer_norm", "_layer_norm_forward_kernel", (5,), {
        **ROWS, "Y_ptr": t(5, 96), "Y_row_stride": 96, "W_ptr": t(96), "W_row_stride": 1, "B_ptr": t(96), "B_row_stride": 1,
        "Mean_ptr": t(5), "Mean_row_stride": 1, "RSTD_ptr": t(5), "RSTD_row_stride": 1, "eps": 1e-6,
    }),
    Case("liger-kernel", "liger_kernel.ops.layer_norm", "_layer_norm_backward_kernel", (2,), {
        "X_ptr": t(6, 96), "stride_x": 96, "W_ptr": t(96), "Mean_ptr": t(6), "stride_mean": 1, "RSTD_ptr": t(6),
        "stride_rstd": 1, "DX_ptr": t(6, 96), "stride_dx": 96, "DW_ptr": t(2, 96), "stride_dw": 96, "DB_ptr": t(2, 96),
        "stride_db": 96, "DY_ptr": t(6, 96), "stride_dy": 96, "n_rows": 6, "n_cols": 96, "rows_per_program": 3,
        "BLOCK_SIZE": 128, "COMPUTE_DW": True, "COMPUTE_DB": False,
    }),
    Case("liger-kernel", "liger_kernel.ops.swiglu", "_swiglu_forward_kernel", (5,), {
        "a_ptr": t(5, 96), "b_ptr": t(5, 96), "c_ptr": t(5, 96), "stride": 96, "gate_multiplier": 1.0, "n_cols": 96,
        "BLOCK_SIZE": 128,
    }),
    Case("liger-kernel", "liger_kernel.ops.rope", "_triton_rope", (6,), {
        "q_ptr": t(2, 3, 4, 32), "q_row_stride": 128, "k_ptr": t(2, 3, 2, 32), "k_row_stride": 64, "cos": t(1, 3, 32),
        "cos_row_stride": 32, "sin": t(1, 3, 32), "sin_row_stride": 32, "sl": 3, "bs": 2, "cos_bs": 1, "n_qh": 4, "n_kh": 2,
        "hd": 32, "pad_n_qh": 4, "pad_n_kh": 2, "pad_hd": 32, "pad_rd": 32, "rd": 32, "BLOCK_SIZE": 4,
    }),
    Case("liger-kernel", "liger_kernel.ops.softmax", "_softmax_single_block_forward_kernel", (5,), {
        **ROWS, "Y_ptr": t(5, 96), "Y_row_stride": 96,
    }),
    Case("liger-kernel", "liger_kernel.ops.kl_div", "_kldiv_kernel_forward", (5,), {
        "y_ptr": t(5, 96), "y_stride": 96, "gt_ptr": t(5, 96), "gt_stride": 96, "loss_ptr": t(5, 96), "loss_stride": 96,
        "n_cols": 96, "eps": 1e-6, "BLOCK_SIZE": 32, "reduction": 0, "log_target": False,
    }),
    Case("fla-core", "fla.ops.common.chunk_o", "chunk_fwd_kernel_o", (2, 2, 4), {
        "q": t(2, 64, 2, 64), "k": t(2, 64, 2, 64), "v": t(2, 64, 2, 64), "h": t(2, 2, 2, 64, 64), "g": t(2, 64, 2),
        "g_gamma": None, "o": t(2, 64, 2, 64), "cu_seqlens": None, "chunk_indices": None, "scale": 0.125, "T": 64, "H": 2,
        "HV": 2, "K": 64, "V": 64, "BT": 32, "BK": 32, "BV": 32, "USE_G": True, "USE_G_GAMMA": False,
        "STATE_V_FIRST": False, "IS_VARLEN": False,
    }),
    Case("fla-core", "fla.ops.utils.softmax", "softmax_fwd_kernel", (6,), {
        "x": t(6, 100), "p": t(6, 100), "D": 100, "B": 128,
    }),
    Case("fla-core", "fla.ops.utils.cumsum", "chunk_local_cumsum_scalar_kernel", (2, 4), {
        "s": t(2, 64, 2), "o": t(2, 64, 2), "scale": 2.0, "cu_seqlens": None, "chunk_indices": None, "T": 64, "B": 2, "H": 2,
        "BT": 32, "REVERSE": False, "HAS_SCALE": True, "IS_VARLEN": False,
    }),
    Case("own", "traps", "backwards", (1,), {"X": t(5, 64), "Y": t(1), "N": 5, "BLOCK": 64}),
    Case("own", "traps", "empty", (1,), {"X": t(5, 64), "Y": t(64), "N": 2, "BLOCK": 64}),
    Case("own", "traps", "packed", (1,), {
        "W": t(8, dtype="int32", below=1 << 30), "S": t(1), "Y": t(64), "BLOCK": 64,
    }),
    Case("own", "traps", "halves", (1,), {"X": t(64, dtype="int32", below=9), "Y": t(64), "BLOCK": 64}),
    Case("own", "traps", "accumulated", (1,), {
        "A": t(16, 64), "B": t(64, 32), "C": t(16, 32), "K": 64, "BM": 16, "BN": 32, "BK": 32,
    }),
    Case("own", "traps", "skipped", (3,), {
        "X": t(4, 32), "Ids": t(3, dtype="int32", below=4), "Y": t(3, 32), "BLOCK": 32,
    }),
    Case("own", "traps", "scalars", (1,), {"X": t(64), "Y": t(64), "scale": 0.5, "N": 5, "BLOCK": 64}),
    Case("own", "traps", "carried", (1,), {"X": t(512), "Y": t(32), "N": 3, "BLOCK": 32}),
]  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> dict[str, Path]:
    own = Path(__file__).parents[2] / "corpus/triton_costs"
    return {**kernel_sources(), "own": own}


@pytest.fixture(scope="module")
def inventories(sources: dict[str, Path]) -> dict[str, tuple[Repository, Inventory]]:
    found = {}
    for name, root in sources.items():
        repository = Repository(name=name, root=root, packages=())
        found[name] = repository, inventory_of(repository)
    return found


def interpreted(root: Path, case: Case) -> dict[str, int]:
    request = {
        "root": str(root), "module": case.module, "kernel": case.kernel, "grid": list(case.grid),
        "arguments": case.arguments,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return found


def sizes_of(case: Case) -> dict[str, int]:
    sizes = {k: v for k, v in case.arguments.items() if isinstance(v, int)}
    sizes |= {f"{k}.element_size()": BYTES[v["dtype"]] for k, v in case.arguments.items() if isinstance(v, dict)}
    return sizes


def cost_of(case: Case, inventories: dict[str, tuple[Repository, Inventory]]) -> Cost:
    repository, inventory = inventories[case.package]
    (reference,) = select(inventory, f"{case.module.replace('.', '/')}.py::{case.kernel}")
    given = {k: v for k, v in case.arguments.items() if not isinstance(v, dict)}
    (kernel,) = describe(
        repository, inventory, [reference], given=given, sizes=sizes_of(case), checkpoint=lambda: None,
        progress=lambda *_: None,
    )  # fmt: skip
    assert kernel.cost is not None
    return kernel.cost


@pytest.mark.parametrize("case", sampled(CASES), ids=lambda case: f"{case.package}-{case.kernel}")
def test_a_program_costs_what_the_interpreter_counts(
    case: Case, sources: dict[str, Path], inventories: dict[str, tuple[Repository, Inventory]]
) -> None:
    expected = interpreted(sources[case.package], case)
    cost = cost_of(case, inventories)
    ours = dict.fromkeys(expected, 0)
    for program in itertools.product(*(range(size) for size in case.grid)):
        at = {**sizes_of(case), **{f"program_id({axis})": i for axis, i in enumerate(program)}}
        for name in expected:
            number = evaluate(getattr(cost, name), at)
            assert number is not None, f"{getattr(cost, name)} with {at}"
            ours[name] += int(number)
    assert ours == expected
    assert cost.not_counted == ()


def test_a_step_that_grows_in_a_loop_is_not_told(inventories: dict[str, tuple[Repository, Inventory]]) -> None:
    repository, inventory = inventories["own"]
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (kernel,) = describe(repository, inventory, select(inventory, "carried"), **quiet)
    assert [load.strides for load in kernel.loads] == [("{scale in the loop at line 72} * 2",)]
    assert [load.coalesced for load in kernel.loads] == ["where {scale in the loop at line 72} * 2 == 1"]
    (reverse,) = describe(repository, inventory, select(inventory, "skipped"), **quiet)
    assert reverse.cost is not None
    assert reverse.cost.conditions == ("row != -1 (line 57)",)


def test_what_every_launch_leaves_out_costs_nothing(inventories: dict[str, tuple[Repository, Inventory]]) -> None:
    repository, inventory = inventories["own"]
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    (kernel,) = describe(repository, inventory, select(inventory, "optional"), **quiet)
    assert kernel.cost is not None
    assert (kernel.cost.flops, kernel.cost.read_bytes) == ("BLOCK", "BLOCK * {X.element_size()}")
    assert kernel.cost.conditions == ()
