"""Changes one operator, comparison or number after another, drawn at random, and says which ones no test notices.

    python tests/mutants/drawn.py [--count N] [--seed S] [WORD ...]     only files whose name holds one of the words

A survivor is a missing test, or code whose change makes no difference: read it and decide.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from run import ROOT, copied, passes

_TOOLS = "tools/opscope_tools"
#: a file and the tests that speak of it
HELD: dict[str, tuple[str, ...]] = {
    "schemas/opscope_schemas/formula.py": ("tests/schemas/test_formula.py",),
    "cache/opscope_cache/keys.py": ("tests/tools/test_cache_keys.py", "tests/cache"),
    f"{_TOOLS}/report/checks.py": ("tests/tools/report/test_checks.py",),
    f"{_TOOLS}/source/python/names.py": ("tests/tools/index/test_index_names.py", "tests/tools/index/test_index_bindings.py"),
    f"{_TOOLS}/kernels/compiled/occupancy.py": ("tests/tools/kernels/test_occupancy.py",),
}  # fmt: skip
_COMPARISONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "in": "not in", "not in": "in", "is": "is not", "is not": "is"}  # fmt: skip
_OPERATORS = {
    "+": "-",
    "-": "+",
    "*": "+",
    "//": "*",
    "/": "*",
    "%": "//",
    "and": "or",
    "or": "and",
    "&": "|",
    "|": "&",
}


def changes(source: str) -> list[tuple[int, int, str]]:
    """Every change: start, end, and what is put there instead."""
    lines = [0]
    for line in source.splitlines(keepends=True):
        lines.append(lines[-1] + len(line.encode()))
    data = source.encode()

    def at(line: int, column: int) -> int:
        return lines[line - 1] + column

    def between(left: ast.expr, right: ast.expr, table: dict[str, str]) -> Iterator[tuple[int, int, str]]:
        start, end = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
        written = data[start:end].decode()
        bare = written.strip(" ()\n")
        if bare in table:
            begin = start + written.index(bare)
            yield begin, begin + len(bare), table[bare]

    found: list[tuple[int, int, str]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Compare):
            for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
                found += between(left, right, _COMPARISONS)
        elif isinstance(node, ast.BinOp):
            found += between(node.left, node.right, _OPERATORS)
        elif isinstance(node, ast.BoolOp):
            for left, right in zip(node.values, node.values[1:], strict=False):
                found += between(left, right, _OPERATORS)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            start, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
            found.append((start, end, str(not node.value if isinstance(node.value, bool) else node.value + 1)))
        elif isinstance(node, ast.If | ast.IfExp):
            start, end = (
                at(node.test.lineno, node.test.col_offset),
                at(node.test.end_lineno or 0, node.test.end_col_offset or 0),
            )
            found.append((start, end, f"not ({data[start:end].decode()})"))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=20, help="changes in each file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("words", nargs="*")
    given = parser.parse_args(arguments)
    survived = tried = 0
    with tempfile.TemporaryDirectory(prefix="opscope-mutants-") as folder:
        tree = copied(Path(folder))
        for name, tests in HELD.items():
            if given.words and not any(word in name for word in given.words):
                continue
            if not passes(tree, tests):
                sys.stdout.write(f"{name}: its tests fail as it is; run them by themselves.\n")
                return 1
            source = (ROOT / name).read_text("utf-8")
            every = changes(source)
            for start, end, put in random.Random(f"{given.seed} {name}").sample(every, min(given.count, len(every))):
                data = source.encode()
                (tree / name).write_bytes(data[:start] + put.encode() + data[end:])
                tried += 1
                if passes(tree, tests):
                    survived += 1
                    line = source.encode()[:start].count(b"\n") + 1
                    sys.stdout.write(f"survived  {name}:{line}  {data[start:end].decode()} -> {put}\n")
                    sys.stdout.flush()
            (tree / name).write_text(source, "utf-8")
    sys.stdout.write(f"{tried - survived} of {tried} changes are noticed.\n")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
