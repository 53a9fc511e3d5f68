"""Every model type of transformers: does `extract_config` say what its default configuration object holds?

Makes the objects in a process of its own (tests/support/config_truth.py) and compares every name, every value, every default
as written and every line that the answers point at; nested configurations too. Prints what is not right, the totals, and how
long one model type takes cold and warm; ends with status 1 where a value, a name or a line is wrong. Run with
`make sweep-configs`; model types as arguments narrow it, `--every N` takes a sample.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from config_comparison import Comparison, compare, live
from opscope_cache.store import open_store
from opscope_schemas.errors import OpscopeError
from opscope_schemas.extracted_config import ExtractConfigResult
from opscope_tools.extract_config.tool import EXTRACT_CONFIG
from opscope_tools.running.runner import run_tool
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import DEFAULT_PACKAGES, Workspace, installed_repository


def asked(context: ToolContext, model_type: str, section: str | None = "hyperparameters") -> ExtractConfigResult:
    """The whole answer of the tool."""
    arguments = {"target": model_type, "section": section, "detail": "full", "limit": 500}
    result = run_tool(EXTRACT_CONFIG, {k: v for k, v in arguments.items() if v is not None}, context)
    assert isinstance(result, ExtractConfigResult)
    return result


def main() -> int:
    """Compare, print, and say by the status whether anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", type=int, default=60)
    arguments = parser.parse_args()
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    names = arguments.types or list(CONFIG_MAPPING_NAMES)[:: arguments.every]
    truths = live(names)
    found, seconds = Comparison(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        repositories = {n: r for n, p in DEFAULT_PACKAGES.items() if (r := installed_repository(n, p)) is not None}
        workspace = Workspace(repositories, Path(folder), open_store(Path(folder) / "cache"))
        context = ToolContext(workspace)
        started = time.perf_counter()
        whole = asked(context, names[0], None)
        cold = time.perf_counter() - started
        started = time.perf_counter()
        run_tool(EXTRACT_CONFIG, {"target": names[0], "limit": 499}, context)
        warm = time.perf_counter() - started
        for truth in truths:
            if "error" in truth:
                found.fault("not made by transformers", f"{truth['model_type']}: {truth['error'][:120]}")
                continue
            started = time.perf_counter()
            try:
                said = asked(context, truth["model_type"])
            except OpscopeError as error:
                found.fault("refused", f"{truth['model_type']}: {error}")
                continue
            seconds += time.perf_counter() - started
            compare(said, truth, workspace, found)
    for fault in found.faults[: arguments.show]:
        print(fault)
    kinds = [
        "right",
        "wrong",
        "missing",
        "extra",
        "open",
        "default right",
        "default wrong",
        "line right",
        "line wrong",
        "refused",
    ]
    print(f"\n{len(truths)} model types, {seconds / max(len(truths), 1) * 1000:.0f} ms each without constraints")
    print(
        f"{names[0]} with constraints: {cold:.2f} s in a new workspace, {warm:.2f} s once its files are read, {whole.constraint_count} constraints"
    )
    print("| " + " | ".join(kinds) + " |\n|" + "---|" * len(kinds))
    print("| " + " | ".join(str(found.counts[kind]) for kind in kinds) + " |")
    return (
        1
        if any(found.counts[kind] for kind in ("wrong", "missing", "extra", "default wrong", "line wrong", "refused"))
        else 0
    )


if __name__ == "__main__":
    sys.exit(main())
