"""Registers, shared bytes and spills of 30 CUDA instances and 30 launches of Triton kernels, against the compilers asked directly.

CUDA: whole files compiled as they stand by nvcc; each entry is then asked of the tool by its demangled name. Triton: host
functions are run on the CPU with tensors of a language model's sizes, and what they launch is compiled through Triton's own
`ASTSource`; the tool is asked for the same kernel with no more than source leaves open. Run with `make sweep-instances`.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import torch
from compiled_truth import Asked, by_nvcc, by_triton, differing, figures, plain
from kernel_sources import kernel_sources

CORPUS = Path(__file__).parents[1] / "corpus/instances"
_TORCH = Path(torch.__file__).parent / "include"
#: (package, file, folder to look for headers in)
FILES = (
    ("", "csrc/instances.cu", "include"),
    ("exllamav2", "exllamav2/exllamav2_ext/cuda/rms_norm.cu", ""),
    ("exllamav2", "exllamav2/exllamav2_ext/cuda/softcap.cu", ""),
)
_OPS = "liger_kernel/ops"
#: what only callers know: that these are vectors
_WEIGHT: dict[str, Any] = {"W_row_stride": 1}
_ROWS: dict[str, Any] = {**_WEIGHT, "B_row_stride": 1}
#: (package, file, kernel, the call that launches it, what the tool is given)
LAUNCHES: tuple[tuple[str, str, str, str, dict[str, Any]], ...] = (
    ("", "rows.py", "scaled_rows", "scale_rows(tensor(16, 2048, 4096))", {}),
    ("", "rows.py", "scaled_rows", "scale_rows(tensor(2, 8192))", {"BLOCK": 8192}),
    ("", "rows.py", "scaled_rows", "scale_rows(tensor(2, 65536))", {"BLOCK": 65536}),
    ("", "rows.py", "product", "multiply_small(tensor(2048, 4096), tensor(4096, 4096))", {}),
    ("", "rows.py", "product", "multiply(tensor(2048, 4096), tensor(4096, 4096))", {"BM": 128}),
    ("", "rows.py", "wide_rows", "sum_rows(tensor(2048, 128256))", {}),
    ("", "rows.py", "heads", "mix_heads(tensor(16, 32, 64, 128))", {}),
    ("liger-kernel", f"{_OPS}/softmax.py", "_softmax_single_block_forward_kernel", "_softmax_forward(tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/softmax.py", "_softmax_single_block_forward_kernel", "_softmax_forward(tensor(20, 65536))",
     {"BLOCK_SIZE": 65536}),
    ("liger-kernel", f"{_OPS}/softmax.py", "_softmax_single_block_forward_kernel", "_softmax_forward(tensor(20, 16384))",
     {"BLOCK_SIZE": 16384}),
    ("liger-kernel", f"{_OPS}/softmax.py", "_softmax_single_block_backward_kernel",
     "_softmax_backward(tensor(2048, 4096), tensor(2048, 4096), 4096, 8, False)", {"BLOCK_SIZE": 4096, "num_warps": 8}),
    ("liger-kernel", f"{_OPS}/layer_norm.py", "_layer_norm_forward_kernel",
     "layer_norm_forward(tensor(2048, 4096), tensor(4096), tensor(4096), 1e-6)", _ROWS),
    ("liger-kernel", f"{_OPS}/layer_norm.py", "_layer_norm_forward_kernel",
     "layer_norm_forward(tensor(20, 65536), tensor(65536), tensor(65536), 1e-6)",
     {"BLOCK_SIZE": 65536, **_ROWS}),
    ("liger-kernel", f"{_OPS}/rms_norm.py", "_rms_norm_forward_kernel",
     "rms_norm_forward(tensor(2048, 4096), tensor(4096), 1e-6, 0.0, 'llama', None)", _WEIGHT),
    ("liger-kernel", f"{_OPS}/rms_norm.py", "_rms_norm_forward_kernel",
     "rms_norm_forward(tensor(20, 65536), tensor(65536), 1e-6, 0.0, 'llama', None)",
     {"BLOCK_SIZE": 65536, **_WEIGHT}),
    ("liger-kernel", f"{_OPS}/swiglu.py", "_swiglu_forward_kernel", "swiglu_forward(tensor(2048, 4096), tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/swiglu.py", "_swiglu_backward_kernel",
     "swiglu_backward(tensor(2048, 4096), tensor(2048, 4096), tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/swiglu.py", "_swiglu_fused_gate_up_forward_kernel",
     "swiglu_fused_gate_up_forward(tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/geglu.py", "_geglu_tanh_forward_kernel", "geglu_forward(tensor(2048, 4096), tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/geglu.py", "_geglu_tanh_forward_kernel", "geglu_forward(tensor(20, 65536), tensor(20, 65536))",
     {"BLOCK_SIZE": 65536}),
    ("liger-kernel", f"{_OPS}/geglu.py", "_geglu_tanh_backward_kernel",
     "geglu_backward(tensor(2048, 4096), tensor(2048, 4096), tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/relu_squared.py", "_relu_squared_forward_kernel", "relu_squared_forward(tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/relu_squared.py", "_relu_squared_backward_kernel",
     "relu_squared_backward(tensor(2048, 4096), tensor(2048, 4096))", {}),
    ("liger-kernel", f"{_OPS}/poly_norm.py", "_poly_norm_forward_kernel",
     "poly_norm_forward(tensor(2048, 4096), tensor(3), tensor(1))", {}),
    ("liger-kernel", f"{_OPS}/fused_add_rms_norm.py", "_fused_add_rms_norm_forward_kernel",
     "fused_add_rms_norm_forward(tensor(2048, 4096), tensor(2048, 4096), tensor(4096), 1e-6, 0.0, 'llama')", _WEIGHT),
    ("liger-kernel", f"{_OPS}/kl_div.py", "_kldiv_kernel_forward",
     "kldiv_forward_triton(tensor(2048, 128256), tensor(2048, 128256), False, 'batchmean', 1e-10)",
     {"reduction": 3, "log_target": False}),
    ("liger-kernel", f"{_OPS}/tvd.py", "_tv_distance_kernel",
     "tv_distance_forward_triton(tensor(2048, 128256), tensor(2048, 128256), tensor(2048, dtype=torch.int64), 'none', -100, True)",
     {"label_ptr": "*i64", "loss_stride": "i32", "ignore_index": -100, "reduction": 0}),
    ("liger-kernel", f"{_OPS}/sparsemax.py", "_sparsemax_forward_kernel", "_sparsemax_forward(tensor(2048, 4096), -1)",
     {"sorted_x_ptr": "*fp32"}),
    ("sageattention", "sageattention/quant_per_block.py", "quant_per_block_int8_kernel",
     "per_block_int8(tensor(16, 32, 2048, 128), tensor(16, 32, 2048, 128))", {}),
    ("sageattention", "sageattention/attn_qk_int8_per_block.py", "_attn_fwd",
     "forward(tensor(16, 32, 2048, 128, dtype=torch.int8), tensor(16, 32, 2048, 128, dtype=torch.int8), "
     "tensor(16, 32, 2048, 128, dtype=torch.float16), tensor(16, 32, 16, dtype=torch.float32), "
     "tensor(16, 32, 32, dtype=torch.float32))", {"Q": "*i8", "K": "*i8", "num_kv_groups": 1}),
)  # fmt: skip


def quiet(*_: object) -> None:
    pass


def cuda(roots: dict[str, Path], most: int, arch: str = "sm_90") -> tuple[int, list[str]]:
    """How many instances were compared, and the ones that differ."""
    count, wrong = 0, []
    for package, file, headers in FILES:
        root = roots[package]
        asked = Asked(root)
        with tempfile.TemporaryDirectory() as folder:
            theirs = by_nvcc(root / file, [root / headers, _TORCH], arch, Path(folder))
        drawn = random.Random(0).sample(sorted(theirs), min(most - count, len(theirs)))
        for entry, expected in ((name, theirs[name]) for name in drawn):
            begun = time.monotonic()
            found = asked.resources(asked.kernel_of(entry), arch, instance=plain(entry))
            ours = found.builds[0]
            count += 1
            same = not ours.error and figures(ours) == expected
            print(
                f"{'same' if same else 'DIFFERS'} {entry[:100]} {expected} {time.monotonic() - begun:.1f} s", flush=True
            )
            if not same:
                wrong.append(f"{file}: {entry}: {ours.error or figures(ours)} for {expected}")
    return count, wrong


def triton(roots: dict[str, Path], only: slice = slice(None), capability: int = 90) -> tuple[int, list[str]]:
    """How many launches were compared, and the ones that differ."""
    count, wrong = 0, []
    cases = LAUNCHES[only]
    for package in dict.fromkeys(case[0] for case in cases):
        mine = [case for case in cases if case[0] == package]
        asked = Asked(roots[package])
        calls = [{"module": file.removesuffix(".py").replace("/", "."), "code": code} for _, file, _, code, _ in mine]
        for (_, file, kernel, code, given), answer in zip(
            mine, by_triton(roots[package], calls, capability), strict=True
        ):
            launch = next((one for one in answer["launches"] if one["kernel"] == kernel), None)
            count += 1
            if launch is None:
                wrong.append(f"{kernel}: never launched by {code}: {answer.get('error')}")
                continue
            begun = time.monotonic()
            found = asked.resources(f"{file}::{kernel}", f"sm_{capability}", given)
            build = next(
                (b for b in found.builds if b.options.get("num_warps") == launch["num_warps"]), found.builds[0]
            )
            problems = differing(build, launch)
            print(
                f"{'DIFFERS' if problems else 'same'} {kernel} {given} {figures(build)} {time.monotonic() - begun:.1f} s",
                flush=True,
            )
            wrong += [f"{kernel} by {code}: {problem}" for problem in problems]
    return count, wrong


if __name__ == "__main__":
    roots = {"": CORPUS, **kernel_sources()}
    problems = []
    for name, (count, wrong) in (("Triton", triton(roots)), ("CUDA", cuda(roots, 30))):
        print(f"{name}: {count} compared, {len(wrong)} disagreements")
        problems += wrong
    print("\n".join(problems))
    sys.exit(bool(problems))
