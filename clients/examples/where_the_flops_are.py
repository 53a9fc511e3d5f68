"""The lines of a module that take most of its FLOPs, each with its formula.

python clients/examples/where_the_flops_are.py [CLASS]
"""

import sys

from opscope_clients import Session
from opscope_schemas.formula import evaluate


def main(target: str = "LlamaAttention") -> None:
    with Session() as opscope:
        found = opscope.count_flops(target, values={"batch_size": 1, "seq_len": 512})
    assert found.evaluated is not None
    document, point = found.document, found.evaluated.values
    by_flops = sorted(document.lines, key=lambda line: evaluate(line.flops, point), reverse=True)
    print(f"{document.class_name}: {found.evaluated.flops:,} FLOPs")
    for line in by_flops[:3]:
        share = evaluate(line.flops, point) / found.evaluated.flops
        print(f"{share:6.1%}  {line.file}:{line.line}  {line.flops}")


if __name__ == "__main__":
    main(*sys.argv[1:])
