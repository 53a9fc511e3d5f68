"""Which machine this is: what `lscpu`, the kernel and the driver of a GPU say."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
from pathlib import Path

from opscope_schemas.evidence import Machine

from opscope_tools.children import run

__all__ = ["caches", "this_machine"]


def caches(text: str) -> dict[str, tuple[int, int]]:
    """Bytes of one cache and its ways, by name (L1d, L2, L3), from `lscpu -C -J -B`."""
    found: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(ValueError, AttributeError, KeyError, TypeError):  # what lscpu does not tell stays empty
        for row in json.loads(text).get("caches", []):
            if row.get("one-size"):
                found[row["name"]] = (int(row["one-size"]), int(row.get("ways") or 0))
    return found


def this_machine(name: str = "here") -> Machine:
    """The machine at hand; what it does not tell stays empty."""
    said = _lines(("lscpu",))
    held = caches(_text(("lscpu", "-C", "-J", "-B")) or "{}")
    gpu, _, driver = _text(("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")).partition("\n")[0].partition(", ")  # fmt: skip
    cpu = said.get("Model name", platform.processor())
    family = f" (family {said['CPU family']}, model {said['Model']})" if {"CPU family", "Model"} <= said.keys() else ""
    return Machine(
        name=name, cpu=f"{cpu}{family}", cpus=os.cpu_count() or 0, kernel=f"{platform.system()} {platform.release().partition('-')[0]}",
        virtual=said.get("Hypervisor vendor", ""), memory_bytes=_memory(), gpu=gpu.strip(), driver=driver.strip(),
        **{f"{level}_bytes": held[key][0] for level, key in (("l1", "L1d"), ("l2", "L2"), ("l3", "L3")) if key in held},
    )  # fmt: skip


def _text(command: tuple[str, ...]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = run(command, seconds=20, environment={"LC_ALL": "C"})
    return "" if done.code else done.out


def _lines(command: tuple[str, ...]) -> dict[str, str]:
    pairs = (line.partition(":") for line in _text(command).splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


def _memory() -> int:
    try:
        first = Path("/proc/meminfo").read_text().splitlines()[0]
        return int(first.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return 0
