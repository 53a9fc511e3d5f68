"""What every module class of transformers holds: does the index say what a model built from its defaults holds?

Builds, in a process of its own (tests/support/submodule_truth.py), every model class of every model type from its default
configuration on the meta device, and compares for each module class in them: the classes that each attribute holds,
containers flattened; and whether `find_forward` names the same classes where it calls them. Prints the pairs that are not exact, the classes that could not be built and why, and the totals;
ends with status 1 where anything is wrong or missing. Run with `make sweep-index`; `--truth FILE` keeps what was built
for the next run and goes on where one was cut off, `--every N` takes a sample of the model types.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from opscope_cache.store import open_store
from opscope_tools.index import open_index
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import installed_repository
from same_submodules import disagreements
from submodule_comparison import EXPLAINED, built, compare, held_by_class
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES


def models(kept: Path, every: int) -> list[dict[str, Any]]:
    """What the models hold, from the file as far as it goes, else built now."""
    lines = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    known = {line["model_type"] for line in lines}
    while missing := [name for name in list(CONFIG_MAPPING_NAMES)[::every] if name not in known]:
        with kept.open("a") as stream:
            for line in built(missing):
                known.add(line["model_type"])
                lines.append(line)
                stream.write(json.dumps(line) + "\n")
                stream.flush()
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--show", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = models(arguments.truth or Path(folder) / "built.jsonl", arguments.every)
        failed = Counter(
            pairs.split("(")[0][:80] for line in lines for pairs in line["roots"].values() if isinstance(pairs, str)
        )
        roots = sum(isinstance(pairs, list) for line in lines for pairs in line["roots"].values())
        print(f"{len(lines)} model types, {roots} models built; {failed.total()} not buildable by default:")
        for reason, count in failed.most_common(arguments.show):
            print(f"  {count} x {reason}")
        installed = [installed_repository("transformers", "transformers"), installed_repository("pytorch", "torch")]
        index = open_index([r for r in installed if r is not None], open_store(Path(folder) / "cache"))
        for tree in index.resolver.trees:
            if tree.place is not None:
                build(tree.place, tree.repository.root.resolve(), tree.repository.packages)
        held = held_by_class(lines)
        started = time.process_time()
        pairs = list(compare(index, held))
        seconds = time.process_time() - started
        known = [name for name in sorted(held) if name not in EXPLAINED and name.startswith("transformers.")]
        apart = [sentence for name in known for sentence in disagreements(index, index.one(name))]
    counts = Counter(pair.verdict for pair in pairs)
    for pair in [pair for pair in pairs if pair.verdict != "exact"][: arguments.show]:
        print(f"{pair.verdict}: {pair.owner} .{pair.attribute}\n  built {pair.built}\n  said  {pair.said}")
    for name, reason in EXPLAINED.items():
        print(f"left out: {name}: {reason}")
    for sentence in apart[: arguments.show]:
        print(f"find_forward says otherwise: {sentence}")
    total = sum(counts[name] for name in ("exact", "superset", "unknown", "missing", "wrong"))
    print(f"\n{len(held)} classes, {total} attributes, {seconds / max(len(held), 1) * 1000:.0f} ms CPU a class")
    print("| exact | superset | unknown | missing | wrong | not held |\n|---|---|---|---|---|---|")
    print(
        "| "
        + " | ".join(str(counts[n]) for n in ("exact", "superset", "unknown", "missing", "wrong", "not held"))
        + " |"
    )
    return 1 if counts["wrong"] or counts["missing"] or apart else 0


if __name__ == "__main__":
    sys.exit(main())
