"""The kernel engine: how CUDA and Triton kernels are tiled, read from source; nothing analysed is imported or run.

`scan` takes the inventory of a repository, `select` finds what a target names in it, `describe` reads those kernels.
Below: inventory (with the cache), records, architectures. `triton` finds a kernel's parameters, decorators and launches over `host`, which reads
the Python around kernels; `cuda` finds definitions and launches in text and parses bodies. Each runs a body once; the run puts down the events
of `run`, and `projections` works out of them what is told.
Whole C++ and CUDA files: checks. Drawings: diagrams. What a kernel takes of a GPU: resources, over occupancy and the compilers in `compiled`.
"""

from opscope_tools.kernels.architectures import Arch, parse_arch
from opscope_tools.kernels.compiled.resources import compiled, static_resources
from opscope_tools.kernels.compiled.triton_types import is_type
from opscope_tools.kernels.describe import describe, launches_of, named_file, nearest, nearest_files, select
from opscope_tools.kernels.inventory import scan
from opscope_tools.kernels.records import Inventory, KernelRef
from opscope_tools.source.files import fingerprint

__all__ = [
    "Arch", "Inventory", "KernelRef", "compiled", "describe", "fingerprint", "is_type", "launches_of", "named_file", "nearest", "nearest_files",
    "parse_arch", "scan", "select", "static_resources",
]  # fmt: skip
