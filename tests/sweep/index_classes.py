"""Every module class of transformers and torch: does the index say what Python makes of it?

Imports, in a process of its own (tests/tools/index/runtime_truth.py), all modeling files of transformers and every other
file of both packages that can define a module class, and compares for each subclass of `torch.nn.Module`: file, line of
the `class` keyword, the forward that runs (file, line, class that holds it) and the whole MRO; then the class that each
public name of `transformers`, `torch` and `torch.nn` leads to. Prints what differs, what could not be imported and why,
a table, and the totals; ends with status 1 where anything differs. Run with `make sweep-index`; `--show N` bounds the
differences printed, `--truth FILE` keeps the imported side for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opscope_cache.store import open_store
from opscope_schemas.common import Repository
from opscope_schemas.errors import OpscopeError
from opscope_tools.index import ClassSymbol, Index, open_index
from opscope_tools.index.build.build import build
from opscope_tools.running.workspace import folder_repository, installed_repository

PROGRAM = Path(__file__).parents[1] / "tools" / "index" / "runtime_truth.py"
PUBLIC = ("transformers", "torch", "torch.nn")
#: seconds that the import of everything may take
LIMIT = 1500
#: names that no source binds, and what does
EXPLAINED = {
    "torch.Storage": "set on the module by torch's C++ code when the default tensor type is set",
    "transformers.DummyObject": "served because _import_structure is filled from dir() of a module that imports it",
}
_CLASS = re.compile(rb"^[ \t]*class[ \t]+\w+[^\n]*\(", re.MULTILINE)


def modules(repository: Repository) -> Iterator[str]:
    """Modules that may define a module class; templates and conversion scripts are none of the package's."""
    for top in repository.packages:
        for file in sorted((repository.root / top).rglob("*.py")):
            if file.name.startswith(("modular_", "convert_")) or file.name == "__main__.py":
                continue
            source = file.read_bytes()
            if file.name.startswith("modeling_") or (b"Module" in source and _CLASS.search(source)):
                parts = file.relative_to(repository.root).with_suffix("").parts
                yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(repositories: list[Repository], public: tuple[str, ...]) -> dict[str, Any]:
    """What Python says. A module whose import ends or stalls the process is named as such and left out."""
    wanted = [name for repository in repositories for name in modules(repository)]
    tops = [top for repository in repositories for top in repository.packages]
    dead: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        progress, answer = Path(folder, "progress"), Path(folder, "answer.json")
        while True:
            request = {
                "modules": [name for name in wanted if name not in dead], "tops": tops, "public": public,
                "exports": [], "models": [], "picks": "transformers" in tops, "progress": str(progress), "answer": str(answer),
            }  # fmt: skip
            try:
                done = subprocess.run(
                    [sys.executable, str(PROGRAM)], input=json.dumps(request), text=True, timeout=LIMIT,
                    env={**os.environ, "HF_HUB_OFFLINE": "1"}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                )  # fmt: skip
                ended = f"the process ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"
            except subprocess.TimeoutExpired:
                ended = f"not imported within {LIMIT} s"
            if answer.is_file():
                found: dict[str, Any] = json.loads(answer.read_text())
                found["failed"].update(dead)
                return found
            culprit = progress.read_text() if progress.is_file() else ""
            if not culprit or culprit in dead:
                raise SystemExit(f"The import did not come to an end: {ended}")
            dead[culprit] = ended


def built_index(repositories: list[Repository], folder: Path) -> Index:
    """An index that has read everything, so that no question reads files of its own."""
    index = open_index(repositories, open_store(folder))
    for tree in index.resolver.trees:
        assert tree.place is not None
        build(tree.place, tree.repository.root, tree.repository.packages)
    return index


def said_of(index: Index, symbol: ClassSymbol) -> dict[str, Any]:
    """What the index says, in the words of the imported side."""
    forward = index.forward(symbol)
    said: dict[str, Any] = {
        "file": str(symbol.repository.root / symbol.file),
        "line": symbol.line,
        "forward": None,
        "defined_in": None,
        "mro": index.mro(symbol),
    }
    if forward is not None:
        said["forward"] = [str(forward.unit.tree.repository.root / forward.file), forward.line]
        said["defined_in"] = forward.defined_in.qualified_name
    return said


def differences(index: Index, name: str, expected: dict[str, Any]) -> dict[str, Any]:
    """Field -> (said, expected); empty where all are equal."""
    try:
        said = said_of(index, index.one(name))
    except OpscopeError as error:
        return {"unresolved": (str(error), expected.get("file"))}
    keys = ["mro", "forward", "defined_in", *(["file", "line"] if "file" in expected else [])]
    return {key: (said[key], expected.get(key)) for key in keys if said[key] != expected.get(key)}


def compare(index: Index, truth: dict[str, Any]) -> tuple[dict[str, Counter[str]], dict[str, dict[str, Any]]]:
    """Per package, classes by outcome; and what differs, by class."""
    counts: dict[str, Counter[str]] = {}
    wrong: dict[str, dict[str, Any]] = {}
    for name, expected in sorted(truth["classes"].items()):
        found = differences(index, name, expected)
        count = counts.setdefault(name.split(".", 1)[0], Counter())
        count["compared"] += 1
        if found:
            wrong[name] = found
        count["unresolvable" if "unresolved" in found else "different" if found else "equal"] += 1
        count["forward set at run time"] += "unread" in expected
    return counts, wrong


