"""What one more token costs: bytes and FLOPs of a decode step as the cache grows.

python clients/examples/cost_of_one_token.py [MODEL_TYPE]
"""

import sys

from opscope_clients import Session


def main(model: str = "qwen2") -> None:
    with Session() as opscope:
        print(f"{model}: one sequence, one new token")
        print(f"{'cached':>8} {'FLOPs':>16} {'bytes moved':>16} {'FLOPs per byte':>15}")
        for cached in (1024, 8192, 32768):
            point = {"batch_size": 1, "seq_len": 1, "cache_len": cached}
            cost = opscope.expand_refs(model, phase="decode", values=point, depth=0).evaluated
            assert cost is not None
            moved = cost.memory_read + cost.memory_write
            print(f"{cached:>8,} {cost.flops:>16,} {moved:>16,} {cost.flops / moved:>15.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
