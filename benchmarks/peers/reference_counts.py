"""The reference: what one run of each case really computes, by tests/support/cost_walk.py. Prints a JSON object.

It sees every operator with its tensors and knows nothing of opscope.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from cost_walk import products, walked
from peer_cases import CASES, Case
from peer_models import built, forward


def counted(case: Case) -> list[tuple[int, int, int]]:
    """Products, all FLOPs and bytes at each point; products are counted by a walk of their own."""
    model, found = built(case), []
    for point in case.points:
        walk = walked(forward(model, point))
        found.append((products(forward(model, point)), walk.flops, walk.read + walk.write))
    return found


if __name__ == "__main__":
    print(json.dumps({name: {"answers": counted(case)} for name, case in CASES.items()}))
