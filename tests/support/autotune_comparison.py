"""Autotune sets read from source beside those that Python makes, on a machine without a GPU."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from opscope_schemas.tiling import Autotune, KernelTiling

_SCRIPT = Path(__file__).with_name("live_configs.py")


@dataclass
class Verdict:
    """Ids of kernels whose sets are equal, differ, or are not enumerated by us."""

    equal: list[str]
    different: list[str]
    open: list[str]


def compared(kernels: list[KernelTiling], root: Path, top: str, paths: list[Path], folder: Path) -> Verdict:
    """Every autotuned kernel that Python could import, its set beside ours where no platform test holds."""
    command = [sys.executable, str(_SCRIPT), str(root), *map(str, paths), top]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, cwd=folder)
    live = json.loads(done.stdout.splitlines()[-1])["found"]
    verdict = Verdict([], [], [])
    for kernel in kernels:
        if kernel.autotune is None or kernel.id not in live:
            continue
        theirs = {_config(values, warps, stages) for values, warps, stages in live[kernel.id]}
        if kernel.autotune.unresolved:
            verdict.open.append(kernel.id)
        else:
            (verdict.equal if _without_gpu(kernel.autotune) == theirs else verdict.different).append(kernel.id)
    return verdict


def _without_gpu(tuned: Autotune) -> set[str]:
    """Our configurations under conditions that hold where every test of the platform says no."""
    return {_config(c.values, c.num_warps, c.num_stages) for c in tuned.configs if not c.when or _holds(c.when)}


def _holds(when: str) -> bool:
    """A condition with every name and call in it False."""
    words = {"not", "and", "or"}
    text = re.sub(r"[A-Za-z_][\w.]*(\([^()]*\))?", lambda m: m[0] if m[0] in words else "False", when)
    if not re.fullmatch(r"(?:[\s()]|False|not|and|or)*", text):
        raise ValueError(when)
    return bool(eval(text))


def _config(values: object, warps: object, stages: object) -> str:
    """One configuration; triton.Config takes 4 warps and 3 stages where none are given."""
    return json.dumps([values, 4 if warps is None else warps, 3 if stages is None else stages], sort_keys=True)