def compare_names(index: Index, truth: dict[str, Any]) -> tuple[dict[str, Counter[str]], dict[str, str]]:
    """The same for public names; a class without a class statement (made in C, or by a call) is none of the index's."""
    counts: dict[str, Counter[str]] = {}
    wrong: dict[str, str] = {}
    for dotted, expected in sorted(truth["exports"].items()):
        count = counts.setdefault(f"names of {dotted.rpartition('.')[0]}", Counter())
        file = expected.get("file", "")
        if re.search(r"/dummy_\w*objects\.py$", file) or expected["name"].endswith(".Placeholder"):
            count["stand-in for a missing package"] += 1
            continue
        if not any(
            file.startswith(f"{t.repository.root / top}/")
            for t in index.resolver.trees
            for top in t.repository.packages
        ):
            count["outside the source"] += 1
            continue
        count["compared"] += 1
        try:
            symbol = index.one(dotted)
            said = f"{symbol.repository.root / symbol.file}:{symbol.line}"
        except OpscopeError as error:
            said = str(error)
        if said == f"{expected['file']}:{expected['line']}":
            count["equal"] += 1
        else:
            wrong[dotted] = f"{said} != {expected['file']}:{expected['line']}"
            count["different" if ".py:" in said else "unresolvable"] += 1
    return counts, wrong


def compare_picks(index: Index, truth: dict[str, Any]) -> tuple[dict[str, Counter[str]], dict[str, str]]:
    """What each auto class picks for a configuration of each model type that it knows."""
    count: Counter[str] = Counter()
    wrong: dict[str, str] = {}
    for auto, picked in truth["picks"].items():
        for model_type, expected in picked.items():
            if expected.endswith(".Placeholder"):
                count["stand-in for a missing package"] += 1
                continue
            count["compared"] += 1
            try:
                said = index.target(f"{auto}", None, {"model_type": model_type}).symbol.qualified_name
            except OpscopeError as error:
                said = str(error)
            count["equal" if said == expected else "different"] += 1
            if said != expected:
                wrong[f"{auto} for {model_type}"] = f"{said} != {expected}"
    return ({"picks of auto classes": count} if count else {}), wrong


def report(truth: dict[str, Any], counts: dict[str, Counter[str]]) -> None:
    print(f"\nnot importable here: {len(truth['failed'])} modules")
    for module, reason in sorted(truth["failed"].items()):
        print(f"  {module}: {reason}")
    replaced = [name for name, expected in truth["classes"].items() if "unread" in expected]
    print(f"\nforward is no def that source holds, on both sides: {len(replaced)} classes")
    for name in sorted(replaced):
        print(f"  {name}: {truth['classes'][name]['unread']}")
    for word, said in (("called", "assigned another name at run time"), ("replaced", "forward replaced at run time")):
        noted = {name: expected[word] for name, expected in truth["classes"].items() if word in expected}
        print(f"\n{said}, compared by what the source defines: {len(noted)} classes")
        for name, text in sorted(noted.items()):
            print(f"  {name}: {text}")
    columns = [
        "compared", "equal", "different", "unresolvable", "forward set at run time", "outside the source",
        "stand-in for a missing package",
    ]  # fmt: skip
    print("\n| of | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for label, count in counts.items():
        print(f"| {label} | " + " | ".join(str(count[column]) for column in columns) + " |")


def repositories_of(arguments: argparse.Namespace) -> tuple[list[Repository], tuple[str, ...]]:
    """What to compare: the installed packages, or a folder on sys.path beside them."""
    found = [installed_repository("transformers", "transformers"), installed_repository("pytorch", "torch")]
    installed = [repository for repository in found if repository is not None]
    if arguments.package:
        folder = installed_repository(arguments.package, arguments.package)
        if folder is None:
            raise SystemExit(f"{arguments.package} is not installed.")
        added = folder_repository(arguments.package, folder.root / arguments.package)
        return [added, *installed], (arguments.package,)
    return installed, PUBLIC


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", type=int, default=50)
    parser.add_argument("--truth", type=Path)
    parser.add_argument("--package", help="compare this package instead, which must be importable")
    arguments = parser.parse_args()
    repositories, public = repositories_of(arguments)
    read = repositories[:1] if arguments.package else repositories
    if arguments.truth and arguments.truth.is_file():
        truth = json.loads(arguments.truth.read_text())
    else:
        truth = imported(read, public)
        if arguments.truth:
            arguments.truth.write_text(json.dumps(truth))
    with tempfile.TemporaryDirectory() as folder:
        index = built_index(repositories, Path(folder))
        start = time.process_time()
        counts, wrong = compare(index, truth)
        named, astray = compare_names(index, truth)
        picked, mistaken = compare_picks(index, truth)
        seconds = time.process_time() - start
        index.close()
    for name, found in [*wrong.items()][: arguments.show]:
        print(name, *(f"\n    {key}: {said}\n    Python: {python}" for key, (said, python) in found.items()))
    for dotted, text in [*astray.items(), *mistaken.items()][: arguments.show]:
        print(f"{dotted}: {text}{' -- ' + EXPLAINED[dotted] if dotted in EXPLAINED else ''}")
    report(truth, {**counts, **named, **picked})
    total = sum(counts.values(), Counter())
    names = sum(named.values(), Counter())
    print(
        f"\nclasses: {total['compared']} compared, {total['equal']} equal, {total['different']} different, "
        f"{total['unresolvable']} unresolvable; names: {names['compared']} compared, {names['equal']} equal; "
        f"auto classes' picks: {sum(c['compared'] for c in picked.values())} compared, {len(mistaken)} different; "
        f"{len(truth['failed'])} modules not importable; {seconds:.1f} s"
    )
    return 1 if wrong or mistaken or astray.keys() - EXPLAINED else 0


if __name__ == "__main__":
    sys.exit(main())
