"""The kernel engine: how CUDA and Triton kernels are tiled, read from source; nothing analysed is imported or run.

`scan` takes the inventory of a repository, `select` finds what a target names in it, `describe` reads those kernels.
Below: files, inventory (with the cache), facts, arch. Triton: triton_find, triton_body, autotune, triton_launch,
triton, over interpret with evaluate, symbols, calls, pymodule, host; what a tile costs: triton_tiles, triton_operations, triton_cost, counts, cost.
CUDA: ctext, cuda_types, cuda_find, cuda_expr, cuda_host, cuda_scope, cuda_access, cuda_memory, cuda_body, cuda_templates, cuda.
Whole C++ and CUDA files: checks. Drawings: diagrams. What a kernel takes of a GPU: resources, over occupancy and the compilers in `compiled`.
"""

from opscope_tools.kernels.arch import Arch, parse_arch
from opscope_tools.kernels.compiled.triton_types import is_type
from opscope_tools.kernels.describe import describe, launches_of, named_file, nearest, nearest_files, select
from opscope_tools.kernels.facts import Inventory, KernelRef
from opscope_tools.kernels.files import fingerprint
from opscope_tools.kernels.inventory import scan
from opscope_tools.kernels.resources import compiled, static_resources

__all__ = [
    "Arch", "Inventory", "KernelRef", "compiled", "describe", "fingerprint", "is_type", "launches_of", "named_file", "nearest", "nearest_files",
    "parse_arch", "scan", "select", "static_resources",
]  # fmt: skip
