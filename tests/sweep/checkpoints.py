"""Every checkpoint of the table: is it traced in prefill and decode, with the weights that its tree has?

Prints a line per checkpoint and phase, then what failed. Run with `make sweep-checkpoints`; arguments are public names.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from opscope_schemas.errors import OpscopeError
from opscope_tools.costing.arguments import CostArguments
from opscope_tools.costing.checkpoints import checkpoints
from opscope_tools.count_flops import count_flops
from opscope_tools.inspect_model import InspectArguments, inspect_model
from opscope_tools.running.engines import close_engines
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace


def main(names: list[str]) -> int:
    """The number of passes that failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.create(cache_folder=Path(folder), output=Path(folder) / "output")
        context = ToolContext(workspace)
        for name in names or list({id(found.config): name for name, found in checkpoints().items()}.values()):
            for phase, length in (("prefill", 512), ("decode", 1)):
                begun = time.monotonic()
                said = _passed(name, phase, length, context)
                failed += said.startswith("FAILED")
                print(f"{name} {phase}: {said} ({time.monotonic() - begun:.1f} s)", flush=True)
        close_engines(workspace)
        workspace.store.close()
    print(f"{failed} failed")
    return failed


def _passed(name: str, phase: str, length: int, context: ToolContext) -> str:
    values = {"batch_size": 1, "seq_len": length, "cache_len": 511}
    try:
        weights = inspect_model(InspectArguments(model=name), context).parameters
        given = CostArguments.model_validate({"target": name, "phase": phase, "values": values})
        found = count_flops(given, context).evaluated
    except OpscopeError as error:
        return f"FAILED: {error}"
    assert found is not None
    if found.parameters != weights:
        return f"FAILED: {found.parameters:,} weights traced, {weights:,} built"
    return f"{weights:,} weights, {found.matmul_flops:,} FLOPs of products, {found.floor_read:,} bytes at least"


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
