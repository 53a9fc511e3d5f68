"""The kernels that are described in full, and their descriptions as they come out now.

`python tests/support/described_kernels.py NAME` prints one, to be read against its source before its file under
tests/corpus/kernels_described is changed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kernel_card import card
from kernel_sources import kernel_sources
from opscope_cache.store import MemoryStore
from opscope_schemas.common import Repository
from opscope_tools.kernels import describe, scan, select

CORPUS = Path(__file__).parents[1] / "corpus"
EXPECTED = CORPUS / "kernels_described"
KERNELS = {
    "quantize": ("sageattention", "sageattention/quant_per_block.py::quant_per_block_int8_kernel"),
    "flash_attention": ("sageattention", "sageattention/attn_qk_int8_per_block.py::_attn_fwd"),
    "softmax": ("liger-kernel", "liger_kernel/ops/softmax.py::_softmax_single_block_forward_kernel"),
    "rms_norm": ("liger-kernel", "liger_kernel/ops/rms_norm.py::_rms_norm_forward_kernel"),
    "rope": ("liger-kernel", "liger_kernel/ops/rope.py::_triton_rope"),
    "swiglu": ("liger-kernel", "liger_kernel/ops/swiglu.py::_swiglu_forward_kernel"),
    "scan": ("fla-core", "fla/ops/utils/cumsum.py::chunk_local_cumsum_scalar_kernel"),
    "pack": ("exllamav2", "exllamav2/exllamav2_ext/cuda/pack_tensor.cu::pack_columns_kernel"),
    "vector_add": ("exllamav2", "exllamav2/exllamav2_ext/cuda/h_add.cu::cuda_vector_add_kernel"),
    "convert": ("exllamav2", "exllamav2/exllamav2_ext/cuda/cache.cu::fp16_to_fp8_kernel"),
    "softcap": ("exllamav2", "exllamav2/exllamav2_ext/cuda/softcap.cu::h_cuda_softcap_kernel"),
    "matmul_triton": ("", "shop/ops/matmul.py::matmul_kernel"),
    "matmul_cuda": ("", "shop/csrc/sgemm.cu::sgemm_kernel"),
    "paged_attention": ("own", "paged_attention.cu::paged_attention_kernel"),
    "int4_matmul": ("own", "int4_matmul.py::int4_matmul_kernel"),
}


def described(name: str, sources: dict[str, Path]) -> list[str]:
    package, target = KERNELS[name]
    root = {"": CORPUS / "kernels", "own": CORPUS / "kernels_own"}.get(package) or sources[package]
    repository = Repository(name=package or "shop", root=root, packages=())
    quiet: Any = {"checkpoint": lambda: None, "progress": lambda *_: None}
    inventory = scan(repository, MemoryStore(), **quiet)
    (kernel,) = describe(repository, inventory, select(inventory, target), **quiet)
    return card(kernel)


if __name__ == "__main__":
    found = kernel_sources()
    for name in sys.argv[1:] or KERNELS:
        sys.stdout.write("\n".join([f"== {name}", *described(name, found), ""]))
