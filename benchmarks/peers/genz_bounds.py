"""Counts and bounds of whole checkpoints beside those of GenZ: one device, one point, the same figures of the device given to both.

GenZ runs in its own interpreter; its gigabytes are 2^30 bytes. Known differences: its decode counts no table of embeddings among
the weights; its prefill makes logits of every position and scores above the diagonal; it has no norms and activations.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from opscope_tools.estimate_roofline.tool import RooflineArguments, estimate_roofline
from opscope_tools.hardware.devices import shipped
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

#: as GenZ and as the table of checkpoints names them
_MODELS = {
    "meta-llama/Llama-3.1-8B": "meta-llama/Meta-Llama-3.1-8B", "mistralai/Mistral-7B": "mistralai/Mistral-7B-v0.1",
    "mistralai/Mixtral-8x7B": "mistralai/Mixtral-8x7B-v0.1",
}  # fmt: skip
_POINTS = [("decode", 8, 4096), ("decode", 1, 1024), ("prefill", 1, 1024)]
DEVICE = "h200_sxm"
#: what GenZ calls a megabyte; its "MACs" are FLOPs here, in millions: operator_base.py doubles them where a system is given
_MEGABYTE = 2**20
_PEER = """
import json, sys, warnings
warnings.filterwarnings("ignore")
from GenZ import decode_moddeling, prefill_moddeling
asked, found = json.loads(sys.argv[1]), []
for model, phase, batch, length in asked["cases"]:
    given = dict(model=model, batch_size=batch, input_tokens=length, system_name=asked["system"], system_eff=1, bits="bf16")
    try:
        run = decode_moddeling(Bb=1, output_tokens=1, **given) if phase == "decode" else prefill_moddeling(**given)
        found.append({name: float(run["summary_table"][name].values[0]) for name in asked["names"]})
    except Exception as error:
        found.append({"error": f"{type(error).__name__}: {error}"})
print("\\n" + json.dumps(found))
"""
_NAMES = ("MACs (MFLOP)", "Total Weights (MB)", "KV Cache (MB)", "Latency (msec)")
_SCALES = (1e-3, _MEGABYTE / 1e9, _MEGABYTE / 1e9, 1.0)
UNITS = ("GFLOP", "GB of weights", "GB of cache", "ms, bound")


def bounds(python: Path) -> list[dict[str, Any]]:
    """For each model and point: opscope's four figures and GenZ's, in the same units, or why GenZ has none."""
    device = shipped()[DEVICE]
    system = {"Flops": device.peak_flops["bf16"] / 1e12, "Memory_BW": device.bandwidth / 2**30, "Memory_size": device.capacity / 1e9,
              "ICN": 450, "real_values": True}  # fmt: skip
    cases = [(model, *point) for model in _MODELS for point in _POINTS]
    asked = json.dumps({"system": system, "cases": cases, "names": _NAMES})
    peer = subprocess.run([python, "-c", _PEER, asked], capture_output=True, text=True, check=True)
    context, rows = ToolContext(Workspace.create()), []
    for (model, phase, batch, length), theirs in zip(cases, json.loads(peer.stdout.splitlines()[-1]), strict=True):
        row: dict[str, Any] = {"model": model, "phase": phase, "batch": batch, "length": length}
        values = {"batch_size": batch, "cache_len" if phase == "decode" else "seq_len": length}
        given: dict[str, Any] = {"target": _MODELS[model], "hardware": DEVICE, "phase": phase, "values": values}
        found = estimate_roofline(RooflineArguments.model_validate(given), context)
        row["ours"] = (
            found.totals.flops / 1e9,
            found.memory.weights_bytes / 1e9,
            found.memory.cache_bytes / 1e9,
            found.totals.bound_seconds * 1e3,
        )
        if "error" in theirs:
            rows.append({**row, "error": theirs["error"]})
        else:
            rows.append({**row, "theirs": [theirs[n] * s for n, s in zip(_NAMES, _SCALES, strict=True)]})
    return rows


__all__ = ["DEVICE", "UNITS", "bounds"]
